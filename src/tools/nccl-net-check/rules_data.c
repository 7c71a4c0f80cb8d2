/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the content and the size of single messages. */
#include "link.h"
#include "rules.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB		 (1024 * 1024)
#define RECYCLE_MESSAGES 3000
#define RECYCLE_DEPTH	 8
#define RECYCLE_MOST	 2048

/* ---- content ------------------------------------------------------------------------------ */

void rule_data(struct check *t)
{
	static const size_t sizes[] = {
	    1,	   2,	  3,	  7,	   8,	 9,	  63,		64,	      65,
	    127,   128,	  129,	  1000,	   4095, 4096,	  4097,		8191,	      65535,
	    65536, 65537, 262143, MIB - 1, MIB,	 MIB + 1, 3 * MIB + 11, 5 * MIB + 13, 8 * MIB};
	enum { ROOM = 8 * MIB + 64, CANARY = 0x5c };
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, ROOM);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i];
		char *data = b.data + i % 7; /* odd addresses too */
		if (sender) {
			pattern_fill(data, size, i);
			void *request = post_send(t, comm, data, size, 5, b.mhandle);
			await_done(t, request, NULL, "a send did not complete");
		} else {
			memset(data, 0xee, size);
			memset(data + size, CANARY, 32);
			void *request = post_recv(t, comm, data, size, 5, b.mhandle);
			await_done(t, request, NULL, "a receive did not complete");
			pattern_check(t, data, size, i, "at the completion of the receive");
			for (int c = 0; c < 32; c++)
				if (data[size + (size_t)c] != CANARY)
					check_fail(t, "a message of %zu bytes wrote behind its end",
						   size);
		}
		check_barrier(t);
	}
}

/* ---- sizes -------------------------------------------------------------------------------- */

void rule_sizes(struct check *t)
{
	static const size_t sent[] = {1, 2, 13, 64, 1000, 4097, 65535, 300001, 2 * MIB + 1};
	enum { CAPACITY = 4 * MIB };
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, CAPACITY);
	for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		int sizes[NP_MAX_RECVS] = {-1};
		void *request = sender ? post_send(t, comm, b.data, sent[i], 5, b.mhandle)
				       : post_recv(t, comm, b.data, CAPACITY, 5, b.mhandle);
		await_done(t, request, sizes, "a message did not complete");
		if (!sender && sizes[0] != (int)sent[i])
			check_fail(t,
				   "test reports %d bytes for a send of %zu into a receive of %d",
				   sizes[0], sent[i], CAPACITY);
	}
}

void rule_size_zero(struct check *t)
{
	static const size_t sent[] = {0, 10, 0, 0, 20, 0};
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, 4096);
	for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
		int sizes[NP_MAX_RECVS] = {-1};
		void *request = sender ? post_send(t, comm, b.data, sent[i], 5, b.mhandle)
				       : post_recv(t, comm, b.data, 4096, 5, b.mhandle);
		await_done(t, request, sizes,
			   sent[i] ? "a message after one of 0 bytes did not complete"
				   : "a message of 0 bytes did not complete");
		if (!sender && sent[i] == 0 && sizes[0] != 0)
			check_fail(t, "test reports %d bytes for a send of 0", sizes[0]);
	}
}

/* ---- a send larger than its receive ------------------------------------------------------- */

/*
 * The user's fault. NCCL's own transport sends what the receive has room for, and both ends say so;
 * an error will do. Never a write behind the buffer.
 */
