"""The 204 cases: five epilogues, two dtypes, twenty shapes and routes, and four resizes.

``pytest -m conv_matrix`` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from conv_support import EPILOGUES, Resizable, assert_right, case_of, direct, im2col
from runtime_support import validated_device
from shaderloom_runtime.device import Device
from shaderloom_runtime.verify_conv import Convolution

pytestmark = pytest.mark.conv_matrix

K3, K5, K7 = (3, 3), (5, 5), (7, 7)


@dataclass(frozen=True)
class Shape:
    """A convolution and the shaders that it must dispatch, without their dtype."""

    conv: Convolution
    shaders: tuple[str, ...]

    def dispatched(self) -> tuple[str, ...]:
        return tuple(f"{name}_{{dtype}}" for name in self.shaders)


def gemm(storage: str, bands: int = 1) -> tuple[str, ...]:
    return (f"conv2d_im2col_{storage}", f"conv2d_gemm_{storage}") * bands


def tile(kernel: str, form: str) -> tuple[str, ...]:
    return (f"conv2d_dw_output_tile_{kernel}_{form}",)


B1X1 = {"b1x1": True}
SHAPES: Mapping[str, Shape] = {
    # One per route, of whole texels and tiles.
    "direct_1x1": Shape(
        Convolution((8, 6, 5), 12, K3, padding=(1, 1), overrides=direct("one")),
        ("conv2d_tiled_1x1_border",),
    ),
    "direct_2x2": Shape(
        Convolution((8, 8, 6), 16, K3, padding=(1, 1), overrides=direct("two")),
        ("conv2d_tiled_2x2_border",),
    ),
    "pointwise": Shape(Convolution((8, 4, 6), 12), ("conv2d_pw_tiled",)),
    "im2col_texture2d": Shape(
        Convolution((8, 6, 6), 8, K3, padding=(1, 1), overrides=im2col("texture2d")),
        gemm("texture2d"),
    ),
    "im2col_texture3d": Shape(
        Convolution((8, 6, 6), 8, K3, padding=(1, 1), overrides=im2col("texture3d")),
        gemm("texture3d"),
    ),
    "im2col_buffer": Shape(
        Convolution((8, 6, 6), 8, K3, padding=(1, 1), overrides=im2col("vec4_buffer")),
        gemm("buffer"),
    ),
    "depthwise_7x7": Shape(Convolution((8, 9, 8), 8, K7, padding=(3, 3), groups=8), ("conv2d_dw",)),
    "depthwise_3x3_b4x2": Shape(
        Convolution((8, 6, 8), 8, K3, padding=(1, 1), groups=8), tile("3x3", "b4x2")
    ),
    "depthwise_3x3_b1x1": Shape(
        Convolution((8, 6, 8), 8, K3, padding=(1, 1), groups=8, overrides=B1X1),
        tile("3x3", "b1x1"),
    ),
    "depthwise_5x5_b4x2": Shape(
        Convolution((8, 6, 8), 8, K5, padding=(2, 2), groups=8), tile("5x5", "b4x2")
    ),
    "depthwise_5x5_b1x1": Shape(
        Convolution((8, 6, 8), 8, K5, padding=(2, 2), groups=8, overrides=B1X1),
        tile("5x5", "b1x1"),
    ),
    "depthwise_sned": Shape(
        Convolution((8, 11, 9), 8, K3, (2, 2), (1, 1), (1, 1), groups=8), tile("3x3", "sned")
    ),
    "transposed": Shape(
        Convolution((8, 4, 5), 8, K3, (2, 2), (1, 1), transposed=True, output_padding=(1, 1)),
        ("conv_transpose2d",),
    ),
    # Texels or tiles that are partly outside of the output.
    "direct_partial": Shape(
        Convolution((7, 7, 5), 11, K3, overrides=direct("two")), ("conv2d_tiled_2x2_interior",)
    ),
    "pointwise_partial": Shape(Convolution((7, 3, 5), 10), ("conv2d_pw_tiled",)),
    "im2col_partial": Shape(
        Convolution((7, 7, 5), 10, K3, padding=(1, 1), overrides=im2col("texture2d", band_rows=3)),
        gemm("texture2d", bands=3),
    ),
    "depthwise_partial": Shape(
        Convolution((7, 7, 9), 7, K3, padding=(1, 1), groups=7), tile("3x3", "b4x2")
    ),
    "transposed_partial": Shape(
        Convolution((7, 4, 3), 10, (2, 4), (2, 3), (1, 0), transposed=True),
        ("conv_transpose2d",),
    ),
    # Direct, in its other ways.
    "direct_strided_dilated": Shape(
        Convolution((5, 11, 9), 7, (3, 2), (2, 3), (1, 2), (3, 2)), ("conv2d_tiled_1x1_border",)
    ),
    "direct_grouped": Shape(
        Convolution((9, 6, 5), 15, K3, padding=(1, 1), groups=3), ("conv2d_tiled_1x1_border",)
    ),
}


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("shape", SHAPES)
def test_shape(device: Device, shape: str, epilogue: str, dtype: str) -> None:
    chosen = SHAPES[shape]
    assert_right(device, chosen.conv, EPILOGUES[epilogue], dtype, chosen.dispatched())


@dataclass(frozen=True)
class Resize:
    """Sizes (H, W) to shrink to: ``near`` in the same grid, ``small`` in another one.

    ``near_reasons`` and ``small_reasons`` are why each is recorded anew, coming from the full
    size; ``blocks`` the bindings of the uniform blocks that hold sizes.
    """

    conv: Convolution
    shaders: tuple[str, ...]
    near: tuple[int, int]
    small: tuple[int, int]
    near_reasons: set[str]
    small_reasons: set[str]
    blocks: set[int]
    encoded: int = 1  # dispatches of the small size

    def at(self, size: tuple[int, int]) -> Convolution:
        return replace(self.conv, shape=(self.conv.shape[0], *size))


RESIZES: Mapping[str, Resize] = {
    # 143 pixels are three workgroups of 16 tiles of four, as are 132; 35 are one.
    "pointwise": Resize(
        Convolution((6, 13, 11), 10), ("conv2d_pw_tiled",),
        near=(12, 11), small=(7, 5), near_reasons=set(), small_reasons={"grid"}, blocks={6, 7},
    ),
    # 13x11 and 12x10 take groups of 8x4x2 for three blocks of channels, 7x3 one of 8x3x2.
    "direct": Resize(
        Convolution((6, 11, 13), 10, K3, padding=(1, 1), overrides=direct("one")),
        ("conv2d_tiled_1x1_border",),
        near=(10, 12), small=(3, 7), near_reasons=set(), small_reasons={"grid", "local_size"},
        blocks={6, 7},
    ),
    # Five bands of a row each; of two rows, three bands have nothing to do.
    "im2col": Resize(
        Convolution(
            (5, 5, 7), 9, K3, padding=(1, 1),
            overrides=im2col("texture2d", band_rows=1, band_count=5),
        ),
        gemm("texture2d", bands=5),
        near=(5, 6), small=(2, 6), near_reasons=set(), small_reasons={"grid"}, blocks={2, 6},
        encoded=4,
    ),
    # Sizes are push constants here; 10x7 tiles are two workgroups, 3x3 are one.
    "depthwise": Resize(
        Convolution((7, 14, 37), 7, K3, padding=(1, 1), groups=7), tile("3x3", "b4x2"),
        near=(13, 37), small=(5, 9), near_reasons={"push_constants"},
        small_reasons={"push_constants", "grid"}, blocks=set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("resize", RESIZES)
def test_resize(device: Device, resize: str) -> None:
    """Full, shrunk in the same grid, shrunk further, full again, in images of the full size."""
    chosen = RESIZES[resize]
    for dtype, epilogue in (("float", "add_scale_clamp"), ("half", "sub_alpha_scale")):
        full, near, small = (
            case_of(chosen.at(size), EPILOGUES[epilogue], dtype)
            for size in (chosen.conv.shape[1:], chosen.near, chosen.small)
        )
        names = [f"{name}_{dtype}" for name in chosen.shaders]
        with Resizable(device, full) as resizable:
            assert resizable.shaders == names
            assert resizable.run(full) == (set(), set())
            first = resizable.recording
            assert resizable.run(near) == (chosen.near_reasons, chosen.blocks)
            assert (resizable.recording is first) == (not chosen.near_reasons)
            assert resizable.run(full) == (chosen.near_reasons, chosen.blocks)
            assert resizable.run(small) == (chosen.small_reasons, chosen.blocks)
            assert resizable.recording.encoded == chosen.encoded
            assert resizable.run(small) == (set(), set())
            assert resizable.run(full) == (chosen.small_reasons, chosen.blocks)
            assert resizable.recording.encoded == len(names)
            assert resizable.shaders == names
    assert device.messages == []
