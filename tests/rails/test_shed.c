/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail is lost that is not the control rail: no epoch, nothing stops on the others, and exactly
 * what was lost with it is sent again; and it comes back without a fence of any other. Two hosts,
 * one thread, virtual time.
 */
#include "losing.h"

#include "base/stats_file.h"
#include "failover/message.h"
#include "transport/rail_share.h"
#include "transport/stripe.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

/* The rail that a path other than the control rail's is on, in these tests. */
#define LOST_RAIL 1u

static unsigned path_on(const struct ha_comm *comm, const char *nic)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && strcmp(nic_of(comm, p), nic) == 0)
			return p;
	fail_msg("no path on %s", nic);
	return 0;
}

/* So many generations have been shed and mended, at both ends. */
static unsigned sheds(const struct pair *pair)
{
	unsigned n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		assert_int_equal(pair->send->failover->rails[p].generation,
				 pair->recv->failover->rails[p].generation);
		assert_int_equal(pair->send->failover->rails[p].mended_gen,
				 pair->send->failover->rails[p].generation);
		n += pair->send->failover->rails[p].generation != 0;
	}
	return n;
}

static void assert_no_failover(const struct pair *pair)
{
	for (int end = 0; end < 2; end++) {
		const struct ha_comm *comm = end ? pair->recv : pair->send;

		assert_int_equal(ha_comm_error(comm), HA_OK);
		assert_int_equal(comm->count.failovers, 0);
		assert_int_equal(comm->failover->epoch, 1);
		assert_int_equal(ha_comm_epoch(comm), 1);
		assert_string_equal(nic_of(comm, comm->active), "sim0");
		assert_int_equal(ha_active_generation(comm), 1);
	}
}

/* The message that was in flight is there, whole, and both know. */
static void assert_arrived(struct pair *pair, const struct in_flight *t)
{
	int got = 0;

	assert_int_equal(pair_finish(pair, t->recv, &got), HA_OK);
	assert_int_equal(pair_finish(pair, t->send, NULL), HA_OK);
	assert_int_equal(got, 300000);
	assert_true(filled(pair->to.bytes, 300000, 5));
}

/* ---- the loss of one ------------------------------------------------------------------------- */

/* At each of the first 60 events of a message, at either end: what is lost is there again within
 * 10 ms, most of which is the event's way. */
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
	sv_stepped_link(steps % 2, LOST_RAIL, false);
	assert_arrived(&pair, &t);
	assert_in_range(sv_stepped_now() - lost_ns, 0, 10 * HA_NS_PER_MS);
	until_whole(&pair, 10);
	assert_int_equal(sheds(&pair), 1);
	for (uint32_t i = 0; i < 4; i++)
		transfer(&pair, 1 + i * 70000, i);
	assert_no_failover(&pair);
	assert_int_equal(carrying_now(&pair), rails - 1);
	pair_close(&pair);
}

static void a_rail_lost_in_mid_transfer_takes_no_epoch(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 60; steps++)
		lose_in_mid_transfer(steps, 2 + steps / 4 % 2, modes[steps / 2 % 2]);
}

/* Of a window of large messages, of which the control rail's half may come late. The sender says
 * what it sends again. */