void rule_capacity(struct check *t)
{
	enum { ROOM = 8192, CAPACITY = 1000, SENT = 5000, CANARY = 0x6d };
	struct link link;
	struct buffer out, in;
	void *send = NULL;
	ncclResult_t result = ncclSuccess;
	int sizes[NP_MAX_RECVS] = {0}, ignored[NP_MAX_RECVS];
	bool sent = false, received = false;

	link_open_local(t, t->opt->dev, &link);
	link_exchange(t, &link, 1, 1);
	buffer_open(t, &out, link.send, SENT);
	buffer_open(t, &in, link.recv, ROOM);
	memset(in.data, CANARY, ROOM);
	pattern_fill(out.data, SENT, 5);
	void *recv = post_recv(t, link.recv, in.data, CAPACITY, 5, in.mhandle);
	uint64_t deadline = check_deadline(t, CHECK_STEP_MS);
	while (result == ncclSuccess && !received) {
		int done = 0;
		if (!sent)
			result = CALL(t, isend, link.send, out.data, SENT, 5, out.mhandle, &send);
		else if (send)
			result = CALL(t, test, send, &done, ignored);
		sent |= send != NULL;
		if (done)
			send = NULL;
		if (result == ncclSuccess) {
			done = 0;
			result = CALL(t, test, recv, &done, sizes);
			received = result == ncclSuccess && done;
		}
		check_poll(t, deadline,
			   "a send larger than its receive neither completes nor fails");
	}
	check_sleep_ms(20); /* what is still on its way */
	for (int i = CAPACITY; i < ROOM; i++)
		if (in.data[i] != CANARY)
			check_fail(t, "a send of %d bytes wrote byte %d of a receive of %d", SENT,
				   i, CAPACITY);
	if (received && sizes[0] >= 0 && sizes[0] <= CAPACITY)
		pattern_check(t, in.data, (size_t)sizes[0], 5, "a send that was cut off");
	if (received && sizes[0] > CAPACITY)
		check_fail(t, "test reports %d bytes in a receive of %d", sizes[0], CAPACITY);
	if (received)
		check_note(t, "truncated");
	else
		check_note(t, "reported as %s", np_result_name(result));
}

/* ---- completions -------------------------------------------------------------------------- */

/* Once a send is done its memory belongs to NCCL again. */
void rule_send_done(struct check *t)
{
	enum { SIZE = 16 * MIB, ROUNDS = 2 };
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, SIZE);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		if (sender) {
			pattern_fill(b.data, SIZE, round);
			void *request = post_send(t, comm, b.data, SIZE, 5, b.mhandle);
			await_done(t, request, NULL, "a send did not complete");
			memset(b.data, 0xdd, SIZE);
		} else {
			void *request = post_recv(t, comm, b.data, SIZE, 5, b.mhandle);
			check_sleep_ms(50); /* a slow receiver: most of it is still to be sent */
			await_done(t, request, NULL, "a receive did not complete");
			check_sleep_ms(20);
			pattern_check(t, b.data, SIZE, round,
				      "the sender's memory was read after its send was done");
		}
		check_barrier(t);
	}
}

struct recycle {
	struct buffer b;
	void *comm;
	void *requests[RECYCLE_DEPTH];
	uint64_t message[RECYCLE_DEPTH];
	size_t size[RECYCLE_DEPTH];
	uint64_t posted;
	unsigned sizes_seed; /* the same on both ranks */
	size_t next_size;
};

/* Offers the next message with slot s's memory; the plugin may have no room just now. */
static void recycle_post(struct check *t, struct recycle *r, int s)
{
	char *data = r->b.data + s * RECYCLE_MOST;
	void *where = data, *request = NULL;
	size_t room = RECYCLE_MOST;
	int tag = (int)r->posted;

	if (t->rank == CHECK_SENDER) {
		pattern_fill(data, r->next_size, r->posted);
		MUST(t, isend, r->comm, data, r->next_size, tag, r->b.mhandle, &request);
	} else {
		memset(data, 0xee, RECYCLE_MOST);
		MUST(t, irecv, r->comm, 1, &where, &room, &tag, &r->b.mhandle, &request);
	}
	if (!request)
		return;
	r->requests[s] = request;
	r->message[s] = r->posted++;
	r->size[s] = r->next_size;
	r->next_size = 1 + (size_t)rand_r(&r->sizes_seed) % RECYCLE_MOST;
}

/* Request slots are used again and again; each message has its own content, size and tag, and
 * completions are asked for in any order. */
