/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NIC that does not answer commands: a connection leaves it without its word, by the fence of the
 * other end and a packet's lifetime. In virtual time: a command is back when it says that it is.
 *
 * Such a NIC either does what it is told and says so late, or does nothing at all until the driver
 * gives up, and carries packets as before meanwhile.
 */
#include "harness.h"
#include "instance/instance.h"
#include "traffic.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/notes.h"
#include "failover/path_select.h"
#include "memory/mr.h"
#include "transport/failover_ops.h"

#include <stdio.h>
#include <string.h>

/* Going on without a NIC takes no longer: 25 ms until it is overdue, 20 ms for what is on its way.
 */
#define GOES_ON_MS 60

enum manner {
	SAYS_SO_LATE, /* the command is carried out, its answer takes long */
	DOES_NOTHING, /* the command takes long and fails */
};

/* ---- set-up ---------------------------------------------------------------------------------- */

/* From now on, queue pairs of this NIC that are to stop keep their command waiting. Returns the
 * rule. */
static int make_sick(uint32_t host, uint32_t rail, unsigned seconds, enum manner manner)
{
	char rule[200];

	if (manner == DOES_NOTHING) {
		snprintf(rule, sizeof(rule), "errno=ETIMEDOUT verb=err host=%u rail=%u", host,
			 rail);
		add_rule(rule);
	}
	snprintf(rule, sizeof(rule), "wait=%us verb=modify_qp host=%u rail=%u", seconds, host,
		 rail);
	return add_rule(rule);
}

static int set_up(void **state)
{
	(void)state;
	ha_command_took_ns = sv_stepped_waited_ns;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	ha_command_took_ns = NULL;
	return 0;
}

/* What is set in `pair` already holds. */
static void connect_rails(struct pair *pair, uint32_t n)
{
	pair->config.enable_backup = true;
	pair->fabric.rails = n;
	pair_open(pair);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	pair_connect(pair);
	pair_wait_standby(pair);
	assert_int_equal(pair->recv->active, 0);
}

static void rails(struct pair *pair, uint32_t n)
{
	pair_init(pair);
	connect_rails(pair, n);
}

static void two_rails(struct pair *pair)
{
	rails(pair, 2);
}

static bool is_sick(const struct pair *pair, uint32_t host, uint32_t rail)
{
	return atomic_load(&ha_instance_devices(pair->inst[host])->nics[rail].sick);
}

static bool both_active(const struct pair *pair)
{
	return pair->send->failover->state == HA_FO_ACTIVE &&
	       pair->recv->failover->state == HA_FO_ACTIVE && pair->send->active == 1 &&
	       pair->recv->active == 1;
}

/* A false alarm about the active path: the network is as good as before. */
static void alarm_at(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	ha_failover_trigger(comm, ha_comm_path(comm), HA_REASON_OPERATOR, "a test");
	ha_token_release(comm);
}

/* Both ends work for a while; messages are exchanged as far as they can be. */
static void work(struct traffic *t, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns) {
		applications(t);
		pair_advance(t->pair);
	}
}

static void print_slots(const struct pair *pair)
{
	for (unsigned i = 0; i < 2 * HA_MAX_PATHS; i++) {
		const struct ha_comm *comm = i % 2 ? pair->recv : pair->send;
		const struct ha_slot *slot = &comm->failover->slots[i / 2];

		if (slot->newest_gen == 0)
			continue;
		print_error("%s, %s on path %u: path %u (port %u, peer %u) is %s; wanted %u, "
			    "fenced %u, yielded %u, "
			    "settled %u; peer: %u, %u\n",
			    i % 2 ? "receiver" : "sender",
			    ha_failover_state_name(comm->failover->state), comm->active, i / 2,
			    slot->port, slot->peer_port, ha_slot_state_name(slot->state),
			    slot->want_gen, slot->fenced_gen, slot->yielded_gen, slot->settled_gen,
			    slot->peer_fenced_gen, slot->peer_yielded_gen);
	}
}

