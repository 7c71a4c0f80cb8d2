/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a stream where threads of a GPU put: the host's thread that watches over its queue
 * pairs. It has the next one connected before it is needed; when the one in use fails it closes the
 * gate, destroys it, has the other end destroy its own and say what has come, writes again what has
 * not, and opens the gate there (docs/ibgda.md). What threads wait for is one function, what they
 * do not wait for another one, so that a host of many streams does the first for all of them before
 * the second. One thread, but where said otherwise.
 */
#ifndef HA_IBGDA_SENDER_H
#define HA_IBGDA_SENDER_H

#include "ibgda/message.h"
#include "ibgda/nic.h"
#include "ibgda/pair.h"
#include "ibgda/probe.h"
#include "ibgda/switchover.h"

#include <stdbool.h>
#include <stdint.h>

enum ha_ibgda_phase {
	HA_IBGDA_STARTING,
	HA_IBGDA_RUNNING,
	HA_IBGDA_DRAINING, /* a planned switch */
	HA_IBGDA_CLOSING,  /* both ends' queue pairs are to end, and the other one to say what came
			    */
	HA_IBGDA_OPENING,  /* the next one is to be there */
	HA_IBGDA_ENDED,
};

enum ha_ibgda_next {
	HA_IBGDA_NO_NEXT,
	HA_IBGDA_NEXT_ASKED,	/* the other end makes its own */
	HA_IBGDA_NEXT_ANSWERED, /* to be connected */
	HA_IBGDA_NEXT_READY,
	HA_IBGDA_NEXT_SPOILT, /* its NIC has failed, or it cannot be made: to be destroyed */
};

struct ha_ibgda_settings {
	uint32_t log;	       /* queues of 2^log requests */
	uint64_t outage_ns;    /* without a path: then the stream is over */
	uint64_t silence_ns;   /* without a completion, and what bytes take on a slow link: then the
				  queue pair has failed, whatever its NIC says; 0: never */
	bool accepts_unproved; /* what a dead NIC acknowledged and nobody can ask for: counted; else
				  the stream is over */
	uint64_t return_ns;    /* the NIC that it began on has to be well for so long before it goes
				  back there by itself; 0: it stays where it is */
	const struct ha_ibgda_memory *memory; /* for queues; NULL: the C library's */
};

struct ha_ibgda_slot {
	struct ha_ibgda_pair pair;
	struct ha_ibgda_arena arena;
	uint32_t number, nic;
};

struct ha_ibgda_sender {
	struct ha_ibgda_stream stream; /* what threads use */
	struct ha_ibgda_queue queues[HA_IBGDA_QUEUES];
	uint64_t alarm;
	struct ha_ibgda_settings settings;
	const struct ha_ibgda_nic *nics;
	unsigned int num_nics;
	struct ha_ibgda_channel channel;
	enum ha_ibgda_phase phase;
	struct ha_ibgda_host host;
	struct ha_ibgda_slot slots[HA_IBGDA_QUEUES];
	enum ha_ibgda_next next;
	uint32_t next_slot, numbers;	/* pairs that were ever asked for */
	struct ha_ibgda_message opened; /* what was answered */
	uint32_t wanted; /* NIC that an operator wants, or that it goes back to; >= num_nics: any */
	uint64_t due_ns; /* it does not go there before, */
	uint32_t proved; /* and only if this is that NIC: a probe has come through */
	struct ha_ibgda_probe probe;
	uint64_t
	    hold_ns; /* that the NIC is to be well for; doubled each time that this was too short */
	uint64_t since_ns;	 /* the gate is open where it is */
	uint64_t completed;	 /* requests, */
	uint64_t stands_ns;	 /* and since then no more, while there are some */
	uint64_t drain_until_ns; /* as planned; then it fails over */
	uint64_t leaves_ns;	 /* it has closed what it used then */
	uint64_t bad_ns[4];	 /* NICs are not asked until then */
	uint32_t suspected;	 /* NICs, a bit of each; any thread sets them */
	bool must_leave;	 /* the one in use has failed */
	bool is_planned, is_closed, has_verdict;
	struct ha_ibgda_verdict verdict;
	uint64_t outage_since_ns; /* 0: all is well */
	unsigned long failovers, moves, probes, unproved;
	const char *fault; /* why it is over */
};

/* NICs have the memory that is sent in their keys. Threads may post at once, and wait. */
void ha_ibgda_sender_open(struct ha_ibgda_sender *sender, const struct ha_ibgda_nic *nics,
			  unsigned int num_nics, struct ha_ibgda_channel channel,
			  const struct ha_ibgda_settings *settings);
/* Looks once at everything that threads may wait for; waits for nothing but the fence. */
void ha_ibgda_sender_step(struct ha_ibgda_sender *sender, uint64_t now_ns);
/* One thing that is not: the next queue pair, a probe, the rest of what was left. Waits for verbs.
 * False: there was none. */
bool ha_ibgda_sender_prepare(struct ha_ibgda_sender *sender, uint64_t now_ns);
/* It is on its way to a queue pair that is ready. */
bool ha_ibgda_sender_leaves(const struct ha_ibgda_sender *sender, uint64_t now_ns);
/* Threads wait for what is to be prepared. */
bool ha_ibgda_sender_is_stranded(const struct ha_ibgda_sender *sender);
/* A NIC, or what is behind it, has failed: an event says so. Any thread. */
void ha_ibgda_sender_suspect(struct ha_ibgda_sender *sender, uint32_t nic);
/* The stream is to go over that NIC, as soon as a probe has come through there. */
void ha_ibgda_sender_move(struct ha_ibgda_sender *sender, uint32_t nic);
/* The one in use. */
uint32_t ha_ibgda_sender_nic(const struct ha_ibgda_sender *sender);
/* Every thread returns. */
void ha_ibgda_sender_abort(struct ha_ibgda_sender *sender, const char *why);
/* The program's end of it, from any thread: all threads return now, and the sender is over when it
 * is stepped, or told to look. */
void ha_ibgda_sender_end(struct ha_ibgda_sender *sender);
void ha_ibgda_sender_notice_end(struct ha_ibgda_sender *sender);
/* All threads have left. */
void ha_ibgda_sender_close(struct ha_ibgda_sender *sender);

#endif
