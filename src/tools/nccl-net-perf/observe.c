/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings and counters of the plugin. */
#include "tools/nccl-net-perf/observe.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/stats_reader.h"
#include "tools/common/clock.h"
#include "tools/common/logger.h"
#include "tools/common/netplugin.h"

static struct {
	pthread_mutex_t lock; /* protects what follows: the plugin's threads log when they like */
	struct np_observed seen;
} the = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- warnings ------------------------------------------------------------------------------ */

static void take_line(void *arg, ncclDebugLogLevel level, unsigned long flags, const char *text)
{
	struct np_warning *w;

	(void)arg;
	(void)flags;
	if (level != NCCL_LOG_WARN)
		return;
	pthread_mutex_lock(&the.lock);
	if (the.seen.warnings_seen < NP_WARNINGS_KEPT) {
		w = &the.seen.warnings[the.seen.warnings_seen];
		w->at_ns = np_now_ns() - the.seen.origin_ns;
		snprintf(w->text, sizeof(w->text), "%s", text);
	}
	the.seen.warnings_seen++;
	pthread_mutex_unlock(&the.lock);
}

void np_observe_origin(uint64_t origin_ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	pthread_mutex_lock(&the.lock);
	the.seen.origin_ns = origin_ns;
	the.seen.origin_unix_ns = (uint64_t)ts.tv_sec * NP_NS_PER_S + (uint64_t)ts.tv_nsec;
	pthread_mutex_unlock(&the.lock);
}

void np_observe_start(uint64_t origin_ns)
{
	np_observe_origin(origin_ns);
	np_logger_set_sink(take_line, NULL);
}

void np_observe_take(struct np_observed *to)
{
	pthread_mutex_lock(&the.lock);
	*to = the.seen;
	pthread_mutex_unlock(&the.lock);
}

/* ---- counters ------------------------------------------------------------------------------ */

#define COPY_TRIES    50
#define COPY_PAUSE_US 1000

/* Whether a file is this process's. What is being written there comes a moment later. */
static bool is_own(struct ha_stats_reader *reader)
{
	struct nccl_ha_job_stats job;

	for (int tries = 0; tries < COPY_TRIES; tries++) {
		if (ha_stats_read_job(reader, &job))
			return job.pid == (uint32_t)getpid();
		usleep(COPY_PAUSE_US);
	}
	return false;
}

/* This process's file; a suffix tells it from that of an equal PID in another container. */
static bool open_own_file(struct ha_stats_reader *reader)
{
	char path[80], suffix[4] = "";

	for (int i = 0; i < 10; i++) {
		if (i)
			snprintf(suffix, sizeof(suffix), ".%d", i);
		snprintf(path, sizeof(path), "%s/%s%u/%s%u.%d%s", NCCL_HA_STATS_DIR,
			 NCCL_HA_STATS_FOLDER, (unsigned)geteuid(), NCCL_HA_STATS_PREFIX,
			 (unsigned)getuid(), (int)getpid(), suffix);
		if (ha_stats_reader_open(reader, path) != 0)
			continue;
		if (is_own(reader))
			return true;
		ha_stats_reader_close(reader);
	}
	return false;
}

static void add_ports(struct ha_stats_reader *reader, struct np_observed *to)
{
	struct nccl_ha_port_stats port;

	for (unsigned i = 0; i < reader->header.ports.count; i++) {
		uint64_t *sum = to->ports;

		if (!ha_stats_read_port(reader, i, &port))
			continue;
#define ADD(name, help) *sum++ += port.name;
		NCCL_HA_PORT_COUNTERS(ADD)
#undef ADD
	}
}

static void add_conns(struct ha_stats_reader *reader, struct np_observed *to)
{
	struct nccl_ha_conn_stats conn;

	for (unsigned i = 0; i < reader->header.conns.count; i++) {
		uint64_t *sum = to->conns;

		if (!ha_stats_read_conn(reader, i, &conn))
			continue;
#define ADD(name, help) *sum++ += conn.name;
		NCCL_HA_CONN_COUNTERS(ADD)
#undef ADD
	}
}

