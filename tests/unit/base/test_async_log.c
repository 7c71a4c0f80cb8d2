/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a thread that must not wait are written by another one: in order, all of them, and
 * without it whatever becomes of the log. */
#include "../cmocka_all.h"

#include "base/async_log.h"
#include "base/clock.h"
#include "base/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 200

/* Where a flush is not to be given up: the thread may get no processor for a while. */
#define LONG_TIMEOUT_MS 20000

/* A log that can be stopped; says who wrote last. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static char written[1 << 20];
static size_t length;
static pthread_t by;
static atomic_uint lines;

static void sink(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		 const char *text)
{
	(void)level;
	(void)subsys;
	(void)file;
	(void)line;
	pthread_mutex_lock(&gate);
	by = pthread_self();
	if (length + strlen(text) + 2 < sizeof(written))
		length += (size_t)sprintf(written + length, "%s\n", text);
	pthread_mutex_unlock(&gate);
	atomic_fetch_add(&lines, 1);
}

static int begin(void **state)
{
	(void)state;
	length = 0;
	written[0] = '\0';
	atomic_store(&lines, 0);
	ha_log_set_sink(sink);
	ha_async_log_timeout_ms = LONG_TIMEOUT_MS;
	return 0;
}

static int begin_with_the_default_timeout(void **state)
{
	begin(state);
	ha_async_log_timeout_ms = HA_ASYNC_LOG_TIMEOUT_MS;
	return 0;
}

static bool has_written(const char *text)
{
	bool found;

	pthread_mutex_lock(&gate);
	found = strstr(written, text) != NULL;
	pthread_mutex_unlock(&gate);
	return found;
}

static void expect_in_order(unsigned first, unsigned n)
{
	const char *at = written;
	unsigned i;

	pthread_mutex_lock(&gate);
	for (i = first; i < first + n; i++) {
		char expected[64];

		snprintf(expected, sizeof(expected), "NET/HA : line %u\n", i);
		at = strstr(at, expected);
		if (!at)
			break;
	}
	pthread_mutex_unlock(&gate);
	if (i < first + n)
		fail_msg("line %u is missing, or too early", i);
}

/* The next lock that this thread takes is had only when what the gate holds up is written. */
static _Thread_local bool comes_late;

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
	unsigned before = atomic_load(&lines);

	if (comes_late) {
		comes_late = false;
		pthread_mutex_unlock(&gate);
		while (atomic_load(&lines) == before)
			usleep(100);
		usleep(10000); /* the writer has nothing to do any more, by now */
	}
	return __real_pthread_mutex_lock(mutex);
}

static void without_a_writer_they_are_written_at_once(void **state)
{
	(void)state;
	ha_log_defer(true);
	HA_WARN("line %u", 0u);
	assert_true(pthread_equal(by, pthread_self()));
	assert_false(ha_log_defer(false) == false);
}

static void another_thread_writes_them_in_order(void **state)
{
	(void)state;
	ha_async_log_open();
	ha_log_defer(true);
	for (unsigned i = 0; i < LINES; i++)
		HA_INFO(HA_SUBSYS_NET, "line %u", i);
	ha_log_defer(false);
	ha_async_log_flush();
	assert_int_equal(atomic_load(&lines), LINES);
	assert_false(pthread_equal(by, pthread_self()));
	expect_in_order(0, LINES);
	ha_async_log_close();
}

static void a_line_that_is_not_left_to_it_comes_after_those_that_are(void **state)
{
	(void)state;
	ha_async_log_open();
	for (unsigned i = 0; i < LINES; i++) {
		ha_log_defer(i % 2 == 0);
		HA_INFO(HA_SUBSYS_NET, "line %u", i);
	}
	ha_log_defer(false);
	assert_true(pthread_equal(by, pthread_self()));
	expect_in_order(0, LINES);
	ha_async_log_close();
}

/* Four lines, from `first` on. Returns how long it took until one of them was written. */
static uint64_t burst_ns(unsigned first)
{
	uint64_t begun_ns = ha_now_ns(), took_ns;

	ha_log_defer(true);
	for (unsigned i = 0; i < 4; i++) {
		HA_INFO(HA_SUBSYS_NET, "line %u", first + i);
		usleep(1000);
	}
	ha_log_defer(false);
	while (atomic_load(&lines) == first)
		usleep(100);
	took_ns = ha_now_ns() - begun_ns;
	ha_async_log_flush();
	assert_int_equal(atomic_load(&lines), first + 4);
	return took_ns;
}

