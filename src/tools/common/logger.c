/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log callback that plugins get: NCCL's filter and line format, on stderr.
 *
 * NCCL filters in the callback and plugins rely on that, so this one does too; a plugin that
 * filters again by itself is none of our business. A line goes out in one write so that the lines
 * of several ranks do not mix.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tools/common/logger.h"
#include "tools/common/netplugin.h"

struct logger {
	pthread_once_t once;
	ncclDebugLogLevel level; /* written once by read_environment */
	unsigned long subsys;	 /* likewise */
	char prefix[32];	 /* written before plugins run */

	pthread_mutex_t sink_lock; /* protects sink and arg, and serialises calls of sink */
	void (*sink)(void *arg, ncclDebugLogLevel level, unsigned long flags, const char *text);
	void *arg;
};

static struct logger the = {
    .once = PTHREAD_ONCE_INIT,
    .sink_lock = PTHREAD_MUTEX_INITIALIZER,
};

static ncclDebugLogLevel parse_level(const char *text)
{
	static const struct {
		const char *name;
		ncclDebugLogLevel level;
	} levels[] = {
	    {"VERSION", NCCL_LOG_VERSION}, {"WARN", NCCL_LOG_WARN},   {"INFO", NCCL_LOG_INFO},
	    {"ABORT", NCCL_LOG_ABORT},	   {"TRACE", NCCL_LOG_TRACE},
	};

	if (!text)
		return NCCL_LOG_NONE;
	for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
		if (!strcasecmp(text, levels[i].name))
			return levels[i].level;
	return NCCL_LOG_NONE;
}

static unsigned long subsys_bit(const char *name)
{
	static const struct {
		const char *name;
		unsigned long bits;
	} subsystems[] = {
	    {"INIT", NCCL_INIT},
	    {"NET", NCCL_NET},
	    {"ENV", NCCL_ENV},
	    {"ALL", ~0ul},
	};

	for (size_t i = 0; i < sizeof(subsystems) / sizeof(subsystems[0]); i++)
		if (!strcasecmp(name, subsystems[i].name))
			return subsystems[i].bits;
	return 0; /* a subsystem of NCCL's core: plugins do not log under it */
}

static unsigned long parse_subsys(const char *text)
{
	char copy[256], *save = NULL;
	bool invert;
	unsigned long bits = 0;

	if (!text || !*text)
		return NCCL_INIT | NCCL_NET | NCCL_ENV;
	invert = *text == '^';
	snprintf(copy, sizeof(copy), "%s", text + invert);
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save))
		bits |= subsys_bit(name);
	return invert ? ~bits : bits;
}

static void read_environment(void)
{
	the.level = parse_level(getenv("NCCL_DEBUG"));
	the.subsys = parse_subsys(getenv("NCCL_DEBUG_SUBSYS"));
}

static bool wanted(ncclDebugLogLevel level, unsigned long flags)
{
	if (level > the.level || level == NCCL_LOG_NONE)
		return false;
	/* NCCL filters only the chatty levels by subsystem: a warning always gets out. */
	return level < NCCL_LOG_INFO || (flags & the.subsys) != 0;
}

static void print_line(ncclDebugLogLevel level, const char *file, int line, const char *text)
{
	char out[1400], host[64] = "?";
	int len;

	gethostname(host, sizeof(host) - 1);
	if (level == NCCL_LOG_WARN)
		len = snprintf(out, sizeof(out), "%s%s%s:%d:%d %s:%d NCCL WARN %s\n", the.prefix,
			       the.prefix[0] ? " " : "", host, (int)getpid(), (int)gettid(),
			       file ? file : "?", line, text);
	else
		len = snprintf(out, sizeof(out), "%s%s%s:%d:%d NCCL %s %s\n", the.prefix,
			       the.prefix[0] ? " " : "", host, (int)getpid(), (int)gettid(),
			       level == NCCL_LOG_TRACE ? "TRACE" : "INFO", text);
	if (len >= (int)sizeof(out)) {
		len = (int)sizeof(out) - 1;
		out[len - 1] = '\n';
	}
	/* Nobody to tell when stderr itself fails. */
	if (len > 0 && write(STDERR_FILENO, out, (size_t)len) < 0)
		return;
}

void np_logger(ncclDebugLogLevel level, unsigned long flags, const char *file, int line,
	       const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	pthread_once(&the.once, read_environment);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);

	pthread_mutex_lock(&the.sink_lock);
	if (the.sink)
		the.sink(the.arg, level, flags, text);
	pthread_mutex_unlock(&the.sink_lock);
	if (wanted(level, flags))
		print_line(level, file, line, text);
}

void np_logger_set_sink(void (*sink)(void *arg, ncclDebugLogLevel level, unsigned long flags,
				     const char *text),
			void *arg)
{
	pthread_mutex_lock(&the.sink_lock);
	the.sink = sink;
	the.arg = arg;
	pthread_mutex_unlock(&the.sink_lock);
}

void np_logger_set_prefix(const char *prefix)
{
	snprintf(the.prefix, sizeof(the.prefix), "%s", prefix ? prefix : "");
}
