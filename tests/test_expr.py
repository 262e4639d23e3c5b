"""The expression language: what its text means, and what is said about text that means nothing."""

from __future__ import annotations

import math

import pytest

from shaderloom.errors import Position, SpecError
from shaderloom.expr import (
    BOOL,
    FLOAT,
    INT,
    INT64_MIN,
    EvalError,
    Literal,
    Type,
    Value,
    evaluate,
)
from shaderloom.expr_parse import MAX_DEPTH, parse

DTYPE = Type("Dtype", ("float", "half"))
SCOPE = {
    "stride_h": INT,
    "groups": INT,
    "alpha": FLOAT,
    "transposed": BOOL,
    "dtype": DTYPE,
    "device": Type("DeviceClass", ("mali", "adreno")),
    "min": INT,
}
VALUES: dict[str, Value] = {
    "stride_h": 2,
    "groups": 1,
    "alpha": 0.5,
    "transposed": False,
    "dtype": "half",
    "device": "mali",
}
AT = Position("variants.yaml", 7, 11)


def value(text: str, expected: Type | None = None) -> Value:
    return evaluate(parse(text, SCOPE, expected, AT), VALUES)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("stride_h == 1 and groups == 1", False),
        ("transposed or groups == 1", True),
        ("not transposed", True),
        ("1 <= stride_h < 5", True),
        ("1 <= stride_h < 2", False),
        ("-7 // 2", -4),
        ("-7 % 2", 1),
        ("7 % -2", -1),
        ("7 // -2", -4),
        ("ceil_div(7, 2)", 4),
        ("ceil_div(-7, 2)", -3),
        ("ceil_div(7, -2)", -3),
        ("ceil_div(-9223372036854775808, 1)", INT64_MIN),
        ("align_up(7, 4)", 8),
        ("align_up(-7, 4)", -4),
        ("align_up(8, 4)", 8),
        ("-9223372036854775808 % -1", 0),
        ("min(3, stride_h, 9)", 2),
        ("max(3, stride_h, 9)", 9),
        ("abs(-3)", 3),
        ("abs(-0.5)", 0.5),
        ("2 - 3 - 4", -5),
        ("4 * alpha", 2.0),
        ("min(1, alpha)", 0.5),
        ("1 if dtype == 'half' else 2", 1),
        ("1 if transposed else 2 if groups == 2 else 3", 3),
        ("'float' if transposed else dtype", "half"),
        ("dtype != 'float'", True),
        ("dtype in ('float', 'half')", True),
        ("dtype not in ('float',)", True),
        ("stride_h in [3, 5]", False),
        ("('half' if transposed else 'float') == dtype", False),
        ("(stride_h < 3) == (groups < 3)", True),
        ("transposed == True", False),
        ("9007199254740993 < 9007199254740992.0", False),  # the int rounds to even first
        ("1e300 * 1e300 > 1e308", True),
        ("  groups + 1  ", 2),
        ("0x10 + 1_000", 1016),
    ],
)
def test_value(text: str, result: Value) -> None:
    found = value(text)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("text", "op", "message"),
    [
        ("9223372036854775807 + groups", "+", "9223372036854775807 + 1 does not fit 64 bits"),
        ("-9223372036854775808 - groups", "-", "-9223372036854775808 - 1 does not fit 64 bits"),
        ("4294967296 * 4294967296 * 0", "*", "4294967296 * 4294967296 does not fit 64 bits"),
        ("-(-9223372036854775808)", "neg", "-(-9223372036854775808) does not fit 64 bits"),
        ("abs(-9223372036854775808)", "abs", "abs(-9223372036854775808) does not fit 64 bits"),
        (
            "-9223372036854775808 // -1",
            "//",
            "-9223372036854775808 // -1 does not fit 64 bits",
        ),
        ("5 // (groups - 1)", "//", "5 // 0 divides by zero"),
        ("5 % (groups - 1)", "%", "5 % 0 divides by zero"),
        ("ceil_div(5, 0)", "ceil_div", "ceil_div(5, 0) divides by zero"),
        ("align_up(5, 0)", "align_up", "align_up(5, 0) needs a positive alignment"),
        ("align_up(5, -4)", "align_up", "align_up(5, -4) needs a positive alignment"),
        (
            "align_up(9223372036854775807, 2)",
            "align_up",
            "align_up(9223372036854775807, 2) does not fit 64 bits",
        ),
    ],
)
def test_operation_without_result(text: str, op: str, message: str) -> None:
    with pytest.raises(EvalError) as caught:
        value(text)
    assert caught.value.op == op
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "transposed and 1 // 0 == 1",
        "groups == 1 or 1 // 0 == 1",
        "1 if groups == 1 else 1 // 0",
        "1 // 0 if transposed else 1",
        "5 < stride_h < 1 // 0",
        "stride_h in (2, 1 // 0)",
    ],
)
def test_what_is_not_needed_is_not_evaluated(text: str) -> None:
    value(text)


