/* SPDX-License-Identifier: Apache-2.0 */
/* What must always hold of what keeps a connection alive, between two visits: see
 * base/invariant.h. */
#ifndef HA_FAILOVER_CHECK_H
#define HA_FAILOVER_CHECK_H

#include <stdint.h>

struct ha_comm;

#ifdef HA_INVARIANTS
/* What only grows, as it was at the last look. */
struct ha_slot_seen {
	uint32_t newest_gen, want_gen, fenced_gen, yielded_gen, settled_gen;
	uint32_t peer_fenced_gen, peer_yielded_gen;
};

struct ha_failover_seen {
	uint32_t epoch, traffic_epoch, reconnected;
	uint64_t done, peer_done;
};

/* The state machines, slots, watermarks and windows. [T] */
void ha_failover_check(struct ha_comm *comm);
#else
static inline void ha_failover_check(struct ha_comm *comm)
{
	(void)comm;
}
#endif

#endif
