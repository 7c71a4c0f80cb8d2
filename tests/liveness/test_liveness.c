/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness sessions between two hosts of a stepped fabric on its virtual clock: how they come up,
 * how soon each kind of failure takes them down, what must not, and that nothing is left behind.
 */
#include "../unit/captured_log.h"
#include "../unit/cmocka_all.h"

#include "base/clock.h"
#include "ha/heartbeat.h"
#include "ha/liveness.h"
#include "memory/mr.h"
#include "simverbs/simverbs.h"

#include <stdlib.h>
#include <string.h>

#define INTERVAL_MS 10
#define RAILS	    2

/* A link that notes what it is told. */
struct observer {
	struct ha_live_link link;
	int ups, downs;
	uint64_t down_ns;
	bool traffic; /* what it answers when asked */
	int asked;
};

static void note_down(struct ha_live_link *link)
{
	struct observer *o = ha_container_of(link, struct observer, link);

	o->downs++;
	o->down_ns = ha_now_ns();
}

static void note_up(struct ha_live_link *link)
{
	ha_container_of(link, struct observer, link)->ups++;
}

static bool say_traffic(struct ha_live_link *link)
{
	struct observer *o = ha_container_of(link, struct observer, link);

	o->asked++;
	return o->traffic;
}

struct end {
	struct ha_device_set *set;
	struct ha_progress *progress;
	struct ha_liveness *live;
	bool asleep; /* its thread does not run */
};

static struct ha_config config;
static struct end ends[2];

static char *no_env(const char *name)
{
	(void)name;
	return NULL;
}

static void open_end(int host)
{
	const struct ha_progress_options options = {.idle_spin_threshold = 1};
	struct end *e = &ends[host];

	sv_stepped_set_host((uint32_t)host);
	assert_int_equal(ha_device_set_open(&config, &e->set), HA_OK);
	assert_int_equal(ha_progress_start(&options, &e->progress), HA_OK);
	e->live = ha_liveness_new(e->progress, &config);
	assert_non_null(e->live);
}

static void close_end(int host)
{
	struct end *e = &ends[host];

	if (!e->set)
		return;
	ha_liveness_free(e->live);
	ha_progress_stop(e->progress);
	for (int i = 0; i < e->set->nnics; i++)
		assert_null(e->set->nics[i].pd);
	ha_memory_close(e->set);
	ha_device_set_close(e->set);
	memset(e, 0, sizeof *e);
}

static void fabric(const struct sv_stepped_opts *opts)
{
	struct sv_stepped_opts with_rails = *opts;

	with_rails.rails = RAILS;
	with_rails.seed = 1;
	assert_int_equal(sv_stepped_open(&with_rails), 0);
	ha_clock_set_source(sv_stepped_now);
	open_end(0);
	open_end(1);
}

static int setup(void **state)
{
	(void)state;
	capture_log();
	ha_config_load(&config, no_env);
	config.heartbeat_ms = INTERVAL_MS;
	memset(ends, 0, sizeof ends);
	return 0;
}

static int teardown(void **state)
{
	bool clean = sv_stepped_open_contexts() == 0 && sv_stepped_close() == 0;

	(void)state;
	if (!clean)
		sv_stepped_destroy();
	ha_clock_set_source(NULL);
	return clean ? 0 : -1;
}

