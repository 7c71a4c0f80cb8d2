/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One post after the other by one thread of the host, each of which has room and its turn: what
 * post_cost.py counts the instructions of. Built with a backup queue pair and without
 * (HA_IBGDA_BACKUP). Device and host are not there: what is posted counts as complete at once.
 */
#include "nccl_ha/ibgda.cuh"

#include <stdio.h>
#include <stdlib.h>

#define LOG   6u
#define POSTS 1000u

static struct ha_wqe requests[1u << LOG];
static uint8_t completions[(1u << LOG) * HA_CQE_SIZE];
static volatile uint32_t record;
static volatile uint64_t doorbell;
static uint64_t alarm_word;
static struct ha_ibgda_queue queue = {.requests = requests,
				      .completions = completions,
				      .record = &record,
				      .doorbell = &doorbell,
				      .qpn = 7};
static struct ha_ibgda_stream stream = {.queues = &queue, .alarm = &alarm_word, .log = LOG};

void counted_post(struct ha_ibgda_work *post);
__attribute__((noinline)) void counted_post(struct ha_ibgda_work *post)
{
	if (ha_ibgda_post(&stream, post) != HA_IBGDA_OK)
		exit(1);
}

void counted_quiet(uint64_t number);
__attribute__((noinline)) void counted_quiet(uint64_t number)
{
	if (ha_ibgda_quiet(&stream, number) != HA_IBGDA_OK)
		exit(1);
}

/* As the device does it. */
static void complete(uint64_t number)
{
	uint8_t *entry = &completions[(number & ((1u << LOG) - 1)) * HA_CQE_SIZE];
	const uint32_t lap = (uint32_t)(number >> LOG & 1);

	*(uint32_t *)(void *)&entry[60] = ha_dev_swap32((uint32_t)(number & 0xffff) << 16 | lap);
}

int main(void)
{
	stream.gate = ha_ibgda_gate(&queue, 0);
	for (unsigned int n = 0; n < POSTS; n++) {
		struct ha_ibgda_work post = {.put = {1, 2, 1, 2, 8}};

		counted_post(&post);
		complete(post.first);
		counted_quiet(post.first);
	}
	printf("%u posts\n", POSTS);
	return stream.cons == POSTS ? 0 : 1;
}
