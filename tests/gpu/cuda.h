/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver for programs that are built without it: whatever libcuda.so.1 the dynamic linker
 * finds, a GPU's or the stand-in of tests/simverbs/fakecuda. One thread.
 */
#ifndef TESTS_GPU_CUDA_H
#define TESTS_GPU_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Loads the driver and makes the first GPU's primary context the thread's. NULL, or what is
 * missing. Not before a fork: contexts do not survive it. */
const char *cuda_open(void);
/* The GPU's name. */
const char *cuda_name(void);

/* Ends the process with a line on stderr when the driver refuses. */
void *cuda_alloc(size_t size);
void cuda_free(void *at);
void cuda_write(void *at, const void *bytes, size_t length);
void cuda_read(void *bytes, const void *at, size_t length);
/* A descriptor of a dmabuf of whole pages; -1: this GPU or driver has none. */
int cuda_dmabuf(void *at, size_t size);

#endif
