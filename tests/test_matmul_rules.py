"""The dispatcher's rules for matrix products, without a device: routes, variants, grids, limits."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shaderloom_runtime.registry import load_registry

Pick = Callable[..., Any]
Fields = dict[str, Any]

# The least that cooperative matrices need of a device, and of a problem.
ABLE: Fields = {
    "coopmat_16x16x16": True,
    "min_subgroup": 32,
    "max_subgroup": 32,
    "max_shared_memory": 18944,
    "max_invocations": 128,
    "max_local_x": 128,
}
HALVES: Fields = {"dtype": "half", "storage": "vec4_buffer"}
OPS = ("matmul", "linear")
PLAIN, Q8, Q4 = ({"weight_type": kind} for kind in ("plain", "q8csw", "q4gsw"))


@pytest.fixture(scope="module")
def dispatch(generated: Path) -> Any:
    return load_registry(generated).dispatch


@pytest.fixture(scope="module")
def pick(dispatch: Any) -> Pick:
    """Pick the product of two 8x8 matrices, with changes: its one record."""

    def pick_one(op: str, device: Fields | None = None, **changes: Any) -> Any:
        described = getattr(dispatch, f"{op.capitalize()}Problem")
        problem = described(**{"m": 8, "n": 8, "k": 8, **changes})
        [record] = getattr(dispatch, f"pick_{op}")(problem, dispatch.Device(**(device or {})))
        return record

    return pick_one


# ---- routes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "changes", "shader"),
    [
        ("matmul", {}, "matmul_tiled_1_float"),
        ("matmul", {"m": 1}, "matmul_tiled_1_float"),
        ("matmul", {"route": "naive", "dtype": "half"}, "matmul_naive_half"),
        ("linear", {}, "linear_tiled_1_float"),
        ("linear", {"m": 2, "dtype": "half"}, "linear_tiled_1_half"),
        ("linear", {"m": 1}, "linear_gemv_shared_float"),
        ("linear", {"m": 1, "batch": 3}, "linear_gemv_shared_float"),
        ("linear", {"m": 1, "route": "tiled"}, "linear_tiled_1_float"),
        ("linear", Q8, "linear_q8csw_1_float"),
        ("linear", {**Q8, "m": 1}, "linear_q8csw_1_float"),
        ("linear", {**Q4, "dtype": "half"}, "linear_q4gsw_1_half"),
        ("linear", {**Q4, "m": 1}, "linear_q4gsw_1_float"),
    ],
)
def test_routes(pick: Pick, op: str, changes: Fields, shader: str) -> None:
    assert pick(op, **changes).shader == shader


@pytest.mark.parametrize(
    ("op", "changes", "needs"),
    [
        ("linear", {"route": "gemv"}, "weight_type == 'plain' and m == 1"),
        ("linear", {"route": "gemv", **Q8, "m": 1}, "weight_type == 'plain' and m == 1"),
        ("linear", {"route": "tiled", **Q8}, "weight_type == 'plain'"),
        ("linear", {"route": "tiled", **Q4}, "weight_type == 'plain'"),
        ("linear", {"route": "q8csw"}, "weight_type == 'q8csw'"),
        ("linear", {"route": "q8csw", **Q4}, "weight_type == 'q8csw'"),
        ("linear", {"route": "q4gsw"}, "weight_type == 'q4gsw'"),
        ("linear", {"route": "coopmat"}, "weight_type == 'plain' and coopmat_possible and dtype"),
        ("matmul", {"route": "coopmat"}, "coopmat_possible and dtype == 'half' and in_buffers"),
    ],
)
def test_a_forced_route_that_is_impossible_says_why(
    pick: Pick, dispatch: Any, op: str, changes: Fields, needs: str
) -> None:
    message = f"{op}: route {changes['route']} is not possible: it needs {needs}"
    with pytest.raises(dispatch.DispatchError, match=re.escape(message)):
        pick(op, **changes)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("matmul_tiled", {}),
        ("linear_tiled", {"route": "tiled"}),
        ("linear_q8csw", Q8),
        ("linear_q4gsw", Q4),
    ],
)
@pytest.mark.parametrize(
    ("m", "n", "batch", "rows"),
    [
        (256, 256, 1, 4),  # 64 blocks of columns by 64 tiles of rows: just 4,096 invocations
        (253, 253, 1, 4),
        (252, 256, 1, 2),
        (256, 252, 1, 2),
        (128, 256, 1, 2),
        (127, 253, 1, 2),
        (126, 256, 1, 1),
        (128, 252, 1, 1),
        (64, 64, 16, 4),
        (64, 64, 15, 2),
        (1, 16384, 1, 4),  # even where a tile has rows to spare
        (1, 16380, 1, 1),
    ],
)
def test_the_largest_tile_that_leaves_4096_invocations(
    pick: Pick, family: str, changes: Fields, m: int, n: int, batch: int, rows: int
) -> None:
    op = family.partition("_")[0]
    device = {"max_texture_2d": 16384, "max_texture_3d": 4096}
    record = pick(op, device, m=m, n=n, batch=batch, **changes)
    assert record.shader == f"{family}_{rows}_float"
    assert record.global_size == (-(-n // 4), -(-m // rows), batch)


# ---- cooperative matrices -----------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
def test_cooperative_matrices_where_all_they_need_is_there(pick: Pick, op: str) -> None:
    shader = f"{op}_coopmat_16x16x16_64x64_half"
    assert pick(op, ABLE, **HALVES).shader == shader
    assert pick(op, {**ABLE, "min_subgroup": 8, "max_subgroup": 128}, **HALVES).shader == shader
    assert pick(op, {**ABLE, "device_class": "nvidia"}, dtype="half").shader == shader
    assert pick(op, ABLE, route="coopmat", **HALVES) == pick(op, ABLE, **HALVES)


def test_one_row_and_quantized_weights_go_before_cooperative_matrices(pick: Pick) -> None:
    gemv, q8, q4 = (pick("linear", ABLE, **HALVES, **c).shader for c in ({"m": 1}, Q8, Q4))
    assert gemv == "linear_gemv_shared_buffer_wbuf_half"
    assert (q8, q4) == ("linear_q8csw_1_buffer_wbuf_half", "linear_q4gsw_1_buffer_wbuf_half")


MISSING: dict[str, tuple[Fields, Fields, str]] = {
    # What the device lacks, what the problem has, and the rest of the name of the tiled variant.
    "shape": ({"coopmat_16x16x16": False}, {}, "buffer_wbuf_half"),
    "subgroup_size_control": ({"min_subgroup": 0, "max_subgroup": 0}, {}, "buffer_wbuf_half"),
    "least_subgroup": ({"min_subgroup": 0}, {}, "buffer_wbuf_half"),
    "smaller_subgroups": ({"min_subgroup": 8, "max_subgroup": 16}, {}, "buffer_wbuf_half"),
    "larger_subgroups": ({"min_subgroup": 64, "max_subgroup": 64}, {}, "buffer_wbuf_half"),
    "shared_memory": ({"max_shared_memory": 18943}, {}, "buffer_wbuf_half"),
    "invocations": ({"max_invocations": 127}, {}, "buffer_wbuf_half"),
    "local_size": ({"max_local_x": 127}, {}, "buffer_wbuf_half"),
    "dtype": ({}, {"dtype": "float"}, "buffer_wbuf_float"),
    "textures": ({}, {"storage": "texture3d"}, "half"),
    "class": ({}, {"storage": "auto"}, "half"),
    "weight_form": ({}, {"weight_form": "texture2d"}, "buffer_half"),
}


@pytest.mark.parametrize(
    ("op", "missing"),
    [(op, one) for op in OPS for one in MISSING if (op, one) != ("matmul", "weight_form")],
)
def test_tiles_where_one_of_them_is_missing(
    pick: Pick, dispatch: Any, op: str, missing: str
) -> None:
    device, problem, rest = MISSING[missing]
    able, asked = {**ABLE, **device}, {**HALVES, **problem}
    rest = rest.replace("_wbuf", "") if op == "matmul" else rest
    assert pick(op, able, **asked).shader == f"{op}_tiled_1_{rest}"
    with pytest.raises(dispatch.DispatchError, match="route coopmat is not possible: it needs"):
        pick(op, able, route="coopmat", **asked)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("square", "half_as_wide", "shape"),
    [(True, True, "16x16x16"), (True, False, "16x16x16"), (False, True, "16x8x16")],
)
def test_the_shape_is_one_that_the_device_lists(
    pick: Pick, op: str, square: bool, half_as_wide: bool, shape: str
) -> None:
    device = {**ABLE, "coopmat_16x16x16": square, "coopmat_16x8x16": half_as_wide}
    assert pick(op, device, **HALVES).shader == f"{op}_coopmat_{shape}_64x64_half"


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("m", "n", "batch", "changes", "side"),
    [
        (1024, 2048, 1, {}, 128),  # 8 by 16: just 128 workgroups
        (897, 1921, 1, {}, 128),
        (1024, 1920, 1, {}, 64),
        (896, 2048, 1, {}, 64),
        (65, 129, 64, {}, 128),
        (65, 129, 63, {}, 64),
        (8, 8, 1, {"coopmat_tile": "large"}, 128),
        (1024, 2048, 1, {"coopmat_tile": "small"}, 64),
    ],
)
def test_small_outputs_take_small_tiles(
    pick: Pick, op: str, m: int, n: int, batch: int, changes: Fields, side: int
) -> None:
    record = pick(op, ABLE, m=m, n=n, batch=batch, **HALVES, **changes)
    assert record.shader == f"{op}_coopmat_16x16x16_{side}x{side}_half"
    assert record.local_size == (128, 1, 1)
    assert record.grid == (-(-n // side), -(-m // side), batch)


# ---- storage ------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("device_class", "buffers"),
    [
        ("other", False),
        ("adreno", False),
        ("mali", False),
        ("nvidia", True),
        ("amd", True),
        ("intel", True),
        ("software", True),
    ],
)
def test_storage_by_device_class(pick: Pick, op: str, device_class: str, buffers: bool) -> None:
    device = {"device_class": device_class}
    texture = pick(op, device, storage="texture3d", n=9, m=3, batch=2)
    buffer = pick(op, device, storage="vec4_buffer", n=9, m=3, batch=2)
    assert (texture.out_extent, buffer.out_extent) == ((3, 3, 2), (18, 1, 1))
    assert "_buffer" in buffer.shader and "_buffer" not in texture.shader
    assert pick(op, device, n=9, m=3, batch=2) == (buffer if buffers else texture)


@pytest.mark.parametrize(
    ("op", "fits", "too_large"),
    [
        ("matmul", {"m": 256}, {"m": 257}),
        ("matmul", {"n": 1024}, {"n": 1025}),
        ("matmul", {"k": 256}, {"k": 257}),  # the rows of mat2
        ("matmul", {"batch": 256}, {"batch": 257}),
        ("linear", {"m": 256}, {"m": 257}),
        ("linear", {"n": 1024}, {"n": 1025}),
        ("linear", {"k": 1024}, {"k": 1025}),
        ("linear", {"batch": 256}, {"batch": 257}),
    ],
)
def test_a_side_past_the_texture_limit_takes_buffers(
    pick: Pick, dispatch: Any, op: str, fits: Fields, too_large: Fields
) -> None:
    assert "_buffer" not in pick(op, **fits).shader
    assert "_buffer" in pick(op, **too_large).shader
    sizes = {"batch": 1, "m": 8, "n": 8, "k": 8, **too_large}
    message = "a side of the matrices exceeds the device limit of 256 texels: " + ", ".join(
        f"{name} {size}" for name, size in sizes.items()
    )
    with pytest.raises(dispatch.DispatchError, match=f"^{message}$"):
        pick(op, storage="texture3d", **too_large)


@pytest.mark.parametrize(
    ("kind", "limit"),  # the least that holds a packed weight of 8 by 32
    [(PLAIN, 8), (Q8, 8), (Q4, 4)],
)
def test_a_weight_past_the_texture_limit_takes_a_buffer(
    pick: Pick, kind: Fields, limit: int
) -> None:
    assert "_wbuf" not in pick("linear", {"max_texture_2d": limit}, k=32, **kind).shader
    assert "_wbuf" in pick("linear", {"max_texture_2d": limit - 1}, k=32, **kind).shader


def test_a_wide_plain_weight_takes_a_buffer(pick: Pick) -> None:
    """Its columns stand side by side: 9 columns are three blocks of four."""
    assert "_wbuf" not in pick("linear", {"max_texture_2d": 12}, n=9).shader
    assert "_wbuf" in pick("linear", {"max_texture_2d": 11}, n=9).shader
    assert "_wbuf" not in pick("linear", {"max_texture_2d": 3}, n=9, **Q8).shader


@pytest.mark.parametrize("kind", [PLAIN, Q8, Q4], ids=lambda kind: str(kind["weight_type"]))
@pytest.mark.parametrize("m", [1, 8])
def test_weights_are_stored_as_the_matrices_are(pick: Pick, kind: Fields, m: int) -> None:
    shaders = {
        (storage, form): pick("linear", m=m, storage=storage, weight_form=form, **kind).shader
        for storage in ("texture3d", "vec4_buffer")
        for form in ("auto", "texture2d", "vec4_buffer")
    }
    assert len(set(shaders.values())) == 4
    assert shaders["texture3d", "auto"] == shaders["texture3d", "texture2d"]
    assert shaders["vec4_buffer", "auto"] == shaders["vec4_buffer", "vec4_buffer"]
    for (storage, form), shader in shaders.items():
        assert ("_buffer" in shader) == (storage == "vec4_buffer")
        assert form == "auto" or ("_wbuf" in shader) == (form == "vec4_buffer")


def test_reduction_by_subgroup_arithmetic(pick: Pick) -> None:
    shared, subgroup = (
        pick("linear", {"subgroup_arithmetic": able}, m=1).shader for able in (False, True)
    )
    assert shared == "linear_gemv_shared_float"
    assert subgroup == "linear_gemv_subgroup_float"


# ---- local sizes and grids ----------------------------------------------------------------------

SQUARE: tuple[tuple[str, Fields], ...] = (
    ("matmul", {}), ("matmul", {"route": "naive"}), ("linear", {"route": "tiled"}),
    ("linear", Q8), ("linear", Q4),
)  # fmt: skip


@pytest.mark.parametrize(("op", "changes"), SQUARE)
@pytest.mark.parametrize(
    ("m", "n", "local"),
    [
        (6, 21, (8, 8, 1)),
        (6, 20, (4, 16, 1)),
        (5, 21, (16, 4, 1)),
        (1, 1, (4, 16, 1)),
        (200, 200, (8, 8, 1)),
    ],
)
def test_square_local_sizes(
    pick: Pick, op: str, changes: Fields, m: int, n: int, local: tuple[int, int, int]
) -> None:
    record = pick(op, m=m, n=n, **changes)
    assert record.local_size == local
    assert record.spec[:3] == tuple(enumerate(local))


def test_one_row_takes_64_invocations_for_four_columns(pick: Pick) -> None:
    record = pick("linear", m=1, n=9, k=1000, batch=2)
    assert record.global_size == (64, 3, 2)
    assert (record.local_size, record.grid) == ((64, 1, 1), (1, 3, 2))


FOLDED: tuple[tuple[str, Fields, int, tuple[int, int, int]], ...] = (
    # An axis of y of 65,535 workgroups, one more, and how two rows of z take them.
    ("matmul", {"n": 1, "k": 1, "route": "naive"}, 16, (1, 32768, 2)),
    ("matmul", {"n": 1, "k": 1}, 64, (1, 32768, 2)),
    ("linear", {"n": 1, "k": 1, "route": "tiled"}, 64, (1, 32768, 2)),
    ("linear", {"n": 1, "k": 1, **Q8}, 64, (1, 32768, 2)),
    ("linear", {"n": 1, "k": 1, **Q4}, 64, (1, 32768, 2)),
)


@pytest.mark.parametrize(("op", "changes", "rows", "grid"), FOLDED)
def test_a_grid_of_too_many_rows_folds(
    pick: Pick,
    dispatch: Any,
    op: str,
    changes: Fields,
    rows: int,
    grid: tuple[int, int, int],
) -> None:
    device, most = {"max_storage_buffer": 2**40}, 65535 * rows
    assert pick(op, device, m=most, **changes).grid == (1, 65535, 1)
    assert pick(op, device, m=most + 1, **changes).grid == grid
    assert pick(op, device, m=most, batch=2, **changes).grid == (1, 65535, 2)
    with pytest.raises(dispatch.DispatchError, match="a grid of 1 x 65536 x 2 workgroups exceeds"):
        pick(op, device, m=most + 1, batch=2, **changes)


def test_a_grid_of_too_many_columns_folds(pick: Pick, dispatch: Any) -> None:
    device, changes = {"max_texture_2d": 2**17}, {"m": 1, "k": 1, "n": 4 * 65536 + 5}
    record = pick("linear", device, **changes)
    assert record.global_size == (64, 65538, 1)
    assert record.grid == (1, 32769, 2)
    with pytest.raises(dispatch.DispatchError, match="a grid of 1 x 65538 x 2 workgroups exceeds"):
        pick("linear", device, batch=2, **changes)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("limit", "changes", "grid"),
    [
        ("max_grid_x", {"n": 129}, "3 x 1 x 1"),
        ("max_grid_y", {"m": 129}, "1 x 3 x 1"),
        ("max_grid_z", {"batch": 3}, "1 x 1 x 3"),
    ],
)
def test_grids_of_cooperative_matrices_do_not_fold(
    pick: Pick, dispatch: Any, op: str, limit: str, changes: Fields, grid: str
) -> None:
    assert "coopmat" in pick(op, {**ABLE, limit: 3}, **HALVES, **changes).shader
    with pytest.raises(dispatch.DispatchError, match=f"a grid of {grid} workgroups exceeds"):
        pick(op, {**ABLE, limit: 2}, **HALVES, **changes)


# ---- what is refused ----------------------------------------------------------------------------

BUFFERS = {"storage": "vec4_buffer"}


@pytest.mark.parametrize(
    ("op", "device", "changes", "message"),
    [
        ("matmul", {}, {"m": 0}, "a matrix is empty: batch 1, m 0, n 8, k 8"),
        ("linear", {}, {"batch": -1}, "a matrix is empty: batch -1, m 8, n 8, k 8"),
        ("matmul", {}, {"has_scale": True}, "a scale needs a residual"),
        ("linear", {}, {"has_scale": True}, "a scale needs a residual"),
        ("linear", {}, {**Q4, "group_size": 16}, "group_size is 16, not 32, 64 or 128"),
        ("matmul", {}, {"route": "gemv"}, "matmul: route has no such value"),
        ("matmul", {}, {"storage": "texture2d"}, "matmul: storage has no such value"),
        ("linear", {}, {"weight_type": "q5"}, "linear: weight_type has no such value"),
        (
            "matmul", {"max_texture_2d": 8}, {"n": 33},
            "a bias of 33 elements exceeds the device limit of 8 texels",
        ),
        (
            "linear", {"max_texture_2d": 8}, {"n": 33},
            "a bias of 33 elements exceeds the device limit of 8 texels",
        ),
        # The largest of mat1, mat2 and the output, in texels of 16 bytes or 8.
        (
            "matmul", {"max_storage_buffer": 511}, {**BUFFERS, "m": 16, "n": 4},
            "a matrix of 512 bytes exceeds the device limit 511",
        ),
        (
            "matmul", {"max_storage_buffer": 511}, {**BUFFERS, "m": 4, "k": 16},
            "a matrix of 512 bytes exceeds the device limit 511",
        ),
        (
            "matmul", {"max_storage_buffer": 511}, {**BUFFERS, "m": 16, "k": 4, "dtype": "half"},
            None,
        ),
        (
            "matmul", {"max_storage_buffer": 511}, {**BUFFERS, "m": 16, "k": 4, "batch": 2},
            "a matrix of 1024 bytes exceeds the device limit 511",
        ),
        ("matmul", {"max_storage_buffer": 16}, {}, None),  # textures are no buffers
        # A weight counts as well; quantized ones have 16 bytes a texel in half, too.
        (
            "linear", {"max_storage_buffer": 2047}, {**BUFFERS, "m": 2, "k": 64},
            "a buffer of 2048 bytes exceeds the device limit 2047",
        ),
        (
            "linear", {"max_storage_buffer": 511}, {"weight_form": "vec4_buffer", "k": 16},
            "a buffer of 512 bytes exceeds the device limit 511",
        ),
        (
            "linear", {"max_storage_buffer": 511},
            {**BUFFERS, **Q8, "m": 1, "k": 64, "dtype": "half"},
            "a buffer of 512 bytes exceeds the device limit 511",
        ),
        (
            "linear", {"max_storage_buffer": 255},
            {**BUFFERS, **Q4, "m": 1, "k": 64, "dtype": "half"},
            "a buffer of 256 bytes exceeds the device limit 255",
        ),
        (
            "linear", {"max_storage_buffer": 511},
            {**BUFFERS, "weight_form": "texture2d", "n": 16, "k": 4},
            "a buffer of 512 bytes exceeds the device limit 511",
        ),
        (
            "linear", {"max_texture_2d": 7}, {"weight_form": "texture2d"},
            "a packed weight of 8 x 2 texels exceeds the device limit 7",
        ),
        (
            "linear", {"max_texture_2d": 7}, {"weight_form": "texture2d", **Q8, "k": 32},
            "a packed weight of 2 x 8 texels exceeds the device limit 7",
        ),
        (
            "linear", {"max_texture_2d": 2}, {**Q4, "k": 65, "group_size": 32},
            "k 65 has too many groups for the device limit of 2 texels",
        ),
        ("linear", {"max_texture_2d": 2}, {**Q4, "k": 64, "group_size": 32}, None),
    ],
)  # fmt: skip
def test_limits(
    pick: Pick, dispatch: Any, op: str, device: Fields, changes: Fields, message: str | None
) -> None:
    if message is None:
        assert pick(op, device, **changes).shader.startswith(op)
        return
    with pytest.raises(dispatch.DispatchError) as error:
        pick(op, device, **changes)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 0, 2, 3), "the tensor is empty: 1 x 0 x 2 x 3"),
        ((2, 129, 1, 1), "the tensor exceeds the device limit 256: 2 x 129 x 1 x 1"),
        ((1, 1, 257, 1), "the tensor exceeds the device limit 256: 1 x 1 x 257 x 1"),
        ((1, 1, 1, 257), "the tensor exceeds the device limit 256: 1 x 1 x 1 x 257"),
    ],
)
@pytest.mark.parametrize("packing", ["channels", "width"])
def test_relayout_is_within_both_packings(
    dispatch: Any, packing: str, shape: tuple[int, ...], message: str
) -> None:
    names = ("tensor_n", "tensor_c", "tensor_h", "tensor_w")
    problem = dispatch.RelayoutProblem(**dict(zip(names, shape, strict=True)), packing=packing)
    with pytest.raises(dispatch.DispatchError, match=f"^{message}$"):
        dispatch.pick_relayout(problem, dispatch.Device())


@pytest.mark.parametrize(("packing", "extent"), [("channels", (9, 7, 4)), ("width", (3, 7, 10))])
def test_relayout_by_packing(dispatch: Any, packing: str, extent: tuple[int, int, int]) -> None:
    problem = dispatch.RelayoutProblem(
        tensor_n=2, tensor_c=5, tensor_h=7, tensor_w=9, packing=packing, dtype="half"
    )
    [record] = dispatch.pick_relayout(problem, dispatch.Device())
    assert record.shader == f"relayout_to_{packing}_half"
    assert record.global_size == record.out_extent == extent
    assert record.push_constants == struct.pack("4i", 9, 7, 5, 2)


# ---- contents of a record -----------------------------------------------------------------------


@pytest.mark.parametrize(("op", "changes"), SQUARE)
def test_a_record_is_complete(pick: Pick, op: str, changes: Fields) -> None:
    record = pick(
        op, m=3, n=5, k=7, batch=2, has_bias=True, has_residual=True, residual_op="sub",
        residual_alpha=0.5, has_activation=True, activation_op="leaky_relu", activation_a=0.25,
        activation_b=2.0, **{"group_size": 64, **changes} if changes is Q4 else changes,
    )  # fmt: skip
    assert record.spec[3:] == ((3, 1), (4, 1), (5, 2), (6, 1), (7, 0), (8, 1))
    assert record.push_constants == struct.pack("3f", 0.25, 2.0, 0.5)
    tables = {
        "q8csw": ("weight_scales",), "q4gsw": ("weight_scales", "zero_points")
    }.get(changes.get("weight_type", ""), ())  # fmt: skip
    second = "mat2" if op == "matmul" else "weight"
    # An absent scale binds the packed bias.
    slots = ("out", "in", second, "bias", "residual", "bias", *tables)
    assert record.operands == tuple(enumerate(slots))
    sizes = struct.pack("4i", 3, 5, 7, 2) + (struct.pack("i", 64) if changes is Q4 else b"")
    assert record.uniforms == ((len(slots), sizes),)
    assert pick(op, **changes).spec[3:] == ((3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0))


@pytest.mark.parametrize("op", OPS)
def test_fewer_rows_of_the_same_grid_change_the_sizes_alone(
    pick: Pick, dispatch: Any, op: str
) -> None:
    """What a graph relies on when a prompt shrinks: the recording stays valid."""
    old, new = pick(op, m=16, n=32), pick(op, m=9, n=32)
    assert dispatch.reencode_reasons(old, new) == ()
    assert dispatch.changed_uniforms(old, new) == (6,)
