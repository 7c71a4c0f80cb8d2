/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line: the flags and their meaning are those of nccl-tests where it has them.
 */
#include "tools/nccl-net-perf/options.h"

#include <argp.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/version.h"
#include "tools/common/netplugin.h"

const char *const np_op_names[NP_OP_COUNT] = {
    [NP_ALLREDUCE] = "allreduce", [NP_SENDRECV] = "sendrecv", [NP_ALLTOALL] = "alltoall",
    [NP_GROUPED] = "grouped",	  [NP_PINGPONG] = "pingpong",
};

const char *const np_via_names[NP_VIA_COUNT] = {
    [NP_RING] = "ring", [NP_COLLNET] = "collnet", [NP_INCCL] = "inccl"};

const char *const np_type_names[NP_TYPE_COUNT] = {
    [NP_INT8] = "int8",
    [NP_INT32] = "int32",
    [NP_FLOAT] = "float",
};

const size_t np_type_sizes[NP_TYPE_COUNT] = {[NP_INT8] = 1, [NP_INT32] = 4, [NP_FLOAT] = 4};

static void print_version(FILE *out, struct argp_state *state)
{
	(void)state;
	fprintf(out, "nccl-net-perf (nccl-ha) %s\n", ha_version);
}

enum {
	KEY_PLUGIN = 0x100,
	KEY_PEER_PLUGIN,
	KEY_ENV,
	KEY_PEER_ENV,
	KEY_VIA,
	KEY_PEER_VIA,
	KEY_API,
	KEY_RANKS,
	KEY_OP,
	KEY_SIZES,
	KEY_SECONDS,
	KEY_ROUNDS,
	KEY_CYCLES,
	KEY_DEPTH,
	KEY_GROUP,
	KEY_DEV,
	KEY_CHUNK,
	KEY_FLUSH,
	KEY_CHURN,
	KEY_CANARY,
	KEY_LINGER,
	KEY_PAUSE,
	KEY_NAP,
	KEY_TIMEOUT,
	KEY_STALL,
	KEY_TIMELINE,
	KEY_JSON,
	KEY_RANK,
	KEY_NRANKS,
	KEY_ROOT,
	KEY_SIMVERBS,
	KEY_FABRIC,
	KEY_FAULT,
};

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "What to drive:", 1},
    {"plugin", KEY_PLUGIN, "NAME|PATH", 0, "Plugin: NAME is libnccl-net-NAME.so (default: ha)", 0},
    {"peer-plugin", KEY_PEER_PLUGIN, "NAME|PATH", 0, "Alternate with this plugin and print ratios",
     0},
    {"env", KEY_ENV, "NAME=VALUE", 0,
     "A variable for this plugin alone (repeatable); {rank} in it is the rank", 0},
    {"peer-env", KEY_PEER_ENV, "NAME=VALUE", 0,
     "One for the plugin to compare with, which is the same one unless named (repeatable)", 0},
    {"via", KEY_VIA, "ring|collnet|inccl", 0,
     "All-reduces over connections, as a ring (default), by the plugin's collNet, or by the "
     "libinccl beside it",
     0},
    {"peer-via", KEY_PEER_VIA, "ring|collnet|inccl", 0, "Alternate with the same plugin used so",
     0},
    {"api", KEY_API, "v8..v12", 0, "Plugin API version (default: newest it exports)", 0},
    {"op", KEY_OP, "OP[,OP...]", 0,
     "allreduce, sendrecv, alltoall, grouped, pingpong or all (default: allreduce)", 0},
    {"minbytes", 'b', "SIZE", 0, "Smallest size (default: 8)", 0},
    {"maxbytes", 'e', "SIZE", 0, "Largest size (default: 4M); K, M, G are 2^10, 2^20, 2^30", 0},
    {"stepfactor", 'f', "N", 0, "Factor between sizes (default: 2)", 0},
    {"sizes", KEY_SIZES, "SIZE[,SIZE...]", 0, "These sizes instead of -b, -e and -f", 0},
    {"datatype", 'd', "TYPE", 0,
     "Elements of allreduce: int8, int32 or float (default); sizes that are no multiple of "
     "the element run as int8",
     0},

    {NULL, 0, NULL, 0, "How often:", 2},
    {"iters", 'n', "N", 0, "Timed iterations (default: 20)", 0},
    {"warmup_iters", 'w', "N", 0, "Iterations before them (default: 5)", 0},
    {"check", 'c', "N", 0,
     "Iterations whose data is checked, after the timed ones "
     "(default: 1); with --seconds: non-zero checks every iteration",
     0},
    {"seconds", KEY_SECONDS, "S", 0, "Run each size for S seconds instead of -n times", 0},
    {"rounds", KEY_ROUNDS, "N", 0,
     "With --peer-plugin: blocks of -n iterations with each plugin in turn (default: 11)", 0},
    {"cycles", KEY_CYCLES, "N", 0,
     "Connect, run everything and close N times; fail if descriptors or memory grow", 0},

    {NULL, 0, NULL, 0, "The shape of the traffic:", 3},
    {"channels", 'C', "N", 0, "Connections per peer and direction (default: 1)", 0},
    {"depth", KEY_DEPTH, "N", 0, "Messages in flight per connection (default: 8)", 0},
    {"chunk", KEY_CHUNK, "SIZE", 0, "Largest message (default: 512K)", 0},
    {"group", KEY_GROUP, "N", 0, "Buffers per grouped receive (default: maxRecvs)", 0},
    {"dev", KEY_DEV, "N", 0, "Device of all channels (default: channel modulo devices)", 0},
    {"parallel_init", 'p', "0|1", 0, "Set connections up all at once (1, default) or one by one",
     0},
    {"flush", KEY_FLUSH, NULL, 0, "Call iflush after receives, as for GPUs that need it", 0},
    {"reg-churn", KEY_CHURN, NULL, 0,
     "Register and deregister memory on the connections while traffic runs", 0},
    {"canary", KEY_CANARY, NULL, 0,
     "Watch receive memory that waits for nothing: late or doubled writes are failures", 0},
    {"pause", KEY_PAUSE, "MS", 0,
     "Leave the plugin alone so long after each iteration, as a job that computes does", 0},
    {"nap", KEY_NAP, "US", 0,
     "Sleep so long where nothing has moved, on processors that others want (default: 0, which "
     "only yields, as NCCL does)",
     0},
    {"linger", KEY_LINGER, "MS", 0, "With --canary: watch so long before closing (default: 100)",
     0},

    {NULL, 0, NULL, 0, "Limits and reports:", 4},
    {"timeout", KEY_TIMEOUT, "S", 0, "Fail when nothing moves for S seconds (default: 60)", 0},
    {"stall-ms", KEY_STALL, "MS", 0,
     "Report intervals longer than this without a completion (default: 100)", 0},
    {"timeline-ms", KEY_TIMELINE, "MS", 0, "Bytes received per interval of MS into the JSON report",
     0},
    {"json", KEY_JSON, "FILE", 0, "Write everything to FILE", 0},

    {NULL, 0, NULL, 0, "Ranks:", 5},
    {"ranks", KEY_RANKS, "N", 0, "Ranks to start on this machine (default: 2)", 0},
    {"rank", KEY_RANK, "R", 0, "Be rank R; mpirun and srun set it by themselves", 0},
    {"nranks", KEY_NRANKS, "N", 0, "Number of ranks, with --rank", 0},
    {"root", KEY_ROOT, "HOST:PORT", 0, "Where rank 0 listens, with --rank", 0},
    {"simverbs", KEY_SIMVERBS, "HxR", 0,
     "Bring up a fabric of H hosts and R rails; rank r runs on host r modulo H", 0},
    {"fabric", KEY_FABRIC, "NAME", 0, "Run on a fabric that is up", 0},
    {"fault", KEY_FAULT, "RULE", 0,
     "Fault rule for the fabric (repeatable); one that never fires is a failure", 0},
    {0},
};

