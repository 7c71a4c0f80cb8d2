/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a scenario, a few faults one after the other, and the verdict. */
#ifndef HA_TESTS_FAULT_RUN_H
#define HA_TESTS_FAULT_RUN_H

#include "fault.h"
#include "world.h"

#define RUN_FAULTS 12

struct run_spec {
	struct world_options world;
	bool heal; /* then nothing fails any more, and everything has to come back */
	unsigned nfaults;
	/* The first counts from the moment the scenario says, each other one from the moment at
	 * which the one before fired. */
	struct {
		const struct fault *fault;
		uint64_t at;
	} faults[RUN_FAULTS];
};

enum run_end {
	RUN_DELIVERED, /* every byte, once */
	RUN_ERROR,     /* a clean latched error, where that is right */
	RUN_WRONG,     /* anything else */
};

struct run_result {
	enum run_end end;
	unsigned fired; /* faults that did, in order */
	uint64_t steps; /* from the last fault's firing (or the first's arming) to the end */
	ha_result_t error;
	uint64_t failovers, replays;
	bool healed;	    /* there was something to heal, and it did */
	uint64_t healed_ns; /* how long that took */
	uint64_t digest;    /* of the whole run */
	unsigned traces;    /* of connections, accepted: the model allows all that they did */
	unsigned unjudged;  /* traces that it has no rules for */
	uint64_t trace_steps;
	char wrong[1024];
};

void run(struct world *world, const struct run_spec *spec, struct run_result *result);

/* The command that repeats it. */
const char *run_command(const struct run_spec *spec, char *out, size_t size);

#endif
