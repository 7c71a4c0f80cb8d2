/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a connection is noted by whatever thread has the token, and the path in question
 * stopped. The connection's next visit makes steps of the state machine of it. [T]
 */
#ifndef HA_FAILOVER_NOTES_H
#define HA_FAILOVER_NOTES_H

#include "event/reason.h"

#include <stdbool.h>

struct ha_comm;
struct ha_failover;
struct ha_path;

/*
 * A path cannot be used any more, or should not be. Stops posting on it and notes why; never waits.
 * Says nothing about requests: they stay pending.
 * A trigger for a path that is being fenced or was replaced is ignored. Any thread.
 */
void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

/* Has the active path left although it works, at the next visit. Any thread. */
void ha_failover_leave(struct ha_comm *comm, enum ha_reason reason);

/* A probe of a path came back. Any thread. */
void ha_failover_probe_done(struct ha_comm *comm, struct ha_path *path);

/* A message of the peer came over a path, and waits there. Any thread. */
void ha_failover_msg_came(struct ha_comm *comm, struct ha_path *path);

/*
 * Failures that were noted become steps of the machine: first in a visit, so that the reason is
 * what was noted and not what follows from it. Progress thread.
 */
void ha_failover_take_failures(struct ha_comm *comm);

/* Paths that were seen to work are proved. Progress thread. */
void ha_failover_take_proofs(struct ha_comm *comm);

/* Whether anything waits for a visit. */
bool ha_failover_has_notes(const struct ha_failover *fo);

#endif
