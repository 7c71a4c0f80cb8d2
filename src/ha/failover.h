/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a connection alive when a path fails: fence, reconcile, replay.
 *
 * The receiver is the source of truth: it allocates epochs and generations and chooses paths; the
 * sender does what it is told. docs/protocol.md explains the protocol, tests/model checks it; names
 * are the same in all three.
 *
 * Everything here is [T] (see comm.h) unless it says otherwise.
 */
#ifndef HA_HA_FAILOVER_H
#define HA_HA_FAILOVER_H

#include "ha/reason.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/*
 * A path cannot be used any more, or should not be. Stops posting on it and starts what has to be
 * done; never waits. Says nothing about requests: they stay pending. On a connection that has no
 * failover (the peer's or our HA_NCCL_ENABLE_BACKUP=0) it latches an error instead, with the text.
 * A trigger for a path that is being fenced or was replaced is ignored. Under the token.
 */
void ha_failover_trigger(struct ha_comm *comm, struct ha_path *path, enum ha_reason reason,
			 const char *fmt, ...) __attribute__((format(printf, 4, 5), cold));

#endif
