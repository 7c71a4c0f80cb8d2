/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a plugin and an agent say to each other: a frame that is taken is within the
 * bytes, says the same when it is said again, and is waited for while bytes of it are missing.
 */
#include "fuzz.h"

#include "base/agent_frame.h"

#include <string.h>

static const uint8_t asks[] = {0x52, 0x49, 0x50, 0x4d, 28, 0, 1, 0, 3,	 0,  1, 0, 10, 0,
			       0,    1,	   10,	 0,    0,  2, 0, 0, 172, 16, 0, 1, 0,  0};
static const uint8_t ends[] = {0x52, 0x49, 0x50, 0x4d, 12, 0, 2, 0, 3, 0, 1, 0};
static const uint8_t says[] = {0x52, 0x49, 0x50, 0x4d, 16, 0, 128, 0, 0, 0, 0, 0, 5, 0, 0, 0};
static const uint8_t sets[] = {0x52, 0x49, 0x50, 0x4d, 20, 0, 64, 0, 10, 0,
			       0,    1,	   10,	 0,    0,  2, 0,  1, 0,	 0};

const struct fuzz_seed fuzz_seeds[] = {
    {asks, sizeof(asks)}, {ends, sizeof(ends)}, {says, sizeof(says)},
    {says, 12},		  {sets, sizeof(sets)}, {NULL, 0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_agent_frame frame, again;
	uint8_t out[HA_AGENT_FRAME_MAX];
	int length = ha_agent_decode(data, size, &frame);

	FUZZ_CHECK(length >= -1 && length <= (int)size && length <= (int)sizeof(out));
	if (length <= 0)
		return 0;
	for (int less = 0; less < length; less++)
		FUZZ_CHECK(ha_agent_decode(data, (size_t)less, &again) == 0);
	FUZZ_CHECK(ha_agent_encode(&frame, out) == (size_t)length);
	FUZZ_CHECK(ha_agent_decode(out, (size_t)length, &again) == length);
	FUZZ_CHECK(memcmp(&frame.flow, &again.flow, sizeof(frame.flow)) == 0);
	FUZZ_CHECK(frame.type == again.type && frame.status == again.status &&
		   frame.conn_id == again.conn_id && frame.hint_slot == again.hint_slot &&
		   frame.share == again.share && frame.has_slot == again.has_slot);
	return 0;
}
