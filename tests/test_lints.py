"""Every lint of a project: a spec that sets it off, one that just does not, and its level."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from loom_support import REPOSITORY, Project, Ran
from shaderloom.dtypes import EXTENSIONS, TRACES
from shaderloom.lints import LINTS
from spirv_support import compiled, shipped

SPEC = "variants.yaml"
COPY, FILL = "templates/ops/copy.comp.j2", "templates/ops/fill.comp.j2"
LIB, FRAME = "templates/lib/gain.glsl.j2", "templates/lib/frame.comp.j2"
PUSH, OUT = "push_constants: {value: float}", "- {name: t_out, storage: texture3d, access: write}\n"
SUBGROUP = "GL_KHR_shader_subgroup_basic"

Edit = tuple[str, str, str]  # file, old text, new text


@dataclass(frozen=True)
class Case:
    """What is changed of the tiny project so that the lint fires, and so that it does not."""

    lint: str
    fires: Sequence[Edit]
    silent: Sequence[Edit]
    says: str
    subject: str = "fill"


def fill_push(members: str) -> Edit:
    """The push constants of fill, all but ``value`` kept for later."""
    return SPEC, PUSH, f"push_constants: {{{members}}}"


def fill_bindings(lines: Sequence[str], template: str = "vec4(value)") -> list[Edit]:
    """More bindings of fill: the last ``bindings`` of the spec is its."""
    text = "".join(f"      - {line}\n" for line in lines)
    return [(SPEC, f"    {PUSH}", f"{text}    {PUSH}"), (FILL, "vec4(value)", template)]


def kept(count: int, type_: str) -> str:
    return ", ".join(f"k{i}: {{type: {type_}, keep: later}}" for i in range(count))


def buffers(count: int) -> list[str]:
    return [
        f"{{name: t_b{i}, storage: buffer, access: read, dtype: float, keep: later}}"
        for i in range(count)
    ]


def big_uniform(vectors: int) -> list[str]:
    fields = ", ".join(f"u{i}: ivec4" for i in range(vectors))
    return [f"{{uniform: many, keep: later, fields: {{{fields}}}}}"]


def shared(vectors: int) -> list[Edit]:
    tile = f"shared vec4 tile[{vectors}];\nvoid main() {{\n  tile[gl_LocalInvocationIndex] ="
    return [
        (FILL, "void main() {", f"{tile} vec4(value);\n  barrier();"),
        (FILL, "vec4(value));", "tile[0]);"),
    ]


def product(shape: str) -> list[Edit]:
    """A product of cooperative matrices, which fill stores an element of."""
    m, n, k = shape.split("x")
    a, b, c = (
        f"coopmat<float, gl_ScopeSubgroup, {rows}, {columns}, gl_MatrixUse{use}>(value)"
        for rows, columns, use in ((m, k, "A"), (k, n, "B"), (m, n, "Accumulator"))
    )
    extensions = "GL_KHR_cooperative_matrix, GL_KHR_memory_scope_semantics"
    needs = f"{PUSH}\n    requires: [{extensions}]\n    target_env: vulkan1.2"
    return [
        (SPEC, PUSH, needs),
        (FILL, "void main", "#pragma use_vulkan_memory_model\nvoid main"),
        (FILL, "vec4(value)", f"vec4(coopMatMulAdd({a}, {b}, {c})[0])"),
    ]


def of_shape(shape: str) -> Edit:
    return SPEC, PUSH, f"{PUSH}\n    cooperative_matrix: {shape}"


USES_SUBGROUP = [
    (FRAME, "{{ extensions }}", f"{{{{ extensions }}}}\n#extension {SUBGROUP} : require"),
    (FILL, "vec4(value)", "vec4(value + float(gl_SubgroupInvocationID))"),
]
FAR = "layout(constant_id = {}) const int far = 0;\nvoid main"
SIZES = ["{uniform: sizes, fields: {whcn: ivec4, more: %s}}"]
SECOND = "absent: t_in}\n      - {name: t_more, storage: texture3d, access: read, keep: later%s}"
MORE_SAMPLER = "layout(set = 0, binding = 1) uniform sampler2D t_more;\nvoid main"

CASES = (
    Case(
        "SL001",
        [(FILL, "void main", MORE_SAMPLER)],
        fill_bindings(["{name: t_more, storage: texture2d, access: read, keep: later}"]),
        "binding 1 (t_more) is declared but not planned",
    ),
    Case(
        "SL004",
        [(LIB, "texelFetch(t_gain, pos, 0)", "y")],
        [
            (LIB, "texelFetch(t_gain, pos, 0)", "y"),
            (SPEC, "absent: t_in}", "absent: t_in, keep: later}"),
        ],
        "binding 2 (t_gain) is used by no variant",
        "copy",
    ),
    Case(
        "SL005",
        [(LIB, "gain_mode == GAIN_MODE_TIMES ? y * g : y + g", "y * g")],
        [
            (LIB, "gain_mode == GAIN_MODE_TIMES ? y * g : y + g", "y * g"),
            (SPEC, "gain_mode: GainMode", "gain_mode: {type: GainMode, keep: later}"),
        ],
        "specialization constant 4 (gain_mode) is used by no variant",
        "copy",
    ),
    Case(
        "SL006",
        fill_bindings([SIZES[0] % "int"], "vec4(value + float(whcn.x))"),
        fill_bindings([SIZES[0] % "{type: int, keep: later}"], "vec4(value + float(whcn.x))"),
        "uniform member more of sizes is used by no variant",
    ),
    Case(
        "SL007",
        [(LIB, " * gain_factor", "")],
        [
            (LIB, " * gain_factor", ""),
            (SPEC, "gain_factor: float", "gain_factor: {type: float, keep: later}"),
        ],
        "push constant gain_factor is used by no variant",
        "copy",
    ),
    Case(
        "SL008",
        [(FILL, "void main", FAR.format(9)), (FILL, "vec4(value)", "vec4(value + float(far))")],
        [
            (SPEC, PUSH, f"{PUSH}\n    constants: {{far: int}}"),
            (FILL, "vec4(value)", "vec4(value + float(far))"),
        ],
        "specialization constant IDs [9] are not contiguous from 3",
    ),
    Case(
        "SL009",
        [(SPEC, "absent: t_in}", SECOND % ", binding: 9")],
        [(SPEC, "absent: t_in}", SECOND % "")],
        "the bindings of block 'gain' are not contiguous: [2, 9]",
        "copy",
    ),
    Case(
        "SL010",
        [(SPEC, "absent: t_in", "absent: t_out")],
        [],
        "absent operand of 't_gain': 't_out' is a texture3d storage image",
        "",
    ),
    Case(
        "SL011",
        [fill_push(f"{kept(8, 'ivec4')}, value: float")],
        [fill_push(f"{kept(7, 'ivec4')}, value: float")],
        "push constants take 132 bytes of 128",
    ),
    Case(
        "SL012",
        [fill_push(f"value: float, {kept(1, 'ivec2')}")],
        [fill_push(f"value: float, gap: pad, {kept(1, 'ivec2')}")],
        "push constants have a hole before k0: bytes 4 to 7; declare a pad",
    ),
    Case(
        "SL013",
        fill_bindings(big_uniform(1025)),
        fill_bindings(big_uniform(1024)),
        "uniform block many takes 16400 bytes of 16384",
    ),
    Case(
        "SL014",
        fill_bindings(buffers(5)),
        fill_bindings(buffers(4)),
        "5 storage buffers; a device may take only 4",
    ),
    Case(
        "SL015",
        USES_SUBGROUP,
        [*USES_SUBGROUP, (SPEC, PUSH, f"{PUSH}\n    requires: [{SUBGROUP}]")],
        "it needs the capability GroupNonUniform, and 'requires' does not say so; "
        "GL_KHR_shader_subgroup_arithmetic or GL_KHR_shader_subgroup_basic would explain it",
    ),
    Case(
        "SL016",
        [(SPEC, PUSH, f"{PUSH}\n    requires: [{SUBGROUP}]")],
        [*USES_SUBGROUP, (SPEC, PUSH, f"{PUSH}\n    requires: [{SUBGROUP}]")],
        f"'requires' names {SUBGROUP}, and no variant needs it",
    ),
    Case(
        "SL017",
        [(FRAME, "{{ interface }}", "{{ interface | replace('x_id = 0', 'x_id = 7') }}")],
        [(FRAME, "{{ interface }}", "{{ interface | replace('x_id = 0', 'x_id=0') }}")],
        "local size IDs are (7, 1, 2), not (0, 1, 2)",
        "",
    ),
    Case("SL018", shared(1025), shared(1024), "shared memory takes 16400 bytes of 16384"),
    Case(
        "SL022",
        [*product("16x8x32"), of_shape("16x32x8")],
        [*product("16x8x32"), of_shape("16x8x32")],
        "cooperative matrices are A 16x32, B 32x8, accumulator 16x8, planned 16x32x8",
    ),
)

ROUTED = """shaderloom: 1
enums: {DataType: {float: 0, half: 1}}
device:
  max_invocations: {type: int, default: 128}
  max_local: {type: [x, y, z], default: 64}
  max_grid: {type: [x, y, z], default: 65535}
