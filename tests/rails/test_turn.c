/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control rail of a bundle is lost while another one carries: that takes its place, in the same
 * epoch. Two hosts, one thread, virtual time.
 */
#include "burst.h"
#include "losing.h"

#include "failover/message.h"
#include "instance/instance.h"
#include "transport/complete.h"
#include "transport/stripe.h"

#include <stdlib.h>

/* Both are on this rail, in the first epoch, after so many turns. */
static void assert_turned(const struct pair *pair, uint32_t turns, const char *nic)
{
	for (int end = 0; end < 2; end++) {
		const struct ha_comm *comm = end ? pair->recv : pair->send;

		assert_int_equal(ha_comm_error(comm), HA_OK);
		assert_int_equal(comm->count.failovers, 0);
		assert_int_equal(comm->failover->epoch, 1);
		assert_int_equal(ha_comm_traffic_epoch(comm), 1);
		assert_int_equal(comm->turn, turns);
		assert_string_equal(nic_of(comm, comm->active), nic);
	}
}

/* The message that was in flight is there, whole, and both know. */
static void assert_arrived(struct pair *pair, const struct in_flight *t)
{
	int got = 0;

	assert_int_equal(finish_within_a_second(pair, t->recv, &got), HA_OK);
	assert_int_equal(finish_within_a_second(pair, t->send, NULL), HA_OK);
	assert_int_equal(got, 300000);
	assert_true(filled(pair->to.bytes, 300000, 5));
}

/* ---- the loss of the one that is active ------------------------------------------------------ */

static void lose_in_mid_transfer(unsigned steps, uint32_t rails, enum ha_completion_mode mode)
{
	struct in_flight t;
	uint64_t lost_ns;
	struct pair pair;

	carrying(&pair, rails, mode);
	t = pair_start(&pair);
	for (unsigned i = 0; i < steps; i++)
		sv_stepped_step();
	lost_ns = sv_stepped_now();
	sv_stepped_link(steps % 2, 0, false);
	assert_arrived(&pair, &t);
	assert_in_range(sv_stepped_now() - lost_ns, 0, 10 * HA_NS_PER_MS);
	until_whole(&pair, 10);
	assert_turned(&pair, 1, "sim1");
	for (uint32_t i = 0; i < 4; i++)
		transfer(&pair, 1 + i * 70000, i);
	assert_turned(&pair, 1, "sim1");
	assert_int_equal(carrying_now(&pair), rails - 1);
	pair_close(&pair);
}

/* At each of the first 60 events of a message, at either end. */
static void the_control_rail_lost_in_mid_transfer_takes_no_epoch(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++)
		lose_in_mid_transfer(steps, 2 + steps / 4 % 2, modes[steps / 2 % 2]);
}

/* ---- whatever is under way ------------------------------------------------------------------- */

/* At each event of all that, and wherever it is noticed. */
static void whatever_is_under_way_arrives_once(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 240; steps++) {
		const uint32_t rails = 2 + steps / 4 % 2;
		struct burst burst;
		struct pair pair;

		bundled_init(&pair, rails);
		pair.config.completion = modes[steps / 2 % 2];
		pair.config.ib_qps_per_connection = 1 + steps / 8 % 2;
		pair_up(&pair);
		wait_members(&pair, rails);
		burst = begin(&pair);
		step(&pair, &burst, steps);
		sv_stepped_link(steps % 2, 0, false);
		assert_in_range(finish(&pair, &burst), 0, 10 * HA_NS_PER_MS);
		until_whole(&pair, 20);
		burst = begin(&pair);
		assert_in_range(finish(&pair, &burst), 0, 5 * HA_NS_PER_MS);
		assert_turned(&pair, 1, "sim1");
		pair_close(&pair);
	}
}

