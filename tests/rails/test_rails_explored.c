/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of all kinds over a bundle, and a fault at every event of them: of either of two of
 * three rails, the control rail one of them. Every byte arrives once, nothing is written to a
 * buffer that was given back, and nobody waits for ever. Two hosts, one thread, virtual time.
 *
 * Arguments: how many events apart the faults are, 1 is every place, and which test alone. Or
 * "unplaced", a number of runs and of where to begin: devices that acknowledge what they do not
 * place, at random places, on rails of random delays.
 */
#include "bundled.h"
#include "burst.h"

#include "transport/ctrl_sock.h"

#include <stdlib.h>
#include <sys/socket.h>

static unsigned apart = 13, explored, runs_asked, seed;

struct place;
typedef void fault_fn(struct pair *pair, const struct place *at);

struct place {
	unsigned events, host, rail;
	enum ha_completion_mode mode;
	unsigned nth;	      /* of the packets from then on that a rule is about; 0: the first */
	unsigned asleep;      /* events until a thread of the plugin has a processor again */
	unsigned delay_us[2]; /* of what the sender's rails carry, besides what they take */
};

/* Of one run: the rule that is its fault, if it is one. */
static int rule_id;

/* ---- what may happen ------------------------------------------------------------------------- */

static void cut(struct pair *pair, const struct place *at)
{
	(void)pair;
	sv_stepped_cut(at->rail, true);
}

static void link_down(struct pair *pair, const struct place *at)
{
	(void)pair;
	sv_stepped_link(at->host, at->rail, false);
}

/* Nothing else tells the peer of it but the paths that are left. */
static void link_down_without_a_socket(struct pair *pair, const struct place *at)
{
	struct ha_comm *comm = at->host ? pair->send : pair->recv;

	assert_int_equal(shutdown(comm->ctrl_sock->frames.fd, SHUT_RDWR), 0);
	sv_stepped_link(at->host, at->rail, false);
}

static void kill_device(struct pair *pair, const struct place *at)
{
	(void)pair;
	sv_stepped_kill(at->host, at->rail);
}

/* With a packet that it is about. */
static void by_rule(const struct place *at, const char *what, const char *where)
{
	char rule[96];

	snprintf(rule, sizeof(rule), "%s rail=%u %s nth=%u", what, at->rail, where,
		 at->nth ? at->nth : 1);
	rule_id = add_rule(rule);
}

static void kill_placed(struct pair *pair, const struct place *at)
{
	(void)pair;
	by_rule(at, "kill=placed host=1", "dir=rx op=write");
}

static void kill_unplaced(struct pair *pair, const struct place *at)
{
	(void)pair;
	by_rule(at, "kill=unplaced host=1", "dir=rx op=write");
}

static void wedge(struct pair *pair, const struct place *at)
{
	(void)pair;
	by_rule(at, at->host ? "wedge=hard host=0" : "wedge host=0", "op=write");
}

