/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept of a drill for a plot: a file says what was sampled, and when what was broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drill.h"
#include "tools/common/clock.h"

#include <dirent.h>
#include <unistd.h>

#define ZERO_NS	 (7 * NP_NS_PER_S)
#define MS(ms)	 (ZERO_NS + (uint64_t)(ms)*NP_NS_PER_MS)
#define MILLIONS 1000000ull

static char dir[64];

static int set_up(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/ha-record-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	char path[400];
	struct dirent *entry;
	DIR *d = opendir(dir);

	(void)state;
	while (d && (entry = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	return rmdir(dir);
}

/* NULL: there is none. */
static const char *content(const char *name)
{
	static char text[4096];
	char path[100];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return NULL;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return text;
}

/* Three rails for half a second, the second of which is cut for two tenths of it. */
static void begin(struct drill_run *run, const struct drill *drill)
{
	static const struct drill_sample samples[] = {
	    {MS(0), {0, 0, 0}},
	    {MS(100), {40 * MILLIONS, 20 * MILLIONS, 0}},
	    {MS(300), {120 * MILLIONS, 20 * MILLIONS, 10 * MILLIONS}},
	    {MS(500), {160 * MILLIONS, 60 * MILLIONS, 10 * MILLIONS}},
	};
	char err[100];

	*run = (struct drill_run){.drill = drill, .zero_ns = ZERO_NS, .ended_ns = MS(500)};
	assert_true(drill_script_parse(&run->script, drill->script, err, sizeof(err)));
	run->script.steps[0].done_ns = MS(102);
	run->script.steps[1].done_ns = MS(301);
	run->events = json_array();
	if (!drill->samples_rails)
		return;
	run->nsamples = sizeof(samples) / sizeof(*samples);
	run->samples = malloc(sizeof(samples));
	assert_non_null(run->samples);
	memcpy(run->samples, samples, sizeof(samples));
}

static void what_each_rail_carried_is_kept_with_what_was_broken_when(void **state)
{
	static const struct drill drill = {
	    .rails = 3, .script = "100 cut 1\n300 cut 1 --heal", .samples_rails = true};
	struct drill_run run;
	const char *faults;

	(void)state;
	begin(&run, &drill);
	assert_true(drill_record(&run, dir));
	assert_string_equal(content("rails.dat"), "0.000 0.4000 0.2000 0.0000\n"
						  "0.100 0.4000 0.0000 0.0500\n"
						  "0.300 0.2000 0.2000 0.0000\n");
	faults = content("faults.gp");
	assert_non_null(strstr(faults, "from 0.102, graph 0 to 0.301"));
	assert_non_null(strstr(faults, "set label 'cut 1' at 0.102"));
	drill_run_free(&run);
}

/* A run that was over at once. */
static void of_less_than_two_samples_nothing_is_said(void **state)
{
	static const struct drill drill = {.script = "100 cut 1\n300 cut 1 --heal",
					   .samples_rails = true};
	struct drill_run run;

	(void)state;
	for (int n = 0; n < 2; n++) {
		begin(&run, &drill);
		run.nsamples = n;
		assert_true(drill_record(&run, dir));
		assert_string_equal(content("rails.dat"), "");
		drill_run_free(&run);
	}
}

static void a_drill_that_samples_no_rails_has_no_such_file(void **state)
{
	static const struct drill drill = {.script = "100 cut 1\n300 cut 1 --heal"};
	struct drill_run run;

	(void)state;
	begin(&run, &drill);
	assert_true(drill_record(&run, dir));
	assert_null(content("rails.dat"));
	assert_non_null(content("throughput.dat"));
	drill_run_free(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	    T(what_each_rail_carried_is_kept_with_what_was_broken_when),
	    T(of_less_than_two_samples_nothing_is_said),
	    T(a_drill_that_samples_no_rails_has_no_such_file),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
