/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codecs of the failover protocol: what goes in comes out, and everything else is refused with
 * the right reason, at every truncation, for every flipped bit and for every field.
 */
#include "../cmocka_all.h"

#include "../sample_endpoint.h"

#include "base/bytes.h"
#include "failover/message.h"
#include "failover/port_offer.h"

#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

static struct ha_message sample(unsigned kind, bool endpoint)
{
	struct ha_message m = {.kind = (uint8_t)kind,
			       .reason = 3,
			       .path = 2,
			       .port = 4,
			       .peer_port = 5,
			       .has_endpoint = endpoint,
			       .code = 6,
			       .epoch = 0x01020304,
			       .serial = 0x05060708,
			       .generation = 7,
			       .ports_up = 0x3,
			       .rto_ms = 1500,
			       .fenced_gen = {1, 2, 6, 0xffffffff},
			       .window = {.base = 0x1122334455667788, .bits = 0x8000000000000002}};

	if (kind == HA_MSG_SHED) {
		m.lost = 0xe;
		m.drained = 0xa;
		m.seen[1] = 0x5;
		m.seen[3] = 0x7ffffffffffffffd;
	}
	if (kind == HA_MSG_MENDED) {
		m.yielded_gen[1] = 9;
		memcpy(m.mended_gen, (uint32_t[HA_MAX_PATHS]){1, 9, 0, 0xffffffff},
		       sizeof(m.mended_gen));
	}
	if (endpoint) {
		m.endpoint = sample_endpoint();
		m.endpoint.path = m.path;
		m.endpoint.generation = (uint16_t)m.generation;
	}
	return m;
}

static bool names_a_path(unsigned kind)
{
	return kind == HA_MSG_SUSPECT || kind == HA_MSG_RESUME || kind == HA_MSG_REBUILD ||
	       kind == HA_MSG_REBUILT || kind == HA_MSG_REFUSED;
}

static bool needs_endpoint(unsigned kind)
{
	return kind == HA_MSG_REBUILD || kind == HA_MSG_REBUILT;
}

static bool takes_endpoint(unsigned kind)
{
	return kind != HA_MSG_SHED && kind != HA_MSG_MENDED;
}

static size_t length_of(const struct ha_message *m)
{
	if (m->has_endpoint)
		return HA_MESSAGE_MAX_BYTES;
	return HA_MESSAGE_BYTES + (m->kind == HA_MSG_SHED ? 40 : m->kind == HA_MSG_MENDED ? 16 : 0);
}

/* What the decoder makes of a message once it is encoded. */
static enum ha_wire_result refused(const struct ha_message *m)
{
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];
	struct ha_message out;

	return ha_message_decode(bytes, ha_message_encode(m, bytes), &out);
}

static void every_kind_survives_with_all_it_says(void **state)
{
	uint8_t bytes[HA_MESSAGE_MAX_BYTES];

	(void)state;
	for (unsigned kind = 1; kind < HA_MSG_END; kind++) {
		struct ha_message in = sample(kind, needs_endpoint(kind)), out;
		size_t length = ha_message_encode(&in, bytes);

		assert_int_equal(length, length_of(&in));
		assert_int_equal(ha_message_decode(bytes, length, &out), HA_WIRE_OK);
		assert_memory_equal(&in, &out, sizeof(in));
		assert_string_not_equal(ha_message_name(kind), "unknown");
	}
	assert_string_equal(ha_message_name(0), "unknown");
	assert_string_equal(ha_message_name(HA_MSG_END), "unknown");
	assert_string_equal(ha_message_name(255), "unknown");
}

/* In a block of its own, so that the sanitizers see one byte too far. */
static enum ha_wire_result decode_copy(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);
	struct ha_message out;
	enum ha_wire_result result;

	memcpy(copy, bytes, length);
	result = ha_message_decode(copy, length, &out);
	free(copy);
	return result;
}

static void every_truncation_is_refused(void **state)
{
	(void)state;
	for (unsigned kind = 1; kind < HA_MSG_END; kind++) {
		struct ha_message m = sample(kind, needs_endpoint(kind));
		uint8_t bytes[HA_MESSAGE_MAX_BYTES];
		size_t length = ha_message_encode(&m, bytes);

		for (size_t cut = 0; cut < length; cut++)
			assert_int_equal(decode_copy(bytes, cut), HA_WIRE_SHORT);
		assert_int_equal(decode_copy(bytes, length), HA_WIRE_OK);
	}
}

