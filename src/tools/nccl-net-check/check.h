/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rule has at hand: the plugin, its verdict, its partner process.
 *
 * A rule is a function that runs in one process (RULE_LOCAL: it holds both ends of its connections)
 * or in two at once (RULE_PAIR: rank 0 sends, rank 1 receives). The processes are forked for this
 * rule alone, so a plugin that crashes or hangs costs one rule and not the run. A rule that
 * returns has passed; check_fail and check_skip do not return. Nobody cleans up after a verdict:
 * the processes end.
 */
#ifndef CHECK_H
#define CHECK_H

#include "tools/common/collcalls.h"
#include "tools/common/netcalls.h"
#include "tools/common/netplugin.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECK_SENDER   0
#define CHECK_RECEIVER 1
#define CHECK_RANKS    2

/* How long the two ends may take over one step before the rule calls it lost. */
#define CHECK_STEP_MS 5000

enum check_outcome { CHECK_NONE, CHECK_PASS, CHECK_FAIL, CHECK_SKIP };

#define CHECK_MAX_EACH 16

/* An environment variable of each rank's own. */
struct check_each {
	char name[64];
	char value[CHECK_RANKS][128];
};

/* What the command line asks of the rules. */
struct check_options {
	const char *plugin;
	int dev;	    /* device under test where a rule needs only one */
	int cycles;	    /* of rule leaks */
	int limit_s;	    /* of every rule instead of its own; 0: its own */
	bool quick;	    /* leave out what moves gigabytes */
	int time_scale;	    /* all limits times this: sanitizers, slow machines */
	const char *fabric; /* simverbs fabric, or NULL */
	struct check_each each[CHECK_MAX_EACH];
	int neach;
	struct {
		int host;
		char sysfs[512];
	} place[CHECK_RANKS]; /* of each rank on the fabric */
};

/*
 * Shared between the supervisor and the ranks of one rule. `outcome` is claimed once, by whoever
 * is first; the claimant then writes text. A rank writes its own trace.
 */
struct check_report {
	_Atomic int outcome;
	_Atomic bool text_ready;
	char text[512];
	char note[256]; /* said with a PASS; rank 0 or 1, whoever has something to say */
	struct {
		_Atomic(const char *) call; /* string literal; NULL while in no call */
		_Atomic uint64_t since_ns;
		_Atomic bool dies_on_purpose;
	} rank[CHECK_RANKS];
};

struct check {
	const struct check_options *opt;
	struct check_report *report;
	int rank;    /* CHECK_SENDER or CHECK_RECEIVER; 0 in a local rule */
	int peer_fd; /* stream socket to the other rank, -1 in a local rule */
	int api;     /* the version under test: of the net's table, or of the collNet's */
	struct np_plugin *plugin;
	struct np_ctx ctx;
	int ndev;
	ncclNetProperties_v12_t props; /* of opt->dev; not set for RULE_RAW */
	bool is_coll;		       /* a rule of the collNet; only then what follows is set */
	struct np_coll coll;
	void *coll_ctx;
	int coll_ndev;
};

enum rule_kind { RULE_LOCAL, RULE_PAIR };

#define RULE_RAW    0x1	 /* the rule loads and inits the plugin itself */
#define RULE_SLOW   0x2	 /* moves gigabytes: left out by --quick */
#define RULE_GATE   0x8	 /* without it no other rule can be tried */
#define RULE_CYCLES 0x4	 /* takes as long as --cycles says */
#define RULE_COLL   0x10 /* about the collNet; the net has its newest version beside it */

struct rule {
	const char *name;
	const char *meaning;   /* one line: what the contract says */
	const char *otherwise; /* what NCCL does with a plugin that breaks it */
	int since, until;      /* API versions it applies to; until 0: no end */
	enum rule_kind kind;
	unsigned flags;
	int limit_s; /* 0: the default */
	void (*run)(struct check *t);
};

/* What is checked together; rules run in this order. */
struct rule_set {
	const struct rule *rules;
	size_t count;
};

extern const struct rule_set check_net_rules, check_coll_rules;

/* ---- verdicts ----------------------------------------------------------------------------- */

_Noreturn void check_fail(struct check *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
_Noreturn void check_skip(struct check *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Said beside PASS. */
void check_note(struct check *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- time --------------------------------------------------------------------------------- */

uint64_t check_now_ns(void);
/* Both apply opt->time_scale. */
uint64_t check_deadline(const struct check *t, int ms);
/* Gives the processor away; fails the rule with `what` when the deadline has passed. */
void check_poll(struct check *t, uint64_t deadline_ns, const char *what);
void check_sleep_ms(int ms);

/* ---- calling the plugin ------------------------------------------------------------------- */

void check_enter(struct check *t, const char *call);
ncclResult_t check_leave(struct check *t, ncclResult_t result);
void check_success(struct check *t, const char *call, ncclResult_t result);

/* CALL(t, isend, comm, ...) is np_isend(plugin, comm, ...) with a trace of where the rank is. */
#define CALL(t, fn, ...)                                                                           \
	(check_enter((t), #fn), check_leave((t), np_##fn((t)->plugin, ##__VA_ARGS__)))
/* The same where anything but success breaks the rule. */
#define MUST(t, fn, ...) check_success((t), #fn, CALL(t, fn, ##__VA_ARGS__))

/* The same of the collNet: COLL(t, iallreduce, comm, ...). */
#define COLL(t, fn, ...)                                                                           \
	(check_enter((t), #fn), check_leave((t), np_coll_##fn(&(t)->coll, ##__VA_ARGS__)))
#define MUST_COLL(t, fn, ...) check_success((t), #fn, COLL(t, fn, ##__VA_ARGS__))

/* Loads and inits, the net and then, for its rules, the collNet: what the supervisor does before a
 * rule that is not RULE_RAW. */
void check_load(struct check *t);
void check_init(struct check *t);

/* ---- the other rank ----------------------------------------------------------------------- */

void check_tell(struct check *t, const void *data, size_t size);
void check_hear(struct check *t, void *data, size_t size);
/* Both ranks have come here. */
void check_barrier(struct check *t);
/* A barrier, and whether any rank says so: both go on, or neither. */
bool check_either(struct check *t, bool mine);
/*
 * The end of a rank that has passed: waits for the other, which may have died on purpose. A process
 * that ended earlier would be a dead peer to one whose last acknowledgement was lost.
 */
void check_part(struct check *t);
/* The rest of this rank's life is expected to end by a signal. */
_Noreturn void check_die(struct check *t);

#endif
