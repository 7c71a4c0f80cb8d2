/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fencing a path: whatever state its queue pairs and its device are in, once the fence is confirmed
 * nothing is written any more, and everything that happened before it has been applied.
 */
#include "harness.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "transport/complete.h"
#include "transport/fence.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

static int destroy_fails_with; /* 0: it does not */

/* In front of the library's. */
int ibv_destroy_qp(struct ibv_qp *qp)
{
	int (*destroy)(struct ibv_qp *);

	*(void **)&destroy = dlsym(RTLD_NEXT, "ibv_destroy_qp");
	return destroy_fails_with ? destroy_fails_with : destroy(qp);
}

static const size_t offset = 4096, size = 300000;
static const int tag = 1;

/* How far it is, with what the NIC was told in between. */
static enum ha_fence fence_is(struct ha_comm *comm)
{
	enum ha_fence fence;

	ha_token_acquire(comm);
	(void)ha_path_wait(comm->paths[0], 0);
	fence = ha_path_fenced(comm, comm->paths[0], ha_now_ns());
	if (fence == HA_FENCE_PENDING && !ha_path_wait(comm->paths[0], 0))
		fail_msg("a command takes time on a fabric that gives it none");
	if (fence == HA_FENCE_PENDING)
		fence = ha_path_fenced(comm, comm->paths[0], ha_now_ns());
	ha_token_release(comm);
	return fence;
}

static enum ha_fence fence(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	ha_path_fence(comm->paths[0]);
	ha_token_release(comm);
	return fence_is(comm);
}

static bool is_done(const struct ha_request *req)
{
	return atomic_load(&req->state) == HA_REQ_DONE;
}

static void start(struct pair *pair, struct ha_request **recv, struct ha_request **send)
{
	fill(pair->from.bytes, size, 5);
	*recv = post_recv(pair, 1, &offset, &size, &tag);
	*send = post_send(pair, 0, size, tag);
}

/* The queue pairs, with a flush's among them. */
static unsigned queue_pairs(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->paths[0];
	unsigned n = path->flush.qp != NULL;

	for (unsigned i = 0; i < path->nqps; i++)
		n += path->qps[i].qp != NULL;
	return n;
}

static void an_idle_path_is_fenced_at_once(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.ib_qps_per_connection = 4;
	pair_up(&pair);
	transfer(&pair, 1000, 1);
	for (int i = 0; i < 2; i++) {
		struct ha_comm *comm = i ? pair.recv : pair.send;

		assert_int_equal(fence(comm), HA_FENCE_DONE);
		assert_int_equal(comm->paths[0]->state, HA_PATH_FENCED);
		assert_int_equal(queue_pairs(comm), 4);	      /* drained, not destroyed */
		assert_int_equal(fence(comm), HA_FENCE_DONE); /* and once more */
		assert_int_equal(ha_comm_error(comm), HA_OK);
	}
	pair_close(&pair);
	assert_int_equal(captured_warnings, 0);
}

/* Soft RoCE flushes what was posted when ERR is set, and nothing that comes later. */
static void receives_that_are_not_flushed_late_hold_no_fence_up(void **state)
{
	(void)state;
	for (int failed_before = 0; failed_before < 2; failed_before++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
		struct pair pair;

		pair_init(&pair);
		pair.config.ib_qps_per_connection = 4;
		pair.fabric.late_recvs_stay = true;
		pair_up(&pair);
		transfer(&pair, 1000, 1);
		for (int i = 0; i < 2; i++) {
			struct ha_comm *comm = i ? pair.recv : pair.send;
			struct ha_path *path = comm->paths[0];

			for (unsigned q = 0; failed_before && q < path->nqps; q++)
				assert_int_equal(
				    ibv_modify_qp(path->qps[q].qp, &attr, IBV_QP_STATE), 0);
			assert_int_equal(fence(comm), HA_FENCE_DONE);
			assert_int_equal(queue_pairs(comm), 4); /* drained, not destroyed */
			assert_int_equal(comm->count.fences_destroyed, 0);
		}
		pair_close(&pair);
	}
}