static void error_completion(struct pair *pair, const struct place *at)
{
	(void)pair;
	by_rule(at, at->host ? "err host=1" : "err host=0", "op=write");
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* What an error is good for: nobody has a message any more. */
static bool is_lost(void)
{
	return logged("is lost: a device that has failed acknowledged it");
}

static bool is_over(const struct pair *pair, ha_result_t result, const struct place *at,
		    fault_fn *fault)
{
	if (result == HA_OK && ha_comm_error(pair->recv) == HA_OK)
		return false;
	if (fault != kill_unplaced || at->mode != HA_COMPLETION_RC || !is_lost())
		fail_msg("rail %u, host %u, event %u: error %d; log:\n%s", at->rail, at->host,
			 at->events, (int)result, captured_log);
	return true;
}

static bool is_all(const uint8_t *bytes, uint8_t value, size_t size)
{
	return size == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* The buffers are the application's again. */
static void assert_nothing_comes_later(struct pair *pair)
{
	static const uint8_t used = 0xa5;

	for (unsigned i = 0; i < SENDS; i++)
		memset(pair->to.bytes + place_of(i), used, sends[i].size);
	pair_pass(pair, 30);
	for (unsigned i = 0; i < SENDS; i++)
		assert_true(is_all(pair->to.bytes + place_of(i), used, sends[i].size));
}

/* What is said to be lost is not there: a message of a receive of its own, whose notice comes with
 * its last bytes. */
static void assert_is_not_there(const struct pair *pair, uint64_t first_seq)
{
	const char *said = strstr(captured_log, "message ");
	unsigned long long seq = 0;

	while (said && (sscanf(said, "message %llu is lost", &seq) != 1 ||
			strncmp(strstr(said, " is"), " is lost", 8) != 0))
		said = strstr(said + 1, "message ");
	assert_non_null(said);
	assert_in_range(seq, first_seq, first_seq + RECEIVES - 1);
	for (unsigned i = 0; i < SENDS; i++)
		if (sends[i].receive == seq - first_seq && sends[i].receive > 0 && sends[i].size)
			assert_false(filled(pair->to.bytes + place_of(i), sends[i].size, 3 * i));
}

static void delay_rails(const struct place *at)
{
	char rule[80];

	for (unsigned rail = 0; rail < 2; rail++) {
		snprintf(rule, sizeof(rule), "delay=%uus host=0 rail=%u minlen=1000",
			 at->delay_us[rail], rail);
		if (at->delay_us[rail])
			(void)add_rule(rule);
	}
}

struct outcome {
	bool broken; /* or all was there before */
	bool fired;  /* the rule that is the fault */
	bool lost;   /* for good, and both ends know */
};

static struct outcome run(const struct place *at, fault_fn *fault)
{
	struct outcome outcome = {.broken = false};
	struct burst burst;
	ha_result_t result;
	struct pair pair;
	uint64_t until_ns, first_seq;
	unsigned asleep = at->asleep;

	bundled_init(&pair, 3);
	pair.config.completion = at->mode;
	pair_up(&pair);
	wait_members(&pair, 3);
	delay_rails(at);
	rule_id = -1;
	first_seq = pair.recv->recv->next_seq;
	burst = begin(&pair);
	until_ns = sv_stepped_now() + 3 * HA_NS_PER_S;
	for (unsigned event = 0; burst_goes_on(&pair, &burst, &result); event++) {
		if (event == at->events) {
			fault(&pair, at);
			outcome.broken = true;
		}
		if (sv_stepped_now() >= until_ns)
			fail_msg("rail %u, host %u, event %u: no end; log:\n%s", at->rail, at->host,
				 at->events, captured_log);
		if (outcome.broken && asleep > 0 && asleep--)
			sv_stepped_step();
		else if (outcome.broken)
			pair_advance(&pair);
		else
			pair_step(&pair);
	}
	outcome.lost = is_over(&pair, result, at, fault);
	outcome.fired = rule_id >= 0 && fired(rule_id) == 1;
	if (outcome.lost) {
		assert_is_not_there(&pair, first_seq);
	} else {
		assert_all_there(&pair);
		assert_nothing_comes_later(&pair);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
	}
	pair_close(&pair);
	return outcome;
}

/* At all places, of either rail; at the sender's host and the receiver's, and in either mode, in
 * turns, or all of that at every place. */
static void everywhere(fault_fn *fault)
{
	explored++;
	for (unsigned rail = 0; rail < 2; rail++) {
		struct place at = {.rail = rail};
		unsigned runs = 0, happened = 0;
		struct outcome outcome;

		while ((outcome = run(&at, fault)).broken) {
			happened += outcome.fired;
			runs++;
			at.events = apart == 1 ? runs / 4 : runs * apart;
			at.host = runs % 2;
			at.mode = runs / 2 % 2 ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
		}
		assert_true(runs >= 60 / apart);
		assert_true(rule_id < 0 || happened >= runs / 2);
	}
}

static void a_cut_at_every_event(void **state)
{
	(void)state;
	everywhere(cut);
}

static void a_link_that_goes_down_at_every_event(void **state)
{
	(void)state;
	everywhere(link_down);
}

static void a_link_and_the_socket_at_every_event(void **state)
{
	(void)state;
	everywhere(link_down_without_a_socket);
}

static void a_device_that_dies_at_every_event(void **state)
{
	(void)state;
	everywhere(kill_device);
}

static void a_device_that_dies_with_what_it_has_placed_at_every_event(void **state)
{
	(void)state;
	everywhere(kill_placed);
}

static void a_device_that_dies_with_what_it_has_not_placed_at_every_event(void **state)
{
	(void)state;
	everywhere(kill_unplaced);
}

static void a_queue_pair_that_does_nothing_any_more_at_every_event(void **state)
{
	(void)state;
	everywhere(wedge);
}

static void an_error_completion_at_every_event(void **state)
{
	(void)state;
	everywhere(error_completion);
}

static unsigned below(unsigned limit, uint64_t *random)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*random >> 33) % limit;
}

/* Without end-to-end completion a message may be lost, and none is said to be that is not. */
static void what_was_acknowledged_and_not_placed_is_there_or_lost(void **state)
{
	unsigned happened = 0, lost = 0;

	(void)state;
	for (unsigned i = 0; i < runs_asked; i++) {
		uint64_t random = (uint64_t)seed << 32 | i;
		struct place at = {.mode = i % 2 ? HA_COMPLETION_E2E : HA_COMPLETION_RC};
		struct outcome outcome;

		(void)below(2, &random);
		at.rail = below(2, &random);
		at.events = below(240, &random);
		at.nth = 1 + below(12, &random);
		at.asleep = below(200, &random);
		at.delay_us[below(2, &random)] = 10 * below(30, &random);
		outcome = run(&at, kill_unplaced);
		happened += outcome.fired;
		lost += outcome.lost;
		assert_true(!outcome.lost || (outcome.fired && at.mode == HA_COMPLETION_RC));
	}
	print_message("%u runs: a device died in %u, a message was lost in %u\n", runs_asked,
		      happened, lost);
	assert_true(happened >= runs_asked / 2);
	assert_true(lost >= runs_asked / 1000);
}

int main(int argc, char **argv)
{
	int failed;
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_cut_at_every_event),
	    cmocka_unit_test(a_link_that_goes_down_at_every_event),
	    cmocka_unit_test(a_link_and_the_socket_at_every_event),
	    cmocka_unit_test(a_device_that_dies_at_every_event),
	    cmocka_unit_test(a_device_that_dies_with_what_it_has_placed_at_every_event),
	    cmocka_unit_test(a_device_that_dies_with_what_it_has_not_placed_at_every_event),
	    cmocka_unit_test(a_queue_pair_that_does_nothing_any_more_at_every_event),
	    cmocka_unit_test(an_error_completion_at_every_event),
	};
	const struct CMUnitTest at_random[] = {
	    cmocka_unit_test(what_was_acknowledged_and_not_placed_is_there_or_lost),
	};

	if (argc > 3 && strcmp(argv[1], "unplaced") == 0) {
		runs_asked = (unsigned)strtoul(argv[2], NULL, 10);
		seed = (unsigned)strtoul(argv[3], NULL, 10);
		return cmocka_run_group_tests(at_random, NULL, NULL);
	}
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	if (argc > 1)
		apart = (unsigned)strtoul(argv[1], NULL, 10);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return failed ? failed : explored == 0; /* no test has that name */
}
