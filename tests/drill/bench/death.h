/* SPDX-License-Identifier: Apache-2.0 */
/* The death of a host's process under traffic, and when the other one is told. */
#ifndef BENCH_DEATH_H
#define BENCH_DEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_death {
	int conns, depth;
	size_t bytes;
	int host;	     /* that dies */
	bool has_child;	     /* which it forked, and which lives */
	bool lie;	     /* only says that it is killed */
	useconds_t quiet_us; /* of traffic before */
	uint64_t known_ns;   /* from before the kill until an error on every connection */
	char why[400];
};

/* On a fabric of its own. False: why says why it does not count. */
bool bench_death(struct bench_death *death);

#endif
