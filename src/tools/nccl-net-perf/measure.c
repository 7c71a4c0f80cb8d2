/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For every operation and size: warm up, measure, check and report.
 *
 * Every rank makes the same decisions from the same options; where one has to decide for all (how
 * long to go on with --seconds) it is rank 0, through the bootstrap.
 */
#include "tools/nccl-net-perf/measure.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/canary.h"
#include "tools/nccl-net-perf/flow.h"
#include "tools/nccl-net-perf/memory.h"
#include "tools/nccl-net-perf/rank.h"

/* ---- iterations ----------------------------------------------------------------------------- */

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
	const struct np_canary *canary = plan->rk->canary;
	uint64_t start;

	plan->iteration = iteration;
	plan->checking = true;
	plan->consumed_wrong = 0;
	plan->fill(plan);
	np_worker_progress(w);
	start = np_now_ns();
	if (!np_plan_run(plan))
		return false;
	b->time_ns += np_now_ns() - start;
	np_worker_progress(w);
	b->wrong += canary && plan->consume ? plan->consumed_wrong : plan->check(plan);
	b->wrong += overrun(plan->rk);
	np_worker_progress(w);
	return true;
}

/* Nobody calls the plugin meanwhile. It is no time of an iteration. */
static uint64_t pause_after_iteration(struct np_worker *w, double ms)
{
	uint64_t from_ns = np_now_ns();
	struct timespec pause = {.tv_nsec = (long)(ms * 1e6) % 1000000000,
				 .tv_sec = (time_t)(ms / 1e3)};

	if (ms <= 0)
		return 0;
	nanosleep(&pause, NULL);
	np_worker_progress(w);
	return np_now_ns() - from_ns;
}

static void batch_job(void *arg)
{
	struct batch *b = arg;
	struct np_canary *canary = b->plan->rk->canary;
	struct np_rank *rk = b->plan->rk;
	uint64_t start = np_now_ns(), paused_ns = 0;

	b->ok = true;
	b->plan->checking = false;
	for (uint64_t i = 0; i < b->iterations && b->ok; i++) {
		b->ok = b->check ? checked_iteration(b, b->first_iteration + (uint32_t)i)
				 : np_plan_run(b->plan);
		if (canary)
			np_canary_return_all(canary);
		atomic_store_explicit(&b->finished, i + 1, memory_order_relaxed);
		paused_ns += pause_after_iteration(&rk->progress, rk->o->pause_ms);
	}
	if (!b->check)
		b->time_ns = np_now_ns() - start - paused_ns;
}

/* Runs `iterations` and adds what they gave to the sample, if there is one. */
static bool run_batch(struct np_run *run, struct np_plan *plan, uint64_t iterations, bool check,
		      struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	struct batch b = {.plan = plan, .iterations = iterations, .check = check};
	const struct np_canary *canary = rk->canary;
	uint64_t before;
	char what[120];

	before = canary ? np_canary_seen(canary)->bytes : 0;
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
	if (sample && canary)
		sample->late += np_canary_seen(canary)->bytes - before;
	if (sample && check) {
		sample->checked += iterations;
		sample->wrong += b.wrong;
	}
	return b.ok;
}

static volatile sig_atomic_t told_to_end;

static void end_soon(int number)
{
	told_to_end = number;
}

void np_measure_heed_signal(void)
{
	struct sigaction action = {.sa_handler = end_soon, .sa_flags = SA_RESTART};

	sigaction(SIGUSR1, &action, NULL);
}

/*
 * All ranks exchange something between two batches. One that waits here for another, which is
 * frozen or whose traffic does not move, completes nothing either.
 *
 * A rank that has left is noticed here as well, if nothing was under way. It is the plugin that is
 * asked about, so it has its say first: those who are left try once more, and its error counts.
 */
