/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens connections until the devices have no more of something, for scripts/resource-sweep: is
 * what maxComms promised there, what gives out first, does the plugin say which, and do the
 * connections that exist go on.
 *
 * Two hosts with two devices each on a stepped fabric. Connections go from device to device in turn
 * and in both directions, so every device carries as many active paths as paths in reserve. Each
 * connection registers what NCCL does and reads GPU memory back once.
 */
#include "../fault/bootstrap.h"
#include "../fault/traffic.h"
#include "../seeded_random.h"

#include "base/clock.h"
#include "base/log.h"
#include "device/properties.h"
#include "failover/engine.h"
#include "instance/instance.h"
#include "memory/mr.h"
#include "simverbs/simverbs.h"
#include "transport/comm.h"
#include "transport/shared.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HOSTS	    2
#define RAILS	    2
#define CONNS_MAX   1024
#define BUFFERS	    3 /* that NCCL registers for a connection: LL, LL128, Simple */
#define PAGE	    4096
#define CALLS_MAX   1000
#define PROTECT_NS  (3 * HA_NS_PER_S)
#define TRAFFIC_NS  (20 * HA_NS_PER_S)
#define EVENTS_TURN 64

struct conn {
	uint32_t from; /* host that sends */
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_comm *comm[HOSTS]; /* of the sender, of the receiver */
	struct traffic traffic[HOSTS];
	struct ha_mr *mrs[HOSTS][BUFFERS - 1];
};

static struct {
	struct ha_config config;
	struct sv_stepped_opts fabric;
	struct plan plan;
	struct ha_instance *inst[HOSTS];
	struct conn conns[CONNS_MAX];
	unsigned n;
	uint8_t *pages;	   /* BUFFERS of each end */
	char refusal[400]; /* the first line in which the plugin said that it did not get something
			    */
	char wrong[300];
	bool trace;
} trial;

static bool wrong(const char *why)
{
	if (!trial.wrong[0])
		snprintf(trial.wrong, sizeof(trial.wrong), "%s", why);
	return false;
}

