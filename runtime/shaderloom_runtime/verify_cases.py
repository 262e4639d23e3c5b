"""The problems that ``verify`` runs, all but convolutions: odd shapes, random data, results.

``PLAIN_CASES`` maps an op of the manifest to a function (dtype, random) that yields its cases.
Operands and results are in packed form, as textures and buffers hold them.

Shapes are chosen to leave texels and tiles partly filled (channels that are no multiple of
four, primes), and to reach the smallest tensors, every rule of the local sizes, stride and
padding. Data is never zero, and of magnitudes between 0.25 and 1.75: nothing underflows, as
devices may flush what is subnormal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import reference
from .memory import DTYPES
from .pack import WEIGHT_PACKERS, pack_channel_vector, pack_texture3d
from .reference import Reference

Array = NDArray[np.generic]
Packed = NDArray[np.float64]

_PARTS = ("n", "c", "h", "w")

_WEIGHTS = ((1, 1, 1, 1), (3, 5, 1, 1), (4, 8, 3, 3), (6, 2, 1, 4), (17, 13, 5, 2), (31, 70, 2, 1))
_VECTORS = (1, 3, 4, 7, 37, 130)
TENSORS = ((1, 1, 1, 1), (1, 3, 5, 7), (1, 4, 2, 2), (2, 5, 3, 1), (3, 2, 4, 6), (1, 13, 11, 17))
_BROADCASTS = (
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((1, 3, 5, 7), (1, 3, 5, 7)),
    ((2, 6, 3, 5), (1, 6, 1, 1)),  # a bias or scale
    ((1, 1, 1, 5), (3, 5, 2, 1)),  # both are broadcast
    ((2, 7, 1, 1), (2, 1, 11, 13)),
)
# Powers of two and their sums: exact in every dtype. The clamp's low bound would fill the
# padding lanes if nobody masked them.
_LOW, _HIGH = 0.25, 1.5


@dataclass(frozen=True)
class Case:
    """One problem; ``bound`` is the allowed absolute error, zero for bit-exact results.

    A ``weight`` [N, C, Kh, Kw] is packed for the shader that is picked; ``limits`` are those of
    a device of which it is picked. ``needs`` is a variant without which it cannot be picked.
    """

    label: str
    op: str
    problem: Mapping[str, Any]
    operands: Mapping[str, Array] = field(repr=False)
    expected: Packed = field(repr=False)
    bound: Packed = field(repr=False)
    weight: Array | None = field(default=None, repr=False)
    limits: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""


def random_array(random: np.random.Generator, dtype: str, *shape: int) -> Array:
    """Return random values of either sign, at least 0.25 in magnitude."""
    size = random.uniform(0.25, 1.75, shape)
    return np.where(random.random(shape) < 0.5, -size, size).astype(DTYPES[dtype])


def exact(label: str, op: str, problem: Mapping[str, Any], source: Array, packed: Array) -> Case:
    """Make a case whose result may differ from ``packed`` in nothing."""
    expected = packed.astype(np.float64)
    zero = np.zeros_like(expected)
    return Case(label, op, problem, {"in": source}, expected, zero)


def _weights(op: str, dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for (n, c, h, w), form in product(_WEIGHTS, ("texture2d", "vec4_buffer")):
        shape = (n, 1 if op == "conv2d_dw_prepack_weights" else c, h, w)
        weight = random_array(random, dtype, *shape)
        problem = {"packed_form": form, "dtype": dtype, **sizes("weight", shape)}
        packed = WEIGHT_PACKERS[op](weight)
        if form == "vec4_buffer":
            packed = packed.reshape(-1)
        yield exact(f"{shown(shape)}, {form}", op, problem, weight.reshape(-1), packed)


def _vectors(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for channels in _VECTORS:
        vector = random_array(random, dtype, channels)
        problem = {"channels": channels, "dtype": dtype}
        packed = pack_channel_vector(vector)
        yield exact(f"{channels}", "channel_vector_prepack", problem, vector, packed)


def _to_texture(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for shape in TENSORS:
        tensor = random_array(random, dtype, *shape)
        problem = {"dtype": dtype, **sizes("tensor", shape)}
        packed = pack_texture3d(tensor)
        yield exact(shown(shape), "nchw_to_texture3d", problem, tensor.reshape(-1), packed)


def _to_buffer(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for shape in TENSORS:
        tensor = random_array(random, dtype, *shape)
        problem = {"dtype": dtype, **sizes("tensor", shape)}
        packed = pack_texture3d(tensor)
        yield exact(shown(shape), "texture3d_to_nchw", problem, packed, tensor.reshape(-1))


def _binary(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    for operation, (one, other) in product(("add", "mul"), _BROADCASTS):
        x, y = random_array(random, dtype, *one), random_array(random, dtype, *other)
        problem: dict[str, Any] = {"operation": operation, "dtype": dtype}
        problem |= {**sizes("in", one), **sizes("other", other)}
        operands = {"in": pack_texture3d(x), "other": pack_texture3d(y)}
        result = reference.binary(operation, x.astype(np.float64), y.astype(np.float64))
        label = f"{shown(one)} {operation} {shown(other)}"
        yield bounded(label, "binary", problem, operands, result)


def _clamp(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    # Bounds above zero would fill padding lanes; with low > high, high wins.
    for shape, (low, high) in product(TENSORS, ((_LOW, _HIGH), (-0.5, 0.5), (1.0, 0.5))):
        x = random_array(random, dtype, *shape)
        problem = {"low": low, "high": high, "dtype": dtype, **sizes("in", shape)}
        result = reference.clamp(x.astype(np.float64), low, high)
        label = f"{shown(shape)} to {low}, {high}"
        yield bounded(label, "clamp", problem, {"in": pack_texture3d(x)}, result)


def bounded(
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


def doubles(*arrays: Array) -> tuple[Packed, ...]:
    """Return the arrays in float64."""
    return tuple(array.astype(np.float64) for array in arrays)


def sizes(name: str, shape: tuple[int, ...]) -> dict[str, int]:
    """Return the fields of a problem that hold an NCHW shape: in_n, in_c, in_h, in_w."""
    return {f"{name}_{part}": size for part, size in zip(_PARTS, shape, strict=True)}


def shown(shape: tuple[int, ...]) -> str:
    """Return a shape as text, e.g. ``1x3x5x7``."""
    return "x".join(map(str, shape))


Cases = Mapping[str, Callable[[str, np.random.Generator], Iterator[Case]]]
PLAIN_CASES: Cases = {
    **{op: partial(_weights, op) for op in WEIGHT_PACKERS},
    "channel_vector_prepack": _vectors,
    "nchw_to_texture3d": _to_texture,
    "texture3d_to_nchw": _to_buffer,
    "binary": _binary,
    "clamp": _clamp,
}
