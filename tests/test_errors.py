"""Every kind of mistake against its exact message: the golden cases in ``golden/errors``.

A case is a folder: files that are laid over ``golden/base``, ``command`` (the lines that are
run there; ``shaderloom`` is the loom, anything else a program), and ``expected.txt``, what they
print as errors and their exit codes. ``python -m pytest tests/test_errors.py --update-golden``
writes the latter anew; read the difference before you commit it.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from loom_support import GOLDEN, Project, tiny_project

CASES = sorted(path for path in (GOLDEN / "errors").iterdir() if path.is_dir())
ABOUT = ("command", "expected.txt")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_message(case: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    project = tiny_project(tmp_path / "project")
    shutil.copytree(case, project.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*ABOUT))
    said = run(project, (case / "command").read_text(encoding="utf-8"))
    golden = case / "expected.txt"
    if request.config.getoption("--update-golden"):
        golden.write_text(said, encoding="utf-8")
    assert golden.is_file(), f"{golden} is missing; --update-golden writes it"
    assert said == golden.read_text(encoding="utf-8")


def run(project: Project, commands: str) -> str:
    """Run each line; return the lines with their errors and exit codes."""
    said = ""
    for line in commands.splitlines():
        words = shlex.split(line)
        environment = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        said += f"$ {line}\n"
        if words[0] == "shaderloom":
            ran = project.loom(*words[1:], **environment)
            said += f"{ran.err}exit {ran.code}\n"
        else:
            subprocess.run(words, cwd=project.folder, check=True)
    return said


def test_every_case_is_whole() -> None:
    """A folder that is no case, or a case that changes nothing, is a leftover."""
    assert CASES
    for case in CASES:
        assert (case / "command").is_file(), f"{case.name} has no command"
    assert [path.name for path in (GOLDEN / "errors").iterdir() if path.is_file()] == []
    assert sorted(path.name for path in GOLDEN.iterdir()) == sorted(KNOWN)


# What the golden folder holds; a test owns each.
KNOWN = (".gitattributes", "base", "contract.yaml", "errors", "explain")
