"""Spec and plan to decisions: every expression parsed and typed, every variant proved to exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shaderloom.decisions import (
    AUTO,
    MAX_MESSAGE,
    REPETITION,
    Decisions,
    Group,
    Input,
    Let,
    OpRules,
    Requirement,
    Route,
    SizeCase,
    SizeRule,
    impossible,
)
from shaderloom.errors import nearest
from shaderloom.expr import (
    BOOL,
    FLOAT,
    INT,
    Type,
    Value,
)
from shaderloom.interface import Plan
from shaderloom.plan_expressions import Expressions, NameScope
from shaderloom.plan_family import FamilyRulesPlanner
from shaderloom.source import KeyPath
from shaderloom.spec import Spec
from shaderloom.spec_model import Inputs, InputSpec, OpSpec, RequireSpec, SizeRuleSpec

# What the dispatcher itself asks of a device: the local size and the grid must fit its limits.
LIMITS = (
    "max_invocations",
    *(f"max_local_{axis}" for axis in "xyz"),
    *(f"max_grid_{axis}" for axis in "xyz"),
)
_GLOBAL = ("gx", "gy", "gz")


def plan_dispatch(spec: Spec, plan: Plan) -> Decisions | None:
    """Return the decisions of ``spec``, None when it has no ops.

    Raises SpecError with every mistake found: in names, types and expressions, a family
    without a rule, a variant that the rules can ask for and that is not generated.
    """
    if not spec.model.ops:
        return None
    return _Planner(spec, plan).decisions()


class _Planner(Expressions):
    """Plans the device, the local sizes and the ops; every mistake goes to ``errors``."""

    def decisions(self) -> Decisions:
        model = self.spec.model
        device, groups = self.inputs(model.device, ("device",))
        missing = [name for name in LIMITS if name not in {i.name for i in device}]
        if missing:
            self.errors.add(f"the device has no '{missing[0]}'", "device", at_key=True)
        scope = NameScope({i.name: i.type for i in device}, {})
        sizes = tuple(
            self.size_rule(name, rule, scope) for name, rule in sorted(model.local_sizes.items())
        )
        for name, family in model.families.items():
            if family.op not in model.ops:
                hint = nearest(family.op, list(model.ops))
                self.errors.add(f"unknown op '{family.op}'{hint}", "families", name, "op")
        ops = tuple(self.op(name, op, scope) for name, op in sorted(model.ops.items()))
        self.errors.raise_if_any()
        return Decisions(device, groups, ops, sizes)

    def inputs(self, inputs: Inputs, path: KeyPath) -> tuple[tuple[Input, ...], tuple[Group, ...]]:
        fields: list[Input] = []
        groups = []
        scope = NameScope({}, {})
        for name, item, here in self.spliced(inputs, path):
            known = {"int": INT, "bool": BOOL, "float": FLOAT, **self.enums}
            names = [name]
            if isinstance(item.type, list):
                names, type_ = [f"{name}_{part}" for part in item.type], INT
                groups.append(Group(name, tuple(names)))
            elif item.type in known:
                type_ = known[item.type]
            else:
                hint = nearest(item.type, list(known))
                self.errors.add(f"unknown type '{item.type}' of '{name}'{hint}", *here)
                continue
            for field in names:
                default = self.default(item, type_, here)
                if self.new_name(field, "field", scope, here):
                    scope.types[field] = type_
                    fields.append(Input(field, type_, default))
        return tuple(fields), tuple(groups)

    def spliced(self, inputs: Inputs, path: KeyPath) -> Iterator[tuple[str, InputSpec, KeyPath]]:
        """Yield (name, field, path) with each ``NAME: block`` replaced by the block's fields."""
        for name, item in inputs.items():
            here = (*path, name)
            if item.type != "block":
                yield name, item, here
            elif item.default is not None:
                self.errors.add(f"'{name}' cannot have a default: it is a block", *here)
            elif name in self.spec.model.blocks:
                for inner, field in self.spec.model.blocks[name].problem.items():
                    yield inner, field, ("blocks", name, "problem", inner)
            else:
                hint = nearest(name, list(self.spec.model.blocks))
                self.errors.add(f"unknown block '{name}'{hint}", *here)

    def default(self, item: InputSpec, type_: Type, path: KeyPath) -> Value | None:
        value = item.default
        if value is None:
            return None
        fits = {
            INT: isinstance(value, int) and not isinstance(value, bool),
            FLOAT: isinstance(value, (int, float)) and not isinstance(value, bool),
            BOOL: isinstance(value, bool),
        }.get(type_, value in type_.values)
        if not fits:
            shown = str(value).lower() if isinstance(value, bool) else value
            self.errors.add(f"default '{shown}' is no {type_}", *path)
            return None
        return float(value) if type_ == FLOAT else value

    # ---- local sizes ------------------------------------------------------------------------

    def size_rule(self, name: str, rule: SizeRuleSpec, device: NameScope) -> SizeRule:
        path: KeyPath = ("local_sizes", name)
        self.errors.name(name, "local-size rule", *path)
        scope = device.inner()
        scope.types |= dict.fromkeys(_GLOBAL, INT)
        lets = self.lets(rule.let, scope, (*path, "let"))
        listed = isinstance(self.spec.source.data["local_sizes"][name], list)
        cases = []
        for i, case in enumerate(rule.cases):
            here: KeyPath = (*path, i) if listed else (*path, "cases", i)
            when = None
            if case.when is not None:
                when = self.parse(case.when, scope, BOOL, (*here, "when"))
            if (case.when is None) != (i == len(rule.cases) - 1):
                self.errors.add("the last case, and no other, stands without 'when'", *here)
            sizes = [
                self.parse(text, scope, INT, (*here, "size", j)) for j, text in enumerate(case.size)
            ]
            if all(sizes):
                x, y, z = (size for size in sizes if size)
                cases.append(SizeCase(when, case.when or "", (x, y, z)))
        if not rule.cases:
            self.errors.add(f"local-size rule '{name}' has no cases", *path)
        planned = SizeRule(name, lets, tuple(cases))
        self.dead_lets(lets, planned.names, (*path, "let"))
        return planned

    # ---- ops --------------------------------------------------------------------------------

    def op(self, name: str, op: OpSpec, device: NameScope) -> OpRules:
        path: KeyPath = ("ops", name)
        self.errors.name(name, "op", *path)
        inputs, groups = self.inputs(op.problem, (*path, "problem"))
        names = tuple(route.route for route in op.routes)
        route_type = Type(f"{name}_route", (AUTO, *names))
        inputs = (*inputs, Input("route", route_type, AUTO))
        scope = device.inner()
        for field in inputs:
            if field.name in scope.types:
                message = f"field '{field.name}' is also a field of the device"
                self.errors.add(message, *path, "problem")
            scope.types[field.name] = field.type
        requires = self.requirements(op.require, scope, (*path, "require"))
        lets = self.lets(op.let, scope, (*path, "let"))
        ensures = self.requirements(op.ensure, scope, (*path, "ensure"))
        routes = self.routes(op, scope, path)
        families = []
        plans = {family.name: family for family in self.plan.families}
        for family in sorted({family for route in op.routes for family in route.take}):
            spec = self.spec.model.families.get(family)
            if spec is None or spec.op != name:
                continue  # told by routes()
            if spec.dispatch is None:
                message = f"family '{family}' is taken by a route and has no 'dispatch'"
                self.errors.add(message, "families", family, at_key=True)
                continue
            inner = scope.inner()
            inner.types[REPETITION] = INT
            planner = FamilyRulesPlanner(self, op, plans[family], spec.dispatch, inner)
            if rules := planner.rules(name):
                families.append(rules)
        planned = OpRules(name, inputs, groups, requires, lets, ensures, routes, tuple(families))
        self.dead_lets(lets, planned.names, (*path, "let"))
        return planned

    def dead_lets(self, lets: tuple[Let, ...], used: frozenset[str], path: KeyPath) -> None:
        """Refuse a let that nothing uses: C would warn, and a reader would wonder."""
        if self.errors.found:
            return  # what does not parse may be what uses it
        for let in lets:
            later = frozenset().union(*(other.expr.names for other in lets))
            if let.name not in used | later:
                self.errors.add(
                    f"let '{let.name}' is used by nothing", *path, let.name, at_key=True
                )

    def requirements(
        self, items: list[RequireSpec], scope: NameScope, path: KeyPath
    ) -> tuple[Requirement, ...]:
        result = []
        for i, item in enumerate(items):
            that = self.parse(item.that, scope, BOOL, (*path, i, "that"))
            self.check_message(item.error, scope, (*path, i, "error"))
            if that:
                result.append(Requirement(that, item.that, item.error))
        return tuple(result)

    def routes(self, op: OpSpec, scope: NameScope, path: KeyPath) -> tuple[Route, ...]:
        if not op.routes:
            self.errors.add(f"op '{path[-1]}' has no routes", *path)
        result = []
        seen = {AUTO}
        for i, item in enumerate(op.routes):
            here = (*path, "routes", i)
            self.errors.name(item.route, "route", *here, "route", at_key=False)
            if item.route in seen:
                self.errors.add(f"route '{item.route}' is taken", *here, "route")
            seen.add(item.route)
            for taken in item.take:
                family = self.spec.model.families.get(taken)
                if family is None:
                    hint = nearest(taken, list(self.spec.model.families))
                    self.errors.add(f"unknown family '{taken}'{hint}", *here, "take")
                elif family.op != path[-1]:
                    message = f"family '{taken}' belongs to op '{family.op}'"
                    self.errors.add(message, *here, "take")
            legal = self.parse(item.legal, scope, BOOL, (*here, "legal"))
            when = self.parse(item.when, scope, BOOL, (*here, "when"))
            repeat = self.parse(item.repeat, scope, INT, (*here, "repeat"))
            if legal and when and repeat:
                route = Route(item.route, item.take, repeat, legal, item.legal, when, item.when)
                if len(impossible(str(path[-1]), route)) > MAX_MESSAGE:
                    message = f"'legal' is too long for an error text of {MAX_MESSAGE} characters"
                    self.errors.add(message, *here, "legal")
                result.append(route)
        return tuple(result)

    def check_message(self, text: str, scope: NameScope, path: KeyPath) -> None:
        names = re.findall(r"\{(\w+)\}", text)
        for name in names:
            if scope.types.get(name) != INT:
                integers = [known for known, type_ in scope.types.items() if type_ == INT]
                hint = nearest(name, integers)
                self.errors.add(f"'{{{name}}}' is no integer in reach{hint}", *path)
        rest = re.sub(r"\{\w+\}", "", text)
        if not rest.isascii() or not rest.isprintable() or set(rest) & set('{}%"\\'):
            self.errors.add('a message is printable ASCII without { } % " and \\', *path)
        if len(rest) + 20 * len(names) > MAX_MESSAGE:
            self.errors.add(f"a message has at most {MAX_MESSAGE} characters", *path)
