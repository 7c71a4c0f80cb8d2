/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a part of a plan, or as a child's wish to join: they are refused, or their fields
 * are in range and they survive being encoded again.
 *
 * Byte 0: 0: a part as it is; 1: with its checksum put right; 2: a join.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "inc/join.h"
#include "inc/part.h"

#include <stdlib.h>

#define SUM_AT 48

static uint8_t part_seed[1 + HA_PART_HEAD_BYTES + 2 * HA_PART_PLACE_BYTES],
    join_seed[1 + HA_JOIN_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {part_seed, sizeof(part_seed)},
    {join_seed, sizeof(join_seed)},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	struct ha_part_place places[2] = {
	    {.node = 0,
	     .parent = 2,
	     .at = {.in = {.sin_family = AF_INET, .sin_port = htons(1), .sin_addr.s_addr = 1}}},
	    {.tree = 1, .node = 2, .children = 2, .parent = HA_PLAN_NONE},
	};
	const struct ha_part part = {.group = 1,
				     .unit_bytes = 65536,
				     .window = 16,
				     .members = 2,
				     .lanes = 1,
				     .spares = 1,
				     .n = 2,
				     .places = places};
	const struct ha_join join = {.group = 1, .node = 2, .edge = {.qpn = 1, .mtu = 5}};

	part_seed[0] = 1;
	ha_part_encode(&part, part_seed + 1);
	join_seed[0] = 2;
	ha_join_encode(&join, join_seed + 1);
}

static void as_it_is(uint8_t *data, size_t size)
{
	struct ha_part part;
	uint8_t *bytes;

	if (!ha_part_decode(data, size, &part))
		return;
	FUZZ_CHECK(part.members > 0 && part.lanes > 0 && part.window > 0 &&
		   part.lanes + part.spares <= HA_PLAN_LANES && part.n <= HA_PART_PLACES);
	for (unsigned i = 0; i < part.n; i++)
		FUZZ_CHECK(part.places[i].children <= HA_PLAN_CHILDREN &&
			   ha_part_find(&part, part.places[i].tree, part.places[i].node));
	bytes = malloc(size);
	FUZZ_CHECK(bytes && ha_part_bytes(&part) == size);
	ha_part_encode(&part, bytes);
	FUZZ_CHECK(memcmp(bytes, data, size) == 0);
	free(bytes);
	ha_part_free(&part);
}

/* Without it, one mutant in four billion would get past the sum. */
static void with_its_sum(uint8_t *data, size_t size)
{
	struct ha_writer at = {data + SUM_AT}, sum = at;

	if (size >= HA_PART_HEAD_BYTES) {
		ha_put_zeros(&at, 4);
		ha_put_uint(&sum, ha_checksum(data, size), 4);
	}
	as_it_is(data, size);
}

static void as_join(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_JOIN_BYTES];
	struct ha_join join;

	if (!ha_join_decode(data, size, &join))
		return;
	FUZZ_CHECK(join.edge.mtu >= 1 && join.edge.mtu <= 5 && join.edge.qpn <= 0xffffff);
	ha_join_encode(&join, bytes);
	FUZZ_CHECK(memcmp(bytes, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_it_is, with_its_sum, as_join};

	fuzz_one_of(decoders, 3, data, size);
	return 0;
}
