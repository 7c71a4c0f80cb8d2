/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a group of MEMBERS says about its epochs: they are refused, or members and
 * units are in range, and encoding them again gives the same bytes.
 *
 * Byte 0: 0: as it is; 1: with its checksum put right.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "inc/frame.h"

#define MEMBERS 8
#define SUM_AT	12

static uint8_t fence[1 + HA_INC_FRAME_MAX], fenced[1 + HA_INC_FRAME_MAX],
    resume[1 + HA_INC_FRAME_MAX], abort_frame[1 + HA_INC_FRAME_MAX], dispute[1 + HA_INC_FRAME_MAX],
    dispute_ends[1 + HA_INC_FRAME_MAX];

const struct fuzz_seed fuzz_seeds[] = {
    {fence, 1 + HA_INC_FRAME_HEAD},
    {fenced, 1 + HA_INC_FRAME_HEAD + 32},
    {resume, sizeof(resume)},
    {abort_frame, 1 + HA_INC_FRAME_HEAD + 16 + HA_DISPUTE_BYTES},
    {dispute, 1 + HA_INC_FRAME_HEAD + HA_DISPUTE_BYTES},
    {dispute_ends, 1 + HA_INC_FRAME_HEAD + 16 + HA_DISPUTE_BYTES},
    {NULL, 0},
};

static void make_seed(uint8_t *seed, const struct ha_inc_frame *frame)
{
	seed[0] = 1;
	ha_inc_frame_encode(frame, seed + 1);
}

__attribute__((constructor)) static void make_seeds(void)
{
	make_seed(fence, &(struct ha_inc_frame){.kind = HA_INC_FENCE, .epoch = 1});
	make_seed(fenced, &(struct ha_inc_frame){.kind = HA_INC_FENCED,
						 .epoch = 1,
						 .member = 3,
						 .said = {.epoch = 1, .retired = 5, .have = 3}});
	make_seed(resume, &(struct ha_inc_frame){.kind = HA_INC_RESUME,
						 .epoch = 1,
						 .plan = 2,
						 .resume = {1, 5, 3, 2, {0, 4}}});
	make_seed(abort_frame, &(struct ha_inc_frame){
				   .kind = HA_INC_ABORT,
				   .epoch = 1,
				   .abort = {.why = HA_INC_ABORT_DAMAGED, .about = {.unit = 9}}});
	make_seed(dispute, &(struct ha_inc_frame){.kind = HA_INC_DISPUTE,
						  .member = 2,
						  .dispute = {HA_DISPUTE_TYPE, 2, 5, 7, 9}});
	make_seed(dispute_ends,
		  &(struct ha_inc_frame){.kind = HA_INC_ABORT,
					 .abort = {.why = HA_INC_ABORT_DISPUTE,
						   .about = {5, 9},
						   .dispute = {HA_DISPUTE_LEFT, 2, 5, 0, 9}}});
}

static void check_resume(const struct ha_resume *decided)
{
	FUZZ_CHECK(!(decided->lacked & ~decided->taken));
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++)
		FUZZ_CHECK(decided->owner[i] < MEMBERS);
}

static void as_it_is(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_INC_FRAME_MAX];
	struct ha_inc_frame frame;

	if (!ha_inc_frame_decode(data, size, MEMBERS, &frame))
		return;
	FUZZ_CHECK(frame.member < MEMBERS && size == ha_inc_frame_bytes(frame.kind));
	if (frame.kind == HA_INC_RESUME)
		check_resume(&frame.resume);
	if (frame.kind == HA_INC_DISPUTE)
		FUZZ_CHECK(frame.dispute.member < MEMBERS && frame.dispute.other < MEMBERS);
	FUZZ_CHECK(ha_inc_frame_encode(&frame, bytes) == size);
	FUZZ_CHECK(memcmp(bytes, data, size) == 0);
}

/* Without it, one mutant in four billion would get past the sum. */
static void with_its_sum(uint8_t *data, size_t size)
{
	struct ha_writer at = {data + SUM_AT}, sum = at;

	if (size >= HA_INC_FRAME_HEAD) {
		ha_put_zeros(&at, 4);
		ha_put_uint(&sum, ha_checksum(data, size), 4);
	}
	as_it_is(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_it_is, with_its_sum};

	fuzz_one_of(decoders, 2, data, size);
	return 0;
}
