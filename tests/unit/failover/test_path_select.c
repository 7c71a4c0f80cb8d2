/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which path is taken when the active one is left. Path 0 between the first two ports is left, and
 * each test opens the others; all ports are on one subnet. What heartbeats say is a table of this
 * test.
 */
#include "../cmocka_all.h"

#include "fake_comm.h"

#include "base/clock.h"
#include "failover/path_select.h"
#include "liveness/session_report.h"

#define MS HA_NS_PER_MS

#define HEARTBEAT_MS 100
#define HOLDOFF_NS   (30 * MS)
#define ANSWER_NS    (5 * MS)

/* When the active path is left. */
#define LEFT_NS (1000 * HA_NS_PER_S)

static uint64_t clock_ns;

static uint64_t read_clock(void)
{
	return clock_ns;
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

static struct {
	enum ha_session_state state;
	uint64_t down_ns, asked_ns, failed_before_ns;
	unsigned questions; /* how often its link was asked for a sign of life */
} heartbeats[HA_MAX_PATHS];

static unsigned path_of(const struct ha_session *session)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		if ((const void *)session == &heartbeats[p])
			return p;
	fail_msg("a session that is none");
	return 0;
}

enum ha_session_state __wrap_ha_session_state(const struct ha_session *session);
enum ha_session_state __wrap_ha_session_state(const struct ha_session *session)
{
	return heartbeats[path_of(session)].state;
}

uint64_t __wrap_ha_session_down_ns(const struct ha_session *session);
uint64_t __wrap_ha_session_down_ns(const struct ha_session *session)
{
	return heartbeats[path_of(session)].down_ns;
}

uint64_t __wrap_ha_session_asked_ns(const struct ha_session *session);
uint64_t __wrap_ha_session_asked_ns(const struct ha_session *session)
{
	return heartbeats[path_of(session)].asked_ns;
}

uint64_t __wrap_ha_session_failed_before_ns(const struct ha_session *session);
uint64_t __wrap_ha_session_failed_before_ns(const struct ha_session *session)
{
	return heartbeats[path_of(session)].failed_before_ns;
}

void __wrap_ha_liveness_ask(struct ha_liveness *live, struct ha_live_link *link);
void __wrap_ha_liveness_ask(struct ha_liveness *live, struct ha_live_link *link)
{
	assert_ptr_equal(live, fake.inst.liveness);
	heartbeats[path_of(link->session)].questions++;
}

static void set_heartbeats(unsigned p, enum ha_session_state state)
{
	fake.failover.links[p].live.session = (struct ha_session *)(void *)&heartbeats[p];
	heartbeats[p].state = state;
}

/* ---- the connection -------------------------------------------------------------------------- */

static int on_one_subnet(void **state)
{
	(void)state;
	fake_comm_init();
	memset(heartbeats, 0, sizeof(heartbeats));
	for (unsigned i = 0; i < FAKE_PORTS; i++) {
		union ibv_gid theirs = fake_gid(0, 1);

		fake.ports[i].gid = fake_gid(0, 0);
		memcpy(fake.failover.peer_ports.offers[i].gid, theirs.raw, sizeof(theirs.raw));
	}
	fake.config.heartbeat_ms = HEARTBEAT_MS;
	fake_open_path(0, 0, 0);
	clock_ns = LEFT_NS;
	ha_clock_set_source(read_clock);
	return 0;
}

static int restore_clock(void **state)
{
	(void)state;
	ha_clock_set_source(NULL);
	return 0;
}

/* The active path is left because of this, then fenced, and the ends agree on it at once. */
static void leave(enum ha_reason reason)
{
	fake.failover.now.reason = (uint8_t)reason;
	ha_path_select_begin(&fake.comm, reason);
	atomic_store(&fake.paths[0].state, HA_PATH_FENCING);
	fake.failover.slots[0].state = HA_SLOT_EMPTY;
	ha_path_select_agreed(&fake.comm);
}

