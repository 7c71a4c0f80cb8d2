/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inquiries on a stepped fabric: traffic stands still at both ends and both ask. A cut is found by
 * that; a peer that gets no processor, at either end, and a network that is slow or loses a lot are
 * not taken for one.
 */
#include "world.h"

#include <stdio.h>

#define STALL_MS 10
/* Four stalls, and the ping after that. */
#define TIMEOUT_MS (4 * STALL_MS + 5)

/* A processor is away for up to this long, again and again. */
static const unsigned away_ms[] = {200, 60, 20};

static int at_default_settings(void **state)
{
	(void)setup(state);
	config.heartbeat_ms = 200;
	config.stall_ms = STALL_MS;
	return 0;
}

static void up_on(int rail, struct observer o[2])
{
	for (int i = 0; i < 2; i++)
		attach(i, rail, rail, &o[i]);
	run_ms(300);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		assert_int_equal(state_of(&witness[i]), HA_SESSION_UP);
	}
}

/* As connections do whose traffic stands still. */
static void inquire(struct observer o[2])
{
	for (int i = 0; i < 2; i++)
		if (!ends[i].asleep)
			ha_liveness_inquire(ends[i].live, &o[i].link);
}

static void detach_both(struct observer o[2])
{
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
}

static int downs(const struct observer o[2])
{
	return o[0].downs + o[1].downs;
}

static void a_cut_is_found_wherever_between_two_heartbeats(void **state)
{
	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (unsigned phase_us = 0; phase_us < 200000; phase_us += 23700)
		for (int direction = 0; direction < 3; direction++) {
			struct observer o[2], other[2];
			uint64_t cut_ns, since_ns;

			up_on(0, o);
			up_on(1, other);
			run_us(phase_us);
			cut_ns = sv_stepped_now();
			if (direction == 2)
				sv_stepped_cut(0, true);
			else
				sv_stepped_block((uint32_t)direction, 0, (uint32_t)!direction, 0,
						 true);
			run_ms(STALL_MS);
			since_ns = sv_stepped_now();
			inquire(o);
			run_ms(TIMEOUT_MS);
			for (int i = 0; i < 2; i++) {
				assert_int_equal(o[i].downs, 1);
				/* A heartbeat may have come before whoever waits. */
				assert_in_range(o[i].down_ns, cut_ns + 4 * STALL_MS * HA_NS_PER_MS,
						since_ns + TIMEOUT_MS * HA_NS_PER_MS);
				assert_int_equal(state_of(&other[i]), HA_SESSION_UP);
				assert_int_equal(other[i].downs, 0);
			}
			sv_stepped_cut(0, false);
			sv_stepped_block(0, 0, 1, 0, false);
			sv_stepped_block(1, 0, 0, 0, false);
			detach_both(o);
			detach_both(other);
		}
	done();
}

/*
 * Where nobody waits for anything the next heartbeat finds it: what uses these ports knows 10 ms
 * later, and they are given up 50 ms later, while the peer answers over others.
 */
static void a_cut_is_found_by_the_next_heartbeat_where_nothing_is_under_way(void **state)
{
	uint64_t most_ns = 0;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (unsigned phase_us = 0; phase_us < 200000; phase_us += 8700)
		for (int direction = 0; direction < 2; direction++) {
			const uint64_t interval_ns = 200 * HA_NS_PER_MS;
			struct observer o[2];
			uint64_t cut_ns;

			up_on(0, o);
			run_us(phase_us);
			cut_ns = sv_stepped_now();
			sv_stepped_block((uint32_t)direction, 0, (uint32_t)!direction, 0, true);
			while (state_of(&o[0]) == HA_SESSION_UP || state_of(&o[1]) == HA_SESSION_UP)
				run_us(250);
			most_ns = sv_stepped_now() - cut_ns > most_ns ? sv_stepped_now() - cut_ns
								      : most_ns;
			assert_in_range(most_ns, 1, interval_ns + 10 * HA_NS_PER_MS);
			while (downs(o) < 2)
				run_us(250);
			for (int i = 0; i < 2; i++)
				assert_in_range(o[i].down_ns, cut_ns + 4 * STALL_MS * HA_NS_PER_MS,
						cut_ns + interval_ns + TIMEOUT_MS * HA_NS_PER_MS);
			sv_stepped_block((uint32_t)direction, 0, (uint32_t)!direction, 0, false);
			detach_both(o);
		}
	print_message("suspected after %.1f ms at most\n", (double)most_ns / HA_NS_PER_MS);
	done();
}

