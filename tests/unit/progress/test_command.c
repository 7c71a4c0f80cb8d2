/* SPDX-License-Identifier: Apache-2.0 */
/* Commands: what may wait in the kernel waits alone, and nobody is left with what it uses. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "progress/command.h"
#include "progress/progress.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

/* Where the end is not to be given up: a thread may get no processor for a while. */
#define LONG_TIMEOUT_NS (20 * HA_NS_PER_S)

/* Of no progress: calls leave it alone. */
static struct ha_poller nobody;

static atomic_uint wakeups; /* of threads that waited for commands */
/* What they take as soon as they are woken. */
static _Atomic(pthread_mutex_t *) lock_of_wait;
static atomic_uint signals, signals_in_vain; /* the latter of one who holds it still */
static _Thread_local unsigned signals_of_thread;

int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
	int error;

	atomic_store(&lock_of_wait, mutex);
	error = __real_pthread_cond_wait(cond, mutex);
	atomic_fetch_add(&wakeups, 1);
	return error;
}

int __real_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
	pthread_mutex_t *lock = atomic_load(&lock_of_wait);

	atomic_fetch_add(&signals, 1);
	signals_of_thread++;
	if (lock && pthread_mutex_trylock(lock) == 0)
		pthread_mutex_unlock(lock);
	else
		atomic_fetch_add(&signals_in_vain, 1);
	return __real_pthread_cond_signal(cond);
}

/* One that waits until it is let go. */
struct slow {
	struct ha_command command;
	atomic_bool begun, go;
	atomic_int *orphans; /* counts the end of one that was disowned */
};

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_for_go(struct ha_command *command)
{
	struct slow *slow = ha_container_of(command, struct slow, command);

	atomic_store(&slow->begun, true);
	while (!atomic_load(&slow->go))
		nap();
}

static void count_orphan(struct ha_command *command)
{
	atomic_fetch_add(ha_container_of(command, struct slow, command)->orphans, 1);
}

static void prepare(struct slow *slow, uint64_t key)
{
	*slow = (struct slow){
	    .command = {
		.run = wait_for_go, .abandoned = count_orphan, .key = key, .owner = &nobody}};
	ha_list_init(&slow->command.link);
}

static bool eventually(atomic_bool *flag)
{
	for (int i = 0; i < 10000 && !atomic_load(flag); i++)
		nap();
	return atomic_load(flag);
}

static bool comes_back(struct ha_command *command)
{
	for (int i = 0; i < 10000 && !ha_command_done(command); i++)
		nap();
	return ha_command_done(command);
}

static struct ha_progress *start(bool thread)
{
	const struct ha_progress_options options = {.thread = thread, .idle_spin_threshold = 1};
	struct ha_progress *progress;

	assert_int_equal(ha_progress_start(&options, &progress), HA_OK);
	return progress;
}

static void one_that_waits_holds_up_its_own_key_only(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow stuck, same, other;

	(void)state;
	prepare(&stuck, 1);
	prepare(&same, 1);
	prepare(&other, 2);
	atomic_store(&same.go, true);
	atomic_store(&other.go, true);
	ha_command_send(commands, &stuck.command);
	assert_true(eventually(&stuck.begun));
	ha_command_send(commands, &same.command);
	ha_command_send(commands, &other.command);
	assert_true(comes_back(&other.command));
	assert_false(atomic_load(&same.begun));
	assert_true(ha_command_busy(&stuck.command));
	atomic_store(&stuck.go, true);
	assert_true(comes_back(&stuck.command));
	assert_true(comes_back(&same.command));
	ha_progress_stop(progress);
}

enum { THREADS = 8 };

/* So many are under way at once, so that there are as many threads. Back when all are. */
static void run_together(struct ha_commands *commands, struct slow *slows, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		prepare(&slows[i], i);
		ha_command_send(commands, &slows[i].command);
	}
	for (unsigned i = 0; i < n; i++)
		assert_true(eventually(&slows[i].begun));
	for (unsigned i = 0; i < n; i++)
		atomic_store(&slows[i].go, true);
	for (unsigned i = 0; i < n; i++)
		assert_true(comes_back(&slows[i].command));
}