void rule_recycle(struct check *t)
{
	static struct recycle r = {.sizes_seed = 4, .next_size = 1};
	unsigned order = 11 + (unsigned)t->rank, looks = 0;

	r.comm = link_open_pair(t, t->opt->dev);
	buffer_open(t, &r.b, r.comm, RECYCLE_DEPTH * RECYCLE_MOST);
	uint64_t deadline = check_deadline(t, 3 * CHECK_STEP_MS);
	for (uint64_t finished = 0; finished < RECYCLE_MESSAGES;) {
		int s = rand_r(&order) % RECYCLE_DEPTH;
		if (!r.requests[s] && r.posted < RECYCLE_MESSAGES)
			recycle_post(t, &r, s);
		if (r.requests[s] && test_once(t, r.requests[s], NULL)) {
			if (t->rank == CHECK_RECEIVER)
				pattern_check(t, r.b.data + s * RECYCLE_MOST, r.size[s],
					      r.message[s],
					      "a request in a slot used before completed without "
					      "its data");
			r.requests[s] = NULL;
			finished++;
			/* On a busy machine all of them take long; what hangs completes none. */
			deadline = check_deadline(t, 3 * CHECK_STEP_MS);
		}
		/* Each time costs a turn of whoever else is on this core. */
		if (++looks % RECYCLE_DEPTH == 0)
			check_poll(t, deadline, "messages through recycled slots do not complete");
	}
	check_note(t, "%d messages, %d in flight", RECYCLE_MESSAGES, RECYCLE_DEPTH);
}

/* ---- more than an int --------------------------------------------------------------------- */

#define CHUNK ((size_t)32 * MIB)

/*
 * Address space of `size` bytes that is one piece of memory over and over, with a last piece of
 * its own, so that gigabytes fit anywhere.
 */
static char *repeated_memory(struct check *t, size_t size)
{
	size_t chunks = (size + CHUNK - 1) / CHUNK;
	int fd = memfd_create("nccl-net-check", MFD_CLOEXEC);
	char *base = mmap(NULL, chunks * CHUNK, PROT_NONE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (fd < 0 || base == MAP_FAILED || ftruncate(fd, (off_t)CHUNK) != 0)
		check_skip(t, "cannot reserve %zu bytes of address space: %s", size,
			   strerror(errno));
	for (size_t i = 0; i < chunks; i++) {
		bool last = i == chunks - 1;
		int flags = MAP_FIXED | (last ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
		if (mmap(base + i * CHUNK, CHUNK, PROT_READ | PROT_WRITE, flags, last ? -1 : fd,
			 0) == MAP_FAILED)
			check_skip(t, "cannot map a piece of memory %zu times: %s", chunks,
				   strerror(errno));
	}
	close(fd);
	return base;
}

void rule_size_2g(struct check *t)
{
	const size_t size = ((size_t)2 << 30) + MIB + 3;
	const size_t tail = size / CHUNK * CHUNK; /* where the last piece begins */
	bool sender = t->rank == CHECK_SENDER;
	void *mhandle, *request;

	if (t->props.maxP2pBytes && t->props.maxP2pBytes < size)
		check_skip(t, "maxP2pBytes is %zu", t->props.maxP2pBytes);
	void *comm = link_open_pair(t, t->opt->dev);
	char *data = repeated_memory(t, size + 64);
	MUST(t, reg_mr, comm, data, size, NCCL_PTR_HOST, &mhandle);
	if (sender) {
		pattern_fill(data, CHUNK, 1);
		pattern_fill(data + tail, size - tail, 2);
		request = post_send(t, comm, data, size, 5, mhandle);
	} else {
		memset(data + tail, 0x3c, CHUNK);
		request = post_recv(t, comm, data, size, 5, mhandle);
	}
	uint64_t deadline = check_deadline(t, 40000);
	while (!test_once(t, request, NULL))
		check_poll(t, deadline, "a message of more than 2 GiB did not complete");
	if (!sender) {
		pattern_check(t, data, CHUNK, 1, "a message of more than 2 GiB, first 32 MiB");
		pattern_check(t, data + tail, size - tail, 2,
			      "a message of more than 2 GiB, the end");
		for (size_t i = size; i < size + 64; i++)
			if (data[i] != 0x3c)
				check_fail(t, "a message of %zu bytes wrote behind its end", size);
	}
	MUST(t, dereg_mr, comm, mhandle);
	check_barrier(t);
}
