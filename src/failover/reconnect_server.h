/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a sender whose bootstrap socket broke dials in again: one listening socket per process,
 * whatever number of connections it receives on. HELLO tells the sender where it is, and two
 * secrets of the connection's own.
 *
 * Anyone can connect to it. A *client* has a seat (base/seats.h) and a deadline until its first
 * frame, REJOIN, names a connection and a secret of it, from the address that this connection's
 * peer has, and until it has heard the answer and says READY; then its socket becomes that
 * connection's control socket, and the secret is of no use any more. One who hangs up without a
 * word is a receiver whose socket broke, and that asks whether this process is still there.
 * Everyone else is turned away, and counted, without any harm to a connection, and while all of
 * them have their sockets, at either end as far as is known, only 200 a second are looked at.
 */
#ifndef HA_FAILOVER_RECONNECT_SERVER_H
#define HA_FAILOVER_RECONNECT_SERVER_H

#include "base/net.h"

#include <stdbool.h>

struct ha_instance;

/* Opens it if it is not yet, and tells where it is. False: there is none, said in the log. Any
 * thread but the progress thread. */
bool ha_reconnect_server_open(struct ha_instance *inst, union ha_sockaddr *addr);

/* At the end of the instance, before its progress thread's. */
void ha_reconnect_server_close(struct ha_instance *inst);

#endif
