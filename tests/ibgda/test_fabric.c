/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream over queue pairs of a stepped fabric: threads run the code for GPUs (nccl_ha/ibgda.cuh),
 * the hosts of both ends watch over it (ibgda/sender.h, ibgda/receiver.h), and the fabric moves the
 * bytes; all of them one step at a time in one thread, in an order that a seed makes. Something
 * fails at each of its events in turn.
 *
 *     stepped_ibgda_fabric [STRIDE]    at one event in so many
 */
#include "../unit/cmocka_all.h"

static void yield(const char *where);
#define HA_DEV_STEP(where) yield(where)
#define HA_DEV_PAUSE()	   yield("pause")

#include "ends.h"

#include "../descriptors.h"
#include "../stepped_rules.h"
#include "nccl_ha/ibgda.cuh"

#include <simverbs/mlx5.h>
#include <simverbs/simverbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#define THREADS	    3u
#define POSTS	    6u /* of each */
#define WORDS	    (THREADS * POSTS)
#define IDS	    2u
#define LOG	    3u
#define STACK	    (256u * 1024)
#define EVENTS_MOST 400000u
#define REFILLED    0xfefefefefefefefeull
#define MS	    1000000u
#define OUTAGE_MS   3000u
#define SILENCE_MS  60u
#define PASSING	    4096u /* bytes of a region */

enum fault {
	NOTHING,
	SENDERS_LINK,
	RECEIVERS_LINK,
	RAIL_CUT, /* in silence */
	SENDER_DIES,
	SENDER_WEDGES, /* its queue pair takes requests and does nothing, without a word */
	OTHER_DIES,    /* the receiver's, and there is a false alarm for the one in use */
	RECEIVER_DIES,
	RECEIVER_PLACED,   /* what it acknowledges last is in memory, */
	RECEIVER_UNPLACED, /* ... or is not */
	FALSE_ALARM,
	MOVE,
	FAULTS,
	ALL_RECEIVERS_LINKS, /* no path is left */
	SENDER_FORGETS,	     /* memory is deregistered that unfinished puts name */
	RECEIVER_FORGETS,
};

struct plan {
	uint64_t seed;
	enum fault fault;
	unsigned int at; /* event */
	bool comes_back; /* what is cut heals */
	/* Until that event, once it has written its first request: thread 0 sleeps, and false
	 * alarms come. */
	unsigned int sleeps_until;
	const char *sleeps_at; /* there, without false alarms, and once; NULL: as above */
	bool nobody_waits;     /* for what was posted, but for room */
	unsigned int return_ms;
	bool places_last; /* each thread waits until what it put last is in memory */
	uint32_t rate_mbps;
	unsigned int blocks; /* PASSING bytes each, that the first put has; 0: eight bytes */
};

struct result {
	unsigned int events, generations;
	bool has_fired;
	const char *over, *wrong;
};

static struct {
	const struct plan *plan;
	struct result result;
	uint64_t random, event;
	ucontext_t scheduler, threads[THREADS];
	bool has_ended[THREADS], sleeps, has_slept, peer_is_mute;
	unsigned int current;
	struct stream_end a, b;
	struct pipe_end pipe[2];
	struct ha_ibgda_sender sender;
	struct ha_ibgda_receiver receiver;
	uint64_t sources[WORDS + THREADS], targets[WORDS]; /* those behind are where reads go */
	/* Of each post. */
	struct ha_ibgda_work posts[WORDS];
	bool is_posted[WORDS], is_told[WORDS];
	unsigned int posted;
	uint64_t sums[IDS], seen[IDS];
	uint64_t cut_ns, ended_ns;
	int wedge; /* number of a rule */
	/* Region 2, which is given back in the first failover after it is quiet. */
	void *passing[2];
	struct ibv_mr *passing_mrs[2][END_NICS];
	bool is_quiet, is_given;
} w;

static char stacks[THREADS][STACK];
static unsigned long placed;
static unsigned long given; /* runs whose memory was given back while the stream moved */

static void must(bool condition, const char *what)
{
	if (!condition && !w.result.wrong)
		w.result.wrong = what;
}

static unsigned int some(unsigned int below)
{
	w.random = w.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(w.random >> 33) % below;
}

/* ---- threads of the GPU ---------------------------------------------------------------------- */

static void yield(const char *where)
{
	if (w.current == 0 && w.plan->sleeps_at && !w.has_slept)
		w.sleeps = w.has_slept = !strcmp(where, w.plan->sleeps_at);
	else if (w.current == 0 && !strcmp(where, "turn") && w.result.events < w.plan->sleeps_until)
		w.sleeps = true;
	swapcontext(&w.threads[w.current], &w.scheduler);
}

/* A put of memory that its program wants to give back when it is complete. */
static void put_of_passing_memory(void)
{
	struct ha_ibgda_work post = {.put = {(uintptr_t)w.passing[0], (uintptr_t)w.passing[1], 2, 2,
					     w.plan->blocks ? w.plan->blocks * PASSING : 8}};

	if (ha_ibgda_post(&w.sender.stream, &post) == HA_IBGDA_OK &&
	    ha_ibgda_quiet(&w.sender.stream, post.first) == HA_IBGDA_OK)
		w.is_quiet = true;
}

