"""Packed layouts as NumPy arrays, in the closed forms of the weight-packing table.

Each ``pack_*`` returns what the texture of that name holds, as an array of an image's shape:
(height, width, 4) for texture2d, (depth, height, width, 4) for texture3d. What lies past the
logical sizes is zero. The prepack and staging shaders make the same bits.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Scalar = TypeVar("Scalar", bound=np.generic)


def pack_linear_weight(weight: NDArray[Scalar]) -> NDArray[Scalar]:
    """Pack W[N, K] for pointwise convolution and linear: (K4, 4*N4, 4).

    Texel (4*(n/4) + k%4, k/4), lane n%4 holds W[n, k].
    """
    padded = _pad(weight, 0, 1)
    n, k = padded.shape
    by_four = padded.reshape(n // 4, 4, k // 4, 4)  # n4, lane, k4, k % 4
    return np.ascontiguousarray(by_four.transpose(2, 0, 3, 1).reshape(k // 4, n, 4))


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


def _pad(array: NDArray[Scalar], *axes: int) -> NDArray[Scalar]:
    """Append zeros along ``axes`` up to the next multiple of four."""
    widths = [(0, -size % 4 if axis in axes else 0) for axis, size in enumerate(array.shape)]
    return np.pad(array, widths)
