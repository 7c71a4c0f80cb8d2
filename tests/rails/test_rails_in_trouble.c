/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rails that are cut without a word, drained by their operator, lost together, shortly after each
 * other, and in turns. Two hosts, one thread, virtual time. An argument: so many turns.
 */
#include "bundled.h"

#include "admin/drain.h"
#include "failover/rails.h"

#include <stdlib.h>
#include <string.h>

#define SIZE ((size_t)300000)

static const enum ha_completion_mode modes[] = {HA_COMPLETION_RC, HA_COMPLETION_E2E};

/* A cut is known so long after it, also where nothing is under way: an interval of heartbeats. */
#define KNOWN_NS (210 * HA_NS_PER_MS)

/* The control rail is left when its sessions are down, and not on a suspicion: an interval, and an
 * inquiry of the heartbeat that had no answer. */
#define LEFT_NS (350 * HA_NS_PER_MS)

static unsigned turns = 24;

/* isolated: a rail reaches the same one of the peer's alone. */
static void carrying_on(struct pair *pair, uint32_t rails, enum ha_completion_mode mode,
			bool isolated)
{
	static const char *const alike[] = {"1,1", "1,1,1"};

	bundled_init(pair, rails);
	pair->fabric.isolated_rails = isolated;
	strcpy(pair->config.rail_share, alike[rails - 2]);
	pair->config.completion = mode;
	pair_open(pair);
	pair_connect(pair);
	wait_members(pair, rails);
}

static void carrying(struct pair *pair, uint32_t rails, enum ha_completion_mode mode)
{
	carrying_on(pair, rails, mode, false);
}

static void assert_no_failover(const struct pair *pair)
{
	assert_int_equal(pair->recv->count.failovers, 0);
	assert_int_equal(pair->send->count.failovers, 0);
	assert_int_equal(pair->recv->failover->epoch, 1);
}

static void assert_arrived(struct pair *pair, const struct in_flight *t)
{
	int got = 0;

	assert_int_equal(finish_within_a_second(pair, t->recv, &got), HA_OK);
	assert_int_equal(finish_within_a_second(pair, t->send, NULL), HA_OK);
	assert_int_equal(got, SIZE);
	assert_true(filled(pair->to.bytes, SIZE, 5));
}

/* 0: there is no path, or a new one. */
static uint32_t posted_on(const struct pair *pair, unsigned p)
{
	const struct ha_path *path = pair->send->paths[p];

	return path ? path->qps[0].sq_posted : 0;
}

/* One message, which is there within 5 ms. */
static void quick(struct pair *pair, size_t size, uint32_t seed)
{
	const uint64_t begun_ns = sv_stepped_now();
	const size_t offset = 1 << 20;
	struct ha_request *recv, *send;
	const int tag = 9;

	fill(pair->from.bytes + offset, size, seed);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	send = post_send(pair, offset, size, tag);
	assert_int_equal(finish_within_a_second(pair, recv, NULL), HA_OK);
	assert_in_range(sv_stepped_now() - begun_ns, 1, 5 * HA_NS_PER_MS);
	assert_true(filled(pair->to.bytes + offset, size, seed));
	assert_int_equal(finish_within_a_second(pair, send, NULL), HA_OK);
}

/* ---- silence --------------------------------------------------------------------------------- */

/*
 * New messages leave it after an interval of heartbeats and 10 ms, wherever in an interval the cut
 * was; what was lost is there again after three and 50 ms. Only that waits.
 */
static void a_rail_that_is_cut_without_a_word_costs_what_was_on_it(void **state)
{
	(void)state;
	for (unsigned at_ms = 0; at_ms < 200; at_ms += 33) {
		uint64_t cut_ns, interval_ns;
		struct in_flight t;
		struct pair pair;
		uint32_t before;
		unsigned p;

		carrying(&pair, 2, HA_COMPLETION_RC);
		pair_idle(&pair, 1000 + at_ms); /* heartbeats are up */
		wait_members(&pair, 2);
		interval_ns = (unsigned)pair.config.heartbeat_ms * HA_NS_PER_MS;
		p = standby_of(pair.send);
		before = posted_on(&pair, p);
		t = pair_start(&pair);
		assert_int_equal(posted_on(&pair, p), before + 1);
		cut_ns = sv_stepped_now();
		sv_stepped_cut(1, true);
		for (unsigned i = 0; i < 2; i++) {
			quick(&pair, 1000, 1); /* over the control rail */
			pair_pass(&pair, (unsigned)pair.config.heartbeat_ms / 2 + 4);
		}
		before = posted_on(&pair, p);
		for (uint32_t i = 0; i < 4; i++)
			quick(&pair, SIZE, i);
		assert_int_equal(posted_on(&pair, p), before);
		assert_arrived(&pair, &t);
		assert_in_range(sv_stepped_now() - cut_ns, interval_ns / 2,
				3 * interval_ns + 50 * HA_NS_PER_MS);
		assert_no_failover(&pair);
		pair_close(&pair);
	}
}

