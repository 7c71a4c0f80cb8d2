/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness sessions on a stepped fabric: how they come up, how soon each kind of failure takes them
 * down, what must not, and that nothing is left behind.
 */
#include "world.h"

#include "../unit/captured_log.h"

#include <stdio.h>

static void three_answers_in_a_row_make_it_up(void **state)
{
	struct ha_session_report report;
	struct observer o[2];
	uint64_t pongs = 0;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	attach(0, 0, 0, &o[0]);
	/* Nobody answers for a peer that has no session: it is a stranger. */
	run_ms(5 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_INIT);
	attach(1, 0, 0, &o[1]);
	while (state_of(&o[0]) != HA_SESSION_UP) {
		ha_session_report(o[0].link.session, &report);
		pongs = report.pongs;
		assert_in_range(pongs, 0, 2);
		run_us(10);
	}
	ha_session_report(o[0].link.session, &report);
	assert_int_equal(pongs, 2);
	assert_int_equal(report.pongs, 3);
	assert_int_equal(o[0].ups, 1);
	run_ms(INTERVAL_MS);
	assert_int_equal(state_of(&o[1]), HA_SESSION_UP);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

/* Heartbeats may not be able to pass at all: then silence says nothing. */
static void where_nobody_ever_answered_nothing_goes_down(void **state)
{
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (int i = 0; i < 2; i++)
		detach(i, &witness[i]);
	sv_stepped_cut(0, true);
	attach(0, 0, 0, &o[0]);
	attach(1, 0, 0, &o[1]);
	run_ms(20 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_INIT);
		assert_int_equal(o[i].ups + o[i].downs, 0);
	}
	/* It did not give up either. */
	sv_stepped_cut(0, false);
	run_ms(3 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

/* The path over these ports was proved by other means, and went again before the first answer. */
static void a_session_that_was_never_up_goes_down_where_the_peer_answers_elsewhere(void **state)
{
	struct observer dead[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	sv_stepped_cut(0, true);
	for (int i = 0; i < 2; i++)
		attach(i, 0, 0, &dead[i]);
	run_ms(1900);
	assert_int_equal(state_of(&dead[0]), HA_SESSION_INIT);
	run_ms(100 + 6 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&dead[i]), HA_SESSION_DOWN);
		assert_int_equal(dead[i].ups + dead[i].downs, 0);
	}
	sv_stepped_cut(0, false);
	run_ms(3 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&dead[i]), HA_SESSION_UP);
		assert_int_equal(dead[i].ups, 1);
		detach(i, &dead[i]);
	}
	done();
}

