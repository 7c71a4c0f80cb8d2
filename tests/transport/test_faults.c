/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failures on a single path: what the hardware survives is invisible, the rest is one latched
 * error with one clear line, and close always works. Nothing here hangs.
 */
#include "harness.h"

#include "base/clock.h"
#include "memory/mr.h"
#include "transport/lane.h"

#include <fcntl.h>
#include <string.h>

/* What this file is about: no other path to go to. */
static void one_path(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = false;
}

/* ---- what the hardware repairs --------------------------------------------------------------- */

/* The scenario every packet of which is lost once: sizes, groups, laps around the rings. */
static void scenario(struct pair *pair)
{
	const size_t offset[3] = {1 << 20, (1 << 20) + 8192, (1 << 20) + 16384};
	const size_t capacity[3] = {8000, 8000, 8000};
	const int tag[3] = {7, 8, 9};
	struct ha_request *recv, *send[3];
	int got[3];

	transfer(pair, 9000, 1);
	transfer(pair, 0, 2);
	transfer(pair, 1, 3);
	recv = post_recv(pair, 3, offset, capacity, tag);
	for (size_t i = 0; i < 3; i++) {
		fill(pair->from.bytes + i * 8192, 5000 + i, (uint32_t)i);
		send[i] = post_send(pair, i * 8192, 5000 + i, tag[i]);
	}
	assert_int_equal(pair_finish(pair, recv, got), HA_OK);
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(pair_finish(pair, send[i], NULL), HA_OK);
		assert_int_equal(got[i], 5000 + i);
		assert_true(filled(pair->to.bytes + offset[i], 5000 + i, (uint32_t)i));
	}
}

/* Every rule, at every packet of the scenario. */
static void at_every_packet(const char *action)
{
	for (unsigned nth = 1;; nth++) {
		uint64_t matched, fired;
		struct pair pair;
		char rule[128];
		int id;

		one_path(&pair);
		pair_up(&pair);
		snprintf(rule, sizeof(rule), "%s nth=%u count=1", action, nth);
		id = sv_stepped_fault_add(rule, captured_log, sizeof(captured_log));
		assert_true(id >= 0);
		scenario(&pair);
		assert_true(sv_stepped_fault_stats(id, &matched, &fired));
		pair_close(&pair);
		assert_int_equal(captured_warnings, 0);
		if (fired == 0) {
			assert_true(nth > 10);
			return; /* past the last packet */
		}
	}
}

static void any_lost_packet_is_repaired(void **state)
{
	(void)state;
	at_every_packet("drop");
}

static void any_lost_acknowledgement_is_repaired(void **state)
{
	(void)state;
	at_every_packet("dropack");
}

static void any_doubled_packet_is_harmless(void **state)
{
	(void)state;
	at_every_packet("dup");
}

static void any_late_packet_is_harmless(void **state)
{
	(void)state;
	at_every_packet("delay=50us");
}

static void a_short_outage_is_survived(void **state)
{
	struct pair pair;
	const size_t offset = 0, size = 100000;
	const int tag = 1;
	struct ha_request *recv, *send;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	fill(pair.from.bytes, size, 5);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_step();
	sv_stepped_link(0, 0, false);
	for (int i = 0; i < 2; i++)
		ha_instance_progress(pair.inst[i]);
	sv_stepped_run(sv_stepped_now() + 100000000); /* less than the hardware's retries */
	sv_stepped_link(0, 0, true);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_true(filled(pair.to.bytes, size, 5));
	assert_int_equal(atomic_load(&pair.send->port_errors), 1);
	assert_int_equal(atomic_load(&pair.recv->port_errors), 0);
	pair_close(&pair);
}

/* ---- what ends the connection ---------------------------------------------------------------- */

struct transfer_in_flight {
	struct ha_request *recv, *send;
};

static struct transfer_in_flight start_transfer(struct pair *pair)
{
	const size_t offset = 0, size = 300000;
	const int tag = 1;
	struct transfer_in_flight t;

	fill(pair->from.bytes, size, 5);
	t.recv = post_recv(pair, 1, &offset, &size, &tag);
	t.send = post_send(pair, 0, size, tag);
	return t;
}