/* Where time goes on also while nothing happens. */
static void assert_arrives(struct pair *pair, const struct in_flight *t)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;
	bool received = false, sent = false;
	int got = 0;

	while (!received || !sent) {
		assert_true(sv_stepped_now() < until_ns);
		if (!received)
			assert_int_equal(ha_test(t->recv, &received, &got), HA_OK);
		if (!sent)
			assert_int_equal(ha_test(t->send, &sent, NULL), HA_OK);
		pair_advance(pair);
	}
	assert_int_equal(got, SIZE);
	assert_true(filled(pair->to.bytes, SIZE, 5));
}

/* As for a connection of one path: whoever waits for what was on it asks at once, at either end. */
static void a_rail_that_is_cut_under_traffic_is_noticed_in_60_ms(void **state)
{
	(void)state;
	for (unsigned at_ms = 0; at_ms < 200; at_ms += 33)
		for (unsigned mode = 0; mode < 2; mode++) {
			struct in_flight t;
			struct pair pair;
			uint64_t cut_ns;

			carrying(&pair, 2, modes[mode]);
			pair_idle(&pair, 1000 + at_ms);
			wait_members(&pair, 2);
			t = pair_start(&pair);
			cut_ns = sv_stepped_now();
			sv_stepped_cut(1, true);
			assert_arrives(&pair, &t);
			assert_in_range(sv_stepped_now() - cut_ns, 30 * HA_NS_PER_MS,
					60 * HA_NS_PER_MS);
			assert_int_equal(carrying_now(&pair), 1); /* nor has it what is new */
			assert_no_failover(&pair);
			pair_close(&pair);
		}
}

/* Messages one behind the other, from so long after the cut on until half a second after it.
 * Returns when the last stripe went out on the rail that was cut, after that. */
static uint64_t last_stripe_ns(struct pair *pair, unsigned begin_ms)
{
	const unsigned p = standby_of(pair->send);
	const uint64_t cut_ns = sv_stepped_now();
	uint64_t last_ns = 0;

	sv_stepped_cut(1, true);
	pair_pass(pair, begin_ms);
	while (sv_stepped_now() - cut_ns < 500 * HA_NS_PER_MS) {
		const uint64_t begun_ns = sv_stepped_now();
		const uint32_t before = posted_on(pair, p);
		struct in_flight t = pair_start(pair);

		if (posted_on(pair, p) != before)
			last_ns = sv_stepped_now() - cut_ns;
		assert_arrives(pair, &t);
		assert_in_range(sv_stepped_now() - begun_ns, 0, 60 * HA_NS_PER_MS);
		pair_pass(pair, 5);
	}
	return last_ns;
}

/*
 * Under traffic the first message that goes there is the last one, and is there again after 60 ms.
 * Where nothing went there before, the first one after a pause may; none does after an interval of
 * heartbeats and 10 ms.
 */
static void no_message_after_the_first_one_goes_over_a_rail_that_was_cut(void **state)
{
	(void)state;
	for (unsigned begin_ms = 0; begin_ms <= 240; begin_ms += 40)
		for (unsigned at_ms = 0; at_ms < 200; at_ms += 66) {
			struct pair pair;

			carrying(&pair, 2, modes[begin_ms / 40 % 2]);
			pair_idle(&pair, 1000 + at_ms);
			wait_members(&pair, 2);
			assert_in_range(last_stripe_ns(&pair, begin_ms), 0, KNOWN_NS);
			assert_no_failover(&pair);
			pair_close(&pair);
		}
}

/* At each moment of an interval, and the rail is back before the next. */
static void a_rail_that_is_cut_while_nothing_is_under_way_is_known_after_an_interval(void **state)
{
	uint64_t most_ns = 0;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (unsigned at_us = 0; at_us < 200000; at_us += 4300) {
		struct in_flight t;
		uint64_t cut_ns;
		uint32_t before;
		unsigned p;

		wait_members(&pair, 2);
		pair_pass(&pair, 400);
		sv_stepped_run(sv_stepped_now() + at_us * HA_NS_PER_US);
		p = standby_of(pair.send);
		before = posted_on(&pair, p);
		cut_ns = sv_stepped_now();
		sv_stepped_cut(1, true);
		while (carrying_now(&pair) == 2) {
			assert_in_range(sv_stepped_now() - cut_ns, 0, KNOWN_NS);
			pair_advance(&pair);
		}
		if (sv_stepped_now() - cut_ns > most_ns)
			most_ns = sv_stepped_now() - cut_ns;
		t = pair_start(&pair);
		assert_int_equal(posted_on(&pair, p), before);
		assert_arrives(&pair, &t);
		sv_stepped_cut(1, false);
	}
	assert_no_failover(&pair);
	pair_close(&pair);
	print_message("known %.1f ms after the cut at most\n", (double)most_ns / HA_NS_PER_MS);
}

