"""Read every compiled module: both witnesses on the unoptimised one, ``used`` on the shipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from shaderloom.audit import Facts
from shaderloom.cache import Cache, digest
from shaderloom.compile import Module
from shaderloom.errors import SpirvError
from shaderloom.needs import needs
from shaderloom.process import run_all
from shaderloom.reflect import reflect, uses
from shaderloom.spirv import read_module
from shaderloom.spirv_cross import disagreements, parse_spirv_cross
from shaderloom.toolchain import Tool

_FAILED = b"failed:"


@dataclass(frozen=True)
class Testimony:
    """The facts by variant, and why spirv-cross could not read a variant, for those it could not.

    The second witness reads JSON that spirv-cross prints; some modules it does not
    read at all (cooperative matrices in old versions), and then the first stands alone.
    """

    facts: dict[str, Facts]
    unread: dict[str, str]


def testify(
    modules: Iterable[Module], spirv_cross: Tool | None, cache: Cache, jobs: int
) -> Testimony:
    """Reflect all modules; raises SpirvError when our own reader cannot read one."""
    ordered = sorted(modules, key=lambda module: module.name)
    told = _ask(ordered, spirv_cross, cache, jobs) if spirv_cross else {}
    facts, unread = {}, {}
    for module in ordered:
        declared = reflect(module.debug, module.name)
        differences: tuple[str, ...] = ()
        answer = told.get(module.name, _FAILED + b"spirv-cross is not installed")
        if answer.startswith(_FAILED):
            unread[module.name] = answer[len(_FAILED) :].decode(errors="replace")
        else:
            try:
                second = parse_spirv_cross(answer.decode(), module.name)
                differences = disagreements(declared, second)
            except SpirvError as error:
                unread[module.name] = error.diagnostics[0].message
        shipped = read_module(module.shipped, module.name)
        facts[module.name] = Facts(declared, uses(shipped), needs(shipped), differences)
    return Testimony(facts, unread)


def _ask(modules: list[Module], tool: Tool, cache: Cache, jobs: int) -> dict[str, bytes]:
    """Return spirv-cross's JSON, or ``failed:`` and its reason, by module."""
    keys = {m.name: digest("spirv-cross", tool.identity, m.debug) for m in modules}
    told = {name: value for name, key in keys.items() if (value := cache.get(key)) is not None}
    asked = [module for module in modules if module.name not in told]
    with tempfile.TemporaryDirectory(prefix="shaderloom-") as temporary:
        folder = Path(temporary)
        for module in asked:
            (folder / f"{module.name}.spv").write_bytes(module.debug)
        commands = [tool.command(f"{m.name}.spv", "--reflect", cwd=folder) for m in asked]
        for module, ran in zip(asked, run_all(commands, jobs), strict=True):
            answer = ran.stdout.encode()
            if ran.status == 0:
                cache.put(keys[module.name], answer)
            else:
                said = ran.stderr.strip().splitlines() or [f"exit status {ran.status}"]
                answer = _FAILED + said[-1].encode()
            told[module.name] = answer
    return told
