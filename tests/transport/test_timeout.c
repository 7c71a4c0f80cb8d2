/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The soft timeout: queues that accept everything and do nothing are noticed at either end, in time
 * and not before, and nothing else is.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "memory/mr.h"

#include <string.h>

#define MS HA_NS_PER_MS

static const size_t offset = 0, size = 50000;
static const int tag = 1;

static void begin(struct pair *pair, int rto_ms, int nqps)
{
	pair_init(pair);
	pair->config.rto_ms = rto_ms;
	pair->config.enable_backup = true;
	pair->config.ib_qps_per_connection = nqps;
	pair_up(pair);
	assert_true(ha_comm_has_failover(pair->send));
	transfer(pair, 100, 1);
	/* Until all of that is acknowledged. */
	for (int i = 0; i < 100; i++)
		pair_step(pair);
}

static uint32_t qpn(const struct ha_comm *comm, unsigned qp)
{
	return comm->paths[0]->qps[qp].qp->qp_num;
}

/* The path the connection began with is in use no more. */
static bool has_left(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->paths[0];

	return !path || path->generation != 1 || ha_path_stopped(path);
}

/* Milliseconds until the connection leaves its path; -1: it does not in so many. */
static int leaves_after(struct pair *pair, struct ha_comm *comm, int most)
{
	for (int ms = 0; ms < most; ms++) {
		if (has_left(comm))
			return ms;
		sv_stepped_run(sv_stepped_now() + MS);
		for (int i = 0; i < 2; i++)
			ha_instance_progress(pair->inst[i]);
	}
	return -1;
}

static void a_wedged_sender_is_noticed_after_the_timeout(void **state)
{
	static const int rtos[] = {40, 300}; /* the hardware gives up after half a second */

	(void)state;
	for (size_t i = 0; i < 2; i++)
		for (unsigned qp = 0; qp < 3; qp++) {
			struct pair pair;
			int ms;

			begin(&pair, rtos[i], 3);
			for (unsigned k = 0; k < 3; k++)
				assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
			sv_stepped_run_idle(1000);
			assert_true(sv_stepped_wedge(0, 0, qpn(pair.send, qp), false));
			for (unsigned k = 0; k < 3; k++)
				assert_non_null(try_send(&pair, 0, size, tag));
			ms = leaves_after(&pair, pair.send, 2000);
			assert_in_range(ms, rtos[i], rtos[i] * 5 / 4 + 2);
			pair_close(&pair);
		}
}

/* It is the only one who can: the sender has nothing posted. */
static void a_wedged_receiver_is_noticed_by_itself(void **state)
{
	(void)state;
	for (unsigned qp = 0; qp < 3; qp++) {
		struct pair pair;
		int ms;

		begin(&pair, 100, 3);
		assert_true(sv_stepped_wedge(1, 0, qpn(pair.recv, qp), false));
		assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
		ms = leaves_after(&pair, pair.recv, 1000);
		assert_in_range(ms, 100, 140);
		pair_close(&pair);
	}
}

static void a_wedged_flush_is_noticed(void **state)
{
	struct ha_request *flush;
	const int got = 100;
	struct pair pair;
	void *data;
	int ms;

	(void)state;
	begin(&pair, 100, 1);
	data = pair.to.bytes;
	pair.to.mr->host = false;
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	assert_true(sv_stepped_wedge(1, 0, pair.recv->paths[0]->flush.qp->qp_num, false));
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	ms = leaves_after(&pair, pair.recv, 1000);
	assert_in_range(ms, 100, 128);
	pair.to.mr->host = true;
	pair_close(&pair);
}

/* A receiver that waits for a slow sender watches its queues, a few times in a timeout. */
static void waiting_long_is_no_failure(void **state)
{
	uint64_t before, posted;
	struct pair pair;

	(void)state;
	begin(&pair, 100, 2);
	assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
	before = pair.recv->count.work_requests;
	assert_int_equal(leaves_after(&pair, pair.recv, 3000), -1);
	posted = pair.recv->count.work_requests - before;
	assert_in_range(posted, 2 * 30 * 3, 2 * 30 * 4 + 2); /* queue pairs, timeouts, times */
	assert_false(has_left(pair.send));
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	/* With nothing to wait for there is nothing to watch. */
	assert_int_equal(pair_finish(&pair, post_send(&pair, 0, size, tag), NULL), HA_OK);
	leaves_after(&pair, pair.recv, 100);
	before = pair.recv->count.work_requests;
	assert_int_equal(leaves_after(&pair, pair.recv, 1000), -1);
	assert_int_equal(pair.recv->count.work_requests, before);
	pair_close(&pair);
}

/* Everything completed while this process did not run: that is seen before anything is blamed. */
static void a_process_that_was_stopped_blames_nobody(void **state)
{
	struct pair pair;

	(void)state;
	for (int lap = 0; lap < 3; lap++) {
		struct ha_request *recv, *send;

		begin(&pair, 100, 1);
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		send = post_send(&pair, 0, size, tag);
		if (lap)
			for (int i = 0; i < 2; i++)
				ha_instance_progress(pair.inst[i]);
		if (lap == 2) { /* the last packets come after it, and 10 s */
			for (int i = 0; i < 5; i++)
				sv_stepped_step();
			assert_true(sv_stepped_fault_add("delay=1ms op=ack", captured_log,
							 sizeof(captured_log)) >= 0);
		}
		sv_stepped_run(sv_stepped_now() + 10000 * MS);
		for (int i = 0; i < 2; i++)
			ha_instance_progress(pair.inst[i]);
		assert_false(has_left(pair.send) || has_left(pair.recv));
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		pair_close(&pair);
	}
}

/* It completes as a whole, long after the timeout, and that is nobody's fault. */
static void a_large_message_takes_its_time(void **state)
{
	const size_t large = 3 << 20;
	struct ha_request *recv;
	struct pair pair;
	uint64_t from;

	(void)state;
	pair_init(&pair);
	pair.fabric.rate_mbps = 1500;
	pair.config.rto_ms = 5;
	pair.config.enable_backup = true;
	pair_up(&pair);
	recv = post_recv(&pair, 1, &offset, &large, &tag);
	assert_non_null(post_send(&pair, 0, large, tag));
	from = sv_stepped_now();
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_true(sv_stepped_now() - from > 3 * 5 * MS);
	assert_false(has_left(pair.send) || has_left(pair.recv));
	pair_close(&pair);
}

/* One path and the hardware's own retries: nothing is watched. */
static void without_failover_nobody_looks(void **state)
{
	struct pair pair;
	uint64_t before;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = false;
	pair.config.rto_ms = 10;
	pair_up(&pair);
	before = pair.recv->count.work_requests;
	assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
	assert_int_equal(leaves_after(&pair, pair.recv, 500), -1);
	assert_int_equal(pair.recv->count.work_requests, before + 1);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_wedged_sender_is_noticed_after_the_timeout),
	    cmocka_unit_test(a_wedged_receiver_is_noticed_by_itself),
	    cmocka_unit_test(a_wedged_flush_is_noticed),
	    cmocka_unit_test(waiting_long_is_no_failure),
	    cmocka_unit_test(a_process_that_was_stopped_blames_nobody),
	    cmocka_unit_test(a_large_message_takes_its_time),
	    cmocka_unit_test(without_failover_nobody_looks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
