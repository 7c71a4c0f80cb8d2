/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that die under a group's all-reduces, in virtual time: the group goes on through another
 * switch, which adds in another order, so that a sum that is computed again has other bits. Each
 * unit must be one order's, at all hosts the same one, and nothing may touch memory that was handed
 * back (epochs.h, group.h).
 */
#include "../seeded_random.h"
#include "../stepped_rules.h"

#include "epochs.h"

#include <stdio.h>
#include <string.h>

static void a_switch_dies_before_any_event(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int variant = 0; variant < 2; variant++) {
		struct group_shape shape = small();
		uint64_t events;

		shape.copies = variant;
		shape.lanes = 2 - variant;
		memset(&plan, 0, sizeof(plan));
		events = events_of_peace(&shape, variant);
		for (uint64_t at = 1; at < events; at++) {
			memset(&plan, 0, sizeof(plan));
			plan.kill_at[0] = at;
			plan.has_one_lane_later = true;
			open_run(&shape, at);
			add_small(variant);
			run_well();
			group_close(&g);
		}
	}
	tell();
	assert_true(seen.epochs && seen.taken && seen.lacked && seen.from_copy && seen.again &&
		    seen.lost_frames && seen.lost_packets);
}

/* While the first death is still being dealt with, or afterwards. */
/* ROOT_RETIRES: a switch in the middle knows what those below it have, and of the others nothing.
 */
static void the_root_of_two_levels_dies_before_any_event(void **state)
{
	struct group_shape shape = small();
	uint64_t events;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	memset(&plan, 0, sizeof(plan));
	plan.has_levels = true;
	shape.hosts = 4;
	shape.switches = 4;
	shape.copies = 2;
	events = events_of_peace(&shape, false);
	for (uint64_t at = 1; at < events; at += 2) {
		memset(&plan, 0, sizeof(plan));
		plan.has_levels = true;
		plan.kill_at[0] = at;
		open_run(&shape, at);
		add_small(false);
		run_well();
		group_close(&g);
	}
	tell();
	assert_true(seen.epochs && seen.taken && seen.lacked && seen.again);
}

static void add_copies(void)
{
	for (unsigned int from = 0; from < g.shape.hosts; from++)
		group_add_copy(&g, 2 * g.shape.unit_bytes + 7, from);
}

/* Below one switch of the first plan nobody contributes; what is computed again is that by all. */
static void who_contributes_nothing_does_so_however_often_it_is_computed(void **state)
{
	struct group_shape shape = small();
	unsigned int epochs = 0;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	shape.hosts = 4;
	shape.switches = 4;
	for (uint64_t at = 1; at == 1 || plan.kills > 0; at += 5) {
		memset(&plan, 0, sizeof(plan));
		plan.has_levels = true;
		plan.kill_at[0] = at;
		open_run(&shape, at);
		add_copies();
		run_well();
		epochs += leader.decision.epoch;
		group_close(&g);
	}
	tell();
	assert_true(epochs > 20 && seen.taken && seen.lacked && seen.again);
}

static void the_next_switch_dies_too(void **state)
{
	const struct group_shape shape = small();
	unsigned int second = 0;
	uint64_t events;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	memset(&plan, 0, sizeof(plan));
	events = events_of_peace(&shape, true);
	for (uint64_t at = events / 4; at < 2 * events; at += 4) {
		memset(&plan, 0, sizeof(plan));
		plan.kill_at[0] = events / 4;
		plan.kill_at[1] = at + 1;
		open_run(&shape, at);
		add_small(true);
		run_well();
		second += plan.kills == 2;
		group_close(&g);
	}
	print_message("%u second deaths; ", second);
	tell();
	assert_true(second > events / 4 && seen.taken && seen.again);
}

