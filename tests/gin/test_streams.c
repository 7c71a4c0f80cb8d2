/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many streams of a group at a time on a stepped fabric, in virtual time: each rank is a host of
 * its own with two NICs and puts into the memory of each, itself included, and signals. What
 * streams go over is broken, in five ways in turn, while operations are under way, until all that
 * it hit have gone elsewhere and all that was begun has arrived; then it heals, and something else
 * is broken.
 *
 * Whoever sees a signal compares every byte that was put before it, and fills it anew: a write that
 * comes later is seen before that place is used again. Sums are exact, those of a word that all
 * ranks add to as well. At the end there are as many objects of the devices and descriptors as
 * before the first cut.
 *
 *     gin_streams [CUTS SIGNALS]
 */
#include "../transport/harness.h"

#include "../descriptors.h"
#include "../stepped_fabric.h"
#include "admin/drain.h"
#include "base/clock.h"
#include "failover/path_select.h"
#include "fakecuda.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_own.h"
#include "gin/verbs/group_peers.h"
#include "gin/verbs/group_post.h"
#include "instance/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS	  8u /* at most */
#define RAILS	  2u
#define SLOTS	  8u /* of a stream: operations whose memory is in use */
#define STRIDE	  2048u
#define DATA_MOST 1500u
#define WINDOW	  ((size_t)RANKS * SLOTS * STRIDE)
#define WORDS	  (RANKS + 1) /* of a rank: for each sender, and for all of them */
#define PATTERN	  8u	      /* of operations, which comes again and again; its last one is told */
#define CONSUMED  0xc0
#define POISON	  0xde
#define ROUNDS	  4 /* of a group, in a turn of its rank */
#define STEP_NS	  4000u
#define IDLE_NS	  100000u /* a step, while nothing is begun */
/* What ends say to each other goes over real sockets too, which on a busy machine are later than
 * the fabric's time. */
#define MOST_NS	   (20 * HA_NS_PER_S)
#define CONNECT_NS (120 * HA_NS_PER_S) /* of real time */
#define OUTAGE_MS  30000
/* From port to port, also across the rails, once a slot has had such a path. */
#define HEARTBEATS_MOST(n) ((n)*RAILS * (n)*RAILS)

struct rank {
	struct ha_instance *inst;
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_gin_group *group;
	uint8_t *window, *source, *signals; /* of the GPU: as the program has it */
	uint8_t *window_seen, *source_seen; /* ... as a kernel sees it */
	const uint64_t *words;
	struct ha_gin_memory *to, *from, *signal;
	uint64_t shared_told; /* of the word of all: what signals behind it have told of */
	uint64_t shared_seen;
};

/* From one rank to another. */
struct stream {
	uint64_t begun, complete, told;
	uint64_t sum;	  /* of the signals of its own word that were told */
	uint64_t signals; /* that were told, of both words */
	struct ha_gin_request *requests[SLOTS];
	uint32_t epoch; /* when something was cut */
	bool is_hit;	/* by that */
};

static struct world {
	uint32_t n; /* ranks */
	struct ha_config config;
	struct rank ranks[RANKS];
	struct stream streams[RANKS][RANKS]; /* from, to */
	uint64_t random;
	uint64_t allowed;    /* operations of each stream, from the beginning */
	uint64_t operations; /* ... from one cut to the next */
	uint64_t step_ns;
	uint64_t hits; /* streams that had to leave, of all cuts */
	unsigned int cuts, with_replays;
	char what[64]; /* is cut */
} w;

static unsigned int cuts = 12;
static uint64_t signals = 30000;

static unsigned int some(unsigned int below)
{
	w.random = w.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(w.random >> 33) % below;
}

/* ---- operations ------------------------------------------------------------------------------ */

static size_t size_of(uint64_t k)
{
	return 1 + k * 389 % DATA_MOST;
}

