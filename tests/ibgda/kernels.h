/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rig (rig.h) asks of threads that post: kernels_gpu.cu has a GPU's, kernels_host.c the
 * host's in their place. All words are the program's, in memory that both reach at the same
 * address.
 */
#ifndef TESTS_IBGDA_KERNELS_H
#define TESTS_IBGDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define KERNEL_STREAMS 64u
#define KERNEL_SLOTS   64u /* of each thread: put n goes to slot n mod so many */
#define KERNEL_SAMPLES 2u
#define KERNEL_LANES   32u /* of a block: so many watch, or one posts */

struct ha_ibgda_stream;

/* What threads are made of: ibgda.cuh without a backup, with one, and so that the first thread can
 * be held at a step. */
enum kernel_kind { KERNEL_WITHOUT, KERNEL_WITH, KERNEL_HELD };

/* A thread, which is one of several on its stream. */
struct kernel_thread {
	uint64_t from, to; /* its slots, here and at the peer */
	uint64_t posted;   /* so far, of all kernels; its next put is the one behind that */
	uint64_t ns;	   /* from its first post to its last quiet, */
	uint64_t cycles;   /* and in what samples count */
	uint64_t ended;	   /* it has left */
	uint32_t id;	   /* of its signal */
	uint32_t over;	   /* the stream was, for this thread */
	/* Cycles of each put, and of that and its wait (kernel_memory()); NULL: not asked for. */
	uint32_t (*samples)[KERNEL_SAMPLES];
	struct ha_ibgda_stream *stream;
};

/* A thread that spins at a signal and looks whether the put behind it is there. */
struct kernel_watch {
	const uint64_t *signal;
	uint64_t to;	/* the slots */
	uint64_t seen;	/* its value when it was looked at last */
	uint64_t looks; /* new values */
	uint64_t wrong;
};

struct kernel_job {
	struct kernel_thread *threads;
	struct kernel_watch *watches;
	uint32_t num_threads, num_watches;
	uint32_t own_region, peer_region;
	uint32_t bytes;	  /* of a put */
	uint32_t window;  /* puts between two waits, KERNEL_SLOTS at most */
	uint32_t signals; /* each put has one behind it */
	uint64_t count;	  /* puts of each thread; 0: until it is stopped */
	uint64_t stops;	  /* the host's: no more puts, */
	uint64_t leaves;  /* and nobody watches any more */
	uint64_t hold; /* where the first thread is to be held (kernel_step_named()); 0: nowhere */
	uint64_t held; /* where it is */
};

/* A step of ibgda.cuh as a number: its name's first letters and length. */
static inline uint64_t kernel_step_named(const char *name)
{
	uint64_t length = 0;

	while (name[length])
		length++;
	return (uint64_t)(unsigned char)name[0] | (uint64_t)(unsigned char)name[1] << 8 |
	       (length + 1) << 16;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Where threads run, as a person says it; NULL: there is nowhere, and why is on stderr. */
const char *kernel_open(void);
/* Threads will touch this, at the same address. Other than 0: they cannot. */
int kernel_map(void *at, size_t bytes);
void kernel_unmap(void *at);
/* Memory of zeroes that threads have for themselves: a GPU's own, which the host sees by
 * kernel_copy() alone. Kept until the process ends. NULL: there is none. */
void *kernel_memory(size_t bytes);
int kernel_copy(void *to, const void *from, size_t bytes);
/* All at the same time. Other than 0: they cannot. */
int kernel_start(struct kernel_job *job, enum kernel_kind kind);
/* Until all have ended: other than 0 where one did not end well. */
int kernel_join(struct kernel_job *job);

/* One thread of the host, or all of a GPU, of each kind: what kernels.cu and kernels_host.c are
 * compiled to three times. */
void kernel_run_0(struct kernel_job *job, unsigned int number);
void kernel_run_1(struct kernel_job *job, unsigned int number);
void kernel_run_2(struct kernel_job *job, unsigned int number);

#ifdef __cplusplus
}
#endif

#endif
