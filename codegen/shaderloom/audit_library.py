"""Lints over a whole library: variants that no route reaches, modules that are the same."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping

from shaderloom.decisions import Decisions, FamilyRules, OpRules
from shaderloom.expr import Value
from shaderloom.interface import Plan
from shaderloom.lints import Finding
from shaderloom.plan_expressions import possible_values


def audit_library(
    plan: Plan, decisions: Decisions | None, shipped: Mapping[str, bytes]
) -> Iterator[Finding]:
    """Yield findings; ``shipped`` has the modules by variant. Without ops nothing is reached."""
    if decisions:
        yield from _unreachable(plan, decisions)
    family = {variant.name: variant.family for variant in plan.variants}
    same: dict[bytes, list[str]] = defaultdict(list)
    for name, module in sorted(shipped.items()):
        same[module].append(name)
    for first, *others in same.values():
        if others:
            message = f"its module is also that of {', '.join(others)}"
            yield Finding(first, "SL021", message, family[first], about="axes")


def _unreachable(plan: Plan, decisions: Decisions) -> Iterator[Finding]:
    reached = {
        name for op in decisions.ops for rules in op.families for name in _reachable(op, rules)
    }
    taken = {rules.family for op in decisions.ops for rules in op.families}
    for family in plan.families:
        for variant in family.variants:
            if variant.name in reached:
                continue
            why = "the axes of its family never have its values"
            if family.name not in taken:
                why = f"no route takes family {family.name}"
            message = f"no route can reach it: {why}"
            yield Finding(variant.name, "SL020", message, family.name, about="axes")


def _reachable(op: OpRules, rules: FamilyRules) -> set[str]:
    """Return the variants whose axis values the rules can give, each axis on its own."""
    lets = {let.name: let.expr for let in (*op.lets, *rules.axes)}
    choices: list[set[Value]] = [possible_values(let.expr, lets) or set() for let in rules.axes]
    possible = set(itertools.product(*choices))
    names = {name for key, name in rules.variants if key in possible}
    frozen = dict(pair for rule in rules.frozen for pair in rule.variants)
    return names | {frozen[name] for name in names & frozen.keys()}
