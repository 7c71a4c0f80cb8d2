/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Breaking the fabric between two hosts, and the proof that it broke and that the traffic went on
 * elsewhere: by the fabric's own counters and by what the plugins say. Without it an event that did
 * not take place would be the fastest failover of all.
 */
#ifndef BENCH_BREAKAGE_H
#define BENCH_BREAKAGE_H

#include "pair.h"

struct bench_breakage {
	/* Set by the caller. */
	struct bench_pair *pair;
	enum bench_kind kind;
	int host; /* at whose end */
	bool lie; /* only says that it breaks something */
	/* Before. */
	int rule;	    /* BENCH_QP_ERROR: in the fabric; -1: none */
	uint64_t elsewhere; /* bytes that went over the host's other ports */
	struct bench_standing before[2];
	/* After. */
	bool same_port; /* all connections are on the port where they were */
};

/* All return false after bench_fail(). Before the time is taken: */
bool bench_breakage_prepare(struct bench_breakage *b);
/* Breaks it. Returns when it is broken: what is handed to the plugin from then on cannot go over
 * that. */
bool bench_breakage_begin(struct bench_breakage *b);
/* After every connection has had a message from after the fault, while it lasts. */
bool bench_breakage_happened(struct bench_breakage *b);
void bench_breakage_mend(struct bench_breakage *b);
/* Waits until both plugins say what they did. */
bool bench_breakage_was_noticed(struct bench_breakage *b);

#endif
