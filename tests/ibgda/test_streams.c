/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many streams at a time over queue pairs of a stepped fabric, in virtual time: each has a thread
 * that runs the code for GPUs, and a host at both ends, which share the NICs. What most of them use
 * is cut, in four ways in turn, until all have gone elsewhere; then it heals, and the other one is
 * cut. Sums are exact, and who sees a signal has its put.
 *
 *     stepped_ibgda_streams [CUTS SIGNALS]
 */
#include "../unit/cmocka_all.h"

static void yield(const char *where);
#define HA_DEV_STEP(where) yield(where)
#define HA_DEV_PAUSE()	   yield("pause")

#include "ends.h"

#include "nccl_ha/ibgda.cuh"

#include <simverbs/mlx5.h>
#include <simverbs/simverbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STREAMS	    64u
#define LOG	    3u
#define IN_FLIGHT   4u /* posts of a thread: each has two requests */
#define MESSAGES    16u
#define STACK	    (64u * 1024)
#define MS	    1000000u
#define OUTAGE_MS   3000u
#define EVENTS_MOST 20000000u /* until all have left a NIC that is cut */
#define LEFT_MOST   3u	      /* queues of a stream that were left and are not free yet */
#define STEP_NS	    1000u     /* of the fabric, at most */
/* From a port that goes down to the first payload over another one, of 99 in 100 streams. */
#define FIRST_NS_MOST (10u * MS)

/* One way between two hosts. */
struct line {
	struct ha_ibgda_message messages[MESSAGES];
	unsigned int said, heard;
};

struct line_end {
	struct line *out, *in;
};

struct stream {
	struct ha_ibgda_sender sender;
	struct ha_ibgda_receiver receiver;
	struct line lines[2];
	struct line_end ends[2];
	ucontext_t thread;
	bool has_ended;
	uint64_t sources[IN_FLIGHT], target;
	uint64_t sum, seen, signals;
	uint32_t generation;  /* when its port went down */
	uint64_t first_floor; /* its signal when it was in the next one; 0: not yet */
	bool is_awaited;      /* its first payload there */
};

static struct {
	struct stream streams[STREAMS];
	struct stream_end a, b;
	ucontext_t scheduler;
	unsigned int current;
	uint64_t random, events, signals, goal;
	unsigned int left_most;
	uint64_t down_ns; /* when a port went down */
	uint64_t *firsts; /* ns from then to a stream's first payload, */
	size_t num_firsts;
	const char *wrong;
} w;

static char stacks[STREAMS][STACK];
static unsigned int cuts = 12;
static uint64_t signals = 6000;

static void must(bool condition, const char *what)
{
	if (!condition && !w.wrong)
		w.wrong = what;
}

static unsigned int some(unsigned int below)
{
	w.random = w.random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(w.random >> 33) % below;
}

/* ---- what the hosts of a stream say to each other -------------------------------------------- */

static bool says(void *context, const struct ha_ibgda_message *message)
{
	struct line *line = ((struct line_end *)context)->out;

	if (line->said - line->heard == MESSAGES)
		return false;
	line->messages[line->said++ % MESSAGES] = *message;
	return true;
}

static int hears(void *context, struct ha_ibgda_message *message)
{
	struct line *line = ((struct line_end *)context)->in;

	if (line->said == line->heard)
		return 0;
	*message = line->messages[line->heard++ % MESSAGES];
	return 1;
}

/* ---- threads of the GPU ---------------------------------------------------------------------- */

/* Who waits lets others act each time, who stores or loads now and then. */
static void yield(const char *where)
{
	if (!strcmp(where, "pause") || !some(4))
		swapcontext(&w.streams[w.current].thread, &w.scheduler);
}

/* Puts the sum that its signal makes: what is put never decreases. */
static bool put_next(struct stream *s, unsigned int slot, uint64_t *last)
{
	struct ha_ibgda_work post = {
	    .put = {(uintptr_t)&s->sources[slot], (uintptr_t)&s->target, 1, 1, 8},
	    .signal = {0, 1 + some(3)}};

	s->sources[slot] = s->sum += post.signal.addend;
	if (ha_ibgda_post(&s->sender.stream, &post) != HA_IBGDA_OK)
		return false;
	s->signals++;
	w.signals++;
	*last = post.first + post.count - 1;
	return true;
}

