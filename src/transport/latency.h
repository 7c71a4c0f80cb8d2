/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a queue pair takes from a post to its completion, as percentiles, where
 * HA_NCCL_LATENCY_MS asks for that. A write of nothing is timed, behind all that was posted before
 * it: the data path reads no clock, and knows nothing of this. The progress thread looks for it
 * without sleeping, so an application that polls no more makes it no longer.
 */
#ifndef HA_TRANSPORT_LATENCY_H
#define HA_TRANSPORT_LATENCY_H

#include "base/hist.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_path;

/* Of a path, with a sample for each queue pair. [T] */
struct ha_latency {
	uint64_t due_ns; /* when to time the next ones */
	unsigned under_way;
	struct ha_latency_of_qp {
		uint64_t posted_ns; /* 0: none is under way */
		struct ha_hist ns;
	} qps[];
};

/* NULL: it is not asked for, or there is no memory, and nothing is timed. free() is its end. */
struct ha_latency *ha_latency_new(const struct ha_comm *comm, unsigned nqps);

/*
 * Posts what is due on the active path, while requests are outstanding. Returns when to look again,
 * on ha_now_ns's clock; 0: no need. Progress thread, under the token.
 */
uint64_t ha_latency_visit(struct ha_comm *comm, uint64_t now_ns);

/* Whether one is under way on the active path: it takes microseconds. [T] */
bool ha_latency_waits(const struct ha_comm *comm);

/* One has completed, at this position of the queue. [T] */
void ha_latency_done(struct ha_path *path, unsigned qp, uint32_t mark);

/* A line of the log for each queue pair that was timed; at the end of the path. */
void ha_latency_report(const struct ha_path *path);

#endif
