/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ranks of a group on a stepped fabric with two rails, each an instance of its own as in two
 * processes, and four of which each two have one: puts and signals from each to each, itself
 * included, and what becomes of them when something fails at an event of the run. Data and signal
 * words are in the memory of GPUs that are stand-ins, into which NICs write late.
 *
 * A kernel watches the words: whatever a signal tells it of must be there, and is filled anew; a
 * write that comes later is seen at the end, and so is a sum that is not exact.
 */
#include "../transport/harness.h"

#include "../descriptors.h"
#include "base/clock.h"
#include "fakecuda.h"
#include "gin/verbs/channel.h"
#include "gin/verbs/group.h"
#include "gin/verbs/group_memory.h"
#include "gin/verbs/group_peers.h"
#include "gin/verbs/group_post.h"
#include "memory/mr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS	   4u  /* at most */
#define OPS	   72u /* more than a receiver has rows for */
#define ROOM	   8u  /* under way to a rank at a time */
#define DATA	   3000u
#define STRIDE	   4096u
#define WINDOW	   ((size_t)RANKS * OPS * STRIDE)
#define WORDS	   2u
#define CONSUMED   0xc0
#define POISON	   0xde
#define EACH_ROUND 40
#define STEPS	   5000 /* of a run, at most */
#define OUTAGE_MS  2000

struct rank {
	struct ha_listen *listen;
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_gin_group *group;
	uint8_t *window, *window_seen; /* of the GPU: as the program has it, as a kernel sees it */
	uint8_t *source, *source_seen;
	uint8_t *signals;
	uint64_t *words; /* as a kernel sees them: WORDS from each rank */
	struct ha_gin_memory *to, *from, *signal;
};

/* Operations from one rank to another, as both have them. */
struct flow {
	unsigned int begun, complete, told;
	struct ha_gin_request *requests[OPS];
};

static struct world {
	uint32_t n; /* ranks, on two hosts in turn */
	struct pair pair;
	struct rank ranks[RANKS];
	struct flow flows[RANKS][RANKS]; /* from, to */
	ha_result_t error;
	bool is_paused; /* nothing is begun */
	bool is_single; /* one operation at a time, and to one rank only */
	uint32_t to;	/* that one, by another one */
	bool nic_dies; /* what it has acknowledged, and not placed, is lost: counted, or an error */
	char what[64]; /* fails, and when */
} w;

static unsigned int seed_of(uint32_t from, uint32_t to, unsigned int k)
{
	return from * 1000 + to * 100 + k + 1;
}

static uint64_t addend_of(unsigned int k)
{
	return k % 4 == 3 ? 0 : k + 1; /* each fourth is a put alone */
}

static unsigned int word_of(unsigned int k)
{
	return k % 3 == 2;
}

/* From a rank: where its k-th put lies in the window of the one that it goes to. */
static size_t place_of(uint32_t from, unsigned int k)
{
	return (size_t)(from * OPS + k) * STRIDE;
}

/* ---- both ranks ----------------------------------------------------------------------------- */

static void progress(void)
{
	for (uint32_t r = 0; r < w.n; r++) {
		ha_result_t result;

		if (!w.ranks[r].group)
			continue;
		sv_stepped_set_host(r % 2);
		result = ha_gin_group_progress(w.ranks[r].group);
		if (w.error == HA_OK)
			w.error = result;
	}
}

/* Between two events nothing is left that could be done. */
static void turn(void)
{
	for (int i = 0; i < EACH_ROUND; i++)
		progress();
	pair_settle(&w.pair);
}

static void open_rank(uint32_t r)
{
	struct rank *rank = &w.ranks[r];
	const void *handles[RANKS];
	struct ha_gin_shape shape = {.inst = w.pair.inst[r % 2],
				     .rank = r,
				     .ranks = w.n,
				     .listen = rank->listen,
				     .handles = handles};

	for (uint32_t i = 0; i < w.n; i++)
		handles[i] = w.ranks[i].handle;
	sv_stepped_set_host(r % 2);
	assert_int_equal(ha_gin_group_open(&shape, &rank->group), HA_OK);
}

static bool are_connected(void)
{
	bool are = true;

	for (uint32_t r = 0; r < w.n; r++)
		are &= ha_gin_group_is_connected(w.ranks[r].group);
	return are;
}

static void connect_ranks(void)
{
	const uint64_t give_up_ns = ha_real_ns() + 20 * HA_NS_PER_S;

	for (uint32_t r = 0; r < w.n; r++) {
		sv_stepped_set_host(r % 2);
		assert_int_equal(
		    ha_listen(w.pair.inst[r % 2], 0, w.ranks[r].handle, &w.ranks[r].listen), HA_OK);
	}
	for (uint32_t r = 0; r < w.n; r++)
		open_rank(r);
	while (!are_connected() && w.error == HA_OK && ha_real_ns() < give_up_ns) {
		progress();
		pair_step(&w.pair);
	}
	if (!are_connected())
		fail_msg("not connected: %d; log:\n%s", w.error, captured_log);
}

/* Of words of signals, whether nobody sets them to zero; in all runs of a test. */
static bool never_reset;

static struct ha_gin_memory *register_one(uint32_t r, uint8_t *at, size_t size, bool is_signals)
{
	struct ha_gin_memory *memory;

	sv_stepped_set_host(r % 2);
	assert_int_equal(
	    ha_gin_register(w.ranks[r].group, at, size, HA_MEM_CUDA, 0, -1,
			    is_signals ? HA_GIN_STRICT | (never_reset ? HA_GIN_NEVER_RESET : 0) : 0,
			    &memory),
	    HA_OK);
	return memory;
}

static bool all_are_known(void)
{
	bool are = true;

	for (uint32_t r = 0; r < w.n; r++) {
		const struct rank *rank = &w.ranks[r];

		are &= ha_gin_is_known(rank->group, rank->to) &&
		       ha_gin_is_known(rank->group, rank->from) &&
		       ha_gin_is_known(rank->group, rank->signal);
	}
	return are;
}

