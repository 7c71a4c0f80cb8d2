/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host does with a stream whose queue pairs a GPU drives (nccl_ha/ibgda_stream.h): it
 * moves it from one queue to another one, after a failure or as planned, and says when a queue that
 * was left may be used again. docs/ibgda-protocol.md has the steps and why they are in this order.
 *
 * Knows no queue pair, no network and no time: its caller fences, asks the receiver, and makes
 * queues. One thread of the host for each stream, but where said otherwise; threads of the GPU go
 * on meanwhile. All words are in memory that both reach.
 */
#ifndef HA_IBGDA_SWITCHOVER_H
#define HA_IBGDA_SWITCHOVER_H

#include "nccl_ha/ibgda_stream.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_IBGDA_QUEUES                                                                            \
	8u /* that a stream has at most: in use, and left and not proved to be nobody's */

enum ha_ibgda_host_state {
	HA_IBGDA_RUNS,
	HA_IBGDA_FAILED_OVER, /* the gate is closed: both ends are to be fenced */
	HA_IBGDA_FENCED,      /* ... are: the receiver is to be asked */
	HA_IBGDA_PREPARED,    /* the next queue is there */
	HA_IBGDA_STARTED,     /* ... and rung */
	HA_IBGDA_PLANNED, /* a planned switch: closed, and what is posted is to come to its end */
	HA_IBGDA_GIVEN_UP,
};

enum ha_ibgda_use {
	HA_IBGDA_FREE,	   /* nobody stores into it */
	HA_IBGDA_IN_USE,   /* the gate names it */
	HA_IBGDA_LEFT,	   /* threads may still hold it */
	HA_IBGDA_SILENCED, /* `prod` was set, the lock was not seen free since */
	HA_IBGDA_SILENT,   /* nobody rings any more; requests may be stored */
};

/* What the receiver says after its NIC was made to place what it has. */
struct ha_ibgda_verdict {
	bool is_flushed; /* false: the NIC could not be asked */
	uint64_t cells[HA_IBGDA_IDS];
};

enum ha_ibgda_judged {
	HA_IBGDA_FINE,
	HA_IBGDA_LOST,	   /* an acknowledged signal is not in its cell */
	HA_IBGDA_UNKNOWN,  /* the journal has turned over: nobody can tell */
	HA_IBGDA_UNPROVED, /* acknowledged puts behind the last signal may not be placed: is fine if
			      the caller says so */
};

struct ha_ibgda_host {
	struct ha_ibgda_stream *stream;
	enum ha_ibgda_host_state state;
	uint32_t generation, queue; /* in use, */
	uint32_t next;		    /* and the one that is prepared */
	uint64_t acked, ready;	    /* of the queue that is left: below */
	enum ha_ibgda_use use[HA_IBGDA_QUEUES];
	uint64_t reserved[HA_IBGDA_QUEUES]; /* when it was left: below */
	uint64_t is_ended;		    /* any thread's word, zero before: ha_ibgda_end_gate */
};

/* queues[0] is made and nobody has posted; its words are zero. What was ended stays so. */
void ha_ibgda_host_init(struct ha_ibgda_host *host, struct ha_ibgda_stream *stream);

/* A queue that may be made anew for the next generation; HA_IBGDA_QUEUES: none is, as threads sleep
 * that hold them. Then the gate has to stay open: none is set free while it is closed. */
uint32_t ha_ibgda_free_queue(const struct ha_ibgda_host *host);

/* What the oldest request says that is not known to be complete. Threads look at their own: this is
 * for those that nobody waits for. */
enum ha_ibgda_front {
	HA_IBGDA_WAITS, /* nothing of this queue has been completed yet */
	HA_IBGDA_MOVES, /* something has, or there is nothing to complete */
	HA_IBGDA_FRONT_FAILED,
	HA_IBGDA_FRONT_REFUSED, /* it names memory that is not registered: no path carries it */
};
/* Requests of the queue in use, by numbers: first up to last were published and are not known to be
 * complete. */
struct ha_ibgda_under_way {
	uint64_t first, last;
};
/* RUNS, PLANNED. Changes nothing. */
enum ha_ibgda_front ha_ibgda_look_at_front(const struct ha_ibgda_host *host,
					   struct ha_ibgda_under_way *under_way);
/* What these put or read; about so much, where they complete meanwhile. */
uint64_t ha_ibgda_bytes_under_way(const struct ha_ibgda_host *host,
				  const struct ha_ibgda_under_way *under_way);

/* RUNS, PLANNED -> FAILED_OVER. */
void ha_ibgda_fail(struct ha_ibgda_host *host);
/* FAILED_OVER -> FENCED. Nothing of the old queue pair can be executed any more, at either end. */
void ha_ibgda_fenced(struct ha_ibgda_host *host);
/* FENCED. Changes nothing. */
enum ha_ibgda_judged ha_ibgda_judge(const struct ha_ibgda_host *host,
				    const struct ha_ibgda_verdict *verdict);
/* FENCED -> PREPARED. The queue is free; its memory, keys and queue pair are new, its completions
 * are nobody's. */
void ha_ibgda_prepare(struct ha_ibgda_host *host, uint32_t queue,
		      const struct ha_ibgda_verdict *verdict);
/* PREPARED -> STARTED. */
void ha_ibgda_start(struct ha_ibgda_host *host);
/* STARTED -> RUNS. */
void ha_ibgda_open(struct ha_ibgda_host *host);

/* RUNS -> PLANNED. */
void ha_ibgda_plan(struct ha_ibgda_host *host);
/* PLANNED. Whether all is complete; call it again else. The receiver's NIC is to be flushed then,
 * and the old queue pair closed. */
bool ha_ibgda_is_drained(struct ha_ibgda_host *host);
/* PLANNED, drained -> STARTED, on a free queue as above. */
void ha_ibgda_prepare_planned(struct ha_ibgda_host *host, uint32_t queue);

/* Any -> GIVEN_UP: every thread returns. */
void ha_ibgda_give_up(struct ha_ibgda_host *host);
/* From any thread: the gate is one of a stream that is over, whatever its own thread does to it
 * meanwhile, and that thread gives up when it looks at is_ended. */
void ha_ibgda_end_gate(struct ha_ibgda_host *host);

/* Looks at what was left, one step each. Returns how many are not free yet. */
unsigned int ha_ibgda_retire(struct ha_ibgda_host *host);

#endif
