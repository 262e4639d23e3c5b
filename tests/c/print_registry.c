/* Prints every shader of the registry as JSON, looked up by enumerator and by name. */
#include <stdio.h>
#include <string.h>

#include "registry.h"

static const char *kind(shaderloom_kind value) {
  switch (value) {
    case SHADERLOOM_KIND_SAMPLED_IMAGE: return "sampled_image";
    case SHADERLOOM_KIND_STORAGE_IMAGE: return "storage_image";
    case SHADERLOOM_KIND_UNIFORM_BUFFER: return "uniform_buffer";
    case SHADERLOOM_KIND_STORAGE_BUFFER: return "storage_buffer";
  }
  return "?";
}

static const char *storage(shaderloom_storage value) {
  switch (value) {
    case SHADERLOOM_STORAGE_UNIFORM: return "uniform";
    case SHADERLOOM_STORAGE_TEXTURE2D: return "texture2d";
    case SHADERLOOM_STORAGE_TEXTURE3D: return "texture3d";
    case SHADERLOOM_STORAGE_BUFFER: return "buffer";
    case SHADERLOOM_STORAGE_VEC4_BUFFER: return "vec4_buffer";
  }
  return "?";
}

static const char *dtype(shaderloom_dtype value) {
  if (value == SHADERLOOM_DTYPE_NONE) return "";
  if (value == SHADERLOOM_DTYPE_FLOAT) return "float";
  if (value == SHADERLOOM_DTYPE_HALF) return "half";
  if (value == SHADERLOOM_DTYPE_UINT) return "uint";
  return "?";
}

static void print_fields(uint32_t count, const shaderloom_field *fields) {
  uint32_t i;
  printf("[");
  for (i = 0; i < count; ++i) {
    printf("%s{\"name\": \"%s\", \"type\": \"%s\", \"offset\": %u, \"size\": %u}", i ? ", " : "",
           fields[i].name, fields[i].type, (unsigned)fields[i].offset, (unsigned)fields[i].size);
  }
  printf("]");
}

static void print_bindings(const shaderloom_shader *shader) {
  uint32_t i;
  printf("\"bindings\": [");
  for (i = 0; i < shader->binding_count; ++i) {
    const shaderloom_binding *b = &shader->bindings[i];
    printf("%s{\"name\": \"%s\", \"binding\": %u, \"kind\": \"%s\", \"storage\": \"%s\", ",
           i ? ", " : "", b->name, (unsigned)b->binding, kind(b->kind), storage(b->storage));
    printf("\"dtype\": \"%s\", \"access\": \"%s\", ", dtype(b->dtype),
           b->access == SHADERLOOM_ACCESS_READ ? "read" : "write");
    printf("\"operand\": \"%s\", \"absent\": \"%s\", \"packed_by\": \"%s\", ",
           b->operand ? b->operand : "", b->absent ? b->absent : "",
           b->packed_by ? b->packed_by : "");
    printf("\"size\": %u, \"found\": %s, \"fields\": ", (unsigned)b->size,
           shaderloom_find_binding(shader, b->name) == b ? "true" : "false");
    print_fields(b->field_count, b->fields);
    printf("}");
  }
  printf("],\n");
}

static void print_constants(const shaderloom_shader *shader) {
  uint32_t i;
  printf("\"constants\": [");
  for (i = 0; i < shader->constant_count; ++i) {
    const shaderloom_constant *c = &shader->constants[i];
    printf("%s{\"name\": \"%s\", \"id\": %u, \"type\": \"%s\", \"bits\": %lu, \"found\": %s}",
           i ? ", " : "", c->name, (unsigned)c->id, c->type, (unsigned long)c->default_bits,
           shaderloom_find_constant(shader, c->name) == c ? "true" : "false");
  }
  printf("],\n\"map_entries\": [");
  for (i = 0; i < shader->map_entry_count; ++i) {
    const shaderloom_map_entry *e = &shader->map_entries[i];
    printf("%s[%u, %u, %u]", i ? ", " : "", (unsigned)e->constant_id, (unsigned)e->offset,
           (unsigned)e->size);
  }
  printf("],\n");
}

static void print_shader(const shaderloom_shader *shader, const shaderloom_module *module) {
  uint32_t i;
  printf("\"%s\": {\"family\": \"%s\", \"op\": \"%s\",\n", shader->name, shader->family, shader->op);
  print_bindings(shader);
  print_constants(shader);
  printf("\"push_constant_size\": %u, \"push_constants\": ", (unsigned)shader->push_constant_size);
  print_fields(shader->push_constant_count, shader->push_constants);
  printf(",\n\"features\": [");
  for (i = 0; i < shader->feature_count; ++i) {
    printf("%s\"%s\"", i ? ", " : "", shader->features[i]);
  }
  printf("], \"subgroup_size\": %u, \"cooperative_matrix\": \"%s\",\n\"words\": [",
         (unsigned)shader->subgroup_size,
         shader->cooperative_matrix ? shader->cooperative_matrix : "");
  for (i = 0; i < module->size / 4; ++i) {
    printf("%s%lu", i ? "," : "", (unsigned long)module->code[i]);
  }
  printf("], \"missing\": \"%s\"}", module->missing ? module->missing : "");
}

int main(void) {
  const shaderloom_shader_id none = SHADERLOOM_SHADER_COUNT;
  const char *const unknown[] = {"", "a", "conv2d", "conv2d_pw_tiled_halff", "zzz", "ADD_HALF"};
  size_t i;
  int id;
  for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); ++i) {
    if (shaderloom_find_shader(unknown[i]) != none) return 1;
  }
  if (shaderloom_get_shader(none) || shaderloom_get_module(none)) return 2;
  if (shaderloom_get_shader((shaderloom_shader_id)-1)) return 3;
  printf("{\"hashes\": [\"%s\", \"%s\", \"%s\"], \"shaders\": {\n", SHADERLOOM_LAYOUT_HASH,
         shaderloom_layout_hash(), shaderloom_module_layout_hash());
  for (id = 0; id < (int)none; ++id) {
    const shaderloom_shader *shader = shaderloom_get_shader((shaderloom_shader_id)id);
    const shaderloom_module *module = shaderloom_get_module((shaderloom_shader_id)id);
    if ((int)shaderloom_find_shader(shader->name) != id) return 4;
    if (shaderloom_find_binding(shader, "t_none") || shaderloom_find_constant(shader, "")) return 5;
    if (((size_t)(const void *)module->code) % 4 != 0) return 6;
    if (id) printf(",\n");
    print_shader(shader, module);
  }
  printf("}}\n");
  return 0;
}
