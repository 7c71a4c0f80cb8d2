/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a group that has left the trees of its plan asks whether they could be gone back to: after
 * a pause, and when it has come to nothing after one twice as long. A group that has been back for
 * as long as the first pause begins with that again, and where it would go next when its trees fail
 * is forgotten.
 *
 * Knows no network, and the time is the caller's.
 */
#ifndef HA_INC_FAILBACK_H
#define HA_INC_FAILBACK_H

#include <stdbool.h>
#include <stdint.h>

#define HA_FAILBACK_MAX_NS 60000000000ull /* the longest pause */

struct ha_failback {
	uint64_t first_ns; /* pause; 0: it is never asked */
	uint64_t pause_ns; /* the present one */
	uint64_t since_ns; /* when it began, or the group was back; 0: not yet */
	bool was_away;
};

enum ha_failback_now {
	HA_FAILBACK_WAITS,
	HA_FAILBACK_ASKS,    /* it is time to */
	HA_FAILBACK_SETTLES, /* it has been back for long enough */
};

static inline struct ha_failback ha_failback_after(uint64_t first_ns)
{
	return (struct ha_failback){.first_ns = first_ns, .pause_ns = first_ns};
}

/* To be called again and again; each answer but WAITS is given once. */
enum ha_failback_now ha_failback_look(struct ha_failback *failback, bool is_away, uint64_t now_ns);

#endif
