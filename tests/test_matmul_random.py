"""Random matrix products through every route, storage and reduction, between poison."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_support import validated_device
from shaderloom_runtime.device import Device
from shaderloom_runtime.quantize import GROUP_SIZES
from shaderloom_runtime.reference import Epilogue
from shaderloom_runtime.runner import pick_within
from shaderloom_runtime.verify import run_case
from shaderloom_runtime.verify_cases import Case
from shaderloom_runtime.verify_matmul import Product, product_cases
from test_conv_random import any_epilogue, dtypes

# Each new combination of constants is a new pipeline, 10 to 60 ms on a software device.
random_examples = settings(max_examples=40, deadline=None, derandomize="CI" in os.environ)


@pytest.fixture(scope="module")
def device(generated: Path) -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


def case_of(
    op: str,
    one: Product,
    epilogue: Epilogue | None = None,
    dtype: str = "float",
    bias: bool = True,
    seed: int = 0,
) -> Case:
    """Draw operands and expected result of a product; without a bias, a vector of NaN is bound."""
    random = np.random.default_rng(seed)
    cases = product_cases(op, one, [epilogue or Epilogue()] * 2, dtype, random)
    return next(case for case in cases if case.problem["has_bias"] == bias)


def assert_right(device: Device, case: Case, shader: str) -> None:
    """Hold a case to its bound; it must run a variant whose name starts with ``shader``."""
    [record] = pick_within(device, case.limits, case.op, **case.problem)
    assert record.shader.startswith(shader)
    worst, where = run_case(device, case)
    assert worst <= 1, f"{record.shader}: {case.label}: {where}"
    assert device.messages == []


# By route: the op and the kind of its weight.
ROUTES = {
    "naive": ("matmul", ""),
    "tiled": ("matmul", ""),
    "linear_tiled": ("linear", "plain"),
    "gemv": ("linear", "plain"),
    "q8csw": ("linear", "q8csw"),
    "q4gsw": ("linear", "q4gsw"),
}
sides = st.integers(1, 40)
large = st.integers(37, 44)  # with two more of these, 4,096 invocations of tiles of 2 or 4 rows
forms = st.sampled_from(["texture3d", "vec4_buffer"])
weight_forms = st.sampled_from(["texture2d", "vec4_buffer"])


@st.composite
def any_product(draw: st.DrawFn, route: str) -> Product:
    """Sizes around those of texels, tiles and groups; half of them small, half for large tiles."""
    weight = ROUTES[route][1]
    crowd = draw(st.booleans())
    m, n = (draw(large if crowd else sides) for _ in range(2))
    batch = draw(large if crowd else st.integers(1, 4))
    k = draw(st.integers(1, 300) if weight == "q4gsw" and not crowd else sides)
    overrides = {"route": route.removeprefix("linear_")}
    if weight:
        overrides["weight_form"] = draw(weight_forms)
    limits = {} if route != "gemv" or draw(st.booleans()) else {"subgroup_arithmetic": False}
    return Product(
        1 if route == "gemv" else m,
        n,
        k,
        batch,
        draw(forms),
        weight,
        draw(st.sampled_from(GROUP_SIZES)),
        overrides,
        limits,
    )


@pytest.mark.parametrize("route", ROUTES)
@random_examples
@given(
    data=st.data(), epilogue=any_epilogue(), dtype=dtypes, bias=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_random_products(
    device: Device,
    route: str,
    data: st.DataObject,
    epilogue: Epilogue,
    dtype: str,
    bias: bool,
    seed: int,
) -> None:
    (op, _), one = ROUTES[route], data.draw(any_product(route))
    shader = f"{op}_{one.overrides['route']}"
    if route == "gemv":
        shader += "_shared" if one.limits else "_subgroup"
    assert_right(device, case_of(op, one, epilogue, dtype, bias, seed), shader)
