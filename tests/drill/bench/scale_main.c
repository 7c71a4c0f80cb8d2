/* SPDX-License-Identifier: Apache-2.0 */
/* ha-scale-bench: the curves as a table and as JSON, and whether they grow as they may. */
#include "pair.h"
#include "program.h"
#include "scale.h"

#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_POINTS 16

/*
 * What a connection may take at one end, at any number of connections: a quarter above what was
 * measured. Memory is that of simverbs and the plugin together. By HA.
 */
static const struct limits {
	double memory_kib;
	double fds;	    /* besides BASE_FDS of the process */
	double setup_share; /* of the plugin's threads in all processor time of making one: how fast
			       the processor is does not count */
	double idle_percent; /* of a core, in the plugin's thread */
} limits[2] = {
    [false] = {.memory_kib = 225, .fds = 1, .setup_share = 0.15, .idle_percent = 1},
    [true] = {.memory_kib = 350, .fds = 1, .setup_share = 0.45, .idle_percent = 1},
};

/* Made with the first connection: the reconnect server, the heartbeats' channels. */
#define BASE_FDS 8

/*
 * How much more one connection may take at the largest number than at the smallest: nothing grows
 * faster than their number. Times are shared with whatever else the machine does.
 */
#define GROWTH_OF_MEMORY 1.1
#define GROWTH_OF_TIME	 2.0
#define LITTLE_US	 60 /* below this the growth of a time is not judged */

enum {
	KEY_PEERS = 0x100,
	KEY_IDLE,
	KEY_RAILS,
	KEY_FAULTS,
	KEY_HA,
	KEY_JSON,
	KEY_CHECK,
	KEY_BE_HOST,
	KEY_SHARED
};

struct arguments {
	struct scale_settings settings;
	int conns[MAX_POINTS], nconns;
	bool with[2]; /* by HA */
	bool check;
	const char *json;
	int host, shared_fd;
};

static const struct argp_option option_table[] = {
    {"connections", 'C', "N[,N...]", 0, "Points of the curves (default: 64,256,1024)", 0},
    {"peers", KEY_PEERS, "N", 0,
     "Processes at the other end, each with its part of the connections (default: 1)", 0},
    {"rails", KEY_RAILS, "N", 0, "Ports of a host, 2 (default) to 8", 0},
    {"ha", KEY_HA, "on|off|both", 0, "HA_NCCL_ENABLE_BACKUP (default: both)", 0},
    {"idle", KEY_IDLE, "S", 0, "How long idle processes are watched (default: 5; 0: not)", 0},
    {"faults", KEY_FAULTS, "N", 0, "Faults per point (default: 5)", 0},
    {"check", KEY_CHECK, NULL, 0,
     "Fail when something grows faster than the number of connections, or is above its limit", 0},
    {"json", KEY_JSON, "FILE", 0, "Writes everything to FILE", 0},
    {"be-host", KEY_BE_HOST, "H", OPTION_HIDDEN, NULL, 0},
    {"shared-fd", KEY_SHARED, "FD", OPTION_HIDDEN, NULL, 0},
    {0},
};

