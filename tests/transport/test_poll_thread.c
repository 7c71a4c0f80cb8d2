/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HA_NCCL_USE_PROGRESS_THREAD=2: a thread polls in the application's place. Its rounds are in the
 * test's hands, so that what each of the two does is told apart; threads are
 * perf-ha-*-poll-thread's.
 */
#include "gpu.h"
#include "transport/poll_thread.h"

#include <dirent.h>
#include <sched.h>
#include <unistd.h>

#define SIZE	 ((size_t)300000)
#define NAME_LEN 15 /* of a thread, to the kernel */
#define LINE_LEN 300

static void begin(struct pair *pair)
{
	pair_init(pair);
	pair->config.use_progress_thread = HA_POLLS_ALL;
}

static void up(struct pair *pair)
{
	begin(pair);
	pair_up(pair);
}

static bool rounds(struct pair *pair)
{
	bool any = false;

	for (int host = 0; host < 2; host++)
		any |= ha_poll_thread_round(pair->inst[host]->poll_thread);
	return any;
}

/* Until the thread has found nothing to do for longer than it passes anything over. */
static void rest(struct pair *pair)
{
	for (int quiet = 0; quiet < 200;) {
		bool moved = sv_stepped_run_idle(1000) != 0;

		quiet = rounds(pair) || moved ? 0 : quiet + 1;
	}
}

static bool is_done(const struct ha_request *req)
{
	return atomic_load(&req->state) == HA_REQ_DONE;
}

static bool is_taken(const struct ha_comm *comm)
{
	return atomic_load(&comm->token) != 0;
}

static struct ha_request *receive(struct pair *pair, size_t offset)
{
	const size_t size = SIZE;
	const int tag = 1;

	return post_recv(pair, 1, &offset, &size, &tag);
}

static void the_thread_completes_and_test_touches_no_queue(void **state)
{
	struct ha_request *recv, *next, *send;
	struct pair pair;
	uint32_t polls;
	int done, got = 0;

	(void)state;
	up(&pair);
	fill(pair.from.bytes, SIZE, 1);
	recv = receive(&pair, 0);
	next = receive(&pair, SIZE);
	send = try_send(&pair, 0, SIZE, 1);
	while (!send) {
		assert_true(pair_step(&pair));
		send = try_send(&pair, 0, SIZE, 1);
	}
	for (int i = 0; i < 1000 && !(is_done(recv) && is_done(send)); i++) {
		sv_stepped_run_idle(1000);
		rounds(&pair);
	}
	assert_true(is_done(recv));
	assert_true(is_done(send));
	assert_true(pair.recv->count.thread_completions > 0);
	assert_true(pair.send->count.thread_completions > 0);
	/* One more receive is under way, so it keeps that end; test leaves the queue to it. */
	assert_true(is_taken(pair.recv));
	polls = pair.recv->polls;
	assert_int_equal(ha_test_request(recv, &done, &got), HA_OK);
	assert_true(done);
	assert_int_equal(got, (int)SIZE);
	assert_true(filled(pair.to.bytes, SIZE, 1));
	assert_int_equal(ha_test_request(next, &done, NULL), HA_OK);
	assert_false(done);
	assert_int_equal(pair.recv->polls, polls);
	assert_int_equal(ha_test_request(send, &done, NULL), HA_OK);
	assert_true(done);
	pair_close(&pair);
}

/* More than test could find by itself: it is never called before all are done. */
static void what_comes_is_completed_in_the_order_it_was_sent_in(void **state)
{
	enum { MESSAGES = 8 };
	struct ha_request *recv[MESSAGES], *send[MESSAGES];
	struct pair pair;
	int sent = 0;

	(void)state;
	up(&pair);
	for (int i = 0; i < MESSAGES; i++) {
		recv[i] = receive(&pair, (size_t)i * SIZE);
		fill(pair.from.bytes + (size_t)i * SIZE, SIZE, (uint32_t)i);
	}
	for (int turn = 0; turn < 10000 && !(sent == MESSAGES && is_done(recv[MESSAGES - 1]));
	     turn++) {
		if (sent < MESSAGES &&
		    (send[sent] = try_send(&pair, (size_t)sent * SIZE, SIZE, 1)) != NULL)
			sent++;
		sv_stepped_step();
		rounds(&pair);
		for (int i = 1; i < MESSAGES; i++)
			assert_true(is_done(recv[i - 1]) || !is_done(recv[i]));
	}
	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
		assert_true(filled(pair.to.bytes + (size_t)i * SIZE, SIZE, (uint32_t)i));
	}
	pair_close(&pair);
}

