/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread's view of a rank's run, and the rows of its table. */
#ifndef NP_MEASURE_H
#define NP_MEASURE_H

#include "tools/nccl-net-perf/report.h"
#include "tools/nccl-net-perf/resources.h"

/* The main thread's. */
struct np_run {
	struct np_rank *rk;
	struct np_report report;
	struct np_setup setup; /* of the first plugin and cycle */
	bool complained;
	uint32_t iteration; /* of the data pattern; never the same twice, equal on all ranks */
};

/* Runs and reports every operation and size; false with rk->error set. */
bool np_measure_all(struct np_run *run);

/* From here on SIGUSR1 ends --seconds, if it comes to rank 0. */
void np_measure_heed_signal(void);

#endif