/* Each wake-up is a processor that another one waits for. */
static void a_command_wakes_one_thread_of_all_that_are_idle(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow slows[THREADS];

	(void)state;
	run_together(commands, slows, THREADS);
	for (unsigned i = 0; i < 20; i++)
		nap(); /* all have nothing to do */
	atomic_store(&wakeups, 0);
	for (unsigned i = 0; i < 100; i++)
		run_together(commands, slows, 1);
	print_message("wake-ups of 100 commands: %u\n", atomic_load(&wakeups));
	assert_in_range(atomic_load(&wakeups), 1, 110);
	ha_progress_stop(progress);
}

/* How often this thread has been made to give its processor away. */
static long preempted(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_nivcsw;
}

/*
 * Fences of many connections are sent together, and each takes microseconds: who has been woken for
 * the first does them all, and one more has been woken in case he is kept waiting.
 */
static void commands_that_are_sent_together_wake_few(void **state)
{
	enum { ROUNDS = 50 };
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow slows[THREADS];
	unsigned from_here = 0, together = 0;

	(void)state;
	run_together(commands, slows, THREADS);
	for (unsigned round = 0; round < 20 * ROUNDS && together < ROUNDS; round++) {
		long before;

		nap(); /* all have nothing to do */
		nap();
		for (unsigned i = 0; i < THREADS; i++) {
			prepare(&slows[i], i);
			atomic_store(&slows[i].go, true);
		}
		signals_of_thread = 0;
		before = preempted();
		for (unsigned i = 0; i < THREADS; i++)
			ha_command_send(commands, &slows[i].command);
		if (preempted() == before) { /* else they were not sent together */
			together++;
			from_here += signals_of_thread;
		}
		for (unsigned i = 0; i < THREADS; i++)
			assert_true(comes_back(&slows[i].command));
	}
	print_message("%u wake-ups for %u commands\n", from_here, together * THREADS);
	assert_in_range(together, 1, ROUNDS);
	assert_in_range(from_here, 1, together * THREADS / 2);
	ha_progress_stop(progress);
}

/* Else it waits a second time, for that, and who sent the command has to wake it twice. */
static void who_is_woken_finds_the_lock_free(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow slow;

	(void)state;
	run_together(commands, &slow, 1);
	for (unsigned i = 0; i < 20; i++)
		nap();
	atomic_store(&signals, 0);
	atomic_store(&signals_in_vain, 0);
	for (unsigned i = 0; i < 50; i++) {
		run_together(commands, &slow, 1);
		nap(); /* it is idle again */
	}
	print_message("%u of %u signals with the lock held\n", atomic_load(&signals_in_vain),
		      atomic_load(&signals));
	assert_in_range(atomic_load(&signals), 1, 50);
	assert_in_range(atomic_load(&signals_in_vain), 0, 5);
	ha_progress_stop(progress);
}

/* One of its key, and one that resolves: both begin, although one thread comes back. */
static void one_that_is_back_lets_two_go_on(void **state)
{
	enum { RESOLVING = 4 };
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow slows[THREADS], resolves[RESOLVING + 1], same;

	(void)state;
	run_together(commands, slows, THREADS);
	for (unsigned i = 0; i <= RESOLVING; i++) {
		prepare(&resolves[i], i);
		resolves[i].command.kind = HA_COMMAND_RESOLVE;
		ha_command_send(commands, &resolves[i].command);
	}
	prepare(&same, 0);
	ha_command_send(commands, &same.command);
	for (unsigned i = 0; i < RESOLVING; i++)
		assert_true(eventually(&resolves[i].begun));
	for (unsigned i = 0; i < 20; i++)
		nap(); /* who woke up for the others has found them held up */
	assert_false(atomic_load(&resolves[RESOLVING].begun) || atomic_load(&same.begun));
	atomic_store(&resolves[0].go, true);
	assert_true(eventually(&resolves[RESOLVING].begun));
	assert_true(eventually(&same.begun));
	for (unsigned i = 1; i <= RESOLVING; i++)
		atomic_store(&resolves[i].go, true);
	atomic_store(&same.go, true);
	for (unsigned i = 0; i <= RESOLVING; i++)
		assert_true(comes_back(&resolves[i].command));
	assert_true(comes_back(&same.command));
	ha_progress_stop(progress);
}