/* Nobody is told: what waits asks at once, or what has not come for too long says it. */
static void what_fails_without_a_word_is_a_turn_too(void **state)
{
	static const char *const faults[] = {"cut host=0 rail=0 op=write",
					     "wedge host=0 rail=0 op=write",
					     "wedge=hard host=0 rail=0 op=write",
					     "err host=0 rail=0 op=write",
					     "err host=1 rail=0 dir=rx op=write",
					     "kill host=1 rail=0 dir=rx op=write",
					     "kill=placed host=1 rail=0 dir=rx op=write",
					     "cut host=1 rail=0 op=write"};
	unsigned lost = 0;

	(void)state;
	for (unsigned i = 0; i < 96; i++) {
		struct burst burst;
		struct pair pair;
		char rule[80];
		int id;

		carrying(&pair, 2, modes[i / 8 % 2]);
		snprintf(rule, sizeof(rule), "%s nth=%u", faults[i % 8], 1 + i / 8);
		id = add_rule(rule);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		if (fired(id) == 1) { /* there were so many */
			until_whole(&pair, 700);
			burst = begin(&pair);
			(void)finish(&pair, &burst);
			assert_turned(&pair, 1, "sim1");
			lost++;
		}
		pair_close(&pair);
	}
	assert_in_range(lost, 80, 96);
}

/* A message that is wholly on another rail, at each event of it, does not wait, and what begins
 * then waits for a turn that takes no more than that. */
static void messages_on_the_others_wait_5_ms_at_most(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 40; steps++) {
		struct in_flight t;
		uint64_t lost_ns;
		struct pair pair;

		bundled_init(&pair, 2);
		strcpy(pair.config.rail_share, "0,1");
		pair.config.completion = modes[steps / 2 % 2];
		pair_up(&pair);
		wait_members(&pair, 2);
		t = pair_start(&pair);
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		lost_ns = sv_stepped_now();
		sv_stepped_link(steps % 2, 0, false);
		assert_arrived(&pair, &t);
		assert_in_range(sv_stepped_now() - lost_ns, 0, 5 * HA_NS_PER_MS);
		lost_ns = sv_stepped_now();
		transfer(&pair, 300000, 3);
		transfer(&pair, 1000, 4);
		assert_in_range(sv_stepped_now() - lost_ns, 0, 5 * HA_NS_PER_MS);
		until_whole(&pair, 10);
		assert_turned(&pair, 1, "sim1");
		assert_int_equal(pair.send->striped.sheds[0].mended_bytes, 0);
		pair_close(&pair);
	}
}

/* Wherever in an interval of heartbeats it was: what was under way is there after three of them and
 * 50 ms, and what begins after that does not wait. */
static void a_control_rail_that_is_cut_without_a_word_is_left_by_its_heartbeats(void **state)
{
	(void)state;
	for (unsigned at_ms = 0; at_ms < 200; at_ms += 33) {
		const enum ha_completion_mode mode = modes[at_ms / 33 % 2];
		uint64_t cut_ns, interval_ns;
		struct burst burst;
		struct pair pair;

		carrying(&pair, 2, mode);
		pair_idle(&pair, 1000 + at_ms);
		wait_members(&pair, 2);
		interval_ns = (unsigned)pair.config.heartbeat_ms * HA_NS_PER_MS;
		burst = begin(&pair);
		step(&pair, &burst, at_ms / 4);
		cut_ns = sv_stepped_now();
		sv_stepped_cut(0, true);
		(void)finish(&pair, &burst);
		assert_in_range(sv_stepped_now() - cut_ns, 0, 3 * interval_ns + 50 * HA_NS_PER_MS);
		until_whole(&pair, 700);
		burst = begin(&pair);
		assert_in_range(finish(&pair, &burst), 0, 5 * HA_NS_PER_MS);
		assert_turned(&pair, 1, "sim1");
		pair_close(&pair);
	}
}

/* ---- more than one --------------------------------------------------------------------------- */

/* What a rail had carried is on its way again over the control rail, slowly, when that is lost:
 * then over the third. */
