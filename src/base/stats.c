/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics file of this process: creating, writing, removing it. */
#include "base/stats.h"

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/hist.h"
#include "base/launcher_env.h"
#include "base/log.h"
#include "base/seqlock.h"
#include "base/stats_file.h"
#include "base/version.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PORTS NCCL_HA_STATS_PORTS_MAX
#define MAX_CONNS NCCL_HA_STATS_CONNS_MAX

/* The file as this version writes it; readers go by the header. */
struct layout {
	struct nccl_ha_stats_header header;
	struct nccl_ha_job_record job;
	struct nccl_ha_port_record ports[MAX_PORTS];
	struct nccl_ha_conn_record conns[MAX_CONNS];
	struct nccl_ha_config_record config[HA_CONFIG_MAX_VARS];
};

_Static_assert(sizeof(struct layout) <= NCCL_HA_STATS_BYTES_MAX, "readers refuse it");
_Static_assert(HA_CONFIG_MAX_VARS <= NCCL_HA_STATS_CONFIG_MAX, "readers refuse it");

/* Records are copied as 64-bit words. */
_Static_assert(sizeof(struct nccl_ha_job_stats) % 8 == 0, "pad the record");
_Static_assert(sizeof(struct nccl_ha_port_stats) % 8 == 0, "pad the record");
_Static_assert(sizeof(struct nccl_ha_conn_stats) % 8 == 0, "pad the record");
_Static_assert(sizeof(struct nccl_ha_config_stats) % 8 == 0, "pad the record");
_Static_assert(sizeof(struct nccl_ha_stats_header) % 8 == 0, "pad the header");
_Static_assert(NCCL_HA_HISTOGRAM_BUCKETS == HA_HIST_BUCKETS &&
		   sizeof(struct nccl_ha_histogram) == sizeof(struct ha_hist),
	       "histograms are copied as they are");

struct ha_stats {
	int users;
	pid_t pid; /* whose file it is: a forked child must make its own */
	struct ha_stats_file file;
	struct nccl_ha_job_stats job;
	/* The records' sequence numbers as they are in the file; odd: a thread is writing it. */
	uint64_t job_seq, port_seq[MAX_PORTS], conn_seq[MAX_CONNS], config_seq[HA_CONFIG_MAX_VARS];
	uint64_t conn_digest[MAX_CONNS]; /* of what is in the records; 0: not known */
	bool port_taken[MAX_PORTS];
	bool conn_taken[MAX_CONNS];
};

/* The process's one instance. The lock protects all of it; the record writes need none. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ha_stats the_stats;

/* ---- records -------------------------------------------------------------------------------- */

/* A record in the file: a sequence number, then what is in it. */
struct record {
	struct ha_stats *stats;
	uint64_t *seq;
	size_t offset, size; /* of what follows the number, bytes */
	uint64_t *digest;    /* of what is in it; NULL: it is written always */
};

static struct record job_record(struct ha_stats *stats)
{
	return (struct record){stats, &stats->job_seq, offsetof(struct layout, job.stats),
			       sizeof stats->job, NULL};
}

static struct record port_record(struct ha_stats *stats, int slot)
{
	return (struct record){stats, &stats->port_seq[slot],
			       offsetof(struct layout, ports[0].stats) +
				   (size_t)slot * sizeof(struct nccl_ha_port_record),
			       sizeof(struct nccl_ha_port_stats), NULL};
}

static struct record conn_record(struct ha_stats *stats, int slot)
{
	return (struct record){stats, &stats->conn_seq[slot],
			       offsetof(struct layout, conns[0].stats) +
				   (size_t)slot * sizeof(struct nccl_ha_conn_record),
			       sizeof(struct nccl_ha_conn_stats), &stats->conn_digest[slot]};
}

static struct record config_record(struct ha_stats *stats, size_t slot)
{
	return (struct record){stats, &stats->config_seq[slot],
			       offsetof(struct layout, config[0].stats) +
				   slot * sizeof(struct nccl_ha_config_record),
			       sizeof(struct nccl_ha_config_stats), NULL};
}

static bool write_seq(const struct record *record, uint64_t seq)
{
	return ha_stats_file_write(&record->stats->file, record->offset - sizeof seq, &seq,
				   sizeof seq);
}