static void register_memory(void)
{
	for (uint32_t r = 0; r < w.n; r++) {
		struct rank *rank = &w.ranks[r];

		rank->window = fakecuda_alloc(WINDOW);
		rank->window_seen = fakecuda_look(rank->window);
		rank->source = fakecuda_alloc(WINDOW);
		rank->source_seen = fakecuda_look(rank->source);
		rank->signals = fakecuda_alloc(RANKS * WORDS * 8);
		rank->words = (uint64_t *)(void *)fakecuda_look(rank->signals);
		memset(rank->window_seen, CANARY, WINDOW);
		memset(rank->words, 0, RANKS * WORDS * 8);
		for (uint32_t to = 0; to < w.n; to++)
			for (unsigned int k = 0; k < OPS; k++)
				fill(rank->source_seen + place_of(to, k), DATA, seed_of(r, to, k));
		rank->to = register_one(r, rank->window, WINDOW, false);
		rank->from = register_one(r, rank->source, WINDOW, false);
		rank->signal = register_one(r, rank->signals, RANKS * WORDS * 8, true);
	}
	for (int i = 0; i < 10000 && !all_are_known(); i++) {
		progress();
		pair_step(&w.pair);
	}
	assert_true(all_are_known());
}

static void setup_ranks(uint32_t n, bool is_e2e)
{
	uint64_t until_ns;

	memset(&w, 0, sizeof(w));
	w.n = n;
	pair_init(&w.pair);
	w.pair.config.enable_backup = true;
	w.pair.config.heartbeat_ms = 10;
	w.pair.config.rto_ms = 40;
	w.pair.config.qp_timeout = w.pair.config.rc_timeout = 8;
	w.pair.config.outage_ms = w.pair.config.give_up_ms = OUTAGE_MS;
	w.pair.config.completion = is_e2e ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	w.pair.fabric.rails = 2;
	w.pair.fabric.gpu = true;
	pair_open(&w.pair);
	add_rule("gpu=reorder within=20us");
	connect_ranks();
	register_memory();
	/* Paths in reserve are made in the meantime. */
	until_ns = sv_stepped_now() + 100 * HA_NS_PER_MS;
	while (sv_stepped_now() < until_ns) {
		turn();
		pair_advance(&w.pair);
	}
}

static void setup(bool is_e2e)
{
	setup_ranks(2, is_e2e);
}

static void close_ranks(void)
{
	for (uint32_t r = 0; r < w.n; r++) {
		struct rank *rank = &w.ranks[r];

		sv_stepped_set_host(r % 2);
		ha_gin_group_close(rank->group);
		ha_close_listen(rank->listen);
		fakecuda_free(rank->window);
		fakecuda_free(rank->source);
		fakecuda_free(rank->signals);
	}
}

static void teardown(void)
{
	close_ranks();
	pair_close(&w.pair);
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
		sum.loopbacks += one.loopbacks;
		sum.written += one.written;
	}
	return sum;
}

/* ---- what the application does -------------------------------------------------------------- */

static void begin(uint32_t from, uint32_t to)
{
	struct flow *flow = &w.flows[from][to];
	struct rank *rank = &w.ranks[from];
	const unsigned int k = flow->begun;
	struct ha_gin_put put = {
	    .from = rank->from,
	    .to = rank->to,
	    .from_offset = place_of(to, k),
	    .to_offset = place_of(from, k),
	    .size = DATA,
	};

	if (addend_of(k)) {
		put.signals = rank->signal;
		put.signal_offset = 8 * (from * WORDS + word_of(k));
		put.addend = addend_of(k);
	}
	sv_stepped_set_host(from % 2);
	if (ha_gin_put(rank->group, to, &put, &flow->requests[k]) == HA_OK)
		flow->begun++;
}

/* Memory of a request that is complete is the application's again. */
static void test_oldest(uint32_t from, uint32_t to)
{
	struct flow *flow = &w.flows[from][to];
	int done = 1;

	sv_stepped_set_host(from % 2);
	while (done && flow->complete < flow->begun) {
		if (ha_gin_test(w.ranks[from].group, flow->requests[flow->complete], &done) !=
		    HA_OK)
			return;
		if (done)
			memset(w.ranks[from].source_seen + place_of(to, flow->complete++), POISON,
			       DATA);
	}
}

static const uint8_t *target(uint32_t from, uint32_t to, unsigned int k)
{
	return w.ranks[to].window_seen + place_of(from, k);
}

static void is_told(uint32_t from, uint32_t to, unsigned int upto)
{
	struct flow *flow = &w.flows[from][to];

	for (; flow->told <= upto; flow->told++) {
		if (!filled(target(from, to, flow->told), DATA, seed_of(from, to, flow->told)) &&
		    !counts().unproved)
			fail_msg("%s: torn: %u from %u to %u", w.what, flow->told, from, to);
		memset(w.ranks[to].window_seen + place_of(from, flow->told), CONSUMED, DATA);
	}
}

/* Each value of a word is the sum of its signals up to one. */
static void kernel_looks(uint32_t from, uint32_t to)
{
	for (unsigned int word = 0; word < WORDS; word++) {
		const uint64_t now = w.ranks[to].words[from * WORDS + word];
		uint64_t sum = 0;

		for (unsigned int k = 0; k < OPS && sum < now; k++) {
			if (!addend_of(k) || word_of(k) != word)
				continue;
			sum += addend_of(k);
			if (sum == now && k >= w.flows[from][to].told)
				is_told(from, to, k);
		}
		if (sum != now)
			fail_msg("%s: a word from %u to %u is %u", w.what, from, to,
				 (unsigned int)now);
	}
}

static uint64_t sum_of(unsigned int word)
{
	uint64_t sum = 0;

	for (unsigned int k = 0; k < OPS; k++)
		sum += word_of(k) == word ? addend_of(k) : 0;
	return sum;
}

static bool is_finished(uint32_t from, uint32_t to)
{
	const uint64_t *words = w.ranks[to].words;
	bool is = w.flows[from][to].complete == OPS;

	for (unsigned int word = 0; word < WORDS; word++)
		is &= words[from * WORDS + word] == sum_of(word);
	return is;
}

static bool all_are_finished(void)
{
	bool are = true;

	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			are &= is_finished(from, to);
	return are;
}

