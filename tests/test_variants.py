"""Which variants a spec makes, and the names they and their parts may have."""

from __future__ import annotations

import keyword
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from loom_support import Project, run_program
from shaderloom.errors import SpecError
from shaderloom.interface import Plan
from shaderloom.names import MAX_NAME, TEMPLATE_NAMES, name_problem
from shaderloom.plan import plan
from shaderloom.source import parse_source
from shaderloom.spec import check_schema
from shaderloom.toolchain import find_toolchain

SPEC = """shaderloom: 1
families:
  fill:
    op: elementwise
    template: ops/fill.comp.j2
    axes: AXES
    name: NAME
    MORE
    bindings: [{name: t_out, storage: texture3d, access: write, dtype: float}]
"""


def planned(axes: str = "{n: [1, 2]}", name: str = "fill_{n}", more: str = "") -> Plan:
    text = SPEC.replace("AXES", axes).replace("NAME", name).replace("MORE", more)
    return plan(check_schema(parse_source(text, "variants.yaml")))


def refusal(**changes: str) -> str:
    with pytest.raises(SpecError) as error:
        planned(**changes)
    return str(error.value)


def test_fault_14_a_misspelt_key_has_its_place_and_the_nearest() -> None:
    with pytest.raises(SpecError) as error:
        text = SPEC.replace("MORE", "").replace("template", "tempalte")
        check_schema(parse_source(text, "variants.yaml"))
    assert "variants.yaml:5:5: error: unknown key 'tempalte'; did you mean 'template'?" in str(
        error.value
    )


def test_fault_21_one_name_twice_names_both_origins(tiny: Project) -> None:
    tiny.replace("variants.yaml", "name: fill_{dtype}", "name: copy_{dtype}")
    ran = tiny.loom("build")
    assert ran.code == 2
    assert "'copy_half' is made twice: by copy(dtype=half) and by fill(dtype=half)" in ran.err
    assert not tiny.out.exists()


def test_fault_21_two_templates_of_one_base_name(tiny: Project) -> None:
    """``ops/copy.comp.j2`` and ``other/copy.comp.j2`` are two sources."""
    fill = (tiny.folder / "templates/ops/fill.comp.j2").read_text()
    tiny.write("templates/other/copy.comp.j2", fill)
    tiny.replace("variants.yaml", "ops/fill.comp.j2", "other/copy.comp.j2")
    tiny.build()
    files = tiny.files()
    assert b"apply_gain(y, pos)" in files["glsl/copy_half.comp"]
    assert b"vec4(value)" in files["glsl/fill_half.comp"]
    assert files["spv/copy_half.spv"] != files["spv/fill_half.spv"]


def test_fault_23_an_empty_axis_is_an_error() -> None:
    assert refusal(axes="{n: [1, 2], m: []}").endswith("axis 'm' has no values")


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ("exclude: [{n: 3}]", "axis 'n' has no value '3'"),
        ("exclude: [{n: '1'}]", "axis 'n' has no value '1'"),
        ("exclude: [{m: 1}]", "unknown axis 'm'"),
        ("exclude: [{n: 1, m: 1}]", "unknown axis 'm'"),
        ("exclude: [{}]", "an exclusion names at least one axis"),
        ("exclude: [[1]]", "must be a mapping, not a list"),
        ("exclude: [{n: 1}, {n: 2}]", "every combination of axes is excluded"),
        ("exclude: [{n: 1}, {n: 1}]", "this exclusion matches no combination of axes"),
    ],
)
def test_fault_23_an_exclusion_that_does_not_fit_is_an_error(exclude: str, message: str) -> None:
    assert message in refusal(more=exclude)


def test_fault_23_exclusions_take_out_just_what_they_say() -> None:
    made = planned("{n: [1, 2], m: [a, b, c]}", "x_{n}_{m}", "exclude: [{n: 1, m: a}, {m: c}]")
    assert [variant.name for variant in made.variants] == ["x_1_b", "x_2_a", "x_2_b"]


SUBGROUP, ARITHMETIC = "GL_KHR_shader_subgroup_basic", "GL_KHR_shader_subgroup_arithmetic"


def test_an_extension_by_value_reaches_the_variants_with_that_value() -> None:
    by = f'{{n: {{"2": [{ARITHMETIC}], x: [{SUBGROUP}]}}, m: {{a: [GL_EXT_shader_8bit_storage]}}}}'
    more = f"requires: [{SUBGROUP}]\n    requires_by: {by}"
    made = planned("{n: [1, 2, x], m: [a, b]}", "v_{n}_{m}", more)
    assert {variant.name: variant.requires for variant in made.variants} == {
        "v_1_a": ("GL_EXT_shader_8bit_storage", SUBGROUP),
        "v_1_b": (SUBGROUP,),
        "v_2_a": ("GL_EXT_shader_8bit_storage", ARITHMETIC, SUBGROUP),
        "v_2_b": (ARITHMETIC, SUBGROUP),
        "v_x_a": ("GL_EXT_shader_8bit_storage", SUBGROUP),
        "v_x_b": (SUBGROUP,),
    }


