/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errands: calls that may wait in the kernel, and threads that may wait with them.
 *
 * Resolving an address is what takes long: on RoCE, ibv_create_ah and the move of a queue pair to
 * RTR wait for the neighbour's answer, a second or more if there is none, and a path in reserve is
 * often tried where there is none. Meanwhile the background thread has heartbeats to answer, and a
 * connection has traffic. So these calls are made by threads of their own, started when first
 * needed, on things that nobody else uses yet.
 *
 * An errand has a key, and no two of the same key run at once: an address that does not answer
 * holds one thread, however many connections ask for it, and the others go on.
 *
 * The owner looks at the state; its poller is called when the errand is done. An owner that ends
 * waits for its errands, but not for ever: the kernel may keep one for a minute. What is not back
 * by then is left to the threads, with all that it uses, and frees that when it is done.
 */
#ifndef HA_PROGRESS_ERRAND_H
#define HA_PROGRESS_ERRAND_H

#include "base/clock.h"
#include "base/list.h"
#include "base/result.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ha_errands;
struct ha_poller;
struct ha_progress;

/* How long who ends waits for an errand before he leaves it. A device that is well takes far less.
 * A variable for tests that count on it: on a busy machine a thread may not run for as long. */
#define HA_ERRAND_PATIENCE_NS (200 * HA_NS_PER_MS)
extern uint64_t ha_errand_patience_ns;

enum ha_errand_state {
	HA_ERRAND_IDLE,	   /* never sent, or called back before it ran */
	HA_ERRAND_WAITING, /* for a thread */
	HA_ERRAND_RUNNING,
	HA_ERRAND_DONE,
};

struct ha_errand {
	struct ha_list link; /* under the lock of the errands, as the next one */
	bool left;	     /* nobody waits for it any more */
	atomic_int state;    /* enum ha_errand_state */
	uint64_t key;
	struct ha_poller *owner; /* called when it is done; outlives the errand */
	/* Without any lock. */
	void (*run)(struct ha_errand *errand);
	/* For an errand that was left, when it has run: frees it and what it used. Without any
	 * lock.
	 */
	void (*orphaned)(struct ha_errand *errand);
};

/* Whether some thread has it or will have it: the errand's things are not the owner's now. */
static inline bool ha_errand_busy(const struct ha_errand *errand)
{
	int state = atomic_load_explicit(&errand->state, memory_order_acquire);

	return state == HA_ERRAND_WAITING || state == HA_ERRAND_RUNNING;
}

static inline bool ha_errand_done(const struct ha_errand *errand)
{
	return atomic_load_explicit(&errand->state, memory_order_acquire) == HA_ERRAND_DONE;
}

/* Any thread; never waits. run, key and owner are set; it is not busy. */
void ha_errand_send(struct ha_errands *errands, struct ha_errand *errand);

/* Takes it back if no thread has it yet. Never waits. */
void ha_errand_recall(struct ha_errands *errands, struct ha_errand *errand);

/*
 * Waits for it as long as it gets on: until the errand of its key that runs, itself or one before
 * it, has taken limit_ns. So where something is stuck for that long already it does not wait at
 * all. UINT64_MAX: no limit. True: it is not busy.
 */
bool ha_errand_wait(struct ha_errands *errands, struct ha_errand *errand, uint64_t limit_ns);

/* Nobody waits for it any more: it is run in its turn if it was not, and freed. Never waits. */
void ha_errand_leave(struct ha_errands *errands, struct ha_errand *errand);

/* Never waits. True: it is the caller's, and not busy. False: it runs, and frees itself. */
bool ha_errand_disown(struct ha_errands *errands, struct ha_errand *errand) HA_MUST_CHECK;

/* Without threads: runs what waits, here and now. Returns how many that were. */
int ha_errands_round(struct ha_errands *errands);

/* threads: else the caller drives ha_errands_round. `progress` has the owners. NULL: no memory. */
struct ha_errands *ha_errands_new(struct ha_progress *progress, bool threads);
/*
 * The end, for errands that all were left or are back: frees them, and calls then(arg) when the
 * last one is through. Waits for that as long as they get on: when none has come back for
 * ha_errand_patience_ns, returns, and the last of the threads does it. True: it is done. NULL for
 * `errands` is fine.
 */
bool ha_errands_end(struct ha_errands *errands, void (*then)(void *arg), void *arg);

#endif
