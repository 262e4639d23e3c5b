"""``dispatch.py``: the decisions as plain Python functions over two dataclasses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

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
    no_such_value,
)
from shaderloom.emit_c import render
from shaderloom.expr import BOOL, FLOAT, INT, Expr, Literal
from shaderloom.expr_py import PYTHON_HELPERS, to_python
from shaderloom.interface import Plan
from shaderloom.manifest import layout_hash
from shaderloom.names import snake
from shaderloom.render import GENERATED

_TYPES = {INT: "int", BOOL: "bool", FLOAT: "float"}
_CODES = {"int": "i", "uint": "I", "float": "f"}  # of struct.pack


def dispatch_py(plan: Plan, decisions: Decisions) -> bytes:
    """Return the Python dispatcher."""
    view = {
        "generated": GENERATED.format(source=plan.spec_name),
        "layout_hash": layout_hash(plan),
        "helpers": PYTHON_HELPERS,
        "max_repeat": MAX_REPEAT,
        "enums": [
            {"constant": _enum(enum.name), "enumerators": enum.values} for enum in plan.enums
        ],
        "frozen": any(rules.frozen for op in decisions.ops for rules in op.families),
        "device": _fields(decisions.device),
        "sizes": [_size_rule(decisions, rule.name) for rule in decisions.sizes],
        "ops": [_op(decisions, op) for op in decisions.ops],
    }
    return render("dispatch.py.j2", view)


def _enum(name: str) -> str:
    return snake(name).upper()


def problem_class(op: str) -> str:
    """Return the name of an op's problem: nchw_to_texture3d is NchwToTexture3dProblem."""
    return "".join(part.capitalize() for part in op.split("_")) + "Problem"


def _fields(inputs: Sequence[Input]) -> list[str]:
    """Declare dataclass fields; those without default come first, as Python wants them."""
    required = [i for i in inputs if i.default is None]
    optional = [i for i in inputs if i.default is not None]
    declared = [f"{i.name}: {_TYPES.get(i.type, 'str')}" for i in required]
    return declared + [
        f"{i.name}: {_TYPES.get(i.type, 'str')} = {_quoted(i.default)}" for i in optional
    ]


