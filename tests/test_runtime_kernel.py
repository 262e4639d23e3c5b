"""Compute pipelines: specialization constants, checks before Vulkan, failures."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import vulkan
from hypothesis import given
from hypothesis import strategies as st

from runtime_support import CONSTANTS, affine_spec, compiled, validated_device
from shaderloom_runtime import errors
from shaderloom_runtime.device import Device
from shaderloom_runtime.kernel import (
    KernelSpec,
    cached_kernel,
    make_kernels,
    pack_constants,
    word,
)
from shaderloom_runtime.memory import Buffer
from shaderloom_runtime.submit import Recording, Step

LOCAL_SIZE_1 = ((0, 1), (1, 1), (2, 1))


@pytest.fixture
def device() -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def constants_read(device: Device, constants: tuple[tuple[int, int], ...]) -> list[float]:
    """Run the shader that writes its specialization constants."""
    spec = KernelSpec("constants", compiled(CONSTANTS), ((0, "storage_buffer"),))
    spec = replace(spec, constants=(*LOCAL_SIZE_1, *constants))
    with make_kernels(device, [spec])[0] as kernel, Buffer(device, 20) as out:
        Recording(device, [Step(kernel, ((0, out),), (1, 1, 1))]).run()
        values: list[float] = out.read(np.float32, (5,)).tolist()
        return values


def test_fault_18_bool_specialization_constant_is_four_bytes(device: Device) -> None:
    assert word(True) == 1
    assert word(False) == 0
    entries, data = pack_constants([(3, word(True)), (4, word(False)), (5, word(7))])
    assert [size for _, _, size in entries] == [4, 4, 4]
    assert data == struct.pack("=III", 1, 0, 7)
    # A bool of one byte would move the values that follow it.
    for first, second in ((True, False), (False, True), (True, True)):
        constants = ((3, word(first)), (4, word(second)), (5, word(-7)), (6, word(0.5)))
        assert constants_read(device, constants) == [first, second, -7, 0.5, 0]


def test_fault_19_map_entry_offsets_advance(device: Device) -> None:
    constants = ((0, 8), (1, 8), (2, 1), (3, 1), (4, 0), (5, 0xFFFFFFFF), (6, 0x3F000000), (7, 9))
    entries, data = pack_constants(constants)
    assert entries == (
        (0, 0, 4),
        (1, 4, 4),
        (2, 8, 4),
        (3, 12, 4),
        (4, 16, 4),
        (5, 20, 4),
        (6, 24, 4),
        (7, 28, 4),
    )
    assert data == struct.pack("=8I", *(bits for _, bits in constants))
    assert pack_constants(()) == ((), b"")
    # In any order, and with gaps that leave the shader's defaults.
    assert constants_read(device, ((7, 9), (3, 1), (5, word(-2)))) == [1, 0, -2, 0, 9]


@given(st.integers(-(2**31), 2**32 - 1))
def test_word_of_an_integer_is_its_low_32_bits(value: int) -> None:
    assert word(value) == value & 0xFFFFFFFF


@given(st.floats(width=32))
def test_word_of_a_float_is_its_encoding(value: float) -> None:
    assert struct.pack("=I", word(value)) == np.float32(value).tobytes()


@pytest.mark.parametrize("value", [2**32, -(2**31) - 1, 1e39])
def test_word_refuses_what_does_not_fit(value: float) -> None:
    with pytest.raises(errors.InvalidUse, match="does not fit into 32 bits"):
        word(value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code": b""}, "affine: 0 bytes that are no SPIR-V module"),
        ({"code": b"\x03\x02\x23\x07\x00"}, "affine: 5 bytes that are no SPIR-V"),
        ({"code": b"#version 450"}, "no SPIR-V module"),
        ({"bindings": ((0, "texture"),)}, "binding 0 is of unknown kind 'texture'"),
        ({"bindings": ((0, "storage_buffer"), (0, "uniform_buffer"))}, "a binding appears twice"),
        ({"constants": ((0, 64), (0, 32))}, "a constant appears twice"),
        ({"push_constant_size": 6}, "push constants of 6 bytes"),
    ],
)
def test_malformed_spec_is_refused(device: Device, change: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidUse, match=message):
        make_kernels(device, [affine_spec(), replace(affine_spec(), **change)])


def test_all_that_a_device_lacks_is_listed(device: Device) -> None:
    limits = device.info.limits
    shared, push = limits.max_shared_memory, limits.max_push_constants
    width = limits.max_local_size[0] + 1
    spec = replace(
        affine_spec(),
        features=("subgroupBasic", "timeTravel"),
        shared_memory=shared + 1,
        push_constant_size=push + 4,
        constants=((0, width),),
        subgroup_size=1024,
    )
    with pytest.raises(errors.MissingFeature) as caught:
        make_kernels(device, [spec])
    assert caught.value.variant == "affine"
    feature, pushed, memory, local, subgroup = caught.value.missing
    assert feature == "timeTravel"
    assert pushed == f"{push + 4} bytes of push constants (has {push})"
    assert memory == f"{shared + 1} bytes of shared memory (has {shared})"
    assert local.startswith(f"local size [{width}, 1, 1] (has [")
    assert "ubgroup" in subgroup


def test_workgroup_of_too_many_invocations_is_refused(device: Device) -> None:
    x, y, _ = device.info.limits.max_local_size
    spec = replace(affine_spec(), constants=((0, x), (1, y)))
    with pytest.raises(errors.MissingFeature, match=f"{device.info.limits.max_invocations} invo"):
        make_kernels(device, [spec])


def test_required_subgroup_size() -> None:
    body = """
