/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous events, completion channels, SRQ limits; and what destroying waits for. */
#include "world.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void test_async_fd_polls(void **state)
{
	struct ibv_async_event event;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	assert_false(readable(w.a.ctx->async_fd));
	sv_stepped_link(0, 0, false);
	sv_stepped_link(0, 0, true);
	sv_stepped_raise(0, 0, IBV_EVENT_GID_CHANGE);
	assert_true(readable(w.a.ctx->async_fd));
	assert_int_equal(ibv_get_async_event(w.a.ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_PORT_ERR);
	assert_int_equal(event.element.port_num, 1);
	ibv_ack_async_event(&event);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	expect_event(w.a.ctx, IBV_EVENT_GID_CHANGE);
	assert_false(readable(w.a.ctx->async_fd));
	world_close(&w);
}

/* Every context of the port hears of it, and a crowd of events keeps its order. */
static void test_many_events_many_contexts(void **state)
{
	struct ibv_context *second;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	second = open_host(0, 0);
	assert_int_equal(fcntl(second->async_fd, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 100; i++)
		sv_stepped_link(0, 0, i % 2);
	for (int i = 1; i < 100; i++) {
		expect_event(w.a.ctx, i % 2 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
		expect_event(second, i % 2 ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
	}
	sv_stepped_link(0, 0, true);
	assert_int_equal(ibv_close_device(second), 0);
	world_close(&w);
}

/* The GID table is longer than what is in it. */
static void test_empty_gids(void **state)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	struct ibv_ah_attr address;
	union ibv_gid gid, none = {0};
	struct world w;

	(void)state;
	world_open(&w, NULL);
	address = address_of(&w.b);
	assert_int_equal(ibv_query_port(w.a.ctx, 1, &port), 0);
	assert_int_equal(port.gid_tbl_len, 16);
	assert_int_equal(ibv_query_gid_ex(w.a.ctx, 1, 3, &entry, 0), 0);
	assert_int_equal(ibv_query_gid_ex(w.a.ctx, 1, 4, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(w.a.ctx, 1, 15, &entry, 0), ENODATA);
	assert_int_equal(ibv_query_gid_ex(w.a.ctx, 1, 16, &entry, 0), EINVAL);
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 4, &gid), 0);
	assert_memory_equal(&gid, &none, sizeof(gid));
	address.grh.sgid_index = 4;
	assert_null(ibv_create_ah(w.a.pd, &address));
	assert_int_equal(errno, ENODATA);
	world_close(&w);
}

static int connect_again(struct world *w)
{
	assert_int_equal(to_state(w->a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(to_init(&w->a, NULL), 0);
	return to_rtr(&w->a, &w->b, NULL);
}

/* On Ethernet an address is looked up in the routes, of which a link that is down has none. */
static void test_no_route_while_the_link_is_down(void **state)
{
	struct ibv_ah_attr address;
	struct ibv_ah *ah;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	address = address_of(&w.b);
	sv_stepped_link(0, 0, false);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(connect_again(&w), ENETUNREACH);
	assert_int_equal(state_of(w.a.qp), IBV_QPS_INIT);
	assert_null(ibv_create_ah(w.a.pd, &address));
	assert_int_equal(errno, ENETUNREACH);
	/* The other end's link is another matter. */
	sv_stepped_link(0, 0, true);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	sv_stepped_link(1, 0, false);
	expect_event(w.b.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(connect_again(&w), 0);
	ah = ibv_create_ah(w.a.pd, &address);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	world_close(&w);
}

static void test_infiniband_needs_no_route(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = {.infiniband = true}});
	sv_stepped_link(0, 0, false);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(connect_again(&w), 0);
	world_close(&w);
}

static void test_gid_change(void **state)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 192, [13] = 168, [15] = 1}};
	union ibv_gid found;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_set_gid(1, 0, 3, &gid);
	expect_event(w.b.ctx, IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_query_gid(w.b.ctx, 1, 3, &found), 0);
	assert_memory_equal(&gid, &found, sizeof(gid));
	/* The way that is set up stays; a new one uses the new address. */
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_RESET), 0);
	connect_ends(&w.a, &w.b, NULL);
	world_close(&w);
}

