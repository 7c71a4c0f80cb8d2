/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours in NCCL's process. */
#ifndef HA_BASE_THREAD_H
#define HA_BASE_THREAD_H

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Starts a thread that gets no signals: the process that loaded us owns them. name: 15 characters
 * at most. 0 or errno. */
static inline int ha_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg),
				  void *arg)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		pthread_setname_np(*thread, name);
	return rc;
}

/* A condition whose time limits are on the clock of ha_cond_wait_until. */
static inline void ha_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* With the lock: until it is signalled, or until then on ha_real_ns's clock. UINT64_MAX: no limit.
 * False: the time is over. */
static inline bool ha_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock,
				      uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / HA_NS_PER_S),
				 .tv_nsec = (long)(until_ns % HA_NS_PER_S)};

	if (until_ns == UINT64_MAX)
		return pthread_cond_wait(cond, lock) == 0;
	return pthread_cond_timedwait(cond, lock, &until) == 0;
}

#endif
