/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduces in virtual time, on links of 100 Gb/s and 1 us: through switches, by hosts that add
 *for each other, and on a ring. The ring is the leanest there can be: queue pairs alone, messages
 *of 512 KiB of which eight are under way, additions that take no time; so a real one is not faster.
 *
 *	inc-bench-stepped HOSTS BYTES REPEAT switch|levels|hosts|beside|ring|unsafe [RULE...]
 *
 * "beside" is a switch at which another group of the same hosts has sent all that it may, and waits
 * for a member that has asked for nothing.
 *
 * "unsafe" is a switch without what lets it die: nobody says what it has, and a request is complete
 * as soon as its own result is there, without a copy.
 *
 * Rules are faults of all links. One line of JSON: nanoseconds of virtual time for each all-reduce,
 *one after the other, and how many bytes the busiest host's link carried out and in for each.
 */
#include "base/config.h"
#include "inc/verbs/member.h"
#include "inc/verbs/mesh.h"
#include "inc/verbs/tree.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "simverbs/simverbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS	   16
#define SWITCHES   5
#define GROUP	   0x600d
#define UNIT_BYTES 65536
#define WINDOW	   16
#define COPIES	   16
#define CHUNK	   (512u << 10)
#define DEPTH	   8
#define RATE_MBPS  100000
#define LOOK_NS	   50000

struct host {
	struct ha_device_set *set;
	struct ha_incarnation *on;
	uint8_t *send, *recv, *scratch;
	struct ibv_mr *send_mr, *recv_mr, *scratch_mr;
	struct ha_member *member;
	struct ha_mesh mesh;
	uint64_t number;
	struct ha_member
	    *other; /* of a second group at the same switch, of which member 0 sleeps */
	uint64_t other_number;
	struct ha_edge in, out; /* of a ring */
	uint64_t sent, came;	/* messages of the present all-reduce */
};

static struct host hosts[HOSTS + SWITCHES];
static struct ha_tree *trees[SWITCHES];
static unsigned int n_hosts, n_switches;
static size_t bytes;

static void fail(const char *what)
{
	fprintf(stderr, "inc-bench-stepped: %s\n", what);
	exit(1);
}

static void check(bool is_right, const char *what)
{
	if (!is_right)
		fail(what);
}

/* ---- fabric and memory ---------------------------------------------------------------------- */

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static struct ha_port *port_of(unsigned int host)
{
	return &hosts[host].set->ports[0];
}

static struct ibv_mr *registered(struct host *host, uint8_t **memory, size_t size)
{
	struct ibv_mr *mr;

	*memory = calloc(1, size);
	check(*memory != NULL, "no memory");
	mr = ibv_reg_mr(host->on->pd, *memory, size, IBV_ACCESS_LOCAL_WRITE);
	check(mr != NULL, "ibv_reg_mr");
	return mr;
}

static void open_fabric(void)
{
	static struct ha_config config;
	const struct sv_stepped_opts fabric = {.hosts = n_hosts,
					       .aggregators = n_switches,
					       .rate_mbps = RATE_MBPS,
					       .burst_bytes = 16384};

	ha_config_load(&config, no_env);
	check(sv_stepped_open(&fabric) == 0, "sv_stepped_open");
	for (unsigned int i = 0; i < n_hosts + n_switches; i++) {
		sv_stepped_set_host(i);
		check(ha_device_set_open(&config, &hosts[i].set) == HA_OK, "no devices");
	}
	for (unsigned int i = 0; i < n_hosts; i++) {
		struct host *host = &hosts[i];

		check(ha_nic_pd_get(port_of(i)->nic, &host->on) == HA_OK, "no protection domain");
		host->send_mr = registered(host, &host->send, bytes);
		host->recv_mr = registered(host, &host->recv, bytes);
		for (size_t k = 0; k < bytes; k++)
			host->send[k] = (uint8_t)(i + k);
	}
}

static void expect_sums(void)
{
	for (unsigned int h = 0; h < n_hosts; h++)
		for (size_t k = 0; k < bytes; k += 97)
			check(hosts[h].recv[k] ==
				  (uint8_t)(n_hosts * k + n_hosts * (n_hosts - 1) / 2),
			      "a sum is wrong");
}

/* ---- through switches ----------------------------------------------------------------------- */

