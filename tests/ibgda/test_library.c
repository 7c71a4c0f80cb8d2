/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-ha-ibgda.so, by its headers alone: streams between two contexts of a live fabric, while
 * each end's port and the switch fail in turn, and what it says to a program that errs.
 *
 *     ibgda_library_live [CUTS [STREAMS [SIGNALS]]]
 *     ibgda_library_live contexts CONTEXTS
 */
#include "../unit/cmocka_all.h"

#include <sched.h>
#define HA_DEV_PAUSE() sched_yield()

#include "nccl_ha/ibgda.cuh"
#include "nccl_ha/ibgda.h"

#include "../descriptors.h"
#include "../fabric/pair.h"

#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MOST 64u
#define SLOTS	     64u /* of each stream: put n goes to slot n mod so many */
#define GIVEN	     64u /* the last ones that are remembered */
#define NO_NIC	     99u
#define MS	     1000000ull
#define LONGEST_S    (SLACK * 10u)

static unsigned int cuts = 4, num_streams = 8;
static unsigned long long signals_least = 1000;

static struct {
	struct ha_ibgda_context *a, *b;
	uint64_t own[STREAMS_MOST][SLOTS], peers[STREAMS_MOST][SLOTS];
	struct {
		struct ha_ibgda_end *puts, *receives;
		uint64_t posted, seen;
		pthread_t thread;
	} streams[STREAMS_MOST];
	unsigned int stops, wrong;
	/* What the contexts were given. */
	unsigned int allocated, released, doorbells;
	unsigned int is_slow; /* to give memory: 1 it is to be, 2 it is */
	struct {
		uintptr_t at;
		size_t bytes;
	} given[GIVEN];
} w;

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- a program's memory ------------------------------------------------------------------ */

/* Memory is asked for while a context does nothing else: that it does for two seconds at most. */
static void keep_the_host(void)
{
	const uint64_t until = now_ns() + 2000 * MS;

	__atomic_store_n(&w.is_slow, 2, __ATOMIC_RELEASE);
	while (__atomic_load_n(&w.is_slow, __ATOMIC_ACQUIRE) == 2 && now_ns() < until)
		usleep(1000);
	__atomic_store_n(&w.is_slow, 0, __ATOMIC_RELEASE);
}

static void *allocate(void *argument, size_t alignment, size_t bytes)
{
	void *at = NULL;
	unsigned int number;

	assert_ptr_equal(argument, &w);
	if (__atomic_load_n(&w.is_slow, __ATOMIC_ACQUIRE))
		keep_the_host();
	assert_int_equal(posix_memalign(&at, alignment, bytes), 0);
	number = __atomic_fetch_add(&w.allocated, 1, __ATOMIC_RELAXED) % GIVEN;
	__atomic_store_n(&w.given[number].bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&w.given[number].at, (uintptr_t)at, __ATOMIC_RELEASE);
	return at;
}

static void release(void *argument, void *memory)
{
	assert_ptr_equal(argument, &w);
	__atomic_fetch_add(&w.released, 1, __ATOMIC_RELAXED);
	free(memory);
}

static int doorbell(void *argument, void *at, size_t bytes)
{
	assert_ptr_equal(argument, &w);
	assert_true(at && bytes == sizeof(uint64_t));
	__atomic_fetch_add(&w.doorbells, 1, __ATOMIC_RELAXED);
	return 0;
}

static struct ha_ibgda_options options_of(const char *nics)
{
	return (struct ha_ibgda_options){.size = sizeof(struct ha_ibgda_options),
					 .nics = nics,
					 .log = 7,
					 .outage_ms = 30000,
					 .memory = {allocate, release, doorbell, &w}};
}

static void open_stream(unsigned int n)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(ha_ibgda_receive_open(w.b, fds[1], &w.streams[n].receives), 0);
	assert_int_equal(ha_ibgda_put_open(w.a, fds[0], &w.streams[n].puts), 0);
}

static void close_stream(unsigned int n)
{
	ha_ibgda_end_close(w.streams[n].puts);
	ha_ibgda_end_close(w.streams[n].receives);
}

