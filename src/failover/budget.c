/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/budget.h"

#include "base/clock.h"

/* From one connection's move to the next one's it is a few milliseconds. */
#define QUIET_NS (50 * HA_NS_PER_MS)

void ha_chores_moving(struct ha_chores *chores, uint64_t now_ns)
{
	uint64_t before_ns =
	    atomic_exchange_explicit(&chores->moved_ns, now_ns, memory_order_relaxed);

	if (before_ns == 0 || now_ns >= before_ns + QUIET_NS)
		atomic_store_explicit(&chores->moving_ns, now_ns, memory_order_relaxed);
}

uint64_t ha_chores_wait_ns(const struct ha_chores *chores, uint64_t now_ns)
{
	uint64_t moved_ns = atomic_load_explicit(&chores->moved_ns, memory_order_relaxed);
	uint64_t moving_ns = atomic_load_explicit(&chores->moving_ns, memory_order_relaxed);
	uint64_t quiet_ns = moved_ns + QUIET_NS;
	uint64_t at_most_ns = moving_ns + HA_CHORES_WAIT_MAX_MS * HA_NS_PER_MS;

	if (moved_ns == 0 || now_ns >= quiet_ns)
		return 0;
	return quiet_ns < at_most_ns ? quiet_ns : at_most_ns;
}