static bool may_begin(uint32_t from, uint32_t to)
{
	const struct flow *flow = &w.flows[from][to];

	if (flow->begun == OPS || w.error != HA_OK || w.is_paused)
		return false;
	if (w.is_single)
		return from != to && to == w.to && flow->begun == flow->complete;
	return flow->begun - flow->complete < ROOM;
}

static void application(void)
{
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++) {
			test_oldest(from, to);
			if (may_begin(from, to))
				begin(from, to);
			kernel_looks(from, to);
		}
}

/* A step of the whole: false when everything has arrived, or a rank has an error. */
static bool go_on(void)
{
	application();
	turn();
	pair_advance(&w.pair);
	return w.error == HA_OK && !all_are_finished();
}

/* After what is late has come: no byte is wrong, and none was written again. */
static void everything_is_right(void)
{
	pair_pass(&w.pair, 50);
	application();
	for (uint32_t from = 0; from < w.n; from++)
		for (uint32_t to = 0; to < w.n; to++)
			for (unsigned int k = 0; k < OPS; k++) {
				const uint8_t *at = target(from, to, k);

				if (k >= w.flows[from][to].told) {
					assert_true(filled(at, DATA, seed_of(from, to, k)) ||
						    w.nic_dies);
				} else {
					for (unsigned int i = 0; i < DATA; i++)
						if (at[i] != CONSUMED)
							fail_msg("%s: late: %u from %u to %u",
								 w.what, k, from, to);
				}
				for (unsigned int i = DATA; i < STRIDE; i++)
					assert_int_equal(at[i], CANARY);
			}
}

/* ---- tests ---------------------------------------------------------------------------------- */

enum fault {
	NOTHING,
	PORT_OF_0,
	PORT_OF_1,
	CUT,
	NO_WAY_BACK, /* what 0 sends arrives, and nothing comes back: no acknowledgement */
	NO_WAY_THERE,
	NIC_OF_0,
	NIC_OF_1,
	FAULTS
};

static void happens(enum fault fault)
{
	switch (fault) {
	case PORT_OF_0:
		sv_stepped_link(0, 0, false);
		return;
	case PORT_OF_1:
		sv_stepped_link(1, 0, false);
		return;
	case CUT:
		sv_stepped_cut(0, true);
		return;
	case NO_WAY_BACK:
		sv_stepped_block(1, 0, 0, 0, true);
		return;
	case NO_WAY_THERE:
		sv_stepped_block(0, 0, 1, 0, true);
		return;
	case NIC_OF_0:
		sv_stepped_kill(0, 0);
		return;
	case NIC_OF_1:
		sv_stepped_kill(1, 0);
		return;
	case NOTHING:
	case FAULTS:
		return;
	}
}

/* In all runs of a test. */
static struct ha_gin_counts seen;
static unsigned int runs, errors;

/* Fails at that step of the run. False: all had arrived before. */
static bool run(enum fault fault, unsigned int step)
{
	bool has_fired = false;
	unsigned int i;

	setup(false);
	w.nic_dies = fault == NIC_OF_0 || fault == NIC_OF_1;
	snprintf(w.what, sizeof(w.what), "fault %d at step %u", (int)fault, step);
	for (i = 0; i < STEPS && go_on(); i++)
		if (i == step) {
			happens(fault);
			has_fired = true;
		}
	if (w.error == HA_OK) {
		if (!all_are_finished())
			fail_msg("%s: not finished", w.what);
		everything_is_right();
	} else if (!w.nic_dies) {
		fail_msg("%s: error %d; log:\n%s", w.what, w.error, captured_log);
	}
	assert_true(w.nic_dies || counts().unproved == 0);
	errors += w.error != HA_OK;
	seen.failovers += counts().failovers;
	seen.replayed += counts().replayed;
	seen.unproved += counts().unproved;
	seen.loopbacks += counts().loopbacks;
	seen.written += counts().written;
	runs++;
	teardown();
	return has_fired;
}

static void puts_and_signals_arrive_between_all_ranks(void **state)
{
	(void)state;
	run(NOTHING, 0);
	assert_int_equal(errors, 0);
	assert_int_equal(seen.failovers, 0);
	assert_int_equal(seen.loopbacks, 0);
}

#define QPNS 4096u

/* The n-th connected queue pair of a device takes posts and does nothing any more. False: it has
 * not as many. */
static bool wedge(uint32_t host, unsigned int n)
{
	for (uint32_t qpn = 1; qpn < QPNS; qpn++) {
		if (sv_stepped_leg_of(host, 0, qpn) < 0 || n-- > 0)
			continue;
		assert_true(sv_stepped_wedge(host, 0, qpn, false));
		return true;
	}
	return false;
}

/* A stream's, a loopback, or a connection's. */
static void whichever_queue_pair_says_nothing_each_signal_counts_once(void **state)
{
	unsigned int wedged = 0, host;
	bool has_fired;

	(void)state;
	memset(&seen, 0, sizeof(seen));
	for (host = 0; host < 2; host++)
		for (unsigned int n = 0, more = 1; more; n++) {
			setup(false);
			has_fired = false;
			snprintf(w.what, sizeof(w.what), "queue pair %u of host %u", n, host);
			for (unsigned int i = 0; i < 2 * STEPS && go_on(); i++) {
				w.is_paused = i >= 100 && i < 400;
				if (i ==
				    399) /* nothing is under way that the other end would miss */
					has_fired = wedge(host, n);
			}
			if (w.error != HA_OK || !all_are_finished())
				fail_msg("%s: error %d; log:\n%s", w.what, w.error, captured_log);
			everything_is_right();
			seen.failovers += counts().failovers;
			seen.loopbacks += counts().loopbacks;
			wedged += has_fired;
			more = has_fired;
			teardown();
		}
	print_message("%u wedged: %u failovers, %u loopbacks\n", wedged,
		      (unsigned int)seen.failovers, (unsigned int)seen.loopbacks);
	assert_true(wedged > 4 && seen.failovers && seen.loopbacks);
}

