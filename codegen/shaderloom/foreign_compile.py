"""GLSL compute files of another project, compiled so that their modules can be read."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from shaderloom.errors import ToolchainError
from shaderloom.foreign import ForeignModule, examine, is_glsl, read_file, refuse
from shaderloom.process import Command, run_all
from shaderloom.toolchain import Tool, Toolchain, find_toolchain

TARGET = "vulkan1.3"  # the widest: what a file needs is for its own project to say


def read_files(paths: Sequence[Path], jobs: int) -> list[ForeignModule]:
    """Read SPIR-V and compile GLSL, in the order of ``paths``."""
    sources = [path for path in paths if is_glsl(path)]
    compiled = compile_files(sources, find_toolchain(), jobs) if sources else []
    made = dict(zip(sources, compiled, strict=True))
    return [made[path] if path in made else read_file(path) for path in paths]


def compile_files(paths: Sequence[Path], toolchain: Toolchain, jobs: int) -> list[ForeignModule]:
    """Compile each file by itself; one that does not compile says why in its ``problem``.

    Files that are included, of other stages or of a template language are among those.
    """
    try:
        tool = toolchain.compilers()[0]
    except ToolchainError as error:
        reason = error.diagnostics[0].message
        return [refuse(path.as_posix(), reason, "SL202") for path in paths]
    with tempfile.TemporaryDirectory(prefix="shaderloom-") as folder:
        outputs = [Path(folder, f"{number}.spv") for number in range(len(paths))]
        commands = [_command(tool, path, out) for path, out in zip(paths, outputs, strict=True)]
        modules = []
        for path, out, ran in zip(paths, outputs, run_all(commands, jobs), strict=True):
            if ran.status == 0 and out.is_file():
                modules.append(examine(out.read_bytes(), path.as_posix()))
            else:
                said = _first_error(ran.stdout + ran.stderr, path, ran.status)
                modules.append(refuse(path.as_posix(), f"it does not compile: {said}", "SL202"))
    return modules


def _command(tool: Tool, path: Path, output: Path) -> Command:
    source = str(path.resolve())
    if tool.name == "glslc":
        options = ("-O0", f"--target-env={TARGET}", "-fshader-stage=compute")
        return tool.command("-c", *options, "-o", str(output), source)
    return tool.command("-V", "-S", "comp", "--target-env", TARGET, "-o", str(output), source)


def _first_error(said: str, path: Path, status: int) -> str:
    lines = [line for line in said.splitlines() if "error" in line.lower()]
    if not lines:
        return f"the compiler's exit status is {status}"
    return lines[0].replace(f"{path.resolve()}:", "line ").removeprefix("ERROR: ")
