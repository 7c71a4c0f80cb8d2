/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that put and signal over queue pairs of a live fabric that they drive themselves, while
 * ports of both ends and the switch fail over and over: every signal counts once, every put is
 * there, and how long it takes until something arrives again. Hosts of both ends have a thread
 * each.
 *
 *     ibgda_fabric_live [CUTS [THREADS]]
 */
#include "../unit/cmocka_all.h"

#include <sched.h>
#define HA_DEV_PAUSE() sched_yield()

#include "ends.h"
#include "ep_shim.h"

#include "../fabric/pair.h"
#include "nccl_ha/ibgda.cuh"

#include <pthread.h>
#include <simverbs/mlx5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MOST 64u
#define CUTS_MOST    2000u
#define IDS	     4u
#define LOG	     8u
#define WARPS	     8u
#define EXPERTS	     2u
#define TOKEN	     2048u /* bytes */

static unsigned int cuts = 12, num_threads = 8;

static struct {
	struct stream_end a, b;
	struct pipe_end pipe[2];
	struct ha_ibgda_sender sender;
	struct ha_ibgda_receiver receiver;
	struct {
		uint64_t words[THREADS_MOST];
		uint8_t tokens[WARPS][TOKEN];
	} own; /* memory of who puts, */
	struct {
		uint64_t words[THREADS_MOST];
		uint8_t tokens[EXPERTS][WARPS][TOKEN];
	} peers; /* and of who receives */
	uint64_t signals;
	unsigned int rounds[WARPS], consumed[EXPERTS][WARPS],
	    wrong; /* rounds: when a warp has ended */
	unsigned int running, stops, hosts_stop;
	uint64_t shown; /* of the sender, by its thread: generation << 8 | NIC << 1 | there is a
			   next one */
	/* Of the failover under way. */
	uint64_t down_ns, generation_then;
	uint64_t pauses_ns[CUTS_MOST];
	unsigned int pauses;
} w;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t given(void)
{
	uint64_t sum = 0;

	for (unsigned int id = 0; id < EXPERTS * WARPS; id++)
		sum += ha_ibgda_receiver_signal(&w.receiver, id);
	return sum;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* From the port's event to the first payload over another one. */
static void measure(uint64_t *given_then)
{
	if (!w.down_ns)
		return;
	if (w.sender.host.generation == w.generation_then) {
		*given_then = given();
		return;
	}
	if (given() == *given_then)
		return;
	if (w.pauses < CUTS_MOST)
		w.pauses_ns[w.pauses++] = now_ns() - w.down_ns;
	w.down_ns = 0;
}

static void show(void)
{
	const struct ha_ibgda_sender *sender = &w.sender;

	__atomic_store_n(&w.shown,
			 (uint64_t)sender->host.generation << 8 |
			     sender->slots[sender->host.queue].nic << 1 |
			     (sender->next == HA_IBGDA_NEXT_READY),
			 __ATOMIC_RELEASE);
}

static void *sending_host(void *unused)
{
	uint64_t given_then = 0;

	(void)unused;
	while (!__atomic_load_n(&w.hosts_stop, __ATOMIC_ACQUIRE)) {
		for (unsigned int n = 0; n < END_NICS; n++) {
			if (!ha_ibgda_nic_has_failed(&w.a.nics[n]))
				continue;
			if (w.sender.slots[w.sender.host.queue].nic == n && !w.down_ns) {
				w.down_ns = now_ns();
				w.generation_then = w.sender.host.generation;
			}
			ha_ibgda_sender_suspect(&w.sender, n);
		}
		ha_ibgda_sender_step(&w.sender, now_ns());
		(void)ha_ibgda_sender_prepare(&w.sender, now_ns());
		show();
		measure(&given_then);
		sched_yield();
	}
	return NULL;
}

static void *receiving_host(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&w.hosts_stop, __ATOMIC_ACQUIRE)) {
		for (unsigned int n = 0; n < END_NICS; n++)
			if (ha_ibgda_nic_has_failed(&w.b.nics[n]))
				ha_ibgda_receiver_suspect(&w.receiver, n);
		ha_ibgda_receiver_step(&w.receiver, now_ns());
		(void)ha_ibgda_receiver_prepare(&w.receiver);
		sched_yield();
	}
	return NULL;
}

