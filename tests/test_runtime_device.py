"""Opening devices, what they say about themselves, and how that fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
import vulkan

from runtime_support import resident_bytes, run_python, validated_device
from shaderloom_runtime import errors, info
from shaderloom_runtime.api import load
from shaderloom_runtime.device import Device, Resource, list_devices, open_device
from shaderloom_runtime.features import enable_chain, known_features, needs_no_switch, younger_than
from shaderloom_runtime.registry import needed_features


@pytest.fixture
def device() -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def fake(index: int, name: str, type_: str) -> info.DeviceInfo:
    return replace(list_devices()[0], index=index, name=name, type=type_)


def test_device_describes_itself(device: Device) -> None:
    found, limits = device.info, device.info.limits
    assert found.name
    assert found == list_devices()[found.index]
    assert found.api_version >= (1, 1)
    # The least that the specification lets a device have (Required Limits).
    assert limits.max_invocations >= 128
    assert min(limits.max_grid) >= 65535
    assert limits.max_image_3d >= 256
    assert limits.max_push_constants >= 128
    assert limits.max_shared_memory >= 16384
    assert found.min_subgroup_size <= found.subgroup_size <= found.max_subgroup_size
    assert found.features <= known_features()
    assert "subgroupBasic" in found.features
    assert len(found.device_uuid) == len(found.driver_uuid) == 16
    assert bool(found.cooperative_matrices) == ("cooperativeMatrix" in found.features)


def test_default_prefers_gpu_over_software_then_low_index() -> None:
    types = ("cpu", "virtual", "integrated", "discrete", "discrete")
    infos = [fake(i, f"d{i}", type_) for i, type_ in enumerate(types)]
    assert info.choose(infos, None).index == 3
    assert info.choose(infos[:3], None).index == 2
    assert info.choose(infos[:2], None).index == 1
    assert info.choose(infos[:1], None).index == 0


def test_choice_by_index_and_by_name() -> None:
    infos = [fake(0, "llvmpipe", "cpu"), fake(1, "GeForce 4090", "discrete")]
    assert info.choose(infos, 0).index == 0
    assert info.choose(infos, "0").index == 0
    assert info.choose(infos, "LLVM").index == 0
    assert info.choose(infos, "4090").index == 1  # no index: part of a name
    for wrong in (2, -1, "radeon"):
        with pytest.raises(errors.NoDevice) as caught:
            info.choose(infos, wrong)
        assert str(caught.value) == (
            f"no Vulkan device {wrong!r}; there are: 0: llvmpipe, 1: GeForce 4090"
        )


@pytest.mark.parametrize(
    ("name", "vendor", "type_", "expected"),
    [
        ("Adreno (TM) 740", 0x5143, "integrated", "adreno"),
        ("Mali-G715", 0x13B5, "integrated", "mali"),
        ("Immortalis-G720", 0, "integrated", "mali"),
        ("NVIDIA H200", 0x10DE, "discrete", "nvidia"),
        ("AMD Radeon RX 7900", 0x1002, "discrete", "amd"),
        ("Intel(R) Arc(TM)", 0x8086, "discrete", "intel"),
        ("llvmpipe (LLVM 15.0.6)", 0x10005, "cpu", "software"),
        ("SwiftShader Device", 0x1AE0, "cpu", "software"),
        ("Apple M2", 0x106B, "integrated", "other"),
    ],
)
def test_device_class(name: str, vendor: int, type_: str, expected: str) -> None:
    assert info.device_class(name, vendor, type_) == expected


def test_environment_variable_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    name = list_devices()[0].name
    for value in ("0", name[:6].upper(), ""):
        monkeypatch.setenv("SHADERLOOM_DEVICE", value)
        with open_device() as device:
            assert device.info.name
    monkeypatch.setenv("SHADERLOOM_DEVICE", "no such gpu")
    with pytest.raises(errors.NoDevice, match=r"no such gpu.*0: ") as caught:
        open_device()
    assert name in caught.value.available
    with open_device(name) as device:  # an argument goes before the variable
        assert device.info.name == name


def test_no_loader_is_a_clear_error() -> None:
    # The binding opens the loader by ffi.dlopen while it is imported.
    code = """
