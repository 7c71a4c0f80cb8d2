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
static unsigned dead_rail;    /* 1 and more: not even one there */
static bool nothing_is_routed, listener_is_blind;
static unsigned asked, refused;

/* In an address of the fabric the second byte is the rail, the last one the host's number and 1. */
static bool has_route(const uint8_t *own, const uint8_t *remote)
{
	if (listener_is_blind && own[15] == 2)
		return true;
	if (dead_rail && (own[13] == dead_rail - 1 || remote[13] == dead_rail - 1))
		return false;
	return !nothing_is_routed && (rails_are_routed || own[13] == remote[13]);
}

enum ha_route __wrap_ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16]);
enum ha_route __wrap_ha_route_ask(const struct ha_port_addr *own, const uint8_t remote_gid[16])
{
	bool found = has_route(own->gid.raw, remote_gid);

	asked++;
	refused += !found;
	return found ? HA_ROUTE_FOUND : HA_ROUTE_NONE;
}

static void fabric(struct pair *pair, uint32_t n)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	rails_are_routed = nothing_is_routed = listener_is_blind = false;
	dead_rail = 0;
	asked = refused = 0;
}

static void rails(struct pair *pair, uint32_t n)
{
	fabric(pair, n);
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

/* ---- the first path -------------------------------------------------------------------------- */

static const char *active_name(const struct ha_comm *comm)
{
	return comm->paths[comm->active]->nic->name;
}

/* NCCL asks for these two; the connection begins on `rail` at both ends, and nothing fails. */
static void begins_on(struct pair *pair, int connect_dev, int listen_dev, unsigned rail)
{
	const char *name = rail ? "sim1" : "sim0";

	pair->connect_dev = connect_dev;
	pair->listen_dev = listen_dev;
	pair_open(pair);
	pair_connect(pair);
	assert_int_equal(pair->recv->active, 0);
	assert_int_equal(pair->recv->paths[0]->generation, 1);
	assert_string_equal(active_name(pair->send), name);
	assert_string_equal(active_name(pair->recv), name);
	assert_int_equal(pair->send->port->index, connect_dev);
	assert_int_equal(pair->recv->port->index, listen_dev);
	transfer(pair, 70000, 1);
	pair_idle(pair, 500);
	transfer(pair, 70000, 2);
	assert_int_equal(pair->recv->count.failovers, 0);
	assert_true(refused > 0);
	pair_close(pair);
}

static void the_listener_takes_a_port_that_reaches_the_connectors(void **state)
{
	struct pair pair;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fabric(&pair, 2);
		begins_on(&pair, i, !i, (unsigned)i);
		assert_logged(i ? "sim0:1 does not reach the peer's port: a connection for it "
				  "begins on sim1:1"
				: "sim1:1 does not reach the peer's port: a connection for it "
				  "begins on sim0:1");
	}
}

static void the_connector_takes_another_port_if_the_listener_has_none_for_its_first(void **state)
{
	struct pair pair;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fabric(&pair, 2);
		dead_rail = 1;
		begins_on(&pair, 0, i, 1);
	}
}

static void the_connectors_kernel_is_asked_too(void **state)
{
	struct pair pair;

	(void)state;
	fabric(&pair, 2);
	listener_is_blind = true;
	begins_on(&pair, 0, 1, 1);
}

/* Connects until that ends, with what it ends. */
static ha_result_t connect_fails(struct pair *pair)
{
	ha_result_t result = HA_OK;

	pair_open(pair);
	assert_int_equal(ha_listen(pair->inst[1], 1, pair->handle, &pair->listen), HA_OK);
	for (int i = 0; i < 2000 && result == HA_OK; i++) {
		result =
		    ha_connect(pair->inst[0], 0, HA_TRAFFIC_CLASS_UNDEF, pair->handle, &pair->send);
		assert_null(pair->send);
		assert_int_equal(ha_accept(pair->listen, &pair->recv), HA_OK);
		assert_null(pair->recv);
	}
	ha_close_listen(pair->listen);
	pair->listen = NULL;
	assert_true(refused > 0);
	pair_close(pair);
	return result;
}

static void without_any_route_connect_says_between_which_ports(void **state)
{
	struct pair pair;

	(void)state;
	for (int variant = 0; variant < 4; variant++) {
		fabric(&pair, 2);
		pair.config.enable_backup = !(variant & 1);
		listener_is_blind = variant & 2;
		nothing_is_routed = true;
		assert_int_equal(connect_fails(&pair), HA_ERR_REMOTE);
		assert_logged("the kernel has no route between sim0:1 here and sim1:1 there");
		assert_logged("NCCL_CROSS_NIC=0");
	}
}

/* Its routes come with it. */
static void a_port_that_is_down_is_waited_for(void **state)
{
	struct pair pair;

	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		fabric(&pair, 2);
		dead_rail = 1;
		pair_open(&pair);
		sv_stepped_link(host, 1, false);
		pair_settle(&pair);
		pair_connect(&pair);
		pair_idle(&pair, 500);
		sv_stepped_link(host, 1, true);
		transfer(&pair, 70000, 1);
		assert_string_equal(active_name(pair.send), "sim1");
		assert_string_equal(active_name(pair.recv), "sim1");
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_listener_takes_a_port_that_reaches_the_connectors),
	    cmocka_unit_test(
		the_connector_takes_another_port_if_the_listener_has_none_for_its_first),
	    cmocka_unit_test(the_connectors_kernel_is_asked_too),
	    cmocka_unit_test(without_any_route_connect_says_between_which_ports),
	    cmocka_unit_test(a_port_that_is_down_is_waited_for),
	    cmocka_unit_test(a_pair_without_a_route_is_not_tried),
	    cmocka_unit_test(the_rail_that_is_left_is_taken_in_spite_of_many_that_lead_nowhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
