/* SPDX-License-Identifier: Apache-2.0 */
/* What rank 0 shows: progress bar, table, JSON. */
#ifndef NP_REPORT_H
#define NP_REPORT_H

#include "tools/nccl-net-perf/canary.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/observe.h"

/* What one rank measured for one row. Exchanged as bytes between ranks of the same program. */
struct np_sample {
	uint64_t time_ns; /* of all timed iterations */
	uint64_t iterations;
	uint64_t checked; /* iterations whose data was checked */
	uint64_t wrong;	  /* elements, and bytes around buffers */
	uint64_t late;	  /* with --canary: bytes written where nothing was awaited */
	uint64_t stalls_seen;
	struct np_stall stalls[NP_STALLS_KEPT];
	uint64_t round_ns[NP_MAX_ROUNDS]; /* paired runs: each block */
	struct np_histogram latency;
};

/* How often faster, over the rounds. */
struct np_ratio {
	double median;
	double low, high; /* quartiles */
};

/* A line of the table. */
struct np_row {
	enum np_op op;
	enum np_type type;
	int side;
	size_t size;
	size_t count;
	double time_us; /* of one iteration, mean over the ranks */
	double algbw;	/* GB/s, 10^9 */
	double busbw;
	struct np_ratio speedup; /* paired runs, first plugin: over the second; else all 0 */
	uint64_t iterations;
	uint64_t checked;
	uint64_t wrong;
	uint64_t late;
	uint64_t stalls_seen;
	uint64_t longest_stall_ns;
	struct np_histogram latency; /* all ranks */
	struct np_sample *samples;   /* by rank */
};

struct np_setup;

struct np_report {
	const struct np_rank *rk;
	struct np_row **rows;
	size_t nrows;
	uint64_t wrong;
	uint64_t **timelines; /* by rank, in the end */
	size_t *timeline_lens;
	struct np_observed *observed; /* by rank, in the end */
	struct np_setup *setups;      /* by rank, in the end: of the first plugin and cycle */
	struct np_late_list *late;    /* by rank, in the end; NULL without --canary */
	bool quiet;		      /* count, but print and keep nothing */
	bool bar_drawn;
	uint64_t bar_ns;
};

/* All of it does nothing on ranks other than 0. */
void np_report_header(struct np_report *rp);
/* Takes over samples: nranks of them, of the same operation. False when memory is out. */
bool np_report_row(struct np_report *rp, const struct np_plan *plan, int side,
		   struct np_sample *samples, const struct np_ratio *speedup);
void np_report_footer(struct np_report *rp);
void np_report_free(struct np_report *rp);

/* On a terminal: how far the current row is; fraction < 0 takes the bar away. */
void np_report_bar(struct np_report *rp, const struct np_plan *plan, double fraction);

#endif
