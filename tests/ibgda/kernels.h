/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bench_streams.c asks of threads that post: kernels.cu has a GPU's, kernels_host.c the host's
 * in their place. All words are the program's, in memory that both reach at the same address.
 */
#ifndef TESTS_IBGDA_KERNELS_H
#define TESTS_IBGDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define KERNEL_STREAMS 64u
#define KERNEL_SLOTS   64u /* of each thread: put n goes to slot n mod so many */

struct ha_ibgda_stream;

/* A thread, which is one of several on its stream. */
struct kernel_thread {
	uint64_t from, to; /* its slots, here and at the peer */
	uint64_t posted;   /* so far */
	uint64_t ns;	   /* from its first post to its last quiet */
	uint32_t id;	   /* of its signal */
	uint32_t over;	   /* the stream was, for this thread */
	struct ha_ibgda_stream *stream;
};

struct kernel_job {
	struct kernel_thread *threads;
	uint32_t num_threads;
	uint32_t own_region, peer_region;
	uint32_t bytes;	  /* of a put */
	uint32_t window;  /* puts between two waits, KERNEL_SLOTS at most */
	uint32_t signals; /* each put has one behind it */
	uint64_t count;	  /* puts of each thread; 0: until it is stopped */
	uint64_t stops;	  /* the host's */
};

#ifdef __cplusplus
extern "C" {
#endif

extern const int kernel_has_backup; /* HA_IBGDA_BACKUP */

/* Where threads run, as a person says it; NULL: there is nowhere, and why is on stderr. */
const char *kernel_open(void);
/* Threads will touch this, at the same address. Other than 0: they cannot. */
int kernel_map(void *at, size_t bytes);
void kernel_unmap(void *at);
/* All at the same time. Other than 0: they cannot. */
int kernel_start(struct kernel_job *job);
/* Until all have ended: other than 0 where one did not end well. */
int kernel_join(struct kernel_job *job);

#ifdef __cplusplus
}
#endif

#endif
