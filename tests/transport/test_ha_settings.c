/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each variable of failure detection and recovery has the effect that docs/configuration.md says.
 * Two rails and a virtual clock, so that times are exact to the tick.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "transport/complete.h"
#include "transport/path.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <inttypes.h>
#include <string.h>

#define TICK_NS HA_NS_PER_MS

/* ---- the course of a test -------------------------------------------------------------------- */

static void begin(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
}

/* One tick of time with everything that falls into it. */
static void tick(struct pair *pair)
{
	sv_stepped_run(sv_stepped_now() + TICK_NS);
	for (int host = 0; host < 2; host++)
		ha_instance_progress(pair->inst[host]);
}

static void pass(struct pair *pair, unsigned ms)
{
	for (unsigned i = 0; i < ms; i++)
		tick(pair);
}

/* How long it takes until it is so, in ms; fails after `limit_ms`. */
static unsigned ms_until(struct pair *pair, bool (*is_so)(const struct pair *pair),
			 unsigned limit_ms)
{
	for (unsigned ms = 0; ms < limit_ms; ms++) {
		if (is_so(pair))
			return ms;
		tick(pair);
	}
	fail_msg("not so after %u ms; log:\n%s", limit_ms, pair->log);
	return limit_ms;
}

static bool has_switched(const struct pair *pair)
{
	return pair->send->count.failovers > 0 && pair->recv->count.failovers > 0;
}

static bool has_failed(const struct pair *pair)
{
	return ha_comm_error(pair->send) != HA_OK && ha_comm_error(pair->recv) != HA_OK;
}

/* Connected, with a standby that is proved, and heartbeats that have settled. */
static void up(struct pair *pair)
{
	pair_up(pair);
	ms_until(pair, pair_has_standby, 5000);
	transfer(pair, 5000, 1);
	pass(pair, 4u * (unsigned)pair->config.heartbeat_ms);
}

static uint32_t active_rail(const struct pair *pair)
{
	return (uint32_t)pair->recv->paths[pair->recv->active]->port->index;
}

static void cut_both_rails(bool cut)
{
	sv_stepped_cut(0, cut);
	sv_stepped_cut(1, cut);
}

/* ---- HA_NCCL_ENABLE_BACKUP ------------------------------------------------------------------- */

static void with_backup_a_dead_port_is_survived(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	up(&pair);
	sv_stepped_link(1, 0, false);
	transfer(&pair, 5000, 2);
	assert_int_equal(pair.recv->count.failovers, 1);
	assert_int_equal(active_rail(&pair), 1);
	pair_close(&pair);
}

static void without_backup_there_is_one_path_and_its_error(void **state)
{
	const size_t offset = 0, size = 5000;
	struct ha_request *recv, *send;
	const int tag = 1;
	struct pair pair;

	(void)state;
	begin(&pair);
	pair.config.enable_backup = false;
	pair_up(&pair);
	pass(&pair, 3000);
	for (unsigned p = 1; p < HA_MAX_PATHS; p++) {
		assert_null(pair.send->paths[p]);
		assert_null(pair.recv->paths[p]);
	}
	transfer(&pair, 5000, 1);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_cut(0, true);
	ms_until(&pair, has_failed, 20000);
	assert_int_not_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_not_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
}

/* ---- HA_NCCL_HEARTBEAT_MS -------------------------------------------------------------------- */

/*
 * Nothing is in flight, so nothing but heartbeats can notice: the next one, and what it asks then
 * in 50 ms, or where that takes as long the third one.
 */
static void a_silent_cut_is_noticed_by_heartbeats(void **state)
{
	static const int intervals_ms[] = {200, 50, 10}, least_ms[] = {40, 40, 20},
			 most_ms[] = {250, 100, 40};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct pair pair;
		unsigned took;

		begin(&pair);
		pair.config.heartbeat_ms = intervals_ms[i];
		up(&pair);
		sv_stepped_cut(0, true);
		took = ms_until(&pair, has_switched, 5000);
		assert_in_range(took, least_ms[i], most_ms[i]);
		assert_logged("heartbeats lost");
		transfer(&pair, 5000, 2);
		pair_close(&pair);
	}
}