static void give_up(const struct pair *pair, unsigned limit_ms)
{
	print_slots(pair);
	fail_msg("nobody goes on within %u ms", limit_ms);
}

/* Milliseconds until both ends go on over the other path. */
static double time_to_go_on(struct traffic *t, unsigned limit_ms)
{
	uint64_t since_ns = sv_stepped_now();

	while (!both_active(t->pair)) {
		applications(t);
		pair_advance(t->pair);
		if (sv_stepped_now() > since_ns + limit_ms * HA_NS_PER_MS)
			give_up(t->pair, limit_ms);
	}
	return (double)(sv_stepped_now() - since_ns) / (double)HA_NS_PER_MS;
}

/* Some messages are through and some are under way. */
static void begin_traffic(struct traffic *t, struct pair *pair, unsigned seed)
{
	traffic_init(t, pair, MESSAGES, seed);
	for (unsigned i = 0; i < 40 + seed; i++) {
		applications(t);
		pair_advance(pair);
	}
	assert_true(t->received > 0 && !all_done(t));
}

/* ---- one end --------------------------------------------------------------------------------- */

/* Either end's NIC; either way of being sick; at many moments of the traffic. */
static void one_sick_nic_holds_nobody_up(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 40; i++) {
		uint32_t host = i % 2;
		struct traffic t;
		struct pair pair;
		int rule;

		two_rails(&pair);
		begin_traffic(&t, &pair, i / 4);
		rule = make_sick(host, 0, 60, i / 2 % 2 ? DOES_NOTHING : SAYS_SO_LATE);
		sv_stepped_link(host, 0, false);
		(void)time_to_go_on(&t, GOES_ON_MS);
		assert_true(fired(rule) > 0);
		finish(&t); /* every byte, once */
		assert_int_equal(pair.send->count.failovers, 1);
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_idle(&pair, 1500);
		assert_true(is_sick(&pair, host, 0));
		assert_false(is_sick(&pair, host, 1) || is_sick(&pair, 1 - host, 0));
		transfer(&pair, 50000, i);
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_close(&pair);
	}
}

static uint32_t confirmed(const struct ha_comm *comm)
{
	return comm->failover->slots[0].fenced_gen;
}

/* Meanwhile the path is not built again: what is left of it may still work. */
static void a_late_word_frees_the_slot(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t host = i % 2;
		const struct ha_comm *comm;
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		comm = host ? pair.recv : pair.send;
		begin_traffic(&t, &pair, i);
		make_sick(host, 0, 5, i / 2 ? DOES_NOTHING : SAYS_SO_LATE);
		sv_stepped_link(host, 0, false);
		(void)time_to_go_on(&t, GOES_ON_MS);
		sv_stepped_fault_remove(-1);
		sv_stepped_link(host, 0, true);
		finish(&t);
		pair_idle(&pair, 3000);
		assert_true(is_sick(&pair, host, 0));
		assert_int_equal(confirmed(comm), 0);
		assert_false(pair_has_standby(&pair));
		transfer(&pair, 10000, 1);
		pair_idle(&pair, 5000);
		assert_false(is_sick(&pair, host, 0));
		assert_true(confirmed(comm) > 0);
		pair_wait_standby(&pair);
		assert_int_equal(pair.recv->count.failovers, 1);
		/* And it is good for the next failure. */
		sv_stepped_link(host, 1, false);
		transfer(&pair, 50000, 2);
		assert_int_equal(ha_comm_path(pair.recv)->port->index, 0);
		pair_close(&pair);
	}
}

/* ---- a command that is late, and fails ------------------------------------------------------- */

static void expect_no_error(const struct pair *pair)
{
	if (ha_comm_error(pair->send) || ha_comm_error(pair->recv))
		fail_msg("an error: %s", pair->log);
}

/* What becomes of a NIC that has refused to destroy a queue pair. */
enum outcome {
	REFUSES_ONCE,
	LETS_GO_LATER,
	IS_TAKEN_AWAY, /* while it refuses */
	OUTCOMES,
};

