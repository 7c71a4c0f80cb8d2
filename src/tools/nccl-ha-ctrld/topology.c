/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/topology.h"

#include "base/text.h"
#include "inc/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIELDS(table) table, sizeof(table) / sizeof(table[0])
#define RAILS	      1024

/* What is read, and where a fault goes. */
struct reading {
	struct nc_topology *t;
	const struct nc_yaml *yaml;
	struct nc_fault *fault;
};

struct top {
	int32_t version;
	uint32_t switches, hosts, links, quotas, defaults;
};

static const struct nc_field top_fields[] = {
    {"version", NC_NUMBER, offsetof(struct top, version), true, 1, 1},
    {"switches", NC_SEQUENCE, offsetof(struct top, switches), true, 0, 0},
    {"hosts", NC_SEQUENCE, offsetof(struct top, hosts), true, 0, 0},
    {"links", NC_SEQUENCE, offsetof(struct top, links), true, 0, 0},
    {"quotas", NC_SEQUENCE, offsetof(struct top, quotas), false, 0, 0},
    {"defaults", NC_MAPPING, offsetof(struct top, defaults), false, 0, 0},
};

static const struct nc_field default_fields[] = {
    {"trees_per_group", NC_NUMBER, offsetof(struct nc_topology, trees_per_group), false, 1,
     HA_PLAN_LANES},
    {"spare_trees", NC_NUMBER, offsetof(struct nc_topology, spare_trees), false, 0, HA_PLAN_LANES},
};