static uint32_t seed_of(uint32_t from, uint32_t to, uint64_t k)
{
	return (uint32_t)(from * 7919 + to * 104729 + k * 31 + 1);
}

/* One of the pattern is a put alone, and one signals in the word of all. */
static uint64_t addend_of(uint64_t k)
{
	return k % PATTERN == 2 ? 0 : 1 + k % 5;
}

static bool is_shared(uint64_t k)
{
	return k % PATTERN == 5;
}

/* In a window or source, of the operations that come from, or go to, a rank. */
static size_t place_of(uint32_t rank, uint64_t k)
{
	return (rank * SLOTS + (size_t)(k % SLOTS)) * STRIDE;
}

static bool is_all(const uint8_t *bytes, size_t size, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0;
}

static void begin_one(uint32_t from, uint32_t to)
{
	struct stream *s = &w.streams[from][to];
	struct rank *rank = &w.ranks[from];
	const uint64_t k = s->begun;
	struct ha_gin_put put = {.from = rank->from,
				 .to = rank->to,
				 .from_offset = place_of(to, k),
				 .to_offset = place_of(from, k),
				 .size = size_of(k)};

	if (!is_all(w.ranks[to].window_seen + put.to_offset, STRIDE, CONSUMED))
		fail_msg("%s: a write from %u to %u came late", w.what, from, to);
	fill(rank->source_seen + put.from_offset, put.size, seed_of(from, to, k));
	if (addend_of(k)) {
		put.signals = rank->signal;
		put.signal_offset = 8 * (is_shared(k) ? RANKS : from);
		put.addend = addend_of(k);
	}
	assert_int_equal(ha_gin_put(rank->group, to, &put, &s->requests[k % SLOTS]), HA_OK);
	s->begun++;
}

/* What is complete the application uses for something else. */
static void test_oldest(uint32_t from, uint32_t to)
{
	struct stream *s = &w.streams[from][to];
	int done = 1;

	while (done && s->complete < s->begun) {
		const uint64_t k = s->complete;

		assert_int_equal(ha_gin_test(w.ranks[from].group, s->requests[k % SLOTS], &done),
				 HA_OK);
		if (!done)
			return;
		memset(w.ranks[from].source_seen + place_of(to, k), POISON, size_of(k));
		s->complete++;
	}
}

/* ---- what a kernel sees ---------------------------------------------------------------------- */

static void is_told(uint32_t from, uint32_t to, uint64_t k)
{
	struct stream *s = &w.streams[from][to];
	uint8_t *at = w.ranks[to].window_seen + place_of(from, k);

	if (!filled(at, size_of(k), seed_of(from, to, k)) ||
	    (size_of(k) < STRIDE && !is_all(at + size_of(k), STRIDE - size_of(k), CONSUMED)))
		fail_msg("%s: a signal from %u to %u is there, and its put is not", w.what, from,
			 to);
	memset(at, CONSUMED, size_of(k));
	if (is_shared(k))
		w.ranks[to].shared_told += addend_of(k);
	s->signals += addend_of(k) != 0;
	s->told = k + 1;
}

/* Each value of a word is the sum of its signals up to one. */
static void look_at(uint32_t from, uint32_t to)
{
	struct stream *s = &w.streams[from][to];
	const uint64_t now = w.ranks[to].words[from];

	while (s->sum != now) {
		uint64_t k = s->told;

		while (k < s->begun && (!addend_of(k) || is_shared(k)))
			k++;
		if (k == s->begun || s->sum + addend_of(k) > now)
			fail_msg("%s: a word from %u to %u is %llu", w.what, from, to,
				 (unsigned long long)now);
		s->sum += addend_of(k);
		while (s->told <= k)
			is_told(from, to, s->told);
	}
}

/* What every rank adds to: never less than what later signals have told of. */
static void look_at_word_of_all(uint32_t to)
{
	struct rank *rank = &w.ranks[to];
	const uint64_t now = rank->words[RANKS];

	if (now < rank->shared_told || now < rank->shared_seen)
		fail_msg("%s: the word of all at %u is %llu, and was told to be %llu", w.what, to,
			 (unsigned long long)now, (unsigned long long)rank->shared_told);
	rank->shared_seen = now;
}

