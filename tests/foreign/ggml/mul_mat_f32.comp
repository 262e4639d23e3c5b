#version 450
// In the style of an inference engine: unnamed blocks, tile sizes as constants 0 to 2.
layout(local_size_x_id = 0, local_size_y = 1, local_size_z = 1) in;
layout(constant_id = 1) const uint TILE_M = 32;
layout(constant_id = 2) const uint TILE_N = 64;
layout(binding = 0) readonly buffer A { float data_a[]; };
layout(binding = 1) readonly buffer B { float data_b[]; };
layout(binding = 2) writeonly buffer D { float data_d[]; };
layout(push_constant) uniform parameter { uint M; uint N; uint K; uint stride_a; } p;
shared float tile[TILE_M * 64 + TILE_N];
void main() {
  uint row = gl_GlobalInvocationID.x;
  float sum = 0.0;
  for (uint k = 0; k < p.K; k++) sum += float(data_a[row * p.stride_a + k]) * float(data_b[k]);
  tile[gl_LocalInvocationID.x] = sum;
  barrier();
  if (row < p.M) data_d[row * p.N] = tile[gl_LocalInvocationID.x];
}
