/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread: it serves descriptors and pollers, sleeps when idle, and stops cleanly. */
#include "../cmocka_all.h"

#include "base/clock.h"
#include "progress/progress.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static atomic_bool counts_writes;
static atomic_uint writes; /* each ends a sleep, or costs one who calls for nothing */

ssize_t __real_write(int fd, const void *bytes, size_t length);
ssize_t __wrap_write(int fd, const void *bytes, size_t length);

ssize_t __wrap_write(int fd, const void *bytes, size_t length)
{
	if (atomic_load(&counts_writes))
		atomic_fetch_add(&writes, 1);
	return __real_write(fd, bytes, length);
}

struct counting_poller {
	struct ha_poller poller;
	atomic_int visits;
	atomic_int answer;
};

static enum ha_poll_result count_visit(struct ha_poller *poller)
{
	struct counting_poller *p = ha_container_of(poller, struct counting_poller, poller);

	atomic_fetch_add(&p->visits, 1);
	return (enum ha_poll_result)atomic_load(&p->answer);
}

struct counting_watch {
	struct ha_watch watch;
	atomic_int calls;
};

static void count_ready(struct ha_watch *watch, uint32_t events)
{
	struct counting_watch *w = ha_container_of(watch, struct counting_watch, watch);
	uint64_t value;

	(void)events;
	if (read(watch->fd, &value, sizeof(value)) == sizeof(value))
		atomic_fetch_add(&w->calls, 1);
}

static struct ha_progress *start(bool thread)
{
	const struct ha_progress_options options = {.thread = thread, .idle_spin_threshold = 100};
	struct ha_progress *progress;

	assert_int_equal(ha_progress_start(&options, &progress), HA_OK);
	return progress;
}

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static bool eventually(atomic_int *value, int at_least)
{
	for (int i = 0; i < 2000 && atomic_load(value) < at_least; i++)
		nap_ms(1);
	return atomic_load(value) >= at_least;
}

static void a_round_serves_descriptors_and_pollers(void **state)
{
	struct ha_progress *progress = start(false);
	struct counting_watch w = {.watch = {.fd = eventfd(0, EFD_NONBLOCK), .ready = count_ready}};
	struct counting_poller p = {.poller = {.visit = count_visit}, .answer = HA_POLL_WORKED};
	uint64_t one = 1;
	int fd = w.watch.fd;

	(void)state;
	ha_list_init(&p.poller.link);
	assert_int_equal(ha_progress_watch(progress, &w.watch), HA_OK);
	ha_progress_add(progress, &p.poller);
	assert_int_equal(ha_progress_round(progress), 1); /* the poller's work */
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(ha_progress_round(progress), 2);
	assert_int_equal(w.calls, 1);
	assert_int_equal(p.visits, 2);
	ha_progress_remove(progress, &p.poller);
	ha_progress_unwatch(progress, &w.watch);
	assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
	assert_int_equal(ha_progress_round(progress), 0);
	close(fd);
	ha_progress_stop(progress);
}

static void the_thread_wakes_for_a_descriptor(void **state)
{
	struct ha_progress *progress = start(true);
	struct counting_watch w = {.watch = {.fd = eventfd(0, EFD_NONBLOCK), .ready = count_ready}};
	uint64_t one = 1;
	int fd = w.watch.fd;

	(void)state;
	assert_int_equal(ha_progress_watch(progress, &w.watch), HA_OK);
	for (int i = 1; i <= 20; i++) {
		assert_int_equal(write(fd, &one, sizeof(one)), sizeof(one));
		assert_true(eventually(&w.calls, i));
	}
	ha_progress_unwatch(progress, &w.watch);
	close(fd);
	ha_progress_stop(progress);
}

