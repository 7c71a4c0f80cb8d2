/* SPDX-License-Identifier: Apache-2.0 */
/* Where lines go, which lines, and that errno and long lines survive; the clock's source. */
#include "../captured_log.h"
#include "../cmocka_all.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int evaluations;

static int evaluated(void)
{
	return ++evaluations;
}

static void lines_reach_the_sink_with_their_prefix(void **state)
{
	(void)state;
	capture_log();
	HA_WARN("port %d is down", 3);
	HA_INFO(HA_SUBSYS_NET, "hello");
	assert_string_equal(captured_log, "NET/HA : port 3 is down\nNET/HA : hello\n");
	assert_int_equal(captured_warnings, 1);
}

static void trace_lines_are_gated_and_then_cost_no_evaluation(void **state)
{
	(void)state;
	capture_log();
	evaluations = 0;
	ha_log_set_debug(1);
	HA_TRACE(2, "%d", evaluated());
	assert_int_equal(evaluations, 0);
	HA_TRACE(1, "level one, %d", evaluated());
	assert_int_equal(evaluations, 1);
	assert_true(logged("level one, 1"));
	ha_log_set_debug(0);
}

static void errno_is_kept(void **state)
{
	(void)state;
	capture_log();
	errno = ENOMEM;
	HA_WARN("something failed");
	assert_int_equal(errno, ENOMEM);
}

static void an_overlong_line_is_cut_and_marked(void **state)
{
	static char longest[5000];

	(void)state;
	memset(longest, 'x', sizeof longest - 1);
	capture_log();
	HA_WARN("%s", longest);
	assert_int_equal(captured_length, 1024); /* with the newline for the zero */
	assert_true(logged("xxx...\n"));
}

/* What the call wrote to stderr, at most `size`. */
static void stderr_of(void (*call)(void), char *buf, size_t size)
{
	int pipe_fds[2], saved = dup(STDERR_FILENO);
	ssize_t got;

	assert_int_equal(pipe(pipe_fds), 0);
	fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
	dup2(pipe_fds[1], STDERR_FILENO);
	call();
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	got = read(pipe_fds[0], buf, size - 1);
	buf[got > 0 ? got : 0] = '\0';
	close(saved);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void log_both(void)
{
	HA_WARN("important");
	HA_INFO(HA_SUBSYS_INIT, "chatty");
}

static void without_a_sink_warnings_go_to_stderr(void **state)
{
	char text[256];

	(void)state;
	ha_log_set_sink(NULL);
	stderr_of(log_both, text, sizeof text);
	assert_string_equal(text, "WARN NET/HA : important\n");
}

static uint64_t virtual_now(void)
{
	return 42;
}

static void the_clock_is_monotonic_or_the_tests_own(void **state)
{
	uint64_t first = ha_now_ns(), second = ha_now_ns();

	(void)state;
	assert_true(second >= first);
	assert_true(first > 0);
	ha_clock_set_source(virtual_now);
	assert_int_equal(ha_now_ns(), 42);
	ha_clock_set_source(NULL);
	assert_true(ha_now_ns() >= second);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static uint64_t limits_now_ns;

static uint64_t limits_now(void)
{
	return limits_now_ns;
}

static unsigned lines_of(const char *text)
{
	unsigned n = 0;

	for (const char *at = captured_log; (at = strstr(at, text)) != NULL; at += strlen(text))
		n++;
	return n;
}

static void again(unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		HA_INFO_LIMITED(HA_SUBSYS_NET, "again %u", i);
}

static void of_one_cause_a_burst_is_told_and_then_one_line_in_a_while_with_a_count(void **state)
{
	(void)state;
	capture_log();
	ha_clock_set_source(limits_now);
	limits_now_ns = HA_NS_PER_S;
	again(1000);
	assert_int_equal(lines_of("again"), HA_LOG_BURST);
	assert_true(logged("again 9\n"));
	limits_now_ns += HA_LOG_REFILL_NS - 1;
	again(10);
	assert_int_equal(lines_of("again"), HA_LOG_BURST);
	limits_now_ns += 1;
	again(10);
	assert_int_equal(lines_of("again"), HA_LOG_BURST + 1);
	assert_true(logged("again 0 (and 1000 more like it, left out here)\n"));
	/* A burst gathers, and no more than one. */
	limits_now_ns += 1000 * HA_LOG_REFILL_NS;
	again(1000);
	assert_int_equal(lines_of("again"), 2 * HA_LOG_BURST + 1);
	ha_clock_set_source(NULL);
}

/* Another cause's, and what is not limited. */
static void a_cause_that_is_left_out_silences_no_other(void **state)
{
	(void)state;
	capture_log();
	ha_clock_set_source(limits_now);
	again(1000);
	HA_INFO_LIMITED(HA_SUBSYS_NET, "another");
	HA_WARN("important");
	assert_true(logged("another\n"));
	assert_true(logged("important\n"));
	ha_clock_set_source(NULL);
}

static void the_count_of_what_was_left_out_is_not_cut_off(void **state)
{
	static struct ha_log_limit limit;
	static char longest[5000];

	(void)state;
	memset(longest, 'x', sizeof longest - 1);
	capture_log();
	ha_clock_set_source(limits_now);
	for (int i = 0; i < 12; i++)
		HA_INFO_LIMITED_BY(&limit, HA_SUBSYS_NET, "short");
	limits_now_ns += HA_LOG_REFILL_NS;
	HA_INFO_LIMITED_BY(&limit, HA_SUBSYS_NET, "%s", longest);
	assert_true(logged("xxx... (and 2 more like it, left out here)\n"));
	ha_clock_set_source(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_reach_the_sink_with_their_prefix),
	    cmocka_unit_test(trace_lines_are_gated_and_then_cost_no_evaluation),
	    cmocka_unit_test(errno_is_kept),
	    cmocka_unit_test(an_overlong_line_is_cut_and_marked),
	    cmocka_unit_test(without_a_sink_warnings_go_to_stderr),
	    cmocka_unit_test(the_clock_is_monotonic_or_the_tests_own),
	    cmocka_unit_test(
		of_one_cause_a_burst_is_told_and_then_one_line_in_a_while_with_a_count),
	    cmocka_unit_test(a_cause_that_is_left_out_silences_no_other),
	    cmocka_unit_test(the_count_of_what_was_left_out_is_not_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
