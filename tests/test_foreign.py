"""The audit of other projects' modules: any folder gives a table, any bytes give a row.

``foreign/`` has GLSL and SPIR-V assembly in the styles of other tools, written for this purpose;
the ``.spv`` beside a ``.spvasm`` is what spirv-as makes of it. ``expected.*`` is what the audit
prints; ``--update-golden`` writes it anew.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import random
import re
import shutil
import struct
import time
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_support import NO_TOOLS, REPOSITORY, Project
from shaderloom.foreign import MAX_BYTES, examine, family, find_files, printable
from shaderloom.foreign_audit import audit_foreign
from shaderloom.foreign_report import FORMATS
from shaderloom.interface import Field, ReflectedConstant
from shaderloom.lints import LINTS, Finding
from spirv_support import assembled

FOREIGN = Path(__file__).parent / "foreign"
GOOD = (FOREIGN / "hlsl/scale.spv").read_bytes()


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """A folder with a copy of the foreign modules, and no spec: none is needed."""
    shutil.copytree(FOREIGN, tmp_path / "foreign")
    return Project(tmp_path)


def words(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def packed(numbers: list[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


@pytest.mark.parametrize("path", sorted(FOREIGN.rglob("*.spvasm")), ids=lambda path: path.stem)
def test_a_module_is_what_its_assembly_says(path: Path) -> None:
    """But for the header: it has the assembler's version."""
    made, kept = assembled(path.read_text()), path.with_suffix(".spv").read_bytes()
    assert made[20:] == kept[20:]


@pytest.mark.parametrize(("form", "end"), [("text", "txt"), ("json", "json"), ("markdown", "md")])
def test_the_table(here: Project, request: pytest.FixtureRequest, form: str, end: str) -> None:
    ran = here.loom("audit", "foreign", "--format", form)
    assert (ran.code, ran.err) == (1, "")  # broken files are errors
    golden = FOREIGN / f"expected.{end}"
    # Modules of GLSL sources have the bytes that the compiler of this machine gave them.
    out = re.sub(r'"sha256": "[0-9a-f]{64}"', '"sha256": "..."', ran.out)
    if request.config.getoption("--update-golden"):
        golden.write_text(out, encoding="utf-8")
    assert out == golden.read_text(encoding="utf-8")


def test_there_are_many_and_each_is_told_or_refused(here: Project) -> None:
    data = json.loads(here.loom("audit", "foreign", "--format", "json").out)
    assert len(data["modules"]) >= 20
    refused = {Path(m["path"]).stem: m["problem"] for m in data["modules"] if "problem" in m}
    for stem, reason in {
        "sky": "it has vertex 'vs_main', fragment 'fs_main'",
        "kernels": "it has compute 'fill', compute 'copy'",
        "library": "it has none",
        "opencl": "it has OpenCL kernel 'nothing'",
        "blur": "'textures' is an array of descriptors",
        "descriptors": "'pages' is an array of descriptors",
        "sample": "'tex' is a texture by itself",
        "texel_buffer": "is a texel buffer",
        "grouped": "decoration groups",
        "binary_op": "it does not compile: line 4: error: '$' : unexpected token",
        "include_only": "it does not compile: ",
        "empty": "the file is empty",
        "truncated": "the function of its entry point is not all there",
        "huge_count": "runs past the end of the file",
        "huge_bound": "id bound 4294967295 is not in 1..4194303",
    }.items():
        assert reason in refused[stem]
    told = {Path(m["path"]).stem: m for m in data["modules"] if "problem" not in m}
    assert told["big_endian"]["bindings"] == told["scale"]["bindings"]
    assert [f["type"] for f in told["cull"]["bindings"][2]["fields"]] == [
        "mat4", "struct", "struct[4]",
    ]  # fmt: skip
    assert told["reduce"]["shared_memory"] == 256


def test_every_lint_of_foreign_modules_is_set_off_by_one(here: Project) -> None:
    data = json.loads(here.loom("audit", "foreign", "--format", "json").out)
    found = {finding["lint"] for finding in data["findings"]}
    assert {lint for lint in LINTS if lint > "SL200"} <= found
    quiet = "foreign/hlsl/scale.spv"
    assert [f for f in data["findings"] if f["subject"] == quiet] == []
    ran = here.loom("audit", "foreign/hlsl/scale.spv", "foreign/broken/big_endian.spv")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("\naudit: 2 modules in 2 families, 0 of them refused; 0 findings\n")


