"""The problems that ``verify`` runs: for each op, odd shapes, random data, what must come out.

``CASES`` maps an op of the manifest to a function (dtype, random) that yields its cases;
``QUICK_CASES`` runs each epilogue combination on one of the convolutions, not on all.
Operands and results are in packed form, as textures and buffers hold them.

Shapes are chosen to leave texels and tiles partly filled (channels that are no multiple of
four, primes), and to reach the smallest tensors, every rule of the local sizes, stride and
padding. Data is never zero, and of magnitudes between 0.25 and 1.75: nothing underflows, as
devices may flush what is subnormal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import reference
from .memory import DTYPES
from .pack import pack_channel_vector, pack_linear_weight, pack_texture3d
from .reference import Epilogue, Reference

Array = NDArray[np.generic]
Packed = NDArray[np.float64]

_PARTS = ("n", "c", "h", "w")

_WEIGHTS = ((1, 1), (3, 5), (4, 8), (6, 2), (17, 13), (31, 70))
_VECTORS = (1, 3, 4, 7, 37, 130)
_TENSORS = ((1, 1, 1, 1), (1, 3, 5, 7), (1, 4, 2, 2), (2, 5, 3, 1), (3, 2, 4, 6), (1, 13, 11, 17))
_BROADCASTS = (
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((1, 3, 5, 7), (1, 3, 5, 7)),
    ((2, 6, 3, 5), (1, 6, 1, 1)),  # a bias or scale
    ((1, 1, 1, 5), (3, 5, 2, 1)),  # both are broadcast
    ((2, 7, 1, 1), (2, 1, 11, 13)),
)
# (C, H, W), output channels, stride, padding
_CONVOLUTIONS = (
    ((1, 1, 1), 1, (1, 1), (0, 0)),
    ((3, 5, 7), 6, (1, 1), (0, 0)),
    ((5, 2, 3), 29, (1, 1), (0, 0)),
    ((31, 13, 11), 37, (1, 1), (0, 0)),
    ((7, 6, 5), 5, (2, 2), (1, 1)),
    ((2, 3, 13), 8, (1, 2), (0, 1)),
)
# Powers of two and their sums: exact in every dtype. The clamp's low bound would fill the
# padding lanes if nobody masked them.
_ALPHA, _LOW, _HIGH, _SLOPE = -0.75, 0.25, 1.5, 0.125
_ACTIVATIONS: Mapping[str | None, tuple[float, float]] = {
    None: (0.0, 0.0),
    "clamp": (_LOW, _HIGH),
    "relu": (0.0, 0.0),
    "leaky_relu": (_SLOPE, 0.0),
}


@dataclass(frozen=True)
class Case:
    """One problem; ``bound`` is the allowed absolute error, zero for bit-exact results."""

    label: str
    op: str
    problem: Mapping[str, Any]
    operands: Mapping[str, Array] = field(repr=False)
    expected: Packed = field(repr=False)
    bound: Packed = field(repr=False)


def random_array(random: np.random.Generator, dtype: str, *shape: int) -> Array:
    """Return random values of either sign, at least 0.25 in magnitude."""
    size = random.uniform(0.25, 1.75, shape)
    return np.where(random.random(shape) < 0.5, -size, size).astype(DTYPES[dtype])


def epilogues() -> Iterator[Epilogue]:
    """Yield every combination, without data: an operand of size zero stands for a present one."""
    present = np.zeros(0)
    residuals = [Epilogue()] + [
        Epilogue(present, present if scaled else None, op, alpha)
        for alpha, op, scaled in product((1.0, _ALPHA), ("add", "sub", "mul"), (False, True))
    ]
    for residual, (activation, (a, b)) in product(residuals, _ACTIVATIONS.items()):
        yield replace(residual, activation=activation, a=a, b=b)


def _exact(label: str, op: str, problem: Mapping[str, Any], source: Array, packed: Array) -> Case:
    expected = packed.astype(np.float64)
    zero = np.zeros_like(expected)
    return Case(label, op, problem, {"in": source}, expected, zero)


def _weights(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for n, k in _WEIGHTS:
        weight = random_array(random, dtype, n, k)
        problem = {"weight_n": n, "weight_k": k, "dtype": dtype}
        packed = pack_linear_weight(weight)
        yield _exact(f"{n}x{k}", "linear_prepack_weights", problem, weight.reshape(-1), packed)


def _vectors(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for channels in _VECTORS:
        vector = random_array(random, dtype, channels)
        problem = {"channels": channels, "dtype": dtype}
        packed = pack_channel_vector(vector)
        yield _exact(f"{channels}", "channel_vector_prepack", problem, vector, packed)


def _to_texture(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for shape in _TENSORS:
        tensor = random_array(random, dtype, *shape)
        problem = {"dtype": dtype, **_sizes("tensor", shape)}
        packed = pack_texture3d(tensor)
        yield _exact(_shown(shape), "nchw_to_texture3d", problem, tensor.reshape(-1), packed)


def _to_buffer(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for shape in _TENSORS:
        tensor = random_array(random, dtype, *shape)
        problem = {"dtype": dtype, **_sizes("tensor", shape)}
        packed = pack_texture3d(tensor)
        yield _exact(_shown(shape), "texture3d_to_nchw", problem, packed, tensor.reshape(-1))


def _binary(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for operation, (one, other) in product(("add", "mul"), _BROADCASTS):
        x, y = random_array(random, dtype, *one), random_array(random, dtype, *other)
        sizes = {**_sizes("in", one), **_sizes("other", other)}
        problem = {"operation": operation, "dtype": dtype, **sizes}
        operands = {"in": pack_texture3d(x), "other": pack_texture3d(y)}
        result = reference.binary(operation, x.astype(np.float64), y.astype(np.float64))
        label = f"{_shown(one)} {operation} {_shown(other)}"
        yield _bounded(label, "binary", problem, operands, result)


def _clamp(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    # Bounds above zero would fill padding lanes; with low > high, high wins.
    for shape, (low, high) in product(_TENSORS, ((_LOW, _HIGH), (-0.5, 0.5), (1.0, 0.5))):
        x = random_array(random, dtype, *shape)
        problem = {"low": low, "high": high, "dtype": dtype, **_sizes("in", shape)}
        result = reference.clamp(x.astype(np.float64), low, high)
        label = f"{_shown(shape)} to {low}, {high}"
        yield _bounded(label, "clamp", problem, {"in": pack_texture3d(x)}, result)


def _conv2d(dtype: str, random: np.random.Generator, quick: bool = False) -> Iterator[Case]:
    for number, ((c, h, w), out_c, stride, padding) in enumerate(_CONVOLUTIONS):
        x = random_array(random, dtype, 1, c, h, w)
        weight = random_array(random, dtype, out_c, c, 1, 1)
        bias, scale = (random_array(random, dtype, out_c) for _ in range(2))
        plain = reference.conv2d(*_doubles(x, weight, bias), stride=stride, padding=padding)
        residual = random_array(random, dtype, *plain.values.shape)
        packed = {
            "in": pack_texture3d(x),
            "weight": pack_linear_weight(weight.reshape(out_c, c)),
            "bias": pack_channel_vector(bias),
        }
        extra = {"residual": pack_texture3d(residual), "scale": pack_channel_vector(scale)}
        shape = f"{_shown((1, c, h, w))} to {out_c}, stride {stride}, padding {padding}"
        problem = {
            **_sizes("in", (1, c, h, w)),
            **{"out_c": out_c, "kernel_h": 1, "kernel_w": 1, "dtype": dtype},
            **{"stride_h": stride[0], "stride_w": stride[1]},
            **{"padding_h": padding[0], "padding_w": padding[1]},
        }
        r, s = _doubles(residual, scale.reshape(1, -1, 1, 1))
        for combination, e in enumerate(epilogues()):
            if quick and combination % len(_CONVOLUTIONS) != number:
                continue
            filled = replace(
                e,
                residual=None if e.residual is None else r,
                scale=None if e.scale is None else s,
            )
            operands = packed | {k: v for k, v in extra.items() if getattr(e, k) is not None}
            result = reference.apply_epilogue(plain, filled)
            yield _bounded(
                f"{shape}, {_epilogue_label(e)}",
                "conv2d",
                problem | _epilogue_problem(e),
                operands,
                result,
            )


def _epilogue_problem(e: Epilogue) -> dict[str, Any]:
    problem: dict[str, Any] = {
        "has_residual": e.residual is not None,
        "has_scale": e.scale is not None,
        "residual_op": e.residual_op,
        "residual_alpha": e.alpha,
        "has_activation": e.activation is not None,
        "activation_a": e.a,
        "activation_b": e.b,
    }
    return problem | ({"activation_op": e.activation} if e.activation else {})


def _epilogue_label(e: Epilogue) -> str:
    parts = []
    if e.residual is not None:
        scaled = " * scale" if e.scale is not None else ""
        parts.append(f"{e.residual_op} residual{scaled}, alpha {e.alpha}")
    return ", ".join([*parts, e.activation or "no activation"])


def _bounded(
    label: str,
    op: str,
    problem: Mapping[str, Any],
    operands: Mapping[str, Array],
    result: Reference,
) -> Case:
    """Make a case of a texture3d result; packing leaves no error to the padding lanes."""
    bound = reference.bound(result, problem["dtype"])
    expected = pack_texture3d(result.values)
    return Case(label, op, problem, operands, expected, pack_texture3d(bound))


def _doubles(*arrays: Array) -> tuple[Packed, ...]:
    return tuple(array.astype(np.float64) for array in arrays)


def _sizes(name: str, shape: tuple[int, ...]) -> dict[str, int]:
    return {f"{name}_{part}": size for part, size in zip(_PARTS, shape, strict=True)}


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


Cases = Mapping[str, Callable[[str, np.random.Generator], Iterator[Case]]]
CASES: Cases = {
    "linear_prepack_weights": _weights,
    "channel_vector_prepack": _vectors,
    "nchw_to_texture3d": _to_texture,
    "texture3d_to_nchw": _to_buffer,
    "binary": _binary,
    "clamp": _clamp,
    "conv2d": _conv2d,
}
QUICK_CASES: Cases = {**CASES, "conv2d": partial(_conv2d, quick=True)}
