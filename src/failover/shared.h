/* SPDX-License-Identifier: Apache-2.0 */
/* What the connections of a process share to be kept alive. */
#ifndef HA_FAILOVER_SHARED_H
#define HA_FAILOVER_SHARED_H

#include "failover/farewell.h"
#include "failover/hold_off.h"

#include <pthread.h>

struct ha_reconnect_server;
struct ha_instance;

struct ha_failover_shared {
	struct ha_hold_off hold_off;
	struct ha_farewells farewells;

	/* Made with the first connection that has failover. */
	pthread_mutex_t server_lock; /* held while it is made; never by the progress thread */
	struct ha_reconnect_server *reconnect_server;
};

/* NULL: no memory. */
struct ha_failover_shared *ha_failover_shared_new(void);
/* Every connection is gone, the progress thread still runs. NULL is fine. */
void ha_failover_shared_free(struct ha_instance *inst, struct ha_failover_shared *shared);

#endif
