/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs up --profile mlx5 by the machine's clock: how long retries take, when a lost carrier and
 * an administrator's word are told, what commands take. To the nanosecond it is shown in stepped
 * mode; here bounds are as wide as a busy machine needs.
 */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#define FLAPS 8

static const struct end_options opt = {.len = 4096, .timeout = 14, .retry_cnt = 7};

static enum ibv_port_state port_state(struct end *end)
{
	struct ibv_port_attr attr;

	NEED(!ibv_query_port(end->ctx, 1, &attr));
	return attr.state;
}

/* Comes back when the test has done what it does to the fabric at this place. */
static void let_the_test(int test_fd, char what)
{
	NEED(write(test_fd, &what, 1) == 1);
	NEED(read(test_fd, &what, 1) == 1);
}

/* The port knows what its users are told later. */
static void wait_for(struct end *end, enum ibv_port_state state)
{
	double until_s = now_s() + 5;

	while (port_state(end) != state) {
		NEED(now_s() < until_s);
		usleep(1000);
	}
}

static double event_after_s(struct end *end, int type)
{
	double since_s = now_s();

	NEED(end_event(end, 5) == type);
	return now_s() - since_s;
}

static void commands_take_their_time(struct end *end)
{
	double since_s = now_s();
	struct ibv_cq *cq = ibv_create_cq(end->ctx, 16, NULL, NULL, 0);

	NEED(cq && now_s() - since_s >= 0.001);
	NEED(!ibv_destroy_cq(cq));
}

/* That all eight come within the first tenth of the second happens once in 10^8 runs. */
static void lost_carriers_are_told_late(struct end *end, int test_fd)
{
	double latest_s = 0;
	int overdue = 0;

	for (int i = 0; i < FLAPS; i++) {
		double late_s;

		let_the_test(test_fd, 'd');
		wait_for(end, IBV_PORT_DOWN);
		late_s = event_after_s(end, IBV_EVENT_PORT_ERR);
		overdue += late_s > 1.5;
		latest_s = late_s > latest_s ? late_s : latest_s;
		let_the_test(test_fd, 'u');
		wait_for(end, IBV_PORT_ACTIVE);
		event_after_s(end, IBV_EVENT_PORT_ACTIVE);
	}
	NEED(latest_s > 0.1);
	NEED(overdue <= 1); /* this process may have waited for a processor */
}

static int breaks(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;
	double since_s;

	(void)arg;
	end_open(&end, peer_fd, &opt);
	commands_take_their_time(&end);
	lost_carriers_are_told_late(&end, test_fd);
	/* The formula says 0.54 s, a ConnectX 3.5 to 3.8. */
	let_the_test(test_fd, 'o');
	event_after_s(&end, IBV_EVENT_PORT_ERR);
	since_s = now_s();
	NEED(!end_post_write(&end, 0, 100, 1));
	NEED(end_wait(&end, &wc, 20) == IBV_WC_RETRY_EXC_ERR);
	since_s = now_s() - since_s;
	NEED(since_s > 3.5 * 0.95 && since_s < 3.8 * 1.05 + 1);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static int looks_on(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &opt);
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static void do_as_told(struct pair *pair, char what)
{
	static const char *const words[] = {['d'] = "down", ['u'] = "up", ['o'] = "off"};

	assert_int_equal(pair_wait_byte(pair, 0), what);
	assert_int_equal(fabric_tool("link %s 0 0 %s", fabric_name(), words[(int)what]), 0);
	pair_send_byte(pair, 0, 'g');
}

static void times_are_those_of_a_connectx(void **state)
{
	struct pair pair;
	json_t *status;

	(void)state;
	status = fabric_status();
	assert_non_null(status);
	assert_string_equal(json_string_value(json_object_get(status, "profile")), "mlx5");
	json_decref(status);
	pair_start(&pair, breaks, looks_on, NULL);
	for (int i = 0; i < FLAPS; i++) {
		do_as_told(&pair, 'd');
		do_as_told(&pair, 'u');
	}
	do_as_told(&pair, 'o');
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 30), 0);
}

static int by_option(void **state)
{
	(void)state;
	fabric_up("--hosts 2 --rails 1 --profile mlx5");
	return 0;
}

static int take_down(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

/* SIMVERBS_PROFILE is what a fabric gets whose maker says nothing. */
static void the_environment_is_the_default(void **state)
{
	json_t *status;

	(void)state;
	setenv("SIMVERBS_PROFILE", "mlx5", 1);
	fabric_up("--hosts 1 --rails 1");
	status = fabric_status();
	assert_string_equal(json_string_value(json_object_get(status, "profile")), "mlx5");
	json_decref(status);
	fabric_down();
	fabric_up("--hosts 1 --rails 1 --profile exact");
	unsetenv("SIMVERBS_PROFILE");
	status = fabric_status();
	assert_string_equal(json_string_value(json_object_get(status, "profile")), "exact");
	json_decref(status);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(times_are_those_of_a_connectx, by_option, take_down),
	    cmocka_unit_test_teardown(the_environment_is_the_default, take_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
