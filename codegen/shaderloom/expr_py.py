"""From a typed expression to Python source; the text needs ``PYTHON_HELPERS`` once in its module.

    to_python(expr)  # "_int64(_ceil_div(out_w, 4) * out_h)"

Python's integers are unbounded, so each operation that can leave 64 bits is checked where it
happens: C fails there too. Every failure is an ArithmeticError (OverflowError or
ZeroDivisionError), at the values for which C sets its error flag. Operands are evaluated as in
``expr.evaluate``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from shaderloom.expr import INT, Apply, Conditional, Expr, Literal, Logical, Name

PYTHON_HELPERS = '''\
def _int64(value: int) -> int:
    """Return ``value``; OverflowError when it does not fit 64 bits, as in the C dispatcher."""
    if -(2**63) <= value < 2**63:
        return value
    raise OverflowError(f"{value} does not fit 64 bits")


def _ceil_div(a: int, b: int) -> int:
    """Return ``a / b`` rounded up."""
    return _int64(-(-a // b))


def _align_up(a: int, n: int) -> int:
    """Return the least multiple of ``n`` that is not less than ``a``."""
    if n <= 0:
        raise ZeroDivisionError(f"cannot align {a} to {n}")
    return _int64(-(-a // n) * n)
'''


class Binds(IntEnum):
    """How tightly an operator binds its operands; emitted C is written by the same order."""

    CONDITIONAL = 0
    OR = 1
    AND = 2
    NOT = 3
    COMPARE = 4
    ADD = 5
    MULTIPLY = 6
    UNARY = 7
    ATOM = 8


OPERATORS = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), Binds.COMPARE),
    **dict.fromkeys(("+", "-"), Binds.ADD),
    **dict.fromkeys(("*", "//", "%"), Binds.MULTIPLY),
}


def to_python(expr: Expr, name: Callable[[str], str] = str) -> str:
    """Return ``expr`` as a Python expression.

    ``name`` gives the Python spelling of a name of the scope, an atom such as ``problem.stride_h``;
    by default a name is a local variable of its own name. Values must have the types of the
    scope: a float name that holds an int would be added without rounding.
    """
    return _emit(expr, name)[0]


def _emit(expr: Expr, name: Callable[[str], str]) -> tuple[str, Binds]:
    def operand(inner: Expr, least: int) -> str:
        text, binds = _emit(inner, name)
        return text if binds >= least else f"({text})"

    match expr:
        case Literal(value=value):
            return repr(value), Binds.UNARY if repr(value).startswith("-") else Binds.ATOM
        case Name(name=own):
            return name(own), Binds.ATOM
        case Logical(op=op, args=args):
            binds = Binds.OR if op == "or" else Binds.AND
            return f" {op} ".join(operand(arg, binds + 1) for arg in args), binds
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            chosen = f"{operand(then, Binds.OR)} if {operand(condition, Binds.OR)}"
            return f"{chosen} else {operand(otherwise, Binds.CONDITIONAL)}", Binds.CONDITIONAL
        case Apply(op=op, args=args):
            return _apply(op, args, expr.type == INT, operand)
    raise TypeError(f"not an expression: {expr!r}")


def _apply(
    op: str, args: tuple[Expr, ...], integer: bool, operand: Callable[[Expr, int], str]
) -> tuple[str, Binds]:
    if op == "not":
        text, binds = f"not {operand(args[0], Binds.NOT)}", Binds.NOT
    elif op == "neg":
        text, binds = f"-{operand(args[0], Binds.ATOM)}", Binds.UNARY
    elif op in OPERATORS:
        binds = OPERATORS[op]
        left = binds if binds != Binds.COMPARE else binds + 1  # a == b == c would be a chain
        text = f"{operand(args[0], left)} {op} {operand(args[1], binds + 1)}"
    else:
        called = f"_{op}" if op in ("ceil_div", "align_up") else op
        text = f"{called}({', '.join(operand(arg, Binds.CONDITIONAL) for arg in args)})"
        binds = Binds.ATOM
    if integer and op in ("+", "-", "*", "//", "neg", "abs"):
        return f"_int64({text})", Binds.ATOM
    return text, binds