static void thread_runs(void)
{
	struct stream *s = &w.streams[w.current];
	uint64_t last[IN_FLIGHT] = {0};
	bool is_over = false;

	for (uint64_t n = 0; !is_over && w.signals < w.goal; n++) {
		const unsigned int slot = (unsigned int)(n % IN_FLIGHT);

		is_over = (n >= IN_FLIGHT &&
			   ha_ibgda_quiet(&s->sender.stream, last[slot]) != HA_IBGDA_OK) ||
			  !put_next(s, slot, &last[slot]);
		if (!is_over && !some(4))
			is_over = ha_ibgda_quiet(&s->sender.stream, last[slot]) != HA_IBGDA_OK;
	}
	must(!is_over, "a thread was sent away");
	s->has_ended = true;
	swapcontext(&s->thread, &w.scheduler);
}

static void thread_begins(unsigned int number)
{
	ucontext_t *context = &w.streams[number].thread;

	getcontext(context);
	context->uc_stack.ss_sp = stacks[number];
	context->uc_stack.ss_size = STACK;
	context->uc_link = NULL;
	makecontext(context, thread_runs, 0);
}

/* ---- the world ------------------------------------------------------------------------------- */

static void stream_begins(unsigned int number)
{
	const struct ha_ibgda_settings settings = {.log = LOG,
						   .outage_ns = (uint64_t)OUTAGE_MS * MS};
	struct stream *s = &w.streams[number];

	s->ends[0] = (struct line_end){&s->lines[0], &s->lines[1]};
	s->ends[1] = (struct line_end){&s->lines[1], &s->lines[0]};
	assert_true(ha_ibgda_receiver_open(&s->receiver, w.b.nics, END_NICS,
					   (struct ha_ibgda_channel){&s->ends[1], says, hears},
					   NULL));
	ha_ibgda_sender_open(&s->sender, w.a.nics, END_NICS,
			     (struct ha_ibgda_channel){&s->ends[0], says, hears}, &settings);
	thread_begins(number);
}

static void begin(void)
{
	const struct sv_stepped_opts fabric = {.rails = END_NICS, .seed = 1};

	memset(&w, 0, sizeof(w));
	w.random = 1;
	w.goal = UINT64_MAX;
	assert_int_equal(sv_stepped_open(&fabric), 0);
	stream_end_make(&w.a, (struct ibv_context *[]){open_rail(0, 0), open_rail(0, 1)}, w.streams,
			sizeof(w.streams), 8, 2);
	stream_end_make(&w.b, (struct ibv_context *[]){open_rail(1, 0), open_rail(1, 1)}, w.streams,
			sizeof(w.streams), 8, 2);
	for (unsigned int n = 0; n < STREAMS; n++)
		stream_begins(n);
}

static void end(void)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		struct sv_direct_mistakes m;

		sv_direct_mistakes(w.a.nics[n].context, &m);
		assert_int_equal(m.stale + m.malformed + m.without_record + m.overrun, 0);
	}
	for (unsigned int n = 0; n < STREAMS; n++) {
		ha_ibgda_sender_close(&w.streams[n].sender);
		ha_ibgda_receiver_close(&w.streams[n].receiver);
	}
	stream_end_give(&w.a);
	stream_end_give(&w.b);
	assert_int_equal(sv_stepped_close(), 0);
}

/* Who sees a signal has its put, and those before it. */
static void look_at_signal(struct stream *s)
{
	const uint64_t value = ha_ibgda_receiver_signal(&s->receiver, 0);

	must(value >= s->seen, "a signal goes back");
	must(s->target >= value, "a signal is there, and its put is not");
	s->seen = value;
}

/* Over the next queue pair: what had come over the old one when that was opened does not count. */
static void look_at_first_payload(struct stream *s)
{
	if (!s->is_awaited || s->sender.host.generation == s->generation)
		return;
	if (!s->first_floor) {
		s->first_floor = 1 + s->seen;
	} else if (s->seen >= s->first_floor) {
		w.firsts[w.num_firsts++] = sv_stepped_now() - w.down_ns;
		s->is_awaited = false;
	}
}

