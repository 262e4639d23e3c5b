"""Hold what the binaries declare and use against the plan.

Four facts are compared: the plan, what the unoptimised module declares as our own
reader sees it, what spirv-cross sees there, and what the shipped module still uses and needs.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaderloom.audit_limits import (
    Problem,
    limits,
    missing_requirements,
    needless_requirements,
    other_matrices,
)
from shaderloom.dtypes import DTYPES, MEMBER_TYPES
from shaderloom.interface import (
    FIRST_CONSTANT_ID,
    LOCAL_SIZE_IDS,
    Binding,
    Constant,
    FamilyPlan,
    Field,
    Kind,
    Plan,
    ReflectedBinding,
    ReflectedConstant,
    Reflection,
    Struct,
    Used,
    VariantPlan,
)
from shaderloom.lints import Finding
from shaderloom.needs import Needs


@dataclass(frozen=True)
class Facts:
    """What is known of one compiled variant."""

    declared: Reflection
    used: Used
    needs: Needs
    disagreements: tuple[str, ...]  # between the two witnesses; () when only one could read


def audit(plan: Plan, facts: Mapping[str, Facts]) -> tuple[Finding, ...]:
    """Return every finding over the variants in ``facts``; none means the proof holds."""
    found = list(_blocks(plan))
    for variant in plan.variants:
        known = facts.get(variant.name)
        if known is None:
            continue
        for lint, message, about in (
            *_mismatches(expected(variant), known.declared),
            *_undeclared(known),
            *(("SL003", message, "") for message in known.disagreements),
            *_numbers(known.declared),
            *limits(known.declared, known.needs, variant.shared_memory),
            *missing_requirements(variant, known.needs),
            *other_matrices(variant, known.needs),
        ):
            found.append(Finding(variant.name, lint, message, variant.family, about=about))
    for family in plan.families:
        compiled = [facts[v.name] for v in family.variants if v.name in facts]
        if len(compiled) == len(family.variants):
            found += _dead(family, [each.used for each in compiled])
            found += needless_requirements(family, [each.needs for each in compiled])
    return tuple(sorted(found))


def expected(variant: VariantPlan) -> Reflection:
    """Return the reflection that a module of this plan must have."""
    push = variant.push_constants
    return Reflection(
        bindings=tuple(sorted(map(_expected_binding, variant.bindings), key=lambda b: b.binding)),
        constants=tuple(
            ReflectedConstant(c.id, c.name, c.type, _stored(c)) for c in variant.constants
        ),
        push_constants=_bare(push) if push else (),
        local_size_ids=LOCAL_SIZE_IDS,
    )


def _stored(constant: Constant) -> int | float:
    """Return the default as a module holds it: a float is rounded to 32 bits."""
    if constant.type != "float":
        return constant.default
    (rounded,) = packing.unpack("<f", packing.pack("<f", constant.default))
    return float(rounded)


def _expected_binding(binding: Binding) -> ReflectedBinding:
    dims = {"texture2d": "2d", "texture3d": "3d"}
    image = binding.kind is Kind.STORAGE_IMAGE
    return ReflectedBinding(
        set=0,
        binding=binding.binding,
        name=binding.name,
        kind=binding.kind,
        dim=dims.get(binding.storage, "buffer"),
        format=DTYPES[binding.dtype].format if image else "",
        readable=binding.access == "read",
        writable=binding.access == "write",
        fields=_bare(binding.block) if binding.block else (),
    )


def _bare(struct: Struct) -> tuple[Field, ...]:
    """The members as a module can tell them: owners and reasons are the plan's alone."""
    return tuple(Field(f.name, f.type, f.offset, MEMBER_TYPES[f.type].size) for f in struct.fields)


def _mismatches(plan: Reflection, module: Reflection) -> Iterator[Problem]:
    yield from _compare(
        "binding",
        {b.binding: b for b in plan.bindings if b.set == 0},
        {b.binding if b.set == 0 else f"{b.binding} of set {b.set}": b for b in module.bindings},
    )
    yield from _compare(
        "specialization constant",
        {c.id: c for c in plan.constants},
        {c.id: c for c in module.constants},
    )
    yield from _compare(
        "push constant at byte",
        {f.offset: f for f in plan.push_constants},
        {f.offset: f for f in module.push_constants},
    )


_Part = ReflectedBinding | ReflectedConstant | Field