struct owner {
	struct ha_poller poller;
	atomic_bool visited;
};

static enum ha_poll_result note_visit(struct ha_poller *poller)
{
	struct owner *owner = ha_container_of(poller, struct owner, poller);

	if (poller->asked)
		atomic_store(&owner->visited, true);
	return HA_POLL_ASLEEP;
}

static void the_owner_is_visited_when_it_is_done(void **state)
{
	struct ha_progress *progress = start(true);
	struct owner owner = {.poller.visit = note_visit};
	struct slow slow;

	(void)state;
	ha_list_init(&owner.poller.link);
	ha_progress_add(progress, &owner.poller);
	prepare(&slow, 1);
	slow.command.owner = &owner.poller;
	ha_command_send(ha_progress_commands(progress, 0), &slow.command);
	assert_true(eventually(&slow.begun));
	assert_true(eventually(&owner.visited)); /* for having been added */
	atomic_store(&owner.visited, false);
	atomic_store(&slow.go, true);
	assert_true(eventually(&owner.visited));
	assert_true(ha_command_done(&slow.command));
	ha_progress_remove(progress, &owner.poller);
	ha_progress_stop(progress);
}

static void one_that_no_thread_has_is_taken_back(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow running, waiting;

	(void)state;
	prepare(&running, 1);
	prepare(&waiting, 1);
	ha_command_send(commands, &running.command);
	assert_true(eventually(&running.begun));
	ha_command_send(commands, &waiting.command);
	ha_command_recall(commands, &waiting.command);
	assert_false(ha_command_busy(&waiting.command));
	ha_command_recall(commands, &running.command);
	assert_true(ha_command_busy(&running.command));
	atomic_store(&running.go, true);
	assert_true(comes_back(&running.command));
	ha_progress_stop(progress);
	assert_false(atomic_load(&waiting.begun));
}

static void *let_go_later(void *arg)
{
	struct slow *slow = arg;

	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	atomic_store(&slow->go, true);
	return NULL;
}

static void waiting_ends_with_the_command_or_the_timeout(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow stuck, behind;
	uint64_t began_ns;
	pthread_t thread;

	(void)state;
	prepare(&stuck, 1);
	prepare(&behind, 1);
	atomic_store(&behind.go, true);
	assert_true(ha_command_wait(commands, &stuck.command, 0)); /* never sent */
	began_ns = ha_now_ns();
	ha_command_send(commands, &stuck.command);
	assert_true(eventually(&stuck.begun));
	assert_false(ha_command_wait(commands, &stuck.command, 30 * HA_NS_PER_MS));
	assert_true(ha_now_ns() - began_ns >= 30 * HA_NS_PER_MS);
	/* Behind one that is stuck for that long there is nothing to wait for. */
	ha_command_send(commands, &behind.command);
	began_ns = ha_now_ns();
	for (int i = 0; i < 1000; i++)
		assert_false(ha_command_wait(commands, &behind.command, 30 * HA_NS_PER_MS));
	assert_true(ha_now_ns() - began_ns < 1000 * 20 * HA_NS_PER_MS);
	assert_int_equal(pthread_create(&thread, NULL, let_go_later, &stuck), 0);
	assert_true(ha_command_wait(commands, &stuck.command, UINT64_MAX));
	assert_true(ha_command_done(&stuck.command));
	assert_true(ha_command_wait(commands, &behind.command, UINT64_MAX));
	assert_true(atomic_load(&behind.begun));
	pthread_join(thread, NULL);
	ha_progress_stop(progress);
}

