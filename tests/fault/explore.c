/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explores what faults do: scenario × fault × every place it can come. Every run is judged, the
 * runs are counted, and what is wrong is printed with the command that repeats it.
 */
#include "base/clock.h"
#include "campaign.h"
#include "pinned.h"

#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	OPT_AT = 0x100,
	OPT_E2E,
	OPT_RC,
	OPT_SINGLE,
	OPT_DOUBLE,
	OPT_WALKS,
	OPT_FIRST_WALK,
	OPT_SECONDS,
	OPT_MINUTES,
	OPT_STRIDE,
	OPT_NO_FAILOVER,
	OPT_UNORDERED,
	OPT_APART,
	OPT_FAILBACK,
	OPT_HEAL,
	OPT_CHECK_REPLAY,
	OPT_TABLE,
	OPT_AT_LEAST,
	OPT_GIVE_UP,
	OPT_LIST,
	OPT_SKIP,
	OPT_PAIRS,
	OPT_PART,
	OPT_PINNED,
};

static const struct argp_option options[] = {
    {"scenario", 's', "NAME", 0, "only this scenario", 0},
    {"fault", 'f', "NAME", 0,
     "only this fault; with --at one run, and then once more for each further fault of it", 0},
    {"at", OPT_AT, "N", 0, "where the fault before it comes", 0},
    {"seed", 'S', "N", 0, "0: no chance at all; else turns are missed and packets jitter", 0},
    {"e2e", OPT_E2E, NULL, 0, "only HA_NCCL_COMPLETION=e2e", 0},
    {"rc", OPT_RC, NULL, 0, "only HA_NCCL_COMPLETION=rc", 0},
    {"trace", 't', NULL, 0, "print every event and the log", 0},
    {"single", OPT_SINGLE, NULL, 0, "every fault at every place", 1},
    {"double", OPT_DOUBLE, NULL, 0, "every second fault at every place after a first one", 1},
    {"walks", OPT_WALKS, "N", 0, "so many runs with up to six faults by chance", 1},
    {"part", OPT_PART, "I/N", 0, "of --single: the I-th of N parts", 1},
    {"pairs", OPT_PAIRS, "N", 0, "so many of what --double does, by chance", 1},
    {"first-walk", OPT_FIRST_WALK, "N", 0, "number of the first of either", 1},
    {"skip", OPT_SKIP, "NAME", 0, "leave out the faults whose names begin so", 1},
    {"stride", OPT_STRIDE, "K", 0, "only every K-th place", 1},
    {"seconds", OPT_SECONDS, "T", 0, "stop after this time", 1},
    {"minutes", OPT_MINUTES, "T", 0, "stop after this time", 1},
    {"no-failover", OPT_NO_FAILOVER, NULL, 0, "HA_NCCL_ENABLE_BACKUP=0", 1},
    {"unordered", OPT_UNORDERED, NULL, 0, "devices place plain WRITEs in any order", 1},
    {"apart", OPT_APART, NULL, 0, "the hosts' clocks are apart, and some go faster", 1},
    {"failback", OPT_FAILBACK, NULL, 0, "HA_NCCL_ENABLE_FAILBACK=1", 1},
    {"heal", OPT_HEAL, NULL, 0, "then nothing fails any more, and everything has to come back", 1},
    {"check-replay", OPT_CHECK_REPLAY, NULL, 0, "do every run twice and compare the events", 1},
    {"at-least", OPT_AT_LEAST, "N", 0, "fail if fewer faults have fired", 1},
    {"give-up-after", OPT_GIVE_UP, "N", 0, "stop after so many wrong runs (10)", 1},
    {"pinned", OPT_PINNED, "FILE", 0,
     "only the runs that FILE pins: wrong ones must be so, and mended ones right", 1},
    {"table", OPT_TABLE, NULL, 0, "print a line for each scenario and fault", 2},
    {"list", OPT_LIST, NULL, 0, "list scenarios and faults", 2},
    {0},
};

struct arguments {
	struct campaign *campaign;
	struct run_spec replay;
	bool single, doubled, table, list;
	const char *pinned; /* a file; NULL: none */
	uint64_t at_least;
};

static uint64_t number(const char *text, struct argp_state *state)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 0);

	if (end == text || *end != '\0')
		argp_error(state, "\"%s\" is not a number", text);
	return value;
}

