"""The convolutions that ``verify`` runs: every variant, every epilogue combination, odd shapes.

``conv2d_cases(dtype, random, quick=False)`` yields them; ``quick`` spreads the epilogue
combinations over the convolutions instead of running each on all of them. A convolution's
``overrides`` are fields of the dispatcher's problem, its ``limits`` those of a device whose
textures are too small for the packed weight, so that the buffer form is picked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from . import reference
from .pack import pack_channel_vector, pack_texture3d
from .reference import Epilogue, Pair
from .verify_cases import Case, bounded, doubles, random_array, shown, sizes

# Powers of two: exact in every dtype. The clamp's low bound would fill padding lanes if nobody
# masked them.
_ALPHA, _LOW, _HIGH, _SLOPE = -0.75, 0.25, 1.5, 0.125
_ACTIVATIONS: Mapping[str | None, tuple[float, float]] = {
    None: (0.0, 0.0),
    "clamp": (_LOW, _HIGH),
    "relu": (0.0, 0.0),
    "leaky_relu": (_SLOPE, 0.0),
}


@dataclass(frozen=True)
class Convolution:
    """A convolution of ``shape`` (C, H, W) to ``out_c`` channels."""

    shape: tuple[int, int, int]
    out_c: int
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    transposed: bool = False
    output_padding: Pair = (0, 0)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name what is not the default, e.g. ``1x5x7x6 to 9, kernel 3x3``."""
        parts = [f"{shown((1, *self.shape))} to {self.out_c}, kernel {shown(self.kernel)}"]
        for name, value in (
            ("stride", self.stride),
            ("padding", self.padding),
            ("dilation", self.dilation),
            ("groups", self.groups),
            ("output padding", self.output_padding),
        ):
            if value not in (1, (1, 1), (0, 0)):
                parts.append(f"{name} {shown(value) if isinstance(value, tuple) else value}")
        parts += ["transposed"] * self.transposed
        parts += [f"{name} {value}" for name, value in self.overrides.items()]
        return ", ".join([*parts, *(["small textures"] if self.limits else [])])

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """The weight's shape, as PyTorch has it."""
        if self.transposed:
            return (self.shape[0], self.out_c // self.groups, *self.kernel)
        return (self.out_c, self.shape[0] // self.groups, *self.kernel)

    def problem(self, dtype: str) -> dict[str, Any]:
        """Return the dispatcher's problem, without an epilogue."""
        pairs = {
            name: getattr(self, name)
            for name in ("kernel", "stride", "padding", "dilation", "output_padding")
        }
        return {
            **sizes("in", (1, *self.shape)),
            **{
                f"{name}_{axis}": n
                for name, p in pairs.items()
                for axis, n in zip("hw", p, strict=True)
            },
            "out_c": self.out_c,
            "groups": self.groups,
            "transposed": self.transposed,
            "dtype": dtype,
            **self.overrides,
        }


def _im2col(scratch: str, **overrides: Any) -> dict[str, Any]:
    return {"route": "im2col", "force_scratch": True, "scratch": scratch, **overrides}


_K3, _K5 = (3, 3), (5, 5)
_SMALL = {"max_texture_2d": 8}
_TWO: Mapping[str, Any] = {"direct_tile": "two", "route": "direct"}
_ONE: Mapping[str, Any] = {"direct_tile": "one", "route": "direct"}
_SCRATCHES = ("texture2d", "texture3d", "vec4_buffer")

CONVOLUTIONS = (
    # pointwise: every local size, partial tiles, stride and padding (1 to 1 channel is depthwise)
    Convolution((1, 1, 1), 1),
    Convolution((3, 5, 7), 6),
    Convolution((5, 2, 3), 29),
    Convolution((31, 13, 11), 37),
    Convolution((7, 6, 5), 5, stride=(2, 2), padding=(1, 1)),
    Convolution((2, 3, 13), 8, stride=(1, 2), padding=(0, 1)),
    # direct: border and interior, both tiles, with partial texels and tiles
    Convolution((3, 7, 5), 6, _K3, overrides=_ONE),
    Convolution((6, 7, 6), 9, _K3, padding=(1, 1), overrides=_ONE),
    Convolution((3, 7, 5), 13, _K3, overrides=_TWO),
    Convolution((6, 7, 6), 9, _K3, padding=(1, 1), overrides=_TWO),
    Convolution((5, 11, 9), 7, (3, 2), (2, 3), (1, 2), (3, 2), overrides=_TWO),
    Convolution((1, 1, 1), 1, _K3, padding=(1, 1)),
    Convolution((2, 3, 2), 3, (2, 3), stride=(4, 5), padding=(5, 4)),  # padding past the kernel
    # grouped: channels per group that are, and are not, whole texels
    Convolution((8, 6, 5), 12, _K3, padding=(1, 1), groups=2),
    Convolution((6, 6, 5), 9, _K3, padding=(1, 1), groups=3),
    Convolution((10, 5, 6), 15, _K3, groups=5, overrides=_TWO),
    Convolution((6, 4, 4), 6, groups=2),
    # depthwise: any kernel, tiles, single texels where stride and dilation differ
    Convolution((6, 9, 7), 6, (7, 7), padding=(3, 3), groups=6),
    Convolution((5, 7, 6), 5, (2, 4), (2, 1), (1, 2), (1, 2), groups=5),
    *(
        Convolution((7, 7, 9), 7, (k, k), padding=(k // 2, k // 2), groups=7, overrides=overrides)
        for k in (3, 5)
        for overrides in ({}, {"b1x1": True})
    ),
    *(Convolution((5, 11, 12), 5, (k, k), (2, 2), (1, 1), (1, 1), groups=5) for k in (3, 5)),
    Convolution((3, 12, 11), 3, _K3, stride=(2, 2), dilation=(2, 2), groups=3),
    # transposed
    Convolution((5, 4, 3), 6, _K3, transposed=True),
    Convolution((3, 5, 4), 7, (2, 4), (2, 3), (1, 0), transposed=True, output_padding=(1, 2)),
    Convolution((9, 3, 4), 5, (1, 1), (3, 2), transposed=True),
    # im2col and gemm over each scratch, in one band and in several
    *(Convolution((5, 7, 6), 9, _K3, padding=(1, 1), overrides=_im2col(s)) for s in _SCRATCHES),
    *(
        Convolution(
            (6, 11, 5), 10, (3, 2), (2, 1), (1, 1), overrides=_im2col(s, band_rows=2, band_count=4)
        )
        for s in _SCRATCHES
    ),
    # weights in buffers
    Convolution((9, 4, 5), 10, limits=_SMALL),
    *(
        Convolution((6, 6, 5), 9, _K3, padding=padding, overrides=tile, limits=_SMALL)
        for padding, tile in product(((0, 0), (1, 1)), (_ONE, _TWO))
    ),
    Convolution((9, 8, 6), 9, (4, 4), groups=9, limits=_SMALL),
    *(
        Convolution(
            (9, 8, 7),
            9,
            k,
            stride,
            groups=9,
            overrides=tile,
            limits=_SMALL,
        )
        for k in (_K3, _K5)
        for stride, tile in (((1, 1), {}), ((1, 1), {"b1x1": True}), ((2, 1), {}))
    ),
    Convolution((5, 4, 3), 6, _K3, transposed=True, limits=_SMALL),
    *(
        Convolution(
            (5, 7, 6), 29, _K3, overrides=_im2col(s, band_rows=1), limits={"max_texture_2d": 18}
        )
        for s in _SCRATCHES
    ),
)


def epilogues() -> Iterator[Epilogue]:
    """Yield every combination, without data: an operand of size zero stands for a present one."""
    present = np.zeros(0)
    residuals = [Epilogue()] + [
        Epilogue(present, present if scaled else None, op, alpha)
        for alpha, op, scaled in product((1.0, _ALPHA), ("add", "sub", "mul"), (False, True))
    ]
    for residual, (activation, (a, b)) in product(residuals, _ACTIVATIONS.items()):
        yield replace(residual, activation=activation, a=a, b=b)


def conv2d_cases(dtype: str, random: np.random.Generator, quick: bool = False) -> Iterator[Case]:
    """Yield the cases of every convolution."""
    for number, convolution in enumerate(CONVOLUTIONS):
        combinations = list(epilogues())
        if quick:  # two each, so that all are met over the convolutions
            combinations = [combinations[(2 * number + i) % len(combinations)] for i in (0, 1)]
        yield from cases_of(convolution, combinations, dtype, random)


def cases_of(
    conv: Convolution, combinations: list[Epilogue], dtype: str, random: np.random.Generator
) -> Iterator[Case]:
    """Yield a case for each epilogue combination of one convolution, on the same data."""
    x = random_array(random, dtype, 1, *conv.shape)
    weight = random_array(random, dtype, *conv.weight_shape)
    bias, scale = (random_array(random, dtype, conv.out_c) for _ in range(2))
    plain = reference.conv2d(
        *doubles(x, weight, bias),
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
        transposed=conv.transposed,
        output_padding=conv.output_padding,
        groups=conv.groups,
    )
    residual = random_array(random, dtype, *plain.values.shape)
    packed = {"in": pack_texture3d(x), "bias": pack_channel_vector(bias)}
    extra = {"residual": pack_texture3d(residual), "scale": pack_channel_vector(scale)}
    r, s = doubles(residual, scale.reshape(1, -1, 1, 1))
    for e in combinations:
        filled = replace(
            e,
            residual=None if e.residual is None else r,
            scale=None if e.scale is None else s,
        )
        case = bounded(
            f"{conv.label}, {epilogue_label(e)}",
            "conv2d",
            conv.problem(dtype) | epilogue_problem(e),
            packed | {k: v for k, v in extra.items() if getattr(e, k) is not None},
            reference.apply_epilogue(plain, filled),
        )
        yield replace(case, weight=weight, limits=conv.limits)


def epilogue_problem(e: Epilogue) -> dict[str, Any]:
    """Return the fields of a problem that describe an epilogue."""
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


def epilogue_label(e: Epilogue) -> str:
    """Name an epilogue, e.g. ``sub residual * scale, alpha 1.0, relu``."""
    parts = []
    if e.residual is not None:
        scaled = " * scale" if e.scale is not None else ""
        parts.append(f"{e.residual_op} residual{scaled}, alpha {e.alpha}")
    return ", ".join([*parts, e.activation or "no activation"])