#extension GL_KHR_shader_subgroup_basic : require
layout(set = 0, binding = 0, std430) writeonly buffer Out { uint t_out[]; };
void main() { t_out[gl_GlobalInvocationID.x] = gl_SubgroupSize; }
"""
    with validated_device("subgroupSizeControl") as device:
        if "subgroupSizeControl" not in device.enabled:
            pytest.skip("the device cannot choose its subgroup size")
        size = device.info.max_subgroup_size
        spec = KernelSpec("subgroup", compiled(body), ((0, "storage_buffer"),), subgroup_size=size)
        spec = replace(spec, constants=((0, size), (1, 1), (2, 1)))
        with make_kernels(device, [spec])[0] as kernel, Buffer(device, 4 * size) as out:
            Recording(device, [Step(kernel, ((0, out),), (1, 1, 1))]).run()
            assert out.read(np.uint32, (size,)).tolist() == [size] * size


def test_cached_kernel_is_made_once(device: Device) -> None:
    kernel = cached_kernel(device, affine_spec())
    assert cached_kernel(device, affine_spec()) is kernel
    assert cached_kernel(device, affine_spec(32)) is not kernel
    kernel.close()
    again = cached_kernel(device, affine_spec())
    assert again is not kernel
    assert not again.closed


def test_many_pipelines_in_one_call_and_from_a_cache(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = vulkan.vkCreateComputePipelines

    def counted(*args: Any) -> Any:
        calls.append(args[2])
        return real(*args)

    monkeypatch.setattr(vulkan, "vkCreateComputePipelines", counted)
    api = device.api
    specs = [affine_spec(size) for size in (8, 16, 32)]
    cache = api.vkCreatePipelineCache(device.handle, api.VkPipelineCacheCreateInfo(), None)
    kernels = make_kernels(device, specs, cache)
    assert calls == [3]
    assert [dict(kernel.spec.constants)[0] for kernel in kernels] == [8, 16, 32]
    assert len({int(api.ffi.cast("uintptr_t", kernel.pipeline)) for kernel in kernels}) == 3
    api.vkDestroyPipelineCache(device.handle, cache, None)
    assert make_kernels(device, []) == ()
    assert calls == [3]


@pytest.mark.parametrize(
    ("function", "raised", "kind"),
    [
        ("vkCreateComputePipelines", "VkErrorUnknown", errors.VulkanError),
        ("vkCreateComputePipelines", "VkErrorDeviceLost", errors.DeviceLost),
        ("vkCreateComputePipelines", "VkErrorOutOfHostMemory", errors.OutOfMemory),
        ("vkCreateShaderModule", "VkErrorInvalidShaderNv", errors.VulkanError),
        ("vkCreatePipelineLayout", "VkErrorOutOfHostMemory", errors.OutOfMemory),
    ],
)
def test_refused_pipelines_leave_nothing(
    device: Device,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    raised: str,
    kind: type[errors.VulkanError],
) -> None:
    def fail(*_: Any) -> None:
        raise getattr(vulkan, raised)

    specs = [affine_spec(), replace(affine_spec(), name="other")]
    with monkeypatch.context() as patch:
        patch.setattr(vulkan, function, fail)
        with pytest.raises(errors.VulkanError, match=f"{function} failed") as caught:
            make_kernels(device, specs)
    assert type(caught.value) is kind
    assert caught.value.call == function
    assert len(make_kernels(device, specs)) == 2  # the device is still good


def test_pipelines_made_before_a_failure_are_freed(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = vulkan.vkCreateComputePipelines

    def first_only(*args: Any) -> Any:
        real(args[0], args[1], 1, args[3][:1], args[4], args[5])
        raise vulkan.VkErrorUnknown

    monkeypatch.setattr(vulkan, "vkCreateComputePipelines", first_only)
    with pytest.raises(errors.VulkanError, match=r"VK_ERROR_UNKNOWN \(other\)"):
        make_kernels(device, [affine_spec(), replace(affine_spec(), name="other")])
