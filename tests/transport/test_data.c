/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path: every way a message can be cut, grouped, queued and carried gives the receiver
 * the right bytes, sizes and positions, and writes nothing beside them.
 */
#include "harness.h"

#include "transport/complete.h"

#include "memory/mr.h"

#include <string.h>

static const size_t sizes[] = {0,    1,	   7,	 64,   72,    73,    127,    128,     129,
			       1000, 4095, 4096, 4097, 65537, 99991, 131072, 1000003, 2097153};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static void all_sizes(struct pair *pair)
{
	for (size_t i = 0; i < NSIZES; i++)
		transfer(pair, sizes[i], (uint32_t)(i + 1));
	/* More than a window of messages, so that every slot is used again. */
	for (uint32_t i = 0; i < 3 * HA_WINDOW; i++)
		transfer(pair, i * 37 % 5000, 1000 + i);
}

static void every_size_arrives_whole(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	all_sizes(&pair);
	pair_close(&pair);
	assert_int_equal(captured_warnings, 0);
}

static void the_same_with_data_and_notice_apart(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.ib_adaptive_routing = 1;
	pair.config.ib_ar_threshold = 100;
	pair_up(&pair);
	all_sizes(&pair);
	pair_close(&pair);
}

static void the_same_without_inline(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.ib_use_inline = false;
	pair_up(&pair);
	assert_int_equal(pair.send->paths[0]->max_inline, 0);
	all_sizes(&pair);
	pair_close(&pair);
}

static void the_same_on_infiniband(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.fabric.infiniband = true;
	pair_up(&pair);
	all_sizes(&pair);
	pair_close(&pair);
}

static void the_same_over_several_queue_pairs(void **state)
{
	static const int counts[] = {2, 3, 4, 16};

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (int split = 0; split < 2; split++) {
			struct pair pair;

			pair_init(&pair);
			pair.config.ib_qps_per_connection = counts[i];
			pair.config.ib_split_data_on_qps = split;
			pair_up(&pair);
			assert_int_equal(pair.recv->paths[0]->nqps, counts[i]);
			all_sizes(&pair);
			pair_close(&pair);
		}
}

static void messages_beyond_the_devices_limit_are_cut(void **state)
{
	for (int nqps = 1; nqps <= 4; nqps += 3) {
		struct pair pair;

		(void)state;
		pair_init(&pair);
		pair.config.ib_qps_per_connection = nqps;
		pair.config.ib_split_data_on_qps = true;
		pair_up(&pair);
		pair.send->paths[0]->max_message = 10000;
		ha_path_set_limits(pair.send->paths[0]);
		all_sizes(&pair);
		pair_close(&pair);
	}
}

static void a_message_the_queue_cannot_hold_is_a_clear_error(void **state)
{
	const size_t offset = 0, size = 400 * 1000;
	const int tag = 1;
	struct ha_request *req;
	struct pair pair;
	ha_result_t result = HA_OK;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	pair.send->paths[0]->max_message = 1000;
	ha_path_set_limits(pair.send->paths[0]);
	assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
	for (int i = 0; i < 100 && result == HA_OK; i++) {
		result = ha_isend(pair.send, pair.from.bytes, size, tag, pair.from.mr, &req);
		pair_step(&pair);
	}
	assert_int_equal(result, HA_ERR_USAGE);
	assert_logged("401 writes");
	pair_close(&pair);
}

/* A group of n, sent in the order `order`, with different sizes and gaps between the buffers. */
static void group(struct pair *pair, int n, const int *order, uint32_t seed)
{
	size_t offset[HA_GROUP_MAX] = {0}, capacity[HA_GROUP_MAX] = {0};
	int tag[HA_GROUP_MAX] = {0}, got[HA_GROUP_MAX + 1], sent;
	struct ha_request *recv, *send[HA_GROUP_MAX];

	memset(pair->to.bytes, CANARY, HA_GROUP_MAX * 8192);
	for (int i = 0; i < n; i++) {
		offset[i] = (size_t)i * 8192 + 64;
		capacity[i] = 8000;
		tag[i] = 100 + i;
	}
	memset(got, 0x7f, sizeof(got));
	recv = post_recv(pair, n, offset, capacity, tag);
	for (int k = 0; k < n; k++) {
		int i = order[k];
		size_t size = (seed * 131 + (uint32_t)i * 997) % 7000;

		if (i == 0)
			size = 0;
		fill(pair->from.bytes + i * 8192, size, seed + (uint32_t)i);
		send[i] = post_send(pair, (size_t)i * 8192, size, tag[i]);
	}
	assert_int_equal(pair_finish(pair, recv, got), HA_OK);
	for (int i = 0; i < n; i++) {
		assert_int_equal(pair_finish(pair, send[i], &sent), HA_OK);
		assert_int_equal(got[i], sent);
		assert_true(filled(pair->to.bytes + offset[i], (size_t)got[i], seed + (uint32_t)i));
		assert_int_equal(pair->to.bytes[offset[i] + (size_t)got[i]], CANARY);
		assert_int_equal(pair->to.bytes[offset[i] - 1], CANARY);
	}
	assert_int_equal(got[n], 0x7f7f7f7f); /* exactly n values are written */
}

