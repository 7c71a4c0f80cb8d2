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

static void set(json_t *object, const char *name, json_t *value)
{
	(void)json_object_set_new(object, name, value);
}

static void set_number(json_t *object, const char *name, uint64_t value)
{
	set(object, name, json_integer((json_int_t)value));
}

static json_t *date_json(uint64_t realtime_ns)
{
	char date[NH_TEXT_MAX];

	return realtime_ns ? nh_json_text(nh_date_text(realtime_ns, date)) : json_null();
}

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
		set(one, "host", nh_json_text(remote->host));
		set(one, "port", nh_json_text(remote->port));
		set(one, "says", nh_json_text(remote->down ? "down" : "active"));
		set(one, "answers", json_boolean(remote->answers));
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
	set(out, "at", nh_json_text(nh_fault_name(port->fault)));
	set(out, "evidence", nh_json_text(port->why));
	set(out, "remote_ports", remotes_json(port));
	return out;
}

static json_t *port_json(const struct nh_port_health *port)
{
	char sentence[NH_SENTENCE + 200], guid[24];
	json_t *out = json_object();

	snprintf(guid, sizeof(guid), "%016" PRIx64, port->guid);
	set(out, "port", nh_json_text(port->name));
	set(out, "guid", nh_json_text(guid));
	set(out, "state", nh_json_text(nh_health_name(port->health)));
	set(out, "text", nh_json_text(nh_health_sentence(port, sentence)));
	set(out, "since", date_json(port->since_ns));
	set(out, "served_by", port->left ? nh_json_text(port->served_by) : json_null());
	set(out, "fault", fault_json(port));
	set_number(out, "connections", port->here);
	set_number(out, "unprotected", port->unprotected);
	set_number(out, "failing_over", port->failing_over);
	set_number(out, "failed", port->failed);
	set_number(out, "left", port->left);
	return out;
}

static void print_json(const struct nh_snapshot *snapshot, const struct nh_port_health *ports,
		       size_t n)
{
	json_t *out = json_object(), *all = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(all, port_json(&ports[i]));
	set_number(out, "format", 1);
	set(out, "time", date_json(snapshot->taken_ns));
	set(out, "state", n ? nh_json_text(nh_health_name(ports[0].health)) : json_null());
	set_number(out, "processes", snapshot->nprocesses);
	set_number(out, "unreadable_files", snapshot->nunreadable);
	set(out, "ports", all);
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
