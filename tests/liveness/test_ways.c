/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Of two ways between two ports one loses all datagrams, and which one a session's heartbeats take
 * is decided by chance: both ends find the good one. For many seeds, in virtual time.
 */
#include "../seeded_random.h"
#include "world.h"

#include "liveness/session.h"

#include <stdio.h>

#define SEEDS 200
#define LIMIT (120 * HA_NS_PER_S)
#define STEP  (10 * HA_NS_PER_MS)

static struct observer seen[2];
static bool asked[2];

static void note_doom(struct ha_live_link *link)
{
	asked[link == &seen[1].link] = true;
}

/* What is asked of the path itself is answered: it is alive. */
static void step(void)
{
	sv_stepped_run(sv_stepped_now() + STEP);
	rounds();
	for (int i = 0; i < 2; i++) {
		if (asked[i])
			ha_liveness_note_life(ends[i].live, &seen[i].link);
		asked[i] = false;
	}
}

static bool both_up(void)
{
	return state_of(&seen[0]) == HA_SESSION_UP && state_of(&seen[1]) == HA_SESSION_UP;
}

/* Nobody else proves that the peer is there: so the path is asked most seldom. */
static void open_pair(uint32_t seed)
{
	config.heartbeat_ms = 200;
	seed_random(seed);
	fabric(&(struct sv_stepped_opts){0});
	for (int i = 0; i < 2; i++) {
		detach(i, &witness[i]);
		attach(i, 0, 0, &seen[i]);
		seen[i].link.doomed = note_doom;
		asked[i] = false;
	}
	for (int i = 0; i < 100; i++)
		step();
	assert_true(both_up());
}

static void close_pair(void)
{
	for (int i = 0; i < 2; i++)
		detach(i, &seen[i]);
	done();
	assert_int_equal(sv_stepped_close(), 0);
}

static uint64_t lost_by(int id)
{
	uint64_t matched, n = 0;

	assert_true(sv_stepped_fault_stats(id, &matched, &n));
	return n;
}

/*
 * Until both have been answered for four seconds. *left: how often the end that is to stay left a
 * way that the peer heard it on.
 */
static bool find_a_way(unsigned *left)
{
	uint64_t begin_ns = sv_stepped_now(), good_ns = begin_ns;
	bool zero_moves = seen[0].link.session->port->id < seen[1].link.session->port->id;
	const struct ha_session *stays = seen[zero_moves].link.session;
	const struct ha_session *moves = seen[!zero_moves].link.session;

	while (sv_stepped_now() < good_ns + 4 * HA_NS_PER_S) {
		uint64_t now_ns = sv_stepped_now();
		uint32_t label = stays->flow_label;
		bool heard = now_ns > begin_ns + HA_NS_PER_S &&
			     now_ns < moves->pinged_ns + 250 * HA_NS_PER_MS;

		if (now_ns > begin_ns + LIMIT)
			return false;
		step();
		*left += heard && stays->flow_label != label;
		if (!both_up())
			good_ns = sv_stepped_now();
	}
	return true;
}

static void both_ends_find_the_good_way(void **state)
{
	unsigned left = 0, never = 0, dropped = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= SEEDS; seed++) {
		char rule[64], err[400];
		int id;

		open_pair(seed);
		snprintf(rule, sizeof(rule), "drop op=ud leg=%u rail=0", seed % 2);
		id = sv_stepped_fault_add(rule, err, sizeof(err));
		assert_true(id >= 0);
		if (!find_a_way(&left)) {
			print_message("seed %u: no way found\n", seed);
			never++;
		}
		dropped += lost_by(id) > 0;
		for (int i = 0; i < 2; i++)
			assert_int_equal(seen[i].downs, 0);
		close_pair();
	}
	assert_int_equal(never, 0);
	/* What makes it end for certain: the end that stays, once it is heard, stays there. */
	assert_int_equal(left, 0);
	assert_in_range(dropped, SEEDS / 2, SEEDS);
	fabric(&(struct sv_stepped_opts){0}); /* for teardown */
	done();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(both_ends_find_the_good_way, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
