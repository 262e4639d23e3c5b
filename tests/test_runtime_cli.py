"""The command line: what it prints, its exit codes, one line for each kind of failure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import vulkan

from runtime_support import run_python
from shaderloom_runtime import cli
from shaderloom_runtime.device import Device, list_devices
from shaderloom_runtime.errors import NotBuilt
from shaderloom_runtime.registry import load_registry

pytestmark = pytest.mark.usefixtures("generated")


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command that must print one line of error and nothing else; return code and line."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("shaderloom-runtime: error: ")
    assert err.count("\n") == 1
    return code, err


def test_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = list_devices()[0]
    assert lines[0] == f"0: {first.name}"
    assert re.search(rf"{first.type}, class {first.device_class}, Vulkan 1\.\d+\.\d+", lines[1])
    shaders = load_registry().shaders.values()
    able = [s for s in shaders if set(s.features) <= first.features]
    assert lines[2] == f"   runs {len(able)} of {len(shaders)} variants"


def test_devices_names_what_it_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shaderloom_runtime.info.supported_features", lambda *_: frozenset())
    assert cli.main(["devices"]) == 0
    out = capsys.readouterr().out
    shaders = load_registry().shaders.values()
    plain = sum(not shader.features for shader in shaders)  # those of coopmat all need some
    assert f"   runs {plain} of {len(shaders)} variants\n" in out
    assert "   not nchw_to_texture3d_half: the device lacks storageBuffer16BitAccess\n" in out


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo"]) == 0
    title, head, fused, separate = capsys.readouterr().out.splitlines()
    assert title.startswith("relu(conv1x1(x) + bias + residual * scale), 64 x 56 x 56, float, ")
    assert "dispatches" in head
    assert re.fullmatch(r"fused +1 +\d\.\d\de-\d\d +0\.\d{3} +\d+\.\d{3}", fused)
    assert re.fullmatch(r"separate +4 +\d\.\d\de-\d\d +0\.\d{3} +\d+\.\d{3}", separate)


def test_verify_notes_what_the_layer_is_too_old_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "storageBuffer16BitAccess"
    monkeypatch.setattr("shaderloom_runtime.device.younger_than", lambda _: frozenset({name}))
    assert cli.main(["verify", "--only", "nchw_to_texture3d_*", "--device", "0"]) == 0
    out = capsys.readouterr().out
    assert f"note: the validation layer is too old for {name}, which was left off\n" in out
    assert f"skipped: nchw_to_texture3d_half: the device lacks {name}\n" in out


def test_verify(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--only", "add_*", "--device", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["variant", "cases", "worst", "error", "/", "bound"]
    assert re.match(r"add_float +5  0\.\d{3}  \(", lines[1])
    assert re.match(r"add_half +5  0\.\d{3}  \(", lines[2])
    assert lines[3].startswith("2 variants, 10 cases, 0 past the bound, worst 0.")
    assert lines[4].endswith(": validation 0 messages")
    assert len(lines) == 5


def test_verify_without_validation_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--only", "clamp_float", "--no-validation", "--quick"]) == 0
    assert capsys.readouterr().out.endswith(": validation off\n")


def test_verify_fails_for_an_excess(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = load_registry()
    monkeypatch.setitem(registry._modules, "add_float", registry.code("mul_float"))
    assert cli.main(["verify", "--only", "add_float"]) == 1
    out = capsys.readouterr().out
    assert "\nerror: add_float: 1x1x1x1 add 1x1x1x1: " in out
    assert " at [0, 0, 0, 0], expected " in out


def test_verify_fails_for_a_validation_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Device.close

    def close(device: Device) -> None:
        device.api.vkCreateFence(device.handle, device.api.VkFenceCreateInfo(), None)  # leaks
        real(device)

    monkeypatch.setattr(Device, "close", close)
    assert cli.main(["verify", "--only", "clamp_float"]) == 1
    out = capsys.readouterr().out
    assert "\nerror: validation: " in out
    assert re.search(r": validation [1-9]\d* messages\n$", out)


def test_verify_skips_what_the_device_lacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shaderloom_runtime.info.supported_features", lambda *_: frozenset())
    assert cli.main(["verify", "--only", "nchw_to_*"]) == 0
    out = capsys.readouterr().out
    assert "skipped: nchw_to_texture3d_half: the device lacks storageBuffer16BitAccess\n" in out
    assert "1 variants, 6 cases, 0 past the bound, worst 0.000, 1 skipped\n" in out


@pytest.mark.parametrize("command", ["demo", "verify"])
def test_no_device_of_that_name(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, line = fails(capsys, command, "--device", "voodoo")
    assert code == 2
    assert "no Vulkan device 'voodoo'; there are: 0: " in line


def test_no_variant_of_that_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, "verify", "--only", "x*") == (
        2,
        "shaderloom-runtime: error: no variant matches 'x*'\n",
    )


def test_no_validation_layer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan, "vkEnumerateInstanceLayerProperties", lambda: [])
    code, line = fails(capsys, "verify")
    assert code == 2
    assert "VK_LAYER_KHRONOS_validation is not installed" in line
    assert "--no-validation" in line


RUN = """
import sys
from shaderloom_runtime.cli import main
for command in ("devices", "demo", "verify"):
    sys.stderr = sys.stdout
    print(main([command]))
