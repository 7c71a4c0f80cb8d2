/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/failback.h"

static void lengthen(struct ha_failback *failback)
{
	failback->pause_ns *= 2;
	if (failback->pause_ns > HA_FAILBACK_MAX_NS)
		failback->pause_ns = HA_FAILBACK_MAX_NS;
}

enum ha_failback_now ha_failback_look(struct ha_failback *failback, bool is_away, uint64_t now_ns)
{
	if (!failback->first_ns)
		return HA_FAILBACK_WAITS;
	if (is_away != failback->was_away) {
		failback->was_away = is_away;
		failback->since_ns = now_ns;
	}
	if (!failback->since_ns ||
	    now_ns - failback->since_ns < (is_away ? failback->pause_ns : failback->first_ns))
		return HA_FAILBACK_WAITS;
	if (is_away) {
		failback->since_ns = now_ns;
		lengthen(failback);
		return HA_FAILBACK_ASKS;
	}
	failback->since_ns = 0;
	failback->pause_ns = failback->first_ns;
	return HA_FAILBACK_SETTLES;
}
