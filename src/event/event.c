/* SPDX-License-Identifier: Apache-2.0 */
/* Events: their names and their log lines. */
#include "event/event.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const kinds[HA_EVENT_COUNT] = {
#define HA_EVENT_TEXT(name, text) [HA_EVENT_##name] = (text),
    HA_EVENTS(HA_EVENT_TEXT)
#undef HA_EVENT_TEXT
};

const char *ha_event_kind_text(enum ha_event_kind kind)
{
	return (unsigned)kind < HA_EVENT_COUNT ? kinds[kind] : "unknown";
}

/* ---- the line ------------------------------------------------------------------------------- */

/* A piece of a line; with what does not fit left out. Numbers are written without %f, whose decimal
 * point depends on the application's locale. */
struct line {
	char *buf;
	size_t size, length;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *fmt, ...)
{
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line->buf + line->length, line->size - line->length, fmt, args);
	va_end(args);
	if (n > 0)
		line->length += (size_t)n;
	if (line->length >= line->size)
		line->length = line->size - 1;
}

static void add_path(struct line *line, const struct ha_event_path *path)
{
	if (!path->nic)
		add(line, "no path");
	else if (path->index < 0)
		add(line, "%s:%d", path->nic, path->port_num);
	else
		add(line, "%s:%d (path %d.%" PRIu32 ")", path->nic, path->port_num, path->index,
		    path->generation);
}

static void add_ms(struct line *line, uint64_t ns)
{
	const uint64_t us = ns / HA_NS_PER_US;

	add(line, "%" PRIu64 ".%" PRIu64 " ms", us / 1000, us % 1000 / 100);
}

static void add_bytes(struct line *line, uint64_t bytes)
{
	static const struct {
		uint64_t unit;
		const char *name;
	} units[] = {{1000000000, "GB"}, {1000000, "MB"}, {1000, "kB"}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (bytes < units[i].unit)
			continue;
		add(line, "%" PRIu64 ".%" PRIu64 " %s", bytes / units[i].unit,
		    bytes % units[i].unit / (units[i].unit / 10), units[i].name);
		return;
	}
	add(line, "%" PRIu64 " B", bytes);
}

static void add_reason(struct line *line, const struct ha_event *event)
{
	add(line, ": %s", ha_reason_text(event->reason));
	if (event->detail)
		add(line, " (%s)", event->detail);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static void add_switch(struct line *line, const struct ha_event *event)
{
	add(line, "failover from ");
	add_path(line, &event->from);
	add(line, " to ");
	add_path(line, &event->to);
	add(line, ", epoch %" PRIu32, event->epoch);
	add_reason(line, event);
	add(line, "; ");
	if (event->detection_ns != HA_EVENT_NO_TIME) {
		add(line, "detected after ");
		add_ms(line, event->detection_ns);
		add(line, ", ");
	}
	if (event->blackout_ns != HA_EVENT_NO_TIME) {
		add(line, "blackout ");
		add_ms(line, event->blackout_ns);
		add(line, ", ");
	}
	add(line, "%" PRIu64 " message%s complete without resend, %" PRIu64 " message%s (",
	    event->completed_without_resend, plural(event->completed_without_resend),
	    event->replayed_messages, plural(event->replayed_messages));
	add_bytes(line, event->replayed_bytes);
	add(line, ") replayed");
}

static void add_mended(struct line *line, const struct ha_event *event)
{
	add_path(line, &event->from);
	add(line, " is mended");
	add_reason(line, event);
	if (event->completed_without_resend + event->replayed_messages == 0)
		return; /* a receiver's, too */
	add(line, "; %" PRIu64 " part%s of messages had come over it, %" PRIu64 " part%s (",
	    event->completed_without_resend, plural(event->completed_without_resend),
	    event->replayed_messages, plural(event->replayed_messages));
	add_bytes(line, event->replayed_bytes);
	add(line, ") sent again over another rail");
}

const char *ha_event_text(const struct ha_event *event, char *buf, size_t size)
{
	struct line line = {.buf = buf, .size = size};

	buf[0] = '\0';
	switch (event->kind) {
	case HA_EVENT_SWITCH:
		add_switch(&line, event);
		break;
	case HA_EVENT_FAILURE:
		add_path(&line, &event->from);
		add(&line, " failed");
		add_reason(&line, event);
		break;
	case HA_EVENT_OUTAGE:
		add(&line, "no path is left");
		add_reason(&line, event);
		break;
	case HA_EVENT_RECOVERY:
		add_path(&line, &event->to);
		add(&line, " is healthy");
		break;
	case HA_EVENT_REBUILD:
		add_path(&line, &event->to);
		add(&line, " built");
		break;
	case HA_EVENT_SHED:
		add_path(&line, &event->from);
		add(&line, " is shed, the other rails carry on");
		add_reason(&line, event);
		break;
	case HA_EVENT_MENDED:
		add_mended(&line, event);
		break;
	case HA_EVENT_AGENT_FOUND:
		add(&line, "there is an agent for rails: %s", event->detail);
		break;
	case HA_EVENT_AGENT_LOST:
		add(&line, "the agent for rails is gone: %s", event->detail);
		break;
	case HA_EVENT_LEAK:
		add_path(&line, &event->from);
		add(&line, ": the device refuses to take back: %s", event->detail);
		break;
	default:
		add(&line, "%s", ha_event_kind_text(event->kind));
		add_reason(&line, event);
		break;
	}
	return buf;
}
