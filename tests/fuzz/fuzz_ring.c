/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes where the peer writes: clear-to-sends with their counts at a sender, records of sizes
 * at a receiver, mailboxes at both, where a sender reads the peer's count, and any immediate at a
 * receiver, while applications at both ends exchange data. Nothing crashes or waits for ever; a
 * receive that is reported has sizes that fit, and no byte outside of its buffers is written.
 *
 * Input: byte 0 the configuration (bits), then operations: a byte each, and what it takes.
 */
#include "../transport/harness.h"
#include "fuzz.h"
#include "input.h"

#include "failover/engine.h"
#include "failover/message.h"
#include "transport/complete.h"
#include "transport/failover_ops.h"
#include "transport/labels.h"
#include "transport/recv.h"
#include "transport/send.h"

#include <string.h>

enum { END_TO_END = 1 };

enum operation { STEP, ASK, OFFER, ROW, RECORD, COUNT, IMMEDIATE, MAILBOX, SCRIBBLE, OPERATIONS };

#define RECEIVES 16
#define PARTS	 3
#define PART	 ((size_t)16384) /* of memory for each buffer */
#define CAPACITY ((size_t)9000)
#define MAX_OPS	 200

/* ---- the applications ----------------------------------------------------------------------- */

struct receive {
	struct ha_request *req;
	int n;
	bool done;
};

static struct {
	struct pair pair;
	struct receive receives[RECEIVES];
	int asked, offered, offered_parts;
	struct ha_request *sends[RECEIVES * PARTS];
	int nsends;
} run;

static uint8_t *buffer(struct memory *memory, int receive, int part)
{
	return memory->bytes + (size_t)(receive * PARTS + part) * PART;
}

static void ask(uint8_t how)
{
	struct receive *r = &run.receives[run.asked];
	size_t sizes[PARTS] = {CAPACITY, CAPACITY, CAPACITY};
	struct ha_mr *mrs[PARTS];
	void *data[PARTS];
	int tags[PARTS];

	if (run.asked == RECEIVES)
		return;
	r->n = 1 + how % PARTS;
	for (int i = 0; i < r->n; i++) {
		data[i] = buffer(&run.pair.to, run.asked, i);
		mrs[i] = run.pair.to.mr;
		tags[i] = i;
	}
	if (ha_irecv(run.pair.recv, r->n, data, sizes, tags, mrs, &r->req) == HA_OK && r->req)
		run.asked++;
}

static void offer(uint8_t how)
{
	struct ha_request *req;
	size_t size = how == 0 ? 0 : CAPACITY - how;

	if (run.offered == run.asked ||
	    ha_isend(run.pair.send, buffer(&run.pair.from, run.offered, run.offered_parts), size,
		     run.offered_parts, run.pair.from.mr, &req) != HA_OK ||
	    !req)
		return;
	run.sends[run.nsends++] = req;
	if (++run.offered_parts == run.receives[run.offered].n) {
		run.offered++;
		run.offered_parts = 0;
	}
}

static void look(void)
{
	for (int i = 0; i < run.asked; i++) {
		struct receive *r = &run.receives[i];
		int got[PARTS] = {-1, -1, -1};
		bool done = false;

		if (r->done || ha_test(r->req, &done, got) != HA_OK || !done)
			continue;
		r->done = true;
		for (int p = 0; p < r->n; p++)
			FUZZ_CHECK(got[p] >= 0 && got[p] <= (int)CAPACITY);
	}
	for (int i = 0; i < run.nsends; i++) {
		bool done = false;

		if (run.sends[i] && (ha_test(run.sends[i], &done, NULL) != HA_OK || done))
			run.sends[i] = NULL;
	}
}

/* ---- what the peer writes ------------------------------------------------------------------- */

/* Some bytes of what is there. */
static void scribble(void *memory, size_t size)
{
	for (unsigned n = 1 + byte() % 8; n > 0; n--)
		((uint8_t *)memory)[number(2) % size] = byte();
}

/* The row that the sender looks at, or one near it, complete, and with what the peer likes in it.
 */