static int best(void)
{
	return ha_path_select_best(&fake.comm);
}

/* It is taken, but not before nothing better can be expected any more. */
static void assert_only_after_the_holdoff(int path)
{
	clock_ns = LEFT_NS + HOLDOFF_NS - 1;
	assert_int_equal(best(), -1);
	clock_ns = LEFT_NS + HOLDOFF_NS;
	assert_int_equal(best(), path);
	clock_ns = LEFT_NS;
}

/* ---- cost ------------------------------------------------------------------------------------ */

static void the_cheapest_is_taken_wherever_it_is(void **state)
{
	(void)state;
	fake_open_path(1, 3, 3);
	fake_open_path(2, 1, 1);
	fake_open_path(3, 2, 2);
	leave(HA_REASON_PORT_DOWN);
	assert_int_equal(best(), 2);
	fake_set_link(1, false);
	assert_int_equal(best(), 3);
	fake_set_peer_link(2, false);
	assert_int_equal(best(), 1);
	fake_set_link(3, false);
	assert_int_equal(best(), -1);
}

static void of_two_that_cost_the_same_the_first_one_is_taken(void **state)
{
	(void)state;
	fake_open_path(1, 1, 2);
	fake_open_path(2, 2, 1);
	leave(HA_REASON_PORT_DOWN);
	assert_int_equal(best(), 1);
}

static void only_a_path_that_was_proved_is_taken(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	leave(HA_REASON_PORT_DOWN);
	for (uint8_t s = 0; s < HA_SLOT_COUNT; s++) {
		bool proved = s == HA_SLOT_GOOD || s == HA_SLOT_SUSPECTED;

		fake.failover.slots[1].state = s;
		assert_int_equal(ha_path_select_can_carry(&fake.comm, 1), proved);
		assert_int_equal(best(), proved ? 1 : -1);
	}
	atomic_store(&fake.paths[1].state, HA_PATH_FENCING);
	assert_false(ha_path_select_can_carry(&fake.comm, 1));
	fake.comm.paths[1] = NULL;
	assert_false(ha_path_select_can_carry(&fake.comm, 1));
	assert_int_equal(best(), -1);
}

static void a_path_that_was_rebuilt_in_its_own_place_is_taken(void **state)
{
	(void)state;
	leave(HA_REASON_PORT_DOWN);
	assert_int_equal(best(), -1);
	fake_open_path(0, 0, 0);
	assert_int_equal(best(), 0);
}

/* ---- a shared fate --------------------------------------------------------------------------- */

static void a_path_that_shares_no_port_with_the_one_that_was_left_comes_first(void **state)
{
	(void)state;
	fake_open_path(1, 0, 1);
	fake_open_path(2, 3, 3);
	leave(HA_REASON_COMPLETION);
	assert_int_equal(best(), 2);
	fake_open_path(1, 1, 0); /* at the other end */
	assert_int_equal(best(), 2);
}

static void sharing_one_port_is_better_than_sharing_both(void **state)
{
	(void)state;
	fake_open_path(1, 0, 0);
	fake_open_path(2, 3, 0);
	leave(HA_REASON_COMPLETION);
	assert_int_equal(best(), 2);
}

static void a_path_that_cannot_be_is_not_taken_whatever_else_it_costs(void **state)
{
	(void)state;
	fake_open_path(1, 0, 1); /* shares the port that went down */
	set_heartbeats(1, HA_SESSION_SUSPECTED);
	fake_set_link(0, false);
	leave(HA_REASON_PORT_DOWN);
	clock_ns = LEFT_NS + HOLDOFF_NS;
	assert_int_equal(best(), -1);
	fake_open_path(2, 3, 3); /* the dearest that can be */
	set_heartbeats(2, HA_SESSION_SUSPECTED);
	assert_int_equal(best(), 2);
}

static void whoever_goes_back_has_left_nothing_that_failed(void **state)
{
	(void)state;
	fake_open_path(1, 0, 1);
	fake_open_path(2, 3, 3);
	leave(HA_REASON_FAILBACK);
	assert_int_equal(best(), 1);
}

