"""``verify``: it passes here, and each kind of fault makes it fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime_support import validated_device
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.errors import InvalidArgument
from shaderloom_runtime.memory import DTYPES
from shaderloom_runtime.registry import Registry, Shader, load_registry
from shaderloom_runtime.runner import pick_within
from shaderloom_runtime.verify import CASES, QUICK_CASES, compare, run_case, verify
from shaderloom_runtime.verify_cases import Case, Cases
from shaderloom_runtime.verify_conv import CONVOLUTIONS, epilogues


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def case_of(op: str, dtype: str = "float", number: int = 3) -> Case:
    cases = list(CASES[op](dtype, np.random.default_rng(0)))
    return cases[number]


def with_code(registry: Registry, monkeypatch: pytest.MonkeyPatch, name: str, of: str) -> None:
    """Let ``name`` run the module of another shader of the same interface."""
    monkeypatch.setitem(registry._modules, name, registry.code(of))


def names(shaders: Iterable[Shader], part: str = "") -> set[str]:
    return {shader.name for shader in shaders if part in shader.name}


def has_matrices(device: Device) -> bool:
    return "cooperativeMatrix" in device.enabled


# What lets the dispatcher pick every variant, whatever the device at hand can do.
ABLE = {
    **{"min_subgroup": 8, "max_subgroup": 64, "max_shared_memory": 49152, "max_local_x": 1024},
    **{"max_invocations": 1024, "subgroup_arithmetic": True},
    **{"coopmat_16x16x16": True, "coopmat_16x8x16": True},
}


def test_every_variant_is_within_its_bound(device: Device) -> None:
    report = verify(device, cases=QUICK_CASES)
    assert report.ok, "\n".join(report.lines())
    shaders = load_registry().shaders.values()
    assert set(report.skipped) == (set() if has_matrices(device) else names(shaders, "coopmat"))
    assert {row.variant for row in report.rows} == names(shaders) - report.skipped.keys()
    conv = next(row for row in report.rows if row.variant == "conv2d_pw_tiled_half")
    assert conv.cases == 5 * 2  # convolutions by epilogue combinations
    assert 0 < conv.worst <= 1
    *_, last = report.lines()
    cases = sum(row.cases for row in report.rows)
    assert last.startswith(
        f"{len(report.rows)} variants, {cases} cases, 0 past the bound, worst 0."
    )


def test_epilogues_are_every_combination() -> None:
    seen = {
        (
            e.residual is not None and (e.residual_op, e.scale is not None, e.alpha == 1),
            e.activation,
        )
        for e in epilogues()
    }
    assert len(seen) == len(list(epilogues())) == (1 + 3 * 2 * 2) * 4


def test_quick_runs_each_epilogue_once_and_every_convolution() -> None:
    def labels(cases: Cases) -> list[tuple[str, str]]:
        drawn = cases["conv2d"]("half", np.random.default_rng(0))
        return [parted(case.label) for case in drawn]

    def parted(label: str) -> tuple[str, str]:
        """Part a label into those of its convolution and of its epilogue."""
        shape = max((c.label for c in CONVOLUTIONS if label.startswith(f"{c.label}, ")), key=len)
        return shape, label[len(shape) + 2 :]

    full, quick = labels(CASES), labels(QUICK_CASES)
    assert len(full) == 26 * len(quick) == 52 * len(CONVOLUTIONS)
    assert {shape for shape, _ in quick} == {c.label for c in CONVOLUTIONS}
    assert {rest for _, rest in quick} == {rest for _, rest in full}
    assert len({rest for _, rest in full}) == 52


def test_a_wrong_shader_is_found(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with_code(load_registry(), monkeypatch, "mul_float", of="add_float")
    report = verify(device, "mul_float")
    assert not report.ok
    assert report.excess[0].startswith("mul_float: 1x1x1x1 mul 1x1x1x1: ")
    assert report.rows[0].worst > 1
    assert any(line.startswith("error: mul_float: ") for line in report.lines())


def test_a_result_just_past_its_bound_is_found(device: Device) -> None:
    case = case_of("binary")
    assert run_case(device, case)[0] <= 1
    moved = case.expected.copy()
    moved[0, 0, 0, 0] += 2.5 * case.bound[0, 0, 0, 0]
    worst, where = run_case(device, replace(case, expected=moved))
    assert worst > 1
    assert "at [0, 0, 0, 0]" in where


def poisoned(case: Case) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """What a faultless shader leaves in the larger output of ``case``."""
    contents = np.full((*(n + 1 for n in case.expected.shape[:-1]), 4), np.nan)
    contents[tuple(slice(0, n) for n in case.expected.shape)] = case.expected
    return contents


def test_comparison_finds_each_kind_of_fault() -> None:
    case = case_of("clamp", number=4)  # 3 channels: the last lane is padding
    assert compare(poisoned(case), case)[0] == 0
    faults = {
        "left out": ((0, 1, 2, 1), np.nan, "nan at [0, 1, 2, 1]"),
        "padding": ((0, 1, 2, 3), 0.25, "0.25 at [0, 1, 2, 3], expected 0.0 within 0"),
        "outside": ((0, 5, 0, 0), 1.0, "wrote 1.0 past its sizes at [0 5 0 0]"),
    }
    for place, value, message in faults.values():
        contents = poisoned(case)
        contents[place] = value
        worst, where = compare(contents, case)
        assert worst == np.inf
        assert where.startswith(message)


def test_a_read_past_the_sizes_shows(device: Device) -> None:
    # Four channels more than there are: the shader then reads what is poisoned.
    case = case_of("conv2d")
    grown = replace(case, problem={**case.problem, "in_c": case.problem["in_c"] + 4})
    assert run_case(device, case)[0] <= 1
    worst, where = run_case(device, grown)
    assert worst == np.inf
    assert where.startswith("nan at [")


def test_a_variant_without_a_case_fails(device: Device) -> None:
    report = verify(device, "add_*", cases={})
    assert not report.ok
    assert report.not_run == ("add_float", "add_half")
    assert "error: add_half did not run: no case reaches it" in report.lines()


def test_quick_cases_reach_every_variant(device: Device) -> None:
    """The manifest's variants are those that some quick case dispatches: none is untested."""
    reached = {
        record.shader
        for op, draw in QUICK_CASES.items()
        for dtype in DTYPES
        for case in draw(dtype, np.random.default_rng(0))
        for record in pick_within(device, {**ABLE, **case.limits}, case.op, **case.problem)
    }
    assert reached == set(load_registry().shaders)


