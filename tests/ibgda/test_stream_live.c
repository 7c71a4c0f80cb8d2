/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many threads post on one stream at the same time (nccl_ha/ibgda.cuh), while its queue pairs are
 * cut over and over: for sanitizers, and for what one step at a time cannot show. One more thread
 * is device, receiver and host.
 *
 *     ibgda_stream_live [CUTS [SIGNALS]]    so many cuts, and so many signals between two of them
 */
#include "../unit/cmocka_all.h"

#include <sched.h>
#define HA_DEV_PAUSE() sched_yield()

#include "ibgda/switchover.h"
#include "nccl_ha/ibgda.cuh"
#include "simverbs/direct.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 64u
#define LOG	6u
#define DEPTH	(1u << LOG)
#define IDS	4u
#define CELLS	0x1000u
#define REMOTE	0x2000u

struct device {
	struct ha_wqe requests[DEPTH];
	uint8_t completions[DEPTH * SV_DIRECT_BLOCK];
	uint32_t record;
	uint64_t doorbell;
	struct sv_direct_sq sq;
	struct sv_direct_cq cq;
};

static unsigned long cuts = 200, signals_between = 10;

static struct {
	struct ha_ibgda_stream stream;
	struct ha_ibgda_queue queues[HA_IBGDA_QUEUES];
	struct device devices[HA_IBGDA_QUEUES];
	struct sv_direct_mistakes mistakes;
	struct ha_ibgda_host host;
	uint64_t alarm, random;
	uint64_t cells[IDS], remote[THREADS]; /* the receiver's */
	uint64_t source[THREADS];
	uint64_t signals; /* that a thread posted and saw complete */
	unsigned int running, stops, made, wrong;
} w;

static void make(unsigned int number)
{
	struct device *device = &w.devices[number];
	struct ha_ibgda_queue *queue = &w.queues[number];

	queue->qpn = 1 + number + HA_IBGDA_QUEUES * w.host.generation;
	__atomic_store_n(&device->record, 0, __ATOMIC_RELAXED);
	device->sq = (struct sv_direct_sq){.blocks = (const volatile uint8_t *)device->requests,
					   .count = DEPTH,
					   .qpn = queue->qpn,
					   .record = &device->record,
					   .doorbell = &device->doorbell,
					   .rung = device->doorbell,
					   .mistakes = &w.mistakes};
	device->cq = (struct sv_direct_cq){
	    .entries = device->completions, .log = LOG, .mistakes = &w.mistakes};
	for (unsigned int i = 0; i < DEPTH; i++)
		__atomic_store_n((uint32_t *)(void *)&device->completions[i * SV_DIRECT_BLOCK + 60],
				 0xf0000000u, __ATOMIC_RELEASE);
}

/* What is executed at the receiver. */
static void execute(const struct sv_direct_work *work)
{
	uint64_t value;

	if (work->opcode == SV_DIRECT_NOP)
		return;
	if (!work->is_inline) {
		memcpy(&w.remote[(work->remote_addr - REMOTE) / 8],
		       (const void *)(uintptr_t)work->addr, sizeof(value));
		return;
	}
	memcpy(&value, work->bytes, sizeof(value));
	w.wrong += value <= w.cells[(work->remote_addr - CELLS) / 8];
	w.cells[(work->remote_addr - CELLS) / 8] = value;
}

static unsigned int some(unsigned int below)
{
	w.random = w.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(w.random >> 33) % below;
}

static void works(struct device *device)
{
	struct sv_direct_work work;

	sv_direct_look(&device->sq, 1);
	for (unsigned int n = some(32);
	     n > 0 && sv_direct_take(&device->sq, &work) == SV_DIRECT_WORK; n--) {
		execute(&work);
		sv_direct_complete(&device->cq, device->sq.qpn, work.index, 0);
	}
}

/* The first of what is rung is executed and nobody learns of it; the rest is not. All comes back
 * with an error. */
static void cut(struct device *device, unsigned int executed)
{
	struct sv_direct_work work;

	sv_direct_look(&device->sq, 1);
	while (sv_direct_take(&device->sq, &work) == SV_DIRECT_WORK) {
		if (executed > 0 && executed--)
			execute(&work);
		sv_direct_complete(&device->cq, device->sq.qpn, work.index, HA_CQE_RETRIES);
	}
}

