/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream of large messages gains by a bundle of two rails of some rates and latencies. Two
 * hosts, one thread, virtual time: the figures are exact. An argument: so many messages that a rail
 * without a share has nothing of, and no other test.
 */
#include "bundled.h"

#include "base/stats_file.h"

#include <stdlib.h>
#include <unistd.h>

#define SIZE	 (256u << 10) /* at most, of a message */
#define DEPTH	 6
#define MESSAGES 120

static unsigned without_share = MESSAGES;

struct rails {
	uint32_t rate_mbps[2];
	uint64_t latency_ns[2];
};

static void post(struct pair *pair, size_t size, unsigned slot, struct ha_request **recv,
		 struct ha_request **send)
{
	const size_t offset = (size_t)slot * SIZE;
	const int tag = (int)slot;

	memset(pair->to.bytes + offset, CANARY, size);
	*recv = post_recv(pair, 1, &offset, &size, &tag);
	*send = post_send(pair, offset, size, tag);
}

/* Virtual time of messages one behind the other, DEPTH of them under way. */
static uint64_t stream_ns(struct pair *pair, size_t size, unsigned messages)
{
	struct ha_request *recv[DEPTH], *send[DEPTH];
	const uint64_t since_ns = sv_stepped_now();

	for (unsigned i = 0; i < messages + DEPTH; i++) {
		const unsigned slot = i % DEPTH;

		if (i >= DEPTH) {
			assert_int_equal(pair_finish(pair, recv[slot], NULL), HA_OK);
			assert_int_equal(pair_finish(pair, send[slot], NULL), HA_OK);
			assert_memory_equal(pair->to.bytes + (size_t)slot * SIZE,
					    pair->from.bytes + (size_t)slot * SIZE, size);
		}
		if (i < messages)
			post(pair, size, slot, &recv[slot], &send[slot]);
	}
	return sv_stepped_now() - since_ns;
}

/* On both rails, or on the first alone; a while after messages came to be large. */
static void begin(struct pair *pair, const struct rails *rails, bool bundle, const char *share)
{
	if (!bundle)
		*pair->config.rails = '\0';
	strcpy(pair->config.rail_share, share);
	memcpy(pair->fabric.rail_rate_mbps, rails->rate_mbps, sizeof(rails->rate_mbps));
	memcpy(pair->fabric.rail_latency_ns, rails->latency_ns, sizeof(rails->latency_ns));
	pair_up(pair);
	fill(pair->from.bytes, (size_t)DEPTH * SIZE, 7);
	if (bundle)
		wait_members(pair, 2);
	(void)stream_ns(pair, SIZE, 4 * DEPTH);
}

static uint64_t measure_ns(const struct rails *rails, size_t size, bool bundle)
{
	struct pair pair;
	uint64_t ns;

	bundled_init(&pair, 2);
	begin(&pair, rails, bundle, "");
	(void)stream_ns(&pair, size, 2 * DEPTH);
	ns = stream_ns(&pair, size, MESSAGES);
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
	return ns;
}

/* Thousandths of what the first rail does alone. */
static unsigned gain_of(const struct rails *rails, size_t size)
{
	return (unsigned)(measure_ns(rails, size, false) * 1000 / measure_ns(rails, size, true));
}

static unsigned gain(const struct rails *rails)
{
	return gain_of(rails, SIZE);
}

/* What a rail carries of a stream: out of the sender's port, and into the receiver's. */
static struct sv_stepped_traffic carried(struct pair *pair, unsigned rail, unsigned messages)
{
	struct sv_stepped_traffic out[2], in[2];

	sv_stepped_get_traffic(0, rail, &out[0]);
	sv_stepped_get_traffic(1, rail, &in[0]);
	(void)stream_ns(pair, SIZE, messages);
	sv_stepped_get_traffic(0, rail, &out[1]);
	sv_stepped_get_traffic(1, rail, &in[1]);
	return (struct sv_stepped_traffic){.bytes_out = out[1].bytes_out - out[0].bytes_out,
					   .immediates = in[1].immediates - in[0].immediates};
}

static void two_equal_rails_carry_twice_as_much(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};

	(void)state;
	assert_in_range(gain(&rails), 1950, 2050);
}

/* They go over one rail each, in turns. */
static void messages_that_are_not_cut_gain_as_much(void **state)
{
	static const struct rails equal = {{8000, 8000}, {2000, 2000}};
	static const struct rails unequal = {{12000, 4000}, {2000, 2000}};

	(void)state;
	assert_in_range(gain_of(&equal, 64 << 10), 1900, 2050);
	assert_in_range(gain_of(&unequal, 64 << 10), 950 * 4 / 3, 1000 * 4 / 3 + 20);
}