/*
 * By the one that has begun. A reader sees the number before and after what it stands for: each
 * system call is whole before the next one begins. False: not possible now.
 */
static bool put(const struct record *record, const void *from)
{
	const struct ha_stats_file *file = &record->stats->file;
	uint64_t seq = __atomic_load_n(record->seq, __ATOMIC_RELAXED);
	bool whole;

	if (!ha_stats_file_may_write(file) || !write_seq(record, seq))
		return false;
	whole = ha_stats_file_write(file, record->offset, from, record->size);
	return write_seq(record, seq + 1) && whole; /* the number also after what failed */
}

/* Never 0. Two that differ have the same once in 2^64: then one stays until the next change. */
static uint64_t digest_of(const void *from, size_t size)
{
	const uint64_t *words = from;
	uint64_t digest = size;

	for (size_t i = 0; i < size / sizeof *words; i++) {
		digest = (digest ^ words[i]) * 0x9e3779b97f4a7c15u;
		digest ^= digest >> 29;
	}
	return digest | 1;
}

/* What is there already costs no system call: hundreds of connections are idle most of the time. */
static void put_if_new(const struct record *record, const void *from)
{
	uint64_t digest = record->digest ? digest_of(from, record->size) : 0;

	if (digest != 0 && digest == *record->digest)
		return;
	if (record->digest)
		*record->digest = 0;
	if (put(record, from) && record->digest)
		*record->digest = digest;
}

/* Unless another thread is at it: then its values, of the same moment, stand. */
static void write_record(struct record record, const void *from)
{
	if (!ha_seqlock_try_begin(record.seq))
		return;
	put_if_new(&record, from);
	ha_seqlock_end(record.seq);
}

/* With the lock held: nobody else writes the job record. */
static void write_job(struct ha_stats *stats)
{
	write_record(job_record(stats), &stats->job);
}

/* With the lock held. */
static int take_slot(struct ha_stats *stats, bool *taken, int n)
{
	for (int i = 0; i < n; i++) {
		if (!taken[i]) {
			taken[i] = true;
			return i;
		}
	}
	stats->job.records_missed++;
	return -1;
}

/* Clears a record, after a look at what was in it (NULL: none). Its user has stopped writing, but a
 * write of it may still be under way. False: there was nothing to be had. */
static bool clear_record(struct record record, void *last, const void *zeros)
{
	bool had = false;
	int tries = 0;

	while (!ha_seqlock_try_begin(record.seq)) {
		if (++tries == 1000)
			return false;
		sched_yield();
	}
	if (last)
		had = ha_stats_file_read(&record.stats->file, record.offset, last, record.size);
	put_if_new(&record, zeros);
	ha_seqlock_end(record.seq);
	return had;
}

int ha_stats_port_add(struct ha_stats *stats)
{
	int slot;

	if (!stats)
		return -1;
	pthread_mutex_lock(&lock);
	slot = take_slot(stats, stats->port_taken, MAX_PORTS);
	write_job(stats);
	pthread_mutex_unlock(&lock);
	return slot;
}

void ha_stats_port_write(struct ha_stats *stats, int slot, const struct nccl_ha_port_stats *port)
{
	if (stats && slot >= 0)
		write_record(port_record(stats, slot), port);
}

void ha_stats_port_remove(struct ha_stats *stats, int slot)
{
	static const struct nccl_ha_port_stats none;

	if (!stats || slot < 0)
		return;
	(void)clear_record(port_record(stats, slot), NULL, &none);
	pthread_mutex_lock(&lock);
	stats->port_taken[slot] = false;
	pthread_mutex_unlock(&lock);
}

int ha_stats_conn_add(struct ha_stats *stats)
{
	int slot;

	if (!stats)
		return -1;
	pthread_mutex_lock(&lock);
	slot = take_slot(stats, stats->conn_taken, MAX_CONNS);
	if (slot >= 0) {
		stats->job.connections++;
		stats->job.connections_open++;
	}
	write_job(stats);
	pthread_mutex_unlock(&lock);
	return slot;
}

void ha_stats_conn_write(struct ha_stats *stats, int slot, const struct nccl_ha_conn_stats *conn)
{
	if (stats && slot >= 0)
		write_record(conn_record(stats, slot), conn);
}

