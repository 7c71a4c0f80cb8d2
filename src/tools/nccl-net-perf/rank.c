/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank does: set up, then for every operation and size warm up, measure, check and report.
 *
 * Every rank makes the same decisions from the same options; where one has to decide for all (how
 * long to go on with --seconds) it is rank 0, through the bootstrap.
 */
#include "tools/nccl-net-perf/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/clock.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/report.h"
#include "tools/nccl-net-perf/resources.h"

/* The main thread's. */
struct run {
	struct np_rank *rk;
	struct np_report report;
	bool complained;
	uint32_t iteration; /* of the data pattern; never the same twice, equal on all ranks */
};

/* ---- agreeing ------------------------------------------------------------------------------- */

static bool gather(struct np_rank *rk, const void *mine, void *all, size_t len)
{
	char err[200];

	return np_bootstrap_gather(rk->bootstrap, mine, all, len, err, sizeof(err)) ||
	       np_error_set(&rk->error, NP_EXIT_ERROR, "%s", err);
}

static bool gather_ints(struct np_rank *rk, int mine, int *all)
{
	return gather(rk, &mine, all, sizeof(mine));
}

static bool barrier(struct np_rank *rk)
{
	int all[NP_MAX_RANKS];

	return gather_ints(rk, 0, all);
}

/* The groups of grouped receives must be the same everywhere: the smallest wins. */
static bool agree_on_groups(struct np_rank *rk, struct np_side *side)
{
	int all[NP_MAX_RANKS];

	if (!gather_ints(rk, side->max_recvs, all))
		return false;
	for (int r = 0; r < rk->nranks; r++)
		if (all[r] < side->max_recvs)
			side->max_recvs = all[r];
	return true;
}

/* ---- iterations -------------------------------------------------------------------------------
 */

/* A number of iterations, on the progress thread. */
struct batch {
	struct np_plan *plan;
	uint64_t iterations;
	bool check;
	uint32_t first_iteration; /* of the data pattern */
	_Atomic uint64_t finished;
	/* Written by the progress thread, read when it is idle. */
	uint64_t time_ns;
	uint64_t wrong;
	bool ok;
};

static uint64_t overrun(const struct np_rank *rk)
{
	uint64_t bytes = 0;

	for (int kind = 0; kind < NP_BUF_COUNT; kind++)
		bytes += np_buffer_overrun(&rk->buffers[kind]);
	return bytes;
}

static bool checked_iteration(struct batch *b, uint32_t iteration)
{
	struct np_plan *plan = b->plan;
	struct np_worker *w = &plan->rk->progress;
	uint64_t start;

	plan->iteration = iteration;
	plan->fill(plan);
	np_worker_progress(w);
	start = np_now_ns();
	if (!np_plan_run(plan))
		return false;
	b->time_ns += np_now_ns() - start;
	np_worker_progress(w);
	b->wrong += plan->check(plan) + overrun(plan->rk);
	np_worker_progress(w);
	return true;
}

static void batch_job(void *arg)
{
	struct batch *b = arg;
	uint64_t start = np_now_ns();

	b->ok = true;
	for (uint64_t i = 0; i < b->iterations && b->ok; i++) {
		b->ok = b->check ? checked_iteration(b, b->first_iteration + (uint32_t)i)
				 : np_plan_run(b->plan);
		atomic_store_explicit(&b->finished, i + 1, memory_order_relaxed);
	}
	if (!b->check)
		b->time_ns = np_now_ns() - start;
}

/* Runs `iterations` and adds what they gave to the sample, if there is one. */
static bool run_batch(struct run *run, struct np_plan *plan, uint64_t iterations, bool check,
		      struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	struct batch b = {.plan = plan, .iterations = iterations, .check = check};
	char what[120];

	b.first_iteration = run->iteration;
	run->iteration += check ? (uint32_t)iterations : 0;
	snprintf(what, sizeof(what), "%s of %zu B", np_op_names[plan->op], plan->size);
	np_worker_post(&rk->progress, batch_job, &b, what);
	while (!np_worker_wait(&rk->progress, 100))
		if (rk->o->seconds <= 0)
			np_report_bar(&run->report, plan,
				      (double)atomic_load(&b.finished) / (double)iterations);
	if (sample && (!check || !rk->o->iterations || rk->o->seconds > 0)) {
		sample->time_ns += b.time_ns;
		sample->iterations += iterations;
	}
	if (sample && check) {
		sample->checked += iterations;
		sample->wrong += b.wrong;
	}
	return b.ok;
}

