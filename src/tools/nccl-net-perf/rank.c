/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank does: set up, measure (measure.c), report, take down. */
#include "tools/nccl-net-perf/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/common/logger.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/canary.h"
#include "tools/nccl-net-perf/churn.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/json.h"
#include "tools/nccl-net-perf/links.h"
#include "tools/nccl-net-perf/measure.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/observe.h"
#include "tools/nccl-net-perf/resources.h"

/* ---- agreeing ------------------------------------------------------------------------------- */

bool np_gather(struct np_rank *rk, const void *mine, void *all, size_t len)
{
	char err[200];

	return np_bootstrap_gather(rk->bootstrap, mine, all, len, err, sizeof(err)) ||
	       np_error_set(&rk->error, NP_EXIT_ERROR, "%s", err);
}

bool np_barrier(struct np_rank *rk)
{
	int all[NP_MAX_RANKS], unused = 0;

	return np_gather(rk, &unused, all, sizeof(unused));
}

/* The groups of grouped receives must be the same everywhere: the smallest wins. */
static bool agree_on_groups(struct np_rank *rk, struct np_side *side)
{
	int all[NP_MAX_RANKS];

	if (!np_gather(rk, &side->max_recvs, all, sizeof(all[0])))
		return false;
	for (int r = 0; r < rk->nranks; r++)
		if (all[r] < side->max_recvs)
			side->max_recvs = all[r];
	return true;
}

/* ---- set-up and take-down ------------------------------------------------------------------- */

static bool allocate_buffers(struct np_rank *rk)
{
	size_t most[NP_BUF_COUNT] = {0}, len[NP_BUF_COUNT];

	for (int side = 0; side < rk->nsides; side++)
		for (int op = 0; op < rk->o->nops; op++)
			for (int i = 0; i < rk->o->nsizes; i++) {
				np_plan_buffer_sizes(rk, &rk->sides[side], rk->o->ops[op],
						     rk->o->sizes[i], len);
				for (int kind = 0; kind < NP_BUF_COUNT; kind++)
					if (len[kind] > most[kind])
						most[kind] = len[kind];
			}
	for (int kind = 0; kind < NP_BUF_COUNT; kind++) {
		/* At least a page, so that messages of 0 bytes have an address and a handle. */
		if (most[kind] < 4096 && (kind != NP_BUF_SLOTS || most[kind]))
			most[kind] = 4096;
		if (!np_buffer_alloc(&rk->buffers[kind], most[kind]))
			return np_error_set(&rk->error, NP_EXIT_ERROR,
					    "cannot allocate %zu bytes: choose a smaller -e",
					    most[kind]);
	}
	if (rk->o->canary) {
		rk->canary = np_canary_new(rk);
		if (!rk->canary)
			return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	}
	return true;
}

static void linger_job(void *arg)
{
	struct np_rank *rk = arg;

	bool well = rk->error.status == NP_EXIT_OK;

	np_canary_linger(rk->canary, &rk->progress, well ? rk->o->linger_ms : 0);
}

/* Late writes may still come: with memory registered and connections open, wait for them. */
static void linger(struct np_rank *rk)
{
	if (!rk->canary)
		return;
	np_worker_post(&rk->progress, linger_job, rk, "watching for late writes");
	while (!np_worker_wait(&rk->progress, 1000))
		;
}

static bool churned_rows(struct np_run *run)
{
	struct np_churn churn;
	bool ok;

	if (!run->rk->o->churn)
		return np_measure_all(run);
	np_churn_start(&churn, run->rk, &run->rk->sides[0]);
	ok = np_measure_all(run);
	return np_churn_stop(&churn) && ok;
}

/* Says what went wrong as soon as it is known: taking down might hang. Once. */
static void complain(struct np_run *run)
{
	struct np_rank *rk = run->rk;

	if (rk->error.status == NP_EXIT_OK || run->complained)
		return;
	np_report_bar(&run->report, NULL, -1);
	fprintf(stderr, "nccl-net-perf: rank %d: %s\n", rk->rank, rk->error.text);
	run->complained = true;
}

