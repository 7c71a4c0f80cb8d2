/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a topology file: it is refused, with a place that is in it and a text, or every link
 * has two ends that are in the graph, every name is found again, and nothing has two names.
 */
#include "fuzz.h"

#include "tools/nccl-ha-ctrld/topology.h"

#include <string.h>

#define HEAD "version: 1\nswitches:\n- {name: s, rail: 0}\n- name: t\n  aggregate: false\n"

const struct fuzz_seed fuzz_seeds[] = {
    FUZZ_TEXT(HEAD "hosts:\n- {name: h, ports: [{nic: a, rail: 0}, {nic: b}]}\n"
		   "links:\n- {a: h/a, b: s, gbps: 100}\n- {a: s, b: t, gbps: 0.5}\n"),
    FUZZ_TEXT(HEAD
	      "hosts: [{name: h, ports: [{nic: a}]}]\nlinks: [{a: h, b: t, gbps: 1}]\n"
	      "quotas: [{label: x, groups: 3}]\ndefaults: {trees_per_group: 2, spare_trees: 0}\n"),
    FUZZ_TEXT("{version: 1, switches: [{name: s, capacity: {memory_mb: 1, threads: 1, groups: 1, "
	      "max_fan_in: 2}}], hosts: [], links: []}"),
    FUZZ_TEXT("version: &a 1\nhosts: *a\n---\n!!map {? [a] : \"\\x00\"}\n"),
    {NULL, 0},
};

static void look_at(const struct nc_topology *t)
{
	unsigned found;

	for (unsigned i = 0; i < t->n_links; i++)
		FUZZ_CHECK(t->links[i].a < nc_vertices(t) && t->links[i].b < nc_vertices(t) &&
			   t->links[i].a != t->links[i].b && t->links[i].mbps > 0);
	for (unsigned v = 0; v < nc_vertices(t); v++) {
		FUZZ_CHECK(nc_vertex_find(t, nc_vertex_name(t, v), &found) == NC_FOUND &&
			   found == v);
		for (unsigned e = t->first[v]; e < t->first[v + 1]; e++) {
			const struct nc_link *link = &t->links[t->edges[e].link];

			FUZZ_CHECK((link->a == v && link->b == t->edges[e].to) ||
				   (link->b == v && link->a == t->edges[e].to));
		}
	}
	for (unsigned i = 0; i < t->n_hosts; i++)
		FUZZ_CHECK(t->hosts[i].n_ports > 0 &&
			   t->hosts[i].first_port + t->hosts[i].n_ports <= t->n_ports);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct nc_topology topology;
	struct nc_fault fault;
	unsigned lines = 1;

	if (nc_topology_read(&topology, data, size, &fault)) {
		look_at(&topology);
		nc_topology_free(&topology);
		return 0;
	}
	/* YAML knows other ends of lines, too. */
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n' || data[i] == '\r' || data[i] >= 0x80;
	FUZZ_CHECK(fault.text[0] && fault.line <= lines + 1 &&
		   (fault.line == 0) == (fault.column == 0));
	FUZZ_CHECK(topology.switches == NULL);
	return 0;
}
