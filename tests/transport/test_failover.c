/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A failover from trigger to traffic on the next path, over two rails: two instances, one thread,
 * every event in its place. tests/fault breaks everything everywhere; this is the plain course.
 */
#include "failover/engine.h"
#include "failover/path_select.h"
#include "failover/shared.h"
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "device/queue_depth.h"
#include "memory/mr.h"

static void two_rails(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
}

static void a_standby_is_built_on_the_other_nic_in_the_background(void **state)
{
	struct pair pair;

	(void)state;
	two_rails(&pair);
	transfer(&pair, 1000, 1);
	pair_wait_standby(&pair);
	assert_int_equal(pair.recv->active, 0);
	assert_ptr_not_equal(pair.recv->paths[1]->nic, pair.recv->paths[0]->nic);
	assert_ptr_not_equal(pair.send->paths[1]->nic, pair.send->paths[0]->nic);
	transfer(&pair, 100000, 2);
	pair_close(&pair);
}

static void a_link_that_goes_down_moves_traffic_to_the_standby(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;

		two_rails(&pair);
		pair_wait_standby(&pair);
		transfer(&pair, 5000, 1);
		sv_stepped_link(host, 0, false);
		for (uint32_t i = 2; i < 10; i++)
			transfer(&pair, i * 1000, i);
		assert_int_equal(pair.recv->active, 1);
		assert_int_equal(pair.send->active, 1);
		assert_int_equal(pair.recv->failover->epoch, 2);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.send->count.failovers, 1);
		sv_stepped_link(host, 0, true);
		pair_wait_standby(&pair);
		sv_stepped_link(1 - host, 1, false);
		for (uint32_t i = 10; i < 20; i++)
			transfer(&pair, i * 1000, i);
		assert_int_equal(pair.recv->active, 0);
		assert_int_equal(pair.recv->failover->epoch, 3);
		pair_close(&pair);
	}
}

static void a_message_in_flight_is_replayed(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 40; steps++) {
		const size_t offset = 8192, size = 20000;
		const int tag = 7;
		struct ha_request *recv, *send;
		struct pair pair;
		int got = 0;

		two_rails(&pair);
		pair_wait_standby(&pair);
		fill(pair.from.bytes, size, 3);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		send = post_send(&pair, 0, size, tag);
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		sv_stepped_link(1, 0, false);
		assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		assert_int_equal(got, (int)size);
		assert_true(filled(pair.to.bytes + offset, size, 3));
		transfer(&pair, 3000, 4);
		pair_close(&pair);
	}
}

static void a_thousand_failovers_in_a_row(void **state)
{
	struct pair pair;

	(void)state;
	two_rails(&pair);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t rail = pair.recv->failover->slots[pair.recv->active].port;

		pair_wait_standby(&pair);
		rail = pair.recv->paths[pair.recv->active]->port->index == 0 ? 0 : 1;
		sv_stepped_link(i / 2 % 2, rail, false);
		transfer(&pair, 1 + i * 17 % 30000, i);
		sv_stepped_link(i / 2 % 2, rail, true);
	}
	assert_int_equal(pair.recv->count.failovers, 1000);
	assert_int_equal(pair.send->count.failovers, 1000);
	pair_close(&pair);
}

/*
 * A path is proved before the heartbeats of its ports are back. Its rail may go again in between,
 * and then nothing else tells.
 */
static void a_rail_that_goes_again_at_once_is_no_protection(void **state)
{
	(void)state;
	for (unsigned after_ms = 0; after_ms <= 300; after_ms += 20) {
		struct pair pair;

		two_rails(&pair);
		pair_wait_standby(&pair);
		pair_idle(&pair, 1000); /* heartbeats are up */
		sv_stepped_cut(0, true);
		pair_idle(&pair, 3000);
		assert_false(ha_path_select_has_standby(pair.send) ||
			     ha_path_select_has_standby(pair.recv));
		sv_stepped_cut(0, false);
		pair_wait_standby(&pair);
		pair_idle(&pair, after_ms);
		sv_stepped_cut(0, true);
		pair_idle(&pair, 3500);
		assert_false(ha_path_select_has_standby(pair.send));
		assert_false(ha_path_select_has_standby(pair.recv));
		transfer(&pair, 5000, after_ms);
		sv_stepped_cut(0, false);
		pair_idle(&pair, 5000);
		assert_true(ha_path_select_has_standby(pair.send) &&
			    ha_path_select_has_standby(pair.recv));
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_close(&pair);
	}
}

static uint64_t life(const struct ha_comm *comm)
{
	return atomic_load(&comm->life.seen) >> 8;
}

