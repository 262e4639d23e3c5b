"""From a typed expression to C99 that is also C++17; the text needs ``C_HELPERS`` once in its file.

    to_c(expr, name, enum)  # "loom_mul(ctx, loom_ceil_div(ctx, p->out_w, 4), p->out_h)"

An operation without a result sets ``ctx->error`` and returns 0. There is one kind of error:
C evaluates the arguments of a call in any order, so which operation failed first is not defined,
but whether one failed is, and it is exactly when ``expr.evaluate`` raises EvalError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from shaderloom.expr import FLOAT, INT64_MIN, Apply, Conditional, Expr, Literal, Logical, Name, Type
from shaderloom.expr_py import OPERATORS, Binds

C_HELPERS = """\
#include <stdbool.h>
#include <stdint.h>

#if defined(__clang__) /* a rule may test what other rules have settled */
#pragma clang diagnostic ignored "-Wtautological-compare"
#endif
#if defined(__GNUC__)
#define LOOM_HELPER static __attribute__((unused))
#else
#define LOOM_HELPER static
#endif

typedef struct loom_ctx {
  int error; /* 1 after an overflow, a division by zero or a bad alignment */
} loom_ctx;

LOOM_HELPER int64_t loom_fail(loom_ctx *ctx) {
  ctx->error = 1;
  return 0;
}

LOOM_HELPER int64_t loom_add(loom_ctx *ctx, int64_t a, int64_t b) {
  return (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) ? loom_fail(ctx) : a + b;
}

LOOM_HELPER int64_t loom_sub(loom_ctx *ctx, int64_t a, int64_t b) {
  return (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) ? loom_fail(ctx) : a - b;
}

LOOM_HELPER int64_t loom_mul(loom_ctx *ctx, int64_t a, int64_t b) {
  bool overflow;
  if (a > 0) {
    overflow = b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a;
  } else {
    overflow = b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a;
  }
  return overflow ? loom_fail(ctx) : a * b;
}

LOOM_HELPER int64_t loom_neg(loom_ctx *ctx, int64_t a) {
  return a == INT64_MIN ? loom_fail(ctx) : -a;
}

LOOM_HELPER int64_t loom_abs(loom_ctx *ctx, int64_t a) {
  return a < 0 ? loom_neg(ctx, a) : a;
}

