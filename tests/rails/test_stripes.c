/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that are cut over the rails of a bundle: each byte once, in its place, whatever is lost
 * and whenever, in both modes of completion. Two hosts, one thread, virtual time.
 */
#include "bundled.h"

#include "../transport/gpu.h"
#include "instance/instance.h"
#include "transport/complete.h"
#include "transport/stripe.h"

/* By default: what is cut, and what is worth not looking beside the active path at all. */
#define CUT_FROM (128u << 10)
#define IN_TURN	 (16u << 10)

static void carrying(struct pair *pair, uint32_t rails, enum ha_completion_mode mode)
{
	bundled_init(pair, rails);
	pair->config.completion = mode;
	pair_up(pair);
	wait_members(pair, rails);
	transfer(pair, CUT_FROM, 0); /* whose row names them */
}

/* Work requests that the sender has posted on path p. */
static uint32_t posted(const struct pair *pair, unsigned p)
{
	return pair->send->paths[p]->qps[0].sq_posted;
}

/* How many paths get work of one message. */
static unsigned paths_of(struct pair *pair, size_t size, uint32_t seed)
{
	uint32_t before[HA_MAX_PATHS] = {0};
	unsigned n = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (pair->send->paths[p])
			before[p] = posted(pair, p);
	transfer(pair, size, seed);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (pair->send->paths[p])
			n += posted(pair, p) != before[p];
	return n;
}

/* How many stripes are counted of one message that may go over any rail. */
static uint64_t stripes_of(struct pair *pair, size_t size, uint32_t seed)
{
	uint64_t n = 0;

	for (unsigned rail = 0; rail < HA_RAILS_MAX; rail++)
		n -= pair->recv->striped.stripes[rail];
	transfer(pair, size, seed);
	for (unsigned rail = 0; rail < HA_RAILS_MAX; rail++)
		n += pair->recv->striped.stripes[rail];
	return n;
}

static void large_messages_are_cut_over_all_rails(void **state)
{
	static const size_t cut[] = {CUT_FROM, CUT_FROM + 1, CUT_FROM + 4095, 1000003, 1 << 20};
	struct pair pair;

	(void)state;
	for (uint32_t rails = 2; rails <= 4; rails++)
		for (unsigned mode = 0; mode < 2; mode++) {
			carrying(&pair, rails, mode ? HA_COMPLETION_E2E : HA_COMPLETION_RC);
			for (uint32_t i = 0; i < sizeof(cut) / sizeof(cut[0]); i++)
				assert_int_equal(paths_of(&pair, cut[i], i), rails);
			assert_int_equal(stripes_of(&pair, CUT_FROM - 1, 7), 1);
			assert_int_equal(paths_of(&pair, 0, 8), 1);
			assert_int_equal(pair.recv->count.failovers, 0);
			pair_close(&pair);
		}
}

static void messages_between_go_over_one_rail_each_in_turns(void **state)
{
	static const size_t sizes[] = {IN_TURN, 40000, CUT_FROM - 1};
	struct pair pair;

	(void)state;
	for (uint32_t rails = 2; rails <= 4; rails++)
		for (unsigned mode = 0; mode < 2; mode++) {
			carrying(&pair, rails, mode ? HA_COMPLETION_E2E : HA_COMPLETION_RC);
			for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
				uint64_t before[HA_RAILS_MAX], messages[HA_RAILS_MAX];

				memcpy(before, pair.recv->striped.stripes, sizeof(before));
				for (uint32_t m = 0; m < 12 * rails; m++)
					assert_int_equal(stripes_of(&pair, sizes[i], m), 1);
				for (unsigned rail = 0; rail < rails; rail++) {
					messages[rail] =
					    pair.recv->striped.stripes[rail] - before[rail];
					assert_in_range(messages[rail], 9, 15);
				}
			}
			pair_close(&pair);
		}
}

/* Also where none is ever large enough to be cut: a visit sees what rows name. */
static void messages_that_are_never_cut_come_to_go_over_all_rails(void **state)
{
	struct pair pair;

	(void)state;
	bundled(&pair, 2);
	pair_wait_standby(&pair);
	for (unsigned i = 0; i < 20; i++) {
		transfer(&pair, CUT_FROM / 2, i);
		pair_idle(&pair, 1);
	}
	assert_int_equal(carrying_now(&pair), 2);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(stripes_of(&pair, CUT_FROM / 2, i), 1);
	pair_close(&pair);
}