/* Both receives get what is sent now. */
static void finish_both(struct pair *pair, struct ha_request *first, struct ha_request *second)
{
	for (int i = 0; i < 2; i++) {
		struct ha_request *send = post_send(pair, 0, SIZE, 1);

		assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	}
	assert_int_equal(pair_finish(pair, first, NULL), HA_OK);
	assert_int_equal(pair_finish(pair, second, NULL), HA_OK);
	pair_close(pair);
}

static void who_asks_for_a_connection_that_is_kept_has_it(void **state)
{
	struct ha_request *first, *second;
	struct pair pair;

	(void)state;
	up(&pair);
	first = receive(&pair, 0);
	assert_true(rounds(&pair));
	assert_true(is_taken(pair.recv));
	second = receive(&pair, SIZE); /* fails the test where it is refused */
	assert_non_null(second);
	assert_false(is_taken(pair.recv));
	/* Who asked has had it: it is kept again at once. */
	assert_true(rounds(&pair));
	assert_true(is_taken(pair.recv));
	finish_both(&pair, first, second);
}

/* A thread that has it is another one than the one that asks, and polls all the time. */
static void who_asks_a_thread_that_runs_has_it(void **state)
{
	const struct ha_poll_options options = {.thread = true, .cpu = -1};
	struct ha_poll_thread *rounds_by_hand, *thread;
	const size_t offset = SIZE, size = SIZE;
	struct ha_request *first, *second = NULL;
	struct pair pair;

	(void)state;
	up(&pair);
	first = receive(&pair, 0);
	rounds_by_hand = pair.inst[1]->poll_thread;
	ha_poll_thread_remove(rounds_by_hand, pair.recv);
	assert_int_equal(ha_poll_thread_start(&options, &thread), HA_OK);
	pair.inst[1]->poll_thread = thread;
	ha_poll_thread_add(thread, pair.recv);
	for (int i = 0; i < 10000 && !is_taken(pair.recv); i++)
		usleep(1000);
	assert_true(is_taken(pair.recv));
	for (int i = 0; i < 200 && !second; i++) {
		void *data = pair.to.bytes + offset;
		const int tag = 1;

		assert_int_equal(ha_irecv(pair.recv, 1, &data, &size, &tag, &pair.to.mr, &second),
				 HA_OK);
		if (!second)
			usleep(1000);
	}
	ha_poll_thread_remove(thread, pair.recv); /* before anything may fail */
	ha_poll_thread_stop(thread);
	assert_non_null(second);
	assert_false(is_taken(pair.recv));
	pair.inst[1]->poll_thread = rounds_by_hand;
	ha_poll_thread_add(rounds_by_hand, pair.recv);
	finish_both(&pair, first, second);
}

static void a_connection_without_anything_under_way_is_let_go_of(void **state)
{
	struct pair pair;

	(void)state;
	up(&pair);
	transfer(&pair, SIZE, 1);
	rest(&pair);
	assert_false(is_taken(pair.send));
	assert_false(is_taken(pair.recv));
	pair_close(&pair);
}

static void a_failover_goes_on_beside_it(void **state)
{
	const struct ha_path *before;
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	begin(&pair);
	pair.config.enable_backup = true;
	pair.fabric.rails = 2;
	pair_up(&pair);
	pair_wait_standby(&pair);
	before = ha_comm_path(pair.send);
	fill(pair.from.bytes, SIZE, 7);
	recv = receive(&pair, 0);
	send = post_send(&pair, 0, SIZE, 1);
	assert_true(rounds(&pair));
	sv_stepped_link(0, 0, false);
	for (int i = 0; i < 2000 && !(is_done(recv) && is_done(send)); i++) {
		pair_advance(&pair);
		rounds(&pair);
	}
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_true(filled(pair.to.bytes, SIZE, 7));
	assert_ptr_not_equal(ha_comm_path(pair.send), before);
	assert_int_equal(ha_hist_samples(&pair.send->failovers.blackout), 1);
	pair_close(&pair);
}

