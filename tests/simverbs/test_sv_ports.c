/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a port has of its own: link, addresses, events. Two ports of one device have nothing in
 * common but the device.
 */
#include "world.h"

#include <poll.h>

static struct world w;

static const struct world_opts two_ports = {.fabric = {.ports = 2}};

/* Both ends on these ports, connected. */
static void open_on(const struct world_opts *opts, uint8_t a_port, uint8_t b_port)
{
	assert_int_equal(sv_stepped_open(&opts->fabric), 0);
	end_open(&w.a, 0, 0, opts);
	end_open(&w.b, 1, 0, opts);
	w.a.port_num = a_port;
	w.b.port_num = b_port;
	connect_ends(&w.a, &w.b, opts);
}

static void close_all(void)
{
	end_close(&w.a);
	end_close(&w.b);
	assert_int_equal(sv_stepped_close(), 0);
}

/* One write from a to b, every byte compared. */
static void expect_write(enum ibv_wc_status status)
{
	static unsigned int seed;

	fill(w.a.buf, 5000, ++seed);
	memset(w.b.buf, 0, 5000);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, seed, 0, 5000, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, seed, status);
	assert_int_equal(!memcmp(w.a.buf, w.b.buf, 5000), status == IBV_WC_SUCCESS);
}

static void expect_port_event(struct ibv_context *ctx, enum ibv_event_type type, int port_num)
{
	struct ibv_async_event event;

	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	assert_int_equal(event.event_type, type);
	assert_int_equal(event.element.port_num, port_num);
	ibv_ack_async_event(&event);
}

static void skip_comm_est(struct ibv_context *ctx)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(ctx, &event) == 0) {
		assert_int_equal(event.event_type, IBV_EVENT_COMM_EST);
		ibv_ack_async_event(&event);
	}
}

static enum ibv_port_state state_of_port(const struct end *e, uint8_t port_num)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(e->ctx, port_num, &attr), 0);
	return attr.state;
}

static void a_device_has_as_many_ports_as_it_says(void **state)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	union ibv_gid first, second;

	(void)state;
	for (uint32_t ports = 1; ports <= 2; ports++) {
		struct world_opts opts = {.fabric = {.ports = ports}};

		open_on(&opts, 1, 1);
		assert_int_equal(ibv_query_device(w.a.ctx, &device), 0);
		assert_int_equal(device.phys_port_cnt, ports);
		assert_int_equal(ibv_query_port(w.a.ctx, 0, &port), EINVAL);
		assert_int_equal(ibv_query_port(w.a.ctx, 2, &port), ports == 2 ? 0 : EINVAL);
		assert_int_equal(ibv_query_gid(w.a.ctx, 1, 3, &first), 0);
		assert_int_equal(ibv_query_gid(w.a.ctx, 2, 3, &second), ports == 2 ? 0 : -1);
		if (ports == 2)
			assert_memory_not_equal(&first, &second, sizeof(first));
		close_all();
	}
	assert_int_equal(sv_stepped_open(&(struct sv_stepped_opts){.ports = 3}), -EINVAL);
}

static void the_gid_table_has_the_entries_of_all_ports(void **state)
{
	struct ibv_gid_entry entries[64];
	ssize_t n;

	(void)state;
	open_on(&two_ports, 1, 1);
	n = ibv_query_gid_table(w.a.ctx, entries, 64, 0);
	assert_int_equal(n, 8);
	for (ssize_t i = 0; i < n; i++) {
		assert_int_equal(entries[i].port_num, i < 4 ? 1 : 2);
		assert_int_equal(entries[i].gid_index, i % 4);
	}
	close_all();
}