def test_float_minimum_and_maximum_keep_the_first_of_equals_and_a_leading_nan() -> None:
    scope = {"x": FLOAT, "y": FLOAT}
    least, greatest = (parse(f"{f}(x, y)", scope, None, AT) for f in ("min", "max"))
    for expr in (least, greatest):
        assert math.copysign(1, float(evaluate(expr, {"x": 0.0, "y": -0.0}))) == 1
        assert math.copysign(1, float(evaluate(expr, {"x": -0.0, "y": 0.0}))) == -1
        assert math.isnan(float(evaluate(expr, {"x": math.nan, "y": 1.0})))
        assert evaluate(expr, {"x": 1.0, "y": math.nan}) == 1.0


def test_an_int_becomes_a_float_where_one_is_expected() -> None:
    found = value("groups + 1", FLOAT)
    assert isinstance(found, float)
    assert found == 2.0
    assert parse("3", SCOPE, FLOAT, AT) == Literal(FLOAT, 3.0)


def test_a_string_takes_the_expected_enum() -> None:
    assert parse("'half'", SCOPE, DTYPE, AT) == Literal(DTYPE, "half")


def test_names_are_those_that_occur() -> None:
    expr = parse(
        "max(stride_h, 2) if dtype == 'half' and 0 < groups else -stride_h", SCOPE, INT, AT
    )
    assert expr.names == {"stride_h", "dtype", "groups"}
    assert parse("1 + 2", SCOPE, INT, AT).names == set()


def test_nesting_has_a_limit_and_what_is_within_it_works_everywhere() -> None:
    assert value(" + ".join(["1"] * 40)) == 40
    with pytest.raises(SpecError, match=f"nested more than {MAX_DEPTH} levels deep"):
        value(" + ".join(["1"] * 60))
    for hopeless in ("(" * 5000 + "1" + ")" * 5000, "-" * 100_000 + "1"):
        with pytest.raises(SpecError):
            value(hopeless)


