/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about requests: what isend, irecv, iflush and test write, accept and keep in order. */
#include "link.h"
#include "rules.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE		4000
#define TEST_LIMIT_MS	500
#define TEST_TYPICAL_MS 5
#define LONELY_TESTS	400
#define FIFO_DEPTH	8
#define HINTED		16
#define THREAD_MESSAGES 16
#define PROXIES		3
#define PROXY_ROUNDS	7 /* of THREAD_MESSAGES each */

/* What a stale slot of NCCL's request array may hold. */
static void *const stale = (void *)(uintptr_t)0xdeadbeefcafe0010ull;

static void fail_if_stale(struct check *t, const void *request, const char *call)
{
	if (request == stale)
		check_fail(t, "%s returned success and left *request as it was", call);
}

/* ---- *request ----------------------------------------------------------------------------- */

/* Every way to come out of a call: would block because nothing is posted, accepted, and full.
 * iflush finds NULL there. */
void rule_request_written(struct check *t)
{
	struct link link;
	struct buffer out, in;
	void *requests[NCCL_NET_MAX_REQUESTS * 2];
	int count = 0;
	size_t size = MESSAGE;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, MESSAGE);
	buffer_open(t, &in, link.recv, MESSAGE);
	for (int i = 0; i < 10; i++) {
		void *request = stale;
		MUST(t, isend, link.send, out.data, MESSAGE, 0, out.mhandle, &request);
		fail_if_stale(t, request, "isend without a receive");
		if (request)
			check_skip(t, "isend is accepted before any receive is posted");
	}
	/* Not now: at first a plugin may be busy in the background, later it is full. */
	uint64_t accepted_by = check_deadline(t, CHECK_STEP_MS);
	while (count < NCCL_NET_MAX_REQUESTS * 2) {
		void *request = stale;
		void *data = in.data, *mhandle = in.mhandle;
		int tag = count;
		MUST(t, irecv, link.recv, 1, &data, &size, &tag, &mhandle, &request);
		fail_if_stale(t, request, count ? "irecv" : "the first irecv");
		if (request)
			requests[count++] = request;
		else if (count > 0)
			break;
		else
			check_poll(t, accepted_by, "irecv accepts nothing");
	}
	void *request = stale;
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	do {
		request = stale;
		MUST(t, isend, link.send, out.data, MESSAGE, 0, out.mhandle, &request);
		fail_if_stale(t, request, "isend");
		check_poll(t, deadline, "isend was not accepted although a receive is posted");
	} while (!request);
	await_both(t, request, requests[0], "a message did not complete");
}

/* ---- test --------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

void rule_test_returns(struct check *t)
{
	static uint64_t ns[LONELY_TESTS];
	struct link link;
	struct buffer in;
	int tag = 3, sizes[NP_MAX_RECVS];
	size_t size = MESSAGE;

	link_open_local(t, t->opt->dev, &link);
	link_exchange(t, &link, 1, 1);
	buffer_open(t, &in, link.recv, size);
	void *request = post_recv(t, link.recv, in.data, size, tag, in.mhandle);
	for (int i = 0; i < LONELY_TESTS; i++) {
		int done = 0;
		uint64_t before = check_now_ns();
		MUST(t, test, request, &done, sizes);
		ns[i] = check_now_ns() - before;
		if (done)
			check_fail(t, "a receive completed although nothing was sent");
		if (ns[i] > (uint64_t)TEST_LIMIT_MS * 1000000 * (uint64_t)t->opt->time_scale)
			check_fail(t, "one call of test took %.0f ms", (double)ns[i] / 1e6);
	}
	qsort(ns, LONELY_TESTS, sizeof(ns[0]), by_value);
	double median_ms = (double)ns[LONELY_TESTS / 2] / 1e6;
	if (median_ms > TEST_TYPICAL_MS * t->opt->time_scale)
		check_fail(t, "calls of test take %.1f ms", median_ms);
	check_note(t, "longest call %.3f ms, median %.4f ms", (double)ns[LONELY_TESTS - 1] / 1e6,
		   median_ms);
}

void rule_sizes_null(struct check *t)
{
	struct link link;
	struct buffer out, in;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, MESSAGE);
	buffer_open(t, &in, link.recv, MESSAGE);
	pattern_fill(out.data, MESSAGE, 5);
	void *send, *recv;
	post_message(t, &link,
		     &(struct message){out.data, out.mhandle, in.data, in.mhandle, MESSAGE, 1},
		     &send, &recv);
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	while (send || recv) {
		int done = 0;
		if (send)
			MUST(t, test, send, &done, NULL);
		send = done ? NULL : send;
		done = 0;
		if (recv)
			MUST(t, test, recv, &done, NULL);
		recv = done ? NULL : recv;
		check_poll(t, deadline, "a message whose sizes nobody asks for did not complete");
	}
	pattern_check(t, in.data, MESSAGE, 5, "message");
}

/* ---- depth and order ---------------------------------------------------------------------- */

