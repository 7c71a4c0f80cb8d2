/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection and failure after failure: there is no limit on the number of failovers, nothing
 * is used up by them, and the order in which paths fail does not matter while one is left.
 */
#include "../seeded_random.h"
#include "world.h"

#include "../unit/cmocka_all.h"

#include "base/clock.h"

#define FAILOVERS	1000
#define GROUPS_PER_STEP 4
#define LIMIT_STEPS	200000

static struct world world;

static struct traffic *sender(void)
{
	return &world.connections[0].send.traffic;
}

static struct traffic *receiver(void)
{
	return &world.connections[0].recv.traffic;
}

static struct ha_comm *receiving_comm(void)
{
	return world.connections[0].recv.comm;
}

static void step_until(bool (*reached)(void), const char *what)
{
	for (unsigned i = 0; !reached(); i++) {
		if (i > LIMIT_STEPS || world_violation(&world) || world_error(&world) != HA_OK) {
			fprintf(stderr, "the end of the log:\n%s", world_log());
			fail_msg("%s: %s, error %d", what,
				 world_violation(&world) ? world_violation(&world) : "not reached",
				 world_error(&world));
		}
		world_step(&world);
	}
}

static bool protected(void)
{
	return world_protected(&world);
}

/* Everything that the applications were allowed to post is at its place. */
static bool delivered(void)
{
	return traffic_idle(sender()) && traffic_idle(receiver());
}

static void allow(unsigned groups)
{
	sender()->allowed += groups;
	receiver()->allowed += groups;
}

static void open_world(const struct scenario *scenario, bool e2e)
{
	const struct world_options options = {.scenario = scenario, .e2e = e2e};

	world_open(&world, &options);
	world_each_end (&world, end) {
		end->traffic.allowed = 0;
		end->traffic.strict = true;
	}
	step_until(protected, "a standby path after connect");
}

static void close_world(void)
{
	char violation[256] = "";

	world_check(&world);
	world_close(&world, violation, sizeof(violation));
	assert_string_equal(violation, "");
	world_free(&world);
}

static uint64_t failovers_of_receiver(void)
{
	return receiving_comm()->count.failovers;
}

static uint64_t failovers_wanted;

static bool switched(void)
{
	return failovers_of_receiver() >= failovers_wanted && delivered();
}

/* A link goes down under traffic, at another moment each time; the other path takes over. */
static void fail_active_path(unsigned round)
{
	uint32_t host = round & 1;
	unsigned rail = world_active_rail(&world, host);

	failovers_wanted = failovers_of_receiver() + 1;
	allow(GROUPS_PER_STEP);
	for (unsigned i = 0; i < mix(round) % 24; i++)
		world_step(&world);
	sv_stepped_link(host, rail, false);
	step_until(switched, "a failover");
	assert_int_equal(failovers_of_receiver(), failovers_wanted);
	assert_int_not_equal(world_active_rail(&world, host), rail);
	sv_stepped_link(host, rail, true);
	step_until(protected, "a standby path after a failover");
}

static void alternate(bool e2e)
{
	static const struct scenario scenario = {
	    .name = "alternating",
	    .rails = 2,
	    .connections = 1,
	    .plan = {.groups = FAILOVERS * GROUPS_PER_STEP + GROUPS_PER_STEP,
		     .window = 4,
		     .same_tags = true,
		     .nsizes = 6,
		     .sizes = {0, 1, 2500, 77, 1024, 1025}},
	};

	open_world(&scenario, e2e);
	for (unsigned round = 0; round < FAILOVERS; round++)
		fail_active_path(round);
	assert_int_equal(failovers_of_receiver(), FAILOVERS);
	assert_true(world_replays(&world) > FAILOVERS / 10); /* it was under traffic */
	/* And one more without a failure. */
	allow(GROUPS_PER_STEP);
	step_until(delivered, "the last messages");
	assert_int_equal(receiver()->reported, scenario.plan.groups);
	close_world();
}

static void a_thousand_alternating_failovers(void **state)
{
	(void)state;
	alternate(false);
}

static void a_thousand_alternating_failovers_end_to_end(void **state)
{
	(void)state;
	alternate(true);
}

/* ---- four paths ------------------------------------------------------------------------------ */

#define RAILS 4

static bool link_down[WORLD_HOSTS][RAILS];
static unsigned active_hit; /* failures of what was active */

static void set_link(uint32_t host, unsigned rail, bool up)
{
	sv_stepped_link(host, rail, up);
	link_down[host][rail] = !up;
}

/* Everything is at its place, and what is active works at both ends. */
static bool delivered_over_what_is_left(void)
{
	for (uint32_t host = 0; host < WORLD_HOSTS; host++)
		if (link_down[host][world_active_rail(&world, host)])
			return false;
	return delivered();
}

/*
 * The links of three rails go down in this order, counted from the active one, each at the end that
 * `ends` has a bit for, under traffic; then all come back.
 */
static void fail_in_order(const unsigned order[RAILS], unsigned ends)
{
	unsigned rails[RAILS];

	for (unsigned k = 0; k < RAILS; k++)
		rails[k] = (world_active_rail(&world, ends & 1) + order[k]) % RAILS;
	for (unsigned k = 0; k < RAILS - 1; k++) {
		allow(2);
		for (unsigned i = 0; i < (ends * 7 + k * 5 + order[0]) % 16; i++)
			world_step(&world);
		active_hit += world_active_rail(&world, ends >> k & 1) == rails[k];
		set_link(ends >> k & 1, rails[k], false);
		step_until(delivered_over_what_is_left, "messages over what is left of four paths");
	}
	for (unsigned k = 0; k < RAILS - 1; k++)
		set_link(ends >> k & 1, rails[k], true);
	step_until(protected, "a standby path after the links came back");
}

static void failures_in_any_order_on_four_paths(void **state)
{
	static const struct scenario scenario = {
	    .name = "any order",
	    .rails = RAILS,
	    .connections = 1,
	    .plan = {.groups = 24 * 8 * 3 * 2,
		     .window = 2,
		     .group = 1,
		     .nsizes = 4,
		     .sizes = {1500, 0, 2500, 300}},
	};
	unsigned orders = 0;

	(void)state;
	open_world(&scenario, false);
	for (unsigned code = 0; code < RAILS * RAILS * RAILS * RAILS; code++) {
		unsigned order[RAILS] = {code % 4, code / 4 % 4, code / 16 % 4, code / 64};
		unsigned seen = 0;

		for (unsigned k = 0; k < RAILS; k++)
			seen |= 1u << order[k];
		if (seen != (1u << RAILS) - 1)
			continue; /* not a permutation */
		orders++;
		for (unsigned ends = 0; ends < 8; ends++)
			fail_in_order(order, ends);
	}
	assert_int_equal(orders, 24);
	assert_true(active_hit >= 100);
	/* One that comes before the other end has confirmed the last one is part of that one. */
	assert_true(failovers_of_receiver() >= active_hit - active_hit / 20);
	assert_int_equal(receiver()->reported, scenario.plan.groups);
	close_world();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_thousand_alternating_failovers),
	    cmocka_unit_test(a_thousand_alternating_failovers_end_to_end),
	    cmocka_unit_test(failures_in_any_order_on_four_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
