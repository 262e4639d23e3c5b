"""Layouts for people: ``LAYOUTS.md`` of all families and ``explain`` of one variant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shaderloom import glsl
from shaderloom.interface import Constant, FamilyPlan, Kind, Plan, VariantPlan
from shaderloom.manifest import layout_hash
from shaderloom.names import c_constant, c_type, operand
from shaderloom.render import GENERATED

_Row = tuple[str, ...]


def layouts(plan: Plan) -> bytes:
    """Return ``LAYOUTS.md``: every family's interface, fit for reading in a review."""
    lines = [
        f"<!-- {GENERATED.format(source=plan.spec_name)} -->",
        "# Layouts",
        "",
        f"Layout hash `{layout_hash(plan)}`. All descriptors are in set 0; specialization",
        "constants 0, 1 and 2 are the local workgroup size in every shader.",
    ]
    for enum in plan.enums:
        values = ", ".join(f"{name} {value}" for name, value in enum.values)
        lines += ["", f"`{enum.name}`: {values}."]
    for family in plan.families:
        lines += ["", *_family(family)]
    return ("\n".join(lines) + "\n").encode()


def _family(family: FamilyPlan) -> Iterable[str]:
    variant = family.variants[0]
    yield f"## {family.name}"
    yield ""
    yield f"Op {family.op}, template `{variant.template}`. Variants:"
    yield ""
    for each in family.variants:
        needs = f"; needs {', '.join(each.requires)}" if each.requires else ""
        if each.frozen:
            values = ", ".join(f"{f.name}={f.shown}" for f in each.frozen)
            needs += f"; `{each.frozen_from}` with {values} frozen"
        yield f"- `{each.name}` ({_axes(each)}{needs})"
    yield ""
    rows: list[_Row] = [("binding", "name", "descriptor", "storage", "access", "absent", "block")]
    for b in variant.bindings:
        storages = {v.binding(b.name).storage for v in family.variants}
        storage = " or ".join(sorted(storages)) if b.block is None else f"{b.block.size} bytes"
        rows.append((str(b.binding), b.name, b.kind.value, storage, b.access, b.absent, b.owner))
    yield from _table(rows)
    for b in variant.bindings:
        if b.block:
            fields = ", ".join(f"{f.type} {f.name} at {f.offset}" for f in b.block.fields)
            yield f"\nUniform block {b.binding} `{b.name}`: {fields}."
    if variant.push_constants:
        yield f"\nPush constants, {variant.push_constants.size} bytes:\n"
        rows = [("offset", "type", "name", "block")]
        rows += [(str(f.offset), f.type, f.name, f.owner) for f in variant.push_constants.fields]
        yield from _table(rows)
    if variant.constants:
        yield "\nSpecialization constants:\n"
        rows = [("ID", "name", "type", "default", "block")]
        rows += [
            (str(c.id), c.name, c.enum or c.type, _default(c), c.owner) for c in variant.constants
        ]
        yield from _table(rows)


def _axes(variant: VariantPlan) -> str:
    return ", ".join(f"{name} {value}" for name, value in variant.axes)


def _default(constant: Constant) -> str:
    if constant.type == "bool":
        return "true" if constant.default else "false"
    return str(constant.default)


def _table(rows: Sequence[_Row]) -> Iterable[str]:
    head, *body = rows
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in body:
        yield "| " + " | ".join(row) + " |"


def explain(plan: Plan, variant: VariantPlan) -> str:
    """Return one interface as text, each part with its GLSL, C and Python name."""
    family = variant.family
    lines = [
        variant.name,
        f"  family    {family} (op {variant.op}): {_axes(variant) or 'no axes'}",
        f"  template  {variant.template}",
        f"  needs     {variant.target_env}"
        + "".join(f", {extension}" for extension in variant.requires)
        + (f", subgroup size {variant.subgroup_size}" if variant.subgroup_size else "")
        + (f", matrices of {variant.cooperative_matrix}" if variant.cooperative_matrix else ""),
        *(f"  frozen    {f.name}={f.shown}, ID {f.id}" for f in variant.frozen),
        "",
        "bindings (set 0)",
    ]
    rows: list[_Row] = []
    for b in variant.bindings:
        what = f"{b.storage} {b.dtype}, {b.access}"
        if b.kind is Kind.UNIFORM_BUFFER and b.block:
            what = f"uniform block, {b.block.size} bytes"
        if b.absent:
            what += f", absent: {b.absent}"
        c_name = c_constant(family, "binding", operand(b.name))
        rows.append((str(b.binding), b.name, what, c_name, operand(b.name)))
        if b.block:
            rows += [
                ("", f"  {f.name}", f"  {f.type} at {f.offset}", "", "") for f in b.block.fields
            ]
    lines += _columns(("#", "GLSL", "what", "C", "Python"), rows)
    push = variant.push_constants
    if push:
        lines += ["", f"push constants: {push.size} bytes, C {c_type(family, push.name)}"]
        rows = [(str(f.offset), f.name, f.type, f.owner) for f in push.fields]
        lines += _columns(("at", "name", "type", "block"), rows)
    lines += ["", "specialization constants"]
    rows = [("0-2", "", "local workgroup size x, y, z", "", "")]
    frozen = {f.id for f in variant.frozen}
    for c in (c for c in variant.constants if c.id not in frozen):
        kind = f"{c.enum or c.type} = {_default(c)}"
        rows.append((str(c.id), c.name, kind, c_constant(family, "constant", c.name), c.owner))
    lines += _columns(("ID", "name", "type", "C", "block"), rows)
    for enum in plan.enums:
        if any(c.enum == enum.name for c in variant.constants):
            values = (
                f"{name} {value} ({glsl.enumerator(enum.name, name)})"
                for name, value in enum.values
            )
            lines += ["", f"{enum.name}: {', '.join(values)}"]
    return "\n".join(lines) + "\n"


def _columns(head: _Row, rows: Sequence[_Row]) -> list[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    ]
