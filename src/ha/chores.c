/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/chores.h"

#include "base/clock.h"

/* Heartbeats are as frequent as every 10 ms, and are given up after three of them. */
#define WINDOW_NS (4 * HA_NS_PER_MS)
#define SLICE_NS  (2 * HA_NS_PER_MS)

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
