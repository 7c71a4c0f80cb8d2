/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/poll_thread.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "transport/comm.h"
#include "transport/complete.h"
#include "transport/shared.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/*
 * So long an asker tries, and so long the thread leaves a connection alone that was asked for: an
 * asker that gave up may share a processor with the thread, and finds the token free when it gets
 * to run.
 */
#define ASK_NS	 (10 * HA_NS_PER_US)
#define LEAVE_NS (20 * HA_NS_PER_MS)
/* Rounds after which a connection that has nothing to do is looked at again, at most. */
#define SKIP_MAX 64
/* With nothing to do anywhere for so long it sleeps, and longer each time. */
#define SPIN_NS	     HA_NS_PER_MS
#define SLEEP_MIN_NS (50 * HA_NS_PER_US)
#define SLEEP_MAX_NS (5 * HA_NS_PER_MS)

struct ha_poll_thread {
	pthread_mutex_t lock; /* of the list, and of the round */
	struct ha_list all;
	atomic_uint waiting; /* for the lock, which the thread takes again and again */
	atomic_bool stop;
	pthread_t thread;
	bool running;
};

/* ---- one connection -------------------------------------------------------------------------- */

/* Whether there is something to poll for, and nobody else who has to. Under the token. */
static bool is_to_poll(const struct ha_comm *comm)
{
	return comm->outstanding > 0 && ha_comm_may_post(comm) && !comm->settling &&
	       ha_comm_error(comm) == HA_OK && !comm->polled.flushes;
}

static void let_go(struct ha_comm *comm)
{
	comm->polled.kept = false;
	ha_token_release(comm);
}

/* Its token was asked for: whoever asked has it, or takes it until then. */
static bool is_left(struct ha_polled *polled)
{
	if (!atomic_load_explicit(&polled->wanted, memory_order_acquire))
		return false;
	if (polled->until_ns == 0)
		polled->until_ns = ha_real_ns() + LEAVE_NS;
	if (ha_real_ns() < polled->until_ns)
		return true;
	atomic_store_explicit(&polled->wanted, false, memory_order_relaxed);
	return false;
}

/* It is passed over for now. */
static bool is_skipped(struct ha_polled *polled)
{
	if (polled->skipped < polled->skip) {
		polled->skipped++;
		return true;
	}
	polled->skipped = 0;
	return false;
}

static void nothing_to_do(struct ha_comm *comm)
{
	struct ha_polled *polled = &comm->polled;

	let_go(comm);
	polled->skip = polled->skip == 0 ? 1 : 2 * polled->skip;
	if (polled->skip > SKIP_MAX)
		polled->skip = SKIP_MAX;
}

