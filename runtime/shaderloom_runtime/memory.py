"""Buffers and images, filled from and read into NumPy arrays.

::

    weights = Buffer(device, 4096)                 # device memory; storage or uniform buffer
    sizes = Buffer(device, 16, host=True)          # mapped; rewritten without a submission
    weights.write(array); weights.read(np.float32, (32, 32)); sizes.write(struct.pack("4i", ...))
    image = Image(device, (w, h, d), "half")       # texture3d, rgba16f; (w, h): texture2d
    image.write(array)                             # (d, h, w, 4) or (h, w, 4), float16
    image.read()

Device memory is never mapped: its contents travel through a staging buffer. Images stay in
VK_IMAGE_LAYOUT_GENERAL from creation on. Writes and reads wait for their end.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .api import Handle
from .device import Device, Resource
from .errors import InvalidUse

# Uniform blocks are declared in multiples of 16 bytes (std140), so buffers are allocated so.
_ROUND = 16
DTYPES: dict[str, np.dtype[Any]] = {  # of what a tensor of that dtype holds
    "float": np.dtype(np.float32),
    "half": np.dtype(np.float16),
}
TEXELS = {**DTYPES, "uint": np.dtype(np.uint32)}  # of what an image does: words of weights too


class Buffer(Resource):
    """``size`` bytes of storage, uniform and transfer buffer; ``host``: mapped host memory.

    Raises:
        InvalidUse: a negative size.
        OutOfMemory: with the size asked and that of the heap.
    """

    def __init__(self, device: Device, size: int, host: bool = False) -> None:
        if size < 0:
            raise InvalidUse(f"a buffer of {size} bytes")
        self.size = size
        self.capacity = max(_ROUND, -(-size // _ROUND) * _ROUND)
        device.allocator.check_fits(self.capacity, host)
        api = device.api
        usage = (
            api.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
            | api.VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT
            | api.VK_BUFFER_USAGE_TRANSFER_SRC_BIT
            | api.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        )
        with ExitStack() as stack:
            create = api.VkBufferCreateInfo(size=self.capacity, usage=usage)
            self.handle = api.vkCreateBuffer(device.handle, create, None)
            stack.callback(api.vkDestroyBuffer, device.handle, self.handle, None)
            needs = api.vkGetBufferMemoryRequirements(device.handle, self.handle)
            self.allocation = device.allocator.allocate(needs, host)
            stack.callback(device.allocator.free, self.allocation)
            api.vkBindBufferMemory(
                device.handle, self.handle, self.allocation.memory, self.allocation.offset
            )
            super().__init__(device, stack)

    def write(self, data: bytes | NDArray[np.generic], offset: int = 0) -> None:
        """Copy ``data`` to byte ``offset``.

        Raises:
            InvalidUse: it does not fit, or the buffer is closed.
        """
        flat = _as_bytes(data)
        self._check_range(offset, flat.size)
        if flat.size == 0:
            return
        if self.allocation.mapped is not None:
            self._mapped()[offset : offset + flat.size] = flat
            return
        with Buffer(self.device, flat.size, host=True) as staging:
            staging.write(data)
            copy = self.device.api.VkBufferCopy(dstOffset=offset, size=flat.size)
            self._copy(staging, self, copy)

    def read(
        self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0
    ) -> NDArray[np.generic]:
        """Return a copy of the bytes from ``offset`` as an array.

        Raises:
            InvalidUse: it reaches past the end, or the buffer is closed.
        """
        result = np.empty(shape, dtype)
        self._check_range(offset, result.nbytes)
        if result.nbytes == 0:
            return result
        if self.allocation.mapped is not None:
            part = self._mapped()[offset : offset + result.nbytes]
            result.reshape(-1).view(np.uint8)[:] = part
            return result
        with Buffer(self.device, result.nbytes, host=True) as staging:
            copy = self.device.api.VkBufferCopy(srcOffset=offset, size=result.nbytes)
            self._copy(self, staging, copy)
            return staging.read(dtype, shape)

    def _copy(self, source: Buffer, target: Buffer, region: Handle) -> None:
        api = self.device.api
        self.device.run_once(
            lambda commands: api.vkCmdCopyBuffer(
                commands, source.handle, target.handle, 1, [region]
            )
        )

    def _mapped(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.allocation.mapped, np.uint8)

    def _check_range(self, offset: int, count: int) -> None:
        self.check_open()
        if offset < 0 or offset + count > self.size:
            raise InvalidUse(f"bytes {offset} to {offset + count} of a buffer of {self.size} bytes")


class Image(Resource):
    """A texture of four-lane texels, for sampling (texelFetch), storing and copying.

    ``size`` is (width, height) for texture2d or (width, height, depth) for texture3d, in
    texels; ``dtype`` "float" is rgba32f, "half" rgba16f, "uint" rgba32ui. Its contents start
    undefined.

    Raises:
        InvalidUse: an axis below 1 or past the device's limit, or an unknown dtype.
        OutOfMemory: with the size asked and that of the heap.
    """

    def __init__(self, device: Device, size: tuple[int, ...], dtype: str = "float") -> None:
        if dtype not in TEXELS or len(size) not in (2, 3):
            raise InvalidUse(f"an image of size {size} and dtype {dtype!r}")
        limits = device.info.limits
        limit = limits.max_image_2d if len(size) == 2 else limits.max_image_3d
        if not all(1 <= axis <= limit for axis in size):
            raise InvalidUse(f"an image of {size} texels; each axis takes 1 to {limit}")
        self.size = size
        self.dtype = dtype
        self.shape = (*reversed(size), 4)  # of the array, outermost first
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * TEXELS[dtype].itemsize
        device.allocator.check_fits(self.nbytes, host=False)
        with ExitStack() as stack:
            self._create(device, stack)
            super().__init__(device, stack)

    def _create(self, device: Device, stack: ExitStack) -> None:
        api = device.api
        flat = len(self.size) == 2
        formats = {
            "float": api.VK_FORMAT_R32G32B32A32_SFLOAT,
            "half": api.VK_FORMAT_R16G16B16A16_SFLOAT,
            "uint": api.VK_FORMAT_R32G32B32A32_UINT,
        }
        width, height, depth = self.size if not flat else (*self.size, 1)
        self._extent = api.VkExtent3D(width, height, depth)
        create = api.VkImageCreateInfo(
            imageType=api.VK_IMAGE_TYPE_2D if flat else api.VK_IMAGE_TYPE_3D,
            format=formats[self.dtype],
            extent=self._extent,
            mipLevels=1,
            arrayLayers=1,
            samples=api.VK_SAMPLE_COUNT_1_BIT,
            tiling=api.VK_IMAGE_TILING_OPTIMAL,
            usage=api.VK_IMAGE_USAGE_STORAGE_BIT
            | api.VK_IMAGE_USAGE_SAMPLED_BIT
            | api.VK_IMAGE_USAGE_TRANSFER_SRC_BIT
            | api.VK_IMAGE_USAGE_TRANSFER_DST_BIT,
            initialLayout=api.VK_IMAGE_LAYOUT_UNDEFINED,
        )
        self.handle = api.vkCreateImage(device.handle, create, None)
        stack.callback(api.vkDestroyImage, device.handle, self.handle, None)
        needs = api.vkGetImageMemoryRequirements(device.handle, self.handle)
        self.allocation = device.allocator.allocate(needs, host=False)
        stack.callback(device.allocator.free, self.allocation)
        api.vkBindImageMemory(
            device.handle, self.handle, self.allocation.memory, self.allocation.offset
        )
        whole = api.VkImageSubresourceRange(
            aspectMask=api.VK_IMAGE_ASPECT_COLOR_BIT, levelCount=1, layerCount=1
        )
        view = api.VkImageViewCreateInfo(
            image=self.handle,
            viewType=api.VK_IMAGE_VIEW_TYPE_2D if flat else api.VK_IMAGE_VIEW_TYPE_3D,
            format=formats[self.dtype],
            subresourceRange=whole,
        )
        self.view = api.vkCreateImageView(device.handle, view, None)
        stack.callback(api.vkDestroyImageView, device.handle, self.view, None)
        self._to_general(device, whole)

    def _to_general(self, device: Device, whole: Handle) -> None:
        api = device.api
        change = api.VkImageMemoryBarrier(
            dstAccessMask=api.VK_ACCESS_TRANSFER_WRITE_BIT,
            oldLayout=api.VK_IMAGE_LAYOUT_UNDEFINED,
            newLayout=api.VK_IMAGE_LAYOUT_GENERAL,
            srcQueueFamilyIndex=api.VK_QUEUE_FAMILY_IGNORED,
            dstQueueFamilyIndex=api.VK_QUEUE_FAMILY_IGNORED,
            image=self.handle,
            subresourceRange=whole,
        )
        stage = api.VK_PIPELINE_STAGE_TRANSFER_BIT
        device.run_once(
            lambda commands: api.vkCmdPipelineBarrier(
                commands, stage, stage, 0, 0, None, 0, None, 1, [change]
            )
        )

    def write(self, data: NDArray[np.generic]) -> None:
        """Fill the image from an array of shape ``self.shape`` and its dtype.

        Raises:
            InvalidUse: another shape or dtype, or the image is closed.
        """
        self.check_open()
        if data.shape != self.shape or data.dtype != TEXELS[self.dtype]:
            raise InvalidUse(
                f"{data.dtype} array of shape {data.shape} for a {self.dtype} image of {self.shape}"
            )
        api, region = self.device.api, self._region()
        layout = api.VK_IMAGE_LAYOUT_GENERAL
        with Buffer(self.device, self.nbytes, host=True) as staging:
            staging.write(data)
            self.device.run_once(
                lambda commands: api.vkCmdCopyBufferToImage(
                    commands, staging.handle, self.handle, layout, 1, [region]
                )
            )

    def read(self) -> NDArray[np.generic]:
        """Return the contents as an array of shape ``self.shape``."""
        self.check_open()
        api, region = self.device.api, self._region()
        layout = api.VK_IMAGE_LAYOUT_GENERAL
        with Buffer(self.device, self.nbytes, host=True) as staging:
            self.device.run_once(
                lambda commands: api.vkCmdCopyImageToBuffer(
                    commands, self.handle, layout, staging.handle, 1, [region]
                )
            )
            return staging.read(TEXELS[self.dtype], self.shape)

    def _region(self) -> Handle:
        api = self.device.api
        layers = api.VkImageSubresourceLayers(
            aspectMask=api.VK_IMAGE_ASPECT_COLOR_BIT, layerCount=1
        )
        return api.VkBufferImageCopy(imageSubresource=layers, imageExtent=self._extent)


def _as_bytes(data: bytes | NDArray[np.generic]) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)
