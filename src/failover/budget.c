/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/budget.h"

#include "base/clock.h"

/* Heartbeats are as frequent as every 10 ms, and are given up after three of them. */
#define WINDOW_NS (4 * HA_NS_PER_MS)
#define SLICE_NS  (2 * HA_NS_PER_MS)

/* From one connection's move to the next one's it is a few milliseconds. */
#define QUIET_NS (50 * HA_NS_PER_MS)

bool ha_chore_begin(struct ha_chores *chores, uint64_t now_ns)
{
	if (now_ns - chores->window_ns >= WINDOW_NS) {
		/* What one chore took beyond its slice is made up for in the next windows. */
		chores->spent_ns =
		    chores->spent_ns > SLICE_NS && now_ns - chores->window_ns < 4 * WINDOW_NS
			? chores->spent_ns - SLICE_NS
			: 0;
		chores->window_ns = now_ns;
	}
	return chores->spent_ns < SLICE_NS;
}

void ha_chore_done(struct ha_chores *chores, uint64_t begun_ns)
{
	chores->spent_ns += ha_now_ns() - begun_ns;
}

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
