/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that nothing is left behind by a connection. */
#include "link.h"
#include "process.h"
#include "rules.h"

#include "tools/common/fabric.h"

#include <string.h>
#include <unistd.h>

#define MESSAGES 3
#define SIZE	 2000
#define HEAP_NOISE                                                                                 \
	2048 /* bytes that a plugin's threads may hold at one moment and not at another */
/* Rounds after the first two, where memory grew in both. */
#define MORE_HALVES 3
/* What a thread that is new may keep of what it freed: malloc counts its cache as in use. */
#define THREAD_CACHE (16 * 1024)
/* A stack, a guard, an arena, which is two, and what lies between. */
#define THREAD_MAPS 6

struct footprint {
	int fds, threads, maps;
	long rss_kib;
	size_t heap;
	int qps, cqs, mrs; /* as simverbs counts them; 0 elsewhere */
};

/* What this process has on all devices of the fabric. */
static void count_objects(struct check *t, struct footprint *f)
{
	struct np_fabric_options wanted = {.existing = t->opt->fabric};
	struct np_fabric fabric;
	char err[600];
	json_t *status = NULL, *process;
	size_t i;

	if (np_fabric_open(&fabric, &wanted, err, sizeof(err)))
		status = np_fabric_status(&fabric, err, sizeof(err));
	if (!status)
		check_skip(t, "cannot count QPs and MRs: %s", err);
	json_array_foreach(json_object_get(status, "processes"), i, process)
	{
		if (json_integer_value(json_object_get(process, "pid")) != getpid())
			continue;
		f->qps += (int)json_integer_value(json_object_get(process, "qps"));
		f->cqs += (int)json_integer_value(json_object_get(process, "cqs"));
		f->mrs += (int)json_integer_value(json_object_get(process, "mrs"));
	}
	json_decref(status);
}

static struct footprint measure(struct check *t)
{
	struct footprint f = {process_fds(),
			      process_threads(),
			      process_map_count(),
			      process_rss_kib(),
			      process_heap(),
			      0,
			      0,
			      0};

	if (t->opt->fabric)
		count_objects(t, &f);
	return f;
}

static void cycle(struct check *t)
{
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, SIZE);
	for (int m = 0; m < MESSAGES; m++) {
		void *request = sender ? post_send(t, comm, b.data, SIZE, m, b.mhandle)
				       : post_recv(t, comm, b.data, SIZE, m, b.mhandle);
		await_done(t, request, NULL, "a message did not complete");
	}
	buffer_close(t, &b, comm);
	check_barrier(t);
	if (sender)
		MUST(t, close_send, comm);
	else
		MUST(t, close_recv, comm);
}

/* What a plugin frees a little later, on a thread of its own, is not a leak. */
static void settle(struct check *t, const struct footprint *before)
{
	uint64_t until = check_deadline(t, 1000);

	check_barrier(t);
	while (check_now_ns() < until &&
	       (process_fds() > before->fds || process_threads() > before->threads ||
		process_heap() > before->heap + HEAP_NOISE))
		check_sleep_ms(5);
}

static void judge_count(struct check *t, const char *what, int before, int after, int cycles)
{
	/* a pool may still grow by a few; a leak grows with the cycles */
	if (after - before > 2 + cycles / 20)
		check_fail(t, "%s grew from %d to %d in %d connect/transfer/close cycles", what,
			   before, after, cycles);
}

static int new_threads(const struct footprint *from, const struct footprint *to)
{
	return to->threads > from->threads ? to->threads - from->threads : 0;
}

/* 16 bytes a cycle, and what threads that are new keep for themselves. */
static bool heap_grew(const struct footprint *from, const struct footprint *to, int cycles)
{
	int threads = new_threads(from, to);

	return to->heap >
	       from->heap + HEAP_NOISE + (size_t)cycles * 16 + (size_t)threads * THREAD_CACHE;
}

/*
 * What threads keep of what they freed, and a pool, are full some time: a leak grows in each round,
 * those included that are asked for because memory grew. The last one is in *last.
 */
static bool heap_grows_on(struct check *t, bool grew, int half, struct footprint *last)
{
	for (int i = 0; i < MORE_HALVES && check_either(t, grew); i++) {
		struct footprint before = *last;

		for (int k = 0; k < half; k++)
			cycle(t);
		settle(t, &before);
		*last = measure(t);
		grew = grew && heap_grew(&before, last, half);
	}
	return grew;
}

void rule_leaks(struct check *t)
{
	int cycles = t->opt->cycles, half = cycles / 2 > 0 ? cycles / 2 : 1;
	int warm_up = half < 20 ? half : 20;
	struct footprint start, middle, end, last;

	/* one stays open, so that what connections share is not made anew in each cycle */
	link_open_pair(t, t->opt->dev);
	for (int i = 0; i < warm_up; i++)
		cycle(t);
	start = measure(t);
	settle(t, &start);
	start = measure(t);
	for (int i = 0; i < half; i++)
		cycle(t);
	settle(t, &start);
	middle = measure(t);
	for (int i = 0; i < half; i++)
		cycle(t);
	settle(t, &start);
	end = measure(t);

	judge_count(t, "descriptors", start.fds, end.fds, 2 * half);
	judge_count(t, "threads", start.threads, end.threads, 2 * half);
	judge_count(t, "memory mappings", start.maps,
		    end.maps - THREAD_MAPS * new_threads(&start, &end), 2 * half);
	judge_count(t, "QPs", start.qps, end.qps, 2 * half);
	judge_count(t, "CQs", start.cqs, end.cqs, 2 * half);
	judge_count(t, "MRs", start.mrs, end.mrs, 2 * half);
	/* in both halves: what grows once and stays is no leak */
	last = end;
	if (heap_grows_on(t, heap_grew(&start, &middle, half) && heap_grew(&middle, &end, half),
			  half, &last))
		check_fail(
		    t,
		    "malloc'ed memory grew by %zu bytes in %d connect/transfer/close cycles, "
		    "threads from %d to %d",
		    last.heap - start.heap, (2 + MORE_HALVES) * half, start.threads, last.threads);
	if (end.rss_kib > start.rss_kib + 1024 + half / 16 &&
	    end.rss_kib > middle.rss_kib + 512 + half / 32)
		check_fail(t,
			   "resident memory grew from %ld to %ld KiB in %d "
			   "connect/transfer/close cycles",
			   start.rss_kib, end.rss_kib, 2 * half);
	if (t->rank == CHECK_SENDER && t->opt->fabric)
		check_note(t,
			   "%d cycles; descriptors %d, threads %d, resident %ld KiB, QPs %d, "
			   "CQs %d, MRs %d",
			   2 * half, end.fds, end.threads, end.rss_kib, end.qps, end.cqs, end.mrs);
	else if (t->rank == CHECK_SENDER)
		check_note(t, "%d cycles; descriptors %d, threads %d, resident %ld KiB", 2 * half,
			   end.fds, end.threads, end.rss_kib);
}
