"""What a fused epilogue costs a convolution that does not use it.

    python benchmarks/epilogue_cost.py --prepare build/epilogue    # where the compilers are
    python benchmarks/epilogue_cost.py --run build/epilogue        # where the GPU is

For each convolution family, in float and half, three modules of one shader are compared:

    none         rendered from the same templates, with an empty apply_epilogue
    specialised  the shipped module, its epilogue switched off by specialization constants
    frozen       the same, with those constants baked in by ``shaderloom freeze``

``--run`` needs Python, NumPy, ``vulkan`` and no compiler. It prints the driver's statistics of each
pipeline (VK_KHR_pipeline_executable_properties: registers, binary size, ...) where there are
any, and the time of a dispatch; results of the three must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaderloom_runtime.api import Handle
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.kernel import KernelSpec, make_kernels
from shaderloom_runtime.memory import DTYPES, Buffer, Image
from shaderloom_runtime.registry import load_registry, needed_features
from shaderloom_runtime.runner import Batch, Dispatch, kernel_spec, missing, pick, weight_operand
from shaderloom_runtime.staging import pack_vector, pack_weight, upload
from shaderloom_runtime.submit import Recording, Step

BLOCK = "epilogue"
KINDS = ("none", "specialised", "frozen")
TARGET_NS = 4_000_000  # of work in one submission, so that the clock's resolution does not matter
MOST_DISPATCHES = 256


@dataclass(frozen=True)
class Case:
    """A convolution that takes the family by ``route``; ``quick`` is its size without a GPU."""

    family: str
    route: str
    channels: int
    out_channels: int
    side: int
    kernel: int
    groups: int = 1
    transposed: bool = False

    @property
    def quick(self) -> Case:
        ratio = max(1, self.channels // 8)
        return replace(
            self,
            channels=self.channels // ratio,
            out_channels=self.out_channels // ratio,
            groups=max(1, self.groups // ratio),
            side=12,
        )

    def problem(self, dtype: str) -> dict[str, Any]:
        padding = 0 if self.transposed else self.kernel // 2
        stride = 2 if self.transposed else 1
        return {
            "in_n": 1, "in_c": self.channels, "in_h": self.side, "in_w": self.side,
            "out_c": self.out_channels, "kernel_h": self.kernel, "kernel_w": self.kernel,
            "stride_h": stride, "stride_w": stride, "padding_h": padding, "padding_w": padding,
            "groups": self.groups, "transposed": self.transposed,
            "dtype": dtype, "route": self.route,
        }  # fmt: skip

    def weight_shape(self) -> tuple[int, int, int, int]:
        first, second = self.out_channels, self.channels // self.groups
        if self.transposed:
            first, second = self.channels, self.out_channels
        return first, second, self.kernel, self.kernel


CASES = (
    Case("conv2d_tiled", "direct", 64, 64, 112, 3),
    Case("conv2d_dw", "depthwise", 256, 256, 112, 7, groups=256),
    Case("conv2d_dw_output_tile", "depthwise_tile", 256, 256, 112, 3, groups=256),
    Case("conv_transpose2d", "transposed", 64, 64, 56, 2, transposed=True),
    Case("conv2d_pw_tiled", "pointwise", 256, 256, 56, 1),
    Case("conv2d_gemm", "im2col", 64, 128, 56, 3),
)


def run(folder: Path, quick: bool, runs: int, select: str | None) -> None:
    """Measure every case on a device and print a table."""
    os.environ["SHADERLOOM_GENERATED"] = str((folder / "generated").resolve())
    features = {*needed_features(), "pipelineExecutableInfo"}
    with open_device(select, features=features) as device:
        print(f"device: {device.info.name}, {device.info.driver_name} {device.info.driver_version}")
        if "pipelineExecutableInfo" not in device.enabled:
            print("the driver has no VK_KHR_pipeline_executable_properties: times only")
        for case in CASES:
            for dtype in ("float", "half"):
                measure(device, folder / "modules", case.quick if quick else case, dtype, runs)


def measure(device: Device, modules: Path, case: Case, dtype: str, runs: int) -> None:
    """Print the three rows of one case; exits when the three modules do not agree."""
    registry = load_registry()
    dispatches = pick(device, "conv2d", **case.problem(dtype))
    shader = dispatches[-1].shader
    assert registry.shaders[shader].family == case.family
    shape = f"1x{case.channels}x{case.side}x{case.side}"
    print(f"\n{shader}: {shape} -> {case.out_channels} channels, kernel {case.kernel}")
    unable = missing(registry, device.info, device.enabled)
    if shader in unable:
        print(f"  skipped: {unable[shader]}")
        return
    capture = "pipelineExecutableInfo" in device.enabled
    flags = device.api.VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR if capture else 0
    with ExitStack() as stack:
        batch = stack.enter_context(Batch(device))
        dispatch, operands = _operands(batch, case, dtype, dispatches)
        bindings = [(binding, operands[slot]) for binding, slot in dispatch.operands]
        for binding, data in dispatch.uniforms:
            bindings.append((binding, batch.buffer(np.frombuffer(data, np.uint8))))
        specs = _specs(kernel_spec(registry, dispatch), modules)
        kernels = make_kernels(device, specs, None, flags)
        steps = []
        for kernel in kernels:
            stack.enter_context(kernel)
            steps.append(Step(kernel, tuple(bindings), dispatch.grid, dispatch.push_constants))
        out = operands["out"]
        assert isinstance(out, Image), "every family of the op writes a texture3d"
        count = _check(device, steps, out)
        times = _times(device, steps, count, runs)
        rows = [
            {
                "SPIR-V bytes": len(kernel.spec.code),
                **(dict(_statistics(device, kernel.pipeline)) if capture else {}),
            }
            for kernel in kernels
        ]
    _print_rows(rows, times)


def _operands(
    batch: Batch, case: Case, dtype: str, dispatches: Sequence[Dispatch]
) -> tuple[Dispatch, dict[str, Buffer | Image]]:
    """Fill the operands; return them with the dispatch that is to be measured."""
    random = np.random.default_rng(1)

    def draw(*sizes: int) -> NDArray[np.generic]:
        return random.uniform(-1, 1, sizes).astype(DTYPES[dtype])

    operands = {
        "out": batch.output(dispatches[-1]),
        "in": upload(batch, draw(1, case.channels, case.side, case.side)),
        "weight": pack_weight(batch, draw(*case.weight_shape()), weight_operand(dispatches)),
        "bias": pack_vector(batch, draw(case.out_channels)),
    }
    dispatch = dispatches[0]
    if len(dispatches) > 1:  # im2col: the first band fills the scratch that is then multiplied
        operands["scratch"] = batch.output(dispatch, "scratch")
        batch.add([dispatch], operands)
        dispatch = dispatches[1]
    batch.run()
    return dispatch, operands


def _specs(shipped: KernelSpec, modules: Path) -> list[KernelSpec]:
    """Return the pipelines of ``KINDS``; two of them have no epilogue's constants to be set."""
    manifest = json.loads(Path(os.environ["SHADERLOOM_GENERATED"], "manifest.json").read_bytes())
    constants = manifest["shaders"][shipped.name]["constants"]
    epilogue = {constant["id"] for constant in constants if constant["block"] == BLOCK}
    own = tuple((id_, bits) for id_, bits in shipped.constants if id_ not in epilogue)
    none, frozen = (
        replace(
            shipped,
            code=(modules / f"{shipped.name}.{kind}.spv").read_bytes(),
            constants=own,
        )
        for kind in ("none", "frozen")
    )
    return [none, shipped, frozen]


