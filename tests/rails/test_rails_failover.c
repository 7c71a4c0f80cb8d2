/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections on bundles: where they begin, which path stands by, and what becomes of data when a
 * rail is lost under it. Two hosts, two or three rails each, one thread, virtual time.
 */
#include "bundled.h"
#include "memory/mr.h"

static void a_bundle_is_one_device_that_begins_on_rail_0(void **state)
{
	struct pair pair;

	(void)state;
	bundled(&pair, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pair.inst[i]->devices->nbundles, 1);
		assert_null(ha_instance_port(pair.inst[i], 1));
	}
	assert_string_equal(nic_of(pair.send, 0), "sim0");
	assert_string_equal(nic_of(pair.recv, 0), "sim0");
	pair_wait_standby(&pair);
	assert_string_equal(nic_of(pair.send, standby_of(pair.send)), "sim1");
	assert_string_equal(nic_of(pair.recv, standby_of(pair.recv)), "sim1");
	transfer(&pair, 100000, 1);
	pair_close(&pair);
}

static void assert_alike(const struct pair *pair)
{
	const unsigned carry = pair->recv->recv->members | 1u << pair->recv->active;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (carry >> p & 1)
			assert_string_equal(nic_of(pair->send, p), nic_of(pair->recv, p));
}

/* In one subnet nothing else says which ports are cabled alike. */
static void what_carries_is_rail_i_to_rail_i(void **state)
{
	struct pair pair;

	(void)state;
	bundled_init(&pair, 3);
	pair.fabric.infiniband = true;
	pair_up(&pair);
	wait_members(&pair, 3);
	assert_alike(&pair);
	sv_stepped_link(1, 1, false); /* the receiver's rail 1 alone */
	pair_idle(&pair, 10);
	wait_members(&pair, 2);
	assert_alike(&pair);
	sv_stepped_link(1, 1, true);
	wait_members(&pair, 3);
	assert_alike(&pair);
	pair_close(&pair);
}

/* At each of the first 60 events of a message, at either end. */
static void a_rail_lost_in_mid_transfer_costs_no_byte(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		struct in_flight t;
		struct pair pair;
		int got = 0;

		bundled(&pair, 2);
		pair_wait_standby(&pair);
		t = pair_start(&pair);
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		sv_stepped_link(steps % 2, 0, false);
		assert_int_equal(pair_finish(&pair, t.recv, &got), HA_OK);
		assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
		assert_int_equal(got, 300000);
		assert_true(filled(pair.to.bytes, 300000, 5));
		for (uint32_t i = 0; i < 4; i++)
			transfer(&pair, 1 + i * 70000, i);
		assert_string_equal(nic_of(pair.send, pair.send->active), "sim1");
		assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim1");
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_close(&pair);
	}
}

/* The control rail is lost where ends take no turns, or where they do not shed whichever of two,
 * and whoever notices. */
static void what_carries_ends_with_the_epoch(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		const unsigned rail = steps / 2 % 2;
		const struct ha_comm *lost;
		struct in_flight t;
		uint64_t lost_ns;
		struct pair pair;
		int got = 0;

		bundled(&pair, 2);
		wait_members(&pair, 2);
		without_turns(&pair);
		if (rail != 0) {
			pair.send->features &= ~HA_FEATURE_SHED;
			pair.recv->features &= ~HA_FEATURE_SHED;
		}
		t = pair_start(&pair);
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		lost_ns = sv_stepped_now();
		sv_stepped_link(steps % 2, rail, false);
		assert_int_equal(finish_within_a_second(&pair, t.recv, &got), HA_OK);
		assert_int_equal(finish_within_a_second(&pair, t.send, NULL), HA_OK);
		/* At the event, not when something has not moved for too long. */
		assert_in_range(sv_stepped_now() - lost_ns, 0, 10 * HA_NS_PER_MS);
		assert_int_equal(got, 300000);
		assert_true(filled(pair.to.bytes, 300000, 5));
		for (uint32_t i = 0; i < 4; i++)
			transfer(&pair, 1 + i * 70000, i);
		for (unsigned p = 0; p < 2; p++) {
			assert_true(pair.send->failover->slots[p].fenced_gen >= 1);
			assert_true(pair.recv->failover->slots[p].fenced_gen >= 1);
		}
		lost = steps % 2 == 0 ? pair.send : pair.recv;
		assert_string_not_equal(nic_of(lost, lost->active), rail == 0 ? "sim0" : "sim1");
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.send->count.failovers, 1);
		pair_close(&pair);
	}
}

/* Rail 0 is down when the job starts: the device is there, and its connections begin on rail 1. */
static void a_connection_begins_on_rail_1_while_rail_0_is_down(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	strcpy(pair.config.rails, "sim0+sim1");
	pair_open(&pair);
	for (uint32_t host = 0; host < 2; host++)
		sv_stepped_link(host, 0, false);
	pair_idle(&pair, 10);
	pair_connect(&pair);
	assert_string_equal(nic_of(pair.send, pair.send->active), "sim1");
	assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim1");
	transfer(&pair, 100000, 1);
	pair_close(&pair);
}

