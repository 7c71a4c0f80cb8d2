/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drill: processes that exchange checked data over a live fabric, faults while they do, and what
 * must come of it.
 *
 * The processes are nccl-net-perf, the faults are the simverbs tool's (and signals), and the
 * witnesses are independent of each other: nccl-net-perf says whether every byte was right and how
 * long nothing moved, the fabric says whether packets were really lost and where they went, the
 * plugin says in its event log and its counters what it noticed and did.
 */
#ifndef DRILL_DRILL_H
#define DRILL_DRILL_H

#include "script.h"

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what is done and what must come of it -------------------------------------------------- */

enum drill_fate {
	DRILL_SURVIVES, /* exit status 0, every byte right */
	DRILL_FAILS,	/* every rank gets a clean error, and ends soon */
	DRILL_BEREAVED, /* as DRILL_FAILS, for those ranks whose process was not killed */
	DRILL_OPEN,	/* whatever comes is reported; only wrong data fails it */
};

#define DRILL_MAX_ARGS 16

struct drill {
	const char *name;
	const char *proves;
	int rails;			    /* of 2 hosts; 0 means 2 */
	const char *fabric[DRILL_MAX_ARGS]; /* of `simverbs up`, after the usual ones */
	const char *env[DRILL_MAX_ARGS];    /* NAME=VALUE */
	const char *args[DRILL_MAX_ARGS];   /* of nccl-net-perf, after the usual ones */
	const char *script;
	bool random; /* of its faults a few may come to nothing */
	int tail_ms; /* traffic goes on for this long after the last step; 0 means 1500 */

	enum drill_fate fate;
	/* DRILL_SURVIVES */
	int switches_min;    /* in the event log, over all connections and both ends */
	int switches_max;    /* -1: any number */
	int switches_sick;   /* so many more if a fence had to destroy queue pairs */
	int sheds_min;	     /* as switches_min: rails of a bundle that are lost and mended */
	const char *reasons; /* one of them must be among the switches: "a|b"; NULL: any will do */
	double stall_min_ms; /* the longest time in which a rank completed nothing */
	double stall_max_ms; /* for this limit a slow machine gets slack */
	int ends_on_rail;    /* 1 + the rail that carries the traffic in the end; 0: any */
	bool samples_rails;  /* what each rail carries is noted as it goes, for a plot */
	/* DRILL_FAILS, DRILL_BEREAVED: from the first step that breaks something */
	double error_min_ms, error_max_ms;
	const char *says; /* must be in the output: "a|b"; NULL: nothing in particular */
};

/* ---- what came of it ------------------------------------------------------------------------ */

struct drill_line {
	uint64_t at_ns;
	char *text;
};

#define DRILL_MAX_RAILS 16

/* Payload that has come over each rail, at a moment. */
struct drill_sample {
	uint64_t at_ns;
	uint64_t bytes[DRILL_MAX_RAILS];
};

struct drill_run {
	const struct drill *drill;
	struct drill_script script;
	double slack; /* limits are multiplied by it */
	int verbose;  /* 1: faults and warnings as they come; 2: all output */

	uint64_t zero_ns; /* traffic flows: the script's time 0 */
	uint64_t ended_ns;
	int status; /* exit status of nccl-net-perf; -signal; -1000: it was ended by us */
	struct drill_line *lines; /* its output */
	int nlines;
	json_t *report; /* of nccl-net-perf; NULL when there is none */
	json_t *events; /* of the event log: an array; never NULL after drill_run */
	json_t *fabric; /* simverbs status in the end, NULL when it could not be asked */
	/* Payload that each rail carried in the last part of the tail. */
	uint64_t rail_bytes[DRILL_MAX_RAILS];
	struct drill_sample *samples; /* with drill.samples_rails */
	int nsamples;

	/* The verdict. */
	double error_ms; /* from the fault until the last rank was told of its error; 0: none was */
	char *complaints; /* a line each; NULL: passed */
	int ncomplaints;
	int nslow; /* of these about a stall that was longer, or an error later, than its limit */
};

/* Runs it and judges it. Always leaves nothing behind but *run, which the caller frees. */
void drill_run(struct drill_run *run);
/* Whether that was over its limit, and nothing else was wrong. */
static inline bool drill_was_only_slow(const struct drill_run *run)
{
	return run->ncomplaints > 0 && run->ncomplaints == run->nslow;
}

/* judge.c */
void drill_judge(struct drill_run *run);
/*
 * Whether errors came in time in all n > 0 runs, by their p99 and without slack: what one run may
 * take for a machine's sake the lot of them may not. Sorts them.
 */
bool drill_judge_errors(const struct drill *drill, double *ms, int n, char *said, size_t len);
void drill_run_free(struct drill_run *run);
void drill_complain(struct drill_run *run, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* For the table. */
double drill_longest_stall_ms(const struct drill_run *run);
int drill_events(const struct drill_run *run, const char *kind);
uint64_t drill_sum(const struct drill_run *run, const char *member);
/* "local port down, told by the peer"; "-" for none. Returns buf. */
const char *drill_reasons(const struct drill_run *run, char *buf, size_t len);

/* When the first rank said that it got an error; 0: none did. */
uint64_t drill_error_ns(const struct drill_run *run);

/* result.c: what came of it, for programs. False after a message. */
bool drill_write_result(const struct drill_run *run, const char *path);

/* record.c: files in a folder that exists: timeline.txt, throughput.dat, faults.gp, rails.dat where
 * rails were sampled, and more. */
bool drill_record(const struct drill_run *run, const char *dir);

/* drills.c */
extern const struct drill drills[];
extern const int ndrills;

/* soak.c: random faults that always leave one path. The caller frees the text. */
char *drill_soak_script(double seconds, unsigned seed, int hosts, int rails);

/* From a signal handler: the drill ends as soon as it can. */
extern volatile sig_atomic_t drill_interrupted;

#endif
