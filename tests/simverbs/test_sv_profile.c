/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The profile mlx5: retries as long as on a ConnectX-6, events of a lost carrier as late as the
 * network stack makes them, commands that take their time. To the nanosecond in virtual time.
 */
#include "world.h"

#define US 1000ull
#define MS (1000 * US)
#define S  (1000 * MS)

static const struct sv_stepped_opts mlx5 = {.profile = SV_STEPPED_MLX5};

/* How long a write takes to fail when nothing comes back. */
static uint64_t time_to_fail(uint8_t timeout, uint8_t retry_cnt)
{
	uint64_t since_ns, took_ns;
	struct world w;

	world_open(
	    &w, &(struct world_opts){.fabric = mlx5, .timeout = timeout, .retry_cnt = retry_cnt});
	sv_stepped_cut(0, true);
	since_ns = sv_stepped_now();
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	took_ns = sv_stepped_now() - since_ns;
	expect_wc(&w.a, 1, IBV_WC_RETRY_EXC_ERR);
	world_close(&w);
	return took_ns;
}

/* Within 5 % of what was measured, from the least to the most of it. */
static void expect_measured(uint64_t took_ns, uint64_t least_ns, uint64_t most_ns)
{
	if (took_ns < least_ns * 95 / 100 || took_ns > most_ns * 105 / 100)
		fail_msg("%.3f s, measured %.3f to %.3f s", (double)took_ns / 1e9,
			 (double)least_ns / 1e9, (double)most_ns / 1e9);
}

static void test_retries_take_what_was_measured(void **state)
{
	(void)state;
	for (uint8_t timeout = 10; timeout <= 16; timeout++)
		expect_measured(time_to_fail(timeout, 7), 3500 * MS, 3800 * MS);
	expect_measured(time_to_fail(20, 7), 58500 * MS, 58800 * MS);
}

/* A retry more is an attempt of 537 ms, and the early retransmissions are one retry. */
static void test_each_retry_has_the_floor(void **state)
{
	(void)state;
	for (uint8_t retries = 2; retries <= 7; retries++)
		assert_int_equal(time_to_fail(14, retries) - time_to_fail(14, retries - 1),
				 2 * (4096ull << 16));
	assert_int_equal(time_to_fail(14, 1), 127 * 3500 * US);
}

/* What lies between and beyond the measurements follows from the same rule. */
static void test_other_timeouts_by_the_same_rule(void **state)
{
	static const struct {
		uint8_t timeout;
		uint32_t early; /* retransmissions before the first whole timeout */
	} rule[] = {{10, 7}, {16, 7}, {17, 8}, {18, 9}, {19, 10}, {20, 11}, {22, 13}};

	(void)state;
	for (size_t i = 0; i < sizeof(rule) / sizeof(rule[0]); i++) {
		uint8_t at_least_16 = rule[i].timeout < 16 ? 16 : rule[i].timeout;

		assert_int_equal(time_to_fail(rule[i].timeout, 7),
				 ((1ull << rule[i].early) - 1) * 3500 * US +
				     6 * 2 * (4096ull << at_least_16));
	}
}

/* The first loss costs milliseconds, whatever the timeout, and the retries begin anew after it. */
static void test_a_lost_packet_comes_again_soon(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = mlx5, .timeout = 20, .retry_cnt = 1});
	for (uint64_t id = 1; id <= 3; id++) {
		uint64_t since_ns = sv_stepped_now();
		char err[200];

		assert_true(sv_stepped_fault_add("drop op=write nth=1", err, sizeof(err)) >= 0);
		assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, id, 0, 100, &w.b, 0), 0);
		settle();
		expect_wc(&w.a, id, IBV_WC_SUCCESS);
		assert_in_range(sv_stepped_now() - since_ns, 3500 * US, 3600 * US);
		assert_int_equal(sv_stepped_fault_remove(-1), 0);
	}
	world_close(&w);
}

/* ---------------------------------------------------------------- events */

static enum ibv_port_state port_state(struct ibv_context *ctx)
{
	struct ibv_port_attr attr;

	assert_int_equal(ibv_query_port(ctx, 1, &attr), 0);
	return attr.state;
}

