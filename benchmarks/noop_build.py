"""Print how long a build with nothing to do takes: the median over whole processes.

    python benchmarks/noop_build.py [RUNS]

Builds this repository's shaders into a temporary folder first, so that nothing is left to do.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LOOM = "import sys; from shaderloom.cli import main; sys.exit(main())"


def main(runs: int) -> None:
    """Build once, then measure ``runs`` builds that find everything up to date."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-c", LOOM, "build", "--out", out]
        subprocess.run(command, cwd=REPOSITORY, check=True)
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            ran = subprocess.run(
                command, cwd=REPOSITORY, check=True, capture_output=True, text=True
            )
            seconds.append(time.perf_counter() - started)
            if "up to date" not in ran.stdout:
                sys.exit(f"a build with nothing to do did something:\n{ran.stdout}")
    print(
        f"no-op build: median {statistics.median(seconds) * 1000:.0f} ms, "
        f"from {min(seconds) * 1000:.0f} to {max(seconds) * 1000:.0f} ms, {runs} runs"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
