/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sender's end of a stream: operations are written over the queue pair of the present epoch, as
 * the journal says (gin/journal.h), and written again over the next one's.
 *
 *                 OFFER            READY
 *        FENCED ---------> ANSWERED -----> RUNS
 *           ^                 |             |
 *           |  drained        v             v  a fault, or an OFFER
 *           '------------- FENCING <--------'
 *
 * The receiver chooses the path: that of the ordinary connection between the two, by its name. One
 * thread.
 */
#ifndef HA_GIN_VERBS_SENDER_H
#define HA_GIN_VERBS_SENDER_H

#include "gin/journal.h"
#include "gin/record.h"
#include "gin/verbs/channel.h"
#include "gin/verbs/region.h"

enum ha_gin_sender_state {
	HA_GIN_SENDER_FENCED, /* also before the first epoch */
	HA_GIN_SENDER_ANSWERED,
	HA_GIN_SENDER_RUNS,
	HA_GIN_SENDER_FENCING,
};

/* A put, a signal, or both. */
struct ha_gin_put {
	const struct ha_gin_memory *from, *to; /* not looked at where size is 0 */
	uint64_t from_offset, to_offset, size; /* bytes */
	const struct ha_gin_memory *signals;   /* NULL: no signal */
	uint64_t signal_offset;		       /* bytes, a multiple of 8 */
	uint64_t addend;		       /* not 0 */
};

/* What a request of the application is. */
struct ha_gin_request {
	struct ha_gin_sender *sender;
	uint64_t number;
	bool is_out; /* not tested to its end yet */
};

struct ha_gin_sender {
	enum ha_gin_sender_state state;
	struct ha_gin_journal journal;
	struct ha_gin_qp qp;
	uint32_t epoch; /* of the queue pair */
	uint32_t rank;	/* to which */
	struct ha_gin_out *out;
	const struct ha_config *config;
	/* The receiver writes here how many it has applied. */
	const volatile uint64_t *told;
	struct ha_mr *told_mr;
	uint64_t ring; /* the receiver's records */
	uint32_t ring_rkey;
	bool has_offer;
	struct ha_gin_message offer;
	uint64_t offer_ns;
	uint64_t trouble_ns; /* since when it does not run; 0: it does */
	uint64_t moved_ns;   /* when an acknowledgement came last, or something was due again */
	uint64_t seen;	     /* acknowledged by then */
	uint64_t failovers, replayed;
	struct ha_gin_put puts[HA_GIN_WINDOW];
	struct ha_gin_request requests[HA_GIN_WINDOW];
};

void ha_gin_sender_init(struct ha_gin_sender *sender, uint32_t rank, struct ha_gin_out *out,
			const struct ha_config *config, bool is_e2e);

/* Begins an operation, all of whose members were checked: a request. NULL: HA_GIN_WINDOW of them
 * were not tested to their end. */
struct ha_gin_request *ha_gin_sender_put(struct ha_gin_sender *sender,
					 const struct ha_gin_put *put);

static inline bool ha_gin_is_complete(const struct ha_gin_request *request)
{
	return request->number < ha_gin_completed(&request->sender->journal);
}

/* What its receiver says: OFFER and READY. */
void ha_gin_sender_hears(struct ha_gin_sender *sender, const struct ha_gin_message *message);

/* Posts what can be posted. */
void ha_gin_sender_posts(struct ha_gin_sender *sender);
/* Takes what has completed, too. */
void ha_gin_sender_works(struct ha_gin_sender *sender);
/* What takes time: fences, and other epochs. An error is the end of the stream, and was said. */
ha_result_t ha_gin_sender_mends(struct ha_gin_sender *sender) HA_MUST_CHECK;

/* False: the device does not let go: to be closed again. */
bool ha_gin_sender_close(struct ha_gin_sender *sender);

#endif