static void small_messages_all_go_over_the_active_path(void **state)
{
	struct pair pair;
	uint32_t before;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	before = posted(&pair, standby_of(pair.send));
	for (uint32_t m = 0; m < 20; m++)
		assert_int_equal(stripes_of(&pair, IN_TURN - 1, m), 0);
	assert_int_equal(posted(&pair, standby_of(pair.send)), before);
	pair_close(&pair);
}

/* Ends of other sizes agree without a word: what one names the other does not need to use. */
/* As with one rail, where receives are told from groups by how many buffers they have. */
static void receives_of_no_buffer_or_too_many_are_refused_by_name(void **state)
{
	static const int wrong[] = {0, -1, HA_GROUP_MAX + 1};
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct ha_request *req = NULL;
		char line[64];

		transfer(&pair, 8, i); /* whose row is written by what names both */
		snprintf(line, sizeof(line), "a receive of %d buffers, 1 to 8 are possible",
			 wrong[i]);
		assert_int_equal(ha_irecv(pair.recv, wrong[i], NULL, NULL, NULL, NULL, &req),
				 HA_ERR_ARGUMENT);
		assert_null(req);
		assert_logged(line);
	}
	transfer(&pair, 8, 9);
	pair_close(&pair);
}

static void the_size_that_is_worth_a_stripe_is_set(void **state)
{
	static const struct {
		int stripe_min[2];
		size_t cut_from;
		unsigned below; /* stripes of what is smaller by a byte */
	} cases[] = {
	    {{16384, 16384}, 32768, 1},
	    {{1 << 20, 1 << 20}, 2 << 20, 1},
	    /* The receiver names paths in rows of 256 KiB, which is a buffer of 100 bytes more. */
	    {{16384, 1 << 20}, 262144 - 100, 0},
	    {{1 << 20, 16384}, 2 << 20, 1},
	};
	struct pair pair;

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bundled_init(&pair, 2);
		pair_open(&pair);
		for (int end = 0; end < 2; end++)
			pair.inst[end]->devices->bundles[0].stripe_min =
			    (uint32_t)cases[i].stripe_min[end];
		pair_connect(&pair);
		for (unsigned m = 0; m < 200 && carrying_now(&pair) < 2; m++) {
			transfer(&pair, 2 << 20, m);
			pair_idle(&pair, 5);
		}
		assert_int_equal(carrying_now(&pair), 2);
		transfer(&pair, 2 << 20, 1);
		assert_int_equal(stripes_of(&pair, cases[i].cut_from - 1, i), cases[i].below);
		assert_int_equal(stripes_of(&pair, cases[i].cut_from, i), 2);
		pair_close(&pair);
	}
}

/* NCCL's device behind the two ports; at the peer's end a connection is asked for on one of its
 * parts. */
static void what_NCCL_has_fused_carries_as_any_bundle(void **state)
{
	static const int parts[] = {0, 1};
	struct pair pair;

	(void)state;
	bundled_init(&pair, 2);
	strcpy(pair.config.rails, "nccl");
	pair_open(&pair);
	for (int end = 0; end < 2; end++) {
		int dev = -1;

		assert_int_equal(ha_instance_fuse(pair.inst[end], parts, 2, &dev), HA_OK);
		assert_int_equal(dev, 2);
	}
	pair.connect_dev = 2;
	pair.listen_dev = 1;
	pair_connect(&pair);
	wait_members(&pair, 2);
	assert_int_equal(paths_of(&pair, 1 << 20, 1), 2);
	sv_stepped_link(0, 0, false);
	pair_idle(&pair, 5);
	assert_int_equal(paths_of(&pair, 300000, 2), 1);
	sv_stepped_link(0, 0, true);
	wait_members(&pair, 2);
	assert_int_equal(paths_of(&pair, 300000, 3), 2);
	pair_close(&pair);
}

/* A visit after each: one message is no reason to stop, nor are some that are a little smaller. */
static void what_is_cut_goes_on_being_cut_while_messages_are_large_in_the_mean(void **state)
{
	static const size_t sizes[] = {300000, 300000, 8, 300000, 17000, 8000, 8000};
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (unsigned i = 0; i < 70; i++) {
		transfer(&pair, sizes[i % 7], i);
		pair_idle(&pair, 5);
		assert_int_equal(carrying_now(&pair), 2);
	}
	for (unsigned i = 0; i < 40; i++) {
		transfer(&pair, 20000, i);
		pair_idle(&pair, 5);
		assert_int_equal(carrying_now(&pair), 2);
	}
	for (unsigned i = 0; i < 20; i++) {
		transfer(&pair, 8, i);
		pair_idle(&pair, 5);
	}
	assert_int_equal(carrying_now(&pair), 1);
	for (unsigned i = 0; i < 40; i++) {
		transfer(&pair, 20000, i);
		pair_idle(&pair, 5);
		assert_int_equal(carrying_now(&pair), 1);
	}
	pair_close(&pair);
}