/* What the parser collects before the sizes can be listed. */
struct parse_state {
	struct np_options *o;
	size_t min, max;
	size_t factor;
	const char *sizes;
	bool has_peer_via;
};

/* ---- values ------------------------------------------------------------------------------ */

bool np_parse_size(const char *text, size_t *size)
{
	unsigned long long value;
	unsigned shift = 0;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno)
		return false;
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		break;
	case 'm':
	case 'M':
		shift = 20;
		break;
	case 'g':
	case 'G':
		shift = 30;
		break;
	default:
		break;
	}
	if (shift)
		end++;
	if ((*end == 'B' || *end == 'b') && end[1] == '\0')
		end++;
	if (*end || value > (SIZE_MAX >> 1 >> shift))
		return false;
	*size = (size_t)value << shift;
	return true;
}

static size_t size_value(const char *flag, const char *text, struct argp_state *state)
{
	size_t size = 0;

	if (!np_parse_size(text, &size))
		argp_error(state, "%s: '%s' is not a size (a number, then K, M or G)", flag, text);
	return size;
}

static int int_value(const char *flag, const char *text, int min, int max, struct argp_state *state)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < min || value > max)
		argp_error(state, "%s: '%s' is not a number from %d to %d", flag, text, min, max);
	return (int)value;
}

