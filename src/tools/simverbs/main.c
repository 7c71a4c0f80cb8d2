/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs: brings RDMA fabrics of simverbs up and down, runs programs on them and breaks them.
 */
#include "tools/simverbs/tool.h"

#include "base/version.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
    {"up", np_cmd_up, "NAME [--hosts N] [--rails M]          make a fabric"},
    {"run", np_cmd_run, "NAME HOST -- COMMAND...              run a program on a host of it"},
    {"link", np_cmd_link, "NAME HOST RAIL[.PORT] up|down|off   a port's link"},
    {"leg", np_cmd_leg, "NAME HOST RAIL LEG down|remap|up     a cable of a bond"},
    {"cut", np_cmd_cut, "NAME RAIL [--heal]                   a switch: both ports stay up"},
    {"device", np_cmd_device, "NAME HOST RAIL kill|disassociate|revive  a whole device"},
    {"fault", np_cmd_fault, "NAME 'RULE' | --list | --clear     fault rules"},
    {"status", np_cmd_status, "NAME [--json]                     what it is and how it went"},
    {"down", np_cmd_down, "NAME                                remove it, whatever its state"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *to)
{
	size_t i;

	fprintf(to, "Usage: simverbs COMMAND ...\n\n");
	for (i = 0; i < COMMANDS; i++)
		fprintf(to, "  %s %s\n", commands[i].name, commands[i].help);
	fprintf(to, "\n`simverbs COMMAND --help` says more; so does simverbs(1).\n");
}

const char *np_strerror(int negative_errno)
{
	switch (negative_errno) {
	case -ENOENT:
		return "there is no such fabric (simverbs up makes one)";
	case -EEXIST:
		return "it is up already (simverbs down removes it)";
	case -EPROTO:
		return "made by another version of simverbs (simverbs down removes it)";
	case -EINVAL:
		return "not a name for a fabric: letters, digits, '_', '-' and '.', at most 47";
	default:
		return strerror(-negative_errno);
	}
}

bool np_open_fabric(const char *name, struct sv_fabric *fab)
{
	int rc = sv_fabric_open(name, fab);

	if (!rc)
		return true;
	fprintf(stderr, "simverbs: fabric %s: %s\n", name, np_strerror(rc));
	return false;
}

unsigned np_number(struct argp_state *state, const char *text, const char *what,
		   unsigned long limit)
{
	unsigned long n;
	char *end;

	errno = 0;
	n = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n >= limit)
		argp_error(state, "%s must be a number from 0 to %lu, not '%s'", what, limit - 1,
			   text);
	return (unsigned)n;
}

bool np_in_fabric(const struct sv_fabric *fab, unsigned host, unsigned rail)
{
	if (host < fab->h->hosts && rail < fab->h->rails)
		return true;
	fprintf(stderr, "simverbs: fabric %s has hosts 0 to %u and rails 0 to %u\n", fab->h->name,
		fab->h->hosts - 1, fab->h->rails - 1);
	return false;
}

int main(int argc, char **argv)
{
	char name[32];
	size_t i;

	if (argc < 2) {
		usage(stderr);
		return NP_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return NP_EXIT_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		printf("simverbs (nccl-ha) %s\n", ha_version);
		return NP_EXIT_OK;
	}
	argp_err_exit_status = NP_EXIT_USAGE;
	for (i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name)) {
			snprintf(name, sizeof(name), "simverbs %s", commands[i].name);
			argv[1] = name;
			return commands[i].run(argc - 1, argv + 1);
		}
	fprintf(stderr, "simverbs: no command '%s'\n\n", argv[1]);
	usage(stderr);
	return NP_EXIT_USAGE;
}
