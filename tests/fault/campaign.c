/* SPDX-License-Identifier: Apache-2.0 */
#include "campaign.h"
#include "../seeded_random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RUN_SECONDS	60 /* of real time: more is an endless loop */
#define WALK_FAULTS_MAX 6
#define CLOCKS_APART	4 /* one walk in so many */
#define FIRST_PLACES	3 /* of the first of two faults */

char campaign_current[1024];

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

bool campaign_over(const struct campaign *campaign)
{
	return campaign->wrong >= campaign->give_up_after ||
	       (campaign->seconds > 0 && campaign->began > 0 &&
		now_s() - campaign->began > campaign->seconds);
}

/* Takes the smaller run if it is wrong, too. */
static bool is_wrong_too(struct campaign *campaign, const struct run_spec *smaller,
			 struct run_spec *out)
{
	struct run_result result;

	run(&campaign->world, smaller, &result);
	if (result.end != RUN_WRONG)
		return false;
	*out = *smaller;
	return true;
}

/* Leaves out of a wrong run what it does not need: faults, then chance, then clocks that are apart.
 * False: nothing. */
static bool shrink(struct campaign *campaign, const struct run_spec *wrong, struct run_spec *out)
{
	bool smaller = false;

	*out = *wrong;
	for (unsigned i = out->nfaults; i-- > 0 && out->nfaults > 1;) {
		struct run_spec without = *out;

		without.nfaults--;
		for (unsigned k = i; k < without.nfaults; k++)
			without.faults[k] = without.faults[k + 1];
		smaller |= is_wrong_too(campaign, &without, out);
	}
	if (out->world.seed != 0) {
		struct run_spec without = *out;

		without.world.seed = 0;
		smaller |= is_wrong_too(campaign, &without, out);
	}
	if (out->world.apart) {
		struct run_spec without = *out;

		without.world.apart = false;
		smaller |= is_wrong_too(campaign, &without, out);
	}
	return smaller;
}

static void report_wrong(struct campaign *campaign, const struct run_spec *spec,
			 const struct run_result *result)
{
	struct run_spec smaller;
	char command[1024];

	campaign->wrong++;
	printf("WRONG: %s\n  %s\n", result->wrong, campaign_current);
	if (world_first_warning()[0] != '\0')
		printf("  first warning: %s\n", world_first_warning());
	if (!campaign->trace && shrink(campaign, spec, &smaller)) {
		struct run_result again;

		run(&campaign->world, &smaller, &again); /* for its log */
		printf("  smaller: %s\n  which is: %s\n",
		       run_command(&smaller, command, sizeof(command)), again.wrong);
	}
	if (campaign->wrong == 1 && !campaign->trace)
		printf("its log:\n%s\n", world_log());
	fflush(stdout);
}

void campaign_try(struct campaign *campaign, const struct run_spec *spec, struct run_result *result)
{
	run_command(spec, campaign_current, sizeof(campaign_current));
	alarm(RUN_SECONDS);
	run(&campaign->world, spec, result);
	alarm(0);
	campaign_current[0] = '\0'; /* a crash from now on is not this run's */
}

static void note_world(struct campaign_worlds *worlds, const struct run_spec *spec,
		       const struct run_result *result)
{
	bool begun_anew = false, strangers = false, waits = false;

	for (unsigned i = 0; i < result->fired; i++) {
		const struct fault *fault = spec->faults[i].fault;

		begun_anew |= fault->act == ACT_RESTART;
		strangers |= fault->act == ACT_STRANGER;
		waits |= fault->lasts_ns != 0;
	}
	worlds->rings += spec->world.scenario->hosts > 2;
	worlds->apart += spec->world.apart;
	worlds->begun_anew += begun_anew;
	worlds->strangers += strangers;
	worlds->waits += waits;
}

void campaign_run(struct campaign *campaign, const struct run_spec *spec, struct run_result *result)
{
	run_command(spec, campaign_current, sizeof(campaign_current));
	if (campaign->began == 0)
		campaign->began = now_s();
	alarm(RUN_SECONDS);
	run(&campaign->world, spec, result);
	if (campaign->check_replay && result->end != RUN_WRONG) {
		uint64_t digest = result->digest;

		run(&campaign->world, spec, result);
		if (result->digest != digest && result->end != RUN_WRONG) {
			result->end = RUN_WRONG;
			strcpy(result->wrong, "the same run had other events the second time");
		}
	}
	alarm(0);
	tally_add(campaign->tally, spec, result);
	note_world(&campaign->worlds, spec, result);
	if (result->end == RUN_WRONG)
		report_wrong(campaign, spec, result);
	campaign_current[0] = '\0';
}

