/* SPDX-License-Identifier: Apache-2.0 */
/* Rules about all-reduces of a collNet: what they give, and when. */
#include "coll_group.h"
#include "process.h"
#include "rules.h"

#include <string.h>
#include <unistd.h>

#define FLOATS	       ((size_t)60000)
#define OUTSTANDING    64 /* NCCL_STEPS for each of eight groups of channels */
#define AT_ONCE_ROUNDS 3
#define AT_ONCE_MS     100 /* what a call that does not wait may take; the other rank comes later */
#define LATE_MS	       400

/* A group, and registered memory to add. */
struct bench {
	void *comm;
	struct buffer send, recv;
};

static void begin(struct check *t, struct bench *b, size_t bytes)
{
	b->comm = coll_open(t);
	coll_buffer_open(t, &b->send, b->comm, bytes);
	coll_buffer_open(t, &b->recv, b->comm, bytes);
}

static void end(struct check *t, struct bench *b)
{
	check_barrier(t);
	coll_buffer_close(t, &b->recv, b->comm);
	coll_buffer_close(t, &b->send, b->comm);
	coll_close(t, b->comm);
}

/* ---- values of every type ------------------------------------------------------------------- */

/* 1 … 4 in each of NCCL's types; the bytes of one. */
static size_t put(ncclDataType_t type, unsigned value, char *at)
{
	static const uint16_t half[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400},
			      bf16[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080};
	static const uint8_t e4m3[] = {0, 0x38, 0x40, 0x44, 0x48},
			     e5m2[] = {0, 0x3c, 0x40, 0x42, 0x44};
	const uint64_t wide = value;
	const float single = (float)value;
	const double twice = value;

	switch (type) {
	case ncclInt8:
	case ncclUint8:
		*at = (char)value;
		return 1;
	case ncclInt32:
	case ncclUint32:
		memcpy(at, &value, 4);
		return 4;
	case ncclInt64:
	case ncclUint64:
		memcpy(at, &wide, 8);
		return 8;
	case ncclFloat16:
		memcpy(at, &half[value], 2);
		return 2;
	case ncclBfloat16:
		memcpy(at, &bf16[value], 2);
		return 2;
	case ncclFloat32:
		memcpy(at, &single, 4);
		return 4;
	case ncclFloat64:
		memcpy(at, &twice, 8);
		return 8;
	case ncclFloat8e4m3:
		*at = (char)e4m3[value];
		return 1;
	default:
		*at = (char)e5m2[value];
		return 1;
	}
}

static unsigned value_of(int rank, size_t index)
{
	return 1 + (unsigned)(index >> rank & 1); /* of 4 elements all pairs */
}

static unsigned result_of(ncclRedOp_t op, size_t index)
{
	const unsigned a = value_of(0, index), b = value_of(1, index);

	switch (op) {
	case ncclSum:
		return a + b;
	case ncclProd:
		return a * b;
	case ncclMax:
		return a > b ? a : b;
	default:
		return a < b ? a : b;
	}
}

static void reduce_one(struct check *t, struct bench *b, ncclDataType_t type, ncclRedOp_t op)
{
	enum { COUNT = 61 };
	char expected[8 * COUNT];
	size_t size = 0;
	struct np_coll_reduce reduce = coll_sum(&b->send, &b->recv, COUNT);

	reduce.type = type;
	reduce.op = op;
	for (size_t i = 0; i < COUNT; i++) {
		size = put(type, value_of(t->rank, i), b->send.data + i * size);
		put(type, result_of(op, i), expected + i * size);
	}
	coll_await(t, coll_post(t, b->comm, &reduce), "an all-reduce did not complete");
	if (memcmp(expected, b->recv.data, COUNT * size) != 0)
		check_fail(t, "type %d, operation %d, which it says it can: a wrong element",
			   (int)type, (int)op);
}

