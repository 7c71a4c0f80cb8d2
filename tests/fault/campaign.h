/* SPDX-License-Identifier: Apache-2.0 */
/* Many runs: every fault at every place, every second fault after a first, and walks by chance. */
#ifndef HA_TESTS_FAULT_CAMPAIGN_H
#define HA_TESTS_FAULT_CAMPAIGN_H

#include "tally.h"

/* Runs in which each of these was. */
struct campaign_worlds {
	uint64_t rings, apart, begun_anew, strangers, waits;
};

struct campaign {
	/* What to run. NULL and 0: everything. */
	const struct scenario *scenario;
	const struct fault *fault;
	const char *skip; /* faults whose names begin so; NULL: none */
	bool rc, e2e;
	bool no_failover;
	bool apart;
	bool unordered;
	bool failback, heal;
	uint64_t seed;
	uint64_t stride;      /* only every so many places; the seed says which */
	unsigned part, parts; /* of --single: the faults of one part of so many; 0 parts: all */
	uint64_t first_walk, walks, pairs;
	double seconds;		/* 0: no limit */
	unsigned give_up_after; /* wrong runs */
	bool trace;
	bool check_replay; /* every run twice: same events? */

	struct world world;
	struct tally *tally;
	struct campaign_worlds worlds;
	uint64_t wrong;
	double began;
};

/* One run of the campaign; prints what is wrong. */
void campaign_run(struct campaign *campaign, const struct run_spec *spec,
		  struct run_result *result);
/* One run that the campaign neither counts nor prints. */
void campaign_try(struct campaign *campaign, const struct run_spec *spec,
		  struct run_result *result);
/* Enough wrong ones, or time is up. */
bool campaign_over(const struct campaign *campaign);

void campaign_single(struct campaign *campaign);
void campaign_double(struct campaign *campaign);
void campaign_walks(struct campaign *campaign);
/* Of what campaign_double does, so many by chance. */
void campaign_pairs(struct campaign *campaign);

/* For signal handlers: the command of the run under way. */
extern char campaign_current[1024];

#endif