static unsigned rail_of(const struct ha_comm *comm, unsigned p)
{
	return (unsigned)comm->paths[p]->port->rail;
}

/* Until both ends have left it, which they do in time. Returns that. */
static uint64_t until_left_ns(struct pair *pair, unsigned p)
{
	const uint64_t cut_ns = sv_stepped_now();

	while (pair->send->active == p || pair->recv->active == p) {
		assert_in_range(sv_stepped_now() - cut_ns, 0, LEFT_NS);
		pair_advance(pair);
	}
	return sv_stepped_now() - cut_ns;
}

/* What begins when that is known does not wait: of the control rail as of another one. */
static void
a_control_rail_that_is_cut_while_nothing_is_under_way_is_left_after_an_interval(void **state)
{
	uint64_t most_ns = 0;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (unsigned at_us = 0; at_us < 200000; at_us += 8600) {
		uint64_t left_ns;
		uint32_t before;
		unsigned p, rail;

		wait_members(&pair, 2);
		pair_pass(&pair, 400);
		sv_stepped_run(sv_stepped_now() + at_us * HA_NS_PER_US);
		p = pair.send->active;
		rail = rail_of(pair.send, p);
		before = posted_on(&pair, p);
		sv_stepped_cut(rail, true);
		left_ns = until_left_ns(&pair, p);
		most_ns = left_ns > most_ns ? left_ns : most_ns;
		quick(&pair, SIZE, at_us);
		quick(&pair, 1000, at_us);
		/* It may be gone by now. */
		assert_true(posted_on(&pair, p) == before || posted_on(&pair, p) == 0);
		assert_int_equal(pair.send->striped.sheds[rail].mended_bytes, 0);
		sv_stepped_cut(rail, false);
	}
	assert_no_failover(&pair);
	pair_close(&pair);
	print_message("left %.1f ms after the cut at most\n", (double)most_ns / HA_NS_PER_MS);
}

/* With a message on it, in each part of an interval: its part comes again, and no more. */
static void of_a_control_rail_that_is_cut_without_a_word_its_part_is_sent_again(void **state)
{
	(void)state;
	for (unsigned at_ms = 0; at_ms < 200; at_ms += 33) {
		struct in_flight t;
		struct pair pair;
		uint64_t left_ns;
		unsigned p;

		carrying(&pair, 2, modes[at_ms / 33 % 2]);
		pair_idle(&pair, 1000 + at_ms);
		wait_members(&pair, 2);
		p = pair.send->active;
		t = pair_start(&pair);
		sv_stepped_cut(rail_of(pair.send, p), true);
		(void)until_left_ns(&pair, p);
		left_ns = sv_stepped_now();
		assert_arrives(&pair, &t);
		assert_in_range(sv_stepped_now() - left_ns, 0, 10 * HA_NS_PER_MS);
		quick(&pair, SIZE, at_ms);
		assert_in_range(pair.send->striped.sheds[0].mended_bytes, 1, SIZE / 2 + 128);
		assert_no_failover(&pair);
		pair_close(&pair);
	}
}

/* ---- a drain --------------------------------------------------------------------------------- */

static void note(void *arg, const struct ha_admin_result *result)
{
	(void)result;
	++*(int *)arg;
}

static void drain(struct pair *pair, int host, const char *order)
{
	struct ha_admin_request request;
	const char *why = "";
	int told = 0;

	assert_true(ha_admin_request_parse(order, strlen(order), &request, &why));
	assert_true(ha_admin_execute(pair->inst[host], &request, note, &told));
	assert_int_equal(told, 1);
}

/* At either end, under load. */
static void a_rail_that_is_drained_leaves_and_nothing_waits_or_comes_again(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		const int host = (int)i % 2;
		struct in_flight t;
		struct pair pair;
		uint32_t before;
		unsigned p;

		carrying(&pair, 2, modes[i / 2 % 2]);
		p = standby_of(pair.send);
		t = pair_start(&pair);
		for (unsigned step = 0; step < 7 * i; step++)
			sv_stepped_step();
		drain(&pair, host, "nccl-ha 1 failover port sim1:1");
		for (uint32_t m = 0; m < 20; m++)
			quick(&pair, SIZE, m);
		assert_arrived(&pair, &t);
		before = posted_on(&pair, p);
		for (uint32_t m = 0; m < 4; m++)
			quick(&pair, SIZE, m);
		assert_int_equal(posted_on(&pair, p), before);
		assert_int_equal(carrying_now(&pair), 1);
		assert_no_failover(&pair);
		for (unsigned rail = 0; rail < 2; rail++)
			assert_int_equal(pair.send->striped.sheds[rail].sheds, 0);
		drain(&pair, host, "nccl-ha 1 failback port sim1:1");
		wait_members(&pair, 2);
		pair_close(&pair);
	}
}

