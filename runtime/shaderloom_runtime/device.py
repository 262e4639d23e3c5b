"""A logical device with one compute queue; it owns everything made from it.

::

    with open_device(validation=True) as device:   # or open_device("nvidia"), open_device(0)
        device.info.limits.max_invocations         # see info.DeviceInfo
        device.enabled                             # the features that are switched on
        device.require("linear_coopmat", ["cooperativeMatrix"])
        ...                                        # memory.py, kernel.py, submit.py
    # all buffers, images, kernels and recordings are closed here, newest first
    assert device.messages == []                   # what validation said

``Resource`` is the base of what a device owns. ``Device.run_once(encode)`` records, submits
and waits for commands that are used once; ``Device.submit(commands)`` submits recorded ones.
Submissions wait for their end, so one fence serves all of them.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from .allocator import Allocator
from .api import Handle, Vulkan
from .errors import InvalidUse, MissingFeature, NoDriver
from .features import enable_chain, needs_no_switch, younger_than
from .info import DeviceInfo, choose
from .instance import Instance, list_devices, open_instance
from .registry import needed_features

if TYPE_CHECKING:
    from .kernel import Kernel, KernelSpec

__all__ = ["Device", "Resource", "list_devices", "open_device"]

_Closing = TypeVar("_Closing", bound="Closing")

_FOREVER = 2**64 - 1  # nanoseconds


class Closing(ABC):
    """What is closed by hand or by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; a second call does nothing."""

    def __enter__(self: _Closing) -> _Closing:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()


class Resource(Closing):
    """Something that a device owns: closed by hand, by ``with``, or by the device."""

    def __init__(self, device: Device, stack: ExitStack) -> None:
        """Take over ``stack``, which frees what the subclass made; then the device adopts it."""
        self.device = device
        self.closed = False
        self._stack = stack.pop_all()
        device.adopt(self)

    def close(self) -> None:
        """Free everything; a second call does nothing."""
        self.closed = True
        self._stack.close()
        self.device.forget(self)

    def check_open(self) -> None:
        """Raise InvalidUse if this was closed."""
        if self.closed:
            raise InvalidUse(f"this {type(self).__name__} is closed")


class Device(Closing):
    """An open device; made by ``open_device``."""

    def __init__(
        self, instance: Instance, info: DeviceInfo, physical: Handle, features: Collection[str]
    ) -> None:
        self.api: Vulkan = instance.api
        self.info = info
        wanted = frozenset(n for n in info.features if n in features or needs_no_switch(n))
        # What the validation layer is too old to know stays off: it would complain.
        self.withheld: frozenset[str] = frozenset()
        if any(instance.layer_version):
            self.withheld = wanted & younger_than(instance.layer_version)
        self.enabled = wanted - self.withheld
        self.messages = instance.messages
        self.kernels: dict[KernelSpec, Kernel] = {}  # the cache of kernel.cached_kernel
        self.lock = threading.RLock()  # held by a Batch: Vulkan wants one thread at a time
        self.closed = False
        self._resources: dict[int, Resource] = {}
        with ExitStack() as stack:
            stack.callback(instance.close)
            self._create(stack, physical)
            self.allocator = Allocator(self.api, self.handle, physical)
            self._stack = stack.pop_all()

    def _create(self, stack: ExitStack, physical: Handle) -> None:
        api = self.api
        family, self.timestamp_bits = _compute_family(api, physical, self.info)
        structs, extensions = enable_chain(api, self.enabled, self.info.api_version)
        queue = api.VkDeviceQueueCreateInfo(
            queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0]
        )
        create = api.VkDeviceCreateInfo(
            pNext=structs[-1],
            queueCreateInfoCount=1,
            pQueueCreateInfos=[queue],
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=extensions,
        )
        self._handle = api.vkCreateDevice(physical, create, None)
        stack.callback(api.vkDestroyDevice, self.handle, None)
        self.queue = api.vkGetDeviceQueue(self.handle, family, 0)
        pool = api.VkCommandPoolCreateInfo(queueFamilyIndex=family)
        self.command_pool = api.vkCreateCommandPool(self.handle, pool, None)
        stack.callback(api.vkDestroyCommandPool, self.handle, self.command_pool, None)
        self._fence = api.vkCreateFence(self.handle, api.VkFenceCreateInfo(), None)
        stack.callback(api.vkDestroyFence, self.handle, self._fence, None)
        # All zero is nearest filtering; shaders use texelFetch, which looks at no other setting.
        self.sampler = api.vkCreateSampler(self.handle, api.VkSamplerCreateInfo(), None)
        stack.callback(api.vkDestroySampler, self.handle, self.sampler, None)

    @property
    def handle(self) -> Handle:
        """The VkDevice; raises InvalidUse after ``close``, as drivers would crash."""
        if self.closed:
            raise InvalidUse(f"this device is closed: {self.info.name}")
        return self._handle

    def require(self, variant: str, features: Iterable[str]) -> None:
        """Raise MissingFeature, with all that is missing, unless ``features`` are enabled."""
        missing = sorted(set(features) - self.enabled)
        if missing:
            raise MissingFeature(variant, missing, self.info.name)

    def submit(self, commands: Handle) -> None:
        """Submit a recorded command buffer and wait for its end."""
        api = self.api
        api.vkResetFences(self.handle, 1, [self._fence])
        info = api.VkSubmitInfo(commandBufferCount=1, pCommandBuffers=[commands])
        api.vkQueueSubmit(self.queue, 1, [info], self._fence)
        # One endless wait: an interrupt is raised after it, when the queue is idle again.
        api.vkWaitForFences(self.handle, 1, [self._fence], True, _FOREVER)

    def run_once(self, encode: Callable[[Handle], None]) -> None:
        """Let ``encode`` record commands between two full barriers, run them and wait."""
        with ExitStack() as stack:
            commands = self.new_commands(stack)
            self.api.vkBeginCommandBuffer(commands, self.api.VkCommandBufferBeginInfo())
            self.barrier(commands)
            encode(commands)
            self.barrier(commands, to_host=True)
            self.api.vkEndCommandBuffer(commands)
            self.submit(commands)

    def new_commands(self, stack: ExitStack) -> Handle:
        """Return a new command buffer that ``stack`` frees."""
        api = self.api
        create = api.VkCommandBufferAllocateInfo(
            commandPool=self.command_pool,
            level=api.VK_COMMAND_BUFFER_LEVEL_PRIMARY,
            commandBufferCount=1,
        )
        commands = api.vkAllocateCommandBuffers(self.handle, create)[0]
        stack.callback(api.vkFreeCommandBuffers, self.handle, self.command_pool, 1, [commands])
        return commands

    def barrier(self, commands: Handle, to_host: bool = False) -> None:
        """Record: all that came before is finished and visible to all that follows.

        Covers shaders and copies, and the host's reads too with ``to_host``.
        """
        api = self.api
        writes = api.VK_ACCESS_SHADER_WRITE_BIT | api.VK_ACCESS_TRANSFER_WRITE_BIT
        access = (
            writes
            | api.VK_ACCESS_SHADER_READ_BIT
            | api.VK_ACCESS_UNIFORM_READ_BIT
            | api.VK_ACCESS_TRANSFER_READ_BIT
        )
        stages = api.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | api.VK_PIPELINE_STAGE_TRANSFER_BIT
        after = stages
        if to_host:
            after |= api.VK_PIPELINE_STAGE_HOST_BIT
            access |= api.VK_ACCESS_HOST_READ_BIT
        memory = api.VkMemoryBarrier(srcAccessMask=writes, dstAccessMask=access)
        api.vkCmdPipelineBarrier(commands, stages, after, 0, 1, [memory], 0, None, 0, None)

    def adopt(self, resource: Resource) -> None:
        self._resources[id(resource)] = resource

    def forget(self, resource: Resource) -> None:
        self._resources.pop(id(resource), None)

    def close(self) -> None:
        """Close all resources, newest first, then the device; a second call does nothing."""
        with self.lock:
            while self._resources:
                next(reversed(self._resources.values())).close()
            self.closed = True
            self._stack.close()


def open_device(
    select: str | int | None = None,
    validation: bool = False,
    features: Collection[str] | None = None,
) -> Device:
    """Open a device with those of ``features`` that it has, by default all that a shader needs.

    No more than that: a feature younger than the validation layer makes it complain.

    ``select`` is an index or a part of a name; without it the environment variable
    SHADERLOOM_DEVICE says, and without that the first of: discrete, integrated, virtual GPU,
    software. ``validation`` collects the validation layer's warnings and errors,
    synchronization included, in ``Device.messages``.

    Raises:
        NoLoader, NoDriver, NoValidationLayer: as ``instance.open_instance``.
        NoDevice: no device of the asked name or index.
        NotBuilt: no manifest says what the shaders need.
        VulkanError: the device could not be opened.
    """
    if features is None:
        features = needed_features()
    if select is None:
        select = os.environ.get("SHADERLOOM_DEVICE") or None
    instance = open_instance(validation)
    with ExitStack() as stack:
        stack.callback(instance.close)
        info = choose([found for found, _ in instance.devices], select)
        stack.pop_all()
    return Device(instance, info, instance.devices[info.index][1], features)


def _compute_family(api: Vulkan, physical: Handle, info: DeviceInfo) -> tuple[int, int]:
    """Return the first queue family that computes, and how many bits its timestamps have."""
    families = api.vkGetPhysicalDeviceQueueFamilyProperties(physical)
    for index, family in enumerate(families):
        if family.queueFlags & api.VK_QUEUE_COMPUTE_BIT:
            return index, int(family.timestampValidBits)
    raise NoDriver(f"{info.name} has no queue that can compute")