static const struct ha_path *left_behind(const struct ha_comm *comm)
{
	return comm->is_send ? comm->failover->slots[0].yielded : comm->paths[0];
}

/* The path is neither fenced nor forgotten, and is asked for now and then. */
static void asks_in_peace(struct pair *pair, const struct ha_path *left, int busy)
{
	const struct ha_comm *comm = left->comm;
	uint64_t asked = fired(busy);

	pair_idle(pair, 1000);
	expect_no_error(pair);
	assert_in_range(fired(busy) - asked, 5, 60);
	transfer(pair, 50000, 1);
	assert_true(both_active(pair));
	assert_int_equal(confirmed(comm), 0);
	assert_ptr_equal(left_behind(comm), left); /* closing and deregMr wait for it */
	assert_false(ha_path_drained(left));
}

/* The path's slot is free again, and good for the next failure. */
static void is_gone_for_good(struct pair *pair, uint32_t host)
{
	const struct ha_comm *comm = host ? pair->recv : pair->send;

	for (unsigned ms = 0; ms < 1000 && confirmed(comm) == 0; ms += 10)
		pair_idle(pair, 10);
	assert_true(confirmed(comm) > 0);
	expect_no_error(pair);
	pair_wait_standby(pair);
	assert_int_equal(pair->recv->count.failovers, 1);
	sv_stepped_link(host, 1, false);
	transfer(pair, 50000, 2);
	assert_int_equal(ha_comm_path(host ? pair->recv : pair->send)->port->index, 0);
}

/*
 * One end goes on by the other one's fence, and only then its NIC refuses to let go of the queue
 * pair: one that does not drain, or that it did not even stop.
 */
static void refuse_late(uint32_t host, enum outcome outcome, bool stops, unsigned seed)
{
	const struct ha_path *left;
	struct ha_comm *comm;
	struct traffic t;
	struct pair pair;
	int busy, slow;
	char rule[80];

	two_rails(&pair);
	comm = host ? pair.recv : pair.send;
	begin_traffic(&t, &pair, seed);
	left = comm->paths[0];
	snprintf(rule, sizeof(rule), "errno=EBUSY verb=destroy_qp host=%u rail=0%s", host,
		 outcome == REFUSES_ONCE ? " count=1" : "");
	busy = add_rule(rule);
	if (stops) {
		assert_true(sv_stepped_wedge(host, 0, left->qps[0].qp->qp_num, true));
		snprintf(rule, sizeof(rule), "wait=5s verb=destroy_qp host=%u rail=0", host);
		slow = add_rule(rule);
	} else {
		slow = make_sick(host, 0, 5, DOES_NOTHING);
	}
	alarm_at(comm);
	(void)time_to_go_on(&t, 80);
	finish(&t); /* every byte, once */
	assert_ptr_equal(left_behind(comm), left);
	assert_true(ha_path_away(left));
	pair_idle(&pair, 6000); /* the command is back */
	expect_no_error(&pair);
	assert_true(fired(slow) > 0 && fired(busy) > 0);
	sv_stepped_fault_remove(slow); /* from now on it answers at once */
	pair_idle(&pair, 6000);
	if (outcome != REFUSES_ONCE)
		asks_in_peace(&pair, left, busy);
	if (outcome == IS_TAKEN_AWAY) {
		sv_stepped_disassociate(host, 0, HA_NS_PER_MS);
		pair_idle(&pair, 200);
		assert_true(confirmed(comm) > 0);
		expect_no_error(&pair);
		transfer(&pair, 50000, 2);
	} else {
		if (outcome == LETS_GO_LATER)
			sv_stepped_fault_remove(-1);
		is_gone_for_good(&pair, host);
	}
	pair_close(&pair);
}

static void a_refusal_that_comes_after_traffic_went_on_fails_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4 * OUTCOMES; i++)
		refuse_late(i / 2 % 2, (enum outcome)(i / 4), i % 2, i % 5);
}

