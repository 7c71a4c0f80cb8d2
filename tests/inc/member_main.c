/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member of a group as a process: all-reduces whose every byte is known beforehand. Its memory is
 * the application's as soon as an operation is done, so it is written over then, and looked at once
 * more in the end. The last line says what has become of it, as JSON.
 *
 * "done N" is said behind each operation, and with --hold=N it waits for a line before operation N:
 * so whoever looks on can end a switch in the middle; with --every=N before each Nth. When the
 * group leaves its plan's lanes it says "away", and when it is back "home", after "uses N": bytes
 * that are allocated. When its edges are on another of its ports than before it says "port N". With
 * --differ=N operation N is another one here. With --until-told there is no end until a line says
 * how many operations there are.
 */
#include "../seeded_random.h"

#include "base/clock.h"
#include "device/events.h"
#include "inc/host/host.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <argp.h>
#include <arpa/inet.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POISON 0xee
#define SLOTS  4 /* operations at a time */
#define MARGIN 64

enum { ENDED_WELL, FAILED, WRONG_CALL, WRONG_BYTES };

struct arguments {
	const char *key_file;
	union ha_sockaddr controller;
	struct ha_host_wish wish;
	unsigned ops, hold, every, differ;
	size_t bytes;
	unsigned limit_s;
	bool until_told;
};

static struct arguments a = {
    .wish = {.ask = {.unit_bytes = 65536, .window = 16},
	     .copies = 4,
	     .connect_ns = 60 * HA_NS_PER_S,
	     .join_ns = 10 * HA_NS_PER_S,
	     .late_ns = HA_NS_PER_S},
    .ops = 10,
    .bytes = 1 << 20,
    .limit_s = 120,
};

/* Types whose sums are the same in whatever order they are added. */
static const struct kind {
	enum ha_reduce_type type;
	size_t size;
} kinds[] = {{HA_REDUCE_INT64, 8}, {HA_REDUCE_UINT8, 1}, {HA_REDUCE_INT32, 4}, {HA_REDUCE_FP64, 8}};

struct slot {
	uint8_t *send, *recv; /* of as many bytes, with a margin on both sides */
	struct ibv_mr *send_mr[HA_MEMBER_PORTS], *recv_mr[HA_MEMBER_PORTS];
	uint64_t number; /* 0: free */
	unsigned op;
};

static struct slot slots[SLOTS];
static struct ha_host *host;
static struct ha_incarnation *on[HA_MEMBER_PORTS];
static unsigned asked, done;

static const struct kind *kind_of(unsigned op)
{
	return &kinds[op % (sizeof(kinds) / sizeof(kinds[0]))];
}

static bool is_in_place(unsigned op)
{
	return op % 3 == 2;
}

/* Not all operations are of whole units. */
static size_t count_of(unsigned op)
{
	const size_t most = a.bytes / kind_of(op)->size;

	return op % 5 == 4 ? 1 : most - op % 7 % most;
}

static uint64_t element(unsigned op, unsigned rank, size_t i)
{
	return mix(mix((uint64_t)op << 32 | rank) + i);
}

/* ---- what goes in and what has to come out -------------------------------------------------- */

/* Integers wrap, and these floats are whole numbers, so small that their sums are exact. */
static void put(const struct kind *kind, uint64_t value, uint8_t *at)
{
	const double number = (double)value;

	if (kind->type == HA_REDUCE_FP64)
		memcpy(at, &number, kind->size);
	else
		memcpy(at, &value, kind->size); /* little-endian */
}

static uint64_t value_of(unsigned op, unsigned rank, size_t i)
{
	return kind_of(op)->type == HA_REDUCE_FP64 ? element(op, rank, i) >> 32
						   : element(op, rank, i);
}

static void contribute(const struct slot *slot)
{
	const struct kind *kind = kind_of(slot->op);

	for (size_t i = 0; i < count_of(slot->op); i++)
		put(kind, value_of(slot->op, a.wish.ask.rank, i), slot->send + i * kind->size);
}

static bool is_right(const struct slot *slot)
{
	const struct kind *kind = kind_of(slot->op);
	const uint8_t *at = is_in_place(slot->op) ? slot->send : slot->recv;

	for (size_t i = 0; i < count_of(slot->op); i++, at += kind->size) {
		uint8_t wanted[8];
		uint64_t sum = 0;

		for (unsigned rank = 0; rank < a.wish.ask.ranks; rank++)
			sum += value_of(slot->op, rank, i);
		put(kind, sum, wanted);
		if (memcmp(wanted, at, kind->size) != 0) {
			fprintf(stderr, "operation %u, element %zu is wrong\n", slot->op, i);
			return false;
		}
	}
	return true;
}