LOOM_HELPER int64_t loom_floor_div(loom_ctx *ctx, int64_t a, int64_t b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    return loom_fail(ctx);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

LOOM_HELPER int64_t loom_mod(loom_ctx *ctx, int64_t a, int64_t b) {
  if (b == 0) {
    return loom_fail(ctx);
  }
  if (b == -1) {
    return 0; /* INT64_MIN % -1 is undefined in C */
  }
  return a % b != 0 && (a < 0) != (b < 0) ? a % b + b : a % b;
}

LOOM_HELPER int64_t loom_ceil_div(loom_ctx *ctx, int64_t a, int64_t b) {
  if (b == 0 || (a == INT64_MIN && b == -1)) {
    return loom_fail(ctx);
  }
  return a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
}

LOOM_HELPER int64_t loom_align_up(loom_ctx *ctx, int64_t a, int64_t n) {
  return n <= 0 ? loom_fail(ctx) : loom_mul(ctx, loom_ceil_div(ctx, a, n), n);
}

LOOM_HELPER int64_t loom_min(int64_t a, int64_t b) {
  return b < a ? b : a;
}

LOOM_HELPER int64_t loom_max(int64_t a, int64_t b) {
  return b > a ? b : a;
}

/* Rounds to binary64 at once: a compiler may otherwise fuse a product and a sum. */
LOOM_HELPER double loom_f64(double a) {
  volatile double rounded = a;
  return rounded;
}

/* A plain cast is not enough: gcc 12 takes 0.0 - (double)i for -(double)i, which is -0.0 at 0. */
LOOM_HELPER double loom_float(int64_t a) {
  return loom_f64((double)a);
}

LOOM_HELPER double loom_fabs(double a) {
  return a < 0.0 ? -a : a + 0.0; /* -0.0 + 0.0 is 0.0 */
}

LOOM_HELPER double loom_fmin(double a, double b) {
  return b < a ? b : a;
}

LOOM_HELPER double loom_fmax(double a, double b) {
  return b > a ? b : a;
}
"""

_INTEGER_CALLS = {
    "+": "loom_add",
    "-": "loom_sub",
    "*": "loom_mul",
    "//": "loom_floor_div",
    "%": "loom_mod",
    "neg": "loom_neg",
    "abs": "loom_abs",
    "ceil_div": "loom_ceil_div",
    "align_up": "loom_align_up",
}


def to_c(
    expr: Expr,
    name: Callable[[str], str],
    enum: Callable[[Type, str], str],
    ctx: str = "ctx",
) -> str:
    """Return ``expr`` as a C expression: int64_t (or int), double, bool (or int), or an enum.

    ``name`` gives the C spelling of a name of the scope, a postfix expression such as
    ``p->stride_h`` whose C type is a signed integer of at most 64 bits, ``double``, ``bool``, or
    the C enum; ``enum`` gives the constant of an enum's value. ``ctx`` is a ``loom_ctx *``. The
    caller clears ``ctx->error`` before and looks at it after: a result is valid when it is 0.
    """
    return _emit(expr, name, enum, ctx)[0]


def _emit(
    expr: Expr, name: Callable[[str], str], enum: Callable[[Type, str], str], ctx: str
) -> tuple[str, Binds]:
    def operand(inner: Expr, least: int) -> str:
        text, binds = _emit(inner, name, enum, ctx)
        return text if binds >= least else f"({text})"

    match expr:
        case Literal(type=type_, value=str() as value):
            return enum(type_, value), Binds.ATOM
        case Literal(value=value):
            text = _number(value)
            return text, Binds.UNARY if text.startswith("-") else Binds.ATOM
        case Name(name=own):
            return name(own), Binds.ATOM
        case Logical(op=op, args=args):
            # && inside || gets parentheses, which -Wparentheses asks for
            sign, binds = ("||", Binds.OR) if op == "or" else ("&&", Binds.AND)
            return f" {sign} ".join(operand(arg, Binds.NOT) for arg in args), binds
        case Conditional(condition=condition, then=then, otherwise=otherwise):
            test, chosen = operand(condition, Binds.OR), operand(then, Binds.OR)
            text = f"{test} ? {chosen} : {operand(otherwise, Binds.CONDITIONAL)}"
            return text, Binds.CONDITIONAL
        case Apply(op=op, args=args):
            return _apply(op, args, operand, ctx)
    raise TypeError(f"not an expression: {expr!r}")


def _apply(
    op: str, args: tuple[Expr, ...], operand: Callable[[Expr, int], str], ctx: str
) -> tuple[str, Binds]:
    is_float = args[0].type == FLOAT
    plain = [operand(arg, Binds.CONDITIONAL) for arg in args]
    binds = OPERATORS.get(op, Binds.ATOM)
    if op == "not":
        text, binds = (
            f"!{operand(args[0], Binds.ATOM)}",
            Binds.NOT,
        )  # -Wparentheses asks for (!a) == b
    elif op == "float":
        text = f"loom_float({plain[0]})"
    elif binds == Binds.COMPARE:
        text = f"{operand(args[0], Binds.ADD)} {op} {operand(args[1], Binds.ADD)}"
    elif op in ("min", "max"):
        called = f"loom_{'f' * is_float}{op}"
        text = reduce(lambda left, right: f"{called}({left}, {right})", plain)
    elif not is_float:
        text, binds = f"{_INTEGER_CALLS[op]}({', '.join([ctx, *plain])})", Binds.ATOM
    elif op == "abs":
        text = f"loom_fabs({plain[0]})"
    elif op == "neg":
        text, binds = f"-{operand(args[0], Binds.ATOM)}", Binds.UNARY
    else:
        sides = f"{operand(args[0], binds)} {op} {operand(args[1], binds + 1)}"
        text, binds = f"loom_f64({sides})", Binds.ATOM
    return text, binds


def _number(value: int | bool | float | str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value == INT64_MIN and isinstance(value, int):
        return "INT64_MIN"  # -9223372036854775808 would negate a number that is too large
    if isinstance(value, int) and abs(value) >= 2**31:
        return f"-INT64_C({-value})" if value < 0 else f"INT64_C({value})"
    return repr(value)
