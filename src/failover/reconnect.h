/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another bootstrap socket for one that broke although both processes live: a reset by a firewall,
 * a management network that was away. Paths carry control messages meanwhile, but with one port at
 * each end there is none while its link is down, and without any channel the two ends cannot agree
 * on a new path.
 *
 * The sender dials (here), the receiver's server answers (reconnect_server.h). A receiver dials,
 * too, and hangs up: it asks whether the host of the sender's process still has its listening
 * socket. All of it is [T], on the progress thread.
 */
#ifndef HA_FAILOVER_RECONNECT_H
#define HA_FAILOVER_RECONNECT_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* The socket broke. False: there will be no other. */
bool ha_reconnect_begin(struct ha_comm *comm, uint64_t now_ns);

/* Dials, and looks what became of it; never waits. */
void ha_reconnect_visit(struct ha_comm *comm, uint64_t now_ns);

/* The peer's host answers that its process does not listen any more, and not for the first time. */
bool ha_reconnect_refused(const struct ha_comm *comm);

void ha_reconnect_free(struct ha_comm *comm);

#endif
