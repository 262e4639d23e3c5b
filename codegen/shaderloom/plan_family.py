"""How a family is dispatched: its variant, the contents of its interface, its sizes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shaderloom.decisions import (
    ConstantRule,
    FamilyRules,
    FrozenRule,
    Let,
    LocalChoice,
    OperandRule,
    Store,
    UniformRule,
)
from shaderloom.dtypes import MEMBER_TYPES
from shaderloom.errors import Diagnostic, Position, SpecError, nearest
from shaderloom.expr import BOOL, FLOAT, INT, Expr, Name, Type, Value
from shaderloom.expr_parse import parse
from shaderloom.interface import FamilyPlan, Struct
from shaderloom.names import operand
from shaderloom.plan_expressions import Expressions, NameScope, possible_values
from shaderloom.plan_frozen import PLACEHOLDER
from shaderloom.source import KeyPath
from shaderloom.spec_model import DispatchSpec, OpSpec


class FamilyRulesPlanner:
    """Plans the dispatch of one family within its op's scope."""

    def __init__(
        self, planner: Expressions, op: OpSpec, family: FamilyPlan, dispatch: DispatchSpec,
        scope: NameScope,
    ) -> None:  # fmt: skip
        self.planner = planner
        self.errors = planner.errors
        self.op = op
        self.family = family
        self.dispatch = dispatch
        self.scope = scope
        self.path: KeyPath = ("families", family.name, "dispatch")
        self.used_values: set[str] = set()

    def rules(self, op: str) -> FamilyRules | None:
        axes, variants = self.axes()
        lets = self.planner.lets(self.dispatch.let, self.scope, (*self.path, "let"))
        variant = self.family.variants[0]
        constants = [
            ConstantRule(c.id, c.type, expr)
            for c in variant.constants
            if (expr := self.content(c.name, c.enum or c.type, op))
        ]
        frozen = self.frozen()
        push = variant.push_constants
        push_stores = self.stores(push, op) if push else ()
        uniforms = tuple(
            UniformRule(b.binding, b.block.size, self.stores(b.block, op))
            for b in variant.bindings
            if b.block
        )
        for name in self.dispatch.values.keys() - self.used_values:
            message = f"'{name}' is no constant, push constant or uniform member"
            self.errors.add(message, *self.path, "values", name, at_key=True)
        size = [
            self.planner.parse(text, self.scope, INT, (*self.path, "global", i))
            for i, text in enumerate(self.dispatch.size)
        ]
        local = self.local()
        extent = [
            self.planner.parse(text, self.scope, INT, (*self.path, "extent", i))
            for i, text in enumerate(self.dispatch.extent)
        ]
        operands = self.operands()
        if not all((*size, *extent)):
            return None
        x, y, z = (expr for expr in size if expr)
        width, height, depth = (expr for expr in extent if expr)
        fold = self.dispatch.fold
        return FamilyRules(
            self.family.name, axes, variants, lets, tuple(constants), frozen,
            push.size if push else 0, push_stores, uniforms, operands, (x, y, z), local,
            ("xyz".index(fold[0]), "xyz".index(fold[1])) if fold else None,
            (width, height, depth),
        )  # fmt: skip

    def frozen(self) -> tuple[FrozenRule, ...]:
        """Parse when the frozen variants of each kind are taken."""
        rules = []
        for i, item in enumerate(self.planner.spec.model.families[self.family.name].frozen):
            path = ("families", self.family.name, "frozen", i, "prefer")
            prefer = self.planner.parse(item.prefer, self.scope, BOOL, path)
            made = [
                variant
                for variant in self.family.variants
                if variant.name == item.name.replace(PLACEHOLDER, variant.frozen_from)
            ]
            if prefer and made:
                values = tuple((frozen.id, frozen.bits) for frozen in made[0].frozen)
                names = tuple((variant.frozen_from, variant.name) for variant in made)
                rules.append(FrozenRule(prefer, item.prefer, values, names))
        return tuple(rules)

    def local(self) -> tuple[LocalChoice, ...]:
        """Parse the choice of a local-size rule; the last, and no other, is unconditional."""
        known = list(self.planner.spec.model.local_sizes)
        choices = []
        for i, item in enumerate(self.dispatch.local):
            path = (*self.path, "local", i)
            if item.use not in known:
                hint = nearest(item.use, known)
                self.errors.add(f"unknown local-size rule '{item.use}'{hint}", *path)
            if (item.when is None) != (i == len(self.dispatch.local) - 1):
                self.errors.add("the last choice, and no other, stands without 'when'", *path)
            when = None
            if item.when is not None:
                when = self.planner.parse(item.when, self.scope, BOOL, (*path, "when"))
            choices.append(LocalChoice(when, item.use))
        return tuple(choices)

    def axes(self) -> tuple[tuple[Let, ...], tuple[tuple[tuple[Value, ...], str], ...]]:
        """Parse the expression of each axis that varies; prove that what they give exists."""
        values: dict[str, list[Value]] = {}
        chosen = [variant for variant in self.family.variants if not variant.frozen_from]
        for variant in chosen:
            for name, value in variant.axes:
                if value not in values.setdefault(name, []):
                    values[name].append(value)
        varying = {name: found for name, found in values.items() if len(found) > 1}
        for name in self.dispatch.axes.keys() - varying.keys():
            what = "has one value" if name in values else "is unknown"
            self.errors.add(f"axis '{name}' {what}", *self.path, "axes", name, at_key=True)
        lets = []
        for name, found in sorted(varying.items()):
            if expr := self.axis(name, found):
                lets.append(Let(name, expr))
        variants = tuple((tuple(dict(v.axes)[let.name] for let in lets), v.name) for v in chosen)
        if len(lets) == len(varying):
            self.prove(lets, {key for key, _ in variants})
        return tuple(lets), variants

    def axis(self, name: str, values: Sequence[Value]) -> Expr | None:
        """Return the expression of an axis: the spec's, or the problem's field of its name."""
        path = (*self.path, "axes", name)
        text = self.dispatch.axes.get(name)
        if text is None:
            if name in self.scope.types:
                return Name(self.scope.types[name], name)
            message = f"axis '{name}' has no expression and no field of the problem has its name"
            self.errors.add(message, *self.path, at_key=True)
            return None
        expected: Type | None = INT
        if any(isinstance(value, str) for value in values):
            expected = Type(f"{self.family.name}_{name}", tuple(str(value) for value in values))
        if text in self.scope.types:
            expected = None
        expr = self.planner.parse(text, self.scope, expected, path)
        if expr is None:
            self.planner.broken.add(name)
        if expr and self.planner.new_name(name, "axis", self.scope, path):
            self.scope.types[name] = expr.type
            self.scope.lets[name] = expr
        return expr

    def prove(self, lets: Sequence[Let], generated: set[tuple[Value, ...]]) -> None:
        """Every combination of values that the axes' expressions can give is a variant."""
        choices = []
        for let in lets:
            found = possible_values(let.expr, self.scope.lets)
            if found is None:
                message = f"the values of axis '{let.name}' cannot be listed: use literals"
                self.errors.add(message, *self.path, "axes", let.name)
                return
            choices.append(sorted(found, key=str))
        for combination in itertools.product(*choices):
            if combination not in generated:
                pairs = zip(lets, combination, strict=True)
                shown = ", ".join(f"{let.name}={value}" for let, value in pairs)
                message = f"the rules can ask for {self.family.name}({shown}), which no variant is"
                self.errors.add(message, *self.path, at_key=True, lint="SL019")

    def values(self, name: str, op: str) -> tuple[tuple[str, ...], KeyPath]:
        """Return the expressions of a member and where they stand: family, op, or its own name."""
        for owner, path in ((self.dispatch.values, self.path), (self.op.values, ("ops", op))):
            if name in owner:
                self.used_values.add(name)
                return owner[name], (*path, "values", name)
        return (name,), self.path

    def content(self, name: str, type_name: str, op: str) -> Expr | None:
        texts, path = self.values(name, op)
        if len(texts) != 1:
            self.errors.add(f"'{name}' takes one value, not {len(texts)}", *path)
            return None
        return self.value(texts[0], name, type_name, path)

    def value(self, text: str, name: str, type_name: str, path: KeyPath) -> Expr | None:
        if path == self.path and text not in self.scope.types:
            message = f"'{name}' has no value: no field or let has its name"
            self.errors.add(message, *self.path, at_key=True)
            return None
        types = {"bool": BOOL, "int": INT, "uint": INT, "float": FLOAT, **self.planner.enums}
        return self.planner.parse(text, self.scope, types[type_name], path)

    def stores(self, struct: Struct, op: str) -> tuple[Store, ...]:
        stores = []
        for field in struct.fields:
            if field.keep == "padding":
                continue
            type_ = MEMBER_TYPES[field.type]
            texts, path = self.values(field.name, op)
            if len(texts) != type_.lanes:
                message = f"'{field.name}' is {field.type}: {type_.lanes} values, not {len(texts)}"
                self.errors.add(message, *path)
                continue
            for lane, text in enumerate(texts):
                here = (*path, lane) if type_.lanes > 1 else path
                if expr := self.value(text, field.name, type_.scalar, here):
                    stores.append(Store(field.offset + 4 * lane, type_.scalar, expr))
        return tuple(stores)

    def operands(self) -> tuple[OperandRule, ...]:
        rules = []
        for binding in self.family.variants[0].bindings:
            if binding.block:
                continue
            present: Expr | None = None
            if binding.absent:
                where = self.planner.spec.source.find((), binding.name)
                present = self.present(binding.present, binding.name, where)
            absent = operand(binding.absent) if binding.absent else ""
            rules.append(OperandRule(binding.binding, binding.operand, present, absent))
        return tuple(rules)

    def present(self, text: str, name: str, where: Position) -> Expr | None:
        if not text:
            message = f"'{name}' may be absent: say when it is there, with 'present'"
            self.errors.found.add(Diagnostic(where, message))
            return None
        try:
            return parse(text, self.scope.types, BOOL, where)
        except SpecError as error:
            self.errors.found |= set(error.diagnostics)
            return None
