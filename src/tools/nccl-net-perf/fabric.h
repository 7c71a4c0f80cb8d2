/* SPDX-License-Identifier: Apache-2.0 */
/* The simverbs fabric that ranks run on, through the simverbs tool. Launcher only. */
#ifndef NP_FABRIC_H
#define NP_FABRIC_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/nccl-net-perf/options.h"

struct np_fabric {
	char tool[4096]; /* the simverbs program */
	char name[64];	 /* empty: no fabric */
	int hosts;
	bool ours; /* brought up here, so taken down here */
};

/* Brings up --simverbs, or looks at --fabric. False with a reason in err. */
bool np_fabric_open(struct np_fabric *f, const struct np_options *o, char *err, size_t err_len);

/*
 * Prints how often each --fault rule fired and adds it to the --json file. False if one never
 * fired or the counts cannot be read; the reason is printed.
 */
bool np_fabric_report_faults(const struct np_fabric *f, const struct np_options *o);

/* Takes down a fabric of our own. Safe to call twice. */
void np_fabric_close(struct np_fabric *f);

#endif
