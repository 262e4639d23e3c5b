"""What a Vulkan device is and can do, as plain frozen data.

``describe(api, instance, physical, index) -> DeviceInfo`` reads it;
``choose(infos, select) -> DeviceInfo`` picks one; ``device_class(...) -> str`` sorts devices
into the classes that the routes ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .api import Handle, Vulkan
from .errors import NoDevice
from .features import supported_features, usable

_TYPES = ("other", "integrated", "discrete", "virtual", "cpu")  # by VkPhysicalDeviceType
_COMPONENTS = {  # VkComponentTypeKHR
    **dict(enumerate(("float16", "float32", "float64", "int8", "int16", "int32", "int64"))),
    **dict(enumerate(("uint8", "uint16", "uint32", "uint64"), start=7)),
    1000141000: "bfloat16",
}
_PREFERENCE = ("discrete", "integrated", "virtual", "cpu", "other")
_VENDORS = {
    0x5143: "adreno",
    0x13B5: "mali",
    0x10DE: "nvidia",
    0x1002: "amd",
    0x1022: "amd",
    0x8086: "intel",
}
_NAMES = (
    ("adreno", "adreno"),
    ("mali", "mali"),
    ("immortalis", "mali"),  # Arm's larger GPUs, the same architecture
    ("nvidia", "nvidia"),
    ("radeon", "amd"),
    ("intel", "intel"),
    ("llvmpipe", "software"),
    ("swiftshader", "software"),
)


@dataclass(frozen=True)
class Limits:
    """The limits that dispatch needs; sizes in bytes, the rest counts (VkPhysicalDeviceLimits)."""

    max_invocations: int  # of one workgroup
    max_local_size: tuple[int, int, int]
    max_grid: tuple[int, int, int]  # workgroups per axis
    max_image_2d: int  # texels per axis
    max_image_3d: int
    max_shared_memory: int
    max_push_constants: int
    max_storage_buffer: int
    max_uniform_buffer: int
    timestamp_period: float  # nanoseconds per tick


@dataclass(frozen=True)
class CooperativeMatrix:
    """A shape D[m,n] = A[m,k] * B[k,n] + C[m,n] at subgroup scope; types as in "float16"."""

    m: int
    n: int
    k: int
    a: str
    b: str
    c: str
    result: str
    saturating: bool


@dataclass(frozen=True)
class DeviceInfo:
    """One device; ``index`` counts in the order in which the loader lists devices."""

    index: int
    name: str
    type: str  # discrete, integrated, virtual, cpu or other
    device_class: str  # adreno, mali, nvidia, amd, intel, software or other
    vendor_id: int
    device_id: int
    api_version: tuple[int, int, int]
    driver_name: str
    driver_version: str
    device_uuid: bytes
    driver_uuid: bytes
    limits: Limits
    subgroup_size: int
    min_subgroup_size: int  # the range that a pipeline may require
    max_subgroup_size: int
    features: frozenset[str]
    cooperative_matrices: tuple[CooperativeMatrix, ...]


def device_class(name: str, vendor_id: int, type_: str) -> str:
    """Return the class of a device, by its type, then its vendor's ID, then its name."""
    if type_ == "cpu":
        return "software"
    if vendor_id in _VENDORS:
        return _VENDORS[vendor_id]
    return next((found for part, found in _NAMES if part in name.lower()), "other")


def choose(infos: Sequence[DeviceInfo], select: str | int | None) -> DeviceInfo:
    """Pick a device by index, by a part of its name, or the most capable kind for None.

    A string that is a valid index is one ("0"); else it is part of a name ("4090"), in any
    case. Without ``select``: discrete, integrated, virtual, cpu, other; ties by index.

    Raises:
        NoDevice: nothing matches.
    """
    ranked = sorted(infos, key=lambda info: (_PREFERENCE.index(info.type), info.index))
    if select is None:
        return ranked[0]
    text = str(select)
    if text.isdecimal() and int(text) < len(infos):
        return infos[int(text)]
    if isinstance(select, str):
        for info in ranked:
            if select.lower() in info.name.lower():
                return info
    raise NoDevice(select, [info.name for info in infos])


