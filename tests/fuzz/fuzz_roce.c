/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a RoCE v2 datagram, and as a frame with one: it is refused, or what was understood
 * is within the datagram, and said again is the same packet.
 */
#include "fuzz.h"

#include "simverbs/roce/frame.h"

#include <string.h>

/* A byte for each opcode and some behind it, so that it may be cut anywhere. */
static uint8_t seeds[26][80];

const struct fuzz_seed fuzz_seeds[] = {
#define SEED(i)                                                                                    \
	{                                                                                          \
		seeds[i], sizeof(seeds[i])                                                         \
	}
    SEED(0),  SEED(1),	SEED(2),  SEED(3),  SEED(4),  SEED(5),	SEED(6),  SEED(7),  SEED(8),
    SEED(9),  SEED(10), SEED(11), SEED(12), SEED(13), SEED(14), SEED(15), SEED(16), SEED(17),
    SEED(18), SEED(19), SEED(20), SEED(21), SEED(22), SEED(23), SEED(24), SEED(25), {NULL, 0},
};

__attribute__((constructor)) static void make_seeds(void)
{
	static const uint8_t behind_rc[] = {0x16, 0x17, 0x64, 0x65, 0x81};

	for (uint8_t i = 0; i < 26; i++) {
		memset(seeds[i], 0x5a, sizeof(seeds[i]));
		seeds[i][0] = i < 21 ? i : behind_rc[i - 21];
		seeds[i][1] = (uint8_t)(i << 4 & 0x30);
	}
}

static void say_again(const uint8_t *data, size_t size, const struct sv_packet *pkt)
{
	const uint8_t *payload = pkt->payload;
	uint32_t pad = sv_roce_pad(pkt->payload_len);
	uint8_t bytes[SV_ROCE_MAX_BYTES], twice[SV_ROCE_MAX_HEADERS];
	struct sv_packet again;
	uint32_t headers;

	FUZZ_CHECK(payload >= data &&
		   payload + pkt->payload_len + pad + SV_ICRC_BYTES <= data + size);
	headers = sv_roce_encode(pkt, bytes);
	FUZZ_CHECK(headers <= SV_ROCE_MAX_HEADERS && headers == (size_t)(payload - data));
	if (pkt->payload_len)
		memcpy(bytes + headers, payload, pkt->payload_len);
	memset(bytes + headers + pkt->payload_len, 0, pad + SV_ICRC_BYTES);
	FUZZ_CHECK(sv_roce_decode(bytes, headers + pkt->payload_len + pad + SV_ICRC_BYTES,
				  &again) == SV_ROCE_GOOD);
	FUZZ_CHECK(again.payload_len == pkt->payload_len);
	FUZZ_CHECK(sv_roce_encode(&again, twice) == headers && !memcmp(twice, bytes, headers));
}

static void take_frame(const uint8_t *frame, size_t size)
{
	const uint8_t *datagram = NULL;
	struct sv_roce_flow flow;
	struct sv_packet pkt = {0};
	size_t length = 0;

	if (!sv_roce_frame_take(frame, size, &flow, &datagram, &length))
		return;
	FUZZ_CHECK(datagram >= frame && datagram + length <= frame + size);
	if (sv_roce_decode(datagram, length, &pkt) == SV_ROCE_GOOD)
		say_again(datagram, length, &pkt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sv_roce_flow flow = {.sport = 49152};
	/* A block of its own size, so that the sanitizers see one byte too far. */
	uint8_t *copy = malloc(size ? size : 1);
	struct sv_packet pkt = {0};

	FUZZ_CHECK(copy);
	if (size)
		memcpy(copy, data, size);
	if (sv_roce_decode(copy, size, &pkt) == SV_ROCE_GOOD) {
		say_again(copy, size, &pkt);
		flow.id = (uint16_t)sv_icrc(&flow, copy, size - SV_ICRC_BYTES);
		flow.dst.raw[10] = flow.dst.raw[11] = 0xff;
		FUZZ_CHECK(sv_icrc_fits_some_id(
		    sv_icrc(&flow, copy, size - SV_ICRC_BYTES),
		    sv_icrc(&(struct sv_roce_flow){.sport = flow.sport, .dst = flow.dst}, copy,
			    size - SV_ICRC_BYTES),
		    size - SV_ICRC_BYTES));
	}
	take_frame(copy, size);
	free(copy);
	return 0;
}
