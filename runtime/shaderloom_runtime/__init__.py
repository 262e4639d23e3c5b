"""A small Vulkan runtime for the shaders that shaderloom generates."""

from .device import Device, list_devices, open_device
from .errors import ShaderloomError
from .ops import binary, clamp, conv2d

__all__ = [
    "Device",
    "ShaderloomError",
    "binary",
    "clamp",
    "conv2d",
    "list_devices",
    "open_device",
]
