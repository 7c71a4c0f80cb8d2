/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/exposition.h"

#include "base/version.h"
#include "tools/nccl-ha/label.h"
#include "tools/nccl-ha/port_health.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/view.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABELS_MAX 512

/* What is written, and of what. */
struct page {
	FILE *out;
	const struct nh_snapshot *snapshot;
	char (*labels)[LABELS_MAX]; /* of each process */
};

/* ---- the format ----------------------------------------------------------------------------- */

static void append_label(char labels[LABELS_MAX], const char *name, const char *value)
{
	nh_label_append(labels, LABELS_MAX, name, value);
}

static void append_number(char labels[LABELS_MAX], const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	append_label(labels, name, text);
}

/* `help` is ours and has nothing to be escaped. */
static void family(const struct page *page, const char *name, const char *type, const char *help)
{
	fprintf(page->out, "# HELP %s %s.\n# TYPE %s %s\n", name, help, name, type);
}

static void sample(const struct page *page, const char *name, const char *labels, uint64_t value)
{
	fprintf(page->out, "%s{%s} %" PRIu64 "\n", name, labels, value);
}

static void seconds_sample(const struct page *page, const char *name, const char *suffix,
			   const char *labels, uint64_t ns)
{
	fprintf(page->out, "%s%s{%s} %" PRIu64 ".%09" PRIu64 "\n", name, suffix, labels,
		ns / 1000000000, ns % 1000000000);
}

/* Bucket i of ours holds up to 2^i - 1 ns. The same ones each time: from 1 µs to 69 s. */
#define FIRST_BUCKET 10
#define LAST_BUCKET  36