def test_without_a_compiler_glsl_is_refused_and_the_rest_is_read(here: Project) -> None:
    ran = here.loom("audit", "foreign/ggml", "foreign/tint", **NO_TOOLS)
    assert ran.code == 0
    assert "refused     there is no GLSL compiler: glslc not found" in ran.out
    assert "bindings    1 values_block buffer, 1.0 settings_block uniform" in ran.out


def test_glslang_where_there_is_no_glslc(here: Project) -> None:
    first, second = (
        json.loads(here.loom("audit", "foreign/ggml", "--format", "json", **environment).out)
        for environment in ({}, {"SHADERLOOM_GLSLC": "/nowhere/glslc"})
    )
    for data in (first, second):
        for module in data["modules"]:
            assert module.pop("sha256")
    assert first["modules"] == second["modules"]


@pytest.mark.parametrize("form", ["github", "sarif"])
def test_findings_for_other_programs_name_the_files(here: Project, form: str) -> None:
    out = here.loom("audit", "foreign", "--format", form).out
    for path in ("foreign/broken/empty.spv", "foreign/ggml/rope_f32.comp"):
        assert path in out


def test_a_path_that_is_not_there(here: Project) -> None:
    ran = here.loom("audit", "foreign/ggml", "nowhere", "gone.spv")
    assert ran.code == 2
    assert ran.err == (
        "gone.spv: error: no file or folder is there\nnowhere: error: no file or folder is there\n"
    )


def test_an_empty_folder_and_odd_files(here: Project) -> None:
    folder = here.folder / "odd"
    folder.mkdir()
    ran = here.loom("audit", "odd", "foreign")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "odd: error: no .spv, .comp or .glsl file is in this folder\n"
    os.mkfifo(folder / "pipe.spv")  # reading it would never end
    (folder / "loop").symlink_to(folder)
    (folder / "gone.spv").symlink_to("nowhere")
    (folder / "large.spv").touch()
    os.truncate(folder / "large.spv", MAX_BYTES + 1)  # a hole: no bytes on the disk
    (folder / "UPPER.SPV").write_bytes(GOOD)
    (folder / "new\nline\udcff.spv").write_bytes(b"")
    (folder / "-o.comp").write_text("#version 450\nvoid main() {}\n")
    ran = here.loom("audit", "odd")
    assert ran.code == 1
    assert "odd/large: 1 module\n  large.spv\n    refused     it is larger than 64 MiB" in ran.out
    assert "odd/UPPER: 1 module\n  UPPER.SPV\n    bindings    0 type.RW" in ran.out
    assert "new\\nline\\udcff.spv" in ran.out
    assert "odd/o: 1 module\n  -o.comp\n    bindings    none" in ran.out
    assert "4 modules" in ran.out


def test_a_file_that_cannot_be_read(here: Project) -> None:
    path = here.folder / "foreign/hlsl/memory.spv"
    path.symlink_to("/proc/self/mem")  # permissions do not stop root, but address 0 does
    assert "it cannot be read: Input/output error" in here.loom("audit", "foreign/hlsl").out


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a/conv2d_dw_output_tile_3x3_b4x2_half.spv", "a/conv2d_dw_output_tile"),
        ("conv_transpose2d_half.comp", "conv_transpose2d"),
        ("mul_mat_vec_q4_0_f16.comp", "mul_mat_vec"),
        ("convolution_pack1to4_fp16s.comp", "convolution"),
        ("q8.spv", "q8"),
        ("linear-texture3d.spv", "linear"),
        ("b/.spv", "b/"),
        ("gemm.buffer.spv", "gemm"),
    ],
)
def test_families(path: str, expected: str) -> None:
    assert family(path) == expected


def constants(name: str, *items: tuple[int, str, str]) -> str:
    """Examine a module with other constants; return the messages about its family of two."""
    first = examine(GOOD, "conv_float.spv")
    assert first.declared
    declared = [
        dataclasses.replace(
            first.declared,
            constants=tuple(ReflectedConstant(i, n, t, 0) for i, n, t in part),
            push_constants=(Field("size", "int", 0, 4),),
        )
        for part in (((3, "has_bias", "bool"), (4, "op", "int")), items)
    ]
    modules = [
        dataclasses.replace(first, declared=declared[0]),
        dataclasses.replace(first, path=name, declared=declared[1], digest="other"),
    ]
    return "\n".join(f.message for f in audit_foreign(modules) if f.subject == "conv")


