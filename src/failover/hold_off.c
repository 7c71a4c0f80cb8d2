/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/hold_off.h"

#include "base/clock.h"

/* From one connection's move to the next one's it is a few milliseconds. */
#define QUIET_NS (50 * HA_NS_PER_MS)

void ha_hold_off_moving(struct ha_hold_off *hold_off, uint64_t now_ns)
{
	uint64_t before_ns =
	    atomic_exchange_explicit(&hold_off->moved_ns, now_ns, memory_order_relaxed);

	if (before_ns == 0 || now_ns >= before_ns + QUIET_NS)
		atomic_store_explicit(&hold_off->moving_ns, now_ns, memory_order_relaxed);
}

uint64_t ha_hold_off_until_ns(const struct ha_hold_off *hold_off, uint64_t now_ns)
{
	uint64_t moved_ns = atomic_load_explicit(&hold_off->moved_ns, memory_order_relaxed);
	uint64_t moving_ns = atomic_load_explicit(&hold_off->moving_ns, memory_order_relaxed);
	uint64_t quiet_ns = moved_ns + QUIET_NS;
	uint64_t at_most_ns = moving_ns + HA_HOLD_OFF_MAX_MS * HA_NS_PER_MS;

	if (moved_ns == 0 || now_ns >= quiet_ns)
		return 0;
	return quiet_ns < at_most_ns ? quiet_ns : at_most_ns;
}