/* Then it is there, or the peer's program has used it since. */
static enum ha_ibgda_result wait_until_placed(unsigned int word)
{
	const uint64_t scratch = (uintptr_t)&w.sources[WORDS + w.current];
	const enum ha_ibgda_result result = ha_ibgda_quiet_placed(&w.sender.stream, scratch, 1);

	must(result != HA_IBGDA_OK || w.sender.unproved ||
		 w.targets[word] == (w.is_told[word] ? REFILLED : 0x1000 + word),
	     "what is said to be placed is not there");
	must(result != HA_IBGDA_OK ||
		 w.sender.stream.cons > w.posts[word].first + w.posts[word].count,
	     "nobody has waited for the read");
	placed += result == HA_IBGDA_OK;
	return result;
}

static void thread_runs(void)
{
	if (w.current == 0)
		put_of_passing_memory();
	for (unsigned int n = 0; n < POSTS; n++) {
		const unsigned int word = w.posted++;
		struct ha_ibgda_work *post = &w.posts[word];
		enum ha_ibgda_result result;

		post->put = (struct ha_ibgda_put){(uintptr_t)&w.sources[word],
						  (uintptr_t)&w.targets[word], 1, 1, 8};
		if (some(3)) {
			post->signal = (struct ha_ibgda_signal){some(IDS), 1 + some(3)};
			w.sums[post->signal.id] += post->signal.addend;
		}
		w.sources[word] = 0x1000 + word;
		result = ha_ibgda_post(&w.sender.stream, post);
		if (result == HA_IBGDA_OK)
			w.is_posted[word] = true;
		if (result == HA_IBGDA_OK && !w.plan->nobody_waits && (n + 1 == POSTS || some(2)))
			result =
			    some(2) || (w.plan->places_last && n + 1 == POSTS)
				? wait_until_placed(word)
				: ha_ibgda_quiet(&w.sender.stream, post->first + post->count - 1);
		if (result != HA_IBGDA_OK) {
			must(w.sender.phase == HA_IBGDA_ENDED, "a thread was sent away");
			break;
		}
	}
	w.has_ended[w.current] = true;
	swapcontext(&w.threads[w.current], &w.scheduler);
}

static void thread_begins(unsigned int number)
{
	ucontext_t *context = &w.threads[number];

	getcontext(context);
	context->uc_stack.ss_sp = stacks[number];
	context->uc_stack.ss_size = STACK;
	context->uc_link = NULL;
	makecontext(context, thread_runs, 0);
}

/* ---- the receiver's program ------------------------------------------------------------------ */

/* Who sees a signal has all that was put before it, and may use the memory again. */
static void told(const struct ha_ibgda_work *signal)
{
	for (unsigned int word = 0; word < WORDS; word++) {
		if (!w.is_posted[word] || w.is_told[word] ||
		    w.posts[word].first >= signal->first + signal->count)
			continue;
		must(w.targets[word] == 0x1000 + word || w.sender.unproved,
		     "a signal is there, and a put before it is not");
		w.is_told[word] = true;
		w.targets[word] = REFILLED;
	}
}

static void look_at_signals(void)
{
	for (unsigned int id = 0; id < IDS; id++) {
		const uint64_t value = ha_ibgda_receiver_signal(&w.receiver, id);

		must(value >= w.seen[id], "a signal goes back");
		w.seen[id] = value;
	}
	for (unsigned int word = 0; word < WORDS; word++)
		if (w.is_posted[word] && w.posts[word].signal.addend && !w.is_told[word] &&
		    w.seen[w.posts[word].signal.id] >= w.posts[word].number && w.posts[word].number)
			told(&w.posts[word]);
}

/* ---- a run ----------------------------------------------------------------------------- */

static size_t passing_bytes(void)
{
	return (w.plan->blocks ? w.plan->blocks : 1) * PASSING;
}

