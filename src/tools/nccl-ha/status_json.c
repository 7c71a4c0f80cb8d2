/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON document of nccl-ha status: docs/operations.md and nccl-ha(1) name its members. Members
 * are added to it; what is there keeps its name and meaning as long as "format" stays 1.
 */
#include "tools/nccl-ha/status_json.h"

#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/view.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void set_ms(json_t *object, const char *name, uint64_t ns)
{
	nh_json_set(object, name, ns ? json_real((double)ns / 1e6) : json_null());
}

/* Samples and quantiles, in milliseconds. */
static json_t *histogram_json(const struct nccl_ha_histogram *histogram)
{
	json_t *out = json_object();
	uint64_t samples = 0;

	for (int i = 0; i < NCCL_HA_HISTOGRAM_BUCKETS; i++)
		samples += histogram->count[i];
	nh_json_set_number(out, "samples", samples);
	set_ms(out, "p50_ms", nh_quantile(histogram, 500));
	set_ms(out, "p99_ms", nh_quantile(histogram, 990));
	set_ms(out, "max_ms", histogram->max_ns);
	return out;
}

/* ---- ports ---------------------------------------------------------------------------------- */

static json_t *port_json(const struct nh_port *port)
{
	const struct nccl_ha_port_stats *stats = &port->stats;
	char name[NH_PORT_NAME_MAX], gid[INET6_ADDRSTRLEN], guid[24];
	json_t *out = json_object(), *counters = json_object();

	nh_json_set_text(out, "port", nh_port_name(port, name));
	nh_json_set(out, "device", stats->device < 0 ? json_null() : json_integer(stats->device));
	if (stats->rails != 0) {
		nh_json_set(out, "nccl_device", json_integer(stats->nccl_device));
		nh_json_set_number(out, "rail", stats->rail);
		nh_json_set_number(out, "rails", stats->rails);
	}
	nh_json_set_text(out, "state", nh_port_state_text(stats));
	nh_json_set(out, "silent", json_boolean(nh_port_is_silent(stats)));
	nh_json_set(out, "drained", json_boolean(stats->drained));
	nh_json_set_text(out, "link_layer", stats->link_layer == 1 ? "InfiniBand" : "Ethernet");
	nh_json_set_number(out, "speed_mbps", stats->speed_mbps);
	nh_json_set(out, "gid_index", json_integer(stats->gid_index));
	nh_json_set_text(out, "gid", inet_ntop(AF_INET6, stats->gid, gid, sizeof(gid)));
	snprintf(guid, sizeof(guid), "%016" PRIx64, stats->guid);
	nh_json_set_text(out, "guid", guid);
	nh_json_set_number(out, "lid", stats->lid);
	nh_json_set(out, "numa_node", json_integer(stats->numa_node));
	nh_json_set_text(out, "pci_path", stats->pci_path);
	nh_json_set(out, "heartbeat_rtt", histogram_json(&stats->heartbeat_rtt));
#define COUNTER(name, help) nh_json_set_number(counters, #name, stats->name);
	NCCL_HA_PORT_COUNTERS(COUNTER)
	NCCL_HA_PORT_MORE_COUNTERS(COUNTER)
	NCCL_HA_PORT_RAIL_COUNTERS(COUNTER)
	NCCL_HA_PORT_SHED_COUNTERS(COUNTER)
	NCCL_HA_PORT_LEAK_COUNTERS(COUNTER)
#undef COUNTER
	nh_json_set(out, "counters", counters);
	return out;
}

/* ---- connections ---------------------------------------------------------------------------- */

static json_t *paths_json(const struct nh_process *process, const struct nccl_ha_conn_stats *conn,
			  bool detailed)
{
	json_t *out = json_array();

	for (unsigned int i = 0; i < NCCL_HA_MAX_PATHS; i++) {
		const struct nccl_ha_path_stats *path = &conn->paths[i];
		char name[NH_PORT_NAME_MAX], guid[24];
		json_t *one;

		if (path->health == NCCL_HA_PATH_NONE)
			continue;
		one = json_object();
		nh_json_set_number(one, "path", i);
		nh_json_set_text(one, "port", nh_device_name(process, path->device, name));
		nh_json_set(one, "active", json_boolean(i == conn->active_path));
		nh_json_set_text(one, "health", nh_health_text(path->health));
		if (detailed) {
			snprintf(guid, sizeof(guid), "%016" PRIx64, path->peer_guid);
			nh_json_set_number(one, "generation", path->generation);
			nh_json_set_text(one, "peer_guid", path->peer_guid ? guid : "");
		}
		json_array_append_new(out, one);
	}
	return out;
}

