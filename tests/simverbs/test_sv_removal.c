/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that the kernel takes away: EIO from every command first, the hardware's end later, the
 * event last. A driver that says more than it does. And queue pairs that cannot be destroyed, or
 * not be put into error, at the first try.
 */
#include "verb_calls.h"
#include "world.h"

#include <poll.h>

#define MS 1000000ull

static void expect_fired(int id, uint64_t times)
{
	uint64_t matched = 0, fired = 0;

	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_int_equal(fired, times);
}

/* A context whose device was taken away gives nothing back: only closing it does. */
static void close_removed(struct end *e)
{
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

static void close_with_b_removed(struct world *w)
{
	end_close(&w->a);
	close_removed(&w->b);
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

/* Behind its last event: readable for ever, and reading fails. */
static void expect_closed(struct ibv_context *ctx)
{
	struct pollfd fd = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;

	for (int i = 0; i < 3; i++) {
		assert_int_equal(poll(&fd, 1, 0), 1);
		assert_int_equal(ibv_get_async_event(ctx, &event), -1);
		assert_int_equal(errno, EIO);
	}
}

static void expect_nothing_given_back(struct end *e)
{
	assert_int_equal(to_state(e->qp, IBV_QPS_ERR), EIO);
	assert_int_equal(ibv_destroy_qp(e->qp), EIO);
	assert_int_equal(ibv_destroy_cq(e->cq), EIO);
	assert_int_equal(ibv_dereg_mr(e->mr), EIO);
	assert_int_equal(ibv_dealloc_pd(e->pd), EIO);
}

/* ---------------------------------------------------------------- the kernel's order */

static void test_commands_answer_eio_at_once(void **state)
{
	struct verb_target target;
	struct ibv_device **list;
	__be16 pkey;
	struct world w;
	int n;

	(void)state;
	world_open(&w, NULL);
	target = target_of(&w.b);
	sv_stepped_set_host(1);
	list = ibv_get_device_list(&n);
	assert_int_equal(n, 1);
	sv_stepped_disassociate(1, 0, 20 * MS);
	assert_null(ibv_open_device(list[0]));
	assert_int_equal(errno, EIO);
	ibv_free_device_list(list);
	ibv_free_device_list(ibv_get_device_list(&n));
	assert_int_equal(n, 0);
	for (size_t i = 0; i < num_verb_calls; i++) {
		const char *name = verb_calls[i].name;

		if (!strcmp(name, "open_device") || !strcmp(name, "close_device"))
			continue; /* they open a device of their own */
		if (verb_calls[i].call(&target) != EIO)
			fail_msg("%s did not answer EIO", name);
	}
	assert_int_equal(ibv_query_pkey(w.b.ctx, 1, 0, &pkey), -1);
	expect_nothing_given_back(&w.b);
	expect_no_event(w.b.ctx);
	expect_no_event(w.a.ctx);
	close_with_b_removed(&w);
}

/* Until the queue pairs are destroyed the hardware goes on in both directions. */
static void test_data_lands_until_the_queue_pairs_end(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	fill(w.a.buf, 5000, 1);
	assert_int_equal(post_recv(&w.b, 7, 0, 100), 0);
	sv_stepped_disassociate(1, 0, 20 * MS);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 5000, &w.b, 0), 0);
	sv_stepped_run(19 * MS);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_wc(&w.b, 7, IBV_WC_SUCCESS);
	assert_memory_equal(w.a.buf, w.b.buf, 5000);
	w.b.buf[0] = 0x77;
	assert_int_equal(post(&w.b, IBV_WR_RDMA_WRITE, 2, 0, 1, &w.a, 9000), 0);
	sv_stepped_run(20 * MS - 1);
	expect_wc(&w.b, 2, IBV_WC_SUCCESS);
	assert_int_equal(w.a.buf[9000], 0x77);
	expect_nothing_given_back(&w.b);
	expect_no_event(w.b.ctx);
	close_with_b_removed(&w);
}

static void test_the_event_comes_with_the_end_and_closes_the_descriptor(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_int_equal(post_recv(&w.b, 5, 0, 100), 0);
	sv_stepped_disassociate(1, 0, 20 * MS);
	sv_stepped_run(20 * MS);
	memset(w.a.buf, 0x11, 100);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 100, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(w.b.buf[0], 0);
	expect_no_wc(&w.b); /* no flush either */
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_closed(w.b.ctx);
	expect_nothing_given_back(&w.b);
	close_with_b_removed(&w);
}

/* The doorbell's page leads nowhere: posting is accepted until the queue is full. */
static void test_posting_afterwards_does_nothing(void **state)
{
	struct world w;
	int err = 0;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_disassociate(1, 0, 0);
	assert_int_equal(post_recv(&w.b, 1, 0, 100), 0);
	assert_int_equal(ibv_req_notify_cq(w.b.cq, 0), 0);
	for (int i = 0; i < 64; i++)
		assert_int_equal(post(&w.b, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.a, 0), 0);
	err = post(&w.b, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.a, 0);
	assert_int_equal(err, ENOMEM);
	settle();
	expect_no_wc(&w.b);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_closed(w.b.ctx);
	close_with_b_removed(&w);
}