/* A row of the receiver's, a message's tail, and a window of queued messages before the sentinel.
 */
static void a_full_send_queue_has_room_for_the_sentinel(void **state)
{
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.fabric.max_qp_wr = 64;
	pair_up(&pair);
	sv_stepped_cut(0, true);
	for (int i = 0; i < 2; i++) {
		struct ha_comm *comm = i ? pair.recv : pair.send;
		struct ha_path *path = comm->paths[0];
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE}, *bad;

		assert_true(path->qps[0].sq_depth == 63);
		for (uint32_t k = 0; k < path->qps[0].sq_depth; k++)
			assert_int_equal(ibv_post_send(path->qps[0].qp, &wr, &bad), 0);
		assert_int_equal(fence(comm), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(comm), 1);
	}
	pair_close(&pair);
}

/* At every event of a transfer, both ends in turn: later events change nothing, and what had
 * happened is known. */
static void nothing_arrives_after_a_fence_and_nothing_is_forgotten(void **state)
{
	unsigned received_early = 0, received_not = 0, sent_early = 0, sent_not = 0;

	(void)state;
	for (int end = 0; end < 2; end++)
		for (unsigned at = 0;; at++) {
			struct ha_request *recv, *send;
			static uint8_t before[MEM_SIZE];
			struct pair pair;
			bool finished, arrived, acked = false;
			uint64_t got_acks;

			pair_init(&pair);
			pair_up(&pair);
			start(&pair, &recv, &send);
			for (unsigned i = 0; i < at && sv_stepped_step(); i++)
				;
			finished = !sv_stepped_peek(&(struct sv_event_info){0});
			got_acks = pair.send->count.completions;
			arrived = filled(pair.to.bytes + offset, size, 5);
			assert_int_equal(fence(end ? pair.recv : pair.send), HA_FENCE_DONE);
			if (end) { /* the last packet brings data and notice at once */
				assert_int_equal(is_done(recv), arrived);
				received_early += arrived;
				received_not += !arrived;
			} else {
				acked = pair.send->count.messages == 1;
				assert_int_equal(is_done(send), acked);
				assert_true(!acked || arrived);
				assert_true(pair.send->count.completions > got_acks);
				sent_early += acked;
				sent_not += !acked;
				assert_true(!finished || acked);
			}
			/* What has left the sender may still land: it is the receiver's fence that
			 * keeps it out. */
			memcpy(before, pair.to.bytes, MEM_SIZE);
			sv_stepped_run_idle(100000);
			if (end)
				assert_memory_equal(before, pair.to.bytes, MEM_SIZE);
			pair_close(&pair);
			if (finished)
				break;
		}
	assert_true(received_early > 0 && received_not > 10);
	assert_true(sent_early > 0 && sent_not > 10);
}

static void a_wedged_queue_pair_is_drained(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct ha_request *recv, *send;
		struct pair pair;
		struct ha_comm *comm;

		pair_init(&pair);
		pair_up(&pair);
		comm = end ? pair.recv : pair.send;
		start(&pair, &recv, &send);
		sv_stepped_step();
		assert_true(
		    sv_stepped_wedge((uint32_t)end, 0, comm->paths[0]->qps[0].qp->qp_num, false));
		assert_int_equal(fence(comm), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(comm), 1);
		assert_int_equal(ha_comm_error(comm), HA_OK);
		pair_close(&pair);
	}
}