static void what_was_moved_is_moved_again(void **state)
{
	(void)state;
	for (unsigned after_us = 0; after_us < 3000; after_us += 100) {
		struct burst burst;
		struct pair pair;
		uint64_t until_ns, stale;

		carrying(&pair, 3, modes[after_us / 100 % 2]);
		(void)add_rule("delay=2ms host=0 rail=0 minlen=1000");
		(void)add_rule("delay=1ms host=0 rail=2 minlen=1000");
		burst = begin(&pair);
		step(&pair, &burst, 40);
		stale = pair.recv->count.stale_completions;
		sv_stepped_link(0, 2, false);
		for (int i = 0; i < 1000 && pair.send->striped.sheds[2].mends == 0; i++) {
			(void)go_on(&pair, &burst);
			pair_step(&pair);
		}
		assert_int_equal(pair.send->striped.sheds[2].mends, 1);
		until_ns = sv_stepped_now() + after_us * 1000ull;
		while (sv_stepped_now() < until_ns) {
			(void)go_on(&pair, &burst);
			pair_advance(&pair);
		}
		sv_stepped_link(after_us / 200 % 2, 0, false);
		(void)finish(&pair, &burst);
		until_whole(&pair, 700);
		if (pair.recv->turn == 1) /* nothing came twice */
			assert_int_equal(pair.recv->count.stale_completions, stale);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		if (after_us > 1000) /* the receiver knew that the other one was mended */
			assert_turned(&pair, 1, "sim1");
		pair_close(&pair);
	}
}

/* That had come, and only what the third rail carries has not. */
static void what_came_in_another_ones_place_is_not_sent_again(void **state)
{
	(void)state;
	for (unsigned mode = 0; mode < 2; mode++) {
		struct in_flight t;
		struct pair pair;
		uint64_t stale;

		carrying(&pair, 3, modes[mode]);
		(void)add_rule("delay=60ms host=0 rail=1 minlen=1000");
		(void)add_rule("delay=1ms host=0 rail=2 minlen=1000");
		t = pair_start(&pair);
		stale = pair.recv->count.stale_completions;
		sv_stepped_link(0, 2, false);
		pair_pass(&pair, 20);
		assert_int_equal(pair.send->striped.sheds[2].mended_stripes, 1);
		sv_stepped_link(0, 0, false);
		pair_pass(&pair, 10);
		until_whole(&pair, 20);
		assert_int_equal(pair.send->striped.sheds[0].mends, 1);
		assert_int_equal(pair.send->striped.sheds[0].mended_stripes, 0);
		assert_arrived(&pair, &t);
		assert_int_equal(pair.recv->count.stale_completions, stale);
		assert_turned(&pair, 1, "sim1");
		pair_close(&pair);
	}
}

/* The other one as well, at each event of a turn: of two that is a failover, to what comes back; of
 * three one to what is left. */
static void two_lost_at_once_cost_no_byte(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 120; steps++) {
		const uint32_t rails = 2 + steps / 2 % 2;
		const unsigned second = 1 + steps / 4 % (rails - 1), host = steps / 8 % 2;
		struct burst burst;
		struct pair pair;

		carrying(&pair, rails, modes[steps % 2]);
		burst = begin(&pair);
		step(&pair, &burst, 30);
		sv_stepped_link(steps / 16 % 2, steps % 3 ? 0 : second, false);
		for (unsigned i = 0; i < steps / 2; i++) {
			(void)go_on(&pair, &burst);
			pair_step(&pair);
		}
		sv_stepped_link(host, steps % 3 ? second : 0, false);
		for (unsigned i = 0; i < 30; i++) {
			(void)go_on(&pair, &burst);
			pair_pass(&pair, 1);
		}
		if (rails == 2)
			sv_stepped_link(host, steps % 3 ? second : 0, true);
		(void)finish(&pair, &burst);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		until_whole(&pair, 700);
		pair_close(&pair);
	}
}

