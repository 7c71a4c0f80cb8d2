/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of an edge of a tree: a queue pair to the child or to the parent, over which
 * contributions go up, results go down, and a word goes either way.
 *
 * Messages keep order: what has come has come into the oldest receive, and what has been sent is
 * the oldest send. So neither has a name, and who posts them knows which is which. Nobody sends
 * what the other end has not posted a receive for: that is for whoever posts to see to, and the
 * queue pair gives up at once if it is not so.
 *
 * A word is a number that only grows. It is written into the other end's memory, one write at a
 * time, so a newer number waits and the last one wins.
 *
 * What is lost last, of all that is under way, nobody notices but the queue pair's timeout, which
 * is long: behind it comes nothing that would be out of order. So who has waited for an
 * acknowledgement for longer than they take, as far as it has seen, writes the word once more, as
 * it is; where something is lacking that is answered by what is lacking, at once.
 *
 * The first thing that fails is kept as the edge's fault, and nothing is posted any more. An edge
 * is made for one epoch and never mended. One thread.
 */
#ifndef HA_INC_VERBS_EDGE_H
#define HA_INC_VERBS_EDGE_H

#include "base/result.h"
#include "device/device.h"
#include "device/give_back.h"
#include "inc/join.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define HA_EDGE_SGES 2 /* of a send */
#define HA_EDGE_WORDS                                                                              \
	6 /* writes of a word under way: one, and those said once more, in room for sends */
#define HA_EDGE_WAIT_NS	     50000ull	 /* until the first of those, at least */
#define HA_EDGE_WAIT_MOST_NS 10000000ull /* and at most */

struct ha_edge_depth {
	uint32_t sends, recvs; /* that are posted at a time */
};

enum ha_edge_event {
	HA_EDGE_NOTHING,
	HA_EDGE_CAME, /* into the oldest receive */
	HA_EDGE_SENT, /* the oldest send: its memory is not read any more */
};

/* For an acknowledgement, as ha_edge_look() has seen it. */
struct ha_edge_wait {
	uint64_t
	    since_ns; /* of the last one, or when something was sent to wait for; 0: nothing is */
	uint64_t usual_ns; /* how long it is, smoothed */
	uint64_t limit_ns; /* until the word is said once more */
	uint32_t seen;	   /* acknowledged by then */
	bool is_first;	   /* before it nothing was under way */
	bool was_probed;
};

struct ha_edge {
	struct ha_port *port;
	struct ha_incarnation *on; /* held, with its protection domain; NULL: closed */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *word_mr;
	struct ha_edge_words *words; /* the memory of both */
	uint64_t remote_word;
	uint32_t remote_word_rkey;
	uint32_t psn;
	struct ha_edge_depth depth;
	uint32_t sends, recvs; /* under way */
	uint64_t said;	       /* the word that was written last */
	uint32_t saying;       /* writes of it under way */
	uint32_t acknowledged; /* sends and writes, modulo 2^32 */
	struct ha_edge_wait wait;
	bool is_fenced;
	struct ha_asked asked;
	const char *fault; /* the verb that failed, or what a completion said; NULL: none */
};

/* Not connected; receives may be posted. On failure it is closed, and `fault` says why. */
ha_result_t ha_edge_open(struct ha_edge *edge, struct ha_port *port,
			 const struct ha_edge_depth *depth) HA_MUST_CHECK;
void ha_edge_address(const struct ha_edge *edge, struct ha_edge_address *out);
/* May wait in the kernel until the other end's address is resolved. */
ha_result_t ha_edge_connect(struct ha_edge *edge,
			    const struct ha_edge_address *remote) HA_MUST_CHECK;

/* Whether another send may be posted. */
static inline bool ha_edge_has_room(const struct ha_edge *edge)
{
	return !edge->fault && !edge->is_fenced &&
	       edge->sends + (edge->saying > 1 ? edge->saying - 1 : 0) < edge->depth.sends;
}

/* One message from 1 to HA_EDGE_SGES pieces of memory. False: the edge has failed. */
bool ha_edge_send(struct ha_edge *edge, struct ibv_sge *pieces, int n);
/* Where the next message goes that has no receive yet. */
bool ha_edge_recv(struct ha_edge *edge, struct ibv_sge piece);

/* The next thing that has happened. `bytes`: of what came. */
enum ha_edge_event ha_edge_poll(struct ha_edge *edge, uint32_t *bytes);

/* Tells the other end, now or as soon as it has been told the number before. A closed edge has none
 * to tell. */
void ha_edge_say(struct ha_edge *edge, uint64_t word);
/* The other end's; 0 at first, and of a closed edge. */
uint64_t ha_edge_word(const struct ha_edge *edge);

/* Says the word once more if that is due. To be called again and again, the more often the sooner
 * what is lost comes. */
void ha_edge_look(struct ha_edge *edge, uint64_t now_ns);

/* The queue pair takes nothing any more. What had come is still there to be polled. */
void ha_edge_fence(struct ha_edge *edge);

/*
 * Destroys everything: afterwards nothing reads or writes what was posted. HA_ERR_SYSTEM: the
 * device refuses, so it may; the edge is as it was, to be closed again. Waits for the device. A
 * closed edge is fine.
 */
ha_result_t ha_edge_close(struct ha_edge *edge) HA_MUST_CHECK;

#endif
