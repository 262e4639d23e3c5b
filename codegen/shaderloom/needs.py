"""What a module asks of a device beside its descriptors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shaderloom.spirv import Module, unreadable
from shaderloom.spirv_grammar import Op
from shaderloom.spirv_types import MAX_NESTING, constant_integer, constant_value

WORKGROUP = 4  # storage class
_MAX_LENGTH = 2**32  # of an array; a product of more is no size

_ARITHMETIC: dict[int, Callable[[int, int], int]] = {  # opcode of OpSpecConstantOp -> its value
    128: lambda a, b: a + b,
    130: lambda a, b: a - b,
    132: lambda a, b: a * b,
    134: lambda a, b: a // b if b else 0,
    135: lambda a, b: a // b if b else 0,
    137: lambda a, b: a % b if b else 0,
    194: lambda a, b: a >> min(abs(b), 64),
    195: lambda a, b: a >> min(abs(b), 64),
    196: lambda a, b: a << min(abs(b), 64),
}
_MATRIX_USES = {"0": "A", "1": "B", "2": "accumulator"}


@dataclass(frozen=True)
class Needs:
    """What one module needs.

    ``shared_memory`` is in bytes, by the rules for std430, with the specialization constants at
    their defaults; None when a length is no plain arithmetic. ``matrices`` are the types of
    cooperative matrices by use, rows and columns, e.g. ``B 16x8``; a size that a host may set
    is ``?``.
    """

    declared: frozenset[str]  # capabilities and SPIR-V extensions
    shared_memory: int | None
    matrices: frozenset[str]


def needs(module: Module) -> Needs:
    """Return the needs of a module; raises ``SpirvError`` for types that have no size."""
    declared = frozenset((*module.capabilities, *module.extensions))
    sizes = _Sizes(module)
    total: int | None = 0
    for variable in module.find(Op.VARIABLE):
        if variable.operands[2] == WORKGROUP and total is not None:
            pointer = module.definition(variable.operands[0], Op.TYPE_POINTER)
            size, align = sizes.of(pointer.operands[2])
            total = None if size is None else _up(total, align) + size
    return Needs(declared, total, _matrices(module))


def matrices_of(shape: str) -> frozenset[str]:
    """Return the matrices that multiply in a shape MxNxK; "" is none."""
    if not shape:
        return frozenset()
    m, n, k = shape.split("x")
    return frozenset((f"A {m}x{k}", f"B {k}x{n}", f"accumulator {m}x{n}"))


def _matrices(module: Module) -> frozenset[str]:
    def plain(identifier: int) -> str:
        found = module.definition(identifier)
        return str(constant_integer(module, identifier)) if found.opcode == Op.CONSTANT else "?"

    found = set()
    for _, operands in module.find(Op.TYPE_COOPERATIVE_MATRIX):
        rows, columns, use = map(plain, operands[3:6])
        found.add(f"{_MATRIX_USES.get(use, '?')} {rows}x{columns}")
    return frozenset(found)


class _Sizes:
    """Sizes and alignments of types by std430 (Vulkan, maxComputeSharedMemorySize); bool is 4."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[int, tuple[int | None, int]] = {}
        self._constants: dict[int, int | None] = {}

    def of(self, type_id: int, depth: int = 0) -> tuple[int | None, int]:
        """Return size (None if it cannot be told) and alignment in bytes."""
        if depth > MAX_NESTING:
            raise unreadable(self._module.name, "shared memory nests its types too deep")
        if type_id not in self._known:
            self._known[type_id] = self._measure(type_id, depth)
        return self._known[type_id]

    def _measure(self, type_id: int, depth: int) -> tuple[int | None, int]:
        opcode, operands = self._module.definition(type_id)
        if opcode == Op.TYPE_BOOL:
            return 4, 4
        if opcode in (Op.TYPE_INT, Op.TYPE_FLOAT):
            return operands[1] // 8, max(1, operands[1] // 8)
        if opcode in (Op.TYPE_VECTOR, Op.TYPE_MATRIX):
            size, align = self.of(operands[1], depth + 1)
            if opcode == Op.TYPE_VECTOR:
                return _times(size, operands[2]), align * (2 if operands[2] == 2 else 4)
            return _times(None if size is None else _up(size, align), operands[2]), align
        if opcode == Op.TYPE_ARRAY:
            size, align = self.of(operands[1], depth + 1)
            length = self._constant(operands[2])
            if size is None or length is None:
                return None, align
            return _times(_up(size, align), length), align
        if opcode == Op.TYPE_STRUCT:
            return self._struct(operands[1:], depth)
        raise unreadable(self._module.name, f"type %{type_id} in shared memory has no size")

    def _struct(self, members: tuple[int, ...], depth: int) -> tuple[int | None, int]:
        end: int | None = 0
        widest = 1
        for member in members:
            size, align = self.of(member, depth + 1)
            widest = max(widest, align)
            end = None if size is None or end is None else _up(end, align) + size
        return None if end is None else _up(end, widest), widest

    def _constant(self, identifier: int, depth: int = 0) -> int | None:
        """Return the value of an integer constant, None when it is no plain arithmetic."""
        if identifier not in self._constants:
            self._constants[identifier] = self._value(identifier, depth)
        return self._constants[identifier]

    def _value(self, identifier: int, depth: int) -> int | None:
        opcode, operands = self._module.definition(identifier)
        if opcode != Op.SPEC_CONSTANT_OP:
            value = constant_value(self._module, identifier)[1]
            return value if isinstance(value, int) else None
        compute = _ARITHMETIC.get(operands[2]) if len(operands) == 5 else None
        if compute is None or depth > MAX_NESTING:
            return None
        left = self._constant(operands[3], depth + 1)
        right = None if left is None else self._constant(operands[4], depth + 1)
        if left is None or right is None:
            return None
        value = compute(left, right)
        return value if abs(value) <= _MAX_LENGTH else None


def _times(size: int | None, count: int) -> int | None:
    return None if size is None else size * max(0, count)


def _up(size: int, align: int) -> int:
    return -(-size // align) * align