/* One thing after the other: what is not over yet when another rail is lost is an epoch's. */
static void of_two_that_are_lost_together_one_has_no_turn(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 8; which++) {
		const unsigned first = which % 2, host = which / 2 % 2;
		struct burst burst;
		struct pair pair;
		char rule[80];

		carrying(&pair, 3, modes[which / 4]);
		snprintf(rule, sizeof(rule), "wait=15ms verb=modify_qp host=%u rail=%u", host,
			 first);
		(void)add_rule(rule);
		burst = begin(&pair);
		step(&pair, &burst, 30);
		sv_stepped_link(host, first, false);
		for (int i = 0; i < 1000 && !(ha_rails_lack(pair.send) && ha_rails_lack(pair.recv));
		     i++)
			pair_step(&pair);
		assert_true(ha_rails_lack(pair.send) && ha_rails_lack(pair.recv));
		assert_int_equal(pair.recv->failover->turn.pending, first == 0);
		sv_stepped_link(host, 1 - first, false);
		(void)finish(&pair, &burst);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.send->turn, 0);
		assert_int_equal(pair.recv->turn, 0);
		assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim2");
		pair_close(&pair);
	}
}

/* One after the other, until the last one is alone. */
static void each_has_its_turn(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		struct burst burst;
		struct pair pair;

		carrying(&pair, 3, modes[steps % 2]);
		for (unsigned rail = 0; rail < 2; rail++) {
			burst = begin(&pair);
			step(&pair, &burst, 2 * steps);
			sv_stepped_link(steps / 2 % 2, rail, false);
			assert_in_range(finish(&pair, &burst), 0, 10 * HA_NS_PER_MS);
			until_whole(&pair, 20);
		}
		assert_turned(&pair, 2, "sim2");
		burst = begin(&pair);
		assert_in_range(finish(&pair, &burst), 0, 5 * HA_NS_PER_MS);
		pair_close(&pair);
	}
}

/* Whoever has all it wanted closes, in the middle of a turn or not, and the other end learns from
 * that what it has. */
static void an_end_that_closes_meanwhile_has_said_what_it_has(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 90; steps++) {
		const bool receiver_first = steps % 2;
		struct ha_request *first, *second;
		struct in_flight t;
		struct pair pair;

		carrying(&pair, 2, modes[steps / 2 % 2]);
		t = pair_start(&pair);
		first = receiver_first ? t.recv : t.send;
		second = receiver_first ? t.send : t.recv;
		for (unsigned i = 0; i < steps; i++)
			sv_stepped_step();
		sv_stepped_link(steps / 4 % 2, 0, false);
		assert_int_equal(finish_within_a_second(&pair, first, NULL), HA_OK);
		if (receiver_first) {
			ha_dereg_mr(pair.recv, pair.to.mr);
			pair.to.mr = NULL;
			ha_close_recv(pair.recv);
			pair.recv = NULL;
		} else {
			ha_dereg_mr(pair.send, pair.from.mr);
			pair.from.mr = NULL;
			ha_close_send(pair.send);
			pair.send = NULL;
		}
		assert_int_equal(finish_within_a_second(&pair, second, NULL), HA_OK);
		assert_true(filled(pair.to.bytes, 300000, 5));
		pair_close(&pair);
	}
}

/* ---- what a turn is not ---------------------------------------------------------------------- */

/* A NIC that does not say that its path is fenced, at either end: nothing else is proof enough of
 * rows and notices of before, and it is a failover. */
static void a_fence_that_is_not_confirmed_is_a_failover(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 4; which++) {
		struct burst burst;
		struct pair pair;
		char rule[80];
		int slow;

		carrying(&pair, 2, modes[which / 2]);
		snprintf(rule, sizeof(rule), "wait=5s verb=modify_qp host=%u rail=0", which % 2);
		slow = add_rule(rule);
		burst = begin(&pair);
		step(&pair, &burst, 30);
		sv_stepped_link(0, 0, false);
		assert_in_range(finish(&pair, &burst), 0, 200 * HA_NS_PER_MS);
		assert_true(fired(slow) > 0);
		assert_logged("failover from sim0:1 (path 0.1) to ");
		assert_false(logged("failover from no path"));
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.recv->turn, 0);
		assert_int_equal(pair.send->turn, 0);
		sv_stepped_fault_remove(slow);
		pair_pass(&pair, 6000);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		pair_close(&pair);
	}
}

