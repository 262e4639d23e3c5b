/*
 * A C host of shaderloom: one pointwise convolution, fused with its epilogue
 *
 *     out = relu(conv(in, weight) + bias + alpha * residual * scale)
 *
 * and then again without residual and scale, on whatever Vulkan device there is, compared with a
 * scalar loop. Environment: VALIDATE=1 turns the validation layer on. Exit codes: 0 fine, 1 a
 * wrong result or a message from validation, 2 could not run.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "dispatch.h"
#include "gpu.h"
#include "kernel.h"

/* Not multiples of four: the last texel has padding lanes, the last invocation a partial tile. */
enum { IN_C = 10, OUT_C = 14, HEIGHT = 9, WIDTH = 13, PIXELS = HEIGHT * WIDTH };

#define TEXELS(channels) (((uint32_t)(channels) + 3) / 4)

/* The operands, row by row as C has them: in[c][pixel], weight[n][c], residual[n][pixel]. */
typedef struct tensors {
  float in[IN_C][PIXELS];
  float weight[OUT_C][IN_C];
  float bias[OUT_C];
  float residual[OUT_C][PIXELS];
  float scale[OUT_C];
} tensors;

/* The operands as shaders see them. */
enum { OUT, IN, WEIGHT, BIAS, RESIDUAL, SCALE, OPERANDS };

/* Numbers baked into one generated file are only right beside those of the same build. */
static void check_layouts(void) {
  const char *const registry = shaderloom_layout_hash();
  const char *const dispatcher = shaderloom_dispatch_layout_hash();
  const char *const modules = shaderloom_module_layout_hash();
  if (strcmp(registry, SHADERLOOM_LAYOUT_HASH) != 0 || strcmp(registry, dispatcher) != 0 ||
      strcmp(registry, modules) != 0) {
    FAIL("generated files of different builds: layout hash %s in registry.h, %s in registry.c, "
         "%s in dispatch.c, %s in spirv.c; run `shaderloom build` and compile anew",
         SHADERLOOM_LAYOUT_HASH, registry, dispatcher, modules);
  }
}

static shaderloom_device_class class_of(const VkPhysicalDeviceProperties *properties) {
  if (properties->deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) {
    return SHADERLOOM_DEVICE_CLASS_SOFTWARE;
  }
  switch (properties->vendorID) {
    case 0x5143:
      return SHADERLOOM_DEVICE_CLASS_ADRENO;
    case 0x13B5:
      return SHADERLOOM_DEVICE_CLASS_MALI;
    case 0x10DE:
      return SHADERLOOM_DEVICE_CLASS_NVIDIA;
    case 0x1002:
    case 0x1022:
      return SHADERLOOM_DEVICE_CLASS_AMD;
    case 0x8086:
      return SHADERLOOM_DEVICE_CLASS_INTEL;
    default:
      return SHADERLOOM_DEVICE_CLASS_OTHER;
  }
}

static shaderloom_device describe(const VkPhysicalDeviceProperties *properties) {
  const VkPhysicalDeviceLimits *const limits = &properties->limits;
  const shaderloom_device device = {
      .device_class = class_of(properties),
      .max_invocations = limits->maxComputeWorkGroupInvocations,
      .max_local_x = limits->maxComputeWorkGroupSize[0],
      .max_local_y = limits->maxComputeWorkGroupSize[1],
      .max_local_z = limits->maxComputeWorkGroupSize[2],
      .max_grid_x = limits->maxComputeWorkGroupCount[0],
      .max_grid_y = limits->maxComputeWorkGroupCount[1],
      .max_grid_z = limits->maxComputeWorkGroupCount[2],
      .max_texture_2d = limits->maxImageDimension2D,
      .max_texture_3d = limits->maxImageDimension3D,
  };
  return device;
}

