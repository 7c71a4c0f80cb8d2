/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends whose bundles differ: in how many rails they have, in their order, in that one end has
 * none, or in the queue pairs that each rail is to have. What both have carries, each byte arrives
 * once, and what is lost costs what it costs anybody. Two hosts, one thread, virtual time.
 */
#include "unequal.h"

#include "instance/instance.h"

#include <string.h>

struct end {
	int n, devs[4]; /* its rails, by port; 1: that port alone */
};

struct ends {
	struct end send, recv;
	unsigned common; /* rails that carry */
};

static const struct ends unequal[] = {
    {{2, {0, 1}}, {3, {0, 1, 2}}, 2},	 {{3, {0, 1, 2}}, {2, {0, 1}}, 2},
    {{2, {0, 1}}, {1, {0}}, 1},		 {{1, {0}}, {2, {0, 1}}, 1},
    {{4, {0, 1, 2, 3}}, {2, {0, 1}}, 2}, {{2, {0, 1}}, {2, {1, 0}}, 2},
    {{3, {0, 1, 2}}, {3, {2, 0, 1}}, 3},
};

#define CASES (sizeof(unequal) / sizeof(unequal[0]))

/* NCCL's device of an end: that port, or the bundle that it asks for. */
static int device(struct ha_instance *inst, const struct end *end)
{
	int dev = end->devs[0];

	if (end->n > 1)
		assert_int_equal(ha_instance_fuse(inst, end->devs, end->n, &dev), HA_OK);
	return dev;
}

/* All ports in one subnet, so that any may reach any. */
static void connect_ends(struct pair *pair, const struct ends *ends, enum ha_completion_mode mode)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->config.completion = mode;
	pair->fabric.rails = 4;
	pair->fabric.infiniband = true;
	strcpy(pair->config.rails, "nccl");
	pair_open(pair);
	pair->connect_dev = device(pair->inst[0], &ends->send);
	pair->listen_dev = device(pair->inst[1], &ends->recv);
	pair_connect(pair);
}

static void assert_rails_said(int peer, int here)
{
	char text[64];

	snprintf(text, sizeof(text), "a bundle of %d ports at the peer and of %d here", peer, here);
	assert_true(logged(text));
}

static void what_both_ends_have_carries(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++)
		for (unsigned mode = 0; mode < 2; mode++) {
			const struct ends *ends = &unequal[i];
			const bool alone = ends->send.n == 1 || ends->recv.n == 1;
			const bool other_size = !alone && ends->send.n != ends->recv.n;
			struct pair pair;

			connect_ends(&pair, ends, modes[mode]);
			go_on(&pair);
			if (carrying_now(&pair) != ends->common)
				fail_msg("case %zu: %u carry, of %u", i, carrying_now(&pair),
					 ends->common);
			assert_int_equal((pair.send->features & HA_FEATURE_RAILS) != 0, !alone);
			/* Each end says once what both have, where that is not all. */
			assert_int_equal(captured_warnings, alone || other_size ? 2 : 0);
			if (other_size) {
				assert_rails_said(ends->recv.n, ends->send.n);
				assert_rails_said(ends->send.n, ends->recv.n);
			}
			assert_int_equal(pair.recv->count.failovers, 0);
			assert_int_equal(pair.send->count.failovers, 0);
			pair_close(&pair);
		}
}

/* Of either host, each port in turn, with a message under way, and back again. */
static void whatever_is_lost_of_either_each_byte_arrives_once(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++) {
		struct pair pair;

		connect_ends(&pair, &unequal[i], modes[i % 2]);
		go_on(&pair);
		for (unsigned which = 0; which < 8; which++) {
			a_port_is_lost_under_a_message(&pair, which);
			transfer(&pair, 200000, which + 8);
		}
		go_on(&pair);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		pair_close(&pair);
	}
}

/* Each end has another idea of which rails are to carry: those do that both would have, and each
 * end says once what the two are set to. */
static void ends_of_other_modes_lose_no_byte(void **state)
{
	(void)state;
	for (unsigned send = 0; send <= ISLAND; send++)
		for (unsigned recv = 0; recv <= ISLAND; recv++)
			lose_no_byte(send, recv);
}

/* A bundle of two rails at each end, of which the sender asks for some queue pairs and the receiver
 * for others; 0: as without. */
static void connect_qps(struct pair *pair, const uint8_t send[2], const uint8_t recv[2])
{
	bundled_init(pair, 2);
	pair_open(pair);
	memcpy(pair->inst[0]->config.nqps_of_rail, send, 2);
	memcpy(pair->inst[1]->config.nqps_of_rail, recv, 2);
	pair_connect(pair);
	wait_members(pair, 2);
}

/* The sender's path on a rail. */
static const struct ha_path *path_on(const struct ha_comm *comm, unsigned rail)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && comm->paths[p]->port->rail == (int)rail)
			return comm->paths[p];
	fail_msg("no path on rail %u", rail);
	return NULL;
}

/* With 2 queue pairs on one rail and 3 on the other, of 6 messages each carries as many. */
static void queue_pairs_of_each_rail_take_messages_in_turn(void **state)
{
	static const uint8_t nqps[2] = {2, 3};
	uint32_t before[2][3];
	struct pair pair;

	(void)state;
	connect_qps(&pair, nqps, nqps);
	for (unsigned rail = 0; rail < 2; rail++)
		for (unsigned i = 0; i < nqps[rail]; i++)
			before[rail][i] = path_on(pair.send, rail)->qps[i].sq_posted;
	for (uint32_t i = 0; i < 6; i++)
		transfer(&pair, 300000, i);
	for (unsigned rail = 0; rail < 2; rail++)
		for (unsigned i = 0; i < nqps[rail]; i++)
			assert_int_equal(path_on(pair.send, rail)->qps[i].sq_posted -
					     before[rail][i],
					 6 / nqps[rail]);
	pair_close(&pair);
}

/* As the sender wants it, also for the paths that are built later, whatever the receiver would. */
static void the_sender_says_how_many_queue_pairs_each_rail_has(void **state)
{
	static const struct {
		uint8_t send[2], recv[2], have[2];
	} cases[] = {
	    {{2, 3}, {0, 0}, {2, 3}},
	    {{0, 0}, {4, 4}, {1, 1}},
	    {{1, 16}, {16, 1}, {1, 16}},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair pair;

		connect_qps(&pair, cases[i].send, cases[i].recv);
		for (unsigned round = 0; round < 3; round++) {
			for (unsigned rail = 0; rail < 2; rail++) {
				assert_int_equal(path_on(pair.send, rail)->nqps,
						 cases[i].have[rail]);
				assert_int_equal(path_on(pair.recv, rail)->nqps,
						 cases[i].have[rail]);
			}
			sv_stepped_link(0, round % 2, false); /* each rail anew */
			pair_idle(&pair, 300);
			transfer(&pair, 300000, round);
			sv_stepped_link(0, round % 2, true);
			pair_idle(&pair, 3000);
			wait_members(&pair, 2);
		}
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_both_ends_have_carries),
	    cmocka_unit_test(whatever_is_lost_of_either_each_byte_arrives_once),
	    cmocka_unit_test(ends_of_other_modes_lose_no_byte),
	    cmocka_unit_test(queue_pairs_of_each_rail_take_messages_in_turn),
	    cmocka_unit_test(the_sender_says_how_many_queue_pairs_each_rail_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
