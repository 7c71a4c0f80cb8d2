/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How nccl-net-perf starts ranks and fabrics, and that nothing is left of them however it ends.
 */
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "run.h"
#include "tools/nccl-net-perf/options.h"

/* PERF_TOOL, SIMVERBS_TOOL, HA_PLUGIN and REF_PLUGIN are paths, from CMake. */

#define PERF(plugin) PERF_TOOL, "--plugin", plugin, "--timeout", "20"

static void expect(const struct outcome *o, int status, const char *text)
{
	if (o->status != status || (text && !strstr(o->text, text)))
		run_fail(o, "exit status %d instead of %d, or '%s' is missing", o->status, status,
			 text ? text : "");
}

/* ---- fabrics -------------------------------------------------------------------------------- */

static bool fabric_exists(const char *name)
{
	const char *const argv[] = {SIMVERBS_TOOL, "status", name, NULL};
	struct outcome o;

	run(argv, NULL, &o);
	return o.status == 0;
}

static void name_of_fabric(char *name, size_t len, pid_t launcher)
{
	snprintf(name, len, "perf-%d", (int)launcher);
}

/* A run that lasts until somebody ends it, once its fabric is up and traffic flows. */
static void start_long_run(struct child *child, char *fabric, size_t len, const char *json)
{
	const char *const argv[] = {PERF(HA_PLUGIN), "--simverbs", "2x2",    "--sizes", "64K",
				    "--seconds",     "0.2",	   "--json", json,	"--cycles",
				    "10000",	     NULL};
	double until_s = run_now_s() + 30;

	run_start(child, argv, NULL);
	name_of_fabric(fabric, len, child->pid);
	while (!fabric_exists(fabric) && run_now_s() < until_s)
		usleep(50000);
	sleep(1);
}

static void an_interrupted_run_takes_its_fabric_down(void **state)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};

	(void)state;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct child child;
		struct outcome o;
		char fabric[64];

		start_long_run(&child, fabric, sizeof(fabric), "/dev/null");
		assert_int_equal(kill(child.pid, signals[i]), 0);
		run_wait(&child, &o);
		expect(&o, NP_EXIT_ERROR, "interrupted");
		assert_false(fabric_exists(fabric));
		/* The ranks were in its process group: none is left. */
		assert_int_equal(kill(-child.pid, 0), -1);
	}
}

/* The process of a rank: a child of the launcher whose command line says so. */
static pid_t find_rank(pid_t launcher, const char *rank)
{
	char path[64], children[256] = "", line[4096];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
	f = fopen(path, "re");
	assert_non_null(f);
	if (!fgets(children, sizeof(children), f))
		children[0] = '\0';
	fclose(f);
	for (char *save = NULL, *pid = strtok_r(children, " ", &save); pid;
	     pid = strtok_r(NULL, " ", &save)) {
		size_t len;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
		f = fopen(path, "re");
		if (!f)
			continue;
		len = fread(line, 1, sizeof(line) - 1, f);
		fclose(f);
		for (size_t i = 0; i + 7 < len; i++)
			if (!memcmp(line + i, "--rank\0", 7) && !strcmp(line + i + 7, rank))
				return (pid_t)atoi(pid);
	}
	return 0;
}

static void a_rank_that_dies_is_named_and_ends_the_run(void **state)
{
	struct child child;
	struct outcome o;
	char fabric[64];
	pid_t rank = 0;

	(void)state;
	start_long_run(&child, fabric, sizeof(fabric), "/dev/null");
	for (int i = 0; i < 600 && !(rank = find_rank(child.pid, "1")); i++)
		usleep(50000);
	assert_true(rank > 0);
	assert_int_equal(kill(rank, SIGKILL), 0);
	run_wait(&child, &o);
	expect(&o, NP_EXIT_ERROR, "rank 1 died of signal 9");
	assert_false(fabric_exists(fabric));
	assert_true(o.seconds < 60);
}

static void a_fault_that_never_fires_is_a_failure(void **state)
{
	const char *const fires[] = {PERF(HA_PLUGIN), "--simverbs",    "2x2", "--sizes", "1M",
				     "--fault",	      "dup prob=0.05", NULL};
	const char *const never[] = {PERF(HA_PLUGIN),
				     "--simverbs",
				     "2x2",
				     "--sizes",
				     "1M",
				     "--fault",
				     "drop host=0 nth=1000000000",
				     NULL};
	const char *const nonsense[] = {PERF(HA_PLUGIN), "--simverbs",	       "2x2",
					"--fault",	 "pour water over it", NULL};
	struct outcome o;

	(void)state;
	run(fires, NULL, &o);
	expect(&o, NP_EXIT_OK, "# fault 'dup prob=0.05'");
	run(never, NULL, &o);
	expect(&o, NP_EXIT_WRONG, "never fired");
	run(nonsense, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "pour water over it");
}

