/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-agent/registry.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_SLOT MPIB_HINT_MAX_ENTRIES

void na_registry_begin(struct na_registry *r, void (*changed)(void *arg, unsigned slot), void *arg)
{
	memset(r, 0, sizeof(*r));
	ha_list_init(&r->clients);
	r->changed = changed;
	r->arg = arg;
}

void na_registry_end(struct na_registry *r)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &r->clients)
		na_client_end(r, ha_container_of(pos, struct na_client, link));
}

/* ---- flows ----------------------------------------------------------------------------------- */

static bool same_flow(const struct ha_agent_flow *a, const struct ha_agent_flow *b)
{
	return a->sout_src_ip == b->sout_src_ip && a->sout_dst_ip == b->sout_dst_ip;
}

/* Its slot, or a free one, or NO_SLOT. */
static unsigned slot_for(const struct na_registry *r, const struct ha_agent_flow *addresses)
{
	unsigned free_slot = NO_SLOT;

	for (unsigned slot = 0; slot < MPIB_HINT_MAX_ENTRIES; slot++) {
		const struct na_flow *flow = &r->flows[slot];

		if (flow->users > 0 && same_flow(&flow->addresses, addresses))
			return slot;
		if (flow->users == 0 && free_slot == NO_SLOT)
			free_slot = slot;
	}
	return free_slot;
}

static void take(struct na_registry *r, unsigned slot, const struct ha_agent_flow *addresses)
{
	struct na_flow *flow = &r->flows[slot];

	if (flow->users++ > 0)
		return;
	flow->addresses = *addresses;
	flow->share = 0;
	r->changed(r->arg, slot);
}

static void give_back(struct na_registry *r, unsigned slot)
{
	struct na_flow *flow = &r->flows[slot];

	if (--flow->users > 0)
		return;
	*flow = (struct na_flow){0};
	r->changed(r->arg, slot);
}

/* ---- processes ------------------------------------------------------------------------------- */

static bool has_died(const struct na_client *client)
{
	struct pollfd p = {.fd = client->pidfd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

struct na_client *na_client_find(struct na_registry *r, pid_t pid)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &r->clients) {
		struct na_client *client = ha_container_of(pos, struct na_client, link);

		if (client->pid == pid && !has_died(client))
			return client;
	}
	return NULL;
}

struct na_client *na_client_new(struct na_registry *r, pid_t pid)
{
	struct na_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->pid = pid;
	client->pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	if (client->pidfd < 0) {
		free(client);
		return NULL;
	}
	ha_list_push_back(&r->clients, &client->link);
	return client;
}

void na_client_end(struct na_registry *r, struct na_client *client)
{
	for (unsigned i = 0; i < client->n; i++)
		give_back(r, client->conns[i].slot);
	ha_list_remove(&client->link);
	close(client->pidfd);
	free(client->conns);
	free(client);
}

/* ---- connections ----------------------------------------------------------------------------- */

static struct na_conn *conn_of(const struct na_client *client, uint32_t id)
{
	for (unsigned i = 0; i < client->n; i++)
		if (client->conns[i].id == id)
			return &client->conns[i];
	return NULL;
}

static struct na_conn *conn_new(struct na_client *client, uint32_t id)
{
	if (client->n == NA_CONNS_MAX)
		return NULL;
	if (client->n == client->size) {
		unsigned size = client->size ? 2 * client->size : 16;
		struct na_conn *grown = realloc(client->conns, size * sizeof(*grown));

		if (!grown)
			return NULL;
		client->conns = grown;
		client->size = size;
	}
	client->conns[client->n] = (struct na_conn){.id = id, .slot = NO_SLOT};
	return &client->conns[client->n++];
}

static void conn_end(struct na_client *client, struct na_conn *conn)
{
	*conn = client->conns[--client->n];
}

enum mpib_agent_status na_register(struct na_registry *r, struct na_client *client,
				   uint32_t conn_id, const struct ha_agent_flow *addresses,
				   unsigned *slot)
{
	struct na_conn *conn = conn_of(client, conn_id);

	if (conn && same_flow(&r->flows[conn->slot].addresses, addresses)) {
		*slot = conn->slot;
		return MPIB_AGENT_OK;
	}
	if (conn) {
		give_back(r, conn->slot);
		conn_end(client, conn);
	}
	*slot = slot_for(r, addresses);
	if (*slot == NO_SLOT)
		return MPIB_AGENT_NO_FREE_SLOTS;
	conn = conn_new(client, conn_id);
	if (!conn)
		return MPIB_AGENT_NO_FREE_SLOTS;
	conn->slot = *slot;
	take(r, *slot, addresses);
	return MPIB_AGENT_OK;
}

enum mpib_agent_status na_deregister(struct na_registry *r, struct na_client *client,
				     uint32_t conn_id)
{
	struct na_conn *conn = conn_of(client, conn_id);

	if (!conn)
		return MPIB_AGENT_INVALID;
	give_back(r, conn->slot);
	conn_end(client, conn);
	return MPIB_AGENT_OK;
}
