"""The float64 reference against plain loops, and its bound."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shaderloom_runtime import reference
from shaderloom_runtime.reference import Epilogue, Reference

Array = NDArray[np.float64]
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(st.integers(0, 2), st.integers(0, 2))


def loops(
    x: Array, weight: Array, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Direct convolution of one image, one multiplication at a time."""
    n, _, in_h, in_w = x.shape
    out_c, per_group, kh, kw = weight.shape
    y = np.zeros((n, out_c, *size))
    for i, o, oh, ow, c, h, w in product(*map(range, (n, out_c, *size, per_group, kh, kw))):
        ih = oh * stride[0] - padding[0] + h * dilation[0]
        iw = ow * stride[1] - padding[1] + w * dilation[1]
        if 0 <= ih < in_h and 0 <= iw < in_w:
            channel = o // (out_c // groups) * per_group + c
            y[i, o, oh, ow] += x[i, channel, ih, iw] * weight[o, c, h, w]
    return y


def scatter(
    x: Array, weight: Array, size: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Transposed convolution as its definition: every input adds its scaled kernel."""
    n, in_c, in_h, in_w = x.shape
    _, per_group, kh, kw = weight.shape
    y = np.zeros((n, per_group * groups, *size))
    for i, c, ih, iw, o, h, w in product(*map(range, (n, in_c, in_h, in_w, per_group, kh, kw))):
        oh = ih * stride[0] - padding[0] + h * dilation[0]
        ow = iw * stride[1] - padding[1] + w * dilation[1]
        if 0 <= oh < size[0] and 0 <= ow < size[1]:
            y[i, c // (in_c // groups) * per_group + o, oh, ow] += (
                x[i, c, ih, iw] * weight[c, o, h, w]
            )
    return y


@given(
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    pairs,
    pairs,
    paddings,
    pairs,
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_conv2d_equals_loops(
    in_per_group: int,
    out_per_group: int,
    groups: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    seed: int,
) -> None:
    out_size = tuple(
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    )
    assume(min(out_size) >= 1)
    random = np.random.default_rng(seed)
    x = random.normal(size=(2, in_per_group * groups, *size))
    weight = random.normal(size=(out_per_group * groups, in_per_group, *kernel))
    bias = random.normal(size=out_per_group * groups)
    geometry: dict[str, Any] = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups
    }  # fmt: skip
    got = reference.conv2d(x, weight, bias, **geometry)
    expected = loops(x, weight, out_size, **geometry) + bias.reshape(1, -1, 1, 1)
    np.testing.assert_allclose(got.values, expected, atol=1e-12)
    spread = loops(abs(x), abs(weight), out_size, **geometry)
    np.testing.assert_allclose(got.spread, spread + abs(bias).reshape(1, -1, 1, 1), atol=1e-12)
    assert got.terms == in_per_group * kernel[0] * kernel[1]


@given(
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    pairs,
    pairs,
    paddings,
    pairs,
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_transposed_conv2d_equals_loops(
    in_per_group: int,
    out_per_group: int,
    groups: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    output_padding: tuple[int, int],
    seed: int,
) -> None:
    out_size = tuple(
        (size[i] - 1) * stride[i]
        - 2 * padding[i]
        + dilation[i] * (kernel[i] - 1)
        + output_padding[i]
        + 1
        for i in range(2)
    )
    assume(min(out_size) >= 1)
    assume(
        all(extra < max(s, d) for extra, s, d in zip(output_padding, stride, dilation, strict=True))
    )
    random = np.random.default_rng(seed)
    x = random.normal(size=(1, in_per_group * groups, *size))
    weight = random.normal(size=(in_per_group * groups, out_per_group, *kernel))
    geometry: dict[str, Any] = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups
    }  # fmt: skip
    got = reference.conv2d(
        x, weight, None, transposed=True, output_padding=output_padding, **geometry
    )
    expected = scatter(x, weight, out_size, **geometry)
    assert got.values.shape == expected.shape
    np.testing.assert_allclose(got.values, expected, atol=1e-12)
    assert got.terms == in_per_group * kernel[0] * kernel[1]


def test_epilogue_by_hand() -> None:
    y = Reference(np.array([[[[-2.0]], [[3.0]]]]), np.array([[[[4.0]], [[5.0]]]]), 1)
    r, scale = np.array([[[[1.0]], [[-2.0]]]]), np.array([[[[0.5]], [[2.0]]]])

    def values(**changes: Any) -> list[float]:
        return [float(v) for v in reference.apply_epilogue(y, Epilogue(**changes)).values.flat]

    assert values() == [-2, 3]
    assert values(residual=r) == [-1, 1]
    assert values(residual=r, scale=scale) == [-1.5, -1]
    assert values(residual=r, scale=scale, residual_op="sub", alpha=2.0) == [-3, 11]
    assert values(residual=r, residual_op="mul", alpha=9.0) == [-2, -6]  # without alpha
    assert values(activation="relu") == [0, 3]
    assert values(activation="leaky_relu", a=0.25) == [-0.5, 3]
    assert values(activation="clamp", a=-1.0, b=2.0) == [-1, 2]
    assert values(activation="clamp", a=2.0, b=1.0) == [1, 1]  # the upper bound wins


def test_spread_grows_with_what_is_added_and_multiplied() -> None:
    y = Reference(np.array([-2.0]), np.array([4.0]), 1)
    r = np.array([-3.0])

    def spread(**changes: Any) -> float:
        return float(reference.apply_epilogue(y, Epilogue(**changes)).spread[0])

    assert spread(residual=r, alpha=0.5) == 4 + 1.5
    assert spread(residual=r, residual_op="sub", alpha=-2.0) == 4 + 6
    assert spread(residual=r, residual_op="mul") == 12
    assert spread(activation="leaky_relu", a=-2.0) == 8
    assert spread(activation="leaky_relu", a=0.1) == 4


def test_elementwise_by_hand() -> None:
    x, y = np.array([1.0, -2.0]), np.array([3.0])
    assert reference.binary("add", x, y).values.tolist() == [4, 1]
    assert reference.binary("mul", x, y).values.tolist() == [3, -6]
    assert reference.clamp(x, -1.0, 0.5).values.tolist() == [0.5, -1]
    assert reference.clamp(x, 2.0, 1.0).values.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("dtype", "store", "absolute", "relative"),
    [("float", 2.0**-23, 1e-3, 1e-3), ("half", 2.0**-10, 1e-1, 1e-2)],
)
def test_bound_is_the_formula_and_never_past_its_cap(
    dtype: str, store: float, absolute: float, relative: float
) -> None:
    values = np.array([0.0, -3.0])
    small = reference.bound(Reference(values, np.array([2.0, 5.0]), 9), dtype)
    expected = [2 * 3 * 2.0**-23 * 2, store * 3 + 2 * 3 * 2.0**-23 * 5]
    np.testing.assert_allclose(small, expected, rtol=1e-12)
    huge = reference.bound(Reference(np.array([0.5, -1e4]), np.full(2, 1e12), 9), dtype)
    np.testing.assert_allclose(huge, [absolute, relative * 1e4], rtol=1e-12)
