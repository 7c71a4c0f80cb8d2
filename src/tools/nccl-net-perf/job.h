/* SPDX-License-Identifier: Apache-2.0 */
/* A job of the service thread that is about one side. */
#ifndef NP_JOB_H
#define NP_JOB_H

#include <stdbool.h>

struct np_rank;
struct np_side;

struct np_job {
	struct np_rank *rk;
	struct np_side *side;
	const char *plugin; /* may be NULL */
	bool ok;	    /* false until fn says otherwise; then rk->error is set */
};

/*
 * Runs fn(struct np_job *) on the service thread, with the side's environment, and waits for it;
 * false when it has not gone well. Main thread. `what`: as of np_worker_post.
 */
bool np_run_job(struct np_rank *rk, struct np_side *side, const char *plugin, void (*fn)(void *job),
		const char *what);

#endif
