"""``shaderloom diff``: the worked diff, what breaks a host and what does not, bad input.

``python -m pytest tests/test_diff.py --update-golden`` writes ``worked_diff/expected.*`` anew.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_support import Project, run_program
from shaderloom import pipeline
from shaderloom.diff import diff, exit_code
from shaderloom.diff_manifest import read_manifest
from shaderloom.errors import LoomError

WORKED = Path(__file__).parent / "worked_diff"
FAMILIES = (
    "conv2d_dw",
    "conv2d_dw_output_tile",
    "conv2d_gemm",
    "conv2d_pw_tiled",
    "conv2d_tiled",
    "conv_transpose2d",
)


def manifest_of(spec: Path) -> bytes:
    return pipeline.committed(pipeline.weave(spec))["manifest.json"]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder with ``before.json`` and ``after.json``."""
    folder = tmp_path_factory.mktemp("worked")
    for side in ("before", "after"):
        (folder / f"{side}.json").write_bytes(manifest_of(WORKED / side / "variants.yaml"))
    return Project(folder)


# ---- the worked diff ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "suffix"), [("text", "txt"), ("json", "json"), ("markdown", "md")]
)
def test_worked_diff(
    worked: Project, form: str, suffix: str, request: pytest.FixtureRequest
) -> None:
    ran = worked.loom("diff", "before.json", "after.json", "--format", form)
    golden = WORKED / f"expected.{suffix}"
    if request.config.getoption("--update-golden"):
        golden.write_text(ran.out, encoding="utf-8")
    assert golden.is_file(), f"{golden} is missing; --update-golden writes it"
    assert ran.out == golden.read_text(encoding="utf-8")
    assert (ran.code, ran.err) == (4, "")


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("conv2d_tiled", "constant has_bias 7 -> 6"),
        ("conv2d_tiled", "constants 8-9 -> 7-8: in_group_channels, out_group_channels"),
        ("conv2d_tiled", "uniform blocks 4-8 -> 6-10: out_limits, in_sizes, conv_params"),
        ("conv2d_dw", "uniform blocks 4-8 -> 6-10"),
        ("conv_transpose2d", "uniform blocks 4-8 -> 6-10"),
        ("conv2d_pw_tiled", "uniform blocks 4-5 -> 6-7: in_sizes, out_sizes"),
        ("conv2d_gemm", "uniform block out_sizes 4 -> 6"),
        ("conv2d_tiled", "constant clamp_out -> has_activation, 6 -> 9"),
        ("conv2d_tiled", "added    constants 10-13: activation_op, has_residual, has_scale"),
        ("conv2d_dw", "removed  constant ngroups 3"),
        ("conv_transpose2d", "removed  constant packed_dim 3"),
        ("conv2d_pw_tiled", "removed  constant activation_type 4"),
        ("conv2d_gemm", "removed  constant activation_type 3"),
        ("conv2d_pw_tiled", "removed  push constants at 16, 20: out_min, out_max"),
        ("conv2d_gemm", "removed  push constants at 16, 20: out_min, out_max"),
        ("conv2d_dw_output_tile", "removed  push constants at 80, 84: out_min, out_max"),
        ("conv2d_dw_output_tile", "push constants 88 -> 92 bytes"),
        ("conv2d_pw_tiled", "push constants 24 -> 28 bytes"),
        ("conv2d_gemm", "push constants 24 -> 32 bytes"),
        ("conv2d_dw", "removed  variants conv2d_dw_clamp_float, conv2d_dw_clamp_half"),
        ("conv_transpose2d", "removed  variants conv_transpose2d_clamp_float"),
        ("conv2d_dw_output_tile", "conv2d_dw_output_tile_5x5_sned_clamp_half"),
        *((family, "added    bindings 4-5: t_residual, t_scale") for family in FAMILIES),
    ],
)
def test_worked_diff_says(worked: Project, family: str, said: str) -> None:
    text = worked.loom("diff", "before.json", "after.json").out
    sections = dict(part.split("\n", 1) for part in text.split("\n\n"))
    assert said in sections[family]


