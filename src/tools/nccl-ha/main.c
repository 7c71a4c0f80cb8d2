/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha: looks after jobs that use the plugin. */
#include "tools/nccl-ha/tool.h"

#include "base/version.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
    {"status", nh_cmd_status, "what runs here, and whether it is protected"},
    {"health", nh_cmd_health, "how the ports are, for what watches hosts"},
    {"top", nh_cmd_top, "the same live, with rates"},
    {"events", nh_cmd_events, "what happened: failures, failovers, recoveries"},
    {"failover", nh_cmd_failover, "drains a port before it is pulled"},
    {"failback", nh_cmd_failback, "ends that, and brings connections back"},
    {"config", nh_cmd_config, "the variables, and what they come to"},
    {"metrics", nh_cmd_metrics, "for Prometheus"},
    {"inc", nh_cmd_inc, "all-reduces in the network: switches, groups and their trees"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *to)
{
	fprintf(to, "Usage: nccl-ha COMMAND [OPTION...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
	fprintf(to, "\n`nccl-ha COMMAND --help` says more; so does nccl-ha(1).\n");
}

int main(int argc, char **argv)
{
	char name[32];

	if (argc < 2) {
		usage(stderr);
		return NH_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return NH_EXIT_OK;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("nccl-ha %s\n", ha_version);
		return NH_EXIT_OK;
	}
	argp_err_exit_status = NH_EXIT_USAGE;
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name)) {
			snprintf(name, sizeof(name), "nccl-ha %s", commands[i].name);
			argv[1] = name;
			return commands[i].run(argc - 1, argv + 1);
		}
	fprintf(stderr, "nccl-ha: no command '%s'\n\n", argv[1]);
	usage(stderr);
	return NH_EXIT_USAGE;
}
