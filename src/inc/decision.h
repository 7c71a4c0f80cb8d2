/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the leader decides when a tree or a ring has been given up: of each unit that it is retired,
 * taken from a member that has it, or contributed again. docs/inc-protocol.md has the protocol and
 * the argument; the rules that stand here carry the model's names.
 *
 * Members say FENCED when their edges are destroyed, or LEAVE when everything is retired. When all
 * have, the decision is a function of what they said: when and in which order they said it
 * changes nothing.
 *
 * Knows no network and keeps no time. One thread.
 */
#ifndef HA_INC_DECISION_H
#define HA_INC_DECISION_H

#include <stdbool.h>
#include <stdint.h>

/* Units that FENCED can speak of, from the first one on that its member does not know to be
 * retired. A member sends nothing beyond them: what it can have fits into what it can say. */
#define HA_DECISION_UNITS 64

/* FENCED or LEAVE. Bit i of a bitmap is unit `retired` + i. */
struct ha_fenced {
	uint32_t epoch;	  /* that it fenced for */
	bool leaves;	  /* LEAVE: of any epoch, and there are no units from `retired` on */
	uint64_t retired; /* all units below are, by what the member knows */
	uint64_t have;	  /* results that its software has */
	uint64_t sent;	  /* contributions that it sent in the epoch that ends */
	uint64_t direct;  /* results would land on their only contribution */
};

/* RESUME. Bit i of a bitmap is unit `retired` + i; what is not taken is contributed again. */
struct ha_resume {
	uint32_t epoch;
	uint64_t retired;		   /* all units below are */
	uint64_t taken;			   /* somebody has the result */
	uint64_t lacked;		   /* of those taken: somebody else lacks it */
	uint16_t owner[HA_DECISION_UNITS]; /* of those lacked: the member that sends the result */
};

enum ha_decision_verdict {
	HA_DECISION_MADE,
	HA_DECISION_WAITS,   /* for a member that has not answered */
	HA_DECISION_DAMAGED, /* a unit has no result, and its contribution may be half overwritten
			      */
	HA_DECISION_LOST,    /* a member lacks what another one calls retired: a bug, or a lie */
};

struct ha_decision_fault {
	uint16_t member; /* of WAITS and LOST: the lowest */
	uint64_t unit;	 /* of DAMAGED and LOST: the lowest */
};

/* What has been said in the present epoch. */
struct ha_decision {
	uint32_t epoch;
	uint16_t members;
	struct ha_fenced *said; /* by member; the caller's memory */
};

/* Epoch 0, in which nothing is decided. `said`: a place for each of the members, at least one; in
 * use as long as the decision is. */
void ha_decision_init(struct ha_decision *decision, uint16_t members, struct ha_fenced *said);

/* The next epoch's fence begins: what was said in an earlier one is forgotten, but for LEAVE. Not
 * before the last one is decided: members take FENCE for the news that it was (ledger.h). */
void ha_decision_begin(struct ha_decision *decision);

/* A member's FENCED or LEAVE has come; as often as it likes. False: it counts for nothing, as it is
 * of another epoch. */
bool ha_decision_hear(struct ha_decision *decision, uint16_t member, const struct ha_fenced *said);

/* Whether the member has said something that counts now. */
bool ha_decision_has_heard(const struct ha_decision *decision, uint16_t member);

/* HOLD: of what members that begin nothing more have said: all have, and each unit that all have
 * sent is everywhere. So an epoch that begins now finds none half done. */
bool ha_decision_is_settled(const struct ha_decision *decision);

/* MADE: `resume` is filled. Anything else: `fault` is, as far as the verdict says. */
enum ha_decision_verdict ha_decision_make(const struct ha_decision *decision,
					  struct ha_resume *resume,
					  struct ha_decision_fault *fault);

#endif