static void a_queue_pair_that_does_not_flush_is_destroyed_in_time(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct ha_request *recv, *send;
		struct pair pair;
		struct ha_comm *comm;
		uint64_t from;

		pair_init(&pair);
		pair.config.ib_qps_per_connection = 2;
		pair_up(&pair);
		comm = end ? pair.recv : pair.send;
		start(&pair, &recv, &send);
		sv_stepped_step();
		assert_true(
		    sv_stepped_wedge((uint32_t)end, 0, comm->paths[0]->qps[1].qp->qp_num, true));
		from = sv_stepped_now();
		assert_int_equal(fence(comm), HA_FENCE_PENDING);
		assert_int_equal(comm->paths[0]->state, HA_PATH_FENCING);
		sv_stepped_run(from + HA_FENCE_NS - 1);
		assert_int_equal(fence_is(comm), HA_FENCE_PENDING);
		assert_int_equal(queue_pairs(comm), 2);
		sv_stepped_run(from + HA_FENCE_NS);
		assert_int_equal(fence_is(comm), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(comm), 0);
		assert_int_equal(comm->paths[0]->state, HA_PATH_FENCED);
		/* Everything copes with a path whose queue pairs are gone. */
		assert_int_equal(ha_comm_poll(comm, 32), 0);
		assert_false(is_done(end ? recv : send));
		assert_int_equal(ha_comm_error(comm), HA_OK);
		pair_close(&pair);
	}
}

/* All that time it is neither claimed nor given up. */
static void refused_for(struct ha_comm *comm, uint64_t ns)
{
	uint64_t until_ns = sv_stepped_now() + ns;

	for (; sv_stepped_now() < until_ns; sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS))
		assert_int_equal(fence_is(comm), HA_FENCE_PENDING);
}

/* A sender's queue pair that does not drain, and is refused from now on when it is destroyed. */
static void fence_that_is_refused(struct pair *pair, struct ha_request **recv,
				  struct ha_request **send)
{
	pair_init(pair);
	pair_up(pair);
	start(pair, recv, send);
	sv_stepped_step();
	assert_true(sv_stepped_wedge(0, 0, pair->send->paths[0]->qps[0].qp->qp_num, true));
	assert_int_equal(fence(pair->send), HA_FENCE_PENDING);
	sv_stepped_run(sv_stepped_now() + HA_FENCE_NS);
	destroy_fails_with = EBUSY;
}

/* A NIC that refuses for a moment is asked again, and the connection goes on. */
static void a_queue_pair_that_is_refused_for_a_moment_is_destroyed_then(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	fence_that_is_refused(&pair, &recv, &send);
	refused_for(pair.send, 5 * HA_NS_PER_MS);
	assert_int_equal(queue_pairs(pair.send), 1);
	destroy_fails_with = 0;
	sv_stepped_run(sv_stepped_now() + 4 * HA_NS_PER_MS);
	assert_int_equal(fence_is(pair.send), HA_FENCE_DONE);
	assert_int_equal(queue_pairs(pair.send), 0);
	assert_int_equal(captured_warnings, 0);
	pair_close(&pair);
}

/* Then nothing is known, and nothing is claimed; it is said once however often it is asked. */
static void neither_drained_nor_destroyed_is_no_fence(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	fence_that_is_refused(&pair, &recv, &send);
	refused_for(pair.send, 31 * HA_NS_PER_MS);
	assert_int_equal(captured_warnings, 0);
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	for (int i = 0; i < 100; i++)
		assert_int_equal(fence_is(pair.send), HA_FENCE_FAILED);
	destroy_fails_with = 0;
	assert_int_equal(captured_warnings, 1);
	assert_int_equal(pair.send->paths[0]->state, HA_PATH_FENCING);
	assert_false(is_done(send));
	assert_int_equal(fence_is(pair.send), HA_FENCE_DONE);
	pair_close(&pair);
}

static void a_dead_device_is_fenced_by_destroying(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct ha_request *recv, *send;
		static uint8_t before[MEM_SIZE];
		struct pair pair;
		struct ha_comm *comm;

		pair_init(&pair);
		pair_up(&pair);
		comm = end ? pair.recv : pair.send;
		start(&pair, &recv, &send);
		sv_stepped_step();
		sv_stepped_kill((uint32_t)end, 0);
		assert_int_equal(fence(comm), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(comm), 0);
		assert_int_equal(ha_comm_error(comm), HA_OK);
		/* What a dead sender's device had sent may still land. */
		memcpy(before, pair.to.bytes, MEM_SIZE);
		sv_stepped_run_idle(100000);
		if (end)
			assert_memory_equal(before, pair.to.bytes, MEM_SIZE);
		pair_close(&pair);
	}
}