/* 32 receives posted at once, each of maxRecvs buffers, and all their sends outstanding too. */
void rule_outstanding(struct check *t)
{
	enum { PIECE = 512 };
	int n = t->props.maxRecvs < 8 ? t->props.maxRecvs : 8;
	int total = NCCL_NET_MAX_REQUESTS * n;
	bool sender = t->rank == CHECK_SENDER;
	void *requests[NCCL_NET_MAX_REQUESTS * 8];
	struct buffer b;

	void *comm = link_open_pair(t, t->opt->dev);
	buffer_open(t, &b, comm, (size_t)total * PIECE);
	if (sender)
		pattern_fill(b.data, b.size, 77);
	for (int g = 0; g < NCCL_NET_MAX_REQUESTS; g++) {
		void *data[8], *mhandles[8];
		size_t sizes[8];
		int tags[8];
		for (int i = 0; i < n; i++) {
			data[i] = b.data + (size_t)(g * n + i) * PIECE;
			sizes[i] = PIECE;
			mhandles[i] = b.mhandle;
			tags[i] = g * 8 + i;
			if (sender)
				requests[g * n + i] =
				    post_send(t, comm, data[i], PIECE, tags[i], b.mhandle);
		}
		if (!sender)
			requests[g] = post_group(t, comm, n, data, sizes, tags, mhandles);
	}
	for (int i = 0; i < (sender ? total : NCCL_NET_MAX_REQUESTS); i++)
		await_done(t, requests[i], NULL, "one of 32 outstanding requests did not complete");
	if (!sender)
		pattern_check(t, b.data, b.size, 77, "32 outstanding receives");
	check_note(t, "32 receives of %d", n);
}

/* Receives with one tag between them: sends must fill them in the order they were posted. */
void rule_fifo(struct check *t)
{
	void *requests[FIFO_DEPTH];
	struct buffer b;
	bool sender = t->rank == CHECK_SENDER;
	void *comm = link_open_pair(t, t->opt->dev);

	link_begin(t, comm, sender);
	buffer_open(t, &b, comm, FIFO_DEPTH * MESSAGE);
	for (int i = 0; i < FIFO_DEPTH; i++) {
		char *data = b.data + i * MESSAGE;
		if (sender)
			pattern_fill(data, MESSAGE, (uint64_t)i);
		else
			requests[i] = post_recv(t, comm, data, MESSAGE, 42, b.mhandle);
	}
	check_barrier(t); /* all receives are posted before the first send */
	for (int i = 0; sender && i < FIFO_DEPTH; i++)
		requests[i] = post_send(t, comm, b.data + i * MESSAGE, MESSAGE, 42, b.mhandle);
	/* asked for from the last to the first: the answer may not depend on that */
	for (int i = FIFO_DEPTH - 1; i >= 0; i--)
		await_done(t, requests[i], NULL, "a message of several with one tag is missing");
	for (int i = 0; !sender && i < FIFO_DEPTH; i++)
		pattern_check(t, b.data + i * MESSAGE, MESSAGE, (uint64_t)i,
			      "messages of one tag are out of order");
}

/* ---- hints -------------------------------------------------------------------------------- */

static void *post_hinted(struct check *t, void *comm, char *data, int tag, struct buffer *b)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	for (;;) {
		void *request = (void *)(uintptr_t)NCCL_NET_OPTIONAL_RECV_COMPLETION;
		void *where = data;
		size_t size = MESSAGE;
		MUST(t, irecv, comm, 1, &where, &size, &tag, &b->mhandle, &request);
		if (request == (void *)(uintptr_t)NCCL_NET_OPTIONAL_RECV_COMPLETION)
			check_fail(t, "irecv left the optional-completion hint in *request");
		if (request)
			return request;
		check_poll(t, deadline, "irecv with the optional-completion hint not accepted");
	}
}

