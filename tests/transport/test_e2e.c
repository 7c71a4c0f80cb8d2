/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion: a send completes when the receiver's software has the message and the
 * hardware is through with the buffer, not before either, and always in the end.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "transport/complete.h"
#include "transport/send.h"

#include <string.h>

static const size_t offset = 0, size = 30000;
static const int tag = 1;

static void begin(struct pair *pair, int nqps)
{
	pair_init(pair);
	pair->config.completion = HA_COMPLETION_E2E;
	pair->config.enable_backup = true;
	pair->config.ib_qps_per_connection = nqps;
	pair_up(pair);
}

static bool is_done(const struct ha_request *req)
{
	return atomic_load(&req->state) == HA_REQ_DONE;
}

static void start(struct pair *pair, struct ha_request **recv, struct ha_request **send)
{
	fill(pair->from.bytes, size, 5);
	*recv = post_recv(pair, 1, &offset, &size, &tag);
	sv_stepped_run_idle(1000);
	*send = try_send(pair, 0, size, tag);
	assert_non_null(*send);
}

static void poll(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	ha_comm_poll(comm, 32);
	ha_token_release(comm);
}

static void it_is_agreed_by_both_ends_only(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	assert_int_equal(pair.send->silent, HA_SILENT_COUNT);
	assert_int_equal(pair.recv->silent, HA_SILENT_COUNT);
	pair_close(&pair);
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair_up(&pair);
	assert_int_equal(pair.send->silent, 0);
	transfer(&pair, 100, 1);
	assert_int_equal(pair.send->send_ring->counts[0], 0); /* and nothing is told */
	pair_close(&pair);
}

static void messages_of_all_shapes_complete(void **state)
{
	(void)state;
	for (int nqps = 1; nqps <= 4; nqps += 3)
		for (int inlined = 0; inlined < 2; inlined++) {
			struct pair pair;

			pair_init(&pair);
			pair.config.completion = HA_COMPLETION_E2E;
			pair.config.enable_backup = true;
			pair.config.ib_qps_per_connection = nqps;
			pair.config.ib_use_inline = inlined;
			pair.config.ib_split_data_on_qps = nqps > 1;
			pair_up(&pair);
			for (uint32_t i = 0; i < 200; i++)
				transfer(&pair, i * i, i);
			assert_true(pair.send->send->delivered >= 200);
			pair_close(&pair);
			assert_int_equal(captured_warnings, 0);
		}
}

static void the_hardwares_word_is_not_enough(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000); /* there and acknowledged, and the receiver does not look */
	poll(pair.send);
	assert_int_equal(pair.send->send->groups[1].parts_left, 0);
	assert_false(is_done(send));
	poll(pair.recv);
	assert_true(is_done(recv));
	poll(pair.send);
	assert_false(is_done(send)); /* the count is on its way */
	sv_stepped_run_idle(1000);
	poll(pair.send);
	assert_true(is_done(send));
	pair_close(&pair);
}

/* The device may read the buffer again until it has the acknowledgement. */
static void the_count_is_not_enough(void **state)
{
	struct ha_request *recv, *send;
	uint64_t matched, fired;
	struct pair pair;
	int id;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	id = sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log));
	assert_true(id >= 0);
	for (int i = 0; i < 100 && pair.send->send->delivered < 2; i++) {
		sv_stepped_step();
		poll(pair.recv);
		poll(pair.send);
	}
	assert_true(is_done(recv));
	assert_int_equal(pair.send->send->delivered, 2);
	assert_false(is_done(send));
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_true(fired > 0);
	sv_stepped_fault_remove(id);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_close(&pair);
}

/* The place is memory that others can write to who have its key. */
static void a_count_above_what_was_posted_latches(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000); /* acknowledged: nothing but the count is missing */
	poll(pair.send);
	assert_false(is_done(send));
	pair.send->send_ring->counts[pair.send->send->count_place % HA_COUNTS] =
	    ha_count_word(1000, ha_comm_epoch(pair.send));
	poll(pair.send);
	assert_false(is_done(send));
	assert_logged("the peer counts 999 messages and more, and there were only 1");
	pair_assert_latched(&pair, pair.send, send, HA_ERR_INTERNAL);
	pair_close(&pair);
}

/* Many at a time are told at once. */
static void a_batch_is_told_by_one_write(void **state)
{
	struct ha_request *recv[8], *send[8];
	struct pair pair;
	uint64_t before;

	(void)state;
	begin(&pair, 1);
	for (size_t i = 0; i < 8; i++)
		recv[i] = post_recv(&pair, 1, &(size_t){i * size}, &size, &tag);
	sv_stepped_run_idle(1000);
	for (size_t i = 0; i < 8; i++)
		send[i] = try_send(&pair, i * size, size, tag);
	sv_stepped_run_idle(1000);
	before = pair.recv->count.work_requests;
	poll(pair.recv);
	poll(pair.recv);
	assert_int_equal(pair.recv->count.work_requests, before + 1);
	for (size_t i = 0; i < 8; i++) {
		assert_true(is_done(recv[i]));
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	}
	pair_close(&pair);
}

