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

/*
 * Compares with now, prints one line, and fails when there are more descriptors or threads, or the
 * resident size grew by more than noise.
 */
bool np_resources_check(const struct np_resources *early, int cycles, int rank,
			struct np_error *error);

#endif