/* Everything that shares the ports with what stands still is told. */
static void all_links_of_a_session_are_told(void **state)
{
	enum { LINKS = 50 };
	struct observer o[2], many[LINKS];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up_on(0, o);
	for (int i = 0; i < LINKS; i++)
		attach(0, 0, 0, &many[i]);
	sv_stepped_cut(0, true);
	ha_liveness_inquire(ends[0].live, &many[7].link);
	run_ms(TIMEOUT_MS);
	for (int i = 0; i < LINKS; i++) {
		assert_int_equal(many[i].downs, 1);
		detach(0, &many[i]);
	}
	sv_stepped_cut(0, false);
	detach_both(o);
	done();
}

/* One ping and no more, of the others none, and nobody thinks anything of it. */
static void an_inquiry_that_is_answered_costs_one_ping(void **state)
{
	struct ha_live_port_report before, after, others, others_after;
	struct ha_session_report report;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up_on(0, o);
	for (int n = 0; n < 40; n++) {
		run_ms(50);
		before = port_report(0, 0);
		others = port_report(0, WITNESS);
		ha_liveness_inquire(ends[0].live, &o[0].link);
		run_ms(1);
		after = port_report(0, 0);
		others_after = port_report(0, WITNESS);
		assert_in_range(after.pings - before.pings, 0, 1); /* 0: just heard */
		assert_in_range(others_after.pings - others.pings, 0, 1);
	}
	ha_session_report(o[0].link.session, &report);
	assert_int_equal(report.suspicions, 0);
	/* Each also takes the place of the next one at the interval. */
	assert_in_range(report.pings, 30, 60);
	assert_int_equal(downs(o), 0);
	detach_both(o);
	done();
}

/* ---- without a processor --------------------------------------------------------------------- */

static uint64_t xorshift(uint64_t *random)
{
	*random ^= *random << 13;
	*random ^= *random >> 7;
	*random ^= *random << 17;
	return *random;
}

/* A millisecond in which each end may lose its processor, or be without it already. */
static void hogged_ms(uint64_t seed, uint64_t *random, uint64_t away_until_ns[2])
{
	uint64_t most_ns = away_ms[seed % 3] * HA_NS_PER_MS;

	for (int i = 0; i < 2; i++) {
		if (sv_stepped_now() >= away_until_ns[i] && xorshift(random) % 32 == 0)
			away_until_ns[i] = sv_stepped_now() + xorshift(random) % most_ns;
		ends[i].asleep = sv_stepped_now() < away_until_ns[i];
	}
	run_ms(1);
}

static void hogs_on_every_processor_are_no_cut(void **state)
{
	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (uint64_t seed = 1; seed <= 24; seed++) {
		uint64_t random = seed * 0x9e3779b97f4a7c15ull, away_until_ns[2] = {0, 0};
		struct observer o[2];

		up_on(0, o);
		for (int ms = 0; ms < 4000; ms++) {
			hogged_ms(seed, &random, away_until_ns);
			if (ms % STALL_MS == 0)
				inquire(o);
			if (downs(o) != 0)
				fail_msg("seed %d: given up after %d ms", (int)seed, ms);
		}
		ends[0].asleep = ends[1].asleep = false;
		detach_both(o);
	}
	done();
}