/* ---- drained ports --------------------------------------------------------------------------- */

static void a_drained_port_is_taken_last(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	fake_open_path(2, 0, 0); /* shares both */
	set_heartbeats(2, HA_SESSION_SUSPECTED);
	fake_set_drained(1, true);
	leave(HA_REASON_PORT_DOWN);
	assert_only_after_the_holdoff(2);
	fake_set_peer_drained(0, true); /* one each */
	assert_only_after_the_holdoff(1);
	fake_set_peer_drained(1, true);
	assert_only_after_the_holdoff(2);
}

/* ---- doubt ----------------------------------------------------------------------------------- */

static void a_path_whose_heartbeats_are_overdue_comes_after_all_others(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	fake_open_path(2, 0, 0); /* shares both */
	set_heartbeats(1, HA_SESSION_SUSPECTED);
	set_heartbeats(2, HA_SESSION_UP);
	leave(HA_REASON_PORT_DOWN);
	assert_int_equal(best(), 2);
	heartbeats[1].state = HA_SESSION_UP;
	assert_int_equal(best(), 1);
}

static void a_path_in_doubt_is_taken_when_the_holdoff_ends(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	set_heartbeats(1, HA_SESSION_SUSPECTED);
	leave(HA_REASON_PORT_DOWN);
	assert_only_after_the_holdoff(1);
	/* The hold-off time has one beginning. */
	clock_ns = LEFT_NS + HOLDOFF_NS - 1;
	ha_path_select_agreed(&fake.comm);
	clock_ns = LEFT_NS + HOLDOFF_NS;
	assert_int_equal(best(), 1);
}

static void the_holdoff_begins_when_a_path_could_be_taken(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	set_heartbeats(1, HA_SESSION_SUSPECTED);
	leave(HA_REASON_PORT_DOWN);
	ha_path_select_begin(&fake.comm, HA_REASON_PORT_DOWN); /* once more, and not agreed yet */
	clock_ns = LEFT_NS + 100 * HOLDOFF_NS;
	assert_int_equal(best(), -1);
	ha_path_select_agreed(&fake.comm);
	assert_int_equal(best(), -1);
	clock_ns += HOLDOFF_NS;
	assert_int_equal(best(), 1);
}

static void a_silent_path_cannot_carry_unless_it_was_proved_since(void **state)
{
	struct ha_slot *slot = &fake.failover.slots[1];

	(void)state;
	fake_open_path(1, 1, 1);
	set_heartbeats(1, HA_SESSION_DOWN);
	heartbeats[1].down_ns = LEFT_NS - 10 * MS;
	leave(HA_REASON_PORT_DOWN);
	assert_true(ha_path_select_is_silent(&fake.comm, 1));
	assert_false(ha_path_select_can_carry(&fake.comm, 1));
	clock_ns = LEFT_NS + HOLDOFF_NS;
	slot->proved_ns = heartbeats[1].down_ns;
	assert_int_equal(best(), -1);
	slot->proved_ns++;
	assert_int_equal(best(), 1);
	assert_only_after_the_holdoff(1); /* it is worth a try, not more */
	slot->state = HA_SLOT_PROBING;
	clock_ns = LEFT_NS + HOLDOFF_NS;
	assert_int_equal(best(), -1);
}

static void a_path_is_silent_when_its_heartbeats_were_given_up(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	assert_false(ha_path_select_is_silent(&fake.comm, 1)); /* it has none */
	for (unsigned i = HA_SESSION_INIT; i <= HA_SESSION_DOWN; i++) {
		set_heartbeats(1, (enum ha_session_state)i);
		assert_int_equal(ha_path_select_is_silent(&fake.comm, 1), i == HA_SESSION_DOWN);
		assert_int_equal(ha_path_select_can_carry(&fake.comm, 1), i != HA_SESSION_DOWN);
	}
}

/* ---- proof ----------------------------------------------------------------------------------- */

