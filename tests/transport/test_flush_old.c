/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory is flushed through the NIC that its data came on, also when that one's path has been
 * left since: only that NIC's read pushes its writes ahead.
 */
#include "gpu.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "memory/mr.h"
#include "progress/command.h"
#include "transport/flush_old.h"
#include "transport/recv.h"

#include <stdio.h>

#define SIZE ((size_t)300000)

static void up_with(struct pair *pair, struct gpu *gpu, uint32_t rails)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = rails;
	pair->fabric.gpu = true;
	pair_up(pair);
	pair_wait_standby(pair);
	gpu_open(gpu, pair->recv, SIZE, GPU_BY_POINTER);
	pair_idle(pair, 100);
}

static void up(struct pair *pair, struct gpu *gpu)
{
	up_with(pair, gpu, 2);
}

static void send_all(struct pair *pair, uint32_t seed)
{
	fill(pair->from.bytes, SIZE, seed);
	assert_int_equal(pair_finish(pair, post_send(pair, 0, SIZE, 1), NULL), HA_OK);
}

static void report(struct pair *pair, struct ha_request *recv)
{
	int got = 0;

	assert_int_equal(pair_finish(pair, recv, &got), HA_OK);
	assert_int_equal(got, (int)SIZE);
}

/* A message that has come, and was reported. */
static void receive(struct pair *pair, const struct gpu *gpu, uint32_t seed)
{
	struct ha_request *recv = gpu_recv(pair->recv, gpu, 0, SIZE);

	send_all(pair, seed);
	report(pair, recv);
}

static struct ha_request *flush(struct pair *pair, const struct gpu *gpu)
{
	struct ha_request *req = gpu_flush(pair->recv, gpu, 0, SIZE);

	assert_non_null(req);
	return req;
}

static const char *active(const struct pair *pair)
{
	return pair->recv->paths[pair->recv->active]->nic->name;
}

/* Reads that the active path has posted. */
static unsigned reads_of_active(const struct pair *pair)
{
	return pair->recv->paths[pair->recv->active]->flush.posted;
}

/* Until traffic goes on over that device. */
static void wait_for_active(struct pair *pair, const char *name)
{
	for (int i = 0; i < 2000; i++) {
		const struct ha_path *path = pair->recv->paths[pair->recv->active];

		if (!pair->recv->epoch_changing && ha_path_ready(path) &&
		    strcmp(path->nic->name, name) == 0)
			return;
		pair_idle(pair, 1);
	}
	fail_msg("not on %s; log:\n%s", name, captured_log);
}

/* Counts the reads that a device of the receiver's sends. */
static int count_reads(int rail)
{
	char rule[64];

	snprintf(rule, sizeof(rule), "delay=1ns op=read host=1 rail=%d", rail);
	return add_rule(rule);
}

/* Each read that a flush makes goes through the device that the data came on. */
static void data_of_a_cut_link_is_flushed_through_its_nic(void **state)
{
	static const bool flushed_before[] = {true, false};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct pair pair;
		struct gpu gpu;
		unsigned before;
		int old, new;

		up(&pair, &gpu);
		if (flushed_before[i]) {
			receive(&pair, &gpu, 3);
			assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		}
		assert_string_equal(active(&pair), "sim0");
		receive(&pair, &gpu, 5);
		sv_stepped_link(1, 0, false);
		wait_for_active(&pair, "sim1");
		old = count_reads(0);
		new = count_reads(1);
		before = reads_of_active(&pair);
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		assert_int_equal(fired(old), 1);
		assert_int_equal(reads_of_active(&pair) - before, 1);
		assert_true(filled(gpu.bytes, SIZE, 5));
		/* And no longer than it is needed. */
		pair_idle(&pair, 1500);
		assert_null(pair.recv->recv->old);
		receive(&pair, &gpu, 6);
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		assert_int_equal(fired(old), 1);
		assert_true(fired(new) >= 1);
		assert_true(filled(gpu.bytes, SIZE, 6));
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		gpu_close(&gpu, pair.recv);
		pair_close(&pair);
	}
}

