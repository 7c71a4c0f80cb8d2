/* SPDX-License-Identifier: Apache-2.0 */
#include "ha/failback.h"

#include "base/clock.h"
#include "ha/choice.h"
#include "ha/failover.h"
#include "transport/comm.h"

/* The hold doubles each time the path fails again within HOLD_RESET. */
#define HOLD_MIN_MS   1000
#define HOLD_MAX_MS   60000
#define HOLD_RESET_NS (60 * HA_NS_PER_S)

void ha_failback_init(struct ha_failback *back)
{
	*back = (struct ha_failback){.hold_ms = HOLD_MIN_MS};
}

/* 0: there is nothing to go back to on path p. */
static uint64_t held_until_ns(const struct ha_failback *back, const struct ha_comm *comm,
			      unsigned p)
{
	const struct ha_slot *slot = &comm->failover.slots[p];

	if (slot->up_ns == 0 || !ha_choice_is_better(comm, p))
		return 0;
	return slot->up_ns + back->hold_ms * HA_NS_PER_MS;
}

static void widen(struct ha_failback *back, uint64_t now_ns)
{
	if (back->back_ns == 0 || now_ns - back->back_ns >= HOLD_RESET_NS)
		back->hold_ms = HOLD_MIN_MS;
	else if (back->hold_ms < HOLD_MAX_MS / 2)
		back->hold_ms *= 2;
	else
		back->hold_ms = HOLD_MAX_MS;
}

uint64_t ha_failback_due_ns(const struct ha_failback *back, const struct ha_comm *comm)
{
	uint64_t due_ns = 0;

	if (!comm->config->enable_failback)
		return 0;
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		uint64_t until_ns = held_until_ns(back, comm, p);

		if (until_ns != 0 && (due_ns == 0 || until_ns < due_ns))
			due_ns = until_ns;
	}
	return due_ns;
}

void ha_failback_visit(struct ha_failback *back, struct ha_comm *comm, uint64_t now_ns)
{
	uint64_t due_ns = ha_failback_due_ns(back, comm);

	if (due_ns == 0 || now_ns < due_ns)
		return;
	widen(back, now_ns);
	back->back_ns = now_ns;
	ha_failover_leave(comm, HA_REASON_FAILBACK);
}
