/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the header of a unit: it is refused, or its fields are in range, what follows is no
 * longer than a partial result of the largest unit, and it survives being encoded again.
 *
 * Byte 0: 0: as it is; 1: with its checksum put right.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "inc/header.h"
#include "reduce/reduce.h"

#define SUM_AT 52

static uint8_t whole[1 + HA_INC_HEADER_BYTES], last[1 + HA_INC_HEADER_BYTES + 8],
    empty[1 + HA_INC_HEADER_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {whole, sizeof(whole)},
    {last, sizeof(last)},
    {empty, sizeof(empty)},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_inc_header header = {.kind = HA_INC_ALL_REDUCE,
				       .type = HA_REDUCE_BF16,
				       .number = 1,
				       .bytes = 65536,
				       .unit_bytes = 65536,
				       .op_bytes = 1 << 20,
				       .member = 3};

	whole[0] = last[0] = empty[0] = 1;
	ha_inc_header_encode(&header, whole + 1);
	header.bytes = 8;
	ha_inc_header_encode(&header, last + 1);
	header.type = HA_REDUCE_UINT8;
	header.op = HA_REDUCE_MAX;
	header.is_empty = true;
	ha_inc_header_encode(&header, empty + 1);
}

static void as_it_is(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_INC_HEADER_BYTES];
	struct ha_inc_header header, again;

	if (!ha_inc_header_decode(data, size, &header))
		return;
	FUZZ_CHECK(size >= HA_INC_HEADER_BYTES && ha_reduction_of(header.type, header.op));
	FUZZ_CHECK(header.bytes <= header.unit_bytes &&
		   header.unit_bytes <= HA_INC_MAX_UNIT_BYTES && header.bytes <= header.op_bytes);
	FUZZ_CHECK(ha_inc_header_payload(&header) <=
		   (size_t)HA_REDUCE_MAX_WIDENING * header.unit_bytes);
	ha_inc_header_encode(&header, bytes);
	FUZZ_CHECK(memcmp(bytes, data, sizeof(bytes)) == 0);
	FUZZ_CHECK(ha_inc_header_decode(bytes, sizeof(bytes), &again));
	FUZZ_CHECK(ha_inc_header_dispute(&header, &again) == HA_DISPUTE_NONE &&
		   header.is_wide == again.is_wide && header.is_empty == again.is_empty &&
		   header.member == again.member);
}

/* Without it, one mutant in four billion would get past the sum. */
static void with_its_sum(uint8_t *data, size_t size)
{
	struct ha_writer at = {data + SUM_AT}, sum = at;

	if (size >= HA_INC_HEADER_BYTES) {
		ha_put_zeros(&at, 4);
		ha_put_uint(&sum, ha_checksum(data, HA_INC_HEADER_BYTES), 4);
	}
	as_it_is(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_it_is, with_its_sum};

	fuzz_one_of(decoders, 2, data, size);
	return 0;
}
