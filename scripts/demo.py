"""Builds and audits every shader of this checkout, prints a summary and runs one of them.

Run by `make demo`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from shaderloom import __version__, freshness, pipeline
from shaderloom.cache import Cache, default_folder
from shaderloom.errors import LoomError
from shaderloom.lints import failed
from shaderloom.outputs import Written
from shaderloom.toolchain import Toolchain, find_toolchain
from shaderloom_runtime.demo import run_demo
from shaderloom_runtime.device import open_device
from shaderloom_runtime.errors import NoDriver, NoLoader, ShaderloomError

SPEC = Path("variants.yaml")
OUT = Path("generated")
LOOM = ".venv/bin/shaderloom"
NEXT = (
    (f"{LOOM} explain conv2d_pw_tiled_half", "one shader's whole interface"),
    (f"{LOOM} pick conv2d --set in=1,64,56,56 out_c=64 kernel=1", "what to dispatch, and why"),
    (".venv/bin/shaderloom-runtime verify --quick", "every shader against float64 NumPy"),
)


def main() -> int:
    """Run the demo; returns 0, or the exit code of the mistake that stopped it."""
    os.chdir(Path(__file__).resolve().parent.parent)  # errors name files as seen from there
    try:
        return demo()
    except LoomError as error:
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def demo() -> int:
    """Build, audit, print and run; returns 1 for findings of the audit or a wrong result."""
    started = time.perf_counter()
    toolchain = find_toolchain()
    options = pipeline.Options(jobs=os.cpu_count() or 1, cache=Cache(default_folder()))
    woven = pipeline.weave(SPEC)
    proven = pipeline.prove(woven, toolchain, options)
    for finding in proven.findings:
        print(finding, file=sys.stderr)
    if failed(proven.findings):
        return 1
    # The key of a plain `shaderloom build`, which then finds nothing left to do.
    key = freshness.build_key(toolchain.identity, options.compiler, SPEC.name)
    written = pipeline.emit(woven, proven, toolchain, OUT, key, options.only)
    seconds = time.perf_counter() - started
    print("\n".join(summary(woven, proven, toolchain, written, seconds)), flush=True)
    code = run()
    width = max(len(command) for command, _ in NEXT)
    print("\nNext, for example:")
    print("\n".join(f"  {command.ljust(width)}  {what}" for command, what in NEXT))
    return code


def run() -> int:
    """Run a convolution fused and in separate dispatches, on the best device there is."""
    os.environ["SHADERLOOM_GENERATED"] = str(OUT.resolve())  # what was built just now
    try:
        with open_device() as device:
            comparison = run_demo(device)
    except (NoLoader, NoDriver) as error:
        print(f"{'run':10} not run: {error}")
        return 0
    except ShaderloomError as error:
        print(f"run: error: {error}", file=sys.stderr)
        return 1
    print("\n".join(labelled("run", list(comparison.lines()))))
    return 0 if comparison.ok else 1


def summary(
    woven: pipeline.Woven,
    proven: pipeline.Proven,
    toolchain: Toolchain,
    written: Written,
    seconds: float,
) -> list[str]:
    """Return the lines that a person reads."""
    modules, skipped = proven.compiled.modules, proven.compiled.skipped
    lines = [f"shaderloom {__version__}: built and audited every shader of {SPEC}", ""]
    lines += table(families(woven, proven))
    lines += ["", f"build      {seconds:.1f} s, {len(written.changed)} files written to {OUT}/"]
    lines += [f"           not optimised: {m.name}" for m in modules.values() if m.unoptimized]
    lines += labelled("compilers", compilers(proven, toolchain))
    both = len(modules) - len(proven.testimony.unread)
    second = toolchain.get("spirv-cross")
    lines += labelled(
        "audit",
        [
            "every module declares exactly the planned interface",
            f"read by shaderloom's own SPIR-V reader: {len(modules)} of {len(modules)}",
            f"read by spirv-cross, with the same result: {both} of {len(modules)}"
            + ("" if second else " (it is not installed)"),
        ],
    )
    reasons = [f"{name}: {why}" for name, why in sorted(skipped.items())]
    lines += labelled("skipped", reasons or ["none"])
    return lines


def families(woven: pipeline.Woven, proven: pipeline.Proven) -> list[tuple[str, ...]]:
    """Return the rows (family, variants, modules, bytes), head and total included."""
    rows: list[tuple[str, ...]] = [("family", "variants", "modules", "bytes")]
    modules = proven.compiled.modules
    for family in woven.plan.families:
        made = [modules[v.name] for v in family.variants if v.name in modules]
        size = sum(len(module.shipped) for module in made)
        counts = (str(len(family.variants)), str(len(made)), f"{size:,}")
        rows.append((family.name, *counts))
    size = sum(len(module.shipped) for module in modules.values())
    total = (str(len(woven.plan.variants)), str(len(modules)), f"{size:,}")
    return [*rows, ("total", *total)]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return aligned lines: a column of text, the rest numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells))
    return lines


def compilers(proven: pipeline.Proven, toolchain: Toolchain) -> list[str]:
    """Return a line for each compiler that made a module, and for the tools behind it."""
    made_by = [module.compiler.name for module in proven.compiled.modules.values()]
    used = {name: f", {made_by.count(name)} modules" for name in sorted(set(made_by))}
    used |= {"spirv-opt": "", "spirv-val": ""}
    tools = [tool for name in used if (tool := toolchain.get(name))]
    return [
        f"{tool.name:9} {tool.version.split(',')[0]}{used[tool.name]}" for tool in tools
    ]  # e.g. "shaderc 2023.2-1" of "shaderc 2023.2-1, spirv-tools 2022.4, glslang 11.13"


def labelled(label: str, lines: Sequence[str]) -> list[str]:
    """Return ``lines`` indented, the first of them behind ``label``."""
    return [f"{label if i == 0 else '':10} {line}" for i, line in enumerate(lines)]


if __name__ == "__main__":
    sys.exit(main())