static void test_comm_est(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.unconnected = true});
	assert_int_equal(to_init(&w.a, NULL), 0);
	assert_int_equal(to_init(&w.b, NULL), 0);
	assert_int_equal(to_rtr(&w.b, &w.a, NULL), 0);
	assert_int_equal(to_rtr(&w.a, &w.b, NULL), 0);
	assert_int_equal(to_rts(&w.a, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0), 0);
	settle();
	expect_event(w.b.ctx, IBV_EVENT_COMM_EST);
	expect_no_event(w.b.ctx);
	world_close(&w);
}

/* ---------------------------------------------------------------- destroying waits for acks */

struct destroyer {
	pthread_t thread;
	struct ibv_qp *qp;
	atomic_bool done;
};

static void *destroy(void *arg)
{
	struct destroyer *d = arg;

	ibv_destroy_qp(d->qp);
	atomic_store(&d->done, true);
	return NULL;
}

static void test_destroy_waits_for_ack(void **state)
{
	struct destroyer d = {0};
	struct ibv_async_event event;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	/* A bad key: QP_ACCESS_ERR at b. */
	w.b.mr->rkey ^= 0x100;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0), 0);
	w.b.mr->rkey ^= 0x100;
	settle();
	assert_int_equal(ibv_get_async_event(w.b.ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(event.element.qp, w.b.qp);
	d.qp = w.b.qp;
	assert_int_equal(pthread_create(&d.thread, NULL, destroy, &d), 0);
	usleep(20000);
	assert_false(atomic_load(&d.done));
	ibv_ack_async_event(&event);
	assert_int_equal(pthread_join(d.thread, NULL), 0);
	assert_true(atomic_load(&d.done));
	w.b.qp = NULL;
	world_close(&w);
}

/* An event nobody fetched goes with its object: the reader finds nothing, and does not hang. */
static void test_unfetched_event_is_withdrawn(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	w.b.mr->rkey ^= 0x100;
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 10, &w.b, 0), 0);
	w.b.mr->rkey ^= 0x100;
	settle();
	sv_stepped_raise(1, 0, IBV_EVENT_GID_CHANGE);
	assert_int_equal(ibv_destroy_qp(w.b.qp), 0);
	w.b.qp = NULL;
	expect_event(w.b.ctx, IBV_EVENT_GID_CHANGE);
	expect_no_event(w.b.ctx);
	world_close(&w);
}

/* A reader that blocks is woken by an event. */
static void *read_event(void *arg)
{
	struct ibv_async_event *event = arg;
	struct ibv_context *ctx = (struct ibv_context *)(void *)event->element.qp;

	assert_int_equal(ibv_get_async_event(ctx, event), 0);
	return NULL;
}

