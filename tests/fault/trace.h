/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both ends of a connection did, step by step, as the table of steps sees it
 * (tests/model/steps.h): the trace of a run. Steps are seen from outside, where one file of the
 * plugin calls another one (trace_hooks.c), so that nothing of this is in what is shipped, and an
 * explorer of any build has it.
 */
#ifndef HA_TESTS_FAULT_TRACE_H
#define HA_TESTS_FAULT_TRACE_H

#include "../model/steps.h"

struct ha_comm;

/* More than any run has. What does not fit is not judged, and is counted. */
#define TRACE_EVENTS_MAX 200000u
#define TRACE_MAX	 16 /* connections of a run */

enum trace_what {
	TRACE_BEGINS,  /* the end as it is when its connection is there */
	TRACE_STEP,    /* it has changed */
	TRACE_HEARS,   /* a message, whose steps follow */
	TRACE_THROUGH, /* ... and are over */
	TRACE_SAYS,
	TRACE_ENDS
};

struct trace_event {
	uint8_t what; /* enum trace_what */
	uint8_t end;  /* enum step_end */
	uint8_t on;   /* enum step_on: of a STEP */
	uint8_t refuses;
	uint32_t serial; /* of a message: how many its end had said */
	uint64_t ns;
	union {
		struct step_view is;   /* BEGINS, STEP */
		struct step_message m; /* HEARS, SAYS, THROUGH */
	};
};

/* Of one connection, both ends in the order in which things happened. */
struct trace {
	uint64_t number;
	struct trace_event *events;
	unsigned n, room;
	bool unjudged; /* a bundle, whose rails are lost and mended by rules that the table does not
			  have */
	bool cut;      /* there were too many events */
};

/* From now on steps are noted, of the connections that begin from now on; and printed. */
void trace_begin(bool print);
/* From now on none are. */
void trace_stop(void);

/* Those since trace_begin, until the next one. */
unsigned trace_count(void);
const struct trace *trace_of(unsigned index);

/* For who notes them: the trace of this connection, begun if there is none. NULL: none is kept. */
struct trace *trace_find(uint64_t number);
/* NULL: no more of them are kept. */
struct trace_event *trace_note(struct trace *trace, enum trace_what what, unsigned end);
/* The event is complete: printed, if they are. */
void trace_noted(const struct trace_event *event);

/* One line, "receiver FAILED: ACTIVE to FENCING, ...". */
const char *trace_text(const struct trace_event *event, char *out, size_t size);

#endif
