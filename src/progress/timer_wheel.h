/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which poller is to be visited when: a wheel with a list for each of the next milliseconds.
 * Putting one in and taking one out cost the same however many there are, and a round touches only
 * those whose time has come. Nothing is allocated. For one thread at a time: the round lock's
 * holder.
 */
#ifndef HA_PROGRESS_TIMER_WHEEL_H
#define HA_PROGRESS_TIMER_WHEEL_H

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_TIMER_WHEEL_SLOTS 256 /* later than this many milliseconds is looked at on the way */

struct ha_timer_wheel {
	uint64_t done_ms; /* everything up to here was taken */
	struct ha_list slots[HA_TIMER_WHEEL_SLOTS];
};

/* Embedded in what is scheduled. Initialise `link` with ha_list_init; removing it from the list
 * takes it off the schedule. */
struct ha_timer {
	struct ha_list link;
	uint64_t at_ms;
	const void *first; /* a line that its visit needs, to be fetched while another is visited */
};

void ha_timer_wheel_init(struct ha_timer_wheel *wheel, uint64_t now_ns);

/* In whole milliseconds upwards, or the next one if that is over. Moves one that was in already. */
void ha_timer_wheel_put(struct ha_timer_wheel *wheel, struct ha_timer *timer, uint64_t at_ns);

/*
 * Moves the links of all that may be due to the end of `due`, which is a list, without looking at
 * them: whoever looks asks for each whether its time has really come.
 */
void ha_timer_wheel_take(struct ha_timer_wheel *wheel, uint64_t now_ns, struct ha_list *due);
/* True: it has not, and it is in again. */
bool ha_timer_wheel_defer(struct ha_timer_wheel *wheel, struct ha_timer *timer);

/* When somebody has to look again; UINT64_MAX: there is nothing. */
uint64_t ha_timer_wheel_next_ns(const struct ha_timer_wheel *wheel);

#endif
