/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread makes of a queue that is used again while it looks at it, and of what was settled
 * before. */
#include "../unit/cmocka_all.h"

static void step(const char *where);
static void gives_up(void);
#define HA_DEV_STEP(where) step(where)
#define HA_DEV_PAUSE()	   gives_up()
#include "nccl_ha/ibgda.cuh"

#include <string.h>

#define LOG 3u

static uint8_t completions[(1u << LOG) * HA_CQE_SIZE];
static uint64_t alarm_word;
static struct ha_ibgda_queue queue = {.completions = completions};
static struct ha_ibgda_stream stream = {.alarm = &alarm_word, .log = LOG};
static uint64_t base_then; /* the queue's, when a thread has read it; 0: it stays */
static unsigned int looks;

/* As the device does it: success. */
static void complete(uint16_t index)
{
	uint8_t *entry = &completions[(index & ((1u << LOG) - 1)) * HA_CQE_SIZE];

	*(uint32_t *)(void *)&entry[60] = ha_dev_swap32((uint32_t)index << 16 | (index >> LOG & 1));
}

static void step(const char *where)
{
	if (strcmp(where, "entry") != 0)
		return;
	looks++;
	if (base_then)
		queue.base = base_then;
	complete(5);
}

static void gives_up(void)
{
	stream.gate = ha_ibgda_gate(&queue, HA_IBGDA_DEAD);
}

static int begins(void **state)
{
	(void)state;
	memset(completions, 0xff, sizeof(completions));
	queue.base = base_then = 0;
	stream.cons = 0;
	stream.gate = ha_ibgda_gate(&queue, 0);
	looks = 0;
	return 0;
}

static void what_is_complete_is_found(void **state)
{
	(void)state;
	assert_int_equal(ha_ibgda_quiet(&stream, 5), HA_IBGDA_OK);
	assert_int_equal(looks, 1);
	assert_int_equal(stream.cons, 6);
}

/* Request 65541 of the generation that has ended and request 15 of this one have the same index. */
static void a_completion_of_a_queue_that_was_made_anew_is_of_nobody(void **state)
{
	(void)state;
	base_then = 10;
	assert_int_equal(ha_ibgda_quiet(&stream, 65541), HA_IBGDA_OVER);
	assert_int_equal(looks, 1);
	assert_int_equal(stream.cons, 0);
}

static void what_a_generation_began_behind_is_complete(void **state)
{
	(void)state;
	queue.base = 8;
	assert_int_equal(ha_ibgda_quiet(&stream, 7), HA_IBGDA_OK);
	assert_int_equal(looks, 0);
	assert_int_equal(stream.cons, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup(what_is_complete_is_found, begins),
	    cmocka_unit_test_setup(a_completion_of_a_queue_that_was_made_anew_is_of_nobody, begins),
	    cmocka_unit_test_setup(what_a_generation_began_behind_is_complete, begins),
	};

	return cmocka_run_group_tests_name("ibgda_poll", tests, NULL, NULL);
}