static void every_port_reaches_every_port(void **state)
{
	(void)state;
	for (int infiniband = 0; infiniband < 2; infiniband++) {
		struct world_opts opts = {.fabric = {.ports = 2, .infiniband = infiniband}};

		for (uint8_t a = 1; a <= 2; a++)
			for (uint8_t b = 1; b <= 2; b++) {
				struct sv_event_info next;

				open_on(&opts, a, b);
				assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0),
						 0);
				assert_true(sv_stepped_peek(&next));
				assert_int_equal(next.src_port, a);
				assert_int_equal(next.dst_port, b);
				settle();
				expect_wc(&w.a, 1, IBV_WC_SUCCESS);
				expect_write(IBV_WC_SUCCESS);
				close_all();
			}
	}
}

static void a_link_that_goes_takes_its_own_port_alone(void **state)
{
	(void)state;
	open_on(&two_ports, 2, 2);
	expect_write(IBV_WC_SUCCESS);
	skip_comm_est(w.a.ctx);
	/* The other port's link is nothing to this connection. */
	sv_stepped_link(0, SV_RAIL_PORT(0, 1), false);
	assert_int_equal(state_of_port(&w.a, 1), IBV_PORT_DOWN);
	assert_int_equal(state_of_port(&w.a, 2), IBV_PORT_ACTIVE);
	expect_port_event(w.a.ctx, IBV_EVENT_PORT_ERR, 1);
	expect_no_event(w.a.ctx);
	expect_write(IBV_WC_SUCCESS);
	sv_stepped_link(0, SV_RAIL_PORT(0, 1), true);
	expect_port_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE, 1);
	/* Its own is. */
	sv_stepped_link(0, SV_RAIL_PORT(0, 2), false);
	expect_port_event(w.a.ctx, IBV_EVENT_PORT_ERR, 2);
	expect_write(IBV_WC_RETRY_EXC_ERR);
	close_all();
}

static void a_link_without_a_port_is_all_of_them(void **state)
{
	(void)state;
	open_on(&two_ports, 1, 1);
	sv_stepped_link(1, 0, false);
	assert_int_equal(state_of_port(&w.b, 1), IBV_PORT_DOWN);
	assert_int_equal(state_of_port(&w.b, 2), IBV_PORT_DOWN);
	expect_port_event(w.b.ctx, IBV_EVENT_PORT_ERR, 1);
	expect_port_event(w.b.ctx, IBV_EVENT_PORT_ERR, 2);
	close_all();
}

static void what_comes_in_by_the_other_port_is_not_taken(void **state)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = IBV_MTU_1024,
	    .max_dest_rd_atomic = 4,
	    .min_rnr_timer = 12,
	};

	(void)state;
	assert_int_equal(sv_stepped_open(&two_ports.fabric), 0);
	end_open(&w.a, 0, 0, &two_ports);
	end_open(&w.b, 1, 0, &two_ports);
	assert_int_equal(to_init(&w.a, &two_ports), 0);
	assert_int_equal(to_init(&w.b, &two_ports), 0);
	assert_int_equal(to_rtr(&w.b, &w.a, &two_ports), 0);
	/* b's queue pair is on its port 1; a believes it to be on port 2. */
	attr.dest_qp_num = w.b.qp->qp_num;
	attr.rq_psn = w.b.psn;
	w.b.port_num = 2;
	attr.ah_attr = address_of(&w.b);
	w.b.port_num = 1;
	assert_int_equal(ibv_modify_qp(w.a.qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	assert_int_equal(to_rts(&w.a, &two_ports), 0);
	expect_write(IBV_WC_RETRY_EXC_ERR);
	close_all();
}

static void an_address_is_one_of_the_queue_pairs_port(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .max_dest_rd_atomic = 4,
				   .min_rnr_timer = 12};

	(void)state;
	assert_int_equal(sv_stepped_open(&two_ports.fabric), 0);
	end_open(&w.a, 0, 0, &two_ports);
	end_open(&w.b, 1, 0, &two_ports);
	w.a.port_num = 3;
	assert_int_equal(to_init(&w.a, &two_ports), EINVAL);
	w.a.port_num = 2;
	assert_int_equal(to_init(&w.a, &two_ports), 0);
	attr.dest_qp_num = w.b.qp->qp_num;
	attr.ah_attr = address_of(&w.b); /* its port_num is 1 */
	assert_int_equal(ibv_modify_qp(w.a.qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 EINVAL);
	close_all();
}

static void a_gid_is_its_ports(void **state)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 99}}, got;

	(void)state;
	open_on(&two_ports, 1, 1);
	sv_stepped_set_gid(0, SV_RAIL_PORT(0, 2), 3, &gid);
	expect_port_event(w.a.ctx, IBV_EVENT_GID_CHANGE, 2);
	assert_int_equal(ibv_query_gid(w.a.ctx, 2, 3, &got), 0);
	assert_memory_equal(&got, &gid, sizeof(gid));
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 3, &got), 0);
	assert_memory_not_equal(&got, &gid, sizeof(gid));
	close_all();
}