static void connect_edges(struct ha_edge *a, struct ha_edge *b)
{
	struct ha_edge_address of_a, of_b;

	ha_edge_address(a, &of_a);
	ha_edge_address(b, &of_b);
	check(ha_edge_connect(a, &of_b) == HA_OK && ha_edge_connect(b, &of_a) == HA_OK,
	      "an edge is not connected");
}

static struct ha_member *new_member(unsigned int i, unsigned int lanes, uint64_t group)
{
	const struct ha_member_shape shape = {.ledger = {(uint16_t)i, WINDOW, COPIES},
					      .lanes = lanes,
					      .unit_bytes = UNIT_BYTES,
					      .group = group};
	const struct ha_member_ports ports = {{port_of(i)}, 1};
	struct ha_member *member;

	check(ha_member_open(&shape, &ports, &member) == HA_OK, "no member");
	return member;
}

static void open_members(unsigned int lanes)
{
	for (unsigned int i = 0; i < n_hosts; i++)
		hosts[i].member = new_member(i, lanes, GROUP);
}

static struct ha_tree *new_tree(unsigned int i, unsigned int children, bool is_root,
				bool is_inner_below, uint64_t group)
{
	const struct ha_tree_shape shape = {.lane = {children, is_root, WINDOW, UNIT_BYTES},
					    .is_inner_below = is_inner_below,
					    .group = group};
	struct ha_tree *tree;

	check(ha_tree_open(&shape, port_of(n_hosts + i), &tree) == HA_OK, "no tree");
	return tree;
}

static void open_tree(unsigned int i, unsigned int children, bool is_root, bool is_inner_below)
{
	trees[i] = new_tree(i, children, is_root, is_inner_below, GROUP);
}

/* The linker puts these in the place of what members and trees call. */
static bool is_unsafe;

void __real_ha_edge_say(struct ha_edge *edge, uint64_t word);
void __wrap_ha_edge_say(struct ha_edge *edge, uint64_t word);
bool __real_ha_ledger_retire(struct ha_ledger *ledger, uint64_t retired);
bool __wrap_ha_ledger_retire(struct ha_ledger *ledger, uint64_t retired);

void __wrap_ha_edge_say(struct ha_edge *edge, uint64_t word)
{
	if (!is_unsafe)
		__real_ha_edge_say(edge, word);
}

bool __wrap_ha_ledger_retire(struct ha_ledger *ledger, uint64_t retired)
{
	return __real_ha_ledger_retire(ledger, is_unsafe ? ha_ledger_word(ledger) : retired);
}

static void join(unsigned int tree, unsigned int place, unsigned int host)
{
	check(ha_member_join(hosts[host].member, 1, WINDOW) == HA_OK, "no edge");
	connect_edges(ha_member_edge(hosts[host].member, 0), ha_tree_edge(trees[tree], place));
}

static void one_level(void)
{
	open_members(1);
	open_tree(0, n_hosts, true, false);
	for (unsigned int i = 0; i < n_hosts; i++)
		join(0, i, i);
}

static void unsafe(void)
{
	is_unsafe = true;
	one_level();
}

/* Four switches with a quarter of the hosts each, below one. */
static void two_levels(void)
{
	const unsigned int below = n_hosts / 4;

	open_members(1);
	open_tree(0, 4, true, true);
	for (unsigned int i = 0; i < 4; i++) {
		open_tree(1 + i, below, false, false);
		connect_edges(ha_tree_edge(trees[1 + i], HA_UNIT_UP), ha_tree_edge(trees[0], i));
		for (unsigned int k = 0; k < below; k++)
			join(1 + i, k, i * below + k);
	}
}

/* ---- hosts that add for each other ---------------------------------------------------------- */

static void say(void *arg, const struct ha_inc_frame *frame)
{
	(void)arg;
	ha_mesh_hear(&hosts[frame->link.to].mesh, frame);
}

static void mesh(void)
{
	open_members(n_hosts);
	for (unsigned int i = 0; i < n_hosts; i++) {
		const struct ha_mesh_shape shape = {(uint16_t)i, (uint16_t)n_hosts, GROUP,
						    WINDOW,	 UNIT_BYTES,	    1000000000};

		check(ha_member_fence(hosts[i].member, 1), "no fence");
		ha_mesh_init(&hosts[i].mesh, &shape, hosts[i].member, say, NULL);
	}
	for (unsigned int i = 0; i < n_hosts; i++) {
		const struct ha_resume nothing = {.epoch = 1};

		ha_mesh_join(&hosts[i].mesh, 1, 0);
		check(ha_member_resume(hosts[i].member, &nothing) == HA_LEDGER_FINE, "no resume");
	}
	for (unsigned int i = 0; i < n_hosts; i++)
		check(hosts[i].mesh.state == HA_MESH_LINKED, "hosts are not linked");
}