/* Nor do they hide one. */
static void a_cut_is_found_beside_hogs(void **state)
{
	uint64_t worst_ms = 0;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (uint64_t seed = 1; seed <= 24; seed++) {
		uint64_t random = seed * 0x9e3779b97f4a7c15ull, away_until_ns[2] = {0, 0}, ms;
		struct observer o[2];

		up_on(0, o);
		sv_stepped_cut(0, true);
		for (ms = 0; downs(o) == 0; ms++) {
			assert_true(ms < 3000);
			hogged_ms(seed, &random, away_until_ns);
			if (ms % STALL_MS == 0)
				inquire(o);
		}
		worst_ms = ms > worst_ms ? ms : worst_ms;
		ends[0].asleep = ends[1].asleep = false;
		sv_stepped_cut(0, false);
		detach_both(o);
	}
	print_message("found after %d ms at most\n", (int)worst_ms);
	done();
}

/* Its NIC keeps what comes until there is no more room. */
static void a_peer_that_is_stopped_is_no_cut(void **state)
{
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up_on(0, o);
	for (int times = 0; times < 4; times++) {
		ends[1].asleep = true;
		for (int ms = 0; ms < 1900; ms++) {
			run_ms(1);
			if (ms % STALL_MS == 0)
				inquire(o);
			assert_int_equal(o[0].downs, 0);
		}
		ends[1].asleep = false;
		for (int ms = 0; ms < 300; ms++) {
			run_ms(1);
			if (ms % STALL_MS == 0)
				inquire(o);
			assert_int_equal(downs(o), 0);
		}
		assert_int_equal(state_of(&o[0]), HA_SESSION_UP);
	}
	detach_both(o);
	done();
}

/* ---- a bad network --------------------------------------------------------------------------- */

static int downs_under(const char *rule, int seconds)
{
	struct observer o[2];
	char error[128];
	uint64_t matched, fired;
	int id, given_up;

	up_on(0, o);
	id = sv_stepped_fault_add(rule, error, sizeof error);
	assert_true(id >= 0);
	for (int ms = 0; ms < 1000 * seconds; ms++) {
		run_ms(1);
		if (ms % STALL_MS == 0)
			inquire(o);
	}
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_true(fired > 0);
	sv_stepped_fault_remove(id);
	given_up = downs(o);
	run_ms(50);
	detach_both(o);
	return given_up;
}

/* Of twenty pings in a row none is answered: at a fifth lost, once in a billion inquiries. */
static void loss_is_no_cut(void **state)
{
	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	assert_int_equal(downs_under("drop op=ud prob=0.10 seed=7", 20), 0);
	assert_int_equal(downs_under("drop op=ud prob=0.20 seed=7", 20), 0);
	done();
}

/* On one rail, and for the others nothing changes. */
static void a_slow_way_is_no_cut(void **state)
{
	static const struct {
		uint64_t latency_us;
		const char *rule; /* both ways: ten times the round trip */
	} cases[] = {
	    {2, "delay=18us op=ud rail=0"},
	    {100, "delay=900us op=ud rail=0"},
	    {1000, "delay=9ms op=ud rail=0"},
	    {2500, "delay=22500us op=ud rail=0"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fabric(&(struct sv_stepped_opts){.latency_ns = cases[i].latency_us * 1000});
		run_ms(2000);
		assert_int_equal(downs_under(cases[i].rule, 3), 0);
		done();
		assert_int_equal(sv_stepped_close(), 0);
	}
	fabric(&(struct sv_stepped_opts){0}); /* for the teardown */
	done();
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, at_default_settings, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_cut_is_found_wherever_between_two_heartbeats),
	    TEST(a_cut_is_found_by_the_next_heartbeat_where_nothing_is_under_way),
	    TEST(all_links_of_a_session_are_told),
	    TEST(an_inquiry_that_is_answered_costs_one_ping),
	    TEST(hogs_on_every_processor_are_no_cut),
	    TEST(a_cut_is_found_beside_hogs),
	    TEST(a_peer_that_is_stopped_is_no_cut),
	    TEST(loss_is_no_cut),
	    TEST(a_slow_way_is_no_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
