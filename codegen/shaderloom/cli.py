"""The command line: the only place that prints, exits or looks at the terminal.

Exit codes: 0 fine; 1 findings, failed shaders or output that cannot be written; 2 bad
usage, bad spec or a missing program; 3 and 4 (``diff`` alone) compatible and breaking
changes. Stages are imported by the commands that need them, since a build with nothing to
do is mostly the time to import.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shaderloom import __version__
from shaderloom.cache import Cache, default_folder
from shaderloom.errors import Diagnostic, LoomError, Position

if TYPE_CHECKING:
    from shaderloom.interface import Plan, VariantPlan
    from shaderloom.outputs import Written
    from shaderloom.pipeline import Proven


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path may have letters that it cannot print
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code: int = options.run(options)
    except LoomError as error:
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
        _annotate(error, options)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # e.g. piped into head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # e.g. the folder for temporary files is full
        print(f"{error.filename or 'shaderloom'}: error: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="shaderloom",
        description="Plan, render, compile and prove the interfaces of compute shaders.",
    )
    parser.add_argument("--version", action="version", version=f"shaderloom {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    project = argparse.ArgumentParser(add_help=False)
    project.add_argument(
        "--spec", type=Path, default=Path("variants.yaml"), help="default: variants.yaml"
    )
    verbosity = project.add_mutually_exclusive_group()
    verbosity.add_argument("--quiet", action="store_true", help="print errors only")
    verbosity.add_argument("--verbose", action="store_true", help="print what each stage did")

    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("--out", type=Path, help="default: generated, beside the spec")

    compiling = argparse.ArgumentParser(add_help=False)
    compiling.add_argument("--jobs", type=_positive, default=os.cpu_count() or 1, metavar="N")
    compiling.add_argument("--compiler", choices=("auto", "shaderc", "glslang"), default="auto")
    cache = compiling.add_mutually_exclusive_group()
    cache.add_argument("--cache", type=Path, metavar="DIR", help="default: the user's cache")
    cache.add_argument("--no-cache", action="store_true")

    build = commands.add_parser(
        "build", parents=[project, output, compiling], help="generate, compile, audit and write"
    )
    build.add_argument("--only", default="*", metavar="GLOB", help="compile matching variants only")
    build.add_argument(
        "--keep-going", action="store_true", help="write what compiled even if a shader failed"
    )
    build.set_defaults(run=_build)

    check = commands.add_parser(
        "check", parents=[project, output], help="say whether the committed files are current"
    )
    check.set_defaults(run=_check)

    audit = commands.add_parser(
        "audit", parents=[project, compiling], help="hold the compiled modules against the plan"
    )
    audit.add_argument(
        "path", nargs="*", type=Path, metavar="PATH",
        help="modules of another project: .spv, .comp, .glsl, or folders of them",
    )  # fmt: skip
    audit.set_defaults(run=_audit)
    for command in (check, audit):
        formats = ("text", "json", "markdown", "github", "sarif")
        command.add_argument("--format", choices=formats, default="text")

    explain = commands.add_parser("explain", parents=[project], help="show one interface")
    explain.add_argument("variant", metavar="VARIANT")
    explain.set_defaults(run=_explain)

    pick = commands.add_parser(
        "pick", parents=[project], help="show the decision for a problem and every rule tried"
    )
    pick.add_argument("op", metavar="OP")
    for option, help_ in (
        ("--set", "fields of the problem: in=1,64,56,56 dtype=half"),
        ("--device", "fields of the device: device_class=mali"),
    ):
        pick.add_argument(
            option, nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=help_
        )
    pick.set_defaults(run=_pick)

    diff = commands.add_parser(
        "diff", parents=[project, output], help="say what changed, and whether it breaks a host"
    )
    for side in ("old", "new"):
        diff.add_argument(
            side, metavar=side.upper(), help="a manifest.json, or a git revision that has one"
        )
    diff.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    diff.set_defaults(run=_diff)

    freeze = commands.add_parser(
        "freeze", parents=[project, compiling], help="bake constants into a module"
    )
    freeze.add_argument("variant", metavar="VARIANT")
    freeze.add_argument(
        "--set", nargs="+", action="extend", required=True, metavar="NAME=VALUE",
        help="constants: has_activation=1 activation_op=relu; local_size_x too",
    )  # fmt: skip
    freeze.add_argument("-o", type=Path, metavar="FILE", help="default: VARIANT.frozen.spv")
    freeze.set_defaults(run=_freeze)

    toolchain = commands.add_parser("toolchain", help="show the compilers and tools found")
    toolchain.set_defaults(run=_toolchain)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of 1 or more")
    return int(text)


def _cache(options: argparse.Namespace) -> Cache:
    return Cache(None if options.no_cache else options.cache or default_folder())


def _out(options: argparse.Namespace) -> Path:
    chosen: Path | None = options.out
    if chosen is None:
        return Path(options.spec.parent) / "generated"
    if options.spec.resolve().is_relative_to(chosen.resolve()):  # spv/ in it is emptied
        message = f"{chosen} holds the spec; generated files need a folder of their own"
        raise LoomError(Diagnostic(Position("--out"), message))
    return chosen


def _build(options: argparse.Namespace) -> int:
    from shaderloom import freshness
    from shaderloom.toolchain import find_toolchain

    started = time.perf_counter()
    toolchain = find_toolchain()
    key = freshness.build_key(toolchain.identity, options.compiler, options.spec.name)
    out = _out(options)
    if options.only == "*" and freshness.is_fresh(out, options.spec.parent, key):
        if not options.quiet:
            print(f"{out}: up to date")
        return 0

    from shaderloom import pipeline

    chosen = pipeline.Options(
        options.jobs, _cache(options), options.compiler, options.only, options.keep_going
    )
    woven = pipeline.weave(options.spec)
    proven = pipeline.prove(woven, toolchain, chosen)
    if _print_findings(proven):
        return 1
    written = pipeline.emit(woven, proven, toolchain, out, key, options.only)
    for failure in proven.compiled.failures:
        print(failure, file=sys.stderr)
    if options.verbose:
        for path in written.changed:
            print(f"wrote {out / path}")
        for path in written.removed:
            print(f"removed {out / path}")
    if not options.quiet:
        _print_build(proven, written, out, time.perf_counter() - started)
    return 1 if proven.compiled.failures else 0


def _check(options: argparse.Namespace) -> int:
    from shaderloom import outputs, pipeline
    from shaderloom.finding_formats import FORMATS
    from shaderloom.lints import failed, of_differences

    out = _out(options)
    files = pipeline.committed(pipeline.weave(options.spec))
    findings = of_differences(outputs.compare(out, files), out)
    if options.format != "text":
        print(FORMATS[options.format](findings), end="")
    else:
        for finding in findings:
            print(finding, file=sys.stderr)
    if failed(findings):
        print("run 'shaderloom build' and commit what it changes", file=sys.stderr)
        return 1
    if options.format == "text" and not options.quiet:
        print(f"{out}: {len(files)} files are current")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from shaderloom import pipeline
    from shaderloom.finding_formats import FORMATS
    from shaderloom.lints import failed
    from shaderloom.toolchain import find_toolchain

    if options.path:
        return _audit_foreign(options)
    chosen = pipeline.Options(options.jobs, _cache(options), options.compiler)
    woven = pipeline.weave(options.spec)
    proven = pipeline.prove(woven, find_toolchain(), chosen)
    if options.format != "text":
        print(FORMATS[options.format](proven.findings), end="")
        return 1 if failed(proven.findings) else 0
    if _print_findings(proven):
        return 1
    _print_skipped(proven)
    if not options.quiet:
        alone = proven.testimony.unread
        print(
            f"audit: {len(proven.compiled.modules)} modules have the planned interface; "
            f"{len(proven.compiled.modules) - len(alone)} of them by both witnesses"
        )
        for name in sorted(alone) if options.verbose else ():
            print(f"{name}: one witness only: {alone[name]}")
    return 0


def _audit_foreign(options: argparse.Namespace) -> int:
    from shaderloom import foreign_report
    from shaderloom.foreign import find_files
    from shaderloom.foreign_audit import audit_foreign
    from shaderloom.foreign_compile import read_files
    from shaderloom.lints import failed

    modules = read_files(find_files(options.path), options.jobs)
    findings = audit_foreign(modules)
    if options.format != "text" or not options.quiet:
        print(foreign_report.FORMATS[options.format](modules, findings), end="")
    return 1 if failed(findings) else 0


def _explain(options: argparse.Namespace) -> int:
    from shaderloom.plan import plan
    from shaderloom.report import explain
    from shaderloom.spec import read_spec

    planned = plan(read_spec(options.spec, str(options.spec)))
    print(explain(planned, _variant(planned, options)), end="")
    return 0


def _variant(planned: Plan, options: argparse.Namespace) -> VariantPlan:
    from shaderloom.errors import SpecError, nearest

    variants = {variant.name: variant for variant in planned.variants}
    if options.variant not in variants:
        hint = nearest(options.variant, sorted(variants))
        message = f"no variant is called '{options.variant}'{hint}"
        raise SpecError(Diagnostic(Position(str(options.spec)), message))
    return variants[options.variant]


def _pick(options: argparse.Namespace) -> int:
    from shaderloom.pick import pick
    from shaderloom.plan import plan
    from shaderloom.plan_dispatch import plan_dispatch
    from shaderloom.spec import read_spec

    spec = read_spec(options.spec, str(options.spec))
    planned = plan(spec)
    decisions = plan_dispatch(spec, planned)
    report, dispatched = pick(planned, decisions, options.op, options.set, options.device)
    print(report, end="")
    return 0 if dispatched else 1


def _diff(options: argparse.Namespace) -> int:
    from shaderloom import diff, diff_report
    from shaderloom.diff_manifest import load_manifest

    path = _out(options) / "manifest.json"
    old, new = (
        load_manifest(reference, options.spec.parent, path)
        for reference in (options.old, options.new)
    )
    changes = diff.diff(old, new)
    if options.format != "text" or not options.quiet:
        print(diff_report.FORMATS[options.format](old, new, changes), end="")
    return diff.exit_code(changes)


def _freeze(options: argparse.Namespace) -> int:
    from shaderloom import pipeline
    from shaderloom.freeze import freeze
    from shaderloom.settings import parse_settings
    from shaderloom.toolchain import find_toolchain

    woven, toolchain = pipeline.weave(options.spec), find_toolchain()
    variant = _variant(woven.plan, options)
    settings = parse_settings(variant, woven.plan.enums, options.set)
    chosen = pipeline.Options(options.jobs, _cache(options), options.compiler, variant.name)
    proven = pipeline.prove(woven, toolchain, chosen)
    _print_skipped(proven)
    if _print_findings(proven) or variant.name not in proven.compiled.modules:
        return 1
    module = proven.compiled.modules[variant.name]
    frozen = freeze(module.debug, variant, (*variant.frozen, *settings), toolchain)
    target = options.o or Path(f"{variant.name}.frozen.spv")
    target.write_bytes(frozen)
    if not options.quiet:
        shown = ", ".join(f"{setting.name}={setting.shown}" for setting in settings)
        sizes = f"{len(frozen):,} bytes instead of {len(module.shipped):,}"
        print(f"{target}: {variant.name} with {shown}: {sizes}")
    return 0


def _toolchain(options: argparse.Namespace) -> int:
    from shaderloom.dtypes import EXTENSIONS
    from shaderloom.toolchain import COMPILERS, PROGRAMS, find_toolchain, unsupported

    toolchain = find_toolchain()
    for name, help_ in PROGRAMS.items():
        tool = toolchain.get(name)
        print(f"{name:12} {f'{tool.version}  ({tool.path})' if tool else f'not found: {help_}'}")
    cache = Cache(default_folder())
    compilers = {name: tool for name in COMPILERS.values() if (tool := toolchain.get(name))}
    refused = {
        name: unsupported(tool, EXTENSIONS, cache, os.cpu_count() or 1)
        for name, tool in compilers.items()
    }
    print("\nextensions")
    for extension in sorted(EXTENSIONS):
        able = [name for name in compilers if extension not in refused[name]]
        print(f"  {extension:48} {', '.join(able) or 'no compiler'}")
    return 0 if compilers else 2


def _print_build(proven: Proven, written: Written, out: Path, seconds: float) -> None:
    modules = proven.compiled.modules.values()
    _print_skipped(proven)
    print(
        f"{out}: {len(modules)} modules, {sum(len(m.shipped) for m in modules):,} bytes, audited; "
        f"{len(written.changed)} files written, {len(written.removed)} removed, {seconds:.1f} s"
    )


def _print_findings(proven: Proven) -> bool:
    """Print every finding; return whether one is an error."""
    from shaderloom.lints import failed

    for finding in proven.findings:
        print(finding, file=sys.stderr)
    return failed(proven.findings)


def _annotate(error: LoomError, options: argparse.Namespace) -> None:
    """Print mistakes in the formats that a program reads and shows beside the source."""
    from shaderloom.finding_formats import ANNOTATIONS, FORMATS
    from shaderloom.lints import from_diagnostics

    chosen = getattr(options, "format", "text")
    if chosen in ANNOTATIONS:
        print(FORMATS[chosen](from_diagnostics(error.diagnostics)), end="")


def _print_skipped(proven: Proven) -> None:
    for name, reason in sorted(proven.compiled.skipped.items()):
        print(f"{name}: skipped: {reason}", file=sys.stderr)
    for module in proven.compiled.modules.values():
        if module.unoptimized:
            print(f"{module.name}: not optimised: {module.unoptimized}", file=sys.stderr)
