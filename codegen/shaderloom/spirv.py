"""A reader of SPIR-V modules: words to instructions and to the tables an interface needs.

It reads what the loom asks about (names, decorations, types, constants, variables, entry
points) and checks every word it relies on; it is not a validator, ``spirv-val`` is. Any
bytes give either a ``Module`` or a ``SpirvError``, in time and memory linear in their number.
Rules are those of the SPIR-V specification, sections 2.3 (physical layout), 2.17 (universal
limits) and 3 (instructions).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from shaderloom.errors import Diagnostic, Position, SpirvError
from shaderloom.spirv_grammar import CAPABILITIES, DECORATIONS_WITH_OPERAND, Op, Shape, find_shape

MAGIC = 0x07230203
HEADER_WORDS = 5
MAX_BOUND = 4_194_303  # section 2.17: no id is larger


class Instruction(NamedTuple):
    """An opcode and all its words but the first, result type and result id included."""

    opcode: int
    operands: tuple[int, ...]


class EntryPoint(NamedTuple):
    """An ``OpEntryPoint``: where a module starts and in which stage."""

    model: int  # execution model; 5 is GLCompute
    function: int
    name: str


Decorations = Mapping[int, tuple[int, ...]]  # decoration -> its operands
_NONE: Decorations = {}


@dataclass(frozen=True, eq=False)
class Module:
    """A decoded module. ``head`` is everything before the first function, ``body`` the rest."""

    name: str
    version: tuple[int, int]
    bound: int
    head: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    definitions: Mapping[int, Instruction]  # by result id, of types, constants and variables
    names: Mapping[int, str]
    member_names: Mapping[tuple[int, int], str]  # (struct type, member index)
    decorations: Mapping[int, Decorations]
    member_decorations: Mapping[tuple[int, int], Decorations]
    entry_points: tuple[EntryPoint, ...]
    modes: tuple[Instruction, ...]  # OpExecutionMode and OpExecutionModeId
    capabilities: tuple[str, ...]  # a number, e.g. "6442", where the loom knows no name
    extensions: tuple[str, ...]

    def find(self, *opcodes: int) -> list[Instruction]:
        """Return the instructions of ``head`` with one of these opcodes, in order."""
        return [i for i in self.head if i.opcode in opcodes]

    def definition(self, identifier: int, *opcodes: int) -> Instruction:
        """Return what defines an id; ``SpirvError`` if nothing or no such opcode does."""
        found = self.definitions.get(identifier)
        if found is None or (opcodes and found.opcode not in opcodes):
            raise unreadable(self.name, f"id %{identifier} is not defined as its use requires")
        return found

    def decoration(self, identifier: int, decoration: int) -> int | None:
        """Return the first operand of an id's decoration, 0 if it has none, or ``None``."""
        return _first(self.decorations.get(identifier, _NONE), decoration)

    def member_decoration(self, struct_type: int, member: int, decoration: int) -> int | None:
        """The same for a member of a struct type."""
        return _first(self.member_decorations.get((struct_type, member), _NONE), decoration)

    def references(self, instruction: Instruction) -> tuple[int, ...]:
        """Return the ids among an instruction's words.

        Of an opcode that the loom does not know, every word that could be an id counts.
        """
        opcode, operands = instruction
        shape = find_shape(opcode, operands)
        if shape is None:
            return tuple(word for word in operands if 0 < word < self.bound)
        return tuple(word for start, stop in shape.spans for word in operands[start:stop])


def unreadable(name: str, message: str) -> SpirvError:
    """Make the error for a module; ``name`` is its file."""
    return SpirvError(Diagnostic(Position(name), message))


