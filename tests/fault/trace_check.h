/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the model allows a trace: each step is a row of the table (tests/model/steps.h), what an
 * end says is true of it, what it hears its peer has said, and what it owes to a message is done
 * when it is through with it. A pure function.
 */
#ifndef HA_TESTS_FAULT_TRACE_CHECK_H
#define HA_TESTS_FAULT_TRACE_CHECK_H

#include "trace.h"

struct trace_verdict {
	bool accepted;
	unsigned steps; /* that were judged, up to the one that is refused */
	unsigned at;	/* the event that is refused */
	char why[1024]; /* empty: it is accepted */
};

void trace_check(const struct trace *trace, struct trace_verdict *out);

#endif