static void ask(void)
{
	for (unsigned int i = 0; i < n_hosts; i++) {
		const struct ha_all_reduce ask = {.type = HA_REDUCE_UINT8,
						  .op = HA_REDUCE_SUM,
						  .count = bytes,
						  .send = hosts[i].send,
						  .recv = hosts[i].recv,
						  .send_lkey = {hosts[i].send_mr->lkey},
						  .recv_lkey = {hosts[i].recv_mr->lkey}};

		check(ha_member_all_reduce(hosts[i].member, &ask, &hosts[i].number),
		      "too many operations");
	}
}

static struct ha_tree *other_tree;

static bool others_act(void)
{
	bool moved = false;

	for (unsigned int i = 0; i < n_hosts && other_tree; i++)
		moved |= ha_member_progress(hosts[i].other);
	return other_tree && (ha_tree_progress(other_tree) || moved);
}

static bool act(void)
{
	bool moved = false, is_done = true;

	do {
		moved = false;
		for (unsigned int i = 0; i < n_hosts; i++) {
			moved |= ha_member_progress(hosts[i].member);
			moved |= ha_mesh_progress(&hosts[i].mesh);
		}
		for (unsigned int i = 0; i < n_switches; i++)
			moved |= trees[i] && ha_tree_progress(trees[i]);
		moved |= others_act();
	} while (moved);
	for (unsigned int i = 0; i < n_hosts; i++)
		is_done &= ha_member_is_done(hosts[i].member, hosts[i].number);
	return is_done;
}

/* As programs do: those look about as often. */
static void look(void)
{
	const uint64_t now_ns = sv_stepped_now();

	for (unsigned int i = 0; i < n_hosts; i++) {
		ha_member_look(hosts[i].member, now_ns);
		ha_mesh_tick(&hosts[i].mesh, now_ns);
	}
	for (unsigned int i = 0; i < n_switches; i++)
		if (trees[i])
			ha_tree_look(trees[i], now_ns);
}

static void step_or_look(void)
{
	static uint64_t look_ns;
	struct sv_event_info next;

	check(sv_stepped_peek(&next), "nothing happens any more");
	if (next.time_ns <= look_ns) {
		(void)sv_stepped_step();
		return;
	}
	(void)sv_stepped_run(look_ns);
	look();
	look_ns = sv_stepped_now() + LOOK_NS;
}

static void all_reduce(void)
{
	ask();
	while (!act())
		step_or_look();
}

/* ---- beside a group that sleeps -------------------------------------------------------------- */

/* In memory of its own, which is not compared: only the first group's is. */
static void ask_of_other(unsigned int i)
{
	struct host *host = &hosts[i];
	struct ha_all_reduce ask = {
	    .type = HA_REDUCE_UINT8, .op = HA_REDUCE_SUM, .count = bytes, .send = host->send};

	host->scratch_mr = registered(host, &host->scratch, bytes);
	ask.send_lkey[0] = host->send_mr->lkey;
	ask.recv = host->scratch;
	ask.recv_lkey[0] = host->scratch_mr->lkey;
	check(ha_member_all_reduce(host->other, &ask, &host->other_number), "too many operations");
}

static bool others_are_done(void)
{
	for (unsigned int i = 0; i < n_hosts; i++)
		if (!hosts[i].other_number ||
		    !ha_member_is_done(hosts[i].other, hosts[i].other_number))
			return false;
	return true;
}

/* All but one of the others have sent what they may. */
static void beside_sleepers(void)
{
	one_level();
	other_tree = new_tree(0, n_hosts, true, false, GROUP + 1);
	for (unsigned int i = 0; i < n_hosts; i++) {
		hosts[i].other = new_member(i, 1, GROUP + 1);
		check(ha_member_join(hosts[i].other, 1, WINDOW) == HA_OK, "no edge");
		connect_edges(ha_member_edge(hosts[i].other, 0), ha_tree_edge(other_tree, i));
	}
	for (unsigned int i = 1; i < n_hosts; i++)
		ask_of_other(i);
	do
		(void)act();
	while (sv_stepped_step());
}

