/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread: see progress.h for what it promises. */
#include "progress/progress.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/invariant.h"
#include "base/log.h"
#include "base/thread.h"
#include "progress/command.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * When a poller is looked at again, by what the last visit found. A connection that the application
 * polls is looked at now and then, to notice that it stopped; one that nobody polls is looked at
 * every millisecond. Ticks are multiples of these times, so that those of many pollers come
 * together.
 */
static const unsigned tick_ms[] = {
    [HA_POLL_ASLEEP] = 0, /* never */
    [HA_POLL_IDLE] = 20,  [HA_POLL_WATCHED] = 5, [HA_POLL_EMPTY] = 1,
    [HA_POLL_WORKED] = 1, [HA_POLL_SOON] = 1,
};

/*
 * For each further lot of pollers that have found the same, all of them wait for another tick: what
 * the thread costs grows no more with their number then. It does again from where the wait would
 * be so long that peers took it for silence: ten ticks, 200 ms for one that is idle.
 */
#define POLLERS_PER_TICK 64
#define MOST_TICKS	 10

/* What takes longer than this was not over soon, and may be waited for asleep. */
#define SOON_SPIN_NS HA_NS_PER_MS

#define EVENT_BATCH 32

/* What comes after it. */
struct ha_progress_end {
	void (*then)(void *arg);
	void *arg;
	atomic_uint left; /* queues that have not ended */
};

struct ha_progress {
	struct ha_progress_options options;
	int epoll_fd;
	int wake_fd;
	pthread_t thread;
	bool running;
	atomic_bool stop;
	_Atomic uint64_t wakeups;
	pthread_mutex_t queues_lock;				  /* held while a queue is made */
	_Atomic(struct ha_commands *) queues[HA_PROGRESS_QUEUES]; /* NULL: none yet */
	bool stuck[HA_PROGRESS_QUEUES]; /* the thread's: as it was told last */
	struct ha_progress_end end;

	/* Held during a round. Protects what follows and serialises callbacks with add and remove.
	 */
	pthread_mutex_t lock;
	struct ha_list pollers;
	struct ha_timer_wheel wheel;
	struct ha_list again;		 /* to be visited in the next round, without sleeping */
	unsigned found[HA_POLL_RESULTS]; /* how many pollers have found it last */
	bool in_vain;			 /* the last turn found nothing to do; the thread's */

	/* Never held for longer than a list takes; taken with the round lock or without. */
	pthread_mutex_t call_lock;
	struct ha_list calls;
	bool sleepy; /* the thread has found no call, and may sleep: the next one wakes it */
};

/* Whose thread this is; NULL on all others. */
static _Thread_local const struct ha_progress *own_progress;

static void wake(struct ha_progress *progress)
{
	uint64_t one = 1;
	ssize_t ignored = write(progress->wake_fd, &one, sizeof(one));

	(void)ignored; /* a full counter wakes as well */
}

/* Runs ready watches. The lock is held, so that none of them can go away under us. */
static int dispatch_watches(struct ha_progress *progress)
{
	struct epoll_event events[EVENT_BATCH];
	int n = epoll_wait(progress->epoll_fd, events, EVENT_BATCH, 0);
	int work = 0;

	for (int i = 0; i < n; i++) {
		struct ha_watch *watch = events[i].data.ptr;

		if (watch == NULL) {
			uint64_t count;
			ssize_t ignored = read(progress->wake_fd, &count, sizeof(count));

			(void)ignored;
			continue;
		}
		watch->ready(watch, events[i].events);
		work++;
	}
	return work;
}

/* ---- pollers --------------------------------------------------------------------------------- */

static struct ha_poller *poller_of(struct ha_list *entry)
{
	return ha_container_of(entry, struct ha_poller, timer.link);
}

/*
 * The next multiple of the tick, which is as much longer as there are more pollers of this kind;
 * but not for those that do what they were asked to, however many they are.
 */
