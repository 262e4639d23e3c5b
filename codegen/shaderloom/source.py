"""YAML to plain data with the position of every key and value.

A spec must mean what it looks like, so the reader knows one small subset of YAML
(the core schema of YAML 1.2): ``true``/``false``, ``null``, decimal integers, floats
and strings. Whatever YAML 1.1 readers would silently reinterpret is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from shaderloom.errors import Diagnostic, Position, SpecError
from shaderloom.files import read_file

KeyPath = tuple["str | int", ...]

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
# Looks like a number, yet readers disagree on its value: 010 is 8 or 10, 1:30 is 90.
_AMBIGUOUS = re.compile(
    r"[-+]?(0[0-9]+|0[xXoObB][0-9a-fA-F]+|[0-9][0-9]*(_[0-9]+)+|[0-9]+(:[0-9]+)+)"
)
_YAML_1_1_BOOLEANS = frozenset(("yes", "no", "on", "off"))  # y and n: by no common reader


@dataclass(frozen=True)
class Source:
    """Parsed YAML: ``data`` and, by path from the root, where each value and key stands."""

    file: str
    data: Any
    values: dict[KeyPath, Position] = field(repr=False)
    keys: dict[KeyPath, Position] = field(repr=False)
    quoted: frozenset[KeyPath] = field(repr=False, default=frozenset())

    def value(self, *path: str | int) -> Position:
        """Return the position of the value at ``path``, or of its nearest known ancestor."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values[path]

    def key(self, *path: str | int) -> Position:
        """Return the position of the key that ends ``path``, or of the nearest value above."""
        return self.keys.get(path) or self.value(*path)

    def text(self, *path: str | int) -> Position:
        """Return the position of the first character of the text at ``path``, inside quotes."""
        position = self.value(*path)
        if path in self.quoted:
            return Position(position.file, position.line, position.column + 1)
        return position

    def find(self, path: KeyPath, name: str) -> Position:
        """Return where ``name`` is declared below ``path``, else the position of ``path``.

        A declaration is a key (``push_constants: {stride_h: int}``) or the value of ``name``
        or ``uniform`` (``{name: t_in}``).
        """
        for key, position in self.keys.items():
            if key[: len(path)] != path:
                continue
            if key[-1] == name:
                return position
            if key[-1] in ("name", "uniform") and self._at(key) == name:
                return self.values[key]
        return self.key(*path)

    def _at(self, path: KeyPath) -> Any:
        data = self.data
        for part in path:
            data = data[part]
        return data


def read_source(path: Path, name: str) -> Source:
    """Read the YAML file at ``path``; ``name`` is what errors call it.

    Raises SpecError with every duplicate key, ambiguous scalar, anchor or tag found,
    or with the first syntax error.
    """
    try:
        data = read_file(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(Diagnostic(Position(name), f"cannot read: {reason}")) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        where = Position(name, line)
        raise SpecError(Diagnostic(where, f"byte 0x{data[error.start]:02x} is not UTF-8")) from None
    return parse_source(text, name)


def parse_source(text: str, name: str) -> Source:
    """Parse YAML ``text``; see ``read_source``."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    control = _CONTROL.search(text)
    if control:
        line = text.count("\n", 0, control.start()) + 1
        message = f"not valid YAML: control character U+{ord(control[0]):04X}"
        raise SpecError(Diagnostic(Position(name, line), message))
    try:
        # Parsed as events first: the composer would already have resolved an alias.
        for event in yaml.parse(text, Loader=loader):
            _refuse_indirection(event, name)
        root = yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        raise SpecError(_syntax_error(error, name)) from None
    if root is None:
        raise SpecError(Diagnostic(Position(name, 1, 1), "the file is empty"))
    reader = _Reader(name)
    data = reader.read(root, ())
    if reader.errors:
        raise SpecError(reader.errors)
    return Source(name, data, reader.values, reader.keys, frozenset(reader.quoted))


def _refuse_indirection(event: Any, name: str) -> None:
    for feature, what in (("anchor", "anchors and aliases"), ("tag", "tags")):
        text = getattr(event, feature, None)
        if text is not None:
            message = f"{what} are not supported: '{text}'"
            raise SpecError(Diagnostic(_position(event, name), message))


def _position(marked: Any, name: str) -> Position:
    return Position(name, marked.start_mark.line + 1, marked.start_mark.column + 1)


def _syntax_error(error: yaml.YAMLError, name: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = Position(name, mark.line + 1, mark.column + 1) if mark else Position(name)
    context, problem = getattr(error, "context", None), getattr(error, "problem", None)
    problem = ": ".join(part for part in (context, problem) if part) or str(error)
    if "cannot start any token" in problem:
        problem += " (a tab cannot indent YAML; use spaces)"
    return Diagnostic(where, f"not valid YAML: {problem}")


class _Reader:
    """Turns nodes into data, noting positions and collecting errors on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[KeyPath, Position] = {}
        self.keys: dict[KeyPath, Position] = {}
        self.quoted: set[KeyPath] = set()
        self.errors: list[Diagnostic] = []

    def fail(self, node: yaml.Node, message: str) -> None:
        self.errors.append(Diagnostic(_position(node, self.name), message))

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.values[path] = _position(node, self.name)
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, i)) for i, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)  # there are no other kinds
        if node.style in ("'", '"'):
            self.quoted.add(path)
        return self.scalar(node)

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.fail(key_node, f"a key must be text, not {_describe(key_node)}")
                continue
            here: KeyPath = (*path, key)
            if key in result:
                first = self.keys[here]
                self.fail(key_node, f"duplicate key '{key}'; first at line {first.line}")
                continue
            self.keys[here] = _position(key_node, self.name)
            result[key] = self.read(value_node, here)
        return result

    def scalar(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        text: str = node.value
        if node.style in tuple("'\"|>"):  # quoted or a block scalar: always text
            return text
        if text in ("true", "false"):
            return text == "true"
        if text in ("", "null", "~"):
            return None
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        if _AMBIGUOUS.fullmatch(text):
            self.fail(node, f"'{text}' is ambiguous; write it in decimal or quote it")
        elif text.lower() in _YAML_1_1_BOOLEANS or text.lower() in ("true", "false", "null"):
            self.fail(node, f"'{text}' is ambiguous; write true or false, or quote it")
        elif text == "<<":
            self.fail(node, "merge keys are not supported: '<<'")
        return text


def _describe(node: yaml.Node) -> str:
    return f"'{node.value}'" if isinstance(node, yaml.ScalarNode) else "a list or mapping"