static struct ha_ibgda_status status_of(struct ha_ibgda_end *end)
{
	struct ha_ibgda_status status = {.size = sizeof(status)};

	assert_int_equal(ha_ibgda_end_status(end, &status), 0);
	return status;
}

/* ---- threads of the GPU, and the receiver's ---------------------------------------------- */

static struct ha_ibgda_work next_put(unsigned int stream)
{
	const uint64_t number = w.streams[stream].posted + 1;
	uint64_t *from = &w.own[stream][number % SLOTS], *to = &w.peers[stream][number % SLOTS];

	return (struct ha_ibgda_work){.put = {(uintptr_t)from, (uintptr_t)to, 3, 5, 8},
				      .signal = {stream % HA_IBGDA_IDS, 1}};
}

/* Half of the slots at a time, so that none is written before it is quiet. */
static void *posts(void *argument)
{
	const unsigned int me = (unsigned int)(uintptr_t)argument;
	struct ha_ibgda_stream *stream = ha_ibgda_end_stream(w.streams[me].puts);

	while (!__atomic_load_n(&w.stops, __ATOMIC_ACQUIRE)) {
		struct ha_ibgda_work post = next_put(me);
		const uint64_t number = w.streams[me].posted + 1;

		__atomic_store_n(&w.own[me][number % SLOTS], number, __ATOMIC_RELAXED);
		if (ha_ibgda_post(stream, &post) != HA_IBGDA_OK)
			return NULL;
		__atomic_store_n(&w.streams[me].posted, number, __ATOMIC_RELEASE);
		if (number % (SLOTS / 2) == 0 &&
		    ha_ibgda_quiet(stream, post.first + 1) != HA_IBGDA_OK)
			return NULL;
	}
	return NULL;
}

/* Who sees a signal has its put; a later one may have come to its place. */
static void look_at(unsigned int n)
{
	const uint64_t *signals = ha_ibgda_end_signals(w.streams[n].receives);
	const uint64_t value = __atomic_load_n(&signals[n % HA_IBGDA_IDS], __ATOMIC_ACQUIRE);
	const uint64_t word = __atomic_load_n(&w.peers[n][value % SLOTS], __ATOMIC_ACQUIRE);

	w.wrong += value < w.streams[n].seen || word < value || word % SLOTS != value % SLOTS;
	w.streams[n].seen = value;
}

static unsigned long long look_at_all(void)
{
	unsigned long long sum = 0;

	for (unsigned int n = 0; n < num_streams; n++) {
		look_at(n);
		sum += w.streams[n].seen;
	}
	return sum;
}

/* ---- cuts -------------------------------------------------------------------------------- */

static bool all_have_left(unsigned int nic)
{
	for (unsigned int n = 0; n < num_streams; n++) {
		const struct ha_ibgda_status status = status_of(w.streams[n].puts);

		if (status.reason)
			fail_msg("stream %u: %s", n, status.reason);
		if (status.state != HA_IBGDA_STATE_HOME && status.state != HA_IBGDA_STATE_AWAY)
			return false;
		if (status.nic == nic)
			return false;
	}
	return true;
}

/* NICs count from 1 on, so that 0 is none. */
static void wait_until_left(unsigned int nic)
{
	const uint64_t until = now_ns() + LONGEST_S * 1000 * MS;

	while (!all_have_left(nic)) {
		look_at_all();
		if (now_ns() > until)
			fail_msg("a stream is still at NIC %u", nic);
		usleep(1000);
	}
}

static void wait_for_signals(const uint64_t *than)
{
	const uint64_t until = now_ns() + LONGEST_S * 1000 * MS;

	for (unsigned int n = 0; n < num_streams;) {
		look_at(n);
		if (w.streams[n].seen > than[n])
			n++;
		else if (now_ns() > until)
			fail_msg("nothing arrives of stream %u", n);
		else
			usleep(200);
	}
}