static bool meet(struct np_run *run, struct np_plan *plan, const void *mine, void *all, size_t size)
{
	struct np_rank *rk = run->rk;
	struct np_recorder *r = &rk->recorder; /* the worker has nothing to do */
	uint64_t from_ns = np_now_ns(), waited_ns;
	char err[200];

	if (!np_bootstrap_gather(rk->bootstrap, mine, all, size, err, sizeof(err))) {
		if (np_bootstrap_bereaved(rk->bootstrap))
			run_batch(run, plan, 1, rk->o->checks > 0, NULL);
		return np_error_set(&rk->error, NP_EXIT_ERROR, "%s", err);
	}
	waited_ns = np_now_ns() - from_ns;
	if (waited_ns > r->stall_threshold_ns)
		np_stalls_add(r->stalls, &r->stalls_seen,
			      (struct np_stall){.start_ns = from_ns - r->origin_ns,
						.duration_ns = waited_ns});
	return true;
}

/* With --seconds: batches of about a tenth of a second until rank 0 says that it is enough. */
static bool run_seconds(struct np_run *run, struct np_plan *plan, struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	uint64_t start = np_now_ns(), want_ns = (uint64_t)(rk->o->seconds * 1e9);
	uint64_t iterations = 1, used, before;
	int more[NP_MAX_RANKS], next;

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
		if (np_now_ns() - start >= want_ns || told_to_end)
			iterations = 0;
		next = (int)iterations;
		if (!meet(run, plan, &next, more, sizeof(next)))
			return false;
		if (!more[0])
			return true;
		iterations = (uint64_t)more[0];
	}
}

/* ---- one row -------------------------------------------------------------------------------- */

/* Adds what was recorded since the last reset. */
static void take_recorder(struct np_recorder *r, struct np_sample *sample, bool latency)
{
	uint64_t kept = r->stalls_seen < NP_STALLS_KEPT ? r->stalls_seen : NP_STALLS_KEPT;

	if (latency)
		np_histogram_merge(&sample->latency, &r->latency);
	for (uint64_t i = 0; i < kept; i++)
		np_stalls_add(sample->stalls, &sample->stalls_seen, r->stalls[i]);
	sample->stalls_seen += r->stalls_seen - kept;
	np_recorder_reset(r);
}

static bool warm_up(struct np_run *run, struct np_plan *plan)
{
	plan->iteration = run->iteration++;
	plan->fill(plan);
	if (!run_batch(run, plan, (uint64_t)run->rk->o->warmup, false, NULL) ||
	    !np_barrier(run->rk))
		return false;
	np_recorder_reset(&run->rk->recorder);
	return true;
}

static bool timed(struct np_run *run, struct np_plan *plan, struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	bool ok;

	if (rk->o->seconds > 0)
		ok = run_seconds(run, plan, sample);
	else
		ok = run_batch(run, plan, (uint64_t)rk->o->iterations, false, sample);
	take_recorder(&rk->recorder, sample, rk->o->iterations > 0 || rk->o->seconds > 0);
	return ok;
}

static bool checked(struct np_run *run, struct np_plan *plan, struct np_sample *sample)
{
	struct np_rank *rk = run->rk;
	bool ok;

	if (rk->o->seconds > 0)
		return true; /* was done on the way */
	ok = run_batch(run, plan, (uint64_t)rk->o->checks, true, sample);
	take_recorder(&rk->recorder, sample, rk->o->iterations == 0);
	return ok;
}

/* Blocks of both plugins in turn, A B B A, so that what drifts hits both alike. */
static bool timed_in_turn(struct np_run *run, struct np_plan *const *plans,
			  struct np_sample *const *samples)
{
	for (int round = 0; round < run->rk->o->rounds; round++) {
		for (int i = 0; i < 2; i++) {
			int side = (round & 1) ^ i;
			uint64_t before = samples[side]->time_ns;

			if (!np_barrier(run->rk) || !timed(run, plans[side], samples[side]))
				return false;
			samples[side]->round_ns[round] = samples[side]->time_ns - before;
		}
	}
	return true;
}

