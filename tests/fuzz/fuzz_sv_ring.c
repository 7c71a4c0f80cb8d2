/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the ring that another process writes for simverbs' receiver: what is taken from it
 * lies within it, header, payload and fragments, and a ring that makes no sense is empty.
 *
 * Input: byte 0: where in the ring it begins, from its end in records; byte 1: how many records
 * were written; then the records: 16 bytes each say what is in the header, the rest is right.
 */
#include "fuzz.h"

#include "simverbs/live/ring.h"
#include "simverbs/live/wire.h"

#include <stdbool.h>
#include <string.h>

#define MAX_RECORDS 200

struct told {
	uint32_t bytes;
	uint8_t kind, mode;
	uint16_t nfrags;
	uint32_t payload_len;
	uint32_t bulk_at;
};

_Static_assert(sizeof(struct told) == 16, "an input's unit");

#define RECORD                                                                                     \
	((uint32_t)((sizeof(struct sv_record) + SV_RECORD_ALIGN - 1) & ~(SV_RECORD_ALIGN - 1u)))

static struct {
	uint8_t from_end, records;
	struct told told[4];
} right = {0,
	   4,
	   {{RECORD, SV_RECORD_PACKET, SV_PAYLOAD_NONE, 0, 0, 0},
	    {RECORD + 64, SV_RECORD_PACKET, SV_PAYLOAD_INLINE, 0, 64, 0},
	    {RECORD + 64, SV_RECORD_PACKET, SV_PAYLOAD_REFERS, 1, 8000, 0},
	    {RECORD, SV_RECORD_PACKET, SV_PAYLOAD_IN_BULK, 0, 8000, 0}}},
  wrapped = {8,
	     4,
	     {{RECORD, SV_RECORD_PAD, 0, 0, 0, 0},
	      {512, SV_RECORD_PAD, 0, 0, 0, 0},
	      {RECORD, SV_RECORD_PACKET, SV_PAYLOAD_NONE, 0, 0, 0},
	      {RECORD, SV_RECORD_PACKET, SV_PAYLOAD_IN_BULK, 0, 4096, SV_BULK_BYTES - 4096}}};

const struct fuzz_seed fuzz_seeds[] = {
    {&right, sizeof(right)},
    {&wrapped, sizeof(wrapped)},
    {NULL, 0},
};

/* ---- the ring -------------------------------------------------------------------------------- */

/* Its memory in blocks of their own, so that the sanitizers see one byte too far. */
static struct sv_ring ring;

static void make_ring(void)
{
	ring.head = aligned_alloc(SV_CACHE_LINE, sizeof(*ring.head));
	ring.data = aligned_alloc(SV_RECORD_ALIGN, SV_RING_BYTES);
	ring.bulk = aligned_alloc(SV_RECORD_ALIGN, SV_BULK_BYTES);
	FUZZ_CHECK(ring.head && ring.data && ring.bulk);
	memset(ring.data, 0, SV_RING_BYTES);
	memset(ring.bulk, 0, SV_BULK_BYTES);
}

/* A header that does not fit is cut off: it lies at the end of memory. */
static void write_record(uint64_t position, const struct told *told)
{
	size_t at = position & (SV_RING_BYTES - 1);
	struct sv_record rec = {.bytes = told->bytes,
				.kind = told->kind,
				.mode = told->mode,
				.nfrags = told->nfrags,
				.bulk_at = told->bulk_at,
				.bulk_end = told->bulk_at + told->payload_len,
				.pkt = {.payload_len = told->payload_len}};

	if (at + sizeof(rec) <= SV_RING_BYTES)
		memcpy(ring.data + at, &rec, sizeof(rec));
	else
		memcpy(ring.data + at, &rec, SV_RING_BYTES - at);
}

static volatile uint8_t sum;

static void touch(const uint8_t *bytes, size_t length)
{
	uint8_t all = 0;

	for (size_t i = 0; i < length; i += 512)
		all ^= bytes[i];
	sum = length ? all ^ bytes[length - 1] : all;
}

/* What the receiver looks at. */
static void take(const struct sv_record *rec)
{
	const uint8_t *payload = sv_payload_pointer(&ring, rec);

	FUZZ_CHECK(rec->kind == SV_RECORD_PACKET);
	touch((const uint8_t *)rec, sizeof(*rec));
	if (payload)
		touch(payload, rec->pkt.payload_len);
	if (rec->mode == SV_PAYLOAD_REFERS)
		touch(sv_record_behind(rec), rec->nfrags * sizeof(struct sv_frag));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t position, end;
	const struct sv_record *rec;

	if (!ring.data)
		make_ring();
	if (size < 2)
		return 0;
	memset(ring.head, 0, sizeof(*ring.head));
	position = SV_RING_BYTES - (uint64_t)(data[0] % 64) * SV_RECORD_ALIGN;
	ring.position = ring.other_side = end = position;
	for (size_t i = 0, at = 2; i < data[1] && at + sizeof(struct told) <= size;
	     i++, at += sizeof(struct told)) {
		struct told told;

		memcpy(&told, data + at, sizeof(told));
		write_record(end, &told);
		end += told.bytes;
	}
	atomic_store(&ring.head->tail, end);
	for (int n = 0; n < MAX_RECORDS && (rec = sv_ring_peek(&ring)); n++) {
		take(rec);
		sv_ring_consume(&ring, rec);
	}
	FUZZ_CHECK(ring.position % SV_RECORD_ALIGN == 0);
	return 0;
}
