/* SPDX-License-Identifier: Apache-2.0 */
/* A unit's table, cell by cell; and what a lane holds its edges to. */
#include "../unit/cmocka_all.h"

#include "inc/lane.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 3

static int32_t scratch[8], partial[COUNT], result[COUNT], buffer[3][COUNT];
static const struct ha_unit_room room = {scratch, partial, result};

static struct ha_contribution contribution(unsigned int child)
{
	for (int i = 0; i < COUNT; i++)
		buffer[child][i] = (int32_t)(child + 1) * (i + 1);
	return (struct ha_contribution){ha_reduction_of(HA_REDUCE_INT32, HA_REDUCE_SUM), COUNT,
					HA_REDUCE_WIRE, buffer[child]};
}

/* ---- the table ------------------------------------------------------------------------------ */

static enum ha_unit_verdict step(struct ha_unit *unit, enum ha_unit_event on, unsigned int who)
{
	const struct ha_contribution c = contribution(who < 3 ? who : 0);

	return ha_unit_step(unit, &(struct ha_unit_input){on, who, &c});
}

/* A unit of an inner switch with two children, in that state by the shortest way. */
static struct ha_unit unit_in(enum ha_unit_state state)
{
	static const struct {
		enum ha_unit_event on;
		unsigned int who;
		enum ha_unit_state then;
	} way[] = {
	    {HA_UNIT_CAME, 1, HA_UNIT_GATHERING},    {HA_UNIT_CAME, 0, HA_UNIT_GATHERING},
	    {HA_UNIT_FINISH, 0, HA_UNIT_REDUCED},    {HA_UNIT_POSTED, HA_UNIT_UP, HA_UNIT_SENT_UP},
	    {HA_UNIT_ANSWERED, 0, HA_UNIT_RESULT},   {HA_UNIT_POSTED, 0, HA_UNIT_RESULT},
	    {HA_UNIT_POSTED, 1, HA_UNIT_DELIVERING},
	};
	struct ha_unit unit;

	ha_unit_init(&unit, 2, false, &room);
	for (size_t i = 0; unit.state != state; i++) {
		assert_true(i < sizeof(way) / sizeof(way[0]));
		assert_int_equal(step(&unit, way[i].on, way[i].who), HA_UNIT_FINE);
		assert_int_equal(unit.state, way[i].then);
	}
	return unit;
}

static bool is_same(const struct ha_unit *a, const struct ha_unit *b)
{
	return a->state == b->state && a->to_post == b->to_post && a->in_flight == b->in_flight &&
	       a->fold.come == b->fold.come;
}

/* By state and event, the state that follows; NO: it cannot be, and changes nothing. */
static void each_event_does_in_each_state_what_the_table_says(void **state)
{
	static const struct {
		unsigned int who[HA_UNIT_EVENTS]; /* of the event */
		enum ha_unit_state then[HA_UNIT_EVENTS];
	} rows[HA_UNIT_STATES] = {
#define NO HA_UNIT_STATES
	    /* CAME, LOOK, FINISH, POSTED, SENT, ANSWERED */
	    [HA_UNIT_EMPTY] = {{0}, {HA_UNIT_GATHERING, HA_UNIT_EMPTY, NO, NO, NO, NO}},
	    [HA_UNIT_GATHERING] = {{0}, {HA_UNIT_GATHERING, HA_UNIT_GATHERING, NO, NO, NO, NO}},
	    [HA_UNIT_REDUCED] = {{0, 0, 0, HA_UNIT_UP, HA_UNIT_UP},
				 {NO, HA_UNIT_REDUCED, NO, HA_UNIT_SENT_UP, NO, NO}},
	    [HA_UNIT_SENT_UP] = {{0, 0, 0, HA_UNIT_UP, HA_UNIT_UP},
				 {NO, HA_UNIT_SENT_UP, NO, NO, HA_UNIT_SENT_UP, HA_UNIT_RESULT}},
	    [HA_UNIT_RESULT] = {{0, 0, 0, 0, HA_UNIT_UP},
				{NO, HA_UNIT_RESULT, NO, HA_UNIT_RESULT, HA_UNIT_RESULT, NO}},
	    [HA_UNIT_DELIVERING] = {{0}, {NO, HA_UNIT_DELIVERING, NO, NO, HA_UNIT_DELIVERING, NO}},
	};

	(void)state;
	for (enum ha_unit_state s = 0; s < HA_UNIT_STATES; s++) {
		for (enum ha_unit_event on = 0; on < HA_UNIT_EVENTS; on++) {
			struct ha_unit unit = unit_in(s), before = unit;
			enum ha_unit_verdict verdict = step(&unit, on, rows[s].who[on]);

			if (rows[s].then[on] == NO) {
				assert_int_equal(verdict, HA_UNIT_IMPOSSIBLE);
				assert_true(is_same(&unit, &before));
			} else {
				assert_int_equal(verdict, HA_UNIT_FINE);
				assert_int_equal(unit.state, rows[s].then[on]);
			}
		}
		assert_true(strlen(ha_unit_state_name(s)) > 0);
	}
}

