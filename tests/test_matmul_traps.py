"""What matrix products get wrong: each trap in a test of its name, by every route and storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from conv_support import EPILOGUES
from runtime_support import validated_device
from shaderloom_runtime import ops_matmul
from shaderloom_runtime.device import Device
from shaderloom_runtime.errors import InvalidArgument
from shaderloom_runtime.memory import DTYPES
from shaderloom_runtime.ops_matmul import linear, linear_q4, linear_q8, matmul
from shaderloom_runtime.pack import pack_rows, pack_texture3d, unpack_rows
from shaderloom_runtime.quantize import GROUP_SIZES
from shaderloom_runtime.runner import Batch, pick_within
from shaderloom_runtime.verify_cases import random_array, sizes
from shaderloom_runtime.verify_matmul import Product
from test_matmul_random import assert_right, case_of

Array = NDArray[Any]
# A residual, a scale, and a clamp that fills padding lanes unless they are masked. One for all, as
# each epilogue is a pipeline of its own.
EPILOGUE = EPILOGUES["add_scale_clamp"]
FORMS = ("texture3d", "vec4_buffer")
WEIGHT_FORMS = ("texture2d", "vec4_buffer")
dtypes = pytest.mark.parametrize("dtype", sorted(DTYPES))


def ways() -> Iterator[tuple[str, tuple[str, Product]]]:
    """Yield every way to a product: the variant's name without rows and dtype, op and product."""
    for form, route in product(FORMS, ("naive", "tiled")):
        suffix = "_buffer" * (form == "vec4_buffer")
        one = Product(1, 1, 1, 1, form, overrides={"route": route})
        yield f"matmul_{route}{suffix}", ("matmul", one)
    for form, weight_form in product(FORMS, WEIGHT_FORMS):
        suffix = "_buffer" * (form == "vec4_buffer") + "_wbuf" * (weight_form == "vec4_buffer")
        for kind, route in (("plain", "tiled"), ("q8csw", "q8csw"), ("q4gsw", "q4gsw")):
            overrides = {"route": route, "weight_form": weight_form}
            one = Product(1, 1, 1, 1, form, kind, overrides=overrides)
            yield f"linear_{route}{suffix}", ("linear", one)
        gemv = Product(
            1, 1, 1, 1, form, "plain", overrides={"route": "gemv", "weight_form": weight_form}
        )
        yield f"linear_gemv_subgroup{suffix}", ("linear", gemv)
        shared = replace(gemv, limits={"subgroup_arithmetic": False})
        yield f"linear_gemv_shared{suffix}", ("linear", shared)


WAYS = dict(ways())
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def sized(way: str, m: int, n: int, k: int, batch: int = 1) -> tuple[str, Product]:
    """Return op and product of a way; one row where it takes no more."""
    op, one = WAYS[way]
    return op, replace(one, m=1 if "gemv" in way else m, n=n, k=k, batch=batch)


def assert_way(device: Device, way: str, shape: tuple[int, ...], dtype: str = "float") -> None:
    """Run m, n, k and batch between poison, by the variant that the way names."""
    op, one = sized(way, *shape)
    family = way.removesuffix("_wbuf").removesuffix("_buffer")
    assert_right(device, case_of(op, one, EPILOGUE, dtype), family)