static bool close_sides(struct np_rank *rk)
{
	bool ok = true;

	for (int s = 0; s < rk->nsides; s++)
		if (rk->sides[s].net)
			ok = np_side_close(rk, &rk->sides[s]) && ok;
	return ok;
}

/* Loads, connects, runs everything and disconnects. */
static bool run_cycle(struct np_run *run, bool first)
{
	struct np_rank *rk = run->rk;
	bool ok = true;

	for (int s = 0; s < rk->nsides && ok; s++)
		ok = np_side_open(rk, &rk->sides[s], rk->o->plugin[s]) &&
		     agree_on_groups(rk, &rk->sides[s]);
	if (ok && first)
		ok = allocate_buffers(rk);
	if (ok && first)
		np_report_header(&run->report);
	for (int s = 0; s < rk->nsides && ok; s++)
		ok = first && s == 0 ? np_setup_connect(rk, &rk->sides[s], &run->setup)
				     : np_side_connect(rk, &rk->sides[s]);
	ok = ok && churned_rows(run);
	np_observe_counters();
	complain(run);
	if (rk->error.status == NP_EXIT_TIMEOUT)
		return false; /* what hangs once would hang again in close */
	linger(rk);
	for (int s = 0; s < rk->nsides; s++)
		ok = np_side_disconnect(rk, &rk->sides[s]) && ok;
	return ok;
}

static bool gather_timelines(struct np_run *run)
{
	struct np_rank *rk = run->rk;
	struct np_recorder *rec = &rk->recorder;
	size_t n = (size_t)rk->nranks, longest = 0;
	int lens[NP_MAX_RANKS], mine_len = (int)rec->timeline_len;
	uint64_t *mine, *all;
	bool ok;

	if (!np_gather(rk, &mine_len, lens, sizeof(mine_len)))
		return false;
	for (size_t r = 0; r < n; r++)
		if ((size_t)lens[r] > longest)
			longest = (size_t)lens[r];
	mine = calloc(longest + 1, sizeof(*mine));
	all = calloc((longest + 1) * n, sizeof(*all));
	ok = mine && all;
	if (ok && rec->timeline_len)
		memcpy(mine, rec->timeline, rec->timeline_len * sizeof(*mine));
	ok = ok && np_gather(rk, mine, all, longest * sizeof(*mine));
	run->report.timelines = calloc(n, sizeof(*run->report.timelines));
	run->report.timeline_lens = calloc(n, sizeof(*run->report.timeline_lens));
	ok = ok && run->report.timelines && run->report.timeline_lens;
	for (size_t r = 0; ok && r < n; r++) {
		run->report.timeline_lens[r] = (size_t)lens[r];
		run->report.timelines[r] = calloc(longest + 1, sizeof(**run->report.timelines));
		ok = run->report.timelines[r] != NULL;
		if (ok)
			memcpy(run->report.timelines[r], all + r * longest,
			       (size_t)lens[r] * sizeof(*all));
	}
	free(mine);
	free(all);
	return ok || np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
}

static bool gather_observed(struct np_run *run)
{
	struct np_rank *rk = run->rk;
	struct np_observed *mine = malloc(sizeof(*mine));
	bool ok;

	run->report.observed = calloc((size_t)rk->nranks, sizeof(*run->report.observed));
	ok = mine && run->report.observed;
	if (!ok)
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	else
		np_observe_take(mine);
	ok = ok && np_gather(rk, mine, run->report.observed, sizeof(*mine));
	free(mine);
	return ok;
}

static bool gather_setups(struct np_run *run)
{
	struct np_rank *rk = run->rk;

	run->report.setups = calloc((size_t)rk->nranks, sizeof(*run->report.setups));
	if (!run->report.setups)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	return np_gather(rk, &run->setup, run->report.setups, sizeof(run->setup));
}

static bool gather_late(struct np_run *run)
{
	struct np_rank *rk = run->rk;

	run->report.late = calloc((size_t)rk->nranks, sizeof(*run->report.late));
	if (!run->report.late)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	return np_gather(rk, np_canary_seen(rk->canary), run->report.late,
			 sizeof(*run->report.late));
}