local_sizes: {line: [{size: [64, 1, 1]}]}
families:
  fill:
    op: fill
    template: ops/fill.comp.j2
    axes: {dtype: [float, half], step: [1, 2]}
    name: fill_{step}_{dtype}
    bindings:
      - {name: t_out, storage: texture3d, access: write}
    push_constants: {value: float}
    dispatch:
      axes: {step: 1 if n < 5 else 2}
      global: [n, 1, 1]
      local: line
      extent: [n, 1, 1]
ops:
  fill:
    problem: {n: int, value: float, dtype: {type: DataType, default: float}}
    routes: [{route: only, take: fill}]
"""
BY_STEP = (FILL, "vec4(value)", "vec4(value * {{ step }}.0)")
EXCLUDE = (SPEC, "    name: fill_", "    exclude: [{dtype: half, step: 2}]\n    name: fill_")
ROUTED_CASES = (
    Case("SL019", [BY_STEP, EXCLUDE], [BY_STEP], "the rules can ask for fill(dtype=half, step=2)"),
    Case(
        "SL020",
        [BY_STEP, (SPEC, "{step: 1 if n < 5 else 2}", "{step: 1}")],
        [BY_STEP],
        "no route can reach it: the axes of its family never have its values",
    ),
    Case("SL021", [], [BY_STEP], "its module is also that of fill_2_float"),
)


def apply(project: Project, edits: Sequence[Edit]) -> None:
    for path, old, new in edits:
        project.replace(path, old, new)


def found(ran: Ran) -> dict[str, list[Mapping[str, str]]]:
    """Return the findings of ``audit --format json`` by lint."""
    result: dict[str, list[Mapping[str, str]]] = {}
    for finding in json.loads(ran.out):
        result.setdefault(finding["lint"], []).append(finding)
    return result


def check(project: Project, case: Case) -> None:
    apply(project, case.fires)
    ran = project.loom("audit", "--format", "json")
    lint = LINTS[case.lint]
    if lint.fixed:
        assert ran.code == 2
        assert re.search(rf"{re.escape(case.says)}.* \[{case.lint}\]$", ran.err, re.MULTILINE)
        return
    findings = found(ran)
    assert case.lint in findings, (ran.out, ran.err)
    for finding in findings[case.lint]:
        assert (finding["name"], finding["level"]) == (lint.name, lint.level)
        assert finding["subject"].startswith(case.subject)
        assert (finding["file"], int(finding["line"]) > 0) == (SPEC, True)
    assert any(case.says in finding["message"] for finding in findings[case.lint])
    levels = {finding["level"] for each in findings.values() for finding in each}
    assert ran.code == int("error" in levels)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.lint)
def test_a_spec_sets_it_off(tiny: Project, case: Case) -> None:
    check(tiny, case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.lint)
def test_a_spec_that_is_nearly_the_same_does_not(tiny: Project, case: Case) -> None:
    apply(tiny, case.silent)
    ran = tiny.loom("audit", "--format", "json")
    assert (ran.code, ran.out, ran.err) == (0, "[]\n", "")


@pytest.mark.parametrize("case", ROUTED_CASES, ids=lambda case: case.lint)
def test_lints_over_routes(tiny: Project, case: Case) -> None:
    tiny.write(SPEC, ROUTED)
    check(tiny, case)


@pytest.mark.parametrize("case", ROUTED_CASES, ids=lambda case: case.lint)
def test_lints_over_routes_that_do_not_fire(tiny: Project, case: Case) -> None:
    tiny.write(SPEC, ROUTED)
    apply(tiny, case.silent)
    ran = tiny.loom("audit", "--format", "json")
    assert (ran.code, ran.out, ran.err) == (0, "[]\n", "")


def test_a_family_that_no_route_takes_is_unreachable(tiny: Project) -> None:
    other = ROUTED.replace("local_sizes:", "local_sizes:", 1)
    families, ops = other.split("ops:\n")
    idle = families.split("families:\n")[1].split("    dispatch:")[0].replace("fill", "idle")
    idle = idle.replace("ops/idle", "ops/fill").replace("op: idle", "op: fill")
    tiny.write(SPEC, families + idle + "ops:\n" + ops)
    apply(tiny, [BY_STEP])
    findings = found(tiny.loom("audit", "--format", "json"))
    reasons = {f["subject"]: f["message"] for f in findings["SL020"]}
    names = {f"idle_{step}_{dtype}" for step in (1, 2) for dtype in ("float", "half")}
    assert reasons == dict.fromkeys(names, "no route can reach it: no route takes family idle")


OPTIMIZER = 'case "$1" in --version) exec "$real" "$1";; esac\n"$real" "$@" || exit\n'


def test_sl002_a_shipped_module_that_uses_what_is_not_declared(
    tiny: Project, tmp_path: Path
) -> None:
    """An optimiser that puts another module in the place of the one it was given."""
    source = (
        "#version 450\nlayout(constant_id = 9) const int far = 1;\n"
        "layout(local_size_x = 1) in;\n"
        "layout(set = 0, binding = 7) buffer B { int b[]; };\nvoid main() { b[far] = 1; }\n"
    )
    (tmp_path / "other.spv").write_bytes(shipped(compiled(source)))
    script = f'{OPTIMIZER}while [ "$1" != -o ]; do shift; done; cp "{tmp_path}/other.spv" "$2"\n'
    program = tiny.program("spirv-opt", script)
    ran = tiny.loom("audit", "--no-cache", "--format", "json", SHADERLOOM_SPIRV_OPT=program)
    messages = {finding["message"] for finding in found(ran)["SL002"]}
    assert messages == {
        "the shipped module uses binding 7, which is not declared",
        "the shipped module uses specialization constant 9, which is not declared",
    }


def test_sl002_an_honest_optimiser(tiny: Project) -> None:
    program = tiny.program("spirv-opt", OPTIMIZER)
    ran = tiny.loom("audit", "--no-cache", "--format", "json", SHADERLOOM_SPIRV_OPT=program)
    assert ran.out == "[]\n"


@pytest.mark.parametrize(("lie", "fires"), [('s/"id" : 3/"id" : 7/', True), ("s/a/a/", False)])
def test_sl003_witnesses(tiny: Project, lie: str, fires: bool) -> None:
    script = 'case "$1" in --revision) exec "$real" "$1";; esac\n' + f'"$real" "$@" | sed \'{lie}\''
    program = tiny.program("spirv-cross", script)
    ran = tiny.loom("audit", "--format", "json", SHADERLOOM_SPIRV_CROSS=program)
    assert set(found(ran)) == ({"SL003"} if fires else set())


def test_sl018_more_shared_memory_where_the_spec_says_so(tiny: Project) -> None:
    apply(tiny, [*shared(2048), (SPEC, PUSH, f"{PUSH}\n    shared_memory: 32768")])
    tiny.build()
    shaders = json.loads((tiny.out / "manifest.json").read_text())["shaders"]
    assert shaders["fill_half"]["shared_memory"] == 32768
    assert "shared_memory" not in shaders["copy_half"]
    tiny.replace(SPEC, "shared_memory: 32768", "shared_memory: 32767")
    assert "takes 32768 bytes of 32767 [SL018 shared-memory]" in tiny.loom("audit").err


def test_sl018_a_size_that_no_default_tells(tiny: Project) -> None:
    apply(tiny, shared(1024))
    constants = "constants: {wide: bool, rows: {type: int, default: 4}}"
    tiny.replace(SPEC, PUSH, f"{PUSH}\n    {constants}")
    tiny.replace(FILL, "tile[1024]", "tile[wide ? 8 : rows * 2]")
    assert "the size of its shared memory cannot be told [SL018" in tiny.loom("audit").err
    tiny.replace(FILL, "tile[wide ? 8 : rows * 2]", "tile[rows * 256 + 4]")
    tiny.replace(FILL, "= vec4(value)", "= vec4(value) * (wide ? 2.0 : 1.0)")
    assert "shared memory takes 16448 bytes of 16384 [SL018" in tiny.loom("audit").err


ROWS = (SPEC, PUSH, f"{PUSH}\n    constants: {{rows: {{type: int, default: 16}}}}")


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        (product("16x16x16"), "A 16x16, B 16x16, accumulator 16x16, planned none"),
        ([of_shape("16x16x16")], "none, planned 16x16x16"),
        # What a host may set is no shape, whatever the default.
        (
            [*product("rowsx16x16"), ROWS, of_shape("16x16x16")],
            "A ?x16, B 16x16, accumulator ?x16, planned 16x16x16",
        ),
    ],
)
def test_sl022_matrices_where_none_are_planned_and_the_other_way_round(
    tiny: Project, edits: Sequence[Edit], says: str
) -> None:
    apply(tiny, edits)
    ran = tiny.loom("audit")
    assert ran.code == 1
    assert f"fill_half: error: cooperative matrices are {says} [SL022 matrix-shape]" in ran.err


def test_sl009_blocks_do_not_nest(tiny: Project) -> None:
    other = "  other: {header: lib/gain.glsl.j2, constants: {c: bool}}\n"
    tiny.replace(SPEC, "families:", f"{other}families:")
    tiny.replace(SPEC, "    parameters: {gain", "      - {block: other}\n    parameters: {gain")
    ran = tiny.loom("audit")
    assert ran.code == 2
    assert "block 'gain' takes block 'other': blocks do not nest [SL009]" in ran.err


# ---- levels -------------------------------------------------------------------------------------

HOLE = fill_push(f"value: float, {kept(1, 'ivec2')}")


@pytest.mark.parametrize("where", ["spec", "family"])
@pytest.mark.parametrize(("level", "code"), [("error", 1), ("warning", 0), ('"off"', 0)])
def test_a_spec_changes_a_level(tiny: Project, where: str, level: str, code: int) -> None:
    apply(tiny, [HOLE])
    entry = f'lints: {{SL012: {{level: {level}, reason: "as upstream"}}}}'
    if where == "spec":
        tiny.replace(SPEC, "shaderloom: 1", f"shaderloom: 1\n{entry}")
    else:
        tiny.replace(SPEC, "  fill:\n", f"  fill:\n    {entry}\n")
    ran = tiny.loom("audit")
    assert ran.code == code
    shown = level.strip('"')
    assert (f"fill_half: {shown}: push constants have a hole" in ran.err) == (shown != "off")
    assert tiny.loom("build").code == code


def test_a_family_counts_before_the_spec_and_for_itself_alone(tiny: Project) -> None:
    apply(tiny, [HOLE, (LIB, " * gain_factor", "")])
    spec = "lints: {SL012: {level: warning, reason: a}, SL007: {level: warning, reason: b}}"
    tiny.replace(SPEC, "shaderloom: 1", f"shaderloom: 1\n{spec}")
    tiny.replace(SPEC, "  fill:\n", "  fill:\n    lints: {SL007: {level: error, reason: c}}\n")
    ran = tiny.loom("audit")
    assert "copy: warning: push constant gain_factor" in ran.err
    assert ran.code == 0
    tiny.replace(SPEC, "  copy:\n", "  copy:\n    lints: {SL007: {level: error, reason: c}}\n")
    assert tiny.loom("audit").code == 1


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("SL012: {level: warning}", "missing key 'reason'"),
        ('SL012: {level: warning, reason: " "}', "the reason for the level of 'SL012' is empty"),
        ("SL012: {level: never, reason: x}", "'level' must be 'error', 'warning' or 'off'"),
        ("SL012: {level: off, reason: x}", "'off' is ambiguous; write true or false, or quote it"),
        ("SL0012: {level: error, reason: x}", "unknown lint 'SL0012'; did you mean 'SL0"),
        ("SL010: {level: warning, reason: x}", "the level of SL010 (absent-operand) cannot be"),
        ("SL103: {level: warning, reason: x}", "the level of SL103 (orphan-file) cannot be"),
    ],
)
def test_levels_are_checked(tiny: Project, entry: str, message: str) -> None:
    tiny.replace(SPEC, "shaderloom: 1", f"shaderloom: 1\nlints: {{{entry}}}")
    ran = tiny.loom("audit")
    assert ran.code == 2
    assert ran.err.startswith(f"{SPEC}:2:")
    assert message in ran.err


# ---- all of them --------------------------------------------------------------------------------


def test_every_lint_of_a_project_has_a_case() -> None:
    cases = {case.lint for case in (*CASES, *ROUTED_CASES)} | {"SL002", "SL003"}
    assert cases == {lint for lint in LINTS if "SL001" <= lint < "SL100"}


def test_every_extension_has_its_traces() -> None:
    assert set(TRACES) == set(EXTENSIONS)


def test_every_lint_has_its_section_in_the_documentation() -> None:
    page = (REPOSITORY / "docs/lints.md").read_text(encoding="utf-8")
    sections = re.findall(r"^### (SL\d+) ([a-z-]+)\n\n(\w+)[,.]", page, re.MULTILINE)
    assert sections == [(lint.id, lint.name, lint.level.capitalize()) for lint in LINTS.values()]
    for part in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        assert "Why:" in part, part
        assert "Fix:" in part, part
        assert "Example:" in part, part


def test_the_audit_of_the_whole_library_takes_under_two_seconds(built: Project) -> None:
    """All of it is cached; processor time, since other tests run beside this one."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        assert built.loom("audit").code == 0
        seconds.append(time.process_time() - started)
    assert min(seconds) < 2
