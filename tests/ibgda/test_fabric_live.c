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

static unsigned int cuts = 12, num_threads = 8;

static struct {
	struct stream_end a, b;
	struct pipe_end pipe[2];
	struct ha_ibgda_sender sender;
	struct ha_ibgda_receiver receiver;
	uint64_t sources[THREADS_MOST], targets[THREADS_MOST], signals;
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

	for (unsigned int id = 0; id < IDS; id++)
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
		    .put = {(uintptr_t)&w.sources[me], (uintptr_t)&w.targets[me], 1, 1, 8},
		    .signal = {me % IDS, 1}};

		__atomic_store_n(&w.sources[me], ++posted, __ATOMIC_RELAXED);
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
	stream_end_make(&w.a, contexts, w.sources, sizeof(w.sources), 6, 2);
	stream_end_make(&w.b, contexts + END_NICS, w.targets, sizeof(w.targets), 6, 2);
	pipe_make(w.pipe);
	assert_true(
	    ha_ibgda_receiver_open(&w.receiver, w.b.nics, END_NICS, pipe_channel(&w.pipe[1])));
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

static void threads_that_put_while_paths_fail_have_exact_sums(void **state)
{
	pthread_t threads[THREADS_MOST], hosts[2];
	unsigned int moved = 0;

	(void)state;
	w.running = num_threads;
	assert_int_equal(pthread_create(&hosts[0], NULL, sending_host, NULL), 0);
	assert_int_equal(pthread_create(&hosts[1], NULL, receiving_host, NULL), 0);
	for (unsigned int n = 0; n < num_threads; n++)
		assert_int_equal(pthread_create(&threads[n], NULL, posts, (void *)(uintptr_t)n), 0);
	while (moved < cuts && cut(moved))
		moved++;
	__atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < num_threads; n++)
		pthread_join(threads[n], NULL);
	__atomic_store_n(&w.hosts_stop, 1, __ATOMIC_RELEASE);
	pthread_join(hosts[0], NULL);
	pthread_join(hosts[1], NULL);
	printf("%u cuts, %lu failovers, %llu signals\n", moved, w.sender.failovers,
	       (unsigned long long)w.signals);
	print_pauses();
	assert_null(w.sender.fault);
	assert_int_equal(moved, cuts);
	assert_int_equal(given(), w.signals);
	assert_memory_equal(w.targets, w.sources, sizeof(w.targets));
	check_mistakes();
}

static int setup(void **state)
{
	(void)state;
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
	fabric_down();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(threads_that_put_while_paths_fail_have_exact_sums,
					    setup, teardown),
	};

	if (argc > 1)
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		num_threads = (unsigned int)strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("ibgda_fabric_live", tests, NULL, NULL);
}
