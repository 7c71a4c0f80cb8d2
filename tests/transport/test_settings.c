/* SPDX-License-Identifier: Apache-2.0 */
/* What a user sets has its effect, and what happens can be read from outside. */
#include "harness.h"

#include "base/stats.h"
#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "transport/util.h"

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
	pair.config.use_progress_thread = false;
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

/* Ten messages have arrived: how many calls or rounds does it take to see them? */
static int completions_of_one_step(bool by_test, int limit)
{
	struct ha_request *recv[10];
	struct pair pair;
	int seen = 0;
	bool done;

	pair_init(&pair);
	if (by_test)
		pair.config.test_max_poll = limit;
	else
		pair.config.poll_batch = limit;
	pair_up(&pair);
	for (size_t i = 0; i < 10; i++) {
		const size_t offset = i * 4096, size = 100;
		const int tag = 1;

		recv[i] = post_recv(&pair, 1, &offset, &size, &tag);
		sv_stepped_run_idle(1000);
		assert_non_null(try_send(&pair, 0, size, tag));
		sv_stepped_run_idle(1000);
	}
	if (by_test)
		assert_int_equal(ha_test(recv[9], &done, NULL), HA_OK);
	else
		ha_instance_progress(pair.inst[1]);
	for (int i = 0; i < 10; i++)
		seen += state_of(recv[i]) != HA_REQ_ACTIVE;
	pair_close(&pair);
	return seen;
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

/* ---- queue pairs ------------------------------------------------------------------------------
 */

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

/* ---- statistics --------------------------------------------------------------------------------
 */

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
	    cmocka_unit_test(queue_pairs_get_the_configured_attributes),
	    cmocka_unit_test(a_communicators_traffic_class_yields_to_the_sites),
	    cmocka_unit_test(incarnations_never_start_alike),
	    cmocka_unit_test(the_statistics_tell_what_happened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
