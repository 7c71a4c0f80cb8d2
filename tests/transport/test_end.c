/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a connection with a single path: the peer dies, gives up or closes, with messages
 * under way or without, and close works at every moment and leaves nothing behind.
 */
#include "../descriptors.h"
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/fence.h"

#include <fcntl.h>

/* ---- the peer -------------------------------------------------------------------------------- */

static void a_peer_that_dies_is_noticed_at_once(void **state)
{
	(void)state;
	for (int sender_dies = 0; sender_dies < 2; sender_dies++) {
		const size_t offset = 0, size = 100;
		const int tag = 1;
		struct ha_request *recv, *send;
		struct pair pair;
		struct ha_comm *dead, *alive;

		pair_init(&pair);
		pair_up(&pair);
		dead = sender_dies ? pair.send : pair.recv;
		alive = sender_dies ? pair.recv : pair.send;
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		sv_stepped_run_idle(1000);
		send = sender_dies ? NULL : post_send(&pair, 0, size, tag);
		if (send)
			sv_stepped_cut(0, true); /* it died before it could take the data */
		/* What the kernel does for a process that is gone. */
		ha_ctrl_sock_stop(dead->ctrl_sock);
		ha_frame_sock_close(&dead->ctrl_sock->frames);
		for (int i = 0; i < 100 && ha_comm_error(alive) == HA_OK; i++)
			ha_instance_progress(pair.inst[sender_dies ? 1 : 0]);
		assert_int_equal(ha_comm_error(alive), HA_ERR_REMOTE);
		assert_logged("the peer left without a goodbye");
		pair_assert_latched(&pair, alive, sender_dies ? recv : send, HA_ERR_REMOTE);
		pair_close(&pair);
	}
}

/* NCCL's own transport leaves the receiver of a dead sender waiting. */
static void an_end_that_gives_up_tells_the_other(void **state)
{
	(void)state;
	for (int sender_fails = 0; sender_fails < 2; sender_fails++) {
		struct ha_comm *failing, *other;
		struct in_flight t;
		struct pair pair;

		pair_init(&pair);
		pair_up(&pair);
		failing = sender_fails ? pair.send : pair.recv;
		other = sender_fails ? pair.recv : pair.send;
		t = pair_start(&pair);
		sv_stepped_cut(0, true); /* nothing else reaches it */
		ha_comm_fail(failing, HA_ERR_SYSTEM, "a test makes this end give up");
		for (int i = 0; i < 100 && ha_comm_error(other) == HA_OK; i++) {
			ha_instance_progress(pair.inst[0]);
			ha_instance_progress(pair.inst[1]);
		}
		pair_assert_latched(&pair, other, sender_fails ? t.recv : t.send, HA_ERR_REMOTE);
		assert_logged("the peer has given up (result 2");
		assert_int_equal(captured_warnings, 2); /* one at each end, and no echo */
		for (int i = 0; i < 10; i++) {
			ha_instance_progress(pair.inst[0]);
			ha_instance_progress(pair.inst[1]);
		}
		assert_int_equal(captured_warnings, 2);
		pair_close(&pair);
	}
}

/* The sender's for 0, else the receiver's. */
static void close_end(struct pair *pair, int which)
{
	if (which == 0) {
		ha_close_send(pair->send);
		pair->send = NULL;
	} else {
		ha_close_recv(pair->recv);
		pair->recv = NULL;
	}
}

static void data_that_arrived_before_the_peer_died_is_delivered(void **state)
{
	struct in_flight t;
	struct pair pair;
	bool done;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	sv_stepped_run_idle(100000);
	ha_ctrl_sock_stop(pair.send->ctrl_sock);
	ha_frame_sock_close(&pair.send->ctrl_sock->frames);
	for (int i = 0; i < 100 && ha_comm_error(pair.recv) == HA_OK; i++)
		ha_instance_progress(pair.inst[1]);
	assert_int_equal(ha_comm_error(pair.recv), HA_ERR_REMOTE);
	assert_int_equal(ha_test(t.recv, &done, NULL), HA_OK);
	assert_true(done);
	assert_true(filled(pair.to.bytes, 300000, 5));
	pair_close(&pair);
}

