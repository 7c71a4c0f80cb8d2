/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process with few descriptors (ulimit -n): whatever is the first thing for which there is none,
 * the plugin begins without it or says in a warning why it does not; nothing crashes and nothing is
 * left behind.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/stats_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 60 /* descriptors: with so many more everything works */

enum { WORKS, SAYS_WHY_NOT, SILENT, BROKEN };

static char dir[] = "/tmp/ha-test-limits-XXXXXX";

static unsigned descriptors(void)
{
	DIR *open_ones = opendir("/proc/self/fd");
	unsigned n = 0;

	while (open_ones && readdir(open_ones))
		n++;
	if (open_ones)
		closedir(open_ones);
	return n - 3; /* ".", ".." and the one that reads */
}

static bool limit_descriptors(unsigned n)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return false;
	limit.rlim_cur = n;
	return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* What NCCL does first. */
static int begin(struct pair *pair, unsigned more)
{
	struct ha_instance_options options = {.config = &pair->config, .no_threads = true};
	struct ha_instance *inst = NULL;
	ha_result_t result;

	if (!limit_descriptors(descriptors() + more))
		return BROKEN;
	result = ha_instance_open(&options, &inst);
	if (result == HA_OK && ha_instance_devices(inst)->nports > 0)
		result = ha_listen(inst, 0, pair->handle, &pair->listen);
	if (result == HA_OK && pair->listen)
		ha_close_listen(pair->listen);
	if (inst) {
		int missing = ha_instance_devices(inst)->nports == 0 || !inst->admin_server;

		ha_instance_close(inst);
		if (result == HA_OK && !missing)
			return WORKS;
	}
	if (captured_warnings == 0)
		fprintf(stderr, "with %u descriptors: result %d and no warning; the log:\n%s\n",
			more, (int)result, captured_log);
	return captured_warnings > 0 ? SAYS_WHY_NOT : SILENT;
}

static int in_a_process(unsigned more)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		struct pair pair;

		alarm(30);
		ha_stats_dir = dir;
		pair_init(&pair);
		pair.config.stats = true;
		snprintf(pair.config.event_log, sizeof(pair.config.event_log), "%s/events", dir);
		if (sv_stepped_open(&pair.fabric) != 0)
			_exit(BROKEN);
		ha_clock_set_source(sv_stepped_now);
		sv_stepped_set_host(0);
		_exit(begin(&pair, more));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		fail_msg("with %u descriptors: ended by signal %d", more, WTERMSIG(status));
	return WEXITSTATUS(status);
}

static void with_any_number_of_descriptors_it_works_or_says_why_not(void **state)
{
	unsigned works = 0, says = 0;

	(void)state;
	assert_non_null(mkdtemp(dir));
	unsetenv("XDG_RUNTIME_DIR");
	for (unsigned more = 0; more <= MOST; more++) {
		int status = in_a_process(more);

		if (status != WORKS && status != SAYS_WHY_NOT)
			fail_msg("with %u descriptors: %s", more,
				 status == SILENT ? "nothing says why it does not work" : "?");
		works += status == WORKS;
		says += status == SAYS_WHY_NOT;
	}
	assert_true(works > 0 && says > 0);
	assert_int_equal(in_a_process(MOST), WORKS);
	{
		char events[64];

		snprintf(events, sizeof(events), "%s/events", dir);
		unlink(events);
	}
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(with_any_number_of_descriptors_it_works_or_says_why_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
