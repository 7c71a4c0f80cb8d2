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
 * call returns it.
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
/* Every stream has had its first epoch. */
bool ha_gin_group_is_connected(struct ha_gin_group *group);

/* Moves everything that can be moved; nothing where another thread is at it. */
ha_result_t ha_gin_group_progress(struct ha_gin_group *group) HA_MUST_CHECK;

/*
 * Memory under the next number, which all ranks register in the same order; sizes may differ.
 * type, offset, fd: as in ha_mr_register(). how: HA_GIN_STRICT, writes become visible in order, and
 * its words of 8 bytes, 0 at first, may be signals, if it is aligned to them; beside it
 * HA_GIN_NEVER_RESET, nobody else ever writes to them. Of use when ha_gin_is_known(): until then,
 * progress.
 */
#define HA_GIN_STRICT	   1u
#define HA_GIN_NEVER_RESET 2u
ha_result_t ha_gin_register(struct ha_gin_group *group, void *data, size_t size, int type,
			    uint64_t offset, int fd, unsigned int how,
			    struct ha_gin_memory **out) HA_MUST_CHECK;
/* Every rank has said where its memory of that number lies. */
bool ha_gin_is_known(struct ha_gin_group *group, const struct ha_gin_memory *memory);
/* Nothing from or to it may be under way at any rank. */
void ha_gin_deregister(struct ha_gin_group *group, struct ha_gin_memory *memory);

/* A put, a signal, or both. */
struct ha_gin_put {
	const struct ha_gin_memory *from, *to; /* not looked at where size is 0 */
	uint64_t from_offset, to_offset, size; /* bytes */
	const struct ha_gin_memory *signals;   /* NULL: no signal */
	uint64_t signal_offset;		       /* bytes, a multiple of 8 */
	uint64_t addend;		       /* not 0 */
};

/*
 * Begins an operation to a rank, this one included. Always a request, or an error: ARGUMENT, and
 * nothing else has happened, for what does not lie in the memory, INTERNAL for more than
 * HA_GIN_WINDOW requests to a rank that were not tested to their end.
 */
ha_result_t ha_gin_put(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_put *put,
		       struct ha_gin_request **out) HA_MUST_CHECK;
/* Out of a rank's memory into this one's. */
struct ha_gin_get {
	const struct ha_gin_memory *from, *to;
	uint64_t from_offset, to_offset, size; /* bytes */
};

/* Begins a read of a rank's memory, this one's included; as ha_gin_put(). It may be read twice. */
ha_result_t ha_gin_get(struct ha_gin_group *group, uint32_t rank, const struct ha_gin_get *get,
		       struct ha_gin_request **out) HA_MUST_CHECK;
/* Begins a flush: when it is done, what reads of that rank have brought before is in memory, also
 * in a GPU's; what a NIC that died has brought is counted, and end to end an error. */
ha_result_t ha_gin_flush(struct ha_gin_group *group, uint32_t rank,
			 struct ha_gin_request **out) HA_MUST_CHECK;

#define HA_GIN_CONTEXTS 64 /* at most */

/* Room for the requests of so many contexts, HA_GIN_WINDOW each; they share streams. Before the
 * first request: USAGE. */
ha_result_t ha_gin_group_widen(struct ha_gin_group *group, unsigned int contexts) HA_MUST_CHECK;

/* *done: its memory is the caller's again, and the request is not to be used any more. */
ha_result_t ha_gin_test(struct ha_gin_group *group, struct ha_gin_request *request,
			bool *done) HA_MUST_CHECK;

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