static bool measure(struct np_run *run, struct np_plan *const *plans,
		    struct np_sample *const *samples)
{
	int nsides = run->rk->nsides;

	for (int side = 0; side < nsides; side++)
		if (!warm_up(run, plans[side]))
			return false;
	if (nsides == 1 ? !timed(run, plans[0], samples[0]) : !timed_in_turn(run, plans, samples))
		return false;
	for (int side = 0; side < nsides; side++)
		if (!checked(run, plans[side], samples[side]))
			return false;
	return true;
}

/* ---- reporting it --------------------------------------------------------------------------- */

/* By rank; NULL with rk->error set. */
static struct np_sample *gather_samples(struct np_rank *rk, const struct np_sample *mine)
{
	struct np_sample *all = malloc((size_t)rk->nranks * sizeof(*all));

	if (!all)
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	else if (np_gather(rk, mine, all, sizeof(*mine)))
		return all;
	free(all);
	return NULL;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Per round: the time of B over that of A, all ranks together. */
static struct np_ratio speedup(const struct np_rank *rk, const struct np_sample *a,
			       const struct np_sample *b)
{
	double ratios[NP_MAX_ROUNDS] = {0};
	int n = rk->o->rounds;

	for (int round = 0; round < n; round++) {
		double time_a = 0, time_b = 0;

		for (int r = 0; r < rk->nranks; r++) {
			time_a += (double)a[r].round_ns[round];
			time_b += (double)b[r].round_ns[round];
		}
		ratios[round] = time_a > 0 ? time_b / time_a : 0;
	}
	qsort(ratios, (size_t)n, sizeof(ratios[0]), compare_doubles);
	return (struct np_ratio){
	    .median = ratios[n / 2],
	    .low = ratios[n / 4],
	    .high = ratios[n - 1 - n / 4],
	};
}

static bool report(struct np_run *run, struct np_plan *const *plans,
		   struct np_sample *const *samples)
{
	struct np_rank *rk = run->rk;
	struct np_sample *all[NP_MAX_SIDES] = {NULL};
	struct np_ratio ratio;
	bool ok = true;

	for (int side = 0; side < rk->nsides && ok; side++) {
		all[side] = gather_samples(rk, samples[side]);
		ok = all[side] != NULL;
	}
	if (ok && rk->nsides > 1)
		ratio = speedup(rk, all[0], all[1]);
	for (int side = 0; side < rk->nsides; side++) {
		if (!ok)
			free(all[side]);
		else if (!np_report_row(&run->report, plans[side], side, all[side],
					rk->nsides > 1 && side == 0 ? &ratio : NULL))
			ok = np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	}
	return ok;
}

static bool run_row(struct np_run *run, enum np_op op, size_t size)
{
	struct np_rank *rk = run->rk;
	struct np_plan *plans[NP_MAX_SIDES] = {NULL};
	struct np_sample *samples[NP_MAX_SIDES] = {NULL};
	bool ok = true;

	for (int side = 0; side < rk->nsides; side++) {
		plans[side] = np_plan_new(rk, &rk->sides[side], op, size);
		samples[side] = calloc(1, sizeof(*samples[side]));
		ok = ok && plans[side] && samples[side];
		if (samples[side])
			np_histogram_reset(&samples[side]->latency);
	}
	if (ok)
		ok = measure(run, plans, samples) && report(run, plans, samples);
	else
		np_error_set(&rk->error, NP_EXIT_ERROR, "out of memory");
	for (int side = 0; side < rk->nsides; side++) {
		np_plan_free(plans[side]);
		free(samples[side]);
	}
	return ok;
}

bool np_measure_all(struct np_run *run)
{
	const struct np_options *o = run->rk->o;

	for (int op = 0; op < o->nops; op++)
		for (int i = 0; i < o->nsizes; i++)
			if (!run_row(run, o->ops[op], o->sizes[i]))
				return false;
	return true;
}
