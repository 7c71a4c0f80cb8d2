/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream with everything that acts on it, one step at a time in one thread: threads that run the
 * code for GPUs, devices that take requests out of their queues as strictly as hardware may, a
 * receiver with its memory, and the host's steps. A seed says who is next; faults happen at the
 * event that they are asked for.
 */
#ifndef STREAM_WORLD_H
#define STREAM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#define WORLD_THREADS 4

enum world_fault {
	WORLD_NONE,
	WORLD_CUT_ARRIVES, /* the path breaks: what is under way arrives, no acknowledgement does */
	WORLD_CUT_LOST,	   /* ... and what is under way is lost */
	WORLD_DIES_PLACED, /* the receiver's NIC dies: what it holds is placed, */
	WORLD_DIES_LOST,   /* or lost */
	WORLD_FALSE_ALARM, /* the host moves the stream, though nothing is wrong */
	WORLD_PLANNED,	   /* as planned: it waits until all is through */
	WORLD_FAULTS,
};

struct world_plan {
	uint64_t seed;
	unsigned int threads, posts; /* of each */
	uint32_t log;		     /* queues of 2^log requests */
	struct {
		enum world_fault fault;
		unsigned int at; /* event */
	} faults[2];
	/* A thread sleeps at this step of its code, the first time it comes there, for as many
	 * generations, which false alarms begin. */
	const char *held_at;
	unsigned int held_for;
	bool wakes_early; /* while the last of them is made */
};

struct world_result {
	unsigned int events, fired; /* faults that found something to break */
	unsigned int generations;
	unsigned int left_most; /* queues that were left and not proved to be nobody's, at most */
	unsigned int left;	/* ... when all threads had ended and the host had looked again */
	unsigned int held;	/* threads that were */
	/* Requests that the receiver had been told of, and had written over, when their stream went
	 * on, and that nobody at the sender knew to be complete. */
	unsigned int refilled;
	bool given_up;
	const char *wrong; /* NULL: every byte and every signal was right */
};

struct world_result world_run(const struct world_plan *plan);

/* Each place of the code for GPUs at which others may act, for the one of that number; NULL: no
 * such number. */
const char *world_step(unsigned int number);

#endif