static void eight_hosts_lose_their_switch_in_the_middle(void **state)
{
	struct group_shape shape = {.hosts = 8,
				    .switches = 2,
				    .lanes = 2,
				    .window = 4,
				    .copies = 2,
				    .unit_bytes = 1024,
				    .fabric = {.jitter_ns = 5000}};

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int nth = 20; nth <= 260; nth += 40) {
		char rule[100];

		snprintf(rule, sizeof(rule), "kill host=8 op=send nth=%u", nth);
		memset(&plan, 0, sizeof(plan));
		open_run(&shape, nth);
		plan.kill_rule = add_rule(rule);
		for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
			group_add(&g, type, type % HA_REDUCE_OPS, 700, type % 2);
		run_well();
		assert_int_equal(fired(plan.kill_rule), 1);
		assert_int_equal(leader.decision.epoch, 1);
		group_close(&g);
	}
	assert_true(seen.taken && seen.lacked && seen.again);
}

static uint64_t kill_at;
static unsigned int done_before;

static bool is_time_to_die(void)
{
	return sv_stepped_index() >= kill_at;
}

static unsigned int results(void)
{
	unsigned int done = 0;

	for (unsigned int h = 0; h < g.shape.hosts; h++)
		done += g.host[h].done;
	return done;
}

static bool is_there_one_more(void)
{
	return results() > done_before;
}

/* Its process ends: its sockets break at once, and with them all members' edges. */
static uint64_t kill_and_time_the_next_result(uint64_t at)
{
	uint64_t from_ns;

	kill_at = at;
	run_until(is_time_to_die);
	kill_switch();
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		ha_member_cut(g.host[h].member);
	from_ns = sv_stepped_now();
	done_before = results();
	run_until(is_there_one_more);
	return is_there_one_more() ? sv_stepped_now() - from_ns : 0;
}

/* By turns there is a spare switch, and there is none. Nothing else is wrong. */
static void a_hundred_kills_at_random_moments_under_eight_hosts(void **state)
{
	const struct group_shape shape = {.hosts = 8,
					  .switches = 2,
					  .lanes = 1,
					  .window = 4,
					  .copies = 2,
					  .unit_bytes = 1024,
					  .fabric = {.jitter_ns = 5000}};
	uint64_t longest_ns[2] = {0};

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int n = 0; n < 100; n++) {
		uint64_t ns;

		memset(&plan, 0, sizeof(plan));
		plan.hosts_add_from = 1 + n % 2;
		plan.is_quiet = true;
		open_run(&shape, 1 + n);
		assert_int_equal(sv_stepped_fault_remove(plan.losses), 0);
		for (unsigned int op = 0; op < 12; op++)
			group_add(&g, op % HA_REDUCE_TYPES, HA_REDUCE_SUM, 500, op % 2);
		ns = kill_and_time_the_next_result(1 + mix(n) % 600);
		longest_ns[n % 2] = ns > longest_ns[n % 2] ? ns : longest_ns[n % 2];
		run_well();
		group_close(&g);
	}
	print_message("next result after %llu us at most by a spare switch, %llu us by hosts; ",
		      (unsigned long long)longest_ns[1] / 1000,
		      (unsigned long long)longest_ns[0] / 1000);
	tell();
	assert_true(longest_ns[1] <= 600000000 && longest_ns[0] <= 1000000000);
	assert_true(seen.taken && seen.again);
}

/* The other lane's edge of that host, and the switch, carry on. */
static void a_link_of_one_lane_that_is_lost_costs_no_element(void **state)
{
	struct group_shape shape = small();
	unsigned int lost = 0;

	(void)state;
	shape.lanes = 2;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int nth = 1; nth <= 20; nth++) {
		char rule[100];
		int broken;

		memset(&plan, 0, sizeof(plan));
		open_run(&shape, nth);
		snprintf(rule, sizeof(rule), "wc=RETRY_EXC_ERR sent=%u host=%u op=send nth=%u",
			 nth % 2, nth % 3, (nth + 2) / 3);
		broken = add_rule(rule);
		add_small(nth % 2);
		run_well();
		if (fired(broken)) {
			lost++;
			assert_true(leader.decision.epoch >= 1);
			assert_true(sv_stepped_now() < LATE_NS); /* it said so itself */
		}
		group_close(&g);
	}
	print_message("%u links lost; ", lost);
	tell();
	assert_true(lost >= 10 && seen.taken && seen.again);
}

