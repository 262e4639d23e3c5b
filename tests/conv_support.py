"""Convolutions for tests: drawn once, run by the op and between poison, and held to the bound.

``assert_right`` does all of it; ``Resizable`` runs records of other sizes in the same images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from shaderloom_runtime import ops
from shaderloom_runtime.device import Device
from shaderloom_runtime.kernel import cached_kernel
from shaderloom_runtime.memory import DTYPES, Buffer
from shaderloom_runtime.pack import WEIGHT_PACKERS, unpack_texture3d
from shaderloom_runtime.reference import Epilogue
from shaderloom_runtime.registry import load_registry
from shaderloom_runtime.runner import Batch, Dispatch, kernel_spec, pick, weight_operand
from shaderloom_runtime.submit import Recording, Step
from shaderloom_runtime.verify import compare, run_case
from shaderloom_runtime.verify_cases import Case
from shaderloom_runtime.verify_conv import Convolution, cases_of

Array = NDArray[Any]
_PRESENT = np.zeros(0)  # stands for an operand that the case draws itself

# The five of the matrix; none with both neutral factors. a > 0 would fill unmasked padding lanes.
EPILOGUES: Mapping[str, Epilogue] = {
    "relu": Epilogue(activation="relu"),
    "add_scale_clamp": Epilogue(_PRESENT, _PRESENT, "add", activation="clamp", a=0.25, b=1.5),
    "add_leaky_relu": Epilogue(_PRESENT, None, "add", activation="leaky_relu", a=0.125),
    "sub_alpha_scale": Epilogue(_PRESENT, _PRESENT, "sub", alpha=-0.75),
    "mul_relu": Epilogue(_PRESENT, None, "mul", activation="relu"),
}


def im2col(scratch: str, **overrides: Any) -> dict[str, Any]:
    """Return the overrides that force im2col with a scratch of this storage."""
    return {"route": "im2col", "force_scratch": True, "scratch": scratch, **overrides}


def direct(tile: str) -> dict[str, Any]:
    """Return the overrides that force the direct route with a tile, one or two."""
    return {"route": "direct", "direct_tile": tile}


def case_of(
    conv: Convolution, epilogue: Epilogue | None = None, dtype: str = "float", seed: int = 0
) -> Case:
    """Draw operands and expected result of a convolution; residual and scale where present."""
    [case] = cases_of(conv, [epilogue or Epilogue()], dtype, np.random.default_rng(seed))
    return case


def arguments(conv: Convolution, case: Case, epilogue: Epilogue) -> dict[str, Any]:
    """Return a case as the arguments of ``ops.conv2d``."""
    shape = (1, *conv.shape)
    out_c = conv.out_c
    given: dict[str, Any] = {
        name: getattr(conv, name)
        for name in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    }
    given |= {"x": unpack_texture3d(case.operands["in"], shape), "weight": case.weight}
    given["bias"] = case.operands["bias"].reshape(-1)[:out_c]
    if "residual" in case.operands:
        packed = case.operands["residual"]
        given["residual"] = unpack_texture3d(packed, (1, out_c, *packed.shape[1:3]))
    if "scale" in case.operands:
        given["scale"] = case.operands["scale"].reshape(-1)[:out_c].reshape(1, out_c, 1, 1)
    overrides = dict(conv.overrides)
    return given | {
        "residual_op": epilogue.residual_op,
        "alpha": epilogue.alpha,
        "activation": epilogue.activation,
        "a": epilogue.a,
        "b": epilogue.b,
        "route": overrides.pop("route", None),
        "overrides": overrides,
    }


@contextmanager
def picked() -> Iterator[list[Dispatch]]:
    """Collect the records that ``ops.conv2d`` is given meanwhile."""
    records: list[Dispatch] = []

    def spy(*args: Any, **problem: Any) -> tuple[Dispatch, ...]:
        records.extend(got := pick(*args, **problem))
        return got

    with mock.patch.object(ops, "pick", spy):
        yield records


@contextmanager
def limited(device: Device, **limits: Any) -> Iterator[None]:
    """Let a device look like one of smaller ``limits``, for all that asks it."""
    info = replace(device.info, limits=replace(device.info.limits, **limits))
    with mock.patch.object(device, "info", info):
        yield


def run_op(
    device: Device, conv: Convolution, epilogue: Epilogue, case: Case
) -> tuple[Array, list[Dispatch]]:
    """Run a case by the public op; return the NCHW result and the records."""
    with picked() as records:
        got = ops.conv2d(device, **arguments(conv, case, epilogue))
    return got, records


def assert_right(
    device: Device,
    conv: Convolution,
    epilogue: Epilogue | None = None,
    dtype: str = "float",
    shaders: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Dispatch]:
    """Hold the public op's result, and what is left between NaN, to the bound of each element.

    ``shaders`` are those that must have been dispatched, ``{dtype}`` filled in. The poisoned run
    also holds padding lanes to zero and finds what is read or written past the logical sizes.
    """
    epilogue = epilogue or Epilogue()
    case = case_of(conv, epilogue, dtype, seed)
    got, records = run_op(device, conv, epilogue, case)
    if shaders is not None:
        names = [name.format(dtype=dtype) for name in shaders]
        assert [record.shader for record in records] == names
    sizes = (1, conv.out_c, *case.expected.shape[1:3])
    assert (got.dtype, got.shape) == (DTYPES[dtype], sizes)
    expected, bound = (unpack_texture3d(a, sizes) for a in (case.expected, case.bound))
    assert np.all(np.abs(got.astype(np.float64) - expected) <= bound), case.label
    worst, where = run_case(device, case)
    assert worst <= 1, f"{case.label}: {where}"
    assert device.messages == []
    return records


class Resizable:
    """A convolution in images of its full size, recorded as far as ``reencode_reasons`` asks.

    As the runtime's graph does: uniform blocks are rewritten in place while a recording stays
    valid, and a reason makes a new one. ``recording`` is the one that ran last.
    """

    recording: Recording

    def __init__(self, device: Device, full: Case) -> None:
        self.device = device
        self._records = pick(device, "conv2d", **full.problem)
        self._uniforms: list[dict[int, Buffer]] = []
        self._stack = ExitStack()
        batch = self._stack.enter_context(Batch(device))
        self._operands = {
            slot: batch.image(tuple(reversed(data.shape[:-1])), full.problem["dtype"])
            for slot, data in self._contents(full).items()
        }
        self._scratch = batch.output(self._records[0], "scratch") if self._records[1:] else None
        self._recorded = self._stack.enter_context(ExitStack())
        self._record()

    def _contents(self, case: Case) -> dict[str, Array]:
        by = weight_operand(self._records)
        assert case.weight is not None
        packed = WEIGHT_PACKERS[by.packed_by](case.weight)
        return {**case.operands, "weight": packed, "out": np.full(case.expected.shape, np.nan)}

    def _record(self) -> None:
        self._recorded.close()
        operands: dict[str, Any] = {**self._operands, "scratch": self._scratch}
        self._uniforms, steps = [], []
        for record in self._records:
            blocks = {}
            for binding, data in record.uniforms:
                blocks[binding] = Buffer(self.device, len(data), host=True)
                self._recorded.enter_context(blocks[binding])
                blocks[binding].write(data)
            self._uniforms.append(blocks)
            bindings = [(binding, operands[slot]) for binding, slot in record.operands]
            kernel = cached_kernel(self.device, kernel_spec(load_registry(), record))
            bound = (*bindings, *blocks.items())
            steps.append(Step(kernel, bound, record.grid, record.push_constants))
        self.recording = self._recorded.enter_context(Recording(self.device, steps))

    @property
    def shaders(self) -> list[str]:
        return [record.shader for record in self._records]

    def run(self, case: Case) -> tuple[set[str], set[int]]:
        """Run a case of at most the full sizes, held to its bound, with NaN around its data.

        Returns why it was recorded anew, and the bindings of the blocks whose bytes changed.
        """
        dispatcher = load_registry().dispatch
        before, self._records = self._records, pick(self.device, "conv2d", **case.problem)
        pairs = list(zip(before, self._records, strict=True))
        reasons = {reason for pair in pairs for reason in dispatcher.reencode_reasons(*pair)}
        changed = [dispatcher.changed_uniforms(*pair) for pair in pairs]
        if reasons:
            self._record()
        else:
            for record, blocks, bindings in zip(
                self._records, self._uniforms, changed, strict=True
            ):
                for binding in bindings:
                    blocks[binding].write(dict(record.uniforms)[binding])
        for slot, data in self._contents(case).items():
            image = self._operands[slot]
            filled = np.full(image.shape, np.nan, DTYPES[image.dtype])
            filled[tuple(slice(0, n) for n in data.shape)] = data
            image.write(filled)
        self.recording.run()
        worst, where = compare(self._operands["out"].read(), case)
        assert worst <= 1, f"{case.label}: {where}"
        return reasons, {binding for bindings in changed for binding in bindings}

    def __enter__(self) -> Resizable:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
