/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/comm_event.h"

#include "base/log.h"
#include "event/event_log.h"
#include "transport/comm.h"
#include "transport/shared.h"

struct ha_event_path ha_event_path(const struct ha_path *path)
{
	if (!path)
		return (struct ha_event_path){.index = -1};
	return (struct ha_event_path){.nic = path->nic->name,
				      .port_num = path->port->port_num,
				      .index = path->index,
				      .generation = path->generation};
}

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
	case HA_EVENT_FAILURE:
	case HA_EVENT_SWITCH:
		if (event->kind == HA_EVENT_SWITCH)
			count_switch(comm, event);
		ha_comm_stats_hold(comm);
		atomic_store(&comm->report.moved, true);
		return;
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

/* A peer's reason may be of a newer version, or anything: those have a limit together. */
static struct ha_log_limit *limit_of(const struct ha_event *event)
{
	static struct ha_log_limit limits[HA_EVENT_COUNT][HA_REASON_COUNT + 1];
	const unsigned reason = event->reason;

	return &limits[event->kind][reason < HA_REASON_COUNT ? reason : HA_REASON_COUNT];
}

static void write_line(const struct ha_comm *comm, const struct ha_event *event)
{
	char text[768];

	ha_event_text(event, text, sizeof(text));
	if (event->kind == HA_EVENT_SWITCH || event->kind == HA_EVENT_OUTAGE)
		HA_WARN("connection %s: %s", comm->name, text);
	else if (event->again)
		HA_INFO_LIMITED_BY(limit_of(event), HA_SUBSYS_NET, "connection %s: %s", comm->name,
				   text);
	else if (event->kind != HA_EVENT_LATCH)
		HA_INFO(HA_SUBSYS_NET, "connection %s: %s", comm->name, text);
}

void ha_event_report(struct ha_comm *comm, const struct ha_event *event)
{
	struct ha_event named = *event;

	named.conn_id = ha_comm_number(comm);
	named.conn_name = comm->name;
	count(comm, event);
	write_line(comm, event);
	ha_eventlog_write(comm->inst->events, &named);
}

void ha_event_report_port(struct ha_instance *inst, const struct ha_event *event)
{
	ha_eventlog_write(inst->events, event);
}
