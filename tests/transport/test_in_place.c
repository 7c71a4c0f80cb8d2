/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue pair that breaks on a port that is well: the connection goes on over fresh queue pairs on
 * the same ports, and costs no change of port. What fails there, takes too long or comes again and
 * again goes to the standby. On a virtual clock, in turns of the background threads.
 */
#include "harness.h"

#include "admin/drain.h"
#include "base/clock.h"
#include "base/log.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "instance/instance.h"

#include <stdio.h>
#include <string.h>

/* Between two turns: what a wake-up or the way over a socket may take. */
#define TURN_NS (10 * HA_NS_PER_US)

/* The shortest tick: no step of a repair waits for one. */
#define TICK_NS HA_NS_PER_MS

/* What is waited for a repair that does not come, and a turn of a tick. */
#define REPAIR_TIMEOUT_NS (20 * HA_NS_PER_MS)

static void turn(struct pair *pair)
{
	for (uint32_t host = 0; host < 2; host++) {
		sv_stepped_set_host(host);
		(void)ha_progress_turn(pair->inst[host]->progress);
	}
	sv_stepped_run(sv_stepped_now() + TURN_NS);
}

static void turns(struct pair *pair, unsigned ms)
{
	uint64_t until_ns = sv_stepped_now() + ms * HA_NS_PER_MS;

	while (sv_stepped_now() < until_ns)
		turn(pair);
}

/* A connection whose background threads have found the tick of one that is idle. */
static void up(struct pair *pair, uint32_t rails)
{
	pair->config.enable_backup = true;
	pair->fabric.rails = rails;
	pair_up(pair);
	if (rails > 1)
		pair_wait_standby(pair);
	turns(pair, 100);
	transfer(pair, 5000, 1);
}

static void up_on(struct pair *pair, uint32_t rails)
{
	pair_init(pair);
	up(pair, rails);
}

static struct ha_comm *end(struct pair *pair, uint32_t host)
{
	return host == 0 ? pair->send : pair->recv;
}

static uint32_t rail_of(const struct ha_comm *comm)
{
	return (uint32_t)ha_comm_path(comm)->nic->index;
}

static void assert_on_rail(struct pair *pair, uint32_t rail)
{
	if (rail_of(pair->send) != rail || rail_of(pair->recv) != rail)
		fail_msg("on rail %u and %u, not %u; log:\n%s", rail_of(pair->send),
			 rail_of(pair->recv), rail, captured_log);
}

static bool goes_on(const struct ha_comm *comm, uint32_t epoch)
{
	return comm->failover->epoch == epoch && comm->failover->state == HA_FO_ACTIVE &&
	       (comm->is_send || comm->failover->resumed);
}

/* From now until traffic may flow in `epoch` at both ends. */
static uint64_t time_to_go_on(struct pair *pair, uint32_t epoch)
{
	uint64_t begun_ns = sv_stepped_now();

	while (!goes_on(pair->send, epoch) || !goes_on(pair->recv, epoch)) {
		if (sv_stepped_now() - begun_ns > HA_NS_PER_S)
			fail_msg("no epoch %u after a second; log:\n%s", epoch, captured_log);
		turn(pair);
	}
	return sv_stepped_now() - begun_ns;
}

/* The queue pair that one end uses is in ERR, as its device says by an event. */
static void break_queue_pair(struct pair *pair, uint32_t host)
{
	struct ibv_qp *qp = ha_comm_path(end(pair, host))->qps[0].qp;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	assert_true(
	    sv_stepped_raise_qp(host, rail_of(end(pair, host)), qp->qp_num, IBV_EVENT_QP_FATAL));
}

/* ---- repaired ------------------------------------------------------------------------------- */

static void an_event_is_repaired(uint32_t rails, uint32_t host, enum ha_completion_mode mode)
{
	uint32_t qp_num[2];
	struct pair pair;
	uint64_t took_ns;

	pair_init(&pair);
	pair.config.completion = mode;
	up(&pair, rails);
	for (uint32_t h = 0; h < 2; h++)
		qp_num[h] = ha_comm_path(end(&pair, h))->qps[0].qp->qp_num;
	break_queue_pair(&pair, host);
	took_ns = time_to_go_on(&pair, 2);
	print_message("%u rail(s), host %u: %.0f us\n", rails, host, (double)took_ns / 1e3);
	assert_true(took_ns < TICK_NS / 2);
	assert_on_rail(&pair, 0);
	for (uint32_t h = 0; h < 2; h++)
		assert_int_not_equal(ha_comm_path(end(&pair, h))->qps[0].qp->qp_num, qp_num[h]);
	assert_int_equal(pair.send->count.failovers, 1);
	transfer(&pair, 20000, 2);
	pair_close(&pair);
}

