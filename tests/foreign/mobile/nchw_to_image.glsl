#version 450
// Sets by kind; a texture array, a cube and a shadowless 1D texture.
layout(local_size_x = 4, local_size_y = 4, local_size_z = 4) in;
layout(set = 0, binding = 0, r32f) uniform writeonly image2DArray t_out;
layout(set = 1, binding = 0) uniform sampler2DArray t_layers;
layout(set = 1, binding = 1) uniform samplerCube t_cube;
layout(set = 1, binding = 2) uniform sampler1D t_table;
layout(set = 2, binding = 4) uniform Sizes { ivec4 whcn; mat4 turn; int taps[5]; } sizes;
void main() {
  ivec3 p = ivec3(gl_GlobalInvocationID);
  vec4 v = texelFetch(t_layers, p, 0) * texelFetch(t_table, sizes.taps[2], 0);
  imageStore(t_out, p, v * sizes.turn * textureLod(t_cube, vec3(p), 0.0) + vec4(sizes.whcn));
}
