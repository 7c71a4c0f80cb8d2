/* SPDX-License-Identifier: Apache-2.0 */
/* What a user sets has its effect, and what happens can be read from outside. */
#include "harness.h"
#include "instance/instance.h"

#include "base/stats.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "base/text.h"
#include "transport/path_connect.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- who polls ------------------------------------------------------------------------------- */

static unsigned state_of(const struct ha_request *req)
{
	return atomic_load(&req->state);
}

/* Everything arrives; nobody calls test; only the background thread's rounds run. */
static void leave_alone(struct pair *pair, struct ha_request **recv, struct ha_request **send)
{
	const size_t offset = 0, size = 1000;
	const int tag = 1;

	*recv = post_recv(pair, 1, &offset, &size, &tag);
	sv_stepped_run_idle(1000);
	*send = try_send(pair, 0, size, tag);
	assert_non_null(*send);
	sv_stepped_run_idle(1000);
	for (int i = 0; i < 10; i++)
		for (int host = 0; host < 2; host++)
			ha_instance_progress(pair->inst[host]);
}

static void the_progress_thread_completes_what_nobody_polls(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	leave_alone(&pair, &recv, &send);
	assert_int_equal(state_of(recv), HA_REQ_DONE);
	assert_int_equal(state_of(send), HA_REQ_DONE);
	assert_true(pair.recv->count.thread_completions > 0);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_close(&pair);
}

static void without_it_completions_wait_for_test(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.use_progress_thread = HA_POLLS_NONE;
	pair_up(&pair);
	leave_alone(&pair, &recv, &send);
	assert_int_equal(state_of(recv), HA_REQ_ACTIVE);
	assert_int_equal(state_of(send), HA_REQ_ACTIVE);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(pair.recv->count.thread_completions, 0);
	pair_close(&pair);
}

static void a_connection_that_is_polled_is_left_to_the_application(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	for (uint32_t i = 0; i < 50; i++)
		transfer(&pair, 1000, i); /* a round after each step, a test after each round */
	assert_int_equal(pair.recv->count.thread_completions, 0);
	assert_int_equal(pair.send->count.thread_completions, 0);
	pair_close(&pair);
}

/* Messages that have all arrived, and that nobody has looked for yet. */
static void arrive(struct pair *pair, struct ha_request **recv, int count, size_t size)
{
	for (int i = 0; i < count; i++) {
		const size_t offset = (size_t)i * 4096;
		const int tag = 1;

		recv[i] = post_recv(pair, 1, &offset, &size, &tag);
		sv_stepped_run_idle(1000);
		assert_non_null(try_send(pair, 0, size, tag));
		sv_stepped_run_idle(1000);
	}
}

static int seen(struct ha_request *const *recv, int count)
{
	int n = 0;

	for (int i = 0; i < count; i++)
		n += state_of(recv[i]) != HA_REQ_ACTIVE;
	return n;
}

/* Ten messages have arrived: how many calls or rounds does it take to see them? */
static int completions_of_one_step(bool by_test, int limit)
{
	struct ha_request *recv[10];
	struct pair pair;
	bool done;
	int n;

	pair_init(&pair);
	if (by_test)
		pair.config.test_max_poll = limit;
	else
		pair.config.poll_batch = limit;
	pair_up(&pair);
	arrive(&pair, recv, 10, 100);
	if (by_test)
		assert_int_equal(ha_test(recv[9], &done, NULL), HA_OK);
	else
		ha_instance_progress(pair.inst[1]);
	n = seen(recv, 10);
	pair_close(&pair);
	return n;
}

static void test_and_thread_take_at_most_what_they_are_allowed(void **state)
{
	(void)state;
	assert_int_equal(completions_of_one_step(true, 1), 1);
	assert_int_equal(completions_of_one_step(true, 4), 4);
	assert_int_equal(completions_of_one_step(true, 1000), 10);
	assert_int_equal(completions_of_one_step(false, 3), 3);
	assert_int_equal(completions_of_one_step(false, 256), 10);
}

/* A device that gives one completion at a time: the others come while the first is looked at. */
static int (*poll_all)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static int looks;

static int poll_one(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	looks++;
	return poll_all(cq, n < 1 ? n : 1, wc);
}

static void trickle(struct ha_comm *comm)
{
	struct ibv_context_ops *ops = &comm->paths[comm->active]->nic->now->ctx->ops;

	poll_all = ops->poll_cq;
	ops->poll_cq = poll_one;
	looks = 0;
}

/* Of five messages four have come. How often a test of message `wanted` looks at the queue, and
 * whether it is done then. */
