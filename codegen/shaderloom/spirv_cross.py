"""The second witness: spirv-cross, an independent reader, run with ``--reflect``.

Its JSON holds all that ``Reflection`` asks, with these gaps (checked on 1.3.239): defaults of
8-, 16- and 64-bit constants are left out (NaN here), an infinite default makes invalid JSON,
stripped names are invented, and modules with cooperative matrices are not read at all.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shaderloom.interface import (
    Field,
    Kind,
    ReflectedBinding,
    ReflectedConstant,
    Reflection,
)
from shaderloom.reflect import binding_order
from shaderloom.spirv import unreadable

_KINDS = {  # list in the JSON -> kind
    "textures": Kind.SAMPLED_IMAGE,
    "images": Kind.STORAGE_IMAGE,
    "ssbos": Kind.STORAGE_BUFFER,
    "ubos": Kind.UNIFORM_BUFFER,
}
_OTHER_RESOURCES = (
    "separate_images",
    "separate_samplers",
    "subpass_inputs",
    "acceleration_structures",
)
_IMAGE = re.compile(r"[a-z0-9]*?(?:sampler|image)(1D|2D|3D|Cube)((?:MS)?(?:Array)?)(?:Shadow)?")
_SCALAR_BYTES = {
    **dict.fromkeys(("int8_t", "uint8_t"), 1),
    **dict.fromkeys(("int16_t", "uint16_t", "float16_t"), 2),
    **dict.fromkeys(("int", "uint", "float"), 4),
    **dict.fromkeys(("int64_t", "uint64_t", "double"), 8),
}
_VECTOR = re.compile(r"(|i|u|d|f16|i8|u8|i16|u16|i64|u64)vec([234])")
_PREFIX_BYTES = {
    **dict.fromkeys(("i8", "u8"), 1),
    **dict.fromkeys(("i16", "u16", "f16"), 2),
    **dict.fromkeys(("", "i", "u"), 4),
    **dict.fromkeys(("i64", "u64", "d"), 8),
}
_MATRIX = re.compile(r"(?:|d|f16)mat([234])(?:x([234]))?")


def parse_spirv_cross(json_text: str, name: str) -> Reflection:
    """Translate spirv-cross's JSON; ``name`` is the module's file.

    A default that spirv-cross does not tell is NaN. Raises ``SpirvError`` on other JSON, and
    like ``reflect`` on resources that no ``Kind`` describes.
    """
    try:
        document = json.loads(json_text)
        other = [key for key in _OTHER_RESOURCES if document.get(key)]
        if other:
            raise unreadable(name, f"shaderloom does not describe its {other[0]}")
        return _reflection(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        message = f"spirv-cross wrote a reflection that is not understood: {error!r}"
        raise unreadable(name, message) from error


def disagreements(first: Reflection, second: Reflection) -> tuple[str, ...]:
    """Compare the two witnesses on all that both can know; one sentence for each difference.

    ``first`` is our reader's, ``second`` spirv-cross's. Not compared: names that ``first`` has
    not (the module is stripped), defaults that ``second`` has not.
    """
    found = list(_compare("binding (set, number)", _by_place(first), _by_place(second)))
    second_fields = {place: b.fields for place, b in _by_place(second).items()}
    for place, binding in _by_place(first).items():
        where = f"binding {place} field at offset"
        other = second_fields.get(place, binding.fields)
        found += _compare(where, _by_offset(binding.fields), _by_offset(other))
    found += _compare(
        "specialization constant",
        {c.id: c for c in first.constants},
        {c.id: c for c in second.constants},
    )
    found += _compare(
        "push constant at offset",
        _by_offset(first.push_constants),
        _by_offset(second.push_constants),
    )
    if first.local_size_ids != second.local_size_ids:
        found.append(_differs("the local size", "ids", first.local_size_ids, second.local_size_ids))
    return tuple(found)


def _reflection(document: dict[str, Any]) -> Reflection:
    types = document.get("types", {})
    (entry,) = document["entryPoints"]
    if entry["mode"] != "comp":
        raise ValueError(f"entry point mode {entry['mode']}")
    bindings = [
        _binding(resource, kind, types)
        for key, kind in _KINDS.items()
        for resource in document.get(key, [])
    ]
    sizes = zip(entry["workgroup_size"], entry["workgroup_size_is_spec_constant_id"], strict=True)
    local_size = tuple(size for size, is_id in sizes if is_id)
    constants = [
        ReflectedConstant(c["id"], c["name"], c["type"], _default(c.get("default_value", math.nan)))
        for c in document.get("specialization_constants", [])
        if c["id"] not in local_size
    ]
    push = [
        field for block in document.get("push_constants", []) for field in _fields(block, types)
    ]
    return Reflection(
        bindings=tuple(sorted(bindings, key=binding_order)),
        constants=tuple(sorted(constants, key=lambda c: (c.id, c.name))),
        push_constants=tuple(push),
        local_size_ids=local_size,
    )


def _binding(resource: dict[str, Any], kind: Kind, types: dict[str, Any]) -> ReflectedBinding:
    if "array" in resource:
        raise ValueError(f"{resource['name']} is an array of descriptors")
    buffer = kind in (Kind.STORAGE_BUFFER, Kind.UNIFORM_BUFFER)
    storage = kind in (Kind.STORAGE_BUFFER, Kind.STORAGE_IMAGE)
    return ReflectedBinding(
        set=resource["set"],
        binding=resource["binding"],
        name=resource["name"],
        kind=kind,
        dim="buffer" if buffer else _dim(resource["type"]),
        format=resource.get("format", ""),
        readable=not resource.get("writeonly", False),
        writable=storage and not resource.get("readonly", False),
        fields=_fields(resource, types) if kind is Kind.UNIFORM_BUFFER else (),
    )


def _dim(image: str) -> str:
    match = _IMAGE.fullmatch(image)
    if match is None:
        raise ValueError(f"image type {image}")
    return "".join(match.groups()).lower()


def _fields(block: dict[str, Any], types: dict[str, Any]) -> tuple[Field, ...]:
    fields = [_field(member, types) for member in types[block["type"]]["members"]]
    return tuple(sorted(fields, key=lambda field: field.offset))


def _field(member: dict[str, Any], types: dict[str, Any]) -> Field:
    spelling = "struct" if member["type"] in types else member["type"]
    if "array" not in member:
        size = _size(member, types)
    elif all(member["array_size_is_literal"]):
        # The inner dimension is first, the stride is the outer one's: int[2][3] is [3, 2].
        size = member["array"][-1] * member["array_stride"]
        spelling += "".join(f"[{length}]" for length in reversed(member["array"]))
    else:
        raise ValueError(f"{member['name']} is sized by a specialization constant")
    return Field(member["name"], spelling, member["offset"], size)


def _size(member: dict[str, Any], types: dict[str, Any]) -> int:
    spelling = member["type"]
    if spelling in types:
        return max(f.offset + f.size for f in _fields(member, types))
    if spelling in _SCALAR_BYTES:
        return _SCALAR_BYTES[spelling]
    if vector := _VECTOR.fullmatch(spelling):
        return _PREFIX_BYTES[vector[1]] * int(vector[2])
    if matrix := _MATRIX.fullmatch(spelling):
        columns, rows = int(matrix[1]), int(matrix[2] or matrix[1])
        lines = rows if member.get("row_major", False) else columns
        return lines * int(member["matrix_stride"])
    raise ValueError(f"type {spelling}")


def _default(value: bool | int | float) -> int | float:
    return int(value) if isinstance(value, bool) else value


def _by_place(reflection: Reflection) -> dict[tuple[int, int], ReflectedBinding]:
    return {(b.set, b.binding): b for b in reflection.bindings}


def _by_offset(fields: Sequence[Field]) -> dict[int, Field]:
    return {field.offset: field for field in fields}


_Item = Field | ReflectedBinding | ReflectedConstant


def _compare(what: str, first: Mapping[Any, _Item], second: Mapping[Any, _Item]) -> Iterator[str]:
    for key in sorted(first.keys() | second.keys()):
        if key not in first or key not in second:
            reader = "our reader" if key in first else "spirv-cross"
            yield f"{what} {key} is seen by {reader} only"
            continue
        ours, theirs = first[key], second[key]
        for attribute in (f.name for f in dataclasses.fields(ours)):
            a, b = getattr(ours, attribute), getattr(theirs, attribute)
            unknown = (attribute == "name" and not a) or (attribute == "default" and math.isnan(b))
            if a != b and not unknown and attribute != "fields":
                yield _differs(f"{what} {key}", attribute, a, b)


def _differs(what: str, attribute: str, first: object, second: object) -> str:
    return f"{what}: {attribute} is {first!r} to our reader, {second!r} to spirv-cross"
