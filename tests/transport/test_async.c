/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous events: what changes nothing that a connection uses costs it nothing, whatever
 * happens to whichever NIC; what does concerns the connections of that port alone.
 */
#include "harness.h"

#include "base/clock.h"
#include "failover/engine.h"

#include <string.h>

#define STORM 1000

/* How often a connection was to be visited for what happened. */
static unsigned visits;
static const struct ha_poller *of_connections[2];
void __real_ha_progress_call(struct ha_progress *progress, struct ha_poller *poller);
void __wrap_ha_progress_call(struct ha_progress *progress, struct ha_poller *poller);

void __wrap_ha_progress_call(struct ha_progress *progress, struct ha_poller *poller)
{
	visits += poller == of_connections[0] || poller == of_connections[1];
	__real_ha_progress_call(progress, poller);
}

static void rails(struct pair *pair, uint32_t n, bool infiniband)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	pair->fabric.infiniband = infiniband;
	pair_up(pair);
	pair_wait_standby(pair);
	pair_idle(pair, 500);
	of_connections[0] = &pair->send->poller;
	of_connections[1] = &pair->recv->poller;
}

static uint64_t messages(const struct pair *pair)
{
	return pair->send->count.control_sent + pair->recv->count.control_sent;
}

/* Events of a port, or of a queue pair of a path on it. */
static bool is_of_queue_pairs(enum ibv_event_type type)
{
	return type == IBV_EVENT_COMM_EST || type == IBV_EVENT_SQ_DRAINED ||
	       type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

static void raise_at(const struct pair *pair, uint32_t host, uint32_t rail,
		     enum ibv_event_type type)
{
	const struct ha_comm *comm = host == 0 ? pair->send : pair->recv;

	if (!is_of_queue_pairs(type)) {
		sv_stepped_raise(host, rail, type);
		return;
	}
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (comm->paths[p] && (uint32_t)comm->paths[p]->nic->index == rail)
			assert_true(sv_stepped_raise_qp(host, rail,
							comm->paths[p]->qps[0].qp->qp_num, type));
}

/* At both hosts, and all that follows from each has happened, in no time. */
static void storm(struct pair *pair, uint32_t rail, enum ibv_event_type type)
{
	for (int i = 0; i < STORM; i++) {
		raise_at(pair, (uint32_t)i % 2, rail, type);
		pair_settle(pair);
	}
}

static void assert_costs_nothing(struct pair *pair, uint32_t rail, enum ibv_event_type type)
{
	uint64_t before = messages(pair);

	visits = 0;
	storm(pair, rail, type);
	if (visits != 0 || messages(pair) != before)
		fail_msg("%s on rail %u: %u visits, %llu messages", ibv_event_type_str(type), rail,
			 visits, (unsigned long long)(messages(pair) - before));
}

static const enum ibv_event_type of_no_use[] = {
    IBV_EVENT_COMM_EST,	  IBV_EVENT_SQ_DRAINED,	       IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_SM_CHANGE,  IBV_EVENT_CLIENT_REREGISTER, IBV_EVENT_PKEY_CHANGE,
    IBV_EVENT_LID_CHANGE, IBV_EVENT_GID_CHANGE,	       IBV_EVENT_PORT_ACTIVE,
};

/* Of the NICs that the connection uses, and of one that it does not. */
static void what_changes_nothing_costs_nothing(void **state)
{
	struct pair pair;

	(void)state;
	for (int infiniband = 0; infiniband < 2; infiniband++) {
		rails(&pair, 3, infiniband);
		for (size_t i = 0; i < sizeof(of_no_use) / sizeof(of_no_use[0]); i++)
			for (uint32_t rail = 0; rail < 3; rail++)
				assert_costs_nothing(&pair, rail, of_no_use[i]);
		transfer(&pair, 5000, 1);
		assert_int_equal(pair.recv->count.failovers, 0);
		pair_close(&pair);
	}
}

/* Addresses come and go beside the one in use, as where containers are started. */
static void a_gid_of_somebody_else_costs_nothing(void **state)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 172, [13] = 17}};
	struct pair pair;
	uint64_t before;

	(void)state;
	rails(&pair, 3, false);
	before = messages(&pair);
	visits = 0;
	for (int i = 0; i < STORM; i++) {
		gid.raw[14] = (uint8_t)(i / 256);
		gid.raw[15] = (uint8_t)i;
		sv_stepped_set_gid(0, (uint32_t)i % 3, 7, &gid);
		pair_settle(&pair);
	}
	assert_int_equal(visits, 0);
	assert_int_equal(messages(&pair), before);
	pair_close(&pair);
}

/* Which of three rails no path is on. */
static uint32_t idle_rail(const struct pair *pair)
{
	unsigned used = 0;

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if (pair->send->paths[p])
			used |= 1u << pair->send->paths[p]->nic->index;
	for (uint32_t rail = 0; rail < 3; rail++)
		if (!(used & 1u << rail))
			return rail;
	fail_msg("a path on each rail");
	return 0;
}

