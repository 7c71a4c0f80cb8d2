/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DEADLINE: when a group that always finds another way ends all the same, as none of them carries
 * anything. Beginning epochs is not getting on, and waiting for a member that is late is not an
 * outage: so it takes both, that nothing has got on for the limit, and that the group has given up
 * one way after the other meanwhile.
 *
 * Of the leader's own record, in which nothing is retired as long as any member lacks it. Knows no
 * network, and the time is the caller's.
 */
#ifndef HA_INC_OUTAGE_H
#define HA_INC_OUTAGE_H

#include "inc/ledger.h"

#define HA_OUTAGE_WAYS 2 /* that have to have failed */

struct ha_outage {
	uint64_t steps, since_ns; /* when something got on for the last time */
	uint32_t epoch;		  /* in which it did */
};

/* Whether there is one; to be asked again and again. limit_ns: 0: there is none. */
bool ha_outage_is(struct ha_outage *outage, const struct ha_ledger *ledger, uint64_t limit_ns,
		  uint64_t now_ns);

#endif
