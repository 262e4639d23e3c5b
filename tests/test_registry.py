"""The C registry: it compiles everywhere without a warning, and it says what the manifest says."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from loom_support import Project, run_program
from shaderloom import pipeline
from shaderloom.names import c_constant, c_type, operand
from shaderloom.plan_checks import (
    REGISTRY_CONSTANTS,
    REGISTRY_FUNCTIONS,
    REGISTRY_PREFIXES,
    REGISTRY_TYPES,
)

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
DIALECTS = [
    ("gcc", "c", "c99"),
    ("gcc", "c", "c11"),
    ("gcc", "c++", "c++17"),
    ("clang", "c", "c99"),
    ("clang", "c++", "c++17"),
]
PROGRAM = Path(__file__).parent / "c/print_registry.c"


def compiled(
    out: Path, source: str, dialect: tuple[str, str, str], target: Path
) -> subprocess.CompletedProcess[str]:
    compiler, language, standard = dialect
    flags = [f"-std={standard}", "-x", language, *STRICT, "-I."]
    return run_program([compiler, *flags, "-c", source, "-o", target], out)


@pytest.mark.parametrize("dialect", DIALECTS, ids=" ".join)
@pytest.mark.parametrize("source", ["registry.c", "spv/spirv.c"])
def test_compiles_without_a_warning(
    built: Project, tmp_path: Path, source: str, dialect: tuple[str, str, str]
) -> None:
    ran = compiled(built.out, source, dialect, tmp_path / "object")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.fixture(scope="module")
def printed(built: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a C program finds in the registry."""
    return registry_in_c(built.out, tmp_path_factory.mktemp("program") / "print_registry")


def registry_in_c(out: Path, program: Path) -> dict[str, Any]:
    sources = [str(PROGRAM), "registry.c", "spv/spirv.c"]
    command = ["gcc", "-std=c99", *STRICT, "-I.", *sources, "-o", str(program)]
    subprocess.run(command, cwd=out, check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


# What only a build or a review needs, so that the registry leaves it to the manifest.
MANIFEST_ONLY = {"axes", "requires", "target_env", "source", "local_size_ids", "shared_memory"}
MANIFEST_ONLY_BINDING = {"block"}
MANIFEST_ONLY_CONSTANT = {"block", "enum", "default"}
SIZES = {"int": 4, "uint": 4, "float": 4, "ivec2": 8, "uvec2": 8, "vec2": 8}


def fields(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**without(field, {"block"}), "size": SIZES.get(field["type"], 16)} for field in items]


def without(data: dict[str, Any], names: set[str]) -> dict[str, Any]:
    assert names <= set(data), f"the manifest has no {names - set(data)}"
    return {name: value for name, value in data.items() if name not in names}


def bits(constant: dict[str, Any]) -> int:
    code = {"bool": "<I", "int": "<i", "uint": "<I", "float": "<f"}[constant["type"]]
    return int.from_bytes(struct.pack(code, constant["default"]), "little")


def in_c(shader: dict[str, Any]) -> dict[str, Any]:
    """Return what the C program must print for a shader of the manifest, but for its module."""
    bindings = []
    for binding in shader["bindings"]:
        of_operand = dict.fromkeys(("dtype", "operand", "absent", "packed_by"), "")
        facts = {**of_operand, "size": 0, "fields": [], "found": True, **binding}
        facts["fields"] = fields(facts["fields"])
        bindings.append(without(facts, MANIFEST_ONLY_BINDING))
    push = shader["push_constants"] or {"size": 0, "fields": []}
    ids = [*shader["local_size_ids"], *(c["id"] for c in shader["constants"])]
    unless_set = {"cooperative_matrix": "", "shared_memory": 0}
    return {
        **without({**unless_set, **shader}, MANIFEST_ONLY),
        "bindings": bindings,
        "constants": [
            {**without(c, MANIFEST_ONLY_CONSTANT), "bits": bits(c), "found": True}
            for c in shader["constants"]
        ],
        "map_entries": [[id_, 4 * i, 4] for i, id_ in enumerate(ids)],
        "push_constant_size": push["size"],
        "push_constants": fields(push["fields"]),
    }


