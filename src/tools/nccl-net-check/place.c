/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include "tools/common/fabric.h"
#include "tools/common/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TOOL_TIMEOUT_S 30

bool place_is_right(const struct place_request *request)
{
	const char *where = getenv("SIMVERBS_FABRIC");

	if (request->hosts)
		return false; /* a new one is to be brought up */
	return !request->fabric || (where && strcmp(where, request->fabric) == 0);
}

/* This program's arguments without --simverbs, behind "simverbs run NAME 0 --". */
static const char **arguments(const struct np_fabric *f, const char *self, int argc, char **argv)
{
	const char **args = calloc((size_t)argc + 16, sizeof(*args));
	int n = 0;

	if (!args)
		return NULL;
	args[n++] = f->tool;
	args[n++] = "run";
	args[n++] = f->name;
	args[n++] = "0";
	args[n++] = "--";
	args[n++] = self;
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	args[n++] = "--fabric"; /* takes precedence over an earlier --simverbs */
	args[n++] = f->name;
	return args;
}

/* Until the child has ended; a signal to this process ends the child first. */
static int supervise_child(pid_t pid, const sigset_t *signals)
{
	const struct timespec tick = {.tv_nsec = 50 * 1000000L};
	int status;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		int signal = sigtimedwait(signals, NULL, &tick);
		if (signal > 0 && signal != SIGCHLD)
			kill(pid, SIGKILL);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int place_run(const struct place_request *request, int argc, char **argv)
{
	struct np_fabric_options wanted = {.prefix = "check",
					   .existing = request->fabric,
					   .hosts = request->hosts,
					   .rails = request->rails,
					   .dmabuf = true,
					   .faults = request->faults,
					   .nfaults = request->nfaults};
	struct np_fabric f;
	char err[600], self[4096];
	sigset_t signals;
	int status = -1;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	if (!np_fabric_open(&f, &wanted, err, sizeof(err))) {
		fprintf(stderr, "nccl-net-check: %s\n", err);
		return -1;
	}
	const char **args =
	    np_own_path(self, sizeof(self)) ? arguments(&f, self, argc, argv) : NULL;
	pid_t pid = args ? np_spawn(args, -1) : -1;
	if (pid > 0)
		status = supervise_child(pid, &signals);
	else
		fprintf(stderr, "nccl-net-check: cannot start %s: %s\n", f.tool, strerror(errno));
	free(args);
	err[0] = 0;
	if (request->nfaults &&
	    !np_fabric_faults_fired(&f, request->nfaults, NULL, err, sizeof(err))) {
		fprintf(stderr, "nccl-net-check: %s\n", err);
		status = -1;
	}
	np_fabric_close(&f);
	return status;
}

/* SYSFS_PATH as "simverbs run" sets it for this host. */
static bool ask_sysfs(const struct np_fabric *f, int host, char *path, size_t len)
{
	char number[16], err[600];

	snprintf(number, sizeof(number), "%d", host);
	const char *const argv[] = {f->tool, "run",	 f->name,      number,
				    "--",    "printenv", "SYSFS_PATH", NULL};
	char *text = np_run_tool(argv, TOOL_TIMEOUT_S, err, sizeof(err));
	if (!text) {
		fprintf(stderr, "nccl-net-check: %s\n", err);
		return false;
	}
	text[strcspn(text, "\n")] = 0;
	snprintf(path, len, "%s", text);
	free(text);
	return true;
}

bool place_prepare(struct check_options *opt)
{
	struct np_fabric_options wanted = {.existing = opt->fabric};
	struct np_fabric f;
	char err[600];

	if (!opt->fabric)
		return true;
	if (!np_fabric_open(&f, &wanted, err, sizeof(err))) {
		fprintf(stderr, "nccl-net-check: %s\n", err);
		return false;
	}
	for (int r = 0; r < CHECK_RANKS; r++) {
		opt->place[r].host = r % f.hosts;
		if (!ask_sysfs(&f, opt->place[r].host, opt->place[r].sysfs,
			       sizeof(opt->place[r].sysfs)))
			return false;
	}
	return true;
}

void place_rank(const struct check_options *opt, int rank)
{
	char host[16];

	snprintf(host, sizeof(host), "%d", opt->place[rank].host);
	setenv("SIMVERBS_HOST", host, 1);
	setenv("SYSFS_PATH", opt->place[rank].sysfs, 1);
}