static void register_passing(unsigned int end, struct ha_ibgda_nic *nics)
{
	w.passing[end] =
	    mmap(NULL, passing_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(w.passing[end], MAP_FAILED);
	for (unsigned int n = 0; n < END_NICS; n++) {
		w.passing_mrs[end][n] =
		    ibv_reg_mr(nics[n].pd, w.passing[end], passing_bytes(),
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		assert_non_null(w.passing_mrs[end][n]);
		nics[n].lkeys[2] = w.passing_mrs[end][n]->lkey;
		nics[n].rkeys[2] = w.passing_mrs[end][n]->rkey;
	}
}

/* Who reads or writes it from now on falls over it. */
static void give_passing(void)
{
	for (unsigned int end = 0; end < 2 && !w.is_given; end++) {
		for (unsigned int n = 0; n < END_NICS; n++)
			assert_int_equal(ibv_dereg_mr(w.passing_mrs[end][n]), 0);
		assert_int_equal(munmap(w.passing[end], passing_bytes()), 0);
	}
	w.is_given = true;
}

static void begin(const struct plan *plan)
{
	const struct sv_stepped_opts fabric = {
	    .rails = END_NICS, .seed = plan->seed, .rate_mbps = plan->rate_mbps};
	const struct ha_ibgda_settings settings = {.log = LOG,
						   .outage_ns = (uint64_t)OUTAGE_MS * MS,
						   .silence_ns = (uint64_t)SILENCE_MS * MS,
						   .accepts_unproved = plan->seed % 2,
						   .return_ns = (uint64_t)plan->return_ms * MS};

	memset(&w, 0, sizeof(w));
	w.plan = plan;
	w.random = plan->seed;
	assert_int_equal(sv_stepped_open(&fabric), 0);
	stream_end_make(&w.a, (struct ibv_context *[]){open_rail(0, 0), open_rail(0, 1)}, w.sources,
			sizeof(w.sources), 8, 2);
	stream_end_make(&w.b, (struct ibv_context *[]){open_rail(1, 0), open_rail(1, 1)}, w.targets,
			sizeof(w.targets), 8, 2);
	register_passing(0, w.a.nics);
	register_passing(1, w.b.nics);
	for (unsigned int n = 0; n < END_NICS && plan->rate_mbps; n++)
		w.a.nics[n].timeout = w.b.nics[n].timeout = 18; /* 1 s: packets wait for others */
	pipe_make(w.pipe);
	assert_true(ha_ibgda_receiver_open(&w.receiver, w.b.nics, END_NICS,
					   pipe_channel(&w.pipe[1]), NULL));
	ha_ibgda_sender_open(&w.sender, w.a.nics, END_NICS, pipe_channel(&w.pipe[0]), &settings);
	for (unsigned int n = 0; n < THREADS; n++)
		thread_begins(n);
}

static void mistakes(void)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		struct sv_direct_mistakes m;

		sv_direct_mistakes(w.a.nics[n].context, &m);
		must(m.stale + m.malformed + m.without_record + m.overrun == 0,
		     "a device found a mistake");
	}
}

/* Of the stream: what is left then is the test's, which has a region and an empty queue at each
 * NIC. */
static void nothing_is_left(void)
{
	for (uint32_t host = 0; host < 2; host++)
		for (uint32_t rail = 0; rail < END_NICS; rail++) {
			const struct stream_end *end = host ? &w.b : &w.a;
			struct sv_stepped_objects left;

			sv_stepped_get_objects(host, rail, &left);
			must(left.qps == 0 && left.cqs == 1, "a queue pair is left");
			must(left.mrs == (end->mrs[rail] ? 1u : 0u), "a registration is left");
			must(left.pds == 1, "a protection domain is left");
		}
}

static void end(void)
{
	mistakes();
	ha_ibgda_sender_close(&w.sender);
	ha_ibgda_receiver_close(&w.receiver);
	give_passing();
	nothing_is_left();
	stream_end_give(&w.a);
	stream_end_give(&w.b);
	pipe_give(w.pipe);
	assert_int_equal(sv_stepped_close(), 0);
}

static int add_rule_for(uint32_t rail, const char *what)
{
	char rule[96];

	snprintf(rule, sizeof(rule), "%s rail=%u op=write nth=1", what, rail);
	return add_rule(rule);
}

static void breaks(enum fault fault)
{
	const uint32_t rail = w.sender.slots[w.sender.host.queue].nic;

	w.result.has_fired = true;
	switch (fault) {
	case SENDERS_LINK:
		sv_stepped_link(0, rail, false);
		return;
	case RECEIVERS_LINK:
		sv_stepped_link(1, rail, false);
		return;
	case RAIL_CUT:
		sv_stepped_cut(rail, true);
		return;
	case SENDER_DIES:
		sv_stepped_kill(0, rail);
		return;
	case RECEIVER_DIES:
		sv_stepped_kill(1, rail);
		return;
	case SENDER_WEDGES:
		w.wedge = add_rule_for(rail, "wedge host=0 dir=tx");
		return;
	case RECEIVER_PLACED:
		(void)add_rule_for(rail, "kill=placed host=1 dir=rx");
		return;
	case RECEIVER_UNPLACED:
		(void)add_rule_for(rail, "kill=unplaced host=1 dir=rx");
		return;
	case FALSE_ALARM:
		ha_ibgda_sender_suspect(&w.sender, rail);
		return;
	case OTHER_DIES:
		sv_stepped_kill(1, 1 - rail);
		ha_ibgda_sender_suspect(&w.sender, rail);
		ha_ibgda_sender_suspect(&w.sender, 1 - rail);
		return;
	case MOVE:
		ha_ibgda_sender_move(&w.sender, 1 - rail);
		return;
	case ALL_RECEIVERS_LINKS:
		sv_stepped_link(1, 0, false);
		sv_stepped_link(1, 1, false);
		w.cut_ns = sv_stepped_now();
		return;
	case SENDER_FORGETS:
	case RECEIVER_FORGETS:
		w.cut_ns = sv_stepped_now();
		for (unsigned int n = 0; n < END_NICS; n++)
			stream_end_forget(fault == SENDER_FORGETS ? &w.a : &w.b, n);
		return;
	case NOTHING:
	case FAULTS:
		break;
	}
	w.result.has_fired = false;
}

static void heals(void)
{
	for (uint32_t rail = 0; rail < END_NICS; rail++) {
		sv_stepped_link(0, rail, true);
		sv_stepped_link(1, rail, true);
		sv_stepped_cut(rail, false);
	}
}

static void watch_nics(void)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		if (ha_ibgda_nic_has_failed(&w.a.nics[n]))
			ha_ibgda_sender_suspect(&w.sender, n);
		if (ha_ibgda_nic_has_failed(&w.b.nics[n]))
			ha_ibgda_receiver_suspect(&w.receiver, n);
	}
}

