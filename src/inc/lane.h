/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A switch's end of a lane: its units, in the order of their indices (cut.h).
 *
 * Edges keep order, so what comes from a child or the parent, and what is posted to them and
 * completes, is the next one of that edge. Three indices bound what is open, where D is the window:
 *
 * - Units below `reduced` are reduced: their children's buffers are free again. A child may be D
 * ahead of that, because it has D buffers here.
 * - A unit is reduced when unit - D is EMPTY: results and partial results have D buffers, and a
 * child may acknowledge late what it has had for long.
 * - So 2 D units are open at most, and each has a place of its own.
 *
 * Knows no network and keeps no time: the caller moves messages, and calls ha_lane_look() when he
 * has taken all that has come. The first thing that cannot be stays as the lane's fault, and
 * nothing moves any more. One thread.
 */
#ifndef HA_INC_LANE_H
#define HA_INC_LANE_H

#include "inc/unit.h"

struct ha_lane_shape {
	unsigned int children; /* 1 to HA_UNIT_CHILDREN */
	bool is_root;
	unsigned int window;	 /* D, at least 1 */
	unsigned int unit_bytes; /* of the largest unit, as the application has it */
};

enum ha_lane_fault {
	HA_LANE_SOUND,
	HA_LANE_BUG,	   /* an event that cannot be */
	HA_LANE_OVERRUN,   /* a child sent more than it has buffers for, or a larger unit */
	HA_LANE_DISAGREES, /* a child contributes to another operation than the first one */
};

struct ha_lane {
	struct ha_lane_shape shape;
	struct ha_unit *unit;		  /* 2 D, by index modulo */
	uint64_t came[HA_UNIT_CHILDREN];  /* contributions, by child */
	uint64_t begun;			  /* units: of those below it some child's has come */
	uint64_t reduced;		  /* units */
	uint64_t answered;		  /* results of the parent */
	uint64_t posted[HA_UNIT_TARGETS]; /* sends, by target */
	uint64_t sent[HA_UNIT_TARGETS];	  /* of them complete */
	enum ha_lane_fault fault;
	unsigned int fault_child; /* of OVERRUN and DISAGREES */
};

/* What a lane needs: units, results, partial results, scratch. */
size_t ha_lane_bytes(const struct ha_lane_shape *shape);
/* `memory`: that many bytes, aligned for any type, the caller's, and in use until the lane is not.
 */
void ha_lane_init(struct ha_lane *lane, const struct ha_lane_shape *shape, void *memory);

/* The child's next contribution. Its buffer is the lane's until `reduced` has passed it. */
void ha_lane_came(struct ha_lane *lane, unsigned int child, const struct ha_contribution *c);

/* Reduces what can be reduced. */
void ha_lane_look(struct ha_lane *lane);

/* Whether there is something to post to the target, and what. */
bool ha_lane_next_send(const struct ha_lane *lane, unsigned int target, struct ha_unit_send *send);
void ha_lane_posted(struct ha_lane *lane, unsigned int target); /* that was posted */
void ha_lane_sent(struct ha_lane *lane,
		  unsigned int target); /* the oldest posted one is complete */

/* Where the parent's results go: of the next one, and of so many after it. NULL: that unit is not
 * reduced, so there is none to come. */
void *ha_lane_result_room(const struct ha_lane *lane, unsigned int ahead);
void ha_lane_answered(struct ha_lane *lane); /* the next result has come there */

#endif
