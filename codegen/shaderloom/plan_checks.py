"""What must hold between the parts of a family: names, splices, absent operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shaderloom.errors import Diagnostic, SpecError, nearest
from shaderloom.interface import EnumPlan, FamilyPlan, VariantPlan
from shaderloom.names import c_constant, c_type, name_problem, operand
from shaderloom.source import KeyPath, Source
from shaderloom.spec import FamilySpec, Members, SpecModel


class Errors:
    """Collects mistakes of a spec, each at the position of a path into it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: set[Diagnostic] = set()

    def add(self, message: str, *path: str | int, at_key: bool = False) -> None:
        """Note a mistake at the value (or the key) at ``path``."""
        where = self.source.key(*path) if at_key else self.source.value(*path)
        self.found.add(Diagnostic(where, message))

    def add_at(self, message: str, path: KeyPath, name: str) -> None:
        """Note a mistake where ``name`` is first declared below ``path``, else at ``path``."""
        self.found.add(Diagnostic(self.source.find(path, name), message))

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


def check_splices(model: SpecModel, family: FamilySpec, errors: Errors, path: KeyPath) -> None:
    """Every block is spliced whole: each of its parts exactly once (contract.md, epilogue)."""
    bindings = Counter(b.block for b in family.bindings if b.block)
    constants = _blocks_in(family.constants)
    parameters = _blocks_in(family.push_constants)
    for binding in family.bindings:
        parameters += _blocks_in(binding.fields)
    for name in sorted(set(bindings) | set(constants) | set(parameters)):
        block = model.blocks.get(name)
        if block is None:
            continue  # the planner reports it where it is named
        for part, here, has in (
            ("bindings", bindings[name], block.bindings),
            ("parameters", parameters[name], block.parameters),
            ("constants", constants[name], block.constants),
        ):
            if has and here != 1:
                times = "not spliced" if here == 0 else f"spliced {here} times"
                errors.add(f"the {part} of block '{name}' are {times}", *path, at_key=True)


def _blocks_in(members: Members) -> Counter[str]:
    return Counter(name for name, member in members.items() if member.type == "block")


def check_names(variant: VariantPlan, errors: Errors, path: KeyPath) -> None:
    """All members are flat, so an interface is one GLSL name space; C drops the ``t_``."""
    seen: dict[str, str] = {}
    for name, what in _declared(variant):
        problem = name_problem(name)
        if problem:
            errors.add_at(f"{what} '{name}' {problem}", path, name)
        if name in seen:
            errors.add_at(f"{what} '{name}' has the name of a {seen[name]}", path, name)
        seen.setdefault(name, what)
    operands: dict[str, str] = {}
    for binding in variant.bindings:
        mangled = operand(binding.name).lower()
        if operands.setdefault(mangled, binding.name) != binding.name:
            message = (
                f"bindings '{operands[mangled]}' and '{binding.name}' "
                f"are both operand '{mangled}' in C"
            )
            errors.add_at(message, path, binding.name)


def _declared(variant: VariantPlan) -> list[tuple[str, str]]:
    names = [(binding.name, "binding") for binding in variant.bindings]
    for binding in variant.bindings:
        if binding.block:
            names += [(field.name, "uniform member") for field in binding.block.fields]
    if variant.push_constants:
        names += [(field.name, "push constant") for field in variant.push_constants.fields]
    return names + [(constant.name, "constant") for constant in variant.constants]


def check_absent(variant: VariantPlan, errors: Errors, path: KeyPath) -> None:
    """An absent operand's slot is filled by a descriptor of the very same type."""
    by_name = {binding.name: binding for binding in variant.bindings}
    for binding in variant.bindings:
        if not binding.absent:
            continue
        stand_in = by_name.get(binding.absent)
        message = ""
        if stand_in is None:
            message = f"no binding '{binding.absent}'{nearest(binding.absent, list(by_name))}"
        elif stand_in.absent:
            message = f"'{binding.absent}' may itself be absent"
        elif (stand_in.kind, stand_in.storage) != (binding.kind, binding.storage):
            message = (
                f"'{binding.absent}' is a {stand_in.storage} {stand_in.kind.value}, "
                f"the slot a {binding.storage} {binding.kind.value}"
            )
        if message:
            label = f"absent operand of '{binding.name}' in '{variant.name}'"
            errors.add_at(f"{label}: {message}", path, binding.name)


# What the registry declares for itself; a test holds this list against the header.
REGISTRY_TYPES = (
    *("access", "binding", "constant", "dtype", "field", "kind", "map_entry", "module"),
    *("shader", "shader_id", "storage"),
)
REGISTRY_PREFIXES = ("access", "dtype", "kind", "shader", "storage")  # of its enumerators


def check_c_identifiers(
    enums: tuple[EnumPlan, ...], families: tuple[FamilyPlan, ...], errors: Errors
) -> None:
    """Refuse names that collide in C: family 'a' with constant 'b_c', family 'a_b' with 'c'."""
    seen = {c_type(name): "a type of the registry" for name in REGISTRY_TYPES}
    for name, what, path in _c_identifiers(enums, families):
        prefix = next((p for p in REGISTRY_PREFIXES if name.startswith(c_constant(p, ""))), None)
        if prefix and not what.startswith("variant"):
            errors.add(f"{what} is {name} in C, like the registry's own", *path, at_key=True)
        elif name in seen:
            errors.add(f"{what} is {name} in C, like {seen[name]}", *path, at_key=True)
        seen.setdefault(name, what)


def _c_identifiers(
    enums: tuple[EnumPlan, ...], families: tuple[FamilyPlan, ...]
) -> Iterator[tuple[str, str, KeyPath]]:
    """Yield (C identifier, what it stands for, where its name is given)."""
    for enum in enums:
        path: KeyPath = ("enums", enum.name)
        yield c_type(enum.name), f"enum '{enum.name}'", path
        for name, _ in enum.values:
            what = f"value '{name}' of enum '{enum.name}'"
            yield c_constant(enum.name, name), what, (*path, name)
    for family in families:
        path = ("families", family.name)
        whose = f"of family '{family.name}'"
        for variant in family.variants[:1]:
            for b in variant.bindings:
                name = c_constant(family.name, "binding", operand(b.name))
                yield name, f"binding '{b.name}' {whose}", path
            for c in variant.constants:
                name = c_constant(family.name, "constant", c.name)
                yield name, f"constant '{c.name}' {whose}", path
            structs = [b.block for b in variant.bindings] + [variant.push_constants]
            for struct in structs:
                if struct:
                    yield c_type(family.name, struct.name), f"struct '{struct.name}' {whose}", path
        for variant in family.variants:
            yield c_constant("shader", variant.name), f"variant '{variant.name}'", path