static void test_blocking_reader(void **state)
{
	struct ibv_async_event event = {0};
	struct ibv_context *ctx;
	pthread_t thread;
	struct world w;

	(void)state;
	world_open(&w, NULL);
	ctx = open_host(0, 0);
	event.element.qp = (struct ibv_qp *)(void *)ctx;
	assert_int_equal(pthread_create(&thread, NULL, read_event, &event), 0);
	usleep(10000);
	sv_stepped_raise(0, 0, IBV_EVENT_LID_CHANGE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(event.event_type, IBV_EVENT_LID_CHANGE);
	ibv_close_device(ctx);
	world_close(&w);
}

/* ---------------------------------------------------------------- completion channels */

struct channel_world {
	struct world w;
	struct ibv_comp_channel *channel;
	struct ibv_cq *plain;
};

/* World whose end b has a CQ with a channel. */
static void open_with_channel(struct channel_world *c)
{
	struct ibv_qp_init_attr init = {
	    .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC};

	world_open(&c->w, &(struct world_opts){.unconnected = true});
	c->channel = ibv_create_comp_channel(c->w.b.ctx);
	assert_non_null(c->channel);
	assert_int_equal(fcntl(c->channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_destroy_qp(c->w.b.qp), 0);
	c->plain = c->w.b.cq;
	c->w.b.cq = ibv_create_cq(c->w.b.ctx, 16, &c->w, c->channel, 1);
	assert_non_null(c->w.b.cq);
	init.send_cq = init.recv_cq = c->w.b.cq;
	c->w.b.qp = ibv_create_qp(c->w.b.pd, &init);
	assert_non_null(c->w.b.qp);
	connect_ends(&c->w.a, &c->w.b, NULL);
}

static void close_with_channel(struct channel_world *c)
{
	assert_int_equal(ibv_destroy_comp_channel(c->channel), EBUSY);
	assert_int_equal(ibv_destroy_qp(c->w.b.qp), 0);
	c->w.b.qp = NULL;
	assert_int_equal(ibv_destroy_cq(c->w.b.cq), 0);
	c->w.b.cq = c->plain;
	assert_int_equal(ibv_destroy_comp_channel(c->channel), 0);
	world_close(&c->w);
}

static void expect_cq_event(struct channel_world *c)
{
	struct ibv_cq *cq;
	void *context;

	assert_true(readable(c->channel->fd));
	assert_int_equal(ibv_get_cq_event(c->channel, &cq, &context), 0);
	assert_ptr_equal(cq, c->w.b.cq);
	assert_ptr_equal(context, &c->w);
	ibv_ack_cq_events(cq, 1);
}

static void expect_no_cq_event(struct channel_world *c)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_get_cq_event(c->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
}

static void send_one(struct channel_world *c, unsigned int flags)
{
	assert_int_equal(post_recv(&c->w.b, 1, 0, 10), 0);
	assert_int_equal(post_flags(&c->w.a, IBV_WR_SEND, 1, 0, 10, NULL, 0, flags), 0);
	settle();
}

static void take_all(struct channel_world *c)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(c->w.b.cq, 1, &wc) == 1)
		;
}

static void test_notification(void **state)
{
	struct channel_world c;

	(void)state;
	open_with_channel(&c);
	send_one(&c, 0); /* not armed */
	expect_no_cq_event(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 0), 0);
	expect_cq_event(&c); /* nobody has seen what is there */
	take_all(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 0), 0);
	expect_no_cq_event(&c);
	send_one(&c, 0);
	send_one(&c, 0);
	expect_cq_event(&c); /* one for both */
	expect_no_cq_event(&c);
	close_with_channel(&c);
}

/* As ConnectX does, and programs rely on that poll, arm and wait, without another look in between.
 */
static void arming_a_queue_that_holds_something_tells_at_once(void **state)
{
	struct channel_world c;

	(void)state;
	open_with_channel(&c);
	send_one(&c, 0);
	for (int i = 0; i < 3; i++) { /* each time */
		assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 0), 0);
		expect_cq_event(&c);
		expect_no_cq_event(&c);
	}
	/* Whoever waits for solicited ones does not wait for this one. */
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 1), 0);
	expect_no_cq_event(&c);
	send_one(&c, IBV_SEND_SOLICITED);
	expect_cq_event(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 1), 0);
	expect_cq_event(&c);
	close_with_channel(&c);
}

static void test_solicited_notification(void **state)
{
	struct channel_world c;

	(void)state;
	open_with_channel(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 1), 0);
	send_one(&c, 0);
	expect_no_cq_event(&c);
	send_one(&c, IBV_SEND_SOLICITED);
	expect_cq_event(&c);
	/* An error is always worth an event. */
	take_all(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 1), 0);
	expect_no_cq_event(&c);
	assert_int_equal(post_recv(&c.w.b, 2, 0, 10), 0);
	assert_int_equal(to_state(c.w.b.qp, IBV_QPS_ERR), 0);
	expect_cq_event(&c);
	close_with_channel(&c);
}

