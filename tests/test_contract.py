"""The interfaces against the contract's tables, which the fixture holds by hand.

``explain`` says what is planned, the dispatcher what a host gets; the audit proves the modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from loom_support import GOLDEN, Project
from shaderloom_runtime.registry import load_registry

CONTRACT = yaml.safe_load((GOLDEN / "contract.yaml").read_text(encoding="utf-8"))
FAMILIES: dict[str, dict[str, Any]] = CONTRACT["families"]
# What the dispatcher must be asked for, to get each family.
ROUTES: dict[str, dict[str, Any]] = {
    "conv2d_tiled": {"route": "direct"},
    "conv2d_dw": {"route": "depthwise", "groups": 8},
    "conv2d_dw_output_tile": {"route": "depthwise_tile", "groups": 8, "kernel": 3},
    "conv_transpose2d": {"transposed": True},
    "conv2d_pw_tiled": {"route": "pointwise"},
    "conv2d_im2col": {"route": "im2col"},
    "conv2d_gemm": {"route": "im2col"},
    "matmul_naive": {"route": "naive"},
    "matmul_tiled": {"route": "tiled"},
    "matmul_coopmat": {"route": "coopmat", "dtype": "half", "storage": "vec4_buffer"},
    "linear_tiled": {"route": "tiled"},
    "linear_gemv": {"route": "gemv", "m": 1},
    "linear_coopmat": {"route": "coopmat", "dtype": "half", "storage": "vec4_buffer"},
    "linear_q8csw": {"weight_type": "q8csw"},
    "linear_q4gsw": {"weight_type": "q4gsw"},
}
OPS = ("conv2d", "matmul", "linear")


def variants() -> Iterator[tuple[str, str]]:
    """Yield (family, variant): each name of the fixture, in every storage and dtype."""
    for family, row in FAMILIES.items():
        storages = {binding[1] for binding in row["bindings"].values()}
        for name, matrix, weight, dtype in product(
            row["variants"],
            ("", "_buffer") if "<matrix>" in storages else ("",),
            ("", "_wbuf") if "<weight>" in storages else ("",),
            row.get("dtypes", ("float", "half")),
        ):
            yield family, f"{name}{matrix}{weight}_{dtype}"


def columns(text: str, title: str) -> list[list[str]]:
    """Return the lines of a section of ``explain``, below its head, cut at the wide gaps."""
    section = text.split(f"\n{title}", 1)[1].split("\n\n", 1)[0]
    return [re.split(r"\s{2,}", line.strip()) for line in section.splitlines()[2:]]


def bindings_of(text: str) -> tuple[dict[int, list[str]], dict[int, dict[str, Any]]]:
    """Return operands and uniform blocks by their numbers, in the fixture's form."""
    operands: dict[int, list[str]] = {}
    uniforms: dict[int, dict[str, Any]] = {}
    for number, name, *rest in columns(text, "bindings"):
        if not number.isdigit():  # a member of the block above: name, "ivec4 at 0"
            kind, offset = name.split(" at ")
            uniforms[max(uniforms)]["fields"].append([number, kind, int(offset)])
        elif block := re.fullmatch(r"uniform block, (\d+) bytes", rest[0]):
            uniforms[int(number)] = {"name": name, "size": int(block[1]), "fields": []}
        else:
            what = re.fullmatch(
                r"(\w+) (?:float|half|uint), (read|write)(?:, absent: (\w+))?", rest[0]
            )
            assert what, rest[0]
            operands[int(number)] = [name, *(part for part in what.groups() if part)]
    return operands, uniforms


def push_constants_of(text: str) -> dict[str, Any] | None:
    if not (head := re.search(r"^push constants: (\d+) bytes", text, re.MULTILINE)):
        return None
    lines = columns(text, "push constants")
    fields = [[name, kind, int(offset)] for offset, name, kind, *_ in lines]
    return {"size": int(head[1]), "fields": fields}


