/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes, of which one's device is a bond that loses a leg: what is on it goes nowhere and
 * neither is told, until the driver moves it.
 */
#include "pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

/* 4.096 us << 18 = 1.07 s a try: longer than the test takes to mend it. */
static const struct end_options patient = {.len = 4096, .timeout = 18, .retry_cnt = 7};

static void let_the_test(int test_fd, char what)
{
	NEED(write(test_fd, &what, 1) == 1);
	NEED(read(test_fd, &what, 1) == 1);
}

static int sends(int peer_fd, int test_fd, void *arg)
{
	struct end end;
	struct ibv_wc wc;

	(void)arg;
	end_open(&end, peer_fd, &patient);
	NEED(!end_post_write(&end, 0, 100, 1));
	NEED(end_wait(&end, &wc, 10) == IBV_WC_SUCCESS);
	/* One of the two legs is ours: each is taken away in turn. */
	for (int leg = 0; leg < 2; leg++) {
		let_the_test(test_fd, leg == 0 ? 'a' : 'b');
		NEED(!end_post_write(&end, 0, 100, 2));
		if (end_wait(&end, &wc, 0.3) == IBV_WC_SUCCESS) {
			let_the_test(test_fd, 'u'); /* the other one */
			continue;
		}
		let_the_test(test_fd, 'r');
		NEED(end_wait(&end, &wc, 20) == IBV_WC_SUCCESS);
		NEED(end_event(&end, 0) == -1);
	}
	meet(peer_fd);
	end_close(&end);
	return 0;
}

static int receives(int peer_fd, int test_fd, void *arg)
{
	struct end end;

	(void)test_fd;
	(void)arg;
	end_open(&end, peer_fd, &patient);
	meet(peer_fd);
	NEED(end_event(&end, 0) == -1);
	end_close(&end);
	return 0;
}

static void expect_leg(int leg, const char *how)
{
	json_t *status = fabric_status();
	const json_t *device = json_array_get(json_object_get(status, "devices"), 0);

	assert_string_equal(
	    json_string_value(json_array_get(json_object_get(device, "legs"), (size_t)leg)), how);
	json_decref(status);
}

static void set_leg(int leg, const char *how)
{
	assert_int_equal(fabric_tool("leg %s 0 0 %d %s", fabric_name(), leg, how), 0);
}

static void what_is_on_a_dead_leg_waits_until_it_is_moved(void **state)
{
	int leg = 0, wedged = 0;
	struct pair pair;
	json_t *status;

	(void)state;
	pair_start(&pair, sends, receives, NULL);
	for (int step = 0; step < 4; step++) {
		int what = pair_wait_byte(&pair, 0);

		switch (what) {
		case 'a':
		case 'b':
			leg = what - 'a';
			if (leg == 1)
				set_leg(0, "up");
			set_leg(leg, "down");
			expect_leg(leg, "down");
			break;
		case 'r':
			wedged++;
			set_leg(leg, "remap");
			expect_leg(leg, "remapped");
			break;
		default:
			assert_int_equal(what, 'u');
			set_leg(leg, "up");
			expect_leg(leg, "up");
		}
		pair_send_byte(&pair, 0, 'g');
	}
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 30), 0);
	assert_int_equal(wedged, 1);
	status = fabric_status();
	assert_true(status_counter(status, "drop_leg") > 0);
	json_decref(status);
}

static void by_rule(void **state)
{
	(void)state;
	assert_int_equal(fabric_tool("fault %s 'bond=down leg=1 host=0 rail=0 at=1ms' >/dev/null",
				     fabric_name()),
			 0);
	assert_int_equal(fabric_tool("run %s 0 -- ibv_devinfo >/dev/null", fabric_name()), 0);
	usleep(5000);
	assert_int_equal(fabric_tool("run %s 0 -- ibv_devinfo -v >/dev/null", fabric_name()), 0);
	expect_leg(1, "down");
	expect_leg(0, "up");
}

static int one_rail(void **state)
{
	(void)state;
	fabric_up("--hosts 2 --rails 1");
	return 0;
}

static int take_down(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(what_is_on_a_dead_leg_waits_until_it_is_moved, one_rail,
					    take_down),
	    cmocka_unit_test_setup_teardown(by_rule, one_rail, take_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
