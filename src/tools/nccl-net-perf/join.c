/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Being one rank: finding out which, and where the root is.
 *
 * The launcher says both on the command line. Under mpirun and srun the environment says who we
 * are; the root is --root, or, when all ranks are on one machine, whatever rank 0 writes to a file
 * named after the job.
 */
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/process.h"
#include "tools/nccl-net-perf/bootstrap.h"
#include "tools/nccl-net-perf/bootstrap_root.h"
#include "tools/nccl-net-perf/faults.h"
#include "tools/nccl-net-perf/join.h"
#include "tools/nccl-net-perf/key.h"
#include "tools/nccl-net-perf/launch.h"
#include "tools/nccl-net-perf/measure.h"
#include "tools/nccl-net-perf/rank.h"

/* What launchers call their things. `local` is the number of ranks on this machine. */
static const struct launcher {
	const char *rank, *size, *local, *job;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_JOBID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID"},
};

static bool env_int(const char *name, int *value)
{
	const char *text = getenv(name);
	char *end;
	long v;

	if (!text)
		return false;
	v = strtol(text, &end, 10);
	if (end == text || v < 0 || v > NP_MAX_RANKS)
		return false;
	*value = (int)v;
	return true;
}

static const struct launcher *find_launcher(int *rank, int *size)
{
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (env_int(launchers[i].rank, rank) && env_int(launchers[i].size, size))
			return &launchers[i];
	return NULL;
}

void np_detect_launcher(struct np_options *o)
{
	int rank, size;

	if (o->rank >= 0 || o->ranks_given || !find_launcher(&rank, &size) || size < 2)
		return;
	o->rank = rank;
	o->nranks = size;
}

/* ---- the meeting point of ranks on one machine ---------------------------------------------- */

static bool meeting_file(char *path, size_t len, char *err, size_t err_len)
{
	int rank, size, local = 0;
	const struct launcher *l = find_launcher(&rank, &size);
	const char *job = l ? getenv(l->job) : NULL, *step = getenv("SLURM_STEP_ID");
	char parent[24];
	size_t at;

	/* A launcher that names no job is the parent of all its ranks on this machine. */
	snprintf(parent, sizeof(parent), "%d", (int)getppid());
	if (!job)
		job = parent;
	if (!l || !env_int(l->local, &local) || local != size) {
		snprintf(err, err_len,
			 "ranks on several machines, or started by hand, need --root HOST:PORT: "
			 "a free port of the machine of rank 0");
		return false;
	}
	at = (size_t)snprintf(path, len, "/dev/shm/nccl-net-perf-%u-", (unsigned)getuid());
	for (const char *p = job; *p && at + 1 < len; p++)
		path[at++] = isalnum((unsigned char)*p) ? *p : '-';
	path[at] = '\0';
	if (step)
		snprintf(path + at, len - at, "-%s", step);
	return true;
}

static bool write_meeting_file(const char *path, const char *address)
{
	char temporary[300];
	FILE *f;
	bool ok;

	snprintf(temporary, sizeof(temporary), "%s.new", path);
	f = fopen(temporary, "we");
	if (!f)
		return false;
	ok = fprintf(f, "%s\n", address) > 0;
	ok = fclose(f) == 0 && ok;
	if (ok && rename(temporary, path) == 0)
		return true;
	unlink(temporary);
	return false;
}

static bool read_meeting_file(const char *path, double timeout_s, char *address)
{
	uint64_t deadline = np_now_ns() + (uint64_t)(timeout_s * 1e9);

	do {
		FILE *f = fopen(path, "re");

		if (f) {
			bool ok = fgets(address, NP_ADDRESS_LEN, f) != NULL;

			fclose(f);
			address[strcspn(address, "\n")] = '\0';
			if (ok)
				return true;
		}
		usleep(20000);
	} while (np_now_ns() < deadline);
	return false;
}

/* ---- joining -------------------------------------------------------------------------------- */