/* Time goes on when nothing moves, too. */
static void fabric_steps(void)
{
	if (!sv_stepped_step())
		sv_stepped_run(sv_stepped_now() + 50000);
}

/* Before anything is written again, and before the receiver says what has come. */
static void look_at_fences(void)
{
	must(w.sender.phase != HA_IBGDA_OPENING || !w.sender.slots[w.sender.host.queue].pair.qp,
	     "a queue pair that was left is not fenced");
	for (unsigned int n = 0; n < HA_IBGDA_OPENED_MOST; n++) {
		must(w.receiver.pairs[n].number || !w.receiver.pairs[n].pair.qp,
		     "a queue pair of which something was said is not fenced");
		must(w.sender.phase != HA_IBGDA_OPENING ||
			 w.receiver.pairs[n].number != w.sender.slots[w.sender.host.queue].number,
		     "the other end's queue pair is not fenced");
	}
}

static void event(void)
{
	const unsigned int actor = some(8);

	if (w.plan->fault != NOTHING && w.result.events == w.plan->at)
		breaks(w.plan->fault);
	if (w.plan->comes_back && w.result.events == w.plan->at + 300)
		heals();
	w.result.events++;
	if (w.sleeps && !w.plan->sleeps_at && w.result.events >= w.plan->sleeps_until)
		w.sleeps = false;
	if (w.sleeps && !w.plan->sleeps_at && w.result.events % 64 == 0)
		breaks(FALSE_ALARM);
	if (actor < THREADS) {
		w.current = actor;
		if (!w.has_ended[actor] && (actor || !w.sleeps))
			swapcontext(&w.scheduler, &w.threads[actor]);
	} else if (actor == THREADS) {
		watch_nics();
		ha_ibgda_sender_step(&w.sender, sv_stepped_now());
		(void)ha_ibgda_sender_prepare(&w.sender, sv_stepped_now());
	} else if (actor == THREADS + 1) {
		if (w.peer_is_mute)
			return;
		ha_ibgda_receiver_step(&w.receiver, sv_stepped_now());
		(void)ha_ibgda_receiver_prepare(&w.receiver);
	} else {
		fabric_steps();
	}
	look_at_signals();
	look_at_fences();
	if (w.is_quiet && !w.is_given && w.sender.phase > HA_IBGDA_RUNNING) {
		given += w.sender.phase != HA_IBGDA_ENDED;
		give_passing();
	}
}

static bool all_puts_are_there(void)
{
	for (unsigned int word = 0; word < WORDS; word++)
		if (w.targets[word] != (w.is_told[word] ? REFILLED : 0x1000 + word))
			return false;
	return true;
}

/* Not on its way from one queue to another: what was acknowledged by a NIC that died may be found
 * to be lost there. */
static bool is_settled(void)
{
	return w.sender.phase == HA_IBGDA_RUNNING || w.sender.phase == HA_IBGDA_ENDED;
}

/* What nobody waits for is waited for here, those puts included that no signal is behind. */
static bool all_have_ended(void)
{
	for (unsigned int n = 0; n < THREADS; n++)
		if (!w.has_ended[n])
			return false;
	for (unsigned int id = 0; w.plan->nobody_waits && id < IDS; id++)
		if (w.seen[id] != w.sums[id])
			return false;
	return !w.plan->nobody_waits || all_puts_are_there();
}

static void check_end(void)
{
	must(all_puts_are_there() || w.sender.unproved, "a put is not there, or came late");
	for (unsigned int id = 0; id < IDS; id++)
		must(ha_ibgda_receiver_signal(&w.receiver, id) == w.sums[id], "a sum is wrong");
}

static struct result run(const struct plan *plan)
{
	begin(plan);
	while (!(all_have_ended() && is_settled()) && w.result.events < EVENTS_MOST &&
	       !w.result.wrong)
		event();
	must(w.result.events < EVENTS_MOST, "somebody waits for ever");
	w.ended_ns = sv_stepped_now();
	for (unsigned int n = 0; n < 64; n++)
		fabric_steps();
	if (!w.sender.fault)
		check_end();
	w.result.generations = w.sender.host.generation;
	w.result.over = w.sender.fault;
	end();
	if (w.result.wrong)
		fail_msg("seed %llu, fault %d at %u: %s, at event %u, generation %u, phase %d",
			 (unsigned long long)plan->seed, plan->fault, plan->at, w.result.wrong,
			 w.result.events, w.result.generations, w.sender.phase);
	return w.result;
}

static unsigned int stride = 97;

/* Each generation since then keeps a queue. When none is left the stream stays where it is, with
 * its gate open, until the thread is awake: only then can a queue become free. */
static void
a_thread_that_sleeps_through_more_failures_than_there_are_queues_is_waited_for(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		const struct result result =
		    run(&(struct plan){.seed = seed, .sleeps_until = 20000});

		assert_null(result.over);
		assert_true(result.generations >= HA_IBGDA_QUEUES - 1);
	}
}

static void without_faults_every_byte_and_signal_is_right(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		const struct result result = run(&(struct plan){.seed = seed});

		assert_int_equal(result.generations, 0);
		assert_null(result.over);
	}
}