static void done(void)
{
	close_end(0);
	close_end(1);
	assert_int_equal(sv_stepped_open_contexts(), 0);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void rounds(void)
{
	for (int i = 0; i < 2; i++) {
		if (!ends[i].progress || ends[i].asleep)
			continue;
		for (int nic = 0; nic < ends[i].set->nnics; nic++)
			ha_nic_read_events(ends[i].set, &ends[i].set->nics[nic]);
		ha_progress_round(ends[i].progress);
	}
}

/* Both ends look after each packet, and every millisecond. */
static void run_us(uint64_t us)
{
	uint64_t end = sv_stepped_now() + us * HA_NS_PER_US;

	rounds();
	while (sv_stepped_now() < end) {
		uint64_t next = sv_stepped_now() + HA_NS_PER_MS;
		struct sv_event_info info;

		if (next > end)
			next = end;
		while (sv_stepped_peek(&info) && info.time_ns <= next) {
			sv_stepped_step();
			rounds();
		}
		sv_stepped_run(next);
		rounds();
	}
}

static void run_ms(uint64_t ms)
{
	run_us(ms * 1000);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static struct ha_port *port_of(int host, int rail)
{
	return &ends[host].set->ports[rail];
}

static struct ha_live_endpoint endpoint_of(int host, int rail)
{
	struct ha_live_endpoint out;

	assert_true(ha_liveness_endpoint(ends[host].live, port_of(host, rail), &out));
	return out;
}

static void attach_to(int host, int rail, const struct ha_live_endpoint *remote, struct observer *o)
{
	memset(o, 0, sizeof *o);
	o->link.down = note_down;
	o->link.up = note_up;
	o->link.alive = say_traffic;
	assert_true(
	    ha_liveness_attach(ends[host].live, port_of(host, rail), remote, 0, 0, &o->link));
}

static void attach(int host, int rail, int remote_rail, struct observer *o)
{
	struct ha_live_endpoint remote = endpoint_of(!host, remote_rail);

	attach_to(host, rail, &remote, o);
}

static void detach(int host, struct observer *o)
{
	ha_liveness_detach(ends[host].live, &o->link);
	assert_null(o->link.session);
}

static enum ha_session_state state_of(const struct observer *o)
{
	return ha_session_state(o->link.session);
}

/* A session between the same rail of both hosts, up at both. */
static void up(int rail, struct observer o[2])
{
	attach(0, rail, rail, &o[0]);
	attach(1, rail, rail, &o[1]);
	run_ms(2 * INTERVAL_MS);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		assert_int_equal(o[i].ups, 1);
		assert_int_equal(o[i].downs, 0);
	}
}

/* Down at host i, within three intervals and a tick of `since`, and not much before. */
static void assert_went_down_in_time(const struct observer *o, uint64_t since_ns)
{
	uint64_t took = o->down_ns - since_ns;

	assert_int_equal(o->downs, 1);
	assert_int_equal(state_of(o), HA_SESSION_DOWN);
	assert_in_range(took, 15 * INTERVAL_MS * HA_NS_PER_MS / 10,
			(3 * INTERVAL_MS + 1) * HA_NS_PER_MS);
}

static struct ha_live_port_report port_report(int host, int rail)
{
	struct ha_live_port_report report;

	assert_true(ha_liveness_port_report(ends[host].live, port_of(host, rail), &report));
	return report;
}

/* ---- tests ---------------------------------------------------------------------------------- */

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

static void a_session_that_was_never_up_never_goes_down(void **state)
{
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
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
	assert_in_range(more.sent - sent.sent, 4 * 18, 4 * 26);
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
	/* The other end sees silence, and is right. */
	assert_int_equal(o[1].downs, 1);
	/* Even if not one heartbeat is there when it wakes up. */
	sv_stepped_cut(0, true);
	ends[0].asleep = false;
	woke = sv_stepped_now();
	run_ms(2 * INTERVAL_MS);
	assert_int_equal(o[0].downs, 0);
	assert_int_equal(ha_liveness_starved(ends[0].live), 1);
	run_ms(INTERVAL_MS + 1);
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
	assert_int_equal(ha_liveness_starved(ends[0].live), 2);
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
	uint64_t since;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	first = endpoint_of(1, 0);
	up(0, o);
	detach(1, &o[1]);
	since = sv_stepped_now();
	close_end(1);
	open_end(1);
	second = endpoint_of(1, 0);
	assert_int_not_equal(first.id, second.id);
	attach_to(0, 0, &second, &again[0]);
	attach(1, 0, 0, &again[1]);
	assert_ptr_not_equal(again[0].link.session, o[0].link.session);
	run_ms(3 * INTERVAL_MS + 1);
	/* The new one's heartbeats keep the old one's session neither alive nor do they hurt. */
	assert_went_down_in_time(&o[0], since);
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

static void round_trips_are_measured(void **state)
{
	struct ha_session_report report;
	struct ha_live_port_report port;
	struct observer o[2];
	uint64_t ms = 100 * INTERVAL_MS;

	(void)state;
	fabric(&(struct sv_stepped_opts){.latency_ns = 40000});
	up(0, o);
	run_ms(ms);
	for (int i = 0; i < 2; i++) {
		ha_session_report(o[i].link.session, &report);
		assert_int_equal(report.state, HA_SESSION_UP);
		assert_int_equal(report.lost, 0);
		assert_int_equal(report.downs, 0);
		assert_in_range(report.pings - report.pongs, 0, 1);
		assert_int_equal(ha_hist_samples(&report.round_trips), report.pongs);
		/* A heartbeat each 8.75 to 10 ms. */
		assert_in_range(report.pongs, 98, 125);
		/* There and back, and some wire time. */
		assert_in_range(ha_hist_mean(&report.round_trips), 80000, 82000);
		assert_in_range(report.round_trips.max, 80000, 82000);
		assert_in_range(report.round_trip_ns, 78000, 82000);
		detach(i, &o[i]);
	}
	/* The port keeps what its sessions measured. */
	port = port_report(0, 0);
	assert_in_range(ha_hist_samples(&port.round_trips), 98, 125);
	done();
}

static void a_round_trip_far_off_its_baseline_is_suspicious(void **state)
{
	struct ha_session_report report;
	struct observer o[2];
	char error[128];
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	run_ms(10 * INTERVAL_MS);
	id = sv_stepped_fault_add("delay=8ms op=ud", error, sizeof error);
	assert_true(id >= 0);
	run_ms(10 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_SUSPECTED);
	assert_int_equal(o[0].downs, 0);
	sv_stepped_fault_remove(id);
	run_ms(5 * INTERVAL_MS);
	assert_int_equal(state_of(&o[0]), HA_SESSION_UP);
	ha_session_report(o[0].link.session, &report);
	assert_true(report.suspicions >= 1);
	/* It was of use all the time: nobody was told that it is up again. */
	assert_int_equal(o[0].ups, 1);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void duplicated_and_reordered_heartbeats_are_counted_once(void **state)
{
	struct ha_session_report report;
	struct observer o[2];
	uint64_t matched, fired;
	char error[128];
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	id = sv_stepped_fault_add("dup op=ud", error, sizeof error);
	assert_true(id >= 0);
	run_ms(20 * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_true(fired >= 80);
	ha_session_report(o[0].link.session, &report);
	assert_true(report.pongs <= report.pings);
	assert_int_equal(ha_hist_samples(&report.round_trips), report.pongs);
	/* A ping that comes twice is answered twice, and each answer comes twice. */
	assert_true(port_report(0, 0).stale >= 3 * 18);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		assert_int_equal(o[i].downs, 0);
		detach(i, &o[i]);
	}
	done();
}

/* Datagrams of our own making to host 0's queue pair, from a queue pair of host 1. */
struct forger {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint8_t bytes[128];
};

static void forger_open(struct forger *f, const struct ha_live_endpoint *to)
{
	struct ha_nic *nic = port_of(1, 0)->nic;
	struct ibv_ah_attr address = {.port_num = 1, .is_global = 1};
	struct ibv_qp_init_attr init = {
	    .qp_type = IBV_QPT_UD,
	    .sq_sig_all = 1,
	    .cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};

	memset(f, 0, sizeof *f);
	assert_int_equal(ha_nic_pd_get(nic, &f->pd), HA_OK);
	f->cq = ibv_create_cq(nic->ctx, 64, NULL, NULL, 0);
	assert_non_null(f->cq);
	init.send_cq = init.recv_cq = f->cq;
	f->qp = ibv_create_qp(f->pd, &init);
	assert_non_null(f->qp);
	f->mr = ibv_reg_mr(f->pd, f->bytes, sizeof f->bytes, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(f->mr);
	assert_int_equal(
	    ibv_modify_qp(f->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
	    0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(ibv_modify_qp(f->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(f->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
	memcpy(address.grh.dgid.raw, to->gid, sizeof to->gid);
	address.grh.sgid_index = (uint8_t)port_of(1, 0)->gid_index;
	address.grh.hop_limit = 1;
	f->ah = ibv_create_ah(f->pd, &address);
	assert_non_null(f->ah);
}

static void forge(struct forger *f, const struct ha_live_endpoint *to, const void *bytes,
		  size_t len)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)f->bytes, .length = (uint32_t)len, .lkey = f->mr->lkey};
	/* As a peer works it out: an observer of the fabric can read it. */
	uint32_t qkey = (uint32_t)(to->id ^ (to->id >> 32)) & 0x7fffffffu;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {f->ah, to->qpn, qkey}},
			   *bad;
	struct ibv_wc wc;

	memcpy(f->bytes, bytes, len);
	assert_int_equal(ibv_post_send(f->qp, &wr, &bad), 0);
	run_us(50);
	assert_int_equal(ibv_poll_cq(f->cq, 1, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void forger_close(struct forger *f)
{
	ibv_destroy_ah(f->ah);
	ibv_destroy_qp(f->qp);
	ibv_destroy_cq(f->cq);
	ibv_dereg_mr(f->mr);
	ha_nic_pd_put(port_of(1, 0)->nic);
}

static void strangers_garbage_and_replays_are_counted_and_ignored(void **state)
{
	struct ha_live_endpoint us, peer;
	struct ha_live_port_report before, after;
	struct ha_session_report session;
	struct ha_heartbeat beat = {.kind = HA_HEARTBEAT_PONG, .seq = 1};
	uint8_t bytes[HA_HEARTBEAT_BYTES + 8] = {0};
	struct forger f;
	struct observer o[2];

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	us = endpoint_of(0, 0);
	peer = endpoint_of(1, 0);
	up(0, o);
	forger_open(&f, &us);
	before = port_report(0, 0);

	/* Too short, too long, empty, noise. */
	beat.from = peer.id;
	beat.to = us.id;
	ha_heartbeat_encode(&beat, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES - 1);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES + 1);
	forge(&f, &us, bytes, 1);
	forge(&f, &us, bytes, 88); /* more than a slot is used for */
	bytes[20] ^= 4;
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	after = port_report(0, 0);
	assert_int_equal(after.malformed - before.malformed, 5);

	/* Well made, but from nobody we know, or to somebody else. */
	beat.from = peer.id + 1;
	ha_heartbeat_encode(&beat, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	beat.from = peer.id;
	beat.to = us.id + 1;
	ha_heartbeat_encode(&beat, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	after = port_report(0, 0);
	assert_int_equal(after.strangers - before.strangers, 2);

	/* An answer that came already, and one to what was never asked. */
	beat.to = us.id;
	ha_heartbeat_encode(&beat, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	beat.seq = 1u << 30;
	ha_heartbeat_encode(&beat, bytes);
	forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
	after = port_report(0, 0);
	assert_int_equal(after.stale - before.stale, 2);

	/* None of that keeps a dead path alive. */
	sv_stepped_block(0, 0, 1, 0, true);
	for (int i = 0; i < 60; i++) {
		forge(&f, &us, bytes, HA_HEARTBEAT_BYTES);
		run_us(600);
	}
	assert_int_equal(o[0].downs, 1);
	sv_stepped_block(0, 0, 1, 0, false);
	run_ms(3 * INTERVAL_MS);
	ha_session_report(o[0].link.session, &session);
	assert_int_equal(session.state, HA_SESSION_UP);
	forger_close(&f);
	for (int i = 0; i < 2; i++)
		detach(i, &o[i]);
	done();
}

static void the_queue_pair_survives_errors_of_its_own(void **state)
{
	struct observer o[2];
	uint64_t matched, fired;
	char error[128];
	uint32_t qpn;
	int id;

	(void)state;
	fabric(&(struct sv_stepped_opts){0});
	up(0, o);
	qpn = endpoint_of(0, 0).qpn;
	id =
	    sv_stepped_fault_add("wc=GENERAL_ERR host=0 rail=0 op=ud count=1", error, sizeof error);
	if (id < 0)
		fail_msg("%s", error);
	run_ms(60 * INTERVAL_MS);
	assert_true(sv_stepped_fault_stats(id, &matched, &fired));
	assert_int_equal(fired, 1);
	assert_int_equal(port_report(0, 0).restarts, 1);
	assert_int_equal(endpoint_of(0, 0).qpn, qpn);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(state_of(&o[i]), HA_SESSION_UP);
		detach(i, &o[i]);
	}
	done();
}

static void without_resources_there_is_no_session_and_one_warning(void **state)
{
	struct ha_live_endpoint endpoint = {.id = 5, .qpn = 5};
	struct observer o = {0};

	(void)state;
	fabric(&(struct sv_stepped_opts){.max_qp_wr = 8});
	/* Small queues are enough. */
	assert_true(ha_liveness_endpoint(ends[0].live, port_of(0, 0), &endpoint));
	done();
	assert_int_equal(sv_stepped_close(), 0);
	fabric(&(struct sv_stepped_opts){.max_qp = 1});
	assert_true(ha_liveness_endpoint(ends[0].live, port_of(0, 0), &endpoint));
	for (int i = 0; i < 2; i++) {
		struct ibv_cq *cq = ibv_create_cq(ends[1].set->nics[1].ctx, 4, NULL, NULL, 0);
		struct ibv_qp_init_attr init = {
		    .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
		struct ibv_pd *pd;
		struct ibv_qp *qp;

		assert_int_equal(ha_nic_pd_get(&ends[1].set->nics[1], &pd), HA_OK);
		qp = ibv_create_qp(pd, &init);
		assert_non_null(qp);
		assert_false(ha_liveness_endpoint(ends[1].live, port_of(1, 1), &endpoint));
		endpoint.id = endpoint.qpn = 5;
		assert_false(
		    ha_liveness_attach(ends[1].live, port_of(1, 1), &endpoint, 0, 0, &o.link));
		assert_null(o.link.session);
		assert_int_equal(captured_warnings, 1);
		assert_true(logged("sim1:1: no heartbeats on this port"));
		ibv_destroy_qp(qp);
		ibv_destroy_cq(cq);
		ha_nic_pd_put(&ends[1].set->nics[1]);
	}
	/* A peer that offers none. */
	endpoint.id = 0;
	assert_false(ha_liveness_attach(ends[0].live, port_of(0, 0), &endpoint, 0, 0, &o.link));
	ha_liveness_detach(ends[0].live, &o.link);
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

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(three_answers_in_a_row_make_it_up),
	    TEST(a_session_that_was_never_up_never_goes_down),
	    TEST(a_silent_cut_is_noticed_in_three_intervals),
	    TEST(a_link_that_is_down_is_noticed_by_both_and_its_return_as_well),
	    TEST(a_dead_device_takes_its_sessions_down_at_once),
	    TEST(all_connections_of_a_pair_share_a_session),
	    TEST(traffic_that_completes_counts_as_life),
	    TEST(traffic_before_the_cut_does_not_delay_its_detection),
	    TEST(our_own_sleep_proves_nothing),
	    TEST(losing_some_heartbeats_is_not_a_failure),
	    TEST(a_restarted_peer_is_another_peer),
	    TEST(an_address_that_changes_is_followed),
	    TEST(round_trips_are_measured),
	    TEST(a_round_trip_far_off_its_baseline_is_suspicious),
	    TEST(duplicated_and_reordered_heartbeats_are_counted_once),
	    TEST(strangers_garbage_and_replays_are_counted_and_ignored),
	    TEST(the_queue_pair_survives_errors_of_its_own),
	    TEST(without_resources_there_is_no_session_and_one_warning),
	    TEST(infiniband_has_sessions_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
