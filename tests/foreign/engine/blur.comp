#version 450
#extension GL_EXT_nonuniform_qualifier : require
// In the style of a game engine: an unbounded array of textures and a sampler of its own.
layout(local_size_x = 8, local_size_y = 8) in;
layout(set = 0, binding = 0) uniform texture2D textures[];
layout(set = 0, binding = 1) uniform sampler smp;
layout(set = 0, binding = 2, rgba8) uniform writeonly image2D target;
layout(push_constant) uniform P { uint source; } p;
void main() {
  ivec2 at = ivec2(gl_GlobalInvocationID);
  imageStore(target, at, textureLod(sampler2D(textures[nonuniformEXT(p.source)], smp), vec2(at), 0.0));
}
