/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When nothing fails any more everything comes back: what each run of `explore --heal` asks for,
 * shown one by one, so that what breaks it is named.
 */
#include "heal.h"
#include "run.h"

#include "../unit/cmocka_all.h"

#define FAILURES 3 /* of building a path, in a row */
#define ROUNDS	 4

static struct world world;

static struct run_spec spec_of(const char *scenario, const char *fault, uint64_t at)
{
	struct run_spec spec = {
	    .world = {.scenario = scenario_find(scenario)}, .heal = true, .nfaults = 1};

	spec.faults[0].fault = fault_find(fault);
	spec.faults[0].at = at;
	assert_non_null(spec.world.scenario);
	assert_non_null(spec.faults[0].fault);
	return spec;
}

static struct run_result play(const struct run_spec *spec)
{
	struct run_result result;

	run(&world, spec, &result);
	if (result.wrong[0] != '\0')
		fail_msg("%s", result.wrong);
	assert_int_equal(result.fired, spec->nfaults);
	assert_true(result.healed);
	return result;
}

static void a_path_in_reserve_is_there_again(void **state)
{
	static const char *const tried[] = {"link-s", "link-r", "cut", "standby-s", "broken-s"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of("window", tried[i], 5);

		play(&spec);
	}
}

static void a_device_that_comes_back_leaves_nothing_behind(void **state)
{
	static const char *const tried[] = {"kill-s", "kill-r", "removed-s", "feign-r"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of("groups", tried[i], 9);

		play(&spec);
	}
}

static void traffic_goes_back_to_its_preferred_path(void **state)
{
	struct run_spec spec = spec_of("window", "link-s", 5);
	struct run_result result;

	(void)state;
	spec.world.failback = true;
	result = play(&spec);
	assert_in_range(result.healed_ns, HA_NS_PER_S / 2, 2 * HA_NS_PER_S);
}

static void a_port_whose_address_changed_and_changed_back_is_preferred_again(void **state)
{
	static const char *const tried[] = {"gid-s", "gid-r"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of("four", tried[i], 0);

		spec.world.failback = true;
		play(&spec);
	}
}

/* The socket that replaces a broken one says the address as it is then, which is not for good. */
static void an_address_that_is_given_back_behind_a_new_socket_is_heard_of(void **state)
{
	struct run_spec spec = spec_of("window", "gid-s", 30);

	(void)state;
	spec.world.failback = true;
	spec.faults[1].fault = fault_find("socket-r");
	spec.faults[1].at = 44;
	spec.nfaults = 2;
	play(&spec);
}

static void sockets_and_drained_ports_are_there_again(void **state)
{
	static const char *const tried[] = {"socket-s", "socket-r", "drain-s", "drain-r"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of("window", tried[i], 20);

		play(&spec);
	}
}

/* ---- back-offs ------------------------------------------------------------------------------- */

static void step_until(bool (*so)(const struct world *world), const char *what)
{
	uint64_t begun_ns = sv_stepped_now();

	while (!so(&world)) {
		if (sv_stepped_now() - begun_ns > HEAL_NS)
			fail_msg("%s: not within %llu ms; the end of the log:\n%s", what,
				 (unsigned long long)(HEAL_NS / HA_NS_PER_MS), world_log());
		world_step(&world);
	}
}

static int rule;

static bool failed_in_a_row(const struct world *of)
{
	uint64_t matched, fired;

	(void)of;
	return sv_stepped_fault_stats(rule, &matched, &fired) && fired == FAILURES;
}

/* The link of the path in reserve goes and comes, and then its queue pair cannot be made. */
static void fail_to_build(void)
{
	char why[256];

	rule = sv_stepped_fault_add("errno=ENOMEM verb=create_qp host=1 rail=1 nth=1 count=3", why,
				    sizeof(why));
	if (rule < 0)
		fail_msg("%s", why);
	sv_stepped_link(1, 1, false);
	for (unsigned i = 0; i < 20; i++)
		world_step(&world);
	sv_stepped_link(1, 1, true);
	step_until(failed_in_a_row, "trying to build a path again after it failed");
}

static void a_pair_that_works_again_is_not_held_to_its_failures(void **state)
{
	const struct world_options options = {.scenario = scenario_find("window")};
	char wrong[512] = "";
	const struct health *unhurt = heal_unhurt(&world, &options, wrong, sizeof(wrong));

	(void)state;
	assert_string_equal(wrong, "");
	world_open(&world, &options);
	step_until(world_settled, "what is to be sent first");
	step_until(world_protected, "a path in reserve");
	for (unsigned round = 0; round < ROUNDS; round++) {
		fail_to_build();
		heal(&world, unhurt, HEAL_NS, wrong, sizeof(wrong));
		if (wrong[0] != '\0')
			fail_msg("round %u: %s", round, wrong);
	}
	world_close(&world, wrong, sizeof(wrong));
	assert_string_equal(wrong, "");
}

