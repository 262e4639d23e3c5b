"""GLSL to SPIR-V: in batches, through the cache, every module validated.

Each shader is compiled once, unoptimised: that module declares the whole interface
with its names and is what the audit reads. ``spirv-opt`` turns it into the module that
ships (the same bytes as ``glslc -O``).
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shaderloom.cache import Cache, digest
from shaderloom.errors import CompileError, Diagnostic, Position, SpirvError, of_variants
from shaderloom.freeze import FOLD, rewrite
from shaderloom.interface import VariantPlan
from shaderloom.process import Command, Completed, run_all
from shaderloom.render import GlslSource, essence
from shaderloom.spirv import read_module
from shaderloom.toolchain import Tool, Toolchain, compile_arguments, unsupported

OPTIMIZE = ("--strip-debug", "-O")
_FORMAT = "1"  # of a cache entry; changes when what is stored or how it is made changes
_BATCH = 128  # shaders a compiler process, so that a command line stays short

# "name.comp:12: error: text" (glslc; a linker's has no line), "ERROR: name.comp:12: text" (glslang)
_MESSAGE = re.compile(
    r"(?:(?P<a>[^\s:]+)\.comp:(?:(?P<al>[0-9]+):)? error: (?P<at>.*)"
    r"|ERROR: (?P<b>[^\s:]+)\.comp:(?P<bl>[0-9]+): (?P<bt>.*))"
)
# "ERROR: Linking compute stage: text" (glslang, of its only file); its last line counts errors.
_UNPLACED = re.compile(r"ERROR: (?![0-9]+ compilation errors)(?P<text>.*)")


@dataclass(frozen=True)
class Job:
    """A shader to compile: its plan and its GLSL."""

    plan: VariantPlan
    source: GlslSource


@dataclass(frozen=True)
class Module:
    """A compiled shader: ``debug`` is unoptimised and named, ``shipped`` is what a host loads."""

    name: str
    compiler: Tool
    debug: bytes
    shipped: bytes
    unoptimized: str = ""  # why the shipped module is not optimised, "" when it is


@dataclass(frozen=True)
class Compiled:
    """Modules by variant, the variants no compiler supports (why), and what failed."""

    modules: dict[str, Module]
    skipped: dict[str, str]
    failures: tuple[Diagnostic, ...]
    failed: dict[str, str]  # variant -> first message


def compile_all(
    work: Sequence[Job], toolchain: Toolchain, wanted: str, cache: Cache, jobs: int
) -> Compiled:
    """Compile every job; raises ToolchainError when a program is missing."""
    optimizer, validator = toolchain.need("spirv-opt"), toolchain.need("spirv-val")
    chosen, skipped = _choose(work, toolchain.compilers(wanted), cache, jobs)
    modules: dict[str, Module] = {}
    missing: list[tuple[Job, Tool, str]] = []
    for job, tool in chosen:
        key = digest(
            "module", _FORMAT, tool.identity, optimizer.identity, *OPTIMIZE,
            job.plan.target_env, essence(job.source.text),
            *(FOLD if job.plan.frozen else ()), *(f"{f.id}={f.bits}" for f in job.plan.frozen),
        )  # fmt: skip
        stored = cache.get(key)
        if stored is None:
            missing.append((job, tool, key))
        else:
            modules[job.plan.name] = _unpack(job.plan.name, tool, stored)
    failures = _Failures()
    with tempfile.TemporaryDirectory(prefix="shaderloom-") as folder:
        stages = _Stages(Path(folder), jobs, failures)
        compiled = stages.front_end([(job, tool) for job, tool, _ in missing])
        made = stages.validate(validator, stages.optimize(optimizer, compiled))
    for job, _, key in missing:
        module = made.get(job.plan.name)
        if module:
            modules[module.name] = module
            if not module.unoptimized:  # the next build may have more luck
                cache.put(key, _pack(module))
    return Compiled(modules, skipped, failures.diagnostics(), failures.by_variant())


def _choose(
    work: Sequence[Job], compilers: Sequence[Tool], cache: Cache, jobs: int
) -> tuple[list[tuple[Job, Tool]], dict[str, str]]:
    """Give each job the first compiler that knows all its extensions, or say what is missing."""
    wanted = {extension for job in work for extension in job.plan.requires}
    lacks = {tool.name: unsupported(tool, wanted, cache, jobs) for tool in compilers}
    chosen, skipped = [], {}
    for job in work:
        required = set(job.plan.requires)
        able = next((tool for tool in compilers if not required & lacks[tool.name]), None)
        if able:
            chosen.append((job, able))
        else:
            reasons = [
                f"{tool.name} lacks {', '.join(sorted(required & lacks[tool.name]))}"
                for tool in compilers
            ]
            skipped[job.plan.name] = "; ".join(reasons)
    return chosen, skipped


class _Failures:
    """Collects compiler messages; one message of many variants is one diagnostic."""

    def __init__(self) -> None:
        self._found: dict[tuple[Position, str], list[str]] = defaultdict(list)

    def add(self, job: Job, line: int, message: str) -> None:
        """Note a message about a line of the job's GLSL, or about all of it (line 0)."""
        self._found[job.source.position(line), message.strip()].append(job.plan.name)

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        result = []
        for (position, message), names in sorted(self._found.items()):
            result.append(Diagnostic(position, f"{message} {of_variants(names)}"))
        return tuple(result)

    def by_variant(self) -> dict[str, str]:
        result: dict[str, str] = {}
        for (position, message), names in sorted(self._found.items()):
            for name in names:
                result.setdefault(name, f"{position}: {message}")
        return result


