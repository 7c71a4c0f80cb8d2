/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends whose bundles differ: in how many rails they have, in their order, or in that one end
 * has none. What both have carries, each byte arrives once, and what is lost costs what it costs
 * anybody. Two hosts, one thread, virtual time.
 */
#include "bundled.h"

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

static const enum ha_completion_mode modes[] = {HA_COMPLETION_RC, HA_COMPLETION_E2E};

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

/* Long enough for whatever is to carry. */
static void go_on(struct pair *pair)
{
	for (uint32_t i = 0; i < 40; i++) {
		transfer(pair, i % 4 == 3 ? 1000 : 300000, i);
		pair_idle(pair, 20);
	}
}

static void what_both_ends_have_carries(void **state)
{
	(void)state;
	for (size_t i = 0; i < CASES; i++)
		for (unsigned mode = 0; mode < 2; mode++) {
			const struct ends *ends = &unequal[i];
			const bool alone = ends->send.n == 1 || ends->recv.n == 1;
			struct pair pair;

			connect_ends(&pair, ends, modes[mode]);
			go_on(&pair);
			if (carrying_now(&pair) != ends->common)
				fail_msg("case %zu: %u carry, of %u", i, carrying_now(&pair),
					 ends->common);
			assert_int_equal((pair.send->features & HA_FEATURE_RAILS) != 0, !alone);
			/* Each end says once what both have, where that is not all. */
			assert_int_equal(captured_warnings, alone ? 2 : 0);
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
			struct in_flight t = pair_start(&pair);
			int got = 0;

			for (unsigned steps = 0; steps < 3 + 2 * which; steps++)
				sv_stepped_step();
			sv_stepped_link(which % 2, which / 2, false);
			assert_int_equal(finish_within_a_second(&pair, t.recv, &got), HA_OK);
			assert_int_equal(finish_within_a_second(&pair, t.send, NULL), HA_OK);
			assert_int_equal(got, 300000);
			assert_true(filled(pair.to.bytes, 300000, 5));
			transfer(&pair, 200000, which);
			sv_stepped_link(which % 2, which / 2, true);
			pair_idle(&pair, 3000);
			transfer(&pair, 200000, which + 8);
		}
		go_on(&pair);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_both_ends_have_carries),
	    cmocka_unit_test(whatever_is_lost_of_either_each_byte_arrives_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
