/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a group hears another one, which says what the form of the messages lets it say, or
 * what has no such form. Nothing crashes or leaks: the rank goes on, or ends with an error, and its
 * own memory is as it was outside of what it has registered. (With queue pairs that work:
 * fuzz_gin_stream.)
 *
 * Input: a byte: whether the other rank says who it is; then messages: what is said (0: what was
 * heard last is said again), epoch, number, how many bytes of the rest are given, and these. At 8
 * any bytes are sent instead, as many as the next byte says.
 */
#include "fuzz.h"
#include "hostile_rank.h"
#include "input.h"

#include "memory/mr.h"

#include <string.h>

#define MAX_SAID 12
#define TURNS	 12
#define RAW	 8
#define TAG	 0x47494e

static struct ha_gin_message last_heard;

static void remember(const struct ha_gin_message *message)
{
	last_heard = *message;
}

/* As what has been said before is sent: nothing else is on its way. */
static void send_raw(void)
{
	static uint8_t bytes[256];
	struct ha_request *request = NULL;
	const size_t size = byte();
	const int tag = byte() ? TAG : 0;
	struct ha_mr *mr;
	bool done = false;

	for (size_t i = 0; i < size; i++)
		bytes[i] = byte();
	sv_stepped_set_host(1);
	if (ha_reg_mr(hostile.out.comm, bytes, sizeof(bytes), HA_MEM_HOST, 0, -1, &mr) != HA_OK)
		return;
	for (int i = 0; i < TURNS && !done; i++) {
		sv_stepped_set_host(1);
		if (!request && ha_isend(hostile.out.comm, bytes, size, tag, mr, &request) != HA_OK)
			break;
		if (request && ha_test(request, &done, NULL) != HA_OK)
			break;
		hostile_turn();
	}
	sv_stepped_set_host(1);
	ha_dereg_mr(hostile.out.comm, mr);
}

static void say_next(void)
{
	struct ha_gin_message message = {.say = byte() % 9};
	size_t given;

	if (message.say == RAW) {
		send_raw();
		return;
	}
	if (message.say == 0)
		message = last_heard;
	message.epoch = (uint32_t)number(1);
	message.number = byte() == 0xff ? UINT32_MAX : (uint32_t)number(1) % 4;
	given = byte() % (sizeof(message.bytes) + 1);
	for (size_t i = 0; i < given; i++)
		message.bytes[i] = byte();
	hostile_say(&message, TURNS);
}

/* An operation to who says all this. */
static void put(void)
{
	struct ha_gin_put put = {.from = hostile.memory, .to = hostile.memory, .size = 100};
	struct ha_gin_request *request;
	int done = 0;

	sv_stepped_set_host(0);
	if (hostile.error != HA_OK || !ha_gin_is_known(hostile.group, hostile.memory) ||
	    ha_gin_put(hostile.group, 1, &put, &request) != HA_OK)
		return;
	for (int i = 0; i < TURNS; i++)
		hostile_turn();
	sv_stepped_set_host(0);
	(void)!ha_gin_test(hostile.group, request, &done);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	const struct ha_gin_message hello = {.say = HA_GIN_HELLO, .hello = {1, RANKS}};

	input = bytes;
	input_left = size;
	memset(&last_heard, 0, sizeof(last_heard));
	hostile_begin(remember, false);
	if (byte() % 8 != 0)
		hostile_say(&hello, TURNS);
	for (int i = 0; i < MAX_SAID && input_left > 0; i++)
		say_next();
	put();
	hostile_end();
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* Regions 0 and 1, an offer, an answer, that it is ready, and a suspicion. */
#define REGION(n) 2, 0, 0, n, 24, 0, 16, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, n
static const uint8_t all_kinds[] = {1, REGION(0), 0, 0, 0, REGION(1), 0, 0, 0, 3, 1, 0,
				    0, 4,	  1, 2, 3, 4,	      4, 1, 0, 0, 2, 7,
				    7, 5,	  1, 0, 0, 0,	      6, 1, 0, 0, 0};
static const uint8_t echo[] = {1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5, 1, 0, 0, 0, 0, 1, 0, 0, 1, 9};
static const uint8_t nobody[] = {0, 1, 0, 0, 0, 7, 2, 0, 0, 0, 2, 0, 0, 0};
/* Too short; the magic number alone; too long; of another tag. */
static const uint8_t raw[] = {1, RAW, 4, 1, 0x67, 0x69, 0x6e, 0x31};
static const uint8_t too_long[] = {1, RAW, 200, 1, 0x67, 0x69, 0x6e, 0x31, 6};
static const uint8_t other_tag[] = {1, RAW, 128, 0, 0x67, 0x69, 0x6e, 0x31, 6};

const struct fuzz_seed fuzz_seeds[] = {
    {all_kinds, sizeof(all_kinds)},
    {echo, sizeof(echo)},
    {nobody, sizeof(nobody)},
    {raw, sizeof(raw)},
    {too_long, sizeof(too_long)},
    {other_tag, sizeof(other_tag)},
    {NULL, 0},
};