/* Of a connection whose messages are cut. */
static json_t *rails_json(const struct nccl_ha_conn_stats *conn)
{
	json_t *out = json_array();

	for (unsigned int rail = 0; rail < NCCL_HA_MAX_RAILS; rail++) {
		const struct nccl_ha_rail_stats *stats = &conn->rails[rail];
		const struct nccl_ha_shed_stats *sheds = &conn->sheds[rail];
		json_t *one;

		if (stats->stripes == 0 && stats->share == 0 && sheds->sheds == 0)
			continue;
		one = json_object();
		nh_json_set_number(one, "rail", rail);
		nh_json_set(one, "share", json_real(stats->share / 1024.0));
		nh_json_set_number(one, "stripes", stats->stripes);
		nh_json_set_number(one, "bytes", stats->bytes);
#define COUNTER(name, help) nh_json_set_number(one, #name, sheds->name);
		NCCL_HA_PORT_SHED_COUNTERS(COUNTER)
#undef COUNTER
		json_array_append_new(out, one);
	}
	return out;
}

/* NULL: null. */
static json_t *last_failover_json(const struct nccl_ha_conn_stats *conn)
{
	json_t *out;

	if (!conn || !conn->last_failover_ns)
		return json_null();
	out = json_object();
	nh_json_set_text(out, "reason", conn->last_failover_reason);
	nh_json_set_date(out, "time", conn->last_failover_ns);
	set_ms(out, "blackout_ms", conn->last_blackout_ns);
	return out;
}

static void set_state(json_t *out, const struct nh_process *process,
		      const struct nccl_ha_conn_stats *conn)
{
	enum nh_standing standing = nh_standing(conn);
	char name[NH_PORT_NAME_MAX], host[80];

	nh_json_set_text(out, "port", nh_device_name(process, conn->device, name));
	nh_json_set_text(out, "peer_host", nh_peer_host(conn, host));
	nh_json_set_text(out, "state", nh_state_text(conn->state));
	nh_json_set(out, "protected", json_boolean(standing == NH_PROTECTED));
	nh_json_set(out, "proved_with_gpu_memory", json_boolean(nh_is_proved_with_gpu(conn)));
	nh_json_set_text(out, "standing", nh_standing_text(standing));
	nh_json_set_text(out, "error", conn->error ? nh_error_text(conn->error) : "");
}

static json_t *conn_json(const struct nh_process *process, const struct nh_conn *conn)
{
	const struct nccl_ha_conn_stats *stats = &conn->stats;
	json_t *out = json_object(), *counters = json_object();
	char id[24];

	snprintf(id, sizeof(id), "%016" PRIx64, stats->id);
	nh_json_set_text(out, "connection", id);
	nh_json_set_text(out, "direction", nh_direction_text(stats->direction));
	nh_json_set_text(out, "peer", stats->peer);
	set_state(out, process, stats);
	nh_json_set_date(out, "opened", stats->opened_ns);
	nh_json_set_number(out, "queue_pairs", stats->qps);
	nh_json_set_number(out, "epoch", stats->epoch);
	nh_json_set(out, "paths", paths_json(process, stats, true));
	nh_json_set(out, "rails", rails_json(stats));
	nh_json_set(out, "last_failover", last_failover_json(stats));
	nh_json_set(out, "detection", histogram_json(&stats->detection));
	nh_json_set(out, "blackout", histogram_json(&stats->blackout));
#define COUNTER(name, help) nh_json_set_number(counters, #name, stats->name);
	NCCL_HA_CONN_COUNTERS(COUNTER)
#undef COUNTER
	nh_json_set(out, "counters", counters);
	return out;
}

static json_t *group_json(const struct nh_process *process, const struct nh_group *group)
{
	json_t *out = json_object();

	nh_json_set_number(out, "sends", group->sends);
	nh_json_set_number(out, "receives", group->receives);
	set_state(out, process, group->first);
	nh_json_set(out, "paths", paths_json(process, group->first, false));
	nh_json_set_number(out, "failovers", group->failovers);
	nh_json_set(out, "last_failover", last_failover_json(group->latest));
	return out;
}

