"""What the arguments of an op must be, checked before anything is uploaded.

``check_conv2d(...) -> Conv2d`` and ``check_residual_sizes(call)`` hold the contract's rules for
the epilogue's operands and those of the arrays; sizes, strides, groups and routes are the
dispatcher's to judge. Every error is an InvalidArgument that names the argument and its value.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidArgument
from .registry import load_registry
from .staging import DTYPE_NAMES, Sizes

Array = NDArray[np.generic]
PairLike = int | Sequence[int]


@dataclass(frozen=True)
class Conv2d:
    """A checked convolution: contiguous arrays, and the problem for ``runner.pick``."""

    x: Array
    weight: Array
    bias: Array  # [out_c]; zeros when there is none
    residual: Array | None
    scale: Array | None  # [out_c]
    out_sizes: Sizes
    problem: dict[str, Any]


def check_array(name: str, value: Any, rank: int | None = None) -> Array:
    """Return a contiguous float32 or float16 array that is not empty, of ``rank`` if given."""
    if not isinstance(value, np.ndarray):
        raise InvalidArgument(f"{name} is a {type(value).__name__}, not a NumPy array")
    if isinstance(value, np.ma.MaskedArray):  # shaders know no mask
        raise InvalidArgument(f"{name} is a masked array: fill it first, e.g. x.filled(0)")
    if value.dtype not in DTYPE_NAMES:
        raise InvalidArgument(f"{name}: dtype {value.dtype} is neither float32 nor float16")
    if rank is not None and value.ndim != rank:
        raise InvalidArgument(f"{name}: shape {value.shape} has {value.ndim} axes, not {rank}")
    if value.size == 0:
        raise InvalidArgument(f"{name} is empty: shape {value.shape}")
    return np.asarray(value, order="C")  # ascontiguousarray would make a number an array [1]


def check_number(name: str, value: Any) -> float:
    """Return a real number that is not NaN (GLSL's min and max are undefined for NaN)."""
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:  # e.g. 10**400
        raise InvalidArgument(f"{name} is past every float") from None
    if math.isnan(number):
        raise InvalidArgument(f"{name} is {value!r}, not a number")
    return number


def check_same_dtype(name: str, value: Array, of: str, dtype: np.dtype[Any]) -> None:
    """Refuse an array whose dtype is not that of another one, called ``of``."""
    if value.dtype != dtype:
        raise InvalidArgument(f"{name}: dtype {value.dtype} differs from {of} {dtype}")


def pair(name: str, value: PairLike) -> tuple[int, int]:
    """Return (height, width) of an int or of one or two ints, as PyTorch takes them."""
    values: list[Any] = list(value) if isinstance(value, (tuple, list)) else [value]
    try:
        ints = [operator.index(one) for one in values]
    except TypeError:
        ints = []
    if len(ints) not in (1, 2):
        raise InvalidArgument(f"{name} is {value!r}, neither an int nor a pair of ints")
    return ints[0], ints[-1]


def check_conv2d(
    x: Any,
    weight: Any,
    bias: Any,
    *,
    stride: PairLike,
    padding: PairLike,
    dilation: PairLike,
    transposed: bool,
    output_padding: PairLike,
    groups: int,
    residual: Any,
    scale: Any,
    residual_op: str,
    alpha: float,
    activation: str | None,
    a: float,
    b: float,
    route: str | None,
) -> Conv2d:
    """Check all but the residual's sizes, which need a problem that the dispatcher accepts."""
    x, weight = check_array("x", x, 4), check_array("weight", weight, 4)
    check_same_dtype("weight", weight, "x's", x.dtype)
    if not isinstance(groups, numbers.Integral):
        raise InvalidArgument(f"groups is {groups!r}, not an int")
    in_c, out_c = _channels(x, weight, groups, transposed)
    windows = {
        name: pair(name, value)
        for name, value in (
            ("stride", stride),
            ("padding", padding),
            ("dilation", dilation),
            ("output_padding", output_padding),
        )
    }
    residual, scale = _epilogue_operands(residual, scale, x, weight, out_c)
    n, _, h, w = x.shape
    problem: dict[str, Any] = {
        "in_n": n,
        "in_c": in_c,
        "in_h": h,
        "in_w": w,
        "out_c": out_c,
        "kernel_h": weight.shape[2],
        "kernel_w": weight.shape[3],
        "groups": int(groups),
        "transposed": bool(transposed),
        "dtype": DTYPE_NAMES[x.dtype],
        **epilogue_problem(residual, scale, residual_op, alpha, activation, a, b),
        "route": "auto" if route is None else route,
    }
    for name, (high, wide) in windows.items():
        problem |= {f"{name}_h": high, f"{name}_w": wide}
    out_h, out_w = (_output_side(problem, axis) for axis in "hw")
    sizes = (n, out_c, out_h, out_w)
    bias = check_bias(bias, weight.dtype, out_c)
    return Conv2d(x, weight, bias, residual, scale, sizes, problem)


def check_residual_sizes(call: Conv2d) -> None:
    """Refuse a residual whose sizes are not the output's: it is never broadcast."""
    if call.residual is not None and call.residual.shape != call.out_sizes:
        raise InvalidArgument(
            f"residual: shape {call.residual.shape} differs from the output's {call.out_sizes}"
        )


def _channels(x: Array, weight: Array, groups: int, transposed: bool) -> tuple[int, int]:
    """Return input and output channels; the weight must fit x and the groups."""
    in_c = x.shape[1]
    if transposed:  # [in_c, out_c / groups, kh, kw]
        fits, out_c = weight.shape[0] == in_c, weight.shape[1] * groups
    else:  # [out_c, in_c / groups, kh, kw]
        fits, out_c = weight.shape[1] * groups == in_c, weight.shape[0]
    if not fits:
        raise InvalidArgument(
            f"weight: shape {weight.shape} does not fit x of {in_c} channels in {groups} groups"
            + (", transposed" if transposed else "")
        )
    return in_c, out_c


def check_bias(bias: Any, dtype: np.dtype[Any], out_c: int) -> Array:
    """Return a bias [out_c] of the weight's ``dtype``; zeros when there is none."""
    if bias is None:
        return np.zeros(out_c, dtype)
    bias = check_array("bias", bias, 1)
    check_same_dtype("bias", bias, "the weight's", dtype)
    if bias.shape != (out_c,):
        raise InvalidArgument(f"bias: shape {bias.shape} is not the output channels' ({out_c},)")
    return np.asarray(bias)


def epilogue_problem(
    residual: Array | None,
    scale: Array | None,
    residual_op: str,
    alpha: float,
    activation: str | None,
    a: float,
    b: float,
) -> dict[str, Any]:
    """Return the epilogue's fields of a problem; its operands are the caller's to check."""
    dispatch = load_registry().dispatch
    _check_name("residual_op", residual_op, dispatch.RESIDUAL_OP)
    if activation is not None:
        _check_name("activation", activation, dispatch.ACTIVATION_OP)
    problem: dict[str, Any] = {
        "has_residual": residual is not None,
        "has_scale": scale is not None,
        "residual_op": residual_op,
        "residual_alpha": check_number("alpha", alpha),
        "has_activation": activation is not None,
        "activation_a": check_number("a", a),
        "activation_b": check_number("b", b),
    }
    return problem if activation is None else {**problem, "activation_op": activation}


def _epilogue_operands(
    residual: Any, scale: Any, x: Array, weight: Array, out_c: int
) -> tuple[Array | None, Array | None]:
    if residual is not None:
        residual = check_array("residual", residual, 4)
        check_same_dtype("residual", residual, "the output's", x.dtype)
    if scale is None:
        return residual, None
    scale = check_array("scale", scale)
    if residual is None:
        raise InvalidArgument(f"scale of shape {scale.shape} is given without a residual")
    check_same_dtype("scale", scale, "the weight's", weight.dtype)
    if scale.shape == (out_c,):
        raise InvalidArgument(
            f"scale: shape {scale.shape} would broadcast along the width in PyTorch, not the "
            f"channels: reshape it to (1, {out_c}, 1, 1)"
        )
    if scale.shape not in ((1, out_c, 1, 1), (out_c, 1, 1)):
        raise InvalidArgument(
            f"scale: shape {scale.shape} is neither (1, {out_c}, 1, 1) nor ({out_c}, 1, 1)"
        )
    return residual, scale.reshape(out_c)


def _check_name(name: str, value: Any, allowed: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{name} {value!r} is not one of {', '.join(allowed)}")


def _output_side(problem: dict[str, Any], axis: str) -> int:
    """Return the output's height or width, as PyTorch defines it; any number if it is refused."""
    size, kernel, stride, padding, dilation, extra = (
        problem[f"{name}_{axis}"]
        for name in ("in", "kernel", "stride", "padding", "dilation", "output_padding")
    )
    span = dilation * (kernel - 1) + 1
    if problem["transposed"]:
        return int((size - 1) * stride - 2 * padding + span + extra)
    return int((size + 2 * padding - span) // max(stride, 1) + 1)