/* What it is about may need the processors. */
static void a_burst_is_over_before_it_is_written(void **state)
{
	unsigned later = 0;

	(void)state;
	for (unsigned round = 0; round < 5; round++) {
		ha_async_log_open();
		assert_true(burst_ns(8 * round) >= HA_ASYNC_LOG_LAG_MS * HA_NS_PER_MS);
		/* To the same thread, once it has nothing to do; it may not have come to that yet.
		 */
		usleep(10000);
		later += burst_ns(8 * round + 4) >= HA_ASYNC_LOG_LAG_MS * HA_NS_PER_MS;
		ha_async_log_close();
	}
	assert_true(later >= 4);
	expect_in_order(0, 40);
}

static void a_flush_that_comes_too_late_hastens_no_later_burst(void **state)
{
	(void)state;
	ha_async_log_open();
	pthread_mutex_lock(&gate);
	ha_log_defer(true);
	HA_INFO(HA_SUBSYS_NET, "line %u", 0u);
	ha_log_defer(false);
	comes_late = true;
	ha_async_log_flush();
	assert_false(comes_late);
	assert_true(burst_ns(1) >= HA_ASYNC_LOG_LAG_MS * HA_NS_PER_MS);
	ha_async_log_close();
}

/* The best of some, on a busy machine. */
static void who_waits_for_a_line_does_not_wait_for_more_of_them(void **state)
{
	uint64_t best_ns = UINT64_MAX;

	(void)state;
	ha_async_log_open();
	for (unsigned round = 0; round < 50; round++) {
		uint64_t begun_ns = ha_now_ns(), took_ns;

		ha_log_defer(true);
		HA_INFO(HA_SUBSYS_NET, "line %u", round);
		ha_log_defer(false);
		ha_async_log_flush();
		took_ns = ha_now_ns() - begun_ns;
		best_ns = took_ns < best_ns ? took_ns : best_ns;
		assert_int_equal(atomic_load(&lines), round + 1);
	}
	assert_true(best_ns < HA_ASYNC_LOG_LAG_MS * HA_NS_PER_MS / 2);
	ha_async_log_close();
}

static void closing_writes_what_is_there(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		ha_async_log_open();
		ha_log_defer(true);
		for (unsigned i = 0; i < 10; i++)
			HA_INFO(HA_SUBSYS_NET, "line %u", 10 * round + i);
		ha_log_defer(false);
		ha_async_log_close();
		assert_int_equal(atomic_load(&lines), 10 * (round + 1));
	}
	expect_in_order(0, 200);
}

static void the_last_of_several_users_ends_it(void **state)
{
	(void)state;
	ha_async_log_open();
	ha_async_log_open();
	ha_async_log_close();
	ha_log_defer(true);
	HA_INFO(HA_SUBSYS_NET, "line %u", 0u);
	ha_log_defer(false);
	ha_async_log_flush();
	assert_false(pthread_equal(by, pthread_self()));
	ha_async_log_close();
	ha_log_defer(true);
	HA_INFO(HA_SUBSYS_NET, "line %u", 1u);
	ha_log_defer(false);
	assert_true(pthread_equal(by, pthread_self()));
}

/* 100 bytes of text each: far more than are kept. */
#define TOO_MANY (3 * HA_ASYNC_LOG_BYTES_MAX / 200)

static void a_log_that_hangs_is_waited_for_by_nobody(void **state)
{
	uint64_t begun_ns, left_ns, flushed_ns;
	const char *behind;
	unsigned before;

	(void)state;
	ha_async_log_open();
	pthread_mutex_lock(&gate);
	begun_ns = ha_now_ns();
	ha_log_defer(true);
	for (unsigned i = 0; i < TOO_MANY; i++)
		HA_INFO(HA_SUBSYS_NET, "line %u\n%100s", i, "");
	ha_log_defer(false);
	left_ns = ha_now_ns() - begun_ns;
	/* Waited for once at most, however many connections fail. */
	begun_ns = ha_now_ns();
	for (int i = 0; i < 50; i++)
		ha_async_log_flush();
	flushed_ns = ha_now_ns() - begun_ns;
	before = atomic_load(&lines);
	pthread_mutex_unlock(&gate);
	assert_true(left_ns < 10 * HA_NS_PER_S);
	assert_true(flushed_ns < 25 * HA_ASYNC_LOG_TIMEOUT_MS * HA_NS_PER_MS);
	assert_int_equal(before, 0);
	/* What was kept, and then a word about the rest. */
	for (int i = 0; i < 1000 && !has_written("are missing here"); i++)
		usleep(10000);
	assert_true(has_written("log lines and events are missing here"));
	expect_in_order(0, 1000);
	pthread_mutex_lock(&gate);
	behind = strstr(strstr(written, "are missing here"), "line ");
	pthread_mutex_unlock(&gate);
	assert_null(behind);
	assert_in_range(atomic_load(&lines), 1001, TOO_MANY - 1);
	ha_async_log_close();
}

