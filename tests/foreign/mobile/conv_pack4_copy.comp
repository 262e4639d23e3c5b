#version 450
// In the style of a mobile framework: sizes as constants from 0 on, then the local size at 233.
layout(constant_id = 0) const int kernel_w = 1;
layout(constant_id = 1) const int kernel_h = 1;
layout(constant_id = 3) const int bias_term = 0;
layout(constant_id = 2) const int activation_type = 0;
layout(local_size_x_id = 233, local_size_y_id = 234, local_size_z_id = 235) in;
layout(binding = 0) readonly buffer bottom_blob { float bottom_blob_data[]; };
layout(binding = 1) writeonly buffer top_blob { vec4 top_blob_data[]; };
layout(binding = 2) readonly buffer weight_blob { vec4 weight_data[]; };
layout(binding = 3) readonly buffer bias_blob { vec4 bias_data[]; };
layout(push_constant) uniform parameter { int w; int h; int c; int outw; int outh; int outc; } p;
void main() {
  ivec3 g = ivec3(gl_GlobalInvocationID);
  if (g.x >= p.outw || g.y >= p.outh || g.z >= p.outc) return;
  vec4 sum = bias_term == 1 ? bias_data[g.z] : vec4(0.0);
  for (int i = 0; i < kernel_w * kernel_h; i++) sum += bottom_blob_data[i] * weight_data[i];
  if (activation_type == 1) sum = max(sum, vec4(0.0));
  top_blob_data[(g.z * p.outh + g.y) * p.outw + g.x] = sum;
}
