/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that take long, and a thread that must not: making, connecting and destroying queue pairs
 * takes a device up to milliseconds each, and when a port with hundreds of connections fails, each
 * of them wants it. The thread that does it also answers heartbeats, and a peer whose heartbeats
 * are not answered takes us for dead, which makes even more of it.
 *
 * So chores may have half of the thread's time: after a slice of them the rest waits for another
 * visit. And while connections of the process are moving to other paths, whoever does not need a
 * path at once leaves device and thread to them.
 */
#ifndef HA_FAILOVER_BUDGET_H
#define HA_FAILOVER_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_chores {
	uint64_t window_ns; /* when the present window began */
	uint64_t spent_ns;  /* on chores in it */
	/* Connections were about to move, or had moved: the last time, and the first one since
	 * nothing did. 0: never. */
	_Atomic uint64_t moved_ns, moving_ns;
};

/* Whether another chore may begin now. If so, ha_chore_done must follow with the same time.
 * Progress thread. */
bool ha_chore_begin(struct ha_chores *chores, uint64_t now_ns);
void ha_chore_done(struct ha_chores *chores, uint64_t begun_ns);

/* A connection of the process moves to another path. Any thread. */
void ha_chores_moving(struct ha_chores *chores, uint64_t now_ns);

/*
 * Until when what can wait should wait; 0 or a time of the past: no longer. However much is moving,
 * nothing waits for longer than HA_CHORES_WAIT_MAX_MS. Any thread.
 */
#define HA_CHORES_WAIT_MAX_MS 500
uint64_t ha_chores_wait_ns(const struct ha_chores *chores, uint64_t now_ns);

#endif
