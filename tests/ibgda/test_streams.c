/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many streams at a time over queue pairs of a stepped fabric, in virtual time: each has a thread
 * that runs the code for GPUs, and a host at both ends, which share the NICs. What most of them use
 * is cut, in four ways in turn, until all have gone elsewhere; then it heals, and the other one is
 * cut. Sums are exact, and who sees a signal has its put. And where each host has one thread for
 * all of its ends, which waits for each command of a NIC: how soon the first payload comes.
 *
 *     stepped_ibgda_streams [CUTS SIGNALS]
 */
#include "../unit/cmocka_all.h"

static void yield(const char *where);
#define HA_DEV_STEP(where) yield(where)
#define HA_DEV_PAUSE()	   yield("pause")

#include "ends.h"

#include "../stepped_fabric.h"
#include "base/clock.h"
#include "ibgda/end.h"
#include "ibgda/monitor.h"
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
/* Of the fabric, at most: hosts look at each stream some three times a millisecond. */
#define STEP_NS 1000u
/* From a port that goes down to the first payload over another one, of 99 in 100 streams. */
#define FIRST_NS_MOST	   (10u * MS)
#define FIRST_NS_MOST_MANY (30u * MS) /* of many streams whose hosts wait for each command */
#define FIRST_NS_MOST_BESIDE                                                                       \
	(22u * MS) /* ... of those that have a backup, where others have none */
#define FIRST_NS_MOST_AGAIN (200u * MS) /* ... of those that have no backup, which take 2.6 ms */
#define SOON_NS		    (100u * MS) /* some have a backup again by then, and some have not */
#define ROUND_NS	    100000u	/* between two rounds of a host's thread */
#define FEW_STREAMS	    8u

/* One way between two hosts. */
struct line {
	struct ha_ibgda_message messages[MESSAGES];
	unsigned int said, heard;
	bool is_over;
};

struct line_end {
	struct line *out, *in;
};

/* A host's thread: waits for commands, and a tenth of a millisecond between two rounds. */
struct host {
	ucontext_t thread;
	struct ha_list ends;
	struct stream_end *nics;
	uint64_t until_ns;
};

struct stream {
	struct ha_ibgda_end watched[2];
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
	bool had_backup;      /* then */
};

static struct {
	struct stream streams[STREAMS];
	unsigned int num_streams;
	struct stream_end a, b;
	struct host hosts[2]; /* where they have threads */
	bool have_threads;
	unsigned int host; /* whose turn it is */
	ucontext_t scheduler;
	unsigned int current;
	uint64_t random, events, signals, goal;
	unsigned int left_most;
	uint64_t down_ns; /* when a port went down */
	struct firsts {
		uint64_t *ns; /* from then to a stream's first payload */
		size_t count;
	} firsts[2]; /* of those that had no backup then; that had one */
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
		return line->is_over ? -1 : 0;
	*message = line->messages[line->heard++ % MESSAGES];
	return 1;
}

