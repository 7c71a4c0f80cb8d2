/* SPDX-License-Identifier: Apache-2.0 */
/* What the runs of a campaign came to, by scenario and fault. */
#ifndef HA_TESTS_FAULT_TALLY_H
#define HA_TESTS_FAULT_TALLY_H

#include "run.h"

#include <stdio.h>

struct tally_cell {
	uint64_t runs;	  /* with their last fault fired */
	uint64_t unfired; /* not counted as runs */
	uint64_t fired;	  /* faults, all of a run */
	uint64_t delivered, errors, wrong;
	uint64_t failovers, replays;
	uint64_t healed, longest_ns; /* runs that did, and what the slowest took */
	/* Of connections: the model allows what they did; it has no rules for what they did. */
	uint64_t traces, unjudged;
	uint64_t trace_steps; /* that were judged */
};

struct tally; /* a table of cells */

struct tally *tally_new(void);
void tally_free(struct tally *tally);
void tally_add(struct tally *tally, const struct run_spec *spec, const struct run_result *result);
struct tally_cell tally_total(const struct tally *tally);
/* By scenario and by fault; every cell when `all`. */
void tally_print(const struct tally *tally, bool all, FILE *out);

#endif
