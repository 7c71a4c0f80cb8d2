/* SPDX-License-Identifier: Apache-2.0 */
/* The statistics file of this process: creating, writing, removing it. */
#include "base/stats.h"

#include "base/clock.h"
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
#include <sys/mman.h>
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
	struct layout *mapped;
	struct nccl_ha_job_stats job;
	bool port_taken[MAX_PORTS];
	bool conn_taken[MAX_CONNS];
};

/* The process's one instance. The lock protects all of it; the record writes need none. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ha_stats the_stats;

/* ---- records -------------------------------------------------------------------------------- */

static bool write_record(uint64_t *seq, void *record, const void *from, size_t size)
{
	return ha_seqlock_try_write(seq, record, from, size / sizeof(uint64_t));
}

/* With the lock held: nobody else writes the job record. */
static void write_job(struct ha_stats *stats)
{
	write_record(&stats->mapped->job.seq, &stats->mapped->job.stats, &stats->job,
		     sizeof stats->job);
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

/* Clears a record. Its user has stopped writing, but a write of it may still be under way. */
static void clear_record(uint64_t *seq, void *record, const void *zeros, size_t size)
{
	for (int tries = 0; tries < 1000 && !write_record(seq, record, zeros, size); tries++)
		sched_yield();
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
		write_record(&stats->mapped->ports[slot].seq, &stats->mapped->ports[slot].stats,
			     port, sizeof *port);
}

void ha_stats_port_remove(struct ha_stats *stats, int slot)
{
	static const struct nccl_ha_port_stats none;

	if (!stats || slot < 0)
		return;
	clear_record(&stats->mapped->ports[slot].seq, &stats->mapped->ports[slot].stats, &none,
		     sizeof none);
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
		write_record(&stats->mapped->conns[slot].seq, &stats->mapped->conns[slot].stats,
			     conn, sizeof *conn);
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
	struct nccl_ha_conn_record *record;

	if (!stats || slot < 0)
		return;
	record = &stats->mapped->conns[slot];
	pthread_mutex_lock(&lock);
	stats->job.closings++;
	write_job(stats);
	if (ha_seqlock_read(&record->seq, (uint64_t *)&record->stats, (uint64_t *)&last,
			    sizeof last / sizeof(uint64_t), 1000))
		add_to_closed(&stats->job.closed, &last);
	clear_record(&record->seq, &record->stats, &none, sizeof none);
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
		struct nccl_ha_config_record *record = &stats->mapped->config[i];
		struct nccl_ha_config_stats var = {.in_use = 1,
						   .origin = origins[config->origin[i]]};

		snprintf(var.name, sizeof var.name, "%s", ha_config_vars[i].name);
		ha_config_value_text(config, &ha_config_vars[i], var.value, sizeof var.value);
		write_record(&record->seq, &record->stats, &var, sizeof var);
	}
}

/* ---- the file's life ------------------------------------------------------------------------ */

static void fill_header(struct layout *layout)
{
	struct nccl_ha_stats_header *header = &layout->header;

	header->version = NCCL_HA_STATS_VERSION;
	header->header_size = sizeof *header;
	header->file_size = sizeof *layout;
	header->job =
	    (struct nccl_ha_stats_table){offsetof(struct layout, job), sizeof layout->job, 1};
	header->ports = (struct nccl_ha_stats_table){offsetof(struct layout, ports),
						     sizeof layout->ports[0], MAX_PORTS};
	header->conns = (struct nccl_ha_stats_table){offsetof(struct layout, conns),
						     sizeof layout->conns[0], MAX_CONNS};
	header->config = (struct nccl_ha_stats_table){
	    offsetof(struct layout, config), sizeof layout->config[0], (uint32_t)ha_config_nvars};
	/* Release: who finds the magic finds the rest. */
	__atomic_store_n(&header->magic, NCCL_HA_STATS_MAGIC, __ATOMIC_RELEASE);
}

/* With the lock held. A child keeps the parent's file as it is. */
static void forget_parents_file(void)
{
	munmap(the_stats.mapped, sizeof *the_stats.mapped);
	close(the_stats.file.fd);
	memset(&the_stats, 0, sizeof the_stats);
}

/* With the lock held. */
static bool create(struct ha_stats *stats, const struct ha_config *config)
{
	int err;

	ha_stats_files_remove_stale();
	err = ha_stats_file_create(&stats->file, sizeof(struct layout));
	if (err) {
		HA_INFO(HA_SUBSYS_INIT, "no statistics in shared memory: %s: %s", ha_stats_dir,
			strerror(err));
		return false;
	}
	stats->mapped = stats->file.mapped;
	stats->pid = getpid();
	describe_job(&stats->job);
	write_job(stats);
	write_config(stats, config);
	fill_header(stats->mapped);
	return true;
}

/* With the lock held. */
static void destroy(struct ha_stats *stats)
{
	ha_stats_file_remove(&stats->file, sizeof(struct layout));
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
 * mapping stays: a thread may still be writing. */
__attribute__((destructor)) static void remove_at_exit(void)
{
	if (the_stats.users > 0 && the_stats.pid == getpid())
		ha_stats_file_unlink(&the_stats.file);
}
