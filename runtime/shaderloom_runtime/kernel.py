"""Compute pipelines from SPIR-V.

::

    spec = KernelSpec("scale_float", code, ((0, "storage_image"), (1, "sampled_image")),
                      push_constant_size=8, constants=((0, 8), (3, word(True)), (4, word(0.5))))
    (kernel,) = make_kernels(device, [spec])       # all pipelines in one call

``cached_kernel(device, spec)`` makes a pipeline once for each device and gives it again later.
``word(value)`` turns a bool, int or float into the 32 bits of a specialization constant;
``pack_constants(constants)`` gives the map entries and data that Vulkan gets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from .api import Handle, Vulkan
from .device import Device, Resource
from .errors import DeviceLost, InvalidUse, MissingFeature, OutOfMemory, VulkanError
from .info import DeviceInfo

_MAGIC = 0x07230203  # the first word of a SPIR-V module
_LOCAL_SIZE_IDS = (0, 1, 2)  # specialization constants of the local size, in every shader
_WORD = 4
_DESCRIPTOR_TYPES = {
    "sampled_image": "VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER",
    "storage_image": "VK_DESCRIPTOR_TYPE_STORAGE_IMAGE",
    "storage_buffer": "VK_DESCRIPTOR_TYPE_STORAGE_BUFFER",
    "uniform_buffer": "VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER",
}


@dataclass(frozen=True)
class KernelSpec:
    """All that makes a pipeline; equal specs make equal pipelines, so it can key a cache."""

    name: str
    code: bytes = field(repr=False)  # SPIR-V
    bindings: tuple[tuple[int, str], ...]  # (number in set 0, kind); kinds: interface.Kind
    read_only: tuple[int, ...] = ()  # storage bindings that are never written: fewer barriers
    push_constant_size: int = 0  # bytes
    constants: tuple[tuple[int, int], ...] = ()  # (ID, 32 bits: see word)
    subgroup_size: int = 0  # 0: as the device likes
    features: tuple[str, ...] = ()  # names of features.py
    shared_memory: int = 0  # bytes per workgroup
    cooperative_matrix: str = ""  # of halves with fp32 sums, MxNxK, e.g. "16x8x16"


class Kernel(Resource):
    """A compute pipeline with its layouts; made by ``make_kernels``."""

    def __init__(
        self, device: Device, spec: KernelSpec, layouts: tuple[Handle, Handle], stack: ExitStack
    ) -> None:
        self.spec = spec
        self.set_layout, self.layout = layouts
        self.pipeline: Handle = None
        stack.callback(self._destroy_pipeline)
        super().__init__(device, stack)

    def _destroy_pipeline(self) -> None:
        if self.pipeline:
            self.device.api.vkDestroyPipeline(self.device.handle, self.pipeline, None)


def word(value: bool | int | float) -> int:
    """Return the 32 bits of a specialization constant: True is 1, -1 is 0xFFFFFFFF.

    Every type takes four bytes; a bool is a VkBool32 (specification, VkSpecializationMapEntry).

    Raises:
        InvalidUse: the value does not fit into 32 bits.
    """
    try:
        if isinstance(value, float):
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
        form = "<i" if value < 0 else "<I"
        return int(struct.unpack("<I", struct.pack(form, value))[0])
    except (struct.error, OverflowError) as error:
        raise InvalidUse(f"specialization constant {value} does not fit into 32 bits") from error


def pack_constants(
    constants: Sequence[tuple[int, int]],
) -> tuple[tuple[tuple[int, int, int], ...], bytes]:
    """Return the map entries (ID, offset, size), offsets 0, 4, 8, ..., and the data."""
    entries = tuple((id_, _WORD * i, _WORD) for i, (id_, _) in enumerate(constants))
    return entries, struct.pack(f"={len(constants)}I", *(bits for _, bits in constants))


def make_kernels(
    device: Device, specs: Sequence[KernelSpec], cache: Handle = None, flags: int = 0
) -> tuple[Kernel, ...]:
    """Create the pipelines of all ``specs`` in one call, through a VkPipelineCache if given.

    ``flags`` are VkPipelineCreateFlags.

    Raises:
        MissingFeature: the device cannot run a spec; nothing was created.
        InvalidUse: a spec is malformed; nothing was created.
        VulkanError: the driver refused one or more, which are named; nothing is left behind.
    """
    for spec in specs:
        _check(device, spec)
    if not specs:
        return ()
    api = device.api
    with ExitStack() as undo, ExitStack() as modules:
        kernels = [undo.enter_context(_with_layouts(device, spec)) for spec in specs]
        alive: list[Handle] = []  # structures that others point to
        creates = [
            api.VkComputePipelineCreateInfo(
                flags=flags,
                stage=_stage(device, kernel.spec, modules, alive),
                layout=kernel.layout,
            )
            for kernel in kernels
        ]
        made = api.ffi.new(f"VkPipeline[{len(creates)}]")
        try:
            api.vkCreateComputePipelines(device.handle, cache, len(creates), creates, None, made)
        except (OutOfMemory, DeviceLost):
            raise
        except VulkanError as error:
            failed = [k.spec.name for k, p in zip(kernels, made, strict=True) if not p]
            raise VulkanError(error.call, error.result, ", ".join(failed)) from error
        finally:
            # After a failure some may have been made; each kernel frees its own.
            for kernel, pipeline in zip(kernels, made, strict=True):
                kernel.pipeline = pipeline
        undo.pop_all()
    return tuple(kernels)


def cached_kernel(device: Device, spec: KernelSpec) -> Kernel:
    """Return the device's kernel of ``spec``, made on first use; raises as ``make_kernels``."""
    kernel = device.kernels.get(spec)
    if kernel is None or kernel.closed:
        (kernel,) = make_kernels(device, [spec])
        device.kernels[spec] = kernel
    return kernel