/* Kernels before 5.7 say so first: the event is no sign that the hardware has stopped. */
static void test_an_older_kernel_raises_the_event_first(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_disassociate(1, 0, 20 * MS);
	sv_stepped_raise(1, 0, IBV_EVENT_DEVICE_FATAL);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_no_event(w.b.ctx);
	w.a.buf[0] = 0x42;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 1, &w.b, 0), 0);
	sv_stepped_run(10 * MS);
	assert_int_equal(w.b.buf[0], 0x42);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	close_with_b_removed(&w);
}

static void test_a_wait_ends_with_eio(void **state)
{
	struct world w;
	uint64_t since_ns;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("wait=30s verb=destroy_qp host=1");
	add_rule("disassociate=5ms at=1s host=1 rail=0");
	since_ns = sv_stepped_now();
	assert_int_equal(ibv_destroy_qp(w.b.qp), EIO);
	assert_int_equal(sv_stepped_now() - since_ns, 1000 * MS);
	expect_fired(id, 1);
	close_with_b_removed(&w);
}

/* ---------------------------------------------------------------- rules, revival, death */

static void test_rules_say_when_and_for_how_long(void **state)
{
	struct ibv_context *again;
	struct ibv_port_attr port;
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("disassociate=3ms at=5ms host=1 rail=0 for=10ms");
	sv_stepped_run(5 * MS - 1);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), 0);
	sv_stepped_run(5 * MS);
	expect_fired(id, 1);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), EIO);
	sv_stepped_run(8 * MS - 1);
	expect_no_event(w.b.ctx);
	sv_stepped_run(8 * MS);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	sv_stepped_run(15 * MS);
	again = open_host(1, 0);
	assert_non_null(again);
	assert_int_equal(ibv_query_port(again, 1, &port), 0);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), EIO); /* what was open stays so */
	expect_closed(w.b.ctx);
	assert_int_equal(ibv_close_device(again), 0);
	close_with_b_removed(&w);
}

/* A packet that sets it off arrives: the hardware goes on. A millisecond, unless a rule says. */
static void test_a_packet_can_set_it_off(void **state)
{
	struct ibv_port_attr port;
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("disassociate host=1 rail=0 op=write dir=rx nth=2");
	w.a.buf[0] = 0x42;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 1, &w.b, 0), 0);
	settle();
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), 0);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 1, &w.b, 1), 0);
	sv_stepped_run(sv_stepped_now() + MS / 2);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	assert_int_equal(w.b.buf[1], 0x42);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), EIO);
	expect_no_event(w.b.ctx);
	sv_stepped_run(sv_stepped_now() + MS);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_fired(id, 1);
	close_with_b_removed(&w);
}

/* A revival ends what was left, and the old time limit says nothing about the device's next end. */
static void test_revived_and_taken_away_again(void **state)
{
	struct ibv_context *again;
	struct ibv_port_attr port;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_disassociate(1, 0, 20 * MS);
	sv_stepped_disassociate(1, 0, 1 * MS); /* no news */
	sv_stepped_run(5 * MS);
	expect_no_event(w.b.ctx);
	sv_stepped_revive(1, 0);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_closed(w.b.ctx);
	again = open_host(1, 0);
	assert_non_null(again);
	sv_stepped_disassociate(1, 0, 40 * MS);
	assert_int_equal(ibv_query_port(again, 1, &port), EIO);
	sv_stepped_run(45 * MS - 1);
	assert_false(poll(&(struct pollfd){.fd = again->async_fd, .events = POLLIN}, 1, 0));
	sv_stepped_run(45 * MS);
	expect_event(again, IBV_EVENT_DEVICE_FATAL);
	assert_int_equal(ibv_close_device(again), 0);
	close_with_b_removed(&w);
}

/* It dies on its way out: at once, and still nothing can be given back. */
static void test_killed_while_it_leaves(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_disassociate(1, 0, 20 * MS);
	sv_stepped_kill(1, 0);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_closed(w.b.ctx);
	expect_nothing_given_back(&w.b);
	sv_stepped_run(30 * MS);
	expect_closed(w.b.ctx); /* no second event */
	close_with_b_removed(&w);
}

/* A device that is dead in its driver's hands stays what it is: destroying works. */
static void test_a_dead_device_is_not_taken_away(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_kill(1, 0);
	sv_stepped_disassociate(1, 0, 1 * MS);
	sv_stepped_run(5 * MS);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	expect_no_event(w.b.ctx);
	world_close(&w);
}

/* Closing, which the kernel always does, ends what the hardware still had. */
static void test_closing_ends_the_queue_pairs(void **state)
{
	struct world w;
	struct ibv_mr mr;
	struct end gone;

	(void)state;
	world_open(&w, NULL);
	mr = *w.b.mr; /* its key is all that the other end has of it */
	gone = w.b;
	gone.mr = &mr;
	sv_stepped_disassociate(1, 0, 20 * MS);
	assert_int_equal(ibv_close_device(w.b.ctx), 0);
	w.b.buf[0] = 0x77;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 1, &gone, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(w.b.buf[0], 0x77);
	free(w.b.buf);
	end_close(&w.a);
	assert_int_equal(sv_stepped_close(), 0);
}