def test_siblings_that_agree_say_nothing() -> None:
    assert constants("conv_half.spv", (3, "has_bias", "bool"), (4, "op", "int")) == ""
    assert constants("conv_half.spv", (3, "has_bias", "bool")) == ""  # a legal subset


def test_siblings_that_differ() -> None:
    assert constants("conv_half.spv", (3, "op", "int"), (4, "has_bias", "bool")) == (
        "specialization constant 'has_bias' is 3 in conv_float.spv; 4 in conv_half.spv\n"
        "specialization constant 'op' is 3 in conv_half.spv; 4 in conv_float.spv\n"
        "specialization constant 3 is a bool in conv_float.spv; an int in conv_half.spv\n"
        "specialization constant 4 is a bool in conv_half.spv; an int in conv_float.spv"
    )
    assert constants("conv_half.spv", (3, "bias", "bool"), (4, "op", "uint")) == (
        "specialization constant 3 is 'bias' in conv_half.spv; 'has_bias' in conv_float.spv\n"
        "specialization constant 4 is a uint in conv_half.spv; an int in conv_float.spv"
    )


def test_gaps_of_huge_numbers_are_ranges() -> None:
    numbers = words(GOOD)
    at = next(i for i in range(len(numbers) - 3) if numbers[i : i + 1] == [4 << 16 | 71]
              and numbers[i + 2] == 33 and numbers[i + 3] == 1)  # fmt: skip
    numbers[at + 3] = 0xFFFFFFFF
    [finding] = audit_foreign([examine(packed(numbers), "a.spv")])
    assert finding.message == "binding numbers of set 0 leave out 1-4294967294"


def test_a_thousand_modules_take_under_ten_seconds(built: Project, tmp_path: Path) -> None:
    modules = sorted((built.out / "spv").glob("*.spv"))
    for number in range(1000):
        source = modules[number % len(modules)]
        shutil.copy(source, tmp_path / f"{source.stem}_{number // len(modules)}.spv")
    started = time.perf_counter()
    ran = Project(tmp_path).loom("audit", ".", "--format", "json")
    assert time.perf_counter() - started < 10
    assert len(json.loads(ran.out)["modules"]) == 1000


# ---- any bytes ----------------------------------------------------------------------------------


def survive(data: bytes) -> None:
    """Read bytes in every way there is; only a ``SpirvError`` inside is no failure."""
    fuzz = load_fuzzer()
    fuzz.check(data)


