/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests across a switch of paths, with the engine's part played by the test: fence both ends,
 * compare, resume in the next epoch on another path. At every event of a transfer, and again and
 * again in a row. Every byte arrives, once; traffic.c sees to that.
 */
#include "harness.h"
#include "instance/instance.h"
#include "traffic.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "transport/complete.h"
#include "transport/fence.h"
#include "transport/flush.h"
#include "transport/path_close.h"
#include "transport/path_connect.h"
#include "transport/path_open.h"
#include "transport/recv.h"
#include "transport/replay.h"
#include "transport/send.h"

#include <stdlib.h>
#include <string.h>

/* ---- the engine's part ----------------------------------------------------------------------- */

static void open_end(struct pair *pair, int end, uint8_t index, uint16_t generation)
{
	struct ha_comm *comm = end ? pair->recv : pair->send;
	const struct ha_path_options options = {
	    .port = &ha_instance_devices(pair->inst[end])->ports[index],
	    .index = index,
	    .generation = generation,
	    .nqps = comm->paths[comm->active]->nqps,
	};

	ha_path_close(comm->paths[index]);
	comm->paths[index] = NULL;
	assert_int_equal(ha_path_open(comm, &options, &comm->paths[index]), HA_OK);
	if (comm->npaths <= index)
		comm->npaths = (uint8_t)(index + 1);
}

/* A fresh path between the two ports number `index`, with the memory registered there. */
static void open_path(struct pair *pair, uint8_t index, uint16_t generation)
{
	struct ha_wire_endpoint endpoint[2];
	struct ibv_mr *unused;

	for (int end = 0; end < 2; end++) {
		open_end(pair, end, index, generation);
		ha_path_endpoint((end ? pair->recv : pair->send)->paths[index], &endpoint[end]);
	}
	assert_int_equal(ha_path_connect(pair->send->paths[index], &endpoint[1]), HA_OK);
	assert_int_equal(ha_path_connect(pair->recv->paths[index], &endpoint[0]), HA_OK);
	assert_int_equal(ha_mr_on(pair->from.mr, pair->send->paths[index]->nic, &unused), HA_OK);
	assert_int_equal(ha_mr_on(pair->to.mr, pair->recv->paths[index]->nic, &unused), HA_OK);
}

static void fence_active(struct ha_comm *comm)
{
	struct ha_path *path = comm->paths[comm->active];
	enum ha_fence fence;

	ha_token_acquire(comm);
	fence = ha_path_fenced(comm, path, ha_now_ns());
	for (int i = 0; i < 4 && fence == HA_FENCE_PENDING; i++) {
		(void)ha_path_wait(path, 0);
		fence = ha_path_fenced(comm, path, ha_now_ns());
		if (fence == HA_FENCE_PENDING) /* a wedged queue pair */
			fence = ha_path_fenced(comm, path, path->draining_since_ns + HA_FENCE_NS);
	}
	ha_token_release(comm);
	assert_int_equal(fence, HA_FENCE_DONE);
}

static void next_epoch(struct ha_comm *comm)
{
	atomic_store(&comm->epoch, atomic_load(&comm->epoch) + 1);
	ha_comm_use_path(comm, comm->active ^ 1);
}

static void resume_receiver(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	next_epoch(comm);
	ha_recv_resume(comm);
	ha_flush_resume(comm);
	ha_token_release(comm);
}

static struct ha_replay resume_sender(struct ha_comm *comm, const struct ha_window *done)
{
	struct ha_replay replay;

	ha_token_acquire(comm);
	next_epoch(comm);
	ha_send_resume(comm, done, &replay);
	ha_token_release(comm);
	return replay;
}

/* `between`: events of the fabric that the sender learns of the new epoch after the receiver;
 * negative: before. */
static struct ha_replay switch_paths(struct traffic *t, uint16_t generation, int between)
{
	struct ha_comm *send = t->pair->send, *recv = t->pair->recv;
	struct ha_window done;
	struct ha_replay replay;