/* ---- memory --------------------------------------------------------------------------------- */

static struct ibv_mr *register_on(unsigned p, uint8_t *buffer)
{
	return ibv_reg_mr(on[p]->pd, buffer, a.bytes + 2 * MARGIN, IBV_ACCESS_LOCAL_WRITE);
}

static bool make_slots(void)
{
	const size_t all = a.bytes + 2 * MARGIN;

	for (unsigned i = 0; i < SLOTS; i++) {
		uint8_t *send = malloc(all), *recv = malloc(all);

		if (!send || !recv)
			return false;
		memset(send, POISON, all);
		memset(recv, POISON, all);
		slots[i] = (struct slot){.send = send + MARGIN, .recv = recv + MARGIN};
		for (unsigned p = 0; p < a.wish.ports.n; p++) {
			slots[i].send_mr[p] = register_on(p, send);
			slots[i].recv_mr[p] = register_on(p, recv);
			if (!slots[i].send_mr[p] || !slots[i].recv_mr[p])
				return false;
		}
	}
	return true;
}

static bool is_poison(const uint8_t *at)
{
	for (size_t i = 0; i < a.bytes + 2 * MARGIN; i++)
		if (at[i] != POISON)
			return false;
	return true;
}

/* Of memory that was handed back nothing has been written. */
static bool free_slots(void)
{
	bool good = true;

	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (!slot->send)
			continue;
		if (!slot->number)
			good &= is_poison(slot->send - MARGIN) && is_poison(slot->recv - MARGIN);
		for (unsigned p = 0; p < a.wish.ports.n; p++) {
			(void)ibv_dereg_mr(slot->send_mr[p]);
			(void)ibv_dereg_mr(slot->recv_mr[p]);
		}
		free(slot->send - MARGIN);
		free(slot->recv - MARGIN);
	}
	if (!good)
		fprintf(stderr, "memory was touched that had been handed back\n");
	return good;
}

/* ---- operations ----------------------------------------------------------------------------- */

static void ask(struct slot *slot)
{
	const bool in_place = is_in_place(asked);
	struct ha_all_reduce reduce = {
	    .type = kind_of(asked)->type,
	    .op = asked && asked == a.differ ? HA_REDUCE_MAX : HA_REDUCE_SUM,
	    .count = count_of(asked),
	    .send = slot->send,
	    .recv = in_place ? slot->send : slot->recv,
	};

	for (unsigned p = 0; p < a.wish.ports.n; p++) {
		reduce.send_lkey[p] = slot->send_mr[p]->lkey;
		reduce.recv_lkey[p] = (in_place ? slot->send_mr : slot->recv_mr)[p]->lkey;
	}
	slot->op = asked;
	contribute(slot);
	if (ha_host_all_reduce(host, &reduce, &slot->number))
		asked++;
	else
		memset(slot->send, POISON, a.bytes);
}

static bool finish(struct slot *slot)
{
	if (!is_right(slot))
		return false;
	memset(slot->recv, POISON, a.bytes);
	memset(slot->send, POISON, a.bytes);
	slot->number = 0;
	printf("done %u\n", done++);
	(void)fflush(stdout);
	return true;
}

/* A line has come, which it takes, and the number in it. It goes on meanwhile: others may need what
 * it has to say. */
static bool is_told(unsigned *number)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char byte = 0;

	*number = 0;
	while (byte != '\n' && poll(&p, 1, byte ? -1 : 0) == 1) {
		if (read(STDIN_FILENO, &byte, 1) != 1)
			return true; /* nobody will say anything any more */
		if (byte >= '0' && byte <= '9')
			*number = 10 * *number + (unsigned)(byte - '0');
	}
	return byte == '\n';
}

/* Of all arenas, whatever the kernel and the allocator keep beside it. */
static size_t allocated(void)
{
	const struct mallinfo2 now = mallinfo2();

	return now.uordblks + now.hblkhd;
}

static void tell_where_it_is(void)
{
	static bool was_away;
	const bool is_away = ha_host_is_away(host);

	if (is_away == was_away)
		return;
	was_away = is_away;
	if (!is_away)
		printf("uses %zu\n", allocated());
	printf("%s\n", is_away ? "away" : "home");
	(void)fflush(stdout);
}

/* Operations are done in any order, and asked for in theirs. */
static bool act(bool *moved)
{
	unsigned number;

	if (a.hold && asked == a.hold && done == asked && is_told(&number))
		a.hold = a.every ? asked + a.every : 0;
	if (a.until_told && is_told(&number)) {
		a.ops = number;
		a.until_told = false;
	}
	tell_where_it_is();
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		if (slot->number && ha_host_is_done(host, slot->number)) {
			*moved = true;
			if (!finish(slot))
				return false;
		}
		if (!slot->number && asked < a.ops && !(a.hold && asked == a.hold)) {
			*moved = true;
			ask(slot);
		}
	}
	return true;
}

