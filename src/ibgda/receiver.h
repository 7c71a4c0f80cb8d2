/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a stream where puts and signals arrive: it has the cells, makes queue pairs when the
 * other end asks, and says what has come when one of them is to end. One thread; programs read the
 * cells.
 */
#ifndef HA_IBGDA_RECEIVER_H
#define HA_IBGDA_RECEIVER_H

#include "ibgda/allocate.h"
#include "ibgda/message.h"
#include "ibgda/nic.h"
#include "ibgda/pair.h"

#include <stdbool.h>
#include <stdint.h>

#define HA_IBGDA_NICS	     4u /* of an end, at most */
#define HA_IBGDA_OPENED_MOST 4u /* queue pairs of a stream at a time: in use, next, and leaving */

struct ha_ibgda_receiver {
	const struct ha_ibgda_nic *nics;
	unsigned int num_nics;
	struct ha_ibgda_channel channel;
	const struct ha_ibgda_memory *memory;
	uint64_t *cells; /* a page; the word behind them is where a flush reads to */
	struct ibv_mr *mrs[HA_IBGDA_NICS];
	/* Connected with itself: a read through it pushes what its NIC has into memory. It is older
	 * than all that it flushes; one that has failed is never made again, for that reason. */
	struct ha_ibgda_pair loops[HA_IBGDA_NICS];
	struct {
		struct ha_ibgda_pair pair;
		uint32_t number, nic; /* 0: there is none */
		bool is_asked;	      /* for, and not made */
		struct ha_ibgda_address peer;
	} pairs[HA_IBGDA_OPENED_MOST];
	uint32_t closing, flushing; /* number of a pair; 0: none */
	uint64_t flushing_ns;	    /* since then */
	uint32_t flushing_nic;
	uint64_t is_ended; /* by its program: any thread's word */
	const char *fault; /* why it is over; NULL: it is not */
};

/* NICs have the memory that puts go to in their keys. The cells are of `memory`, as threads of a
 * GPU may wait at them. False: `fault` says why, and it is closed. */
bool ha_ibgda_receiver_open(struct ha_ibgda_receiver *receiver, const struct ha_ibgda_nic *nics,
			    unsigned int num_nics, struct ha_ibgda_channel channel,
			    const struct ha_ibgda_memory *memory);
/* Hears, and does what threads may wait for; waits for nothing but the fence. */
void ha_ibgda_receiver_step(struct ha_ibgda_receiver *receiver, uint64_t now_ns);
/* One thing that is not: makes a queue pair that was asked for, or clears up. Waits for verbs.
 * False: there was none. */
bool ha_ibgda_receiver_prepare(struct ha_ibgda_receiver *receiver);
/* The value of a signal. Any thread. */
uint64_t ha_ibgda_receiver_signal(const struct ha_ibgda_receiver *receiver, uint32_t id);
/* One of its NICs is gone: the other end is told. */
void ha_ibgda_receiver_suspect(struct ha_ibgda_receiver *receiver, uint32_t nic);
/* It answers nothing any more, and the other end hears that it is gone. */
void ha_ibgda_receiver_abort(struct ha_ibgda_receiver *receiver, const char *why);
/* The program's end of it, from any thread; it is over when it is stepped, or told to look. */
void ha_ibgda_receiver_end(struct ha_ibgda_receiver *receiver);
void ha_ibgda_receiver_notice_end(struct ha_ibgda_receiver *receiver);
void ha_ibgda_receiver_close(struct ha_ibgda_receiver *receiver);

#endif
