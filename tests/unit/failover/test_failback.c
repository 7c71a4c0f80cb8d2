/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a path that works is left for a better one. The connection has a path for each of the first
 * two pairs of ports, and the second one is active; leaving is only counted.
 */
#include "../cmocka_all.h"

#include "fake_comm.h"

#include "base/clock.h"
#include "failover/failback.h"
#include "failover/notes.h"

#define MS HA_NS_PER_MS
#define S  HA_NS_PER_S

#define HOLD_MIN_NS (1 * S)
#define HOLD_MAX_MS 60000u
#define ASKED_NS    (10 * S)

/* When the preferred path came up. */
#define UP_NS (1000 * S)

enum { PREFERRED, OTHER, THIRD };

static struct {
	struct ha_failback back;
	unsigned left;
	enum ha_reason reason; /* of the last time */
} world;

void __wrap_ha_failover_leave(struct ha_comm *comm, enum ha_reason reason);
void __wrap_ha_failover_leave(struct ha_comm *comm, enum ha_reason reason)
{
	assert_ptr_equal(comm, &fake.comm);
	world.left++;
	world.reason = reason;
}

static void open_path(unsigned p)
{
	fake_open_path(p, p, p);
	fake.failover.slots[p].up_ns = UP_NS;
}

static int on_the_other_path(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	fake_comm_init();
	fake.config.enable_failback = true;
	open_path(PREFERRED);
	open_path(OTHER);
	fake.comm.active = OTHER;
	ha_failback_init(&world.back);
	return 0;
}

static uint64_t due_ns(void)
{
	return ha_failback_due_ns(&world.back, &fake.comm);
}

static bool leaves(uint64_t now_ns)
{
	unsigned before = world.left;

	ha_failback_visit(&world.back, &fake.comm, now_ns);
	assert_in_range(world.left, before, before + 1);
	return world.left > before;
}

static void set_drained(unsigned port, bool drained)
{
	fake_set_drained(port, drained);
	if (drained)
		ha_failback_drained(&world.back);
}

/* It went back; the preferred path has failed again since and come up at this time. */
static void comes_up_again(uint64_t now_ns)
{
	fake.comm.active = OTHER;
	fake.failover.slots[PREFERRED].up_ns = now_ns;
}

/* ---- by itself ------------------------------------------------------------------------------- */

static void the_better_path_is_taken_after_its_hold(void **state)
{
	(void)state;
	assert_int_equal(due_ns(), UP_NS + HOLD_MIN_NS);
	assert_false(leaves(UP_NS + HOLD_MIN_NS - 1));
	assert_true(leaves(UP_NS + HOLD_MIN_NS));
	assert_int_equal(world.reason, HA_REASON_FAILBACK);
}

static void what_is_not_better_or_not_up_is_not_taken(void **state)
{
	struct ha_slot *slot = &fake.failover.slots[PREFERRED];

	(void)state;
	slot->up_ns = 0;
	assert_int_equal(due_ns(), 0);
	assert_false(leaves(UP_NS + 100 * S));
	slot->up_ns = UP_NS;
	slot->state = HA_SLOT_PROBING;
	assert_int_equal(due_ns(), 0);
	slot->state = HA_SLOT_GOOD;
	fake_set_link(PREFERRED, false);
	assert_int_equal(due_ns(), 0);
	fake_set_link(PREFERRED, true);
	fake_set_peer_link(PREFERRED, false);
	assert_int_equal(due_ns(), 0);
	fake_set_peer_link(PREFERRED, true);
	assert_int_equal(due_ns(), UP_NS + HOLD_MIN_NS);
	/* From the preferred path there is nowhere better to go. */
	fake.comm.active = PREFERRED;
	assert_int_equal(due_ns(), 0);
	assert_false(leaves(UP_NS + 100 * S));
}

static void without_failback_nobody_goes_back_by_himself(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	assert_int_equal(due_ns(), 0);
	assert_false(leaves(UP_NS + 1000 * S));
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
}

static void of_two_better_paths_the_one_that_is_ready_first_counts(void **state)
{
	(void)state;
	open_path(THIRD);
	fake.comm.active = THIRD;
	fake.failover.slots[PREFERRED].up_ns = UP_NS + 5 * S;
	assert_int_equal(due_ns(), UP_NS + HOLD_MIN_NS);
	fake.failover.slots[PREFERRED].up_ns = UP_NS - 5 * S;
	assert_int_equal(due_ns(), UP_NS - 5 * S + HOLD_MIN_NS);
}

/* ---- the hold -------------------------------------------------------------------------------- */

static void fails_and_comes_up_again(uint64_t now_ns)
{
	ha_failback_failed(&world.back, now_ns);
	comes_up_again(now_ns);
}

