/* SPDX-License-Identifier: Apache-2.0 */
/* One point of the scaling curves. */
#include "scale.h"

#include "pair.h"
#include "tools/common/clock.h"
#include "usage.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEPTH	  2
#define BYTES	  4096
#define BATCH	  16	 /* connections whose set-up is looked at together */
#define SETTLE_S  1	 /* before idleness is measured: the last statistics, the last probes */
#define WINDOW_S  1.0	 /* of idleness, looked at by itself */
#define TIMEOUT_S 20	 /* for a quiet second */
#define QUIET_US  100000 /* between being protected and a fault */

/* What the hosts took at some moment. */
struct reading {
	struct bench_usage host[2];
};

static bool read_both(struct bench_pair *pair, struct reading *to)
{
	for (int h = 0; h < 2; h++)
		if (!bench_usage_read(atomic_load(&pair->shared->pid[h]), &to->host[h]))
			return bench_fail(pair, "cannot see what host %d takes: %s", h,
					  strerror(errno));
	return true;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* ---- set-up ---------------------------------------------------------------------------------- */

/* The least that a batch of connections in [first, end) took, by connection. */
static double cheapest_us(const struct bench_pair *pair, int first, int end, uint64_t begun_ns)
{
	double least = 0;

	for (int c = first; c + BATCH <= end; c += BATCH) {
		uint64_t from = c ? atomic_load(&pair->shared->conn[c - 1].up_ns) : begun_ns;
		uint64_t to = atomic_load(&pair->shared->conn[c + BATCH - 1].up_ns);
		double us = (double)(to - from) / 1e3 / BATCH;

		if (least == 0 || us < least)
			least = us;
	}
	return least;
}

static bool connect_all(struct bench_pair *pair, struct scale_point *p, struct reading *before)
{
	struct reading after;
	uint64_t begun, cpu = 0, plugin = 0;
	int n = pair->conns;

	if (!bench_wait_ready(pair) || !read_both(pair, before))
		return false;
	begun = np_now_ns();
	atomic_store(&pair->shared->phase, BENCH_CONNECT);
	if (!bench_wait_connected(pair) || !read_both(pair, &after))
		return false;
	for (int h = 0; h < 2; h++) {
		cpu += after.host[h].cpu_ns - before->host[h].cpu_ns;
		plugin += after.host[h].plugin_ns - before->host[h].plugin_ns;
	}
	p->setup_s = (double)(atomic_load(&pair->shared->conn[n - 1].up_ns) - begun) / 1e9;
	p->setup_us = p->setup_s * 1e6 / n;
	p->setup_cpu_us = (double)cpu / 1e3 / n;
	p->setup_plugin_us = (double)plugin / 1e3 / n;
	p->setup_first_us = cheapest_us(pair, 0, n / 4, begun);
	p->setup_last_us = cheapest_us(pair, n - n / 4, n, begun);
	return true;
}

static bool protect_all(struct bench_pair *pair, struct scale_point *p)
{
	uint64_t begun = np_now_ns();
	int host = BENCH_SENDER;

	if (!p->ha)
		return true;
	if (!bench_wait_protected(pair, &host))
		return false;
	p->protected_s = (double)(np_now_ns() - begun) / 1e9;
	return true;
}

/* ---- what it takes --------------------------------------------------------------------------- */

static bool weigh(struct bench_pair *pair, struct scale_point *p, const struct reading *before)
{
	struct reading now;

	if (!read_both(pair, &now))
		return false;
	for (int h = 0; h < 2; h++) {
		const struct bench_usage *b = &before->host[h], *a = &now.host[h];
		int ends = bench_ends(pair, h);

		p->memory_kib =
		    larger(p->memory_kib, (double)(a->memory_kib - b->memory_kib) / ends);
		p->fds = larger(p->fds, (double)(a->fds - b->fds) / ends);
		p->memory_base_kib = larger(p->memory_base_kib, (double)b->memory_kib);
		p->fds_base = larger(p->fds_base, (double)b->fds);
	}
	return true;
}

static bool read_standings(struct bench_pair *pair, struct bench_standing to[2])
{
	return bench_read_standing(pair, 0, &to[0]) && bench_read_standing(pair, 1, &to[1]);
}

/* The share of a core that the plugin's thread took between two readings, in the process where it
 * is larger. */
static double plugin_percent(const struct reading *before, const struct reading *after)
{
	double percent = 0;

	for (int h = 0; h < 2; h++) {
		const struct bench_usage *b = &before->host[h], *a = &after->host[h];

		percent = larger(percent, 100 * (double)(a->plugin_ns - b->plugin_ns) /
					      (double)(a->at_ns - b->at_ns));
	}
	return percent;
}

static bool watched_enough(const struct scale_point *p, const struct scale_settings *settings,
			   double seconds)
{
	if (seconds < settings->idle_s)
		return false;
	return settings->quiet_percent <= 0 || p->idle_least <= settings->quiet_percent ||
	       seconds >= TIMEOUT_S;
}

/* Window by window, from `before` on; the last reading is left in `after`. */
static bool watch_windows(struct bench_pair *pair, struct scale_point *p,
			  const struct scale_settings *settings, const struct reading *before,
			  struct reading *after)
{
	struct reading last = *before;

	for (double seconds = 0; !watched_enough(p, settings, seconds); seconds += WINDOW_S) {
		double percent;

		usleep((useconds_t)(1e6 * WINDOW_S));
		if (!bench_healthy(pair) || !read_both(pair, after))
			return false;
		percent = plugin_percent(&last, after);
		if (seconds == 0 || percent < p->idle_least)
			p->idle_least = percent;
		last = *after;
	}
	return true;
}

static bool watch_idle(struct bench_pair *pair, struct scale_point *p,
		       const struct scale_settings *settings)
{
	struct bench_standing then[2], now[2];
	struct reading before, after;

	if (settings->idle_s <= 0)
		return true;
	sleep(SETTLE_S);
	if (!read_both(pair, &before) || !read_standings(pair, then) ||
	    !watch_windows(pair, p, settings, &before, &after) || !read_standings(pair, now))
		return false;
	p->idle_plugin = plugin_percent(&before, &after);
	for (int h = 0; h < 2; h++) {
		const struct bench_usage *b = &before.host[h], *a = &after.host[h];
		double ns = (double)(a->at_ns - b->at_ns) / 100;

		p->heartbeats = larger(p->heartbeats,
				       (double)(now[h].heartbeats - then[h].heartbeats) * 1e7 / ns);
		p->idle_process = larger(p->idle_process, (double)(a->cpu_ns - b->cpu_ns) / ns);
	}
	return true;
}

/* ---- all of them move ------------------------------------------------------------------------ */

static bool break_once(struct bench_pair *pair, struct scale_point *p, int host)
{
	struct reading before, after;
	uint64_t begun, slowest = 0;
	double cpu_us = 0;

	if (!bench_wait_protected(pair, &host))
		return false;
	usleep(QUIET_US);
	if (!read_both(pair, &before))
		return false;
	begun = bench_fault_begins(pair);
	bench_set_link(pair, host, false);
	bench_fault_is_there(pair);
	if (!bench_wait_moved(pair) || !read_both(pair, &after))
		return false;
	for (int h = 0; h < 2; h++)
		cpu_us += (double)(after.host[h].plugin_ns - before.host[h].plugin_ns) / 1e3;
	cpu_us /= pair->conns;
	if (p->failover_cpu_us == 0 || cpu_us < p->failover_cpu_us)
		p->failover_cpu_us = cpu_us;
	for (int c = 0; c < pair->conns; c++)
		if (bench_moved_ns(pair, c, begun) > slowest)
			slowest = bench_moved_ns(pair, c, begun);
	atomic_store(&pair->shared->fault_ns, 0);
	bench_set_link(pair, host, true);
	p->failover_ms[p->nfailovers++] = (double)slowest / 1e6;
	return true;
}

static bool break_often(struct bench_pair *pair, struct scale_point *p, int faults)
{
	if (!p->ha || faults < 1)
		return true;
	p->failover_ms = calloc((size_t)faults, sizeof(*p->failover_ms));
	if (!p->failover_ms)
		return bench_fail(pair, "out of memory");
	atomic_store(&pair->shared->phase, BENCH_TRAFFIC);
	for (int i = 0; i < faults; i++)
		if (!break_once(pair, p, i % 2))
			return false;
	return true;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double scale_median_ms(const struct scale_point *p)
{
	return p->nfailovers ? p->failover_ms[p->nfailovers / 2] : 0;
}

bool scale_measure(int conns, bool ha, const struct scale_settings *settings, struct scale_point *p)
{
	struct bench_pair_options options = {.rails = settings->rails,
					     .peers = settings->peers,
					     .conns = conns,
					     .depth = DEPTH,
					     .bytes = BYTES,
					     .phase = BENCH_LOAD};
	struct bench_pair pair;
	struct reading before;

	memset(p, 0, sizeof(*p));
	p->conns = conns;
	p->peers = settings->peers;
	p->ha = ha;
	setenv("HA_NCCL_ENABLE_BACKUP", ha ? "1" : "0", 1);
	if (bench_pair_open(&pair, &options) && connect_all(&pair, p, &before) &&
	    protect_all(&pair, p) && weigh(&pair, p, &before) && watch_idle(&pair, p, settings))
		break_often(&pair, p, settings->faults);
	bench_pair_close(&pair);
	memcpy(p->why, pair.why, sizeof(p->why));
	if (p->nfailovers)
		qsort(p->failover_ms, (size_t)p->nfailovers, sizeof(*p->failover_ms), compare);
	return !p->why[0];
}