/* Its device answers, and its process does nothing: nobody's edge is cut. */
static void a_switch_that_hangs_is_given_up(void **state)
{
	const struct group_shape shape = small();

	(void)state;
	memset(&plan, 0, sizeof(plan));
	open_run(&shape, 3);
	add_small(true);
	for (unsigned int i = 0; i < 20; i++)
		group_step(&g);
	assert_false(group_is_done(&g));
	g.is_dead[0] = true;
	run_well();
	assert_int_equal(leader.decision.epoch, 1);
	assert_true(sv_stepped_now() >= LATE_NS);
	group_close(&g);
}

static void a_host_that_is_late_is_waited_for(void **state)
{
	const struct group_shape shape = small();

	(void)state;
	memset(&plan, 0, sizeof(plan));
	open_run(&shape, 4);
	add_small(true);
	g.late_ns = 10 * LATE_NS;
	run_well();
	assert_int_equal(leader.decision.epoch, 0);
	assert_true(sv_stepped_now() >= 10 * LATE_NS);
	group_close(&g);
}

/* The clock did not begin with the group. */
static void who_asks_before_he_is_looked_at_is_not_late(void **state)
{
	const struct group_shape shape = small();

	(void)state;
	memset(&plan, 0, sizeof(plan));
	open_run(&shape, 9);
	add_small(false);
	sv_stepped_run(5 * LATE_NS);
	run_well();
	assert_int_equal(leader.decision.epoch, 0);
	group_close(&g);
}

/* FENCED means that nothing can be written any more: a device that does not destroy a queue pair
 * holds everybody up until it does. */
static void nobody_goes_on_before_the_last_edge_is_destroyed(void **state)
{
	struct group_shape shape = small();
	uint64_t died_ns = 0;
	int refusal;

	(void)state;
	memset(&plan, 0, sizeof(plan));
	open_run(&shape, 5);
	add_small(true);
	for (unsigned int i = 0; i < 10; i++)
		group_step(&g);
	refusal = add_rule("errno=EBUSY verb=destroy_qp host=1 count=500");
	plan.kill_at[0] = 1;
	died_ns = sv_stepped_now();
	run_well();
	assert_int_equal(fired(refusal), 500);
	assert_true(sv_stepped_now() - died_ns >= 500ull * TICK_NS);
	group_close(&g);
}

/* In place and without a shadow, an epoch in the middle of a result is the end of it. HOLD waits
 * until there is none, and the group goes on through another switch. */
static void a_hold_lets_nothing_be_damaged(void **state)
{
	struct group_shape shape = small();
	bool is_held = false;

	(void)state;
	for (unsigned int seed = 1; seed <= 20; seed++, is_held = false) {
		memset(&plan, 0, sizeof(plan));
		shape.fabric.seed = seed;
		open_run(&shape, seed);
		g.is_direct = true;
		for (unsigned int i = 0; i < 12; i++) /* enough to be under way all the time */
			group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40, true);
		for (unsigned int i = 0; i < 3 + seed; i++)
			group_step(&g);
		if (seed % 4 == 0) { /* taken back, and once more */
			assert_true(ha_leader_hold(&leader, sv_stepped_now()));
			assert_true(ha_leader_hold_off(&leader));
		}
		is_held = ha_leader_hold(&leader, sv_stepped_now());
		assert_true(is_held);
		assert_false(ha_leader_hold(&leader, sv_stepped_now()));
		run_well();
		assert_int_equal(leader.decision.epoch, 1);
		assert_int_equal(leader.plan, 1);
		group_close(&g);
	}
}

