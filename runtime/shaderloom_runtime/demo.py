"""One fused convolution beside the same in separate dispatches.

``run_demo(device) -> Comparison`` runs relu(conv1x1(x) + bias + residual * scale) both ways;
``lines`` of the result is what a person reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import reference
from .device import Device
from .memory import Image
from .reference import Epilogue
from .runner import Batch, Dispatch, Operands, pick, weight_operand
from .staging import Sizes, download, pack_vector, pack_weight, texture3d, upload
from .submit import Recording

_SIZES: Sizes = (1, 64, 56, 56)  # a 1x1 layer of a ResNet, 64 channels to 64
_ROUNDS = 50
_LARGEST = float(np.finfo(np.float32).max)

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Way:
    """One way to compute it."""

    dispatches: int
    max_error: float  # absolute
    worst: float  # the largest error as a fraction of its bound
    milliseconds: float  # of the fastest run


@dataclass(frozen=True)
class Comparison:
    """What was run where; ``clock`` is "GPU" or "wall"."""

    device: str
    clock: str
    fused: Way
    separate: Way

    @property
    def ok(self) -> bool:
        """Whether both ways are within the bound."""
        return max(self.fused.worst, self.separate.worst) <= 1

    def lines(self) -> Iterator[str]:
        _, c, h, w = _SIZES
        yield f"relu(conv1x1(x) + bias + residual * scale), {c} x {h} x {w}, float, {self.device}"
        yield f"{'':8}  dispatches  max error  of its bound  ms ({self.clock})"
        for name, way in (("fused", self.fused), ("separate", self.separate)):
            yield (
                f"{name:8}  {way.dispatches:10}  {way.max_error:9.2e}  {way.worst:12.3f}"
                f"  {way.milliseconds:.3f}"
            )


def run_demo(device: Device) -> Comparison:
    """Run both ways on ``device``.

    Raises:
        NotBuilt, MissingFeature, OutOfMemory, DeviceLost, VulkanError: as ``ops.conv2d``.
    """
    random = np.random.default_rng(0)
    _, channels, _, _ = _SIZES

    def draw(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    x, residual = draw(*_SIZES), draw(*_SIZES)
    weight, bias, scale = draw(channels, channels, 1, 1), draw(channels), draw(channels)
    expected = reference.conv2d(
        x.astype(np.float64),
        weight.astype(np.float64),
        bias.astype(np.float64),
        epilogue=Epilogue(
            residual.astype(np.float64),
            scale.astype(np.float64).reshape(1, -1, 1, 1),
            activation="relu",
        ),
    )
    with Batch(device) as constants:
        operands = {
            "in": upload(constants, x),
            "weight": pack_weight(constants, weight, weight_operand(_convolution(device, True))),
            "bias": pack_vector(constants, bias),
            "residual": upload(constants, residual),
            "scale": pack_vector(constants, scale),
            # The elementwise multiplication takes its factor as a tensor [1, C, 1, 1].
            "factor": upload(constants, scale.reshape(1, -1, 1, 1)),
        }
        constants.run()
        fused = _measure(device, _fused, operands, expected)
        separate = _measure(device, _separate, operands, expected)
    clock = "GPU" if device.timestamp_bits else "wall"
    return Comparison(device.info.name, clock, fused, separate)


def _convolution(device: Device, fused: bool) -> tuple[Dispatch, ...]:
    _, c, h, w = _SIZES
    problem = {"in_n": 1, "in_c": c, "in_h": h, "in_w": w, "out_c": c}
    problem |= {"kernel_h": 1, "kernel_w": 1}
    if not fused:
        return pick(device, "conv2d", **problem)
    return pick(
        device,
        "conv2d",
        **problem,
        has_residual=True,
        has_scale=True,
        has_activation=True,
        activation_op="relu",
    )


def _fused(batch: Batch, operands: Operands) -> tuple[Image, int]:
    out = texture3d(batch, _SIZES, "float")
    dispatches = _convolution(batch.device, fused=True)
    batch.add(dispatches, {**operands, "out": out})
    return out, len(dispatches)


def _separate(batch: Batch, operands: Operands) -> tuple[Image, int]:
    """conv + bias, residual * scale, their sum, relu: each writes a texture for the next."""
    n, c, h, w = _SIZES
    device = batch.device
    conv, scaled, total, out = (texture3d(batch, _SIZES, "float") for _ in range(4))
    sizes = {"in_n": n, "in_c": c, "in_h": h, "in_w": w}
    full = {"other_n": n, "other_c": c, "other_h": h, "other_w": w}
    per_channel = {"other_n": 1, "other_c": c, "other_h": 1, "other_w": 1}
    work: list[tuple[tuple[Dispatch, ...], Operands]] = [
        (_convolution(device, fused=False), {**operands, "out": conv}),
        (
            pick(device, "binary", operation="mul", **sizes, **per_channel),
            {"in": operands["residual"], "other": operands["factor"], "out": scaled},
        ),
        (
            pick(device, "binary", operation="add", **sizes, **full),
            {"in": conv, "other": scaled, "out": total},
        ),
        (pick(device, "clamp", low=0.0, high=_LARGEST, **sizes), {"in": total, "out": out}),
    ]
    for dispatches, slots in work:
        batch.add(dispatches, slots)
    return out, sum(len(dispatches) for dispatches, _ in work)


def _measure(
    device: Device,
    build: Callable[[Batch, Operands], tuple[Image, int]],
    operands: Operands,
    expected: reference.Reference,
) -> Way:
    with Batch(device) as batch:
        out, dispatches = build(batch, operands)
        timed = batch.record(timestamps=device.timestamp_bits > 0)
        times = [_milliseconds(timed) for _ in range(_ROUNDS)]
        with Batch(device) as reading:
            buffer = download(reading, out, _SIZES)
            reading.run()
            got = buffer.read(np.float32, _SIZES)
    error = np.abs(got.astype(np.float64) - expected.values)
    worst = float(np.max(error / reference.bound(expected, "float")))
    # The fastest run is the least disturbed one; the first also warms up.
    return Way(dispatches, float(np.max(error)), worst, min(times))


def _milliseconds(recording: Recording) -> float:
    started = time.perf_counter()
    nanoseconds = recording.run()
    if nanoseconds is not None:
        return nanoseconds / 1e6
    return 1e3 * (time.perf_counter() - started)
