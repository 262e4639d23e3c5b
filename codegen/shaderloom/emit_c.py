"""The C registry: everything is decided here, the templates in ``emit/`` only spell it.

C99 and C++17, no warnings, no allocation, nothing to initialise at start. Structs
follow the planned offsets member by member, with holes written out, and the header
asserts each offset.
"""

from __future__ import annotations

import struct as packing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from shaderloom.dtypes import DTYPES, MEMBER_TYPES, STORAGES, features
from shaderloom.interface import (
    LOCAL_SIZE_IDS,
    Binding,
    Constant,
    FamilyPlan,
    Plan,
    Struct,
    VariantPlan,
)
from shaderloom.manifest import layout_hash
from shaderloom.names import c_constant, c_type, operand
from shaderloom.render import GENERATED

_C_SCALARS = {"int": "int32_t", "uint": "uint32_t", "float": "float"}
_WORDS_A_LINE = 8


def registry(plan: Plan) -> dict[str, bytes]:
    """Return ``registry.h`` and ``registry.c``."""
    feature_lists = {
        names: f"shaderloom_features_{i}"
        for i, names in enumerate(sorted({_features(v) for v in plan.variants} - {()}))
    }
    view = {
        "generated": GENERATED.format(source=plan.spec_name),
        "layout_hash": layout_hash(plan),
        "storages": STORAGES,
        "dtypes": list(DTYPES),
        "enums": [
            {
                "type": c_type(enum.name),
                "enumerators": [
                    {"id": c_constant(enum.name, name), "value": value}
                    for name, value in enum.values
                ],
            }
            for enum in plan.enums
        ],
        "feature_lists": [{"id": id_, "names": names} for names, id_ in feature_lists.items()],
        "families": [_family(family) for family in plan.families],
        "shaders": [
            _shader(variant, family, feature_lists) for variant, family in sorted_shaders(plan)
        ],
    }
    return {name: render(f"{name}.j2", view) for name in ("registry.h", "registry.c")}


def spirv(plan: Plan, modules: Mapping[str, bytes], missing: Mapping[str, str]) -> bytes:
    """Return ``spirv.c``: each distinct module once; ``missing`` says why one is not there."""
    blobs: dict[bytes, list[str]] = {}
    rows = []
    for variant, _ in sorted_shaders(plan):
        code = modules.get(variant.name)
        if code is None:
            rows.append(f"{{NULL, 0, {c_string(missing[variant.name])}}}")
            continue
        names = blobs.setdefault(code, [])
        names.append(variant.name)
        rows.append(f"{{spirv_{names[0]}, sizeof(spirv_{names[0]}), NULL}}")
    view = {
        "generated": GENERATED.format(source=plan.spec_name),
        "layout_hash": layout_hash(plan),
        "blobs": [
            {"id": f"spirv_{names[0]}", "names": names, "lines": _word_lines(code)}
            for code, names in blobs.items()
        ],
        "modules": rows,
    }
    return render("spirv.c.j2", view)


def sorted_shaders(plan: Plan) -> list[tuple[VariantPlan, FamilyPlan]]:
    """Return all variants in byte order of their names, which is strcmp's, with their family."""
    pairs = [(variant, family) for family in plan.families for variant in family.variants]
    return sorted(pairs, key=lambda pair: pair[0].name.encode())


def _family(family: FamilyPlan) -> dict[str, Any]:
    variant = family.variants[0]
    structs = [b.block for b in variant.bindings if b.block]
    if variant.push_constants:
        structs.append(variant.push_constants)
    tables = {v.bindings: _table_name(v, family) for v in reversed(family.variants)}
    return {
        "name": family.name,
        "type": c_type(family.name),
        "binding_ids": [
            (c_constant(family.name, "binding", operand(b.name)), b.binding)
            for b in variant.bindings
        ],
        "constant_ids": [
            (c_constant(family.name, "constant", c.name), c.id) for c in variant.constants
        ],
        "structs": [_struct(family, struct) for struct in structs],
        "constant_tables": [
            _constant_table(v, family)
            for v in {v.frozen: v for v in reversed(family.variants)}.values()
        ],
        "binding_tables": [
            {"id": name, "bindings": [_binding(b, family) for b in bindings]}
            for bindings, name in sorted(tables.items(), key=lambda item: item[1])
            if bindings
        ],
    }


