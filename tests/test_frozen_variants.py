"""Frozen variants named in a spec: planned, compiled, registered, dispatched, run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import dispatch_harness
from dispatch_harness import Harness, Values, build_program, draw, load_dispatcher
from loom_support import Project, whole_project
from runtime_support import validated_device
from shaderloom.decisions import Decisions, OpRules
from shaderloom.pipeline import weave
from shaderloom.reflect import used
from shaderloom_runtime.ops import conv2d

AFTER = "    name: conv2d_pw_tiled{weight_storage}_{dtype}\n"
FROZEN = """    frozen:
      - name: "{variant}_plain"
        set:
          has_activation: false
          activation_op: clamp
          has_residual: 0
          has_scale: 0
          residual_op: 0
        prefer: device_class == 'mali' and in_c > 4
      - name: "{variant}_relu"
        set: {has_activation: true, activation_op: relu, has_residual: false, has_scale: false}
"""
RELU = [(4, 1), (5, 1), (6, 0), (7, 0)]


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """This repository's project with two frozen variants of each pointwise one."""
    project = whole_project(tmp_path_factory.mktemp("frozen") / "project")
    project.replace("variants.yaml", AFTER, AFTER + FROZEN)
    project.build()
    return project


@pytest.fixture(scope="module")
def dispatch(frozen: Project) -> ModuleType:
    return load_dispatcher(frozen.out / "dispatch.py")


def manifest(project: Project) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.out / "manifest.json").read_bytes())
    return found


def test_registered_as_variants_of_their_own(frozen: Project) -> None:
    shaders = manifest(frozen)["shaders"]
    base, relu = shaders["conv2d_pw_tiled_half"], shaders["conv2d_pw_tiled_half_relu"]
    assert relu["frozen_from"] == "conv2d_pw_tiled_half"
    assert [(f["id"], f["bits"]) for f in relu["frozen"]] == RELU
    assert relu["frozen"][1] == {"id": 5, "name": "activation_op", "value": "relu", "bits": 1}
    own = {"frozen", "frozen_from"}
    assert {key: value for key, value in relu.items() if key not in own} == base
    assert not (frozen.out / "glsl/conv2d_pw_tiled_half_relu.comp").exists()
    assert frozen.loom("check").code == 0


def test_modules_have_the_constants_baked_in(frozen: Project) -> None:
    spv = frozen.out / "spv"
    base, plain, relu = (
        used((spv / f"conv2d_pw_tiled_half{end}.spv").read_bytes(), end)
        for end in ("", "_plain", "_relu")
    )
    assert base.constants == {3, 4, 5, 6, 7, 8}
    assert plain.constants == relu.constants == {3}
    assert base.bindings - plain.bindings == base.bindings - relu.bindings == {4, 5}


def test_registry_lists_what_is_frozen(frozen: Project) -> None:
    text = (frozen.out / "registry.c").read_text(encoding="utf-8")
    table = "shaderloom_conv2d_pw_tiled_float_relu"
    assert f"static const shaderloom_constant {table}_constants[] = {{" in text
    assert text.count(f", 4, {table}_frozen}}") == 4  # a table for all that are frozen alike
    assert f"2, {table}_constants" in text  # stride_1_padding_0 and residual_op are left
    assert f"5, {table}_map_entries" in text
    ran = frozen.loom("explain", "conv2d_pw_tiled_half_relu")
    assert "  frozen    activation_op=relu, ID 5\n" in ran.out
    assert "CONSTANT_ACTIVATION_OP" not in ran.out


@pytest.mark.parametrize(
    ("device_class", "problem", "ending"),
    [
        ("mali", {}, "_plain"),
        ("mali", {"in_c": 4}, ""),  # not preferred for so few channels
        ("nvidia", {}, ""),
        ("mali", {"has_activation": True, "activation_op": "relu"}, "_relu"),
        ("nvidia", {"has_activation": True, "activation_op": "relu"}, "_relu"),
        ("nvidia", {"has_activation": True, "activation_op": "leaky_relu"}, ""),
        ("nvidia", {"has_activation": True, "activation_op": "relu", "has_residual": True}, ""),
    ],
)
def test_dispatcher_takes_a_frozen_variant(
    dispatch: ModuleType, device_class: str, problem: dict[str, Any], ending: str
) -> None:
    sizes = {"in_n": 1, "in_c": 8, "in_h": 5, "in_w": 5, "out_c": 8, "kernel_h": 1, "kernel_w": 1}
    given = dispatch.Conv2dProblem(**{**sizes, **problem}, dtype="half", route="pointwise")
    [record] = dispatch.pick_conv2d(given, dispatch.Device(device_class=device_class))
    assert record.shader == f"conv2d_pw_tiled_half{ending}"
    left = {"_plain": [0, 1, 2, 3], "_relu": [0, 1, 2, 3, 8], "": [0, 1, 2, 3, 4, 5, 6, 7, 8]}
    assert [id_ for id_, _ in record.spec] == left[ending]


