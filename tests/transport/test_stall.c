/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traffic that stands still: a cut in the network that nobody reports is noticed long before three
 * heartbeats are missing, and a peer that is slow, stopped or without a processor is left alone.
 * Turns of both background threads and polls of both applications, in virtual time.
 */
#include "harness.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "instance/instance.h"
#include "liveness/liveness.h"
#include "transport/retain.h"

#include <string.h>

/*
 * From a cut to payload elsewhere at default settings: 10 ms nothing is completed, which polls
 * notice within 2 ms and visits within 5, 40 ms nothing is heard, of which the last ping is up to 4
 * ms away, and two ends move.
 */
#define CUT_MS	    60
#define UNPOLLED_MS 65
/*
 * The same where the path in reserve is cut as well: 15 ms until that is told, at the sender and at
 * the receiver, which may have had nothing outstanding; then the 40 ms are the receiver's, and
 * meanwhile a path is built elsewhere, over which the peer testifies.
 */
#define BOTH_PATHS_CUT_MS 75

enum { SIZE = 20000 };

/* Messages one after the other, one in flight at a time. */
struct traffic {
	struct ha_request *recv, *send;
	bool received, sent;
	uint32_t messages;
	size_t size;
	bool holds[2]; /* this end's application posts nothing new */
	bool runs[2];  /* it gets a processor */
};

static struct traffic traffic;
static bool thread_runs[2]; /* the same of the background threads */
static unsigned polls;	    /* of an application between two turns */
static uint64_t turn_ns;    /* from one to the next */

static void sender(struct pair *pair)
{
	struct traffic *t = &traffic;

	if (!t->send && !t->sent && !t->holds[0])
		t->send = try_send(pair, 0, t->size, 1);
	if (t->send)
		assert_int_equal(ha_test(t->send, &t->sent, NULL), HA_OK);
	if (t->sent)
		t->send = NULL;
}

static void receiver(struct pair *pair)
{
	struct traffic *t = &traffic;
	const size_t offset = 0, size = t->size;
	const int tag = 1;

	if (!t->recv && !t->received && !t->holds[1]) {
		fill(pair->from.bytes, size, t->messages);
		t->recv = post_recv(pair, 1, &offset, &size, &tag);
	}
	if (t->recv)
		assert_int_equal(ha_test(t->recv, &t->received, NULL), HA_OK);
	if (t->received)
		t->recv = NULL;
}

static void applications(struct pair *pair)
{
	struct traffic *t = &traffic;

	if (t->runs[1])
		receiver(pair);
	if (t->runs[0])
		sender(pair);
	if (!t->sent || !t->received)
		return;
	assert_true(filled(pair->to.bytes, t->size, t->messages));
	t->messages++;
	t->sent = t->received = false;
}

static void turn(struct pair *pair)
{
	for (int i = 0; i < 2; i++)
		if (thread_runs[i])
			(void)ha_progress_turn(pair->inst[i]->progress);
	for (unsigned i = 0; i < polls; i++) {
		applications(pair);
		sv_stepped_run(sv_stepped_now() + turn_ns / (polls + 1));
	}
	sv_stepped_run(sv_stepped_now() + turn_ns / (polls + 1));
}

static void turns(struct pair *pair, uint64_t us)
{
	uint64_t until_ns = sv_stepped_now() + us * HA_NS_PER_US;

	while (sv_stepped_now() < until_ns)
		turn(pair);
}

static void pace(uint64_t us, unsigned polls_in_that_time)
{
	turn_ns = us * HA_NS_PER_US;
	polls = polls_in_that_time;
}

static void both_run(bool run)
{
	for (int i = 0; i < 2; i++)
		traffic.runs[i] = thread_runs[i] = run;
}

static void init(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	memset(&traffic, 0, sizeof(traffic));
	traffic.size = SIZE;
	both_run(true);
	pace(200, 3);
}

/* Messages that no copy is kept of: end to end their sends wait for the receiver's count. */
static void set_completion(struct pair *pair, bool end_to_end)
{
	pair->config.completion = end_to_end ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
	if (end_to_end)
		traffic.size = HA_RETAIN_MAX + 1;
}

