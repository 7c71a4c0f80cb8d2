/* SPDX-License-Identifier: Apache-2.0 */
/* The sending end: groups of sends that answer receives, and their way to the wire. [T], but for
 * isend itself. */
#ifndef HA_TRANSPORT_SEND_H
#define HA_TRANSPORT_SEND_H

#include "base/result.h"
#include "transport/balance.h"
#include "transport/path.h"
#include "transport/rail_agent.h"
#include "transport/retain.h"
#include "transport/rings.h"
#include "transport/share.h"
#include "transport/shared_parking.h"
#include "transport/window.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_request;

/* ---- the sending end ----------------------------------------------------------------------- */

enum ha_group_state {
	HA_GROUP_FREE,	   /* no send of this group has come */
	HA_GROUP_MATCHING, /* some sends are in: ha_send_side.taken */
	HA_GROUP_MATCHED,  /* all are in, not posted, or not in this epoch yet */
	HA_GROUP_POSTED,   /* on the wire */
};

/* Of a message that is cut: its stripes, by the path that each was first meant for. */
struct ha_cut {
	uint32_t sq_mark[HA_MAX_PATHS];
	uint32_t length[HA_MAX_PATHS];
	uint64_t offset[HA_MAX_PATHS];
};

/* The sends that answer one receive of n buffers. [T] */
struct ha_send_group {
	alignas(64) uint64_t seq;
	uint8_t state; /* enum ha_group_state */
	uint8_t n;
	uint8_t parts;	    /* queue pairs it is spread over */
	uint8_t parts_left; /* of these, those whose completion is still to come */
	uint32_t epoch;	    /* whose keys its requests have */
	uint32_t sq_mark;   /* send queue position after this group; of one part, */
	uint8_t stripes;    /* those that are not acknowledged: a mask by path (stripe.h) */
	uint8_t cut_into;   /* all of them */
	uint8_t moved;	    /* of these, those that the active path carries instead */
	uint8_t waiting;    /* of these, those that are not posted on it yet */
	uint64_t largest;   /* of the messages, where there are several */
	struct ha_request *reqs[HA_GROUP_MAX];
	union {
		uint32_t sq_marks[HA_MAX_QPS]; /* of several parts, by queue pair */
		struct ha_cut cut;
	};
	uint64_t cut_seq; /* the message that this and the masks of stripes are of; 0: none */
};

/* How a sender waits for the receiver's count (e2e.c). */
struct ha_count_wait {
	uint64_t row;	      /* of the ring: the next whose count was not looked at */
	uint64_t ask_ns;      /* not asked before */
	uint32_t interval_ns; /* from one question to the next; 0: nothing is waited for */
	uint32_t in_vain;     /* counts in a row that had to be asked for */
};

struct ha_send_side {
	uint64_t match_seq;	    /* [A] oldest group that is not fully matched */
	uint64_t post_seq;	    /* [T] oldest group that is not posted */
	struct ha_window completed; /* [T] groups that are complete */
	struct ibv_sge single_sge;
	uint8_t taken; /* [A] elements of the group at match_seq that sends were matched with */
	uint8_t first; /* [A] the first that is not taken: NCCL's sends mostly come in order */
	uint8_t all;   /* [A] what taken is when it is complete */
	uint32_t count_ahead; /* [T] e2e: so many rows behind a message's own it was counted */
	uint64_t delivered;   /* [T] e2e: the receiver has every message before this one */
	/*
	 * [T] Work requests for one group, linked and filled with what never changes; posting
	 * writes addresses, lengths and keys only. A message of nothing has num_sge 0 while it is
	 * posted.
	 */
	alignas(64) struct ibv_send_wr single;	 /* n = 1: data and immediate in one */
	struct ibv_send_wr wr[HA_GROUP_MAX + 1]; /* the last one carries record and immediate */
	struct ibv_sge sge[HA_GROUP_MAX + 1];
	struct ha_count_wait count_wait;  /* [T] */
	uint64_t posted_once;		  /* [T] what post_seq was at most before it was set back */
	struct ha_shares shares;	  /* [T] of the paths that carry; of none before */
	struct ha_balance balance;	  /* [T] what they were seen to carry */
	struct ha_parking_sender parking; /* [T] whether one of them is left out */
	struct ha_turns turns;		  /* [T] of messages that are not cut */
	struct ha_rail_flow flow;	  /* [T] what an agent says of them */
	bool moves; /* [T] stripes, or messages, are to be posted again on the active path */
	struct ha_retained *retained; /* [T] e2e: copies that may be sent again; NULL: none */
	struct ha_send_group groups[HA_WINDOW]; /* [T] by seq mod window */
};

/* No message from this number on was ever posted. */
static inline uint64_t ha_send_posted_end(const struct ha_send_side *s)
{
	return s->post_seq > s->posted_once ? s->post_seq : s->posted_once;
}

/* Sends among those that the peer has: complete without hardware. Queue pairs are fenced. */
void ha_send_settle(struct ha_comm *comm, const struct ha_window *delivered);

#endif