@functools.cache
def load_fuzzer() -> ModuleType:
    path = REPOSITORY / "scripts/fuzz_reader.py"
    spec = importlib.util.spec_from_file_location("fuzz_reader", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@given(st.binary(max_size=200), st.booleans())
@settings(deadline=None, max_examples=100)
def test_any_bytes(data: bytes, magic: bool) -> None:
    survive(struct.pack("<I", 0x07230203) * magic + data)


def test_mutated_modules() -> None:
    """A little of what scripts/fuzz_reader.py does with hundreds of thousands of cases."""
    fuzz = load_fuzzer()
    seeds = [path.read_bytes() for path in sorted(FOREIGN.rglob("*.spv"))]
    seeds = [data for data in seeds if len(data) >= 24]
    chance = random.Random(0)
    outcomes = {bool(fuzz.check(fuzz.mutate(seeds, chance))) for _ in range(1500)}
    assert outcomes == {True, False}


def test_every_prefix_and_every_word_at_its_edges() -> None:
    numbers = words(GOOD)
    for stop in range(0, len(GOOD), 7):
        survive(GOOD[:stop])
    for place in range(len(numbers)):
        for value in (0, 0xFFFFFFFF, 0x80000000):
            survive(packed([*numbers[:place], value, *numbers[place + 1 :]]))


def module_of(*instructions: tuple[int, ...]) -> bytes:
    """A module with a compute entry point and these instructions (opcode, then operands)."""
    code = [(17, 1), (14, 0, 1), (15, 5, 1, 0x6E69616D, 0), *instructions]
    code += [(54, 2, 1, 0, 3), (248, 4), (253,), (56,)]
    numbers = [0x07230203, 0x10300, 0, 4096, 0]
    for opcode, *operands in code:
        numbers += [(len(operands) + 1) << 16 | opcode, *operands]
    return packed(numbers)


TYPES = ((19, 2), (33, 3, 2), (21, 10, 32, 0), (43, 10, 11, 8))


@pytest.mark.parametrize(
    ("instructions", "problem"),
    [
        # An array of itself; a struct that holds itself; lengths that depend on themselves.
        ([(28, 20, 20, 11), (32, 21, 4, 20), (59, 21, 22, 4)], "too deep"),
        ([(30, 20, 20, 20), (32, 21, 4, 20), (59, 21, 22, 4)], "too deep"),
        ([(19, 20), (32, 21, 4, 20), (59, 21, 22, 4)], "type %20 in shared memory has no size"),
        ([(52, 10, 12, 132, 12, 12), (28, 20, 10, 12), (32, 21, 4, 20), (59, 21, 22, 4)], ""),
        ([(52, 10, 12, 134, 11, 13), (43, 10, 13, 0), (28, 20, 10, 12), (32, 21, 4, 20),
          (59, 21, 22, 4)], ""),
    ],
)  # fmt: skip
def test_hostile_shared_memory(instructions: list[tuple[int, ...]], problem: str) -> None:
    data = module_of(*TYPES, *instructions)
    module = examine(data, "hostile.spv")
    assert problem in module.problem
    assert bool(module.problem) == bool(problem)
    survive(data)


@pytest.mark.parametrize(
    ("size", "matrices", "problem"),
    [
        (11, {"? 8x8"}, ""),  # 8 is no use of a matrix
        (12, {"? ?x?"}, ""),  # a specialization constant
        (2, {"? ?x?"}, ""),  # a type
        (99, None, "id %99 is not defined as its use requires"),
        (13, None, "constant %13 is no index or length"),
    ],
)
def test_hostile_cooperative_matrices(size: int, matrices: set[str] | None, problem: str) -> None:
    constants = ((50, 10, 12, 8), (22, 14, 32), (43, 14, 13, 0x41000000))
    data = module_of(*TYPES, *constants, (4456, 20, 14, 11, size, size, size))
    module = examine(data, "hostile.spv")
    assert module.problem == problem
    assert (module.needs and module.needs.matrices) == matrices
    survive(data)


def test_sizes_multiply_without_end_in_no_time() -> None:
    """Types that double: 2**100 elements, told from 100 instructions."""
    arrays = [(28, 20, 10, 11), *((28, 20 + i, 19 + i, 11) for i in range(1, 12))]
    constants = [(52, 10, 50, 196, 11, 11), *((52, 10, 50 + i, 132, 49 + i, 49 + i)
                                              for i in range(1, 40))]  # fmt: skip
    data = module_of(
        *TYPES, *constants, *arrays, (28, 90, 31, 89), (32, 91, 4, 90), (59, 91, 92, 4)
    )
    started = time.perf_counter()
    module = examine(data, "large.spv")
    assert time.perf_counter() - started < 1
    assert module.needs and module.needs.shared_memory is None


def test_names_are_printable_on_any_terminal() -> None:
    name = struct.unpack("<2I", b"\x1b[31m\xc3\xa9\x00")
    data = module_of(
        *TYPES, (30, 20, 10), (32, 21, 9, 20), (59, 21, 22, 9), (5, 20, 0),
        (6, 20, 0, *name), (72, 20, 0, 35, 0),
    )  # fmt: skip
    module = examine(data, "caf\u00e9.spv")
    assert module.path == "caf\\xe9.spv"
    assert module.declared
    assert [f.name for f in module.declared.push_constants] == ["\\x1b[31m\\xe9"]
    assert printable("a\\b") == "a\\b"
    for show in FORMATS.values():
        shown = show([module], [Finding("a", "SL206", "b")])
        assert shown.isascii()
        assert "\x1b" not in shown


def test_find_files_sorts_and_names_each_once(here: Project) -> None:
    tint = here.folder / "foreign/tint"
    paths = find_files([tint, tint / "reduce.spv", tint])
    assert [path.name for path in paths] == ["reduce.spv", "reduce_f16.spv"]
