#version 450
// An array of buffers: one binding, several descriptors.
layout(local_size_x = 32) in;
layout(set = 0, binding = 0) buffer Pages { uint words[]; } pages[4];
void main() { pages[1].words[gl_GlobalInvocationID.x] = pages[0].words[0]; }
