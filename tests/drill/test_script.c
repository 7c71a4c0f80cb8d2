/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts of drills: what a line means, and that random ones always leave a path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "drill.h"

static void a_line_is_a_time_and_a_command(void **state)
{
	struct drill_script s;
	char err[200];

	(void)state;
	assert_true(drill_script_parse(&s,
				       "20 cut 1 --host 0\n"
				       "10.5 link 1 0 down\n"
				       "30+5x3 device 0 1 kill\n"
				       "50 fault drop host=0 nth=5\n"
				       "60 process 1 stop\n"
				       "70 operator 1 refused failover --port sim0:1\n"
				       "80 idle 1 500",
				       err, sizeof(err)));
	assert_int_equal(s.nsteps, 9);
	assert_int_equal(s.steps[0].at_us, 10500); /* sorted */
	assert_int_equal(s.steps[0].action, DRILL_LINK_DOWN);
	assert_int_equal(s.steps[0].host, 1);
	assert_int_equal(s.steps[0].rail, 0);
	assert_int_equal(s.steps[1].action, DRILL_CUT);
	assert_int_equal(s.steps[1].rail, 1);
	for (int i = 2; i < 5; i++) {
		assert_int_equal(s.steps[i].action, DRILL_KILL_DEVICE);
		assert_int_equal(s.steps[i].at_us, 30000 + 5000 * (i - 2));
	}
	assert_int_equal(s.steps[5].action, DRILL_RULE);
	assert_int_equal(s.steps[5].nwords, 2);
	assert_string_equal(s.steps[5].words[1], "drop host=0 nth=5");
	assert_int_equal(s.steps[6].action, DRILL_STOP_PROCESS);
	assert_true(drill_step_breaks(&s.steps[6]));
	assert_false(drill_step_loses(&s.steps[6]));
	assert_int_equal(s.steps[7].action, DRILL_OPERATOR);
	assert_int_equal(s.steps[7].host, 1);
	assert_string_equal(s.steps[7].words[5], "sim0:1");
	assert_false(drill_step_breaks(&s.steps[7]));
	assert_int_equal(s.steps[8].action, DRILL_IDLE);
	assert_int_equal(s.steps[8].rail, 1);
	assert_string_equal(s.steps[8].words[2], "500");
	drill_script_free(&s);
}

static void nonsense_is_refused_and_named(void **state)
{
	static const char *const bad[] = {
	    "link 0 0 down", "10 link 0 0 sideways", "10 break it", "10 process 0 sing", "10",
	    "x cut 0"};
	struct drill_script s;
	char err[200];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_false(drill_script_parse(&s, bad[i], err, sizeof(err)));
		assert_non_null(strstr(err, bad[i]));
	}
}

static void every_drill_has_a_script_that_can_be_read(void **state)
{
	struct drill_script s;
	char err[200] = "";

	(void)state;
	for (int i = 0; i < ndrills; i++) {
		if (!drill_script_parse(&s, drills[i].script, err, sizeof(err)))
			fail_msg("%s: %s", drills[i].name, err);
		drill_script_free(&s);
	}
}

#define HOSTS 2
#define RAILS 3

/* Applies the steps one by one; after each, every host must have a port that works both ways. */
static void random_faults_always_leave_a_path(void **state)
{
	(void)state;
	for (unsigned seed = 0; seed < 200; seed++) {
		char *text = drill_soak_script(60, seed, HOSTS, RAILS), err[200];
		int broken[HOSTS][RAILS] = {{0}};
		struct drill_script s;

		assert_non_null(text);
		assert_true(drill_script_parse(&s, text, err, sizeof(err)));
		assert_in_range(s.nsteps, 60, 1000);
		for (int i = 0; i < s.nsteps; i++) {
			const struct drill_step *step = &s.steps[i];
			int only = -1;

			for (int w = 0; w + 1 < step->nwords; w++)
				if (!strcmp(step->words[w], "--host"))
					only = atoi(step->words[w + 1]);
			if (step->host >= 0)
				only = step->host;
			for (int h = 0; h < HOSTS; h++) {
				int sound = 0;

				if (only < 0 || only == h) {
					assert_int_equal(broken[h][step->rail],
							 !drill_step_breaks(step));
					broken[h][step->rail] = drill_step_breaks(step);
				}
				for (int r = 0; r < RAILS; r++)
					sound += !broken[h][r];
				assert_true(sound >= 1);
			}
		}
		for (int h = 0; h < HOSTS; h++)
			for (int r = 0; r < RAILS; r++)
				assert_false(broken[h][r]); /* in the end all is mended */
		drill_script_free(&s);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_line_is_a_time_and_a_command),
	    cmocka_unit_test(nonsense_is_refused_and_named),
	    cmocka_unit_test(every_drill_has_a_script_that_can_be_read),
	    cmocka_unit_test(random_faults_always_leave_a_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
