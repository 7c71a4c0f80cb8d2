/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a group hears another one, which says what the form of the messages lets it say.
 * Nothing crashes or leaks: the rank goes on, or ends with an error, and its own memory is as it
 * was outside of what it has registered.
 *
 * Input: a byte: whether the other rank says who it is; then messages: what is said (0: what was
 * heard last is said again), epoch, number, how many bytes of the rest are given, and these.
 */
#include "../transport/harness.h"
#include "fuzz.h"
#include "input.h"

#include "base/clock.h"
#include "gin/verbs/channel.h"
#include "gin/verbs/group.h"
#include "memory/mr.h"

#include <string.h>

#define RANKS	 2
#define MAX_SAID 12
#define TURNS	 12
#define SIZE	 4096

static struct {
	struct pair pair;
	struct ha_listen *listen[RANKS];
	uint8_t handle[RANKS][HA_HANDLE_MAX];
	struct ha_gin_group *group; /* of rank 0 */
	struct ha_gin_memory *memory, *signals;
	ha_result_t error;
	struct ha_gin_in in; /* of rank 1, which is ours */
	struct ha_gin_out out;
	struct ha_gin_message heard;
} run;

/* Registered is the middle third. */
static uint8_t data[3 * SIZE];
static uint64_t words[3 * 8];

static void other_rank(void)
{
	struct ha_gin_message message;
	bool is_heard = true;

	sv_stepped_set_host(1);
	FUZZ_CHECK(ha_gin_out_progress(&run.out) != HA_ERR_INTERNAL);
	while (is_heard && ha_gin_in_hear(&run.in, &message, &is_heard) == HA_OK && is_heard)
		run.heard = message;
}

static void turn(void)
{
	ha_result_t result;

	other_rank();
	sv_stepped_set_host(0);
	result = ha_gin_group_progress(run.group);
	if (run.error == HA_OK)
		run.error = result;
	FUZZ_CHECK(run.error == HA_OK || result != HA_OK); /* it is latched */
	pair_advance(&run.pair);
}

static void begin(void)
{
	const void *handles[RANKS] = {run.handle[0], run.handle[1]};
	struct ha_gin_shape shape = {.ranks = RANKS, .handles = handles};
	struct ha_comm *out = NULL, *in = NULL;
	uint8_t handle[HA_HANDLE_MAX];

	pair_open(&run.pair);
	for (uint32_t r = 0; r < RANKS; r++) {
		sv_stepped_set_host(r);
		FUZZ_CHECK(ha_listen(run.pair.inst[r], 0, run.handle[r], &run.listen[r]) == HA_OK);
	}
	shape.inst = run.pair.inst[0];
	shape.listen = run.listen[0];
	sv_stepped_set_host(0);
	FUZZ_CHECK(ha_gin_group_open(&shape, &run.group) == HA_OK);
	memcpy(handle, run.handle[0], sizeof(handle));
	while (!out || !in) {
		sv_stepped_set_host(1);
		if (!out)
			FUZZ_CHECK(ha_connect(run.pair.inst[1], 0, HA_TRAFFIC_CLASS_UNDEF, handle,
					      &out) == HA_OK);
		if (!in)
			FUZZ_CHECK(ha_accept(run.listen[1], &in) == HA_OK);
		sv_stepped_set_host(0);
		FUZZ_CHECK(ha_gin_group_progress(run.group) == HA_OK);
		pair_settle(&run.pair);
	}
	sv_stepped_set_host(1);
	FUZZ_CHECK(ha_gin_out_open(&run.out, out) == HA_OK);
	FUZZ_CHECK(ha_gin_in_open(&run.in, in) == HA_OK);
	sv_stepped_set_host(0);
	FUZZ_CHECK(ha_gin_register(run.group, data + SIZE, SIZE, HA_MEM_HOST, 0, -1, false,
				   &run.memory) == HA_OK);
	FUZZ_CHECK(ha_gin_register(run.group, words + 8, 64, HA_MEM_HOST, 0, -1, true,
				   &run.signals) == HA_OK);
}

static void say(const struct ha_gin_message *message)
{
	if (ha_gin_out_say(&run.out, message) != HA_OK)
		abort();
	for (int i = 0; i < TURNS; i++)
		turn();
}

static void say_next(void)
{
	struct ha_gin_message message = {.say = byte() % 9};
	size_t given;

	if (message.say == 0)
		message = run.heard;
	message.epoch = (uint32_t)number(1);
	message.number = byte() == 0xff ? UINT32_MAX : (uint32_t)number(1) % 4;
	given = byte() % (sizeof(message.bytes) + 1);
	for (size_t i = 0; i < given; i++)
		message.bytes[i] = byte();
	say(&message);
}

/* An operation to who says all this. */
static void put(void)
{
	struct ha_gin_put put = {.from = run.memory, .to = run.memory, .size = 100};
	struct ha_gin_request *request;
	bool done = false;

	sv_stepped_set_host(0);
	if (run.error != HA_OK || !ha_gin_is_known(run.group, run.memory) ||
	    ha_gin_put(run.group, 1, &put, &request) != HA_OK)
		return;
	for (int i = 0; i < TURNS; i++)
		turn();
	sv_stepped_set_host(0);
	(void)!ha_gin_test(run.group, request, &done);
}

static void end(void)
{
	sv_stepped_set_host(1);
	ha_gin_out_close(&run.out);
	ha_gin_in_close(&run.in);
	sv_stepped_set_host(0);
	ha_gin_group_close(run.group);
	for (uint32_t r = 0; r < RANKS; r++)
		ha_close_listen(run.listen[r]);
	pair_close(&run.pair);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};

	input = bytes;
	input_left = size;
	memset(&run, 0, sizeof(run));
	memset(data, CANARY, sizeof(data));
	memset(words, 0, sizeof(words));
	pair_init(&run.pair);
	run.pair.fabric.rails = 2;
	run.pair.config.outage_ms = run.pair.config.give_up_ms = 500;
	begin();
	if (byte() % 8 != 0)
		say(&hello);
	for (int i = 0; i < MAX_SAID && input_left > 0; i++)
		say_next();
	put();
	end();
	for (size_t i = 0; i < SIZE; i++)
		FUZZ_CHECK(data[i] == CANARY && data[2 * SIZE + i] == CANARY);
	for (size_t i = 0; i < 8; i++)
		FUZZ_CHECK(words[i] == 0 && words[16 + i] == 0);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* The harness of the transport tests then aborts where an assertion of its own fails. */
__attribute__((constructor)) static void abort_outside_of_tests(void)
{
	setenv("CMOCKA_TEST_ABORT", "1", 1);
}

/* Regions 0 and 1, an offer, an answer, that it is ready, and a suspicion. */
#define REGION(n) 2, 0, 0, n, 24, 0, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, n
static const uint8_t all_kinds[] = {1, REGION(0), 0, 0, 0, REGION(1), 0, 0, 0, 3, 1, 0,
				    0, 4,	  1, 2, 3, 4,	      4, 1, 0, 0, 2, 7,
				    7, 5,	  1, 0, 0, 0,	      6, 1, 0, 0, 0};
static const uint8_t echo[] = {1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5, 1, 0, 0, 0, 0, 1, 0, 0, 1, 9};
static const uint8_t nobody[] = {0, 1, 0, 0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0};

const struct fuzz_seed fuzz_seeds[] = {
    {all_kinds, sizeof(all_kinds)},
    {echo, sizeof(echo)},
    {nobody, sizeof(nobody)},
    {NULL, 0},
};
