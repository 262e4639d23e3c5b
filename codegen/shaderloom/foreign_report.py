"""The interfaces of another project's modules, for people and for programs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from shaderloom import finding_formats
from shaderloom.finding_formats import cell
from shaderloom.foreign import ForeignModule
from shaderloom.interface import Kind, ReflectedBinding, Reflection
from shaderloom.lints import Finding

_Row = tuple[str, str, str, str]  # bindings, push constants, constants, local size


def text(modules: Sequence[ForeignModule], findings: Sequence[Finding]) -> str:
    """Return every family with its distinct interfaces, then the findings and the numbers."""
    lines = []
    for family, members in _families(modules):
        lines.append(f"{family}: {len(members)} module{'s' if len(members) > 1 else ''}")
        for row, names in _interfaces(members):
            lines.append(f"  {', '.join(names)}")
            labels = ("bindings", "push", "constants", "local size")
            lines += [f"    {label:11} {part}" for label, part in zip(labels, row, strict=True)]
        for module in members:
            if module.problem:
                lines.append(f"  {module.name}\n    {'refused':11} {module.problem}")
    told = [finding for finding in findings if finding.lint not in ("SL201", "SL202")]
    if told:
        lines += ["", *(str(finding) for finding in told)]
    return "\n".join([*lines, "", summary(modules, findings)]) + "\n"


def summary(modules: Sequence[ForeignModule], findings: Sequence[Finding]) -> str:
    """Return one line: how much was read, what was refused, what was found."""
    refused = sum(bool(module.problem) for module in modules)
    families = len({module.family for module in modules})
    return (
        f"audit: {len(modules)} modules in {families} families, {refused} of them refused; "
        f"{len(findings)} findings"
    )


def markdown(modules: Sequence[ForeignModule], findings: Sequence[Finding]) -> str:
    """Return a table of the interfaces, a row for each distinct one, and one of the findings."""
    lines = ["| family | modules | bindings | push constants | constants | local size |"]
    lines.append("|---|---|---|---|---|---|")
    for family, members in _families(modules):
        rows = [(", ".join(names), *row) for row, names in _interfaces(members)]
        rows += [(m.name, f"refused: {m.problem}", "", "", "") for m in members if m.problem]
        lines += [f"| {' | '.join(map(cell, (family, *row)))} |" for row in rows]
    return "\n".join([*lines, "", finding_formats.markdown(findings)])


def as_json(modules: Sequence[ForeignModule], findings: Sequence[Finding]) -> str:
    """Return ``{"modules": [...], "findings": [...]}``; a refused module has a ``problem`` only."""
    data = {
        "modules": [_record(module) for module in modules],
        "findings": finding_formats.records(findings),
    }
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


FORMATS: dict[str, Callable[[Sequence[ForeignModule], Sequence[Finding]], str]] = {
    "text": text,
    "json": as_json,
    "markdown": markdown,
    "github": lambda _, findings: finding_formats.github(findings),
    "sarif": lambda _, findings: finding_formats.sarif(findings),
}


def _families(modules: Iterable[ForeignModule]) -> list[tuple[str, list[ForeignModule]]]:
    found: dict[str, list[ForeignModule]] = defaultdict(list)
    for module in modules:
        found[module.family].append(module)
    return sorted(found.items())


def _interfaces(members: Iterable[ForeignModule]) -> Iterator[tuple[_Row, list[str]]]:
    """Yield each distinct interface of a family with the modules that have it."""
    found: dict[_Row, list[str]] = defaultdict(list)
    for module in members:
        if module.declared is not None:
            found[_row(module.declared)].append(module.name)
    yield from found.items()


def _row(declared: Reflection) -> _Row:
    push = declared.push_constants
    size = max((f.offset + f.size for f in push), default=0)
    fields = ", ".join(f"{f.type} {f.name or '-'} at {f.offset}" for f in push)
    ids = declared.local_size_ids
    return (
        ", ".join(_binding(b) for b in declared.bindings) or "none",
        f"{size} bytes: {fields}" if push else "none",
        ", ".join(f"{c.id} {c.name or '-'} {c.type}" for c in declared.constants) or "none",
        f"constants {', '.join(map(str, ids))}" if ids else "fixed",
    )


def _binding(binding: ReflectedBinding) -> str:
    number = f"{binding.set}.{binding.binding}" if binding.set else str(binding.binding)
    what = {
        Kind.SAMPLED_IMAGE: f"sampler {binding.dim}",
        Kind.STORAGE_IMAGE: f"image {binding.dim}",
        Kind.STORAGE_BUFFER: "buffer",
        Kind.UNIFORM_BUFFER: "uniform",
    }[binding.kind]
    return f"{number} {binding.name or '-'} {what}"


def _record(module: ForeignModule) -> dict[str, Any]:
    head = {"path": module.path, "family": module.family}
    if module.declared is None or module.needs is None:
        return {**head, "problem": module.problem}
    return {
        **head,
        "sha256": module.digest,
        "bindings": [
            {
                "set": b.set,
                "binding": b.binding,
                "name": b.name,
                "kind": b.kind.value,
                "dim": b.dim,
                "format": b.format,
                "readable": b.readable,
                "writable": b.writable,
                "fields": [{"name": f.name, "type": f.type, "offset": f.offset} for f in b.fields],
            }
            for b in module.declared.bindings
        ],
        "push_constants": [
            {"name": f.name, "type": f.type, "offset": f.offset, "size": f.size}
            for f in module.declared.push_constants
        ],
        "constants": [
            # NaN and infinities are no JSON.
            {"id": c.id, "name": c.name, "type": c.type, "default": str(c.default)}
            for c in module.declared.constants
        ],
        "local_size_ids": list(module.declared.local_size_ids),
        "capabilities": sorted(module.needs.declared),
        "shared_memory": module.needs.shared_memory,
    }
