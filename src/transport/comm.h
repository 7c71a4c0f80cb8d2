/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection at one end: its paths, its requests, its rings.
 *
 * Who may touch what. NCCL drives a connection from one thread (its proxy's progress thread:
 * isend, irecv, iflush, test), "the application" below. Our progress thread steps in when the
 * application does not poll, and for failures. Both take the *token* first, with one atomic
 * exchange and never waiting: whoever finds it taken goes away and comes back. With the token one
 * may touch everything that is marked [T]. What is marked [A] belongs to the application alone,
 * [C] is constant once the connection is up, and atomics say for themselves who writes them.
 *
 * Completions reach a request through its own state word, stored by whoever holds the token and
 * read by the application without it. docs/architecture.md says why there is no queue between
 * the two.
 *
 * Cache lines of a message in steady state, n = 1, in our own memory. Sender: three of the comm,
 * two of its send side, the group, the element, the request, the path, the queue pair, the
 * registration: 11. Receiver: three of the comm, two of its receive side, the slot, the element,
 * the request, the path, the queue pair, the registration: 11.
 */
#ifndef HA_TRANSPORT_COMM_H
#define HA_TRANSPORT_COMM_H

#include "base/invariant.h"
#include "base/list.h"
#include "device/device.h"
#include "progress/progress.h"
#include "transport/auth.h"
#include "transport/comm_stats.h"
#include "transport/life.h"
#include "transport/path.h"
#include "transport/poll_thread.h"
#include "transport/request.h"
#include "transport/rings.h"
#include "transport/stall.h"
#include "transport/timeout.h"
#include "transport/transport.h"
#include "transport/user_mr.h"
#include "transport/wc_error.h"
#include "transport/window.h"
#include "transport/wire.h"

#include <infiniband/verbs.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ha_failover;
struct ha_failover_ops;
struct ha_ctrl_sock;
struct ha_recv_side;
struct ha_send_side;

/* The soft timeout grows up to this. */
#define HA_RTO_MAX_MS 5000

/* ---- the connection ------------------------------------------------------------------------ */

/* What comes without a completion; the first two are end-to-end completion (e2e.h). */
enum ha_silent {
	HA_SILENT_COUNT = 1, /* a sender's: sends wait for the peer's count. Constant. */
	HA_SILENT_TELL = 2,  /* a receiver's: it says what it counts. Constant. */
	HA_SILENT_HELD = 4,  /* something is held back until there is room, a path, or a new row */
};

struct ha_comm {
	/* First line: what every call reads. */
	_Atomic uint32_t token;		     /* 1: taken */
	atomic_int error;		     /* latched ha_result_t; 0 while all is well */
	uint32_t outstanding;		     /* [T] requests to be completed by hardware */
	uint32_t polls;			     /* [T] times the application polled */
	_Atomic uint32_t epoch;		     /* written under T; looked at by isend without */
	uint32_t slot_mask;		     /* [C] agreed window - 1 */
	bool is_send;			     /* [C] */
	uint8_t active;			     /* [T] index of the active path */
	uint8_t npaths;			     /* [T] */
	uint8_t max_recvs;		     /* [C] agreed */
	uint16_t test_batch;		     /* [C] most completions a test takes */
	uint8_t silent;			     /* [T] enum ha_silent: polls look for it, too */
	bool epoch_changing;		     /* [T] no data may be posted: the engine's */
	struct ha_path *clear;		     /* [T] clear_path.h */
	struct ha_path *paths[HA_MAX_PATHS]; /* [T] NULL: not there */

	/* Second line. */
	alignas(64) union {
		struct ha_send_ring *send_ring;
		struct ha_recv_ring *recv_ring;
		void *ring;
	};			     /* [C] page-aligned */
	struct ha_request_pool pool; /* [A] */
	atomic_bool peer_bye;	     /* the peer closed in good order; set by the control socket */
	uint8_t group_limit;	     /* [A] a receive of more is not a group: max_recvs, or 0 */
	uint32_t standby_in;	     /* [T] polls until paths that are not active are looked at */
	uint32_t standby_every;	     /* [T] polls from one such look to the next */
	int plain_n; /* [A] receives of so many buffers are plain: 1; none are: INT_MIN (recv.c) */
	struct ha_send_side *send;  /* [C] NULL on a receive comm */
	struct ha_recv_side *recv;  /* [C] NULL on a send comm */
	_Atomic uint64_t not_ready; /* calls answered with "not now"; written by A */
	struct ha_counters count;   /* [T] */

