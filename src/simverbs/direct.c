/* SPDX-License-Identifier: Apache-2.0 */
#include "simverbs/direct.h"

#include <endian.h>
#include <string.h>

#define INVALID	  0xf0
#define OP_DONE	  0x00
#define OP_FAILED 0xd0
#define INLINE	  0x80000000u

static uint32_t word32(const uint8_t *block, unsigned int at)
{
	uint32_t value;

	memcpy(&value, block + at, sizeof(value));
	return be32toh(value);
}

static uint64_t word64(const uint8_t *block, unsigned int at)
{
	uint64_t value;

	memcpy(&value, block + at, sizeof(value));
	return be64toh(value);
}

/* ---- doorbells ------------------------------------------------------------------------------ */

static uint16_t recorded(const struct sv_direct_sq *sq)
{
	return (uint16_t)be32toh(__atomic_load_n(sq->record, __ATOMIC_ACQUIRE));
}

static void look_for_silence(struct sv_direct_sq *sq, uint64_t now_ns)
{
	if (recorded(sq) == sq->upto) {
		sq->silent_ns = 0;
		return;
	}
	if (!sq->silent_ns)
		sq->silent_ns = now_ns ? now_ns : 1;
	if (now_ns < sq->silent_ns + SV_DIRECT_LATE_NS)
		return;
	sq->mistakes->without_doorbell++;
	sq->silent_ns = now_ns; /* counted again as long as it lasts */
}

/* By a thread whose queue pair is gone, of a register that has another one since: nothing that is
 * wrong. */
static bool is_late(const struct sv_direct_sq *sq, uint32_t qpn)
{
	for (unsigned int n = 0; sq->before && n < SV_DIRECT_BEFORE; n++)
		if (sq->before[n] == qpn)
			return true;
	return false;
}

/* The doorbell is looked at before the record: the program writes them the other way round. */
void sv_direct_look(struct sv_direct_sq *sq, uint64_t now_ns)
{
	const uint64_t rung = __atomic_load_n(sq->doorbell, __ATOMIC_ACQUIRE);
	uint8_t bytes[8];
	uint16_t upto;
	uint32_t qpn;

	if (rung == sq->rung) {
		look_for_silence(sq, now_ns);
		return;
	}
	sq->rung = rung;
	memcpy(bytes, &rung, sizeof(bytes));
	qpn = word32(bytes, 4) >> 8;
	upto = recorded(sq);
	if (qpn != sq->qpn && !is_late(sq, qpn)) {
		sq->mistakes->malformed++;
		return;
	}
	/* A register of hardware hears both; here the late one may have been written over its
	 * owner's. It may have been of this doorbell when an earlier one was looked at. */
	if (qpn == sq->qpn && upto == sq->upto && (int16_t)((word32(bytes, 0) >> 8) + 1 - upto) > 0)
		sq->mistakes->without_record++;
	sq->upto = upto;
	sq->silent_ns = 0;
}

/* ---- work requests -------------------------------------------------------------------------- */

/* Bytes of a request in 16, by what it is; of one with data inline, with that. 0: there is none. */
static uint32_t sixteenths_of(const struct sv_direct_work *work)
{
	switch (work->opcode) {
	case SV_DIRECT_NOP:
		return 1;
	case SV_DIRECT_WRITE:
	case SV_DIRECT_WRITE_IMM:
		return work->is_inline ? 2 + (4 + work->size + 15) / 16 : 3;
	case SV_DIRECT_READ:
		return work->is_inline ? 0 : 3;
	case SV_DIRECT_FETCH_ADD:
		return 4;
	}
	return 0;
}

static void read_data(const uint8_t *block, unsigned int at, struct sv_direct_work *work)
{
	work->size = word32(block, at);
	work->lkey = word32(block, at + 4);
	work->addr = word64(block, at + 8);
}

static bool read_inline(const uint8_t *block, struct sv_direct_work *work)
{
	work->is_inline = true;
	work->size = word32(block, 32) & ~INLINE;
	if (work->size > sizeof(work->bytes))
		return false;
	memcpy(work->bytes, block + 36, work->size);
	return true;
}

