/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- connections -------------------------------------------------------------------------- */

void *link_listen(struct check *t, int dev, struct link_handle *handle)
{
	void *listen_comm = NULL;

	memset(handle, 0, sizeof(*handle));
	MUST(t, listen, &t->ctx, dev, handle->bytes, &listen_comm);
	if (!listen_comm)
		check_fail(t, "listen succeeded without a listen comm");
	/* Only these travel. */
	memset(handle->slack, 0, sizeof(handle->slack));
	return listen_comm;
}

static bool try_connect(struct check *t, int dev, struct link_handle *handle, void **comm)
{
	*comm = NULL;
	MUST(t, connect, &t->ctx, dev, handle->bytes, comm, NULL);
	return *comm != NULL;
}

static bool try_accept(struct check *t, void *listen_comm, void **comm)
{
	*comm = NULL;
	MUST(t, accept, listen_comm, comm, NULL);
	return *comm != NULL;
}

static void *listening_end(struct check *t, int dev)
{
	struct link_handle handle;
	void *comm, *listen_comm = link_listen(t, dev, &handle);

	check_tell(t, handle.bytes, sizeof(handle.bytes));
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	while (!try_accept(t, listen_comm, &comm))
		check_poll(t, deadline, "accept gave no comm while the peer was connecting");
	MUST(t, close_listen, listen_comm);
	return comm;
}

static void *connecting_end(struct check *t, int dev)
{
	struct link_handle handle = {0};
	void *comm;

	check_hear(t, handle.bytes, sizeof(handle.bytes));
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	while (!try_connect(t, dev, &handle, &comm))
		check_poll(t, deadline, "connect gave no comm while the peer was accepting");
	return comm;
}

void *link_open_pair(struct check *t, int dev)
{
	return t->rank == CHECK_RECEIVER ? listening_end(t, dev) : connecting_end(t, dev);
}

void *link_open_back(struct check *t, int dev)
{
	return t->rank == CHECK_SENDER ? listening_end(t, dev) : connecting_end(t, dev);
}

void link_join_among(struct check *t, int dev, void *listen_comm, struct link_handle *handle,
		     struct link *link, void (*others)(void *arg), void *arg)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	*link = (struct link){NULL, NULL};
	while (!link->send || !link->recv) {
		if (!link->send)
			try_connect(t, dev, handle, &link->send);
		if (others)
			others(arg);
		if (!link->recv)
			try_accept(t, listen_comm, &link->recv);
		check_poll(t, deadline,
			   link->send ? "accept gave no comm although connect succeeded"
				      : "connect gave no comm while accept was called");
	}
}

void link_join(struct check *t, int dev, void *listen_comm, struct link_handle *handle,
	       struct link *link)
{
	link_join_among(t, dev, listen_comm, handle, link, NULL, NULL);
}

void link_open_local(struct check *t, int dev, struct link *link)
{
	struct link_handle handle;
	void *listen_comm = link_listen(t, dev, &handle);

	link_join(t, dev, listen_comm, &handle, link);
	MUST(t, close_listen, listen_comm);
}

void link_close_local(struct check *t, struct link *link)
{
	MUST(t, close_send, link->send);
	MUST(t, close_recv, link->recv);
}

/* ---- memory ------------------------------------------------------------------------------- */

static size_t mapped_size(size_t size)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	return (size + page - 1) / page * page + page;
}

char *memory_alloc(struct check *t, size_t size)
{
	size_t mapped = mapped_size(size), page = (size_t)sysconf(_SC_PAGESIZE);
	char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (base == MAP_FAILED)
		check_skip(t, "cannot map %zu bytes: %s", size, strerror(errno));
	mprotect(base + mapped - page, page, PROT_NONE);
	return base;
}

void memory_free(char *data, size_t size)
{
	munmap(data, mapped_size(size));
}

void buffer_open(struct check *t, struct buffer *b, void *comm, size_t size)
{
	*b = (struct buffer){.data = memory_alloc(t, size), .size = size};
	MUST(t, reg_mr, comm, b->data, size, NCCL_PTR_HOST, &b->mhandle);
}

void buffer_close(struct check *t, struct buffer *b, void *comm)
{
	MUST(t, dereg_mr, comm, b->mhandle);
	memory_free(b->data, b->size);
}

static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	uint64_t x = (index + 1) * 0x9e3779b97f4a7c15ull ^ (seed + 1) * 0xbf58476d1ce4e5b9ull;
	return x ^ x >> 29;
}

void pattern_fill(char *data, size_t size, uint64_t seed)
{
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);
		memcpy(data + at, &word, size - at < 8 ? size - at : 8);
	}
}

