"""The matrix products that ``verify`` runs: every variant, both storages, odd sizes, epilogues.

``matmul_cases`` and ``linear_cases`` (dtype, random, quick=False) yield them, ``relayout_cases``
those of the change between packings. With ``quick`` each product meets one epilogue combination,
else three, and one product of each family and storage all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from . import reference
from .memory import DTYPES
from .pack import pack_channel_vector, pack_rows, pack_texture3d
from .quantize import dequantize_q4, dequantize_q8, pack_groups, pack_q4, pack_q8
from .reference import Epilogue, Reference
from .verify_cases import TENSORS, Array, Case, Packed, doubles, exact, random_array, shown, sizes
from .verify_conv import epilogue_label, epilogue_problem, epilogues


@dataclass(frozen=True)
class Product:
    """``batch`` products [m, k] x [k, n]; ``weight`` is the kind of a linear's constant weight.

    ``overrides`` and ``limits`` are as of a convolution, ``needs`` as of a case.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    storage: str = "texture3d"
    weight: str = ""  # "", plain, q8csw or q4gsw
    group_size: int = 32
    overrides: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""

    @property
    def label(self) -> str:
        """Name all that tells it from others, e.g. ``3x(5x7 by 7x9), texture3d``."""
        parts = [f"{self.batch}x({self.m}x{self.k} by {self.k}x{self.n})", self.storage]
        parts += [self.weight] if self.weight else []
        parts += [f"groups of {self.group_size}"] if self.weight == "q4gsw" else []
        return ", ".join(
            [*parts, *(f"{n} {v}" for n, v in {**self.overrides, **self.limits}.items())]
        )

    def problem(self, dtype: str) -> dict[str, Any]:
        """Return the dispatcher's problem, without an epilogue."""
        further: dict[str, Any] = {"storage": self.storage}
        if self.weight:
            further |= {"weight_type": self.weight, "group_size": self.group_size}
        return {
            **{"m": self.m, "n": self.n, "k": self.k, "batch": self.batch, "dtype": dtype},
            **further,
            **self.overrides,
        }


_FORMS = ("texture3d", "vec4_buffer")
# All of one texel; partly filled ones; batches; each local size; tiles of 2 and 4 rows, which
# take 4,096 invocations.
_EXHAUSTIVE = (5, 6, 7, 1)  # meets every epilogue combination
_SMALL = (_EXHAUSTIVE, (1, 1, 1, 1), (3, 9, 4, 2), (17, 37, 33, 1), (2, 70, 130, 3))
_LARGE = ((200, 200, 5, 1), (258, 255, 6, 1))
_RAGGED = ((130, 133, 67, 1), (64, 64, 32, 2), (5, 6, 7, 3), (65, 200, 96, 1))


def _forced(**overrides: Any) -> dict[str, Any]:
    return {"overrides": overrides}


def _coopmat(op: str, **fields: Any) -> Iterator[Product]:
    """Yield products for each shape and tile, where the device has the shape."""
    for shape, tile, (m, n, k, batch) in product(
        ("16x16x16", "16x8x16"), (("large", "128x128"), ("small", "64x64")), _RAGGED
    ):
        yield Product(
            m,
            n,
            k,
            batch,
            storage="vec4_buffer",
            overrides={"route": "coopmat", "coopmat_tile": tile[0]},
            limits={"coopmat_16x16x16": False} if shape == "16x8x16" else {},
            needs=f"{op}_coopmat_{shape}_{tile[1]}_half",
            **fields,
        )


def matmuls(dtype: str) -> Iterator[Product]:
    """Yield the products of two matrices."""
    for form, (m, n, k, batch) in product(_FORMS, _SMALL + _LARGE):
        yield Product(m, n, k, batch, form, **_forced(route="tiled"))
    for form, (m, n, k, batch) in product(_FORMS, _SMALL):
        yield Product(m, n, k, batch, form, **_forced(route="naive"))
    if dtype == "half":
        yield from _coopmat("matmul")


def linears(dtype: str) -> Iterator[Product]:
    """Yield the products with a constant weight."""
    for form, weight_form in product(_FORMS, ("texture2d", "vec4_buffer")):
        for weight, (m, n, k, batch) in product(("plain", "q8csw", "q4gsw"), _SMALL + _LARGE):
            route = "tiled" if weight == "plain" else weight
            forced = _forced(route=route, weight_form=weight_form)
            yield Product(m, n, k, batch, form, weight, **forced)
        for size in (32, 64, 128):  # the last group is not full
            forced = _forced(weight_form=weight_form)
            yield Product(3, 7, 2 * size + 5, 1, form, "q4gsw", size, **forced)
        for arithmetic, (n, k, batch) in product(
            (True, False), ((6, 7, 1), (1, 1, 1), (9, 260, 2), (37, 1030, 1))
        ):
            kind = "subgroup" if arithmetic else "shared"
            suffix = ("_buffer" if form == "vec4_buffer" else "") + (
                "_wbuf" if weight_form == "vec4_buffer" else ""
            )
            yield Product(
                1,
                n,
                k,
                batch,
                form,
                "plain",
                overrides={"route": "gemv", "weight_form": weight_form},
                limits={} if arithmetic else {"subgroup_arithmetic": False},
                needs=f"linear_gemv_{kind}{suffix}_{dtype}",
            )
    if dtype == "half":
        yield from _coopmat("linear", weight="plain")