/* Its sender has all acknowledgements, and waits; the heartbeats of the path are answered. */
static void what_a_receiver_has_applied_and_cannot_say_is_missed(void **state)
{
	uint64_t until_ns;
	char rule[64];

	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		setup(true);
		snprintf(w.what, sizeof(w.what), "what rank %u has applied", host);
		w.is_single = true;
		w.to = host;
		snprintf(rule, sizeof(rule), "wedge host=%u rail=0 op=write count=1", host);
		for (unsigned int i = 0; i < 100; i++)
			assert_true(go_on());
		add_rule(rule);
		until_ns = sv_stepped_now() + HA_NS_PER_S;
		while (sv_stepped_now() < until_ns && !is_finished(1 - host, host) && go_on())
			;
		if (!is_finished(1 - host, host))
			fail_msg("%s: %u of %u, error %d; log:\n%s", w.what,
				 w.flows[1 - host][host].complete, OPS, w.error, captured_log);
		assert_int_equal(counts().failovers, 1);
		assert_non_null(strstr(captured_log, "GIN: from rank"));
		assert_non_null(strstr(captured_log, "the queue pair on sim0:1 failed: no "
						     "completion for as long as HA_NCCL_RTO_MS"));
		w.is_single = false;
		for (unsigned int i = 0; i < STEPS && go_on(); i++)
			;
		assert_true(all_are_finished());
		everything_is_right();
		teardown();
	}
}

static void four_ranks_on_two_hosts_outlive_a_port(void **state)
{
	(void)state;
	setup_ranks(4, false);
	snprintf(w.what, sizeof(w.what), "four ranks");
	for (unsigned int i = 0; i < 8 * STEPS && go_on(); i++)
		if (i == 100)
			sv_stepped_link(1, 0, false);
	if (!all_are_finished())
		fail_msg("not finished: error %d, %u failovers; log:\n%s", w.error,
			 (unsigned int)counts().failovers, captured_log);
	everything_is_right();
	/* Each stream has an end at that port, but for those within the other host. */
	assert_int_equal(counts().failovers, 12);
	teardown();
}

/* Steps from one failure to the next. */
static unsigned int stride = 1500;

static void whatever_fails_at_whatever_step_each_signal_counts_once(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	errors = runs = 0;
	for (enum fault fault = PORT_OF_0; fault < FAULTS; fault++) {
		unsigned int step = fault; /* another one for each */

		while (run(fault, step))
			step += stride;
	}
	print_message("%u runs: %u failovers, %u replayed, %u loopbacks failed, %u NICs with data "
		      "not proved, %u errors\n",
		      runs, (unsigned int)seen.failovers, (unsigned int)seen.replayed,
		      (unsigned int)seen.loopbacks, (unsigned int)seen.unproved, errors);
	assert_true(seen.failovers && seen.replayed && seen.loopbacks);
}

/* A NIC that dies while it adds is no error: the word is written. */
static void words_that_are_never_set_to_zero_are_never_doubted(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	errors = runs = 0;
	never_reset = true;
	for (enum fault fault = NIC_OF_0; fault <= NIC_OF_1; fault++)
		for (unsigned int step = fault; run(fault, step); step += 1 + stride / 3)
			assert_null(strstr(captured_log, "whether it was added"));
	never_reset = false;
	print_message("%u runs: %u failovers, %u loopbacks failed, %u words set, %u errors\n", runs,
		      (unsigned int)seen.failovers, (unsigned int)seen.loopbacks,
		      (unsigned int)seen.written, errors);
	assert_true(seen.loopbacks > 0 && seen.written > 0);
}

static void look_and_advance(void)
{
	kernel_looks(0, 1);
	turn();
	pair_advance(&w.pair);
}

/* A flow of few operations at a time goes from rail to rail, each of which is mended meanwhile.
 * What ends say to each other goes over real sockets, which on a busy machine are later than the
 * fabric's time. */
static void from_rail_to_rail_and_back_nothing_is_lost(void **state)
{
	uint64_t before, until_ns;

	(void)state;
	setup(false);
	snprintf(w.what, sizeof(w.what), "from rail to rail");
	for (uint32_t cuts = 0; cuts < 6; cuts++) {
		before = counts().failovers;
		for (int i = 0; i < 6; i++)
			application();
		sv_stepped_cut(cuts % 2, true);
		sv_stepped_cut(1 - cuts % 2, false);
		until_ns = sv_stepped_now() + 20 * HA_NS_PER_S;
		while (counts().failovers == before && sv_stepped_now() < until_ns)
			look_and_advance();
		until_ns = sv_stepped_now() + HA_NS_PER_S; /* paths in reserve are there again */
		while (sv_stepped_now() < until_ns)
			look_and_advance();
		assert_int_equal(w.error, HA_OK);
		if (counts().failovers == before)
			fail_msg("cut %u moved nothing; log:\n%s", cuts, captured_log);
	}
	for (int i = 0; i < STEPS && go_on(); i++)
		;
	assert_true(all_are_finished());
	everything_is_right();
	teardown();
}

static void end_to_end_requests_wait_for_the_receiver(void **state)
{
	(void)state;
	setup(true);
	snprintf(w.what, sizeof(w.what), "end to end");
	for (int i = 0; i < STEPS && go_on(); i++) {
		if (i == 20)
			sv_stepped_link(1, 0, false);
		for (uint32_t from = 0; from < w.n; from++) /* what is complete is there */
			for (unsigned int k = 0; k < w.flows[from][1].complete; k++)
				assert_true(k < w.flows[from][1].told || !addend_of(k));
	}
	assert_true(all_are_finished());
	everything_is_right();
	assert_true(counts().failovers > 0);
	teardown();
}

/* Both ranks, though one has nothing to send. */
static void without_a_path_there_is_an_error_in_time(void **state)
{
	struct ha_gin_put put = {0};
	struct ha_gin_request *request;
	uint64_t since_ns, latched_ns;
	int done;

	(void)state;
	setup(false);
	application();
	application();
	sv_stepped_cut(0, true);
	sv_stepped_cut(1, true);
	since_ns = sv_stepped_now();
	put.signals = w.ranks[0].signal;
	put.addend = 1;
	sv_stepped_set_host(0);
	assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &put, &request), HA_OK);
	while (w.error == HA_OK && sv_stepped_now() - since_ns < 10 * HA_NS_PER_S) {
		turn();
		pair_advance(&w.pair);
	}
	assert_true(w.error != HA_OK);
	latched_ns = sv_stepped_now() - since_ns;
	print_message("latched after %.1f ms\n", (double)latched_ns / 1e6);
	assert_in_range(latched_ns, OUTAGE_MS * HA_NS_PER_MS, OUTAGE_MS * HA_NS_PER_MS * 11 / 10);
	for (int ms = 0; ms < 1000; ms++) {
		turn();
		pair_advance(&w.pair);
	}
	for (uint32_t r = 0; r < w.n; r++)
		assert_int_not_equal(ha_gin_group_progress(w.ranks[r].group), HA_OK);
	assert_int_not_equal(ha_gin_test(w.ranks[0].group, request, &done), HA_OK);
	assert_false(done);
	assert_int_not_equal(ha_gin_put(w.ranks[0].group, 1, &put, &request), HA_OK);
	assert_null(request);
	teardown();
}