/* The same code from every entry, again and again, and one WARN. */
static void assert_latched(struct pair *pair, struct ha_comm *comm, struct ha_request *req,
			   ha_result_t code)
{
	struct ha_request *out;
	size_t size = 100;
	void *data = comm->is_send ? pair->from.bytes : pair->to.bytes;
	struct ha_mr *mr = comm->is_send ? pair->from.mr : pair->to.mr;
	int tag = 1, got = 100;
	bool done;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(ha_test(req, &done, NULL), code);
		assert_false(done);
		if (comm->is_send) {
			assert_int_equal(ha_isend(comm, data, size, tag, mr, &out), code);
			assert_null(out);
			continue;
		}
		assert_int_equal(ha_irecv(comm, 1, &data, &size, &tag, &mr, false, &out), code);
		assert_null(out);
		assert_int_equal(ha_iflush(comm, 1, &data, &got, &mr, &out), code);
		assert_null(out);
	}
}

static void a_dead_path_is_a_remote_error_at_the_sender(void **state)
{
	struct transfer_in_flight t;
	struct pair pair;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
	sv_stepped_step();
	sv_stepped_cut(0, true);
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_ERR_REMOTE);
	assert_logged("transport retry counter exceeded");
	assert_logged("sim0:1");
	assert_int_equal(captured_warnings, 1);
	assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	assert_int_equal(captured_warnings, 1);
	pair_close(&pair);
}

/* A clear-to-send is unsignalled, and yet its failure must be told by its own status. */
static void a_clear_to_send_that_is_lost_is_a_remote_error_at_the_receiver(void **state)
{
	const size_t offset = 0, capacity = 100;
	struct ha_request *recv;
	const int tag = 1;
	struct pair pair;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	sv_stepped_cut(0, true);
	recv = post_recv(&pair, 1, &offset, &capacity, &tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_ERR_REMOTE);
	assert_logged("transport retry counter exceeded");
	assert_int_equal(captured_warnings, 1);
	assert_latched(&pair, pair.recv, recv, HA_ERR_REMOTE);
	pair_close(&pair);
}

static void a_dead_device_is_a_system_error_at_once(void **state)
{
	struct transfer_in_flight t;
	struct pair pair;
	bool done;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
	sv_stepped_step();
	sv_stepped_kill(0, 0);
	ha_instance_progress(pair.inst[0]);
	assert_int_equal(ha_test(t.send, &done, NULL), HA_ERR_SYSTEM);
	assert_logged("device sim0 failed");
	assert_latched(&pair, pair.send, t.send, HA_ERR_SYSTEM);
	pair_close(&pair); /* every verb of host 0 fails now */
}

/* Error statuses as a device reports them, and what each is called. */
static const struct {
	const char *name;
	ha_result_t code;
} statuses[] = {
    {"RETRY_EXC_ERR", HA_ERR_REMOTE},	 {"RNR_RETRY_EXC_ERR", HA_ERR_REMOTE},
    {"REM_OP_ERR", HA_ERR_REMOTE},	 {"RESP_TIMEOUT_ERR", HA_ERR_REMOTE},
    {"REM_ACCESS_ERR", HA_ERR_INTERNAL}, {"REM_INV_REQ_ERR", HA_ERR_INTERNAL},
    {"LOC_PROT_ERR", HA_ERR_INTERNAL},	 {"LOC_LEN_ERR", HA_ERR_INTERNAL},
    {"LOC_QP_OP_ERR", HA_ERR_SYSTEM},	 {"FATAL_ERR", HA_ERR_SYSTEM},
    {"GENERAL_ERR", HA_ERR_SYSTEM},
};

static void every_status_is_latched_with_one_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		struct transfer_in_flight t;
		struct pair pair;
		char rule[128];

		one_path(&pair);
		pair_up(&pair);
		transfer(&pair, 10, 1);
		snprintf(rule, sizeof(rule), "wc=%s host=0 op=write nth=1", statuses[i].name);
		assert_true(sv_stepped_fault_add(rule, captured_log, sizeof(captured_log)) >= 0);
		t = start_transfer(&pair);
		assert_int_equal(pair_finish(&pair, t.send, NULL), statuses[i].code);
		assert_int_equal(captured_warnings, 1);
		assert_logged("vendor error");
		assert_logged("number 2");
		assert_latched(&pair, pair.send, t.send, statuses[i].code);
		pair_close(&pair);
		assert_int_equal(captured_warnings, 1);
	}
}