/* Of a stream whose threads are awake they are soon free again. */
static void look_at_what_was_left(const struct stream *s)
{
	unsigned int left = 0;

	for (unsigned int n = 0; n < HA_IBGDA_QUEUES; n++)
		left += s->sender.host.use[n] > HA_IBGDA_IN_USE;
	w.left_most = left > w.left_most ? left : w.left_most;
}

static void hosts_step(struct stream *s)
{
	ha_ibgda_sender_step(&s->sender, sv_stepped_now());
	ha_ibgda_receiver_step(&s->receiver, sv_stepped_now());
	must(s->sender.phase != HA_IBGDA_ENDED && !s->receiver.fault, "a stream is over");
	look_at_signal(s);
	look_at_first_payload(s);
	look_at_what_was_left(s);
}

static void watch_nics(void)
{
	for (unsigned int nic = 0; nic < END_NICS; nic++) {
		const bool a = ha_ibgda_nic_has_failed(&w.a.nics[nic]);
		const bool b = ha_ibgda_nic_has_failed(&w.b.nics[nic]);

		for (unsigned int n = 0; n < STREAMS; n++) {
			if (a)
				ha_ibgda_sender_suspect(&w.streams[n].sender, nic);
			if (b)
				ha_ibgda_receiver_suspect(&w.streams[n].receiver, nic);
		}
	}
}

/* The next event; but time does not run ahead of hosts, who look at each stream some three times a
 * millisecond. */
static void fabric_steps(void)
{
	const uint64_t soon_ns = sv_stepped_now() + STEP_NS;
	struct sv_event_info next;

	if (sv_stepped_peek(&next) && next.time_ns <= soon_ns)
		sv_stepped_step();
	else
		sv_stepped_run(soon_ns);
}

static void event(void)
{
	struct stream *s = &w.streams[w.current = some(STREAMS)];

	if (w.events++ % 256 == 0)
		watch_nics();
	switch (some(8)) {
	case 0:
		hosts_step(s);
		return;
	case 1:
	case 2:
		if (!s->has_ended)
			swapcontext(&w.scheduler, &s->thread);
		return;
	default:
		fabric_steps();
	}
}

static void until_signals(uint64_t count)
{
	while (w.signals < count && !w.wrong)
		event();
}

static bool have_all_left(uint32_t rail)
{
	for (unsigned int n = 0; n < STREAMS; n++)
		if (w.streams[n].sender.phase != HA_IBGDA_RUNNING ||
		    ha_ibgda_sender_nic(&w.streams[n].sender) == rail)
			return false;
	return true;
}

static void sets(unsigned int kind, uint32_t rail, bool is_up)
{
	if (kind == 0)
		sv_stepped_link(0, rail, is_up);
	else if (kind == 1)
		sv_stepped_link(1, rail, is_up);
	else
		sv_stepped_cut(rail, !is_up);
}

static void await_first_payloads(void)
{
	w.down_ns = sv_stepped_now();
	for (unsigned int n = 0; n < STREAMS; n++) {
		w.streams[n].generation = w.streams[n].sender.host.generation;
		w.streams[n].first_floor = 0;
		w.streams[n].is_awaited = true;
	}
}

static bool is_a_first_payload_awaited(void)
{
	for (unsigned int n = 0; n < STREAMS; n++)
		if (w.streams[n].is_awaited)
			return true;
	return false;
}

static bool have_all_a_backup(void)
{
	for (unsigned int n = 0; n < STREAMS; n++)
		if (w.streams[n].sender.phase != HA_IBGDA_RUNNING ||
		    w.streams[n].sender.next != HA_IBGDA_NEXT_READY ||
		    w.streams[n].sender.slots[w.streams[n].sender.next_slot].nic ==
			ha_ibgda_sender_nic(&w.streams[n].sender))
			return false;
	return true;
}

