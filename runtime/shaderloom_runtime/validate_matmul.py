"""What the arguments of matmul and linear must be, checked before anything is uploaded.

``check_matmul``, ``check_linear``, ``check_linear_q8`` and ``check_linear_q4`` return a ``Matmul``:
arrays in the form that is uploaded, and the problem for ``runner.pick``. Every error is an
InvalidArgument that names the argument and its value; what sizes and routes are possible is the
dispatcher's to judge.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidArgument
from .quantize import GROUP_SIZES
from .staging import DTYPE_NAMES
from .validate import Array, check_array, check_bias, check_same_dtype, epilogue_problem


class EpilogueArguments(TypedDict, total=False):
    """``activation(residual_op(y + bias, residual * scale, alpha))`` and the choice of the route.

    Keys:
        residual: of the output's shape and dtype.
        scale: a constant [N] of the weight's dtype, for a residual only.
        residual_op: "add" (y + alpha*r, the default), "sub" (y - alpha*r) or "mul" (y * r).
        alpha: the factor of the residual, 1 by default.
        activation: None, "clamp" (to a, b; all b where a > b), "relu" or "leaky_relu" (a is the
            slope).
        a, b: parameters of the activation.
        route: force a route of the dispatcher; None lets it choose.
        overrides: further fields of the dispatcher's problem, e.g. {"storage": "texture3d"}.
    """

    residual: Array | None
    scale: Array | None
    residual_op: str
    alpha: float
    activation: str | None
    a: float
    b: float
    route: str | None
    overrides: Mapping[str, Any] | None


@dataclass(frozen=True)
class Matmul:
    """A checked product; ``constants`` are further operands by slot, packed by the caller."""

    mat1: Array  # [B, M, K]
    mat2: Array  # [B, K, N], or a weight [N, K]
    bias: Array  # [N]; zeros when there is none
    residual: Array | None  # [B, M, N]
    scale: Array | None  # [N]
    shape: tuple[int, ...]  # of the output
    problem: dict[str, Any]
    constants: Mapping[str, Array] = field(default_factory=dict)


def check_matmul(mat1: Any, mat2: Any, bias: Any, arguments: EpilogueArguments) -> Matmul:
    """Check ``mat1`` [..., M, K] times ``mat2`` [..., K, N]; leading axes broadcast."""
    mat1, mat2 = (_matrix(name, value, 2) for name, value in (("mat1", mat1), ("mat2", mat2)))
    check_same_dtype("mat2", mat2, "mat1's", mat1.dtype)
    if mat1.shape[-1] != mat2.shape[-2]:
        raise InvalidArgument(
            f"mat2: shape {mat2.shape} has {mat2.shape[-2]} rows, mat1 of {mat1.shape} "
            f"{mat1.shape[-1]} columns"
        )
    try:
        leading = np.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2])
    except ValueError:
        raise InvalidArgument(
            f"mat1 {mat1.shape} and mat2 {mat2.shape} do not broadcast in their leading axes"
        ) from None
    shape = (*leading, mat1.shape[-2], mat2.shape[-1])
    if mat2.ndim == 2:  # one matrix for all rows of mat1
        mat1, mat2 = mat1.reshape(1, -1, mat1.shape[-1]), mat2[None]
    else:
        mat1, mat2 = (
            np.broadcast_to(m, leading + m.shape[-2:]).reshape(-1, *m.shape[-2:])
            for m in (mat1, mat2)
        )
    return _checked(mat1, mat2, bias, shape, mat2.shape[-1], arguments)


def check_linear(x: Any, weight: Any, bias: Any, arguments: EpilogueArguments) -> Matmul:
    """Check ``x`` [..., K] times a weight [N, K], transposed."""
    x, weight = _matrix("x", x, 1), check_array("weight", weight, 2)
    check_same_dtype("weight", weight, "x's", x.dtype)
    return _linear(x, weight, bias, arguments)


def check_linear_q8(
    x: Any, weight: Any, scales: Any, bias: Any, arguments: EpilogueArguments
) -> Matmul:
    """Check int8 weights [N, K] with scales [N] of x's dtype."""
    x, weight = _matrix("x", x, 1), _quantized(weight, np.int8)
    table = _table("scales", scales, (weight.shape[0],), x.dtype)
    tables = {"weight_scales": table[:, None]}
    return _linear(x, weight, bias, arguments, "q8csw", constants=tables)


