/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/frame.h"

#include "base/bytes.h"

#define MAGIC	   0x4541484eu /* "NHAE" */
#define CHECKED_AT 12	       /* where the checksum is */

typedef void putter(struct ha_writer *w, const struct ha_inc_frame *frame);
/* False: this cannot be. */
typedef bool getter(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame);

/* ---- bodies --------------------------------------------------------------------------------- */

/* A bitmap from there on names units that have numbers. */
static bool is_unit(uint64_t retired)
{
	return retired <= UINT64_MAX - HA_DECISION_UNITS;
}

static void put_said(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->said.retired, 8);
	ha_put_uint(w, frame->said.have, 8);
	ha_put_uint(w, frame->said.sent, 8);
	ha_put_uint(w, frame->said.direct, 8);
}

static bool get_said(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	(void)members;
	frame->said = (struct ha_fenced){.epoch = frame->epoch};
	frame->said.retired = ha_get64(r);
	frame->said.have = ha_get64(r);
	frame->said.sent = ha_get64(r);
	frame->said.direct = ha_get64(r);
	return is_unit(frame->said.retired);
}

static void put_unit(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->unit, 8);
}

static bool get_unit(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	(void)members;
	frame->unit = ha_get64(r);
	return is_unit(frame->unit);
}

static void put_suspect(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->is_cut, 1);
	ha_put_zeros(w, 7);
	put_unit(w, frame);
}

static bool get_suspect(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	const uint8_t is_cut = ha_get8(r);
	const bool is_zero = !ha_get_uint(r, 7);

	frame->is_cut = is_cut;
	return is_cut <= 1 && is_zero && get_unit(r, members, frame);
}

static void put_held(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	put_said(w, frame);
	ha_put_uint(w, frame->round, 4);
	ha_put_zeros(w, 4);
}

static bool get_held(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	const bool is_right = get_said(r, members, frame);

	frame->round = ha_get32(r);
	return is_right && frame->round && !ha_get32(r);
}

static void put_leave(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->said.retired, 8);
}

static bool get_leave(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	(void)members;
	frame->said = (struct ha_fenced){.epoch = frame->epoch, .leaves = true};
	frame->said.retired = ha_get64(r);
	return is_unit(frame->said.retired);
}

static void put_resume(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->resume.retired, 8);
	ha_put_uint(w, frame->resume.taken, 8);
	ha_put_uint(w, frame->resume.lacked, 8);
	ha_put_uint(w, frame->plan, 4);
	ha_put_uint(w, frame->way, 4);
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++)
		ha_put_uint(w, frame->resume.owner[i], 2);
}

/* Owners are of units that somebody lacks, and those somebody has. */
static bool get_resume(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	struct ha_resume *resume = &frame->resume;
	bool is_right;

	*resume = (struct ha_resume){.epoch = frame->epoch};
	resume->retired = ha_get64(r);
	resume->taken = ha_get64(r);
	resume->lacked = ha_get64(r);
	frame->plan = ha_get32(r);
	frame->way = ha_get32(r);
	is_right = frame->plan && is_unit(resume->retired) && !(resume->lacked & ~resume->taken);
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++) {
		resume->owner[i] = ha_get16(r);
		is_right &=
		    resume->lacked >> i & 1 ? resume->owner[i] < members : !resume->owner[i];
	}
	return is_right;
}

static void put_hold(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->is_on, 1);
	ha_put_zeros(w, 3);
	ha_put_uint(w, frame->round, 4);
}

static bool get_hold(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	const uint8_t on = ha_get8(r);
	const bool is_zero = !ha_get_uint(r, 3);

	(void)members;
	frame->is_on = on;
	frame->round = ha_get32(r);
	return on <= 1 && is_zero && frame->round;
}

static void put_abort(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_put_uint(w, frame->abort.why, 1);
	ha_put_zeros(w, 5);
	ha_put_uint(w, frame->abort.about.member, 2);
	ha_put_uint(w, frame->abort.about.unit, 8);
	ha_dispute_encode(&frame->abort.dispute, w->at);
}

static bool is_zero_up_to(const uint8_t *at, size_t size)
{
	while (size > 0 && !at[size - 1])
		size--;
	return size == 0;
}

static bool get_abort(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	const uint8_t why = ha_get8(r);
	const bool is_zero = !ha_get_uint(r, 5);
	bool is_right;

	frame->abort.why = (enum ha_inc_abort)why;
	frame->abort.about.member = ha_get16(r);
	frame->abort.about.unit = ha_get64(r);
	is_right = why == HA_INC_ABORT_DISPUTE
		       ? ha_dispute_decode(r->at, HA_DISPUTE_BYTES, members, &frame->abort.dispute)
		       : is_zero_up_to(r->at, HA_DISPUTE_BYTES);
	return is_right && is_zero && why >= HA_INC_ABORT_DAMAGED && why < HA_INC_ABORT_REASONS &&
	       frame->abort.about.member < members;
}

static void put_link(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	const struct ha_inc_link *link = &frame->link;

	ha_put_uint(w, link->to, 2);
	ha_put_uint(w, link->state, 1);
	ha_put_zeros(w, 5);
	ha_edge_address_encode(&link->child, w->at);
	ha_edge_address_encode(&link->parent, w->at + HA_EDGE_ADDRESS_BYTES);
}

