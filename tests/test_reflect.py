"""Both witnesses: what modules declare, what they use, and that the two readers agree."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shaderloom import witness
from shaderloom.cache import Cache
from shaderloom.compile import Module
from shaderloom.errors import SpirvError
from shaderloom.interface import (
    Field,
    Kind,
    ReflectedBinding,
    ReflectedConstant,
    Reflection,
    Used,
)
from shaderloom.reflect import reflect, used
from shaderloom.spirv import unreadable
from shaderloom.spirv_cross import disagreements, parse_spirv_cross
from shaderloom.toolchain import find_toolchain
from spirv_support import (
    COOPMAT,
    EVERYTHING,
    assembled,
    compiled,
    shipped,
    spirv_cross,
)

COMPILERS = ["glslc", "glslang"]


def image(
    binding: int, name: str, kind: Kind, dim: str, *, image_format: str = "", access: str = "r"
) -> ReflectedBinding:
    readable, writable = "r" in access, "w" in access
    return ReflectedBinding(0, binding, name, kind, dim, image_format, readable, writable)


def buffer(binding: int, name: str, access: str) -> ReflectedBinding:
    return image(binding, name, Kind.STORAGE_BUFFER, "buffer", access=access)


def uniform(binding: int, name: str, *fields: Field) -> ReflectedBinding:
    return ReflectedBinding(
        0, binding, name, Kind.UNIFORM_BUFFER, "buffer", "", True, False, fields
    )


SAMPLED, STORAGE = Kind.SAMPLED_IMAGE, Kind.STORAGE_IMAGE
DECLARED = Reflection(
    bindings=(
        image(0, "t_out", STORAGE, "3d", image_format="rgba16f", access="w"),
        image(1, "t_in", SAMPLED, "3d"),
        image(2, "t_weight", SAMPLED, "2d"),
        image(3, "t_unused", SAMPLED, "2d"),
        buffer(4, "Source", "r"),
        buffer(5, "Target", "w"),
        uniform(
            6,
            "in_sizes",
            Field("sizes", "ivec4", 0, 16),
            Field("group", "int", 16, 4),
            Field("stride", "ivec2", 24, 8),
            Field("unused_vector", "vec3", 32, 12),
            Field("flag", "uint", 44, 4),
            Field("taps", "int[3]", 48, 48),
            Field("turn", "mat3", 96, 48),
        ),
        uniform(7, "unused_block", Field("nothing", "ivec4", 0, 16)),
        image(8, "t_scale", STORAGE, "2d", image_format="rgba32f", access="r"),
        image(9, "t_counts", STORAGE, "2d", image_format="r32ui", access="rw"),
        buffer(10, "Both", "rw"),
    ),
    constants=(
        ReflectedConstant(3, "has_bias", "bool", 0),
        ReflectedConstant(4, "shift", "int", -2),
        ReflectedConstant(5, "count", "uint", 3000000000),
        ReflectedConstant(6, "alpha", "float", 0.10000000149011612),
        ReflectedConstant(7, "unused_flag", "bool", 1),
    ),
    push_constants=(
        Field("padding", "ivec2", 0, 8),
        Field("unused_push", "int", 8, 4),
        Field("low", "vec4", 16, 16),
        Field("high", "float", 32, 4),
    ),
    local_size_ids=(0, 1, 2),
)


def second(data: bytes, folder: Path) -> Reflection:
    """Ask the second witness."""
    path = folder / "module.spv"
    path.write_bytes(data)
    told = subprocess.run([spirv_cross(), path, "--reflect"], capture_output=True, check=False)
    if told.returncode != 0:
        raise unreadable("module.spv", "spirv-cross cannot read this module")
    return parse_spirv_cross(told.stdout.decode(), "module.spv")


def shader(declarations: str, body: str = "", local_size: str = "local_size_x = 1") -> str:
    return f"#version 450\nlayout({local_size}) in;\n{declarations}\nvoid main() {{ {body} }}\n"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_unoptimised_module_declares_everything_with_names(compiler: str) -> None:
    assert reflect(compiled(EVERYTHING, compiler), "a.spv") == DECLARED


@pytest.mark.parametrize("compiler", COMPILERS)
def test_fault_20_declared_and_used_are_separate_facts(compiler: str) -> None:
    unoptimised = compiled(EVERYTHING, compiler)
    ship = shipped(unoptimised)
    # Only the unoptimised module tells what is declared, and only the shipped one what is used.
    assert reflect(unoptimised, "a.spv") == DECLARED
    left = reflect(ship, "a.spv")
    assert {b.binding for b in DECLARED.bindings} - {b.binding for b in left.bindings} == {3, 7}
    assert {b.name for b in left.bindings} == {""}
    assert [c.id for c in left.constants] == [3, 4, 5, 6]
    assert used(ship, "a.spv") == Used(
        bindings=frozenset({0, 1, 2, 4, 5, 6, 8, 9, 10}),
        constants=frozenset({3, 4, 5, 6}),
        uniform_offsets=frozenset({(6, 0), (6, 24), (6, 96)}),
        push_offsets=frozenset({0, 32}),
    )


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("ship", [False, True])
def test_the_two_witnesses_agree(compiler: str, ship: bool, tmp_path: Path) -> None:
    data = compiled(EVERYTHING, compiler)
    data = shipped(data) if ship else data
    other = second(data, tmp_path)
    assert disagreements(reflect(data, "a.spv"), other) == ()
    if not ship:
        assert other == DECLARED


LAYOUTS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
layout(constant_id = 3) const uint16_t narrow = uint16_t(65535);
layout(constant_id = 4) const int8_t negative = int8_t(-3);
layout(constant_id = 5) const double exact = 0.1;
layout(constant_id = 6) const int64_t wide = -5000000000l;
layout(constant_id = 7) const float16_t half_ = 0.1hf;
layout(constant_id = 8) const float tiny = 1e-42;
layout(constant_id = 9) const int lowest = -2147483647 - 1;
struct Inner { ivec4 a; float b; };
layout(set = 0, binding = 0, std140) uniform Layouts {
  Inner inner;
  Inner inners[2];
  ivec2 grid[2][3];
  layout(row_major) mat2x3 rows;
  mat4x3 columns;
  mat2 turns[2];
  int64_t wide_field;
  f16vec2 halves;
  uint8_t byte;
  dvec2 doubles;
  bvec2 flags;
  i64vec2 wides;
  u8vec4 bytes;
};
layout(push_constant) uniform Push {
  layout(offset = 16) vec4 later;
  layout(offset = 4) int sooner;
  float16_t half_push;
};
layout(set = 0, binding = 1) uniform sampler2DArray layers;
layout(set = 0, binding = 2) uniform isampler2DMS samples;
layout(set = 0, binding = 3) uniform samplerCubeShadow cube;
layout(set = 0, binding = 4) uniform writeonly image2D unknown;
layout(set = 0, binding = 5) buffer Mixed { readonly ivec4 head; float rest[]; };
layout(set = 1, binding = 5) coherent restrict readonly writeonly buffer Neither { int none; };
"""


