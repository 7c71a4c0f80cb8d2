/* SPDX-License-Identifier: Apache-2.0 */
/* The line that tells an operator of a failover. */
#include "../cmocka_all.h"

#include "event/event.h"

#include <string.h>

static const struct ha_event_path old_path = {"mlx5_0", 1, 0, 1}, new_path = {"mlx5_1", 2, 1, 7};

static struct ha_event a_switch(void)
{
	struct ha_event event = ha_event_init(HA_EVENT_SWITCH, HA_REASON_COMPLETION);

	event.from = old_path;
	event.to = new_path;
	event.epoch = 2;
	event.detection_ns = 3249999;
	event.blackout_ns = 1204000000;
	event.completed_without_resend = 3;
	event.replayed_messages = 5;
	event.replayed_bytes = 1234567;
	return event;
}

static void expect(const struct ha_event *event, const char *expected)
{
	char text[512];

	assert_string_equal(ha_event_text(event, text, sizeof(text)), expected);
}

static void a_switch_says_all_of_it(void **state)
{
	struct ha_event event = a_switch();

	(void)state;
	expect(&event,
	       "failover from mlx5_0:1 (path 0.1) to mlx5_1:2 (path 1.7), epoch 2: error "
	       "completion; detected after 3.2 ms, blackout 1204.0 ms, 3 messages complete without "
	       "resend, 5 messages (1.2 MB) replayed");
}

static void what_is_unknown_is_left_out(void **state)
{
	struct ha_event event = ha_event_init(HA_EVENT_SWITCH, HA_REASON_FAILBACK);

	(void)state;
	event.to = new_path;
	event.detail = "asked twice";
	event.completed_without_resend = 1;
	expect(&event, "failover from no path to mlx5_1:2 (path 1.7), epoch 0: preferred path is "
		       "back (asked twice); 1 message complete without resend, 0 messages (0 B) "
		       "replayed");
}

static void sizes_have_units(void **state)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {
	    {999, "(999 B)"},
	    {1000, "(1.0 kB)"},
	    {999999, "(999.9 kB)"},
	    {2500000000, "(2.5 GB)"},
	    {UINT64_MAX, "(18446744073.7 GB)"},
	};
	struct ha_event event = a_switch();
	char text[512];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		event.replayed_bytes = cases[i].bytes;
		assert_non_null(strstr(ha_event_text(&event, text, sizeof(text)), cases[i].text));
	}
}

static void the_other_kinds_name_what_they_are_about(void **state)
{
	struct ha_event event = ha_event_init(HA_EVENT_FAILURE, HA_REASON_PORT_DOWN);

	(void)state;
	event.from = old_path;
	expect(&event, "mlx5_0:1 (path 0.1) failed: local port down");
	event.kind = HA_EVENT_OUTAGE;
	expect(&event, "no path is left: local port down");
	event.kind = HA_EVENT_RECOVERY;
	event.to = new_path;
	expect(&event, "mlx5_1:2 (path 1.7) is healthy");
	event.kind = HA_EVENT_REBUILD;
	expect(&event, "mlx5_1:2 (path 1.7) built");
	event.to.index = -1;
	expect(&event, "mlx5_1:2 built");
}

static void a_rail_that_is_shed_and_mended_says_what_of_it_was_sent_again(void **state)
{
	struct ha_event event = ha_event_init(HA_EVENT_SHED, HA_REASON_PORT_DOWN);

	(void)state;
	event.from = old_path;
	expect(&event, "mlx5_0:1 (path 0.1) is shed, the other rails carry on: local port down");
	event.kind = HA_EVENT_MENDED;
	expect(&event, "mlx5_0:1 (path 0.1) is mended: local port down");
	event.replayed_messages = 2;
	event.replayed_bytes = 300000;
	expect(&event, "mlx5_0:1 (path 0.1) is mended: local port down; 0 parts of messages had "
		       "come over it, 2 parts (300.0 kB) sent again over another rail");
	event.completed_without_resend = 1;
	event.replayed_messages = 0;
	event.replayed_bytes = 0;
	expect(&event, "mlx5_0:1 (path 0.1) is mended: local port down; 1 part of messages had "
		       "come over it, 0 parts (0 B) sent again over another rail");
}

static void a_short_buffer_is_never_overrun(void **state)
{
	struct ha_event event = a_switch();
	char whole[512], text[512];

	(void)state;
	ha_event_text(&event, whole, sizeof(whole));
	for (size_t size = 1; size < sizeof(text); size++) {
		memset(text, 'x', sizeof(text));
		ha_event_text(&event, text, size);
		assert_int_equal(strncmp(text, whole, size - 1), 0);
		assert_int_equal(text[size], 'x');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_switch_says_all_of_it),
	    cmocka_unit_test(what_is_unknown_is_left_out),
	    cmocka_unit_test(sizes_have_units),
	    cmocka_unit_test(the_other_kinds_name_what_they_are_about),
	    cmocka_unit_test(a_rail_that_is_shed_and_mended_says_what_of_it_was_sent_again),
	    cmocka_unit_test(a_short_buffer_is_never_overrun),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
