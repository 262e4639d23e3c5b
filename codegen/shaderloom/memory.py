"""Byte offsets of uniform-block (std140) and push-constant (std430) members.

Members are scalars and vectors only, never arrays, matrices or structs, and for
those both layouts give the same offsets: each member at the next multiple of its base
alignment (GLSL 4.60, section 7.6.2.2, rules 1 to 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shaderloom.dtypes import MEMBER_TYPES
from shaderloom.interface import Field, Struct


def place(name: str, fields: Iterable[Field]) -> Struct:
    """Return the struct with every field at its offset; offsets and sizes given are ignored.

    An ``int`` before an ``ivec2`` leaves a hole: offsets 0 and 8, size 16.
    """
    placed: list[Field] = []
    end = 0
    for field in fields:
        type_ = MEMBER_TYPES[field.type]
        offset = -(-end // type_.align) * type_.align
        placed.append(replace(field, offset=offset, size=type_.size))
        end = offset + type_.size
    return Struct(name, tuple(placed))
