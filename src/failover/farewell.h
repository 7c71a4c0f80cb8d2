/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a receiver that has closed would still say.
 *
 * It closes when it has all it wanted. Its last acknowledgements and its goodbye may be lost all
 * the same, with the socket and the path they were on, and a sender that does not hear of them
 * waits for an end that is gone. So the process keeps each goodbye, with what the sender must know
 * to be told, for as long as a sender bears an outage: one that dials meanwhile hears it then
 * (reconnect_server.c).
 *
 * Of one whose sender has closed before nothing is kept, and nothing of a sender: nobody waits for
 * them.
 */
#ifndef HA_FAILOVER_FAREWELL_H
#define HA_FAILOVER_FAREWELL_H

#include "base/net.h"
#include "failover/message.h"
#include "transport/auth.h"
#include "transport/secrets.h"

#include <pthread.h>

/* When more close within the time the oldest go first. Their memory is made once, for all. */
#define HA_FAREWELLS_MAX 512

struct ha_comm;

struct ha_farewell {
	uint64_t until_ns;	   /* for so long it is kept, on ha_now_ns's clock */
	uint64_t peer_id;	   /* of the sender's end */
	struct ha_secrets secrets; /* the connection's, when it closed */
	struct ha_secrets next;	   /* said for the next time, perhaps not heard */
	union ha_sockaddr peer;	   /* where the sender dials from */
	struct ha_auth auth;
	struct ha_message bye;
};

/* A process's, in the order in which they are forgotten. */
struct ha_farewells {
	pthread_mutex_t lock; /* no lock of an instance or a connection is taken with it */
	struct ha_farewell *ring;
	unsigned first, n;
};

void ha_farewells_init(struct ha_farewells *farewells);
void ha_farewells_free(struct ha_farewells *farewells);

/* A place to write one to, the oldest one's when there is none. NULL: out of memory. With the lock,
 * until it is written. */
struct ha_farewell *ha_farewells_add(struct ha_farewells *farewells, uint64_t now_ns);
/* NULL: there is none, or none any more. With the lock, as long as it is used. */
struct ha_farewell *ha_farewells_find(struct ha_farewells *farewells, uint64_t peer_id,
				      uint64_t now_ns);

/* Keeps what is about to be said, if somebody may not hear it. At the end of the connection, when
 * the background does not know it any more. [T] */
void ha_farewell_keep(struct ha_comm *comm, const struct ha_message *bye);

#endif
