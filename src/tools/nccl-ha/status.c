/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha status: what runs here, and whether it is protected. */
#include "tools/nccl-ha/status_json.h"

#include "base/text.h"
#include "tools/nccl-ha/table.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"
#include "tools/nccl-ha/view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct arguments {
	struct nh_select select;
	bool json, connections;
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "As one JSON object", 0},
    {"connections", 'v', NULL, 0, "Each connection, not groups of them", 0},
    {"verbose", 'v', NULL, OPTION_ALIAS, NULL, 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->select;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case 'v':
		a->connections = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_counts(const struct nh_counts *counts)
{
	const char *comma = "";

	printf("%zu connection%s: ", counts->connections, counts->connections == 1 ? "" : "s");
	if (counts->connections == 0)
		printf("none open");
	for (int i = 0; i < NH_STANDING_COUNT; i++) {
		if (!counts->by_standing[i])
			continue;
		printf("%s%zu %s", comma, counts->by_standing[i],
		       nh_standing_text((enum nh_standing)i));
		comma = ", ";
	}
}

static void print_head(const struct nh_process *process, uint64_t now_ns)
{
	const struct nccl_ha_job_stats *job = &process->job;
	char text[80], uptime[NH_TEXT_MAX];
	struct nh_counts counts = {0};

	nh_count(process, &counts);
	if (*job->job_id)
		printf("job %s ", ha_printable(job->job_id, SIZE_MAX, text, sizeof(text)));
	if (job->rank >= 0)
		printf("rank %d ", job->rank);
	printf("pid %s (%s", process->key,
	       ha_printable(job->program, SIZE_MAX, text, sizeof(text)));
	printf(" on %s, nccl-ha ", ha_printable(job->host, SIZE_MAX, text, sizeof(text)));
	printf("%s)", ha_printable(job->plugin_version, SIZE_MAX, text, sizeof(text)));
	if (process->live)
		printf(" for %s: ",
		       nh_duration_text(now_ns > job->started_ns ? now_ns - job->started_ns : 0,
					uptime));
	else
		printf(" is dead; it left: ");
	print_counts(&counts);
	putchar('\n');
	if (job->connections_failed)
		printf("  %" PRIu64 " connection%s ended with an error\n", job->connections_failed,
		       job->connections_failed == 1 ? "" : "s");
	if (job->records_missed)
		printf("  %" PRIu64 " ports and connections are missing here: no room for their "
		       "records\n",
		       job->records_missed);
}

/* " mlx5_0:1 75 %", if messages were cut on it: of so many bytes. */
static void print_rail(const struct nh_port *port, uint64_t bytes)
{
	char name[NH_PORT_NAME_MAX];

	printf(" %s", port ? nh_port_name(port, name) : "?");
	if (port && bytes != 0)
		printf(" %.0f %%", 100.0 * (double)port->stats.stripe_bytes / (double)bytes);
}

/* "; a rail was lost without a failover 3 times, mended 2", if one was. */
static void print_sheds(const struct nh_process *process, const struct nccl_ha_port_stats *first)
{
	uint64_t sheds = 0, mends = 0;

	for (unsigned rail = 0; rail < first->rails; rail++) {
		const struct nh_port *port = nh_rail_of(process, first->nccl_device, rail);

		sheds += port ? port->stats.sheds : 0;
		mends += port ? port->stats.mends : 0;
	}
	if (sheds != 0)
		printf("; a rail was lost without a failover %" PRIu64 " time%s, mended %" PRIu64,
		       sheds, sheds == 1 ? "" : "s", mends);
}

/* Ports that NCCL has as one device, and what each carried of what they carried together. */
static void print_bundles(const struct nh_process *process)
{
	for (size_t i = 0; i < process->nports; i++) {
		const struct nccl_ha_port_stats *first = &process->ports[i].stats;
		uint64_t bytes = 0;

		if (first->rails < 2 || first->rail != 0)
			continue;
		printf("  NCCL's device %d is a bundle of %u ports:", first->nccl_device,
		       first->rails);
		for (unsigned rail = 0; rail < first->rails; rail++) {
			const struct nh_port *port = nh_rail_of(process, first->nccl_device, rail);

			bytes += port ? port->stats.stripe_bytes : 0;
		}
		for (unsigned rail = 0; rail < first->rails; rail++)
			print_rail(nh_rail_of(process, first->nccl_device, rail), bytes);
		print_sheds(process, first);
		putchar('\n');
	}
}

static void print_ports(const struct nh_process *process)
{
	static const char *const heads[] = {
	    "port",	">speed", "state", ">connections", ">failures", ">remote ports",
	    ">rtt p50", ">p99",	  ">max",  ">lost",	   NULL};
	struct nh_table *table = nh_table_new(heads);

	for (size_t i = 0; i < process->nports; i++) {
		const struct nccl_ha_port_stats *port = &process->ports[i].stats;
		char name[NH_PORT_NAME_MAX], speed[NH_TEXT_MAX], time[NH_TEXT_MAX];

		nh_table_add(table, "%s", nh_port_name(&process->ports[i], name));
		nh_table_add(table, "%s", nh_speed_text(port->speed_mbps, speed));
		nh_table_add(table, "%s%s", nh_port_state_text(port), nh_port_marks(port));
		nh_table_add(table, "%" PRIu64, port->connections_open);
		nh_table_add(table, "%" PRIu64, port->port_errors + port->device_errors);
		if (port->sessions >= port->sessions_up)
			nh_table_add(table, "%" PRIu64 " of %" PRIu64, port->sessions_up,
				     port->sessions);
		else /* an older plugin does not say of how many */
			nh_table_add(table, "%" PRIu64, port->sessions_up);
		nh_table_add(table, "%s",
			     nh_time_text(nh_quantile(&port->heartbeat_rtt, 500), time));
		nh_table_add(table, "%s",
			     nh_time_text(nh_quantile(&port->heartbeat_rtt, 990), time));
		nh_table_add(table, "%s", nh_time_text(port->heartbeat_rtt.max_ns, time));
		nh_table_add(table, "%" PRIu64, port->heartbeats_lost);
	}
	nh_table_print(table, 2, stdout);
	nh_table_free(table);
}

/* "error completion, 12 s ago, 610 ms" */
static void add_last_failover(struct nh_table *table, const struct nccl_ha_conn_stats *conn,
			      uint64_t now_ns)
{
	char ago[NH_TEXT_MAX], blackout[NH_TEXT_MAX];

	if (!conn || !conn->last_failover_ns) {
		nh_table_add(table, "-");
		return;
	}
	nh_table_add(
	    table, "%s, %s ago, %s", conn->last_failover_reason,
	    nh_duration_text(now_ns > conn->last_failover_ns ? now_ns - conn->last_failover_ns : 0,
			     ago),
	    conn->last_blackout_ns ? nh_time_text(conn->last_blackout_ns, blackout)
				   : "blackout unknown");
}

/* What both tables say of a connection. */
static void add_state(struct nh_table *table, const struct nh_process *process,
		      const struct nccl_ha_conn_stats *conn)
{
	char standby[NH_PATHS_MAX];
	enum nh_standing standing = nh_standing(conn);

	if (conn->error)
		nh_table_add(table, "%s: %s", nh_state_text(conn->state),
			     nh_error_text(conn->error));
	else
		nh_table_add(table, "%s", nh_state_text(conn->state));
	nh_table_add(table, "%s%s", standing == NH_PROTECTED ? "yes" : "NO",
		     nh_is_proved_with_gpu(conn) ? ", proved with GPU memory" : "");
	nh_table_add(table, "%s", nh_standby_text(process, conn, standby));
}

/* The active path with its health, where that is not as it should be. */
static void add_active(struct nh_table *table, const struct nh_process *process,
		       const struct nccl_ha_conn_stats *conn)
{
	char name[NH_PORT_NAME_MAX];
	uint32_t health = conn->active_path < NCCL_HA_MAX_PATHS
			      ? conn->paths[conn->active_path].health
			      : NCCL_HA_PATH_NONE;

	nh_device_name(process, conn->device, name);
	if (health == NCCL_HA_PATH_GOOD)
		nh_table_add(table, "%s", name);
	else
		nh_table_add(table, "%s %s", name, nh_health_text(health));
}

static void print_groups(const struct nh_process *process, uint64_t now_ns)
{
	static const char *const heads[] = {"active path", "peer",	 ">send",
					    ">receive",	   "state",	 "protected",
					    "standby",	   ">failovers", "last failover, blackout",
					    NULL};
	struct nh_table *table = nh_table_new(heads);
	size_t n = 0;
	struct nh_group *groups = nh_groups(process, &n);

	for (size_t i = 0; i < n; i++) {
		char host[80];

		add_active(table, process, groups[i].first);
		nh_table_add(table, "%s", nh_peer_host(groups[i].first, host));
		nh_table_add(table, "%zu", groups[i].sends);
		nh_table_add(table, "%zu", groups[i].receives);
		add_state(table, process, groups[i].first);
		nh_table_add(table, "%" PRIu64, groups[i].failovers);
		add_last_failover(table, groups[i].latest, now_ns);
	}
	nh_table_print(table, 2, stdout);
	nh_table_free(table);
	free(groups);
}

static void print_connections(const struct nh_process *process, uint64_t now_ns)
{
	static const char *const heads[] = {"connection",  "direction",	 "peer",
					    "active path", "state",	 "protected",
					    "standby",	   ">epoch",	 ">messages",
					    ">bytes",	   ">failovers", "last failover, blackout",
					    NULL};
	struct nh_table *table = nh_table_new(heads);

	for (size_t i = 0; i < process->nconns; i++) {
		const struct nccl_ha_conn_stats *conn = &process->conns[i].stats;
		char amount[NH_TEXT_MAX];

		nh_table_add(table, "%016" PRIx64, conn->id);
		nh_table_add(table, "%s", nh_direction_text(conn->direction));
		nh_table_add(table, "%s", conn->peer);
		add_active(table, process, conn);
		add_state(table, process, conn);
		nh_table_add(table, "%u", conn->epoch);
		nh_table_add(table, "%" PRIu64, conn->messages);
		nh_table_add(table, "%s", nh_amount_text((double)conn->bytes, "B", amount));
		nh_table_add(table, "%" PRIu64, conn->failovers);
		add_last_failover(table, conn, now_ns);
	}
	nh_table_print(table, 2, stdout);
	nh_table_free(table);
}

static void print_text(const struct nh_snapshot *snapshot, bool connections)
{
	struct nh_counts counts = {0};

	for (size_t i = 0; i < snapshot->nprocesses; i++) {
		const struct nh_process *process = &snapshot->processes[i];

		nh_count(process, &counts);
		print_head(process, snapshot->taken_ns);
		print_ports(process);
		print_bundles(process);
		if (connections)
			print_connections(process, snapshot->taken_ns);
		else
			print_groups(process, snapshot->taken_ns);
		putchar('\n');
	}
	if (snapshot->nprocesses > 1) {
		printf("%zu processes, ", snapshot->nprocesses);
		print_counts(&counts);
		putchar('\n');
	}
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int verdict(const struct nh_snapshot *snapshot)
{
	struct nh_counts counts = {0};

	for (size_t i = 0; i < snapshot->nprocesses; i++)
		if (snapshot->processes[i].live)
			nh_count(&snapshot->processes[i], &counts);
	return counts.by_standing[NH_PROTECTED] == counts.connections ? NH_EXIT_OK
								      : NH_EXIT_ATTENTION;
}

int nh_cmd_status(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
	    options,
	    parse,
	    NULL,
	    "Shows the processes of this user (for root: of all users) that use the plugin, their "
	    "ports and connections.\vExit status:\n"
	    "  0  every connection of these processes is protected. With --json also: there is no "
	    "such process, and the document says so\n"
	    "  1  a connection is unprotected, failing over or failed\n"
	    "  2  wrong usage; nothing is printed\n"
	    "  3  there is no such process. With --json: nothing could be looked at, or what is "
	    "there cannot be read",
	    children,
	    NULL,
	    NULL};
	struct arguments a = {.select = NH_SELECT_ALL};
	struct nh_snapshot snapshot;
	int status;
	json_t *doc;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	nh_snapshot_take(&snapshot, &a.select, argv[0]);
	if (snapshot.nprocesses == 0)
		status = nh_no_job(&snapshot, &a.select, argv[0], a.json);
	else
		status = verdict(&snapshot);
	if (a.json) {
		doc = nh_status_json(&snapshot, a.connections);
		json_dumpf(doc, stdout, NH_JSON_FORM | JSON_INDENT(2) | JSON_REAL_PRECISION(9));
		putchar('\n');
		json_decref(doc);
	} else {
		print_text(&snapshot, a.connections);
	}
	nh_snapshot_free(&snapshot);
	return status;
}
