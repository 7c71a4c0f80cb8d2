/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a connection: their log lines and counters. */
#include "ha/event.h"

#include "base/clock.h"
#include "base/log.h"
#include "ha/eventlog.h"
#include "transport/comm.h"
#include "transport/instance.h"

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

struct ha_event_path ha_event_path(const struct ha_path *path)
{
	if (!path)
		return (struct ha_event_path){.index = -1};
	return (struct ha_event_path){.nic = path->nic->name,
				      .port_num = path->port->port_num,
				      .index = path->index,
				      .generation = path->generation};
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
	default:
		add(&line, "%s", ha_event_kind_text(event->kind));
		add_reason(&line, event);
		break;
	}
	return buf;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void count_switch(struct ha_comm *comm, const struct ha_event *event)
{
	struct ha_failover_record *record = &comm->failovers;

	comm->count.failovers++;
	comm->count.failbacks += event->reason == HA_REASON_FAILBACK;
	comm->count.completed_without_resend += event->completed_without_resend;
	comm->count.replayed_messages += event->replayed_messages;
	comm->count.replayed_bytes += event->replayed_bytes;
	record->last_reason = (uint32_t)event->reason;
	record->last_ns = ha_wall_clock_ns();
	record->last_blackout_ns = 0;
	if (event->detection_ns != HA_EVENT_NO_TIME)
		ha_hist_add(&record->detection, event->detection_ns);
	if (event->blackout_ns != HA_EVENT_NO_TIME) {
		ha_hist_add(&record->blackout, event->blackout_ns);
		record->last_blackout_ns = event->blackout_ns;
	}
}

static void count(struct ha_comm *comm, const struct ha_event *event)
{
	switch (event->kind) {
	case HA_EVENT_SWITCH:
		count_switch(comm, event);
		break;
	case HA_EVENT_OUTAGE:
		comm->count.outages++;
		break;
	case HA_EVENT_REBUILD:
		comm->count.rebuilds++;
		break;
	default:
		break;
	}
	atomic_store_explicit(&comm->report.now, true, memory_order_relaxed);
}

void ha_event_report(struct ha_comm *comm, const struct ha_event *event)
{
	struct ha_event named = *event;
	char text[768];

	named.conn_id = ha_comm_number(comm);
	named.conn_name = comm->name;
	count(comm, event);
	if (event->kind == HA_EVENT_SWITCH || event->kind == HA_EVENT_OUTAGE)
		HA_WARN("connection %s: %s", comm->name, ha_event_text(event, text, sizeof(text)));
	else if (event->kind != HA_EVENT_LATCH)
		HA_INFO(HA_SUBSYS_NET, "connection %s: %s", comm->name,
			ha_event_text(event, text, sizeof(text)));
	ha_eventlog_write(comm->inst->events, &named);
}

void ha_event_report_port(struct ha_instance *inst, const struct ha_event *event)
{
	ha_eventlog_write(inst->events, event);
}
