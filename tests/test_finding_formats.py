"""Findings in every format, and what continuous integration does with them."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from loom_support import REPOSITORY, Project
from shaderloom import cli
from shaderloom.errors import Diagnostic, Position
from shaderloom.finding_formats import FORMATS
from shaderloom.lints import LINTS, Finding, from_diagnostics

LIB, SPEC = "templates/lib/gain.glsl.j2", "variants.yaml"
ODD = (
    Finding(
        "copy", "SL007", "a | b\n100%", level="warning", position=Position("a b,c:d.yaml", 3, 7)
    ),
    Finding("x.spv", "SL201", "empty", position=Position("x.spv")),
)


def check_sarif(text: str) -> list[dict[str, Any]]:
    """Hold a log against what SARIF 2.1.0 requires of the parts used here; return the results."""
    log = json.loads(text)
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"  # section 3.13.2
    assert log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = run["tool"]["driver"]  # 3.14.6, 3.18.2, 3.19.8
    assert driver["name"] == "shaderloom"
    rules = driver["rules"]
    assert [rule["id"] for rule in rules] == list(LINTS)  # 3.49.3
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error")
    results: list[dict[str, Any]] = run["results"]
    for result in results:
        assert result["message"]["text"]  # 3.27.11
        assert result["level"] in ("warning", "error")
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]  # 3.27.6
        [location] = result["locations"]
        physical = location["physicalLocation"]
        uri = physical["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9_.~%/-]+", uri)  # a relative URI reference, 3.4.3
        assert not uri.startswith("/")
        if "region" in physical:
            assert physical["region"]["startLine"] >= 1  # 3.30.5
            assert physical["region"]["startColumn"] >= 1
    return results


def test_text() -> None:
    assert FORMATS["text"](ODD[1:]) == "x.spv: error: empty [SL201 unreadable-module]\n"


def test_json() -> None:
    first, _ = json.loads(FORMATS["json"](ODD))
    assert first == {
        "subject": "copy",
        "lint": "SL007",
        "name": "dead-push-constant",
        "level": "warning",
        "message": "a | b\n100%",
        "file": "a b,c:d.yaml",
        "line": 3,
        "column": 7,
    }


def test_markdown() -> None:
    assert FORMATS["markdown"](()) == "No findings.\n"
    shown = FORMATS["markdown"](ODD).splitlines()
    assert shown[2] == "| warning | SL007 dead-push-constant | `copy` | a \\| b 100% |"
    assert len(shown) == 4


def test_workflow_commands_are_escaped() -> None:
    assert FORMATS["github"](ODD) == (
        "::warning file=a b%2Cc%3Ad.yaml,line=3,col=7,title=SL007 dead-push-constant"
        "::copy: a | b%0A100%25\n"
        "::error file=x.spv,title=SL201 unreadable-module::empty\n"
    )


def test_sarif() -> None:
    first, second = check_sarif(FORMATS["sarif"](ODD))
    physical = first["locations"][0]["physicalLocation"]
    assert unquote(physical["artifactLocation"]["uri"]) == "a b,c:d.yaml"
    assert physical["region"] == {"startLine": 3, "startColumn": 7}
    assert (first["level"], second["level"]) == ("warning", "error")
    assert "region" not in second["locations"][0]["physicalLocation"]
    assert check_sarif(FORMATS["sarif"](())) == []


def test_mistakes_are_findings_too() -> None:
    told = from_diagnostics(
        [Diagnostic(Position("a", 1), "x"), Diagnostic(Position("a", 2), "y", "SL010")]
    )
    assert [finding.lint for finding in told] == ["SL000", "SL010"]
    assert "::error file=a,line=2,title=SL010 absent-operand::y\n" in FORMATS["github"](told)


@pytest.mark.parametrize("command", ["audit", "check"])
@pytest.mark.parametrize("form", FORMATS)
def test_nothing_to_say(built: Project, command: str, form: str) -> None:
    ran = built.loom(command, "--format", form)
    assert (ran.code, ran.err) == (0, "")
    if form == "sarif":
        assert check_sarif(ran.out) == []
    elif form != "text":
        assert ran.out == {"json": "[]\n", "markdown": "No findings.\n", "github": ""}[form]


def test_an_audit_in_every_format(tiny: Project) -> None:
    tiny.replace(LIB, " * gain_factor", "")
    ran = {form: tiny.loom("audit", "--format", form) for form in FORMATS}
    assert {each.code for each in ran.values()} == {1}
    line = 1 + next(
        i for i, text in enumerate((tiny.folder / SPEC).read_text().splitlines())
        if "gain_factor" in text
    )  # fmt: skip
    [finding] = json.loads(ran["json"].out)
    assert (finding["file"], finding["line"]) == (SPEC, line)
    assert ran["github"].out == (
        f"::error file={SPEC},line={line},col={finding['column']},"
        "title=SL007 dead-push-constant::copy: push constant gain_factor is used by no variant\n"
    )
    [result] = check_sarif(ran["sarif"].out)
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    assert "| error | SL007 dead-push-constant | `copy` |" in ran["markdown"].out


def test_a_check_in_every_format(tiny: Project) -> None:
    tiny.build()
    (tiny.out / "registry.c").write_text("x")
    (tiny.out / "registry.h").unlink()
    (tiny.out / "glsl/extra.comp").write_text("x")
    ran = {form: tiny.loom("check", "--format", form) for form in FORMATS}
    assert {each.code for each in ran.values()} == {1}
    for form, each in ran.items():
        shown = each.err if form == "text" else each.out
        for lint in ("SL101", "SL102", "SL103"):
            assert lint in shown, form
    assert [r["ruleId"] for r in check_sarif(ran["sarif"].out)] == ["SL103", "SL102", "SL101"]
    assert "::error file=generated/registry.c,title=SL102 stale-file::stale: " in ran["github"].out


@pytest.mark.parametrize("command", ["audit", "check"])
def test_a_broken_spec_is_annotated(tiny: Project, command: str) -> None:
    tiny.replace(SPEC, "absent: t_in", "absent: t_out")
    ran = tiny.loom(command, "--format", "github")
    assert ran.code == 2
    assert ran.out.startswith(f"::error file={SPEC},line=8,col=16,title=SL010 absent-operand::")
    [result] = check_sarif(tiny.loom(command, "--format", "sarif").out)
    assert result["ruleId"] == "SL010"
    assert tiny.loom(command, "--format", "json").out == ""


def test_a_shader_that_does_not_compile_is_annotated(tiny: Project) -> None:
    tiny.replace("templates/ops/fill.comp.j2", "vec4(value)", "vec4(valu)")
    ran = tiny.loom("audit", "--format", "github")
    assert ran.code == 1
    assert ran.out.startswith(
        "::error file=templates/ops/fill.comp.j2,line=4,title=SL000 mistake::'valu' : undeclared"
    )


# ---- hooks and workflows ------------------------------------------------------------------------


def parses(command: str) -> bool:
    """Tell whether the command line takes a command; redirections are the shell's."""
    program, *arguments = re.split(r" >>? ", command)[0].split()
    try:
        cli._parser().parse_args(arguments)
    except SystemExit:
        return False
    return program == "shaderloom"


