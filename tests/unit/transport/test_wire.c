/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs of the handshake: what goes in comes out, and everything else is refused with the
 * right reason, at every truncation and for every field.
 */
#include "../cmocka_all.h"

#include "../sample_endpoint.h"

#include "transport/rings.h"
#include "transport/wire.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <string.h>

static struct ha_handle sample_handle(const char *ip, int family)
{
	struct ha_handle h = {.version = 1,
			      .flags = HA_HANDLE_DUAL_PATH,
			      .secrets = {0x1122334455667788, 0x99aabbccddeeff00},
			      .gid = {0xfd, 1, 2, [15] = 16}};

	if (family == AF_INET6) {
		h.addr.in6.sin6_family = AF_INET6;
		h.addr.in6.sin6_port = htons(4711);
		h.addr.in6.sin6_scope_id = 3;
		inet_pton(AF_INET6, ip, &h.addr.in6.sin6_addr);
	} else {
		h.addr.in.sin_family = AF_INET;
		h.addr.in.sin_port = htons(4711);
		inet_pton(AF_INET, ip, &h.addr.in.sin_addr);
	}
	return h;
}

static struct ha_hello sample_hello(void)
{
	struct ha_hello h = {
	    .secret = 0x0102030405060708,
	    .version = HA_WIRE_VERSION,
	    .min_version = HA_WIRE_MIN_VERSION,
	    .features = 5,
	    .connection_id = 0x99,
	    .pid = 4242,
	    .host = "host-a",
	    .max_recvs = 8,
	    .window = HA_WINDOW,
	    .endpoint = sample_endpoint(),
	    .rail = 3,
	    .rail_nqps = {2, 4, 0, HA_WIRE_MAX_QPS},
	    .rail_mode = 3,
	    .nrails = 4,
	};

	return h;
}

static void handles_survive_the_trip(void **state)
{
	static const struct {
		const char *ip;
		int family;
	} cases[] = {{"10.1.2.3", AF_INET}, {"fe80::1:2", AF_INET6}, {"127.0.0.1", AF_INET}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ha_handle in = sample_handle(cases[i].ip, cases[i].family), out;
		uint8_t bytes[HA_HANDLE_BYTES];

		ha_handle_encode(&in, bytes);
		assert_int_equal(ha_handle_decode(bytes, &out), HA_WIRE_OK);
		assert_int_equal(out.version, in.version);
		assert_int_equal(out.flags, in.flags);
		assert_memory_equal(&out.secrets, &in.secrets, sizeof(in.secrets));
		assert_memory_equal(&out.addr, &in.addr, ha_sockaddr_len(&in.addr));
		assert_memory_equal(out.gid, in.gid, sizeof(in.gid));
	}
}