/* ---- more than one --------------------------------------------------------------------------- */

/* Together, and so many microseconds after each other; whichever is first. */
static void both_rails_lost_within_a_millisecond_cost_no_byte(void **state)
{
	static const unsigned apart_us[] = {0, 1, 10, 50, 200, 500, 1000};

	(void)state;
	for (unsigned i = 0; i < 28; i++) {
		const unsigned first = i / 2 % 2;
		struct in_flight t;
		uint64_t lost_ns;
		struct pair pair;

		carrying(&pair, 2, modes[i / 4 % 2]);
		t = pair_start(&pair);
		for (unsigned step = 0; step < i; step++)
			sv_stepped_step();
		lost_ns = sv_stepped_now();
		sv_stepped_link(i % 2, first, false);
		while (sv_stepped_now() < lost_ns + apart_us[i / 4] * 1000ull && pair_step(&pair))
			;
		sv_stepped_link(i / 8 % 2, 1 - first, false);
		pair_idle(&pair, 40);
		sv_stepped_link(i % 2, first, true);
		sv_stepped_link(i / 8 % 2, 1 - first, true);
		assert_arrived(&pair, &t);
		for (uint32_t m = 0; m < 4; m++)
			transfer(&pair, 1 + m * 70000, m);
		pair_close(&pair);
	}
}

/* Each of them twice: as the control rail, and as the other one, which it is by then. */
static void lose_in_turns(bool isolated, unsigned times, bool turns_taken)
{
	struct pair pair;

	carrying_on(&pair, 2, HA_COMPLETION_E2E, isolated);
	if (!turns_taken)
		without_turns(&pair);
	for (unsigned turn = 0; turn < times; turn++) {
		struct in_flight t = pair_start(&pair);

		for (unsigned step = 0; step < turn % 50; step++)
			sv_stepped_step();
		sv_stepped_link(turn / 4 % 2, turn / 2 % 2, false);
		assert_arrived(&pair, &t);
		sv_stepped_link(turn / 4 % 2, turn / 2 % 2, true);
		wait_members(&pair, 2);
	}
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	if (turns_taken)
		assert_no_failover(&pair);
	else
		assert_true(pair.recv->count.failovers > 0);
	assert_true(pair.recv->striped.sheds[0].sheds + pair.recv->striped.sheds[1].sheds > 0);
	pair_close(&pair);
}

static void rails_lost_in_turns_cost_no_byte(void **state)
{
	(void)state;
	lose_in_turns(true, turns, false);
}

/* The same, in the first epoch: each time another one is the control rail. */
static void rails_lost_in_turns_take_turns(void **state)
{
	(void)state;
	lose_in_turns(true, turns, true);
}

/* What is lost of both ends leaves a pair that crosses, over which one path carries alone. */
static void rails_of_one_subnet_carry_together_again_whatever_was_lost_in_turns(void **state)
{
	(void)state;
	lose_in_turns(false, 24, false);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_rail_that_is_cut_without_a_word_costs_what_was_on_it),
	    cmocka_unit_test(a_rail_that_is_cut_under_traffic_is_noticed_in_60_ms),
	    cmocka_unit_test(no_message_after_the_first_one_goes_over_a_rail_that_was_cut),
	    cmocka_unit_test(
		a_rail_that_is_cut_while_nothing_is_under_way_is_known_after_an_interval),
	    cmocka_unit_test(
		a_control_rail_that_is_cut_while_nothing_is_under_way_is_left_after_an_interval),
	    cmocka_unit_test(of_a_control_rail_that_is_cut_without_a_word_its_part_is_sent_again),
	    cmocka_unit_test(a_rail_that_is_drained_leaves_and_nothing_waits_or_comes_again),
	    cmocka_unit_test(both_rails_lost_within_a_millisecond_cost_no_byte),
	    cmocka_unit_test(rails_lost_in_turns_cost_no_byte),
	    cmocka_unit_test(rails_lost_in_turns_take_turns),
	    cmocka_unit_test(rails_of_one_subnet_carry_together_again_whatever_was_lost_in_turns),
	};
	const struct CMUnitTest at_length[] = {
	    cmocka_unit_test(rails_lost_in_turns_cost_no_byte),
	    cmocka_unit_test(rails_lost_in_turns_take_turns),
	};

	if (argc < 2)
		return cmocka_run_group_tests(tests, NULL, NULL);
	turns = (unsigned)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests(at_length, NULL, NULL);
}
