/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl-net-perf notices what a plugin does wrong: data, sizes, errors, crashes and hangs.
 *
 * Each case runs the tool with a plugin that misbehaves in one way (badnet.c) and expects an exit
 * status and a text on standard error or output. The same command line with a plugin that does
 * nothing wrong must succeed, so a case cannot pass for another reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "run.h"
#include "tools/nccl-net-perf/options.h"

/* PERF_TOOL, BAD_PLUGIN, HA_PLUGIN and REF_PLUGIN are paths, from CMake. */

/* What is not to hang may wait for a processor; what is, hangs beside the others that do. */
#define TIMEOUT_S "20"
#define HANG_S	  "5"

/* The tool with a plugin that misbehaves as `mode` says; "" for not at all. */
static void start_bad(const char *mode, const char *const *more, const char *timeout_s,
		      struct child *child)
{
	const char *argv[32] = {PERF_TOOL, "--plugin", BAD_PLUGIN, "-n",	"3",	  "-w",
				"1",	   "-c",       "4",	   "--timeout", timeout_s};
	const char *const environment[] = {"BADNET", mode, "BADNET_BASE", REF_PLUGIN, NULL};
	int n = 11;

	while (more && *more)
		argv[n++] = *more++;
	run_start(child, argv, environment);
}

static const char *const small[] = {"--sizes", "0,1001,100000", "--chunk", "10000", NULL};
static const char *const grouped[] = {"--sizes", "1001,100000", "--op", "grouped", NULL};
static const char *const sendrecv[] = {"--sizes", "1001,100000", "--op", "sendrecv", NULL};
static const char *const canary[] = {"--sizes",	 "1001,100000", "--op",
				     "sendrecv", "--canary",	NULL};
static const char *const canary_grouped[] = {"--sizes", "1001,100000", "--op",
					     "grouped", "--canary",    NULL};
static const char *const canary_staged[] = {"--sizes",	 "1001,100000", "--op",
					    "allreduce", "--canary",	NULL};
static const char *const one_receive[] = {"--sizes",  "1001",	  "--op", "sendrecv", "-n",
					  "0",	      "-w",	  "0",	  "-c",	      "1",
					  "--canary", "--linger", "2000", NULL};
static const char *const cycles[] = {"--sizes", "100", "--cycles", "20", NULL};

static const struct notice {
	const char *mode;
	const char *const *args;
	int status;
	const char *text; /* all of these words, separated by '|' */
} notices[] = {
    /* wrong data */
    {"corrupt", small, NP_EXIT_WRONG, "wrong elements"},
    {"corrupt", sendrecv, NP_EXIT_WRONG, "wrong elements"},
    {"corrupt", grouped, NP_EXIT_WRONG, "wrong elements"},
    {"stale", sendrecv, NP_EXIT_WRONG, "wrong elements"},
    {"overrun", grouped, NP_EXIT_WRONG, "wrong elements"},
    {"underrun", sendrecv, NP_EXIT_WRONG, "wrong elements"},
    {"swap", grouped, NP_EXIT_WRONG, "wrong elements"},
    {"short", sendrecv, NP_EXIT_WRONG, "test reported|were sent"},
    {"size", grouped, NP_EXIT_WRONG, "test reported|were sent"},
    /* right data, written again when its memory waits for nothing */
    {"twice", sendrecv, NP_EXIT_OK, "wrong elements: 0"},
    {"twice", canary, NP_EXIT_LATE,
     "late write: |of the receive buffer|of sendrecv, channel 0 from rank|wrong elements: 0"},
    {"twice", canary_grouped, NP_EXIT_LATE, "late write: |of grouped|wrong elements: 0"},
    {"twice", canary_staged, NP_EXIT_LATE, "late write: |of the staging buffer|of allreduce"},
    {"at-the-end", one_receive, NP_EXIT_LATE, "late write: |had been done since|wrong elements: 0"},
    {"corrupt", canary, NP_EXIT_WRONG, "wrong elements"},
    {"corrupt", canary_grouped, NP_EXIT_WRONG, "wrong elements"},
    {"overrun", canary_grouped, NP_EXIT_LATE, "write beyond a message: 1 bytes"},
    /* errors */
    {"init-fails", small, NP_EXIT_ERROR, "init of plugin|ncclSystemError"},
    {"no-device", small, NP_EXIT_USAGE, "no device|--simverbs"},
    {"reg-fails", small, NP_EXIT_ERROR, "regMr|ncclSystemError"},
    {"isend-fails", small, NP_EXIT_ERROR, "isend|ncclSystemError|step"},
    {"test-fails", small, NP_EXIT_ERROR, "test|ncclRemoteError|step"},
    {"close-fails", small, NP_EXIT_ERROR, "closeSend|ncclSystemError"},
    {"crash", small, NP_EXIT_ERROR, "died of signal 6"},
    {"leak", cycles, NP_EXIT_ERROR, "descriptors|not closed"},
    {"leak-thread", cycles, NP_EXIT_ERROR, "threads more|not closed"},
    /* Not a leak: a pool that grew late. */
    {"late-pool", cycles, NP_EXIT_OK, "# rank 0 after 20 cycles"},
    /* hangs */
    {"connect-never", small, NP_EXIT_TIMEOUT, "connections not made|connect to rank"},
    {"connect-blocks", small, NP_EXIT_TIMEOUT, "stuck|inside the plugin's connect"},
    {"isend-never", small, NP_EXIT_TIMEOUT, "stuck: allreduce of 0 B|to rank|0 posted"},
    {"test-never", small, NP_EXIT_TIMEOUT, "stuck: allreduce of 0 B|from rank|step 0 of 2"},
    {"test-blocks", sendrecv, NP_EXIT_TIMEOUT, "stuck|sendrecv|inside the plugin's test"},
    {"close-blocks", small, NP_EXIT_TIMEOUT, "stuck|inside the plugin's close_send"},
};

