/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-net-perf/job.h"

#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/rank.h"

bool np_run_job(struct np_rank *rk, struct np_side *side, const char *plugin, void (*fn)(void *job),
		const char *what)
{
	struct np_job job = {.rk = rk, .side = side, .plugin = plugin};
	const struct np_settings *env = &rk->o->env[side - rk->sides];
	struct np_hidden hidden;

	if (!np_settings_apply(env, rk->rank, &hidden))
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	np_worker_post(&rk->service, fn, &job, what);
	while (!np_worker_wait(&rk->service, 1000))
		;
	np_settings_restore(env, &hidden);
	return job.ok;
}
