/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "base/bytes.h"
#include "inc/frame.h"

#include <string.h>

#define MEMBERS 8
#define SUM_AT	12

/* One of each kind, with all that it can say. */
static struct ha_inc_frame sample(enum ha_inc_frame_kind kind)
{
	struct ha_inc_frame frame = {
	    .kind = kind,
	    .member = 0,
	    .epoch = 0x31323334,
	    .group = 0x4142434445464748,
	};

	switch (kind) {
	case HA_INC_HELD:
		frame.round = 0x81828384;
		/* fall through */
	case HA_INC_FENCED:
		frame.member = 7;
		frame.said = (struct ha_fenced){frame.epoch,	    false,
						0x0102030405060708, 0x1112131415161718,
						0x2122232425262728, 0x5152535455565758};
		break;
	case HA_INC_LEAVE:
		frame.member = 7;
		frame.said = (struct ha_fenced){
		    .epoch = frame.epoch, .leaves = true, .retired = 0x0102030405060708};
		break;
	case HA_INC_RESUME:
		frame.plan = 0x61626364;
		frame.way = 0x65666768;
		frame.resume = (struct ha_resume){
		    frame.epoch, 0x0102030405060708, 0x8000000000000007, 0x8000000000000005, {0}};
		frame.resume.owner[2] = 7;
		frame.resume.owner[63] = 1;
		break;
	case HA_INC_HOLD:
		frame.is_on = true;
		frame.round = 0x81828384;
		break;
	case HA_INC_ABORT:
		frame.abort.why = HA_INC_ABORT_LOST;
		frame.abort.about = (struct ha_decision_fault){6, 0x7172737475767778};
		break;
	case HA_INC_SUSPECT:
		frame.is_cut = true;
		/* fall through */
	case HA_INC_ASKED:
		frame.member = 3;
		/* fall through */
	case HA_INC_ASK:
		frame.unit = 0x9192939495969798;
		break;
	case HA_INC_LINK:
		frame.member = 3;
		frame.link = (struct ha_inc_link){
		    .to = 7,
		    .state = HA_INC_LINK_KNOWS,
		    .child =
			{0xa1a2a3, 0xa4a5a6, {0xa7}, 0xa8a9, 5, 0xaaabacad, 0xaeafb0b1b2b3b4b5},
		    .parent =
			{0xb6b7b8, 0xb9babb, {0xbc}, 0xbdbe, 1, 0xbfc0c1c2, 0xc3c4c5c6c7c8c9ca},
		};
		break;
	case HA_INC_DRAIN:
		frame.member = 3;
		break;
	case HA_INC_DISPUTE:
		frame.member = 3;
		frame.dispute = (struct ha_dispute){HA_DISPUTE_LEFT, 6, 2, 0x8182838485868788,
						    0x7172737475767778};
		break;
	case HA_INC_FENCE:
	case HA_INC_FRAME_KINDS:
		break;
	}
	return frame;
}

static bool decodes(const uint8_t *bytes, size_t size)
{
	struct ha_inc_frame frame;

	return ha_inc_frame_decode(bytes, size, MEMBERS, &frame);
}

/* What a sender that is not ours might have made: other bytes with a right checksum. */
static bool decodes_with_sum(uint8_t *bytes, size_t size)
{
	struct ha_writer sum = {bytes + SUM_AT};

	memset(bytes + SUM_AT, 0, 4);
	ha_put_uint(&sum, ha_checksum(bytes, size), 4);
	return decodes(bytes, size);
}

static bool says_the_same(const struct ha_inc_frame *a, const struct ha_inc_frame *b)
{
	uint8_t as[HA_INC_FRAME_MAX], bs[HA_INC_FRAME_MAX];
	const size_t size = ha_inc_frame_encode(a, as);

	return ha_inc_frame_encode(b, bs) == size && memcmp(as, bs, size) == 0;
}

static void a_fence_is_these_bytes(void **state)
{
	static const uint8_t wanted[] = {'N',  'H',  'A',  'E',	 2,    0,    0,	   0,
					 0x34, 0x33, 0x32, 0x31, 0,    0,    0,	   0,
					 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41};
	uint8_t bytes[HA_INC_FRAME_MAX];
	struct ha_inc_frame frame = sample(HA_INC_FENCE);

	(void)state;
	assert_int_equal(ha_inc_frame_encode(&frame, bytes), sizeof(wanted));
	assert_memory_equal(bytes, wanted, SUM_AT);
	assert_memory_equal(bytes + SUM_AT + 4, wanted + SUM_AT + 4, sizeof(wanted) - SUM_AT - 4);
}