static bool wanted(const struct campaign *campaign, const struct scenario *scenario, bool e2e)
{
	return (campaign->scenario ? campaign->scenario == scenario : !scenario->for_walks) &&
	       (e2e ? campaign->e2e : campaign->rc);
}

static struct run_spec spec_of(const struct campaign *campaign, const struct scenario *scenario,
			       bool e2e)
{
	return (struct run_spec){.world = {.scenario = scenario,
					   .e2e = e2e,
					   .no_failover = campaign->no_failover,
					   .failback = campaign->failback,
					   .unordered = campaign->unordered,
					   .apart = campaign->apart,
					   .seed = campaign->seed,
					   .trace = campaign->trace},
				 .heal = campaign->heal};
}

/*
 * The last fault of `spec` at every place: at each of `steps` steps, or as often as there is
 * something that it fits.
 */
static void at_every_place(struct campaign *campaign, struct run_spec *spec, uint64_t steps)
{
	unsigned last = spec->nfaults - 1;
	const struct fault *fault = spec->faults[last].fault;
	uint64_t stride = campaign->stride * (fault->frequent ? 16 : 1);
	uint64_t offset =
	    stride > 1 ? mix(campaign->seed + (uintptr_t)(fault - faults)) % campaign->stride : 0;

	for (uint64_t at = offset; !campaign_over(campaign); at += stride) {
		struct run_result result;

		if (fault_at_step(fault) && at >= steps)
			break;
		spec->faults[last].at = at;
		campaign_run(campaign, spec, &result);
		if (!fault_at_step(fault) && result.fired < spec->nfaults)
			break;
	}
}

/* How many steps there are after the faults of `spec`. */
static uint64_t steps_after(struct campaign *campaign, const struct run_spec *spec,
			    struct run_result *result)
{
	campaign_run(campaign, spec, result);
	return result->steps + 1;
}

static bool starts(const char *name, const char *with)
{
	return strncmp(name, with, strlen(with)) == 0;
}

static bool fits(const struct campaign *campaign, const struct fault *fault,
		 const struct scenario *scenario)
{
	if (campaign->skip && starts(fault->name, campaign->skip))
		return false;
	/* Without a standby there is none to fail. */
	if (starts(fault->name, "standby"))
		return scenario->rails > 1;
	/* Without failover nobody looks for a queue that is silent for ever. */
	return !campaign->no_failover || !starts(fault->name, "wedge");
}

static bool is_wanted(const struct campaign *campaign, unsigned fault)
{
	return campaign->fault ? campaign->fault == &faults[fault] : fault < nfaults;
}

static bool in_part(const struct campaign *campaign, unsigned fault)
{
	/* By twos: a fault at one end and the same at the other are neighbours. */
	return campaign->parts == 0 || fault / 2 % campaign->parts == campaign->part;
}

static void single_scenario(struct campaign *campaign, const struct scenario *scenario, bool e2e)
{
	struct run_spec spec = spec_of(campaign, scenario, e2e);
	struct run_result result;
	uint64_t steps = steps_after(campaign, &spec, &result);

	spec.nfaults = 1;
	for (unsigned f = 0; f < nfaults_named && !campaign_over(campaign); f++) {
		if (!is_wanted(campaign, f) || !in_part(campaign, f) ||
		    !fits(campaign, &faults[f], scenario))
			continue;
		spec.faults[0].fault = &faults[f];
		at_every_place(campaign, &spec, steps);
	}
}

void campaign_single(struct campaign *campaign)
{
	for (unsigned s = 0; s < nscenarios; s++)
		for (int e2e = 0; e2e < 2; e2e++)
			if (wanted(campaign, &scenarios[s], e2e))
				single_scenario(campaign, &scenarios[s], e2e);
}

/* Every second fault at every place after this first one. */
static void double_after(struct campaign *campaign, struct run_spec *spec)
{
	struct run_result result;
	uint64_t steps;

	spec->nfaults = 1;
	steps = steps_after(campaign, spec, &result);
	if (result.fired == 0)
		return;
	spec->nfaults = 2;
	for (unsigned f = 0; f < nfaults_named && !campaign_over(campaign); f++) {
		if (!is_wanted(campaign, f) || !fits(campaign, &faults[f], spec->world.scenario))
			continue;
		spec->faults[1].fault = &faults[f];
		at_every_place(campaign, spec, steps);
	}
}

