#version 450
#define OP(X, Y) ${OPERATOR}
layout(std430) buffer;
${layout_declare_tensor(0, "w", "t_out", DTYPE, STORAGE)}
void main() {}
