"""Words of quantized weights, by hand and against the closed forms of their docstrings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shaderloom_runtime.quantize import (
    GROUP_SIZES,
    dequantize_q4,
    dequantize_q8,
    pack_groups,
    pack_q4,
    pack_q8,
)
from shaderloom_runtime.verify_cases import random_array

sides, seeds = st.integers(1, 19), st.integers(0, 2**32 - 1)
closed_forms = settings(max_examples=40, deadline=None)
Words = NDArray[np.uint32]


def words(*rows: list[list[int]]) -> Words:
    """Texels row after row, each a list of four words."""
    return np.array(rows, np.uint32)


def assert_words(got: Words, expected: Words) -> None:
    assert got.dtype == np.uint32
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, expected)


def test_q8_words_by_hand() -> None:
    """Four bytes are four n, four words four k; a negative weight is its two's complement."""
    assert_words(pack_q8(np.array([[-128]], np.int8)), words([[0x80, 0, 0, 0]]))
    assert_words(
        pack_q8(np.array([[1], [-2], [127], [-128]], np.int8)), words([[0x807FFE01, 0, 0, 0]])
    )
    one_row = np.array([[1, -1, 2, -2, 3]], np.int8)
    assert_words(pack_q8(one_row), words([[1, 0xFF, 2, 0xFE]], [[3, 0, 0, 0]]))
    five = np.array([[0x11], [0x22], [0x33], [0x44], [0x55]], np.int8)
    assert_words(pack_q8(five), words([[0x44332211, 0, 0, 0], [0x55, 0, 0, 0]]))


def test_q4_words_by_hand() -> None:
    """Eight nibbles are four n, then four n of the next k."""
    assert_words(pack_q4(np.array([[15]], np.uint8)), words([[0xF, 0, 0, 0]]))
    five = np.arange(1, 16, dtype=np.uint8).reshape(5, 3)
    assert_words(
        pack_q4(five), words([[0xB852A741, 0x0000C963, 0, 0], [0x000E000D, 0x0000000F, 0, 0]])
    )
    one_row = np.arange(1, 10, dtype=np.uint8).reshape(1, 9)
    assert_words(
        pack_q4(one_row),
        words([[0x00020001, 0x00040003, 0x00060005, 0x00080007]], [[0x00000009, 0, 0, 0]]),
    )


def test_group_texels_by_hand() -> None:
    table = np.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]], np.float16)
    packed = pack_groups(table)
    assert packed.dtype == np.float16
    np.testing.assert_array_equal(
        packed, [[[1, 3, 5, 7], [9, 0, 0, 0]], [[2, 4, 6, 8], [10, 0, 0, 0]]]
    )


@closed_forms
@given(sides, sides, seeds)
def test_q8_words_hold_their_closed_form(n: int, k: int, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(-128, 128, (n, k), np.int8)
    expected = np.zeros((-(-k // 4), -(-n // 4), 4), np.uint32)
    for i, j in np.ndindex(n, k):
        expected[j // 4, i // 4, j % 4] |= (int(weight[i, j]) % 256) << 8 * (i % 4)
    assert_words(pack_q8(weight), expected)


@closed_forms
@given(sides, sides, seeds)
def test_q4_words_hold_their_closed_form(n: int, k: int, seed: int) -> None:
    weight = np.random.default_rng(seed).integers(0, 16, (n, k), np.uint8)
    expected = np.zeros((-(-k // 8), -(-n // 4), 4), np.uint32)
    for i, j in np.ndindex(n, k):
        nibble = 4 * (j % 2) + i % 4
        expected[j // 8, i // 4, j % 8 // 2] |= int(weight[i, j]) << 4 * nibble
    assert_words(pack_q4(weight), expected)


@closed_forms
@given(sides, sides, seeds, st.sampled_from(["float", "half"]))
def test_group_texels_hold_their_closed_form(n: int, groups: int, seed: int, dtype: str) -> None:
    table = random_array(np.random.default_rng(seed), dtype, n, groups)
    expected = np.zeros((groups, -(-n // 4), 4), table.dtype)
    for i, group in np.ndindex(n, groups):
        expected[group, i // 4, i % 4] = table[i, group]
    packed = pack_groups(table)
    assert packed.tobytes() == expected.tobytes()
    assert (packed.dtype, packed.shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("k", range(1, 10))
def test_padding_is_zero(n: int, k: int) -> None:
    """Where every weight is all ones, every other bit is padding."""
    for packed, bits in (
        (pack_q8(np.full((n, k), -1, np.int8)), 8),
        (pack_q4(np.full((n, k), 15, np.uint8)), 4),
    ):
        assert np.unpackbits(packed.view(np.uint8)).sum() == bits * n * k
    assert np.count_nonzero(pack_groups(np.ones((n, k), np.float32))) == n * k


def test_weights_in_any_layout_make_the_same_words() -> None:
    bytes_ = np.random.default_rng(0).integers(-128, 128, (9, 14), np.int8)
    nibbles = (bytes_.view(np.uint8) >> 4).copy()
    for whole, pack in ((bytes_, pack_q8), (nibbles, pack_q4)):
        strided: NDArray[Any] = np.repeat(whole, 2, axis=0)[::2]
        for same in (np.asfortranarray(whole), strided):
            assert not same.flags.c_contiguous
            assert_words(pack(same), pack(whole))


def test_q8_weights_by_hand() -> None:
    weight = np.array([[1, -2], [127, -128]], np.int8)
    got = dequantize_q8(weight, np.array([0.5, 2], np.float16))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [[0.5, -1], [254, -256]])


def test_q4_weights_by_hand() -> None:
    weight = np.array([[0, 15, 8, 1, 9]], np.uint8)
    scales, zeros = np.array([[0.5, 2, -1]], np.float32), np.array([[8, 7, 1.5]], np.float32)
    got = dequantize_q4(weight, scales, zeros, 2)
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, [[-4, 3.5, 2, -12, -7.5]])


@pytest.mark.parametrize("size", GROUP_SIZES)
def test_a_group_begins_where_the_last_one_ends(size: int) -> None:
    weight = np.ones((1, 2 * size + 1), np.uint8)
    scales, zeros = np.array([[1, 2, 4]], np.float32), np.zeros((1, 3), np.float32)
    got = dequantize_q4(weight, scales, zeros, size)
    np.testing.assert_array_equal(got, [[1] * size + [2] * size + [4]])


def test_tables_are_not_rounded_before_the_product() -> None:
    """The reference must be more exact than what it judges."""
    third = np.array([1 / 3], np.float32)
    assert dequantize_q8(np.array([[3]], np.int8), third)[0, 0] == 3 * float(third[0])
    nibble, table = np.array([[1]], np.uint8), third[:, None]
    assert dequantize_q4(nibble, table, table, 32)[0, 0] == (1 - float(third[0])) * float(third[0])