/* Whether the receiver takes the sender's port on a rail for up. */
static bool hears_it_up(const struct pair *pair, uint32_t rail)
{
	const struct ha_failover *fo = pair->recv->failover;
	char name[16];

	snprintf(name, sizeof(name), "sim%u", rail);
	for (unsigned i = 0; i < fo->peer_ports.count; i++)
		if (!strcmp(fo->peer_ports.offers[i].device, name))
			return fo->peer_ports_up & 1u << i;
	fail_msg("%s is not among the sender's ports", name);
	return false;
}

/* A port that goes down is told of once, at once, also if nothing runs on it. */
static void a_port_that_goes_down_is_told_once(void **state)
{
	struct pair pair;
	uint64_t sent;
	uint32_t rail;

	(void)state;
	rails(&pair, 3, false);
	rail = idle_rail(&pair);
	sent = pair.send->count.control_sent;
	sv_stepped_link(0, rail, false);
	pair_idle(&pair, 5);
	assert_int_equal(pair.send->count.control_sent, sent + 1);
	assert_false(hears_it_up(&pair, rail));
	for (int i = 0; i < 10; i++)
		sv_stepped_raise(0, rail, IBV_EVENT_PORT_ERR);
	pair_idle(&pair, 5);
	assert_int_equal(pair.send->count.control_sent, sent + 1);
	sv_stepped_link(0, rail, true);
	pair_idle(&pair, 5);
	assert_int_equal(pair.send->count.control_sent, sent + 2);
	assert_true(hears_it_up(&pair, rail));
	assert_int_equal(pair.recv->count.failovers, 0);
	pair_close(&pair);
}

/*
 * Of a switch each message is one that an answer waits for; each costs both ends a system call and
 * the peer's thread a wake-up, times the connections of the port. What it says of the ports it says
 * with these.
 */
static void a_port_that_carries_is_told_of_by_the_switch(void **state)
{
	/* Of the sender and of the receiver, by whose port it is. */
	static const uint64_t most[2][2] = {
	    {3, 2}, /* SUSPECT, FENCED, RESUMED; FENCE, RESUME */
	    {2, 2}, /* FENCED, RESUMED; FENCE, RESUME */
	};

	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		uint64_t sent[2];
		struct pair pair;
		uint32_t rail;

		rails(&pair, 2, false);
		rail = (uint32_t)ha_comm_path(pair.recv)->nic->index;
		sent[0] = pair.send->count.control_sent;
		sent[1] = pair.recv->count.control_sent;
		sv_stepped_link(host, rail, false);
		pair_idle(&pair, 5);
		assert_int_equal(pair.send->count.failovers + pair.recv->count.failovers, 2);
		sent[0] = pair.send->count.control_sent - sent[0];
		sent[1] = pair.recv->count.control_sent - sent[1];
		print_message("port down at host %u: %u and %u messages\n", host, (unsigned)sent[0],
			      (unsigned)sent[1]);
		assert_true(sent[0] <= most[host][0] && sent[1] <= most[host][1]);
		assert_true(host == 1 || !hears_it_up(&pair, rail));
		transfer(&pair, 5000, 1);
		pair_close(&pair);
	}
}

/*
 * Pairs that do not reach each other are left alone for longer and longer. A port that comes up is
 * a reason to try its own pairs at once, and no reason to try others.
 */
static void only_the_ports_own_pairs_are_tried_again(void **state)
{
	unsigned rebuilds;
	struct pair pair;

	(void)state;
	rails(&pair, 3, false);
	/* Whatever goes to or comes from rail 1 and 2 at the receiver is lost: no standby. */
	add_rule("drop host=1 rail=1");
	add_rule("drop host=1 rail=2");
	add_rule("drop host=0 rail=1");
	add_rule("drop host=0 rail=2");
	pair_idle(&pair, 60000);
	assert_int_equal(pair.recv->active, 0);
	rebuilds = (unsigned)pair.recv->count.rebuilds;
	for (int i = 0; i < 100; i++) {
		sv_stepped_raise(1, 0, IBV_EVENT_PORT_ACTIVE);
		sv_stepped_raise(1, 0, IBV_EVENT_GID_CHANGE);
		pair_idle(&pair, 10);
	}
	/* In a second of storm no more than the backoff of five lets through. */
	assert_in_range(pair.recv->count.rebuilds - rebuilds, 0, 6);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_changes_nothing_costs_nothing),
	    cmocka_unit_test(a_gid_of_somebody_else_costs_nothing),
	    cmocka_unit_test(a_port_that_goes_down_is_told_once),
	    cmocka_unit_test(a_port_that_carries_is_told_of_by_the_switch),
	    cmocka_unit_test(only_the_ports_own_pairs_are_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