/* ---- who acts when --------------------------------------------------------------------------- */

static void application(uint32_t r)
{
	for (uint32_t i = 0; i < w.n; i++) {
		const struct stream *s = &w.streams[r][i];

		test_oldest(r, i);
		while (s->begun < w.allowed && s->begun - s->told < SLOTS &&
		       s->begun - s->complete < SLOTS)
			begin_one(r, i);
		look_at(i, r);
	}
	look_at_word_of_all(r);
}

static void rank_acts(uint32_t r)
{
	struct rank *rank = &w.ranks[r];

	sv_stepped_set_host(r);
	(void)ha_instance_progress(rank->inst);
	for (int i = 0; i < ROUNDS; i++)
		if (ha_gin_group_progress(rank->group) != HA_OK)
			fail_msg("%s: rank %u has an error; log:\n%s", w.what, r, captured_log);
	if (rank->words)
		application(r);
}

static void event(void)
{
	if (some(8) == 0)
		rank_acts(some(w.n));
	else
		stepped_goes_on(w.step_ns);
}

static void until(bool (*is_so)(void), const char *what)
{
	const uint64_t latest_ns = sv_stepped_now() + MOST_NS;

	while (!is_so()) {
		for (int i = 0; i < 64; i++)
			event();
		if (sv_stepped_now() > latest_ns)
			fail_msg("%s: not in time: %s; log:\n%s", w.what, what, captured_log);
	}
}

static void passes(unsigned int ms)
{
	const uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		event();
}

/* ---- streams --------------------------------------------------------------------------------- */

static struct ha_gin_sender *sender_of(uint32_t from, uint32_t to)
{
	return &w.ranks[from].group->peers[to].sender;
}

static struct ha_gin_receiver *receiver_of(uint32_t from, uint32_t to)
{
	return &w.ranks[to].group->peers[from].receiver;
}

static bool runs(uint32_t from, uint32_t to)
{
	return sender_of(from, to)->state == HA_GIN_SENDER_RUNS &&
	       receiver_of(from, to)->state == HA_GIN_RECEIVER_RUNS;
}

/* A stream runs, and its connection, which is what it follows, has a path in reserve at both ends.
 */
static bool is_protected(uint32_t from, uint32_t to)
{
	return runs(from, to) &&
	       ha_path_select_has_standby(w.ranks[from].group->peers[to].out.comm) &&
	       ha_path_select_has_standby(w.ranks[to].group->peers[from].in.comm);
}

static bool all_are_protected(void)
{
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			if (!is_protected(from, to))
				return false;
	return true;
}

static bool is_finished(uint32_t from, uint32_t to)
{
	const struct stream *s = &w.streams[from][to];

	return s->begun == w.allowed && s->complete == s->begun && s->told == s->begun;
}

static bool all_are_finished(void)
{
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			if (!is_finished(from, to))
				return false;
	return true;
}

static bool hit_have_left(void)
{
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++) {
			const struct stream *s = &w.streams[from][to];

			if (s->is_hit &&
			    (!runs(from, to) || sender_of(from, to)->epoch == s->epoch))
				return false;
		}
	return true;
}

static struct ha_gin_counts counts(void)
{
	struct ha_gin_counts sum = {0};