/* A mailbox may be read while the peer's NIC writes it. */
static void every_flipped_bit_is_noticed(void **state)
{
	static const unsigned kinds[] = {HA_MSG_REBUILT, HA_MSG_SHED, HA_MSG_MENDED};

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		struct ha_message m = sample(kinds[k], needs_endpoint(kinds[k]));
		uint8_t bytes[HA_MESSAGE_MAX_BYTES];
		size_t length = ha_message_encode(&m, bytes);

		for (size_t bit = 0; bit < 8 * length; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_not_equal(decode_copy(bytes, length), HA_WIRE_OK);
			bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		assert_int_equal(decode_copy(bytes, length), HA_WIRE_OK);
	}
}

static void a_newer_message_over_an_older_one_is_noticed_at_every_byte(void **state)
{
	struct ha_message old_message = sample(HA_MSG_REBUILD, true), new_message = old_message;
	uint8_t old_bytes[HA_MESSAGE_MAX_BYTES], new_bytes[HA_MESSAGE_MAX_BYTES];
	size_t length;

	(void)state;
	new_message.serial++;
	new_message.generation++;
	new_message.endpoint.qps[1].psn++; /* near the end */
	length = ha_message_encode(&old_message, old_bytes);
	ha_message_encode(&new_message, new_bytes);
	for (size_t n = 0; n < length; n++) {
		uint8_t torn[HA_MESSAGE_MAX_BYTES];

		memcpy(torn, old_bytes, length);
		memcpy(torn, new_bytes, n);
		if (memcmp(torn, old_bytes, length) != 0 && memcmp(torn, new_bytes, length) != 0)
			assert_int_equal(decode_copy(torn, length), HA_WIRE_CHECKSUM);
	}
}

static void bytes_that_a_newer_peer_appends_are_ignored(void **state)
{
	struct ha_message m = sample(HA_MSG_RESUME, false), out;
	uint8_t bytes[HA_MESSAGE_MAX_BYTES + 64] = {0};
	size_t length = ha_message_encode(&m, bytes);

	(void)state;
	assert_int_equal(ha_message_decode(bytes, length + 64, &out), HA_WIRE_OK);
	assert_memory_equal(&m, &out, sizeof(m));
}

static void fields_outside_their_range_are_refused(void **state)
{
	(void)state;
	for (unsigned kind = 1; kind < HA_MSG_END; kind++) {
		struct ha_message m = sample(kind, needs_endpoint(kind));
		enum ha_wire_result bad_path = names_a_path(kind) ? HA_WIRE_BAD_VALUE : HA_WIRE_OK;

		m.path = HA_MAX_PATHS;
		assert_int_equal(refused(&m), bad_path);
		m = sample(kind, needs_endpoint(kind));
		m.generation = 0;
		assert_int_equal(refused(&m), bad_path);
		m = sample(kind, needs_endpoint(kind));
		m.window.base = 0; /* messages count from 1 */
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
		m = sample(kind, !needs_endpoint(kind));
		assert_int_equal(refused(&m), needs_endpoint(kind) || !takes_endpoint(kind)
						  ? HA_WIRE_BAD_VALUE
						  : HA_WIRE_OK);
		m = sample(kind, needs_endpoint(kind));
		m.port = HA_MAX_OFFERS;
		assert_int_equal(refused(&m),
				 kind == HA_MSG_REBUILD ? HA_WIRE_BAD_VALUE : HA_WIRE_OK);
		m = sample(kind, needs_endpoint(kind));
		m.peer_port = 255;
		assert_int_equal(refused(&m),
				 kind == HA_MSG_REBUILD ? HA_WIRE_BAD_VALUE : HA_WIRE_OK);
		m = sample(kind, true);
		m.endpoint.nqps = HA_WIRE_MAX_QPS + 1;
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
		m = sample(kind, true);
		m.endpoint.path ^= 1; /* of another path than the message */
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
		m = sample(kind, true);
		m.endpoint.generation++;
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
		m = sample(kind, true);
		m.endpoint.qps[0].qpn = 0;
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	}
	for (unsigned kind = HA_MSG_END; kind <= 256; kind++) { /* 256 is 0 */
		struct ha_message m = sample(kind, false);

		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	}
}