/* ---- both ends ------------------------------------------------------------------------------- */

static void both_sick(struct traffic *t, struct pair *pair, unsigned s0, unsigned s1)
{
	two_rails(pair);
	begin_traffic(t, pair, 3);
	make_sick(0, 0, s0, DOES_NOTHING);
	make_sick(1, 0, s1, DOES_NOTHING);
	alarm_at(pair->send);
}

/* Nothing says that the old path has stopped. Whichever is back first will do. */
static void of_two_sick_nics_one_must_come_back(void **state)
{
	(void)state;
	for (int first = 0; first < 2; first++) {
		int received, released;
		struct traffic t;
		struct pair pair;

		both_sick(&t, &pair, first ? 60 : 4, first ? 4 : 60);
		work(&t, 20);
		received = t.received;
		released = t.released;
		for (int i = 0; i < 76; i++) {
			work(&t, 50);
			assert_int_equal(pair.send->failover->state, HA_FO_FENCED);
			assert_int_equal(pair.recv->failover->state, HA_FO_FENCING);
			assert_int_equal(t.released, released);
		}
		assert_in_range(t.received, received, MESSAGES - 1);
		sv_stepped_fault_remove(-1);
		(void)time_to_go_on(&t, 400);
		finish(&t);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		pair_close(&pair);
	}
}

/* A sender that relies on the peer's fence takes no completion any more. */
static void what_is_acknowledged_late_completes_with_resume(void **state)
{
	struct in_flight message;
	struct pair pair;
	char rule[100];
	bool done;
	int held;

	(void)state;
	two_rails(&pair);
	make_sick(0, 0, 4, DOES_NOTHING);
	make_sick(1, 0, 60, DOES_NOTHING);
	snprintf(rule, sizeof(rule), "hold host=1 rail=0 op=ack until=%lluns",
		 (unsigned long long)(sv_stepped_now() + 45 * HA_NS_PER_MS));
	held = add_rule(rule);
	message = pair_start(&pair);
	pair_pass(&pair, 3);
	assert_int_equal(ha_test(message.recv, &done, NULL), HA_OK);
	assert_true(done && fired(held) > 0);
	alarm_at(pair.send);
	for (int i = 0; i < 100; i++) { /* yielded at 28 ms, acknowledged at 45 */
		pair_pass(&pair, 5);
		assert_int_equal(ha_test(message.send, &done, NULL), HA_OK);
		assert_false(done);
	}
	assert_true(pair.send->failover->slots[0].yielded_gen > 0);
	assert_int_equal(pair_finish(&pair, message.send, NULL), HA_OK);
	assert_int_equal(pair.send->failover->state, HA_FO_ACTIVE);
	pair_close(&pair);
}

/* ---- an end in the middle of traffic -------------------------------------------------------- */

/* One refuses to let go of what does not even stop, the other does not answer. */
static void never_fences(const struct pair *pair, uint32_t host, bool refuses)
{
	const struct ha_comm *comm = host ? pair->recv : pair->send;
	char rule[80];

	if (!refuses) {
		make_sick(host, 0, 600, DOES_NOTHING);
		return;
	}
	snprintf(rule, sizeof(rule), "errno=EBUSY verb=destroy_qp host=%u rail=0", host);
	add_rule(rule);
	assert_true(sv_stepped_wedge(host, 0, comm->paths[0]->qps[0].qp->qp_num, true));
}

/* What NCCL does where a job ends early: both ends give their memory back, and close. */
static void give_up_both(struct pair *pair)
{
	assert_true(pair->send->outstanding > 0 && pair->recv->outstanding > 0);
	(void)ha_comm_fail(pair->send, HA_ERR_USAGE, "a test gives up");
	(void)ha_comm_fail(pair->recv, HA_ERR_USAGE, "a test gives up");
}

static void close_end(struct pair *pair, uint32_t host)
{
	if (host)
		ha_close_recv(pair->recv);
	else
		ha_close_send(pair->send);
	*(host ? &pair->recv : &pair->send) = NULL;
}