def test_layouts_beyond_the_planned_ones_agree_too(tmp_path: Path) -> None:
    data = compiled(shader(LAYOUTS), "glslang")
    read = reflect(data, "a.spv")
    assert read.bindings[0].fields == (
        Field("inner", "struct", 0, 20),
        Field("inners", "struct[2]", 32, 64),
        Field("grid", "ivec2[2][3]", 96, 96),
        Field("rows", "mat2x3", 192, 48),
        Field("columns", "mat4x3", 240, 64),
        Field("turns", "mat2[2]", 304, 64),
        Field("wide_field", "int64_t", 368, 8),
        Field("halves", "f16vec2", 376, 4),
        Field("byte", "uint8_t", 380, 1),
        Field("doubles", "dvec2", 384, 16),
        Field("flags", "uvec2", 400, 8),
        Field("wides", "i64vec2", 416, 16),
        Field("bytes", "u8vec4", 432, 4),
    )
    assert [(f.name, f.offset) for f in read.push_constants] == [
        ("sooner", 4),
        ("half_push", 8),
        ("later", 16),
    ]
    assert [b.dim for b in read.bindings[1:5]] == ["2darray", "2dms", "cube", "2d"]
    assert read.bindings[4].format == ""
    assert read.bindings[5:] == (
        buffer(5, "Mixed", "rw"),
        dataclasses.replace(buffer(5, "Neither", ""), set=1),
    )
    assert [(c.type, c.default) for c in read.constants] == [
        ("uint16_t", 65535),
        ("int8_t", -3),
        ("double", 0.1),
        ("int64_t", -5000000000),
        ("float16_t", 0.0999755859375),
        ("float", 1.0005271035279194e-42),
        ("int", -2147483648),
    ]
    other = second(data, tmp_path)
    assert disagreements(read, other) == ()
    # spirv-cross leaves out the defaults of types that are not 32 bits wide.
    assert [math.isnan(c.default) for c in other.constants] == [True] * 5 + [False] * 2