/*
 * Registrations that take 0.5 s each delay the run by at least that of a rank's own memory and of
 * the buffers that it sends from, and change nothing else.
 */
static void a_verb_that_waits_delays_the_run(void **state)
{
	const char *const slow[] = {
	    PERF(HA_PLUGIN),	      "--simverbs", "2x1", "--sizes", "1K", "--fault",
	    "wait=500ms verb=reg_mr", NULL};
	const char *const no_command[] = {PERF(HA_PLUGIN),	     "--simverbs", "2x1", "--fault",
					  "wait=1ms verb=post_send", NULL};
	struct outcome o;

	(void)state;
	run(slow, NULL, &o);
	expect(&o, NP_EXIT_OK, "# fault 'wait=500ms verb=reg_mr': matched");
	expect(&o, NP_EXIT_OK, "wrong elements: 0 in");
	if (o.seconds < 1.0)
		run_fail(&o, "it took %.3f s with registrations of 0.5 s", o.seconds);
	run(no_command, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "'verb=post_send'");
}

static void a_pause_is_kept_and_counts_in_no_figure(void **state)
{
	char path[64];
	const char *const argv[] = {PERF(REF_PLUGIN), "--sizes", "1K",	   "-n", "20", "-c", "0",
				    "--pause",	      "50",	 "--json", path, NULL};
	const char *const nonsense[] = {PERF(REF_PLUGIN), "--pause", "0", NULL};
	struct outcome o;
	json_t *report;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/test-perf-pause-%d.json", (int)getpid());
	run(argv, NULL, &o);
	report = json_load_file(path, 0, NULL);
	unlink(path);
	expect(&o, NP_EXIT_OK, NULL);
	if (o.seconds < 1.0)
		run_fail(&o, "it took %.3f s with 20 pauses of 0.05 s", o.seconds);
	assert_non_null(report);
	assert_true(json_number_value(json_object_get(
			json_array_get(json_object_get(report, "rows"), 0), "time_us")) < 50e3);
	json_decref(report);
	run(nonsense, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "--pause: '0' is not a number above 0, up to 1000");
}

/* Of all children that ended, and of theirs. */
static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_CHILDREN, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void a_rank_that_naps_leaves_the_processor_to_others(void **state)
{
	const char *const argv[] = {PERF(REF_PLUGIN), "--sizes", "1K", "-n", "20", "-c", "0",
				    "--nap",	      "50000",	 NULL};
	const char *const nonsense[] = {PERF(REF_PLUGIN), "--nap", "1s", NULL};
	const double before = cpu_seconds();
	struct outcome o;

	(void)state;
	run(argv, NULL, &o);
	expect(&o, NP_EXIT_OK, NULL);
	if (o.seconds < 1.0)
		run_fail(&o, "it took %.3f s, and the other rank is waited for 20 times",
			 o.seconds);
	if (cpu_seconds() - before > o.seconds / 2)
		run_fail(&o, "%.3f s of processor time in %.3f s", cpu_seconds() - before,
			 o.seconds);
	run(nonsense, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "--nap: '1s' is not a number from 0 to 100000");
}

/* ---- ranks started by others ----------------------------------------------------------------- */

static void ranks_started_by_a_launcher_find_each_other(void **state)
{
	const char *const argv[] = {PERF(REF_PLUGIN), "-e", "1K", NULL};
	struct child children[3];
	struct outcome o;
	char rank[12], job[32];

	(void)state;
	snprintf(job, sizeof(job), "test-%d", (int)getpid());
	for (int r = 2; r >= 0; r--) {
		const char *const environment[] = {
		    "PMI_RANK", rank,	     "PMI_SIZE", "3", "MPI_LOCALNRANKS",
		    "3",	"PMI_JOBID", job,	 NULL};

		snprintf(rank, sizeof(rank), "%d", r);
		run_start(&children[r], argv, environment);
	}
	for (int r = 0; r < 3; r++) {
		run_wait(&children[r], &o);
		expect(&o, NP_EXIT_OK, r ? NULL : "# wrong elements: 0 in 8 checked");
	}
}

static void ranks_started_by_hand_meet_at_the_root(void **state)
{
	const char *const lonely[] = {PERF(REF_PLUGIN), "--rank", "0", "--nranks", "2", NULL};
	struct outcome o;

	(void)state;
	run(lonely, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "--root HOST:PORT");
}

