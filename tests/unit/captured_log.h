/* SPDX-License-Identifier: Apache-2.0 */
/* A log sink for tests: keeps the lines, so that a test can say what an operator would read. */
#ifndef HA_TESTS_CAPTURED_LOG_H
#define HA_TESTS_CAPTURED_LOG_H

#include "base/log.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static char captured_log[256 * 1024];
static size_t captured_length;
static int captured_warnings;

static inline void capture_sink(enum ha_log_level level, unsigned long subsys, const char *file,
				int line, const char *text)
{
	(void)subsys, (void)file, (void)line;
	captured_warnings += level == HA_LOG_WARN;
	if (captured_length + strlen(text) + 2 > sizeof captured_log)
		return;
	captured_length += (size_t)snprintf(captured_log + captured_length,
					    sizeof captured_log - captured_length, "%s\n", text);
}

static inline void capture_log(void)
{
	captured_length = 0;
	captured_log[0] = '\0';
	captured_warnings = 0;
	ha_log_set_sink(capture_sink);
}

static inline bool logged(const char *text)
{
	return strstr(captured_log, text) != NULL;
}

#endif