/* The receiver has everything and closes; the acknowledgement is lost with its queue pair. */
static void a_sender_whose_last_ack_is_lost_learns_from_bye(void **state)
{
	struct in_flight t;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	assert_true(sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log)) >=
		    0);
	assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
	ha_dereg_mr(pair.recv, pair.to.mr);
	pair.to.mr = NULL;
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
	assert_int_equal(captured_warnings, 0);
	pair.to.mr = NULL;
	pair_close(&pair);
}

/* BYE says it is there. Our device, which does nothing any more, may still read the buffer: the
 * send is done when its queue pair is known to be gone, not before. */
static void what_bye_counts_is_complete_when_the_fence_is_confirmed(void **state)
{
	struct in_flight t;
	struct ha_path *path;
	struct pair pair;
	int waited = 0;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	path = pair.send->paths[0];
	assert_true(sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log)) >=
		    0);
	assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
	assert_true(sv_stepped_wedge(0, 0, path->qps[0].qp->qp_num, true));
	ha_dereg_mr(pair.recv, pair.to.mr);
	pair.to.mr = NULL;
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	for (int i = 0; i < 100000 && atomic_load(&t.send->state) == HA_REQ_ACTIVE; i++) {
		waited += atomic_load(&path->state) == HA_PATH_FENCING;
		pair_step(&pair);
	}
	assert_int_equal(atomic_load(&t.send->state), HA_REQ_DONE);
	assert_int_equal(atomic_load(&path->state), HA_PATH_FENCED);
	assert_null(path->qps[0].qp);
	assert_true(waited > 0);
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
	pair_close(&pair);
}

/* Its first path could not be connected, and it has not looked at its ports yet: it is not left any
 * more, and nothing that was posted is waited for. */
static void a_peer_that_closes_before_the_first_path_is_left_ends_what_waits(void **state)
{
	const size_t offset = 0, size = 100;
	const int tag = 1;
	struct ha_request *recv;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair_open(&pair);
	add_rule("errno=ENETUNREACH verb=rtr host=1");
	pair_connect(&pair);
	assert_logged("ibv_modify_qp to RTR failed on sim0:1: Network is unreachable");
	assert_false(ha_path_ready(pair.recv->paths[0]));
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	close_end(&pair, 0);
	pair_idle(&pair, 400);
	assert_int_equal(atomic_load(&pair.recv->peer_bye), true);
	assert_int_equal(pair.recv->count.failovers, 0);
	assert_logged("the peer closed the connection with 1 requests outstanding here");
	pair_assert_latched(&pair, pair.recv, recv, HA_ERR_REMOTE);
	pair_close(&pair);
}

/* A flush reads our own memory through our own device. */
static void a_flush_goes_on_when_the_peer_has_closed(void **state)
{
	const size_t offset = 0, size = 5000;
	const int tag = 1;
	struct ha_request *recv, *flush;
	void *data;
	struct pair pair;
	int got = (int)size;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	pair.to.mr->host = false;
	data = pair.to.bytes;
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	assert_int_equal(pair_finish(&pair, post_send(&pair, 0, size, tag), NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	ha_dereg_mr(pair.send, pair.from.mr);
	pair.from.mr = NULL;
	ha_close_send(pair.send);
	pair.send = NULL;
	for (uint64_t until = sv_stepped_now() + HA_NS_PER_S; sv_stepped_now() < until;)
		pair_step(&pair);
	assert_true(atomic_load(&pair.recv->peer_bye));
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_OK);
	assert_non_null(flush);
	for (int i = 0; i < 10; i++) /* rounds of the background, before the read is back */
		ha_instance_progress(pair.inst[1]);
	assert_int_equal(pair_finish(&pair, flush, NULL), HA_OK);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	/* One that cannot be any more is an error, and no wait for ever. */
	ha_token_acquire(pair.recv);
	ha_path_fence(pair.recv->paths[0]);
	ha_token_release(pair.recv);
	assert_int_equal(ha_iflush(pair.recv, 1, &data, &got, &pair.to.mr, &flush), HA_ERR_REMOTE);
	assert_logged("cannot be flushed");
	pair.to.mr->host = true;
	pair_close(&pair);
}

static void an_undelivered_send_to_a_peer_that_closed_is_an_error(void **state)
{
	struct in_flight t;
	struct pair pair;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	t = pair_start(&pair);
	sv_stepped_step();
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_ERR_REMOTE);
	assert_logged("the peer closed the connection with 1 requests outstanding");
	pair_assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	pair_close(&pair);
}