static void closing_leaves_a_log_that_hangs(void **state)
{
	unsigned before;

	(void)state;
	ha_async_log_open();
	pthread_mutex_lock(&gate);
	ha_log_defer(true);
	for (unsigned i = 0; i < 10; i++)
		HA_INFO(HA_SUBSYS_NET, "line %u", i);
	ha_log_defer(false);
	ha_async_log_close();
	before = atomic_load(&lines);
	pthread_mutex_unlock(&gate);
	assert_int_equal(before, 0);
	for (int i = 0; i < 1000 && atomic_load(&lines) < 10; i++)
		usleep(10000);
	expect_in_order(0, 10);
	/* And it can be used again. */
	ha_async_log_timeout_ms = LONG_TIMEOUT_MS;
	ha_async_log_open();
	ha_log_defer(true);
	HA_INFO(HA_SUBSYS_NET, "line %u", 10u);
	ha_log_defer(false);
	ha_async_log_close();
	expect_in_order(0, 11);
}

static uint64_t stands_still(void)
{
	return HA_NS_PER_S;
}

/* The thread would still look at that clock when the test has taken it away. */
static void a_tests_clock_is_not_what_it_waits_by(void **state)
{
	(void)state;
	ha_async_log_open();
	ha_log_defer(true);
	for (unsigned i = 0; i < 10; i++) {
		ha_clock_set_source(stands_still);
		HA_INFO(HA_SUBSYS_NET, "line %u", i);
		ha_async_log_flush();
		ha_clock_set_source(NULL);
		assert_int_equal(atomic_load(&lines), i + 1);
	}
	ha_log_defer(false);
	ha_async_log_close();
}

static void *write_lines(void *arg)
{
	unsigned first = *(unsigned *)arg;

	ha_log_defer(true);
	for (unsigned i = first; i < first + LINES; i++)
		HA_INFO(HA_SUBSYS_NET, "line %u", i);
	return NULL;
}

static void lines_of_several_threads_are_all_there(void **state)
{
	unsigned first[4];
	pthread_t threads[4];

	(void)state;
	ha_async_log_open();
	for (unsigned t = 0; t < 4; t++) {
		first[t] = 1000 * (t + 1);
		assert_int_equal(pthread_create(&threads[t], NULL, write_lines, &first[t]), 0);
	}
	for (unsigned t = 0; t < 4; t++)
		pthread_join(threads[t], NULL);
	ha_async_log_close();
	assert_int_equal(atomic_load(&lines), 4 * LINES);
	for (unsigned t = 0; t < 4; t++)
		expect_in_order(first[t], LINES);
}

/* The thread is not there, and whatever it held is held for ever. */
static void a_forked_child_writes_by_itself(void **state)
{
	int status;
	pid_t pid;

	(void)state;
	ha_async_log_open();
	pthread_mutex_lock(&gate);
	ha_log_defer(true);
	HA_INFO(HA_SUBSYS_NET, "line %u", 0u);
	pid = fork();
	if (pid == 0) {
		alarm(10);
		pthread_mutex_unlock(&gate);
		HA_INFO(HA_SUBSYS_NET, "line %u", 1u);
		_exit(pthread_equal(by, pthread_self()) && atomic_load(&lines) == 1 ? 0 : 1);
	}
	ha_log_defer(false);
	pthread_mutex_unlock(&gate);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	ha_async_log_close();
	expect_in_order(0, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(without_a_writer_they_are_written_at_once, begin),
	    cmocka_unit_test_setup(another_thread_writes_them_in_order, begin),
	    cmocka_unit_test_setup(a_line_that_is_not_left_to_it_comes_after_those_that_are, begin),
	    cmocka_unit_test_setup(a_burst_is_over_before_it_is_written, begin),
	    cmocka_unit_test_setup(a_flush_that_comes_too_late_hastens_no_later_burst, begin),
	    cmocka_unit_test_setup(who_waits_for_a_line_does_not_wait_for_more_of_them, begin),
	    cmocka_unit_test_setup(closing_writes_what_is_there, begin),
	    cmocka_unit_test_setup(the_last_of_several_users_ends_it, begin),
	    cmocka_unit_test_setup(a_log_that_hangs_is_waited_for_by_nobody,
				   begin_with_the_default_timeout),
	    cmocka_unit_test_setup(closing_leaves_a_log_that_hangs, begin_with_the_default_timeout),
	    cmocka_unit_test_setup(a_tests_clock_is_not_what_it_waits_by, begin),
	    cmocka_unit_test_setup(lines_of_several_threads_are_all_there, begin),
	    cmocka_unit_test_setup(a_forked_child_writes_by_itself, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
