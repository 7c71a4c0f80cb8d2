/* SPDX-License-Identifier: Apache-2.0 */
#include "../unit/cmocka_all.h"

#include "inc/leader.h"

#include <string.h>

#define MEMBERS 3
#define GROUP	0x600d
#define MS	1000000ull

static struct ha_leader leader;
static struct ha_fenced said[MEMBERS], held[MEMBERS];
static uint64_t asked[MEMBERS];
static struct ha_inc_frame last[MEMBERS]; /* that a member was told; kind 0: nothing */
static unsigned int told;

static void say(void *arg, uint16_t member, const struct ha_inc_frame *frame)
{
	(void)arg;
	last[member] = *frame;
	told++;
}

static int begin(void **state)
{
	(void)state;
	ha_leader_init(&leader, GROUP, MEMBERS, &(struct ha_leader_room){said, held, asked}, say,
		       NULL);
	memset(last, 0, sizeof(last));
	told = 0;
	return 0;
}

/* How many frames that made. */
static unsigned int after(uint64_t now_ns)
{
	told = 0;
	ha_leader_tick(&leader, now_ns);
	return told;
}

static unsigned int hear(uint16_t member, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	struct ha_inc_frame whole = *frame;

	whole.member = member;
	whole.group = GROUP;
	told = 0;
	ha_leader_hear(&leader, member, &whole, now_ns);
	return told;
}

static unsigned int suspect(uint16_t member, uint32_t epoch)
{
	const struct ha_inc_frame frame = {.kind = HA_INC_SUSPECT, .epoch = epoch, .is_cut = true};

	return hear(member, &frame, 0);
}

static unsigned int waits(uint16_t member, uint64_t unit)
{
	return hear(member, &(struct ha_inc_frame){.kind = HA_INC_SUSPECT, .unit = unit}, 0);
}

static unsigned int asks(uint16_t member, uint64_t units)
{
	return hear(member, &(struct ha_inc_frame){.kind = HA_INC_ASKED, .unit = units}, 0);
}

static unsigned int fenced(uint16_t member, uint32_t epoch, uint64_t have, uint64_t direct)
{
	const struct ha_inc_frame frame = {
	    .kind = HA_INC_FENCED,
	    .epoch = epoch,
	    .said = {.epoch = epoch, .have = have, .sent = 3, .direct = direct},
	};

	return hear(member, &frame, 0);
}

static unsigned int holds(uint16_t member, uint32_t round, uint64_t have, uint64_t sent)
{
	const struct ha_inc_frame frame = {
	    .kind = HA_INC_HELD,
	    .epoch = leader.decision.epoch,
	    .round = round,
	    .said = {.epoch = leader.decision.epoch, .have = have, .sent = sent},
	};

	return hear(member, &frame, 0);
}

static unsigned int leaves_with(uint16_t member, uint64_t retired)
{
	const struct ha_inc_frame frame = {.kind = HA_INC_LEAVE,
					   .said = {.leaves = true, .retired = retired}};

	return hear(member, &frame, 0);
}

static unsigned int leaves(uint16_t member)
{
	return leaves_with(member, 2);
}

static const struct ha_dispute a_dispute = {HA_DISPUTE_TYPE, 0, 2, 7, 9};

static unsigned int disputes(uint16_t member, uint32_t epoch)
{
	const struct ha_inc_frame frame = {
	    .kind = HA_INC_DISPUTE, .epoch = epoch, .dispute = a_dispute};

	return hear(member, &frame, 0);
}

static void assert_ended_by(const struct ha_dispute *wanted)
{
	assert_int_equal(leader.state, HA_LEADER_OVER);
	for (unsigned int m = 0; m < MEMBERS; m++) {
		const struct ha_dispute *told_of = &last[m].abort.dispute;

		if (leader.decision.said[m].leaves)
			continue;
		assert_true(last[m].kind == HA_INC_ABORT &&
			    last[m].abort.why == HA_INC_ABORT_DISPUTE);
		assert_true(told_of->about == wanted->about && told_of->member == wanted->member &&
			    told_of->other == wanted->other &&
			    told_of->operation == wanted->operation &&
			    told_of->unit == wanted->unit);
	}
}

