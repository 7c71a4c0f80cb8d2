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
#include "transport/failover_ops.h"

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
#define CLOSE_MS 1000
/* Heartbeats of 200 ms: at least so many a second are asked and answered by each port. */
#define BEATS 4

static unsigned connections = 240;

struct connection {
	struct pair pair; /* of its own: the ends and their memory */
	struct ha_request *in, *out;
	uint64_t next_ns; /* when the next message is to begin */
	uint64_t last_ns; /* when the last one was there */
	uint64_t longest_ns;
	unsigned received;
	bool uses_sick; /* before the fault */
	bool closed;
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
		if (!w->conns[i].closed)
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

static void up(struct world *w, bool failback)
{
	pair_init(&w->pair);
	w->pair.config.enable_backup = true;
	w->pair.config.enable_failback = failback;
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

static void finish_messages(struct world *w, struct connection *c)
{
	for (unsigned ms = 0; (c->in || c->out) && ms < 1000; ms++)
		tick(w, true);
	assert_true(!c->in && !c->out);
}

static void down(struct world *w)
{
	for (unsigned i = 0; i < connections; i++)
		finish_messages(w, &w->conns[i]);
	for (unsigned i = 0; i < connections; i++)
		if (!w->conns[i].closed)
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
	up(&w, false);
	work(&w, 100);
	a_nic_that_stops_no_queue_pair(&w);
	a_nic_that_neither_flushes_nor_destroys(&w);
	down(&w);
}

/* ---- every command that a firmware may keep ------------------------------------------------- */

/* NIC 0 of host 0 keeps this command; a link that goes and comes back is why it is given. */
struct stuck {
	const char *rule, *wedge;
	uint32_t broken;  /* whose link of rail 0 */
	bool readdressed; /* it comes back with another address */
	bool failback;	  /* a path is built there again, to go back to */
};

static const struct stuck stuck[] = {
    {.rule = "wait=60s verb=modify_qp host=0 rail=0"},
    {.rule = "wait=30s verb=destroy_qp host=0 rail=0",
     .wedge = "wedge=hard host=0 rail=0 op=write"},
    {.rule = "wait=60s verb=create_qp host=0 rail=0", .failback = true},
    {.rule = "wait=60s verb=reg_mr host=0 rail=0", .failback = true},
    /* For heartbeats to a port that comes back with another address. */
    {.rule = "wait=60s verb=create_ah host=0 rail=0",
     .broken = 1,
     .readdressed = true,
     .failback = true},
};

static struct ha_live_port_report heartbeats(const struct world *w, uint32_t host, unsigned rail)
{
	struct ha_instance *inst = w->pair.inst[host];
	struct ha_live_port_report report;

	assert_true(ha_liveness_port_report(inst->liveness, &ha_instance_devices(inst)->ports[rail],
					    &report));
	return report;
}

/* What each port has asked and answered; those of rail 0 may be silent. */
struct beats {
	struct ha_live_port_report of[2][RAILS];
};

static void count_beats(const struct world *w, struct beats *out)
{
	for (uint32_t host = 0; host < 2; host++)
		for (unsigned rail = 1; rail < RAILS; rail++)
			out->of[host][rail] = heartbeats(w, host, rail);
}

static void others_beat(const struct world *w, const struct beats *since)
{
	for (uint32_t host = 0; host < 2; host++)
		for (unsigned rail = 1; rail < RAILS; rail++) {
			struct ha_live_port_report now = heartbeats(w, host, rail);
			const struct ha_live_port_report *then = &since->of[host][rail];

			assert_true(now.sessions_up > 0);
			assert_true(now.pongs >= then->pongs + BEATS);
			assert_true(now.answered >= then->answered + BEATS);
		}
}

/* Whether a connection has a path, in use, in reserve or left, over NIC 0 of host 0. */
static bool has_sick_path(const struct world *w, const struct connection *c)
{
	const struct ha_comm *comm = c->pair.send;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *left = comm->ops->left(comm, p), *path = comm->paths[p];
		const struct ha_nic *nic = &ha_instance_devices(w->pair.inst[0])->nics[0];

		if ((path && path->port->nic == nic) || (left && left->port->nic == nic))
			return true;
	}
	return false;
}

/* Also where the sick NIC is the one in reserve: of so many. */
static unsigned others_close(struct world *w)
{
	uint64_t longest_ns = 0;
	unsigned sick = 0;

	for (unsigned i = 0; i < connections; i++) {
		struct connection *c = &w->conns[i];
		uint64_t since_ns, took_ns;

		if (c->uses_sick)
			continue;
		finish_messages(w, c);
		sick += has_sick_path(w, c);
		(void)sv_stepped_waited_ns();
		since_ns = sv_stepped_now();
		pair_disconnect(&c->pair);
		c->closed = true;
		took_ns = sv_stepped_now() - since_ns + sv_stepped_waited_ns();
		if (took_ns > longest_ns)
			longest_ns = took_ns;
	}
	print_message("closing took up to %.3f ms, of %u with a path over the sick NIC, too\n",
		      (double)longest_ns / (double)HA_NS_PER_MS, sick);
	assert_true(longest_ns <= CLOSE_MS * HA_NS_PER_MS);
	return sick;
}

static void readdress(const struct world *w, uint32_t host, unsigned rail)
{
	const struct ha_port *port = &ha_instance_devices(w->pair.inst[host])->ports[rail];
	const union ibv_gid gid = {
	    .raw = {[10] = 0xff, [11] = 0xff, 10, 99, (uint8_t)rail, (uint8_t)(host + 1)}};

	sv_stepped_set_gid(host, rail, (uint32_t)port->gid_index, &gid);
}

/* Returns how many that closed meanwhile had a path over the sick NIC. */
static unsigned is_stuck(const struct stuck *s)
{
	unsigned sick;
	int id, wedge = -1;
	struct beats beats;
	struct world w;

	print_message("%s\n", s->rule);
	up(&w, s->failback);
	work(&w, 100);
	before_the_fault(&w, s->broken, 0);
	id = add_rule(s->rule);
	if (s->wedge)
		wedge = add_rule(s->wedge);
	work(&w, s->wedge ? PERIOD_MS : 0);
	count_beats(&w, &beats);
	sv_stepped_link(s->broken, 0, false);
	work(&w, 200);
	if (s->readdressed)
		readdress(&w, s->broken, 0);
	sv_stepped_link(s->broken, 0, true);
	work(&w, 1300);
	assert_true(fired(id) > 0 && (wedge < 0 || fired(wedge) > 0));
	nobody_else_has_noticed(&w, s->broken, 0);
	others_beat(&w, &beats);
	sick = others_close(&w);
	down(&w);
	return sick;
}

/* Which connections have their path in reserve on the sick NIC when they close is a matter of when
 * the sockets deliver, which are real: until there was one. */
static void whatever_command_is_kept_others_go_on_and_close(void **state)
{
	unsigned all = connections, sick = 0;

	(void)state;
	connections = 2 * RAILS;
	for (unsigned tries = 0; tries < 5 && sick == 0; tries++)
		for (size_t i = 0; i < sizeof(stuck) / sizeof(stuck[0]); i++)
			sick += is_stuck(&stuck[i]);
	assert_true(sick > 0);
	connections = all;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sick_nics_hold_up_nobody_on_the_others),
	    cmocka_unit_test(whatever_command_is_kept_others_go_on_and_close),
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