static void a_queue_pair_that_breaks_is_replaced_on_its_own_ports(void **state)
{
	(void)state;
	for (uint32_t rails = 1; rails <= 2; rails++)
		for (uint32_t host = 0; host < 2; host++) {
			an_event_is_repaired(rails, host, HA_COMPLETION_RC);
			an_event_is_repaired(rails, host, HA_COMPLETION_E2E);
		}
}

/* Messages are under way: each arrives once, into a buffer that is looked at with what is around.
 */
static void traffic_is_replayed_in_place(const char *rule, uint32_t rails,
					 enum ha_completion_mode mode)
{
	struct pair pair;
	int id;

	pair_init(&pair);
	pair.config.completion = mode;
	up(&pair, rails);
	id = add_rule(rule);
	transfer(&pair, 60000, 3);
	assert_int_equal(fired(id), 1);
	transfer(&pair, 100, 4);
	pair_idle(&pair, 5);
	if (pair.recv->count.failovers != 1 || pair.send->count.failovers != 1)
		fail_msg("%s, %u rail(s): %llu failovers", rule, rails,
			 (unsigned long long)pair.recv->count.failovers);
	assert_on_rail(&pair, 0);
	pair_close(&pair);
}

static void what_was_under_way_is_replayed_once(void **state)
{
	static const char *const rules[] = {
	    "err host=0 op=write minlen=1000 nth=3",
	    "err dir=rx host=1 op=write minlen=1000 nth=3",
	    "err host=1 op=write nth=1",
	    "err dir=rx host=0 op=write nth=1",
	    "wc=RETRY_EXC_ERR host=0 op=write minlen=1000 nth=1",
	    "wc=WR_FLUSH_ERR host=0 op=write minlen=1000 nth=1 sent=0",
	    "wc=LOC_QP_OP_ERR host=0 op=write minlen=1000 nth=1",
	    "wc=REM_OP_ERR host=0 op=write minlen=1000 nth=1 sent=0",
	    "wc=RETRY_EXC_ERR host=1 op=write nth=1",
	    "wc=WR_FLUSH_ERR host=1 op=write nth=1 sent=0",
	    "wc=WR_FLUSH_ERR host=1 op=recv nth=1",
	    "errno=ENOMEM verb=post_send host=1 rail=0 nth=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		for (uint32_t rails = 1; rails <= 2; rails++) {
			traffic_is_replayed_in_place(rules[i], rails, HA_COMPLETION_RC);
			traffic_is_replayed_in_place(rules[i], rails, HA_COMPLETION_E2E);
		}
}

/* Commands that take as long as a NIC's. */
static void slow_commands(void)
{
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_command_took_ns = sv_stepped_waited_ns;
	(void)add_rule("wait=200us verb=modify_qp");
	(void)add_rule("wait=1ms verb=create_qp");
	(void)add_rule("wait=1ms verb=reg_mr");
}

/* Beside a path that is ready, which is what fresh queue pairs that are kept ready would cost:
 * docs/performance.md has both. */
static void takes_at_most(bool in_place, bool slow, uint64_t limit_ns)
{
	struct pair pair;
	uint64_t took_ns;

	up_on(&pair, 2);
	if (slow)
		slow_commands();
	if (in_place)
		break_queue_pair(&pair, 0);
	else
		sv_stepped_link(0, 0, false);
	took_ns = time_to_go_on(&pair, 2);
	print_message("%s, %s: %.2f ms\n", in_place ? "in place" : "to a path that is ready",
		      slow ? "commands of a NIC" : "commands that take no time",
		      (double)took_ns / 1e6);
	assert_on_rail(&pair, in_place ? 0 : 1);
	assert_true(took_ns <= limit_ns);
	transfer(&pair, 5000, 2);
	pair_close(&pair);
	ha_command_took_ns = NULL;
}

static void a_repair_takes_what_its_commands_take(void **state)
{
	(void)state;
	takes_at_most(false, false, 3 * TURN_NS);
	takes_at_most(true, false, 7 * TURN_NS); /* the sender makes and connects in one */
	takes_at_most(false, true, 230 * HA_NS_PER_US);
	takes_at_most(true, true, 5270 * HA_NS_PER_US);
}

