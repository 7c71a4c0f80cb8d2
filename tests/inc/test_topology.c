/* SPDX-License-Identifier: Apache-2.0 */
/* What nccl-ha-ctrld makes of a topology file, and what it says of one that is wrong. */
#include "../unit/cmocka_all.h"

#include "tools/nccl-ha-ctrld/topology.h"

#include <stdio.h>
#include <string.h>

static struct nc_topology topology;
static struct nc_fault fault;

static bool reads(const char *text)
{
	return nc_topology_read(&topology, text, strlen(text), &fault);
}

static const char two_leaves[] =
    "version: 1\n"
    "switches:\n"
    "  - {name: spine0, rail: 0, capacity: {memory_mb: 64, threads: 2, groups: 3, max_fan_in: 4}}\n"
    "  - name: leaf1\n"
    "  - {name: core, aggregate: false}\n"
    "hosts:\n"
    "  - {name: a, ports: [{nic: n0, rail: 0}]}\n"
    "  - {name: a-b, ports: [{nic: n1}, {nic: n0}]}\n"
    "links:\n"
    "  - {a: a, b: spine0, gbps: 100}\n"
    "  - {a: leaf1, b: a-b/n1, gbps: 0.5}\n"
    "  - {a: a-b/n0, b: leaf1, gbps: 25.125}\n"
    "  - {a: leaf1, b: spine0, gbps: 400}\n"
    "quotas:\n"
    "  - {label: research, groups: 2}\n"
    "defaults: {trees_per_group: 3, spare_trees: 0}\n";

/* ---- what is right --------------------------------------------------------------------------- */

static void all_keys_of_a_file_are_read(void **state)
{
	const struct nc_switch *spine, *leaf;
	unsigned v;

	(void)state;
	assert_true(reads(two_leaves));
	assert_int_equal(topology.n_switches, 3);
	assert_int_equal(topology.n_hosts, 2);
	assert_int_equal(topology.n_ports, 3);
	assert_int_equal(topology.trees_per_group, 3);
	assert_int_equal(topology.spare_trees, 0);
	assert_int_equal(nc_vertex_find(&topology, "spine0", &v), NC_FOUND);
	spine = nc_switch_at(&topology, v);
	assert_int_equal(spine->rail, 0);
	assert_true(spine->aggregates);
	assert_int_equal(spine->capacity.memory_mb, 64);
	assert_int_equal(spine->capacity.threads, 2);
	assert_int_equal(spine->capacity.groups, 3);
	assert_int_equal(spine->capacity.max_fan_in, 4);
	assert_int_equal(spine->at.line, 3);
	assert_int_equal(spine->at.column, 5);
	assert_int_equal(nc_vertex_find(&topology, "core", &v), NC_FOUND);
	assert_false(nc_switch_at(&topology, v)->aggregates);
	assert_int_equal(nc_vertex_find(&topology, "leaf1", &v), NC_FOUND);
	leaf = nc_switch_at(&topology, v);
	assert_int_equal(leaf->rail, NC_NO_RAIL);
	assert_int_equal(leaf->capacity.memory_mb, 512);
	assert_int_equal(leaf->capacity.max_fan_in, 32);
	assert_int_equal(topology.links[0].mbps, 100000);
	assert_int_equal(topology.links[1].mbps, 500);
	assert_int_equal(topology.links[2].mbps, 25125);
	assert_int_equal(nc_quota_find(&topology, "research")->groups, 2);
	assert_null(nc_quota_find(&topology, "others"));
	nc_topology_free(&topology);
}

/* "a-b/n0" comes before "a/n0", and "a" before "a-b". */
static void a_host_stands_for_its_port_if_it_has_one(void **state)
{
	unsigned v, same;

	(void)state;
	assert_true(reads(two_leaves));
	assert_int_equal(nc_vertex_find(&topology, "a", &v), NC_FOUND);
	assert_string_equal(nc_vertex_name(&topology, v), "a/n0");
	assert_int_equal(nc_vertex_find(&topology, "a/n0", &same), NC_FOUND);
	assert_int_equal(v, same);
	assert_int_equal(nc_vertex_find(&topology, "a-b", &v), NC_AMBIGUOUS);
	assert_int_equal(nc_vertex_find(&topology, "a-b/n1", &v), NC_FOUND);
	assert_int_equal(nc_vertex_find(&topology, "b", &v), NC_UNKNOWN);
	nc_topology_free(&topology);
}