static void log_line(enum ha_log_level level, unsigned long subsys, const char *file, int line,
		     const char *text)
{
	(void)subsys, (void)file, (void)line;
	if (level == HA_LOG_WARN && !trial.refusal[0] &&
	    (strstr(text, "ibv_") || strstr(text, "cannot register")))
		snprintf(trial.refusal, sizeof(trial.refusal), "%s", text);
	if (trial.trace)
		fprintf(stderr, "%10.3f ms %c %s\n", (double)sv_stepped_now() / 1e6,
			level == HA_LOG_WARN ? 'W' : 'I', text);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void turn(void)
{
	uint64_t limit_ns = sv_stepped_now() + HA_NS_PER_MS;
	struct sv_event_info event;
	bool moved = false;

	for (unsigned i = 0; i < trial.n; i++)
		for (int side = 0; side < 2; side++)
			if (trial.conns[i].comm[side])
				moved |= traffic_turn(&trial.conns[i].traffic[side]);
	for (int host = 0; host < HOSTS; host++)
		moved |= ha_instance_progress(trial.inst[host]) > 0;
	for (int k = 0; k < EVENTS_TURN && sv_stepped_peek(&event) && event.time_ns <= limit_ns;
	     k++) {
		sv_stepped_step();
		moved = true;
	}
	if (!moved)
		sv_stepped_run(limit_ns);
}

/* ---- a world -------------------------------------------------------------------------------- */

static bool open_world(void)
{
	struct ha_instance_options options = {.config = &trial.config, .no_threads = true};

	trial.n = 0;
	trial.refusal[0] = '\0';
	bootstrap_seed(1);
	if (sv_stepped_open(&trial.fabric) != 0)
		return wrong("cannot open the fabric");
	ha_clock_set_source(sv_stepped_now);
	for (uint32_t host = 0; host < HOSTS; host++) {
		sv_stepped_set_host(host);
		if (ha_instance_open(&options, &trial.inst[host]) != HA_OK)
			return wrong("cannot open an instance");
	}
	return true;
}

static void close_conn(struct conn *c)
{
	for (int side = 0; side < 2; side++) {
		if (!c->comm[side])
			continue;
		traffic_stop(&c->traffic[side]);
		for (int b = 0; b < BUFFERS - 1; b++)
			if (c->mrs[side][b])
				ha_dereg_mr(c->comm[side], c->mrs[side][b]);
		if (side == 0)
			ha_close_send(c->comm[side]);
		else
			ha_close_recv(c->comm[side]);
		c->comm[side] = NULL;
	}
	ha_close_listen(c->listen);
	c->listen = NULL;
}

static void close_world(void)
{
	for (unsigned i = 0; i <= trial.n && i < CONNS_MAX; i++) /* and one half open */
		close_conn(&trial.conns[i]);
	for (int host = 0; host < HOSTS; host++)
		ha_instance_close(trial.inst[host]);
	ha_clock_set_source(NULL);
	if (sv_stepped_open_contexts() != 0)
		wrong("device contexts are left open");
	sv_stepped_destroy();
}

/* ---- a connection --------------------------------------------------------------------------- */

static bool register_buffers(struct conn *c, unsigned number)
{
	for (unsigned side = 0; side < 2; side++) {
		uint8_t *pages = trial.pages + (size_t)(2 * number + side) * BUFFERS * PAGE;

		if (traffic_start(&c->traffic[side], c->comm[side]) != HA_OK)
			return false;
		/* As GPU memory: what it is does not matter to the fabric. */
		for (unsigned b = 0; b < BUFFERS - 1; b++)
			if (ha_reg_mr(c->comm[side], pages + b * PAGE, PAGE, HA_MEM_CUDA, 0, -1,
				      &c->mrs[side][b]) != HA_OK)
				return false;
	}
	return true;
}

static bool flush(struct conn *c, unsigned number)
{
	void *data = trial.pages + (size_t)(2 * number + 1) * BUFFERS * PAGE;
	struct ha_request *req;
	bool done = false;
	int size = 64;

	if (ha_iflush(c->comm[1], 1, &data, &size, c->mrs[1], &req) != HA_OK)
		return false;
	for (int i = 0; req && !done && i < CALLS_MAX; i++) {
		turn();
		if (ha_test(req, &done, NULL) != HA_OK)
			return false;
	}
	return !req || done;
}

/* The receiver knows whether there is a path in reserve. */
static bool is_protected(const struct conn *c)
{
	const struct ha_comm *comm = c->comm[1];

	for (unsigned p = 0; comm->failover->state == HA_FO_ACTIVE && p < HA_MAX_PATHS; p++)
		if (p != comm->active && ha_slot_is_up(&comm->failover->slots[p]))
			return true;
	return false;
}

static bool connect_ends(struct conn *c, int dev)
{
	for (int i = 0; i < CALLS_MAX && !(c->comm[0] && c->comm[1]); i++) {
		if (!c->comm[0] && ha_connect(trial.inst[c->from], dev, HA_TRAFFIC_CLASS_UNDEF,
					      c->handle, &c->comm[0]) != HA_OK)
			return false;
		if (!c->comm[1] && ha_accept(c->listen, &c->comm[1]) != HA_OK)
			return false;
	}
	if (!c->comm[0] || !c->comm[1])
		return false;
	ha_close_listen(c->listen);
	c->listen = NULL;
	return true;
}

/* Opens one more, on the device whose turn it is. NULL: it is there, with a path in reserve; else
 * what it does not have. */
static const char *open_conn(void)
{
	struct conn *c = &trial.conns[trial.n];
	int dev = (int)(trial.n % RAILS);
	unsigned number = trial.n;
	uint64_t until_ns;

	memset(c->comm, 0, sizeof(c->comm));
	memset(c->mrs, 0, sizeof(c->mrs));
	c->from = trial.n / RAILS % HOSTS;
	for (int side = 0; side < 2; side++) {
		traffic_init(&c->traffic[side], &trial.plan, side == 0, mix(number));
		c->traffic[side].allowed = 0;
	}
	c->traffic[0].peer = &c->traffic[1];
	c->traffic[1].peer = &c->traffic[0];
	if (ha_listen(trial.inst[1 - c->from], dev, c->handle, &c->listen) != HA_OK)
		return "a listener";
	if (!connect_ends(c, dev))
		return "a connection";
	if (!register_buffers(c, number))
		return "its memory";
	trial.n++;
	until_ns = sv_stepped_now() + PROTECT_NS;
	while (!is_protected(c)) {
		if (sv_stepped_now() > until_ns)
			return "a path in reserve";
		turn();
	}
	return flush(c, number) ? NULL : "a flush";
}

/* ---- traffic -------------------------------------------------------------------------------- */

static bool all_through(void)
{
	for (unsigned i = 0; i < trial.n; i++)
		for (int side = 0; side < 2; side++)
			if (!traffic_idle(&trial.conns[i].traffic[side]))
				return false;
	return true;
}

/* All connections carry their messages at once. */
static bool exchange(unsigned groups)
{
	uint64_t until_ns = sv_stepped_now() + TRAFFIC_NS;

	for (unsigned i = 0; i < trial.n; i++)
		for (int side = 0; side < 2; side++)
			trial.conns[i].traffic[side].allowed += groups;
	while (!all_through()) {
		turn();
		for (unsigned i = 0; i < trial.n; i++)
			for (int side = 0; side < 2; side++) {
				struct traffic *t = &trial.conns[i].traffic[side];

				if (t->violation[0])
					return wrong(t->violation);
				if (t->state == TRAFFIC_FAILED)
					return wrong("a connection that existed failed");
			}
		if (sv_stepped_now() > until_ns)
			return wrong("a connection that existed stands still");
	}
	for (unsigned i = 0; i < trial.n; i++)
		traffic_check_memory(&trial.conns[i].traffic[1]);
	return true;
}

/* ---- the two questions ---------------------------------------------------------------------- */

struct answer {
	struct ha_budget budget;
	int max_comms;
	unsigned promised; /* ends of connections on each device */
	bool kept;
	const char *lacked;   /* why not, or by whom it gave out */
	unsigned opened;      /* with a path in reserve, of each device */
	enum ha_resource out; /* HA_RESOURCES: nothing that it named */
	char message[sizeof(trial.refusal)];
};

static void read_promise(struct answer *a)
{
	const struct ha_port *port = &trial.inst[0]->devices->ports[0];

	ha_budget(&trial.config, &port->nic->attr, ha_nic_ptr_support(port->nic) != HA_PTR_HOST,
		  &a->budget);
	a->max_comms = port->max_comms;
	a->promised = (unsigned)(port->max_comms * trial.config.expected_channels);
}

/* As many as were promised, all protected, all of them right also when a rail fails. */
static void try_promise(struct answer *a)
{
	unsigned wanted;

	if (!open_world())
		return;
	read_promise(a);
	a->kept = true;
	wanted = a->promised * RAILS < CONNS_MAX ? a->promised * RAILS : CONNS_MAX;
	while (a->kept && trial.n < wanted) {
		a->lacked = open_conn();
		a->kept = a->lacked == NULL;
	}
	if (a->kept && exchange(trial.plan.window)) {
		sv_stepped_link(0, 0, false);
		a->kept = exchange(trial.plan.window);
	}
	snprintf(a->message, sizeof(a->message), "%s", trial.refusal);
	close_world();
}

static enum ha_resource named(const char *message)
{
	for (enum ha_resource r = 0; r < HA_RESOURCES; r++)
		if (strstr(message, ha_resource_name(r)))
			return r;
	return HA_RESOURCES;
}

/* More and more, until something gives out. Then those that are there must not have noticed. */
static void try_all(struct answer *a)
{
	unsigned whole = 0;

	if (!open_world())
		return;
	while (trial.n < CONNS_MAX && !(a->lacked = open_conn()))
		whole++;
	a->opened = whole / RAILS;
	snprintf(a->message, sizeof(a->message), "%s", trial.refusal);
	a->out = named(trial.refusal);
	if (trial.n < CONNS_MAX)
		close_conn(&trial.conns[trial.n]); /* came half way: NCCL gives it back */
	exchange(2 * trial.plan.window);
	close_world();
}

/* ---- report --------------------------------------------------------------------------------- */

static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20)
			printf("\\u%04x", *text);
		else
			putchar(*text);
	putchar('"');
}