/* Until a rank has an error, which says this; not before the time that an outage may last, and not
 * much later. */
static void there_is_an_error_in_time(const char *says)
{
	const uint64_t since_ns = sv_stepped_now();
	uint64_t took_ns;

	while (go_on() && sv_stepped_now() - since_ns < 2 * OUTAGE_MS * HA_NS_PER_MS)
		;
	took_ns = sv_stepped_now() - since_ns;
	print_message("%s: error %d after %.1f ms\n", w.what, w.error, (double)took_ns / 1e6);
	if (w.error == HA_OK || !strstr(captured_log, says))
		fail_msg("%s: error %d; log:\n%s", w.what, w.error, captured_log);
	assert_in_range(took_ns, OUTAGE_MS * HA_NS_PER_MS, OUTAGE_MS * HA_NS_PER_MS * 11 / 10);
}

/* A few operations from 0 to 1 are through, and then there is a rule of a fault. */
static int begin_to_fail(const char *what, const char *rule)
{
	setup(false);
	snprintf(w.what, sizeof(w.what), "%s", what);
	w.is_single = true;
	w.to = 1;
	for (unsigned int i = 0; i < 100; i++)
		assert_true(go_on());
	return add_rule(rule);
}

static void finish_all(void)
{
	w.is_single = false;
	for (unsigned int i = 0; i < STEPS && go_on(); i++)
		;
	assert_true(all_are_finished());
	everything_is_right();
}

/* Its heartbeats, and what the ends say to each other, come through. */
#define BLACK_HOLE "drop host=0 peer=1 op=write minlen=1000"

static void a_path_that_carries_no_puts_is_left_though_it_is_alive(void **state)
{
	int rule;

	(void)state;
	rule = begin_to_fail("one rail is a black hole", BLACK_HOLE " rail=0");
	for (unsigned int i = 0; i < STEPS && !is_finished(0, 1) && go_on(); i++)
		;
	if (!is_finished(0, 1))
		fail_msg("%s: %u of %u, error %d; log:\n%s", w.what, w.flows[0][1].complete, OPS,
			 w.error, captured_log);
	assert_true(fired(rule) > 0);
	assert_non_null(strstr(captured_log, "puts do not come through"));
	assert_int_equal(counts().failovers, 2);
	finish_all();
	teardown();
}

/* One failure of another path, and one there. */
static void a_path_is_kept_when_one_queue_pair_of_it_fails(void **state)
{
	int rule, hole;

	(void)state;
	rule = begin_to_fail("the other rail's first one fails",
			     "wedge host=0 peer=1 rail=1 op=write minlen=1000 count=1");
	hole = add_rule(BLACK_HOLE " rail=0");
	while (!fired(hole))
		assert_true(go_on());
	sv_stepped_cut(0, true);
	for (unsigned int i = 0; i < 2 * STEPS && !is_finished(0, 1) && go_on(); i++)
		;
	assert_int_equal(fired(rule), 1);
	assert_true(is_finished(0, 1));
	assert_null(strstr(captured_log, "puts do not come through"));
	finish_all();
	teardown();
}

static void where_no_path_carries_puts_there_is_an_error_in_time(void **state)
{
	int rule;

	(void)state;
	rule = begin_to_fail("both rails are black holes", BLACK_HOLE);
	there_is_an_error_in_time("GIN: to rank 1: no path for");
	assert_true(fired(rule) > 2);
	assert_true(counts().failovers > 2);
	teardown();
}

/* Whatever loopback there is takes what it is told to do, and does not do it. */
static void signals_that_no_nic_adds_are_an_error_in_time(void **state)
{
	int rule;

	(void)state;
	rule = begin_to_fail("loopbacks that say nothing", "wedge host=1 op=atomic count=100000");
	there_is_an_error_in_time("GIN: from rank 0: a signal could not be added for");
	assert_true(fired(rule) > 2);
	assert_int_equal(counts().failovers, 0);
	teardown();
}

static void a_flush_that_no_nic_does_is_an_error_in_time(void **state)
{
	struct ha_gin_request *requests[2];
	struct ha_gin_get get;
	int rule;

	(void)state;
	rule = begin_to_fail("a flush", "wedge host=0 peer=0 op=read count=100000");
	w.is_paused = true;
	get = (struct ha_gin_get){.from = w.ranks[0].from, .to = w.ranks[0].to, .size = DATA};
	sv_stepped_set_host(0);
	assert_int_equal(ha_gin_get(w.ranks[0].group, 1, &get, &requests[0]), HA_OK);
	assert_int_equal(ha_gin_flush(w.ranks[0].group, 1, &requests[1]), HA_OK);
	there_is_an_error_in_time("GIN: to rank 1: nothing could be posted for");
	assert_true(fired(rule) > 2);
	teardown();
}

/* The program's mistake: no path has a key for it. */
static void a_put_to_memory_that_is_given_back_is_an_error_in_time(void **state)
{
	(void)state;
	(void)begin_to_fail("memory that is given back", "drop host=0 peer=1 rail=0 op=write");
	w.is_paused = true;
	begin(0, 1);
	sv_stepped_set_host(1);
	ha_gin_deregister(w.ranks[1].group, w.ranks[1].to);
	there_is_an_error_in_time("GIN: to rank 1: nothing could be posted for");
	teardown();
}