/* Path 1 has heartbeats in time, and the newest that was answered was sent before the failure. */
static void open_unproved(void)
{
	fake_open_path(1, 1, 1);
	set_heartbeats(1, HA_SESSION_UP);
	heartbeats[1].asked_ns = fake.failover.slots[1].proved_ns = LEFT_NS - 1;
}

static void after_a_failure_that_nobody_reported_a_path_has_to_prove_that_it_works(void **state)
{
	static const enum ha_reason silence[] = {HA_REASON_LIVENESS, HA_REASON_COMPLETION,
						 HA_REASON_SOFT_TIMEOUT};

	(void)state;
	for (size_t i = 0; i < sizeof(silence) / sizeof(silence[0]); i++) {
		on_one_subnet(state);
		open_unproved();
		leave(silence[i]);
		assert_only_after_the_holdoff(1);
		heartbeats[1].asked_ns = LEFT_NS; /* a heartbeat that was sent after it */
		assert_int_equal(best(), 1);
		heartbeats[1].asked_ns--;
		assert_int_equal(best(), -1);
		fake.failover.slots[1].proved_ns = LEFT_NS; /* a probe that came back after it */
		assert_int_equal(best(), 1);
	}
}

static void after_a_failure_that_was_reported_no_proof_is_asked_for(void **state)
{
	(void)state;
	open_unproved();
	leave(HA_REASON_PORT_DOWN);
	assert_int_equal(best(), 1);
	assert_int_equal(heartbeats[1].questions, 0);
	assert_false(ha_path_select_awaits_answer(&fake.comm));
}

static void where_heartbeats_cannot_pass_they_need_not_prove_anything(void **state)
{
	(void)state;
	open_unproved();
	heartbeats[1].state = HA_SESSION_INIT;
	leave(HA_REASON_LIVENESS);
	assert_int_equal(best(), 1);
	fake.failover.links[1].live.session = NULL;
	assert_int_equal(best(), 1);
	assert_int_equal(heartbeats[1].questions, 0);
}

static void those_that_lack_proof_are_asked_once_when_the_path_is_left(void **state)
{
	(void)state;
	open_unproved();
	fake_open_path(2, 2, 2);
	set_heartbeats(2, HA_SESSION_SUSPECTED); /* can carry as well */
	fake_open_path(3, 3, 3);
	set_heartbeats(3, HA_SESSION_DOWN); /* cannot */
	set_heartbeats(0, HA_SESSION_UP);   /* is left */
	leave(HA_REASON_LIVENESS);
	assert_int_equal(heartbeats[0].questions, 0);
	assert_int_equal(heartbeats[1].questions, 1);
	assert_int_equal(heartbeats[2].questions, 1);
	assert_int_equal(heartbeats[3].questions, 0);
}

static void heartbeats_that_were_given_up_tell_since_when_the_path_had_failed(void **state)
{
	const uint64_t known_ns = HEARTBEAT_MS * MS * 3 / 2;

	(void)state;
	open_unproved();
	set_heartbeats(0, HA_SESSION_DOWN);
	heartbeats[1].asked_ns = LEFT_NS - known_ns;
	leave(HA_REASON_LIVENESS);
	assert_int_equal(best(), 1);
	assert_int_equal(heartbeats[1].questions, 0);
	/* A nanosecond earlier it may have been before the failure. */
	on_one_subnet(state);
	open_unproved();
	fake.failover.slots[1].proved_ns = 0;
	set_heartbeats(0, HA_SESSION_DOWN);
	heartbeats[1].asked_ns = LEFT_NS - known_ns - 1;
	leave(HA_REASON_LIVENESS);
	assert_int_equal(best(), -1);
	assert_int_equal(heartbeats[1].questions, 1);
	/* While they come all that is known is that it has failed by now. */
	on_one_subnet(state);
	open_unproved();
	set_heartbeats(0, HA_SESSION_SUSPECTED);
	leave(HA_REASON_COMPLETION);
	assert_int_equal(best(), -1);
}