static bool get_link(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	struct ha_inc_link *link = &frame->link;
	uint8_t state;

	link->to = ha_get16(r);
	state = ha_get8(r);
	link->state = (enum ha_inc_linking)state;
	return !ha_get_uint(r, 5) && link->to < members && link->to != frame->member &&
	       state < HA_INC_LINK_STATES &&
	       ha_edge_address_decode(r->at, HA_EDGE_ADDRESS_BYTES, &link->child) &&
	       ha_edge_address_decode(r->at + HA_EDGE_ADDRESS_BYTES, HA_EDGE_ADDRESS_BYTES,
				      &link->parent);
}

static void put_dispute(struct ha_writer *w, const struct ha_inc_frame *frame)
{
	ha_dispute_encode(&frame->dispute, w->at);
}

static bool get_dispute(struct ha_reader *r, uint16_t members, struct ha_inc_frame *frame)
{
	return ha_dispute_decode(r->at, HA_DISPUTE_BYTES, members, &frame->dispute);
}

/* ---- kinds ---------------------------------------------------------------------------------- */

static const struct kind {
	uint8_t bytes; /* of the body */
	bool is_leaders;
	bool has_epoch; /* that is not the first one, which nothing begins */
	putter *put;
	getter *get;
} kinds[HA_INC_FRAME_KINDS] = {
    [HA_INC_SUSPECT] = {16, false, false, put_suspect, get_suspect},
    [HA_INC_FENCE] = {0, true, true, NULL, NULL},
    [HA_INC_FENCED] = {32, false, true, put_said, get_said},
    [HA_INC_RESUME] = {32 + 2 * HA_DECISION_UNITS, true, true, put_resume, get_resume},
    [HA_INC_HOLD] = {8, true, false, put_hold, get_hold},
    [HA_INC_HELD] = {40, false, false, put_held, get_held},
    [HA_INC_LEAVE] = {8, false, false, put_leave, get_leave},
    [HA_INC_ABORT] = {16 + HA_DISPUTE_BYTES, true, false, put_abort, get_abort},
    [HA_INC_ASK] = {8, true, false, put_unit, get_unit},
    [HA_INC_ASKED] = {8, false, false, put_unit, get_unit},
    [HA_INC_LINK] = {8 + 2 * HA_EDGE_ADDRESS_BYTES, false, true, put_link, get_link},
    [HA_INC_DRAIN] = {0, false, false, NULL, NULL},
    [HA_INC_DISPUTE] = {HA_DISPUTE_BYTES, false, false, put_dispute, get_dispute},
};

static bool is_kind(enum ha_inc_frame_kind kind)
{
	return kind >= HA_INC_SUSPECT && kind < HA_INC_FRAME_KINDS;
}

size_t ha_inc_frame_bytes(enum ha_inc_frame_kind kind)
{
	return is_kind(kind) ? (size_t)HA_INC_FRAME_HEAD + kinds[kind].bytes : 0;
}

static uint32_t checksum_of(const uint8_t *data, size_t size)
{
	uint8_t rest[HA_INC_FRAME_MAX];

	memcpy(rest, data, size);
	memset(rest + CHECKED_AT, 0, sizeof(uint32_t));
	return ha_checksum(rest, size);
}

size_t ha_inc_frame_encode(const struct ha_inc_frame *frame, uint8_t out[HA_INC_FRAME_MAX])
{
	const size_t size = ha_inc_frame_bytes(frame->kind);
	struct ha_writer w = {out}, sum = {out + CHECKED_AT};

	ha_put_uint(&w, MAGIC, 4);
	ha_put_uint(&w, frame->kind, 1);
	ha_put_zeros(&w, 1);
	ha_put_uint(&w, frame->member, 2);
	ha_put_uint(&w, frame->epoch, 4);
	ha_put_zeros(&w, 4);
	ha_put_uint(&w, frame->group, 8);
	if (kinds[frame->kind].put)
		kinds[frame->kind].put(&w, frame);
	ha_put_uint(&sum, checksum_of(out, size), 4);
	return size;
}

bool ha_inc_frame_decode(const uint8_t *data, size_t size, uint16_t members,
			 struct ha_inc_frame *frame)
{
	struct ha_reader r = {data};
	const struct kind *kind;
	uint32_t magic, sum;
	uint8_t number, zero;

	if (size < HA_INC_FRAME_HEAD)
		return false;
	*frame = (struct ha_inc_frame){0};
	magic = ha_get32(&r);
	number = ha_get8(&r);
	zero = ha_get8(&r);
	frame->kind = (enum ha_inc_frame_kind)number;
	frame->member = ha_get16(&r);
	frame->epoch = ha_get32(&r);
	sum = ha_get32(&r);
	frame->group = ha_get64(&r);
	if (magic != MAGIC || zero || size != ha_inc_frame_bytes(frame->kind) ||
	    sum != checksum_of(data, size))
		return false;
	kind = &kinds[number];
	return (kind->is_leaders ? frame->member == 0 : frame->member < members) &&
	       (frame->epoch || !kind->has_epoch) && (!kind->get || kind->get(&r, members, frame));
}
