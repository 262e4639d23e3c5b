"""Matrix products on NumPy arrays against the reference, and every argument that is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from runtime_support import validated_device
from shaderloom_runtime import reference
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.errors import InvalidArgument, MissingFeature
from shaderloom_runtime.memory import DTYPES
from shaderloom_runtime.ops_matmul import linear, linear_q4, linear_q8, matmul
from shaderloom_runtime.quantize import GROUP_SIZES, dequantize_q4, dequantize_q8
from shaderloom_runtime.reference import Epilogue
from test_runtime_ops import Array, assert_within_bound, double, drawn

Arguments = dict[str, Any]
FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "matmul": matmul, "linear": linear, "linear_q8": linear_q8, "linear_q4": linear_q4
}  # fmt: skip
LINEARS = [name for name in FUNCTIONS if name != "matmul"]
every_function = pytest.mark.parametrize("function", FUNCTIONS)
dtypes = pytest.mark.parametrize("dtype", sorted(DTYPES))


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def arguments(
    function: str, dtype: str, shape: tuple[int, ...], n: int, group_size: int = 32
) -> tuple[Arguments, NDArray[np.float64]]:
    """Draw the operands of a function, and the second matrix [K, N] that they stand for."""
    k = shape[-1]
    if function == "matmul":
        mat1, mat2 = drawn(dtype, *shape), drawn(dtype, k, n, seed=1)
        return {"mat1": mat1, "mat2": mat2}, double(mat2)
    given: Arguments = {"x": drawn(dtype, *shape)}
    random = np.random.default_rng([n, k])
    if function == "linear":
        given["weight"] = drawn(dtype, n, k, seed=1)
        return given, double(given["weight"]).T
    if function == "linear_q8":
        given["weight"] = random.integers(-128, 128, (n, k), np.int8)
        given["scales"] = drawn(dtype, n, seed=2) / np.asarray(64, DTYPES[dtype])
        return given, dequantize_q8(given["weight"], given["scales"]).T
    groups = -(-k // group_size)
    given |= {"weight": random.integers(0, 16, (n, k), np.uint8), "group_size": group_size}
    given["scales"] = drawn(dtype, n, groups, seed=2) / np.asarray(8, DTYPES[dtype])
    given["zero_points"] = drawn(dtype, n, groups, seed=3) + np.asarray(8, DTYPES[dtype])
    tables = given["scales"], given["zero_points"]
    return given, dequantize_q4(given["weight"], *tables, group_size).T


ENDINGS: Mapping[str, Arguments] = {
    "sub": {"residual_op": "sub", "alpha": 0.5, "activation": "leaky_relu", "a": 0.25},
    "mul": {"residual_op": "mul", "activation": "clamp", "a": -0.5, "b": 1.25},
    "add": {"alpha": -2, "activation": "relu"},
}


@every_function
@dtypes
@pytest.mark.parametrize(
    ("ending", "storage"),
    [("sub", "texture3d"), ("mul", "vec4_buffer"), ("add", "auto")],
)
def test_everything(device: Device, function: str, dtype: str, ending: str, storage: str) -> None:
    given, second = arguments(function, dtype, (2, 3, 45), 7)
    bias, scale = drawn(dtype, 7), drawn(dtype, 7, seed=1)
    residual = drawn(dtype, 2, 3, 7)
    epilogue = ENDINGS[ending]
    got = FUNCTIONS[function](
        device, **given, bias=bias, residual=residual, scale=scale,
        overrides={"storage": storage}, **epilogue,
    )  # fmt: skip
    x = double(given["mat1" if function == "matmul" else "x"])
    expected = reference.matmul(
        x, second, double(bias), Epilogue(double(residual), double(scale), **epilogue)
    )
    assert_within_bound(got, expected, dtype)
    assert device.messages == []


@every_function
@dtypes
def test_defaults_are_no_bias_and_no_epilogue(device: Device, function: str, dtype: str) -> None:
    given, second = arguments(function, dtype, (3, 13), 5)
    x = double(given["mat1" if function == "matmul" else "x"])
    expected = reference.matmul(x, second, None)
    assert_within_bound(FUNCTIONS[function](device, **given), expected, dtype)
    nothing = {"bias": None, "residual": None, "scale": None, "activation": None}
    got = FUNCTIONS[function](device, **given, **nothing, route=None, overrides=None)
    assert_within_bound(got, expected, dtype)


@dtypes
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((3, 5), (5, 7)),
        ((1, 1), (1, 1)),
        ((2, 3, 5), (5, 7)),  # one mat2 for all
        ((3, 5), (2, 5, 7)),  # one mat1 for all
        ((4, 3, 5), (4, 5, 7)),
        ((4, 3, 5), (1, 5, 7)),
        ((2, 1, 3, 5), (4, 5, 7)),
        ((2, 1, 1, 5), (1, 3, 5, 2)),
        ((2, 1, 2, 3, 5), (3, 1, 5, 1)),
    ],
)
def test_leading_axes_broadcast_as_numpy(
    device: Device, dtype: str, one: tuple[int, ...], other: tuple[int, ...]
) -> None:
    mat1, mat2 = drawn(dtype, *one), drawn(dtype, *other, seed=1)
    shape = (*np.broadcast_shapes(one[:-2], other[:-2]), one[-2], other[-1])
    residual = drawn(dtype, *shape)
    expected = reference.matmul(double(mat1), double(mat2), None, Epilogue(double(residual)))
    assert expected.values.shape == shape
    for storage in ("texture3d", "vec4_buffer"):
        got = matmul(device, mat1, mat2, residual=residual, overrides={"storage": storage})
        assert_within_bound(got, expected, dtype)


@pytest.mark.parametrize("function", LINEARS)
@pytest.mark.parametrize("shape", [(5,), (1, 5), (6, 5), (2, 3, 5), (2, 1, 3, 1, 5)])
def test_leading_axes_of_linear(device: Device, function: str, shape: tuple[int, ...]) -> None:
    given, second = arguments(function, "float", shape, 6)
    residual = drawn("float", *shape[:-1], 6)
    expected = reference.matmul(double(given["x"]), second, None, Epilogue(double(residual)))
    assert_within_bound(FUNCTIONS[function](device, **given, residual=residual), expected, "float")


@pytest.mark.parametrize("size", GROUP_SIZES)
def test_group_sizes(device: Device, size: int) -> None:
    given, second = arguments("linear_q4", "float", (3, 2 * size + 5), 7, size)
    expected = reference.matmul(double(given["x"]), second, None)
    assert_within_bound(linear_q4(device, **given), expected, "float")
    given["group_size"] = np.int64(size)
    assert_within_bound(linear_q4(device, **given), expected, "float")


def test_groups_are_of_128_by_default(device: Device) -> None:
    given, second = arguments("linear_q4", "float", (2, 130), 3, 128)
    del given["group_size"]
    expected = reference.matmul(double(given["x"]), second, None)
    assert_within_bound(linear_q4(device, **given), expected, "float")


@every_function
def test_arrays_in_any_layout(device: Device, function: str) -> None:
    """Column after column, backwards, every other one, broadcast: as the same in one piece."""
    whole, _ = arguments(function, "half", (2, 9, 34), 6)
    whole |= {"residual": np.broadcast_to(drawn("half", 1, 9, 1), (2, 9, 6)).copy()}
    whole |= {"bias": drawn("half", 6), "scale": drawn("half", 6, seed=1)}
    strided = {
        name: np.asfortranarray(value[::-1])[::-1] if isinstance(value, np.ndarray) else value
        for name, value in whole.items()
    }
    strided["residual"] = np.broadcast_to(whole["residual"][:1, :, :1], (2, 9, 6))
    strided["bias"] = np.repeat(whole["bias"], 2)[::2]
    arrays = [array for array in strided.values() if isinstance(array, np.ndarray)]
    assert not any(array.flags.c_contiguous for array in arrays)
    for array in arrays:
        array.flags.writeable = False
    got = FUNCTIONS[function](device, **strided)
    np.testing.assert_array_equal(got, FUNCTIONS[function](device, **whole))
    assert got.flags.c_contiguous


@pytest.mark.parametrize("storage", ["texture3d", "vec4_buffer"])
@pytest.mark.parametrize("weight_form", ["texture2d", "vec4_buffer"])
def test_an_identity_reads_out_the_weight(device: Device, storage: str, weight_form: str) -> None:
    """Exactly, as scales are powers of two and sums have one term that is not zero."""
    n, k = 6, 39
    x, powers = np.eye(k, dtype=np.float32), np.float32(2) ** np.arange(-6, 6, dtype=np.float32)
    chosen: Arguments = {"overrides": {"storage": storage, "weight_form": weight_form}}
    given, weight = arguments("linear", "float", (k,), n)
    np.testing.assert_array_equal(linear(device, x, given["weight"], **chosen), weight)
    given, _ = arguments("linear_q8", "float", (k,), n)
    weight = dequantize_q8(given["weight"], powers[:n])
    got = linear_q8(device, x, given["weight"], powers[:n], **chosen)
    np.testing.assert_array_equal(got, weight.T)
    given, _ = arguments("linear_q4", "float", (k,), n)
    tables = powers.reshape(n, 2), np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    weight = dequantize_q4(given["weight"], *tables, 32)
    got = linear_q4(device, x, given["weight"], *tables, group_size=32, **chosen)
    np.testing.assert_array_equal(got, weight.T)


@every_function
def test_calls_reuse_pipelines_and_free_the_rest(device: Device, function: str) -> None:
    given, _ = arguments(function, "float", (3, 5), 6)
    FUNCTIONS[function](device, **given)
    kernels = dict(device.kernels)
    FUNCTIONS[function](device, **given)
    assert device.kernels == kernels
    assert device.allocator.live_count == 0


@every_function
def test_a_missing_feature_is_named_with_its_variant(generated: Path, function: str) -> None:
    given, _ = arguments(function, "half", (3, 5), 6)
    with (
        open_device(features=()) as bare,
        pytest.raises(MissingFeature, match=r"_half cannot run on .*: missing storageBuffer16Bit"),
    ):
        FUNCTIONS[function](bare, **given)


# ---- what is refused ----------------------------------------------------------------------------

# Of products [3, 5] x [5, 7].
MASKED = np.ma.masked_array(drawn("float", 7))
RESIDUAL = {"residual": drawn("float", 3, 7)}
NIBBLES = np.full((7, 5), 15, np.uint8)
NIBBLES[2, 3] = 16

EVERYWHERE: list[tuple[Arguments, str]] = [
    ({"bias": drawn("float", 5)}, "bias: shape (5,) is not the output channels' (7,)"),
    ({"bias": drawn("float", 1, 7)}, "bias: shape (1, 7) has 2 axes, not 1"),
    ({"bias": drawn("half", 7)}, "bias: dtype float16 differs from the weight's float32"),
    ({"bias": MASKED}, "bias is a masked array: fill it first"),
    ({"bias": drawn("float", 0)}, "bias is empty: shape (0,)"),
    ({"bias": 1.0}, "bias is a float, not a NumPy array"),
    (
        {"residual": drawn("float", 7)},
        "residual: shape (7,) differs from the output's (3, 7)",
    ),
    (
        {"residual": drawn("float", 3, 1)},
        "residual: shape (3, 1) differs from the output's (3, 7)",
    ),
    (
        {"residual": drawn("float", 1, 3, 7)},
        "residual: shape (1, 3, 7) differs from the output's (3, 7)",
    ),
    (
        {"residual": drawn("half", 3, 7)},
        "residual: dtype float16 differs from the output's float32",
    ),
    ({"residual": MASKED}, "residual is a masked array: fill it first"),
    ({"residual": drawn("float", 0, 7)}, "residual is empty: shape (0, 7)"),
    ({"scale": drawn("float", 7)}, "scale of shape (7,) is given without a residual"),
    (
        {**RESIDUAL, "scale": drawn("half", 7)},
        "scale: dtype float16 differs from the weight's float32",
    ),
    ({**RESIDUAL, "scale": drawn("float", 1, 7)}, "scale: shape (1, 7) is not (7,)"),
    ({**RESIDUAL, "scale": drawn("float", 1)}, "scale: shape (1,) is not (7,)"),
    ({**RESIDUAL, "scale": MASKED}, "scale is a masked array: fill it first"),
    ({"residual_op": "div"}, "residual_op 'div' is not one of add, sub, mul"),
    ({"residual_op": None}, "residual_op None is not one of add, sub, mul"),
    ({"activation": "gelu"}, "activation 'gelu' is not one of clamp, relu, leaky_relu"),
    ({"alpha": "1"}, "alpha is '1', not a number"),
    ({"alpha": 10**400}, "alpha is past every float"),
    ({"activation": "clamp", "a": float("nan")}, "a is nan, not a number"),
    ({"activation": "clamp", "b": None}, "b is None, not a number"),
    ({"route": "winograd"}, "route has no such value"),
    ({"route": ""}, "route has no such value"),  # None is what lets the dispatcher choose
    ({"route": "coopmat"}, "route coopmat is not possible: it needs "),
    ({"overrides": {"colour": 1}}, "got an unexpected keyword argument 'colour'"),
    ({"overrides": {"storage": "texture2d"}}, "storage has no such value"),
]
X: list[tuple[Arguments, str]] = [
    ({"x": [[1.0] * 5]}, "x is a list, not a NumPy array"),
    ({"x": np.ma.masked_array(drawn("float", 3, 5))}, "x is a masked array: fill it first"),
    ({"x": np.zeros((3, 5))}, "x: dtype float64 is neither float32 nor float16"),
    ({"x": np.zeros((3, 5), ">f4")}, "x: dtype >f4 is neither float32 nor float16"),
    ({"x": np.zeros((3, 5), int)}, "x: dtype int64 is neither float32 nor float16"),
    ({"x": drawn("float", 0, 5)}, "x is empty: shape (0, 5)"),
    ({"x": drawn("float", 3, 4)}, "weight: shape (7, 5) does not fit x of (3, 4)"),
    ({"x": drawn("float", 5, 3)}, "weight: shape (7, 5) does not fit x of (5, 3)"),
    ({"x": np.array(1, np.float32)}, "x: shape () has fewer than 1 axis"),
]
QUANTIZED: list[tuple[Arguments, str]] = [
    ({"weight": [[1]]}, "weight is a list, not a NumPy array"),
    ({"weight": drawn("float", 7, 5)}, "weight: dtype float32 is not "),
    ({"weight": np.ma.masked_array(NIBBLES)}, "weight is a MaskedArray, not a NumPy array"),
    ({"scales": [1.0] * 7}, "scales is a list, not a NumPy array"),
    ({"scales": drawn("half", 7, 1)}, "scales: dtype float16 differs from x's float32"),
    ({"scales": MASKED}, "scales is a masked array: fill it first"),
    ({"scales": drawn("float", 0)}, "scales is empty: shape (0,)"),
    ({"route": "tiled"}, "linear: route tiled is not possible: it needs weight_type == 'plain'"),
    ({"route": "gemv"}, "linear: route gemv is not possible: it needs weight_type == 'plain'"),
    ({"overrides": {"weight_type": "plain"}}, "overrides: 'weight_type' follows from the other"),
]
OWN: Mapping[str, list[tuple[Arguments, str]]] = {
    "matmul": [
        ({"mat1": [[1.0] * 5]}, "mat1 is a list, not a NumPy array"),
        ({"mat1": MASKED}, "mat1 is a masked array: fill it first"),
        ({"mat1": np.zeros((3, 5))}, "mat1: dtype float64 is neither float32 nor float16"),
        ({"mat1": drawn("float", 5)}, "mat1: shape (5,) has fewer than 2 axes"),
        ({"mat1": drawn("float", 0, 5)}, "mat1 is empty: shape (0, 5)"),
        ({"mat1": drawn("half", 3, 5)}, "mat2: dtype float32 differs from mat1's float16"),
        ({"mat2": drawn("float", 5)}, "mat2: shape (5,) has fewer than 2 axes"),
        ({"mat2": drawn("float", 5, 0)}, "mat2 is empty: shape (5, 0)"),
        (
            {"mat2": drawn("float", 7, 5)},
            "mat2: shape (7, 5) has 7 rows, mat1 of (3, 5) 5 columns",
        ),
        (
            {"mat1": drawn("float", 2, 3, 5), "mat2": drawn("float", 4, 5, 7)},
            "mat1 (2, 3, 5) and mat2 (4, 5, 7) do not broadcast in their leading axes",
        ),
        ({"route": "gemv"}, "matmul: route has no such value"),
        (
            {"route": "coopmat"},
            "matmul: route coopmat is not possible: it needs coopmat_possible and dtype == 'half'",
        ),
    ],
    "linear": [
        *X,
        ({"weight": drawn("float", 5)}, "weight: shape (5,) has 1 axes, not 2"),
        ({"weight": drawn("float", 1, 7, 5)}, "weight: shape (1, 7, 5) has 3 axes, not 2"),
        ({"weight": drawn("float", 0, 5)}, "weight is empty: shape (0, 5)"),
        ({"weight": drawn("half", 7, 5)}, "weight: dtype float16 differs from x's float32"),
        ({"weight": np.ones((7, 5), np.int8)}, "weight: dtype int8 is neither float32 nor float16"),
        (
            {"route": "gemv"},
            "linear: route gemv is not possible: it needs weight_type == 'plain' and m == 1",
        ),
        ({"route": "q8csw"}, "linear: route q8csw is not possible: it needs weight_type == "),
        ({"route": "naive"}, "linear: route has no such value"),
        ({"overrides": {"weight_type": "q8csw"}}, "overrides: 'weight_type' follows from the"),
        ({"overrides": {"weight_form": "texture3d"}}, "linear: weight_form has no such value"),
    ],
    "linear_q8": [
        *X,
        *QUANTIZED,
        ({"weight": NIBBLES}, "weight: dtype uint8 is not int8"),
        ({"weight": np.ones(5, np.int8)}, "weight: shape (5,) has 1 axes, not 2"),
        ({"weight": np.ones((7, 0), np.int8)}, "weight is empty: shape (7, 0)"),
        ({"scales": drawn("float", 7, 1)}, "scales: shape (7, 1) is not (7,)"),
        ({"scales": drawn("float", 1)}, "scales: shape (1,) is not (7,)"),
        ({"route": "q4gsw"}, "linear: route q4gsw is not possible: it needs weight_type == "),
    ],
    "linear_q4": [
        *X,
        *QUANTIZED,
        ({"weight": np.ones((7, 5), np.int8)}, "weight: dtype int8 is not uint8"),
        ({"weight": np.ones((7, 5, 1), np.uint8)}, "weight: shape (7, 5, 1) has 3 axes, not 2"),
        ({"weight": np.ones((0, 5), np.uint8)}, "weight is empty: shape (0, 5)"),
        ({"weight": NIBBLES}, "weight: 16 at [2, 3] is not from 0 to 15"),
        ({"scales": drawn("float", 7)}, "scales: shape (7,) is not (7, 1)"),
        ({"scales": drawn("float", 7, 2)}, "scales: shape (7, 2) is not (7, 1)"),
        ({"zero_points": drawn("float", 1, 7)}, "zero_points: shape (1, 7) is not (7, 1)"),
        (
            {"zero_points": drawn("half", 7, 1)},
            "zero_points: dtype float16 differs from x's float32",
        ),
        (
            {"zero_points": np.zeros((7, 1), np.uint8)},
            "zero_points: dtype uint8 is neither float32 nor float16",
        ),
        ({"zero_points": None}, "zero_points is a NoneType, not a NumPy array"),
        *(
            ({"group_size": size}, f"group_size is {size!r}, not one of 32, 64, 128")
            for size in (0, 16, -32, 256, 32.0, "32", None, True)
        ),
        ({"overrides": {"group_size": 64}}, "overrides: 'group_size' follows from the other"),
        ({"route": "q8csw"}, "linear: route q8csw is not possible: it needs weight_type == "),
    ],
}  # fmt: skip
REFUSED = [
    pytest.param(function, change, message, id=f"{function}-{message[:60]}")
    for function in FUNCTIONS
    for change, message in EVERYWHERE + OWN[function]
]


@pytest.mark.parametrize(("function", "change", "message"), REFUSED)
def test_refusals(device: Device, function: str, change: Arguments, message: str) -> None:
    given, _ = arguments(function, "float", (3, 5), 7)
    with pytest.raises(InvalidArgument, match=re.escape(message)) as caught:
        FUNCTIONS[function](device, **(given | change))
    assert isinstance(caught.value, ValueError)
    assert device.allocator.live_count == 0


@pytest.mark.parametrize("function", ["matmul", "linear"])
def test_cooperative_matrices_need_a_device_that_has_them(device: Device, function: str) -> None:
    given, _ = arguments(function, "half", (3, 5), 7)
    chosen: Arguments = {"route": "coopmat", "overrides": {"storage": "vec4_buffer"}}
    message = f"{function}: route coopmat is not possible: it needs .*coopmat_possible"
    with (
        mock.patch.object(device, "enabled", device.enabled - {"cooperativeMatrix"}),
        pytest.raises(InvalidArgument, match=message),
    ):
        FUNCTIONS[function](device, **given, **chosen)


@every_function
@pytest.mark.parametrize(
    "name",
    [
        *("m", "n", "k", "batch", "dtype", "has_bias", "route"),
        *("has_residual", "has_scale", "residual_op", "residual_alpha"),
        *("has_activation", "activation_op", "activation_a", "activation_b"),
    ],
)
def test_overrides_hide_no_argument(device: Device, function: str, name: str) -> None:
    given, _ = arguments(function, "float", (3, 5), 7)
    message = f"overrides: '{name}' follows from the other arguments"
    with pytest.raises(InvalidArgument, match=message):
        FUNCTIONS[function](device, **given, activation="relu", overrides={name: 1})


@every_function
def test_an_unknown_keyword_is_a_type_error(device: Device, function: str) -> None:
    given, _ = arguments(function, "float", (3, 5), 7)
    message = rf"^{function}\(\) got an unexpected keyword argument 'colour'$"
    with pytest.raises(TypeError, match=message):
        FUNCTIONS[function](device, **given, colour=1)


def test_an_infinite_scale_meets_no_padding(device: Device) -> None:
    """Five of K are three short of two texels: 0 * Inf there would make the sum NaN."""
    x = np.ones((1, 5), np.float32)
    infinite = np.array([np.inf, 2.0], np.float32)
    ones = np.ones((2, 5), np.int8)
    assert linear_q8(device, x, ones, infinite).tolist() == [[np.inf, 10.0]]
    tables = infinite[:, None], np.zeros((2, 1), np.float32)
    assert linear_q4(device, x, ones.view(np.uint8), *tables).tolist() == [[np.inf, 10.0]]
