"""The device features that the runtime knows, as one table, and how they are switched on.

A feature's name is its Vulkan spelling ("storageBuffer16BitAccess"); subgroup operations,
which Vulkan reports as properties, are named as "subgroupArithmetic".
``supported_features(...) -> frozenset[str]`` asks a device; ``enable_chain(...)`` builds the
structures and the extension names for vkCreateDevice, and ``needs_no_switch(name)`` tells what
is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from .api import Handle, Vulkan


@dataclass(frozen=True)
class _Group:
    """A feature structure: ``core`` is the Vulkan version that took over ``extension``.

    ``since`` is the version of the specification that brought it, where a validation layer in
    use may be older.
    """

    struct: str
    core: tuple[int, int]
    extension: str
    names: tuple[str, ...]
    since: tuple[int, int, int] = (1, 0, 0)


# Robust buffer access is left off on purpose: shaders guard their own reads, and it costs time.
_CORE = ("shaderFloat64", "shaderInt16", "shaderInt64")
_NEVER_CORE = (99, 0)
_GROUPS = (
    _Group(
        "VkPhysicalDevice16BitStorageFeatures",
        (1, 1),
        "VK_KHR_16bit_storage",
        ("storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess", "storagePushConstant16"),
    ),
    _Group(
        "VkPhysicalDevice8BitStorageFeatures",
        (1, 2),
        "VK_KHR_8bit_storage",
        ("storageBuffer8BitAccess", "uniformAndStorageBuffer8BitAccess", "storagePushConstant8"),
    ),
    _Group(
        "VkPhysicalDeviceShaderFloat16Int8Features",
        (1, 2),
        "VK_KHR_shader_float16_int8",
        ("shaderFloat16", "shaderInt8"),
    ),
    _Group(
        "VkPhysicalDeviceVulkanMemoryModelFeatures",
        (1, 2),
        "VK_KHR_vulkan_memory_model",
        ("vulkanMemoryModel", "vulkanMemoryModelDeviceScope"),
    ),
    _Group(
        "VkPhysicalDeviceShaderSubgroupExtendedTypesFeatures",
        (1, 2),
        "VK_KHR_shader_subgroup_extended_types",
        ("shaderSubgroupExtendedTypes",),
    ),
    _Group(
        "VkPhysicalDeviceSubgroupSizeControlFeatures",
        (1, 3),
        "VK_EXT_subgroup_size_control",
        ("subgroupSizeControl", "computeFullSubgroups"),
    ),
    _Group(
        "VkPhysicalDeviceShaderIntegerDotProductFeatures",
        (1, 3),
        "VK_KHR_shader_integer_dot_product",
        ("shaderIntegerDotProduct",),
    ),
    _Group(
        "VkPhysicalDeviceMaintenance4Features",  # LocalSizeId, as compilers write it for 1.3
        (1, 3),
        "VK_KHR_maintenance4",
        ("maintenance4",),
    ),
    _Group(
        "VkPhysicalDeviceCooperativeMatrixFeaturesKHR",
        _NEVER_CORE,
        "VK_KHR_cooperative_matrix",
        ("cooperativeMatrix",),
        since=(1, 3, 255),
    ),
    _Group(
        "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",  # for benchmarks: registers
        _NEVER_CORE,
        "VK_KHR_pipeline_executable_properties",
        ("pipelineExecutableInfo",),
    ),
)
_SUBGROUP = ("Basic", "Vote", "Arithmetic", "Ballot", "Shuffle", "ShuffleRelative", "Clustered")


def known_features() -> frozenset[str]:
    """Return every name that a kernel may ask for."""
    grouped = {name for group in _GROUPS for name in group.names}
    return frozenset({*_CORE, *grouped, *(f"subgroup{name}" for name in _SUBGROUP)})


def needs_no_switch(name: str) -> bool:
    """Whether a feature is there whenever it is supported: subgroup operations are properties."""
    return name in {f"subgroup{operation}" for operation in _SUBGROUP}


def younger_than(version: tuple[int, int, int]) -> frozenset[str]:
    """Return the features that a validation layer of this version complains about."""
    return frozenset(name for group in _GROUPS if group.since > version for name in group.names)


def usable(
    core: tuple[int, int],
    extension: str,
    version: tuple[int, int, int],
    extensions: frozenset[str],
) -> bool:
    """Whether a device has something, by its version or by an extension."""
    return version[:2] >= core or extension in extensions


def supported_features(
    api: Vulkan,
    physical: Handle,
    version: tuple[int, int, int],
    extensions: frozenset[str],
    subgroup: Handle,
) -> frozenset[str]:
    """Ask a device which of the known features it has.

    ``subgroup`` is its filled-in VkPhysicalDeviceSubgroupProperties.
    """
    chain: Handle = None
    structs: list[tuple[_Group, Handle]] = []
    for group in _GROUPS:
        if usable(group.core, group.extension, version, extensions):
            chain = getattr(api, group.struct)(pNext=chain)
            structs.append((group, chain))
    top = api.VkPhysicalDeviceFeatures2(pNext=chain)
    api.vkGetPhysicalDeviceFeatures2(physical, top)
    found = {name for name in _CORE if getattr(top.features, name)}
    found |= {name for group, struct in structs for name in group.names if getattr(struct, name)}
    if subgroup.supportedStages & api.VK_SHADER_STAGE_COMPUTE_BIT:
        # VkSubgroupFeatureFlagBits: one bit each, in the order of _SUBGROUP.
        operations = subgroup.supportedOperations
        found |= {f"subgroup{name}" for i, name in enumerate(_SUBGROUP) if operations >> i & 1}
    return frozenset(found)


def enable_chain(
    api: Vulkan, features: frozenset[str], version: tuple[int, int, int]
) -> tuple[list[Handle], list[str]]:
    """Build what switches ``features`` on: structures and extension names for vkCreateDevice.

    The last structure is a VkPhysicalDeviceFeatures2 that heads the chain; keep the list
    until the call returns.
    """
    structs: list[Handle] = []
    extensions: list[str] = []
    for group in _GROUPS:
        wanted = {name: True for name in group.names if name in features}
        if wanted:
            below = structs[-1] if structs else None
            structs.append(getattr(api, group.struct)(pNext=below, **wanted))
            if version[:2] < group.core:
                extensions.append(group.extension)
    core = api.VkPhysicalDeviceFeatures(**{name: True for name in _CORE if name in features})
    below = structs[-1] if structs else None
    structs.append(api.VkPhysicalDeviceFeatures2(pNext=below, features=core))
    return structs, extensions
