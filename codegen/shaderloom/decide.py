"""Interpret the decisions of a spec, noting every rule that was tried: what ``pick`` shows.

The emitted dispatchers do the same without the notes; the tests hold all three together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shaderloom.decisions import (
    AUTO,
    MAX_REPEAT,
    REPETITION,
    Decisions,
    FamilyRules,
    Input,
    Let,
    OpRules,
    Requirement,
    Route,
    Store,
    conflict,
    impossible,
    no_route,
    too_often,
)
from shaderloom.expr import EvalError, Expr, Value, evaluate
from shaderloom.interface import LOCAL_SIZE_IDS, EnumPlan

Sizes = tuple[int, int, int]


class DecisionError(Exception):
    """A problem that cannot be dispatched; the message is the dispatcher's own."""


@dataclass(frozen=True)
class Record:
    """What to dispatch; field by field as in runtime.md, "Dispatch record"."""

    shader: str
    spec: tuple[tuple[int, int], ...]  # (constant ID, its four bytes as an unsigned integer)
    operands: tuple[tuple[int, str], ...]  # (binding, slot)
    push_constants: bytes
    uniforms: tuple[tuple[int, bytes], ...]
    global_size: Sizes
    local_size: Sizes
    grid: Sizes
    out_extent: Sizes


@dataclass(frozen=True)
class Step:
    """A rule that was tried: what it is, its text, its result and the values that it used."""

    rule: str
    text: str
    result: Value
    values: tuple[tuple[str, Value], ...] = ()


@dataclass
class Trace:
    """The steps of one decision, in order."""

    steps: list[Step] = field(default_factory=list)


def decide(
    decisions: Decisions,
    enums: Sequence[EnumPlan],
    op: OpRules,
    problem: Mapping[str, Value],
    device: Mapping[str, Value],
    trace: Trace,
) -> tuple[Record, ...]:
    """Return the dispatches of ``problem`` on ``device``; raises DecisionError.

    ``problem`` and ``device`` hold a value for every input. Steps up to an error are in
    ``trace``.
    """
    run = _Run(decisions, enums, {**device, **problem}, trace)
    try:
        return run.op(op)
    except EvalError:
        raise DecisionError(conflict(op.name)) from None


def complete(inputs: Sequence[Input], given: Mapping[str, Value]) -> dict[str, Value]:
    """Return a value for every input: the one given, or its default; KeyError names one missing."""
    result = {}
    for item in inputs:
        value = given.get(item.name, item.default)
        if value is None:
            raise KeyError(item.name)
        result[item.name] = value
    return result