/* Two sizes, a minute each, and both rows are there long before. */
static void a_signal_to_rank_0_ends_a_timed_run_in_good_order(void **state)
{
	const char *const argv[] = {PERF(REF_PLUGIN), "--sizes", "4K,8K", "--seconds", "60", NULL};
	struct child children[2];
	struct outcome o;
	char rank[12], job[32];

	(void)state;
	snprintf(job, sizeof(job), "signal-%d", (int)getpid());
	for (int r = 0; r < 2; r++) {
		const char *const environment[] = {
		    "PMI_RANK", rank,	     "PMI_SIZE", "2", "MPI_LOCALNRANKS",
		    "2",	"PMI_JOBID", job,	 NULL};

		snprintf(rank, sizeof(rank), "%d", r);
		run_start(&children[r], argv, environment);
	}
	sleep(3);
	assert_int_equal(kill(children[0].pid, SIGUSR1), 0);
	for (int r = 0; r < 2; r++) {
		run_wait(&children[r], &o);
		expect(&o, NP_EXIT_OK, r ? NULL : "# wrong elements: 0 in 2 checked");
		assert_true(o.seconds < 45);
	}
}

static void a_signal_to_the_launcher_does_the_same(void **state)
{
	const char *const argv[] = {PERF(REF_PLUGIN), "--ranks", "2", "--sizes", "4K",
				    "--seconds",      "60",	 NULL};
	struct child child;
	struct outcome o;

	(void)state;
	run_start(&child, argv, NULL);
	sleep(3);
	assert_int_equal(kill(child.pid, SIGUSR1), 0);
	run_wait(&child, &o);
	expect(&o, NP_EXIT_OK, "# wrong elements: 0 in 1 checked");
	assert_true(o.seconds < 45);
}

/* Ranks of mpirun enter the fabric by themselves. */
static void ranks_of_a_launcher_run_on_a_named_fabric(void **state)
{
	char name[64], rank[12], job[32];
	const char *const up[] = {SIMVERBS_TOOL, "up", name, "--hosts", "2", "--rails", "2", NULL};
	const char *const down[] = {SIMVERBS_TOOL, "down", name, NULL};
	const char *const argv[] = {PERF(HA_PLUGIN), "--fabric", name, "-e", "1K", NULL};
	struct child children[2];
	struct outcome o, outcomes[2];

	(void)state;
	snprintf(name, sizeof(name), "test-perf-%d", (int)getpid());
	snprintf(job, sizeof(job), "fabric-%d", (int)getpid());
	run(up, NULL, &o);
	expect(&o, 0, NULL);
	for (int r = 0; r < 2; r++) {
		const char *const environment[] = {"PMI_RANK",		 rank, "PMI_SIZE",  "2",
						   "MPI_LOCALNRANKS",	 "2",  "PMI_JOBID", job,
						   "NCCL_SOCKET_IFNAME", "lo", NULL};

		snprintf(rank, sizeof(rank), "%d", r);
		run_start(&children[r], argv, environment);
	}
	for (int r = 0; r < 2; r++)
		run_wait(&children[r], &outcomes[r]);
	run(down, NULL, &o);
	expect(&o, 0, NULL);
	expect(&outcomes[0], NP_EXIT_OK, "# wrong elements: 0 in 8 checked");
	expect(&outcomes[1], NP_EXIT_OK, NULL);
}

/* ---- the report ----------------------------------------------------------------------------- */

static void the_report_holds_rows_percentiles_timeline_and_faults(void **state)
{
	char path[64];
	const char *const argv[] = {PERF(HA_PLUGIN),
				    "--simverbs",
				    "2x2",
				    "--op",
				    "allreduce,grouped",
				    "-b",
				    "1K",
				    "-e",
				    "4K",
				    "--fault",
				    "delay=1ms prob=0.05",
				    "--timeline-ms",
				    "10",
				    "--json",
				    path,
				    NULL};
	struct outcome o;
	json_t *report, *row, *counters;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/test-perf-%d.json", (int)getpid());
	run(argv, NULL, &o);
	report = json_load_file(path, 0, NULL);
	unlink(path);
	expect(&o, NP_EXIT_OK, NULL);
	assert_non_null(report);
	assert_int_equal(json_array_size(json_object_get(report, "rows")), 6);
	json_array_foreach(json_object_get(report, "rows"), i, row)
	{
		json_t *latency = json_object_get(row, "latency");

		assert_int_equal(json_integer_value(json_object_get(row, "wrong")), 0);
		assert_true(json_number_value(json_object_get(row, "time_us")) > 0);
		assert_true(json_integer_value(json_object_get(latency, "count")) > 0);
		assert_true(json_integer_value(json_object_get(latency, "p99")) >=
			    json_integer_value(json_object_get(latency, "p50")));
	}
	assert_int_equal(json_array_size(json_object_get(report, "faults")), 1);
	assert_int_equal(
	    json_array_size(json_object_get(json_object_get(report, "timeline"), "bytes_received")),
	    2);
	/* Our own plugin publishes counters, of each rank; and the clock says when all this was. */
	counters = json_object_get(report, "counters");
	assert_true(json_integer_value(json_object_get(json_object_get(counters, "connections"),
						       "messages")) >= 2 * 6);
	assert_int_equal(
	    json_integer_value(json_object_get(json_object_get(counters, "job"), "connections")),
	    json_integer_value(
		json_object_get(json_object_get(counters, "ports"), "connections_open")));
	assert_int_equal(
	    json_array_size(json_object_get(json_object_get(report, "clock"), "monotonic_ns")), 2);
	assert_int_equal(json_array_size(json_object_get(report, "warnings")), 0);
	json_decref(report);
}

