/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts whose last switch dies in the middle add for each other (inc/verbs/mesh.h), in virtual
 * time: each unit is what one order of addition gives, theirs or the switch's, at all hosts the
 * same one, and nothing touches memory that was handed back (epochs.h, group.h).
 */
#include "../stepped_rules.h"

#include "epochs.h"

#include <stdio.h>
#include <string.h>

/* The first switch is the only one. */
static void begin(const struct group_shape *shape, uint64_t seed)
{
	memset(&plan, 0, sizeof(plan));
	plan.hosts_add_from = 1;
	plan.has_one_lane_later = true;
	open_run(shape, seed);
}

static struct group_shape one_switch(void)
{
	struct group_shape shape = small();

	shape.switches = 1;
	return shape;
}

static void hosts_go_on_when_their_only_switch_dies_before_any_event(void **state)
{
	unsigned int went_on = 0;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int variant = 0; variant < 4; variant++) {
		struct group_shape shape = one_switch();
		uint64_t events;

		shape.copies = variant % 2;
		shape.lanes = 2 - variant % 2;
		shape.window =
		    variant < 2 ? 2 : 5; /* smaller and larger than the number of hosts */
		memset(&plan, 0, sizeof(plan));
		events = events_of_peace(&shape, variant % 2);
		for (uint64_t at = 1; at < events; at++) {
			begin(&shape, at);
			plan.kill_at[0] = at;
			add_small(variant % 2);
			run_well();
			went_on += group_epochs_of_hosts(&g) > 0;
			group_close(&g);
		}
	}
	print_message("%u runs in which hosts added; ", went_on);
	tell();
	assert_true(went_on > 100 && seen.taken && seen.lacked && seen.from_copy && seen.again &&
		    seen.lost_frames && seen.lost_packets);
}

/* From the first unit on, so all of it is what hosts have added, in their order. */
static void begin_without_a_switch(const struct group_shape *shape, uint64_t seed)
{
	begin(shape, seed);
	plan.kill_at[0] = 1;
}

static void eight_hosts_add_every_type(void **state)
{
	const struct group_shape shape = {.hosts = 8,
					  .switches = 1,
					  .lanes = 2,
					  .window = 16,
					  .copies = 2,
					  .unit_bytes = 1024,
					  .fabric = {.jitter_ns = 5000}};

	(void)state;
	for (unsigned int op = 0; op < HA_REDUCE_OPS; op++) {
		begin_without_a_switch(&shape, 1 + op);
		for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
			group_add(&g, type, op, type == 3 ? 1 : 3000, type % 2);
		run_well();
		assert_int_equal(group_epochs_of_hosts(&g), g.epochs - 1);
		group_close(&g);
	}
}

static void a_group_of_one_host_adds_alone(void **state)
{
	struct group_shape shape = one_switch();

	(void)state;
	shape.hosts = 1;
	begin_without_a_switch(&shape, 1);
	add_small(false);
	run_well();
	assert_int_equal(group_epochs_of_hosts(&g), 1);
	group_close(&g);
}

static bool is_switch_dead(void)
{
	return g.is_dead[0];
}

static bool is_mesh_on(void)
{
	return group_epochs_of_hosts(&g) > 0;
}

/* What a rule does once a group is so far; returns how often it did. */
static uint64_t run_with(const char *text, bool (*is_so_far)(void), uint64_t seed)
{
	const struct group_shape shape = one_switch();
	uint64_t times;
	int rule;

	begin(&shape, seed);
	plan.kill_at[0] = seed % 5 ? 1 : 30;
	add_small(seed % 2);
	run_until(is_so_far);
	rule = add_rule(text);
	run_well();
	times = fired(rule);
	group_close(&g);
	return times;
}

/* Also one that a host has to itself; also when the other end has what was sent. */
static void an_edge_between_hosts_that_fails_costs_no_element(void **state)
{
	unsigned int failures = 0;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int nth = 1; nth <= 45; nth++) {
		char rule[100];

		snprintf(rule, sizeof(rule), "wc=RETRY_EXC_ERR sent=%u host=%u op=send nth=%u",
			 nth % 2, nth % 3, (nth + 2) / 3);
		failures += run_with(rule, is_mesh_on, nth) > 0;
	}
	print_message("%u failures; ", failures);
	tell();
	assert_true(failures >= 20 && seen.epochs > 45 + failures / 2 && seen.taken && seen.again);
}

static void a_device_that_refuses_is_asked_again_in_the_next_epoch(void **state)
{
	static const char *const verbs[] = {"create_qp", "reg_mr",     "create_cq",  "rtr",
					    "rts",	 "destroy_qp", "destroy_cq", "dereg_mr"};

	(void)state;
	for (unsigned int i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		/* What a host destroys before the end is one edge, its switch's. */
		const unsigned int most = i < 5 ? 4 : 1;

		for (unsigned int run = 0; run < 3 * most; run++) {
			char rule[100];

			snprintf(rule, sizeof(rule), "errno=EAGAIN verb=%s host=%u nth=%u",
				 verbs[i], run % 3, 1 + run / 3);
			if (run_with(rule, is_switch_dead, run) != 1)
				fail_msg("%s: did nothing", rule);
		}
	}
}

