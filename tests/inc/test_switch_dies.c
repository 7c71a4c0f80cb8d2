/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Switches that die under a group's all-reduces, in virtual time: leader and followers agree over
 * frames that get lost, doubled and late, and go on through another switch, which adds in another
 * order, so that a sum that is computed again has other bits. Each unit must be one order's, at all
 * hosts the same one, and nothing may touch memory that was handed back (group.h).
 */
#include "group.h"

#include "../seeded_random.h"
#include "../stepped_rules.h"

#include "inc/leader.h"
#include "inc/verbs/follower.h"

#include <stdio.h>
#include <string.h>

#define FRAMES	   256
#define TICK_NS	   1000000u
#define LATE_NS	   1000000000ull
#define LIMIT_NS   60000000000ull
#define EVERY_LOST 5 /* frames: one of so many gets lost, and one is doubled */

struct letter {
	uint64_t due_ns; /* 0: none */
	bool is_to_leader;
	uint16_t member;
	size_t size;
	uint8_t bytes[HA_INC_FRAME_MAX];
};

static struct group g;
static struct ha_leader leader;
static struct ha_fenced said[GROUP_HOSTS], held[GROUP_HOSTS];
static uint64_t asked[GROUP_HOSTS];
static struct ha_follower follower[GROUP_HOSTS];
static struct letter letters[FRAMES];
static uint64_t chance;

/* What a run is to go through; events of the fabric are counted from 0. */
static struct {
	uint64_t kill_at[2]; /* the switch that is in use dies before this event; 0: not */
	unsigned int kills;
	bool is_quiet;	 /* frames all come */
	bool has_levels; /* the first tree */
	bool has_one_lane_later;
	int losses;    /* a rule */
	int kill_rule; /* kills switch 0; 0: none */
} plan;

/* In all runs. */
static struct {
	unsigned int epochs, lost_frames;
	uint64_t taken, lacked, from_copy, again, lost_packets;
} seen;

static void tell(void)
{
	print_message("%u epochs; units taken %llu, of them lacked by somebody %llu, %llu of these "
		      "from a copy, again %llu; %u frames lost, %llu packets\n",
		      seen.epochs, (unsigned long long)seen.taken, (unsigned long long)seen.lacked,
		      (unsigned long long)seen.from_copy, (unsigned long long)seen.again,
		      seen.lost_frames, (unsigned long long)seen.lost_packets);
}

static uint64_t random_below(uint64_t n)
{
	chance = mix(chance);
	return chance % n;
}

/* ---- the star ------------------------------------------------------------------------------- */

static struct letter *free_letter(void)
{
	for (unsigned int i = 0; i < FRAMES; i++)
		if (!letters[i].due_ns)
			return &letters[i];
	fail_msg("more frames are on their way than there is room for");
	return NULL;
}

static void post_letter(bool is_to_leader, uint16_t member, const struct ha_inc_frame *frame)
{
	struct letter *letter = free_letter();

	*letter = (struct letter){.due_ns = sv_stepped_now() + 20000 + random_below(2000000),
				  .is_to_leader = is_to_leader,
				  .member = member};
	letter->size = ha_inc_frame_encode(frame, letter->bytes);
}

static void post(bool is_to_leader, uint16_t member, const struct ha_inc_frame *frame)
{
	const uint64_t fate = plan.is_quiet ? 2 : random_below(EVERY_LOST);

	seen.lost_frames += fate == 0;
	if (fate > 0)
		post_letter(is_to_leader, member, frame);
	if (fate == 1)
		post_letter(is_to_leader, member, frame);
}

static void say_to_member(void *arg, uint16_t member, const struct ha_inc_frame *frame)
{
	(void)arg;
	post(false, member, frame);
}

static void say_to_leader(void *arg, const struct ha_inc_frame *frame)
{
	const struct ha_follower *from = arg;

	post(true, from->number, frame);
}

static void deliver(struct letter *letter)
{
	struct ha_inc_frame frame;

	assert_true(
	    ha_inc_frame_decode(letter->bytes, letter->size, (uint16_t)g.shape.hosts, &frame));
	letter->due_ns = 0;
	if (letter->is_to_leader)
		ha_leader_hear(&leader, letter->member, &frame, sv_stepped_now());
	else
		ha_follower_hear(&follower[letter->member], &frame, sv_stepped_now());
}