def test_c_and_manifest_say_the_same(built: Project, printed: dict[str, Any]) -> None:
    shaders = json.loads((built.out / "manifest.json").read_text())["shaders"]
    assert list(printed["shaders"]) == sorted(shaders)
    for name, shader in shaders.items():
        found = without(printed["shaders"][name], {"words", "missing"})
        assert found == in_c(shader), name


def test_a_matrix_shape_stands_where_there_is_one(built: Project) -> None:
    """In the manifest, and in words; the registry is compared with the former above."""
    shaders = json.loads((built.out / "manifest.json").read_text())["shaders"]
    shapes = {name: s["cooperative_matrix"] for name, s in shaders.items() if "coopmat" in name}
    assert shapes["matmul_coopmat_16x8x16_64x64_half"] == "16x8x16"
    assert set(shapes.values()) == {"16x16x16", "16x8x16"}
    assert shapes.keys() == {name for name in shaders if "cooperative_matrix" in shaders[name]}
    for name in ("matmul_coopmat_16x8x16_64x64_half", "matmul_tiled_1_half"):
        out = built.loom("explain", name).out
        assert (", subgroup size 32, matrices of 16x8x16\n" in out) == (name in shapes)


def test_a_subgroup_size_needs_its_features(tiny: Project) -> None:
    tiny.replace(
        "variants.yaml",
        "axes: {dtype: [float, half]}\n    name: fill_{dtype}",
        "axes: {dtype: [float], subgroup: [0, 32]}\n    name: fill_{subgroup}\n"
        '    subgroup_size: "{subgroup}"',
    )
    text = pipeline.committed(pipeline.weave(tiny.folder / "variants.yaml"))["manifest.json"]
    shaders = json.loads(text)["shaders"]
    found = [(s["subgroup_size"], s["features"]) for s in map(shaders.get, ("fill_0", "fill_32"))]
    assert found == [(0, []), (32, ["computeFullSubgroups", "subgroupSizeControl"])]


def test_enumerators_are_the_numbers_of_the_manifest(built: Project) -> None:
    header = (built.out / "registry.h").read_text()
    numbers = {name: int(number) for name, number in re.findall(r"  (\w+) = (\d+)\b", header)}
    manifest = json.loads((built.out / "manifest.json").read_text())
    for index, (name, shader) in enumerate(sorted(manifest["shaders"].items())):
        assert numbers[c_constant("shader", name)] == index
        for part, items in (("binding", shader["bindings"]), ("constant", shader["constants"])):
            for item in items:
                id_ = c_constant(shader["family"], part, operand(item["name"]))
                assert numbers[id_] == item["binding" if part == "binding" else "id"]
    for enum, values in manifest["enums"].items():
        assert {numbers[c_constant(enum, name)]: name for name in values} == {
            value: name for name, value in values.items()
        }


def test_spirv_words_are_the_modules(built: Project, printed: dict[str, Any]) -> None:
    for name, shader in printed["shaders"].items():
        module = (built.out / f"spv/{name}.spv").read_bytes()
        assert struct.pack(f"<{len(shader['words'])}I", *shader["words"]) == module, name
        assert shader["missing"] == ""
    assert set(printed["shaders"]) == {path.stem for path in built.out.glob("spv/*.spv")}


def test_one_layout_hash_everywhere(built: Project, printed: dict[str, Any]) -> None:
    manifest = json.loads((built.out / "manifest.json").read_text())
    record = json.loads((built.out / "spv/build.json").read_text())
    [in_layouts] = re.findall(r"Layout hash `(\w+)`", (built.out / "LAYOUTS.md").read_text())
    assert {*printed["hashes"], record["layout_hash"], in_layouts} == {manifest["layout_hash"]}


@pytest.mark.parametrize(
    ("path", "old", "new", "same"),
    [
        ("variants.yaml", "gain_factor: float", "gain_amount: float", False),
        ("variants.yaml", "{times: 0, plus: 1}", "{times: 0, plus: 2}", False),
        ("variants.yaml", "{shift: int, gain: block}", "{gain: block, shift: int}", False),
        ("templates/ops/fill.comp.j2", "vec4(value)", "vec4(value + 1.0)", True),
    ],
)
def test_the_layout_hash_covers_the_interface_alone(
    tiny: Project, path: str, old: str, new: str, same: bool
) -> None:
    def layout_hash() -> str:
        tiny.build("--only", "fill_float", "--keep-going")
        text = (tiny.out / "manifest.json").read_text()
        return str(json.loads(text)["layout_hash"])

    before = layout_hash()
    tiny.replace(path, old, new)
    assert (layout_hash() == before) is same


