"""Values of specialization constants as people write them, held against a variant's constants."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence

from shaderloom.errors import Diagnostic, Position, SpecError, nearest
from shaderloom.interface import LOCAL_SIZE_IDS, EnumPlan, Frozen, VariantPlan

LOCAL_SIZES = ("local_size_x", "local_size_y", "local_size_z")  # how IDs 0, 1, 2 are called

_INTEGER = re.compile(r"[-+]?[0-9]+")
_BOOLS = {"0": 0, "1": 1, "false": 0, "true": 1}


def parse_setting(variant: VariantPlan, enums: Sequence[EnumPlan], name: str, value: str) -> Frozen:
    """Read the value of one constant; ValueError says that there is no such constant or value.

    An enum constant takes a name of its enum, or that name's number.
    """
    types = {c.name: (c.id, c.enum or c.type) for c in variant.constants}
    types |= {size: (id_, "uint") for size, id_ in zip(LOCAL_SIZES, LOCAL_SIZE_IDS, strict=True)}
    if name not in types:
        hint = nearest(name, list(types))
        raise ValueError(f"{variant.name} has no specialization constant '{name}'{hint}")
    if name in {frozen.name for frozen in variant.frozen}:
        raise ValueError(f"'{name}' is frozen in {variant.name} already")
    id_, type_ = types[name]
    values = next((dict(enum.values) for enum in enums if enum.name == type_), None)
    least = 1 if id_ in LOCAL_SIZE_IDS else 0
    bits = _bits(value, type_, values, least)
    if bits is None:
        wanted = "local size of 1 or more" if id_ in LOCAL_SIZE_IDS else type_
        hint = nearest(value, list(values or ()))
        raise ValueError(f"'{value}' of '{name}' is no {wanted}{hint}")
    return Frozen(id_, name, bits, value)


def parse_settings(
    variant: VariantPlan, enums: Sequence[EnumPlan], texts: Sequence[str]
) -> tuple[Frozen, ...]:
    """Read ``NAME=VALUE`` texts; the result is in order of IDs.

    Raises SpecError with every unknown name, repetition and value that does not fit.
    """
    found: dict[str, Frozen] = {}
    errors = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            errors.append(f"'{text}' is not NAME=VALUE")
        elif name in found:
            errors.append(f"'{name}' is set twice")
        else:
            try:
                found[name] = parse_setting(variant, enums, name, value)
            except ValueError as error:
                errors.append(str(error))
    if errors:
        raise SpecError(Diagnostic(Position("--set"), error) for error in errors)
    return tuple(sorted(found.values(), key=lambda setting: setting.id))


def _bits(text: str, type_: str, enum: Mapping[str, int] | None, least: int) -> int | None:
    """Return the 32 bits of a value, None if it does not fit its type."""
    if enum is not None:
        numbers = {str(number): number for number in enum.values()}
        value = enum.get(text, numbers.get(text))
        return None if value is None else value & 0xFFFFFFFF
    if type_ == "bool":
        return _BOOLS.get(text)
    if type_ == "float":
        return _float_bits(text)
    if not _INTEGER.fullmatch(text):
        return None
    low, high = (least, 2**32) if type_ == "uint" else (-(2**31), 2**31)
    return int(text) & 0xFFFFFFFF if low <= int(text) < high else None


def _float_bits(text: str) -> int | None:
    try:
        value = float(text)
        packed = struct.pack("<f", value)
    except (ValueError, OverflowError):
        return None
    return int(struct.unpack("<I", packed)[0]) if math.isfinite(value) else None