/* Its fence lasts, and so the path keeps its place. */
static void lose_standby(struct pair *pair, unsigned path)
{
	const uint32_t rail = (uint32_t)pair->recv->paths[path]->nic->index;
	char rule[80];

	snprintf(rule, sizeof(rule), "wait=2s verb=modify_qp host=1 rail=%u", rail);
	(void)add_rule(rule);
	sv_stepped_link(1, rail, false);
	turns(pair, 50); /* the sender's fence is enough by then */
	pair_wait_standby(pair);
}

/* Fresh queue pairs can only take the place of those that break. */
static void up_without_another_place(struct pair *pair)
{
	up_on(pair, HA_MAX_PATHS);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_command_took_ns = sv_stepped_waited_ns;
	for (unsigned path = 1; path < HA_MAX_PATHS - 1; path++)
		lose_standby(pair, path);
	transfer(pair, 5000, 2);
}

static void close_again(struct pair *pair)
{
	assert_int_equal(pair->recv->active, 0);
	assert_int_equal(ha_comm_path(pair->recv)->generation, 2);
	transfer(pair, 5000, 3);
	pair_close(pair);
	ha_command_took_ns = NULL;
}

/* The sender still fences them when it is asked for its own: it is asked again as soon as that is
 * done. */
static void takes_as_long_as_the_senders_fence(uint32_t host, unsigned fence_us)
{
	struct pair pair;
	uint64_t took_ns;
	char rule[80];
	int id;

	up_without_another_place(&pair);
	break_queue_pair(&pair, host);
	snprintf(rule, sizeof(rule), "wait=%uus verb=modify_qp host=0 rail=0 nth=1", fence_us);
	id = add_rule(rule);
	took_ns = time_to_go_on(&pair, 2);
	print_message("a fence of %u us, host %u: %.2f ms\n", fence_us, host,
		      (double)took_ns / 1e6);
	assert_int_equal(fired(id), 1);
	assert_true(took_ns <= fence_us * HA_NS_PER_US + 10 * TURN_NS);
	close_again(&pair);
}

static unsigned connecting(struct pair *pair)
{
	for (;;) {
		for (unsigned p = 0; p < HA_MAX_PATHS; p++)
			if (pair->recv->failover->slots[p].state == HA_SLOT_CONNECTING)
				return p;
		turn(pair);
	}
}

/* The answer may come with what made it ask once more: a thread writes by then what it would say.
 */
static void an_end_that_is_being_connected_is_not_asked_for_once_more(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 2);
	sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
	ha_command_took_ns = sv_stepped_waited_ns;
	(void)add_rule("wait=1ms verb=modify_qp host=1 rail=0");
	break_queue_pair(&pair, 0);
	ha_say(pair.recv, ha_say_of(HA_SAY_REBUILD, connecting(&pair)));
	captured_length = 0;
	captured_log[0] = '\0';
	ha_log_set_debug(2);
	turn(&pair);
	ha_log_set_debug(0);
	assert_non_null(strstr(captured_log, "recv"));
	assert_null(strstr(captured_log, "says REBUILD"));
	(void)time_to_go_on(&pair, 2);
	assert_on_rail(&pair, 0);
	transfer(&pair, 5000, 2);
	pair_close(&pair);
	ha_command_took_ns = NULL;
}

static void a_sender_that_fences_for_longer_is_asked_again_at_once(void **state)
{
	(void)state;
	for (unsigned fence_us = 1; fence_us <= 1000; fence_us += 37)
		for (uint32_t host = 0; host < 2; host++)
			takes_as_long_as_the_senders_fence(host, fence_us);
}

/* ---- left after all ------------------------------------------------------------------------- */

/* A port that breaks its queue pairs again and again is sick. */
static void a_port_that_breaks_again_and_again_is_left(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 2);
	for (uint32_t n = 1; n <= HA_REPAIR_MOST + 1; n++) {
		transfer(&pair, 5000, n);
		break_queue_pair(&pair, n % 2);
		(void)time_to_go_on(&pair, n + 1);
		assert_on_rail(&pair, n <= HA_REPAIR_MOST ? 0 : 1);
	}
	pair_close(&pair);
}