/* Both ports announce 10 Gb/s: what they carry has to be seen. */
static void rails_of_which_one_is_three_times_as_fast_carry_what_both_can(void **state)
{
	static const struct rails rails = {{12000, 4000}, {2000, 2000}};

	(void)state;
	assert_in_range(gain(&rails), 950 * 4 / 3, 1000 * 4 / 3 + 20);
}

/* In less than a second after it began, by 3 % of the smaller one. */
static void shares_of_rails_are_what_they_can_carry(void **state)
{
	static const struct rails rails = {{12000, 4000}, {2000, 2000}};
	const uint64_t bytes = (uint64_t)MESSAGES * SIZE;
	struct pair pair;
	uint64_t second;

	(void)state;
	bundled_init(&pair, 2);
	begin(&pair, &rails, true, "");
	assert_true(sv_stepped_now() < HA_NS_PER_S); /* the clock began with the fabric */
	second = carried(&pair, 1, MESSAGES).bytes_out * 100000 / bytes;
	print_message("%llu of 100000\n", (unsigned long long)second);
	assert_in_range(second, 25000 - 750, 25000 + 750);
	pair_close(&pair);
}

/* As NCCL has it over ports that it fuses: the slower half sets the pace. */
static void equal_parts_of_unequal_rails_are_half_of_what_both_can(void **state)
{
	static const struct rails rails = {{12000, 4000}, {2000, 2000}};
	uint64_t equal_ns, learned_ns = measure_ns(&rails, SIZE, true);
	struct pair pair;

	(void)state;
	bundled_init(&pair, 2);
	pair.config.rail_mode = HA_RAIL_MODE_STATIC;
	begin(&pair, &rails, true, "1,1");
	equal_ns = stream_ns(&pair, SIZE, MESSAGES);
	pair_close(&pair);
	print_message("%.3f\n", (double)learned_ns / (double)equal_ns);
	assert_in_range(learned_ns * 1000 / equal_ns, 480, 520);
}

static void it_does_not_matter_which_rail_is_the_faster_one(void **state)
{
	static const struct rails rails = {{4000, 12000}, {2000, 2000}};

	(void)state;
	assert_in_range(gain(&rails), 950 * 4, 1000 * 4 + 60);
}

static void a_rail_that_is_slow_and_far_costs_nothing(void **state)
{
	static const struct rails rails = {{12000, 2040}, {2000, 22000}};

	(void)state;
	assert_in_range(gain(&rails), 990, 1190);
}

/* Each byte on the second rail costs the first one the time of two. */
static void a_rail_that_slows_the_other_one_down_is_left_out(void **state)
{
	static const struct rails rails = {{12000, 6000}, {2000, 2000}};
	uint64_t alone_ns, since_ns, ns;
	struct pair pair;

	(void)state;
	alone_ns = measure_ns(&rails, SIZE, false);
	bundled_init(&pair, 2);
	pair.fabric.rail_drag_milli = 2000;
	begin(&pair, &rails, true, "");
	ns = stream_ns(&pair, SIZE, MESSAGES);
	assert_true(alone_ns * 1000 / ns < 900); /* it does slow it down */
	since_ns = sv_stepped_now();
	while (pair.send->send->parking.trial.state != HA_PARKING_PARKED) {
		(void)stream_ns(&pair, SIZE, MESSAGES / 4);
		assert_true(sv_stepped_now() - since_ns < 2 * HA_NS_PER_S);
	}
	(void)stream_ns(&pair, SIZE, MESSAGES / 4);
	assert_true(alone_ns * 1000 / stream_ns(&pair, SIZE, MESSAGES) >= 990);
	/* And is tried again, in vain. */
	for (int i = 0; i < 30; i++) {
		pair_idle(&pair, 100);
		(void)stream_ns(&pair, SIZE, MESSAGES / 4);
	}
	for (int i = 0; i < 16; i++)
		(void)stream_ns(&pair, SIZE, MESSAGES);
	assert_int_equal(pair.send->send->parking.trial.state, HA_PARKING_PARKED);
	assert_true(pair.send->send->parking.trial.parked_ms > 2000);
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
}

/* From when it is left out on, with one try, in which it slows the other one down again. Of slow
 * ports, which is fewer messages. */
