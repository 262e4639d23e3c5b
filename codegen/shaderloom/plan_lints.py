"""The levels that a spec gives to lints, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from shaderloom.errors import nearest
from shaderloom.lints import LINTS, Levels, Override
from shaderloom.plan_checks import Errors
from shaderloom.source import KeyPath
from shaderloom.spec import Spec
from shaderloom.spec_model import LintSpec


def plan_lints(spec: Spec) -> Levels:
    """Return the levels of ``spec``; raises SpecError for an unknown ID or a fixed level."""
    errors = Errors(spec.source)
    whole = _overrides(spec.model.lints, errors, ("lints",))
    families = {
        name: _overrides(family.lints, errors, ("families", name, "lints"))
        for name, family in spec.model.families.items()
    }
    errors.raise_if_any()
    return Levels(whole, families)


def _overrides(lints: Mapping[str, LintSpec], errors: Errors, path: KeyPath) -> dict[str, Override]:
    known = [lint.id for lint in LINTS.values() if not lint.fixed]
    for name, item in lints.items():
        if name not in LINTS:
            hint = nearest(name, known)
            errors.add(f"unknown lint '{name}'{hint}", *path, name, at_key=True)
        elif name not in known:
            message = f"the level of {name} ({LINTS[name].name}) cannot be changed"
            errors.add(message, *path, name, at_key=True)
        if not item.reason.strip():
            errors.add(f"the reason for the level of '{name}' is empty", *path, name, "reason")
    return {name: Override(item.level, item.reason) for name, item in lints.items()}
