/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worlds that walks draw: each is there, does what it is meant to do, and is survived.
 */
#include "fault.h"
#include "heal.h"
#include "run.h"

#include "../unit/cmocka_all.h"
#include "base/clock.h"
#include "failover/engine.h"
#include "instance/instance.h"
#include "liveness/liveness.h"

#include <string.h>

static struct world world;

static struct run_spec spec_of(const char *scenario, const char *fault, uint64_t at)
{
	struct run_spec spec = {.world = {.scenario = scenario_find(scenario)}};

	assert_non_null(spec.world.scenario);
	if (!fault)
		return spec;
	spec.nfaults = 1;
	spec.faults[0].fault = fault_find(fault);
	spec.faults[0].at = at;
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
	return result;
}

static uint64_t failovers_of(unsigned connection)
{
	return world.connections[connection].send.failovers;
}

/* What happens between two of them is nothing to the connection between the two others. */
static void three_hosts_are_a_ring_of_which_each_connection_has_its_own_fate(void **state)
{
	struct run_spec spec = spec_of("ring", "cut", 20), link = spec_of("ring", "link-s", 20);

	(void)state;
	spec.heal = link.heal = true;
	assert_true(play(&spec).healed);
	assert_int_equal(world.hosts, 3);
	for (unsigned i = 0; i < 3; i++) {
		const struct connection *c = &world.connections[i];

		assert_int_equal(c->send.host, i);
		assert_int_equal(c->recv.host, (i + 1) % 3);
		assert_int_not_equal(failovers_of(i), 0);
	}
	assert_true(play(&link).healed); /* of host 0: from it and to it */
	assert_int_not_equal(failovers_of(0), 0);
	assert_int_equal(failovers_of(1), 0);
	assert_int_not_equal(failovers_of(2), 0);
}

/* Nothing of the one before is taken for its own, by itself or by the peer. */
static void a_process_that_begins_anew_has_a_connection_that_delivers(void **state)
{
	static const char *const tried[] = {"restart-s", "restart-r"};

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		for (uint64_t at = 0; at < 120; at += 40) {
			struct run_spec spec = spec_of("window", tried[i], at);
			const struct connection *before, *anew;

			assert_int_equal(play(&spec).end, RUN_ERROR);
			assert_int_equal(world.nconnections, 2);
			before = &world.connections[0];
			anew = &world.connections[1];
			assert_true(i == 0 ? before->send.gone : before->recv.gone);
			assert_int_equal((i == 0 ? &before->recv : &before->send)->traffic.state,
					 TRAFFIC_FAILED);
			assert_int_equal(anew->send.traffic.state, TRAFFIC_DONE);
			assert_int_equal(anew->recv.traffic.state, TRAFFIC_DONE);
			assert_int_equal(anew->recv.traffic.reported, anew->recv.traffic.wanted);
		}
}

/* The new process has all that a world has which never knew another one, its peer no more than
 * that, and both the paths that they are to have. In the middle of a connect the peer gives up
 * first, which takes it 20 seconds. */
static void where_a_process_begins_anew_everything_heals(void **state)
{
	static const struct {
		const char *scenario, *restart;
		uint64_t at;
	} tried[] = {{"window", "restart-s", 40},  {"window", "restart-r", 40},
		     {"connect", "restart-r", 1},  {"in-turn", "restart-s", 30},
		     {"bundle", "restart-r", 200}, {"ring", "restart-s", 30}};

	(void)state;
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec spec = spec_of(tried[i].scenario, tried[i].restart, tried[i].at);

		spec.heal = true;
		assert_true(play(&spec).healed);
		assert_true(heal_began_anew(&world));
	}
}

/* There is room for one more connection: the second process stays dead. */
static void of_two_processes_that_begin_anew_at_once_one_has_a_connection(void **state)
{
	struct run_spec spec = spec_of("in-turn", "restart-s", 30);
	struct run_result result;

	(void)state;
	spec.faults[1].fault = fault_find("restart-r");
	spec.faults[1].at = 1;
	spec.nfaults = 2;
	run(&world, &spec, &result);
	assert_string_equal(result.wrong, "");
	assert_int_equal(result.fired, 1);
	assert_int_equal(world.nconnections, WORLD_CONNECTIONS);
}

/* The socket broke, so that somebody listens for the peer, and is dialled by others. */
static void strangers_are_turned_away_and_cost_nothing(void **state)
{
	static const char *const tried[] = {"stranger-web", "stranger-garbage", "stranger-silent",
					    "stranger-gone"};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct run_spec spec = spec_of("stream", "socket-r", 10);

		spec.heal = true; /* with every descriptor as before */
		spec.nfaults = 2;
		spec.faults[1].fault = fault_find(tried[i]);
		spec.faults[1].at = 2;
		assert_true(play(&spec).healed);
		assert_int_equal(world.turned_away != 0, i < 2);
	}
}

static void commands_that_take_long_make_a_nic_sick_for_as_long(void **state)
{
	struct run_spec spec = spec_of("connect", "sick-r", 4);

	(void)state;
	spec.heal = true;
	assert_true(play(&spec).healed);
	assert_non_null(strstr(world_log(), "commands to the device do not come back"));
	assert_non_null(strstr(world_log(), "commands to the device come back again"));
}

