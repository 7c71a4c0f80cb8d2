/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unit in a switch, from the first child's contribution until every child has the result:
 *
 *   EMPTY -> GATHERING -> REDUCED -> SENT_UP -> RESULT -> DELIVERING -> EMPTY
 *
 * The root's is RESULT as soon as it is reduced. What may happen in which state is one table
 * (unit.c), whose functions alone change the state. What cannot happen changes nothing and is said
 * to the caller: it would be a bug at one end of an edge, as edges lose and double nothing.
 *
 * Knows no network: a target is a number, by which the caller knows a connection. One thread.
 */
#ifndef HA_INC_UNIT_H
#define HA_INC_UNIT_H

#include "reduce/fold.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_UNIT_CHILDREN HA_FOLD_SOURCES
/* Where something is sent: a child's number is its place, and the parent's this. */
#define HA_UNIT_UP	HA_UNIT_CHILDREN
#define HA_UNIT_TARGETS (HA_UNIT_CHILDREN + 1)

enum ha_unit_state {
	HA_UNIT_EMPTY,
	HA_UNIT_GATHERING,  /* some contribution is missing, or room for the result */
	HA_UNIT_REDUCED,    /* the partial result waits to be sent to the parent */
	HA_UNIT_SENT_UP,    /* the parent's result has not come */
	HA_UNIT_RESULT,	    /* the result is there, and not yet on its way to every child */
	HA_UNIT_DELIVERING, /* sends that read our buffers are under way */
	HA_UNIT_STATES
};

enum ha_unit_event {
	HA_UNIT_CAME,	  /* a child's contribution */
	HA_UNIT_LOOK,	  /* there is time to compute what can be computed before the rest comes */
	HA_UNIT_FINISH,	  /* all have come, and there is room for the result */
	HA_UNIT_POSTED,	  /* a send to a target is under way */
	HA_UNIT_SENT,	  /* it is complete: our buffer is not read any more */
	HA_UNIT_ANSWERED, /* the parent's result is in room.result */
	HA_UNIT_EVENTS
};

enum ha_unit_verdict {
	HA_UNIT_FINE,
	HA_UNIT_IMPOSSIBLE, /* in this state, or of this child or target */
	HA_UNIT_DISAGREES,  /* a contribution to another operation than the first one's */
};

/* What a child sends. Until the unit is reduced its buffer is ours, and is written to. */
struct ha_contribution {
	const struct ha_reduction *reduction;
	size_t count; /* elements */
	enum ha_reduce_form form;
	void *at;
};

struct ha_unit_input {
	enum ha_unit_event on;
	unsigned int who; /* of CAME the child, of POSTED and SENT the target */
	const struct ha_contribution *contribution; /* of CAME */
};

/* Buffers of the unit's own, each for the largest unit. */
struct ha_unit_room {
	void *scratch; /* of the fold */
	void *partial; /* in the wide form; not used at the root */
	void *result;
};

struct ha_unit {
	enum ha_unit_state state;
	bool is_root;
	uint8_t children;
	uint64_t to_post;   /* bitmap of targets */
	uint64_t in_flight; /* bitmap of targets */
	struct ha_unit_room room;
	struct ha_fold fold;
};

/* An empty unit of a switch with 1 to HA_UNIT_CHILDREN children. */
void ha_unit_init(struct ha_unit *unit, unsigned int children, bool is_root,
		  const struct ha_unit_room *room);

enum ha_unit_verdict ha_unit_step(struct ha_unit *unit, const struct ha_unit_input *input);

/* FINISH is possible. */
static inline bool ha_unit_is_complete(const struct ha_unit *unit)
{
	return unit->state == HA_UNIT_GATHERING && ha_fold_is_complete(&unit->fold);
}

/* POSTED is possible, of what ha_unit_send_of() says. */
static inline bool ha_unit_wants(const struct ha_unit *unit, unsigned int target)
{
	return unit->to_post >> target & 1;
}

/* What goes to a target: partial results up, results down. */
struct ha_unit_send {
	const void *at;
	size_t bytes;
};

struct ha_unit_send ha_unit_send_of(const struct ha_unit *unit, unsigned int target);

const char *ha_unit_state_name(enum ha_unit_state state);

#endif
