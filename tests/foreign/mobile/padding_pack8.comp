#version 450
layout(constant_id = 2) const int kind = 0;
layout(constant_id = 7) const float value = 0.5;
layout(local_size_x = 8, local_size_y = 8) in;
layout(binding = 0, rgba16f) uniform readonly image3D bottom_image;
layout(binding = 3, rgba16f) uniform writeonly image3D top_image;
void main() {
  ivec3 p = ivec3(gl_GlobalInvocationID);
  imageStore(top_image, p, kind == 1 ? vec4(value) : imageLoad(bottom_image, p));
}
