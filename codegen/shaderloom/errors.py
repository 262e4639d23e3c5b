"""Everything that can go wrong, as one small tree of exceptions with source positions.

A stage collects all its diagnostics and raises once; only ``cli`` prints them and
turns ``exit_code`` into the status of the process.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Position:
    """A place in a source file; ``line`` and ``column`` count from 1, 0 means unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file, *(str(n) for n in (self.line, self.column) if n)]
        return ":".join(parts)


@dataclass(frozen=True, order=True)
class Diagnostic:
    """One mistake: ``file:line:column: error: message``."""

    position: Position
    message: str
    lint: str = ""  # the ID of the lint that says so, e.g. "SL010", "" for any other mistake

    def __str__(self) -> str:
        rule = f" [{self.lint}]" if self.lint else ""
        return f"{self.position}: error: {self.message}{rule}"


class LoomError(Exception):
    """Base of all errors the tool reports; carries one or more diagnostics."""

    exit_code = 2

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = [diagnostics] if isinstance(diagnostics, Diagnostic) else diagnostics
        self.diagnostics: tuple[Diagnostic, ...] = tuple(sorted(set(found)))
        super().__init__("\n".join(str(d) for d in self.diagnostics))


class SpecError(LoomError):
    """The YAML, its schema or the plan made from it is wrong."""


class TemplateError(LoomError):
    """A template does not parse, uses an undefined name or breaks a rule of the loom."""


class ToolchainError(LoomError):
    """A program that is needed is missing or lacks what a variant requires."""


class CompileError(LoomError):
    """One or more shaders did not compile, or the compiler produced no valid module."""

    exit_code = 1


class SpirvError(LoomError):
    """A SPIR-V module that cannot be read."""

    exit_code = 1


class OutputError(LoomError):
    """An output folder that cannot be written."""

    exit_code = 1


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ``"; did you mean 'x'?"`` when a known name was likely meant, else ``""``."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def of_variants(names: Iterable[str]) -> str:
    """Return the end of a message that concerns these variants: ``(variants a_float, a_half)``."""
    distinct = sorted(set(names))
    return f"(variant{'s' if len(distinct) > 1 else ''} {', '.join(distinct)})"
