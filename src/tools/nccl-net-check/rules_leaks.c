/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that nothing is left behind by a connection. */
#include "link.h"
#include "process.h"
#include "rules.h"

#define MESSAGES 3
#define SIZE	 2000

struct footprint {
	int fds, threads, maps;
	long rss_kib;
	size_t heap;
};

static struct footprint measure(void)
{
	return (struct footprint){process_fds(), process_threads(), process_map_count(),
				  process_rss_kib(), process_heap()};
}

static void cycle(struct check *t)
{
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, SIZE);
	for (int m = 0; m < MESSAGES; m++) {
		void *request = sender ? post_send(t, comm, b.data, SIZE, m, b.mhandle, NULL)
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
	       (process_fds() > before->fds || process_threads() > before->threads))
		check_sleep_ms(5);
}

static void judge_count(struct check *t, const char *what, int before, int after, int cycles)
{
	/* a pool may still grow by a few; a leak grows with the cycles */
	if (after - before > 2 + cycles / 20)
		check_fail(t, "%s grew from %d to %d in %d connect/transfer/close cycles", what,
			   before, after, cycles);
}

void rule_leaks(struct check *t)
{
	int cycles = t->opt->cycles, half = cycles / 2 > 0 ? cycles / 2 : 1;
	int warm_up = half < 20 ? half : 20;
	struct footprint start, middle, end;

	for (int i = 0; i < warm_up; i++)
		cycle(t);
	start = measure();
	settle(t, &start);
	start = measure();
	for (int i = 0; i < half; i++)
		cycle(t);
	settle(t, &start);
	middle = measure();
	for (int i = 0; i < half; i++)
		cycle(t);
	settle(t, &start);
	end = measure();

	judge_count(t, "descriptors", start.fds, end.fds, 2 * half);
	judge_count(t, "threads", start.threads, end.threads, 2 * half);
	judge_count(t, "memory mappings", start.maps, end.maps, 2 * half);
	/* 16 bytes a cycle in both halves: what grows once and stays is no leak */
	size_t allowed = (size_t)half * 16;
	if (middle.heap > start.heap + allowed && end.heap > middle.heap + allowed)
		check_fail(t,
			   "malloc'ed memory grew by %zu bytes in %d connect/transfer/close cycles",
			   end.heap - start.heap, 2 * half);
	if (end.rss_kib > start.rss_kib + 1024 + half / 16 &&
	    end.rss_kib > middle.rss_kib + 512 + half / 32)
		check_fail(t,
			   "resident memory grew from %ld to %ld KiB in %d "
			   "connect/transfer/close cycles",
			   start.rss_kib, end.rss_kib, 2 * half);
	if (t->rank == CHECK_SENDER)
		check_note(t, "%d cycles; descriptors %d, threads %d, resident %ld KiB", 2 * half,
			   end.fds, end.threads, end.rss_kib);
}