static unsigned closing_waited(void)
{
	unsigned n = 0;

	for (const char *at = captured_log; (at = strstr(at, "closing waits")); at++)
		n++;
	return n;
}

/* Whether deregistering and closing would wait for it. */
static bool is_dangerous(const struct ha_comm *comm)
{
	const struct ha_path *left = comm->ops->left(comm, 0);

	return (left && !ha_path_harmless(left)) ||
	       (comm->paths[0] && !ha_path_harmless(comm->paths[0]));
}

/* Within a packet's lifetime of the peer's fence, and not of the NIC's own, which never comes. */
static void the_peers_fence_is_enough_to_give_memory_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		uint32_t host = i % 2;
		const struct ha_comm *sick;
		struct traffic t;
		struct pair pair;

		two_rails(&pair);
		sick = host ? pair.recv : pair.send;
		begin_traffic(&t, &pair, i / 4);
		never_fences(&pair, host, i / 2 % 2);
		give_up_both(&pair);
		assert_true(is_dangerous(sick));
		for (unsigned ms = 0; ms < GOES_ON_MS && is_dangerous(sick); ms++)
			pair_idle(&pair, 1);
		assert_false(is_dangerous(sick));
		(void)sv_stepped_waited_ns();
		ha_dereg_mr(host ? pair.recv : pair.send, host ? pair.to.mr : pair.from.mr);
		*(host ? &pair.to.mr : &pair.from.mr) = NULL;
		assert_int_equal(sv_stepped_waited_ns(), 0); /* no verb of it was waited for */
		close_end(&pair, host);
		assert_int_equal(closing_waited(), 0);
		sv_stepped_fault_remove(-1);
		pair_close(&pair);
	}
}

static void where_neither_end_fences_memory_is_not_given_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct traffic t;
		struct pair pair;
		char rule[100];
		int held;

		two_rails(&pair);
		begin_traffic(&t, &pair, i);
		/* Or the sender has nothing in flight by then. */
		snprintf(rule, sizeof(rule), "hold host=1 rail=0 op=ack until=%lluns",
			 (unsigned long long)(sv_stepped_now() + 60 * HA_NS_PER_S));
		held = add_rule(rule);
		never_fences(&pair, 0, i % 2);
		never_fences(&pair, 1, i % 2);
		give_up_both(&pair);
		pair_idle(&pair, 3000);
		assert_true(is_dangerous(pair.send) && is_dangerous(pair.recv));
		assert_true(fired(held) > 0 || i % 2);
		assert_true(pair.send->outstanding > 0 && pair.recv->outstanding > 0);
		close_end(&pair, 0);
		assert_int_equal(closing_waited(), 1);
		close_end(&pair, 1);
		assert_int_equal(closing_waited(), 2);
		sv_stepped_fault_remove(-1);
		pair_close(&pair);
	}
}

/* ---- packets that come late ------------------------------------------------------------------ */

/*
 * The receiver's NIC takes whatever comes, and what the sender sent before its fence comes 15 ms
 * later: to a buffer that is the application's again, if it does not wait for that long.
 */
static void what_is_under_way_is_waited_for(void **state)
{
	unsigned late = 0;

	(void)state;
	for (unsigned i = 0; i < 24; i++) {
		struct traffic t;
		struct pair pair;
		char rule[100];
		int held;

		two_rails(&pair);
		begin_traffic(&t, &pair, 0);
		make_sick(1, 0, 60, DOES_NOTHING);
		snprintf(rule, sizeof(rule), "hold host=0 rail=0 op=write until=%lluns",
			 (unsigned long long)(sv_stepped_now() + 15 * HA_NS_PER_MS));
		held = add_rule(rule);
		for (unsigned k = 0; k < 2 * i; k++) {
			applications(&t);
			sv_stepped_step();
		}
		alarm_at(i % 2 ? pair.recv : pair.send);
		assert_true(time_to_go_on(&t, GOES_ON_MS) >= 20);
		late += fired(held) > 0;
		finish(&t);
		pair_close(&pair);
	}
	assert_true(late > 12);
}

