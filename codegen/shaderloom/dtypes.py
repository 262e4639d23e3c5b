"""One table each for element types, member types and GLSL extensions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Dtype:
    """How an element type is stored: image format, GLSL scalar in a buffer, extensions of both."""

    format: str  # image format qualifier of a texture that is written
    scalar: str  # element of a buffer
    texel: str  # element of a vec4_buffer, four values of one texel
    buffer_requires: tuple[str, ...] = ()
    lanes: str = ""  # how GLSL marks samplers and images whose lanes are integers, e.g. "u"


@dataclass(frozen=True)
class MemberType:
    """A uniform or push-constant member: bytes and base alignment (GLSL 4.60, 7.6.2.2)."""

    size: int
    align: int
    scalar: str  # int, uint or float
    lanes: int


# Half textures are read and computed as fp32; a half buffer needs 16-bit storage. A uint holds
# bits: four bytes or eight nibbles of a quantized weight.
DTYPES = {
    "float": Dtype("rgba32f", "float", "vec4"),
    "half": Dtype("rgba16f", "float16_t", "f16vec4", ("GL_EXT_shader_16bit_storage",)),
    "uint": Dtype("rgba32ui", "uint", "uvec4", lanes="u"),
}

MEMBER_TYPES = {
    "int": MemberType(4, 4, "int", 1),
    "uint": MemberType(4, 4, "uint", 1),
    "float": MemberType(4, 4, "float", 1),
    "ivec2": MemberType(8, 8, "int", 2),
    "ivec4": MemberType(16, 16, "int", 4),
    "uvec2": MemberType(8, 8, "uint", 2),
    "uvec4": MemberType(16, 16, "uint", 4),
    "vec2": MemberType(8, 8, "float", 2),
    "vec4": MemberType(16, 16, "float", 4),
}

CONSTANT_TYPES = ("bool", "int", "uint", "float")

BUFFERS = ("buffer", "vec4_buffer")

STORAGES = ("texture2d", "texture3d", *BUFFERS)

TARGET_ENVS = ("vulkan1.1", "vulkan1.2", "vulkan1.3")

# GLSL extension -> the Vulkan device features that a module using it needs.
EXTENSIONS: dict[str, tuple[str, ...]] = {
    "GL_EXT_control_flow_attributes": (),
    "GL_EXT_integer_dot_product": ("shaderIntegerDotProduct",),
    "GL_EXT_shader_16bit_storage": ("storageBuffer16BitAccess",),
    "GL_EXT_shader_8bit_storage": ("storageBuffer8BitAccess",),
    "GL_EXT_shader_explicit_arithmetic_types_float16": ("shaderFloat16",),
    "GL_EXT_shader_explicit_arithmetic_types_int8": ("shaderInt8",),
    "GL_KHR_cooperative_matrix": ("cooperativeMatrix", "vulkanMemoryModel"),
    "GL_KHR_memory_scope_semantics": ("vulkanMemoryModel",),
    "GL_KHR_shader_subgroup_arithmetic": ("subgroupArithmetic",),
    "GL_KHR_shader_subgroup_basic": (),
}

# GLSL extension -> the SPIR-V capabilities and extensions that a module declares on its account.
# What is in no set needs a feature that the table above does not mean, e.g. 16-bit uniforms.
TRACES: dict[str, frozenset[str]] = {
    "GL_EXT_control_flow_attributes": frozenset(),
    "GL_EXT_integer_dot_product": frozenset(
        (
            *("DotProduct", "DotProductInputAll", "DotProductInput4x8Bit"),
            *("DotProductInput4x8BitPacked", "SPV_KHR_integer_dot_product"),
        )
    ),
    "GL_EXT_shader_16bit_storage": frozenset(("StorageBuffer16BitAccess", "SPV_KHR_16bit_storage")),
    "GL_EXT_shader_8bit_storage": frozenset(("StorageBuffer8BitAccess", "SPV_KHR_8bit_storage")),
    "GL_EXT_shader_explicit_arithmetic_types_float16": frozenset(("Float16",)),
    "GL_EXT_shader_explicit_arithmetic_types_int8": frozenset(("Int8",)),
    "GL_KHR_cooperative_matrix": frozenset(
        (
            *("CooperativeMatrixKHR", "SPV_KHR_cooperative_matrix"),
            *("VulkanMemoryModel", "SPV_KHR_vulkan_memory_model"),
        )
    ),
    "GL_KHR_memory_scope_semantics": frozenset(
        ("VulkanMemoryModel", "SPV_KHR_vulkan_memory_model")
    ),
    "GL_KHR_shader_subgroup_arithmetic": frozenset(
        ("GroupNonUniform", "GroupNonUniformArithmetic")
    ),
    "GL_KHR_shader_subgroup_basic": frozenset(("GroupNonUniform",)),
}

# What every Vulkan device gives a compute shader, with no feature to enable.
ALWAYS = frozenset(
    (
        *("Shader", "Matrix", "ImageQuery", "Sampled1D", "Image1D"),
        *("SampledBuffer", "ImageBuffer", "SPV_KHR_storage_buffer_storage_class"),
        "SPV_KHR_non_semantic_info",
    )
)


# What a host must enable to ask for a subgroup size, and for subgroups without idle lanes.
_SUBGROUP_SIZE = ("subgroupSizeControl", "computeFullSubgroups")


def features(requires: tuple[str, ...], subgroup_size: int = 0) -> tuple[str, ...]:
    """Return the sorted Vulkan features that a module's GLSL extensions and subgroup size mean."""
    found = {feature for name in requires for feature in EXTENSIONS[name]}
    return tuple(sorted({*found, *(_SUBGROUP_SIZE if subgroup_size else ())}))
