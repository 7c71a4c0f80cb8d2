/* SPDX-License-Identifier: Apache-2.0 */
/* What both ends say of their ports, by PORTS, and say again when it is another. */
#include "failover/port_exchange.h"

#include "base/log.h"
#include "base/text.h"
#include "failover/engine.h"
#include "failover/path_build.h"
#include "failover/port_pair.h"
#include "failover/signaling.h"
#include "failover/standby_memory.h"
#include "transport/comm.h"
#include "transport/ctrl_sock.h"
#include "transport/shared.h"

#include <string.h>

/* Paths over ports whose heartbeats could not begin before. */
static void watch_those_without(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && !fo->links[p].live.session)
			ha_path_build_watch(comm, p);
}

/* ---- the peer's ---------------------------------------------------------------------------- */

/* Which of its ports the peer began on: its preferred one, unless that was down. */
static void find_first_pair(struct ha_comm *comm)
{
	struct ha_failover *fo = comm->failover;
	const struct ha_path *path = comm->paths[0];

	if (!path || path->generation != 1)
		return;
	for (uint8_t i = 0; i < fo->peer_ports.count; i++)
		if (fo->peer_ports.offers[i].port_num == path->remote.port_num &&
		    strcmp(fo->peer_ports.offers[i].device, path->remote.device) == 0)
			fo->slots[0].peer_port = i;
}

static bool same_endpoint(const struct ha_offer *a, const struct ha_offer *b)
{
	return a->live_id == b->live_id && a->live_qpn == b->live_qpn;
}

/*
 * Said again: with the socket that replaces a broken one, and when the peer's address or its end of
 * heartbeats on a port is another one. Which ports it has does not change.
 */
static void hear_ports_again(struct ha_comm *comm, const struct ha_port_offers *ports)
{
	struct ha_failover *fo = comm->failover;

	fo->look = true; /* what is worth more now */
	for (unsigned i = 0; i < fo->peer_ports.count && i < ports->count; i++) {
		struct ha_offer before = fo->peer_ports.offers[i];

		fo->peer_ports.offers[i] = ports->offers[i];
		if (same_endpoint(&before, &ports->offers[i]))
			continue;
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (comm->paths[p] && fo->slots[p].peer_port == i)
				ha_path_build_watch(comm, p);
	}
}

static void hear_ports(struct ha_comm *comm, const struct ha_port_offers *ports)
{
	struct ha_failover *fo = comm->failover;

	if (fo->peer_ports.count != 0) {
		hear_ports_again(comm, ports);
		return;
	}
	fo->peer_ports = *ports;
	for (unsigned i = 0; i < ports->count; i++)
		if (ports->offers[i].up)
			fo->peer_ports_up |= (uint16_t)(1u << i);
	find_first_pair(comm);
	fo->look = true;
	watch_those_without(comm);
}

void ha_port_exchange_heard(struct ha_comm *comm, const uint8_t *payload, uint32_t length)
{
	struct ha_port_offers ports;
	enum ha_wire_result decoded = ha_port_offers_decode(payload, length, &ports);

	if (decoded == HA_WIRE_OK)
		hear_ports(comm, &ports);
	else
		ha_ctrl_sock_garbled(comm->ctrl_sock, decoded);
}

/* ---- ours ---------------------------------------------------------------------------------- */

static void offer_port(struct ha_comm *comm, unsigned i, struct ha_offer *out)
{
	struct ha_failover *fo = comm->failover;
	struct ha_port *port = fo->offers[i];
	struct ha_live_endpoint live;
	struct ha_port_addr addr;

	ha_port_addr(port, &addr);
	memset(out, 0, sizeof(*out));
	out->link_layer = addr.link_layer;
	out->port_num = port->port_num;
	out->up = ha_offer_usable(comm, i);
	out->lid = addr.lid;
	out->speed_mbps = (uint32_t)port->speed_mbps;
	out->guid = port->nic->guid;
	memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
	ha_copy_text(out->device, sizeof(out->device), port->nic->name);
	if (ha_liveness_opened(comm->inst->liveness, port, &live)) {
		out->live_qpn = live.qpn;
		out->live_id = live.id;
		fo->heartbeats |= (uint16_t)(1u << i);
	}
	fo->told_qpn[i] = out->live_qpn;
	fo->told_addr_gen[i] = addr.addr_gen;
}

void ha_port_exchange_say(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_port_offers ports = {.count = fo->noffers, .rails = (uint8_t)ha_comm_rails(comm)};
	uint8_t payload[HA_PORT_OFFERS_MAX_BYTES];
	size_t length;

	for (unsigned i = 0; i < fo->noffers; i++)
		offer_port(comm, i, &ports.offers[i]);
	length = ha_port_offers_encode(&ports, payload);
	if (!ha_ctrl_sock_send(comm->ctrl_sock, HA_FRAME_PORTS, payload, (uint32_t)length))
		HA_WARN("connection %s: the peer cannot be told of our ports: no standby path",
			comm->name);
	watch_those_without(comm);
}

/* What is not open by now is told when it is (ha_liveness_came_late). */
void ha_port_exchange_open(struct ha_comm *comm)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_live_endpoint live;

	for (unsigned i = 0; i < fo->noffers; i++)
		(void)ha_liveness_endpoint(comm->inst->liveness, fo->offers[i], &live);
}

/* The peer does not know whom to answer: our end is another one since a device came back. */
static bool heartbeats_changed(const struct ha_comm *comm, unsigned i)
{
	const struct ha_failover *fo = comm->failover;
	struct ha_live_endpoint live;

	return ha_liveness_opened(comm->inst->liveness, fo->offers[i], &live) &&
	       live.qpn != fo->told_qpn[i];
}

/* By which the peer judges what a path to it is worth. */
static bool address_changed(const struct ha_comm *comm, unsigned i)
{
	struct ha_port_addr addr;

	ha_port_addr(comm->failover->offers[i], &addr);
	return addr.addr_gen != comm->failover->told_addr_gen[i];
}

static bool offers_changed(const struct ha_comm *comm)
{
	for (unsigned i = 0; i < comm->failover->noffers; i++)
		if (heartbeats_changed(comm, i) || address_changed(comm, i))
			return true;
	return false;
}

void ha_port_exchange_changed(struct ha_comm *comm, uint64_t ports)
{
	struct ha_failover *fo = comm->failover;

	fo->look = true;
	for (unsigned i = 0; i < fo->noffers; i++)
		if (ports & ha_port_bit(fo->offers[i]) && ha_port_usable(fo->offers[i])) {
			fo->renewed |= (uint16_t)(1u << i);
			ha_standby_memory_renewed(comm, fo->offers[i]->nic);
		}
	if (ha_signaling_ports_up(comm) != fo->ports_said)
		fo->say |= HA_SAY_STATE;
	if (!fo->socket_broken && offers_changed(comm))
		ha_port_exchange_say(comm);
}