static bool look_at(struct ha_comm *comm)
{
	struct ha_polled *polled = &comm->polled;

	if (is_left(polled)) {
		if (polled->kept)
			let_go(comm);
		return true;
	}
	polled->until_ns = 0;
	if (!polled->kept) {
		if (is_skipped(polled))
			return false;
		if (!ha_token_try(comm))
			return true; /* somebody works with it */
		polled->kept = true;
	}
	if (!is_to_poll(comm)) {
		nothing_to_do(comm);
		return false;
	}
	polled->skip = 0;
	comm->polls++;
	comm->count.thread_completions += (uint64_t)ha_comm_poll(comm, comm->poll_batch);
	return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void lock(struct ha_poll_thread *thread)
{
	atomic_fetch_add_explicit(&thread->waiting, 1, memory_order_relaxed);
	pthread_mutex_lock(&thread->lock);
	atomic_fetch_sub_explicit(&thread->waiting, 1, memory_order_relaxed);
}

bool ha_poll_thread_round(struct ha_poll_thread *thread)
{
	struct ha_list *pos;
	bool any = false;

	pthread_mutex_lock(&thread->lock);
	ha_list_for_each (pos, &thread->all)
		any |= look_at(ha_container_of(pos, struct ha_comm, polled.link));
	pthread_mutex_unlock(&thread->lock);
	return any;
}

void ha_poll_thread_add(struct ha_poll_thread *thread, struct ha_comm *comm)
{
	if (!thread)
		return;
	lock(thread);
	ha_list_push_back(&thread->all, &comm->polled.link);
	pthread_mutex_unlock(&thread->lock);
}

void ha_poll_thread_remove(struct ha_poll_thread *thread, struct ha_comm *comm)
{
	if (!thread)
		return;
	lock(thread);
	ha_list_remove(&comm->polled.link);
	if (comm->polled.kept)
		let_go(comm);
	pthread_mutex_unlock(&thread->lock);
}

/* ---- those who ask --------------------------------------------------------------------------- */

bool ha_token_ask(struct ha_comm *comm)
{
	struct ha_polled *polled = &comm->polled;
	const struct ha_poll_thread *thread = comm->inst->poll_thread;
	uint64_t until_ns;

	if (!thread)
		return false;
	atomic_store_explicit(&polled->wanted, true, memory_order_release);
	if (!thread->running && polled->kept)
		let_go(comm); /* this thread does its rounds */
	until_ns = ha_real_ns() + ASK_NS;
	do {
		if (ha_token_try(comm)) {
			atomic_store_explicit(&polled->wanted, false, memory_order_release);
			return true;
		}
	} while (thread->running && ha_real_ns() < until_ns);
	return false;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *thread_main(void *arg)
{
	struct ha_poll_thread *thread = arg;
	uint64_t busy_ns = ha_real_ns(), sleep_ns = SLEEP_MIN_NS;

	while (!atomic_load_explicit(&thread->stop, memory_order_acquire)) {
		if (ha_poll_thread_round(thread)) {
			busy_ns = ha_real_ns();
			sleep_ns = SLEEP_MIN_NS;
		} else if (ha_real_ns() - busy_ns > SPIN_NS) {
			ha_real_sleep_ns(sleep_ns);
			sleep_ns = 2 * sleep_ns < SLEEP_MAX_NS ? 2 * sleep_ns : SLEEP_MAX_NS;
		}
		while (atomic_load_explicit(&thread->waiting, memory_order_relaxed) != 0)
			sched_yield();
	}
	return NULL;
}

static void pin(pthread_t thread, int cpu)
{
	cpu_set_t set;
	int rc;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	rc = pthread_setaffinity_np(thread, sizeof(set), &set);
	if (rc != 0)
		HA_WARN("HA_NCCL_PROGRESS_CPU=%d: the polling thread cannot stay on that processor "
			"(%s) and runs on any that this process may use: choose one that "
			"'taskset -cp' shows for it",
			cpu, strerror(rc));
}

ha_result_t ha_poll_thread_start(const struct ha_poll_options *options, struct ha_poll_thread **out)
{
	struct ha_poll_thread *thread = calloc(1, sizeof(*thread));
	int rc;

	*out = NULL;
	if (!thread) {
		HA_WARN("out of memory for the polling thread");
		return HA_ERR_SYSTEM;
	}
	pthread_mutex_init(&thread->lock, NULL);
	ha_list_init(&thread->all);
	thread->running = options->thread;
	rc = options->thread ? ha_thread_start(&thread->thread, "nccl-ha-poll", thread_main, thread)
			     : 0;
	if (rc != 0) {
		HA_WARN("cannot start the polling thread: %s", strerror(rc));
		thread->running = false;
		ha_poll_thread_stop(thread);
		return HA_ERR_SYSTEM;
	}
	if (thread->running)
		pin(thread->thread, options->cpu);
	*out = thread;
	return HA_OK;
}

void ha_poll_thread_stop(struct ha_poll_thread *thread)
{
	if (!thread)
		return;
	if (thread->running) {
		atomic_store_explicit(&thread->stop, true, memory_order_release);
		pthread_join(thread->thread, NULL);
	}
	pthread_mutex_destroy(&thread->lock);
	free(thread);
}
