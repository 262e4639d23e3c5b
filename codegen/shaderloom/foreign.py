"""Modules that another project made: found, read, and put into families by name.

Whatever a file holds becomes a ``ForeignModule``; a file that is no SPIR-V, or of which no
interface can be told, says why and does not stop the others.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from shaderloom.errors import Diagnostic, Position, SpecError, SpirvError
from shaderloom.interface import Field, ReflectedBinding, ReflectedConstant, Reflection
from shaderloom.needs import Needs, needs
from shaderloom.reflect import declares
from shaderloom.spirv import Module, read_module, unreadable
from shaderloom.spirv_grammar import Op

BINARY, GLSL = (".spv",), (".comp", ".glsl")
MAX_BYTES = 2**26  # no shader is larger

# What ends the family in a name: "conv2d_dw_3x3_half" is conv2d_dw. The first word never does.
_TAG = re.compile(
    r"[a-z]{0,4}[0-9]+((x|to)[0-9]+)*[a-z]{0,2}"  # 3x3, b4x2, pack1to4, fp16s, q4, bf16
    r"|texture[123]d|image[123]d|buffer|float|double|half|int|uint|bool|char|short|long"
)
_WORDS = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True)
class ForeignModule:
    """A file of another project; ``problem`` says why there is no interface, "" if there is."""

    path: str  # printable
    family: str
    digest: str = ""
    declared: Reflection | None = None
    needs: Needs | None = None
    problem: str = ""
    lint: str = ""  # the ID that goes with ``problem``

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return the given files and the shaders in the given folders, sorted.

    Raises SpecError for a path at which there is neither, so that a mistyped one does not pass.
    """
    found: set[Path] = set()
    missing = []
    for path in paths:
        problem = "no file or folder is there"
        if path.is_dir():
            below = set(_below(path))
            found |= below
            problem = "" if below else "no .spv, .comp or .glsl file is in this folder"
        elif path.is_file():
            found.add(path)
            problem = ""
        if problem:
            missing.append(Diagnostic(Position(str(path)), problem))
    if missing:
        raise SpecError(missing)
    return sorted(found)


def _below(folder: Path) -> Iterable[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            # A pipe or a device would never end.
            if path.suffix.lower() in (*BINARY, *GLSL) and path.is_file():
                yield path


def is_glsl(path: Path) -> bool:
    """Tell whether a file is to be compiled first."""
    return path.suffix.lower() in GLSL


def read_file(path: Path) -> ForeignModule:
    """Read a SPIR-V file; what goes wrong is in the module's ``problem``."""
    shown = path.as_posix()
    try:
        if path.stat().st_size > MAX_BYTES:
            return refuse(shown, f"it is larger than {MAX_BYTES // 2**20} MiB", "SL202")
        return examine(path.read_bytes(), shown)
    except OSError as error:
        return refuse(shown, f"it cannot be read: {error.strerror}", "SL201")


def examine(data: bytes, path: str) -> ForeignModule:
    """Read a SPIR-V module; any bytes give a ``ForeignModule``."""
    lint = "SL201"
    try:
        module = read_module(data, path)
        lint = "SL202"
        declared, needed = _printable(declares(module)), needs(module)
        _check_whole(module)
    except SpirvError as error:
        return refuse(path, error.diagnostics[0].message, lint)
    digest = hashlib.sha256(data).hexdigest()
    return ForeignModule(printable(path), family(path), digest, declared, needed)


def _check_whole(module: Module) -> None:
    """A file that was cut between two instructions can be read; its entry point is missing."""
    functions = {i.operands[1] for i in module.body if i.opcode == Op.FUNCTION}
    entries = {entry.function for entry in module.entry_points}
    if not entries <= functions or module.body[-1].opcode != Op.FUNCTION_END:
        raise unreadable(module.name, "the function of its entry point is not all there")


def refuse(path: str, problem: str, lint: str) -> ForeignModule:
    """Return the module of a file that cannot be described."""
    return ForeignModule(printable(path), family(path), problem=printable(problem), lint=lint)


def family(path: str) -> str:
    """Return the family of a file by its name: the words before the first that looks like a tag.

    ``kernels/conv2d_dw_3x3_half.spv`` is of ``kernels/conv2d_dw``: other folders hold no siblings.
    """
    folder, _, name = path.rpartition("/")
    words = [word for word in _WORDS.split(name.partition(".")[0]) if word]
    kept = words[:1]
    for word in words[1:]:
        if _TAG.fullmatch(word.lower()):
            break
        kept.append(word)
    return printable(f"{folder}/{'_'.join(kept)}" if folder else "_".join(kept))


def printable(text: str) -> str:
    """Return text that any terminal shows as it is: names in a module may hold anything."""
    if text.isascii() and text.isprintable():
        return text
    return text.encode("unicode_escape", "backslashreplace").decode("ascii")


_Named = TypeVar("_Named", Field, ReflectedBinding, ReflectedConstant)


def _printable(declared: Reflection) -> Reflection:
    def renamed(items: Iterable[_Named]) -> tuple[_Named, ...]:
        return tuple(replace(item, name=printable(item.name)) for item in items)

    bindings = (replace(b, fields=renamed(b.fields)) for b in declared.bindings)
    return replace(
        declared,
        bindings=renamed(bindings),
        constants=renamed(declared.constants),
        push_constants=renamed(declared.push_constants),
    )
