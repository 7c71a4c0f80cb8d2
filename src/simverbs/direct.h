/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Send and completion queues in a program's memory, laid out as a ConnectX has them: what the
 * device takes out of the one and writes into the other. It is strict, so what works here obeys the
 * rules of the hardware: nothing is taken before the doorbell, nor beyond the doorbell record; a
 * work request is read when it is executed, and one that is not there yet, or of an earlier lap, is
 * an error.
 *
 * Knows no queue pair and no time of its own. One thread at a time.
 */
#ifndef SV_DIRECT_H
#define SV_DIRECT_H

#include <simverbs/mlx5.h>
#include <stdbool.h>
#include <stdint.h>

#define SV_DIRECT_BLOCK 64u

#define SV_DIRECT_LATE_NS 10000000u
#define SV_DIRECT_BEFORE  8u

struct sv_direct_sq {
	const volatile uint8_t *blocks; /* SV_DIRECT_BLOCK bytes each */
	uint32_t count;			/* a power of 2, at most 65536 */
	uint32_t qpn;
	const volatile uint32_t *record;   /* the send queue's doorbell record */
	const volatile uint64_t *doorbell; /* the queue pair's own register */
	const uint32_t *before; /* SV_DIRECT_BEFORE queue pairs that had it, and are gone, whose
				   program may still be late; NULL: none */
	/* The device's. */
	uint64_t rung;	    /* what the doorbell said last */
	uint16_t upto;	    /* requests below, modulo 65536, may be taken */
	uint16_t next;	    /* the one that is taken next */
	uint64_t silent_ns; /* since when the record is ahead of the doorbell; 0: it is not */
	struct sv_direct_mistakes *mistakes;
};

/* As a ConnectX numbers them. */
enum sv_direct_opcode {
	SV_DIRECT_NOP = 0x00,
	SV_DIRECT_WRITE = 0x08,
	SV_DIRECT_WRITE_IMM = 0x09,
	SV_DIRECT_READ = 0x10,
	SV_DIRECT_FETCH_ADD = 0x12,
};

struct sv_direct_work {
	uint16_t index;
	enum sv_direct_opcode opcode;
	uint32_t imm; /* bytes as in memory */
	uint64_t remote_addr, addr, addend;
	uint32_t rkey, lkey;
	uint32_t size; /* bytes */
	bool is_inline;
	uint8_t bytes[28]; /* inline */
};

enum sv_direct_taken {
	SV_DIRECT_NONE, /* nothing is there */
	SV_DIRECT_WORK,
	SV_DIRECT_BAD, /* index is right, and what is there is none: a local error of the queue pair
			*/
};

/* Looks at doorbell and record. */
void sv_direct_look(struct sv_direct_sq *sq, uint64_t now_ns);
/* The next work request that may be executed. */
enum sv_direct_taken sv_direct_take(struct sv_direct_sq *sq, struct sv_direct_work *work);

struct sv_direct_cq {
	volatile uint8_t *entries; /* SV_DIRECT_BLOCK bytes each, INVALID at first */
	uint32_t log;		   /* 2^log of them */
	const volatile uint32_t
	    *record; /* what the program has taken; NULL: overruns are its business */
	uint64_t written;
	struct sv_direct_mistakes *mistakes;
};

/* All entries become nobody's. Before the first completion. */
void sv_direct_cq_clear(struct sv_direct_cq *cq);
/* A request of that index is through; syndrome 0: well. */
void sv_direct_complete(struct sv_direct_cq *cq, uint32_t qpn, uint16_t index, uint8_t syndrome);

#endif
