/* SPDX-License-Identifier: Apache-2.0 */
/* The log: formats a line on the caller's stack and hands it to the sink or to stderr, or to the
 * writer. */
#include "base/log.h"

#include "base/async_log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX	 "NET/HA : "
#define LINE_MAX 1024 /* NCCL's own limit of a line */

atomic_int ha_log_debug_level;

static _Atomic(ha_log_sink_t) current_sink;
static atomic_int stderr_level = HA_LOG_WARN;

void ha_log_set_sink(ha_log_sink_t sink)
{
	atomic_store(&current_sink, sink);
}

void ha_log_set_stderr_level(enum ha_log_level level)
{
	atomic_store(&stderr_level, (int)level);
}

void ha_log_set_debug(int level)
{
	atomic_store_explicit(&ha_log_debug_level, level, memory_order_relaxed);
}

static void write_to_stderr(enum ha_log_level level, const char *text)
{
	static const char *const names[] = {
	    [HA_LOG_WARN] = "WARN ",
	    [HA_LOG_INFO] = "INFO ",
	    [HA_LOG_TRACE] = "TRACE ",
	};

	/* One call, so that lines of several threads and processes do not mix. */
	if ((int)level <= atomic_load(&stderr_level))
		fprintf(stderr, "%s%s\n", names[level], text);
}

/* ---- lines that are left to the writer ------------------------------------------------------- */

struct line_note {
	struct ha_note note;
	enum ha_log_level level;
	unsigned long subsys;
	const char *file;
	int line;
	char text[];
};

static _Thread_local bool deferred;

bool ha_log_defer(bool on)
{
	bool before = deferred;

	deferred = on;
	return before;
}

static void write_now(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		      const char *text)
{
	ha_log_sink_t sink = atomic_load(&current_sink);

	if (sink)
		sink(level, subsys, file, line, text);
	else
		write_to_stderr(level, text);
}

static void write_note(struct ha_note *note)
{
	const struct line_note *l = ha_container_of(note, struct line_note, note);

	write_now(l->level, l->subsys, l->file, l->line, l->text);
}

/* False: there is no writer, or no memory. */
static bool leave_to_writer(enum ha_log_level level, unsigned long subsys, const char *file,
			    int line, const char *text)
{
	size_t length = strlen(text) + 1;
	struct line_note *l = malloc(sizeof(*l) + length);

	if (!l)
		return false;
	*l = (struct line_note){.note = {.size = sizeof(*l) + length, .write = write_note},
				.level = level,
				.subsys = subsys,
				.file = file,
				.line = line};
	memcpy(l->text, text, length);
	if (ha_async_log_take(&l->note))
		return true;
	free(l);
	return false;
}

/* ---- all lines ------------------------------------------------------------------------------- */

void ha_log_write(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		  const char *fmt, ...)
{
	int saved_errno = errno; /* callers log before they look at errno */
	char text[LINE_MAX] = PREFIX;
	va_list args;
	int length;

	va_start(args, fmt);
	length = vsnprintf(text + sizeof PREFIX - 1, sizeof text - (sizeof PREFIX - 1), fmt, args);
	va_end(args);
	if (length >= (int)(sizeof text - (sizeof PREFIX - 1)))
		memcpy(text + sizeof text - 4, "...", 4);
	if (!deferred || !leave_to_writer(level, subsys, file, line, text)) {
		ha_async_log_flush();
		write_now(level, subsys, file, line, text);
	}
	errno = saved_errno;
}