/* The NIC that all of them use: by an event of one end, of the other one, in silence, and on an
 * alarm that is false. Half of the time as soon as they are there, when the other NIC may be one
 * that is not tried again yet; else when they have a backup, and then time is taken. */
static void cut(unsigned int number)
{
	const uint32_t rail = ha_ibgda_sender_nic(&w.streams[0].sender);
	const unsigned int kind = number % 4;
	const bool is_timed = kind < 2 && number % 8 < 4;
	const uint64_t latest = w.events + EVENTS_MOST;

	while (is_timed && !have_all_a_backup() && w.events < latest && !w.wrong)
		event();
	must(!is_timed || have_all_a_backup(), "a stream has no backup");
	if (kind == 3)
		for (unsigned int n = 0; n < STREAMS; n++)
			ha_ibgda_sender_suspect(&w.streams[n].sender, rail);
	else
		sets(kind, rail, false);
	if (is_timed)
		await_first_payloads();
	while ((!have_all_left(rail) || is_a_first_payload_awaited()) && w.events < latest &&
	       !w.wrong)
		event();
	must(!is_a_first_payload_awaited(), "nothing comes over the other NIC");
	must(have_all_left(rail), "a stream does not leave a NIC that was cut");
	if (kind != 3)
		sets(kind, rail, true);
}

static bool have_all_ended(void)
{
	for (unsigned int n = 0; n < STREAMS; n++)
		if (!w.streams[n].has_ended || w.streams[n].seen != w.streams[n].sum)
			return false;
	return true;
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void first_payloads_come_soon(void)
{
	const size_t p99 = w.num_firsts - 1 - w.num_firsts / 100;

	assert_true(w.num_firsts >= (size_t)STREAMS * (cuts / 4));
	qsort(w.firsts, w.num_firsts, sizeof(*w.firsts), compare);
	printf(
	    "first payload after a port went down: median %.2f ms, p99 %.2f, last %.2f (of %zu)\n",
	    (double)w.firsts[w.num_firsts / 2] / MS, (double)w.firsts[p99] / MS,
	    (double)w.firsts[w.num_firsts - 1] / MS, w.num_firsts);
	assert_true(w.firsts[p99] < FIRST_NS_MOST);
}

static void sums_of_many_streams_are_exact_over_many_cuts(void **state)
{
	unsigned long failovers = 0;
	uint64_t all = 0;

	(void)state;
	begin();
	w.firsts = calloc((size_t)STREAMS * cuts, sizeof(*w.firsts));
	assert_non_null(w.firsts);
	for (unsigned int number = 0; number < cuts && !w.wrong; number++) {
		until_signals(signals * (number + 1) / (cuts + 1));
		cut(number);
	}
	until_signals(signals);
	w.goal = 0;
	for (uint64_t latest = w.events + EVENTS_MOST;
	     !have_all_ended() && w.events < latest && !w.wrong;)
		event();
	must(have_all_ended(), "somebody waits for ever");
	for (unsigned int n = 0; n < STREAMS; n++) {
		struct stream *s = &w.streams[n];

		must(ha_ibgda_receiver_signal(&s->receiver, 0) == s->sum && s->target == s->sum,
		     "a sum is wrong");
		must(s->sender.failovers >= cuts && s->sender.unproved == 0,
		     "a stream has missed a cut");
		failovers += s->sender.failovers;
		all += s->signals;
	}
	if (w.wrong)
		fail_msg("%s, after %llu events and %llu signals", w.wrong,
			 (unsigned long long)w.events, (unsigned long long)w.signals);
	assert_true(all >= signals);
	printf("%u streams, %u cuts, %lu failovers, %llu signals, %llu ms\n", STREAMS, cuts,
	       failovers, (unsigned long long)all, (unsigned long long)(sv_stepped_now() / MS));
	printf("%u queues left at most\n", w.left_most);
	assert_in_range(w.left_most, 1, LEFT_MOST);
	first_payloads_come_soon();
	free(w.firsts);
	end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_of_many_streams_are_exact_over_many_cuts),
	};

	if (argc > 2) {
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
		signals = strtoull(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests_name("ibgda_streams", tests, NULL, NULL);
}
