/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_RAIL_MODE=island: a connection on a bundle goes over one rail, the last one where both
 * hosts are in one island (device/island.h) and the first one beyond. Beyond, no other rail is
 * tried: they do not reach each other. The connector decides, by the address of the listener's
 * first rail in its handle, and says in its hello which rail it has; the listener follows.
 */
#ifndef HA_TRANSPORT_RAIL_ISLAND_H
#define HA_TRANSPORT_RAIL_ISLAND_H

#include <stdbool.h>
#include <stdint.h>

struct ha_hello;
struct ha_instance;
struct ha_islands;
struct ha_port;

/* Reads HA_NCCL_ISLAND where bundles go by islands, or by an agent. */
void ha_rail_islands_open(struct ha_instance *inst);
void ha_rail_islands_close(struct ha_instance *inst);

/* Where a connection is to begin, and go on. */
struct ha_rail_choice {
	struct ha_port *port;
	bool alone; /* no other rail of its bundle */
};

/*
 * Connector; listener. port: rail 0 of the bundle, or a port by itself, which is what is chosen
 * where no islands are gone by. far: the GID in the listener's handle. Any thread.
 */
struct ha_rail_choice ha_rail_island_choose(struct ha_instance *inst, struct ha_port *port,
					    const uint8_t far[16]);
struct ha_rail_choice ha_rail_island_follow(struct ha_instance *inst, struct ha_port *port,
					    const struct ha_hello *hello);

/* Takes those ports out of a list that a choice excludes; returns how many are left. */
int ha_rail_island_keep(const struct ha_rail_choice *choice, struct ha_port *ports[], int n);

#endif