static void without_pollers_that_are_awake_the_thread_does_not_wake(void **state)
{
	struct counting_poller p = {.poller = {.visit = count_visit}, .answer = HA_POLL_ASLEEP};
	struct ha_progress *progress = start(true);
	uint64_t before;

	(void)state;
	ha_list_init(&p.poller.link);
	for (int with_poller = 0; with_poller < 2; with_poller++) {
		if (with_poller) {
			ha_progress_add(progress, &p.poller);
			assert_true(eventually(&p.visits, 1));
		}
		nap_ms(50);
		before = ha_progress_wakeups(progress);
		nap_ms(300);
		assert_int_equal(ha_progress_wakeups(progress), before);
	}
	/* It is visited when somebody asks for it. */
	p.visits = 0;
	ha_progress_call(progress, &p.poller);
	assert_true(eventually(&p.visits, 1));
	ha_progress_remove(progress, &p.poller);
	ha_progress_stop(progress);
}

static double thread_cpu_share(enum ha_poll_result answer, long ms)
{
	struct ha_progress *progress = start(true);
	struct counting_poller p = {.poller = {.visit = count_visit}, .answer = answer};
	struct timespec before, after;
	uint64_t begun_ns, took_ns;

	ha_list_init(&p.poller.link);
	ha_progress_add(progress, &p.poller);
	nap_ms(50);
	begun_ns = ha_now_ns();
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	nap_ms(ms);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	took_ns = ha_now_ns() - begun_ns;
	assert_true(atomic_load(&p.visits) > 0);
	ha_progress_remove(progress, &p.poller);
	ha_progress_stop(progress);
	return ((double)(after.tv_sec - before.tv_sec) * 1e9 +
		(double)(after.tv_nsec - before.tv_nsec)) /
	       (double)took_ns;
}

/* The promise is below one percent; ten leaves room for sanitizers and a loaded machine. */
static void idle_connections_cost_almost_no_cpu(void **state)
{
	double idle = thread_cpu_share(HA_POLL_IDLE, 400);
	double watched = thread_cpu_share(HA_POLL_WATCHED, 400);
	double empty = thread_cpu_share(HA_POLL_EMPTY, 400);

	(void)state;
	print_message("CPU share: idle %.2f %%, application polls %.2f %%, nobody polls %.2f %%\n",
		      idle * 100, watched * 100, empty * 100);
	assert_true(idle < 0.10);
	assert_true(watched < 0.10);
	assert_true(empty < 0.10);
}

/* A poller that wants to be visited every so often; counts the visits that came in time. */
struct punctual_poller {
	struct ha_poller poller;
	uint64_t interval_ns, slack_ns;
	atomic_int visits, in_time;
};

static enum ha_poll_result punctual_visit(struct ha_poller *poller)
{
	struct punctual_poller *p = ha_container_of(poller, struct punctual_poller, poller);
	uint64_t now = ha_now_ns();

	if (now >= poller->due_ns) {
		if (poller->due_ns != 0 && now - poller->due_ns < p->slack_ns)
			atomic_fetch_add(&p->in_time, 1);
		poller->due_ns = now + p->interval_ns;
		atomic_fetch_add(&p->visits, 1);
	}
	return HA_POLL_IDLE;
}

/*
 * The tick of an idle poller is 20 ms: by ticks alone no visit would come within 10 ms of being due
 * 5 ms after the last one. Not all are in time on a machine that has better things to do.
 */
static void a_poller_that_is_due_is_visited_in_time(void **state)
{
	struct punctual_poller p = {.poller = {.visit = punctual_visit},
				    .interval_ns = 5 * HA_NS_PER_MS,
				    .slack_ns = 10 * HA_NS_PER_MS};
	struct ha_progress *progress = start(true);
	uint64_t before, wakeups;

	(void)state;
	ha_list_init(&p.poller.link);
	before = ha_progress_wakeups(progress);
	ha_progress_add(progress, &p.poller);
	assert_true(eventually(&p.in_time, 20));
	ha_progress_remove(progress, &p.poller);
	wakeups = ha_progress_wakeups(progress) - before;
	ha_progress_stop(progress);
	print_message("%d of %d visits in time, %d wake-ups\n", atomic_load(&p.in_time),
		      atomic_load(&p.visits), (int)wakeups);
	/* It wakes for them and for little else. */
	assert_true(wakeups <= 2 * (uint64_t)atomic_load(&p.visits));
}