/* Each end's port and the switch in turn, of the NIC that all streams use. */
static void cut(unsigned int number)
{
	const unsigned int rail = number % 2;
	const unsigned int kind = number % 3;
	uint64_t seen[STREAMS_MOST];

	if (kind == 2)
		fabric_tool("cut %s %u", fabric_name(), rail);
	else
		fabric_tool("link %s 0 %u down", fabric_name(), kind ? rail + 2 : rail);
	wait_until_left(rail);
	look_at_all();
	for (unsigned int n = 0; n < num_streams; n++)
		seen[n] = w.streams[n].seen;
	wait_for_signals(seen);
	if (kind == 2)
		fabric_tool("cut %s %u --heal", fabric_name(), rail);
	else
		fabric_tool("link %s 0 %u up", fabric_name(), kind ? rail + 2 : rail);
}

/* ---- tests ------------------------------------------------------------------------------- */

static void start_threads(void)
{
	for (uintptr_t n = 0; n < num_streams; n++)
		assert_int_equal(pthread_create(&w.streams[n].thread, NULL, posts, (void *)n), 0);
}

static void stop_threads(void)
{
	__atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
	for (unsigned int n = 0; n < num_streams; n++)
		pthread_join(w.streams[n].thread, NULL);
}

static void wait_for_sum(unsigned long long sum)
{
	const uint64_t until = now_ns() + 2 * LONGEST_S * 1000 * MS;

	while (look_at_all() < sum && now_ns() < until)
		usleep(1000);
	assert_true(look_at_all() >= sum);
}

static void streams_whose_nics_fail_have_exact_sums_and_each_signal_has_its_put(void **state)
{
	unsigned long long posted = 0, failovers = 0;

	(void)state;
	for (unsigned int n = 0; n < num_streams; n++)
		open_stream(n);
	start_threads();
	wait_until_left(1);
	for (unsigned int n = 0; n < cuts; n++)
		cut(n);
	wait_for_sum(signals_least);
	stop_threads();
	for (unsigned int n = 0; n < num_streams; n++) {
		posted += w.streams[n].posted;
		failovers += status_of(w.streams[n].puts).failovers;
	}
	wait_for_sum(posted);
	for (unsigned int n = 0; n < num_streams; n++) {
		assert_int_equal(w.streams[n].seen, w.streams[n].posted);
		close_stream(n);
	}
	printf("%u streams, %u cuts, %llu failovers, %llu signals\n", num_streams, cuts, failovers,
	       posted);
	assert_int_equal(w.wrong, 0);
	assert_true(failovers >= (unsigned long long)cuts * num_streams);
	assert_memory_equal(w.own, w.peers, sizeof(w.own));
	assert_true(w.doorbells > 0);
	assert_int_equal(w.allocated, w.released);
}

static bool is_given(const void *at, size_t bytes)
{
	for (unsigned int n = 0; n < GIVEN; n++) {
		const uintptr_t first = __atomic_load_n(&w.given[n].at, __ATOMIC_ACQUIRE);

		if ((uintptr_t)at >= first && (uintptr_t)at + bytes <= first + w.given[n].bytes)
			return true;
	}
	return false;
}

/* Words that threads of a GPU wait at, of either end, are where the GPU reaches them. */
static void what_threads_look_at_is_the_programs_memory(void **state)
{
	const struct ha_ibgda_stream *stream;
	uint64_t gate;

	(void)state;
	open_stream(0);
	wait_until_left(1);
	stream = ha_ibgda_end_stream(w.streams[0].puts);
	gate = __atomic_load_n(&stream->gate, __ATOMIC_ACQUIRE);
	assert_true(is_given(stream, sizeof(*stream)));
	assert_true(is_given(stream->alarm, sizeof(*stream->alarm)));
	assert_true(is_given(ha_ibgda_queue_of(gate), sizeof(struct ha_ibgda_queue)));
	assert_true(is_given(ha_ibgda_queue_of(gate)->requests, HA_WQE_BLOCK << stream->log));
	assert_true(is_given((const void *)(uintptr_t)ha_ibgda_queue_of(gate)->completions,
			     (size_t)HA_CQE_SIZE << stream->log));
	assert_true(
	    is_given((const void *)(uintptr_t)ha_ibgda_queue_of(gate)->record, sizeof(uint32_t)));
	assert_true(
	    is_given(ha_ibgda_end_signals(w.streams[0].receives), HA_IBGDA_IDS * sizeof(uint64_t)));
	close_stream(0);
}