/* Fill with numbers in [-1, 1), the same on every run. */
static void randomize(float *values, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u; /* a linear congruential generator */
    values[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

/* Channels-packed: texel (x, y, c / 4), lane c % 4. Staging starts as zeros, for the padding. */
static void pack_activations(float *texels, const float (*values)[PIXELS], int channels) {
  for (int c = 0; c < channels; ++c) {
    for (int pixel = 0; pixel < PIXELS; ++pixel) {
      texels[4 * (c / 4 * PIXELS + pixel) + c % 4] = values[c][pixel];
    }
  }
}

/* Pointwise weight: texel (4 * (n / 4) + c % 4, c / 4), lane n % 4. */
static void pack_weight(image *packed, const float (*weight)[IN_C]) {
  for (int n = 0; n < OUT_C; ++n) {
    for (int c = 0; c < IN_C; ++c) {
      const int x = 4 * (n / 4) + c % 4;
      packed->texels[4 * (c / 4 * (int)packed->extent.width + x) + n % 4] = weight[n][c];
    }
  }
}

static void make_operands(const gpu *g, const tensors *t, operand *made) {
  const VkImageType two = VK_IMAGE_TYPE_2D;
  const VkImageType three = VK_IMAGE_TYPE_3D;
  const VkExtent3D in = {WIDTH, HEIGHT, TEXELS(IN_C)};
  const VkExtent3D out = {WIDTH, HEIGHT, TEXELS(OUT_C)};
  const VkExtent3D weight = {4 * TEXELS(OUT_C), TEXELS(IN_C), 1};
  const VkExtent3D channels = {TEXELS(OUT_C), 1, 1};
  made[OUT] = (operand){SHADERLOOM_SLOT_OUT, make_image(g, three, out, true)};
  made[IN] = (operand){SHADERLOOM_SLOT_IN, make_image(g, three, in, false)};
  made[WEIGHT] = (operand){SHADERLOOM_SLOT_WEIGHT, make_image(g, two, weight, false)};
  made[BIAS] = (operand){SHADERLOOM_SLOT_BIAS, make_image(g, two, channels, false)};
  made[RESIDUAL] = (operand){SHADERLOOM_SLOT_RESIDUAL, make_image(g, three, out, false)};
  made[SCALE] = (operand){SHADERLOOM_SLOT_SCALE, make_image(g, two, channels, false)};
  pack_activations(made[IN].image.texels, t->in, IN_C);
  pack_weight(&made[WEIGHT].image, t->weight);
  memcpy(made[BIAS].image.texels, t->bias, sizeof(t->bias)); /* texel (n / 4, 0), lane n % 4 */
  pack_activations(made[RESIDUAL].image.texels, t->residual, OUT_C);
  memcpy(made[SCALE].image.texels, t->scale, sizeof(t->scale));
}

/* Compare with a scalar loop in double; true if every texel is within the rounding error that
 * floats may have: eps * |out| + 2 * sqrt(K) * eps * (sum of |terms|), K = IN_C products. */
static bool compare(const shaderloom_conv2d_problem *p, const tensors *t, const float *texels) {
  double worst = 0.0;
  bool good = true;
  for (int n = 0; n < 4 * (int)TEXELS(OUT_C); ++n) {
    for (int pixel = 0; pixel < PIXELS; ++pixel) {
      double y = 0.0;
      double terms = 0.0;
      if (n < OUT_C) { /* else a padding lane, which must be zero */
        y = t->bias[n];
        terms = fabs(y);
        for (int c = 0; c < IN_C; ++c) {
          y += (double)t->weight[n][c] * t->in[c][pixel];
          terms += fabs((double)t->weight[n][c] * t->in[c][pixel]);
        }
        if (p->has_residual) {
          const double scale = p->has_scale ? t->scale[n] : 1.0;
          const double added = p->residual_alpha * t->residual[n][pixel] * scale;
          y += added;
          terms += fabs(added);
        }
        y = y > 0.0 ? y : 0.0;
      }
      const double error = fabs(texels[4 * (n / 4 * PIXELS + pixel) + n % 4] - y);
      const double bound = FLT_EPSILON * (y + 2.0 * sqrt(IN_C) * terms);
      good = good && error <= bound; /* false for NaN too */
      worst = error <= worst ? worst : error;
    }
  }
  printf("  greatest error %.3g: %s\n", worst, good ? "within the bound" : "TOO LARGE");
  return good;
}

/* Ask the dispatcher for the record, run it, compare. */
static bool convolve(const gpu *g, const shaderloom_conv2d_problem *problem, const tensors *t,
                     const operand *operands) {
  const shaderloom_device device = describe(&g->properties);
  float *const out = operands[OUT].image.texels;
  shaderloom_dispatch record;
  shaderloom_error error;
  const uint32_t count = shaderloom_pick_conv2d(problem, &device, &record, 1, &error);
  if (count == 0) {
    FAIL("%s", error.message);
  }
  if (count > 1) {
    FAIL("%u dispatches, where this host runs one", (unsigned)count);
  }
  const uint32_t *const grid = record.grid;
  const uint32_t *const local = record.local_size;
  printf("relu(conv + bias%s): %s, grid %u x %u x %u of %u x %u x %u\n",
         problem->has_residual ? " + alpha * residual * scale" : "",
         shaderloom_get_shader(record.shader)->name, (unsigned)grid[0], (unsigned)grid[1],
         (unsigned)grid[2], (unsigned)local[0], (unsigned)local[1], (unsigned)local[2]);
  for (int n = 0; n < 4 * (int)TEXELS(OUT_C) * PIXELS; ++n) {
    out[n] = NAN; /* what the shader leaves out must not pass for a result */
  }
  run_record(g, &record, operands, OPERANDS);
  return compare(problem, t, out);
}

int main(void) {
  const char *const validate = getenv("VALIDATE");
  shaderloom_conv2d_problem problem;
  operand operands[OPERANDS];
  tensors t;
  gpu g;
  check_layouts();
  gpu_open(&g, validate != NULL && strcmp(validate, "1") == 0);
  printf("%s, layout hash %s\n", g.properties.deviceName, shaderloom_layout_hash());

  randomize(&t.in[0][0], IN_C * PIXELS, 1);
  randomize(&t.weight[0][0], OUT_C * IN_C, 2);
  randomize(t.bias, OUT_C, 3);
  randomize(&t.residual[0][0], OUT_C * PIXELS, 4);
  randomize(t.scale, OUT_C, 5);
  make_operands(&g, &t, operands);

  shaderloom_default_conv2d(&problem);
  problem.route = SHADERLOOM_CONV2D_ROUTE_POINTWISE; /* its operands are images on every device */
  problem.in_n = 1;
  problem.in_c = IN_C;
  problem.in_h = HEIGHT;
  problem.in_w = WIDTH;
  problem.out_c = OUT_C;
  problem.kernel_h = 1;
  problem.kernel_w = 1;
  problem.has_activation = true;
  problem.activation_op = SHADERLOOM_ACTIVATION_OP_RELU;
  problem.has_residual = true;
  problem.has_scale = true;
  problem.residual_op = SHADERLOOM_RESIDUAL_OP_ADD;
  problem.residual_alpha = 0.5;
  bool good = convolve(&g, &problem, &t, operands);

  problem.has_residual = false; /* the record then binds something else in their slots */
  problem.has_scale = false;
  good = convolve(&g, &problem, &t, operands) && good;

  for (int n = 0; n < OPERANDS; ++n) {
    free_image(&g, &operands[n].image);
  }
  gpu_close(&g);
  if (g.messages > 0) {
    printf("%u messages from validation\n", (unsigned)g.messages);
  }
  return good && g.messages == 0 ? 0 : 1;
}