static uint64_t next_tick_ns(const struct ha_progress *progress, enum ha_poll_result found,
			     uint64_t now_ns)
{
	uint64_t tick_ns = tick_ms[found] * HA_NS_PER_MS;
	unsigned ticks = 1 + progress->found[found] / POLLERS_PER_TICK;

	if (tick_ns == 0)
		return UINT64_MAX;
	if (found != HA_POLL_SOON)
		tick_ns *= ticks < MOST_TICKS ? ticks : MOST_TICKS;
	return (now_ns / tick_ns + 1) * tick_ns;
}

/* Without sleeping: a burst that we drain for the application, and what is over soon. */
static bool wants_no_sleep(const struct ha_progress *progress, const struct ha_poller *poller,
			   uint64_t now_ns)
{
	switch (poller->found) {
	case HA_POLL_EMPTY:
	case HA_POLL_WORKED:
		return poller->empty_visits < progress->options.idle_spin_threshold;
	case HA_POLL_SOON:
		return now_ns < poller->spin_until_ns;
	default:
		return false;
	}
}

/* After a visit. */
static void schedule(struct ha_progress *progress, struct ha_poller *poller, uint64_t now_ns)
{
	uint64_t at_ns = next_tick_ns(progress, poller->found, now_ns);

	if (wants_no_sleep(progress, poller, now_ns)) {
		ha_list_push_back(&progress->again, &poller->timer.link);
		return;
	}
	if (poller->due_ns != 0 && poller->due_ns < at_ns)
		at_ns = poller->due_ns;
	if (at_ns != UINT64_MAX)
		ha_timer_wheel_put(&progress->wheel, &poller->timer, at_ns);
}

static void visit(struct ha_progress *progress, struct ha_poller *poller, uint64_t now_ns,
		  int *work)
{
	enum ha_poll_result found = poller->visit(poller);

	poller->quiet_visits = poller->asked ? 0 : poller->quiet_visits + 1;
	poller->asked = found == HA_POLL_SOON;
	if (found == HA_POLL_SOON && poller->found != HA_POLL_SOON)
		poller->spin_until_ns = now_ns + SOON_SPIN_NS;
	HA_INVARIANT(found < HA_POLL_RESULTS && poller->found < HA_POLL_RESULTS);
	HA_INVARIANT(poller->added);
	HA_INVARIANT(progress->found[poller->found] > 0);
	HA_INVARIANT(ha_list_empty(&poller->timer.link) || !progress->running);
	progress->found[poller->found]--;
	progress->found[found]++;
	poller->found = found;
	if (found == HA_POLL_WORKED) {
		(*work)++;
		poller->empty_visits = 0;
	} else if (poller->empty_visits < INT_MAX) {
		poller->empty_visits++;
	}
}

/* Moves those that were called to the end of `due`. */
static void take_calls(struct ha_progress *progress, struct ha_list *due)
{
	struct ha_list *node;

	pthread_mutex_lock(&progress->call_lock);
	progress->sleepy = false;
	while ((node = ha_list_pop_front(&progress->calls))) {
		struct ha_poller *poller = ha_container_of(node, struct ha_poller, call);

		HA_INVARIANT(poller->called && poller->added);
		poller->called = false;
		poller->asked = true;
		ha_list_remove(&poller->timer.link);
		ha_list_push_back(due, &poller->timer.link);
	}
	pthread_mutex_unlock(&progress->call_lock);
}

/* True: nobody has called since, and whoever does wakes the thread. */
static bool may_sleep(struct ha_progress *progress)
{
	bool may;

	pthread_mutex_lock(&progress->call_lock);
	may = progress->sleepy = ha_list_empty(&progress->calls);
	pthread_mutex_unlock(&progress->call_lock);
	return may;
}

/*
 * With very many pollers nothing of one is in a cache when its turn comes. What the next one needs
 * is fetched meanwhile: its first line, which was fetched before it, and the one after it.
 */
static void fetch_ahead(const struct ha_list *next, const struct ha_list *end)
{
	if (next == end)
		return;
	__builtin_prefetch(ha_container_of(next, const struct ha_timer, link)->first);
	__builtin_prefetch(next->next);
}

static void visit_and_schedule(struct ha_progress *progress, struct ha_poller *poller,
			       uint64_t now_ns, int *work)
{
	poller->asked |= poller->due_ns != 0 && poller->due_ns <= now_ns;
	visit(progress, poller, now_ns, work);
	schedule(progress, poller, now_ns);
}