static void histogram_samples(const struct page *page, const char *name, const char *labels,
			      const struct nccl_ha_histogram *histogram)
{
	uint64_t below = 0;

	for (int i = 0; i < NCCL_HA_HISTOGRAM_BUCKETS; i++) {
		below += histogram->count[i];
		if (i >= FIRST_BUCKET && i <= LAST_BUCKET)
			fprintf(page->out, "%s_bucket{%s,le=\"%.12g\"} %" PRIu64 "\n", name, labels,
				(double)((1ull << i) - 1) / 1e9, below);
	}
	fprintf(page->out, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", name, labels, below);
	seconds_sample(page, name, "_sum", labels, histogram->sum_ns);
	fprintf(page->out, "%s_count{%s} %" PRIu64 "\n", name, labels, below);
}

/* ---- counters of stats.h -------------------------------------------------------------------- */

struct counter {
	const char *name, *help;
	size_t offset; /* in its stats */
	size_t closed; /* of connections: in struct nccl_ha_closed_stats */
};

static const struct counter job_counters[] = {
#define ROW(n, h) {#n, h, offsetof(struct nccl_ha_job_stats, n), 0},
    NCCL_HA_JOB_COUNTERS(ROW) NCCL_HA_JOB_REFUSED_COUNTERS(ROW)
#undef ROW
};

static const struct counter inc_counters[] = {
#define ROW(n, h) {#n, h, offsetof(struct nccl_ha_job_stats, inc.n), 0},
    NCCL_HA_INC_COUNTERS(ROW)
#undef ROW
};

static const struct counter port_counters[] = {
#define ROW(n, h) {#n, h, offsetof(struct nccl_ha_port_stats, n), 0},
    NCCL_HA_PORT_COUNTERS(ROW) NCCL_HA_PORT_MORE_COUNTERS(ROW) NCCL_HA_PORT_RAIL_COUNTERS(ROW)
	NCCL_HA_PORT_SHED_COUNTERS(ROW) NCCL_HA_PORT_LEAK_COUNTERS(ROW)
#undef ROW
};

static const struct counter conn_counters[] = {
#define ROW(n, h)                                                                                  \
	{#n, h, offsetof(struct nccl_ha_conn_stats, n), offsetof(struct nccl_ha_closed_stats, n)},
    NCCL_HA_CONN_COUNTERS(ROW)
#undef ROW
};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t value_at(const void *stats, size_t offset)
{
	uint64_t value;

	memcpy(&value, (const char *)stats + offset, sizeof(value));
	return value;
}

/* As stats.h has it: a total, unless the text ends in "now". */
static bool is_total(const struct counter *counter)
{
	size_t length = strlen(counter->help);

	return length < 4 || strcmp(counter->help + length - 4, " now") != 0;
}

/* Writes the family's head; `name` gets its name. */
static void counter_family(const struct page *page, const char *prefix,
			   const struct counter *counter, char name[96])
{
	snprintf(name, 96, "nccl_ha_%s_%s%s", prefix, counter->name,
		 is_total(counter) ? "_total" : "");
	family(page, name, is_total(counter) ? "counter" : "gauge", counter->help);
}

/* ---- processes ------------------------------------------------------------------------------ */

static const struct nh_process *process_of(const struct page *page, size_t i)
{
	return &page->snapshot->processes[i];
}

static void label_processes(struct page *page)
{
	for (size_t i = 0; i < page->snapshot->nprocesses; i++) {
		const struct nh_process *p = process_of(page, i);
		char rank[16] = "";

		if (p->job.rank >= 0)
			snprintf(rank, sizeof(rank), "%d", p->job.rank);
		append_label(page->labels[i], "job_id", p->job.job_id);
		append_label(page->labels[i], "rank", rank);
		append_label(page->labels[i], "pid", p->key);
		append_number(page->labels[i], "uid", p->uid);
	}
}

static void write_tool(const struct page *page)
{
	family(page, "nccl_ha_build_info", "gauge", "Version of the program that says all this");
	fprintf(page->out, "nccl_ha_build_info{version=\"%s\"} 1\n", ha_version);
	family(page, "nccl_ha_processes", "gauge", "Processes that use the plugin here now");
	fprintf(page->out, "nccl_ha_processes %zu\n", page->snapshot->nprocesses);
	family(page, "nccl_ha_unreadable_files", "gauge",
	       "Statistics files that are damaged or of another version");
	fprintf(page->out, "nccl_ha_unreadable_files %zu\n", page->snapshot->nunreadable);
}

static void write_jobs(const struct page *page)
{
	size_t n = page->snapshot->nprocesses;
	char labels[2 * LABELS_MAX], name[96];

	family(page, "nccl_ha_job_info", "gauge", "A process that uses the plugin; always 1");
	for (size_t i = 0; i < n; i++) {
		const struct nccl_ha_job_stats *job = &process_of(page, i)->job;
		char more[LABELS_MAX] = "";

		append_label(more, "host", job->host);
		append_label(more, "program", job->program);
		append_label(more, "version", job->plugin_version);
		snprintf(labels, sizeof(labels), "%s,%s", page->labels[i], more);
		sample(page, "nccl_ha_job_info", labels, 1);
	}
	family(page, "nccl_ha_job_start_time_seconds", "gauge", "When the plugin started");
	for (size_t i = 0; i < n; i++)
		seconds_sample(page, "nccl_ha_job_start_time_seconds", "", page->labels[i],
			       process_of(page, i)->job.started_ns);
	for (size_t c = 0; c < LENGTH(job_counters); c++) {
		counter_family(page, "job", &job_counters[c], name);
		for (size_t i = 0; i < n; i++)
			sample(page, name, page->labels[i],
			       value_at(&process_of(page, i)->job, job_counters[c].offset));
	}
}

/* ---- all-reduces in the network ------------------------------------------------------------- */

/* Of processes that have asked for it: most have not. */
static bool has_inc(const struct nccl_ha_job_stats *job)
{
	return job->inc.groups_joined || job->inc.groups_refused;
}

static void write_inc(const struct page *page)
{
	const size_t n = page->snapshot->nprocesses;
	char name[96];

	for (size_t c = 0; c < LENGTH(inc_counters); c++) {
		counter_family(page, "inc", &inc_counters[c], name);
		for (size_t i = 0; i < n; i++)
			if (has_inc(&process_of(page, i)->job))
				sample(page, name, page->labels[i],
				       value_at(&process_of(page, i)->job, inc_counters[c].offset));
	}
	family(page, "nccl_ha_inc_pause_seconds", "histogram",
	       "From a way's end until another one was joined");
	for (size_t i = 0; i < n; i++)
		if (has_inc(&process_of(page, i)->job))
			histogram_samples(page, "nccl_ha_inc_pause_seconds", page->labels[i],
					  &process_of(page, i)->job.inc.pause);
}

/* ---- ports ---------------------------------------------------------------------------------- */

static void port_labels(const struct page *page, size_t process, const struct nh_port *port,
			char labels[LABELS_MAX])
{
	char name[NH_PORT_NAME_MAX];

	memcpy(labels, page->labels[process], LABELS_MAX);
	append_label(labels, "port", nh_port_name(port, name));
}

/* Calls one for each port, with its labels. */
static void each_port(const struct page *page,
		      void (*one)(const struct page *page, const char *labels,
				  const struct nh_process *process, const struct nh_port *port,
				  const void *arg),
		      const void *arg)
{
	char labels[LABELS_MAX];

	for (size_t i = 0; i < page->snapshot->nprocesses; i++) {
		const struct nh_process *process = process_of(page, i);

		for (size_t j = 0; j < process->nports; j++) {
			port_labels(page, i, &process->ports[j], labels);
			one(page, labels, process, &process->ports[j], arg);
		}
	}
}

struct port_counter {
	const char *name;
	size_t offset;
};

static void port_counter_sample(const struct page *page, const char *labels,
				const struct nh_process *process, const struct nh_port *port,
				const void *arg)
{
	const struct port_counter *counter = arg;

	(void)process;
	sample(page, counter->name, labels, value_at(&port->stats, counter->offset));
}

static void port_up_sample(const struct page *page, const char *labels,
			   const struct nh_process *process, const struct nh_port *port,
			   const void *arg)
{
	(void)process;
	(void)arg;
	sample(page, "nccl_ha_port_up", labels,
	       !strcmp(nh_port_state_text(&port->stats), "active"));
}

static void port_silent_sample(const struct page *page, const char *labels,
			       const struct nh_process *process, const struct nh_port *port,
			       const void *arg)
{
	(void)process;
	(void)arg;
	sample(page, "nccl_ha_port_silent", labels, nh_port_is_silent(&port->stats));
}

static void port_drained_sample(const struct page *page, const char *labels,
				const struct nh_process *process, const struct nh_port *port,
				const void *arg)
{
	(void)process;
	(void)arg;
	sample(page, "nccl_ha_port_drained", labels, port->stats.drained != 0);
}

static void port_health_samples(const struct page *page, const char *labels,
				const struct nh_process *process, const struct nh_port *port,
				const void *arg)
{
	struct nh_port_health health;

	(void)arg;
	nh_port_health(process, port, &health);
	for (int h = 0; h < NH_HEALTH_COUNT; h++) {
		char more[LABELS_MAX];

		memcpy(more, labels, sizeof(more));
		append_label(more, "state", nh_health_name((enum nh_health)h));
		sample(page, "nccl_ha_port_health", more, health.health == (enum nh_health)h);
	}
}

static void port_left_sample(const struct page *page, const char *labels,
			     const struct nh_process *process, const struct nh_port *port,
			     const void *arg)
{
	struct nh_port_health health;

	(void)arg;
	nh_port_health(process, port, &health);
	seconds_sample(page, "nccl_ha_port_left_time_seconds", "", labels, health.since_ns);
}

static void port_speed_sample(const struct page *page, const char *labels,
			      const struct nh_process *process, const struct nh_port *port,
			      const void *arg)
{
	(void)process;
	(void)arg;
	sample(page, "nccl_ha_port_speed_bytes_per_second", labels,
	       (uint64_t)port->stats.speed_mbps * 125000);
}

static void port_rtt_samples(const struct page *page, const char *labels,
			     const struct nh_process *process, const struct nh_port *port,
			     const void *arg)
{
	(void)process;
	(void)arg;
	histogram_samples(page, "nccl_ha_port_heartbeat_rtt_seconds", labels,
			  &port->stats.heartbeat_rtt);
}

static void connections_samples(const struct page *page, const char *labels,
				const struct nh_process *process, const struct nh_port *port,
				const void *arg)
{
	size_t by_standing[NH_STANDING_COUNT] = {0};

	(void)arg;
	for (size_t i = 0; i < process->nconns; i++)
		if (nh_port_of(process, process->conns[i].stats.device) == port)
			by_standing[nh_standing(&process->conns[i].stats)]++;
	for (int s = 0; s < NH_STANDING_COUNT; s++) {
		char more[LABELS_MAX];

		memcpy(more, labels, sizeof(more));
		append_label(more, "state", nh_standing_text((enum nh_standing)s));
		sample(page, "nccl_ha_connections", more, by_standing[s]);
	}
}

static void write_ports(const struct page *page)
{
	char name[96];

	family(page, "nccl_ha_port_up", "gauge", "1: the port is active and its device alive");
	each_port(page, port_up_sample, NULL);
	family(page, "nccl_ha_port_silent", "gauge",
	       "1: heartbeats go out over the port and no remote port answers");
	each_port(page, port_silent_sample, NULL);
	family(page, "nccl_ha_port_drained", "gauge",
	       "1: the operator wants the port left alone (nccl-ha failover)");
	each_port(page, port_drained_sample, NULL);
	family(page, "nccl_ha_port_health", "gauge",
	       "1 for the state that the port is in: unused, good, drained, unprotected, degraded, "
	       "stopped");
	each_port(page, port_health_samples, NULL);
	family(page, "nccl_ha_port_left_time_seconds", "gauge",
	       "Since when other ports serve connections that this one should; 0: there are none");
	each_port(page, port_left_sample, NULL);
	family(page, "nccl_ha_port_speed_bytes_per_second", "gauge", "Nominal speed of the port");
	each_port(page, port_speed_sample, NULL);
	for (size_t c = 0; c < LENGTH(port_counters); c++) {
		struct port_counter counter = {name, port_counters[c].offset};

		counter_family(page, "port", &port_counters[c], name);
		each_port(page, port_counter_sample, &counter);
	}
	family(page, "nccl_ha_port_heartbeat_rtt_seconds", "histogram",
	       "Round trips of heartbeats, over all remote ports");
	each_port(page, port_rtt_samples, NULL);
	family(
	    page, "nccl_ha_connections", "gauge",
	    "Open connections by the port of their active path and by how they stand: protected, "
	    "unprotected, failing over, failed");
	each_port(page, connections_samples, NULL);
}

/* ---- connections, added up ------------------------------------------------------------------ */

static void add_histogram(struct nccl_ha_histogram *to, const struct nccl_ha_histogram *from)
{
	for (int i = 0; i < NCCL_HA_HISTOGRAM_BUCKETS; i++)
		to->count[i] += from->count[i];
	to->sum_ns += from->sum_ns;
}

/* Of all connections that the process ever had; `conn` and `closed` say where it is. */
static void summed_histogram(const struct page *page, const char *name, const char *help,
			     size_t conn, size_t closed)
{
	family(page, name, "histogram", help);
	for (size_t i = 0; i < page->snapshot->nprocesses; i++) {
		const struct nh_process *p = process_of(page, i);
		struct nccl_ha_histogram sum = {{0}, 0, 0}, one;

		memcpy(&one, (const char *)&p->job.closed + closed, sizeof(one));
		add_histogram(&sum, &one);
		for (size_t c = 0; c < p->nconns; c++) {
			memcpy(&one, (const char *)&p->conns[c].stats + conn, sizeof(one));
			add_histogram(&sum, &one);
		}
		histogram_samples(page, name, page->labels[i], &sum);
	}
}

static void write_connections(const struct page *page)
{
	char name[96];

	for (size_t c = 0; c < LENGTH(conn_counters); c++) {
		counter_family(page, "conn", &conn_counters[c], name);
		for (size_t i = 0; i < page->snapshot->nprocesses; i++) {
			const struct nh_process *p = process_of(page, i);
			uint64_t sum = value_at(&p->job.closed, conn_counters[c].closed);

			for (size_t j = 0; j < p->nconns; j++)
				sum += value_at(&p->conns[j].stats, conn_counters[c].offset);
			sample(page, name, page->labels[i], sum);
		}
	}
	summed_histogram(page, "nccl_ha_conn_detection_seconds",
			 "From the last sign of life of a path that failed until it was noticed",
			 offsetof(struct nccl_ha_conn_stats, detection),
			 offsetof(struct nccl_ha_closed_stats, detection));
	summed_histogram(
	    page, "nccl_ha_conn_blackout_seconds",
	    "From the last sign of life of a path that failed until data could flow again",
	    offsetof(struct nccl_ha_conn_stats, blackout),
	    offsetof(struct nccl_ha_closed_stats, blackout));
}

/* ---- each connection ------------------------------------------------------------------------ */

static void each_label(const struct page *page, size_t i, const struct nccl_ha_conn_stats *conn,
		       char labels[LABELS_MAX])
{
	char id[24], name[NH_PORT_NAME_MAX];

	memcpy(labels, page->labels[i], LABELS_MAX);
	snprintf(id, sizeof(id), "%016" PRIx64, conn->id);
	append_label(labels, "connection", id);
	append_label(labels, "direction", nh_direction_text(conn->direction));
	append_label(labels, "port", nh_device_name(process_of(page, i), conn->device, name));
	append_label(labels, "peer", conn->peer);
}

static void write_each(const struct page *page, const char *name, size_t offset, bool standing)
{
	char labels[LABELS_MAX];

	for (size_t i = 0; i < page->snapshot->nprocesses; i++) {
		const struct nh_process *p = process_of(page, i);

		for (size_t j = 0; j < p->nconns; j++) {
			const struct nccl_ha_conn_stats *conn = &p->conns[j].stats;

			each_label(page, i, conn, labels);
			sample(page, name, labels,
			       standing ? nh_standing(conn) == NH_PROTECTED
					: value_at(conn, offset));
		}
	}
}

/* Of a sender; 0 where it carried something and is parked now. */
static void write_shares(const struct page *page, size_t i, const struct nccl_ha_conn_stats *conn)
{
	for (unsigned rail = 0; rail < NCCL_HA_MAX_RAILS; rail++) {
		const struct nccl_ha_rail_stats *stats = &conn->rails[rail];
		char labels[LABELS_MAX], number[16];

		if (conn->direction != NCCL_HA_CONN_SEND ||
		    (stats->stripes == 0 && stats->share == 0))
			continue;
		snprintf(number, sizeof(number), "%u", rail);
		each_label(page, i, conn, labels);
		append_label(labels, "rail", number);
		fprintf(page->out, "nccl_ha_connection_rail_share{%s} %.4f\n", labels,
			stats->share / 1024.0);
	}
}

static void write_each_connection(const struct page *page)
{
	char name[96];

	family(page, "nccl_ha_connection_protected", "gauge",
	       "1: another path is ready to take over");
	write_each(page, "nccl_ha_connection_protected", 0, true);
	for (size_t c = 0; c < LENGTH(conn_counters); c++) {
		counter_family(page, "connection", &conn_counters[c], name);
		write_each(page, name, conn_counters[c].offset, false);
	}
	family(
	    page, "nccl_ha_connection_rail_share", "gauge",
	    "Part of a message that is cut which a sender gives this rail now; 0: it is parked, or "
	    "carries nothing");
	for (size_t i = 0; i < page->snapshot->nprocesses; i++)
		for (size_t j = 0; j < process_of(page, i)->nconns; j++)
			write_shares(page, i, &process_of(page, i)->conns[j].stats);
}

char *nh_exposition(const struct nh_snapshot *snapshot, bool connections, size_t *length)
{
	struct page page = {.snapshot = snapshot};
	char *text = NULL;
	bool ok;

	page.out = open_memstream(&text, length);
	page.labels = calloc(snapshot->nprocesses + 1, sizeof(*page.labels));
	if (page.out && page.labels) {
		label_processes(&page);
		write_tool(&page);
		write_jobs(&page);
		write_ports(&page);
		write_connections(&page);
		write_inc(&page);
		if (connections)
			write_each_connection(&page);
	}
	free(page.labels);
	ok = page.labels && page.out && !ferror(page.out);
	if ((page.out && fclose(page.out) != 0) || !ok) {
		free(text);
		return NULL;
	}
	return text;
}
