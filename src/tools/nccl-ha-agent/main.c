/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-agent: says how much of each flow goes over which rail. */
#include "base/agent_frame.h"
#include "base/version.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-agent/server.h"
#include "tools/nccl-ha-agent/set.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2
#define WORDS_MAX  4

struct arguments {
	struct na_settings settings;
	const char *file;
	char *words[WORDS_MAX];
	unsigned n;
};

static const struct argp_option options[] = {
    {"dir", 'd', "DIR", 0, "The agent's directory (default: " MPIB_AGENT_DIR ")", 0},
    {"policy", 'p', "POLICY", 0,
     "manual, static (of a file) or measured: from the plugins' statistics (default)", 0},
    {"file", 'f', "FILE", 0, "Of the policy static: a line CIDR CIDR SHARE for each rule", 0},
    {0},
};

static const char doc[] = "Says how much of each flow goes over the second rail, of 1024.\v"
			  "Without a command it is the agent, until it is ended. "
			  "set says a flow's share whatever the policy says, or auto: the policy's "
			  "again. show prints each flow with its share. See nccl-ha-agent(1).";

static enum na_policy policy_of(const char *name, struct argp_state *state)
{
	static const char *const names[] = {
	    [NA_MANUAL] = "manual", [NA_STATIC] = "static", [NA_MEASURED] = "measured"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return (enum na_policy)i;
	argp_error(state, "--policy=%s: it is manual, static or measured", name);
	return NA_MANUAL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'd':
		a->settings.dir = arg;
		return 0;
	case 'p':
		a->settings.policy = policy_of(arg, state);
		return 0;
	case 'f':
		a->file = arg;
		return 0;
	case ARGP_KEY_ARG:
		if (a->n == WORDS_MAX)
			argp_error(state, "%s: too much", arg);
		a->words[a->n++] = arg;
		return 0;
	case ARGP_KEY_END:
		if ((a->settings.policy == NA_STATIC) != (a->file != NULL))
			argp_error(state, "--policy=static and --file go together");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, "\nset SRC DST SHARE|auto\nshow", doc, NULL,
				 NULL,	  NULL};

static int wrong(const char *what, const char *why)
{
	fprintf(stderr, "nccl-ha-agent: %s%s%s\n", what, *what ? ": " : "", why);
	return EXIT_USAGE;
}

static int set(const struct arguments *a)
{
	uint32_t src, dst, src_mask, dst_mask, share = HA_AGENT_SHARE_END;

	if (a->n != 4)
		return wrong("set", "it takes SRC DST SHARE, or SRC DST auto");
	if (!na_parse_cidr(a->words[1], &src, &src_mask) || src_mask != UINT32_MAX)
		return wrong(a->words[1], "no IPv4 address");
	if (!na_parse_cidr(a->words[2], &dst, &dst_mask) || dst_mask != UINT32_MAX)
		return wrong(a->words[2], "no IPv4 address");
	if (strcmp(a->words[3], "auto") != 0 && !na_parse_share(a->words[3], &share))
		return wrong(a->words[3], "a share is 0 to 1024, or auto");
	return na_set(a->settings.dir, src, dst, share);
}

static int serve(struct arguments *a)
{
	char err[256];

	if (a->file && !na_rules_read(&a->settings.file, a->file, err, sizeof(err)))
		return wrong("", err);
	ends_hold();
	return na_serve(&a->settings);
}

int main(int argc, char **argv)
{
	static struct arguments a = {.settings = {.dir = MPIB_AGENT_DIR, .policy = NA_MEASURED}};
	static char version[64];

	snprintf(version, sizeof(version), "nccl-ha-agent %s", ha_version);
	argp_program_version = version;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &a);
	if (a.n == 0)
		return serve(&a);
	if (!strcmp(a.words[0], "set"))
		return set(&a);
	if (!strcmp(a.words[0], "show") && a.n == 1)
		return na_show(a.settings.dir);
	return wrong(a.words[0], "no such command: set or show, or none");
}
