/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs to use a pair of ports: which comes before which, and which cannot be. */
#include "../cmocka_all.h"

#include "fake_comm.h"

#include "failover/port_pair.h"

#define OTHER_SUBNET 100
#define DRAINED	     10000000

static int ports_on_subnets_of_their_own(void **state)
{
	(void)state;
	fake_comm_init();
	return 0;
}

static uint32_t cost(unsigned port, unsigned peer_port)
{
	return ha_pair_cost(&fake.comm, (struct ha_pair){(uint8_t)port, (uint8_t)peer_port});
}

static void set_gids(unsigned port, const union ibv_gid *ours, const union ibv_gid *theirs)
{
	fake.ports[port].gid = *ours;
	memcpy(fake.failover.peer_ports.offers[port].gid, theirs->raw, sizeof(theirs->raw));
}

static void set_link_layers(unsigned port, uint8_t ours, uint8_t theirs)
{
	fake.ports[port].link_layer = ours;
	fake.failover.peer_ports.offers[port].link_layer = theirs;
}

/* ---- what a pair costs ----------------------------------------------------------------------- */

static void the_pair_that_was_asked_for_costs_nothing(void **state)
{
	(void)state;
	assert_int_equal(ha_pair_preferred.port, 0);
	assert_int_equal(ha_pair_preferred.peer_port, 0);
	assert_int_equal(cost(0, 0), 0);
}

static void the_ranks_of_both_ports_add_up(void **state)
{
	const union ibv_gid ours = fake_gid(7, 0), theirs = fake_gid(7, 1);

	(void)state;
	for (unsigned i = 0; i < FAKE_PORTS; i++)
		set_gids(i, &ours, &theirs);
	for (unsigned i = 0; i < FAKE_PORTS; i++)
		for (unsigned j = 0; j < FAKE_PORTS; j++)
			assert_int_equal(cost(i, j), i + j);
}

static void what_may_be_on_another_subnet_comes_after_all_that_are_on_one(void **state)
{
	const uint32_t dearest_of_ranks = 2 * (HA_MAX_OFFERS - 1);

	(void)state;
	for (unsigned i = 0; i < FAKE_PORTS; i++)
		for (unsigned j = 0; j < FAKE_PORTS; j++)
			assert_int_equal(cost(i, j), i + j + (i == j ? 0 : OTHER_SUBNET));
	assert_true(cost(0, 1) > dearest_of_ranks);
}

static void infiniband_tells_subnets_by_their_prefix(void **state)
{
	union ibv_gid ours = {.raw = {0xfe, 0x80}}, theirs = ours;

	(void)state;
	ours.raw[15] = 1;
	theirs.raw[15] = 2;
	set_link_layers(1, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_INFINIBAND);
	set_gids(1, &ours, &theirs);
	assert_int_equal(cost(1, 1), 2);
	theirs.raw[7] = 1;
	set_gids(1, &ours, &theirs);
	assert_int_equal(cost(1, 1), 2 + OTHER_SUBNET);
}

