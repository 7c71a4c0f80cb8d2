/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha failover and failback: what was asked for, and what came of it. */
#ifndef NH_MOVE_H
#define NH_MOVE_H

#include "tools/nccl-ha/ask.h"
#include "tools/nccl-ha/snapshot.h"

#include <jansson.h>

/* What came of a connection. */
enum nh_outcome {
	NH_OUTCOME_MOVED,
	NH_OUTCOME_ALREADY, /* it was where it should be */
	NH_OUTCOME_REFUSED, /* it stays; `why` says why */
	NH_OUTCOME_MOVING,  /* it was on its way when there was no more time */
	NH_OUTCOME_FAILED,  /* it had an error already, or was closing */
	NH_OUTCOME_GONE,    /* it was closed meanwhile */
	NH_OUTCOME_COUNT
};

struct nh_moved {
	struct nh_asked before; /* as the order found it */
	struct nh_place now;
	enum nh_outcome outcome;
	bool obeyed; /* of one connection: this end took the order, for both */
};

struct nh_moved_process {
	const struct nh_process *process;
	char error[256]; /* empty: it was asked */
	struct nh_moved *connections;
	size_t n;
};

struct nh_move {
	bool back; /* failback */
	bool force;
	const char *port, *connection; /* one of them; NULL, NULL: all */
	double waited_ms;
	struct nh_moved_process *processes;
	size_t nprocesses;
};

#endif