/* Once it wakes up everything of it is there. */
static void wake_others(void)
{
	if (!other_tree)
		return;
	check(!others_are_done(), "the other group does not sleep");
	ask_of_other(0);
	while (!others_are_done()) {
		(void)act();
		check(others_are_done() || sv_stepped_step(), "nothing happens any more");
	}
	for (unsigned int h = 0; h < n_hosts; h++)
		check(!memcmp(hosts[h].scratch, hosts[h].recv, bytes), "another sum is wrong");
}

/* ---- a ring --------------------------------------------------------------------------------- */

static size_t segment_bytes(void)
{
	return (bytes + n_hosts - 1) / n_hosts;
}

static uint64_t messages_of_segment(void)
{
	return (segment_bytes() + CHUNK - 1) / CHUNK;
}

static uint64_t messages(void)
{
	return 2 * (n_hosts - 1) * messages_of_segment();
}

/* Where the q-th message that a host sends lies; what it gets is its neighbour's q-th. */
static size_t piece(unsigned int host, uint64_t q, size_t *size)
{
	const uint64_t m = messages_of_segment(), step = q / m, k = q % m;
	const unsigned int segment =
	    (unsigned int)((host + 2 * n_hosts - step % (2 * n_hosts)) % n_hosts);
	const size_t begin = segment * segment_bytes(), at = begin + k * CHUNK;
	size_t end = begin + segment_bytes();

	end = end < bytes ? end : bytes;
	*size = at >= end ? 0 : (end - at < CHUNK ? end - at : CHUNK);
	return at;
}

static void expect_next(unsigned int h, uint64_t q)
{
	struct host *host = &hosts[h];
	const unsigned int from = (h + n_hosts - 1) % n_hosts;
	size_t size, at = piece(from, q, &size);
	const bool is_added = q / messages_of_segment() < n_hosts - 1;
	uint8_t *to = is_added ? host->scratch + q % DEPTH * CHUNK : host->recv + at;

	if (q < messages())
		check(ha_edge_recv(&host->in, (struct ibv_sge){(uintptr_t)to, (uint32_t)size,
							       is_added ? host->scratch_mr->lkey
									: host->recv_mr->lkey}),
		      "no receive");
}

static void ring(void)
{
	const struct ha_edge_depth depth = {.sends = DEPTH, .recvs = DEPTH};

	for (unsigned int i = 0; i < n_hosts; i++) {
		hosts[i].scratch_mr =
		    registered(&hosts[i], &hosts[i].scratch, (size_t)DEPTH * CHUNK);
		check(ha_edge_open(&hosts[i].in, port_of(i), &depth) == HA_OK &&
			  ha_edge_open(&hosts[i].out, port_of(i), &depth) == HA_OK,
		      "no edge");
	}
	for (unsigned int i = 0; i < n_hosts; i++)
		connect_edges(&hosts[i].out, &hosts[(i + 1) % n_hosts].in);
}

static void take(unsigned int h)
{
	struct host *host = &hosts[h];
	const uint64_t q = host->came++;
	size_t size, at = piece((h + n_hosts - 1) % n_hosts, q, &size);

	if (q / messages_of_segment() < n_hosts - 1)
		for (size_t i = 0; i < size; i++)
			host->recv[at + i] =
			    (uint8_t)(host->recv[at + i] + host->scratch[q % DEPTH * CHUNK + i]);
	expect_next(h, q + DEPTH);
}

/* A message goes when the one a step before it has come, and when its receive is there: that is as
 * many behind as messages are under way. */
static bool send_next(unsigned int h)
{
	struct host *host = &hosts[h];
	const uint64_t q = host->sent;
	const struct host *next = &hosts[(h + 1) % n_hosts];
	size_t size, at;

	if (q >= messages() || q >= next->came + DEPTH || !ha_edge_has_room(&host->out) ||
	    (q >= messages_of_segment() && host->came <= q - messages_of_segment()))
		return false;
	at = piece(h, q, &size);
	check(ha_edge_send(&host->out,
			   &(struct ibv_sge){(uintptr_t)(host->recv + at), (uint32_t)size,
					     host->recv_mr->lkey},
			   1),
	      "no send");
	host->sent++;
	return true;
}

