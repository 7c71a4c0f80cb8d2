/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a GPU: one of each block, and all blocks at the same time. */
#include "nccl_ha/ibgda.cuh"

HA_DEV uint64_t kernel_now_ns(void)
{
	uint64_t ns = 0;

#ifdef __CUDA_ARCH__
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
#endif
	return ns;
}

#include "kernel_thread.h"

#include <cstdio>

extern "C" const int kernel_has_backup = HA_IBGDA_BACKUP;

static int multiprocessors;

static int failed(cudaError_t error, const char *what)
{
	if (error == cudaSuccess)
		return 0;
	std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
	return -1;
}

static int has(cudaDeviceAttr attribute, const char *what)
{
	int value = 0;

	if (failed(cudaDeviceGetAttribute(&value, attribute, 0), what))
		return 0;
	if (!value)
		std::fprintf(stderr, "the GPU lacks: %s\n", what);
	return value;
}

const char *kernel_open(void)
{
	static cudaDeviceProp properties;

	/* Who waits for a kernel sleeps: processors are the fabric's. */
	if (failed(cudaSetDeviceFlags(cudaDeviceMapHost | cudaDeviceScheduleBlockingSync), "flags") ||
	    failed(cudaGetDeviceProperties(&properties, 0), "a GPU"))
		return nullptr;
	multiprocessors = properties.multiProcessorCount;
	return has(cudaDevAttrCanUseHostPointerForRegisteredMem, "memory of the host at its address")
		   ? properties.name
		   : nullptr;
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

static __global__ void posts(struct kernel_job *job)
{
	if (threadIdx.x == 0)
		kernel_posts(job, &job->threads[blockIdx.x]);
}

int kernel_start(struct kernel_job *job)
{
	if (job->num_threads > (uint32_t)multiprocessors) {
		std::fprintf(stderr, "%u blocks are more than %d multiprocessors\n", job->num_threads,
			     multiprocessors);
		return -1;
	}
	posts<<<job->num_threads, 32>>>(job);
	return failed(cudaGetLastError(), "launch");
}

int kernel_join(struct kernel_job *)
{
	return failed(cudaDeviceSynchronize(), "kernel");
}
