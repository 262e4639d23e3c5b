"""How fast matrices are multiplied, beside torch on the same card, in one run.

    python benchmarks/matmul.py                              # 1024, 4096 and a ragged size
    python benchmarks/matmul.py --sizes 512,768,300 --device NVIDIA

Each size is m,n,k, or one number for all three. For each, TFLOP/s of:

    matmul_coopmat half    both tiles of the first matrix shape that the device lists; * is the
                           one that the dispatcher takes
    linear_coopmat half    the same against a packed constant weight, the tile that is taken
    matmul_tiled float     in buffers
    torch half, float      torch.matmul, fp32 without TF32; "absent" where torch or CUDA is

The rounds of all take turns, so that a change of clock or load meets all of them; the table has
each one's median, least and greatest round, and the median as a part of torch's. Some rows of
each result of ours are held against float64 first. What the device lacks is named and left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shaderloom_runtime import reference
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.memory import Buffer
from shaderloom_runtime.pack import pack_rows, unpack_rows
from shaderloom_runtime.registry import load_registry
from shaderloom_runtime.runner import Batch, missing, pick
from shaderloom_runtime.staging import DTYPE_NAMES, pack_vector, pack_weight

SIZES = ("1024", "4096", "4001,3999,4093")
TARGET_FLOP = 4e12  # of work in one round, so that the clock's resolution does not matter
CHECKED_ROWS = 16


@dataclass(frozen=True)
class Contender:
    """Something that multiplies; ``round`` does it ``repeats`` times and returns seconds each."""

    name: str
    dtype: str
    round: Callable[[], float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="m,n,k, or one number for all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", help="index or part of a name")
    options = parser.parse_args()
    with open_device(options.device) as device:
        print(f"device: {device.info.name}, {device.info.driver_name} {device.info.driver_version}")
        absent = [n for n in missing(load_registry(), device.info, device.enabled) if "coop" in n]
        if absent:
            print(f"cannot run: {', '.join(absent)}")
        for text in options.sizes:
            sides = [int(side) for side in text.split(",")]
            m, n, k = sides * 3 if len(sides) == 1 else sides
            measure(device, m, n, k, options.rounds)
    return 0


def measure(device: Device, m: int, n: int, k: int, rounds: int) -> None:
    """Print the table of one size."""
    random = np.random.default_rng(0)
    flop = 2 * m * n * k
    repeats = max(1, min(64, round(TARGET_FLOP / flop)))
    contenders: list[Contender] = []
    with ExitStack() as stack:
        for dtype in (np.float16, np.float32):
            x, y = ((random.random(s, np.float32) - 0.5).astype(dtype) for s in ((m, k), (k, n)))
            contenders += torches(x, y, repeats)
            for name, op, problem in products(device, m, n, k, DTYPE_NAMES[x.dtype]):
                contenders.append(ours(device, stack, name, op, problem, x, y, repeats))
        times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for _ in range(rounds):
            for contender in contenders:
                times[contender.name].append(contender.round())
    print(f"\n{m} x {n} x {k}, median of {rounds} rounds of {repeats}, TFLOP/s")
    medians = {name: flop / statistics.median(taken) / 1e12 for name, taken in times.items()}
    for contender in contenders:
        taken, median = times[contender.name], medians[contender.name]
        peer = medians.get(f"torch {contender.dtype}")
        part = f"{median / peer:7.1%} of torch" if peer else ""
        low, high = (flop / t / 1e12 for t in (max(taken), min(taken)))
        print(f"  {contender.name:42} {median:8.2f}  ({low:.2f} to {high:.2f}) {part}")


def products(
    device: Device, m: int, n: int, k: int, dtype: str
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (name, op, problem) of what this device can run in this dtype."""
    sizes = {"m": m, "n": n, "k": k, "dtype": dtype, "storage": "vec4_buffer"}
    unable = missing(load_registry(), device.info, device.enabled)
    if dtype == "float":
        yield "matmul_tiled float", "matmul", {**sizes, "route": "tiled"}
        return
    if not any(name.startswith("matmul_coopmat") and name not in unable for name in shaders()):
        return
    [chosen] = pick(device, "matmul", **sizes)
    for tile in ("large", "small"):
        problem = {**sizes, "route": "coopmat", "coopmat_tile": tile}
        [dispatch] = pick(device, "matmul", **problem)
        mark = " *" if dispatch.shader == chosen.shader else ""
        yield f"{dispatch.shader}{mark}", "matmul", problem
    problem = {**sizes, "route": "coopmat"}
    [dispatch] = pick(device, "linear", **problem)
    yield dispatch.shader, "linear", problem


def shaders() -> list[str]:
    return list(load_registry().shaders)


def ours(
    device: Device,
    stack: ExitStack,
    name: str,
    op: str,
    problem: dict[str, Any],
    x: NDArray[Any],
    y: NDArray[Any],
    repeats: int,
) -> Contender:
    """Upload, run once and check, and record ``repeats`` dispatches for the rounds."""
    [dispatch] = pick(device, op, **problem)
    batch = stack.enter_context(Batch(device))
    out = batch.output(dispatch)
    assert isinstance(out, Buffer)
    operands: dict[str, Any] = {"out": out, "in": batch.buffer(pack_rows(x[None]))}
    if op == "matmul":
        operands["mat2"] = batch.buffer(pack_rows(y[None]))
    else:
        operand = load_registry().operand(dispatch.shader, "weight")
        assert operand is not None
        weight = np.ascontiguousarray(y.T)[:, :, None, None]
        operands["weight"] = pack_weight(batch, weight, operand)
    operands["bias"] = pack_vector(batch, np.zeros(y.shape[1], x.dtype))
    batch.run()  # the packing
    timed = stack.enter_context(Batch(device))
    timed.add([dispatch] * repeats, operands)
    recording = timed.record(timestamps=True)
    recording.run()
    texels = (1, x.shape[0], -(-y.shape[1] // 4), 4)
    check(name, unpack_rows(out.read(x.dtype, texels), y.shape[1])[0], x, y)

    def one_round() -> float:
        elapsed = recording.run()
        assert elapsed is not None
        return elapsed / repeats / 1e9

    return Contender(name, problem["dtype"], one_round)


def check(name: str, result: NDArray[Any], x: NDArray[Any], y: NDArray[Any]) -> None:
    """Hold rows spread over the result against float64; ends the run when one is wrong."""
    rows = np.unique(np.linspace(0, len(x) - 1, CHECKED_ROWS).astype(int))
    wanted = reference.matmul(x[rows].astype(np.float64), y.astype(np.float64), None)
    error = np.abs(result[rows] - wanted.values)
    worst = float((error / reference.bound(wanted, DTYPE_NAMES[x.dtype])).max())
    if not worst <= 1:
        sys.exit(f"{name}: {worst:.2f} times the allowed error")


def torches(x: NDArray[Any], y: NDArray[Any], repeats: int) -> list[Contender]:
    """Return torch's product on CUDA, none where there is no torch or no CUDA."""
    dtype = DTYPE_NAMES[x.dtype]
    try:
        import torch  # noqa: PLC0415  (optional, and slow to import)
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    a, b = (torch.from_numpy(array).cuda() for array in (x, y))

    def one_round() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            torch.matmul(a, b)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / repeats / 1e3

    one_round()
    return [Contender(f"torch {dtype}", dtype, one_round)]


if __name__ == "__main__":
    sys.exit(main())
