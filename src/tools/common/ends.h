/* SPDX-License-Identifier: Apache-2.0 */
/* How a daemon is told to end, by SIGINT or SIGTERM: over a descriptor that it watches beside its
 * others. */
#ifndef NCCL_HA_TOOLS_ENDS_H
#define NCCL_HA_TOOLS_ENDS_H

#include <signal.h>
#include <sys/signalfd.h>

static inline sigset_t ends(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	return signals;
}

/* From now on they wait for ends_open(). Before any thread is there. */
static inline void ends_hold(void)
{
	const sigset_t signals = ends();

	sigprocmask(SIG_BLOCK, &signals, NULL);
}

/* A descriptor that is readable once one has come; -1 with errno. The caller closes it. */
static inline int ends_open(void)
{
	const sigset_t signals = ends();

	return signalfd(-1, &signals, SFD_CLOEXEC);
}

#endif