static void begin(struct pair *pair)
{
	pair_up(pair);
	pair_wait_standby(pair);
	for (int i = 0; i < 2; i++) /* rounds put nobody on the wheel */
		ha_liveness_look(pair->inst[i]->liveness);
	turns(pair, 250000);
	assert_int_equal(pair->recv->active, 0);
	assert_true(traffic.messages > 100);
}

/* Beside the first path and the one in reserve. */
static void assert_nothing_was_built(const struct pair *pair)
{
	for (unsigned p = 2; p < HA_MAX_PATHS; p++)
		assert_int_equal(pair->recv->failover->slots[p].newest_gen, 0);
}

/* Messages come, and over the path that they began on. */
static void assert_goes_on_undisturbed(struct pair *pair)
{
	uint32_t begun = traffic.messages;

	turns(pair, 50000);
	assert_true(traffic.messages > begun);
	assert_int_equal(pair->recv->count.failovers + pair->send->count.failovers, 0);
	assert_int_equal(pair->recv->active, 0);
	assert_nothing_was_built(pair);
}

/* Until a message has come that began after now: in ms. */
static double payload_ms(struct pair *pair)
{
	uint64_t since_ns = sv_stepped_now();
	uint32_t begun = traffic.messages;

	while (traffic.messages < begun + 2) {
		if (sv_stepped_now() > since_ns + 5 * HA_NS_PER_S)
			fail_msg("nothing comes for 5 s; log:\n%s", pair->log);
		turn(pair);
	}
	return (double)(sv_stepped_now() - since_ns) / 1e6;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Both directions at once, or one. */
static void cut(int direction)
{
	if (direction == 2)
		sv_stepped_cut(0, true);
	else
		sv_stepped_block((uint32_t)direction, 0, (uint32_t)!direction, 0, true);
}

static void assert_both_moved(const struct pair *pair)
{
	assert_int_equal(pair->recv->count.failovers, 1);
	assert_int_equal(pair->send->count.failovers, 1);
	assert_logged("heartbeats lost");
}

/* Cuts at all phases of the heartbeats: the longest time to a message that began afterwards. */
static double cut_under_traffic_ms(bool connectx)
{
	double worst_ms = 0;

	for (unsigned phase = 0; phase < 12; phase++) {
		struct pair pair;
		double ms;

		init(&pair);
		if (connectx)
			pair.fabric.profile = SV_STEPPED_MLX5;
		set_completion(&pair, phase % 2);
		begin(&pair);
		turns(&pair, phase * 17300);
		pace(20, 10);
		cut((int)(phase / 2 % 3));
		ms = payload_ms(&pair);
		worst_ms = ms > worst_ms ? ms : worst_ms;
		assert_both_moved(&pair);
		pair_close(&pair);
	}
	print_message("cut to payload: %.1f ms at most\n", worst_ms);
	return worst_ms;
}

static void a_cut_under_traffic_is_noticed_at_once(void **state)
{
	(void)state;
	assert_true(cut_under_traffic_ms(false) <= CUT_MS);
}

/* Whose hardware says nothing for 3.5 s, and whose commands take their time. */
static void a_cut_on_a_connectx_is_noticed_as_soon(void **state)
{
	(void)state;
	assert_true(cut_under_traffic_ms(true) <= CUT_MS);
}

/* Whoever posts and goes away has his connection looked after all the same. */
static void a_cut_is_noticed_where_nobody_polls(void **state)
{
	(void)state;
	for (int direction = 0; direction < 3; direction++) {
		struct pair pair;
		uint64_t since_ns;

		init(&pair);
		begin(&pair);
		traffic.holds[0] = true; /* until the receiver has asked for the next one */
		turns(&pair, 2000);
		traffic.holds[0] = false;
		cut(direction);
		since_ns = sv_stepped_now();
		turn(&pair);
		assert_non_null(traffic.send);
		traffic.runs[0] = traffic.runs[1] = false;
		while (pair.recv->count.failovers == 0 || pair.send->count.failovers == 0) {
			assert_true(sv_stepped_now() - since_ns <= UNPOLLED_MS * HA_NS_PER_MS);
			turn(&pair);
		}
		both_run(true);
		(void)payload_ms(&pair);
		assert_both_moved(&pair);
		pair_close(&pair);
	}
}

static void without_it_the_hardware_decides(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair);
	pair.config.stall_ms = 0;
	begin(&pair);
	cut(2);
	assert_true(payload_ms(&pair) > 400);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_close(&pair);
}