/* The visits of a connection that was made meanwhile would not see to it. */
static void heartbeats_whose_queue_pair_is_made_slowly_begin_when_it_is_there(void **state)
{
	static const char *const tried[] = {"slow-create_qp-s", "slow-create_qp-r", "slow-rtr-r",
					    "slow-create_cq-s"};

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		for (uint64_t at = 1; at < 3; at++) {
			struct run_spec spec = spec_of("connect", tried[i], at);

			spec.heal = true;
			assert_true(play(&spec).healed);
		}
}

/* What is made then is made on a device that is gone. */
static void
heartbeats_of_a_device_that_dies_while_they_are_made_begin_on_the_one_after_it(void **state)
{
	(void)state;
	for (uint64_t at = 2; at < 5; at++) {
		struct run_spec spec = spec_of("connect", "sick-s", at);

		spec.faults[spec.nfaults].fault = fault_find("kill-packet-s");
		spec.faults[spec.nfaults++].at = 2;
		spec.heal = true;
		assert_true(play(&spec).healed);
		assert_non_null(strstr(world_log(), "the queue pair of heartbeats takes long"));
		assert_non_null(strstr(world_log(), "the device is back"));
	}
}

/* A path over host 0's first port has heartbeats. */
static bool first_port_has_heartbeats(void)
{
	const struct ha_comm *comm = world.connections[0].send.comm;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && comm->failover->slots[p].port == 0 &&
		    comm->failover->links[p].live.session)
			return true;
	return false;
}

static void step_until(uint64_t until_ns, bool (*so)(void))
{
	while (sv_stepped_now() < until_ns && !(so && so()))
		world_step(&world);
}

/* Refused once, on a port that is away for so long after that: tried again when it is there, and
 * used when that is through. */
static void heartbeats_that_were_refused_begin_when_their_port_is_back(void **state)
{
	static const uint64_t away_ns[] = {0, 5 * HA_NS_PER_S};
	const struct run_spec spec = spec_of("connect", NULL, 0);
	char why[256] = "";

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		world_open(&world, &spec.world);
		assert_true(sv_stepped_fault_add("errno=ENOMEM verb=create_cq host=0 nth=2", why,
						 sizeof(why)) >= 0);
		while (!world_connected(&world))
			world_step(&world);
		assert_true(ha_liveness_refused(world.inst[0]->liveness, world_port(&world, 0, 0)));
		sv_stepped_link(0, 0, away_ns[i] == 0);
		step_until(sv_stepped_now() + away_ns[i], NULL);
		sv_stepped_link(0, 0, true);
		step_until(sv_stepped_now() + 110 * HA_NS_PER_MS, first_port_has_heartbeats);
		assert_true(first_port_has_heartbeats());
		world_close(&world, why, sizeof(why));
		assert_string_equal(why, "");
	}
}

static void an_application_that_is_in_a_call_takes_no_turns(void **state)
{
	const struct run_spec spec = spec_of("one", NULL, 0);
	char why[256] = "";

	(void)state;
	world_open(&world, &spec.world);
	world.blocked_until_ns[0] = sv_stepped_now() + 5 * HA_NS_PER_MS;
	while (!world_connected(&world))
		world_step(&world);
	assert_true(sv_stepped_now() >= 5 * HA_NS_PER_MS);
	world_close(&world, why, sizeof(why));
	assert_string_equal(why, "");
}

static uint64_t now_of(uint32_t host)
{
	world_act_as(host);
	return ha_now_ns();
}

static void clocks_that_are_apart_are_nobodys_business(void **state)
{
	static const char *const tried[] = {"link-s",	"wedge-r", "socket-s",
					    "freeze-r", "drain-s", "kill-s"};
	struct run_spec spec = spec_of("ring", NULL, 0);
	char why[256] = "";

	(void)state;
	spec.world.apart = true;
	world_open(&world, &spec.world);
	assert_true(now_of(1) - now_of(0) > 3600 * HA_NS_PER_S);
	assert_true(now_of(2) - now_of(1) > 3600 * HA_NS_PER_S);
	world_close(&world, why, sizeof(why));
	assert_string_equal(why, "");
	for (unsigned i = 0; i < sizeof(tried) / sizeof(tried[0]); i++) {
		struct run_spec one = spec_of("window", tried[i], 7);

		one.world.apart = one.heal = true;
		assert_true(play(&one).healed);
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
	    cmocka_unit_test(three_hosts_are_a_ring_of_which_each_connection_has_its_own_fate),
	    cmocka_unit_test(a_process_that_begins_anew_has_a_connection_that_delivers),
	    cmocka_unit_test(where_a_process_begins_anew_everything_heals),
	    cmocka_unit_test(of_two_processes_that_begin_anew_at_once_one_has_a_connection),
	    cmocka_unit_test(strangers_are_turned_away_and_cost_nothing),
	    cmocka_unit_test(commands_that_take_long_make_a_nic_sick_for_as_long),
	    cmocka_unit_test(heartbeats_whose_queue_pair_is_made_slowly_begin_when_it_is_there),
	    cmocka_unit_test(
		heartbeats_of_a_device_that_dies_while_they_are_made_begin_on_the_one_after_it),
	    cmocka_unit_test(heartbeats_that_were_refused_begin_when_their_port_is_back),
	    cmocka_unit_test(an_application_that_is_in_a_call_takes_no_turns),
	    cmocka_unit_test(clocks_that_are_apart_are_nobodys_business),
	};

	return cmocka_run_group_tests(tests, NULL, free_world);
}
