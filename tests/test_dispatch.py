"""The dispatchers: C, Python and the interpreter agree, and each rule does what it says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dispatch_harness import Harness, build_program, load_dispatcher
from shaderloom.pipeline import Woven, committed, weave
from shaderloom.source import parse_source

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def woven() -> Woven:
    return weave(ROOT / "variants.yaml")


@pytest.fixture(scope="module")
def generated(woven: Woven, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    for path, data in committed(woven).items():
        if path.startswith(("dispatch.", "registry.")):
            (folder / path).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def dispatch(generated: Path) -> ModuleType:
    return load_dispatcher(generated / "dispatch.py")


def harness(woven: Woven, generated: Path, folder: Path, *compiler: str) -> Harness:
    assert woven.decisions is not None
    program = build_program(woven.decisions, generated, folder, compiler)
    return Harness(woven.decisions, woven.plan.enums, generated, program)


@pytest.mark.parametrize(
    "compiler", [("gcc", "-std=c99"), ("clang", "-std=c99"), ("clang", "-x", "c++", "-std=c++17")]
)
def test_c_python_and_interpreter_agree(
    compiler: tuple[str, ...], woven: Woven, generated: Path, tmp_path: Path
) -> None:
    outcome = harness(woven, generated, tmp_path, *compiler).compare(7_000, 7, interpret_every=5)
    assert outcome.differences == []
    assert set(outcome.counts) == {"dispatched", "refused", "arithmetic error"}
    assert outcome.counts["dispatched"] > 1_000


def test_a_block_in_a_problem_is_its_fields_in_place(woven: Woven, tmp_path: Path) -> None:
    """Spelled out where the block stands, they make the same dispatchers to the byte."""
    data = parse_source((ROOT / "variants.yaml").read_text(encoding="utf-8"), "variants.yaml").data
    fields = data["blocks"]["epilogue"].pop("problem")
    assert "epilogue" in list(data["ops"]["conv2d"]["problem"])[:-1]  # others follow it
    for op in data["ops"].values():
        parts = [
            fields if field == "block" else {name: field} for name, field in op["problem"].items()
        ]
        op["problem"] = {name: field for part in parts for name, field in part.items()}
    shutil.copytree(ROOT / "templates", tmp_path / "templates")
    (tmp_path / "variants.yaml").write_text(json.dumps(data), encoding="utf-8")
    spelled, short = committed(weave(tmp_path / "variants.yaml")), committed(woven)
    for name in ("dispatch.h", "dispatch.c", "dispatch.py"):
        assert spelled[name] == short[name], name


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("dispatch.c", "loom_fit(ctx, d, 8, 8, 1, local)", "loom_fit(ctx, d, 8, 4, 1, local)"),
        ("dispatch.c", "in_n == 1", "in_n <= 1"),
        ("dispatch.c", "fitted[0] >= fitted[1] &&", "fitted[0] > fitted[1] &&"),
        ("dispatch.py", "* p.stride_h", "* p.stride_w"),
        ("dispatch.py", 'p.has_scale else "bias"', 'p.has_scale else "in"'),
    ],
)
def test_a_changed_rule_is_noticed(
    file: str, before: str, after: str, woven: Woven, generated: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "generated"
    changed.mkdir()
    for path in generated.iterdir():
        if path.is_file():
            (changed / path.name).write_bytes(path.read_bytes())
    text = (changed / file).read_text()
    assert before in text
    (changed / file).write_text(text.replace(before, after))
    outcome = harness(woven, changed, tmp_path, "gcc", "-std=c99").compare(
        7_000, 7, interpret_every=1
    )
    assert outcome.differences


def test_the_command_that_compares_a_million_runs() -> None:
    command = [sys.executable, ROOT / "scripts/compare_dispatchers.py", "--problems", "700"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1].startswith("700 problems: 0 differences (")


def test_the_dispatcher_needs_the_standard_library_only(generated: Path) -> None:
    code = (
        "import sys, importlib.util as u;"
        f"s = u.spec_from_file_location('dispatch', {str(generated / 'dispatch.py')!r});"
        "m = u.module_from_spec(s); sys.modules['dispatch'] = m; s.loader.exec_module(m);"
        "print(m.pick_clamp(m.ClampProblem(1, 1, 1, 1, 0.0, 6.0), m.Device())[0].shader)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "clamp_float\n"


# ---- local sizes, grids and limits --------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((29, 115, 32), (4, 2, 8)),  # upstream's own two examples of `general`
        ((256, 29, 1), (32, 2, 1)),
        ((256, 28, 1), (16, 4, 1)),
        ((28, 256, 1), (4, 16, 1)),
        ((1000, 1, 1), (64, 1, 1)),
        ((1, 1000, 1), (1, 64, 1)),
        ((1, 1, 1000), (1, 64, 1)),  # the gather sends it astray; upstream does the same
        ((5, 5, 5), (8, 4, 2)),
        ((7, 3, 2), (8, 3, 2)),
        ((1, 1, 1), (64, 1, 1)),
    ],
)
def test_general_local_size(
    size: tuple[int, int, int], expected: tuple[int, int, int], dispatch: ModuleType
) -> None:
    assert dispatch._local_general(dispatch.Device(), *size) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [((6, 6, 1), (8, 8, 1)), ((5, 600, 1), (4, 16, 1)), ((600, 5, 1), (16, 4, 1))],
)
def test_square_local_size(
    size: tuple[int, int, int], expected: tuple[int, int, int], dispatch: ModuleType
) -> None:
    assert dispatch._local_square(dispatch.Device(), *size) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, (8, 8, 1)),
        ({"max_invocations": 32}, (4, 8, 1)),
        ({"max_invocations": 1}, (1, 1, 1)),
        ({"max_local_x": 4}, (4, 8, 1)),
        ({"max_local_x": 0, "max_local_y": -5, "max_invocations": 0}, (1, 1, 1)),
    ],
)
def test_local_sizes_fit_the_device(
    limits: dict[str, int], expected: tuple[int, int, int], dispatch: ModuleType
) -> None:
    assert dispatch._local_square(dispatch.Device(**limits), 64, 64, 1) == expected


@pytest.fixture
def conv(dispatch: ModuleType) -> Callable[..., Any]:
    """Pick a 1x1 convolution of 8 to 8 channels on 8x8 pixels, with changes; its first record."""

    def pick(device: dict[str, Any] | None = None, **changes: Any) -> Any:
        return pick_all(dispatch, device or {}, **changes)[0]

    return pick


def pick_all(dispatch: ModuleType, device: dict[str, Any], **changes: Any) -> Any:
    base = {"in_n": 1, "in_c": 8, "in_h": 8, "in_w": 8, "out_c": 8, "kernel_h": 1, "kernel_w": 1}
    problem = dispatch.Conv2dProblem(**{**base, **changes})
    return dispatch.pick_conv2d(problem, dispatch.Device(**device))


def test_a_grid_past_the_limit_folds_into_z(conv: Callable[..., Any]) -> None:
    plain = conv(in_h=200, in_w=200)
    assert plain.global_size == (2, 10_000, 1)
    assert plain.grid == (1, 625, 1)
    folded = conv({"max_grid_y": 100}, in_h=200, in_w=200)
    assert folded.grid == (1, 90, 7)  # 7 * 90 >= 625, both within 100
    assert (folded.local_size, folded.global_size) == (plain.local_size, plain.global_size)


def test_a_grid_that_cannot_fold_is_refused(conv: Callable[..., Any], dispatch: ModuleType) -> None:
    with pytest.raises(dispatch.DispatchError, match="a grid of 1 x 9 x 70 workgroups exceeds"):
        conv({"max_grid_y": 9, "max_grid_z": 69}, in_h=200, in_w=200)


# ---- contents of a record -----------------------------------------------------------------------


def test_a_record_is_complete(conv: Callable[..., Any]) -> None:
    record = conv(
        dtype="half", stride_h=2, padding_w=1, has_residual=True, residual_op="sub",
        residual_alpha=0.5, has_activation=True, activation_op="leaky_relu", activation_a=0.25,
    )  # fmt: skip
    assert record.shader == "conv2d_pw_tiled_half"
    assert record.spec == (
        *((0, 4), (1, 16), (2, 1)),
        *((3, 0), (4, 1), (5, 2), (6, 1), (7, 0), (8, 1)),
    )
    assert record.operands == (
        *((0, "out"), (1, "in"), (2, "weight"), (3, "bias")),
        *((4, "residual"), (5, "bias")),  # an absent scale binds the packed bias
    )
    push = "02000000 01000000 00000000 01000000 0000803e 00000000 0000003f"
    assert record.push_constants == bytes.fromhex(push)
    sizes = "08000000 08000000 08000000 01000000", "0a000000 04000000 08000000 01000000"
    assert record.uniforms == ((6, bytes.fromhex(sizes[0])), (7, bytes.fromhex(sizes[1])))


def test_absent_operands_bind_their_stand_ins(conv: Callable[..., Any]) -> None:
    slots = dict(conv().operands)
    assert (slots[4], slots[5]) == ("in", "bias")
    slots = dict(conv(has_residual=True, has_scale=True).operands)
    assert (slots[4], slots[5]) == ("residual", "scale")


def test_stride_1_padding_0_is_specialised(conv: Callable[..., Any]) -> None:
    assert dict(conv().spec)[3] == 1
    for change in ({"stride_w": 2}, {"stride_h": 2}, {"padding_h": 1}, {"padding_w": 1}):
        assert dict(conv(**change).spec)[3] == 0


def test_fault_17_a_shader_without_push_constants_has_none(woven: Woven) -> None:
    """The record says size 0, so that a host pushes nothing."""
    assert woven.decisions is not None
    sizes = {
        family.family: family.push_size for op in woven.decisions.ops for family in op.families
    }
    plans = {family.name: family.variants[0].push_constants for family in woven.plan.families}
    assert sizes == {name: struct.size if struct else 0 for name, struct in plans.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"in_n": 2}, "no convolution has batch: in_n is 2, not 1"),
        ({"groups": 3}, "in_c 8 is no multiple of groups 3"),
        ({"transposed": True, "groups": 2}, "transposed convolution has no groups: groups is 2"),
        ({"has_scale": True}, "a scale needs a residual"),
        ({"kernel_h": 9}, "the output is empty: 0 x 8"),
        ({"direct_tile": "three"}, "conv2d: direct_tile has no such value"),
        ({"band_rows": -1}, "a band is negative: -1 rows, 0 bands"),
        (
            {"band_count": 4097, "route": "im2col"},
            "conv2d: 4097 repetitions are not between 1 and 4096",
        ),
        (
            {"groups": 2, "route": "transposed"},
            "conv2d: route transposed is not possible: it needs transposed",
        ),
        ({"padding_h": 2**62}, "conv2d: an integer overflowed or was divided by zero"),
        ({"dtype": "double"}, "conv2d: dtype has no such value"),
        ({"in_h": 257}, "a side of 257 texels exceeds the device limit 256"),
    ],
)
def test_what_cannot_be_dispatched_says_why(
    changes: dict[str, Any], message: str, conv: Callable[..., Any], dispatch: ModuleType
) -> None:
    with pytest.raises(dispatch.DispatchError) as error:
        conv(**changes)
    assert str(error.value) == message


def test_an_impossible_forced_route_says_what_it_needs(
    conv: Callable[..., Any], dispatch: ModuleType
) -> None:
    assert conv(route="pointwise") == conv()
    with pytest.raises(dispatch.DispatchError, match="route pointwise is not possible: it needs"):
        conv(kernel_h=3, route="pointwise")


# ---- routes and variants ------------------------------------------------------------------------

K3 = {"kernel_h": 3, "kernel_w": 3}
K5 = {"kernel_h": 5, "kernel_w": 5}
DEPTHWISE = {"groups": 8}


@pytest.mark.parametrize(
    ("changes", "device", "shaders"),
    [
        ({}, {}, ["conv2d_pw_tiled_float"]),
        ({"stride_h": 2, "dtype": "half"}, {}, ["conv2d_pw_tiled_half"]),
        ({"groups": 2}, {}, ["conv2d_tiled_1x1_interior_float"]),  # upstream forgets the groups
        (K3, {}, ["conv2d_tiled_1x1_interior_float"]),
        ({**K3, "padding_w": 1}, {}, ["conv2d_tiled_1x1_border_float"]),
        ({**K3, "direct_tile": "two"}, {}, ["conv2d_tiled_2x2_interior_float"]),
        ({**K3, "in_h": 256, "in_w": 256}, {}, ["conv2d_tiled_2x2_interior_float"]),
        ({**K3, "groups": 2, "out_c": 128}, {}, ["conv2d_tiled_1x1_interior_float"]),
        ({**K3, "transposed": True}, {}, ["conv_transpose2d_float"]),
        ({**DEPTHWISE}, {}, ["conv2d_dw_float"]),
        ({**DEPTHWISE, **K3}, {}, ["conv2d_dw_output_tile_3x3_b4x2_float"]),
        ({**DEPTHWISE, **K5, "dtype": "half"}, {}, ["conv2d_dw_output_tile_5x5_b4x2_half"]),
        ({**DEPTHWISE, **K3, "b1x1": True}, {}, ["conv2d_dw_output_tile_3x3_b1x1_float"]),
        (
            {**DEPTHWISE, **K5},
            {"device_class": "mali"},
            ["conv2d_dw_output_tile_5x5_b1x1_float"],
        ),
        ({**DEPTHWISE, **K3, "stride_h": 2}, {}, ["conv2d_dw_output_tile_3x3_sned_float"]),
        (
            {**DEPTHWISE, **K3, "stride_h": 2, "stride_w": 2, "dilation_h": 2, "dilation_w": 2},
            {},
            ["conv2d_dw_output_tile_3x3_b4x2_float"],
        ),
        ({**DEPTHWISE, "kernel_h": 3, "kernel_w": 5}, {}, ["conv2d_dw_float"]),
        ({"groups": 8, "out_c": 16, **K3}, {}, ["conv2d_tiled_1x1_interior_float"]),
        (
            {**K3, "out_c": 128},
            {},
            ["conv2d_im2col_texture2d_float", "conv2d_gemm_texture2d_float"],
        ),
        (
            {**K3},
            {"device_class": "mali"},
            ["conv2d_im2col_buffer_float", "conv2d_gemm_buffer_float"],
        ),
        (
            {**K3, "out_c": 128},
            {"max_texture_2d": 30, "max_texture_3d": 64},
            ["conv2d_im2col_texture3d_float", "conv2d_gemm_texture3d_wbuf_float"],
        ),
        ({**K3, "out_c": 128, "dilation_h": 2}, {}, ["conv2d_tiled_1x1_interior_float"]),
        ({}, {"max_texture_2d": 7}, ["conv2d_pw_tiled_wbuf_float"]),
        (K3, {"max_texture_2d": 23}, ["conv2d_tiled_1x1_interior_wbuf_float"]),
        ({**K3, "transposed": True}, {"max_texture_2d": 23}, ["conv_transpose2d_wbuf_float"]),
        (
            {**DEPTHWISE, **K3},
            {"max_texture_2d": 8},
            ["conv2d_dw_output_tile_3x3_b4x2_wbuf_float"],
        ),
    ],
)
def test_routes(
    changes: dict[str, Any], device: dict[str, Any], shaders: list[str], dispatch: ModuleType
) -> None:
    assert [record.shader for record in pick_all(dispatch, device, **changes)] == shaders


def test_im2col_and_gemm_alternate_over_bands(dispatch: ModuleType) -> None:
    records = pick_all(dispatch, {}, **K3, in_h=12, out_c=128, band_rows=4)
    assert [r.shader.split("_")[1] for r in records] == ["im2col", "gemm"] * 3
    rows = [int.from_bytes(r.push_constants[-12:-8], "little") for r in records[::2]]
    assert rows == [0, 4, 8]  # oh_offset
    # Ten output rows: the last band holds two; a fourth one has nothing to do.
    assert [r.global_size[1] for r in records[::2]] == [4 * 6, 4 * 6, 2 * 6]
    shrunk = pick_all(dispatch, {}, **K3, in_h=12, out_c=128, band_rows=4, band_count=4)
    assert [r.grid[1] for r in shrunk[6:]] == [0, 0]


def test_the_scratch_stays_within_its_budget(dispatch: ModuleType) -> None:
    for dtype, size in (("float", 16), ("half", 8)):
        records = pick_all(
            dispatch,
            {"max_texture_2d": 16384},
            **K3,
            in_h=256,
            in_w=256,
            in_c=256,
            out_c=128,
            dtype=dtype,
        )
        width, height, depth = records[0].out_extent
        assert 8 << 20 < width * height * depth * size <= 16 << 20


# ---- what a change means ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "reasons", "uniforms"),
    [
        ({}, (), ()),
        ({"in_w": 9, "in_h": 7}, (), (6, 7)),  # 63 pixels: the same grid, other sizes
        ({"in_h": 64, "in_w": 64}, ("grid",), (6, 7)),
        ({"activation_a": 2.0}, ("push_constants",), ()),
        ({"has_residual": True}, ("spec_constants", "operands"), ()),
        ({"dtype": "half"}, ("shader",), ()),
        ({"out_c": 32}, ("local_size", "grid"), (7,)),
        ({"stride_h": 2, "stride_w": 2}, ("spec_constants", "push_constants"), (7,)),
    ],
)
def test_reencode_reasons(
    changes: dict[str, Any],
    reasons: tuple[str, ...],
    uniforms: tuple[int, ...],
    conv: Callable[..., Any],
    dispatch: ModuleType,
) -> None:
    old, new = conv(), conv(**changes)
    assert dispatch.reencode_reasons(old, new) == reasons
    assert dispatch.changed_uniforms(old, new) == uniforms
