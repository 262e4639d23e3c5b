"""The audit: a correct project passes, and each way to break one is found."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_support import GOLDEN, Project
from shaderloom import pipeline
from shaderloom.audit import audit
from shaderloom.cache import Cache, default_folder
from shaderloom.interface import Plan, VariantPlan
from shaderloom.lints import Finding
from shaderloom.reflect import reflect, used
from shaderloom.toolchain import find_toolchain

COPY, LIB = "templates/ops/copy.comp.j2", "templates/lib/gain.glsl.j2"


@pytest.fixture(scope="module")
def proven(built: Project) -> tuple[Plan, pipeline.Proven]:
    woven = pipeline.weave(built.folder / "variants.yaml")
    options = pipeline.Options(2, Cache(default_folder()))
    return woven.plan, pipeline.prove(woven, find_toolchain(), options)


def changed(plan: Plan, family: str, change: Callable[[VariantPlan], VariantPlan]) -> Plan:
    """Return the plan with every variant of one family changed."""
    families = tuple(
        dataclasses.replace(f, variants=tuple(map(change, f.variants))) if f.name == family else f
        for f in plan.families
    )
    return dataclasses.replace(plan, families=families)


def test_the_repository_passes(built: Project, proven: tuple[Plan, pipeline.Proven]) -> None:
    plan, result = proven
    assert result.findings == ()
    assert set(result.testimony.facts) == {variant.name for variant in plan.variants}
    # Both witnesses read every module, but for those that spirv-cross may be too old for.
    matrices = {variant.name for variant in plan.variants if variant.cooperative_matrix}
    unread = result.testimony.unread.keys()
    assert unread <= matrices
    ran = built.loom("audit")
    assert (ran.code, ran.err) == (0, "")
    count = len(plan.variants)
    both = count - len(unread)
    assert f"{count} modules have the planned interface; {both} of them by both" in ran.out
    assert built.loom("audit", "--format", "json").out == "[]\n"


def swap_constants(variant: VariantPlan) -> VariantPlan:
    first, second, *rest = variant.constants
    swapped = (
        dataclasses.replace(first, id=second.id),
        dataclasses.replace(second, id=first.id),
    )
    return dataclasses.replace(variant, constants=(*swapped, *rest))


def swap_bindings(variant: VariantPlan) -> VariantPlan:
    first, second, *rest = variant.bindings
    swapped = (
        dataclasses.replace(first, binding=second.binding),
        dataclasses.replace(second, binding=first.binding),
    )
    return dataclasses.replace(variant, bindings=(*swapped, *rest))


def swap_push_constants(variant: VariantPlan) -> VariantPlan:
    push = variant.push_constants
    assert push
    first, second, *rest = push.fields
    swapped = (
        dataclasses.replace(first, offset=second.offset),
        dataclasses.replace(second, offset=first.offset),
    )
    struct = dataclasses.replace(push, fields=(*swapped, *rest))
    return dataclasses.replace(variant, push_constants=struct)


def drop_constant(variant: VariantPlan) -> VariantPlan:
    return dataclasses.replace(variant, constants=variant.constants[:-1])


def other_default(variant: VariantPlan) -> VariantPlan:
    first, *rest = variant.constants
    return dataclasses.replace(variant, constants=(dataclasses.replace(first, default=1), *rest))


def other_access(variant: VariantPlan) -> VariantPlan:
    first, *rest = variant.bindings
    read = dataclasses.replace(first, access="read")
    return dataclasses.replace(variant, bindings=(read, *rest))


def other_format(variant: VariantPlan) -> VariantPlan:
    first, *rest = variant.bindings
    dtype = {"half": "float", "float": "half"}[first.dtype]
    return dataclasses.replace(variant, bindings=(dataclasses.replace(first, dtype=dtype), *rest))


def add_binding(variant: VariantPlan) -> VariantPlan:
    more = dataclasses.replace(variant.bindings[1], binding=99, name="t_more")
    return dataclasses.replace(variant, bindings=(*variant.bindings, more))


def scatter_block(variant: VariantPlan) -> VariantPlan:
    """The block's first constant and the family's own change places."""
    return swap_constants(variant)


@pytest.mark.parametrize(
    ("change", "lint", "message"),
    [
        (swap_constants, "SL001", "specialization constant 3: name is stride_1_padding_0"),
        (scatter_block, "SL009", "the constants of block 'epilogue' are not contiguous"),
        (swap_bindings, "SL001", "binding 0: name is t_out, planned t_in"),
        (swap_push_constants, "SL001", "push constant at byte 0: name is stride_h"),
        (drop_constant, "SL001", "constant 8 (residual_op) is declared but not planned"),
        (other_default, "SL001", "specialization constant 3: default is 0, planned 1"),
        (other_access, "SL001", "binding 0: readable is False, planned True"),
        (other_format, "SL001", "binding 0: format is rgba"),
        (add_binding, "SL001", "binding 99 (t_more) is planned but not declared"),
    ],
)
def test_a_plan_that_differs_from_the_modules_fails(
    proven: tuple[Plan, pipeline.Proven],
    change: Callable[[VariantPlan], VariantPlan],
    lint: str,
    message: str,
) -> None:
    plan, result = proven
    findings = audit(changed(plan, "conv2d_pw_tiled", change), result.testimony.facts)
    subjects = {f.subject for f in findings if f.lint == lint and message in f.message}
    forms = ("float", "half", "wbuf_float", "wbuf_half")
    assert subjects == {f"conv2d_pw_tiled_{form}" for form in forms}
    assert {f.subject for f in findings} <= {*subjects, "conv2d_pw_tiled"}


def test_an_undeclared_binding_in_a_template_fails(tiny: Project) -> None:
    line = "layout(set = 0, binding = 9) uniform sampler2D t_more;"
    tiny.replace(COPY, "void main", f"{line}\nvoid main")
    ran = tiny.loom("build")
    assert ran.code == 1
    assert "binding 9 (t_more) is declared but not planned [SL001 plan-mismatch]" in ran.err
    assert not tiny.out.exists()
    assert tiny.loom("audit").code == 1
    found = json.loads(tiny.loom("audit", "--format", "json").out)
    assert {finding["subject"] for finding in found} == {"copy_float", "copy_half"}


def test_a_binding_of_another_set_fails(tiny: Project) -> None:
    line = "layout(set = 1, binding = 0) uniform sampler2D t_more;"
    tiny.replace(COPY, "void main", f"{line}\nvoid main")
    assert "binding 0 of set 1 (t_more) is declared but not planned" in tiny.loom("audit").err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "gain_mode == GAIN_MODE_TIMES ? y * g : y + g",
            "y * g",
            "specialization constant 4 (gain_mode) is used by no variant [SL005 dead-constant]",
        ),
        (
            " * gain_factor",
            "",
            "push constant gain_factor is used by no variant [SL007 dead-push-constant]",
        ),
        (
            "texelFetch(t_gain, pos, 0)",
            "y",
            "binding 2 (t_gain) is used by no variant [SL004 dead-binding]",
        ),
    ],
)
def test_what_no_variant_reads_is_dead(tiny: Project, old: str, new: str, message: str) -> None:
    tiny.replace(LIB, old, new)
    ran = tiny.loom("audit")
    assert (ran.code, ran.err) == (1, f"copy: error: {message}\n")


def test_one_variant_that_reads_it_is_enough(tiny: Project) -> None:
    tiny.replace(LIB, "y * g : y + g", "y * g : y + g {% if dtype == 'half' %} * 2.0{% endif %}")
    tiny.replace(COPY, "pos + shift", "pos {% if dtype == 'half' %}+ shift{% endif %}")
    assert tiny.loom("audit").code == 0


def test_fault_20_declared_and_used_are_separate_facts(tiny: Project) -> None:
    """What a host must bind is planned; what the optimiser left of it is recorded apart."""
    tiny.replace(
        "variants.yaml",
        "    push_constants: {value: float}",
        "      - {name: t_spare, storage: texture2d, access: read, keep: upstream layout}\n"
        "      - {uniform: sizes, keep: upstream layout, fields: {whcn: ivec4}}\n"
        "    constants: {spare: {type: bool, keep: upstream layout}}\n"
        "    push_constants: {value: float, gap: pad, more: {type: int, keep: upstream layout}}",
    )
    tiny.build()
    files = tiny.files()
    planned = json.loads(files["manifest.json"])["shaders"]["fill_half"]
    assert [b["name"] for b in planned["bindings"]] == ["t_out", "t_spare", "sizes"]
    assert [f["name"] for f in planned["push_constants"]["fields"]] == ["value", "gap", "more"]
    assert [c["name"] for c in planned["constants"]] == ["spare"]
    kept = json.loads(files["spv/build.json"])["shaders"]["fill_half"]["used"]
    assert kept == {
        "bindings": [0],
        "constants": [],
        "uniform_offsets": [],
        "push_constant_offsets": [0],
    }
    shipped = files["spv/fill_half.spv"]
    assert b"t_spare" not in shipped
    assert [b.binding for b in reflect(shipped, "fill_half").bindings] == [0]
    assert used(shipped, "fill_half").push_offsets == {0}
    assert b"SHADERLOOM_FILL_BINDING_SPARE = 1" in files["registry.h"]


SECOND = 'case "$1" in --revision) exec "$real" "$1";; esac\n'


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ('s/"t_in"/"t_other"/', "t_other"),
        ('s/"id" : 3/"id" : 7/', "7"),
        ('s/"binding" : 1/"binding" : 8/', "8"),
    ],
)
def test_witnesses_that_disagree_fail(tiny: Project, lie: str, message: str) -> None:
    script = tiny.program("spirv-cross", SECOND + f'"$real" "$@" | sed \'{lie}\'\n')
    ran = tiny.loom("build", SHADERLOOM_SPIRV_CROSS=script)
    assert ran.code == 1
    assert all(line.endswith("[SL003 witness-disagreement]") for line in ran.err.splitlines())
    assert "copy_half: error: " in ran.err
    assert message in ran.err
    assert not tiny.out.exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (SECOND + "echo 'no block to insert opcode' >&2; exit 1\n", "no block to insert opcode"),
        (SECOND + "exit 3\n", "exit status 3"),
        ("exit 1\n", "spirv-cross is not installed"),
        (SECOND + "echo '[]'\n", "spirv-cross wrote a reflection that is not understood"),
    ],
)
def test_one_witness_is_said_and_recorded(tiny: Project, script: str, reason: str) -> None:
    environment = {"SHADERLOOM_SPIRV_CROSS": tiny.program("spirv-cross", script)}
    tiny.build(**environment)
    shaders = json.loads((tiny.out / "spv/build.json").read_text())["shaders"]
    assert all(shader["second_witness"].startswith(reason) for shader in shaders.values())
    out = tiny.loom("audit", "--verbose", **environment).out
    assert "4 modules have the planned interface; 0 of them by both witnesses" in out
    assert f"copy_half: one witness only: {reason}" in out


def test_a_float_default_is_compared_as_32_bits(tiny: Project) -> None:
    """0.1 has no exact float; the module holds the nearest one, and so does the registry."""
    tiny.replace(
        "variants.yaml",
        "push_constants: {value: float}",
        "push_constants: {value: float}\n"
        "    constants: {a: {type: float, default: 0.1}, b: {type: uint, default: 4294967295}}",
    )
    tiny.replace("templates/ops/fill.comp.j2", "vec4(value)", "vec4(value + a + float(b))")
    tiny.build()
    assert b"UINT32_C(1036831949)" in (tiny.out / "registry.c").read_bytes()


def test_textures_and_buffers_of_bits(tiny: Project) -> None:
    """Every way to declare a ``uint`` operand compiles and is what the plan says."""
    tiny.replace(
        "variants.yaml",
        "    push_constants: {value: float}",
        "      - {name: t_flat, storage: texture2d, access: read, dtype: uint}\n"
        "      - {name: t_deep, storage: texture3d, access: read, dtype: uint}\n"
        "      - {name: t_words, storage: buffer, access: read, dtype: uint}\n"
        "      - {name: t_quads, storage: vec4_buffer, access: read, dtype: uint}\n"
        "      - {name: t_bits_flat, storage: texture2d, access: write, dtype: uint}\n"
        "      - {name: t_bits, storage: texture3d, access: write, dtype: uint}\n"
        "    push_constants: {value: float}",
    )
    tiny.replace(
        "templates/ops/fill.comp.j2",
        "void main() {",
        "void main() {\n"
        "  const ivec3 at = ivec3(gl_GlobalInvocationID);\n"
        "  const uvec4 bits = texelFetch(t_flat, at.xy, 0) ^ texelFetch(t_deep, at, 0);\n"
        "  imageStore(t_bits_flat, at.xy, bits);\n"
        "  imageStore(t_bits, at, bits ^ t_quads_data[at.x] ^ t_words_data[at.x]);",
    )
    tiny.build()
    glsl = (tiny.out / "glsl/fill_half.comp").read_text()
    for declared in (
        "uniform usampler2D t_flat;",
        "uniform usampler3D t_deep;",
        "  uint t_words_data[];",
        "  uvec4 t_quads_data[];",
        "rgba32ui) uniform writeonly uimage2D t_bits_flat;",
        "rgba32ui) uniform writeonly uimage3D t_bits;",
        "rgba16f) uniform writeonly image3D t_out;",
    ):
        assert declared in glsl, declared
    assert tiny.loom("audit", "--format", "json").out == "[]\n"


def test_findings_read_well() -> None:
    assert str(Finding("add_half", "SL007", "x is used by no variant")) == (
        "add_half: error: x is used by no variant [SL007 dead-push-constant]"
    )


@pytest.mark.parametrize("path", sorted((GOLDEN / "explain").iterdir()), ids=lambda p: p.stem)
def test_explain_equals_the_contract(built: Project, path: Path) -> None:
    """The fixture is written by hand, after the contract that hosts rely on."""
    ran = built.loom("explain", path.stem)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == path.read_text(encoding="utf-8")


def test_every_variant_can_be_explained(built: Project) -> None:
    shaders = json.loads((built.out / "manifest.json").read_text())["shaders"]
    assert "conv2d_pw_tiled_half" in shaders
    for name, shader in shaders.items():
        out = built.loom("explain", name).out
        assert all(f" {binding['name']} " in out for binding in shader["bindings"])