static void add_histogram(struct nccl_ha_histogram *to, const struct nccl_ha_histogram *from)
{
	for (int i = 0; i < NCCL_HA_HISTOGRAM_BUCKETS; i++)
		to->count[i] += from->count[i];
	to->sum_ns += from->sum_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
}

/* With the lock held. Nobody writes the record any more. */
static void add_to_closed(struct nccl_ha_closed_stats *closed,
			  const struct nccl_ha_conn_stats *conn)
{
#define ADD(name, help) closed->name += conn->name;
	NCCL_HA_CONN_COUNTERS(ADD)
#undef ADD
	add_histogram(&closed->detection, &conn->detection);
	add_histogram(&closed->blackout, &conn->blackout);
}

void ha_stats_conn_remove(struct ha_stats *stats, int slot)
{
	static const struct nccl_ha_conn_stats none;
	struct nccl_ha_conn_stats last;

	if (!stats || slot < 0)
		return;
	pthread_mutex_lock(&lock);
	stats->job.closings++;
	write_job(stats);
	if (clear_record(conn_record(stats, slot), &last, &none))
		add_to_closed(&stats->job.closed, &last);
	stats->conn_taken[slot] = false;
	stats->job.connections_open--;
	stats->job.closings++;
	write_job(stats);
	pthread_mutex_unlock(&lock);
}

void ha_stats_conn_failed(struct ha_stats *stats)
{
	if (!stats)
		return;
	pthread_mutex_lock(&lock);
	stats->job.connections_failed++;
	write_job(stats);
	pthread_mutex_unlock(&lock);
}

void ha_stats_refused(struct ha_stats *stats, enum ha_refused what)
{
	if (!stats)
		return;
	pthread_mutex_lock(&lock);
	switch (what) {
#define COUNT(name, help)                                                                          \
	case HA_##name:                                                                            \
		stats->job.name++;                                                                 \
		break;
		NCCL_HA_JOB_REFUSED_COUNTERS(COUNT)
#undef COUNT
	case HA_REFUSED_KINDS:
		break;
	}
	write_job(stats);
	pthread_mutex_unlock(&lock);
}

void ha_stats_inc_add(struct ha_stats *stats, const struct nccl_ha_inc_stats *more)
{
	if (!stats)
		return;
	pthread_mutex_lock(&lock);
#define ADD(name, help) stats->job.inc.name += more->name;
	NCCL_HA_INC_COUNTERS(ADD)
#undef ADD
	add_histogram(&stats->job.inc.pause, &more->pause);
	write_job(stats);
	pthread_mutex_unlock(&lock);
}

void ha_stats_event_log(struct ha_stats *stats, const char *path)
{
	if (!stats || strlen(path) >= sizeof stats->job.event_log)
		return;
	pthread_mutex_lock(&lock);
	snprintf(stats->job.event_log, sizeof stats->job.event_log, "%s", path);
	write_job(stats);
	pthread_mutex_unlock(&lock);
}

const char *ha_stats_path(const struct ha_stats *stats)
{
	return stats ? stats->file.path : "";
}

/* ---- the job -------------------------------------------------------------------------------- */

static void describe_job(struct nccl_ha_job_stats *job)
{
	memset(job, 0, sizeof *job);
	job->started_ns = ha_wall_clock_ns();
	job->pid = (uint32_t)getpid();
	job->uid = (uint32_t)getuid();
	job->rank = ha_launcher_rank();
	snprintf(job->job_id, sizeof job->job_id, "%s", ha_launcher_job_id());
	if (gethostname(job->host, sizeof job->host - 1) != 0)
		job->host[0] = '\0';
	snprintf(job->program, sizeof job->program, "%s", program_invocation_short_name);
	snprintf(job->plugin_version, sizeof job->plugin_version, "%s", ha_version);
}

/* ---- configuration -------------------------------------------------------------------------- */

