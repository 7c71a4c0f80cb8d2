/* SPDX-License-Identifier: Apache-2.0 */
/* The table, in the form people know from nccl-tests, and the progress bar. */
#include "tools/nccl-net-perf/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/flow.h"

/* Bytes on the busiest link of an operation per byte of its size, as nccl-tests counts. */
static double bus_factor(enum np_op op, int nranks)
{
	switch (op) {
	case NP_ALLREDUCE:
		return 2.0 * (nranks - 1) / nranks;
	case NP_ALLTOALL:
		return (double)(nranks - 1) / nranks;
	default:
		return 1.0;
	}
}

/* ---- progress bar -------------------------------------------------------------------------- */

#define BAR_WIDTH 30

void np_report_bar(struct np_report *rp, const struct np_plan *plan, double fraction)
{
	uint64_t now = np_now_ns();
	char bar[BAR_WIDTH + 1];
	int full;

	if (rp->rk->rank != 0 || rp->quiet || !isatty(STDERR_FILENO))
		return;
	if (fraction < 0) {
		if (rp->bar_drawn)
			fprintf(stderr, "\r\033[K");
		rp->bar_drawn = false;
		return;
	}
	if (now - rp->bar_ns < 100 * NP_NS_PER_MS)
		return;
	full = (int)(BAR_WIDTH * (fraction > 1 ? 1 : fraction));
	memset(bar, '.', BAR_WIDTH);
	memset(bar, '#', (size_t)full);
	bar[BAR_WIDTH] = '\0';
	fprintf(stderr, "\r\033[K%s %zu B [%s] %3.0f %%", np_op_names[plan->op], plan->size, bar,
		100 * fraction);
	rp->bar_drawn = true;
	rp->bar_ns = now;
}

/* ---- table --------------------------------------------------------------------------------- */

static void print_devices(const struct np_side *side)
{
	for (int d = 0; d < side->ndev; d++) {
		const ncclNetProperties_v12_t *p = &side->props[d];

		printf("#   device %d: %s, port %d, %g Gb/s, maxRecvs %d, %s\n", d,
		       p->name ? p->name : "(null)", p->port, p->speed / 1000.0, p->maxRecvs,
		       p->pciPath ? p->pciPath : "no PCI path");
	}
}

static void print_use(const struct np_side *side)
{
	if (side->via == NP_INCCL)
		printf("libinccl beside it");
	else if (side->via == NP_COLLNET)
		printf("collNet API v%d", side->group.coll.api);
	else
		printf("API v%d", np_api(side->net));
}

