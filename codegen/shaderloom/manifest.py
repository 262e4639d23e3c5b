"""The machine-readable layout: plan facts only, sorted, the same bytes on every run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shaderloom.cache import digest
from shaderloom.dtypes import features
from shaderloom.interface import LOCAL_SIZE_IDS, Binding, Plan, Struct, VariantPlan
from shaderloom.names import operand
from shaderloom.render import GENERATED, GlslSource, essence

MANIFEST_VERSION = 1


def manifest(plan: Plan, sources: Mapping[str, GlslSource]) -> dict[str, Any]:
    """Return ``manifest.json`` as data.

    ``source`` is the digest of what a compiler sees of a shader, so moving a comment
    leaves it alone.
    """
    shaders = {
        variant.name: {**_shader(variant), "source": digest(essence(sources[variant.name].text))}
        for variant in plan.variants
    }
    return {
        "_generated": GENERATED.format(source=plan.spec_name),
        "schema": MANIFEST_VERSION,
        "layout_hash": layout_hash(plan),
        **_shared(plan),
        "shaders": shaders,
    }


def layout_hash(plan: Plan) -> str:
    """Return 16 hex digits over every interface, name and enum, but no shader's code.

    Registry, dispatcher and manifest carry it, so a host can assert that they are one.
    """
    layout = {**_shared(plan), "shaders": {v.name: _shader(v) for v in plan.variants}}
    return digest(json.dumps(layout, sort_keys=True))[:16]


def to_json(data: Any) -> bytes:
    """Return ``data`` as JSON with sorted keys, two-space indentation and a final newline."""
    return (json.dumps(data, indent=2, sort_keys=True) + "\n").encode()


def _shared(plan: Plan) -> dict[str, Any]:
    renamed = {f.name: dict(f.renamed_from) for f in plan.families if f.renamed_from}
    return {"enums": {e.name: dict(e.values) for e in plan.enums}, "renamed_from": renamed}


def _shader(variant: VariantPlan) -> dict[str, Any]:
    push = variant.push_constants
    more: dict[str, Any] = {}
    if variant.shared_memory:
        more["shared_memory"] = variant.shared_memory
    if variant.cooperative_matrix:
        more["cooperative_matrix"] = variant.cooperative_matrix
    if variant.frozen:
        more["frozen_from"] = variant.frozen_from
        more["frozen"] = [
            {"id": f.id, "name": f.name, "value": f.shown, "bits": f.bits} for f in variant.frozen
        ]
    return {
        **more,
        "family": variant.family,
        "op": variant.op,
        "axes": dict(variant.axes),
        "requires": list(variant.requires),
        "features": list(features(variant.requires, variant.subgroup_size)),
        "target_env": variant.target_env,
        "subgroup_size": variant.subgroup_size,
        "local_size_ids": list(LOCAL_SIZE_IDS),
        "bindings": [_binding(binding) for binding in variant.bindings],
        "push_constants": _struct(push) if push else None,
        "constants": [
            {
                "id": constant.id,
                "name": constant.name,
                "type": constant.type,
                "enum": constant.enum,
                "default": constant.default,
                "block": constant.owner,
            }
            for constant in variant.constants
        ],
    }


def _binding(binding: Binding) -> dict[str, Any]:
    data: dict[str, Any] = {
        "binding": binding.binding,
        "name": binding.name,
        "kind": binding.kind.value,
        "storage": binding.storage,
        "access": binding.access,
        "block": binding.owner,
    }
    if binding.block:
        return {**data, **_struct(binding.block)}
    return {
        **data,
        "dtype": binding.dtype,
        "operand": binding.operand,
        "absent": operand(binding.absent),
        "packed_by": binding.packed_by,
    }


def _struct(struct: Struct) -> dict[str, Any]:
    return {
        "size": struct.size,
        "fields": [
            {"name": f.name, "type": f.type, "offset": f.offset, "block": f.owner}
            for f in struct.fields
        ],
    }
