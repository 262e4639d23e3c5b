"""The documentation is true: its commands run, its links resolve, its tables are complete.

Pages carry markers, HTML comments in front of a code fence, that a test follows in a copy
of the project:

    file: PATH               write the fence to PATH
    append: PATH SECTION     add the fence at the end of a top-level section of a YAML file
    edit: PATH               replace the lines behind `-` and ` ` by those behind `+` and ` `
    run: exit N, roughly     run the `$` lines; the rest of the fence is what they print (stdout
                             and stderr); `roughly` lets numbers differ, the exit code is of the
                             last command and 0 unless given

``python -m pytest tests/test_docs.py --update-golden`` writes into the pages what their commands
print; exit codes stay as the pages have them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from shaderloom import cli, dtypes, expr, spec
from shaderloom.names import TEMPLATE_NAMES
from shaderloom_runtime import cli as runtime_cli

ROOT = Path(__file__).parent.parent
SCHEMA_PAGE = ROOT / "docs" / "spec.md"
SECTIONS = {  # model of the schema -> section of docs/spec.md
    "SpecModel": "Top level",
    "FamilySpec": "Family",
    "BlockSpec": "Block",
    "BindingSpec": "Binding",
    "Member": "Member",
    "InputSpec": "Field",
    "OpSpec": "Op",
    "RequireSpec": "Requirement",
    "RouteSpec": "Route",
    "DispatchSpec": "Dispatch",
    "LocalSpec": "Local choice",
    "SizeRuleSpec": "Local-size rule",
    "CaseSpec": "Case",
    "LintSpec": "Lints",
    "FrozenSpec": "Frozen variant",
}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *ROOT.glob("generated/*.md"),
    ]
)
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
STEP = re.compile(r"<!-- (file|append|edit|run)(?:: ([^\n]*))? -->\n```\w*\n(.*?)```\n", re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the user's part of a fresh clone, with the programs of its `.venv/bin`."""
    shutil.copy(ROOT / "variants.yaml", tmp_path)
    for name in ("templates", "scripts", "generated", "tests/foreign"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("spv"))
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "clone"]):
        subprocess.run(["git", *IDENTITY, *command], cwd=tmp_path, check=True)
    folder = tmp_path / ".venv" / "bin"
    folder.mkdir(parents=True)
    for program, arguments in (
        ("python", ""),
        ("shaderloom", "-c 'import sys; from shaderloom.cli import main; sys.exit(main())'"),
        ("shaderloom-runtime", "-m shaderloom_runtime"),
    ):
        path = folder / program
        path.write_text(f"#!/bin/sh\nexec '{sys.executable}' {arguments} \"$@\"\n")
        path.chmod(0o755)
    return tmp_path


def run(command: str, project: Path) -> tuple[int, str]:
    """Run a shell command; return its exit code, and stdout and stderr as they came."""
    env = {**os.environ, "SHADERLOOM_CACHE": str(project / "cache")}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "codegen"), str(ROOT / "runtime")])
    env["SHADERLOOM_GENERATED"] = str(project / "generated")  # that of an editable install
    env["SHADERLOOM_DEVICE"] = "llvmpipe"  # the device of the pages
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
            lines = body.splitlines(keepends=True)
            old, new = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
            text = (project / argument).read_text()
            assert text.count(old) == 1, f"{page}: {old!r} is not once in {argument}"
            (project / argument).write_text(text.replace(old, new))
        else:
            commands += run_fence(page, argument, body, project, update)
    return commands


def append(path: Path, section: str, text: str) -> None:
    """Add ``text`` where the top-level ``section`` of a YAML file ends."""
    before, head, rest = path.read_text().partition(f"\n{section}:\n")
    assert head, f"{path.name} has no section {section}"
    end = re.search(r"^[\w#]", rest, re.MULTILINE)  # the next section, or a comment before it
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
    assert any("pick leaky_relu" in command for command in commands)


def test_readme_shows_what_its_commands_print(
    project: Path, request: pytest.FixtureRequest
) -> None:
    commands = follow("README.md", project, request)
    assert "./host" in commands


@pytest.mark.parametrize("page", ["docs/dispatch.md", "docs/runtime.md"])
def test_page_shows_what_its_commands_print(
    page: str, project: Path, request: pytest.FixtureRequest
) -> None:
    assert run(".venv/bin/shaderloom build --quiet", project) == (0, "")
    assert follow(page, project, request)


def test_commands_of_every_page_exist() -> None:
    for page in PAGES:
        text = (ROOT / page).read_text()
        commands = re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        programs = r"make|(?:\.venv/bin/)?(?:shaderloom|shaderloom-runtime|python)"
        commands += re.findall(rf"`((?:{programs}) [^`\n]*)`", text)
        for command in commands:
            check_command(command.partition(" | ")[0], page)


