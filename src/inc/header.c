/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/header.h"

#include "base/bytes.h"
#include "inc/cut.h"
#include "reduce/reduce.h"

#define MAGIC	   0x4f41484eu /* "NHAO" */
#define EMPTY	   1u
#define WIDE	   2u
#define CHECKED_AT 52 /* where the checksum is */

static uint32_t checksum_of(const uint8_t *data)
{
	uint8_t rest[HA_INC_HEADER_BYTES];

	memcpy(rest, data, sizeof(rest));
	memset(rest + CHECKED_AT, 0, sizeof(uint32_t));
	return ha_checksum(rest, sizeof(rest));
}

void ha_inc_header_encode(const struct ha_inc_header *header, uint8_t out[HA_INC_HEADER_BYTES])
{
	struct ha_writer w = {out}, sum = {out + CHECKED_AT};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, header->kind, 1);
	ha_put_uint(&w, header->type, 1);
	ha_put_uint(&w, header->op, 1);
	ha_put_uint(&w, (header->is_empty ? EMPTY : 0) | (header->is_wide ? WIDE : 0), 1);
	ha_put_uint(&w, header->number, 8);
	ha_put_uint(&w, header->unit, 8);
	ha_put_uint(&w, header->bytes, 8);
	ha_put_uint(&w, header->unit_bytes, 4);
	ha_put_uint(&w, header->epoch, 4);
	ha_put_uint(&w, header->group, 8);
	ha_put_uint(&w, header->member, 2);
	ha_put_zeros(&w, 6);
	ha_put_uint(&w, header->op_bytes, 8);
	ha_put_uint(&sum, checksum_of(out), 4);
}

/* What a switch can act on without looking at it again. */
static bool is_sound(const struct ha_inc_header *header)
{
	const struct ha_reduction *reduction = ha_reduction_of(header->type, header->op);

	return header->kind == HA_INC_ALL_REDUCE && reduction && header->number > 0 &&
	       header->bytes % ha_reduce_bytes(reduction, HA_REDUCE_WIRE) == 0 &&
	       header->bytes <= header->unit_bytes && header->bytes <= header->op_bytes &&
	       header->unit_bytes > 0 && header->unit_bytes % HA_CUT_ALIGN == 0 &&
	       header->unit_bytes <= HA_INC_MAX_UNIT_BYTES &&
	       (!header->is_empty || (header->type == HA_REDUCE_UINT8 &&
				      header->op == HA_REDUCE_MAX && !header->is_wide));
}

bool ha_inc_header_decode(const uint8_t *data, size_t size, struct ha_inc_header *header)
{
	struct ha_reader r = {data};
	uint32_t magic, sum;
	uint16_t zero;
	uint8_t kind, flags;

	if (size < HA_INC_HEADER_BYTES)
		return false;
	magic = ha_get32(&r);
	kind = ha_get8(&r);
	header->type = ha_get8(&r);
	header->op = ha_get8(&r);
	flags = ha_get8(&r);
	header->number = ha_get64(&r);
	header->unit = ha_get64(&r);
	header->bytes = ha_get64(&r);
	header->unit_bytes = ha_get32(&r);
	header->epoch = ha_get32(&r);
	header->group = ha_get64(&r);
	header->member = ha_get16(&r);
	zero = ha_get16(&r);
	sum = ha_get32(&r);
	header->op_bytes = ha_get64(&r);
	header->kind = (enum ha_inc_kind)kind;
	header->is_empty = flags & EMPTY;
	header->is_wide = flags & WIDE;
	return magic == MAGIC && sum == checksum_of(data) && !zero && !(flags & ~(EMPTY | WIDE)) &&
	       is_sound(header);
}

size_t ha_inc_header_payload(const struct ha_inc_header *header)
{
	const struct ha_reduction *reduction = ha_reduction_of(header->type, header->op);
	const enum ha_reduce_form form = header->is_wide ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;

	if (header->is_empty)
		return 0;
	return header->bytes / ha_reduce_bytes(reduction, HA_REDUCE_WIRE) *
	       ha_reduce_bytes(reduction, form);
}

/* The form may differ: hosts send elements, and switches partial results. */
enum ha_dispute_about ha_inc_header_dispute(const struct ha_inc_header *a,
					    const struct ha_inc_header *b)
{
	if (a->number != b->number)
		return HA_DISPUTE_NUMBER;
	if (a->type != b->type)
		return HA_DISPUTE_TYPE;
	if (a->kind != b->kind || a->op != b->op)
		return HA_DISPUTE_OP;
	if (a->op_bytes != b->op_bytes)
		return HA_DISPUTE_BYTES_OF;
	if (a->unit != b->unit || a->bytes != b->bytes || a->unit_bytes != b->unit_bytes ||
	    a->epoch != b->epoch || a->group != b->group)
		return HA_DISPUTE_UNIT;
	return HA_DISPUTE_NONE;
}
