/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of a connection on a bundle that carry stripes beside the active one, the *control
 * rail*: who they are is the receiver's decision, by the health of its paths.
 *
 * The loss of one of them is no failover (HA_FEATURE_SHED): there is no epoch, and nothing stops on
 * the others. Both ends fence that path alone; when its own fence is known the receiver says which
 * of its stripes have come (SHED), and the sender, when its own is, posts the rest again on the
 * control rail and says so (MENDED). Then the slot may be built again, and its path carries as soon
 * as no row from before names it.
 *
 * The loss of the control rail itself is the same (HA_FEATURE_TURN), and another one's turn: the
 * receiver says in SHED which takes its place, the sender goes over to that when it mends, and the
 * receiver when it hears MENDED (transport/turn.h). Until then nothing new begins. That goes as
 * long as nothing else is lost, and both NICs confirm their fence of it. Else, and where a shed
 * takes too long, it is a failover, which ends all that carries, what is being shed included.
 * docs/rails-protocol.md has the model.
 *
 * What of that an end is at is a state per path, in one table; this file is its only writer. Under
 * the token, in the connection's visits.
 */
#ifndef HA_FAILOVER_RAILS_H
#define HA_FAILOVER_RAILS_H

#include "event/event.h"
#include "event/reason.h"
#include "failover/port_pair.h"
#include "transport/window.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_message;

/* X(NAME, "name") */
#define HA_RAIL_STATES(X)                                                                          \
	X(WHOLE, "whole")	/* nothing of it is missing: it carries, or carries nothing */     \
	X(SHEDDING, "shedding") /* lost: its fence is ordered here, and not known */               \
	X(SHED, "shed")		/* fenced here: what it had carried is to be mended */

#define HA_RAIL_EVENTS(X)                                                                          \
	X(LOST, "lost")	    /* it failed here, or at the peer */                                   \
	X(FENCED, "fenced") /* nothing comes over it any more, or nothing more completes */        \
	X(MENDED, "mended") /* what is missing is posted again: the sender did, the receiver heard \
			     */                                                                    \
	X(EPOCH, "epoch over") /* all is sent again that is not done */

enum ha_rail_state {
#define HA_RAIL_ENUM(name, text) HA_RAIL_##name,
	HA_RAIL_STATES(HA_RAIL_ENUM)
#undef HA_RAIL_ENUM
	    HA_RAIL_COUNT
};

enum ha_rail_event {
#define HA_RAIL_ENUM(name, text) HA_RAIL_ON_##name,
	HA_RAIL_EVENTS(HA_RAIL_ENUM)
#undef HA_RAIL_ENUM
	    HA_RAIL_EVENT_COUNT
};

/* Of a slot. */
struct ha_rail {
	uint8_t state;	     /* enum ha_rail_state: rails.c alone writes it */
	uint8_t reason;	     /* enum ha_reason: why it was lost */
	uint32_t generation; /* that was lost last */
	uint64_t lost_ns;    /* when */
	uint64_t named_end;  /* receiver: no row from this number on names it or what was before */
	/* Sender. What SHED said of this generation, final: messages that are done, and of those
	 * that are not, by the first one's number, which have come as far as this path carried
	 * them. */
	bool stated;
	struct ha_window done;
	uint64_t seen;
	uint64_t say_again_ns; /* SUSPECT, until that is said */
	uint32_t say_interval_ms;
	uint32_t mended_gen; /* up to here all is posted again: what MENDED says */
};

/* The control rail is lost, and another one takes its place. */
struct ha_rail_turn {
	bool pending;		     /* it is not mended */
	struct ha_event_path from;   /* it, which may be gone */
	uint8_t to;		     /* the path that takes it: the receiver's choice, */
	uint32_t to_gen;	     /* and which one of it; 0: the sender was not told yet */
	uint64_t seen[HA_MAX_PATHS]; /* sender: what SHED said beside ha_rail.done, by stripe */
};

/* Whether a pair is rail i with rail i of the two bundles: only such paths carry. [T] */
bool ha_rails_has(const struct ha_comm *comm, struct ha_pair pair);

/* Whether messages came to be worth cutting since, or no longer are: then somebody should visit.
 * [T]
 */
bool ha_rails_judge(struct ha_comm *comm);

/* The table: pure. HA_RAIL_COUNT: no such thing happens in this state. */
enum ha_rail_state ha_rail_next(enum ha_rail_state state, enum ha_rail_event event);

/* Whether the loss of path p, which carries, is no failover. Not while the control rail's place is
 * taken: one thing after the other. */
bool ha_rails_may_shed(const struct ha_comm *comm, unsigned p);

/* Path p, of which that is so, is lost: fences it and has the peer told. */
void ha_rails_lost(struct ha_comm *comm, unsigned p, enum ha_reason reason);

/* Whether what path p had carried is not known to be mended: its slot is kept. */
bool ha_rails_is_lost(const struct ha_comm *comm, unsigned p);
/* The same of any path. */
bool ha_rails_lack(const struct ha_comm *comm);

/* A failover begins: it covers what is lost. */
void ha_rails_end(struct ha_comm *comm);

/* Receiver: whether a path waited for rows to be done, and they are: then somebody should visit. */
bool ha_rails_may_join(const struct ha_comm *comm);

/* In a visit, when fences were asked after. */
void ha_rails_visit(struct ha_comm *comm, uint64_t now_ns);

/* What SHED and MENDED say of rails beside what all messages do. */
void ha_rails_fill(const struct ha_comm *comm, struct ha_message *m);
/* Sender; receiver. In the epoch of the message. */
void ha_rails_hear_shed(struct ha_comm *comm, const struct ha_message *m);
void ha_rails_hear_mended(struct ha_comm *comm, const struct ha_message *m);

#endif