/* Those that want it; each once, also when its visit calls it again. */
static int visit_due(struct ha_progress *progress)
{
	uint64_t now_ns = ha_now_ns();
	struct ha_list asked, due, *node;
	int work = 0;

	ha_list_init(&asked);
	ha_list_init(&due);
	take_calls(progress, &asked);
	ha_list_move_all(&asked, &progress->again);
	ha_timer_wheel_take(&progress->wheel, now_ns, &due);
	while ((node = ha_list_pop_front(&asked)))
		visit_and_schedule(progress, poller_of(node), now_ns, &work);
	while ((node = ha_list_pop_front(&due))) {
		struct ha_poller *poller = poller_of(node);

		fetch_ahead(due.next, &due);
		if (!ha_timer_wheel_defer(&progress->wheel, &poller->timer))
			visit_and_schedule(progress, poller, now_ns, &work);
	}
	return work;
}

/* ---- commands ------------------------------------------------------------------------------- */

static struct ha_commands *queue_of(struct ha_progress *progress, unsigned queue)
{
	return atomic_load_explicit(&progress->queues[queue], memory_order_acquire);
}

static int run_lanes(struct ha_progress *progress)
{
	int work = 0;

	for (unsigned i = 0; i < HA_PROGRESS_QUEUES; i++)
		if (queue_of(progress, i))
			work += ha_commands_round(queue_of(progress, i));
	return work;
}

/* Tells of what is stuck, or is not any more. Returns when to look again; UINT64_MAX: no need. */
static uint64_t look_at_lanes(struct ha_progress *progress)
{
	uint64_t now_ns = ha_now_ns(), soonest_ns = UINT64_MAX, next_ns;

	for (unsigned i = 0; i < HA_PROGRESS_QUEUES; i++) {
		struct ha_commands *commands = queue_of(progress, i);
		bool stuck = commands && ha_commands_stuck(commands, now_ns, &next_ns);

		if (commands && next_ns < soonest_ns)
			soonest_ns = next_ns;
		if (stuck == progress->stuck[i])
			continue;
		progress->stuck[i] = stuck;
		if (progress->options.stuck)
			progress->options.stuck(progress->options.stuck_arg, i, stuck);
	}
	return soonest_ns;
}

struct ha_commands *ha_progress_commands(struct ha_progress *progress, unsigned queue)
{
	struct ha_commands *commands = queue_of(progress, queue);

	if (commands)
		return commands;
	pthread_mutex_lock(&progress->queues_lock);
	commands = queue_of(progress, queue);
	if (!commands) {
		commands = ha_commands_new(progress, progress->options.thread);
		atomic_store_explicit(&progress->queues[queue], commands, memory_order_release);
	}
	pthread_mutex_unlock(&progress->queues_lock);
	return commands;
}

/* ---- rounds --------------------------------------------------------------------------------- */

int ha_progress_round(struct ha_progress *progress)
{
	uint64_t now_ns = ha_now_ns();
	struct ha_list due, *pos;
	int work;

	pthread_mutex_lock(&progress->lock);
	work = dispatch_watches(progress);
	ha_list_init(&due);
	take_calls(progress, &due);
	while (ha_list_pop_front(&due))
		; /* all are visited */
	ha_list_for_each (pos, &progress->pollers) {
		struct ha_poller *poller = ha_container_of(pos, struct ha_poller, link);

		poller->asked = true;
		visit(progress, poller, now_ns, &work);
	}
	pthread_mutex_unlock(&progress->lock);
	if (!progress->running)
		work += run_lanes(progress);
	(void)look_at_lanes(progress);
	return work;
}

uint64_t ha_progress_turn(struct ha_progress *progress)
{
	uint64_t next_ns, stuck_ns;
	int work;

	pthread_mutex_lock(&progress->lock);
	work = dispatch_watches(progress);
	work += visit_due(progress);
	progress->in_vain = work == 0;
	next_ns = ha_list_empty(&progress->again) ? ha_timer_wheel_next_ns(&progress->wheel) : 0;
	pthread_mutex_unlock(&progress->lock);
	if (!progress->options.thread)
		run_lanes(progress);
	stuck_ns = look_at_lanes(progress);
	if (next_ns == 0 || !may_sleep(progress))
		return 0;
	return next_ns < stuck_ns ? next_ns : stuck_ns;
}