static void fails_over(void)
{
	struct ha_ibgda_verdict verdict = {.is_flushed = true};
	const uint32_t next = ha_ibgda_free_queue(&w.host);

	cut(&w.devices[w.host.queue], some(8));
	ha_ibgda_fail(&w.host);
	/* What was rung since: a queue pair in ERR executes none of it, as it executed none before.
	 */
	cut(&w.devices[w.host.queue], 0);
	ha_ibgda_fenced(&w.host);
	memcpy(verdict.cells, w.cells, sizeof(w.cells));
	w.wrong += ha_ibgda_judge(&w.host, &verdict) != HA_IBGDA_FINE;
	make(next);
	ha_ibgda_prepare(&w.host, next, &verdict);
	ha_ibgda_start(&w.host);
	ha_ibgda_open(&w.host);
	w.made++;
}

static uint64_t given(void)
{
	uint64_t sum = 0;

	for (unsigned int id = 0; id < IDS; id++)
		sum += w.cells[id];
	return sum;
}

/* Threads that sleep keep queues; without one there would be no next generation. */
static bool may_cut(void)
{
	return w.made < cuts && given() >= (w.made + 1) * signals_between &&
	       ha_ibgda_free_queue(&w.host) < HA_IBGDA_QUEUES;
}

static void *fabric_and_host(void *unused)
{
	(void)unused;
	while (__atomic_load_n(&w.running, __ATOMIC_ACQUIRE)) {
		for (unsigned int n = some(20); n > 0; n--)
			works(&w.devices[w.host.queue]);
		if (may_cut())
			fails_over();
		else if (w.made >= cuts)
			__atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
		ha_ibgda_retire(&w.host);
		sched_yield();
	}
	return NULL;
}

static void *posts(void *argument)
{
	const unsigned int me = (unsigned int)(uintptr_t)argument;
	uint64_t posted = 0;

	while (!__atomic_load_n(&w.stops, __ATOMIC_ACQUIRE)) {
		struct ha_ibgda_work post = {
		    .put = {(uint64_t)(uintptr_t)&w.source[me], REMOTE + 8 * me, 0, 0, 8},
		    .signal = {me % IDS, 1}};

		w.source[me] = ++posted;
		if (ha_ibgda_post(&w.stream, &post) != HA_IBGDA_OK ||
		    ha_ibgda_quiet(&w.stream, post.first + 1) != HA_IBGDA_OK)
			break;
	}
	__atomic_fetch_add(&w.signals, posted, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&w.running, 1, __ATOMIC_ACQ_REL);
	return NULL;
}

static void threads_that_post_while_queue_pairs_are_cut_have_exact_sums(void **state)
{
	pthread_t threads[THREADS], fabric;
	(void)state;
	w.random = 7;
	w.running = THREADS;
	w.stream = (struct ha_ibgda_stream){.queues = w.queues, .alarm = &w.alarm, .log = LOG};
	for (unsigned int n = 0; n < HA_IBGDA_QUEUES; n++) {
		w.queues[n].requests = w.devices[n].requests;
		w.queues[n].completions = w.devices[n].completions;
		w.queues[n].record = &w.devices[n].record;
		w.queues[n].doorbell = &w.devices[n].doorbell;
		w.queues[n].cells_addr = CELLS;
	}
	make(0);
	ha_ibgda_host_init(&w.host, &w.stream);
	assert_int_equal(pthread_create(&fabric, NULL, fabric_and_host, NULL), 0);
	for (unsigned int n = 0; n < THREADS; n++)
		assert_int_equal(pthread_create(&threads[n], NULL, posts, (void *)(uintptr_t)n), 0);
	for (unsigned int n = 0; n < THREADS; n++)
		pthread_join(threads[n], NULL);
	pthread_join(fabric, NULL);
	printf("%u cuts, %llu signals\n", w.made, (unsigned long long)w.signals);
	assert_int_equal(w.made, cuts);
	assert_int_equal(w.wrong, 0);
	assert_int_equal(given(), w.signals);
	assert_memory_equal(w.remote, w.source, sizeof(w.remote));
	assert_int_equal(w.mistakes.stale + w.mistakes.malformed + w.mistakes.without_record, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(threads_that_post_while_queue_pairs_are_cut_have_exact_sums),
	};

	if (argc > 1)
		cuts = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		signals_between = strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("ibgda_stream_live", tests, NULL, NULL);
}