SIZES = ["48", "-32", "{n}2", "0x20", "many", "\u0663\u0662", "1" * 5000]
SHAPES = ["16x16", "16x16x", "0x16x16", "16x8x16x1", "8 x 8 x 8", "{n}"]


@pytest.mark.parametrize("size", SIZES, ids=range(len(SIZES)))
def test_a_subgroup_size_is_a_power_of_two(size: str) -> None:
    assert "'subgroup_size' must be a power of two" in refusal(more=f"subgroup_size: '{size}'")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_matrix_shape_has_three_sizes(shape: str) -> None:
    message = "'cooperative_matrix' must be a shape MxNxK"
    assert message in refusal(more=f"cooperative_matrix: '{shape}'")


def test_sizes_and_shapes_of_an_axis() -> None:
    more = 'subgroup_size: "{n}"\n    cooperative_matrix: "16x{n}x16"'
    made = planned("{n: [8, 64]}", more=more)
    found = [(variant.subgroup_size, variant.cooperative_matrix) for variant in made.variants]
    assert sorted(found) == [(8, "16x8x16"), (64, "16x64x16")]


# Text in a flow sequence, and what it is read as; None: refused.
SCALARS: list[tuple[str, Any]] = [
    *[("1", 1), ("-7", -7), ("+3", 3), ("0", 0), ("1e5", 1e5), ("1.5", 1.5), (".5", 0.5)],
    *[("true", True), ("false", False), ("null", None), ("~", None), ("text", "text")],
    *[("'010'", "010"), ('"on"', "on"), ("'1e5'", "1e5"), ("'~'", "~")],
    *[("1x", "1x"), ("y", "y"), ("N", "N")],
    *[("1.2.3", "1.2.3"), ("-", "-"), ("e5", "e5"), ("float", "float"), ("3d", "3d")],
    *[(text, None) for text in ("010", "0x10", "0o7", "0b1", "1_000", "1:30", "-010")],
    *[(text, None) for text in ("on", "off", "yes", "no", "On", "True", "NULL")],
]


@pytest.mark.parametrize(("text", "value"), SCALARS, ids=[text for text, _ in SCALARS])
def test_fault_24_a_scalar_is_right_or_refused(text: str, value: Any) -> None:
    if text == "-":
        text = "'-'"
    if value is None and text not in ("null", "~"):
        with pytest.raises(SpecError, match="is ambiguous"):
            parse_source(f"a: {text}\n", "x.yaml")
        return
    data = parse_source(f"a: {text}\n", "x.yaml").data["a"]
    assert (type(data), data) == (type(value), value)


@pytest.mark.parametrize(
    "text",
    [
        *("a: 1\na: 2\n", "a: {b: 1, b: 2}\n", "a: 1\n'a': 2\n", "a: &x 1\nb: *x\n"),
        *("a: &x 1\n", "<<: {a: 1}\n", "a: !!int '1'\n", "a: !x 1\n", "\ta: 1\n", "a:\n\tb: 1\n"),
        *("a: 1\n---\nb: 2\n", "", "# only this\n", "a: [1\n", "? [a]\n: 1\n", "1: a\n"),
        *("a: \x07\n", "on: 1\n", "a: @b\n", "a: `b\n", "a: %b\n", "a: b: c\n"),
    ],
)
def test_fault_24_a_surprising_structure_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"^x\.yaml:\d+"):
        parse_source(text, "x.yaml")


def test_fault_24_byte_order_mark_and_line_ends_change_nothing(tiny: Project) -> None:
    tiny.build()
    before = {path: data for path, data in tiny.files().items() if "stamp" not in path}
    for path in [tiny.folder / "variants.yaml", *(tiny.folder / "templates").rglob("*.j2")]:
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    tiny.build()
    assert {path: data for path, data in tiny.files().items() if "stamp" not in path} == before


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.booleans())))
def test_fault_24_quoted_text_is_itself(data: dict[str, Any]) -> None:
    text = yaml.safe_dump(data, default_style='"', allow_unicode=False)
    if "!!" not in text and data:
        assert parse_source(text, "x.yaml").data == data


def test_fault_28_and_29_names_are_refused_with_the_reason() -> None:
    assert refusal(name="x" * MAX_NAME + "{n}").endswith("is 97 characters long; the limit is 96")
    assert "is not an identifier" in refusal(name="fill-{n}")
    assert "is a keyword of C or C++" in refusal(axes="{n: [double, static_cast]}", name="'{n}'")
    assert "are both SHADERLOOM_SHADER_FILL_A in C" in refusal(axes="{n: [A, _a]}", name="fill{n}")
    assert "differ only in case" in refusal(axes="{n: [a, A]}")


