/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of libnccl-ha-ibgda between two contexts of a live fabric, one after the other's four
 * rails, with threads of a GPU or of the host on them (kernels.h): their memory, what is cut, and
 * whether every byte and every signal is right. One at a time; what cannot be ends the program,
 * with status 1 and no thread left.
 */
#ifndef TESTS_IBGDA_RIG_H
#define TESTS_IBGDA_RIG_H

#include "kernels.h"
#include "nccl_ha/ibgda.h"

#include <stdbool.h>
#include <stdint.h>

#define MS 1000000ull

struct rig_plan {
	uint32_t streams, threads_each; /* who post; thread n is on stream n mod streams */
	uint32_t bytes, window;		/* kernels.h */
	bool signals, watched;		/* by a thread for each that posts */
	bool in_memory_of_threads;	/* where puts go: a GPU's own */
	bool has_no_gate; /* threads: no stream may move while they run, however slow */
	uint64_t count;
	uint32_t outage_ms;
};

struct rig {
	struct rig_plan plan;
	const char *where;	/* threads run */
	struct kernel_job *job; /* its threads and watches are in the order of their streams */
	unsigned long wrong;
	/* Doorbells that were mapped while threads ran, and the longest time one took. */
	unsigned int late_doorbells;
	uint64_t late_ns;
};
extern struct rig rig;

uint64_t now_ns(void);
/* Ends the program; threads return before. */
void die(const char *what, unsigned int number) __attribute__((noreturn));
void must(bool is_so, const char *what);

/* The fabric, and the limit of the whole in seconds: BENCH_STREAMS_S, or 110. */
void rig_begin(bool has_gpu_memory);
void rig_open(const struct rig_plan *plan);
void rig_close(void);

void rig_start(enum kernel_kind kind);
void rig_stop(void); /* threads post no more */
/* All who post have left, or at that time not: how many have. */
unsigned int rig_wait(uint64_t until_ns);
void rig_join(void);

/* Every put is there, the last of each slot, and every signal was counted once: adds to rig.wrong.
 * How many were posted. While nobody posts. */
uint64_t rig_judge(void);

/* The host's look at all signals, or those of a stream: what was put before is there. Their sum. */
uint64_t rig_look(void);
uint64_t rig_look_at(unsigned int stream);

struct ha_ibgda_status rig_status(unsigned int stream);
uint64_t rig_failovers(void); /* of all, since threads may run */
void rig_abort(unsigned int stream);
/* Until all streams are over that NIC, or another one than that; one that is over ends the program.
 */
void rig_wait_until_at(unsigned int nic);

enum rig_cut { RIG_PORT, RIG_PEERS_PORT, RIG_SWITCH, RIG_CUTS };
extern const char *const rig_cut_names[RIG_CUTS];
void rig_cut(enum rig_cut kind, unsigned int rail);
void rig_heal(enum rig_cut kind, unsigned int rail);

#endif