static void a_child_contributes_once(void **state)
{
	struct ha_unit unit = unit_in(HA_UNIT_GATHERING);

	(void)state;
	assert_int_equal(step(&unit, HA_UNIT_CAME, 1), HA_UNIT_IMPOSSIBLE);
	assert_int_equal(step(&unit, HA_UNIT_CAME, 2),
			 HA_UNIT_IMPOSSIBLE); /* there is no such child */
	assert_int_equal(step(&unit, HA_UNIT_FINISH, 0), HA_UNIT_IMPOSSIBLE);
	assert_int_equal(step(&unit, HA_UNIT_CAME, 0), HA_UNIT_FINE);
	assert_true(ha_unit_is_complete(&unit));
}

static void a_contribution_to_another_operation_is_refused(void **state)
{
	struct ha_contribution other = contribution(0);
	const struct ha_unit_input input = {HA_UNIT_CAME, 0, &other};
	struct ha_unit unit;

	(void)state;
	for (int i = 0; i < 3; i++) {
		unit = unit_in(HA_UNIT_GATHERING);
		other = contribution(0);
		if (i == 0)
			other.count--;
		else if (i == 1)
			other.reduction = ha_reduction_of(HA_REDUCE_INT32, HA_REDUCE_MAX);
		else
			other.reduction = ha_reduction_of(HA_REDUCE_FP32, HA_REDUCE_SUM);
		assert_int_equal(ha_unit_step(&unit, &input), HA_UNIT_DISAGREES);
		assert_false(ha_unit_is_complete(&unit));
	}
}

/* The result goes to each child once, and the unit is empty when nothing reads its buffers: also
 * not the send of the partial result, however late that completes. */
static void a_unit_is_empty_when_no_send_reads_its_buffers(void **state)
{
	struct ha_unit unit = unit_in(HA_UNIT_DELIVERING);

	(void)state;
	assert_int_equal(step(&unit, HA_UNIT_SENT, 1), HA_UNIT_FINE);
	assert_int_equal(step(&unit, HA_UNIT_SENT, 1), HA_UNIT_IMPOSSIBLE);
	assert_int_equal(step(&unit, HA_UNIT_SENT, 64), HA_UNIT_IMPOSSIBLE);
	assert_int_equal(step(&unit, HA_UNIT_SENT, 0), HA_UNIT_FINE);
	assert_int_equal(unit.state, HA_UNIT_DELIVERING);
	assert_int_equal(step(&unit, HA_UNIT_SENT, HA_UNIT_UP), HA_UNIT_FINE);
	assert_int_equal(unit.state, HA_UNIT_EMPTY);
}

static void results_are_what_is_sent(void **state)
{
	struct ha_unit unit = unit_in(HA_UNIT_REDUCED);
	struct ha_unit_send send = ha_unit_send_of(&unit, HA_UNIT_UP);

	(void)state;
	assert_true(ha_unit_wants(&unit, HA_UNIT_UP) && !ha_unit_wants(&unit, 0));
	assert_ptr_equal(send.at, partial);
	assert_int_equal(send.bytes, sizeof(partial));
	for (int i = 0; i < COUNT; i++)
		assert_int_equal(partial[i], 3 * (i + 1));
	unit = unit_in(HA_UNIT_RESULT);
	send = ha_unit_send_of(&unit, 1);
	assert_true(!ha_unit_wants(&unit, HA_UNIT_UP) && ha_unit_wants(&unit, 1));
	assert_ptr_equal(send.at, result);
}

/* ---- a lane --------------------------------------------------------------------------------- */

#define WINDOW	   2
#define UNIT_BYTES 64