static void write_row(void)
{
	struct ha_comm *send = run.pair.send;
	uint64_t seq = send->send->match_seq + byte() % 3;
	uint32_t epoch = ha_comm_epoch(send) + (byte() % 8 == 7);
	struct ha_cts *row = send->send_ring->cts[seq & send->slot_mask];
	unsigned n = byte(), elements = n < 1 || n > HA_GROUP_MAX ? 1 : n;

	for (unsigned i = 0; i < elements; i++) {
		uint8_t lies = byte();

		row[i].n = (uint8_t)n;
		row[i].index = lies & 1 ? byte() : (uint8_t)i;
		row[i].tag = lies & 2 ? (int32_t)byte() : (int32_t)i;
		row[i].size = lies & 4 ? number(8) : CAPACITY;
		if (lies & 8)
			row[i].addr = number(8);
		else if (row[i].addr == 0)
			row[i].addr = (uintptr_t)buffer(&run.pair.to, 0, 0);
		if (lies & 16)
			row[i].rkey = (uint32_t)number(4);
		if (lies & 32)
			row[i].delivered = number(8);
		row[i].stamp = ha_stamp(seq, epoch);
		row[i].stamp_end = lies & 64 ? 0 : row[i].stamp;
	}
}

static void write_record(void)
{
	struct ha_comm *recv = run.pair.recv;
	uint64_t seq = recv->recv->done.base + byte() % 3;
	struct ha_sizes *record = &recv->recv_ring->sizes[seq & recv->slot_mask];
	uint8_t lies = byte();

	for (int i = 0; i < HA_GROUP_MAX; i++)
		record->size[i] = lies >> i & 1 ? number(8) : CAPACITY;
	record->stamp = ha_stamp(seq, ha_comm_epoch(recv));
}

static void write_count(void)
{
	struct ha_comm *send = run.pair.send;
	uint8_t how = byte();
	uint64_t row = send->send->count_wait.row + how / 4 % 4;
	uint64_t count = how % 2 ? number(6) : ha_send_posted_end(send->send) + byte() % 3 - 1;

	if (how & 2)
		run.pair.recv->recv_ring->count = count;
	else
		send->send_ring->cts[row & send->slot_mask][0].delivered = count;
}

/* As if it had taken a receive of the path's. */
static void say_immediate(void)
{
	struct ha_comm *recv = run.pair.recv;
	struct ha_path *path = ha_comm_path(recv);
	uint8_t how = byte();
	uint64_t seq = recv->recv->done.base + how % 4;
	uint32_t imm, bytes = byte() % 2 ? (uint32_t)number(4) : (uint32_t)CAPACITY;

	imm = ha_imm_pack(seq, ha_comm_epoch(recv), 1 + how / 4 % 16, how & 64);
	if (how & 128)
		imm ^= (uint32_t)number(4);
	if (!ha_path_ready(path))
		return;
	ha_token_acquire(recv);
	/* A peer's message of one part cannot be longer than the buffer: the hardware sees to that
	 * where it is written, and tells the length that it has written. */
	if (bytes > CAPACITY)
		bytes %= (uint32_t)CAPACITY;
	ha_recv_immediate(recv, path, 0, imm, bytes);
	ha_token_release(recv);
}

static void write_mailbox(void)
{
	struct ha_comm *to = byte() % 2 ? run.pair.send : run.pair.recv;
	unsigned p = byte() % HA_MAILBOXES;
	struct ha_mailbox *box =
	    to->is_send ? &to->send_ring->msg_in[p] : &to->recv_ring->msg_in[p];
	struct ha_message m = {.kind = (uint8_t)(1 + byte() % HA_MSG_BYE),
			       .path = byte() % HA_MAX_PATHS,
			       .generation = byte(),
			       .epoch = to->failover->epoch + byte() % 3,
			       .serial = byte(),
			       .ports_up = 0xffff,
			       .window.base = 1};

	ha_message_encode(&m, box->bytes);
	if (byte() % 4 == 3)
		scribble(box->bytes, sizeof(box->bytes));
	if (!to->paths[p])
		return;
	ha_token_acquire(to);
	to->ops->msg(to, to->paths[p]);
	ha_token_release(to);
}