/*
 * Completions of the active path are life where its heartbeats are missed. A path in reserve that
 * fails at the same time, of the same cut, flushes its queues; that has nothing to say of the
 * active one.
 */
static void what_a_path_in_reserve_flushes_is_no_life_of_the_active_one(void **state)
{
	uint64_t send, recv;
	struct pair pair;

	(void)state;
	two_rails(&pair);
	pair_wait_standby(&pair);
	pair_idle(&pair, 1000);
	send = life(pair.send);
	recv = life(pair.recv);
	sv_stepped_link(0, 1, false);
	pair_idle(&pair, 1000);
	assert_false(pair_has_standby(&pair));
	/* Mail tells of it over the active path; its receives alone are more than that. */
	assert_in_range(life(pair.send) - send, 0, HA_RQ_DEPTH / 2);
	assert_in_range(life(pair.recv) - recv, 0, HA_RQ_DEPTH / 2);
	pair_close(&pair);
}

/*
 * Nor is an error: in a total outage probes fail one after the other, and other connections over
 * the same pairs of ports would never be told that these are silent.
 */
static void an_error_is_no_life(void **state)
{
	uint64_t send, recv, completions;
	struct in_flight message;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.outage_ms = pair.config.give_up_ms = 60000;
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	pair_wait_standby(&pair);
	pair_idle(&pair, 1000);
	message = pair_start(&pair);
	sv_stepped_cut(0, true);
	sv_stepped_cut(1, true);
	pair_idle(&pair, 5000);
	send = life(pair.send);
	recv = life(pair.recv);
	completions = pair.recv->count.completions;
	pair_idle(&pair, 5000);
	assert_true(pair.recv->count.completions > completions); /* of probes, with an error */
	assert_int_equal(life(pair.send), send);
	assert_int_equal(life(pair.recv), recv);
	sv_stepped_cut(0, false);
	sv_stepped_cut(1, false);
	assert_int_equal(pair_finish(&pair, message.recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, message.send, NULL), HA_OK);
	pair_close(&pair);
}

/* The path whose probe is under way; -1: none. */
static int probing(const struct ha_comm *recv)
{
	for (int p = 0; p < HA_MAX_PATHS; p++)
		if (recv->failover->slots[p].state == HA_SLOT_PROBING)
			return p;
	return -1;
}

static int fault(const char *rule)
{
	int id = sv_stepped_fault_add(rule, captured_log, sizeof(captured_log));

	assert_true(id >= 0);
	return id;
}

/*
 * Of a rail that comes back one end may be told before the other. Then the path in reserve that can
 * be had goes across the rails, and where they are not joined that one is tried for a second.
 */
static void a_rail_that_is_back_need_not_wait_for_a_worse_path(void **state)
{
	uint64_t matched, fired = 0;
	const struct ha_slot *across;
	struct pair pair;
	int p, all, one;
	char rule[64];

	(void)state;
	two_rails(&pair);
	pair_wait_standby(&pair);
	for (uint32_t host = 0; host < 2; host++)
		sv_stepped_link(host, 1, false);
	pair_idle(&pair, 100);
	assert_false(pair_has_standby(&pair));
	all = fault("drop rail=1");
	sv_stepped_link(1, 1, true);
	pair_idle(&pair, 20);
	p = probing(pair.recv);
	assert_true(p >= 0);
	across = &pair.recv->failover->slots[p];
	assert_int_not_equal(across->port, across->peer_port);
	snprintf(rule, sizeof(rule), "drop qpn=0x%x", pair.recv->paths[p]->qps[0].qp->qp_num);
	one = fault(rule);
	sv_stepped_fault_remove(all);
	sv_stepped_link(0, 1, true);
	pair_wait_standby(&pair);
	assert_int_equal(across->state, HA_SLOT_PROBING);
	assert_true(sv_stepped_fault_stats(one, &matched, &fired) && fired > 0);
	sv_stepped_link(0, 0, false);
	transfer(&pair, 5000, 1);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_close(&pair);
}

static const char *device(const struct ha_comm *comm)
{
	return comm->paths[comm->active]->nic->name;
}

/*
 * Each end uses another rail, as NCCL likes it. A dead switch then takes the path and the one with
 * the two other ports; what is left has to be built.
 */
