"""Device memory: the one place that calls vkAllocateMemory.

``Allocator.allocate(requirements, host) -> Allocation`` and ``free(allocation)``. Each
allocation is a vkAllocateMemory of its own; a smarter scheme (one block by lifetimes) changes
this module alone: resources bind at ``Allocation.offset`` and ask nothing else of it.
``live_bytes`` and ``live_count`` say what is allocated now.
"""

from __future__ import annotations

from dataclasses import dataclass

from .api import Handle, Vulkan
from .errors import OutOfMemory

_ANY_TYPE = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Allocation:
    """``size`` bytes at ``offset`` of ``memory``; ``mapped`` is a writable buffer or None."""

    memory: Handle
    offset: int
    size: int
    mapped: Handle


class Allocator:
    """Allocates from the memory types of one device."""

    def __init__(self, api: Vulkan, device: Handle, physical: Handle) -> None:
        self.live_bytes = 0
        self.live_count = 0
        self._api = api
        self._device = device
        memory = api.vkGetPhysicalDeviceMemoryProperties(physical)
        self._heaps = [memory.memoryHeaps[i].size for i in range(memory.memoryHeapCount)]
        self._types = [
            (memory.memoryTypes[i].propertyFlags, memory.memoryTypes[i].heapIndex)
            for i in range(memory.memoryTypeCount)
        ]

    def check_fits(self, size: int, host: bool, type_bits: int = _ANY_TYPE) -> int:
        """Return the memory type for ``size`` bytes, one of those in ``type_bits``.

        Raises:
            OutOfMemory: its whole heap is smaller (valid usage of vkAllocateMemory).
        """
        index = self._pick(type_bits, host)
        heap_size = self._heaps[self._types[index][1]]
        if size > heap_size:
            raise OutOfMemory("vkAllocateMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", size, heap_size)
        return index

    def allocate(self, requirements: Handle, host: bool) -> Allocation:
        """Allocate memory for a buffer or image; ``host``: mapped, coherent host memory.

        Raises:
            OutOfMemory: with the size asked and that of the heap.
        """
        api, size = self._api, requirements.size
        index = self.check_fits(size, host, requirements.memoryTypeBits)
        create = api.VkMemoryAllocateInfo(allocationSize=size, memoryTypeIndex=index)
        try:
            memory = api.vkAllocateMemory(self._device, create, None)
        except OutOfMemory as error:
            heap_size = self._heaps[self._types[index][1]]
            raise OutOfMemory(error.call, error.result, size, heap_size) from error
        try:
            mapped = api.vkMapMemory(self._device, memory, 0, size, 0) if host else None
        except BaseException:
            api.vkFreeMemory(self._device, memory, None)
            raise
        self.live_bytes += size
        self.live_count += 1
        return Allocation(memory, 0, size, mapped)

    def free(self, allocation: Allocation) -> None:
        self._api.vkFreeMemory(self._device, allocation.memory, None)
        self.live_bytes -= allocation.size
        self.live_count -= 1

    def _pick(self, type_bits: int, host: bool) -> int:
        api = self._api
        local = api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
        visible = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT
        coherent = api.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
        cached = api.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
        known = local | visible | coherent | cached

        def rank(index: int) -> tuple[int, ...]:
            flags = self._types[index][0]
            # Host: cached, or reading back takes ages; not in the small window onto the GPU's
            # memory. Device: its own memory, and not that window either.
            if host:
                return (not flags & cached, bool(flags & local), index)
            return (not flags & local, bool(flags & visible), index)

        # Other flags (protected, lazily allocated, AMD's device coherent) need special care;
        # Vulkan promises a host-visible coherent type and a type for every resource without.
        candidates = [
            index
            for index, (flags, _) in enumerate(self._types)
            if type_bits >> index & 1
            and not flags & ~known
            and (not host or (flags & visible and flags & coherent))
        ]
        return min(candidates, key=rank)