/* All ports of both ends lose their links at once, and get them back at once. */
static void switches_that_were_all_off_leave_nothing_behind(void **state)
{
	static const char *const scenario[] = {"window", "single", "four", "shared"};

	(void)state;
	for (unsigned i = 0; i < sizeof(scenario) / sizeof(scenario[0]); i++) {
		struct run_spec spec = spec_of(scenario[i], "switches", 12);

		play(&spec);
	}
}

/*
 * What fails does so while one connection closes and the next one opens: the first has a path
 * being built, or ports that are watched, when it goes. Nothing of it may be left.
 */
static void connections_that_close_during_faults_leave_nothing_behind(void **state)
{
	static const char *const tried[] = {"standby-s", "link-r",	     "flap-s",
					    "cut-brief", "socket-s",	     "kill-s",
					    "freeze-r",	 "removed-slowly-s", "standby-removed-r"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++)
		for (uint64_t at = 40; at <= 240; at += 20) {
			struct run_spec spec = spec_of("in-turn", tried[i], at);

			play(&spec);
		}
}

/*
 * Every slot is taken, both ports of the path that carried are in doubt, and one of them is
 * drained: pairs of ports are chosen by one order and make room for each other by the same one, or
 * a path would be built, given back and built again, thousands of times.
 */
static void a_path_that_made_room_is_not_built_again_at_once(void **state)
{
	static const struct {
		const char *fault;
		uint64_t at;
	} all[] = {{"drain-forced-s", 108}, {"freeze-s", 36}, {"cut", 131}, {"one-way-r", 31}};
	struct run_spec spec = spec_of("bundle3", all[0].fault, all[0].at);

	(void)state;
	spec.world.e2e = true;
	spec.world.seed = 1019431106;
	for (spec.nfaults = 1; spec.nfaults < sizeof(all) / sizeof(all[0]); spec.nfaults++) {
		spec.faults[spec.nfaults].fault = fault_find(all[spec.nfaults].fault);
		spec.faults[spec.nfaults].at = all[spec.nfaults].at;
	}
	play(&spec);
	assert_in_range(world.steps, 1, 6000);
}

/*
 * A queue pair that never drains: 20 ms after the peer's fence the connection waits for nothing any
 * more, and then it is still to be destroyed.
 */
static void a_fence_that_traffic_went_on_without_comes_to_its_end(void **state)
{
	struct run_spec spec = spec_of("three", "one-way-r", 66);

	(void)state;
	spec.world.e2e = true;
	spec.faults[1].fault = fault_find("event-PORT_ERR-r");
	spec.faults[1].at = 20;
	spec.faults[2].fault = fault_find("wedge-hard-s");
	spec.faults[2].at = 11;
	spec.nfaults = 3;
	play(&spec);
}

/* By a device that is well: a queue pair, a completion queue, the registration of a ring. */
static void what_is_not_given_back_at_once_is_asked_for_again(void **state)
{
	static const char *const tried[] = {"errno-destroy_qp-s", "errno-destroy_qp-r",
					    "errno-destroy_cq-s", "errno-destroy_cq-r",
					    "errno-dereg_mr-s",	  "errno-dereg_mr-r"};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of("one", "event-PORT_ERR-s", 3);

		spec.faults[1].fault = fault_find(tried[i]);
		spec.nfaults = 2;
		play(&spec);
	}
}

static int free_world(void **state)
{
	(void)state;
	world_free(&world);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_path_in_reserve_is_there_again),
	    cmocka_unit_test(a_device_that_comes_back_leaves_nothing_behind),
	    cmocka_unit_test(traffic_goes_back_to_its_preferred_path),
	    cmocka_unit_test(a_port_whose_address_changed_and_changed_back_is_preferred_again),
	    cmocka_unit_test(an_address_that_is_given_back_behind_a_new_socket_is_heard_of),
	    cmocka_unit_test(sockets_and_drained_ports_are_there_again),
	    cmocka_unit_test(switches_that_were_all_off_leave_nothing_behind),
	    cmocka_unit_test(connections_that_close_during_faults_leave_nothing_behind),
	    cmocka_unit_test(a_pair_that_works_again_is_not_held_to_its_failures),
	    cmocka_unit_test(a_path_that_made_room_is_not_built_again_at_once),
	    cmocka_unit_test(a_fence_that_traffic_went_on_without_comes_to_its_end),
	    cmocka_unit_test(what_is_not_given_back_at_once_is_asked_for_again),
	};

	return cmocka_run_group_tests(tests, NULL, free_world);
}
