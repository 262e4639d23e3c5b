"""The last part of ``make demo``: it runs what was just built, or says why it cannot."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from loom_support import REPOSITORY, Project
from shaderloom_runtime import errors


@pytest.fixture
def demo(built: Project, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``scripts/demo.py`` as a module, in the folder of a built project."""
    spec = importlib.util.spec_from_file_location("demo", REPOSITORY / "scripts/demo.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(built.folder)
    monkeypatch.setenv("SHADERLOOM_GENERATED", "")  # restored afterwards
    return module


def failing(error: errors.ShaderloomError) -> Any:
    def fail() -> None:
        raise error

    return fail


def test_demo_runs_what_was_built(
    demo: ModuleType, built: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.run() == 0
    title, _, fused, separate = capsys.readouterr().out.splitlines()
    assert title.startswith("run        relu(conv1x1(x) + bias + residual * scale)")
    assert fused.split()[:2] == ["fused", "1"]
    assert separate.split()[:2] == ["separate", "4"]
    assert Path(os.environ["SHADERLOOM_GENERATED"]) == built.out.resolve()


@pytest.mark.parametrize("kind", [errors.NoLoader, errors.NoDriver])
def test_demo_without_a_device_says_so_and_succeeds(
    demo: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: type[errors.ShaderloomError],
) -> None:
    monkeypatch.setattr(demo, "open_device", failing(kind("no Vulkan here: install it")))
    assert demo.run() == 0
    assert capsys.readouterr().out == "run        not run: no Vulkan here: install it\n"


def test_demo_fails_with_a_failing_device(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "open_device", failing(errors.DeviceLost("vkQueueSubmit")))
    assert demo.run() == 1
    assert capsys.readouterr().err.startswith("run: error: vkQueueSubmit failed: ")
