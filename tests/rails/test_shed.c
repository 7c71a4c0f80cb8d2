/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail is lost that is not the control rail: no epoch, nothing stops on the others, and exactly
 * what was lost with it is sent again. Two hosts, one thread, virtual time.
 */
#include "shedding.h"

#include "base/stats_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

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

/* ---- two hundred of them --------------------------------------------------------------------- */

enum { LOSSES = 200, WINDOW = 4 };

/* What a loss took: from it until all was posted again that was lost with it, and a message of the
 * other rail at most. */
struct loss {
	uint64_t mended_ns, waited_ns;
};

/* Small messages, one each 100 us, over the rail that is left. */
struct small {
	struct ha_request *recv, *send;
	uint64_t begun_ns, longest_ns;
	bool begun, sent;
};

static void small_goes_on(struct pair *pair, struct small *small)
{
	const size_t offset = 3 << 20, size = 1000;
	const uint64_t now_ns = sv_stepped_now();
	const int tag = 7;

	if (small->begun && !small->sent) {
		small->send = try_send(pair, offset, size, tag);
		small->sent = small->send != NULL;
	} else if (small->begun && pair_is_done(&small->recv)) {
		small->longest_ns = later_of(small->longest_ns, now_ns - small->begun_ns);
		small->begun = false;
	} else if (!small->begun && pair_is_done(&small->send) &&
		   now_ns >= small->begun_ns + 100 * HA_NS_PER_US) {
		small->recv = post_recv(pair, 1, &offset, &size, &tag);
		*small = (struct small){.recv = small->recv,
					.begun_ns = now_ns,
					.longest_ns = small->longest_ns,
					.begun = true};
	}
}

/* All of them are looked at: a window's places are free when all are. */
static bool are_over(struct ha_request *requests[2 * WINDOW])
{
	bool over = true;

	for (unsigned i = 0; i < 2 * WINDOW; i++)
		over &= pair_is_done(&requests[i]);
	return over;
}

/* At an event of a window of large messages, at either end, on rails of 100 Gb/s that take 2 us,
 * with NICs that take 200 us for each command. */
static struct loss lose_one(unsigned number, uint64_t *stripes)
{
	const size_t length = 200000;
	struct ha_request *large[2 * WINDOW];
	const struct nccl_ha_shed_stats *sheds;
	struct small small = {.recv = NULL};
	struct loss loss = {.mended_ns = 0};
	uint64_t lost_ns;
	struct pair pair;