/* Those that are due; returns when the next one is. */
static uint64_t deliver_due(void)
{
	uint64_t next_ns = UINT64_MAX;

	for (unsigned int i = 0; i < FRAMES; i++)
		if (letters[i].due_ns && letters[i].due_ns <= sv_stepped_now())
			deliver(&letters[i]);
	for (unsigned int i = 0; i < FRAMES; i++)
		if (letters[i].due_ns && letters[i].due_ns < next_ns)
			next_ns = letters[i].due_ns;
	return next_ns;
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* Plan n is a star around a switch of its own; the first one may have two more below that. */
static unsigned int switch_of_plan(uint32_t number)
{
	const unsigned int i = number && plan.has_levels ? number + 2 : number;

	assert_true(i < g.shape.switches);
	return i;
}

static void join(void *arg, uint32_t number, uint32_t epoch)
{
	const struct ha_follower *who = arg;
	const unsigned int i = switch_of_plan(number);

	if (g.is_dead[i])
		return;
	if (!g.tree[i][0])
		assert_true(group_trees(&g, i, epoch));
	group_join(&g, i, epoch, who->number);
}

/* As its process would: nothing of it moves any more. */
static void kill_switch(void)
{
	const unsigned int i = switch_of_plan(leader.plan);

	g.is_dead[i] = true;
	sv_stepped_kill(group_switch(&g, i), 0);
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* So that some hosts have a result when the switch dies, and others never get it. */
#define LOSSES "drop op=send prob=0.2"

static void open_run(const struct group_shape *shape, uint64_t seed)
{
	memset(letters, 0, sizeof(letters));
	chance = seed;
	group_open(&g, shape);
	g.has_one_lane_later = plan.has_one_lane_later;
	plan.losses = add_rule(LOSSES);
	if (plan.has_levels)
		group_two_levels(&g);
	else
		group_star(&g, 0, 0);
	ha_leader_init(&leader, GROUP_ID, (uint16_t)shape->hosts,
		       &(struct ha_leader_room){said, held, asked}, say_to_member, NULL);
	for (unsigned int h = 0; h < shape->hosts; h++) {
		const struct ha_follower_calls calls = {say_to_leader, join, &follower[h]};

		ha_follower_init(&follower[h], g.host[h].member, (uint16_t)h, GROUP_ID, LATE_NS,
				 &calls);
	}
}

/* The owner's request is complete: its memory is the application's, and the result in a copy. */
static bool is_from_copy(const struct ha_resume *resume, unsigned int i)
{
	const struct ha_ledger *ledger = ha_member_ledger(g.host[resume->owner[i]].member);

	return resume->lacked >> i & 1 && ledger->kept >> (resume->retired + i - ledger->first) & 1;
}

static void count_epoch(void)
{
	const struct ha_resume *resume = &leader.answer.resume;

	seen.epochs++;
	for (unsigned int i = 0; i < HA_DECISION_UNITS; i++) {
		bool is_sent = false;

		for (unsigned int h = 0; h < g.shape.hosts; h++)
			is_sent |= said[h].sent >> i & 1;
		seen.taken += resume->taken >> i & 1;
		seen.lacked += resume->lacked >> i & 1;
		seen.from_copy += is_from_copy(resume, i);
		seen.again += is_sent && !(resume->taken >> i & 1);
	}
}

static bool all_have_left(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (follower[h].state != HA_FOLLOWER_LEFT)
			return false;
	return ha_leader_may_leave(&leader);
}

static void tick(void)
{
	ha_leader_tick(&leader, sv_stepped_now());
	for (unsigned int h = 0; h < g.shape.hosts; h++) {
		if (g.host[h].done == g.ops)
			ha_follower_leave(&follower[h], sv_stepped_now());
		ha_follower_tick(&follower[h], sv_stepped_now());
	}
}

static bool is_time_to_kill(void)
{
	return plan.kills < 2 && plan.kill_at[plan.kills] &&
	       sv_stepped_index() >= plan.kill_at[plan.kills] &&
	       !g.is_dead[switch_of_plan(leader.plan)];
}

/* To the fabric's next event, or to the next frame or tick if that is sooner. */
static void pass_time(uint64_t until_ns)
{
	struct sv_event_info next;

	if (is_time_to_kill()) {
		kill_switch();
		plan.kills++;
	}
	if (plan.kill_rule && fired(plan.kill_rule))
		g.is_dead[0] = true;
	if (sv_stepped_peek(&next) && next.time_ns <= until_ns)
		sv_stepped_step();
	else
		sv_stepped_run(until_ns);
}

static bool all_are_over(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (follower[h].state != HA_FOLLOWER_OVER)
			return false;
	return true;
}

/* Until all have left, or the group has ended with an error. */
static void run(void)
{
	uint64_t next_tick_ns = 0, next_ns;
	uint32_t counted = 0;

	while (!all_have_left() && !all_are_over()) {
		group_act(&g);
		if (sv_stepped_now() >= next_tick_ns) {
			next_tick_ns = sv_stepped_now() + TICK_NS;
			tick();
		}
		next_ns = deliver_due();
		if (leader.plan != counted) {
			counted = leader.plan;
			count_epoch();
		}
		pass_time(next_ns < next_tick_ns ? next_ns : next_tick_ns);
		if (sv_stepped_now() > LIMIT_NS)
			fail_msg("the group does not come to its end");
	}
	seen.lost_packets += fired(plan.losses);
}

static void run_well(void)
{
	run();
	assert_true(all_have_left() && group_is_done(&g));
}

static struct group_shape small(void)
{
	return (struct group_shape){.hosts = 3,
				    .switches = 3,
				    .lanes = 1,
				    .window = 2,
				    .copies = 1,
				    .unit_bytes = 64,
				    .fabric = {.jitter_ns = 5000}};
}

/* Operations of one unit and of several, apart and in place. */
static void add_small(bool in_place)
{
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 16, in_place);
	group_add(&g, HA_REDUCE_FP32, HA_REDUCE_SUM, 40, in_place);
	group_add(&g, HA_REDUCE_BF16, HA_REDUCE_SUM, 9, !in_place);
}

static uint64_t events_of_peace(const struct group_shape *shape, bool in_place)
{
	uint64_t events;

	plan.kills = 2; /* none is left */
	open_run(shape, 1);
	add_small(in_place);
	run_well();
	events = sv_stepped_index();
	assert_int_equal(leader.decision.epoch, 0);
	group_close(&g);
	return events;
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_switch_dies_before_any_event),
	    cmocka_unit_test(the_root_of_two_levels_dies_before_any_event),
	    cmocka_unit_test(the_next_switch_dies_too),
	    cmocka_unit_test(eight_hosts_lose_their_switch_in_the_middle),
	    cmocka_unit_test(a_switch_that_hangs_is_given_up),
	    cmocka_unit_test(a_host_that_is_late_is_waited_for),
	    cmocka_unit_test(nobody_goes_on_before_the_last_edge_is_destroyed),
	    cmocka_unit_test(a_hold_lets_nothing_be_damaged),
	    cmocka_unit_test(a_death_ends_what_has_no_shadow_the_same_way_everywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