/* A connection that has found everything it wants is not looked at for any other reason. */
static void messages_that_come_to_be_large_late_are_cut_soon(void **state)
{
	struct pair pair;

	(void)state;
	bundled(&pair, 2);
	pair_wait_standby(&pair);
	for (unsigned i = 0; i < 20; i++) {
		transfer(&pair, 1000, i);
		pair_idle(&pair, 100);
	}
	assert_int_equal(carrying_now(&pair), 1);
	for (unsigned i = 0; i < 20; i++) {
		transfer(&pair, 300000, i);
		pair_idle(&pair, 1);
	}
	assert_int_equal(carrying_now(&pair), 2);
	pair_close(&pair);
}

/* What comes early on one rail waits for what comes late on the other, of several messages. */
static void a_message_is_there_when_its_last_stripe_is(void **state)
{
	enum { MESSAGES = 6 };
	const size_t size = 200000;

	(void)state;
	for (unsigned late = 0; late < 2; late++) {
		struct ha_request *recv[MESSAGES], *send[MESSAGES];
		struct pair pair;
		char rule[64];

		carrying(&pair, 2, HA_COMPLETION_RC);
		snprintf(rule, sizeof(rule), "delay=300us host=0 rail=%u minlen=1000", late);
		add_rule(rule);
		fill(pair.from.bytes, MESSAGES * size, 3);
		for (int i = 0; i < MESSAGES; i++) {
			const size_t offset = (size_t)i * size;

			recv[i] = post_recv(&pair, 1, &offset, &size, &i);
			send[i] = post_send(&pair, offset, size, i);
		}
		for (int i = MESSAGES - 1; i >= 0; i--) {
			int got;

			assert_int_equal(pair_finish(&pair, recv[i], &got), HA_OK);
			assert_int_equal(got, size);
			assert_int_equal(pair_finish(&pair, send[i], NULL), HA_OK);
			assert_memory_equal(pair.to.bytes + (size_t)i * size,
					    pair.from.bytes + (size_t)i * size, size);
		}
		pair_close(&pair);
	}
}

/* A sender that waits for a count asks for it as long as it takes. */
static void assert_done_soon(struct pair *pair, struct ha_request *req)
{
	const uint64_t until_ns = sv_stepped_now() + 20 * HA_NS_PER_MS;
	bool done = false;

	while (!done && sv_stepped_now() < until_ns) {
		pair_step(pair);
		assert_int_equal(ha_test(req, &done, NULL), HA_OK);
	}
	assert_true(done);
}

/* The last stripe comes beside the active path, to an application that does not look. */
static void what_comes_while_the_application_sleeps_is_counted(void **state)
{
	const size_t offset = 0, size = 300000;
	const int tag = 1;
	struct ha_request *recv, *send;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_E2E);
	(void)add_rule("delay=300us host=0 rail=1 minlen=1000");
	fill(pair.from.bytes, size, 4);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, offset, size, tag);
	assert_done_soon(&pair, send);
	assert_int_equal(pair_finish(&pair, recv, NULL), HA_OK);
	pair_close(&pair);
}

/* The hardware is through with a small message before it is with the large one before it, and the
 * count of both came earlier. */
static void what_was_counted_is_complete_in_whatever_order_rails_acknowledge(void **state)
{
	const size_t offset[] = {0, 400000, 500000}, size[] = {300000, 1000, 1000};
	const int tag = 1;
	struct ha_request *recv[3], *send[2];
	struct pair pair;
	int got;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_E2E);
	fill(pair.from.bytes, 401000, 6);
	(void)add_rule("delay=3ms host=1 rail=1");
	for (int i = 0; i < 2; i++) {
		recv[i] = post_recv(&pair, 1, &offset[i], &size[i], &tag);
		send[i] = post_send(&pair, offset[i], size[i], tag);
	}
	for (int i = 0; i < 2; i++)
		assert_int_equal(pair_finish(&pair, recv[i], &got), HA_OK);
	recv[2] = post_recv(&pair, 1, &offset[2], &size[2], &tag); /* its row has the count */
	for (int i = 0; i < 2; i++)
		assert_done_soon(&pair, send[i]);
	send[0] = post_send(&pair, offset[2], size[2], tag);
	assert_int_equal(pair_finish(&pair, recv[2], &got), HA_OK);
	assert_int_equal(pair_finish(&pair, send[0], NULL), HA_OK);
	assert_int_equal(pair.send->count.failovers, 0);
	pair_close(&pair);
}

