"""Everything the runtime can fail with, as one small tree of exceptions.

``ShaderloomError`` is the base. ``NoLoader``, ``NoDriver``, ``NoDevice`` and
``NoValidationLayer`` come from opening a device; ``MissingFeature`` from a variant that the
device cannot run; ``InvalidUse`` from a caller's mistake, before Vulkan sees it;
``InvalidArgument``, a ValueError too, from an argument of an op; ``NotBuilt`` from generated
data that is absent or not of one build;
``VulkanError`` from a Vulkan call, with ``OutOfMemory`` and ``DeviceLost`` below it.
"""

from __future__ import annotations

from collections.abc import Sequence


class ShaderloomError(Exception):
    """Base of all errors that the runtime raises on purpose."""


class NoLoader(ShaderloomError):
    """The Vulkan loader is not installed, or is older than Vulkan 1.1."""


class NoDriver(ShaderloomError):
    """The loader is there, but no driver that offers a device."""


class NoDevice(ShaderloomError):
    """No device matches what was asked; ``available`` holds the names of those there are."""

    def __init__(self, asked: str | int, available: Sequence[str]) -> None:
        self.asked = asked
        self.available = tuple(available)
        names = ", ".join(f"{i}: {name}" for i, name in enumerate(self.available))
        super().__init__(f"no Vulkan device {asked!r}; there are: {names}")


class NoValidationLayer(ShaderloomError):
    """Validation was asked for, but VK_LAYER_KHRONOS_validation is not installed."""


class MissingFeature(ShaderloomError):
    """A variant needs what the device lacks; ``missing`` lists all of it."""

    def __init__(self, variant: str, missing: Sequence[str], device: str) -> None:
        self.variant = variant
        self.missing = tuple(missing)
        super().__init__(f"{variant} cannot run on {device}: missing {', '.join(self.missing)}")


class InvalidUse(ShaderloomError):
    """A call that cannot be carried out, such as an unbound binding or a closed buffer."""


class InvalidArgument(ShaderloomError, ValueError):
    """An argument of an op that cannot be; the message names it and its value."""


class NotBuilt(ShaderloomError):
    """The generated data is absent, damaged, or not of one build."""


class VulkanError(ShaderloomError):
    """A Vulkan call failed: ``call`` as in "vkQueueSubmit", ``result`` as in "VK_ERROR_UNKNOWN"."""

    def __init__(self, call: str, result: str, detail: str = "") -> None:
        self.call = call
        self.result = result
        super().__init__(f"{call} failed: {result}{f' ({detail})' if detail else ''}")


class OutOfMemory(VulkanError):
    """The host or the device is out of memory; ``size`` and ``heap_size`` in bytes, 0: unknown."""

    def __init__(self, call: str, result: str, size: int = 0, heap_size: int = 0) -> None:
        self.size = size
        self.heap_size = heap_size
        detail = f"{size} bytes asked of a heap of {heap_size} bytes" if size else ""
        super().__init__(call, result, detail)


class DeviceLost(VulkanError):
    """The device was lost; close it and open it again. Its contents are gone."""

    def __init__(self, call: str) -> None:
        super().__init__(call, "VK_ERROR_DEVICE_LOST", "the device must be closed and reopened")