/* An inquiry gives them up long before that. */
static void heartbeats_that_know_better_are_believed(void **state)
{
	const uint64_t failed_ns = LEFT_NS - 50 * MS;

	(void)state;
	for (unsigned late = 0; late < 2; late++) {
		on_one_subnet(state);
		open_unproved();
		fake.failover.slots[1].proved_ns = 0;
		set_heartbeats(0, HA_SESSION_DOWN);
		heartbeats[0].failed_before_ns = failed_ns;
		heartbeats[1].asked_ns = failed_ns - !late;
		leave(HA_REASON_LIVENESS);
		assert_int_equal(best(), late ? 1 : -1);
		assert_int_equal(heartbeats[1].questions, !late);
	}
}

static void at_the_beginning_of_time_a_path_has_failed_by_now(void **state)
{
	const uint64_t known_ns = HEARTBEAT_MS * MS * 3 / 2;

	(void)state;
	clock_ns = known_ns;
	open_unproved();
	set_heartbeats(0, HA_SESSION_DOWN);
	heartbeats[1].asked_ns = fake.failover.slots[1].proved_ns = known_ns - 1;
	leave(HA_REASON_LIVENESS);
	assert_int_equal(best(), -1);
}

/* ---- an answer that is expected -------------------------------------------------------------- */

static void an_answer_is_expected_for_a_few_milliseconds(void **state)
{
	(void)state;
	open_unproved();
	leave(HA_REASON_LIVENESS);
	assert_true(ha_path_select_awaits_answer(&fake.comm));
	clock_ns = LEFT_NS + ANSWER_NS - 1;
	assert_true(ha_path_select_awaits_answer(&fake.comm));
	clock_ns = LEFT_NS + ANSWER_NS;
	assert_false(ha_path_select_awaits_answer(&fake.comm));
	clock_ns = LEFT_NS;
	heartbeats[1].asked_ns = LEFT_NS; /* it has come */
	assert_false(ha_path_select_awaits_answer(&fake.comm));
}

static void no_answer_is_expected_of_what_would_not_be_taken_for_it(void **state)
{
	(void)state;
	open_unproved();
	leave(HA_REASON_LIVENESS);
	heartbeats[1].state = HA_SESSION_SUSPECTED;
	assert_false(ha_path_select_awaits_answer(&fake.comm));
	heartbeats[1].state = HA_SESSION_DOWN;
	assert_false(ha_path_select_awaits_answer(&fake.comm));
	heartbeats[1].state = HA_SESSION_UP;
	fake_set_drained(1, true);
	assert_false(ha_path_select_awaits_answer(&fake.comm));
	fake_set_drained(1, false);
	assert_true(ha_path_select_awaits_answer(&fake.comm));
}

/* ---- while the active path works ------------------------------------------------------------- */

static void a_better_path_costs_less_than_the_active_one(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	fake_open_path(2, 2, 2);
	fake_open_path(3, 3, 1); /* as dear as path 2 */
	fake.comm.active = 2;
	assert_true(ha_path_select_is_better(&fake.comm, 0));
	assert_true(ha_path_select_is_better(&fake.comm, 1));
	assert_false(ha_path_select_is_better(&fake.comm, 2));
	assert_false(ha_path_select_is_better(&fake.comm, 3));
	set_heartbeats(1, HA_SESSION_DOWN);
	assert_false(ha_path_select_is_better(&fake.comm, 1));
	fake_set_drained(0, true);
	assert_false(ha_path_select_is_better(&fake.comm, 0));
	fake_set_drained(2, true);
	assert_true(ha_path_select_is_better(&fake.comm, 3));
}

static void the_cheapest_healthy_path_is_not_in_doubt(void **state)
{
	(void)state;
	assert_int_equal(ha_path_select_healthy(&fake.comm, 2),
			 -1); /* the active one is not meant */
	fake_open_path(1, 3, 3);
	fake_open_path(2, 1, 1);
	fake_open_path(3, 2, 2);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 0), 2);
	set_heartbeats(2, HA_SESSION_SUSPECTED);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 0), 3);
	set_heartbeats(3, HA_SESSION_DOWN);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 0), 1);
	fake_set_link(3, false);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 0), -1);
}

