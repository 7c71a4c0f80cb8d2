/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only InfiniBand has: partitions, ports that take no address without a GRH, subnets with a
 * router between them.
 */
#include "world.h"

#include <arpa/inet.h>

static struct world w;

static void open_ends(const struct world_opts *opts)
{
	assert_int_equal(sv_stepped_open(&opts->fabric), 0);
	end_open(&w.a, 0, 0, opts);
	end_open(&w.b, 1, 0, opts);
}

static void close_all(void)
{
	end_close(&w.a);
	end_close(&w.b);
	assert_int_equal(sv_stepped_close(), 0);
}

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

/* ---- partitions ------------------------------------------------------------------------------ */

static uint16_t pkey_at(const struct end *e, uint8_t port_num, int index)
{
	__be16 pkey;

	assert_int_equal(ibv_query_pkey(e->ctx, port_num, index, &pkey), 0);
	return ntohs(pkey);
}

static void ports_have_the_tables_in_turn(void **state)
{
	const struct world_opts opts = {
	    .fabric = {.infiniband = true, .ports = 2, .pkeys = "0xffff,0x8001/0x8001,0xffff,7"}};
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	__be16 pkey;

	(void)state;
	open_ends(&opts);
	assert_int_equal(pkey_at(&w.a, 1, 0), 0xffff);
	assert_int_equal(pkey_at(&w.a, 1, 1), 0x8001);
	assert_int_equal(pkey_at(&w.a, 2, 0), 0x8001);
	assert_int_equal(pkey_at(&w.a, 2, 2), 7);
	assert_int_equal(ibv_query_pkey(w.a.ctx, 1, 2, &pkey), -1);
	assert_int_equal(ibv_query_pkey(w.a.ctx, 1, -1, &pkey), -1);
	assert_int_equal(ibv_query_port(w.a.ctx, 1, &port), 0);
	assert_int_equal(port.pkey_tbl_len, 2);
	assert_int_equal(ibv_query_port(w.a.ctx, 2, &port), 0);
	assert_int_equal(port.pkey_tbl_len, 3);
	assert_int_equal(ibv_query_device(w.a.ctx, &device), 0);
	assert_int_equal(device.max_pkeys, 3);
	assert_int_equal(ibv_get_pkey_index(w.a.ctx, 1, htons(0x8001)), 1);
	assert_int_equal(ibv_get_pkey_index(w.a.ctx, 2, htons(0x8001)), 0);
	assert_int_equal(ibv_get_pkey_index(w.a.ctx, 1, htons(7)), -1);
	close_all();
}

static void an_index_beyond_the_table_is_refused(void **state)
{
	const struct world_opts opts = {.fabric = {.infiniband = true, .pkeys = "0xffff,0x8001"}};

	(void)state;
	open_ends(&opts);
	w.a.pkey_index = 2;
	assert_int_equal(to_init(&w.a, &opts), EINVAL);
	w.a.pkey_index = 1;
	assert_int_equal(to_init(&w.a, &opts), 0);
	close_all();
	/* RoCE ports have one entry, as ConnectX's. */
	open_ends(&(struct world_opts){0});
	w.a.pkey_index = 1;
	assert_int_equal(to_init(&w.a, NULL), EINVAL);
	close_all();
}

