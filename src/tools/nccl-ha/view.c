/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha/view.h"

#include "base/hist.h"
#include "base/text.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---------------------------------------------------------------------------------- */

#define TEXT_OF(names, n)                                                                          \
	((n) < sizeof(names) / sizeof((names)[0]) && (names)[n] ? (names)[n] : "unknown")

const char *nh_standing_text(enum nh_standing standing)
{
	static const char *const texts[] = {
#define STANDING_TEXT(name, text) [NH_##name] = (text),
	    NH_STANDINGS(STANDING_TEXT)
#undef STANDING_TEXT
	};

	return TEXT_OF(texts, (unsigned)standing);
}

const char *nh_state_text(uint32_t state)
{
	static const char *const texts[] = {
	    [NCCL_HA_CONN_ACTIVE] = "active",
	    [NCCL_HA_CONN_ERROR] = "error",
	    [NCCL_HA_CONN_FAILING_OVER] = "failing over",
	};

	return TEXT_OF(texts, state);
}

const char *nh_direction_text(uint32_t direction)
{
	static const char *const texts[] = {
	    [NCCL_HA_CONN_SEND] = "send",
	    [NCCL_HA_CONN_RECV] = "receive",
	};

	return TEXT_OF(texts, direction);
}

const char *nh_health_text(uint32_t health)
{
	static const char *const texts[] = {
	    [NCCL_HA_PATH_NONE] = "none",
	    [NCCL_HA_PATH_GOOD] = "good",
	    [NCCL_HA_PATH_SUSPECTED] = "suspected",
	    [NCCL_HA_PATH_FAILED] = "failed",
	    [NCCL_HA_PATH_RECOVERING] = "recovering",
	};

	return TEXT_OF(texts, health);
}

const char *nh_port_state_text(const struct nccl_ha_port_stats *port)
{
	static const char *const texts[] = {
	    [IBV_PORT_NOP] = "unknown",	      [IBV_PORT_DOWN] = "down",
	    [IBV_PORT_INIT] = "initializing", [IBV_PORT_ARMED] = "armed",
	    [IBV_PORT_ACTIVE] = "active",     [IBV_PORT_ACTIVE_DEFER] = "deferred",
	};

	return port->device_fatal ? "dead" : TEXT_OF(texts, port->state);
}

const char *nh_error_text(int32_t code)
{
	static const char *const texts[] = {
	    "none",	      "unhandled CUDA error", "system error",
	    "internal error", "invalid argument",     "invalid usage",
	    "remote error",   "in progress",
	};

	return code < 0 ? "unknown" : TEXT_OF(texts, (uint32_t)code);
}

bool nh_port_is_silent(const struct nccl_ha_port_stats *port)
{
	/* Before the first answers nothing was lost, either. */
	return port->sessions > 0 && port->sessions_up == 0 && port->heartbeats_lost > 0;
}

const char *nh_port_marks(const struct nccl_ha_port_stats *port)
{
	if (nh_port_is_silent(port))
		return port->drained ? ", drained, SILENT" : ", SILENT";
	return port->drained ? ", drained" : "";
}

/* ---- ports and paths ------------------------------------------------------------------------ */

const struct nh_port *nh_port_of(const struct nh_process *process, int32_t device)
{
	for (size_t i = 0; i < process->nports; i++)
		if (process->ports[i].stats.device == device && device >= 0)
			return &process->ports[i];
	/* A port that NCCL was not told of has the next number, and says -1. */
	for (size_t i = 0; i < process->nports; i++)
		if (process->ports[i].stats.device < 0 &&
		    process->ports[i].slot == (unsigned int)device)
			return &process->ports[i];
	return NULL;
}

const struct nh_port *nh_rail_of(const struct nh_process *process, int32_t nccl_device,
				 unsigned int rail)
{
	for (size_t i = 0; i < process->nports; i++)
		if (process->ports[i].stats.rails != 0 && process->ports[i].stats.rail == rail &&
		    process->ports[i].stats.nccl_device == nccl_device)
			return &process->ports[i];
	return NULL;
}

