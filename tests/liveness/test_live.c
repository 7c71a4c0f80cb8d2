/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats between two processes on a live fabric, on the real clock and with real threads: they
 * are kept up at short intervals while connections come and go, and a silent cut is noticed in
 * time. A device that takes seconds for a command does not silence the heartbeats of another.
 */
#include "../unit/cmocka_all.h"
#include "pair.h"

#include "base/clock.h"
#include "liveness/liveness.h"
#include "liveness/session_report.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "progress/command.h"

#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a busy machine of two cores may add to what is measured, and how often it is, as it may add
 * more. */
#define SLACK_MS 250
#define TRIES	 3

/* So long a verb of a sick device waits. What comes back before has not waited for it. */
#define WAIT	"3s"
#define WAIT_NS (3 * HA_NS_PER_S)

struct watcher {
	struct ha_live_link link;
	atomic_int ups, downs;
	_Atomic uint64_t down_ns;
};

static void went_down(struct ha_live_link *link)
{
	struct watcher *w = ha_container_of(link, struct watcher, link);

	atomic_store(&w->down_ns, ha_now_ns());
	atomic_fetch_add(&w->downs, 1);
}

static void came_up(struct ha_live_link *link)
{
	atomic_fetch_add(&ha_container_of(link, struct watcher, link)->ups, 1);
}

struct host {
	struct ha_config config;
	struct ha_device_set *set;
	struct ha_progress *progress;
	struct ha_liveness *live;
	struct ha_live_endpoint own[2], peer[2]; /* by rail; all 0: none */
	atomic_bool closed;
};

/* Opens a port. One that is well may, without a processor, not be open in time either: then once
 * more. */
static void open_port(struct host *h, int rail, bool is_well)
{
	uint64_t give_up_ns = ha_now_ns() + 20 * HA_NS_PER_S, began_ns;

	do {
		began_ns = ha_now_ns();
		(void)ha_liveness_endpoint(h->live, &h->set->ports[rail], &h->own[rail]);
		NEED(ha_now_ns() - began_ns < WAIT_NS);
	} while (is_well && h->own[rail].id == 0 && ha_now_ns() < give_up_ns);
}

/* Rails below `well` may have no endpoint. */
static void host_open(struct host *h, int peer_fd, int interval_ms, int well)
{
	const struct ha_progress_options options = {.thread = true, .idle_spin_threshold = 1};

	atomic_init(&h->closed, false);
	ha_config_load(&h->config, NULL);
	h->config.heartbeat_ms = interval_ms;
	NEED(ha_device_set_open(&h->config, &h->set) == HA_OK);
	NEED(ha_progress_start(&options, &h->progress) == HA_OK);
	h->live = ha_liveness_new(h->progress, &h->config);
	NEED(h->live);
	for (int rail = 0; rail < 2; rail++)
		open_port(h, rail, rail >= well);
	NEED(write(peer_fd, h->own, sizeof h->own) == sizeof h->own);
	NEED(read(peer_fd, h->peer, sizeof h->peer) == sizeof h->peer);
}

/* When the last command is through. */
static void close_devices(void *arg)
{
	struct host *h = arg;

	for (int i = 0; i < h->set->nnics; i++)
		NEED(h->set->nics[i].now->pd == NULL);
	ha_memory_close(h->set);
	ha_device_set_close(h->set);
	atomic_store(&h->closed, true);
}

/* The devices may be closed later, by themselves: then h must stay. */
static void host_close(struct host *h)
{
	ha_liveness_free(h->live);
	(void)ha_progress_end(h->progress, close_devices, h);
}

/* A device that is not back for a second at least is not waited for. */
static void host_close_before(struct host *h, uint64_t back_ns)
{
	bool is_early = ha_now_ns() + HA_NS_PER_S < back_ns;

	host_close(h);
	NEED(!is_early || !atomic_load(&h->closed));
}