def _constant_table(variant: VariantPlan, family: FamilyPlan) -> dict[str, Any]:
    """What a host sets, and what is baked in; the same for all variants frozen alike."""
    constants = _settable(variant)
    return {
        "id": _constants_name(variant, family),
        "constants": [
            {"name": c.name, "id": c.id, "type": c.type, "bits": _bits(c)} for c in constants
        ],
        "map_ids": [*LOCAL_SIZE_IDS, *(c.id for c in constants)],
        "frozen": variant.frozen,
    }


def _settable(variant: VariantPlan) -> list[Constant]:
    frozen = {constant.id for constant in variant.frozen}
    return [constant for constant in variant.constants if constant.id not in frozen]


def _constants_name(variant: VariantPlan, family: FamilyPlan) -> str:
    if not variant.frozen:
        return c_type(family.name)
    return c_type(next(v.name for v in family.variants if v.frozen == variant.frozen))


def _table_name(variant: VariantPlan, family: FamilyPlan) -> str:
    """Variants with equal bindings share one table, named after the first of them."""
    first = next(v for v in family.variants if v.bindings == variant.bindings)
    return c_type(first.name, "bindings")


def _struct(family: FamilyPlan, struct: Struct) -> dict[str, Any]:
    members, end = [], 0
    for field in struct.fields:
        if field.offset > end:
            members.append(f"uint8_t hole_at_{end}[{field.offset - end}]")
        type_ = MEMBER_TYPES[field.type]
        lanes = f"[{type_.lanes}]" if type_.lanes > 1 else ""
        members.append(f"{_C_SCALARS[type_.scalar]} {field.name}{lanes}")
        end = field.offset + field.size
    return {
        "type": c_type(family.name, struct.name),
        "members": members,
        "fields": struct.fields,
        "offsets": [(field.name, field.offset) for field in struct.fields],
        "size": struct.size,
    }


def _binding(binding: Binding, family: FamilyPlan) -> dict[str, Any]:
    block = binding.block
    return {
        "name": binding.name,
        "binding": binding.binding,
        "kind": c_constant("kind", binding.kind.value),
        "storage": c_constant("storage", binding.storage),
        "dtype": c_constant("dtype", binding.dtype or "none"),
        "access": c_constant("access", binding.access),
        "operand": _optional(binding.operand),
        "absent": _optional(operand(binding.absent)),
        "packed_by": _optional(binding.packed_by),
        "size": block.size if block else 0,
        "field_count": len(block.fields) if block else 0,
        "fields": f"{c_type(family.name, block.name)}_fields" if block else "NULL",
    }


def _shader(
    variant: VariantPlan, family: FamilyPlan, feature_lists: Mapping[tuple[str, ...], str]
) -> dict[str, Any]:
    push = variant.push_constants
    base, constants = _constants_name(variant, family), len(_settable(variant))
    names = _features(variant)
    return {
        "id": c_constant("shader", variant.name),
        "name": variant.name,
        "family": family.name,
        "op": family.op,
        "bindings": _counted(len(variant.bindings), _table_name(variant, family)),
        "constants": _counted(constants, f"{base}_constants"),
        "map_entries": _counted(3 + constants, f"{base}_map_entries"),
        "frozen": _counted(len(variant.frozen), f"{base}_frozen"),
        "push_size": push.size if push else 0,
        "push_constants": _counted(
            len(push.fields) if push else 0, f"{c_type(family.name, 'push_constants')}_fields"
        ),
        "features": _counted(len(names), feature_lists.get(names, "NULL")),
        "subgroup_size": variant.subgroup_size,
        "cooperative_matrix": _optional(variant.cooperative_matrix),
    }


def _features(variant: VariantPlan) -> tuple[str, ...]:
    return features(variant.requires, variant.subgroup_size)


def _counted(count: int, name: str) -> str:
    return f"{count}, {name if count else 'NULL'}"


def _bits(constant: Constant) -> int:
    """Return the default's four bytes as an unsigned integer; a float's are its IEEE bits."""
    code = "<f" if constant.type == "float" else "<q"
    data: bytes = packing.pack(code, constant.default)
    return int.from_bytes(data[:4], "little")


def _word_lines(code: bytes) -> list[str]:
    words = [f"0x{word:08x}" for (word,) in packing.iter_unpack("<I", code)]
    rows = (words[i : i + _WORDS_A_LINE] for i in range(0, len(words), _WORDS_A_LINE))
    return [", ".join(row) for row in rows]


def _optional(text: str) -> str:
    return c_string(text) if text else "NULL"


def c_string(text: str) -> str:
    """Return ``text`` as a C string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def render(template: str, view: Mapping[str, Any]) -> bytes:
    """Render one of the tool's own templates; a name it asks for and does not get is a bug."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "emit"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(template).render(view).encode()