static void one_that_was_disowned_while_it_ran_frees_itself(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	atomic_int orphans = 0;
	struct slow running, waiting;

	(void)state;
	prepare(&running, 1);
	prepare(&waiting, 1);
	running.orphans = waiting.orphans = &orphans;
	ha_command_send(commands, &running.command);
	assert_true(eventually(&running.begun));
	ha_command_send(commands, &waiting.command);
	assert_true(ha_command_disown(commands, &waiting.command)); /* ours again */
	assert_false(ha_command_disown(commands, &running.command));
	assert_int_equal(atomic_load(&orphans), 0);
	atomic_store(&running.go, true);
	ha_progress_stop(progress); /* joins the thread that ran it */
	assert_int_equal(atomic_load(&orphans), 1);
	assert_false(atomic_load(&waiting.begun));
}

static void those_that_are_left_run_in_their_turn_and_free_themselves(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow idle, done, running, waiting;
	atomic_int orphans = 0;

	(void)state;
	prepare(&idle, 1);
	prepare(&done, 1);
	prepare(&running, 1);
	prepare(&waiting, 1);
	idle.orphans = done.orphans = running.orphans = waiting.orphans = &orphans;
	atomic_store(&done.go, true);
	atomic_store(&waiting.go, true);
	ha_command_send(commands, &done.command);
	assert_true(ha_command_wait(commands, &done.command, UINT64_MAX));
	ha_command_leave(commands, &idle.command);
	ha_command_leave(commands, &done.command);
	assert_int_equal(atomic_load(&orphans), 2);
	ha_command_send(commands, &running.command);
	assert_true(eventually(&running.begun));
	ha_command_send(commands, &waiting.command);
	ha_command_leave(commands, &waiting.command);
	ha_command_leave(commands, &running.command);
	assert_int_equal(atomic_load(&orphans), 2);
	assert_false(atomic_load(&waiting.begun));
	atomic_store(&running.go, true);
	ha_progress_stop(progress);
	assert_true(atomic_load(&waiting.begun));
	assert_int_equal(atomic_load(&orphans), 4);
}

static void note_end(void *ended)
{
	atomic_store((atomic_bool *)ended, true);
}

static void the_end_does_not_wait_for_one_that_is_stuck(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	atomic_bool ended = false;
	struct slow running, waiting;
	atomic_int orphans = 0;

	(void)state;
	prepare(&running, 1);
	prepare(&waiting, 1);
	running.orphans = waiting.orphans = &orphans;
	atomic_store(&waiting.go, true);
	ha_command_send(commands, &running.command);
	ha_command_send(commands, &waiting.command);
	ha_command_leave(commands, &running.command);
	ha_command_leave(commands, &waiting.command);
	ha_command_timeout_ns = HA_COMMAND_TIMEOUT_NS;
	assert_false(ha_progress_end(progress, note_end, &ended));
	ha_command_timeout_ns = LONG_TIMEOUT_NS;
	assert_false(atomic_load(&ended));
	assert_int_equal(atomic_load(&orphans), 0);
	atomic_store(&running.go, true);
	assert_true(eventually(&ended));
	assert_int_equal(atomic_load(&orphans), 2);

	/* Nor does it leave to others what is over soon. */
	atomic_store(&ended, false);
	progress = start(true);
	commands = ha_progress_commands(progress, 0);
	prepare(&running, 1);
	running.orphans = &orphans;
	atomic_store(&running.go, true);
	ha_command_send(commands, &running.command);
	ha_command_leave(commands, &running.command);
	assert_true(ha_progress_end(progress, note_end, &ended));
	assert_true(atomic_load(&ended));
	assert_int_equal(atomic_load(&orphans), 3);
}

