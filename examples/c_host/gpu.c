#include "gpu.h"

#include <string.h>

void gpu_check(VkResult result, const char *call) {
  if (result != VK_SUCCESS) {
    FAIL("%.*s: VkResult %d", (int)strcspn(call, "("), call, (int)result);
  }
}

static void no_driver(void) {
  FAIL("no Vulkan driver: install one for the GPU, or mesa-vulkan-drivers for the software device");
}

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data,
                                                 void *messages) {
  (void)severity;
  (void)type;
  fprintf(stderr, "validation: %s\n", data->pMessage);
  ++*(uint32_t *)messages;
  return VK_FALSE;
}

static void create_instance(gpu *g, bool validate) {
  const char *const layer = "VK_LAYER_KHRONOS_validation";
  const char *const extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                    VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
  const VkDebugUtilsMessengerCreateInfoEXT messenger = {
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                         VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
      /* Not GENERAL: there the loader tells of drivers that it skipped, their GPU being absent. */
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT,
      .pfnUserCallback = on_message,
      .pUserData = &g->messages,
  };
  const VkValidationFeatureEnableEXT synchronization =
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  const VkValidationFeaturesEXT features = {
      .sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT,
      .pNext = &messenger, /* for messages of vkCreateInstance and vkDestroyInstance themselves */
      .enabledValidationFeatureCount = 1,
      .pEnabledValidationFeatures = &synchronization,
  };
  const VkApplicationInfo application = {
      .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
      .pApplicationName = "shaderloom c_host",
      .apiVersion = VK_API_VERSION_1_1, /* what the modules are compiled for */
  };
  const VkInstanceCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
      .pNext = validate ? &features : NULL,
      .pApplicationInfo = &application,
      .enabledLayerCount = validate ? 1 : 0,
      .ppEnabledLayerNames = &layer,
      .enabledExtensionCount = validate ? 2 : 0,
      .ppEnabledExtensionNames = extensions,
  };
  const VkResult result = vkCreateInstance(&create, NULL, &g->instance);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
    no_driver();
  }
  if (result == VK_ERROR_LAYER_NOT_PRESENT) {
    FAIL("vkCreateInstance: VALIDATE=1 needs %s (vulkan-validationlayers)", layer);
  }
  gpu_check(result, "vkCreateInstance");
  if (validate) {
    const PFN_vkCreateDebugUtilsMessengerEXT create_messenger =
        (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
            g->instance, "vkCreateDebugUtilsMessengerEXT");
    gpu_check(create_messenger(g->instance, &messenger, NULL, &g->messenger),
              "vkCreateDebugUtilsMessengerEXT");
  }
}

/* The first queue family that computes, or UINT32_MAX. */
static uint32_t compute_family(VkPhysicalDevice physical) {
  VkQueueFamilyProperties families[16];
  uint32_t count = 16;
  vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families);
  for (uint32_t i = 0; i < count; ++i) {
    if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) {
      return i;
    }
  }
  return UINT32_MAX;
}

/* Discrete before integrated before virtual GPUs, then the CPU. */
static int rank(VkPhysicalDeviceType type) {
  const int ranks[] = {0, 3, 4, 2, 1}; /* other, integrated, discrete, virtual, CPU */
  return type <= VK_PHYSICAL_DEVICE_TYPE_CPU ? ranks[type] : 0;
}

static void choose_device(gpu *g) {
  VkPhysicalDevice devices[16];
  uint32_t count = 16;
  const VkResult result = vkEnumeratePhysicalDevices(g->instance, &count, devices);
  if (result == VK_ERROR_INITIALIZATION_FAILED) { /* there are drivers, but none has its GPU */
    no_driver();
  }
  if (result != VK_INCOMPLETE) { /* sixteen are enough to choose from */
    gpu_check(result, "vkEnumeratePhysicalDevices");
  }
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t family = compute_family(devices[i]);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(devices[i], &properties);
    if (properties.apiVersion >= VK_API_VERSION_1_1 && family != UINT32_MAX &&
        (!g->physical || rank(properties.deviceType) > rank(g->properties.deviceType))) {
      g->physical = devices[i];
      g->properties = properties;
      g->queue_family = family;
    }
  }
  if (!g->physical) {
    no_driver();
  }
}

