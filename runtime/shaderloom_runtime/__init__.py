"""A small Vulkan runtime for the shaders that shaderloom generates."""

from .device import Device, list_devices, open_device
from .errors import ShaderloomError
from .ops import binary, clamp, conv2d
from .ops_matmul import linear, linear_q4, linear_q8, matmul

__all__ = [
    "Device",
    "ShaderloomError",
    "binary",
    "clamp",
    "conv2d",
    "linear",
    "linear_q4",
    "linear_q8",
    "list_devices",
    "matmul",
    "open_device",
]
