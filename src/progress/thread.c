/* SPDX-License-Identifier: Apache-2.0 */
/* The progress thread: see progress.h for what it promises. */
#include "progress/progress.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * How long the thread sleeps after a round, by what the round found. A connection that the
 * application polls is looked at now and then, to notice that it stopped; one that nobody polls is
 * looked at every millisecond. At these rates the thread costs well below one percent of a core.
 */
static const int sleep_ms[] = {
    [HA_POLL_ASLEEP] = -1, /* no time limit */
    [HA_POLL_IDLE] = 20,   [HA_POLL_WATCHED] = 5, [HA_POLL_EMPTY] = 1, [HA_POLL_WORKED] = 1,
};

#define EVENT_BATCH 32

struct ha_progress {
	struct ha_progress_options options;
	int epoll_fd;
	int wake_fd;
	pthread_t thread;
	bool running;
	atomic_bool stop;
	_Atomic uint64_t wakeups;

	/* Held during a round. Protects the list and serialises callbacks with add and remove. */
	pthread_mutex_t lock;
	struct ha_list pollers;
};

void ha_progress_wake(struct ha_progress *progress)
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

/* *due_ns: the earliest time at which a poller wants to be visited, UINT64_MAX for none. */
static enum ha_poll_result visit_pollers(struct ha_progress *progress, int *work, uint64_t *due_ns)
{
	enum ha_poll_result highest = HA_POLL_ASLEEP;
	struct ha_list *pos;

	*due_ns = UINT64_MAX;
	ha_list_for_each (pos, &progress->pollers) {
		struct ha_poller *poller = ha_container_of(pos, struct ha_poller, link);
		enum ha_poll_result result = poller->visit(poller);

		if (result > highest)
			highest = result;
		if (result == HA_POLL_WORKED)
			(*work)++;
		if (poller->due_ns != 0 && poller->due_ns < *due_ns)
			*due_ns = poller->due_ns;
	}
	return highest;
}

int ha_progress_round(struct ha_progress *progress)
{
	uint64_t due_ns;
	int work;

	pthread_mutex_lock(&progress->lock);
	work = dispatch_watches(progress);
	visit_pollers(progress, &work, &due_ns);
	pthread_mutex_unlock(&progress->lock);
	return work;
}

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

/*
 * The shorter of the two, in whole milliseconds upwards: waking early would only be to sleep again.
 * -1: no time limit.
 */
static int until_due(int timeout_ms, uint64_t due_ns)
{
	uint64_t now, left_ms;

	if (due_ns == UINT64_MAX)
		return timeout_ms;
	now = ha_now_ns();
	left_ms = due_ns > now ? (due_ns - now + HA_NS_PER_MS - 1) / HA_NS_PER_MS : 0;
	if (timeout_ms >= 0 && left_ms > (uint64_t)timeout_ms)
		return timeout_ms;
	return left_ms < INT_MAX ? (int)left_ms : INT_MAX;
}

static void *thread_main(void *arg)
{
	struct ha_progress *progress = arg;
	int empty_rounds = progress->options.idle_spin_threshold;

	while (!atomic_load_explicit(&progress->stop, memory_order_acquire)) {
		enum ha_poll_result found;
		uint64_t due_ns;
		int work = 0;

		pthread_mutex_lock(&progress->lock);
		dispatch_watches(progress);
		found = visit_pollers(progress, &work, &due_ns);
		pthread_mutex_unlock(&progress->lock);

		/* A burst that we drain for the application is followed without sleeping. */
		if (found == HA_POLL_WORKED)
			empty_rounds = 0;
		else
			empty_rounds++;
		if (found >= HA_POLL_EMPTY && empty_rounds < progress->options.idle_spin_threshold)
			continue;
		/*
		 * The wake-up of ha_progress_stop may be the one that dispatch_watches has just
		 * consumed: look again before sleeping, possibly for ever.
		 */
		if (atomic_load_explicit(&progress->stop, memory_order_acquire))
			break;
		sleep_on_watches(progress, until_due(sleep_ms[found], due_ns));
	}
	return NULL;
}

/* NCCL's host process owns the signals: none may be delivered to our thread. */
static int create_thread(struct ha_progress *progress)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&progress->thread, NULL, thread_main, progress);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		pthread_setname_np(progress->thread, "nccl-ha");
	return rc;
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
	ha_list_init(&progress->pollers);
	pthread_mutex_init(&progress->lock, NULL);
	progress->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	progress->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (progress->epoll_fd < 0 || progress->wake_fd < 0 ||
	    add_fd(progress, progress->wake_fd, NULL) != 0) {
		HA_WARN("cannot create the progress thread's descriptors: %s", strerror(errno));
		goto err;
	}
	if (options->thread) {
		int rc = create_thread(progress);

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

void ha_progress_stop(struct ha_progress *progress)
{
	if (!progress)
		return;
	if (progress->running) {
		atomic_store_explicit(&progress->stop, true, memory_order_release);
		ha_progress_wake(progress);
		pthread_join(progress->thread, NULL);
	}
	if (progress->wake_fd >= 0)
		close(progress->wake_fd);
	if (progress->epoll_fd >= 0)
		close(progress->epoll_fd);
	pthread_mutex_destroy(&progress->lock);
	free(progress);
}

void ha_progress_add(struct ha_progress *progress, struct ha_poller *poller)
{
	pthread_mutex_lock(&progress->lock);
	ha_list_push_back(&progress->pollers, &poller->link);
	pthread_mutex_unlock(&progress->lock);
	ha_progress_wake(progress);
}

void ha_progress_remove(struct ha_progress *progress, struct ha_poller *poller)
{
	pthread_mutex_lock(&progress->lock);
	ha_list_remove(&poller->link);
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
	if (watch->fd < 0)
		return;
	epoll_ctl(progress->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
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
