"""The part of SPIR-V's grammar that the loom needs: numbers, and which operands are ids.

Numbers and operand lists are those of the SPIR-V specification, section 3, and of the
extensions named beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Op:
    """The opcodes that the loom names; the others are only known by their shape below."""

    NAME = 5
    MEMBER_NAME = 6
    EXTENSION = 10
    ENTRY_POINT = 15
    EXECUTION_MODE = 16
    CAPABILITY = 17
    TYPE_BOOL = 20
    TYPE_INT = 21
    TYPE_FLOAT = 22
    TYPE_VECTOR = 23
    TYPE_MATRIX = 24
    TYPE_IMAGE = 25
    TYPE_SAMPLER = 26
    TYPE_SAMPLED_IMAGE = 27
    TYPE_ARRAY = 28
    TYPE_RUNTIME_ARRAY = 29
    TYPE_STRUCT = 30
    TYPE_POINTER = 32
    CONSTANT_TRUE = 41
    CONSTANT_FALSE = 42
    CONSTANT = 43
    CONSTANT_COMPOSITE = 44
    SPEC_CONSTANT_TRUE = 48
    SPEC_CONSTANT_FALSE = 49
    SPEC_CONSTANT = 50
    SPEC_CONSTANT_COMPOSITE = 51
    SPEC_CONSTANT_OP = 52
    FUNCTION = 54
    FUNCTION_END = 56
    VARIABLE = 59
    ACCESS_CHAIN = 65
    IN_BOUNDS_ACCESS_CHAIN = 66
    DECORATE = 71
    MEMBER_DECORATE = 72
    GROUP_DECORATE = 74
    GROUP_MEMBER_DECORATE = 75
    EXECUTION_MODE_ID = 331
    TYPE_COOPERATIVE_MATRIX = 4456  # of SPV_KHR_cooperative_matrix


class Deco:
    """Decorations (section 3.20)."""

    SPEC_ID = 1
    BLOCK = 2
    BUFFER_BLOCK = 3  # how SPIR-V 1.0 marks a storage buffer of class Uniform
    ROW_MAJOR = 4
    ARRAY_STRIDE = 6
    MATRIX_STRIDE = 7
    BUILT_IN = 11
    NON_WRITABLE = 24
    NON_READABLE = 25
    BINDING = 33
    DESCRIPTOR_SET = 34
    OFFSET = 35


DECORATIONS_WITH_OPERAND = frozenset(
    (
        *(Deco.SPEC_ID, Deco.ARRAY_STRIDE, Deco.MATRIX_STRIDE, Deco.BUILT_IN),
        *(Deco.BINDING, Deco.DESCRIPTOR_SET, Deco.OFFSET),
    )
)

CAPABILITIES = {
    0: "Matrix",
    1: "Shader",
    9: "Float16",
    10: "Float64",
    11: "Int64",
    22: "Int16",
    39: "Int8",
    43: "Sampled1D",
    44: "Image1D",
    46: "SampledBuffer",
    47: "ImageBuffer",
    50: "ImageQuery",
    55: "StorageImageReadWithoutFormat",
    56: "StorageImageWriteWithoutFormat",
    61: "GroupNonUniform",
    62: "GroupNonUniformVote",
    63: "GroupNonUniformArithmetic",
    64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle",
    66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered",
    68: "GroupNonUniformQuad",
    4433: "StorageBuffer16BitAccess",
    4434: "UniformAndStorageBuffer16BitAccess",
    4435: "StoragePushConstant16",
    4448: "StorageBuffer8BitAccess",
    4449: "UniformAndStorageBuffer8BitAccess",
    4450: "StoragePushConstant8",
    5345: "VulkanMemoryModel",
    5346: "VulkanMemoryModelDeviceScope",
    5357: "CooperativeMatrixNV",
    6016: "DotProductInputAll",
    6017: "DotProductInput4x8Bit",
    6018: "DotProductInput4x8BitPacked",
    6019: "DotProduct",
    6022: "CooperativeMatrixKHR",
}

# The operands of each opcode, one letter a word: t result type, r result, i id, l literal.
# What follows "/" may be missing; the last letter goes for all further words. OpImageFetch is
# "trii/li": type, result, image, coordinate, then maybe a mask and the ids the mask calls for.
# Literals must be told from ids: in "OpVectorShuffle %v2 %9 %a %b 0 3" the 3 is no use of %3.
# Memory operands (of OpLoad and so on) count as literals.
_PATTERNS: dict[str, tuple[Iterable[int], ...]] = {
    "": ((0, 56, 218, 219, 252, 253, 255, 317, 4416),),
    "l": ((10, 17, 330),),
    "l/l": ((2, 4),),
    "ll/l": ((3, 14),),
    "i": ((249, 254),),
    "ii": ((225,),),
    "iii": ((224,),),
    "iiii": ((228,),),
    "il": ((5, 39, 247, 256, 257),),
    "il/l": ((16, 71, 5632),),
    "il/i": ((331, 332),),
    "ill/l": ((6, 8, 72, 5633),),
    "lil/l": ((15,),),
    "ii/l": ((62, 63, 251),),
    "iil/l": ((246,),),
    "iii/l": ((64, 250),),
    "iii/li": ((99,),),
    "iii/il": ((4458,),),
    "iiii/l": ((5360,),),
    "r": ((19, 20, 26, 73, 248),),
    "rl/l": ((7, 11, 22, 31),),
    "rll": ((21,),),
    "ri": ((27, 29),),
    "ril": ((23, 24),),
    "rii": ((28,),),
    "rli": ((32,),),
    "r/i": ((30,),),
    "ri/i": ((33,),),
    "rillllll/l": ((25,),),
    "riiii": ((5358,),),
    "riiiii": ((4456,),),
    "tr": ((1, 41, 42, 46, 48, 49, 55, 5381),),
    "tr/i": ((44, 51, 80, 245),),
    "trl/l": ((43, 45, 50),),
    "trl/i": ((52, 59),),
    "trli": ((54,),),
    "tril": ((68,),),
    "tril/i": ((12,),),
    "trili/i": (range(264, 272), (342,), range(349, 365)),
    "tri/l": ((61, 81),),
    "trii/l": ((79, 82), range(4450, 4453)),
    "triii/l": (range(4453, 4456), (4459, 5359)),
    "trii/il": ((4457,),),
    "trii/li": ((87, 88, 91, 92, 95, 98),),
    "triii/li": ((89, 90, 93, 94, 96, 97),),
    "tri/i": (
        (57, 60, *range(65, 68), 70, 77, 78, 83, 84, 86),
        range(100, 108),
        range(109, 125),
        range(126, 152),
        range(154, 192),
        range(194, 206),
        range(207, 216),
        (227, *range(229, 243), 261, 262, 263),
        range(333, 342),
        range(343, 349),
        (365, 366, *range(400, 404)),
        (4421, 4422, 4428, 4429, 4430, 4432, 4460, 5361, 5362, 5614, 5615, 6035),
    ),
}


class Shape(NamedTuple):
    """Where the operands of an opcode are ids: ``spans`` of word indices, result included."""

    required: int
    result: int  # index of the result id, -1 if there is none
    spans: tuple[tuple[int, int | None], ...]


def _shape(pattern: str) -> Shape:
    letters = pattern.replace("/", "")
    spans: list[tuple[int, int | None]] = []
    start = 0
    while start < len(letters):
        stop = start
        while stop < len(letters) and letters[stop] != "l":
            stop += 1
        if stop > start:
            # The last letter repeats: a span that reaches the end is open.
            spans.append((start, None if stop == len(letters) else stop))
        start = stop + 1
    return Shape(len(pattern.partition("/")[0]), letters.find("r"), tuple(spans))


_SHAPES = {
    opcode: _shape(pattern)
    for pattern, groups in _PATTERNS.items()
    for group in groups
    for opcode in group
}
# OpSpecConstantOp takes the operands of the opcode in its third word: these have literals.
_SPEC_OP_SHAPES = {79: _shape("trlii/l"), 81: _shape("trli/l"), 82: _shape("trlii/l")}


def find_shape(opcode: int, operands: Sequence[int]) -> Shape | None:
    """Return the shape of an instruction with these operands, ``None`` if it is not known."""
    if opcode == Op.SPEC_CONSTANT_OP and len(operands) > 2 and operands[2] in _SPEC_OP_SHAPES:
        return _SPEC_OP_SHAPES[operands[2]]
    return _SHAPES.get(opcode)