static void watch_rail(struct host *h, int rail, struct watcher *w)
{
	memset(w, 0, sizeof *w);
	w->link.down = went_down;
	w->link.up = came_up;
	NEED(ha_liveness_attach(h->live, &h->set->ports[rail], &h->peer[rail], 0, 0, &w->link));
}

static void watch(struct host *h, struct watcher *w)
{
	watch_rail(h, 0, w);
}

static void nap_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void await(atomic_int *count, int at_least)
{
	for (int i = 0; i < 20000 && atomic_load(count) < at_least; i++)
		nap_ms(1);
	NEED(atomic_load(count) >= at_least);
}

static void say(int test_fd, char byte)
{
	NEED(write(test_fd, &byte, 1) == 1);
}

/* Connections come and go for a while; the heartbeats must not notice. */
static void come_and_go(struct host *h, struct watcher *first)
{
	uint64_t end = ha_now_ns() + HA_NS_PER_S;
	struct watcher others[8];

	while (ha_now_ns() < end) {
		for (int i = 0; i < 8; i++)
			watch(h, &others[i]);
		NEED(others[0].link.session == first->link.session);
		nap_ms(1);
		for (int i = 0; i < 8; i++) {
			ha_liveness_detach(h->live, &others[i].link);
		}
	}
	NEED(h->config.heartbeat_ms < 50 || atomic_load(&first->downs) == 0);
}

static int beating_host(int peer_fd, int test_fd, void *arg)
{
	int interval_ms = *(int *)arg;
	struct ha_session_report report;
	struct watcher w, witness;
	uint64_t down_ns;
	struct host h;
	int downs;
	char byte;

	host_open(&h, peer_fd, interval_ms, 0);
	NEED(h.own[0].id != 0 && h.own[1].id != 0);
	watch(&h, &w);
	/* The other rail, which shows that the peer is there. */
	watch_rail(&h, 1, &witness);
	await(&w.ups, 1);
	await(&witness.ups, 1);
	meet(peer_fd);
	come_and_go(&h, &w);
	ha_session_report(w.link.session, &report);
	NEED(report.pongs >= 3);
	printf("%d ms: %llu of %llu heartbeats answered, round trip mean %.0f us, p99 %.0f us\n",
	       interval_ms, (unsigned long long)report.pongs, (unsigned long long)report.pings,
	       (double)ha_hist_mean(&report.round_trips) / 1e3,
	       (double)ha_hist_quantile(&report.round_trips, 990) / 1e3);
	fflush(stdout);
	downs = atomic_load(&w.downs);
	await(&w.ups, downs + 1);
	say(test_fd, 'h');
	await(&w.downs, downs + 1);
	down_ns = atomic_load(&w.down_ns);
	NEED(write(test_fd, &down_ns, sizeof down_ns) == sizeof down_ns);
	await(&w.ups, downs + 2);
	say(test_fd, 'u');
	NEED(read(test_fd, &byte, 1) == 1);
	ha_liveness_detach(h.live, &w.link);
	ha_liveness_detach(h.live, &witness.link);
	host_close(&h);
	NEED(atomic_load(&h.closed));
	return 0;
}

/*
 * Sets what each host has shown once: that it noticed no earlier than there was a cut, as it may of
 * silence that is the machine's, and in time.
 */
static void cut_a_rail(int *interval_ms, bool in_time[2])
{
	uint64_t begun, ended, down_ns;
	struct pair pair;

	fabric_up("--hosts 2 --rails 2");
	pair_start(&pair, beating_host, beating_host, interval_ms);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'h');
	begun = ha_now_ns();
	assert_int_equal(fabric_tool("cut %s 0", fabric_name()), 0);
	ended = ha_now_ns();
	for (int who = 0; who < 2; who++) {
		assert_int_equal(read(pair.to_test[who], &down_ns, sizeof down_ns), sizeof down_ns);
		print_message("%d ms: host %d noticed %.1f to %.1f ms after the cut\n",
			      *interval_ms, who, (double)(int64_t)(down_ns - ended) / 1e6,
			      (double)(int64_t)(down_ns - begun) / 1e6);
		/* The cut was at some time while the tool ran. */
		in_time[who] |=
		    down_ns > begun &&
		    (int64_t)(down_ns - ended) <
			(int64_t)((unsigned)(3 * *interval_ms + SLACK_MS) * HA_NS_PER_MS);
	}
	assert_int_equal(fabric_tool("cut %s 0 --heal", fabric_name()), 0);
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_wait_byte(&pair, who), 'u');
	for (int who = 0; who < 2; who++)
		pair_send_byte(&pair, who, 'x');
	for (int who = 0; who < 2; who++)
		assert_int_equal(pair_join(&pair, who, 20), 0);
	fabric_down();
}