class _Run:
    def __init__(
        self,
        decisions: Decisions,
        enums: Sequence[EnumPlan],
        values: dict[str, Value],
        trace: Trace,
    ) -> None:
        self.decisions = decisions
        self.enums = {enum.name: dict(enum.values) for enum in enums}
        self.values = values
        self.trace = trace

    def note(self, rule: str, text: str, expr: Expr) -> Value:
        """Evaluate, and note the result with the values that went in."""
        result = evaluate(expr, self.values)
        used = tuple((name, self.values[name]) for name in sorted(expr.names))
        self.trace.steps.append(Step(rule, text, result, used))
        return result

    def lets(self, lets: Sequence[Let], rule: str) -> None:
        for let in lets:
            self.values[let.name] = self.note(rule, let.name, let.expr)

    def requirements(self, requirements: Sequence[Requirement], rule: str) -> None:
        for item in requirements:
            if not self.note(rule, item.text, item.that):
                raise DecisionError(item.error.format(**self.values))

    def op(self, op: OpRules) -> tuple[Record, ...]:
        self.requirements(op.requires, "require")
        self.lets(op.lets, "let")
        self.requirements(op.ensures, "ensure")
        route = self.route(op)
        count = int(evaluate(route.repeat, self.values))
        if not 1 <= count <= MAX_REPEAT:
            raise DecisionError(too_often(op.name, count))
        outer = self.values
        records = []
        for repetition in range(count):
            for family in route.families:
                self.values = {**outer, REPETITION: repetition}
                records.append(self.family(op, op.family(family)))
        return tuple(records)

    def route(self, op: OpRules) -> Route:
        """Return the first route that is asked for, legal and wanted."""
        wanted = self.values["route"]
        for route in op.routes:
            if wanted not in (AUTO, route.name):
                continue
            if not self.note(f"route {route.name} is legal", route.legal_text, route.legal):
                if wanted == route.name:
                    raise DecisionError(impossible(op.name, route))
                continue
            if wanted == route.name or self.note(
                f"route {route.name} is preferred", route.when_text, route.when
            ):
                return route
        raise DecisionError(no_route(op.name))

    def family(self, op: OpRules, rules: FamilyRules) -> Record:
        self.lets(rules.axes, f"axis of {rules.family}")
        key = tuple(self.values[let.name] for let in rules.axes)
        shader = dict(rules.variants)[key]
        self.lets(rules.lets, f"let of {rules.family}")
        constants = [
            (rule.id, int.from_bytes(self.word(rule.scalar, rule.expr), "little"))
            for rule in rules.constants
        ]
        shader, constants = self.frozen(rules, shader, constants)
        operands = tuple(
            (
                rule.binding,
                rule.slot
                if rule.present is None or evaluate(rule.present, self.values)
                else rule.absent,
            )
            for rule in rules.operands
        )
        push_constants = self.contents(rules.push_size, rules.push_constants)
        uniforms = tuple(
            (rule.binding, self.contents(rule.size, rule.stores)) for rule in rules.uniforms
        )
        x, y, z = (self.size(expr) for expr in rules.global_size)
        chosen = next(
            choice.rule
            for choice in rules.local
            if choice.when is None or evaluate(choice.when, self.values)
        )
        local = self.local(chosen, (x, y, z))
        grid = self.grid(op, (x, y, z), local, rules.fold)
        width, height, depth = (self.size(expr) for expr in rules.extent)
        return Record(
            shader=shader,
            spec=(*zip(LOCAL_SIZE_IDS, local, strict=True), *constants),
            operands=operands,
            push_constants=push_constants,
            uniforms=uniforms,
            global_size=(x, y, z),
            local_size=local,
            grid=grid,
            out_extent=(width, height, depth),
        )

    def frozen(
        self, rules: FamilyRules, shader: str, constants: list[tuple[int, int]]
    ) -> tuple[str, list[tuple[int, int]]]:
        """Take the first frozen variant that is preferred and has these very constants."""
        for rule in rules.frozen:
            name = dict(rule.variants)[shader]
            preferred = self.note(f"{name} is preferred", rule.text, rule.prefer)
            if preferred and set(rule.values) <= set(constants):
                return name, [item for item in constants if item not in rule.values]
        return shader, constants

    def size(self, expr: Expr) -> int:
        value = evaluate(expr, self.values)
        if not isinstance(value, int) or not 0 <= value < 2**32:
            raise EvalError("global", f"{value} is no size")
        return value

    def word(self, scalar: str, expr: Expr) -> bytes:
        value = evaluate(expr, self.values)
        if expr.type.values:
            value = self.enums[expr.type.name][str(value)]
        if scalar == "float":
            return float_bytes(float(value))
        low, high = (0, 2**32) if scalar in ("uint", "bool") else (-(2**31), 2**31)
        if not low <= int(value) < high:
            raise EvalError("store", f"{value} does not fit in 32 bits")
        return (int(value) % 2**32).to_bytes(4, "little")

    def contents(self, size: int, stores: Sequence[Store]) -> bytes:
        data = bytearray(size)
        for store in stores:
            data[store.offset : store.offset + 4] = self.word(store.scalar, store.expr)
        return bytes(data)

    def local(self, name: str, global_size: Sizes) -> Sizes:
        """Choose by the rule, then halve the longest side until the device takes it."""
        rule = self.decisions.size_rule(name)
        outer = dict(self.values)
        self.values |= dict(zip(("gx", "gy", "gz"), global_size, strict=True))
        self.lets(rule.lets, f"let of {name}")
        size = [1, 1, 1]
        for case in rule.cases:
            if case.when is None or self.note(f"local size {name}", case.text, case.when):
                size = [self.size(expr) for expr in case.size]
                break
        self.values = outer
        limits = [int(outer[f"max_local_{axis}"]) for axis in "xyz"]
        fitted = fit(size, limits, int(outer["max_invocations"]))
        self.trace.steps.append(Step(f"local size {name}", "fits the device", str(fitted)))
        return fitted

    def grid(
        self, op: OpRules, global_size: Sizes, local: Sizes, fold: tuple[int, int] | None
    ) -> Sizes:
        """Count workgroups; an axis past the device's limit spills over into another of 1."""
        limits = [int(self.values[f"max_grid_{axis}"]) for axis in "xyz"]
        x, y, z = (-(-g // n) for g, n in zip(global_size, local, strict=True))
        grid = [x, y, z]
        if fold is not None:
            long, spare = fold
            if grid[long] > limits[long] > 0 and grid[spare] == 1:
                grid[spare] = -(-grid[long] // limits[long])
                grid[long] = -(-grid[long] // grid[spare])
        for count, limit in zip(grid, limits, strict=True):
            if count > limit:
                raise DecisionError(
                    f"{op.name}: a grid of {grid[0]} x {grid[1]} x {grid[2]} workgroups "
                    "exceeds the device"
                )
        return grid[0], grid[1], grid[2]


def fit(size: Sequence[int], limits: Sequence[int], invocations: int) -> Sizes:
    """Return a local size of at least 1 within the device's limits per axis and in all.

    Each axis is cut to its limit, then the longest (the first of equals) is halved until
    the product fits: (8, 8, 1) on a device of 32 invocations is (4, 8, 1).
    """
    fitted = [max(1, min(n, limit)) for n, limit in zip(size, limits, strict=True)]
    while fitted[0] * fitted[1] * fitted[2] > max(1, invocations):
        longest = fitted.index(max(fitted))
        fitted[longest] //= 2
    return fitted[0], fitted[1], fitted[2]


def float_bytes(value: float) -> bytes:
    """Return a float's four bytes, rounded to binary32: too large is infinite, a NaN is quiet."""
    if math.isnan(value):
        return b"\x00\x00\xc0\x7f"
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))