static bool ring_acts(void)
{
	bool moved, is_done = true;
	uint32_t size;

	do {
		moved = false;
		for (unsigned int i = 0; i < n_hosts; i++) {
			while (ha_edge_poll(&hosts[i].in, &size) == HA_EDGE_CAME)
				take(i);
			while (ha_edge_poll(&hosts[i].out, &size) == HA_EDGE_SENT)
				moved = true;
			while (send_next(i))
				moved = true;
		}
	} while (moved);
	for (unsigned int i = 0; i < n_hosts; i++)
		is_done &= hosts[i].came == messages();
	return is_done;
}

static void ring_all_reduce(void)
{
	for (unsigned int i = 0; i < n_hosts; i++) {
		memcpy(hosts[i].recv, hosts[i].send, bytes);
		hosts[i].sent = hosts[i].came = 0;
		for (uint64_t q = 0; q < DEPTH; q++)
			expect_next(i, q);
	}
	while (!ring_acts())
		check(sv_stepped_step(), "nothing happens any more");
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Of the busiest host's link. A switch has one for each host; on a ring a host has one. */
static void carried(uint64_t *out, uint64_t *in)
{
	*out = *in = 0;
	for (unsigned int h = 0; h < n_hosts; h++) {
		struct sv_stepped_link_stats link;

		sv_stepped_get_link_stats(h, 0, h, 0, &link);
		*out = link.bytes_out > *out ? link.bytes_out : *out;
		*in = link.bytes_in > *in ? link.bytes_in : *in;
	}
}

static const struct way {
	const char *name;
	unsigned int switches;
	void (*open)(void);
	void (*run)(void);
} ways[] = {{"switch", 1, one_level, all_reduce},
	    {"levels", 5, two_levels, all_reduce},
	    {"hosts", 1, mesh, all_reduce},
	    {"ring", 1, ring, ring_all_reduce},
	    {"beside", 1, beside_sleepers, all_reduce},
	    {"unsafe", 1, unsafe, all_reduce}};

static void add_rules(char *const *rules)
{
	char error[200];

	for (; *rules; rules++)
		if (sv_stepped_fault_add(*rules, error, sizeof(error)) < 0)
			fail(error);
}

/* How often the rule has acted that has acted least. */
static uint64_t rules_acted(char *const *rules)
{
	uint64_t least = *rules ? UINT64_MAX : 0, matched, acted;

	for (int id = 0; rules[id]; id++) {
		check(sv_stepped_fault_stats(id, &matched, &acted), "no such rule");
		least = acted < least ? acted : least;
	}
	return least;
}

static void measure(const struct way *way, unsigned int repeat, char *const *rules)
{
	uint64_t begun_ns, out, in;

	n_switches = way->switches;
	open_fabric();
	way->open();
	add_rules(rules);
	begun_ns = sv_stepped_now();
	for (unsigned int i = 0; i < repeat; i++)
		way->run();
	carried(&out, &in);
	expect_sums();
	printf("{\"way\": \"%s\", \"hosts\": %u, \"bytes\": %zu, \"ns\": %.0f, \"out\": %.0f, "
	       "\"in\": %.0f, \"faults\": %llu}\n",
	       way->name, n_hosts, bytes, (double)(sv_stepped_now() - begun_ns) / repeat,
	       (double)out / repeat, (double)in / repeat, (unsigned long long)rules_acted(rules));
	wake_others();
}

int main(int argc, char **argv)
{
	const unsigned int repeat = argc >= 5 ? (unsigned int)strtoul(argv[3], NULL, 10) : 0;

	n_hosts = argc >= 5 ? (unsigned int)strtoul(argv[1], NULL, 10) : 0;
	bytes = argc >= 5 ? strtoul(argv[2], NULL, 10) : 0;
	for (unsigned int i = 0; i < sizeof(ways) / sizeof(ways[0]) && n_hosts > 1; i++)
		if (n_hosts <= HOSTS && bytes > 0 && repeat > 0 &&
		    strcmp(argv[4], ways[i].name) == 0) {
			measure(&ways[i], repeat, argv + 5);
			return 0;
		}
	fprintf(
	    stderr,
	    "usage: inc-bench-stepped HOSTS BYTES REPEAT switch|levels|hosts|beside|ring|unsafe "
	    "[RULE...]\n");
	return 2;
}
