/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent says of one flow, as it is asked for with each message: no lock, and never a loop
 * that whoever writes could keep going.
 *
 * The file is read and not mapped: a page that its owner cuts off while it is mapped is a SIGBUS,
 * which would be the end of the job. As a call takes longer than a message may wait each time, what
 * was read is good for HA_HINT_FRESH_NS.
 */
#ifndef HA_HINTS_HINT_H
#define HA_HINTS_HINT_H

#include "nccl_ha/mpib_agent.h"

#include <stdint.h>

#define HA_HINT_TRIES	 8
#define HA_HINT_FRESH_NS 20000ull
#define HA_HINT_NONE	 UINT32_MAX /* nobody says anything: go by islands */

/* Both addresses of an entry as one word, as they lie in memory. */
typedef uint64_t ha_hint_ips_t;

struct ha_hint {
	/* hints.c writes, with `at` last. The descriptor is open while anybody may read. */
	uint32_t at; /* where in the file its entry begins; 0: it has none */
	int fd;
	ha_hint_ips_t ips; /* of this flow; 0: the agent fills in none */
	/* The reader's. */
	struct mpib_hint_entry seen; /* at the last look */
	uint64_t fresh_until_ns;
	uint32_t last; /* the last that was whole */
};

/* Looks into the file: `last` becomes what is there if that is whole and this flow's. */
void ha_hint_look(struct ha_hint *hint, uint32_t at);

/*
 * Parts of MPIB_HINT_ALL that the second rail is to carry, or HA_HINT_NONE. While an entry is being
 * written, for as long as that may take, when it is another flow's, and when the file ends before
 * it, the last one that was read stands. One reader of a hint at a time.
 */
static inline uint32_t ha_hint_read(struct ha_hint *hint, uint64_t now_ns)
{
	/* Acquire: the addresses that came with it. */
	const uint32_t at = __atomic_load_n(&hint->at, __ATOMIC_ACQUIRE);

	if (at == 0)
		return HA_HINT_NONE;
	if (now_ns >= hint->fresh_until_ns) {
		hint->fresh_until_ns = now_ns + HA_HINT_FRESH_NS;
		ha_hint_look(hint, at);
	}
	return hint->last;
}

#endif
