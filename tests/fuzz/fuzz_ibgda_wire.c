/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what hosts of a stream say to each other: a frame that is taken makes sense, and
 * says the same when it is said again. As its checksum would keep nearly all out, it is also made
 * right.
 */
#include "fuzz.h"

#include "base/bytes.h"
#include "ibgda/wire.h"

#include <infiniband/verbs.h>
#include <string.h>

static const uint8_t opens[] = {0x49, 0x42, 0x47, 0x41, 1,    0,    1,	0, 7, 0, 0, 0, 1, 0, 0,
				0,    0x34, 0x12, 0,	0,    5,    0,	0, 0, 0, 0, 0, 0, 0, 0,
				0,    0,    0,	  0,	0xff, 0xff, 10, 0, 0, 1, 0, 0, 3};
static const uint8_t tells[] = {0x49, 0x42, 0x47, 0x41, 1, 0, 5, 0, 7, 0, 0, 0};

const struct fuzz_seed fuzz_seeds[] = {{opens, sizeof(opens)}, {tells, sizeof(tells)}, {NULL, 0}};

static void look(const uint8_t frame[HA_IBGDA_FRAME])
{
	struct ha_ibgda_message message, again;
	uint8_t said[HA_IBGDA_FRAME];

	if (!ha_ibgda_wire_decode(frame, &message))
		return;
	FUZZ_CHECK(message.version == HA_IBGDA_VERSION && message.kind > 0 &&
		   message.kind < HA_IBGDA_KINDS);
	FUZZ_CHECK(message.pair != 0 || message.kind == HA_IBGDA_SUSPECT);
	if (message.kind == HA_IBGDA_OPEN || message.kind == HA_IBGDA_OPENED)
		FUZZ_CHECK(message.address.qpn >> 24 == 0 && message.address.psn >> 24 == 0 &&
			   message.address.mtu <= IBV_MTU_4096);
	ha_ibgda_wire_encode(&message, said);
	FUZZ_CHECK(memcmp(said, frame, sizeof(said)) == 0);
	FUZZ_CHECK(ha_ibgda_wire_decode(said, &again));
	FUZZ_CHECK(memcmp(&again, &message, sizeof(message)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t frame[HA_IBGDA_FRAME] = {0};
	struct ha_writer end = {frame + HA_IBGDA_FRAME - 4};

	memcpy(frame, data, size < sizeof(frame) ? size : sizeof(frame));
	look(frame);
	ha_put_uint(&end, ha_checksum(frame, HA_IBGDA_FRAME - 4), 4);
	look(frame);
	return 0;
}
