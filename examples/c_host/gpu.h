/*
 * The Vulkan that every compute host has: a device, buffers, images and one submission at a time.
 * Nothing here knows of shaderloom.
 */
#ifndef GPU_H
#define GPU_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <vulkan/vulkan.h>

/* Say why the program cannot run, and end it with exit code 2. */
#define FAIL(...) (fprintf(stderr, "c_host: " __VA_ARGS__), fputc('\n', stderr), exit(2))

/* Fail with the call's name unless it succeeds, e.g. "c_host: vkCreateDevice: VkResult -4". */
#define CHECK(call) gpu_check((call), #call)
void gpu_check(VkResult result, const char *call);

typedef struct gpu {
  VkInstance instance;
  VkPhysicalDevice physical;
  VkPhysicalDeviceProperties properties;
  VkDevice device;
  uint32_t queue_family;
  VkQueue queue;
  VkCommandPool command_pool;
  VkDebugUtilsMessengerEXT messenger; /* VK_NULL_HANDLE without validation */
  uint32_t messages;                  /* what validation has said so far */
} gpu;

/* A buffer that the host can write and read. */
typedef struct buffer {
  VkBuffer handle;
  VkDeviceMemory memory;
  void *data; /* zeros at first */
} buffer;

/* An rgba32f image, and the staging buffer that it is filled from and read back to. */
typedef struct image {
  VkImage handle;
  VkDeviceMemory memory;
  VkImageView view;
  VkExtent3D extent;    /* texels */
  VkImageLayout layout; /* in which shaders use it */
  buffer staging;
  float *texels; /* the staging buffer's data: four floats a texel, x fastest, then y, then z */
} image;

/* Open a GPU if there is one, else a software device. `g` must stay in place until it is closed. */
void gpu_open(gpu *g, bool validate);
void gpu_close(gpu *g);

buffer make_buffer(const gpu *g, VkDeviceSize size, VkBufferUsageFlags usage);
void free_buffer(const gpu *g, buffer *b);

image make_image(const gpu *g, VkImageType type, VkExtent3D extent, bool written);
void free_image(const gpu *g, image *i);

/* Begin to record; upload before the dispatch, download after it; then run it all and wait. */
VkCommandBuffer begin_commands(const gpu *g);
void record_upload(VkCommandBuffer commands, const image *i);
void record_download(VkCommandBuffer commands, const image *i);
void run_commands(const gpu *g, VkCommandBuffer commands);

#endif