static void a_suspicion_fences_everybody_until_all_have_answered(void **state)
{
	(void)state;
	assert_int_equal(suspect(2, 0), MEMBERS);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_FENCE && last[m].epoch == 1);
	assert_int_equal(suspect(1, 0), 0);
	assert_int_equal(fenced(0, 1, 0, 0), 0);
	assert_int_equal(fenced(1, 1, 1, 0), 0);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	assert_int_equal(fenced(2, 1, 0, 0), MEMBERS);
	assert_int_equal(leader.state, HA_LEADER_QUIET);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_RESUME && last[m].plan == 1 &&
			    last[m].resume.taken == 1 && last[m].resume.owner[0] == 1);
	assert_int_equal(suspect(0, 0), 0); /* of a tree that is gone */
}

static void a_fence_is_said_again_to_whoever_has_not_answered(void **state)
{
	uint64_t now_ns = 0;

	(void)state;
	suspect(0, 0);
	assert_int_equal(after(10 * MS - 1), 0);
	assert_int_equal(after(10 * MS), MEMBERS);
	fenced(1, 1, 0, 0);
	assert_int_equal(after(30 * MS - 1), 0);
	assert_int_equal(after(30 * MS), MEMBERS - 1);
	for (unsigned int i = 0; i < 10; i++) { /* the pause grows no more */
		now_ns += 250 * MS;
		after(30 * MS + now_ns);
	}
	assert_int_equal(after(30 * MS + now_ns + 250 * MS - 1), 0);
	assert_int_equal(after(30 * MS + now_ns + 250 * MS), MEMBERS - 1);
}

static void a_decision_is_said_again_to_whoever_asks_and_no_plan_comes_twice(void **state)
{
	(void)state;
	for (uint32_t epoch = 1; epoch <= 3; epoch++) {
		suspect(0, epoch - 1);
		for (uint16_t m = 0; m < MEMBERS; m++)
			fenced(m, epoch, 0, 0);
		assert_int_equal(leader.plan, epoch);
		memset(last, 0, sizeof(last));
		assert_int_equal(fenced(1, epoch, 0, 0), 1);
		assert_true(last[1].kind == HA_INC_RESUME && last[1].plan == epoch);
		assert_int_equal(fenced(1, epoch - 1, 0, 0), 0);
	}
}

static void who_has_left_is_not_asked(void **state)
{
	(void)state;
	assert_int_equal(leaves(1), 0);
	assert_int_equal(suspect(0, 0), MEMBERS - 1);
	assert_int_equal(last[1].kind, 0);
	fenced(0, 1, 3, 0);
	assert_false(ha_leader_may_leave(&leader));
	assert_int_equal(leaves(2), 1); /* counts for its FENCED, and the last one resumes */
	assert_true(last[0].kind == HA_INC_RESUME && last[0].resume.retired == 2);
	assert_false(ha_leader_may_leave(&leader));
	leaves(0);
	assert_true(ha_leader_may_leave(&leader));
}

static void a_hold_is_through_when_what_all_have_sent_is_everywhere(void **state)
{
	(void)state;
	assert_true(ha_leader_hold(&leader, 0));
	assert_true(last[2].kind == HA_INC_HOLD && last[2].is_on && last[2].round == 1);
	assert_false(ha_leader_hold(&leader, 0));
	holds(0, 1, 1, 7);
	holds(1, 1, 1, 3);
	assert_int_equal(after(10 * MS), 1); /* the one that has not answered */
	holds(2, 1, 3, 3);
	assert_int_equal(leader.state, HA_LEADER_HOLDING); /* unit 1 is not everywhere */
	holds(0, 1, 3, 7);
	assert_int_equal(leader.state, HA_LEADER_HOLDING);
	assert_int_equal(holds(1, 1, 3, 3), MEMBERS); /* and unit 2 only one has sent */
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	assert_true(last[0].kind == HA_INC_FENCE && last[0].epoch == 1);
}