/* A watch whose callback adds another one. */
struct adding_watch {
	struct ha_watch watch;
	struct ha_progress *progress;
	struct counting_watch *other;
};

static void add_from_inside(struct ha_watch *watch, uint32_t events)
{
	struct adding_watch *w = ha_container_of(watch, struct adding_watch, watch);
	uint64_t value;

	(void)events;
	assert_int_equal(read(watch->fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(ha_progress_watch(w->progress, &w->other->watch), HA_OK);
}

static void a_callback_may_add_a_watch(void **state)
{
	struct ha_progress *progress = start(false);
	struct counting_watch other = {
	    .watch = {.fd = eventfd(1, EFD_NONBLOCK), .ready = count_ready}};
	struct adding_watch w = {
	    .watch = {.fd = eventfd(1, EFD_NONBLOCK), .ready = add_from_inside},
	    .progress = progress,
	    .other = &other};
	int fds[] = {w.watch.fd, other.watch.fd};

	(void)state;
	assert_int_equal(ha_progress_watch(progress, &w.watch), HA_OK);
	ha_progress_round(progress);
	ha_progress_round(progress);
	assert_int_equal(other.calls, 1);
	ha_progress_unwatch(progress, &w.watch);
	ha_progress_unwatch(progress, &other.watch);
	close(fds[0]);
	close(fds[1]);
	ha_progress_stop(progress);
}

/* One that worked once, and counts until the thread has slept. */
struct burst_poller {
	struct ha_poller poller;
	struct ha_progress *progress;
	uint64_t slept; /* so many wake-ups */
	atomic_int visits;
};

static enum ha_poll_result work_once(struct ha_poller *poller)
{
	struct burst_poller *p = ha_container_of(poller, struct burst_poller, poller);

	if (ha_progress_wakeups(p->progress) >= p->slept)
		return HA_POLL_EMPTY;
	return atomic_fetch_add(&p->visits, 1) == 0 ? HA_POLL_WORKED : HA_POLL_EMPTY;
}

/* Visits before the thread slept for the first time after a burst. */
static int visits_without_sleep(int threshold)
{
	const struct ha_progress_options options = {.thread = true,
						    .idle_spin_threshold = threshold};
	struct burst_poller p = {.poller = {.visit = work_once}};

	assert_int_equal(ha_progress_start(&options, &p.progress), HA_OK);
	nap_ms(20);
	ha_list_init(&p.poller.link);
	/* The first wake-up is ours; the second ends the first sleep with the poller there. */
	p.slept = ha_progress_wakeups(p.progress) + 2;
	ha_progress_add(p.progress, &p.poller);
	while (ha_progress_wakeups(p.progress) < p.slept)
		nap_ms(1);
	ha_progress_remove(p.progress, &p.poller);
	ha_progress_stop(p.progress);
	return atomic_load(&p.visits);
}

/* One that keeps the thread from going on. */
struct busy_poller {
	struct ha_poller poller;
	atomic_int visits;
	atomic_bool go;
};

static enum ha_poll_result stay(struct ha_poller *poller)
{
	struct busy_poller *p = ha_container_of(poller, struct busy_poller, poller);

	atomic_fetch_add(&p->visits, 1);
	while (!atomic_load(&p->go))
		nap_ms(1);
	return HA_POLL_ASLEEP;
}

/* All the commands that come back at once, each of another connection. */
static void calls_wake_a_thread_once_and_not_while_it_is_awake(void **state)
{
	enum { MANY = 100 };
	struct busy_poller busy = {.poller = {.visit = stay}};
	struct counting_poller *pollers = calloc(MANY, sizeof(*pollers));
	struct ha_progress *progress = start(true);

	(void)state;
	ha_list_init(&busy.poller.link);
	for (int i = 0; i < MANY; i++) {
		pollers[i].poller.visit = count_visit;
		pollers[i].answer = HA_POLL_ASLEEP;
		ha_list_init(&pollers[i].poller.link);
		ha_progress_add(progress, &pollers[i].poller);
		assert_true(eventually(&pollers[i].visits, 1));
	}
	nap_ms(50); /* it sleeps */
	atomic_store(&counts_writes, true);
	ha_progress_add(progress, &busy.poller);
	assert_true(eventually(&busy.visits, 1));
	assert_int_equal(atomic_load(&writes), 1);
	for (int i = 0; i < MANY; i++)
		ha_progress_call(progress, &pollers[i].poller);
	atomic_store(&counts_writes, false);
	print_message("%u writes for %d calls\n", atomic_load(&writes), 1 + MANY);
	assert_int_equal(atomic_load(&writes), 1);
	atomic_store(&busy.go, true);
	for (int i = 0; i < MANY; i++)
		assert_true(eventually(&pollers[i].visits, 2));
	for (int i = 0; i < MANY; i++)
		ha_progress_remove(progress, &pollers[i].poller);
	ha_progress_remove(progress, &busy.poller);
	ha_progress_stop(progress);
	free(pollers);
}

/* As it falls asleep, too: no tick would make up for one that is lost. */
static void no_call_is_lost_while_the_thread_falls_asleep(void **state)
{
	struct counting_poller p = {.poller = {.visit = count_visit}, .answer = HA_POLL_ASLEEP};
	struct ha_progress *progress = start(true);

	(void)state;
	ha_list_init(&p.poller.link);
	ha_progress_add(progress, &p.poller);
	for (int i = 1; i <= 1000; i++) {
		for (int spins = 0; spins < 200 && atomic_load(&p.visits) < i; spins++)
			sched_yield();
		assert_true(eventually(&p.visits, i));
		for (volatile int wait = 0; wait < i / 2; wait++)
			; /* it is on its way to sleep now, a little further each time */
		ha_progress_call(progress, &p.poller);
	}
	ha_progress_remove(progress, &p.poller);
	ha_progress_stop(progress);
}

static void the_thread_spins_after_a_burst_as_often_as_it_is_told(void **state)
{
	int few = visits_without_sleep(0), many = visits_without_sleep(500);

	(void)state;
	/* Each gives the processor away, which takes long where many want it. */
	assert_in_range(few, 1, 20);
	assert_true(many >= 500);
}

static void pollers_come_and_go_while_it_runs(void **state)
{
	struct ha_progress *progress = start(true);
	struct counting_poller keep = {.poller = {.visit = count_visit}, .answer = HA_POLL_WORKED};

	(void)state;
	ha_list_init(&keep.poller.link);
	ha_progress_add(progress, &keep.poller);
	for (int i = 0; i < 300; i++) {
		struct counting_poller *p = calloc(1, sizeof(*p));

		p->poller.visit = count_visit;
		p->answer = HA_POLL_EMPTY;
		ha_list_init(&p->poller.link);
		ha_progress_add(progress, &p->poller);
		ha_progress_remove(progress, &p->poller);
		free(p); /* a visit after this is what the sanitizers look for */
	}
	ha_progress_remove(progress, &keep.poller);
	ha_progress_stop(progress);
}

/*
 * The times of pollers are their own: with many connections it must not cost a visit of each to
 * look after one of them.
 */
static void a_call_visits_one_poller_and_no_other(void **state)
{
	enum { MANY = 500, CALLS = 200 };
	struct counting_poller *pollers = calloc(MANY, sizeof(*pollers));
	struct ha_progress *progress = start(true);
	int others = 0;

	(void)state;
	for (int i = 0; i < MANY; i++) {
		pollers[i].poller.visit = count_visit;
		pollers[i].answer = HA_POLL_ASLEEP;
		ha_list_init(&pollers[i].poller.link);
		ha_progress_add(progress, &pollers[i].poller);
	}
	for (int i = 0; i < MANY; i++)
		assert_true(eventually(&pollers[i].visits, 1));
	for (int i = 1; i <= CALLS; i++) {
		int before = atomic_load(&pollers[7].visits);

		ha_progress_call(progress, &pollers[7].poller);
		assert_true(eventually(&pollers[7].visits, before + 1));
	}
	for (int i = 0; i < MANY; i++)
		if (i != 7)
			others += atomic_load(&pollers[i].visits);
	assert_int_equal(others, MANY - 1); /* when they were added */
	for (int i = 0; i < MANY; i++)
		ha_progress_remove(progress, &pollers[i].poller);
	ha_progress_stop(progress);
	free(pollers);
}

/* What a poller that has gone is called for must not reach it. */
static void a_call_of_a_poller_that_was_removed_does_nothing(void **state)
{
	struct counting_poller p = {.poller = {.visit = count_visit}, .answer = HA_POLL_ASLEEP};
	struct ha_progress *progress = start(true);
	int visits;

	(void)state;
	ha_list_init(&p.poller.link);
	ha_progress_call(progress, &p.poller); /* not added yet */
	ha_progress_add(progress, &p.poller);
	assert_true(eventually(&p.visits, 1));
	ha_progress_remove(progress, &p.poller);
	visits = atomic_load(&p.visits);
	ha_progress_call(progress, &p.poller);
	nap_ms(30);
	assert_int_equal(atomic_load(&p.visits), visits);
	ha_progress_stop(progress);
}

/* The thread's visits of many idle pollers in a time, by their number. */
static double visits_per_s(int many, long ms)
{
	struct counting_poller *pollers = calloc((size_t)many, sizeof(*pollers));
	struct ha_progress *progress = start(true);
	uint64_t begun;
	long visits = 0;
	double seconds;

	for (int i = 0; i < many; i++) {
		pollers[i].poller.visit = count_visit;
		pollers[i].answer = HA_POLL_IDLE;
		ha_list_init(&pollers[i].poller.link);
		ha_progress_add(progress, &pollers[i].poller);
	}
	for (int i = 0; i < many; i++)
		visits -= atomic_load(&pollers[i].visits);
	begun = ha_now_ns();
	nap_ms(ms);
	seconds = (double)(ha_now_ns() - begun) / 1e9;
	for (int i = 0; i < many; i++) {
		visits += atomic_load(&pollers[i].visits);
		ha_progress_remove(progress, &pollers[i].poller);
	}
	ha_progress_stop(progress);
	free(pollers);
	return (double)visits / seconds;
}

/* With one tick of 20 ms for all of them it would be 50,000; a loaded machine only makes it less.
 */
static void many_idle_pollers_are_visited_less_often_each(void **state)
{
	double visits = visits_per_s(1000, 600);

	(void)state;
	print_message("%.0f visits per second of 1000 idle pollers\n", visits);
	assert_true(visits > 0);
	assert_true(visits < 25000);
}

/* ---- what is over soon, on a clock of ours -------------------------------------------------- */

static uint64_t virtual_ns;

static uint64_t virtual_now(void)
{
	return virtual_ns;
}

/* Says SOON so often, then something else; whether each visit but the last knew it was asked. */
struct hasty_poller {
	struct ha_poller poller;
	int visits, soon, asked;
	enum ha_poll_result then;
};

static enum ha_poll_result hasty_visit(struct ha_poller *poller)
{
	struct hasty_poller *p = ha_container_of(poller, struct hasty_poller, poller);

	p->visits++;
	p->asked += poller->asked;
	return p->visits <= p->soon ? HA_POLL_SOON : p->then;
}

static struct ha_progress *start_hasty(struct hasty_poller *pollers, int n)
{
	struct ha_progress *progress;

	virtual_ns = 1000 * HA_NS_PER_MS;
	ha_clock_set_source(virtual_now);
	progress = start(false);
	for (int i = 0; i < n; i++) {
		pollers[i].poller.visit = hasty_visit;
		ha_list_init(&pollers[i].poller.link);
		ha_progress_add(progress, &pollers[i].poller);
	}
	return progress;
}

static void stop_hasty(struct ha_progress *progress, struct hasty_poller *pollers, int n)
{
	for (int i = 0; i < n; i++)
		ha_progress_remove(progress, &pollers[i].poller);
	ha_progress_stop(progress);
	ha_clock_set_source(NULL);
}

/* It has not done yet what it was called for: no tick may come in between. */
static void what_is_over_soon_is_not_slept_on(void **state)
{
	struct hasty_poller p = {.soon = 5, .then = HA_POLL_WATCHED};
	struct ha_progress *progress = start_hasty(&p, 1);

	(void)state;
	for (int i = 1; i <= 5; i++) {
		assert_int_equal(ha_progress_turn(progress), 0);
		assert_int_equal(p.visits, i);
		virtual_ns += 10 * HA_NS_PER_US;
	}
	assert_int_equal(ha_progress_turn(progress), 1005 * HA_NS_PER_MS);
	assert_int_equal(p.visits, 6);
	assert_int_equal(p.asked, 6); /* the last one does it */
	virtual_ns = 1005 * HA_NS_PER_MS;
	ha_progress_turn(progress);
	assert_int_equal(p.visits, 7);
	assert_int_equal(p.asked, 6); /* its tick: nobody has asked */
	stop_hasty(progress, &p, 1);
}

/* A dead device drains nothing for as long as one likes: that must not cost a processor. */
static void what_was_not_over_soon_is_looked_at_every_millisecond(void **state)
{
	enum { MANY = 1000 };
	struct hasty_poller *pollers = calloc(MANY, sizeof(*pollers));
	struct ha_progress *progress;
	uint64_t next_ns = 0;

	(void)state;
	for (int i = 0; i < MANY; i++)
		pollers[i].soon = 1000000;
	progress = start_hasty(pollers, MANY);
	while (next_ns == 0) {
		assert_true(virtual_ns < 1002 * HA_NS_PER_MS);
		virtual_ns += 100 * HA_NS_PER_US;
		next_ns = ha_progress_turn(progress);
	}
	for (int i = 0; i < MANY; i++)
		pollers[i].visits = 0;
	for (int ms = 1; ms <= 20; ms++) {
		assert_in_range(next_ns, virtual_ns + 1, virtual_ns + HA_NS_PER_MS);
		virtual_ns = next_ns;
		next_ns = ha_progress_turn(progress);
	}
	/* However many there are of them. */
	for (int i = 0; i < MANY; i++)
		assert_int_equal(pollers[i].visits, 20);
	stop_hasty(progress, pollers, MANY);
	free(pollers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_round_serves_descriptors_and_pollers),
	    cmocka_unit_test(the_thread_wakes_for_a_descriptor),
	    cmocka_unit_test(without_pollers_that_are_awake_the_thread_does_not_wake),
	    cmocka_unit_test(idle_connections_cost_almost_no_cpu),
	    cmocka_unit_test(a_poller_that_is_due_is_visited_in_time),
	    cmocka_unit_test(a_callback_may_add_a_watch),
	    cmocka_unit_test(calls_wake_a_thread_once_and_not_while_it_is_awake),
	    cmocka_unit_test(no_call_is_lost_while_the_thread_falls_asleep),
	    cmocka_unit_test(the_thread_spins_after_a_burst_as_often_as_it_is_told),
	    cmocka_unit_test(pollers_come_and_go_while_it_runs),
	    cmocka_unit_test(a_call_visits_one_poller_and_no_other),
	    cmocka_unit_test(a_call_of_a_poller_that_was_removed_does_nothing),
	    cmocka_unit_test(many_idle_pollers_are_visited_less_often_each),
	    cmocka_unit_test(what_is_over_soon_is_not_slept_on),
	    cmocka_unit_test(what_was_not_over_soon_is_looked_at_every_millisecond),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