	/* Rarely used from here on. */
	atomic_uint refs;    /* ha_comm_hold */
	bool left_path;	     /* closing: some path was left to its command, which was logged */
	bool rail_alone;     /* [C] no other rail of its bundle: they do not reach the peer's */
	uint16_t poll_batch; /* [C] */
	struct ha_instance *inst; /* [C] */
	struct ha_port *port;	  /* [C] NCCL's device: preferred, and usually where it begins */
	struct ha_nic *primary;	  /* [C] where the application's memory is registered first */
	const struct ha_config *config; /* [C] */
	size_t ring_length;		/* [C] */
	uint64_t id, peer_id;		/* [C] for logs */
	uint64_t features;		/* [C] agreed */
	char name[192];			/* [C] "send 1f… host:pid/dev:port -> …", for logs */
	char peer_host[32];		/* [C] as it says, for logs; empty: it did not */
	uint32_t peer_pid;		/* [C] likewise, on its host */
	struct ha_ctrl_sock *ctrl_sock; /* [C] the bootstrap socket, our control channel */
	_Atomic uint64_t port_errors;	/* of the paths' ports; progress thread */
	atomic_bool queue_events;	/* some path has an event; progress thread */
	uint64_t ports;			/* [C] of ours that it may have paths on: bits */
	_Atomic uint64_t port_events;	/* those of them that have changed; progress thread */
	_Atomic uint32_t turn;	   /* control rails that this epoch had before: written under T */
	uint32_t looks_later;	   /* [T] polls that may yet pass the others by (complete.c) */
	uint64_t striped_end;	   /* [T] no message from this number on is cut (stripe.h) */
	struct ha_striped striped; /* [T] */
	struct ha_comm_memory memory;	 /* [T] */
	struct ha_last_error last_error; /* [T] */
	uint32_t rto_ms;		 /* [T] soft timeout in use; HA_NCCL_RTO_MS at first */
	struct ha_timeout timeout;	 /* [T] timeout.c */
	struct ha_stall_watch stall;	 /* [T] stall.c */
	struct ha_comm_report report;
	struct ha_failover_record failovers; /* [T] */
	struct ha_window peer_done;	     /* what BYE said; written before peer_bye */
	uint64_t peer_bye_ns;		     /* likewise: when it came */
	bool settling;			   /* [T] paths are fenced, then what is left is settled */
	const struct ha_failover_ops *ops; /* [C] what keeps it alive */
	struct ha_failover *failover;	   /* [T] theirs; NULL: nothing does */
	struct ha_life life;		   /* visit.c */
	alignas(64) struct ha_poller poller;
	uint32_t seen_polls;	    /* progress thread: value of polls at its last visit */
	bool abort_said;	    /* progress thread: the peer knows of our error */
	struct ha_polled polled;    /* poll_thread.h */
	struct ha_list in_instance; /* under the instance's lock */

	struct ha_auth auth; /* [C] of a job that has a key */
};

/* ---- the token ----------------------------------------------------------------------------- */

static inline bool ha_token_try(struct ha_comm *comm)
{
	return atomic_exchange_explicit(&comm->token, 1, memory_order_acquire) == 0;
}

static inline void ha_token_release(struct ha_comm *comm)
{
	HA_INVARIANT(atomic_load_explicit(&comm->token, memory_order_relaxed) == 1);
	atomic_store_explicit(&comm->token, 0, memory_order_release);
}

/* Ports that may carry at once: 1, or as many as are in NCCL's bundle. */
static inline unsigned ha_comm_rails(const struct ha_comm *comm)
{
	const struct ha_bundle *bundle = comm->port->bundle;

	return bundle->by_island ? 1 : (unsigned)bundle->nrails;
}

