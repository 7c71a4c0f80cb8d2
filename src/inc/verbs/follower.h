/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member does when its tree does not get on, and when the leader says something: the other
 * end of inc/leader.h, which itself is a member, too.
 *
 *           cut, late           FENCE            edges are gone          RESUME
 *   RUNS ------------> SUSPECTS ------> FENCING ---------------> FENCED --------> RUNS
 *     |  <------------     |
 *     |     it gets on     |
 *     `------------------- FENCE ---------^                        `--- FENCE, of another epoch:
 *                                                                       FENCING
 *   ABORT leads from everywhere to OVER, and LEAVE from RUNS to LEFT. Who hears of a dispute is in
 *   DISPUTES from then on, until ABORT: no other tree helps.
 *
 * What a frame does in which state is one table (follower.c), whose functions alone change the
 * state. What it has to say is said again until it is answered.
 *
 * The time is the caller's. One thread, the member's.
 */
#ifndef HA_INC_VERBS_FOLLOWER_H
#define HA_INC_VERBS_FOLLOWER_H

#include "inc/failback.h"
#include "inc/frame.h"
#include "inc/verbs/member.h"

enum ha_follower_state {
	HA_FOLLOWER_RUNS,
	HA_FOLLOWER_SUSPECTS,
	HA_FOLLOWER_FENCING, /* some edge is not destroyed yet */
	HA_FOLLOWER_FENCED,
	HA_FOLLOWER_DISPUTES,
	HA_FOLLOWER_LEFT,
	HA_FOLLOWER_OVER, /* the group has ended with an error */
	HA_FOLLOWER_STATES
};

struct ha_follower_calls {
	/* Sends a frame to the leader; it may get lost. */
	void (*say)(void *arg, const struct ha_inc_frame *frame);
	/* Joins the member to the trees of a way and connects its edges. A member that has none
	 * afterwards is cut. */
	void (*join)(void *arg, uint32_t way, uint32_t epoch);
	/* The member's edges are about to be destroyed. */
	void (*fence)(void *arg);
	void *arg;
};

struct ha_follower {
	enum ha_follower_state state;
	struct ha_member *member;
	uint16_t number;
	uint64_t group;
	uint64_t late_ns; /* nothing gets on for so long: a reason to suspect; 0: never */
	struct ha_follower_calls calls;
	uint32_t epoch;	  /* of the last FENCE */
	uint32_t plan;	  /* of the last RESUME */
	uint32_t way;	  /* the same; 0: of the trees that the group began with */
	uint32_t round;	  /* of the HOLD that it obeys; 0: none */
	bool is_to_drain; /* its tree is to be left, which it says until there is another one */
	uint64_t again_ns, pause_ns;
	uint64_t held_steps;	     /* of the ledger, as HELD said last */
	struct ha_failback to_port;  /* that is better than the one in use; set after init */
	struct ha_dispute dispute;   /* DISPUTES */
	uint64_t steps, since_ns;    /* of the ledger, and when they were fewer; 0: it has not
					been looked at */
	struct ha_inc_frame verdict; /* OVER: ABORT */
};

void ha_follower_init(struct ha_follower *follower, struct ha_member *member, uint16_t number,
		      uint64_t group, uint64_t late_ns, const struct ha_follower_calls *calls);

/* A frame that came from the leader. One of another group counts for nothing. */
void ha_follower_hear(struct ha_follower *follower, const struct ha_inc_frame *frame,
		      uint64_t now_ns);

/* Looks whether the member gets on, and says again what is due. */
void ha_follower_tick(struct ha_follower *follower, uint64_t now_ns);

/* DRAIN: the tree works, and is to be left: a switch of it is about to end, for example. */
void ha_follower_drain(struct ha_follower *follower, uint64_t now_ns);

/* Whoever adds has noticed it. */
void ha_follower_dispute(struct ha_follower *follower, const struct ha_dispute *dispute,
			 uint64_t now_ns);

/* LEAVE. False: something is not retired or not done, or the member does not run. */
bool ha_follower_leave(struct ha_follower *follower, uint64_t now_ns);

#endif
