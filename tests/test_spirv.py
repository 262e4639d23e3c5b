"""The SPIR-V reader: tables, ids told from literals, and SpirvError alone on any bytes."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shaderloom.errors import SpirvError
from shaderloom.reflect import reflect, used
from shaderloom.spirv import MAX_BOUND, read_module
from spirv_support import COOPMAT, EVERYTHING, compiled, disassembled, shipped

MAGIC = 0x07230203

LITERALS = """#version 450
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
layout(local_size_x_id = 0) in;
layout(constant_id = 3) const int size = 4;
layout(set = 0, binding = 0) coherent buffer Data { int data[]; };
layout(set = 0, binding = 1) uniform sampler2D image;
shared float rows[size * 2];
struct Pair { ivec2 a; vec3 b; };
int pick(inout Pair pair, int i) {
  switch (i) { case 7: return pair.a.y; case 9: return int(pair.b.z); default: return 1; }
}
void main() {
  Pair pair = Pair(ivec2(data.length()), vec3(rows[size]));
  pair.b = clamp(pair.b.zxy, 0.0, float(gl_WorkGroupSize.x));
  for (int i = 0; i < size; ++i) { rows[i] = textureLod(image, pair.b.xy, 0.5).w; }
  barrier();
  data[2] = pick(pair, data[1]) + subgroupAdd(data[3]) + subgroupInclusiveMax(data[4]);
  data[5] = int(subgroupBallotBitCount(subgroupBallot(data[6] > 2)));
  atomicAdd(data[7], bitfieldExtract(data[8], 2, 3));
}
"""


def module(*instructions: tuple[int, ...], bound: int = 50) -> bytes:
    """Encode instructions, each its opcode and operands, after a header."""
    words = [MAGIC, 0x10300, 0, bound, 0]
    for opcode, *operands in instructions:
        words += [len(operands) + 1 << 16 | opcode, *operands]
    return struct.pack(f"<{len(words)}I", *words)


def text(value: str) -> tuple[int, ...]:
    data = value.encode() + b"\0" * (4 - len(value.encode()) % 4)
    return struct.unpack(f"<{len(data) // 4}I", data)


def swapped(data: bytes) -> bytes:
    count = len(data) // 4
    return struct.pack(f">{count}I", *struct.unpack(f"<{count}I", data))


def test_tables_of_a_module() -> None:
    read = read_module(compiled(EVERYTHING, "glslang"), "a.spv")
    assert read.version == (1, 3)
    assert [(entry.model, entry.name) for entry in read.entry_points] == [(5, "main")]
    assert read.entry_points[0].function in read.names
    assert read.capabilities == ("Shader",)
    block = next(key for key, name in read.names.items() if name == "in_sizes")
    assert read.member_names[block, 2] == "stride"
    assert read.member_decoration(block, 2, 35) == 24  # Offset
    assert read.decoration(block, 2) == 0  # Block has no operand
    assert read.decoration(block, 3) is None
    assert read.head[-1].opcode != 54
    assert read.body[0].opcode == 54


def test_capabilities_and_extensions_of_a_cooperative_matrix_module() -> None:
    read = read_module(compiled(COOPMAT, "glslang", "vulkan1.3"), "c.spv")
    assert {"Float16", "CooperativeMatrixKHR", "VulkanMemoryModel"} <= set(read.capabilities)
    assert read.extensions == ("SPV_KHR_cooperative_matrix",)


def test_an_unknown_capability_is_a_number() -> None:
    assert read_module(module((17, 1), (17, 6442)), "x").capabilities == ("Shader", "6442")


@pytest.mark.parametrize("ship", [False, True])
@pytest.mark.parametrize(
    ("source", "target"),
    [(EVERYTHING, "vulkan1.1"), (LITERALS, "vulkan1.1"), (COOPMAT, "vulkan1.3")],
)
def test_ids_are_told_from_literals_as_spirv_dis_does(source: str, target: str, ship: bool) -> None:
    data = compiled(source, "glslang", target)
    data = shipped(data) if ship else data
    read = read_module(data, "a.spv")
    lines = disassembled(data)
    instructions = read.head + read.body
    assert len(lines) == len(instructions)
    for line, instruction in zip(lines, instructions, strict=True):
        # Labels and interfaces are not followed: OpSwitch and OpEntryPoint have them as literals.
        if "OpSwitch" in line or "OpEntryPoint" in line:
            continue
        expected = sorted(int(found) for found in re.findall(r"%(\d+)", line))
        assert sorted(read.references(instruction)) == expected, line


def test_every_word_of_an_unknown_opcode_may_be_an_id() -> None:
    read = read_module(module((60000, 3, 50, 0, 49)), "x")
    assert read.references(read.head[0]) == (3, 49)


@pytest.mark.parametrize("source", [EVERYTHING, LITERALS])
def test_a_big_endian_module_reads_the_same(source: str) -> None:
    data = compiled(source, "glslang")
    little, big = read_module(data, "a"), read_module(swapped(data), "a")
    assert (little.head, little.body, little.names) == (big.head, big.body, big.names)
    assert reflect(data, "a") == reflect(swapped(data), "a")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x03\x02\x23\x07\x00", "no multiple of 4"),
        (module()[:16], "16 bytes end within the header"),
        (b"#version 450\n     layout(", "no SPIR-V: it starts with 23766572"),
        (module(bound=0), "id bound 0 is not in"),
        (module(bound=MAX_BOUND + 1), "id bound 4194304 is not in"),
        (module() + struct.pack("<I", 19), "opcode 19 at word 5 has no length"),
        (module((19, 1))[:-4], "opcode 19 at word 5 runs past the end of the file"),
        (module((21, 1, 32)), "opcode 21 at word 5 has 2 operands, needs 3"),
        (module((19, 50)), "uses an id outside 1..49"),
        (module((27, 1, 0)), "uses an id outside 1..49"),
        (module((54, 1, 2, 0, 3), (128, 1, 4, 5, 99)), "opcode 128 at word 10 uses an id outside"),
        (module((19, 1), (20, 1)), "opcode 20 at word 7 defines id %1 a second time"),
        (module((5, 1, 0x64636261)), "a string is not terminated"),
        (module((10, 0x64636261)), "a string is not terminated"),
        (module((5, 1, 0x000000FF)), "a string is not UTF-8"),
        (module((71, 1, 33)), "decoration 33 of 1 has no operand"),
        (module((72, 1, 2, 35)), "decoration 35 of (1, 2) has no operand"),
        (module((73, 1), (74, 1, 2)), "decoration groups"),
    ],
)
def test_malformed_modules_say_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(SpirvError, match=re.escape(message)) as caught:
        read_module(data, "broken.spv")
    assert caught.value.diagnostics[0].position.file == "broken.spv"


def only_spirv_error(data: bytes) -> bool:
    """Read with all readers; tell whether any refused. Anything but SpirvError escapes."""
    refused = False
    readers: tuple[Callable[[bytes, str], object], ...] = (read_module, reflect, used)
    for reader in readers:
        try:
            reader(data, "fuzz.spv")
        except SpirvError:
            refused = True
    return refused


def mutated(data: bytes, rng: random.Random) -> bytes:
    words = list(struct.unpack(f"<{len(data) // 4}I", data))
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(1, len(words))
        match rng.randrange(6):
            case 0:
                words[at] ^= 1 << rng.randrange(32)
            case 1:
                words[at] = rng.choice((0, 1, 2, 0xFFFFFFFF, 0x7FFFFFFF, rng.randrange(200)))
            case 2:
                words[at] = rng.choice(words)
            case 3:
                del words[at : at + rng.choice((1, 2, 5))]
            case 4:
                words[at:at] = words[at : at + rng.randrange(1, 12)]
            case 5:
                # Another opcode of the same length.
                words[at] = words[at] & 0xFFFF0000 | rng.randrange(400)
        if len(words) < 6:
            break
    return struct.pack(f"<{len(words)}I", *words)


def test_mutated_modules_raise_nothing_but_spirv_error() -> None:
    rng = random.Random(20)
    unoptimised = compiled(EVERYTHING, "glslang")
    seeds = [shipped(unoptimised), unoptimised, compiled(COOPMAT, "glslang", "vulkan1.3")]
    refusals = sum(only_spirv_error(mutated(rng.choice(seeds), rng)) for _ in range(3000))
    assert 300 < refusals < 3000  # else the mutations are too mild or too wild to test anything


def test_truncated_modules_raise_nothing_but_spirv_error() -> None:
    data = shipped(compiled(EVERYTHING, "glslang"))
    for size in range(0, len(data), 4):
        only_spirv_error(data[:size])


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 60).map(lambda n: n << 16 | 43)))
def test_any_words_raise_nothing_but_spirv_error(words: list[int]) -> None:
    header = [MAGIC, 0x10300, 0, 100, 0]
    only_spirv_error(struct.pack(f"<{len(words) + 5}I", *header, *words))


@given(st.binary(max_size=64))
def test_any_bytes_raise_nothing_but_spirv_error(data: bytes) -> None:
    assert only_spirv_error(data)


def block(*types: tuple[int, ...], struct_type: int) -> bytes:
    """A module whose push constant block is the struct type with this id."""
    offsets = [(72, t[1], i, 35, 0) for t in types if t[0] == 30 for i in range(len(t) - 2)]
    strides = [(71, t[1], 6, 4) for t in types if t[0] == 28]
    pointer, variable = 98, 99
    return module(
        (15, 5, 97, *text("main")),
        *offsets,
        *strides,
        *types,
        (32, pointer, 9, struct_type),
        (59, pointer, variable, 9),
        bound=100,
    )


def test_a_struct_that_holds_itself_is_refused() -> None:
    with pytest.raises(SpirvError, match="too deep"):
        reflect(block((30, 1, 1, 1), struct_type=1), "cycle.spv")


def test_structs_shared_many_times_are_read_once() -> None:
    # Sixteen levels of twenty members each: 20**16 if every path were walked.
    levels = [(30, level, *[level - 1] * 20) for level in range(2, 16)]
    read = reflect(block((21, 1, 32, 1), *levels, struct_type=15), "dag.spv")
    assert len(read.push_constants) == 20
    assert read.push_constants[0].size == 4


def test_arrays_nested_without_end_are_refused() -> None:
    levels = [(28, level, level - 1, 2) for level in range(4, 40)]
    types = ((21, 1, 32, 1), (43, 1, 2, 3), (28, 3, 1, 2), *levels, (30, 50, 39))
    with pytest.raises(SpirvError, match="too deep"):
        reflect(block(*types, struct_type=50), "arrays.spv")


def test_a_block_of_too_many_members_is_refused() -> None:
    with pytest.raises(SpirvError, match="5000 members"):
        reflect(block((21, 1, 32, 1), (30, 2, *[1] * 5000), struct_type=2), "wide.spv")


def test_an_array_of_negative_length_is_refused() -> None:
    types = ((21, 1, 32, 1), (43, 1, 2, 0xFFFFFFFE), (28, 3, 1, 2), (30, 4, 3))
    with pytest.raises(SpirvError, match="constant %2 is no index or length"):
        reflect(block(*types, struct_type=4), "negative.spv")


def test_a_constant_shorter_than_its_type_is_refused() -> None:
    data = module((15, 5, 9, *text("main")), (71, 2, 1, 3), (21, 1, 64, 1), (50, 1, 2, 7))
    with pytest.raises(SpirvError, match="constant %2 is shorter than its type"):
        reflect(data, "short.spv")
