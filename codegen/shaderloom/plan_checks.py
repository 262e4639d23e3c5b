"""What must hold between the parts of a family: names, splices, absent operands."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from shaderloom.decisions import AUTO
from shaderloom.dtypes import STORAGES
from shaderloom.errors import Diagnostic, SpecError, nearest, of_variants
from shaderloom.interface import Binding, EnumPlan, FamilyPlan, Kind, VariantPlan
from shaderloom.names import c_constant, c_type, name_problem, operand
from shaderloom.source import KeyPath, Source
from shaderloom.spec_model import FamilySpec, Members, SpecModel


class Errors:
    """Collects mistakes of a spec, each at the position of a path into it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: set[Diagnostic] = set()

    def add(self, message: str, *path: str | int, at_key: bool = False, lint: str = "") -> None:
        """Note a mistake at the value (or the key) at ``path``."""
        where = self.source.key(*path) if at_key else self.source.value(*path)
        self.found.add(Diagnostic(where, message, lint))

    def add_at(self, message: str, path: KeyPath, name: str, lint: str = "") -> None:
        """Note a mistake where ``name`` is first declared below ``path``, else at ``path``."""
        self.found.add(Diagnostic(self.source.find(path, name), message, lint))

    def name(
        self, name: str, what: str, *path: str | int, prefixed: bool = False, at_key: bool = True
    ) -> None:
        """Note when ``name`` cannot be an identifier in every language it reaches."""
        problem = name_problem(name, prefixed)
        if problem:
            self.add(f"{what} '{name}' {problem}", *path, at_key=at_key)

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(self.found)


def check_splices(model: SpecModel, family: FamilySpec, errors: Errors, path: KeyPath) -> bool:
    """Every block is spliced whole: each of its parts exactly once (contract.md, epilogue).

    Returns whether that holds; if not, what else is wrong with the family may follow from it.
    """
    bindings = Counter(b.block for b in family.bindings if b.block)
    constants = _blocks_in(family.constants)
    parameters = _blocks_in(family.push_constants)
    for binding in family.bindings:
        parameters += _blocks_in(binding.fields)
    spliced = set(bindings) | set(constants) | set(parameters)
    if not spliced <= set(model.blocks):
        return False  # the planner reports it where it is named
    whole = True
    for name in sorted(spliced):
        for i, inner in enumerate(model.blocks[name].bindings):
            if inner.block:
                message = f"block '{name}' takes block '{inner.block}': blocks do not nest"
                errors.add(message, "blocks", name, "bindings", i, lint="SL009")
                whole = False
        block = model.blocks[name]
        for part, here, has in (
            ("bindings", bindings[name], block.bindings),
            ("parameters", parameters[name], block.parameters),
            ("constants", constants[name], block.constants),
        ):
            if has and here != 1:
                times = "not spliced" if here == 0 else f"spliced {here} times"
                message = f"the {part} of block '{name}' are {times} in family '{path[-1]}'"
                errors.add(message, *path, at_key=True, lint="SL009")
                whole = False
    return whole


def _blocks_in(members: Members) -> Counter[str]:
    return Counter(name for name, member in members.items() if member.type == "block")


def check_names(variant: VariantPlan, errors: Errors, path: KeyPath) -> None:
    """All members are flat, so an interface is one GLSL name space."""
    seen: dict[str, str] = {}
    for name, what, where in _declared(variant, path):
        problem = name_problem(name)
        if problem:
            errors.add_at(f"{what} '{name}' {problem}", where, name)
        if seen.get(name) == what:
            errors.add_at(f"{what} '{name}' is declared twice", where, name)
        elif name in seen:
            errors.add_at(f"{what} '{name}' has the name of a {seen[name]}", where, name)
        seen.setdefault(name, what)


def _declared(variant: VariantPlan, path: KeyPath) -> Iterator[tuple[str, str, KeyPath]]:
    """Yield (name, what it is, path to the part of the spec that declares it)."""

    def where(owner: str, part: str, own_part: str) -> KeyPath:
        return ("blocks", owner, part) if owner else (*path, own_part)

    for binding in variant.bindings:
        yield binding.name, "binding", where(binding.owner, "bindings", "bindings")
    for binding in variant.bindings:
        for field in binding.block.fields if binding.block else ():
            yield field.name, "uniform member", where(field.owner, "parameters", "bindings")
    for field in variant.push_constants.fields if variant.push_constants else ():
        yield field.name, "push constant", where(field.owner, "parameters", "push_constants")
    for constant in variant.constants:
        yield constant.name, "constant", where(constant.owner, "constants", "constants")


def check_absent(variants: Iterable[VariantPlan], errors: Errors, path: KeyPath) -> None:
    """An absent operand's slot is filled by a descriptor of the very same type."""
    found: dict[tuple[str, str, KeyPath], list[str]] = defaultdict(list)
    for variant in variants:
        for binding in variant.bindings:
            problem = _absent_problem(binding, variant) if binding.absent else ""
            if problem:
                where = ("blocks", binding.owner) if binding.owner else path
                found[binding.name, problem, where].append(variant.name)
    for (name, problem, where), names in found.items():
        message = f"absent operand of '{name}': {problem} {of_variants(names)}"
        errors.add_at(message, where, name, lint="SL010")


