/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NIC that the kernel takes away, one whose driver says more than it does, and queue pairs that
 * cannot be stopped or destroyed at the first try: connections go on over another path, and nothing
 * is written that is not known to be over. In virtual time.
 */
#include "harness.h"
#include "instance/instance.h"
#include "traffic.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "transport/complete.h"
#include "transport/fence.h"

#include <stdio.h>
#include <string.h>

static const size_t offset = 4096, size = 300000;
static const int tag = 1;

/* ---- one path, without failover: the fence alone ------------------------------------------- */

static enum ha_fence fence_is(struct ha_comm *comm)
{
	enum ha_fence fence;

	ha_token_acquire(comm);
	(void)ha_path_wait(comm->paths[0], 0);
	fence = ha_path_fenced(comm, comm->paths[0], ha_now_ns());
	(void)ha_path_wait(comm->paths[0], 0);
	if (fence == HA_FENCE_PENDING)
		fence = ha_path_fenced(comm, comm->paths[0], ha_now_ns());
	ha_token_release(comm);
	return fence;
}

/* Both instances read what there is, and time passes, in steps of a millisecond. */
static void go_on(struct pair *pair, unsigned ms)
{
	for (unsigned i = 0; i < ms; i++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		(void)ha_instance_progress(pair->inst[0]);
		(void)ha_instance_progress(pair->inst[1]);
	}
}

/* A device that leaves has left: what is closed then keeps nothing. */
static void let_end(struct pair *pair, uint32_t host, uint32_t rail)
{
	sv_stepped_kill(host, rail);
	go_on(pair, 30);
}

/* Rail 0's device at this end. */
static bool is_dead(const struct ha_comm *comm)
{
	return atomic_load(&ha_instance_devices(comm->inst)->nics[0].fatal);
}

static unsigned queue_pairs(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->paths[0];
	unsigned n = path->flush.qp != NULL;

	for (unsigned i = 0; i < path->nqps; i++)
		n += path->qps[i].qp != NULL;
	return n;
}

/* The kernel answers EIO from the first moment on; the queue pairs end later. */
static void eio_is_no_fence_before_the_device_has_ended(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++)
		for (unsigned early = 0; early < 2; early++) { /* as kernels before 5.7 have it */
			struct pair pair;
			struct ha_comm *comm;
			uint32_t host = (uint32_t)end;
			uint64_t died_ns;

			pair_init(&pair);
			pair_up(&pair);
			transfer(&pair, 1000, 1);
			comm = end ? pair.recv : pair.send;
			sv_stepped_disassociate(host, 0, 15 * HA_NS_PER_MS);
			if (early)
				sv_stepped_raise(host, 0, IBV_EVENT_DEVICE_FATAL);
			assert_int_equal(fence_is(comm), HA_FENCE_PENDING);
			for (unsigned ms = 0; ms < 14; ms++) {
				go_on(&pair, 1);
				assert_int_equal(fence_is(comm), HA_FENCE_PENDING);
			}
			assert_int_equal(is_dead(comm), early);
			go_on(&pair, 2);
			assert_true(is_dead(comm));
			died_ns = atomic_load(&comm->paths[0]->on->died_ns);
			while (sv_stepped_now() < died_ns + HA_LEAVING_NS) {
				assert_int_equal(fence_is(comm), HA_FENCE_PENDING);
				go_on(&pair, 1);
			}
			assert_int_equal(fence_is(comm), HA_FENCE_DONE);
			assert_int_equal(queue_pairs(comm), 0);
			assert_int_equal(comm->paths[0]->state, HA_PATH_FENCED);
			pair_close(&pair);
		}
}

/* A packet that comes meanwhile is written, so a fence that was claimed by then would be a lie. */
static void what_comes_before_the_end_is_written_and_counted(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	fill(pair.from.bytes, size, 5);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_step();
	sv_stepped_disassociate(1, 0, 5 * HA_NS_PER_MS);
	assert_int_equal(fence_is(pair.recv), HA_FENCE_PENDING);
	assert_false(filled(pair.to.bytes + offset, size, 5));
	sv_stepped_run(4 * HA_NS_PER_MS);
	assert_true(filled(pair.to.bytes + offset, size, 5));
	assert_int_equal(fence_is(pair.recv), HA_FENCE_PENDING);
	assert_int_equal(atomic_load(&recv->state), HA_REQ_DONE); /* heard of, too */
	(void)send;
	let_end(&pair, 1, 0);
	pair_close(&pair);
}