/* At once, where the device answers that it can do nothing; else when it was tried for long enough.
 */
static void verbs_that_fail_while_fencing_lead_to_destroying(void **state)
{
	static const struct {
		const char *rule;
		bool at_once;
	} cases[] = {
	    {"errno=EIO verb=modify_qp host=1", true},
	    {"errno=ENOMEM verb=modify_qp host=1", false},
	    {"errno=ENOMEM verb=post_send host=1", false},
	    {"errno=ENOMEM verb=post_recv host=1", false},
	    {"errno=EINVAL verb=poll_cq host=1", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t matched, fired, from;
		struct pair pair;
		int id;

		pair_init(&pair);
		pair_up(&pair);
		transfer(&pair, 1000, 1);
		id = sv_stepped_fault_add(cases[i].rule, captured_log, sizeof(captured_log));
		assert_true(id >= 0);
		from = sv_stepped_now();
		if (!cases[i].at_once) {
			assert_int_equal(fence(pair.recv), HA_FENCE_PENDING);
			sv_stepped_run(from + HA_FENCE_NS - 1);
			assert_int_equal(fence_is(pair.recv), HA_FENCE_PENDING);
			assert_int_equal(queue_pairs(pair.recv), 1);
			sv_stepped_run(from + HA_FENCE_NS);
		}
		assert_int_equal(fence(pair.recv), HA_FENCE_DONE);
		assert_int_equal(queue_pairs(pair.recv), 0);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		assert_true(sv_stepped_fault_stats(id, &matched, &fired));
		assert_true(fired > 0);
		sv_stepped_fault_remove(id);
		pair_close(&pair);
	}
}

/* The reads of flushes are the device's, too. */
static void a_flush_in_flight_is_fenced_with_its_path(void **state)
{
	struct ha_request *flush, *late;
	const int got = (int)size;
	struct pair pair;
	void *data;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	data = pair.to.bytes;
	pair.to.mr->host = false;
	/* The first one has its queue pair made. */
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_int_equal(flush->posted, 0);
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_int_equal(flush->posted, 1);
	assert_int_equal(queue_pairs(pair.recv), 2);
	assert_int_equal(fence(pair.recv), HA_FENCE_DONE);
	assert_false(is_done(flush));
	assert_int_equal(pair.recv->paths[0]->sentinels_back, pair.recv->paths[0]->sentinels_out);
	/* None is posted on a path that is fenced: it waits for the next. */
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &late), HA_OK);
	assert_int_equal(late->posted, 0);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	pair.to.mr->host = true;
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_idle_path_is_fenced_at_once),
	    cmocka_unit_test(receives_that_are_not_flushed_late_hold_no_fence_up),
	    cmocka_unit_test(a_full_send_queue_has_room_for_the_sentinel),
	    cmocka_unit_test(nothing_arrives_after_a_fence_and_nothing_is_forgotten),
	    cmocka_unit_test(a_wedged_queue_pair_is_drained),
	    cmocka_unit_test(a_queue_pair_that_does_not_flush_is_destroyed_in_time),
	    cmocka_unit_test(a_queue_pair_that_is_refused_for_a_moment_is_destroyed_then),
	    cmocka_unit_test(neither_drained_nor_destroyed_is_no_fence),
	    cmocka_unit_test(a_dead_device_is_fenced_by_destroying),
	    cmocka_unit_test(verbs_that_fail_while_fencing_lead_to_destroying),
	    cmocka_unit_test(a_flush_in_flight_is_fenced_with_its_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