static void a_healthy_path_has_no_more_drained_ports_than_are_wanted(void **state)
{
	(void)state;
	fake_open_path(1, 1, 1);
	fake_set_drained(1, true);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 0), -1);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 1), 1);
	fake_set_peer_drained(1, true);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 1), -1);
	assert_int_equal(ha_path_select_healthy(&fake.comm, 2), 1);
}

static void a_path_in_reserve_shares_no_port_with_the_active_one(void **state)
{
	(void)state;
	assert_false(ha_path_select_has_standby(&fake.comm));
	fake_open_path(1, 0, 1);
	fake_open_path(2, 1, 0);
	assert_false(ha_path_select_has_standby(&fake.comm));
	fake_open_path(3, 1, 1);
	assert_true(ha_path_select_has_standby(&fake.comm));
	fake_set_peer_drained(1, true);
	assert_false(ha_path_select_has_standby(&fake.comm));
	fake_set_peer_drained(1, false);
	set_heartbeats(3, HA_SESSION_DOWN);
	assert_false(ha_path_select_has_standby(&fake.comm));
	heartbeats[3].state = HA_SESSION_SUSPECTED; /* it is one, if not a good one */
	assert_true(ha_path_select_has_standby(&fake.comm));
	fake.comm.active = 3;
	fake.failover.slots[0].state = HA_SLOT_EMPTY;
	assert_false(ha_path_select_has_standby(&fake.comm));
}

int main(void)
{
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, on_one_subnet, restore_clock)
	const struct CMUnitTest tests[] = {
	    TEST(the_cheapest_is_taken_wherever_it_is),
	    TEST(of_two_that_cost_the_same_the_first_one_is_taken),
	    TEST(only_a_path_that_was_proved_is_taken),
	    TEST(a_path_that_was_rebuilt_in_its_own_place_is_taken),
	    TEST(a_path_that_shares_no_port_with_the_one_that_was_left_comes_first),
	    TEST(sharing_one_port_is_better_than_sharing_both),
	    TEST(a_path_that_cannot_be_is_not_taken_whatever_else_it_costs),
	    TEST(whoever_goes_back_has_left_nothing_that_failed),
	    TEST(a_drained_port_is_taken_last),
	    TEST(a_path_whose_heartbeats_are_overdue_comes_after_all_others),
	    TEST(a_path_in_doubt_is_taken_when_the_holdoff_ends),
	    TEST(the_holdoff_begins_when_a_path_could_be_taken),
	    TEST(a_silent_path_cannot_carry_unless_it_was_proved_since),
	    TEST(a_path_is_silent_when_its_heartbeats_were_given_up),
	    TEST(after_a_failure_that_nobody_reported_a_path_has_to_prove_that_it_works),
	    TEST(after_a_failure_that_was_reported_no_proof_is_asked_for),
	    TEST(where_heartbeats_cannot_pass_they_need_not_prove_anything),
	    TEST(those_that_lack_proof_are_asked_once_when_the_path_is_left),
	    TEST(heartbeats_that_were_given_up_tell_since_when_the_path_had_failed),
	    TEST(heartbeats_that_know_better_are_believed),
	    TEST(at_the_beginning_of_time_a_path_has_failed_by_now),
	    TEST(an_answer_is_expected_for_a_few_milliseconds),
	    TEST(no_answer_is_expected_of_what_would_not_be_taken_for_it),
	    TEST(a_better_path_costs_less_than_the_active_one),
	    TEST(the_cheapest_healthy_path_is_not_in_doubt),
	    TEST(a_healthy_path_has_no_more_drained_ports_than_are_wanted),
	    TEST(a_path_in_reserve_shares_no_port_with_the_active_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