static struct ha_lane lane;
static void *memory;

static int make_lane(void **state)
{
	const struct ha_lane_shape shape = {2, true, WINDOW, UNIT_BYTES};

	(void)state;
	memory = malloc(ha_lane_bytes(&shape));
	ha_lane_init(&lane, &shape, memory);
	return memory ? 0 : -1;
}

static int free_lane(void **state)
{
	(void)state;
	free(memory);
	return 0;
}

static void come(unsigned int child)
{
	const struct ha_contribution c = contribution(child);

	ha_lane_came(&lane, child, &c);
}

/* Everything that a target can be sent. */
static unsigned int post(unsigned int target)
{
	struct ha_unit_send send;
	unsigned int n = 0;

	for (; ha_lane_next_send(&lane, target, &send); n++)
		ha_lane_posted(&lane, target);
	return n;
}

static void a_child_may_be_a_window_ahead_of_what_is_reduced(void **state)
{
	(void)state;
	come(0);
	come(0);
	ha_lane_look(&lane);
	assert_int_equal(lane.reduced, 0);
	come(1);
	ha_lane_look(&lane);
	assert_int_equal(lane.reduced, 1);
	come(0);
	assert_int_equal(lane.fault, HA_LANE_SOUND);
	come(0);
	assert_int_equal(lane.fault, HA_LANE_OVERRUN);
	assert_int_equal(lane.fault_child, 0);
}

/* Results that a child has not acknowledged hold back what would overwrite them. */
static void a_result_waits_for_the_one_a_window_before(void **state)
{
	(void)state;
	for (int i = 0; i < WINDOW; i++)
		come(0), come(1);
	ha_lane_look(&lane);
	assert_int_equal(post(0), WINDOW);
	assert_int_equal(post(1), WINDOW);
	come(0), come(1);
	ha_lane_sent(&lane, 0);
	ha_lane_look(&lane);
	assert_int_equal(lane.reduced, WINDOW);
	assert_int_equal(post(0), 0);
	ha_lane_sent(&lane, 1);
	ha_lane_look(&lane);
	assert_int_equal(lane.reduced, WINDOW + 1);
	assert_int_equal(post(0), 1);
	assert_int_equal(lane.fault, HA_LANE_SOUND);
}

static void nothing_moves_after_a_fault(void **state)
{
	(void)state;
	come(0), come(1);
	ha_lane_sent(&lane, 0); /* of what was never posted */
	assert_int_equal(lane.fault, HA_LANE_BUG);
	ha_lane_look(&lane);
	assert_int_equal(lane.reduced, 0);
	assert_int_equal(post(0), 0);
	come(0);
	assert_int_equal(lane.fault, HA_LANE_BUG);
}

static void who_disagrees_is_named(void **state)
{
	struct ha_contribution c;

	(void)state;
	come(0);
	c = contribution(1);
	c.count = 1;
	ha_lane_came(&lane, 1, &c);
	assert_int_equal(lane.fault, HA_LANE_DISAGREES);
	assert_int_equal(lane.fault_child, 1);
}

static void a_unit_that_is_too_large_is_an_overrun(void **state)
{
	struct ha_contribution c;

	(void)state;
	c = contribution(0);
	c.count = UNIT_BYTES / sizeof(int32_t) + 1;
	ha_lane_came(&lane, 0, &c);
	assert_int_equal(lane.fault, HA_LANE_OVERRUN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_event_does_in_each_state_what_the_table_says),
	    cmocka_unit_test(a_child_contributes_once),
	    cmocka_unit_test(a_contribution_to_another_operation_is_refused),
	    cmocka_unit_test(a_unit_is_empty_when_no_send_reads_its_buffers),
	    cmocka_unit_test(results_are_what_is_sent),
	    cmocka_unit_test_setup_teardown(a_child_may_be_a_window_ahead_of_what_is_reduced,
					    make_lane, free_lane),
	    cmocka_unit_test_setup_teardown(a_result_waits_for_the_one_a_window_before, make_lane,
					    free_lane),
	    cmocka_unit_test_setup_teardown(nothing_moves_after_a_fault, make_lane, free_lane),
	    cmocka_unit_test_setup_teardown(who_disagrees_is_named, make_lane, free_lane),
	    cmocka_unit_test_setup_teardown(a_unit_that_is_too_large_is_an_overrun, make_lane,
					    free_lane),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
