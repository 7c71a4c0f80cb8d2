/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rails that do not reach each other. The kernel's routes say so, here by a function that stands
 * for them, and then no connection spends its time on trying.
 */
#include "failover/engine.h"
#include "failover/shared.h"
#include "harness.h"

#include "device/route.h"

static bool rails_are_routed; /* to each other */
static unsigned asked, refused;

/* In an address of the fabric the second byte is the rail. */
enum ha_route __wrap_ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16]);
enum ha_route __wrap_ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16])
{
	bool found = rails_are_routed || own->gid.raw[13] == remote_gid[13];

	asked++;
	refused += !found;
	return found ? HA_ROUTE_FOUND : HA_ROUTE_NONE;
}

static void rails(struct pair *pair, uint32_t n)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	rails_are_routed = false;
	asked = refused = 0;
	pair_up(pair);
}

/* How often a queue pair of a path was to find its peer. */
static uint64_t tried(int rule)
{
	uint64_t matched, times;

	assert_true(sv_stepped_fault_stats(rule, &matched, &times));
	return times;
}

static void a_pair_without_a_route_is_not_tried(void **state)
{
	struct pair pair;
	uint64_t before;
	int counts;

	(void)state;
	rails(&pair, 2);
	pair_wait_standby(&pair);
	assert_true(asked > 0);
	transfer(&pair, 5000, 1);
	counts = add_rule("wait=1ns verb=rtr");
	before = tried(counts);
	/* What is left is a port of rail 1 here and one of rail 0 there. */
	sv_stepped_link(0, 0, false);
	sv_stepped_link(1, 1, false);
	pair_idle(&pair, 5000);
	assert_true(refused > 0);
	assert_int_equal(tried(counts), before);
	assert_logged("the kernel has no route from sim");
	assert_int_equal(pair.recv->count.failovers, 0);
	/* And when there is a way, it is found. */
	rails_are_routed = true;
	for (uint32_t i = 2; i < 6; i++)
		transfer(&pair, i * 5000, i);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 0);
	assert_int_equal(pair.send->paths[pair.send->active]->nic->index, 1);
	assert_true(tried(counts) > before);
	pair_close(&pair);
}

/* Cross pairs that would take the network seconds keep nobody from the rail that is left. */
static void the_rail_that_is_left_is_taken_in_spite_of_many_that_lead_nowhere(void **state)
{
	struct pair pair;

	(void)state;
	rails(&pair, 8);
	pair_wait_standby(&pair);
	transfer(&pair, 5000, 1);
	for (uint32_t rail = 0; rail < 8; rail++) {
		if (rail != 5)
			sv_stepped_link(rail % 2, rail, false);
	}
	for (uint32_t i = 2; i < 6; i++)
		transfer(&pair, i * 5000, i);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 5);
	assert_int_equal(pair.send->paths[pair.send->active]->nic->index, 5);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_pair_without_a_route_is_not_tried),
	    cmocka_unit_test(the_rail_that_is_left_is_taken_in_spite_of_many_that_lead_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
