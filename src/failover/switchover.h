/* SPDX-License-Identifier: Apache-2.0 */
/* A switch from one path to another as people see it: when it began, and what it came to. [T] */
#ifndef HA_FAILOVER_SWITCHOVER_H
#define HA_FAILOVER_SWITCHOVER_H

#include "event/reason.h"

struct ha_comm;
struct ha_replay;

/* The active path is being left. Further failures until the switch has ended belong to it. */
void ha_switchover_begin(struct ha_comm *comm, enum ha_reason reason);

/* Traffic flows again on the active path: tells log, event log and statistics. */
void ha_switchover_end(struct ha_comm *comm, const struct ha_replay *replay);

/* No path is left. */
void ha_switchover_outage(struct ha_comm *comm);

#endif
