"""Random convolutions through every legal route, and random weights through every packer.

Each example runs by the public op and between poison (``conv_support.assert_right``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conv_support import assert_right, case_of, direct, im2col
from runtime_support import validated_device
from shaderloom_runtime.device import Device
from shaderloom_runtime.memory import DTYPES, Image
from shaderloom_runtime.pack import WEIGHT_PACKERS
from shaderloom_runtime.reference import Epilogue
from shaderloom_runtime.registry import Operand, load_registry
from shaderloom_runtime.runner import Batch
from shaderloom_runtime.staging import pack_weight
from shaderloom_runtime.verify import run_case
from shaderloom_runtime.verify_cases import random_array
from shaderloom_runtime.verify_conv import Convolution, epilogues

# Each new kernel size or group count is a new pipeline, 10 to 60 ms on a software device.
random_examples = settings(max_examples=25, deadline=None, derandomize="CI" in os.environ)

dtypes = st.sampled_from(sorted(DTYPES))
channels = st.integers(1, 13)
scratches = st.sampled_from(["texture2d", "texture3d", "vec4_buffer"])
SIDE = 11  # of inputs


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


@st.composite
def any_epilogue(draw: st.DrawFn) -> Epilogue:
    """A combination of operands and activation, with numbers of its own (exact in half)."""
    eighths = st.integers(-16, 16).map(lambda n: n / 8)
    low, high = sorted((draw(eighths), draw(eighths)))
    return replace(draw(st.sampled_from(list(epilogues()))), alpha=draw(eighths), a=low, b=high)


@st.composite
def framed(draw: st.DrawFn, kernel: tuple[int, int], dilations: int = 3) -> dict[str, Any]:
    """Stride, padding, dilation and an input's (height, width) that leave an output."""
    stride, padding = draw(pairs(1, 4)), draw(pairs(0, 4))
    dilation = draw(pairs(1, dilations))
    size = []
    for k, p, d in zip(kernel, padding, dilation, strict=True):
        least = max(1, d * (k - 1) + 1 - 2 * p)
        size.append(draw(st.integers(least, max(least, SIDE))))
    return {"stride": stride, "padding": padding, "dilation": dilation, "size": tuple(size)}


@st.composite
def of_groups(draw: st.DrawFn) -> Convolution:
    """Any but transposed: grouped or not, with any channels per group."""
    groups, kernel = draw(st.integers(1, 4)), draw(pairs(1, 4))
    frame = draw(framed(kernel))
    shape = (groups * draw(st.integers(1, 7)), *frame.pop("size"))
    out_c = groups * draw(st.integers(1, 7))
    return Convolution(shape, out_c, kernel, groups=groups, **frame)


@st.composite
def of_direct(draw: st.DrawFn) -> Convolution:
    return replace(draw(of_groups()), overrides=direct(draw(st.sampled_from(["one", "two"]))))


@st.composite
def of_depthwise(draw: st.DrawFn) -> Convolution:
    kernel, c = draw(pairs(1, 7)), draw(channels)
    frame = draw(framed(kernel))
    shape = (c, *frame.pop("size"))
    overrides = {"route": "depthwise"}
    return Convolution(shape, c, kernel, groups=c, overrides=overrides, **frame)


@st.composite
def of_depthwise_tile(draw: st.DrawFn) -> Convolution:
    """Tiles where stride equals dilation, which is half of the time; single texels else."""
    side, c = draw(st.sampled_from([3, 5])), draw(channels)
    kernel = (side, side)
    frame = draw(framed(kernel))
    if draw(st.booleans()):
        frame["stride"] = frame["dilation"]
    overrides = {"route": "depthwise_tile", "b1x1": draw(st.booleans())}
    shape = (c, *frame.pop("size"))
    return Convolution(shape, c, kernel, groups=c, overrides=overrides, **frame)


@st.composite
def of_pointwise(draw: st.DrawFn) -> Convolution:
    frame = draw(framed((1, 1)))
    shape = (draw(st.integers(1, 40)), *frame.pop("size"))
    return Convolution(shape, draw(st.integers(1, 40)), overrides={"route": "pointwise"}, **frame)


