"""Random well-typed expressions, each with a closure that computes its value in another way.

The closures are the reference of ``test_expr_emit.py``: they share no code with the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaderloom.errors import Position, SpecError
from shaderloom.expr import BOOL, FLOAT, INT, INT64_MAX, INT64_MIN, Expr, Type, Value
from shaderloom.expr_parse import parse

Row = Mapping[str, Value]

DTYPE = Type("Dtype", ("float", "half", "int8"))
SCOPE = {"a": INT, "b": INT, "c": INT, "f": FLOAT, "g": FLOAT, "p": BOOL, "q": BOOL, "e": DTYPE}
INTS = (
    *(0, 1, -1, 2, -2, 3, 7, -7, 64, 2**31 - 1, -(2**31), 2**31, 2**32, 2**53 + 1),
    *(INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1),
)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.5, 0.1, 1 + 2**-30, 1e-320, 2.0**53, 2.0**63, 1e308, -1e308),
    *(math.inf, -math.inf, math.nan),
)
CHOICES: dict[Type, tuple[Value, ...]] = {
    INT: INTS,
    FLOAT: FLOATS,
    BOOL: (False, True),
    DTYPE: DTYPE.values,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


@dataclass(frozen=True)
class Case:
    text: str
    type: Type
    run: Callable[[Row], Any]


def checked(value: int) -> int:
    if value.bit_length() > 63 and value != -(1 << 63):
        raise ArithmeticError
    return value


def ceil_div(a: int, b: int) -> int:
    quotient, rest = divmod(a, b)
    return checked(quotient + (rest != 0))


def align_up(a: int, n: int) -> int:
    if n <= 0:
        raise ArithmeticError
    return checked(a + -a % n)


def least(x: Any, y: Any) -> Any:
    return y if y < x else x


def greatest(x: Any, y: Any) -> Any:
    return y if y > x else x


INT_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "({} + {})": lambda x, y: checked(x + y),
    "({} - {})": lambda x, y: checked(x - y),
    "({} * {})": lambda x, y: checked(x * y),
    "({} // {})": lambda x, y: checked(divmod(x, y)[0]),
    "({} % {})": lambda x, y: divmod(x, y)[1],
    "ceil_div({}, {})": ceil_div,
    "align_up({}, {})": align_up,
    "min({}, {})": least,
    "max({}, {})": greatest,
}
FLOAT_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "({} + {})": lambda x, y: x + y,
    "({} - {})": lambda x, y: x - y,
    "({} * {})": lambda x, y: x * y,
    "min({}, {})": least,
    "max({}, {})": greatest,
}

Choose = Callable[[Sequence[Any]], Any]


def leaf(choose: Choose, type_: Type) -> Case:
    values = [v for v in CHOICES[type_] if type_ != FLOAT or math.isfinite(float(v))]
    if choose((True, True, False)):
        name = choose([n for n, t in SCOPE.items() if t == type_])
        return Case(name, type_, lambda row: row[name])
    value = choose(values)
    return Case(repr(value), type_, lambda row: value)


def build(choose: Choose, type_: Type, depth: int) -> Case:
    """Choose a random expression of a type; ``choose`` picks one of a sequence."""
    if depth == 0:
        return leaf(choose, type_)
    if choose((False, False, False, True)):
        return conditional(choose, type_, depth - 1)
    makers = {INT: arithmetic, FLOAT: float_arithmetic, BOOL: condition}
    return makers[type_](choose, depth - 1) if type_ in makers else leaf(choose, type_)


def conditional(choose: Choose, type_: Type, depth: int) -> Case:
    test, then = build(choose, BOOL, depth), build(choose, type_, depth)
    otherwise = build(choose, choose((FLOAT, INT)) if type_ == FLOAT else type_, depth)

    def run(row: Row) -> Any:
        value = then.run(row) if test.run(row) else otherwise.run(row)
        return float(value) if type_ == FLOAT else value

    return Case(f"({then.text} if {test.text} else {otherwise.text})", type_, run)


def arithmetic(choose: Choose, depth: int) -> Case:
    x, y = (build(choose, INT, depth) for _ in range(2))
    form = choose([*INT_OPERATIONS, "-({})", "abs({})"])
    if form == "-({})":
        return Case(form.format(x.text), INT, lambda row: checked(-x.run(row)))
    if form == "abs({})":
        return Case(form.format(x.text), INT, lambda row: checked(int(abs(x.run(row)))))
    operation = INT_OPERATIONS[form]
    return Case(form.format(x.text, y.text), INT, lambda row: operation(x.run(row), y.run(row)))


def float_arithmetic(choose: Choose, depth: int) -> Case:
    x, y = build(choose, FLOAT, depth), build(choose, choose((FLOAT, INT)), depth)
    form = choose([*FLOAT_OPERATIONS, "-({})", "abs({})"])
    if form == "-({})":
        return Case(form.format(x.text), FLOAT, lambda row: -x.run(row))
    if form == "abs({})":
        return Case(form.format(x.text), FLOAT, lambda row: math.fabs(x.run(row)))
    if choose((False, True)):
        x, y = y, x
    operation = FLOAT_OPERATIONS[form]
    return Case(
        form.format(x.text, y.text),
        FLOAT,
        lambda row: operation(float(x.run(row)), float(y.run(row))),
    )


def condition(choose: Choose, depth: int) -> Case:
    form = choose(("not", "and", "or", "chain", "compare", "compare", "equal", "in"))
    if form == "not":
        x = build(choose, BOOL, depth)
        case = Case(f"(not {x.text})", BOOL, lambda row: not x.run(row))
    elif form in ("and", "or"):
        parts = [build(choose, BOOL, depth) for _ in range(choose((2, 3)))]
        text = f"({f' {form} '.join(part.text for part in parts)})"
        joined = all if form == "and" else any
        case = Case(text, BOOL, lambda row: joined(part.run(row) for part in parts))
    elif form == "equal":
        type_, name = choose(((BOOL, "p"), (BOOL, "q"), (DTYPE, "e")))
        y, op = build(choose, type_, depth), choose(("==", "!="))
        text = choose((f"({name} {op} {y.text})", f"({y.text} {op} {name})"))
        case = Case(text, BOOL, lambda row: COMPARE[op](row[name], y.run(row)))
    elif form == "in":
        chosen = [choose(DTYPE.values) for _ in range(choose((1, 2)))]
        negated = choose((False, True))
        text = f"(e {'not ' * negated}in {tuple(chosen)})"
        case = Case(text, BOOL, lambda row: (row["e"] in chosen) != negated)
    else:
        case = comparison(choose, depth, 3 if form == "chain" else 2)
    return case


def comparison(choose: Choose, depth: int, count: int) -> Case:
    parts = [build(choose, choose((INT, FLOAT)), depth) for _ in range(count)]
    ops = [choose(list(COMPARE)) for _ in range(count - 1)]
    text = "".join(f"{part.text} {op} " for part, op in zip(parts, ops, strict=False))

    def run(row: Row) -> bool:
        for left, op, right in zip(parts, ops, parts[1:], strict=False):
            x, y = left.run(row), right.run(row)
            if left.type != right.type:
                x, y = float(x), float(y)
            if not COMPARE[op](x, y):
                return False
        return True

    return Case(f"({text}{parts[-1].text})", BOOL, run)


def parsed(case: Case) -> Expr | None:
    """Return the expression, None where the builder wrote ``a == a``, which is refused."""
    try:
        return parse(case.text, SCOPE, case.type, Position("test"))
    except SpecError as error:
        assert all(d.message.startswith("both sides of") for d in error.diagnostics)
        return None


def row_of(choose: Choose) -> Row:
    return {name: choose(CHOICES[type_]) for name, type_ in SCOPE.items()}