static void a_handle_with_any_flipped_bit_is_refused(void **state)
{
	struct ha_handle in = sample_handle("10.1.2.3", AF_INET), out;
	uint8_t bytes[HA_HANDLE_BYTES];

	(void)state;
	ha_handle_encode(&in, bytes);
	for (int bit = 0; bit < 64 * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		assert_int_not_equal(ha_handle_decode(bytes, &out), HA_WIRE_OK);
		bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}

static void a_fresh_handle_has_no_attempt_and_keeps_one(void **state)
{
	struct ha_handle in = sample_handle("10.1.2.3", AF_INET), out;
	uint8_t bytes[HA_HANDLE_BYTES];

	(void)state;
	memset(bytes, 0xff, sizeof(bytes));
	ha_handle_encode(&in, bytes);
	assert_true(ha_handle_attempt(bytes) == 0);
	ha_handle_set_attempt(bytes, 0x8877665544332211);
	assert_true(ha_handle_attempt(bytes) == 0x8877665544332211);
	/* The attempt is no part of what the peer said. */
	assert_int_equal(ha_handle_decode(bytes, &out), HA_WIRE_OK);
}

static void frames_know_strangers_by_the_first_four_bytes(void **state)
{
	struct ha_frame_header in = {.type = HA_FRAME_BYE, .length = 16}, out;
	uint8_t bytes[HA_FRAME_HEADER];

	(void)state;
	ha_frame_header_encode(&in, bytes);
	assert_int_equal(ha_frame_header_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
	assert_int_equal(out.type, in.type);
	assert_int_equal(out.length, in.length);
	for (size_t len = 0; len < sizeof(bytes); len++)
		assert_int_equal(ha_frame_header_decode(bytes, len, &out), HA_WIRE_SHORT);
	assert_int_equal(ha_frame_header_decode((const uint8_t *)"GET ", 4, &out), HA_WIRE_MAGIC);
}

static void a_frame_longer_than_any_of_ours_is_refused(void **state)
{
	struct ha_frame_header in = {.type = HA_FRAME_HELLO, .length = HA_FRAME_MAX_PAYLOAD}, out;
	uint8_t bytes[HA_FRAME_HEADER];

	(void)state;
	ha_frame_header_encode(&in, bytes);
	assert_int_equal(ha_frame_header_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
	in.length++;
	ha_frame_header_encode(&in, bytes);
	assert_int_equal(ha_frame_header_decode(bytes, sizeof(bytes), &out), HA_WIRE_TOO_LONG);
	in.length = UINT32_MAX;
	ha_frame_header_encode(&in, bytes);
	assert_int_equal(ha_frame_header_decode(bytes, sizeof(bytes), &out), HA_WIRE_TOO_LONG);
}

static void hellos_survive_the_trip(void **state)
{
	struct ha_hello in = sample_hello(), out;
	uint8_t bytes[HA_HELLO_BYTES], again[HA_HELLO_BYTES];

	(void)state;
	ha_hello_encode(&in, bytes);
	assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
	assert_true(out.secret == in.secret);
	assert_string_equal(out.host, "host-a");
	assert_string_equal(out.endpoint.device, "mlx5_0");
	assert_int_equal(out.endpoint.qps[0].qpn, 0x123456);
	assert_int_equal(out.endpoint.qps[0].psn, 0xabcdef);
	assert_int_equal(out.endpoint.ring_rkey, 0xdeadbeef);
	assert_true(out.endpoint.guid == in.endpoint.guid);
	assert_true(out.endpoint.ece.known);
	assert_int_equal(out.endpoint.ece.vendor_id, 0x15b3);
	assert_int_equal(out.endpoint.ece.options, 0x10000003);
	assert_int_equal(out.endpoint.ece.comp_mask, 0x80);
	/* Every field, by encoding what was decoded. */
	ha_hello_encode(&out, again);
	assert_memory_equal(bytes, again, sizeof(bytes));
}

static void where_to_dial_again_survives_a_hello(void **state)
{
	static const union ha_sockaddr places[] = {
	    {.in = {.sin_family = AF_INET, .sin_port = 0x1234}},
	    {.in6 = {.sin6_family = AF_INET6, .sin6_port = 0x1234}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct ha_hello in = sample_hello(), out;
		uint8_t bytes[HA_HELLO_BYTES];

		in.reconnect_at.secrets = (struct ha_secrets){0xfedcba9876543210, 0x123456789};
		in.reconnect_at.addr = places[i];
		ha_hello_encode(&in, bytes);
		assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
		assert_memory_equal(&out.reconnect_at, &in.reconnect_at, sizeof(in.reconnect_at));
		in.reconnect_at.secrets = (struct ha_secrets){0}; /* a sender's */
		ha_hello_encode(&in, bytes);
		assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
		assert_memory_equal(&out.reconnect_at, &in.reconnect_at, sizeof(in.reconnect_at));
	}
}

static void a_hello_without_a_port_or_a_family_of_ours_says_nowhere(void **state)
{
	static const struct ha_reconnect_at nowhere;

	(void)state;
	for (unsigned field = 0; field < 2; field++) {
		struct ha_hello in = sample_hello(), out;
		uint8_t bytes[HA_HELLO_BYTES];

		in.reconnect_at.secrets = (struct ha_secrets){1, 2};
		in.reconnect_at.addr.in.sin_family = AF_INET;
		in.reconnect_at.addr.in.sin_port = htons(field == 0 ? 0 : 4711);
		ha_hello_encode(&in, bytes);
		if (field == 1)
			bytes[38] = 5; /* the family */
		assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
		assert_memory_equal(&out.reconnect_at, &nowhere, sizeof(nowhere));
	}
}

static void a_hello_cut_short_is_refused_and_a_longer_one_is_understood(void **state)
{
	struct ha_hello in = sample_hello(), out;
	uint8_t bytes[HA_HELLO_BYTES + 100] = {0};

	(void)state;
	ha_hello_encode(&in, bytes);
	for (size_t len = 0; len < HA_HELLO_BYTES; len++)
		assert_int_equal(ha_hello_decode(bytes, len, &out), HA_WIRE_SHORT);
	assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
}

static void hello_fields_out_of_range_are_refused(void **state)
{
	struct ha_hello out;
	uint8_t bytes[HA_HELLO_BYTES];

	(void)state;
#define REFUSED(change)                                                                            \
	do {                                                                                       \
		struct ha_hello in = sample_hello();                                               \
		change;                                                                            \
		ha_hello_encode(&in, bytes);                                                       \
		assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_BAD_VALUE);  \
	} while (0)
	REFUSED(in.version = 0);
	REFUSED(in.min_version = 0);
	REFUSED(in.min_version = HA_WIRE_VERSION + 1);
	REFUSED(in.max_recvs = 0);
	REFUSED(in.window = 0);
	REFUSED(in.window = 16);
	REFUSED(in.window = 48);
	REFUSED(in.endpoint.nqps = 0);
	REFUSED(in.endpoint.nqps = HA_WIRE_MAX_QPS + 1);
	REFUSED(in.rail_nqps[HA_WIRE_RAILS - 1] = HA_WIRE_MAX_QPS + 1);
	REFUSED(in.endpoint.mtu = 0);
	REFUSED(in.endpoint.mtu = 6);
	REFUSED(in.endpoint.link_layer = 0);
	REFUSED(in.endpoint.link_layer = 9);
	REFUSED(in.endpoint.sl = 16);
	REFUSED(in.endpoint.max_message = 0);
	REFUSED(in.endpoint.ring_addr = 0);
	REFUSED(in.endpoint.qps[1].qpn = 0);
	REFUSED(in.endpoint.qps[1].qpn = 0x1000000);
	REFUSED(in.endpoint.qps[0].psn = 0x1000000);
#undef REFUSED
}

static void names_from_the_wire_cannot_spoil_the_log(void **state)
{
	struct ha_hello in = sample_hello(), out;
	uint8_t bytes[HA_HELLO_BYTES];

	(void)state;
	memset(in.host, '\033', sizeof(in.host)); /* not even terminated */
	ha_hello_encode(&in, bytes);
	memset(bytes + 40, 0x1b, 32);
	assert_int_equal(ha_hello_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
	assert_int_equal(strlen(out.host), sizeof(out.host) - 1);
	for (size_t i = 0; i < sizeof(out.host) - 1; i++)
		assert_int_equal(out.host[i], '?');
}

static void both_ends_agree_on_the_same(void **state)
{
	struct ha_hello a = sample_hello(), b = sample_hello();
	struct ha_agreement ab, ba;

	(void)state;
	b.version = 3;
	b.features = 6;
	b.window = 2 * HA_WINDOW;
	b.max_recvs = 4;
	assert_int_equal(ha_hello_agree(&a, &b, &ab), HA_WIRE_OK);
	assert_int_equal(ha_hello_agree(&b, &a, &ba), HA_WIRE_OK);
	assert_memory_equal(&ab, &ba, sizeof(ab));
	assert_int_equal(ab.version, HA_WIRE_VERSION);
	assert_int_equal(ab.window, HA_WINDOW);
	assert_int_equal(ab.max_recvs, 4);
	assert_true(ab.features == 4);
	assert_true(ab.downgraded);
}

static void equal_ends_are_no_downgrade_and_strange_versions_no_agreement(void **state)
{
	struct ha_hello a = sample_hello(), b = sample_hello();
	struct ha_agreement out;

	(void)state;
	assert_int_equal(ha_hello_agree(&a, &b, &out), HA_WIRE_OK);
	assert_false(out.downgraded);
	b.version = b.min_version = HA_WIRE_VERSION + 1;
	assert_int_equal(ha_hello_agree(&a, &b, &out), HA_WIRE_UNSUPPORTED);
	assert_int_equal(ha_hello_agree(&b, &a, &out), HA_WIRE_UNSUPPORTED);
}

static void small_frames_survive_and_are_length_checked(void **state)
{
	struct ha_reject reject = {.secret = 5,
				   .reason = 4,
				   .version = 3,
				   .min_version = 1,
				   .port_num = 2,
				   .device = "mlx5_1"},
			 reject_out;
	struct ha_bye bye = {.done = 1ull << 40, .done_bits = 0xf0f0}, bye_out;
	struct ha_rejoin rejoin = {.secret = 1ull << 63, .connection_id = 7}, rejoin_out;
	struct ha_abort given_up = {.epoch = 9, .code = 6}, abort_out;
	uint8_t bytes[HA_REJECT_BYTES];

	(void)state;
	ha_abort_encode(&given_up, bytes);
	assert_int_equal(ha_abort_decode(bytes, HA_ABORT_BYTES, &abort_out), HA_WIRE_OK);
	assert_int_equal(abort_out.epoch, 9);
	assert_int_equal(abort_out.code, 6);
	assert_int_equal(ha_abort_decode(bytes, HA_ABORT_BYTES - 1, &abort_out), HA_WIRE_SHORT);
	ha_reject_encode(&reject, bytes);
	assert_int_equal(ha_reject_decode(bytes, HA_REJECT_BYTES, &reject_out), HA_WIRE_OK);
	assert_int_equal(reject_out.secret, reject.secret);
	assert_int_equal(reject_out.reason, reject.reason);
	assert_int_equal(reject_out.version, reject.version);
	assert_int_equal(reject_out.min_version, reject.min_version);
	assert_int_equal(reject_out.port_num, reject.port_num);
	assert_string_equal(reject_out.device, reject.device);
	assert_int_equal(ha_reject_decode(bytes, HA_REJECT_BYTES - 1, &reject_out), HA_WIRE_SHORT);
	ha_bye_encode(&bye, bytes);
	assert_int_equal(ha_bye_decode(bytes, HA_BYE_BYTES, &bye_out), HA_WIRE_OK);
	assert_memory_equal(&bye, &bye_out, sizeof(bye));
	assert_int_equal(ha_bye_decode(bytes, HA_BYE_BYTES - 1, &bye_out), HA_WIRE_SHORT);
	ha_rejoin_encode(&rejoin, bytes);
	assert_int_equal(ha_rejoin_decode(bytes, HA_REJOIN_BYTES, &rejoin_out), HA_WIRE_OK);
	assert_memory_equal(&rejoin, &rejoin_out, sizeof(rejoin));
	assert_int_equal(ha_rejoin_decode(bytes, HA_REJOIN_BYTES - 1, &rejoin_out), HA_WIRE_SHORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(handles_survive_the_trip),
	    cmocka_unit_test(a_handle_with_any_flipped_bit_is_refused),
	    cmocka_unit_test(a_fresh_handle_has_no_attempt_and_keeps_one),
	    cmocka_unit_test(frames_know_strangers_by_the_first_four_bytes),
	    cmocka_unit_test(a_frame_longer_than_any_of_ours_is_refused),
	    cmocka_unit_test(hellos_survive_the_trip),
	    cmocka_unit_test(where_to_dial_again_survives_a_hello),
	    cmocka_unit_test(a_hello_without_a_port_or_a_family_of_ours_says_nowhere),
	    cmocka_unit_test(a_hello_cut_short_is_refused_and_a_longer_one_is_understood),
	    cmocka_unit_test(hello_fields_out_of_range_are_refused),
	    cmocka_unit_test(names_from_the_wire_cannot_spoil_the_log),
	    cmocka_unit_test(both_ends_agree_on_the_same),
	    cmocka_unit_test(equal_ends_are_no_downgrade_and_strange_versions_no_agreement),
	    cmocka_unit_test(small_frames_survive_and_are_length_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
