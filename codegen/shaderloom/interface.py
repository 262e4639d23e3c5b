"""The loom's middle form: the interface of a shader, as planned and as read back.

``VariantPlan`` is what the spec asks for; ``Reflection`` is what a SPIR-V module
declares. Both are plain frozen data, so every later stage is a function of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOCAL_SIZE_IDS = (0, 1, 2)  # specialization constants of the local workgroup size x, y, z
FIRST_CONSTANT_ID = 3  # a family's own constants follow the local size


class Kind(str, Enum):
    """The Vulkan descriptor type of a binding."""

    SAMPLED_IMAGE = "sampled_image"  # VK_DESCRIPTOR_TYPE_COMBINED_IMAGE_SAMPLER
    STORAGE_IMAGE = "storage_image"
    STORAGE_BUFFER = "storage_buffer"
    UNIFORM_BUFFER = "uniform_buffer"


@dataclass(frozen=True)
class Field:
    """A member of a uniform block or of the push constants; ``offset``, ``size`` in bytes."""

    name: str
    type: str  # GLSL spelling: int, uint, float, ivec2, ivec4, vec4
    offset: int
    size: int
    owner: str = ""  # the interface block that brought it, "" for the family's own
    keep: str = ""  # why a field that no shader reads stays, "" if it must be read


@dataclass(frozen=True)
class Struct:
    """A uniform block (std140) or push constants (std430); ``size`` is the last member's end."""

    name: str
    fields: tuple[Field, ...]

    @property
    def size(self) -> int:
        return max((f.offset + f.size for f in self.fields), default=0)


@dataclass(frozen=True)
class Binding:
    """A descriptor of set 0 and the operand of the op that it takes."""

    binding: int
    name: str
    kind: Kind
    storage: str  # texture2d, texture3d, buffer or uniform
    access: str  # read or write
    dtype: str = ""  # float, half, ...; "" for a uniform block
    operand: str = ""  # e.g. "residual"; "" for a uniform block
    absent: str = ""  # what stands in for a missing operand, as the spec names it, e.g. "t_in"
    present: str = ""  # the expression that tells when the operand is not absent
    packed_by: str = ""  # the op that brings a constant operand into the layout read here
    owner: str = ""
    keep: str = ""
    block: Struct | None = None  # the members of a uniform block


@dataclass(frozen=True)
class Constant:
    """A specialization constant; an ``enum`` constant is an int in GLSL."""

    id: int
    name: str
    type: str  # bool, int, uint, float
    default: int | float
    enum: str = ""
    owner: str = ""
    keep: str = ""


@dataclass(frozen=True)
class Frozen:
    """A specialization constant with its value baked into the module: no host sets it."""

    id: int
    name: str
    bits: int  # the value's four bytes as an unsigned integer
    shown: str  # the value as a person writes it, e.g. "relu"


@dataclass(frozen=True)
class VariantPlan:
    """One shader to be generated: its name, its place in the family, its whole interface."""

    name: str
    family: str
    op: str
    template: str  # path below the template folder
    axes: tuple[tuple[str, str | int], ...]
    bindings: tuple[Binding, ...]
    constants: tuple[Constant, ...]
    push_constants: Struct | None
    headers: tuple[str, ...]  # templates of the spliced blocks, in order
    operands: tuple[tuple[str, str], ...]  # (operand, storage) of those that others bind
    requires: tuple[str, ...]  # GLSL extensions
    target_env: str
    subgroup_size: int = 0  # 0: any
    shared_memory: int = 0  # bytes that it may take, 0: the 16 KiB of every device
    cooperative_matrix: str = ""  # shape MxNxK that the device must list, "" for none
    frozen_from: str = ""  # the variant whose source this is, with ``frozen`` baked in
    frozen: tuple[Frozen, ...] = ()  # in order of IDs

    def binding(self, name: str) -> Binding:
        """Return the binding called ``name``; raises KeyError when there is none."""
        for binding in self.bindings:
            if binding.name == name:
                return binding
        raise KeyError(name)


@dataclass(frozen=True)
class FamilyPlan:
    """A family and its variants, sorted by name; they differ in storage and dtype only."""

    name: str
    op: str
    variants: tuple[VariantPlan, ...]
    renamed_from: tuple[tuple[str, str], ...]  # (name now, name before), read by ``diff``


@dataclass(frozen=True)
class EnumPlan:
    """An enum of the spec: (name, value) in the spec's order."""

    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Plan:
    """Everything that is to be generated, sorted by name."""

    spec_name: str  # what generated files call their source, e.g. "variants.yaml"
    enums: tuple[EnumPlan, ...]
    families: tuple[FamilyPlan, ...]

    @property
    def variants(self) -> tuple[VariantPlan, ...]:
        return tuple(variant for family in self.families for variant in family.variants)

    def enum(self, name: str) -> EnumPlan:
        """Return the enum called ``name``; raises KeyError when there is none."""
        return {enum.name: enum for enum in self.enums}[name]


@dataclass(frozen=True)
class ReflectedBinding:
    """A descriptor as a module declares it; ``fields`` only for a uniform block."""

    set: int
    binding: int
    name: str  # of the block for buffers, of the variable for images
    kind: Kind
    dim: str  # "2d", "3d", "buffer" (any buffer), or another image dimension
    format: str  # image format of a storage image, e.g. "rgba16f"; "" otherwise
    readable: bool
    writable: bool
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class ReflectedConstant:
    """A specialization constant as a module declares it; a bool's default is 0 or 1."""

    id: int
    name: str
    type: str
    default: int | float


@dataclass(frozen=True)
class Reflection:
    """The interface of one compute entry point, sorted by number, as one witness saw it."""

    bindings: tuple[ReflectedBinding, ...]
    constants: tuple[ReflectedConstant, ...]  # without the local size
    push_constants: tuple[Field, ...]
    local_size_ids: tuple[int, ...]


@dataclass(frozen=True)
class Used:
    """What a shipped module still uses; names may be gone, so numbers and offsets."""

    bindings: frozenset[int]
    constants: frozenset[int]
    uniform_offsets: frozenset[tuple[int, int]]  # (binding, byte offset of the member)
    push_offsets: frozenset[int]
