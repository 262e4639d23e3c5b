"""Ops on NumPy arrays against the reference, and every argument that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vulkan
from numpy.typing import NDArray

from runtime_support import validated_device
from shaderloom_runtime import reference
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.errors import (
    DeviceLost,
    InvalidArgument,
    InvalidUse,
    MissingFeature,
    OutOfMemory,
)
from shaderloom_runtime.memory import DTYPES
from shaderloom_runtime.ops import binary, clamp, conv2d
from shaderloom_runtime.reference import Epilogue
from shaderloom_runtime.verify_cases import random_array

Array = NDArray[Any]


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    return random_array(np.random.default_rng([seed, *shape]), dtype, *shape)


def double(array: Array) -> NDArray[np.float64]:
    return array.astype(np.float64)


def assert_within_bound(got: Array, expected: reference.Reference, dtype: str) -> None:
    assert got.dtype == DTYPES[dtype]
    assert got.shape == expected.values.shape
    assert got.flags.c_contiguous
    assert np.all(np.abs(double(got) - expected.values) <= reference.bound(expected, dtype))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_conv2d_with_everything(device: Device, dtype: str) -> None:
    x, weight, bias = drawn(dtype, 1, 7, 5, 9), drawn(dtype, 6, 7, 1, 1), drawn(dtype, 6)
    residual, scale = drawn(dtype, 1, 6, 4, 6), drawn(dtype, 1, 6, 1, 1)
    for shaped in (scale, scale[0]):  # [1, C, 1, 1] and [C, 1, 1]
        got = conv2d(
            device,
            x,
            weight,
            bias,
            stride=2,
            padding=(1, 1),
            residual=residual,
            scale=shaped,
            residual_op="sub",
            alpha=0.5,
            activation="leaky_relu",
            a=0.25,
        )
        epilogue = Epilogue(
            double(residual), double(scale), "sub", alpha=0.5, activation="leaky_relu", a=0.25
        )
        expected = reference.conv2d(
            double(x), double(weight), double(bias),
            stride=(2, 2), padding=(1, 1), epilogue=epilogue,
        )  # fmt: skip
        assert_within_bound(got, expected, dtype)


def test_conv2d_of_defaults_has_no_bias_and_no_epilogue(device: Device) -> None:
    x, weight = drawn("float", 1, 3, 2, 5), drawn("float", 5, 3, 1, 1)
    expected = reference.conv2d(double(x), double(weight), None)
    assert_within_bound(conv2d(device, x, weight), expected, "float")
    assert_within_bound(conv2d(device, x, weight, route="pointwise"), expected, "float")


def test_pairs_are_height_then_width(device: Device) -> None:
    x, weight = drawn("float", 1, 4, 6, 9), drawn("float", 4, 4, 1, 1)
    expected = reference.conv2d(double(x), double(weight), None, stride=(1, 3), padding=(2, 0))
    for stride in ((1, 3), [1, 3], (np.int64(1), np.int32(3))):
        got = conv2d(device, x, weight, stride=stride, padding=(2, 0))
        assert_within_bound(got, expected, "float")
    one = conv2d(device, x, weight, stride=(2,))
    assert_within_bound(one, reference.conv2d(double(x), double(weight), None, stride=(2, 2)),
                        "float")  # fmt: skip


def test_clamp_with_crossed_bounds_gives_the_upper_one(device: Device) -> None:
    x, weight = drawn("float", 1, 3, 2, 2), drawn("float", 5, 3, 1, 1)
    got = conv2d(device, x, weight, activation="clamp", a=2.0, b=1.0)
    assert np.all(got == 1.0)
    assert np.all(clamp(device, x, 2.0, 1.0) == 1.0)


def test_arrays_in_any_layout(device: Device) -> None:
    base, weight = drawn("half", 9, 5, 7, 1), drawn("half", 7, 6, 1, 1)
    x = base.transpose(3, 2, 1, 0)[:, :, ::2, ::-1]  # [1, 7, 3, 9], no stride of its own order
    residual = np.broadcast_to(drawn("half", 1, 6, 1, 9), (1, 6, 3, 9))
    assert not x.flags.c_contiguous
    strided: dict[str, Any] = {"weight": weight.transpose(1, 0, 2, 3), "residual": residual}
    whole: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in strided.items()}
    got = conv2d(device, x, **strided)
    np.testing.assert_array_equal(got, conv2d(device, np.ascontiguousarray(x), **whole))
    np.testing.assert_array_equal(binary(device, "add", x, x), x + x)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("op", ["add", "mul"])
@pytest.mark.parametrize(
    ("one", "other"),
    [((1, 3, 4, 5), (1, 3, 4, 5)), ((2, 1, 1, 5), (1, 6, 3, 1)), ((1, 7, 1, 1), (3, 7, 2, 2))],
)
def test_binary_broadcasts_as_numpy(
    device: Device, dtype: str, op: str, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    x, y = drawn(dtype, *one), drawn(dtype, *other, seed=1)
    expected = reference.binary(op, double(x), double(y))
    assert_within_bound(binary(device, op, x, y), expected, dtype)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_clamp(device: Device, dtype: str) -> None:
    x = drawn(dtype, 2, 5, 3, 4)
    got = clamp(device, x, 0.5, 1)
    np.testing.assert_array_equal(got, np.clip(x, 0.5, 1))
    assert got.dtype == x.dtype


def test_calls_reuse_pipelines_and_free_the_rest(device: Device) -> None:
    x, weight = drawn("float", 1, 3, 2, 2), drawn("float", 5, 3, 1, 1)
    conv2d(device, x, weight)
    kernels, allocated = dict(device.kernels), device.allocator.live_count
    conv2d(device, x, weight)
    assert device.kernels == kernels
    assert device.allocator.live_count == allocated == 0


def test_a_grid_past_the_limit_folds(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(device.info.limits, max_grid=(65535, 3, 65535), max_invocations=32)
    monkeypatch.setattr(device, "info", replace(device.info, limits=limits))
    x, weight = drawn("float", 1, 3, 1, 300), drawn("float", 5, 3, 1, 1)
    got = conv2d(device, x, weight, activation="relu")
    steps = [spec.constants[:3] for spec in device.kernels if spec.name.startswith("conv2d")]
    assert ((0, 4), (1, 8), (2, 1)) in steps  # 75 times 4 pixels, 8 a workgroup: 10 > 3
    expected = reference.conv2d(
        double(x), double(weight), None, epilogue=Epilogue(activation="relu")
    )
    assert_within_bound(got, expected, "float")


X, W, B = (1, 4, 3, 3), (8, 4, 1, 1), (8,)
OUT = (1, 8, 3, 3)
TRANSPOSED = drawn("float", 4, 8, 1, 1)  # [in_c, out_c / groups, 1, 1]
REFUSED: list[tuple[dict[str, Any], str]] = [
    # The epilogue's operands.
    ({"residual": drawn("float", 8, 3, 3)}, "residual: shape (8, 3, 3) has 3 axes, not 4"),
    (
        {"residual": drawn("float", 1, 8, 3, 1)},
        "residual: shape (1, 8, 3, 1) differs from the output's (1, 8, 3, 3)",
    ),
    (
        {"residual": drawn("half", *OUT)},
        "residual: dtype float16 differs from the output's float32",
    ),
    (
        {"scale": drawn("float", 1, 8, 1, 1)},
        "scale of shape (1, 8, 1, 1) is given without a residual",
    ),
    (
        {"residual": drawn("float", *OUT), "scale": drawn("half", 1, 8, 1, 1)},
        "scale: dtype float16 differs from the weight's float32",
    ),
    (
        {"residual": drawn("float", *OUT), "scale": drawn("float", 8)},
        "scale: shape (8,) would broadcast along the width in PyTorch, not the channels: "
        "reshape it to (1, 8, 1, 1)",
    ),
    (
        {"residual": drawn("float", *OUT), "scale": drawn("float", 1, 4, 1, 1)},
        "scale: shape (1, 4, 1, 1) is neither (1, 8, 1, 1) nor (8, 1, 1)",
    ),
    ({"residual_op": "div"}, "residual_op 'div' is not one of add, sub, mul"),
    ({"activation": "gelu"}, "activation 'gelu' is not one of clamp, relu, leaky_relu"),
    ({"activation": ["relu"]}, "activation ['relu'] is not one of clamp, relu, leaky_relu"),
    ({"alpha": "1"}, "alpha is '1', not a number"),
    ({"alpha": 10**400}, "alpha is past every float"),
    ({"activation": "clamp", "a": float("nan")}, "a is nan, not a number"),
    # The arrays.
    ({"x": [[[[1.0]]]]}, "x is a list, not a NumPy array"),
    ({"x": np.ma.masked_array(drawn("float", *X))}, "x is a masked array: fill it first"),
    ({"x": drawn("float", 4, 3, 3)}, "x: shape (4, 3, 3) has 3 axes, not 4"),
    ({"x": np.zeros(X)}, "x: dtype float64 is neither float32 nor float16"),
    ({"x": np.zeros(X, ">f4")}, "x: dtype >f4 is neither float32 nor float16"),
    ({"x": drawn("float", 1, 4, 0, 3)}, "x is empty: shape (1, 4, 0, 3)"),
    ({"x": drawn("half", *X)}, "weight: dtype float32 differs from x's float16"),
    ({"weight": drawn("float", 8, 4)}, "weight: shape (8, 4) has 2 axes, not 4"),
    ({"weight": drawn("float", 0, 4, 1, 1)}, "weight is empty: shape (0, 4, 1, 1)"),
    (
        {"weight": drawn("float", 8, 3, 1, 1)},
        "weight: shape (8, 3, 1, 1) does not fit x of 4 channels in 1 groups",
    ),
    ({"groups": 2}, "weight: shape (8, 4, 1, 1) does not fit x of 4 channels in 2 groups"),
    (
        {"transposed": True},
        "weight: shape (8, 4, 1, 1) does not fit x of 4 channels in 1 groups, transposed",
    ),
    ({"bias": drawn("float", 4)}, "bias: shape (4,) is not the output channels' (8,)"),
    ({"bias": drawn("float", 8, 1)}, "bias: shape (8, 1) has 2 axes, not 1"),
    ({"bias": drawn("half", 8)}, "bias: dtype float16 differs from the weight's float32"),
    # The geometry.
    ({"stride": 1.5}, "stride is 1.5, neither an int nor a pair of ints"),
    ({"padding": "same"}, "padding is 'same', neither an int nor a pair of ints"),
    ({"dilation": (1, 1, 1)}, "dilation is (1, 1, 1), neither an int nor a pair of ints"),
    ({"groups": 1.0}, "groups is 1.0, not an int"),
    # What the dispatcher says itself.
    ({"x": drawn("float", 2, 4, 3, 3)}, "no convolution has batch: in_n is 2, not 1"),
    ({"stride": 0}, "a stride is less than 1: 0, 0"),
    ({"padding": (0, -1)}, "a padding is negative: 0, -1"),
    ({"output_padding": 1}, "output padding is for transposed convolution: 1, 1"),
    (
        {"weight": TRANSPOSED, "transposed": True, "dilation": 2},
        "transposed convolution has no dilation: 2, 2",
    ),
    (
        {"weight": TRANSPOSED[:, :4], "transposed": True, "groups": 2},
        "transposed convolution has no groups: groups is 2",
    ),
    ({"weight": drawn("float", 8, 4, 5, 5)}, "the output is empty: -1 x -1"),
    ({"route": "transposed"}, "conv2d: route transposed is not possible: it needs transposed"),
    (
        {"weight": drawn("float", 8, 4, 3, 3), "route": "pointwise"},
        "conv2d: route pointwise is not possible: it needs kernel_h == 1",
    ),
    ({"route": "winograd"}, "conv2d: route has no such value"),
    ({"overrides": {"in_c": 8}}, "overrides: 'in_c' follows from the other arguments"),
    ({"overrides": {"colour": 1}}, "conv2d: got an unexpected keyword argument 'colour'"),
]


@pytest.mark.parametrize(
    ("change", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED]
)
def test_conv2d_refuses(device: Device, change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "x": drawn("float", *X), "weight": drawn("float", *W), "bias": drawn("float", *B)
    }  # fmt: skip
    with pytest.raises(InvalidArgument, match=re.escape(message)) as caught:
        conv2d(device, **(arguments | change))
    assert isinstance(caught.value, ValueError)
    assert device.allocator.live_count == 0


def test_elementwise_refusals(device: Device) -> None:
    x = drawn("float", 1, 3, 2, 2)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: binary(device, "sub", x, x), "op 'sub' is not one of add, mul"),
        (lambda: binary(device, "add", x, x[0]), "y: shape (3, 2, 2) has 3 axes, not 4"),
        (lambda: binary(device, "add", x, x.astype(np.float16)), "y: dtype float16 differs"),
        (lambda: binary(device, "add", x, x[:, :2]), "channels 3 and 2 do not broadcast"),
        (lambda: binary(device, "add", x[:, :0], x), "x is empty: shape (1, 0, 2, 2)"),
        (lambda: clamp(device, x[0], 0, 1), "x: shape (3, 2, 2) has 3 axes, not 4"),
        (lambda: clamp(device, x, 0, float("nan")), "high is nan, not a number"),
        (lambda: clamp(device, x, "0", 1), "low is '0', not a number"),  # type: ignore[arg-type]
    ]
    for call, message in refused:
        with pytest.raises(InvalidArgument, match=re.escape(message)):
            call()


def test_a_missing_feature_is_named_with_its_variant(generated: Path) -> None:
    with (
        open_device(features=()) as bare,
        pytest.raises(MissingFeature, match=r"_half cannot run on .*: missing storageBuffer16Bit"),
    ):
        clamp(bare, drawn("half", 1, 1, 1, 1), 0, 1)


def test_threads_share_a_device(device: Device) -> None:
    arrays = [drawn("float", 1, 8, 5, 6, seed=seed) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: clamp(device, x, -0.5, 0.5), arrays))
    for x, got in zip(arrays, results, strict=True):
        assert_within_bound(got, reference.clamp(x, -0.5, 0.5), "float")


def test_a_closed_device_is_refused(generated: Path) -> None:
    with open_device() as closed:
        pass
    with pytest.raises(InvalidUse, match="this device is closed: "):
        clamp(closed, drawn("float", 1, 1, 1, 1), 0, 1)


@pytest.mark.parametrize(
    ("call", "raised", "kind"),
    [
        ("vkAllocateMemory", vulkan.VkErrorOutOfDeviceMemory, OutOfMemory),
        ("vkQueueSubmit", vulkan.VkErrorDeviceLost, DeviceLost),
        ("vkWaitForFences", vulkan.VkErrorDeviceLost, DeviceLost),
    ],
)
def test_a_failing_device_leaves_nothing_behind(
    device: Device, monkeypatch: pytest.MonkeyPatch, call: str, raised: Any, kind: type[Exception]
) -> None:
    real, left = getattr(vulkan, call), [5]  # let a few succeed, to fail midway

    def fail(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] >= 0 or call == "vkWaitForFences":  # what is submitted must end
            result = real(*arguments)
        if left[0] < 0:
            raise raised
        return result

    monkeypatch.setattr(vulkan, call, fail)
    with pytest.raises(kind, match=call):
        conv2d(device, drawn("float", *X), drawn("float", *W))
    monkeypatch.undo()
    assert device.allocator.live_count == 0