void np_report_header(struct np_report *rp)
{
	const struct np_rank *rk = rp->rk;
	const struct np_options *o = rk->o;

	if (rk->rank != 0)
		return;
	for (int s = 0; s < rk->nsides; s++) {
		const struct np_side *side = &rk->sides[s];

		printf("# plugin %s%s: \"%s\", ", np_path(side->net),
		       rk->nsides > 1 ? (s ? " (B)" : " (A)") : "", np_name(side->net));
		print_use(side);
		for (int i = 0; i < o->env[s].count; i++)
			printf(", %s", o->env[s].pairs[i]);
		printf("\n");
		print_devices(side);
	}
	printf("# %d ranks, %d channel%s, %d messages of at most %zu B in flight, ", rk->nranks,
	       o->channels, o->channels > 1 ? "s" : "", o->depth, o->chunk);
	if (o->seconds > 0)
		printf("%g s per size, %s\n", o->seconds,
		       o->checks ? "every iteration checked" : "data not checked");
	else
		printf("iterations: %d warm-up, %d timed, %d checked\n", o->warmup, o->iterations,
		       o->checks);
	printf("#%11s %12s %7s %10s %12s %9s %9s %8s %10s %10s%s%s\n", "size", "count", "type",
	       "op", "time", "algbw", "busbw", "#wrong", "msg p50", "msg p99",
	       o->canary ? "    #late" : "",
	       rk->nsides > 1 ? "  plugin  A faster by (quartiles)" : "");
	printf("#%11s %12s %7s %10s %12s %9s %9s %8s %10s %10s\n", "(B)", "(elements)", "", "",
	       "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
	fflush(stdout);
}

static void print_row(const struct np_rank *rk, const struct np_row *row)
{
	char wrong[24] = "n/a";

	if (row->checked)
		snprintf(wrong, sizeof(wrong), "%llu", (unsigned long long)row->wrong);
	printf("%12zu %12zu %7s %10s %12.2f %9.3f %9.3f %8s %10.1f %10.1f", row->size, row->count,
	       np_type_names[row->type], np_op_names[row->op], row->time_us, row->algbw, row->busbw,
	       wrong, (double)np_histogram_quantile(&row->latency, 0.5) / 1e3,
	       (double)np_histogram_quantile(&row->latency, 0.99) / 1e3);
	if (rk->o->canary)
		printf(" %8llu", (unsigned long long)row->late);
	if (rk->nsides > 1) {
		printf("  %6s", row->side ? "B" : "A");
		if (row->speedup.median > 0)
			printf("  %.3f (%.3f-%.3f)", row->speedup.median, row->speedup.low,
			       row->speedup.high);
	}
	printf("\n");
	if (row->stalls_seen)
		printf("#   %llu stall%s over %g ms, the longest %.1f ms\n",
		       (unsigned long long)row->stalls_seen, row->stalls_seen > 1 ? "s" : "",
		       rk->o->stall_ms, (double)row->longest_stall_ns / 1e6);
	fflush(stdout);
}

static void summarise(struct np_row *row, const struct np_rank *rk)
{
	double time_us = 0;

	np_histogram_reset(&row->latency);
	for (int r = 0; r < rk->nranks; r++) {
		const struct np_sample *s = &row->samples[r];

		if (s->iterations)
			time_us += (double)s->time_ns / (double)s->iterations / 1e3;
		row->wrong += s->wrong;
		row->late += s->late;
		row->stalls_seen += s->stalls_seen;
		for (uint64_t i = 0; i < s->stalls_seen && i < NP_STALLS_KEPT; i++)
			if (s->stalls[i].duration_ns > row->longest_stall_ns)
				row->longest_stall_ns = s->stalls[i].duration_ns;
		np_histogram_merge(&row->latency, &s->latency);
	}
	row->iterations = row->samples[0].iterations;
	row->checked = row->samples[0].checked;
	row->time_us = time_us / rk->nranks;
	row->algbw = row->time_us > 0 ? (double)row->size / row->time_us / 1e3 : 0;
	row->busbw = row->algbw * bus_factor(row->op, rk->nranks);
}

bool np_report_row(struct np_report *rp, const struct np_plan *plan, int side,
		   struct np_sample *samples, const struct np_ratio *speedup)
{
	struct np_row *row, **rows;

	if (rp->rk->rank != 0 || rp->quiet) {
		for (int r = 0; r < rp->rk->nranks; r++)
			rp->wrong += samples[r].wrong;
		free(samples);
		return true;
	}
	row = calloc(1, sizeof(*row));
	rows = realloc(rp->rows, (rp->nrows + 1) * sizeof(*rows));
	if (rows)
		rp->rows = rows;
	if (!row || !rows) {
		free(row);
		free(samples);
		return false;
	}
	rows[rp->nrows++] = row;
	row->op = plan->op;
	row->type = plan->op == NP_ALLREDUCE ? plan->type : NP_INT8;
	row->side = side;
	row->size = plan->size;
	row->count = plan->size / np_type_sizes[row->type];
	row->samples = samples;
	if (speedup)
		row->speedup = *speedup;
	summarise(row, rp->rk);
	rp->wrong += row->wrong;
	np_report_bar(rp, plan, -1);
	print_row(rp->rk, row);
	return true;
}

void np_report_footer(struct np_report *rp)
{
	double busbw = 0;
	size_t n = 0, checked = 0;
	uint64_t late = 0;

	if (rp->rk->rank != 0)
		return;
	for (size_t i = 0; i < rp->nrows; i++) {
		checked += rp->rows[i]->checked > 0;
		if (rp->rows[i]->side == 0) {
			busbw += rp->rows[i]->busbw;
			n++;
		}
	}
	printf("# wrong elements: %llu in %zu checked of %zu rows\n", (unsigned long long)rp->wrong,
	       checked, rp->nrows);
	for (int r = 0; rp->late && r < rp->rk->nranks; r++)
		late += rp->late[r].bytes;
	if (rp->late)
		printf("# late bytes: %llu, the last %g ms without traffic\n",
		       (unsigned long long)late, rp->rk->o->linger_ms);
	printf("# average bus bandwidth: %.3f GB/s\n", n ? busbw / (double)n : 0);
	fflush(stdout);
}

void np_report_free(struct np_report *rp)
{
	for (size_t i = 0; i < rp->nrows; i++) {
		free(rp->rows[i]->samples);
		free(rp->rows[i]);
	}
	free(rp->rows);
	for (int r = 0; rp->timelines && r < rp->rk->nranks; r++)
		free(rp->timelines[r]);
	free(rp->timelines);
	free(rp->timeline_lens);
	free(rp->observed);
	free(rp->setups);
	free(rp->late);
}