/* Its flushes are posted by test, which must not find the token taken for ever. */
static void receives_into_gpu_memory_are_left_to_test(void **state)
{
	struct ha_request *recv;
	struct gpu from, to;
	struct pair pair;

	(void)state;
	begin(&pair);
	pair.fabric.gpu = true;
	pair_up(&pair);
	gpu_open(&from, pair.send, SIZE, GPU_BY_POINTER);
	gpu_open(&to, pair.recv, SIZE, GPU_BY_POINTER);
	recv = gpu_recv(pair.recv, &to, 0, SIZE);
	for (int i = 0; i < 200; i++)
		rounds(&pair);
	assert_false(is_taken(pair.recv));
	assert_int_equal(pair.recv->count.thread_completions, 0);
	for (struct ha_request *send = NULL; !send || !is_done(send);) {
		if (!send)
			send = gpu_try_send(pair.send, &from, 0, SIZE);
		pair_step(&pair);
		rounds(&pair);
	}
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	recv = gpu_flush(pair.recv, &to, 0, SIZE);
	assert_non_null(recv);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	gpu_close(&from, pair.send);
	gpu_close(&to, pair.recv);
	pair_close(&pair);
}

static void a_connection_that_is_kept_closes(void **state)
{
	struct pair pair;

	(void)state;
	up(&pair);
	(void)receive(&pair, 0);
	assert_true(rounds(&pair));
	assert_true(is_taken(pair.recv));
	pair_close(&pair);
}

/* What the kernel says of the thread of this name: the value of a line of its status. */
static void read_status(const char *thread, const char *line, char value[LINE_LEN])
{
	DIR *tasks = opendir("/proc/self/task");

	assert_non_null(tasks);
	value[0] = 0;
	for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
		char path[300], text[LINE_LEN], name[NAME_LEN + 1] = "";
		FILE *status;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		status = fopen(path, "re");
		while (status && fgets(text, sizeof(text), status)) {
			text[strcspn(text, "\n")] = 0;
			if (strncmp(text, "Name:\t", 6) == 0)
				snprintf(name, sizeof(name), "%.15s", text + 6);
			if (!strncmp(name, thread, NAME_LEN) && !strncmp(text, line, strlen(line)))
				snprintf(value, LINE_LEN, "%s", text + strlen(line));
		}
		if (status)
			fclose(status);
	}
	closedir(tasks);
}

/* Every processor that this process may use, and -1: all of them, as it is without. */
static void the_thread_stays_on_the_processor_that_is_named(void **state)
{
	struct ha_poll_options options = {.thread = true};
	char all[LINE_LEN], is[LINE_LEN], want[LINE_LEN];
	cpu_set_t mine;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
	read_status(program_invocation_short_name, "Cpus_allowed_list:\t", all);
	for (int cpu = -1; cpu < CPU_SETSIZE; cpu++) {
		struct ha_poll_thread *thread;

		if (cpu >= 0 && !CPU_ISSET((unsigned)cpu, &mine))
			continue;
		snprintf(want, sizeof(want), "%d", cpu);
		options.cpu = cpu;
		assert_int_equal(ha_poll_thread_start(&options, &thread), HA_OK);
		read_status("nccl-ha-poll", "Cpus_allowed_list:\t", is);
		ha_poll_thread_stop(thread);
		assert_string_equal(is, cpu < 0 ? all : want);
	}
}

static void a_processor_that_is_not_there_is_named(void **state)
{
	const struct ha_poll_options options = {.thread = true, .cpu = 1023};
	struct ha_poll_thread *thread;

	(void)state;
	capture_log();
	assert_int_equal(ha_poll_thread_start(&options, &thread), HA_OK);
	assert_logged("HA_NCCL_PROGRESS_CPU=1023");
	ha_poll_thread_stop(thread);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_thread_completes_and_test_touches_no_queue),
	    cmocka_unit_test(what_comes_is_completed_in_the_order_it_was_sent_in),
	    cmocka_unit_test(who_asks_for_a_connection_that_is_kept_has_it),
	    cmocka_unit_test(who_asks_a_thread_that_runs_has_it),
	    cmocka_unit_test(a_connection_without_anything_under_way_is_let_go_of),
	    cmocka_unit_test(a_failover_goes_on_beside_it),
	    cmocka_unit_test(receives_into_gpu_memory_are_left_to_test),
	    cmocka_unit_test(a_connection_that_is_kept_closes),
	    cmocka_unit_test(the_thread_stays_on_the_processor_that_is_named),
	    cmocka_unit_test(a_processor_that_is_not_there_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