static void a_cut_rail_under_a_path_across_the_rails_is_one_failover(void **state)
{
	(void)state;
	for (uint32_t rail = 0; rail < 2; rail++) {
		struct pair pair;

		pair_init(&pair);
		pair.config.enable_backup = true;
		pair.fabric.rails = 2;
		pair.listen_dev = 1;
		pair_up(&pair);
		pair_wait_standby(&pair);
		pair_idle(&pair, 1000); /* heartbeats are up */
		transfer(&pair, 5000, 1);
		sv_stepped_cut(rail, true);
		transfer(&pair, 20000, 2);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_string_equal(device(pair.recv), rail == 0 ? "sim1" : "sim0");
		assert_string_equal(device(pair.send), rail == 0 ? "sim1" : "sim0");
		pair_close(&pair);
	}
}

/* Two rails, and a soft timeout that notices before a heartbeat is overdue. */
static void with_a_short_timeout(struct pair *pair, int listen_dev)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->config.rto_ms = 60;
	pair->fabric.rails = 2;
	pair->listen_dev = listen_dev;
	pair_up(pair);
	pair_wait_standby(pair);
	pair_idle(pair, 1000);
	transfer(pair, 5000, 1);
}

/* A transfer while time passes as it does for threads, and not from one event to the next. */
static void transfer_slowly(struct pair *pair, size_t size, uint32_t seed)
{
	const size_t offset = 4096;
	const int tag = (int)seed;
	struct ha_request *recv = post_recv(pair, 1, &offset, &size, &tag), *send = NULL;
	bool received = false, sent = false;

	fill(pair->from.bytes, size, seed);
	for (int i = 0; i < 20000 && !(received && sent); i++) {
		sv_stepped_run(sv_stepped_now() + 100 * HA_NS_PER_US);
		for (int host = 0; host < 2; host++)
			ha_instance_progress(pair->inst[host]);
		if (!send)
			send = try_send(pair, 0, size, tag);
		if (send && !sent)
			assert_int_equal(ha_test(send, &sent, NULL), HA_OK);
		if (!received)
			assert_int_equal(ha_test(recv, &received, NULL), HA_OK);
	}
	assert_true(received && sent);
	assert_true(filled(pair->to.bytes + offset, size, seed));
}

/* As above, when nothing speaks against the path in reserve yet. */
static void the_choice_after_a_cut_does_not_depend_on_when_heartbeats_are_due(void **state)
{
	(void)state;
	for (unsigned phase_ms = 0; phase_ms < 220; phase_ms += 20)
		for (uint32_t rail = 0; rail < 2; rail++) {
			struct pair pair;

			with_a_short_timeout(&pair, 1);
			pair_idle(&pair, phase_ms);
			sv_stepped_cut(rail, true);
			transfer_slowly(&pair, 20000, 2);
			assert_int_equal(pair.recv->count.failovers, 1);
			assert_string_equal(device(pair.recv), rail == 0 ? "sim1" : "sim0");
			assert_string_equal(device(pair.send), rail == 0 ? "sim1" : "sim0");
			pair_close(&pair);
		}
}

/* It answers at once, when it is asked, and nothing is built that is not needed. */
static void a_path_in_reserve_that_works_is_taken_whenever_the_other_falls_silent(void **state)
{
	(void)state;
	for (unsigned phase_ms = 0; phase_ms < 220; phase_ms += 20) {
		struct pair pair;

		with_a_short_timeout(&pair, 0);
		pair_idle(&pair, phase_ms);
		sv_stepped_cut(0, true);
		transfer_slowly(&pair, 20000, 2);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.recv->active, 1);
		assert_int_equal(pair.recv->failover->slots[1].newest_gen, 1);
		assert_int_equal(pair.recv->failover->slots[2].newest_gen, 0);
		pair_close(&pair);
	}
}

/* The first to notice is a registration on the device, which has not said that it died. */
static void a_device_that_dies_before_memory_is_registered_on_it_is_left(void **state)
{
	const size_t offset = 8192, size = 20000;
	struct ha_request *recv, *send;
	struct ha_mr *fresh;
	struct pair pair;
	const int tag = 9;
	int got = 0;

	(void)state;
	two_rails(&pair);
	pair_wait_standby(&pair);
	sv_stepped_link(0, 0, false);
	transfer(&pair, 5000, 1);
	assert_int_equal(pair.send->active, 1);
	sv_stepped_link(0, 0, true);
	pair_wait_standby(&pair);
	assert_int_equal(ha_reg_mr(pair.send, pair.from.bytes, size, HA_MEM_HOST, 0, -1, &fresh),
			 HA_OK);
	fill(pair.from.bytes, size, 3);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	sv_stepped_run(sv_stepped_now() + 20 * HA_NS_PER_US); /* the clear-to-send is there */
	sv_stepped_kill(0, 1);
	assert_int_equal(ha_isend(pair.send, pair.from.bytes, size, tag, fresh, &send), HA_OK);
	assert_non_null(send);
	assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_true(filled(pair.to.bytes + offset, size, 3));
	assert_int_equal(pair.send->active, 0);
	ha_dereg_mr(pair.send, fresh);
	pair_close(&pair);
}