static bool read_rest(const uint8_t *block, struct sv_direct_work *work)
{
	if (work->opcode == SV_DIRECT_NOP)
		return true;
	work->remote_addr = word64(block, 16);
	work->rkey = word32(block, 24);
	if (work->opcode == SV_DIRECT_FETCH_ADD) {
		work->addend = word64(block, 32);
		read_data(block, 48, work);
		return true;
	}
	if (word32(block, 32) & INLINE)
		return read_inline(block, work);
	read_data(block, 32, work);
	return true;
}

static bool read_block(const struct sv_direct_sq *sq, const uint8_t *block,
		       struct sv_direct_work *work)
{
	const uint32_t second = word32(block, 4);

	work->opcode = (enum sv_direct_opcode)(word32(block, 0) & 0xff);
	memcpy(&work->imm, block + 12, sizeof(work->imm));
	if (second >> 8 != sq->qpn || !read_rest(block, work))
		return false;
	/* No bytes are 2^31 of them to the device. */
	if (work->opcode != SV_DIRECT_NOP && !work->size)
		return false;
	return sixteenths_of(work) == (second & 0x3f) && sixteenths_of(work) != 0;
}

/* A copy of now: what changes it later is too late, what should have changed it before was. */
enum sv_direct_taken sv_direct_take(struct sv_direct_sq *sq, struct sv_direct_work *work)
{
	const volatile uint8_t *from = sq->blocks + (sq->next & (sq->count - 1)) * SV_DIRECT_BLOCK;
	uint8_t block[SV_DIRECT_BLOCK];

	if (sq->next == sq->upto)
		return SV_DIRECT_NONE;
	for (unsigned int i = 0; i < sizeof(block); i++)
		block[i] = from[i];
	*work = (struct sv_direct_work){.index = sq->next++};
	if ((word32(block, 0) >> 8 & 0xffff) != work->index || word32(block, 4) == 0) {
		sq->mistakes->stale++;
		return SV_DIRECT_BAD;
	}
	if (read_block(sq, block, work))
		return SV_DIRECT_WORK;
	sq->mistakes->malformed++;
	return SV_DIRECT_BAD;
}

/* ---- completions ---------------------------------------------------------------------------- */

void sv_direct_cq_clear(struct sv_direct_cq *cq)
{
	/* Whoever still looks at them sees each word as a whole. */
	for (uint32_t i = 0; i < 1u << cq->log; i++)
		__atomic_store_n(
		    (volatile uint32_t *)(uintptr_t)&cq->entries[i * SV_DIRECT_BLOCK + 60],
		    htobe32(INVALID), __ATOMIC_RELEASE);
	cq->written = 0;
}

static void look_for_overrun(struct sv_direct_cq *cq)
{
	uint32_t taken;

	if (!cq->record)
		return;
	taken = be32toh(__atomic_load_n(cq->record, __ATOMIC_ACQUIRE)) & 0xffffff;
	if (((cq->written - taken) & 0xffffff) >= 1u << cq->log)
		cq->mistakes->overrun++;
}

/* All of it, and then whose it is. */
void sv_direct_complete(struct sv_direct_cq *cq, uint32_t qpn, uint16_t index, uint8_t syndrome)
{
	volatile uint8_t *entry =
	    cq->entries + (cq->written & ((1u << cq->log) - 1)) * SV_DIRECT_BLOCK;
	const uint8_t lap = (uint8_t)(cq->written >> cq->log & 1);

	look_for_overrun(cq);
	__atomic_store_n(&entry[55], syndrome, __ATOMIC_RELAXED);
	__atomic_store_n((volatile uint32_t *)(uintptr_t)&entry[56], htobe32(qpn),
			 __ATOMIC_RELAXED);
	__atomic_store_n((volatile uint32_t *)(uintptr_t)&entry[60],
			 htobe32((uint32_t)index << 16 | (syndrome ? OP_FAILED : OP_DONE) | lap),
			 __ATOMIC_RELEASE);
	cq->written++;
}