def test_a_variant_that_no_case_reaches_fails(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    shaders = load_registry().shaders
    assert isinstance(shaders, dict)
    added = replace(shaders["clamp_float"], name="clamp_new_float")
    monkeypatch.setitem(shaders, added.name, added)
    report = verify(device, "clamp_*", cases=QUICK_CASES)
    assert not report.ok
    assert report.not_run == ("clamp_new_float",)


def test_what_the_device_lacks_is_skipped_by_name(generated: Path) -> None:
    with open_device(features=()) as bare:
        report = verify(bare, "nchw*")
    assert report.ok
    assert [row.variant for row in report.rows] == ["nchw_to_texture3d_float"]
    assert report.skipped == {"nchw_to_texture3d_half": "the device lacks storageBuffer16BitAccess"}
    assert "skipped: nchw_to_texture3d_half: the device lacks storageBuffer16BitAccess" in (
        report.lines()
    )


def test_a_glob_that_matches_nothing_is_refused(device: Device) -> None:
    with pytest.raises(InvalidArgument, match="no variant matches 'conv9'"):
        verify(device, "conv9")


def test_what_a_case_needs_is_what_it_dispatches(device: Device) -> None:
    needing = 0
    for draw in QUICK_CASES.values():
        for dtype in DTYPES:
            for case in draw(dtype, np.random.default_rng(0)):
                if case.needs:
                    limits = {**ABLE, **case.limits}
                    [record] = pick_within(device, limits, case.op, **case.problem)
                    assert record.shader == case.needs
                    needing += 1
    assert needing > 0
