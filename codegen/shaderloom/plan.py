"""Spec to plan: every variant's bindings, push constants and specialization constants.

Numbers follow the order of the spec. Within a family only storages and dtypes may
differ between variants, so that one C enum and one struct describe all of them.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from shaderloom.dtypes import (
    BUFFERS,
    CONSTANT_TYPES,
    DTYPES,
    MEMBER_TYPES,
    STORAGES,
    TARGET_ENVS,
)
from shaderloom.errors import nearest
from shaderloom.interface import (
    FIRST_CONSTANT_ID,
    Binding,
    Constant,
    EnumPlan,
    FamilyPlan,
    Field,
    Kind,
    Plan,
    VariantPlan,
)
from shaderloom.memory import place
from shaderloom.names import TEMPLATE_NAMES, c_constant, operand
from shaderloom.plan_checks import (
    REGISTRY_CONSTANTS,
    Errors,
    check_absent,
    check_c_identifiers,
    check_names,
    check_splices,
)
from shaderloom.plan_frozen import frozen_variants
from shaderloom.plan_needs import (
    check_requires,
    cooperative_matrix_of,
    extensions_of,
    subgroup_size_of,
)
from shaderloom.source import KeyPath
from shaderloom.spec import Spec
from shaderloom.spec_model import BindingSpec, BlockSpec, FamilySpec, Member, Members

Axes = dict[str, "str | int"]

MAX_FLOAT = (2 - 2**-23) * 2.0**127  # of 32 bits


def plan(spec: Spec) -> Plan:
    """Plan every variant of ``spec``; raises SpecError with every mistake found."""
    errors = Errors(spec.source)
    enums = tuple(
        EnumPlan(name, tuple(values.items())) for name, values in sorted(spec.model.enums.items())
    )
    _check_enums(enums, errors)
    families = tuple(
        _FamilyPlanner(spec, name, family, enums, errors).plan()
        for name, family in sorted(spec.model.families.items())
    )
    if not families:
        errors.add("no family is defined", "families")
    _check_unique(families, errors)
    routes = {name: [route.route for route in op.routes] for name, op in spec.model.ops.items()}
    check_c_identifiers(enums, families, routes, errors)
    errors.raise_if_any()
    return Plan(Path(spec.source.file).name, enums, families)


def _check_enums(enums: tuple[EnumPlan, ...], errors: Errors) -> None:
    for enum in enums:
        seen: dict[int, str] = {}
        errors.name(enum.name, "enum", "enums", enum.name)
        if not enum.values:
            errors.add(f"enum '{enum.name}' has no values", "enums", enum.name)
        for name, value in enum.values:
            path = ("enums", enum.name, name)
            errors.name(name, "enum value", *path, prefixed=True)
            if value in seen:
                errors.add(f"'{name}' and '{seen[value]}' are both {value}", *path, at_key=True)
            if not -(2**31) <= value < 2**31:
                errors.add(f"{value} does not fit in 32 bits", *path)
            seen[value] = name


def _check_unique(families: tuple[FamilyPlan, ...], errors: Errors) -> None:
    """Refuse two variants that would be one file (on any file system) or one C enumerator."""
    seen: dict[str, VariantPlan] = {}
    for family in families:
        for variant in family.variants:
            in_c = c_constant("shader", variant.name)
            path = ("families", family.name, "name")
            if in_c in REGISTRY_CONSTANTS:
                message = f"variant '{variant.name}' is {in_c} in C, like the registry's own"
                errors.add(message, *path)
            keys = (variant.name.lower(), in_c)
            other = next((seen[key] for key in keys if key in seen), None)
            seen.update((key, variant) for key in keys if key not in seen)
            if other is None:
                continue
            both = (
                f"variants '{other.name}' ({_origin(other)}) and '{variant.name}' "
                f"({_origin(variant)})"
            )
            if other.name == variant.name:
                message = (
                    f"variant '{variant.name}' is made twice: by {_origin(other)} "
                    f"and by {_origin(variant)}"
                )
            elif other.name.lower() == variant.name.lower():
                message = f"{both} differ only in case"
            else:
                message = f"{both} are both {in_c} in C"
            errors.add(message, *path)


def _origin(variant: VariantPlan) -> str:
    axes = ", ".join(f"{name}={value}" for name, value in variant.axes)
    return f"{variant.family}({axes})"


class _FamilyPlanner:
    """Plans one family; every mistake goes to ``errors`` and planning goes on."""

    def __init__(
        self, spec: Spec, name: str, family: FamilySpec, enums: tuple[EnumPlan, ...], errors: Errors
    ) -> None:
        self.model = spec.model
        self.enums = enums
        self.name = name
        self.family = family
        self.errors = errors
        self.path: KeyPath = ("families", name)
        self.filled = True  # every {axis} so far named an axis

    def add(self, message: str, *path: str | int, at_key: bool = False) -> None:
        self.errors.add(message, *self.path, *path, at_key=at_key)

    def plan(self) -> FamilyPlan:
        family = self.family
        self.errors.name(self.name, "family", *self.path)
        if family.target_env not in TARGET_ENVS:
            known = ", ".join(TARGET_ENVS)
            self.add(f"target_env must be one of {known}, not '{family.target_env}'", "target_env")
        check_requires(family, self.errors, self.path)
        self.errors.name(family.op, "op", *self.path, "op", at_key=False)
        whole = check_splices(self.model, family, self.errors, self.path)
        variants = [self.variant(axes) for axes in self.combinations()]
        if not self.filled:
            variants = []  # their names and templates are nonsense
        for variant in variants:
            self.errors.name(variant.name, "variant", *self.path, "name", at_key=False)
        if variants and whole:
            check_names(variants[0], self.errors, self.path)
            self.check_renames(variants[0])
        if whole:
            check_absent(variants, self.errors, self.path)
        variants += frozen_variants(family.frozen, variants, self.enums, self.errors, self.path)
        renamed = tuple(sorted(family.renamed_from.items()))
        return FamilyPlan(
            self.name, family.op, tuple(sorted(variants, key=lambda v: v.name)), renamed
        )

    def combinations(self) -> list[Axes]:
        """Return the axes' product less the exclusions; both are checked."""
        axes = self.family.axes
        for name, values in axes.items():
            self.errors.name(name, "axis", *self.path, "axes", name)
            if name in TEMPLATE_NAMES:
                message = f"axis '{name}' has the name of something every template is given"
                self.add(message, "axes", name, at_key=True)
            if not values:
                self.add(f"axis '{name}' has no values", "axes", name)
            if len(set(values)) != len(values):
                self.add(f"axis '{name}' repeats a value", "axes", name)
        product = [
            dict(zip(axes, values, strict=True))
            for values in itertools.product(*map(dict.fromkeys, axes.values()))
        ]
        for i, rule in enumerate(self.family.exclude):
            product = self.excluded(product, rule, i)
        if not product and all(axes.values()):
            self.add("every combination of axes is excluded", "exclude")
        return product

    def excluded(self, product: list[Axes], rule: Axes, index: int) -> list[Axes]:
        if not rule:
            self.add("an exclusion names at least one axis", "exclude", index)
            return product
        unknown = [name for name in rule if name not in self.family.axes]
        for name in unknown:
            hint = nearest(name, list(self.family.axes))
            self.add(f"unknown axis '{name}'{hint}", "exclude", index, name, at_key=True)
        for name in rule.keys() - set(unknown):
            if rule[name] not in self.family.axes[name]:
                message = f"axis '{name}' has no value '{rule[name]}'"
                self.add(message, "exclude", index, name)
                unknown.append(name)
        if unknown:
            return product
        kept = [axes for axes in product if not rule.items() <= axes.items()]
        if len(kept) == len(product):
            self.add("this exclusion matches no combination of axes", "exclude", index)
        return kept

    def fill(self, text: str, axes: Axes, *path: str | int) -> str:
        """Replace each ``{axis}`` in ``text`` by the variant's value."""

        def value(match: re.Match[str]) -> str:
            if match[1] not in axes:
                hint = nearest(match[1], list(axes))
                self.add(f"'{match[0]}' names no axis of family '{self.name}'{hint}", *path)
                self.filled = False
            return str(axes.get(match[1], ""))

        return re.sub(r"\{(\w*)\}", value, text)

    def name_parts(self, axes: Axes) -> Axes:
        """Return how the name spells the values that it does not spell as they are."""
        parts: Axes = {}
        for name, texts in self.family.name_parts.items():
            values = [str(value) for value in self.family.axes.get(name, ())]
            for key in [name] if name not in axes else sorted(set(values) ^ set(texts)):
                hint = nearest(key, values or list(self.family.axes))
                message = f"'{key}' is no axis, or a value without its part{hint}"
                self.add(message, "name_parts", name, at_key=True)
            parts[name] = texts.get(str(axes.get(name)), "")
        return parts

    def variant(self, axes: Axes) -> VariantPlan:
        family = self.family
        name = self.fill(family.name, {**axes, **self.name_parts(axes)}, "name")
        bindings = self.bindings(axes)
        subgroup = self.fill(str(family.subgroup_size), axes, "subgroup_size")
        matrix = self.fill(family.cooperative_matrix, axes, "cooperative_matrix")
        used_blocks = [b.block for b in family.bindings if b.block in self.model.blocks]
        push = self.fields(family.push_constants, "push_constants")
        return VariantPlan(
            name=name,
            family=self.name,
            op=family.op,
            template=self.fill(family.template, axes, "template"),
            axes=tuple(sorted(axes.items())),
            bindings=bindings,
            constants=self.constants(),
            push_constants=place("push_constants", push) if push else None,
            operands=tuple(sorted(family.operands.items())),
            headers=tuple(self.model.blocks[block].header for block in used_blocks if block),
            requires=extensions_of(family, axes, bindings),
            target_env=family.target_env,
            subgroup_size=subgroup_size_of(subgroup, self.errors, self.path),
            shared_memory=family.shared_memory,
            cooperative_matrix=cooperative_matrix_of(matrix, self.errors, self.path),
        )

    def bindings(self, axes: Axes) -> tuple[Binding, ...]:
        result: list[Binding] = []
        for i, item in enumerate(self.family.bindings):
            path: KeyPath = ("bindings", i)
            if item.block is None:
                self.append(result, item, axes, "", path)
                continue
            block = self.block(item.block, *path, "block")
            for inner in block.bindings if block else []:
                self.append(result, inner, axes, item.block, path)
        return tuple(result)

    def append(
        self, result: list[Binding], item: BindingSpec, axes: Axes, owner: str, path: KeyPath
    ) -> None:
        number = result[-1].binding + 1 if result else 0
        if item.binding is not None:
            number = item.binding
        taken = {b.binding: b.name for b in result}
        if number in taken:
            self.add(f"binding {number} of '{item.label}' is taken by '{taken[number]}'", *path)
        keep = item.keep or ""
        if item.uniform is not None:
            fields = self.fields(item.fields, *path, "fields")
            block = place(item.uniform, fields)
            result.append(
                Binding(
                    number, item.uniform, Kind.UNIFORM_BUFFER, "uniform", "read",
                    owner=owner, keep=keep, block=block,
                )
            )  # fmt: skip
            return
        storage = self.fill(item.storage or "", axes, *path, "storage")
        dtype = self.fill(item.dtype, axes, *path, "dtype")
        for what, value, known in (("storage", storage, STORAGES), ("dtype", dtype, DTYPES)):
            if value and value not in known:
                hint = nearest(value, list(known))
                self.add(f"unknown {what} '{value}' of '{item.label}'{hint}", *path, what)
        kind = Kind.SAMPLED_IMAGE if item.access == "read" else Kind.STORAGE_IMAGE
        if storage in BUFFERS:
            kind = Kind.STORAGE_BUFFER
        result.append(
            Binding(
                number, item.label, kind, storage, item.access or "read", dtype,
                operand=item.operand or operand(item.label),
                absent=item.absent or "", present=item.present or "",
                packed_by=item.packed_by or "", owner=owner, keep=keep,
            )
        )  # fmt: skip

    def block(self, name: str, *path: str | int) -> BlockSpec | None:
        if name not in self.model.blocks:
            self.add(f"unknown block '{name}'{nearest(name, list(self.model.blocks))}", *path)
            return None
        return self.model.blocks[name]

    def spliced(
        self, members: Members, part: str, *path: str | int
    ) -> list[tuple[str, Member, str, KeyPath]]:
        """Return (name, member, owning block, path) with each ``NAME: block`` replaced."""
        result: list[tuple[str, Member, str, KeyPath]] = []
        for name, member in members.items():
            if member.type != "block":
                result.append((name, member, "", (*self.path, *path, name)))
            elif block := self.block(name, *path, name):
                for inner, inner_member in getattr(block, part).items():
                    result.append((inner, inner_member, name, ("blocks", name, part, inner)))
        return result

    def fields(self, members: Members, *path: str | int) -> list[Field]:
        fields = []
        for name, member, owner, where in self.spliced(members, "parameters", *path):
            type_, keep = member.type, member.keep or ""
            if type_ == "pad":
                type_, keep = "int", "padding"
            if type_ not in MEMBER_TYPES:
                hint = nearest(type_, [*MEMBER_TYPES, "pad", "block"])
                self.errors.add(f"unknown type '{type_}' of '{name}'{hint}", *where)
                continue
            if "default" in member.model_fields_set:
                self.errors.add(f"'{name}' cannot have a default: it is no constant", *where)
            fields.append(Field(name, type_, 0, 0, owner, keep))
        return fields

    def constants(self) -> tuple[Constant, ...]:
        constants = []
        members = self.spliced(self.family.constants, "constants", "constants")
        for number, (name, member, owner, where) in enumerate(members, FIRST_CONSTANT_ID):
            type_, enum = member.type, ""
            if type_ in self.model.enums:
                type_, enum = "int", type_
            elif type_ not in CONSTANT_TYPES:
                hint = nearest(type_, [*CONSTANT_TYPES, *self.model.enums, "block"])
                self.errors.add(f"unknown type '{type_}' of '{name}'{hint}", *where)
                continue
            self.check_default(name, member, type_, enum, where)
            default = float(member.default) if type_ == "float" else int(member.default)
            constants.append(Constant(number, name, type_, default, enum, owner, member.keep or ""))
        return tuple(constants)

    def check_default(
        self, name: str, member: Member, type_: str, enum: str, where: KeyPath
    ) -> None:
        default = member.default
        whole = isinstance(default, int) and not isinstance(default, bool)
        fits = {
            "bool": isinstance(default, bool) or (whole and default in (0, 1)),
            "int": whole and -(2**31) <= default < 2**31,
            "uint": whole and 0 <= default < 2**32,
            "float": not isinstance(default, bool) and abs(default) <= MAX_FLOAT,
        }[type_]
        if not fits or (enum and default not in self.model.enums[enum].values()):
            shown = str(default).lower()
            self.errors.add(f"default {shown} of '{name}' is no {enum or type_}", *where)

    def check_renames(self, variant: VariantPlan) -> None:
        present = _all_names(variant)
        for now, before in self.family.renamed_from.items():
            if now not in present:
                hint = nearest(now, sorted(present))
                self.add(f"nothing is called '{now}'{hint}", "renamed_from", now, at_key=True)
            if before in present:
                self.add(f"'{before}' still exists", "renamed_from", now)


def _all_names(variant: VariantPlan) -> set[str]:
    structs = [b.block for b in variant.bindings] + [variant.push_constants]
    fields = {f.name for struct in structs if struct for f in struct.fields}
    return fields | {b.name for b in variant.bindings} | {c.name for c in variant.constants}
