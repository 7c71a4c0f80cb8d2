/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heartbeats between two processes on a live fabric, on the real clock and with real threads: they
 * are kept up at short intervals while connections come and go, and a silent cut is noticed in
 * time.
 */
#include "../unit/cmocka_all.h"
#include "pair.h"

#include "base/clock.h"
#include "liveness/liveness.h"
#include "memory/mr.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What a busy machine of two cores may add. */
#define SLACK_MS 250

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
	struct ha_live_endpoint peer[2]; /* by rail */
};

static void host_open(struct host *h, int peer_fd, int interval_ms)
{
	const struct ha_progress_options options = {.thread = true, .idle_spin_threshold = 1};
	struct ha_live_endpoint own[2];

	ha_config_load(&h->config, NULL);
	h->config.heartbeat_ms = interval_ms;
	NEED(ha_device_set_open(&h->config, &h->set) == HA_OK);
	NEED(ha_progress_start(&options, &h->progress) == HA_OK);
	h->live = ha_liveness_new(h->progress, &h->config);
	NEED(h->live);
	for (int rail = 0; rail < 2; rail++)
		NEED(ha_liveness_endpoint(h->live, &h->set->ports[rail], &own[rail]));
	NEED(write(peer_fd, own, sizeof own) == sizeof own);
	NEED(read(peer_fd, h->peer, sizeof h->peer) == sizeof h->peer);
}

static void host_close(struct host *h)
{
	ha_liveness_free(h->live);
	ha_progress_stop(h->progress);
	for (int i = 0; i < h->set->nnics; i++)
		NEED(h->set->nics[i].pd == NULL);
	ha_memory_close(h->set);
	ha_device_set_close(h->set);
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

	host_open(&h, peer_fd, interval_ms);
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
	return 0;
}

static void a_cut_is_noticed_in_three_intervals(void **state)
{
	static int intervals_ms[] = {10, 50, 200};

	(void)state;
	for (size_t i = 0; i < sizeof intervals_ms / sizeof intervals_ms[0]; i++) {
		uint64_t begun, ended, down_ns;
		int interval_ms = intervals_ms[i];
		struct pair pair;

		fabric_up("--hosts 2 --rails 2");
		pair_start(&pair, beating_host, beating_host, &intervals_ms[i]);
		for (int who = 0; who < 2; who++)
			assert_int_equal(pair_wait_byte(&pair, who), 'h');
		begun = ha_now_ns();
		assert_int_equal(fabric_tool("cut %s 0", fabric_name()), 0);
		ended = ha_now_ns();
		for (int who = 0; who < 2; who++) {
			assert_int_equal(read(pair.to_test[who], &down_ns, sizeof down_ns),
					 sizeof down_ns);
			print_message("%d ms: host %d noticed %.1f to %.1f ms after the cut\n",
				      interval_ms, who, (double)(int64_t)(down_ns - ended) / 1e6,
				      (double)(down_ns - begun) / 1e6);
			assert_true(down_ns > begun);
			/* The cut was at some time while the tool ran. */
			assert_true(
			    (int64_t)(down_ns - ended) <
			    (int64_t)((unsigned)(3 * interval_ms + SLACK_MS) * HA_NS_PER_MS));
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
