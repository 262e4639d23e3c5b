"""Quantized weights: what their packed words hold, and what they stand for.

``pack_q8`` and ``pack_q4`` give the words of a texture2d of rgba32ui texels, (height, width, 4),
or of a buffer of the same texels row by row; ``pack_groups`` the texels of scales and zero points.
``dequantize_q8`` and ``dequantize_q4`` are the reference: the weights [N, K] in float64.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)
Words = NDArray[np.uint32]
GROUP_SIZES = (32, 64, 128)


def pack_q8(weight: NDArray[np.int8]) -> Words:
    """Pack int8 W[N, K]: (K4, N4, 4).

    Texel (n/4, k/4), word k%4, byte n%4 with the lowest first: W[n, k] in two's complement. The
    weights past N and K are 0.
    """
    n, k = weight.shape
    padded = np.pad(weight, ((0, -n % 4), (0, -k % 4))).view(np.uint8)
    by_four = padded.reshape(-1, 4, padded.shape[1] // 4, 4)  # n4, byte, k4, word
    return _words(by_four.transpose(2, 0, 3, 1), 8)


def pack_q4(weight: NDArray[np.uint8]) -> Words:
    """Pack W[N, K] of values from 0 to 15: (ceil(K / 8), N4, 4).

    Texel (n/4, k/8), word k%8/2, nibble 4*(k%2) + n%4 with the lowest first. The nibbles past N
    and K are 0; the inputs that they would meet are padding, which is zero.
    """
    n, k = weight.shape
    padded = np.pad(weight, ((0, -n % 4), (0, -k % 8)))
    by_eight = padded.reshape(-1, 4, padded.shape[1] // 8, 4, 2)  # n4, n%4, k8, word, k%2
    nibbles = by_eight.transpose(2, 0, 3, 4, 1)
    return _words(nibbles.reshape(*nibbles.shape[:3], 8), 4)


def pack_groups(table: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack scales or zero points [N, groups]: (groups, N4, 4); texel (n/4, group), lane n%4."""
    n, groups = table.shape
    padded = np.pad(table, ((0, -n % 4), (0, 0)))
    return np.ascontiguousarray(padded.T.reshape(groups, -1, 4))


def dequantize_q8(weight: NDArray[np.int8], scales: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``W[n, k] * scales[n]`` of int8 W [N, K] and scales [N]."""
    return weight.astype(np.float64) * scales.astype(np.float64)[:, None]


def dequantize_q4(
    weight: NDArray[np.uint8], scales: NDArray[Any], zero_points: NDArray[Any], group_size: int
) -> NDArray[np.float64]:
    """Return ``(W[n, k] - zero_points[n, k / group_size]) * scales[n, k / group_size]``.

    W is [N, K] of values from 0 to 15, the tables are [N, ceil(K / group_size)].
    """
    group = np.arange(weight.shape[1]) // group_size
    zero, scale = (table.astype(np.float64)[:, group] for table in (zero_points, scales))
    return (weight.astype(np.float64) - zero) * scale


def _words(parts: NDArray[Any], bits: int) -> Words:
    """Join the last axis into 32-bit words, the first part in the lowest bits."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    joined = np.bitwise_or.reduce(parts.astype(np.uint32) << shifts, axis=-1)
    return np.ascontiguousarray(joined, dtype=np.uint32)
