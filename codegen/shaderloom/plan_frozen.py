"""Frozen variants: those of a family again, with constants baked in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shaderloom.interface import EnumPlan, Frozen, VariantPlan
from shaderloom.plan_checks import Errors
from shaderloom.settings import LOCAL_SIZES, parse_setting
from shaderloom.source import KeyPath
from shaderloom.spec_model import FrozenSpec

PLACEHOLDER = "{variant}"


def frozen_variants(
    items: Sequence[FrozenSpec],
    variants: Sequence[VariantPlan],
    enums: Sequence[EnumPlan],
    errors: Errors,
    path: KeyPath,
) -> list[VariantPlan]:
    """Return the frozen variants of ``items``; mistakes go to ``errors``."""
    result: list[VariantPlan] = []
    for i, item in enumerate(items):
        here = (*path, "frozen", i)
        if PLACEHOLDER not in item.name:
            errors.add(f"the name of a frozen variant contains {PLACEHOLDER}", *here, "name")
            continue
        frozen = _constants(item, variants[0], enums, errors, here) if variants else ()
        for variant in variants:
            name = item.name.replace(PLACEHOLDER, variant.name)
            errors.name(name, "variant", *here, "name", at_key=False)
            result.append(replace(variant, name=name, frozen_from=variant.name, frozen=frozen))
    return result


def _constants(
    item: FrozenSpec,
    variant: VariantPlan,
    enums: Sequence[EnumPlan],
    errors: Errors,
    path: KeyPath,
) -> tuple[Frozen, ...]:
    found = []
    for name, value in item.set.items():
        if name in LOCAL_SIZES:  # the dispatcher chooses it, and only then
            errors.add(f"'{name}' cannot be frozen in a spec", *path, "set", name, at_key=True)
            continue
        try:
            found.append(parse_setting(variant, enums, name, value))
        except ValueError as error:
            errors.add(str(error), *path, "set", name)
    return tuple(sorted(found, key=lambda frozen: frozen.id))
