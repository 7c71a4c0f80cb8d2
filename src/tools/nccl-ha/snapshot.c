/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/snapshot.h"

#include "base/stats_file.h"
#include "base/stats_reader.h"
#include "tools/common/unless_cut.h"
#include "tools/nccl-ha/tool.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What is written while it is read is looked at again, after a pause. */
#define PAUSE_US 1000

/* A file that is never at rest may be meant to take time, and so may many of them: how long each is
 * waited for, and all files of a user; and how many of those are read. */
#define FILE_BUDGET_NS (40 * NS_PER_MS)
#define USER_BUDGET_NS (200 * NS_PER_MS)
#define USER_FILES     64

#define NS_PER_MS 1000000ull

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- one file ------------------------------------------------------------------------------- */

static void forget_records(struct nh_process *p)
{
	free(p->ports);
	free(p->conns);
	free(p->config);
	p->ports = NULL;
	p->conns = NULL;
	p->config = NULL;
	p->nports = p->nconns = p->nconfig = 0;
}

static bool allocate(struct nh_process *p, const struct ha_stats_reader *reader)
{
	forget_records(p);
	p->ports = calloc(reader->header.ports.count + 1, sizeof(*p->ports));
	p->conns = calloc(reader->header.conns.count + 1, sizeof(*p->conns));
	p->config = calloc(reader->header.config.count + 1, sizeof(*p->config));
	return p->ports && p->conns && p->config;
}

static void copy_records(struct nh_process *p, struct ha_stats_reader *reader)
{
	p->nports = p->nconns = p->nconfig = 0;
	for (unsigned int i = 0; i < reader->header.conns.count; i++) {
		struct nh_conn *conn = &p->conns[p->nconns];

		conn->slot = i;
		p->nconns += ha_stats_read_conn(reader, i, &conn->stats);
	}
	for (unsigned int i = 0; i < reader->header.ports.count; i++) {
		struct nh_port *port = &p->ports[p->nports];

		port->slot = i;
		p->nports += ha_stats_read_port(reader, i, &port->stats);
	}
	for (unsigned int i = 0; i < reader->header.config.count; i++)
		p->nconfig += ha_stats_read_config(reader, i, &p->config[p->nconfig]);
}

/*
 * Whether what was copied between two readings of the job record is of one moment: no connection
 * was on its way into the totals, which would count it twice or not at all, and none is missing
 * because its record was being written.
 */
static bool of_one_moment(const struct nh_process *p, const struct nccl_ha_job_stats *after)
{
	return !(p->job.closings & 1) && p->job.closings == after->closings &&
	       p->job.connections_open == p->nconns;
}

/* Whether it is one: see of_one_moment. *has_job: the job's record could be read at all. */
static bool copy_once(struct nh_process *p, struct ha_stats_reader *reader, bool *has_job)
{
	struct nccl_ha_job_stats before, after;

	reader->torn = 0;
	if (!ha_stats_read_job(reader, &before))
		return false;
	p->job = before;
	*has_job = true;
	copy_records(p, reader);
	return ha_stats_read_job(reader, &after) && reader->torn == 0 && of_one_moment(p, &after);
}

/* Takes the time it waits from *budget_ns. False when there is no job record to be had. */
static bool copy_all(struct nh_process *p, struct ha_stats_reader *reader, uint64_t *budget_ns)
{
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), taken_ns = 0;
	uint64_t most_ns = *budget_ns < FILE_BUDGET_NS ? *budget_ns : FILE_BUDGET_NS;
	bool has_job = false;

	while (!copy_once(p, reader, &has_job) && p->live && taken_ns < most_ns) {
		usleep(PAUSE_US); /* who writes may be waiting for a processor */
		taken_ns = clock_ns(CLOCK_MONOTONIC) - began_ns;
	}
	*budget_ns -= taken_ns < *budget_ns ? taken_ns : *budget_ns;
	return has_job;
}

struct reading {
	struct nh_process *p;
	int fd, err;
	uint64_t *budget_ns;
	struct ha_stats_reader reader;
};

static void read_mapped(void *arg)
{
	struct reading *r = arg;

	r->err = ha_stats_reader_open_fd(&r->reader, r->fd);
	if (!r->err && !allocate(r->p, &r->reader))
		r->err = ENOMEM;
	else if (!r->err && !copy_all(r->p, &r->reader, r->budget_ns))
		r->err = EPROTO;
}

/* 0, or an errno value as ha_stats_reader_open_fd gives. The version that was found. */
static int read_file(struct nh_process *p, int fd, uint64_t *budget_ns, uint32_t *version)
{
	struct reading r = {.p = p, .fd = fd, .budget_ns = budget_ns};

	if (!np_unless_cut(read_mapped, &r))
		r.err = EPROTO;
	*version = r.reader.header.version;
	ha_stats_reader_close(&r.reader);
	if (r.err)
		forget_records(p);
	return r.err;
}

/* ---- all of them ---------------------------------------------------------------------------- */

/* What is left of what a user's files may take. */
struct user {
	unsigned int uid, files;
	bool told; /* that there are too many */
	uint64_t budget_ns;
};

struct looking {
	struct nh_snapshot *snapshot;
	const struct nh_select *select;
	const char *command;
	struct user *users;
	size_t nusers;
	int err;
};

/* NULL: no memory. */
static struct user *find_user(struct looking *looking, unsigned int uid)
{
	struct user *grown;

