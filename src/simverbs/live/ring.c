/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record ring between two endpoints; see ring.h.
 */
#include "simverbs/live/ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static_assert((SV_RING_BYTES & (SV_RING_BYTES - 1)) == 0, "positions wrap by masking");
static_assert((SV_BULK_BYTES & (SV_BULK_BYTES - 1)) == 0, "positions wrap by masking");
static_assert(sizeof(struct sv_ring_head) <= SV_RING_HEAD_BYTES, "a ring's head is one page");

/* --- making and mapping --------------------------------------------------------------------- */

static off_t ring_offset(const struct sv_fabric *fab, unsigned number)
{
	return (off_t)(fab->h->ring_offset + (number - 1) * SV_RING_STRIDE);
}

/* The fabric lock is held. */
static int ring_make(struct sv_fabric *fab, unsigned src, unsigned dst)
{
	unsigned number = atomic_load(&fab->h->rings) + 1;
	off_t at = ring_offset(fab, number);
	int rc;

	/*
	 * Head and records are allocated now, so that a full file system is an error here and not a
	 * SIGBUS later. The bulk area only gets its place in the file: see sv_ring_bulk_reserve.
	 */
	rc = posix_fallocate(fab->fd, at, SV_RING_HEAD_BYTES + SV_RING_BYTES);
	if (rc)
		return -rc;
	if (ftruncate(fab->fd, at + (off_t)SV_RING_STRIDE))
		return -errno;
	atomic_store(&fab->h->rings, number);
	atomic_store(&fab->h->ring_of[src][dst], number);
	return 0;
}

bool sv_ring_exists(const struct sv_fabric *fab, unsigned src, unsigned dst)
{
	return atomic_load_explicit(&fab->h->ring_of[src][dst], memory_order_acquire) != 0;
}

int sv_ring_open(struct sv_fabric *fab, unsigned src, unsigned dst, bool producer,
		 struct sv_ring **out)
{
	struct sv_ring *ring;
	uint8_t *base;
	int rc = 0;

	if (!sv_ring_exists(fab, src, dst)) {
		rc = sv_fabric_lock(fab);
		if (rc)
			return rc;
		if (!sv_ring_exists(fab, src, dst))
			rc = ring_make(fab, src, dst);
		sv_fabric_unlock(fab);
		if (rc)
			return rc;
	}
	ring = calloc(1, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	base = mmap(NULL, SV_RING_STRIDE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		    fab->fd, ring_offset(fab, atomic_load(&fab->h->ring_of[src][dst])));
	if (base == MAP_FAILED) {
		rc = -errno;
		free(ring);
		return rc;
	}
	ring->head = (struct sv_ring_head *)base;
	ring->data = base + SV_RING_HEAD_BYTES;
	ring->bulk = ring->data + SV_RING_BYTES;
	ring->src = src;
	ring->dst = dst;
	/* The slots may have had other owners before: go on where they stopped. */
	ring->position = atomic_load(producer ? &ring->head->tail : &ring->head->head);
	ring->other_side = atomic_load(producer ? &ring->head->head : &ring->head->tail);
	ring->bad_seq_seen = atomic_load(&ring->head->bad_seq);
	*out = ring;
	return 0;
}

void sv_ring_close(struct sv_ring *ring)
{
	if (!ring)
		return;
	munmap(ring->head, SV_RING_STRIDE);
	free(ring);
}

/* --- producer ------------------------------------------------------------------------------- */

static bool has_room(struct sv_ring *ring, size_t bytes)
{
	if (ring->position + bytes - ring->other_side <= SV_RING_BYTES)
		return true;
	/* acquire: the consumer is done with the bytes that we are about to overwrite. */
	ring->other_side = atomic_load_explicit(&ring->head->head, memory_order_acquire);
	return ring->position + bytes - ring->other_side <= SV_RING_BYTES;
}

struct sv_record *sv_ring_reserve(struct sv_ring *ring, size_t bytes)
{
	size_t need = (bytes + SV_RECORD_ALIGN - 1) & ~(size_t)(SV_RECORD_ALIGN - 1);
	size_t at = ring->position & (SV_RING_BYTES - 1);
	size_t to_end = SV_RING_BYTES - at;
	size_t pad = need > to_end ? to_end : 0;
	struct sv_record *rec;