static double seconds_value(const char *flag, const char *text, double max,
			    struct argp_state *state)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0 && value <= max))
		argp_error(state, "%s: '%s' is not a number above 0, up to %g", flag, text, max);
	return value;
}

static int name_index(const char *name, const char *const *names, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcasecmp(name, names[i]))
			return i;
	return -1;
}

static void add_op(struct np_options *o, enum np_op op)
{
	for (int i = 0; i < o->nops; i++)
		if (o->ops[i] == op)
			return;
	o->ops[o->nops++] = op;
}

static void parse_ops(struct np_options *o, const char *text, struct argp_state *state)
{
	char *copy = strdup(text), *save = NULL;

	if (!copy)
		argp_failure(state, NP_EXIT_ERROR, errno, "out of memory");
	o->nops = 0;
	for (char *name = strtok_r(copy, ",", &save); name; name = strtok_r(NULL, ",", &save)) {
		int op = name_index(name, np_op_names, NP_OP_COUNT);

		if (op < 0 && strcasecmp(name, "all") != 0)
			argp_error(state,
				   "--op: '%s' is none of allreduce, sendrecv, alltoall, "
				   "grouped, pingpong, all",
				   name);
		for (int i = 0; i < NP_OP_COUNT; i++)
			if (op < 0 || i == op)
				add_op(o, (enum np_op)i);
	}
	free(copy);
	if (!o->nops)
		argp_error(state, "--op needs an operation");
}

static enum np_via via_value(const char *flag, const char *text, struct argp_state *state)
{
	int via = name_index(text, np_via_names, NP_VIA_COUNT);

	if (via < 0)
		argp_error(state, "%s: '%s' is none of ring, collnet", flag, text);
	return (enum np_via)via;
}

static void parse_simverbs(struct np_options *o, const char *text, struct argp_state *state)
{
	char tail;

	if (sscanf(text, "%dx%d%c", &o->hosts, &o->rails, &tail) != 2 || o->hosts < 1 ||
	    o->rails < 1)
		argp_error(state, "--simverbs: '%s' is not HOSTSxRAILS, such as 2x2", text);
}

static void add_fault(struct np_options *o, const char *rule, struct argp_state *state)
{
	const char **faults = realloc(o->faults, (size_t)(o->nfaults + 1) * sizeof(*faults));

	if (!faults)
		argp_failure(state, NP_EXIT_ERROR, errno, "out of memory");
	o->faults = faults;
	o->faults[o->nfaults++] = rule;
}

static void add_setting(struct np_settings *s, const char *flag, const char *pair,
			struct argp_state *state)
{
	if (!np_settings_add(s, pair))
		argp_error(state, "%s: '%s' is not NAME=VALUE, or there are more than %d of them",
			   flag, pair, NP_MAX_SETTINGS);
}

/* ---- the list of sizes -------------------------------------------------------------------- */

static void add_size(struct np_options *o, size_t size, struct argp_state *state)
{
	size_t *sizes = realloc(o->sizes, (size_t)(o->nsizes + 1) * sizeof(*sizes));

	if (!sizes)
		argp_failure(state, NP_EXIT_ERROR, errno, "out of memory");
	o->sizes = sizes;
	o->sizes[o->nsizes++] = size;
}

static void list_sizes(struct parse_state *s, struct argp_state *state)
{
	char *copy, *save = NULL;

	if (s->sizes) {
		copy = strdup(s->sizes);
		if (!copy)
			argp_failure(state, NP_EXIT_ERROR, errno, "out of memory");
		for (char *t = strtok_r(copy, ",", &save); t; t = strtok_r(NULL, ",", &save))
			add_size(s->o, size_value("--sizes", t, state), state);
		free(copy);
		if (!s->o->nsizes)
			argp_error(state, "--sizes needs a size");
		return;
	}
	if (s->min > s->max) /* -e below the default of -b, 0 included: that size alone */
		s->min = s->max;
	for (size_t size = s->min;; size = size ? size * s->factor : 1) {
		add_size(s->o, size, state);
		if (size > s->max / s->factor && size)
			break;
		if (size >= s->max)
			break;
	}
}