class _Stages:
    """Front end, optimiser and validator over one temporary folder of ``NAME.comp[.spv]``."""

    def __init__(self, folder: Path, jobs: int, failures: _Failures) -> None:
        self.folder = folder
        self.jobs = jobs
        self.failures = failures

    def front_end(self, work: Sequence[tuple[Job, Tool]]) -> list[tuple[Job, Tool, bytes]]:
        by_tool: dict[tuple[str, str], list[tuple[Job, Tool]]] = defaultdict(list)
        for job, tool in work:
            by_tool[tool.name, job.plan.target_env].append((job, tool))
            (self.folder / f"{job.plan.name}.comp").write_text(job.source.text, encoding="utf-8")
        batches: list[list[tuple[Job, Tool]]] = []
        for (name, _), group in sorted(by_tool.items()):
            size = min(_BATCH, -(-len(group) // self.jobs)) if name == "glslc" else 1
            batches += [group[i : i + size] for i in range(0, len(group), size)]
        results = run_all([self._command(batch) for batch in batches], self.jobs)
        made = []
        for batch, ran in zip(batches, results, strict=True):
            failing = self._messages([job for job, _ in batch], ran)
            # Killed, or failed without a word about any shader: what it left is not trusted.
            untold = ran.status < 0 or (ran.status > 0 and not failing)
            for job, tool in batch:
                if job.plan.name in failing:
                    continue
                if untold:
                    self.failures.add(job, 0, f"{tool.name} {_end(ran)}")
                    continue
                data = self._read(job, f"{job.plan.name}.comp.spv", tool, ran)
                if data:
                    made.append((job, tool, data))
        return made

    def _command(self, batch: Sequence[tuple[Job, Tool]]) -> Command:
        job, tool = batch[0]
        names = [f"{job.plan.name}.comp" for job, _ in batch]
        return tool.command(*compile_arguments(tool, job.plan.target_env, names), cwd=self.folder)

    def _messages(self, batch: Iterable[Job], ran: Completed) -> set[str]:
        """Note every error that names a shader of the batch; return the names."""
        by_name = {job.plan.name: job for job in batch}
        failing = set()
        for line in (ran.stdout + "\n" + ran.stderr).splitlines():
            match = _MESSAGE.fullmatch(line)
            unplaced = _UNPLACED.fullmatch(line)
            name = match and (match["a"] or match["b"])
            if match and name in by_name:
                number, text = match["al"] or match["bl"] or 0, match["at"] or match["bt"]
                self.failures.add(by_name[name], int(number), text)
                failing.add(name)
            elif unplaced and len(by_name) == 1:
                [(name, job)] = by_name.items()
                self.failures.add(job, 0, unplaced["text"])
                failing.add(name)
        return failing

    def _read(self, job: Job, file: str, tool: Tool, ran: Completed) -> bytes | None:
        """Read a module that ``tool`` made; a missing or damaged one is a failure."""
        try:
            data = (self.folder / file).read_bytes()
            read_module(data, job.plan.name)
        except FileNotFoundError:
            self.failures.add(job, 0, f"{tool.name} exited {ran.status} and left no module")
        except SpirvError as error:
            reason = error.diagnostics[0].message
            message = f"{tool.name} exited {ran.status} and left a bad module: {reason}"
            self.failures.add(job, 0, message)
        else:
            return data
        return None

    def optimize(
        self, tool: Tool, compiled: Sequence[tuple[Job, Tool, bytes]]
    ) -> list[tuple[Job, Module]]:
        commands, inputs = [], []
        for job, _, debug in compiled:
            name, frozen = job.plan.name, job.plan.frozen
            inputs.append(rewrite(debug, name, frozen) if frozen else debug)
            if frozen:
                (self.folder / f"{name}.comp.spv").write_bytes(inputs[-1])
            passes = (*(FOLD if frozen else OPTIMIZE), f"--target-env={job.plan.target_env}")
            files = (f"{name}.comp.spv", "-o", f"{name}.opt.spv")
            commands.append(tool.command(*passes, *files, cwd=self.folder))
        result = []
        ran_all = run_all(commands, self.jobs)
        for (job, compiler, debug), given, ran in zip(compiled, inputs, ran_all, strict=True):
            name, shipped, why = job.plan.name, given, ""
            try:
                optimized = (self.folder / f"{name}.opt.spv").read_bytes()
                read_module(optimized, name)
            except (OSError, SpirvError):
                why = "spirv-opt exited 0 and left no valid module"
            else:
                shipped = optimized
            if ran.status != 0:
                shipped, why = given, f"spirv-opt {_end(ran)}"
            result.append((job, Module(name, compiler, debug, shipped, why)))
        return result

    def validate(self, tool: Tool, made: Sequence[tuple[Job, Module]]) -> dict[str, Module]:
        commands = []
        for job, module in made:
            file = f"{module.name}.ship.spv"
            (self.folder / file).write_bytes(module.shipped)
            arguments = ("--target-env", job.plan.target_env, file)
            commands.append(tool.command(*arguments, cwd=self.folder))
        valid = {}
        for (job, module), ran in zip(made, run_all(commands, self.jobs), strict=True):
            if ran.status == 0:
                valid[module.name] = module
                continue
            self.failures.add(job, 0, f"spirv-val {_end(ran)}")
        return valid


def _end(ran: Completed) -> str:
    """Say how a program ended, with the first line it printed: ``exited 1: out of memory``."""
    how = f"exited {ran.status}" if ran.status >= 0 else f"was killed by signal {-ran.status}"
    said = (ran.stderr + "\n" + ran.stdout).strip().splitlines()
    return f"{how}: {said[0]}" if said else how


def _pack(module: Module) -> bytes:
    why = module.unoptimized.encode()
    head = struct.pack("<III", len(why), len(module.debug), len(module.shipped))
    return head + why + module.debug + module.shipped


def _unpack(name: str, tool: Tool, data: bytes) -> Module:
    why, debug, _ = struct.unpack_from("<III", data)
    body = data[12:]
    return Module(name, tool, body[why : why + debug], body[why + debug :], body[:why].decode())


def raise_failures(compiled: Compiled) -> None:
    """Raise CompileError with every failing variant, and those skipped, if any failed."""
    skipped = (
        Diagnostic(Position(name), f"skipped: {reason}")
        for name, reason in compiled.skipped.items()
    )
    if compiled.failures:
        raise CompileError((*compiled.failures, *skipped))
