/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the host in the place of a GPU's, of one kind (KERNEL_KIND); and of kind 1 what starts
 * them all. */
#include <sched.h>
#define HA_DEV_PAUSE() sched_yield()

#include "nccl_ha/ibgda_memory.h"

#include "kernels.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

HA_DEV uint64_t kernel_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

HA_DEV uint64_t kernel_now_cycles(void)
{
	return kernel_now_ns();
}

#if KERNEL_KIND == 2
static _Thread_local struct kernel_job *job_of_first;

HA_DEV struct kernel_job *kernel_job_of_first(void)
{
	return job_of_first;
}
#endif

#include "kernel_thread.h"

#define NAMED(kind)	  NAMED_AFTER(kind)
#define NAMED_AFTER(kind) kernel_run_##kind

void NAMED(KERNEL_KIND)(struct kernel_job *job, unsigned int number)
{
#if KERNEL_KIND == 2
	job_of_first = number == 0 ? job : NULL;
#endif
	if (number < job->num_threads)
		kernel_posts(job, &job->threads[number]);
	else
		kernel_watches(job, &job->watches[number - job->num_threads]);
}

#if KERNEL_KIND == 1

#define THREADS_MOST 512u

static struct {
	struct kernel_job *job;
	void (*run)(struct kernel_job *job, unsigned int number);
	pthread_t threads[THREADS_MOST];
} all;

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

/* What is kept is not lost: a sanitizer finds it here. */
static struct kept {
	alignas(64) struct kept *next;
	alignas(64) uint8_t bytes[];
} * kept;

void *kernel_memory(size_t bytes)
{
	const size_t whole = sizeof(struct kept) + (bytes + 63) / 64 * 64;
	struct kept *more = aligned_alloc(64, whole);

	if (!more)
		return NULL;
	memset(more, 0, whole);
	more->next = kept;
	kept = more;
	return more->bytes;
}

int kernel_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return 0;
}

static void *runs(void *argument)
{
	all.run(all.job, (unsigned int)(uintptr_t)argument);
	return NULL;
}

int kernel_start(struct kernel_job *job, enum kernel_kind kind)
{
	static void (*const kinds[])(struct kernel_job *,
				     unsigned int) = {kernel_run_0, kernel_run_1, kernel_run_2};
	const uint32_t count = job->num_threads + job->num_watches;

	if (count > THREADS_MOST)
		return -1;
	all.job = job;
	all.run = kinds[kind];
	for (uintptr_t n = 0; n < count; n++)
		if (pthread_create(&all.threads[n], NULL, runs, (void *)n))
			abort(); /* those that run cannot be called back */
	return 0;
}

int kernel_join(struct kernel_job *job)
{
	for (uint32_t n = 0; n < job->num_threads + job->num_watches; n++)
		pthread_join(all.threads[n], NULL);
	return 0;
}

#endif