static void exactly_what_was_lost_is_sent_again(void **state)
{
	enum { MESSAGES = 8 };
	const size_t size = 200000;
	unsigned kept = 0;

	(void)state;
	for (unsigned nth = 1; nth <= 160; nth += 24) {
		struct ha_request *recv[MESSAGES], *send[MESSAGES];
		uint64_t before, posted, stale, again;
		const struct nccl_ha_shed_stats *sheds;
		struct pair pair;
		char rule[80];
		int id;

		carrying(&pair, 2, modes[nth / 24 % 2]);
		fill(pair.from.bytes, MESSAGES * size, 3);
		snprintf(rule, sizeof(rule), "link=down host=1 rail=1 dir=rx op=write nth=%u", nth);
		id = add_rule(rule);
		if (nth / 24 % 4 >= 2)
			(void)add_rule("delay=2ms host=0 rail=0 minlen=1000");
		before = pair.send->paths[0]->qps[0].sq_posted;
		stale = pair.recv->count.stale_completions;
		for (int i = 0; i < MESSAGES; i++) {
			const size_t offset = (size_t)i * size;

			recv[i] = post_recv(&pair, 1, &offset, &size, &i);
			send[i] = post_send(&pair, offset, size, i);
		}
		for (int i = 0; i < MESSAGES; i++) {
			assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
			assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
		}
		assert_int_equal(fired(id), 1);
		assert_memory_equal(pair.to.bytes, pair.from.bytes, MESSAGES * size);
		until_whole(&pair, 10);
		sheds = &pair.send->striped.sheds[LOST_RAIL];
		assert_int_equal(sheds->mends, 1);
		again = sheds->mended_stripes;
		kept += !logged("; 0 parts of messages had come over it");
		/* A stripe is half a message, and what is there is not sent again. */
		assert_int_equal(sheds->mended_bytes, again * (size / 2 / 128 * 128));
		posted = pair.send->paths[0]->qps[0].sq_posted - before;
		assert_true(posted >= MESSAGES + again);
		assert_in_range(again, 1, MESSAGES);
		assert_int_equal(pair.recv->count.stale_completions, stale); /* none came twice */
		assert_no_failover(&pair);
		pair_close(&pair);
	}
	assert_true(kept >= 2);
}

static uint64_t later_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Messages that only the control rail carries, one every three milliseconds for so long; returns
 * the longest that one took to arrive, and to be known to have, where that is not counted in order.
 */
static uint64_t longest_of_small_ones(struct pair *pair, unsigned ms)
{
	const uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;
	uint64_t longest_ns = 0;

	for (uint32_t i = 0; sv_stepped_now() < until_ns; i++) {
		const size_t offset = 1 << 20, size = 1000;
		const uint64_t begun_ns = sv_stepped_now();
		struct ha_request *recv, *send;
		const int tag = 7;

		recv = post_recv(pair, 1, &offset, &size, &tag);
		send = post_send(pair, offset, size, tag);
		assert_int_equal(pair_finish(pair, recv, NULL), HA_OK);
		longest_ns = later_of(longest_ns, sv_stepped_now() - begun_ns);
		assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
		if (pair->config.completion == HA_COMPLETION_RC)
			longest_ns = later_of(longest_ns, sv_stepped_now() - begun_ns);
		pair_pass(pair, 3);
	}
	return longest_ns;
}

/* From now on this NIC takes its time with what it is told. */
static int make_slow(uint32_t host)
{
	char rule[80];

	snprintf(rule, sizeof(rule), "wait=5s verb=modify_qp host=%u rail=%u", host, LOST_RAIL);
	return add_rule(rule);
}

/* A lost stripe waits for a NIC that does not answer, and then for nobody: messages on the other
 * rail do not, before, meanwhile and after. */
static void messages_on_the_others_wait_for_nothing(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 6; which++) {
		struct in_flight t;
		struct pair pair;
		int slow = -1;

		carrying(&pair, 2, modes[which % 2]);
		if (which >= 2)
			slow = make_slow(which / 2 % 2);
		t = pair_start(&pair);
		for (unsigned i = 0; i < 10; i++)
			sv_stepped_step();
		sv_stepped_link(0, LOST_RAIL, false);
		assert_in_range(longest_of_small_ones(&pair, slow < 0 ? 20 : 120), 1,
				5 * HA_NS_PER_MS);
		assert_true(is_whole(&pair));
		assert_int_equal(sheds(&pair), 1);
		assert_true(slow < 0 || fired(slow) > 0);
		assert_arrived(&pair, &t);
		assert_no_failover(&pair);
		if (slow >= 0)
			sv_stepped_fault_remove(slow);
		pair_pass(&pair, 6000);
		pair_close(&pair);
	}
}

/* What the receiver has of the lost rail it has; what the other one still reads is not given back.
 */
