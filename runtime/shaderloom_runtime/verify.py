"""Runs every variant of the manifest on a device and holds the results against float64 NumPy.

``verify(device, only="*", cases=CASES) -> Report`` runs ``verify_cases``, ``verify_conv`` and
``verify_matmul``; ``QUICK_CASES`` has fewer epilogue combinations for each problem. Around each
case:

- Every output is filled with NaN first, so what a shader leaves out shows.
- Every operand and output is one texel larger along each axis than its logical sizes (a buffer:
  four elements longer), and NaN there: a read past the sizes carries NaN into the result, and
  a write past them overwrites a NaN.
- Padding lanes of inputs are zero, as the contract says, and those of outputs must be zero.
- An element's error is a fraction of its bound (``reference.bound``); exact results (packing,
  staging) may have none.

What validation says is in ``device.messages``, for the caller to look at after closing.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from .device import Device
from .errors import InvalidArgument
from .memory import DTYPES, TEXELS, Buffer, Image
from .pack import WEIGHT_PACKERS
from .registry import Registry, load_registry
from .runner import Batch, Dispatch, missing, pick_within, weight_operand
from .verify_cases import PLAIN_CASES, Array, Case, Cases
from .verify_conv import conv2d_cases
from .verify_matmul import linear_cases, matmul_cases, relayout_cases

_EPILOGUE_CASES = {"conv2d": conv2d_cases, "matmul": matmul_cases, "linear": linear_cases}
CASES: Cases = {**PLAIN_CASES, "relayout": relayout_cases, **_EPILOGUE_CASES}
QUICK_CASES: Cases = {
    **CASES,
    **{op: partial(cases, quick=True) for op, cases in _EPILOGUE_CASES.items()},
}

_SEED = 20260
_EXTRA = 4  # elements past the end of a buffer


@dataclass(frozen=True)
class Row:
    """A variant that ran: ``worst`` is the largest error as a fraction of its bound."""

    variant: str
    cases: int
    worst: float
    worst_case: str


@dataclass(frozen=True)
class Report:
    """What came of a run; ``ok`` when nothing exceeded its bound and nothing was left out."""

    rows: tuple[Row, ...]
    skipped: Mapping[str, str]  # variant -> why it cannot run here
    excess: tuple[str, ...]  # a line for each result past its bound
    not_run: tuple[str, ...]  # variants that could run, but no case asked for them

    @property
    def ok(self) -> bool:
        return not self.excess and not self.not_run

    def lines(self) -> Iterator[str]:
        """Yield the table of worst errors, then all that is amiss."""
        width = max([len("variant"), *(len(row.variant) for row in self.rows)])
        yield f"{'variant':{width}}  {'cases':>5}  worst error / bound"
        for row in self.rows:
            at = f"  ({row.worst_case})" if row.worst else ""
            yield f"{row.variant:{width}}  {row.cases:5}  {row.worst:.3f}{at}"
        yield from (f"skipped: {name}: {why}" for name, why in self.skipped.items())
        yield from (f"error: {line}" for line in self.excess)
        yield from (f"error: {name} did not run: no case reaches it" for name in self.not_run)
        worst = max((row.worst for row in self.rows), default=0.0)
        yield (
            f"{len(self.rows)} variants, {sum(row.cases for row in self.rows)} cases, "
            f"{len(self.excess)} past the bound, worst {worst:.3f}, {len(self.skipped)} skipped"
        )


def verify(device: Device, only: str = "*", cases: Cases = CASES) -> Report:
    """Run all ``cases`` of the variants that match ``only``.

    Raises:
        InvalidArgument: no variant matches.
        NotBuilt: the generated data is absent or damaged.
        OutOfMemory, DeviceLost, VulkanError: the device failed.
    """
    registry = load_registry()
    chosen = [name for name in registry.shaders if fnmatch.fnmatchcase(name, only)]
    if not chosen:
        raise InvalidArgument(f"no variant matches {only!r}")
    unable = missing(registry, device.info, device.enabled)
    runnable = [name for name in chosen if name not in unable]
    rows: dict[str, Row] = {}
    excess: list[str] = []
    for case in _drawn(cases, registry, runnable):
        if case.needs and case.needs not in runnable:
            continue
        dispatches = pick_within(device, case.limits, case.op, **case.problem)
        names = {dispatch.shader for dispatch in dispatches}
        if not names <= set(runnable):
            continue
        worst, where = run_case(device, case)
        if worst > 1:
            excess.append(f"{' + '.join(sorted(names))}: {case.label}: {where}")
        for name in names:
            before = rows.get(name, Row(name, 0, -1.0, ""))
            better = (worst, case.label) if worst > before.worst else _of(before)
            rows[name] = Row(name, before.cases + 1, *better)
    return Report(
        rows=tuple(rows[name] for name in runnable if name in rows),
        skipped={name: unable[name] for name in chosen if name in unable},
        excess=tuple(excess),
        not_run=tuple(name for name in runnable if name not in rows),
    )


def run_case(device: Device, case: Case) -> tuple[float, str]:
    """Run one case; return its largest error as a fraction of the bound, and where that is."""
    dtype = case.problem["dtype"]
    dispatches = pick_within(device, case.limits, case.op, **case.problem)
    with Batch(device) as batch:
        operands = {slot: _poisoned(batch, data, dtype) for slot, data in case.operands.items()}
        if case.weight is not None:
            by = weight_operand(dispatches)
            packed = WEIGHT_PACKERS[by.packed_by](case.weight)
            flat = packed.reshape(-1) if by.storage == "vec4_buffer" else packed
            operands["weight"] = _poisoned(batch, flat, dtype)
        if any(slot == "scratch" for _, slot in dispatches[0].operands):
            operands["scratch"] = _poisoned(batch, _nothing(dispatches[0]), dtype)
        empty = np.full(case.expected.shape, np.nan)
        operands["out"] = out = _poisoned(batch, empty, dtype)
        batch.add(dispatches, operands)
        batch.run()
        return compare(_contents(out, dtype), case)


def _nothing(dispatch: Dispatch) -> Array:
    """Return the NaN that fills the scratch that a dispatch writes."""
    operand = load_registry().operand(dispatch.shader, "scratch")
    assert operand is not None, f"{dispatch.shader} has no scratch"
    width, height, depth = dispatch.out_extent
    shapes = {
        "texture2d": (height, width, 4),
        "texture3d": (depth, height, width, 4),
        "vec4_buffer": (4 * width,),
    }
    return np.full(shapes[operand.storage], np.nan)


def compare(contents: Array, case: Case) -> tuple[float, str]:
    """Hold a poisoned output against a case, as ``run_case`` returns it."""
    inside = tuple(slice(0, size) for size in case.expected.shape)
    got = contents[inside].astype(np.float64)
    outside = np.ones(contents.shape, bool)
    outside[inside] = False
    touched = np.argwhere(outside & ~np.isnan(contents))
    if touched.size:
        return float("inf"), f"wrote {contents[tuple(touched[0])]} past its sizes at {touched[0]}"
    error = np.abs(got - case.expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        fraction = np.where(error == 0, 0.0, error / case.bound)
    fraction = np.where(np.isnan(fraction), np.inf, fraction)  # a NaN got through
    at = np.unravel_index(int(np.argmax(fraction)), fraction.shape)
    place = ", ".join(str(int(index)) for index in at)
    return float(fraction[at]), (
        f"{got[at]} at [{place}], expected {case.expected[at]} within {case.bound[at]:.3g}"
    )


def _drawn(cases: Cases, registry: Registry, runnable: list[str]) -> Iterator[Case]:
    """Yield the cases of every op and dtype that a variant to be run has; the same every time."""
    wanted = {(registry.shaders[name].op, registry.shaders[name].dtype) for name in runnable}
    for op, dtype in sorted(wanted):
        if op in cases:
            yield from cases[op](dtype, np.random.default_rng(_SEED))


def _of(row: Row) -> tuple[float, str]:
    return row.worst, row.worst_case


def _poisoned(batch: Batch, data: Array, dtype: str) -> Buffer | Image:
    """Put packed ``data`` into an image or buffer that is larger, and NaN, past its sizes.

    Words of quantized weights are all ones there.
    """
    room = (len(data) + _EXTRA,) if data.ndim == 1 else (*(n + 1 for n in data.shape[:-1]), 4)
    dtype = "uint" if data.dtype == np.uint32 else dtype
    filled = np.full(room, 0xFFFFFFFF if dtype == "uint" else np.nan, TEXELS[dtype])
    filled[tuple(slice(0, size) for size in data.shape)] = data
    if data.ndim == 1:
        return batch.buffer(filled)
    image = batch.image(tuple(reversed(room[:-1])), dtype)
    image.write(filled)
    return image


def _contents(resource: Buffer | Image, dtype: str) -> Array:
    if isinstance(resource, Image):
        return resource.read()
    numpy_dtype = DTYPES[dtype]
    return resource.read(numpy_dtype, (resource.size // numpy_dtype.itemsize,))