/* ---- paths that cannot be built -------------------------------------------------------------- */

/* The other NIC of one end makes no queue pair, or no address: nothing else suffers. */
static void a_standby_that_cannot_be_built_disturbs_nobody(void **state)
{
	static const char *const verbs[] = {"create_qp", "rtr"};

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		uint32_t host = i % 2;
		struct pair pair;
		char rule[100];
		int id;

		two_rails(&pair);
		sv_stepped_link(host, 1, false);
		pair_pass(&pair, 100);
		snprintf(rule, sizeof(rule), "wait=60s verb=%s host=%u rail=1", verbs[i / 2], host);
		id = add_rule(rule);
		sv_stepped_link(host, 1, true);
		for (uint32_t k = 0; k < 40; k++) {
			uint64_t since_ns = sv_stepped_now();

			transfer(&pair, 20000, k);
			assert_in_range(sv_stepped_now() - since_ns, 0, 5 * HA_NS_PER_MS);
			pair_pass(&pair, 100);
		}
		assert_true(fired(id) > 0);
		assert_false(pair_has_standby(&pair));
		assert_false(ha_path_select_has_standby(pair.recv));
		assert_int_equal(pair.recv->count.failovers, 0);
		assert_int_equal(is_sick(&pair, host, 1), i / 2 == 0);
		pair_close(&pair);
	}
}

/* A third rail is there. */
static void another_pair_of_ports_is_tried(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;
		char rule[100];
		int id;

		rails(&pair, 3);
		sv_stepped_link(host, 1, false);
		sv_stepped_link(host, 2, false);
		pair_pass(&pair, 100);
		snprintf(rule, sizeof(rule), "wait=60s verb=create_qp host=%u rail=1", host);
		id = add_rule(rule);
		sv_stepped_link(host, 1, true);
		pair_pass(&pair, 300);
		sv_stepped_link(host, 2, true);
		for (int i = 0; i < 50 && !pair_has_standby(&pair); i++)
			pair_pass(&pair, 100);
		assert_true(fired(id) > 0);
		assert_true(is_sick(&pair, host, 1));
		assert_true(pair_has_standby(&pair));
		sv_stepped_link(host, 0, false);
		transfer(&pair, 50000, 1);
		assert_int_equal(pair.recv->count.failovers, 1);
		pair_close(&pair);
	}
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Whoever called, no verb has kept it: only commands may wait, and what they took is counted. */
static void nobody_was_kept(const char *who)
{
	uint64_t waited_ns = sv_stepped_waited_ns();

	if (waited_ns != 0)
		fail_msg("%s was kept for %llu ms", who,
			 (unsigned long long)(waited_ns / HA_NS_PER_MS));
}

static void visit_both(struct pair *pair)
{
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
	for (int host = 0; host < 2; host++) {
		ha_instance_progress(pair->inst[host]);
		nobody_was_kept("the background thread");
	}
}

/* A message to its end, with nobody kept. How long that takes. */
static unsigned pass_unkept(struct pair *pair, uint32_t seed)
{
	const size_t offset = 8192, size = 50000;
	struct ha_request *recv, *send = NULL;
	const int tag = (int)seed;
	bool done[2] = {false, false};
	unsigned ms = 0;

	fill(pair->from.bytes, size, seed);
	memset(pair->to.bytes, CANARY, offset + size + 64);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	nobody_was_kept("irecv");
	for (; ms < 30000 && !(done[0] && done[1]); ms++) {
		if (!send)
			send = try_send(pair, 0, size, tag);
		nobody_was_kept("isend");
		if (send && !done[0])
			assert_int_equal(ha_test(send, &done[0], NULL), HA_OK);
		if (!done[1])
			assert_int_equal(ha_test(recv, &done[1], NULL), HA_OK);
		nobody_was_kept("test");
		visit_both(pair);
	}
	assert_true(done[0] && done[1]);
	assert_true(filled(pair->to.bytes + offset, size, seed));
	return ms;
}