/* As an operator orders, and back. */
static void a_stream_goes_where_it_is_told_to(void **state)
{
	(void)state;
	open_stream(0);
	start_threads();
	for (unsigned int nic = 1; nic < 2; nic--) {
		assert_int_equal(ha_ibgda_end_move(w.streams[0].puts, nic), 0);
		wait_until_left(1 - nic);
		assert_int_equal(status_of(w.streams[0].puts).state, HA_IBGDA_STATE_HOME);
	}
	stop_threads();
	assert_int_equal(status_of(w.streams[0].puts).moves, 2);
	assert_int_equal(status_of(w.streams[0].puts).failovers, 0);
	assert_true(status_of(w.streams[0].puts).probes >= 2);
	assert_int_equal(ha_ibgda_end_move(w.streams[0].puts, 2), -EINVAL);
	assert_int_equal(ha_ibgda_end_move(w.streams[0].receives, 0), -EINVAL);
	close_stream(0);
}

static void wait_for_reason(struct ha_ibgda_end *end, const char *reason)
{
	const uint64_t until = now_ns() + LONGEST_S * 1000 * MS;

	while (!status_of(end).reason && now_ns() < until)
		usleep(1000);
	assert_int_equal(status_of(end).state, HA_IBGDA_STATE_OVER);
	assert_string_equal(status_of(end).reason, reason);
}

static void threads_return_when_their_stream_is_ended(void **state)
{
	uint64_t then;

	(void)state;
	open_stream(0);
	start_threads();
	wait_until_left(1);
	then = now_ns();
	ha_ibgda_end_abort(w.streams[0].puts);
	pthread_join(w.streams[0].thread, NULL);
	assert_true(now_ns() - then < SLACK * 100 * MS);
	wait_for_reason(w.streams[0].puts, "its program has ended it");
	wait_for_reason(w.streams[0].receives, "the other end is gone");
	close_stream(0);
}

static void *opens_another_one(void *argument)
{
	const int fd = (int)(intptr_t)argument;

	assert_int_equal(ha_ibgda_put_open(w.a, fd, &w.streams[1].puts), 0);
	return NULL;
}

