/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction between two endpoints: a ring of variable-sized records in the fabric's file, and
 * behind it a bulk area for payload that cannot be read out of the sender's memory.
 *
 * There is exactly one producer (the source endpoint, under its port lock) and one consumer (the
 * destination endpoint, under its own). So neither needs a lock or a compare-and-swap, packets
 * between two endpoints stay in order as on a cable, and a producer that is killed half way
 * through a record leaves nothing behind: the record was never published.
 *
 *	producer			consumer
 *	write the record
 *	tail  (release)  ──────────►	tail  (acquire): the record is whole
 *	head  (acquire)  ◄──────────	head  (release): done with its bytes, they may be reused
 *
 * Bulk space is used in order too: its record carries the bulk position after it, which becomes
 * the bulk head once the record is consumed.
 */
#ifndef SV_LIVE_RING_H
#define SV_LIVE_RING_H

#include "simverbs/live/fabric.h"

#define SV_RING_HEAD_BYTES 4096u
#define SV_RING_BYTES	   (256u * 1024)
#define SV_BULK_BYTES	   (4u * 1024 * 1024)
#define SV_RING_STRIDE	   ((uint64_t)SV_RING_HEAD_BYTES + SV_RING_BYTES + SV_BULK_BYTES)
#define SV_RECORD_ALIGN	   64u

/* May the destination read the source's memory? Found out by the destination; 0 until then. */
enum sv_cma { SV_CMA_ALLOWED = 1, SV_CMA_REFUSED = 2 };

struct sv_ring_head {
	/* Written by the producer. */
	alignas(SV_CACHE_LINE) atomic_ullong tail; /* bytes ever written */
	atomic_ullong bulk_tail;
	atomic_uint producer_waits; /* found the ring full; wants a wake when there is room */
	/* Written by the consumer. */
	alignas(SV_CACHE_LINE) atomic_ullong head;
	atomic_ullong bulk_head;
	/* Written by the consumer, seldom. */
	alignas(SV_CACHE_LINE) atomic_uint cma; /* enum sv_cma */
	atomic_uint cma_generation;		/* of the source slot that `cma` is about */
	atomic_uint bad_seq;			/* bumped after bad_addr and bad_len were set */
	atomic_ullong bad_addr, bad_len;	/* a range of the source that could not be read */
};

enum sv_record_kind { SV_RECORD_PAD = 1, SV_RECORD_PACKET = 2 };

/* Where the payload of a packet is. */
enum sv_payload_mode {
	SV_PAYLOAD_NONE,
	SV_PAYLOAD_INLINE,  /* behind the record */
	SV_PAYLOAD_REFERS,  /* in the sender's memory: fragments are behind the record */
	SV_PAYLOAD_IN_BULK, /* in the bulk area, at bulk_at */
};

struct sv_record {
	uint32_t bytes; /* of the whole record, a multiple of SV_RECORD_ALIGN */
	uint16_t kind;
	uint16_t mode; /* enum sv_payload_mode */
	uint32_t src_generation, dst_generation;
	uint32_t nfrags;
	uint32_t revoked;  /* of the source queue pair, when the record was written */
	uint64_t bulk_at;  /* position in the bulk area, as bulk_tail counts */
	uint64_t bulk_end; /* bulk head once this record is consumed; 0: no bulk used */
	uint64_t due_ns;   /* on its way until then (fabric clock); 0: it is there */
	struct sv_packet pkt;
	/* Inline payload or struct sv_frag[nfrags] follow. */
};

/* A process's end of a ring. One thread at a time (the port lock). */
struct sv_ring {
	struct sv_ring_head *head;
	uint8_t *data, *bulk;
	uint64_t position;	 /* producer: tail; consumer: head */
	uint64_t other_side;	 /* last value seen of the other position */
	uint64_t reserved;	 /* producer: tail after the record being written */
	unsigned src, dst;	 /* slots */
	uint32_t bad_seq_seen;	 /* producer */
	uint64_t stuck_since_ns; /* producer: when the full ring last moved; 0: not full */
	uint64_t stuck_head;
};

/*
 * Maps the ring from slot src to slot dst, making it if there is none. 0, -errno; -ENOSPC when the
 * file system of the fabric is full.
 */
int sv_ring_open(struct sv_fabric *fab, unsigned src, unsigned dst, bool producer,
		 struct sv_ring **out);
/* Does the ring exist? Then sv_ring_open will not make one. */
bool sv_ring_exists(const struct sv_fabric *fab, unsigned src, unsigned dst);
void sv_ring_close(struct sv_ring *ring);

/* --- producer --- */

/* Room for a record of `bytes` with everything behind it, or NULL: full. */
struct sv_record *sv_ring_reserve(struct sv_ring *ring, size_t bytes);
/* Would sv_ring_reserve find room? */
bool sv_ring_has_room(struct sv_ring *ring, size_t bytes);
/* Makes the reserved record visible. */
void sv_ring_publish(struct sv_ring *ring);
/* Room for `len` payload bytes in the bulk area, or NULL: full. Sets rec->bulk_at and bulk_end. */
void *sv_ring_bulk_reserve(struct sv_ring *ring, struct sv_record *rec, size_t len);
/* When the oldest record of a full ring is there; 0: it is. */
uint64_t sv_ring_due_ns(const struct sv_ring *ring);
/* Asks for a wake when the consumer has made room. True when there is room by now. */
bool sv_ring_wait_for_room(struct sv_ring *ring);

/* --- consumer --- */

/* The oldest record, or NULL when the ring is empty. A malformed ring counts as empty. */
const struct sv_record *sv_ring_peek(struct sv_ring *ring);
void sv_ring_consume(struct sv_ring *ring, const struct sv_record *rec);
/* True once when the producer waits for room. */
bool sv_ring_take_wait(struct sv_ring *ring);

static inline const void *sv_record_behind(const struct sv_record *rec)
{
	return rec + 1;
}

#endif
