/* SPDX-License-Identifier: Apache-2.0 */
/*
 * End-to-end completion of messages that no copy is kept of: a send completes when the receiver's
 * software has the message and the hardware is through with the buffer, not before either, and
 * always in the end.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "transport/complete.h"
#include "transport/e2e.h"
#include "transport/send.h"

#include <string.h>

/* Longer than what copies are kept of (test_retain.c). */
static const size_t offset = 0, size = HA_RETAIN_MAX + 1000;
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
	assert_int_equal(pair.recv->silent, HA_SILENT_TELL);
	transfer(&pair, 100, 1);
	assert_int_equal(pair.recv->recv_ring->count, 2);
	pair_close(&pair);
	pair_init(&pair);
	pair.config.enable_backup = true;
	pair_up(&pair);
	assert_int_equal(pair.send->silent, 0);
	transfer(&pair, 100, 1);
	assert_int_equal(pair.recv->recv_ring->count, 0); /* and nothing is told */
	pair_close(&pair);
}

static bool may_be_read(const struct ha_comm *comm)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(comm->paths[0]->qps[0].qp, &attr, IBV_QP_ACCESS_FLAGS, &init),
			 0);
	return attr.qp_access_flags & IBV_ACCESS_REMOTE_READ;
}

static void a_receivers_memory_may_be_read_where_counts_are_and_nowhere_else(void **state)
{
	(void)state;
	for (int e2e = 0; e2e < 2; e2e++) {
		struct pair pair;

		pair_init(&pair);
		pair.config.completion = e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
		pair_up(&pair);
		assert_int_equal(may_be_read(pair.recv), e2e);
		assert_false(may_be_read(pair.send));
		pair_close(&pair);
	}
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
	assert_false(is_done(send)); /* and nothing tells it yet */
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_close(&pair);
}

/* The count of what came before is in the receive that follows. */
static void the_count_rides_on_the_next_receive(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;
	uint64_t before;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	poll(pair.recv);
	assert_true(is_done(recv));
	before = pair.send->count.work_requests;
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	sv_stepped_run_idle(1000);
	poll(pair.send);
	assert_true(is_done(send));
	send = try_send(&pair, 0, size, tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair.send->count.work_requests, before + 1); /* the message itself */
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_close(&pair);
}

/* What NCCL asks, once. */
static bool tested(struct ha_request *req)
{
	bool done;

	assert_int_equal(ha_test(req, &done, NULL), HA_OK);
	return done;
}

/* As NCCL has them: eight in flight, and each that is received makes room for the next. */
static void while_receives_follow_no_message_costs_a_write_more(void **state)
{
	(void)state;
	for (int unordered = 0; unordered < 2; unordered++) {
		struct ha_request *recv[8], *send[8];
		uint64_t sender, receiver;
		struct pair pair;

		begin(&pair, 1);
		if (unordered)
			add_rule("unordered=2us host=0");
		for (size_t i = 0; i < 8; i++)
			recv[i] = post_recv(&pair, 1, &(size_t){i * size}, &size, &tag);
		sv_stepped_run_idle(1000);
		for (size_t i = 0; i < 8; i++)
			send[i] = try_send(&pair, i * size, size, tag);
		sender = pair.send->count.work_requests;
		receiver = pair.recv->count.work_requests;
		for (size_t i = 0; i < 256; i++) {
			while (!tested(recv[i % 8]))
				sv_stepped_run(sv_stepped_now() + HA_NS_PER_US);
			recv[i % 8] = post_recv(&pair, 1, &(size_t){i % 8 * size}, &size, &tag);
			sv_stepped_run(sv_stepped_now() + 6 * HA_NS_PER_US);
			assert_true(tested(send[i % 8]));
			send[i % 8] = try_send(&pair, i % 8 * size, size, tag);
			assert_non_null(send[i % 8]);
		}
		assert_int_equal(pair.send->count.work_requests, sender + 256);
		assert_int_equal(pair.recv->count.work_requests, receiver + 256);
		for (size_t i = 0; i < 8; i++) {
			assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
			assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
		}
		pair_close(&pair);
	}
}

/* A sender that tests, while nobody calls the receiver any more. */
static uint64_t ns_until_done(struct pair *pair, const struct ha_request *send)
{
	uint64_t from = sv_stepped_now();

	while (!is_done(send) && sv_stepped_now() < from + 10 * HA_NS_PER_MS) {
		sv_stepped_run(sv_stepped_now() + 200);
		poll(pair->send);
	}
	return sv_stepped_now() - from;
}

