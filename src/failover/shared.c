/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/shared.h"

#include "failover/reconnect_server.h"

#include <stdlib.h>

struct ha_failover_shared *ha_failover_shared_new(void)
{
	struct ha_failover_shared *shared = calloc(1, sizeof(*shared));

	if (!shared)
		return NULL;
	pthread_mutex_init(&shared->server_lock, NULL);
	ha_farewells_init(&shared->farewells);
	return shared;
}

void ha_failover_shared_free(struct ha_instance *inst, struct ha_failover_shared *shared)
{
	if (!shared)
		return;
	ha_reconnect_server_close(inst);
	ha_farewells_free(&shared->farewells);
	pthread_mutex_destroy(&shared->server_lock);
	free(shared);
}