static void send_datagram(void)
{
	struct ibv_ah_attr address = address_of(&w.b);
	struct ibv_sge sge = {.addr = (uintptr_t)w.a.buf, .length = 100, .lkey = w.a.mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND, 2, &sge), *bad;

	wr.wr.ud.ah = ibv_create_ah(w.a.pd, &address);
	assert_non_null(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = w.b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	assert_int_equal(ibv_post_send(w.a.qp, &wr, &bad), 0);
	assert_int_equal(ibv_destroy_ah(wr.wr.ud.ah), 0);
}

/* Which pairs of P_Keys talk: the same number, and one of the two a full member (the top bit). */
static void members_of_one_partition_talk(void **state)
{
	static const struct {
		uint16_t a, b;
		bool talk;
	} cases[] = {
	    {0xffff, 0xffff, true},  {0x8001, 0x8001, true},  {0x8001, 0x0001, true},
	    {0x0001, 0x8001, true},  {0x0001, 0x0001, false}, {0xffff, 0x8001, false},
	    {0x8002, 0x8001, false}, {0x8000, 0x8000, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int ud = 0; ud < 2; ud++) {
			struct world_opts opts = {.type = ud ? IBV_QPT_UD : IBV_QPT_RC};
			char pkeys[64];

			/* Two entries, so that each host picks its own. */
			snprintf(pkeys, sizeof(pkeys), "%#x,%#x", cases[i].a, cases[i].b);
			opts.fabric.infiniband = true;
			opts.fabric.pkeys = pkeys;
			open_ends(&opts);
			w.b.pkey_index = 1;
			connect_ends(&w.a, &w.b, &opts);
			if (!ud) {
				expect_write(cases[i].talk ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
				close_all();
				continue;
			}
			assert_int_equal(post_recv(&w.b, 1, 0, 1000), 0);
			send_datagram();
			settle();
			expect_wc(&w.a, 2, IBV_WC_SUCCESS);
			if (cases[i].talk)
				expect_wc(&w.b, 1, IBV_WC_SUCCESS);
			else
				expect_no_wc(&w.b);
			close_all();
		}
	}
}

static void an_entry_that_changes_is_told_and_counts_at_once(void **state)
{
	const struct world_opts opts = {.fabric = {.infiniband = true, .pkeys = "0x8001"}};
	struct ibv_async_event event;

	(void)state;
	open_ends(&opts);
	connect_ends(&w.a, &w.b, &opts);
	expect_write(IBV_WC_SUCCESS);
	sv_stepped_set_pkey(0, 0, 0, 0x8002);
	sv_stepped_set_pkey(0, 0, 1, 0x8001);
	do
		assert_int_equal(ibv_get_async_event(w.a.ctx, &event), 0);
	while (ibv_ack_async_event(&event), event.event_type == IBV_EVENT_COMM_EST);
	assert_int_equal(event.event_type, IBV_EVENT_PKEY_CHANGE);
	assert_int_equal(event.element.port_num, 1);
	assert_int_equal(pkey_at(&w.a, 1, 0), 0x8002);
	assert_int_equal(pkey_at(&w.a, 1, 1), 0x8001);
	expect_write(IBV_WC_RETRY_EXC_ERR);
	close_all();
}

static void tables_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = {"x",	  "0x10000", "1,",     ",1",  "1//2",
					  "1/2/", "-1",	     "1 , 2 ", "1/x", "1,2,3,4,5,6,7,8,9"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sv_stepped_opts opts = {.infiniband = true, .pkeys = bad[i]};

		if (sv_stepped_open(&opts) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
	}
	assert_int_equal(sv_stepped_open(&(struct sv_stepped_opts){.pkeys = "0xffff"}), -EINVAL);
	assert_int_equal(sv_stepped_open(&(struct sv_stepped_opts){.subnets = 2}), -EINVAL);
	assert_int_equal(sv_stepped_open(&(struct sv_stepped_opts){.grh_required = true}), -EINVAL);
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* b's address for a, with a GRH for this GID if index >= 0. */
static struct ibv_ah_attr address_with(uint16_t dlid, int gid_index)
{
	struct ibv_ah_attr attr = {.port_num = 1, .dlid = dlid};

	if (gid_index < 0)
		return attr;
	attr.is_global = 1;
	attr.grh.hop_limit = 255;
	attr.grh.sgid_index = (uint8_t)gid_index;
	assert_int_equal(ibv_query_gid(w.b.ctx, 1, gid_index, &attr.grh.dgid), 0);
	return attr;
}

static uint16_t lid_of(const struct end *e)
{
	struct ibv_port_attr port;

	assert_int_equal(ibv_query_port(e->ctx, 1, &port), 0);
	return port.lid;
}

static int rtr_with(struct end *e, const struct end *peer, const struct ibv_ah_attr *ah)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = IBV_MTU_1024,
	    .dest_qp_num = peer->qp->qp_num,
	    .rq_psn = peer->psn,
	    .max_dest_rd_atomic = 4,
	    .min_rnr_timer = 12,
	    .ah_attr = *ah,
	};

	return ibv_modify_qp(e->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

/* Connects both; b answers by the right address, a sends to this one. */
static int connect_by(const struct ibv_ah_attr *to_b, const struct ibv_ah_attr *to_a)
{
	int rc;

	assert_int_equal(to_init(&w.a, NULL), 0);
	assert_int_equal(to_init(&w.b, NULL), 0);
	rc = rtr_with(&w.a, &w.b, to_b);
	if (rc)
		return rc;
	rc = rtr_with(&w.b, &w.a, to_a);
	if (rc)
		return rc;
	assert_int_equal(to_rts(&w.a, NULL), 0);
	return to_rts(&w.b, NULL);
}

static void a_port_may_require_a_grh(void **state)
{
	const struct world_opts opts = {.fabric = {.infiniband = true, .grh_required = true}};
	struct ibv_ah_attr bare, global, back;
	struct ibv_port_attr port;
	struct ibv_ah *ah;

	(void)state;
	open_ends(&opts);
	assert_int_equal(ibv_query_port(w.a.ctx, 1, &port), 0);
	assert_true(port.flags & IBV_QPF_GRH_REQUIRED);
	bare = address_with(lid_of(&w.b), -1);
	global = address_with(lid_of(&w.b), 0);
	errno = 0;
	assert_null(ibv_create_ah(w.a.pd, &bare));
	assert_int_equal(errno, EINVAL);
	ah = ibv_create_ah(w.a.pd, &global);
	assert_non_null(ah);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	assert_int_equal(to_init(&w.a, &opts), 0);
	assert_int_equal(rtr_with(&w.a, &w.b, &bare), EINVAL);
	assert_int_equal(rtr_with(&w.a, &w.b, &global), 0);
	back = address_with(lid_of(&w.a), 0);
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 0, &back.grh.dgid), 0);
	assert_int_equal(to_init(&w.b, &opts), 0);
	assert_int_equal(rtr_with(&w.b, &w.a, &back), 0);
	assert_int_equal(to_rts(&w.a, &opts), 0);
	assert_int_equal(to_rts(&w.b, &opts), 0);
	expect_write(IBV_WC_SUCCESS);
	close_all();
	/* Others say that they do not. */
	open_ends(&(struct world_opts){.fabric = {.infiniband = true}});
	assert_int_equal(ibv_query_port(w.a.ctx, 1, &port), 0);
	assert_false(port.flags & IBV_QPF_GRH_REQUIRED);
	close_all();
}

/* "fec0:0:FLID:SUBNET::GUID" */
static uint16_t flid_of(const struct end *e)
{
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(e->ctx, 1, 1, &gid), 0);
	return (uint16_t)(gid.raw[4] << 8 | gid.raw[5]);
}

