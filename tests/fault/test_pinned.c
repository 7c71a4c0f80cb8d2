/* SPDX-License-Identifier: Apache-2.0 */
/* What pins say of runs that are still wrong, mended, moved, wrong in another way, or right. */
#include "pinned.h"

#include "../unit/cmocka_all.h"

#include <string.h>

#define LINE(VERDICT)                                                                              \
	"a-run | one | rc | 3-4 | socket-s@0-9 link-r@2 | " VERDICT " | fell ... broke"

/* What each run comes to: all alike, but for those of one place. */
static struct {
	unsigned runs;
	struct run_result result, odd_result;
	const char *log, *odd_log;
	uint64_t odd_at; /* of the first fault; UINT64_MAX: none */
} script;

static const char *play(void *arg, const struct run_spec *spec, struct run_result *result)
{
	bool odd = spec->faults[0].at == script.odd_at;

	(void)arg;
	script.runs++;
	*result = odd ? script.odd_result : script.result;
	return odd ? script.odd_log : script.log;
}

static struct run_result came_to(enum run_end end, const char *wrong)
{
	struct run_result result = {.end = end, .fired = 2};

	snprintf(result.wrong, sizeof(result.wrong), "%s", wrong);
	return result;
}

static void all_come_to(enum run_end end, const char *wrong, const char *log)
{
	memset(&script, 0, sizeof(script));
	script.result = came_to(end, wrong);
	script.log = log;
	script.odd_at = UINT64_MAX;
}

static void one_comes_to(uint64_t at, enum run_end end, const char *wrong, const char *log)
{
	script.odd_at = at;
	script.odd_result = came_to(end, wrong);
	script.odd_log = log;
}

/* Checks a file of these lines: so many pins fail, and this is said. */
static void expect(const char *lines, unsigned failed, const char *says)
{
	static const struct pin_player player = {.play = play};
	char *text = strdup(lines), *said = NULL;
	size_t size;
	FILE *in = fmemopen(text, strlen(text), "r"), *out = open_memstream(&said, &size);

	assert_non_null(in);
	assert_non_null(out);
	assert_int_equal(pinned_check(&player, "pins", in, out), failed);
	fclose(in);
	fclose(out);
	if (!strstr(said, says))
		fail_msg("\"%s\" is not in \"%s\"", says, said);
	free(said);
	free(text);
}

static void a_run_that_is_still_wrong_passes(void **state)
{
	(void)state;
	all_come_to(RUN_WRONG, "error 6 of late", "it fell and broke");
	expect(LINE("error 6"), 0, "still wrong in 20 of 20 runs");
	assert_int_equal(script.runs, 20);
	/* One in the neighbourhood will do. */
	all_come_to(RUN_DELIVERED, "", "quiet");
	one_comes_to(7, RUN_WRONG, "error 6 of late", "it fell and broke");
	expect(LINE("error 6"), 0, "still wrong in 2 of 20 runs");
	expect(LINE("error 6"), 0,
	       "explore --scenario one --seed 3 --fault socket-s --at 7 "
	       "--fault link-r --at 2");
}

static void a_mended_run_fails(void **state)
{
	(void)state;
	all_come_to(RUN_DELIVERED, "", "it fell and broke");
	expect(LINE("error 6"), 1, "pins:1: a-run: mended: 20 of 20 runs meet its cause");
	all_come_to(RUN_ERROR, "", "it fell and broke");
	expect(LINE("error 6"), 1, "mended");
}

static void a_run_that_moved_away_fails(void **state)
{
	(void)state;
	all_come_to(RUN_DELIVERED, "", "it broke and fell");
	expect(LINE("error 6"), 1, "moved: none of 20 runs meets its cause");
	expect(LINE("right"), 1, "moved");
	/* A fault that did not fire is no cause, whatever the log says. */
	all_come_to(RUN_DELIVERED, "", "it fell and broke");
	script.result.fired = 1;
	expect(LINE("right"), 1, "moved");
}