def by(
    device: Device, way: str, x: Array, weight: NDArray[np.int64], **epilogue: Any
) -> tuple[Array, Array]:
    """Return x [M, K] times a weight [N, K] of integers from 0 to 15, and the texels of that."""
    op, one = WAYS[way]
    overrides = {"storage": one.storage, **one.overrides}
    epilogue |= {"route": overrides.pop("route"), "overrides": overrides}
    n, _ = weight.shape
    groups = -(-weight.shape[1] // 32)
    texels: list[Array] = []

    def spy(packed: Array, columns: int) -> Array:
        texels.append(packed)
        return unpack_rows(packed, columns)

    def picked(of: Device, name: str, **problem: Any) -> Any:
        return pick_within(of, one.limits, name, **problem)

    with (
        mock.patch.object(ops_matmul, "unpack_rows", spy),
        mock.patch.object(ops_matmul, "pick", picked),
    ):
        if op == "matmul":
            got = matmul(device, x, weight.T.astype(x.dtype), **epilogue)
        elif one.weight == "plain":
            got = linear(device, x, weight.astype(x.dtype), **epilogue)
        elif one.weight == "q8csw":
            got = linear_q8(device, x, weight.astype(np.int8), np.ones(n, x.dtype), **epilogue)
        else:
            scales, zeros = np.ones((n, groups), x.dtype), np.zeros((n, groups), x.dtype)
            nibbles = weight.astype(np.uint8)
            got = linear_q4(device, x, nibbles, scales, zeros, group_size=32, **epilogue)
    return got, texels[0]


def integers(*shape: int) -> NDArray[np.int64]:
    """Return none that is 0: what is infinite stays so."""
    return np.random.default_rng(shape).integers(1, 8, shape)


# Sizes that are no whole texels, tiles or groups.


@every_way
def test_k_that_is_no_multiple_of_4(device: Device, way: str) -> None:
    for k in (2, 3, 5, 9):
        assert_way(device, way, (5, 6, k, 2))


@every_way
@dtypes
def test_padding_that_meets_infinity_stays_out_of_the_sum(
    device: Device, way: str, dtype: str
) -> None:
    """The last k is infinite: 0 * Inf is NaN, and a texel of padding is all zeros."""
    rows = 1 if "gemv" in way else 3
    for k, n in ((1, 1), (5, 6), (6, 3), (7, 6)):
        x = integers(rows, k).astype(DTYPES[dtype])
        clean = x.astype(np.float64) @ integers(n, k).T
        x[0, -1] = -np.inf
        got, texels = by(device, way, x, integers(n, k))
        assert np.all(got[0] == -np.inf)
        np.testing.assert_array_equal(got[1:], clean[1:])
        assert np.all(texels.reshape(rows, -1)[:, n:] == 0)


@every_way
def test_clamp_leaves_padding_lanes_zero(device: Device, way: str) -> None:
    """Its lower bound is 0.25, which padding lanes of the output must not become."""
    assert EPILOGUE.a > 0
    for n in (1, 2, 3, 5):
        assert_way(device, way, (3, n, 5, 2))


@every_way
@dtypes
def test_one_by_one_by_one(device: Device, way: str, dtype: str) -> None:
    assert_way(device, way, (1, 1, 1), dtype)
    got, texels = by(device, way, np.array([[3]], DTYPES[dtype]), np.array([[5]]))
    np.testing.assert_array_equal(got, [[15]])
    np.testing.assert_array_equal(texels.reshape(-1), [15, 0, 0, 0])


@every_way
def test_less_than_a_texel_of_columns(device: Device, way: str) -> None:
    """Rows of one texel each, so that a row more or less shows."""
    for n in (1, 2, 3):
        assert_way(device, way, (9, n, 4, 3))


@every_way
@dtypes
def test_prime_sizes(device: Device, way: str, dtype: str) -> None:
    assert_way(device, way, (13, 19, 67, 3), dtype)


@every_way
def test_batches_do_not_mix(device: Device, way: str) -> None:
    """More matrices than rows or columns, each with data of its own."""
    assert_way(device, way, (2, 3, 5, 11))


@every_way
def test_no_bias_reads_none(device: Device, way: str) -> None:
    """What stands in for it here is a vector of NaN."""
    op, one = sized(way, 3, 6, 5, 2)
    case = case_of(op, one, EPILOGUE, bias=False)
    assert np.isnan(case.operands["bias"].reshape(-1)[:6].astype(np.float64)).all()
    assert_right(device, case, op)


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("way", [way for way in WAYS if "gemv" not in way and "naive" not in way])
def test_the_last_tile_of_rows_is_partly_filled(device: Device, way: str, rows: int) -> None:
    """Tiles of several rows take 4,096 invocations; the last one here has one row."""
    m, n = {2: (133, 251), 4: (261, 253)}[rows]
    op, one = sized(way, m, n, 3)
    assert m % rows == 1
    assert_right(device, case_of(op, one, EPILOGUE), f"{op}_{way.split('_')[1]}_{rows}")


# Groups of quantized weights.


@pytest.mark.parametrize("size", GROUP_SIZES)
@pytest.mark.parametrize(("form", "weight_form"), list(product(FORMS, WEIGHT_FORMS)))
def test_the_last_group_is_partly_filled(
    device: Device, form: str, weight_form: str, size: int
) -> None:
    overrides = {"route": "q4gsw", "weight_form": weight_form}
    for k in (size - 1, size + 1, 2 * size - 3, 2 * size):
        one = Product(2, 6, k, 1, form, "q4gsw", size, overrides=overrides)
        assert_right(device, case_of("linear", one), "linear_q4gsw_1")


@dtypes
@pytest.mark.parametrize("form", FORMS)
def test_every_value_of_a_quantized_weight(device: Device, form: str, dtype: str) -> None:
    """One column of mat1 is 1, so that each row of the result is a row of weights."""
    chosen: dict[str, Any] = {"overrides": {"storage": form}}
    scales = np.full(1, 0.5, DTYPES[dtype])
    signed = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
    got = linear_q8(device, np.eye(256, dtype=DTYPES[dtype]), signed, scales, **chosen)
    np.testing.assert_array_equal(got[:, 0], np.arange(-128, 128) / 2)
    nibbles = np.arange(16, dtype=np.uint8).reshape(1, 16)
    zeros = np.full((1, 1), 7.5, DTYPES[dtype])
    got = linear_q4(
        device, np.eye(16, dtype=DTYPES[dtype]), nibbles, scales[:, None], zeros, **chosen
    )
    np.testing.assert_array_equal(got[:, 0], (np.arange(16) - 7.5) / 2)


# Grids past the limit of a device.


@every_way
def test_grids_past_the_limit_fold(device: Device, way: str) -> None:
    """A grid of 65,536 folds as one of 3 does where 2 are the most."""
    op, one = sized(way, 37, 33, 5)
    case = case_of(op, one, EPILOGUE)
    [whole] = pick_within(device, case.limits, op, **case.problem)
    limited = replace(case, limits={**case.limits, "max_grid_y": 2})
    [folded] = pick_within(device, limited.limits, op, **case.problem)
    (_, long, spare), (_, high, deep) = whole.grid, folded.grid
    assert spare == 1 < deep
    assert high == 2 < long <= high * deep
    assert_right(device, limited, whole.shader)
    with pytest.raises(InvalidArgument, match=f"a grid of .* x {long} x 2 workgroups exceeds"):
        pick_within(device, limited.limits, op, **{**case.problem, "batch": 2})


def test_a_grid_of_more_than_65535_workgroups_folds(device: Device) -> None:
    """The real limit: a column of a million rows."""
    rows = 16 * 65535 + 5
    x = np.arange(rows, dtype=np.float32)[:, None]
    [record] = pick_within(
        device, {"max_grid_y": 65535}, "matmul", m=rows, n=1, k=1, route="naive",
        storage="vec4_buffer",
    )  # fmt: skip
    assert record.grid == (1, 32768, 2)
    got, texels = by(device, "matmul_naive_buffer", x, np.array([[3]]))
    np.testing.assert_array_equal(got, 3 * x)
    assert not texels[..., 1:].any()


# Halves.


@every_way
def test_sums_of_halves_are_not_rounded_on_the_way(device: Device, way: str) -> None:
    """Neither 2049 nor 131008 is a half."""
    x = np.array([[2048, 1, 1, 65504, -65504]], np.float16)
    got, _ = by(device, way, x, np.array([[1, 1, 1, 0, 0], [0, 0, 0, 2, 2]]))
    np.testing.assert_array_equal(got, [[2050, 0]])


@every_way
def test_halves_near_overflow(device: Device, way: str) -> None:
    """65504 is the largest, and sums below 65520 round to it.

    From there on a buffer holds Inf. A driver that rounds towards zero when it stores to a texture,
    as Vulkan lets it and llvmpipe does, stays at 65504.
    """
    x = np.array([[65504, 8, 65472]], np.float16)
    finite, past = [[1, 0, 0], [0, 4, 1], [1, 1, 0]], [[1, 2, 0], [1, 0, 1], [15, 15, 15]]
    for sign in (1, -1):
        got, texels = by(device, way, sign * x, np.array(finite + past))
        np.testing.assert_array_equal(got[0, :3], [sign * 65504] * 3)
        infinite = "_buffer" in way or np.isinf(got).any()
        np.testing.assert_array_equal(got[0, 3:], [sign * (np.inf if infinite else 65504)] * 3)
        assert np.all(texels.reshape(-1)[6:] == 0)


# The two packings.


@dtypes
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 3, 5, 7), (2, 5, 3, 1), (3, 4, 2, 13)])
def test_relayout_there_and_back_is_exact(
    device: Device, shape: tuple[int, int, int, int], dtype: str
) -> None:
    n, c, h, w = shape
    tensor = random_array(np.random.default_rng(sum(shape)), dtype, *shape)
    special = np.array([-0.0, np.inf, -np.inf, np.finfo(DTYPES[dtype]).max], tensor.dtype)
    tensor.flat[:4] = special[: tensor.size]
    problem = {"dtype": dtype, **sizes("tensor", shape)}
    channels, rows = (
        np.pad(texels, [(0, 1)] * 3 + [(0, 0)], constant_values=np.nan)  # poison past the sizes
        for texels in (pack_texture3d(tensor), pack_rows(tensor.reshape(n * c, h, w)))
    )
    [there] = pick_within(device, {}, "relayout", packing="width", **problem)
    [back] = pick_within(device, {}, "relayout", packing="channels", **problem)
    with Batch(device) as batch:
        source, middle, result = (
            batch.image(tuple(reversed(texels.shape[:-1])), dtype)
            for texels in (channels, rows, channels)
        )
        source.write(channels)
        middle.write(np.full_like(rows, np.nan))
        result.write(np.full_like(channels, np.nan))
        batch.add([there], {"in": source, "out": middle})
        batch.add([back], {"in": middle, "out": result})
        batch.run()
        assert middle.read().tobytes() == rows.tobytes()
        assert result.read().tobytes() == channels.tobytes()