/* Steps until the receiver has a message, which it then tells at once. */
static void receive_and_tell(struct pair *pair, struct ha_request *recv)
{
	for (int i = 0; i < 1000 && !is_done(recv); i++) {
		assert_true(sv_stepped_step());
		poll(pair->recv);
	}
	assert_true(is_done(recv));
}

/*
 * Two counts are under way at once, and the device of the sender places them in any order: it must
 * not end with the older one, since at the end of a collective nothing comes after them.
 */
static void counts_never_go_back_in_whatever_order_they_are_placed(void **state)
{
	unsigned late = 0;

	(void)state;
	for (unsigned seed = 1; seed <= 32; seed++) {
		struct ha_request *recv[2], *send[2];
		uint64_t matched, fired;
		struct pair pair;
		char rule[64];
		int id;

		begin(&pair, 1);
		for (size_t i = 0; i < 2; i++)
			recv[i] = post_recv(&pair, 1, &(size_t){i * size}, &size, &tag);
		sv_stepped_run_idle(1000);
		fill(pair.from.bytes, 2 * size, seed);
		for (size_t i = 0; i < 2; i++)
			send[i] = try_send(&pair, i * size, size, tag);
		snprintf(rule, sizeof(rule), "unordered=100us host=0 seed=%u", seed);
		id = sv_stepped_fault_add(rule, captured_log, sizeof(captured_log));
		assert_true(id >= 0);
		receive_and_tell(&pair, recv[0]);
		receive_and_tell(&pair, recv[1]);
		sv_stepped_run_idle(1000);
		poll(pair.send);
		assert_true(sv_stepped_fault_stats(id, &matched, &fired));
		assert_int_equal(fired, 2);
		late += pair.send->send->count_place == 2;
		assert_true(is_done(send[0]) && is_done(send[1]));
		assert_true(filled(pair.to.bytes, 2 * size, seed));
		pair_close(&pair);
	}
	assert_int_equal(late, 32);
}

/* With rows, records and mail in any order, too, for longer than there are places. */
static void everything_completes_in_whatever_order_writes_are_placed(void **state)
{
	(void)state;
	for (int nqps = 1; nqps <= 4; nqps += 3)
		for (int mode = 0; mode < 2; mode++) {
			uint64_t matched, fired;
			struct pair pair;
			int id;

			pair_init(&pair);
			pair.config.completion = mode ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
			pair.config.enable_backup = true;
			pair.config.ib_qps_per_connection = nqps;
			pair.config.ib_split_data_on_qps = nqps > 1;
			pair_up(&pair);
			id = sv_stepped_fault_add("unordered=30us", captured_log,
						  sizeof(captured_log));
			assert_true(id >= 0);
			for (uint32_t i = 0; i < 200; i++)
				transfer(&pair, i * i, i);
			assert_true(sv_stepped_fault_stats(id, &matched, &fired));
			assert_true(fired > 400);
			pair_close(&pair);
			assert_int_equal(captured_warnings, 0);
		}
}

static int ms_until_done(struct pair *pair, const struct ha_request *send)
{
	int ms = 0;

	for (; ms < 3000 && !is_done(send); ms++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair->inst[0]);
		ha_instance_progress(pair->inst[1]);
	}
	return ms;
}

/*
 * A device acknowledged it and placed it nowhere. The sender asks; and since it does not know that
 * the count will never come, it asks once more before it goes on with the places behind.
 */
static void a_count_that_never_comes_is_asked_for(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	pair_idle(&pair, 300); /* what is said at the beginning has been said */
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	poll(pair.recv);
	assert_true(is_done(recv));
	sv_stepped_run_idle(1000);
	assert_int_not_equal(pair.send->send_ring->counts[0], 0);
	pair.send->send_ring->counts[0] = 0;
	poll(pair.send);
	assert_false(is_done(send));
	assert_in_range(ms_until_done(&pair, send), pair.config.rto_ms / 2, 2 * pair.config.rto_ms);
	for (int i = 0; i < 3; i++) {
		start(&pair, &recv, &send);
		sv_stepped_run_idle(1000);
		poll(pair.recv);
		sv_stepped_run_idle(1000);
		poll(pair.send);
		assert_int_equal(is_done(send), i > 0);
		assert_in_range(ms_until_done(&pair, send), 0, 2 * pair.config.rto_ms);
	}
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
}

