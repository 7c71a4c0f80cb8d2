/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection as failover/ sees it, put together by hand: as many ports at each end as it may have
 * paths, port i of either on subnet i and on a NIC of its own. A test opens the paths that it
 * wants; nothing is behind them.
 */
#ifndef HA_TESTS_FAKE_COMM_H
#define HA_TESTS_FAKE_COMM_H

#include "failover/engine.h"
#include "transport/comm.h"
#include "transport/shared.h"

#include <string.h>

#define FAKE_PORTS HA_MAX_PATHS

static struct {
	struct ha_instance inst;
	struct ha_comm comm;
	struct ha_failover failover;
	struct ha_config config;
	struct ha_nic nics[FAKE_PORTS];
	struct ha_port ports[FAKE_PORTS];
	struct ha_bundle bundle; /* port 0 by itself */
	struct ha_path paths[HA_MAX_PATHS];
} fake;

static inline union ibv_gid fake_gid(unsigned subnet, unsigned host)
{
	return (union ibv_gid){
	    .raw = {[10] = 0xff, [11] = 0xff, 10, 0, (uint8_t)subnet, (uint8_t)(host + 1)}};
}

static inline void fake_open_port(unsigned i)
{
	struct ha_port *port = &fake.ports[i];
	struct ha_offer *offer = &fake.failover.peer_ports.offers[i];
	union ibv_gid remote = fake_gid(i, 1);

	port->nic = &fake.nics[i];
	port->link_layer = offer->link_layer = IBV_LINK_LAYER_ETHERNET;
	port->gid = fake_gid(i, 0);
	pthread_mutex_init(&port->addr_lock, NULL);
	atomic_store(&port->state, IBV_PORT_ACTIVE);
	memcpy(offer->gid, remote.raw, sizeof(offer->gid));
	fake.failover.offers[i] = port;
	fake.failover.peer_ports_up |= (uint16_t)(1u << i);
}

/* No path is open; path 0 is the active one. */
static inline void fake_comm_init(void)
{
	memset(&fake, 0, sizeof(fake));
	fake.comm.inst = &fake.inst;
	fake.comm.config = &fake.config;
	fake.comm.failover = &fake.failover;
	fake.comm.npaths = HA_MAX_PATHS;
	fake.failover.noffers = fake.failover.peer_ports.count = FAKE_PORTS;
	for (unsigned i = 0; i < FAKE_PORTS; i++)
		fake_open_port(i);
	fake.bundle = (struct ha_bundle){.nrails = 1, .rails = {&fake.ports[0]}};
	fake.ports[0].bundle = &fake.bundle;
	fake.comm.port = &fake.ports[0];
}

/* Path p between these two ports works, as far as it is known. */
static inline void fake_open_path(unsigned p, unsigned port, unsigned peer_port)
{
	struct ha_slot *slot = &fake.failover.slots[p];

	fake.paths[p] = (struct ha_path){.index = (uint8_t)p, .comm = &fake.comm, .generation = 1};
	atomic_store(&fake.paths[p].state, HA_PATH_READY);
	fake.paths[p].port = &fake.ports[port];
	fake.paths[p].nic = &fake.nics[port];
	fake.comm.paths[p] = &fake.paths[p];
	slot->port = (uint8_t)port;
	slot->peer_port = (uint8_t)peer_port;
	slot->newest_gen = 1;
	slot->state = HA_SLOT_GOOD;
}

static inline void fake_set_link(unsigned port, bool up)
{
	atomic_store(&fake.ports[port].state, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
}

static inline void fake_set_peer_link(unsigned peer_port, bool up)
{
	uint16_t bit = (uint16_t)(1u << peer_port);
	uint16_t others = (uint16_t)(fake.failover.peer_ports_up & ~bit);

	fake.failover.peer_ports_up = up ? (uint16_t)(others | bit) : others;
}

static inline void fake_set_drained(unsigned port, bool drained)
{
	atomic_store(&fake.ports[port].drained, drained);
}

static inline void fake_set_peer_drained(unsigned peer_port, bool drained)
{
	uint16_t bit = (uint16_t)(1u << peer_port);
	uint16_t others = (uint16_t)(fake.failover.peer_ports_drained & ~bit);

	fake.failover.peer_ports_drained = drained ? (uint16_t)(others | bit) : others;
}

#endif
