/* SPDX-License-Identifier: Apache-2.0 */
#include "liveness/session_address.h"

#include "base/clock.h"
#include "device/unreachable.h"
#include "liveness/session.h"
#include "progress/progress.h"

#include <stdlib.h>
#include <string.h>

/* After an address could not be resolved: a second at least, and ten times what the try took. */
#define ADDRESS_PAUSE_NS     HA_NS_PER_S
#define ADDRESS_PAUSE_FACTOR 10

static struct ha_commands *commands_of(const struct ha_session *s)
{
	return ha_progress_commands(s->port->live->progress, (unsigned)s->port->port->nic->index);
}

/* A thread of the commands. */
static void resolve(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);
	uint64_t began_ns = ha_now_ns();

	address->ah = ha_ud_qp_address(address->ud_qp, &address->to);
	address->took_ns = ha_now_ns() - began_ns;
}

/* A thread of the commands. */
static void destroy_handle(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);

	ha_ud_qp_address_free(address->ud_qp, address->ah);
	address->ah = NULL;
}

static void free_address(struct ha_command *command)
{
	struct ha_live_address *address = ha_container_of(command, struct ha_live_address, command);

	ha_ud_qp_close(address->ud_qp);
	free(address);
}

/* A thread of the commands: a query that was left, whatever came of it. */
static void free_query(struct ha_command *command)
{
	destroy_handle(command);
	free_address(command);
}

/* Nobody sends to it any more. Never waits for the device. */
static void drop(const struct ha_session *s, struct ha_live_address *address)
{
	struct ha_commands *commands = commands_of(s);

	if (!address)
		return;
	if (!address->ah) {
		free_address(&address->command);
		return;
	}
	address->command.run = destroy_handle;
	address->command.abandoned = free_address;
	address->command.kind = HA_COMMAND_CLEAN;
	/* One thread does it for all of a port's. */
	address->command.key = (uintptr_t)address->ud_qp;
	ha_command_send(commands, &address->command);
	ha_command_leave(commands, &address->command);
}

static void ask(struct ha_session *s, uint32_t addr_gen)
{
	const struct ha_unreachable_key key = {.port = s->port->port, .gid = s->remote.gid};
	struct ha_live_address *query = calloc(1, sizeof(*query));

	if (!query)
		return;
	query->ud_qp = ha_ud_qp_hold(s->port->ud_qp);
	query->addr_gen = addr_gen;
	query->to.lid = s->remote.lid;
	query->to.sl = s->sl;
	query->to.traffic_class = s->traffic_class;
	query->to.flow_label = s->flow_label;
	memcpy(query->to.gid, s->remote.gid, sizeof(query->to.gid));
	query->command.run = resolve;
	query->command.owner = &s->port->live->poller;
	query->command.abandoned = free_query;
	query->command.key = ha_unreachable_hash(&key);
	query->command.kind = HA_COMMAND_RESOLVE;
	ha_list_init(&query->command.link);
	s->query = query;
	s->port->live->queries++;
	ha_command_send(commands_of(s), &query->command);
}

/* The answer is there. */
static void take_answer(struct ha_session *s, uint64_t now_ns)
{
	struct ha_live_address *query = s->query;

	s->query = NULL;
	s->port->live->queries--;
	if (query->ah) {
		s->address = query;
		s->address_try_ns = 0;
	} else {
		s->address_try_ns =
		    now_ns + ADDRESS_PAUSE_NS + ADDRESS_PAUSE_FACTOR * query->took_ns;
		drop(s, query);
	}
}

/* True: there was an answer to take. */
bool ha_session_take_address(struct ha_session *s, uint64_t now_ns)
{
	if (!s->query || !ha_command_done(&s->query->command))
		return false;
	take_answer(s, now_ns);
	return true;
}

/* Asks for the address handle if there is none for our port's present address. */
bool ha_session_has_address(struct ha_session *s, uint64_t now_ns)
{
	struct ha_port_addr own;

	if (s->query && !ha_session_take_address(s, now_ns))
		return false;
	ha_port_addr(s->port->port, &own);
	if (s->address && s->address->addr_gen == own.addr_gen)
		return true;
	if (s->port->dead || ha_session_is_sick(s) || now_ns < s->address_try_ns)
		return false;
	drop(s, s->address);
	s->address = NULL;
	ask(s, own.addr_gen);
	return false;
}

void ha_session_drop_address(struct ha_session *s)
{
	struct ha_live_address *query = s->query;

	drop(s, s->address);
	s->address = NULL;
	s->query = NULL;
	s->address_try_ns = 0;
	if (!query)
		return;
	s->port->live->queries--;
	if (ha_command_disown(commands_of(s), &query->command))
		drop(s, query);
}
