/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scaling benchmark: what a process with very many connections takes, and how each figure grows
 * with their number. Two hosts, all connections between them, one end of each in either process.
 */
#ifndef BENCH_SCALE_H
#define BENCH_SCALE_H

#include "bench.h"

struct scale_settings {
	int rails;
	int peers;     /* processes that the connections come from */
	double idle_s; /* how long the idle processes are watched; 0: they are not */
	/* Or longer, until the thread has had a second in which it took no more than that: on a
	 * machine that others share a few seconds may be all theirs. 0: no longer. */
	double quiet_percent;
	int faults; /* 0: none */
	bool verbose;
};

/* At one number of connections. "Per connection" is per end: the process has one of each. */
struct scale_point {
	int conns, peers;
	bool ha;
	/* Set-up, one after the other. */
	double setup_s;
	double setup_us;	/* per connection */
	double setup_first_us;	/* the cheapest batch among the first quarter, each ... */
	double setup_last_us;	/* ... and among the last */
	double setup_plugin_us; /* of the plugin's threads per connection, both ends together */
	double setup_cpu_us;	/* processor time per connection, both ends together */
	double protected_s;	/* from the last connection until all have a standby */
	/* In the process that takes more of it: of several peers, the one that they all talk to. */
	double memory_kib, memory_base_kib; /* per connection; of the process without any */
	double fds, fds_base;
	/* Idle: share of a core, in percent. */
	double heartbeats;		  /* per second that it sends */
	double idle_process, idle_plugin; /* whole process; the plugin's thread alone */
	double idle_least;		  /* of the thread in the quietest second */
	/* One port down until the last connection moved, each fault. */
	double *failover_ms;
	double failover_cpu_us; /* the plugin's threads, per connection, both ends; the least */
	int nfailovers;
	char why[400]; /* the measurement failed; empty: it is good */
};

/* The caller frees point->failover_ms. */
bool scale_measure(int conns, bool ha, const struct scale_settings *settings,
		   struct scale_point *point);

/* The middle one of the failovers; 0: none. */
double scale_median_ms(const struct scale_point *point);

#endif