static void FENCED_and_RESUME_are_these_bytes(void **state)
{
	static const uint8_t fenced[] = {8,    7,    6,	   5,	 4,    3,    2,	   1,
					 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
					 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
					 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51};
	static const uint8_t resume[] = {8,    7,    6, 5,    4,    3,	  2,	1,    7,    0,
					 0,    0,    0, 0,    0,    0x80, 5,	0,    0,    0,
					 0,    0,    0, 0x80, 0x64, 0x63, 0x62, 0x61, 0x68, 0x67,
					 0x66, 0x65, 0, 0,    0,    0,	  7,	0,    0,    0};
	uint8_t bytes[HA_INC_FRAME_MAX];
	struct ha_inc_frame frame = sample(HA_INC_FENCED);

	(void)state;
	assert_int_equal(ha_inc_frame_encode(&frame, bytes), HA_INC_FRAME_HEAD + sizeof(fenced));
	assert_memory_equal(bytes + HA_INC_FRAME_HEAD, fenced, sizeof(fenced));
	frame = sample(HA_INC_RESUME);
	assert_int_equal(ha_inc_frame_encode(&frame, bytes), HA_INC_FRAME_MAX);
	assert_memory_equal(bytes + HA_INC_FRAME_HEAD, resume, sizeof(resume));
	assert_int_equal(bytes[HA_INC_FRAME_MAX - 2], 1);
}

static void what_is_said_is_what_is_heard(void **state)
{
	(void)state;
	for (unsigned int k = HA_INC_SUSPECT; k < HA_INC_FRAME_KINDS; k++) {
		struct ha_inc_frame frame = sample((enum ha_inc_frame_kind)k), heard;
		uint8_t bytes[HA_INC_FRAME_MAX];
		const size_t size = ha_inc_frame_encode(&frame, bytes);

		assert_int_equal(size, ha_inc_frame_bytes(frame.kind));
		assert_true(ha_inc_frame_decode(bytes, size, MEMBERS, &heard));
		assert_true(says_the_same(&frame, &heard));
	}
	assert_int_equal(ha_inc_frame_bytes((enum ha_inc_frame_kind)0), 0);
	assert_int_equal(ha_inc_frame_bytes(HA_INC_FRAME_KINDS), 0);
}