static void a_sender_that_waits_asks_within_microseconds(void **state)
{
	enum { waits = HA_COUNT_TRY_AGAIN + 2 };
	uint64_t after_ns[waits];
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	pair_idle(&pair, 300); /* what is said at the beginning has been said */
	for (int i = 0; i < waits; i++) {
		struct ha_request *recv, *send;
		uint64_t before;

		start(&pair, &recv, &send);
		sv_stepped_run_idle(1000);
		poll(pair.recv);
		assert_true(is_done(recv));
		before = pair.send->count.work_requests;
		after_ns[i] = ns_until_done(&pair, send);
		assert_int_equal(pair.send->count.work_requests, before + 1);
		assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	}
	/* First it waits long, and where that is in vain a few times, now and then. */
	for (int i = 0; i < waits; i++)
		if (i < HA_COUNT_IN_VAIN || i == HA_COUNT_TRY_AGAIN)
			assert_in_range(after_ns[i], HA_COUNT_ASK_FIRST_NS,
					HA_COUNT_ASK_FIRST_NS + 8 * HA_NS_PER_US);
		else
			assert_in_range(after_ns[i], HA_COUNT_ASK_MIN_NS,
					HA_COUNT_ASK_MIN_NS + 8 * HA_NS_PER_US);
	pair_close(&pair);
}

/* One whose receiver does not look for long asks ever less often, one question at a time. */
static void a_long_wait_costs_few_questions(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;
	uint64_t before;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	before = pair.send->count.work_requests;
	for (int us = 0; us < 5000; us++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_US);
		poll(pair.send);
	}
	assert_false(is_done(send));
	assert_in_range(pair.send->count.work_requests - before, 20,
			5000000 / HA_COUNT_ASK_MAX_NS + 8);
	poll(pair.recv);
	assert_true(is_done(recv));
	assert_in_range(ns_until_done(&pair, send), 0, HA_COUNT_ASK_MAX_NS + 8 * HA_NS_PER_US);
	pair_close(&pair);
}

/* The device may read the buffer again until it has the acknowledgement. */
static void the_count_is_not_enough(void **state)
{
	struct ha_request *recv, *send, *next = NULL;
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
		if (is_done(recv) && !next) /* which tells */
			next = post_recv(&pair, 1, &offset, &size, &tag);
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

/* In a row of the ring, or where the question is answered: memory that others can write to who have
 * its key. */
static void a_count_above_what_was_posted_latches(void **state)
{
	(void)state;
	for (int asked = 0; asked < 2; asked++) {
		struct ha_request *recv, *send;
		struct pair pair;

		begin(&pair, 1);
		start(&pair, &recv, &send);
		sv_stepped_run_idle(1000); /* acknowledged: nothing but the count is missing */
		poll(pair.send);
		assert_false(is_done(send));
		if (asked)
			pair.recv->recv_ring->count = 1000;
		else
			pair.send->send_ring->cts[2][0].delivered = 1000;
		for (unsigned us = 0; us < HA_COUNT_ASK_FIRST_NS / HA_NS_PER_US + 12 &&
				      ha_comm_error(pair.send) == HA_OK;
		     us++) {
			sv_stepped_run(sv_stepped_now() + HA_NS_PER_US);
			poll(pair.send);
		}
		assert_false(is_done(send));
		assert_logged("the peer counts 999 messages and more, and there were only 1");
		pair_assert_latched(&pair, pair.send, send, HA_ERR_INTERNAL);
		pair_close(&pair);
	}
}

/* Whatever all rows say, a look at them comes to an end. */
static void rows_that_count_without_end_are_looked_at_once(void **state)
{
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	start(&pair, &recv, &send);
	sv_stepped_run_idle(1000);
	for (int row = 0; row < HA_WINDOW; row++)
		pair.send->send_ring->cts[row][0].delivered = 1ull << 60;
	poll(pair.send);
	assert_in_range(pair.send->send->count_wait.row, 1, 1 + 2 * HA_WINDOW);
	pair_assert_latched(&pair, pair.send, send, HA_ERR_INTERNAL);
	pair_close(&pair);
}

/* Many at a time are told at once. */
static void a_batch_is_told_by_one_question(void **state)
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
	poll(pair.send);
	for (size_t i = 0; i < 8; i++) /* that all were asked for says nothing */
		assert_false(is_done(send[i]));
	poll(pair.recv);
	before = pair.send->count.work_requests;
	for (size_t i = 0; i < 8; i++) {
		assert_true(is_done(recv[i]));
		ns_until_done(&pair, send[i]);
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
	}
	assert_int_equal(pair.send->count.work_requests, before + 1);
	pair_close(&pair);
}

/* Steps until the receiver has a message, and asks for another one, which tells it. */
static struct ha_request *receive_and_tell(struct pair *pair, struct ha_request *recv)
{
	for (int i = 0; i < 1000 && !is_done(recv); i++) {
		assert_true(sv_stepped_step());
		poll(pair->recv);
	}
	assert_true(is_done(recv));
	return post_recv(pair, 1, &offset, &size, &tag);
}

/*
 * Two counts are under way at once, and the device of the sender places them in any order: it must
 * not end with the older one.
 */
