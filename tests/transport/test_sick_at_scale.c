/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight NICs, hundreds of connections, and one NIC that does not answer commands: whoever does not
 * use it does not notice, and who does moves away. In virtual time, in ticks of a millisecond: an
 * application of that many connections looks at each of them now and then. The argument is how many
 * there are.
 */
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAILS	  8
#define SIZE	  96
#define PERIOD_MS 10 /* from one message of a connection to its next */

/* Of a connection on another rail: the longest from one message to the next. */
#define GAP_MS 100
/* Of one on the sick NIC: 25 ms until a command is overdue, 20 ms for what is on its way, and an
 * eighth of 1,000 that move at once. */
#define MOVES_MS 200

static unsigned connections = 240;

struct connection {
	struct pair pair; /* of its own: the ends and their memory */
	struct ha_request *in, *out;
	uint64_t next_ns; /* when the next message is to begin */
	uint64_t last_ns; /* when the last one was there */
	uint64_t longest_ns;
	unsigned received;
	bool uses_sick;	    /* before the fault */
	uint64_t failovers; /* before that */
};

struct world {
	struct pair pair; /* fabric and instances */
	struct connection *conns;
};

/* ---- traffic -------------------------------------------------------------------------------- */

static void begin_message(struct connection *c)
{
	const size_t offset = SIZE, size = SIZE;
	const int tag = 7;

	memset(c->pair.to.bytes, CANARY, 3 * SIZE);
	fill(c->pair.from.bytes, SIZE, c->received);
	c->in = post_recv(&c->pair, 1, &offset, &size, &tag);
	assert_non_null(c->in);
}

static void message_is_there(struct connection *c, int size)
{
	uint64_t now_ns = sv_stepped_now();

	assert_int_equal(size, SIZE);
	assert_true(filled(c->pair.to.bytes + SIZE, SIZE, c->received));
	for (int i = 0; i < SIZE; i++) {
		assert_int_equal(c->pair.to.bytes[i], CANARY);
		assert_int_equal(c->pair.to.bytes[2 * SIZE + i], CANARY);
	}
	if (c->last_ns != 0 && now_ns - c->last_ns > c->longest_ns)
		c->longest_ns = now_ns - c->last_ns;
	c->last_ns = now_ns;
	c->received++;
}

static bool is_done(struct ha_request **req, int *size)
{
	bool done = false;

	if (!*req)
		return false;
	assert_int_equal(ha_test(*req, &done, size), HA_OK);
	if (done)
		*req = NULL;
	return done;
}

/* What the application of both ends does with a connection at a tick. */
static void look(struct connection *c)
{
	int size = 0;

	if (!c->in && !c->out && sv_stepped_now() >= c->next_ns) {
		c->next_ns = sv_stepped_now() + PERIOD_MS * HA_NS_PER_MS;
		begin_message(c);
		c->out = try_send(&c->pair, 0, SIZE, 7);
	}
	if (c->in && !c->out)
		c->out = try_send(&c->pair, 0, SIZE, 7);
	if (is_done(&c->in, &size))
		message_is_there(c, size);
	is_done(&c->out, &size);
}

static void tick(struct world *w, bool traffic)
{
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	pair_settle(&w->pair);
	for (unsigned i = 0; traffic && i < connections; i++)
		look(&w->conns[i]);
}