/* Now and then is no sickness. */
static void a_port_that_breaks_now_and_then_is_kept(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 2);
	for (uint32_t n = 1; n <= 3 * HA_REPAIR_MOST; n++) {
		transfer(&pair, 5000, n);
		break_queue_pair(&pair, n % 2);
		(void)time_to_go_on(&pair, n + 1);
		assert_on_rail(&pair, 0);
		pair_pass(&pair, 10000 / HA_REPAIR_MOST + 1);
	}
	pair_close(&pair);
}

/* What one port did is not held against the next. */
static void breaks_are_counted_for_each_pair_of_ports(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 2);
	for (uint32_t n = 1; n <= 2 * HA_REPAIR_MOST + 1; n++) {
		transfer(&pair, 5000, n);
		break_queue_pair(&pair, n % 2);
		(void)time_to_go_on(&pair, n + 1);
		assert_on_rail(&pair, n <= HA_REPAIR_MOST ? 0 : 1);
	}
	pair_close(&pair);
}

/* Nothing has come through: that was no repair. */
static void fresh_queue_pairs_that_carry_nothing_are_left(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 2);
	break_queue_pair(&pair, 0);
	(void)time_to_go_on(&pair, 2);
	assert_on_rail(&pair, 0);
	break_queue_pair(&pair, 0);
	(void)time_to_go_on(&pair, 3);
	assert_on_rail(&pair, 1);
	pair_close(&pair);
}

/* Where there is no other port, there it goes on, as often as it takes. */
static void a_single_port_is_used_however_often_it_breaks(void **state)
{
	struct pair pair;

	(void)state;
	up_on(&pair, 1);
	for (uint32_t n = 1; n <= 3 * HA_REPAIR_MOST; n++) {
		if (n % 3 != 0)
			transfer(&pair, 5000, n);
		break_queue_pair(&pair, n % 2);
		assert_true(time_to_go_on(&pair, n + 1) < TICK_NS);
	}
	transfer(&pair, 5000, 99);
	pair_close(&pair);
}

/* The NIC refuses, at either end; or what it makes does not work. The standby waits for no timeout.
 */
static void a_repair_that_fails_goes_to_the_standby(void **state)
{
	static const char *const rules[] = {
	    "errno=EINVAL verb=create_qp host=0 rail=0 count=2",
	    "errno=EINVAL verb=create_qp host=1 rail=0 count=2",
	    "errno=EINVAL verb=create_cq host=1 rail=0 nth=1",
	    "errno=ENOMEM verb=reg_mr host=0 rail=0 nth=1",
	    "errno=EINVAL verb=rtr host=0 rail=0 nth=1",
	    "errno=EINVAL verb=rtr host=1 rail=0 nth=1",
	    "wc=RETRY_EXC_ERR host=1 rail=0 op=write sent=0 nth=1",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		for (uint32_t rails = 1; rails <= 2; rails++) {
			struct pair pair;
			uint64_t took_ns;
			int id;

			up_on(&pair, rails);
			break_queue_pair(&pair, 0);
			id = add_rule(rules[i]);
			took_ns = time_to_go_on(&pair, 2);
			assert_true(fired(id) > 0);
			assert_on_rail(&pair, rails - 1);
			print_message("%s, %u rail(s): %.2f ms\n", rules[i], rails,
				      (double)took_ns / 1e6);
			/* Without another port it is tried again after a pause. */
			assert_true(took_ns < (rails == 1 ? 60 * HA_NS_PER_MS : 2 * TICK_NS));
			transfer(&pair, 5000, 2);
			pair_close(&pair);
		}
}

/* A NIC that takes long to make one is not waited for longer than a change of port is worth. */
static void a_repair_that_takes_too_long_goes_to_the_standby(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++) {
		struct pair pair;
		uint64_t took_ns;
		char rule[80];
		int id;

		up_on(&pair, 2);
		sv_stepped_set_wait(SV_WAIT_ACCUMULATE);
		ha_command_took_ns = sv_stepped_waited_ns;
		snprintf(rule, sizeof(rule), "wait=300ms verb=create_qp host=%u rail=0", host);
		id = add_rule(rule);
		break_queue_pair(&pair, host);
		took_ns = time_to_go_on(&pair, 2);
		assert_true(fired(id) > 0);
		assert_on_rail(&pair, 1);
		assert_true(took_ns >= REPAIR_TIMEOUT_NS &&
			    took_ns < REPAIR_TIMEOUT_NS + 2 * TICK_NS);
		transfer(&pair, 5000, 2);
		assert_int_equal(sv_stepped_fault_remove(id), 0);
		turns(&pair, 500); /* what was made too late harms nobody */
		transfer(&pair, 5000, 3);
		pair_close(&pair);
		ha_command_took_ns = NULL;
	}
}