def read_module(data: bytes, name: str) -> Module:
    """Decode a SPIR-V binary of either byte order; ``name`` is its file, for messages.

    Raises ``SpirvError`` on bytes that are no SPIR-V, on truncation, on ids that are zero, past
    the bound or defined twice, on missing operands and on bad strings.
    """
    words = _words(data, name)
    bound = words[3]
    if not 0 < bound <= MAX_BOUND:
        raise unreadable(name, f"id bound {bound} is not in 1..{MAX_BOUND}")
    instructions = _instructions(words, bound, name)
    opcodes = [i.opcode for i in instructions]
    split = opcodes.index(Op.FUNCTION) if Op.FUNCTION in opcodes else len(opcodes)
    head = tuple(instructions[:split])
    groups: dict[int, list[Instruction]] = defaultdict(list)
    definitions = {}
    for instruction in head:
        groups[instruction.opcode].append(instruction)
        shape = find_shape(*instruction)
        if shape is not None and shape.result >= 0:
            definitions[instruction.operands[shape.result]] = instruction
    if groups[Op.GROUP_DECORATE] or groups[Op.GROUP_MEMBER_DECORATE]:
        raise unreadable(name, "decoration groups (deprecated in SPIR-V 1.3) are not read")
    return Module(
        name=name,
        version=(words[1] >> 16 & 0xFF, words[1] >> 8 & 0xFF),
        bound=bound,
        head=head,
        body=tuple(instructions[split:]),
        definitions=definitions,
        names={i.operands[0]: _text(i.operands[1:], name) for i in groups[Op.NAME]},
        member_names={
            (i.operands[0], i.operands[1]): _text(i.operands[2:], name)
            for i in groups[Op.MEMBER_NAME]
        },
        decorations=_decorations(
            ((target, rest) for _, (target, *rest) in groups[Op.DECORATE]), name
        ),
        member_decorations=_decorations(
            (((target, member), rest) for _, (target, member, *rest) in groups[Op.MEMBER_DECORATE]),
            name,
        ),
        entry_points=tuple(
            EntryPoint(i.operands[0], i.operands[1], _text(i.operands[2:], name))
            for i in groups[Op.ENTRY_POINT]
        ),
        modes=tuple(i for i in head if i.opcode in (Op.EXECUTION_MODE, Op.EXECUTION_MODE_ID)),
        capabilities=tuple(
            CAPABILITIES.get(i.operands[0], str(i.operands[0])) for i in groups[Op.CAPABILITY]
        ),
        extensions=tuple(_text(i.operands, name) for i in groups[Op.EXTENSION]),
    )


def _words(data: bytes, name: str) -> tuple[int, ...]:
    if not data:
        raise unreadable(name, "the file is empty")
    order = next((o for o in "<>" if data[:4] == struct.pack(f"{o}I", MAGIC)), None)
    if order is None:
        raise unreadable(name, f"no SPIR-V: it starts with {data[:4].hex()}")
    if len(data) % 4:
        raise unreadable(name, f"its size, {len(data)} bytes, is no multiple of 4")
    if len(data) < 4 * HEADER_WORDS:
        raise unreadable(name, f"its {len(data)} bytes end within the header")
    return struct.unpack(f"{order}{len(data) // 4}I", data)


def _instructions(words: tuple[int, ...], bound: int, name: str) -> list[Instruction]:
    found = []
    defined: set[int] = set()
    position = HEADER_WORDS
    while position < len(words):
        count, opcode = words[position] >> 16, words[position] & 0xFFFF
        end = position + count
        if count == 0 or end > len(words):
            problem = "has no length" if count == 0 else "runs past the end of the file"
            raise unreadable(name, f"opcode {opcode} at word {position} {problem}")
        operands = words[position + 1 : end]
        shape = find_shape(opcode, operands)
        if shape is not None:
            problem = _problem(shape, operands, bound, defined)
            if problem:
                raise unreadable(name, f"opcode {opcode} at word {position} {problem}")
        found.append(Instruction(opcode, operands))
        position = end
    return found


def _problem(shape: Shape, operands: tuple[int, ...], bound: int, defined: set[int]) -> str:
    """Say what is wrong with an instruction, "" if nothing; add its result to ``defined``."""
    if len(operands) < shape.required:
        return f"has {len(operands)} operands, needs {shape.required}"
    for start, stop in shape.spans:
        ids = operands[start:stop]
        if ids and (0 in ids or max(ids) >= bound):
            return f"uses an id outside 1..{bound - 1}"
    if shape.result >= 0:
        result = operands[shape.result]
        if result in defined:
            return f"defines id %{result} a second time"
        defined.add(result)
    return ""


_Key = TypeVar("_Key")


def _decorations(items: Iterable[tuple[_Key, list[int]]], name: str) -> dict[_Key, Decorations]:
    """Collect decorations by what they decorate; of a repeated one the last counts."""
    found: dict[_Key, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for key, (decoration, *operands) in items:
        if decoration in DECORATIONS_WITH_OPERAND and not operands:
            raise unreadable(name, f"decoration {decoration} of {key} has no operand")
        found[key][decoration] = tuple(operands)
    return dict(found)


def _first(decorations: Decorations, decoration: int) -> int | None:
    operands = decorations.get(decoration)
    return None if operands is None else operands[0] if operands else 0


def _text(words: tuple[int, ...], name: str) -> str:
    # Little-endian in a word even in a big-endian file (section 2.2.1, Literal).
    raw, end, _ = struct.pack(f"<{len(words)}I", *words).partition(b"\0")
    if not end:
        raise unreadable(name, "a string is not terminated")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise unreadable(name, "a string is not UTF-8") from None