/* Between two HOLDs of an epoch its member went on. */
static unsigned int drains(uint16_t member, uint32_t epoch)
{
	return hear(member, &(struct ha_inc_frame){.kind = HA_INC_DRAIN, .epoch = epoch}, 0);
}

static void who_wants_the_tree_to_be_left_gets_a_hold_where_there_is_another_way(void **state)
{
	(void)state;
	leader.ways = 2;
	assert_int_equal(drains(1, 1), 0); /* of no tree that is in use */
	assert_int_equal(drains(1, 0), MEMBERS);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_HOLD && last[m].is_on);
	assert_int_equal(drains(2, 0), 0); /* it is on */
	for (uint16_t m = 0; m < MEMBERS; m++)
		(void)holds(m, 1, 0, 0);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	assert_int_equal(drains(2, 0), 0);
	for (uint16_t m = 0; m < MEMBERS; m++)
		(void)fenced(m, 1, 0, 0);
	assert_true(leader.state == HA_LEADER_QUIET && leader.plan == 1);
	/* The last way is not given up for it. */
	assert_int_equal(drains(1, 1), 0);
	assert_int_equal(leader.state, HA_LEADER_QUIET);
}

static void an_answer_to_an_earlier_hold_counts_for_nothing(void **state)
{
	(void)state;
	ha_leader_hold(&leader, 0);
	holds(0, 1, 0, 0);
	holds(1, 1, 0, 0);
	assert_true(ha_leader_hold_off(&leader));
	assert_false(ha_leader_hold_off(&leader));
	assert_true(last[1].kind == HA_INC_HOLD && !last[1].is_on);
	assert_int_equal(holds(2, 1, 0, 0), 1); /* it has not heard so */
	assert_true(last[2].kind == HA_INC_HOLD && !last[2].is_on && last[2].round == 1);
	assert_true(ha_leader_hold(&leader, 0));
	for (uint16_t m = 0; m < MEMBERS; m++)
		holds(m, 1, 0, 0);
	assert_int_equal(leader.state, HA_LEADER_HOLDING);
	for (uint16_t m = 0; m < MEMBERS; m++)
		holds(m, 2, 0, 0);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
}

static void a_suspicion_ends_a_hold(void **state)
{
	(void)state;
	ha_leader_hold(&leader, 0);
	assert_int_equal(suspect(1, 0), MEMBERS);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	assert_int_equal(holds(1, 1, 0, 0), 0);
	assert_false(ha_leader_hold_off(&leader));
	assert_false(ha_leader_hold(&leader, 0));
}

static void who_has_not_asked_is_waited_for(void **state)
{
	(void)state;
	assert_int_equal(waits(0, 5), 2);
	assert_true(last[1].kind == HA_INC_ASK && last[1].unit == 5 && last[2].kind == HA_INC_ASK);
	assert_int_equal(last[0].kind, 0);
	assert_int_equal(asks(1, 6), 0);
	assert_int_equal(asks(2, 5), 0); /* it has not */
	assert_int_equal(waits(0, 5), 1);
	assert_int_equal(asks(2, 9), 0);
	assert_int_equal(asks(2, 3), 0);		 /* said before, and comes late */
	assert_int_equal(leader.state, HA_LEADER_QUIET); /* perhaps it gets on now */
	assert_int_equal(waits(0, 6), 1); /* of another unit, for which member 1 has to be asked */
}

static void a_tree_that_owes_what_all_have_asked_for_is_given_up(void **state)
{
	(void)state;
	assert_int_equal(waits(0, 5), 2);
	asks(1, 6);
	leaves_with(2, 6); /* who has left asks for nothing, and has all */
	assert_int_equal(waits(0, 5), 2);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	assert_int_equal(last[0].kind, HA_INC_FENCE);
}