/* ---- processes ------------------------------------------------------------------------------ */

static json_t *counts_json(const struct nh_counts *counts)
{
	json_t *out = json_object();

	nh_json_set_number(out, "connections", counts->connections);
	nh_json_set_number(out, "protected", counts->by_standing[NH_PROTECTED]);
	nh_json_set_number(out, "unprotected", counts->by_standing[NH_UNPROTECTED]);
	nh_json_set_number(out, "failing_over", counts->by_standing[NH_FAILING_OVER]);
	nh_json_set_number(out, "failed", counts->by_standing[NH_FAILED]);
	return out;
}

static json_t *connections_json(const struct nh_process *process, bool each)
{
	json_t *out = json_array();
	struct nh_group *groups;
	size_t n = 0;

	if (each) {
		for (size_t i = 0; i < process->nconns; i++)
			json_array_append_new(out, conn_json(process, &process->conns[i]));
		return out;
	}
	groups = nh_groups(process, &n);
	for (size_t i = 0; i < n; i++)
		json_array_append_new(out, group_json(process, &groups[i]));
	free(groups);
	return out;
}

static json_t *inc_json(const struct nccl_ha_inc_stats *inc)
{
	json_t *out = json_object();

#define COUNTER(name, help) nh_json_set_number(out, #name, inc->name);
	NCCL_HA_INC_COUNTERS(COUNTER)
#undef COUNTER
	return out;
}

static json_t *process_json(const struct nh_process *process, uint64_t now_ns, bool each)
{
	const struct nccl_ha_job_stats *job = &process->job;
	json_t *out = json_object(), *counters = json_object(), *ports = json_array();
	struct nh_counts counts = {0};

	nh_count(process, &counts);
	nh_json_set_text(out, "job", job->job_id);
	nh_json_set(out, "rank", job->rank < 0 ? json_null() : json_integer(job->rank));
	nh_json_set_number(out, "pid", job->pid);
	nh_json_set_number(out, "uid", process->uid);
	nh_json_set(out, "live", json_boolean(process->live));
	nh_json_set_text(out, "host", job->host);
	nh_json_set_text(out, "program", job->program);
	nh_json_set_text(out, "version", job->plugin_version);
	nh_json_set_date(out, "started", job->started_ns);
	nh_json_set(out, "uptime_s",
		    process->live && now_ns > job->started_ns
			? json_real((double)(now_ns - job->started_ns) / 1e9)
			: json_null());
	nh_json_set_text(out, "file", process->path);
	nh_json_set_text(out, "event_log", job->event_log);
	nh_json_set(out, "summary", counts_json(&counts));
#define COUNTER(name, help) nh_json_set_number(counters, #name, job->name);
	NCCL_HA_JOB_COUNTERS(COUNTER)
	NCCL_HA_JOB_REFUSED_COUNTERS(COUNTER)
#undef COUNTER
	nh_json_set(out, "counters", counters);
	if (job->inc.groups_joined || job->inc.groups_refused)
		nh_json_set(out, "inc", inc_json(&job->inc));
	for (size_t i = 0; i < process->nports; i++)
		json_array_append_new(ports, port_json(&process->ports[i]));
	nh_json_set(out, "ports", ports);
	nh_json_set(out, each ? "connections" : "groups", connections_json(process, each));
	return out;
}

json_t *nh_status_json(const struct nh_snapshot *snapshot, bool connections)
{
	json_t *out = json_object(), *processes = json_array();
	struct nh_counts counts = {0};

	for (size_t i = 0; i < snapshot->nprocesses; i++) {
		if (snapshot->processes[i].live)
			nh_count(&snapshot->processes[i], &counts);
		json_array_append_new(processes, process_json(&snapshot->processes[i],
							      snapshot->taken_ns, connections));
	}
	nh_json_set_number(out, "format", 1);
	nh_json_set_date(out, "time", snapshot->taken_ns);
	nh_json_set(out, "summary", counts_json(&counts));
	nh_json_set_number(out, "dead_files", snapshot->ndead);
	nh_json_set_number(out, "unreadable_files", snapshot->nunreadable);
	nh_json_set(out, "processes", processes);
	return out;
}
