"""Types and constants of a module: GLSL spellings, bytes, the members of interface blocks."""

from __future__ import annotations

import struct

from shaderloom.interface import Field
from shaderloom.spirv import Module, unreadable
from shaderloom.spirv_grammar import Deco, Op

MAX_MEMBERS = 4096  # 16 KiB, the uniform block Vulkan guarantees, in ints; bounds hostile files
MAX_NESTING = 16  # of arrays and structs in a block

_SCALARS = {  # (opcode, width, signed) -> GLSL scalar, vector prefix, struct code
    (Op.TYPE_FLOAT, 16, 0): ("float16_t", "f16", "<e"),
    (Op.TYPE_FLOAT, 32, 0): ("float", "", "<f"),
    (Op.TYPE_FLOAT, 64, 0): ("double", "d", "<d"),
    (Op.TYPE_INT, 8, 0): ("uint8_t", "u8", "<B"),
    (Op.TYPE_INT, 8, 1): ("int8_t", "i8", "<b"),
    (Op.TYPE_INT, 16, 0): ("uint16_t", "u16", "<H"),
    (Op.TYPE_INT, 16, 1): ("int16_t", "i16", "<h"),
    (Op.TYPE_INT, 32, 0): ("uint", "u", "<I"),
    (Op.TYPE_INT, 32, 1): ("int", "i", "<i"),
    (Op.TYPE_INT, 64, 0): ("uint64_t", "u64", "<Q"),
    (Op.TYPE_INT, 64, 1): ("int64_t", "i64", "<q"),
}


class Blocks:
    """Reads the members of struct types, each type once, however many variables share it."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._fields: dict[int, tuple[Field, ...]] = {}

    def fields(self, struct_type: int, depth: int = 0) -> tuple[Field, ...]:
        """Return the members in order of offset; sizes as laid out by the module's strides."""
        if struct_type not in self._fields:
            if depth > MAX_NESTING:
                raise unreadable(self._module.name, "a block nests its types too deep")
            count = len(self.members(struct_type))
            fields = [self._field(struct_type, index, depth) for index in range(count)]
            self._fields[struct_type] = tuple(sorted(fields, key=lambda f: f.offset))
        return self._fields[struct_type]

    def members(self, struct_type: int) -> tuple[int, ...]:
        """Return the types of the members, in the order of their indices."""
        members = self._module.definition(struct_type, Op.TYPE_STRUCT).operands[1:]
        if len(members) > MAX_MEMBERS:
            block = label(self._module, struct_type)
            raise unreadable(self._module.name, f"block {block} has {len(members)} members")
        return members

    def offset(self, struct_type: int, index: int) -> int:
        """Return the byte offset of a member; ``SpirvError`` if it has none."""
        offset = self._module.member_decoration(struct_type, index, Deco.OFFSET)
        if offset is None:
            block = label(self._module, struct_type)
            raise unreadable(self._module.name, f"member {index} of block {block} has no Offset")
        return offset

    def all_decorated(self, struct_type: int, decoration: int) -> bool:
        """Tell whether there are members and every one has the decoration."""
        count = len(self.members(struct_type))
        decorated = (
            self._module.member_decoration(struct_type, index, decoration) is not None
            for index in range(count)
        )
        return count > 0 and all(decorated)

    def _field(self, struct_type: int, index: int, depth: int) -> Field:
        type_id = self.members(struct_type)[index]
        spelling, size = self._layout(type_id, (struct_type, index), depth)
        name = self._module.member_names.get((struct_type, index), "")
        return Field(name, spelling, self.offset(struct_type, index), size)

    def _layout(self, type_id: int, member: tuple[int, int], depth: int) -> tuple[str, int]:
        """Return the GLSL spelling and the bytes of the type, or part of it, of a member."""
        module = self._module
        opcode, operands = module.definition(type_id)
        if depth > MAX_NESTING:
            raise unreadable(module.name, "a block nests its types too deep")
        if opcode == Op.TYPE_STRUCT:
            inner = self.fields(type_id, depth + 1)
            return "struct", max((f.offset + f.size for f in inner), default=0)
        if opcode == Op.TYPE_ARRAY:
            stride = module.decoration(type_id, Deco.ARRAY_STRIDE)
            if stride is None:
                raise unreadable(module.name, f"array %{type_id} in a block has no ArrayStride")
            length = constant_integer(module, operands[2])
            element, bracket, rest = self._layout(operands[1], member, depth + 1)[0].partition("[")
            # GLSL writes the outer dimension first: 2 times "int[3]" is "int[2][3]".
            return f"{element}[{length}]{bracket}{rest}", length * stride
        if opcode == Op.TYPE_MATRIX:
            return self._matrix(operands[1], operands[2], member)
        spelling, _, size = _numeric(module, type_id)
        return spelling, size

    def _matrix(self, column: int, columns: int, member: tuple[int, int]) -> tuple[str, int]:
        module = self._module
        stride = module.member_decoration(*member, Deco.MATRIX_STRIDE)
        if stride is None:
            raise unreadable(module.name, f"a matrix in struct %{member[0]} has no MatrixStride")
        rows = module.definition(column, Op.TYPE_VECTOR).operands[2]
        _, prefix, _ = _numeric(module, column)
        row_major = module.member_decoration(*member, Deco.ROW_MAJOR) is not None
        shape = f"{columns}" if columns == rows else f"{columns}x{rows}"
        return f"{prefix}mat{shape}", stride * (rows if row_major else columns)


