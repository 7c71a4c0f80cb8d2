/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A path: one local port, one remote port, and the RC queue pairs between them. Making, connecting
 * and closing them: path_open.h, path_connect.h, path_close.h; fencing: fence.h.
 *
 * A path is named by its index in the connection and a generation that counts its rebuilds. What
 * was posted on it and what state it is in is kept here, so that a connection can lose one path
 * and keep the others. Completions carry index and generation in their wr_id: those of an
 * earlier generation are dropped.
 */
#ifndef HA_TRANSPORT_PATH_H
#define HA_TRANSPORT_PATH_H

#include "base/clock.h"
#include "base/invariant.h"
#include "base/result.h"
#include "device/device.h"
#include "device/give_back.h"
#include "device/queue_depth.h"
#include "progress/command.h"
#include "transport/labels.h"
#include "transport/wire.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_comm;
struct ha_instance;
struct ha_mr;

#define HA_MAX_QPS HA_WIRE_MAX_QPS

/* Every so many clear-to-send writes one asks for a completion, to make room. */
#define HA_CTS_SIGNAL_INTERVAL 16

enum ha_path_state {
	HA_PATH_INIT,	 /* queue pairs exist, and may be on their way to RTS: `command` */
	HA_PATH_READY,	 /* can carry data */
	HA_PATH_STOPPED, /* nothing is posted any more; its fence has not begun */
	HA_PATH_FENCING, /* in error, or about to be: something may still arrive */
	HA_PATH_FENCED,	 /* confirmed: nothing moves in either direction any more, for ever */
};

/* A queue pair whose flush takes longer than this is destroyed instead: microseconds are usual. */
#define HA_FENCE_NS (20 * HA_NS_PER_MS)

/* Counters are [T] (see comm.h), the rest constant while the path is ready. */
struct ha_qp {
	alignas(64) struct ibv_qp *qp;
	uint32_t sq_depth;
	uint32_t sq_posted; /* work requests ever posted */
	uint32_t sq_done;   /* of these, known to have left the queue */
	uint32_t rq_used;   /* receives consumed and not replaced yet */
	bool watched;	    /* a write of nothing is under way (timeout.c) */
	uint8_t stopped;    /* enum ha_stop_step: how far its fence is (fence.c) */
	uint32_t local_psn;
	uint64_t wr_base;			/* path, generation and queue pair of a wr_id */
	uint64_t data_base;			/* the same, with the kind of a message */
	struct ibv_recv_wr refill[HA_RQ_BATCH]; /* linked, ready to post */
};

static inline uint32_t ha_qp_room(const struct ha_qp *qp)
{
	return qp->sq_depth - (qp->sq_posted - qp->sq_done);
}

/*
 * Whether a work request at this place of a queue, which needs no completion, asks for one all the
 * same: every so many, whatever they are, to make room.
 */
static inline bool ha_sq_makes_room(uint32_t place)
{
	return place % HA_CTS_SIGNAL_INTERVAL == 0;
}

/*
 * A signalled work request that says its place in the queue is complete, and all before it have
 * left. `mark`: the low 24 bits of the place, as its wr_id carries them; a slot may be in use again
 * by then.
 */
static inline void ha_qp_left(struct ha_qp *qp, uint32_t mark)
{
	qp->sq_done = qp->sq_posted - ((qp->sq_posted - mark) & 0xffffffu);
	HA_INVARIANT(qp->sq_posted - qp->sq_done <= qp->sq_depth);
}

/* What of a fence is done at a queue pair: bits. */
enum ha_stop_step {
	HA_STOP_RECV_SENTINEL = 1,
	HA_STOP_ERROR = 2,
	HA_STOP_SEND_SENTINEL = 4,
};

/* Of a path's queue pairs. The latter three are what became of a try. */
enum ha_destruction {
	HA_DESTRUCTION_NONE,	    /* not asked for */
	HA_DESTRUCTION_FAILED,	    /* the device refuses: one of them lives */
	HA_DESTRUCTION_UNREACHABLE, /* EIO: none can be destroyed, and it is not known that they end
				     */
	HA_DESTRUCTION_DONE,	    /* there is none any more */
};

/* The queue pair to itself that iflush reads through (flush.c). [T] */
struct ha_flush_qp {
	struct ibv_qp *qp; /* NULL until GPU memory first needed it, and it was made */
	uint32_t posted, done;
	uint8_t stopped; /* enum ha_stop_step */
	bool kept;	 /* it outlives the fence of its path (flush_old.c) */
	/* Makes it; before the path is fenced and closed, whose commands have the same key. */
	struct ha_command command;
	uint32_t serial; /* of the connection's memory when there was none of a GPU in it */
	/* Of a path that carries beside the active one (flush_beside.c): stripes that came into
	 * GPU memory, how many of them a read has seen to, and how many when the read at this
	 * position was posted, the last that is to say so. */
	uint32_t came, seen_to, mark_came, mark_posted;
	bool marked;
	bool named;	     /* for stripes into GPU memory: parts of some may have come */
	uint64_t since_ns;   /* when the command was sent */
	struct ibv_qp *made; /* its own while it is busy, as what follows */
	const char *verb;    /* that failed, with error; NULL: none */
	int error;
};

