/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rail that hundreds of connections use beside their control rail goes down in the middle of a
 * message of each: none fails over, and each has sent again what was lost. On a virtual clock, in
 * turns of the background threads. The argument is how many connections there are.
 */
#include "../transport/at_scale.h"
#include "bundled.h"

#include "base/clock.h"
#include "failover/rails.h"
#include "instance/instance.h"
#include "progress/command.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZE	  (128u << 10) /* the least that is cut */
#define HOSTS	  2
#define RAILS	  2
#define TURN_NS	  (10 * HA_NS_PER_US)
#define LIMIT_NS  (50 * HA_NS_PER_MS)
#define LOST	  1 /* rail */
#define MODIFY_NS (200 * HA_NS_PER_US)

static unsigned connections = 128;
static bool at_length;

struct connection {
	struct pair pair; /* of its own: the ends and their memory */
	struct ha_request *recv, *send;
};

struct world {
	struct pair pair; /* fabric and instances */
	struct connection *conns;
};

static void turn(struct world *w)
{
	pair_turn(&w->pair, TURN_NS);
}

/* ---- NICs ------------------------------------------------------------------------------------ */

/* How many commands each does at once. */
static unsigned nic_does = 1;
static struct nic_units units[HOSTS][RAILS];
static struct nic_units *in_use; /* by the command that was run last */

static void note_nic(const struct sv_wait_info *info, void *arg)
{
	(void)arg;
	in_use = &units[info->host][info->rail];
}

static uint64_t took_ns(void)
{
	return nic_took_ns(in_use, nic_does);
}

static void commands_take_time(unsigned at_once)
{
	nic_does = at_once;
	memset(units, 0, sizeof(units));
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	(void)add_rule("wait=200us verb=modify_qp");
	sv_stepped_on_wait(note_nic, NULL);
	ha_command_took_ns = took_ns;
}

/* ---- all carry over both rails --------------------------------------------------------------- */

static void begin_message(struct connection *c)
{
	const size_t offset = 0, size = SIZE;
	const int tag = 1;

	memset(c->pair.to.bytes, CANARY, SIZE);
	c->recv = post_recv(&c->pair, 1, &offset, &size, &tag);
	c->send = post_send(&c->pair, 0, SIZE, tag);
}

/* How many have all of their message, at both ends. */
static unsigned finished(struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < connections; i++) {
		struct connection *c = &w->conns[i];
		const bool sent = pair_is_done(&c->send), received = pair_is_done(&c->recv);

		n += sent && received;
	}
	return n;
}

/* Of each so many connections the last one. */
static void begin_messages_of(struct world *w, unsigned each)
{
	for (unsigned i = each - 1; i < connections; i += each)
		begin_message(&w->conns[i]);
}

static void begin_messages(struct world *w)
{
	begin_messages_of(w, 1);
}

static void finish_messages(struct world *w)
{
	const uint64_t until_ns = sv_stepped_now() + HA_NS_PER_S;

	while (finished(w) < connections) {
		assert_true(sv_stepped_now() < until_ns);
		turn(w);
	}
	for (unsigned i = 0; i < connections; i++)
		assert_memory_equal(w->conns[i].pair.to.bytes, w->conns[i].pair.from.bytes, SIZE);
}

static unsigned carry_over_both(const struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < connections; i++)
		n += carrying_now(&w->conns[i].pair) == RAILS;
	return n;
}

static void connect_all(struct world *w)
{
	pair_open(&w->pair);
	w->conns = calloc(connections, sizeof(*w->conns));
	assert_non_null(w->conns);
	for (unsigned i = 0; i < connections; i++) {
		w->conns[i].pair = w->pair;
		pair_connect(&w->conns[i].pair);
		fill(w->conns[i].pair.from.bytes, SIZE, i);
	}
}

static void up(struct world *w)
{
	bundled_init(&w->pair, RAILS);
	strcpy(w->pair.config.rail_share, "1,1");
	connect_all(w);
	for (unsigned i = 0; i < 200 && carry_over_both(w) < connections; i++) {
		begin_messages(w);
		finish_messages(w);
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		pair_settle(&w->pair);
	}
	assert_int_equal(carry_over_both(w), connections);
}

static void down(struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		pair_disconnect(&w->conns[i].pair);
	ha_command_took_ns = NULL;
	pair_close(&w->pair);
	free(w->conns);
}

/* ---- a rail goes ----------------------------------------------------------------------------- */

static bool is_mended(const struct connection *c)
{
	const struct pair *pair = &c->pair;

	return pair->send->striped.sheds[LOST].mends == 1 &&
	       pair->recv->striped.sheds[LOST].mends == 1 && !ha_rails_lack(pair->send) &&
	       !ha_rails_lack(pair->recv);
}

static unsigned mended(const struct world *w)
{
	unsigned n = 0;

	for (unsigned i = 0; i < connections; i++)
		n += is_mended(&w->conns[i]);
	return n;
}

/* Nothing new goes over it, at either end. */
static bool has_left(const struct connection *c)
{
	return is_mended(c) || (carrying_now(&c->pair) < RAILS && ha_rails_lack(c->pair.send));
}

static bool all_have_left(const struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		if (!has_left(&w->conns[i]))
			return false;
	return true;
}

/* From now until all are mended; *left_ns: until none uses the rail any more. */
static uint64_t mend_ns(struct world *w, uint64_t *left_ns)
{
	const uint64_t since_ns = sv_stepped_now();

	*left_ns = 0;
	while (mended(w) < connections) {
		if (*left_ns == 0 && all_have_left(w))
			*left_ns = sv_stepped_now() - since_ns;
		if (sv_stepped_now() - since_ns > HA_NS_PER_S)
			fail_msg("%u of %u are mended", mended(w), connections);
		turn(w);
	}
	if (*left_ns == 0) /* both between two turns */
		*left_ns = sv_stepped_now() - since_ns;
	return sv_stepped_now() - since_ns;
}

