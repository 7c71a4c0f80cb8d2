/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hosts of a benchmark as their director sees them: processes on a fabric of their own, what
 * their plugins say of themselves, and breaking the rail between them.
 */
#ifndef BENCH_PAIR_H
#define BENCH_PAIR_H

#include "bench.h"

#include "simverbs/live/state.h"
#include "tools/common/fabric.h"

#include <sys/types.h>

#define BENCH_MAX_RAILS 8

struct bench_pair {
	struct np_fabric fabric;
	struct sv_fabric ports;
	struct bench_shared *shared;
	int shared_fd;
	pid_t processes[1 + BENCH_MAX_PEERS]; /* the receiver, the senders; 0: not running */
	int conns, rails, peers;
	int rail;      /* that carries the traffic: bench_wait_protected */
	char why[400]; /* something failed; empty: nothing has */
};

struct bench_pair_options {
	int rails; /* of the fabric; at most BENCH_MAX_RAILS */
	int peers; /* processes that send, at most BENCH_MAX_PEERS; 0: one */
	int conns, depth;
	size_t bytes; /* of a message */
	enum bench_phase phase;
	int parent; /* struct bench_shared, as the next one */
	bool crossed;
};

/* What the connections of a host's (first) process say, all together. */
struct bench_standing {
	int conns;
	int protected_ones; /* have a healthy path that shares no port with the active one */
	int on_rail[BENCH_MAX_RAILS];
	struct bench_alarms alarms;
	uint64_t messages;
	uint64_t heartbeats; /* that were sent, on all ports */
	/* Of each connection, in an order that stays. */
	uint32_t epoch[BENCH_MAX_CONNS];
	int device[BENCH_MAX_CONNS];
};

/* Always false; the first reason counts. */
bool bench_fail(struct bench_pair *pair, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/*
 * Brings a fabric up and starts a receiving and a sending host on it, which inherit the
 * environment, and wait before they connect if `phase` says so. All functions return false after
 * bench_fail.
 */
bool bench_pair_open(struct bench_pair *pair, const struct bench_pair_options *options);
/* Ends the hosts and takes the fabric down. After a failed open, too. */
void bench_pair_close(struct bench_pair *pair);

/* Connections of a host's (first) process. */
int bench_ends(const struct bench_pair *pair, int host);

/* False when a host has failed or died, or somebody wants an end. */
bool bench_healthy(struct bench_pair *pair);
/* Until both hosts have come so far: see enum bench_phase. */
bool bench_wait_ready(struct bench_pair *pair);
bool bench_wait_connected(struct bench_pair *pair);
/*
 * Until every connection has a standby at both ends and all use one rail at a host: *host if
 * possible, else the other one. (A connection may well run from one rail to another.) That rail is
 * pair->rail.
 */
bool bench_wait_protected(struct bench_pair *pair, int *host);

bool bench_read_standing(struct bench_pair *pair, int host, struct bench_standing *to);

/* Takes the time from here on. */
uint64_t bench_fault_begins(struct bench_pair *pair);
/* The fault is complete: what is handed to the plugin from here on cannot go over what is broken.
 */
void bench_fault_is_there(struct bench_pair *pair);
/* Until every connection has had its first message from after the fault. */
bool bench_wait_moved(struct bench_pair *pair);
/* When connection c had it, from the beginning of the fault on. */
uint64_t bench_moved_ns(const struct bench_pair *pair, int c, uint64_t begun_ns);
/* The port of a host on the rail that carries the traffic. */
void bench_set_link(struct bench_pair *pair, int host, bool up);

#endif
