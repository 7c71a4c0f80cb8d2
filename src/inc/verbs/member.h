/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of a group: its operations, cut into units that go over the edges to its trees, one for
 * each lane, as its ledger (inc/ledger.h) allows. It posts the receive of a unit's result before it
 * contributes, so the result finds its place.
 *
 * When a tree has failed, whoever speaks for the member (inc/epoch.h) has it fenced, hears what it
 * has, joins it to other trees, and has it resume. Units then come from where RESUME says. One that
 * somebody lacks goes through the new tree as the largest of bytes, of which all but its owner's
 * are zero: its owner sends the result, and everybody else says with a header of its own that the
 * receive is posted.
 *
 * Its edges are all on one of its ports. Which one that is, is chosen anew each time that it joins:
 * the first that works, but the one behind where an edge of its own has failed, which no port need
 * have noticed. So a member whose port goes down is cut at once if another one works; to whoever
 * adds, an edge is an address, whatever port that is of.
 *
 * One thread.
 */
#ifndef HA_INC_VERBS_MEMBER_H
#define HA_INC_VERBS_MEMBER_H

#include "inc/ledger.h"
#include "inc/verbs/edge.h"
#include "reduce/reduce.h"

#define HA_MEMBER_LANES HA_FOLD_SOURCES /* trees, or members that add for each other */
#define HA_MEMBER_OPS	64		/* asked for and not done with */
#define HA_MEMBER_PORTS 2

/* What its edges may be on, best first. */
struct ha_member_ports {
	struct ha_port *port[HA_MEMBER_PORTS];
	unsigned int n; /* one at least */
};

struct ha_member_shape {
	struct ha_ledger_shape ledger;
	unsigned int lanes;  /* at most, 1 to HA_MEMBER_LANES */
	uint32_t unit_bytes; /* a multiple of HA_CUT_ALIGN */
	uint64_t group;
};

/* All members ask for the same operations in the same order. Memory is registered on the NICs of
 * the member's ports, and nobody touches it until the operation is done. */
struct ha_all_reduce {
	enum ha_reduce_type type;
	enum ha_reduce_op op;
	uint64_t count; /* elements */
	const void *send;
	void *recv;							 /* may be `send` */
	uint32_t send_lkey[HA_MEMBER_PORTS], recv_lkey[HA_MEMBER_PORTS]; /* by port */
	bool is_direct; /* in place, in memory that there can be no shadow of */
	bool is_empty;	/* contributes nothing, which counts as zeros: of the largest of bytes,
			 * where some member contributes; not in place */
};

struct ha_member;

/* HA_ERR_SYSTEM: a verb or memory, of the first port; *out is NULL. A later port that gives none is
 * not used. */
ha_result_t ha_member_open(const struct ha_member_shape *shape, const struct ha_member_ports *ports,
			   struct ha_member **out) HA_MUST_CHECK;

/* Opens an edge for each lane, which are to be connected then; before the first operation, and
 * after a fence, when there may be other lanes than before. lanes: from 1 to those of its shape.
 * window: units that the other end of a lane has buffers for, at most the ledger's. */
ha_result_t ha_member_join(struct ha_member *member, unsigned int lanes,
			   unsigned int window) HA_MUST_CHECK;
struct ha_edge *ha_member_edge(struct ha_member *member, unsigned int lane);
/* Which of its ports its edges are on: its number, and itself. */
unsigned int ha_member_at(const struct ha_member *member);
struct ha_port *ha_member_port(const struct ha_member *member);
/* Memory of an operation is not registered there, so it does not go there any more. Of another port
 * than the one in use. */
void ha_member_forgo(struct ha_member *member, unsigned int port);
/* Cuts the member whose port does not work any more, if another one does. */
void ha_member_look_at_port(struct ha_member *member);
/* An earlier port than the one in use works, as far as this host knows. */
bool ha_member_has_better_port(const struct ha_member *member);
/* The edges are not all connected yet: nothing goes over them until they are. */
void ha_member_wait(struct ha_member *member, bool is_on);

/* *number: by which to ask for it, from 1. False: not now, there are too many. */
bool ha_member_all_reduce(struct ha_member *member, const struct ha_all_reduce *ask,
			  uint64_t *number);
/* The memory is the caller's again. */
bool ha_member_is_done(const struct ha_member *member, uint64_t number);

/* Which operation a unit is of; 0: of none that is open. */
uint64_t ha_member_operation_of(const struct ha_member *member, uint64_t unit);

/* Moves everything that can be moved. True: something was. */
bool ha_member_progress(struct ha_member *member);

/* As ha_edge_look, of all its edges. */
void ha_member_look(struct ha_member *member, uint64_t now_ns);

/* The caller knows that a tree is gone, or it could not be joined; until it joins others. */
void ha_member_cut(struct ha_member *member);
/* That, or an edge has failed, or brought what cannot be: a reason to suspect its tree. */
bool ha_member_is_cut(const struct ha_member *member);
/* The last reason why it was cut by what came over an edge, or by the edge; NULL: it never was. */
const char *ha_member_why(const struct ha_member *member);
const struct ha_ledger *ha_member_ledger(const struct ha_member *member);

/*
 * FENCE: counts what has come, and destroys the edges. False: it is of an earlier epoch, or a
 * device refuses to destroy an edge, and nothing may be said yet; to be called again. Waits for the
 * device.
 */
bool ha_member_fence(struct ha_member *member, uint32_t epoch);
/* RESUME, after ha_member_join(): goes on over the new edges. */
enum ha_ledger_verdict ha_member_resume(struct ha_member *member, const struct ha_resume *resume);
/* HOLD: contributes to no unit more, until RESUME or until it is taken back. */
void ha_member_hold(struct ha_member *member, bool is_on);
/* LEAVE. False: something is not retired or not done. */
bool ha_member_leave(struct ha_member *member);

/* The group is over: destroys the edges, so that no operation's memory is touched any more. False:
 * a device refuses; to be called again. */
bool ha_member_stop(struct ha_member *member);

/* HA_ERR_SYSTEM: the device does not let go of it; to be called again. NULL is fine. */
ha_result_t ha_member_close(struct ha_member *member) HA_MUST_CHECK;

#endif