/* What it says of a queue pair that is stuck is what is known, and costs no question. */
static void a_stuck_queue_pair_is_not_asked_for_its_state(void **state)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct pair pair;
	int id;

	(void)state;
	pair_init(&pair);
	pair.config.rto_ms = 300; /* the hardware gives up after half a second */
	connect_rails(&pair, 2);
	id = add_rule("wait=20s verb=query_qp");
	assert_true(sv_stepped_wedge(0, 0, pair.send->paths[0]->qps[0].qp->qp_num, false));
	assert_in_range(pass_unkept(&pair, 3), 300, 500);
	assert_logged("no completion in time");
	assert_logged("is in RTS)");
	assert_int_equal(fired(id), 0);
	assert_int_equal(ibv_query_qp(pair.send->paths[1]->qps[0].qp, &attr, IBV_QP_STATE, &init),
			 0);
	assert_int_equal(fired(id), 1); /* so it would have been kept */
	assert_int_equal(sv_stepped_waited_ns(), 20 * HA_NS_PER_S);
	pair_close(&pair);
}

/* The memory of one end: what comes now meets the rules that there are now. */
static void register_anew(struct pair *pair, uint32_t host)
{
	struct memory *memory = host == 0 ? &pair->from : &pair->to;
	struct ha_comm *comm = host == 0 ? pair->send : pair->recv;

	ha_dereg_mr(comm, memory->mr);
	assert_int_equal(ha_reg_mr(comm, memory->bytes, MEM_SIZE, HA_MEM_HOST, 0, -1, &memory->mr),
			 HA_OK);
}

/* Memory that is refused there raises the question whether the device lives: its threads ask. */
static void a_device_that_refuses_memory_is_asked_by_a_command(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;
		int refused, asked, reserve;
		char rule[100];

		rails(&pair, 3);
		reserve = (host == 0 ? pair.send : pair.recv)->paths[1]->port->index;
		snprintf(rule, sizeof(rule), "errno=ENOMEM verb=reg_mr host=%u rail=%d", host,
			 reserve);
		refused = add_rule(rule);
		snprintf(rule, sizeof(rule), "wait=20s verb=query_port host=%u rail=%d", host,
			 reserve);
		asked = add_rule(rule);
		register_anew(&pair, host);
		sv_stepped_link(host, 0, false);
		assert_true(pass_unkept(&pair, 3) < 3000);
		assert_true(fired(refused) > 0);
		assert_true(fired(asked) > 0);
		assert_int_not_equal(
		    (host == 0 ? pair.send : pair.recv)->paths[pair.recv->active]->port->index,
		    reserve);
		assert_int_equal(ha_comm_error(pair.send), HA_OK);
		assert_int_equal(ha_comm_error(pair.recv), HA_OK);
		pair_close(&pair);
	}
}

#define SICK_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    SICK_TEST(one_sick_nic_holds_nobody_up),
	    SICK_TEST(a_late_word_frees_the_slot),
	    SICK_TEST(a_refusal_that_comes_after_traffic_went_on_fails_nothing),
	    SICK_TEST(of_two_sick_nics_one_must_come_back),
	    SICK_TEST(what_is_acknowledged_late_completes_with_resume),
	    SICK_TEST(the_peers_fence_is_enough_to_give_memory_back),
	    SICK_TEST(where_neither_end_fences_memory_is_not_given_back),
	    SICK_TEST(what_is_under_way_is_waited_for),
	    SICK_TEST(a_standby_that_cannot_be_built_disturbs_nobody),
	    SICK_TEST(another_pair_of_ports_is_tried),
	    SICK_TEST(a_stuck_queue_pair_is_not_asked_for_its_state),
	    SICK_TEST(a_device_that_refuses_memory_is_asked_by_a_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