size_t pattern_mismatch(const char *data, size_t size, uint64_t seed)
{
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);
		size_t piece = size - at < 8 ? size - at : 8;
		if (memcmp(data + at, &word, piece) == 0)
			continue;
		for (size_t i = 0; i < piece; i++)
			if (data[at + i] != ((char *)&word)[i])
				return at + i;
	}
	return size;
}

void pattern_check(struct check *t, const char *data, size_t size, uint64_t seed, const char *what)
{
	size_t bad = pattern_mismatch(data, size, seed);

	if (bad < size)
		check_fail(t, "%s: wrong byte at offset %zu of %zu", what, bad, size);
}

/* ---- transfers ---------------------------------------------------------------------------- */

void *post_send(struct check *t, void *comm, void *data, size_t size, int tag, void *mhandle)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	for (;;) {
		void *request = NULL;
		MUST(t, isend, comm, data, size, tag, mhandle, &request);
		if (request)
			return request;
		check_poll(t, deadline, "isend was not accepted although a receive is posted");
	}
}

void *post_group(struct check *t, void *comm, int n, void **data, size_t *sizes, int *tags,
		 void **mhandles)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	for (;;) {
		void *request = NULL;
		MUST(t, irecv, comm, n, data, sizes, tags, mhandles, &request);
		if (request)
			return request;
		check_poll(t, deadline, "irecv was not accepted");
	}
}

void *post_recv(struct check *t, void *comm, void *data, size_t size, int tag, void *mhandle)
{
	return post_group(t, comm, 1, &data, &size, &tag, &mhandle);
}

bool test_once(struct check *t, void *request, int *sizes)
{
	int scratch[NP_MAX_RECVS], done = 0;

	MUST(t, test, request, &done, sizes ? sizes : scratch);
	return done != 0;
}

void await_done(struct check *t, void *request, int *sizes, const char *what)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	while (!test_once(t, request, sizes))
		check_poll(t, deadline, what);
}

void await_both(struct check *t, void *request_a, void *request_b, const char *what)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);

	while (request_a || request_b) {
		if (request_a && test_once(t, request_a, NULL))
			request_a = NULL;
		if (request_b && test_once(t, request_b, NULL))
			request_b = NULL;
		check_poll(t, deadline, what);
	}
}

void post_message(struct check *t, const struct link *link, const struct message *m, void **send,
		  void **recv)
{
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	void *data = m->in, *mhandle = m->in_mr;
	size_t room = m->size;
	int tag = m->tag;

	*send = *recv = NULL;
	for (bool sent = false; !sent || !*recv;) {
		if (!*recv)
			MUST(t, irecv, link->recv, 1, &data, &room, &tag, &mhandle, recv);
		if (!sent)
			MUST(t, isend, link->send, m->out, m->size, m->tag, m->out_mr, send);
		sent |= *send != NULL;
		/* The end that was accepted moves on, as NCCL's progress thread would have it. */
		if (!sent && *recv && test_once(t, *recv, NULL))
			check_fail(t, "a receive completed although nothing was sent");
		if (*send && !*recv && test_once(t, *send, NULL))
			*send = NULL;
		check_poll(t, deadline,
			   *recv ? "isend was not accepted although a receive is posted"
				 : "irecv was not accepted");
	}
}

void link_transfer(struct check *t, const struct link *link, const struct message *m,
		   const char *what)
{
	void *send, *recv;

	post_message(t, link, m, &send, &recv);
	await_both(t, send, recv, what);
}

void link_begin(struct check *t, void *comm, bool sends)
{
	enum { SIZE = 1, TAG = 0 };
	struct buffer b;

	buffer_open(t, &b, comm, SIZE);
	await_done(t,
		   sends ? post_send(t, comm, b.data, SIZE, TAG, b.mhandle)
			 : post_recv(t, comm, b.data, SIZE, TAG, b.mhandle),
		   NULL, "the first message of a connection did not complete");
	buffer_close(t, &b, comm);
}

void link_exchange(struct check *t, struct link *link, size_t size, uint64_t seed)
{
	struct buffer out, in;

	buffer_open(t, &out, link->send, size);
	buffer_open(t, &in, link->recv, size);
	pattern_fill(out.data, size, seed);
	link_transfer(t, link,
		      &(struct message){out.data, out.mhandle, in.data, in.mhandle, size, 1},
		      "a message between two ends of this process did not complete");
	pattern_check(t, in.data, size, seed, "message");
	buffer_close(t, &in, link->recv);
	buffer_close(t, &out, link->send);
}