void gpu_open(gpu *g, bool validate) {
  memset(g, 0, sizeof(*g));
  create_instance(g, validate);
  choose_device(g);
  const float priority = 1.0f;
  const VkDeviceQueueCreateInfo queue = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
      .queueFamilyIndex = g->queue_family,
      .queueCount = 1,
      .pQueuePriorities = &priority,
  };
  const VkDeviceCreateInfo device = {
      .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
      .queueCreateInfoCount = 1,
      .pQueueCreateInfos = &queue,
  };
  CHECK(vkCreateDevice(g->physical, &device, NULL, &g->device));
  vkGetDeviceQueue(g->device, g->queue_family, 0, &g->queue);
  const VkCommandPoolCreateInfo pool = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
      .queueFamilyIndex = g->queue_family,
  };
  CHECK(vkCreateCommandPool(g->device, &pool, NULL, &g->command_pool));
}

void gpu_close(gpu *g) {
  vkDestroyCommandPool(g->device, g->command_pool, NULL);
  vkDestroyDevice(g->device, NULL);
  if (g->messenger) {
    const PFN_vkDestroyDebugUtilsMessengerEXT destroy_messenger =
        (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(
            g->instance, "vkDestroyDebugUtilsMessengerEXT");
    destroy_messenger(g->instance, g->messenger, NULL);
  }
  vkDestroyInstance(g->instance, NULL);
}

static VkDeviceMemory allocate(const gpu *g, VkMemoryRequirements needs,
                               VkMemoryPropertyFlags wanted) {
  VkPhysicalDeviceMemoryProperties memory;
  vkGetPhysicalDeviceMemoryProperties(g->physical, &memory);
  for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
    if ((needs.memoryTypeBits >> i & 1) &&
        (memory.memoryTypes[i].propertyFlags & wanted) == wanted) {
      const VkMemoryAllocateInfo allocation = {
          .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
          .allocationSize = needs.size,
          .memoryTypeIndex = i,
      };
      VkDeviceMemory allocated;
      CHECK(vkAllocateMemory(g->device, &allocation, NULL, &allocated));
      return allocated;
    }
  }
  FAIL("no memory type has the properties 0x%x", (unsigned)wanted);
}

buffer make_buffer(const gpu *g, VkDeviceSize size, VkBufferUsageFlags usage) {
  buffer b;
  const VkBufferCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
      .size = size,
      .usage = usage,
  };
  CHECK(vkCreateBuffer(g->device, &create, NULL, &b.handle));
  VkMemoryRequirements needs;
  vkGetBufferMemoryRequirements(g->device, b.handle, &needs);
  b.memory = allocate(
      g, needs, VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT);
  CHECK(vkBindBufferMemory(g->device, b.handle, b.memory, 0));
  CHECK(vkMapMemory(g->device, b.memory, 0, VK_WHOLE_SIZE, 0, &b.data));
  memset(b.data, 0, size);
  return b;
}

void free_buffer(const gpu *g, buffer *b) {
  vkDestroyBuffer(g->device, b->handle, NULL);
  vkFreeMemory(g->device, b->memory, NULL);
}

static const VkImageSubresourceRange whole = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 1, 0, 1};