/* Each end alone does not know them: then neither takes one. */
static void ends_that_know_no_turns_fail_over(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++) {
		struct burst burst;
		struct pair pair;

		carrying(&pair, 2 + steps / 2 % 2, modes[steps / 4 % 2]);
		assert_true(pair.send->features & pair.recv->features & HA_FEATURE_TURN);
		without_turns(&pair);
		burst = begin(&pair);
		step(&pair, &burst, 4 * steps);
		sv_stepped_link(steps % 2, 0, false);
		assert_in_range(finish(&pair, &burst), 0, 30 * HA_NS_PER_MS);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.recv->turn, 0);
		assert_int_equal(pair.send->turn, 0);
		pair_close(&pair);
	}
}

/* Where nothing else carries, it is what it is for every connection. */
static void with_no_other_rail_that_carries_it_is_a_failover(void **state)
{
	(void)state;
	for (unsigned host = 0; host < 2; host++) {
		struct pair pair;

		bundled(&pair, 2);
		pair_wait_standby(&pair);
		transfer(&pair, 1000, 1);
		sv_stepped_link(host, 0, false);
		transfer(&pair, 1000, 2);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.recv->turn, 0);
		assert_string_equal(nic_of(pair.recv, pair.recv->active), "sim1");
		pair_close(&pair);
	}
}

static struct ha_message shed_of(const struct pair *pair, unsigned to, uint32_t to_gen)
{
	struct ha_message m = {.kind = HA_MSG_SHED,
			       .epoch = 1,
			       .serial = pair->recv->failover->serial + 1,
			       .ports_up = pair->send->failover->peer_ports_up,
			       .path = (uint8_t)to,
			       .generation = to_gen,
			       .lost = 1,
			       .drained = 1,
			       .window = pair->recv->recv->done};

	m.fenced_gen[0] = 1;
	return m;
}

/* A receiver that names what cannot be gets a failover, not a path that is not there. */
static void a_turn_of_what_is_not_there_is_a_failover(void **state)
{
	static const struct {
		unsigned to;
		uint32_t to_gen;
	} named[] = {{0, 1}, {1, 2}, {1, 0}, {3, 1}, {3, 0}, {HA_MAX_PATHS, 1}, {255, 7}};

	(void)state;
	for (unsigned i = 0; i < sizeof(named) / sizeof(named[0]); i++) {
		struct ha_message m;
		struct burst burst;
		struct pair pair;

		carrying(&pair, 2, HA_COMPLETION_RC);
		m = shed_of(&pair, named[i].to, named[i].to_gen);
		hear(pair.send, &m);
		assert_true(ha_rails_lack(pair.send));
		for (int k = 0; k < 100 && pair.send->failover->turn.pending; k++) {
			sv_stepped_run(sv_stepped_now() + 10000);
			sv_stepped_set_host(0);
			ha_instance_progress(pair.inst[0]); /* and no word of the receiver's */
		}
		assert_int_equal(pair.send->failover->state, HA_FO_SUSPECTED);
		assert_int_equal(pair.send->turn, 0);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		until_whole(&pair, 700);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
		pair_close(&pair);
	}
}

/* A sender that has stopped all that carries does not turn: nobody waits for that. */
static void a_sender_that_has_stopped_everything_gets_an_epoch(void **state)
{
	(void)state;
	for (unsigned known = 0; known < 2; known++) {
		struct ha_message m;
		struct burst burst;
		struct pair pair;

		carrying(&pair, 2, HA_COMPLETION_RC);
		burst = begin(&pair);
		step(&pair, &burst, 30);
		if (known) {
			(void)add_rule("wait=5ms verb=modify_qp host=1 rail=0");
			sv_stepped_link(1, 0, false);
			for (int i = 0; i < 1000 && !pair.recv->failover->turn.pending; i++)
				pair_step(&pair);
			assert_true(pair.recv->failover->turn.pending);
		}
		m = (struct ha_message){.kind = HA_MSG_SUSPECT,
					.reason = HA_REASON_POST,
					.epoch = 1,
					.generation = 1,
					.port = HA_SUSPECT_ALL,
					.ports_up = pair.recv->failover->peer_ports_up,
					.window = pair.send->send->completed};
		hear(pair.recv, &m);
		assert_int_equal(pair.recv->failover->epoch, 2);
		(void)finish(&pair, &burst);
		assert_int_equal(pair.recv->turn, 0);
		assert_int_equal(pair.send->turn, 0);
		pair_close(&pair);
	}
}

