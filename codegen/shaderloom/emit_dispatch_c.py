"""``dispatch.h`` and ``dispatch.c``: the decisions in C99, filled into a caller's record.

The same rules in the same order as ``dispatch.py``. C has one error flag where Python
raises, so it is looked at wherever Python could have left the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shaderloom.decisions import (
    AUTO,
    MAX_MESSAGE,
    MAX_REPEAT,
    REPETITION,
    Decisions,
    FamilyRules,
    Input,
    Let,
    OpRules,
    Requirement,
    Store,
    conflict,
    impossible,
    no_route,
    no_such_value,
)
from shaderloom.emit_c import c_string, render
from shaderloom.expr import BOOL, FLOAT, INT, Expr, Name, Type, Value
from shaderloom.expr_c import C_HELPERS, to_c
from shaderloom.interface import LOCAL_SIZE_IDS, Plan
from shaderloom.manifest import layout_hash
from shaderloom.names import c_constant, c_type
from shaderloom.render import GENERATED

_TYPES = {INT: "int64_t", BOOL: "bool", FLOAT: "double"}
_Emit = Callable[[Expr], str]


def dispatch_c(plan: Plan, decisions: Decisions) -> dict[str, bytes]:
    """Return ``dispatch.h`` and ``dispatch.c``."""
    families = [rules for op in decisions.ops for rules in op.families]
    uniforms = [uniform for rules in families for uniform in rules.uniforms]
    emitter = _Emitter(plan, decisions)
    view = {
        "generated": GENERATED.format(source=plan.spec_name),
        "layout_hash": layout_hash(plan),
        "helpers": C_HELPERS,
        "max_message": MAX_MESSAGE,
        "max_repeat": MAX_REPEAT,
        # An array has at least one element, so that C has a type for it.
        "max_spec": max(len(LOCAL_SIZE_IDS) + len(rules.constants) for rules in families),
        "max_operands": max(1, *(len(rules.operands) for rules in families)),
        "max_uniforms": max(1, *(len(rules.uniforms) for rules in families)),
        "max_uniform_size": max([4, *(uniform.size for uniform in uniforms)]),
        "max_push": max(4, *(rules.push_size for rules in families)),
        "frozen": any(rules.frozen for rules in families),
        "slots": decisions.slots,
        "device": emitter.fields(decisions.device),
        "device_defaults": emitter.defaults(decisions.device),
        "sizes": [emitter.size_rule(rule.name) for rule in decisions.sizes],
        "ops": [emitter.op(op) for op in decisions.ops],
    }
    return {name: render(f"{name}.j2", view) for name in ("dispatch.h", "dispatch.c")}


class _Emitter:
    """Spells the parts of one spec's decisions."""

    def __init__(self, plan: Plan, decisions: Decisions) -> None:
        self.decisions = decisions
        self.enums = {enum.name for enum in plan.enums}
        self.enums |= {f"{op.name}_route" for op in decisions.ops}

    def type(self, type_: Type) -> str:
        """Return the C type; an axis has no enum of its own and is a small integer."""
        if type_.values:
            return c_type(type_.name) if type_.name in self.enums else "int"
        return _TYPES[type_]

    def enum(self, type_: Type, value: str) -> str:
        if type_.name in self.enums:
            return c_constant(type_.name, value)
        return f"{type_.values.index(value)} /* {value} */"

    def emit(self, op: OpRules | None) -> _Emit:
        problem = {i.name for i in op.inputs} if op else set()
        device = {i.name for i in self.decisions.device}

        def spell(name: str) -> str:
            if name in problem:
                return f"p->{name}"
            return f"d->{name}" if name in device else name

        return lambda expr: to_c(expr, spell, self.enum)

    def fields(self, inputs: Iterable[Input]) -> list[str]:
        return [f"{self.type(i.type)} {i.name}" for i in inputs]

    def defaults(self, inputs: Iterable[Input]) -> list[str]:
        given = [(i, i.default) for i in inputs if i.default is not None]
        return [f"{i.name} = {self.value(i.type, value)}" for i, value in given]

    def value(self, type_: Type, value: Value) -> str:
        if type_.values:
            return self.enum(type_, str(value))
        return str(value).lower() if isinstance(value, bool) else repr(value)

    def lets(self, lets: Iterable[Let], emit: _Emit) -> list[str]:
        return [f"const {self.type(let.expr.type)} {let.name} = {emit(let.expr)};" for let in lets]

    def size_rule(self, name: str) -> dict[str, Any]:
        rule, emit = self.decisions.size_rule(name), self.emit(None)
        return {
            "name": name,
            "lets": self.lets(rule.lets, emit),
            "cases": [
                {
                    "when": emit(case.when) if case.when else "",
                    "size": ", ".join(emit(expr) for expr in case.size),
                }
                for case in rule.cases
            ],
        }

    def op(self, op: OpRules) -> dict[str, Any]:
        emit = self.emit(op)
        families = {rules.family: self.family(op, rules, emit) for rules in op.families}
        route = Type(f"{op.name}_route", (AUTO, *(r.name for r in op.routes)))
        checked = [("d", i) for i in self.decisions.device] + [("p", i) for i in op.inputs]
        return {
            "name": op.name,
            "problem": c_type(op.name, "problem"),
            "route_type": c_type(route.name),
            "routes": [self.enum(route, value) for value in route.values],
            "auto": self.enum(route, AUTO),
            "fields": self.fields(op.inputs),
            "defaults": self.defaults(op.inputs),
            "conflict": c_string(conflict(op.name)),
            "no_route": c_string(no_route(op.name)),
            "checks": [
                {
                    "condition": self.out_of_range(f"{owner}->{i.name}", i.type),
                    "error": c_string(no_such_value(op.name, i.name)),
                }
                for owner, i in checked
                if i.type.values
            ],
            "requires": [self.requirement(item, emit) for item in op.requires],
            "lets": self.lets(op.lets, emit),
            "ensures": [self.requirement(item, emit) for item in op.ensures],
            "taken": [
                {
                    "id": self.enum(route, r.name),
                    "legal": emit(r.legal),
                    "when": f"({emit(r.when)})",
                    "impossible": c_string(impossible(op.name, r)),
                    "repeat": emit(r.repeat),
                    "families": [(name, families[name]["arguments"]) for name in r.families],
                }
                for r in op.routes
            ],
            "families": list(families.values()),
        }

    def out_of_range(self, field: str, type_: Type) -> str:
        known = [f"{field} != {self.enum(type_, value)}" for value in type_.values]
        return " && ".join(known)

    def requirement(self, item: Requirement, emit: _Emit) -> dict[str, str]:
        pieces: list[str] = []
        text = item.error
        for name in item.shown:
            before, _, text = text.partition(f"{{{name}}}")
            pieces.append(f'"{before}%" PRId64')
        spelled = [emit(Name(INT, name)) for name in item.shown]
        return {
            "that": emit(item.that),
            "error": " ".join([*pieces, c_string(text)]),
            "shown": ", ".join(f"(int64_t){name}" for name in spelled),
        }

    def family(self, op: OpRules, rules: FamilyRules, emit: _Emit) -> dict[str, Any]:
        shared = [let for let in op.lets if let.name in rules.names]
        if REPETITION in rules.names:
            shared.append(Let(REPETITION, Name(INT, REPETITION)))
        inputs = {i.name for i in (*op.inputs, *self.decisions.device)}
        return {
            "name": rules.family,
            "arguments": "".join(f", {let.name}" for let in shared),
            "parameters": "".join(f", {self.type(let.expr.type)} {let.name}" for let in shared),
            "axes": self.lets((let for let in rules.axes if let.name not in inputs), emit),
            "shaders": self.shaders(rules, emit, inputs) if rules.axes else [],
            "shader": c_constant("shader", rules.variants[0][1]),
            "lets": self.lets(rules.lets, emit),
            "constants": [(c.id, self.word(c.scalar, c.expr, emit)) for c in rules.constants],
            "frozen": [
                {
                    "prefer": emit(f.prefer),
                    "baked": f.values,
                    "variants": [
                        (c_constant("shader", base), c_constant("shader", name))
                        for base, name in f.variants
                    ],
                }
                for f in rules.frozen
            ],
            "operands": [
                (
                    o.binding,
                    _slot(o.slot)
                    if o.present is None
                    else f"{emit(o.present)} ? {_slot(o.slot)} : {_slot(o.absent)}",
                )
                for o in rules.operands
            ],
            "push_size": rules.push_size,
            "push_constants": self.stores(rules.push_constants, emit),
            "uniforms": [
                {"binding": u.binding, "size": u.size, "stores": self.stores(u.stores, emit)}
                for u in rules.uniforms
            ],
            "size": [emit(expr) for expr in rules.global_size],
            "extent": [emit(expr) for expr in rules.extent],
            "local": [
                (emit(choice.when) if choice.when else "", choice.rule) for choice in rules.local
            ],
            "fold": "{}, {}".format(*(rules.fold or (0, 0))),
        }

    def shaders(self, rules: FamilyRules, emit: _Emit, inputs: set[str]) -> list[dict[str, str]]:
        """Return the condition under which each variant is taken."""
        result = []
        for key, name in rules.variants:
            parts = []
            for let, value in zip(rules.axes, key, strict=True):
                left = emit(let.expr) if let.name in inputs else let.name
                parts.append(f"{left} == {self.value(let.expr.type, value)}")
            result.append({"condition": " && ".join(parts), "id": c_constant("shader", name)})
        return result

    def stores(self, stores: Sequence[Store], emit: _Emit) -> list[tuple[int, str]]:
        return [(store.offset, self.word(store.scalar, store.expr, emit)) for store in stores]

    def word(self, scalar: str, expr: Expr, emit: _Emit) -> str:
        """Return the four bytes of a value as an unsigned integer."""
        text = emit(expr)
        if expr.type.values:
            return f"(uint32_t)({text})"
        if scalar == "float":
            return f"loom_float32({text})"
        if scalar == "bool":
            return f"{text} ? 1u : 0u"
        return f"loom_{scalar}32(ctx, {text})"


def _slot(slot: str) -> str:
    return c_constant("slot", slot)