/* A read of GPU memory through it by a path in reserve (gpu_proof.c). [T] */
struct ha_gpu_proof_state {
	uint8_t state;	   /* enum ha_gpu_proof */
	uint64_t since_ns; /* when it was posted */
	const struct ha_mr *mr;
};

/* What carries a message beside one queue pair of the active path. */
enum ha_split_over {
	HA_SPLIT_NOT,
	HA_SPLIT_QPS,	/* all queue pairs of the path */
	HA_SPLIT_RAILS, /* other paths, as far as the receiver names them (stripe.h) */
};

struct ha_latency;

struct ha_path {
	/* First line: what every message looks at. */
	alignas(64) struct ibv_cq *cq;
	struct ha_nic *nic;    /* port->nic */
	uint64_t remote_ring;  /* address of the peer's ring there */
	uint64_t single_limit; /* a message up to this goes in one write with its immediate */
	uint8_t nic_index;     /* nic->index */
	uint8_t index;
	uint32_t generation; /* its low 16 bits are in every wr_id */
	uint32_t label;	     /* index and generation as they lie in the upper half of a wr_id */
	atomic_int state;    /* enum ha_path_state; written under T */
	uint8_t nqps;
	uint8_t split;		/* enum ha_split_over: what larger messages are spread over */
	bool plain;		/* no: each message takes its one queue pair, and no other path */
	bool carried;		/* traffic of the connection ran over it, or may have. [T] */
	uint32_t max_inline;	/* bytes a send may carry inline, 0: none */
	uint32_t element_flags; /* of a write of one element: inline, or not */

	struct ha_comm *comm; /* held: it lasts as long as the path */
	struct ha_port *port;
	uint32_t port_errors; /* of the port, as taken into account */
	uint32_t ring_lkey;
	uint32_t remote_rkey;	   /* of the peer's ring */
	uint64_t max_message;	   /* larger writes are cut */
	uint64_t stripe_from;	   /* larger ones may go over other paths, where split is RAILS */
	uint64_t ar_threshold;	   /* above this, data and immediate go apart; UINT64_MAX: never */
	struct ha_incarnation *on; /* of its NIC, held: what its objects are made on */
	struct ibv_mr *ring_mr;
	struct ha_port_addr addr; /* as it was told to the peer */
	struct ha_wire_endpoint remote;
	struct ha_wire_ece ece; /* offered; once it is connected: agreed on */

	/* What an asynchronous event said of one of its queues (failure.c); progress thread. */
	atomic_int event; /* its type + 1; 0: nothing */
	uint32_t event_qpn;

	struct ha_path *next_retired; /* fenced and replaced, to be closed when there is time; or
					 of ha_instance.kept */
	uint64_t kept_since_ns;	      /* there; 0: not seen yet (kept_path.c) */

	/* Opening, connecting, fencing or closing. While it is busy, the queue pairs are its. */
	struct ha_command command;
	struct ha_asked asked; /* for its queue pairs */
	bool destroyed;	       /* by the command: only the structure is left */
	bool kept;	       /* put aside with queue pairs that live, which was said */
	bool connects;	       /* the command that makes it also connects it, to `remote` */
	ha_result_t outcome;   /* of opening and connecting */

	/* On their way (path_msg.c). [T] */
	uint8_t msgs_out;
	bool probe_busy;
	bool count_busy; /* the same of a read of the peer's count (e2e.c) */

	struct ha_latency *latency; /* [T] NULL: its queue pairs are not timed */

	/* Fencing (fence.c). [T] */
	uint64_t fencing_since_ns;
	uint64_t draining_since_ns; /* since the command is back; 0: it is not */
	uint16_t sentinels_out;	    /* posted, by the command */
	uint16_t sentinels_back;
	atomic_bool undrainable;  /* a verb failed: the sentinels will not tell */
	uint64_t stop_ns;	  /* a verb that failed is not tried again before */
	bool unreachable;	  /* EIO: nothing that is asked of the NIC will be done */
	bool indestructible;	  /* destroying a queue pair failed, which was logged */
	atomic_uchar destruction; /* enum ha_destruction; looked at while its command writes it */
	uint64_t destroy_ns;	  /* not tried again before; 0: not known yet */
	uint8_t refusals;	  /* to destroy a queue pair, by a device that is well */
	bool unheard;		  /* nothing of it is taken any more: ha_path_unheard */
	bool settled; /* the peer's fence covers the application's memory (path_slot.c) */
	bool exposed; /* at the end: the application's memory is not safe from it yet */

