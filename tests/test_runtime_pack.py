"""NumPy packers against the closed forms, and the prepack shaders against the packers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runtime_support import validated_device
from shaderloom_runtime.device import Device
from shaderloom_runtime.memory import DTYPES, Image
from shaderloom_runtime.pack import (
    WEIGHT_PACKERS,
    pack_channel_vector,
    pack_linear_weight,
    pack_texture3d,
    unpack_texture3d,
)
from shaderloom_runtime.registry import Operand
from shaderloom_runtime.runner import Batch
from shaderloom_runtime.staging import download, pack_vector, pack_weight, upload
from shaderloom_runtime.verify_cases import random_array

sides = st.integers(1, 9)
dtypes = st.sampled_from(sorted(DTYPES))
Place = tuple[int, int, int]


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def counted(dtype: str, *shape: int) -> NDArray[Any]:
    """An array of the numbers 1, 2, 3, ..., so that every element is told from the others."""
    return np.arange(1, 1 + int(np.prod(shape)), dtype=DTYPES[dtype]).reshape(shape)


@given(sides, sides, dtypes)
def test_weight_texel_holds_its_closed_form(n: int, k: int, dtype: str) -> None:
    weight = counted(dtype, n, k)
    packed = pack_linear_weight(weight)
    expected = np.zeros((-(-k // 4), 4 * -(-n // 4), 4), DTYPES[dtype])
    for i in range(n):
        for j in range(k):
            expected[j // 4, 4 * (i // 4) + j % 4, i % 4] = weight[i, j]
    assert packed.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(packed, expected)


def p4(n: int) -> int:
    return -(-n // 4) * 4


# The table of the weight packing, by op: the extent (rows, columns) for a weight of N, C, Kh, Kw,
# and the row, column and lane of its element n, c, h, w.
CLOSED_FORMS: dict[str, tuple[Callable[..., tuple[int, int]], Callable[..., Place]]] = {
    "conv2d_prepack_weights": (
        lambda ns, cs, kh, kw: (p4(ns) // 4 * kh, p4(cs) * kw),
        lambda n, c, h, w, ns, cs, kh, kw: (
            n // 4 * kh + h, c // 4 * 4 * kw + 4 * w + c % 4, n % 4
        ),
    ),
    "conv2d_dw_prepack_weights": (
        lambda ns, cs, kh, kw: (p4(ns) // 4, kh * kw),
        lambda n, c, h, w, ns, cs, kh, kw: (n // 4, h * kw + w, n % 4),
    ),
    "conv_transpose2d_prepack_weights": (  # n counts input channels, c output channels
        lambda ns, cs, kh, kw: (p4(cs) // 4 * kh, p4(ns) * kw),
        lambda n, c, h, w, ns, cs, kh, kw: (
            c // 4 * kh + kh - 1 - h, (kw - 1 - w) * p4(ns) + n, c % 4
        ),
    ),
    "linear_prepack_weights": (
        lambda ns, cs, kh, kw: (kh * kw * p4(cs) // 4, p4(ns)),
        lambda n, c, h, w, ns, cs, kh, kw: (
            ((h * kw + w) * p4(cs) + c) // 4, 4 * (n // 4) + c % 4, n % 4
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("op", CLOSED_FORMS)
@pytest.mark.parametrize("dtype", sorted(DTYPES))
@given(n=sides, c=sides, h=st.integers(1, 4), w=st.integers(1, 4))
@settings(max_examples=15, deadline=None)
def test_convolution_weight_texels_hold_their_closed_form(
    op: str, dtype: str, n: int, c: int, h: int, w: int
) -> None:
    sizes = (n, 1 if op == "conv2d_dw_prepack_weights" else c, h, w)
    weight = counted(dtype, *sizes)
    extent, place = CLOSED_FORMS[op]
    expected = np.zeros((*extent(*sizes), 4), DTYPES[dtype])
    for index in np.ndindex(*sizes):
        expected[place(*index, *sizes)] = weight[index]
    packed = WEIGHT_PACKERS[op](weight)
    assert packed.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(packed, expected)


def test_every_weight_packer_has_a_closed_form() -> None:
    assert set(CLOSED_FORMS) == set(WEIGHT_PACKERS)


@given(sides, dtypes)
def test_vector_texel_holds_its_closed_form(channels: int, dtype: str) -> None:
    vector = counted(dtype, channels)
    expected = np.zeros((1, -(-channels // 4), 4), DTYPES[dtype])
    for c in range(channels):
        expected[0, c // 4, c % 4] = vector[c]
    np.testing.assert_array_equal(pack_channel_vector(vector), expected)


@given(sides, sides, sides, sides, dtypes)
@settings(max_examples=30, deadline=None)
def test_tensor_texel_holds_its_closed_form(n: int, c: int, h: int, w: int, dtype: str) -> None:
    tensor = counted(dtype, n, c, h, w)
    blocks = -(-c // 4)
    expected = np.zeros((n * blocks, h, w, 4), DTYPES[dtype])
    for i, j in np.ndindex(n, c):
        expected[j // 4 + i * blocks, :, :, j % 4] = tensor[i, j]
    packed = pack_texture3d(tensor)
    np.testing.assert_array_equal(packed, expected)
    np.testing.assert_array_equal(unpack_texture3d(packed, (n, c, h, w)), tensor)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 7), (5, 4), (13, 17), (64, 33)])
def test_prepack_shader_makes_the_bits_of_the_weight_packer(
    device: Device, dtype: str, n: int, k: int
) -> None:
    weight = random_array(np.random.default_rng(n), dtype, n, k, 1, 1)
    by = Operand(2, "weight", "texture2d", "linear_prepack_weights")
    with Batch(device) as batch:
        image = pack_weight(batch, weight, by)
        assert isinstance(image, Image)
        batch.run()
        got = image.read()
    expected = pack_linear_weight(weight)
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("channels", [1, 3, 4, 6, 131])
def test_prepack_shader_makes_the_bits_of_the_vector_packer(
    device: Device, dtype: str, channels: int
) -> None:
    vector = random_array(np.random.default_rng(channels), dtype, channels)
    with Batch(device) as batch:
        image = pack_vector(batch, vector)
        batch.run()
        got = image.read()
    expected = pack_channel_vector(vector)
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 5, 3, 7), (2, 3, 4, 5), (3, 8, 1, 2)])
def test_staging_shaders_pack_and_unpack_bit_for_bit(
    device: Device, dtype: str, shape: tuple[int, int, int, int]
) -> None:
    tensor = random_array(np.random.default_rng(sum(shape)), dtype, *shape)
    with Batch(device) as batch:
        image = upload(batch, tensor)
        buffer = download(batch, image, shape)
        batch.run()
        packed, back = image.read(), buffer.read(tensor.dtype, shape)
    assert packed.tobytes() == pack_texture3d(tensor).tobytes()
    assert back.tobytes() == tensor.tobytes()