# Each golden message: text, expected type, then for each mistake the column (1 is the first
# character of the text), the message, and the line of carets below the text.
GOLDEN: list[tuple[str, Type | None, list[tuple[int, str, str]]]] = [
    (
        "strid_h == 1",
        BOOL,
        [(1, "unknown name 'strid_h'; did you mean 'stride_h'?", "^~~~~~~")],
    ),
    ("  1 == zz", BOOL, [(8, "unknown name 'zz'", "       ^~")]),
    ("not true", BOOL, [(5, "unknown name 'true'; did you mean 'True'?", "    ^~~~")]),
    (
        "dtype == half",
        BOOL,
        [(10, "unknown name 'half'; write the string 'half' in quotes", "         ^~~~")],
    ),
    (
        "dtype == 'hlaf'",
        BOOL,
        [
            (
                10,
                "'hlaf' is not a value of Dtype (float, half); did you mean 'half'?",
                "         ^~~~~~",
            )
        ],
    ),
    (
        "dtype in ('half', 'double')",
        BOOL,
        [
            (
                19,
                "'double' is not a value of Dtype (float, half)",
                "                  ^~~~~~~~",
            )
        ],
    ),
    (
        "groups == 'half'",
        BOOL,
        [
            (
                11,
                "the string 'half' has a meaning only where an enum is expected",
                "          ^~~~~~",
            )
        ],
    ),
    ("dtype == device", BOOL, [(1, "cannot compare Dtype with DeviceClass", "^~~~~~~~~~~~~~~")]),
    ("dtype < 'half'", BOOL, [(1, "'<' needs numbers, found Dtype", "^~~~~~~~~~~~~~")]),
    ("1 < 2 < transposed", BOOL, [(5, "cannot compare int with bool", "    ^~~~~~~~~~~~~~")]),
    ("groups", BOOL, [(1, "expected bool, found int; compare it, e.g. '!= 0'", "^~~~~~")]),
    (
        "transposed and groups",
        BOOL,
        [(16, "expected bool, found int; compare it, e.g. '!= 0'", "               ^~~~~~")],
    ),
    (
        "1 if groups else 2",
        INT,
        [(6, "expected bool, found int; compare it, e.g. '!= 0'", "     ^~~~~~")],
    ),
    ("not dtype", BOOL, [(5, "expected bool, found Dtype", "    ^~~~~")]),
    ("alpha", INT, [(1, "expected int, found float", "^~~~~")]),
    (
        "transposed",
        INT,
        [(1, "expected int, found bool; write '1 if ... else 0'", "^~~~~~~~~~")],
    ),
    (
        "transposed + 1",
        INT,
        [(1, "'+' needs numbers, found bool; write '1 if ... else 0'", "^~~~~~~~~~")],
    ),
    ("-dtype", INT, [(2, "unary '-' needs numbers, found Dtype", " ^~~~~")]),
    ("alpha // 2", INT, [(1, "'//' needs integers, found float", "^~~~~")]),
    (
        "ceil_div(groups, 2.0)",
        INT,
        [(18, "'ceil_div' needs integers, found float", "                 ^~~")],
    ),
    (
        "groups if transposed else dtype",
        None,
        [(1, "one branch is int, the other Dtype", "^" + "~" * 30)],
    ),
    (
        "groups == groups",
        BOOL,
        [(1, "both sides of '==' are the same", "^" + "~" * 15)],
    ),
    (
        "groups / 2",
        INT,
        [(1, "'/' is not in the language; write '//', which rounds down", "^~~~~~~~~~")],
    ),
    ("groups ** 2", INT, [(1, "'**' is not in the language", "^~~~~~~~~~~")]),
    ("transposed & True", BOOL, [(1, "'&' is not in the language; write 'and'", "^" + "~" * 16)]),
    ("+groups", INT, [(1, "unary '+' is not in the language", "^~~~~~~")]),
    ("dtype is 'half'", BOOL, [(1, "'is' is not in the language; write '=='", "^" + "~" * 14)]),
    ("1 < groups in (1, 2)", BOOL, [(1, "'in' cannot be chained", "^" + "~" * 19)]),
    (
        "groups in stride_h",
        BOOL,
        [(11, "'in' needs values in parentheses, e.g. x in (3, 5)", " " * 10 + "^~~~~~~~")],
    ),
    ("problem.groups", INT, [(1, "attributes are not in the language", "^" + "~" * 13)]),
    ("groups[0]", INT, [(1, "subscripts are not in the language", "^~~~~~~~~")]),
    ("lambda: 1", INT, [(1, "lambda is not in the language", "^~~~~~~~~")]),
    ("(n := 1)", INT, [(2, "':=' is not in the language; add a let", " ^~~~~~")]),
    ("f'{dtype}'", DTYPE, [(1, "f-strings are not in the language", "^~~~~~~~~~")]),
    ("[x for x in y]", None, [(1, "comprehensions are not in the language", "^" + "~" * 13)]),
    ("(1, 2)", None, [(1, "a tuple has a meaning only after 'in'", "^~~~~~")]),
    ("{1: 2}", None, [(1, "Dict is not in the language", "^~~~~~")]),
    ("None", INT, [(1, "None is not in the language", "^~~~")]),
    ("2j", INT, [(1, "2j is not in the language", "^~")]),
    ("9223372036854775808", INT, [(1, "the integer does not fit 64 bits", "^" + "~" * 18)]),
    ("-9223372036854775809", INT, [(1, "the integer does not fit 64 bits", "^" + "~" * 19)]),
    ("1e999", FLOAT, [(1, "the float is too large", "^~~~~")]),
    (
        "cel_div(1, 2)",
        INT,
        [(1, "unknown function 'cel_div'; did you mean 'ceil_div'?", "^~~~~~~")],
    ),
    ("max(1)", INT, [(1, "'max' takes 2 or more arguments, found 1", "^~~~~~")]),
    ("abs(1, 2)", INT, [(1, "'abs' takes 1 argument, found 2", "^~~~~~~~~")]),
    ("align_up(1, n=2)", INT, [(1, "'align_up' takes no arguments by name", "^" + "~" * 15)]),
    ("max(*groups, 1)", INT, [(5, "'*' arguments are not in the language", "    ^~~~~~~")]),
    ("min + 1", INT, [(1, "'min' is a function; write 'min(...)'", "^~~")]),
    ("", BOOL, [(1, "the expression is empty", "^")]),
    ("groups +\n1", INT, [(1, "an expression is one line", "^")]),
    (
        "strid_h + 1.5 // transposed",
        INT,
        [
            (1, "unknown name 'strid_h'; did you mean 'stride_h'?", "^~~~~~~"),
            (11, "'//' needs integers, found float", "          ^~~"),
            (
                18,
                "'//' needs integers, found bool; write '1 if ... else 0'",
                " " * 17 + "^~~~~~~~~~",
            ),
        ],
    ),
    ("dtyp == 'half'", BOOL, [(1, "unknown name 'dtyp'; did you mean 'dtype'?", "^~~~")]),
    (
        "dtype == 'hälf' and x",
        BOOL,
        [
            (
                10,
                "'hälf' is not a value of Dtype (float, half); did you mean 'half'?",
                "         ^~~~~~",
            ),
            (21, "unknown name 'x'", " " * 20 + "^"),
        ],
    ),
]


