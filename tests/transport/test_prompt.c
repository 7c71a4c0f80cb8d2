/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a failover takes when nothing is slow: turns of the background thread on a virtual
 * clock, as it would take them, beside an application that polls and so has the token whenever a
 * visit looks for it first. No step may wait for a tick.
 */
#include "harness.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/notes.h"

/* Between two turns: what a wake-up or the way over a socket may take. */
#define TURN_NS (10 * HA_NS_PER_US)
/* The shortest tick. */
#define TICK_NS HA_NS_PER_MS

static enum ha_poll_result (*real_visit)(struct ha_poller *poller);
static unsigned visits;

/* The application has the token at each first look, and has given it back at the second. */
static enum ha_poll_result contended_visit(struct ha_poller *poller)
{
	struct ha_comm *comm = ha_container_of(poller, struct ha_comm, poller);
	bool taken = visits++ % 2 == 0;
	enum ha_poll_result found;

	if (taken)
		assert_true(ha_token_try(comm));
	found = real_visit(poller);
	if (taken)
		ha_token_release(comm);
	return found;
}

static void contend(struct ha_comm *comm)
{
	real_visit = comm->poller.visit;
	comm->poller.visit = contended_visit;
}

static void leave_alone(struct ha_comm *comm)
{
	comm->poller.visit = real_visit;
}

/* A turn of both threads and whatever the fabric does meanwhile. */
static void turn(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		(void)ha_progress_turn(pair->inst[i]->progress);
	sv_stepped_run(sv_stepped_now() + TURN_NS);
}

static void turns(struct pair *pair, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		turn(pair);
}

static void protected_pair(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
	pair_wait_standby(pair);
	turns(pair, 50); /* everybody has found the tick of one that is idle */
}

static bool goes_on(const struct ha_comm *comm, uint32_t epoch)
{
	return comm->failover->epoch == epoch && comm->failover->state == HA_FO_ACTIVE &&
	       (comm->is_send || comm->failover->resumed);
}

/* From now until traffic may flow in `epoch` at both ends. */
static uint64_t time_to_move(struct pair *pair, uint32_t epoch)
{
	uint64_t begun_ns = sv_stepped_now();

	while (!goes_on(pair->send, epoch) || !goes_on(pair->recv, epoch)) {
		assert_true(sv_stepped_now() - begun_ns < HA_NS_PER_S);
		turn(pair);
	}
	return sv_stepped_now() - begun_ns;
}

static void a_failover_waits_for_no_tick(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;
		uint64_t took_ns;

		protected_pair(&pair);
		transfer(&pair, 5000, 1);
		visits = 0;
		contend(pair.send);
		contend(pair.recv);
		sv_stepped_link(host, 0, false);
		took_ns = time_to_move(&pair, 2);
		print_message("port of host %u down: %.0f us\n", host, (double)took_ns / 1e3);
		assert_true(visits > 4); /* they did get in the way */
		assert_true(took_ns < TICK_NS / 2);
		leave_alone(pair.send);
		leave_alone(pair.recv);
		transfer(&pair, 20000, 2);
		pair_close(&pair);
	}
}

/* A drain takes microseconds where it works, so nobody sleeps on it; where it does not, not long.
 */
static void a_drain_is_followed_closely_for_a_while(void **state)
{
	struct pair pair;
	struct ha_poller *poller;
	struct ha_path *path;

	(void)state;
	protected_pair(&pair);
	poller = &pair.send->poller;
	path = pair.send->paths[pair.send->active];
	assert_true(sv_stepped_wedge(0, 0, path->qps[0].qp->qp_num, true));
	assert_true(ha_token_try(pair.send));
	ha_failover_trigger(pair.send, path, HA_REASON_OPERATOR, "a test");
	ha_token_release(pair.send);
	(void)poller->visit(poller); /* tells the NIC, which is done at once */
	assert_true(ha_path_wait(path, 0));
	assert_int_equal(poller->visit(poller), HA_POLL_SOON);
	for (int us = 0; us < 800; us += 10)
		turn(&pair);
	assert_int_equal(pair.send->failover->state, HA_FO_FENCED); /* the peer waits for us */
	assert_int_equal(ha_progress_turn(pair.inst[0]->progress), 0);
	turns(&pair, 1);
	assert_true(ha_progress_turn(pair.inst[0]->progress) > sv_stepped_now());
	turns(&pair, 2 * HA_FENCE_NS / HA_NS_PER_MS); /* its queue pairs are destroyed */
	assert_true(goes_on(pair.send, 2));
	assert_int_not_equal(poller->visit(poller), HA_POLL_SOON);
	transfer(&pair, 20000, 2);
	pair_close(&pair);
}

/* A message, with nobody in the background. */
static void transfer_unseen(struct pair *pair)
{
	const size_t offset = 0, size = 3000;
	const int tag = 1;
	struct ha_request *recv = post_recv(pair, 1, &offset, &size, &tag), *send = NULL;
	bool sent = false, received = false;

	for (int i = 0; i < 1000 && !(sent && received); i++) {
		if (!send)
			send = try_send(pair, 0, size, tag);
		if (send && !sent)
			assert_int_equal(ha_test(send, &sent, NULL), HA_OK);
		if (!received)
			assert_int_equal(ha_test(recv, &received, NULL), HA_OK);
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_US);
	}
	assert_true(sent && received);
}

static uint64_t detection_ns(const struct ha_comm *comm)
{
	return comm->failover->now.trigger_ns - comm->failover->now.alive_ns;
}

/* What comes through between two visits of the background thread is life, too. */
static void the_last_sign_of_life_may_lie_between_two_visits(void **state)
{
	struct pair pair;

	(void)state;
	protected_pair(&pair);
	sv_stepped_run(sv_stepped_now() + 50 * HA_NS_PER_MS);
	transfer_unseen(&pair);
	sv_stepped_link(0, 0, false);
	(void)time_to_move(&pair, 2);
	assert_true(detection_ns(pair.send) < HA_NS_PER_MS);
	assert_true(detection_ns(pair.recv) < HA_NS_PER_MS);
	pair_close(&pair);
}

/* Nor does it take visits to know that the last one is long ago: polls look, too. */
static void polls_notice_life_without_visits(void **state)
{
	struct pair pair;
	uint64_t last_ns;

	(void)state;
	protected_pair(&pair);
	for (int i = 0; i < 100; i++) /* each takes a poll at least */
		transfer_unseen(&pair);
	last_ns = sv_stepped_now();
	assert_true(last_ns - pair.send->life.alive_ns < HA_NS_PER_MS);
	assert_true(last_ns - pair.recv->life.alive_ns < HA_NS_PER_MS);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_failover_waits_for_no_tick),
	    cmocka_unit_test(a_drain_is_followed_closely_for_a_while),
	    cmocka_unit_test(the_last_sign_of_life_may_lie_between_two_visits),
	    cmocka_unit_test(polls_notice_life_without_visits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
