/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How connections cut messages over rails of some rates and latencies. A rail carries one stripe
 * after another; each connection keeps so many messages under way. Virtual time.
 */
#include "../cmocka_all.h"

#include "transport/balance.h"
#include "transport/share.h"

#include <string.h>

#define MIB	    (1u << 20)
#define CONNECTIONS 8
#define WINDOW	    8

struct rail {
	uint64_t bytes_per_ms, latency_ns, free_ns;
};

/* Of which each rail still carries its part until then; 0: it is through. */
struct message {
	uint64_t until_ns[HA_MAX_PATHS];
	uint32_t bytes[HA_MAX_PATHS];
	bool out;
};

struct connection {
	struct ha_balance balance;
	struct message messages[WINDOW];
};

struct world {
	struct rail rails[HA_MAX_PATHS];
	struct connection connections[CONNECTIONS];
	unsigned nrails, nconnections, window;
	uint64_t complete, carried[HA_MAX_PATHS];
	uint64_t look_ns; /* from one look at what is through to the next; 0: always */
};

static uint64_t clock_ns;

static void post(struct world *w, struct connection *c, struct message *m, uint32_t bytes)
{
	const uint64_t word =
	    ha_balance_shares(&c->balance, (1u << w->nrails) - 1, bytes, clock_ns);

	memset(m, 0, sizeof(*m));
	m->out = true;
	for (unsigned r = 0; r < w->nrails; r++) {
		struct rail *rail = &w->rails[r];
		const uint64_t begin_ns = rail->free_ns > clock_ns ? rail->free_ns : clock_ns;

		m->bytes[r] = bytes / HA_SHARE_ALL * ha_share_of(word, r);
		if (m->bytes[r] == 0)
			continue;
		rail->free_ns = begin_ns + m->bytes[r] * 1000000ull / rail->bytes_per_ms;
		m->until_ns[r] = rail->free_ns + rail->latency_ns;
		w->carried[r] += m->bytes[r];
		ha_balance_posted(&c->balance, r, m->bytes[r], clock_ns);
	}
}

static void look(struct world *w, struct connection *c)
{
	for (unsigned i = 0; i < w->window; i++) {
		struct message *m = &c->messages[i];
		bool any = false;

		if (!m->out)
			continue;
		for (unsigned r = 0; r < w->nrails; r++) {
			if (m->until_ns[r] != 0 && m->until_ns[r] <= clock_ns) {
				m->until_ns[r] = 0;
				ha_balance_carried(&c->balance, r, m->bytes[r], clock_ns);
			}
			any |= m->until_ns[r] != 0;
		}
		if (any)
			continue;
		m->out = false;
		w->complete++;
	}
}

/* Until so many messages more are complete, of each connection in the mean. */
static void run(struct world *w, unsigned messages, uint32_t bytes)
{
	const uint64_t until = w->complete + (uint64_t)messages * w->nconnections;

	while (w->complete < until) {
		uint64_t next_ns = UINT64_MAX;

		for (unsigned c = 0; c < w->nconnections; c++)
			for (unsigned i = 0; i < w->window; i++) {
				struct message *m = &w->connections[c].messages[i];

				if (!m->out)
					post(w, &w->connections[c], m, bytes);
				for (unsigned r = 0; r < w->nrails; r++)
					if (m->until_ns[r] != 0 && m->until_ns[r] < next_ns)
						next_ns = m->until_ns[r];
			}
		clock_ns = w->look_ns ? clock_ns + w->look_ns : next_ns;
		for (unsigned c = 0; c < w->nconnections; c++)
			look(w, &w->connections[c]);
	}
}

/* Rails that all announce the same. */
static void begin(struct world *w, unsigned connections, unsigned window, unsigned nrails)
{
	clock_ns = 1;
	w->nrails = nrails;
	w->nconnections = connections;
	w->window = window;
	for (unsigned c = 0; c < connections; c++)
		for (unsigned r = 0; r < nrails; r++)
			ha_balance_begin(&w->connections[c].balance, r, 100000);
}