static void edges_lead_to_both_ends_in_the_order_of_names(void **state)
{
	unsigned leaf, n = 0;

	(void)state;
	assert_true(reads(two_leaves));
	assert_int_equal(nc_vertex_find(&topology, "leaf1", &leaf), NC_FOUND);
	for (unsigned e = topology.first[leaf]; e < topology.first[leaf + 1]; e++, n++) {
		static const char *const names[] = {"a-b/n0", "a-b/n1", "spine0"};

		assert_string_equal(nc_vertex_name(&topology, topology.edges[e].to), names[n]);
	}
	assert_int_equal(n, 3);
	assert_int_equal(topology.first[nc_vertices(&topology)], 2 * topology.n_links);
	nc_topology_free(&topology);
}

/* ---- what is wrong --------------------------------------------------------------------------- */

struct wrong {
	const char *text;
	unsigned line, column;
	const char *said;
};

#define V "version: 1\nhosts: []\nlinks: []\nswitches:\n"
#define S "version: 1\nswitches:\n- {name: s}\n- {name: r, rail: 1}\n"
#define H                                                                                          \
	"hosts:\n- {name: h, ports: [{nic: a, rail: 0}, {nic: b}]}\n- {name: g, ports: [{nic: "    \
	"a}]}\n"
#define SH S H

static const struct wrong wrongs[] = {
    /* no YAML */
    {"", 0, 0, "empty"},
    {"version: 1\nswitches: [", 3, 1, "no YAML"},
    {"version: 1\n\tswitches:", 2, 1, "no YAML"},
    {"version: 1\nsw\xff", 2, 3, "no YAML"},
    {"version: 1\n---\nversion: 1", 2, 1, "second document"},
    {"version: &a 1", 1, 10, "anchors"},
    {"version: 1\nswitches: *a", 2, 11, "anchors"},
    {"version: !!int 1", 1, 10, "tags"},
    {"version: \"1\\n\"", 1, 10, "control characters"},
    {"? [a]\n: 1", 1, 3, "key is a list"},
    {"{version: 1, switches: [[[[[[[[[[[[[[[[", 1, 39, "in one another"},
    /* not these keys */
    {"version", 1, 1, "keys and values"},
    {"version: 2", 1, 10, "version: '2'"},
    {"version: -1", 1, 10, "version: '-1'"},
    {"version: 1\nversion: 1", 2, 1, "twice"},
    {"version: 1\nswitch: []", 2, 1, "no key 'switch'; its keys are version, switches"},
    {"version: 1\nswitches: 3", 2, 11, "here goes a list"},
    {"version: [1]", 1, 10, "here goes one value"},
    {"switches: []", 1, 1, "needs version"},
    {S "links: []", 1, 1, "needs hosts"},
    {S H "links: []\ndefaults: {trees_per_group: 9}", 9, 29, "from 1 to 8"},
    {S H "links: []\ndefaults: {trees_per_group: 5, spare_trees: 4}", 9, 11, "more than 8"},
    /* switches */
    {V "- {name: a/b}", 5, 10, "no name"},
    {V "- {name: a, rails: 1}", 5, 13, "no key 'rails'"},
    {V "- {rail: 1}", 5, 3, "needs name"},
    {V "- {name: a, aggregate: yes}", 5, 24, "neither true nor false"},
    {V "- {name: a, capacity: {max_fan_in: 1}}", 5, 36, "from 2 to 32"},
    {V "- {name: a, capacity: {memory_mb: x}}", 5, 35, "'x'"},
    {V "- {name: a}\n- {name: b}\n- {name: a}\n", 7, 3, "a is taken, on line 5"},
    /* hosts */
    {S "hosts:\n- {name: h, ports: []}\nlinks: []", 6, 20, "no ports"},
    {S "hosts:\n- {name: h, ports: [{rail: 1}]}\nlinks: []", 6, 21, "needs nic"},
    {S "hosts:\n- {name: h, ports: [{nic: a}, {nic: a}]}\nlinks: []", 6, 31, "h/a is taken"},
    {S "hosts:\n- {name: h, ports: [{nic: a}]}\n- {name: h, ports: [{nic: b}]}\nlinks: []", 7, 3,
     "h is taken, on line 6"},
    {S "hosts:\n- {name: s, ports: [{nic: a}]}\nlinks: []", 6, 3, "s is taken, on line 3"},
    /* links */
    {SH "links:\n- {a: h/a, b: t, gbps: 1}", 9, 3, "no switch, host or port t"},
    {SH "links:\n- {a: h, b: s, gbps: 1}", 9, 3, "write h/NIC"},
    {SH "links:\n- {a: h/a, b: h/b, gbps: 1}", 9, 3, "both ports"},
    {SH "links:\n- {a: s, b: s, gbps: 1}", 9, 3, "both ends are s"},
    {SH "links:\n- {a: h/a, b: r, gbps: 1}", 9, 3, "h/a is of rail 0 and r of rail 1"},
    {SH "links:\n- {a: h/a, b: s, gbps: 0}", 9, 24, "no rate"},
    {SH "links:\n- {a: h/a, b: s, gbps: 1.2345}", 9, 24, "no rate"},
    {SH "links:\n- {a: h/a, b: s, gbps: 10001}", 9, 24, "no rate"},
    {SH "links:\n- {a: h/a, b: s, gbps: 1e3}", 9, 24, "no rate"},
    {SH "links:\n- {a: h/a/b, b: s, gbps: 1}", 9, 7, "no end of a link"},
    {SH "links:\n- {a: h/a, b: s}", 9, 3, "needs gbps"},
    /* quotas */
    {SH "links: []\nquotas: [{label: x, groups: 1}, {label: x, groups: 2}]", 9, 33, "already"},
};

