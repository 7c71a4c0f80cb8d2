/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's edges to the switches of its plan: which ways there are by that, and connecting.
 *
 * Way 0 is all lanes. Way n, from 1, is a single tree, over which every unit goes: the spares,
 * and then each lane by itself, as a switch that failed may be in one lane alone. The connection
 * over which an edge was made stays, so that the end of the switch's process is noticed at once.
 *
 * One thread, the member's.
 */
#ifndef HA_INC_HOST_JOINING_H
#define HA_INC_HOST_JOINING_H

#include "inc/dispute.h"
#include "inc/net/talk.h"
#include "inc/part.h"
#include "inc/verbs/member.h"

struct ha_joining {
	const struct ha_part *part;
	const uint8_t *key; /* the group's */
	const struct ha_job_key *site;
	uint16_t member;
	uint64_t limit_ns; /* for all edges of a way */
	unsigned int n;
	struct ha_talk talk[HA_PLAN_LANES]; /* with the switches that it is joined to */
	bool is_drained;	    /* a switch of the trees has said that it is about to end */
	struct ha_dispute dispute;  /* that a switch has noticed, if any */
	char why[HA_TALK_WHY + 64]; /* the last reason why a tree was not joined, or is gone */
};

/* How many ways a part has, with way 0. */
static inline uint32_t ha_joining_ways(const struct ha_part *part)
{
	return 1u + part->lanes + part->spares;
}

/* Leaves the trees before, and joins those of a way. A member whom that fails is cut. Waits for
 * switches up to the limit. */
void ha_joining_join(struct ha_joining *joining, struct ha_member *member, uint32_t way,
		     uint32_t epoch);
/* The edges are destroyed: the switches may know. */
void ha_joining_leave(struct ha_joining *joining);

/* Cuts the member whose switch is gone, and hears one that is about to be. */
void ha_joining_look(struct ha_joining *joining, struct ha_member *member);

#endif