/* The receiver has all it wants and does not call any more; its progress thread finds out. */
static void a_lost_count_is_noticed_by_an_idle_receiver(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;
	int ms;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	poll(pair.send);
	sv_stepped_cut(0, true);
	poll(pair.recv);
	assert_true(is_done(recv));
	assert_int_equal(pair.recv->outstanding, 0);
	assert_true(atomic_load(&pair.recv->telling));
	for (ms = 0; ms < 3000; ms++) {
		const struct ha_path *path = pair.recv->paths[0];

		if (!path || path->generation != 1 || ha_path_stopped(path))
			break;
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair.inst[1]);
	}
	assert_in_range(ms, 1, 2000);
	pair_close(&pair);
}

/* When it is known that the count arrived, nobody keeps looking. */
static void a_count_that_arrived_is_confirmed(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;
	uint64_t before;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	for (int ms = 0; ms < 1000; ms++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair.inst[1]);
	}
	assert_false(atomic_load(&pair.recv->telling));
	before = pair.recv->count.work_requests;
	for (int ms = 0; ms < 1000; ms++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair.inst[1]);
	}
	assert_int_equal(pair.recv->count.work_requests, before);
	pair_close(&pair);
}

/* The count is in BYE, too: the receiver may close with its last word still in the queue. */
static void a_receiver_may_close_at_once(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	poll(pair.send);
	poll(pair.recv);
	assert_true(is_done(recv));
	ha_dereg_mr(pair.recv, pair.to.mr);
	pair.to.mr = NULL;
	ha_close_recv(pair.recv);
	pair.recv = NULL;
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(captured_warnings, 0);
	pair_close(&pair);
}

static void two_rails(struct pair *pair, enum ha_completion_mode mode)
{
	pair_init(pair);
	pair->config.completion = mode;
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
	transfer(pair, 100, 1);
	pair_wait_standby(pair);
}

/* The receiver's device acknowledges and dies, having written some of the packets or none. */
static ha_result_t send_to_dying_device(struct pair *pair, unsigned nth)
{
	struct ha_request *recv, *send;
	char rule[128];
	uint64_t matched, fired;
	ha_result_t result;
	int id;

	snprintf(rule, sizeof(rule), "kill=unplaced host=1 rail=0 dir=rx op=write nth=%u", nth);
	id = sv_stepped_fault_add(rule, captured_log, sizeof(captured_log));
	assert_true(id >= 0);
	fill(pair->from.bytes, size, 5);
	memset(pair->to.bytes, CANARY, size);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	send = post_send(pair, 0, size, tag);
	/* The acknowledgement gets to the sender before the news of the death does. */
	do
		assert_true(sv_stepped_step());
	while (sv_stepped_fault_stats(id, &matched, &fired) && fired == 0);
	sv_stepped_run(sv_stepped_now() + 5 * HA_NS_PER_US);
	result = pair_finish(pair, recv, NULL);
	if (result == HA_OK)
		result = pair_finish(pair, send, NULL);
	assert_int_equal(fired, 1);
	return result;
}

static void a_device_that_dies_with_what_it_acknowledged_loses_nothing(void **state)
{
	(void)state;
	for (unsigned nth = 1; nth <= 8; nth++) { /* packets of the message */
		struct pair pair;

		two_rails(&pair, HA_COMPLETION_E2E);
		assert_int_equal(send_to_dying_device(&pair, nth), HA_OK);
		assert_true(filled(pair.to.bytes, size, 5));
		assert_int_equal(pair.recv->count.failovers, 1);
		transfer(&pair, 5000, 2);
		pair_close(&pair);
	}
}

/* What the default can do: tell. */
static void without_it_the_loss_is_an_error(void **state)
{
	struct pair pair;

	(void)state;
	two_rails(&pair, HA_COMPLETION_RC);
	assert_int_equal(send_to_dying_device(&pair, 8), HA_ERR_REMOTE);
	assert_logged("HA_NCCL_COMPLETION=e2e survives this");
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(it_is_agreed_by_both_ends_only),
	    cmocka_unit_test(messages_of_all_shapes_complete),
	    cmocka_unit_test(the_hardwares_word_is_not_enough),
	    cmocka_unit_test(the_count_is_not_enough),
	    cmocka_unit_test(a_count_above_what_was_posted_latches),
	    cmocka_unit_test(a_batch_is_told_by_one_write),
	    cmocka_unit_test(counts_never_go_back_in_whatever_order_they_are_placed),
	    cmocka_unit_test(everything_completes_in_whatever_order_writes_are_placed),
	    cmocka_unit_test(a_count_that_never_comes_is_asked_for),
	    cmocka_unit_test(a_lost_count_is_noticed_by_an_idle_receiver),
	    cmocka_unit_test(a_count_that_arrived_is_confirmed),
	    cmocka_unit_test(a_receiver_may_close_at_once),
	    cmocka_unit_test(a_device_that_dies_with_what_it_acknowledged_loses_nothing),
	    cmocka_unit_test(without_it_the_loss_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