const char *nh_port_name(const struct nh_port *port, char buf[NH_PORT_NAME_MAX])
{
	char nic[65];

	snprintf(buf, NH_PORT_NAME_MAX, "%s:%u",
		 ha_printable(port->stats.nic, SIZE_MAX, nic, sizeof(nic)), port->stats.port_num);
	return buf;
}

const char *nh_device_name(const struct nh_process *process, int32_t device,
			   char buf[NH_PORT_NAME_MAX])
{
	const struct nh_port *port = nh_port_of(process, device);

	if (port)
		return nh_port_name(port, buf);
	snprintf(buf, NH_PORT_NAME_MAX, "device %d", device);
	return buf;
}

const char *nh_peer_host(const struct nccl_ha_conn_stats *conn, char buf[80])
{
	const char *begin = conn->peer, *colon = strrchr(conn->peer, ':');
	size_t length = colon ? (size_t)(colon - begin) : strlen(begin);

	if (length > 1 && begin[0] == '[' && begin[length - 1] == ']') {
		begin++;
		length -= 2;
	}
	return ha_printable(begin, length, buf, 80);
}

static bool is_standby(const struct nccl_ha_conn_stats *conn, unsigned int path)
{
	return path != conn->active_path && conn->paths[path].health != NCCL_HA_PATH_NONE;
}

/* In the order of their ports, so that paths that are alike read alike. */
static int standby_order(const struct nccl_ha_conn_stats *conn, unsigned int order[])
{
	int n = 0;

	for (unsigned int i = 0; i < NCCL_HA_MAX_PATHS; i++) {
		int at = n;

		if (!is_standby(conn, i))
			continue;
		for (; at > 0 && (conn->paths[order[at - 1]].device > conn->paths[i].device ||
				  (conn->paths[order[at - 1]].device == conn->paths[i].device &&
				   conn->paths[order[at - 1]].health > conn->paths[i].health));
		     at--)
			order[at] = order[at - 1];
		order[at] = i;
		n++;
	}
	return n;
}

const char *nh_standby_text(const struct nh_process *process, const struct nccl_ha_conn_stats *conn,
			    char buf[NH_PATHS_MAX])
{
	unsigned int order[NCCL_HA_MAX_PATHS];
	int n = standby_order(conn, order);
	size_t used = 0;

	snprintf(buf, NH_PATHS_MAX, "none");
	for (int i = 0; i < n && used < NH_PATHS_MAX; i++) {
		const struct nccl_ha_path_stats *path = &conn->paths[order[i]];
		char name[NH_PORT_NAME_MAX];

		used += (size_t)snprintf(
		    buf + used, NH_PATHS_MAX - used, "%s%s %s", used ? ", " : "",
		    nh_device_name(process, path->device, name), nh_health_text(path->health));
	}
	return buf;
}

/* ---- standing ------------------------------------------------------------------------------- */

static bool usable(uint32_t health)
{
	return health == NCCL_HA_PATH_GOOD || health == NCCL_HA_PATH_SUSPECTED;
}

enum nh_standing nh_standing(const struct nccl_ha_conn_stats *conn)
{
	if (conn->state == NCCL_HA_CONN_ERROR)
		return NH_FAILED;
	if (conn->state == NCCL_HA_CONN_FAILING_OVER)
		return NH_FAILING_OVER;
	for (unsigned int i = 0; i < NCCL_HA_MAX_PATHS; i++)
		if (is_standby(conn, i) && usable(conn->paths[i].health))
			return NH_PROTECTED;
	return NH_UNPROTECTED;
}

bool nh_is_proved_with_gpu(const struct nccl_ha_conn_stats *conn)
{
	if (nh_standing(conn) != NH_PROTECTED)
		return false;
	for (unsigned int i = 0; i < NCCL_HA_MAX_PATHS; i++)
		if (is_standby(conn, i) && usable(conn->paths[i].health) &&
		    conn->gpu_proved & 1u << i)
			return true;
	return false;
}