/* ---- HA_NCCL_RTO_MS -------------------------------------------------------------------------- */

/* The queue pair takes work and does nothing; packets and heartbeats of others flow. */
static void a_wedged_queue_is_noticed_after_the_soft_timeout(void **state)
{
	static const int timeouts_ms[] = {40, 300}; /* the hardware gives up after half a second */

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const size_t offset = 0, size = 5000;
		struct ha_request *recv, *send;
		const int tag = 1;
		struct pair pair;
		unsigned took;

		begin(&pair);
		pair.config.rto_ms = timeouts_ms[i];
		up(&pair);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		tick(&pair);
		assert_true(sv_stepped_wedge(0, 0, pair.send->paths[0]->qps[0].qp->qp_num, false));
		send = try_send(&pair, 0, size, tag);
		assert_non_null(send);
		took = ms_until(&pair, has_switched, 10000);
		assert_in_range(took, timeouts_ms[i], timeouts_ms[i] * 5 / 4 + 10);
		assert_logged("no completion in time");
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		pair_close(&pair);
	}
}

/* ---- HA_NCCL_MAX_RETRIES, HA_NCCL_OUTAGE_MS ------------------------------------------------- */

static void an_outage_ends_in_an_error_at_its_deadline(void **state)
{
	static const struct {
		int rto_ms, max_retries, outage_ms;
		unsigned deadline_ms;
	} cases[] = {
	    {.rto_ms = 500, .max_retries = 2, .deadline_ms = 1000},
	    {.rto_ms = 500, .max_retries = 8, .deadline_ms = 4000},
	    {.rto_ms = 500, .max_retries = 2, .outage_ms = 3000, .deadline_ms = 3000},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair pair;
		unsigned took;

		begin(&pair);
		pair.config.rto_ms = cases[i].rto_ms;
		pair.config.max_retries = cases[i].max_retries;
		pair.config.outage_ms = cases[i].outage_ms;
		pair.config.give_up_ms = (int)cases[i].deadline_ms;
		up(&pair);
		cut_both_rails(true);
		took = ms_until(&pair, has_failed, 20000);
		/* Heartbeats notice after 2 s, the peer being silent everywhere; it runs from then.
		 */
		assert_in_range(took, cases[i].deadline_ms, cases[i].deadline_ms + 2600);
		pair_close(&pair);
	}
}

static void an_outage_shorter_than_allowed_is_survived(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	pair.config.outage_ms = pair.config.give_up_ms = 60000;
	up(&pair);
	cut_both_rails(true);
	pass(&pair, 30000);
	assert_false(has_failed(&pair));
	assert_logged("no path is left");
	cut_both_rails(false);
	transfer(&pair, 5000, 2);
	assert_true(pair.recv->count.outages > 0);
	pair_close(&pair);
}

/* ---- HA_NCCL_ENABLE_FAILBACK ---------------------------------------------------------------- */

static void the_preferred_path_is_gone_back_to_if_asked_for(void **state)
{
	(void)state;
	for (int failback = 0; failback < 2; failback++) {
		struct pair pair;

		begin(&pair);
		pair.config.enable_failback = failback;
		up(&pair);
		sv_stepped_link(0, 0, false);
		ms_until(&pair, has_switched, 2000);
		assert_int_equal(active_rail(&pair), 1);
		sv_stepped_link(0, 0, true);
		pass(&pair, 60000);
		assert_int_equal(active_rail(&pair), failback ? 0 : 1);
		assert_int_equal(pair.recv->count.failbacks, failback);
		assert_int_equal(pair.send->count.failbacks, failback);
		if (failback)
			assert_logged("preferred path is back");
		transfer(&pair, 5000, 2);
		pair_close(&pair);
	}
}

