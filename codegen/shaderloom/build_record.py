"""``spv/build.json``: what the compilers decided, beside the plan facts of the manifest."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from shaderloom.audit import Facts
from shaderloom.compile import Compiled
from shaderloom.interface import Plan
from shaderloom.manifest import layout_hash
from shaderloom.render import GENERATED
from shaderloom.toolchain import Toolchain
from shaderloom.witness import Testimony

BUILD_VERSION = 1


def build_record(
    plan: Plan, compiled: Compiled, testimony: Testimony, toolchain: Toolchain
) -> dict[str, Any]:
    """Return the record of a build; it holds no path and no time, so equal builds are equal."""
    same: dict[bytes, list[str]] = defaultdict(list)
    for name, module in sorted(compiled.modules.items()):
        same[module.shipped].append(name)
    return {
        "_generated": GENERATED.format(source=plan.spec_name),
        "schema": BUILD_VERSION,
        "layout_hash": layout_hash(plan),
        "tools": {
            tool.name: {"version": tool.version, "identity": tool.identity}
            for tool in toolchain.tools
        },
        "identical": sorted(names for names in same.values() if len(names) > 1),
        "shaders": {
            variant.name: _shader(variant.name, compiled, testimony) for variant in plan.variants
        },
    }


def _shader(name: str, compiled: Compiled, testimony: Testimony) -> dict[str, Any]:
    module = compiled.modules.get(name)
    if module is None:
        reason = compiled.skipped.get(name) or compiled.failed[name]
        return {"size": 0, "missing": reason}
    return {
        "size": len(module.shipped),
        "sha256": hashlib.sha256(module.shipped).hexdigest(),
        "compiler": module.compiler.name,
        "optimized": not module.unoptimized,
        "unoptimized_because": module.unoptimized,
        "second_witness": testimony.unread.get(name, "agrees"),
        "used": _used(testimony.facts[name]),
    }


def _used(facts: Facts) -> dict[str, Any]:
    used = facts.used
    return {
        "bindings": sorted(used.bindings),
        "constants": sorted(used.constants),
        "uniform_offsets": [list(pair) for pair in sorted(used.uniform_offsets)],
        "push_constant_offsets": sorted(used.push_offsets),
    }