/* Where no event ever comes nothing is claimed, and nothing is an error: the peer's fence may do.
 */
static void eio_for_ever_is_no_fence_and_no_failure(void **state)
{
	struct pair pair;
	int rule;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	transfer(&pair, 1000, 1);
	add_rule("errno=EIO verb=err host=1");
	rule = add_rule("errno=EIO verb=destroy_qp host=1");
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(fence_is(pair.recv), HA_FENCE_PENDING);
		go_on(&pair, 10);
	}
	assert_true(fired(rule) > 10 && fired(rule) < 200); /* it is tried again, now and then */
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	assert_int_equal(captured_warnings, 0);
	sv_stepped_fault_remove(-1);
	go_on(&pair, 20);
	assert_int_equal(fence_is(pair.recv), HA_FENCE_DONE);
	pair_close(&pair);
}

/*
 * To move a queue pair to ERR fails once, for want of memory. Destroying it instead would throw
 * away what completes meanwhile, of which the peer has the acknowledgement.
 */
static void a_verb_that_fails_once_is_tried_again(void **state)
{
	static const char *const rules[] = {
	    "errno=ENOMEM verb=err host=1 nth=1",
	    "errno=EINTR verb=err host=1 nth=2",
	    "errno=ENOMEM verb=post_send host=1 nth=1",
	    "errno=ENOMEM verb=post_recv host=1 nth=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct pair pair;
		int rule;

		pair_init(&pair);
		pair.config.ib_qps_per_connection = 2;
		pair_up(&pair);
		transfer(&pair, 1000, 1);
		rule = add_rule(rules[i]);
		for (unsigned ms = 0; ms < 5 && fence_is(pair.recv) != HA_FENCE_DONE; ms++)
			go_on(&pair, 1);
		assert_int_equal(fired(rule), 1);
		assert_int_equal(fence_is(pair.recv), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(pair.recv), 2);
		assert_int_equal(pair.recv->count.fences_destroyed, 0);
		pair_close(&pair);
	}
}

/* At every moment of a message: what the sender has an acknowledgement of, the receiver has. */
static void nothing_acknowledged_is_swept_with_its_queue_pair(void **state)
{
	unsigned acknowledged = 0;

	(void)state;
	for (unsigned at = 0;; at++) {
		struct ha_request *recv;
		struct pair pair;
		bool finished;

		pair_init(&pair);
		pair_up(&pair);
		fill(pair.from.bytes, size, 5);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		(void)post_send(&pair, 0, size, tag);
		for (unsigned i = 0; i < at && sv_stepped_step(); i++)
			;
		finished = !sv_stepped_peek(&(struct sv_event_info){0});
		add_rule("errno=ENOMEM verb=err host=1 nth=1");
		/* The rest of the message arrives while the command is under way. */
		add_rule("wait=1ms verb=destroy_qp host=1");
		for (unsigned ms = 0; ms < 30 && fence_is(pair.recv) != HA_FENCE_DONE; ms++)
			sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		assert_int_equal(fence_is(pair.recv), HA_FENCE_DONE);
		sv_stepped_run_idle(1000000);
		ha_token_acquire(pair.send);
		ha_comm_poll(pair.send, 64);
		ha_token_release(pair.send);
		if (pair.send->count.messages == 1)
			assert_int_equal(atomic_load(&recv->state), HA_REQ_DONE);
		acknowledged += pair.send->count.messages == 1;
		sv_stepped_fault_remove(-1);
		pair_close(&pair);
		if (finished)
			break;
	}
	assert_true(acknowledged > 10);
}

/* ---- two rails: the connection goes on ------------------------------------------------------- */

static void two_rails(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
	pair_wait_standby(pair);
	pair_idle(pair, 1000); /* heartbeats are up */
	assert_int_equal(pair->recv->active, 0);
}

static bool both_active(const struct pair *pair, unsigned path)
{
	return pair->send->failover->state == HA_FO_ACTIVE &&
	       pair->recv->failover->state == HA_FO_ACTIVE && pair->send->active == path &&
	       pair->recv->active == path;
}

/* Some messages are through and some are under way. */
static void begin_traffic(struct traffic *t, struct pair *pair, unsigned seed)
{
	traffic_init(t, pair, MESSAGES, seed);
	for (unsigned i = 0; i < 40 + seed; i++) {
		applications(t);
		pair_advance(pair);
	}
	assert_true(t->received > 0 && !all_done(t));
}

