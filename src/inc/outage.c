/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/outage.h"

bool ha_outage_is(struct ha_outage *outage, const struct ha_ledger *ledger, uint64_t limit_ns,
		  uint64_t now_ns)
{
	const uint64_t steps = ledger->retired + ledger->completed;
	const bool is_waiting = ledger->retired < ledger->issued;

	if (steps != outage->steps || !is_waiting || outage->since_ns == 0)
		*outage = (struct ha_outage){steps, now_ns, ledger->epoch};
	return limit_ns > 0 && now_ns - outage->since_ns >= limit_ns &&
	       ledger->epoch >= outage->epoch + HA_OUTAGE_WAYS;
}
