/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin may leak per connect and close, as the process sees it. */
#ifndef NP_RESOURCES_H
#define NP_RESOURCES_H

#include "tools/nccl-net-perf/rank.h"

struct np_resources {
	long fds;
	long threads;
	long rss_kib;
};

void np_resources_read(struct np_resources *r);

/* What connecting took, and what the process had before and after it. */
struct np_setup {
	double seconds;
	int connections; /* sending and receiving ends */
	struct np_resources before, after;
};

/* Connects with everybody, as np_side_connect does, and takes the time. */
bool np_setup_connect(struct np_rank *rk, struct np_side *side, struct np_setup *setup);

/*
 * Compares with now, prints one line, and fails when there are more descriptors, more threads than
 * the devices' pools may have, or the resident size grew by more than noise.
 */
bool np_resources_check(const struct np_resources *early, int cycles, struct np_rank *rk);

#endif