/* One answer is no proof that the way is there, but that heartbeats can pass. */
static void silence_after_the_first_answer_is_noticed(void **state)
{
	struct ha_session_report report;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (int i = 0; i < 2; i++)
		attach(i, 0, 0, &o[i]);
	do {
		run_ms(1);
		ha_session_report(o[0].link.session, &report);
	} while (report.pongs == 0);
	sv_stepped_cut(0, true);
	assert_int_equal(state_of(&o[0]), HA_SESSION_INIT);
	run_ms(2 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	run_ms(2000 + 3 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_DOWN);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void a_probe_that_came_back_counts_as_life(void **state)
{
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	sv_stepped_cut(0, true);
	run_ms(5 * INTERVAL_MS / 2);
	ha_liveness_note_life(ends[0].live, &o[0].link);
	run_ms(2 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(state_of(&o[1]), HA_SESSION_DOWN);
	run_ms(2 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_DOWN);
	/* For one that is DOWN it is not enough. */
	ha_liveness_note_life(ends[0].live, &o[0].link);
	run_ms(INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_DOWN);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void a_silent_cut_is_noticed_in_three_intervals(void **state)
{
	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	/* At many places between two pings, both directions at once and each alone. */
	for (uint64_t phase_us = 0; phase_us < 10000; phase_us += 1300)
		for (int direction = 0; direction < 3; direction++) {
			struct observer o[2], other[2];
			uint64_t since;

			up(0, o);
			up(1, other);
			run_us(phase_us);
			since = sv_stepped_now();
			if (direction == 2)
				sv_stepped_cut(0, true);
			else
				sv_stepped_block((uint32_t)direction, 0, (uint32_t)!direction, 0,
						 true);
			run_ms(3 * INTERVAL_MS + 1);
			for (int i = 0; i < 2; i++) {
				assert_went_down_in_time(&o[i], since);
				assert_int_equal(state_of(&other[i]), HA_SESSION_UP);
			}
			sv_stepped_cut(0, false);
			sv_stepped_block(0, 0, 1, 0, false);
			sv_stepped_block(1, 0, 0, 0, false);
			run_ms(2 * INTERVAL_MS);
			for (int i = 0; i < 2; i++) {
				assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
				assert_int_equal(o[i].ups, 2);
				assert_int_equal(other[i].downs, 0);
				detach(i, &o[i]);
				detach(i, &other[i]);
			}
		}
	done();
}

static void a_link_that_is_down_is_noticed_by_both_and_its_return_as_well(void **state)
{
	struct observer o[2];
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	since = sv_stepped_now();
	sv_stepped_link(0, 0, false);
	run_ms(3 * INTERVAL_MS + 1);
	for (int i = 0; i < 2; i++)
		assert_went_down_in_time(&o[i], since);
	/* Long enough for full queues, if a dead link filled them. */
	run_ms(3000);
	sv_stepped_link(0, 0, true);
	run_ms(3 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

static void a_dead_device_takes_its_sessions_down_at_once(void **state)
{
	struct observer o[2], other[2];
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	up(1, other);
	since = sv_stepped_now();
	sv_stepped_kill(0, 0);
	rounds();
	assert_int_equal(o[0].downs, 1);
	assert_int_equal(o[0].down_ns, since);
	assert_int_equal(state_of(&o[0]), HA_SESSION_DOWN);
	run_ms(3 * INTERVAL_MS + 1);
	assert_went_down_in_time(&o[1], since);
	run_ms(10 * INTERVAL_MS);
	assert_int_equal(o[0].downs, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&other[i]), HA_SESSION_UP);
		assert_int_equal(other[i].downs, 0);
		detach(i, &o[i]);
		detach(i, &other[i]);
	}
	done();
}

static void all_connections_of_a_pair_share_a_session(void **state)
{
	enum { LINKS = 100 };
	struct observer o[2], many[LINKS];
	struct ha_live_port_report before, after;
	struct sv_stepped_stats sent, more;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	sv_stepped_get_stats(&sent);
	run_ms(20 * INTERVAL_MS);
	sv_stepped_get_stats(&more);
	before = port_report(0, 0);
	for (int i = 0; i < LINKS; i++) {
		attach(0, 0, 0, &many[i]);
		assert_ptr_equal(many[i].link.session, o[0].link.session);
		assert_int_equal(state_of(&many[i]), HA_SESSION_UP);
	}
	run_ms(20 * INTERVAL_MS);
	after = port_report(0, 0);
	assert_int_equal(after.sessions, 1);
	/* No more heartbeats than for one. */
	assert_in_range(after.pings - before.pings, 18, 26);
	assert_in_range(more.sent - sent.sent, 2 * 4 * 18, 2 * 4 * 26); /* with the witness */
	sv_stepped_cut(0, true);
	run_ms(3 * INTERVAL_MS + 1);
	for (int i = 0; i < LINKS; i++) {
		assert_int_equal(many[i].downs, 1);
		detach(0, &many[i]);
	}
	sv_stepped_cut(0, false);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	assert_int_equal(port_report(0, 0).sessions, 0);
	done();
}

static uint64_t pings_of(int host)
{
	uint64_t pings = 0;

	for (int rail = 0; rail < RAILS; rail++) {
		struct ha_live_port_report report;

		if (ha_liveness_port_report(ends[host].live, port_of(host, rail), &report))
			pings += report.pings;
	}
	return pings;
}

/* How often host 0 sends pings, and how many at once at most. */
static unsigned watch_pings(uint64_t intervals, uint64_t *most)
{
	uint64_t until_ns = sv_stepped_now() + intervals * INTERVAL_MS * HA_NS_PER_MS;
	uint64_t before = pings_of(0);
	unsigned times = 0;

	*most = 0;
	while (sv_stepped_now() < until_ns) {
		uint64_t now;

		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		rounds(); /* once: a wake-up */
		now = pings_of(0);
		times += now != before;
		*most = now - before > *most ? now - before : *most;
		before = now;
	}
	return times;
}

/* Each would cost a wake-up of our thread, and a process has hundreds of sessions. */
static void the_pings_of_a_process_go_out_together(void **state)
{
	struct observer o[2], other[2];
	uint64_t before, most;
	unsigned times;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	run_ms(INTERVAL_MS / 3);
	up(1, other);
	run_ms(20 * INTERVAL_MS);
	before = pings_of(0);
	times = watch_pings(50, &most);
	assert_in_range(times, 50, 58);
	assert_int_equal(most, 3); /* with the witness */
	assert_int_equal(pings_of(0) - before, 3 * times);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(o[i].downs + other[i].downs, 0);
		detach(i, &o[i]);
		detach(i, &other[i]);
	}
	done();
}

/* A port has room for so many only, here and at the peer. */
static void no_more_than_have_room_ping_together(void **state)
{
	enum { LINKS = 300 };
	static struct observer many[LINKS];
	struct ha_live_endpoint nobody;
	uint64_t errors, before, most;
	unsigned times;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	nobody = endpoint_of(1, 0);
	for (int i = 0; i < LINKS; i++) {
		nobody.id++;
		attach_to(0, 0, &nobody, &many[i]);
		run_us(100);
	}
	run_ms(50 * INTERVAL_MS); /* no quick pings any more */
	errors = port_report(0, 0).send_errors;
	before = pings_of(0);
	times = watch_pings(50, &most);
	assert_in_range(most, 10, 64);
	assert_true(times < 10 * 50);
	assert_in_range(pings_of(0) - before, 45 * LINKS, 60 * LINKS);
	assert_int_equal(port_report(0, 0).send_errors, errors);
	for (int i = 0; i < LINKS; i++)
		detach(0, &many[i]);
	done();
}

static void traffic_that_completes_counts_as_life(void **state)
{
	struct observer o[2];
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	o[0].traffic = true; /* the data path works, datagrams do not get through */
	sv_stepped_cut(0, true);
	run_ms(30 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(o[0].downs, 0);
	assert_true(o[0].asked > 30);
	assert_int_equal(o[1].downs, 1);
	/* It ends: three intervals from then on. */
	o[0].traffic = false;
	since = sv_stepped_now();
	run_ms(3 * INTERVAL_MS + 1);
	assert_went_down_in_time(&o[0], since);
	sv_stepped_cut(0, false);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

/* Until the cut a link answers that there was traffic; when exactly, it cannot say. */
static void traffic_before_the_cut_does_not_delay_its_detection(void **state)
{
	struct observer o[2];
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	for (uint64_t phase_us = 0; phase_us < 10000; phase_us += 1900) {
		up(0, o);
		run_us(phase_us);
		since = sv_stepped_now();
		sv_stepped_cut(0, true);
		o[0].traffic = true; /* completed before, and not asked about yet */
		while (o[0].asked == 0)
			run_us(100);
		o[0].traffic = false;
		run_us((since - sv_stepped_now() + (3 * INTERVAL_MS + 1) * HA_NS_PER_MS) / 1000);
		assert_went_down_in_time(&o[0], since);
		sv_stepped_cut(0, false);
		for (int i = 0; i < 2; i++)
			detach(i, &o[i]);
	}
	done();
}

static void our_own_sleep_proves_nothing(void **state)
{
	struct observer o[2];
	uint64_t woke;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	ends[0].asleep = true;
	run_ms(20 * INTERVAL_MS);
	/* The other end sees silence everywhere: that is not the network. */
	assert_int_equal(o[1].downs, 0);
	assert_int_equal(state_of(&o[1]), HA_SESSION_SUSPECTED);
	/* Even if not one heartbeat is there when it wakes up. */
	sv_stepped_cut(0, true);
	ends[0].asleep = false;
	woke = sv_stepped_now();
	run_us(27 * INTERVAL_MS * 100);
	assert_int_equal(o[0].downs, 0);
	assert_int_equal(ha_liveness_delayed(ends[0].live), 1);
	run_us(4 * INTERVAL_MS * 100);
	assert_went_down_in_time(&o[0], woke);
	sv_stepped_cut(0, false);
	run_ms(3 * INTERVAL_MS);
	/* And nothing at all happens to who wakes up in a healthy fabric. */
	ends[0].asleep = true;
	run_ms(20 * INTERVAL_MS);
	ends[0].asleep = false;
	run_ms(20 * INTERVAL_MS);
	assert_int_equal(o[0].downs, 1);
	assert_int_equal(state_of(&o[0]), HA_SESSION_UP);
	assert_int_equal(ha_liveness_delayed(ends[0].live), 2);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

/* Loss of `percent` of all datagrams for a while: how often is a session declared dead? */
static int downs_at_loss(int percent, uint64_t intervals)
{
	struct observer o[2];
	char rule[128], error[128];
	uint64_t matched, fired;
	int id, downs;

	up(0, o);
	snprintf(rule, sizeof rule, "drop op=ud prob=%.2f seed=7", percent / 100.0);
	id = sv_stepped_fault_add(rule, error, sizeof error);
	assert_true(id >= 0);
	run_ms(intervals * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_in_range(fired * 100, matched * (uint64_t)percent * 7 / 10,
			matched * (uint64_t)percent * 13 / 10);
	sv_stepped_fault_remove(id);
	downs = o[0].downs + o[1].downs;
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	return downs;
}

/*
 * A ping is answered with (1-p)^2. DOWN takes one at the interval and, at this test's ticks, seven
 * quick ones without an answer: at 20 % loss 0.36^8, once in 3500 intervals, which makes 1.7
 * expected here; at 10 % once in 600,000. Without quick pings it would be once in 21 and in 145.
 */
static void losing_some_heartbeats_is_not_a_failure(void **state)
{
	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	assert_int_equal(downs_at_loss(1, 2000), 0);
	assert_int_equal(downs_at_loss(5, 2000), 0);
	assert_in_range(downs_at_loss(10, 2000), 0, 1);
	assert_in_range(downs_at_loss(20, 3000), 0, 10);
	done();
}

static void a_restarted_peer_is_another_peer(void **state)
{
	struct observer o[2], again[2];
	struct ha_live_endpoint first, second;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	first = endpoint_of(1, 0);
	up(0, o);
	detach(1, &o[1]);
	close_end(1);
	open_end(1);
	second = endpoint_of(1, 0);
	assert_int_not_equal(first.id, second.id);
	attach_to(0, 0, &second, &again[0]);
	attach(1, 0, 0, &again[1]);
	assert_ptr_not_equal(again[0].link.session, o[0].link.session);
	run_ms(10 * INTERVAL_MS);
	/*
	 * The new one's heartbeats keep the old one's session neither alive nor do they testify
	 * against it: nobody is there whom the network could separate us from.
	 */
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(o[0].downs, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&again[i]), HA_SESSION_UP);
		assert_int_equal(again[i].downs, 0);
		detach(i, &again[i]);
	}
	detach(0, &o[0]);
	done();
}

static void an_address_that_changes_is_followed(void **state)
{
	struct observer o[2];
	struct ha_live_endpoint moved;
	union ibv_gid gid;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	moved = endpoint_of(1, 0);
	memcpy(gid.raw, moved.gid, sizeof gid.raw);
	gid.raw[15] = 200;
	sv_stepped_set_gid(1, 0, (uint32_t)port_of(1, 0)->gid_index, &gid);
	run_ms(2 * INTERVAL_MS);
	/* Host 1 sends from its new address; host 0 is told of it as of everything else. */
	moved = endpoint_of(1, 0);
	assert_int_equal(moved.gid[15], 200);
	detach(0, &o[0]);
	attach_to(0, 0, &moved, &o[0]);
	run_ms(4 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

static void infiniband_has_sessions_too(void **state)
{
	struct observer o[2];
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){.infiniband = true});
	up(1, o);
	since = sv_stepped_now();
	sv_stepped_cut(1, true);
	run_ms(3 * INTERVAL_MS + 1);
	for (int i = 0; i < 2; i++) {
		assert_went_down_in_time(&o[i], since);
		detach(i, &o[i]);
	}
	done();
}

/* The NIC lost the question or the answer, perhaps: nobody knows what the peer would have said. */
static void over_a_sick_nic_there_is_no_witness(int sick_rail)
{
	struct observer o[2];
	struct ha_nic *nic;

	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	nic = port_of(0, sick_rail)->nic;
	atomic_store(&nic->sick, true);
	sv_stepped_cut(0, true);
	run_ms(10 * INTERVAL_MS);
	/* Host 1 has a witness, host 0 none. */
	assert_int_equal(o[1].downs, 1);
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(o[0].downs, 0);
	/* But for ever the way is not taken for good. */
	run_ms(2000);
	assert_int_equal(state_of(&o[0]), HA_SESSION_DOWN);
	atomic_store(&nic->sick, false);
	sv_stepped_cut(0, false);
	run_ms(3 * INTERVAL_MS);
	sv_stepped_cut(0, true);
	run_ms(5 * INTERVAL_MS);
	assert_int_equal(o[0].downs, 2);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void a_sick_nic_is_no_witness(void **state)
{
	(void)state;
	over_a_sick_nic_there_is_no_witness(WITNESS);
}

static void no_one_is_a_witness_against_a_sick_nic(void **state)
{
	(void)state;
	over_a_sick_nic_there_is_no_witness(0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(three_answers_in_a_row_make_it_up),
	    TEST(where_nobody_ever_answered_nothing_goes_down),
	    TEST(a_session_that_was_never_up_goes_down_where_the_peer_answers_elsewhere),
	    TEST(silence_after_the_first_answer_is_noticed),
	    TEST(a_probe_that_came_back_counts_as_life),
	    TEST(a_silent_cut_is_noticed_in_three_intervals),
	    TEST(a_link_that_is_down_is_noticed_by_both_and_its_return_as_well),
	    TEST(a_dead_device_takes_its_sessions_down_at_once),
	    TEST(all_connections_of_a_pair_share_a_session),
	    TEST(the_pings_of_a_process_go_out_together),
	    TEST(no_more_than_have_room_ping_together),
	    TEST(traffic_that_completes_counts_as_life),
	    TEST(traffic_before_the_cut_does_not_delay_its_detection),
	    TEST(our_own_sleep_proves_nothing),
	    TEST(a_sick_nic_is_no_witness),
	    TEST(no_one_is_a_witness_against_a_sick_nic),
	    TEST(losing_some_heartbeats_is_not_a_failure),
	    TEST(a_restarted_peer_is_another_peer),
	    TEST(an_address_that_changes_is_followed),
	    TEST(infiniband_has_sessions_too),
	};

	capture_log();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
