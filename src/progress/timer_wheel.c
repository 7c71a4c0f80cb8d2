/* SPDX-License-Identifier: Apache-2.0 */
#include "progress/timer_wheel.h"

#include "base/clock.h"

static struct ha_list *slot_of(struct ha_schedule *schedule, uint64_t ms)
{
	return &schedule->slots[ms % HA_SCHEDULE_SLOTS];
}

void ha_schedule_init(struct ha_schedule *schedule, uint64_t now_ns)
{
	schedule->done_ms = now_ns / HA_NS_PER_MS;
	for (unsigned i = 0; i < HA_SCHEDULE_SLOTS; i++)
		ha_list_init(&schedule->slots[i]);
}

/* Where it belongs by its time: what is far away, as far as the wheel goes. */
static void place(struct ha_schedule *schedule, struct ha_schedule_entry *entry)
{
	uint64_t ms = entry->at_ms;

	if (ms <= schedule->done_ms)
		ms = schedule->done_ms + 1;
	if (ms > schedule->done_ms + HA_SCHEDULE_SLOTS)
		ms = schedule->done_ms + HA_SCHEDULE_SLOTS;
	ha_list_remove(&entry->link);
	ha_list_push_back(slot_of(schedule, ms), &entry->link);
}

void ha_schedule_put(struct ha_schedule *schedule, struct ha_schedule_entry *entry, uint64_t at_ns)
{
	entry->at_ms = at_ns / HA_NS_PER_MS + (at_ns % HA_NS_PER_MS != 0);
	place(schedule, entry);
}

void ha_schedule_take(struct ha_schedule *schedule, uint64_t now_ns, struct ha_list *due)
{
	uint64_t now_ms = now_ns / HA_NS_PER_MS, from = schedule->done_ms + 1;

	if (now_ms <= schedule->done_ms)
		return;
	if (now_ms - schedule->done_ms > HA_SCHEDULE_SLOTS) /* once round is all of them */
		from = now_ms - HA_SCHEDULE_SLOTS + 1;
	schedule->done_ms = now_ms;
	for (uint64_t ms = from; ms <= now_ms; ms++)
		ha_list_move_all(due, slot_of(schedule, ms));
}

bool ha_schedule_defer(struct ha_schedule *schedule, struct ha_schedule_entry *entry)
{
	if (entry->at_ms <= schedule->done_ms)
		return false;
	place(schedule, entry);
	return true;
}

uint64_t ha_schedule_next_ns(const struct ha_schedule *schedule)
{
	for (uint64_t ms = schedule->done_ms + 1; ms <= schedule->done_ms + HA_SCHEDULE_SLOTS; ms++)
		if (!ha_list_empty(&schedule->slots[ms % HA_SCHEDULE_SLOTS]))
			return ms * HA_NS_PER_MS;
	return UINT64_MAX;
}
