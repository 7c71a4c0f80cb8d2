/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plugin's client and nccl-ha-agent, each as it is, with the times that users get.
 */
#include "agent_process.h"

#include "base/clock.h"
#include "hints/hints.h"

static struct ha_hints *hints;
static struct ha_hint *hint;

static void set(uint32_t share)
{
	set_share("10.0.1.1", "10.0.1.2", share);
}

static uint32_t share_now(void)
{
	return ha_hint_read(hint, ha_real_ns());
}

static int setup(void **state)
{
	struct ha_hints_settings settings = HA_HINTS_DEFAULTS;
	struct ha_agent_flow flow = {inet_addr("10.0.1.1"), inet_addr("10.0.1.2"),
				     inet_addr("172.16.0.1"), inet_addr("172.16.0.2")};

	(void)state;
	if (!make_agent_dir())
		return -1;
	start_agent();
	set(256);
	settings.dir = agent_dir;
	hints = ha_hints_begin(&settings);
	hint = ha_hints_join(hints, &flow);
	return hint ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	ha_hints_leave(hints, hint);
	ha_hints_end(hints);
	kill_agent();
	return remove_agent_dir();
}

static void a_share_that_is_set_is_read_20_us_later(void **state)
{
	(void)state;
	EVENTUALLY(share_now() == 256);
	for (uint32_t share = 0; share <= 1024; share += 64) {
		set(share);
		usleep(20);
		assert_int_equal(share_now(), share);
	}
	set(HA_AGENT_SHARE_END);
	usleep(20);
	assert_int_equal(share_now(), 0);
}

static void a_killed_agent_is_followed_for_three_seconds_and_again_when_it_is_back(void **state)
{
	uint64_t alive_ns, killed_ns, took_ns; /* it was killed between the first two */

	(void)state;
	EVENTUALLY(share_now() == 256);
	alive_ns = ha_real_ns();
	kill_agent();
	killed_ns = ha_real_ns();
	EVENTUALLY(share_now() != 256);
	took_ns = ha_real_ns() - killed_ns;
	assert_true(share_now() == HA_HINT_NONE);
	print_message("%.2f s\n", (double)took_ns / 1e9);
	assert_true(took_ns + (killed_ns - alive_ns) >= 2400 * HA_NS_PER_MS);
	assert_true(took_ns < 3500 * HA_NS_PER_MS + SLACK_MS * HA_NS_PER_MS);
	start_agent();
	killed_ns = ha_real_ns();
	set(640);
	EVENTUALLY(share_now() == 640);
	took_ns = ha_real_ns() - killed_ns;
	print_message("%.2f s\n", (double)took_ns / 1e9);
	assert_true(took_ns < 2 * HA_NS_PER_S + SLACK_MS * HA_NS_PER_MS);
}

/* Sooner than anybody notices: its successor has another number. */
static void an_agent_that_is_replaced_at_once_is_told_of_all_again(void **state)
{
	uint64_t began_ns;

	(void)state;
	EVENTUALLY(share_now() == 256);
	kill_agent();
	start_agent();
	began_ns = ha_real_ns();
	set(300);
	for (uint32_t share = 256; share != 300; share = share_now()) {
		/* Meanwhile what was said last stands. */
		assert_int_equal(share, 256);
		assert_true(ha_real_ns() - began_ns < 20 * HA_NS_PER_S);
		usleep(1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	    T(a_share_that_is_set_is_read_20_us_later),
	    T(a_killed_agent_is_followed_for_three_seconds_and_again_when_it_is_back),
	    T(an_agent_that_is_replaced_at_once_is_told_of_all_again),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
