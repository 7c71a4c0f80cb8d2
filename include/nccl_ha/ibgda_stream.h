/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of puts and signals to one peer, as threads of a GPU and the host that watches over it
 * share it. Its operations have logical numbers L, from 0 on, which never change.
 * docs/ibgda-protocol.md is what both do with it.
 */
#ifndef NCCL_HA_IBGDA_STREAM_H
#define NCCL_HA_IBGDA_STREAM_H

#include "nccl_ha/ibgda_wqe.h"

#include <stdint.h>

#define HA_IBGDA_REGIONS 8u  /* of memory: which one is for the program to number */
#define HA_IBGDA_IDS	 64u /* signals of a stream */
#define HA_IBGDA_NEVER	 UINT64_MAX

/* Keys of a region of memory at both ends, for the path of one queue. */
struct ha_ibgda_keys {
	uint32_t local, remote;
};

/* What a generation of the stream has: queues of 2^log requests, and who has done what in them.
 * Threads may hold it long after the gate has left it, so the words are its own and the memory
 * stays. */
struct ha_ibgda_queue {
	uint64_t base;	/* L of the queue's request 0 */
	uint64_t ready; /* L below are published: their turns are over */
	uint64_t prod;	/* L below are rung; HA_IBGDA_NEVER: nobody rings */
	uint64_t taken; /* L below have been taken over from generations before */
	uint64_t lock;	/* who holds it rings */
	struct ha_wqe *requests;
	const volatile uint8_t *completions; /* HA_CQE_SIZE bytes each */
	volatile uint32_t *record;
	volatile uint64_t *doorbell;
	uint32_t qpn;
	uint32_t cells_key;  /* of the peer's cells for this stream, */
	uint64_t cells_addr; /* 8 bytes for each id */
	struct ha_ibgda_keys keys[HA_IBGDA_REGIONS];
};

/* The gate is the address of the queue in use, and flags: an open one is the address as it is. It
 * does not count generations, as no queue is used again while a thread depends on its own. */
#define HA_IBGDA_CLOSED 1u /* no generation is open: soon another one is */
#define HA_IBGDA_DEAD	2u /* none will be */

HA_DEV uint64_t ha_ibgda_gate(const struct ha_ibgda_queue *queue, uint32_t flags)
{
	return (uint64_t)(uintptr_t)queue | flags;
}

struct ha_ibgda_stream {
	/* L below are complete. Aligned so that a GPU loads it and the gate at once. */
	uint64_t cons __attribute__((aligned(16)));
	uint64_t gate;		       /* which queue is in use */
	uint64_t resv;		       /* L below are somebody's */
	uint64_t sums[HA_IBGDA_IDS];   /* value of the last signal of each id */
	struct ha_ibgda_queue *queues; /* any number, of which the gate names one */
	uint64_t *alarm; /* the host's: L + 1 of a request that failed, as its thread saw it */
	uint32_t log;	 /* each queue has 2^log requests */
};

/* Where a queue has the request L. */
HA_DEV struct ha_wqe *ha_ibgda_request(const struct ha_ibgda_stream *stream,
				       const struct ha_ibgda_queue *queue, uint64_t number)
{
	return &queue->requests[(number - queue->base) & ((1ull << stream->log) - 1)];
}

/* What a request's immediate says to who reads the queue: a put's regions, or a signal's id and
 * addend. */
#define HA_IBGDA_NOTE_SIGNAL (1u << 31)
#define HA_IBGDA_ADDEND_MOST 0xffffffu /* an addend that the note has room for */

HA_DEV uint32_t ha_ibgda_note_put(uint32_t local, uint32_t remote)
{
	return local << 8 | remote;
}

HA_DEV uint32_t ha_ibgda_note_signal(uint32_t id, uint64_t addend)
{
	return HA_IBGDA_NOTE_SIGNAL | id << 24 | (uint32_t)addend;
}

#endif