/* ---- threads of the GPU ---------------------------------------------------------------------- */

static void *posts(void *argument)
{
	const unsigned int me = (unsigned int)(uintptr_t)argument;
	uint64_t posted = 0;

	while (!__atomic_load_n(&w.stops, __ATOMIC_ACQUIRE)) {
		struct ha_ibgda_work post = {
		    .put = {(uintptr_t)&w.own.words[me], (uintptr_t)&w.peers.words[me], 1, 1, 8},
		    .signal = {me % IDS, 1}};

		__atomic_store_n(&w.own.words[me], ++posted, __ATOMIC_RELAXED);
		if (ha_ibgda_post(&w.sender.stream, &post) != HA_IBGDA_OK ||
		    ha_ibgda_quiet(&w.sender.stream, post.first + 1) != HA_IBGDA_OK)
			break;
	}
	__atomic_fetch_add(&w.signals, posted, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&w.running, 1, __ATOMIC_ACQ_REL);
	return NULL;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static uint64_t shown(void)
{
	return __atomic_load_n(&w.shown, __ATOMIC_ACQUIRE);
}

static bool wait_for(bool (*is_so)(uint64_t), uint64_t value, const char *what)
{
	const uint64_t until = now_ns() + 20000000000ull;

	while (now_ns() < until) {
		if (is_so(value))
			return true;
		usleep(200);
	}
	print_error("%s: generation %llu, given %llu\n", what, (unsigned long long)(shown() >> 8),
		    (unsigned long long)given());
	return false;
}

static bool has_generation(uint64_t generation)
{
	return shown() >> 8 >= generation;
}

static bool has_next(uint64_t unused)
{
	(void)unused;
	return shown() & 1;
}

static bool has_given(uint64_t sum)
{
	return given() >= sum;
}

/* Each end's port and the switch, in turn; until the stream has gone on elsewhere. */
static bool cut(unsigned int number)
{
	uint64_t generation;
	uint32_t rail;
	bool moved;

	if (!wait_for(has_next, 0, "there is no next queue pair"))
		return false;
	generation = shown() >> 8;
	rail = (uint32_t)shown() >> 1 & 0x7f;
	if (number % 3 == 2)
		fabric_tool("cut %s %u", fabric_name(), rail);
	else
		fabric_tool("link %s 0 %u down", fabric_name(),
			    number % 3 ? rail + END_NICS : rail);
	moved = wait_for(has_generation, generation + 1, "it does not move") &&
		wait_for(has_given, given() + 10, "nothing arrives");
	if (number % 3 == 2)
		fabric_tool("cut %s %u --heal", fabric_name(), rail);
	else
		fabric_tool("link %s 0 %u up", fabric_name(), number % 3 ? rail + END_NICS : rail);
	return moved;
}

/* ---- the test -------------------------------------------------------------------------------- */

static void open_ends(void)
{
	const struct ha_ibgda_settings settings = {.log = LOG, .outage_ns = 30000000000ull};
	struct ibv_context *contexts[2 * END_NICS];
	struct ibv_device **devices;
	int count;

	setenv("SIMVERBS_FABRIC", fabric_name(), 1);
	setenv("SIMVERBS_HOST", "0", 1);
	devices = ibv_get_device_list(&count);
	assert_int_equal(count, 2 * END_NICS);
	for (unsigned int n = 0; n < 2 * END_NICS; n++)
		contexts[n] = ibv_open_device(devices[n]);
	ibv_free_device_list(devices);
	stream_end_make(&w.a, contexts, &w.own, sizeof(w.own), 6, 2);
	stream_end_make(&w.b, contexts + END_NICS, &w.peers, sizeof(w.peers), 6, 2);
	pipe_make(w.pipe);
	assert_true(ha_ibgda_receiver_open(&w.receiver, w.b.nics, END_NICS,
					   pipe_channel(&w.pipe[1]), NULL));
	ha_ibgda_sender_open(&w.sender, w.a.nics, END_NICS, pipe_channel(&w.pipe[0]), &settings);
}

static int by_length(const void *a, const void *b)
{
	const uint64_t *first = a, *second = b;

	return *first < *second ? -1 : *first > *second;
}

static void print_pauses(void)
{
	qsort(w.pauses_ns, w.pauses, sizeof(w.pauses_ns[0]), by_length);
	if (w.pauses)
		printf("%u pauses after a port's event: median %.2f ms, 99th of 100 %.2f ms, "
		       "longest %.2f ms\n",
		       w.pauses, (double)w.pauses_ns[w.pauses / 2] / 1e6,
		       (double)w.pauses_ns[w.pauses * 99 / 100] / 1e6,
		       (double)w.pauses_ns[w.pauses - 1] / 1e6);
}

static void check_mistakes(void)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		struct sv_direct_mistakes m;

		sv_direct_mistakes(w.a.nics[n].context, &m);
		assert_int_equal(m.stale + m.malformed + m.without_record + m.overrun, 0);
	}
}