def constants_of(text: str) -> dict[int, list[str]]:
    lines = columns(text, "specialization constants")
    assert lines[0] == ["0-2", "local workgroup size x, y, z"]
    defaults = {"bool": "false", "int": "0"}
    for _, _, kind, *_ in lines[1:]:
        name, default = kind.split(" = ")
        assert default == defaults.get(name, "0")
    return {int(number): [name, kind.split(" = ")[0]] for number, name, kind, *_ in lines[1:]}


@pytest.mark.parametrize("family", FAMILIES)
def test_explain_equals_the_contract(built: Project, family: str) -> None:
    row = FAMILIES[family]
    for owner, variant in variants():
        if owner != family:
            continue
        text = built.loom("explain", variant).out
        scratch = re.search(r"_(texture2d|texture3d|buffer)_", variant)
        chosen = {
            "<weight>": "vec4_buffer" if "_wbuf_" in variant else "texture2d",
            "<matrix>": "vec4_buffer" if "_buffer_" in variant else "texture3d",
            "<scratch>": scratch[1].replace("buffer", "vec4_buffer") if scratch else "",
        }
        operands, uniforms = bindings_of(text)
        assert operands == {
            number: [chosen.get(part, part) for part in parts]
            for number, parts in row["bindings"].items()
        }, variant
        assert uniforms == row["uniforms"], variant
        assert push_constants_of(text) == row["push_constants"], variant
        assert constants_of(text) == row["constants"], variant


def test_the_contract_names_every_variant_of_its_ops(generated: Path) -> None:
    shaders = load_registry(generated).shaders.values()
    planned = {(shader.family, shader.name) for shader in shaders if shader.op in OPS}
    assert set(variants()) == planned


def test_enum_values_are_the_contracts(generated: Path) -> None:
    dispatch = load_registry(generated).dispatch
    assert CONTRACT["enums"]["ResidualOp"] == dispatch.RESIDUAL_OP
    assert CONTRACT["enums"]["ActivationOp"] == dispatch.ACTIVATION_OP


def record(family: str, **problem: Any) -> Any:
    """Return the dispatch record of a family, for 8 channels to 8 or an 8x8 matrix."""
    dispatch = load_registry().dispatch
    asked = dict(ROUTES[family])
    op = next(op for op in OPS if family.startswith(op.removesuffix("2d")))
    if op == "conv2d":
        kernel = asked.pop("kernel", 1)
        sizes = {"in_n": 1, "in_c": 8, "in_h": 6, "in_w": 7, "out_c": 8}
        sizes |= {"kernel_h": kernel, "kernel_w": kernel}
    else:
        sizes = {"m": 8, "n": 8, "k": 8}
    described = getattr(dispatch, f"{op.capitalize()}Problem")(**{**sizes, **asked, **problem})
    able = dispatch.Device(
        max_shared_memory=32768, min_subgroup=32, max_subgroup=32, coopmat_16x16x16=True
    )
    records = getattr(dispatch, f"pick_{op}")(described, able)
    return next(one for one in records if one.shader.startswith(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_dispatcher_fills_the_contracts_blocks(generated: Path, family: str) -> None:
    row, given = FAMILIES[family], record(family)
    assert len(given.push_constants) == (row["push_constants"] or {"size": 0})["size"]
    assert {number: len(data) for number, data in given.uniforms} == {
        number: block["size"] for number, block in row["uniforms"].items()
    }
    assert [id_ for id_, _ in given.spec] == [0, 1, 2, *row["constants"]]
    assert [number for number, _ in given.operands] == list(row["bindings"])


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "conv2d_im2col"])
def test_absent_operands_keep_their_slots(generated: Path, family: str) -> None:
    """The residual's slot takes the op's input, for gemm too; the scale's the bias."""
    absent = dict(record(family).operands)
    assert (absent[4], absent[5]) == ("in", "bias")
    present = dict(record(family, has_residual=True, has_scale=True).operands)
    assert (present[4], present[5]) == ("residual", "scale")
    assert present[1] == absent[1] == ("scratch" if family == "conv2d_gemm" else "in")
