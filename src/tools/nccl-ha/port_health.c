/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/port_health.h"

#include "base/text.h"
#include "tools/nccl-ha/text.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---------------------------------------------------------------------------------- */

const char *nh_health_name(enum nh_health health)
{
	static const char *const names[] = {
#define NAME(name, text, status) [NH_HEALTH_##name] = (text),
	    NH_HEALTHS(NAME)
#undef NAME
	};

	return names[health];
}

int nh_health_exit_status(enum nh_health health)
{
	static const int statuses[] = {
#define STATUS(name, text, status) [NH_HEALTH_##name] = (status),
	    NH_HEALTHS(STATUS)
#undef STATUS
	};

	return statuses[health];
}

const char *nh_fault_name(enum nh_fault fault)
{
	static const char *const names[] = {
#define NAME(name, text) [NH_FAULT_##name] = (text),
	    NH_FAULTS(NAME)
#undef NAME
	};

	return names[fault];
}

/* ---- what processes say --------------------------------------------------------------------- */

/* NULL: too many. */
static struct nh_remote *remote_of(struct nh_port_health *h, const struct nccl_ha_conn_stats *conn)
{
	struct nh_remote *remote = &h->remotes[h->nremotes];
	char host[80], port[sizeof(remote->port)];

	nh_peer_host(conn, host);
	ha_printable(conn->preferred.peer_port, SIZE_MAX, port, sizeof(port));
	for (size_t i = 0; i < h->nremotes; i++)
		if (!strcmp(h->remotes[i].host, host) && !strcmp(h->remotes[i].port, port))
			return &h->remotes[i];
	if (h->nremotes == NH_REMOTES_MAX)
		return NULL;
	ha_copy_text(remote->host, sizeof(remote->host), host);
	ha_copy_text(remote->port, sizeof(remote->port), port);
	h->nremotes++;
	return remote;
}

/* The ports that NCCL asked for could have the traffic again, or it is elsewhere on purpose. */
static bool is_mended(uint32_t marks)
{
	static const uint32_t down = NCCL_HA_PREFERRED_PORT_DOWN | NCCL_HA_PREFERRED_PEER_PORT_DOWN;

	return marks & (NCCL_HA_PREFERRED_READY | NCCL_HA_PREFERRED_DRAINED) ||
	       (marks & NCCL_HA_PREFERRED_ANSWERS && !(marks & down));
}

static void add_left(struct nh_port_health *h, const struct nh_process *process,
		     const struct nccl_ha_conn_stats *conn)
{
	uint64_t left_ns = conn->preferred.left_ns;

	h->left++;
	if (h->since_ns == 0 || left_ns < h->since_ns)
		h->since_ns = left_ns;
	nh_device_name(process, conn->device, h->served_by);
	ha_printable(conn->last_failover_reason, SIZE_MAX, h->reason, sizeof(h->reason));
}

static void add_preferred(struct nh_port_health *h, const struct nh_process *process,
			  const struct nccl_ha_conn_stats *conn)
{
	uint32_t marks = conn->preferred.marks;
	struct nh_remote *remote = remote_of(h, conn);

	if (remote) {
		remote->silent |= (marks & NCCL_HA_PREFERRED_SILENT) != 0;
		remote->answers |= (marks & NCCL_HA_PREFERRED_ANSWERS) != 0;
		remote->down |= (marks & NCCL_HA_PREFERRED_PEER_PORT_DOWN) != 0;
	}
	if (conn->preferred.left_ns != 0 && !is_mended(marks))
		add_left(h, process, conn);
}

static void add_here(struct nh_port_health *h, const struct nccl_ha_conn_stats *conn)
{
	enum nh_standing standing = nh_standing(conn);

	h->here++;
	h->unprotected += standing == NH_UNPROTECTED;
	h->failing_over += standing == NH_FAILING_OVER;
	h->failed += standing == NH_FAILED;
}

