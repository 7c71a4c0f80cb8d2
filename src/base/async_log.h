/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written for threads that must not wait for a file.
 *
 * Log lines and events of a failover come from threads that move traffic, and may go to a disk that
 * is busy, a terminal that nobody reads, or a file system behind the very network that has just
 * failed. So they only leave a note; a thread of the process writes the notes in the order in which
 * they came. It is started by the first one: in peace there is none. It begins HA_ASYNC_LOG_LAG_MS
 * after the first note of a burst, to take no processor from the failover that it tells of.
 *
 * A note is never waited for. When a file hangs and HA_ASYNC_LOG_BYTES_MAX of notes are waiting,
 * further ones are dropped, and a line says later how many are missing.
 */
#ifndef HA_BASE_ASYNC_LOG_H
#define HA_BASE_ASYNC_LOG_H

#include "base/list.h"

#include <stddef.h>
#include <stdint.h>

#define HA_ASYNC_LOG_BYTES_MAX (1u << 20)

/* From a note on which nobody waits until it is written; half of HA_ASYNC_LOG_BYTES_MAX ends it. */
#define HA_ASYNC_LOG_LAG_MS 20

/* Longest wait of ha_async_log_flush; of a file that is well it takes far less. A variable for
 * tests that count on it: on a busy machine the thread may not run for as long. */
#define HA_ASYNC_LOG_TIMEOUT_MS 100
extern uint64_t ha_async_log_timeout_ms;

/* The first member of something from malloc. */
struct ha_note {
	struct ha_list link;
	size_t size; /* of all of it, bytes */
	/* Does it. On the writer's thread, without any lock. */
	void (*write)(struct ha_note *note);
	/* Lets go of what it refers to, if that is anything; then it is freed. */
	void (*drop)(struct ha_note *note);
};

/*
 * From now on notes are taken, until the call of ha_async_log_close that belongs to it: that writes
 * what is there, waiting as long as ha_async_log_flush does. Any thread.
 */
void ha_async_log_open(void);
void ha_async_log_close(void);

/*
 * Takes the note over. False: there is no thread to be had, or nobody has opened the writer; the
 * note is the caller's still, who does without. Any thread; never waits for a file.
 */
bool ha_async_log_take(struct ha_note *note);

/*
 * Has everything that was taken before written at once, and waits for it, at most
 * ha_async_log_timeout_ms. Not at all when there is nothing, when what is being written has taken
 * as long already, or on the writer's own thread. Any thread.
 */
void ha_async_log_flush(void);

#endif
