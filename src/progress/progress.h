/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background thread of an instance: one per process, however many connections there are.
 *
 * It does two kinds of work. *Watches* are file descriptors (async events of the NICs, bootstrap
 * sockets): it sleeps on them. *Pollers* are visited: each looks whether it needs somebody to poll
 * its completion queue because the application does not, and by what it found it is visited again
 * at once, at the next tick, or when it is due or called. Each has a time of its own, so that a
 * wake-up costs what is to be done and not as much as there are connections.
 *
 * It sleeps whenever it can: with no poller awake it is woken by descriptors only; with pollers
 * that the application drives itself it looks in every few milliseconds.
 *
 * All callbacks run on the thread (or in ha_progress_round, for instances without a thread),
 * one at a time, with the round lock held. A callback may unwatch its own watch and add new ones;
 * adding pollers and removing others is for other threads, which wait for the round to end.
 */
#ifndef HA_PROGRESS_PROGRESS_H
#define HA_PROGRESS_PROGRESS_H

#include "base/list.h"
#include "base/result.h"
#include "progress/timer_wheel.h"

#include <stdbool.h>
#include <stdint.h>

struct ha_commands;
struct ha_progress;

/* What a visit found, which decides when the next one is. */
enum ha_poll_result {
	HA_POLL_ASLEEP,	 /* nothing to look after until somebody calls it, or it is due */
	HA_POLL_IDLE,	 /* nothing outstanding */
	HA_POLL_WATCHED, /* outstanding, and the application polls */
	HA_POLL_EMPTY,	 /* outstanding, we polled, nothing had completed */
	HA_POLL_WORKED,	 /* we polled and found completions */
	HA_POLL_SOON, /* what it waits for takes microseconds, and it could not do what it was asked
		       */
	HA_POLL_RESULTS
};

/* What a visit that finds nothing looks at comes first: with very many of them, each line counts.
 */
struct ha_poller {
	struct ha_timer timer; /* the thread's, as what says so below: under its lock */
	enum ha_poll_result (*visit)(struct ha_poller *poller);
	/*
	 * When it must be visited again at the latest, on ha_now_ns's clock, however little there
	 * is to do; the thread is late by a millisecond at most, as far as the machine lets it run.
	 * 0: at its tick. For the visit to set.
	 */
	uint64_t due_ns;
	uint64_t spin_until_ns;	   /* the thread's: after SOON it is visited without sleeping */
	enum ha_poll_result found; /* the thread's */
	int empty_visits;	   /* the thread's: in a row */
	/* For the visit to see: it was called or is due. Stays until it finds anything but SOON. */
	bool asked;
	uint8_t quiet_visits; /* the thread's: in a row without being asked */
	bool added, called;   /* under the lock of calls, as the next one */
	struct ha_list call;
	struct ha_list link; /* the thread's: of all pollers; initialise with ha_list_init */
};

struct ha_watch {
	int fd; /* -1: not watched */
	/* events: EPOLLIN, EPOLLHUP, … */
	void (*ready)(struct ha_watch *watch, uint32_t events);
};

/* Queues of commands, one a NIC (command.h). */
#define HA_PROGRESS_QUEUES 32

struct ha_progress_options {
	bool thread;		 /* start one; otherwise the caller drives ha_progress_round */
	int idle_spin_threshold; /* empty visits in a row before a poller waits for its tick */
	/* A NIC's commands take longer than a healthy one's, or are back. Progress thread, without
	 * any lock. NULL: nobody needs to know. */
	void (*stuck)(void *arg, unsigned queue, bool stuck);
	void *stuck_arg;
};

ha_result_t ha_progress_start(const struct ha_progress_options *options,
			      struct ha_progress **out) HA_MUST_CHECK;
/* Joins the thread: nothing is called any more. NULL and a second call are fine. */
void ha_progress_halt(struct ha_progress *progress);
/*
 * ha_progress_halt, and frees it. Every poller and watch must be gone, and every command left or
 * back. Then calls then(arg), if there is one: when the last command is through, which may be after
 * the return (ha_commands_end). True: it is done.
 */
bool ha_progress_end(struct ha_progress *progress, void (*then)(void *arg), void *arg);
/* ha_progress_end for those who need not know when it is done. NULL is fine. */
void ha_progress_stop(struct ha_progress *progress);

/* Any thread but the progress thread. The structure must stay until it was removed. */
void ha_progress_add(struct ha_progress *progress, struct ha_poller *poller);
/* On return the poller is not being visited and never will be. */
void ha_progress_remove(struct ha_progress *progress, struct ha_poller *poller);

/* Any thread, callbacks included. */
ha_result_t ha_progress_watch(struct ha_progress *progress, struct ha_watch *watch) HA_MUST_CHECK;
/* On return the callback is not running and never will. Does not close the descriptor. */
void ha_progress_unwatch(struct ha_progress *progress, struct ha_watch *watch);
/* ha_progress_unwatch from inside a callback: the watch's own, another's, or a visit. */
void ha_progress_unwatch_self(struct ha_progress *progress, struct ha_watch *watch);

/*
 * Has a poller visited at once. Any thread, callbacks included; waits for nothing. One that is not
 * added, or was removed, is left alone.
 */
void ha_progress_call(struct ha_progress *progress, struct ha_poller *poller);

/*
 * Where a NIC's commands go that may wait in the kernel (command.h): queue < HA_PROGRESS_QUEUES.
 * Made when first asked for; NULL: no memory. Any thread.
 */
struct ha_commands *ha_progress_commands(struct ha_progress *progress, unsigned queue);

/*
 * One round without sleeping, in which every poller is visited; for a progress without a thread,
 * whose commands are run here as well. Returns how many callbacks and commands found work.
 */
int ha_progress_round(struct ha_progress *progress);

/*
 * What the thread does between two sleeps: visits those pollers whose time has come. Returns until
 * when it may sleep, on ha_now_ns's clock; 0: not at all, UINT64_MAX: until something happens.
 * Where there is no thread it runs commands as well, for tests that have the clock in their hands.
 */
uint64_t ha_progress_turn(struct ha_progress *progress);

/* How often the thread woke up, for tests and statistics. */
uint64_t ha_progress_wakeups(struct ha_progress *progress);

#endif
