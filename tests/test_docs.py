"""The documentation is true: its commands run, its links resolve, its tables are complete.

Pages carry markers, HTML comments in front of a code fence, that a test follows in a copy
of the project:

    file: PATH               write the fence to PATH
    append: PATH SECTION     add the fence at the end of a top-level section of a YAML file
    edit: PATH               replace the line behind `-` by the line behind `+`
    run: exit N, roughly     run the `$` lines; the rest of the fence is what they print (stdout
                             and stderr); `roughly` lets numbers differ, the exit code is of the
                             last command and 0 unless given

``python -m pytest tests/test_docs.py --update-golden`` writes into the pages what their commands
print; exit codes stay as the pages have them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from shaderloom import cli, dtypes, spec

ROOT = Path(__file__).parent.parent
SCHEMA_PAGE = ROOT / "docs" / "spec.md"
SECTIONS = {  # model of the schema -> section of docs/spec.md
    "SpecModel": "Top level",
    "FamilySpec": "Family",
    "BlockSpec": "Block",
    "BindingSpec": "Binding",
    "Member": "Member",
}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("generated/*.md")]
)
STEP = re.compile(r"<!-- (file|append|edit|run)(?:: ([^\n]*))? -->\n```\w*\n(.*?)```\n", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the user's part of a fresh clone, with a `.venv/bin/shaderloom`."""
    shutil.copy(ROOT / "variants.yaml", tmp_path)
    for name in ("templates", "scripts", "generated"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("spv"))
    program = tmp_path / ".venv" / "bin" / "shaderloom"
    program.parent.mkdir(parents=True)
    code = "import sys; from shaderloom.cli import main; sys.exit(main())"
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{code}' \"$@\"\n")
    program.chmod(0o755)
    return tmp_path


def run(command: str, project: Path) -> tuple[int, str]:
    """Run a shell command; return its exit code, and stdout and stderr as they came."""
    env = {**os.environ, "SHADERLOOM_CACHE": str(project / "cache")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "codegen"), str(ROOT / "runtime")])
    done = subprocess.run(
        command, shell=True, cwd=project, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def follow(page: str, project: Path, request: pytest.FixtureRequest) -> list[str]:
    """Do every step that the page marks; return the commands run."""
    update = request.config.getoption("--update-golden", default=False)
    commands = []
    for kind, argument, body in STEP.findall((ROOT / page).read_text()):
        if kind == "file":
            (project / argument).write_text(body)
        elif kind == "append":
            name, section = argument.split()
            append(project / name, section, body)
        elif kind == "edit":
            old, new = (line[1:] for line in body.splitlines())
            text = (project / argument).read_text()
            assert text.count(old) == 1, f"{page}: {old!r} is not one line of {argument}"
            (project / argument).write_text(text.replace(old, new))
        else:
            commands += run_fence(page, argument, body, project, update)
    return commands


def append(path: Path, section: str, text: str) -> None:
    """Add ``text`` where the top-level ``section`` of a YAML file ends."""
    before, head, rest = path.read_text().partition(f"\n{section}:\n")
    assert head, f"{path.name} has no section {section}"
    end = re.search(r"^\w", rest, re.MULTILINE)
    cut = end.start() if end else len(rest)
    path.write_text(before + head + rest[:cut] + "\n" + text + rest[cut:])


def run_fence(page: str, options: str, body: str, project: Path, update: bool) -> list[str]:
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
    printed, code = "", 0
    for command in commands:
        code, output = run(command, project)
        printed += f"$ {command}\n{output}"
    expected = re.search(r"exit (\d+)", options)
    assert code == (int(expected[1]) if expected else 0), f"{page}: {printed}"
    compared = roughly if "roughly" in options else str
    if update and compared(printed) != compared(body):
        text = (ROOT / page).read_text()
        (ROOT / page).write_text(text.replace(f"\n{body}```", f"\n{printed}```", 1))
    else:
        assert compared(printed) == compared(body), f"{page}: --update-golden writes it anew"
    return commands


def roughly(text: str) -> str:
    """Blank out numbers, e.g. in `18 modules, 59,648 bytes, 0.3 s`."""
    return re.sub(r"\d[\d,.]*\d|\d", "#", text)


def test_add_a_family_works_as_written(project: Path, request: pytest.FixtureRequest) -> None:
    commands = follow("docs/add-a-family.md", project, request)
    for command in ("build", "audit", "check", "explain leaky_relu_half"):
        assert f".venv/bin/shaderloom {command}" in commands


def test_readme_shows_what_its_commands_print(
    project: Path, request: pytest.FixtureRequest
) -> None:
    commands = follow("README.md", project, request)
    assert "./host" in commands


def test_commands_of_every_page_exist() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        commands = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        commands += re.findall(r"`((?:make|\.venv/bin/shaderloom|shaderloom) [^`\n]*)`", text)
        for command in commands:
            check_command(command, page)


def check_command(command: str, page: str) -> None:
    program, *arguments = command.split()
    if program == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), f"{page}: {command}"
    elif program.endswith("shaderloom"):
        if arguments == ["explain"]:  # named in the running text, without its operand
            arguments.append("VARIANT")
        try:
            cli._parser().parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{page}: {command}")
    else:
        assert program in ("cc", "./host"), f"{page}: {command}"