static void a_message_that_is_there_is_complete_when_every_rail_has_let_go_of_it(void **state)
{
	const size_t offset = 0, size = 300000;
	struct ha_request *recv, *send;
	struct pair pair;
	const int tag = 3;
	bool done = true;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	fill(pair.from.bytes, size, 8);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	pair_idle(&pair, 1);
	(void)add_rule("delay=8ms host=1 rail=0");
	send = post_send(&pair, offset, size, tag);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	sv_stepped_link(0, LOST_RAIL, false);
	for (int i = 0; i < 1000 && pair.send->failover->rails[1].mended_gen == 0; i++)
		pair_step(&pair);
	assert_int_equal(pair.send->failover->rails[1].mended_gen, 1);
	assert_int_equal(ha_test(send, &done, NULL), HA_OK);
	assert_false(done);
	assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- what people are told -------------------------------------------------------------------- */

/* Of so many lines of this kind in the event log, what they say together. */
struct told {
	unsigned lines;
	json_int_t messages, bytes;
};

static struct told told_of(const char *path, const char *kind)
{
	FILE *file = fopen(path, "r");
	struct told told = {0};
	char line[16384];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		json_t *event = json_loads(line, 0, NULL), *from = json_object_get(event, "from");

		assert_non_null(event);
		if (strcmp(json_string_value(json_object_get(event, "kind")), kind) == 0) {
			told.lines++;
			assert_string_equal(json_string_value(json_object_get(from, "port")),
					    "sim1:1");
			assert_int_equal(json_integer_value(json_object_get(from, "generation")),
					 1);
			assert_non_null(json_string_value(json_object_get(event, "reason")));
			assert_int_equal(json_integer_value(json_object_get(event, "epoch")), 1);
			told.messages +=
			    json_integer_value(json_object_get(event, "replayed_messages"));
			told.bytes += json_integer_value(json_object_get(event, "replayed_bytes"));
		}
		json_decref(event);
	}
	fclose(file);
	return told;
}

static void assert_counts(const struct pair *pair, unsigned end, uint64_t sheds, uint64_t stripes,
			  uint64_t bytes)
{
	const struct ha_port_report *ports = pair->inst[end]->port_reports;
	const struct ha_comm *comm = end == 0 ? pair->send : pair->recv;

	assert_int_equal(ports[0].sheds, 0);
	assert_int_equal(ports[LOST_RAIL].sheds, sheds);
	assert_int_equal(ports[LOST_RAIL].mends, sheds);
	assert_int_equal(ports[LOST_RAIL].mended_stripes, stripes);
	assert_int_equal(ports[LOST_RAIL].mended_bytes, bytes);
	assert_int_equal(comm->striped.sheds[LOST_RAIL].sheds, sheds);
	assert_int_equal(comm->striped.sheds[0].sheds, 0);
	assert_int_equal(comm->count.replayed_bytes, 0); /* of failovers */
}

/* Of the port that it was, at both ends; and only a sender has sent anything again. */
static void what_was_shed_and_mended_is_in_log_event_log_and_counts_alike(void **state)
{
	const char *before = ha_stats_dir;
	char dir[] = "/tmp/ha-shed-XXXXXX";
	struct in_flight t;
	struct told told;
	struct pair pair;

	(void)state;
	ha_stats_dir = mkdtemp(dir);
	assert_non_null(ha_stats_dir);
	bundled_init(&pair, 2);
	pair.config.stats = true;
	snprintf(pair.config.event_log, sizeof(pair.config.event_log), "%s/events", dir);
	strcpy(pair.config.rail_share, "1,1");
	pair_up(&pair);
	wait_members(&pair, 2);
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(0, LOST_RAIL, false);
	assert_arrived(&pair, &t);
	until_whole(&pair, 10);
	assert_logged("sim1:1 (path 1.1) is shed, the other rails carry on: ");
	assert_logged("sim1:1 (path 1.1) is mended: ");
	assert_logged("; 0 parts of messages had come over it, 1 part (149.");
	pair_idle(&pair, 1000);
	assert_counts(&pair, 0, 1, 1, 149888);
	assert_counts(&pair, 1, 1, 0, 0);
	assert_int_equal(told_of(pair.config.event_log, "shed").lines, 2);
	told = told_of(pair.config.event_log, "mended");
	assert_int_equal(told.lines, 2);
	assert_int_equal(told.messages, 1);
	assert_int_equal(told.bytes, 149888);
	assert_int_equal(told_of(pair.config.event_log, "switch").lines, 0);
	assert_no_failover(&pair);
	pair_close(&pair);
	assert_int_equal(unlink(pair.config.event_log), 0);
	assert_int_equal(rmdir(dir), 0);
	ha_stats_dir = before;
}