static void groups_match_by_tag_and_keep_their_positions(void **state)
{
	static const int orders[][HA_GROUP_MAX] = {
	    {0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 7, 1, 6, 2, 5, 4}};

	(void)state;
	for (int nqps = 1; nqps <= 4; nqps += 3) {
		struct pair pair;

		pair_init(&pair);
		pair.config.ib_qps_per_connection = nqps;
		pair.config.ib_split_data_on_qps = true;
		pair_up(&pair);
		for (uint32_t round = 0; round < 100; round++)
			group(&pair, HA_GROUP_MAX, orders[round % 3], round);
		for (int n = 1; n < HA_GROUP_MAX; n++)
			group(&pair, n, orders[0], (uint32_t)n);
		pair_close(&pair);
	}
}

static void a_tag_is_looked_for_in_the_oldest_group_only(void **state)
{
	const size_t offsets[2][2] = {{0, 4096}, {8192, 12288}}, capacity[2] = {100, 100};
	const int tags[2][2] = {{1, 2}, {3, 4}};
	struct ha_request *recv[2], *send[4];
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	for (int i = 0; i < 2; i++)
		recv[i] = post_recv(&pair, 2, offsets[i], capacity, tags[i]);
	sv_stepped_run_idle(1000);
	assert_null(try_send(&pair, 0, 10, 3)); /* of the second group */
	send[0] = post_send(&pair, 0, 10, 2);
	assert_null(try_send(&pair, 0, 10, 4));
	assert_null(try_send(&pair, 0, 10, 2)); /* taken */
	send[1] = post_send(&pair, 0, 10, 1);
	send[2] = post_send(&pair, 0, 10, 3);
	send[3] = post_send(&pair, 0, 10, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
	pair_close(&pair);
}

static void equal_tags_in_a_group_are_taken_in_order(void **state)
{
	const size_t offsets[3] = {0, 4096, 8192}, capacity[3] = {100, 100, 100};
	const int tags[3] = {5, 5, 5};
	struct ha_request *recv, *send[3];
	struct pair pair;
	int got[3];

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	recv = post_recv(&pair, 3, offsets, capacity, tags);
	for (size_t i = 0; i < 3; i++)
		send[i] = post_send(&pair, 0, 10 + i, 5);
	assert_int_equal(pair_finish(&pair, recv, got), HA_OK);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(got[i], 10 + i);
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	}
	pair_close(&pair);
}

static void a_full_window_of_groups_is_accepted_and_not_one_more(void **state)
{
	struct ha_request *recv[HA_MAX_OUTSTANDING];
	struct ha_request *send[HA_MAX_OUTSTANDING][HA_GROUP_MAX];
	size_t offset[HA_GROUP_MAX] = {0}, capacity[HA_GROUP_MAX] = {0};
	int tag[HA_GROUP_MAX] = {0};
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	for (uint32_t lap = 0; lap < 4; lap++) {
		for (size_t r = 0; r < HA_MAX_OUTSTANDING; r++) {
			for (size_t i = 0; i < HA_GROUP_MAX; i++) {
				offset[i] = (r * HA_GROUP_MAX + i) * 1024;
				capacity[i] = 1000;
				tag[i] = (int)i;
			}
			recv[r] = post_recv(&pair, HA_GROUP_MAX, offset, capacity, tag);
			assert_non_null(recv[r]);
		}
		assert_null(post_recv(&pair, HA_GROUP_MAX, offset, capacity, tag));
		for (size_t r = 0; r < HA_MAX_OUTSTANDING; r++)
			for (size_t i = 0; i < HA_GROUP_MAX; i++) {
				size_t at = (r * HA_GROUP_MAX + i) * 1024;

				fill(pair.from.bytes + at, 900, lap * 1000 + (uint32_t)at);
				send[r][i] = post_send(&pair, at, 900, (int)i);
			}
		for (size_t r = 0; r < HA_MAX_OUTSTANDING; r++) {
			for (size_t i = 0; i < HA_GROUP_MAX; i++)
				assert_int_equal(pair_finish(&pair, send[r][i], NULL), HA_OK);
			assert_int_equal(pair_finish(&pair, recv[r], NULL), HA_OK);
		}
		for (size_t at = 0; at < HA_MAX_OUTSTANDING * HA_GROUP_MAX * 1024; at += 1024)
			assert_true(filled(pair.to.bytes + at, 900, lap * 1000 + (uint32_t)at));
	}
	pair_close(&pair);
}