static void whatever_fails_at_whatever_event_every_byte_and_signal_is_right(void **state)
{
	const unsigned long before = given;
	unsigned long runs = 0, fired = 0, moved = 0, over = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		const unsigned int events = run(&(struct plan){.seed = seed}).events;

		for (unsigned int fault = 1; fault < FAULTS; fault++)
			for (unsigned int at = (unsigned int)seed % stride; at < events;
			     at += stride) {
				const struct plan plan = {.seed = seed,
							  .fault = (enum fault)fault,
							  .at = at,
							  .comes_back = at % 2};
				const struct result result = run(&plan);

				runs++;
				fired += result.has_fired;
				moved += result.generations > 0;
				over += result.over != NULL;
				/* A NIC whose memory is lost is the one thing that may end it. */
				assert_true(!result.over || fault >= RECEIVER_DIES);
			}
	}
	printf("%lu runs, %lu faults, %lu moved, %lu over, memory given back meanwhile in %lu\n",
	       runs, fired, moved, over, given - before);
	printf("%lu times all was placed\n", placed);
	assert_true(moved > runs / 2 && over < runs / 4 && given - before > moved / 4);
}

static void what_nobody_waits_for_arrives_all_the_same(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 6; seed++)
		for (unsigned int at = 200; at < 1000; at += 100) {
			const struct plan plan = {
			    .seed = seed, .fault = RAIL_CUT, .at = at, .nobody_waits = true};

			assert_null(run(&plan).over);
			/* The NIC gave it up, which is sooner than that nothing completes. */
			assert_true(w.ended_ns < SILENCE_MS * MS);
		}
}

static void without_any_path_every_thread_returns_when_it_has_lasted_too_long(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		const struct result result =
		    run(&(struct plan){.seed = seed, .fault = ALL_RECEIVERS_LINKS, .at = 400});

		assert_string_equal(result.over, "there was no path for too long");
		assert_in_range(w.ended_ns - w.cut_ns, (uint64_t)OUTAGE_MS * MS,
				(uint64_t)OUTAGE_MS * MS * 11 / 10);
	}
}

static uint32_t nic_in_use(void)
{
	return w.sender.slots[w.sender.host.queue].nic;
}

/* Everything goes on for so long; or until the stream is in its next generation. */
static void goes_on(unsigned int ms, uint32_t generation)
{
	const uint64_t until = sv_stepped_now() + (uint64_t)ms * MS;

	while (sv_stepped_now() < until && w.sender.host.generation < generation && !w.result.wrong)
		event();
	assert_null(w.result.wrong);
}

static void begins_on_its_nic(const struct plan *plan)
{
	begin(plan);
	goes_on(2, UINT32_MAX);
	assert_int_equal(w.sender.phase, HA_IBGDA_RUNNING);
	assert_int_equal(nic_in_use(), 0);
}

static void ends_well(void)
{
	goes_on(20, UINT32_MAX);
	assert_true(all_have_ended());
	check_end();
	assert_null(w.result.wrong);
	end();
}

/* Nobody says so, and threads wait. */
static void a_queue_pair_that_completes_nothing_without_a_word_is_left(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		const struct plan plan = {.seed = seed, .places_last = seed % 2};
		uint64_t wedged_ns;

		begin(&plan);
		while (w.posted < WORDS / 2)
			event();
		breaks(SENDER_WEDGES);
		while (!fired(w.wedge) && w.result.events < EVENTS_MOST)
			event();
		assert_int_equal(fired(w.wedge), 1);
		wedged_ns = sv_stepped_now();
		goes_on(1000, 1);
		assert_in_range(sv_stepped_now() - wedged_ns, (SILENCE_MS - 3) * MS,
				(SILENCE_MS + 3) * MS);
		assert_int_equal(nic_in_use(), 1);
		ends_well();
	}
}

/* The other end says something of a queue pair that was dropped just before. */
static void what_is_said_of_another_queue_pair_is_not_of_the_one_that_fails(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		const struct plan plan = {.seed = seed};

		begin(&plan);
		while (w.sender.next != HA_IBGDA_NEXT_READY || w.sender.phase != HA_IBGDA_RUNNING)
			event();
		w.peer_is_mute = true;
		ha_ibgda_sender_suspect(&w.sender, w.sender.slots[w.sender.next_slot].nic);
		while (w.sender.next != HA_IBGDA_NO_NEXT)
			event();
		breaks(FALSE_ALARM);
		while (w.sender.phase != HA_IBGDA_CLOSING)
			event();
		w.peer_is_mute = false;
		goes_on(1000, 1);
		goes_on(50, UINT32_MAX); /* both NICs are left alone for a while */
		ends_well();
	}
}

static void a_stream_that_has_nothing_to_do_stays_where_it_is(void **state)
{
	const struct plan plan = {.seed = 1};

	(void)state;
	begins_on_its_nic(&plan);
	goes_on(10 * SILENCE_MS, UINT32_MAX);
	assert_true(all_have_ended());
	assert_int_equal(w.sender.failovers, 0);
	ends_well();
}

