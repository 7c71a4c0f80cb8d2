/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The active path of a connection on a bundle, its *control rail*, is lost while others carry: one
 * of them takes its place, within the epoch (HA_FEATURE_TURN). Nothing stops on the others.
 *
 * Everything that is not cut goes over the active path: rows, small messages, groups, and what was
 * lost with others. The sender turns first, when the lost path is fenced at both ends and it knows
 * what came over it: messages that did not come wait for a new row, whole, or those stripes of them
 * that it carried. When the receiver hears of that it turns, too, and writes every row again whose
 * message it does not have, on the new path and with its keys.
 *
 * A row has no name of the path whose keys it has: it is the turn that says it, in the row's
 * stamps. So what was matched with a row of before is not posted with its keys. Notices do not
 * change with a turn, as parts of messages are on their way over the other rails; of the path that
 * was lost none can come any more. failover/rails.h decides all that, docs/rails-protocol.md has
 * the model.
 *
 * All of it under the token, once for each path that is lost.
 */
#ifndef HA_TRANSPORT_TURN_H
#define HA_TRANSPORT_TURN_H

#include "base/result.h"
#include "transport/path.h"
#include "transport/window.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_replay;

/*
 * Sender. The active path is lost and fenced at both ends, `to` is ready: `done` are done, and of
 * those that are not seen[p] says which stripes of path p are there, as ha_stripe_seen has it.
 * False: a message is lost, which is latched, or the new path cannot take a stripe in one write;
 * then the epoch ends. Adds to *replay.
 */
bool ha_send_turn(struct ha_comm *comm, unsigned to, const struct ha_window *done,
		  const uint64_t seen[HA_MAX_PATHS], struct ha_replay *replay) HA_MUST_CHECK;

/* Receiver. The sender has turned; `to` is ready. */
void ha_recv_turn(struct ha_comm *comm, unsigned to);

#endif
