"""Matrix products on NumPy arrays, float32 or float16, and with quantized weights.

::

    with open_device() as device:
        y = matmul(device, a, b)                                    # [..., M, K] x [..., K, N]
        y = linear(device, x, weight, bias, residual=r, activation="relu")
        y = linear_q4(device, x, weight, scales, zero_points, group_size=64)

All take the epilogue as keywords, see ``validate_matmul.EpilogueArguments``. As in ``ops``, each
call uploads its operands, runs and reads the result back. Sums are fp32 on every route.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .device import Device
from .memory import Buffer, Image
from .ops import further_fields
from .pack import pack_rows, unpack_rows
from .quantize import pack_groups, pack_q4, pack_q8
from .registry import Operand, load_registry
from .runner import Batch, pick
from .staging import DTYPE_NAMES, pack_vector, pack_weight
from .validate import Array
from .validate_matmul import (
    EpilogueArguments,
    Matmul,
    check_linear,
    check_linear_q4,
    check_linear_q8,
    check_matmul,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Puts the second operand where the shader wants it.
Upload = Callable[[Batch, Operand], "Buffer | Image"]
_ARGUMENTS = frozenset(EpilogueArguments.__annotations__)


def matmul(
    device: Device,
    mat1: Array,
    mat2: Array,
    bias: Array | None = None,
    **epilogue: Unpack[EpilogueArguments],
) -> Array:
    """Return ``mat1 @ mat2 + bias`` with the epilogue: [..., M, K] times [..., K, N].

    Leading axes broadcast as in NumPy; ``bias`` is [N].

    Raises:
        InvalidArgument: an argument that cannot be, or that no route takes (a ValueError).
        MissingFeature: the device lacks a feature that the shader needs.
        OutOfMemory, DeviceLost, VulkanError: the device failed.
    """
    _check_names("matmul", epilogue)
    call = check_matmul(mat1, mat2, bias, epilogue)
    return _run(device, "matmul", call, epilogue, "mat2", lambda b, o: _matrix(b, call.mat2, o))


def linear(
    device: Device,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    **epilogue: Unpack[EpilogueArguments],
) -> Array:
    """Return ``x @ weight.T + bias`` with the epilogue: x [..., K], a constant weight [N, K].

    Raises:
        As ``matmul``.
    """
    _check_names("linear", epilogue)
    call = check_linear(x, weight, bias, epilogue)

    def upload(batch: Batch, operand: Operand) -> Buffer | Image:
        return pack_weight(batch, call.mat2[:, :, None, None], operand)

    return _run(device, "linear", call, epilogue, "weight", upload)


def linear_q8(
    device: Device,
    x: Array,
    weight: NDArray[np.int8],
    scales: Array,
    bias: Array | None = None,
    **epilogue: Unpack[EpilogueArguments],
) -> Array:
    """Return ``x @ (weight * scales[:, None]).T + bias`` with the epilogue.

    ``weight`` is int8 [N, K], ``scales`` [N] of x's dtype.

    Raises:
        As ``matmul``.
    """
    _check_names("linear_q8", epilogue)
    call = check_linear_q8(x, weight, scales, bias, epilogue)
    return _run(
        device, "linear", call, epilogue, "weight", lambda b, o: _words(b, pack_q8(weight), o)
    )


def linear_q4(
    device: Device,
    x: Array,
    weight: NDArray[np.uint8],
    scales: Array,
    zero_points: Array,
    bias: Array | None = None,
    *,
    group_size: int = 128,
    **epilogue: Unpack[EpilogueArguments],
) -> Array:
    """Return ``x @ ((weight - zero_points) * scales).T + bias`` with the epilogue.

    ``weight`` is uint8 [N, K] of values from 0 to 15; ``scales`` and ``zero_points`` are
    [N, ceil(K / group_size)] of x's dtype, each for ``group_size`` (32, 64 or 128) of K.

    Raises:
        As ``matmul``.
    """
    _check_names("linear_q4", epilogue)
    call = check_linear_q4(x, weight, scales, zero_points, group_size, bias, epilogue)
    return _run(
        device, "linear", call, epilogue, "weight", lambda b, o: _words(b, pack_q4(weight), o)
    )


def _check_names(function: str, epilogue: EpilogueArguments) -> None:
    for name in epilogue.keys() - _ARGUMENTS:
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'")


def _run(
    device: Device,
    op: str,
    call: Matmul,
    epilogue: EpilogueArguments,
    slot: str,
    upload: Upload,
) -> Array:
    overrides = further_fields(call.problem, epilogue.get("overrides"))
    [dispatch] = pick(device, op, **call.problem, **overrides)
    wanted = {o.name: o for o in load_registry().shaders[dispatch.shader].operands}
    with Batch(device) as batch:
        out = batch.output(dispatch)
        operands: dict[str, Buffer | Image] = {
            "out": out,
            "in": _matrix(batch, call.mat1, wanted["in"]),
            slot: upload(batch, wanted[slot]),
            "bias": pack_vector(batch, call.bias),
        }
        if call.residual is not None:
            operands["residual"] = _matrix(batch, call.residual, wanted["residual"])
        if call.scale is not None:
            operands["scale"] = pack_vector(batch, call.scale)
        for name, table in call.constants.items():
            operands[name] = _image(batch, pack_groups(table))
        batch.add([dispatch], operands)
        batch.run()
        rows, columns = call.mat1.shape[:2], call.problem["n"]
        texels = (*rows, -(-columns // 4), 4)
        if isinstance(out, Image):
            packed: NDArray[Any] = out.read()
        else:
            packed = out.read(call.mat1.dtype, texels)
    return unpack_rows(packed, columns).reshape(call.shape)


def _matrix(batch: Batch, matrices: Array, operand: Operand) -> Buffer | Image:
    """Upload [B, M, K] packed by width, as the shader stores it."""
    texels = pack_rows(matrices)
    return _image(batch, texels) if operand.storage == "texture3d" else batch.buffer(texels)


def _words(batch: Batch, words: NDArray[np.uint32], operand: Operand) -> Buffer | Image:
    return _image(batch, words) if operand.storage == "texture2d" else batch.buffer(words)


def _image(batch: Batch, texels: NDArray[Any]) -> Image:
    """Upload texels (height, width, 4) or (depth, height, width, 4)."""
    dtype = "uint" if texels.dtype == np.uint32 else DTYPE_NAMES[texels.dtype]
    image = batch.image(tuple(reversed(texels.shape[:-1])), dtype)
    image.write(texels)
    return image
