/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RoCE v2 packets as bytes: what Linux's soft RoCE sent on a wire (kernel-6.1.pcap, from the
 * lab of one guest) is understood and said again byte for byte, and what nobody may send
 * is refused.
 */
#include "../../unit/cmocka_all.h"

#include "capture.h"

#include <string.h>

static uint32_t stored_icrc(const uint8_t *datagram, size_t length)
{
	const uint8_t *at = datagram + length - SV_ICRC_BYTES;

	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Headers, payload and pad of a packet as a wire would send them, without the ICRC. */
static size_t say(const struct sv_packet *pkt, uint8_t *out)
{
	size_t length = sv_roce_encode(pkt, out);

	if (pkt->payload_len)
		memcpy(out + length, pkt->payload, pkt->payload_len);
	length += pkt->payload_len;
	memset(out + length, 0, sv_roce_pad(pkt->payload_len));
	return length + sv_roce_pad(pkt->payload_len);
}

/* ---------------------------------------------------------------- the kernel's packets */

static void each_packet_of_the_kernel_is_said_again_byte_for_byte(void **state)
{
	uint32_t packets = 0, v6 = 0, seen = 0;
	uint8_t again[SV_ROCE_MAX_BYTES];
	struct captured p;
	struct capture c;

	(void)state;
	assert_true(capture_open(&c, CAPTURE));
	while (capture_next(&c, &p)) {
		struct sv_packet pkt;
		size_t length;

		assert_int_equal(sv_roce_decode(p.datagram, p.length, &pkt), SV_ROCE_GOOD);
		length = say(&pkt, again);
		assert_int_equal(length + SV_ICRC_BYTES, p.length);
		assert_memory_equal(again, p.datagram, length);
		assert_int_equal(sv_icrc(&p.flow, again, length),
				 stored_icrc(p.datagram, p.length));
		packets++;
		v6 += !sv_roce_is_v4(&p.flow.dst);
		seen |= 1u << pkt.op;
	}
	capture_close(&c);
	assert_in_range(packets, 200, 100000);
	assert_in_range(v6, 10, packets - 10);
	assert_int_equal(seen, (1u << SV_OP_COUNT) - 1); /* every operation */
}

/* But for what it has of IPv6: a flow label, which it makes of the queue pair, and no checksum. */
static void the_kernels_frames_are_said_again_byte_for_byte(void **state)
{
	uint32_t frames = 0;
	struct captured p;
	struct capture c;

	(void)state;
	assert_true(capture_open(&c, CAPTURE));
	while (capture_next(&c, &p)) {
		bool v4 = sv_roce_is_v4(&p.flow.dst);
		const uint8_t *ip = p.frame + 14;
		uint8_t traffic_class = (uint8_t)(v4 ? ip[1] : ip[0] << 4 | ip[1] >> 4);
		uint8_t front[SV_ROCE_FRONT_BYTES];
		size_t length;

		memcpy(front, p.frame, 12);
		length = sv_roce_frame_front(front, &p.flow, traffic_class, v4 ? ip[8] : ip[7],
					     p.datagram, p.length);
		assert_int_equal(length, (size_t)(p.datagram - p.frame));
		if (!v4) {
			front[15] = (uint8_t)((front[15] & 0xf0) | (ip[1] & 0x0f));
			memcpy(front + 16, ip + 2, 2);
			assert_int_not_equal(front[60] | front[61], 0);
			front[60] = front[61] = 0;
		}
		assert_memory_equal(front, p.frame, length);
		frames++;
	}
	capture_close(&c);
	assert_in_range(frames, 200, 100000);
}

static void an_unknown_identification_is_found_and_a_changed_packet_is_not(void **state)
{
	struct captured p;
	struct capture c;
	uint32_t packets = 0, missed = 0, broken = 0;

	(void)state;
	assert_true(capture_open(&c, CAPTURE));
	while (capture_next(&c, &p)) {
		size_t length = p.length - SV_ICRC_BYTES;
		uint32_t came = stored_icrc(p.datagram, p.length), for_id_0;
		uint8_t changed[SV_ROCE_MAX_BYTES];

		if (!sv_roce_is_v4(&p.flow.dst))
			continue;
		p.flow.id = 0;
		for_id_0 = sv_icrc(&p.flow, p.datagram, length);
		assert_true(sv_icrc_fits_some_id(came, for_id_0, length));
		/* Each byte changed in turn: one in 65536 differences would pass for an
		 * identification. */
		for (size_t i = 0; i < length; i++) {
			memcpy(changed, p.datagram, length);
			changed[i] ^= (uint8_t)(1u << i % 8);
			if (i == 4) /* the byte that is masked */
				continue;
			broken++;
			missed +=
			    sv_icrc_fits_some_id(came, sv_icrc(&p.flow, changed, length), length);
		}
		packets++;
	}
	capture_close(&c);
	assert_in_range(packets, 100, 100000);
	assert_in_range(broken, 1000, 10000000);
	assert_true(missed < broken / 5000);
}

/* ---------------------------------------------------------------- CRC */

static void the_crc_is_the_one_of_the_books(void **state)
{
	(void)state;
	/* The check value that catalogues of CRCs give for CRC-32. */
	assert_int_equal(~sv_crc32(0xffffffffu, "123456789", 9), 0xcbf43926u);
	assert_int_equal(~sv_crc32_by_table(0xffffffffu, "123456789", 9), 0xcbf43926u);
}

static void both_ways_to_the_crc_agree_at_every_length_and_place(void **state)
{
	static uint8_t data[SV_ROCE_MAX_BYTES + 16];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * i >> 3 ^ i * 37);
	for (size_t length = 0; length < 700; length++)
		for (size_t from = 0; from < 16; from += 5)
			assert_int_equal(
			    sv_crc32((uint32_t)length * 77, data + from, length),
			    sv_crc32_by_table((uint32_t)length * 77, data + from, length));
	for (size_t length = 4000; length <= SV_ROCE_MAX_BYTES; length++)
		assert_int_equal(sv_crc32(1, data, length), sv_crc32_by_table(1, data, length));
}