/* More got through without it: the next stripe that the other one carries says so. */
static void about_to_be_parked(struct pair *pair, unsigned p)
{
	struct ha_parking *parking = &pair->send->send->parking;

	parking->state = HA_PARKING_ALONE;
	parking->slot = (uint8_t)p;
	parking->settled = true;
	parking->stripes = 1000;
	parking->bytes = 1ull << 30;
	parking->busy_ns = HA_NS_PER_S;
	parking->together = 1e-3;
}

/* It is lost, its path is gone and not mended yet, and so nobody can name it. */
static void a_rail_that_is_lost_when_it_is_parked_is_not_named(void **state)
{
	struct in_flight t;
	struct pair pair;
	unsigned p;

	(void)state;
	carrying_by(&pair, 2, HA_COMPLETION_RC, "");
	p = path_on(pair.send, "sim1");
	(void)add_rule("wait=15ms verb=modify_qp host=1 rail=1");
	(void)add_rule("delay=8ms host=0 rail=0 minlen=1000");
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(0, LOST_RAIL, false);
	for (int i = 0; i < 1000 && pair.send->paths[p]; i++)
		pair_step(&pair);
	assert_null(pair.send->paths[p]);
	assert_false(is_whole(&pair));
	about_to_be_parked(&pair, p);
	for (int i = 0; i < 1000 && pair.send->send->parking.state == HA_PARKING_ALONE; i++)
		pair_step(&pair);
	assert_int_equal(pair.send->send->parking.state, HA_PARKING_PARKED);
	assert_null(pair.send->paths[p]);
	assert_false(logged("more gets through without"));
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(pair.send->send->parking.state,
			 HA_PARKING_REST); /* of whatever comes there */
	transfer(&pair, 300000, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- more than one --------------------------------------------------------------------------- */

static void two_rails_are_shed_beside_each_other(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 40; steps += 3) {
		struct in_flight t;
		struct pair pair;

		carrying(&pair, 3, modes[steps % 2]);
		t = pair_start(&pair);
		for (unsigned i = 0; i < 10 + steps / 4; i++)
			sv_stepped_step();
		sv_stepped_link(steps % 2, 1, false);
		for (unsigned i = 0; i < steps; i++)
			pair_step(&pair);
		sv_stepped_link(steps / 2 % 2, 2, false);
		assert_arrived(&pair, &t);
		until_whole(&pair, 20);
		assert_int_equal(sheds(&pair), 2);
		transfer(&pair, 300000, 2);
		assert_no_failover(&pair);
		pair_close(&pair);
	}
}

/* At each of the events of a shed, at either end: that is a failover, to what is left or, of two,
 * to what comes back. When it is over, and another rail is left, it is none where ends take turns
 * (test_turn.c). */
static void the_control_rail_lost_during_a_shed_is_a_failover(void **state)
{
	(void)state;
	for (unsigned steps = 0; steps < 90; steps += 3) {
		const uint32_t rails = 2 + steps / 2 % 2;
		struct in_flight t;
		struct pair pair;

		carrying(&pair, rails, modes[steps / 4 % 2]);
		without_turns(&pair);
		t = pair_start(&pair);
		for (unsigned i = 0; i < 10; i++)
			sv_stepped_step();
		sv_stepped_link(steps % 2, LOST_RAIL, false);
		for (unsigned i = 0; i < steps; i++)
			pair_step(&pair);
		sv_stepped_link(steps / 8 % 2, 0, false);
		pair_idle(&pair, 30);
		if (rails == 2)
			sv_stepped_link(steps / 8 % 2, 0, true);
		assert_arrived(&pair, &t);
		for (uint32_t i = 0; i < 4; i++)
			transfer(&pair, 1 + i * 70000, i);
		assert_int_equal(pair.recv->count.failovers, 1);
		assert_int_equal(pair.send->count.failovers, 1);
		assert_true(is_whole(&pair));
		pair_close(&pair);
	}
}

/* Both its NICs keep the command, and nothing else tells that nothing comes any more. */
static void a_shed_that_takes_too_long_is_a_failover(void **state)
{
	struct in_flight t;
	struct pair pair;
	int slow[2];

	(void)state;
	carrying(&pair, 3, HA_COMPLETION_RC);
	for (uint32_t host = 0; host < 2; host++)
		slow[host] = make_slow(host);
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(0, LOST_RAIL, false);
	pair_pass(&pair, 400);
	assert_int_equal(pair.recv->failover->epoch, 1);
	assert_false(is_whole(&pair));
	pair_pass(&pair, 200);
	assert_int_equal(pair.recv->failover->epoch, 2);
	assert_true(fired(slow[0]) > 0 && fired(slow[1]) > 0);
	for (uint32_t host = 0; host < 2; host++)
		sv_stepped_fault_remove(slow[host]);
	pair_pass(&pair, 6000); /* the commands are back */
	assert_arrived(&pair, &t);
	transfer(&pair, 300000, 2);
	assert_true(is_whole(&pair));
	pair_close(&pair);
}

/* ---- and back ------------------------------------------------------------------------------- */

static void a_rail_that_is_back_carries_again_without_a_fence_of_the_others(void **state)
{
	(void)state;
	for (unsigned mode = 0; mode < 2; mode++) {
		uint32_t other, fenced;
		struct pair pair;

		carrying(&pair, 3, modes[mode]);
		other = pair.recv->paths[path_on(pair.recv, "sim2")]->generation;
		for (unsigned times = 1; times <= 8; times++) {
			const unsigned p = path_on(pair.recv, "sim1");
			struct in_flight t = pair_start(&pair);

			sv_stepped_step();
			fenced = pair.recv->failover->slots[p].fenced_gen;
			sv_stepped_link(times % 2, LOST_RAIL, false);
			assert_arrived(&pair, &t);
			until_whole(&pair, 10);
			assert_true(pair.recv->failover->slots[p].fenced_gen > fenced);
			sv_stepped_link(times % 2, LOST_RAIL, true);
			wait_members(&pair, 3);
			transfer(&pair, 300000, times);
		}
		assert_no_failover(&pair);
		assert_int_equal(pair.recv->paths[path_on(pair.recv, "sim2")]->generation, other);
		pair_close(&pair);
	}
}

/* What the sender has of large messages on path p: nothing is under way there, and nothing is
 * learnt. */
static void assert_forgotten(const struct pair *pair, unsigned p)
{
	static const struct ha_rail_load none;
	uint16_t share[HA_RAILS_MAX];

	assert_false(pair->send->send->shares.slots >> p & 1);
	assert_memory_equal(&pair->send->send->balance.rails[p], &none, sizeof(none));
	ha_rail_shares_now(pair->send, share);
	assert_int_equal(share[LOST_RAIL], 0);
}

/* Of stripes that were under way when it was lost nothing is under way when it is back: then it has
 * its half again, of messages that are cut by what each rail has to do. */
static void a_rail_that_is_back_owes_nothing_from_before(void **state)
{
	enum { MESSAGES = 8 };

	(void)state;
	for (unsigned mode = 0; mode < 2; mode++) {
		uint64_t before[2], carried[2];
		struct in_flight t;
		struct pair pair;
		unsigned p;

		carrying_by(&pair, 2, modes[mode], "");
		p = path_on(pair.send, "sim1");
		t = pair_start(&pair);
		for (unsigned i = 0; i < 4; i++)
			sv_stepped_step();
		assert_true(pair.send->send->balance.rails[p].pending != 0);
		sv_stepped_link(0, LOST_RAIL, false);
		assert_arrived(&pair, &t);
		until_whole(&pair, 10);
		assert_forgotten(&pair, p);
		sv_stepped_link(0, LOST_RAIL, true);
		wait_members(&pair, 2);
		memcpy(before, pair.send->striped.bytes, sizeof(before));
		for (uint32_t i = 0; i < MESSAGES; i++)
			transfer(&pair, 300000, i);
		for (unsigned rail = 0; rail < 2; rail++)
			carried[rail] = pair.send->striped.bytes[rail] - before[rail];
		assert_int_equal(carried[0] + carried[1], MESSAGES * 300000);
		assert_in_range(carried[LOST_RAIL], MESSAGES * 300000 / 4, MESSAGES * 300000);
		assert_no_failover(&pair);
		pair_close(&pair);
	}
}

static bool is_named(const struct ha_comm *recv, uint64_t seq, unsigned p)
{
	return recv->recv_ring->cts[seq & recv->slot_mask][0].named >> 4 * p & 0xf;
}

/* What a row says of a generation is not all of it, and its key is of one NIC. */
static void a_slot_carries_again_when_no_row_names_what_was_lost_of_it(void **state)
{
	enum { MESSAGES = 12 };
	const size_t size = 300000;
	struct ha_request *recv[MESSAGES];
	struct pair pair;
	unsigned p;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	for (int i = 0; i < MESSAGES; i++) {
		const size_t offset = (size_t)i * size;

		recv[i] = post_recv(&pair, 1, &offset, &size, &i);
		assert_true(is_named(pair.recv, pair.recv->recv->next_seq - 1, p));
	}
	sv_stepped_link(0, LOST_RAIL, false);
	pair_idle(&pair, 20);
	assert_true(is_whole(&pair));
	sv_stepped_link(0, LOST_RAIL, true);
	pair_pass(&pair, 3000);
	assert_int_equal(pair.recv->paths[p]->generation, 2);
	assert_int_equal(pair.recv->failover->slots[p].state, HA_SLOT_GOOD);
	fill(pair.from.bytes, MESSAGES * size, 8);
	for (int i = 0; i < MESSAGES; i++) {
		struct ha_request *send = post_send(&pair, (size_t)i * size, size, i);

		assert_int_equal(carrying_now(&pair), 1);
		assert_int_equal(pair_finish(&pair, recv[i], NULL), HA_OK);
		assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
		if (i < MESSAGES - 1)
			pair_idle(&pair, 10);
	}
	assert_memory_equal(pair.to.bytes, pair.from.bytes, MESSAGES * size);
	wait_members(&pair, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* Its port is there again while the sender's NIC still keeps the fence to itself. */
static void a_slot_is_not_built_again_before_it_is_mended(void **state)
{
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	slow = make_slow(0);
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(1, LOST_RAIL, false);
	pair_pass(&pair, 2);
	sv_stepped_link(1, LOST_RAIL, true);
	pair_pass(&pair, 15);
	assert_false(is_whole(&pair));
	assert_int_equal(pair.recv->failover->slots[p].fenced_gen, 1);
	assert_int_equal(pair.recv->failover->slots[p].newest_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 20);
	assert_int_equal(sheds(&pair), 1);
	assert_true(fired(slow) > 0);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	wait_members(&pair, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- what a peer says ------------------------------------------------------------------------ */

/* Of both ends' bundle one rail alone is left, and a port that is none is in reserve. */
static unsigned reserve_off_the_bundle(struct pair *pair)
{
	bundled_init(pair, 2);
	pair->fabric.rails = 3;
	pair_open(pair);
	pair_connect(pair);
	wait_members(pair, 2);
	sv_stepped_link(0, LOST_RAIL, false);
	sv_stepped_link(1, LOST_RAIL, false);
	for (int i = 0; i < 100; i++) {
		pair_idle(pair, 100);
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (pair->send->paths[p] && strcmp(nic_of(pair->send, p), "sim2") == 0 &&
			    ha_slot_is_up(&pair->send->failover->slots[p]))
				return p;
	}
	fail_msg("nothing is in reserve off the bundle");
	return 0;
}

/* As the other end would say it now. */
static struct ha_message said_by(const struct ha_comm *from, uint8_t kind)
{
	struct ha_message m = {
	    .kind = kind,
	    .rto_ms = 1000,
	    .ports_up = 0xffff,
	    .epoch = from->failover->epoch,
	    .serial = from->failover->serial + 1,
	    .window = from->is_send ? from->send->completed : from->recv->done,
	};

	return m;
}

/* It takes what is mended: its loss is a failover, and never a shed, where ends take no turns. */
static void the_control_rail_cannot_be_shed(void **state)
{
	struct ha_message m;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	without_turns(&pair);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << pair.send->active);
	m.fenced_gen[pair.send->active] = 1;
	hear(pair.send, &m);
	assert_false(ha_rails_lack(pair.send));
	assert_int_equal(pair.send->striped.sheds[0].sheds, 0);
	pair_idle(&pair, 100);
	transfer(&pair, 300000, 2);
	assert_int_equal(pair.recv->failover->rails[pair.recv->active].generation, 0);
	pair_close(&pair);
}

/* The NIC here has not said yet that nothing comes any more: what a sender says of its end frees
 * nothing. */
static void mended_means_nothing_before_the_own_fence(void **state)
{
	struct ha_message m;
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.recv, "sim1");
	slow = make_slow(1);
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(1, LOST_RAIL, false);
	for (int i = 0; i < 1000 && !ha_rails_is_lost(pair.recv, p); i++)
		pair_step(&pair);
	assert_int_equal(pair.recv->failover->rails[p].state, HA_RAIL_SHEDDING);
	m = said_by(pair.send, HA_MSG_MENDED);
	m.fenced_gen[p] = m.mended_gen[p] = 1;
	hear(pair.recv, &m);
	assert_true(ha_rails_is_lost(pair.recv, p));
	assert_int_equal(pair.recv->striped.sheds[LOST_RAIL].mends, 0);
	assert_int_equal(pair.recv->failover->slots[p].newest_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(sheds(&pair), 1);
	assert_true(fired(slow) > 0);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	pair_close(&pair);
}

/* A statement that comes again, when the same slot has lost another path: it is final of the first
 * one only. */
static void what_was_said_of_an_earlier_loss_says_nothing_of_this_one(void **state)
{
	struct ha_message m;
	struct in_flight t;
	struct pair pair;
	unsigned p;
	int slow;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.send, "sim1");
	sv_stepped_link(1, LOST_RAIL, false);
	pair_idle(&pair, 20);
	until_whole(&pair, 10);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << p);
	m.fenced_gen[p] = 1;
	sv_stepped_link(1, LOST_RAIL, true);
	wait_members(&pair, 2);
	assert_int_equal(pair.send->paths[p]->generation, 2);
	slow = make_slow(1);
	t = pair_start(&pair);
	for (unsigned i = 0; i < 10; i++)
		sv_stepped_step();
	sv_stepped_link(1, LOST_RAIL, false);
	for (int i = 0; i < 1000 && pair.send->failover->rails[p].state != HA_RAIL_SHED; i++)
		pair_step(&pair);
	assert_int_equal(pair.send->failover->rails[p].state, HA_RAIL_SHED);
	assert_int_equal(pair.recv->failover->rails[p].state, HA_RAIL_SHEDDING);
	m.serial = pair.recv->failover->serial + 1;
	hear(pair.send, &m);
	assert_int_equal(pair.send->failover->rails[p].mended_gen, 1);
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(pair.send->failover->rails[p].mended_gen, 2);
	assert_no_failover(&pair);
	sv_stepped_fault_remove(slow);
	pair_pass(&pair, 6000);
	pair_close(&pair);
}

/* What a receiver says is why; a number that no version of ours has is no place in memory. */
static void a_reason_that_is_unknown_is_said_to_be(void **state)
{
	struct ha_message m;
	struct pair pair;
	unsigned p;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	p = path_on(pair.send, "sim1");
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = (uint8_t)(1u << p);
	m.fenced_gen[p] = 1;
	m.reason = 255;
	hear(pair.send, &m);
	assert_true(ha_rails_is_lost(pair.send, p));
	assert_logged("sim1:1 (path 1.1) is shed, the other rails carry on: unknown");
	until_whole(&pair, 100);
	transfer(&pair, 300000, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* Nothing but a rail can be shed: a receiver that says so of another path says nothing. */
static void what_is_no_rail_cannot_be_shed(void **state)
{
	struct ha_message m;
	struct pair pair;
	unsigned p;

	(void)state;
	p = reserve_off_the_bundle(&pair);
	m = said_by(pair.recv, HA_MSG_SHED);
	m.lost = m.drained = (uint8_t)(1u << p);
	m.fenced_gen[p] = pair.send->failover->slots[p].newest_gen;
	hear(pair.send, &m);
	assert_false(ha_rails_is_lost(pair.send, p));
	pair_idle(&pair, 100);
	assert_int_equal(pair.send->failover->rails[p].generation, 0);
	for (unsigned rail = 0; rail < 2; rail++)
		assert_int_equal(pair.send->striped.sheds[rail].sheds, rail == LOST_RAIL);
	transfer(&pair, 300000, 2);
	assert_no_failover(&pair);
	pair_close(&pair);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void a_rail_goes_through_its_states_in_one_order(void **state)
{
	static const enum ha_rail_state next[HA_RAIL_COUNT][HA_RAIL_EVENT_COUNT] = {
	    [HA_RAIL_WHOLE] = {HA_RAIL_SHEDDING, HA_RAIL_COUNT, HA_RAIL_COUNT, HA_RAIL_WHOLE},
	    [HA_RAIL_SHEDDING] = {HA_RAIL_COUNT, HA_RAIL_SHED, HA_RAIL_COUNT, HA_RAIL_WHOLE},
	    [HA_RAIL_SHED] = {HA_RAIL_COUNT, HA_RAIL_COUNT, HA_RAIL_WHOLE, HA_RAIL_WHOLE},
	};

	(void)state;
	for (unsigned s = 0; s < HA_RAIL_COUNT; s++)
		for (unsigned e = 0; e < HA_RAIL_EVENT_COUNT; e++)
			assert_int_equal(ha_rail_next((enum ha_rail_state)s, (enum ha_rail_event)e),
					 next[s][e]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_rail_lost_in_mid_transfer_takes_no_epoch),
	    cmocka_unit_test(exactly_what_was_lost_is_sent_again),
	    cmocka_unit_test(messages_on_the_others_wait_for_nothing),
	    cmocka_unit_test(a_message_that_is_there_is_complete_when_every_rail_has_let_go_of_it),
	    cmocka_unit_test(what_was_shed_and_mended_is_in_log_event_log_and_counts_alike),
	    cmocka_unit_test(a_rail_that_is_lost_when_it_is_parked_is_not_named),
	    cmocka_unit_test(two_rails_are_shed_beside_each_other),
	    cmocka_unit_test(the_control_rail_lost_during_a_shed_is_a_failover),
	    cmocka_unit_test(a_shed_that_takes_too_long_is_a_failover),
	    cmocka_unit_test(a_rail_that_is_back_carries_again_without_a_fence_of_the_others),
	    cmocka_unit_test(a_rail_that_is_back_owes_nothing_from_before),
	    cmocka_unit_test(a_slot_carries_again_when_no_row_names_what_was_lost_of_it),
	    cmocka_unit_test(a_slot_is_not_built_again_before_it_is_mended),
	    cmocka_unit_test(what_is_no_rail_cannot_be_shed),
	    cmocka_unit_test(a_reason_that_is_unknown_is_said_to_be),
	    cmocka_unit_test(what_was_said_of_an_earlier_loss_says_nothing_of_this_one),
	    cmocka_unit_test(the_control_rail_cannot_be_shed),
	    cmocka_unit_test(mended_means_nothing_before_the_own_fence),
	    cmocka_unit_test(a_rail_goes_through_its_states_in_one_order),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
