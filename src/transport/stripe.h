/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message that several paths carry together, a *stripe* of it each: on a bundle of ports, when
 * both ends have one (HA_FEATURE_RAILS).
 *
 * The receiver decides which paths may: its clear-to-send names them, with a key for each. The
 * sender cuts the message among those that are ready at its end, too, so that all are through with
 * it together (balance.h). So there is no joining and no leaving to be agreed on: a path is named
 * in the next row, or is not. Each stripe ends with a notice that says which stripes the message
 * has and which one this is; the receiver remembers them as bits, and has the message when it has
 * all.
 *
 * When a path beside the active one is lost, and fenced at both ends, the receiver says which of
 * its stripes have come, and the rest is sent again on the active path: the same bytes, and the
 * same stripe of the same message. Who decides on that is failover/rails.h. When the active path is
 * lost another one takes its place (turn.h), or it is a failover: every path that was named may
 * have carried, and ends with the epoch at both ends; then what is not done is sent again, whole.
 * So nothing of a stripe outlives its epoch, and what was seen of a message does not, either.
 *
 * All of it under the token.
 */
#ifndef HA_TRANSPORT_STRIPE_H
#define HA_TRANSPORT_STRIPE_H

#include "base/result.h"
#include "device/bundle.h"
#include "transport/rings.h"
#include "transport/split.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;
struct ha_recv_slot;
struct ha_replay;
struct ha_send_group;
struct ha_window;

/*
 * Messages of at least so many bytes may go over paths beside the active one: for smaller ones the
 * receiver names none and the sender does not look. The two may have other numbers, then the larger
 * one counts.
 */
static inline uint64_t ha_stripe_from(const struct ha_bundle *bundle)
{
	return bundle->by_agent ? 1 : bundle->stripe_min / 4;
}

/* ---- receiver ------------------------------------------------------------------------------ */

/* Which paths carry stripes beside the active one from now on: a mask. They are ready. */
void ha_stripe_members(struct ha_comm *comm, unsigned mask);

/* Names them in a row that is about to be posted on the active path; `slot` is its receive. */
void ha_stripe_name(struct ha_comm *comm, const struct ha_recv_slot *slot, struct ha_cts *row);

/* A stripe of `bytes` came over `path`. One that nobody waits for is counted as stale; one that
 * cannot be latches the connection. */
void ha_stripe_came(struct ha_comm *comm, struct ha_path *path, uint32_t imm, uint32_t bytes);

/* Of which messages the stripe of path p has come: bit i is message done.base + i, and those that
 * are done count for nothing. */
uint64_t ha_stripe_seen(const struct ha_comm *comm, unsigned p);

/* ---- sender -------------------------------------------------------------------------------- */

enum ha_striping {
	HA_STRIPING_NONE,   /* the active path has to take it: nothing was done */
	HA_STRIPING_LATER,  /* a queue has no room: nothing was done */
	HA_STRIPING_POSTED, /* as far as paths took it: what one did not is sent when it is mended
			     */
};

/* A group of one message of at least ha_stripe_from() bytes, in the epoch of its keys. */
enum ha_striping ha_stripe_post(struct ha_comm *comm, struct ha_send_group *group);

/*
 * In a visit: messages that are not cut go over other paths, too, from when a row has named some
 * on. Until then they are posted as on any other connection, at its cost.
 */
void ha_stripe_visit(struct ha_comm *comm);

/* A stripe is acknowledged that went over `path`; `slot` is that of its work request. */
void ha_stripe_sent(struct ha_comm *comm, struct ha_path *path, unsigned qp, uint32_t slot);

/*
 * Path p is lost and fenced at both ends: of messages that it carried stripes of, `done` are done,
 * and of those that are not those in `seen` have come, as ha_stripe_seen has it. What has not is
 * posted on the active path, or waits for room there. False: a message is lost, which is latched,
 * or the active path cannot take a stripe in one write. Adds to *replay.
 */
bool ha_stripe_mend(struct ha_comm *comm, unsigned p, const struct ha_window *done, uint64_t seen,
		    struct ha_replay *replay) HA_MUST_CHECK;

/* Whether message `seq` was cut. */
bool ha_stripe_is_cut(const struct ha_send_group *group, uint64_t seq);

/*
 * The same of one message that was cut, whose active path is the one that was lost: of its own
 * stripe, and of those that it carried for others. What has not come waits for a row of the path
 * that takes its place (turn.h), `to`. seen[p]: of the stripe of path p.
 */
bool ha_stripe_mend_active(struct ha_comm *comm, struct ha_send_group *group, unsigned to,
			   const struct ha_window *done, const uint64_t seen[HA_MAX_PATHS],
			   struct ha_replay *replay) HA_MUST_CHECK;

/* The path that is active now has taken the place of path p, and what waits is posted as rows come.
 */
void ha_stripe_turn(struct ha_comm *comm, unsigned p);

/* What was cut is sent as it is matched, in another epoch. */
void ha_stripe_forget(struct ha_send_group *group);

/* ---- both ---------------------------------------------------------------------------------- */

/* Paths beside the active one were looked at: less often, once no message is cut. */
void ha_stripe_looked(struct ha_comm *comm);

/* The oldest message of which it is not known here, or at the receiver, that it has it. */
uint64_t ha_stripe_oldest_open(const struct ha_comm *comm, const struct ha_window *done);

/* Another epoch begins, on the path that is active now: nothing is beside it. */
void ha_stripe_begin(struct ha_comm *comm);

#endif
