"""Projects for the tests of the loom, the loom run on them, and compilers that misbehave."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from shaderloom.cli import main
from shaderloom.toolchain import PROGRAMS, find_toolchain

REPOSITORY = Path(__file__).parent.parent
GOLDEN = Path(__file__).parent / "golden"

# No program can be found: none on the path, none in the Python environment.
NO_TOOLS = {f"SHADERLOOM_{name.upper().replace('-', '_')}": "/nowhere/tool" for name in PROGRAMS}
NO_TOOLS["PATH"] = "/nowhere"


@dataclass(frozen=True)
class Ran:
    """What a run of the command line left."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Project:
    """A spec and its templates in a folder of their own."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "generated"

    def loom(self, *arguments: str, **environment: str) -> Ran:
        """Run the command line in this process, in the project's folder."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, environment),
            _working_folder(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                code = main(arguments)
            except SystemExit as stop:  # argparse
                code = int(stop.code or 0)
        return Ran(code, out.getvalue(), err.getvalue())

    def build(self, *arguments: str, **environment: str) -> Ran:
        """Build and insist that it succeeds."""
        ran = self.loom("build", *arguments, **environment)
        assert ran.code == 0, ran.err
        return ran

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command line as a process of its own."""
        code = (  # as from a terminal: a shell's background job, e.g. of CI, ignores SIGINT
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from shaderloom.cli import main; sys.exit(main())"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "codegen"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, path: str, text: str) -> None:
        """Write a file below the project's folder."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace what must be there in a file below the project's folder."""
        text = (self.folder / path).read_text(encoding="utf-8")
        assert old in text, f"{path} has no {old!r}"
        self.write(path, text.replace(old, new))

    def files(self) -> dict[str, bytes]:
        """Return every generated file, by its path below the output folder."""
        paths = (path for path in sorted(self.out.rglob("*")) if path.is_file())
        return {path.relative_to(self.out).as_posix(): path.read_bytes() for path in paths}

    def program(self, name: str, script: str) -> str:
        """Make an executable shell script beside the project and return its path.

        In the script, ``$real`` runs the program that the loom finds under ``name``.
        """
        tool = find_toolchain().need(name)
        head = f'#!/bin/sh\nreal="{tool.path}"\nversion="{tool.version}"\n'
        if tool.library_path:
            head += f'export LD_LIBRARY_PATH="{tool.library_path}"\n'
        path = self.folder.parent / "programs" / self.folder.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(head + script, encoding="utf-8")
        path.chmod(0o755)
        return str(path)


def run_program(
    command: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit status, and return what it printed."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=stdin,
        check=False,
        capture_output=True,
        text=True,
    )


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def tiny_project(folder: Path) -> Project:
    """Return a project of two small families, four variants, with one block."""
    shutil.copytree(GOLDEN / "base", folder)
    return Project(folder)


def whole_project(folder: Path) -> Project:
    """Return a copy of this repository's own spec and templates."""
    folder.mkdir(parents=True)
    shutil.copy(REPOSITORY / "variants.yaml", folder)
    shutil.copytree(REPOSITORY / "templates", folder / "templates")
    return Project(folder)