@st.composite
def of_im2col(draw: st.DrawFn) -> Convolution:
    """Bands of any height, even past the output's, and up to two more of them than needed."""
    kernel = draw(pairs(1, 4))
    frame = draw(framed(kernel))
    size = frame.pop("size")
    overrides = im2col(draw(scratches), band_rows=draw(st.integers(0, 5)))
    if rows := overrides["band_rows"]:
        out_h = size[0] + 2 * frame["padding"][0] - frame["dilation"][0] * (kernel[0] - 1) - 1
        out_h = out_h // frame["stride"][0] + 1
        overrides["band_count"] = -(-out_h // rows) + draw(st.integers(0, 2))
    return Convolution(
        (draw(channels), *size), draw(channels), kernel, overrides=overrides, **frame
    )


@st.composite
def of_transposed(draw: st.DrawFn) -> Convolution:
    kernel, stride, size = draw(pairs(1, 4)), draw(pairs(1, 4)), draw(pairs(1, 6))
    extra = tuple(draw(st.integers(0, s - 1)) for s in stride)
    room = [(n - 1) * s + k + e - 1 for n, s, k, e in zip(size, stride, kernel, extra, strict=True)]
    high, wide = (draw(st.integers(0, min(4, n // 2))) for n in room)
    return Convolution(
        (draw(channels), *size),
        draw(channels),
        kernel,
        stride,
        (high, wide),
        transposed=True,
        output_padding=(extra[0], extra[1]),
    )


ROUTES = {
    "auto": of_groups(),
    "direct": of_direct(),
    "depthwise": of_depthwise(),
    "depthwise_tile": of_depthwise_tile(),
    "pointwise": of_pointwise(),
    "im2col": of_im2col(),
    "transposed": of_transposed(),
}
FAMILIES = {
    "direct": {"conv2d_tiled"},
    "depthwise": {"conv2d_dw"},
    "depthwise_tile": {"conv2d_dw_output_tile"},
    "pointwise": {"conv2d_pw_tiled"},
    "im2col": {"conv2d_im2col", "conv2d_gemm"},
    "transposed": {"conv_transpose2d"},
}


@pytest.mark.parametrize("route", ROUTES)
@random_examples
@given(data=st.data(), epilogue=any_epilogue(), dtype=dtypes)
def test_random_convolutions(
    device: Device, route: str, data: st.DataObject, epilogue: Epilogue, dtype: str
) -> None:
    conv = data.draw(ROUTES[route])
    records = assert_right(device, conv, epilogue, dtype)
    shaders = load_registry().shaders
    families = {shaders[record.shader].family for record in records}
    assert route == "auto" or families == FAMILIES[route]


@pytest.mark.parametrize("route", FAMILIES)
@settings(random_examples, max_examples=8)
@given(data=st.data(), epilogue=any_epilogue(), dtype=dtypes)
def test_random_convolutions_with_weights_in_buffers(
    device: Device, route: str, data: st.DataObject, epilogue: Epilogue, dtype: str
) -> None:
    """Textures of one texel a side: all weights take the buffer form but depthwise of one tap."""
    conv = replace(data.draw(ROUTES[route]), limits={"max_texture_2d": 1})
    if conv.overrides.get("scratch") == "texture2d":  # which would be as small
        conv = replace(conv, overrides={**conv.overrides, "scratch": "texture3d"})
    case = case_of(conv, epilogue, dtype)
    worst, where = run_case(device, case)
    assert worst <= 1, f"{case.label}: {where}"


@pytest.mark.parametrize("op", WEIGHT_PACKERS)
@random_examples
@given(
    n=st.integers(1, 19), c=st.integers(1, 19), kernel=pairs(1, 5), dtype=dtypes,
    form=st.sampled_from(["texture2d", "vec4_buffer"]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_prepack_shaders_make_the_bits_of_the_packers(
    device: Device,
    op: str,
    n: int,
    c: int,
    kernel: tuple[int, int],
    dtype: str,
    form: str,
    seed: int,
) -> None:
    shape = (n, 1 if op == "conv2d_dw_prepack_weights" else c, *kernel)
    weight = random_array(np.random.default_rng(seed), dtype, *shape)
    expected = WEIGHT_PACKERS[op](weight)
    with Batch(device) as batch:
        packed = pack_weight(batch, weight, Operand(2, "weight", form, op))
        batch.run()
        if isinstance(packed, Image):
            got = packed.read()
            assert got.shape == expected.shape
        else:
            got = packed.read(DTYPES[dtype], (packed.size // DTYPES[dtype].itemsize,))
    assert got.tobytes() == expected.tobytes()