def _check(device: Device, steps: Sequence[Step], out: Image) -> int:
    """Insist on equal results; return how many dispatches make a submission worth timing."""
    results, longest = set(), 1
    for step in steps:
        with Recording(device, [step], timestamps=True) as recording:
            recording.run()  # the first run of a pipeline may finish its compilation
            longest = max(longest, recording.run() or 0)
        results.add(out.read().tobytes())
    if len(results) > 1:
        sys.exit(f"{steps[0].kernel.spec.name}: the results of {', '.join(KINDS)} differ")
    return max(1, min(MOST_DISPATCHES, TARGET_NS // longest))


def _times(device: Device, steps: Sequence[Step], count: int, runs: int) -> list[list[float]]:
    """Return microseconds a dispatch, ``runs`` for each step."""
    times: list[list[float]] = [[] for _ in steps]
    with ExitStack() as stack:
        recordings = [
            stack.enter_context(Recording(device, [step] * count, timestamps=True))
            for step in steps
        ]
        for turn in range(runs):  # in turns, each time from another one: clocks drift
            for i in range(len(steps)):
                which = (turn + i) % len(steps)
                times[which].append((recordings[which].run() or 0) / count / 1000)
    return times


def _print_rows(facts: Sequence[Mapping[str, Any]], times: Sequence[Sequence[float]]) -> None:
    columns = list(dict.fromkeys(name for row in facts for name in row))
    rows = [["", *columns, "us median", "us least", "vs none"]]
    base = statistics.median(times[0])
    for kind, known, measured in zip(KINDS, facts, times, strict=True):
        median = statistics.median(measured)
        against = f"{100 * (median / base - 1):+.1f} %" if base else ""
        timed = [f"{median:.2f}", f"{min(measured):.2f}", against]
        rows.append([kind, *(str(known.get(name, "")) for name in columns), *timed])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        print(f"  {first:{widths[0]}}  {'  '.join(cells)}")
    same = [name for name in columns if len({row.get(name) for row in facts}) == 1]
    print(f"  equal in all three: {', '.join(same) or 'none of these numbers'}")


def _statistics(device: Device, pipeline: Handle) -> Iterator[tuple[str, Any]]:
    """Yield the driver's statistics of a compute pipeline: ("Register Count", 32), ...

    By hand: the binding's own wrapper leaves out the sType that the specification wants.
    """
    api, ffi = device.api, device.api.ffi
    name = "vkGetPipelineExecutableStatisticsKHR"
    address = api.lib.vkGetDeviceProcAddr(device.handle, name.encode())
    function = ffi.cast(f"PFN_{name}", address)
    info = api.VkPipelineExecutableInfoKHR(pipeline=pipeline, executableIndex=0)
    count = ffi.new("uint32_t*")
    if function(device.handle, ffi.addressof(info), count, ffi.NULL):
        return
    found = ffi.new("VkPipelineExecutableStatisticKHR[]", count[0])
    for statistic in found:
        statistic.sType = api.VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR
    if function(device.handle, ffi.addressof(info), count, found):
        return
    for statistic in found:  # formats: bool, int64, uint64, double
        members = ("b32", "i64", "u64", "f64")
        value = getattr(statistic.value, members[statistic.format])
        yield ffi.string(statistic.name).decode(errors="replace"), value


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Cost of an epilogue that is not used.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--prepare", type=Path, metavar="DIR", help="compile everything into DIR")
    action.add_argument("--run", type=Path, metavar="DIR", help="measure what is in DIR")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, for software devices")
    parser.add_argument("--runs", type=int, default=31, help="submissions a module (default: 31)")
    parser.add_argument("--device", help="a part of a device's name")
    options = parser.parse_args()
    if options.prepare:
        # Only here: where the GPU is, Jinja and pydantic need not be installed.
        from epilogue_modules import prepare  # noqa: PLC0415

        prepare(options.prepare, {case.family for case in CASES}, BLOCK)
    else:
        run(options.run, options.quick, options.runs, options.device)


if __name__ == "__main__":
    main()