def test_the_hooks_run_commands_that_exist() -> None:
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["shaderloom-check", "shaderloom-audit"]
    for hook in hooks:
        assert {"id", "name", "entry", "language", "files"} <= set(hook)
        assert parses(hook["entry"])
        assert hook["pass_filenames"] is False
        pattern = re.compile(hook["files"])
        assert pattern.search("variants.yaml")
        assert pattern.search("templates/ops/clamp.comp.j2")
        assert not pattern.search("README.md")


def test_the_hooks_install_the_compilers_of_the_package() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    listed = ", ".join(f'"{name}"' for name in hooks[1]["additional_dependencies"])
    assert f"compilers = [{listed}]" in project


def test_the_workflows_of_the_documentation() -> None:
    page = (REPOSITORY / "docs/ci.md").read_text(encoding="utf-8")
    workflow, hooks = (
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    )
    assert set(workflow) == {"name", True, "permissions", "jobs"}  # YAML 1.1 reads "on" as true
    [job] = workflow["jobs"].values()
    assert job["runs-on"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    ours = [command for command in commands if command.startswith("shaderloom")]
    assert len(ours) == 4
    assert all(parses(command) for command in ours)
    assert not parses("shaderloom audit --format html")
    assert all("uses" in step or "run" in step for step in job["steps"])
    ids = [hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]]
    assert ids == ["shaderloom-check", "shaderloom-audit"]
    for form in FORMATS:
        assert f"| `{form}` |" in page
