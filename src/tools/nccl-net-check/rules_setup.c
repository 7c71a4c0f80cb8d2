/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about listen, connect and accept. */
#include "link.h"
#include "rules.h"

#include <stdlib.h>
#include <string.h>

/* One call may take this long before it counts as blocking: generous, for loaded machines. */
#define CALL_LIMIT_MS	     500
#define TYPICAL_LIMIT_MS     20
#define LONELY_MS	     150 /* how long a connect or accept is left without its peer */
#define INTERLEAVED	     4
#define GARBAGE_HANDLES	     24
#define GARBAGE_CALLS	     50
#define CONNECTIONS	     16
#define CONNECTIONS_MESSAGES 4

/* ---- handles ------------------------------------------------------------------------------ */

void rule_handle_size(struct check *t)
{
	struct link_handle handle;
	struct link link;
	void *listen_comm = NULL;

	memset(&handle, 0x5a, sizeof(handle));
	MUST(t, listen, &t->ctx, t->opt->dev, handle.bytes, &listen_comm);
	for (size_t i = 0; i < sizeof(handle.slack); i++)
		if (handle.slack[i] != 0x5a)
			check_fail(t, "listen wrote byte %zu of a handle of %d bytes",
				   i + sizeof(handle.bytes), NCCL_NET_HANDLE_MAXSIZE);
	link_join(t, t->opt->dev, listen_comm, &handle, &link);
	for (size_t i = 0; i < sizeof(handle.slack); i++)
		if (handle.slack[i] != 0x5a)
			check_fail(t, "connect wrote byte %zu of a handle of %d bytes",
				   i + sizeof(handle.bytes), NCCL_NET_HANDLE_MAXSIZE);
}

/* Several connects under way at once, begun in turn: each must reach the listener of its handle.
 * The memory of a handle is overwritten when its connect is over, and that of listen at once. */
void rule_handle_state(struct check *t)
{
	struct link_handle handles[INTERLEAVED], given;
	void *listens[INTERLEAVED];
	struct link links[INTERLEAVED];
	int open = 0;

	for (int i = 0; i < INTERLEAVED; i++) {
		listens[i] = link_listen(t, t->opt->dev, &given);
		handles[i] = given;
		memset(&given, 0xa5, sizeof(given));
		links[i] = (struct link){NULL, NULL};
	}
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	while (open < 2 * INTERLEAVED) {
		for (int i = 0; i < INTERLEAVED; i++) {
			if (!links[i].send) {
				MUST(t, connect, &t->ctx, t->opt->dev, handles[i].bytes,
				     &links[i].send, NULL);
				if (links[i].send) {
					memset(&handles[i], 0xa5, sizeof(handles[i]));
					open++;
				}
			}
			if (!links[i].recv) {
				MUST(t, accept, listens[i], &links[i].recv, NULL);
				open += links[i].recv != NULL;
			}
		}
		check_poll(t, deadline,
			   "connects that are called in turn, each with its own handle, do not "
			   "all finish");
	}
	for (int i = 0; i < INTERLEAVED; i++) {
		MUST(t, close_listen, listens[i]);
		link_exchange(t, &links[i], 100, (uint64_t)i);
	}
}

/* Calls connect until it says no; a comm out of garbage is the defect, and so is waiting. */
static void offer_garbage(struct check *t, const char *bytes, const char *what)
{
	struct link_handle handle = {0};

	memcpy(handle.bytes, bytes, sizeof(handle.bytes));
	for (int call = 0; call < GARBAGE_CALLS; call++) {
		void *comm = NULL;
		ncclResult_t result =
		    CALL(t, connect, &t->ctx, t->opt->dev, handle.bytes, &comm, NULL);
		if (result != ncclSuccess)
			return;
		if (comm)
			check_fail(t, "connect made a comm out of a handle of %s", what);
	}
	check_fail(t, "connect keeps asking to be called again with a handle of %s", what);
}

void rule_handle_garbage(struct check *t)
{
	char bytes[NCCL_NET_HANDLE_MAXSIZE];
	unsigned seed = 20110;

	memset(bytes, 0, sizeof(bytes));
	offer_garbage(t, bytes, "zeros");
	memset(bytes, 0xff, sizeof(bytes));
	offer_garbage(t, bytes, "0xff bytes");
	for (int i = 0; i < GARBAGE_HANDLES; i++) {
		for (size_t b = 0; b < sizeof(bytes); b++)
			bytes[b] = (char)rand_r(&seed);
		offer_garbage(t, bytes, "random bytes");
	}
}