static void what_is_shed_is_of_paths_that_there_were_and_messages_that_are_not_done(void **state)
{
	const struct ha_message good = sample(HA_MSG_SHED, false);
	struct ha_message m = good;

	(void)state;
	m.lost = m.drained = 0; /* nothing */
	assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	m = good;
	m.lost |= 1u << HA_MAX_PATHS;
	assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	m = good;
	m.drained |= 1; /* and not lost */
	assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	m = good;
	m.fenced_gen[1] = 0; /* it never had a generation */
	assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		m = good;
		m.seen[p] |= 0x2; /* of a message that is done */
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	}
}

static void what_is_mended_is_fenced_or_given_up(void **state)
{
	(void)state;
	for (unsigned p = 0; p < 3; p++) {
		struct ha_message m = sample(HA_MSG_MENDED, false);

		m.mended_gen[p] =
		    m.fenced_gen[p] > m.yielded_gen[p] ? m.fenced_gen[p] : m.yielded_gen[p];
		assert_int_equal(refused(&m), HA_WIRE_OK);
		m.mended_gen[p]++;
		assert_int_equal(refused(&m), HA_WIRE_BAD_VALUE);
	}
}

/* ---- PORTS --------------------------------------------------------------------------------- */

static struct ha_port_offers sample_ports(unsigned count)
{
	struct ha_port_offers p = {.count = (uint8_t)count};

	for (unsigned i = 0; i < count; i++) {
		p.offers[i] = (struct ha_offer){.link_layer = IBV_LINK_LAYER_ETHERNET,
						.port_num = (uint8_t)(i + 1),
						.up = (uint8_t)(i & 1),
						.lid = (uint16_t)(100 + i),
						.speed_mbps = 400000,
						.live_qpn = 0x11 + i,
						.live_id = 0x8000000180000001,
						.guid = 0xabc + i,
						.gid = {[15] = (uint8_t)i}};
		strcpy(p.offers[i].device, "mlx5_0");
	}
	return p;
}

static void lists_of_ports_survive_and_truncated_ones_are_refused(void **state)
{
	(void)state;
	for (unsigned count = 1; count <= HA_MAX_OFFERS; count++) {
		struct ha_port_offers in = sample_ports(count), out;
		uint8_t bytes[HA_PORT_OFFERS_MAX_BYTES];
		size_t length = ha_port_offers_encode(&in, bytes);

		assert_int_equal(ha_port_offers_decode(bytes, length, &out), HA_WIRE_OK);
		assert_memory_equal(&in, &out, sizeof(in));
		for (size_t cut = 0; cut < length; cut++) {
			uint8_t *copy = malloc(cut ? cut : 1);

			memcpy(copy, bytes, cut);
			assert_int_equal(ha_port_offers_decode(copy, cut, &out), HA_WIRE_SHORT);
			free(copy);
		}
	}
}

static void more_ports_than_we_take_are_the_peers_last_choice(void **state)
{
	struct ha_port_offers in = sample_ports(HA_MAX_OFFERS), out;
	uint8_t bytes[HA_PORT_OFFERS_MAX_BYTES + 3 * HA_OFFER_BYTES];
	size_t length;

	(void)state;
	memset(bytes, 0xff, sizeof(bytes)); /* what is beyond ours is not looked at */
	length = ha_port_offers_encode(&in, bytes);
	memset(bytes + length, 0xff, 3 * HA_OFFER_BYTES);
	bytes[0] = HA_MAX_OFFERS + 3;
	assert_int_equal(ha_port_offers_decode(bytes, sizeof(bytes), &out), HA_WIRE_OK);
	assert_memory_equal(&in, &out, sizeof(in));
	bytes[0] = 0;
	assert_int_equal(ha_port_offers_decode(bytes, sizeof(bytes), &out), HA_WIRE_BAD_VALUE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_kind_survives_with_all_it_says),
	    cmocka_unit_test(every_truncation_is_refused),
	    cmocka_unit_test(every_flipped_bit_is_noticed),
	    cmocka_unit_test(a_newer_message_over_an_older_one_is_noticed_at_every_byte),
	    cmocka_unit_test(bytes_that_a_newer_peer_appends_are_ignored),
	    cmocka_unit_test(fields_outside_their_range_are_refused),
	    cmocka_unit_test(
		what_is_shed_is_of_paths_that_there_were_and_messages_that_are_not_done),
	    cmocka_unit_test(what_is_mended_is_fenced_or_given_up),
	    cmocka_unit_test(lists_of_ports_survive_and_truncated_ones_are_refused),
	    cmocka_unit_test(more_ports_than_we_take_are_the_peers_last_choice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
