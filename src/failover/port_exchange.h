/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ends say of their ports (PORTS), which a path is built between: at first, over a new
 * socket, and when an address or the end of heartbeats on a port is another one. [T]
 */
#ifndef HA_FAILOVER_PORT_EXCHANGE_H
#define HA_FAILOVER_PORT_EXCHANGE_H

#include <stdint.h>

struct ha_comm;

/* Opens heartbeats on the ports that will be offered: what is open by the time is said. May wait
 * for the device, as ha_liveness_endpoint does. */
void ha_port_exchange_open(struct ha_comm *comm);

/* Says ours over the control socket. */
void ha_port_exchange_say(struct ha_comm *comm);

/* The peer said its own: the payload of a frame, `length` bytes. Progress thread. */
void ha_port_exchange_heard(struct ha_comm *comm, const uint8_t *payload, uint32_t length);

/* Ports of this process are up or down, or have another address: bits of ha_port_bit. Progress
 * thread. */
void ha_port_exchange_changed(struct ha_comm *comm, uint64_t ports);

#endif