/* ---- two sides of one run -------------------------------------------------------------------- */

/* One plugin, initialised in two ways in one process: each side sees its own variables and only
 * them. */
static void each_side_has_its_own_environment(void **state)
{
	static const char *const off[] = {
	    PERF_TOOL, "--plugin",	    HA_PLUGIN,	  "--simverbs",	       "2x2",
	    "--env",   "HA_NCCL_DISABLE=0", "--peer-env", "HA_NCCL_DISABLE=1", NULL};
	char path[64];
	const char *const on[] = {PERF_TOOL,
				  "--plugin",
				  HA_PLUGIN,
				  "--simverbs",
				  "2x2",
				  "--env",
				  "HA_NCCL_DISABLE=0",
				  "--peer-env",
				  "HA_NCCL_DISABLE=0",
				  "--peer-env",
				  "HA_NCCL_ENABLE_BACKUP=0",
				  "--sizes",
				  "1001",
				  "--rounds",
				  "3",
				  "--json",
				  path,
				  NULL};
	static const char *const wrong[] = {PERF_TOOL, "--peer-env", "HA_NCCL_DISABLE", NULL};
	static const char *const disabled[] = {"HA_NCCL_DISABLE", "1", NULL};
	struct outcome o;
	json_t *report, *row;
	size_t i;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/test-perf-%d.json", (int)getpid());
	/* The second side alone is switched off, although it is the same file. */
	run(off, NULL, &o);
	expect(&o, NP_EXIT_ERROR, "init of plugin");
	/* What the caller has set is hidden while a side is set up. */
	run(on, disabled, &o);
	expect(&o, NP_EXIT_OK, "(B): \"HA\", API v12, HA_NCCL_DISABLE=0, HA_NCCL_ENABLE_BACKUP=0");
	report = json_load_file(path, 0, NULL);
	unlink(path);
	assert_non_null(report);
	assert_int_equal(json_array_size(json_object_get(report, "rows")), 2);
	json_array_foreach(json_object_get(report, "rows"), i, row)
	{
		json_t *rounds = json_object_get(row, "round_us");

		assert_int_equal(json_array_size(rounds), 3);
		assert_true(json_number_value(json_array_get(rounds, 2)) > 0);
	}
	json_decref(report);
	run(wrong, NULL, &o);
	expect(&o, NP_EXIT_USAGE, "'HA_NCCL_DISABLE' is not NAME=VALUE");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_interrupted_run_takes_its_fabric_down),
	    cmocka_unit_test(a_rank_that_dies_is_named_and_ends_the_run),
	    cmocka_unit_test(a_fault_that_never_fires_is_a_failure),
	    cmocka_unit_test(a_verb_that_waits_delays_the_run),
	    cmocka_unit_test(a_pause_is_kept_and_counts_in_no_figure),
	    cmocka_unit_test(a_rank_that_naps_leaves_the_processor_to_others),
	    cmocka_unit_test(ranks_started_by_a_launcher_find_each_other),
	    cmocka_unit_test(ranks_started_by_hand_meet_at_the_root),
	    cmocka_unit_test(a_signal_to_rank_0_ends_a_timed_run_in_good_order),
	    cmocka_unit_test(a_signal_to_the_launcher_does_the_same),
	    cmocka_unit_test(ranks_of_a_launcher_run_on_a_named_fabric),
	    cmocka_unit_test(the_report_holds_rows_percentiles_timeline_and_faults),
	    cmocka_unit_test(each_side_has_its_own_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