/* It takes longer than that to come through, and is no silence. */
static void a_put_that_takes_long_on_a_slow_link_is_waited_for(void **state)
{
	const struct plan plan = {.seed = 1, .rate_mbps = 600, .blocks = 1536};
	struct result result;

	(void)state;
	result = run(&plan);
	assert_true(w.ended_ns > (uint64_t)SILENCE_MS * MS);
	assert_int_equal(result.generations, 0);
	assert_null(result.over);
}

static void a_stream_goes_back_to_its_nic_when_that_has_been_well_for_long_enough(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		const struct plan plan = {.seed = seed, .return_ms = 100};

		begins_on_its_nic(&plan);
		breaks(seed % 2 ? RECEIVERS_LINK : RAIL_CUT);
		if (seed % 2 == 0)
			breaks(FALSE_ALARM);
		goes_on(1000, 1);
		assert_int_equal(nic_in_use(), 1);
		heals();
		goes_on(90, UINT32_MAX);
		assert_int_equal(nic_in_use(), 1);
		goes_on(30, UINT32_MAX);
		assert_int_equal(nic_in_use(), 0);
		assert_int_equal(w.sender.failovers, 1);
		assert_int_equal(w.sender.moves, 1);
		ends_well();
	}
}

/* One beside the queue pair in use would fail with it. */
static void the_backup_goes_to_the_other_nic_as_soon_as_that_may_be_tried(void **state)
{
	const struct plan plan = {.seed = 1};

	(void)state;
	begins_on_its_nic(&plan);
	breaks(FALSE_ALARM);
	goes_on(1000, 1);
	goes_on(10, UINT32_MAX);
	assert_int_equal(w.sender.next, HA_IBGDA_NEXT_READY);
	assert_int_equal(w.sender.slots[w.sender.next_slot].nic, 1);
	goes_on(20, UINT32_MAX);
	assert_int_equal(nic_in_use(), 1);
	assert_int_equal(w.sender.next, HA_IBGDA_NEXT_READY);
	assert_int_equal(w.sender.slots[w.sender.next_slot].nic, 0);
	ends_well();
}

/* An event of the NIC that is not in use: it is not well, and the time begins anew. */
static void a_nic_that_is_suspected_meanwhile_has_to_be_well_from_then_on(void **state)
{
	const struct plan plan = {.seed = 1, .return_ms = 100};

	(void)state;
	begins_on_its_nic(&plan);
	breaks(FALSE_ALARM);
	goes_on(1000, 1);
	goes_on(60, UINT32_MAX);
	ha_ibgda_sender_suspect(&w.sender, 0);
	goes_on(80, UINT32_MAX);
	assert_int_equal(nic_in_use(), 1);
	goes_on(40, UINT32_MAX);
	assert_int_equal(nic_in_use(), 0);
	ends_well();
}

static void a_nic_that_fails_as_soon_as_it_is_trusted_is_trusted_ever_more_seldom(void **state)
{
	const struct plan plan = {.seed = 1, .return_ms = 25};

	(void)state;
	begins_on_its_nic(&plan);
	for (uint64_t until = sv_stepped_now() + 800ull * MS; sv_stepped_now() < until; event())
		if (nic_in_use() == 0 && w.sender.phase == HA_IBGDA_RUNNING)
			breaks(FALSE_ALARM);
	assert_in_range(w.sender.moves, 4, 6); /* after 25, 50, 100, 200 and 400 ms */
	ends_well();
}

/* No event tells of it. To go there and see would make threads wait, over and over. */
static void a_nic_that_is_cut_in_silence_is_gone_back_to_when_a_probe_comes_through(void **state)
{
	const struct plan plan = {.seed = 1, .return_ms = 100};

	(void)state;
	begins_on_its_nic(&plan);
	for (unsigned int times = 1; times <= 2; times++) {
		breaks(RAIL_CUT);
		breaks(FALSE_ALARM);
		goes_on(1000, 2 * times - 1);
		assert_int_equal(nic_in_use(), 1);
		w.sender.hold_ns =
		    (uint64_t)plan.return_ms * MS; /* not what the time before was worth */
		w.sender.due_ns = sv_stepped_now() + w.sender.hold_ns;
		goes_on(450, UINT32_MAX);
		assert_int_equal(nic_in_use(), 1);
		assert_int_equal(w.sender.host.generation, 2 * times - 1);
		assert_in_range(w.sender.probes, 4 * times - 2, 5 * times);
		heals();
		goes_on(150, UINT32_MAX);
		assert_int_equal(nic_in_use(), 0);
		assert_int_equal(w.sender.failovers, times);
		assert_int_equal(w.sender.moves, times);
	}
	ends_well();
}

static void an_order_to_go_where_nothing_comes_through_is_done_when_something_does(void **state)
{
	const struct plan plan = {.seed = 2};

	(void)state;
	begins_on_its_nic(&plan);
	sv_stepped_cut(1, true);
	ha_ibgda_sender_move(&w.sender, 1);
	goes_on(200, UINT32_MAX);
	assert_int_equal(w.sender.host.generation, 0);
	heals();
	goes_on(100, UINT32_MAX);
	assert_int_equal(nic_in_use(), 1);
	assert_int_equal(w.sender.failovers, 0);
	assert_true(w.sender.probes > 1);
	ends_well();
}

