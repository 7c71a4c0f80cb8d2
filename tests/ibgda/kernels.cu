/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a GPU of one kind (KERNEL_KIND): one of each block posts; further blocks watch, with all of theirs. */
#include "nccl_ha/ibgda_memory.h"

#include "kernels.h"

HA_DEV uint64_t kernel_now_ns(void)
{
	uint64_t ns = 0;

#ifdef __CUDA_ARCH__
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
#endif
	return ns;
}

/* What it says is finer than that of the timer, which steps by a microsecond on some. */
HA_DEV uint64_t kernel_now_cycles(void)
{
#ifdef __CUDA_ARCH__
	return (uint64_t)clock64();
#else
	return 0;
#endif
}

#if KERNEL_KIND == 2
static __device__ struct kernel_job *job_of_all;

HA_DEV struct kernel_job *kernel_job_of_first(void)
{
#ifdef __CUDA_ARCH__
	return blockIdx.x == 0 && threadIdx.x == 0 ? job_of_all : nullptr;
#else
	return nullptr;
#endif
}
#endif

#include "kernel_thread.h"

static __global__ void run(struct kernel_job *job)
{
	if (blockIdx.x >= job->num_threads) {
		const unsigned int number = (blockIdx.x - job->num_threads) * KERNEL_LANES + threadIdx.x;

		if (number < job->num_watches)
			kernel_watches(job, &job->watches[number]);
		return;
	}
	if (threadIdx.x)
		return;
#if KERNEL_KIND == 2
	if (blockIdx.x == 0)
		job_of_all = job;
#endif
	kernel_posts(job, &job->threads[blockIdx.x]);
}

#define NAMED(kind)	    NAMED_AFTER(kind)
#define NAMED_AFTER(kind) kernel_run_##kind

void NAMED(KERNEL_KIND)(struct kernel_job *job, unsigned int blocks)
{
	run<<<blocks, KERNEL_LANES>>>(job);
}