def _absent_problem(binding: Binding, variant: VariantPlan) -> str:
    by_operand = {other.operand: other for other in variant.bindings}
    elsewhere = dict(variant.operands)
    stand_in = by_operand.get(operand(binding.absent))
    if binding.absent in elsewhere:
        storage = elsewhere[binding.absent]
        if storage == binding.storage:
            return ""
        return f"'{binding.absent}' is a {storage} elsewhere, the slot a {binding.storage}"
    if stand_in is None:
        names = [other.name for other in variant.bindings if other.operand]
        hint = nearest(binding.absent, [*names, *elsewhere])
        return f"no binding '{binding.absent}'{hint}"
    if stand_in.absent:
        return f"'{binding.absent}' may itself be absent"
    if not {stand_in.storage, binding.storage} <= {*STORAGES, "uniform"}:
        return ""  # an unknown storage is reported where it stands
    if (stand_in.kind, stand_in.storage) != (binding.kind, binding.storage):
        return (
            f"'{binding.absent}' is a {stand_in.storage} {_shown(stand_in.kind)}, "
            f"the slot a {binding.storage} {_shown(binding.kind)}"
        )
    return ""


def _shown(kind: Kind) -> str:
    return kind.value.replace("_", " ")


# What registry.h and dispatch.h declare for themselves; a test holds these lists against them.
REGISTRY_TYPES = (
    *("access", "binding", "constant", "dtype", "field", "frozen", "kind", "map_entry", "module"),
    *("shader", "shader_id", "storage"),
    *("device", "dispatch", "error", "operand", "slot", "uniform"),
)
REGISTRY_FUNCTIONS = (
    *("find_binding", "find_constant", "find_shader", "get_binding", "get_module", "get_shader"),
    *("layout_hash", "module_layout_hash"),
    *("changed_uniforms", "default_device", "dispatch_layout_hash", "reencode_reasons"),
    "slot_name",
)
REGISTRY_CONSTANTS = (
    *("SHADERLOOM_ASSERT", "SHADERLOOM_LAYOUT_HASH"),
    *("SHADERLOOM_REGISTRY_H", "SHADERLOOM_DISPATCH_H"),
    *(f"SHADERLOOM_CONSTANT_LOCAL_SIZE_{axis}" for axis in "XYZ"),
    *("SHADERLOOM_MAX_OPERANDS", "SHADERLOOM_MAX_PUSH_CONSTANT_SIZE"),
    *("SHADERLOOM_MAX_SPEC_VALUES", "SHADERLOOM_MAX_UNIFORMS", "SHADERLOOM_MAX_UNIFORM_SIZE"),
    "SHADERLOOM_SHADER_COUNT",
)
# Of their enumerators.
REGISTRY_PREFIXES = ("access", "dtype", "kind", "reencode", "shader", "slot", "storage")


def check_c_identifiers(
    enums: tuple[EnumPlan, ...],
    families: tuple[FamilyPlan, ...],
    routes: Mapping[str, Sequence[str]],
    errors: Errors,
) -> None:
    """Refuse names that collide in C: family 'a' with constant 'b_c', family 'a_b' with 'c'.

    ``routes`` has the names of each op's routes.
    """
    seen = {c_type(name): "a type of the registry" for name in REGISTRY_TYPES}
    seen |= {c_type(name): "a function of the registry" for name in REGISTRY_FUNCTIONS}
    seen |= {name: "the registry's own" for name in REGISTRY_CONSTANTS}
    identifiers = itertools.chain(_c_identifiers(enums, families), _c_of_ops(routes))
    for name, what, where, spelt in identifiers:
        prefix = next((p for p in REGISTRY_PREFIXES if name.startswith(c_constant(p, ""))), None)
        if prefix:
            errors.add_at(f"{what} is {name} in C, like the registry's own", where, spelt)
        elif seen.get(name, what) != what:  # the same twice is reported by other checks
            errors.add_at(f"{what} is {name} in C, like {seen[name]}", where, spelt)
        seen.setdefault(name, what)


def _c_identifiers(
    enums: tuple[EnumPlan, ...], families: tuple[FamilyPlan, ...]
) -> Iterator[tuple[str, str, KeyPath, str]]:
    """Yield (C identifier, what it stands for, where and how its name is given).

    Variants are left out: they have the prefix SHADERLOOM_SHADER to themselves.
    """
    for enum in enums:
        path: KeyPath = ("enums", enum.name)
        yield c_type(enum.name), f"enum '{enum.name}'", path, enum.name
        for name, _ in enum.values:
            what = f"value '{name}' of enum '{enum.name}'"
            yield c_constant(enum.name, name), what, path, name
    for family in families:
        path = ("families", family.name)
        whose = f"of family '{family.name}'"
        for variant in family.variants[:1]:
            for b in variant.bindings:
                name = c_constant(family.name, "binding", operand(b.name))
                yield name, f"binding '{b.name}' {whose}", path, b.name
            for c in variant.constants:
                name = c_constant(family.name, "constant", c.name)
                yield name, f"constant '{c.name}' {whose}", path, c.name
            structs = [b.block for b in variant.bindings] + [variant.push_constants]
            for struct in structs:
                if struct:
                    what = f"struct '{struct.name}' {whose}"
                    yield c_type(family.name, struct.name), what, path, struct.name


def _c_of_ops(routes: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str, KeyPath, str]]:
    for op, names in routes.items():
        path: KeyPath = ("ops", op)
        for part in ("problem", "route"):
            yield c_type(op, part), f"the {part} of op '{op}'", path, op
        for verb in ("pick", "default"):
            yield c_type(verb, op), f"the function {verb} of op '{op}'", path, op
        for name in (AUTO, *names):
            yield c_constant(op, "route", name), f"route '{name}' of op '{op}'", path, name
