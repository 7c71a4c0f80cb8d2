/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiver's end of a stream: counts what comes over the queue pair of the present epoch, has
 * its signals added (adder.h), and tells the sender. It numbers the epochs and chooses their paths:
 * each goes where the ordinary connection from the sender goes at that time, which is kept alive by
 * what there is for that, and when that moves, the stream follows.
 *
 *                a path          ANSWER
 *        FENCED ---------> OFFERED -----> RUNS
 *           ^                 |             |
 *           |  drained        v             v  a fault, SUSPECT, or the connection is elsewhere
 *           '------------- FENCING <--------'
 *
 * One thread.
 */
#ifndef HA_GIN_VERBS_RECEIVER_H
#define HA_GIN_VERBS_RECEIVER_H

#include "gin/inbox.h"
#include "gin/record.h"
#include "gin/verbs/adder.h"
#include "gin/verbs/channel.h"

enum ha_gin_receiver_state {
	HA_GIN_RECEIVER_FENCED, /* also before the first epoch */
	HA_GIN_RECEIVER_OFFERED,
	HA_GIN_RECEIVER_RUNS,
	HA_GIN_RECEIVER_FENCING,
};

struct ha_gin_receiver {
	enum ha_gin_receiver_state state;
	struct ha_gin_inbox inbox;
	bool has_inbox; /* since its first offer */
	struct ha_gin_qp qp;
	struct ha_gin_path_name path; /* of the queue pair */
	uint32_t epoch;		      /* likewise; the last one that was offered */
	uint32_t rank;		      /* from which */
	struct ha_comm *comm;	      /* from the sender: where it goes this goes */
	struct ha_gin_out *out;
	struct ha_gin_adder *adder;
	const struct ha_config *config;
	/* HA_GIN_WINDOW records, which the sender writes. */
	volatile struct ha_gin_record *ring;
	struct ha_mr *ring_mr;
	uint64_t told_at; /* where the sender is told */
	uint32_t told_rkey;
	bool is_telling;
	uint64_t trouble_ns; /* since when it does not run; 0: it does */
	struct ha_gin_standstill adding;
	uint64_t again_ns; /* nothing is offered before */
	/* Tells the sender where all memory lies, with keys of that epoch and NIC. */
	ha_result_t (*say_regions)(void *arg, struct ha_gin_receiver *receiver);
	/* Memory that signals may go to, by number. */
	const struct ha_gin_region *(*regions)(void *arg, size_t *count);
	void *arg;
};

/* Its other members are set: rank, out, adder, config, ring, ring_mr, and the last three. */
void ha_gin_receiver_init(struct ha_gin_receiver *receiver, struct ha_comm *comm);

/* What its sender says: ANSWER and SUSPECT. */
ha_result_t ha_gin_receiver_hears(struct ha_gin_receiver *receiver,
				  const struct ha_gin_message *message) HA_MUST_CHECK;

/* Takes what has come, has signals added, and tells the sender. An error is a peer that does what
 * cannot be, or signals that cannot be added any more, and was said. */
ha_result_t ha_gin_receiver_works(struct ha_gin_receiver *receiver) HA_MUST_CHECK;
/* An error is a signal that came long ago and cannot be added, as its NICs do not, and was said. To
 * be asked from time to time, also when the sender is gone. */
ha_result_t ha_gin_receiver_is_in_time(struct ha_gin_receiver *receiver) HA_MUST_CHECK;
/* What takes time: fences, and other epochs. */
ha_result_t ha_gin_receiver_mends(struct ha_gin_receiver *receiver) HA_MUST_CHECK;

/* Whether keys of the present queue pair's NIC are of use to the sender. */
static inline bool ha_gin_receiver_has_end(const struct ha_gin_receiver *receiver)
{
	return receiver->state == HA_GIN_RECEIVER_OFFERED ||
	       receiver->state == HA_GIN_RECEIVER_RUNS;
}

/* False: the device does not let go: to be closed again. */
bool ha_gin_receiver_close(struct ha_gin_receiver *receiver);

#endif