static void print(const struct answer *promise, const struct answer *all)
{
	printf("{\"max_comms\": %d, \"promised\": %u, \"kept\": %s, \"scarcest\": \"%s\", "
	       "\"allows\": {",
	       promise->max_comms, promise->promised, promise->kept ? "true" : "false",
	       ha_resource_name(promise->budget.scarcest));
	for (enum ha_resource r = 0; r < HA_RESOURCES; r++)
		printf("%s\"%s\": %d", r ? ", " : "", ha_resource_name(r),
		       promise->budget.of[r].allows);
	printf("}, \"promise_lacked\": ");
	print_string(promise->lacked ? promise->lacked : "");
	printf(", \"opened\": %u, \"gave_out\": \"%s\", \"lacked\": ", all->opened,
	       all->out < HA_RESOURCES ? ha_resource_name(all->out) : "");
	print_string(all->lacked ? all->lacked : "");
	printf(", \"message\": ");
	print_string(all->message);
	printf("}\n");
}

/* ---- main ----------------------------------------------------------------------------------- */

static int number(const struct argp_state *state, const char *arg, int least, int most)
{
	char *end;
	long value = strtol(arg, &end, 10);

	if (!*arg || *end || value < least || value > most)
		argp_error(state, "'%s' is not a number from %d to %d", arg, least, most);
	return (int)value;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	switch (key) {
	case 'c':
		trial.config.expected_channels = number(state, arg, 1, 1024);
		return 0;
	case 'w':
		trial.config.wr_per_conn = number(state, arg, 32, 4096);
		return 0;
	case 'r':
		trial.config.max_recvs = number(state, arg, 1, TRAFFIC_GROUP);
		return 0;
	case 'q':
		trial.config.ib_qps_per_connection = number(state, arg, 1, 16);
		return 0;
	case 'Q':
		trial.fabric.max_qp = (uint32_t)number(state, arg, 1, 1 << 20);
		return 0;
	case 'C':
		trial.fabric.max_cq = (uint32_t)number(state, arg, 1, 1 << 20);
		return 0;
	case 'E':
		trial.fabric.max_cqe = (uint32_t)number(state, arg, 1, 1 << 20);
		return 0;
	case 'M':
		trial.fabric.max_mr = (uint32_t)number(state, arg, 1, 1 << 20);
		return 0;
	case 'T':
		trial.trace = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_usage(state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static char *no_environment(const char *name)
{
	(void)name;
	return NULL;
}

static void configure(void)
{
	ha_config_load(&trial.config, no_environment);
	strcpy(trial.config.socket_ifname, "=lo");
	trial.config.stats = false;
	trial.config.enable_backup = true;
	trial.fabric.hosts = HOSTS;
	trial.fabric.rails = RAILS;
	trial.fabric.seed = 1;
	ha_log_set_sink(log_line);
}

int main(int argc, char **argv)
{
	static const struct argp_option options[] = {
	    {"channels", 'c', "N", 0, "HA_NCCL_EXPECTED_CHANNELS (16)", 0},
	    {"in-flight", 'w', "N", 0, "HA_NCCL_WR_PER_CONN (64)", 0},
	    {"max-recvs", 'r', "N", 0, "HA_NCCL_MAX_RECVS (8)", 0},
	    {"qps", 'q', "N", 0, "NCCL_IB_QPS_PER_CONNECTION (1)", 0},
	    {"max-qp", 'Q', "N", 0, "of a device; and likewise:", 1},
	    {"max-cq", 'C', "N", 0, "", 1},
	    {"max-cqe", 'E', "N", 0, "", 1},
	    {"max-mr", 'M', "N", 0, "", 1},
	    {"trace", 'T', NULL, 0, "the log to stderr", 2},
	    {0},
	};
	static const struct argp argp = {
	    options, parse, NULL, "Compares maxComms with what can be opened; one JSON object.",
	    NULL,    NULL,  NULL};
	struct answer promise = {0}, all = {0};

	configure();
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	trial.plan = (struct plan){.groups = TRAFFIC_MAX_GROUPS,
				   .window = trial.config.wr_per_conn < TRAFFIC_WINDOW
						 ? (unsigned)trial.config.wr_per_conn
						 : TRAFFIC_WINDOW,
				   .group = (unsigned)trial.config.max_recvs,
				   .nsizes = 2,
				   .sizes = {256, 40}};
	trial.pages = mmap(NULL, (size_t)CONNS_MAX * 2 * BUFFERS * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (trial.pages == MAP_FAILED) {
		perror("ha-resource-trial: memory");
		return 1;
	}
	try_promise(&promise);
	if (!trial.wrong[0])
		try_all(&all);
	for (unsigned i = 0; i < CONNS_MAX; i++)
		for (int side = 0; side < 2; side++)
			traffic_free(&trial.conns[i].traffic[side]);
	if (trial.wrong[0]) {
		fprintf(stderr, "ha-resource-trial: %s; the plugin said: %s\n", trial.wrong,
			trial.refusal[0] ? trial.refusal : "nothing");
		return 1;
	}
	print(&promise, &all);
	return 0;
}
