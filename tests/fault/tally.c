/* SPDX-License-Identifier: Apache-2.0 */
#include "tally.h"

#include <stdlib.h>

struct tally {
	struct tally_cell *cells; /* by scenario, then by fault */
};

struct tally *tally_new(void)
{
	struct tally *tally = malloc(sizeof(*tally));

	if (tally)
		tally->cells = calloc(nscenarios * nfaults_named, sizeof(*tally->cells));
	if (!tally || !tally->cells)
		abort();
	return tally;
}

void tally_free(struct tally *tally)
{
	free(tally->cells);
	free(tally);
}

static struct tally_cell *cell_of(const struct tally *tally, unsigned scenario, unsigned fault)
{
	return &tally->cells[scenario * nfaults_named + fault];
}

/* A run with several faults counts for the one that came last. */
void tally_add(struct tally *tally, const struct run_spec *spec, const struct run_result *result)
{
	const struct fault *fault;
	struct tally_cell *cell;

	if (spec->nfaults == 0)
		return;
	fault = spec->faults[spec->nfaults - 1].fault;
	cell = cell_of(tally, (unsigned)(spec->world.scenario - scenarios),
		       (unsigned)(fault - faults));
	cell->wrong += result->end == RUN_WRONG;
	cell->fired += result->fired;
	cell->traces += result->traces;
	cell->unjudged += result->unjudged;
	cell->trace_steps += result->trace_steps;
	if (result->fired < spec->nfaults) {
		cell->unfired++;
		return;
	}
	cell->runs++;
	cell->delivered += result->end == RUN_DELIVERED;
	cell->errors += result->end == RUN_ERROR;
	cell->failovers += result->failovers;
	cell->replays += result->replays;
	cell->healed += result->healed;
	if (result->healed_ns > cell->longest_ns)
		cell->longest_ns = result->healed_ns;
}

static void add(struct tally_cell *sum, const struct tally_cell *cell)
{
	sum->runs += cell->runs;
	sum->unfired += cell->unfired;
	sum->fired += cell->fired;
	sum->delivered += cell->delivered;
	sum->errors += cell->errors;
	sum->wrong += cell->wrong;
	sum->failovers += cell->failovers;
	sum->replays += cell->replays;
	sum->healed += cell->healed;
	sum->traces += cell->traces;
	sum->unjudged += cell->unjudged;
	sum->trace_steps += cell->trace_steps;
	if (cell->longest_ns > sum->longest_ns)
		sum->longest_ns = cell->longest_ns;
}

static void print_cell(FILE *out, const char *scenario, const char *fault,
		       const struct tally_cell *cell)
{
	if (cell->runs == 0 && cell->unfired == 0)
		return;
	fprintf(out, "%-9s %-30s %8llu %8llu %8llu %8llu %6llu %9llu %9llu %8llu\n", scenario,
		fault, (unsigned long long)cell->runs, (unsigned long long)cell->fired,
		(unsigned long long)cell->delivered, (unsigned long long)cell->errors,
		(unsigned long long)cell->wrong, (unsigned long long)cell->failovers,
		(unsigned long long)cell->replays, (unsigned long long)cell->unfired);
}

struct tally_cell tally_total(const struct tally *tally)
{
	struct tally_cell sum = {0};

	for (unsigned s = 0; s < nscenarios; s++)
		for (unsigned f = 0; f < nfaults_named; f++)
			add(&sum, cell_of(tally, s, f));
	return sum;
}

void tally_print(const struct tally *tally, bool all, FILE *out)
{
	struct tally_cell total = tally_total(tally);

	fprintf(out, "%-9s %-30s %8s %8s %8s %8s %6s %9s %9s %8s\n", "scenario", "fault", "runs",
		"fired", "right", "errors", "wrong", "failovers", "replays", "unfired");
	for (unsigned s = 0; s < nscenarios; s++) {
		struct tally_cell sum = {0};

		for (unsigned f = 0; f < nfaults_named; f++) {
			if (all)
				print_cell(out, scenarios[s].name, faults[f].name,
					   cell_of(tally, s, f));
			add(&sum, cell_of(tally, s, f));
		}
		print_cell(out, scenarios[s].name, "all", &sum);
	}
	for (unsigned f = 0; f < nfaults_named; f++) {
		struct tally_cell sum = {0};

		for (unsigned s = 0; s < nscenarios; s++)
			add(&sum, cell_of(tally, s, f));
		print_cell(out, "all", faults[f].name, &sum);
	}
	print_cell(out, "all", "all", &total);
}
