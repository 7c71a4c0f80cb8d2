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
	pthread_mutex_init(&farewells->lock, NULL);
	ha_list_init(&farewells->list);
	farewells->n = 0;
}

static void forget_oldest(struct ha_farewells *farewells)
{
	struct ha_list *first = ha_list_pop_front(&farewells->list);
	struct ha_farewell *oldest = ha_container_of(first, struct ha_farewell, link);

	farewells->n--;
	ha_auth_forget(&oldest->auth);
	free(oldest);
}

void ha_farewells_free(struct ha_farewells *farewells)
{
	while (farewells->n != 0)
		forget_oldest(farewells);
	pthread_mutex_destroy(&farewells->lock);
}

/* All are kept equally long. */
static bool oldest_is_due(const struct ha_farewells *farewells, uint64_t now_ns)
{
	const struct ha_list *first = farewells->list.next;

	return farewells->n != 0 &&
	       now_ns >= ha_container_of(first, struct ha_farewell, link)->until_ns;
}

static void forget_due(struct ha_farewells *farewells, uint64_t now_ns)
{
	while (oldest_is_due(farewells, now_ns))
		forget_oldest(farewells);
}

void ha_farewells_add(struct ha_farewells *farewells, struct ha_farewell *farewell, uint64_t now_ns)
{
	pthread_mutex_lock(&farewells->lock);
	forget_due(farewells, now_ns);
	if (farewells->n == HA_FAREWELLS_MAX)
		forget_oldest(farewells);
	ha_list_push_back(&farewells->list, &farewell->link);
	farewells->n++;
	pthread_mutex_unlock(&farewells->lock);
}

struct ha_farewell *ha_farewells_find(struct ha_farewells *farewells, uint64_t peer_id,
				      uint64_t now_ns)
{
	struct ha_list *pos;

	forget_due(farewells, now_ns);
	ha_list_for_each (pos, &farewells->list) {
		struct ha_farewell *farewell = ha_container_of(pos, struct ha_farewell, link);

		if (farewell->peer_id == peer_id)
			return farewell;
	}
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
	const uint64_t now_ns = ha_now_ns();
	const struct ha_failover *fo = comm->failover;
	struct ha_farewell *farewell;

	if (!may_be_missed(comm))
		return;
	farewell = calloc(1, sizeof(*farewell));
	if (!farewell) {
		HA_TRACE(1, "connection %s: out of memory for its goodbye", comm->name);
		return;
	}
	farewell->until_ns = now_ns + ha_signaling_deadline_ns(comm);
	farewell->peer_id = comm->peer_id;
	farewell->secrets = fo->reconnect_at.secrets;
	farewell->next = fo->next_secrets;
	farewell->peer = comm->ctrl_sock->peer;
	farewell->auth = comm->auth;
	farewell->bye = *bye;
	ha_farewells_add(&comm->inst->failover_shared->farewells, farewell, now_ns);
}
