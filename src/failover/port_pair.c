/* SPDX-License-Identifier: Apache-2.0 */
#include "failover/port_pair.h"

#include "device/rank.h"
#include "failover/engine.h"
#include "transport/comm.h"

/* More than any sum of ranks: being on one subnet outweighs being near. */
#define OTHER_SUBNET 100u

/* More than ranks add up to: the rails of two bundles are cabled first to first, second to second.
 */
#define CROSSED_RAILS 50u

bool ha_pair_crosses_rails(const struct ha_comm *comm, struct ha_pair pair)
{
	return pair.port != pair.peer_port && pair.port < ha_comm_rails(comm) &&
	       pair.peer_port < comm->failover->peer_ports.rails;
}

bool ha_offer_usable(const struct ha_comm *comm, unsigned offer)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_nic *nic = fo->offers[offer]->nic;

	return ha_port_usable(fo->offers[offer]) && !(fo->refusing & 1u << nic->index) &&
	       (nic->dmabuf || !comm->memory.has_dmabufs);
}

uint32_t ha_pair_cost(const struct ha_comm *comm, struct ha_pair pair)
{
	const struct ha_failover *fo = comm->failover;
	const struct ha_offer *remote = &fo->peer_ports.offers[pair.peer_port];
	uint32_t cost = (uint32_t)pair.port + pair.peer_port;
	struct ha_port_addr addr;
	union ibv_gid gid;

	if (!ha_offer_usable(comm, pair.port) || !(fo->peer_ports_up & 1u << pair.peer_port))
		return HA_PAIR_NEVER;
	cost += ha_pair_drained(comm, pair) * HA_PAIR_DRAINED_COST;
	cost += ha_pair_crosses_rails(comm, pair) ? CROSSED_RAILS : 0;
	ha_port_addr(fo->offers[pair.port], &addr);
	memcpy(gid.raw, remote->gid, sizeof(gid.raw));
	switch (ha_fabric_between(&addr, remote->link_layer, &gid)) {
	case HA_FABRIC_NEVER:
		return HA_PAIR_NEVER;
	case HA_FABRIC_POSSIBLE:
		return cost + OTHER_SUBNET;
	case HA_FABRIC_SAME:
		break;
	}
	return cost;
}

unsigned ha_pair_drained(const struct ha_comm *comm, struct ha_pair pair)
{
	const struct ha_failover *fo = comm->failover;

	return (unsigned)ha_port_drained(fo->offers[pair.port]) +
	       (fo->peer_ports_drained >> pair.peer_port & 1u);
}

struct ha_pair ha_pair_of(const struct ha_slot *slot)
{
	return (struct ha_pair){slot->port, slot->peer_port};
}

unsigned ha_pair_shared(struct ha_pair a, struct ha_pair b)
{
	return (unsigned)(a.port == b.port) + (unsigned)(a.peer_port == b.peer_port);
}