def test_audit_of_before_finds_the_dead_constants() -> None:
    ran = Project(WORKED / "before").loom("audit")
    errors = [line for line in ran.err.splitlines() if ": error: " in line]
    assert (ran.code, len(errors)) == (1, 2)
    for error, (family, name) in zip(
        errors, (("conv2d_dw", "ngroups"), ("conv_transpose2d", "packed_dim")), strict=True
    ):
        dead = f"{family}: error: specialization constant 3 ({name}) is used by no variant"
        assert error.startswith(dead)


def test_after_is_the_library(worked: Project, built: Project) -> None:
    """A host of ``after`` is right with this repository's shaders: only variants were added."""
    after = read_manifest((worked.folder / "after.json").read_bytes(), "after")
    library = read_manifest((built.out / "manifest.json").read_bytes(), "library")
    found = [change for change in diff(after, library) if change.family in FAMILIES]
    assert {(change.part, change.kind) for change in found} == {("variant", "added")}


# ---- judgements -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny_manifest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("tiny") / "project"
    shutil.copytree(Path(__file__).parent / "golden" / "base", folder)
    data: dict[str, Any] = json.loads(manifest_of(folder / "variants.yaml"))
    return data


def code(old: dict[str, Any], new: dict[str, Any]) -> int:
    return exit_code(diff(*(read_manifest(json.dumps(d).encode(), "m") for d in (old, new))))


def each(manifest: dict[str, Any], edit: Callable[[dict[str, Any]], object]) -> None:
    for name in ("copy_float", "copy_half"):
        edit(manifest["shaders"][name])


def constant(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "type": "int", "enum": "", "default": 0, "block": ""}


def field(offset: int, name: str) -> dict[str, Any]:
    return {"name": name, "type": "float", "offset": offset, "block": ""}


def add_binding(shader: dict[str, Any]) -> None:
    shader["bindings"].append({**shader["bindings"][1], "binding": 3, "name": "t_more"})


def add_leading_constant(shader: dict[str, Any]) -> None:
    for old in shader["constants"]:
        old["id"] += 1
    shader["constants"].insert(0, constant(3, "more"))


def swap_push_constants(shader: dict[str, Any]) -> None:
    first, second = shader["push_constants"]["fields"]
    first["offset"], second["offset"] = second["offset"], first["offset"]


def grow_push_constants(shader: dict[str, Any]) -> None:
    shader["push_constants"]["fields"].append(field(8, "more"))
    shader["push_constants"]["size"] = 12