/* A switch takes more than one rail with it: what was answered before is no proof. */
static void a_cut_of_two_rails_finds_the_third(void **state)
{
	struct pair pair;

	(void)state;
	init(&pair);
	pair.fabric.rails = 3;
	begin(&pair);
	sv_stepped_cut(1, true);
	cut(2);
	(void)payload_ms(&pair);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 2);
	pair_close(&pair);
}

/*
 * NCCL may connect across the rails. Then a switch that dies takes the path in reserve along, which
 * is crossed the other way, and nobody is left who testifies that the peer is alive: one is built
 * over the ports of the other switch, and its heartbeats do.
 */
static void a_switch_that_takes_both_paths_is_noticed_as_well(void **state)
{
	double worst_ms = 0;

	(void)state;
	for (int phase = 0; phase < 12; phase++) {
		struct pair pair;
		double ms;

		init(&pair);
		pair.listen_dev = 1;
		set_completion(&pair, phase % 2);
		begin(&pair);
		turns(&pair, (uint64_t)phase * 17300);
		pace(20, 10);
		sv_stepped_cut((uint32_t)phase / 2 % 2, true);
		ms = payload_ms(&pair);
		if (ms > BOTH_PATHS_CUT_MS)
			fail_msg("%.1f ms in phase %d; log:\n%s", ms, phase, pair.log);
		worst_ms = ms > worst_ms ? ms : worst_ms;
		assert_both_moved(&pair);
		pair_close(&pair);
	}
	print_message("switch of both paths to payload: %.1f ms at most\n", worst_ms);
}

/* ---- nothing to do --------------------------------------------------------------------------- */

static uint64_t pings(const struct pair *pair)
{
	uint64_t sum = 0;

	for (int i = 0; i < 2; i++)
		for (int rail = 0; rail < 2; rail++) {
			struct ha_live_port_report report;
			const struct ha_port *port =
			    &ha_instance_devices(pair->inst[i])->ports[rail];

			assert_true(
			    ha_liveness_port_report(pair->inst[i]->liveness, port, &report));
			sum += report.pings;
		}
	return sum;
}

/* Four sessions' ends ping each 175 to 200 ms. */
#define PINGS_A_SECOND 24

static void traffic_that_flows_asks_nothing(void **state)
{
	uint64_t before, requests;
	struct pair pair;
	uint32_t messages;

	(void)state;
	init(&pair);
	begin(&pair);
	before = pings(&pair);
	requests = pair.send->count.work_requests;
	messages = traffic.messages;
	turns(&pair, 2000000);
	assert_true(pings(&pair) - before <= 2 * PINGS_A_SECOND);
	assert_in_range(pair.send->count.work_requests - requests, traffic.messages - messages,
			traffic.messages - messages + 1);
	pair_close(&pair);
}

/* The sender's application computes for seconds: it is asked a few times, then heartbeats do. */
static void who_waits_for_the_application_asks_less_and_less(void **state)
{
	uint64_t before, requests;
	struct pair pair;

	(void)state;
	init(&pair);
	begin(&pair);
	traffic.holds[0] = true;
	turns(&pair, 5000);
	before = pings(&pair);
	requests = pair.recv->count.work_requests;
	turns(&pair, 10000000);
	/* After 10, 20, 40, 80, 160 and 320 ms; what else it posts is the soft timeout's. */
	assert_true(pings(&pair) - before <= 10 * PINGS_A_SECOND + 6);
	assert_true(pair.recv->count.work_requests - requests <= 6 + 10 * 4);
	traffic.holds[0] = false;
	assert_goes_on_undisturbed(&pair);
	pair_close(&pair);
}

/* ---- not a cut ------------------------------------------------------------------------------- */

/* A process that is stopped: its NIC goes on. */
static void a_peer_that_is_frozen_for_a_minute_is_not_left(void **state)
{
	(void)state;
	for (int frozen = 0; frozen < 2; frozen++) {
		struct pair pair;

		init(&pair);
		begin(&pair);
		traffic.runs[frozen] = thread_runs[frozen] = false;
		pace(1000, 3);
		turns(&pair, 60000000);
		both_run(true);
		pace(200, 3);
		turns(&pair, 300000); /* it hears what was said meanwhile */
		assert_goes_on_undisturbed(&pair);
		pair_close(&pair);
	}
}