def check_linear_q4(
    x: Any,
    weight: Any,
    scales: Any,
    zero_points: Any,
    group_size: Any,
    bias: Any,
    arguments: EpilogueArguments,
) -> Matmul:
    """Check uint8 weights [N, K] from 0 to 15 with tables [N, ceil(K / group_size)]."""
    x, weight = _matrix("x", x, 1), _quantized(weight, np.uint8)
    if weight.max() > 15:
        n, k = (int(i) for i in np.argwhere(weight > 15)[0])
        raise InvalidArgument(f"weight: {weight[n, k]} at [{n}, {k}] is not from 0 to 15")
    if not isinstance(group_size, numbers.Integral) or group_size not in GROUP_SIZES:
        sizes = ", ".join(map(str, GROUP_SIZES))
        raise InvalidArgument(f"group_size is {group_size!r}, not one of {sizes}")
    shape = (weight.shape[0], -(-weight.shape[1] // int(group_size)))
    tables = {
        "weight_scales": _table("scales", scales, shape, x.dtype),
        "zero_points": _table("zero_points", zero_points, shape, x.dtype),
    }
    return _linear(x, weight, bias, arguments, "q4gsw", int(group_size), tables)


def _matrix(name: str, value: Any, least: int) -> Array:
    array = check_array(name, value)
    if array.ndim < least:
        what = "axis" if least == 1 else "axes"
        raise InvalidArgument(f"{name}: shape {array.shape} has fewer than {least} {what}")
    return array


def _quantized(weight: Any, dtype: type[np.generic]) -> Array:
    if not isinstance(weight, np.ndarray) or isinstance(weight, np.ma.MaskedArray):
        raise InvalidArgument(f"weight is a {type(weight).__name__}, not a NumPy array")
    if weight.dtype != dtype:
        raise InvalidArgument(f"weight: dtype {weight.dtype} is not {np.dtype(dtype)}")
    if weight.ndim != 2:
        raise InvalidArgument(f"weight: shape {weight.shape} has {weight.ndim} axes, not 2")
    if weight.size == 0:
        raise InvalidArgument(f"weight is empty: shape {weight.shape}")
    return np.ascontiguousarray(weight)


def _table(name: str, value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = check_array(name, value)
    check_same_dtype(name, array, "x's", dtype)
    if array.shape != shape:
        raise InvalidArgument(f"{name}: shape {array.shape} is not {shape}")
    return array


def _linear(
    x: Array,
    weight: Array,
    bias: Any,
    arguments: EpilogueArguments,
    weight_type: str = "plain",
    group_size: int = GROUP_SIZES[-1],
    constants: Mapping[str, Array] | None = None,
) -> Matmul:
    n, k = weight.shape
    if x.shape[-1] != k:
        raise InvalidArgument(f"weight: shape {weight.shape} does not fit x of {x.shape}")
    rows = x.reshape(1, -1, k)
    shape = (*x.shape[:-1], n)
    further = {"weight_type": weight_type, "group_size": group_size}
    return _checked(rows, weight, bias, shape, n, arguments, further, constants)


def _checked(
    mat1: Array,
    mat2: Array,
    bias: Any,
    shape: tuple[int, ...],
    columns: int,
    arguments: EpilogueArguments,
    further: Mapping[str, Any] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> Matmul:
    batch, m, k = mat1.shape
    residual, scale = arguments.get("residual"), arguments.get("scale")
    route = arguments.get("route")
    if residual is not None:
        residual = check_array("residual", residual)
        check_same_dtype("residual", residual, "the output's", mat1.dtype)
        if residual.shape != shape:
            raise InvalidArgument(
                f"residual: shape {residual.shape} differs from the output's {shape}"
            )
        residual = residual.reshape(batch, m, columns)
    if scale is not None:
        scale = check_array("scale", scale)
        if residual is None:
            raise InvalidArgument(f"scale of shape {scale.shape} is given without a residual")
        check_same_dtype("scale", scale, "the weight's", mat1.dtype)
        if scale.shape != (columns,):
            raise InvalidArgument(f"scale: shape {scale.shape} is not ({columns},)")
    problem: dict[str, Any] = {
        "m": m,
        "n": columns,
        "k": k,
        "batch": batch,
        "dtype": DTYPE_NAMES[mat1.dtype],
        "has_bias": bias is not None,
        **epilogue_problem(
            residual,
            scale,
            arguments.get("residual_op", "add"),
            arguments.get("alpha", 1.0),
            arguments.get("activation"),
            arguments.get("a", 0.0),
            arguments.get("b", 0.0),
        ),
        "route": "auto" if route is None else route,
        **(further or {}),
    }
    bias = check_bias(bias, mat1.dtype, columns)
    return Matmul(mat1, mat2, bias, residual, scale, shape, problem, constants or {})