/* ---- how two members link ------------------------------------------------------------------- */

static struct ha_inc_frame heard[2]; /* the last one that each was told */
static unsigned int told[2];

static void tell_other(void *arg, const struct ha_inc_frame *frame)
{
	(void)arg;
	heard[frame->link.to] = *frame;
	told[frame->link.to]++;
}

/* Two members that have been fenced, and say LINK to each other by hand. */
static void begin_to_link(void)
{
	struct group_shape shape = one_switch();

	shape.hosts = 2;
	group_open(&g, &shape);
	memset(told, 0, sizeof(told));
	for (unsigned int h = 0; h < 2; h++) {
		const struct ha_mesh_shape mesh = {
		    (uint16_t)h, 2, GROUP_ID, shape.window, shape.unit_bytes, 1000000000};

		assert_true(ha_member_fence(g.host[h].member, 1));
		ha_mesh_init(&g.mesh[h], &mesh, g.host[h].member, tell_other, NULL);
		ha_mesh_join(&g.mesh[h], 1, 0);
	}
	assert_true(told[0] == 1 && told[1] == 1);
}

static void a_member_is_linked_when_both_ends_know(void **state)
{
	(void)state;
	begin_to_link();
	ha_mesh_hear(&g.mesh[1], &heard[1]);
	assert_int_equal(g.mesh[1].state,
			 HA_MESH_LINKING); /* it has not heard that 0 has its ends */
	assert_true(told[0] == 2 && heard[0].link.state == HA_INC_LINK_HAS);
	ha_mesh_hear(&g.mesh[0], &heard[0]);
	assert_int_equal(g.mesh[0].state, HA_MESH_LINKED);
	assert_true(told[1] == 2 && heard[1].link.state == HA_INC_LINK_KNOWS);
	ha_mesh_hear(&g.mesh[1], &heard[1]);
	assert_int_equal(g.mesh[1].state, HA_MESH_LINKED);
	assert_int_equal(told[0], 2); /* 0 has nothing more to hear */
	group_close(&g);
}

/* The last answer of who is linked was lost. */
static void whoever_asks_again_is_answered(void **state)
{
	(void)state;
	begin_to_link();
	ha_mesh_hear(&g.mesh[1], &heard[1]);
	ha_mesh_hear(&g.mesh[0], &heard[0]);
	ha_mesh_tick(&g.mesh[1], 9999999);
	assert_int_equal(told[0], 2); /* not yet */
	ha_mesh_tick(&g.mesh[1], 10000000);
	ha_mesh_tick(&g.mesh[0], 10000000);
	assert_true(told[0] == 3 && told[1] == 2);
	ha_mesh_hear(&g.mesh[0], &heard[0]);
	assert_int_equal(told[1], 3);
	ha_mesh_hear(&g.mesh[1], &heard[1]);
	assert_int_equal(g.mesh[1].state, HA_MESH_LINKED);
	group_close(&g);
}

static void what_is_not_of_this_epoch_group_and_member_links_nobody(void **state)
{
	(void)state;
	begin_to_link();
	for (unsigned int i = 0; i < 6; i++) {
		struct ha_inc_frame frame = heard[1];

		frame.epoch += i == 0;
		frame.epoch -= i == 1;
		frame.group += i == 2;
		frame.link.to = i == 3 ? 0 : 1;
		frame.member = i == 4 ? 1 : (i == 5 ? 2 : 0);
		ha_mesh_hear(&g.mesh[1], &frame);
		assert_int_equal(g.mesh[1].linking[0], HA_INC_LINK_ALONE);
		assert_int_equal(told[0], 1);
	}
	group_close(&g);
}

static void a_member_that_nobody_answers_is_cut_in_time(void **state)
{
	unsigned int before;

	(void)state;
	begin_to_link();
	ha_mesh_tick(&g.mesh[1], 999999999);
	assert_false(ha_member_is_cut(g.host[1].member));
	ha_mesh_tick(&g.mesh[1], 1000000000);
	assert_true(ha_member_is_cut(g.host[1].member));
	assert_int_equal(g.mesh[1].state, HA_MESH_FAILED);
	before = told[0];
	ha_mesh_hear(&g.mesh[1], &heard[1]); /* too late */
	assert_int_equal(told[0], before);
	group_close(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hosts_go_on_when_their_only_switch_dies_before_any_event),
	    cmocka_unit_test(eight_hosts_add_every_type),
	    cmocka_unit_test(a_group_of_one_host_adds_alone),
	    cmocka_unit_test(an_edge_between_hosts_that_fails_costs_no_element),
	    cmocka_unit_test(a_device_that_refuses_is_asked_again_in_the_next_epoch),
	    cmocka_unit_test(a_member_is_linked_when_both_ends_know),
	    cmocka_unit_test(whoever_asks_again_is_answered),
	    cmocka_unit_test(what_is_not_of_this_epoch_group_and_member_links_nobody),
	    cmocka_unit_test(a_member_that_nobody_answers_is_cut_in_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