static void in_five_seconds_a_try_of_a_rail_that_is_left_out_costs_1_in_100(void **state)
{
	static const struct rails rails = {{1200, 600}, {2000, 2000}};
	const unsigned messages = 5 * 1200 / 8 * 1000 / (SIZE / 1000); /* in five seconds, alone */
	uint64_t alone_ns, ns;
	struct pair pair;
	unsigned permille;

	(void)state;
	alone_ns = measure_ns(&rails, SIZE, false) * messages / MESSAGES;
	bundled_init(&pair, 2);
	pair.fabric.rail_drag_milli = 2000;
	begin(&pair, &rails, true, "");
	while (pair.send->send->parking.trial.state != HA_PARKING_PARKED)
		(void)stream_ns(&pair, SIZE, DEPTH);
	assert_true(sv_stepped_now() < 2 * HA_NS_PER_S);
	ns = stream_ns(&pair, SIZE, messages);
	permille = (unsigned)(alone_ns * 1000 / ns);
	print_message("%u of 1000, over %.1f s; parked for %u ms\n", permille, (double)ns / 1e9,
		      pair.send->send->parking.trial.parked_ms);
	assert_true(ns > 5 * HA_NS_PER_S);
	assert_int_equal(pair.send->send->parking.trial.parked_ms, 4000); /* it was tried */
	assert_in_range(permille, 990, 1000);
	pair_close(&pair);
}

/* Of two that gain each has nothing for 75 ms of a minute: neither is parked, and that is all it
 * costs. */
static void rails_that_gain_stay_whatever_is_tried(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};
	uint64_t alone_ns;
	struct pair pair;

	(void)state;
	alone_ns = measure_ns(&rails, SIZE, false);
	bundled_init(&pair, 2);
	begin(&pair, &rails, true, "");
	for (int i = 0; i < 10; i++)
		(void)stream_ns(&pair, SIZE, MESSAGES);
	assert_int_equal(pair.send->send->parking.trial.state, HA_PARKING_REST);
	assert_true(pair.send->send->parking.trial.due_ns > sv_stepped_now() + 50 * HA_NS_PER_S);
	assert_in_range(alone_ns * 1000 / stream_ns(&pair, SIZE, MESSAGES), 1950, 2050);
	pair_close(&pair);
}

static void rails_carry_the_shares_that_were_given_whatever_they_could(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};
	const uint64_t bytes = (uint64_t)MESSAGES * SIZE;
	struct sv_stepped_traffic traffic;
	struct pair pair;

	(void)state;
	bundled_init(&pair, 2);
	begin(&pair, &rails, true, "3,1");
	traffic = carried(&pair, 1, MESSAGES);
	assert_in_range(traffic.bytes_out, bytes / 4, bytes / 4 + bytes / 100);
	assert_int_equal(traffic.immediates, MESSAGES);
	pair_close(&pair);
}

/* Also in the records that people read: each rail's bytes are its own port's. */
static void each_port_and_connection_says_what_it_carried(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};
	const char *before = ha_stats_dir;
	char dir[] = "/tmp/ha-rails-XXXXXX";
	struct pair pair;
	uint64_t sum = 0;

	(void)state;
	ha_stats_dir = mkdtemp(dir);
	assert_non_null(ha_stats_dir);
	bundled_init(&pair, 2);
	pair.config.stats = true;
	begin(&pair, &rails, true, "3,1");
	(void)stream_ns(&pair, SIZE, MESSAGES);
	pair_idle(&pair, 1000);
	for (unsigned end = 0; end < 2; end++) {
		const struct ha_comm *comm = end == 0 ? pair.send : pair.recv;
		const struct ha_port_report *ports = pair.inst[end]->port_reports;

		for (unsigned rail = 0; rail < 2; rail++)
			assert_int_equal(ports[rail].stripe_bytes, comm->striped.bytes[rail]);
		assert_int_equal(ports[1].stripe_bytes, ports[1].bytes);
		assert_int_equal(ports[0].bytes + ports[1].bytes, comm->count.bytes);
		assert_int_equal(ports[0].stripes, ports[1].stripes);
		sum = ports[0].stripe_bytes + ports[1].stripe_bytes;
		assert_true(sum >= (uint64_t)MESSAGES * SIZE);
		assert_in_range(ports[1].stripe_bytes, sum / 4 - sum / 100, sum / 4 + sum / 100);
	}
	pair_close(&pair);
	assert_int_equal(rmdir(dir), 0);
	ha_stats_dir = before;
}

/* Work requests that an end's queue pairs on a rail were given to send. */
static uint32_t given_to(const struct ha_comm *comm, unsigned rail)
{
	uint32_t n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && comm->paths[p]->port->rail == (int)rail)
			for (unsigned i = 0; i < comm->paths[p]->nqps; i++)
				n += comm->paths[p]->qps[i].sq_posted;
	return n;
}