static void parse_conns(struct arguments *a, char *text, struct argp_state *state)
{
	char *save = NULL;

	a->nconns = 0;
	for (char *t = strtok_r(text, ",", &save); t; t = strtok_r(NULL, ",", &save)) {
		int n = atoi(t);

		if (n < 4 * 16 || n > BENCH_MAX_CONNS || a->nconns == MAX_POINTS)
			argp_error(state, "-C: '%s' is not between 64 and %d", t, BENCH_MAX_CONNS);
		a->conns[a->nconns++] = n;
	}
	if (!a->nconns)
		argp_error(state, "-C needs a number of connections");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'C':
		parse_conns(a, arg, state);
		return 0;
	case KEY_HA:
		a->with[true] = strcmp(arg, "off") != 0;
		a->with[false] = strcmp(arg, "on") != 0;
		if (strcmp(arg, "on") && strcmp(arg, "off") && strcmp(arg, "both"))
			argp_error(state, "--ha: '%s' is none of on, off, both", arg);
		return 0;
	case KEY_PEERS:
		a->settings.peers = atoi(arg);
		if (a->settings.peers < 1 || a->settings.peers > BENCH_MAX_PEERS)
			argp_error(state, "--peers: '%s' is not between 1 and %d", arg,
				   BENCH_MAX_PEERS);
		return 0;
	case KEY_RAILS:
		a->settings.rails = atoi(arg);
		if (a->settings.rails < 2 || a->settings.rails > BENCH_MAX_RAILS)
			argp_error(state, "--rails: '%s' is not between 2 and %d", arg,
				   BENCH_MAX_RAILS);
		return 0;
	case KEY_IDLE:
		a->settings.idle_s = atof(arg);
		return 0;
	case KEY_FAULTS:
		a->settings.faults = atoi(arg);
		return 0;
	case KEY_CHECK:
		a->check = true;
		return 0;
	case KEY_JSON:
		a->json = arg;
		return 0;
	case KEY_BE_HOST:
		a->host = atoi(arg);
		return 0;
	case KEY_SHARED:
		a->shared_fd = atoi(arg);
		return 0;
	case ARGP_KEY_ARG:
		return ARGP_ERR_UNKNOWN;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- reports --------------------------------------------------------------------------------- */

static void print_head(void)
{
	printf(
	    "%ld processors; per connection and end, but the times of the plugin's threads: both\n"
	    "%5s %5s %3s %9s %9s %9s %9s %9s %9s %6s %7s %7s %7s %9s %9s %9s\n",
	    sysconf(_SC_NPROCESSORS_ONLN), "conns", "peers", "HA", "set-up us", "first us",
	    "last us", "plugin us", "standby s", "KiB", "fds", "beats/s", "idle %", "thread%",
	    "move ms", "worst ms", "move us");
	fflush(stdout);
}

static void print_point(const struct scale_point *p)
{
	printf(
	    "%5d %5d %3s %9.1f %9.1f %9.1f %9.1f %9.2f %9.1f %6.2f %7.1f %7.2f %7.2f %9.2f %9.2f "
	    "%9.1f%s%s\n",
	    p->conns, p->peers, p->ha ? "on" : "off", p->setup_us, p->setup_first_us,
	    p->setup_last_us, p->setup_plugin_us, p->protected_s, p->memory_kib, p->fds,
	    p->heartbeats, p->idle_process, p->idle_plugin, scale_median_ms(p),
	    p->nfailovers ? p->failover_ms[p->nfailovers - 1] : 0, p->failover_cpu_us,
	    p->why[0] ? "  " : "", p->why);
	fflush(stdout);
}

static json_t *point_object(const struct scale_point *p)
{
	json_t *moves = json_array();

	for (int i = 0; i < p->nfailovers; i++)
		json_array_append_new(moves, json_real(p->failover_ms[i]));
	return json_pack(
	    "{s:i, s:i, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
	    "s:f, s:o, s:f, s:s}",
	    "connections", p->conns, "peers", p->peers, "ha", (int)p->ha, "setup_s", p->setup_s,
	    "setup_us", p->setup_us, "setup_first_us", p->setup_first_us, "setup_last_us",
	    p->setup_last_us, "setup_cpu_us", p->setup_cpu_us, "setup_plugin_us",
	    p->setup_plugin_us, "protected_s", p->protected_s, "memory_kib", p->memory_kib,
	    "memory_base_kib", p->memory_base_kib, "fds", p->fds, "fds_base", p->fds_base,
	    "heartbeats_per_s", p->heartbeats, "idle_process_percent", p->idle_process,
	    "idle_plugin_percent", p->idle_plugin, "idle_plugin_least_percent", p->idle_least,
	    "failover_ms", moves, "failover_cpu_us", p->failover_cpu_us, "why", p->why);
}

/* ---- what may grow --------------------------------------------------------------------------- */

static bool within(const struct scale_point *p, const char *what, double is, double limit)
{
	if (is <= limit)
		return true;
	printf("%d connections, HA %s: %s is %.2f, the limit is %.2f\n", p->conns,
	       p->ha ? "on" : "off", what, is, limit);
	return false;
}

static bool check_point(const struct scale_point *p)
{
	const struct limits *l = &limits[p->ha];
	bool ok = within(p, "memory, KiB per connection", p->memory_kib, l->memory_kib);

	ok =
	    within(p, "descriptors per connection", p->fds, l->fds + (double)BASE_FDS / p->conns) &&
	    ok;
	ok = within(p, "the plugin's threads in the processor time of making a connection",
		    p->setup_plugin_us / p->setup_cpu_us, l->setup_share) &&
	     ok;
	/* What the plugin does, it does in every second; what the machine makes of it, not. */
	return within(p, "percent of a core while idle, in the quietest second", p->idle_least,
		      l->idle_percent) &&
	       ok;
}

static double times(double many_us, double few_us)
{
	return many_us / (few_us > LITTLE_US ? few_us : LITTLE_US);
}

/* The largest against the smallest number of connections. */
static bool check_growth(const struct scale_point *few, const struct scale_point *many)
{
	bool ok = within(many, "memory per connection, over that of the fewest",
			 many->memory_kib / few->memory_kib, GROWTH_OF_MEMORY);

	ok = within(many, "the time of the plugin's threads to make one, over that of the fewest",
		    times(many->setup_plugin_us, few->setup_plugin_us), GROWTH_OF_TIME) &&
	     ok;
	if (few->nfailovers && many->nfailovers)
		ok = within(many, "the time of the plugin's threads to move one, likewise",
			    times(many->failover_cpu_us, few->failover_cpu_us), GROWTH_OF_TIME) &&
		     ok;
	return ok;
}

static bool check_all(const struct scale_point *points, int n)
{
	bool ok = true;

	for (int ha = 0; ha < 2; ha++) {
		const struct scale_point *few = NULL, *many = NULL;

		for (int i = 0; i < n; i++) {
			const struct scale_point *p = &points[i];

			if (p->ha != ha || p->why[0])
				continue;
			ok = check_point(p) && ok;
			few = !few || p->conns < few->conns ? p : few;
			many = !many || p->conns > many->conns ? p : many;
		}
		if (many && many->conns > few->conns)
			ok = check_growth(few, many) && ok;
	}
	return ok;
}

/* ---- main ------------------------------------------------------------------------------------ */

static bool run_all(const struct arguments *a)
{
	struct scale_point points[2 * MAX_POINTS];
	struct scale_settings settings = a->settings;
	json_t *list = json_array();
	bool ok = true;
	int n = 0;

	if (a->check)
		settings.quiet_percent = limits[true].idle_percent;
	print_head();
	for (int i = 0; i < 2 * a->nconns && !bench_interrupted; i++) {
		if (!a->with[i % 2])
			continue;
		ok = scale_measure(a->conns[i / 2], i % 2, &settings, &points[n]) && ok;
		print_point(&points[n]);
		json_array_append_new(list, point_object(&points[n++]));
	}
	if (a->check)
		ok = check_all(points, n) && ok;
	if (a->json)
		ok = bench_write_report("ha-scale-bench", a->json, "points", list) && ok;
	json_decref(list);
	for (int i = 0; i < n; i++)
		free(points[i].failover_ms);
	return ok && !bench_interrupted;
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	    .options = option_table,
	    .parser = parse,
	    .doc = "Connects two processes (or one with several) very often on a simulated fabric "
		   "and measures what a "
		   "connection takes: time, memory, descriptors, processor time when idle, and how "
		   "long all of them take to move when a port fails.",
	};
	struct arguments a = {.settings = {.rails = 2, .peers = 1, .idle_s = 5, .faults = 5},
			      .conns = {64, 256, 1024},
			      .nconns = 3,
			      .with = {true, true},
			      .host = -1,
			      .shared_fd = -1};

	argp_parse(&argp, argc, argv, 0, NULL, &a);
	bench_raise_files();
	if (a.host >= 0)
		return bench_be_host("ha-scale-bench", a.shared_fd, a.host);
	bench_catch_signals();
	return run_all(&a) ? 0 : 1;
}
