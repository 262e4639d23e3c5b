"""GLSL declarations of a planned interface; the only place that spells layout qualifiers."""

from __future__ import annotations

from shaderloom.dtypes import DTYPES
from shaderloom.interface import Binding, Constant, EnumPlan, Kind, Plan, Struct, VariantPlan
from shaderloom.names import snake

_SAMPLERS = {"texture2d": "sampler2D", "texture3d": "sampler3D"}
_IMAGES = {"texture2d": "image2D", "texture3d": "image3D"}


def declarations(plan: Plan, variant: VariantPlan) -> str:
    """Return every declaration of the variant's interface, and the enums its constants use.

    Elements of a buffer ``t_in`` (scalars, or texels of a vec4_buffer) are ``t_in_data[]``;
    members of uniform blocks and push constants are plain global names.
    """
    used = {constant.enum for constant in variant.constants if constant.enum}
    lines = [
        "layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;",
        "",
        *(_binding(binding) for binding in variant.bindings),
    ]
    if variant.push_constants:
        lines += ["", _push_constants(variant.push_constants)]
    if variant.constants:
        lines += ["", *(_constant(constant) for constant in variant.constants)]
    for name in sorted(used):
        lines += ["", *_enum(plan.enum(name))]
    return "\n".join(lines)


def extensions(variant: VariantPlan) -> str:
    """Return the ``#extension`` lines of the variant, one a required extension."""
    return "\n".join(f"#extension {name} : require" for name in variant.requires)


def enumerator(enum: str, value: str) -> str:
    """Return the GLSL name of an enum's value: ResidualOp.add is RESIDUAL_OP_ADD."""
    return f"{snake(enum)}_{value}".upper()


def _binding(binding: Binding) -> str:
    at = f"set = 0, binding = {binding.binding}"
    dtype = DTYPES.get(binding.dtype)
    lanes = dtype.lanes if dtype else ""
    if binding.kind is Kind.SAMPLED_IMAGE:
        return f"layout({at}) uniform {lanes}{_SAMPLERS[binding.storage]} {binding.name};"
    if binding.kind is Kind.STORAGE_IMAGE and dtype:
        image = f"{lanes}{_IMAGES[binding.storage]}"
        return f"layout({at}, {dtype.format}) uniform writeonly {image} {binding.name};"
    if binding.block:
        return f"layout({at}, std140) uniform {binding.name} {{\n{_members(binding.block)}\n}};"
    access = "readonly" if binding.access == "read" else "writeonly"
    element = "float"
    if dtype:
        element = dtype.scalar if binding.storage == "buffer" else dtype.texel
    return (
        f"layout({at}, std430) {access} restrict buffer {binding.name} {{\n"
        f"  {element} {binding.name}_data[];\n}};"
    )


def _push_constants(struct: Struct) -> str:
    return f"layout(push_constant, std430) uniform PushConstants {{\n{_members(struct)}\n}};"


def _members(struct: Struct) -> str:
    return "\n".join(f"  {field.type} {field.name};" for field in struct.fields)


def _constant(constant: Constant) -> str:
    default = str(constant.default)
    if constant.type == "bool":
        default = "true" if constant.default else "false"
    elif constant.type == "uint":
        default += "u"
    return f"layout(constant_id = {constant.id}) const {constant.type} {constant.name} = {default};"


def _enum(enum: EnumPlan) -> list[str]:
    return [f"const int {enumerator(enum.name, name)} = {value};" for name, value in enum.values]