static void finish(void *context)
{
	((struct line_end *)context)->out->is_over = true;
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

static void context_makes(ucontext_t *context, char stack[STACK], void (*runs)(void))
{
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = STACK;
	context->uc_link = NULL;
	makecontext(context, runs, 0);
}

/* ---- the world ------------------------------------------------------------------------------- */

static void stream_begins(unsigned int number)
{
	const struct ha_ibgda_settings settings = {.log = LOG,
						   .outage_ns = (uint64_t)OUTAGE_MS * MS};
	struct stream *s = &w.streams[number];

	s->watched[0].sender = &s->sender;
	s->watched[1].receiver = &s->receiver;
	for (unsigned int n = 0; n < 2; n++)
		ha_list_push_back(&w.hosts[n].ends, &s->watched[n].in_context);
	s->ends[0] = (struct line_end){&s->lines[0], &s->lines[1]};
	s->ends[1] = (struct line_end){&s->lines[1], &s->lines[0]};
	assert_true(ha_ibgda_receiver_open(
	    &s->receiver, w.b.nics, END_NICS,
	    (struct ha_ibgda_channel){&s->ends[1], says, hears, finish}, NULL));
	ha_ibgda_sender_open(&s->sender, w.a.nics, END_NICS,
			     (struct ha_ibgda_channel){&s->ends[0], says, hears, finish},
			     &settings);
	context_makes(&s->thread, stacks[number], thread_runs);
}

static void begin(unsigned int num_streams)
{
	const struct sv_stepped_opts fabric = {.rails = END_NICS, .seed = 1};

	memset(&w, 0, sizeof(w));
	w.random = 1;
	w.num_streams = num_streams;
	w.goal = UINT64_MAX;
	assert_int_equal(sv_stepped_open(&fabric), 0);
	stream_end_make(&w.a, (struct ibv_context *[]){open_rail(0, 0), open_rail(0, 1)}, w.streams,
			sizeof(w.streams), 8, 2);
	stream_end_make(&w.b, (struct ibv_context *[]){open_rail(1, 0), open_rail(1, 1)}, w.streams,
			sizeof(w.streams), 8, 2);
	w.hosts[0].nics = &w.a;
	w.hosts[1].nics = &w.b;
	for (unsigned int n = 0; n < 2; n++)
		ha_list_init(&w.hosts[n].ends);
	for (unsigned int n = 0; n < num_streams; n++)
		stream_begins(n);
}

static void end(void)
{
	for (unsigned int n = 0; n < END_NICS; n++) {
		struct sv_direct_mistakes m;

		sv_direct_mistakes(w.a.nics[n].context, &m);
		assert_int_equal(m.stale + m.malformed + m.without_record + m.overrun, 0);
	}
	for (unsigned int n = 0; n < w.num_streams; n++) {
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
		struct firsts *firsts = &w.firsts[s->had_backup];

		firsts->ns[firsts->count++] = sv_stepped_now() - w.down_ns;
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

static void look_at_stream(struct stream *s)
{
	must(s->sender.phase != HA_IBGDA_ENDED && !s->receiver.fault, "a stream is over");
	look_at_signal(s);
	look_at_first_payload(s);
	look_at_what_was_left(s);
}

static void hosts_step(struct stream *s)
{
	ha_ibgda_sender_step(&s->sender, sv_stepped_now());
	(void)ha_ibgda_sender_prepare(&s->sender, sv_stepped_now());
	ha_ibgda_receiver_step(&s->receiver, sv_stepped_now());
	(void)ha_ibgda_receiver_prepare(&s->receiver);
	look_at_stream(s);
}

static void watch_nics(void)
{
	for (unsigned int nic = 0; nic < END_NICS; nic++) {
		const bool a = ha_ibgda_nic_has_failed(&w.a.nics[nic]);
		const bool b = ha_ibgda_nic_has_failed(&w.b.nics[nic]);

		for (unsigned int n = 0; n < w.num_streams; n++) {
			if (a)
				ha_ibgda_sender_suspect(&w.streams[n].sender, nic);
			if (b)
				ha_ibgda_receiver_suspect(&w.streams[n].receiver, nic);
		}
	}
}

/* ---- hosts with a thread each ---------------------------------------------------------------- */

static void host_sleeps(uint64_t ns)
{
	struct host *host = &w.hosts[w.host];

	host->until_ns = sv_stepped_now() + ns;
	swapcontext(&host->thread, &w.scheduler);
}

/* Of whichever end's: each waits for its own. */
static void command_takes_time(const struct sv_wait_info *info, void *unused)
{
	(void)unused;
	host_sleeps(info->wait_ns);
}

static void host_runs(void)
{
	struct host *host = &w.hosts[w.host];

	for (;;) {
		for (unsigned int nic = 0; nic < END_NICS; nic++)
			if (ha_ibgda_nic_has_failed(&host->nics->nics[nic]))
				ha_ibgda_monitor_suspect(&host->ends, nic);
		ha_ibgda_monitor_round(&host->ends);
		host_sleeps(ROUND_NS);
	}
}

/* Commands as a ConnectX's, or such that take no time. */
static void hosts_begin(bool is_slow)
{
	static char host_stacks[2][STACK];
	char why[200];

	w.have_threads = true;
	ha_clock_set_source(sv_stepped_now);
	sv_stepped_on_wait(command_takes_time, NULL);
	if (is_slow)
		assert_int_equal(sv_stepped_fault_add("wait=1ms verb=create_qp\n"
						      "wait=1ms verb=create_cq\n"
						      "wait=200us verb=modify_qp\n"
						      "wait=200us verb=destroy_qp",
						      why, sizeof(why)),
				 0);
	for (unsigned int n = 0; n < 2; n++)
		context_makes(&w.hosts[n].thread, host_stacks[n], host_runs);
}

static void hosts_end(void)
{
	sv_stepped_on_wait(NULL, NULL);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_clock_set_source(NULL);
}

static void hosts_run(struct stream *s)
{
	for (w.host = 0; w.host < 2; w.host++)
		if (sv_stepped_now() >= w.hosts[w.host].until_ns)
			swapcontext(&w.scheduler, &w.hosts[w.host].thread);
	look_at_stream(s);
}

static void event(void)
{
	struct stream *s = &w.streams[w.current = some(w.num_streams)];

	if (w.events++ % 256 == 0 && !w.have_threads)
		watch_nics();
	switch (some(8)) {
	case 0:
		if (w.have_threads)
			hosts_run(s);
		else
			hosts_step(s);
		return;
	case 1:
	case 2:
		if (!s->has_ended)
			swapcontext(&w.scheduler, &s->thread);
		return;
	default:
		stepped_goes_on(STEP_NS);
	}
}

static void until_signals(uint64_t count)
{
	while (w.signals < count && !w.wrong)
		event();
}

static bool have_all_left(uint32_t rail)
{
	for (unsigned int n = 0; n < w.num_streams; n++)
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

static bool has_backup(const struct stream *s)
{
	const struct ha_ibgda_sender *sender = &s->sender;

	return sender->phase == HA_IBGDA_RUNNING && sender->next == HA_IBGDA_NEXT_READY &&
	       sender->slots[sender->next_slot].nic != ha_ibgda_sender_nic(sender);
}

static void await_first_payloads(void)
{
	w.down_ns = sv_stepped_now();
	for (unsigned int n = 0; n < w.num_streams; n++) {
		w.streams[n].generation = w.streams[n].sender.host.generation;
		w.streams[n].first_floor = 0;
		w.streams[n].is_awaited = true;
		w.streams[n].had_backup = has_backup(&w.streams[n]);
	}
}

static bool is_a_first_payload_awaited(void)
{
	for (unsigned int n = 0; n < w.num_streams; n++)
		if (w.streams[n].is_awaited)
			return true;
	return false;
}

static bool have_all_a_backup(void)
{
	for (unsigned int n = 0; n < w.num_streams; n++)
		if (!has_backup(&w.streams[n]))
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
		for (unsigned int n = 0; n < w.num_streams; n++)
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
	for (unsigned int n = 0; n < w.num_streams; n++)
		if (!w.streams[n].has_ended || w.streams[n].seen != w.streams[n].sum)
			return false;
	return true;
}

static int compare(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void begin_to_measure(unsigned int most_cuts)
{
	for (unsigned int n = 0; n < 2; n++) {
		w.firsts[n].ns = calloc((size_t)w.num_streams * most_cuts, sizeof(uint64_t));
		assert_non_null(w.firsts[n].ns);
	}
}

static void end_to_measure(void)
{
	for (unsigned int n = 0; n < 2; n++)
		free(w.firsts[n].ns);
}

static void first_payloads_came_soon(bool had_backup, size_t least, uint64_t most_ns)
{
	const struct firsts *firsts = &w.firsts[had_backup];
	const size_t p99 = firsts->count - 1 - firsts->count / 100;

	assert_true(firsts->count >= least);
	qsort(firsts->ns, firsts->count, sizeof(uint64_t), compare);
	printf("first payload after a port went down, %s a backup: median %.2f ms, p99 %.2f, last "
	       "%.2f (of %zu)\n",
	       had_backup ? "with" : "without", (double)firsts->ns[firsts->count / 2] / MS,
	       (double)firsts->ns[p99] / MS, (double)firsts->ns[firsts->count - 1] / MS,
	       firsts->count);
	assert_true(firsts->ns[p99] < most_ns);
}

static void sums_of_many_streams_are_exact_over_many_cuts(void **state)
{
	unsigned long failovers = 0;
	uint64_t all = 0;

	(void)state;
	begin(STREAMS);
	begin_to_measure(cuts);
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
	for (unsigned int n = 0; n < w.num_streams; n++) {
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
	first_payloads_came_soon(true, (size_t)STREAMS * (cuts / 4), FIRST_NS_MOST);
	end_to_measure();
	end();
}

/* The NIC that all use: of one end, and of the other one. */
static void port_goes_down(unsigned int number)
{
	const uint32_t rail = ha_ibgda_sender_nic(&w.streams[0].sender);
	const uint64_t latest = w.events + EVENTS_MOST;

	sets(number % 2, rail, false);
	await_first_payloads();
	while ((!have_all_left(rail) || is_a_first_payload_awaited()) && w.events < latest &&
	       !w.wrong)
		event();
	must(!is_a_first_payload_awaited(), "nothing comes over the other NIC");
	sets(number % 2, rail, true);
}

static void until_all_have_a_backup(void)
{
	for (const uint64_t latest = w.events + EVENTS_MOST;
	     !have_all_a_backup() && w.events < latest && !w.wrong;)
		event();
	must(have_all_a_backup(), "a stream has no backup");
}

static void ports_of_hosts_begin(unsigned int num_streams, bool is_slow)
{
	begin(num_streams);
	begin_to_measure(2);
	hosts_begin(is_slow);
	until_all_have_a_backup();
	port_goes_down(0);
}

static void ports_of_hosts_end(void)
{
	hosts_end();
	if (w.wrong)
		fail_msg("%s, after %llu events", w.wrong, (unsigned long long)w.events);
}

static void streams_with_a_backup_leave_in(unsigned int num_streams, bool is_slow, uint64_t most_ns)
{
	ports_of_hosts_begin(num_streams, is_slow);
	until_all_have_a_backup();
	port_goes_down(1);
	ports_of_hosts_end();
	printf("%u streams, commands %s: ", num_streams,
	       is_slow ? "as a ConnectX's" : "that take no time");
	first_payloads_came_soon(true, 2 * num_streams, most_ns);
	end_to_measure();
	end();
}

static void streams_leave_a_port_in_time_also_where_commands_take_it(void **state)
{
	(void)state;
	streams_with_a_backup_leave_in(STREAMS, false, FIRST_NS_MOST);
	streams_with_a_backup_leave_in(FEW_STREAMS, true, FIRST_NS_MOST);
	streams_with_a_backup_leave_in(STREAMS, true, FIRST_NS_MOST_MANY);
}

/* Who has one does not wait for those whose backup is made. */
static void streams_with_a_backup_do_not_wait_for_those_without(void **state)
{
	(void)state;
	ports_of_hosts_begin(STREAMS, true);
	for (const uint64_t until_ns = sv_stepped_now() + SOON_NS;
	     sv_stepped_now() < until_ns && !w.wrong;)
		event();
	w.firsts[true].count = 0;
	port_goes_down(1);
	ports_of_hosts_end();
	first_payloads_came_soon(true, 8, FIRST_NS_MOST_BESIDE);
	first_payloads_came_soon(false, 8, FIRST_NS_MOST_AGAIN);
	end_to_measure();
	end();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sums_of_many_streams_are_exact_over_many_cuts),
	    cmocka_unit_test(streams_leave_a_port_in_time_also_where_commands_take_it),
	    cmocka_unit_test(streams_with_a_backup_do_not_wait_for_those_without),
	};

	if (argc > 2) {
		cuts = (unsigned int)strtoul(argv[1], NULL, 10);
		signals = strtoull(argv[2], NULL, 10);
	}
	return cmocka_run_group_tests_name("ibgda_streams", tests, NULL, NULL);
}
