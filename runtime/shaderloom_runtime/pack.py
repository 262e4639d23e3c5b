"""Packed layouts as NumPy arrays, in the closed forms of the weight-packing table.

Each ``pack_*`` returns what the texture of that name holds, as an array of an image's shape:
(height, width, 4) for texture2d, (depth, height, width, 4) for texture3d. What lies past the
logical sizes is zero. The prepack and staging shaders make the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


def pack_linear_weight(weight: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack W[N, C, Kh, Kw] for pointwise convolution, gemm and linear: (K4, 4*N4, 4).

    Texel (4*(n/4) + k%4, k/4), lane n%4 holds W[n, c, h, w] with k = (h*Kw + w)*p4(C) + c; a
    linear weight W[N, K] has one tap.
    """
    taps = weight.reshape(*weight.shape[:2], -1)
    padded = _pad(taps, 0, 1).transpose(0, 2, 1)  # n, tap, c
    n = len(padded)
    by_four = padded.reshape(n // 4, 4, -1, 4)  # n4, lane, k4, k % 4
    return np.ascontiguousarray(by_four.transpose(2, 0, 3, 1).reshape(-1, n, 4))


def pack_direct_weight(weight: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack W[N, C, Kh, Kw] for direct convolution: (N4*Kh, p4(C)*Kw, 4).

    Texel ((c/4)*4*Kw + 4*w + c%4, (n/4)*Kh + h), lane n%4; C is the channels of one group.
    """
    n, c, kh, kw = (padded := _pad(weight, 0, 1)).shape
    by_four = padded.reshape(n // 4, 4, c // 4, 4, kh, kw)  # n4, lane, c4, c % 4, h, w
    return np.ascontiguousarray(by_four.transpose(0, 4, 2, 5, 3, 1).reshape(n // 4 * kh, c * kw, 4))


def pack_depthwise_weight(weight: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack W[N, 1, Kh, Kw] for depthwise convolution: (N4, Kh*Kw, 4).

    Texel (h*Kw + w, n/4), lane n%4.
    """
    padded = _pad(weight, 0)
    return np.ascontiguousarray(padded.reshape(len(padded) // 4, 4, -1).transpose(0, 2, 1))


def pack_transposed_weight(weight: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack W[Cin, Cout, Kh, Kw] for transposed convolution: (Cout4*Kh, Kw*p4(Cin), 4).

    Texel ((Kw-1-w)*p4(Cin) + ci, (co/4)*Kh + Kh-1-h), lane co%4: flipped in both directions.
    """
    ci, co, kh, kw = (padded := _pad(weight, 0, 1)[:, :, ::-1, ::-1]).shape
    by_four = padded.reshape(ci, co // 4, 4, kh, kw)  # ci, co4, lane, h, w
    return np.ascontiguousarray(by_four.transpose(1, 3, 4, 0, 2).reshape(co // 4 * kh, kw * ci, 4))


# What packs a weight, by the op of its prepack shader.
WEIGHT_PACKERS: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "conv2d_prepack_weights": pack_direct_weight,
    "conv2d_dw_prepack_weights": pack_depthwise_weight,
    "conv_transpose2d_prepack_weights": pack_transposed_weight,
    "linear_prepack_weights": pack_linear_weight,
}


def pack_channel_vector(vector: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack a bias or scale [C]: (1, C4, 4); texel (c/4, 0), lane c%4."""
    return _pad(vector, 0).reshape(1, -1, 4)


def pack_texture3d(tensor: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack NCHW by channels: (N*C4, H, W, 4); texel (x, y, c/4 + n*C4), lane c%4."""
    padded = _pad(tensor, 1)
    n, c, h, w = padded.shape
    by_four = padded.reshape(n * c // 4, 4, h, w)
    return np.ascontiguousarray(by_four.transpose(0, 2, 3, 1))


def unpack_texture3d(texels: NDArray[Scalar], sizes: tuple[int, int, int, int]) -> NDArray[Scalar]:
    """Return the NCHW tensor of ``sizes`` that ``texels`` of shape (N*C4, H, W, 4) hold."""
    n, c, h, w = sizes
    planes = texels.transpose(0, 3, 1, 2).reshape(n, -1, h, w)
    return np.ascontiguousarray(planes[:, :c])


def pack_rows(matrices: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack matrices [B, M, K] by width: (B, M, K4, 4); texel (k/4, m, b), lane k%4."""
    padded = _pad(matrices, 2)
    return np.ascontiguousarray(padded.reshape(*padded.shape[:2], -1, 4))


def unpack_rows(texels: NDArray[Scalar], columns: int) -> NDArray[Scalar]:
    """Return the matrices [B, M, columns] that ``texels`` of shape (B, M, K4, 4) hold."""
    return np.ascontiguousarray(texels.reshape(*texels.shape[:2], -1)[:, :, :columns])


def _pad(array: NDArray[Scalar], *axes: int) -> NDArray[Scalar]:
    """Append zeros along ``axes`` up to the next multiple of four."""
    widths = [(0, -size % 4 if axis in axes else 0) for axis, size in enumerate(array.shape)]
    return np.pad(array, widths)
