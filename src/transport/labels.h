/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two labels every piece of traffic carries, so that nothing of an earlier incarnation is
 * ever credited to a later one:
 *
 *  - the 32-bit immediate, which the *receiver* gets with a message: sequence number and epoch;
 *  - the 64-bit wr_id, which comes back to *us* with a completion: path, generation, queue pair.
 *
 * Immediate:   31      30..28  27..24   23..16  15..0
 *              record  kind    parts-1  epoch   seq
 *
 * "record" says that the payload of this write is a sizes record (see rings.h) and not message
 * data; "parts" how many immediates the message has in all (one per queue pair it is spread
 * over); "kind" is 0 for message data, the other values are kept for control messages.
 *
 * Of a stripe: 31      30..28  27..24   23..16  15..12  11..0
 *              0       2       stripes  epoch   this    seq
 *
 * Stripes are bits, by the slots of the paths that carry them: all of the message's, and this one.
 * Twelve bits of the number are enough, since within an epoch nothing older than a window comes.
 */
#ifndef HA_TRANSPORT_LABELS_H
#define HA_TRANSPORT_LABELS_H

#include <stdbool.h>
#include <stdint.h>

#define HA_IMM_MAX_PARTS    16
#define HA_IMM_KIND_DATA    0u
#define HA_IMM_KIND_CONTROL 1u /* a message is in the mailbox of the path it came on */
#define HA_IMM_KIND_STRIPE  2u /* one of several stripes of a message, below */

static inline uint32_t ha_imm_pack(uint64_t seq, uint32_t epoch, unsigned parts, bool record)
{
	return (record ? 1u << 31 : 0u) | HA_IMM_KIND_DATA << 28 | ((parts - 1) & 0xfu) << 24 |
	       (epoch & 0xffu) << 16 | (uint32_t)(seq & 0xffffu);
}

/*
 * What identifies a message in its immediates, whatever parts and record say: sequence number,
 * epoch and kind. NEVER matches none; it has the bit that says record.
 */
#define HA_IMM_IDENTITY 0x70ffffffu
#define HA_IMM_NEVER	0xffffffffu

/* What the immediate of a receive of n is that comes in one part: nearly always the only one. */
static inline uint32_t ha_imm_expected(uint64_t seq, uint32_t epoch, unsigned n)
{
	return ha_imm_pack(seq, epoch, 1, n > 1);
}

/* Whether it is one of the receive that expects `expected`, in however many parts it comes. */
static inline bool ha_imm_is(uint32_t imm, uint32_t expected)
{
	return expected != HA_IMM_NEVER && ((imm ^ expected) & HA_IMM_IDENTITY) == 0;
}

static inline uint32_t ha_imm_stripe_pack(uint64_t seq, uint32_t epoch, unsigned mask,
					  unsigned stripe)
{
	return HA_IMM_KIND_STRIPE << 28 | (mask & 0xfu) << 24 | (epoch & 0xffu) << 16 |
	       (stripe & 0xfu) << 12 | (uint32_t)(seq & 0xfffu);
}

/* Whether this, of kind STRIPE, is one of the receive that expects `expected`. */
static inline bool ha_imm_is_stripe_of(uint32_t imm, uint32_t expected)
{
	return expected != HA_IMM_NEVER && ((imm ^ expected) & 0x00ff0fffu) == 0;
}

/* All stripes of the message. */
static inline unsigned ha_imm_stripe_mask(uint32_t imm)
{
	return (imm >> 24) & 0xfu;
}

/* This one. */
static inline unsigned ha_imm_stripe(uint32_t imm)
{
	return (imm >> 12) & 0xfu;
}

static inline unsigned ha_imm_stripe_seq(uint32_t imm)
{
	return imm & 0xfffu;
}

/* What a receive expects of which some stripes have come: it remembers which there are. */
static inline uint32_t ha_imm_expect_stripes(uint32_t expected, unsigned mask)
{
	return (expected & ~(0xfu << 24)) | mask << 24;
}

static inline uint16_t ha_imm_seq(uint32_t imm)
{
	return (uint16_t)imm;
}

static inline uint8_t ha_imm_epoch(uint32_t imm)
{
	return (uint8_t)(imm >> 16);
}

static inline unsigned ha_imm_parts(uint32_t imm)
{
	return ((imm >> 24) & 0xfu) + 1;
}

static inline unsigned ha_imm_kind(uint32_t imm)
{
	return (imm >> 28) & 0x7u;
}

static inline bool ha_imm_record(uint32_t imm)
{
	return (imm >> 31) != 0;
}

/*
 * wr_id:       63..56  55..48  47..32      31..24  23..0
 *              kind    path    generation  qp      slot
 */
enum ha_wr_kind {
	HA_WR_DATA = 1,	 /* last write of a message's part: slot of the send group */
	HA_WR_CTS,	 /* signalled clear-to-send write: slot of the receive */
	HA_WR_IMM,	 /* a receive work request, consumed by an immediate */
	HA_WR_FLUSH,	 /* read of a flush: request id */
	HA_WR_CONTROL,	 /* write of a control message */
	HA_WR_PROBE,	 /* write of nothing that shows that the path works */
	HA_WR_WATCH,	 /* write of nothing that shows that the queue still works: timeout.c */
	HA_WR_COUNT,	 /* read of the peer's count: e2e.c */
	HA_WR_STRIPE,	 /* write of a stripe of a message: ha_wr_stripe_slot */
	HA_WR_GPU_PROOF, /* read of GPU memory by a path in reserve: gpu_proof.c */
	HA_WR_LATENCY,	 /* write of nothing that is timed: latency.c */
	HA_WR_SENTINEL,	 /* posted after the queue was stopped: everything before it is out */
};

static inline uint64_t ha_wr_id(unsigned kind, unsigned path, unsigned gen, unsigned qp,
				uint32_t slot)
{
	return (uint64_t)kind << 56 | (uint64_t)(path & 0xffu) << 48 |
	       (uint64_t)(gen & 0xffffu) << 32 | (uint64_t)(qp & 0xffu) << 24 | (slot & 0xffffffu);
}

/* A work request's id from its queue pair's part of it, which is worked out once. */
static inline uint64_t ha_wr_make(uint64_t base, enum ha_wr_kind kind, uint32_t slot)
{
	return base | (uint64_t)kind << 56 | (slot & 0xffffffu);
}

/* Of STRIPE: the slot of the send group, and above it which stripe it is, by a path's index. */
static inline uint32_t ha_wr_stripe_slot(uint32_t slot, unsigned stripe)
{
	return stripe << 16 | slot;
}

static inline unsigned ha_wr_stripe(uint32_t slot)
{
	return slot >> 16;
}

/* Path and generation, as in ha_path.label. */
static inline uint32_t ha_wr_label(uint64_t wr_id)
{
	return (uint32_t)(wr_id >> 32) & 0xffffffu;
}

static inline enum ha_wr_kind ha_wr_kind(uint64_t wr_id)
{
	return (enum ha_wr_kind)(wr_id >> 56);
}

static inline unsigned ha_wr_qp(uint64_t wr_id)
{
	return (unsigned)(wr_id >> 24) & 0xffu;
}

static inline uint32_t ha_wr_slot(uint64_t wr_id)
{
	return (uint32_t)wr_id & 0xffffffu;
}

#endif