"""


def test_no_driver() -> None:
    absent = {"VK_DRIVER_FILES": "/absent.json", "VK_ICD_FILENAMES": "/absent.json"}
    lines = run_python(RUN, **absent).splitlines()
    assert lines[1::2] == ["2", "2", "2"]
    for line in lines[::2]:
        assert line.startswith("shaderloom-runtime: error: no Vulkan driver: install one")


def test_no_loader() -> None:
    # The binding opens the loader by ffi.dlopen while it is imported.
    absent = """
import sys, types
def dlopen(name):
    raise OSError(name)
sys.modules["vulkan._vulkancache"] = types.SimpleNamespace(ffi=types.SimpleNamespace(dlopen=dlopen))
"""
    lines = run_python(absent + RUN).splitlines()
    assert lines[1::2] == ["2", "2", "2"]
    for line in lines[::2]:
        assert line.startswith("shaderloom-runtime: error: no Vulkan loader: install libvulkan1")


def test_nothing_built(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    generated: Path,
) -> None:
    shutil.copy(generated / "manifest.json", tmp_path)  # as in a fresh clone
    monkeypatch.setenv("SHADERLOOM_GENERATED", str(tmp_path))
    with pytest.raises(NotBuilt):
        load_registry()
    for command in ("devices", "demo", "verify"):
        code, line = fails(capsys, command)
        assert code == 2
        assert line.endswith("build.json: No such file or directory; run 'shaderloom build'\n")


@pytest.mark.parametrize("command", ["demo", "verify"])
@pytest.mark.parametrize(
    ("call", "raised", "message"),
    [
        (
            "vkAllocateMemory",
            vulkan.VkErrorOutOfDeviceMemory,
            r"vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY \(\d+ bytes asked of a heap",
        ),
        (
            "vkQueueSubmit",
            vulkan.VkErrorDeviceLost,
            r"vkQueueSubmit failed: VK_ERROR_DEVICE_LOST \(the device must be closed",
        ),
    ],
)
def test_a_device_that_fails(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    call: str,
    raised: Any,
    message: str,
) -> None:
    def fail(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(vulkan, call, fail)
    code, line = fails(capsys, command)
    assert code == 1
    assert re.search(message, line)


def test_runs_as_a_module() -> None:
    out = run_python(
        "import runpy, sys; sys.argv = ['', 'devices']; "
        "runpy.run_module('shaderloom_runtime', run_name='__main__')"
    )
    assert out.startswith(f"0: {list_devices()[0].name}\n")


def test_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["fly"], ["verify", "--fast"]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
    assert "usage: shaderloom-runtime" in capsys.readouterr().err
