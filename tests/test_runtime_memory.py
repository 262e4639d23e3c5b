"""Buffers and images: contents, limits, failures, leaks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import vulkan
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_support import resident_bytes, validated_device
from shaderloom_runtime import errors
from shaderloom_runtime.allocator import Allocator
from shaderloom_runtime.api import load
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.memory import Buffer, Image

RANDOM = np.random.default_rng(7)


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


@settings(max_examples=20, deadline=None)
@given(
    host=st.booleans(),
    size=st.integers(1, 100),
    pieces=st.lists(st.tuples(st.integers(0, 99), st.binary(max_size=40)), max_size=4),
)
def test_buffer_is_an_array_of_bytes(
    device: Device, host: bool, size: int, pieces: list[tuple[int, bytes]]
) -> None:
    model = bytearray(size)
    with Buffer(device, size, host) as buffer:
        buffer.write(bytes(model))
        for offset, data in pieces:
            if offset + len(data) <= size:
                buffer.write(data, offset)
                model[offset : offset + len(data)] = data
            else:
                with pytest.raises(errors.InvalidUse, match=f"of a buffer of {size} bytes"):
                    buffer.write(data, offset)
        assert buffer.read(np.uint8, (size,)).tobytes() == model
        assert (
            buffer.read(np.uint8, (size // 2,), size // 2).tobytes()
            == (model[size // 2 : size // 2 * 2])
        )


@pytest.mark.parametrize("host", [False, True])
def test_buffer_takes_arrays_of_any_layout(device: Device, host: bool) -> None:
    array = RANDOM.random((3, 4, 5)).astype(np.float16)
    turned = array.transpose(2, 0, 1)
    with Buffer(device, array.nbytes, host) as buffer:
        buffer.write(turned)
        assert np.array_equal(buffer.read(np.float16, turned.shape), turned)
        with pytest.raises(errors.InvalidUse, match="bytes 2 to 122 of a buffer of 120 bytes"):
            buffer.read(np.float16, (60,), 2)
        with pytest.raises(errors.InvalidUse, match="bytes -1 to 0"):
            buffer.read(np.uint8, (1,), -1)


def test_empty_buffer_has_memory_for_a_uniform_block(device: Device) -> None:
    with Buffer(device, 0) as buffer:
        assert (buffer.size, buffer.capacity) == (0, 16)
        buffer.write(b"")
        assert buffer.read(np.float32, (0, 3)).shape == (0, 3)
    with Buffer(device, 28) as buffer:
        assert (buffer.size, buffer.capacity) == (28, 32)
    with pytest.raises(errors.InvalidUse, match="a buffer of -1 bytes"):
        Buffer(device, -1)


@pytest.mark.parametrize("dtype", ["float", "half"])
@pytest.mark.parametrize("size", [(5, 3), (1, 1), (7, 3, 2), (1, 1, 1)])
def test_image_round_trip(device: Device, size: tuple[int, ...], dtype: str) -> None:
    with Image(device, size, dtype) as image:
        assert image.shape == (*size[::-1], 4)
        array = RANDOM.standard_normal(image.shape)
        array.flat[0] = np.nan  # tests poison outputs with it
        stored = array.astype(np.float32 if dtype == "float" else np.float16)
        image.write(stored)
        read = image.read()
        assert read.dtype == stored.dtype
        assert np.array_equal(read, stored, equal_nan=True)


def test_image_refuses_what_it_cannot_be(device: Device) -> None:
    flat, deep = device.info.limits.max_image_2d, device.info.limits.max_image_3d
    past: list[tuple[tuple[int, ...], int]]
    past = [((flat + 1, 1), flat), ((1, 1, deep + 1), deep), ((4, 0), flat)]
    for size, limit in past:
        with pytest.raises(errors.InvalidUse, match=f"each axis takes 1 to {limit}"):
            Image(device, size)
    unknown: list[tuple[tuple[int, ...], str]] = [((4,), "float"), ((4, 4), "double")]
    for size, dtype in unknown:
        with pytest.raises(errors.InvalidUse, match="an image of size"):
            Image(device, size, dtype)
    with Image(device, (4, 2), "half") as image:
        for wrong in (np.zeros((2, 4, 4), np.float32), np.zeros((4, 2, 4), np.float16)):
            with pytest.raises(errors.InvalidUse, match="half image of"):
                image.write(wrong)


def test_closed_resources_refuse_use(device: Device) -> None:
    buffer, image = Buffer(device, 16), Image(device, (1, 1))
    for resource in (buffer, image):
        resource.close()
        resource.close()
    with pytest.raises(errors.InvalidUse, match="this Buffer is closed"):
        buffer.write(b"x")
    with pytest.raises(errors.InvalidUse, match="this Image is closed"):
        image.read()


@pytest.mark.parametrize("host", [False, True])
def test_absurd_size_is_out_of_memory(device: Device, host: bool) -> None:
    before = device.allocator.live_count
    with pytest.raises(errors.OutOfMemory) as caught:
        Buffer(device, 2**62, host)
    assert caught.value.size == 2**62
    assert 0 < caught.value.heap_size < 2**62
    assert str(caught.value) == (
        "vkAllocateMemory failed: VK_ERROR_OUT_OF_DEVICE_MEMORY "
        f"({2**62} bytes asked of a heap of {caught.value.heap_size} bytes)"
    )
    assert device.allocator.live_count == before


@pytest.mark.parametrize(
    ("function", "raised"),
    [
        ("vkAllocateMemory", vulkan.VkErrorOutOfDeviceMemory),
        ("vkAllocateMemory", vulkan.VkErrorOutOfHostMemory),
        ("vkMapMemory", vulkan.VkErrorOutOfHostMemory),
        ("vkBindBufferMemory", vulkan.VkErrorOutOfDeviceMemory),
    ],
)
def test_out_of_memory_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, function: str, raised: type[Exception]
) -> None:
    # Simulated: the software device hands out more memory than there is.
    def fail(*_: Any) -> None:
        raise raised

    with validated_device() as device:
        monkeypatch.setattr(vulkan, function, fail)
        with pytest.raises(errors.OutOfMemory, match=f"{function} failed") as caught:
            Buffer(device, 4096, host=True)
        if function == "vkAllocateMemory":
            assert caught.value.size >= 4096
            assert caught.value.heap_size > 4096
        monkeypatch.undo()
        assert (device.allocator.live_count, device.allocator.live_bytes) == (0, 0)


def test_image_out_of_memory_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise vulkan.VkErrorOutOfDeviceMemory

    with validated_device() as device:
        for function in ("vkCreateImage", "vkAllocateMemory", "vkCreateImageView", "vkQueueSubmit"):
            with monkeypatch.context() as patch:
                patch.setattr(vulkan, function, fail)
                with pytest.raises(errors.OutOfMemory, match=f"{function} failed"):
                    Image(device, (8, 8, 8))
            assert device.allocator.live_count == 0


def fake_memory(*types: tuple[int, int]) -> Any:
    """Two heaps, the GPU's of 1 GiB and the host's of 64 GiB, and types (flags, heap)."""
    memory = load().ffi.new("VkPhysicalDeviceMemoryProperties*")
    memory.memoryHeapCount, memory.memoryTypeCount = 2, len(types)
    memory.memoryHeaps[0].size, memory.memoryHeaps[1].size = 2**30, 2**36
    for i, (flags, heap) in enumerate(types):
        memory.memoryTypes[i].propertyFlags, memory.memoryTypes[i].heapIndex = flags, heap
    return memory


def test_memory_types_of_a_discrete_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    local, visible, coherent, cached, amd = 1, 2, 4, 8, 0x40
    memory = fake_memory(
        (0, 1),
        (local | visible | coherent | amd, 0),  # needs a feature that is not switched on
        (local | visible | coherent, 0),  # the window
        (local, 0),
        (visible | coherent, 1),
        (visible | cached, 1),  # not coherent
        (visible | coherent | cached, 1),
    )
    monkeypatch.setattr(vulkan, "vkGetPhysicalDeviceMemoryProperties", lambda _: memory)
    allocator = Allocator(load(), None, None)
    assert allocator.check_fits(1, host=False) == 3
    assert allocator.check_fits(1, host=True) == 6
    assert allocator.check_fits(1, host=True, type_bits=0b0000111) == 2
    assert allocator.check_fits(2**33, host=True) == 6
    with pytest.raises(errors.OutOfMemory, match=f"heap of {2**30} bytes"):
        allocator.check_fits(2**33, host=False)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thousands_of_buffers_leak_nothing() -> None:
    with open_device() as device:

        def rounds(count: int) -> None:
            for i in range(count):
                with Buffer(device, 1 << 16, host=i % 2 == 0) as buffer:
                    if i % 64 == 0:
                        buffer.write(bytes(1 << 16))

        rounds(200)
        before = resident_bytes()
        rounds(4000)
        assert resident_bytes() - before < 8 * 2**20  # 4,000 buffers hold 250 MiB
        assert (device.allocator.live_count, device.allocator.live_bytes) == (0, 0)


def test_device_closes_what_is_left_open() -> None:
    with validated_device() as device:
        left = [Buffer(device, 64), Image(device, (2, 2)), Buffer(device, 64, host=True)]
        assert device.allocator.live_count == 3
    assert all(resource.closed for resource in left)
    assert device.allocator.live_count == 0
