"""Convolution and elementwise ops on NumPy arrays, float32 or float16.

::

    with open_device() as device:
        y = conv2d(device, x, weight, bias, residual=r, scale=s, activation="relu")

Arrays may be laid out in any way; results are contiguous and of the inputs' dtype. Every call
uploads its operands, packs constants on the device, runs, and reads the result back; the
pipelines that it makes stay with the device and serve later calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .device import Device
from .errors import InvalidArgument
from .memory import Buffer, Image
from .runner import Batch, pick, weight_operand
from .staging import DTYPE_NAMES, Sizes, download, pack_vector, pack_weight, texture3d, upload
from .validate import (
    PairLike,
    check_array,
    check_conv2d,
    check_number,
    check_residual_sizes,
    check_same_dtype,
)

Array = NDArray[np.generic]


def conv2d(
    device: Device,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    stride: PairLike = 1,
    padding: PairLike = 0,
    dilation: PairLike = 1,
    transposed: bool = False,
    output_padding: PairLike = 0,
    groups: int = 1,
    residual: Array | None = None,
    scale: Array | None = None,
    residual_op: str = "add",
    alpha: float = 1.0,
    activation: str | None = None,
    a: float = 0.0,
    b: float = 0.0,
    route: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Array:
    """Return ``activation(residual_op(conv(x, weight) + bias, residual * scale, alpha))``.

    Args:
        device: an open device.
        x: [1, C, H, W].
        weight: [O, C/groups, Kh, Kw]; transposed [C, O/groups, Kh, Kw]. Its dtype is x's.
        bias: [O], of the weight's dtype.
        stride, padding, dilation, output_padding: an int, or (height, width).
        transposed: conv_transpose2d instead of conv2d; without groups and dilation.
        groups: of the channels.
        residual: of the output's shape and dtype.
        scale: a constant [1, O, 1, 1] or [O, 1, 1] of the weight's dtype, for a residual only.
        residual_op: "add" (y + alpha*r), "sub" (y - alpha*r) or "mul" (y * r, without alpha).
        alpha: the factor of the residual.
        activation: None, "clamp" (to a, b; all b where a > b, as in PyTorch), "relu" or
            "leaky_relu" (a is the slope).
        a, b: parameters of the activation.
        route: force a route of the dispatcher; None lets it choose.
        overrides: further fields of the dispatcher's problem, e.g. {"b1x1": True}.

    Raises:
        InvalidArgument: an argument that cannot be, or that no route takes (a ValueError).
        MissingFeature: the device lacks a feature that the shader needs.
        OutOfMemory, DeviceLost, VulkanError: the device failed.
    """
    call = check_conv2d(
        x,
        weight,
        bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        transposed=transposed,
        output_padding=output_padding,
        groups=groups,
        residual=residual,
        scale=scale,
        residual_op=residual_op,
        alpha=alpha,
        activation=activation,
        a=a,
        b=b,
        route=route,
    )
    dispatches = pick(device, "conv2d", **call.problem, **further_fields(call.problem, overrides))
    check_residual_sizes(call)
    with Batch(device) as batch:
        out = batch.output(dispatches[-1])
        assert isinstance(out, Image), "every family of the op writes a texture3d"
        packed = weight_operand(dispatches)
        operands: dict[str, Buffer | Image] = {
            "out": out,
            "in": upload(batch, call.x),
            "weight": pack_weight(batch, call.weight, packed),
            "bias": pack_vector(batch, call.bias),
        }
        if call.residual is not None:
            operands["residual"] = upload(batch, call.residual)
        if call.scale is not None:
            operands["scale"] = pack_vector(batch, call.scale)
        if len(dispatches) > 1:  # im2col: bands take turns with one scratch
            operands["scratch"] = batch.output(dispatches[0], "scratch")
        batch.add(dispatches, operands)
        return _finish(batch, download(batch, out, call.out_sizes), call.out_sizes, call.x.dtype)


def binary(device: Device, op: str, x: Array, y: Array) -> Array:
    """Return ``x + y`` ("add") or ``x * y`` ("mul") with NumPy broadcasting of NCHW arrays.

    Raises:
        InvalidArgument: another op, arrays that are not NCHW or differ in dtype, or shapes
            that do not broadcast. Else as ``conv2d``.
    """
    x, y = check_array("x", x, 4), check_array("y", y, 4)
    check_same_dtype("y", y, "x's", x.dtype)
    if op not in ("add", "mul"):
        raise InvalidArgument(f"op {op!r} is not one of add, mul")
    problem: dict[str, Any] = {"operation": op, "dtype": DTYPE_NAMES[x.dtype]}
    problem |= dict(zip(("in_n", "in_c", "in_h", "in_w"), x.shape, strict=True))
    problem |= dict(zip(("other_n", "other_c", "other_h", "other_w"), y.shape, strict=True))
    dispatches = pick(device, "binary", **problem)
    n, c, h, w = np.broadcast_shapes(x.shape, y.shape)
    with Batch(device) as batch:
        out = texture3d(batch, (n, c, h, w), DTYPE_NAMES[x.dtype])
        batch.add(dispatches, {"out": out, "in": upload(batch, x), "other": upload(batch, y)})
        return _finish(batch, download(batch, out, (n, c, h, w)), (n, c, h, w), x.dtype)


def clamp(device: Device, x: Array, low: float, high: float) -> Array:
    """Return ``min(max(x, low), high)`` of an NCHW array: ``high`` wherever low > high.

    Raises:
        InvalidArgument: an array that is not NCHW, or a bound that is no number. Else as
            ``conv2d``.
    """
    x = check_array("x", x, 4)
    n, c, h, w = sizes = x.shape
    bounds = {"low": check_number("low", low), "high": check_number("high", high)}
    problem = {"in_n": n, "in_c": c, "in_h": h, "in_w": w, "dtype": DTYPE_NAMES[x.dtype]}
    dispatches = pick(device, "clamp", **problem, **bounds)
    with Batch(device) as batch:
        out = texture3d(batch, (n, c, h, w), DTYPE_NAMES[x.dtype])
        batch.add(dispatches, {"out": out, "in": upload(batch, x)})
        return _finish(batch, download(batch, out, sizes), sizes, x.dtype)


def further_fields(
    problem: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the overrides; a field that the arguments decide, e.g. "in_c", is refused."""
    if not isinstance(overrides, Mapping | None):
        raise InvalidArgument(f"overrides is a {type(overrides).__name__}, not a mapping")
    for name in overrides or {}:
        if name in problem:
            raise InvalidArgument(f"overrides: '{name}' follows from the other arguments")
    return overrides or {}


def _finish(batch: Batch, result: Buffer, sizes: Sizes, dtype: np.dtype[np.generic]) -> Array:
    batch.run()
    return result.read(dtype, sizes)