def test_readme_documents_the_exit_codes() -> None:
    text = (ROOT / "README.md").read_text()
    table = text.partition("## Exit codes")[2].partition("##")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", "130"]


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", path.read_text())):
        if re.match(r"[a-z]+:", target):
            continue  # on the network
        name, _, anchor = target.partition("#")
        found = (path.parent / name).resolve() if name else path
        assert found.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(found), f"{page}: {target}"


def anchors(path: Path) -> list[str]:
    """The names GitHub gives to headings: lower case, without punctuation, `-` for a space."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def section(heading: str) -> str:
    """The text below a heading of docs/spec.md, up to the next one."""
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", SCHEMA_PAGE.read_text(), re.M | re.S)
    assert found, heading
    return found[1]


def reachable(here: Any) -> list[type[BaseModel]]:
    """The models that a type is made of, itself included."""
    if isinstance(here, type) and not isinstance(here, types.GenericAlias):
        if not issubclass(here, BaseModel):
            return []
        parts = [reachable(field.annotation) for field in here.model_fields.values()]
        return [here, *(model for part in parts for model in part)]
    return [model for part in typing.get_args(here) for model in reachable(part)]


def test_every_key_of_the_schema_is_documented() -> None:
    top = typing.get_type_hints(spec.Spec)["model"]
    models = {model.__name__: model for model in reachable(top)}
    assert set(models) == set(SECTIONS), "each model has a section of docs/spec.md"
    for name, heading in SECTIONS.items():
        rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|", section(heading), re.MULTILINE)
        keys = {field.alias or key: field for key, field in models[name].model_fields.items()}
        documented = {key: default.strip("`") for key, default in rows if key in keys}
        assert set(documented) == set(keys), f"keys of section {heading}"
        for key, field in keys.items():
            if field.is_required():
                assert documented[key] == "required", key
            elif field.default not in (None, [], {}):
                assert documented[key] == str(field.default), key


def test_every_type_storage_and_extension_is_documented() -> None:
    text = SCHEMA_PAGE.read_text()
    known = [*dtypes.DTYPES, *dtypes.MEMBER_TYPES, *dtypes.CONSTANT_TYPES, *dtypes.STORAGES]
    for name in [*known, *dtypes.TARGET_ENVS]:
        assert f"`{name}`" in text, name
    for extension, features in dtypes.EXTENSIONS.items():
        names = ", ".join(f"`{feature}`" for feature in features)
        assert f"| `{extension}` | {names + ' ' if names else ''}|" in text


def test_flow_names_files_that_exist() -> None:
    for page in ("docs/flow.md", "docs/flow.svg"):
        text = (ROOT / page).read_text()
        for module in re.findall(r"\b(\w+\.py)\b", text):
            assert (ROOT / "codegen" / "shaderloom" / module).exists(), f"{page}: {module}"
        for template in re.findall(r"\btemplates/[\w./]+\.j2", text):
            assert (ROOT / template).exists(), f"{page}: {template}"
        committed = re.findall(r"\bgenerated/(?!spv/)[\w/]+\.\w+", text)
        assert committed
        for path in committed:
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_demo_prints_a_summary(project: Path) -> None:
    code, output = run(f"'{sys.executable}' scripts/demo.py", project)
    assert code == 0, output
    assert re.search(r"^conv2d_pw_tiled +conv2d +2 +2 +[\d,]+$", output, re.MULTILINE)
    for label in ("build ", "compilers ", "audit ", "skipped ", "Next"):
        assert f"\n{label}" in output
    assert run(".venv/bin/shaderloom build", project) == (0, "generated: up to date\n")


def test_demo_reports_a_mistake_without_a_stack_trace(project: Path) -> None:
    text = (project / "variants.yaml").read_text()
    (project / "variants.yaml").write_text(text.replace("low: float", "low: flot"))
    code, output = run(f"'{sys.executable}' scripts/demo.py", project)
    assert code == 2
    assert re.fullmatch(
        r"variants\.yaml:\d+:\d+: error: unknown type 'flot' of 'low'; did you mean 'float'\?\n",
        output,
    )