static void add(struct nh_port_health *h, const struct nh_process *process,
		const struct nh_port *port)
{
	const struct nccl_ha_port_stats *stats = &port->stats;

	nh_port_name(port, h->name);
	h->guid = stats->guid;
	h->dead |= stats->device_fatal != 0;
	h->down |= stats->state != IBV_PORT_ACTIVE;
	h->silent |= nh_port_is_silent(stats);
	h->drained |= stats->drained != 0;
	h->used |= stats->device >= 0 || stats->connections_open > 0 || stats->departures > 0 ||
		   stats->port_errors > 0;
	for (size_t i = 0; i < process->nconns; i++) {
		const struct nccl_ha_conn_stats *conn = &process->conns[i].stats;

		if (nh_port_of(process, conn->device) == port)
			add_here(h, conn);
		if (conn->preferred.marks & NCCL_HA_PREFERRED_KNOWN &&
		    nh_port_of(process, conn->preferred.device) == port)
			add_preferred(h, process, conn);
	}
}

/* ---- where the evidence points -------------------------------------------------------------- */

/* How many of the remote ports, and the first of them. */
struct some {
	size_t n;
	const struct nh_remote *first;
};

static void count(struct some *some, const struct nh_remote *remote, bool is_one)
{
	if (is_one && some->n++ == 0)
		some->first = remote;
}

static const char *some_text(const struct some *some, char buf[200])
{
	int length = snprintf(buf, 200, "%s %s", some->first->host, some->first->port);

	if (some->n > 1)
		snprintf(buf + length, 200 - (size_t)length, " and %zu others", some->n - 1);
	return buf;
}

static enum nh_fault say(struct nh_port_health *h, enum nh_fault fault, const char *before,
			 const struct some *some, const char *after)
{
	char text[200] = "";

	if (some)
		some_text(some, text);
	snprintf(h->why, sizeof(h->why), "%s%s%s", before, text, after);
	return fault;
}

/* Of a port that says it is active. Who is heard over it, and who not, tells its own end from the
 * other; with one peer alone nothing does. */
static enum nh_fault judge_peers(struct nh_port_health *h)
{
	struct some down = {0}, silent = {0}, answers = {0};

	for (size_t i = 0; i < h->nremotes; i++) {
		const struct nh_remote *remote = &h->remotes[i];

		count(&down, remote, remote->down);
		count(&silent, remote, remote->silent && !remote->answers && !remote->down);
		count(&answers, remote, remote->answers);
	}
	if (silent.n == 0 && down.n > 0)
		return say(h, NH_FAULT_ELSEWHERE, "the other end says that ", &down, " is down");
	if (silent.n > 0 && answers.n > 0)
		return say(h, NH_FAULT_ELSEWHERE, "all answer over it but ", &silent,
			   ": look at the cable and the switch there");
	if (silent.n > 1)
		return say(h, NH_FAULT_HERE, "neither ", &silent,
			   " answer over it, though it says active: look at its cable and at the "
			   "switch behind it");
	if (silent.n == 1)
		return say(
		    h, NH_FAULT_BETWEEN, "", &silent,
		    " does not answer over it, and both ends say active: look at both cables "
		    "and the switches between");
	if (h->silent)
		return say(
		    h, NH_FAULT_BETWEEN,
		    "nobody answers over it, though it says active: look at its cable and at "
		    "the switch behind it",
		    NULL, "");
	if (h->left > 0)
		return say(h, NH_FAULT_BETWEEN, "both ends say active: ", NULL,
			   *h->reason ? h->reason : "why is not known");
	return NH_FAULT_NONE;
}

static enum nh_fault judge_fault(struct nh_port_health *h)
{
	if (h->dead)
		return say(h, NH_FAULT_HERE, "its device is dead", NULL, "");
	if (h->down)
		return say(h, NH_FAULT_HERE,
			   "it is down: look at its cable and at the switch's end of it", NULL, "");
	return h->silent || h->left > 0 ? judge_peers(h) : NH_FAULT_NONE;
}

static enum nh_health judge_health(const struct nh_port_health *h)
{
	bool is_broken = h->fault == NH_FAULT_HERE || h->fault == NH_FAULT_BETWEEN;

	if (h->failing_over + h->failed > 0)
		return NH_HEALTH_STOPPED;
	if (is_broken && !h->used)
		return NH_HEALTH_UNUSED;
	if (is_broken && !h->drained)
		return NH_HEALTH_DEGRADED;
	if (h->unprotected > 0)
		return NH_HEALTH_UNPROTECTED;
	return h->drained ? NH_HEALTH_DRAINED : NH_HEALTH_GOOD;
}

