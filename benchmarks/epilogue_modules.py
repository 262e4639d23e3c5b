"""The modules that ``epilogue_cost.py`` compares: made where the compilers are."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from shaderloom import pipeline
from shaderloom.cache import Cache, default_folder
from shaderloom.compile import Job, compile_all, raise_failures
from shaderloom.freeze import freeze
from shaderloom.interface import VariantPlan
from shaderloom.render import Renderer
from shaderloom.settings import parse_settings
from shaderloom.toolchain import find_toolchain

REPOSITORY = Path(__file__).resolve().parent.parent
EMPTY = """{# No epilogue in the source. #}
vec4 apply_epilogue(vec4 y, ivec3 pos, ivec3 extent, int n4, int n4s) {
  return y;
}
"""


class _WithoutHeaders(Renderer):
    """Renders the project's own templates, with ``EMPTY`` in place of some of them."""

    def __init__(self, folder: Path, emptied: Collection[str]) -> None:
        super().__init__(folder, folder.name)
        self.emptied = emptied

    def _load(self, name: str) -> tuple[str, str, None] | None:
        return (EMPTY, name, None) if name in self.emptied else super()._load(name)


def prepare(folder: Path, families: Collection[str], block: str) -> None:
    """Build the library below ``folder``, and the other two modules of each variant.

    ``generated/`` is what a runtime loads; ``modules/NAME.none.spv`` has no code of ``block`` in
    its source, ``modules/NAME.frozen.spv`` has the block's constants baked in, all of them 0.
    """
    toolchain = find_toolchain()
    options = pipeline.Options(os.cpu_count() or 1, Cache(default_folder()))
    woven = pipeline.weave(REPOSITORY / "variants.yaml")
    proven = pipeline.prove(woven, toolchain, options)
    pipeline.emit(woven, proven, toolchain, folder / "generated", "", "*")

    variants = [
        v
        for v in woven.plan.variants
        if v.family in families and not v.frozen and _constants(v, block)
    ]
    headers = {header for variant in variants for header in variant.headers}
    renderer = _WithoutHeaders(REPOSITORY / "templates", headers)
    work = [Job(variant, renderer.render(woven.plan, variant)) for variant in variants]
    without = compile_all(work, toolchain, "auto", options.cache, options.jobs)
    raise_failures(without)
    modules = folder / "modules"
    modules.mkdir(parents=True, exist_ok=True)
    for variant in variants:
        (modules / f"{variant.name}.none.spv").write_bytes(without.modules[variant.name].shipped)
        zeros = [f"{name}=0" for name in _constants(variant, block)]
        settings = parse_settings(variant, woven.plan.enums, zeros)
        debug = proven.compiled.modules[variant.name].debug
        frozen = freeze(debug, variant, settings, toolchain)
        (modules / f"{variant.name}.frozen.spv").write_bytes(frozen)
    print(f"{folder}: {len(variants)} variants, each without an epilogue and frozen")


def _constants(variant: VariantPlan, block: str) -> list[str]:
    return [constant.name for constant in variant.constants if constant.owner == block]
