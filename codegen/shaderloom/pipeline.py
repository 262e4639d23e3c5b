"""The order of the stages, and nothing else: spec, plan, render, compile, reflect, audit, emit."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path

from shaderloom import freshness, outputs
from shaderloom.audit import audit
from shaderloom.audit_library import audit_library
from shaderloom.build_record import build_record
from shaderloom.cache import Cache
from shaderloom.compile import Compiled, Job, compile_all, raise_failures
from shaderloom.decisions import Decisions
from shaderloom.emit_c import registry, spirv
from shaderloom.emit_dispatch_c import dispatch_c
from shaderloom.emit_dispatch_py import dispatch_py
from shaderloom.errors import Diagnostic, Position, SpecError
from shaderloom.interface import Plan, VariantPlan
from shaderloom.lints import Finding, Levels, judge
from shaderloom.manifest import manifest, to_json
from shaderloom.plan import plan
from shaderloom.plan_dispatch import plan_dispatch
from shaderloom.plan_lints import plan_lints
from shaderloom.render import GlslSource, Renderer
from shaderloom.report import layouts
from shaderloom.source import Source
from shaderloom.spec import read_spec
from shaderloom.toolchain import Toolchain
from shaderloom.witness import Testimony, testify

TEMPLATES = "templates"  # the folder beside the spec


@dataclass(frozen=True)
class Options:
    """What a user chose for a build."""

    jobs: int
    cache: Cache
    compiler: str = "auto"
    only: str = "*"
    keep_going: bool = False


@dataclass(frozen=True)
class Woven:
    """A planned and rendered project; ``inputs`` is every file that was read, with its bytes."""

    plan: Plan
    decisions: Decisions | None
    sources: dict[str, GlslSource]
    inputs: dict[str, bytes]
    levels: Levels
    spec: Source


@dataclass(frozen=True)
class Proven:
    """A compiled project and what the audit says of it."""

    compiled: Compiled
    testimony: Testimony
    findings: tuple[Finding, ...]


def weave(spec: Path, poison: bool = False) -> Woven:
    """Plan and render the project of ``spec``; raises SpecError or TemplateError.

    With ``poison`` it is a test build: loads outside logical sizes give NaN.
    """
    read = read_spec(spec, str(spec))
    planned = plan(read)
    decisions = plan_dispatch(read, planned)
    levels = plan_lints(read)
    folder = spec.parent / TEMPLATES
    renderer = Renderer(folder, str(folder), poison)
    sources = renderer.render_all(planned)
    inputs = {spec.name: spec.read_bytes()}
    inputs |= {f"{TEMPLATES}/{name}": (folder / name).read_bytes() for name in renderer.read}
    return Woven(planned, decisions, sources, inputs, levels, read.source)


def committed(woven: Woven) -> dict[str, bytes]:
    """Return the files that are committed: plan facts, whatever compiler there is."""
    files = {
        f"glsl/{variant.name}.comp": woven.sources[variant.name].text.encode()
        for variant in woven.plan.variants
        if not variant.frozen_from  # its source is there under that name
    }
    files |= registry(woven.plan)
    if woven.decisions:
        files["dispatch.py"] = dispatch_py(woven.plan, woven.decisions)
        files |= dispatch_c(woven.plan, woven.decisions)
    files["manifest.json"] = to_json(manifest(woven.plan, woven.sources))
    files["LAYOUTS.md"] = layouts(woven.plan)
    return files


def prove(woven: Woven, toolchain: Toolchain, options: Options) -> Proven:
    """Compile and audit; raises ToolchainError, or CompileError unless ``keep_going``."""
    work = [Job(variant, woven.sources[variant.name]) for variant in _chosen(woven.plan, options)]
    compiled = compile_all(work, toolchain, options.compiler, options.cache, options.jobs)
    if not options.keep_going:
        raise_failures(compiled)
    testimony = testify(
        compiled.modules.values(), toolchain.get("spirv-cross"), options.cache, options.jobs
    )
    shipped = {name: module.shipped for name, module in compiled.modules.items()}
    found = (
        *audit(woven.plan, testimony.facts),
        *audit_library(woven.plan, woven.decisions, shipped),
    )
    return Proven(compiled, testimony, judge(found, woven.levels, woven.spec))


def emit(
    woven: Woven, proven: Proven, toolchain: Toolchain, out: Path, key: str, only: str
) -> outputs.Written:
    """Write everything, stamp last; with ``only``, the committed files and the chosen modules."""
    files = committed(woven)
    compiled = proven.compiled
    for name, module in compiled.modules.items():
        files[f"spv/{name}.spv"] = module.shipped
    if only != "*":
        return outputs.write(out, str(out), files, remove_stale=False)
    shipped = {name: module.shipped for name, module in compiled.modules.items()}
    missing = {**compiled.skipped, **compiled.failed}
    files["spv/spirv.c"] = spirv(woven.plan, shipped, missing)
    files["spv/build.json"] = to_json(
        build_record(woven.plan, compiled, proven.testimony, toolchain)
    )
    if not compiled.failures:
        files[freshness.STAMP] = freshness.stamp(key, woven.inputs, files)
    return outputs.write(out, str(out), files)


def _chosen(planned: Plan, options: Options) -> list[VariantPlan]:
    chosen = [v for v in planned.variants if fnmatch.fnmatchcase(v.name, options.only)]
    if not chosen:
        raise SpecError(Diagnostic(Position("--only"), f"no variant matches '{options.only}'"))
    return chosen
