/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repair in place, at the receiver: the queue pairs of the active path have broken and its ports
 * are well, so the connection goes on over fresh ones on the same ports, by the same rules as on
 * any other path, and no port is changed. What says that a repair is worth a try, how often and for
 * how long is one table; after that any path will do, so that a port that is sick is left. [T]
 */
#ifndef HA_FAILOVER_REPAIR_H
#define HA_FAILOVER_REPAIR_H

#include "event/reason.h"
#include "failover/port_pair.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* Repairs that are remembered: no rule allows more of them in its window. */
#define HA_REPAIR_MOST 8

struct ha_repair {
	struct ha_pair pair;		   /* of ports, that the next two are about */
	uint64_t begun_ns[HA_REPAIR_MOST]; /* the last ones, in a ring; 0: none */
	uint8_t next;			   /* where the next one goes */
	uint64_t last_ns;		   /* the last one, on whatever ports; 0: none */
	uint64_t received;		   /* messages that were there at that one */
	uint64_t until_ns;		   /* no other path is taken before; 0: any will do */
};

/* The active path is left. How often other ports were repaired is forgotten. */
void ha_repair_begin(struct ha_comm *comm, enum ha_reason reason);

/* Fresh queue pairs on the ports of the path that was left are waited for: nothing else is taken,
 * and nothing else built. */
bool ha_repair_is_under_way(const struct ha_comm *comm, uint64_t now_ns);

/* Path p lies on the ports of the path that was left, and could not be made or has failed. */
void ha_repair_failed(struct ha_comm *comm, unsigned p);

/* Whether path p is what is waited for: it connects the ports of the path that was left. */
bool ha_repair_is_on_path(const struct ha_comm *comm, unsigned p);

#endif