/* A send queue that holds a few work requests only: groups wait for room, in order. */
static void a_short_send_queue_delays_and_loses_nothing(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.fabric.max_qp_wr = 64;
	pair_up(&pair);
	pair.send->paths[0]->qps[0].sq_depth = 12;
	for (int lap = 0; lap < 3; lap++) {
		struct ha_request *recv[20], *send[20][4];

		for (size_t r = 0; r < 20; r++) {
			size_t offset[4] = {0}, capacity[4] = {500, 500, 500, 500};
			int tag[4] = {1, 2, 3, 4};

			for (size_t i = 0; i < 4; i++)
				offset[i] = (r * 4 + i) * 1024;
			recv[r] = post_recv(&pair, 4, offset, capacity, tag);
		}
		for (size_t r = 0; r < 20; r++)
			for (size_t i = 0; i < 4; i++) {
				fill(pair.from.bytes + (r * 4 + i) * 1024, 500,
				     (uint32_t)(r * 4 + i));
				send[r][i] = post_send(&pair, (r * 4 + i) * 1024, 500, (int)i + 1);
			}
		for (size_t r = 0; r < 20; r++) {
			assert_int_equal(pair_finish(&pair, recv[r], NULL), HA_OK);
			for (size_t i = 0; i < 4; i++)
				assert_int_equal(pair_finish(&pair, send[r][i], NULL), HA_OK);
		}
		for (size_t i = 0; i < 80; i++)
			assert_true(filled(pair.to.bytes + i * 1024, 500, (uint32_t)i));
	}
	pair_close(&pair);
}

static size_t less(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* n messages; of each, as much arrives as its receive has room for, and both ends say so. */
static void cut_off(struct pair *pair, int n, const size_t *room, const size_t *size, uint32_t seed)
{
	size_t offset[HA_GROUP_MAX] = {0};
	int tag[HA_GROUP_MAX] = {0}, got[HA_GROUP_MAX], sent;
	struct ha_request *recv, *send[HA_GROUP_MAX];

	memset(pair->to.bytes, CANARY, HA_GROUP_MAX * 65536);
	for (int i = 0; i < n; i++) {
		offset[i] = (size_t)i * 65536;
		tag[i] = i;
	}
	recv = post_recv(pair, n, offset, room, tag);
	for (int i = 0; i < n; i++) {
		fill(pair->from.bytes + offset[i], size[i], seed + (uint32_t)i);
		send[i] = post_send(pair, offset[i], size[i], tag[i]);
	}
	assert_int_equal(pair_finish(pair, recv, got), HA_OK);
	for (int i = 0; i < n; i++) {
		const size_t arrives = less(room[i], size[i]);

		assert_int_equal(pair_finish(pair, send[i], &sent), HA_OK);
		assert_int_equal(sent, arrives);
		assert_int_equal(got[i], arrives);
		assert_true(filled(pair->to.bytes + offset[i], arrives, seed + (uint32_t)i));
		for (size_t k = arrives; k < 65536; k++)
			assert_int_equal(pair->to.bytes[offset[i] + k], CANARY);
	}
}

static void a_send_larger_than_its_receive_is_cut_off(void **state)
{
	static const size_t room[] = {100, 1000, 0, 8192, 1, 30000, 64, 5000};
	static const size_t size[] = {101, 60000, 10, 8192, 40000, 30001, 0, 4999};

	(void)state;
	for (int nqps = 1; nqps <= 4; nqps += 3)
		for (int e2e = 0; e2e < 2; e2e++) {
			struct pair pair;

			pair_init(&pair);
			pair.config.ib_qps_per_connection = nqps;
			pair.config.ib_split_data_on_qps = nqps > 1;
			pair.config.enable_backup = e2e;
			pair.config.completion = e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
			pair_up(&pair);
			for (int i = 0; i < HA_GROUP_MAX; i++)
				cut_off(&pair, 1, &room[i], &size[i], (uint32_t)i);
			for (int n = 1; n <= HA_GROUP_MAX; n++)
				cut_off(&pair, n, room, size, (uint32_t)n);
			transfer(&pair, 5000, 99);
			assert_int_equal(captured_warnings, 0);
			pair_close(&pair);
		}
}

/* What is sent again is as long as what was sent first. */
static void what_was_cut_off_is_so_on_another_path_too(void **state)
{
	const size_t offset = 0, room = 20000, size = 60000;
	const int tag = 3;
	struct ha_request *recv, *send;
	struct pair pair;
	int got, sent;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	pair_wait_standby(&pair);
	memset(pair.to.bytes, CANARY, size);
	fill(pair.from.bytes, size, 4);
	recv = post_recv(&pair, 1, &offset, &room, &tag);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_link(0, 0, false);
	assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
	assert_int_equal(pair_finish(&pair, send, &sent), HA_OK);
	assert_int_equal(pair.send->count.failovers, 1);
	assert_int_equal(got, room);
	assert_int_equal(sent, room);
	assert_true(filled(pair.to.bytes, room, 4));
	for (size_t k = room; k < size; k++)
		assert_int_equal(pair.to.bytes[k], CANARY);
	pair_close(&pair);
}

static void an_immediate_of_another_epoch_or_receive_is_dropped(void **state)
{
	const size_t offset = 0, size = 100;
	const int tag = 9;
	struct ha_request *recv, *send;
	struct ha_comm *comm;
	struct pair pair;
	bool done;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	transfer(&pair, 10, 1); /* message 1: its immediate may come again */
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	comm = pair.recv;
	ha_token_acquire(comm);
	ha_recv_immediate(comm, comm->paths[0], 0, ha_imm_pack(1, 0, 1, false), 10);
	ha_recv_immediate(comm, comm->paths[0], 0, ha_imm_pack(2, 1, 1, false), 10);
	ha_recv_immediate(comm, comm->paths[0], 0, ha_imm_pack(2 + HA_WINDOW, 0, 1, false), 10);
	ha_recv_immediate(comm, comm->paths[0], 0, ha_imm_pack(3, 0, 1, false), 10);
	ha_token_release(comm);
	assert_int_equal(comm->count.stale_completions, 4);
	assert_int_equal(ha_test(recv, &done, NULL), HA_OK);
	assert_false(done);
	comm->paths[0]->qps[0].rq_used -= 4; /* those had no receive behind them */
	send = post_send(&pair, 0, 100, tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_close(&pair);
}

static void gpu_memory_is_flushed_and_host_memory_is_not(void **state)
{
	const size_t offset = 4096, size = 1000;
	const int tag = 1, got = 1000, none = 0;
	struct ha_request *recv, *send, *flush;
	struct ha_mr *mr;
	struct pair pair;
	void *data;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	mr = pair.to.mr;
	data = pair.to.bytes + offset;
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, 0, size, tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);

	flush = (void *)1;
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &mr, &flush), HA_OK);
	assert_null(flush);
	assert_null(pair.recv->paths[0]->flush.qp); /* no queue pair for host memory */
	mr->host = false;
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &none, &mr, &flush), HA_OK);
	assert_null(flush);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &mr, &flush), HA_OK);
		assert_non_null(flush);
		assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	}
	/* While the other thread has the connection: the request is real and completes later. */
	ha_token_acquire(pair.recv);
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &mr, &flush), HA_OK);
	assert_non_null(flush);
	assert_int_equal(flush->posted, 0);
	ha_token_release(pair.recv);
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	mr->host = true;
	pair_close(&pair);
}

