/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha health: how this host's ports are, for people and for what watches hosts. */
#include "tools/nccl-ha/port_health.h"
#include "tools/nccl-ha/text.h"
#include "tools/nccl-ha/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct arguments {
	struct nh_select select;
	bool json;
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "As one JSON object", 0},
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
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- text ----------------------------------------------------------------------------------- */

static void print_text(const struct nh_port_health *ports, size_t n)
{
	char sentence[NH_SENTENCE + 200];

	for (size_t i = 0; i < n; i++)
		printf("%s %s: %s\n", nh_health_name(ports[i].health), ports[i].name,
		       nh_health_sentence(&ports[i], sentence));
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* Where a fault is not known to be the port's alone, the ports that it is about. */
static json_t *remotes_json(const struct nh_port_health *port)
{
	json_t *out = json_array();

	for (size_t i = 0; i < port->nremotes; i++) {
		const struct nh_remote *remote = &port->remotes[i];
		json_t *one;

		if (!remote->down && (!remote->silent || remote->answers))
			continue;
		one = json_object();
		nh_json_set(one, "host", nh_json_text(remote->host));
		nh_json_set(one, "port", nh_json_text(remote->port));
		nh_json_set(one, "says", nh_json_text(remote->down ? "down" : "active"));
		nh_json_set(one, "answers", json_boolean(remote->answers));
		json_array_append_new(out, one);
	}
	return out;
}

static json_t *fault_json(const struct nh_port_health *port)
{
	json_t *out;

	if (port->fault == NH_FAULT_NONE)
		return json_null();
	out = json_object();
	nh_json_set(out, "at", nh_json_text(nh_fault_name(port->fault)));
	nh_json_set(out, "evidence", nh_json_text(port->why));
	nh_json_set(out, "remote_ports", remotes_json(port));
	return out;
}

static json_t *port_json(const struct nh_port_health *port)
{
	char sentence[NH_SENTENCE + 200], guid[24];
	json_t *out = json_object();

	snprintf(guid, sizeof(guid), "%016" PRIx64, port->guid);
	nh_json_set(out, "port", nh_json_text(port->name));
	nh_json_set(out, "guid", nh_json_text(guid));
	nh_json_set(out, "state", nh_json_text(nh_health_name(port->health)));
	nh_json_set(out, "text", nh_json_text(nh_health_sentence(port, sentence)));
	nh_json_set_date(out, "since", port->since_ns);
	nh_json_set(out, "served_by", port->left ? nh_json_text(port->served_by) : json_null());
	nh_json_set(out, "fault", fault_json(port));
	nh_json_set_number(out, "connections", port->here);
	nh_json_set_number(out, "unprotected", port->unprotected);
	nh_json_set_number(out, "failing_over", port->failing_over);
	nh_json_set_number(out, "failed", port->failed);
	nh_json_set_number(out, "left", port->left);
	return out;
}

static void print_json(const struct nh_snapshot *snapshot, const struct nh_port_health *ports,
		       size_t n)
{
	json_t *out = json_object(), *all = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(all, port_json(&ports[i]));
	nh_json_set_number(out, "format", 1);
	nh_json_set_date(out, "time", snapshot->taken_ns);
	nh_json_set(out, "state", n ? nh_json_text(nh_health_name(ports[0].health)) : json_null());
	nh_json_set_number(out, "processes", snapshot->nprocesses);
	nh_json_set_number(out, "unreadable_files", snapshot->nunreadable);
	nh_json_set(out, "ports", all);
	json_dumpf(out, stdout, NH_JSON_FORM | JSON_INDENT(2));
	putchar('\n');
	json_decref(out);
}

/* ---- all of it ------------------------------------------------------------------------------ */

int nh_cmd_health(int argc, char **argv)
{
	static const struct argp_child children[] = {{&nh_select_argp, 0, NULL, 0}, {0}};
	static const struct argp argp = {
	    options,
	    parse,
	    NULL,
	    "Says how the ports of this host are that processes of this user (for root: of all "
	    "users) use, a line each, the worst first.\vExit status:\n"
	    "  0  every port is good, drained or unused. With --json also: there is no "
	    "such process, and the document says so\n"
	    "  1  a port is degraded: other ports serve what it should, or would have to. Jobs go "
	    "on; drain the host at the next checkpoint\n"
	    "  2  wrong usage; nothing is printed\n"
	    "  3  there is no such process. With --json: nothing could be looked at, or what is "
	    "there cannot be read\n"
	    "  4  no port is known to be broken, and the next failure stops connections\n"
	    "  5  connections have no path, or ended with an error",
	    children,
	    NULL,
	    NULL};
	struct arguments a = {.select = NH_SELECT_ALL};
	struct nh_port_health *ports;
	struct nh_snapshot snapshot;
	int status;
	size_t n;

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	a.select.dead = false; /* what they left says nothing of the ports as they are */
	nh_snapshot_take(&snapshot, &a.select, argv[0]);
	ports = nh_ports_health(&snapshot, &n);
	if (snapshot.nprocesses == 0)
		status = nh_no_job(&snapshot, &a.select, argv[0], a.json);
	else
		status = n > 0 ? nh_health_exit_status(ports[0].health) : NH_EXIT_OK;
	if (a.json)
		print_json(&snapshot, ports, n);
	else
		print_text(ports, n);
	free(ports);
	nh_snapshot_free(&snapshot);
	return status;
}