/* At the least of several: what a machine adds that gives a host no processor is not theirs. */
static void a_cut_is_noticed_in_three_intervals(void **state)
{
	static int intervals_ms[] = {10, 50, 200};

	(void)state;
	for (size_t i = 0; i < sizeof intervals_ms / sizeof intervals_ms[0]; i++) {
		bool in_time[2] = {false, false};

		for (int n = 0; n < TRIES && !(in_time[0] && in_time[1]); n++)
			cut_a_rail(&intervals_ms[i], in_time);
		assert_true(in_time[0] && in_time[1]);
	}
}

/* ---- a sick device -------------------------------------------------------------------------- */

#define BEAT_MS 50
/* So long the others are watched while a verb waits. */
#define WATCH_MS 1500

/* Host 0's device on rail 0 takes its time for a verb. */
struct sick {
	const char *rules[2]; /* of the fabric; the second may be NULL */
	bool from_the_start;  /* before anything is open */
	bool no_endpoint;     /* the port does not open in time */
	bool detaches;	      /* the last user of rail 0 goes */
	bool goes_down;
};

static const struct sick sick[] = {
    {.rules = {"wait=" WAIT " verb=create_qp host=0 rail=0"},
     .from_the_start = true,
     .no_endpoint = true},
    {.rules = {"wait=" WAIT " verb=modify_qp host=0 rail=0"},
     .from_the_start = true,
     .no_endpoint = true},
    {.rules = {"wait=" WAIT " verb=create_ah host=0 rail=0"}, .from_the_start = true},
    {.rules = {"wait=" WAIT " verb=destroy_ah host=0 rail=0"}, .detaches = true},
    {.rules = {"wait=" WAIT " verb=reset host=0 rail=0",
	       "wc=GENERAL_ERR host=0 rail=0 op=ud count=1"},
     .goes_down = true},
};

/* Comes back when the test has done what it does at this place. */
static void let_the_test(int test_fd)
{
	char byte;

	say(test_fd, 'r');
	NEED(read(test_fd, &byte, 1) == 1);
}

/* The heartbeats of rail 1 go on, both ways, and nothing stands still. */
static void rail_1_beats(struct host *h)
{
	struct ha_live_port_report before = {0}, after = {0};
	uint64_t pongs = 0, most_ns = 0, began_ns = ha_now_ns();

	NEED(ha_liveness_port_report(h->live, &h->set->ports[1], &before));
	for (uint64_t now_ns = began_ns; now_ns - began_ns < WATCH_MS * HA_NS_PER_MS;) {
		uint64_t look_ns = now_ns;

		nap_ms(1);
		NEED(ha_liveness_port_report(h->live, &h->set->ports[1], &after));
		now_ns = ha_now_ns();
		if (now_ns - look_ns > most_ns)
			most_ns = now_ns - look_ns;
	}
	pongs = after.pongs - before.pongs;
	printf(
	    "rail 1: %llu pings, %llu answered, of the peer's %llu; a look took %.1f ms at most\n",
	    (unsigned long long)(after.pings - before.pings), (unsigned long long)pongs,
	    (unsigned long long)(after.answered - before.answered), (double)most_ns / 1e6);
	fflush(stdout);
	NEED(most_ns < HA_NS_PER_S);
	NEED(pongs >= WATCH_MS / BEAT_MS / 2);
	NEED(after.answered - before.answered >= WATCH_MS / BEAT_MS / 2);
}

