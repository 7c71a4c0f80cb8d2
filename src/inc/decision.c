/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/decision.h"

#include <string.h>

void ha_decision_init(struct ha_decision *decision, uint16_t members, struct ha_fenced *said)
{
	memset(said, 0, members * sizeof(*said));
	*decision = (struct ha_decision){.members = members, .said = said};
}

void ha_decision_begin(struct ha_decision *decision)
{
	decision->epoch++;
}

/* MESSAGE_EPOCH: what was true of an earlier epoch need not be any more. Nobody comes back from
 * LEAVE, and what it says stays true. */
static bool counts(const struct ha_decision *decision, const struct ha_fenced *said)
{
	return said->leaves || (decision->epoch && said->epoch == decision->epoch);
}

bool ha_decision_has_heard(const struct ha_decision *decision, uint16_t member)
{
	return counts(decision, &decision->said[member]);
}

bool ha_decision_hear(struct ha_decision *decision, uint16_t member, const struct ha_fenced *said)
{
	if (decision->said[member].leaves || !counts(decision, said))
		return false;
	decision->said[member] = *said;
	return true;
}

/* ALL_FENCED, EVERY_VOTE: nothing is decided without every member. */
static bool is_waiting(const struct ha_decision *decision, uint16_t *member)
{
	for (uint16_t m = 0; m < decision->members; m++) {
		if (!counts(decision, &decision->said[m])) {
			*member = m;
			return true;
		}
	}
	return false;
}

/* R_SMALLEST: retired is what anybody knows to be, as whoever has left has said so for the last
 * time. */
static uint64_t largest_retired(const struct ha_decision *decision)
{
	uint64_t retired = 0;

	for (uint16_t m = 0; m < decision->members; m++) {
		if (decision->said[m].retired > retired)
			retired = decision->said[m].retired;
	}
	return retired;
}

/* A member's bitmap as one that begins at unit `retired`, which its own does not begin behind. */
static uint64_t from(uint64_t retired, const struct ha_fenced *said, uint64_t bitmap)
{
	uint64_t behind = retired - said->retired;

	return behind < HA_DECISION_UNITS ? bitmap >> behind : 0;
}

/* A member that lacks a unit below `retired`, and the unit. */
static bool is_lost(const struct ha_decision *decision, uint64_t retired,
		    struct ha_decision_fault *fault)
{
	for (uint16_t m = 0; m < decision->members; m++) {
		const struct ha_fenced *said = &decision->said[m];
		unsigned int has = 0; /* without a gap */

		while (has < HA_DECISION_UNITS && said->have >> has & 1)
			has++;
		if (said->retired + has < retired) {
			*fault = (struct ha_decision_fault){m, said->retired + has};
			return true;
		}
	}
	return false;
}

/* Bitmaps of all members together, from unit `retired` on. */
struct votes {
	uint64_t anybody_has, everybody_has;
	uint64_t everybody_sent;
	uint64_t anybody_direct;
};

static struct votes votes_of(const struct ha_decision *decision, uint64_t retired)
{
	struct votes votes = {0, UINT64_MAX, UINT64_MAX, 0};

	for (uint16_t m = 0; m < decision->members; m++) {
		const struct ha_fenced *said = &decision->said[m];

		votes.anybody_has |= from(retired, said, said->have);
		votes.everybody_has &= from(retired, said, said->have);
		votes.everybody_sent &= from(retired, said, said->sent);
		votes.anybody_direct |= from(retired, said, said->direct);
	}
	return votes;
}

static uint16_t lowest_owner(const struct ha_decision *decision, uint64_t retired, unsigned int i)
{
	for (uint16_t m = 0; m < decision->members; m++) {
		if (from(retired, &decision->said[m], decision->said[m].have) >> i & 1)
			return m;
	}
	return UINT16_MAX;
}

bool ha_decision_is_settled(const struct ha_decision *decision)
{
	const struct votes votes = votes_of(decision, largest_retired(decision));
	uint16_t member;

	return !is_waiting(decision, &member) && !(votes.everybody_sent & ~votes.everybody_has);
}

enum ha_decision_verdict ha_decision_make(const struct ha_decision *decision,
					  struct ha_resume *resume, struct ha_decision_fault *fault)
{
	const uint64_t retired = largest_retired(decision);
	const struct votes votes = votes_of(decision, retired);
	/* DAMAGE: such a contribution may be half a result. DAMAGE_SENT: of a unit that somebody
	 * has not sent there is no result to land on it. */
	const uint64_t damaged = votes.anybody_direct & votes.everybody_sent & ~votes.anybody_has;

	if (is_waiting(decision, &fault->member))
		return HA_DECISION_WAITS;
	if (is_lost(decision, retired, fault))
		return HA_DECISION_LOST;
	if (damaged) {
		fault->unit = retired + (unsigned int)__builtin_ctzll(damaged);
		return HA_DECISION_DAMAGED;
	}
	*resume = (struct ha_resume){
	    .epoch = decision->epoch,
	    .retired = retired,
	    .taken = votes.anybody_has, /* ANYBODY_HAS: never computed again */
	    /* OWNER_LACKED: what nobody lacks its owner may let go of at any time. */
	    .lacked = votes.anybody_has & ~votes.everybody_has,
	};
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++) {
		if (resume->lacked >> i & 1)
			resume->owner[i] = lowest_owner(decision, retired, i);
	}
	return HA_DECISION_MADE;
}
