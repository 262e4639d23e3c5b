"""Recordings: results, barriers, running again, zero grids, time, failures."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import vulkan

from runtime_support import (
    NEGATE,
    NEGATE_BINDINGS,
    affine_kernel,
    affine_spec,
    compiled,
    floats,
    resident_bytes,
    validated_device,
)
from shaderloom_runtime import errors
from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.kernel import KernelSpec, make_kernels
from shaderloom_runtime.memory import Buffer, Image
from shaderloom_runtime.submit import Recording, Step

COUNT = 100
GRID = (2, 1, 1)  # groups of 64


@pytest.fixture
def device() -> Iterator[Device]:
    with validated_device() as opened:
        yield opened


class Affine:
    """The affine kernel with a buffer for its count, and steps of it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.kernel = affine_kernel(device)
        self.count = Buffer(device, 4, host=True)
        self.count.write(struct.pack("i", COUNT))

    def buffer(self, value: float) -> Buffer:
        buffer = Buffer(self.device, 4 * COUNT)
        buffer.write(np.full(COUNT, value, np.float32))
        return buffer

    def step(self, out: Buffer, source: Buffer, factor: float, addend: float) -> Step:
        bindings = ((0, out), (1, source), (2, self.count))
        return Step(self.kernel, bindings, GRID, floats(factor, addend))


def values(buffer: Buffer) -> set[float]:
    return set(buffer.read(np.float32, (COUNT,)).tolist())


def test_dependent_steps_see_each_other(device: Device) -> None:
    affine = Affine(device)
    a, b = affine.buffer(1), affine.buffer(np.nan)
    steps = [affine.step(b, a, 2, 1), affine.step(a, b, 2, 1)] * 4
    with Recording(device, steps) as recording:
        assert recording.encoded == 8
        assert recording.barriers == 7
        recording.run()
    assert values(b) == {255}
    assert values(a) == {511}


@pytest.mark.parametrize(("read_only", "barriers"), [((), 3), ((1,), 0)])
def test_only_dependent_steps_have_a_barrier(
    device: Device, read_only: tuple[int, ...], barriers: int
) -> None:
    affine = Affine(device)
    (affine.kernel,) = make_kernels(device, [replace(affine_spec(), read_only=read_only)])
    source = affine.buffer(3)
    outs = [affine.buffer(0) for _ in range(4)]
    with Recording(device, [affine.step(out, source, i, 0) for i, out in enumerate(outs)]) as r:
        assert r.barriers == barriers
        r.run()
    assert [values(out) for out in outs] == [{0}, {3}, {6}, {9}]
    # What was read is not overwritten before the reader is done.
    with Recording(
        device, [affine.step(outs[0], source, 1, 0), affine.step(source, outs[1], 1, 0)]
    ) as r:
        assert r.barriers == 1
        r.run()
    assert values(outs[0]) == {3}
    assert values(source) == {3}


def test_validation_sees_a_missing_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    # So that silence in the other tests means that the barriers are there.
    with open_device(validation=True) as device:
        affine = Affine(device)
        a, b = affine.buffer(1), affine.buffer(0)
        monkeypatch.setattr(Device, "barrier", lambda *_, **__: None)
        Recording(device, [affine.step(b, a, 2, 1), affine.step(a, b, 2, 1)])
        assert any("hazard" in message.lower() for message in device.messages)


def test_running_again_takes_new_contents(device: Device) -> None:
    affine = Affine(device)
    source, out = affine.buffer(1), affine.buffer(0)
    with Recording(device, [affine.step(out, source, 3, 1)]) as recording:
        recording.run()
        assert values(out) == {4}
        source.write(np.full(COUNT, 2, np.float32))
        affine.count.write(struct.pack("i", 50))  # the uniform buffer alone is rewritten
        recording.run()
    assert out.read(np.float32, (COUNT,)).tolist() == [7] * 50 + [4] * 50


def test_images_are_sampled_and_stored(device: Device) -> None:
    spec = KernelSpec("negate", compiled(NEGATE), NEGATE_BINDINGS)
    (kernel,) = make_kernels(device, [spec])
    source, out = Image(device, (4, 3, 2)), Image(device, (4, 3, 2))
    array = np.arange(96, dtype=np.float32).reshape(source.shape)
    source.write(array)
    out.write(np.full(out.shape, np.nan, np.float32))
    back = [Step(kernel, ((0, source), (1, out)), (4, 3, 2))]
    with Recording(device, [Step(kernel, ((0, out), (1, source)), (4, 3, 2)), *back]) as recording:
        assert recording.barriers == 1
        recording.run()
    assert np.array_equal(out.read(), -array[..., [1, 0, 2, 3]])
    assert np.array_equal(source.read(), array)


def test_grid_with_a_zero_is_not_encoded(device: Device) -> None:
    affine = Affine(device)
    source, out = affine.buffer(1), affine.buffer(5)
    step = affine.step(out, source, 2, 0)
    empty = Step(step.kernel, step.bindings, (0, 1, 1), step.push_constants)
    with Recording(device, [empty]) as recording:
        assert recording.encoded == 0
        recording.run()
    assert values(out) == {5}
    with Recording(device, [empty, step, empty]) as recording:
        assert (recording.encoded, recording.barriers) == (1, 0)
        recording.run()
    assert values(out) == {2}
    with Recording(device, []) as recording:
        recording.run()


