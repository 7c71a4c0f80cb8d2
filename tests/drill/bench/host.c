/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host of the benchmark: connects as NCCL's service thread does, then sends or receives on all
 * connections in turn as its progress thread does.
 */
#include "bench.h"

#include "tools/common/clock.h"
#include "tools/common/logger.h"
#include "tools/common/netcalls.h"
#include "tools/common/netplugin.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_LIMIT_NS (60 * NP_NS_PER_S)
#define PHASE_US	 50000 /* seldom enough to cost nothing where idleness is measured */
#define SHIFTS		 4096  /* of the pattern, so many messages differ in every byte */

struct conn {
	void *comm;
	void *mr;
	void *requests[BENCH_MAX_DEPTH];
	uint64_t posted, done;
	bool lost; /* its peer is gone, as it should be */
};

struct host {
	struct bench_shared *shared;
	int number;
	int first, stride; /* of the connections, those that are this process's */
	struct np_plugin *net;
	struct np_ctx ctx;
	uint8_t *memory;  /* conns × depth messages */
	uint8_t *pattern; /* what messages are made of */
	struct conn conns[BENCH_MAX_CONNS];
};

static bool fail(struct host *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Always false. The first one to fail is told. */
static bool fail(struct host *h, const char *fmt, ...)
{
	int none = 0;
	va_list ap;

	if (atomic_load(&h->shared->failed))
		return false;
	va_start(ap, fmt);
	vsnprintf(h->shared->why, sizeof(h->shared->why), fmt, ap);
	va_end(ap);
	atomic_compare_exchange_strong(&h->shared->failed, &none, h->number + 1);
	return false;
}

static bool give_up(const struct host *h)
{
	return atomic_load_explicit(&h->shared->stop, memory_order_relaxed) ||
	       atomic_load_explicit(&h->shared->failed, memory_order_relaxed);
}

/* True at the end, too: there is nothing left to do then. */
static bool wait_for(struct host *h, enum bench_phase phase)
{
	while (!give_up(h) && atomic_load(&h->shared->phase) < (int)phase)
		usleep(PHASE_US);
	return true;
}

static uint8_t *message(const struct host *h, int c, uint64_t n)
{
	size_t slot =
	    (size_t)c * (size_t)h->shared->depth + (size_t)(n % (uint64_t)h->shared->depth);

	return h->memory + slot * h->shared->bytes;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static bool accept_one(struct host *h, int c, uint64_t deadline_ns)
{
	struct bench_conn *shared = &h->shared->conn[c];
	void *listen = NULL;

	if (np_listen(h->net, &h->ctx, h->shared->crossed ? 1 : 0, shared->handle, &listen) !=
	    ncclSuccess)
		return fail(h, "listen of connection %d failed", c);
	atomic_store(&shared->listening, true);
	while (!h->conns[c].comm) {
		if (np_accept(h->net, listen, &h->conns[c].comm, NULL) != ncclSuccess)
			return fail(h, "accept of connection %d failed", c);
		if (give_up(h) || np_now_ns() > deadline_ns)
			return fail(h, "nobody connected to connection %d", c);
		if (!h->conns[c].comm)
			sched_yield();
	}
	return np_close_listen(h->net, listen) == ncclSuccess || fail(h, "closeListen failed");
}

static bool connect_one(struct host *h, int c, uint64_t deadline_ns)
{
	struct bench_conn *shared = &h->shared->conn[c];
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];

	while (!atomic_load(&shared->listening)) {
		if (give_up(h) || np_now_ns() > deadline_ns)
			return fail(h, "nobody listens for connection %d", c);
		usleep(100);
	}
	memcpy(handle, shared->handle, sizeof(handle));
	while (!h->conns[c].comm) {
		if (np_connect(h->net, &h->ctx, 0, handle, &h->conns[c].comm, NULL) != ncclSuccess)
			return fail(h, "connect of connection %d failed", c);
		if (give_up(h) || np_now_ns() > deadline_ns)
			return fail(h, "connection %d was not accepted", c);
		if (!h->conns[c].comm)
			sched_yield();
	}
	return true;
}

static bool connect_all(struct host *h)
{
	uint64_t deadline = np_now_ns() + CONNECT_LIMIT_NS;
	size_t len = (size_t)h->shared->depth * h->shared->bytes;

	for (int c = h->first; c < h->shared->conns; c += h->stride) {
		if (h->number == BENCH_RECEIVER ? !accept_one(h, c, deadline)
						: !connect_one(h, c, deadline))
			return false;
		if (np_reg_mr(h->net, h->conns[c].comm, message(h, c, 0), len, NCCL_PTR_HOST,
			      &h->conns[c].mr) != ncclSuccess)
			return fail(h, "regMr of connection %d failed", c);
		if (h->number == BENCH_RECEIVER)
			atomic_store(&h->shared->conn[c].up_ns, np_now_ns());
		atomic_fetch_add(&h->shared->connected[h->number], 1);
	}
	return true;
}

static void disconnect_all(struct host *h)
{
	for (int c = h->first; c < h->shared->conns; c += h->stride) {
		struct conn *conn = &h->conns[c];

		if (conn->mr && np_dereg_mr(h->net, conn->comm, conn->mr) != ncclSuccess)
			fail(h, "deregMr of connection %d failed", c);
		if (conn->comm && (h->number == BENCH_RECEIVER
				       ? np_close_recv(h->net, conn->comm)
				       : np_close_send(h->net, conn->comm)) != ncclSuccess)
			fail(h, "close of connection %d failed", c);
	}
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Behind the header; from connection and sequence. */
static const uint8_t *body(const struct host *h, int c, uint64_t sequence)
{
	return h->pattern + bench_word(c, sequence, -1) % SHIFTS;
}

static size_t body_bytes(const struct host *h)
{
	return h->shared->bytes - sizeof(struct bench_header);
}

static bool make_pattern(struct host *h)
{
	size_t words = (h->shared->bytes + SHIFTS) / sizeof(uint64_t) + 1;
	uint64_t *pattern = malloc(words * sizeof(*pattern));

	for (size_t i = 0; pattern && i < words; i++)
		pattern[i] = bench_word(-1, i, 0);
	h->pattern = (uint8_t *)pattern;
	return pattern != NULL;
}

static void write_message(const struct host *h, int c, uint64_t sequence)
{
	struct bench_header header = {.sequence = sequence, .posted_ns = np_now_ns()};

	for (int i = 0; i < BENCH_FILL_WORDS; i++)
		header.fill[i] = bench_word(c, sequence, i);
	memcpy(message(h, c, sequence), &header, sizeof(header));
	memcpy(message(h, c, sequence) + sizeof(header), body(h, c, sequence), body_bytes(h));
}

static bool read_message(struct host *h, int c, uint64_t sequence, struct bench_header *header)
{
	const uint8_t *data = message(h, c, sequence);
	bool right;

	memcpy(header, data, sizeof(*header));
	right = header->sequence == sequence &&
		memcmp(data + sizeof(*header), body(h, c, sequence), body_bytes(h)) == 0;
	for (int i = 0; i < BENCH_FILL_WORDS; i++)
		right = right && header->fill[i] == bench_word(c, sequence, i);
	return right ||
	       fail(h, "connection %d: message %llu came where %llu was due, or with wrong bytes",
		    c, (unsigned long long)header->sequence, (unsigned long long)sequence);
}

static void note_arrival(struct host *h, int c, const struct bench_header *header)
{
	struct bench_conn *shared = &h->shared->conn[c];
	uint64_t now = np_now_ns();
	uint64_t fault = atomic_load_explicit(&h->shared->fault_ns, memory_order_acquire);

	atomic_store_explicit(&shared->received, header->sequence + 1, memory_order_relaxed);
	if (!fault || header->posted_ns <= fault)
		atomic_store_explicit(&shared->last_before_ns, now, memory_order_relaxed);
	else if (!atomic_load_explicit(&shared->first_after_ns, memory_order_relaxed))
		atomic_store_explicit(&shared->first_after_ns, now, memory_order_release);
}

/* ---- traffic --------------------------------------------------------------------------------- */

/* The error that has to come when the other host was killed. Notes when it did. */
static bool is_bereaved(struct host *h, int c, ncclResult_t result)
{
	_Atomic uint64_t *lost_ns = &h->shared->conn[c].lost_ns;

	if (result != ncclRemoteError || atomic_load(&h->shared->victim) != !h->number + 1)
		return false;
	atomic_store(lost_ns, np_now_ns());
	h->conns[c].lost = true;
	return true;
}

/* -1: failed; else whether anything moved. */
static int post_more(struct host *h, int c)
{
	struct conn *conn = &h->conns[c];
	size_t bytes = h->shared->bytes;
	ncclResult_t result;
	void *data, *request = NULL;
	int tag = 7, moved = 0;

	while (conn->posted - conn->done < (uint64_t)h->shared->depth) {
		data = message(h, c, conn->posted);
		if (h->number == BENCH_SENDER) {
			write_message(h, c, conn->posted);
			result = np_isend(h->net, conn->comm, data, bytes, tag, conn->mr, &request);
		} else {
			memset(data, 0, sizeof(struct bench_header));
			result = np_irecv(h->net, conn->comm, 1, &data, &bytes, &tag, &conn->mr,
					  &request);
		}
		if (is_bereaved(h, c, result))
			break;
		if (result != ncclSuccess) {
			fail(h, "%s on connection %d returned %s",
			     h->number == BENCH_SENDER ? "isend" : "irecv", c,
			     np_result_name(result));
			return -1;
		}
		if (!request)
			break;
		conn->requests[conn->posted++ % (uint64_t)h->shared->depth] = request;
		request = NULL;
		moved = 1;
	}
	return moved;
}

static int test_oldest(struct host *h, int c)
{
	struct conn *conn = &h->conns[c];
	struct bench_header header;
	int done = 0, size = 0, moved = 0;
	ncclResult_t result;

	while (conn->done < conn->posted && !conn->lost) {
		result = np_test(h->net, conn->requests[conn->done % (uint64_t)h->shared->depth],
				 &done, &size);
		if (is_bereaved(h, c, result))
			break;
		if (result != ncclSuccess) {
			fail(h, "test on connection %d returned %s", c, np_result_name(result));
			return -1;
		}
		if (!done)
			break;
		if (h->number == BENCH_RECEIVER) {
			if (!read_message(h, c, conn->done, &header))
				return -1;
			note_arrival(h, c, &header);
		}
		conn->done++;
		moved = 1;
	}
	return moved;
}

/* False when something failed. */
static bool exchange(struct host *h)
{
	while (!give_up(h)) {
		int moved = 0;

		for (int c = h->first; c < h->shared->conns; c += h->stride) {
			int posted, tested;

			if (h->conns[c].lost)
				continue;
			posted = post_more(h, c);
			tested = posted < 0 ? -1 : test_oldest(h, c);
			if (tested < 0)
				return false;
			moved |= posted | tested;
		}
		if (!moved)
			sched_yield();
	}
	return true;
}

/* A child that does nothing, and has by the fork what its parent had open. */
static bool start_child(struct host *h)
{
	pid_t child = h->shared->parent == h->number + 1 ? fork() : 1;

	if (child == 0) {
		while (!atomic_load(&h->shared->stop))
			usleep(PHASE_US);
		_exit(0);
	}
	return child > 0 || fail(h, "cannot fork");
}

int bench_host(struct bench_shared *shared, int host)
{
	struct host *h = calloc(1, sizeof(*h));
	char err[900];
	bool ok;

	if (!h)
		return 1;
	h->shared = shared;
	h->number = host;
	h->first = atomic_fetch_add(&shared->started[host], 1);
	h->stride = host == BENCH_SENDER ? shared->peers : 1;
	if (h->first == 0)
		atomic_store(&shared->pid[host], (int)getpid());
	np_logger_set_prefix(host == BENCH_SENDER ? "sender" : "receiver");
	h->memory = calloc((size_t)shared->conns * (size_t)shared->depth, shared->bytes);
	h->net = np_open("ha", 0, err, sizeof(err));
	if (!h->memory || !make_pattern(h) || !h->net) {
		fail(h, "%.300s", h->net ? "out of memory" : err);
		return 1;
	}
	ok = np_init(h->net, &h->ctx, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF) == ncclSuccess ||
	     fail(h, "init failed");
	atomic_fetch_add(&shared->ready[host], 1);
	ok = ok && wait_for(h, BENCH_CONNECT) && connect_all(h) && start_child(h) &&
	     wait_for(h, BENCH_TRAFFIC) && exchange(h);
	disconnect_all(h);
	np_finalize(h->net, &h->ctx);
	np_close(h->net);
	free(h->memory);
	free(h->pattern);
	free(h);
	return ok ? 0 : 1;
}