	for (uint32_t r = 0; r < w.n; r++) {
		struct ha_gin_counts one;

		ha_gin_group_counts(w.ranks[r].group, &one);
		sum.failovers += one.failovers;
		sum.replayed += one.replayed;
		sum.unproved += one.unproved;
	}
	return sum;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

enum kind {
	PORT,	 /* of one host */
	PORTS,	 /* of a rail, all of them */
	SILENCE, /* between the hosts, on a rail */
	ORDER,	 /* of a host's operator, who wants a port left alone */
	WEDGE,	 /* a queue pair takes what is posted and does nothing */
	KINDS
};

static struct {
	enum kind kind;
	uint32_t rail, host;
	uint32_t from, to; /* WEDGE: of this stream's sender */
} broken;

static unsigned int rail_of(const struct ha_gin_qp *qp)
{
	return (unsigned int)qp->port->index;
}

static bool ends_at(uint32_t from, uint32_t to, uint32_t host, uint32_t rail)
{
	return (from == host && rail_of(&sender_of(from, to)->qp) == rail) ||
	       (to == host && rail_of(&receiver_of(from, to)->qp) == rail);
}

static bool is_hit(uint32_t from, uint32_t to)
{
	const bool is_on_rail =
	    ends_at(from, to, from, broken.rail) || ends_at(from, to, to, broken.rail);

	switch (broken.kind) {
	case PORT:
	case ORDER:
		return ends_at(from, to, broken.host, broken.rail);
	case PORTS:
		return is_on_rail;
	case SILENCE:
		return is_on_rail && from != to;
	case WEDGE:
		return from == broken.from && to == broken.to;
	case KINDS:
		break;
	}
	return false;
}

/* The one that has most left to do. */
static void choose_stream(void)
{
	broken.from = broken.to = 0;
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			if (w.streams[from][to].told < w.streams[broken.from][broken.to].told) {
				broken.from = from;
				broken.to = to;
			}
}

/* Where most of the streams are that can be hit so. */
static uint32_t busiest_rail(void)
{
	unsigned int hit[RAILS] = {0};

	for (broken.rail = 0; broken.rail < RAILS; broken.rail++)
		for (uint32_t from = 0; from < w.n; from++)
			for (uint32_t to = 0; to < w.n; to++)
				hit[broken.rail] += is_hit(from, to);
	return hit[1] > hit[0];
}

static void note(void *moving, const struct ha_admin_result *verdict)
{
	*(unsigned int *)moving += verdict->outcome == HA_OUTCOME_MOVING;
}

static unsigned int order(const char *verb)
{
	struct ha_admin_request parsed;
	unsigned int moving = 0;
	const char *why;
	char text[64];

	snprintf(text, sizeof(text), "nccl-ha 1 %s port sim%u:1", verb, broken.rail);
	if (!ha_admin_request_parse(text, strlen(text), &parsed, &why))
		fail_msg("'%s': %s", text, why);
	sv_stepped_set_host(broken.host);
	assert_true(ha_admin_execute(w.ranks[broken.host].inst, &parsed, note, &moving));
	return moving;
}

static void breaks(void)
{
	const struct ha_gin_qp *qp = &sender_of(broken.from, broken.to)->qp;

	switch (broken.kind) {
	case PORT:
		sv_stepped_link(broken.host, broken.rail, false);
		return;
	case PORTS:
		for (uint32_t host = 0; host < w.n; host++)
			sv_stepped_link(host, broken.rail, false);
		return;
	case SILENCE:
		sv_stepped_cut(broken.rail, true);
		return;
	case ORDER:
		assert_true(order("failover") > 0);
		return;
	case WEDGE:
		assert_true(sv_stepped_wedge(broken.from, rail_of(qp), qp->qp->qp_num, false));
		return;
	case KINDS:
		return;
	}
}

static void heals(void)
{
	switch (broken.kind) {
	case PORT:
		sv_stepped_link(broken.host, broken.rail, true);
		return;
	case PORTS:
		for (uint32_t host = 0; host < w.n; host++)
			sv_stepped_link(host, broken.rail, true);
		return;
	case SILENCE:
		sv_stepped_cut(broken.rail, false);
		return;
	case ORDER:
		(void)order("failback");
		return;
	case WEDGE:
	case KINDS:
		return;
	}
}

static bool is_under_way(const struct stream *s)
{
	return s->told < s->begun;
}

static bool half_is_told(void)
{
	uint64_t to_come = 0;

	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			to_come += w.allowed - w.streams[from][to].told;
	return to_come <= w.n * w.n * w.operations / 2;
}

/* Half of what is allowed is still to come, and half of the streams that are hit have something
 * under way. */
static bool is_time(void)
{
	unsigned int hit = 0, under_way = 0;

	if (!half_is_told())
		return false;
	choose_stream();
	broken.rail = busiest_rail();
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			if (is_hit(from, to)) {
				hit++;
				under_way += is_under_way(&w.streams[from][to]);
			}
	return 2 * under_way >= hit;
}

static unsigned int mark_hit(void)
{
	unsigned int hit = 0;

	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++) {
			struct stream *s = &w.streams[from][to];

			s->epoch = sender_of(from, to)->epoch;
			s->is_hit = is_hit(from, to);
			hit += s->is_hit;
		}
	return hit;
}

