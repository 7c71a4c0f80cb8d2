/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader of a group: what becomes of what members say (frame.h), until each of them has been
 * told how to go on. docs/inc-protocol.md has the protocol.
 *
 *            SUSPECT                 everybody has answered
 *   QUIET ------------> FENCING ------------------------------> QUIET, in the next epoch
 *     \  hold        SUSPECT /        nothing can go on
 *      `-------> HOLDING ---'   \ ------------------------------> OVER
 *                   everything that all have sent is everywhere
 *
 * What a frame does in which state is one table (leader.c), whose functions alone change the state.
 * A member that has waited for long suspects its tree, and is wrong if another one has not even
 * asked for the unit: so that is asked for first, and who has not asked is waited for.
 *
 * Frames may be lost, doubled and late: FENCE and HOLD are said again until they are answered, and
 * RESUME to whoever says FENCED again.
 *
 * Knows no network, and the time is the caller's. One thread.
 */
#ifndef HA_INC_LEADER_H
#define HA_INC_LEADER_H

#include "inc/frame.h"

/* First pause between two of a frame; each next one is twice as long, up to the longest. */
#define HA_INC_AGAIN_NS	    10000000ull
#define HA_INC_AGAIN_MAX_NS 250000000ull

enum ha_leader_state {
	HA_LEADER_QUIET,
	HA_LEADER_HOLDING,
	HA_LEADER_FENCING,
	HA_LEADER_OVER, /* it has given up: everybody who says anything is told so */
	HA_LEADER_STATES
};

/* A place for each of the members in each, in use as long as the leader is. */
struct ha_leader_room {
	struct ha_fenced *said, *held;
	uint64_t *asked; /* units, as far as is known */
};

/* Sends a frame to a member; it may get lost. */
typedef void ha_leader_say(void *arg, uint16_t member, const struct ha_inc_frame *frame);

struct ha_leader {
	enum ha_leader_state state;
	uint64_t group;
	uint32_t plan;	/* the last one that a RESUME named: its number alone is new each time */
	uint32_t ways;	/* by which trees plans go: how many there are, with the first one, 0; set
			   before the first frame. 0: any number */
	uint32_t way;	/* of the plan in use */
	uint32_t next;	/* when that fails */
	bool goes_back; /* by the first one next, whatever fails meanwhile */
	struct ha_decision decision;
	struct ha_decision holding; /* the same of HELD; its epoch is HOLD's round */
	uint64_t *asked;
	struct ha_inc_frame answer; /* QUIET: RESUME, if epoch > 0; OVER: ABORT */
	uint64_t again_ns, pause_ns;
	ha_leader_say *say;
	void *arg;
};

void ha_leader_init(struct ha_leader *leader, uint64_t group, uint16_t members,
		    const struct ha_leader_room *room, ha_leader_say *say, void *arg);

/* A frame that came from this member. Those of another group or member count for nothing. */
void ha_leader_hear(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		    uint64_t now_ns);

/* Says again what is due. */
void ha_leader_tick(struct ha_leader *leader, uint64_t now_ns);

/* An epoch that nobody needs, for another plan: it begins when nothing is open. False: not now. */
bool ha_leader_hold(struct ha_leader *leader, uint64_t now_ns);
/* The same, to go by the first way again; when it fails the group is where it was before. */
bool ha_leader_go_back(struct ha_leader *leader, uint64_t now_ns);
/* It has not failed for long: when it does all ways are tried, from the second one on. */
void ha_leader_settle(struct ha_leader *leader);
/* HOLD does not get through, or is not wanted any more. False: it is not on. */
bool ha_leader_hold_off(struct ha_leader *leader);

/* A member's process is dead, or no frame has reached it for the time limit. */
void ha_leader_give_up(struct ha_leader *leader, enum ha_inc_abort why, uint16_t member);

/* LEADER_LAST: every member has left, so nobody will ask any more. */
bool ha_leader_may_leave(const struct ha_leader *leader);

#endif