static void verbs_that_fail_are_named(void **state)
{
	static const struct {
		const char *rule, *text;
		bool at_sender;
	} cases[] = {
	    {"errno=ENOMEM verb=post_send host=0 nth=1", "ibv_post_send failed", true},
	    {"errno=ENOMEM verb=post_send host=1 nth=1", "ibv_post_send failed", false},
	    {"errno=EINVAL verb=poll_cq host=0 nth=1", "ibv_poll_cq failed", true},
	    {"errno=EINVAL verb=poll_cq host=1 nth=1", "ibv_poll_cq failed", false},
	    {"errno=ENOMEM verb=post_recv host=1 nth=1", "ibv_post_recv failed", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const size_t offset = 0, size = 100;
		const int tag = 1;
		struct pair pair;
		struct ha_comm *comm;

		one_path(&pair);
		pair_up(&pair);
		assert_true(
		    sv_stepped_fault_add(cases[i].rule, captured_log, sizeof(captured_log)) >= 0);
		comm = cases[i].at_sender ? pair.send : pair.recv;
		/* A few messages: receives are put back a batch at a time. */
		for (int k = 0; k < 3 * HA_RQ_BATCH && ha_comm_error(comm) == HA_OK; k++) {
			struct ha_request *recv, *send = NULL;
			void *data = pair.to.bytes;
			bool done = false;

			if (ha_irecv(pair.recv, 1, &data, &size, &tag, &pair.to.mr, false, &recv) !=
			    HA_OK)
				break;
			for (int s = 0; s < 100 && ha_comm_error(comm) == HA_OK && !done; s++) {
				if (!send && ha_isend(pair.send, pair.from.bytes, size, tag,
						      pair.from.mr, &send) != HA_OK)
					break;
				pair_step(&pair);
				if (recv && ha_test(recv, &done, NULL) != HA_OK)
					break;
			}
			for (int s = 0; send && s < 100; s++) {
				if (ha_test(send, &done, NULL) != HA_OK || done)
					break;
				pair_step(&pair);
			}
			(void)offset;
		}
		assert_int_equal(ha_comm_error(comm), HA_ERR_SYSTEM);
		assert_logged(cases[i].text);
		assert_in_range(captured_warnings, 1, 2); /* the other end may have been told */
		pair_close(&pair);
	}
}

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

		one_path(&pair);
		pair_up(&pair);
		dead = sender_dies ? pair.send : pair.recv;
		alive = sender_dies ? pair.recv : pair.send;
		recv = post_recv(&pair, 1, &offset, &size, &tag);
		sv_stepped_run_idle(1000);
		send = sender_dies ? NULL : post_send(&pair, 0, size, tag);
		if (send)
			sv_stepped_cut(0, true); /* it died before it could take the data */
		/* What the kernel does for a process that is gone. */
		ha_lane_stop(dead->lane);
		ha_stream_close(&dead->lane->stream);
		for (int i = 0; i < 100 && ha_comm_error(alive) == HA_OK; i++)
			ha_instance_progress(pair.inst[sender_dies ? 1 : 0]);
		assert_int_equal(ha_comm_error(alive), HA_ERR_REMOTE);
		assert_logged("the peer left without a goodbye");
		assert_latched(&pair, alive, sender_dies ? recv : send, HA_ERR_REMOTE);
		pair_close(&pair);
	}
}

