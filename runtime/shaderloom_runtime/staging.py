"""Arrays into textures and back, by the prepack and staging shaders.

Each function adds its dispatch to a batch: ``pack_weight``, ``pack_vector`` and ``upload``
return the image that holds the array after the batch has run, ``download`` the buffer to read.
The layouts are those of ``pack``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .memory import DTYPES, Buffer, Image
from .registry import Operand
from .runner import Batch, pick

Sizes = tuple[int, int, int, int]  # N, C, H, W
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def blocks(channels: int) -> int:
    """Return how many texels hold ``channels`` channels."""
    return -(-channels // 4)


def texture3d(batch: Batch, sizes: Sizes, dtype: str) -> Image:
    """Make the image of a channels-packed tensor; its contents are undefined."""
    n, c, h, w = sizes
    return batch.image((w, h, blocks(c) * n), dtype)


def upload(batch: Batch, tensor: NDArray[np.generic]) -> Image:
    """Pack an NCHW tensor into a texture3d."""
    dtype = DTYPE_NAMES[tensor.dtype]
    n, c, h, w = tensor.shape
    problem = {"tensor_n": n, "tensor_c": c, "tensor_h": h, "tensor_w": w, "dtype": dtype}
    dispatches = pick(batch.device, "nchw_to_texture3d", **problem)
    image = texture3d(batch, (n, c, h, w), dtype)
    batch.add(dispatches, {"in": batch.buffer(tensor), "out": image})
    return image


def download(batch: Batch, image: Image, sizes: Sizes) -> Buffer:
    """Unpack a texture3d into a buffer of contiguous NCHW elements."""
    n, c, h, w = sizes
    problem = {"tensor_n": n, "tensor_c": c, "tensor_h": h, "tensor_w": w, "dtype": image.dtype}
    dispatches = pick(batch.device, "texture3d_to_nchw", **problem)
    buffer = batch.empty_buffer(n * c * h * w * DTYPES[image.dtype].itemsize)
    batch.add(dispatches, {"in": image, "out": buffer})
    return buffer


def pack_weight(batch: Batch, weight: NDArray[np.generic], by: Operand) -> Buffer | Image:
    """Pack W[N, C, Kh, Kw] as a shader's operand ``by`` wants it: its layout and storage."""
    parts = zip(("n", "c", "h", "w"), weight.shape, strict=True)
    problem: dict[str, Any] = {f"weight_{part}": size for part, size in parts}
    problem |= {"dtype": DTYPE_NAMES[weight.dtype], "packed_form": by.storage}
    [dispatch] = pick(batch.device, by.packed_by, **problem)
    packed = batch.output(dispatch)
    batch.add([dispatch], {"in": batch.buffer(weight), "out": packed})
    return packed


def pack_vector(batch: Batch, vector: NDArray[np.generic]) -> Image:
    """Pack a bias or scale [C] into a texture2d of C4 by 1 texels."""
    dtype = DTYPE_NAMES[vector.dtype]
    (channels,) = vector.shape
    dispatches = pick(batch.device, "channel_vector_prepack", channels=channels, dtype=dtype)
    image = batch.image((blocks(channels), 1), dtype)
    batch.add(dispatches, {"in": batch.buffer(vector), "out": image})
    return image
