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

/* A device of today; a test makes something of it scarce. */
static const struct ibv_device_attr plenty = {
    .phys_port_cnt = 1,
    .max_qp = 131072,
    .max_cq = 16777216,
    .max_cqe = 4194303,
    .max_mr = 16777216,
};

static struct ha_config *defaults(void)
{
	static struct ha_config config;

	ha_config_load(&config, no_env);
	return &config;
}

static struct ha_budget budget(const struct ibv_device_attr *attr, const struct ha_config *config)
{
	struct ha_budget result;

	ha_budget(config, attr, false, &result);
	return result;
}

static void a_device_of_today_allows_for_more_than_the_cap(void **state)
{
	struct ha_budget b = budget(&plenty, defaults());

	(void)state;
	assert_int_equal(b.of[HA_RES_QP].allows, 131071 / (2 * 16));
	assert_int_equal(b.scarcest, HA_RES_QP);
	assert_int_equal(b.max_comms, 256);
}

/* max_cqe is a limit of each queue: what a device has of entries is that times its queues. */
static void soft_roce_is_not_poor(void **state)
{
	struct ibv_device_attr rxe = {.phys_port_cnt = 1,
				      .max_qp = 1048560,
				      .max_cq = 1048576,
				      .max_cqe = 32767,
				      .max_mr = 524287};

	(void)state;
	assert_int_equal(budget(&rxe, defaults()).max_comms, 256);
}

static void max_comms_is_what_the_scarcest_resource_allows(void **state)
{
	struct ibv_device_attr attr = plenty;
	struct ha_budget b;

	(void)state;
	attr.max_qp = 1025; /* one is the heartbeats' */
	b = budget(&attr, defaults());
	assert_int_equal(b.of[HA_RES_QP].per_comm, 2);
	assert_int_equal(b.max_comms, 32); /* 1024 / (2 × 16) */
	assert_int_equal(b.scarcest, HA_RES_QP);

	attr = plenty;
	attr.max_cq = 98; /* two are the heartbeats' */
	b = budget(&attr, defaults());
	assert_int_equal(b.max_comms, 3); /* 96 / (2 × 16) */
	assert_int_equal(b.scarcest, HA_RES_CQ);

	attr = plenty;
	attr.max_mr = 1 + 8 * 16 * 7;
	b = budget(&attr, defaults());
	assert_int_equal(b.max_comms, 7); /* a path registers its ring and three buffers */
	assert_int_equal(b.scarcest, HA_RES_MR);

	attr = plenty;
	attr.max_cq = 1002;
	attr.max_cqe = 100; /* 100000 / (2 × (64 × 8 + 64) × 16) */
	b = budget(&attr, defaults());
	assert_int_equal(b.max_comms, 5);
	assert_int_equal(b.scarcest, HA_RES_CQE);
	assert_string_equal(ha_resource_name(b.scarcest), "completion entries");
}

static void settings_divide_it(void **state)
{
	struct ibv_device_attr attr = plenty;
	struct ha_config *config = defaults();
	struct ha_budget b;

	(void)state;
	attr.max_qp = 1025;
	config->expected_channels = 4;
	assert_int_equal(budget(&attr, config).max_comms, 128);
	config->ib_qps_per_connection = 4;
	assert_int_equal(budget(&attr, config).max_comms, 32);
	/* Reading GPU memory back takes a queue pair of each path. */
	ha_budget(config, &attr, true, &b);
	assert_int_equal(b.max_comms, 25);

	config = defaults();
	attr = plenty;
	attr.max_cq = 1002;
	attr.max_cqe = 100;
	config->max_recvs = 1;
	assert_int_equal(budget(&attr, config).max_comms, 24); /* 100000 / (2 × 128 × 16) */
	config->wr_per_conn = 128;
	assert_int_equal(budget(&attr, config).max_comms, 12);
}

static void max_comms_stays_between_1_and_256(void **state)
{
	struct ibv_device_attr attr = {.phys_port_cnt = 2,
				       .max_qp = INT32_MAX,
				       .max_cq = INT32_MAX,
				       .max_cqe = INT32_MAX,
				       .max_mr = INT32_MAX};

	(void)state;
	assert_int_equal(budget(&attr, defaults()).max_comms, 256);
	attr.max_qp = attr.max_cq = attr.max_cqe = attr.max_mr = 0;
	assert_int_equal(budget(&attr, defaults()).max_comms, 1);
	attr.max_qp = attr.max_cq = attr.max_cqe = attr.max_mr = -1;
	assert_int_equal(budget(&attr, defaults()).max_comms, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(speed_is_lanes_times_lane_rate),
	    cmocka_unit_test(unknown_speed_is_zero_not_a_guess),
#ifdef HA_HAVE_ACTIVE_SPEED_EX
	    cmocka_unit_test(xdr_is_read_from_the_wide_field),
#endif
	    cmocka_unit_test(a_device_of_today_allows_for_more_than_the_cap),
	    cmocka_unit_test(soft_roce_is_not_poor),
	    cmocka_unit_test(max_comms_is_what_the_scarcest_resource_allows),
	    cmocka_unit_test(settings_divide_it),
	    cmocka_unit_test(max_comms_stays_between_1_and_256),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
