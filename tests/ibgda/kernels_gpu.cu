/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU that kernels of kernels.cu run on. */
#include "kernels.h"

#include <cstdio>

static int multiprocessors;

static int failed(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return 0;
	std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
	return -1;
}

static int attribute(cudaDeviceAttr which)
{
	int value = 0;

	return failed(cudaDeviceGetAttribute(&value, which, 0), "an attribute") ? 0 : value;
}

const char *kernel_open(void)
{
	static char said[400];
	static cudaDeviceProp properties;

	/* Who waits for a kernel sleeps: processors are the fabric's. */
	if (failed(cudaSetDeviceFlags(cudaDeviceMapHost | cudaDeviceScheduleBlockingSync), "flags") ||
	    failed(cudaGetDeviceProperties(&properties, 0), "a GPU"))
		return nullptr;
	if (!attribute(cudaDevAttrCanUseHostPointerForRegisteredMem)) {
		std::fprintf(stderr, "the GPU does not have the host's memory at the host's address\n");
		return nullptr;
	}
	multiprocessors = properties.multiProcessorCount;
	std::snprintf(said, sizeof(said), "%s, %d multiprocessors, atomics of the host %d", properties.name, multiprocessors,
		      attribute(cudaDevAttrHostNativeAtomicSupported));
	return said;
}

int kernel_map(void *at, size_t bytes)
{
	return failed(cudaHostRegister(at, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
		      "cudaHostRegister");
}

void kernel_unmap(void *at)
{
	(void)failed(cudaHostUnregister(at), "cudaHostUnregister");
}

void *kernel_memory(size_t bytes)
{
	void *at = nullptr;

	return failed(cudaMalloc(&at, bytes), "cudaMalloc") || failed(cudaMemset(at, 0, bytes), "cudaMemset") ||
		       failed(cudaDeviceSynchronize(), "cudaMemset")
		   ? nullptr
		   : at;
}

int kernel_copy(void *to, const void *from, size_t bytes)
{
	return failed(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

int kernel_start(struct kernel_job *job, enum kernel_kind kind)
{
	static void (*const runs[])(struct kernel_job *, unsigned int) = {kernel_run_0, kernel_run_1, kernel_run_2};
	const unsigned int blocks = job->num_threads + (job->num_watches + KERNEL_LANES - 1) / KERNEL_LANES;

	if (blocks > (unsigned int)multiprocessors) {
		std::fprintf(stderr, "%u blocks are more than %d multiprocessors\n", blocks, multiprocessors);
		return -1;
	}
	runs[kind](job, blocks);
	return failed(cudaGetLastError(), "launch");
}

int kernel_join(struct kernel_job *)
{
	return failed(cudaDeviceSynchronize(), "kernel");
}