/* Half of those that a kind may hit: it is broken where most of them are. */
static unsigned int least_hit(void)
{
	switch (broken.kind) {
	case PORT:
	case ORDER:
		return w.n;
	case PORTS:
	case SILENCE:
		return w.n * (w.n - 1) / 2;
	case WEDGE:
	case KINDS:
		break;
	}
	return 1;
}

/* What an order moved goes home when it ends, and a stream that was hit may move more than once:
 * until nothing has moved for a while. */
static void settles(void)
{
	uint64_t failovers;
	unsigned int rounds = 0;

	do {
		failovers = counts().failovers;
		passes(100);
		assert_true(rounds++ < 20);
	} while (counts().failovers != failovers);
}

static void cut(enum kind kind)
{
	static const char *const names[] = {"a port", "all ports", "silence", "an order",
					    "a queue pair"};
	struct ha_gin_counts before;
	unsigned int hit;

	snprintf(w.what, sizeof(w.what), "cut %u, %s", ++w.cuts, names[kind]);
	broken.kind = kind;
	broken.host = some(w.n);
	until(all_are_protected, "a path in reserve");
	w.step_ns = STEP_NS;
	w.allowed += w.operations;
	before = counts();
	until(is_time, "traffic");
	assert_int_equal(counts().failovers, before.failovers);
	hit = mark_hit();
	assert_true(hit >= least_hit());
	breaks();
	until(hit_have_left, "all that was hit is elsewhere");
	until(all_are_finished, "all that was begun has arrived");
	assert_true(counts().failovers >= before.failovers + hit);
	w.hits += hit;
	w.with_replays += counts().replayed != before.replayed;
	w.step_ns = IDLE_NS;
	heals();
	settles();
}

/* ---- the world ------------------------------------------------------------------------------- */

static void configure(bool is_e2e)
{
	struct pair pair;

	pair_init(&pair);
	w.config = pair.config;
	w.config.enable_backup = true;
	w.config.heartbeat_ms = 10;
	w.config.rto_ms = 40;
	w.config.qp_timeout = w.config.rc_timeout = 8;
	w.config.outage_ms = w.config.give_up_ms = OUTAGE_MS;
	w.config.completion = is_e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
}

static void open_rank(uint32_t r)
{
	const void *handles[RANKS];
	struct ha_gin_shape shape = {.inst = w.ranks[r].inst,
				     .rank = r,
				     .ranks = w.n,
				     .listen = w.ranks[r].listen,
				     .handles = handles};

	for (uint32_t i = 0; i < w.n; i++)
		handles[i] = w.ranks[i].handle;
	sv_stepped_set_host(r);
	assert_int_equal(ha_gin_group_open(&shape, &w.ranks[r].group), HA_OK);
}

static bool are_connected(void)
{
	for (uint32_t r = 0; r < w.n; r++)
		if (!ha_gin_group_is_connected(w.ranks[r].group))
			return false;
	return true;
}