struct figures {
	unsigned permille[HA_MAX_PATHS]; /* of the bytes, by rail */
	uint64_t bytes_per_ms;
};

/* Of so many messages of each connection. */
static struct figures measure(struct world *w, unsigned messages, uint32_t bytes)
{
	const uint64_t since_ns = clock_ns;
	struct figures figures = {0};
	uint64_t sum = 0;

	memset(w->carried, 0, sizeof(w->carried));
	run(w, messages, bytes);
	for (unsigned r = 0; r < w->nrails; r++)
		sum += w->carried[r];
	for (unsigned r = 0; r < w->nrails; r++)
		figures.permille[r] = (unsigned)(w->carried[r] * 1000 / sum);
	figures.bytes_per_ms = sum * 1000000 / (clock_ns - since_ns);
	return figures;
}

static void assert_near(unsigned permille, unsigned expected, unsigned within)
{
	assert_in_range(permille, expected - within, expected + within);
}

/* 3:1. Not more than a window is cut before anything is known. */
static void messages_are_cut_by_what_rails_carry_and_not_by_what_they_announce(void **state)
{
	(void)state;
	for (unsigned window = 1; window <= WINDOW; window *= 2)
		for (unsigned connections = 1; connections <= CONNECTIONS; connections *= 2) {
			struct world w = {.rails = {{12000000, 2000, 0}, {4000000, 2000, 0}}};
			struct figures figures;

			begin(&w, connections, window, 2);
			run(&w, 4 * window, MIB);
			figures = measure(&w, 200, MIB);
			assert_near(figures.permille[0], 750, 15);
			assert_true(figures.bytes_per_ms >= 16000000 * 96 / 100);
		}
}

static void four_rails_carry_in_their_ratio(void **state)
{
	struct world w = {
	    .rails = {{8000000, 0, 0}, {4000000, 0, 0}, {2000000, 0, 0}, {2000000, 0, 0}}};
	struct figures figures;

	(void)state;
	begin(&w, 1, WINDOW, 4);
	run(&w, 32, MIB);
	figures = measure(&w, 200, MIB);
	assert_near(figures.permille[0], 500, 25);
	assert_near(figures.permille[1], 250, 25);
	assert_near(figures.permille[2], 125, 25);
	assert_near(figures.permille[3], 125, 25);
	assert_true(figures.bytes_per_ms >= 16000000 * 95 / 100);
}

/* One message at a time: 128 KiB take 11 us, and the second rail needs 10 us more to begin. */
static void stripes_end_together_where_one_rail_takes_longer_to_begin(void **state)
{
	struct world w = {.rails = {{12000000, 2000, 0}, {12000000, 12000, 0}}};
	const struct message *m = &w.connections[0].messages[0];

	(void)state;
	begin(&w, 1, 1, 2);
	run(&w, 200, 256 << 10);
	post(&w, &w.connections[0], &w.connections[0].messages[0], 256 << 10);
	assert_in_range(m->until_ns[1] - clock_ns, (m->until_ns[0] - clock_ns) * 95 / 100,
			(m->until_ns[0] - clock_ns) * 105 / 100);
}

static void a_rail_that_becomes_slow_is_given_less_and_more_again(void **state)
{
	struct world w = {.rails = {{8000000, 0, 0}, {8000000, 0, 0}}};

	(void)state;
	begin(&w, 1, WINDOW, 2);
	assert_near(measure(&w, 100, MIB).permille[1], 500, 20);
	w.rails[1].bytes_per_ms = 1000000;
	run(&w, 50, MIB);
	assert_near(measure(&w, 100, MIB).permille[1], 111, 20);
	w.rails[1].bytes_per_ms = 8000000;
	run(&w, 50, MIB);
	assert_near(measure(&w, 100, MIB).permille[1], 500, 20);
}

