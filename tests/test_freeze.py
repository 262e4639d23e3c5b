"""``shaderloom freeze``: constants baked in are gone, and the results are those of specialising."""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_support import REPOSITORY, Project, run_program
from runtime_support import compiled, validated_device
from shaderloom import pipeline
from shaderloom.cache import Cache, default_folder
from shaderloom.errors import CompileError, SpecError
from shaderloom.freeze import freeze, rewrite
from shaderloom.interface import Frozen, Used, VariantPlan
from shaderloom.pipeline import Proven, Woven
from shaderloom.reflect import reflect, used
from shaderloom.settings import parse_settings
from shaderloom.spirv import read_module
from shaderloom.spirv_write import write_module
from shaderloom.toolchain import find_toolchain
from shaderloom_runtime.device import Device
from shaderloom_runtime.kernel import KernelSpec, make_kernels
from shaderloom_runtime.memory import Image
from shaderloom_runtime.registry import load_registry
from shaderloom_runtime.runner import Batch, kernel_spec, pick, weight_operand
from shaderloom_runtime.staging import pack_vector, pack_weight, upload
from shaderloom_runtime.submit import Recording, Step

# A shader that stores each of its constants, so that every type is seen to arrive.
SPEC = """
shaderloom: 1
enums: {Mode: {low: -5, high: 9}}
families:
  constants:
    op: constants
    template: ops/constants.comp.j2
    axes: {dtype: [float]}
    name: constants_{dtype}
    bindings: [{name: t_out, storage: buffer, access: write}]
    constants:
      flag: bool
      other: bool
      mode: {type: Mode, default: 9}
      count: int
      amount: uint
      factor: float
"""
TEMPLATE = """{% extends "lib/frame.comp.j2" %}
{% block body %}
void main() {
  t_out_data[0] = flag ? 1.0 : 0.0;
  t_out_data[1] = other ? 1.0 : 0.0;
  t_out_data[2] = float(mode == MODE_LOW ? -100 : mode);
  t_out_data[3] = float(count);
  t_out_data[4] = float(amount);
  t_out_data[5] = factor;
  t_out_data[6] = float(gl_WorkGroupSize.x);
}
{% endblock %}
"""
BINDINGS = ((0, "storage_buffer"),)


@dataclasses.dataclass(frozen=True)
class Made:
    """A project that was compiled and proven."""

    woven: Woven
    proven: Proven

    def variant(self, name: str) -> VariantPlan:
        return next(v for v in self.woven.plan.variants if v.name == name)

    def debug(self, name: str) -> bytes:
        return self.proven.compiled.modules[name].debug

    def shipped(self, name: str) -> bytes:
        return self.proven.compiled.modules[name].shipped

    def freeze(self, name: str, *settings: str) -> bytes:
        variant = self.variant(name)
        parsed = parse_settings(variant, self.woven.plan.enums, settings)
        return freeze(self.debug(name), variant, parsed, find_toolchain())


def make(spec: Path, only: str = "*") -> Made:
    woven = pipeline.weave(spec)
    options = pipeline.Options(2, Cache(default_folder()), only=only)
    return Made(woven, pipeline.prove(woven, find_toolchain(), options))


@pytest.fixture(scope="module")
def constants(tmp_path_factory: pytest.TempPathFactory) -> Made:
    project = Project(tmp_path_factory.mktemp("constants"))
    project.write("variants.yaml", SPEC)
    project.write("templates/ops/constants.comp.j2", TEMPLATE)
    frame = Path(__file__).parent / "golden/base/templates/lib/frame.comp.j2"
    project.write("templates/lib/frame.comp.j2", frame.read_text(encoding="utf-8"))
    return make(project.folder / "variants.yaml")


@pytest.fixture(scope="module")
def library() -> Made:
    return make(REPOSITORY / "variants.yaml", "conv2d_*_float")


def frozen(id_: int, bits: int) -> Frozen:
    return Frozen(id_, f"constant_{id_}", bits, str(bits))


# ---- the rewriting --------------------------------------------------------------------------


