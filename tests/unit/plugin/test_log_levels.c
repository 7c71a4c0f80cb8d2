/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which level a line that is worth attention has, by the version of the NCCL that the logger
 * belongs to. The kill switch has such a line, on any machine.
 */
#include "../cmocka_all.h"

#include "some_nccl.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const ncclNet_v12_t *net;
static ncclDebugLogger_t (*logger_of)(int version);
static const char *(*what_was_said)(int *level, unsigned long *flags);

static void *symbol(void *library, const char *name)
{
	void *found = library ? dlsym(library, name) : NULL;

	if (!found)
		fail_msg("%s: %s", name, dlerror());
	return found;
}

static int load(void **state)
{
	void *nccl = dlopen(SOME_NCCL, RTLD_NOW | RTLD_LOCAL);

	(void)state;
	setenv("HA_NCCL_DISABLE", "1", 1);
	setenv("HA_NCCL_STATS", "0", 1);
	net = symbol(dlopen(HA_PLUGIN, RTLD_NOW | RTLD_LOCAL), "ncclNetPlugin_v12");
	*(void **)(void *)&logger_of = symbol(nccl, "some_nccl");
	*(void **)(void *)&what_was_said = symbol(nccl, "some_nccl_said");
	return 0;
}

static void assert_said(const char *text, int level, unsigned long flags)
{
	int level_said;
	unsigned long flags_said;

	assert_non_null(strstr(text, "switched off by HA_NCCL_DISABLE"));
	what_was_said(&level_said, &flags_said);
	assert_int_equal(level_said, level);
	assert_true(flags_said == flags);
}

static const char *line_of(ncclDebugLogger_t logger)
{
	static unsigned long flags;
	static int level;
	void *context = NULL;

	assert_int_not_equal(net->init(&context, 1, NULL, logger, NULL), ncclSuccess);
	return what_was_said(&level, &flags);
}

static void an_nccl_that_has_the_level_gets_it_whatever_subsystems_are_asked_for(void **state)
{
	(void)state;
	assert_said(line_of(logger_of(23200)), NCCL_LOG_ATTN, (unsigned long)NCCL_ALL);
	assert_said(line_of(logger_of(23301)), NCCL_LOG_ATTN, (unsigned long)NCCL_ALL);
}

static void an_older_one_would_never_show_it_and_gets_info(void **state)
{
	(void)state;
	assert_said(line_of(logger_of(23102)), NCCL_LOG_INFO, NCCL_INIT | NCCL_NET);
	assert_said(line_of(logger_of(22003)), NCCL_LOG_INFO, NCCL_INIT | NCCL_NET);
}

static void one_that_does_not_say_its_version_gets_info(void **state)
{
	(void)state;
	assert_said(line_of(logger_of(0)), NCCL_LOG_INFO, NCCL_INIT | NCCL_NET);
}

static int level_here;

static void logger_here(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
			const char *fmt, ...)
{
	(void)flags, (void)file, (void)line, (void)fmt;
	level_here = (int)level;
}

/* Another library of the process has one of that name: it is not the logger's. */
static void a_logger_of_somebody_else_gets_info(void **state)
{
	(void)state;
	logger_of(23200);
	line_of(logger_here);
	assert_int_equal(level_here, NCCL_LOG_INFO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_nccl_that_has_the_level_gets_it_whatever_subsystems_are_asked_for),
	    cmocka_unit_test(an_older_one_would_never_show_it_and_gets_info),
	    cmocka_unit_test(one_that_does_not_say_its_version_gets_info),
	    cmocka_unit_test(a_logger_of_somebody_else_gets_info),
	};

	return cmocka_run_group_tests(tests, load, NULL);
}
