/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application of a connection: what NCCL's proxy does at either end, and a judge at its side.
 *
 * The receiver posts groups of receives into a window of slots that it uses again and again; the
 * sender posts their sends in any order of the group. Every byte of a message is a function of
 * connection, group and position in the group, so that a message in the wrong buffer, of another
 * time, or twice is a wrong one. Around every buffer and in every buffer that waits for nothing
 * lie canaries: a write that comes late is seen there. The sender overwrites a buffer the moment
 * test has called its send done: bytes that are still needed arrive wrong.
 */
#ifndef HA_TESTS_FAULT_TRAFFIC_H
#define HA_TESTS_FAULT_TRAFFIC_H

#include "transport/transport.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRAFFIC_WINDOW	   32 /* what NCCL may have outstanding */
#define TRAFFIC_GROUP	   8
#define TRAFFIC_MAX_SIZES  8
#define TRAFFIC_MAX_GROUPS 8192

/* What a connection carries. */
struct plan {
	unsigned groups; /* receives */
	unsigned window; /* receives posted at a time */
	unsigned group;	 /* buffers of a receive; 0: one to TRAFFIC_GROUP, differing */
	bool same_tags;	 /* of every third group: matched by order alone */
	unsigned nsizes;
	uint32_t sizes[TRAFFIC_MAX_SIZES];
};

enum traffic_state { TRAFFIC_RUNNING, TRAFFIC_DONE, TRAFFIC_FAILED };

struct traffic_op {
	struct ha_request *req;
	unsigned group;
};

/* One end of a connection. The memory is the traffic's own and stays over runs. */
struct traffic {
	const struct plan *plan;
	uint64_t key; /* of the bytes: differs from connection to connection */
	struct ha_comm *comm;
	bool is_send;
	enum traffic_state state;
	ha_result_t error; /* what the first call that failed returned */

	uint8_t *memory;
	size_t memory_size;
	size_t stride; /* of a buffer with its guards */
	size_t capacity;
	struct ha_mr *mr;

	unsigned next;		/* group to post next */
	unsigned next_in_group; /* sends: how many of it are posted */
	unsigned reported;	/* receives, or sends, that test has called done */
	unsigned wanted;	/* of them in all */
	unsigned allowed;	/* groups it may post by now: all, unless the test says less */
	bool seen[TRAFFIC_MAX_GROUPS]; /* receives reported, by group */
	struct traffic_op ops[TRAFFIC_WINDOW][TRAFFIC_GROUP];

	struct traffic *peer; /* the other end, to look into its buffers */
	bool strict;	      /* a send that is done must be in the receiver's buffer: no device has
				 acknowledged what it does not place */
	char violation[256];  /* empty: none */
};

void traffic_init(struct traffic *traffic, const struct plan *plan, bool is_send, uint64_t key);
void traffic_free(struct traffic *traffic);

/* The connection is up: registers the memory. Not HA_OK: the traffic has failed. */
ha_result_t traffic_start(struct traffic *traffic, struct ha_comm *comm);
/* Before the connection is closed: deregisters. */
void traffic_stop(struct traffic *traffic);

/* One turn of the application: posts what it can, tests everything. True if something moved. */
bool traffic_turn(struct traffic *traffic);

/* So many groups more than the plan says, also when it was done. */
void traffic_more(struct traffic *traffic, unsigned groups);

/* Everything that it was allowed to post is reported. */
bool traffic_idle(const struct traffic *traffic);

/* After an error: every call must say the same. */
void traffic_check_latched(struct traffic *traffic);
/* Every buffer that waits for nothing, and everything between buffers, is as it was left. */
void traffic_check_memory(struct traffic *traffic);

#endif