def test_time_on_the_device(device: Device) -> None:
    affine = Affine(device)
    a, b = affine.buffer(0), affine.buffer(0)
    with Recording(device, [affine.step(b, a, 1, 1)] * 20, timestamps=True) as recording:
        for _ in range(2):
            elapsed = recording.run()
            assert elapsed is not None
            assert 0 < elapsed < 60e9
    with Recording(device, [affine.step(b, a, 1, 1)]) as recording:
        assert recording.run() is None


def test_timestamps_wrap_around(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def results(*args: Any) -> None:
        args[5][0], args[5][1] = 2**36 - 10, 30

    affine = Affine(device)
    step = affine.step(affine.buffer(0), affine.buffer(0), 1, 1)
    with Recording(device, [step], timestamps=True) as recording:
        monkeypatch.setattr(vulkan, "vkGetQueryPoolResults", results)
        monkeypatch.setattr(device, "timestamp_bits", 36)
        assert recording.run() == round(40 * device.info.limits.timestamp_period)
    monkeypatch.setattr(device, "timestamp_bits", 0)
    with pytest.raises(errors.InvalidUse, match="no timestamps"):
        Recording(device, [step], timestamps=True)


def test_steps_that_do_not_fit_are_refused(device: Device) -> None:
    affine = Affine(device)
    kernel, count = affine.kernel, affine.count
    a, b, image = affine.buffer(0), affine.buffer(0), Image(device, (1, 1))
    bound = ((0, a), (1, b), (2, count))
    most = device.info.limits.max_grid
    push = floats(1, 2)
    wrong: list[tuple[Step, str]] = [
        (Step(kernel, bound[:2], GRID, push), r"bindings \[0, 1\] given, \[0, 1, 2\] declared"),
        (Step(kernel, (*bound, (3, a)), GRID, push), r"\[0, 1, 2, 3\] given"),
        (Step(kernel, (*bound[:2], (1, a)), GRID, push), r"\[0, 1, 1\] given"),
        (Step(kernel, ((0, image), *bound[1:]), GRID, push), "storage_buffer, given a Image"),
        (Step(kernel, bound, GRID, push[:4]), "4 bytes of push constants given, 8 declared"),
        (Step(kernel, bound, (1, most[1] + 1, 1), push), f"grid .* takes \\({most[0]}"),
        (Step(kernel, bound, (-1, 1, 1), push), r"grid \(-1, 1, 1\)"),
    ]
    for step, message in wrong:
        with pytest.raises(errors.InvalidUse, match=f"affine: .*{message}"):
            Recording(device, [step])
    uniform = device.info.limits.max_uniform_buffer
    if uniform < 2**24:
        large = Buffer(device, uniform + 1)
        with pytest.raises(errors.InvalidUse, match=f"uniform_buffer of at most {uniform}"):
            Recording(device, [Step(kernel, (*bound[:2], (2, large)), GRID, push)])


def test_resources_of_another_device_are_refused(device: Device) -> None:
    affine = Affine(device)
    with validated_device() as other:
        step = affine.step(Buffer(other, 400), affine.buffer(0), 1, 1)
        with pytest.raises(errors.InvalidUse, match="a Buffer of another device"):
            Recording(device, [step])


def test_closed_things_are_refused(device: Device) -> None:
    affine = Affine(device)
    a, b = affine.buffer(0), affine.buffer(0)
    step = affine.step(b, a, 1, 1)
    recording = Recording(device, [step])
    a.close()
    with pytest.raises(errors.InvalidUse, match="this Buffer is closed"):
        recording.run()
    with pytest.raises(errors.InvalidUse, match="this Buffer is closed"):
        Recording(device, [step])
    recording.close()
    with pytest.raises(errors.InvalidUse, match="this Recording is closed"):
        recording.run()


@pytest.mark.parametrize("function", ["vkQueueSubmit", "vkWaitForFences"])
def test_lost_device_is_reported(
    device: Device, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    # Simulated. The wait is real before it fails, for the queue here is in fact alive.
    real = getattr(vulkan, function)

    def lose(*args: Any) -> None:
        if function == "vkWaitForFences":
            real(*args)
        raise vulkan.VkErrorDeviceLost

    affine = Affine(device)
    a, b = affine.buffer(0), affine.buffer(0)
    with Recording(device, [affine.step(b, a, 1, 1)]) as recording:
        monkeypatch.setattr(vulkan, function, lose)
        for use in (recording.run, lambda: a.write(b"1234"), lambda: Image(device, (1, 1))):
            with pytest.raises(errors.DeviceLost, match=f"{function} failed: VK_ERROR_DEVICE_LOST"):
                use()


def test_failed_recording_leaves_nothing(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise vulkan.VkErrorOutOfDeviceMemory

    affine = Affine(device)
    step = affine.step(affine.buffer(0), affine.buffer(0), 1, 1)
    functions = ("vkCreateDescriptorPool", "vkAllocateDescriptorSets", "vkCreateQueryPool")
    for function in (*functions, "vkAllocateCommandBuffers", "vkEndCommandBuffer"):
        with monkeypatch.context() as patch:
            patch.setattr(vulkan, function, fail)
            with pytest.raises(errors.OutOfMemory, match=f"{function} failed"):
                Recording(device, [step], timestamps=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_building_and_closing_leaks_nothing() -> None:
    # A device a round: the software driver keeps memory for each destroyed pipeline until then.
    def rounds(count: int) -> None:
        for _ in range(count):
            with open_device() as device:
                affine = Affine(device)
                a, b = affine.buffer(0), affine.buffer(0)
                for _ in range(20):
                    Recording(device, [affine.step(b, a, 1, 1)] * 5, timestamps=True).run()

    rounds(5)
    before = resident_bytes()
    rounds(30)
    assert resident_bytes() - before < 8 * 2**20
