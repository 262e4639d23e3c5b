#include "kernel.h"

#include <stddef.h>
#include <string.h>

/* The registry includes no Vulkan header, so a host checks once that the two agree. */
#define SAME_OFFSET(ours, theirs) \
  (offsetof(shaderloom_map_entry, ours) == offsetof(VkSpecializationMapEntry, theirs))
SHADERLOOM_ASSERT(entry, sizeof(shaderloom_map_entry) == sizeof(VkSpecializationMapEntry));
SHADERLOOM_ASSERT(entry_id, SAME_OFFSET(constant_id, constantID));
SHADERLOOM_ASSERT(entry_offset, SAME_OFFSET(offset, offset));
SHADERLOOM_ASSERT(entry_size, SAME_OFFSET(size, size));
#define SAME_KIND(ours, theirs) (SHADERLOOM_KIND_##ours == (int)VK_DESCRIPTOR_TYPE_##theirs)
SHADERLOOM_ASSERT(sampled_image, SAME_KIND(SAMPLED_IMAGE, COMBINED_IMAGE_SAMPLER));
SHADERLOOM_ASSERT(storage_image, SAME_KIND(STORAGE_IMAGE, STORAGE_IMAGE));
SHADERLOOM_ASSERT(uniform_buffer, SAME_KIND(UNIFORM_BUFFER, UNIFORM_BUFFER));

/* What Vulkan needs to run one dispatch record. */
typedef struct kernel {
  VkSampler sampler;
  VkDescriptorSetLayout set_layout;
  VkPipelineLayout layout;
  VkPipeline pipeline;
  VkDescriptorPool pool;
  VkDescriptorSet set;
  buffer uniforms;
} kernel;

static const image *image_of(const operand *operands, size_t count, shaderloom_slot slot) {
  for (size_t n = 0; n < count; ++n) {
    if (operands[n].slot == slot) {
      return &operands[n].image;
    }
  }
  FAIL("the record asks for an operand \"%s\"", shaderloom_slot_name(slot));
}

static VkDescriptorType type_of(const shaderloom_shader *shader, uint32_t number) {
  const shaderloom_binding *const binding = shaderloom_get_binding(shader, number);
  if (binding == NULL) {
    FAIL("%s has no binding %u", shader->name, (unsigned)number);
  }
  return (VkDescriptorType)binding->kind;
}

static void create_pipeline(const gpu *g, const shaderloom_dispatch *record, kernel *k) {
  const shaderloom_shader *const shader = shaderloom_get_shader(record->shader);
  const shaderloom_module *const spirv = shaderloom_get_module(record->shader);
  if (spirv->size == 0) {
    FAIL("%s was not compiled: %s", shader->name, spirv->missing);
  }
  if (shader->feature_count > 0 || shader->subgroup_size > 0) {
    FAIL("%s needs more of a device than this host enables", shader->name);
  }
  const VkShaderModuleCreateInfo module_create = {
      .sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
      .codeSize = spirv->size,
      .pCode = spirv->code,
  };
  VkShaderModule module;
  CHECK(vkCreateShaderModule(g->device, &module_create, NULL, &module));

  /* Map entry i describes the i-th value, and the record lists the values in that order. */
  const VkSpecializationInfo specialization = {
      .mapEntryCount = shader->map_entry_count,
      .pMapEntries = (const VkSpecializationMapEntry *)shader->map_entries,
      .dataSize = record->spec_count * sizeof(record->spec_values[0]),
      .pData = record->spec_values,
  };
  const VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, record->push_constant_size};
  const VkPipelineLayoutCreateInfo layout_create = {
      .sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
      .setLayoutCount = 1,
      .pSetLayouts = &k->set_layout,
      .pushConstantRangeCount = record->push_constant_size > 0 ? 1 : 0,
      .pPushConstantRanges = &range,
  };
  CHECK(vkCreatePipelineLayout(g->device, &layout_create, NULL, &k->layout));
  const VkComputePipelineCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
      .stage =
          {
              .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
              .stage = VK_SHADER_STAGE_COMPUTE_BIT,
              .module = module,
              .pName = "main",
              .pSpecializationInfo = &specialization,
          },
      .layout = k->layout,
  };
  CHECK(vkCreateComputePipelines(g->device, VK_NULL_HANDLE, 1, &create, NULL, &k->pipeline));
  vkDestroyShaderModule(g->device, module, NULL);
}

static void write_descriptor(const gpu *g, const kernel *k, uint32_t binding,
                             VkDescriptorType type, const VkDescriptorImageInfo *image,
                             const VkDescriptorBufferInfo *buffer) {
  const VkWriteDescriptorSet write = {
      .sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
      .dstSet = k->set,
      .dstBinding = binding,
      .descriptorCount = 1,
      .descriptorType = type,
      .pImageInfo = image,
      .pBufferInfo = buffer,
  };
  vkUpdateDescriptorSets(g->device, 1, &write, 0, NULL);
}