/* The control rail has clear-to-sends of both; the other one nothing at all. */
static void a_rail_without_a_share_carries_no_byte_of_a_message(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};
	static const char *const shares[] = {"0,1", "1,0"};

	(void)state;
	for (unsigned without = 0; without < 2; without++) {
		struct sv_stepped_traffic traffic;
		uint32_t sender, receiver;
		struct pair pair;

		bundled_init(&pair, 2);
		begin(&pair, &rails, true, shares[without]);
		sender = given_to(pair.send, without);
		receiver = given_to(pair.recv, without);
		traffic = carried(&pair, without, without_share);
		assert_int_equal(traffic.immediates, 0); /* so no receive of it, either */
		assert_int_equal(given_to(pair.send, without), sender);
		if (without == 1)
			assert_int_equal(given_to(pair.recv, without), receiver);
		pair_close(&pair);
	}
}

/* ---- one that is lost, and back -------------------------------------------------------------- */

static void stream_until_lost(struct pair *pair, unsigned rail)
{
	char rule[80];
	int id;

	snprintf(rule, sizeof(rule), "link=down host=1 rail=%u dir=rx op=write nth=700", rail);
	id = add_rule(rule);
	(void)stream_ns(pair, SIZE, MESSAGES);
	assert_int_equal(fired(id), 1);
}

/* Until it carries 95 % of its half of a stream: at most a second. What it takes to be trusted
 * again is in that. */
static void back_within_a_second(struct pair *pair, unsigned rail)
{
	const uint64_t up_ns = sv_stepped_now(), bytes = (uint64_t)MESSAGES * SIZE;

	sv_stepped_link(1, rail, true);
	while (carried(pair, rail, MESSAGES).bytes_out < bytes / 2 / 100 * 95)
		assert_in_range(sv_stepped_now() - up_ns, 0, HA_NS_PER_S);
	print_message("rail %u carries its part %.0f ms after it was back\n", rail,
		      (double)(sv_stepped_now() - up_ns) / HA_NS_PER_MS);
}

/* Either of two: meanwhile the other one carries what it can, and nothing is sent again or fenced
 * for one that comes back. */
static void a_rail_that_is_lost_takes_its_part_and_has_it_again(void **state)
{
	static const struct rails rails = {{8000, 8000}, {2000, 2000}};
	const uint64_t alone_ns = measure_ns(&rails, SIZE, false);

	(void)state;
	for (unsigned rail = 0; rail < 2; rail++) {
		const struct nccl_ha_shed_stats *sheds;
		struct pair pair;
		uint64_t again;

		bundled_init(&pair, 2);
		begin(&pair, &rails, true, "");
		stream_until_lost(&pair, rail);
		assert_int_equal(carrying_now(&pair), 1);
		assert_true(alone_ns * 1000 / stream_ns(&pair, SIZE, MESSAGES) >= 950);
		sheds = pair.send->striped.sheds;
		assert_int_equal(sheds[rail].mends, 1);
		again = sheds[rail].mended_bytes;
		back_within_a_second(&pair, rail);
		assert_in_range(alone_ns * 1000 / stream_ns(&pair, SIZE, MESSAGES), 1950, 2050);
		assert_int_equal(sheds[rail].mended_bytes, again);
		assert_int_equal(sheds[0].sheds + sheds[1].sheds, 1);
		assert_int_equal(pair.recv->count.failovers, 0);
		pair_close(&pair);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest at_length[] = {
	    cmocka_unit_test(a_rail_without_a_share_carries_no_byte_of_a_message),
	};
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(two_equal_rails_carry_twice_as_much),
	    cmocka_unit_test(messages_that_are_not_cut_gain_as_much),
	    cmocka_unit_test(rails_of_which_one_is_three_times_as_fast_carry_what_both_can),
	    cmocka_unit_test(shares_of_rails_are_what_they_can_carry),
	    cmocka_unit_test(equal_parts_of_unequal_rails_are_half_of_what_both_can),
	    cmocka_unit_test(it_does_not_matter_which_rail_is_the_faster_one),
	    cmocka_unit_test(a_rail_that_is_slow_and_far_costs_nothing),
	    cmocka_unit_test(a_rail_that_slows_the_other_one_down_is_left_out),
	    cmocka_unit_test(in_five_seconds_a_try_of_a_rail_that_is_left_out_costs_1_in_100),
	    cmocka_unit_test(rails_that_gain_stay_whatever_is_tried),
	    cmocka_unit_test(rails_carry_the_shares_that_were_given_whatever_they_could),
	    cmocka_unit_test(each_port_and_connection_says_what_it_carried),
	    cmocka_unit_test(a_rail_without_a_share_carries_no_byte_of_a_message),
	    cmocka_unit_test(a_rail_that_is_lost_takes_its_part_and_has_it_again),
	};

	if (argc > 1) {
		without_share = (unsigned)strtoul(argv[1], NULL, 10);
		return cmocka_run_group_tests(at_length, NULL, NULL);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