/* It may have come through before that. */
static void a_probe_that_is_under_way_when_its_nic_is_suspected_proves_nothing(void **state)
{
	const struct plan plan = {.seed = 3};

	(void)state;
	begins_on_its_nic(&plan);
	ha_ibgda_sender_move(&w.sender, 1);
	while (w.sender.probe.state != HA_IBGDA_PROBE_SENT)
		event();
	for (unsigned int n = 0; n < 64; n++)
		fabric_steps();
	sv_stepped_cut(1, true);
	ha_ibgda_sender_suspect(&w.sender, 1);
	goes_on(200, UINT32_MAX);
	assert_int_equal(w.sender.host.generation, 0);
	heals();
	goes_on(600, 1);
	assert_int_equal(nic_in_use(), 1);
	ends_well();
}

/* Who has taken the lock rings. As long as it sleeps all the others would wait at the gate. */
static void a_planned_switch_waits_no_longer_than_that_for_a_thread_that_is_to_ring(void **state)
{
	static const char *const places[] = {"prod", "record", "doorbell", "unlock"};

	(void)state;
	for (unsigned int n = 0; n < sizeof(places) / sizeof(places[0]); n++) {
		const struct plan plan = {.seed = 1 + n, .sleeps_at = places[n]};

		begin(&plan);
		/* That its queue completes nothing would be another reason to leave it. */
		w.sender.settings.silence_ns = 0;
		while (!w.sleeps)
			event();
		ha_ibgda_sender_move(&w.sender, 1);
		goes_on(130, 1);
		assert_int_equal(nic_in_use(), 1);
		assert_int_equal(w.sender.failovers, 1);
		goes_on(20, UINT32_MAX);
		assert_true(w.has_ended[1] && w.has_ended[2] && !w.has_ended[0]);
		w.sleeps = false;
		goes_on(100, UINT32_MAX);
		ends_well();
	}
}

static void a_planned_switch_of_which_the_other_end_says_nothing_is_an_outage(void **state)
{
	const struct plan plan = {.seed = 1};

	(void)state;
	begins_on_its_nic(&plan);
	ha_ibgda_sender_move(&w.sender, 1);
	while (w.sender.phase != HA_IBGDA_CLOSING)
		event();
	assert_true(w.sender.is_planned);
	w.peer_is_mute = true;
	goes_on(OUTAGE_MS * 11 / 10, UINT32_MAX);
	assert_string_equal(w.sender.fault, "there was no path for too long");
	end();
}

/* Kernels there wait for signals that never come: their program is to know. */
static void who_receives_hears_that_the_stream_is_over(void **state)
{
	const struct plan plan = {.seed = 1};

	(void)state;
	begins_on_its_nic(&plan);
	breaks(ALL_RECEIVERS_LINKS);
	goes_on(OUTAGE_MS * 11 / 10, UINT32_MAX);
	assert_string_equal(w.sender.fault, "there was no path for too long");
	assert_non_null(w.receiver.fault);
	assert_string_equal(w.receiver.fault, "the other end is gone");
	end();
}

/* Not only when the next failure asks for a word of it. */
static void who_puts_hears_that_the_receiver_has_ended_it(void **state)
{
	(void)state;
	for (unsigned int by_program = 0; by_program < 2; by_program++) {
		const struct plan plan = {.seed = 1 + by_program};

		begins_on_its_nic(&plan);
		if (by_program)
			ha_ibgda_receiver_end(&w.receiver);
		else
			ha_ibgda_receiver_abort(&w.receiver, "a reason");
		goes_on(10, UINT32_MAX);
		assert_string_equal(w.receiver.fault,
				    by_program ? "its program has ended it" : "a reason");
		assert_non_null(w.sender.fault);
		assert_string_equal(w.sender.fault, "the other end is gone");
		assert_true(all_have_ended());
		end();
	}
}

static void both_hosts_look(void)
{
	ha_ibgda_sender_step(&w.sender, sv_stepped_now());
	(void)ha_ibgda_sender_prepare(&w.sender, sv_stepped_now());
	ha_ibgda_receiver_step(&w.receiver, sv_stepped_now());
	(void)ha_ibgda_receiver_prepare(&w.receiver);
}

/* Again and again, also while nothing moves. */
static void hosts_go_on(unsigned int ms, uint32_t generation)
{
	const uint64_t until = sv_stepped_now() + (uint64_t)ms * MS;

	while (sv_stepped_now() < until && w.sender.host.generation < generation) {
		sv_stepped_run(sv_stepped_now() + 50000);
		both_hosts_look();
	}
}

/* Its device does not destroy it: what it answers now it was asked before. */
static void a_flush_that_was_given_up_proves_nothing_later(void **state)
{
	/* Nothing is tried again so soon, and what is not proved is accepted. */
	const struct plan plan = {.seed = 1, .rate_mbps = 100000};
	int late, refused;

	(void)state;
	begins_on_its_nic(&plan);
	breaks(FALSE_ALARM);
	while (!w.receiver.flushing)
		event();
	late = add_rule("delay=30ms host=1 rail=0 op=readresp count=1");
	refused = add_rule("errno=EBUSY host=1 rail=0 verb=destroy_qp count=1");
	hosts_go_on(60, UINT32_MAX);
	assert_int_equal(fired(late), 1);
	assert_int_equal(fired(refused), 1);
	assert_int_equal(w.sender.host.generation, 1);
	assert_false(w.sender.verdict.is_flushed);
	ha_ibgda_sender_move(&w.sender, 0);
	hosts_go_on(60, UINT32_MAX);
	assert_int_equal(w.sender.host.generation, 2);
	assert_int_equal(nic_in_use(), 0);
	breaks(FALSE_ALARM);
	hosts_go_on(60, 3);
	assert_int_equal(w.sender.host.generation, 3);
	assert_false(w.sender.verdict.is_flushed);
	ends_well();
}