static void is_refused(const struct ha_gin_put *put, uint32_t rank, const char *why)
{
	struct ha_gin_request *request;

	capture_log();
	assert_int_equal(ha_gin_put(w.ranks[0].group, rank, put, &request), HA_ERR_ARGUMENT);
	assert_null(request);
	if (!strstr(captured_log, why))
		fail_msg("not said: %s, but: %s", why, captured_log);
}

static void what_cannot_be_is_refused_and_changes_nothing(void **state)
{
	struct rank *rank = &w.ranks[0];
	struct ha_gin_put good, put;

	(void)state;
	setup(false);
	good = (struct ha_gin_put){
	    .from = rank->from, .to = rank->to, .size = DATA, .signals = rank->signal, .addend = 1};
	is_refused(&good, w.n, "no such rank");
	put = good;
	put.from = NULL;
	is_refused(&put, 1, "not registered");
	put = good;
	put.from_offset = WINDOW - DATA + 1;
	is_refused(&put, 1, "memory that it is from");
	put.from_offset = UINT64_MAX - 100;
	is_refused(&put, 1, "memory that it is from");
	put = good;
	put.to_offset = WINDOW - DATA + 1;
	is_refused(&put, 1, "that rank's memory");
	put = good;
	put.size = SIZE_MAX;
	is_refused(&put, 1, "maxP2pBytes");
	put = good;
	put.signals = rank->to;
	is_refused(&put, 1, "FORCE_SO");
	put = good;
	put.signal_offset = 4;
	is_refused(&put, 1, "no word");
	put.signal_offset = RANKS * WORDS * 8;
	is_refused(&put, 1, "no word");
	assert_int_equal(w.error, HA_OK);
	for (int i = 0; i < STEPS && go_on(); i++)
		;
	assert_true(all_are_finished());
	everything_is_right();
	teardown();
}

static void signals_alone_and_puts_of_nothing_are_operations(void **state)
{
	struct ha_gin_put nothing = {0}, signal = {.signal_offset = 8, .addend = 1ull << 40};
	struct ha_gin_request *first, *second;
	int done = 0;

	(void)state;
	setup(false);
	signal.signals = w.ranks[0].signal;
	sv_stepped_set_host(0);
	assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &nothing, &first), HA_OK);
	assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &signal, &second), HA_OK);
	for (int i = 0; i < 1000 && (!done || w.ranks[1].words[1] == 0); i++) {
		turn();
		pair_advance(&w.pair);
		assert_int_equal(ha_gin_test(w.ranks[0].group, second, &done), HA_OK);
	}
	assert_true(done);
	assert_int_equal(ha_gin_test(w.ranks[0].group, first, &done), HA_OK);
	assert_true(done);
	assert_true(w.ranks[1].words[1] == 1ull << 40 && w.ranks[1].words[0] == 0);
	teardown();
}

/* Requests that nobody tests are kept, and no more are given out than there is room for. */
static void a_request_is_kept_until_it_was_tested(void **state)
{
	struct ha_gin_put nothing = {0};
	struct ha_gin_request *requests[HA_GIN_WINDOW], *more;
	int done;

	(void)state;
	setup(false);
	sv_stepped_set_host(0);
	for (unsigned int i = 0; i < HA_GIN_WINDOW; i++)
		assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &nothing, &requests[i]), HA_OK);
	for (int i = 0; i < 200; i++) {
		turn();
		pair_advance(&w.pair);
	}
	assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &nothing, &more), HA_ERR_INTERNAL);
	for (unsigned int i = 0; i < HA_GIN_WINDOW; i++) {
		assert_int_equal(ha_gin_test(w.ranks[0].group, requests[i], &done), HA_OK);
		assert_true(done);
	}
	assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &nothing, &more), HA_OK);
	teardown();
}

/* Its peer looks only after it has gone. */
static void what_a_rank_has_put_counts_when_it_has_ended(void **state)
{
	struct ha_gin_put put;
	struct ha_gin_request *request;
	int done = 0;

	(void)state;
	setup(false);
	put = (struct ha_gin_put){.from = w.ranks[0].from,
				  .to = w.ranks[0].to,
				  .from_offset = place_of(1, 0),
				  .size = DATA,
				  .signals = w.ranks[0].signal,
				  .addend = addend_of(0)};
	sv_stepped_set_host(0);
	for (int i = 0; i < 5; i++) /* one at a time is added to a word */
		assert_int_equal(ha_gin_put(w.ranks[0].group, 1, &put, &request), HA_OK);
	for (int i = 0; i < 1000 && !done; i++) {
		pair_advance(&w.pair);
		assert_int_equal(ha_gin_test(w.ranks[0].group, request, &done), HA_OK);
	}
	assert_true(done);
	ha_gin_group_close(w.ranks[0].group);
	w.ranks[0].group = NULL;
	pair_pass(&w.pair, 100);
	assert_true(w.ranks[1].words[0] == 0);
	for (int i = 0; i < 100; i++) {
		turn();
		pair_advance(&w.pair);
	}
	assert_int_equal(w.error, HA_OK);
	assert_true(w.ranks[1].words[0] == 5 * addend_of(0));
	assert_true(filled(w.ranks[1].window_seen, DATA, seed_of(0, 1, 0)));
	/* Who wants something of it is told. */
	put.from = w.ranks[1].from;
	put.to = w.ranks[1].to;
	put.signals = NULL;
	sv_stepped_set_host(1);
	assert_int_equal(ha_gin_put(w.ranks[1].group, 0, &put, &request), HA_ERR_REMOTE);
	assert_int_equal(ha_gin_group_progress(w.ranks[1].group), HA_ERR_REMOTE);
	teardown();
}

/* ---- a rank that is none ----------------------------------------------------------------- */