/* Bind what the record says: an image for each operand, a uniform buffer for each block. */
static void bind_operands(const gpu *g, const shaderloom_dispatch *record, const operand *operands,
                          size_t count, kernel *k) {
  const shaderloom_shader *const shader = shaderloom_get_shader(record->shader);
  printf("  bindings:");
  for (uint32_t n = 0; n < record->operand_count; ++n) {
    const uint32_t binding = record->operands[n].binding;
    const shaderloom_slot slot = record->operands[n].slot;
    const image *const bound = image_of(operands, count, slot);
    const VkDescriptorImageInfo info = {k->sampler, bound->view, bound->layout};
    write_descriptor(g, k, binding, type_of(shader, binding), &info, NULL);
    printf(" %u %s", (unsigned)binding, shaderloom_slot_name(slot));
  }
  printf("\n");
  /* Blocks are allocated in sixteens of bytes; both numbers are powers of two. */
  const VkDeviceSize limit = g->properties.limits.minUniformBufferOffsetAlignment;
  const VkDeviceSize unit = limit > 16 ? limit : 16;
  const VkDeviceSize stride = (SHADERLOOM_MAX_UNIFORM_SIZE + unit - 1) / unit * unit;
  k->uniforms =
      make_buffer(g, stride * SHADERLOOM_MAX_UNIFORMS, VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT);
  for (uint32_t n = 0; n < record->uniform_count; ++n) {
    const shaderloom_uniform *const uniform = &record->uniforms[n];
    const VkDescriptorBufferInfo info = {k->uniforms.handle, stride * n, stride};
    memcpy((char *)k->uniforms.data + stride * n, uniform->data, uniform->size);
    write_descriptor(g, k, uniform->binding, type_of(shader, uniform->binding), NULL, &info);
  }
}

static kernel make_kernel(const gpu *g, const shaderloom_dispatch *record,
                          const operand *operands, size_t count) {
  enum { MAX_BINDINGS = SHADERLOOM_MAX_OPERANDS + SHADERLOOM_MAX_UNIFORMS };
  const shaderloom_shader *const shader = shaderloom_get_shader(record->shader);
  VkDescriptorSetLayoutBinding bindings[MAX_BINDINGS];
  VkDescriptorPoolSize sizes[MAX_BINDINGS];
  kernel k;
  for (uint32_t n = 0; n < shader->binding_count; ++n) {
    const VkDescriptorType type = (VkDescriptorType)shader->bindings[n].kind;
    bindings[n] = (VkDescriptorSetLayoutBinding){
        shader->bindings[n].binding, type, 1, VK_SHADER_STAGE_COMPUTE_BIT, NULL};
    sizes[n] = (VkDescriptorPoolSize){type, 1};
  }
  /* All zero is nearest filtering; shaders use texelFetch, which looks at nothing else. */
  const VkSamplerCreateInfo sampler_create = {.sType = VK_STRUCTURE_TYPE_SAMPLER_CREATE_INFO};
  CHECK(vkCreateSampler(g->device, &sampler_create, NULL, &k.sampler));
  const VkDescriptorSetLayoutCreateInfo set_layout_create = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
      .bindingCount = shader->binding_count,
      .pBindings = bindings,
  };
  CHECK(vkCreateDescriptorSetLayout(g->device, &set_layout_create, NULL, &k.set_layout));
  const VkDescriptorPoolCreateInfo pool_create = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO,
      .maxSets = 1,
      .poolSizeCount = shader->binding_count,
      .pPoolSizes = sizes,
  };
  CHECK(vkCreateDescriptorPool(g->device, &pool_create, NULL, &k.pool));
  const VkDescriptorSetAllocateInfo allocation = {
      .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
      .descriptorPool = k.pool,
      .descriptorSetCount = 1,
      .pSetLayouts = &k.set_layout,
  };
  CHECK(vkAllocateDescriptorSets(g->device, &allocation, &k.set));
  create_pipeline(g, record, &k);
  bind_operands(g, record, operands, count, &k);
  return k;
}

static void free_kernel(const gpu *g, kernel *k) {
  free_buffer(g, &k->uniforms);
  vkDestroyPipeline(g->device, k->pipeline, NULL);
  vkDestroyPipelineLayout(g->device, k->layout, NULL);
  vkDestroyDescriptorPool(g->device, k->pool, NULL);
  vkDestroyDescriptorSetLayout(g->device, k->set_layout, NULL);
  vkDestroySampler(g->device, k->sampler, NULL);
}

void run_record(const gpu *g, const shaderloom_dispatch *record, const operand *operands,
                size_t count) {
  kernel k = make_kernel(g, record, operands, count);
  const VkCommandBuffer commands = begin_commands(g);
  for (size_t n = 0; n < count; ++n) {
    record_upload(commands, &operands[n].image);
  }
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.pipeline);
  vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, k.layout, 0, 1, &k.set, 0,
                          NULL);
  if (record->push_constant_size > 0) {
    vkCmdPushConstants(commands, k.layout, VK_SHADER_STAGE_COMPUTE_BIT, 0,
                       record->push_constant_size, record->push_constants);
  }
  vkCmdDispatch(commands, record->grid[0], record->grid[1], record->grid[2]);
  record_download(commands, image_of(operands, count, SHADERLOOM_SLOT_OUT));
  run_commands(g, commands);
  free_kernel(g, &k);
}
