/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of GPUs, which no processor can read: a device of simverbs copies into and out of it by
 * the CUDA driver of the process that registered it.
 *
 * The driver is looked for when memory is registered, and only where the process has loaded it: who
 * has no libcuda.so.1 has no GPU memory either. All copies of a process to one GPU go over one
 * stream, one after the other, and each has been done when the call returns. Any thread.
 */
#ifndef SV_GPU_H
#define SV_GPU_H

#include <stddef.h>

/* One GPU as this process uses it. */
struct sv_gpu;

/*
 * The GPU that has all pages of [addr, addr + length), whose context and stream stay until it is
 * released. NULL: it is no memory of a GPU's, or the driver cannot be had: what is missing is said
 * on stderr, each thing once.
 */
struct sv_gpu *sv_gpu_claim(const void *addr, size_t length);
void sv_gpu_release(struct sv_gpu *gpu);

/* Copies between host memory and the GPU's. 0, or EIO: the driver refused, as it does when the
 * memory was freed. */
int sv_gpu_read(struct sv_gpu *gpu, void *dst, const void *gpu_src, size_t length);
int sv_gpu_write(struct sv_gpu *gpu, void *gpu_dst, const void *src, size_t length);

#endif