/* ---------------------------------------------------------------- the driver's word alone */

/* What was destroyed and deregistered, by the driver's word, is written for as long as that. */
static void test_what_is_destroyed_by_word_goes_on(void **state)
{
	struct ibv_port_attr port;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_int_equal(post_recv(&w.b, 1, 0, 100), 0);
	sv_stepped_feign(1, 0, 30 * MS);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &port), EIO);
	assert_null(ibv_reg_mr(w.b.pd, w.b.buf, 10, 0));
	assert_int_equal(errno, EIO);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_RTS), EIO);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_ERR), 0);
	assert_int_equal(w.b.qp->state, IBV_QPS_ERR);
	expect_no_wc(&w.b); /* no flush */
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	assert_int_equal(ibv_dereg_mr(w.b.mr), 0);
	assert_int_equal(ibv_destroy_cq(w.b.cq), 0);
	assert_int_equal(ibv_dealloc_pd(w.b.pd), 0);
	fill(w.a.buf, 5000, 1);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 5000, &w.b, 0), 0);
	sv_stepped_run(29 * MS);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_memory_equal(w.a.buf, w.b.buf, 5000);
	sv_stepped_run(30 * MS);
	w.a.buf[0]++;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 1, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 2, IBV_WC_RETRY_EXC_ERR);
	assert_int_not_equal(w.a.buf[0], w.b.buf[0]);
	expect_no_event(w.b.ctx); /* the one at the beginning was all */
	close_with_b_removed(&w);
}

/* By rule, and undone: a device that is opened anew is a new one. */
static void test_a_feigning_device_comes_back(void **state)
{
	struct ibv_context *again;
	struct ibv_port_attr port;
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("feign=3ms at=2ms host=1 rail=0 for=10ms");
	sv_stepped_run(2 * MS);
	expect_fired(id, 1);
	expect_event(w.b.ctx, IBV_EVENT_DEVICE_FATAL);
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	sv_stepped_run(12 * MS);
	again = open_host(1, 0);
	assert_non_null(again);
	assert_int_equal(ibv_query_port(again, 1, &port), 0);
	assert_int_equal(ibv_close_device(again), 0);
	assert_int_equal(ibv_dereg_mr(w.b.mr), 0); /* its word is what it was */
	close_with_b_removed(&w);
}

/* ---------------------------------------------------------------- verbs that fail */

/* What cannot be destroyed is as it was: what arrives is still written. */
static void test_busy_queue_pair_goes_on(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("errno=EBUSY verb=destroy_qp host=1 rail=0 count=2");
	assert_int_equal(ibv_destroy_qp(w.b.qp), EBUSY);
	w.a.buf[0] = 0x42;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 1, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(w.b.buf[0], 0x42);
	assert_int_equal(ibv_destroy_qp(w.b.qp), EBUSY);
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	expect_fired(id, 2);
	w.b.qp = NULL;
	world_close(&w);
}

static void test_one_modify_fails(void **state)
{
	struct world w;
	int id;

	(void)state;
	world_open(&w, NULL);
	id = add_rule("errno=ENOMEM verb=modify_qp host=1 nth=1");
	assert_int_equal(post_recv(&w.b, 3, 0, 100), 0);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_ERR), ENOMEM);
	expect_no_wc(&w.b);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE_WITH_IMM, 1, 0, 1, &w.b, 0), 0);
	settle();
	expect_wc(&w.b, 3, IBV_WC_SUCCESS);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_ERR), 0);
	assert_int_equal(state_of(w.b.qp), IBV_QPS_ERR);
	expect_fired(id, 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_commands_answer_eio_at_once),
	    cmocka_unit_test(test_data_lands_until_the_queue_pairs_end),
	    cmocka_unit_test(test_the_event_comes_with_the_end_and_closes_the_descriptor),
	    cmocka_unit_test(test_posting_afterwards_does_nothing),
	    cmocka_unit_test(test_an_older_kernel_raises_the_event_first),
	    cmocka_unit_test(test_a_wait_ends_with_eio),
	    cmocka_unit_test(test_rules_say_when_and_for_how_long),
	    cmocka_unit_test(test_a_packet_can_set_it_off),
	    cmocka_unit_test(test_revived_and_taken_away_again),
	    cmocka_unit_test(test_killed_while_it_leaves),
	    cmocka_unit_test(test_a_dead_device_is_not_taken_away),
	    cmocka_unit_test(test_closing_ends_the_queue_pairs),
	    cmocka_unit_test(test_what_is_destroyed_by_word_goes_on),
	    cmocka_unit_test(test_a_feigning_device_comes_back),
	    cmocka_unit_test(test_busy_queue_pair_goes_on),
	    cmocka_unit_test(test_one_modify_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