static void a_frame_of_another_length_or_with_a_wrong_bit_is_refused(void **state)
{
	(void)state;
	for (unsigned int k = HA_INC_SUSPECT; k < HA_INC_FRAME_KINDS; k++) {
		struct ha_inc_frame frame = sample((enum ha_inc_frame_kind)k);
		uint8_t bytes[HA_INC_FRAME_MAX + 1] = {0};
		const size_t size = ha_inc_frame_encode(&frame, bytes);

		for (size_t bit = 0; bit < 8 * size; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_false(decodes(bytes, size));
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		for (size_t other = 0; other <= size + 1; other++)
			assert_int_equal(decodes(bytes, other), other == size);
		/* A length that is right for the checksum, and not for the kind. */
		assert_false(decodes_with_sum(bytes, size + 1));
	}
}

/* Well made, and of what nobody in this group can mean. */
static void what_cannot_be_meant_is_refused(void **state)
{
	struct ha_inc_frame cases[37];
	unsigned int n = 0;

	(void)state;
	for (unsigned int k = HA_INC_SUSPECT; k < HA_INC_FRAME_KINDS; k++) {
		cases[n] = sample((enum ha_inc_frame_kind)k);
		cases[n++].member = MEMBERS; /* nobody's, or not the leader's */
	}
	for (unsigned int k = HA_INC_FENCE; k <= HA_INC_RESUME; k++) {
		cases[n] = sample((enum ha_inc_frame_kind)k);
		cases[n++].epoch = 0; /* which begins with no fence */
	}
	cases[n] = sample(HA_INC_FENCED);
	cases[n++].said.retired = UINT64_MAX - HA_DECISION_UNITS + 1;
	cases[n] = sample(HA_INC_LEAVE);
	cases[n++].said.retired = UINT64_MAX;
	cases[n] = sample(HA_INC_RESUME);
	cases[n++].resume.retired = UINT64_MAX;
	cases[n] = sample(HA_INC_RESUME);
	cases[n++].plan = 0;
	cases[n] = sample(HA_INC_RESUME);
	cases[n++].resume.lacked |= 8; /* and nobody has it */
	cases[n] = sample(HA_INC_RESUME);
	cases[n++].resume.owner[2] = MEMBERS;
	cases[n] = sample(HA_INC_RESUME);
	cases[n++].resume.owner[1] = 1; /* of a unit that nobody lacks */
	cases[n] = sample(HA_INC_ASK);
	cases[n++].unit = UINT64_MAX;
	cases[n] = sample(HA_INC_HOLD);
	cases[n++].round = 0;
	cases[n] = sample(HA_INC_HELD);
	cases[n++].round = 0;
	cases[n] = sample(HA_INC_ABORT);
	cases[n++].abort.about.member = MEMBERS;
	cases[n] = sample(HA_INC_ABORT);
	cases[n++].abort.why = HA_INC_ABORT_REASONS;
	cases[n] = sample(HA_INC_ABORT);
	cases[n++].abort.why = HA_INC_ABORT_DISPUTE; /* and between whom? */
	cases[n] = sample(HA_INC_ABORT);
	cases[n++].abort.dispute.unit = 1; /* and that is not what it is about */
	cases[n] = sample(HA_INC_DISPUTE);
	cases[n++].dispute.member = MEMBERS;
	cases[n] = sample(HA_INC_DISPUTE);
	cases[n++].dispute.other = MEMBERS;
	cases[n] = sample(HA_INC_DISPUTE);
	cases[n++].dispute.other = 6; /* itself */
	cases[n] = sample(HA_INC_DISPUTE);
	cases[n++].dispute.about = HA_DISPUTE_KINDS;
	cases[n] = sample(HA_INC_LINK);
	cases[n++].epoch = 0; /* which begins with switches */
	cases[n] = sample(HA_INC_LINK);
	cases[n++].link.to = MEMBERS;
	cases[n] = sample(HA_INC_LINK);
	cases[n++].link.to = 3; /* itself */
	assert_int_equal(n, sizeof(cases) / sizeof(cases[0]));
	for (unsigned int i = 0; i < n; i++) {
		uint8_t bytes[HA_INC_FRAME_MAX];

		if (decodes(bytes, ha_inc_frame_encode(&cases[i], bytes)))
			fail_msg("case %u is taken", i);
	}
}

/* What has to be zero, a kind and a flag that this version does not know; the checksum is right. */
static void what_is_of_a_later_version_is_refused(void **state)
{
	static const struct {
		enum ha_inc_frame_kind kind;
		size_t at;
		uint8_t byte;
	} cases[] = {
	    {HA_INC_SUSPECT, 24, 2}, {HA_INC_SUSPECT, 31, 1},
	    {HA_INC_FENCE, 4, 0},    {HA_INC_FENCE, 4, HA_INC_FRAME_KINDS},
	    {HA_INC_FENCE, 5, 1},    {HA_INC_FENCE, 4, 255},
	    {HA_INC_HOLD, 24, 2},    {HA_INC_HOLD, 25, 1},
	    {HA_INC_HOLD, 27, 1},    {HA_INC_HELD, 60, 1},
	    {HA_INC_HELD, 63, 1},    {HA_INC_ABORT, 24, 0},
	    {HA_INC_ABORT, 25, 1},   {HA_INC_ABORT, 29, 1},
	    {HA_INC_LINK, 26, 3},    {HA_INC_LINK, 27, 1},
	    {HA_INC_LINK, 31, 1},    {HA_INC_LINK, 59, 1}, /* an end that is none */
	    {HA_INC_DISPUTE, 24, 0}, {HA_INC_DISPUTE, 25, 1},
	    {HA_INC_DISPUTE, 27, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ha_inc_frame frame = sample(cases[i].kind);
		uint8_t bytes[HA_INC_FRAME_MAX];
		const size_t size = ha_inc_frame_encode(&frame, bytes);

		assert_true(decodes_with_sum(bytes, size));
		bytes[cases[i].at] = cases[i].byte;
		if (decodes_with_sum(bytes, size))
			fail_msg("case %zu is taken", i);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_fence_is_these_bytes),
	    cmocka_unit_test(FENCED_and_RESUME_are_these_bytes),
	    cmocka_unit_test(what_is_said_is_what_is_heard),
	    cmocka_unit_test(a_frame_of_another_length_or_with_a_wrong_bit_is_refused),
	    cmocka_unit_test(what_cannot_be_meant_is_refused),
	    cmocka_unit_test(what_is_of_a_later_version_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
