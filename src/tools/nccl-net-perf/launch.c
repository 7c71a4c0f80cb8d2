/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher: a process per rank on this machine, a fabric for them if one is wanted.
 *
 * Ranks are this program again, started with --rank, so that the environment of a fabric takes
 * effect. The launcher holds the bootstrap root, waits for the ranks, and when one fails gives the
 * others a moment to say what they were stuck in before it ends them.
 */
#include "tools/nccl-net-perf/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/process.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/bootstrap_root.h"
#include "tools/nccl-net-perf/faults.h"
#include "tools/nccl-net-perf/key.h"

/*
 * How long the others have after the first failure: to name what they are stuck in, or, when data
 * was wrong, to finish an otherwise orderly run.
 */
#define GRACE_NS       (2 * NP_NS_PER_S)
#define WRONG_GRACE_NS (20 * NP_NS_PER_S)
/*
 * What comes of a rank that gave up may be seen so much before its own end: its sockets are closed
 * while its memory is still given back. Less than any --timeout that is of use.
 */
#define CAUSE_NS (NP_NS_PER_S / 2)

struct launcher {
	const struct np_options *o;
	struct np_fabric fabric;
	char root[NP_ADDRESS_LEN];
	pid_t *pids; /* by rank; 0: not running */
	int running;
	enum np_exit status; /* of the first that failed, bad writes before all else */
	uint64_t failed_ns;
	bool ends_them; /* who dies of a signal from now on was meant to */
};

/* ---- starting ----------------------------------------------------------------------------- */

/* Our own command line, then what makes it a rank; on a fabric, inside `simverbs run`. */
static bool start_rank(struct launcher *l, int rank, int argc, char **argv)
{
	const char **args = calloc((size_t)argc + 16, sizeof(*args));
	char self[4096], number[16], nranks[16], host[16];
	int n = 0;

	if (!args || !np_own_path(self, sizeof(self))) {
		free(args);
		return false;
	}
	snprintf(number, sizeof(number), "%d", rank);
	snprintf(nranks, sizeof(nranks), "%d", l->o->nranks);
	if (l->fabric.name[0]) {
		snprintf(host, sizeof(host), "%d", rank % l->fabric.hosts);
		args[n++] = l->fabric.tool;
		args[n++] = "run";
		args[n++] = l->fabric.name;
		args[n++] = host;
		args[n++] = "--";
	}
	args[n++] = self;
	for (int i = 1; i < argc; i++)
		args[n++] = argv[i];
	args[n++] = "--rank";
	args[n++] = number;
	args[n++] = "--nranks";
	args[n++] = nranks;
	args[n++] = "--root";
	args[n++] = l->root;
	if (l->fabric.name[0]) {
		args[n++] = "--fabric";
		args[n++] = l->fabric.name;
	}
	l->pids[rank] = np_spawn(args, -1);
	free(args);
	if (l->pids[rank] < 0) {
		l->pids[rank] = 0;
		return false;
	}
	l->running++;
	return true;
}

static void kill_ranks(struct launcher *l)
{
	l->ends_them = true;
	for (int r = 0; r < l->o->nranks; r++)
		if (l->pids[r])
			kill(l->pids[r], SIGKILL);
}

/* ---- waiting ------------------------------------------------------------------------------ */

