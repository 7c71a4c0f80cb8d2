/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank sees of the plugin besides its messages: the warnings it logs, and the counters it
 * publishes where it is nccl-ha. For the JSON report.
 */
#ifndef NP_OBSERVE_H
#define NP_OBSERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "nccl_ha/stats.h"

#define NP_WARNINGS_KEPT 128
#define NP_WARNING_TEXT	 360

struct np_warning {
	uint64_t at_ns; /* since the start of the run */
	char text[NP_WARNING_TEXT];
};

#define NP_COUNT_ONE(name, help) +1
enum {
	NP_JOB_COUNTERS = 0 NCCL_HA_JOB_COUNTERS(NP_COUNT_ONE),
	NP_PORT_COUNTERS = 0 NCCL_HA_PORT_COUNTERS(NP_COUNT_ONE),
	NP_CONN_COUNTERS = 0 NCCL_HA_CONN_COUNTERS(NP_COUNT_ONE),
};

/* One rank's. Exchanged as bytes between ranks of the same program. */
struct np_observed {
	uint64_t origin_ns;	 /* CLOCK_MONOTONIC at the start of the run */
	uint64_t origin_unix_ns; /* CLOCK_REALTIME at the same moment */
	uint64_t warnings_seen;	 /* the first NP_WARNINGS_KEPT are kept */
	struct np_warning warnings[NP_WARNINGS_KEPT];
	uint64_t counted; /* 1: the plugin publishes counters */
	/* In the order of the header; ports and connections are summed. */
	uint64_t job[NP_JOB_COUNTERS];
	uint64_t ports[NP_PORT_COUNTERS];
	uint64_t conns[NP_CONN_COUNTERS];
};

/* Begins to take note of warnings. Once, before the plugin is loaded. */
void np_observe_start(uint64_t origin_ns);
/* The start of the run has moved, as ranks waited for each other. */
void np_observe_origin(uint64_t origin_ns);
/* Reads the counters; while the connections still exist. */
void np_observe_counters(void);
/* Copies what was seen; warnings go on. */
void np_observe_take(struct np_observed *to);

/* Adds "clock", "warnings" and, where there are any, "counters" to a report. False: no memory. */
bool np_observe_add_json(json_t *root, const struct np_observed *by_rank, int nranks);

#endif