static bool out_of_memory(struct nc_fault *fault)
{
	*fault = (struct nc_fault){.text = "out of memory"};
	return false;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static unsigned length_of(const struct nc_yaml *yaml, uint32_t list)
{
	unsigned n = 0;

	for (uint32_t i = yaml->nodes[list].first; i; i = yaml->nodes[i].next)
		n++;
	return n;
}

/* Room for as many as the list has. NULL: *fault says why. */
static void *room_for(const struct reading *r, uint32_t list, const char *what, unsigned most,
		      size_t size)
{
	unsigned n = length_of(r->yaml, list);
	void *room;

	if (n > most) {
		nc_yaml_wrong(r->yaml, list, r->fault, "%u %s are more than %u; divide the fabric",
			      n, what, most);
		return NULL;
	}
	room = calloc(n + 1, size);
	if (!room)
		out_of_memory(r->fault);
	return room;
}

static struct nc_place place_of(const struct reading *r, uint32_t node)
{
	return (struct nc_place){r->yaml->nodes[node].line, r->yaml->nodes[node].column};
}

/* ---- switches -------------------------------------------------------------------------------- */

static bool read_capacity(const struct reading *r, uint32_t node, struct nc_capacity *capacity)
{
	static const struct nc_field fields[] = {
	    {"memory_mb", NC_NUMBER, offsetof(struct nc_capacity, memory_mb), false, 1, 1 << 20},
	    {"threads", NC_NUMBER, offsetof(struct nc_capacity, threads), false, 1, 1024},
	    {"groups", NC_NUMBER, offsetof(struct nc_capacity, groups), false, 0, 65536},
	    {"max_fan_in", NC_NUMBER, offsetof(struct nc_capacity, max_fan_in), false, 2,
	     HA_PLAN_CHILDREN},
	};

	*capacity = (struct nc_capacity){512, HA_PLAN_LANES, 64, HA_PLAN_CHILDREN};
	return !node ||
	       nc_fields_read(r->yaml, node, "a capacity", FIELDS(fields), capacity, r->fault);
}

static bool read_switch(const struct reading *r, uint32_t node, struct nc_switch *out)
{
	struct said {
		char name[NC_NAME_MAX];
		int32_t rail;
		bool aggregates;
		uint32_t capacity;
	} said = {.rail = NC_NO_RAIL, .aggregates = true};
	static const struct nc_field fields[] = {
	    {"name", NC_NAME, offsetof(struct said, name), true, 0, 0},
	    {"rail", NC_NUMBER, offsetof(struct said, rail), false, 0, RAILS},
	    {"aggregate", NC_BOOL, offsetof(struct said, aggregates), false, 0, 0},
	    {"capacity", NC_MAPPING, offsetof(struct said, capacity), false, 0, 0},
	};

	if (!nc_fields_read(r->yaml, node, "a switch", FIELDS(fields), &said, r->fault))
		return false;
	*out = (struct nc_switch){
	    .rail = said.rail, .aggregates = said.aggregates, .at = place_of(r, node)};
	ha_copy_text(out->name, sizeof(out->name), said.name);
	return read_capacity(r, said.capacity, &out->capacity);
}

static bool read_switches(const struct reading *r, uint32_t list)
{
	r->t->switches = room_for(r, list, "switches", NC_SWITCHES, sizeof(*r->t->switches));
	if (!r->t->switches)
		return false;
	for (uint32_t i = r->yaml->nodes[list].first; i; i = r->yaml->nodes[i].next)
		if (!read_switch(r, i, &r->t->switches[r->t->n_switches++]))
			return false;
	return true;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool read_port(const struct reading *r, uint32_t node, const char *host)
{
	struct said {
		char nic[NC_NAME_MAX];
		int32_t rail;
	} said = {.rail = NC_NO_RAIL};
	static const struct nc_field fields[] = {
	    {"nic", NC_NAME, offsetof(struct said, nic), true, 0, 0},
	    {"rail", NC_NUMBER, offsetof(struct said, rail), false, 0, RAILS},
	};
	struct nc_port *port = &r->t->ports[r->t->n_ports];

	if (!nc_fields_read(r->yaml, node, "a port", FIELDS(fields), &said, r->fault))
		return false;
	port->rail = said.rail;
	port->at = place_of(r, node);
	snprintf(port->name, sizeof(port->name), "%s/%s", host, said.nic);
	r->t->n_ports++;
	return true;
}

/* For those of one host more. */
static bool room_for_ports(const struct reading *r, uint32_t list, const char *host)
{
	unsigned n = length_of(r->yaml, list);
	struct nc_port *ports;

	if (n == 0)
		return nc_yaml_wrong(r->yaml, list, r->fault,
				     "host %s has no ports; write {nic: NAME} for each", host);
	if (r->t->n_ports + n > NC_PORTS)
		return nc_yaml_wrong(r->yaml, list, r->fault,
				     "all hosts have more than %d ports; divide the fabric",
				     NC_PORTS);
	ports = realloc(r->t->ports, (r->t->n_ports + n + 1) * sizeof(*ports));
	if (!ports)
		return out_of_memory(r->fault);
	r->t->ports = ports;
	return true;
}

static bool read_host(const struct reading *r, uint32_t node, struct nc_host *host)
{
	struct said {
		char name[NC_NAME_MAX];
		uint32_t ports;
	} said = {{0}, 0};
	static const struct nc_field fields[] = {
	    {"name", NC_NAME, offsetof(struct said, name), true, 0, 0},
	    {"ports", NC_SEQUENCE, offsetof(struct said, ports), true, 0, 0},
	};

	if (!nc_fields_read(r->yaml, node, "a host", FIELDS(fields), &said, r->fault))
		return false;
	*host = (struct nc_host){.at = place_of(r, node)};
	ha_copy_text(host->name, sizeof(host->name), said.name);
	if (!room_for_ports(r, said.ports, host->name))
		return false;
	for (uint32_t i = r->yaml->nodes[said.ports].first; i; i = r->yaml->nodes[i].next)
		if (!read_port(r, i, host->name))
			return false;
	return true;
}

static bool read_hosts(const struct reading *r, uint32_t list)
{
	r->t->hosts = room_for(r, list, "hosts", NC_HOSTS, sizeof(*r->t->hosts));
	if (!r->t->hosts)
		return false;
	r->t->ports = calloc(1, sizeof(*r->t->ports)); /* one more than none: there is a list */
	if (!r->t->ports)
		return out_of_memory(r->fault);
	for (uint32_t i = r->yaml->nodes[list].first; i; i = r->yaml->nodes[i].next)
		if (!read_host(r, i, &r->t->hosts[r->t->n_hosts++]))
			return false;
	return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* All of these begin with their names. */
static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* The later one is at fault. */
static bool named_twice(struct nc_fault *fault, const char *name, struct nc_place a,
			struct nc_place b)
{
	const bool a_is_later = a.line > b.line || (a.line == b.line && a.column > b.column);
	const struct nc_place first = a_is_later ? b : a, second = a_is_later ? a : b;

	*fault = (struct nc_fault){.line = second.line, .column = second.column};
	snprintf(fault->text, sizeof(fault->text),
		 "the name %s is taken, on line %u; give each switch, host and port its own", name,
		 first.line);
	return false;
}

/* Neighbours in the order of names are compared: of three with one name the first pair is told. */
static bool names_differ(const struct nc_topology *t, struct nc_fault *fault)
{
	for (unsigned i = 1; i < t->n_switches; i++)
		if (!strcmp(t->switches[i - 1].name, t->switches[i].name))
			return named_twice(fault, t->switches[i].name, t->switches[i - 1].at,
					   t->switches[i].at);
	for (unsigned i = 1; i < t->n_hosts; i++)
		if (!strcmp(t->hosts[i - 1].name, t->hosts[i].name))
			return named_twice(fault, t->hosts[i].name, t->hosts[i - 1].at,
					   t->hosts[i].at);
	for (unsigned i = 1; i < t->n_ports; i++)
		if (!strcmp(t->ports[i - 1].name, t->ports[i].name))
			return named_twice(fault, t->ports[i].name, t->ports[i - 1].at,
					   t->ports[i].at);
	for (unsigned i = 0; i < t->n_hosts; i++) {
		const struct nc_switch *same = bsearch(t->hosts[i].name, t->switches, t->n_switches,
						       sizeof(*t->switches), by_name);

		if (same)
			return named_twice(fault, same->name, t->hosts[i].at, same->at);
	}
	return true;
}

static bool is_of_host(const struct nc_port *port, const struct nc_host *host)
{
	size_t length = strlen(host->name);

	return !strncmp(port->name, host->name, length) && port->name[length] == '/';
}

/* The ports of a host are neighbours in the order of names, as they begin with its name and a
 * slash, but hosts need not come in the order of their ports: "a-b" is after "a", and "a-b/n" is
 * before "a/n". */
static void find_ports(struct nc_topology *t)
{
	for (unsigned i = 0; i < t->n_hosts; i++) {
		struct nc_host *host = &t->hosts[i];
		char begin[NC_NAME_MAX + 1];
		unsigned low = 0, high = t->n_ports;

		snprintf(begin, sizeof(begin), "%s/", host->name);
		while (low < high) {
			unsigned middle = (low + high) / 2;

			if (strcmp(t->ports[middle].name, begin) < 0)
				low = middle + 1;
			else
				high = middle;
		}
		host->first_port = low;
		while (low < t->n_ports && is_of_host(&t->ports[low], host))
			low++;
		host->n_ports = low - host->first_port;
	}
}

static bool order_names(const struct reading *r)
{
	struct nc_topology *t = r->t;

	qsort(t->switches, t->n_switches, sizeof(*t->switches), by_name);
	qsort(t->hosts, t->n_hosts, sizeof(*t->hosts), by_name);
	qsort(t->ports, t->n_ports, sizeof(*t->ports), by_name);
	if (!names_differ(t, r->fault))
		return false;
	find_ports(t);
	return true;
}

const char *nc_vertex_name(const struct nc_topology *topology, unsigned vertex)
{
	return nc_is_port(topology, vertex) ? topology->ports[vertex].name
					    : nc_switch_at(topology, vertex)->name;
}

enum nc_found nc_vertex_find(const struct nc_topology *topology, const char *name, unsigned *vertex)
{
	const struct nc_topology *t = topology;
	const struct nc_switch *a_switch;
	const struct nc_port *port;
	const struct nc_host *host;

	*vertex = NC_NO_VERTEX;
	a_switch = bsearch(name, t->switches, t->n_switches, sizeof(*a_switch), by_name);
	port = bsearch(name, t->ports, t->n_ports, sizeof(*port), by_name);
	host = bsearch(name, t->hosts, t->n_hosts, sizeof(*host), by_name);
	if (a_switch)
		*vertex = t->n_ports + (unsigned)(a_switch - t->switches);
	else if (port)
		*vertex = (unsigned)(port - t->ports);
	else if (host && host->n_ports == 1)
		*vertex = host->first_port;
	return *vertex != NC_NO_VERTEX ? NC_FOUND : host ? NC_AMBIGUOUS : NC_UNKNOWN;
}

/* ---- links ----------------------------------------------------------------------------------- */

static int32_t rail_of(const struct nc_topology *t, unsigned vertex)
{
	return nc_is_port(t, vertex) ? t->ports[vertex].rail : nc_switch_at(t, vertex)->rail;
}

static bool find_end(const struct reading *r, uint32_t node, const char *name, unsigned *vertex)
{
	switch (nc_vertex_find(r->t, name, vertex)) {
	case NC_FOUND:
		return true;
	case NC_AMBIGUOUS:
		return nc_yaml_wrong(r->yaml, node, r->fault,
				     "host %s has several ports; write %s/NIC", name, name);
	default:
		return nc_yaml_wrong(r->yaml, node, r->fault,
				     "there is no switch, host or port %s; add it, or correct the "
				     "name",
				     name);
	}
}

static bool check_link(const struct reading *r, uint32_t node, const struct nc_link *link)
{
	const struct nc_topology *t = r->t;
	const char *a = nc_vertex_name(t, link->a), *b = nc_vertex_name(t, link->b);
	int32_t rail_a = rail_of(t, link->a), rail_b = rail_of(t, link->b);

	if (link->a == link->b)
		return nc_yaml_wrong(r->yaml, node, r->fault, "both ends are %s; a link has two",
				     a);
	if (nc_is_port(t, link->a) && nc_is_port(t, link->b))
		return nc_yaml_wrong(r->yaml, node, r->fault,
				     "%s and %s are both ports of hosts; link each with a switch",
				     a, b);
	if (rail_a != NC_NO_RAIL && rail_b != NC_NO_RAIL && rail_a != rail_b)
		return nc_yaml_wrong(
		    r->yaml, node, r->fault,
		    "%s is of rail %d and %s of rail %d; correct the link, or take "
		    "the rail away",
		    a, rail_a, b, rail_b);
	return true;
}

static bool read_link(const struct reading *r, uint32_t node, struct nc_link *link)
{
	struct said {
		char a[NC_END_MAX], b[NC_END_MAX];
		uint32_t mbps;
	} said = {{0}, {0}, 0};
	static const struct nc_field fields[] = {
	    {"a", NC_END, offsetof(struct said, a), true, 0, 0},
	    {"b", NC_END, offsetof(struct said, b), true, 0, 0},
	    {"gbps", NC_RATE, offsetof(struct said, mbps), true, 0, 0},
	};

	if (!nc_fields_read(r->yaml, node, "a link", FIELDS(fields), &said, r->fault) ||
	    !find_end(r, node, said.a, &link->a) || !find_end(r, node, said.b, &link->b))
		return false;
	link->mbps = said.mbps;
	link->at = place_of(r, node);
	return check_link(r, node, link);
}

static bool read_links(const struct reading *r, uint32_t list)
{
	r->t->links = room_for(r, list, "links", NC_LINKS, sizeof(*r->t->links));
	if (!r->t->links)
		return false;
	for (uint32_t i = r->yaml->nodes[list].first; i; i = r->yaml->nodes[i].next)
		if (!read_link(r, i, &r->t->links[r->t->n_links++]))
			return false;
	return true;
}

static int by_end(const void *a, const void *b)
{
	const struct nc_edge *one = a, *other = b;

	if (one->to != other->to)
		return one->to < other->to ? -1 : 1;
	return (one->link > other->link) - (one->link < other->link);
}

/* Edges of each vertex, one after the other, sorted. */
static bool make_edges(const struct reading *r)
{
	struct nc_topology *t = r->t;
	unsigned n = nc_vertices(t), *next = calloc(n + 1, sizeof(*next));

	t->first = calloc(n + 1, sizeof(*t->first));
	t->edges = calloc(2 * (size_t)t->n_links + 1, sizeof(*t->edges));
	if (!t->first || !t->edges || !next) {
		free(next);
		return out_of_memory(r->fault);
	}
	for (unsigned i = 0; i < t->n_links; i++) {
		t->first[t->links[i].a + 1]++;
		t->first[t->links[i].b + 1]++;
	}
	for (unsigned v = 0; v < n; v++) {
		t->first[v + 1] += t->first[v];
		next[v] = t->first[v];
	}
	for (unsigned i = 0; i < t->n_links; i++) {
		const struct nc_link *link = &t->links[i];

		t->edges[next[link->a]++] = (struct nc_edge){link->b, i};
		t->edges[next[link->b]++] = (struct nc_edge){link->a, i};
	}
	free(next);
	for (unsigned v = 0; v < n; v++)
		qsort(&t->edges[t->first[v]], t->first[v + 1] - t->first[v], sizeof(*t->edges),
		      by_end);
	return true;
}

/* ---- quotas ---------------------------------------------------------------------------------- */

static bool read_quota(const struct reading *r, uint32_t node)
{
	static const struct nc_field fields[] = {
	    {"label", NC_NAME, offsetof(struct nc_quota, label), true, 0, 0},
	    {"groups", NC_NUMBER, offsetof(struct nc_quota, groups), true, 0, 65536},
	};
	struct nc_quota said = {{0}, 0};

	if (!nc_fields_read(r->yaml, node, "a quota", FIELDS(fields), &said, r->fault))
		return false;
	if (nc_quota_find(r->t, said.label))
		return nc_yaml_wrong(r->yaml, node, r->fault,
				     "the label %s has a quota already; take one away", said.label);
	r->t->quotas[r->t->n_quotas++] = said;
	return true;
}

static bool read_quotas(const struct reading *r, uint32_t list)
{
	r->t->quotas = room_for(r, list, "quotas", NC_QUOTAS, sizeof(*r->t->quotas));
	if (!r->t->quotas)
		return false;
	for (uint32_t i = r->yaml->nodes[list].first; i; i = r->yaml->nodes[i].next)
		if (!read_quota(r, i))
			return false;
	return true;
}

const struct nc_quota *nc_quota_find(const struct nc_topology *topology, const char *label)
{
	for (unsigned i = 0; i < topology->n_quotas; i++)
		if (!strcmp(topology->quotas[i].label, label))
			return &topology->quotas[i];
	return NULL;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool read_top(const struct reading *r)
{
	struct top top = {0};

	if (!nc_fields_read(r->yaml, 0, "a topology", FIELDS(top_fields), &top, r->fault))
		return false;
	r->t->trees_per_group = 2;
	r->t->spare_trees = 1;
	if (top.defaults && !nc_fields_read(r->yaml, top.defaults, "the defaults",
					    FIELDS(default_fields), r->t, r->fault))
		return false;
	if (r->t->trees_per_group + r->t->spare_trees > HA_PLAN_LANES)
		return nc_yaml_wrong(
		    r->yaml, top.defaults, r->fault,
		    "%d trees and %d spare ones are more than %d together; ask for "
		    "fewer",
		    r->t->trees_per_group, r->t->spare_trees, HA_PLAN_LANES);
	return read_switches(r, top.switches) && read_hosts(r, top.hosts) && order_names(r) &&
	       read_links(r, top.links) && make_edges(r) &&
	       (!top.quotas || read_quotas(r, top.quotas));
}

bool nc_topology_read(struct nc_topology *topology, const void *bytes, size_t length,
		      struct nc_fault *fault)
{
	struct nc_yaml yaml;
	const struct reading reading = {topology, &yaml, fault};
	bool good;

	*topology = (struct nc_topology){0};
	good = nc_yaml_read(&yaml, bytes, length, fault) && read_top(&reading);
	nc_yaml_free(&yaml);
	if (!good)
		nc_topology_free(topology);
	return good;
}

void nc_topology_free(struct nc_topology *topology)
{
	free(topology->switches);
	free(topology->hosts);
	free(topology->ports);
	free(topology->links);
	free(topology->quotas);
	free(topology->edges);
	free(topology->first);
	*topology = (struct nc_topology){0};
}

/* As much as there may be and a byte more, to see that it is too much. */
static ssize_t read_all(const char *path, char *bytes, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t got = 0;
	ssize_t n = fd < 0 ? -1 : 1;

	while (n > 0 && got < room) {
		n = read(fd, bytes + got, room - got);
		got += n > 0 ? (size_t)n : 0;
	}
	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : (ssize_t)got;
}

bool nc_topology_load(struct nc_topology *topology, const char *path)
{
	char *bytes = malloc(NC_YAML_BYTES + 1);
	ssize_t length = bytes ? read_all(path, bytes, NC_YAML_BYTES + 1) : -1;
	struct nc_fault fault;
	bool good = false;

	*topology = (struct nc_topology){0};
	if (length < 0)
		fprintf(stderr, "nccl-ha-ctrld: %s: %s\n", path, strerror(errno));
	else if (nc_topology_read(topology, bytes, (size_t)length, &fault))
		good = true;
	else if (fault.line)
		fprintf(stderr, "%s:%u:%u: %s\n", path, fault.line, fault.column, fault.text);
	else
		fprintf(stderr, "%s: %s\n", path, fault.text);
	free(bytes);
	return good;
}