static bool finish_report(struct np_run *run)
{
	struct np_rank *rk = run->rk;

	if (rk->o->json && rk->o->timeline_ms > 0 && !gather_timelines(run))
		return false;
	if (rk->o->json && (!gather_observed(run) || !gather_setups(run)))
		return false;
	if (rk->canary && !gather_late(run))
		return false;
	np_report_footer(&run->report);
	return rk->rank != 0 || !rk->o->json || np_report_write_json(&run->report, &rk->error);
}

static bool run_all(struct np_run *run)
{
	struct np_rank *rk = run->rk;
	int cycles = rk->o->cycles;
	struct np_resources early = {0};

	for (int cycle = 0; cycle < cycles; cycle++) {
		run->report.quiet = cycle != 0 && cycle != cycles - 1;
		if (!run_cycle(run, cycle == 0))
			return false;
		/* The first tenth fills caches and pools; from there on nothing may grow. */
		if (cycle == cycles / 10)
			np_resources_read(&early);
		/* The last one stays loaded: the report asks it for its name. */
		if (cycle != cycles - 1 && !close_sides(rk))
			return false;
	}
	if (cycles > 1 && !np_resources_check(&early, cycles, rk))
		return false;
	return finish_report(run);
}

static bool start_threads(struct np_rank *rk)
{
	struct np_worker *workers[] = {&rk->service, &rk->progress};
	char who[32];

	snprintf(who, sizeof(who), "rank %d", rk->rank);
	np_logger_set_prefix(who);
	if (!np_worker_start(&rk->service, "service") ||
	    !np_worker_start(&rk->progress, "progress") ||
	    !np_watchdog_start(workers, 2, rk->o->timeout_s, who))
		return np_error_set(&rk->error, NP_EXIT_ERROR, "cannot start threads");
	return true;
}

enum np_exit np_rank_run(const struct np_options *o, struct np_bootstrap *bootstrap)
{
	struct np_rank *rk = calloc(1, sizeof(*rk));
	struct np_run run = {.rk = rk, .report = {.rk = rk}, .iteration = 1};
	enum np_exit status;

	if (!rk) {
		fprintf(stderr, "nccl-net-perf: rank %d: out of memory\n", o->rank);
		return NP_EXIT_ERROR;
	}
	rk->o = o;
	rk->rank = o->rank;
	rk->nranks = o->nranks;
	rk->bootstrap = bootstrap;
	rk->nsides = o->plugin[1] ? 2 : 1;
	for (int s = 0; s < rk->nsides; s++)
		rk->sides[s].via = o->via[s];
	rk->recorder.origin_ns = np_now_ns();
	rk->recorder.stall_threshold_ns = (uint64_t)(o->stall_ms * 1e6);
	rk->recorder.bucket_ns = (uint64_t)(o->timeline_ms * 1e6);
	np_observe_start(rk->recorder.origin_ns);
	if (start_threads(rk) && np_barrier(rk)) {
		rk->recorder.origin_ns = np_now_ns();
		np_observe_origin(rk->recorder.origin_ns);
		run_all(&run);
	}
	complain(&run);
	if (rk->error.status == NP_EXIT_TIMEOUT)
		_exit(NP_EXIT_TIMEOUT); /* what hangs once would hang again in close */
	close_sides(rk);
	complain(&run);
	status = rk->error.status;
	/* An error of the plugin may be what came of it. */
	if (rk->canary && np_canary_seen(rk->canary)->seen)
		status = NP_EXIT_LATE;
	if ((status == NP_EXIT_OK || status == NP_EXIT_LATE) && run.report.wrong)
		status = NP_EXIT_WRONG;
	np_watchdog_stop();
	np_worker_stop(&rk->progress);
	np_worker_stop(&rk->service);
	for (int kind = 0; kind < NP_BUF_COUNT; kind++)
		np_buffer_free(&rk->buffers[kind]);
	np_canary_free(rk->canary);
	np_recorder_free(&rk->recorder);
	np_report_free(&run.report);
	free(rk);
	return status;
}