static void add_fault(struct arguments *args, const char *name, struct argp_state *state)
{
	const struct fault *fault = fault_find(name);

	if (!fault)
		argp_error(state, "no fault is called \"%s\" (--list)", name);
	if (args->replay.nfaults == RUN_FAULTS)
		argp_error(state, "at most %d faults", RUN_FAULTS);
	args->campaign->fault = fault;
	args->replay.faults[args->replay.nfaults++].fault = fault;
	args->replay.faults[args->replay.nfaults - 1].at = UINT64_MAX;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *args = state->input;
	struct campaign *campaign = args->campaign;

	switch (key) {
	case 's':
		campaign->scenario = scenario_find(arg);
		if (!campaign->scenario)
			argp_error(state, "no scenario is called \"%s\" (--list)", arg);
		break;
	case 'f':
		add_fault(args, arg, state);
		break;
	case OPT_AT:
		if (args->replay.nfaults == 0)
			argp_error(state, "--at comes after --fault");
		args->replay.faults[args->replay.nfaults - 1].at = number(arg, state);
		break;
	case 'S':
		campaign->seed = number(arg, state);
		break;
	case OPT_E2E:
		campaign->rc = false;
		break;
	case OPT_RC:
		campaign->e2e = false;
		break;
	case 't':
		campaign->trace = true;
		break;
	case OPT_SINGLE:
		args->single = true;
		break;
	case OPT_DOUBLE:
		args->doubled = true;
		break;
	case OPT_SKIP:
		campaign->skip = arg;
		break;
	case OPT_WALKS:
		campaign->walks = number(arg, state);
		break;
	case OPT_PART:
		if (sscanf(arg, "%u/%u", &campaign->part, &campaign->parts) != 2 ||
		    campaign->part == 0 || campaign->part > campaign->parts)
			argp_error(state, "\"%s\" is not a part such as 1/2", arg);
		campaign->part--;
		break;
	case OPT_PAIRS:
		campaign->pairs = number(arg, state);
		break;
	case OPT_FIRST_WALK:
		campaign->first_walk = number(arg, state);
		break;
	case OPT_STRIDE:
		campaign->stride = number(arg, state);
		if (campaign->stride == 0)
			argp_error(state, "a stride of 0 goes nowhere");
		break;
	case OPT_SECONDS:
		campaign->seconds = (double)number(arg, state);
		break;
	case OPT_MINUTES:
		campaign->seconds = 60 * (double)number(arg, state);
		break;
	case OPT_NO_FAILOVER:
		campaign->no_failover = true;
		break;
	case OPT_UNORDERED:
		campaign->unordered = true;
		break;
	case OPT_APART:
		campaign->apart = true;
		break;
	case OPT_FAILBACK:
		campaign->failback = true;
		break;
	case OPT_HEAL:
		campaign->heal = true;
		break;
	case OPT_CHECK_REPLAY:
		campaign->check_replay = true;
		break;
	case OPT_AT_LEAST:
		args->at_least = number(arg, state);
		break;
	case OPT_GIVE_UP:
		campaign->give_up_after = (unsigned)number(arg, state);
		break;
	case OPT_PINNED:
		args->pinned = arg;
		break;
	case OPT_TABLE:
		args->table = true;
		break;
	case OPT_LIST:
		args->list = true;
		break;
	default:
		return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

static void list(void)
{
	for (unsigned i = 0; i < nscenarios; i++)
		printf("scenario %-9s %s\n", scenarios[i].name, scenarios[i].about);
	for (unsigned i = 0; i < nfaults_named; i++)
		printf("fault    %s\n", faults[i].name);
}

/* Says which run it was that ended us. Async-signal-safe. */
static void crashed(int signal_number)
{
	static const char alarmed[] = "\nexplore: a run takes for ever:\n  ";
	static const char died[] = "\nexplore: crashed in\n  ";
	ssize_t ignored = signal_number == SIGALRM
			      ? write(STDERR_FILENO, alarmed, sizeof(alarmed) - 1)
			      : write(STDERR_FILENO, died, sizeof(died) - 1);

	ignored = write(STDERR_FILENO, campaign_current, strlen(campaign_current));
	ignored = write(STDERR_FILENO, "\n", 1);
	(void)ignored;
	signal(signal_number, SIG_DFL);
	raise(signal_number);
}

/* The sanitizers call this before they end the program. */
void __asan_on_error(void);
void __asan_on_error(void)
{
	fprintf(stderr, "\nexplore: in\n  %s\n", campaign_current);
}

static int replay(struct campaign *campaign, struct run_spec *spec)
{
	struct run_result result;

	spec->heal = campaign->heal;
	spec->world = (struct world_options){.scenario = campaign->scenario,
					     .e2e = !campaign->rc,
					     .no_failover = campaign->no_failover,
					     .failback = campaign->failback,
					     .unordered = campaign->unordered,
					     .apart = campaign->apart,
					     .seed = campaign->seed,
					     .trace = campaign->trace};
	campaign_run(campaign, spec, &result);
	printf("%s; %u of %u faults fired, %llu steps after the last, error %d, %llu failovers, "
	       "%llu replays, %u traces accepted, digest %016llx\n",
	       result.end == RUN_DELIVERED ? "right"
	       : result.end == RUN_ERROR   ? "a clean error"
					   : "WRONG",
	       result.fired, spec->nfaults, (unsigned long long)result.steps, result.error,
	       (unsigned long long)result.failovers, (unsigned long long)result.replays,
	       result.traces, (unsigned long long)result.digest);
	return result.end == RUN_WRONG;
}

static bool is_replay(const struct arguments *args)
{
	if (!args->campaign->scenario || args->single || args->doubled || args->campaign->walks ||
	    args->campaign->pairs)
		return false;
	for (unsigned i = 0; i < args->replay.nfaults; i++)
		if (args->replay.faults[i].at == UINT64_MAX)
			return false;
	return true;
}

static const char *play_pinned(void *arg, const struct run_spec *spec, struct run_result *result)
{
	campaign_try(arg, spec, result);
	return world_log();
}

static int pinned(struct campaign *campaign, const char *path)
{
	const struct pin_player player = {.play = play_pinned, .arg = campaign};
	FILE *in = fopen(path, "r");
	unsigned failed;

	if (!in) {
		fprintf(stderr, "explore: cannot read %s: %s\n", path, strerror(errno));
		return 2;
	}
	failed = pinned_check(&player, path, in, stdout);
	fclose(in);
	if (failed > 0)
		printf("%u of the pins in %s fail\n", failed, path);
	return failed > 0;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = options,
	    .parser = parse,
	    .doc = "Explores what faults do to connections over a stepped fabric. With a "
		   "scenario, and faults with places, it is one run; with --single, --double or "
		   "--walks a campaign.",
	};
	static struct campaign campaign = {
	    .rc = true, .e2e = true, .stride = 1, .give_up_after = 10};
	struct arguments args = {.campaign = &campaign};
	struct tally_cell total;
	int status;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (args.list) {
		list();
		return 0;
	}
	signal(SIGALRM, crashed);
	signal(SIGABRT, crashed);
#ifndef HA_SANITIZED
	signal(SIGSEGV, crashed);
	signal(SIGBUS, crashed);
#endif
	campaign.tally = tally_new();
	if (args.pinned) {
		status = pinned(&campaign, args.pinned);
	} else if (is_replay(&args)) {
		status = replay(&campaign, &args.replay);
	} else {
		if (args.single)
			campaign_single(&campaign);
		if (args.doubled)
			campaign_double(&campaign);
		campaign_walks(&campaign);
		campaign_pairs(&campaign);
		tally_print(campaign.tally, args.table, stdout);
		total = tally_total(campaign.tally);
		if (campaign.heal)
			printf("healed: %llu runs, the slowest in %llu ms\n",
			       (unsigned long long)total.healed,
			       (unsigned long long)(total.longest_ns / HA_NS_PER_MS));
		printf("traces: %llu accepted, with %llu steps; %llu not judged\n",
		       (unsigned long long)total.traces, (unsigned long long)total.trace_steps,
		       (unsigned long long)total.unjudged);
		printf("worlds: %llu with three hosts, %llu with clocks apart, %llu with a process "
		       "that begins anew, %llu with strangers, %llu with commands that wait\n",
		       (unsigned long long)campaign.worlds.rings,
		       (unsigned long long)campaign.worlds.apart,
		       (unsigned long long)campaign.worlds.begun_anew,
		       (unsigned long long)campaign.worlds.strangers,
		       (unsigned long long)campaign.worlds.waits);
		printf("processor: %.1f s\n", (double)clock() / CLOCKS_PER_SEC);
		status = campaign.wrong > 0 || total.fired < args.at_least;
		if (total.fired < args.at_least)
			printf("only %llu faults have fired, not %llu\n",
			       (unsigned long long)total.fired, (unsigned long long)args.at_least);
	}
	tally_free(campaign.tally);
	world_free(&campaign.world);
	return status;
}
