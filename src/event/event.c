/* SPDX-License-Identifier: Apache-2.0 */
/* Events: their names and their log lines. */
#include "event/event.h"

#include "base/clock.h"

#include <string.h>

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

/*
 * A piece of a line; with what does not fit left out. Without printf: hundreds of connections that
 * move at once wait for each other's lines, and 20 formats are 10,000 instructions. Nor does the
 * decimal point depend on the application's locale.
 */
struct line {
	char *buf;
	size_t size, length;
};

static void add(struct line *line, const char *text)
{
	size_t room = line->size - 1 - line->length, length = strlen(text);

	if (length > room)
		length = room;
	memcpy(line->buf + line->length, text, length);
	line->length += length;
	line->buf[line->length] = '\0';
}

static void add_number(struct line *line, uint64_t number)
{
	char digits[sizeof("18446744073709551615")], *first = digits + sizeof(digits) - 1;

	*first = '\0';
	do
		*--first = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	add(line, first);
}

/* With one decimal. */
static void add_tenths(struct line *line, uint64_t tenths)
{
	add_number(line, tenths / 10);
	add(line, ".");
	add_number(line, tenths % 10);
}

static void add_path(struct line *line, const struct ha_event_path *path)
{
	if (!path->nic) {
		add(line, "no path");
		return;
	}
	add(line, path->nic);
	add(line, ":");
	add_number(line, (unsigned)path->port_num);
	if (path->index < 0)
		return;
	add(line, " (path ");
	add_number(line, (unsigned)path->index);
	add(line, ".");
	add_number(line, path->generation);
	add(line, ")");
}

static void add_ms(struct line *line, uint64_t ns)
{
	add_tenths(line, ns / (HA_NS_PER_MS / 10));
	add(line, " ms");
}

static void add_bytes(struct line *line, uint64_t bytes)
{
	static const struct {
		uint64_t unit;
		const char *name;
	} units[] = {{1000000000, " GB"}, {1000000, " MB"}, {1000, " kB"}};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (bytes < units[i].unit)
			continue;
		add_tenths(line, bytes / (units[i].unit / 10));
		add(line, units[i].name);
		return;
	}
	add_number(line, bytes);
	add(line, " B");
}

/* So many of what this is the name of one of. */
static void add_count(struct line *line, uint64_t number, const char *name)
{
	add_number(line, number);
	add(line, name);
	if (number != 1)
		add(line, "s");
}

static void add_detail(struct line *line, const struct ha_event *event)
{
	if (event->detail)
		add(line, event->detail);
}

static void add_reason(struct line *line, const struct ha_event *event)
{
	add(line, ": ");
	add(line, ha_reason_text(event->reason));
	if (!event->detail)
		return;
	add(line, " (");
	add(line, event->detail);
	add(line, ")");
}

static void add_time(struct line *line, const char *what, uint64_t ns)
{
	if (ns == HA_EVENT_NO_TIME)
		return;
	add(line, what);
	add_ms(line, ns);
	add(line, ", ");
}

static void add_switch(struct line *line, const struct ha_event *event)
{
	add(line, "failover from ");
	add_path(line, &event->from);
	add(line, " to ");
	add_path(line, &event->to);
	add(line, ", epoch ");
	add_number(line, event->epoch);
	add_reason(line, event);
	add(line, "; ");
	add_time(line, "detected after ", event->detection_ns);
	add_time(line, "blackout ", event->blackout_ns);
	add_count(line, event->completed_without_resend, " message");
	add(line, " complete without resend, ");
	add_count(line, event->replayed_messages, " message");
	add(line, " (");
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
	add(line, "; ");
	add_count(line, event->completed_without_resend, " part");
	add(line, " of messages had come over it, ");
	add_count(line, event->replayed_messages, " part");
	add(line, " (");
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
		add(&line, "there is an agent for rails: ");
		add_detail(&line, event);
		break;
	case HA_EVENT_AGENT_LOST:
		add(&line, "the agent for rails is gone: ");
		add_detail(&line, event);
		break;
	case HA_EVENT_LEAK:
		add_path(&line, &event->from);
		add(&line, ": the device refuses to take back: ");
		add_detail(&line, event);
		break;
	default:
		add(&line, ha_event_kind_text(event->kind));
		add_reason(&line, event);
		break;
	}
	return buf;
}
