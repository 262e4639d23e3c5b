"""From one line of text to a typed tree, by way of Python's own parser.

Only what the language has is let through; all mistakes of a line are reported at once, each
under its own text:

    conv.yaml:12:9: error: unknown name 'strid_h'; did you mean 'stride_h'?
        strid_h == 1
        ^~~~~~~
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence

from shaderloom.errors import Diagnostic, Position, SpecError, nearest
from shaderloom.expr import (
    BOOL,
    FLOAT,
    FUNCTIONS,
    INT,
    INT64_MAX,
    INT64_MIN,
    RESERVED,
    Apply,
    Conditional,
    Expr,
    Literal,
    Logical,
    Name,
    Scope,
    Type,
)

MAX_DEPTH = 50  # emitted C nests as deep; C99 5.2.4.1 promises 63 levels of parentheses


def parse(text: str, scope: Scope, expected: Type | None, position: Position) -> Expr:
    """Parse and type-check one line of text, whose first character is at ``position``.

    ``expected`` is the type the result must have (an int becomes a float where one is expected),
    None for any. Raises SpecError with one diagnostic for each mistake, each at the exact
    sub-expression, with the text and a line of carets in its message.
    """
    checker = _Checker(text, scope, position)
    expr = checker.whole(expected)
    if expr is None:
        raise SpecError(checker.diagnostics)
    return expr


_ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_C_SPELLINGS: Mapping[str, str] = {"&&": "and", "||": "or"}
_REFUSED: Mapping[type[ast.AST], str] = {
    ast.Div: "'/' is not in the language; write '//', which rounds down",
    ast.Pow: "'**' is not in the language",
    ast.BitAnd: "'&' is not in the language; write 'and'",
    ast.BitOr: "'|' is not in the language; write 'or'",
    ast.BitXor: "'^' is not in the language; write '!='",
    ast.LShift: "'<<' is not in the language; write '*'",
    ast.RShift: "'>>' is not in the language; write '//'",
    ast.MatMult: "'@' is not in the language",
    ast.UAdd: "unary '+' is not in the language",
    ast.Invert: "'~' is not in the language; write 'not'",
    ast.Is: "'is' is not in the language; write '=='",
    ast.IsNot: "'is not' is not in the language; write '!='",
    ast.In: "'in' cannot be chained",
    ast.NotIn: "'not in' cannot be chained",
    ast.Attribute: "attributes are not in the language",
    ast.Subscript: "subscripts are not in the language",
    ast.Lambda: "lambda is not in the language",
    ast.NamedExpr: "':=' is not in the language; add a let",
    ast.JoinedStr: "f-strings are not in the language",
    ast.Tuple: "a tuple has a meaning only after 'in'",
    ast.List: "a list has a meaning only after 'in'",
    ast.ListComp: "comprehensions are not in the language",
    ast.SetComp: "comprehensions are not in the language",
    ast.DictComp: "comprehensions are not in the language",
    ast.GeneratorExp: "comprehensions are not in the language",
    ast.Starred: "'*' arguments are not in the language",
}


class _Checker:
    """One walk over Python's tree of one text; a sub-expression that is wrong becomes None.

    An operation with a None operand is None without a further diagnostic, so each mistake is
    reported once.
    """

    def __init__(self, text: str, scope: Scope, position: Position) -> None:
        self.text = text.rstrip()
        self.scope = scope
        self.position = position
        self.indent = len(self.text) - len(self.text.lstrip())
        self.diagnostics: list[Diagnostic] = []

    def fail(self, first: ast.expr, message: str, last: ast.expr | None = None) -> None:
        """Report ``message`` under the text from node ``first`` to the end of ``last``."""
        encoded = self.text[self.indent :].encode()  # the columns of ast count UTF-8 bytes
        ends = (first.col_offset, (last or first).end_col_offset)
        start, end = (len(encoded[:at].decode()) for at in ends)
        self.fail_at(start, end, message)

    def fail_at(self, start: int, end: int, message: str) -> None:
        start, end = start + self.indent, max(end, start + 1) + self.indent
        margin = "".join(c if c == "\t" else " " for c in self.text[:start])
        carets = "^" + "~" * (end - start - 1)
        column = self.position.column + start if self.position.column else 0
        where = Position(self.position.file, self.position.line, column)
        self.diagnostics.append(
            Diagnostic(where, f"{message}\n    {self.text}\n    {margin}{carets}")
        )

    def whole(self, expected: Type | None) -> Expr | None:
        stripped = self.text[self.indent :]
        if len(stripped.splitlines()) != 1:
            self.fail_at(
                0, 1, "an expression is one line" if stripped else "the expression is empty"
            )
            return None
        try:
            node = ast.parse(stripped, mode="eval").body
        except SyntaxError as error:
            start = max((error.offset or 1) - 1, 0)
            hints = (f"; write '{word}'" for c, word in _C_SPELLINGS.items() if c in stripped)
            message = f"not an expression: {error.msg}{next(hints, '')}"
            self.fail_at(start, (error.end_offset or 0) - 1, message)
            return None
        except (ValueError, RecursionError, MemoryError) as error:
            self.fail_at(0, len(stripped), f"cannot be parsed: {error}")
            return None
        if _depth(node) > MAX_DEPTH:
            self.fail(node, f"nested more than {MAX_DEPTH} levels deep; split it with a let")
            return None
        expr = self.check(node, expected)
        return expr if expr is None or expected is None else self.coerce(node, expr, expected)

    def coerce(self, node: ast.expr, expr: Expr, wanted: Type) -> Expr | None:
        if expr.type == wanted:
            return expr
        if (expr.type, wanted) == (INT, FLOAT):
            return _to_float(expr)
        hint = ""
        if wanted == BOOL and expr.type in (INT, FLOAT):
            hint = "; compare it, e.g. '!= 0'"
        elif expr.type == BOOL and wanted in (INT, FLOAT):
            hint = "; write '1 if ... else 0'"
        self.fail(node, f"expected {wanted}, found {expr.type}{hint}")
        return None

    def check(self, node: ast.expr, hint: Type | None = None) -> Expr | None:
        """Return the typed form of ``node``; a string takes its enum from ``hint``."""
        expr: Expr | None = None
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand) if _is_number(operand):
                # one literal: 9223372036854775808 alone would not fit
                expr = self.literal(node, -ast.literal_eval(operand), hint)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                expr = self.numeric("neg", [operand])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                args = _all([self.condition(operand)])
                expr = Apply(BOOL, "not", args) if args else None
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC:
                expr = self.numeric(_ARITHMETIC[type(op)], [left, right])
            case ast.BoolOp(op=op, values=values):
                args = _all([self.condition(value) for value in values])
                word = "and" if isinstance(op, ast.And) else "or"
                expr = _joined(word, args) if args else None
            case ast.Compare(ops=[ast.In() | ast.NotIn() as op]):
                expr = self.membership(node, isinstance(op, ast.NotIn))
            case ast.Compare(ops=ops) if all(type(op) in _COMPARISONS for op in ops):
                expr = self.comparison(node)
            case ast.IfExp():
                expr = self.conditional(node, hint)
            case ast.Call():
                expr = self.call(node)
            case ast.Name(id=name):
                expr = self.name(node, name)
            case ast.Constant(value=value):
                expr = self.literal(node, value, hint)
            case _:
                self.refuse(node)
        return expr

    def refuse(self, node: ast.expr) -> None:
        parts = [node, getattr(node, "op", None), *getattr(node, "ops", ())]
        known = next((_REFUSED[type(part)] for part in parts if type(part) in _REFUSED), None)
        self.fail(node, known or f"{type(node).__name__} is not in the language")

    def literal(self, node: ast.expr, value: object, hint: Type | None) -> Expr | None:
        message = ""
        match value:
            case bool():
                return Literal(BOOL, value)
            case int():
                if INT64_MIN <= value <= INT64_MAX:
                    return Literal(INT, value)
                message = "the integer does not fit 64 bits"
            case float():
                if math.isfinite(value):
                    return Literal(FLOAT, value)
                message = "the float is too large"
            case str() if hint is not None and hint.values:
                if value in hint.values:
                    return Literal(hint, value)
                known = ", ".join(hint.values)
                message = f"{value!r} is not a value of {hint} ({known})"
                message += nearest(value, hint.values)
            case str():
                message = f"the string {value!r} has a meaning only where an enum is expected"
            case _:
                message = f"{value!r} is not in the language"
        self.fail(node, message)
        return None

    def name(self, node: ast.expr, name: str) -> Expr | None:
        if name in FUNCTIONS:
            self.fail(node, f"'{name}' is a function; write '{name}(...)'")
        elif name in self.scope and name not in RESERVED:
            return Name(self.scope[name], name)
        elif any(name in type_.values for type_ in self.scope.values()):
            self.fail(node, f"unknown name '{name}'; write the string '{name}' in quotes")
        else:
            known = [*self.scope, *FUNCTIONS, "True", "False"]
            self.fail(node, f"unknown name '{name}'{nearest(name, known)}")
        return None

    def condition(self, node: ast.expr) -> Expr | None:
        expr = self.check(node)
        return expr and self.coerce(node, expr, BOOL)

    def numeric(self, op: str, operands: Sequence[ast.expr]) -> Expr | None:
        """Check an operation on numbers; all become floats when one is."""
        integers_only = op in ("//", "%", "ceil_div", "align_up")
        shown = "unary '-'" if op == "neg" else f"'{op}'"
        args: list[Expr | None] = []
        for operand in operands:
            arg = self.check(operand)
            if arg is not None and arg.type not in ((INT,) if integers_only else (INT, FLOAT)):
                needs = "integers" if integers_only else "numbers"
                hint = "; write '1 if ... else 0'" if arg.type == BOOL else ""
                self.fail(operand, f"{shown} needs {needs}, found {arg.type}{hint}")
                arg = None
            args.append(arg)
        complete = _all(args)
        if complete is None:
            return None
        complete = _promoted(complete)
        return Apply(complete[0].type, op, complete)

    def siblings(
        self, nodes: Sequence[ast.expr], hint: Type | None = None
    ) -> tuple[Expr, ...] | None:
        """Check operands that must share a type: a string takes its enum from the others."""
        found = {i: self.check(n, hint) for i, n in enumerate(nodes) if not _is_string(n)}
        enums = (e.type for e in found.values() if e is not None and e.type.values)
        hint = next(enums, hint if hint is not None and hint.values else None)
        if hint is None and None in found.values():
            return None  # the enum is unknown, so nothing can be said about the strings
        return _all([found[i] if i in found else self.check(n, hint) for i, n in enumerate(nodes)])

    def comparison(self, node: ast.Compare) -> Expr | None:
        """``a < b < c`` is ``a < b and b < c``; operands have no side effects."""
        nodes = [node.left, *node.comparators]
        args = self.siblings(nodes)
        if args is None:
            return None
        pairs = _all(
            [
                self.pair(nodes[i : i + 2], _COMPARISONS[type(op)], args[i : i + 2])
                for i, op in enumerate(node.ops)
            ]
        )
        if pairs is None or len(pairs) == 1:
            return pairs and pairs[0]
        return Logical(BOOL, "and", pairs)

    def pair(self, nodes: Sequence[ast.expr], op: str, args: tuple[Expr, ...]) -> Expr | None:
        left, right = promoted = _promoted(args)
        message = ""
        if left.type != right.type:
            message = f"cannot compare {left.type} with {right.type}"
        elif left.type not in (INT, FLOAT) and op not in ("==", "!="):
            message = f"'{op}' needs numbers, found {left.type}"
        elif left == right and left.type != FLOAT:  # a float differs from itself when NaN
            message = f"both sides of '{op}' are the same"
        if not message:
            return Apply(BOOL, op, promoted)
        self.fail(nodes[0], message, nodes[-1])
        return None

    def membership(self, node: ast.Compare, negated: bool) -> Expr | None:
        """``x in (a, b)`` is ``x == a or x == b``."""
        choices = node.comparators[0]
        if not isinstance(choices, ast.Tuple | ast.List) or not choices.elts:
            self.fail(choices, "'in' needs values in parentheses, e.g. x in (3, 5)")
            return None
        args = self.siblings([node.left, *choices.elts])
        if args is None:
            return None
        tests = _all(
            [
                self.pair([choice], "==", (args[0], arg))
                for choice, arg in zip(choices.elts, args[1:], strict=True)
            ]
        )
        if tests is None:
            return None
        found = tests[0] if len(tests) == 1 else Logical(BOOL, "or", tests)
        return Apply(BOOL, "not", (found,)) if negated else found

    def conditional(self, node: ast.IfExp, hint: Type | None) -> Expr | None:
        condition = self.condition(node.test)
        branches = self.siblings([node.body, node.orelse], hint)
        if condition is None or branches is None:
            return None
        then, otherwise = _promoted(branches)
        if then.type == otherwise.type:
            return Conditional(then.type, condition, then, otherwise)
        self.fail(node, f"one branch is {then.type}, the other {otherwise.type}")
        return None

    def call(self, node: ast.Call) -> Expr | None:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            name = ast.unparse(node.func)
            self.fail(node.func, f"unknown function '{name}'{nearest(name, list(FUNCTIONS))}")
            return None
        name = node.func.id
        least, most = FUNCTIONS[name]
        count = len(node.args)
        if node.keywords:
            self.fail(node, f"'{name}' takes no arguments by name")
        elif count < least or (most is not None and count > most):
            takes = f"{least}{' or more' if most is None else ''}"
            self.fail(node, f"'{name}' takes {takes} argument{'s' * (takes != '1')}, found {count}")
        else:
            return self.numeric(name, node.args)
        return None


def _all(found: Sequence[Expr | None]) -> tuple[Expr, ...] | None:
    complete = tuple(expr for expr in found if expr is not None)
    return complete if len(complete) == len(found) else None


def _joined(op: str, args: tuple[Expr, ...]) -> Expr:
    """``(a and b) and c`` is ``a and b and c``: emitted code needs no parentheses."""
    same = (arg.args if isinstance(arg, Logical) and arg.op == op else (arg,) for arg in args)
    return Logical(BOOL, op, tuple(inner for group in same for inner in group))


def _promoted(args: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Turn int and float operands into floats only; leave other mixtures alone."""
    if {arg.type for arg in args} == {INT, FLOAT}:
        return tuple(_to_float(arg) if arg.type == INT else arg for arg in args)
    return args


def _to_float(expr: Expr) -> Expr:
    if isinstance(expr, Literal):
        return Literal(FLOAT, float(expr.value))
    return Apply(FLOAT, "float", (expr,))


def _is_string(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_string(node.body) and _is_string(node.orelse)
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _depth(node: ast.AST) -> int:
    """The levels of a tree, counted without recursion: ``a + a + ...`` nests as it grows."""
    depth, level = 0, [node]
    while level:
        depth, level = depth + 1, [c for n in level for c in ast.iter_child_nodes(n)]
    return depth