/* NCCL's own transport leaves the receiver of a dead sender waiting. */
static void an_end_that_gives_up_tells_the_other(void **state)
{
	(void)state;
	for (int sender_fails = 0; sender_fails < 2; sender_fails++) {
		struct ha_comm *failing, *other;
		struct transfer_in_flight t;
		struct pair pair;

		one_path(&pair);
		pair_up(&pair);
		failing = sender_fails ? pair.send : pair.recv;
		other = sender_fails ? pair.recv : pair.send;
		t = start_transfer(&pair);
		sv_stepped_cut(0, true); /* nothing else reaches it */
		ha_comm_fail(failing, HA_ERR_SYSTEM, "a test makes this end give up");
		for (int i = 0; i < 100 && ha_comm_error(other) == HA_OK; i++) {
			ha_instance_progress(pair.inst[0]);
			ha_instance_progress(pair.inst[1]);
		}
		assert_latched(&pair, other, sender_fails ? t.recv : t.send, HA_ERR_REMOTE);
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

static void data_that_arrived_before_the_peer_died_is_delivered(void **state)
{
	struct transfer_in_flight t;
	struct pair pair;
	bool done;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
	sv_stepped_run_idle(100000);
	ha_lane_stop(pair.send->lane);
	ha_stream_close(&pair.send->lane->stream);
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
	struct transfer_in_flight t;
	struct pair pair;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
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
	struct transfer_in_flight t;
	struct ha_path *path;
	struct pair pair;
	int waited = 0;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
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
	one_path(&pair);
	pair_up(&pair);
	pair.to.mr->type = HA_MEM_CUDA;
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
	pair.to.mr->type = HA_MEM_HOST;
	pair_close(&pair);
}

static void an_undelivered_send_to_a_peer_that_closed_is_an_error(void **state)
{
	struct transfer_in_flight t;
	struct pair pair;

	(void)state;
	one_path(&pair);
	pair_up(&pair);
	t = start_transfer(&pair);
	sv_stepped_step();
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_ERR_REMOTE);
	assert_logged("the peer closed the connection with 1 requests outstanding");
	assert_latched(&pair, pair.send, t.send, HA_ERR_REMOTE);
	pair_close(&pair);
}

static void an_orderly_end_is_silent_from_either_side(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++) {
		struct pair pair;

		one_path(&pair);
		pair_up(&pair);
		for (uint32_t i = 0; i < 40; i++)
			transfer(&pair, 1000, i);
		if (first == 0) {
			ha_close_send(pair.send);
			pair.send = NULL;
		} else {
			ha_close_recv(pair.recv);
			pair.recv = NULL;
		}
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

			one_path(&pair);
			pair_up(&pair);
			(void)start_transfer(&pair);
			for (int i = 0; i < steps; i++)
				sv_stepped_step();
			if (first == 0) {
				ha_close_send(pair.send);
				pair.send = NULL;
			} else {
				ha_close_recv(pair.recv);
				pair.recv = NULL;
			}
			for (int i = 0; i < 200; i++)
				pair_step(&pair);
			pair_close(&pair);
		}
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void a_thousand_connections_leave_nothing_behind(void **state)
{
	struct pair pair;
	int before;

	(void)state;
	one_path(&pair);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(any_lost_packet_is_repaired),
	    cmocka_unit_test(any_lost_acknowledgement_is_repaired),
	    cmocka_unit_test(any_doubled_packet_is_harmless),
	    cmocka_unit_test(any_late_packet_is_harmless),
	    cmocka_unit_test(a_short_outage_is_survived),
	    cmocka_unit_test(a_dead_path_is_a_remote_error_at_the_sender),
	    cmocka_unit_test(a_clear_to_send_that_is_lost_is_a_remote_error_at_the_receiver),
	    cmocka_unit_test(a_dead_device_is_a_system_error_at_once),
	    cmocka_unit_test(every_status_is_latched_with_one_line),
	    cmocka_unit_test(verbs_that_fail_are_named),
	    cmocka_unit_test(a_peer_that_dies_is_noticed_at_once),
	    cmocka_unit_test(an_end_that_gives_up_tells_the_other),
	    cmocka_unit_test(data_that_arrived_before_the_peer_died_is_delivered),
	    cmocka_unit_test(a_sender_whose_last_ack_is_lost_learns_from_bye),
	    cmocka_unit_test(what_bye_counts_is_complete_when_the_fence_is_confirmed),
	    cmocka_unit_test(a_flush_goes_on_when_the_peer_has_closed),
	    cmocka_unit_test(an_undelivered_send_to_a_peer_that_closed_is_an_error),
	    cmocka_unit_test(an_orderly_end_is_silent_from_either_side),
	    cmocka_unit_test(close_works_at_every_moment_of_a_transfer),
	    cmocka_unit_test(a_thousand_connections_leave_nothing_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