/* ---- loss ------------------------------------------------------------------------------------ */

/* What of a message that was acknowledged and not placed a sender without end-to-end completion
 * has to say, as of a message on one path. */
static bool is_lost(const struct pair *pair)
{
	return logged("is lost: a device that has failed acknowledged it") &&
	       ha_comm_error(pair->recv) == HA_ERR_REMOTE;
}

static void assert_no_epoch(const struct pair *pair, unsigned rail, const char *rule, unsigned nth)
{
	if (pair->recv->failover->epoch != 1 || pair->send->failover->epoch != 1 ||
	    pair->send->failover->rails[rail].mended_gen == 0)
		fail_msg("%s, nth %u: a failover, or nothing", rule, nth);
}

static void a_loss(const char *fault, unsigned host, unsigned rail, unsigned nth,
		   enum ha_completion_mode mode, bool turns)
{
	const bool unplaced = strcmp(fault, "kill=unplaced") == 0;
	struct in_flight t;
	struct pair pair;
	char rule[128];
	int id, got = 0;

	carrying(&pair, 2, mode);
	if (!turns)
		without_turns(&pair);
	snprintf(rule, sizeof(rule), "%s host=%u rail=%u %s nth=%u", fault, host, rail,
		 host == 0 ? "op=write minlen=1000" : "dir=rx op=write minlen=1000", nth);
	id = add_rule(rule);
	t = pair_start(&pair);
	if (pair_finish(&pair, t.recv, &got) != HA_OK) {
		assert_true(unplaced && mode == HA_COMPLETION_RC && is_lost(&pair));
		pair_close(&pair);
		return;
	}
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
	if (fired(id) != 1)
		fail_msg("%s: fired %d times", rule, (int)fired(id));
	assert_int_equal(got, 300000);
	assert_true(filled(pair.to.bytes, 300000, 5));
	for (uint32_t i = 0; i < 4; i++)
		transfer(&pair, 1 + i * 70000, i);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	/* The control rail is rail 0. */
	if (rail != 0 || turns)
		assert_no_epoch(&pair, rail, rule, nth);
	else if (pair.recv->count.failovers == 0 || pair.send->count.failovers == 0)
		fail_msg("%s, nth %u: no failover", rule, nth);
	pair_close(&pair);
}

static void whatever_is_lost_of_either_rail_each_byte_arrives_once(void **state)
{
	static const struct {
		const char *fault;
		unsigned hosts; /* that it can be injected at: a mask */
	} faults[] = {{"link=down", 3},	 {"kill", 2},  {"kill=placed", 2}, {"kill=unplaced", 2},
		      {"wedge=hard", 1}, {"wedge", 1}, {"cut", 3},	   {"err", 3}};
	static const unsigned nths[] = {1, 2, 20, 36};

	(void)state;
	for (size_t f = 0; f < sizeof(faults) / sizeof(faults[0]); f++)
		for (unsigned i = 0; i < sizeof(nths) / sizeof(nths[0]); i++)
			for (unsigned which = 0; which < 16; which++)
				if (faults[f].hosts >> (which & 1) & 1)
					a_loss(faults[f].fault, which & 1, which >> 1 & 1, nths[i],
					       which >> 2 & 1 ? HA_COMPLETION_E2E
							      : HA_COMPLETION_RC,
					       which >> 3);
}

/* The rail goes with this packet of a message that comes again on the other one alone: too large to
 * be routed as it is, so in one piece, with its size in a record. */