static void poll_sender(struct pair *pair)
{
	ha_token_acquire(pair->send);
	ha_comm_poll(pair->send, 32);
	ha_token_release(pair->send);
}

/* A message that is not cut, which the control rail's device acknowledged and did not place: nobody
 * has it any more. */
static void a_small_message_that_was_acknowledged_and_not_placed_is_an_error(void **state)
{
	const size_t offset = 0, size = 12000;
	struct ha_request *recv, *send;
	struct pair pair;
	const int tag = 3;
	uint64_t before;
	int id;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	pair_idle(&pair, 1);
	id = add_rule("kill=unplaced host=1 rail=0 dir=rx op=write minlen=2000 nth=3");
	before = pair.send->count.messages;
	send = post_send(&pair, offset, size, tag);
	for (int i = 0; i < 50 && pair.send->count.messages == before; i++) {
		sv_stepped_step();
		poll_sender(&pair); /* before anybody else says that it is dead */
	}
	assert_int_equal(pair.send->turn, 0);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_int_equal(pair.send->turn, 0);
	assert_int_equal(fired(id), 1);
	assert_int_equal(finish_within_a_second(&pair, recv, NULL), HA_ERR_REMOTE);
	assert_logged("is lost: a device that has failed acknowledged it");
	pair_close(&pair);
}

/* In mode e2e a sender asks what the receiver has, where no clear-to-send says it: a question that
 * is lost with the control rail holds up none on the rail that takes its place. */
static void what_the_receiver_has_is_asked_for_on_the_rail_that_takes_the_place(void **state)
{
	const size_t offsets[2] = {0, 300000}, size = 300000;
	struct ha_request *recv[2], *send[2];
	struct ha_path *lost;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_E2E);
	for (int i = 0; i < 2; i++)
		recv[i] = post_recv(&pair, 1, &offsets[i], &size, &i);
	pair_idle(&pair, 1);
	fill(pair.from.bytes, 2 * size, 6);
	send[0] = post_send(&pair, offsets[0], size, 0);
	lost = ha_comm_path(pair.send);
	for (int i = 0; i < 10000 && !lost->count_busy; i++) {
		if (!sv_stepped_step())
			sv_stepped_run(sv_stepped_now() + 1000);
		poll_sender(&pair);
	}
	assert_true(lost->count_busy);
	sv_stepped_link(1, 0, false);
	assert_int_equal(pair_finish(&pair, recv[0], NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, send[0], NULL), HA_OK);
	until_whole(&pair, 10);
	assert_turned(&pair, 1, "sim1");
	send[1] = post_send(&pair, offsets[1], size, 1);
	assert_int_equal(finish_within_a_second(&pair, recv[1], NULL), HA_OK);
	assert_int_equal(finish_within_a_second(&pair, send[1], NULL), HA_OK);
	assert_memory_equal(pair.to.bytes, pair.from.bytes, 2 * size);
	assert_turned(&pair, 1, "sim1");
	pair_close(&pair);
}

/* Stamps are the same again after 256 turns: a row that has lain there since is none. */
static void a_row_of_256_turns_before_is_none(void **state)
{
	struct ha_cts *row;
	uint64_t next;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (int end = 0; end < 2; end++) {
		struct ha_comm *comm = end ? pair.recv : pair.send;

		comm->turn = 255;
		comm->epoch = ha_epoch_word(1, 255);
	}
	next = pair.send->send->match_seq;
	row = pair.send->send_ring->cts[next & pair.send->slot_mask];
	*row = (struct ha_cts){.stamp = ha_stamp(next, 1),
			       .stamp_end = ha_stamp(next, 1),
			       .addr = (uintptr_t)pair.to.bytes,
			       .size = 1000,
			       .n = 1};
	sv_stepped_link(0, 0, false);
	pair_idle(&pair, 20);
	until_whole(&pair, 20);
	assert_int_equal(pair.send->turn, 256);
	assert_null(try_send(&pair, 0, 1000, 0));
	transfer(&pair, 300000, 1);
	transfer(&pair, 1000, 2);
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
}