static void without_threads_a_round_runs_them(void **state)
{
	struct ha_progress *progress = start(false);
	struct slow a, b;

	(void)state;
	prepare(&a, 1);
	prepare(&b, 1);
	atomic_store(&a.go, true);
	atomic_store(&b.go, true);
	ha_command_send(ha_progress_commands(progress, 0), &a.command);
	ha_command_send(ha_progress_commands(progress, 0), &b.command);
	assert_false(atomic_load(&a.begun));
	assert_int_equal(ha_progress_round(progress), 2);
	assert_true(ha_command_done(&a.command) && ha_command_done(&b.command));
	assert_int_equal(ha_progress_round(progress), 0);
	ha_progress_stop(progress);
}

static uint64_t now_ns;

static uint64_t test_clock(void)
{
	return now_ns;
}

static uint64_t a_millisecond(void)
{
	return HA_NS_PER_MS;
}

/* As many at once as there would be threads; a fence overtakes all that still wait. */
static void a_fence_goes_before_all_that_waits(void **state)
{
	struct ha_progress *progress = start(false);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow others[20], fence;

	(void)state;
	now_ns = 1;
	ha_clock_set_source(test_clock);
	ha_command_took_ns = a_millisecond;
	for (unsigned i = 0; i < 20; i++) {
		prepare(&others[i], i);
		atomic_store(&others[i].go, true);
		ha_command_send(commands, &others[i].command);
	}
	assert_int_equal(ha_progress_round(progress), 0); /* eight are under way */
	prepare(&fence, 99);
	fence.command.kind = HA_COMMAND_FENCE;
	atomic_store(&fence.go, true);
	ha_command_send(commands, &fence.command);
	assert_false(atomic_load(&others[8].begun));
	now_ns += HA_NS_PER_MS;
	assert_int_equal(ha_progress_round(progress), 8);
	assert_true(atomic_load(&fence.begun));
	assert_true(atomic_load(&others[14].begun));
	assert_false(atomic_load(&others[15].begun));
	now_ns += HA_NS_PER_MS;
	assert_int_equal(ha_progress_round(progress), 8);
	assert_true(ha_command_done(&fence.command));
	now_ns += HA_NS_PER_MS;
	assert_int_equal(ha_progress_round(progress), 5);
	ha_command_took_ns = NULL;
	ha_clock_set_source(NULL);
	ha_progress_stop(progress);
}

/* ---- one that goes on ------------------------------------------------------------------------ */

enum { FIRST_KEY = 1, THEN_KEY = 2 };

static atomic_uint first_halves; /* that were run */

static void first_half(struct ha_command *command)
{
	atomic_fetch_add(&first_halves, 1);
	ha_command_go_on(command, wait_for_go, HA_COMMAND_RESOLVE, THEN_KEY);
}

static void prepare_two_halves(struct slow *slow)
{
	prepare(slow, FIRST_KEY);
	slow->command.run = first_half;
}

/* Its owner hears of it once, its second half is one of another key, and no thread wakes for that.
 */
static void one_that_goes_on_is_back_when_all_is_done(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow whole, same, other;

	(void)state;
	prepare_two_halves(&whole);
	prepare(&same, THEN_KEY);
	prepare(&other, FIRST_KEY);
	atomic_store(&same.go, true);
	atomic_store(&other.go, true);
	atomic_store(&wakeups, 0);
	ha_command_send(commands, &whole.command);
	assert_true(eventually(&whole.begun));
	assert_int_equal(atomic_load(&wakeups), 0); /* it is new, and takes both */
	ha_command_send(commands, &same.command);
	ha_command_send(commands, &other.command);
	assert_true(comes_back(&other.command));
	assert_false(atomic_load(&same.begun));
	assert_true(ha_command_busy(&whole.command));
	atomic_store(&whole.go, true);
	assert_true(comes_back(&whole.command));
	assert_true(comes_back(&same.command));
	ha_progress_stop(progress);
}

