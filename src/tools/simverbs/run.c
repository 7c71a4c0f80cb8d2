/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs run: starts a program as a host of a fabric. Nothing but its environment says so:
 * LD_LIBRARY_PATH finds our libibverbs.so.1, SIMVERBS_FABRIC and SIMVERBS_HOST say which devices it
 * lists, and SYSFS_PATH where the attributes of those devices are.
 */
#include "tools/simverbs/tool.h"

#include "simverbs/live/sysfs.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run_args {
	const char *name;
	unsigned host;
	bool sysfs;
	char **command;
};

static error_t parse_run(int key, char *arg, struct argp_state *state)
{
	struct run_args *args = state->input;

	switch (key) {
	case 's':
		args->sysfs = true;
		return 0;
	case ARGP_KEY_ARG:
		if (state->arg_num == 0) {
			args->name = arg;
		} else if (state->arg_num == 1) {
			args->host = np_number(state, arg, "HOST", SV_MAX_HOSTS);
		} else {
			/* All the rest belongs to the program, options included. */
			args->command = &state->argv[state->next - 1];
			state->next = state->argc;
		}
		return 0;
	case ARGP_KEY_END:
		if (!args->command)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The directory with libibverbs.so.1, found from where this program is. */
static bool library_dir(char *buf, size_t len)
{
	/* In a build tree, installed, and carried elsewhere in one folder. */
	static const char *const beside[] = {"../simverbs", HA_INSTALLED_SIMVERBS, "."};
	const char *env = getenv("SIMVERBS_LIB");
	char exe[PATH_MAX], path[PATH_MAX * 2], resolved[PATH_MAX];
	ssize_t n;
	size_t i;

	if (env && *env)
		return snprintf(buf, len, "%s", env) < (int)len;
	n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	if (n <= 0)
		return false;
	exe[n] = '\0';
	dirname(exe);
	for (i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s/libibverbs.so.1", exe, beside[i]);
		if (access(path, R_OK) || !realpath(path, resolved))
			continue;
		/* The directory of the name, not of what a symbolic link leads to. */
		snprintf(path, sizeof(path), "%s/%s", exe, beside[i]);
		return realpath(path, resolved) && snprintf(buf, len, "%s", resolved) < (int)len;
	}
	return false;
}

static void prepend(const char *variable, const char *value)
{
	const char *old = getenv(variable);
	char joined[PATH_MAX * 4];

	snprintf(joined, sizeof(joined), "%s%s%s", value, old && *old ? ":" : "", old ? old : "");
	setenv(variable, joined, 1);
}

static void set_environment(const struct sv_fabric *fab, unsigned host, const char *lib)
{
	char text[PATH_MAX];

	prepend("LD_LIBRARY_PATH", lib);
	setenv("SIMVERBS_FABRIC", fab->h->name, 1);
	snprintf(text, sizeof(text), "%u", host);
	setenv("SIMVERBS_HOST", text, 1);
	sv_sysfs_host_path(fab->h, host, text, sizeof(text));
	setenv("SYSFS_PATH", text, 1);
#ifdef NP_SANITIZER_RUNTIME
	/* A program that was not built with the sanitizer needs its run-time first of all. Its own
	 * leaks are not what is looked for. */
	prepend("LD_PRELOAD", NP_SANITIZER_RUNTIME);
	setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
#endif
}

int np_cmd_run(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"sysfs", 's', NULL, 0,
	     "The devices are below /sys, too, in a mount namespace of the program's own", 0},
	    {0},
	};
	static const struct argp argp = {
	    options,
	    parse_run,
	    "NAME HOST -- COMMAND...",
	    "Runs a program, unchanged, as host HOST (from 0) of a fabric. It replaces this "
	    "process: signals and the exit status are the program's own.",
	    NULL,
	    NULL,
	    NULL};
	struct run_args args = {0};
	struct sv_fabric fab;
	char lib[PATH_MAX], tree[PATH_MAX];

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &args);
	if (!np_open_fabric(args.name, &fab))
		return NP_EXIT_FAILED;
	if (!np_in_fabric(&fab, args.host, 0))
		return NP_EXIT_USAGE;
	if (!library_dir(lib, sizeof(lib))) {
		fprintf(stderr,
			"simverbs run: no libibverbs.so.1 in ../simverbs or " HA_INSTALLED_SIMVERBS
			" of this program; set SIMVERBS_LIB to its directory\n");
		return NP_EXIT_FAILED;
	}
	set_environment(&fab, args.host, lib);
	sv_sysfs_host_path(fab.h, args.host, tree, sizeof(tree));
	sv_fabric_close(&fab);
	if (args.sysfs && np_show_sysfs(tree))
		return NP_EXIT_FAILED;
	execvp(args.command[0], args.command);
	fprintf(stderr, "simverbs run: %s: %s\n", args.command[0], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