# What a change does to a host of the old registry: 0 nothing, 3 compatible, 4 breaking.
EDITS: dict[str, tuple[int, Callable[[dict[str, Any]], object]]] = {
    "nothing": (0, lambda m: None),
    "other code": (0, lambda m: each(m, lambda s: s.update(source="0" * 64))),
    "enum added": (3, lambda m: m["enums"].update(More={"a": 0})),
    "enum value added": (3, lambda m: m["enums"]["GainMode"].update(minus=2)),
    "variant added": (3, lambda m: m["shaders"].update(copy_int=m["shaders"]["copy_half"])),
    "family added": (
        3,
        lambda m: m["shaders"].update(more={**m["shaders"]["copy_half"], "family": "more"}),
    ),
    "trailing constant": (3, lambda m: each(m, lambda s: s["constants"].append(constant(5, "c")))),
    "compiler extension": (3, lambda m: each(m, lambda s: s["requires"].append("GL_EXT_x"))),
    "operand may be absent": (3, lambda m: each(m, lambda s: s["bindings"][1].update(absent="o"))),
    "block of a constant": (3, lambda m: each(m, lambda s: s["constants"][0].update(block=""))),
    "enum removed": (4, lambda m: m["enums"].pop("GainMode")),
    "enum value removed": (4, lambda m: m["enums"]["GainMode"].pop("plus")),
    "enum value moved": (4, lambda m: m["enums"]["GainMode"].update(plus=7)),
    "variant removed": (4, lambda m: m["shaders"].pop("copy_half")),
    "family removed": (4, lambda m: [m["shaders"].pop(f"fill_{d}") for d in ("float", "half")]),
    "other family": (4, lambda m: each(m, lambda s: s.update(family="kopie"))),
    "other op": (4, lambda m: each(m, lambda s: s.update(op="copy"))),
    "feature": (4, lambda m: each(m, lambda s: s["features"].append("shaderInt8"))),
    "target_env": (4, lambda m: each(m, lambda s: s.update(target_env="vulkan1.2"))),
    "subgroup size": (4, lambda m: each(m, lambda s: s.update(subgroup_size=32))),
    "matrices": (4, lambda m: each(m, lambda s: s.update(cooperative_matrix="16x16x16"))),
    "local size": (4, lambda m: each(m, lambda s: s.update(local_size_ids=[0, 1, 9]))),
    "binding added": (4, lambda m: each(m, add_binding)),
    "binding removed": (4, lambda m: each(m, lambda s: s["bindings"].pop())),
    "binding moved": (4, lambda m: each(m, lambda s: s["bindings"][2].update(binding=9))),
    "binding renamed": (4, lambda m: each(m, lambda s: s["bindings"][2].update(name="t_g"))),
    "storage": (4, lambda m: each(m, lambda s: s["bindings"][1].update(storage="texture2d"))),
    "dtype": (4, lambda m: each(m, lambda s: s["bindings"][1].update(dtype="int"))),
    "operand": (4, lambda m: each(m, lambda s: s["bindings"][1].update(operand="x"))),
    "stand-in": (4, lambda m: each(m, lambda s: s["bindings"][2].update(absent="out"))),
    "no stand-in": (4, lambda m: each(m, lambda s: s["bindings"][2].update(absent=""))),
    "packed_by": (4, lambda m: each(m, lambda s: s["bindings"][1].update(packed_by="p"))),
    "leading constant": (4, lambda m: each(m, add_leading_constant)),
    "constant removed": (4, lambda m: each(m, lambda s: s["constants"].pop())),
    "constant's type": (4, lambda m: each(m, lambda s: s["constants"][0].update(type="int"))),
    "constant's enum": (4, lambda m: each(m, lambda s: s["constants"][1].update(enum=""))),
    "constant's default": (4, lambda m: each(m, lambda s: s["constants"][0].update(default=1))),
    "an ID taken over": (
        4,
        lambda m: each(m, lambda s: s["constants"].__setitem__(1, constant(4, "other"))),
    ),
    "push constants swapped": (4, lambda m: each(m, swap_push_constants)),
    "push constants grown": (4, lambda m: each(m, grow_push_constants)),
    "no push constants": (4, lambda m: each(m, lambda s: s.update(push_constants=None))),
}


@pytest.mark.parametrize("edit", EDITS)
def test_judgement(tiny_manifest: dict[str, Any], edit: str) -> None:
    expected, change = EDITS[edit]
    edited = copy.deepcopy(tiny_manifest)
    change(edited)
    assert code(tiny_manifest, edited) == expected


def test_asking_for_less_is_compatible(tiny_manifest: dict[str, Any]) -> None:
    more = copy.deepcopy(tiny_manifest)
    each(more, lambda s: s.update(target_env="vulkan1.2", subgroup_size=32, features=["f"]))
    each(more, lambda s: s.update(cooperative_matrix="16x16x16"))
    assert code(more, tiny_manifest) == 3


@pytest.mark.parametrize(
    ("attribute", "values"),
    [("subgroup_size", (32, 64)), ("cooperative_matrix", ("16x16x16", "16x8x16"))],
)
def test_another_size_or_shape_is_never_less(
    tiny_manifest: dict[str, Any], attribute: str, values: tuple[Any, Any]
) -> None:
    first, second = (copy.deepcopy(tiny_manifest) for _ in values)
    for manifest, value in zip((first, second), values, strict=True):
        each(manifest, lambda s, value=value: s.update({attribute: value}))
    assert (code(first, second), code(second, first)) == (4, 4)


def test_a_change_of_one_variant_names_it(tiny_manifest: dict[str, Any]) -> None:
    edited = copy.deepcopy(tiny_manifest)
    edited["shaders"]["copy_half"]["bindings"][1]["storage"] = "texture2d"
    old, new = (read_manifest(json.dumps(d).encode(), "m") for d in (tiny_manifest, edited))
    [change] = diff(old, new)
    assert (change.variants, change.before, change.after) == (
        *(("copy_half",), "texture3d", "texture2d"),
    )


