/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For how long something that is waited for has not moved. To be asked again and again; reads no
 * clock where nothing stands still. One thread.
 */
#ifndef HA_GIN_VERBS_STANDSTILL_H
#define HA_GIN_VERBS_STANDSTILL_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_gin_standstill {
	uint64_t seen, since_ns; /* the count at the last look, and since when; 0: it moves */
};

/* `count` is of what has come; false: nothing is waited for. */
static inline uint64_t ha_gin_stands_ns(struct ha_gin_standstill *still, uint64_t count,
					bool is_waited_for)
{
	uint64_t now_ns;

	if (!is_waited_for || count != still->seen) {
		*still = (struct ha_gin_standstill){.seen = count};
		return 0;
	}
	now_ns = ha_now_ns();
	if (!still->since_ns)
		still->since_ns = now_ns;
	return now_ns - still->since_ns;
}

#endif
