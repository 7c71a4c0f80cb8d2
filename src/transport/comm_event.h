/* SPDX-License-Identifier: Apache-2.0 */
/* Telling what happened to a connection: log, event log, counters. */
#ifndef HA_TRANSPORT_COMM_EVENT_H
#define HA_TRANSPORT_COMM_EVENT_H

#include "event/event.h"

struct ha_comm;
struct ha_instance;
struct ha_path;

/* The path as it is now; NULL gives none. What it points to lives as long as the instance. */
struct ha_event_path ha_event_path(const struct ha_path *path);

/*
 * Tells all three about an event of this connection. A SWITCH and an OUTAGE are WARN lines, the
 * rest INFO; a LATCH was logged by ha_comm_fail and goes to the event log alone. Adds to
 * failovers, failbacks, outages, rebuilds, the replay counters and the histograms; what else
 * comm->count has is counted where it happens. [T] (see comm.h), but for a LATCH: any thread.
 */
void ha_event_report(struct ha_comm *comm, const struct ha_event *event);

/* An event of a port: to the event log alone. Any thread. */
void ha_event_report_port(struct ha_instance *inst, const struct ha_event *event);

#endif
