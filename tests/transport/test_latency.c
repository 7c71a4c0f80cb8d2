/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_LATENCY_MS: what queue pairs take from a post to its completion is what the fabric takes,
 * at both ends; and where nobody asks for it nothing is posted. In virtual time.
 */
#include "harness.h"

#include "base/clock.h"
#include "transport/latency.h"

#define INTERVAL_MS 10
/* From one poll of both applications to the next, and what a thread that does not sleep takes. */
#define TURN_NS (20 * HA_NS_PER_US)

/* Something wakes a thread that sleeps. */
#define AWAKE_NS (5 * HA_NS_PER_MS)

static uint64_t sleep_until_ns[2]; /* of both background threads */

static void begin(struct pair *pair, int latency_ms, int nqps, unsigned rails, uint64_t one_way_ns)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->config.latency_ms = latency_ms;
	pair->config.ib_qps_per_connection = nqps;
	pair->fabric.rails = rails;
	pair->fabric.latency_ns = one_way_ns;
	pair_up(pair);
	assert_true(ha_comm_has_failover(pair->send));
	sleep_until_ns[0] = sleep_until_ns[1] = 0;
}

static void turn(struct pair *pair)
{
	sv_stepped_run(sv_stepped_now() + TURN_NS);
	for (int i = 0; i < 2; i++) {
		const uint64_t now_ns = sv_stepped_now(), latest_ns = now_ns + AWAKE_NS;

		if (now_ns < sleep_until_ns[i])
			continue;
		sleep_until_ns[i] = ha_progress_turn(pair->inst[i]->progress);
		if (sleep_until_ns[i] > latest_ns)
			sleep_until_ns[i] = latest_ns;
	}
}

static bool tested(struct ha_request **req)
{
	bool done = false;

	if (*req)
		assert_int_equal(ha_test(*req, &done, NULL), HA_OK);
	if (done)
		*req = NULL;
	return done;
}

/* Messages one after the other, polled for all the time. */
static unsigned exchange(struct pair *pair, unsigned ms)
{
	const uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;
	const size_t offset = 0, size = 1000;
	const int tag = 1;
	struct ha_request *recv = NULL, *send = NULL;
	bool sent = true, received = true;
	unsigned messages = 0;

	while (sv_stepped_now() < until_ns || !sent || !received) {
		if (sent && received) {
			recv = post_recv(pair, 1, &offset, &size, &tag);
			sent = received = false;
			messages++;
		}
		if (!sent && !send)
			send = try_send(pair, 0, size, tag);
		turn(pair);
		sent |= tested(&send);
		received |= tested(&recv);
	}
	return messages;
}

static const struct ha_hist *times(const struct ha_comm *comm, unsigned qp)
{
	return &ha_comm_path(comm)->latency->qps[qp].ns;
}

static void expect_times(const struct ha_comm *comm, unsigned qp, uint64_t least, uint64_t most,
			 uint64_t round_trip_ns)
{
	const struct ha_hist *ns = times(comm, qp);
	/* The thread spins for a millisecond, and then looks once in a millisecond. */
	const uint64_t late_ns =
	    round_trip_ns < HA_NS_PER_MS ? 3 * TURN_NS : HA_NS_PER_MS + 3 * TURN_NS;

	assert_in_range(ha_hist_samples(ns), least, most);
	assert_in_range(ha_hist_mean(ns), round_trip_ns, round_trip_ns + late_ns);
	assert_in_range(ns->max, round_trip_ns, round_trip_ns + late_ns);
}

static void what_the_fabric_takes_is_measured_on_each_queue_pair_at_both_ends(void **state)
{
	static const uint64_t one_way_us[] = {1, 100, 450, 2000};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		const uint64_t one_way_ns = one_way_us[i] * HA_NS_PER_US;
		struct pair pair;

		begin(&pair, INTERVAL_MS, 3, 1, one_way_ns);
		assert_true(exchange(&pair, 1000) > 100);
		for (unsigned qp = 0; qp < 3; qp++) {
			expect_times(pair.recv, qp, 20, 101, 2 * one_way_ns);
			expect_times(pair.send, qp, 20, 101, 2 * one_way_ns);
		}
		pair_close(&pair);
		assert_logged("queue pair 2 of path 0.1 on ");
		assert_logged(": post to completion mean ");
	}
}

static void where_nobody_asks_for_it_nothing_is_posted(void **state)
{
	struct pair pair;
	unsigned messages;

	(void)state;
	begin(&pair, 0, 1, 1, 1000);
	messages = exchange(&pair, 100);
	assert_null(ha_comm_path(pair.send)->latency);
	assert_null(ha_comm_path(pair.recv)->latency);
	assert_int_equal(pair.send->count.work_requests, messages);
	pair_close(&pair);
	assert_false(logged("post to completion"));
}

/* The thread looks for it, and does not sleep until it is there. */
static void an_application_that_polls_no_more_makes_it_no_longer(void **state)
{
	const size_t offset = 0, size = 1000;
	const int tag = 1;
	struct ha_request *recv;
	struct pair pair;

	(void)state;
	begin(&pair, INTERVAL_MS, 1, 1, 100 * HA_NS_PER_US);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	for (unsigned i = 0; i < 1000 * HA_NS_PER_MS / TURN_NS; i++)
		turn(&pair);
	expect_times(pair.recv, 0, 90, 101, 200 * HA_NS_PER_US);
	assert_int_equal(pair_finish(&pair, post_send(&pair, 0, size, tag), NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	pair_close(&pair);
}

/* A path that fails says what it has, and the next one begins anew. */
static void each_path_has_its_own(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair, INTERVAL_MS, 1, 2, 1000);
	for (unsigned i = 0; !pair_has_standby(&pair); i++) {
		assert_true(i < 5 * HA_NS_PER_S / TURN_NS);
		turn(&pair);
	}
	(void)exchange(&pair, 200);
	expect_times(pair.recv, 0, 8, 21, 2000);
	sv_stepped_link(0, 0, false);
	(void)exchange(&pair, 200);
	assert_int_equal(pair.recv->active, 1);
	expect_times(pair.recv, 0, 5, 21, 2000);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	pair_close(&pair);
	assert_logged("of path 0.1 on ");
	assert_logged("of path 1.1 on ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_the_fabric_takes_is_measured_on_each_queue_pair_at_both_ends),
	    cmocka_unit_test(where_nobody_asks_for_it_nothing_is_posted),
	    cmocka_unit_test(an_application_that_polls_no_more_makes_it_no_longer),
	    cmocka_unit_test(each_path_has_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
