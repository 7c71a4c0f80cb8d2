/* SPDX-License-Identifier: Apache-2.0 */
/* The log: formats a line on the caller's stack and hands it to the sink or to stderr, or to the
 * writer. */
#include "base/log.h"

#include "base/async_log.h"
#include "base/clock.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX	 "NET/HA : "
#define LINE_MAX 1024 /* NCCL's own limit of a line */

atomic_int ha_log_debug_level;

static _Atomic(ha_log_sink_t) current_sink;
static atomic_uint sinks_so_far;

void ha_log_set_sink(ha_log_sink_t sink)
{
	atomic_store(&current_sink, sink);
	atomic_fetch_add(&sinks_so_far, 1);
}

void ha_log_set_debug(int level)
{
	atomic_store_explicit(&ha_log_debug_level, level, memory_order_relaxed);
}

static void write_to_stderr(enum ha_log_level level, const char *text)
{
	/* One call, so that lines of several threads and processes do not mix. */
	if (level == HA_LOG_WARN)
		fprintf(stderr, "WARN %s\n", text);
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

static void write_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		       const char *text)
{
	if (deferred && leave_to_writer(level, subsys, file, line, text))
		return;
	ha_async_log_flush();
	write_now(level, subsys, file, line, text);
}

/* PREFIX, what fmt says and `tail`, cut off where it is too long. */
static __attribute__((format(printf, 3, 0))) void format_line(char text[LINE_MAX], const char *tail,
							      const char *fmt, va_list args)
{
	const size_t begin = sizeof(PREFIX) - 1, room = LINE_MAX - begin - strlen(tail);
	int length;

	memcpy(text, PREFIX, sizeof(PREFIX));
	length = vsnprintf(text + begin, room, fmt, args);
	if (length >= (int)room)
		memcpy(text + begin + room - 4, "...", 4);
	strcat(text, tail);
}

void ha_log_write(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		  const char *fmt, ...)
{
	int saved_errno = errno; /* callers log before they look at errno */
	char text[LINE_MAX];
	va_list args;

	va_start(args, fmt);
	format_line(text, "", fmt, args);
	va_end(args);
	write_line(level, subsys, file, line, text);
	errno = saved_errno;
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void begin_with_sink(struct ha_log_limit *limit)
{
	unsigned now = atomic_load(&sinks_so_far);

	if (atomic_exchange(&limit->sink, now) == now)
		return;
	atomic_store(&limit->booked_ns, 0);
	atomic_store(&limit->left_out, 0);
}

/* Each line books one HA_LOG_REFILL_NS, and no more than HA_LOG_BURST of them ahead. */
static bool takes(struct ha_log_limit *limit, uint64_t now_ns)
{
	uint64_t booked_ns = atomic_load(&limit->booked_ns), from_ns;

	do {
		from_ns = booked_ns > now_ns ? booked_ns : now_ns;
		if (from_ns > now_ns + (HA_LOG_BURST - 1) * HA_LOG_REFILL_NS)
			return false;
	} while (!atomic_compare_exchange_weak(&limit->booked_ns, &booked_ns,
					       from_ns + HA_LOG_REFILL_NS));
	return true;
}

void ha_log_write_limited(struct ha_log_limit *limit, unsigned long subsys, const char *file,
			  int line, const char *fmt, ...)
{
	char text[LINE_MAX], tail[64] = "";
	int saved_errno = errno;
	unsigned left_out;
	va_list args;

	begin_with_sink(limit);
	if (!takes(limit, ha_now_ns())) {
		atomic_fetch_add(&limit->left_out, 1);
		return;
	}
	left_out = atomic_exchange(&limit->left_out, 0);
	if (left_out != 0)
		snprintf(tail, sizeof(tail), " (and %u more like it, left out here)", left_out);
	va_start(args, fmt);
	format_line(text, tail, fmt, args);
	va_end(args);
	write_line(HA_LOG_INFO, subsys, file, line, text);
	errno = saved_errno;
}