static bool waits(const struct ha_command *command)
{
	return atomic_load(&command->state) == HA_COMMAND_WAITING;
}

/* Before a thread has its second half, which waits for another one of the same key. */
static void the_second_half_is_taken_back_or_left_as_any_other(void **state)
{
	struct ha_progress *progress = start(true);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow stuck, recalled, left;
	atomic_int orphans = 0;

	(void)state;
	prepare(&stuck, THEN_KEY);
	prepare_two_halves(&recalled);
	prepare_two_halves(&left);
	left.orphans = &orphans;
	atomic_store(&left.go, true);
	atomic_store(&first_halves, 0);
	ha_command_send(commands, &stuck.command);
	assert_true(eventually(&stuck.begun));
	ha_command_send(commands, &recalled.command);
	ha_command_send(commands, &left.command);
	for (int i = 0; i < 10000 && (atomic_load(&first_halves) < 2 || !waits(&recalled.command) ||
				      !waits(&left.command));
	     i++)
		nap();
	assert_true(waits(&recalled.command) && waits(&left.command));
	ha_command_recall(commands, &recalled.command);
	assert_false(ha_command_busy(&recalled.command));
	ha_command_leave(commands, &left.command);
	assert_int_equal(atomic_load(&orphans), 0);
	atomic_store(&stuck.go, true);
	assert_true(comes_back(&stuck.command));
	for (int i = 0; i < 10000 && atomic_load(&orphans) == 0; i++)
		nap();
	assert_int_equal(atomic_load(&orphans), 1);
	assert_true(atomic_load(&left.begun));
	assert_false(atomic_load(&recalled.begun));
	ha_progress_stop(progress);
}

static void without_threads_it_goes_on_in_the_same_round(void **state)
{
	struct ha_progress *progress = start(false);
	struct ha_commands *commands = ha_progress_commands(progress, 0);
	struct slow whole;

	(void)state;
	prepare_two_halves(&whole);
	atomic_store(&whole.go, true);
	ha_command_send(commands, &whole.command);
	(void)ha_commands_round(commands);
	assert_true(atomic_load(&whole.begun));
	assert_true(ha_command_done(&whole.command));
	prepare_two_halves(&whole);
	atomic_store(&whole.go, true);
	ha_command_send(NULL, &whole.command); /* no memory for commands */
	assert_true(atomic_load(&whole.begun));
	assert_true(ha_command_done(&whole.command));
	ha_progress_stop(progress);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(one_that_waits_holds_up_its_own_key_only),
	    cmocka_unit_test(a_command_wakes_one_thread_of_all_that_are_idle),
	    cmocka_unit_test(commands_that_are_sent_together_wake_few),
	    cmocka_unit_test(who_is_woken_finds_the_lock_free),
	    cmocka_unit_test(one_that_is_back_lets_two_go_on),
	    cmocka_unit_test(the_owner_is_visited_when_it_is_done),
	    cmocka_unit_test(one_that_no_thread_has_is_taken_back),
	    cmocka_unit_test(waiting_ends_with_the_command_or_the_timeout),
	    cmocka_unit_test(one_that_was_disowned_while_it_ran_frees_itself),
	    cmocka_unit_test(those_that_are_left_run_in_their_turn_and_free_themselves),
	    cmocka_unit_test(the_end_does_not_wait_for_one_that_is_stuck),
	    cmocka_unit_test(without_threads_a_round_runs_them),
	    cmocka_unit_test(a_fence_goes_before_all_that_waits),
	    cmocka_unit_test(one_that_goes_on_is_back_when_all_is_done),
	    cmocka_unit_test(the_second_half_is_taken_back_or_left_as_any_other),
	    cmocka_unit_test(without_threads_it_goes_on_in_the_same_round),
	};

	ha_command_timeout_ns = LONG_TIMEOUT_NS;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