static const struct world_opts two_subnets = {.fabric = {.infiniband = true, .subnets = 2}};

static void a_router_takes_what_is_sent_to_the_flid(void **state)
{
	struct ibv_ah_attr to_b, to_a;
	union ibv_gid gid_a, gid_b;

	(void)state;
	open_ends(&two_subnets);
	/* LIDs are a subnet's: here both have the same. */
	assert_int_equal(lid_of(&w.a), lid_of(&w.b));
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 0, &gid_a), 0);
	assert_int_equal(ibv_query_gid(w.b.ctx, 1, 0, &gid_b), 0);
	assert_int_not_equal(gid_a.global.subnet_prefix, gid_b.global.subnet_prefix);
	assert_int_not_equal(flid_of(&w.a), flid_of(&w.b));
	to_b = address_with(flid_of(&w.b), 1);
	to_a = to_b;
	to_a.dlid = flid_of(&w.a);
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 1, &to_a.grh.dgid), 0);
	assert_int_equal(connect_by(&to_b, &to_a), 0);
	expect_write(IBV_WC_SUCCESS);
	close_all();
}

static void what_is_sent_elsewhere_is_lost(void **state)
{
	(void)state;
	/* The other subnet's LID; none at all; the own subnet's FLID; no GRH; a GID that routers do
	 * not know. */
	for (int wrong = 0; wrong < 5; wrong++) {
		struct ibv_ah_attr to_b, to_a;

		open_ends(&two_subnets);
		to_b = address_with(flid_of(&w.b), 1);
		to_a = to_b;
		to_a.dlid = flid_of(&w.a);
		assert_int_equal(ibv_query_gid(w.a.ctx, 1, 1, &to_a.grh.dgid), 0);
		if (wrong == 0)
			to_b.dlid = lid_of(&w.b);
		else if (wrong == 1)
			to_b.dlid = 0x7777;
		else if (wrong == 2)
			to_b.dlid = flid_of(&w.a);
		else if (wrong == 3)
			to_b.is_global = 0;
		else
			assert_int_equal(ibv_query_gid(w.b.ctx, 1, 0, &to_b.grh.dgid), 0);
		/* An address is not looked up: nothing fails before the packets do not come. */
		assert_int_equal(connect_by(&to_b, &to_a), 0);
		expect_write(IBV_WC_RETRY_EXC_ERR);
		close_all();
	}
}

static void a_gid_of_another_port_is_not_taken(void **state)
{
	const struct world_opts opts = {.fabric = {.infiniband = true}};
	struct ibv_ah_attr to_b, to_a;

	(void)state;
	open_ends(&opts);
	to_b = address_with(lid_of(&w.b), 0);
	to_a = address_with(lid_of(&w.a), -1);
	/* The right LID with a's own GID. */
	assert_int_equal(ibv_query_gid(w.a.ctx, 1, 0, &to_b.grh.dgid), 0);
	assert_int_equal(connect_by(&to_b, &to_a), 0);
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
	    TEST(ports_have_the_tables_in_turn),
	    TEST(an_index_beyond_the_table_is_refused),
	    TEST(members_of_one_partition_talk),
	    TEST(an_entry_that_changes_is_told_and_counts_at_once),
	    TEST(tables_that_are_none_are_refused),
	    TEST(a_port_may_require_a_grh),
	    TEST(a_router_takes_what_is_sent_to_the_flid),
	    TEST(what_is_sent_elsewhere_is_lost),
	    TEST(a_gid_of_another_port_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