void ha_progress_call(struct ha_progress *progress, struct ha_poller *poller)
{
	bool wakes = false;

	pthread_mutex_lock(&progress->call_lock);
	if (poller->added && !poller->called) {
		poller->called = true;
		ha_list_push_back(&progress->calls, &poller->call);
		wakes = progress->sleepy && own_progress != progress;
		progress->sleepy &= !wakes;
	}
	pthread_mutex_unlock(&progress->call_lock);
	/* One that is awake looks for calls before it sleeps. */
	if (wakes)
		wake(progress);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Sleeps until a descriptor is ready or the time is over. -1: no time limit. */
static void sleep_on_watches(struct ha_progress *progress, int timeout_ms)
{
	struct epoll_event event;
	int n = epoll_wait(progress->epoll_fd, &event, 1, timeout_ms);

	/*
	 * The event is looked up again under the lock: its watch may be removed before we get
	 * there. Epoll is level-triggered here, so nothing is lost.
	 */
	(void)n;
	atomic_fetch_add_explicit(&progress->wakeups, 1, memory_order_relaxed);
}

/* In whole milliseconds upwards: waking early would only be to sleep again. -1: no time limit. */
static int until(uint64_t at_ns)
{
	uint64_t now, left_ms;

	if (at_ns == UINT64_MAX)
		return -1;
	now = ha_now_ns();
	left_ms = at_ns > now ? (at_ns - now + HA_NS_PER_MS - 1) / HA_NS_PER_MS : 0;
	return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

static void *thread_main(void *arg)
{
	struct ha_progress *progress = arg;

	own_progress = progress;
	ha_log_defer(true); /* traffic and heartbeats wait for this thread */
	while (!atomic_load_explicit(&progress->stop, memory_order_acquire)) {
		uint64_t next_ns = ha_progress_turn(progress);

		if (next_ns == 0) {
			/* On a host without a core to spare it may be others that it waits for. */
			if (progress->in_vain)
				sched_yield();
			continue;
		}
		/*
		 * The wake-up of ha_progress_stop may be the one that dispatch_watches has just
		 * consumed: look again before sleeping, possibly for ever.
		 */
		if (atomic_load_explicit(&progress->stop, memory_order_acquire))
			break;
		sleep_on_watches(progress, until(next_ns));
	}
	return NULL;
}

static int add_fd(struct ha_progress *progress, int fd, struct ha_watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = watch};

	return epoll_ctl(progress->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

ha_result_t ha_progress_start(const struct ha_progress_options *options, struct ha_progress **out)
{
	struct ha_progress *progress = calloc(1, sizeof(*progress));

	*out = NULL;
	if (!progress) {
		HA_WARN("out of memory for the progress thread");
		return HA_ERR_SYSTEM;
	}
	progress->options = *options;
	progress->wake_fd = progress->epoll_fd = -1;
	ha_list_init(&progress->pollers);
	ha_list_init(&progress->again);
	ha_list_init(&progress->calls);
	ha_timer_wheel_init(&progress->wheel, ha_now_ns());
	pthread_mutex_init(&progress->lock, NULL);
	pthread_mutex_init(&progress->call_lock, NULL);
	pthread_mutex_init(&progress->queues_lock, NULL);
	progress->epoll_fd = ha_fork_closes(epoll_create1(EPOLL_CLOEXEC));
	progress->wake_fd = ha_fork_closes(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (progress->epoll_fd < 0 || progress->wake_fd < 0 ||
	    add_fd(progress, progress->wake_fd, NULL) != 0) {
		HA_WARN("cannot create the progress thread's descriptors: %s", strerror(errno));
		goto err;
	}
	if (options->thread) {
		int rc = ha_thread_start(&progress->thread, "nccl-ha", thread_main, progress);

		if (rc != 0) {
			HA_WARN("cannot start the progress thread: %s", strerror(rc));
			goto err;
		}
		progress->running = true;
	}
	*out = progress;
	return HA_OK;
err:
	ha_progress_stop(progress);
	return HA_ERR_SYSTEM;
}

void ha_progress_halt(struct ha_progress *progress)
{
	if (!progress || !progress->running)
		return;
	atomic_store_explicit(&progress->stop, true, memory_order_release);
	wake(progress);
	pthread_join(progress->thread, NULL);
	progress->running = false;
}

static void destroy(void *arg)
{
	struct ha_progress *progress = arg;
	void (*then)(void *arg) = progress->end.then;
	void *then_arg = progress->end.arg;

	ha_fork_close(progress->wake_fd);
	ha_fork_close(progress->epoll_fd);
	pthread_mutex_destroy(&progress->queues_lock);
	pthread_mutex_destroy(&progress->call_lock);
	pthread_mutex_destroy(&progress->lock);
	free(progress);
	if (then)
		then(then_arg);
}

/* A queue has ended; the last one to do so ends all of it. */
static void lane_ended(void *arg)
{
	struct ha_progress *progress = arg;

	if (atomic_fetch_sub(&progress->end.left, 1) == 1)
		destroy(progress);
}

bool ha_progress_end(struct ha_progress *progress, void (*then)(void *arg), void *arg)
{
	bool ended = true;

	ha_progress_halt(progress);
	progress->end.then = then;
	progress->end.arg = arg;
	atomic_store(&progress->end.left, HA_PROGRESS_QUEUES);
	for (unsigned i = 0; i < HA_PROGRESS_QUEUES;
	     i++) /* the last one may free what i looks at */
		ended &= ha_commands_end(queue_of(progress, i), lane_ended, progress);
	return ended;
}

void ha_progress_stop(struct ha_progress *progress)
{
	if (progress)
		(void)ha_progress_end(progress, NULL, NULL);
}

void ha_progress_add(struct ha_progress *progress, struct ha_poller *poller)
{
	pthread_mutex_lock(&progress->lock);
	ha_list_push_back(&progress->pollers, &poller->link);
	ha_list_init(&poller->timer.link);
	ha_list_init(&poller->call);
	poller->found = HA_POLL_ASLEEP;
	progress->found[HA_POLL_ASLEEP]++;
	poller->empty_visits = INT_MAX; /* there was no burst */
	pthread_mutex_lock(&progress->call_lock);
	poller->added = true;
	pthread_mutex_unlock(&progress->call_lock);
	pthread_mutex_unlock(&progress->lock);
	ha_progress_call(progress, poller);
}

void ha_progress_remove(struct ha_progress *progress, struct ha_poller *poller)
{
	pthread_mutex_lock(&progress->lock);
	pthread_mutex_lock(&progress->call_lock);
	if (poller->added) {
		ha_list_remove(&poller->link);
		ha_list_remove(&poller->timer.link);
		ha_list_remove(&poller->call);
		progress->found[poller->found]--;
	}
	poller->added = poller->called = false;
	pthread_mutex_unlock(&progress->call_lock);
	pthread_mutex_unlock(&progress->lock);
}

ha_result_t ha_progress_watch(struct ha_progress *progress, struct ha_watch *watch)
{
	/* Without the lock, for callbacks: from now on it may be called, which is what is wanted.
	 */
	if (add_fd(progress, watch->fd, watch) != 0) {
		HA_WARN("cannot watch descriptor %d: epoll_ctl: %s", watch->fd, strerror(errno));
		return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

void ha_progress_unwatch_self(struct ha_progress *progress, struct ha_watch *watch)
{
	int rc;

	if (watch->fd < 0)
		return;
	rc = epoll_ctl(progress->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	HA_INVARIANT(rc == 0); /* it is open still: else its number may be another one's by now */
	(void)rc;
	watch->fd = -1;
}

void ha_progress_unwatch(struct ha_progress *progress, struct ha_watch *watch)
{
	pthread_mutex_lock(&progress->lock);
	ha_progress_unwatch_self(progress, watch);
	pthread_mutex_unlock(&progress->lock);
}

uint64_t ha_progress_wakeups(struct ha_progress *progress)
{
	return atomic_load_explicit(&progress->wakeups, memory_order_relaxed);
}