/* ---- calls that must not wait ------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

struct durations {
	uint64_t ns[4096];
	size_t count;
};

static void judge_durations(struct check *t, struct durations *d, const char *call)
{
	qsort(d->ns, d->count, sizeof(d->ns[0]), by_value);
	double median_ms = (double)d->ns[d->count / 2] / 1e6;
	double longest_ms = (double)d->ns[d->count - 1] / 1e6;

	if (longest_ms > CALL_LIMIT_MS * t->opt->time_scale)
		check_fail(t, "a call of %s without a peer took %.0f ms", call, longest_ms);
	if (median_ms > TYPICAL_LIMIT_MS * t->opt->time_scale)
		check_fail(t, "calls of %s without a peer take %.0f ms", call, median_ms);
	check_note(t, "longest call %.2f ms, median %.4f ms", longest_ms, median_ms);
}

void rule_connect_returns(struct check *t)
{
	static struct durations d;
	struct link_handle handle;
	struct link link = {NULL, NULL};
	void *listen_comm = link_listen(t, t->opt->dev, &handle);
	uint64_t until = check_deadline(t, LONELY_MS);

	while (!link.send && d.count < 4096 && check_now_ns() < until) {
		uint64_t before = check_now_ns();
		MUST(t, connect, &t->ctx, t->opt->dev, handle.bytes, &link.send, NULL);
		d.ns[d.count++] = check_now_ns() - before;
		if (d.count > 100)
			check_sleep_ms(1);
	}
	judge_durations(t, &d, "connect");
	if (!link.send)
		link_join(t, t->opt->dev, listen_comm, &handle, &link);
}

void rule_accept_returns(struct check *t)
{
	static struct durations d;
	struct link_handle handle;
	struct link link;
	void *comm = NULL, *listen_comm = link_listen(t, t->opt->dev, &handle);
	uint64_t until = check_deadline(t, LONELY_MS);

	while (d.count < 4096 && check_now_ns() < until) {
		uint64_t before = check_now_ns();
		MUST(t, accept, listen_comm, &comm, NULL);
		d.ns[d.count++] = check_now_ns() - before;
		if (comm)
			check_fail(t, "accept gave a comm although nobody connected");
		if (d.count > 100)
			check_sleep_ms(1);
	}
	judge_durations(t, &d, "accept");
	link_join(t, t->opt->dev, listen_comm, &handle, &link);
}

void rule_listen_close(struct check *t)
{
	struct link_handle handle, other;
	void *comm = NULL;

	/* never used */
	MUST(t, close_listen, link_listen(t, t->opt->dev, &handle));

	/* with a connect on its way to it */
	void *listen_comm = link_listen(t, t->opt->dev, &handle);
	for (int i = 0; i < 20; i++)
		MUST(t, connect, &t->ctx, t->opt->dev, handle.bytes, &comm, NULL);
	MUST(t, close_listen, listen_comm);

	/* and the next one works */
	struct link link;
	listen_comm = link_listen(t, t->opt->dev, &other);
	link_join(t, t->opt->dev, listen_comm, &other, &link);
	MUST(t, close_listen, listen_comm);
	link_exchange(t, &link, 1000, 3);
}

/* ---- connections that work ---------------------------------------------------------------- */

void rule_many_connections(struct check *t)
{
	static void *comms[CONNECTIONS];
	struct buffer buffers[CONNECTIONS];
	void *requests[CONNECTIONS];
	bool sender = t->rank == CHECK_SENDER;

	for (int i = 0; i < CONNECTIONS; i++) {
		comms[i] = link_open_pair(t, t->opt->dev);
		buffer_open(t, &buffers[i], comms[i], 10000);
	}
	for (int m = 0; m < CONNECTIONS_MESSAGES; m++) {
		for (int i = 0; i < CONNECTIONS; i++) {
			uint64_t seed = (uint64_t)(m * CONNECTIONS + i);
			struct buffer *b = &buffers[i];
			if (sender)
				pattern_fill(b->data, b->size, seed);
			requests[i] = sender
					  ? post_send(t, comms[i], b->data, b->size, m, b->mhandle)
					  : post_recv(t, comms[i], b->data, b->size, m, b->mhandle);
		}
		for (int i = CONNECTIONS - 1; i >= 0; i--) {
			await_done(t, requests[i], NULL,
				   "a message did not complete with many connections open");
			if (!sender)
				pattern_check(t, buffers[i].data, buffers[i].size,
					      (uint64_t)(m * CONNECTIONS + i),
					      "message over one of many connections");
		}
		check_barrier(t);
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		buffer_close(t, &buffers[i], comms[i]);
		if (sender)
			MUST(t, close_send, comms[i]);
		else
			MUST(t, close_recv, comms[i]);
	}
}

void rule_traffic_class(struct check *t)
{
	static const int classes[] = {NCCL_NET_TRAFFIC_CLASS_UNDEF, 0, 105, 255};

	check_load(t);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		struct link link;
		MUST(t, init, &t->ctx, 0x7463ull + i, classes[i]);
		link_open_local(t, t->opt->dev, &link);
		link_exchange(t, &link, 1000, i);
		link_close_local(t, &link);
	}
}
