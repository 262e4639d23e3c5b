"""Offsets, numbers and blocks of random interfaces, against rules written anew and a compiler."""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shaderloom import pipeline
from shaderloom.audit import expected
from shaderloom.cache import Cache
from shaderloom.interface import Field, Plan, Struct
from shaderloom.memory import place
from shaderloom.plan import plan
from shaderloom.source import parse_source
from shaderloom.spec import check_schema
from shaderloom.toolchain import find_toolchain

LANES = {
    **{"int": 1, "uint": 1, "float": 1, "ivec2": 2, "uvec2": 2, "vec2": 2},
    **{"ivec4": 4, "uvec4": 4, "vec4": 4},
}
TYPES = st.sampled_from(sorted(LANES))
STRUCTS = st.lists(TYPES, min_size=1, max_size=12)


def reference(types: list[str]) -> list[int]:
    """The rule in words: a vector starts at the first free multiple of its own size."""
    offsets, free = [], 0
    for type_ in types:
        size = 4 * LANES[type_]
        while free % size:
            free += 4
        offsets.append(free)
        free += size
    return offsets


@given(STRUCTS)
def test_offsets_follow_the_rule(types: list[str]) -> None:
    struct = place("s", [Field(f"f{i}", type_, 0, 0) for i, type_ in enumerate(types)])
    assert [field.offset for field in struct.fields] == reference(types)
    assert [field.size for field in struct.fields] == [4 * LANES[type_] for type_ in types]
    assert struct.size == struct.fields[-1].offset + struct.fields[-1].size


def test_offsets_of_a_known_struct() -> None:
    fields = [Field(name, type_, 0, 0) for name, type_ in [("a", "int"), ("b", "ivec4")]]
    assert [field.offset for field in place("s", fields).fields] == [0, 16]
    assert Struct("none", ()).size == 0


TEMPLATE = """#version 450
{{ interface }}
void main() {}
"""


def family(number: int, uniform: list[str], push: list[str]) -> str:
    def members(prefix: str, types: list[str]) -> str:
        return ", ".join(f"{prefix}{i}: {type_}" for i, type_ in enumerate(types))

    return (
        f"  f{number}:\n    op: none\n    template: s.j2\n    axes: {{}}\n    name: f{number}\n"
        f"    bindings: [{{uniform: block, fields: {{{members('u', uniform)}}}}}]\n"
        f"    push_constants: {{{members('p', push)}}}\n"
    )


@settings(max_examples=2, deadline=None)
@given(structs=st.lists(st.tuples(STRUCTS, STRUCTS), min_size=20, max_size=20))
def test_compilers_place_members_where_the_plan_does(
    structs: list[tuple[list[str], list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("structs")
    text = "shaderloom: 1\nfamilies:\n"
    text += "".join(family(i, uniform, push) for i, (uniform, push) in enumerate(structs))
    (folder / "variants.yaml").write_text(text)
    (folder / "templates").mkdir()
    (folder / "templates/s.j2").write_text(TEMPLATE)
    woven = pipeline.weave(Path(folder / "variants.yaml"))
    proven = pipeline.prove(woven, find_toolchain(), pipeline.Options(2, Cache(None)))
    for variant in woven.plan.variants:
        declared = proven.testimony.facts[variant.name].declared
        uniform, push = structs[int(variant.name[1:])]
        assert [f.offset for f in declared.push_constants] == reference(push)
        assert [f.offset for f in declared.bindings[0].fields] == reference(uniform)
        assert declared == expected(variant)


NAMES = st.lists(
    st.text(string.ascii_lowercase, min_size=5, max_size=9), min_size=3, max_size=9, unique=True
)


def block_plan(before: list[str], inside: list[str], after: list[str]) -> Plan:
    """A family with own members before and after a block that has bindings and constants."""

    def binding(name: str) -> dict[str, Any]:
        return {"name": f"t_{name}", "storage": "buffer", "access": "read", "dtype": "float"}

    def members(names: list[str], prefix: str) -> dict[str, str]:
        return {f"{prefix}_{name}": "int" for name in names}

    spec: dict[str, Any] = {
        "shaderloom": 1,
        "blocks": {
            "block": {
                "header": "h.j2",
                "bindings": [binding(name) for name in inside],
                "parameters": members(inside, "p"),
                "constants": members(inside, "c"),
            }
        },
        "families": {
            "family": {
                "op": "none",
                "template": "t.j2",
                "axes": {},
                "name": "variant",
                "bindings": [
                    *map(binding, before),
                    {"block": "block"},
                    *map(binding, after),
                ],
                "push_constants": {
                    **members(before, "p"), "block": "block", **members(after, "p"),
                },
                "constants": {**members(before, "c"), "block": "block", **members(after, "c")},
            }
        },
    }  # fmt: skip
    return plan(check_schema(parse_source(json.dumps(spec), "variants.yaml")))


@given(NAMES, st.data())
def test_numbers_are_contiguous_and_blocks_whole(names: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(names) - 1))
    second = data.draw(st.integers(first + 1, len(names)))
    before, inside, after = names[:first], names[first:second], names[second:]
    [variant] = block_plan(before, inside, after).variants
    assert [c.id for c in variant.constants] == list(range(3, 3 + len(names)))
    assert [c.name for c in variant.constants] == [f"c_{name}" for name in names]
    assert [b.binding for b in variant.bindings] == list(range(len(names)))
    assert [b.name for b in variant.bindings] == [f"t_{name}" for name in names]
    assert variant.push_constants
    assert [f.name for f in variant.push_constants.fields] == [f"p_{name}" for name in names]
    owned = [
        [c.name for c in variant.constants if c.owner == "block"],
        [b.name for b in variant.bindings if b.owner == "block"],
        [f.name for f in variant.push_constants.fields if f.owner == "block"],
    ]
    assert owned == [[f"{part}_{name}" for name in inside] for part in "ctp"]