void rule_coll_types(struct check *t)
{
	struct bench b;
	int tried = 0;

	begin(t, &b, 4096);
	for (int type = 0; type <= ncclFloat8e5m2; type++) {
		for (int op = 0; op <= ncclMin; op++) {
			int can = 0;

			MUST_COLL(t, reduce_support, (ncclDataType_t)type, (ncclRedOp_t)op, &can);
			if (!can)
				continue;
			reduce_one(t, &b, (ncclDataType_t)type, (ncclRedOp_t)op);
			tried++;
		}
	}
	check_note(t, "%d pairs of type and operation", tried);
	end(t, &b);
}

/* ---- right results -------------------------------------------------------------------------- */

void rule_coll_data(struct check *t)
{
	struct bench b;

	begin(t, &b, 4 * FLOATS);
	for (uint64_t round = 0; round < 4; round++)
		coll_round(t, b.comm, &b.send, &b.recv, FLOATS - round, round, "a sum");
	end(t, &b);
}

void rule_coll_bounds(struct check *t)
{
	const size_t count = 1001, at = 512;
	struct bench b;
	struct np_coll_reduce reduce;

	begin(t, &b, 4 * FLOATS);
	memset(b.recv.data, 0x5a, b.recv.size);
	reduce = coll_sum(&b.send, &b.recv, count);
	reduce.recv = b.recv.data + at;
	coll_fill(b.send.data, count, t->rank, 7);
	coll_await(t, coll_post(t, b.comm, &reduce), "an all-reduce did not complete");
	check_barrier(t);
	for (size_t i = 0; i < b.recv.size; i++)
		if ((i < at || i >= at + 4 * count) && b.recv.data[i] != 0x5a)
			check_fail(t, "a result of %zu bytes at %zu has written byte %zu",
				   4 * count, at, i);
	end(t, &b);
}

void rule_coll_counts(struct check *t)
{
	static const size_t counts[] = {0, 1, 2, 7, 15, 1023, 1025, 16384, 33333};
	struct bench b;

	begin(t, &b, 4 * FLOATS);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		coll_round(t, b.comm, &b.send, &b.recv, counts[i], i, "a sum");
	end(t, &b);
}

void rule_coll_in_place(struct check *t)
{
	struct bench b;
	struct np_coll_reduce reduce;

	begin(t, &b, 4 * FLOATS);
	reduce = coll_sum(&b.send, &b.send, FLOATS);
	coll_fill(b.send.data, FLOATS, t->rank, 3);
	coll_await(t, coll_post(t, b.comm, &reduce), "an all-reduce in place did not complete");
	coll_expect(t, b.send.data, FLOATS, 3, "in place");
	end(t, &b);
}

void rule_coll_send_kept(struct check *t)
{
	struct bench b;
	char *again;

	begin(t, &b, 4 * FLOATS);
	coll_round(t, b.comm, &b.send, &b.recv, FLOATS, 11, "a sum");
	again = memory_alloc(t, 4 * FLOATS);
	coll_fill(again, FLOATS, t->rank, 11);
	if (memcmp(again, b.send.data, 4 * FLOATS) != 0)
		check_fail(t, "the contribution has changed");
	end(t, &b);
}

/* Rank 1 is slow to ask whether it is done, while rank 0 uses its memory for something else. */
void rule_coll_done(struct check *t)
{
	struct bench b;

	begin(t, &b, 4 * FLOATS);
	for (uint64_t round = 0; round < 8; round++) {
		const struct np_coll_reduce reduce = coll_sum(&b.send, &b.recv, FLOATS);
		void *request;

		coll_fill(b.send.data, FLOATS, t->rank, round);
		request = coll_post(t, b.comm, &reduce);
		if ((round & 1) == (uint64_t)t->rank)
			check_sleep_ms(5);
		coll_await(t, request, "an all-reduce did not complete");
		coll_expect(t, b.recv.data, FLOATS, round, "when it was done");
		memset(b.send.data, 0xff, b.send.size);
	}
	end(t, &b);
}

