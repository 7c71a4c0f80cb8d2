/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that is a bond: queue pairs and datagrams spread over two legs by UDP source port. A leg
 * that dies says nothing; what was on it goes nowhere until the driver moves it, or another label
 * puts it on the other one.
 */
#include "world.h"

#define MS	  1000000ull
#define CONNECTED 64

static int leg_of(const struct end *e)
{
	return sv_stepped_leg_of(e->host, e->rail, e->qp->qp_num);
}

/* Connects end a again, with this flow label. */
static void relabel(struct world *w, uint32_t label)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = w->b.qp->qp_num,
				   .rq_psn = w->b.psn,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = address_of(&w->b)};

	attr.ah_attr.grh.flow_label = label;
	assert_int_equal(to_state(w->a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(to_init(&w->a, NULL), 0);
	assert_int_equal(ibv_modify_qp(w->a.qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	assert_int_equal(to_rts(&w->a, NULL), 0);
}

/* ---------------------------------------------------------------- who is on which leg */

static void test_labels_spread_connections(void **state)
{
	int on[2] = {0, 0};
	struct world w;

	(void)state;
	world_open(&w, NULL);
	for (uint32_t label = 1; label <= CONNECTED; label++) {
		int leg;

		relabel(&w, label);
		leg = leg_of(&w.a);
		assert_in_range(leg, 0, 1);
		on[leg]++;
		relabel(&w, label);
		assert_int_equal(leg_of(&w.a), leg); /* the same label, the same way */
	}
	assert_in_range(on[0], CONNECTED / 4, 3 * CONNECTED / 4);
	assert_int_equal(sv_stepped_leg_of(0, 0, 1), -1);
	world_close(&w);
}

/* Without a label drivers make one of the two queue pair numbers. */
static void test_without_labels_numbers_do(void **state)
{
	int on[2] = {0, 0};

	(void)state;
	for (uint64_t seed = 1; seed <= CONNECTED; seed++) {
		struct world w;

		world_open(&w, &(struct world_opts){.fabric = {.seed = seed}});
		on[leg_of(&w.a)]++;
		world_close(&w);
	}
	assert_in_range(on[0], CONNECTED / 4, 3 * CONNECTED / 4);
}

/* ---------------------------------------------------------------- a leg dies */

static void expect_port_active(struct ibv_context *ctx)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_ACTIVE);
	expect_no_event(ctx);
}

/* Neither event nor completion; retries run out as configured. The other leg does not mind. */
static void test_a_leg_that_dies_says_nothing(void **state)
{
	struct sv_stepped_stats stats;
	struct world w;
	uint64_t since_ns;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_leg(0, 0, (uint32_t)leg_of(&w.a) ^ 1, SV_LEG_DOWN);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	sv_stepped_leg(0, 0, (uint32_t)leg_of(&w.a) ^ 1, SV_LEG_UP);
	sv_stepped_leg(0, 0, (uint32_t)leg_of(&w.a), SV_LEG_DOWN);
	since_ns = sv_stepped_now();
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &w.b, 0), 0);
	sv_stepped_run(since_ns + 4 * (4096ull << 10) - 1);
	expect_no_wc(&w.a);
	expect_port_active(w.a.ctx);
	settle();
	expect_wc(&w.a, 2, IBV_WC_RETRY_EXC_ERR);
	expect_port_active(w.a.ctx);
	expect_port_active(w.b.ctx);
	sv_stepped_get_stats(&stats);
	assert_int_equal(stats.lost_leg, 4);
	world_close(&w);
}

/* At the other end it is the acknowledgements that go nowhere: the data is there. */
static void test_the_leg_of_the_responder(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, NULL);
	sv_stepped_leg(1, 0, (uint32_t)leg_of(&w.b), SV_LEG_DOWN);
	fill(w.a.buf, 100, 7);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_RETRY_EXC_ERR);
	assert_memory_equal(w.a.buf, w.b.buf, 100);
	world_close(&w);
}

static void test_remapped_later(void **state)
{
	struct world w;
	uint32_t leg;

	(void)state;
	world_open(&w, NULL);
	leg = (uint32_t)leg_of(&w.a);
	sv_stepped_leg(0, 0, leg, SV_LEG_DOWN);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	sv_stepped_run(5 * MS);
	expect_no_wc(&w.a);
	sv_stepped_leg(0, 0, leg, SV_LEG_REMAP);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	/* With the other one dead as well there is nothing to carry it. */
	sv_stepped_leg(0, 0, leg ^ 1, SV_LEG_DOWN);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 2, 0, 100, &w.b, 0), 0);
	sv_stepped_run(sv_stepped_now() + 5 * MS);
	expect_no_wc(&w.a);
	sv_stepped_leg(0, 0, leg, SV_LEG_UP);
	settle();
	expect_wc(&w.a, 2, IBV_WC_SUCCESS);
	world_close(&w);
}

