/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two threads of a rank that call the plugin, as in NCCL: a service thread (listen, connect,
 * accept, registration, close) and a progress thread (isend, irecv, iflush, test). Each runs one
 * job at a time that the main thread posts.
 *
 * A watchdog sees to it that nothing hangs for ever. A job calls np_worker_progress whenever
 * something moved. When nothing has moved for the time limit, the job finds np_worker_expired true
 * and reports in its own words; if it cannot, because the plugin does not return from a call, the
 * watchdog says so and ends the process.
 */
#ifndef NP_WORKER_H
#define NP_WORKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct np_worker {
	const char *name;
	pthread_t thread;

	pthread_mutex_t lock; /* protects job, arg, stop and what `what` says */
	pthread_cond_t changed;
	void (*job)(void *arg);
	void *arg;
	bool stop;
	char what[160]; /* for messages: what the job is doing */

	/* Written by the worker, read by the watchdog. */
	_Atomic bool busy;
	_Atomic uint64_t progress;
	_Atomic(const char *) call; /* the plugin call it is in, or NULL */

	/* Written by the watchdog, read by the worker. */
	_Atomic bool expired;

	/* The watchdog's own. */
	uint64_t seen_progress;
	uint64_t moved_ns;
	uint64_t expired_ns;
};

/* False with errno set. */
bool np_worker_start(struct np_worker *w, const char *name);

/* Ends the thread after its job. Fine for one that was never started. */
void np_worker_stop(struct np_worker *w);

/* Hands over a job; the worker must be idle. `what` is copied. */
void np_worker_post(struct np_worker *w, void (*job)(void *arg), void *arg, const char *what);

/* Waits at most wait_ms; true when the worker is idle. */
bool np_worker_wait(struct np_worker *w, int wait_ms);

static inline void np_worker_progress(struct np_worker *w)
{
	atomic_fetch_add_explicit(&w->progress, 1, memory_order_relaxed);
}

/* Nothing moved: the processor is yielded, as NCCL's proxy does, or left for nap_us. */
void np_worker_rest(int nap_us);

static inline bool np_worker_expired(struct np_worker *w)
{
	return atomic_load_explicit(&w->expired, memory_order_relaxed);
}

/* Around a call of the plugin, so that a hang inside it can be named. */
#define NP_CALL(w, fn, ...)                                                                        \
	({                                                                                         \
		atomic_store_explicit(&(w)->call, #fn, memory_order_relaxed);                      \
		__auto_type np_call_result_ = fn(__VA_ARGS__);                                     \
		atomic_store_explicit(&(w)->call, NULL, memory_order_relaxed);                     \
		np_call_result_;                                                                   \
	})

/*
 * Watches the workers (at most 4) until np_watchdog_stop. When one must be given up the process
 * ends with NP_EXIT_TIMEOUT after a message that starts with `who`.
 */
bool np_watchdog_start(struct np_worker *const *workers, int n, double timeout_s, const char *who);
void np_watchdog_stop(void);

#endif