static void check_notice(const struct notice *n, const struct outcome *o)
{
	char words[200], *save = NULL;

	if (o->status != n->status)
		run_fail(o, "%s: exit status %d instead of %d", n->mode, o->status, n->status);
	snprintf(words, sizeof(words), "%s", n->text);
	for (char *word = strtok_r(words, "|", &save); word; word = strtok_r(NULL, "|", &save))
		if (!strstr(o->text, word))
			run_fail(o, "%s: '%s' is missing", n->mode, word);
}

#define N_NOTICES (sizeof(notices) / sizeof(notices[0]))

/* The notices from `first` to the last of `last`. */
static size_t range(const char *first, const char *last, size_t *begin)
{
	size_t i = 0;

	while (i < N_NOTICES && strcmp(notices[i].mode, first) != 0)
		i++;
	*begin = i;
	for (; i < N_NOTICES; i++)
		if (!strcmp(notices[i].mode, last) &&
		    (i + 1 == N_NOTICES || strcmp(notices[i + 1].mode, last) != 0))
			break;
	assert_true(i < N_NOTICES && i > *begin);
	return i + 1;
}

static void check_range(const char *first, const char *last)
{
	size_t i, end = range(first, last, &i);

	for (; i < end; i++) {
		struct child child;
		struct outcome o;

		start_bad(notices[i].mode, notices[i].args, TIMEOUT_S, &child);
		run_wait(&child, &o);
		check_notice(&notices[i], &o);
	}
}

static void a_plugin_that_does_nothing_wrong_passes(void **state)
{
	const char *const *const all[] = {small,  grouped,	  sendrecv,	 cycles,
					  canary, canary_grouped, canary_staged, one_receive};
	struct outcome o;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct child child;

		start_bad("", all[i], TIMEOUT_S, &child);
		run_wait(&child, &o);
		if (o.status != 0 || !strstr(o.text, "# wrong elements: 0"))
			run_fail(&o, "exit status %d", o.status);
	}
}

static void wrong_data_and_sizes_are_noticed(void **state)
{
	(void)state;
	check_range("corrupt", "size");
}

static void a_write_to_memory_that_awaits_nothing_is_noticed(void **state)
{
	(void)state;
	check_range("twice", "overrun");
}

static void errors_crashes_and_leaks_are_reported(void **state)
{
	(void)state;
	check_range("init-fails", "late-pool");
}

static void a_hang_ends_by_the_time_limit_and_says_where(void **state)
{
	struct child children[N_NOTICES];
	size_t begin, end = range("connect-never", "close-blocks", &begin);

	(void)state;
	for (size_t i = begin; i < end; i++)
		start_bad(notices[i].mode, notices[i].args, HANG_S, &children[i]);
	for (size_t i = begin; i < end; i++) {
		struct outcome o;

		run_wait(&children[i], &o);
		check_notice(&notices[i], &o);
		/* 5 s without progress; then a second for the report and two to end. */
		if (o.seconds > 20)
			fail_msg("%s: took %.1f s to be noticed", notices[i].mode, o.seconds);
	}
}

/*
 * A rank that dies while the others wait for it in the bootstrap, with no request under way: what
 * is to be seen is what the plugin makes of that, not that the bootstrap has noticed.
 */
static void a_plugin_has_its_say_on_a_rank_that_left_between_two_batches(void **state)
{
	static const char *const argv[] = {
	    PERF_TOOL, "--plugin",  BAD_PLUGIN, "--simverbs", "2x2", "--op", "sendrecv",
	    "--sizes", "1001",	    "-w",	"1",	      "-c",  "1",    "-C",
	    "1",       "--seconds", "30",	"--timeout",  "20",  NULL};
	/* Of a send and a receive in the warm-up and in the first batch the last. */
	static const char *const environment[] = {"BADNET",	"leaves",      "BADNET_NTH",
						  "4",		"BADNET_BASE", HA_PLUGIN,
						  "NCCL_DEBUG", "WARN",	       NULL};
	struct outcome o;

	(void)state;
	run(argv, environment, &o);
	assert_int_equal(o.status, NP_EXIT_ERROR);
	if (!strstr(o.text, "the peer left without a goodbye") ||
	    !strstr(o.text, "rank 0: sendrecv of 1001 B: ") ||
	    !strstr(o.text, "returned ncclRemoteError"))
		run_fail(&o, "the plugin was not asked");
	assert_true(o.seconds < 25);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_plugin_that_does_nothing_wrong_passes),
	    cmocka_unit_test(wrong_data_and_sizes_are_noticed),
	    cmocka_unit_test(a_write_to_memory_that_awaits_nothing_is_noticed),
	    cmocka_unit_test(errors_crashes_and_leaks_are_reported),
	    cmocka_unit_test(a_hang_ends_by_the_time_limit_and_says_where),
	    cmocka_unit_test(a_plugin_has_its_say_on_a_rank_that_left_between_two_batches),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
