/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing this process's statistics into shared memory (layout: nccl_ha/stats.h).
 *
 * The hot path counts in its own memory; every now and then, and when something changed, somebody
 * copies the counts here, a record at a time. A write never waits: if another thread is writing the
 * same record, its values stand.
 *
 * One file per process, shared by all plugin instances in it. Statistics must never be why a job
 * fails: when there is no room in /dev/shm, one WARN says so and everything here does nothing.
 * Every function takes NULL and slot -1 in good part. Any thread.
 */
#ifndef HA_BASE_STATS_H
#define HA_BASE_STATS_H

#include "base/config.h"
#include "nccl_ha/stats.h"

struct ha_stats;

/* NULL when HA_NCCL_STATS=0 or there is no room. Pair with _close; the last one removes the file,
 * as does a normal exit of the process. First removes the files of dead processes. */
struct ha_stats *ha_stats_open(const struct ha_config *config);
void ha_stats_close(struct ha_stats *stats);

/* A record, or -1 when all are taken (which the job record counts). Pair with _remove. */
int ha_stats_port_add(struct ha_stats *stats);
void ha_stats_port_write(struct ha_stats *stats, int slot, const struct nccl_ha_port_stats *port);
void ha_stats_port_remove(struct ha_stats *stats, int slot);

int ha_stats_conn_add(struct ha_stats *stats);
void ha_stats_conn_write(struct ha_stats *stats, int slot, const struct nccl_ha_conn_stats *conn);
/* What was written last counts on in the job's record, as `closed`. */
void ha_stats_conn_remove(struct ha_stats *stats, int slot);

/* Counts a connection that ended with an error. */
void ha_stats_conn_failed(struct ha_stats *stats);

/* Counts something that was refused. */
enum ha_refused {
#define HA_REFUSED_ENUM(name, help) HA_##name,
	NCCL_HA_JOB_REFUSED_COUNTERS(HA_REFUSED_ENUM)
#undef HA_REFUSED_ENUM
	    HA_REFUSED_KINDS
};
void ha_stats_refused(struct ha_stats *stats, enum ha_refused what);

/* Adds to what the process's groups have counted; of what is "now" also less than nothing. */
void ha_stats_inc_add(struct ha_stats *stats, const struct nccl_ha_inc_stats *more);

/* Says where the event log is; the absolute path. */
void ha_stats_event_log(struct ha_stats *stats, const char *path);

/* Path of the file, for log lines and tests. NULL stats: "". */
const char *ha_stats_path(const struct ha_stats *stats);

#endif