/* ---- one option ---------------------------------------------------------------------------- */

static bool parse_target_option(int key, char *arg, struct parse_state *s, struct argp_state *state)
{
	struct np_options *o = s->o;

	switch (key) {
	case KEY_PLUGIN:
		o->plugin[0] = arg;
		return true;
	case KEY_PEER_PLUGIN:
		o->plugin[1] = arg;
		return true;
	case KEY_ENV:
		add_setting(&o->env[0], "--env", arg, state);
		return true;
	case KEY_PEER_ENV:
		add_setting(&o->env[1], "--peer-env", arg, state);
		return true;
	case KEY_VIA:
		o->via[0] = via_value("--via", arg, state);
		return true;
	case KEY_PEER_VIA:
		o->via[1] = via_value("--peer-via", arg, state);
		s->has_peer_via = true;
		return true;
	case KEY_API:
		o->api = np_parse_api(arg);
		if (o->api < 0)
			argp_error(state, "--api: '%s' is not one of v%d ... v%d or newest", arg,
				   NP_API_OLDEST, NP_API_NEWEST);
		return true;
	case KEY_OP:
		parse_ops(o, arg, state);
		return true;
	case 'b':
		s->min = size_value("-b", arg, state);
		return true;
	case 'e':
		s->max = size_value("-e", arg, state);
		return true;
	case 'f':
		s->factor = (size_t)int_value("-f", arg, 2, 1 << 20, state);
		return true;
	case KEY_SIZES:
		s->sizes = arg;
		return true;
	case 'd':
		o->type = (enum np_type)name_index(arg, np_type_names, NP_TYPE_COUNT);
		if ((int)o->type < 0)
			argp_error(state, "-d: '%s' is none of int8, int32, float", arg);
		return true;
	default:
		return false;
	}
}

static bool parse_shape_option(int key, char *arg, struct parse_state *s, struct argp_state *state)
{
	struct np_options *o = s->o;

	switch (key) {
	case 'n':
		o->iterations = int_value("-n", arg, 0, 1 << 30, state);
		return true;
	case 'w':
		o->warmup = int_value("-w", arg, 0, 1 << 30, state);
		return true;
	case 'c':
		o->checks = int_value("-c", arg, 0, 1 << 30, state);
		return true;
	case KEY_SECONDS:
		o->seconds = seconds_value("--seconds", arg, 1e6, state);
		return true;
	case KEY_ROUNDS:
		o->rounds = int_value("--rounds", arg, 1, NP_MAX_ROUNDS, state);
		return true;
	case KEY_CYCLES:
		o->cycles = int_value("--cycles", arg, 1, 1 << 30, state);
		return true;
	case 'C':
		o->channels = int_value("-C", arg, 1, 64, state);
		return true;
	case KEY_DEPTH:
		o->depth = int_value("--depth", arg, 1, NP_MAX_DEPTH, state);
		return true;
	case KEY_CHUNK:
		o->chunk = size_value("--chunk", arg, state);
		if (o->chunk < 16 || o->chunk > 1u << 30)
			argp_error(state, "--chunk: '%s' is not between 16 and 1G", arg);
		return true;
	case KEY_GROUP:
		o->group = int_value("--group", arg, 1, NP_MAX_RECVS, state);
		return true;
	case KEY_DEV:
		o->dev = int_value("--dev", arg, 0, 1 << 16, state);
		return true;
	case 'p':
		o->parallel_connect = int_value("-p", arg, 0, 1, state) != 0;
		return true;
	case KEY_FLUSH:
		o->flush = true;
		return true;
	case KEY_CHURN:
		o->churn = true;
		return true;
	case KEY_CANARY:
		o->canary = true;
		return true;
	case KEY_LINGER:
		o->linger_ms = seconds_value("--linger", arg, 1e6, state);
		return true;
	case KEY_PAUSE:
		o->pause_ms = seconds_value("--pause", arg, 1000, state);
		return true;
	case KEY_NAP:
		o->nap_us = int_value("--nap", arg, 0, NP_MAX_NAP_US, state);
		return true;
	default:
		return false;
	}
}