/* The hint allows a receive to complete early; the data must come all the same, in order. */
void rule_optional_recv(struct check *t)
{
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, HINTED * MESSAGE);
	for (int i = 0; i < HINTED; i++) {
		char *data = b.data + i * MESSAGE;
		if (sender)
			pattern_fill(data, MESSAGE, (uint64_t)i);
		bool hinted = i % 3 != 2;
		void *request = sender	 ? post_send(t, comm, data, MESSAGE, i, b.mhandle)
				: hinted ? post_hinted(t, comm, data, i, &b)
					 : post_recv(t, comm, data, MESSAGE, i, b.mhandle);
		await_done(t, request, NULL, "a receive with the optional hint did not complete");
	}
	check_barrier(t); /* every send is complete: the data has to be there */
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	for (int i = 0; !sender && i < HINTED; i++)
		while (pattern_mismatch(b.data + i * MESSAGE, MESSAGE, (uint64_t)i) < MESSAGE)
			check_poll(t, deadline, "data of a receive with the hint never arrived");
}

void rule_iflush(struct check *t)
{
	struct link link;
	struct buffer out, in;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, MESSAGE);
	buffer_open(t, &in, link.recv, MESSAGE);
	for (int i = 0; i < 8; i++) {
		link_transfer(
		    t, &link,
		    &(struct message){out.data, out.mhandle, in.data, in.mhandle, MESSAGE, i},
		    "a message did not complete");
		void *flush = NULL, *data = in.data, *mhandle = in.mhandle;
		int size = MESSAGE;
		MUST(t, iflush, link.recv, 1, &data, &size, &mhandle, &flush);
		/* NULL says there is nothing to wait for */
		if (flush)
			await_done(t, flush, NULL, "a flush did not complete");
	}
}

/* ---- threads ------------------------------------------------------------------------------ */

struct thread_job {
	struct check *t;
	struct link *link;
	struct buffer *out, *in;
	int first; /* tag and pattern of its first message */
};

static void *progress_thread(void *arg)
{
	struct thread_job *job = arg;
	struct check *t = job->t;

	for (int i = job->first; i < job->first + THREAD_MESSAGES; i++) {
		pattern_fill(job->out->data, MESSAGE, (uint64_t)i);
		link_transfer(t, job->link,
			      &(struct message){job->out->data, job->out->mhandle, job->in->data,
						job->in->mhandle, MESSAGE, i},
			      "a message posted by another thread did not complete");
		pattern_check(t, job->in->data, MESSAGE, (uint64_t)i, "message of another thread");
	}
	return NULL;
}

struct proxies {
	struct check *t;
	atomic_int number;
	/* All of them: each alone would be through before the next one starts. */
	pthread_barrier_t ready;
};

/* One of several proxies of a process: its own connection, made and used here. */
static void *proxy(void *arg)
{
	struct proxies *all = arg;
	struct check *t = all->t;
	struct link link;
	struct buffer out, in;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, MESSAGE);
	buffer_open(t, &in, link.recv, MESSAGE);
	struct thread_job job = {t, &link, &out, &in, 0};
	pthread_barrier_wait(&all->ready);
	/* None says what another one says at the same time. */
	job.first = THREAD_MESSAGES * PROXY_ROUNDS * atomic_fetch_add(&all->number, 1);
	for (int i = 0; i < PROXY_ROUNDS; i++, job.first += THREAD_MESSAGES)
		progress_thread(&job);
	buffer_close(t, &out, link.send);
	buffer_close(t, &in, link.recv);
	link_close_local(t, &link);
	return NULL;
}

void rule_proxies(struct check *t)
{
	struct proxies all = {.t = t};
	pthread_t threads[PROXIES];

	pthread_barrier_init(&all.ready, NULL, PROXIES);
	for (int i = 0; i < PROXIES; i++)
		if (pthread_create(&threads[i], NULL, proxy, &all) != 0)
			check_skip(t, "cannot start a thread");
	for (int i = 0; i < PROXIES; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&all.ready);
	check_note(t, "%d threads, %d messages each", PROXIES, PROXY_ROUNDS * THREAD_MESSAGES);
}

/* NCCL sets up in one thread and moves data in another. */
void rule_two_threads(struct check *t)
{
	struct link link;
	struct buffer out, in;
	pthread_t thread;

	link_open_local(t, t->opt->dev, &link);
	buffer_open(t, &out, link.send, MESSAGE);
	buffer_open(t, &in, link.recv, MESSAGE);
	struct thread_job job = {t, &link, &out, &in, 0};
	if (pthread_create(&thread, NULL, progress_thread, &job) != 0)
		check_skip(t, "cannot start a thread");
	pthread_join(thread, NULL);
	buffer_close(t, &out, link.send);
	buffer_close(t, &in, link.recv);
	link_close_local(t, &link);
}
