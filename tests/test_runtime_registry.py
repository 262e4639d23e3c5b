"""The generated data as the runtime reads it, and what it says when that is not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shaderloom_runtime import registry, runner
from shaderloom_runtime.device import list_devices
from shaderloom_runtime.errors import NotBuilt
from shaderloom_runtime.info import CooperativeMatrix
from shaderloom_runtime.registry import load_registry


@pytest.fixture
def copy(generated: Path, tmp_path: Path) -> Path:
    """A copy of what the runtime reads, to be damaged."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for name in ("manifest.json", "dispatch.py"):
        shutil.copy(generated / name, folder)
    shutil.copytree(generated / "spv", folder / "spv")
    return folder


def edit(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_registry_describes_every_shader(generated: Path) -> None:
    found = load_registry()
    assert found.folder == generated
    assert found is load_registry(generated)
    manifest = json.loads((generated / "manifest.json").read_text())
    assert set(found.shaders) == set(manifest["shaders"])
    shader = found.shaders["conv2d_pw_tiled_half"]
    assert (shader.op, shader.family, shader.dtype) == ("conv2d", "conv2d_pw_tiled", "half")
    assert shader.bindings[0] == (0, "storage_image")
    assert shader.read_only == tuple(range(1, 8))
    assert shader.push_constant_size == 28
    code = found.code("conv2d_pw_tiled_half")
    assert code == (generated / "spv/conv2d_pw_tiled_half.spv").read_bytes()
    assert found.code("conv2d_pw_tiled_half") is code


def test_folder_is_the_packages_own_or_the_checkouts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SHADERLOOM_GENERATED", raising=False)
    package = tmp_path / "checkout/runtime/shaderloom_runtime"
    package.mkdir(parents=True)
    monkeypatch.setattr(registry, "_PACKAGE", package)
    assert registry.default_folder() == tmp_path / "checkout/generated"
    (package / "generated").mkdir()
    assert registry.default_folder() == package / "generated"
    monkeypatch.setenv("SHADERLOOM_GENERATED", "/elsewhere")
    assert registry.default_folder() == Path("/elsewhere")


@pytest.mark.parametrize("name", ["manifest.json", "spv/build.json", "dispatch.py"])
def test_parts_of_different_builds_are_refused(copy: Path, name: str) -> None:
    old = json.loads((copy / "manifest.json").read_text())["layout_hash"]
    path = copy / name
    path.write_text(path.read_text().replace(old, "0123456789abcdef"))
    with pytest.raises(NotBuilt, match=f"is not of one build.*{name} 0123456789abcdef"):
        load_registry(copy)


@pytest.mark.parametrize("name", ["manifest.json", "spv/build.json", "dispatch.py"])
def test_an_absent_part_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(NotBuilt, match=rf"{name}: No such file.*run 'shaderloom build'"):
        load_registry(copy)


def test_a_damaged_part_is_named(copy: Path) -> None:
    for text in ("{", "[]", "{}"):
        (copy / "spv/build.json").write_text(text)
        with pytest.raises(NotBuilt, match=r"build\.json is damaged"):
            load_registry(copy)
    edit(copy / "manifest.json", lambda data: data.update(schema=99))
    with pytest.raises(NotBuilt, match=r"manifest\.json has schema 99, this runtime reads 1"):
        load_registry(copy)


@pytest.mark.parametrize("key", ["layout_hash", "shaders"])
def test_a_manifest_without_a_key_is_damaged(
    copy: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(copy / "manifest.json", lambda data: data.pop(key))
    with pytest.raises(NotBuilt, match="is damaged: run 'shaderloom build'"):
        load_registry(copy)
    if key == "shaders":
        monkeypatch.setenv("SHADERLOOM_GENERATED", str(copy))
        with pytest.raises(NotBuilt, match=r"manifest\.json is damaged"):
            registry.needed_features()


def test_a_module_that_is_not_the_built_one_is_refused(copy: Path) -> None:
    path = copy / "spv/add_float.spv"
    whole = path.read_bytes()
    for wrong in (whole[:-4], whole[:-4] + b"\0\0\0\0"):
        path.write_bytes(wrong)
        with pytest.raises(NotBuilt, match=r"add_float\.spv is not the one of build\.json"):
            load_registry(copy).code("add_float")
    path.unlink()
    with pytest.raises(NotBuilt, match=r"add_float\.spv: No such file"):
        load_registry(copy).code("add_float")


def test_an_uncompiled_variant_says_why(copy: Path) -> None:
    reason = "no compiler knows GL_EXT_future"
    edit(
        copy / "spv/build.json",
        lambda data: data["shaders"].update(add_half={"size": 0, "missing": reason}),
    )
    found = load_registry(copy)
    with pytest.raises(NotBuilt, match=f"add_half was not compiled: {reason}"):
        found.code("add_half")
    info = list_devices()[0]
    unable = runner.missing(found, info, info.features)
    assert unable["add_half"] == f"not compiled: {reason}"
    assert "add_float" not in unable


def test_matrices_that_no_compiler_knew_are_not_asked_for(copy: Path) -> None:
    types = ("float16", "float16", "float32", "float32")
    shapes = (CooperativeMatrix(16, n, 16, *types, saturating=False) for n in (8, 16))
    info = replace(list_devices()[0], cooperative_matrices=tuple(shapes))
    enabled = registry.needed_features()
    described = runner.dispatch_device(load_registry(copy), info, enabled)
    assert described.coopmat_16x8x16
    assert described.coopmat_16x16x16
    described = runner.dispatch_device(load_registry(copy), info, enabled - {"shaderFloat16"})
    assert not described.coopmat_16x8x16

    def without_matrices(data: Any) -> None:
        for name in data["shaders"]:
            if "_16x8x16_" in name:
                data["shaders"][name] = {"size": 0, "missing": "no compiler knows them"}

    edit(copy / "spv/build.json", without_matrices)
    registry._load.cache_clear()
    described = runner.dispatch_device(load_registry(copy), info, enabled)
    assert not described.coopmat_16x8x16
    assert described.coopmat_16x16x16


def test_what_a_device_lacks_is_said_by_variant(generated: Path) -> None:
    info = replace(
        list_devices()[0], cooperative_matrices=(), min_subgroup_size=8, max_subgroup_size=16
    )
    unable = runner.missing(load_registry(), info, frozenset())
    assert unable["nchw_to_texture3d_half"] == "the device lacks storageBuffer16BitAccess"
    assert "nchw_to_texture3d_float" not in unable
    needed = {"computeFullSubgroups", "cooperativeMatrix", "shaderFloat16"}
    needed |= {"storageBuffer16BitAccess", "subgroupSizeControl", "vulkanMemoryModel"}
    assert registry.needed_features() == {*needed, "subgroupArithmetic"}
    lacks = unable["matmul_coopmat_16x8x16_64x64_half"].removeprefix("the device lacks ")
    *features, subgroup, matrices = lacks.split(", ")
    assert set(features) == needed
    assert subgroup == "subgroup size 32 (has 8 to 16)"
    assert matrices == "matrices of 16x8x16"