/* Time for all ranks to appear and, in the end, for the slowest to be given up by its watchdog. */
static double join_timeout_s(const struct np_options *o)
{
	return 2 * o->timeout_s + 10;
}

/* Where the root is; rank 0 starts it if the launcher has not. False with a reason. */
static bool find_root(const struct np_options *o, const struct ha_job_key *key,
		      struct np_root **root, char *address, char *file, size_t file_len, char *err,
		      size_t err_len)
{
	bool launched = getenv("NCCL_NET_PERF_TOKEN") != NULL;

	file[0] = '\0';
	if (o->root)
		snprintf(address, NP_ADDRESS_LEN, "%s", o->root);
	else if (!meeting_file(file, file_len, err, err_len))
		return false;
	if (launched)
		return true;
	if (o->rank == 0) {
		*root = np_root_start(o->root, o->nranks, 0, key, address, err, err_len);
		if (!*root)
			return false;
		if (o->root || write_meeting_file(file, address))
			return true;
		snprintf(err, err_len, "cannot write %s: %s", file, strerror(errno));
		return false;
	}
	if (o->root || read_meeting_file(file, join_timeout_s(o), address))
		return true;
	snprintf(err, err_len, "rank 0 did not appear: %s was not written", file);
	return false;
}

static uint64_t token_of_launcher(void)
{
	const char *text = getenv("NCCL_NET_PERF_TOKEN");

	return text ? strtoull(text, NULL, 16) : 0;
}

/* Under mpirun nobody has put this process on the fabric: it does so itself and starts over. */
static bool enter_fabric(const struct np_options *o, int argc, char **argv, char *err,
			 size_t err_len)
{
	const char *where = getenv("SIMVERBS_FABRIC");
	const char **args = calloc((size_t)argc + 8, sizeof(*args));
	char host[16], self[4096];
	struct np_fabric_options wanted = np_fabric_options_of(o);
	struct np_fabric f;
	int n = 0;

	if (!o->fabric || (where && !strcmp(where, o->fabric)) || !args) {
		free(args);
		return true;
	}
	if (np_fabric_open(&f, &wanted, err, err_len) && np_own_path(self, sizeof(self))) {
		snprintf(host, sizeof(host), "%d", o->rank % f.hosts);
		args[n++] = f.tool;
		args[n++] = "run";
		args[n++] = f.name;
		args[n++] = host;
		args[n++] = "--";
		args[n++] = self;
		for (int i = 1; i < argc; i++)
			args[n++] = argv[i];
		np_exec(args);
		snprintf(err, err_len, "cannot run %.400s: %s", f.tool, strerror(errno));
	}
	free(args);
	return false;
}

static bool load_key(struct ha_job_key **key, char *err, size_t err_len)
{
	if (np_key_load(key))
		return true;
	snprintf(err, err_len, "the job's key cannot be used");
	return false;
}

enum np_exit np_join(const struct np_options *o, int argc, char **argv)
{
	char address[NP_ADDRESS_LEN] = "", err[600] = "", file[200] = "";
	struct np_root *root = NULL;
	struct np_bootstrap *bootstrap = NULL;
	struct ha_job_key *key = NULL;
	enum np_exit status = NP_EXIT_USAGE;

	if (o->seconds > 0)
		np_measure_heed_signal();
	if (enter_fabric(o, argc, argv, err, sizeof(err)) && load_key(&key, err, sizeof(err)) &&
	    find_root(o, key, &root, address, file, sizeof(file), err, sizeof(err)))
		bootstrap = np_bootstrap_connect(address, o->rank, o->nranks, token_of_launcher(),
						 key, join_timeout_s(o), err, sizeof(err));
	if (bootstrap)
		status = np_rank_run(o, bootstrap);
	else
		fprintf(stderr, "nccl-net-perf: rank %d: %s\n", o->rank, err);
	np_bootstrap_close(bootstrap);
	if (o->rank == 0 && file[0])
		unlink(file);
	np_root_stop(root);
	ha_job_key_free(key);
	return status;
}
