/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a connection that comes from the peer: gone, closed in good order, given up. [T] */
#ifndef HA_TRANSPORT_PEER_END_H
#define HA_TRANSPORT_PEER_END_H

#include "transport/window.h"
#include "transport/wire.h"

#include <stdbool.h>

struct ha_comm;

/* The peer is gone without a word, closed in good order, or has given up. Progress thread. */
void ha_comm_peer_lost(struct ha_comm *comm, const char *how);
void ha_comm_peer_bye(struct ha_comm *comm, const struct ha_bye *bye);
void ha_comm_peer_aborted(struct ha_comm *comm, const struct ha_abort *given_up);

/*
 * Whether the peer can have these messages done: at a sender those that were posted once, at a
 * receiver those that were asked for. If not, an error is latched. Under the token.
 */
bool ha_comm_peer_can_have(struct ha_comm *comm, const struct ha_window *has);

/* Our hardware acknowledged message `seq`, and nothing that could still bring it to the receiver's
 * memory is left: latches the connection. */
void ha_comm_message_lost(struct ha_comm *comm, uint64_t seq);

/* A frame that says one of the last two. False: it says something else. */
bool ha_peer_end_frame(struct ha_comm *comm, const struct ha_frame_header *header,
		       const uint8_t *payload);

/*
 * Nothing useful will come any more on a connection that the peer has closed: fences its paths. The
 * progress thread goes on when that is confirmed, and the hardware has let go of all memory: it
 * completes what the peer's BYE says was delivered, and fails the connection if anything else is
 * outstanding. Under the token.
 */
void ha_comm_settle(struct ha_comm *comm);
/* Goes on with it, at each visit. Under the token. */
void ha_comm_settle_on(struct ha_comm *comm);

/* What our own BYE says. Under the token. */
void ha_comm_fill_bye(const struct ha_comm *comm, struct ha_bye *bye);

/* Whether a request is outstanding that needs the peer. Flushes do not, and may come after it has
 * closed. */
bool ha_comm_waits_for_peer(const struct ha_comm *comm);

#endif