/* It was acknowledged, and the NIC that it came by cannot be asked any more. */
static void what_a_thread_has_seen_placed_is_proved_when_the_nic_dies(void **state)
{
	const struct plan plan = {.seed = 2, .places_last = true};

	(void)state;
	begin(&plan);
	while (!all_have_ended() && !w.result.wrong)
		event();
	breaks(RECEIVER_DIES);
	goes_on(1000, 1);
	assert_null(w.sender.fault);
	assert_int_equal(w.sender.host.generation, 1);
	assert_int_equal(w.sender.unproved, 0);
	ends_well();
}

/* The program's mistake: no path carries such a put, so the stream does not try one after the
 * other. */
static void memory_that_unfinished_puts_name_is_deregistered_and_the_stream_says_so(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		const enum fault fault = seed % 2 ? SENDER_FORGETS : RECEIVER_FORGETS;
		const struct result result =
		    run(&(struct plan){.seed = seed, .fault = fault, .at = 300});

		assert_string_equal(result.over, "a put names memory that is not registered");
		assert_int_equal(result.generations, 0);
		assert_true(w.ended_ns - w.cut_ns < 20ull * MS);
	}
}

/* Per stream: its queues, a completion for each request, and two records; and nothing is left. */
static void ends_that_come_and_go_leave_nothing(void **state)
{
	const size_t depth = 1u << LOG;
	const int descriptors = open_descriptors();

	(void)state;
	for (uint64_t seed = 1; seed <= (stride > 1 ? 100 : 1000); seed++) {
		const struct plan plan = {.seed = seed};

		begin(&plan);
		while (w.sender.next != HA_IBGDA_NEXT_READY || w.sender.phase != HA_IBGDA_RUNNING)
			both_hosts_look();
		for (unsigned int slot = 0; slot < HA_IBGDA_QUEUES; slot++) {
			size_t bytes = 0;

			for (unsigned int part = 0; part < 4; part++)
				bytes += w.sender.slots[slot].arena.parts[part].size;
			assert_true(bytes <= (slot < 2 ? depth * 128 + 128 : 0));
		}
		end();
	}
	assert_int_equal(open_descriptors(), descriptors);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(without_faults_every_byte_and_signal_is_right),
	    cmocka_unit_test(
		a_thread_that_sleeps_through_more_failures_than_there_are_queues_is_waited_for),
	    cmocka_unit_test(what_nobody_waits_for_arrives_all_the_same),
	    cmocka_unit_test(without_any_path_every_thread_returns_when_it_has_lasted_too_long),
	    cmocka_unit_test(a_queue_pair_that_completes_nothing_without_a_word_is_left),
	    cmocka_unit_test(what_is_said_of_another_queue_pair_is_not_of_the_one_that_fails),
	    cmocka_unit_test(a_stream_that_has_nothing_to_do_stays_where_it_is),
	    cmocka_unit_test(a_put_that_takes_long_on_a_slow_link_is_waited_for),
	    cmocka_unit_test(a_stream_goes_back_to_its_nic_when_that_has_been_well_for_long_enough),
	    cmocka_unit_test(the_backup_goes_to_the_other_nic_as_soon_as_that_may_be_tried),
	    cmocka_unit_test(a_nic_that_is_suspected_meanwhile_has_to_be_well_from_then_on),
	    cmocka_unit_test(a_nic_that_fails_as_soon_as_it_is_trusted_is_trusted_ever_more_seldom),
	    cmocka_unit_test(
		a_nic_that_is_cut_in_silence_is_gone_back_to_when_a_probe_comes_through),
	    cmocka_unit_test(
		an_order_to_go_where_nothing_comes_through_is_done_when_something_does),
	    cmocka_unit_test(a_probe_that_is_under_way_when_its_nic_is_suspected_proves_nothing),
	    cmocka_unit_test(
		a_planned_switch_waits_no_longer_than_that_for_a_thread_that_is_to_ring),
	    cmocka_unit_test(a_planned_switch_of_which_the_other_end_says_nothing_is_an_outage),
	    cmocka_unit_test(who_receives_hears_that_the_stream_is_over),
	    cmocka_unit_test(who_puts_hears_that_the_receiver_has_ended_it),
	    cmocka_unit_test(a_flush_that_was_given_up_proves_nothing_later),
	    cmocka_unit_test(what_a_thread_has_seen_placed_is_proved_when_the_nic_dies),
	    cmocka_unit_test(
		memory_that_unfinished_puts_name_is_deregistered_and_the_stream_says_so),
	    cmocka_unit_test(ends_that_come_and_go_leave_nothing),
	    cmocka_unit_test(whatever_fails_at_whatever_event_every_byte_and_signal_is_right),
	};

	if (argc > 1)
		stride = (unsigned int)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests_name("ibgda_fabric", tests, NULL, NULL);
}