/* Until both ends go on over the other path. */
static void goes_on_within(struct traffic *t, unsigned limit_ms)
{
	uint64_t since_ns = sv_stepped_now();

	while (!both_active(t->pair, 1)) {
		applications(t);
		pair_advance(t->pair);
		if (ha_comm_error(t->pair->send) || ha_comm_error(t->pair->recv))
			fail_msg("an error: %s", t->pair->log);
		if (sv_stepped_now() > since_ns + limit_ms * HA_NS_PER_MS)
			fail_msg("%s and %s after %u ms: %s",
				 ha_failover_state_name(t->pair->send->failover->state),
				 ha_failover_state_name(t->pair->recv->failover->state), limit_ms,
				 t->pair->log);
	}
}

/* Found by its event, or before by a verb that fails; at either end, at many moments. */
static void the_active_device_is_taken_away(void **state)
{
	static const uint64_t leaves_us[] = {0, 200, 1000, 5000, 30000};

	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		uint64_t leave_us = leaves_us[i / 2 % 5];
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		begin_traffic(&t, &pair, i / 10);
		sv_stepped_disassociate(i % 2, 0, leave_us * HA_NS_PER_US);
		goes_on_within(&t, (unsigned)(leave_us / 1000) + 60);
		finish(&t); /* every byte, once */
		go_on(&pair, 60);
		assert_int_equal(pair.send->count.failovers, 1);
		assert_int_equal(pair.recv->count.failovers, 1);
		transfer(&pair, 50000, i);
		pair_close(&pair);
	}
}

/* The kernel takes its time: the other end's fence, and a packet's lifetime, are enough. */
static void the_peers_fence_is_enough_while_the_device_leaves(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		begin_traffic(&t, &pair, i);
		sv_stepped_disassociate(i % 2, 0, 10 * HA_NS_PER_S);
		sv_stepped_link(i % 2, 0, false);
		goes_on_within(&t, 60);
		finish(&t);
		assert_false(is_dead(i % 2 ? pair.recv : pair.send));
		transfer(&pair, 50000, i);
		let_end(&pair, i % 2, 0);
		pair_close(&pair);
	}
}

/* Both ends' devices of the active path: each end's own word, when its device has ended. */
static void the_devices_of_both_ends_are_taken_away(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		begin_traffic(&t, &pair, i);
		sv_stepped_disassociate(0, 0, 3 * HA_NS_PER_MS);
		sv_stepped_disassociate(1, 0, i * HA_NS_PER_MS);
		goes_on_within(&t, 100);
		finish(&t);
		transfer(&pair, 50000, i);
		go_on(&pair, 40);
		pair_close(&pair);
	}
}

/* Its loss is the loss of protection and of nothing else. */
static void a_standby_whose_device_is_taken_away_costs_protection_alone(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		uint64_t leave_ns = i / 2 % 2 ? 2 * HA_NS_PER_MS : 5 * HA_NS_PER_S;
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		begin_traffic(&t, &pair, i);
		sv_stepped_disassociate(i % 2, 1, leave_ns);
		if (i / 4 % 2) /* noticed while the device still leaves */
			sv_stepped_link(i % 2, 1, false);
		finish(&t);
		pair_idle(&pair, 200);
		transfer(&pair, 50000, i);
		assert_int_equal(pair.recv->failover->epoch, 1);
		assert_int_equal(pair.recv->active, 0);
		assert_int_equal(pair.send->count.failovers + pair.recv->count.failovers, 0);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		if (leave_ns < HA_NS_PER_S)
			assert_false(pair_has_standby(&pair));
		let_end(&pair, i % 2, 1);
		pair_close(&pair);
	}
}

/* What comes to wedge the queue pair of a standby at this host, and to refuse to destroy it. */
static int refuse_standby(const struct pair *pair, uint32_t host)
{
	const struct ha_comm *comm = host ? pair->recv : pair->send;
	char rule[80];

	assert_true(sv_stepped_wedge(host, 1, comm->paths[1]->qps[0].qp->qp_num, true));
	snprintf(rule, sizeof(rule), "errno=EBUSY verb=destroy_qp host=%u rail=1", host);
	return add_rule(rule);
}

/* A standby that does not drain, and that the device refuses to destroy: the sender's, the
 * receiver's, or both, so that neither end's fence will do for the other's. */