	if (!has_room(ring, need + pad))
		return NULL;
	if (pad) {
		/* A record is in one piece: skip what is left before the end. */
		rec = (struct sv_record *)(ring->data + at);
		rec->bytes = (uint32_t)pad;
		rec->kind = SV_RECORD_PAD;
		at = 0;
	}
	rec = (struct sv_record *)(ring->data + at);
	rec->bytes = (uint32_t)need;
	rec->bulk_at = 0;
	rec->bulk_end = 0;
	ring->reserved = ring->position + pad + need;
	return rec;
}

bool sv_ring_has_room(struct sv_ring *ring, size_t bytes)
{
	/* Twice: a record may have to skip what is left before the end. */
	return has_room(ring, 2 * bytes + SV_RECORD_ALIGN);
}

void sv_ring_publish(struct sv_ring *ring)
{
	ring->position = ring->reserved;
	/* release: the record's bytes are seen before the tail that covers them. */
	atomic_store_explicit(&ring->head->tail, ring->position, memory_order_release);
}

/* Allocates the bulk area at its first use. -errno when the file system is full. */
static int bulk_allocate(struct sv_ring *ring)
{
#ifdef MADV_POPULATE_WRITE
	if (!madvise(ring->bulk, SV_BULK_BYTES, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -errno;
#else
	(void)ring;
#endif
	return 0; /* an old kernel: pages come one by one */
}

void *sv_ring_bulk_reserve(struct sv_ring *ring, struct sv_record *rec, size_t len)
{
	uint64_t tail = atomic_load_explicit(&ring->head->bulk_tail, memory_order_relaxed);
	uint64_t head = atomic_load_explicit(&ring->head->bulk_head, memory_order_acquire);
	size_t to_end = SV_BULK_BYTES - (tail & (SV_BULK_BYTES - 1));
	size_t pad = len > to_end ? to_end : 0;

	if (!tail && bulk_allocate(ring))
		return NULL;
	if (tail + pad + len - head > SV_BULK_BYTES)
		return NULL;
	rec->bulk_at = tail + pad;
	rec->bulk_end = tail + pad + len;
	/* Only the producer reads it: the consumer learns the position from the record. */
	atomic_store_explicit(&ring->head->bulk_tail, rec->bulk_end, memory_order_relaxed);
	return ring->bulk + (rec->bulk_at & (SV_BULK_BYTES - 1));
}

/* We wrote it, so it is sound; a pad has no time. */
uint64_t sv_ring_due_ns(const struct sv_ring *ring)
{
	uint64_t head = atomic_load_explicit(&ring->head->head, memory_order_relaxed);
	const struct sv_record *rec =
	    (const struct sv_record *)(ring->data + (head & (SV_RING_BYTES - 1)));

	if (head == ring->position || rec->kind == SV_RECORD_PAD)
		return 0;
	return rec->due_ns;
}

bool sv_ring_wait_for_room(struct sv_ring *ring)
{
	/* seq_cst on both sides: either we see the new head, or the consumer sees the flag. */
	atomic_store_explicit(&ring->head->producer_waits, 1, memory_order_seq_cst);
	return atomic_load_explicit(&ring->head->head, memory_order_seq_cst) != ring->other_side;
}

/* --- consumer ------------------------------------------------------------------------------- */

/* Whether the payload of a packet is where its record says. */
static bool has_payload(const struct sv_record *rec)
{
	const size_t behind = rec->bytes - sizeof(*rec), length = rec->pkt.payload_len;

	switch ((enum sv_payload_mode)rec->mode) {
	case SV_PAYLOAD_NONE:
		return length == 0;
	case SV_PAYLOAD_INLINE:
		return length <= behind;
	case SV_PAYLOAD_REFERS:
		return rec->nfrags <= behind / sizeof(struct sv_frag);
	case SV_PAYLOAD_IN_BULK:
		return length <= SV_BULK_BYTES - (rec->bulk_at & (SV_BULK_BYTES - 1));
	}
	return false;
}

/* Whether a record lies in the ring in one piece, with all that it says it has. */
static bool is_sound(const struct sv_ring *ring, const struct sv_record *rec, uint64_t available)
{
	const size_t to_end = SV_RING_BYTES - (ring->position & (SV_RING_BYTES - 1));

	if ((ring->position | rec->bytes) % SV_RECORD_ALIGN || !rec->bytes ||
	    rec->bytes > available || rec->bytes > to_end)
		return false;
	if (rec->kind == SV_RECORD_PAD)
		return true;
	return rec->kind == SV_RECORD_PACKET && rec->bytes >= sizeof(*rec) && has_payload(rec);
}

const struct sv_record *sv_ring_peek(struct sv_ring *ring)
{
	for (;;) {
		const struct sv_record *rec;
		uint64_t available;

		if (ring->position == ring->other_side)
			ring->other_side =
			    atomic_load_explicit(&ring->head->tail, memory_order_acquire);
		available = ring->other_side - ring->position;
		if (!available)
			return NULL;
		rec =
		    (const struct sv_record *)(ring->data + (ring->position & (SV_RING_BYTES - 1)));
		/* A scribbled-on ring must not make us run wild: it is a dead cable then. */
		if (available > SV_RING_BYTES || !is_sound(ring, rec, available))
			return NULL;
		if (rec->kind != SV_RECORD_PAD)
			return rec;
		sv_ring_consume(ring, rec);
	}
}

void sv_ring_consume(struct sv_ring *ring, const struct sv_record *rec)
{
	if (rec->kind == SV_RECORD_PACKET && rec->bulk_end)
		atomic_store_explicit(&ring->head->bulk_head, rec->bulk_end, memory_order_release);
	ring->position += rec->bytes;
	/* seq_cst: see sv_ring_wait_for_room. */
	atomic_store_explicit(&ring->head->head, ring->position, memory_order_seq_cst);
}

bool sv_ring_take_wait(struct sv_ring *ring)
{
	if (!atomic_load_explicit(&ring->head->producer_waits, memory_order_seq_cst))
		return false;
	return atomic_exchange_explicit(&ring->head->producer_waits, 0, memory_order_seq_cst);
}
