/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For scripts/bench: the plugin as it would be if only its progress thread polled, and the
 * application's calls of test merely looked whether a request is done. Linked with
 * -Wl,--wrap=ha_comm_poll, so that the code which is measured is otherwise the plugin's own.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "progress/progress.h"
#include "transport/comm.h"
#include "transport/instance.h"

#define WAKE_NS (20 * 1000)

int __real_ha_comm_poll(struct ha_comm *comm, int budget);
int __wrap_ha_comm_poll(struct ha_comm *comm, int budget);

static _Thread_local enum { UNKNOWN, APPLICATION, PROGRESS } self;

static bool on_progress_thread(void)
{
	char name[16] = "";

	if (self == UNKNOWN) {
		(void)pthread_getname_np(pthread_self(), name, sizeof(name));
		self = strcmp(name, "nccl-ha") == 0 ? PROGRESS : APPLICATION;
	}
	return self == PROGRESS;
}

/* It sleeps when nothing is under way, and would learn of a request milliseconds later. */
static void wake_thread(struct ha_comm *comm)
{
	static _Thread_local uint64_t woken_ns;
	uint64_t now = ha_now_ns();

	if (now - woken_ns < WAKE_NS)
		return;
	woken_ns = now;
	ha_progress_call(comm->inst->progress, &comm->poller);
}

int __wrap_ha_comm_poll(struct ha_comm *comm, int budget)
{
	if (on_progress_thread())
		return __real_ha_comm_poll(comm, budget);
	wake_thread(comm);
	/* The caller counts this as a poll, by which the thread would know that it is not needed.
	 */
	comm->polls--;
	return 0;
}
