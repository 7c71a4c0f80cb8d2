/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs that take long, and a thread that must not: making, connecting and destroying queue pairs
 * takes a device up to milliseconds each, and when a port with hundreds of connections fails, each
 * of them wants it. The thread that does it also answers heartbeats, and a peer whose heartbeats
 * are not answered takes us for dead, which makes even more of it.
 *
 * So chores may have half of the thread's time: after a slice of them the rest waits for another
 * visit. Progress thread only.
 */
#ifndef HA_HA_CHORES_H
#define HA_HA_CHORES_H

#include <stdbool.h>
#include <stdint.h>

struct ha_chores {
	uint64_t window_ns; /* when the present window began */
	uint64_t spent_ns;  /* on chores in it */
};

/* Whether another chore may begin now. If so, ha_chore_done must follow with the same time. */
bool ha_chore_begin(struct ha_chores *chores, uint64_t now_ns);
void ha_chore_done(struct ha_chores *chores, uint64_t begun_ns);

#endif