def check_command(command: str, page: str) -> None:
    """Accept what the program's own parser accepts, or the bare name of one of its commands."""
    program, *arguments = shlex.split(command)
    name = Path(program).name
    if name == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), f"{page}: {command}"
    elif name in ("shaderloom", "shaderloom-runtime"):
        parser = (cli if name == "shaderloom" else runtime_cli)._parser()
        if len(arguments) == 1 and arguments[0] in commands_of(parser):
            return  # named in the running text, without its operands
        try:
            parser.parse_args(arguments)
        except SystemExit:
            pytest.fail(f"{page}: {command}")
    elif name == "python" and arguments[0] == "-m":
        assert importlib.util.find_spec(f"{arguments[1]}.__main__"), f"{page}: {command}"
    elif name == "python":
        # What a page made itself, it has run.
        script = (ROOT / arguments[0]).exists() or f"file: {arguments[0]} -->" in page_text(page)
        assert script, f"{page}: {command}"
    else:
        assert name in ("cc", "git", "host", "rm"), f"{page}: {command}"


def commands_of(parser: argparse.ArgumentParser) -> list[str]:
    [commands] = (a.choices for a in parser._actions if isinstance(a.choices, dict))
    return list(commands)


def page_text(page: str) -> str:
    return (ROOT / page).read_text()


def test_readme_documents_the_exit_codes() -> None:
    text = (ROOT / "README.md").read_text()
    table = text.partition("## Exit codes")[2].partition("##")[0]
    assert re.findall(r"^\| (\d+) \|", table, re.MULTILINE) == ["0", "1", "2", "3", "4", "130"]


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
            elif field.default not in (None, "", [], {}):
                assert documented[key] == str(field.default), key


def test_every_type_storage_and_extension_is_documented() -> None:
    text = SCHEMA_PAGE.read_text()
    known = [*dtypes.DTYPES, *dtypes.MEMBER_TYPES, *dtypes.CONSTANT_TYPES, *dtypes.STORAGES]
    for name in [*known, *dtypes.TARGET_ENVS, *TEMPLATE_NAMES[:6]]:
        assert f"`{name}`" in text, name
    for extension, features in dtypes.EXTENSIONS.items():
        names = ", ".join(f"`{feature}`" for feature in features)
        assert f"| `{extension}` | {names + ' ' if names else ''}|" in text


def test_every_function_of_the_expression_language_is_documented() -> None:
    text = (ROOT / "docs" / "dispatch.md").read_text().partition("## Expressions")[2]
    for name in expr.FUNCTIONS:
        assert f"`{name}(" in text, name


def test_every_family_is_in_the_table_of_kernels() -> None:
    text = (ROOT / "docs" / "kernels.md").read_text()
    for family in spec.read_spec(ROOT / "variants.yaml", "variants.yaml").model.families:
        assert f"| `{family}` |" in text, family


def test_the_tables_of_dispatch_name_what_there_is() -> None:
    text = (ROOT / "docs" / "dispatch.md").read_text()
    header = (ROOT / "generated" / "dispatch.h").read_text()
    record = header.partition("typedef struct shaderloom_dispatch {")[2].partition("}")[0]
    for field in re.findall(r"(\w+)(?:\[\w+\])?;", record):
        assert f"`{field}`" in text, field
    for reason in re.findall(r"SHADERLOOM_(REENCODE_\w+) ", header):
        assert f"`SHADERLOOM_{reason}`" in text, reason


def test_flow_names_files_that_exist() -> None:
    for page in ("docs/flow.md", "docs/flow.svg"):
        text = (ROOT / page).read_text()
        for module in re.findall(r"\b(\w+\.py)\b", text):
            folders = (ROOT / "codegen" / "shaderloom", ROOT / "generated")
            assert any((folder / module).exists() for folder in folders), f"{page}: {module}"
        for template in re.findall(r"\btemplates/[\w./]+\.j2", text):
            assert (ROOT / template).exists(), f"{page}: {template}"
        committed = re.findall(r"\bgenerated/(?!spv/)[\w/]+\.\w+", text)
        assert committed
        for path in committed:
            assert (ROOT / path).exists(), f"{page}: {path}"


def test_demo_prints_a_summary(project: Path) -> None:
    code, output = run(f"'{sys.executable}' scripts/demo.py", project)
    assert code == 0, output
    assert re.search(r"^conv2d_pw_tiled +4 +4 +[\d,]+$", output, re.MULTILINE)
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