static void a_standby_that_cannot_be_destroyed_fails_nothing(void **state)
{
	(void)state;
	for (uint32_t hosts = 1; hosts <= 3; hosts++) {
		const uint32_t host = hosts == 2;
		int busy[2] = {-1, -1};
		struct pair pair;

		two_rails(&pair);
		for (uint32_t h = 0; h < 2; h++)
			if (hosts >> h & 1)
				busy[h] = refuse_standby(&pair, h);
		sv_stepped_link(host, 1, false);
		pair_idle(&pair, 500);
		for (uint32_t h = 0; h < 2; h++)
			assert_true(busy[h] < 0 || fired(busy[h]) > 0);
		for (uint32_t i = 0; i < 5; i++)
			transfer(&pair, 50000, i);
		assert_int_equal(pair.recv->failover->epoch, 1);
		sv_stepped_link(host, 1, true);
		sv_stepped_fault_remove(-1); /* protected again when the device has let go */
		pair_wait_standby(&pair);
		transfer(&pair, 50000, 9);
		pair_close(&pair);
	}
}

/* ERR is refused for as long as it is asked for: that is not often, and then comes destroying. */
static void a_verb_that_goes_on_failing_is_not_tried_without_a_pause(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct traffic t;
		struct pair pair;
		char rule[80];
		int refused;

		two_rails(&pair);
		begin_traffic(&t, &pair, host);
		snprintf(rule, sizeof(rule), "errno=ENOMEM verb=err host=%u rail=0", host);
		refused = add_rule(rule);
		sv_stepped_link(host, 0, false);
		goes_on_within(&t, 60);
		finish(&t);
		assert_true(fired(refused) > 2 && fired(refused) < 60);
		transfer(&pair, 50000, host);
		pair_close(&pair);
	}
}

/* What is late when the receiver's driver says that all has ended: nothing lands in a buffer that
 * is the application's again, since the sender's fence is a real one. */
static void a_driver_that_says_more_than_it_does_is_survived(void **state)
{
	unsigned late = 0;

	(void)state;
	for (unsigned i = 0; i < 30; i++) {
		struct traffic t;
		struct pair pair;
		int rule;

		two_rails(&pair);
		begin_traffic(&t, &pair, i / 2);
		rule = add_rule("delay=15ms rail=0 op=write prob=0.3");
		for (unsigned k = 0; k < 10; k++) {
			applications(&t);
			pair_advance(&pair);
		}
		late += (unsigned)fired(rule);
		sv_stepped_feign(i % 2, 0, 10 * HA_NS_PER_S);
		sv_stepped_fault_remove(-1);
		goes_on_within(&t, 100);
		finish(&t);
		transfer(&pair, 50000, i);
		pair_close(&pair);
	}
	assert_true(late > 10);
}

/* ---- closing ------------------------------------------------------------------------------- */

/* Closing gives everything back that can be had, and waits for nobody. */
static void connections_of_a_device_that_has_left_are_closed(void **state)
{
	(void)state;
	for (uint32_t rail = 0; rail < 2; rail++) {
		struct pair pair;

		two_rails(&pair);
		sv_stepped_disassociate(0, rail, HA_NS_PER_MS);
		sv_stepped_disassociate(1, rail, HA_NS_PER_MS);
		for (uint32_t i = 0; i < 3; i++)
			transfer(&pair, 50000, i);
		pair_idle(&pair, 100);
		captured_warnings = 0;
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(eio_is_no_fence_before_the_device_has_ended),
	    cmocka_unit_test(what_comes_before_the_end_is_written_and_counted),
	    cmocka_unit_test(eio_for_ever_is_no_fence_and_no_failure),
	    cmocka_unit_test(a_verb_that_fails_once_is_tried_again),
	    cmocka_unit_test(nothing_acknowledged_is_swept_with_its_queue_pair),
	    cmocka_unit_test(the_active_device_is_taken_away),
	    cmocka_unit_test(the_peers_fence_is_enough_while_the_device_leaves),
	    cmocka_unit_test(the_devices_of_both_ends_are_taken_away),
	    cmocka_unit_test(a_standby_whose_device_is_taken_away_costs_protection_alone),
	    cmocka_unit_test(a_standby_that_cannot_be_destroyed_fails_nothing),
	    cmocka_unit_test(a_verb_that_goes_on_failing_is_not_tried_without_a_pause),
	    cmocka_unit_test(a_driver_that_says_more_than_it_does_is_survived),
	    cmocka_unit_test(connections_of_a_device_that_has_left_are_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