static bool all_is_known(void)
{
	for (uint32_t r = 0; r < w.n; r++) {
		const struct rank *rank = &w.ranks[r];

		if (!ha_gin_is_known(rank->group, rank->to) ||
		    !ha_gin_is_known(rank->group, rank->from) ||
		    !ha_gin_is_known(rank->group, rank->signal))
			return false;
	}
	return true;
}

static struct ha_gin_memory *register_one(uint32_t r, uint8_t *at, size_t size, unsigned int flags)
{
	struct ha_gin_memory *memory;

	sv_stepped_set_host(r);
	assert_int_equal(
	    ha_gin_register(w.ranks[r].group, at, size, HA_MEM_CUDA, 0, -1, flags, &memory), HA_OK);
	return memory;
}

static void register_memory(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	uint8_t *words;

	rank->window = fakecuda_alloc(WINDOW);
	rank->window_seen = fakecuda_look(rank->window);
	rank->source = fakecuda_alloc(WINDOW);
	rank->source_seen = fakecuda_look(rank->source);
	rank->signals = fakecuda_alloc(WORDS * 8);
	words = fakecuda_look(rank->signals);
	rank->words = (const uint64_t *)(const void *)words;
	memset(rank->window_seen, CONSUMED, WINDOW);
	memset(words, 0, WORDS * 8);
	rank->to = register_one(r, rank->window, WINDOW, 0);
	rank->from = register_one(r, rank->source, WINDOW, 0);
	rank->signal = register_one(r, rank->signals, WORDS * 8, HA_GIN_STRICT);
}

static void begin(uint32_t n, bool is_e2e)
{
	const struct ha_instance_options options = {.config = &w.config, .no_threads = true};
	const struct sv_stepped_opts fabric = {.hosts = n, .rails = RAILS, .seed = 1, .gpu = true};
	const uint64_t give_up_ns = ha_real_ns() + CONNECT_NS;

	memset(&w, 0, sizeof(w));
	w.n = n;
	w.random = 1;
	w.step_ns = IDLE_NS;
	snprintf(w.what, sizeof(w.what), "the beginning");
	configure(is_e2e);
	if (sv_stepped_open_contexts() != 0)
		sv_stepped_destroy(); /* what a test that failed half way left */
	assert_int_equal(sv_stepped_open(&fabric), 0);
	ha_clock_set_source(sv_stepped_now);
	add_rule("gpu=reorder within=20us");
	for (uint32_t r = 0; r < n; r++) {
		struct rank *rank = &w.ranks[r];

		sv_stepped_set_host(r);
		assert_int_equal(ha_instance_open(&options, &rank->inst), HA_OK);
		assert_int_equal(ha_listen(rank->inst, 0, rank->handle, &rank->listen), HA_OK);
	}
	for (uint32_t r = 0; r < n; r++)
		open_rank(r);
	while (!are_connected() && ha_real_ns() < give_up_ns)
		event();
	if (!are_connected())
		fail_msg("not connected; log:\n%s", captured_log);
	for (uint32_t r = 0; r < n; r++)
		register_memory(r);
	until(all_is_known, "each knows the others' memory");
	until(all_are_protected, "a path in reserve");
}

static void end(void)
{
	for (uint32_t r = 0; r < w.n; r++) {
		struct rank *rank = &w.ranks[r];

		sv_stepped_set_host(r);
		ha_gin_group_close(rank->group);
		ha_close_listen(rank->listen);
		fakecuda_free(rank->window);
		fakecuda_free(rank->source);
		fakecuda_free(rank->signals);
	}
	for (uint32_t r = 0; r < w.n; r++)
		ha_instance_close(w.ranks[r].inst);
	ha_clock_set_source(NULL);
	assert_int_equal(sv_stepped_open_contexts(), 0);
	assert_int_equal(sv_stepped_close(), 0);
}

static struct sv_stepped_objects objects(void)
{
	struct sv_stepped_objects sum = {0};

