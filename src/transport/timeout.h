/* SPDX-License-Identifier: Apache-2.0 */
/* The soft timeout of a connection; see timeout.c. */
#ifndef HA_TRANSPORT_TIMEOUT_H
#define HA_TRANSPORT_TIMEOUT_H

#include "transport/path.h"

#include <stdint.h>

struct ha_comm;

/* How long something has been the same. */
struct ha_stall {
	uint64_t mark; /* 0: nothing is under way */
	uint64_t still_ns;
};

/* What the progress thread saw when it looked last, under the token. */
struct ha_timeout {
	uint64_t due_ns; /* when to look again */
	uint64_t looked_ns;
	uint64_t watch_ns; /* when a receiver may watch its queues again */
	uint32_t generation;
	uint8_t path;
	struct ha_stall flush[HA_MAX_PATHS];
	struct ha_stall count;		   /* e2e: of a read of the peer's count */
	struct ha_stall queue[HA_MAX_QPS]; /* a sender has one for all its messages */
};

/*
 * Looks at what is under way on the active path, when it is time, and fails the path if it stands
 * still. Progress thread, under the token, while requests are outstanding.
 */
void ha_timeout_look(struct ha_comm *comm, uint64_t now_ns);

/* A receiver's write of nothing completed, at this position of the queue. [T] */
void ha_timeout_watched(struct ha_path *path, unsigned qp, uint32_t mark);

#endif