/* Rank 0 alone, and who connects to it as a rank and says these. */
static ha_result_t hears(const struct ha_gin_message *messages, unsigned int n)
{
	uint8_t handle[HA_HANDLE_MAX];
	struct ha_comm *comm = NULL;
	struct ha_gin_out out;

	memset(&w, 0, sizeof(w));
	w.n = 2;
	pair_init(&w.pair);
	pair_open(&w.pair);
	for (uint32_t r = 0; r < w.n; r++) {
		sv_stepped_set_host(r % 2);
		assert_int_equal(
		    ha_listen(w.pair.inst[r % 2], 0, w.ranks[r].handle, &w.ranks[r].listen), HA_OK);
	}
	open_rank(0);
	memcpy(handle, w.ranks[0].handle, sizeof(handle));
	while (!comm) {
		sv_stepped_set_host(1);
		assert_int_equal(
		    ha_connect(w.pair.inst[1], 0, HA_TRAFFIC_CLASS_UNDEF, handle, &comm), HA_OK);
		progress();
		pair_settle(&w.pair);
	}
	assert_int_equal(ha_gin_out_open(&out, comm), HA_OK);
	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(ha_gin_out_say(&out, &messages[i]), HA_OK);
	for (int i = 0; i < 300 && w.error == HA_OK; i++) {
		assert_int_equal(ha_gin_out_progress(&out), HA_OK);
		progress();
		pair_advance(&w.pair);
	}
	ha_gin_out_close(&out);
	ha_gin_group_close(w.ranks[0].group);
	for (uint32_t r = 0; r < w.n; r++)
		ha_close_listen(w.ranks[r].listen);
	pair_close(&w.pair);
	return w.error;
}

static void a_stranger_ends_the_group_and_is_named(void **state)
{
	const struct ha_gin_message bad[] = {
	    {.say = HA_GIN_HELLO, .hello = {.rank = 2, .nranks = 2}},
	    {.say = HA_GIN_HELLO, .hello = {.rank = 1, .nranks = 3}},
	    {.say = HA_GIN_OFFER, .hello = {.rank = 1, .nranks = 2}},
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(hears(&bad[i], 1), HA_ERR_REMOTE);
		assert_logged("this is rank 0 of 2, and each rank connects once");
	}
}

/* ---- reads ---------------------------------------------------------------------------------- */

#define READS	    48u
#define FLUSH_EVERY 6u

/* What a rank has of the other one. */
static struct reading {
	unsigned int begun, back; /* reads and flushes */
	unsigned int sure;	  /* reads that a flush has proved */
	struct ha_gin_request *requests[READS];
} readings[2];

static bool is_flush(unsigned int k)
{
	return k % FLUSH_EVERY == FLUSH_EVERY - 1;
}

static void read_next(uint32_t r)
{
	struct reading *reading = &readings[r];
	struct rank *rank = &w.ranks[r];
	const unsigned int k = reading->begun;
	const struct ha_gin_get get = {.from = rank->from,
				       .to = rank->to,
				       .from_offset = place_of(r, k),
				       .to_offset = place_of(1 - r, k),
				       .size = DATA};
	ha_result_t result;

	sv_stepped_set_host(r);
	result = is_flush(k) ? ha_gin_flush(rank->group, 1 - r, &reading->requests[k])
			     : ha_gin_get(rank->group, 1 - r, &get, &reading->requests[k]);
	reading->begun += result == HA_OK;
}

/* What a flush has pushed a kernel sees. */
static void look_at_reads(uint32_t r)
{
	struct reading *reading = &readings[r];

	for (; reading->sure < reading->back; reading->sure++) {
		const unsigned int k = reading->sure;

		if (is_flush(k) || counts().unproved)
			continue;
		if (!filled(w.ranks[r].window_seen + place_of(1 - r, k), DATA,
			    seed_of(1 - r, r, k)))
			fail_msg("%s: read %u of rank %u is not there", w.what, k, r);
	}
}

static void test_reads(uint32_t r)
{
	struct reading *reading = &readings[r];
	int done = 1;

	sv_stepped_set_host(r);
	while (done && reading->back < reading->begun) {
		if (ha_gin_test(w.ranks[r].group, reading->requests[reading->back], &done) != HA_OK)
			return;
		if (done && is_flush(reading->back++))
			look_at_reads(r);
	}
}

static bool have_read(void)
{
	for (uint32_t r = 0; r < 2; r++) {
		if (readings[r].begun < READS && readings[r].begun - readings[r].back < ROOM &&
		    w.error == HA_OK)
			read_next(r);
		test_reads(r);
	}
	turn();
	pair_advance(&w.pair);
	return readings[0].back == READS && readings[1].back == READS;
}

static void run_reads(enum fault fault, unsigned int step)
{
	bool have = false;

	setup(false);
	memset(readings, 0, sizeof(readings));
	snprintf(w.what, sizeof(w.what), "reads, fault %d at step %u", (int)fault, step);
	for (unsigned int i = 0; i < STEPS && !have && w.error == HA_OK; i++) {
		have = have_read();
		if (i == step)
			happens(fault);
	}
	if (!have)
		fail_msg("%s: %u and %u of %u, error %d; log:\n%s", w.what, readings[0].back,
			 readings[1].back, READS, w.error, captured_log);
	assert_true(fault == NIC_OF_0 || fault == NIC_OF_1 || counts().unproved == 0);
	seen.failovers += counts().failovers;
	seen.unproved += counts().unproved;
	runs++;
	teardown();
}

/* In the memory of GPUs, into which NICs write late. */
static void whatever_fails_reads_bring_what_is_there_and_flushes_prove_it(void **state)
{
	(void)state;
	memset(&seen, 0, sizeof(seen));
	runs = 0;
	for (enum fault fault = NOTHING; fault < FAULTS; fault++)
		for (unsigned int step = fault; step < 150; step += fault ? 1 + stride / 30 : 150)
			run_reads(fault, step);
	print_message("%u runs of reads: %u failovers, %u NICs with data not proved\n", runs,
		      (unsigned int)seen.failovers, (unsigned int)seen.unproved);
	assert_true(seen.failovers > 0);
}

static void what_cannot_be_read_is_refused(void **state)
{
	struct ha_gin_request *request;
	struct ha_gin_get get;
	struct rank *rank = &w.ranks[0];

	(void)state;
	setup(false);
	sv_stepped_set_host(0);
	get = (struct ha_gin_get){.from = rank->from, .to = rank->to, .size = DATA};
	assert_int_equal(ha_gin_get(rank->group, 2, &get, &request), HA_ERR_ARGUMENT);
	get.from_offset = WINDOW - DATA + 1;
	assert_int_equal(ha_gin_get(rank->group, 1, &get, &request), HA_ERR_ARGUMENT);
	get = (struct ha_gin_get){
	    .from = rank->from, .to = rank->to, .to_offset = WINDOW - DATA + 1, .size = DATA};
	assert_int_equal(ha_gin_get(rank->group, 1, &get, &request), HA_ERR_ARGUMENT);
	assert_null(request);
	assert_int_equal(ha_gin_flush(rank->group, 2, &request), HA_ERR_ARGUMENT);
	teardown();
}