/* A pulled cable: the port knows at once, who has it open hears of it within a second. */
static void test_a_lost_carrier_is_told_late(void **state)
{
	uint64_t least_ns = UINT64_MAX, most_ns = 0;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = mlx5});
	for (int i = 0; i < 50; i++) {
		uint64_t since_ns = sv_stepped_now(), late_ns;

		sv_stepped_link(0, 0, false);
		assert_int_equal(port_state(w.a.ctx), IBV_PORT_DOWN);
		expect_no_event(w.a.ctx);
		settle();
		late_ns = sv_stepped_now() - since_ns;
		expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
		least_ns = late_ns < least_ns ? late_ns : least_ns;
		most_ns = late_ns > most_ns ? late_ns : most_ns;
		sv_stepped_link(0, 0, true);
		assert_int_equal(port_state(w.a.ctx), IBV_PORT_ACTIVE);
		expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	}
	assert_true(most_ns < S);
	assert_in_range(least_ns, 0, 100 * MS);
	assert_in_range(most_ns, 900 * MS, S);
	expect_no_event(w.b.ctx);
	world_close(&w);
}

/* Back before it was told: nothing has been. */
static void test_a_short_flap_is_not_told(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = mlx5});
	sv_stepped_link(0, 0, false);
	sv_stepped_link(0, 0, true);
	settle();
	expect_no_event(w.a.ctx);
	world_close(&w);
}

/* Who sets the port down is heard at once, and by a rule as well. */
static void test_an_administrator_is_told_at_once(void **state)
{
	struct world w;
	char err[200];

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = mlx5});
	sv_stepped_link_off(0, 0);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(port_state(w.a.ctx), IBV_PORT_DOWN);
	sv_stepped_link(0, 0, true);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(
	    sv_stepped_fault_add("link=off host=0 rail=0 at=5ms for=20ms", err, sizeof(err)), 0);
	sv_stepped_run(5 * MS);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	sv_stepped_run(24 * MS);
	expect_no_wc(&w.a);
	settle();
	expect_event(w.a.ctx, IBV_EVENT_PORT_ACTIVE);
	expect_wc(&w.a, 1, IBV_WC_SUCCESS);
	world_close(&w);
}

/* ---------------------------------------------------------------- commands, tables */

static void test_commands_take_their_time(void **state)
{
	struct ibv_port_attr port;
	uint64_t since_ns;
	struct ibv_cq *cq;
	struct world w;
	char err[200];

	(void)state;
	world_open(&w, &(struct world_opts){.fabric = mlx5});
	since_ns = sv_stepped_now();
	assert_int_equal(to_state(w.a.qp, IBV_QPS_ERR), 0);
	assert_int_equal(sv_stepped_now() - since_ns, 200 * US);
	cq = ibv_create_cq(w.a.ctx, 16, NULL, NULL, 0);
	assert_non_null(cq);
	assert_int_equal(sv_stepped_now() - since_ns, 1200 * US);
	/* A rule comes on top of it. */
	assert_int_equal(sv_stepped_fault_add("wait=5ms verb=modify_qp", err, sizeof(err)), 0);
	assert_int_equal(to_state(w.a.qp, IBV_QPS_RESET), 0);
	assert_int_equal(sv_stepped_now() - since_ns, 6400 * US);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	/* RoCE ports of a ConnectX have one partition. */
	assert_int_equal(ibv_query_port(w.a.ctx, 1, &port), 0);
	assert_int_equal(port.pkey_tbl_len, 1);
	world_close(&w);
}

/* Where nobody asks for it, times are the specification's. */
static void test_nothing_of_it_by_default(void **state)
{
	uint64_t since_ns;
	struct world w;

	(void)state;
	world_open(&w, &(struct world_opts){.timeout = 16, .retry_cnt = 7});
	assert_int_equal(sv_stepped_now(), 0);
	sv_stepped_link(0, 0, false);
	expect_event(w.a.ctx, IBV_EVENT_PORT_ERR);
	since_ns = sv_stepped_now();
	assert_int_equal(post(&w.a, IBV_WR_RDMA_WRITE, 1, 0, 100, &w.b, 0), 0);
	settle();
	assert_int_equal(sv_stepped_now() - since_ns, 8 * (4096ull << 16));
	expect_wc(&w.a, 1, IBV_WC_RETRY_EXC_ERR);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_retries_take_what_was_measured),
	    cmocka_unit_test(test_each_retry_has_the_floor),
	    cmocka_unit_test(test_other_timeouts_by_the_same_rule),
	    cmocka_unit_test(test_a_lost_packet_comes_again_soon),
	    cmocka_unit_test(test_a_lost_carrier_is_told_late),
	    cmocka_unit_test(test_a_short_flap_is_not_told),
	    cmocka_unit_test(test_an_administrator_is_told_at_once),
	    cmocka_unit_test(test_commands_take_their_time),
	    cmocka_unit_test(test_nothing_of_it_by_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
