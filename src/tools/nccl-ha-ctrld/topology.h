/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric as an operator describes it in a YAML file: hosts with ports, switches that add or only
 * forward, links with rates. docs/inc.md has the file's keys.
 *
 * Ports and switches are vertices of one graph: first the ports, then the switches, each in the
 * order of their names. So nothing that is made of a topology depends on the order of its file,
 * but for two links between the same two vertices.
 *
 * Written once, by nc_topology_read(); any thread reads.
 */
#ifndef NC_TOPOLOGY_H
#define NC_TOPOLOGY_H

#include "tools/nccl-ha-ctrld/fields.h"

#define NC_SWITCHES 512
#define NC_HOSTS    4096
#define NC_PORTS    6144
#define NC_LINKS    32768
#define NC_QUOTAS   1024
#define NC_NO_RAIL  (-1)

/* Where the file has it. */
struct nc_place {
	unsigned line, column;
};

/* What a switch has for groups. */
struct nc_capacity {
	int32_t memory_mb; /* for units of all groups */
	int32_t threads;   /* trees of one group */
	int32_t groups;
	int32_t max_fan_in; /* children of a node; a switch with more is several nodes */
};

struct nc_switch {
	char name[NC_NAME_MAX];
	int32_t rail;
	bool aggregates; /* else it forwards only */
	struct nc_capacity capacity;
	struct nc_place at;
};

struct nc_host {
	char name[NC_NAME_MAX];
	struct nc_place at;
	unsigned first_port, n_ports;
};

struct nc_port {
	char name[NC_END_MAX]; /* HOST/NIC */
	int32_t rail;
	struct nc_place at;
};

struct nc_link {
	unsigned a, b; /* vertices */
	uint32_t mbps; /* in each direction */
	struct nc_place at;
};

struct nc_quota {
	char label[NC_NAME_MAX];
	int32_t groups;
};

/* A link, seen from one of its ends. */
struct nc_edge {
	unsigned to, link;
};

struct nc_topology {
	struct nc_switch *switches;
	struct nc_host *hosts;
	struct nc_port *ports;
	struct nc_link *links;
	struct nc_quota *quotas;
	unsigned n_switches, n_hosts, n_ports, n_links, n_quotas;
	int32_t trees_per_group, spare_trees;
	/* Of vertex v: edges[first[v]] to edges[first[v + 1]], by their other end. */
	struct nc_edge *edges;
	unsigned *first;
};

/* False: *fault says why, and there is nothing to free. */
bool nc_topology_read(struct nc_topology *topology, const void *bytes, size_t length,
		      struct nc_fault *fault) HA_MUST_CHECK;
/* The same of a file: false, after a line on stderr that names file, line and column. */
bool nc_topology_load(struct nc_topology *topology, const char *path) HA_MUST_CHECK;
void nc_topology_free(struct nc_topology *topology);

static inline unsigned nc_vertices(const struct nc_topology *topology)
{
	return topology->n_ports + topology->n_switches;
}

static inline bool nc_is_port(const struct nc_topology *topology, unsigned vertex)
{
	return vertex < topology->n_ports;
}

static inline const struct nc_switch *nc_switch_at(const struct nc_topology *topology,
						   unsigned vertex)
{
	return &topology->switches[vertex - topology->n_ports];
}

const char *nc_vertex_name(const struct nc_topology *topology, unsigned vertex);

#define NC_NO_VERTEX UINT32_MAX
enum nc_found { NC_FOUND, NC_UNKNOWN, NC_AMBIGUOUS };

/* A switch, HOST/NIC, or a host, which stands for its port if it has one only. */
enum nc_found nc_vertex_find(const struct nc_topology *topology, const char *name,
			     unsigned *vertex) HA_MUST_CHECK;

/* NULL: none of that label. */
const struct nc_quota *nc_quota_find(const struct nc_topology *topology, const char *label);

#endif