/* A message that waits for it would cost more than it brings. */
static void a_rail_that_is_behind_gets_nothing_until_it_has_caught_up(void **state)
{
	struct ha_balance balance = {0};
	uint64_t word;

	(void)state;
	ha_balance_begin(&balance, 0, 100000);
	ha_balance_begin(&balance, 1, 100000);
	ha_balance_posted(&balance, 1, 2 * MIB, 1);
	word = ha_balance_shares(&balance, 3, MIB, 1);
	assert_int_equal(ha_share_of(word, 0), HA_SHARE_ALL);
	assert_int_equal(ha_share_of(word, 1), 0);
	/* As soon as it would be through first it helps. */
	ha_balance_posted(&balance, 0, 2 * MIB + MIB / 2, 1);
	word = ha_balance_shares(&balance, 3, MIB, 1);
	assert_int_equal(ha_share_of(word, 0), HA_SHARE_ALL / 4);
	assert_int_equal(ha_share_of(word, 1), HA_SHARE_ALL * 3 / 4);
}

static void an_idle_rail_always_has_a_part_by_which_to_be_seen(void **state)
{
	struct world w = {.rails = {{12000000, 0, 0}, {1200, 0, 0}}};
	uint64_t word;

	(void)state;
	begin(&w, 1, 1, 2);
	run(&w, 20, MIB);
	word = ha_balance_shares(&w.connections[0].balance, 3, MIB, clock_ns);
	assert_int_equal(ha_share_of(word, 1), HA_SHARE_ALL / 64);
	assert_int_equal(ha_share_of(word, 0) + ha_share_of(word, 1), HA_SHARE_ALL);
}

/* He finds all of it done each time, whatever was first. */
static void who_looks_seldom_learns_nothing_wrong(void **state)
{
	struct world w = {.rails = {{12000000, 0, 0}, {12000000, 0, 0}}, .look_ns = 4000000};

	(void)state;
	begin(&w, 1, WINDOW, 2);
	assert_near(measure(&w, 500, MIB).permille[1], 500, 5);
}

/* Whatever is known of rails, and whatever is under way on them. */
static void shares_always_add_up(void **state)
{
	(void)state;
	srand(1);
	for (unsigned i = 0; i < 100000; i++) {
		struct ha_balance balance = {0};
		const unsigned slots = 1 + i % 15;
		unsigned sum = 0;
		uint64_t word;

		for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++) {
			const uint32_t bytes = (uint32_t)rand() >> (rand() % 31);

			ha_balance_begin(&balance, slot, 1 + ((uint32_t)rand() >> (rand() % 31)));
			ha_balance_posted(&balance, slot, bytes, 1);
			if (rand() % 2)
				ha_balance_carried(&balance, slot, bytes, 1 + (uint64_t)rand());
		}
		word = ha_balance_shares(&balance, slots, (uint64_t)1 << (17 + rand() % 46),
					 1ull << 32);
		for (unsigned slot = 0; slot < HA_MAX_PATHS; slot++) {
			assert_true(slots >> slot & 1 || ha_share_of(word, slot) == 0);
			sum += ha_share_of(word, slot);
		}
		assert_int_equal(sum, HA_SHARE_ALL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(messages_are_cut_by_what_rails_carry_and_not_by_what_they_announce),
	    cmocka_unit_test(four_rails_carry_in_their_ratio),
	    cmocka_unit_test(stripes_end_together_where_one_rail_takes_longer_to_begin),
	    cmocka_unit_test(a_rail_that_becomes_slow_is_given_less_and_more_again),
	    cmocka_unit_test(a_rail_that_is_behind_gets_nothing_until_it_has_caught_up),
	    cmocka_unit_test(an_idle_rail_always_has_a_part_by_which_to_be_seen),
	    cmocka_unit_test(who_looks_seldom_learns_nothing_wrong),
	    cmocka_unit_test(shares_always_add_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