static void nothing_starts_while_another_thread_has_the_connection(void **state)
{
	const size_t offset = 0, size = 100;
	const int tag = 1;
	struct ha_request *recv;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	ha_token_acquire(pair.recv);
	assert_null(post_recv(&pair, 1, &offset, &size, &tag));
	ha_token_release(pair.recv);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	assert_non_null(recv);
	sv_stepped_run_idle(1000);
	ha_token_acquire(pair.send);
	assert_null(try_send(&pair, 0, 10, tag));
	ha_token_release(pair.send);
	assert_int_equal(pair_finish(&pair, post_send(&pair, 0, 10, tag), NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_size_arrives_whole),
	    cmocka_unit_test(the_same_with_data_and_notice_apart),
	    cmocka_unit_test(the_same_without_inline),
	    cmocka_unit_test(the_same_on_infiniband),
	    cmocka_unit_test(the_same_over_several_queue_pairs),
	    cmocka_unit_test(messages_beyond_the_devices_limit_are_cut),
	    cmocka_unit_test(a_message_the_queue_cannot_hold_is_a_clear_error),
	    cmocka_unit_test(groups_match_by_tag_and_keep_their_positions),
	    cmocka_unit_test(a_tag_is_looked_for_in_the_oldest_group_only),
	    cmocka_unit_test(equal_tags_in_a_group_are_taken_in_order),
	    cmocka_unit_test(a_full_window_of_groups_is_accepted_and_not_one_more),
	    cmocka_unit_test(a_short_send_queue_delays_and_loses_nothing),
	    cmocka_unit_test(a_send_larger_than_its_receive_is_cut_off),
	    cmocka_unit_test(what_was_cut_off_is_so_on_another_path_too),
	    cmocka_unit_test(an_immediate_of_another_epoch_or_receive_is_dropped),
	    cmocka_unit_test(gpu_memory_is_flushed_and_host_memory_is_not),
	    cmocka_unit_test(nothing_starts_while_another_thread_has_the_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
