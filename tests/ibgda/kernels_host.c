/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the host in the place of a GPU's. */
#include <sched.h>
#define HA_DEV_PAUSE() sched_yield()

#include "nccl_ha/ibgda.cuh"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

HA_DEV uint64_t kernel_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#include "kernel_thread.h"

#define THREADS_MOST 256u

const int kernel_has_backup = HA_IBGDA_BACKUP;

static pthread_t threads[THREADS_MOST];
static struct kernel_job *job_of_all;

const char *kernel_open(void)
{
	return "threads of the host";
}

int kernel_map(void *at, size_t bytes)
{
	return at && bytes ? 0 : -1;
}

void kernel_unmap(void *at)
{
	(void)at;
}

static void *posts(void *argument)
{
	kernel_posts(job_of_all, argument);
	return NULL;
}

int kernel_start(struct kernel_job *job)
{
	if (job->num_threads > THREADS_MOST)
		return -1;
	job_of_all = job;
	for (uint32_t n = 0; n < job->num_threads; n++)
		if (pthread_create(&threads[n], NULL, posts, &job->threads[n]))
			abort(); /* those that run cannot be called back */
	return 0;
}

int kernel_join(struct kernel_job *job)
{
	for (uint32_t n = 0; n < job->num_threads; n++)
		pthread_join(threads[n], NULL);
	return 0;
}
