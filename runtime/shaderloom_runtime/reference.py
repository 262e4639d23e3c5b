"""What the shaders must compute, in float64 NumPy, and how far from it they may be.

``conv2d(...) -> Reference`` and ``binary``/``clamp`` return the values and, for each of them,
the scale of its rounding errors; ``bound(reference, dtype)`` turns that into the allowed
absolute error. Independent of the shaders: sliding windows and einsum over NCHW arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Pair = tuple[int, int]

_EPS_ACCUMULATOR = float(np.finfo(np.float32).eps)  # every shader accumulates in fp32
# The loosest that is ever allowed, whatever the formula says: absolute or relative.
_CAPS = {"float": (1e-3, 1e-3), "half": (1e-1, 1e-2)}
_EPS_STORED = {"float": _EPS_ACCUMULATOR, "half": float(np.finfo(np.float16).eps)}


@dataclass(frozen=True)
class Reference:
    """``values`` and, for each, ``spread``: the sum of the magnitudes that were added up.

    ``terms`` is how many there were (K), as rounding errors grow with its square root.
    """

    values: Array
    spread: Array
    terms: int


@dataclass(frozen=True)
class Epilogue:
    """``activation(residual_op(y, residual * scale, alpha))``, absent parts None.

    ``residual`` has the output's shape, ``scale`` [1, C, 1, 1], or [N] for matrices. ``a`` and
    ``b`` are the bounds of clamp (as in PyTorch, ``b`` where a > b), ``a`` the slope of leaky_relu.
    """

    residual: Array | None = None
    scale: Array | None = None
    residual_op: str = "add"
    alpha: float = 1.0
    activation: str | None = None
    a: float = 0.0
    b: float = 0.0


def conv2d(
    x: Array,
    weight: Array,
    bias: Array | None,
    *,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    transposed: bool = False,
    output_padding: Pair = (0, 0),
    groups: int = 1,
    epilogue: Epilogue | None = None,
) -> Reference:
    """Convolve ``x`` [N, C, H, W] as torch.nn.functional.conv2d or conv_transpose2d does.

    ``weight`` is [O, C/groups, Kh, Kw], transposed [C, O/groups, Kh, Kw].
    """
    if transposed:
        frame = (stride, padding, dilation, output_padding)
        x, weight = _as_direct(x, weight, *frame, groups)
        stride, padding = (1, 1), (0, 0)
    y = _windows(x, weight, stride, padding, dilation, groups)
    spread = _windows(np.abs(x), np.abs(weight), stride, padding, dilation, groups)
    if bias is not None:
        y = y + bias.reshape(1, -1, 1, 1)
        spread = spread + np.abs(bias).reshape(1, -1, 1, 1)
    terms = int(np.prod(weight.shape[1:]))
    return apply_epilogue(Reference(y, spread, terms), epilogue or Epilogue())


def matmul(x: Array, y: Array, bias: Array | None, epilogue: Epilogue | None = None) -> Reference:
    """Multiply ``x`` [..., M, K] and ``y`` [..., K, N]; bias and the epilogue's scale are [N]."""
    values, spread = x @ y, np.abs(x) @ np.abs(y)
    if bias is not None:
        values, spread = values + bias, spread + np.abs(bias)
    return apply_epilogue(Reference(values, spread, x.shape[-1]), epilogue or Epilogue())


def apply_epilogue(result: Reference, epilogue: Epilogue) -> Reference:
    """Apply an epilogue to values and spread.

    A factor on y scales its error as well: a residual that is multiplied, and a slope past 1.
    """
    y, spread = result.values, result.spread
    if epilogue.residual is not None:
        r = epilogue.residual * (1.0 if epilogue.scale is None else epilogue.scale)
        scaled = epilogue.alpha * r
        y, spread = {
            "add": (y + scaled, spread + np.abs(scaled)),
            "sub": (y - scaled, spread + np.abs(scaled)),
            "mul": (y * r, spread * np.abs(r)),
        }[epilogue.residual_op]
    if epilogue.activation is not None:
        activate: Callable[[Array], Array] = {
            "clamp": lambda v: np.minimum(np.maximum(v, epilogue.a), epilogue.b),
            "relu": lambda v: np.maximum(v, 0.0),
            "leaky_relu": lambda v: np.where(v < 0, v * epilogue.a, v),
        }[epilogue.activation]
        y = activate(y)
        if epilogue.activation == "leaky_relu":
            spread = spread * max(1.0, abs(epilogue.a))
    return Reference(y, spread, result.terms)