	for (uint32_t host = 0; host < w.n; host++)
		for (uint32_t rail = 0; rail < RAILS; rail++)
			stepped_add_objects(&sum, host, rail);
	return sum;
}

/* What is late has come, and what was left is given back. */
static void rest(void)
{
	passes(1000);
	until(all_are_protected, "a path in reserve");
}

static uint64_t sums_are_exact(void)
{
	uint64_t all = 0;

	for (uint32_t to = 0; to < w.n; to++) {
		assert_int_equal(w.ranks[to].words[RANKS], w.ranks[to].shared_told);
		assert_true(is_all(w.ranks[to].window_seen, WINDOW, CONSUMED));
		for (uint32_t from = 0; from < w.n; from++) {
			const struct stream *s = &w.streams[from][to];

			assert_int_equal(w.ranks[to].words[from], s->sum);
			assert_true(s->told == w.allowed);
			all += s->signals;
		}
	}
	return all;
}

/* One of the pattern has no signal. Half of a share is more than what may be under way: a stream
 * that is broken then has something to post. */
static void share_operations(void)
{
	const uint64_t patterns = signals / (w.n * w.n * cuts * (PATTERN - 1)) + 1;

	w.operations = PATTERN * (patterns < 3 ? 3 : patterns);
}

static void say_what_happened(uint64_t all)
{
	const struct ha_gin_counts sum = counts();

	print_message("%u streams, %u cuts: %llu streams hit, %llu failovers, %llu operations "
		      "written again, in %u of the cuts; %llu signals, %llu ms\n",
		      w.n * w.n, w.cuts, (unsigned long long)w.hits,
		      (unsigned long long)sum.failovers, (unsigned long long)sum.replayed,
		      w.with_replays, (unsigned long long)all,
		      (unsigned long long)(sv_stepped_now() / HA_NS_PER_MS));
	assert_true(sum.failovers >= w.hits && sum.unproved == 0);
	/* Others hit what was counted, and not yet told. */
	assert_true(w.with_replays > w.cuts / 2);
}

static void nothing_is_left(const struct sv_stepped_objects *before, int descriptors)
{
	struct sv_stepped_objects after = objects();

	print_message("%u queue pairs, %u registrations, %u address handles, before %u, %u, %u\n",
		      after.qps, after.mrs, after.ahs, before->qps, before->mrs, before->ahs);
	assert_in_range(after.ahs, 0, HEARTBEATS_MOST(w.n));
	after.ahs = before->ahs;
	assert_memory_equal(&after, before, sizeof(after));
	assert_int_equal(open_descriptors(), descriptors);
}

static void streams_of_ranks(uint32_t n, bool is_e2e)
{
	struct sv_stepped_objects before;
	uint64_t all;
	int descriptors;

	begin(n, is_e2e);
	share_operations();
	/* What is made when a NIC is used for the first time stays. */
	for (unsigned int rail = 0; rail < RAILS; rail++)
		cut(PORTS);
	rest();
	before = objects();
	descriptors = open_descriptors();
	for (unsigned int number = 0; number < cuts; number++)
		cut((enum kind)(number % KINDS));
	snprintf(w.what, sizeof(w.what), "the end");
	rest();
	all = sums_are_exact();
	assert_true(all >= signals);
	say_what_happened(all);
	nothing_is_left(&before, descriptors);
	end();
}

static void sums_of_64_streams_are_exact_over_many_cuts(void **state)
{
	(void)state;
	streams_of_ranks(RANKS, false);
}

static void sums_of_four_ranks_are_exact_over_many_cuts_end_to_end(void **state)
{
	(void)state;
	streams_of_ranks(4, true);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_of_64_streams_are_exact_over_many_cuts),
	    cmocka_unit_test(sums_of_four_ranks_are_exact_over_many_cuts_end_to_end),
	};

	if (argc > 2) {
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
		signals = strtoull(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests_name("gin_streams", tests, NULL, NULL);
}