/* A virtual machine that is paused, or a host: its NICs with it. */
static void a_host_that_stands_still_is_waited_for(void **state)
{
	(void)state;
	for (int still = 0; still < 2; still++) {
		struct pair pair;

		init(&pair);
		begin(&pair);
		traffic.runs[still] = thread_runs[still] = false;
		for (uint32_t rail = 0; rail < 2; rail++)
			sv_stepped_cut(rail, true);
		turns(&pair, 200000);
		for (uint32_t rail = 0; rail < 2; rail++)
			sv_stepped_cut(rail, false);
		both_run(true);
		assert_goes_on_undisturbed(&pair);
		pair_close(&pair);
	}
}

static uint64_t xorshift(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* Threads and applications of both ends lose their processors, each by itself, up to 200 ms. */
static void hogs(struct pair *pair, uint64_t seed, uint64_t ms)
{
	const uint64_t away_ns[] = {200 * HA_NS_PER_MS, 60 * HA_NS_PER_MS, 20 * HA_NS_PER_MS};
	uint64_t random = seed * 0x9e3779b97f4a7c15ull, back_ns[4] = {0}, now_ns;
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while ((now_ns = sv_stepped_now()) < until_ns) {
		for (unsigned i = 0; i < 4; i++) {
			bool *runs = i < 2 ? &thread_runs[i] : &traffic.runs[i - 2];

			if (now_ns >= back_ns[i] && xorshift(&random) % 32 == 0)
				back_ns[i] = now_ns + xorshift(&random) % away_ns[seed % 3];
			*runs = now_ns >= back_ns[i];
		}
		turn(pair);
	}
	both_run(true);
}

static void hogs_are_no_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct pair pair;

		init(&pair);
		begin(&pair);
		hogs(&pair, seed, 4000);
		assert_goes_on_undisturbed(&pair);
		pair_close(&pair);
	}
}

/* Everything on the rail takes ten times as long. */
static void a_slow_path_is_not_left(void **state)
{
	static const struct {
		uint64_t latency_ns;
		const char *rule;
	} cases[] = {
	    {5000, "delay=45us rail=0"},
	    {100000, "delay=900us rail=0"},
	    {500000, "delay=4500us rail=0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pair pair;
		int id;

		init(&pair);
		pair.fabric.latency_ns = cases[i].latency_ns;
		begin(&pair);
		id = add_rule(cases[i].rule);
		turns(&pair, 2000000);
		assert_true(fired(id) > 0);
		assert_goes_on_undisturbed(&pair);
		pair_close(&pair);
	}
}

/* Datagrams get lost on the way that heartbeats take, and nothing else: the queue pair answers. */
static void lost_heartbeats_alone_are_no_cut(void **state)
{
	struct pair pair;
	int id;

	(void)state;
	init(&pair);
	begin(&pair);
	id = add_rule("drop op=ud rail=0");
	for (int i = 0; i < 20; i++) { /* traffic that comes and goes */
		traffic.holds[0] = !traffic.holds[0];
		turns(&pair, 150000);
	}
	traffic.holds[0] = false;
	assert_true(fired(id) > 0);
	assert_goes_on_undisturbed(&pair);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_cut_under_traffic_is_noticed_at_once),
	    cmocka_unit_test(a_cut_on_a_connectx_is_noticed_as_soon),
	    cmocka_unit_test(a_cut_is_noticed_where_nobody_polls),
	    cmocka_unit_test(without_it_the_hardware_decides),
	    cmocka_unit_test(a_cut_of_two_rails_finds_the_third),
	    cmocka_unit_test(a_switch_that_takes_both_paths_is_noticed_as_well),
	    cmocka_unit_test(traffic_that_flows_asks_nothing),
	    cmocka_unit_test(who_waits_for_the_application_asks_less_and_less),
	    cmocka_unit_test(a_peer_that_is_frozen_for_a_minute_is_not_left),
	    cmocka_unit_test(a_host_that_stands_still_is_waited_for),
	    cmocka_unit_test(hogs_are_no_cut),
	    cmocka_unit_test(a_slow_path_is_not_left),
	    cmocka_unit_test(lost_heartbeats_alone_are_no_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
