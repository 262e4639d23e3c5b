"""The decisions of a spec, typed: what to dispatch for a problem on a device.

``plan_dispatch`` makes these from the spec; ``decide`` interprets them, ``emit_dispatch_py`` and
``emit_dispatch_c`` compile them. A decision runs in one order everywhere: what the op
requires, its lets, what it ensures, the routes until one is taken, the family's axes and
lets, the contents of its interface, the global and the local size, the grid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shaderloom.expr import Expr, Type, Value

AUTO = "auto"  # the route that a caller asks for by default
REPETITION = "repetition"  # how often a route's families were dispatched before this time
MAX_REPEAT = 4096
MAX_MESSAGE = 511  # characters of an error text; C keeps it in the caller's record


@dataclass(frozen=True)
class Input:
    """A field of a problem or of the device; a field without default must be given."""

    name: str
    type: Type
    default: Value | None


@dataclass(frozen=True)
class Group:
    """Fields that are set together: ``in=1,64,56,56`` sets in_n, in_c, in_h and in_w."""

    name: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Let:
    """A named intermediate value."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Requirement:
    """What must hold of a problem; ``error`` has ``{name}`` where an integer is shown."""

    that: Expr
    text: str
    error: str

    @property
    def shown(self) -> tuple[str, ...]:
        """The integers that the message shows, in order."""
        return tuple(re.findall(r"\{(\w+)\}", self.error))


@dataclass(frozen=True)
class Store:
    """Four bytes of push constants or of a uniform block; ``scalar`` is int, uint or float."""

    offset: int
    scalar: str
    expr: Expr


@dataclass(frozen=True)
class UniformRule:
    """The contents of a uniform block; bytes that no store writes are zero."""

    binding: int
    size: int
    stores: tuple[Store, ...]


@dataclass(frozen=True)
class ConstantRule:
    """The value of a specialization constant; ``scalar`` is bool, int, uint or float."""

    id: int
    scalar: str
    expr: Expr


@dataclass(frozen=True)
class OperandRule:
    """Which operand a binding takes: ``slot``, or ``absent`` when ``present`` does not hold."""

    binding: int
    slot: str
    present: Expr | None
    absent: str


@dataclass(frozen=True)
class FrozenRule:
    """Frozen variants (of which, their name), and when they are taken.

    That is when ``prefer`` holds and the constants have the values that were baked in.
    """

    prefer: Expr
    text: str
    values: tuple[tuple[int, int], ...]  # (constant ID, four bytes as an unsigned integer)
    variants: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class LocalChoice:
    """The local-size rule taken when ``when`` holds; the last choice has no condition."""

    when: Expr | None
    rule: str


@dataclass(frozen=True)
class FamilyRules:
    """How a family is dispatched; ``variants`` maps axis values, in the axes' order, to names."""

    family: str
    axes: tuple[Let, ...]
    variants: tuple[tuple[tuple[Value, ...], str], ...]
    lets: tuple[Let, ...]
    constants: tuple[ConstantRule, ...]
    frozen: tuple[FrozenRule, ...]
    push_size: int
    push_constants: tuple[Store, ...]
    uniforms: tuple[UniformRule, ...]
    operands: tuple[OperandRule, ...]
    global_size: tuple[Expr, Expr, Expr]
    local: tuple[LocalChoice, ...]
    fold: tuple[int, int] | None  # an axis of the grid spills over into another, e.g. (0, 1)
    extent: tuple[Expr, Expr, Expr]

    @property
    def names(self) -> frozenset[str]:
        """Every name that some expression of the rules uses."""
        return frozenset().union(*(expr.names for expr in self._expressions()))

    def _expressions(self) -> Iterator[Expr]:
        yield from (let.expr for let in (*self.axes, *self.lets))
        yield from (rule.expr for rule in self.constants)
        yield from (rule.prefer for rule in self.frozen)
        yield from (store.expr for store in self.push_constants)
        yield from (store.expr for rule in self.uniforms for store in rule.stores)
        yield from (rule.present for rule in self.operands if rule.present)
        yield from self.global_size
        yield from (choice.when for choice in self.local if choice.when)
        yield from self.extent


@dataclass(frozen=True)
class Route:
    """A way to compute an op, with its conditions as they stand in the spec."""

    name: str
    families: tuple[str, ...]
    repeat: Expr
    legal: Expr
    legal_text: str
    when: Expr
    when_text: str


@dataclass(frozen=True)
class OpRules:
    """An op: ``inputs`` end with ``route``, the route that the caller asks for."""

    name: str
    inputs: tuple[Input, ...]
    groups: tuple[Group, ...]
    requires: tuple[Requirement, ...]
    lets: tuple[Let, ...]
    ensures: tuple[Requirement, ...]
    routes: tuple[Route, ...]
    families: tuple[FamilyRules, ...]

    @property
    def names(self) -> frozenset[str]:
        """Every name that a condition, a message or a family's rules use."""
        found: set[str] = set()
        for item in (*self.requires, *self.ensures):
            found |= {*item.that.names, *item.shown}
        for route in self.routes:
            found |= route.legal.names | route.when.names | route.repeat.names
        return frozenset(found).union(*(rules.names for rules in self.families))

    def family(self, name: str) -> FamilyRules:
        """Return the rules of the family called ``name``; raises KeyError when there are none."""
        return {rules.family: rules for rules in self.families}[name]


@dataclass(frozen=True)
class SizeCase:
    """A local size and when it is taken; the last case has no condition."""

    when: Expr | None
    text: str
    size: tuple[Expr, Expr, Expr]


@dataclass(frozen=True)
class SizeRule:
    """A local-size rule over gx, gy, gz and the device."""

    name: str
    lets: tuple[Let, ...]
    cases: tuple[SizeCase, ...]

    @property
    def names(self) -> frozenset[str]:
        """Every name that a case uses."""
        exprs = [expr for case in self.cases for expr in (*case.size, case.when) if expr]
        return frozenset().union(*(expr.names for expr in exprs))


@dataclass(frozen=True)
class Decisions:
    """All decisions of a spec."""

    device: tuple[Input, ...]
    device_groups: tuple[Group, ...]
    ops: tuple[OpRules, ...]
    sizes: tuple[SizeRule, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """Every operand slot, sorted."""
        found: set[str] = set()
        for op in self.ops:
            for family in op.families:
                for rule in family.operands:
                    found |= {rule.slot, rule.absent or rule.slot}
        return tuple(sorted(found))

    def size_rule(self, name: str) -> SizeRule:
        """Return the local-size rule called ``name``; raises KeyError when there is none."""
        return {rule.name: rule for rule in self.sizes}[name]


# The messages of failures that no requirement describes are the same in every language.


def conflict(op: str) -> str:
    """Return the message of a checked operation that failed."""
    return f"{op}: an integer overflowed or was divided by zero"


def impossible(op: str, route: Route) -> str:
    """Return the message of a route that was asked for and is not legal."""
    return f"{op}: route {route.name} is not possible: it needs {route.legal_text}"


def no_route(op: str) -> str:
    """Return the message of a problem that no route takes."""
    return f"{op}: no route takes this problem"


def too_often(op: str, count: object) -> str:
    """Return the message of a route that repeats too often, or not even once."""
    return f"{op}: {count} repetitions are not between 1 and {MAX_REPEAT}"


def no_such_value(op: str, field: str) -> str:
    """Return the message of a field whose value is not in its enum."""
    return f"{op}: {field} has no such value"