def test_identical_modules_are_stored_once(tiny: Project, tmp_path: Path) -> None:
    """The template ignores this axis, so two variants are one module."""
    tiny.replace("variants.yaml", "name: fill_{dtype}", "name: fill_{dtype}_{n}")
    tiny.replace(
        "variants.yaml",
        "[float, half]}\n    name: fill",
        "[float, half], n: [1, 2]}\n    name: fill",
    )
    tiny.build()
    text = (tiny.out / "spv/spirv.c").read_text()
    assert text.count("static const uint32_t") == 4
    assert "/* fill_half_1, fill_half_2 */" in text
    shaders = registry_in_c(tiny.out, tmp_path / "program")["shaders"]
    assert shaders["fill_half_1"]["words"] == shaders["fill_half_2"]["words"] != []


HOLES = "push_constants: {value: float, a: int, b: ivec4, c: int, d: ivec2}"


def test_holes_are_written_out_and_offsets_asserted(tiny: Project, tmp_path: Path) -> None:
    tiny.replace("variants.yaml", "push_constants: {value: float}", HOLES)
    tiny.replace(
        "templates/ops/fill.comp.j2",
        "vec4(value)",
        "vec4(value + float(a + b.w + c + d.y))",
    )
    tiny.build()
    header = (tiny.out / "registry.h").read_text()
    for name, offset in [("value", 0), ("a", 4), ("b", 16), ("c", 32), ("d", 40)]:
        member = f"offsetof(shaderloom_fill_push_constants, {name})"
        assert f"{member} == {offset})" in header
    assert "sizeof(shaderloom_fill_push_constants) == 48)" in header
    for dialect in DIALECTS:
        ran = compiled(tiny.out, "registry.c", dialect, tmp_path / "object")
        assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("dialect", DIALECTS, ids=" ".join)
def test_the_asserts_can_fail(
    built: Project, tmp_path: Path, dialect: tuple[str, str, str]
) -> None:
    header = (built.out / "registry.h").read_text()
    assert ", stride_w) == 4)" in header
    (tmp_path / "registry.h").write_text(header.replace(", stride_w) == 4)", ", stride_w) == 8)"))
    (tmp_path / "registry.c").write_text((built.out / "registry.c").read_text())
    ran = compiled(tmp_path, "registry.c", dialect, tmp_path / "object")
    assert ran.returncode != 0
    assert "stride_w" in ran.stderr


def test_reserved_names_are_those_that_the_headers_declare(built: Project) -> None:
    """What the planner keeps a spec from redefining, against what it would clash with."""
    text = "".join((built.out / name).read_text() for name in ("registry.h", "dispatch.h"))
    header = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    manifest = json.loads((built.out / "manifest.json").read_text())
    shaders = manifest["shaders"].values()
    ops = {shader["op"] for shader in shaders}
    owners = {c_type(name) + "_" for name in ops | {shader["family"] for shader in shaders}}
    enums = {c_type(name) for name in manifest["enums"]}
    types = set(re.findall(r"^typedef (?:enum|struct) (\w+)", header, re.MULTILINE)) - enums
    assert {name for name in types if not name.startswith(tuple(owners))} == {
        c_type(name) for name in REGISTRY_TYPES
    }
    functions = set(re.findall(r"(shaderloom_\w+)\(", header))
    assert functions - {c_type(verb, op) for verb in ("default", "pick") for op in ops} == {
        c_type(name) for name in REGISTRY_FUNCTIONS
    }
    prefixes = tuple(c_constant(prefix, "") for prefix in REGISTRY_PREFIXES)
    of_spec = {c_constant(e, v) for e, values in manifest["enums"].items() for v in values}
    of_owners = tuple(owner.upper() for owner in owners)
    constants = {
        name
        for name in set(re.findall(r"\bSHADERLOOM_\w+", header)) - of_spec
        if not name.startswith(prefixes + of_owners)
    }
    assert constants | {"SHADERLOOM_SHADER_COUNT"} == set(REGISTRY_CONSTANTS)
    assert [prefix for prefix in prefixes if prefix not in header] == []