/* A call could not start now. [A] */
static inline void ha_comm_not_ready(struct ha_comm *comm)
{
	uint64_t now = atomic_load_explicit(&comm->not_ready, memory_order_relaxed);

	atomic_store_explicit(&comm->not_ready, now + 1, memory_order_relaxed);
}

/* Waits for it. For slow paths and the progress thread only: holders keep it for microseconds. */
void ha_token_acquire(struct ha_comm *comm);

/* ---- life ---------------------------------------------------------------------------------- */

/* A connection without a path: rings, requests, templates. */
ha_result_t ha_comm_new(struct ha_instance *inst, bool is_send, struct ha_comm **out) HA_MUST_CHECK;
/*
 * The end of it. Paths first (ha_path_close); its ring and the structure stay for as long as a path
 * does that had to be left, since queue pairs may still write there. NULL is fine.
 */
void ha_comm_free(struct ha_comm *comm);

/* References, of what may outlive its use: any thread. */
struct ha_comm *ha_comm_hold(struct ha_comm *comm);
void ha_comm_put(struct ha_comm *comm);

/* Publishes an established connection: statistics, background polling, its control socket; events,
 * and whoever looks through the instance's list, when all of it is there. */
ha_result_t ha_comm_start(struct ha_comm *comm) HA_MUST_CHECK;
/* Undoes ha_comm_start; afterwards only the caller touches the connection. */
void ha_comm_stop(struct ha_comm *comm);

/* The connection's number, the same at both ends: the sender's. */
static inline uint64_t ha_comm_number(const struct ha_comm *comm)
{
	return comm->is_send ? comm->id : comm->peer_id;
}

/* NULL while there is none. */
static inline struct ha_path *ha_comm_path(const struct ha_comm *comm)
{
	return comm->paths[comm->active];
}

/* What rows and their messages are stamped with. */
static inline uint32_t ha_comm_epoch(const struct ha_comm *comm)
{
	return atomic_load_explicit(&comm->epoch, memory_order_relaxed);
}

/* The same word of an epoch and a turn in it (turn.h), of which an immediate has the epoch alone.
 */
static inline uint32_t ha_epoch_word(uint32_t epoch, uint32_t turn)
{
	return epoch + (turn << 8);
}

/* The epoch that traffic is in, as the failover counts them. [T] */
static inline uint32_t ha_comm_traffic_epoch(const struct ha_comm *comm)
{
	return ha_comm_epoch(comm) -
	       ha_epoch_word(0, atomic_load_explicit(&comm->turn, memory_order_relaxed));
}

/*
 * Whether data may be posted on the active path. Not while the ends agree on another epoch,
 * although the path may be ready: with one port at each end it is rebuilt in its own place, and
 * what would be posted on it carries keys and an identity of the epoch before. [T]
 */
static inline bool ha_comm_may_post(const struct ha_comm *comm)
{
	return !comm->epoch_changing && ha_path_ready(ha_comm_path(comm));
}

/* ---- failure ------------------------------------------------------------------------------- */

/*
 * Latches an error and says why, once; later ones are silent. Any thread, with or without the
 * token. Returns the code that is latched now.
 */
ha_result_t ha_comm_fail(struct ha_comm *comm, ha_result_t code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

static inline ha_result_t ha_comm_error(const struct ha_comm *comm)
{
	return (ha_result_t)atomic_load_explicit(&comm->error, memory_order_acquire);
}

/* Both ends have it, and neither has switched it off. */
static inline bool ha_comm_has_failover(const struct ha_comm *comm)
{
	return comm->features & HA_FEATURE_FAILOVER;
}

/* ---- paths --------------------------------------------------------------------------------- */

/* Makes a path the active one: keys and addresses of its ring go into the templates. */
void ha_comm_take_path(struct ha_comm *comm, uint8_t index);
/* The same, and nothing carries beside it: of an epoch that begins. */
void ha_comm_use_path(struct ha_comm *comm, uint8_t index);

/* Which end of the connection this is. */
static inline enum ha_speaker ha_comm_speaker(const struct ha_comm *comm)
{
	return comm->is_send ? HA_SPEAKER_SENDER : HA_SPEAKER_RECEIVER;
}

#endif
