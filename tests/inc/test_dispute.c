/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that do not ask for the same operations, in virtual time: all of them end with one error
 * that names the operation and two who differ in it, and nobody gets a result of that operation or
 * a later one; whoever adds, and with frames that get lost, doubled and late (epochs.h).
 */
#include "epochs.h"

#include <string.h>

#define LIMIT_NS (2 * LATE_NS)

static void another_type(struct ha_all_reduce *ask)
{
	ask->type = HA_REDUCE_INT32;
}

static void another_op(struct ha_all_reduce *ask)
{
	ask->op = HA_REDUCE_MAX;
}

static void fewer_elements(struct ha_all_reduce *ask)
{
	ask->count--;
}

/* Its first units are as those of all others. */
static void fewer_units(struct ha_all_reduce *ask)
{
	ask->count = 32;
}

static const struct {
	void (*does)(struct ha_all_reduce *ask);
	enum ha_dispute_about about;
} twists[] = {{another_type, HA_DISPUTE_TYPE},
	      {another_op, HA_DISPUTE_OP},
	      {fewer_elements, HA_DISPUTE_BYTES_OF},
	      {fewer_units, HA_DISPUTE_BYTES_OF}};

#define TWISTS (sizeof(twists) / sizeof(twists[0]))

enum who_adds { ONE_SWITCH, TWO_LEVELS, HOSTS, ADDERS };

static struct group_shape shape_of(enum who_adds who)
{
	struct group_shape shape = small();

	if (who == TWO_LEVELS)
		shape.hosts = 4;
	shape.switches = who == TWO_LEVELS ? 5 : 3;
	return shape;
}

static void begin(enum who_adds who, uint64_t seed)
{
	const struct group_shape shape = shape_of(who);

	memset(&plan, 0, sizeof(plan));
	plan.has_levels = who == TWO_LEVELS;
	plan.hosts_add_from = who == HOSTS ? 1 : 0;
	plan.kill_at[0] = who == HOSTS ? 1 : 0;
	open_run(&shape, seed);
	add_small(false);
}

static void assert_ended_by(const struct ha_dispute *dispute, unsigned int host)
{
	const struct ha_inc_frame *verdict = &follower[host].verdict;
	const struct ha_dispute *told = &verdict->abort.dispute;

	assert_int_equal(follower[host].state, HA_FOLLOWER_OVER);
	assert_int_equal(verdict->kind, HA_INC_ABORT);
	assert_int_equal(verdict->abort.why, HA_INC_ABORT_DISPUTE);
	assert_int_equal(told->about, dispute->about);
	assert_int_equal(told->operation, dispute->operation);
	assert_true(told->member == dispute->member && told->other == dispute->other &&
		    told->unit == dispute->unit);
}

/* The second operation is what they differ in; whoever is first at a switch says what it is. */
static void twist(enum who_adds who, unsigned int kind, unsigned int host)
{
	const struct ha_dispute *told = &follower[host].verdict.abort.dispute;

	begin(who, 1 + host * TWISTS + kind);
	g.twist.host = host;
	g.twist.op = 1;
	g.twist.does = twists[kind].does;
	run();
	assert_true(all_are_over());
	assert_true(sv_stepped_now() < LIMIT_NS);
	assert_int_equal(told->about, twists[kind].about);
	assert_int_equal(told->operation, 2);
	assert_int_equal(told->unit, g.op[1].cut.first);
	assert_true(told->member != told->other && (told->member == host || told->other == host));
	for (unsigned int h = 0; h < g.shape.hosts; h++) {
		assert_ended_by(told, h);
		assert_true(g.host[h].done <= 1);
		assert_int_equal(ha_member_operation_of(g.host[h].member, told->unit), 2);
	}
	group_close(&g);
}

static void whoever_asks_for_something_else_ends_it_for_all_and_is_named(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int who = 0; who < ADDERS; who++)
		for (unsigned int host = 0; host < shape_of((enum who_adds)who).hosts; host++)
			for (unsigned int kind = 0; kind < TWISTS; kind++)
				twist((enum who_adds)who, kind, host);
	tell();
	assert_true(seen.lost_frames && seen.lost_packets && seen.epochs);
}

static bool all_others_are_over(void)
{
	for (unsigned int h = 0; h < g.shape.hosts; h++)
		if (!g.fewer[h] && follower[h].state != HA_FOLLOWER_OVER)
			return false;
	return true;
}

/* It has all that it has asked for, as the others have; they ask for one operation more. */
static void who_has_left_before_is_not_waited_for(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (unsigned int who = 0; who < ADDERS; who++) {
		const unsigned int hosts = shape_of((enum who_adds)who).hosts;

		for (unsigned int host = 0; host < hosts; host++) {
			struct ha_dispute told;

			begin((enum who_adds)who, 1 + host);
			g.fewer[host] = 1;
			run_until(all_others_are_over);
			told = leader.answer.abort.dispute;
			assert_int_equal(follower[host].state, HA_FOLLOWER_LEFT);
			assert_true(told.about == HA_DISPUTE_LEFT && told.other == host &&
				    told.unit == g.op[2].cut.first);
			assert_true(sv_stepped_now() < 2 * LIMIT_NS);
			for (unsigned int h = 0; h < hosts; h++)
				if (h != host)
					assert_ended_by(&told, h);
			group_close(&g);
		}
	}
	tell();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(whoever_asks_for_something_else_ends_it_for_all_and_is_named),
	    cmocka_unit_test(who_has_left_before_is_not_waited_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