/* Nobody knows what is left of its contribution: all end with the same error, or none does. */
static void a_death_ends_what_has_no_shadow_the_same_way_everywhere(void **state)
{
	struct group_shape shape = small();
	unsigned int damaged = 0, survived = 0, runs = 0;
	uint64_t events;

	(void)state;
	memset(&plan, 0, sizeof(plan));
	events = events_of_peace(&shape, true);
	for (uint64_t at = 1; at < events; at += 2, runs++) {
		memset(&plan, 0, sizeof(plan));
		plan.kill_at[0] = at;
		open_run(&shape, at);
		g.is_direct = true;
		add_small(true);
		run();
		damaged += all_are_over();
		survived += all_have_left() && group_is_done(&g);
		for (unsigned int h = 0; all_are_over() && h < shape.hosts; h++) {
			assert_int_equal(follower[h].verdict.abort.why, HA_INC_ABORT_DAMAGED);
			assert_true(follower[h].verdict.abort.about.unit ==
				    leader.answer.abort.about.unit);
		}
		group_close(&g);
	}
	print_message("%u ended with a unit damaged, %u went on\n", damaged, survived);
	assert_true(damaged && survived && damaged + survived == runs);
}

static unsigned int moments; /* to come, of a group that is elsewhere */

static bool is_the_moment(void)
{
	return leader.way > 0 && leader.state == HA_LEADER_QUIET && moments-- == 0;
}

/* By a false alarm; or as it is asked to, in place and without a shadow, so that an epoch in the
 * middle of a result would be the end. */
static void leave_the_first_switch(bool is_asked, unsigned int i)
{
	g.is_direct = is_asked;
	for (unsigned int op = 0; op < 12; op++)
		group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40, is_asked);
	for (unsigned int step = 0; step < 5; step++)
		group_step(&g);
	if (is_asked)
		assert_true(ha_leader_hold(&leader, sv_stepped_now()));
	else
		ha_member_cut(g.host[i % 3].member);
}

static void go_back_and_end_there(void)
{
	const uint32_t before = leader.decision.epoch;

	assert_true(ha_leader_go_back(&leader, sv_stepped_now()));
	run_well();
	assert_int_equal(leader.decision.epoch, before + 1);
	assert_int_equal(leader.way, 0);
	assert_int_equal(leader.plan, before + 1);
}

/* At each moment after it has left, until all members have. The first switch still has its tree of
 * the first epoch. */
static void a_group_goes_back_to_a_switch_that_it_has_left(void **state)
{
	struct group_shape shape = small();
	unsigned int runs = 0;
	bool is_over = false;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int at = 0; !is_over; at += 5) {
		memset(&plan, 0, sizeof(plan));
		open_run(&shape, 1 + at);
		leave_the_first_switch(at % 2, at);
		moments = at;
		run_until(is_the_moment);
		is_over = all_have_left();
		if (!is_over)
			go_back_and_end_there();
		runs += !is_over;
		group_close(&g);
	}
	print_message("%u moments; ", runs);
	tell();
	assert_true(runs > 50 && seen.lost_frames && seen.lost_packets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_switch_dies_before_any_event),
	    cmocka_unit_test(the_root_of_two_levels_dies_before_any_event),
	    cmocka_unit_test(who_contributes_nothing_does_so_however_often_it_is_computed),
	    cmocka_unit_test(the_next_switch_dies_too),
	    cmocka_unit_test(eight_hosts_lose_their_switch_in_the_middle),
	    cmocka_unit_test(a_hundred_kills_at_random_moments_under_eight_hosts),
	    cmocka_unit_test(a_link_of_one_lane_that_is_lost_costs_no_element),
	    cmocka_unit_test(a_switch_that_hangs_is_given_up),
	    cmocka_unit_test(a_host_that_is_late_is_waited_for),
	    cmocka_unit_test(who_asks_before_he_is_looked_at_is_not_late),
	    cmocka_unit_test(nobody_goes_on_before_the_last_edge_is_destroyed),
	    cmocka_unit_test(a_hold_lets_nothing_be_damaged),
	    cmocka_unit_test(a_group_goes_back_to_a_switch_that_it_has_left),
	    cmocka_unit_test(a_death_ends_what_has_no_shadow_the_same_way_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
