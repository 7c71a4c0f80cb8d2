/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hints of an agent on this host: how much of each flow goes over the second rail. A thread of
 * this client registers flows with the agent, looks after its file, and notices when it is gone;
 * callers never wait for any of that. Health beats every hint, and no agent, a wrong one or a dead
 * one means HA_HINT_NONE: go by islands.
 */
#ifndef HA_HINTS_HINTS_H
#define HA_HINTS_HINTS_H

#include "base/agent_frame.h"
#include "hints/hint.h"

#include <stdbool.h>

struct ha_hints;

struct ha_hints_settings {
	const char *dir;   /* of the agent; of this host: it is opened by a thread that is joined */
	unsigned stale_ms; /* for so long after an agent was last there its hints are used */
	unsigned look_ms;  /* between two looks whether it and its file are there */
	unsigned step_ms;  /* the longest that an answer may take */
	unsigned pause_least_ms, pause_most_ms; /* before an agent that failed is asked again */
	/* Of the client's thread, whenever an agent is found, and when it was lost for stale_ms. */
	void (*agent_changed)(void *arg, bool found);
	void *arg;
};

#define HA_HINTS_DEFAULTS                                                                          \
	{                                                                                          \
		.dir = MPIB_AGENT_DIR, .stale_ms = 3000, .look_ms = 500, .step_ms = 100,           \
		.pause_least_ms = 1000, .pause_most_ms = 30000                                     \
	}

/* The settings are copied. NULL with a WARN: no memory, no thread, or no such directory possible.
 */
struct ha_hints *ha_hints_begin(const struct ha_hints_settings *settings);
/* After every flow has left. Waits for an exchange that is under way, and tells the agent of flows
 * that left: both together about two steps. */
void ha_hints_end(struct ha_hints *hints);

/*
 * A flow that is to get hints, from now until it leaves; they come when the agent has answered.
 * NULL: out of memory, or its first rail has no IPv4 address (0), which is one WARN. Any thread;
 * never waits for the agent.
 */
struct ha_hint *ha_hints_join(struct ha_hints *hints, const struct ha_agent_flow *flow);
/* After its last read. NULL is nothing. Any thread; never waits for the agent. */
void ha_hints_leave(struct ha_hints *hints, struct ha_hint *hint);

#endif
