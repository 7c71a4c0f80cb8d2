/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of all kinds over a bundle, and a fault at every event of them: of either of two of
 * three rails, the control rail one of them. Every byte arrives once, nothing is written to a
 * buffer that was given back, and nobody waits for ever. Two hosts, one thread, virtual time.
 *
 * The argument is how many events apart the faults are: 1 is every place.
 */
#include "bundled.h"
#include "burst.h"

#include "transport/ctrl_sock.h"

#include <stdlib.h>
#include <sys/socket.h>

static unsigned apart = 13;

struct place {
	unsigned events, host, rail;
	enum ha_completion_mode mode;
};

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

/* With the next packet that it is about. */
static void by_rule(const struct place *at, const char *what, const char *where)
{
	char rule[96];

	snprintf(rule, sizeof(rule), "%s rail=%u %s nth=1", what, at->rail, where);
	(void)add_rule(rule);
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
		    void (*fault)(struct pair *, const struct place *))
{
	if (result == HA_OK && ha_comm_error(pair->recv) == HA_OK)
		return false;
	if (fault != kill_unplaced || at->mode != HA_COMPLETION_RC || !is_lost())
		fail_msg("rail %u, host %u, event %u: error %d; log:\n%s", at->rail, at->host,
			 at->events, (int)result, captured_log);
	return true;
}

/* The buffers are the application's again. */
static void assert_nothing_comes_later(struct pair *pair)
{
	static const uint8_t used = 0xa5;

	for (unsigned i = 0; i < SENDS; i++)
		memset(pair->to.bytes + place_of(i), used, sends[i].size);
	pair_pass(pair, 30);
	for (unsigned i = 0; i < SENDS; i++)
		for (size_t k = 0; k < sends[i].size; k++)
			assert_int_equal(pair->to.bytes[place_of(i) + k], used);
}

/* False: all was there before. */
static bool run(const struct place *at, void (*fault)(struct pair *, const struct place *))
{
	struct burst burst;
	ha_result_t result;
	struct pair pair;
	uint64_t until_ns;
	bool broken = false;

	bundled_init(&pair, 3);
	pair.config.completion = at->mode;
	pair_up(&pair);
	wait_members(&pair, 3);
	burst = begin(&pair);
	until_ns = sv_stepped_now() + 3 * HA_NS_PER_S;
	for (unsigned event = 0; burst_goes_on(&pair, &burst, &result); event++) {
		if (event == at->events) {
			fault(&pair, at);
			broken = true;
		}
		if (sv_stepped_now() >= until_ns)
			fail_msg("rail %u, host %u, event %u: no end; log:\n%s", at->rail, at->host,
				 at->events, captured_log);
		if (broken)
			pair_advance(&pair);
		else
			pair_step(&pair);
	}
	if (!is_over(&pair, result, at, fault)) {
		assert_all_there(&pair);
		assert_nothing_comes_later(&pair);
		burst = begin(&pair);
		(void)finish(&pair, &burst);
	}
	pair_close(&pair);
	return broken;
}

/* At all places, of either rail, at the sender's host and the receiver's in turns. */
static void everywhere(void (*fault)(struct pair *, const struct place *))
{
	for (unsigned rail = 0; rail < 2; rail++) {
		struct place at = {.rail = rail};
		unsigned runs = 0;

		while (run(&at, fault)) {
			at.events += apart;
			at.host = ++runs % 2;
			at.mode = runs / 2 % 2 ? HA_COMPLETION_E2E : HA_COMPLETION_RC;
		}
		assert_true(runs >= 60 / apart);
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

int main(int argc, char **argv)
{
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

	if (argc > 1)
		apart = (unsigned)strtoul(argv[1], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
