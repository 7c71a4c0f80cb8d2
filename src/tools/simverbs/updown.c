/* SPDX-License-Identifier: Apache-2.0 */
/* simverbs up, simverbs down. */
#include "simverbs/fault_parse.h"
#include "tools/simverbs/tool.h"

#include "simverbs/live/sysfs.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROFILE_ENV "SIMVERBS_PROFILE"
#define GPU_ENV	    "SIMVERBS_GPU"

static const struct {
	const char *name;
	size_t offset;
} limit_names[] = {
#define LIMIT(name)                                                                                \
	{                                                                                          \
#name, offsetof(struct sv_limits, name)                                            \
	}
    LIMIT(max_qp), LIMIT(max_qp_wr), LIMIT(max_sge),	LIMIT(max_inline),
    LIMIT(max_cq), LIMIT(max_cqe),   LIMIT(max_mr),	LIMIT(max_pd),
    LIMIT(max_ah), LIMIT(max_srq),   LIMIT(max_srq_wr), LIMIT(max_rd_atomic),
#undef LIMIT
};

#define LIMITS (sizeof(limit_names) / sizeof(limit_names[0]))

/* "max_qp=64": what a device has of it. */
static void set_limit(struct argp_state *state, char *text, struct sv_limits *limits)
{
	char *value = strchr(text, '=');
	uint32_t number;

	if (!value)
		argp_error(state, "--limit must be NAME=N, not '%s'", text);
	*value++ = '\0';
	for (size_t i = 0; i < LIMITS; i++) {
		if (strcmp(text, limit_names[i].name) != 0)
			continue;
		number = np_number(state, value, text, UINT_MAX);
		if (!number)
			argp_error(state, "--limit %s must be at least 1", text);
		memcpy((char *)limits + limit_names[i].offset, &number, sizeof(number));
		return;
	}
	argp_error(state,
		   "--limit: there is no '%s'; it has the names of ibv_query_device: max_qp, "
		   "max_qp_wr, max_sge, max_inline, max_cq, max_cqe, max_mr, max_pd, max_ah, "
		   "max_srq, max_srq_wr, max_rd_atomic",
		   text);
}

static void set_limits(struct argp_state *state, char *list, struct sv_limits *limits)
{
	char *save = NULL;

	for (char *item = strtok_r(list, ",", &save); item; item = strtok_r(NULL, ",", &save))
		set_limit(state, item, limits);
}

static void set_profile(struct argp_state *state, const char *name, struct sv_fabric_options *opt)
{
	int profile = sv_profile_by_name(name);

	if (profile < 0)
		argp_error(state, "%s: there is no profile '%s'; there are exact and mlx5",
			   name == getenv(PROFILE_ENV) ? PROFILE_ENV : "--profile", name);
	opt->profile = (enum sv_profile)profile;
}

