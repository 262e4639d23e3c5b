"""What convolution shaders and dispatchers get wrong: each trap in a test of its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from conv_support import (
    EPILOGUES,
    Resizable,
    arguments,
    assert_right,
    case_of,
    direct,
    im2col,
    limited,
)
from runtime_support import validated_device
from shaderloom_runtime.device import Device
from shaderloom_runtime.errors import InvalidArgument
from shaderloom_runtime.ops import conv2d
from shaderloom_runtime.reference import Epilogue
from shaderloom_runtime.runner import Dispatch, pick, pick_within
from shaderloom_runtime.verify import run_case
from shaderloom_runtime.verify_conv import Convolution

K3 = (3, 3)
B1X1 = {"b1x1": True}
SCRATCHES = ("texture2d", "texture3d", "vec4_buffer")
TILES = ("one", "two")


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def every_family(channels: int, size: tuple[int, int], out_c: int) -> dict[str, Convolution]:
    """Convolutions of one input by every family and tile; depthwise ones keep the channels.

    Padding is such that any size has an output.
    """
    shape = (channels, *size)
    plain = Convolution(shape, out_c, K3, padding=(1, 1))
    families = {f"direct_{tile}": replace(plain, overrides=direct(tile)) for tile in TILES}
    families |= {f"im2col_{s}": replace(plain, overrides=im2col(s)) for s in SCRATCHES}
    families["pointwise"] = Convolution(shape, out_c, overrides={"route": "pointwise"})
    families["transposed"] = Convolution(shape, out_c, K3, (2, 2), transposed=True)
    alone = Convolution(shape, channels, (2, 4), padding=(1, 2), groups=channels)
    families["depthwise"] = alone
    families["sned"] = replace(alone, kernel=K3, stride=(2, 2))
    for side, overrides in product((3, 5), ({}, B1X1)):
        form = "b1x1" if overrides else "b4x2"
        tiled = replace(alone, kernel=(side, side), padding=(side // 2, side // 2))
        families[f"{form}_{side}"] = replace(tiled, overrides=overrides)
    return families


FAMILIES = tuple(every_family(1, (1, 1), 1))


def grids(records: Sequence[Dispatch]) -> list[tuple[int, int, int]]:
    return [record.grid for record in records]


# Channels per group that are no whole texels: upstream mixes up the groups without a word.


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize(
    ("in_group", "out_group"), [(1, 1), (1, 3), (3, 1), (2, 2), (3, 5), (5, 4), (4, 3), (6, 6)]
)
def test_channels_per_group_that_are_no_multiple_of_4(
    device: Device, in_group: int, out_group: int, tile: str
) -> None:
    conv = Convolution(
        (3 * in_group, 4, 5), 3 * out_group, K3, padding=(1, 1), groups=3, overrides=direct(tile)
    )
    shader = {"one": "conv2d_tiled_1x1_border_float", "two": "conv2d_tiled_2x2_border_float"}
    assert_right(device, conv, EPILOGUES["add_scale_clamp"], "float", [shader[tile]])


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize(("channels", "out_c", "groups"), [(6, 6, 2), (8, 16, 2), (5, 10, 5)])
def test_grouped_1x1_is_not_pointwise(
    device: Device, channels: int, out_c: int, groups: int, dtype: str
) -> None:
    """Upstream forgets the groups here; (5, 10, 5) is a depthwise multiplier."""
    conv = Convolution((channels, 4, 5), out_c, groups=groups)
    assert_right(device, conv, Epilogue(), dtype, ["conv2d_tiled_1x1_interior_{dtype}"])


GROUPED = Convolution((12, 5, 6), 12, K3, padding=(1, 1))
BY_GROUP = {
    **{
        f"direct_{tile}_{groups}": replace(GROUPED, groups=groups, overrides=direct(tile))
        for tile, groups in product(TILES, (2, 3, 6, 12))
    },
    "depthwise": replace(GROUPED, groups=12, overrides={"route": "depthwise"}),
    "b4x2": replace(GROUPED, groups=12),
    "b1x1": replace(GROUPED, groups=12, overrides=B1X1),
    "sned": replace(GROUPED, groups=12, stride=(2, 2)),
}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("family", BY_GROUP)
def test_what_is_no_number_in_one_group_stays_in_it(
    device: Device, family: str, value: float
) -> None:
    """Channels share texels with those of other groups, and 0 * NaN is NaN."""
    conv = BY_GROUP[family]
    channels, groups = conv.out_c, conv.groups
    given = arguments(conv, case_of(conv), Epilogue())
    clean = conv2d(device, **given)
    size = channels // groups
    for bad in range(groups):
        x = given["x"].copy()
        x[:, bad * size : (bad + 1) * size] = value
        got = conv2d(device, **{**given, "x": x})
        own = np.zeros(channels, bool)
        own[bad * size : (bad + 1) * size] = True
        np.testing.assert_array_equal(got[:, ~own], clean[:, ~own])
        assert not np.isfinite(got[:, own]).any()


# Edges and sizes.


@pytest.mark.parametrize("width", range(1, 10))
def test_right_edge_of_the_generic_depthwise(device: Device, width: int) -> None:
    """Upstream shifts the taps there."""
    conv = Convolution(
        (5, 4, width), 5, (7, 7), padding=(3, 3), groups=5, overrides={"route": "depthwise"}
    )
    assert_right(device, conv, Epilogue(), "float", ["conv2d_dw_float"])
    # No padding: the last output's last tap is the input's last column.
    bare = Convolution((5, 4, width), 5, (2, width), groups=5, overrides={"route": "depthwise"})
    assert_right(device, bare, Epilogue(), "float", ["conv2d_dw_float"])


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_larger_than_the_kernel(device: Device, family: str) -> None:
    """Whole windows see nothing but padding (a transposed convolution's cuts off instead)."""
    conv = every_family(6, (4, 5), 7)[family]
    padding = (1, 2) if conv.transposed else (6, 5)
    if conv.transposed:  # 3 is past a kernel of 2, and leaves (4-1)*3-6+2 = 5 rows
        conv, padding = replace(conv, kernel=(2, 2), stride=(3, 3)), (3, 3)
    assert_right(device, replace(conv, padding=padding), EPILOGUES["sub_alpha_scale"])


@pytest.mark.parametrize("family", FAMILIES)
def test_stride_larger_than_the_kernel(device: Device, family: str) -> None:
    """Inputs that no window sees (outputs of a transposed one that no input reaches)."""
    conv = replace(every_family(5, (13, 15), 6)[family], stride=(6, 7))
    assert_right(device, conv, EPILOGUES["relu"])


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("family", FAMILIES)
def test_images_of_one_pixel(device: Device, family: str, dtype: str) -> None:
    conv = every_family(6, (1, 1), 5)[family]
    assert_right(device, conv, EPILOGUES["add_scale_clamp"], dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_channel(device: Device, family: str) -> None:
    conv = every_family(1, (5, 6), 1)[family]
    assert_right(device, conv, EPILOGUES["add_scale_clamp"])


@pytest.mark.parametrize("family", FAMILIES)
def test_prime_sizes(device: Device, family: str) -> None:
    conv = every_family(13, (11, 17), 19)[family]
    assert_right(device, conv, EPILOGUES["add_leaky_relu"])


@pytest.mark.parametrize("extra", [(0, 0), (1, 0), (0, 2), (1, 2)])
def test_output_padding(device: Device, extra: tuple[int, int]) -> None:
    """Rows and columns at the end that may see no input: there the bias remains."""
    conv = Convolution((5, 3, 4), 6, (1, 2), (2, 3), transposed=True, output_padding=extra)
    assert_right(device, conv, Epilogue(), "float", ["conv_transpose2d_float"])
    given = arguments(conv, case_of(conv), Epilogue())
    got = conv2d(device, **given)
    assert got.shape == (1, 6, 5 + extra[0], 11 + extra[1])
    if extra[1]:
        last = np.broadcast_to(given["bias"].reshape(6, 1), got[0, :, :, -1].shape)
        np.testing.assert_array_equal(got[0, :, :, -1], last)


@pytest.mark.parametrize(("out_c", "dtype"), [(5, "float"), (7, "half")])
@pytest.mark.parametrize("family", FAMILIES)
def test_clamp_above_zero_leaves_padding_lanes_zero(
    device: Device, family: str, out_c: int, dtype: str
) -> None:
    """The poisoned run of ``assert_right`` reads the lanes, the packed expectation has zeros."""
    conv = every_family(out_c, (4, 5), out_c)[family]
    case = case_of(conv, EPILOGUES["add_scale_clamp"], dtype)
    assert np.all(case.expected[-1, :, :, out_c % 4 :] == 0)
    assert np.all(case.bound[-1, :, :, out_c % 4 :] == 0)
    assert_right(device, conv, Epilogue(activation="clamp", a=0.25, b=1.5), dtype)


# Device limits, which a record makes small.

TILED = Convolution((6, 19, 37), 6, K3, padding=(1, 1), groups=6)
FOLDED = {
    # a convolution, the axis of its grid that is limited, and the spare one that it spills into
    "depthwise": (
        replace(TILED, overrides={"route": "depthwise"}, limits={"max_grid_x": 5}), "x", "y"
    ),
    "depthwise_tile": (replace(TILED, limits={"max_grid_x": 1}), "x", "z"),
    "b1x1": (replace(TILED, overrides=B1X1, limits={"max_grid_x": 5}), "x", "z"),
    "sned": (replace(TILED, stride=(2, 2), limits={"max_grid_x": 2}), "x", "z"),
    "pointwise": (Convolution((6, 13, 11), 10, limits={"max_grid_y": 2}), "y", "z"),
    **{
        f"im2col_{scratch}": (
            Convolution((6, 13, 11), 10, K3, padding=(1, 1), overrides=im2col(scratch),
                        limits={"max_grid_y": 2}), "y", "z",
        )
        for scratch in SCRATCHES
    },
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("family", FOLDED)
def test_grids_past_the_limit_fold(device: Device, family: str, dtype: str) -> None:
    """A grid of 65,536 folds as one of 3 does where 2 are the most."""
    conv, *axes = FOLDED[family]
    long, spare = ("xyz".index(axis) for axis in axes)
    case = case_of(conv, EPILOGUES["add_scale_clamp"], dtype)
    whole = grids(pick(device, "conv2d", **case.problem))
    folded = grids(pick_within(device, conv.limits, "conv2d", **case.problem))
    [most] = conv.limits.values()
    for before, after in zip(whole, folded, strict=True):
        assert before[spare] == 1 < after[spare]
        assert after[long] <= most < before[long]
        assert before[long] <= after[long] * after[spare] < before[long] + after[spare]
    worst, where = run_case(device, case)
    assert worst <= 1, f"{case.label}: {where}"


def test_a_grid_of_more_than_65535_workgroups_folds(device: Device) -> None:
    """The real limit: as few as 9 million texels of depthwise convolution are past it."""
    problem = {
        "in_n": 1, "in_c": 64, "in_h": 768, "in_w": 768, "out_c": 64, "groups": 64,
        "kernel_h": 7, "kernel_w": 7, "padding_h": 3, "padding_w": 3,
    }  # fmt: skip
    with limited(device, max_grid=(65535, 65535, 65535)):
        [record] = pick(device, "conv2d", **problem)
    assert record.global_size == (768 * 768 * 16, 1, 1)
    x, y, z = record.grid
    assert (y, z) == (3, 1)
    assert 768 * 768 * 16 <= 64 * x * y < 768 * 768 * 16 + 64 * y


def test_a_grid_that_cannot_fold_is_refused(device: Device) -> None:
    conv = Convolution((4, 40, 40), 4, K3, overrides=direct("one"))
    with limited(device, max_grid=(1, 1, 1)), pytest.raises(InvalidArgument, match="workgroups"):
        pick(device, "conv2d", **conv.problem("float"))


# Textures of at most 8 texels a side: all weights are larger, bias and scale are not.
BUFFERED = {
    "conv2d_tiled_1x1_border_wbuf": Convolution(
        (6, 6, 5), 29, K3, padding=(1, 1), overrides=direct("one")
    ),
    "conv2d_tiled_1x1_interior_wbuf": Convolution((6, 6, 5), 29, K3, overrides=direct("one")),
    "conv2d_tiled_2x2_border_wbuf": Convolution(
        (6, 6, 5), 29, K3, padding=(1, 1), overrides=direct("two")
    ),
    "conv2d_tiled_2x2_interior_wbuf": Convolution((6, 6, 5), 29, K3, overrides=direct("two")),
    "conv2d_dw_wbuf": Convolution((9, 5, 6), 9, (4, 4), padding=(2, 2), groups=9),
    **{
        f"conv2d_dw_output_tile_{k}x{k}_{form}_wbuf": Convolution(
            (9, 7, 6), 9, (k, k), stride, (k // 2, k // 2), groups=9, overrides=overrides
        )
        for k in (3, 5)
        for form, stride, overrides in (
            ("b4x2", (1, 1), {}), ("b1x1", (1, 1), B1X1), ("sned", (2, 2), {}),
        )
    },
    "conv2d_pw_tiled_wbuf": Convolution((9, 4, 5), 29),
    "conv_transpose2d_wbuf": Convolution((6, 4, 3), 29, K3, (2, 2), (1, 1), transposed=True),
    **{
        f"conv2d_gemm_{name}_wbuf": Convolution(
            (3, 4, 5), 29, (1, 2), overrides=im2col(s, band_rows=1)
        )
        for s, name in zip(SCRATCHES, ("texture2d", "texture3d", "buffer"), strict=True)
    },
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("shader", BUFFERED)
def test_weights_past_the_texture_limit_take_buffers(
    device: Device, shader: str, dtype: str
) -> None:
    conv = replace(BUFFERED[shader], limits={"max_texture_2d": 8})
    given = arguments(conv, case := case_of(conv, EPILOGUES["add_scale_clamp"], dtype),
                      EPILOGUES["add_scale_clamp"])  # fmt: skip
    with limited(device, max_image_2d=8):  # the image class then holds us to it as well
        records = pick(device, "conv2d", **case.problem)
        got = conv2d(device, **given)
    assert records[-1].shader == f"{shader}_{dtype}"
    expected = case.expected.transpose(0, 3, 1, 2).reshape(-1, *case.expected.shape[1:3])
    bound = case.bound.transpose(0, 3, 1, 2).reshape(expected.shape)
    assert np.all(np.abs(got[0] - expected[: conv.out_c]) <= bound[: conv.out_c])


def test_every_buffered_variant_is_among_those(generated: Path) -> None:
    names = {path.stem for path in generated.glob("glsl/conv*_wbuf_float.comp")}
    weights = {name for name in names if "prepack" not in name}
    assert weights == {f"{name}_float" for name in BUFFERED}


# What a caller forces.

IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "transposed": ({}, "transposed"),
    "depthwise_tile": ({}, "depthwise and kernel_h == kernel_w and kernel_h in (3, 5)"),
    "depthwise": ({}, "depthwise"),
    "pointwise": ({}, "kernel_h == 1 and kernel_w == 1 and groups == 1 and not transposed"),
    "im2col": ({"groups": 2}, "groups == 1 and not transposed and (scratch_form"),
    "direct": ({"transposed": True}, "not transposed"),
}


@pytest.mark.parametrize("route", IMPOSSIBLE)
def test_a_forced_route_that_is_impossible_says_why(device: Device, route: str) -> None:
    change, needs = IMPOSSIBLE[route]
    problem = Convolution((4, 5, 5), 8, K3).problem("float") | change | {"route": route}
    message = f"conv2d: route {route} is not possible: it needs {needs}"
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        pick(device, "conv2d", **problem)


@pytest.mark.parametrize(
    ("scratch", "limit"), [("texture2d", "max_image_2d"), ("texture3d", "max_image_3d")]
)
def test_a_forced_scratch_that_cannot_be_says_why(device: Device, scratch: str, limit: str) -> None:
    """18 texels of K for a device of 16."""
    problem = Convolution((8, 3, 3), 8, K3, overrides=im2col(scratch)).problem("float")
    with limited(device, **{limit: 16}), pytest.raises(InvalidArgument, match="route im2col is"):
        pick(device, "conv2d", **problem)


@pytest.mark.parametrize(("kernel", "side"), [("3x3", 3), ("5x5", 5)])
def test_b1x1_override(device: Device, kernel: str, side: int) -> None:
    """The other tile, the same sums in the same order."""
    conv = Convolution((6, 7, 9), 6, (side, side), padding=(side // 2,) * 2, groups=6)
    epilogue = EPILOGUES["add_leaky_relu"]
    results: list[NDArray[Any]] = []
    for form, overrides in (("b4x2", {}), ("b1x1", B1X1)):
        chosen = replace(conv, overrides=overrides)
        shader = f"conv2d_dw_output_tile_{kernel}_{form}_float"
        assert_right(device, chosen, epilogue, "float", [shader])
        results.append(conv2d(device, **arguments(chosen, case_of(chosen, epilogue), epilogue)))
    one, other = results
    assert np.all(np.abs(one - other) <= 1e-5)


def test_b1x1_leaves_strides_that_differ_to_sned(device: Device) -> None:
    conv = Convolution((6, 7, 9), 6, K3, (2, 1), groups=6, overrides=B1X1)
    assert_right(device, conv, Epilogue(), "float", ["conv2d_dw_output_tile_3x3_sned_float"])


@pytest.mark.parametrize("scratch", SCRATCHES)
def test_bands_past_the_last_row_are_not_dispatched(device: Device, scratch: str) -> None:
    """Five bands of two rows for three rows: the graph fixes the count, and shapes shrink."""
    overrides = im2col(scratch, band_rows=2, band_count=5)
    conv = Convolution((5, 3, 4), 6, K3, padding=(1, 1), overrides=overrides)
    records = assert_right(device, conv, EPILOGUES["add_scale_clamp"])
    assert len(records) == 10
    assert [0 in record.grid for record in records] == [False] * 4 + [True] * 6
    if scratch != "vec4_buffer":  # images only
        with Resizable(device, case_of(conv)) as resizable:
            resizable.run(case_of(conv))
            assert resizable.recording.encoded == 4