def test_renames_count_only_where_the_old_name_was(tiny_manifest: dict[str, Any]) -> None:
    edited = copy.deepcopy(tiny_manifest)
    edited["renamed_from"] = {"copy": {"has_gain": "gone_long_ago"}}
    assert code(tiny_manifest, edited) == 0


@given(data=st.data())
def test_the_other_way_round(tiny_manifest: dict[str, Any], data: st.DataObject) -> None:
    """What is added one way is removed the other; nothing else is gained or lost."""
    first, second = (copy.deepcopy(tiny_manifest) for _ in range(2))
    for manifest in (first, second):
        for name in data.draw(st.sets(st.sampled_from(sorted(EDITS)), max_size=3)):
            try:
                EDITS[name][1](manifest)
            except (LookupError, TypeError, ValueError):  # two edits of one thing
                return
    old, new = (read_manifest(json.dumps(m).encode(), "m") for m in (first, second))
    there, back = diff(old, new), diff(new, old)
    mirrored = {"added": "removed", "removed": "added"}
    assert sorted((c.part, c.name, mirrored.get(c.kind, c.kind)) for c in there) == sorted(
        (c.part, c.name, c.kind) for c in back
    )
    assert diff(old, old) == ()


# ---- where manifests come from --------------------------------------------------------------


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    ran = run_program(["git", *who, *arguments], folder)
    assert ran.returncode == 0, ran.stderr


def test_revisions_of_a_project_in_a_subfolder(tiny: Project) -> None:
    git(tiny.folder.parent, "init", "-q")
    for name in ("fill", "filled"):
        text = (tiny.folder / "variants.yaml").read_text(encoding="utf-8")
        tiny.write("variants.yaml", text.replace("name: fill_", f"name: {name}_"))
        tiny.build()
        git(tiny.folder.parent, "add", "-A")
        git(tiny.folder.parent, "commit", "-q", "-m", name)
    ran = tiny.loom("diff", "HEAD~1", "HEAD")
    assert ran.code == 4
    assert "variants fill_float, fill_half" in ran.out
    assert ran.out.endswith(
        "HEAD~1:generated/manifest.json -> HEAD:generated/manifest.json: breaking "
        "(2 breaking, 2 compatible changes in 1 family)\n"
    )
    same = tiny.loom("diff", "HEAD", "generated/manifest.json")
    assert (same.code, same.out) == (
        *(0, "HEAD:generated/manifest.json -> generated/manifest.json: same\n"),
    )
    assert tiny.loom("diff", "HEAD", "HEAD", "--quiet").out == ""
    unknown = tiny.loom("diff", "HEAD", "no-such-thing")
    assert unknown.code == 2
    assert unknown.err.startswith("no-such-thing: error: neither a file nor a git revision with")
    assert tiny.loom("diff", "HEAD", "--", "--output=x").code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is no manifest.json"),
        ("[]", "this is no manifest.json"),
        ("\udcff", "this is no manifest.json"),
        ('{"schema": 99}', "schema 99 is not supported; this tool reads schema 1"),
        ('{"schema": 1}', "this manifest.json is damaged: 'layout_hash'"),
    ],
)
def test_what_is_no_manifest(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.json").write_bytes(text.encode(errors="surrogateescape"))
    ran = Project(tmp_path).loom("diff", "m.json", "m.json")
    assert (ran.code, ran.out, ran.err) == (2, "", f"m.json: error: {message}\n")


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.just([]), st.just({}))


@given(data=st.data())
def test_a_damaged_manifest_is_refused_or_compared(
    tiny_manifest: dict[str, Any], data: st.DataObject
) -> None:
    damaged: Any = copy.deepcopy(tiny_manifest)
    here: Any = damaged
    while True:
        keys = sorted(here) if isinstance(here, dict) else list(range(len(here)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], (dict, list)) or not here[key] or data.draw(st.booleans()):
            break
        here = here[key]
    here[key] = data.draw(LEAVES)
    whole = read_manifest(json.dumps(tiny_manifest).encode(), "whole")
    try:
        other = read_manifest(json.dumps(damaged).encode(), "damaged")
    except LoomError as error:
        assert error.exit_code == 2
    else:
        exit_code(diff(whole, other))
        exit_code(diff(other, whole))
