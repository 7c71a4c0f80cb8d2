/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The application's memory on the NICs of further paths, before a switch needs it there.
 *
 * A registration may fail on another NIC than the first: too much is locked already, the driver
 * does not know the kind of memory, the NIC cannot reach a GPU. At a switch that would be found too
 * late. So all memory of a connection is registered on the NICs of its paths in reserve when these
 * come up, and what is registered later follows. A NIC that refuses is of no use to this connection
 * for a while, and another one is taken. Where it is memory of a GPU, a path in reserve also reads
 * of it once, since a NIC may be unable to reach what it has registered (transport/gpu_proof.h).
 * All of it is [T].
 */
#ifndef HA_FAILOVER_STANDBY_MEMORY_H
#define HA_FAILOVER_STANDBY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_nic;

/* Whether some is not known to be registered on the NIC of a path that is up, or to be reached. */
bool ha_standby_memory_is_missing(const struct ha_comm *comm);

/* Sends for what is not registered, and looks what came of it. Never waits. Progress thread. */
void ha_standby_memory_visit(struct ha_comm *comm, uint64_t now_ns);

/* Whether a path in reserve has read GPU memory. */
bool ha_standby_memory_is_proved(const struct ha_comm *comm);

/* When NICs that refused are asked again, if there is need; 0: none did. */
uint64_t ha_standby_memory_due_ns(const struct ha_comm *comm);

/*
 * A NIC refused memory of the connection: leaves the paths over it. False: none is left that could
 * take it, and it has been asked again for long enough.
 */
bool ha_standby_memory_refused(struct ha_comm *comm, const struct ha_nic *nic);

/* A port of the NIC is back, perhaps with another device: what was refused may have been one that
 * was on its way out. */
void ha_standby_memory_renewed(struct ha_comm *comm, const struct ha_nic *nic);

#endif
