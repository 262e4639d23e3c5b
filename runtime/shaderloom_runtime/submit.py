"""Dispatches, recorded once and run as often as wanted.

::

    steps = [Step(kernel, ((0, output), (1, source)), grid=(4, 2, 1), push_constants=b"...")]
    with Recording(device, steps, timestamps=True) as recording:
        elapsed = recording.run()                  # waits; nanoseconds on the GPU, or None
        recording.run()                            # the same commands again

A recording keeps what it was made from: resources may be rewritten between runs (uniform
buffers), not closed. A step whose grid has a zero is not encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from .api import Handle
from .device import Device, Resource
from .errors import InvalidUse
from .kernel import Kernel, descriptor_type
from .memory import Buffer, Image

_WRITABLE = ("storage_image", "storage_buffer")
_IMAGES = ("sampled_image", "storage_image")


@dataclass(frozen=True)
class Step:
    """One dispatch: a kernel, what its bindings are, workgroups per axis, push constants."""

    kernel: Kernel
    bindings: tuple[tuple[int, Buffer | Image], ...]
    grid: tuple[int, int, int]
    push_constants: bytes = b""


class Recording(Resource):
    """A command buffer of ``steps``, in order, with barriers between dependent ones.

    Attributes:
        encoded: how many steps have a grid without a zero.
        barriers: how many barriers stand between them.

    Raises:
        InvalidUse: bindings, push constants or a grid do not fit the kernel or the device, or
            ``timestamps`` on a queue without them.
    """

    def __init__(self, device: Device, steps: Sequence[Step], timestamps: bool = False) -> None:
        for step in steps:
            _check(device, step)
        if timestamps and not device.timestamp_bits:
            raise InvalidUse(f"{device.info.name} has no timestamps on its compute queue")
        encoded = [step for step in steps if 0 not in step.grid]
        self.encoded = len(encoded)
        self.barriers = 0
        self._used: set[Resource] = {resource for step in encoded for _, resource in step.bindings}
        self._used |= {step.kernel for step in encoded}
        self._queries: Handle = None
        with ExitStack() as stack:
            sets = _descriptor_sets(device, encoded, stack)
            if timestamps:
                self._queries = _timestamp_pool(device, stack)
            self._commands = device.new_commands(stack)
            self._record(device, encoded, sets)
            super().__init__(device, stack)

    def run(self) -> int | None:
        """Submit and wait; return the nanoseconds between first and last step if timed.

        Raises:
            InvalidUse: the recording or something that it uses is closed.
            DeviceLost: the device was lost.
        """
        self.check_open()
        for resource in self._used:
            resource.check_open()
        self.device.submit(self._commands)
        return self._elapsed() if self._queries is not None else None

    def _record(self, device: Device, steps: Sequence[Step], sets: Sequence[Handle]) -> None:
        api, commands = device.api, self._commands
        api.vkBeginCommandBuffer(commands, api.VkCommandBufferBeginInfo())
        device.barrier(commands)  # after the copies and dispatches of earlier submissions
        if self._queries is not None:
            api.vkCmdResetQueryPool(commands, self._queries, 0, 2)
            top = api.VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT
            api.vkCmdWriteTimestamp(commands, top, self._queries, 0)
        written: set[int] = set()
        read: set[int] = set()
        for step, descriptors in zip(steps, sets, strict=True):
            reads, writes = _accesses(step)
            if written & (reads | writes) or read & writes:
                device.barrier(commands)
                self.barriers += 1
                written, read = set(), set()
            written |= writes
            read |= reads
            _encode(device, commands, step, descriptors)
        if self._queries is not None:
            bottom = api.VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT
            api.vkCmdWriteTimestamp(commands, bottom, self._queries, 1)
        device.barrier(commands, to_host=True)
        api.vkEndCommandBuffer(commands)

    def _elapsed(self) -> int:
        device, api = self.device, self.device.api
        ticks = api.ffi.new("uint64_t[2]")
        flags = api.VK_QUERY_RESULT_64_BIT | api.VK_QUERY_RESULT_WAIT_BIT
        api.vkGetQueryPoolResults(device.handle, self._queries, 0, 2, 16, ticks, 8, flags)
        # Counters wrap around at their valid bits.
        difference: int = (ticks[1] - ticks[0]) & (2**device.timestamp_bits - 1)
        return round(difference * device.info.limits.timestamp_period)


def _check(device: Device, step: Step) -> None:
    spec, limits = step.kernel.spec, device.info.limits
    for owned in (step.kernel, *(resource for _, resource in step.bindings)):
        owned.check_open()
        if owned.device is not device:
            raise InvalidUse(f"{spec.name}: a {type(owned).__name__} of another device")
    numbers = [number for number, _ in step.bindings]
    wanted = [number for number, _ in spec.bindings]
    if sorted(numbers) != sorted(wanted):
        raise InvalidUse(f"{spec.name}: bindings {numbers} given, {wanted} declared")
    kinds = dict(spec.bindings)
    for number, resource in step.bindings:
        kind = kinds[number]
        if isinstance(resource, Image) != (kind in _IMAGES):
            given = type(resource).__name__
            raise InvalidUse(f"{spec.name}: binding {number} is a {kind}, given a {given}")
        if isinstance(resource, Buffer):
            uniform = kind == "uniform_buffer"
            most = limits.max_uniform_buffer if uniform else limits.max_storage_buffer
            if resource.size > most:
                raise InvalidUse(
                    f"{spec.name}: binding {number}: {resource.size} bytes for a {kind} of at "
                    f"most {most}"
                )
    if len(step.push_constants) != spec.push_constant_size:
        raise InvalidUse(
            f"{spec.name}: {len(step.push_constants)} bytes of push constants given, "
            f"{spec.push_constant_size} declared"
        )
    if not all(0 <= n <= most for n, most in zip(step.grid, limits.max_grid, strict=True)):
        raise InvalidUse(f"{spec.name}: grid {step.grid}, the device takes {limits.max_grid}")


def _accesses(step: Step) -> tuple[set[int], set[int]]:
    """Return what a step reads and may write, by allocation: resources may share memory."""
    spec = step.kernel.spec
    written = {n for n, kind in spec.bindings if kind in _WRITABLE and n not in spec.read_only}
    reads: set[int] = set()
    writes: set[int] = set()
    for number, resource in step.bindings:
        (writes if number in written else reads).add(id(resource.allocation))
    return reads, writes


def _encode(device: Device, commands: Handle, step: Step, descriptors: Handle) -> None:
    api, kernel = device.api, step.kernel
    point = api.VK_PIPELINE_BIND_POINT_COMPUTE
    api.vkCmdBindPipeline(commands, point, kernel.pipeline)
    api.vkCmdBindDescriptorSets(commands, point, kernel.layout, 0, 1, [descriptors], 0, None)
    if step.push_constants:
        values = api.ffi.new("char[]", step.push_constants)
        size = len(step.push_constants)
        stage = api.VK_SHADER_STAGE_COMPUTE_BIT
        api.vkCmdPushConstants(commands, kernel.layout, stage, 0, size, values)
    api.vkCmdDispatch(commands, *step.grid)


def _descriptor_sets(device: Device, steps: Sequence[Step], stack: ExitStack) -> list[Handle]:
    """Allocate one set per step, from a pool of exactly that size, and fill them all."""
    if not steps:
        return []
    api = device.api
    counts = Counter(kind for step in steps for _, kind in step.kernel.spec.bindings)
    sizes = [
        api.VkDescriptorPoolSize(type=descriptor_type(api, kind), descriptorCount=count)
        for kind, count in counts.items()
    ]
    create = api.VkDescriptorPoolCreateInfo(
        maxSets=len(steps), poolSizeCount=len(sizes), pPoolSizes=sizes
    )
    pool = api.vkCreateDescriptorPool(device.handle, create, None)
    stack.callback(api.vkDestroyDescriptorPool, device.handle, pool, None)
    allocate = api.VkDescriptorSetAllocateInfo(
        descriptorPool=pool,
        descriptorSetCount=len(steps),
        pSetLayouts=[step.kernel.set_layout for step in steps],
    )
    allocated = api.vkAllocateDescriptorSets(device.handle, allocate)
    sets = [allocated[i] for i in range(len(steps))]
    writes = [  # each write keeps its image or buffer structure alive
        _write(device, target, number, dict(step.kernel.spec.bindings)[number], resource)
        for step, target in zip(steps, sets, strict=True)
        for number, resource in step.bindings
    ]
    api.vkUpdateDescriptorSets(device.handle, len(writes), writes, 0, None)
    return sets


def _write(
    device: Device, target: Handle, number: int, kind: str, resource: Buffer | Image
) -> Handle:
    api = device.api
    images = buffers = None
    if isinstance(resource, Image):
        images = [
            api.VkDescriptorImageInfo(
                sampler=device.sampler if kind == "sampled_image" else None,
                imageView=resource.view,
                imageLayout=api.VK_IMAGE_LAYOUT_GENERAL,
            )
        ]
    else:
        buffers = [api.VkDescriptorBufferInfo(buffer=resource.handle, range=resource.capacity)]
    return api.VkWriteDescriptorSet(
        dstSet=target,
        dstBinding=number,
        descriptorCount=1,
        descriptorType=descriptor_type(api, kind),
        pImageInfo=images,
        pBufferInfo=buffers,
    )


def _timestamp_pool(device: Device, stack: ExitStack) -> Handle:
    api = device.api
    create = api.VkQueryPoolCreateInfo(queryType=api.VK_QUERY_TYPE_TIMESTAMP, queryCount=2)
    pool = api.vkCreateQueryPool(device.handle, create, None)
    stack.callback(api.vkDestroyQueryPool, device.handle, pool, None)
    return pool