static void start_hosts(pthread_t hosts[2])
{
	assert_int_equal(pthread_create(&hosts[0], NULL, sending_host, NULL), 0);
	assert_int_equal(pthread_create(&hosts[1], NULL, receiving_host, NULL), 0);
}

static void stop_hosts(pthread_t hosts[2])
{
	__atomic_store_n(&w.hosts_stop, 1, __ATOMIC_RELEASE);
	pthread_join(hosts[0], NULL);
	pthread_join(hosts[1], NULL);
	assert_null(w.sender.fault);
	check_mistakes();
}

static void threads_that_put_while_paths_fail_have_exact_sums(void **state)
{
	pthread_t threads[THREADS_MOST], hosts[2];
	unsigned int moved = 0;

	(void)state;
	start_hosts(hosts);
	for (unsigned int n = 0; n < num_threads; n++)
		assert_int_equal(pthread_create(&threads[n], NULL, posts, (void *)(uintptr_t)n), 0);
	while (moved < cuts && cut(moved))
		moved++;
	__atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < num_threads; n++)
		pthread_join(threads[n], NULL);
	stop_hosts(hosts);
	printf("%u cuts, %lu failovers, %llu signals\n", moved, w.sender.failovers,
	       (unsigned long long)w.signals);
	print_pauses();
	assert_int_equal(moved, cuts);
	assert_int_equal(given(), w.signals);
	assert_memory_equal(w.peers.words, w.own.words, sizeof(w.own.words));
}

/* ---- tokens to experts ----------------------------------------------------------------------- */

static uint8_t byte_of(unsigned int warp, unsigned int round, unsigned int at)
{
	return (uint8_t)(warp * 31 + round * 7 + at);
}

/* What stands for the way back: the slot may be written again. */
static void wait_until_consumed(unsigned int expert, unsigned int warp, unsigned int rounds)
{
	while (__atomic_load_n(&w.consumed[expert][warp], __ATOMIC_ACQUIRE) < rounds)
		sched_yield();
}

static bool dispatch(unsigned int warp, unsigned int round)
{
	uint64_t last = 0;

	for (unsigned int at = 0; at < TOKEN; at++)
		w.own.tokens[warp][at] = byte_of(warp, round, at);
	for (unsigned int expert = 0; expert < EXPERTS; expert++) {
		const uint64_t to = (uintptr_t)w.peers.tokens[expert][warp];

		wait_until_consumed(expert, warp, round);
		if (!ep_put_nbi_warp(&w.sender.stream, to, (uintptr_t)w.own.tokens[warp], TOKEN, 1,
				     0, &last) ||
		    !ep_amo_nonfetch_add(&w.sender.stream, expert * WARPS + warp, 1, &last))
			return false;
	}
	return ep_quiet(&w.sender.stream, last);
}

