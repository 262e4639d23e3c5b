"""What changed between two manifests, and whether it breaks a host that used the old registry.

The variants that both manifests have are compared part by part; parts are matched by name, or
by the new manifest's ``renamed_from``. Only interfaces count: other code behind an equal
interface is no change. A change is breaking when a host that took its names, numbers and sizes
from the old registry is wrong with the new modules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shaderloom.diff_manifest import Item, Manifest, Shader

Fact = int | float | str | None


@dataclass(frozen=True)
class Change:
    """One difference. ``before`` and ``after`` are what ``attribute`` was and is.

    The attribute of what moved is ``number``: a binding, a constant's ID, a byte offset, an enum
    value. ``variants`` are those concerned, () for all that both sides have.
    """

    family: str  # "" for an enum
    part: str  # enum, enum value, family, variant, binding, uniform block, field, constant, ...
    kind: str  # added, removed, moved, renamed (and maybe moved), retyped, resized, changed
    name: str
    breaking: bool
    why: str
    within: str = ""  # the uniform block of a field, the enum of a value
    old_name: str = ""  # of what was renamed
    attribute: str = ""
    before: Fact = None
    after: Fact = None
    type: str = ""  # of a constant or a field
    block: str = ""  # the interface block that owns it
    variants: tuple[str, ...] = ()


# (part, kind or attribute) -> what is wrong with a host that goes by the old registry.
_BREAKING = {
    ("enum", "removed"): "still named",
    ("enum value", "removed"): "still asked for",
    ("enum value", "moved"): "given the old number",
    ("family", "removed"): "still asked for",
    ("variant", "removed"): "still asked for",
    ("binding", "added"): "not bound yet",
    ("binding", "removed"): "still bound",
    ("binding", "moved"): "bound at the old number",
    ("field", "added"): "not written yet",
    ("field", "removed"): "still written",
    ("field", "moved"): "written at the old offset",
    ("constant", "removed"): "still set",
    ("constant", "moved"): "set at the old ID",
    ("constant", "default"): "left out, it has another value",
    ("feature", "added"): "not enabled yet",
    ("", "renamed"): "called by the old name",
    ("", "retyped"): "given the old type",
    ("", "resized"): "given the old size",
    ("", "changed"): "treated as before",
}
# What a part of another kind breaks like.
_LIKE = {"uniform block": "binding", "push constant": "field"}
# Facts that make another type of a part; the other facts are "changed".
_TYPES = frozenset(("kind", "storage", "dtype", "access", "type", "enum"))


def diff(old: Manifest, new: Manifest) -> tuple[Change, ...]:
    """Return every change: enums first, then families by name, each part in order."""
    changes = list(_enums(old.enums, new.enums))
    families = sorted({shader.family for shader in (*old.shaders.values(), *new.shaders.values())})
    for family in families:
        changes += _family(family, old, new)
    return tuple(changes)


def exit_code(changes: Sequence[Change]) -> int:
    """Return 0 for no change, 3 for compatible ones only, 4 when one is breaking."""
    if any(change.breaking for change in changes):
        return 4
    return 3 if changes else 0


def _change(family: str, part: str, kind: str, name: str, **more: Any) -> Change:
    """Make a change and judge it: by its part and its attribute or kind, else by its kind."""
    like = _LIKE.get(part, part)
    keys = ((like, more.get("attribute", "")), (like, kind), ("", kind))
    why = next((_BREAKING[key] for key in keys if key in _BREAKING), "")
    return Change(family, part, kind, name, bool(why), why, **more)


def _harmless(change: Change, why: str = "") -> Change:
    return replace(change, breaking=False, why=why)


def _enums(
    old: Mapping[str, Mapping[str, int]], new: Mapping[str, Mapping[str, int]]
) -> Iterator[Change]:
    for enum in sorted({*old, *new}):
        if enum not in new or enum not in old:
            yield _change("", "enum", "removed" if enum in old else "added", enum)
            continue
        before, after = old[enum], new[enum]
        for name in sorted({*before, *after}, key=lambda n: (after.get(n, before.get(n)), n)):
            values = {
                "within": enum, "attribute": "number",
                "before": before.get(name), "after": after.get(name),
            }  # fmt: skip
            if name not in after:
                yield _change("", "enum value", "removed", name, **values)
            elif name not in before:
                yield _change("", "enum value", "added", name, **values)
            elif before[name] != after[name]:
                yield _change("", "enum value", "moved", name, **values)


def _family(family: str, old: Manifest, new: Manifest) -> Iterator[Change]:
    before, after = old.family(family), new.family(family)
    if not before or not after:
        kind = "removed" if before else "added"
        yield _change(family, "family", kind, family, variants=tuple(sorted({*before, *after})))
        return
    for name in sorted({*before, *after}):
        if name not in after and name not in new.shaders:
            yield _change(family, "variant", "removed", name)
        elif name not in before and name not in old.shaders:
            yield _change(family, "variant", "added", name)
    common = sorted(name for name in after if name in old.shaders)
    found: dict[Change, list[str]] = defaultdict(list)
    for name in common:
        renames = new.renamed_from.get(family, {})
        for change in _shader(old.shaders[name], new.shaders[name], renames):
            found[change].append(name)
    for change, names in found.items():
        yield replace(change, variants=() if names == common else tuple(names))


def _shader(old: Shader, new: Shader, renames: Mapping[str, str]) -> Iterator[Change]:
    family = new.family
    for attribute, before in old.facts.items():
        after = new.facts[attribute]
        if before != after:
            yield _change(
                family, "shader", "changed", attribute,
                attribute=attribute, before=before, after=after,
            )  # fmt: skip
    yield from _needs(old, new)
    pairs = _pairs(old.bindings, new.bindings, renames)
    for was, item in pairs:
        shown = item or was
        assert shown is not None  # a pair has at least one side
        uniform = shown.facts["kind"] == "uniform_buffer"
        yield from _item(family, "uniform block" if uniform else "binding", was, item)
    for was, item in pairs:
        if was and item:
            yield from _struct(family, "field", (was, item), renames)
    yield from _struct(family, "push constant", (old.push_constants, new.push_constants), renames)
    taken = {item.number: item.name for item in old.constants}
    for was, item in _pairs(old.constants, new.constants, renames):
        for change in _item(family, "constant", was, item):
            if was or not item:
                yield change
            elif item.number in taken:
                yield replace(change, breaking=True, why=f"the ID was that of {taken[item.number]}")
            else:
                yield _harmless(change, "it has a default")


def _needs(old: Shader, new: Shader) -> Iterator[Change]:
    """What a shader asks of the device: more of it breaks a host, less does not."""
    for part, before, after in (
        ("feature", old.features, new.features),
        ("compiler extension", old.requires, new.requires),
    ):
        for name in sorted(before ^ after):
            yield _change(new.family, part, "added" if name in after else "removed", name)
    for attribute in ("target_env", "subgroup_size", "shared_memory", "cooperative_matrix"):
        was, now = old.needs[attribute], new.needs[attribute]
        if was != now:
            change = _change(
                new.family, "shader", "changed", attribute,
                attribute=attribute, before=was, after=now,
            )  # fmt: skip
            # vulkan1.2 -> vulkan1.1 asks for less, and so does a subgroup of 32 -> 0 (any size);
            # 64 -> 32 does not.
            exact = attribute in ("subgroup_size", "cooperative_matrix")
            asks_less = not now if exact else now < was
            yield _harmless(change) if asks_less else change


Pair = tuple["Item | None", "Item | None"]


def _pairs(old: Sequence[Item], new: Sequence[Item], renames: Mapping[str, str]) -> list[Pair]:
    """Match the items of two sides: those that are gone, then the new side in its order."""
    before = {item.name: item for item in old}
    now = {item.name for item in new}
    matched: list[Pair] = []
    for item in new:
        name = item.name
        if name not in before and renames.get(name) in before.keys() - now:
            name = renames[name]
        matched.append((before.pop(name, None), item))
    return [*((item, None) for item in before.values()), *matched]


def _item(
    family: str, part: str, old: Item | None, new: Item | None, within: str = ""
) -> Iterator[Change]:
    """Compare one binding, field or constant of the two sides."""
    item = new or old
    assert item is not None  # a pair has at least one side
    about = {
        "within": within, "block": item.block, "type": str(item.facts.get("type", "")),
        "attribute": "number",
        "before": old.number if old else None, "after": new.number if new else None,
    }  # fmt: skip
    if old is None or new is None:
        yield _change(family, part, "removed" if old else "added", item.name, **about)
        return
    if old.name != new.name:
        yield _change(family, part, "renamed", new.name, old_name=old.name, **about)
    elif old.number != new.number:
        yield _change(family, part, "moved", new.name, **about)
    for attribute in sorted(old.facts.keys() & new.facts.keys()):
        before, after = old.facts[attribute], new.facts[attribute]
        if before != after:
            facts = {"attribute": attribute, "before": before, "after": after}
            kind = "retyped" if attribute in _TYPES else "changed"
            change = _change(family, part, kind, new.name, **{**about, **facts})
            # An operand that may be absent now could never be absent before.
            optional = attribute == "absent" and not before
            yield _harmless(change, "never absent so far") if optional else change
    if old.block != new.block:
        facts = {"attribute": "block", "before": old.block, "after": new.block}
        yield _harmless(_change(family, part, "changed", new.name, **{**about, **facts}))


def _struct(
    family: str, part: str, pair: tuple[Item, Item], renames: Mapping[str, str]
) -> Iterator[Change]:
    """Compare the members of a uniform block or of the push constants, and their sizes."""
    old, new = pair
    within = new.name if part == "field" else ""
    for was, item in _pairs(old.fields, new.fields, renames):
        yield from _item(family, part, was, item, within)
    if old.size != new.size:
        whole = "uniform block" if part == "field" else "push constants"
        yield _change(
            family, whole, "resized", new.name,
            attribute="size", before=old.size, after=new.size,
        )  # fmt: skip