/* Two processors for all processes of a test: who has nothing to do makes room. */
static void rest(bool moved)
{
	const struct timespec pause = {.tv_nsec = 50000};

	if (!moved)
		nanosleep(&pause, NULL);
}

/* As the plugin's progress thread does. */
static void read_events(struct ha_device_set *set)
{
	for (unsigned p = 0; p < a.wish.ports.n; p++) {
		struct ha_port *port = a.wish.ports.port[p];

		(void)ha_nic_read_events(set, port->nic);
		if (atomic_exchange(&port->refresh_due, false) && ha_port_refresh(port) != HA_OK)
			fprintf(stderr, "%s cannot be asked for its state\n", port->nic->name);
	}
}

static void tell_where_its_edges_are(void)
{
	static unsigned was;

	if (ha_host_at(host) == was)
		return;
	was = ha_host_at(host);
	printf("port %u\n", was);
	(void)fflush(stdout);
}

static int run(struct ha_device_set *set)
{
	const uint64_t until_ns = ha_real_ns() + a.limit_s * HA_NS_PER_S;
	enum ha_host_state state;

	while ((state = ha_host_state(host)) != HA_HOST_LEFT && state != HA_HOST_OVER) {
		bool moved = ha_host_progress(host);

		read_events(set);
		tell_where_its_edges_are();
		if (!act(&moved))
			return WRONG_BYTES;
		if (done == a.ops)
			ha_host_leave(host);
		if (ha_real_ns() > until_ns) {
			fprintf(stderr, "%u of %u operations done, and the time is over\n", done,
				a.ops);
			return FAILED;
		}
		rest(moved);
	}
	return state == HA_HOST_LEFT ? ENDED_WELL : FAILED;
}

/* ---- the program ---------------------------------------------------------------------------- */

static uint64_t connect_ns; /* for how long it has waited for the others and for switches */

static void tell(int status, const char *why)
{
	const struct ha_host_fates fates = host ? ha_host_fates(host) : (struct ha_host_fates){0};

	printf("{\"rank\": %u, \"status\": %d, \"done\": %u, \"epochs\": %u, \"taken\": %llu, "
	       "\"again\": %llu, \"alone\": %s, \"connect_ms\": %.3f, \"why\": \"%s\"}\n",
	       a.wish.ask.rank, status, done, host ? ha_host_epochs(host) : 0,
	       (unsigned long long)fates.taken, (unsigned long long)fates.again,
	       host && ha_host_is_without_switches(host) ? "true" : "false",
	       (double)connect_ns / HA_NS_PER_MS, why);
	(void)fflush(stdout);
}

static int work(struct ha_device_set *set)
{
	char why[HA_HOST_WHY] = "";
	uint64_t begun_ns;
	ha_result_t result;
	int status = FAILED;

	for (int p = 0; p < set->nports_all && p < HA_MEMBER_PORTS; p++) {
		a.wish.ports.port[a.wish.ports.n++] = &set->ports[p];
		if (ha_nic_pd_get(set->ports[p].nic, &on[p]) != HA_OK)
			return FAILED;
	}
	if (!make_slots()) {
		snprintf(why, sizeof(why), "no memory");
	} else {
		begun_ns = ha_real_ns();
		result = ha_host_open(&a.wish, &host, why, sizeof(why));
		connect_ns = ha_real_ns() - begun_ns;
		if (result == HA_OK) {
			status = run(set);
			ha_host_why(host, why);
		}
	}
	tell(status, why);
	if (ha_host_close(host) != HA_OK)
		status = FAILED;
	if (!free_slots())
		status = WRONG_BYTES;
	for (unsigned p = 0; p < a.wish.ports.n; p++)
		ha_nic_pd_put(on[p]);
	return status;
}

enum {
	OPT_RANK = 0x100,
	OPT_RANKS,
	OPT_OPS,
	OPT_BYTES,
	OPT_UNIT,
	OPT_WINDOW,
	OPT_HOLD,
	OPT_LATE,
	OPT_OUTAGE,
	OPT_SWITCHES,
	OPT_DIFFER,
	OPT_EVERY,
	OPT_LIMIT,
	OPT_FAILBACK,
	OPT_UNTIL_TOLD
};