static void data_of_a_dead_nic_is_flushed_through_the_other(void **state)
{
	struct pair pair;
	struct gpu gpu;
	int old, new;

	(void)state;
	up(&pair, &gpu);
	receive(&pair, &gpu, 5);
	sv_stepped_kill(1, 0);
	wait_for_active(&pair, "sim1");
	old = count_reads(0);
	new = count_reads(1);
	assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
	assert_int_equal(fired(old), 0);
	assert_int_equal(fired(new), 1);
	assert_true(filled(gpu.bytes, SIZE, 5));
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

/* It dies, or its queue pair fails, when it is read through: the other one's read is all there is.
 */
static void a_kept_nic_that_fails_holds_no_flush_up(void **state)
{
	static const char *const rules[] = {
	    "drop op=read host=1 rail=0", "wc=REM_OP_ERR op=read host=1 rail=0",
	    "kill op=read host=1 rail=0", "errno=ENOMEM verb=post_send host=1 rail=0"};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct pair pair;
		struct gpu gpu;
		unsigned before;
		int rule;

		up(&pair, &gpu);
		receive(&pair, &gpu, 5);
		sv_stepped_link(1, 0, false);
		wait_for_active(&pair, "sim1");
		rule = add_rule(rules[i]);
		before = reads_of_active(&pair);
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		assert_true(fired(rule) > 0);
		assert_true(reads_of_active(&pair) - before >= 1);
		assert_true(filled(gpu.bytes, SIZE, 5));
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		pair_idle(&pair, 2000);
		assert_null(pair.recv->recv->old);
		gpu_close(&gpu, pair.recv);
		pair_close(&pair);
	}
}

static unsigned kept(const struct pair *pair)
{
	unsigned n = 0;

	for (const struct ha_path *p = pair->recv->failover->retired; p; p = p->next_retired)
		n += p->flush.kept;
	return n;
}

static void switches_in_a_row_leave_no_queue_pairs(void **state)
{
	struct pair pair;
	struct gpu gpu;

	(void)state;
	up(&pair, &gpu);
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t rail = i % 2;

		receive(&pair, &gpu, 5 + i);
		sv_stepped_link(1, rail, false);
		wait_for_active(&pair, rail ? "sim0" : "sim1");
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		assert_true(filled(gpu.bytes, SIZE, 5 + i));
		assert_true(kept(&pair) <= 2);
		sv_stepped_link(1, rail, true);
		pair_wait_standby(&pair);
	}
	pair_idle(&pair, 3000);
	assert_null(pair.recv->recv->old);
	assert_null(pair.recv->failover->retired);
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

/* The device may still read the memory until its queue pair is gone. */
static void the_end_waits_for_a_read_through_a_nic_that_was_left(void **state)
{
	(void)state;
	for (int close = 0; close < 2; close++) {
		struct ha_request *req;
		struct pair pair;
		struct gpu gpu;
		uint64_t began_ns;
		int rule, destroyed;

		up(&pair, &gpu);
		receive(&pair, &gpu, 5);
		sv_stepped_link(1, 0, false);
		wait_for_active(&pair, "sim1");
		rule = add_rule("delay=10ms op=read host=1 rail=0");
		destroyed = add_rule("wait=3ms verb=destroy_qp host=1 rail=0");
		req = flush(&pair, &gpu);
		assert_int_equal(req->posted, HA_FLUSH_SPREAD);
		assert_true(fired(rule) > 0);
		assert_int_equal(fired(destroyed), 0);
		began_ns = sv_stepped_now();
		if (close) {
			ha_dereg_mr(pair.recv, pair.to.mr);
			ha_close_recv(pair.recv);
			pair.recv = NULL;
			pair.to.mr = NULL;
			/* nothing of it is left: checked when the fabric is closed */
			ha_dereg_mr(NULL, gpu.mr);
		} else {
			ha_dereg_mr(pair.recv, gpu.mr);
			assert_int_equal(fired(destroyed), 1);
			assert_false(ha_flush_old_reads(pair.recv, NULL));
			assert_int_equal(kept(&pair), 0);
		}
		/* It was in the verb, and the verb was in no hurry. */
		assert_true(fired(destroyed) >= 1);
		assert_true(sv_stepped_now() - began_ns >= 3 * HA_NS_PER_MS);
		gpu.mr = NULL;
		gpu_close(&gpu, pair.recv);
		pair_close(&pair);
	}
}

static void wait_for_other(struct pair *pair, const char *than)
{
	for (int i = 0; i < 2000; i++) {
		const struct ha_path *path = pair->recv->paths[pair->recv->active];

		if (ha_comm_error(pair->recv) != HA_OK ||
		    (!pair->recv->epoch_changing && ha_path_ready(path) &&
		     strcmp(path->nic->name, than) != 0))
			return;
		pair_pass(pair, 1);
	}
	fail_msg("still on %s; log:\n%s", than, captured_log);
}

/*
 * The application asks late, or the sender has nothing to send: an old NIC is kept for a second, in
 * which nothing is read. Then one read of ours is ahead of whatever is asked for later.
 */
