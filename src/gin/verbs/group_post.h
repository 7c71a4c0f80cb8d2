/* SPDX-License-Identifier: Apache-2.0 */
/* What a group is asked for: puts, signals, reads. Any thread. */
#ifndef HA_GIN_VERBS_GROUP_POST_H
#define HA_GIN_VERBS_GROUP_POST_H

#include "base/hot.h"
#include "gin/verbs/group.h"

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

/* *done: its memory is the caller's again, and the request is not to be used any more. */
HA_CALLED_DIRECTLY ha_result_t ha_gin_test(struct ha_gin_group *group,
					   struct ha_gin_request *request, int *done) HA_MUST_CHECK;

#endif