def label(module: Module, identifier: int) -> str:
    """Return a name to show, ``'t_in'`` or ``'%12'``."""
    name = module.names.get(identifier) or f"%{identifier}"
    return f"'{name}'"


def _numeric(module: Module, type_id: int) -> tuple[str, str, int]:
    """Return a scalar's or vector's GLSL spelling, its vector prefix and its bytes."""
    opcode, operands = module.definition(type_id)
    if opcode == Op.TYPE_VECTOR:
        _, prefix, code = _scalar(module, operands[1])
        return f"{prefix}vec{operands[2]}", prefix, operands[2] * struct.calcsize(code)
    spelling, prefix, code = _scalar(module, type_id)
    return spelling, prefix, struct.calcsize(code)


def _scalar(module: Module, type_id: int) -> tuple[str, str, str]:
    opcode, operands = module.definition(type_id, Op.TYPE_INT, Op.TYPE_FLOAT)
    signed = operands[2] if opcode == Op.TYPE_INT else 0
    found = _SCALARS.get((opcode, operands[1], signed))
    if found is None:
        raise unreadable(module.name, f"type %{type_id} has no GLSL spelling")
    return found


def constant_value(module: Module, identifier: int) -> tuple[str, int | float]:
    """Return the type and the value of a scalar constant."""
    opcode, operands = module.definition(identifier)
    if opcode in (Op.SPEC_CONSTANT_TRUE, Op.SPEC_CONSTANT_FALSE):
        return "bool", int(opcode == Op.SPEC_CONSTANT_TRUE)
    spelling, _, code = _scalar(module, operands[0])
    raw = struct.pack(f"<{len(operands) - 2}I", *operands[2:])
    if len(raw) < struct.calcsize(code):
        raise unreadable(module.name, f"constant %{identifier} is shorter than its type")
    # A narrow value is in the low bits of its word, thus in the first bytes here.
    value: int | float = struct.unpack_from(code, raw)[0]
    return spelling, value


def constant_integer(module: Module, identifier: int) -> int:
    """Return an index or length, which must be a plain constant for a layout to be known."""
    module.definition(identifier, Op.CONSTANT)
    _, value = constant_value(module, identifier)
    if not isinstance(value, int) or value < 0:
        raise unreadable(module.name, f"constant %{identifier} is no index or length")
    return value
