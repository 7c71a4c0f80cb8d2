/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about the end: closing early, closing late, a peer that is gone. */
#include "link.h"
#include "rules.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#define CLOSE_LIMIT_MS	3000
#define ERROR_WITHIN_MS 12000 /* how long a plugin may take to notice that its peer died */
#define DEPTH		4
#define MESSAGE		8000
#define LARGE		((size_t)16 << 20)

static void in_time(struct check *t, const char *call, uint64_t began_ns)
{
	double ms = (double)(check_now_ns() - began_ns) / 1e6;

	if (ms > CLOSE_LIMIT_MS * t->opt->time_scale)
		check_fail(t, "%s took %.0f ms", call, ms);
}

#define TIMED(t, fn, ...)                                                                          \
	do {                                                                                       \
		uint64_t began_ns_ = check_now_ns();                                               \
		MUST(t, fn, __VA_ARGS__);                                                          \
		in_time(t, #fn, began_ns_);                                                        \
	} while (0)

/* On abort NCCL joins the progress thread, deregisters, closes; requests are just left behind. */
void rule_close_in_flight(struct check *t)
{
	bool sender = t->rank == CHECK_SENDER;

	for (int round = 0; round < 2; round++) {
		struct buffer b;
		void *comm = link_open_pair(t, t->opt->dev);
		link_begin(t, comm, sender);
		buffer_open(t, &b, comm, LARGE);
		for (int i = 0; !sender && i < DEPTH; i++)
			post_recv(t, comm, b.data, LARGE, i, b.mhandle);
		check_barrier(t); /* receives are posted; nobody calls test any more */
		if (sender) {
			post_send(t, comm, b.data, LARGE, 0, b.mhandle);
			post_send(t, comm, b.data, 100, 1, b.mhandle);
		}
		check_barrier(t);
		if (sender == (round == 0)) { /* each end is once the first to go */
			TIMED(t, dereg_mr, comm, b.mhandle);
			if (sender)
				TIMED(t, close_send, comm);
			else
				TIMED(t, close_recv, comm);
			check_barrier(t);
		} else {
			check_barrier(t);
			TIMED(t, dereg_mr, comm, b.mhandle);
			if (sender)
				TIMED(t, close_send, comm);
			else
				TIMED(t, close_recv, comm);
		}
		check_barrier(t);
		memory_free(b.data, b.size); /* nothing may touch it any more */
	}
}

/* What a completed send has promised does not depend on the sender's memory and comm being there.
 */
void rule_close_after_send(struct check *t)
{
	enum { SIZE = 1 << 20 };
	bool sender = t->rank == CHECK_SENDER;
	struct buffer b;
	void *requests[DEPTH];
	void *comm = link_open_pair(t, t->opt->dev);

	buffer_open(t, &b, comm, DEPTH * SIZE);
	for (int i = 0; i < DEPTH; i++) {
		char *data = b.data + i * SIZE;
		if (sender)
			pattern_fill(data, SIZE, (uint64_t)i);
		requests[i] = sender ? post_send(t, comm, data, SIZE, i, b.mhandle)
				     : post_recv(t, comm, data, SIZE, i, b.mhandle);
	}
	for (int i = 0; i < DEPTH; i++) {
		if (!sender)
			check_sleep_ms(30); /* behind, so that something is left when it closes */
		await_done(t, requests[i], NULL,
			   sender ? "a send did not complete"
				  : "a receive did not complete after the sender had closed");
		if (!sender)
			pattern_check(t, b.data + i * SIZE, SIZE, (uint64_t)i,
				      "received after the sender had closed");
	}
	MUST(t, dereg_mr, comm, b.mhandle);
	if (sender)
		MUST(t, close_send, comm);
	check_barrier(t);
	if (!sender)
		MUST(t, close_recv, comm);
}

/* ---- a peer that dies --------------------------------------------------------------------- */

/* Both directions between the ranks, with requests that can never complete. Rank 0's view. */
struct bereaved {
	void *send, *recv;
	struct buffer out, in;
	void *sends[DEPTH], *recvs[DEPTH];
};

static void await_peer_death(struct check *t)
{
	struct pollfd p = {.fd = t->peer_fd, .events = POLLIN};
	char c;

	while (poll(&p, 1, 1000) == 0 || recv(t->peer_fd, &c, 1, MSG_DONTWAIT) > 0)
		;
}

/* Returns in rank 0, with rank 1 dead. */
static void lose_peer(struct check *t, struct bereaved *b)
{
	struct buffer theirs;
	void *forth = link_open_pair(t, t->opt->dev), *back = link_open_back(t, t->opt->dev);

	link_begin(t, forth, t->rank == CHECK_SENDER);
	link_begin(t, back, t->rank == CHECK_RECEIVER);
	if (t->rank == CHECK_RECEIVER) {
		buffer_open(t, &theirs, forth, LARGE);
		for (int i = 0; i < DEPTH; i++)
			post_recv(t, forth, theirs.data, LARGE, i, theirs.mhandle);
		check_barrier(t);
		check_barrier(t);
		check_die(t);
	}
	b->send = forth;
	b->recv = back;
	buffer_open(t, &b->out, b->send, LARGE);
	buffer_open(t, &b->in, b->recv, MESSAGE);
	for (int i = 0; i < DEPTH; i++)
		b->recvs[i] = post_recv(t, b->recv, b->in.data, MESSAGE, i, b->in.mhandle);
	check_barrier(t);
	for (int i = 0; i < DEPTH; i++)
		b->sends[i] = post_send(t, b->send, b->out.data, LARGE, i, b->out.mhandle);
	check_barrier(t);
	await_peer_death(t);
}

/* Drives the survivors' requests; true when one of the two comms has reported an error. */
static bool await_error(struct check *t, struct bereaved *b, bool *send_failed, bool *recv_failed)
{
	uint64_t until = check_deadline(t, ERROR_WITHIN_MS);
	bool send_done[DEPTH] = {false};

	*send_failed = *recv_failed = false;
	while (check_now_ns() < until && !(*send_failed && *recv_failed)) {
		int sizes[NP_MAX_RECVS], done = 0;
		if (!*recv_failed)
			*recv_failed = CALL(t, test, b->recvs[0], &done, sizes) != ncclSuccess;
		if (done)
			check_fail(t,
				   "a receive completed although its sender died before sending");
		for (int i = 0; i < DEPTH && !*send_failed; i++) {
			done = 0;
			if (!send_done[i])
				*send_failed =
				    CALL(t, test, b->sends[i], &done, sizes) != ncclSuccess;
			send_done[i] |= done != 0;
		}
		if (!*send_failed && send_done[DEPTH - 1]) {
			/* all had left before the death; a further one cannot succeed */
			void *request = NULL;
			*send_failed = CALL(t, isend, b->send, b->out.data, MESSAGE, 50,
					    b->out.mhandle, &request) != ncclSuccess;
		}
		check_sleep_ms(1);
	}
	return *send_failed || *recv_failed;
}

void rule_close_after_death(struct check *t)
{
	struct bereaved b;
	uint64_t until;

	lose_peer(t, &b);
	/* NCCL's progress thread runs on for a while; what it hears is not this rule's matter */
	until = check_deadline(t, 200);
	for (bool failed = false; !failed && check_now_ns() < until; check_sleep_ms(1)) {
		int sizes[NP_MAX_RECVS], done = 0;
		failed = CALL(t, test, b.recvs[0], &done, sizes) != ncclSuccess;
	}
	CALL(t, dereg_mr, b.send, b.out.mhandle);
	CALL(t, dereg_mr, b.recv, b.in.mhandle);
	TIMED(t, close_send, b.send);
	TIMED(t, close_recv, b.recv);
}

void rule_dereg_after_error(struct check *t)
{
	struct bereaved b;
	bool send_failed, recv_failed;

	lose_peer(t, &b);
	if (!await_error(t, &b, &send_failed, &recv_failed))
		check_skip(t, "no error is reported within %d s of the peer's death",
			   ERROR_WITHIN_MS / 1000);
	TIMED(t, dereg_mr, b.send, b.out.mhandle);
	TIMED(t, dereg_mr, b.recv, b.in.mhandle);
}

void rule_error_latched(struct check *t)
{
	struct bereaved b;
	bool send_failed, recv_failed;
	int sizes[NP_MAX_RECVS], tag = 70;
	size_t size = MESSAGE;

	lose_peer(t, &b);
	if (!await_error(t, &b, &send_failed, &recv_failed))
		check_skip(t, "no error is reported within %d s of the peer's death",
			   ERROR_WITHIN_MS / 1000);
	for (int i = 0; i < 10; i++) {
		void *request = NULL, *data = b.in.data;
		int done = 0;
		if (send_failed && CALL(t, isend, b.send, b.out.data, MESSAGE, 60, b.out.mhandle,
					&request) == ncclSuccess)
			check_fail(t, "isend succeeds after the comm reported an error");
		if (recv_failed && CALL(t, irecv, b.recv, 1, &data, &size, &tag, &b.in.mhandle,
					&request) == ncclSuccess)
			check_fail(t, "irecv succeeds after the comm reported an error");
		if (recv_failed && CALL(t, test, b.recvs[1], &done, sizes) == ncclSuccess)
			check_fail(t, "test succeeds after the comm reported an error");
		check_sleep_ms(2);
	}
	check_note(t, "noticed by the %s",
		   send_failed && recv_failed ? "send and the receive comm"
		   : send_failed	      ? "send comm"
					      : "receive comm");
}