/* Returns what it took until all were mended. at_once: how many commands each NIC does; 0: they
 * take no time. */
static uint64_t a_rail_goes_down_at(uint32_t host, unsigned at_once)
{
	uint64_t again = 0, ns, left_ns;
	struct world w;

	up(&w);
	if (at_once > 0)
		commands_take_time(at_once);
	begin_messages(&w);
	sv_stepped_link(host, LOST, false);
	ns = mend_ns(&w, &left_ns);
	assert_in_range(left_ns, 1, LIMIT_NS); /* however long fences take */
	finish_messages(&w);
	for (unsigned i = 0; i < connections; i++) {
		const struct pair *pair = &w.conns[i].pair;

		assert_int_equal(pair->send->count.failovers + pair->recv->count.failovers, 0);
		assert_int_equal(pair->send->striped.sheds[LOST].sheds, 1);
		again += pair->send->striped.sheds[LOST].mended_stripes;
	}
	print_message(
	    "%u: left after %.2f ms, mended after %.2f ms, %llu parts of messages sent again\n",
	    connections, (double)left_ns / 1e6, (double)ns / 1e6, (unsigned long long)again);
	assert_in_range(again, 1, connections);
	down(&w);
	return ns;
}

static void hundreds_shed_a_rail_and_none_fails_over(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < HOSTS; host++)
		assert_true(a_rail_goes_down_at(host, 0) <= LIMIT_NS);
}

/* Each has its own fence to wait for, which its NIC comes to in turn. */
static void hundreds_shed_a_rail_as_fast_as_its_nics_fence(void **state)
{
	(void)state;
	assert_true(a_rail_goes_down_at(1, 1) <= connections * MODIFY_NS + HA_NS_PER_MS);
}

/* A NIC that can do several is asked for so many: then 512 are mended in time, too. */
static void hundreds_are_mended_in_an_eighth_where_nics_do_eight_at_once(void **state)
{
	const uint64_t ns = a_rail_goes_down_at(1, AT_ONCE);

	(void)state;
	assert_true(ns <= connections / AT_ONCE * MODIFY_NS + HA_NS_PER_MS);
	assert_true(ns <= LIMIT_NS);
}

/* Those that have nothing to send again let those that have go first, wherever they stand. */
static void what_is_under_way_waits_for_no_fence_of_nothing(void **state)
{
	const unsigned each = 8;
	uint64_t since_ns;
	struct world w;

	(void)state;
	up(&w);
	commands_take_time(1);
	begin_messages_of(&w, each);
	since_ns = sv_stepped_now();
	sv_stepped_link(1, LOST, false);
	finish_messages(&w);
	print_message("%u of %u: there after %.2f ms\n", connections / each, connections,
		      (double)(sv_stepped_now() - since_ns) / 1e6);
	assert_in_range(sv_stepped_now() - since_ns, 1,
			connections / each * MODIFY_NS + HA_NS_PER_MS);
	while (mended(&w) < connections) {
		assert_true(sv_stepped_now() - since_ns <= connections * MODIFY_NS + HA_NS_PER_MS);
		turn(&w);
	}
	down(&w);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t heap_bytes(void)
{
	const struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

/* What closing them gives back: of the plugin, and of its queue pairs, which lie there, too. */
static size_t bytes_of_all(struct world *w)
{
	size_t bytes = heap_bytes();

	for (unsigned i = 0; i < connections; i++)
		pair_disconnect(&w->conns[i].pair);
	bytes -= heap_bytes();
	pair_close(&w->pair);
	free(w->conns);
	return bytes;
}

/* Of one path, where each has had a message. */
static size_t bytes_over_one(bool reserve)
{
	struct world w;

	bundled_init(&w.pair, RAILS);
	*w.pair.config.rails = '\0';
	w.pair.config.enable_backup = reserve;
	connect_all(&w);
	begin_messages(&w);
	finish_messages(&w);
	for (unsigned i = 0; reserve && i < connections; i++)
		pair_wait_standby(&w.conns[i].pair);
	return bytes_of_all(&w);
}

/* At most twice that of a connection of one path, and at most a tenth more than with one in
 * reserve; however many there are. */
static void two_rails_take_the_memory_of_two_paths(void **state)
{
	const unsigned all = connections;
	size_t one, reserve, both;
	struct world w;

	(void)state;
	connections = at_length ? all : 16;
	one = bytes_over_one(false);
	reserve = bytes_over_one(true);
	up(&w);
	both = bytes_of_all(&w);
	print_message("%u: KiB each: one path %.1f, one in reserve %.1f, two rails %.1f\n",
		      connections, (double)one / 1024 / connections,
		      (double)reserve / 1024 / connections, (double)both / 1024 / connections);
	assert_true(one > 0);
	assert_in_range(both, 0, 2 * one);
	assert_in_range(both, 0, reserve + reserve / 10);
	connections = all;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(hundreds_shed_a_rail_and_none_fails_over),
	    cmocka_unit_test(hundreds_shed_a_rail_as_fast_as_its_nics_fence),
	    cmocka_unit_test(hundreds_are_mended_in_an_eighth_where_nics_do_eight_at_once),
	    cmocka_unit_test(what_is_under_way_waits_for_no_fence_of_nothing),
	    cmocka_unit_test(two_rails_take_the_memory_of_two_paths),
	};

	if (argc > 1)
		connections = (unsigned)strtoul(argv[1], NULL, 10);
	at_length = argc > 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
