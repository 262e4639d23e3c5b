#version 450
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) uniform samplerBuffer source;
layout(set = 0, binding = 1, r32f) uniform writeonly imageBuffer target;
void main() { imageStore(target, int(gl_GlobalInvocationID.x), texelFetch(source, 0)); }