/* Of whatever epoch it is, and though who disputes says no FENCED any more. */
static void a_dispute_is_the_end_in_every_state(void **state)
{
	(void)state;
	assert_int_equal(disputes(1, 0), MEMBERS);
	assert_ended_by(&a_dispute);
	assert_int_equal(disputes(2, 0), 1); /* it has not heard so */
	assert_ended_by(&a_dispute);

	(void)begin(NULL);
	ha_leader_hold(&leader, 0);
	disputes(1, 0);
	assert_ended_by(&a_dispute);

	(void)begin(NULL);
	suspect(0, 0);
	fenced(0, 1, 0, 0);
	fenced(1, 1, 0, 0);
	assert_int_equal(disputes(2, 0), MEMBERS);
	assert_ended_by(&a_dispute);
}

/* Nobody who has left asks for anything more: it is not waited for. */
static void whoever_waits_for_a_member_that_has_left_is_in_dispute_with_it(void **state)
{
	(void)state;
	leaves_with(2, 5);
	assert_int_equal(waits(0, 4), 1); /* of what it had everywhere; member 1 is asked */
	assert_int_equal(leader.state, HA_LEADER_QUIET);
	assert_int_equal(waits(0, 5), MEMBERS - 1);
	assert_ended_by(&(struct ha_dispute){HA_DISPUTE_LEFT, 0, 2, 0, 5});
}

/* ABORT: to all at once, and to whoever says something later. */
static void what_cannot_go_on_everybody_is_told(void **state)
{
	(void)state;
	suspect(0, 0);
	for (uint16_t m = 0; m < MEMBERS; m++)
		fenced(m, 1, 1, 2);
	assert_int_equal(leader.state, HA_LEADER_OVER);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_ABORT &&
			    last[m].abort.why == HA_INC_ABORT_DAMAGED &&
			    last[m].abort.about.unit == 1);
	assert_int_equal(fenced(1, 1, 1, 2), 1);
	assert_int_equal(suspect(2, 1), 1);
	ha_leader_give_up(&leader, HA_INC_ABORT_DEAD, 2); /* the first verdict stays */
	suspect(2, 1);
	assert_int_equal(last[2].abort.why, HA_INC_ABORT_DAMAGED);
	assert_int_equal(after(1000 * MS), 0);
}

static void all_have_fenced(void)
{
	const uint32_t epoch = leader.decision.epoch;

	for (uint16_t m = 0; m < MEMBERS; m++)
		fenced(m, epoch, 0, 0);
}

static void assert_resumed(uint32_t plan, uint32_t way)
{
	assert_int_equal(leader.state, HA_LEADER_QUIET);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_RESUME && last[m].plan == plan &&
			    last[m].way == way);
}

/* All hold, and have all that they have sent. */
static void go_back(void)
{
	assert_true(ha_leader_go_back(&leader, 0));
	assert_true(last[1].kind == HA_INC_HOLD && last[1].is_on);
	for (uint16_t m = 0; m < MEMBERS; m++)
		holds(m, leader.holding.epoch, 0, 0);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
	all_have_fenced();
}

/* By a plan whose number is new. */
static void a_group_goes_back_to_its_first_way_and_when_that_fails_to_where_it_was(void **state)
{
	(void)state;
	leader.ways = 4;
	assert_false(ha_leader_go_back(&leader, 0)); /* it is there */
	for (uint32_t epoch = 0; epoch < 3; epoch++) {
		suspect(0, epoch);
		all_have_fenced();
		assert_resumed(epoch + 1, epoch + 1);
	}
	go_back();
	assert_resumed(4, 0);
	suspect(0, 4);
	all_have_fenced();
	assert_resumed(5, 3);
	go_back();
	assert_resumed(6, 0);
	ha_leader_settle(&leader); /* it has carried something for long */
	suspect(0, 6);
	all_have_fenced();
	assert_resumed(7, 1);
}