static bool parse_place_option(int key, char *arg, struct parse_state *s, struct argp_state *state)
{
	struct np_options *o = s->o;

	switch (key) {
	case KEY_TIMEOUT:
		o->timeout_s = seconds_value("--timeout", arg, 1e6, state);
		return true;
	case KEY_STALL:
		o->stall_ms = seconds_value("--stall-ms", arg, 1e9, state);
		return true;
	case KEY_TIMELINE:
		o->timeline_ms = seconds_value("--timeline-ms", arg, 1e6, state);
		return true;
	case KEY_JSON:
		o->json = arg;
		return true;
	case KEY_RANKS:
	case KEY_NRANKS:
		o->nranks = int_value(key == KEY_RANKS ? "--ranks" : "--nranks", arg, 2,
				      NP_MAX_RANKS, state);
		o->ranks_given = true;
		return true;
	case KEY_RANK:
		o->rank = int_value("--rank", arg, 0, NP_MAX_RANKS - 1, state);
		return true;
	case KEY_ROOT:
		o->root = arg;
		return true;
	case KEY_SIMVERBS:
		parse_simverbs(o, arg, state);
		return true;
	case KEY_FABRIC:
		o->fabric = arg;
		return true;
	case KEY_FAULT:
		add_fault(o, arg, state);
		return true;
	default:
		return false;
	}
}

static void check_combination(const struct np_options *o, struct argp_state *state)
{
	if (o->rank >= 0 && o->rank >= o->nranks)
		argp_error(state, "--rank %d needs --nranks above it", o->rank);
	if (o->rank >= 0 && o->hosts && !o->fabric)
		argp_error(state, "--simverbs starts its ranks itself: use --fabric with --rank");
	if (o->hosts && o->fabric && o->rank < 0)
		argp_error(state, "--simverbs brings up its own fabric: leave out --fabric");
	if (o->plugin[1] && (o->seconds > 0 || !o->iterations))
		argp_error(state, "--peer-plugin measures blocks of -n iterations: leave out "
				  "--seconds and give -n");
	if (o->via[0] != NP_RING || o->via[1] != NP_RING) {
		if (o->nops != 1 || o->ops[0] != NP_ALLREDUCE)
			argp_error(state, "without a ring there are all-reduces only: --op "
					  "allreduce");
		if (o->canary || o->churn)
			argp_error(state,
				   "--canary and --reg-churn are for connections: leave them "
				   "out with --via collnet and --via inccl");
	}
	if (o->nfaults && !o->hosts)
		argp_error(state, "--fault needs --simverbs: rules go to a fabric of our own "
				  "(for another fabric use 'simverbs fault')");
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
	struct parse_state *s = state->input;

	if (parse_target_option(key, arg, s, state) || parse_shape_option(key, arg, s, state) ||
	    parse_place_option(key, arg, s, state))
		return 0;
	switch (key) {
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		list_sizes(s, state);
		if ((s->o->env[1].count || s->has_peer_via) && !s->o->plugin[1])
			s->o->plugin[1] = s->o->plugin[0];
		check_combination(s->o, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void np_parse_options(struct np_options *o, int argc, char **argv)
{
	static const struct argp argp = {
	    .options = option_table,
	    .parser = parse_one,
	    .doc = "Drives an NCCL network plugin the way NCCL's proxy does, checks every "
		   "byte and measures."
		   "\vExit status: 0 all data right, 1 wrong data or a fault rule that never "
		   "fired, 2 usage, 3 an error of the plugin or the system, 4 nothing moved "
		   "for --timeout seconds, 5 memory that awaited nothing was written (--canary).",
	};
	struct parse_state s = {.o = o, .min = 8, .max = 4 << 20, .factor = 2};

	*o = (struct np_options){
	    .plugin = {"ha"},
	    .ops = {NP_ALLREDUCE},
	    .nops = 1,
	    .type = NP_FLOAT,
	    .iterations = 20,
	    .warmup = 5,
	    .checks = 1,
	    .rounds = 11,
	    .cycles = 1,
	    .channels = 1,
	    .depth = 8,
	    .dev = -1,
	    .chunk = 512 << 10,
	    .parallel_connect = true,
	    .timeout_s = 60,
	    .stall_ms = 100,
	    .linger_ms = 100,
	    .nranks = 2,
	    .rank = -1,
	};
	argp_program_version_hook = print_version;
	argp_err_exit_status = NP_EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &s);
}

void np_free_options(struct np_options *o)
{
	free(o->sizes);
	free(o->faults);
}
