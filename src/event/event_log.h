/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event log (HA_NCCL_EVENT_LOG): one JSON object a line for each ha_event, for programs.
 * docs/operations.md has the fields.
 *
 * A line is one write to a descriptor opened for appending, so processes may share a file. The log
 * must never be why a job fails or waits: what cannot be opened is told at WARN, and left at that;
 * from the first event that cannot be written until one can again, events are missing, which both
 * moments tell. A line that a full disk cuts off is ended before the next one.
 *
 * Before each event the name is looked at: when the file was renamed or removed, as by who rotates
 * logs, it is made anew.
 */
#ifndef HA_EVENT_EVENT_LOG_H
#define HA_EVENT_EVENT_LOG_H

#include "event/event.h"

struct ha_eventlog;

/*
 * Opens the file for appending and makes it if need be, mode 0640; a link is not followed. In its
 * name %p becomes the process id, %h the host's name, %j the job's number and %% a percent sign. It
 * gets no longer than size_max bytes (0: any length). NULL when the name is empty or the file
 * cannot be opened.
 */
struct ha_eventlog *ha_eventlog_open(const char *name, uint64_t size_max);
/* What the writer still has of it is written all the same. NULL is fine. */
void ha_eventlog_close(struct ha_eventlog *log);

/* Its absolute path; "" where there is no log, or no such path. */
const char *ha_eventlog_path(const struct ha_eventlog *log);

/* Any thread; left to the writer (base/async_log.h) if there is one. NULL does nothing. */
void ha_eventlog_write(struct ha_eventlog *log, const struct ha_event *event);

#endif
