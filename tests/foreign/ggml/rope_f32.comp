#version 450
layout(local_size_x = 256) in;
struct Theta { float base; float scale; };
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Freqs { Theta freqs[]; };
layout(binding = 2) writeonly buffer Y { float y[]; };
layout(push_constant) uniform P { uint n; vec2 corr; Theta theta; } p;
void main() {
  uint i = gl_GlobalInvocationID.x;
  if (i < p.n) y[i] = x[i] * cos(freqs[i].base * p.theta.scale + p.corr.x);
}