/* As many as NCCL may have under way from several contexts at once. */
static void a_wider_group_has_room_for_more_contexts(void **state)
{
	static struct ha_gin_request *requests[2 * HA_GIN_WINDOW + 1];
	struct ha_gin_put put;
	struct rank *rank = &w.ranks[0];
	unsigned int i;
	int done = 0;

	(void)state;
	setup(false);
	sv_stepped_set_host(0);
	assert_int_equal(ha_gin_group_widen(rank->group, 0), HA_ERR_ARGUMENT);
	assert_int_equal(ha_gin_group_widen(rank->group, HA_GIN_CONTEXTS + 1), HA_ERR_ARGUMENT);
	assert_int_equal(ha_gin_group_widen(rank->group, 2), HA_OK);
	put = (struct ha_gin_put){.signals = rank->signal, .addend = 1};
	for (i = 0; i < 2 * HA_GIN_WINDOW; i++)
		assert_int_equal(ha_gin_put(rank->group, 1, &put, &requests[i]), HA_OK);
	assert_int_equal(ha_gin_put(rank->group, 1, &put, &requests[i]), HA_ERR_INTERNAL);
	assert_int_equal(ha_gin_group_widen(rank->group, 3), HA_ERR_USAGE);
	for (i = 0; i < STEPS && !done; i++) {
		turn();
		pair_advance(&w.pair);
		assert_int_equal(ha_gin_test(rank->group, requests[2 * HA_GIN_WINDOW - 1], &done),
				 HA_OK);
	}
	for (i = 0; i < STEPS && w.ranks[1].words[0] != 2 * HA_GIN_WINDOW; i++) {
		turn();
		pair_advance(&w.pair);
	}
	assert_int_equal(w.ranks[1].words[0], 2 * HA_GIN_WINDOW);
	teardown();
}

static struct sv_stepped_objects objects(void)
{
	struct sv_stepped_objects sum = {0}, one;

	for (uint32_t host = 0; host < 2; host++)
		for (uint32_t rail = 0; rail < 2; rail++) {
			sv_stepped_get_objects(host, rail, &one);
			sum.qps += one.qps;
			sum.cqs += one.cqs;
			sum.mrs += one.mrs;
			sum.pds += one.pds;
		}
	return sum;
}

static unsigned int groups = 12;

/* While their instances stay, as in a process with many communicators one after the other. */
static void groups_that_come_and_go_leave_nothing(void **state)
{
	struct sv_stepped_objects before = {0}, after;
	int descriptors = 0;

	(void)state;
	memset(&w, 0, sizeof(w));
	w.n = 2;
	pair_init(&w.pair);
	w.pair.config.enable_backup = true;
	w.pair.fabric.rails = 2;
	w.pair.fabric.gpu = true;
	pair_open(&w.pair);
	for (unsigned int n = 0; n <= groups; n++) {
		connect_ranks();
		register_memory();
		close_ranks();
		pair_pass(&w.pair, 20);
		if (n == 0) { /* what instances keep for the next one is theirs */
			before = objects();
			descriptors = open_descriptors();
		}
	}
	after = objects();
	print_message("after %u groups: %u queue pairs, %u registrations\n", groups, after.qps,
		      after.mrs);
	assert_memory_equal(&after, &before, sizeof(after));
	assert_int_equal(open_descriptors(), descriptors);
	pair_close(&w.pair);
}

/* gin_group [STRIDE [GROUPS]] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(puts_and_signals_arrive_between_all_ranks),
	    cmocka_unit_test(whatever_fails_at_whatever_step_each_signal_counts_once),
	    cmocka_unit_test(words_that_are_never_set_to_zero_are_never_doubted),
	    cmocka_unit_test(whichever_queue_pair_says_nothing_each_signal_counts_once),
	    cmocka_unit_test(what_a_receiver_has_applied_and_cannot_say_is_missed),
	    cmocka_unit_test(four_ranks_on_two_hosts_outlive_a_port),
	    cmocka_unit_test(from_rail_to_rail_and_back_nothing_is_lost),
	    cmocka_unit_test(end_to_end_requests_wait_for_the_receiver),
	    cmocka_unit_test(without_a_path_there_is_an_error_in_time),
	    cmocka_unit_test(a_path_that_carries_no_puts_is_left_though_it_is_alive),
	    cmocka_unit_test(a_path_is_kept_when_one_queue_pair_of_it_fails),
	    cmocka_unit_test(where_no_path_carries_puts_there_is_an_error_in_time),
	    cmocka_unit_test(signals_that_no_nic_adds_are_an_error_in_time),
	    cmocka_unit_test(a_flush_that_no_nic_does_is_an_error_in_time),
	    cmocka_unit_test(a_put_to_memory_that_is_given_back_is_an_error_in_time),
	    cmocka_unit_test(what_cannot_be_is_refused_and_changes_nothing),
	    cmocka_unit_test(signals_alone_and_puts_of_nothing_are_operations),
	    cmocka_unit_test(a_request_is_kept_until_it_was_tested),
	    cmocka_unit_test(what_a_rank_has_put_counts_when_it_has_ended),
	    cmocka_unit_test(a_stranger_ends_the_group_and_is_named),
	    cmocka_unit_test(whatever_fails_reads_bring_what_is_there_and_flushes_prove_it),
	    cmocka_unit_test(what_cannot_be_read_is_refused),
	    cmocka_unit_test(groups_that_come_and_go_leave_nothing),
	    cmocka_unit_test(a_wider_group_has_room_for_more_contexts),
	};

	if (argc > 1)
		stride = (unsigned int)strtoul(argv[1], NULL, 10);
	if (argc > 2)
		groups = (unsigned int)strtoul(argv[2], NULL, 10);
	return cmocka_run_group_tests_name("gin_group", tests, NULL, NULL);
}