def matmul_cases(dtype: str, random: np.random.Generator, quick: bool = False) -> Iterator[Case]:
    """Yield the cases of every product of two matrices."""
    yield from _cases("matmul", matmuls(dtype), dtype, random, quick)


def linear_cases(dtype: str, random: np.random.Generator, quick: bool = False) -> Iterator[Case]:
    """Yield the cases of every product with a constant weight."""
    yield from _cases("linear", linears(dtype), dtype, random, quick)


def _cases(
    op: str, products: Iterator[Product], dtype: str, random: np.random.Generator, quick: bool
) -> Iterator[Case]:
    every = list(epilogues())
    for number, one in enumerate(products):
        some = [every[(3 * number + i) % len(every)] for i in range(3)]
        if quick:
            some = some[number % 3 :][:1]
        elif (one.m, one.n, one.k, one.batch) == _EXHAUSTIVE:
            some = every
        yield from product_cases(op, one, some, dtype, random)


def product_cases(
    op: str, one: Product, combinations: list[Epilogue], dtype: str, random: np.random.Generator
) -> Iterator[Case]:
    """Yield a case for each epilogue combination of one product, on the same data.

    Every other one is without a bias: a vector of NaN is bound then, which nobody may read.
    """
    m, n, k, batch = one.m, one.n, one.k, one.batch
    mat1 = random_array(random, dtype, batch, m, k)
    bias, scale = (random_array(random, dtype, n) for _ in range(2))
    residual = random_array(random, dtype, batch, m, n)
    second, operands, weight = _second(one, dtype, random)
    operands |= {"in": _stored(pack_rows(mat1), one.storage)}
    extra = {
        "residual": _stored(pack_rows(residual), one.storage),
        "scale": pack_channel_vector(scale),
    }
    x, b, r, s = doubles(mat1, bias, residual, scale)
    for number, e in enumerate(combinations):
        has_bias = (number + n) % 2 == 0
        filled = replace(
            e,
            residual=None if e.residual is None else r,
            scale=None if e.scale is None else s,
        )
        result = reference.matmul(x, second, b if has_bias else None, filled)
        bound_bias = bias if has_bias else np.full(n, np.nan, bias.dtype)
        case = _bounded(
            f"{one.label}, {'bias' if has_bias else 'no bias'}, {epilogue_label(e)}",
            op,
            one.problem(dtype) | {"has_bias": has_bias} | epilogue_problem(e),
            operands
            | {"bias": pack_channel_vector(bound_bias)}
            | {key: v for key, v in extra.items() if getattr(e, key) is not None},
            result,
            one.storage,
        )
        yield replace(case, weight=weight, limits=one.limits, needs=one.needs)


def _second(
    one: Product, dtype: str, random: np.random.Generator
) -> tuple[Packed, dict[str, Array], Array | None]:
    """Return the second matrix [.., K, N] in float64, its operands, and a weight to be packed."""
    n, k = one.n, one.k
    if not one.weight:
        mat2 = random_array(random, dtype, one.batch, k, n)
        return doubles(mat2)[0], {"mat2": _stored(pack_rows(mat2), one.storage)}, None
    if one.weight == "plain":
        weight = random_array(random, dtype, n, k)
        return doubles(weight)[0].T, {}, weight[:, :, None, None]
    flat = one.overrides["weight_form"] == "vec4_buffer"
    if one.weight == "q8csw":
        signed = random.integers(-128, 128, (n, k), np.int8)
        scales = random_array(random, dtype, n) / np.asarray(64, DTYPES[dtype])
        words = pack_q8(signed)
        tables = {"weight_scales": pack_groups(scales[:, None])}
        second = dequantize_q8(signed, scales)
    else:
        nibbles = random.integers(0, 16, (n, k), np.uint8)
        groups = -(-k // one.group_size)
        scales = random_array(random, dtype, n, groups) / np.asarray(8, DTYPES[dtype])
        zeros = random.integers(0, 16, (n, groups)).astype(scales.dtype)
        words = pack_q4(nibbles)
        tables = {"weight_scales": pack_groups(scales), "zero_points": pack_groups(zeros)}
        second = dequantize_q4(nibbles, scales, zeros, one.group_size)
    return second.T, {"weight": words.reshape(-1) if flat else words, **tables}, None


def relayout_cases(dtype: str, random: np.random.Generator) -> Iterator[Case]:
    """Yield the changes of packing, both ways."""
    for shape in TENSORS:
        tensor = random_array(random, dtype, *shape)
        n, c, h, w = shape
        channels, width = pack_texture3d(tensor), pack_rows(tensor.reshape(n * c, h, w))
        for packing, source, result in (("width", channels, width), ("channels", width, channels)):
            problem = {"packing": packing, "dtype": dtype, **sizes("tensor", shape)}
            yield exact(f"{shown(shape)} to {packing}", "relayout", problem, source, result)


def _bounded(
    label: str,
    op: str,
    problem: Mapping[str, Any],
    operands: Mapping[str, Array],
    result: Reference,
    storage: str,
) -> Case:
    expected, bound = (
        _stored(pack_rows(values), storage)
        for values in (result.values, reference.bound(result, problem["dtype"]))
    )
    return Case(label, op, problem, operands, expected, bound)


def _stored(texels: Any, storage: str) -> Any:
    """Return packed texels as an image or, flat, as a buffer holds them."""
    return texels if storage == "texture3d" else texels.reshape(-1)