image make_image(const gpu *g, VkImageType type, VkExtent3D extent, bool written) {
  image i = {.extent = extent};
  i.layout = written ? VK_IMAGE_LAYOUT_GENERAL : VK_IMAGE_LAYOUT_SHADER_READ_ONLY_OPTIMAL;
  const VkImageCreateInfo create = {
      .sType = VK_STRUCTURE_TYPE_IMAGE_CREATE_INFO,
      .imageType = type,
      .format = VK_FORMAT_R32G32B32A32_SFLOAT,
      .extent = extent,
      .mipLevels = 1,
      .arrayLayers = 1,
      .samples = VK_SAMPLE_COUNT_1_BIT,
      .usage = VK_IMAGE_USAGE_TRANSFER_DST_BIT |
               (written ? VK_IMAGE_USAGE_STORAGE_BIT | VK_IMAGE_USAGE_TRANSFER_SRC_BIT
                        : VK_IMAGE_USAGE_SAMPLED_BIT),
  };
  CHECK(vkCreateImage(g->device, &create, NULL, &i.handle));
  VkMemoryRequirements needs;
  vkGetImageMemoryRequirements(g->device, i.handle, &needs);
  i.memory = allocate(g, needs, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
  CHECK(vkBindImageMemory(g->device, i.handle, i.memory, 0));
  const VkImageViewCreateInfo view = {
      .sType = VK_STRUCTURE_TYPE_IMAGE_VIEW_CREATE_INFO,
      .image = i.handle,
      .viewType = type == VK_IMAGE_TYPE_3D ? VK_IMAGE_VIEW_TYPE_3D : VK_IMAGE_VIEW_TYPE_2D,
      .format = create.format,
      .subresourceRange = whole,
  };
  CHECK(vkCreateImageView(g->device, &view, NULL, &i.view));
  i.staging = make_buffer(
      g, (VkDeviceSize)extent.width * extent.height * extent.depth * 4 * sizeof(float),
      VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT);
  i.texels = i.staging.data;
  return i;
}

void free_image(const gpu *g, image *i) {
  free_buffer(g, &i->staging);
  vkDestroyImageView(g->device, i->view, NULL);
  vkDestroyImage(g->device, i->handle, NULL);
  vkFreeMemory(g->device, i->memory, NULL);
}

VkCommandBuffer begin_commands(const gpu *g) {
  VkCommandBuffer commands;
  const VkCommandBufferAllocateInfo allocation = {
      .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
      .commandPool = g->command_pool,
      .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
      .commandBufferCount = 1,
  };
  CHECK(vkAllocateCommandBuffers(g->device, &allocation, &commands));
  const VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
  CHECK(vkBeginCommandBuffer(commands, &begin));
  return commands;
}

/* All that came before is finished and visible to all that follows; the image changes layout. */
static void change_layout(VkCommandBuffer commands, const image *i, VkImageLayout from,
                          VkImageLayout to) {
  const VkPipelineStageFlags stages =
      VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  const VkImageMemoryBarrier barrier = {
      .sType = VK_STRUCTURE_TYPE_IMAGE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT |
                       VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
      .oldLayout = from,
      .newLayout = to,
      .srcQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
      .dstQueueFamilyIndex = VK_QUEUE_FAMILY_IGNORED,
      .image = i->handle,
      .subresourceRange = whole,
  };
  vkCmdPipelineBarrier(commands, stages, stages, 0, 0, NULL, 0, NULL, 1, &barrier);
}

static VkBufferImageCopy whole_copy(const image *i) {
  const VkBufferImageCopy copy = {
      .imageSubresource = {VK_IMAGE_ASPECT_COLOR_BIT, 0, 0, 1},
      .imageExtent = i->extent,
  };
  return copy;
}

void record_upload(VkCommandBuffer commands, const image *i) {
  const VkBufferImageCopy copy = whole_copy(i);
  change_layout(commands, i, VK_IMAGE_LAYOUT_UNDEFINED, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL);
  vkCmdCopyBufferToImage(commands, i->staging.handle, i->handle,
                         VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, 1, &copy);
  change_layout(commands, i, VK_IMAGE_LAYOUT_TRANSFER_DST_OPTIMAL, i->layout);
}

void record_download(VkCommandBuffer commands, const image *i) {
  const VkBufferImageCopy copy = whole_copy(i);
  const VkMemoryBarrier to_host = {
      .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
      .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
      .dstAccessMask = VK_ACCESS_HOST_READ_BIT,
  };
  change_layout(commands, i, i->layout, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL);
  vkCmdCopyImageToBuffer(commands, i->handle, VK_IMAGE_LAYOUT_TRANSFER_SRC_OPTIMAL,
                         i->staging.handle, 1, &copy);
  vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_HOST_BIT, 0, 1,
                       &to_host, 0, NULL, 0, NULL);
}

void run_commands(const gpu *g, VkCommandBuffer commands) {
  VkFence fence;
  const VkFenceCreateInfo create = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
  const VkSubmitInfo submit = {
      .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
      .commandBufferCount = 1,
      .pCommandBuffers = &commands,
  };
  CHECK(vkEndCommandBuffer(commands));
  CHECK(vkCreateFence(g->device, &create, NULL, &fence));
  CHECK(vkQueueSubmit(g->queue, 1, &submit, fence));
  CHECK(vkWaitForFences(g->device, 1, &fence, VK_TRUE, UINT64_MAX));
  vkDestroyFence(g->device, fence, NULL);
  vkFreeCommandBuffers(g->device, g->command_pool, 1, &commands);
}