import sys, types
def dlopen(name):
    raise OSError(name)
sys.modules["vulkan._vulkancache"] = types.SimpleNamespace(ffi=types.SimpleNamespace(dlopen=dlopen))
from shaderloom_runtime import device, errors
try:
    device.open_device()
except errors.NoLoader as error:
    print(error)
"""
    assert "no Vulkan loader: install libvulkan1" in run_python(code)


def test_loader_of_vulkan_1_0_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise AttributeError("undefined symbol: vkEnumerateInstanceVersion")

    monkeypatch.setattr(vulkan, "vkEnumerateInstanceVersion", absent)
    with pytest.raises(errors.NoLoader, match=r"older than Vulkan 1\.1"):
        list_devices()


def test_no_driver_is_a_clear_error() -> None:
    code = """
from shaderloom_runtime import device, errors
for function in (device.open_device, device.list_devices):
    try:
        function()
    except errors.NoDriver as error:
        print(error)
"""
    # An absent file, by its present and its former name.
    absent = {"VK_DRIVER_FILES": "/absent.json", "VK_ICD_FILENAMES": "/absent.json"}
    printed = run_python(code, **absent).splitlines()
    assert len(printed) == 2
    assert all(line.startswith("no Vulkan driver: install one") for line in printed)


def test_missing_validation_layer_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulkan, "vkEnumerateInstanceLayerProperties", lambda: [])
    with pytest.raises(errors.NoValidationLayer, match="VK_LAYER_KHRONOS_validation"):
        open_device(validation=True)


def test_missing_features_are_all_listed(device: Device) -> None:
    device.require("matmul_naive_float", [])
    device.require("matmul_naive_float", ["subgroupBasic"])
    with pytest.raises(errors.MissingFeature) as caught:
        device.require("linear_tpu", ["tensorUnit", "subgroupBasic", "antigravity"])
    assert caught.value.missing == ("antigravity", "tensorUnit")
    assert str(caught.value) == (
        f"linear_tpu cannot run on {device.info.name}: missing antigravity, tensorUnit"
    )


def test_only_the_wanted_features_are_enabled() -> None:
    everything = list_devices()[0].features
    properties = {name for name in everything if needs_no_switch(name)}
    with validated_device("storageBuffer16BitAccess", "timeTravel") as device:
        assert device.enabled == properties | {"storageBuffer16BitAccess"}
        device.require("some_half", ["storageBuffer16BitAccess", "subgroupBasic"])
        with pytest.raises(errors.MissingFeature, match="missing shaderFloat16"):
            device.require("some_half", ["shaderFloat16"])
    with validated_device() as device:  # by default, what some shader needs
        assert device.enabled == properties | (needed_features() & everything)
        assert "storageBuffer16BitAccess" in device.enabled


def test_features_before_their_core_version_bring_their_extension() -> None:
    wanted = frozenset({"storageBuffer16BitAccess", "shaderFloat16", "subgroupSizeControl"})
    api = load()
    _, extensions = enable_chain(api, wanted, (1, 1, 0))
    assert extensions == ["VK_KHR_shader_float16_int8", "VK_EXT_subgroup_size_control"]
    structs, extensions = enable_chain(api, wanted, (1, 3, 0))
    assert extensions == []
    assert [s.storageBuffer16BitAccess for s in structs[:1]] == [1]
    assert structs[1].shaderFloat16 == 1
    assert structs[1].shaderInt8 == 0


def test_a_validation_layer_is_not_shown_what_it_is_too_old_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert younger_than((1, 3, 239)) == {"cooperativeMatrix"}
    assert younger_than((1, 3, 255)) == frozenset()
    # Any other feature will do for the rest: the software device has no such matrices.
    name = "storageBuffer16BitAccess"
    monkeypatch.setattr("shaderloom_runtime.device.younger_than", lambda _: frozenset({name}))
    with open_device(validation=True, features=[name]) as device:
        assert name not in device.enabled
        assert device.withheld == {name}
    with open_device(features=[name]) as device:  # without the layer nobody complains
        assert name in device.enabled
        assert device.withheld == frozenset()


def test_every_device_collects_its_own_messages() -> None:
    with open_device(validation=True) as first, open_device(validation=True) as second:
        api = first.api
        wrong = api.VkBufferCreateInfo(size=0, usage=api.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT)
        buffer = api.vkCreateBuffer(first.handle, wrong, None)
        api.vkDestroyBuffer(first.handle, buffer, None)
        assert any("VUID-VkBufferCreateInfo-size-00912" in text for text in first.messages)
        assert second.messages == []


def test_validation_reports_what_is_left_behind() -> None:
    # The check on which all other tests of leaks rest.
    device = open_device(validation=True)
    api = device.api
    api.vkCreateFence(device.handle, api.VkFenceCreateInfo(), None)
    device.close()
    assert any("VkFence" in text for text in device.messages)


class Noted(Resource):
    """Writes down when it is closed."""

    def __init__(self, device: Device, name: str, log: list[str]) -> None:
        with ExitStack() as stack:
            stack.callback(log.append, name)
            super().__init__(device, stack)


def test_close_is_newest_first_and_harmless_twice() -> None:
    log: list[str] = []
    device = open_device()
    _, second, _ = (Noted(device, name, log) for name in "abc")
    second.close()
    second.close()
    device.close()
    device.close()
    assert log == ["b", "c", "a"]
    with pytest.raises(errors.InvalidUse, match="this Noted is closed"):
        second.check_open()


def test_failed_opening_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed: list[str] = []

    def watch(name: str) -> None:
        real = getattr(vulkan, name)

        def watched(*args: Any) -> Any:
            destroyed.append(name)
            return real(*args)

        monkeypatch.setattr(vulkan, name, watched)

    def refuse(*_: Any) -> Any:
        raise vulkan.VkErrorInitializationFailed

    for name in ("vkDestroyInstance", "vkDestroyDevice", "vkDestroyCommandPool", "vkDestroyFence"):
        watch(name)
    monkeypatch.setattr(vulkan, "vkCreateSampler", refuse)
    with pytest.raises(errors.VulkanError, match="vkCreateSampler failed") as caught:
        open_device()
    assert caught.value.result == "VK_ERROR_INITIALIZATION_FAILED"
    assert destroyed == [
        "vkDestroyFence",
        "vkDestroyCommandPool",
        "vkDestroyDevice",
        "vkDestroyInstance",
    ]


@pytest.mark.parametrize(
    ("raised", "kind", "result"),
    [
        (vulkan.VkErrorDeviceLost, errors.DeviceLost, "VK_ERROR_DEVICE_LOST"),
        (vulkan.VkErrorOutOfHostMemory, errors.OutOfMemory, "VK_ERROR_OUT_OF_HOST_MEMORY"),
        (vulkan.VkErrorTooManyObjects, errors.VulkanError, "VK_ERROR_TOO_MANY_OBJECTS"),
        (vulkan.VkTimeout, errors.VulkanError, "VK_TIMEOUT"),
        # Results that are absent from the binding's table come out of it as KeyError.
        (KeyError(-1000069000), errors.OutOfMemory, "VK_ERROR_OUT_OF_POOL_MEMORY"),
        (KeyError(-1234), errors.VulkanError, "VkResult -1234"),
    ],
)
def test_every_failure_names_its_call(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    raised: Any,
    kind: type[errors.VulkanError],
    result: str,
) -> None:
    def fail(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(vulkan, "vkQueueWaitIdle", fail)
    with pytest.raises(errors.VulkanError, match="vkQueueWaitIdle failed") as caught:
        device.api.vkQueueWaitIdle(device.queue)
    assert type(caught.value) is kind
    assert (caught.value.call, caught.value.result) == ("vkQueueWaitIdle", result)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_drivers_stay_loaded_between_devices() -> None:
    code = """
from shaderloom_runtime.device import open_device
def libraries():
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if ".so" in line}
device = open_device()
opened = libraries()
device.close()
print(sorted(opened - libraries()))
"""
    assert run_python(code) == "[]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_dozens_of_devices_leak_nothing() -> None:
    def rounds(count: int) -> None:
        for _ in range(count):
            open_device().close()

    rounds(5)  # the driver's own caches fill
    before = resident_bytes()
    rounds(40)
    assert resident_bytes() - before < 8 * 2**20