/* ---- and back -------------------------------------------------------------------------------- */

/* It carries beside the one that took its place, which stays: nothing is fenced, nothing sent
 * again. */
static void a_control_rail_that_is_back_is_one_of_the_others(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		uint64_t again;
		struct pair pair;
		unsigned p;

		carrying(&pair, 2 + i / 2, modes[i % 2]);
		sv_stepped_link(i % 2, 0, false);
		pair_idle(&pair, 20);
		until_whole(&pair, 20);
		again = pair.send->striped.sheds[0].mended_stripes;
		sv_stepped_link(i % 2, 0, true);
		wait_members(&pair, 2 + i / 2);
		for (uint32_t m = 0; m < 4; m++)
			transfer(&pair, 300000, m);
		assert_turned(&pair, 1, "sim1");
		for (p = 0; p < HA_MAX_PATHS; p++)
			if (pair.send->paths[p] && strcmp(nic_of(pair.send, p), "sim0") != 0)
				assert_int_equal(pair.send->paths[p]->generation, 1);
		assert_int_equal(pair.send->striped.sheds[0].mended_stripes, again);
		pair_close(&pair);
	}
}

/* A turn is counted and told as any other rail's loss is. */
static void a_turn_is_told_as_a_shed(void **state)
{
	struct burst burst;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	burst = begin(&pair);
	step(&pair, &burst, 40);
	sv_stepped_link(0, 0, false);
	(void)finish(&pair, &burst);
	until_whole(&pair, 20);
	assert_logged("sim0:1 (path 0.1) is shed, the other rails carry on");
	assert_logged("is mended");
	for (int end = 0; end < 2; end++) {
		const struct ha_comm *comm = end ? pair.recv : pair.send;

		assert_int_equal(comm->striped.sheds[0].sheds, 1);
		assert_int_equal(comm->striped.sheds[0].mends, 1);
	}
	assert_true(pair.send->striped.sheds[0].mended_bytes > 0);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_control_rail_lost_in_mid_transfer_takes_no_epoch),
	    cmocka_unit_test(whatever_is_under_way_arrives_once),
	    cmocka_unit_test(what_fails_without_a_word_is_a_turn_too),
	    cmocka_unit_test(messages_on_the_others_wait_5_ms_at_most),
	    cmocka_unit_test(a_control_rail_that_is_cut_without_a_word_is_left_by_its_heartbeats),
	    cmocka_unit_test(what_was_moved_is_moved_again),
	    cmocka_unit_test(what_came_in_another_ones_place_is_not_sent_again),
	    cmocka_unit_test(two_lost_at_once_cost_no_byte),
	    cmocka_unit_test(of_two_that_are_lost_together_one_has_no_turn),
	    cmocka_unit_test(each_has_its_turn),
	    cmocka_unit_test(an_end_that_closes_meanwhile_has_said_what_it_has),
	    cmocka_unit_test(a_fence_that_is_not_confirmed_is_a_failover),
	    cmocka_unit_test(ends_that_know_no_turns_fail_over),
	    cmocka_unit_test(with_no_other_rail_that_carries_it_is_a_failover),
	    cmocka_unit_test(a_turn_of_what_is_not_there_is_a_failover),
	    cmocka_unit_test(a_sender_that_has_stopped_everything_gets_an_epoch),
	    cmocka_unit_test(a_small_message_that_was_acknowledged_and_not_placed_is_an_error),
	    cmocka_unit_test(what_the_receiver_has_is_asked_for_on_the_rail_that_takes_the_place),
	    cmocka_unit_test(a_row_of_256_turns_before_is_none),
	    cmocka_unit_test(a_control_rail_that_is_back_is_one_of_the_others),
	    cmocka_unit_test(a_turn_is_told_as_a_shed),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
