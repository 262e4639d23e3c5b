#version 450
// Nested structs, an array of them, and more than 128 bytes of push constants.
layout(local_size_x = 64) in;
struct Sphere { vec3 centre; float radius; };
struct Object { Sphere bounds; uint first; uint count; };
layout(set = 0, binding = 0) readonly buffer Objects { Object objects[]; };
layout(set = 0, binding = 1) buffer Draws { uint total; uvec4 draws[]; };
layout(set = 0, binding = 2) uniform Frame { mat4 view; Object reference; Sphere lights[4]; } frame;
layout(push_constant) uniform P { mat4 first; mat4 second; vec4 plane; } p;
void main() {
  Object o = objects[gl_GlobalInvocationID.x];
  vec4 at = frame.view * p.first * p.second * vec4(o.bounds.centre, 1.0);
  if (dot(at, p.plane) < o.bounds.radius + frame.lights[1].radius)
    draws[atomicAdd(total, 1u)] = uvec4(o.first, o.count, frame.reference.first, 0u);
}