/* What NCCL does when it gives up, here in the middle of a failover. */
static void memory_that_is_deregistered_during_a_failover_is_not_touched(void **state)
{
	(void)state;
	for (unsigned rounds = 0; rounds < 12; rounds++) {
		const size_t offset = 0, size = 20000;
		const int tag = 1;
		struct pair pair;

		two_rails(&pair);
		pair_wait_standby(&pair);
		for (int i = 0; i < 8; i++)
			assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
		for (int i = 0; i < 4; i++)
			assert_non_null(post_send(&pair, 0, size, tag));
		sv_stepped_link(1, 0, false);
		for (unsigned i = 0; i < rounds; i++) {
			ha_instance_progress(pair.inst[i % 2]);
			sv_stepped_step();
		}
		ha_dereg_mr(pair.recv, pair.to.mr);
		ha_dereg_mr(pair.send, pair.from.mr);
		pair.to.mr = pair.from.mr = NULL;
		assert_int_equal(ha_comm_error(pair.recv), HA_ERR_USAGE);
		pair_idle(&pair, 500);
		assert_int_equal(pair.recv->failover->state, HA_FO_LATCHED);
		pair_close(&pair);
	}
}

/* Paths other than the active one that are there or being made. */
static unsigned paths_in_reserve(const struct ha_comm *comm)
{
	unsigned n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		n += p != comm->active && comm->failover->slots[p].state != HA_SLOT_EMPTY;
	return n;
}

/* How long after now, in ms, the receiver begins to build one; `meanwhile` is called every ms. */
static unsigned ms_until_built(struct pair *pair, void (*meanwhile)(struct pair *pair))
{
	unsigned ms = 0;

	while (paths_in_reserve(pair->recv) == 0 && ms < 2000) {
		if (meanwhile)
			meanwhile(pair);
		pair_idle(pair, 1);
		ms++;
	}
	return ms;
}

static void another_connection_moves(struct pair *pair)
{
	ha_hold_off_moving(&pair->inst[1]->failover_shared->hold_off, sv_stepped_now());
}

/*
 * What is left of the old path and a new one in reserve take the device's and the thread's time,
 * which belongs to the connections of the process that have no path yet.
 */
static void a_path_in_reserve_is_built_when_the_others_have_moved(void **state)
{
	struct {
		void (*meanwhile)(struct pair *pair);
		unsigned at_least_ms, at_most_ms;
	} cases[] = {
	    {NULL, 40, 60},
	    {another_connection_moves, HA_HOLD_OFF_MAX_MS - 20, HA_HOLD_OFF_MAX_MS + 20},
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct pair pair;
		unsigned ms;

		two_rails(&pair);
		pair_wait_standby(&pair);
		transfer(&pair, 5000, 1);
		sv_stepped_link(1, 0, false);
		transfer_slowly(&pair, 5000, 2);
		assert_int_equal(pair.recv->active, 1);
		sv_stepped_link(1, 0, true); /* something to build on */
		ms = ms_until_built(&pair, cases[i].meanwhile);
		assert_in_range(ms, cases[i].at_least_ms, cases[i].at_most_ms);
		pair_wait_standby(&pair);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_standby_is_built_on_the_other_nic_in_the_background),
	    cmocka_unit_test(a_link_that_goes_down_moves_traffic_to_the_standby),
	    cmocka_unit_test(a_message_in_flight_is_replayed),
	    cmocka_unit_test(a_rail_that_goes_again_at_once_is_no_protection),
	    cmocka_unit_test(what_a_path_in_reserve_flushes_is_no_life_of_the_active_one),
	    cmocka_unit_test(an_error_is_no_life),
	    cmocka_unit_test(a_rail_that_is_back_need_not_wait_for_a_worse_path),
	    cmocka_unit_test(a_cut_rail_under_a_path_across_the_rails_is_one_failover),
	    cmocka_unit_test(the_choice_after_a_cut_does_not_depend_on_when_heartbeats_are_due),
	    cmocka_unit_test(a_path_in_reserve_that_works_is_taken_whenever_the_other_falls_silent),
	    cmocka_unit_test(a_device_that_dies_before_memory_is_registered_on_it_is_left),
	    cmocka_unit_test(memory_that_is_deregistered_during_a_failover_is_not_touched),
	    cmocka_unit_test(a_thousand_failovers_in_a_row),
	    cmocka_unit_test(a_path_in_reserve_is_built_when_the_others_have_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
