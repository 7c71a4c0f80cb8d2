/* SPDX-License-Identifier: Apache-2.0 */
#include "base/async_log.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <stdlib.h>

uint64_t ha_async_log_timeout_ms = HA_ASYNC_LOG_TIMEOUT_MS;

static struct {
	pthread_once_t once;
	pthread_mutex_t lock; /* protects the rest; never held while something is written */
	pthread_cond_t came;  /* the first note of a burst, a flush, or a new generation */
	pthread_cond_t wrote;
	struct ha_list notes;
	size_t bytes;	      /* of those */
	uint64_t taken, done; /* notes, ever */
	uint64_t dropped;     /* and not yet told of ... */
	uint64_t gap;	      /* ... behind so many that were taken */
	uint64_t writing_ns;  /* since when; 0: nothing is being written */
	bool flush_requested; /* somebody waits: what is there is written at once */
	unsigned users;
	/* A thread ends when it is not of this generation any more, and nothing is left to write.
	 */
	unsigned generation;
	unsigned ended; /* the last generation that has */
	bool running;	/* this generation has a thread */
	pthread_t thread;
	atomic_uint pending; /* taken - done */
} writer = {.once = PTHREAD_ONCE_INIT};

static _Thread_local bool is_writer;

static void init_empty(void)
{
	pthread_mutex_init(&writer.lock, NULL);
	ha_cond_init(&writer.came);
	ha_cond_init(&writer.wrote);
	ha_list_init(&writer.notes);
	writer.bytes = 0;
	writer.done = writer.taken;
	writer.dropped = 0;
	writer.writing_ns = 0;
	writer.flush_requested = false;
	writer.users = 0;
	writer.running = false;
	writer.generation++;
	atomic_store(&writer.pending, 0);
}

/* A forked child has no thread of its parent's, nor a use for its notes; a lock may be held for
 * ever. */
