/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the leader and the members of a group say to each other beside the data
 * (docs/inc-protocol.md).
 *
 * Little-endian, as long as its kind has it:
 *
 *    0  4  magic
 *    4  1  kind          5  1  zero         6  2  member that says it
 *    8  4  epoch        12  4  checksum of the rest
 *   16  8  group
 *   24     FENCED: retired, have, sent, direct (8 each). LEAVE: retired (8)
 *          HELD: as FENCED, then the round (4), zero (4)
 *          RESUME: retired, taken, lacked (8 each), plan (4), way (4), owner (2 of each unit)
 *          HOLD: on (1), zero (3), round (4)
 *          SUSPECT: cut (1), zero (7), unit (8). ASK, ASKED: unit (8)
 *          ABORT: why (1), zero (5), member it is about (2), unit it is about (8), of a dispute
 *          which one (dispute.h; else zeros)
 *          DISPUTE: which one
 *          LINK: to which member (2), how far it is (1), zero (5), ends of two edges (40 each)
 */
#ifndef HA_INC_FRAME_H
#define HA_INC_FRAME_H

#include "inc/decision.h"
#include "inc/dispute.h"
#include "inc/join.h"

#include <stddef.h>

#define HA_INC_FRAME_HEAD 24
#define HA_INC_FRAME_MAX  (HA_INC_FRAME_HEAD + 32 + 2 * HA_DECISION_UNITS)

enum ha_inc_frame_kind {
	HA_INC_SUSPECT = 1, /* a member: an edge is cut, or nothing has become of `unit` for long */
	HA_INC_FENCE,	    /* the leader: destroy all edges; a new epoch begins */
	HA_INC_FENCED,	    /* a member: they are, and this is what I have */
	HA_INC_RESUME,	    /* the leader: where each unit comes from, and through which plan */
	HA_INC_HOLD,	    /* the leader: no new units; or go on */
	HA_INC_HELD,	    /* a member: none, and this is what I have */
	HA_INC_LEAVE,	    /* a member: everything is retired, and I ask for nothing more */
	HA_INC_ABORT,	    /* the leader: it gives up */
	HA_INC_ASK,	    /* the leader: have you asked for `unit`? */
	HA_INC_ASKED,	    /* a member: for all below `unit` */
	HA_INC_LINK,	    /* a member to another one: my ends of the edges between us */
	HA_INC_DRAIN,	    /* a member: the tree works, and somebody wants it to be left */
	HA_INC_DISPUTE,	    /* a member: two of us do not ask for the same operation */
	HA_INC_FRAME_KINDS
};

enum ha_inc_abort {
	HA_INC_ABORT_DAMAGED = 1, /* `unit` has no result and may have lost a contribution */
	HA_INC_ABORT_LOST,	  /* `member` lacks `unit`, which another one calls retired */
	HA_INC_ABORT_DEAD,	  /* `member` is */
	HA_INC_ABORT_OUTAGE,	  /* nothing has got on for the time limit, one way or the other */
	HA_INC_ABORT_NO_TREE,	  /* no tree is left that a RESUME has not named */
	HA_INC_ABORT_DISPUTE,	  /* two members do not ask for the same operation */
	HA_INC_ABORT_REASONS
};

enum ha_inc_linking {
	HA_INC_LINK_ALONE, /* the other one's ends have not come */
	HA_INC_LINK_HAS,   /* they are connected to */
	HA_INC_LINK_KNOWS, /* and the other one has said that it is, too */
	HA_INC_LINK_STATES
};

/* What a member says to another one, through the leader, when they are to add for each other. */
struct ha_inc_link {
	uint16_t to;
	enum ha_inc_linking state;
	struct ha_edge_address child;  /* by which it contributes to the other one */
	struct ha_edge_address parent; /* by which the other one contributes to it */
};

struct ha_inc_frame {
	enum ha_inc_frame_kind kind;
	uint16_t member; /* 0, the leader, of what only it says */
	uint32_t epoch;	 /* of FENCE, FENCED and RESUME at least 1 */
	uint64_t group;
	uint32_t plan;	/* of RESUME: from 1 */
	uint32_t way;	/* of RESUME: by which trees; 0: those that the group began with */
	bool is_on;	/* of HOLD */
	bool is_cut;	/* of SUSPECT */
	uint64_t unit;	/* of SUSPECT, ASK and ASKED */
	uint32_t round; /* of HOLD and HELD, from 1: what is said of an earlier HOLD is not taken
			   for an answer to this one */
	union {
		struct ha_fenced said;	 /* of FENCED, HELD and LEAVE; its epoch is the frame's */
		struct ha_resume resume; /* of RESUME; its epoch is the frame's */
		struct {
			enum ha_inc_abort why;
			struct ha_decision_fault about;
			struct ha_dispute dispute;
		} abort;		   /* of ABORT */
		struct ha_dispute dispute; /* of DISPUTE */
		struct ha_inc_link link;   /* of LINK */
	};
};

/* What a kind takes; 0: there is no such kind. */
size_t ha_inc_frame_bytes(enum ha_inc_frame_kind kind);

/* Returns how many bytes it is. */
size_t ha_inc_frame_encode(const struct ha_inc_frame *frame, uint8_t out[HA_INC_FRAME_MAX]);

/* False: these bytes are nothing that a group of so many members could have said to another of its
 * own. Which group, and from whom they came, is the caller's to compare. */
bool ha_inc_frame_decode(const uint8_t *data, size_t size, uint16_t members,
			 struct ha_inc_frame *frame);

#endif