def _check(device: Device, spec: KernelSpec) -> None:
    whole_words = len(spec.code) % _WORD == 0 and len(spec.code) > _WORD
    if not whole_words or struct.unpack_from("<I", spec.code)[0] != _MAGIC:
        raise InvalidUse(f"{spec.name}: {len(spec.code)} bytes that are no SPIR-V module")
    for what, numbers in (("binding", spec.bindings), ("constant", spec.constants)):
        if len({number for number, _ in numbers}) != len(numbers):
            raise InvalidUse(f"{spec.name}: a {what} appears twice in {[n for n, _ in numbers]}")
    for number, kind in spec.bindings:
        if kind not in _DESCRIPTOR_TYPES:
            raise InvalidUse(f"{spec.name}: binding {number} is of unknown kind {kind!r}")
    if spec.push_constant_size % _WORD:
        raise InvalidUse(f"{spec.name}: push constants of {spec.push_constant_size} bytes")
    missing = lacking(device.info, device.enabled, spec)
    if missing:
        raise MissingFeature(spec.name, missing, device.info.name)


def lacking(info: DeviceInfo, enabled: frozenset[str], spec: KernelSpec) -> list[str]:
    """List what a device lacks. Past some limits drivers do not fail: the device is lost."""
    limits = info.limits
    wanted = {*spec.features, *(["subgroupSizeControl"] if spec.subgroup_size else ())}
    missing = sorted(wanted - enabled)
    sizes = (
        ("push constants", spec.push_constant_size, limits.max_push_constants),
        ("shared memory", spec.shared_memory, limits.max_shared_memory),
    )
    missing += [f"{size} bytes of {what} (has {most})" for what, size, most in sizes if size > most]
    constants = dict(spec.constants)
    local = [constants.get(id_, 1) for id_ in _LOCAL_SIZE_IDS]
    too_wide = any(n > most for n, most in zip(local, limits.max_local_size, strict=True))
    if too_wide or local[0] * local[1] * local[2] > limits.max_invocations:
        missing.append(
            f"local size {local} (has {list(limits.max_local_size)}, "
            f"{limits.max_invocations} invocations)"
        )
    size = spec.subgroup_size
    if size and not info.min_subgroup_size <= size <= info.max_subgroup_size:
        missing.append(
            f"subgroup size {size} (has {info.min_subgroup_size} to {info.max_subgroup_size})"
        )
    if spec.cooperative_matrix and spec.cooperative_matrix not in half_matrices(info):
        missing.append(f"matrices of {spec.cooperative_matrix}")
    return missing