static void judge(struct nh_port_health *h)
{
	h->fault = judge_fault(h);
	h->health = judge_health(h);
}

void nh_port_health(const struct nh_process *process, const struct nh_port *port,
		    struct nh_port_health *out)
{
	memset(out, 0, sizeof(*out));
	add(out, process, port);
	judge(out);
}

/* ---- all ports of this host ----------------------------------------------------------------- */

static int worst_first(const void *a, const void *b)
{
	const struct nh_port_health *p = a, *q = b;
	int order = (p->health < q->health) - (p->health > q->health);

	if (order == 0)
		order = strcmp(p->name, q->name);
	return order ? order : (p->guid > q->guid) - (p->guid < q->guid);
}

static struct nh_port_health *find(struct nh_port_health *ports, size_t *n,
				   const struct nh_port *port)
{
	char name[NH_PORT_NAME_MAX];

	nh_port_name(port, name);
	for (size_t i = 0; i < *n; i++)
		if (ports[i].guid == port->stats.guid && !strcmp(ports[i].name, name))
			return &ports[i];
	return &ports[(*n)++];
}

struct nh_port_health *nh_ports_health(const struct nh_snapshot *snapshot, size_t *n)
{
	struct nh_port_health *ports;
	size_t room = 0;

	*n = 0;
	for (size_t i = 0; i < snapshot->nprocesses; i++)
		room += snapshot->processes[i].nports;
	ports = room ? calloc(room, sizeof(*ports)) : NULL;
	for (size_t i = 0; ports && i < snapshot->nprocesses; i++) {
		const struct nh_process *process = &snapshot->processes[i];

		for (size_t j = 0; process->live && j < process->nports; j++)
			add(find(ports, n, &process->ports[j]), process, &process->ports[j]);
	}
	for (size_t i = 0; i < *n; i++)
		judge(&ports[i]);
	if (*n > 0)
		qsort(ports, *n, sizeof(*ports), worst_first);
	return ports;
}

/* ---- a sentence ----------------------------------------------------------------------------- */

static const char *connections(size_t n, char buf[40])
{
	snprintf(buf, 40, "%zu connection%s", n, n == 1 ? "" : "s");
	return buf;
}

/* What is said of the port itself. */
static void print_state(const struct nh_port_health *port, char *buf, size_t size)
{
	char number[40], date[NH_TEXT_MAX];

	switch (port->health) {
	case NH_HEALTH_STOPPED:
		if (port->failed > 0)
			snprintf(buf, size, "%s ended with an error",
				 connections(port->failed, number));
		else
			snprintf(buf, size, "no path is left for %s",
				 connections(port->failing_over, number));
		break;
	case NH_HEALTH_DEGRADED:
		if (port->left > 0)
			snprintf(buf, size,
				 "served by a standby (%s) since %s, drain at the next checkpoint",
				 port->served_by, nh_date_text(port->since_ns, date));
		else
			snprintf(buf, size, "out of use, drain at the next checkpoint");
		break;
	case NH_HEALTH_UNPROTECTED:
		snprintf(buf, size, "nothing could take over from it for %s",
			 connections(port->unprotected, number));
		break;
	case NH_HEALTH_DRAINED:
		snprintf(buf, size, "the operator wants it left alone");
		break;
	case NH_HEALTH_UNUSED:
		snprintf(buf, size, "nobody has asked for it");
		break;
	default:
		snprintf(buf, size, "%s", connections(port->here, number));
	}
}

/* Of a port that is well by itself. */
static bool serves_elsewhere(const struct nh_port_health *port)
{
	return port->left > 0 && port->health != NH_HEALTH_DEGRADED;
}

const char *nh_health_sentence(const struct nh_port_health *port, char buf[NH_SENTENCE + 200])
{
	char number[40], date[NH_TEXT_MAX];
	size_t length;

	print_state(port, buf, NH_SENTENCE + 200);
	length = strlen(buf);
	if (serves_elsewhere(port))
		length += (size_t)snprintf(buf + length, NH_SENTENCE + 200 - length,
					   "; a standby (%s) serves %s since %s", port->served_by,
					   connections(port->left, number),
					   nh_date_text(port->since_ns, date));
	if (*port->why)
		snprintf(buf + length, NH_SENTENCE + 200 - length, "; %s", port->why);
	return buf;
}