/* A CQ that goes takes its unfetched events along. */
static void test_cq_event_withdrawn(void **state)
{
	struct channel_world c;
	struct ibv_cq *cq;
	void *context;

	(void)state;
	open_with_channel(&c);
	assert_int_equal(ibv_req_notify_cq(c.w.b.cq, 0), 0);
	send_one(&c, 0);
	assert_int_equal(ibv_destroy_qp(c.w.b.qp), 0);
	c.w.b.qp = NULL;
	assert_int_equal(ibv_destroy_cq(c.w.b.cq), 0);
	c.w.b.cq = c.plain;
	assert_int_equal(ibv_get_cq_event(c.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(c.channel), 0);
	world_close(&c.w);
}

/* ---------------------------------------------------------------- SRQ */

static void test_srq_limit(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 3};
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.srq_wrs = 8});
	for (uint64_t i = 0; i < 5; i++)
		assert_int_equal(post_recv(&w.b, i, 0, 10), 0);
	assert_int_equal(ibv_modify_srq(w.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	assert_int_equal(ibv_query_srq(w.b.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 3);
	assert_int_equal(attr.max_wr, 8);
	for (uint64_t i = 0; i < 5; i++) {
		assert_int_equal(post(&w.a, IBV_WR_SEND, i, 0, 10, NULL, 0), 0);
		settle();
		if (i == 2)
			expect_event(w.b.ctx, IBV_EVENT_SRQ_LIMIT_REACHED);
		expect_no_event(w.b.ctx); /* once per arming */
	}
	assert_int_equal(ibv_query_srq(w.b.srq, &attr), 0);
	assert_int_equal(attr.srq_limit, 0);
	attr.srq_limit = 8;
	assert_int_equal(ibv_modify_srq(w.b.srq, &attr, IBV_SRQ_LIMIT), EINVAL);
	world_close(&w);
}

/* A QP with an SRQ that fails flushes nothing of it, but says that it took its last WR. */
static void test_srq_last_wqe(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.srq_wrs = 8});
	assert_int_equal(post_recv(&w.b, 1, 0, 10), 0);
	assert_int_equal(to_state(w.b.qp, IBV_QPS_ERR), 0);
	expect_event(w.b.ctx, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_no_wc(&w.b);
	world_close(&w);
}

static void test_srq_fills_up(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.srq_wrs = 4});
	for (uint64_t i = 0; i < 4; i++)
		assert_int_equal(post_recv(&w.b, i, 0, 10), 0);
	assert_int_equal(post_recv(&w.b, 4, 0, 10), ENOMEM);
	assert_int_equal(
	    ibv_post_recv(w.b.qp, &(struct ibv_recv_wr){0}, &(struct ibv_recv_wr *){NULL}),
	    EINVAL); /* the QP has no queue of its own */
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_async_fd_polls),
	    cmocka_unit_test(test_many_events_many_contexts),
	    cmocka_unit_test(test_gid_change),
	    cmocka_unit_test(test_empty_gids),
	    cmocka_unit_test(test_no_route_while_the_link_is_down),
	    cmocka_unit_test(test_infiniband_needs_no_route),
	    cmocka_unit_test(test_comm_est),
	    cmocka_unit_test(test_destroy_waits_for_ack),
	    cmocka_unit_test(test_unfetched_event_is_withdrawn),
	    cmocka_unit_test(test_blocking_reader),
	    cmocka_unit_test(test_notification),
	    cmocka_unit_test(arming_a_queue_that_holds_something_tells_at_once),
	    cmocka_unit_test(test_solicited_notification),
	    cmocka_unit_test(test_cq_event_withdrawn),
	    cmocka_unit_test(test_srq_limit),
	    cmocka_unit_test(test_srq_last_wqe),
	    cmocka_unit_test(test_srq_fills_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