static void comes_again_with_a_record(unsigned rail, unsigned nth, const char *slow, bool turns)
{
	struct in_flight t;
	struct pair pair;
	char rule[80];
	int got, id;

	bundled_init(&pair, 2);
	pair.config.ib_adaptive_routing = 1;
	pair.config.ib_ar_threshold = 200000;
	pair_up(&pair);
	if (!turns)
		without_turns(&pair);
	wait_members(&pair, 2);
	if (slow) {
		snprintf(rule, sizeof(rule), slow, rail);
		add_rule(rule);
	}
	snprintf(rule, sizeof(rule), "kill host=1 rail=%u dir=rx op=write minlen=1000 nth=%u", rail,
		 nth);
	id = add_rule(rule);
	t = pair_start(&pair);
	assert_int_equal(finish_within_a_second(&pair, t.recv, &got), HA_OK);
	assert_int_equal(finish_within_a_second(&pair, t.send, NULL), HA_OK);
	assert_int_equal(fired(id), 1);
	assert_int_equal(got, 300000);
	assert_true(filled(pair.to.bytes, 300000, 5));
	pair_close(&pair);
}

/* What was seen of it before counts for nothing: also the whole stripe of the rail that is left. */
static void what_was_cut_may_come_again_with_a_record(void **state)
{
	(void)state;
	for (unsigned which = 0; which < 4; which++) {
		const unsigned rail = which & 1;
		const bool turns = which >> 1;

		for (unsigned nth = 1; nth <= 36; nth += 5)
			comes_again_with_a_record(rail, nth, NULL, turns);
		comes_again_with_a_record(rail, 36, "delay=300us host=0 rail=%u minlen=1000",
					  turns);
	}
}

static void poll(struct ha_comm *comm)
{
	sv_stepped_run_idle(1000);
	ha_token_acquire(comm);
	ha_comm_poll(comm, 32);
	ha_token_release(comm);
}

/* A verb that fails between the stripes of one message, at an application that polls on before
 * anybody has seen to that: what was posted of it is not posted twice. */
static void
a_stripe_that_cannot_be_posted_is_sent_on_another_rail_or_in_the_next_epoch(void **state)
{
	const size_t offset = 0, size = 300000;
	const int tag = 1;

	(void)state;
	for (unsigned mode = 0; mode < 4; mode++)
		for (unsigned rail = 0; rail < 3; rail++) {
			struct ha_request *recv, *send;
			struct pair pair;
			char rule[80];
			int id, got;

			carrying(&pair, 3, mode % 2 ? HA_COMPLETION_E2E : HA_COMPLETION_RC);
			if (mode < 2)
				without_turns(&pair);
			snprintf(rule, sizeof(rule),
				 "errno=ENOMEM verb=post_send host=0 rail=%u nth=1", rail);
			fill(pair.from.bytes, size, 4);
			recv = post_recv(&pair, 1, &offset, &size, &tag);
			sv_stepped_run_idle(1000);
			id = add_rule(rule);
			send = try_send(&pair, 0, size, tag);
			assert_non_null(send);
			assert_int_equal(fired(id), 1);
			for (int i = 0; i < 3; i++) {
				poll(pair.send);
				poll(pair.recv);
			}
			assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
			assert_int_equal(pair_finish(&pair, send, NULL), HA_OK);
			assert_int_equal(got, size);
			assert_true(filled(pair.to.bytes, size, 4));
			transfer(&pair, 300000, 2);
			assert_int_equal(pair.recv->count.failovers, rail == 0 && mode < 2);
			pair_close(&pair);
		}
}

static void rails_that_are_back_carry_again(void **state)
{
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	for (unsigned rail = 0; rail < 2; rail++) {
		sv_stepped_link(0, rail, false);
		pair_idle(&pair, 5);
		assert_int_equal(pair.recv->recv->members, 0);
		assert_int_equal(paths_of(&pair, 300000, rail), 1);
		sv_stepped_link(0, rail, true);
		wait_members(&pair, 2);
		assert_int_equal(paths_of(&pair, 300000, rail), 2);
	}
	pair_close(&pair);
}

/* ---- what a peer says ------------------------------------------------------------------------ */

static uint32_t notice(const struct pair *pair, unsigned mask, unsigned stripe)
{
	return ha_imm_stripe_pack(pair->recv->recv->next_seq - 1, ha_comm_epoch(pair->recv), mask,
				  stripe);
}

static void came(struct pair *pair, unsigned p, uint32_t imm, uint32_t bytes)
{
	ha_token_acquire(pair->recv);
	ha_stripe_came(pair->recv, pair->recv->paths[p], imm, bytes);
	ha_token_release(pair->recv);
}