@pytest.mark.parametrize("target", ["vulkan1.1", "vulkan1.3"])
@pytest.mark.parametrize(
    ("local_size", "ids"),
    [
        ("local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 4", (0, 1, 4)),
        ("local_size_x_id = 9, local_size_y = 4, local_size_z_id = 1", (9, 1)),
        ("local_size_x = 8, local_size_y = 4", ()),
    ],
)
def test_local_size_ids_come_from_the_built_in_or_the_mode(
    target: str, local_size: str, ids: tuple[int, ...], tmp_path: Path
) -> None:
    # In SPIR-V 1.6 (vulkan1.3) reading gl_WorkGroupSize declares the same ids a second time.
    source = shader(
        "layout(constant_id = 2) const int two = 2;\n"
        "layout(set = 0, binding = 0) buffer Out { uint t_out[]; };",
        "t_out[two] = gl_WorkGroupSize.x + gl_WorkGroupSize.z;",
        local_size,
    )
    data = compiled(source, "glslang", target)
    read = reflect(data, "a.spv")
    assert read.local_size_ids == ids
    # Constant 2 is not of the local size here, whatever its number.
    assert read.constants == (ReflectedConstant(2, "two", "int", 2),)
    assert used(shipped(data), "a.spv").constants == {2}
    assert disagreements(read, second(data, tmp_path)) == ()


def test_a_cooperative_matrix_module_is_read_by_the_first_witness_only(tmp_path: Path) -> None:
    data = compiled(COOPMAT, "glslang", "vulkan1.3")
    assert reflect(data, "c.spv") == Reflection(
        bindings=(
            buffer(0, "Out", "w"),
            buffer(1, "In", "r"),
            uniform(2, "sizes", Field("mnk", "ivec4", 0, 16), Field("unused_field", "int", 16, 4)),
        ),
        constants=(ReflectedConstant(3, "twice", "bool", 0),),
        push_constants=(),
        local_size_ids=(0, 1, 2),
    )
    assert used(shipped(data), "c.spv") == Used(
        frozenset({0, 1, 2}), frozenset({3}), frozenset({(2, 0)}), frozenset()
    )
    # spirv-cross 1.3.239 throws here; a later one may learn to read it and must then agree.
    try:
        other = second(data, tmp_path)
    except SpirvError as error:
        assert "spirv-cross cannot read this module" in str(error)
        assert "module.spv" in error.diagnostics[0].position.file
    else:
        assert disagreements(reflect(data, "c.spv"), other) == ()


def test_a_constant_counts_through_types_and_other_constants() -> None:
    source = shader(
        "layout(constant_id = 3) const int size = 4;\n"
        "layout(constant_id = 4) const int index = 1;\n"
        "layout(constant_id = 5) const int never = 1;\n"
        "shared float rows[size * 2];\n"
        "layout(set = 0, binding = 0) buffer Out { float t_out[]; };",
        "rows[gl_LocalInvocationIndex] = 1; barrier(); t_out[0] = rows[index + 1];",
    )
    # Unoptimised on purpose: constant 5 is declared there and still is not used.
    data = compiled(source)
    assert [c.id for c in reflect(data, "a.spv").constants] == [3, 4, 5]
    assert used(data, "a.spv").constants == {3, 4}


def test_a_literal_equal_to_an_id_is_no_use() -> None:
    # %7 is a specialization constant; OpCompositeExtract's literal 7 is not.
    text = (
        HEADER
        + """
        OpDecorate %7 SpecId 3
        %1 = OpTypeVoid
        %2 = OpTypeFunction %1
        %3 = OpTypeInt 32 0
        %4 = OpConstant %3 8
        %5 = OpTypeArray %3 %4
        %6 = OpConstantNull %5
        %7 = OpSpecConstant %3 1
        %main = OpFunction %1 None %2
        %9 = OpLabel
        %10 = OpCompositeExtract %3 %6 7
        OpReturn
        OpFunctionEnd
    """
    )
    data = assembled(text, "--preserve-numeric-ids")
    assert used(data, "a.spv").constants == frozenset()


def test_a_block_taken_whole_uses_all_its_fields() -> None:
    source = shader(
        "struct Sizes { ivec4 a; ivec4 b; };\n"
        "layout(set = 0, binding = 0) uniform Outer { Sizes sizes; int after; };\n"
        "layout(set = 0, binding = 1) buffer Out { ivec4 t_out[]; };\n"
        "layout(push_constant) uniform Push { int i; int j; } push;",
        "t_out[push.j] = sizes.b;",
    )
    assert used(shipped(compiled(source)), "a.spv") == Used(
        frozenset({0, 1}), frozenset(), frozenset({(0, 0)}), frozenset({4})
    )
    whole = assembled(BLOCK.format(how="%10 = OpLoad %4 %6"))
    assert used(whole, "a.spv").uniform_offsets == {(1, 0), (1, 4)}
    copied = assembled(BLOCK.format(how="%10 = OpCopyObject %5 %6"))
    assert used(copied, "a.spv").uniform_offsets == {(1, 0), (1, 4)}
    chained = assembled(BLOCK.format(how="%10 = OpInBoundsAccessChain %7 %6 %8"))
    assert used(chained, "a.spv").uniform_offsets == {(1, 4)}
    untouched = assembled(BLOCK.format(how=""))
    assert used(untouched, "a.spv") == Used(frozenset(), frozenset(), frozenset(), frozenset())