/* Behind what is to be added lies what was there before: NCCL adds whole chunks. */
void rule_coll_stale(struct check *t)
{
	static const uint32_t stale[] = {0x7fc00000, 0x00000001, 0x33333333, 0xff800000,
					 0x7f800000, 0x7f800001, 0x807fffff, 0xffffffff};
	struct bench b;
	const struct np_coll_reduce *reduce;
	struct np_coll_reduce all;

	begin(t, &b, 4 * FLOATS);
	all = coll_sum(&b.send, &b.recv, FLOATS);
	reduce = &all;
	coll_fill(b.send.data, 100, t->rank, 5);
	for (size_t i = 100; i < FLOATS; i++)
		memcpy(b.send.data + 4 * i, &stale[(i + (size_t)t->rank) % 8], 4);
	coll_await(t, coll_post(t, b.comm, reduce), "an all-reduce did not complete");
	coll_expect(t, b.recv.data, 100, 5, "in front of NaN and denormals");
	end(t, &b);
}

void rule_coll_wrap(struct check *t)
{
	const uint32_t mine = t->rank ? 0x80000001u : 0x90000000u, sum = 0x10000001u;
	struct bench b;
	struct np_coll_reduce reduce;
	int can = 0;

	MUST_COLL(t, reduce_support, ncclUint32, ncclSum, &can);
	if (!can)
		check_skip(t, "it does not add integers");
	begin(t, &b, 4096);
	reduce = coll_sum(&b.send, &b.recv, 1);
	reduce.type = ncclUint32;
	memcpy(b.send.data, &mine, 4);
	coll_await(t, coll_post(t, b.comm, &reduce), "an all-reduce did not complete");
	if (memcmp(b.recv.data, &sum, 4) != 0)
		check_fail(t, "0x90000000 and 0x80000001 do not make 0x10000001");
	end(t, &b);
}

/* ---- requests ------------------------------------------------------------------------------- */

/* So many floats for each of several all-reduces. */
#define PIECE ((size_t)700)

static struct np_coll_reduce piece(const struct bench *b, size_t index)
{
	struct np_coll_reduce reduce = coll_sum(&b->send, &b->recv, PIECE - index % 3);

	reduce.send = b->send.data + 4 * PIECE * index;
	reduce.recv = b->recv.data + 4 * PIECE * index;
	return reduce;
}

static void fill_piece(struct check *t, const struct bench *b, size_t index)
{
	coll_fill(b->send.data + 4 * PIECE * index, PIECE, t->rank, index);
}

static void expect_piece(struct check *t, const struct bench *b, size_t index)
{
	coll_expect(t, b->recv.data + 4 * PIECE * index, PIECE - index % 3, index,
		    "one of several at a time");
}

/* "Not now" is said by a NULL, whatever was there. */
void rule_coll_request_written(struct check *t)
{
	enum { MOST = 512 };
	static void *requests[MOST];
	char untouched;
	struct bench b;
	int taken = 0;

	begin(t, &b, 4 * PIECE);
	check_barrier(t);
	for (int refused = 0; taken < MOST && refused < 3;) {
		const struct np_coll_reduce reduce = piece(&b, 0);
		void *request = &untouched;

		/* The other rank asks for none yet, so that they pile up. */
		if (t->rank == 1)
			break;
		MUST_COLL(t, iallreduce, b.comm, &reduce, &request);
		if (request == &untouched)
			check_fail(t, "iallreduce %d left the request as it was", taken);
		if (request)
			requests[taken++] = request;
		refused += !request;
	}
	check_note(t, "%d at a time", taken);
	if (t->rank == 0)
		check_tell(t, &taken, sizeof(taken));
	else
		check_hear(t, &taken, sizeof(taken));
	for (int i = 0; i < taken && t->rank == 1; i++) {
		const struct np_coll_reduce reduce = piece(&b, 0);

		coll_await(t, coll_post(t, b.comm, &reduce), "an all-reduce did not complete");
	}
	for (int i = 0; i < taken && t->rank == 0; i++)
		coll_await(t, requests[i], "an all-reduce did not complete");
	end(t, &b);
}