/* However long nothing is cut: what is there is neither given back nor built again. */
static void rails_that_carry_nothing_stay(void **state)
{
	(void)state;
	for (uint32_t rails = 3; rails <= 4; rails++) {
		struct pair pair;

		bundled(&pair, rails);
		pair_wait_standby(&pair);
		for (uint32_t i = 0; i < 600; i++) {
			transfer(&pair, 1000, i);
			pair_idle(&pair, 5);
		}
		for (unsigned p = 0; p < rails; p++) {
			assert_non_null(pair.recv->paths[p]);
			assert_int_equal(pair.recv->paths[p]->generation, 1);
		}
		pair_close(&pair);
	}
}

static unsigned paths_of(const struct ha_comm *comm)
{
	unsigned n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		n += comm->paths[p] != NULL;
	return n;
}

/* Beside a port that is not of the bundle no rail carries: a second one would be there for nothing.
 */
static void off_the_bundle_one_rail_is_in_reserve(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 3;
	strcpy(pair.config.rails, "sim0+sim1");
	pair_up(&pair);
	wait_members(&pair, 2);
	for (uint32_t rail = 0; rail < 2; rail++)
		sv_stepped_link(0, rail, false);
	for (uint32_t i = 0; i < 40; i++) {
		transfer(&pair, 300000, i);
		pair_idle(&pair, 5);
	}
	assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim2");
	for (uint32_t rail = 0; rail < 2; rail++)
		sv_stepped_link(0, rail, true);
	for (uint32_t i = 0; i < 200; i++) {
		transfer(&pair, 300000, i);
		pair_idle(&pair, 5);
	}
	assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim2");
	assert_true(pair_has_standby(&pair));
	assert_int_equal(paths_of(pair.send), 2);
	assert_int_equal(paths_of(pair.recv), 2);
	pair_close(&pair);
}

/* Traffic of all sizes until the time is over; true: at both ends the active path is on `nic`. */
static bool goes_on_over(struct pair *pair, unsigned ms, const char *nic)
{
	for (unsigned i = 0; i < ms / 25; i++) {
		transfer(pair, 1 + i % 4 * 100000, i);
		pair_idle(pair, 25);
	}
	return !strcmp(nic_of(pair->send, pair->send->active), nic) &&
	       !strcmp(nic_of(pair->recv, pair->recv->active), nic);
}

/*
 * All paths that carry end with the epoch, so the next one begins on a path that is built
 * meanwhile. A pair that crosses is built beside it, may be there first, and would carry alone from
 * then on.
 */
static void what_carried_on_all_rails_goes_on_over_a_rail(void **state)
{
	(void)state;
	for (uint32_t turn = 0; turn < 8; turn++) {
		struct pair pair;

		bundled_init(&pair, 2);
		pair.fabric.seed = turn;
		pair.fabric.jitter_ns = 3000;
		pair_up(&pair);
		wait_members(&pair, 2);
		without_turns(&pair);
		sv_stepped_link(turn % 2, 0, false);
		assert_true(goes_on_over(&pair, 100, "sim1"));
		sv_stepped_link(turn % 2, 0, true);
		wait_members(&pair, 2);
		pair_close(&pair);
	}
}

static void going_back_goes_to_rail_0_at_once_although_it_carries(void **state)
{
	(void)state;
	for (uint32_t turn = 0; turn < 8; turn++) {
		struct pair pair;

		bundled_init(&pair, 2);
		pair.config.enable_failback = true;
		pair.fabric.seed = turn;
		pair.fabric.jitter_ns = 3000;
		pair_up(&pair);
		wait_members(&pair, 2);
		if (turn < 4)
			without_turns(&pair);
		sv_stepped_link(turn % 2, 0, false);
		assert_true(goes_on_over(&pair, 100, "sim1"));
		sv_stepped_link(turn % 2, 0, true);
		assert_true(goes_on_over(&pair, 1500, "sim0"));
		assert_int_equal(pair.recv->count.failovers, turn < 4 ? 2 : 1);
		pair_close(&pair);
	}
}

static void memory_is_registered_on_every_rail_at_once(void **state)
{
	struct pair pair;
	struct ha_mr *mr;

	(void)state;
	bundled(&pair, 3);
	assert_int_equal(ha_reg_mr(pair.send, pair.from.bytes, 65536, HA_MEM_HOST, 0, -1, &mr),
			 HA_OK);
	pair_settle(&pair);
	for (unsigned nic = 0; nic < 3; nic++)
		assert_int_not_equal(ha_mr_keys(mr, nic), 0);
	ha_dereg_mr(pair.send, mr);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_bundle_is_one_device_that_begins_on_rail_0),
	    cmocka_unit_test(what_carries_is_rail_i_to_rail_i),
	    cmocka_unit_test(a_rail_lost_in_mid_transfer_costs_no_byte),
	    cmocka_unit_test(what_carries_ends_with_the_epoch),
	    cmocka_unit_test(a_connection_begins_on_rail_1_while_rail_0_is_down),
	    cmocka_unit_test(rails_that_carry_nothing_stay),
	    cmocka_unit_test(off_the_bundle_one_rail_is_in_reserve),
	    cmocka_unit_test(what_carried_on_all_rails_goes_on_over_a_rail),
	    cmocka_unit_test(going_back_goes_to_rail_0_at_once_although_it_carries),
	    cmocka_unit_test(memory_is_registered_on_every_rail_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
