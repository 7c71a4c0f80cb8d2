/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any datagram as a heartbeat: it is refused, or its fields are in range and it survives being
 * encoded again. Byte 0: whether the checksum is put right first.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "liveness/packet.h"

#include <string.h>

#define SUM_AT (HA_HEARTBEAT_BYTES - 4)

static uint8_t ping[1 + HA_HEARTBEAT_BYTES], pong[1 + HA_HEARTBEAT_BYTES];

const struct fuzz_seed fuzz_seeds[] = {
    {ping, sizeof(ping)},
    {pong, sizeof(pong)},
    {ping, sizeof(ping) - 1},
    {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	ping[0] = 1;
	ha_heartbeat_encode(
	    &(struct ha_heartbeat){.kind = HA_HEARTBEAT_PING, .from = 1, .to = 2, .seq = 3},
	    ping + 1);
	pong[0] = 1;
	ha_heartbeat_encode(
	    &(struct ha_heartbeat){.kind = HA_HEARTBEAT_PONG, .from = 2, .to = 1, .seq = 3},
	    pong + 1);
}

static void as_it_is(uint8_t *data, size_t size)
{
	uint8_t bytes[HA_HEARTBEAT_BYTES];
	struct ha_heartbeat beat, again;

	if (!ha_heartbeat_decode(data, size, &beat))
		return;
	FUZZ_CHECK(size == HA_HEARTBEAT_BYTES);
	FUZZ_CHECK(beat.kind == HA_HEARTBEAT_PING || beat.kind == HA_HEARTBEAT_PONG);
	ha_heartbeat_encode(&beat, bytes);
	FUZZ_CHECK(ha_heartbeat_decode(bytes, sizeof(bytes), &again));
	FUZZ_CHECK(beat.kind == again.kind && beat.from == again.from && beat.to == again.to &&
		   beat.seq == again.seq);
}

/* Without it, one mutant in four billion would get past the sum. */
static void with_its_sum(uint8_t *data, size_t size)
{
	struct ha_writer sum = {data + SUM_AT};

	if (size == HA_HEARTBEAT_BYTES)
		ha_put_uint(&sum, ha_checksum(data, SUM_AT), 4);
	as_it_is(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const fuzz_decoder decoders[] = {as_it_is, with_its_sum};

	fuzz_one_of(decoders, 2, data, size);
	return 0;
}
