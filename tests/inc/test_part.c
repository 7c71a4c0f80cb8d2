/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of plans and joins as bytes: what is said is heard, and what nobody could have said is not.
 */
#include "../unit/cmocka_all.h"

#include "inc/join.h"
#include "inc/part.h"

#include <stdlib.h>
#include <string.h>

#define PLACES 3
#define BYTES  (HA_PART_HEAD_BYTES + PLACES * HA_PART_PLACE_BYTES)

static struct ha_part_place places[PLACES];
static struct ha_part part;
static uint8_t bytes[BYTES];

static union ha_sockaddr v4(uint32_t address, uint16_t port)
{
	return (union ha_sockaddr){.in = {.sin_family = AF_INET,
					  .sin_port = htons(port),
					  .sin_addr.s_addr = htonl(address)}};
}

/* A member below an inner switch below the root; the inner one's parent has an IPv6 address. */
static int setup(void **state)
{
	union ha_sockaddr v6 = {.in6 = {.sin6_family = AF_INET6, .sin6_port = htons(77)}};

	(void)state;
	v6.in6.sin6_addr.s6_addr[15] = 1;
	places[0] = (struct ha_part_place){
	    .tree = 2, .node = 1, .parent = 3, .place = 1, .at = v4(0x7f000001, 1)};
	places[1] = (struct ha_part_place){
	    .tree = 1, .node = 3, .children = 2, .parent = 4, .place = 0, .at = v6};
	places[2] = (struct ha_part_place){
	    .tree = 0, .inner_below = true, .node = 4, .children = 32, .parent = HA_PLAN_NONE};
	part = (struct ha_part){.group = 0x0123456789abcdefull,
				.unit_bytes = 65536,
				.window = 16,
				.members = 2,
				.lanes = 2,
				.spares = 1,
				.leader = v4(0x0a000001, 9),
				.n = PLACES,
				.places = places};
	ha_part_encode(&part, bytes);
	return 0;
}

static bool is_heard(void)
{
	struct ha_part out;
	const bool heard = ha_part_decode(bytes, sizeof(bytes), &out);

	if (heard)
		ha_part_free(&out);
	return heard;
}

/* As it is encoded with this change. */
static bool is_heard_with(void (*change)(void))
{
	setup(NULL);
	change();
	ha_part_encode(&part, bytes);
	return is_heard();
}

static void what_is_said_is_heard(void **state)
{
	struct ha_part out;

	(void)state;
	assert_int_equal(ha_part_bytes(&part), BYTES);
	assert_true(ha_part_decode(bytes, sizeof(bytes), &out));
	assert_int_equal(out.n, PLACES);
	assert_true(out.group == part.group && out.unit_bytes == 65536 && out.window == 16);
	assert_true(out.members == 2 && out.lanes == 2 && out.spares == 1);
	assert_memory_equal(&out.leader, &part.leader, sizeof(out.leader));
	for (unsigned i = 0; i < PLACES; i++) {
		const struct ha_part_place *found =
		    ha_part_find(&out, places[i].tree, places[i].node);

		assert_non_null(found);
		assert_true(found->inner_below == places[i].inner_below);
		assert_int_equal(found->children, places[i].children);
		assert_int_equal(found->parent, places[i].parent);
		assert_int_equal(found->place, places[i].place);
		assert_memory_equal(&found->at, &places[i].at, sizeof(found->at));
	}
	assert_null(ha_part_find(&out, 0, 1));
	ha_part_free(&out);
}

static void no_bit_of_a_part_can_be_another_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bytes) * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
		assert_false(is_heard());
		bytes[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	assert_true(is_heard());
	for (size_t length = 0; length < sizeof(bytes); length++) {
		struct ha_part out;

		assert_false(ha_part_decode(bytes, length, &out));
	}
}

static void no_members(void)
{
	part.members = 0;
}
static void no_lane(void)
{
	part.lanes = 0;
}
static void too_many_trees(void)
{
	part.spares = 7;
}
static void no_window(void)
{
	part.window = 0;
}
static void a_wide_window(void)
{
	part.window = HA_PART_WINDOW + 1;
}
static void an_odd_unit(void)
{
	part.unit_bytes = 65;
}
static void a_small_unit(void)
{
	part.unit_bytes = 0;
}
static void a_large_unit(void)
{
	part.unit_bytes = HA_PART_UNIT_BYTES + 64;
}
static void a_tree_too_many(void)
{
	places[0].tree = 3;
}
static void a_node_too_many(void)
{
	places[1].node = HA_PLAN_NODES;
}
static void a_wide_switch(void)
{
	places[2].children = HA_PLAN_CHILDREN + 1;
}
static void a_place_too_many(void)
{
	places[0].place = HA_PLAN_CHILDREN;
}
static void a_member_with_children(void)
{
	places[0].children = 1;
}
static void a_switch_without(void)
{
	places[1].children = 0;
}
static void a_member_without_a_switch(void)
{
	places[0].parent = HA_PLAN_NONE;
}
static void a_parent_nowhere(void)
{
	places[1].at.sa.sa_family = AF_UNSPEC;
}
static void a_root_with_an_address(void)
{
	places[2].at = v4(1, 1);
}
static void an_address_without_a_port(void)
{
	places[0].at.in.sin_port = 0;
}

static void what_cannot_be_is_not_heard(void **state)
{
	void (*const changes[])(void) = {
	    no_members,
	    no_lane,
	    too_many_trees,
	    no_window,
	    a_wide_window,
	    an_odd_unit,
	    a_small_unit,
	    a_large_unit,
	    a_tree_too_many,
	    a_node_too_many,
	    a_wide_switch,
	    a_place_too_many,
	    a_member_with_children,
	    a_switch_without,
	    a_member_without_a_switch,
	    a_parent_nowhere,
	    a_root_with_an_address,
	    an_address_without_a_port,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		if (is_heard_with(changes[i]))
			fail_msg("change %zu is heard", i);
}

static void a_join_is_heard_as_it_is_said(void **state)
{
	const struct ha_join said = {.group = 0xfedcba9876543210ull,
				     .epoch = 7,
				     .node = 4,
				     .place = 31,
				     .tree = 2,
				     .edge = {.qpn = 0xabcdef,
					      .psn = 5,
					      .gid = {1, 2},
					      .lid = 3,
					      .mtu = 5,
					      .word_rkey = 6,
					      .word = 1ull << 63}};
	uint8_t out[HA_JOIN_BYTES], again[HA_JOIN_BYTES];
	struct ha_join heard;

	(void)state;
	ha_join_encode(&said, out);
	assert_true(ha_join_decode(out, sizeof(out), &heard));
	ha_join_encode(&heard, again);
	assert_memory_equal(out, again, sizeof(out));
	assert_true(heard.epoch == 7 && heard.place == 31 && heard.edge.word == 1ull << 63);
	assert_false(ha_join_decode(out, sizeof(out) - 1, &heard));
	for (unsigned i = 17; i < 24; i++) { /* zero */
		out[i] = 1;
		assert_false(ha_join_decode(out, sizeof(out), &heard));
		out[i] = 0;
	}
	for (unsigned mtu = 0; mtu < 256; mtu++) {
		out[24 + 26] = (uint8_t)mtu;
		assert_true(ha_join_decode(out, sizeof(out), &heard) == (mtu >= 1 && mtu <= 5));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(what_is_said_is_heard, setup),
	    cmocka_unit_test_setup(no_bit_of_a_part_can_be_another_one, setup),
	    cmocka_unit_test(what_cannot_be_is_not_heard),
	    cmocka_unit_test(a_join_is_heard_as_it_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