	fence_active(recv);
	applications(t); /* they go on calling */
	fence_active(send);
	applications(t);
	done = recv->recv->done;
	assert_true(send->send->completed.base <= done.base ||
		    ha_window_has(&done, send->send->completed.base - 1));
	open_path(t->pair, send->active ^ 1, generation);
	if (between >= 0)
		resume_receiver(recv);
	for (int i = 0; i < between; i++) {
		sv_stepped_step();
		applications(t);
	}
	replay = resume_sender(send, &done);
	for (int i = between; i < 0; i++) {
		applications(t);
		sv_stepped_step();
	}
	if (between < 0)
		resume_receiver(recv);
	return replay;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static bool end_to_end; /* of the next connection */

static void begin(struct pair *pair, int nqps, bool split)
{
	pair_init(pair);
	pair->fabric.rails = 2;
	pair->config.enable_backup = false; /* the test is the engine */
	pair->config.ib_qps_per_connection = nqps;
	pair->config.ib_split_data_on_qps = split;
	pair->config.completion = end_to_end ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	pair_up(pair);
}

struct sums {
	uint64_t known, messages, bytes;
};

/* One switch at every event, or at every `step`; `polled`: the applications poll at each, or only
 * before the switch. */
static struct sums at_every_event(int nqps, bool split, bool polled, int between, unsigned step)
{
	struct sums sums = {0};

	for (unsigned at = 0;; at += step) {
		struct ha_replay replay;
		struct traffic t;
		struct pair pair;
		bool last;

		begin(&pair, nqps, split);
		traffic_init(&t, &pair, 6, at);
		for (int i = 0; i < 12; i++)
			applications(&t);
		for (unsigned i = 0; i < at; i++) {
			sv_stepped_step();
			if (polled || i < 12)
				applications(&t);
		}
		last = all_done(&t) || at > 400;
		if (at % 4 < 2)
			sv_stepped_cut(0, true);
		replay = switch_paths(&t, 1, between);
		finish(&t);
		sums.known += replay.known;
		sums.messages += replay.messages;
		sums.bytes += replay.bytes;
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
		if (last)
			return sums;
	}
}

static void a_switch_at_every_event_loses_and_doubles_nothing(void **state)
{
	struct sums sums;

	(void)state;
	sums = at_every_event(1, false, true, 0, 1);
	assert_true(sums.messages > 0 && sums.bytes > sums.messages);
	sums = at_every_event(1, false, false, 5, 3);
	assert_true(sums.messages > 0);
	sums = at_every_event(1, false, true, -3, 3);
	assert_true(sums.messages > 0);
}

static void the_same_over_several_queue_pairs(void **state)
{
	(void)state;
	assert_true(at_every_event(3, false, true, 2, 3).messages > 0);
	assert_true(at_every_event(4, true, true, 0, 3).messages > 0);
	assert_true(at_every_event(2, true, false, -2, 3).messages > 0);
}

static void the_same_with_end_to_end_completion(void **state)
{
	(void)state;
	end_to_end = true;
	assert_true(at_every_event(1, false, true, 0, 3).messages > 0);
	assert_true(at_every_event(3, true, false, -2, 5).messages > 0);
	end_to_end = false;
}

/* The duplicate that breaks naive replay: delivered, and the acknowledgement lost. */
static void what_the_receiver_has_is_not_sent_again(void **state)
{
	uint64_t matched, fired, posted;
	struct ha_replay replay;
	struct traffic t;
	struct pair pair;
	int id;

	(void)state;
	begin(&pair, 1, false);
	traffic_init(&t, &pair, 6, 1);
	id = sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log));
	assert_true(id >= 0);
	for (int i = 0; i < 400 && t.received < 6; i++) {
		applications(&t);
		sv_stepped_step();
	}
	assert_int_equal(t.received, 6);
	assert_int_equal(t.released, 0);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_true(fired > 0);
	sv_stepped_fault_remove(id);
	posted = pair.send->count.work_requests;
	replay = switch_paths(&t, 1, 0);
	assert_int_equal(replay.known, 9); /* six groups */
	assert_int_equal(replay.messages, 0);
	finish(&t);
	assert_int_equal(pair.send->count.work_requests, posted);
	pair_close(&pair);
}