static void the_hold_doubles_while_going_back_is_a_mistake(void **state)
{
	static const uint32_t holds_ms[] = {1000,  2000,	4000,	     8000,	 16000,
					    32000, HOLD_MAX_MS, HOLD_MAX_MS, HOLD_MAX_MS};
	uint64_t now_ns = UP_NS;

	(void)state;
	/* The first one has no mistake before it. */
	now_ns += world.back.hold_ms * MS;
	assert_true(leaves(now_ns));
	for (unsigned i = 1; i < sizeof(holds_ms) / sizeof(holds_ms[0]); i++) {
		now_ns += 10 * MS;
		fails_and_comes_up_again(now_ns);
		assert_int_equal(due_ns(), now_ns + holds_ms[i - 1] * MS);
		now_ns = due_ns();
		assert_false(leaves(now_ns - 1));
		assert_true(leaves(now_ns));
		assert_int_equal(world.back.hold_ms, holds_ms[i]);
	}
}

static void the_first_one_is_no_mistake_however_young_the_clock_is(void **state)
{
	(void)state;
	fake.failover.slots[PREFERRED].up_ns = 1 * S;
	assert_true(leaves(1 * S + HOLD_MIN_NS));
	assert_int_equal(world.back.hold_ms, 1000);
}

static void a_path_that_lasted_gets_the_short_hold_again(void **state)
{
	uint64_t back_ns;

	(void)state;
	assert_true(leaves(UP_NS + HOLD_MIN_NS));
	fails_and_comes_up_again(UP_NS + HOLD_MIN_NS + 10 * MS);
	back_ns = due_ns();
	assert_true(leaves(back_ns));
	assert_int_equal(world.back.hold_ms, 2000);
	/* A nanosecond less than a minute after that it is a mistake still. */
	fails_and_comes_up_again(back_ns + 60 * S - 1);
	back_ns = due_ns();
	assert_true(leaves(back_ns));
	assert_int_equal(world.back.hold_ms, 4000);
	fails_and_comes_up_again(back_ns + 60 * S);
	assert_true(leaves(due_ns()));
	assert_int_equal(world.back.hold_ms, 1000);
}

/* What comes after the failure is no time that the path was good: neither the other one's failures
 * nor the hold. */
static void only_the_first_failure_since_going_back_counts(void **state)
{
	uint64_t back_ns = UP_NS + HOLD_MIN_NS;

	(void)state;
	assert_true(leaves(back_ns));
	ha_failback_failed(&world.back, back_ns + 10 * MS);
	fails_and_comes_up_again(back_ns + 100 * S);
	assert_true(leaves(due_ns()));
	assert_int_equal(world.back.hold_ms, 2000);
}

/* ---- the operator ---------------------------------------------------------------------------- */

static void what_the_operator_asks_for_has_no_hold(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	ha_failback_ask(&world.back, UP_NS + 100 * MS);
	assert_true(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS + 100 * MS));
	assert_int_equal(due_ns(), UP_NS);
	assert_true(leaves(UP_NS + 100 * MS));
	assert_int_equal(world.reason, HA_REASON_FAILBACK);
	/* It was no failback by ourselves, so it is no mistake of ours either. */
	assert_int_equal(world.back.back_ns, 0);
	assert_int_equal(world.back.hold_ms, 1000);
	/* Once: what fails after that is not asked for. */
	comes_up_again(UP_NS + 200 * MS);
	assert_int_equal(due_ns(), 0);
}

static void what_the_operator_asks_for_holds_for_a_while(void **state)
{
	const uint64_t until_ns = UP_NS + ASKED_NS;

	(void)state;
	fake.config.enable_failback = false;
	fake.failover.slots[PREFERRED].up_ns = 0; /* it has yet to come up */
	ha_failback_ask(&world.back, UP_NS);
	assert_false(leaves(until_ns - 1));
	assert_true(ha_failback_wants_preferred(&world.back, &fake.comm, until_ns - 1));
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, until_ns));
	fake.failover.slots[PREFERRED].up_ns = until_ns - 1;
	assert_int_equal(due_ns(), until_ns - 1);
	assert_false(leaves(until_ns)); /* too late by then */
	assert_int_equal(due_ns(), 0);
}

static void what_the_operator_asks_for_is_forgotten_when_it_is_there(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	ha_failback_ask(&world.back, UP_NS);
	/* The path that was active failed meanwhile, and what it was left for is the preferred one.
	 */
	fake.comm.active = PREFERRED;
	assert_false(leaves(UP_NS + 1));
	comes_up_again(UP_NS + 2);
	assert_int_equal(due_ns(), 0);
}