static void scribble_anywhere(void)
{
	struct ha_send_ring *at_sender = run.pair.send->send_ring;
	struct ha_recv_ring *at_receiver = run.pair.recv->recv_ring;

	switch (byte() % 5) {
	case 0:
		scribble(at_sender->cts, sizeof(at_sender->cts));
		break;
	case 1:
		scribble(at_sender->msg_in, sizeof(at_sender->msg_in));
		break;
	case 2:
		scribble(&at_receiver->count, sizeof(at_receiver->count));
		break;
	case 3:
		scribble(at_receiver->sizes, sizeof(at_receiver->sizes));
		break;
	default:
		scribble(at_receiver->msg_in, sizeof(at_receiver->msg_in));
		break;
	}
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void operate(void)
{
	uint8_t op = byte();

	switch ((enum operation)(op % OPERATIONS)) {
	case STEP:
		for (unsigned n = 1 + op / OPERATIONS; n > 0; n--)
			pair_step(&run.pair);
		break;
	case ASK:
		ask(op / OPERATIONS);
		break;
	case OFFER:
		offer(op / OPERATIONS);
		break;
	case ROW:
		write_row();
		break;
	case RECORD:
		write_record();
		break;
	case COUNT:
		write_count();
		break;
	case IMMEDIATE:
		say_immediate();
		break;
	case MAILBOX:
		write_mailbox();
		break;
	case SCRIBBLE:
		scribble_anywhere();
		break;
	case OPERATIONS:
		break;
	}
}

static bool all_are(const uint8_t *bytes, size_t size, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static void finish(bool rows_are_right)
{
	for (int i = 0; i < 30; i++) {
		pair_idle(&run.pair, 5);
		look();
	}
	for (int i = 0; i < RECEIVES * PARTS && rows_are_right; i++)
		FUZZ_CHECK(all_are(run.pair.to.bytes + (size_t)i * PART + CAPACITY, PART - CAPACITY,
				   CANARY));
	pair_close(&run.pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool rows_are_right = true;

	input = data;
	input_left = size;
	memset(&run, 0, sizeof(run));
	pair_init(&run.pair);
	run.pair.config.enable_backup = true;
	run.pair.config.completion = byte() & END_TO_END ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	run.pair.fabric.rails = 2;
	pair_up(&run.pair);
	pair_idle(&run.pair, 20);
	for (int i = 0; i < MAX_OPS && input_left > 0; i++) {
		uint8_t op = *input % OPERATIONS;

		/* A receiver that asks for bytes elsewhere in its memory gets them. */
		rows_are_right &= op != ROW && op != SCRIBBLE;
		operate();
		look();
	}
	finish(rows_are_right);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

#define STEPS(n)   (STEP + OPERATIONS * ((n)-1))
#define ASK_FOR(n) (ASK + OPERATIONS * ((n)-1))
#define MESSAGE	   ASK_FOR(1), STEPS(8), OFFER + OPERATIONS, STEPS(8)
#define GROUP	   ASK_FOR(3), STEPS(8), OFFER, OFFER + OPERATIONS, OFFER

static const uint8_t traffic[] = {0, MESSAGE, GROUP, STEPS(20), MESSAGE, GROUP, STEPS(20)};
static const uint8_t rows[] = {
    0,	  ASK_FOR(1), STEPS(8), ROW,  0,    0,	   1,	      4,   0xff, 0xff,	0xff,
    0xff, 0xff,	      0xff,	0xff, 0xff, OFFER, STEPS(20), ROW, 0,	 0,	1,
    8,	  0,	      0,	0,    0,    0,	   0,	      0,   1,	 OFFER, STEPS(20)};
static const uint8_t group_row[] = {0, ASK_FOR(3), STEPS(8), ROW, 0,	 0,	3,     1,
				    9, 2,	   0,	     0,	  OFFER, OFFER, OFFER, STEPS(20)};
static const uint8_t records[] = {0,	ASK_FOR(3), STEPS(8),  RECORD, 0,    1,
				  0x7f, 0xff,	    0xff,      0xff,   0xff, 0xff,
				  0xff, 0xff,	    IMMEDIATE, 64,     0,    STEPS(4)};
static const uint8_t counts[] = {END_TO_END, MESSAGE,  ASK,   STEPS(8), COUNT, 0,	 0,
				 OFFER,	     STEPS(8), COUNT, 2,	2,     STEPS(8), COUNT,
				 1,	     0xff,     0xff,  0xff,	0xff,  0xff,	 0xff};
static const uint8_t immediates[] = {0,	       ASK,	  STEPS(8),  IMMEDIATE, 0,    0,
				     STEPS(4), IMMEDIATE, 128,	     0xff,	0xff, 0xff,
				     0xff,     0,	  IMMEDIATE, 4,		0};
static const uint8_t mailbox[] = {0, MESSAGE, MAILBOX, 1, 0,	     HA_MSG_FENCE - 1, 0,
				  1, 1,	      9,       0, STEPS(20), SCRIBBLE,	       1,
				  3, 0,	      8,       1, MESSAGE};

#define SEED(name)                                                                                 \
	{                                                                                          \
		(name), sizeof(name)                                                               \
	}

const struct fuzz_seed fuzz_seeds[] = {
    SEED(traffic), SEED(rows),	     SEED(group_row), SEED(records),
    SEED(counts),  SEED(immediates), SEED(mailbox),   {NULL, 0},
};
