"""Compare the Python and the C dispatcher, byte for byte, on random problems and devices.

    python scripts/compare_dispatchers.py --problems 1000000

Prints one line a part and a last line with the totals; exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "codegen")]

from dispatch_harness import Harness, Outcome, build_program  # noqa: E402
from shaderloom.pipeline import committed, weave  # noqa: E402

PART = 20_000  # problems a run of the C program


def compare_part(folder: Path, problems: int, seed: int) -> Outcome:
    """Compare one part in its own process."""
    woven = weave(ROOT / "variants.yaml")
    assert woven.decisions is not None
    harness = Harness(woven.decisions, woven.plan.enums, folder, folder / "answer")
    return harness.compare(problems, seed, interpret_every=20)


def main() -> int:
    """Generate the dispatchers anew, compile, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler found", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        woven = weave(ROOT / "variants.yaml")
        assert woven.decisions is not None
        for path, data in committed(woven).items():
            if path.startswith(("dispatch.", "registry.")):
                (folder / path).write_bytes(data)
        build_program(woven.decisions, folder, folder, [compiler, "-std=c99"])
        parts = [min(PART, options.problems - i) for i in range(0, options.problems, PART)]
        counts: Counter[str] = Counter()
        differences: list[str] = []
        with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
            seeds = range(options.seed * 1_000_000, options.seed * 1_000_000 + len(parts))
            for outcome in pool.map(compare_part, [folder] * len(parts), parts, seeds):
                counts += outcome.counts
                differences += outcome.differences
                print(f"{counts.total():>9,} problems, {len(differences)} differences", flush=True)
    for difference in differences[:10]:
        print(difference, file=sys.stderr)
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counts.most_common())
    print(f"{counts.total():,} problems: {len(differences)} differences ({kinds})")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