static void the_operator_gets_something_better_only_where_the_preferred_path_cannot_be(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	open_path(THIRD);
	fake.comm.active = THIRD;
	fake.failover.slots[PREFERRED].up_ns = 0; /* it is on its way */
	ha_failback_ask(&world.back, UP_NS);
	assert_int_equal(due_ns(), 0);
	fake_set_peer_link(PREFERRED, false);
	assert_int_equal(due_ns(), UP_NS);
	fake_set_peer_link(PREFERRED, true);
	fake_set_peer_drained(PREFERRED, true);
	assert_int_equal(due_ns(), UP_NS);
	assert_true(leaves(UP_NS));
	assert_int_equal(world.reason, HA_REASON_FAILBACK);
}

static void the_preferred_path_is_wanted_only_where_it_is_possible(void **state)
{
	(void)state;
	assert_true(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
	fake_set_drained(PREFERRED, true);
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
	fake_set_drained(PREFERRED, false);
	fake_set_peer_drained(PREFERRED, true);
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
	fake_set_peer_drained(PREFERRED, false);
	atomic_store(&fake.nics[PREFERRED].fatal, true);
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
	atomic_store(&fake.nics[PREFERRED].fatal, false);
	fake.comm.active = PREFERRED;
	assert_false(ha_failback_wants_preferred(&world.back, &fake.comm, UP_NS));
}

static void a_drained_port_is_left_at_once(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	fake.comm.active = PREFERRED; /* dearer when drained than any other */
	set_drained(PREFERRED, true);
	assert_int_equal(due_ns(), UP_NS);
	assert_true(leaves(UP_NS + 1));
	assert_int_equal(world.reason, HA_REASON_OPERATOR);
	assert_int_equal(world.back.hold_ms, 1000);
	assert_int_equal(world.back.back_ns, 0);
}

static void a_drained_port_that_was_the_last_resort_is_left_after_the_hold(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	fake.comm.active = PREFERRED;
	set_drained(PREFERRED, true);
	assert_true(leaves(UP_NS));
	/* The other path failed, the drained port was all there was, and now it is up again. */
	fake.failover.slots[OTHER].up_ns = UP_NS + 5 * S;
	assert_int_equal(due_ns(), UP_NS + 5 * S + HOLD_MIN_NS);
	assert_false(leaves(UP_NS + 5 * S + HOLD_MIN_NS - 1));
	assert_true(leaves(UP_NS + 5 * S + HOLD_MIN_NS));
	assert_int_equal(world.reason, HA_REASON_OPERATOR);
}

static void a_drain_of_what_is_not_in_use_hurries_nobody_later(void **state)
{
	(void)state;
	fake.config.enable_failback = false;
	fake.comm.active = PREFERRED;
	set_drained(OTHER, true);
	assert_false(leaves(UP_NS + 1));
	/* Then it is the last resort, and after that the other one is up again. */
	comes_up_again(UP_NS + 5 * S);
	assert_int_equal(due_ns(), UP_NS + 5 * S + HOLD_MIN_NS);
}

static void nobody_goes_back_to_a_drained_port(void **state)
{
	(void)state;
	set_drained(PREFERRED, true);
	assert_int_equal(due_ns(), 0);
	ha_failback_ask(&world.back, UP_NS);
	assert_int_equal(due_ns(), 0);
	assert_false(leaves(UP_NS + 100 * S));
	/* With both drained it is as if none was. */
	set_drained(OTHER, true);
	assert_int_equal(due_ns(), UP_NS + HOLD_MIN_NS);
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup(NAME, on_the_other_path)
	const struct CMUnitTest tests[] = {
	    TEST(the_better_path_is_taken_after_its_hold),
	    TEST(what_is_not_better_or_not_up_is_not_taken),
	    TEST(of_two_better_paths_the_one_that_is_ready_first_counts),
	    TEST(without_failback_nobody_goes_back_by_himself),
	    TEST(the_hold_doubles_while_going_back_is_a_mistake),
	    TEST(the_first_one_is_no_mistake_however_young_the_clock_is),
	    TEST(a_path_that_lasted_gets_the_short_hold_again),
	    TEST(only_the_first_failure_since_going_back_counts),
	    TEST(what_the_operator_asks_for_has_no_hold),
	    TEST(what_the_operator_asks_for_holds_for_a_while),
	    TEST(what_the_operator_asks_for_is_forgotten_when_it_is_there),
	    TEST(the_operator_gets_something_better_only_where_the_preferred_path_cannot_be),
	    TEST(the_preferred_path_is_wanted_only_where_it_is_possible),
	    TEST(a_drained_port_is_left_at_once),
	    TEST(a_drained_port_that_was_the_last_resort_is_left_after_the_hold),
	    TEST(a_drain_of_what_is_not_in_use_hurries_nobody_later),
	    TEST(nobody_goes_back_to_a_drained_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