static void another_wrongness_fails(void **state)
{
	(void)state;
	/* Another verdict, or the same one for another cause, beside runs that are as pinned. */
	all_come_to(RUN_WRONG, "error 6 of late", "it fell and broke");
	one_comes_to(5, RUN_WRONG, "it hangs", "it fell and broke");
	expect(LINE("error 6"), 1, "2 of 20 runs are wrong, and not as pinned: it hangs");
	one_comes_to(5, RUN_WRONG, "error 6 of late", "quiet");
	expect(LINE("error 6"), 1, "not as pinned: error 6 of late");
}

static void a_run_that_was_mended_stays_right(void **state)
{
	(void)state;
	all_come_to(RUN_DELIVERED, "", "quiet");
	one_comes_to(9, RUN_DELIVERED, "", "it fell and broke");
	expect(LINE("right"), 0, "right in 2 of 20 runs, 2 of which meet its cause");
	one_comes_to(9, RUN_WRONG, "error 6 of late", "it fell and broke");
	expect(LINE("right"), 1, "2 of 20 runs are wrong");
	one_comes_to(9, RUN_ERROR, "", "it fell and broke");
	expect(LINE("right"), 1, "none delivers everything, or heals");
	/* A process ended, and what it had under way with it. */
	script.odd_result.healed = true;
	expect(LINE("right"), 0, "right in 2 of 20 runs, 2 of which meet its cause");
}

static void comments_and_empty_lines_are_no_pins(void **state)
{
	(void)state;
	all_come_to(RUN_DELIVERED, "", "it fell and broke");
	expect("# said\n\n  \t\n" LINE("right") "\n" LINE("error 6") "\n", 1,
	       "pins:5: a-run: mended");
	expect("# nothing\n", 1, "there is no pin in it");
}

static void what_is_no_pin_is_named(void **state)
{
	static const struct {
		const char *line, *says;
	} bad[] = {
	    {"a | one | rc | 0 | socket-s@0 | right", "6 fields, not 7"},
	    {"a | one | rc | 0 | socket-s@0 | right | x | y", "8 fields, not 7"},
	    {"a | one | rc | 0 | socket-s@0 | right | ", "field 7 is empty"},
	    {"a | nowhere | rc | 0 | socket-s@0 | right | x", "no scenario is called \"nowhere\""},
	    {"a | one | maybe | 0 | socket-s@0 | right | x", "the mode is \"maybe\""},
	    {"a | one | rc | some | socket-s@0 | right | x", "\"some\" is not a number"},
	    {"a | one | rc | 0 1 2 3 4 | socket-s@0 | right | x", "more than 4 seeds"},
	    {"a | one | rc | 0 | socket-s | right | x", "\"socket-s\" does not say where"},
	    {"a | one | rc | 0 | line-s@0 | right | x", "no fault is called \"line-s\""},
	    {"a | one | rc | 0 | socket-s@0- | right | x", "the range \"0-\" has no end"},
	    {"a | one | rc | 0 | socket-s@0-3x | right | x", "\"0-3x\" is not a number"},
	    {"a | one | rc | 0 | socket-s@-3 | right | x", "\"-3\" is not a number"},
	    {"a | one | rc | 0 | socket-s@3-2 | right | x", "ends before it begins"},
	    {"a | one | rc | 0 | socket-s@0-1999 link-r@0-1 | right | x", "more than 2000 runs"},
	    {"a | one | rc | 0-18446744073709551615 | socket-s@0 | right | x",
	     "alone is more than 2000 runs"},
	    {"a | one | rc | 0 | cut@0 cut@0 cut@0 cut@0 cut@0 | right | x", "more than 4 faults"},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		all_come_to(RUN_DELIVERED, "", "x");
		expect(bad[i].line, 1, bad[i].says);
		assert_int_equal(script.runs, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_run_that_is_still_wrong_passes),
	    cmocka_unit_test(a_mended_run_fails),
	    cmocka_unit_test(a_run_that_moved_away_fails),
	    cmocka_unit_test(another_wrongness_fails),
	    cmocka_unit_test(a_run_that_was_mended_stays_right),
	    cmocka_unit_test(comments_and_empty_lines_are_no_pins),
	    cmocka_unit_test(what_is_no_pin_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