static void the_address_is_the_one_of_now(void **state)
{
	const union ibv_gid moved = fake_gid(9, 0);

	(void)state;
	assert_int_equal(cost(1, 1), 2);
	fake.ports[1].gid = moved;
	assert_int_equal(cost(1, 1), 2 + OTHER_SUBNET);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static void a_port_that_is_down_at_either_end_has_no_pair(void **state)
{
	(void)state;
	fake_set_link(1, false);
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
	assert_int_equal(cost(1, 0), HA_PAIR_NEVER);
	assert_int_equal(cost(0, 1), 1 + OTHER_SUBNET); /* the peer's port 1 is another one */
	fake_set_link(1, true);
	fake_set_peer_link(2, false);
	assert_int_equal(cost(2, 2), HA_PAIR_NEVER);
	assert_int_equal(cost(0, 2), HA_PAIR_NEVER);
	assert_int_equal(cost(1, 1), 2);
	assert_int_equal(cost(3, 3), 6);
	/* A port that is up, of a device that is dead. */
	atomic_store(&fake.nics[3].fatal, true);
	assert_int_equal(cost(3, 3), HA_PAIR_NEVER);
	assert_int_equal(cost(0, 0), 0);
}

/* Its NIC refused memory of this connection, or does not know the kind. */
static void a_port_whose_nic_cannot_take_the_memory_has_no_pair(void **state)
{
	(void)state;
	for (int i = 0; i < FAKE_PORTS; i++) {
		fake.nics[i].index = i;
		fake.nics[i].dmabuf = i != 2;
	}
	fake.failover.refusing = 1u << 1;
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
	assert_int_equal(cost(2, 2), 4);
	fake.comm.memory.has_dmabufs = true;
	assert_int_equal(cost(2, 2), HA_PAIR_NEVER);
	assert_int_equal(cost(3, 3), 6);
	fake.failover.refusing = 0;
	assert_int_equal(cost(1, 1), 2);
}

static void no_packet_gets_from_one_link_layer_to_another(void **state)
{
	(void)state;
	set_link_layers(1, IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND);
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
	set_link_layers(1, IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET);
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
}

static void no_packet_gets_from_ipv4_to_ipv6(void **state)
{
	const union ibv_gid ipv4 = fake_gid(1, 0), ipv6 = {.raw = {0x20, 1, 0xd, 0xb8, [15] = 1}};

	(void)state;
	set_gids(1, &ipv4, &ipv6);
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
	set_gids(1, &ipv6, &ipv4);
	assert_int_equal(cost(1, 1), HA_PAIR_NEVER);
	set_gids(1, &ipv6, &ipv6);
	assert_int_equal(cost(1, 1), 2);
}

/* ---- what the operator wants left alone ------------------------------------------------------ */

static void a_drained_port_is_the_last_resort(void **state)
{
	const struct ha_pair pair = {1, 2};

	(void)state;
	assert_int_equal(ha_pair_drained(&fake.comm, pair), 0);
	fake_set_drained(1, true);
	assert_int_equal(ha_pair_drained(&fake.comm, pair), 1);
	assert_int_equal(cost(1, 2), 3 + OTHER_SUBNET + DRAINED);
	fake_set_peer_drained(2, true);
	assert_int_equal(ha_pair_drained(&fake.comm, pair), 2);
	assert_int_equal(cost(1, 2), 3 + OTHER_SUBNET + 2 * DRAINED);
	fake_set_drained(1, false);
	assert_int_equal(ha_pair_drained(&fake.comm, pair), 1);
	/* The same number at the other end is another port. */
	assert_int_equal(cost(2, 2), 4 + DRAINED);
	assert_int_equal(cost(2, 3), 5 + OTHER_SUBNET);
	assert_int_equal(cost(1, 1), 2);
	/* It is one, and one that is down is none. */
	assert_true(cost(2, 2) < HA_PAIR_NEVER);
	fake_set_peer_link(2, false);
	assert_int_equal(cost(2, 2), HA_PAIR_NEVER);
}

static void nothing_else_makes_a_pair_as_dear_as_a_drained_port(void **state)
{
	const uint32_t dearest = 2 * (HA_MAX_OFFERS - 1) + OTHER_SUBNET;

	(void)state;
	assert_true(HA_PAIR_SHARED_COST > dearest);
	assert_true(HA_PAIR_DRAINED_COST > dearest + 2 * HA_PAIR_SHARED_COST);
	assert_true(2 * (uint64_t)HA_PAIR_DRAINED_COST + HA_PAIR_DRAINED_COST < HA_PAIR_NEVER);
}

/* ---- what pairs have in common --------------------------------------------------------------- */

static void pairs_share_the_ports_that_are_the_same_at_the_same_end(void **state)
{
	(void)state;
	assert_int_equal(ha_pair_shared((struct ha_pair){1, 2}, (struct ha_pair){1, 2}), 2);
	assert_int_equal(ha_pair_shared((struct ha_pair){1, 2}, (struct ha_pair){1, 3}), 1);
	assert_int_equal(ha_pair_shared((struct ha_pair){1, 2}, (struct ha_pair){0, 2}), 1);
	assert_int_equal(ha_pair_shared((struct ha_pair){1, 2}, (struct ha_pair){0, 3}), 0);
	assert_int_equal(ha_pair_shared((struct ha_pair){1, 2}, (struct ha_pair){2, 1}), 0);
}

static void a_slot_names_the_pair_of_its_path(void **state)
{
	struct ha_pair pair;

	(void)state;
	fake_open_path(1, 3, 2);
	pair = ha_pair_of(&fake.failover.slots[1]);
	assert_int_equal(pair.port, 3);
	assert_int_equal(pair.peer_port, 2);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup(NAME, ports_on_subnets_of_their_own)
	const struct CMUnitTest tests[] = {
	    TEST(the_pair_that_was_asked_for_costs_nothing),
	    TEST(the_ranks_of_both_ports_add_up),
	    TEST(what_may_be_on_another_subnet_comes_after_all_that_are_on_one),
	    TEST(infiniband_tells_subnets_by_their_prefix),
	    TEST(the_address_is_the_one_of_now),
	    TEST(a_port_that_is_down_at_either_end_has_no_pair),
	    TEST(a_port_whose_nic_cannot_take_the_memory_has_no_pair),
	    TEST(no_packet_gets_from_one_link_layer_to_another),
	    TEST(no_packet_gets_from_ipv4_to_ipv6),
	    TEST(a_drained_port_is_the_last_resort),
	    TEST(nothing_else_makes_a_pair_as_dear_as_a_drained_port),
	    TEST(pairs_share_the_ports_that_are_the_same_at_the_same_end),
	    TEST(a_slot_names_the_pair_of_its_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
