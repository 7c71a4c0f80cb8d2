/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-ctrld: says which switches add for which group. */
#include "base/version.h"
#include "tools/common/ends.h"
#include "tools/controller/ask.h"
#include "tools/nccl-ha-ctrld/check.h"
#include "tools/nccl-ha-ctrld/server.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE	 2
#define WORDS_MAX	 NC_PORTS
#define VERDICT_MS	 10000
#define LEASE_MS	 2000
#define MILLISECONDS_MAX 600000

struct arguments {
	struct nc_settings settings;
	const char *check, *topology, *connect;
	bool is_reproducible;
	char *words[WORDS_MAX];
	unsigned n;
};

enum { OPT_VERDICT_MS = 0x100, OPT_LEASE_MS, OPT_REPRODUCIBLE };

static const struct argp_option options[] = {
    {"check", 'c', "FILE", 0,
     "Read this topology and print the plan of a group of these members; of none: of all hosts of "
     "each rail",
     0},
    {"reproducible", OPT_REPRODUCIBLE, 0, 0,
     "Of --check: of a group that has HA_NCCL_INC_REPRODUCIBLE=1", 0},
    {"topology", 't', "FILE", 0, "Of the controller: the fabric", 1},
    {"key-file", 'k', "FILE", 0, "The site's key: 32 bytes that nobody else can read", 1},
    {"listen", 'l', "ADDRESS:PORT", 0, "Of the controller: where hosts ask", 1},
    {"verdict-ms", OPT_VERDICT_MS, "N", 0,
     "How long a group waits for the last of its members (default: 10000)", 1},
    {"lease-ms", OPT_LEASE_MS, "N", 0,
     "How long a group keeps its plan without the connection of member 0 (default: 2000)", 1},
    {"connect", 'a', "ADDRESS:PORT", 0, "Of status: which controller", 2},
    {0},
};

static const char doc[] =
    "Says which switches add for which group, in an all-reduce in the network.\v"
    "With --topology it is the controller, until it is ended. status prints what a controller has, "
    "as JSON. See nccl-ha-ctrld(1).";

static unsigned milliseconds(const char *arg, const char *option, struct argp_state *state)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (*end || end == arg || n < 1 || n > MILLISECONDS_MAX)
		argp_error(state, "%s=%s: it is 1 to %d", option, arg, MILLISECONDS_MAX);
	return (unsigned)n;
}

/* It is one of three: a check, the controller, or who asks one. */
static void check_arguments(const struct arguments *a, struct argp_state *state)
{
	const struct nc_settings *s = &a->settings;
	const bool asks = a->n == 1 && !a->check && !a->topology && !strcmp(a->words[0], "status");

	if (a->is_reproducible && !a->check)
		argp_error(state, "--reproducible is of --check");
	if (a->check && !a->topology && !s->key_file && !s->listen && !a->connect)
		return;
	if (a->topology && s->key_file && s->listen && !a->check && !a->connect && a->n == 0)
		return;
	if (asks && s->key_file && a->connect && !s->listen)
		return;
	argp_error(state,
		   "say --check FILE, or --topology, --key-file and --listen, or status with "
		   "--connect and --key-file");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'c':
		a->check = arg;
		return 0;
	case 't':
		a->topology = arg;
		return 0;
	case 'k':
		a->settings.key_file = arg;
		return 0;
	case 'l':
		a->settings.listen = arg;
		return 0;
	case 'a':
		a->connect = arg;
		return 0;
	case OPT_REPRODUCIBLE:
		a->is_reproducible = true;
		return 0;
	case OPT_VERDICT_MS:
		a->settings.verdict_ms = milliseconds(arg, "--verdict-ms", state);
		return 0;
	case OPT_LEASE_MS:
		a->settings.lease_ms = milliseconds(arg, "--lease-ms", state);
		return 0;
	case ARGP_KEY_ARG:
		if (a->n == WORDS_MAX)
			argp_error(state, "%s: too much", arg);
		a->words[a->n++] = arg;
		return 0;
	case ARGP_KEY_END:
		check_arguments(a, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, "[MEMBER...]\nstatus", doc, NULL, NULL, NULL};

static int check(const struct arguments *a)
{
	struct nc_topology topology;
	int status = EXIT_USAGE;

	if (nc_topology_load(&topology, a->check)) {
		status = nc_check(&topology,
				  &(struct nc_check){a->check, a->words, a->n, a->is_reproducible});
		nc_topology_free(&topology);
	}
	return status;
}

static int serve(const struct arguments *a)
{
	struct nc_topology topology;
	int status = EXIT_USAGE;

	ends_hold();
	if (nc_topology_load(&topology, a->topology)) {
		status = nc_serve(&a->settings, &topology);
		nc_topology_free(&topology);
	}
	return status;
}

static int ask(const struct arguments *a)
{
	const struct nc_controller controller = {a->connect, "--key-file", a->settings.key_file};
	char why[400];
	char *text = nc_ask_status(&controller, why, sizeof(why));
	int status = 1;

	if (text)
		status = puts(text) >= 0 && fflush(stdout) == 0 ? 0 : 1;
	else
		fprintf(stderr, "nccl-ha-ctrld: %s\n", why);
	free(text);
	return status;
}

int main(int argc, char **argv)
{
	static struct arguments a = {.settings = {.verdict_ms = VERDICT_MS, .lease_ms = LEASE_MS}};
	static char version[64];

	snprintf(version, sizeof(version), "nccl-ha-ctrld %s", ha_version);
	argp_program_version = version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.check)
		return check(&a);
	if (a.topology)
		return serve(&a);
	return ask(&a);
}
