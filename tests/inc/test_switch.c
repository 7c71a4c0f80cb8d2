/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces through switches over real queue pairs, in virtual time: every element of every host
 * is the oracle's, links carry the data once each way, and what cannot be is noticed by the switch.
 */
#include "../stepped_rules.h"

#include "group.h"

#include "../reduce/oracle.h"

#include <stdio.h>
#include <string.h>

#define RATE_MBPS 100000u

static struct group g;

static struct group_shape shape_of(unsigned int hosts)
{
	return (struct group_shape){.hosts = hosts,
				    .switches = 1,
				    .lanes = 1,
				    .window = 4,
				    .copies = 2,
				    .unit_bytes = 1024};
}

static void open_star(const struct group_shape *shape)
{
	group_open(&g, shape);
	group_star(&g, 0, 0);
}

static void eight_hosts_get_the_exact_sum_through_one_switch(void **state)
{
	static const size_t counts[] = {0, 1, 7, 1023};
	const struct group_shape shape = shape_of(8);

	(void)state;
	open_star(&shape);
	for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
			for (unsigned int i = 0; i < 4; i++)
				group_add(&g, type, op, counts[i], (type + op + i) % 2);
	group_run(&g);
	group_close(&g);
}

static void so_do_two_to_eight_over_two_lanes(void **state)
{
	(void)state;
	for (unsigned int hosts = 2; hosts <= 8; hosts++) {
		struct group_shape shape = shape_of(hosts);

		shape.lanes = 2;
		shape.window = 1 + hosts % 4;
		shape.copies = hosts % 3;
		open_star(&shape);
		for (unsigned int i = 0; i < 12; i++)
			group_add(&g, i % 2 ? HA_REDUCE_BF16 : HA_REDUCE_FP32, HA_REDUCE_SUM,
				  1 + i * 331, i % 3 == 0);
		group_run(&g);
		group_close(&g);
	}
}

/* Two switches of four hosts below a third one: the same tree as one switch of eight. */
static void so_they_do_through_switches_below_a_switch(void **state)
{
	struct group_shape shape = shape_of(8);

	(void)state;
	shape.switches = 3;
	group_open(&g, &shape);
	group_two_levels(&g);
	for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
			group_add(&g, type, op, 700, op % 2);
	group_run(&g);
	group_close(&g);
}

/* What a ring sends (2 * 7 / 8 of it over each link) is what there is to gain. */
static void each_host_sends_its_data_once_and_gets_the_result_once(void **state)
{
	struct group_shape shape = shape_of(8);
	const size_t count = 1 << 20;
	const double wanted = 4.0 * (double)count;
	double most_out = 0, most_in = 0, took_ns;
	struct sv_stepped_link_stats link;

	(void)state;
	shape.window = 16;
	shape.unit_bytes = 65536;
	shape.fabric = (struct sv_stepped_opts){.rate_mbps = RATE_MBPS, .burst_bytes = 16384};
	open_star(&shape);
	group_add(&g, HA_REDUCE_INT32, HA_REDUCE_SUM, count, false);
	group_run(&g);
	took_ns = (double)sv_stepped_now();
	for (unsigned int h = 0; h < 8; h++) {
		sv_stepped_get_link_stats(group_switch(&g, 0), 0, h, 0, &link);
		most_in = (double)link.bytes_out > most_in ? (double)link.bytes_out : most_in;
		most_out = (double)link.bytes_in > most_out ? (double)link.bytes_in : most_out;
	}
	print_message("of the data, a host's link carries %.4f out of it and %.4f into it at most; "
		      "%.3f times as long as the data alone\n",
		      most_out / wanted, most_in / wanted, took_ns / (wanted * 8000 / RATE_MBPS));
	assert_true(most_out >= wanted && most_out <= 1.02 * wanted);
	assert_true(most_in >= wanted && most_in <= 1.02 * wanted);
	group_close(&g);
}

/* Steps until the switch is not sound any more. */
static enum ha_tree_fault fault_of_switch(unsigned int *child)
{
	while (ha_tree_fault(g.tree[0][0], child) == HA_TREE_SOUND)
		if (!group_step(&g))
			break;
	return ha_tree_fault(g.tree[0][0], child);
}

