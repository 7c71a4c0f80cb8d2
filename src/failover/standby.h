/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths in reserve, at the receiver: a connection is always either protected or working to be.
 *
 * The receiver picks a pair of ports, makes its end and says REBUILD; the sender makes its own end
 * and says REBUILT; the receiver connects and probes. A path whose probe came back is UP, and only
 * such a path may be resumed on. One in reserve is enough while traffic flows; when none is left,
 * all pairs that could work are tried at once. All of it is [T].
 */
#ifndef HA_FAILOVER_STANDBY_H
#define HA_FAILOVER_STANDBY_H

#include "failover/message.h"

#include "base/result.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;

/* Both ends: ranks our ports; at the receiver makes the book-keeping. */
ha_result_t ha_standby_open(struct ha_comm *comm) HA_MUST_CHECK;
void ha_standby_free(struct ha_comm *comm);

/* The active path is being left. */
void ha_standby_left(struct ha_comm *comm);

/* The sender's answers. */
void ha_standby_rebuilt(struct ha_comm *comm, const struct ha_message *m);
void ha_standby_refused(struct ha_comm *comm, const struct ha_message *m);

/* What came of making and connecting our end of path p. */
void ha_standby_opened(struct ha_comm *comm, unsigned p);
void ha_standby_connected(struct ha_comm *comm, unsigned p);
void ha_standby_not_connected(struct ha_comm *comm, unsigned p);

/* A path that was not active failed: its pair is left alone for a while, and the peer is told. */
void ha_standby_failed(struct ha_comm *comm, unsigned p);

/* The ports of path p reach each other again: no need to wait. Both ends. */
void ha_standby_retry(struct ha_comm *comm, unsigned p);

/*
 * The operator of either host: a port was drained, and what runs over it moves as soon as there is
 * somewhere to go; or the preferred path is to be gone back to.
 */
void ha_standby_drain(struct ha_comm *comm);
void ha_standby_return(struct ha_comm *comm);

/* A path was proved that was waited for: the next visit says so. */
void ha_standby_proved(struct ha_comm *comm);

/* Builds, probes, gives up what takes too long. True: a path was proved since the last visit. */
bool ha_standby_visit(struct ha_comm *comm, uint64_t now_ns);

/* When it has to be visited next; 0: when something happens. */
uint64_t ha_standby_due_ns(const struct ha_comm *comm);

#endif
