/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving end: receives, and the clear-to-sends that ask for their messages. [T], but for
 * irecv itself. */
#ifndef HA_TRANSPORT_RECV_H
#define HA_TRANSPORT_RECV_H

#include "transport/request.h"
#include "transport/rings.h"
#include "transport/send.h"
#include "transport/window.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_flush_old;
struct ha_mr;

/* ---- the receiving end --------------------------------------------------------------------- */

/*
 * A receive from irecv until test has reported it. [T] but for in_use. Addresses, sizes and tags
 * are in our copy of its row of the clear-to-send ring: that is what is sent again after a failure.
 */
struct ha_recv_slot {
	alignas(64) uint32_t expect; /* ha_imm_expected; HA_IMM_NEVER: it awaits none */
	uint8_t n;
	uint8_t parts_seen; /* immediates that came */
	bool record;	    /* sizes come from the sizes ring */
	bool in_use;	    /* [A] not reported yet */
	uint64_t seq;
	int64_t bytes; /* ha_recv_room, less what came; when it is complete, of the messages */
	struct ha_request *req;
	struct ha_mr *mrs[HA_GROUP_MAX];
	int sizes[HA_GROUP_MAX]; /* what arrived, as test reports it; of n = 1 see bytes */
};

_Static_assert(sizeof(struct ha_recv_slot) == 128, "two lines, one of them when n = 1");

struct ha_recv_side {
	uint64_t next_seq;     /* [T] number of the next receive */
	uint64_t cts_seq;      /* [T] oldest receive whose clear-to-send is not posted */
	struct ha_window done; /* [T] receives that are complete: the truth about delivery */
	struct ibv_sge cts_sge;
	uint32_t flushes;		       /* [T] of the requests outstanding */
	alignas(64) struct ibv_send_wr cts_wr; /* [T] template */
	struct ha_recv_slot slots[HA_WINDOW];  /* [T] by seq mod window */
	struct ha_request_pool flush_pool;     /* [A] those of iflush */
	struct ha_flush_old *old;	       /* [T] NICs that were left; NULL: none is kept */
	bool old_ends;			       /* [T] none is kept any more */
	uint8_t flush_through; /* [T] NICs beside the active path's: a mask (flush_beside.h) */
	uint64_t seen_messages, seen_bytes; /* [T] by who decides on members */
	bool large;			    /* [T] what those were */
	/* [T] Paths that its rows name beside the active one (stripe.h): a mask, how many, and how
	 * each is named. */
	uint8_t members, nbeside;
	struct ha_beside {
		uint8_t slot;
		uint8_t key;   /* where its key is in an element */
		uint16_t name; /* ha_cts_name */
	} beside[HA_MAX_PATHS - 1];
	uint64_t named_from;	  /* in rows of buffers of so many bytes */
	struct ha_path *names_on; /* [T] as ha_comm.clear, which is NULL while they are named */
};

/* What a message of its own touches of each: two lines, with that of the work request. */
_Static_assert(offsetof(struct ha_send_side, single) == 64, "sends");
_Static_assert(offsetof(struct ha_recv_side, cts_wr) == 64, "receives");
_Static_assert(offsetof(struct ibv_send_wr, wr.rdma.rkey) < 64, "used is its first line");

/* Set-up of the work-request templates. */
void ha_recv_init(struct ha_comm *comm);
/* Posts the clear-to-sends that were held back, in order, as far as queues have room. [T] */
void ha_recv_pump(struct ha_comm *comm);

/* Puts receives back that immediates took. */
void ha_recv_refill(struct ha_comm *comm, struct ha_path *path, struct ha_qp *qp);
/* An immediate that is not simply a message's: a control message, a stripe, or stale. */
void ha_recv_unexpected(struct ha_comm *comm, struct ha_path *path, uint32_t imm, uint32_t bytes);
/* Bytes of the buffer of n = 1; less than none for a group, whose sizes come in a record. */
int64_t ha_recv_room(const struct ha_comm *comm, const struct ha_recv_slot *slot);
/* One of a group, or of a message in several parts: completes its receive if it was the last. More
 * bytes than there is room for latch the connection. */
void ha_recv_part(struct ha_comm *comm, struct ha_recv_slot *slot, uint32_t imm, uint32_t bytes);

#endif