static void an_orderly_end_is_silent_from_either_side(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++) {
		struct pair pair;

		pair_init(&pair);
		pair_up(&pair);
		for (uint32_t i = 0; i < 40; i++)
			transfer(&pair, 1000, i);
		close_end(&pair, first);
		for (int i = 0; i < 1000; i++)
			pair_step(&pair);
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
	}
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Closed at every step of a transfer, either end first, memory gone right after: what is written
 * into it later the sanitizers see. */
static void close_works_at_every_moment_of_a_transfer(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++)
		for (int steps = 0; steps < 120; steps += 3) {
			struct pair pair;

			pair_init(&pair);
			pair_up(&pair);
			(void)pair_start(&pair);
			for (int i = 0; i < steps; i++)
				sv_stepped_step();
			close_end(&pair, first);
			for (int i = 0; i < 200; i++)
				pair_step(&pair);
			pair_close(&pair);
		}
}

static void a_thousand_connections_leave_nothing_behind(void **state)
{
	struct pair pair;
	int before;

	(void)state;
	pair_init(&pair);
	pair_up(&pair);
	before = open_descriptors();
	for (uint32_t i = 0; i < 1000; i++) {
		transfer(&pair, 100, i);
		ha_close_send(pair.send);
		ha_close_recv(pair.recv);
		pair.send = pair.recv = NULL;
		pair_connect(&pair);
	}
	assert_int_equal(open_descriptors(), before);
	pair_close(&pair);
}

/* The goodbye of an end that is not what it says: nobody completes what was not sent. */
static void a_bye_above_what_was_posted_latches(void **state)
{
	static const struct ha_bye impossible[] = {{.done = 1ull << 40},
						   {.done = UINT64_MAX, .done_bits = UINT64_MAX},
						   {.done = 1, .done_bits = 4}};

	(void)state;
	for (size_t i = 0; i < sizeof(impossible) / sizeof(impossible[0]); i++) {
		struct ha_frame_header header = {.type = HA_FRAME_BYE, .length = HA_BYE_BYTES};
		uint8_t payload[HA_BYE_BYTES];
		struct in_flight t;
		struct pair pair;

		pair_init(&pair);
		pair_up(&pair);
		t = pair_start(&pair);
		ha_bye_encode(&impossible[i], payload);
		ha_token_acquire(pair.send);
		pair.send->ops->frame(pair.send, &header, payload);
		ha_token_release(pair.send);
		assert_false(atomic_load(&pair.send->peer_bye));
		assert_logged("the peer counts");
		pair_assert_latched(&pair, pair.send, t.send, HA_ERR_INTERNAL);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_peer_that_dies_is_noticed_at_once),
	    cmocka_unit_test(an_end_that_gives_up_tells_the_other),
	    cmocka_unit_test(data_that_arrived_before_the_peer_died_is_delivered),
	    cmocka_unit_test(a_sender_whose_last_ack_is_lost_learns_from_bye),
	    cmocka_unit_test(what_bye_counts_is_complete_when_the_fence_is_confirmed),
	    cmocka_unit_test(a_peer_that_closes_before_the_first_path_is_left_ends_what_waits),
	    cmocka_unit_test(a_flush_goes_on_when_the_peer_has_closed),
	    cmocka_unit_test(an_undelivered_send_to_a_peer_that_closed_is_an_error),
	    cmocka_unit_test(an_orderly_end_is_silent_from_either_side),
	    cmocka_unit_test(close_works_at_every_moment_of_a_transfer),
	    cmocka_unit_test(a_thousand_connections_leave_nothing_behind),
	    cmocka_unit_test(a_bye_above_what_was_posted_latches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