/* A host that asks for something else than the others; nobody gets a result. */
static void a_host_that_disagrees_is_named(void **state)
{
	const struct group_shape shape = shape_of(3);
	unsigned int child;
	uint64_t number;

	(void)state;
	open_star(&shape);
	group_add(&g, HA_REDUCE_INT32, HA_REDUCE_SUM, 100, false);
	g.is_asking = false;
	for (unsigned int h = 0; h < 3; h++) {
		const struct ha_all_reduce ask = {
		    .type = HA_REDUCE_INT32,
		    .op = h == 1 ? HA_REDUCE_MAX : HA_REDUCE_SUM,
		    .count = 100,
		    .send = g.op[0].send[h],
		    .recv = g.op[0].recv[h],
		    .send_lkey = {g.host[h].send_mr[0][0]->lkey},
		    .recv_lkey = {g.host[h].recv_mr[0][0]->lkey},
		};

		assert_true(ha_member_all_reduce(g.host[h].member, &ask, &number));
		while (group_step(&g)) /* the first host is what the others are compared with */
			;
	}
	assert_int_equal(fault_of_switch(&child), HA_TREE_DISAGREES);
	assert_int_equal(child, 1);
	for (unsigned int h = 0; h < 3; h++)
		assert_false(ha_member_is_done(g.host[h].member, 1));
	group_close(&g);
}

/* An edge of another epoch's tree, which has the members' cookies no more. */
static void what_is_of_another_epoch_is_not_added(void **state)
{
	const struct group_shape shape = shape_of(2);
	unsigned int child;

	(void)state;
	group_open(&g, &shape);
	group_star(&g, 0, 1); /* the members are in epoch 0 */
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 10, false);
	assert_int_equal(fault_of_switch(&child), HA_TREE_HEADER);
	assert_false(group_is_done(&g));
	group_close(&g);
}

/* Reordered, doubled and lost packets are the queue pairs' business; the rules act. */
static void lost_and_doubled_packets_change_no_element(void **state)
{
	struct group_shape shape = shape_of(4);
	char error[200];
	uint64_t matched, dropped = 0, doubled = 0;
	int drop, dup;

	(void)state;
	shape.fabric.seed = 7;
	open_star(&shape);
	drop = sv_stepped_fault_add("drop prob=0.02", error, sizeof(error));
	dup = sv_stepped_fault_add("dup prob=0.02", error, sizeof(error));
	assert_true(drop >= 0 && dup >= 0);
	for (unsigned int i = 0; i < 20; i++)
		group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 400 + 97 * i, i % 2);
	group_run(&g);
	assert_true(sv_stepped_fault_stats(drop, &matched, &dropped) && dropped > 0);
	assert_true(sv_stepped_fault_stats(dup, &matched, &doubled) && doubled > 0);
	sv_stepped_fault_remove(-1);
	group_close(&g);
}

/* Of all results, in the order of operations. */
static uint64_t digest(void)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (unsigned int n = 0; n < g.ops; n++)
		for (uint64_t i = 0; i < g.op[n].cut.bytes; i++)
			hash = (hash ^ g.op[n].result[i]) * 0x100000001b3;
	return hash;
}

static uint64_t digest_of(uint64_t seed, uint64_t *fired_times, uint64_t *took_ns)
{
	struct group_shape shape = shape_of(5);
	uint64_t result;
	int drop;

	shape.unit_bytes = 64;
	shape.fabric.seed = seed;
	shape.fabric.jitter_ns = 5000;
	open_star(&shape);
	g.turns = seed;
	drop = add_rule("drop prob=0.05");
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40, false);
	group_add(&g, HA_REDUCE_BF16, HA_REDUCE_PROD, 50, true);
	group_add(&g, HA_REDUCE_FP64, HA_REDUCE_SUM, 20, false);
	group_run(&g);
	*fired_times += fired(drop);
	*took_ns = sv_stepped_now();
	result = digest();
	sv_stepped_fault_remove(-1);
	group_close(&g);
	return result;
}

/* Who comes first, what is late and what is lost: the order of additions is the plan's. */
static void whatever_comes_first_the_bits_are_the_same(void **state)
{
	uint64_t lost = 0, took_ns, first_ns, others = 0;
	const uint64_t wanted = digest_of(1, &lost, &first_ns);

	(void)state;
	for (uint64_t seed = 2; seed <= 1000; seed++) {
		assert_true(digest_of(seed, &lost, &took_ns) == wanted);
		others += took_ns != first_ns;
	}
	print_message("1000 seeds, %llu of them with another time than the first, %llu packets "
		      "lost: digest %016llx\n",
		      (unsigned long long)others, (unsigned long long)lost,
		      (unsigned long long)wanted);
	assert_true(others > 900 && lost > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(eight_hosts_get_the_exact_sum_through_one_switch),
	    cmocka_unit_test(so_do_two_to_eight_over_two_lanes),
	    cmocka_unit_test(so_they_do_through_switches_below_a_switch),
	    cmocka_unit_test(each_host_sends_its_data_once_and_gets_the_result_once),
	    cmocka_unit_test(a_host_that_disagrees_is_named),
	    cmocka_unit_test(what_is_of_another_epoch_is_not_added),
	    cmocka_unit_test(lost_and_doubled_packets_change_no_element),
	    cmocka_unit_test(whatever_comes_first_the_bits_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
