/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of ours in NCCL's process. */
#ifndef HA_BASE_THREAD_H
#define HA_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

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

#endif
