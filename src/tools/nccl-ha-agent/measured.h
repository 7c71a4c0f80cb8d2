/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shares from what the plugins of this host publish of its ports: bytes, round trips of heartbeats,
 * health. Figures are of ports, over all processes; what a single flow has on each of its rails is
 * not in the statistics.
 */
#ifndef NA_MEASURED_H
#define NA_MEASURED_H

#include "base/agent_frame.h"

#include <stdbool.h>
#include <stdint.h>

#define NA_TICK_MS   100 /* between two steps of a share */
#define NA_SAMPLE_MS 500 /* between two looks at the statistics */
#define NA_PORTS_MAX 64

/* A port, known by the IPv4 address in its GID. */
struct na_port {
	uint32_t ip;
	bool healthy; /* at the last look */
	bool seen;    /* likewise: some process uses it */
	uint32_t speed_mbps;
	double rate;   /* bytes a second, over the last one or so */
	double rtt_ns; /* 0: unknown */
	double rtt_least_ns;
	uint64_t held_until_ns, hold_ms, lost_ns; /* after a loss it is left alone for a while */
	/* Sums of the last look, and of the one that is being taken. */
	uint64_t bytes, rtt_sum_ns, rtt_count;
	uint64_t new_bytes, new_rtt_sum_ns, new_rtt_count;
	bool new_seen, new_healthy;
};

struct na_measured {
	struct na_port port[NA_PORTS_MAX];
	unsigned n;
	uint64_t sampled_ns;
};

/* Reads the statistics of all processes that may be read. */
void na_measured_sample(struct na_measured *m, uint64_t now_ns);

/* The share that a flow has next, when it has `share` now. */
uint32_t na_measured_share(const struct na_measured *m, const struct ha_agent_flow *flow,
			   uint32_t share, uint64_t now_ns);

/* ---- the arithmetic, for tests --------------------------------------------------------------- */

/* One port's figures at a look: sums over all processes since they began. */
struct na_figures {
	uint32_t ip, speed_mbps;
	bool healthy;
	uint64_t bytes, rtt_sum_ns, rtt_count;
};

void na_measured_begin(struct na_measured *m);
void na_measured_add(struct na_measured *m, const struct na_figures *figures);
void na_measured_end(struct na_measured *m, uint64_t now_ns);

#endif
