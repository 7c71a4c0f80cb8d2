/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads and the watchdog over them. */
#include "tools/nccl-net-perf/worker.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/nccl-net-perf/options.h"

/* ---- workers ----------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
	struct np_worker *w = arg;

	pthread_mutex_lock(&w->lock);
	for (;;) {
		while (!w->job && !w->stop)
			pthread_cond_wait(&w->changed, &w->lock);
		if (!w->job)
			break;
		pthread_mutex_unlock(&w->lock);
		w->job(w->arg);
		atomic_store(&w->busy, false);
		pthread_mutex_lock(&w->lock);
		w->job = NULL;
		pthread_cond_broadcast(&w->changed);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

bool np_worker_start(struct np_worker *w, const char *name)
{
	pthread_condattr_t attr;
	int rc;

	memset(w, 0, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&w->thread, NULL, worker_main, w);
	if (rc) {
		pthread_cond_destroy(&w->changed);
		pthread_mutex_destroy(&w->lock);
		errno = rc;
		return false;
	}
	w->name = name;
	pthread_setname_np(w->thread, name);
	return true;
}

void np_worker_stop(struct np_worker *w)
{
	if (!w->name)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	w->name = NULL;
}

/* Replaces what messages say that the job is doing. */
static void describe(struct np_worker *w, const char *what)
{
	pthread_mutex_lock(&w->lock);
	snprintf(w->what, sizeof(w->what), "%s", what);
	pthread_mutex_unlock(&w->lock);
}

void np_worker_post(struct np_worker *w, void (*job)(void *arg), void *arg, const char *what)
{
	describe(w, what);
	pthread_mutex_lock(&w->lock);
	w->job = job;
	w->arg = arg;
	np_worker_progress(w);
	atomic_store(&w->busy, true);
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
}

bool np_worker_wait(struct np_worker *w, int wait_ms)
{
	struct timespec until;
	bool idle;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_ms / 1000;
	until.tv_nsec += wait_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	pthread_mutex_lock(&w->lock);
	while (w->job && pthread_cond_timedwait(&w->changed, &w->lock, &until) == 0)
		;
	idle = !w->job;
	pthread_mutex_unlock(&w->lock);
	return idle;
}

void np_worker_rest(int nap_us)
{
	const struct timespec nap = {.tv_nsec = nap_us * 1000L};

	if (nap_us > 0)
		nanosleep(&nap, NULL);
	else
		sched_yield();
}

/* ---- the watchdog -------------------------------------------------------------------------- */

/* How long a worker has to report by itself before the watchdog does. */
#define GRACE_NS (1000 * NP_NS_PER_MS)

static struct {
	struct np_worker *workers[4];
	int n;
	uint64_t timeout_ns;
	char who[32];
	pthread_t thread;
	bool running;
	pthread_mutex_t lock; /* protects stop */
	pthread_cond_t changed;
	bool stop;
} dog;

/* Does not return. */
static void give_up(struct np_worker *w, uint64_t now)
{
	const char *call = atomic_load(&w->call);
	char inside[80] = "";

	if (call)
		snprintf(inside, sizeof(inside), ", inside the plugin's %s",
			 strncmp(call, "np_", 3) == 0 ? call + 3 : call);
	pthread_mutex_lock(&w->lock);
	fprintf(stderr, "nccl-net-perf: %s: stuck for %.1f s in %s%s (%s thread)\n", dog.who,
		(double)(now - w->moved_ns) / 1e9, w->what, inside, w->name);
	pthread_mutex_unlock(&w->lock);
	_exit(NP_EXIT_TIMEOUT);
}

static void watch(struct np_worker *w, uint64_t now)
{
	uint64_t progress = atomic_load_explicit(&w->progress, memory_order_relaxed);

	if (!atomic_load(&w->busy) || progress != w->seen_progress) {
		w->seen_progress = progress;
		w->moved_ns = now;
		return;
	}
	if (now - w->moved_ns < dog.timeout_ns)
		return;
	if (!atomic_exchange(&w->expired, true))
		w->expired_ns = now;
	else if (now - w->expired_ns > GRACE_NS)
		give_up(w, now);
}

static void *watchdog_main(void *arg)
{
	struct timespec until;

	(void)arg;
	pthread_mutex_lock(&dog.lock);
	while (!dog.stop) {
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 100 * 1000000L;
		if (until.tv_nsec >= 1000000000L) {
			until.tv_sec++;
			until.tv_nsec -= 1000000000L;
		}
		pthread_cond_timedwait(&dog.changed, &dog.lock, &until);
		for (int i = 0; i < dog.n && !dog.stop; i++)
			watch(dog.workers[i], np_now_ns());
	}
	pthread_mutex_unlock(&dog.lock);
	return NULL;
}

bool np_watchdog_start(struct np_worker *const *workers, int n, double timeout_s, const char *who)
{
	pthread_condattr_t attr;
	int rc;

	for (int i = 0; i < n; i++) {
		dog.workers[i] = workers[i];
		workers[i]->moved_ns = np_now_ns();
	}
	dog.n = n;
	dog.stop = false;
	dog.timeout_ns = (uint64_t)(timeout_s * 1e9);
	snprintf(dog.who, sizeof(dog.who), "%s", who);
	pthread_mutex_init(&dog.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&dog.changed, &attr);
	pthread_condattr_destroy(&attr);
	rc = pthread_create(&dog.thread, NULL, watchdog_main, NULL);
	errno = rc;
	dog.running = rc == 0;
	return dog.running;
}

void np_watchdog_stop(void)
{
	if (!dog.running)
		return;
	pthread_mutex_lock(&dog.lock);
	dog.stop = true;
	pthread_cond_broadcast(&dog.changed);
	pthread_mutex_unlock(&dog.lock);
	pthread_join(dog.thread, NULL);
	dog.running = false;
}
