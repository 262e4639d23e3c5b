"""Expressions of a spec in their scopes: parsed, typed, every name new and every value listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shaderloom.decisions import Let
from shaderloom.errors import SpecError
from shaderloom.expr import RESERVED, Conditional, Expr, Literal, Name, Type, Value
from shaderloom.expr_parse import parse
from shaderloom.interface import Plan
from shaderloom.plan_checks import Errors
from shaderloom.source import KeyPath
from shaderloom.spec import Spec

# What emitted functions call their own variables; a field stands behind a prefix instead.
_LOCALS = frozenset(
    (
        *("bytes", "capacity", "constants", "context", "count", "ctx", "d", "error", "grid"),
        *("gx", "gy", "gz", "holds", "legal", "local", "n", "operands", "p", "push_constants"),
        *("r", "record", "records", "scratch", "shader", "size", "spec", "struct", "taken"),
        "uniforms",
    )
)


@dataclass
class NameScope:
    """Names in reach with their types, and for a let the expression that it stands for."""

    types: dict[str, Type]
    lets: dict[str, Expr]

    def inner(self) -> NameScope:
        return NameScope(dict(self.types), dict(self.lets))


class Expressions:
    """Parses expressions of one spec; every mistake goes to ``errors`` and planning goes on."""

    def __init__(self, spec: Spec, plan: Plan) -> None:
        self.spec = spec
        self.plan = plan
        self.errors = Errors(spec.source)
        self.enums = {e.name: Type(e.name, tuple(n for n, _ in e.values)) for e in plan.enums}
        self.broken: set[str] = set()  # names whose own expression is wrong

    def parse(
        self, text: str, scope: NameScope, expected: Type | None, path: KeyPath
    ) -> Expr | None:
        try:
            return parse(text, scope.types, expected, self.spec.source.text(*path))
        except SpecError as error:
            follow_on = tuple(f"unknown name '{name}'" for name in self.broken)
            self.errors.found.update(
                each for each in error.diagnostics if not each.message.startswith(follow_on)
            )
            return None

    def lets(self, lets: Mapping[str, str], scope: NameScope, path: KeyPath) -> tuple[Let, ...]:
        """Parse lets in order, each seeing those before it, and add them to ``scope``."""
        result = []
        for name, text in lets.items():
            expr = self.parse(text, scope, None, (*path, name))
            if expr is None:
                self.broken.add(name)
            if self.new_name(name, "let", scope, (*path, name)) and expr:
                scope.types[name] = expr.type
                scope.lets[name] = expr
                result.append(Let(name, expr))
        return tuple(result)

    def new_name(self, name: str, what: str, scope: NameScope, path: KeyPath) -> bool:
        """Note a name that is taken, or that emitted code needs for itself."""
        self.errors.name(name, what, *path)
        taken = RESERVED if what == "field" else RESERVED | _LOCALS
        if name in taken or name.startswith(("loom_", "shaderloom")):
            self.errors.add(f"{what} '{name}' is reserved", *path, at_key=True)
        elif name in scope.types:
            self.errors.add(f"{what} '{name}' hides another '{name}'", *path, at_key=True)
            return False
        return True


def possible_values(expr: Expr, lets: Mapping[str, Expr]) -> set[Value] | None:
    """Return the values that ``expr`` may give, or None when they cannot be listed."""
    found: Iterable[set[Value] | None]
    match expr:
        case Literal(value=value):
            return {value}
        case Conditional(then=then, otherwise=otherwise):
            found = [possible_values(then, lets), possible_values(otherwise, lets)]
        case Name(type=type_, name=name):
            if type_.values:
                return set(type_.values)
            found = [possible_values(lets[name], lets) if name in lets else None]
        case _:
            return None
    result: set[Value] = set()
    for values in found:
        if values is None:
            return None
        result |= values
    return result
