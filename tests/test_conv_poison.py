"""A test build whose loads give NaN outside logical sizes: no NaN may reach an output.

``weave(spec, poison=True)`` renders it. A guard that is taken away must show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from conv_support import EPILOGUES, assert_right
from loom_support import Project, whole_project
from runtime_support import validated_device
from shaderloom import pipeline
from shaderloom.cache import Cache, default_folder
from shaderloom.toolchain import find_toolchain
from shaderloom_runtime.device import Device
from shaderloom_runtime.registry import load_registry
from shaderloom_runtime.runner import missing, pick_within
from shaderloom_runtime.verify import QUICK_CASES, run_case, verify
from shaderloom_runtime.verify_cases import Case
from test_conv_matrix import SHAPES

NAN = "uintBitsToFloat(0x7fc00000u)"


def options(only: str = "*") -> pipeline.Options:
    return pipeline.Options(os.cpu_count() or 1, Cache(default_folder()), only=only)


@pytest.fixture(scope="module")
def poisoned(built: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generated data of the test build, which the runtime then takes."""
    out = tmp_path_factory.mktemp("poisoned") / "generated"
    woven, tools = pipeline.weave(built.folder / "variants.yaml", poison=True), find_toolchain()
    proven = pipeline.prove(woven, tools, options())
    assert proven.findings == ()  # its interfaces are those of the build that ships
    pipeline.emit(woven, proven, tools, out, "poison", "*")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHADERLOOM_GENERATED", str(out))
        yield out


@pytest.fixture(scope="module")
def device(poisoned: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def test_only_the_test_build_has_the_poison(built: Project, poisoned: Path) -> None:
    ships = {path.stem for path in built.out.glob("glsl/*") if NAN in path.read_text()}
    tests = {path.stem for path in poisoned.glob("glsl/*") if NAN in path.read_text()}
    assert ships == set()
    shaders = load_registry(poisoned).shaders
    assert {name for name, shader in shaders.items() if shader.op == "conv2d"} <= tests
    assert load_registry(poisoned).layout_hash == load_registry(built.out).layout_hash


def test_no_nan_reaches_an_output_of_any_variant(device: Device) -> None:
    """One case each: pipelines of poisoned shaders take a second to make."""
    unable = missing(load_registry(), device.info, device.enabled)
    seen: set[str] = set()

    def first_of_each(op: str, dtype: str, random: np.random.Generator) -> Iterator[Case]:
        for case in QUICK_CASES[op](dtype, random):
            if case.needs in unable:
                continue
            records = pick_within(device, case.limits, case.op, **case.problem)
            if not seen.issuperset(names := {record.shader for record in records}):
                seen.update(names)
                yield case

    report = verify(device, cases={op: partial(first_of_each, op) for op in QUICK_CASES})
    assert report.ok, "\n".join(report.lines())
    able = [name for name in load_registry().shaders if name not in unable]
    assert [row.variant for row in report.rows] == able


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_nan_reaches_an_output_of_the_matrix(device: Device, shape: str, dtype: str) -> None:
    chosen = SHAPES[shape]
    for epilogue in EPILOGUES.values():
        assert_right(device, chosen.conv, epilogue, dtype, chosen.dispatched())


# What a guard is for: variant, template below ops/, the guard, and the same without it.
PADDED, UNGUARDED = "load_padded(", "load_texel("
MUTATIONS = {
    "depthwise": ("conv2d_dw_float", "conv2d_dw", PADDED, UNGUARDED),
    "depthwise_tile": (
        "conv2d_dw_output_tile_3x3_b4x2_float", "conv2d_dw_output_tile", PADDED, UNGUARDED,
    ),
    "direct": (
        "conv2d_tiled_1x1_border_float", "conv2d_tiled",
        '"load_padded" if edge == "border" else "load_texel"', '"load_texel"',
    ),
    "pointwise": ("conv2d_pw_tiled_float", "conv2d_pw_tiled", PADDED, UNGUARDED),
    "im2col": ("conv2d_im2col_buffer_float", "conv2d_im2col", PADDED, UNGUARDED),
    "transposed": (
        "conv_transpose2d_float", "conv_transpose2d",
        "if (!inside(ivec3(at, 0), in_extent)) {", "if (at.x == -99) {",
    ),
    # Past an end: the weight's rows, the scratch's, a channel vector.
    "weight": ("conv2d_dw_float", "conv2d_dw", "load_weight(ivec2(h", "load_weight(ivec2(1 + h"),
    "scratch": (
        "conv2d_gemm_buffer_float", "conv2d_gemm",
        "load_scratch(k4, min(first + i, rows - 1), k4s)", "load_scratch(k4 + 1, first + i, k4s)",
    ),
    "bias": (
        "conv2d_dw_float", "conv2d_dw",
        "load_vector(t_bias, pos.z, out_extent.z)", "load_vector(t_bias, pos.z + 1, out_extent.z)",
    ),
}  # fmt: skip


def failures(device: Device, variant: str) -> list[str]:
    """Return what is wrong with the quick cases that dispatch a variant."""
    found, ran = [], 0
    for case in QUICK_CASES["conv2d"]("float", np.random.default_rng(0)):
        records = pick_within(device, case.limits, case.op, **case.problem)
        if variant in (record.shader for record in records):
            worst, where = run_case(device, case)
            found += [where] if worst > 1 else []
            ran += 1
    assert ran
    return found


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_missing_guard_lets_nan_through(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutation: str
) -> None:
    variant, template, guard, without = MUTATIONS[mutation]
    project = whole_project(tmp_path / "mutant")
    project.replace(f"templates/ops/{template}.comp.j2", guard, without)
    woven = pipeline.weave(project.folder / "variants.yaml", poison=True)
    proven = pipeline.prove(woven, find_toolchain(), options(variant))
    mutant = proven.compiled.modules[variant].shipped
    registry = load_registry()
    assert mutant != registry.code(variant)
    assert failures(device, variant) == []
    monkeypatch.setitem(registry._modules, variant, mutant)
    # Where there is an activation, max(NaN, 0) may be 0: then it is the value that is wrong.
    assert any(where.startswith("nan at ") for where in failures(device, variant))
