/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 for tests on machines without a GPU: the few entries of the driver that simverbs
 * takes, with "device memory" in which nothing but a copy by the driver can read or write. It is
 * mapped twice: without any access at the address that the program has, so that a processor that
 * touches it there gets SIGSEGV at once, and readable and writable where only this file knows.
 *
 * It is as strict as the driver may be: a copy is done when its stream is synchronised and not
 * before, needs a context that is current in the calling thread, and is refused outside of one
 * allocation. Any thread.
 */
#ifndef TESTS_FAKECUDA_H
#define TESTS_FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the program and the driver call it. */
typedef uint64_t CUdeviceptr;
enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY };
enum { CUDA_ERROR_DEVICE_UNAVAILABLE = 46, CUDA_ERROR_INVALID_CONTEXT = 201 };
enum { CUDA_ERROR_ILLEGAL_ADDRESS = 700, CUDA_ERROR_LAUNCH_FAILED = 719 };

int cuMemAlloc_v2(CUdeviceptr *ptr, size_t size);
int cuMemFree_v2(CUdeviceptr ptr);
/* A descriptor that stands for the memory and cannot be mapped, as that of a GPU of its own. */
int cuMemGetHandleForAddressRange(void *fd, CUdeviceptr ptr, size_t size, int type,
				  unsigned long long flags);

/* ---- what a test may know ---- */

/* Allocates; NULL: it could not. And frees. The address is of no use to a processor. */
void *fakecuda_alloc(size_t size);
/* One that begins so far inside of its first page, of which nobody has the rest. */
void *fakecuda_alloc_inside(size_t size, size_t offset);
void fakecuda_free(void *ptr);
/* What a kernel of the GPU would see there. */
uint8_t *fakecuda_look(const void *ptr);

/* Calls of an entry ("cuMemcpyHtoDAsync_v2") from now on: the first `skip` work, and the `count`
 * after them return this error. One rule for each entry; the last one holds. */
void fakecuda_fail(const char *entry, unsigned skip, unsigned count, int error);
/* Each call takes so long. */
void fakecuda_slow(const char *entry, uint64_t ns);
/* How often it was called since the last reset, and how often it was made to fail. */
unsigned fakecuda_calls(const char *entry);
unsigned fakecuda_failed(const char *entry);
/* Forgets rules and counts; memory, contexts and streams stay. */
void fakecuda_reset(void);
/* Primary contexts that are retained, and streams that exist: what a leak test asks. */
unsigned fakecuda_contexts(void);
unsigned fakecuda_streams(void);

#endif
