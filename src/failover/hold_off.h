/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom: while connections of the process are moving to other paths, whoever does not
 * need a path at once leaves device and threads to them.
 */
#ifndef HA_FAILOVER_HOLD_OFF_H
#define HA_FAILOVER_HOLD_OFF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_hold_off {
	/* Connections were about to move, or had moved: the last time, and the first one since
	 * nothing did. 0: never. */
	_Atomic uint64_t moved_ns, moving_ns;
};

/* A connection of the process moves to another path. Any thread. */
void ha_hold_off_moving(struct ha_hold_off *hold_off, uint64_t now_ns);

/*
 * Until when what can wait should wait; 0 or a time of the past: no longer. However much is moving,
 * nothing waits for longer than HA_HOLD_OFF_MAX_MS. Any thread.
 */
#define HA_HOLD_OFF_MAX_MS 500
uint64_t ha_hold_off_until_ns(const struct ha_hold_off *hold_off, uint64_t now_ns);

#endif