/* As many as NCCL has; asked about from the first to the last, or backwards. */
static void many(struct check *t, bool is_backwards)
{
	static void *requests[OUTSTANDING];
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);
	struct bench b;
	int left = OUTSTANDING, posted = 0;

	begin(t, &b, 4 * PIECE * OUTSTANDING);
	for (size_t i = 0; i < OUTSTANDING; i++)
		fill_piece(t, &b, i);
	while (left > 0) {
		for (; posted < OUTSTANDING; posted++) {
			const struct np_coll_reduce reduce = piece(&b, (size_t)posted);

			requests[posted] = NULL;
			MUST_COLL(t, iallreduce, b.comm, &reduce, &requests[posted]);
			if (!requests[posted])
				break;
		}
		for (int i = 0; i < posted; i++) {
			const int at = is_backwards ? posted - 1 - i : i;

			if (!requests[at] || !coll_test(t, requests[at]))
				continue;
			requests[at] = NULL;
			expect_piece(t, &b, (size_t)at);
			left--;
		}
		check_poll(t, deadline, "not all of 64 all-reduces completed");
	}
	end(t, &b);
}

void rule_coll_outstanding(struct check *t)
{
	many(t, false);
}

void rule_coll_order(struct check *t)
{
	many(t, true);
}

void rule_coll_size_null(struct check *t)
{
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);
	struct bench b;
	struct np_coll_reduce reduce;
	void *request;
	int done = 0;

	begin(t, &b, 4 * FLOATS);
	reduce = coll_sum(&b.send, &b.recv, FLOATS);
	request = coll_post(t, b.comm, &reduce);
	while (!done) {
		MUST_COLL(t, test, request, &done, NULL);
		check_poll(t, deadline, "an all-reduce did not complete");
	}
	end(t, &b);
}

/* What this thread has been at work or asleep for, not counting that it had no processor. */
static int64_t own_ns(void)
{
	return (int64_t)(check_now_ns() - thread_queued_ns((pid_t)gettid()));
}

static int64_t longer_ns(int64_t longest_ns, int64_t since_ns)
{
	const int64_t took_ns = own_ns() - since_ns;

	return took_ns > longest_ns ? took_ns : longest_ns;
}

/*
 * `longest` has the other rank ask late, and says what the longest call took. One that waits for
 * the other rank does so each time; one that the machine stopped does not.
 */
static void expect_quick(struct check *t, const char *call, int64_t (*longest)(struct check *t))
{
	const int64_t limit_ns = (int64_t)AT_ONCE_MS * 1000000 * t->opt->time_scale;
	int64_t took_ns = 0;
	bool is_slow = true;

	for (int i = 0; i < AT_ONCE_ROUNDS && check_either(t, is_slow); i++) {
		took_ns = longest(t);
		is_slow = t->rank == 0 && took_ns > limit_ns;
	}
	if (is_slow)
		check_fail(t, "%s took %lld ms while the other rank had not asked yet", call,
			   (long long)(took_ns / 1000000));
}

static int64_t longest_iallreduce_ns(struct check *t)
{
	struct bench b;
	struct np_coll_reduce reduce;
	void *request = NULL;
	int64_t longest_ns = 0;

	begin(t, &b, 4 * FLOATS);
	reduce = coll_sum(&b.send, &b.recv, FLOATS);
	check_barrier(t);
	if (t->rank == 1)
		check_sleep_ms(LATE_MS * t->opt->time_scale);
	while (!request) {
		const int64_t since_ns = own_ns();

		MUST_COLL(t, iallreduce, b.comm, &reduce, &request);
		longest_ns = longer_ns(longest_ns, since_ns);
	}
	coll_await(t, request, "an all-reduce did not complete");
	end(t, &b);
	return longest_ns;
}

void rule_coll_iallreduce_returns(struct check *t)
{
	expect_quick(t, "iallreduce", longest_iallreduce_ns);
}