static void *warp_runs(void *argument)
{
	const unsigned int warp = (unsigned int)(uintptr_t)argument;

	unsigned int round = 0;

	while (!__atomic_load_n(&w.stops, __ATOMIC_ACQUIRE) && dispatch(warp, round))
		round++;
	w.rounds[warp] = round;
	__atomic_fetch_sub(&w.running, 1, __ATOMIC_ACQ_REL);
	return NULL;
}

/* The memory is the expert's once it has the counter: it may use it for something else. */
static void consume(unsigned int expert, unsigned int warp)
{
	const unsigned int round = w.consumed[expert][warp];
	uint8_t *token = w.peers.tokens[expert][warp];

	if (ha_ibgda_receiver_signal(&w.receiver, expert * WARPS + warp) < round + 1)
		return;
	for (unsigned int at = 0; at < TOKEN; at++)
		if (__atomic_load_n(&token[at], __ATOMIC_RELAXED) != byte_of(warp, round, at))
			__atomic_fetch_add(&w.wrong, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&w.consumed[expert][warp], round + 1, __ATOMIC_RELEASE);
}

static void *expert_runs(void *argument)
{
	const unsigned int expert = (unsigned int)(uintptr_t)argument;

	while (__atomic_load_n(&w.running, __ATOMIC_ACQUIRE)) {
		for (unsigned int warp = 0; warp < WARPS; warp++)
			consume(expert, warp);
		sched_yield();
	}
	for (unsigned int warp = 0; warp < WARPS; warp++)
		consume(expert, warp); /* the last one */
	return NULL;
}

static void tokens_reach_their_experts_while_paths_fail(void **state)
{
	pthread_t warps[WARPS], experts[EXPERTS], hosts[2];
	unsigned int moved = 0;

	(void)state;
	w.running = WARPS;
	start_hosts(hosts);
	for (uintptr_t n = 0; n < EXPERTS; n++)
		assert_int_equal(pthread_create(&experts[n], NULL, expert_runs, (void *)n), 0);
	for (uintptr_t n = 0; n < WARPS; n++)
		assert_int_equal(pthread_create(&warps[n], NULL, warp_runs, (void *)n), 0);
	while (moved < 3 && cut(moved))
		moved++;
	__atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < WARPS; n++)
		pthread_join(warps[n], NULL);
	for (unsigned int n = 0; n < EXPERTS; n++)
		pthread_join(experts[n], NULL);
	stop_hosts(hosts);
	assert_int_equal(moved, 3);
	assert_int_equal(w.wrong, 0);
	for (unsigned int warp = 0; warp < WARPS; warp++)
		for (unsigned int expert = 0; expert < EXPERTS; expert++) {
			assert_int_equal(w.consumed[expert][warp], w.rounds[warp]);
			assert_int_equal(
			    ha_ibgda_receiver_signal(&w.receiver, expert * WARPS + warp),
			    w.rounds[warp]);
		}
}

static int setup(void **state)
{
	(void)state;
	memset(&w, 0, sizeof(w));
	w.running = num_threads;
	/* A process stays with the fabric that it found first. */
	if (!fabric_name()[0])
		fabric_up("--hosts 1 --rails 4");
	open_ends();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	ha_ibgda_sender_close(&w.sender);
	ha_ibgda_receiver_close(&w.receiver);
	stream_end_give(&w.a);
	stream_end_give(&w.b);
	pipe_give(w.pipe);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(threads_that_put_while_paths_fail_have_exact_sums,
					    setup, teardown),
	    cmocka_unit_test_setup_teardown(tokens_reach_their_experts_while_paths_fail, setup,
					    teardown),
	};

	if (argc > 1)
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		num_threads = (unsigned int)strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("ibgda_fabric_live", tests, NULL, NULL);
}