static void write_config(struct ha_stats *stats, const struct ha_config *config)
{
	static const enum nccl_ha_config_origin origins[] = {
	    [HA_ORIGIN_DEFAULT] = NCCL_HA_CONFIG_DEFAULT,
	    [HA_ORIGIN_ENVIRONMENT] = NCCL_HA_CONFIG_ENVIRONMENT,
	    [HA_ORIGIN_INVALID] = NCCL_HA_CONFIG_INVALID,
	};

	for (size_t i = 0; i < ha_config_nvars; i++) {
		struct nccl_ha_config_stats var = {.in_use = 1,
						   .origin = origins[config->origin[i]]};

		snprintf(var.name, sizeof var.name, "%s", ha_config_vars[i].name);
		ha_config_value_text(config, &ha_config_vars[i], var.value, sizeof var.value);
		write_record(config_record(stats, i), &var);
	}
}

/* ---- the file's life ------------------------------------------------------------------------ */

static void write_header(struct ha_stats *stats)
{
	const struct nccl_ha_stats_header header = {
	    .magic = NCCL_HA_STATS_MAGIC,
	    .version = NCCL_HA_STATS_VERSION,
	    .header_size = sizeof header,
	    .file_size = sizeof(struct layout),
	    .job = {offsetof(struct layout, job), sizeof(struct nccl_ha_job_record), 1},
	    .ports = {offsetof(struct layout, ports), sizeof(struct nccl_ha_port_record),
		      MAX_PORTS},
	    .conns = {offsetof(struct layout, conns), sizeof(struct nccl_ha_conn_record),
		      MAX_CONNS},
	    .config = {offsetof(struct layout, config), sizeof(struct nccl_ha_config_record),
		       (uint32_t)ha_config_nvars},
	};
	const size_t magic = sizeof header.magic;

	/* Who finds the magic finds the rest. */
	ha_stats_file_write(&stats->file, magic, (const char *)&header + magic,
			    sizeof header - magic);
	ha_stats_file_write(&stats->file, 0, &header.magic, magic);
}

/* With the lock held. A child keeps the parent's file as it is. */
static void forget_parents_file(void)
{
	ha_fork_close(the_stats.file.fd);
	memset(&the_stats, 0, sizeof the_stats);
}

static const char *reason(int err)
{
	switch (err) {
	case EFBIG:
		return "files of this size are not allowed (ulimit -f)";
	case ENOSPC:
	case ENOMEM:
		return "no room for 2 MiB";
	case EMFILE:
		return "no descriptor is left (ulimit -n)";
	case EEXIST:
		return "all names of this process are taken";
	default:
		return strerror(err);
	}
}

/* With the lock held. */
static bool create(struct ha_stats *stats, const struct ha_config *config)
{
	int err;

	ha_stats_files_remove_stale();
	err = ha_stats_file_create(&stats->file, sizeof(struct layout));
	if (err) {
		HA_WARN("no statistics in %s: %s; the job goes on, and nccl-ha does not see this "
			"process (HA_NCCL_STATS=0: not wanted)",
			ha_stats_dir, reason(err));
		return false;
	}
	stats->pid = getpid();
	describe_job(&stats->job);
	write_job(stats);
	write_config(stats, config);
	write_header(stats);
	return true;
}

/* With the lock held. */
static void destroy(struct ha_stats *stats)
{
	ha_stats_file_remove(&stats->file);
	memset(stats, 0, sizeof *stats);
}

struct ha_stats *ha_stats_open(const struct ha_config *config)
{
	struct ha_stats *stats = &the_stats;

	if (!config->stats)
		return NULL;
	pthread_mutex_lock(&lock);
	if (stats->users > 0 && stats->pid != getpid())
		forget_parents_file();
	if (stats->users == 0 && !create(stats, config))
		stats = NULL;
	else
		stats->users++;
	pthread_mutex_unlock(&lock);
	return stats;
}

void ha_stats_close(struct ha_stats *stats)
{
	if (!stats)
		return;
	pthread_mutex_lock(&lock);
	/* A forked child that closes what its parent opened leaves the parent's file alone. */
	if (stats->pid == getpid() && --stats->users == 0)
		destroy(stats);
	pthread_mutex_unlock(&lock);
}

/* NCCL has no call at the end for plugins of its older interfaces; a normal exit tidies up. The
 * file stays open: a thread may still be writing. */
__attribute__((destructor)) static void remove_at_exit(void)
{
	if (the_stats.users > 0 && the_stats.pid == getpid())
		ha_stats_file_unlink(&the_stats.file);
}
