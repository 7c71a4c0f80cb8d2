/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/farewell.h"

#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/shared.h"
#include "failover/signaling.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/shared.h"

#include <stdlib.h>

void ha_farewells_init(struct ha_farewells *farewells)
{
	*farewells = (struct ha_farewells){0};
	pthread_mutex_init(&farewells->lock, NULL);
}

static struct ha_farewell *at(const struct ha_farewells *farewells, unsigned i)
{
	return &farewells->ring[(farewells->first + i) % HA_FAREWELLS_MAX];
}

static void forget_oldest(struct ha_farewells *farewells)
{
	ha_auth_forget(&at(farewells, 0)->auth);
	farewells->first = (farewells->first + 1) % HA_FAREWELLS_MAX;
	farewells->n--;
}

void ha_farewells_free(struct ha_farewells *farewells)
{
	while (farewells->n != 0)
		forget_oldest(farewells);
	free(farewells->ring);
	pthread_mutex_destroy(&farewells->lock);
}

/* All are kept equally long. */
static void forget_due(struct ha_farewells *farewells, uint64_t now_ns)
{
	while (farewells->n != 0 && now_ns >= at(farewells, 0)->until_ns)
		forget_oldest(farewells);
}

struct ha_farewell *ha_farewells_add(struct ha_farewells *farewells, uint64_t now_ns)
{
	forget_due(farewells, now_ns);
	if (!farewells->ring)
		farewells->ring = calloc(HA_FAREWELLS_MAX, sizeof(*farewells->ring));
	if (!farewells->ring)
		return NULL;
	if (farewells->n == HA_FAREWELLS_MAX)
		forget_oldest(farewells);
	return at(farewells, farewells->n++);
}

struct ha_farewell *ha_farewells_find(struct ha_farewells *farewells, uint64_t peer_id,
				      uint64_t now_ns)
{
	forget_due(farewells, now_ns);
	for (unsigned i = 0; i < farewells->n; i++)
		if (at(farewells, i)->peer_id == peer_id)
			return at(farewells, i);
	return NULL;
}

/* Somebody may dial and ask for it. */
static bool may_be_missed(const struct ha_comm *comm)
{
	return !comm->is_send && !atomic_load(&comm->peer_bye) &&
	       ha_secrets_known(&comm->failover->reconnect_at.secrets);
}

void ha_farewell_keep(struct ha_comm *comm, const struct ha_message *bye)
{
	struct ha_farewells *farewells = &comm->inst->failover_shared->farewells;
	const uint64_t now_ns = ha_now_ns();
	const struct ha_failover *fo = comm->failover;
	struct ha_farewell *farewell;

	if (!may_be_missed(comm))
		return;
	pthread_mutex_lock(&farewells->lock);
	farewell = ha_farewells_add(farewells, now_ns);
	if (farewell)
		*farewell = (struct ha_farewell){
		    .until_ns = now_ns + ha_signaling_deadline_ns(comm),
		    .peer_id = comm->peer_id,
		    .secrets = fo->reconnect_at.secrets,
		    .next = fo->next_secrets,
		    .peer = comm->ctrl_sock->peer,
		    .auth = comm->auth,
		    .bye = *bye,
		};
	pthread_mutex_unlock(&farewells->lock);
	if (!farewell)
		HA_TRACE(1, "connection %s: out of memory for its goodbye", comm->name);
}