/* Whatever fails while all hold; and a HOLD that is taken back leads nowhere. */
static void a_way_back_that_is_under_way_is_taken(void **state)
{
	(void)state;
	leader.ways = 2;
	suspect(0, 0);
	all_have_fenced();
	assert_true(ha_leader_go_back(&leader, 0));
	assert_true(ha_leader_hold_off(&leader));
	assert_false(leader.goes_back);
	assert_true(ha_leader_go_back(&leader, 0));
	suspect(1, 1); /* of the last way: it would have been the end */
	all_have_fenced();
	assert_resumed(2, 0);
}

/* Way 0 and one more; a decision without a plan to go on by is the end. */
static void without_another_way_it_gives_up(void **state)
{
	(void)state;
	leader.ways = 2;
	suspect(0, 0);
	for (uint16_t m = 0; m < MEMBERS; m++)
		fenced(m, 1, 0, 0);
	assert_true(last[1].kind == HA_INC_RESUME && last[1].plan == 1);
	suspect(0, 1);
	for (uint16_t m = 0; m < MEMBERS; m++)
		fenced(m, 2, 0, 0);
	assert_int_equal(leader.state, HA_LEADER_OVER);
	for (unsigned int m = 0; m < MEMBERS; m++)
		assert_true(last[m].kind == HA_INC_ABORT &&
			    last[m].abort.why == HA_INC_ABORT_NO_TREE);
}

static void a_member_that_is_dead_ends_the_group(void **state)
{
	(void)state;
	ha_leader_give_up(&leader, HA_INC_ABORT_DEAD, 2);
	assert_true(last[0].kind == HA_INC_ABORT && last[0].abort.why == HA_INC_ABORT_DEAD &&
		    last[0].abort.about.member == 2);
}

static void what_others_say_counts_for_nothing(void **state)
{
	struct ha_inc_frame frame = {
	    .kind = HA_INC_SUSPECT, .is_cut = true, .group = GROUP, .member = 1};

	(void)state;
	ha_leader_hear(&leader, 2, &frame, 0);
	frame.group++;
	ha_leader_hear(&leader, 1, &frame, 0);
	assert_int_equal(leader.state, HA_LEADER_QUIET);
	frame.group--;
	ha_leader_hear(&leader, 1, &frame, 0);
	assert_int_equal(leader.state, HA_LEADER_FENCING);
}

#define LEADER_TEST(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    LEADER_TEST(a_suspicion_fences_everybody_until_all_have_answered),
	    LEADER_TEST(a_fence_is_said_again_to_whoever_has_not_answered),
	    LEADER_TEST(a_decision_is_said_again_to_whoever_asks_and_no_plan_comes_twice),
	    LEADER_TEST(who_has_left_is_not_asked),
	    LEADER_TEST(a_hold_is_through_when_what_all_have_sent_is_everywhere),
	    LEADER_TEST(who_wants_the_tree_to_be_left_gets_a_hold_where_there_is_another_way),
	    LEADER_TEST(an_answer_to_an_earlier_hold_counts_for_nothing),
	    LEADER_TEST(a_suspicion_ends_a_hold),
	    LEADER_TEST(who_has_not_asked_is_waited_for),
	    LEADER_TEST(a_tree_that_owes_what_all_have_asked_for_is_given_up),
	    LEADER_TEST(a_dispute_is_the_end_in_every_state),
	    LEADER_TEST(whoever_waits_for_a_member_that_has_left_is_in_dispute_with_it),
	    LEADER_TEST(what_cannot_go_on_everybody_is_told),
	    LEADER_TEST(a_group_goes_back_to_its_first_way_and_when_that_fails_to_where_it_was),
	    LEADER_TEST(a_way_back_that_is_under_way_is_taken),
	    LEADER_TEST(without_another_way_it_gives_up),
	    LEADER_TEST(a_member_that_is_dead_ends_the_group),
	    LEADER_TEST(what_others_say_counts_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