/* What the sender's fence is for: a row of the old epoch must not land over that of the new one. */
static void a_late_entry_cannot_overwrite_a_newer_one(void **state)
{
	uint64_t matched, fired, stamp;
	const struct ha_cts *row;
	struct traffic t;
	struct pair pair;
	int id;

	(void)state;
	begin(&pair, 1, false);
	traffic_init(&t, &pair, 1, 1);
	id = sv_stepped_fault_add("delay=1ms host=1", captured_log, sizeof(captured_log));
	assert_true(id >= 0);
	ask(&t);
	sv_stepped_run(sv_stepped_now() + 100000);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_int_equal(fired, 1);
	sv_stepped_fault_remove(id);

	t.count = 0; /* nothing is offered meanwhile */
	switch_paths(&t, 1, 0);
	t.count = 1;
	row = pair.send->send_ring->cts[1];
	stamp = ha_stamp(1, atomic_load(&pair.send->epoch));
	sv_stepped_run(sv_stepped_now() + 100000);
	assert_true(ha_cts_arrived(row, stamp));
	sv_stepped_run(sv_stepped_now() + 5000000);
	assert_true(ha_cts_arrived(row, stamp));
	finish(&t);
	pair_close(&pair);
}

/* Again and again, at random moments, also while the last switch's replay is under way. */
static void switches_in_a_row_lose_and_double_nothing(void **state)
{
	unsigned switches = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= 40; seed++) {
		struct traffic t;
		struct pair pair;

		end_to_end = seed % 4 == 0;
		begin(&pair, seed % 3 ? 1 : 4, seed % 2);
		traffic_init(&t, &pair, MESSAGES, seed);
		for (uint16_t generation = 1; t.received < MESSAGES; generation++) {
			for (uint32_t i = roll(&t, 60); i > 0; i--) {
				if (roll(&t, 3))
					applications(&t);
				sv_stepped_step();
			}
			if (roll(&t, 8) == 0) {
				struct ha_comm *comm = roll(&t, 2) ? pair.send : pair.recv;

				sv_stepped_wedge(!comm->is_send, comm->active,
						 comm->paths[comm->active]->qps[0].qp->qp_num,
						 roll(&t, 2));
			}
			switch_paths(&t, generation, (int)roll(&t, 20) - 10);
			switches++;
		}
		finish(&t);
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
	}
	end_to_end = false;
	assert_true(switches > 200);
}

/* A peer that asks again for something else is a bug, and not to be served. */
static void asking_again_for_another_message_is_an_error(void **state)
{
	static const char *const what[] = {"n", "tag", "size", "index"};

	(void)state;
	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		struct ha_window done;
		struct ha_cts *row;
		struct traffic t;
		struct pair pair;

		begin(&pair, 1, false);
		traffic_init(&t, &pair, 1, 1);
		applications(&t);
		while (t.offset == 0 && sv_stepped_step())
			applications(&t);
		assert_int_equal(t.offset, 1);
		fence_active(pair.recv);
		fence_active(pair.send);
		done = pair.recv->recv->done;
		open_path(&pair, 1, 1);
		row = pair.recv->recv_ring->cts[1];
		row[0].n = (uint8_t)(row[0].n + (i == 0));
		row[0].tag += i == 1;
		row[0].size = i == 2 ? 8999 : row[0].size;
		row[0].index = (uint8_t)(row[0].index + (i == 3));
		resume_receiver(pair.recv);
		resume_sender(pair.send, &done);
		sv_stepped_run_idle(100);
		ha_comm_poll(pair.send, 32);
		assert_int_equal(ha_comm_error(pair.send), HA_ERR_INTERNAL);
		assert_logged("but not for the same");
		pair_close(&pair);
	}
}

