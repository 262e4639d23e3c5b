/* From a dispatch record to Vulkan: pipeline, descriptors, push constants, grid. */
#ifndef KERNEL_H
#define KERNEL_H

#include "dispatch.h"
#include "gpu.h"
#include "registry.h"

/* What a slot of a record is given. */
typedef struct operand {
  shaderloom_slot slot;
  image image;
} operand;

/*
 * Upload all operands, run the record and read the output back into its texels. Prints which
 * operand each binding got; fails if the record asks for a slot that is not among the operands.
 */
void run_record(const gpu *g, const shaderloom_dispatch *record, const operand *operands,
                size_t count);

#endif