static void a_receive_that_is_not_reported_keeps_no_nic(void **state)
{
	static const bool has_come[] = {true, false};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct ha_request *recv;
		struct pair pair;
		struct gpu gpu;
		int old, new;

		up(&pair, &gpu);
		receive(&pair, &gpu, 3);
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		recv = gpu_recv(pair.recv, &gpu, 0, SIZE);
		if (has_come[i])
			send_all(&pair, 5);
		pair_idle(&pair, 20);
		old = count_reads(0);
		sv_stepped_link(1, 0, false);
		wait_for_active(&pair, "sim1");
		pair_pass(&pair, 950);
		assert_non_null(pair.recv->recv->old);
		assert_int_equal(fired(old), 0);
		pair_pass(&pair, 200);
		assert_int_equal(fired(old), 1);
		assert_null(pair.recv->recv->old);
		assert_null(pair.recv->failover->retired);
		new = count_reads(1);
		if (!has_come[i])
			send_all(&pair, 5);
		report(&pair, recv);
		assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
		assert_int_equal(fired(old), 1);
		assert_int_equal(fired(new), 1);
		assert_true(filled(gpu.bytes, SIZE, 5));
		gpu_close(&gpu, pair.recv);
		pair_close(&pair);
	}
}

#define RAILS 8

static int rail_of(const char *name)
{
	return name[3] - '0';
}

/* From one device to the next, and on each a message comes that is not reported. How many switches
 * that were. */
static unsigned switch_over_all(struct pair *pair, struct gpu *gpu, struct ha_request **recvs,
				int *reads)
{
	unsigned switches = 0;

	for (; switches < RAILS - 1 && ha_comm_error(pair->recv) == HA_OK; switches++) {
		char name[64];

		snprintf(name, sizeof(name), "%s", active(pair));
		recvs[switches] = gpu_recv(pair->recv, gpu, 0, SIZE);
		send_all(pair, 5);
		pair_pass(pair, 5);
		reads[switches] = count_reads(rail_of(name));
		pair_wait_standby(pair);
		sv_stepped_link(1, (uint32_t)rail_of(name), false);
		wait_for_other(pair, name);
	}
	return switches;
}

/* There is always a place: the reads for what was left first are made sooner. */
static void switches_to_more_nics_than_are_kept_flush_through_each(void **state)
{
	struct ha_request *recvs[RAILS];
	uint64_t began_ns;
	int reads[RAILS];
	struct pair pair;
	struct gpu gpu;

	(void)state;
	up_with(&pair, &gpu, RAILS);
	receive(&pair, &gpu, 3);
	assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
	began_ns = sv_stepped_now();
	assert_int_equal(switch_over_all(&pair, &gpu, recvs, reads), RAILS - 1);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	assert_true(sv_stepped_now() - began_ns < HA_NS_PER_S); /* no time was over */
	for (unsigned i = 0; i < RAILS - 1; i++)
		report(&pair, recvs[i]);
	assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
	for (unsigned i = 0; i < RAILS - 1; i++)
		assert_true(fired(reads[i]) >= 1);
	assert_true(filled(gpu.bytes, SIZE, 5));
	pair_pass(&pair, 1500);
	assert_null(pair.recv->recv->old);
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

/* No NIC that was left destroys its queue pair: there is no place, and no flush that would be a
 * lie. */
static void
where_no_place_becomes_free_it_is_an_error_and_not_a_flush_that_orders_nothing(void **state)
{
	struct ha_request *recvs[RAILS];
	int reads[RAILS], waits;
	unsigned switches;
	struct pair pair;
	struct gpu gpu;

	(void)state;
	up_with(&pair, &gpu, RAILS);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	(void)sv_stepped_waited_ns();
	ha_command_took_ns = sv_stepped_waited_ns;
	receive(&pair, &gpu, 3);
	assert_int_equal(pair_finish(&pair, flush(&pair, &gpu), NULL), HA_OK);
	waits = add_rule("wait=60s verb=destroy_qp host=1");
	switches = switch_over_all(&pair, &gpu, recvs, reads);
	assert_true(fired(waits) > 0);
	assert_int_equal(switches, 7);
	assert_int_equal(ha_comm_error(pair.recv), HA_ERR_SYSTEM);
	assert_logged("cannot be flushed through it");
	ha_command_took_ns = NULL;
	gpu_close(&gpu, pair.recv);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(data_of_a_cut_link_is_flushed_through_its_nic),
	    cmocka_unit_test(data_of_a_dead_nic_is_flushed_through_the_other),
	    cmocka_unit_test(a_kept_nic_that_fails_holds_no_flush_up),
	    cmocka_unit_test(switches_in_a_row_leave_no_queue_pairs),
	    cmocka_unit_test(the_end_waits_for_a_read_through_a_nic_that_was_left),
	    cmocka_unit_test(a_receive_that_is_not_reported_keeps_no_nic),
	    cmocka_unit_test(switches_to_more_nics_than_are_kept_flush_through_each),
	    cmocka_unit_test(
		where_no_place_becomes_free_it_is_an_error_and_not_a_flush_that_orders_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