/* 1, or 0 as if it were not there. */
static bool is_set(struct argp_state *state, const char *variable)
{
	const char *text = getenv(variable);

	if (text && *text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		argp_error(state, "%s=%s: 1 or 0", variable, text);
	return text && *text == '1';
}

#define MAX_RATE_GBPS  1600.0
#define MAX_LATENCY_NS 1000000000u

/* What is on the command line until its rails are known. */
struct up_args {
	struct sv_fabric_options fabric;
	const char *rate, *rail_rate, *rail_latency;
};

static void set_rate(struct argp_state *state, const char *option, const char *text, uint64_t *mbps)
{
	char *end;
	double gbps = strtod(text, &end);

	if (end == text || *end || !(gbps >= 0.001 && gbps <= MAX_RATE_GBPS))
		argp_error(state, "%s must be from 0.001 to %.0f Gb/s, not '%s'", option,
			   MAX_RATE_GBPS, text);
	*mbps = (uint64_t)(gbps * 1000 + 0.5);
}

static void set_latency(struct argp_state *state, const char *option, const char *text,
			uint64_t *ns)
{
	if (!sv_time_parse(text, ns) || *ns > MAX_LATENCY_NS)
		argp_error(state, "%s must be a time up to 1s, such as 2us, not '%s'", option,
			   text);
}

typedef void set_fn(struct argp_state *state, const char *option, const char *text,
		    uint64_t *value);

/* "10,3.3": one value for each rail, or one for all of them. */
static void set_by_rail(struct argp_state *state, const char *option, const char *list,
			unsigned rails, set_fn *set, uint64_t value[SV_MAX_RAILS])
{
	char copy[1024], *rest = copy, *item;
	unsigned n = 0;

	if ((size_t)snprintf(copy, sizeof(copy), "%s", list) >= sizeof(copy))
		argp_error(state, "%s is too long", option);
	while ((item = strsep(&rest, ",")) && n < SV_MAX_RAILS)
		set(state, option, item, &value[n++]);
	if (item || (n != 1 && n != rails))
		argp_error(state,
			   "%s needs one value for all rails or one for each of the %u, not "
			   "'%s'",
			   option, rails, list);
	for (; n == 1 && rails > 1; rails--)
		value[rails - 1] = value[0];
}

static void set_links(struct argp_state *state, struct up_args *args)
{
	struct sv_fabric_options *opt = &args->fabric;
	uint64_t mbps[SV_MAX_RAILS] = {0};

	if (args->rail_latency && !opt->paced)
		argp_error(state,
			   "--rail-latency needs --pace: without it a rail is as fast and as "
			   "long as memory");
	if (opt->rails < 1 || opt->rails > SV_MAX_RAILS)
		return; /* said when the fabric is made */
	if (args->rail_rate)
		set_by_rail(state, "--rail-rate", args->rail_rate, opt->rails, set_rate, mbps);
	else
		set_by_rail(state, "--rate", args->rate, 1, set_rate, mbps);
	for (unsigned r = 0; r < opt->rails; r++)
		opt->rate_mbps[r] = (uint32_t)(args->rail_rate ? mbps[r] : mbps[0]);
	if (args->rail_latency)
		set_by_rail(state, "--rail-latency", args->rail_latency, opt->rails, set_latency,
			    opt->latency_ns);
}

static void check_islands(struct argp_state *state, const struct sv_fabric_options *opt)
{
	struct sv_islands islands;

	if (!opt->islands)
		return;
	if (opt->rails <= SV_ISLAND_RAIL)
		argp_error(state, "--islands are about the second rail, and there is one");
	if (sv_islands_parse(opt->islands, opt->hosts + opt->aggregators, &islands))
		argp_error(state,
			   "--islands must be ranges of hosts below %u, each host in one of them, "
			   "such as 0-3,4-7, not '%s'",
			   opt->hosts + opt->aggregators, opt->islands);
}

static error_t parse_up(int key, char *arg, struct argp_state *state)
{
	struct up_args *args = state->input;
	struct sv_fabric_options *opt = &args->fabric;

	const char *profile;

	switch (key) {
	case ARGP_KEY_INIT:
		profile = getenv(PROFILE_ENV);
		if (profile && *profile)
			set_profile(state, profile, opt);
		opt->gpu = is_set(state, GPU_ENV);
		return 0;
	case 'H':
		opt->hosts = np_number(state, arg, "--hosts", SV_MAX_HOSTS + 1);
		return 0;
	case 'r':
		opt->rails = np_number(state, arg, "--rails", SV_MAX_RAILS + 1);
		return 0;
	case 'n':
		opt->ports = np_number(state, arg, "--ports", SV_MAX_PHYS + 1);
		if (!opt->ports)
			argp_error(state, "--ports must be at least 1");
		return 0;
	case 'l':
		if (!strcmp(arg, "ib"))
			opt->link_layer = SV_LINK_INFINIBAND;
		else if (!strcmp(arg, "eth"))
			opt->link_layer = SV_LINK_ETHERNET;
		else
			argp_error(state, "--link-layer must be eth or ib, not '%s'", arg);
		return 0;
	case 'G':
		opt->grh_required = true;
		return 0;
	case 'S':
		opt->subnets = np_number(state, arg, "--subnets", SV_MAX_HOSTS + 1);
		return 0;
	case 'k':
		opt->pkeys = arg;
		if (sv_pkeys_parse(arg, 0, &(struct sv_phys_config){0}))
			argp_error(state,
				   "--pkeys must be tables of up to %d numbers from 0 to 0xffff, "
				   "such as 0xffff,0x8001/0x8001,0xffff, not '%s'",
				   SV_MAX_PKEYS, arg);
		return 0;
	case 'm':
		opt->mtu_bytes = np_number(state, arg, "--mtu", 4097);
		if (opt->mtu_bytes < 256 || (opt->mtu_bytes & (opt->mtu_bytes - 1)))
			argp_error(state, "--mtu must be 256, 512, 1024, 2048 or 4096");
		return 0;
	case 'g':
		args->rate = arg;
		return 0;
	case 'R':
		args->rail_rate = arg;
		return 0;
	case 'T':
		args->rail_latency = arg;
		return 0;
	case 'c':
		opt->paced = true;
		return 0;
	case 'A':
		opt->aggregators = np_number(state, arg, "--aggregators", SV_MAX_HOSTS);
		return 0;
	case 'I':
		opt->islands = arg;
		return 0;
	case 's':
		opt->seed = np_number(state, arg, "--seed", UINT_MAX);
		return 0;
	case 'd':
		opt->dmabuf = true;
		return 0;
	case 'u':
		opt->gpu = true;
		return 0;
	case 'p':
		opt->pin = true;
		return 0;
	case 'P':
		set_profile(state, arg, opt);
		return 0;
	case 'L':
		set_limits(state, arg, &opt->limits);
		return 0;
	case ARGP_KEY_ARG:
		if (opt->name)
			argp_usage(state);
		opt->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!opt->name)
			argp_usage(state);
		if (opt->link_layer != SV_LINK_INFINIBAND &&
		    (opt->pkeys || opt->subnets || opt->grh_required))
			argp_error(state, "--pkeys, --subnets and --grh-required need "
					  "--link-layer ib: on RoCE a port has one P_Key, needs a "
					  "GRH anyway, and routes are IP's");
		set_links(state, args);
		check_islands(state, opt);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int np_cmd_up(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"hosts", 'H', "N", 0, "Number of hosts (2)", 0},
	    {"rails", 'r', "M", 0, "Devices per host, each on a switch of its own (2)", 0},
	    {"ports", 'n', "N", 0, "Ports of each device: 1 (the default) or 2", 0},
	    {"link-layer", 'l', "eth|ib", 0, "RoCE (eth, the default) or InfiniBand", 0},
	    {"pkeys", 'k', "TABLE[/TABLE…]", 0,
	     "InfiniBand: P_Key tables, which a host's ports have in turn: "
	     "0xffff,0x8001/0x8001,0xffff",
	     0},
	    {"grh-required", 'G', NULL, 0,
	     "InfiniBand: ports take no address without a GRH, as those of virtual functions", 0},
	    {"subnets", 'S', "N", 0, "InfiniBand: host H is in subnet H modulo N, behind a router",
	     0},
	    {"rate", 'g', "GBPS", 0, "The ports' rate in Gb/s (400)", 0},
	    {"rail-rate", 'R', "GBPS,…", 0, "The same by rail: 10,3.3", 0},
	    {"rail-latency", 'T', "TIME,…", 0,
	     "How long a link takes, by rail, with --pace: 2us,20us (0)", 0},
	    {"pace", 'c', NULL, 0,
	     "Links carry no more than the rate, which otherwise is only what ports say", 0},
	    {"aggregators", 'A', "N", 0,
	     "So many hosts more, behind the others, whose devices have a link for each peer (0)",
	     0},
	    {"islands", 'I', "HOSTS,…", 0,
	     "Hosts whose second rail reaches only each other: 0-3,4-7", 0},
	    {"mtu", 'm', "BYTES", 0, "256 to 4096 (4096)", 0},
	    {"seed", 's', "N", 0, "For fault rules with probabilities (1)", 0},
	    {"dmabuf", 'd', NULL, 0,
	     "Devices can register dmabufs: those that can be mapped, and with --gpu a GPU's", 0},
	    {"gpu", 'u', NULL, 0,
	     "Devices can register GPU memory, which they copy by the CUDA driver of the process",
	     0},
	    {"pin", 'p', NULL, 0,
	     "Regions of memory that is mapped shared keep their pages, whatever is mapped there "
	     "later",
	     0},
	    {"profile", 'P', "exact|mlx5", 0,
	     "Times of retries, events and commands: as specified, or as a ConnectX has them "
	     "(SIMVERBS_PROFILE, else exact)",
	     0},
	    {"limit", 'L', "NAME=N,…", 0,
	     "What a device has for each process, by the names of ibv_query_device: max_qp=64", 0},
	    {0},
	};
	static const struct argp argp = {
	    options,
	    parse_up,
	    "NAME",
	    "Makes a fabric. It lasts until `simverbs down NAME`; no process belongs to it.",
	    NULL,
	    NULL,
	    NULL};
	struct up_args args = {.fabric = {.hosts = 2,
					  .rails = 2,
					  .ports = 1,
					  .link_layer = SV_LINK_ETHERNET,
					  .mtu_bytes = 4096,
					  .seed = 1},
			       .rate = "400"};
	const char *name;
	struct sv_fabric fab;
	int rc;

	argp_parse(&argp, argc, argv, 0, NULL, &args);
	name = args.fabric.name;
	rc = sv_fabric_create(&args.fabric, &fab);
	if (rc) {
		fprintf(
		    stderr, "simverbs up: fabric %s: %s\n", name,
		    rc == -ERANGE
			? "at least 1 host and 1 rail, at most 64 hosts (aggregators included), 16 "
			  "rails and 256 devices in all"
			: np_strerror(rc));
		return NP_EXIT_FAILED;
	}
	rc = sv_sysfs_create(fab.h);
	sv_fabric_close(&fab);
	if (rc) {
		fprintf(stderr, "simverbs up: fabric %s: its sysfs tree: %s\n", name,
			strerror(-rc));
		sv_fabric_destroy(name);
		return NP_EXIT_FAILED;
	}
	return NP_EXIT_OK;
}

static error_t parse_down(int key, char *arg, struct argp_state *state)
{
	const char **name = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (*name)
			argp_usage(state);
		*name = arg;
		return 0;
	case ARGP_KEY_END:
		if (!*name)
			argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int np_cmd_down(int argc, char **argv)
{
	static const struct argp argp = {
	    NULL,   parse_down,
	    "NAME", "Removes a fabric. Programs that still use it see their devices die.",
	    NULL,   NULL,
	    NULL};
	const char *name = NULL;
	char tree[PATH_MAX];
	int rc, tree_rc;

	argp_parse(&argp, argc, argv, 0, NULL, &name);
	rc = sv_fabric_destroy(name);
	tree_rc = sv_fabric_tree_path(name, tree, sizeof(tree));
	if (!tree_rc)
		tree_rc = sv_sysfs_remove(tree);
	if (rc)
		fprintf(stderr, "simverbs down: fabric %s: %s\n", name, np_strerror(rc));
	if (tree_rc && tree_rc != -EINVAL)
		fprintf(stderr, "simverbs down: %s: %s\n", tree, strerror(-tree_rc));
	return rc || tree_rc ? NP_EXIT_FAILED : NP_EXIT_OK;
}
