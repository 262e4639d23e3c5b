"""The Vulkan binding, loaded late and with its errors translated.

``load() -> Vulkan`` imports PyPI's ``vulkan``. Every ``vk...`` function taken from the
result raises this package's errors, so no caller can forget to translate one. Structures,
constants and ``ffi`` come through unchanged.

A trap of the binding: a structure copied into another one, or into an array, leaves behind
the memory that its pointers point to. Keep every structure in a variable until the call
that uses it has returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .errors import DeviceLost, NoLoader, OutOfMemory, VulkanError

# An object of the binding (a handle, a structure); it has no static types.
Handle = Any

_OUT_OF_MEMORY = (
    "VK_ERROR_OUT_OF_HOST_MEMORY",
    "VK_ERROR_OUT_OF_DEVICE_MEMORY",
    "VK_ERROR_OUT_OF_POOL_MEMORY",
    "VK_ERROR_FRAGMENTED_POOL",
)


class Vulkan:
    """The binding's module, with functions that name themselves when they fail."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return self.guard(name, value) if name.startswith("vk") else value

    def guard(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``function`` with the binding's exceptions turned into ``VulkanError``."""

        def guarded(*args: Any) -> Any:
            try:
                return function(*args)
            except (self._module.VkError, self._module.VkException, KeyError) as error:
                raise _translated(self._module, name, error) from error

        return guarded

    def instance_function(self, instance: Handle, name: str) -> Callable[..., Any]:
        """Return a function that the binding does not export by itself."""
        return self.guard(name, self._module.vkGetInstanceProcAddr(instance, name))


def load() -> Vulkan:
    """Import the binding.

    Raises:
        NoLoader: the loader library (libvulkan.so.1, vulkan-1.dll) cannot be opened.
    """
    try:
        import vulkan  # noqa: PLC0415  (its import opens the library)
    except OSError as error:
        raise NoLoader(
            "no Vulkan loader: install libvulkan1 (Debian), vulkan-loader (Fedora) or the SDK"
        ) from error
    return Vulkan(vulkan)


def _translated(module: Any, call: str, error: Exception) -> Exception:
    if isinstance(error, KeyError):
        code = error.args[0]
        if not isinstance(code, int):
            return error
        # The binding looks results up in a table that lacks some, -1000069000 for one
        # (it holds the wrong sign), and lets the KeyError out.
        known = sorted(name for name in dir(module) if name.startswith("VK_ERROR_"))
        same = (name for name in known if getattr(module, name) in (code, -code))
        result = next(same, f"VkResult {code}")
    else:
        # VkErrorOutOfDeviceMemory -> VK_ERROR_OUT_OF_DEVICE_MEMORY
        result = re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper()
    if result in _OUT_OF_MEMORY:
        return OutOfMemory(call, result)
    if result == "VK_ERROR_DEVICE_LOST":
        return DeviceLost(call)
    return VulkanError(call, result)