def test_what_is_read_is_written(library: Made) -> None:
    for name, compiled_module in library.proven.compiled.modules.items():
        for data in (compiled_module.debug, compiled_module.shipped):
            module = read_module(data, name)
            written = write_module(module, module.head)
            assert written[8:12] == bytes(4)  # the generator's magic number
            assert written[:8] + written[12:] == data[:8] + data[12:]


def test_frozen_constants_are_gone_from_reflection(library: Made) -> None:
    debug = library.debug("conv2d_pw_tiled_float")
    before = reflect(debug, "before")
    after = reflect(rewrite(debug, "x", [frozen(5, 1), frozen(7, 0)]), "after")
    assert [c.name for c in before.constants] == [
        *("stride_1_padding_0", "has_activation", "activation_op"),
        *("has_residual", "has_scale", "residual_op"),
    ]
    left = tuple(c for c in before.constants if c.id not in (5, 7))
    assert after == dataclasses.replace(before, constants=left)


def test_local_size_stays_unless_set(constants: Made) -> None:
    settings = ("flag=1", "other=0", "mode=low", "count=1", "amount=1", "factor=1")
    frozen = constants.freeze("constants_float", *settings)
    assert used(frozen, "frozen").constants == frozenset()
    assert reflect(frozen, "frozen").local_size_ids == (0, 1, 2)
    sizes = ("local_size_x=8", "local_size_y=4", "local_size_z=1")
    frozen = constants.freeze("constants_float", *settings, *sizes)
    assert reflect(frozen, "frozen").local_size_ids == ()


def test_frozen_modules_are_smaller(library: Made) -> None:
    off = ("has_activation=0", "activation_op=0", "has_residual=0", "has_scale=0", "residual_op=0")
    for name in ("conv2d_pw_tiled_float", "conv2d_dw_float", "conv2d_tiled_2x2_border_float"):
        frozen = library.freeze(name, *off)
        assert len(frozen) < 0.9 * len(library.shipped(name))
        variant, before, after = library.variant(name), *map(uses, (library.shipped(name), frozen))
        assert before.constants - after.constants == {
            c.id for c in variant.constants if c.owner == "epilogue"
        }
        gone = before.bindings - after.bindings
        names = {b.name for b in variant.bindings if b.binding in gone}
        assert names - {"epilogue_params"} == {"t_residual", "t_scale"}


def uses(code: bytes) -> Used:
    return used(code, "module")


def test_a_constant_of_no_such_id(library: Made) -> None:
    with pytest.raises(CompileError, match="no specialization constant 99"):
        rewrite(library.debug("conv2d_dw_float"), "x", [frozen(3, 0), frozen(99, 1)])


def test_a_constant_of_another_width() -> None:
    body = "layout(constant_id = 3) const double d = 0.0; "
    body += "layout(binding = 0) buffer B { double b; }; void main() { b = d; }"
    with pytest.raises(CompileError, match="is not of 32 bits"):
        rewrite(compiled(body), "x", [frozen(3, 0)])


# ---- results on a device --------------------------------------------------------------------

VALUES = {
    "flag": ("true", 1.0),
    "other": ("0", 0.0),
    "mode": ("high", 9.0),
    "count": ("-7", -7.0),
    "amount": ("4294967295", 2.0**32),
    "factor": ("-0.1", float(np.float32(-0.1))),
}


def stored(code: bytes, values: dict[int, int]) -> list[float]:
    """Run the shader of constants; return what it stored."""
    spec = KernelSpec("constants", code, BINDINGS, constants=tuple(values.items()))
    with validated_device() as device, Batch(device) as batch:
        out = batch.empty_buffer(28)
        (kernel,) = make_kernels(device, [spec])
        with Recording(device, [Step(kernel, ((0, out),), (1, 1, 1), b"")]) as recording:
            recording.run()
        return [float(x) for x in out.read(np.float32, (7,))]


