"""The expression language of routes, sizes and constants: types, tree and interpreter.

    expr = parse("ceil_div(out_w, 4) if dtype == 'half' else out_w", scope, INT, position)
    evaluate(expr, {"out_w": 7, "dtype": "half"})  # 2

Integers are 64-bit signed, ``//`` and ``%`` floor, every overflow and every division by zero
is an error; floats are binary64. ``and``, ``or`` and ``if else`` evaluate only what they need.
``expr_parse.parse`` makes the tree; ``expr_py.to_python`` and ``expr_c.to_c`` emit code that gives
the same results and fails for the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

FUNCTIONS: Mapping[str, tuple[int, int | None]] = {  # least and greatest number of arguments
    "abs": (1, 1),
    "align_up": (2, 2),
    "ceil_div": (2, 2),
    "max": (2, None),
    "min": (2, None),
}
RESERVED = frozenset(FUNCTIONS) | {"float"}  # emitted Python calls these: no field may hide them

Value = int | bool | float | str


@dataclass(frozen=True)
class Type:
    """``INT``, ``BOOL``, ``FLOAT``, or an enum: its name and the strings it permits."""

    name: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


INT, BOOL, FLOAT = Type("int"), Type("bool"), Type("float")
Scope = Mapping[str, Type]


@dataclass(frozen=True)
class Expr:
    """A well-typed expression; conversions from int to float are explicit in the tree."""

    type: Type

    @property
    def operands(self) -> tuple[Expr, ...]:
        return ()

    @property
    def names(self) -> frozenset[str]:
        """The names whose values ``evaluate`` may ask for."""
        return frozenset().union(*(operand.names for operand in self.operands))


@dataclass(frozen=True)
class Literal(Expr):
    """A number, or true or false."""

    value: Value


@dataclass(frozen=True)
class Name(Expr):
    """A name of the scope, e.g. a field of the problem."""

    name: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True)
class Apply(Expr):
    """An operation on operands of one type, all of them evaluated.

    ``op`` is ``+ - * // % < <= > >= == != not``, a name of ``FUNCTIONS``, ``neg`` (unary minus)
    or ``float`` (int to float).
    """

    op: str
    args: tuple[Expr, ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True)
class Logical(Expr):
    """``and`` or ``or`` of two or more conditions, from the left, as far as needed."""

    op: str
    args: tuple[Expr, ...]

    @property
    def operands(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True)
class Conditional(Expr):
    """``then if condition else otherwise``; only the chosen arm is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def operands(self) -> tuple[Expr, ...]:
        return (self.condition, self.then, self.otherwise)


class EvalError(ArithmeticError):
    """An operation without a result, e.g. ``5 // 0``; ``op`` is as in ``Apply``."""

    def __init__(self, op: str, message: str) -> None:
        self.op = op
        super().__init__(message)


def evaluate(expr: Expr, values: Mapping[str, Value]) -> Value:
    """Return the value of ``expr``; ``values`` must fit the scope it was parsed with.

    Raises EvalError for overflow, division by zero and a non-positive alignment.
    """
    match expr:
        case Literal(value=value):
            return value
        case Name(name=name):
            return values[name]
        case Logical(op=op, args=args):
            conditions = (bool(evaluate(arg, values)) for arg in args)
            return all(conditions) if op == "and" else any(conditions)
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            return evaluate(then if evaluate(condition, values) else otherwise, values)
        case Apply(op=op, args=args):
            return _apply(op, [evaluate(arg, values) for arg in args], expr.type)
    raise TypeError(f"not an expression: {expr!r}")


# Python's own min and max, so that emitted Python may call them: the first of equals wins, and
# a comparison with NaN counts as false. min(nan, 1.0) is nan, min(1.0, nan) is 1.0.
_OPERATIONS: Mapping[str, Callable[..., Value]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "not": lambda a: not a,
    "neg": lambda a: -a,
    "float": float,
    "abs": abs,
    "min": min,
    "max": max,
    "ceil_div": lambda a, b: -(-a // b),
    "align_up": lambda a, n: -(-a // n) * n,
}


def _apply(op: str, args: Sequence[Value], result: Type) -> Value:
    if op in ("//", "%", "ceil_div") and args[1] == 0:
        raise EvalError(op, f"{_shown(op, args)} divides by zero")
    if op == "align_up" and int(args[1]) <= 0:
        raise EvalError(op, f"{_shown(op, args)} needs a positive alignment")
    value = _OPERATIONS[op](*args)
    if result == INT and not INT64_MIN <= int(value) <= INT64_MAX:
        raise EvalError(op, f"{_shown(op, args)} does not fit 64 bits")
    return value


def _shown(op: str, args: Sequence[Value]) -> str:
    if op == "neg":
        return f"-({args[0]})"
    if op in FUNCTIONS:
        return f"{op}({', '.join(map(str, args))})"
    return f" {op} ".join(map(str, args))