@pytest.mark.parametrize("name", TEMPLATE_NAMES)
def test_fault_29_an_axis_cannot_hide_what_templates_are_given(name: str) -> None:
    message = refusal(axes=f"{{{name}: [1, 2]}}", name=f"fill_{{{name}}}")
    assert f"axis '{name}' has the name of something every template is given" in message


C_WORDS = """
    _Bool alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast consteval
    constexpr constinit continue decltype default delete do double dynamic_cast else enum
    explicit export extern false float for friend goto if inline int long mutable namespace new
    noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert
    static_cast struct switch template this thread_local throw true try typedef typeid typename
    union unsigned using virtual void volatile wchar_t while xor xor_eq"""
GLSL_WORDS = """
    asm atomic_uint attribute bool break buffer bvec2 bvec3 case cast centroid class coherent
    common const continue default discard dmat2 dmat2x2 dmat4x3 do double dvec2 dvec3 else enum
    extern external false filter fixed flat float for fvec2 goto half highp hvec2 if iimage1D
    iimage2D iimage2DArray iimage2DMS iimage2DMSArray iimage2DRect iimage3D iimageBuffer
    iimageCube iimageCubeArray image1D image1DArray image2D image2DMS image3D imageBuffer
    imageCube in inline inout input int interface invariant isampler1D isampler1DArray
    isampler2D isampler2DMSArray isampler2DRect isampler3D isamplerBuffer isamplerCube
    isubpassInput isubpassInputMS itexture2D itexture3D itextureBuffer ivec2 ivec3 ivec4 layout
    long lowp mat2 mat2x2 mat3 mat3x4 mat4 mediump namespace noinline noperspective out output
    packed partition patch precise precision public readonly resource restrict return sample
    sampler sampler1D sampler1DArrayShadow sampler1DShadow sampler2D sampler2DArray
    sampler2DArrayShadow sampler2DMS sampler2DRect sampler2DRectShadow sampler2DShadow sampler3D
    sampler3DRect samplerBuffer samplerCube samplerCubeArrayShadow samplerCubeShadow
    samplerShadow shared short sizeof smooth static struct subpassInput subpassInputMS
    subroutine superp switch template texture1D texture2D texture2DArray texture2DMS texture3D
    textureBuffer textureCube textureCubeArray this true typedef u8vec2 uimage1D uimage2D
    uimage3D uimageBuffer uimageCube uint union unsigned usampler1D usampler2D usampler3D
    usamplerBuffer usamplerCube usubpassInput uniform using utexture2D utexture3D uvec2 uvec3
    uvec4 varying vec2 vec3 vec4 void volatile while writeonly value scale kernel tile count
    index offset stride"""


@pytest.mark.parametrize("language", ["c99", "c++17", "c++20"])
def test_fault_29_what_c_refuses_is_refused(language: str, tmp_path: Path) -> None:
    """Every name that is accepted is a struct member in C and C++."""
    accepted = [word for word in (C_WORDS + GLSL_WORDS).split() if not name_problem(word)]
    assert "kernel" in accepted
    program = "struct names {\n" + "".join(f"  int {word};\n" for word in accepted) + "};\n"
    compiler = "gcc" if language == "c99" else "g++"
    flags = [f"-std={language}", "-x", "c" if language == "c99" else "c++", "-fsyntax-only"]
    ran = run_program([compiler, *flags, "-"], tmp_path, stdin=program)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_fault_29_what_glsl_refuses_is_refused(tmp_path: Path) -> None:
    """Every name that is accepted is a global variable in GLSL."""
    accepted = [word for word in (C_WORDS + GLSL_WORDS).split() if not name_problem(word)]
    declarations = "".join(f"int {word} = 0;\n" for word in accepted)
    (tmp_path / "names.comp").write_text(f"#version 450\n{declarations}void main() {{}}\n")
    [compiler, *_] = find_toolchain().compilers()
    arguments = ["-c"] if compiler.name == "glslc" else ["-V"]
    command = compiler.command(*arguments, "names.comp", cwd=tmp_path)
    ran = run_program(command.argv, tmp_path, command.env)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("word", [*keyword.kwlist, *C_WORDS.split()])
def test_fault_29_keywords_are_refused(word: str) -> None:
    assert name_problem(word)


@given(
    st.lists(st.sampled_from(["a", "A", "b", "a_", "aB", "_b", "ab"]), unique=True, min_size=1),
    st.lists(st.sampled_from(["1", "x", "_x", "X", "1x"]), unique=True, min_size=1),
    st.sampled_from(["v{p}{q}", "v_{p}_{q}", "v{q}{p}", "v{p}"]),
)
def test_variant_names_are_unique_or_refused(p: list[str], q: list[str], name: str) -> None:
    """No two variants share a file (on any file system) or a C enumerator."""
    axes = f"{{p: [{', '.join(map(repr, p))}], q: [{', '.join(map(repr, q))}]}}"
    try:
        made = planned(axes, name)
    except SpecError:
        return
    names = [variant.name for variant in made.variants]
    assert len(names) == len(p) * len(q)
    assert len({name.lower() for name in names}) == len(names)