/* ---- HA_NCCL_COMPLETION --------------------------------------------------------------------- */

static bool is_done(struct ha_request *req)
{
	return atomic_load(&req->state) == HA_REQ_DONE;
}

/* The hardware has delivered and acknowledged; the receiver's software has not looked. */
static void end_to_end_a_send_waits_for_the_receivers_software(void **state)
{
	(void)state;
	for (int e2e = 0; e2e < 2; e2e++) {
		const size_t offset = 0, size = HA_RETAIN_MAX + 1; /* no copy is kept of it */
		struct ha_request *recv, *send;
		const int tag = 1;
		struct pair pair;

		begin(&pair);
		pair.config.completion = e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
		up(&pair);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		tick(&pair);
		send = try_send(&pair, 0, size, tag);
		assert_non_null(send);
		for (int i = 0; i < 20; i++) { /* the sender's side alone */
			sv_stepped_run(sv_stepped_now() + TICK_NS / 10);
			ha_instance_progress(pair.inst[0]);
		}
		assert_int_equal(is_done(send), !e2e);
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		pair_close(&pair);
	}
}

/* ---- HA_NCCL_POLL_STANDBY_INTERVAL ---------------------------------------------------------- */

static const struct ibv_cq *counted[2]; /* active, standby */
static unsigned polls[2];
static int (*real_poll)(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);

static int counting_poll(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc)
{
	for (int i = 0; i < 2; i++)
		polls[i] += cq == counted[i];
	return real_poll(cq, num_entries, wc);
}

static void the_standby_is_polled_once_an_interval(void **state)
{
	static const int intervals[] = {1, 20};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct pair pair;

		begin(&pair);
		pair.config.poll_standby_interval = intervals[i];
		up(&pair);
		for (int p = 0; p < 2; p++) {
			struct ibv_context *ctx = pair.send->paths[p]->nic->now->ctx;

			counted[p] = pair.send->paths[p]->cq;
			real_poll = ctx->ops.poll_cq;
			ctx->ops.poll_cq = counting_poll;
		}
		polls[0] = polls[1] = 0;
		ha_token_acquire(pair.send);
		for (int poll = 0; poll < 400; poll++)
			ha_comm_poll(pair.send, 1);
		ha_token_release(pair.send);
		for (int p = 0; p < 2; p++)
			pair.send->paths[p]->nic->now->ctx->ops.poll_cq = real_poll;
		assert_int_equal(polls[0], 400);
		assert_int_equal(polls[1], 400 / intervals[i]);
		pair_close(&pair);
	}
}

/* ---- HA_NCCL_USE_PROGRESS_THREAD ------------------------------------------------------------ */

/* With 0 the background thread completes nothing, but it still watches. */
static void failures_are_noticed_whoever_completes_requests(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	pair.config.use_progress_thread = HA_POLLS_NONE;
	up(&pair);
	sv_stepped_link(0, 0, false);
	ms_until(&pair, has_switched, 2000);
	transfer(&pair, 5000, 2);
	assert_int_equal(pair.recv->count.thread_completions, 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_backup_a_dead_port_is_survived),
	    cmocka_unit_test(without_backup_there_is_one_path_and_its_error),
	    cmocka_unit_test(a_silent_cut_is_noticed_by_heartbeats),
	    cmocka_unit_test(a_wedged_queue_is_noticed_after_the_soft_timeout),
	    cmocka_unit_test(an_outage_ends_in_an_error_at_its_deadline),
	    cmocka_unit_test(an_outage_shorter_than_allowed_is_survived),
	    cmocka_unit_test(the_preferred_path_is_gone_back_to_if_asked_for),
	    cmocka_unit_test(end_to_end_a_send_waits_for_the_receivers_software),
	    cmocka_unit_test(the_standby_is_polled_once_an_interval),
	    cmocka_unit_test(failures_are_noticed_whoever_completes_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