static int looks_of_a_test(int limit, int wanted, bool *done)
{
	const size_t offset = (size_t)4 * 4096, size = 100;
	const int tag = 1;
	struct ha_request *recv[5];
	struct pair pair;
	int n;

	pair_init(&pair);
	pair.config.test_max_poll = limit;
	pair_up(&pair);
	arrive(&pair, recv, 4, size);
	recv[4] = post_recv(&pair, 1, &offset, &size, &tag);
	trickle(pair.recv);
	assert_int_equal(ha_test(recv[wanted], done, NULL), HA_OK);
	n = looks;
	assert_int_equal(seen(recv, 4), *done ? wanted + 1 : limit < 4 ? limit : 4);
	pair_close(&pair);
	return n;
}

static void a_test_looks_again_while_something_else_comes(void **state)
{
	bool done;

	(void)state;
	/* The first is there at once, and that is all that is looked for. */
	assert_int_equal(looks_of_a_test(32, 0, &done), 1);
	assert_true(done);
	assert_int_equal(looks_of_a_test(32, 3, &done), 4);
	assert_true(done);
	/* Nothing comes any more. */
	assert_int_equal(looks_of_a_test(32, 4, &done), 5);
	assert_false(done);
	/* No more than it may take. */
	assert_int_equal(looks_of_a_test(4, 4, &done), 4);
	assert_false(done);
	assert_int_equal(looks_of_a_test(2, 3, &done), 2);
	assert_false(done);
	assert_int_equal(looks_of_a_test(1, 3, &done), 1);
	assert_false(done);
}

/* Twenty messages in four parts have arrived: what a test of the last takes. */
static uint64_t completions_of_one_test(int limit, bool *done)
{
	struct ha_request *recv[20];
	struct pair pair;
	uint64_t before, taken;

	pair_init(&pair);
	pair.config.test_max_poll = limit;
	pair.config.ib_qps_per_connection = 4;
	pair.config.ib_split_data_on_qps = true;
	pair_up(&pair);
	arrive(&pair, recv, 20, 4096);
	before = pair.recv->count.completions;
	assert_int_equal(ha_test(recv[19], done, NULL), HA_OK);
	taken = pair.recv->count.completions - before;
	pair_close(&pair);
	return taken;
}

static void a_test_takes_several_batches_if_it_is_allowed_to(void **state)
{
	bool done;

	(void)state;
	assert_int_equal(completions_of_one_test(32, &done), 32);
	assert_false(done);
	assert_int_equal(completions_of_one_test(33, &done), 33);
	assert_false(done);
	assert_int_equal(completions_of_one_test(79, &done), 79);
	assert_false(done);
	assert_int_equal(completions_of_one_test(1024, &done), 80);
	assert_true(done);
}

/* ---- queue pairs ---------------------------------------------------------------------------- */

static struct ibv_qp_attr attributes(const struct ha_comm *comm)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(comm->paths[0]->qps[0].qp, &attr,
				      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_SQ_PSN |
					  IBV_QP_RQ_PSN | IBV_QP_PKEY_INDEX,
				      &init),
			 0);
	return attr;
}

static void queue_pairs_get_the_configured_attributes(void **state)
{
	struct ibv_qp_attr send, recv;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.rc_timeout = 17;
	pair.config.rc_retry_cnt = 3;
	pair.config.ib_tc = 106;
	pair.config.ib_sl = 5;
	pair_up(&pair);
	send = attributes(pair.send);
	recv = attributes(pair.recv);
	assert_int_equal(send.timeout, 17);
	assert_int_equal(send.retry_cnt, 3);
	assert_int_equal(send.rnr_retry, 7);
	assert_int_equal(recv.timeout, 17);
	assert_int_equal(send.ah_attr.sl, 5);
	assert_int_equal(recv.ah_attr.sl, 5);
	assert_int_equal(send.ah_attr.grh.traffic_class, 106);
	assert_int_equal(recv.ah_attr.grh.traffic_class, 106);
	/* Each end expects what the other starts with, and it is not the same both ways. */
	assert_int_equal(send.sq_psn & 0xffffff, recv.rq_psn & 0xffffff);
	assert_int_not_equal(send.sq_psn, recv.sq_psn);
	pair_close(&pair);
}

static void a_communicators_traffic_class_yields_to_the_sites(void **state)
{
	struct ha_config config = {.ib_sl = -1, .ib_tc = -1};

	(void)state;
	assert_int_equal(ha_path_tc(&config, HA_TRAFFIC_CLASS_UNDEF), 0);
	assert_int_equal(ha_path_tc(&config, 41), 41);
	assert_int_equal(ha_path_sl(&config, 3), 3);
	config.ib_tc = 106;
	config.ib_sl = 1;
	assert_int_equal(ha_path_tc(&config, 41), 106);
	assert_int_equal(ha_path_sl(&config, 3), 1);
}