/* Who varies the label gets away from the dead leg. */
static void test_another_label_another_leg(void **state)
{
	struct world w;
	uint32_t label = 1;
	int dead;

	(void)state;
	world_open(&w, NULL);
	relabel(&w, label);
	dead = leg_of(&w.a);
	sv_stepped_leg(0, 0, (uint32_t)dead, SV_LEG_DOWN);
	while (leg_of(&w.a) == dead)
		relabel(&w, ++label);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	world_close(&w);
}

/* ---------------------------------------------------------------- datagrams, rules */

static uint32_t datagrams_that_come(struct world *w, uint32_t label)
{
	struct ibv_ah_attr attr = address_of(&w->b);
	struct ibv_sge sge = {.addr = (uintptr_t)w->a.buf, .length = 8, .lkey = w->a.mr->lkey};
	struct ibv_send_wr wr = wr_of(IBV_WR_SEND, 1, &sge), *bad;
	struct ibv_wc wc;
	struct ibv_ah *ah;

	attr.grh.flow_label = label;
	ah = ibv_create_ah(w->a.pd, &attr);
	assert_non_null(ah);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = w->b.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	assert_int_equal(post_recv(&w->b, 2, 0, 100), 0);
	assert_int_equal(ibv_post_send(w->a.qp, &wr, &bad), 0);
	settle();
	expect_wc(&w->a, 1, IBV_WC_SUCCESS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
	return (uint32_t)ibv_poll_cq(w->b.cq, 1, &wc);
}

/* Datagrams without a label are all on one leg: heartbeats see one half of what there is. */
static void test_datagrams_have_a_leg_too(void **state)
{
	uint32_t come = 0, plain;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.type = IBV_QPT_UD});
	sv_stepped_leg(0, 0, 0, SV_LEG_DOWN);
	plain = datagrams_that_come(&w, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(datagrams_that_come(&w, 0), plain);
	for (uint32_t label = 1; label <= 32; label++)
		come += datagrams_that_come(&w, label);
	assert_in_range(come, 8, 24);
	sv_stepped_leg(0, 0, 0, SV_LEG_UP);
	for (uint32_t label = 1; label <= 16; label++)
		assert_int_equal(datagrams_that_come(&w, label), 1);
	world_close(&w);
}

static void test_by_rule(void **state)
{
	struct world w;
	char rule[80];
	int id;

	(void)state;
	world_open(&w, NULL);
	snprintf(rule, sizeof(rule), "bond=down leg=%d host=0 rail=0 at=2ms for=9ms", leg_of(&w.a));
	id = add_rule(rule);
	sv_stepped_run(2 * MS);
	assert_int_equal(fired(id), 1);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	sv_stepped_run(10 * MS);
	expect_no_wc(&w.a);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	world_close(&w);
}

/* A condition: one way of two between switches is bad. */
static void test_one_way_of_two_loses(void **state)
{
	struct world w;
	char rule[80];
	int other, own;

	(void)state;
	world_open(&w, NULL);
	snprintf(rule, sizeof(rule), "drop leg=%d host=0 count=1", leg_of(&w.a) ^ 1);
	other = add_rule(rule);
	snprintf(rule, sizeof(rule), "drop leg=%d host=0 count=1", leg_of(&w.a));
	own = add_rule(rule);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	assert_int_equal(fired(own), 1);
	assert_int_equal(fired(other), 0);
	world_close(&w);
}

static void test_what_a_rule_about_legs_needs(void **state)
{
	static const char *const wrong[] = {"bond=down host=0 rail=0 at=1ms",
					    "bond=sideways leg=0 host=0 rail=0 at=1ms",
					    "drop leg=2", "errno=ENOMEM verb=reg_mr leg=1",
					    "link=down leg=0 host=0 rail=0 at=1ms bond=up"};
	char err[400];

	(void)state;
	assert_int_equal(sv_stepped_open(NULL), 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		err[0] = '\0';
		assert_true(sv_stepped_fault_add(wrong[i], err, sizeof(err)) < 0);
		assert_non_null(strstr(err, wrong[i]));
	}
	assert_int_equal(sv_stepped_close(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_labels_spread_connections),
	    cmocka_unit_test(test_without_labels_numbers_do),
	    cmocka_unit_test(test_a_leg_that_dies_says_nothing),
	    cmocka_unit_test(test_the_leg_of_the_responder),
	    cmocka_unit_test(test_remapped_later),
	    cmocka_unit_test(test_another_label_another_leg),
	    cmocka_unit_test(test_datagrams_have_a_leg_too),
	    cmocka_unit_test(test_by_rule),
	    cmocka_unit_test(test_one_way_of_two_loses),
	    cmocka_unit_test(test_what_a_rule_about_legs_needs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
