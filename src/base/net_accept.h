/* SPDX-License-Identifier: Apache-2.0 */
/* Taking in who dials a listening socket, also when the process has no descriptors left. */
#ifndef HA_BASE_NET_ACCEPT_H
#define HA_BASE_NET_ACCEPT_H

#include "base/net.h"

#include <stdatomic.h>
#include <stdbool.h>

/*
 * A descriptor that is kept for the day when there is no other: given up, it lets one client in.
 * Shared by listening sockets of any threads.
 */
struct ha_net_reserve {
	_Atomic int fd; /* -1: none */
};

void ha_net_reserve_init(struct ha_net_reserve *reserve);
/* Nothing if there is one already, or none to be had. */
void ha_net_reserve_fill(struct ha_net_reserve *reserve);
void ha_net_reserve_close(struct ha_net_reserve *reserve);

/*
 * The next client of a listening socket that does not block: a descriptor that does not either,
 * and where it dials from. reserve: NULL for none. -1 with errno, which is a shortage only when
 * somebody waits.
 */
int ha_net_accept(int listener, struct ha_net_reserve *reserve, union ha_sockaddr *from);

/* Of descriptors or memory, ours or the host's: no client's fault, and it stays in the queue. */
bool ha_net_is_shortage(int error);

#endif