/* A NIC's command may take long, and so may a program's memory: with the context's lock held. */
static void threads_return_also_while_the_host_is_busy(void **state)
{
	pthread_t thread;
	unsigned int was_busy;
	int fds[2];

	(void)state;
	open_stream(0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_int_equal(ha_ibgda_receive_open(w.b, fds[1], &w.streams[1].receives), 0);
	start_threads();
	wait_until_left(1);
	__atomic_store_n(&w.is_slow, 1, __ATOMIC_RELEASE);
	assert_int_equal(pthread_create(&thread, NULL, opens_another_one, (void *)(intptr_t)fds[0]),
			 0);
	while (__atomic_load_n(&w.is_slow, __ATOMIC_ACQUIRE) == 1)
		usleep(100);
	ha_ibgda_end_abort(w.streams[0].puts);
	pthread_join(w.streams[0].thread, NULL);
	ha_ibgda_end_abort(w.streams[1].receives);
	was_busy = __atomic_exchange_n(&w.is_slow, 0, __ATOMIC_ACQ_REL);
	pthread_join(thread, NULL);
	assert_int_equal(was_busy, 2);
	assert_int_equal(status_of(w.streams[0].puts).state, HA_IBGDA_STATE_OVER);
	assert_string_equal(status_of(w.streams[0].puts).reason, "its program has ended it");
	assert_string_equal(status_of(w.streams[1].receives).reason, "its program has ended it");
	close_stream(0);
	close_stream(1);
}

static void threads_return_when_their_peer_is_gone(void **state)
{
	(void)state;
	open_stream(0);
	start_threads();
	wait_until_left(1);
	ha_ibgda_end_close(w.streams[0].receives);
	pthread_join(w.streams[0].thread, NULL);
	wait_for_reason(w.streams[0].puts, "the other end is gone");
	ha_ibgda_end_close(w.streams[0].puts);
}

/* Whole frames of nonsense, and a part of one. */
static void who_talks_nonsense_is_not_listened_to(void **state)
{
	static const char nonsense[2000] = "GET / HTTP/1.1\r\n";
	struct ha_ibgda_end *end;
	int fds[2];

	(void)state;
	for (unsigned int puts = 0; puts < 2; puts++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
		assert_int_equal(puts ? ha_ibgda_put_open(w.a, fds[0], &end)
				      : ha_ibgda_receive_open(w.a, fds[0], &end),
				 0);
		assert_int_equal(send(fds[1], nonsense, 10, 0), 10);
		usleep(20000);
		assert_null(status_of(end).reason);
		assert_int_equal(send(fds[1], nonsense, sizeof(nonsense), 0), sizeof(nonsense));
		wait_for_reason(end, "the other end is gone");
		ha_ibgda_end_close(end);
		close(fds[1]);
	}
}

static void mistakes_have_their_errors(void **state)
{
	struct ha_ibgda_options options = options_of("=nothing_of_that_name");
	struct ha_ibgda_status status = {.size = 0};
	struct ha_ibgda_context *none = NULL;
	uint64_t word = 0;

	(void)state;
	assert_int_equal(ha_ibgda_context_open(&options, &none), -ENODEV);
	options.nics = "=sim0";
	options.log = 16;
	assert_int_equal(ha_ibgda_context_open(&options, &none), -EINVAL);
	options.log = 0;
	options.memory.release = NULL;
	assert_int_equal(ha_ibgda_context_open(&options, &none), -EINVAL);
	options.size = 8;
	assert_int_equal(ha_ibgda_context_open(&options, &none), -EINVAL);
	assert_null(none);
	assert_int_equal(ha_ibgda_register(w.a, 8, &word, sizeof(word)), -EINVAL);
	assert_int_equal(ha_ibgda_register(w.a, 3, &word, sizeof(word)), -EBUSY);
	assert_int_equal(ha_ibgda_deregister(w.a, 7), -ENOENT);
	assert_int_equal(ha_ibgda_num_nics(w.a), 2);
	assert_string_equal(ha_ibgda_nic_name(w.a, 1), "sim1");
	assert_null(ha_ibgda_nic_name(w.a, 2));
	open_stream(0);
	assert_int_equal(ha_ibgda_register(w.a, 0, &word, sizeof(word)), -EBUSY);
	assert_int_equal(ha_ibgda_context_close(w.a), -EBUSY);
	assert_null(ha_ibgda_end_stream(w.streams[0].receives));
	assert_null(ha_ibgda_end_signals(w.streams[0].puts));
	assert_int_equal(ha_ibgda_end_status(w.streams[0].puts, &status), -EINVAL);
	close_stream(0);
	assert_int_equal(ha_ibgda_register(w.a, 0, &word, sizeof(word)), 0);
	assert_int_equal(ha_ibgda_deregister(w.a, 0), 0);
}

static unsigned int contexts = 20;

/* Of this process, while its devices are open. */
static long long objects(const char *kind)
{
	json_t *status = fabric_status();
	const json_t *process;
	long long sum = 0;
	size_t i;

	assert_non_null(status);
	json_array_foreach(json_object_get(status, "processes"), i, process) sum +=
	    json_integer_value(json_object_get(process, kind));
	json_decref(status);
	return sum;
}

/* With a stream, whose first queue pair is connected. */
static void contexts_that_come_and_go_leave_nothing(void **state)
{
	struct ha_ibgda_options options[] = {options_of("=sim0,sim1"), options_of("=sim2,sim3")};
	int descriptors = 0;

	(void)state;
	for (unsigned int n = 0; n <= contexts; n++) {
		if (n == 1) /* what is opened once for all */
			descriptors = open_descriptors();
		assert_int_equal(ha_ibgda_context_open(&options[0], &w.a), 0);
		assert_int_equal(ha_ibgda_context_open(&options[1], &w.b), 0);
		assert_int_equal(ha_ibgda_register(w.a, 3, w.own, sizeof(w.own)), 0);
		assert_int_equal(ha_ibgda_register(w.b, 5, w.peers, sizeof(w.peers)), 0);
		open_stream(0);
		wait_until_left(NO_NIC);
		close_stream(0);
		if (n % 10 == 0) {
			assert_int_equal(objects("qps"), 0);
			assert_int_equal(objects("mrs"), 4); /* a region at each NIC */
		}
		assert_int_equal(ha_ibgda_context_close(w.a), 0);
		assert_int_equal(ha_ibgda_context_close(w.b), 0);
	}
	assert_int_equal(w.allocated, w.released);
	assert_true(w.allocated >= contexts);
	assert_int_equal(open_descriptors(), descriptors);
}

static int setup(void **state)
{
	const struct ha_ibgda_options a = options_of("=sim0,sim1"), b = options_of("=sim2,sim3");

	(void)state;
	memset(&w, 0, sizeof(w));
	if (ha_ibgda_context_open(&a, &w.a) || ha_ibgda_context_open(&b, &w.b))
		return -1;
	return ha_ibgda_register(w.a, 3, w.own, sizeof(w.own)) ||
	       ha_ibgda_register(w.b, 5, w.peers, sizeof(w.peers));
}

static int teardown(void **state)
{
	(void)state;
	return ha_ibgda_context_close(w.a) || ha_ibgda_context_close(w.b);
}

/* Of its NICs: how soon a request that is not answered has failed. */
static void set_timeouts(const char *qp_timeout, const char *qp_retry_cnt)
{
	setenv("HA_NCCL_QP_TIMEOUT", qp_timeout, 1);
	setenv("HA_NCCL_QP_RETRY_CNT", qp_retry_cnt, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest alone[] = {
	    TEST(what_threads_look_at_is_the_programs_memory),
	    TEST(a_stream_goes_where_it_is_told_to),
	    TEST(threads_return_when_their_stream_is_ended),
	    TEST(threads_return_also_while_the_host_is_busy),
	    TEST(threads_return_when_their_peer_is_gone),
	    TEST(who_talks_nonsense_is_not_listened_to),
	    TEST(mistakes_have_their_errors),
	    cmocka_unit_test(contexts_that_come_and_go_leave_nothing),
	};
	const struct CMUnitTest many[] = {
	    TEST(streams_whose_nics_fail_have_exact_sums_and_each_signal_has_its_put),
	};
	int failed;

	if (argc > 2 && !strcmp(argv[1], "contexts")) {
		contexts = (unsigned int)strtoul(argv[2], NULL, 10);
		argc = 1;
	}
	if (argc > 3)
		signals_least = strtoull(argv[3], NULL, 10);
	fabric_up("--hosts 1 --rails 4");
	alarm(argc > 1 ? 3000 : 160);
	setenv("SIMVERBS_FABRIC", fabric_name(), 1);
	setenv("SIMVERBS_HOST", "0", 1);
	/* simverbs' own: who looks for that library finds it loaded. */
	if (!dlopen(SIMVERBS_MLX5, RTLD_NOW))
		return 1;
	if (argc > 1)
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		num_streams = (unsigned int)strtoul(argv[2], NULL, 10);
	set_timeouts("6", "2");
	failed = cmocka_run_group_tests_name("ibgda_streams", many, NULL, NULL);
	if (argc > 1)
		return failed;
	num_streams = 1;
	/* Nothing is cut there, and a thread of the fabric that waits for a processor is no cut. */
	set_timeouts("14", "7");
	return failed + cmocka_run_group_tests_name("ibgda_library", alone, NULL, NULL);
}