/* With --seconds: batches of about a tenth of a second until rank 0 says that it is enough. */
static bool run_seconds(struct run *run, struct np_plan *plan, struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	uint64_t start = np_now_ns(), want_ns = (uint64_t)(rk->o->seconds * 1e9);
	uint64_t iterations = 1, used, before;
	int more[NP_MAX_RANKS];

	for (;;) {
		before = np_now_ns();
		if (!run_batch(run, plan, iterations, rk->o->checks > 0, sample))
			return false;
		used = np_now_ns() - before;
		np_report_bar(&run->report, plan, (double)(np_now_ns() - start) / (double)want_ns);
		if (used < 50 * NP_NS_PER_MS && iterations < 1 << 20)
			iterations *= 2;
		else if (used > 200 * NP_NS_PER_MS && iterations > 1)
			iterations /= 2;
		if (np_now_ns() - start >= want_ns)
			iterations = 0;
		if (!gather_ints(rk, (int)iterations, more))
			return false;
		if (!more[0])
			return true;
		iterations = (uint64_t)more[0];
	}
}

/* ---- one row -----------------------------------------------------------------------------------
 */

static void take_recorder(const struct np_recorder *r, struct np_sample *sample, bool latency)
{
	if (latency)
		sample->latency = r->latency;
	sample->stalls_seen = r->stalls_seen;
	memcpy(sample->stalls, r->stalls, sizeof(sample->stalls));
}

static bool measure(struct run *run, struct np_plan *plan, struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	const struct np_options *o = rk->o;

	plan->iteration = run->iteration++;
	plan->fill(plan);
	if (!run_batch(run, plan, (uint64_t)o->warmup, false, NULL) || !barrier(rk))
		return false;
	np_recorder_reset(&rk->recorder);
	if (o->seconds > 0) {
		if (!run_seconds(run, plan, sample))
			return false;
		take_recorder(&rk->recorder, sample, true);
		return true;
	}
	if (!run_batch(run, plan, (uint64_t)o->iterations, false, sample))
		return false;
	take_recorder(&rk->recorder, sample, o->iterations > 0);
	if (!run_batch(run, plan, (uint64_t)o->checks, true, sample))
		return false;
	take_recorder(&rk->recorder, sample, o->iterations == 0);
	return true;
}

static bool report_sample(struct run *run, struct np_plan *plan, int side,
			  const struct np_sample *mine, const double ratio[3])
{
	struct np_rank *rk = run->rk;
	struct np_sample *all = malloc((size_t)rk->nranks * sizeof(*all));

	if (!all)
		return np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	if (!gather(rk, mine, all, sizeof(*mine))) {
		free(all);
		return false;
	}
	return np_report_row(&run->report, plan, side, all, ratio) ||
	       np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
}

static bool run_row(struct run *run, int side, enum np_op op, size_t size)
{
	struct np_plan *plan = np_plan_new(run->rk, &run->rk->sides[side], op, size);
	struct np_sample *sample = calloc(1, sizeof(*sample));
	bool ok = false;

	if (plan && sample) {
		np_histogram_reset(&sample->latency);
		ok = measure(run, plan, sample) && report_sample(run, plan, side, sample, NULL);
	} else {
		np_error_set(&run->rk->error, NP_EXIT_ERROR, "out of memory");
	}
	np_plan_free(plan);
	free(sample);
	return ok;
}

static bool run_rows(struct run *run)
{
	const struct np_options *o = run->rk->o;

	for (int op = 0; op < o->nops; op++)
		for (int i = 0; i < o->nsizes; i++)
			for (int side = 0; side < run->rk->nsides; side++)
				if (!run_row(run, side, o->ops[op], o->sizes[i]))
					return false;
	return true;
}

