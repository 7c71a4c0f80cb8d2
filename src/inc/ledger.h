/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's record of its units: what it may send, when a request is complete, and what it says
 * when a tree or a ring has been given up. docs/inc-protocol.md has the protocol; the rules that
 * stand here as guards carry the model's names.
 *
 * Knows no network, no memory and no time: the caller moves bytes, from where the record says, and
 * says what has happened. What cannot be is refused and changes nothing. One thread.
 */
#ifndef HA_INC_LEDGER_H
#define HA_INC_LEDGER_H

#include "inc/decision.h"

struct ha_ledger_shape {
	uint16_t member;     /* which one of the group */
	unsigned int window; /* D, 1 to HA_DECISION_UNITS; as many units has the shadow */
	unsigned int copies; /* results of complete requests that there is room for */
};

enum ha_ledger_state {
	HA_LEDGER_RUNS,
	HA_LEDGER_FENCED, /* the edges are destroyed, and no RESUME has come */
	HA_LEDGER_LEFT,
};

/* Where a unit's result lands. */
enum ha_ledger_place {
	HA_LEDGER_APART,    /* beside its contribution */
	HA_LEDGER_SHADOWED, /* over it, which is sent from the shadow */
	HA_LEDGER_DIRECT,   /* over it, of which there is no other */
};

/* What a send reads. */
enum ha_ledger_source {
	HA_LEDGER_CONTRIBUTION, /* the request's memory */
	HA_LEDGER_TO_SHADOW,	/* the shadow, when the contribution has been copied there */
	HA_LEDGER_SHADOW,  /* the shadow, which holds it: the request's memory may not any more */
	HA_LEDGER_RESULT,  /* the request's memory */
	HA_LEDGER_COPY,	   /* the copy that was made when the request became complete */
	HA_LEDGER_NOTHING, /* such a send cannot be */
};

enum ha_ledger_completion {
	HA_LEDGER_WAITS,
	HA_LEDGER_COMPLETE,
	HA_LEDGER_KEEP, /* complete as soon as the caller has copied the result */
};

enum ha_ledger_verdict {
	HA_LEDGER_FINE,
	HA_LEDGER_STALE,      /* of another epoch, or said before: counts for nothing */
	HA_LEDGER_IMPOSSIBLE, /* contradicts what this member has: a bug, or a lie */
};

/* Bit i of a bitmap is unit `first` + i. */
struct ha_ledger {
	struct ha_ledger_shape shape;
	enum ha_ledger_state state;
	uint32_t epoch;		   /* of the last FENCE that it obeyed */
	uint64_t issued;	   /* units that the application has asked for: all below */
	uint64_t retired;	   /* all below are, by what it knows */
	uint64_t completed;	   /* how many units of requests that are complete */
	uint64_t first;		   /* all below are retired, and no send of them is under way */
	uint64_t have;		   /* results that software has */
	uint64_t kept;		   /* of them in a copy: the request is complete */
	uint64_t sent;		   /* in this epoch, in FENCED: in the one that ended */
	uint64_t sending;	   /* of those not complete */
	uint64_t forwarding;	   /* results on their way to the next member on the ring */
	uint64_t taken;		   /* by RESUME: somebody has it, so it is not contributed */
	uint64_t own;		   /* of those: this member is to send it */
	uint64_t shadowed, direct; /* as ha_ledger_post() said */
	/* Of all epochs: units that were open at a fence and that somebody had; and that this
	 * member had sent, and nobody had. */
	uint64_t units_taken, units_again;
};

/* Runs in epoch 0; unit 0 is the first. */
void ha_ledger_init(struct ha_ledger *ledger, const struct ha_ledger_shape *shape);

/* The application has asked for an operation of so many units more. */
void ha_ledger_issue(struct ha_ledger *ledger, uint64_t units);

/* ---- sends ---------------------------------------------------------------------------------- */

/* The next unit to send over a lane, in the order of units. False: there is none, or not yet. */
bool ha_ledger_next(const struct ha_ledger *ledger, unsigned int lane, unsigned int lanes,
		    uint64_t *unit);
/* ha_ledger_next()'s unit is on its way, from what is returned. A unit has the same `place` each
 * time. Its place in the shadow is unit mod window. */
enum ha_ledger_source ha_ledger_post(struct ha_ledger *ledger, uint64_t unit,
				     enum ha_ledger_place place);
/* The hardware reads nothing of that send any more. */
bool ha_ledger_sent(struct ha_ledger *ledger, uint64_t unit);

/* A result that is here goes on to the next member on the ring, from what is returned; and that
 * send's end. */
enum ha_ledger_source ha_ledger_forward(struct ha_ledger *ledger, uint64_t unit);
bool ha_ledger_forwarded(struct ha_ledger *ledger, uint64_t unit);

/* ---- results -------------------------------------------------------------------------------- */

/* Software has seen that the whole result is where it belongs. */
bool ha_ledger_has(struct ha_ledger *ledger, uint64_t unit);

/* The word that goes up, or round: all units below are here. */
uint64_t ha_ledger_word(const struct ha_ledger *ledger);

/* The word that comes down, or round: every member has all units below. */
bool ha_ledger_retire(struct ha_ledger *ledger, uint64_t retired);

/* Whether the request of these units is complete; to be asked until it is, and not again. A copy is
 * the caller's until the unit is retired and no send of it is under way. */
enum ha_ledger_completion ha_ledger_complete(struct ha_ledger *ledger, uint64_t unit,
					     uint64_t units);

/* ---- epochs --------------------------------------------------------------------------------- */

/* FENCE has been obeyed: all edges are destroyed, and what had come over them has been counted.
 * False: of an earlier epoch. Of the same one it changes nothing. The leader says FENCE only when
 * it has decided the epoch before. */
bool ha_ledger_fence(struct ha_ledger *ledger, uint32_t epoch);

/* LEAVE. False: something is not retired, or a request not complete. */
bool ha_ledger_leave(struct ha_ledger *ledger);

/* What FENCED or LEAVE says; false: there is neither to say. */
bool ha_ledger_say(const struct ha_ledger *ledger, struct ha_fenced *said);

enum ha_ledger_verdict ha_ledger_resume(struct ha_ledger *ledger, const struct ha_resume *resume);

#endif