/* With the lock. */
static void copy_counters(struct ha_stats_reader *reader)
{
	struct nccl_ha_job_stats job;
	uint64_t *to = the.seen.job;

	reader->torn = 0;
	if (!ha_stats_read_job(reader, &job))
		return;
#define COPY(name, help) *to++ = job.name;
	NCCL_HA_JOB_COUNTERS(COPY)
#undef COPY
	memset(the.seen.ports, 0, sizeof(the.seen.ports));
	memset(the.seen.conns, 0, sizeof(the.seen.conns));
	add_ports(reader, &the.seen);
	add_conns(reader, &the.seen);
	the.seen.counted = 1;
}

void np_observe_counters(void)
{
	struct ha_stats_reader reader;

	if (!open_own_file(&reader))
		return;
	pthread_mutex_lock(&the.lock);
	copy_counters(&reader);
	/* What is being written comes a moment later. */
	for (int tries = 0; reader.torn > 0 && tries < COPY_TRIES; tries++) {
		usleep(COPY_PAUSE_US);
		copy_counters(&reader);
	}
	pthread_mutex_unlock(&the.lock);
	ha_stats_reader_close(&reader);
}

/* ---- the report ---------------------------------------------------------------------------- */

static json_t *integer(uint64_t value)
{
	return json_integer((json_int_t)value);
}

static json_t *clock_object(const struct np_observed *by_rank, int nranks)
{
	json_t *origins = json_array();

	for (int r = 0; r < nranks; r++)
		json_array_append_new(origins, integer(by_rank[r].origin_ns));
	return json_pack("{s:o, s:f}", "monotonic_ns", origins, "unix_s",
			 (double)by_rank[0].origin_unix_ns / 1e9);
}

static json_t *warnings_array(const struct np_observed *by_rank, int nranks)
{
	json_t *list = json_array();

	for (int r = 0; r < nranks; r++) {
		const struct np_observed *o = &by_rank[r];

		for (uint64_t i = 0; i < o->warnings_seen && i < NP_WARNINGS_KEPT; i++)
			json_array_append_new(list,
					      json_pack("{s:i, s:f, s:o}", "rank", r, "at_ms",
							(double)o->warnings[i].at_ns / 1e6, "text",
							json_string_nocheck(o->warnings[i].text)));
	}
	return list;
}

/* Sums of all ranks, by name. */
static json_t *counters_object(const struct np_observed *by_rank, int nranks)
{
	json_t *job = json_object(), *ports = json_object(), *conns = json_object();
	struct np_observed sum = {0};
	const uint64_t *next;

	for (int r = 0; r < nranks; r++) {
		for (int i = 0; i < NP_JOB_COUNTERS; i++)
			sum.job[i] += by_rank[r].job[i];
		for (int i = 0; i < NP_PORT_COUNTERS; i++)
			sum.ports[i] += by_rank[r].ports[i];
		for (int i = 0; i < NP_CONN_COUNTERS; i++)
			sum.conns[i] += by_rank[r].conns[i];
	}
	next = sum.job;
#define SHOW(name, help) json_object_set_new(job, #name, integer(*next++));
	NCCL_HA_JOB_COUNTERS(SHOW)
#undef SHOW
	next = sum.ports;
#define SHOW(name, help) json_object_set_new(ports, #name, integer(*next++));
	NCCL_HA_PORT_COUNTERS(SHOW)
#undef SHOW
	next = sum.conns;
#define SHOW(name, help) json_object_set_new(conns, #name, integer(*next++));
	NCCL_HA_CONN_COUNTERS(SHOW)
#undef SHOW
	return json_pack("{s:o, s:o, s:o}", "job", job, "ports", ports, "connections", conns);
}

bool np_observe_add_json(json_t *root, const struct np_observed *by_rank, int nranks)
{
	bool counted = false;
	uint64_t seen = 0;

	for (int r = 0; r < nranks; r++) {
		counted |= by_rank[r].counted != 0;
		seen += by_rank[r].warnings_seen;
	}
	if (json_object_set_new(root, "clock", clock_object(by_rank, nranks)) != 0 ||
	    json_object_set_new(root, "warnings_seen", integer(seen)) != 0 ||
	    json_object_set_new(root, "warnings", warnings_array(by_rank, nranks)) != 0)
		return false;
	return !counted ||
	       json_object_set_new(root, "counters", counters_object(by_rank, nranks)) == 0;
}