static void a_flush_that_died_with_its_path_is_issued_again(void **state)
{
	const int got = 100;
	struct ha_request *flush, *waiting;
	struct traffic t;
	struct pair pair;
	void *data;

	(void)state;
	begin(&pair, 1, false);
	traffic_init(&t, &pair, 1, 1);
	finish(&t);
	data = pair.to.bytes;
	pair.to.mr->host = false;
	/* The first one has its queue pair made. */
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_int_equal(flush->posted, HA_FLUSH_POSTED);
	fence_active(pair.recv);
	fence_active(pair.send);
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &waiting), HA_OK);
	assert_int_equal(waiting->posted, HA_FLUSH_NEW);
	assert_int_equal(pair.recv->outstanding, 1);
	open_path(&pair, 1, 1);
	resume_receiver(pair.recv);
	assert_int_equal(flush->posted, HA_FLUSH_AGAIN); /* until the new path has one, too */
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	assert_non_null(pair.recv->paths[1]->flush.qp);
	assert_int_equal(pair_finish(&pair, waiting, NULL), HA_OK);
	assert_int_equal(pair.recv->count.flushes, 3);
	assert_int_equal(pair.recv->outstanding, 0);
	pair.to.mr->host = true;
	pair_close(&pair);
}

/* What happens on a path that is not active is looked at now and then only. */
static void standby_paths_are_polled_every_so_many_polls(void **state)
{
	static const int intervals[] = {1, 7, 100};

	(void)state;
	for (size_t i = 0; i < sizeof(intervals) / sizeof(intervals[0]); i++) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM}, *bad;
		struct pair pair;
		int polls = 0;

		pair_init(&pair);
		pair.fabric.rails = 2;
		pair.config.enable_backup = false;
		pair.config.poll_standby_interval = intervals[i];
		pair_up(&pair);
		open_path(&pair, 1, 1);
		for (int k = 0; k < intervals[i] || k < 2; k++)
			ha_comm_poll(pair.recv, 32);
		while (pair.recv->standby_in != (uint32_t)intervals[i])
			ha_comm_poll(pair.recv, 32);
		assert_int_equal(ibv_post_send(pair.send->paths[1]->qps[0].qp, &wr, &bad), 0);
		sv_stepped_run_idle(100);
		for (polls = 1; ha_comm_poll(pair.recv, 32) == 0; polls++)
			assert_true(polls < 1000);
		assert_int_equal(polls, intervals[i]);
		/* The progress thread has its own way to them, and a hole is no path. */
		assert_int_equal(ibv_post_send(pair.send->paths[1]->qps[0].qp, &wr, &bad), 0);
		sv_stepped_run_idle(100);
		assert_int_equal(ha_comm_poll_standby(pair.recv), 1);
		ha_path_close(pair.recv->paths[1]);
		pair.recv->paths[1] = NULL;
		assert_int_equal(ha_comm_poll_standby(pair.recv), 0);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(standby_paths_are_polled_every_so_many_polls),
	    cmocka_unit_test(a_switch_at_every_event_loses_and_doubles_nothing),
	    cmocka_unit_test(the_same_over_several_queue_pairs),
	    cmocka_unit_test(the_same_with_end_to_end_completion),
	    cmocka_unit_test(what_the_receiver_has_is_not_sent_again),
	    cmocka_unit_test(a_late_entry_cannot_overwrite_a_newer_one),
	    cmocka_unit_test(switches_in_a_row_lose_and_double_nothing),
	    cmocka_unit_test(asking_again_for_another_message_is_an_error),
	    cmocka_unit_test(a_flush_that_died_with_its_path_is_issued_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