static void double_scenario(struct campaign *campaign, const struct scenario *scenario, bool e2e)
{
	struct run_spec spec = spec_of(campaign, scenario, e2e);
	struct run_result result;
	uint64_t steps = steps_after(campaign, &spec, &result);

	for (unsigned f = 0; f < nfaults; f++) {
		if (!faults[f].first || !fits(campaign, &faults[f], scenario))
			continue;
		for (unsigned place = 0; place < FIRST_PLACES && !campaign_over(campaign);
		     place++) {
			spec.faults[0].fault = &faults[f];
			spec.faults[0].at = fault_at_step(&faults[f])
						? steps * (place + 1) / (FIRST_PLACES + 2)
						: place * 4;
			double_after(campaign, &spec);
		}
	}
}

void campaign_double(struct campaign *campaign)
{
	for (unsigned s = 0; s < nscenarios; s++)
		for (int e2e = 0; e2e < 2; e2e++)
			if (wanted(campaign, &scenarios[s], e2e))
				double_scenario(campaign, &scenarios[s], e2e);
}

/* ---- walks ----------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *chance, uint64_t below)
{
	*chance = mix(*chance);
	return *chance % below;
}

/* One of the first `many`. */
static const struct fault *draw_fault(const struct campaign *campaign,
				      const struct scenario *scenario, unsigned many, bool first,
				      uint64_t *chance)
{
	const struct fault *fault;

	do
		fault = &faults[draw(chance, many)];
	while (!fits(campaign, fault, scenario) || (first && !fault->first));
	return fault;
}

/* What has nothing to meet but behind another one, and ends a walk where it meets nothing. */
static unsigned drawn_at(const struct run_spec *spec, unsigned place)
{
	return place > 0 && place == spec->nfaults - 1 ? nfaults_named : nfaults_walked;
}

/*
 * Where a NIC does not confirm that its queue pairs have stopped, the protocol relies on the peer's
 * fence and on no packet being held for longer than its lifetime (docs/protocol.md). Both at once
 * is more than it promises to survive.
 */
static bool is_promised(const struct run_spec *spec)
{
	bool goes_on = false, held = false;

	for (unsigned i = 0; i < spec->nfaults; i++) {
		const struct fault *fault = spec->faults[i].fault;

		held |= starts(fault->name, "late-far");
		goes_on |= fault->rule &&
			   (starts(fault->rule, "disassociate") || starts(fault->rule, "feign"));
	}
	return !(goes_on && held);
}

/* The run of this number: everything about it is drawn from it. */
static struct run_spec draw_run(const struct campaign *campaign, uint64_t number, uint64_t *chance)
{
	const struct scenario *scenario = campaign->scenario;

	*chance = mix(campaign->seed << 32 ^ number);
	while (!scenario || (!campaign->scenario && campaign->pairs != 0 && scenario->for_walks))
		scenario = &scenarios[draw(chance, nscenarios)];
	return spec_of(campaign, scenario, !campaign->rc || (campaign->e2e && draw(chance, 2)));
}

static void walk(struct campaign *campaign, uint64_t number)
{
	uint64_t chance;
	struct run_spec spec = draw_run(campaign, number, &chance);
	struct run_result result;

	spec.world.seed = 1 + draw(&chance, 1u << 30);
	spec.nfaults = 1 + (unsigned)draw(&chance, WALK_FAULTS_MAX);
	for (unsigned i = 0; i < spec.nfaults; i++) {
		spec.faults[i].fault =
		    draw_fault(campaign, spec.world.scenario, drawn_at(&spec, i), false, &chance);
		spec.faults[i].at = draw(&chance, fault_at_step(spec.faults[i].fault) ? 150 : 12);
	}
	while (!is_promised(&spec))
		spec.nfaults--;
	spec.world.apart |= draw(&chance, CLOCKS_APART) == 0;
	campaign_run(campaign, &spec, &result);
}

void campaign_walks(struct campaign *campaign)
{
	for (uint64_t i = 0; i < campaign->walks && !campaign_over(campaign); i++)
		walk(campaign, campaign->first_walk + i);
}

static void pair(struct campaign *campaign, uint64_t number)
{
	uint64_t chance;
	struct run_spec spec = draw_run(campaign, number, &chance);
	struct run_result result;

	spec.nfaults = 2;
	for (unsigned i = 0; i < 2; i++) {
		spec.faults[i].fault =
		    draw_fault(campaign, spec.world.scenario, nfaults, i == 0, &chance);
		spec.faults[i].at = draw(&chance, fault_at_step(spec.faults[i].fault) ? 40 : 6);
	}
	while (!is_promised(&spec))
		spec.nfaults--;
	campaign_run(campaign, &spec, &result);
}

void campaign_pairs(struct campaign *campaign)
{
	for (uint64_t i = 0; i < campaign->pairs && !campaign_over(campaign); i++)
		pair(campaign, campaign->first_walk + i);
}