static int64_t longest_test_ns(struct check *t)
{
	struct bench b;
	struct np_coll_reduce reduce;
	void *request;
	int64_t longest_ns = 0;

	begin(t, &b, 4 * FLOATS);
	reduce = coll_sum(&b.send, &b.recv, FLOATS);
	check_barrier(t);
	if (t->rank == 1)
		check_sleep_ms(LATE_MS * t->opt->time_scale);
	request = coll_post(t, b.comm, &reduce);
	for (bool done = false; !done;) {
		const int64_t since_ns = own_ns();

		done = coll_test(t, request);
		longest_ns = longer_ns(longest_ns, since_ns);
		check_sleep_ms(1);
	}
	end(t, &b);
	return longest_ns;
}

void rule_coll_test_returns(struct check *t)
{
	expect_quick(t, "test", longest_test_ns);
}

/* ---- flushes and memory --------------------------------------------------------------------- */

/* false: nothing is to be waited for. */
static bool flush(struct check *t, const struct bench *b, void **request)
{
	static char untouched;

	*request = &untouched;
	MUST_COLL(t, iflush, b->comm, b->recv.data, (int)(4 * PIECE), b->recv.mhandle, request);
	if (*request == &untouched)
		check_fail(t, "iflush left the request as it was");
	return *request != NULL;
}

static void await_flush(struct check *t, void *request)
{
	uint64_t deadline = check_deadline(t, COLL_STEP_MS);
	int done = 0;

	while (!done) {
		MUST_COLL(t, test, request, &done, NULL);
		check_poll(t, deadline, "a flush did not complete");
	}
}

void rule_coll_iflush(struct check *t)
{
	struct bench b;
	void *request;

	begin(t, &b, 4 * PIECE);
	coll_round(t, b.comm, &b.send, &b.recv, PIECE, 2, "a sum");
	if (flush(t, &b, &request))
		await_flush(t, request);
	else
		check_note(t, "nothing is to be flushed");
	coll_expect(t, b.recv.data, PIECE, 2, "after a flush");
	end(t, &b);
}

/* While as many all-reduces are under way as NCCL has, so are as many flushes. */
void rule_coll_flushes(struct check *t)
{
	static void *requests[OUTSTANDING], *flushes[OUTSTANDING];
	int taken = 0;
	struct bench b;

	begin(t, &b, 4 * PIECE * OUTSTANDING);
	for (; taken < OUTSTANDING; taken++) {
		const struct np_coll_reduce reduce = piece(&b, (size_t)taken);

		requests[taken] = NULL;
		MUST_COLL(t, iallreduce, b.comm, &reduce, &requests[taken]);
		if (!requests[taken])
			break;
	}
	for (int i = 0; i < OUTSTANDING; i++)
		if (!flush(t, &b, &flushes[i]))
			flushes[i] = NULL;
	for (int i = 0; i < OUTSTANDING; i++)
		if (flushes[i])
			await_flush(t, flushes[i]);
	for (int i = 0; i < OUTSTANDING; i++) {
		const struct np_coll_reduce reduce = piece(&b, (size_t)i);

		coll_await(t, i < taken ? requests[i] : coll_post(t, b.comm, &reduce),
			   "an all-reduce did not complete");
	}
	end(t, &b);
}

/* One piece of memory is registered twice; each lasts until it is deregistered itself. */
void rule_coll_mr(struct check *t)
{
	struct bench b;
	void *second = NULL;

	begin(t, &b, 4 * FLOATS);
	MUST_COLL(t, reg_mr, b.comm, b.send.data, b.send.size, NCCL_PTR_HOST, &second);
	coll_round(t, b.comm, &b.send, &b.recv, FLOATS, 1, "a sum");
	MUST_COLL(t, dereg_mr, b.comm, second);
	coll_round(t, b.comm, &b.send, &b.recv, FLOATS, 2,
		   "after another registration of the memory had ended");
	end(t, &b);
}
