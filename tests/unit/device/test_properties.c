/* SPDX-License-Identifier: Apache-2.0 */
/* Port speeds of every generation, and the maxComms budget against figures worked out by hand. */
#include "../cmocka_all.h"

#include "base/config.h"
#include "device/properties.h"

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static int speed(uint8_t active_speed, uint8_t active_width)
{
	struct ibv_port_attr attr = {.active_speed = active_speed, .active_width = active_width};

	return ha_port_speed_mbps(&attr);
}

static void speed_is_lanes_times_lane_rate(void **state)
{
	(void)state;
	assert_int_equal(speed(1, 1), 2500);	 /* soft RoCE */
	assert_int_equal(speed(1, 2), 10000);	 /* SDR 4x */
	assert_int_equal(speed(4, 2), 40000);	 /* QDR 4x */
	assert_int_equal(speed(16, 2), 56000);	 /* FDR 4x */
	assert_int_equal(speed(32, 2), 100000);	 /* EDR 4x */
	assert_int_equal(speed(64, 2), 200000);	 /* HDR 4x */
	assert_int_equal(speed(64, 16), 100000); /* HDR 2x */
	assert_int_equal(speed(128, 2), 400000); /* NDR 4x */
	assert_int_equal(speed(128, 4), 800000); /* NDR 8x */
	assert_int_equal(speed(32, 1), 25000);	 /* EDR 1x: 25 GbE */
}

static void unknown_speed_is_zero_not_a_guess(void **state)
{
	(void)state;
	assert_int_equal(speed(0, 2), 0);
	assert_int_equal(speed(64, 0), 0);
}

#ifdef HA_HAVE_ACTIVE_SPEED_EX
static void xdr_is_read_from_the_wide_field(void **state)
{
	struct ibv_port_attr attr = {
	    .active_speed = 128, .active_speed_ex = 256, .active_width = 2};

	(void)state;
	assert_int_equal(ha_port_speed_mbps(&attr), 800000);
}
#endif

static struct ha_budget budget(int max_qp, int max_cqe, int channels, int wrs, int recvs, int qps)
{
	struct ibv_device_attr attr = {.max_qp = max_qp, .max_cqe = max_cqe};
	struct ha_budget result;
	struct ha_config config;

	ha_config_load(&config, no_env);
	config.expected_channels = channels;
	config.wr_per_conn = wrs;
	config.max_recvs = recvs;
	config.ib_qps_per_connection = qps;
	ha_budget(&config, &attr, &result);
	return result;
}

static void max_comms_is_what_the_scarcest_resource_allows(void **state)
{
	struct ha_budget b;

	(void)state;
	/* 131072 / (2 × 16) = 4096; 4194303 / ((64 × 8 + 64) × 2 × 16) = 227. */
	b = budget(131072, 4194303, 16, 64, 8, 1);
	assert_int_equal(b.qp_limit, 4096);
	assert_int_equal(b.cqe_limit, 227);
	assert_int_equal(b.max_comms, 227);
	/* QPs the scarcer: 1024 / 32 = 32. */
	assert_int_equal(budget(1024, 4194303, 16, 64, 8, 1).max_comms, 32);
	/* Four QPs each take four times the QPs. */
	assert_int_equal(budget(1024, 4194303, 16, 64, 8, 4).max_comms, 8);
}

static void max_comms_stays_between_1_and_256(void **state)
{
	(void)state;
	assert_int_equal(budget(INT32_MAX, INT32_MAX, 1, 32, 1, 1).max_comms, 256);
	assert_int_equal(budget(1000000, 32767, 16, 64, 8, 1).max_comms, 1); /* soft RoCE */
	assert_int_equal(budget(0, 0, 1024, 4096, 8, 16).max_comms, 1);
	assert_int_equal(budget(-1, -1, 16, 64, 8, 1).max_comms, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(speed_is_lanes_times_lane_rate),
	    cmocka_unit_test(unknown_speed_is_zero_not_a_guess),
#ifdef HA_HAVE_ACTIVE_SPEED_EX
	    cmocka_unit_test(xdr_is_read_from_the_wide_field),
#endif
	    cmocka_unit_test(max_comms_is_what_the_scarcest_resource_allows),
	    cmocka_unit_test(max_comms_stays_between_1_and_256),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