def binary(op: str, x: Array, y: Array) -> Reference:
    """Add or multiply with NumPy broadcasting."""
    if op == "add":
        return Reference(x + y, np.abs(x) + np.abs(y), 1)
    return Reference(x * y, np.abs(x * y), 1)


def clamp(x: Array, low: float, high: float) -> Reference:
    """Clamp as PyTorch does: ``high`` wherever low > high."""
    values = np.minimum(np.maximum(x, low), high)
    return Reference(values, np.abs(values), 1)


def bound(reference: Reference, dtype: str) -> Array:
    """Return the absolute error that each element may have.

    ``eps_store * |ref| + 2 * sqrt(K) * eps_acc * spread``, where the spread is
    ``sum|w*x| + |bias| + |alpha*r|``; never more than ``dtype``'s cap, which is absolute or
    relative: 1e-3 or 1e-3 for float, 1e-1 or 1e-2 for half.
    """
    size = np.abs(reference.values)
    accumulated = 2 * np.sqrt(reference.terms) * _EPS_ACCUMULATOR * reference.spread
    absolute, relative = _CAPS[dtype]
    cap = np.maximum(absolute, relative * size)
    return np.asarray(np.minimum(_EPS_STORED[dtype] * size + accumulated, cap))


def _windows(
    x: Array, weight: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    n, channels = x.shape[:2]
    out_channels, per_group, kh, kw = weight.shape
    (ph, pw), (dh, dw), (sh, sw) = padding, dilation, stride
    padded = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    span = (dh * (kh - 1) + 1, dw * (kw - 1) + 1)
    views = np.lib.stride_tricks.sliding_window_view(padded, span, axis=(2, 3))
    views = views[:, :, ::sh, ::sw, ::dh, ::dw]
    out_h, out_w = views.shape[2:4]
    views = views.reshape(n, groups, channels // groups, out_h, out_w, kh, kw)
    grouped = weight.reshape(groups, out_channels // groups, per_group, kh, kw)
    y = np.einsum("ngchwij,gocij->ngohw", views, grouped, optimize=True)
    return np.asarray(y.reshape(n, out_channels, out_h, out_w))


def _as_direct(
    x: Array,
    weight: Array,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    output_padding: Pair,
    groups: int,
) -> tuple[Array, Array]:
    """Turn a transposed convolution into a direct one of stride 1 without padding.

    The input is spread out by the stride, framed by what the kernel spans, and met by the
    flipped kernel; padding takes away from that frame instead of adding to it.
    """
    n, channels, h, w = x.shape
    (sh, sw), (ph, pw), (dh, dw), (oh, ow) = stride, padding, dilation, output_padding
    kh, kw = weight.shape[2:]
    spread = np.zeros((n, channels, (h - 1) * sh + 1, (w - 1) * sw + 1))
    spread[:, :, ::sh, ::sw] = x
    top, left = dh * (kh - 1), dw * (kw - 1)
    framed = np.pad(spread, ((0, 0), (0, 0), (top, top + oh), (left, left + ow)))
    framed = framed[:, :, ph : framed.shape[2] - ph, pw : framed.shape[3] - pw]
    per_group = weight.reshape(groups, channels // groups, *weight.shape[1:])
    swapped = per_group.transpose(0, 2, 1, 3, 4).reshape(-1, channels // groups, kh, kw)
    return framed, swapped[:, :, ::-1, ::-1]
