/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The failover benchmark: how long after a fault the first payload arrives on another path.
 *
 * Two host processes with many connections between them, and a director that breaks the fabric
 * between them. All on one machine, so they share a clock, and a page of memory in which the
 * receiving host notes for each connection when the first message arrived that had been handed to
 * the plugin *after* the fault: that one cannot have come over the path that was broken.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include "nccl_ha/nccl_net.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_CONNS	 1024
#define BENCH_MAX_DEPTH	 8
#define BENCH_SENDER	 0 /* host numbers */
#define BENCH_RECEIVER	 1
#define BENCH_MAX_PEERS	 64 /* processes that send; the first one stands for all */
#define BENCH_MAX_GOALS	 2
#define BENCH_FILL_WORDS 8 /* of a message that are checked */

/* The start of each message. */
struct bench_header {
	uint64_t sequence;
	uint64_t posted_ns;
	uint64_t fill[BENCH_FILL_WORDS]; /* all different, from connection and sequence */
};

/* How far hosts may go; the director moves it on. */
enum bench_phase {
	BENCH_LOAD,    /* load the plugin, which makes them ready, and wait */
	BENCH_CONNECT, /* connect all, then wait with nothing outstanding */
	BENCH_TRAFFIC, /* send and receive until the end */
};

struct bench_conn {
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	atomic_bool listening; /* receiver: handle is there */
	_Atomic uint64_t
	    first_after_ns; /* receiver: arrival; 0: not yet. Cleared by the director */
	_Atomic uint64_t last_before_ns; /* receiver: the last arrival before that */
	_Atomic uint64_t received;	 /* receiver: messages */
	_Atomic uint64_t up_ns;		 /* receiver: when the connection was made */
	_Atomic uint64_t lost_ns; /* when whoever is left was told that its peer is gone; 0: not */
};

/* Shared by the three processes. */
struct bench_shared {
	/* Constant. */
	int conns, depth;
	size_t bytes; /* of a message */
	int peers;    /* the sending host's processes; connection c is that of number c % peers */
	bool crossed; /* the receiver takes its second rail where the sender takes the first */
	int parent; /* one more than the host whose process has a child that outlives it; 0: none */
	/* Hosts. */
	_Atomic int started[2];	  /* processes */
	_Atomic int ready[2];	  /* of these, with the plugin loaded */
	_Atomic int connected[2]; /* connections that are up */
	_Atomic int pid[2];
	_Atomic int failed; /* one more than the host that could not go on */
	char why[400];	    /* written before failed */
	/* Director. */
	atomic_bool stop;
	_Atomic int victim;	   /* one more than the host that is to die; 0: none */
	_Atomic int phase;	   /* enum bench_phase */
	_Atomic uint64_t fault_ns; /* when the fault was complete; 0: none */
	struct bench_conn conn[BENCH_MAX_CONNS];
};

/* host.c: a host process, on its host of the fabric already. Returns the exit status. */
int bench_host(struct bench_shared *shared, int host);

/* A value of the fill. */
static inline uint64_t bench_word(int conn, uint64_t sequence, int i)
{
	uint64_t z = sequence * UINT64_C(0x9e3779b97f4a7c15) +
		     (uint64_t)conn * UINT64_C(0xbf58476d1ce4e5b9) + (uint64_t)i;

	z = (z ^ (z >> 29)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 32);
}

/* ---- the director ---------------------------------------------------------------------------- */

enum bench_kind {
	BENCH_LINK_DOWN, /* at the sender's end, at the receiver's in turn, or one of them */
	BENCH_CUT,	 /* silently in the switch */
	BENCH_QP_ERROR,	 /* of a healthy port, at the ends in turn */
	BENCH_DEATH,   /* of a host's process, in turn, every other pair with a child that lives */
	BENCH_HEALTHY, /* none at all, and no switch must come of it */
};

struct bench_scenario {
	const char *name;
	const char *what;
	enum bench_kind kind;
	int at; /* LINK_DOWN: host; -1: both in turn */
	int conns, depth;
	size_t bytes;
	int heartbeat_ms; /* 0: the default */
	bool crossed;	  /* rails, as NCCL may connect: a switch takes an end of each path */
	bool all;	  /* the sample is the slowest connection of a repetition, else each one */
	int repetitions;
	double notice_ms; /* what it may take by design to notice the fault ... */
	struct bench_goal {
		const char *of; /* "p50", "p99" or "max"; NULL: none */
		double ms;	/* ... and what the rest may take */
	} goals[BENCH_MAX_GOALS];
	const char *mark; /* in the report of the marks; NULL: in none */
	int quick;	  /* repetitions of it with --quick */
};

/* What the plugin counted of all connections of a host, or of both. */
struct bench_alarms {
	uint64_t switches, suspicions, outages;
};

struct bench_result {
	const struct bench_scenario *scenario;
	double *samples_ms; /* sorted */
	size_t n;
	int repetitions;	    /* that were done, each one proved */
	int same_port;		    /* BENCH_QP_ERROR: of these, that went on over the same port */
	struct bench_alarms alarms; /* BENCH_HEALTHY */
	uint64_t messages;
	double seconds;
	double stolen_ms; /* of them, of all processors: bench_stolen_ns */
	bool refused;	  /* not all repetitions can be believed: no figure comes of it */
	bool passed;
	char why[400]; /* it did not */
};

struct bench_settings {
	int repetitions; /* 0: the scenario's */
	int conns;	 /* likewise */
	double seconds;	 /* of healthy traffic */
	double slack;
	double load; /* of the machine before */
	bool quick;
	bool lie; /* nothing is broken, which has to come out */
	bool verbose;
};

/* How often it is to be repeated. */
int bench_repetitions(const struct bench_scenario *s, const struct bench_settings *settings);
/* director.c: runs a scenario on a fabric of its own. The caller frees result->samples_ms. */
void bench_run(const struct bench_scenario *s, const struct bench_settings *settings,
	       struct bench_result *result);
/* From a signal handler. */
extern volatile sig_atomic_t bench_interrupted;

/*
 * marks.c: percentiles by mark, of which none may be missing, and whether its goals are met, which
 * is printed, too. False after a message, and where one is missed.
 */
bool bench_write_marks(const char *path, const struct bench_result *results, int n,
		       const struct bench_settings *settings);

/* What a goal of the scenario allows, and what it is of sorted samples. */
double bench_limit_ms(const struct bench_scenario *s, const struct bench_goal *goal, double slack);
double bench_goal_is_ms(const struct bench_goal *goal, const double *sorted, size_t n);
/* The q-quantile of sorted samples, by nearest rank; 0 of none. */
double bench_quantile(const double *sorted, size_t n, double q);

#endif