static void a_notice_that_comes_twice_counts_once(void **state)
{
	const size_t offset = 0, size = 1000;
	struct ha_request *recv;
	const int tag = 1;
	struct pair pair;
	int got;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	came(&pair, 0, notice(&pair, 3, 1), 100);
	came(&pair, 0, notice(&pair, 3, 1), 100);
	assert_int_equal(pair.recv->count.stale_completions, 1);
	assert_int_equal(atomic_load(&recv->state), HA_REQ_ACTIVE);
	came(&pair, 1, notice(&pair, 3, 2), 50);
	assert_int_equal(pair_finish(&pair, recv, &got), HA_OK);
	assert_int_equal(got, 150);
	came(&pair, 1, notice(&pair, 3, 2), 50); /* of a message that is done */
	assert_int_equal(pair.recv->count.stale_completions, 2);
	assert_int_equal(ha_comm_error(pair.recv), HA_OK);
	pair_close(&pair);
}

static void a_stripe_of_another_epoch_is_none_of_this_one(void **state)
{
	const size_t offset = 0, size = 1000;
	const int tag = 1;
	struct pair pair;

	(void)state;
	carrying(&pair, 2, HA_COMPLETION_RC);
	(void)post_recv(&pair, 1, &offset, &size, &tag);
	came(&pair, 0, notice(&pair, 3, 1) ^ 1u << 16, 100);
	came(&pair, 0, notice(&pair, 3, 1) ^ 1u << 6, 100);
	assert_int_equal(pair.recv->count.stale_completions, 2);
	assert_int_equal(
	    pair.recv->recv->slots[(pair.recv->recv->next_seq - 1) % HA_WINDOW].parts_seen, 0);
	pair_close(&pair);
}

static void stripes_that_cannot_be_latch(void **state)
{
	static const struct {
		unsigned first, mask, stripe, path;
		uint32_t bytes;
	} bad[] = {
	    {0, 3, 1, 1, 10},	/* of another path */
	    {0, 2, 1, 0, 10},	/* not of the message's */
	    {0, 3, 3, 0, 10},	/* two at once */
	    {0, 3, 1, 0, 1001}, /* longer than the buffer */
	    {3, 7, 2, 1, 10},	/* of a message that had other stripes */
	    {0, 3, 0, 0, 10},	/* none */
	};
	const size_t offset = 0, size = 1000;
	const int tag = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct pair pair;

		carrying(&pair, 2, HA_COMPLETION_RC);
		(void)post_recv(&pair, 1, &offset, &size, &tag);
		if (bad[i].first)
			came(&pair, 0, notice(&pair, bad[i].first, 1), 10);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		came(&pair, bad[i].path, notice(&pair, bad[i].mask, bad[i].stripe), bad[i].bytes);
		assert_int_equal(ha_comm_error(pair.recv), HA_ERR_INTERNAL);
		assert_logged("a stripe of message ");
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(large_messages_are_cut_over_all_rails),
	    cmocka_unit_test(messages_between_go_over_one_rail_each_in_turns),
	    cmocka_unit_test(messages_that_are_never_cut_come_to_go_over_all_rails),
	    cmocka_unit_test(small_messages_all_go_over_the_active_path),
	    cmocka_unit_test(receives_of_no_buffer_or_too_many_are_refused_by_name),
	    cmocka_unit_test(the_size_that_is_worth_a_stripe_is_set),
	    cmocka_unit_test(what_NCCL_has_fused_carries_as_any_bundle),
	    cmocka_unit_test(what_is_cut_goes_on_being_cut_while_messages_are_large_in_the_mean),
	    cmocka_unit_test(messages_that_come_to_be_large_late_are_cut_soon),
	    cmocka_unit_test(a_message_is_there_when_its_last_stripe_is),
	    cmocka_unit_test(what_comes_while_the_application_sleeps_is_counted),
	    cmocka_unit_test(what_was_counted_is_complete_in_whatever_order_rails_acknowledge),
	    cmocka_unit_test(whatever_is_lost_of_either_rail_each_byte_arrives_once),
	    cmocka_unit_test(what_was_cut_may_come_again_with_a_record),
	    cmocka_unit_test(
		a_stripe_that_cannot_be_posted_is_sent_on_another_rail_or_in_the_next_epoch),
	    cmocka_unit_test(rails_that_are_back_carry_again),
	    cmocka_unit_test(a_notice_that_comes_twice_counts_once),
	    cmocka_unit_test(a_stripe_of_another_epoch_is_none_of_this_one),
	    cmocka_unit_test(stripes_that_cannot_be_latch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