static void detach_in_time(struct host *h, struct watcher *w)
{
	uint64_t began_ns = ha_now_ns();

	ha_liveness_detach(h->live, &w->link);
	NEED(ha_now_ns() - began_ns < WAIT_NS);
}

static int host_of_two(int peer_fd, int test_fd, const struct sick *s, bool is_sick)
{
	static struct host h; /* outlives its closing */
	static struct watcher w[2];
	uint64_t sick_ns = ha_now_ns(); /* or later */
	bool pair;

	host_open(&h, peer_fd, BEAT_MS, s->no_endpoint ? 1 : 0);
	pair = h.own[0].id != 0 && h.peer[0].id != 0;
	NEED(pair == !s->no_endpoint);
	if (pair)
		watch_rail(&h, 0, &w[0]);
	watch_rail(&h, 1, &w[1]);
	await(&w[1].ups, 1);
	if (!s->from_the_start)
		await(&w[0].ups, 1);
	meet(peer_fd);
	if (!s->from_the_start)
		sick_ns = ha_now_ns();
	let_the_test(test_fd); /* add rules */
	meet(peer_fd);
	if (s->detaches && is_sick)
		detach_in_time(&h, &w[0]);
	rail_1_beats(&h);
	if (s->goes_down)
		await(&w[0].downs, 1);
	else if (is_sick)
		NEED(atomic_load(&w[0].downs) == 0);
	NEED(atomic_load(&w[1].ups) == 1 && atomic_load(&w[1].downs) == 0);
	meet(peer_fd);
	for (int rail = 0; rail < 2; rail++)
		detach_in_time(&h, &w[rail]);
	host_close_before(&h, is_sick ? sick_ns + WAIT_NS : 0);
	printf("host %d is closed, its devices %s\n", !is_sick,
	       atomic_load(&h.closed) ? "as well" : "later");
	fflush(stdout);
	for (int i = 0; i < 40000 && !atomic_load(&h.closed); i++)
		nap_ms(1);
	NEED(atomic_load(&h.closed));
	return 0;
}

static int sick_host(int peer_fd, int test_fd, void *arg)
{
	return host_of_two(peer_fd, test_fd, arg, true);
}

static int healthy_host(int peer_fd, int test_fd, void *arg)
{
	return host_of_two(peer_fd, test_fd, arg, false);
}

static void add_rules(const struct sick *s)
{
	for (int i = 0; i < 2 && s->rules[i]; i++)
		assert_int_equal(
		    fabric_tool("fault %s '%s' >/dev/null", fabric_name(), s->rules[i]), 0);
}

static void all_fired(const struct sick *s)
{
	json_t *status = fabric_status();

	assert_non_null(status);
	for (unsigned i = 0; i < 2 && s->rules[i]; i++)
		assert_true(status_fired(status, i) >= 1);
	json_decref(status);
}

static void a_device_that_takes_seconds_silences_no_other(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof sick / sizeof sick[0]; i++) {
		struct sick s = sick[i];
		struct pair pair;

		print_message("%s\n", s.rules[0]);
		fabric_up("--hosts 2 --rails 2");
		if (s.from_the_start)
			add_rules(&s);
		pair_start(&pair, sick_host, healthy_host, &s);
		for (int who = 0; who < 2; who++)
			assert_int_equal(pair_wait_byte(&pair, who), 'r');
		if (!s.from_the_start)
			add_rules(&s);
		for (int who = 0; who < 2; who++)
			pair_send_byte(&pair, who, 'x');
		for (int who = 0; who < 2; who++)
			assert_int_equal(pair_join(&pair, who, 60), 0);
		all_fired(&s);
		fabric_down();
	}
}

static int tidy(void **state)
{
	(void)state;
	fabric_down();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(a_cut_is_noticed_in_three_intervals, tidy),
	    cmocka_unit_test_teardown(a_device_that_takes_seconds_silences_no_other, tidy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