static void work(struct world *w, unsigned ms)
{
	for (unsigned i = 0; i < ms; i++)
		tick(w, true);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static bool all_have_standbys(const struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		if (!pair_has_standby(&w->conns[i].pair))
			return false;
	return true;
}

static void up(struct world *w)
{
	pair_init(&w->pair);
	w->pair.config.enable_backup = true;
	w->pair.fabric.rails = RAILS;
	pair_open(&w->pair);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_command_took_ns = sv_stepped_waited_ns;
	w->conns = calloc(connections, sizeof(*w->conns));
	assert_non_null(w->conns);
	for (unsigned i = 0; i < connections; i++) {
		struct connection *c = &w->conns[i];

		c->pair = w->pair;
		c->pair.listen_dev = c->pair.connect_dev = (int)(i % RAILS);
		pair_connect(&c->pair);
		c->next_ns = i % PERIOD_MS * HA_NS_PER_MS;
	}
	for (unsigned ms = 0; ms < 60000 && !all_have_standbys(w); ms++)
		tick(w, false);
	assert_true(all_have_standbys(w));
}

static void down(struct world *w)
{
	for (unsigned i = 0; i < connections; i++) {
		struct connection *c = &w->conns[i];

		for (unsigned ms = 0; (c->in || c->out) && ms < 1000; ms++)
			tick(w, true);
		assert_true(!c->in && !c->out);
	}
	for (unsigned i = 0; i < connections; i++)
		pair_disconnect(&w->conns[i].pair);
	pair_close(&w->pair);
	ha_command_took_ns = NULL;
	free(w->conns);
}

/* ---- what others notice --------------------------------------------------------------------- */

static bool uses(const struct world *w, const struct connection *c, uint32_t host, unsigned rail)
{
	const struct ha_comm *comm = host == 0 ? c->pair.send : c->pair.recv;

	return ha_comm_path(comm)->port->nic ==
	       &ha_instance_devices(w->pair.inst[host])->nics[rail];
}

static void before_the_fault(struct world *w, uint32_t host, unsigned rail)
{
	for (unsigned i = 0; i < connections; i++) {
		struct connection *c = &w->conns[i];

		assert_true(c->received > 0);
		c->longest_ns = 0;
		c->uses_sick = uses(w, c, host, rail);
		c->failovers = c->pair.recv->count.failovers;
	}
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Those that used it are elsewhere, and nobody else has moved. */
static void nobody_else_has_noticed(const struct world *w, uint32_t host, unsigned rail)
{
	double longest_ms = 0, of_moved_ms = 0;
	unsigned moved = 0;

	for (unsigned i = 0; i < connections; i++) {
		const struct connection *c = &w->conns[i];
		double ms = (double)c->longest_ns / (double)HA_NS_PER_MS;

		assert_int_equal(c->pair.recv->count.failovers, c->failovers + c->uses_sick);
		assert_false(uses(w, c, host, rail));
		moved += c->uses_sick;
		if (c->uses_sick)
			of_moved_ms = larger(of_moved_ms, ms);
		else
			longest_ms = larger(longest_ms, ms);
	}
	print_message("from one message to the next: %u that moved %.0f ms, the others %.0f ms\n",
		      moved, of_moved_ms, longest_ms);
	assert_true(moved >= connections / RAILS);
	assert_true(of_moved_ms <= MOVES_MS);
	assert_true(longest_ms <= GAP_MS);
}

static void a_nic_that_stops_no_queue_pair(struct world *w)
{
	int id = add_rule("wait=60s verb=modify_qp host=0 rail=0");

	before_the_fault(w, 0, 0);
	sv_stepped_link(0, 0, false);
	work(w, 1300);
	assert_true(fired(id) > 0);
	assert_true(atomic_load(&ha_instance_devices(w->pair.inst[0])->nics[0].sick));
	nobody_else_has_noticed(w, 0, 0);
}

static void a_nic_that_neither_flushes_nor_destroys(struct world *w)
{
	int wedge, destroy = add_rule("wait=30s verb=destroy_qp host=1 rail=1");

	before_the_fault(w, 1, 1);
	wedge = add_rule("wedge=hard host=1 rail=1 op=write");
	work(w, PERIOD_MS);
	sv_stepped_link(1, 1, false);
	work(w, 1300);
	assert_true(fired(wedge) > 0 && fired(destroy) > 0);
	nobody_else_has_noticed(w, 1, 1);
}

static void sick_nics_hold_up_nobody_on_the_others(void **state)
{
	struct world w;

	(void)state;
	up(&w);
	work(&w, 100);
	a_nic_that_stops_no_queue_pair(&w);
	a_nic_that_neither_flushes_nor_destroys(&w);
	down(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sick_nics_hold_up_nobody_on_the_others),
	};

	if (argc > 1)
		connections = (unsigned)strtoul(argv[1], NULL, 10);
	if (connections < RAILS) {
		fprintf(stderr, "%s: \"%s\" is no number of connections from %d\n", argv[0],
			argv[1], RAILS);
		return 2;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