/* Of either end, at every turn of a repair. */
static void a_port_that_goes_down_during_a_repair_is_left(void **state)
{
	(void)state;
	for (unsigned after = 0; after < 12; after++)
		for (uint32_t rails = 1; rails <= 2; rails++) {
			uint32_t host = after % 2;
			struct pair pair;

			up_on(&pair, rails);
			break_queue_pair(&pair, 1 - host);
			for (unsigned i = 0; i < after; i++)
				turn(&pair);
			sv_stepped_link(host, 0, false);
			turns(&pair, 30);
			if (rails == 1)
				sv_stepped_link(host, 0, true);
			turns(&pair, 300);
			assert_int_equal(pair.send->failover->state, HA_FO_ACTIVE);
			assert_on_rail(&pair, rails - 1);
			transfer(&pair, 5000, 2);
			pair_close(&pair);
		}
}

/* The fresh queue pair of either end breaks as well, as soon as it is there. */
static void queue_pairs_that_break_during_a_repair_are_left(void **state)
{
	(void)state;
	for (uint32_t host = 0; host < 2; host++)
		for (uint32_t rails = 1; rails <= 2; rails++) {
			struct pair pair;
			int id;

			up_on(&pair, rails);
			break_queue_pair(&pair, host);
			id = add_rule(host == 0 ? "err dir=rx host=0 rail=0 op=write nth=1"
						: "err host=1 rail=0 op=write nth=1");
			turns(&pair, 20);
			assert_int_equal(fired(id), 1);
			for (unsigned ms = 0; ms < 3000 && !goes_on(pair.send, 2); ms++)
				turns(&pair, 1);
			assert_true(goes_on(pair.send, 2));
			assert_on_rail(&pair, rails - 1);
			transfer(&pair, 5000, 2);
			pair_close(&pair);
		}
}

/* ---- not tried ------------------------------------------------------------------------------ */

/* What looks like a queue pair that broke was the switch: no heartbeat is answered. */
static void silence_is_no_reason_for_a_repair(void **state)
{
	struct in_flight t;
	struct pair pair;
	uint64_t took_ns;
	int id;

	(void)state;
	up_on(&pair, 2);
	id = add_rule("wc=RETRY_EXC_ERR host=0 op=write minlen=1000 sent=0 nth=1");
	t = pair_start(&pair);
	sv_stepped_cut(0, true);
	assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
	took_ns =
	    pair.recv->failover->path_select.agreed_ns - pair.recv->failover->path_select.begun_ns;
	assert_true(took_ns < 10 * HA_NS_PER_MS);
	assert_int_equal(fired(id), 1);
	assert_on_rail(&pair, 1);
	assert_int_equal(pair.recv->count.failovers, 1);
	pair_close(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_queue_pair_that_breaks_is_replaced_on_its_own_ports),
	    cmocka_unit_test(what_was_under_way_is_replayed_once),
	    cmocka_unit_test(a_repair_takes_what_its_commands_take),
	    cmocka_unit_test(an_end_that_is_being_connected_is_not_asked_for_once_more),
	    cmocka_unit_test(a_sender_that_fences_for_longer_is_asked_again_at_once),
	    cmocka_unit_test(a_port_that_breaks_again_and_again_is_left),
	    cmocka_unit_test(a_port_that_breaks_now_and_then_is_kept),
	    cmocka_unit_test(breaks_are_counted_for_each_pair_of_ports),
	    cmocka_unit_test(fresh_queue_pairs_that_carry_nothing_are_left),
	    cmocka_unit_test(a_single_port_is_used_however_often_it_breaks),
	    cmocka_unit_test(a_repair_that_fails_goes_to_the_standby),
	    cmocka_unit_test(a_repair_that_takes_too_long_goes_to_the_standby),
	    cmocka_unit_test(a_port_that_goes_down_during_a_repair_is_left),
	    cmocka_unit_test(queue_pairs_that_break_during_a_repair_are_left),
	    cmocka_unit_test(silence_is_no_reason_for_a_repair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
