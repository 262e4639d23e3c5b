"""Manifests to compare: from a file or a git revision, checked before anything is compared."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shaderloom.errors import Diagnostic, LoomError, Position
from shaderloom.manifest import MANIFEST_VERSION
from shaderloom.process import Command, run_all


@dataclass(frozen=True)
class Item:
    """A binding, field or constant: its number (an offset for a field) and what else is known."""

    name: str
    number: int
    facts: Mapping[str, int | float | str]
    block: str = ""
    size: int = 0  # bytes of a uniform block or of the push constants
    fields: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Shader:
    """The interface of one variant."""

    family: str
    facts: Mapping[str, str]  # of which every difference breaks a host
    needs: Mapping[str, Any]  # target_env, subgroup_size: more of it breaks a host
    features: frozenset[str]
    requires: frozenset[str]
    bindings: tuple[Item, ...]
    push_constants: Item
    constants: tuple[Item, ...]


@dataclass(frozen=True)
class Manifest:
    """A manifest; ``label`` is what its user called it."""

    label: str
    layout_hash: str
    enums: Mapping[str, Mapping[str, int]]
    renamed_from: Mapping[str, Mapping[str, str]]  # family -> name now -> name before
    shaders: Mapping[str, Shader]

    def family(self, name: str) -> dict[str, Shader]:
        """Return the variants of a family by name, {} when there is no such family."""
        return {key: shader for key, shader in self.shaders.items() if shader.family == name}


def load_manifest(reference: str, folder: Path, path: Path) -> Manifest:
    """Read a manifest: ``reference`` is a file, or a git revision of ``path``.

    ``folder`` lies in the repository that is asked. Raises LoomError, which exits with 2.
    """
    if Path(reference).is_file():
        try:
            return read_manifest(Path(reference).read_bytes(), reference)
        except OSError as error:
            raise _bad(reference, f"cannot read: {error.strerror or error}") from None
    inside = Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    # "./" is relative to the working folder, wherever the repository's root is.
    argv = ("git", "show", "--end-of-options", f"{reference}:./{inside}")
    [ran] = run_all([Command(argv, folder)], 1)
    if ran.status:
        said = (ran.stderr.strip() or f"git exited {ran.status}").splitlines()[0]
        raise _bad(reference, f"neither a file nor a git revision with {inside}: {said}")
    return read_manifest(ran.stdout.encode(), f"{reference}:{inside}")


def read_manifest(data: bytes, label: str) -> Manifest:
    """Read the bytes of a manifest; raises LoomError when it is no manifest that we can read."""
    try:
        found = json.loads(data)
        schema = found["schema"]
    except (ValueError, LookupError, TypeError):
        raise _bad(label, "this is no manifest.json") from None
    if schema != MANIFEST_VERSION:
        raise _bad(
            label, f"schema {schema} is not supported; this tool reads schema {MANIFEST_VERSION}"
        )
    try:
        return Manifest(
            label=label,
            layout_hash=_text(found["layout_hash"]),
            enums={
                enum: {name: _whole(value) for name, value in values.items()}
                for enum, values in found["enums"].items()
            },
            renamed_from={
                family: {now: _text(before) for now, before in names.items()}
                for family, names in found["renamed_from"].items()
            },
            shaders={name: _shader(entry) for name, entry in found["shaders"].items()},
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _bad(label, f"this manifest.json is damaged: {error}") from None


def _bad(label: str, message: str) -> LoomError:
    return LoomError(Diagnostic(Position(label), message))


def _shader(entry: Mapping[str, Any]) -> Shader:
    push = entry["push_constants"] or {"size": 0, "fields": []}
    return Shader(
        family=_text(entry["family"]),
        facts={
            "family": _text(entry["family"]),
            "op": _text(entry["op"]),
            "frozen": ", ".join(f"{f['name']}={f['value']}" for f in entry.get("frozen", ())),
            "local_size_ids": ", ".join(str(_whole(id_)) for id_ in entry["local_size_ids"]),
        },
        needs={
            "target_env": _text(entry["target_env"]),
            "subgroup_size": _whole(entry["subgroup_size"]),
            "shared_memory": _whole(entry.get("shared_memory", 0)),
            "cooperative_matrix": _text(entry.get("cooperative_matrix", "")),
        },
        features=frozenset(map(_text, entry["features"])),
        requires=frozenset(map(_text, entry["requires"])),
        bindings=tuple(_binding(binding) for binding in entry["bindings"]),
        push_constants=Item("push_constants", 0, {}, "", _whole(push["size"]), _fields(push)),
        constants=tuple(_item(c, "id", "type", "enum", "default") for c in entry["constants"]),
    )


def _binding(data: Mapping[str, Any]) -> Item:
    facts = ["kind", "storage", "access"]
    if "fields" in data:
        item = _item(data, "binding", *facts)
        size = _whole(data["size"])
        return Item(item.name, item.number, item.facts, item.block, size, _fields(data))
    return _item(data, "binding", *facts, "dtype", "operand", "absent", "packed_by")


def _fields(data: Mapping[str, Any]) -> tuple[Item, ...]:
    return tuple(_item(field, "offset", "type") for field in data["fields"])


def _item(data: Mapping[str, Any], number: str, *facts: str) -> Item:
    # Manifests of before 0.1.0 lack some, e.g. "operand"; "type" or "kind" is always there.
    known = {fact: data[fact] for fact in facts if fact in data or fact in ("type", "kind")}
    if not all(isinstance(value, (int, float, str)) for value in known.values()):
        raise TypeError(f"{data['name']} has {known}")
    return Item(_text(data["name"]), _whole(data[number]), known, _text(data["block"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no integer")
    return value
