"""Dispatch records carried out on a device.

::

    with Batch(device) as batch:
        source = batch.buffer(array)                          # or batch.image(size, dtype)
        target = batch.image((w, h, d), "half")
        batch.add(pick(device, "nchw_to_texture3d", tensor_n=1, ...), {"in": source, "out": target})
        batch.run()                                           # everything at once, then waits
        target.read()
    # what the batch made is closed here; pipelines stay with the device

``pick`` asks the generated dispatcher; ``missing(...)`` says which shaders cannot run here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .device import Closing, Device
from .errors import InvalidArgument
from .info import DeviceInfo
from .kernel import KernelSpec, cached_kernel, half_matrices, lacking
from .memory import DTYPES, Buffer, Image
from .registry import Operand, Registry, Shader, load_registry
from .submit import Recording, Step

# A record of the generated dispatch.py; it is loaded at run time and so has no static type.
Dispatch = Any
Operands = Mapping[str, Buffer | Image]

# The features that come with the dispatcher's cooperative matrices (variants.yaml, device).
_COOPERATIVE = frozenset(
    ("cooperativeMatrix", "vulkanMemoryModel", "shaderFloat16", "storageBuffer16BitAccess")
)


def pick(device: Device, op: str, **problem: Any) -> tuple[Dispatch, ...]:
    """Return the dispatches of ``op`` for a problem, e.g. ``in_n=1, in_c=8, ...``.

    Raises:
        InvalidArgument: the dispatcher refuses the problem; the message is its own.
    """
    return pick_within(device, {}, op, **problem)


def pick_within(
    device: Device, limits: Mapping[str, Any], op: str, **problem: Any
) -> tuple[Dispatch, ...]:
    """Pick as if the device had other ``limits``, e.g. ``{"max_texture_2d": 64}``."""
    registry = load_registry()
    dispatch = registry.dispatch
    name = "".join(part.capitalize() for part in op.split("_"))  # NchwToTexture3d
    try:
        described = getattr(dispatch, f"{name}Problem")(**problem)
    except TypeError as error:  # an unknown field, or one that is absent
        raise InvalidArgument(f"{op}: {str(error).rpartition('__init__() ')[2]}") from error
    try:
        picked: tuple[Dispatch, ...] = getattr(dispatch, f"pick_{op}")(
            described, replace(dispatch_device(registry, device.info, device.enabled), **limits)
        )
    except dispatch.DispatchError as error:
        raise InvalidArgument(str(error)) from error
    return picked


def dispatch_device(registry: Registry, info: DeviceInfo, enabled: frozenset[str]) -> Any:
    """Return what the dispatcher must know of a device with the features ``enabled``.

    A shape of cooperative matrices counts only if a compiler knew them, so that the modules are
    there.
    """
    limits = info.limits
    x, y, z = limits.max_local_size
    grid_x, grid_y, grid_z = limits.max_grid
    subgroups = {"subgroupSizeControl", "computeFullSubgroups"} <= enabled
    built = {s.cooperative_matrix for s in registry.shaders.values() if not s.missing}
    matrices = half_matrices(info) & built if enabled >= _COOPERATIVE else frozenset()
    return registry.dispatch.Device(
        device_class=info.device_class,
        max_invocations=limits.max_invocations,
        max_local_x=x,
        max_local_y=y,
        max_local_z=z,
        max_grid_x=grid_x,
        max_grid_y=grid_y,
        max_grid_z=grid_z,
        max_texture_2d=limits.max_image_2d,
        max_texture_3d=limits.max_image_3d,
        max_storage_buffer=limits.max_storage_buffer,
        max_shared_memory=limits.max_shared_memory,
        subgroup_arithmetic="subgroupArithmetic" in enabled,
        min_subgroup=info.min_subgroup_size if subgroups else 0,
        max_subgroup=info.max_subgroup_size if subgroups else 0,
        coopmat_16x16x16="16x16x16" in matrices,
        coopmat_16x8x16="16x8x16" in matrices,
    )


def missing(registry: Registry, info: DeviceInfo, enabled: frozenset[str]) -> dict[str, str]:
    """Return each shader that a device cannot run with the features ``enabled``, and why."""
    reasons = {}
    for name, shader in registry.shaders.items():
        lacks = lacking(info, enabled, _kernel_spec(shader, b"", ()))
        if shader.missing:
            reasons[name] = f"not compiled: {shader.missing}"
        elif lacks:
            reasons[name] = f"the device lacks {', '.join(lacks)}"
    return reasons


def kernel_spec(registry: Registry, dispatch: Dispatch) -> KernelSpec:
    """Return the pipeline of a dispatch record; raises NotBuilt if it was not compiled."""
    shader = registry.shaders[dispatch.shader]
    return _kernel_spec(shader, registry.code(shader.name), dispatch.spec)


def _kernel_spec(shader: Shader, code: bytes, constants: tuple[tuple[int, int], ...]) -> KernelSpec:
    return KernelSpec(
        name=shader.name,
        code=code,
        bindings=shader.bindings,
        read_only=shader.read_only,
        push_constant_size=shader.push_constant_size,
        constants=constants,
        subgroup_size=shader.subgroup_size,
        features=shader.features,
        shared_memory=shader.shared_memory,
        cooperative_matrix=shader.cooperative_matrix,
    )


def weight_operand(dispatches: Sequence[Dispatch]) -> Operand:
    """Return how the dispatches take their weight; the last of them has it."""
    registry = load_registry()
    operand = registry.operand(dispatches[-1].shader, "weight")
    assert operand is not None, f"{dispatches[-1].shader} has no weight"
    return operand


class Batch(Closing):
    """Dispatches that run in order in one submission, and the buffers and images for them.

    In its ``with`` block no other thread uses the device: they wait for each other.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._steps: list[Step] = []
        self._stack = ExitStack()

    def buffer(self, data: NDArray[np.generic]) -> Buffer:
        """Make a device buffer that holds ``data``."""
        buffer = self._stack.enter_context(Buffer(self.device, data.nbytes))
        buffer.write(data)
        return buffer

    def empty_buffer(self, size: int) -> Buffer:
        """Make a device buffer of ``size`` undefined bytes."""
        return self._stack.enter_context(Buffer(self.device, size))

    def image(self, size: tuple[int, ...], dtype: str) -> Image:
        """Make an image of undefined contents; ``size`` in texels, (w, h) or (w, h, d)."""
        return self._stack.enter_context(Image(self.device, size, dtype))

    def output(self, dispatch: Dispatch, slot: str = "out") -> Buffer | Image:
        """Make what a dispatch writes, as its shader stores it; the contents are undefined."""
        registry = load_registry()
        shader = registry.shaders[dispatch.shader]
        operand = registry.operand(shader.name, slot)
        assert operand is not None, f"{shader.name} has no operand {slot}"
        width, height, depth = dispatch.out_extent
        if operand.storage == "texture3d":
            return self.image((width, height, depth), shader.dtype)
        if operand.storage == "texture2d":
            return self.image((width, height), shader.dtype)
        lanes = 4 if operand.storage == "vec4_buffer" else 1
        return self.empty_buffer(width * lanes * DTYPES[shader.dtype].itemsize)

    def add(self, dispatches: Sequence[Dispatch], operands: Operands) -> None:
        """Append dispatches; ``operands`` has the resource of each slot that they name.

        Raises:
            MissingFeature: the device cannot run a shader.
            NotBuilt: a shader was not compiled.
        """
        registry = load_registry()
        for dispatch in dispatches:
            bindings = [(binding, operands[slot]) for binding, slot in dispatch.operands]
            bindings += [(binding, self._uniform(data)) for binding, data in dispatch.uniforms]
            kernel = cached_kernel(self.device, kernel_spec(registry, dispatch))
            step = Step(kernel, tuple(bindings), dispatch.grid, dispatch.push_constants)
            self._steps.append(step)

    def record(self, timestamps: bool = False) -> Recording:
        """Record all that was added, to be run as often as wanted."""
        recording = Recording(self.device, self._steps, timestamps)
        return self._stack.enter_context(recording)

    def run(self) -> None:
        """Record, submit and wait."""
        self.record().run()

    def _uniform(self, data: bytes) -> Buffer:
        buffer = self._stack.enter_context(Buffer(self.device, len(data), host=True))
        buffer.write(data)
        return buffer

    def close(self) -> None:
        """Free everything and let other threads use the device."""
        self._stack.close()

    def __enter__(self) -> Batch:
        self._stack.enter_context(self.device.lock)
        return self