static void counts_never_go_back_in_whatever_order_they_are_placed(void **state)
{
	(void)state;
	for (unsigned seed = 1; seed <= 32; seed++) {
		struct ha_request *recv[2], *send[2];
		struct pair pair;
		uint64_t before;
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
		id = add_rule(rule);
		for (size_t i = 0; i < 2; i++)
			recv[i] = receive_and_tell(&pair, recv[i]);
		before = pair.send->count.work_requests;
		sv_stepped_run_idle(1000);
		poll(pair.send);
		assert_int_equal(fired(id), 2);
		assert_true(is_done(send[0]) && is_done(send[1]));
		assert_int_equal(pair.send->count.work_requests, before);
		pair_close(&pair);
	}
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

/* Nothing but the count is missing, and the receiver's application has all it wants. */
static struct ha_request *counted_and_not_told(struct pair *pair)
{
	struct ha_request *recv, *send;

	start(pair, &recv, &send);
	sv_stepped_run_idle(1000);
	poll(pair->send);
	poll(pair->recv);
	assert_true(is_done(recv));
	assert_int_equal(pair_finish(pair, recv, NULL), HA_OK);
	assert_false(is_done(send));
	return send;
}

static unsigned ms_of_both(struct pair *pair, const struct ha_request *send)
{
	unsigned ms = 0;

	for (; ms < 5000 && !is_done(send); ms++)
		pair_pass(pair, 1);
	return ms;
}

/* The hardware reports it, or nobody does: the soft timeout. Then RESUME tells. */
static void a_question_that_is_not_answered_fails_its_path(void **state)
{
	(void)state;
	for (int wedged = 0; wedged < 2; wedged++) {
		struct ha_request *send;
		struct pair pair;
		unsigned ms;

		two_rails(&pair, HA_COMPLETION_E2E);
		pair.send->rto_ms = 200;
		send = counted_and_not_told(&pair);
		if (wedged)
			assert_true(
			    sv_stepped_wedge(0, 0, pair.send->paths[0]->qps[0].qp->qp_num, false));
		else
			sv_stepped_cut(0, true);
		ms = ms_of_both(&pair, send);
		assert_in_range(ms, 1, 1000);
		for (ms = 0; ms < 1000 && pair.send->count.failovers == 0; ms++)
			pair_pass(&pair, 1); /* FENCE has told, and then traffic goes on */
		assert_int_equal(pair.send->count.failovers, 1);
		if (wedged)
			assert_logged("a read of the peer's count was posted");
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		/* And what is counted on the next path is asked for there. */
		send = counted_and_not_told(&pair);
		assert_in_range(ns_until_done(&pair, send), 0,
				HA_COUNT_ASK_FIRST_NS + 12 * HA_NS_PER_US);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		pair_close(&pair);
	}
}

/* Neither end keeps anything under way when the last message is counted. */
static void when_everything_is_counted_nobody_asks(void **state)
{
	uint64_t sender, receiver;
	struct ha_request *send;
	struct pair pair;

	(void)state;
	begin(&pair, 1);
	send = counted_and_not_told(&pair);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	pair_pass(&pair, 500);
	sender = pair.send->count.work_requests;
	receiver = pair.recv->count.work_requests;
	for (int i = 0; i < 1000; i++)
		poll(pair.send);
	pair_pass(&pair, 500);
	assert_int_equal(pair.send->count.work_requests, sender);
	assert_int_equal(pair.recv->count.work_requests, receiver);
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

/* What rc can do: tell. */
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
	    cmocka_unit_test(a_receivers_memory_may_be_read_where_counts_are_and_nowhere_else),
	    cmocka_unit_test(messages_of_all_shapes_complete),
	    cmocka_unit_test(the_hardwares_word_is_not_enough),
	    cmocka_unit_test(the_count_rides_on_the_next_receive),
	    cmocka_unit_test(while_receives_follow_no_message_costs_a_write_more),
	    cmocka_unit_test(a_sender_that_waits_asks_within_microseconds),
	    cmocka_unit_test(a_long_wait_costs_few_questions),
	    cmocka_unit_test(the_count_is_not_enough),
	    cmocka_unit_test(a_count_above_what_was_posted_latches),
	    cmocka_unit_test(rows_that_count_without_end_are_looked_at_once),
	    cmocka_unit_test(a_batch_is_told_by_one_question),
	    cmocka_unit_test(counts_never_go_back_in_whatever_order_they_are_placed),
	    cmocka_unit_test(everything_completes_in_whatever_order_writes_are_placed),
	    cmocka_unit_test(a_question_that_is_not_answered_fails_its_path),
	    cmocka_unit_test(when_everything_is_counted_nobody_asks),
	    cmocka_unit_test(a_receiver_may_close_at_once),
	    cmocka_unit_test(a_device_that_dies_with_what_it_acknowledged_loses_nothing),
	    cmocka_unit_test(without_it_the_loss_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
