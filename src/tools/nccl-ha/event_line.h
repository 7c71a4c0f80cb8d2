/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the event log: whether it is wanted, and how it reads. docs/operations.md has the
 * members. */
#ifndef NH_EVENT_LINE_H
#define NH_EVENT_LINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define NH_SINCE_MAX 32

struct nh_event_filter {
	unsigned int kinds;	/* a bit each; 0: all */
	const char *connection; /* the beginning of its number, or a part of its name; NULL: any */
	const char *reason;	/* a part of it; NULL: any */
	int rank;		/* -1: any */
	char since[NH_SINCE_MAX]; /* as in the log, or the beginning of such; empty: ever */
};

#define NH_EVENT_FILTER_NONE ((struct nh_event_filter){.rank = -1})

/* Adds "failure,switch" to the filter. NULL, or what is wrong with it. */
const char *nh_event_filter_kinds(struct nh_event_filter *filter, const char *names);
/* "2026-11-22T06", "90s", "10m", "2h", "3d". NULL, or what is wrong with it. */
const char *nh_event_filter_since(struct nh_event_filter *filter, const char *text);

bool nh_event_wanted(const struct nh_event_filter *filter, const json_t *event);

void nh_event_print_heads(FILE *to);
void nh_event_print(const json_t *event, FILE *to);

#endif