def _compare(
    what: str, plan: Mapping[Any, _Part], module: Mapping[Any, _Part]
) -> Iterator[Problem]:
    for key in sorted({*plan, *module}, key=str):
        planned, declared = plan.get(key), module.get(key)
        if planned is not None and declared is not None:
            for attribute, ours in vars(planned).items():
                theirs = getattr(declared, attribute)
                if theirs != ours:
                    message = f"{attribute} is {_show(theirs)}, planned {_show(ours)}"
                    yield "SL001", f"{what} {key}: {message}", planned.name
        elif planned is not None:
            message = f"{what} {key} ({planned.name}) is planned but not declared"
            yield "SL001", message, planned.name
        elif declared is not None:
            name = declared.name or "unnamed"
            yield "SL001", f"{what} {key} ({name}) is declared but not planned", ""


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{f.type} {f.name} at {f.offset}" for f in value) or "empty"
    return str(value.value if isinstance(value, Kind) else value)


def _undeclared(facts: Facts) -> Iterator[Problem]:
    declared = facts.declared
    bindings = {b.binding for b in declared.bindings}
    constants = {c.id for c in declared.constants} | set(declared.local_size_ids)
    for number in sorted(facts.used.bindings - bindings):
        yield "SL002", f"the shipped module uses binding {number}, which is not declared", ""
    for number in sorted(facts.used.constants - constants):
        what = f"specialization constant {number}"
        yield "SL002", f"the shipped module uses {what}, which is not declared", ""


def _numbers(declared: Reflection) -> Iterator[Problem]:
    ids = [c.id for c in declared.constants]
    if ids != list(range(FIRST_CONSTANT_ID, FIRST_CONSTANT_ID + len(ids))):
        message = f"specialization constant IDs {ids} are not contiguous from {FIRST_CONSTANT_ID}"
        yield "SL008", message, "constants"
    local = declared.local_size_ids
    if local != LOCAL_SIZE_IDS:
        yield "SL017", f"local size IDs are {local}, not {LOCAL_SIZE_IDS}", ""


def _blocks(plan: Plan) -> Iterable[Finding]:
    """A block is whole: its members have consecutive numbers, in one order in every variant."""
    order: dict[tuple[str, str], tuple[str, ...]] = {}
    for variant in plan.variants:
        for part, members in _numbered(variant):
            for owner in sorted({owner for _, _, owner in members if owner}):
                own = [(number, name) for number, name, whose in members if whose == owner]
                numbers = [number for number, _ in own]
                names = tuple(name for _, name in own)
                where = f"{part} of block '{owner}'"
                if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                    message = f"the {where} are not contiguous: {numbers}"
                    yield Finding(variant.name, "SL009", message, variant.family, owner)
                if order.setdefault((owner, part), names) != names:
                    message = f"the {where} are {names}, elsewhere {order[owner, part]}"
                    yield Finding(variant.name, "SL009", message, variant.family, owner)


def _numbered(variant: VariantPlan) -> Iterable[tuple[str, list[tuple[int, str, str]]]]:
    """Yield (part, [(number, name, owner)]); a struct member's number is its index."""
    yield "bindings", [(b.binding, b.name, b.owner) for b in variant.bindings]
    yield "constants", [(c.id, c.name, c.owner) for c in variant.constants]
    structs = [b.block for b in variant.bindings] + [variant.push_constants]
    for struct in structs:
        if struct:
            yield "parameters", [(i, f.name, f.owner) for i, f in enumerate(struct.fields)]


def _dead(family: FamilyPlan, compiled: Sequence[Used]) -> Iterator[Finding]:
    """What no variant of the family uses, unless the spec keeps it for a reason."""

    def dead(lint: str, what: str, part: Binding | Constant | Field) -> Finding:
        message = f"{what} is used by no variant"
        return Finding(family.name, lint, message, family.name, part.owner, part.name)

    variant = family.variants[0]
    bindings = frozenset().union(*(used.bindings for used in compiled))
    constants = frozenset().union(*(used.constants for used in compiled))
    uniform = frozenset().union(*(used.uniform_offsets for used in compiled))
    push = frozenset().union(*(used.push_offsets for used in compiled))
    for binding in variant.bindings:
        if binding.binding not in bindings and not binding.keep:
            yield dead("SL004", f"binding {binding.binding} ({binding.name})", binding)
        elif binding.block and not binding.keep:
            for field in binding.block.fields:
                if (binding.binding, field.offset) not in uniform and not field.keep:
                    yield dead("SL006", f"uniform member {field.name} of {binding.name}", field)
    for constant in variant.constants:
        if constant.id not in constants and not constant.keep:
            what = f"specialization constant {constant.id} ({constant.name})"
            yield dead("SL005", what, constant)
    for field in variant.push_constants.fields if variant.push_constants else ():
        if field.offset not in push and not field.keep:
            yield dead("SL007", f"push constant {field.name}", field)