HEADER = """
    OpCapability Shader
    OpMemoryModel Logical GLSL450
    OpEntryPoint GLCompute %main "main"
    OpExecutionMode %main LocalSize 1 1 1
"""
BLOCK = (
    HEADER
    + """
    OpDecorate %6 DescriptorSet 0
    OpDecorate %6 Binding 1
    OpDecorate %4 Block
    OpMemberDecorate %4 0 Offset 0
    OpMemberDecorate %4 1 Offset 4
    %1 = OpTypeVoid
    %2 = OpTypeFunction %1
    %3 = OpTypeInt 32 0
    %4 = OpTypeStruct %3 %3
    %5 = OpTypePointer Uniform %4
    %6 = OpVariable %5 Uniform
    %7 = OpTypePointer Uniform %3
    %8 = OpConstant %3 1
    %main = OpFunction %1 None %2
    %9 = OpLabel
    {how}
    OpReturn
    OpFunctionEnd
"""
)


def test_a_storage_buffer_of_old_spirv_and_access_flags_on_the_variable(tmp_path: Path) -> None:
    text = BLOCK.format(how="").replace("%4 Block", "%4 BufferBlock")
    assert reflect(assembled(text), "a.spv").bindings == (buffer(1, "", "rw"),)
    flagged = assembled(text.replace("OpDecorate %6 Binding 1", "OpDecorate %6 Binding 1\n"
                                     "OpDecorate %6 NonWritable"))  # fmt: skip
    assert reflect(flagged, "a.spv").bindings == (buffer(1, "", "r"),)
    assert disagreements(reflect(flagged, "a.spv"), second(flagged, tmp_path)) == ()


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("layout(set=0, binding=0) uniform samplerBuffer texels;", "'texels' is a texel buffer"),
        (
            "layout(set=0, binding=0, r32f) uniform imageBuffer texels;",
            "'texels' is a texel buffer",
        ),
        ("layout(set=0, binding=0) uniform texture2D apart;", "'apart' is a texture by itself"),
        ("layout(set=0, binding=0) uniform sampler apart;", "'apart' is a sampler by itself"),
        (
            "layout(set=0, binding=0) uniform sampler2D many[2];",
            "'many' is an array of descriptors",
        ),
        (
            "layout(set=0, binding=0) buffer Many { int x; } many[2];",
            "'many' is an array of descriptors",
        ),
        (
            "layout(constant_id=3) const int n = 2;\n"
            "layout(set=0, binding=0) uniform Sized { ivec4 x[n]; };",
            "is not defined as its use requires",
        ),
    ],
)
def test_what_no_kind_describes_is_refused_by_both_witnesses(
    declaration: str, message: str, tmp_path: Path
) -> None:
    data = compiled(shader(declaration), "glslang")
    with pytest.raises(SpirvError, match=message):
        reflect(data, "a.spv")
    with pytest.raises(SpirvError):
        second(data, tmp_path)


def test_only_one_compute_entry_point_is_read() -> None:
    fragment = "#version 450\nlayout(location = 0) out vec4 c;\nvoid main() { c = vec4(1); }\n"
    with pytest.raises(SpirvError, match=r"one compute entry point .* fragment"):
        reflect(compiled(fragment, stage="frag"), "a.spv")
    none = assembled("OpCapability Shader\nOpCapability Linkage\nOpMemoryModel Logical GLSL450")
    with pytest.raises(SpirvError, match="it has none"):
        used(none, "a.spv")


def test_a_descriptor_without_a_number_is_refused() -> None:
    text = BLOCK.format(how="").replace("OpDecorate %6 Binding 1", "")
    with pytest.raises(SpirvError, match="lacks a DescriptorSet or Binding"):
        reflect(assembled(text), "a.spv")


def test_a_member_without_an_offset_is_refused() -> None:
    text = BLOCK.format(how="").replace("OpMemberDecorate %4 1 Offset 4", "")
    with pytest.raises(SpirvError, match=r"member 1 of block '%.*' has no Offset"):
        reflect(assembled(text), "a.spv")


