/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about several groups, the net beside them, and the end of one. */
#include "coll_group.h"
#include "process.h"
#include "rules.h"

#include <string.h>

#define FLOATS ((size_t)5000)

struct bench {
	void *comm;
	struct buffer send, recv;
};

static void begin(struct check *t, struct bench *b)
{
	b->comm = coll_open(t);
	coll_buffer_open(t, &b->send, b->comm, 4 * FLOATS);
	coll_buffer_open(t, &b->recv, b->comm, 4 * FLOATS);
}

static void end(struct check *t, struct bench *b)
{
	coll_buffer_close(t, &b->recv, b->comm);
	coll_buffer_close(t, &b->send, b->comm);
	coll_close(t, b->comm);
}

/* ---- beside something else ------------------------------------------------------------------ */

void rule_coll_two_groups(struct check *t)
{
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);
	struct bench first, second;
	void *requests[2];

	begin(t, &first);
	begin(t, &second);
	for (uint64_t round = 0; round < 4; round++) {
		/* Each rank asks in another order: what is of different groups may overtake. */
		for (int i = 0; i < 2; i++) {
			const int which = i ^ t->rank;
			struct bench *b = which ? &second : &first;
			const struct np_coll_reduce reduce = coll_sum(&b->send, &b->recv, FLOATS);

			coll_fill(b->send.data, FLOATS, t->rank, 2 * round + (uint64_t)which);
			requests[which] = coll_post(t, b->comm, &reduce);
		}
		for (bool done[2] = {false}; !done[0] || !done[1];)
			for (int i = 0; i < 2; i++) {
				done[i] = done[i] || coll_test(t, requests[i]);
				check_poll(t, deadline, "of two groups one does not get on");
			}
		coll_expect(t, first.recv.data, FLOATS, 2 * round, "the first group");
		coll_expect(t, second.recv.data, FLOATS, 2 * round + 1, "the second group");
	}
	check_barrier(t);
	end(t, &first);
	coll_round(t, second.comm, &second.send, &second.recv, FLOATS, 99,
		   "when the first group was closed");
	check_barrier(t);
	end(t, &second);
}

/* A message from rank 0 to rank 1, over a connection of its own, while the group adds. */
static void beside(struct check *t, struct bench *b, uint64_t round)
{
	const bool sends = t->rank == CHECK_SENDER;
	void *net = link_open_pair(t, t->opt->dev), *request;
	struct buffer message;

	buffer_open(t, &message, net, 10007);
	if (sends)
		pattern_fill(message.data, message.size, round);
	request = sends ? post_send(t, net, message.data, message.size, 0, message.mhandle)
			: post_recv(t, net, message.data, message.size, 0, message.mhandle);
	if (b)
		coll_round(t, b->comm, &b->send, &b->recv, FLOATS, round, "beside a message");
	await_done(t, request, NULL, "a message beside an all-reduce did not complete");
	pattern_check(t, message.data, message.size, round, "a message beside an all-reduce");
	buffer_close(t, &message, net);
	check_barrier(t);
	if (sends)
		MUST(t, close_send, net);
	else
		MUST(t, close_recv, net);
}

void rule_coll_beside_net(struct check *t)
{
	struct bench b;

	begin(t, &b);
	beside(t, &b, 1);
	coll_round(t, b.comm, &b.send, &b.recv, FLOATS, 2, "when the net's connection was closed");
	beside(t, &b, 3);
	end(t, &b);
	beside(t, NULL, 4);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Rank 1 dies. What becomes of an all-reduce that rank 0 asks for then: an error. */
static ncclResult_t outlive(struct check *t, struct bench *b)
{
	uint64_t deadline = check_deadline(t, 15000);
	ncclResult_t result = ncclSuccess;
	struct np_coll_reduce reduce;
	void *request = NULL;
	int done = 0, size;

	begin(t, b);
	coll_round(t, b->comm, &b->send, &b->recv, FLOATS, 1, "a sum");
	check_barrier(t);
	if (t->rank == 1)
		check_die(t);
	reduce = coll_sum(&b->send, &b->recv, FLOATS);
	while (result == ncclSuccess && !done) {
		result = request ? COLL(t, test, request, &done, &size)
				 : COLL(t, iallreduce, b->comm, &reduce, &request);
		check_poll(t, deadline, "an all-reduce whose other rank is dead goes on for ever");
	}
	if (done)
		check_fail(t, "an all-reduce is done although the other rank is dead");
	return result;
}

void rule_coll_death(struct check *t)
{
	struct bench b;

	check_note(t, "%s", np_result_name(outlive(t, &b)));
}

void rule_coll_end_after_error(struct check *t)
{
	struct bench b;

	(void)outlive(t, &b);
	end(t, &b);
}

void rule_coll_close_in_flight(struct check *t)
{
	struct bench b;

	begin(t, &b);
	if (t->rank == 0) { /* the other one never asks for it */
		const struct np_coll_reduce reduce = coll_sum(&b.send, &b.recv, FLOATS);

		(void)coll_post(t, b.comm, &reduce);
		coll_close(t, b.comm);
	}
	check_barrier(t);
	if (t->rank == 1)
		coll_close(t, b.comm);
}

void rule_coll_leaks(struct check *t)
{
	const int cycles = t->opt->cycles / 10 > 6 ? t->opt->cycles / 10 : 6;
	int fds = 0, threads = 0;
	size_t heap = 0;

	for (int i = -4; i < cycles; i++) {
		if (i == 0) {
			fds = process_fds();
			threads = process_threads();
			heap = process_heap();
		}
		coll_prove_usable(t);
		check_barrier(t);
	}
	if (process_fds() > fds + 2 || process_threads() > threads + 2)
		check_fail(t, "descriptors %d, then %d; threads %d, then %d in %d groups", fds,
			   process_fds(), threads, process_threads(), cycles);
	/* A group is much larger than what malloc keeps for itself. */
	if (process_heap() > heap + 16384 + (size_t)cycles * 256)
		check_fail(t, "malloc'ed memory grew by %zu bytes in %d groups",
			   process_heap() - heap, cycles);
	check_note(t, "%d groups", cycles);
}