def describe(api: Vulkan, instance: Handle, physical: Handle, index: int) -> DeviceInfo:
    """Read everything about one physical device of Vulkan 1.1 or later."""
    extensions = device_extensions(api, physical)
    version = api_version(api, physical)
    ids = api.VkPhysicalDeviceIDProperties()
    subgroup = api.VkPhysicalDeviceSubgroupProperties(pNext=ids)
    driver = sizes = None
    chain = subgroup
    if usable((1, 2), "VK_KHR_driver_properties", version, extensions):
        driver = chain = api.VkPhysicalDeviceDriverProperties(pNext=chain)
    if usable((1, 3), "VK_EXT_subgroup_size_control", version, extensions):
        sizes = chain = api.VkPhysicalDeviceSubgroupSizeControlProperties(pNext=chain)
    properties = api.VkPhysicalDeviceProperties2(pNext=chain)
    api.vkGetPhysicalDeviceProperties2(physical, properties)

    core = properties.properties
    name = _text(api, core.deviceName)
    type_ = _TYPES[core.deviceType] if core.deviceType < len(_TYPES) else "other"
    size = int(subgroup.subgroupSize)
    features = supported_features(api, physical, version, extensions, subgroup)
    return DeviceInfo(
        index=index,
        name=name,
        type=type_,
        device_class=device_class(name, core.vendorID, type_),
        vendor_id=core.vendorID,
        device_id=core.deviceID,
        api_version=version,
        driver_name=_text(api, driver.driverName) if driver else "",
        driver_version=_text(api, driver.driverInfo) if driver else str(core.driverVersion),
        device_uuid=bytes(ids.deviceUUID),
        driver_uuid=bytes(ids.driverUUID),
        limits=_limits(core.limits),
        subgroup_size=size,
        min_subgroup_size=int(sizes.minSubgroupSize) if sizes else size,
        max_subgroup_size=int(sizes.maxSubgroupSize) if sizes else size,
        features=features,
        cooperative_matrices=(
            _cooperative_matrices(api, instance, physical)
            if "cooperativeMatrix" in features
            else ()
        ),
    )


def api_version(api: Vulkan, physical: Handle) -> tuple[int, int, int]:
    """Return the (major, minor, patch) of Vulkan that a device supports."""
    return version_of(api.vkGetPhysicalDeviceProperties(physical).apiVersion)


def version_of(packed: int) -> tuple[int, int, int]:
    """Take a version apart: 0x00403000 is (1, 3, 0)."""
    return (packed >> 22 & 0x7F, packed >> 12 & 0x3FF, packed & 0xFFF)


def device_extensions(api: Vulkan, physical: Handle) -> frozenset[str]:
    """Return the names of the extensions that a device supports."""
    found = api.vkEnumerateDeviceExtensionProperties(physical, None)
    return frozenset(_text(api, extension.extensionName) for extension in found)


def _text(api: Vulkan, value: Handle) -> str:
    """Return a fixed-size char array as text; the binding has already decoded some of them."""
    return value if isinstance(value, str) else api.ffi.string(value).decode(errors="replace")


def _limits(limits: Handle) -> Limits:
    size, count = limits.maxComputeWorkGroupSize, limits.maxComputeWorkGroupCount
    return Limits(
        max_invocations=limits.maxComputeWorkGroupInvocations,
        max_local_size=(size[0], size[1], size[2]),
        max_grid=(count[0], count[1], count[2]),
        max_image_2d=limits.maxImageDimension2D,
        max_image_3d=limits.maxImageDimension3D,
        max_shared_memory=limits.maxComputeSharedMemorySize,
        max_push_constants=limits.maxPushConstantsSize,
        max_storage_buffer=limits.maxStorageBufferRange,
        max_uniform_buffer=limits.maxUniformBufferRange,
        timestamp_period=limits.timestampPeriod,
    )


def _cooperative_matrices(
    api: Vulkan, instance: Handle, physical: Handle
) -> tuple[CooperativeMatrix, ...]:
    # Called through ffi: the binding's own wrapper leaves sType unset in the array it passes.
    name = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"
    address = api.lib.vkGetInstanceProcAddr(instance, name.encode())
    function = api.ffi.cast(f"PFN_{name}", address)
    count = api.ffi.new("uint32_t*")
    function(physical, count, api.ffi.NULL)
    found = api.ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
    for entry in found:
        entry.sType = api.VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR
    function(physical, count, found)

    def type_name(code: int) -> str:
        return _COMPONENTS.get(code, f"VkComponentTypeKHR {code}")

    return tuple(
        CooperativeMatrix(
            m=entry.MSize,
            n=entry.NSize,
            k=entry.KSize,
            a=type_name(entry.AType),
            b=type_name(entry.BType),
            c=type_name(entry.CType),
            result=type_name(entry.ResultType),
            saturating=bool(entry.saturatingAccumulation),
        )
        for entry in found
        if entry.scope == api.VK_SCOPE_SUBGROUP_KHR
    )