	bundled_init(&pair, 2);
	for (unsigned rail = 0; rail < 2; rail++) {
		pair.fabric.rail_rate_mbps[rail] = 100000;
		pair.fabric.rail_latency_ns[rail] = 2000;
	}
	carrying_on(&pair, 2, modes[number % 2], "1,1");
	(void)add_rule("wait=200us verb=modify_qp");
	sheds = &pair.send->striped.sheds[LOST_RAIL];
	fill(pair.from.bytes, WINDOW * length, number);
	for (int i = 0; i < WINDOW; i++) {
		const size_t offset = (size_t)i * length;

		large[2 * i] = post_recv(&pair, 1, &offset, &length, &i);
		large[2 * i + 1] = post_send(&pair, offset, length, i);
	}
	for (unsigned i = 0; i < number; i++)
		sv_stepped_step();
	lost_ns = sv_stepped_now();
	sv_stepped_link(number / 2 % 2, LOST_RAIL, false);
	while (!are_over(large) || sheds->mends == 0) {
		assert_in_range(sv_stepped_now() - lost_ns, 0, HA_NS_PER_S);
		small_goes_on(&pair, &small);
		pair_advance(&pair);
		if (sheds->mends != 0 && loss.mended_ns == 0)
			loss.mended_ns = sv_stepped_now() - lost_ns;
	}
	while (small.begun || !pair_is_done(&small.send)) {
		assert_in_range(sv_stepped_now() - lost_ns, 0, HA_NS_PER_S);
		small_goes_on(&pair, &small);
		pair_advance(&pair);
	}
	loss.waited_ns = small.longest_ns;
	assert_memory_equal(pair.to.bytes, pair.from.bytes, WINDOW * length);
	assert_true(sheds->mended_bytes <= sheds->mended_stripes * (length / 2 + 128));
	*stripes += sheds->mended_stripes;
	assert_no_failover(&pair);
	pair_close(&pair);
	return loss;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The value that 99 of 100 do not exceed. */
static uint64_t p99(const char *what, uint64_t values[LOSSES])
{
	qsort(values, LOSSES, sizeof(*values), by_value);
	print_message("%s: p50 %.3f ms, p99 %.3f ms, at most %.3f ms\n", what,
		      (double)values[LOSSES / 2 - 1] / HA_NS_PER_MS,
		      (double)values[LOSSES * 99 / 100 - 1] / HA_NS_PER_MS,
		      (double)values[LOSSES - 1] / HA_NS_PER_MS);
	return values[LOSSES * 99 / 100 - 1];
}

static void of_200_losses_99_in_100_are_mended_in_10_ms_and_delay_others_by_5(void **state)
{
	uint64_t mended_ns[LOSSES], waited_ns[LOSSES], stripes = 0;

	(void)state;
	for (unsigned i = 0; i < LOSSES; i++) {
		const struct loss loss = lose_one(i, &stripes);

		mended_ns[i] = loss.mended_ns;
		waited_ns[i] = loss.waited_ns;
	}
	assert_true(stripes >= LOSSES); /* it was lost in their midst */
	assert_in_range(p99("sent again", mended_ns), 1, 10 * HA_NS_PER_MS);
	assert_in_range(p99("others waited", waited_ns), 1, 5 * HA_NS_PER_MS);
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

/* More got through without it, for the second time: the next stripe that the other one carries says
 * so. */
static void about_to_be_parked(struct pair *pair, unsigned p)
{
	struct ha_parking *parking = &pair->send->send->parking.trial;

	parking->state = HA_PARKING_AGAIN;
	parking->slot = (uint8_t)p;
	parking->better = 1;
	parking->settled = true;
	parking->stripes = 1000;
	parking->bytes = 1ull << 30;
	parking->busy_ns = HA_NS_PER_S;
	parking->alone = 1e6;
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
	transfer(&pair, 300000, 1); /* from when it carries stripes on it leads */
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
	for (int i = 0; i < 1000 && pair.send->send->parking.trial.state == HA_PARKING_AGAIN; i++)
		pair_step(&pair);
	assert_int_equal(pair.send->send->parking.trial.state, HA_PARKING_PARKED);
	assert_null(pair.send->paths[p]);
	assert_false(logged("more gets through without"));
	assert_arrived(&pair, &t);
	until_whole(&pair, 100);
	assert_int_equal(pair.send->send->parking.trial.state,
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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_rail_lost_in_mid_transfer_takes_no_epoch),
	    cmocka_unit_test(exactly_what_was_lost_is_sent_again),
	    cmocka_unit_test(messages_on_the_others_wait_for_nothing),
	    cmocka_unit_test(of_200_losses_99_in_100_are_mended_in_10_ms_and_delay_others_by_5),
	    cmocka_unit_test(a_message_that_is_there_is_complete_when_every_rail_has_let_go_of_it),
	    cmocka_unit_test(what_was_shed_and_mended_is_in_log_event_log_and_counts_alike),
	    cmocka_unit_test(a_rail_that_is_lost_when_it_is_parked_is_not_named),
	    cmocka_unit_test(two_rails_are_shed_beside_each_other),
	    cmocka_unit_test(the_control_rail_lost_during_a_shed_is_a_failover),
	    cmocka_unit_test(a_shed_that_takes_too_long_is_a_failover),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