static enum np_exit judge(int rank, int status, bool expected)
{
	if (WIFEXITED(status))
		return (enum np_exit)WEXITSTATUS(status);
	if (!expected)
		fprintf(stderr, "nccl-net-perf: rank %d died of signal %d (%s)\n", rank,
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	return NP_EXIT_ERROR;
}

/* The plugin wrote what it should not have; the run may be an orderly one otherwise. */
static bool spoilt(enum np_exit status)
{
	return status == NP_EXIT_WRONG || status == NP_EXIT_LATE;
}

enum np_exit np_launch_status(enum np_exit so_far, enum np_exit ended, uint64_t later_ns)
{
	if (so_far == NP_EXIT_OK || (spoilt(ended) && so_far != NP_EXIT_WRONG))
		return ended;
	if (so_far == NP_EXIT_ERROR && ended == NP_EXIT_TIMEOUT && later_ns < CAUSE_NS)
		return ended;
	return so_far;
}

static void reap(struct launcher *l)
{
	for (int r = 0; r < l->o->nranks; r++) {
		enum np_exit status;
		int raw;

		if (!l->pids[r] || waitpid(l->pids[r], &raw, WNOHANG) != l->pids[r])
			continue;
		l->pids[r] = 0;
		l->running--;
		status = judge(r, raw, l->ends_them);
		if (status != NP_EXIT_OK && !l->failed_ns)
			l->failed_ns = np_now_ns();
		l->status = np_launch_status(l->status, status, np_now_ns() - l->failed_ns);
	}
}

static uint64_t grace_ns(const struct launcher *l)
{
	return spoilt(l->status) ? WRONG_GRACE_NS : GRACE_NS;
}

/* Until all ranks are gone. `signals` are blocked: they are taken here. */
static void supervise(struct launcher *l, const sigset_t *signals)
{
	const struct timespec tick = {.tv_nsec = 100 * 1000000L};

	for (reap(l); l->running; reap(l)) {
		int signal = sigtimedwait(signals, NULL, &tick);

		if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
			fprintf(stderr, "nccl-net-perf: interrupted by signal %d\n", signal);
			if (!l->failed_ns)
				l->status = NP_EXIT_ERROR;
			l->ends_them = true; /* they have had the signal, too */
			l->failed_ns = np_now_ns() - WRONG_GRACE_NS;
		}
		if (signal == SIGUSR1 && l->pids[0])
			kill(l->pids[0], SIGUSR1); /* it ends --seconds */
		if (l->failed_ns && np_now_ns() - l->failed_ns >= grace_ns(l))
			kill_ranks(l);
	}
}

/* ---- all of it ---------------------------------------------------------------------------- */

static bool run_ranks(struct launcher *l, const struct ha_job_key *key, const sigset_t *signals,
		      int argc, char **argv)
{
	char err[300], hex[32];
	struct np_root *root;
	uint64_t token;
	bool ok = true;

	/* Strangers on the loopback port cannot know it. */
	if (getrandom(&token, sizeof(token), 0) != sizeof(token))
		token = np_now_ns();
	token |= 1;
	snprintf(hex, sizeof(hex), "%llx", (unsigned long long)token);
	setenv("NCCL_NET_PERF_TOKEN", hex, 1);
	root = np_root_start(NULL, l->o->nranks, token, key, l->root, err, sizeof(err));
	if (!root) {
		fprintf(stderr, "nccl-net-perf: %s\n", err);
		return false;
	}
	for (int r = 0; r < l->o->nranks && ok; r++)
		ok = start_rank(l, r, argc, argv);
	if (!ok) {
		fprintf(stderr, "nccl-net-perf: cannot start the ranks: %s\n", strerror(errno));
		kill_ranks(l);
	}
	supervise(l, signals);
	np_root_stop(root);
	return ok;
}

enum np_exit np_launch(const struct np_options *o, int argc, char **argv)
{
	struct launcher l = {.o = o};
	struct np_fabric_options wanted = np_fabric_options_of(o);
	struct ha_job_key *key = NULL;
	char err[600];
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	/* All ranks are on this machine: plugins have no reason to meet over a network card. */
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	l.pids = calloc((size_t)o->nranks, sizeof(*l.pids));
	if (!l.pids)
		return NP_EXIT_ERROR;
	if (!np_key_load(&key)) {
		l.status = NP_EXIT_USAGE;
	} else if (!np_fabric_open(&l.fabric, &wanted, err, sizeof(err))) {
		fprintf(stderr, "nccl-net-perf: %s\n", err);
		l.status = NP_EXIT_USAGE;
	} else if (!run_ranks(&l, key, &signals, argc, argv)) {
		l.status = NP_EXIT_ERROR;
	}
	if (l.status == NP_EXIT_OK && o->nfaults && !np_report_faults(&l.fabric, o))
		l.status = NP_EXIT_WRONG;
	np_fabric_close(&l.fabric);
	ha_job_key_free(key);
	free(l.pids);
	return l.status;
}