/* ---- set-up and take-down
 * ------------------------------------------------------------------------ */

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
	return true;
}

static bool churned_rows(struct run *run)
{
	struct np_churn churn;
	bool ok;

	if (!run->rk->o->churn)
		return run_rows(run);
	np_churn_start(&churn, run->rk, &run->rk->sides[0]);
	ok = run_rows(run);
	return np_churn_stop(&churn) && ok;
}

/* Says what went wrong as soon as it is known: taking down might hang. Once. */
static void complain(struct run *run)
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
static bool run_cycle(struct run *run, bool first)
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
		ok = np_side_connect(rk, &rk->sides[s]);
	ok = ok && churned_rows(run);
	complain(run);
	if (rk->error.status == NP_EXIT_TIMEOUT)
		return false; /* what hangs once would hang again in close */
	for (int s = 0; s < rk->nsides; s++)
		ok = np_side_disconnect(rk, &rk->sides[s]) && ok;
	return ok;
}

static bool gather_timelines(struct run *run)
{
	struct np_rank *rk = run->rk;
	struct np_recorder *rec = &rk->recorder;
	size_t n = (size_t)rk->nranks, longest = 0;
	int lens[NP_MAX_RANKS];
	uint64_t *mine, *all;
	bool ok;

	if (!gather_ints(rk, (int)rec->timeline_len, lens))
		return false;
	for (size_t r = 0; r < n; r++)
		if ((size_t)lens[r] > longest)
			longest = (size_t)lens[r];
	mine = calloc(longest + 1, sizeof(*mine));
	all = calloc((longest + 1) * n, sizeof(*all));
	ok = mine && all;
	if (ok && rec->timeline_len)
		memcpy(mine, rec->timeline, rec->timeline_len * sizeof(*mine));
	ok = ok && gather(rk, mine, all, longest * sizeof(*mine));
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

static bool finish_report(struct run *run)
{
	struct np_rank *rk = run->rk;

	if (rk->o->json && rk->o->timeline_ms > 0 && !gather_timelines(run))
		return false;
	np_report_footer(&run->report);
	return rk->rank != 0 || !rk->o->json || np_report_write_json(&run->report, &rk->error);
}

static bool run_all(struct run *run)
{
	struct np_rank *rk = run->rk;
	int cycles = rk->o->cycles;
	struct np_resources early = {0};

	for (int cycle = 0; cycle < cycles; cycle++) {
		/* The first tenth fills caches and pools; from there on nothing may grow. */
		if (cycle == (cycles + 9) / 10)
			np_resources_read(&early);
		run->report.quiet = cycle != 0 && cycle != cycles - 1;
		if (!run_cycle(run, cycle == 0))
			return false;
		/* The last one stays loaded: the report asks it for its name. */
		if (cycle != cycles - 1 && !close_sides(rk))
			return false;
	}
	if (cycles > 1 && !np_resources_check(&early, cycles, rk->rank, &rk->error))
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
	struct run run = {.rk = rk, .report = {.rk = rk}, .iteration = 1};
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
	rk->recorder.origin_ns = np_now_ns();
	rk->recorder.stall_threshold_ns = (uint64_t)(o->stall_ms * 1e6);
	rk->recorder.bucket_ns = (uint64_t)(o->timeline_ms * 1e6);
	if (start_threads(rk) && barrier(rk)) {
		rk->recorder.origin_ns = np_now_ns();
		run_all(&run);
	}
	complain(&run);
	if (rk->error.status == NP_EXIT_TIMEOUT)
		_exit(NP_EXIT_TIMEOUT); /* what hangs once would hang again in close */
	close_sides(rk);
	complain(&run);
	status = rk->error.status;
	if (status == NP_EXIT_OK && run.report.wrong)
		status = NP_EXIT_WRONG;
	np_watchdog_stop();
	np_worker_stop(&rk->progress);
	np_worker_stop(&rk->service);
	for (int kind = 0; kind < NP_BUF_COUNT; kind++)
		np_buffer_free(&rk->buffers[kind]);
	np_recorder_free(&rk->recorder);
	np_report_free(&run.report);
	free(rk);
	return status;
}