def half_matrices(info: DeviceInfo) -> frozenset[str]:
    """Return the shapes MxNxK of cooperative matrices of halves with fp32 sums."""
    types = ("float16", "float16", "float32", "float32")
    return frozenset(
        f"{matrix.m}x{matrix.n}x{matrix.k}"
        for matrix in info.cooperative_matrices
        if (matrix.a, matrix.b, matrix.c, matrix.result) == types
    )


def _with_layouts(device: Device, spec: KernelSpec) -> Kernel:
    api = device.api
    with ExitStack() as stack:
        bindings = [
            api.VkDescriptorSetLayoutBinding(
                binding=number,
                descriptorType=descriptor_type(api, kind),
                descriptorCount=1,
                stageFlags=api.VK_SHADER_STAGE_COMPUTE_BIT,
            )
            for number, kind in spec.bindings
        ]
        create = api.VkDescriptorSetLayoutCreateInfo(bindingCount=len(bindings), pBindings=bindings)
        set_layout = api.vkCreateDescriptorSetLayout(device.handle, create, None)
        stack.callback(api.vkDestroyDescriptorSetLayout, device.handle, set_layout, None)
        ranges = []
        if spec.push_constant_size:
            stage = api.VK_SHADER_STAGE_COMPUTE_BIT
            ranges = [api.VkPushConstantRange(stageFlags=stage, size=spec.push_constant_size)]
        layout_create = api.VkPipelineLayoutCreateInfo(
            setLayoutCount=1,
            pSetLayouts=[set_layout],
            pushConstantRangeCount=len(ranges),
            pPushConstantRanges=ranges,
        )
        layout = api.vkCreatePipelineLayout(device.handle, layout_create, None)
        stack.callback(api.vkDestroyPipelineLayout, device.handle, layout, None)
        kernel = Kernel(device, spec, (set_layout, layout), stack)
    return kernel


def _stage(device: Device, spec: KernelSpec, modules: ExitStack, alive: list[Handle]) -> Handle:
    """Build the stage with its module; ``modules`` destroys that, ``alive`` keeps the rest."""
    api = device.api
    create = api.VkShaderModuleCreateInfo(codeSize=len(spec.code), pCode=spec.code)
    module = api.vkCreateShaderModule(device.handle, create, None)
    modules.callback(api.vkDestroyShaderModule, device.handle, module, None)

    entries, data = pack_constants(spec.constants)
    storage = api.ffi.new("char[]", data)
    specialization = api.VkSpecializationInfo(
        mapEntryCount=len(entries),
        pMapEntries=[
            api.VkSpecializationMapEntry(constantID=id_, offset=offset, size=size)
            for id_, offset, size in entries
        ],
        dataSize=len(data),
        pData=storage,
    )
    subgroup: Handle = None
    flags = 0
    if spec.subgroup_size:
        if "computeFullSubgroups" in device.enabled:
            flags = api.VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT
        subgroup = api.VkPipelineShaderStageRequiredSubgroupSizeCreateInfo(
            requiredSubgroupSize=spec.subgroup_size
        )
    stage = api.VkPipelineShaderStageCreateInfo(
        pNext=subgroup,
        flags=flags,
        stage=api.VK_SHADER_STAGE_COMPUTE_BIT,
        module=module,
        pName="main",
        pSpecializationInfo=specialization,
    )
    alive += [storage, specialization, subgroup, stage]
    return stage


def descriptor_type(api: Vulkan, kind: str) -> int:
    """Return the VkDescriptorType of a binding's kind."""
    return int(getattr(api, _DESCRIPTOR_TYPES[kind]))
