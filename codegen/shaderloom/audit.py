"""Hold what the binaries declare and use against the plan.

Four facts are compared: the plan, what the unoptimised module declares as our own
reader sees it, what spirv-cross sees there, and what the shipped module still uses.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, order=True)
class Finding:
    """A broken rule; ``subject`` is a variant, or a family for what concerns all of it."""

    subject: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: error: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class Facts:
    """What is known of one compiled variant."""

    declared: Reflection
    used: Used
    disagreements: tuple[str, ...]  # between the two witnesses; () when only one could read


def audit(plan: Plan, facts: Mapping[str, Facts]) -> tuple[Finding, ...]:
    """Return every finding over the variants in ``facts``; none means the proof holds."""
    found = list(_blocks(plan))
    for variant in plan.variants:
        known = facts.get(variant.name)
        if known is None:
            continue
        for rule, messages in (
            ("plan-mismatch", _mismatches(expected(variant), known.declared)),
            ("witness-disagreement", known.disagreements),
            ("undeclared-use", _undeclared(known)),
            ("contiguous", _gaps(known.declared)),
        ):
            found += [Finding(variant.name, rule, message) for message in messages]
    for family in plan.families:
        compiled = [facts[v.name] for v in family.variants if v.name in facts]
        if len(compiled) == len(family.variants):
            found += [Finding(family.name, "dead", message) for message in _dead(family, compiled)]
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


def _mismatches(plan: Reflection, module: Reflection) -> Iterable[str]:
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
    if plan.local_size_ids != module.local_size_ids:
        yield f"local size IDs are {module.local_size_ids}, planned {plan.local_size_ids}"


def _compare(
    what: str, plan: Mapping[object, object], module: Mapping[object, object]
) -> list[str]:
    messages = []
    for key in sorted({*plan, *module}, key=str):
        planned, declared = plan.get(key), module.get(key)
        if planned == declared:
            continue
        if declared is None:
            messages.append(f"{what} {key} ({_name(planned)}) is planned but not declared")
        elif planned is None:
            messages.append(f"{what} {key} ({_name(declared)}) is declared but not planned")
        else:
            messages += [
                f"{what} {key}: {attribute} is {_show(theirs)}, planned {_show(ours)}"
                for attribute, ours in vars(planned).items()
                if (theirs := getattr(declared, attribute)) != ours
            ]
    return messages


def _name(item: object) -> str:
    return str(getattr(item, "name", "")) or "unnamed"


def _show(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(f"{f.type} {f.name} at {f.offset}" for f in value) or "empty"
    return str(value.value if isinstance(value, Kind) else value)


def _undeclared(facts: Facts) -> Iterable[str]:
    declared = facts.declared
    bindings = {b.binding for b in declared.bindings}
    constants = {c.id for c in declared.constants} | set(declared.local_size_ids)
    for number in sorted(facts.used.bindings - bindings):
        yield f"the shipped module uses binding {number}, which is not declared"
    for number in sorted(facts.used.constants - constants):
        yield f"the shipped module uses specialization constant {number}, which is not declared"


def _gaps(declared: Reflection) -> Iterable[str]:
    ids = [c.id for c in declared.constants]
    if ids != list(range(FIRST_CONSTANT_ID, FIRST_CONSTANT_ID + len(ids))):
        yield f"specialization constant IDs {ids} are not contiguous from {FIRST_CONSTANT_ID}"


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
                    yield Finding(variant.name, "block-whole", message)
                if order.setdefault((owner, part), names) != names:
                    message = f"the {where} are {names}, elsewhere {order[owner, part]}"
                    yield Finding(variant.name, "block-whole", message)


def _numbered(variant: VariantPlan) -> Iterable[tuple[str, list[tuple[int, str, str]]]]:
    """Yield (part, [(number, name, owner)]); a struct member's number is its index."""
    yield "bindings", [(b.binding, b.name, b.owner) for b in variant.bindings]
    yield "constants", [(c.id, c.name, c.owner) for c in variant.constants]
    structs = [b.block for b in variant.bindings] + [variant.push_constants]
    for struct in structs:
        if struct:
            yield "parameters", [(i, f.name, f.owner) for i, f in enumerate(struct.fields)]


def _dead(family: FamilyPlan, compiled: Sequence[Facts]) -> Iterable[str]:
    """What no variant of the family uses, unless the spec keeps it for a reason."""
    variant = family.variants[0]
    bindings = frozenset().union(*(facts.used.bindings for facts in compiled))
    constants = frozenset().union(*(facts.used.constants for facts in compiled))
    uniform = frozenset().union(*(facts.used.uniform_offsets for facts in compiled))
    push = frozenset().union(*(facts.used.push_offsets for facts in compiled))
    for binding in variant.bindings:
        if binding.binding not in bindings and not binding.keep:
            yield f"binding {binding.binding} ({binding.name}) is used by no variant"
        elif binding.block and not binding.keep:
            for field in binding.block.fields:
                if (binding.binding, field.offset) not in uniform and not field.keep:
                    yield f"uniform member {field.name} of {binding.name} is used by no variant"
    for constant in variant.constants:
        if constant.id not in constants and not constant.keep:
            yield f"specialization constant {constant.id} ({constant.name}) is used by no variant"
    for field in variant.push_constants.fields if variant.push_constants else ():
        if field.offset not in push and not field.keep:
            yield f"push constant {field.name} is used by no variant"
