"""Interpreter, emitted Python and compiled C agree with plain Python, errors included."""

from __future__ import annotations

import math
import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from expr_support import DTYPE, SCOPE, Case, Choose, Row, build, checked, parsed, row_of
from shaderloom.expr import (
    BOOL,
    FLOAT,
    INT,
    INT64_MAX,
    INT64_MIN,
    Expr,
    Literal,
    Type,
    Value,
    evaluate,
)
from shaderloom.expr_c import C_HELPERS, to_c
from shaderloom.expr_py import PYTHON_HELPERS, to_python


def outcome(function: Callable[[], Any]) -> str:
    """One word for a result: the bits of a float, or ``error``."""
    try:
        value = function()
    except ArithmeticError:
        return "error"
    match value:
        case bool():
            return str(value).lower()
        case float():
            return "nan" if math.isnan(value) else struct.pack(">d", value).hex()
    return str(value)


def emitted(expr: Expr) -> Callable[[Row], Any]:
    module: dict[str, Any] = {}
    exec(PYTHON_HELPERS, module)
    code = compile(to_python(expr), "emitted", "eval")
    return lambda row: eval(code, module, dict(row))


def pick(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Choose:
    return lambda values: draw(st.sampled_from(list(values)))


@st.composite
def cases(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
    choose = pick(draw)
    return build(choose, choose((INT, FLOAT, BOOL, DTYPE)), choose((1, 2, 3)))


@st.composite
def rows(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Row:
    row = dict(row_of(pick(draw)))
    for name, values in {"a": st.integers(INT64_MIN, INT64_MAX), "f": st.floats()}.items():
        row[name] = draw(st.one_of(st.just(row[name]), values))
    return row


@settings(max_examples=300, deadline=None)
@given(cases(), st.lists(rows(), min_size=1, max_size=4))
def test_interpreter_and_emitted_python_agree_with_the_reference(
    case: Case, values: list[Row]
) -> None:
    expr = parsed(case)
    assume(expr is not None)
    assert expr is not None
    function = emitted(expr)
    for row in values:
        expected = outcome(lambda row=row: case.run(row))  # type: ignore[misc]
        assert outcome(lambda row=row: evaluate(expr, row)) == expected  # type: ignore[misc]
        assert outcome(lambda row=row: function(row)) == expected  # type: ignore[misc]


C_MAIN = r"""
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum dtype { DTYPE_FLOAT, DTYPE_HALF, DTYPE_INT8 };

typedef struct row {
  int64_t a, b, c;
  double f, g;
  bool p, q;
  enum dtype e;
} row;

static const char *const dtype_names[] = {"float", "half", "int8"};

static void print_int(int64_t value) {
  printf("%" PRId64 "\n", value);
}

static void print_bool(bool value) {
  puts(value ? "true" : "false");
}

static void print_enum(enum dtype value) {
  puts(dtype_names[value]);
}

static void print_float(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (isnan(value)) {
    puts("nan");
  } else {
    printf("%016" PRIx64 "\n", bits);
  }
}
"""
C_TYPES = {INT: "int64_t", FLOAT: "double", BOOL: "bool", DTYPE: "enum dtype"}
C_PRINT = {INT: "print_int", FLOAT: "print_float", BOOL: "print_bool", DTYPE: "print_enum"}


def c_enum(enum: Type, value: str) -> str:
    return f"{enum.name}_{value}".upper()


def c_value(type_: Type, value: Value) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    return to_c(Literal(type_, value), str, c_enum)


def c_program(exprs: Sequence[Expr], values: Sequence[Row]) -> str:
    parts = [C_HELPERS, C_MAIN, "static const row rows[] = {"]
    for row in values:
        parts.append(f"  {{{', '.join(c_value(t, row[n]) for n, t in SCOPE.items())}}},")
    parts.append("};\n")
    for i, expr in enumerate(exprs):
        parts += [
            f"static void expr_{i}(const row *p, loom_ctx *ctx) {{",
            f"  {C_TYPES[expr.type]} value = {to_c(expr, lambda n: f'p->{n}', c_enum)};",
            "  (void)p;",
            f'  if (ctx->error) puts("error"); else {C_PRINT[expr.type]}(value);',
            "}\n",
        ]
    parts += ["int main(void) {", "  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {"]
    parts += ["    loom_ctx ctx;"]
    parts += [f"    ctx.error = 0; expr_{i}(&rows[i], &ctx);" for i in range(len(exprs))]
    parts += ["  }", "  return 0;", "}"]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class Program:
    exprs: tuple[Expr, ...]
    values: tuple[Row, ...]
    labels: tuple[str, ...]  # what is computed, line by line of the output
    expected: tuple[str, ...]


def fused(row: Any) -> Any:
    return row["f"] * row["f"] - row["g"]


def repeated(row: Any) -> Any:
    return [checked(row["a"] * count) for count in range(1, 41)][-1]


def chain(row: Any) -> Any:
    return row["a"] if row["a"] in range(1, 41) else 0


def largest(row: Any) -> Any:
    return max(row["a"], row["b"], row["c"])


HAND_MADE = [
    Case("f * f - g", FLOAT, fused),
    Case("0.0 - b", FLOAT, lambda row: 0.0 - float(row["b"])),
    Case("e == 'half' and e == 'int8'", BOOL, lambda row: False),
    Case(" + ".join(["a"] * 40), INT, repeated),
    Case("".join(f"{n} if a == {n} else " for n in range(1, 41)) + "0", INT, chain),
    Case(f"max({', '.join(['a', 'b', 'c'] * 20)})", INT, largest),
]


@pytest.fixture(scope="module")
def program() -> Program:
    rng = random.Random(20240229)
    chosen = [(case, expr) for case in HAND_MADE if (expr := parsed(case)) is not None]
    while len(chosen) < 300:
        case = build(
            rng.choice, rng.choice((INT, INT, FLOAT, BOOL, DTYPE)), rng.choice((1, 2, 3, 4))
        )
        expr = parsed(case)
        if expr is not None:
            chosen.append((case, expr))
    values: list[Row] = [
        # here a fused f * f - g would keep the bit 2**-60, which rounding the product drops
        {**row_of(rng.choice), "b": 0, "f": 1 + 2**-30, "g": 1.0},
        *(row_of(rng.choice) for _ in range(40)),
    ]
    return Program(
        tuple(expr for _, expr in chosen),
        tuple(values),
        tuple(f"{case.text} with {row}" for row in values for case, _ in chosen),
        tuple(outcome(lambda c=c, r=r: c.run(r)) for r in values for c, _ in chosen),  # type: ignore[misc]
    )


def test_the_random_program_has_results_and_errors(program: Program) -> None:
    errors = program.expected.count("error")
    assert 0.05 < errors / len(program.expected) < 0.6


def test_emitted_python_agrees_on_the_expressions_that_are_compiled(program: Program) -> None:
    functions = [emitted(expr) for expr in program.exprs]
    found = [outcome(lambda f=f, r=r: f(r)) for r in program.values for f in functions]  # type: ignore[misc]
    pairs = zip(program.labels, program.expected, found, strict=True)
    assert [pair for pair in pairs if pair[1] != pair[2]] == []


WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


@pytest.mark.parametrize(
    "command",
    [
        "gcc -std=c99 -O2 -march=native -ffp-contract=fast",
        "clang -std=c99 -O1 -fsanitize=undefined -fsanitize-trap=undefined",
        "g++ -std=c++17 -O1 -x c++",
        "clang++ -std=c++17 -O0 -x c++",
    ],
)
def test_compiled_c_agrees_with_the_reference(
    command: str, program: Program, tmp_path: Path
) -> None:
    compiler, *flags = command.split()
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = tmp_path / "program.c"
    source.write_text(c_program(program.exprs, program.values))
    binary = tmp_path / "program"
    built = subprocess.run(
        [compiler, *WARNINGS, *flags, str(source), "-o", str(binary), "-lm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[:4000]
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=True)
    found = ran.stdout.splitlines()
    assert len(found) == len(program.expected)
    wrong = [
        f"{label}: expected {expected}, found {got}"
        for label, expected, got in zip(program.labels, program.expected, found, strict=True)
        if expected != got
    ]
    assert not wrong, "\n".join(wrong[:10])