def changed(item: Any, **values: Any) -> Any:
    return dataclasses.replace(item, **values)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (
            changed(DECLARED, bindings=DECLARED.bindings[1:]),
            "binding (set, number) (0, 0) is seen by our reader only",
        ),
        (
            changed(DECLARED, bindings=(*DECLARED.bindings, buffer(11, "More", "r"))),
            "binding (set, number) (0, 11) is seen by spirv-cross only",
        ),
        (
            changed(
                DECLARED,
                bindings=(changed(DECLARED.bindings[0], readable=True), *DECLARED.bindings[1:]),
            ),
            "binding (set, number) (0, 0): readable is False to our reader, True to spirv-cross",
        ),
        (
            changed(
                DECLARED,
                bindings=(
                    *DECLARED.bindings[:7],
                    uniform(7, "unused_block", Field("nothing", "uvec4", 0, 16)),
                    *DECLARED.bindings[8:],
                ),
            ),
            "binding (0, 7) field at offset 0: type is 'ivec4' to our reader, "
            "'uvec4' to spirv-cross",
        ),
        (
            changed(
                DECLARED,
                constants=(changed(DECLARED.constants[0], default=1), *DECLARED.constants[1:]),
            ),
            "specialization constant 3: default is 0 to our reader, 1 to spirv-cross",
        ),
        (
            changed(DECLARED, push_constants=DECLARED.push_constants[:-1]),
            "push constant at offset 32 is seen by our reader only",
        ),
        (
            changed(DECLARED, local_size_ids=(0, 1)),
            "the local size: ids is (0, 1, 2) to our reader, (0, 1) to spirv-cross",
        ),
    ],
)
def test_each_disagreement_is_one_sentence(other: Reflection, sentence: str) -> None:
    assert disagreements(DECLARED, other) == (sentence,)


def test_what_a_witness_cannot_know_is_no_disagreement() -> None:
    constant = ReflectedConstant(3, "", "int64_t", 5)
    first = Reflection((buffer(0, "", "r"),), (constant,), (), ())
    other = Reflection(
        (buffer(0, "_69_71", "r"),),
        (changed(constant, name="_12", default=math.nan),),
        (),
        (),
    )
    assert disagreements(first, other) == ()
    # The other way round it is one: our reader always knows.
    assert len(disagreements(other, first)) == 3


def test_an_infinite_default_is_unreadable_json_not_a_wrong_fact(tmp_path: Path) -> None:
    source = shader("layout(constant_id = 3) const float limit = 1.0 / 0.0;")
    data = compiled(source, "glslang")
    assert reflect(data, "a.spv").constants[0].default == math.inf
    with pytest.raises(SpirvError, match="not understood"):
        second(data, tmp_path)


ENTRY = {
    "name": "main",
    "mode": "comp",
    "workgroup_size": [1, 1, 1],
    "workgroup_size_is_spec_constant_id": [False] * 3,
}


@pytest.mark.parametrize(
    "document",
    [
        "",
        "[]",
        "{}",
        "[" * 100000,
        json.dumps({"entryPoints": []}),
        json.dumps({"entryPoints": [{**ENTRY, "mode": "frag"}]}),
        json.dumps({"entryPoints": [ENTRY], "ubos": [{"name": "a", "set": 0, "binding": 0}]}),
        json.dumps({"entryPoints": [ENTRY], "images": [{"name": "a", "type": "image9D"}]}),
    ],
)
def test_other_json_is_a_spirv_error(document: str) -> None:
    with pytest.raises(SpirvError, match=r"a\.spv: error: spirv-cross wrote"):
        parse_spirv_cross(document, "a.spv")


def test_a_module_that_spirv_cross_cannot_tell_has_one_witness() -> None:
    toolchain = find_toolchain()
    compiler, tool = toolchain.compilers()[0], toolchain.need("spirv-cross")
    plain = compiled(EVERYTHING)
    infinite = compiled(shader("layout(constant_id = 3) const float x = 1.0 / 0.0;"), "glslang")
    modules = [
        Module("plain", compiler, plain, plain),
        Module("infinite", compiler, infinite, infinite),
    ]
    told = witness.testify(modules, tool, Cache(None), 2)
    assert set(told.facts) == {"plain", "infinite"}
    assert set(told.unread) == {"infinite"}
    assert "not understood" in told.unread["infinite"]
    alone = witness.testify(modules, None, Cache(None), 2)
    assert alone.unread["plain"] == "spirv-cross is not installed"
    assert alone.facts["plain"].declared == told.facts["plain"].declared