def draw_pointwise(decisions: Decisions, op: OpRules, rng: random.Random) -> tuple[Values, Values]:
    """Draw as the harness does, but of convolutions those that have frozen variants."""
    problem, device = draw(decisions, op, rng)
    if op.name == "conv2d":
        problem |= {"kernel_h": 1, "kernel_w": 1, "groups": 1, "transposed": False, "in_n": 1}
        problem |= {"route": "pointwise", "has_residual": rng.random() < 0.2, "has_scale": False}
        device["device_class"] = rng.choice(("mali", "nvidia"))
    return problem, device


@pytest.fixture
def pointwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_harness, "draw", draw_pointwise)


def compare(frozen: Project, generated: Path, folder: Path, *compiler: str) -> list[str]:
    woven = weave(frozen.folder / "variants.yaml")
    assert woven.decisions is not None
    program = build_program(woven.decisions, generated, folder, compiler)
    harness = Harness(woven.decisions, woven.plan.enums, generated, program)
    return harness.compare(5_000, 11, interpret_every=3).differences


@pytest.mark.usefixtures("pointwise")
@pytest.mark.parametrize("compiler", [("gcc", "-std=c99"), ("clang", "-x", "c++", "-std=c++17")])
def test_c_python_and_interpreter_agree(
    frozen: Project, compiler: tuple[str, ...], tmp_path: Path
) -> None:
    assert compare(frozen, frozen.out, tmp_path, *compiler) == []


@pytest.mark.usefixtures("pointwise")
def test_a_constant_that_is_not_left_out_is_noticed(frozen: Project, tmp_path: Path) -> None:
    for path in frozen.out.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = (tmp_path / "dispatch.c").read_text(encoding="utf-8")
    assert "loom_drop_spec(r, 7);" in text
    (tmp_path / "dispatch.c").write_text(text.replace("loom_drop_spec(r, 7);", ""))
    assert compare(frozen, tmp_path, tmp_path, "gcc", "-std=c99")


def test_pick_shows_why(frozen: Project) -> None:
    problem = "in=1,8,5,5 out_c=8 kernel=1 route=pointwise has_activation=1 activation_op=relu"
    ran = frozen.loom("pick", "conv2d", "--set", *problem.split())
    assert "conv2d_pw_tiled_float_plain is preferred: device_class == 'mali'" in ran.out
    assert "conv2d_pw_tiled_float_relu is preferred: True -> true" in ran.out
    assert "dispatch: conv2d_pw_tiled_float_relu\n" in ran.out


def test_results_are_those_of_the_base(
    frozen: Project, built: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (1, 7, 6, 5)).astype(np.float16)
    weight = rng.uniform(-1, 1, (9, 7, 1, 1)).astype(np.float16)
    results = []
    for project in (built, frozen):
        monkeypatch.setenv("SHADERLOOM_GENERATED", str(project.out))
        with validated_device() as device:
            results.append(conv2d(device, x, weight, activation="relu", route="pointwise"))
            names = {spec.name for spec in device.kernels}
        assert ("conv2d_pw_tiled_half_relu" in names) == (project is frozen)
    assert results[0].tobytes() == results[1].tobytes()
    assert np.any(results[0])


def test_freezing_the_rest(frozen: Project) -> None:
    name = "conv2d_pw_tiled_half_relu"
    ran = frozen.loom("freeze", name, "--set", "stride_1_padding_0=1", "-o", "rest.spv")
    assert ran.code == 0, ran.err
    assert used((frozen.folder / "rest.spv").read_bytes(), "rest").constants == frozenset()
    ran = frozen.loom("freeze", name, "--set", "has_scale=1")
    assert ran.err == f"--set: error: 'has_scale' is frozen in {name} already\n"


def test_adding_frozen_variants_is_compatible(frozen: Project, built: Project) -> None:
    ran = frozen.loom("diff", str(built.out / "manifest.json"), "generated/manifest.json")
    assert ran.code == 3
    assert "compatible  added    variants conv2d_pw_tiled_float_plain" in ran.out


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"{variant}_relu"', "relu", "the name of a frozen variant contains {variant}"),
        ('"{variant}_relu"', '"{variant}_"', "'conv2d_pw_tiled_float_' has a double or trailing"),
        ('"{variant}_relu"', '"{variant}_plain"', "is made twice"),
        ("activation_op: relu", "activation_op: rely", "did you mean 'relu'?"),
        ("has_activation: true", "has_activation: 2", "'2' of 'has_activation' is no bool"),
        ("has_activation: true", "has_aktivation: true", "did you mean 'has_activation'?"),
        ("has_activation: true", "local_size_x: 8", "'local_size_x' cannot be frozen in a spec"),
        ("in_c > 4", "in_d > 4", "in_d"),
        ("device_class == 'mali' and in_c > 4", "in_c", "bool"),
    ],
)
def test_mistakes(tmp_path: Path, before: str, after: str, message: str) -> None:
    project = whole_project(tmp_path / "project")
    project.replace("variants.yaml", AFTER, AFTER + FROZEN)
    project.replace("variants.yaml", before, after)
    ran = project.loom("check")
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.startswith("variants.yaml:")
