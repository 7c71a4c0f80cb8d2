/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of ranks that put into one another's memory and signal: what NCCL calls a collective
 * communicator of its GPU-initiated networking. Between each two ranks, and from each to itself,
 * there is a stream in each direction (sender.h, receiver.h), and an ordinary connection in each
 * direction for what they have to say to each other.
 *
 * Nothing here waits for another rank, and nothing goes on by itself: the caller calls
 * ha_gin_group_progress() again and again, also where this rank puts nothing, as signals to it are
 * added by it. Verbs that make, fence or register something may wait for the device.
 *
 * Any thread; a lock is held for the time of a call. The first error is latched, and every later
 * call returns it. What is done with a group: group_peers.h, group_memory.h, group_post.h.
 */
#ifndef HA_GIN_VERBS_GROUP_H
#define HA_GIN_VERBS_GROUP_H

#include "base/result.h"
#include "gin/verbs/sender.h"
#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_gin_group;

#define HA_GIN_RANKS 65536 /* at most */

struct ha_gin_shape {
	struct ha_instance *inst;
	int dev;		    /* NCCL's number of the device */
	uint32_t rank, ranks;	    /* this one; how many there are */
	struct ha_listen *listen;   /* the caller's, to whom the handle of this rank leads */
	const void *const *handles; /* HA_HANDLE_MAX bytes of each rank; copied */
};

/* *out is NULL on failure. Then ha_gin_group_progress() until it is connected. */
ha_result_t ha_gin_group_open(const struct ha_gin_shape *shape,
			      struct ha_gin_group **out) HA_MUST_CHECK;

#define HA_GIN_CONTEXTS 64 /* at most */

/* Room for the requests of so many contexts, HA_GIN_WINDOW each; they share streams. Before the
 * first request: USAGE. */
ha_result_t ha_gin_group_widen(struct ha_gin_group *group, unsigned int contexts) HA_MUST_CHECK;

/* The latched one, or OK. */
ha_result_t ha_gin_group_error(struct ha_gin_group *group);

/* What has happened so far. */
struct ha_gin_counts {
	uint64_t failovers; /* epochs of this rank's senders after the first */
	uint64_t replayed;  /* operations that were written again */
	uint64_t unproved;  /* NICs that died with what is not proved to be in memory */
	uint64_t loopbacks; /* that failed */
	uint64_t written;   /* words of memory that is never reset, which were written after that */
};
void ha_gin_group_counts(struct ha_gin_group *group, struct ha_gin_counts *out);

/* Also with operations under way, of which nothing is known then. NULL is fine. A queue pair that a
 * device does not destroy is left to it, with its memory, which is logged. */
void ha_gin_group_close(struct ha_gin_group *group);

#endif
