/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simverbs status: what a fabric is, who uses it, what went over it, which fault rules fired.
 * The JSON document is the whole; the text is drawn from it.
 */
#include "tools/simverbs/tool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct status_args {
	const char *name;
	bool json;
};

static error_t parse_status(int key, char *arg, struct argp_state *state)
{
	struct status_args *args = state->input;

	switch (key) {
	case 'j':
		args->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (args->name)
			argp_usage(state);
		args->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!args->name)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static json_t *counters_json(const atomic_ullong *counters)
{
	json_t *out = json_object();
	int i;

	for (i = 0; i < SV_CNT_COUNT; i++)
		json_object_set_new(out, sv_counter_names[i],
				    json_integer((json_int_t)atomic_load(&counters[i])));
	return out;
}

static const char *str(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

static long long num(const json_t *object, const char *key)
{
	return (long long)json_integer_value(json_object_get(object, key));
}

static const char *cut_name(unsigned cut)
{
	static const char *const names[] = {"none", "from", "to", "both"};

	return names[cut & SV_CUT_BOTH];
}

static const char *life_name(unsigned life)
{
	static const char *const names[] = {[SV_DEVICE_ALIVE] = "alive",
					    [SV_DEVICE_KILLED] = "killed",
					    [SV_DEVICE_DISASSOCIATED] = "disassociated",
					    [SV_DEVICE_FEIGNS] = "feigning"};

	return life < sizeof(names) / sizeof(names[0]) ? names[life] : "unknown";
}

static json_t *legs_json(unsigned legs)
{
	json_t *out = json_array();

	for (unsigned leg = 0; leg < SV_LEGS; leg++)
		json_array_append_new(out, json_string(!(legs & SV_LEG_DEAD(leg))    ? "up"
						       : legs & SV_LEG_REMAPPED(leg) ? "remapped"
										     : "down"));
	return out;
}

static json_t *way_json(const struct sv_link *link, enum sv_direction direction)
{
	const struct sv_link_way *way = &link->way[direction];

	return json_pack("{s:I, s:I}", "bytes", (json_int_t)atomic_load(&way->bytes), "packets",
			 (json_int_t)atomic_load(&way->packets));
}

static json_t *link_json(const struct sv_link *link)
{
	return json_pack("{s:o, s:o}", "out", way_json(link, SV_OUT), "in", way_json(link, SV_IN));
}

/* What a paced port's link has carried; of an aggregator, those that have carried something. */
static json_t *links_json(const struct sv_fabric *fab, unsigned port)
{
	const struct sv_fabric_header *h = fab->h;
	unsigned ports = sv_fabric_devices(h) * h->num_phys, peer;
	json_t *links = json_array();

	if (!sv_links_is_aggregator(&h->plan, port)) {
		json_array_append_new(links, link_json(sv_links_of(&fab->links, port, port)));
		return links;
	}
	for (peer = 0; peer < ports; peer++) {
		const struct sv_link *link = sv_links_of(&fab->links, port, peer);
		unsigned device = sv_fab_device_of(h, peer);
		json_t *out;

		if (!atomic_load(&link->way[SV_OUT].packets) &&
		    !atomic_load(&link->way[SV_IN].packets))
			continue;
		out = link_json(link);
		json_object_set_new(out, "peer_host", json_integer(device / h->rails));
		json_object_set_new(out, "peer_rail", json_integer(device % h->rails));
		json_object_set_new(out, "peer_port",
				    json_integer(peer / sv_fabric_devices(h) + 1));
		json_array_append_new(links, out);
	}
	return links;
}

/* By its endpoints that are gone, and those that are there. */
static json_t *traffic_json(const struct sv_fabric_header *h, unsigned device, unsigned phys)
{
	const struct sv_traffic *gone = &h->traffic[sv_fab_port_index(h, device, phys)];
	json_t *out = json_object();
	unsigned i, kind;

	for (kind = 0; kind < SV_TRAFFIC_KINDS; kind++) {
		uint64_t sum = __atomic_load_n(&gone->n[kind], __ATOMIC_RELAXED);

		for (i = 1; i < SV_MAX_SLOTS; i++)
			if (atomic_load(&h->slots[i].state) == SV_SLOT_LIVE &&
			    atomic_load(&h->slots[i].device) == device)
				sum += __atomic_load_n(&h->slots[i].traffic[phys].n[kind],
						       __ATOMIC_RELAXED);
		json_object_set_new(out, sv_traffic_names[kind], json_integer((json_int_t)sum));
	}
	return out;
}

static json_t *port_json(const struct sv_fabric *fab, unsigned device, unsigned phys)
{
	const struct sv_fabric_header *h = fab->h;
	const struct sv_fab_port *port = &h->ports[sv_fab_port_index(h, device, phys)];
	char gid[INET6_ADDRSTRLEN];
	json_t *gids = json_array(), *pkeys = json_array(), *out;
	unsigned i;

	for (i = 0; i < port->cfg.num_pkeys; i++)
		json_array_append_new(pkeys, json_integer(port->cfg.pkeys[i]));
	for (i = 0; i < port->cfg.num_gids; i++)
		json_array_append_new(
		    gids,
		    json_string(inet_ntop(AF_INET6, port->cfg.gids[i].gid.raw, gid, sizeof(gid))));
	out = json_pack("{s:i, s:s, s:s, s:i, s:o, s:o, s:o}", "port", (int)phys + 1, "link",
			atomic_load(&port->link_up) ? "up" : "down", "cut",
			cut_name(atomic_load(&port->cut)), "lid", (int)port->cfg.lid, "gids", gids,
			"pkeys", pkeys, "traffic", traffic_json(h, device, phys));
	if (h->paced)
		json_object_set_new(out, "links",
				    links_json(fab, sv_fab_port_index(h, device, phys)));
	return out;
}

static json_t *ports_json(const struct sv_fabric *fab, unsigned device)
{
	json_t *ports = json_array();
	unsigned i;

	for (i = 0; i < fab->h->num_phys; i++)
		json_array_append_new(ports, port_json(fab, device, i));
	return ports;
}

static json_t *device_json(const struct sv_fabric *fab, unsigned index)
{
	const struct sv_fabric_header *h = fab->h;
	const struct sv_fab_device *dev = &h->devices[index];
	json_t *out, *first = port_json(fab, index, 0);
	atomic_ullong sum[SV_CNT_COUNT];
	char name[16], guid[24];
	unsigned i, c;

	for (c = 0; c < SV_CNT_COUNT; c++)
		atomic_init(&sum[c], atomic_load(&dev->counters[c]));
	for (i = 1; i < SV_MAX_SLOTS; i++)
		if (atomic_load(&h->slots[i].state) == SV_SLOT_LIVE &&
		    atomic_load(&h->slots[i].device) == index)
			for (c = 0; c < SV_CNT_COUNT; c++)
				atomic_fetch_add(&sum[c], atomic_load(&h->slots[i].counters[c]));
	snprintf(name, sizeof(name), "sim%u", index % h->rails);
	snprintf(guid, sizeof(guid), "%016llx", (unsigned long long)dev->guid);
	out = json_pack("{s:i, s:i, s:s, s:s, s:o, s:s, s:s, s:s, s:i, s:O}", "host",
			(int)(index / h->rails), "rail", (int)(index % h->rails), "name", name,
			"link", str(first, "link"), "legs",
			legs_json(atomic_load(&h->ports[index].legs)), "cut", str(first, "cut"),
			"device", life_name(atomic_load(&h->ports[index].life)), "guid", guid,
			"lid", (int)num(first, "lid"), "gids", json_object_get(first, "gids"));
	json_object_set_new(out, "rate_mbps",
			    json_integer((json_int_t)h->plan.rate_mbps[index % h->rails]));
	if (h->paced)
		json_object_set_new(out, "latency_ns",
				    json_integer((json_int_t)h->plan.latency_ns[index % h->rails]));
	/* As the link and the addresses, those of its first port. */
	json_object_set(out, "traffic", json_object_get(first, "traffic"));
	if (h->paced)
		json_object_set(out, "links", json_object_get(first, "links"));
	json_decref(first);
	if (h->num_phys > 1 || h->ports[index].cfg.num_pkeys > 1)
		json_object_set_new(out, "ports", ports_json(fab, index));
	json_object_set_new(out, "counters", counters_json(sum));
	return out;
}

static void command_of(int pid, char *buf, size_t len)
{
	char path[64];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, buf, len - 1);
	if (fd >= 0)
		close(fd);
	buf[n > 0 ? n : 0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
}

static json_t *process_json(const struct sv_fabric_header *h, unsigned i)
{
	const struct sv_slot *slot = &h->slots[i];
	unsigned device = atomic_load(&slot->device);
	int pid = atomic_load(&slot->pid);
	char command[32];
	json_t *out;

	command_of(pid, command, sizeof(command));
	out = json_pack("{s:i, s:s, s:b, s:i, s:i, s:i}", "pid", pid, "command", command, "alive",
			sv_slot_alive(slot), "host", (int)(device / h->rails), "rail",
			(int)(device % h->rails), "endpoint", (int)i);
	json_object_set_new(out, "qps", json_integer(atomic_load(&slot->qps)));
	json_object_set_new(out, "cqs", json_integer(atomic_load(&slot->cqs)));
	json_object_set_new(out, "mrs", json_integer(atomic_load(&slot->mrs)));
	json_object_set_new(out, "counters", counters_json(slot->counters));
	return out;
}

static json_t *fault_json(const struct sv_fault_rule *rule, uint32_t id)
{
	return json_pack("{s:i, s:s, s:I, s:I}", "id", (int)id, "rule", rule->text, "matched",
			 (json_int_t)atomic_load(&rule->matched), "fired",
			 (json_int_t)atomic_load(&rule->fired));
}

/* Whole numbers without a point. */
static json_t *gbps_json(uint32_t mbps)
{
	return mbps % 1000 ? json_real(mbps / 1000.0) : json_integer(mbps / 1000);
}

static json_t *fabric_json(const struct sv_fabric *fab)
{
	const struct sv_fabric_header *h = fab->h;
	json_t *devices = json_array(), *processes = json_array(), *faults = json_array();
	uint32_t i, rules = atomic_load(&h->faults.nrules);

	for (i = 0; i < sv_fabric_devices(h); i++)
		json_array_append_new(devices, device_json(fab, i));
	for (i = 1; i < SV_MAX_SLOTS; i++)
		if (atomic_load(&h->slots[i].state) == SV_SLOT_LIVE)
			json_array_append_new(processes, process_json(h, i));
	for (i = 0; i < rules; i++)
		if (atomic_load(&h->faults.rules[i].active))
			json_array_append_new(faults, fault_json(&h->faults.rules[i], i));
	return json_pack(
	    "{s:s, s:i, s:s, s:i, s:i, s:s, s:s, s:o, s:b, s:i, s:f, s:s, s:i, s:o, s:o, s:o}",
	    "name", h->name, "version", (int)h->version, "state",
	    atomic_load(&h->state) == SV_FABRIC_UP ? "up" : "down", "hosts", (int)h->hosts, "rails",
	    (int)h->rails, "link_layer",
	    h->link_layer == SV_LINK_INFINIBAND ? "InfiniBand" : "Ethernet", "profile",
	    sv_profile_name((enum sv_profile)h->profile), "rate_gbps",
	    gbps_json(h->plan.rate_mbps[0]), "paced", (int)h->paced, "mtu", (int)h->mtu_bytes,
	    "up_seconds", (double)sv_fabric_now_ns(h) / 1e9, "sysfs", h->sysfs, "rings",
	    (int)atomic_load(&h->rings), "devices", devices, "processes", processes, "faults",
	    faults);
}

/* --- text ----------------------------------------------------------------------------------- */

/* The device's own line says what its first port is. */
static void print_further_ports(const json_t *ports)
{
	char name[24];
	size_t i;

	for (i = 1; i < json_array_size(ports); i++) {
		const json_t *p = json_array_get(ports, i);

		snprintf(name, sizeof(name), ".%lld", num(p, "port"));
		printf("%-5s %-5s %-6s %-5s %-5s\n", "", "", name, str(p, "link"), str(p, "cut"));
	}
}

static void print_devices(const json_t *devices)
{
	const json_t *d;
	size_t i;

	printf("\n%-5s %-5s %-6s %-5s %-5s %-7s %12s %16s %12s %16s %10s\n", "host", "rail", "name",
	       "link", "cut", "device", "tx packets", "tx bytes", "rx packets", "rx bytes",
	       "dropped");
	json_array_foreach(devices, i, d)
	{
		const json_t *c = json_object_get(d, "counters");

		printf("%-5lld %-5lld %-6s %-5s %-5s %-7s %12lld %16lld %12lld %16lld %10lld\n",
		       num(d, "host"), num(d, "rail"), str(d, "name"), str(d, "link"),
		       str(d, "cut"), str(d, "device"), num(c, "tx_packets"), num(c, "tx_bytes"),
		       num(c, "rx_packets"), num(c, "rx_bytes"),
		       num(c, "drop_link") + num(c, "drop_leg") + num(c, "drop_cut") +
			   num(c, "drop_no_peer") + num(c, "drop_fault") + num(c, "drop_payload"));
		print_further_ports(json_object_get(d, "ports"));
	}
}

static void print_processes(const json_t *processes)
{
	const json_t *p;
	size_t i;

	if (json_array_size(processes))
		printf("\n%-8s %-16s %-5s %-5s %6s %6s %6s %18s %18s\n", "pid", "command", "host",
		       "rail", "QPs", "CQs", "MRs", "copied directly", "through shm");
	json_array_foreach(processes, i, p)
	{
		const json_t *c = json_object_get(p, "counters");

		printf("%-8lld %-16s %-5lld %-5lld %6lld %6lld %6lld %18lld %18lld%s\n",
		       num(p, "pid"), str(p, "command"), num(p, "host"), num(p, "rail"),
		       num(p, "qps"), num(p, "cqs"), num(p, "mrs"), num(c, "copy_direct_bytes"),
		       num(c, "copy_shared_bytes"),
		       json_is_true(json_object_get(p, "alive")) ? "" : "  (gone)");
	}
}

static void print_faults(const json_t *faults)
{
	const json_t *f;
	size_t i;

	if (json_array_size(faults))
		printf("\n%-5s %10s %10s  %s\n", "fault", "matched", "fired", "rule");
	json_array_foreach(faults, i, f) printf("%-5lld %10lld %10lld  %s\n", num(f, "id"),
						num(f, "matched"), num(f, "fired"), str(f, "rule"));
}

static void print_text(const json_t *doc)
{
	printf("fabric %s: %s, %lld hosts, %lld rails, %s, %g Gb/s%s, MTU %lld, %s\n",
	       str(doc, "name"), str(doc, "state"), num(doc, "hosts"), num(doc, "rails"),
	       str(doc, "link_layer"), json_number_value(json_object_get(doc, "rate_gbps")),
	       json_is_true(json_object_get(doc, "paced")) ? " paced" : "", num(doc, "mtu"),
	       str(doc, "profile"));
	print_devices(json_object_get(doc, "devices"));
	print_processes(json_object_get(doc, "processes"));
	print_faults(json_object_get(doc, "faults"));
}

int np_cmd_status(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"json", 'j', NULL, 0, "As one JSON object", 0},
	    {0},
	};
	static const struct argp argp = {
	    options, parse_status, "NAME", "Shows devices, processes, counters and fault rules.",
	    NULL,    NULL,	   NULL};
	struct status_args args = {0};
	struct sv_fabric fab;
	json_t *doc;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	if (!np_open_fabric(args.name, &fab))
		return NP_EXIT_FAILED;
	doc = fabric_json(&fab);
	if (doc && args.json) {
		json_dumpf(doc, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
		putchar('\n');
	} else if (doc) {
		print_text(doc);
	}
	sv_fabric_close(&fab);
	if (!doc) {
		fprintf(stderr, "simverbs status: out of memory\n");
		return NP_EXIT_FAILED;
	}
	json_decref(doc);
	return NP_EXIT_OK;
}