static void expect_fired(int id, uint64_t times)
{
	uint64_t matched, fired;

	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_int_equal(fired, times);
}

static void rules_may_name_a_port(void **state)
{
	int other, own, link, event;

	(void)state;
	open_on(&two_ports, 2, 1);
	skip_comm_est(w.a.ctx);
	other = add_rule("drop host=0 port=1 op=write");
	own = add_rule("drop host=0 port=2 op=write count=1");
	expect_write(IBV_WC_SUCCESS); /* with one retry */
	expect_fired(other, 0);
	expect_fired(own, 1);
	assert_int_equal(sv_stepped_fault_remove(-1), 0);
	link = add_rule("link=down host=0 rail=0 port=1 at=1s for=1ms");
	event = add_rule("event=GID_CHANGE host=0 rail=0 port=2 at=2s");
	sv_stepped_run(3000000000);
	expect_port_event(w.a.ctx, IBV_EVENT_PORT_ERR, 1);
	expect_port_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE, 1);
	expect_port_event(w.a.ctx, IBV_EVENT_GID_CHANGE, 2);
	expect_no_event(w.a.ctx);
	expect_fired(link, 1);
	expect_fired(event, 1);
	close_all();
}

/* A packet rule without port= acts on the packet's own port. */
static void a_packet_takes_the_link_it_is_on(void **state)
{
	(void)state;
	open_on(&two_ports, 2, 1);
	add_rule("link=down host=0 op=write nth=1");
	expect_write(IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(state_of_port(&w.a, 2), IBV_PORT_DOWN);
	assert_int_equal(state_of_port(&w.a, 1), IBV_PORT_ACTIVE);
	close_all();
}

static void a_device_dies_with_all_its_ports(void **state)
{
	struct ibv_port_attr attr;

	(void)state;
	open_on(&two_ports, 1, 2);
	sv_stepped_kill(1, 0);
	assert_int_equal(ibv_query_port(w.b.ctx, 1, &attr), EIO);
	assert_int_equal(ibv_query_port(w.b.ctx, 2, &attr), EIO);
	expect_write(IBV_WC_RETRY_EXC_ERR);
	close_all();
}

static int clean_up(void **state)
{
	(void)state;
	sv_stepped_destroy();
	return 0;
}

#define TEST(f) cmocka_unit_test_teardown(f, clean_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_device_has_as_many_ports_as_it_says),
	    TEST(the_gid_table_has_the_entries_of_all_ports),
	    TEST(every_port_reaches_every_port),
	    TEST(a_link_that_goes_takes_its_own_port_alone),
	    TEST(a_link_without_a_port_is_all_of_them),
	    TEST(what_comes_in_by_the_other_port_is_not_taken),
	    TEST(an_address_is_one_of_the_queue_pairs_port),
	    TEST(a_gid_is_its_ports),
	    TEST(rules_may_name_a_port),
	    TEST(a_packet_takes_the_link_it_is_on),
	    TEST(a_device_dies_with_all_its_ports),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