@pytest.mark.parametrize("names", [("mode",), ("flag", "count"), tuple(VALUES)], ids="+".join)
def test_every_type_arrives(constants: Made, names: tuple[str, ...]) -> None:
    """What is frozen and what is set by the host give what setting all of them gives."""
    name = "constants_float"
    variant, enums = constants.variant(name), constants.woven.plan.enums
    texts = {constant: f"{constant}={text}" for constant, (text, _) in VALUES.items()}
    words = {s.name: (s.id, s.bits) for s in parse_settings(variant, enums, list(texts.values()))}
    expected = [*(value for _, value in VALUES.values()), 8.0]
    assert stored(constants.shipped(name), {0: 8, **dict(words.values())}) == expected
    frozen = constants.freeze(name, *(texts[constant] for constant in names))
    others = dict(word for constant, word in words.items() if constant not in names)
    assert stored(frozen, {0: 8, **others}) == expected
    local = constants.freeze(name, *texts.values(), "local_size_x=8")
    assert stored(local, {}) == expected


@pytest.mark.parametrize(
    "epilogue",
    [
        {},
        {"has_activation": True, "activation_op": "relu"},
        {
            "has_activation": True, "activation_op": "clamp", "activation_a": -0.5,
            "activation_b": 0.25, "has_residual": True, "has_scale": True,
            "residual_op": "sub", "residual_alpha": 0.5,
        },
    ],
    ids=["none", "relu", "all"],
)  # fmt: skip
@pytest.mark.parametrize("route", ["pointwise", "direct"])
def test_results_equal_the_specialised_ones(
    generated: Path, library: Made, route: str, epilogue: dict[str, Any]
) -> None:
    """The library's shaders on a device: bit for bit."""
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (1, 6, 7, 5)).astype(np.float32)
    residual = random.uniform(-1, 1, (1, 9, 7, 5)).astype(np.float32)
    weight = random.uniform(-1, 1, (9, 6, 1, 1)).astype(np.float32)
    bias, scale = random.uniform(-1, 1, (2, 9)).astype(np.float32)
    problem = {"in_n": 1, "in_c": 6, "in_h": 7, "in_w": 5, "out_c": 9, "dtype": "float"}
    with validated_device() as device, Batch(device) as batch:
        dispatches = pick(
            device, "conv2d", kernel_h=1, kernel_w=1, route=route, **problem, **epilogue
        )
        [dispatch] = dispatches
        out = batch.output(dispatch)
        assert isinstance(out, Image)
        operands = {
            "out": out,
            "in": upload(batch, x),
            "residual": upload(batch, residual),
            "weight": pack_weight(batch, weight, weight_operand(dispatches)),
            "bias": pack_vector(batch, bias),
            "scale": pack_vector(batch, scale),
        }
        batch.run()
        bindings = [(binding, operands[slot]) for binding, slot in dispatch.operands]
        for binding, data in dispatch.uniforms:
            bindings.append((binding, batch.buffer(np.frombuffer(data, np.uint8))))
        spec = kernel_spec(load_registry(), dispatch)
        own = {c.id: c for c in library.variant(spec.name).constants if c.owner == "epilogue"}
        settings = [f"{own[id_].name}={bits}" for id_, bits in dispatch.spec if id_ in own]
        frozen = dataclasses.replace(
            spec,
            code=library.freeze(spec.name, *settings),
            constants=tuple((id_, bits) for id_, bits in spec.constants if id_ not in own),
        )
        first, second = (run(device, one, Step, bindings, dispatch, out) for one in (spec, frozen))
    assert np.any(first)
    assert first.tobytes() == second.tobytes()


def run(
    device: Device, spec: KernelSpec, step: Any, bindings: Any, dispatch: Any, out: Image
) -> np.ndarray[Any, Any]:
    """Run one kernel; return its output, which was zero before."""
    out.write(np.zeros_like(out.read()))
    (kernel,) = make_kernels(device, [spec])
    steps = [step(kernel, tuple(bindings), dispatch.grid, dispatch.push_constants)]
    with Recording(device, steps) as recording:
        recording.run()
    return out.read()


# ---- the benchmark --------------------------------------------------------------------------