def _quoted(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _names(decisions: Decisions, op: OpRules | None) -> Callable[[str], str]:
    """Spell a problem's field ``p.x``, a device's ``d.x``, a let as itself."""
    problem = {i.name for i in op.inputs} if op else set()
    device = {i.name for i in decisions.device}

    def spell(name: str) -> str:
        if name in problem:
            return f"p.{name}"
        return f"d.{name}" if name in device else name

    return spell


def _size_rule(decisions: Decisions, name: str) -> dict[str, Any]:
    rule, names = decisions.size_rule(name), _names(decisions, None)
    return {
        "name": name,
        "lets": _lets(rule.lets, names),
        "cases": [
            {
                "when": to_python(case.when, names) if case.when else "",
                "size": ", ".join(to_python(expr, names) for expr in case.size),
            }
            for case in rule.cases
        ],
    }


def _lets(lets: Iterable[Let], names: Callable[[str], str]) -> list[str]:
    return [f"{let.name} = {to_python(let.expr, names)}" for let in lets]


def _op(decisions: Decisions, op: OpRules) -> dict[str, Any]:
    names = _names(decisions, op)
    families = {rules.family: _family(op, rules, names) for rules in op.families}
    enums = [("d", i) for i in decisions.device] + [("p", i) for i in op.inputs]
    return {
        "name": op.name,
        "problem": problem_class(op.name),
        "route_names": ", ".join((AUTO, *(route.name for route in op.routes))),
        "fields": _fields(op.inputs),
        "conflict": _quoted(conflict(op.name)),
        "no_route": _quoted(no_route(op.name)),
        "checks": [
            {
                "condition": f"{owner}.{i.name} not in {_choices(i)}",
                "error": _quoted(no_such_value(op.name, i.name)),
            }
            for owner, i in enums
            if i.type.values
        ],
        "requires": [_requirement(item, names) for item in op.requires],
        "lets": _lets(op.lets, names),
        "ensures": [_requirement(item, names) for item in op.ensures],
        "routes": [
            {
                "name": route.name,
                "legal": to_python(route.legal, names),
                "wanted": _wanted(route, names),
                "impossible": _quoted(impossible(op.name, route)),
                "records": _records(op, route, families, names),
            }
            for route in op.routes
        ],
        "families": list(families.values()),
    }


def _records(
    op: OpRules, route: Route, families: dict[str, Any], names: Callable[[str], str]
) -> str:
    """Return the tuple of a route's dispatches; a route that runs once needs no loop."""
    calls = _tuple([f"_{name}({families[name]['arguments']})" for name in route.families])
    if isinstance(route.repeat, Literal) and route.repeat.value == 1:
        return calls.replace(REPETITION, "0")
    count = f"_repeat({_quoted(op.name)}, {to_python(route.repeat, names)})"
    return f"tuple(record for {REPETITION} in {count} for record in {calls})"


def _wanted(route: Route, names: Callable[[str], str]) -> str:
    """A route that is asked for is taken wherever it is legal."""
    when = to_python(route.when, names)
    return when if when == "True" else f'p.route == "{route.name}" or {when}'


def _choices(item: Input) -> str:
    return "(" + ", ".join(_quoted(value) for value in item.type.values) + ",)"


def _requirement(item: Requirement, names: Callable[[str], str]) -> dict[str, str]:
    text = item.error
    for name in sorted(item.shown):
        text = text.replace(f"{{{name}}}", f"{{{names(name)}}}")
    return {
        "that": to_python(item.that, names),
        "error": f"{'f' * bool(item.shown)}{_quoted(text)}",
    }


def _family(op: OpRules, rules: FamilyRules, names: Callable[[str], str]) -> dict[str, Any]:
    shared = [let.name for let in op.lets if let.name in rules.names]
    shared += [REPETITION] if REPETITION in rules.names else []
    arguments = ["p", "d", *shared]
    parameters = [f"p: {problem_class(op.name)}", "d: Device"]
    types = {let.name: _TYPES.get(let.expr.type, "str") for let in op.lets}
    types[REPETITION] = "int"
    parameters += [f"{name}: {types[name]}" for name in shared]
    keys = [names(let.name) for let in rules.axes]
    shaders = [(_tuple([_quoted(value) for value in key]), name) for key, name in rules.variants]
    return {
        "name": rules.family,
        "arguments": ", ".join(arguments),
        "parameters": ", ".join(parameters),
        # An axis that is a field of the problem is no let of its own.
        "axes": [text for text in _lets(rules.axes, names) if not _is_identity(text)],
        "shaders": shaders if rules.axes else [],
        "shader": rules.variants[0][1],
        "key": _tuple(keys),
        "lets": _lets(rules.lets, names),
        "constants": [
            (rule.id, _constant(rule.scalar, rule.expr, names)) for rule in rules.constants
        ],
        "frozen": [
            {
                "prefer": to_python(rule.prefer, names),
                "baked": _tuple([f"({id_}, {bits})" for id_, bits in rule.values]),
                "variants": rule.variants,
            }
            for rule in rules.frozen
        ],
        "operands": [
            (rule.binding, _slot(rule.slot, rule.absent, rule.present, names))
            for rule in rules.operands
        ],
        "push_constants": _pack(rules.push_size, rules.push_constants, names),
        "uniforms": [
            {"binding": rule.binding, "contents": _pack(rule.size, rule.stores, names)}
            for rule in rules.uniforms
        ],
        "size": [to_python(expr, names) for expr in rules.global_size],
        "extent": [to_python(expr, names) for expr in rules.extent],
        "local": [
            (to_python(choice.when, names) if choice.when else "", choice.rule)
            for choice in rules.local
        ],
        "fold": rules.fold,
    }


def _is_identity(assignment: str) -> bool:
    name, _, value = assignment.partition(" = ")
    return value in (f"p.{name}", f"d.{name}", name)


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def _slot(slot: str, absent: str, present: Expr | None, names: Callable[[str], str]) -> str:
    if present is None:
        return _quoted(slot)
    return f"{_quoted(slot)} if {to_python(present, names)} else {_quoted(absent)}"


def _scalar(scalar: str, expr: Expr, names: Callable[[str], str]) -> str:
    text = to_python(expr, names)
    if expr.type.values:
        return f"{_enum(expr.type.name)}[{text}]"
    check = {"int": "_int32", "uint": "_uint32", "float": "_float32", "bool": "int"}[scalar]
    return f"{check}({text})"


def _constant(scalar: str, expr: Expr, names: Callable[[str], str]) -> str:
    """The four bytes as an unsigned integer: a negative int becomes its two's complement."""
    if scalar == "float":
        return f"_float_bits({to_python(expr, names)})"
    text = _scalar(scalar, expr, names)
    return f"{text} % 2**32" if scalar == "int" else text


def _pack(size: int, stores: Sequence[Store], names: Callable[[str], str]) -> list[str]:
    """Return the arguments of struct.pack: format, then a value for each store."""
    if not size:
        return []
    code, end = "<", 0
    for store in stores:
        hole = store.offset - end
        code += f"{hole}x" * bool(hole) + _CODES[store.scalar]
        end = store.offset + 4
    code += f"{size - end}x" * (size > end)
    values = [_scalar(store.scalar, store.expr, names) for store in stores]
    return [_quoted(code), *values]