@pytest.mark.parametrize(("text", "expected", "mistakes"), GOLDEN, ids=[g[0] for g in GOLDEN])
def test_mistake(text: str, expected: Type | None, mistakes: list[tuple[int, str, str]]) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text, SCOPE, expected, AT)
    found = [
        (d.position.column, *d.message.split(f"\n    {text}\n    "))
        for d in caught.value.diagnostics
    ]
    assert found == [(10 + column, message, carets) for column, message, carets in mistakes]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("groups = 1", "not an expression: "),
        ("transposed && groups == 1", "; write 'and'"),
        ("transposed || groups == 1", "; write 'or'"),
        ("max(1, 2", "not an expression: "),
        ("'half", "not an expression: "),
        ("groups\0", "\n    groups"),
    ],
)
def test_text_that_python_cannot_parse(text: str, part: str) -> None:
    """Python's own words differ between its releases, so only ours are compared."""
    with pytest.raises(SpecError) as caught:
        parse(text, SCOPE, None, AT)
    (diagnostic,) = caught.value.diagnostics
    assert part in diagnostic.message
    assert diagnostic.position.column >= AT.column


def test_the_whole_message_reads_well() -> None:
    with pytest.raises(SpecError) as caught:
        parse("groups == 1 and strid_h == 1", SCOPE, BOOL, AT)
    assert str(caught.value) == (
        "variants.yaml:7:27: error: unknown name 'strid_h'; did you mean 'stride_h'?\n"
        "    groups == 1 and strid_h == 1\n"
        "                    ^~~~~~~"
    )


def test_an_unknown_column_stays_unknown() -> None:
    with pytest.raises(SpecError) as caught:
        parse("1 + x", SCOPE, INT, Position("command line"))
    assert caught.value.diagnostics[0].position == Position("command line")