void nh_count(const struct nh_process *process, struct nh_counts *counts)
{
	counts->connections += process->nconns;
	for (size_t i = 0; i < process->nconns; i++)
		counts->by_standing[nh_standing(&process->conns[i].stats)]++;
}

/* ---- groups --------------------------------------------------------------------------------- */

#define ORDER(a, b)                                                                                \
	do {                                                                                       \
		if ((a) != (b))                                                                    \
			return (a) < (b) ? -1 : 1;                                                 \
	} while (0)

static uint32_t active_health(const struct nccl_ha_conn_stats *conn)
{
	return conn->active_path < NCCL_HA_MAX_PATHS ? conn->paths[conn->active_path].health
						     : (uint32_t)NCCL_HA_PATH_NONE;
}

static int compare_standbys(const struct nccl_ha_conn_stats *c, const struct nccl_ha_conn_stats *d)
{
	unsigned int c_order[NCCL_HA_MAX_PATHS], d_order[NCCL_HA_MAX_PATHS];
	int c_n = standby_order(c, c_order), d_n = standby_order(d, d_order);

	ORDER(c_n, d_n);
	for (int i = 0; i < c_n; i++) {
		ORDER(c->paths[c_order[i]].device, d->paths[d_order[i]].device);
		ORDER(c->paths[c_order[i]].health, d->paths[d_order[i]].health);
	}
	return 0;
}

/* 0: they are alike. The order is that in which people look: by port, peer, the good ones first. */
static int compare(const void *a, const void *b)
{
	const struct nccl_ha_conn_stats *c = *(const struct nccl_ha_conn_stats *const *)a;
	const struct nccl_ha_conn_stats *d = *(const struct nccl_ha_conn_stats *const *)b;
	char c_host[80], d_host[80];
	int order;

	ORDER(c->device, d->device);
	order = strcmp(nh_peer_host(c, c_host), nh_peer_host(d, d_host));
	if (order)
		return order;
	ORDER(nh_standing(c), nh_standing(d));
	ORDER(nh_is_proved_with_gpu(d), nh_is_proved_with_gpu(c));
	ORDER(c->state, d->state);
	ORDER(c->error, d->error);
	ORDER(active_health(c), active_health(d));
	return compare_standbys(c, d);
}

static void add_to_group(struct nh_group *group, const struct nccl_ha_conn_stats *conn)
{
	if (conn->direction == NCCL_HA_CONN_SEND)
		group->sends++;
	else
		group->receives++;
	group->failovers += conn->failovers;
	if (conn->last_failover_ns &&
	    (!group->latest || conn->last_failover_ns > group->latest->last_failover_ns))
		group->latest = conn;
}

struct nh_group *nh_groups(const struct nh_process *process, size_t *n)
{
	const struct nccl_ha_conn_stats **sorted = calloc(process->nconns + 1, sizeof(*sorted));
	struct nh_group *groups = calloc(process->nconns + 1, sizeof(*groups));

	*n = 0;
	for (size_t i = 0; sorted && groups && i < process->nconns; i++)
		sorted[i] = &process->conns[i].stats;
	if (sorted && groups)
		qsort(sorted, process->nconns, sizeof(*sorted), compare);
	for (size_t i = 0; sorted && groups && i < process->nconns; i++) {
		if (*n == 0 || compare(&groups[*n - 1].first, &sorted[i]) != 0) {
			groups[*n].first = sorted[i];
			groups[*n].standing = nh_standing(sorted[i]);
			(*n)++;
		}
		add_to_group(&groups[*n - 1], sorted[i]);
	}
	free(sorted);
	return groups;
}

uint64_t nh_quantile(const struct nccl_ha_histogram *histogram, unsigned int per_mille)
{
	struct ha_hist hist;

	_Static_assert(sizeof(hist) == sizeof(*histogram), "copied as it is");
	memcpy(&hist, histogram, sizeof(hist));
	return ha_hist_quantile(&hist, per_mille);
}
