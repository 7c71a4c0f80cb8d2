/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread's visits of a connection, in which alone its state machine steps. [T] */
#ifndef HA_FAILOVER_VISIT_H
#define HA_FAILOVER_VISIT_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* Does what is due. Returns when to come again, by ha_now_ns; 0: when something happens. */
uint64_t ha_failover_visit(struct ha_comm *comm);

/* Traffic flows here, and other connections of the process are moving: what can wait does. */
bool ha_failover_holds_off(const struct ha_comm *comm, uint64_t now_ns);

#endif