static void a_mistake_is_named_with_its_place_and_what_to_do(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
		const struct wrong *w = &wrongs[i];

		if (reads(w->text) || fault.line != w->line || fault.column != w->column ||
		    !strstr(fault.text, w->said))
			fail_msg("%s\n%u:%u: %s\nis not %u:%u: %s", w->text, fault.line,
				 fault.column, fault.text, w->line, w->column, w->said);
		assert_null(topology.switches);
	}
}

/* Of each kind one more than there may be. */
static void what_is_too_big_is_refused(void **state)
{
	char *text = malloc(NC_YAML_BYTES + 2), *end = text;

	(void)state;
	memset(text, ' ', NC_YAML_BYTES + 1);
	assert_false(nc_topology_read(&topology, text, NC_YAML_BYTES + 1, &fault));
	assert_non_null(strstr(fault.text, "1048576 bytes"));
	end += sprintf(end, "version: 1\nhosts: []\nlinks: []\nswitches:\n");
	for (unsigned i = 0; i <= NC_SWITCHES; i++)
		end += sprintf(end, "- {name: s%u}\n", i);
	assert_false(reads(text));
	assert_int_equal(fault.line, 5);
	assert_non_null(strstr(fault.text, "513 switches"));
	end = text + sprintf(text, "version: 1\nswitches: [");
	for (unsigned i = 0; i < NC_YAML_NODES; i++)
		end += sprintf(end, "a,");
	assert_false(reads(text));
	assert_non_null(strstr(fault.text, "100000 values"));
	free(text);
}

/* Every beginning of a good file is read, or refused with a place that is in it. */
static void a_file_that_is_cut_is_refused(void **state)
{
	unsigned lines = 0, good = 0;

	(void)state;
	for (size_t n = 0; n < strlen(two_leaves); n++) {
		lines += two_leaves[n] == '\n';
		if (nc_topology_read(&topology, two_leaves, n, &fault)) {
			nc_topology_free(&topology);
			good++;
		} else {
			/* Of what ends too early the place is the line after the end. */
			assert_in_range(fault.line, 0, lines + 2);
		}
	}
	/* After the links, the quotas or within the defaults; nowhere else is it whole. */
	assert_in_range(good, 1, 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_keys_of_a_file_are_read),
	    cmocka_unit_test(a_host_stands_for_its_port_if_it_has_one),
	    cmocka_unit_test(edges_lead_to_both_ends_in_the_order_of_names),
	    cmocka_unit_test(a_mistake_is_named_with_its_place_and_what_to_do),
	    cmocka_unit_test(what_is_too_big_is_refused),
	    cmocka_unit_test(a_file_that_is_cut_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