	struct ha_flush_qp flush;
	struct ha_gpu_proof_state gpu_proof;
	/* nqps of them; mostly one, and there are very many paths. Their qp is NULL after a fence
	 * that had to destroy them. */
	struct ha_qp qps[];
};

_Static_assert(offsetof(struct ha_path, comm) == 64, "one line is what a message looks at");
_Static_assert(offsetof(struct ha_qp, refill) <= 64, "the same of a queue pair");

/* [T] Whether traffic may be posted; NULL is a path that is not there. */
static inline bool ha_path_ready(const struct ha_path *path)
{
	return path && atomic_load_explicit(&path->state, memory_order_relaxed) == HA_PATH_READY;
}

/* [T] Whether it is out of use: its errors say nothing new. */
static inline bool ha_path_stopped(const struct ha_path *path)
{
	return atomic_load_explicit(&path->state, memory_order_relaxed) >= HA_PATH_STOPPED;
}

/* Whether a queue pair is one of the path's present ones. */
static inline bool ha_path_has_qp(const struct ha_path *path, uint32_t qp_num)
{
	for (unsigned i = 0; i < path->nqps; i++)
		if (path->qps[i].qp && path->qps[i].qp->qp_num == qp_num)
			return true;
	return false;
}

/* Whether the device that it was made on has died: it may have come back since. */
static inline bool ha_path_device_died(const struct ha_path *path)
{
	return path->on ? ha_incarnation_is_dead(path->on) : atomic_load(&path->nic->fatal);
}

/* [T] Whether our end exists and is not being fenced, connected or not. */
static inline bool ha_path_open_for_use(const struct ha_path *path)
{
	return path && !ha_path_stopped(path);
}

/* Sends the path's command to its NIC: the queue pairs are the command's until it is back. [T] */
void ha_path_command(struct ha_path *path, void (*run)(struct ha_command *command),
		     enum ha_command_kind kind);

/* Of its NIC. */
struct ha_commands *ha_path_commands(const struct ha_path *path);

/* Waits for the path's command as long as it gets on (ha_command_wait). True: it is back. */
bool ha_path_wait(struct ha_path *path, uint64_t limit_ns);

/* Whether the path's queue pairs are in use by its command. */
static inline bool ha_path_away(const struct ha_path *path)
{
	return ha_command_busy(&path->command);
}

/* [T] Whether a fence that was begun is known to be complete, by what has completed so far. */
static inline bool ha_path_drained(const struct ha_path *path)
{
	return atomic_load_explicit(&path->state, memory_order_relaxed) == HA_PATH_FENCED ||
	       (atomic_load_explicit(&path->state, memory_order_relaxed) == HA_PATH_FENCING &&
		!ha_path_away(path) && !atomic_load(&path->undrainable) && !path->unheard &&
		path->sentinels_back == path->sentinels_out);
}

/*
 * [T] Of a path that is fenced: whether it touches the application's memory no more, or nothing
 * comes of it, whatever its own NIC says. What a flush reads the peer knows nothing of.
 */
static inline bool ha_path_harmless(const struct ha_path *path)
{
	return !path->carried || ha_path_drained(path) ||
	       (path->settled && path->flush.posted == path->flush.done);
}

/*
 * Nothing that completes on it from now on is taken: it has counted for the last time. Its fence is
 * confirmed by destroying its queue pairs, which is tried every HA_FENCE_NS. For a path that is
 * being fenced, and of which the connection needs to know nothing else any more. Under the token.
 */
static inline void ha_path_unheard(struct ha_path *path)
{
	path->unheard = true;
}

/* [T] Whether its fence is not confirmed, and no command says more by itself. */
static inline bool ha_path_fencing(const struct ha_path *path)
{
	return atomic_load_explicit(&path->state, memory_order_relaxed) == HA_PATH_FENCING &&
	       !ha_path_away(path);
}

/* [T] Whether its NIC has had its chance to confirm the fence and did not: it refuses, or the
 * device is being taken away. */
static inline bool ha_path_unconfirmed(const struct ha_path *path)
{
	return ha_path_fencing(path) && path->indestructible;
}

/* Says that a verb failed with the errno `rc`, and how that is an error of the connection. */
ha_result_t ha_path_verb_error(const struct ha_path *path, const char *verb, int rc);

/* Works single_limit out from the other limits; after one of them was changed. */
void ha_path_set_limits(struct ha_path *path);

/* Fills the receive queue of one queue pair with `n` work requests, a batch at most. errno. */
int ha_qp_refill(struct ha_qp *qp, uint32_t n);

#endif