static void init(void)
{
	init_empty();
	(void)pthread_atfork(NULL, NULL, init_empty);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void destroy(struct ha_note *note)
{
	if (note->drop)
		note->drop(note);
	free(note);
}

/* With the lock, which is let go meanwhile. */
static void tell_of_dropped(void)
{
	uint64_t dropped = writer.dropped;

	writer.dropped = 0;
	pthread_mutex_unlock(&writer.lock);
	HA_WARN("%llu log lines and events are missing here: they came faster than they could be "
		"written",
		(unsigned long long)dropped);
	pthread_mutex_lock(&writer.lock);
}

/* Likewise. */
static void write_one(struct ha_note *note)
{
	writer.writing_ns = ha_real_ns();
	pthread_mutex_unlock(&writer.lock);
	note->write(note);
	pthread_mutex_lock(&writer.lock);
	writer.writing_ns = 0;
	writer.bytes -= note->size;
	writer.done++;
	if (writer.dropped != 0 && writer.done >= writer.gap)
		tell_of_dropped();
	atomic_fetch_sub(&writer.pending, 1);
	pthread_cond_broadcast(&writer.wrote);
	pthread_mutex_unlock(&writer.lock);
	destroy(note);
	pthread_mutex_lock(&writer.lock);
}

/* With the lock: until there is something to write and its time has come. False: there is nothing,
 * and never will be. */
static bool await_burst(unsigned generation)
{
	uint64_t until_ns;

	if (ha_list_empty(&writer.notes))
		writer.flush_requested = false;
	while (ha_list_empty(&writer.notes) && writer.generation == generation)
		pthread_cond_wait(&writer.came, &writer.lock);
	until_ns = ha_real_ns() + HA_ASYNC_LOG_LAG_MS * HA_NS_PER_MS;
	while (!writer.flush_requested && writer.generation == generation &&
	       ha_cond_wait_until(&writer.came, &writer.lock, until_ns))
		;
	return !ha_list_empty(&writer.notes);
}

static void *thread_main(void *arg)
{
	unsigned generation = (unsigned)(uintptr_t)arg;
	struct ha_list *node;

	is_writer = true;
	pthread_mutex_lock(&writer.lock);
	while (await_burst(generation))
		while ((node = ha_list_pop_front(&writer.notes)))
			write_one(ha_container_of(node, struct ha_note, link));
	if (generation > writer.ended)
		writer.ended = generation;
	pthread_cond_broadcast(&writer.wrote);
	pthread_mutex_unlock(&writer.lock);
	return NULL;
}

/* With the lock. */
static bool have_thread(void)
{
	if (!writer.running)
		writer.running = ha_thread_start(&writer.thread, "nccl-ha-writer", thread_main,
						 (void *)(uintptr_t)writer.generation) == 0;
	return writer.running;
}

/* With the lock. */
static void request_flush(void)
{
	writer.flush_requested = true;
	pthread_cond_broadcast(&writer.came);
}

/* ---- for everybody else ---------------------------------------------------------------------- */

/* With the lock: false when the time is over. */
static bool wait_until(uint64_t until_ns)
{
	return ha_cond_wait_until(&writer.wrote, &writer.lock, until_ns);
}

/* With the lock. What has been written for longer than that already is not waited for again,
 * however many ask. */
static uint64_t deadline_ns(void)
{
	uint64_t from_ns = writer.writing_ns != 0 ? writer.writing_ns : ha_real_ns();

	return from_ns + ha_async_log_timeout_ms * HA_NS_PER_MS;
}

/* With the lock. A thread that is not asleep looks for it by itself. */
static void leave(struct ha_note *note)
{
	if (ha_list_empty(&writer.notes))
		pthread_cond_broadcast(&writer.came);
	ha_list_push_back(&writer.notes, &note->link);
	writer.bytes += note->size;
	writer.taken++;
	atomic_fetch_add(&writer.pending, 1);
	if (writer.bytes > HA_ASYNC_LOG_BYTES_MAX / 2 && !writer.flush_requested)
		request_flush();
}

bool ha_async_log_take(struct ha_note *note)
{
	bool takes, room;

	pthread_once(&writer.once, init);
	pthread_mutex_lock(&writer.lock);
	takes = writer.users > 0 && have_thread();
	room = takes && writer.bytes + note->size <= HA_ASYNC_LOG_BYTES_MAX;
	if (room)
		leave(note);
	else if (takes && writer.dropped++ == 0)
		writer.gap = writer.taken;
	pthread_mutex_unlock(&writer.lock);
	if (takes && !room)
		destroy(note);
	return takes;
}

void ha_async_log_flush(void)
{
	uint64_t until_ns, goal;

	if (is_writer || atomic_load(&writer.pending) == 0)
		return;
	pthread_mutex_lock(&writer.lock);
	until_ns = deadline_ns();
	goal = writer.taken;
	if (writer.done < goal) /* else the request would last until the next burst */
		request_flush();
	while (writer.done < goal && wait_until(until_ns))
		;
	pthread_mutex_unlock(&writer.lock);
}

void ha_async_log_open(void)
{
	pthread_once(&writer.once, init);
	pthread_mutex_lock(&writer.lock);
	writer.users++;
	pthread_mutex_unlock(&writer.lock);
}

void ha_async_log_close(void)
{
	unsigned generation;
	bool last, ended;
	uint64_t until_ns;
	pthread_t thread;

	ha_async_log_flush();
	pthread_mutex_lock(&writer.lock);
	last = writer.users == 1 && writer.running;
	if (writer.users > 0) /* none of a forked child's */
		writer.users--;
	generation = writer.generation;
	thread = writer.thread;
	if (last) {
		writer.generation++;
		writer.running = false;
		pthread_cond_broadcast(&writer.came);
	}
	until_ns = deadline_ns();
	while (last && writer.ended < generation && wait_until(until_ns))
		;
	ended = writer.ended >= generation;
	pthread_mutex_unlock(&writer.lock);
	if (!last)
		return;
	if (ended)
		pthread_join(thread, NULL);
	else
		pthread_detach(thread); /* it ends when its file lets go */
}