	for (size_t i = 0; i < looking->nusers; i++)
		if (looking->users[i].uid == uid)
			return &looking->users[i];
	grown = realloc(looking->users, (looking->nusers + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	looking->users = grown;
	grown += looking->nusers++;
	*grown = (struct user){.uid = uid, .files = USER_FILES, .budget_ns = USER_BUDGET_NS};
	return grown;
}

/* Whether one more is read: at the first that is not, a line says so. */
static bool has_files_left(struct looking *looking, struct user *user)
{
	if (user->files > 0) {
		user->files--;
		return true;
	}
	looking->snapshot->nunreadable++;
	if (looking->command && !user->told)
		fprintf(
		    stderr,
		    "%s: user %u has more than %d statistics files; the others are passed over\n",
		    looking->command, user->uid, USER_FILES);
	user->told = true;
	return false;
}

static void complain(const struct looking *looking, const char *path, int err, uint32_t version)
{
	looking->snapshot->nunreadable++;
	if (!looking->command)
		return;
	if (err == EPROTONOSUPPORT)
		fprintf(stderr,
			"%s: %s: written by another version of the plugin (statistics version %u, "
			"this program reads %d); use the nccl-ha that came with it\n",
			looking->command, path, version, NCCL_HA_STATS_VERSION);
	else
		fprintf(stderr, "%s: %s: %s\n", looking->command, path,
			err == EPROTO ? "damaged, cut off or no statistics file; passed over"
				      : strerror(err));
}

/* A process that starts has locked its file and not written the magic number yet. */
static bool is_starting(int fd)
{
	uint64_t magic = 0;

	return pread(fd, &magic, sizeof(magic), 0) >= 0 && magic == 0;
}

static void visit(void *arg, const struct ha_stats_found *found)
{
	struct looking *looking = arg;
	struct nh_snapshot *snapshot = looking->snapshot;
	struct nh_process *grown, *p;
	struct user *user;
	uint32_t version = 0;
	int err;

	if (!found->live && !looking->select->dead) {
		snapshot->ndead++;
		return;
	}
	user = find_user(looking, found->uid);
	if (user && !has_files_left(looking, user))
		return;
	grown = realloc(snapshot->processes, (snapshot->nprocesses + 1) * sizeof(*grown));
	if (!user || !grown) {
		looking->err = ENOMEM;
		return;
	}
	snapshot->processes = grown;
	p = &grown[snapshot->nprocesses];
	memset(p, 0, sizeof(*p));
	p->live = found->live;
	err = read_file(p, found->fd, &user->budget_ns, &version);
	if (err) {
		if (!found->live || err != EPROTO || !is_starting(found->fd))
			complain(looking, found->path, err, version);
		return;
	}
	if (!nh_selected(looking->select, &p->job)) {
		snapshot->nothers++;
		forget_records(p);
		return;
	}
	snprintf(p->path, sizeof(p->path), "%s", found->path);
	snprintf(p->key, sizeof(p->key), "%s",
		 strchr(found->name + strlen(NCCL_HA_STATS_PREFIX), '.') + 1);
	p->uid = found->uid;
	snapshot->nprocesses++;
}

static int by_job_rank_pid(const void *a, const void *b)
{
	const struct nh_process *p = a, *q = b;
	int order = strcmp(p->job.job_id, q->job.job_id);

	if (order == 0)
		order = (p->job.rank > q->job.rank) - (p->job.rank < q->job.rank);
	if (order == 0)
		order = (p->job.pid > q->job.pid) - (p->job.pid < q->job.pid);
	return order ? order : strcmp(p->path, q->path);
}

/* Root, and who may read everything and nothing else, as a service does that publishes metrics. */
static bool sees_all_users(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

	if (geteuid() == 0)
		return true;
	return syscall(SYS_capget, &header, data) == 0 &&
	       (data[0].effective & 1u << CAP_DAC_READ_SEARCH);
}

int nh_snapshot_take(struct nh_snapshot *snapshot, const struct nh_select *select,
		     const char *command)
{
	struct looking looking = {.snapshot = snapshot, .select = select, .command = command};
	unsigned int uid = sees_all_users() ? HA_STATS_ALL_USERS : (unsigned int)getuid();
	int err;

	memset(snapshot, 0, sizeof(*snapshot));
	snapshot->taken_ns = clock_ns(CLOCK_REALTIME);
	snapshot->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
	err = ha_stats_files_visit(uid, visit, &looking);
	free(looking.users);
	if (!err)
		err = looking.err;
	snapshot->looked = err == 0;
	if (err && command)
		fprintf(stderr, "%s: %s: %s\n", command, ha_stats_dir, strerror(err));
	if (snapshot->nprocesses)
		qsort(snapshot->processes, snapshot->nprocesses, sizeof(*snapshot->processes),
		      by_job_rank_pid);
	return err;
}

void nh_snapshot_free(struct nh_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->nprocesses; i++)
		forget_records(&snapshot->processes[i]);
	free(snapshot->processes);
	memset(snapshot, 0, sizeof(*snapshot));
}

int nh_no_job(const struct nh_snapshot *snapshot, const struct nh_select *select,
	      const char *command, bool json)
{
	if (json && snapshot->looked && snapshot->nunreadable == 0)
		return NH_EXIT_OK;
	nh_say_no_job(snapshot, select, command);
	return NH_EXIT_NO_JOB;
}

void nh_say_no_job(const struct nh_snapshot *snapshot, const struct nh_select *select,
		   const char *command)
{
	if (nh_select_is_narrow(select) && snapshot->nothers)
		fprintf(stderr, "%s: no such process; %zu others use the plugin here\n", command,
			snapshot->nothers);
	else
		fprintf(
		    stderr,
		    "%s: no process of %s uses the plugin here (or it was started with "
		    "HA_NCCL_STATS=0, or in a container with a /dev/shm of its own: see --dir)\n",
		    command, sees_all_users() ? "any user" : "this user");
	if (snapshot->ndead)
		fprintf(stderr, "%s: %zu that were killed left statistics behind: see --dead\n",
			command, snapshot->ndead);
}
