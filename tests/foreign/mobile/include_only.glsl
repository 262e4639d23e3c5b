// Included by others: no shader by itself.
vec4 activate(vec4 v) { return max(v, vec4(0.0)); }