static void incarnations_never_start_alike(void **state)
{
	uint32_t psn[20];
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	for (int i = 0; i < 20; i++) {
		psn[i] = attributes(pair.send).sq_psn & 0xffffff;
		for (int k = 0; k < i; k++)
			assert_int_not_equal(psn[i], psn[k]);
		ha_close_send(pair.send);
		ha_close_recv(pair.recv);
		pair.send = pair.recv = NULL;
		pair_connect(&pair);
	}
	pair_close(&pair);
}

/* ---- statistics ----------------------------------------------------------------------------- */

struct seen {
	struct nccl_ha_conn_stats send, recv;
	struct nccl_ha_port_stats port;
	int conns, ports;
};

static void read_stats(const char *path, struct seen *seen)
{
	struct ha_stats_reader reader;
	struct nccl_ha_conn_stats conn;
	struct nccl_ha_port_stats port;

	memset(seen, 0, sizeof(*seen));
	assert_int_equal(ha_stats_reader_open(&reader, path), 0);
	for (unsigned i = 0; i < 64; i++) {
		if (ha_stats_read_port(&reader, i, &port) && port.in_use) {
			seen->port = port;
			seen->ports++;
		}
		if (!ha_stats_read_conn(&reader, i, &conn) || !conn.in_use)
			continue;
		seen->conns++;
		if (conn.direction == NCCL_HA_CONN_SEND)
			seen->send = conn;
		else
			seen->recv = conn;
	}
	ha_stats_reader_close(&reader);
}

static void the_statistics_tell_what_happened(void **state)
{
	char dir[] = "/tmp/ha-test-stats-XXXXXX";
	const char *before = ha_stats_dir;
	char path[256];
	struct seen seen;
	struct pair pair;

	(void)state;
	assert_non_null(mkdtemp(dir));
	ha_stats_dir = dir;
	pair_init(&pair);
	pair.config.stats = true;
	pair_up(&pair);
	ha_copy_text(path, sizeof(path), ha_stats_path(pair.inst[0]->stats));
	for (uint32_t i = 0; i < 30; i++)
		transfer(&pair, 1000, i);
	sv_stepped_run(sv_stepped_now() + 1000000000);
	for (int host = 0; host < 2; host++)
		ha_instance_progress(pair.inst[host]);
	read_stats(path, &seen);
	assert_int_equal(seen.conns, 2);
	assert_int_equal(seen.ports, 2);
	assert_true(seen.send.id == seen.recv.id);
	assert_int_equal(seen.send.state, NCCL_HA_CONN_ACTIVE);
	assert_int_equal(seen.send.messages, 30);
	assert_int_equal(seen.recv.messages, 30);
	assert_int_equal(seen.send.bytes, 30000);
	assert_int_equal(seen.recv.bytes, 30000);
	assert_int_equal(seen.send.requests, 30);
	assert_int_equal(seen.send.work_requests, 30);
	assert_int_equal(seen.recv.work_requests, 30);
	assert_true(seen.send.not_ready > 0);
	assert_int_equal(seen.port.connections_open, 1);
	assert_int_equal(strncmp(seen.send.peer, "127.0.0.1:", 10), 0);

	/* A failure is there with the next round, not at the next interval. */
	sv_stepped_kill(0, 0);
	ha_instance_progress(pair.inst[0]);
	ha_instance_progress(pair.inst[0]);
	read_stats(path, &seen);
	assert_int_equal(seen.send.state, NCCL_HA_CONN_ERROR);
	assert_int_equal(seen.send.error, HA_ERR_SYSTEM);
	pair_close(&pair);
	assert_int_not_equal(access(path, F_OK), 0);
	assert_int_equal(rmdir(dir), 0);
	ha_stats_dir = before;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_progress_thread_completes_what_nobody_polls),
	    cmocka_unit_test(without_it_completions_wait_for_test),
	    cmocka_unit_test(a_connection_that_is_polled_is_left_to_the_application),
	    cmocka_unit_test(test_and_thread_take_at_most_what_they_are_allowed),
	    cmocka_unit_test(a_test_looks_again_while_something_else_comes),
	    cmocka_unit_test(a_test_takes_several_batches_if_it_is_allowed_to),
	    cmocka_unit_test(queue_pairs_get_the_configured_attributes),
	    cmocka_unit_test(a_communicators_traffic_class_yields_to_the_sites),
	    cmocka_unit_test(incarnations_never_start_alike),
	    cmocka_unit_test(the_statistics_tell_what_happened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