static const struct argp_option options[] = {
    {"connect", 'a', "IPV4:PORT", 0, "", 0},
    {"key-file", 'k', "FILE", 0, "", 0},
    {"group", 'g', "NAME", 0, "", 0},
    {"port", 'p', "NAME", 0, "", 0},
    {"rank", OPT_RANK, "N", 0, "", 0},
    {"ranks", OPT_RANKS, "N", 0, "", 0},
    {"ops", OPT_OPS, "N", 0, "", 0},
    {"bytes", OPT_BYTES, "N", 0, "", 0},
    {"unit", OPT_UNIT, "N", 0, "", 0},
    {"window", OPT_WINDOW, "N", 0, "", 0},
    {"hold", OPT_HOLD, "N", 0, "", 0},
    {"late-ms", OPT_LATE, "N", 0, "", 0},
    {"connect-ms", 'c', "N", 0, "", 0},
    {"outage-ms", OPT_OUTAGE, "N", 0, "", 0},
    {"needs-switches", OPT_SWITCHES, 0, 0, "", 0},
    {"differ", OPT_DIFFER, "N", 0, "", 0},
    {"limit-s", OPT_LIMIT, "N", 0, "", 0},
    {"every", OPT_EVERY, "N", 0, "", 0},
    {"failback-ms", OPT_FAILBACK, "N", 0, "", 0},
    {"until-told", OPT_UNTIL_TOLD, 0, 0, "", 0},
    {0},
};

static void read_address(const char *text, struct argp_state *state)
{
	const char *colon = strrchr(text, ':');
	char host_text[64] = "";

	if (colon)
		snprintf(host_text, sizeof(host_text), "%.*s", (int)(colon - text), text);
	a.controller.in = (struct sockaddr_in){
	    .sin_family = AF_INET, .sin_port = htons((uint16_t)(colon ? atoi(colon + 1) : 0))};
	if (inet_pton(AF_INET, host_text, &a.controller.in.sin_addr) != 1)
		argp_error(state, "%s is no IPV4:PORT", text);
	a.wish.ask.controller = &a.controller;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	const unsigned number = arg ? (unsigned)strtoul(arg, NULL, 10) : 0;

	switch (key) {
	case 'a':
		read_address(arg, state);
		return 0;
	case 'k':
		a.key_file = arg;
		return 0;
	case 'g':
		a.wish.ask.group = arg;
		return 0;
	case 'p':
		a.wish.ask.port = arg;
		return 0;
	case 'c':
		a.wish.connect_ns = number * HA_NS_PER_MS;
		return 0;
	case OPT_RANK:
		a.wish.ask.rank = number;
		return 0;
	case OPT_RANKS:
		a.wish.ask.ranks = number;
		return 0;
	case OPT_OPS:
		a.ops = number;
		return 0;
	case OPT_BYTES:
		a.bytes = number;
		return 0;
	case OPT_UNIT:
		a.wish.ask.unit_bytes = number;
		return 0;
	case OPT_WINDOW:
		a.wish.ask.window = number;
		return 0;
	case OPT_HOLD:
		a.hold = number;
		return 0;
	case OPT_LATE:
		a.wish.late_ns = number * HA_NS_PER_MS;
		return 0;
	case OPT_OUTAGE:
		a.wish.outage_ns = number * HA_NS_PER_MS;
		return 0;
	case OPT_SWITCHES:
		a.wish.needs_switches = true;
		return 0;
	case OPT_LIMIT:
		a.limit_s = number;
		return 0;
	case OPT_EVERY:
		a.hold = a.every = number;
		return 0;
	case OPT_FAILBACK:
		a.wish.failback_ns = number * HA_NS_PER_MS;
		return 0;
	case OPT_UNTIL_TOLD:
		a.until_told = true;
		a.ops = UINT_MAX;
		return 0;
	case OPT_DIFFER:
		a.differ = number;
		return 0;
	case ARGP_KEY_END:
		if (!a.wish.ask.controller || !a.key_file || !a.wish.ask.group || !a.wish.ask.port)
			argp_error(state, "say --connect, --key-file, --group and --port");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {options, parse, NULL, "", NULL, NULL, NULL};

int main(int argc, char **argv)
{
	static struct ha_config config;
	struct ha_device_set *set = NULL;
	struct ha_job_key *site = NULL;
	int status = FAILED;

	argp_err_exit_status = WRONG_CALL;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	ha_config_load(&config, getenv);
	if (ha_job_key_load_file("--key-file", a.key_file, &site) != HA_OK)
		return FAILED;
	a.wish.ask.site = site;
	if (ha_device_set_open(&config, &set) == HA_OK && set->nports > 0)
		status = work(set);
	else
		tell(status, "no device");
	if (set) {
		ha_memory_close(set);
		ha_device_set_close(set);
	}
	ha_job_key_free(site);
	return status;
}
