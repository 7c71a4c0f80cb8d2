/* SPDX-License-Identifier: Apache-2.0 */
#include "progress/timer_wheel.h"

#include "base/clock.h"
#include "base/invariant.h"

static struct ha_list *slot_of(struct ha_timer_wheel *wheel, uint64_t ms)
{
	return &wheel->slots[ms % HA_TIMER_WHEEL_SLOTS];
}

void ha_timer_wheel_init(struct ha_timer_wheel *wheel, uint64_t now_ns)
{
	wheel->done_ms = now_ns / HA_NS_PER_MS;
	for (unsigned i = 0; i < HA_TIMER_WHEEL_SLOTS; i++)
		ha_list_init(&wheel->slots[i]);
}

/* Where it belongs by its time: what is far away, as far as the wheel goes. */
static void place(struct ha_timer_wheel *wheel, struct ha_timer *timer)
{
	uint64_t ms = timer->at_ms;

	if (ms <= wheel->done_ms)
		ms = wheel->done_ms + 1;
	if (ms > wheel->done_ms + HA_TIMER_WHEEL_SLOTS)
		ms = wheel->done_ms + HA_TIMER_WHEEL_SLOTS;
	HA_INVARIANT(ms > wheel->done_ms && ms <= wheel->done_ms + HA_TIMER_WHEEL_SLOTS);
	ha_list_remove(&timer->link);
	ha_list_push_back(slot_of(wheel, ms), &timer->link);
}

void ha_timer_wheel_put(struct ha_timer_wheel *wheel, struct ha_timer *timer, uint64_t at_ns)
{
	timer->at_ms = at_ns / HA_NS_PER_MS + (at_ns % HA_NS_PER_MS != 0);
	place(wheel, timer);
}

void ha_timer_wheel_take(struct ha_timer_wheel *wheel, uint64_t now_ns, struct ha_list *due)
{
	uint64_t now_ms = now_ns / HA_NS_PER_MS, from = wheel->done_ms + 1;

	if (now_ms <= wheel->done_ms)
		return;
	if (now_ms - wheel->done_ms > HA_TIMER_WHEEL_SLOTS) /* once round is all of them */
		from = now_ms - HA_TIMER_WHEEL_SLOTS + 1;
	HA_INVARIANT(from > wheel->done_ms && now_ms - from < HA_TIMER_WHEEL_SLOTS);
	wheel->done_ms = now_ms;
	for (uint64_t ms = from; ms <= now_ms; ms++)
		ha_list_move_all(due, slot_of(wheel, ms));
	HA_INVARIANT(ha_list_empty(slot_of(wheel, now_ms)));
}

bool ha_timer_wheel_defer(struct ha_timer_wheel *wheel, struct ha_timer *timer)
{
	if (timer->at_ms <= wheel->done_ms)
		return false;
	place(wheel, timer);
	return true;
}

uint64_t ha_timer_wheel_next_ns(const struct ha_timer_wheel *wheel)
{
	for (uint64_t ms = wheel->done_ms + 1; ms <= wheel->done_ms + HA_TIMER_WHEEL_SLOTS; ms++)
		if (!ha_list_empty(&wheel->slots[ms % HA_TIMER_WHEEL_SLOTS]))
			return ms * HA_NS_PER_MS;
	return UINT64_MAX;
}