def test_epilogue_cost_runs_and_a_frozen_epilogue_is_none(tmp_path: Path) -> None:
    """Off and frozen, a shader has the instructions of one without an epilogue in its source."""
    script = REPOSITORY / "benchmarks" / "epilogue_cost.py"
    python: list[str | Path] = [sys.executable, script]
    made = run_program([*python, "--prepare", tmp_path], REPOSITORY)
    assert made.returncode == 0, made.stderr
    pairs = [
        (path, path.with_name(path.name.replace(".none.", ".frozen.")))
        for path in sorted((tmp_path / "modules").glob("*.none.spv"))
    ]
    assert len(pairs) >= 12
    for none, frozen in pairs:
        counts = []
        for path in (none, frozen):
            module = read_module(path.read_bytes(), path.name)
            counts.append(Counter(i.opcode for i in (*module.head, *module.body)))
        assert counts[0] == counts[1], none.name
    ran = run_program([*python, "--run", tmp_path, "--quick", "--runs", "1"], REPOSITORY)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("  specialised ") == 12
    assert "skipped" not in ran.stdout


# ---- the command line -----------------------------------------------------------------------


def test_command(tiny: Project) -> None:
    ran = tiny.loom("freeze", "copy_half", "--set", "has_gain=true", "gain_mode=plus")
    assert ran.code == 0, ran.err
    frozen = (tiny.folder / "copy_half.frozen.spv").read_bytes()
    assert ran.out.startswith(
        f"copy_half.frozen.spv: copy_half with has_gain=true, gain_mode=plus: {len(frozen):,} bytes"
    )
    assert used(frozen, "frozen").constants == frozenset()
    assert used(frozen, "frozen").bindings == {0, 1, 2}
    again = tiny.loom(
        "freeze", "copy_half", "--set", "has_gain=1", "--set", "gain_mode=1", "-o", "b"
    )
    assert (again.code, (tiny.folder / "b").read_bytes()) == (0, frozen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("copy_hal has_gain=1", "no variant is called 'copy_hal'; did you mean 'copy_half'?"),
        (
            "copy_half has_gian=1",
            "copy_half has no specialization constant 'has_gian'; did you mean 'has_gain'?",
        ),
        ("copy_half has_gain", "'has_gain' is not NAME=VALUE"),
        ("copy_half has_gain=2", "'2' of 'has_gain' is no bool"),
        ("copy_half has_gain=yes", "'yes' of 'has_gain' is no bool"),
        ("copy_half gain_mode=plu", "'plu' of 'gain_mode' is no GainMode; did you mean 'plus'?"),
        ("copy_half gain_mode=2", "'2' of 'gain_mode' is no GainMode"),
        ("copy_half has_gain=1 has_gain=1", "'has_gain' is set twice"),
        ("copy_half local_size_x=0", "'0' of 'local_size_x' is no local size of 1 or more"),
        ("fill_half value=1", "fill_half has no specialization constant 'value'"),
    ],
)
def test_mistakes(tiny: Project, arguments: str, message: str) -> None:
    variant, *settings = arguments.split()
    ran = tiny.loom("freeze", variant, "--set", *settings)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f": error: {message}\n")
    assert not list(tiny.folder.glob("*.spv"))


@given(value=st.one_of(st.integers(-(2**33), 2**33), st.sampled_from((-(2**31), 2**31, 2**32))))
def test_integers_fit_or_are_refused(constants: Made, value: int) -> None:
    enums, variant = constants.woven.plan.enums, constants.variant("constants_float")
    for name, code in (("count", "<i"), ("amount", "<I")):
        try:
            data = struct.pack(code, value)
        except struct.error:
            with pytest.raises(SpecError):
                parse_settings(variant, enums, [f"{name}={value}"])
        else:
            [setting] = parse_settings(variant, enums, [f"{name}={value}"])
            assert struct.pack("<I", setting.bits) == data


@given(value=st.floats())
def test_floats_round_or_are_refused(constants: Made, value: float) -> None:
    enums, variant = constants.woven.plan.enums, constants.variant("constants_float")
    with np.errstate(over="ignore"):
        rounded = np.float32(value)
    if np.isfinite(rounded):
        [setting] = parse_settings(variant, enums, [f"factor={value!r}"])
        assert struct.pack("<I", setting.bits) == rounded.tobytes()
    else:
        with pytest.raises(SpecError):
            parse_settings(variant, enums, [f"factor={value!r}"])
