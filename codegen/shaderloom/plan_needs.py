"""What a variant needs of a compiler and a device beside its descriptors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from shaderloom.dtypes import BUFFERS, DTYPES, EXTENSIONS
from shaderloom.errors import nearest
from shaderloom.interface import Binding
from shaderloom.plan_checks import Errors
from shaderloom.source import KeyPath
from shaderloom.spec_model import AxisValue, FamilySpec


def check_requires(family: FamilySpec, errors: Errors, path: KeyPath) -> None:
    """Refuse unknown extensions, and axes and values in ``requires_by`` that do not exist."""
    named: list[tuple[str, KeyPath]] = [
        (extension, ("requires", i)) for i, extension in enumerate(family.requires)
    ]
    for axis, by_value in family.requires_by.items():
        known = [str(value) for value in family.axes.get(axis, ())]
        if axis not in family.axes:
            hint = nearest(axis, list(family.axes))
            errors.add(f"unknown axis '{axis}'{hint}", *path, "requires_by", axis, at_key=True)
            continue
        for value, extensions in by_value.items():
            here: KeyPath = ("requires_by", axis, value)
            if value not in known:
                message = f"axis '{axis}' has no value '{value}'{nearest(value, known)}"
                errors.add(message, *path, *here, at_key=True)
            named += [(extension, (*here, i)) for i, extension in enumerate(extensions)]
    for extension, here in named:
        if extension not in EXTENSIONS:
            hint = nearest(extension, list(EXTENSIONS))
            errors.add(f"unknown extension '{extension}'{hint}", *path, *here)


def extensions_of(
    family: FamilySpec, axes: Mapping[str, AxisValue], bindings: Sequence[Binding]
) -> tuple[str, ...]:
    """Return the GLSL extensions of one variant, sorted; 16-bit buffers bring theirs."""
    needed = set(family.requires)
    for axis, by_value in family.requires_by.items():
        needed.update(by_value.get(str(axes.get(axis)), ()))
    for binding in bindings:
        if binding.storage in BUFFERS and binding.dtype in DTYPES:
            needed.update(DTYPES[binding.dtype].buffer_requires)
    return tuple(sorted(needed))


def subgroup_size_of(text: str, errors: Errors, path: KeyPath) -> int:
    """Read the subgroup size of one variant: a power of two, or 0 for any.

    An empty text, which an unknown axis left and which was reported there, is 0.
    """
    size = int(text or 0) if re.fullmatch(r"[0-9]{0,9}", text) else -1
    if size < 0 or size & (size - 1):
        message = f"'subgroup_size' must be a power of two, or 0 for any, not '{text}'"
        errors.add(message, *path, "subgroup_size")
    return size


def cooperative_matrix_of(text: str, errors: Errors, path: KeyPath) -> str:
    """Read the matrix shape of one variant: MxNxK, for example "16x8x16", or "" for none."""
    if text and not re.fullmatch(r"[1-9][0-9]*x[1-9][0-9]*x[1-9][0-9]*", text):
        message = f"'cooperative_matrix' must be a shape MxNxK, e.g. 16x16x16, not '{text}'"
        errors.add(message, *path, "cooperative_matrix")
    return text
