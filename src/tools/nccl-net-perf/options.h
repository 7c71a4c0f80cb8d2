/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of nccl-net-perf, parsed and checked. */
#ifndef NP_OPTIONS_H
#define NP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/nccl-net-perf/settings.h"

/* Exit statuses; the man page lists them. */
enum np_exit {
	NP_EXIT_OK = 0,
	NP_EXIT_WRONG = 1,   /* wrong data, or a fault rule that never fired */
	NP_EXIT_USAGE = 2,   /* bad command line, plugin or fabric not found */
	NP_EXIT_ERROR = 3,   /* the plugin or the system reported an error */
	NP_EXIT_TIMEOUT = 4, /* nothing moved for --timeout seconds */
	NP_EXIT_LATE = 5,    /* --canary: memory was written that awaited nothing */
};

enum np_op { NP_ALLREDUCE, NP_SENDRECV, NP_ALLTOALL, NP_GROUPED, NP_PINGPONG, NP_OP_COUNT };
/* What an all-reduce goes through. */
enum np_via { NP_RING, NP_COLLNET, NP_INCCL, NP_VIA_COUNT };
enum np_type { NP_INT8, NP_INT32, NP_FLOAT, NP_TYPE_COUNT };

#define NP_MAX_SIDES  2
#define NP_MAX_NAP_US 100000
#define NP_MAX_DEPTH  32 /* the contract's limit of outstanding requests */
#define NP_MAX_RANKS  1024
#define NP_MAX_ROUNDS 1001

/* Written by np_parse_options and by the launcher's detection; read-only afterwards. */
struct np_options {
	/* what is driven */
	const char *plugin[NP_MAX_SIDES];     /* [1]: the plugin to compare with, or NULL */
	struct np_settings env[NP_MAX_SIDES]; /* of each */
	enum np_via via[NP_MAX_SIDES];
	int api; /* 0: newest */
	enum np_op ops[NP_OP_COUNT];
	int nops;
	size_t *sizes;
	int nsizes;
	enum np_type type;

	/* how often */
	int iterations;
	int warmup;
	int checks;
	double seconds; /* > 0: run each size this long instead of `iterations` times */
	int rounds;	/* with a second plugin: blocks of each */
	int cycles;	/* connect, run, close: so many times */

	/* the shape of the traffic */
	int channels;
	int depth;
	int group; /* 0: the plugin's maxRecvs */
	int dev;   /* -1: round robin by channel */
	size_t chunk;
	bool parallel_connect;
	bool flush;
	bool canary;	  /* watch memory that waits for nothing */
	double linger_ms; /* ... and so long at the end, without traffic */
	double pause_ms;  /* after each iteration */
	int nap_us;	  /* where nothing moved; 0: the processor is yielded */
	bool churn;	  /* register and deregister while traffic runs */

	/* limits and reports */
	double timeout_s;
	double stall_ms;
	double timeline_ms;
	const char *json;

	/* ranks and where they run */
	int nranks;
	bool ranks_given;
	int rank; /* -1: this process launches them */
	const char *root;
	int hosts; /* of --simverbs HxR; 0: none */
	int rails;
	const char *fabric; /* --fabric NAME, or the name of our own fabric */
	const char **faults;
	int nfaults;
};

extern const char *const np_op_names[NP_OP_COUNT];
extern const char *const np_via_names[NP_VIA_COUNT];
extern const char *const np_type_names[NP_TYPE_COUNT];
extern const size_t np_type_sizes[NP_TYPE_COUNT];

/* Exits with NP_EXIT_USAGE and a message when the command line is wrong. */
void np_parse_options(struct np_options *o, int argc, char **argv);
void np_free_options(struct np_options *o);

/* "64M" → 67108864. False unless the whole text is a size. */
bool np_parse_size(const char *text, size_t *size);

#endif
