/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that polls in the application's place: HA_NCCL_USE_PROGRESS_THREAD=2.
 *
 * It keeps the token of each connection that has something under way and polls all of them in turn.
 * So test finds the token taken, touches no queue, and looks at the request's own state, which the
 * thread stored when its completion came. Whoever needs the token *asks*: the thread lets go of it
 * after the poll that it is at, and takes it again when the asker has had it.
 *
 * It keeps none of a connection that fails over, receives into GPU memory (test posts the flushes)
 * or has nothing to wait for: there all is as it is without the thread. One for all connections of
 * an instance.
 */
#ifndef HA_TRANSPORT_POLL_THREAD_H
#define HA_TRANSPORT_POLL_THREAD_H

#include "base/list.h"
#include "base/result.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_comm;
struct ha_poll_thread;

/* What the thread knows of a connection. */
struct ha_polled {
	struct ha_list link; /* of all of them: under the thread's lock */
	bool flushes;	     /* [T] it receives into GPU memory, and test posts flushes */
	/* The thread's, in its round. */
	bool kept; /* it has the token */
	unsigned skip,
	    skipped;	   /* rounds in which it is not looked at, after it had nothing to do */
	uint64_t until_ns; /* left to those who asked until then, on ha_real_ns's clock */

	alignas(64) atomic_bool wanted; /* somebody asks for the token */
};

struct ha_poll_options {
	bool thread; /* start one; otherwise the caller drives ha_poll_thread_round */
	int cpu;     /* the processor it stays on; -1: any */
};

/* The application's. A processor that cannot be had is a warning. */
ha_result_t ha_poll_thread_start(const struct ha_poll_options *options,
				 struct ha_poll_thread **out) HA_MUST_CHECK;
/* Joins it. Every connection must have been removed. NULL is fine. */
void ha_poll_thread_stop(struct ha_poll_thread *thread);

/* Any thread but this one, without the connection's token. Without a thread (NULL) nothing is done.
 */
void ha_poll_thread_add(struct ha_poll_thread *thread, struct ha_comm *comm);
/* On return it has let go of the connection for good. One that was not added is fine. */
void ha_poll_thread_remove(struct ha_poll_thread *thread, struct ha_comm *comm);

/* Looks at all connections once. Returns whether it keeps any. */
bool ha_poll_thread_round(struct ha_poll_thread *thread);

/*
 * For those who found the token taken and cannot do without: has the thread let go of it, and takes
 * it, within microseconds or not at all; then the next who tries finds it free for a while. False
 * where there is no such thread. Any thread but this one.
 */
bool ha_token_ask(struct ha_comm *comm);

#endif
