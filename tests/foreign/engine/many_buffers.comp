#version 450
layout(local_size_x = 32) in;
layout(binding = 0) readonly buffer B0 { float b0[]; };
layout(binding = 1) readonly buffer B1 { float b1[]; };
layout(binding = 2) readonly buffer B2 { float b2[]; };
layout(binding = 3) readonly buffer B3 { float b3[]; };
layout(binding = 4) writeonly buffer B4 { float b4[]; };
shared vec3 scratch[2048];
void main() {
  uint i = gl_GlobalInvocationID.x;
  scratch[gl_LocalInvocationID.x] = vec3(b0[i], b1[i], b2[i]);
  barrier();
  b4[i] = scratch[0].x + b3[i];
}