static void routers_may_change_what_they_change(void **state)
{
	struct sv_roce_flow flow = {.dst.raw = {[10] = 0xff, 0xff, 10, 0, 0, 1}, .sport = 49152};
	struct sv_packet pkt = {.op = SV_OP_ACK, .flags = SV_PKT_FIRST | SV_PKT_LAST};
	uint8_t bytes[SV_ROCE_MAX_BYTES];
	size_t length = say(&pkt, bytes);
	uint32_t before = sv_icrc(&flow, bytes, length);

	(void)state;
	bytes[4] = 0xc0; /* congestion marks */
	assert_int_equal(sv_icrc(&flow, bytes, length), before);
	flow.sport++;
	assert_int_not_equal(sv_icrc(&flow, bytes, length), before);
}

/* ---------------------------------------------------------------- every kind of packet */

static void each_opcode_survives_being_sent(void **state)
{
	static const uint8_t payload[7] = {1, 2, 3, 4, 5, 6, 7};
	uint8_t bytes[SV_ROCE_MAX_BYTES], again[SV_ROCE_MAX_BYTES];
	uint32_t known = 0;

	(void)state;
	for (uint32_t opcode = 0; opcode < 256; opcode++) {
		for (uint32_t size = 0; size <= sizeof(payload); size++) {
			struct sv_packet pkt, back;
			size_t length;

			/* Long enough for any header, and the payload of those that have one. */
			memset(bytes, 0xa5, sizeof(bytes));
			bytes[0] = (uint8_t)opcode;
			bytes[1] = 0;
			if (sv_roce_decode(bytes, 200, &pkt) == SV_ROCE_UNKNOWN)
				break;
			for (length = 12 + SV_ICRC_BYTES;
			     length < 60 && sv_roce_decode(bytes, length, &pkt) != SV_ROCE_GOOD;
			     length += 4)
				;
			if (opcode == 0x81) {
				assert_int_equal(sv_roce_decode(bytes, length, &pkt), SV_ROCE_CNP);
				break;
			}
			assert_int_equal(sv_roce_decode(bytes, length, &pkt), SV_ROCE_GOOD);
			known += size == 0;
			if (sv_roce_decode(bytes, length + 4, &back) == SV_ROCE_GOOD) {
				pkt.payload_len = size;
				pkt.payload = payload;
			}
			length = say(&pkt, bytes);
			assert_int_equal(bytes[0], opcode);
			assert_int_equal(sv_roce_decode(bytes, length + SV_ICRC_BYTES, &back),
					 SV_ROCE_GOOD);
			assert_int_equal(back.payload_len, pkt.payload_len);
			assert_int_equal(say(&back, again), length);
			assert_memory_equal(again, bytes, length);
		}
	}
	assert_int_equal(known, 25);
}

static void what_is_too_short_or_of_another_version_is_refused(void **state)
{
	uint8_t bytes[SV_ROCE_MAX_BYTES + 8] = {0};
	struct sv_packet pkt;

	(void)state;
	bytes[0] = 0x0a; /* a whole WRITE: RETH */
	for (size_t length = 0; length < 12 + 16 + SV_ICRC_BYTES; length++)
		assert_int_equal(sv_roce_decode(bytes, length, &pkt), SV_ROCE_BAD);
	assert_int_equal(sv_roce_decode(bytes, 32, &pkt), SV_ROCE_GOOD);
	assert_int_equal(sv_roce_decode(bytes, 33, &pkt), SV_ROCE_BAD); /* no multiple of four */
	bytes[1] = 3 << 4;						/* a pad of nothing */
	assert_int_equal(sv_roce_decode(bytes, 32, &pkt), SV_ROCE_BAD);
	bytes[1] = 1; /* version */
	assert_int_equal(sv_roce_decode(bytes, 32, &pkt), SV_ROCE_BAD);
	bytes[1] = 0;
	assert_int_equal(sv_roce_decode(bytes, sizeof(bytes), &pkt), SV_ROCE_BAD);
	assert_int_equal(sv_roce_decode(bytes, 32 + SV_ROCE_MAX_PAYLOAD + 4, &pkt), SV_ROCE_BAD);
	bytes[0] = 0x0c; /* a READ's request has no payload */
	assert_int_equal(sv_roce_decode(bytes, 36, &pkt), SV_ROCE_BAD);
	bytes[0] = 0x24; /* unreliable connection: there is none here */
	assert_int_equal(sv_roce_decode(bytes, 32, &pkt), SV_ROCE_UNKNOWN);
	bytes[0] = 0x15;
	assert_int_equal(sv_roce_decode(bytes, 32, &pkt), SV_ROCE_UNKNOWN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_packet_of_the_kernel_is_said_again_byte_for_byte),
	    cmocka_unit_test(the_kernels_frames_are_said_again_byte_for_byte),
	    cmocka_unit_test(an_unknown_identification_is_found_and_a_changed_packet_is_not),
	    cmocka_unit_test(the_crc_is_the_one_of_the_books),
	    cmocka_unit_test(both_ways_to_the_crc_agree_at_every_length_and_place),
	    cmocka_unit_test(routers_may_change_what_they_change),
	    cmocka_unit_test(each_opcode_survives_being_sent),
	    cmocka_unit_test(what_is_too_short_or_of_another_version_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
