/* SPDX-License-Identifier: Apache-2.0 */
/* Breaking the fabric again and again, and taking the time. */
#include "breakage.h"
#include "death.h"
#include "usage.h"

#include "tools/common/clock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIET_US	     20000 /* between being protected and the next fault, and up to this more */
#define DEFAULT_HEARTBEAT_MS 200
#define MAX_BURNERS	     256

struct director {
	const struct bench_scenario *s;
	const struct bench_settings *settings;
	struct bench_result *result;
	struct bench_pair pair;
	uint64_t random;
	size_t room;
};

double bench_limit_ms(const struct bench_scenario *s, const struct bench_goal *goal, double slack)
{
	return s->notice_ms + goal->ms * slack;
}

double bench_goal_is_ms(const struct bench_goal *goal, const double *sorted, size_t n)
{
	static const struct {
		const char *of;
		double q;
	} quantiles[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}};

	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		if (!strcmp(goal->of, quantiles[i].of))
			return bench_quantile(sorted, n, quantiles[i].q);
	abort(); /* no such word */
}

double bench_quantile(const double *sorted, size_t n, double q)
{
	size_t rank = (size_t)(q * (double)n);

	if (!n)
		return 0;
	if ((double)rank < q * (double)n)
		rank++;
	return sorted[rank ? rank - 1 : 0];
}

/* ---- one fault ------------------------------------------------------------------------------- */

static uint64_t next_random(struct director *d)
{
	d->random ^= d->random << 13;
	d->random ^= d->random >> 7;
	d->random ^= d->random << 17;
	return d->random;
}

static bool keep_sample(struct director *d, double ms)
{
	struct bench_result *r = d->result;

	if (r->n == d->room) {
		size_t room = d->room ? 2 * d->room : 256;
		double *grown = realloc(r->samples_ms, room * sizeof(*grown));

		if (!grown)
			return bench_fail(&d->pair, "out of memory");
		r->samples_ms = grown;
		d->room = room;
	}
	r->samples_ms[r->n++] = ms;
	return true;
}

/* Faults must not keep step with the plugin's timers. */
static void wait_a_while(struct director *d)
{
	unsigned most_ms = d->s->kind == BENCH_CUT ? DEFAULT_HEARTBEAT_MS : 50;

	if (d->s->heartbeat_ms)
		most_ms = (unsigned)d->s->heartbeat_ms;
	usleep(QUIET_US + (useconds_t)(next_random(d) % (1000 * most_ms)));
}

/* One sample for each connection, or for the slowest. */
static bool keep_moves(struct director *d, uint64_t begun, int host)
{
	uint64_t slowest = 0;

	for (int c = 0; c < d->pair.conns; c++) {
		uint64_t ns = bench_moved_ns(&d->pair, c, begun);

		if (ns > slowest)
			slowest = ns;
		if (!d->s->all && !keep_sample(d, (double)ns / 1e6))
			return false;
	}
	if (d->s->all && !keep_sample(d, (double)slowest / 1e6))
		return false;
	if (d->settings->verbose)
		fprintf(stderr, "%s: host %d rail %d, all moved after %.2f ms\n", d->s->name, host,
			d->pair.rail, (double)slowest / 1e6);
	return true;
}

static bool repeat(struct director *d, int host)
{
	struct bench_breakage b = {.pair = &d->pair, .kind = d->s->kind, .lie = d->settings->lie};
	uint64_t begun;
	bool moved;

	if (!bench_wait_protected(&d->pair, &host))
		return false;
	wait_a_while(d);
	b.host = host;
	if (!bench_breakage_prepare(&b))
		return false;
	begun = bench_fault_begins(&d->pair);
	moved = bench_breakage_begin(&b);
	bench_fault_is_there(&d->pair);
	moved = moved && bench_wait_moved(&d->pair) && bench_breakage_happened(&b);
	atomic_store(&d->pair.shared->fault_ns, 0);
	bench_breakage_mend(&b);
	if (!moved || !bench_breakage_was_noticed(&b) || !keep_moves(d, begun, host))
		return false;
	d->result->repetitions++;
	d->result->same_port += b.same_port;
	return true;
}

static bool die(struct director *d, int i)
{
	struct bench_death death = {.conns = d->s->conns,
				    .depth = d->s->depth,
				    .bytes = d->s->bytes,
				    .host = i % 2,
				    .has_child = (i ^ i / 2) & 1,
				    .lie = d->settings->lie,
				    .quiet_us = (useconds_t)(next_random(d) % 50000)};

	if (!bench_death(&death))
		return bench_fail(&d->pair, "%s", death.why);
	if (d->settings->verbose)
		fprintf(stderr, "%s: host %d%s, known to all after %.2f ms\n", d->s->name,
			death.host, death.has_child ? ", with a child that lives" : "",
			(double)death.known_ns / 1e6);
	d->result->repetitions++;
	return keep_sample(d, (double)death.known_ns / 1e6);
}

int bench_repetitions(const struct bench_scenario *s, const struct bench_settings *settings)
{
	if (settings->repetitions)
		return settings->repetitions;
	return settings->quick && s->quick ? s->quick : s->repetitions;
}

static bool repeat_all(struct director *d)
{
	int n = bench_repetitions(d->s, d->settings);
	bool ok = true;

	for (int i = 0; ok && i < n; i++)
		ok = d->s->kind == BENCH_DEATH ? die(d, i)
					       : repeat(d, d->s->at >= 0 ? d->s->at : i % 2);
	return ok;
}

/* ---- no fault at all ------------------------------------------------------------------------- */

/* A busy process for every processor, at the same priority as the hosts. */
static int start_burners(pid_t *pids)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t parent = getpid();
	int started = 0;

	if (n > MAX_BURNERS)
		n = MAX_BURNERS;
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			signal(SIGTERM, SIG_DFL);
			for (volatile unsigned long turn = 0;; turn++)
				if (turn % 1000000 == 0 && getppid() != parent)
					_exit(0);
		}
		if (pid > 0)
			pids[started++] = pid;
	}
	return started;
}

static void stop_burners(const pid_t *pids, int n)
{
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < n; i++)
		waitpid(pids[i], NULL, 0);
}

static void add_alarms(struct bench_alarms *to, const struct bench_alarms *now,
		       const struct bench_alarms *before)
{
	to->switches += now->switches - before->switches;
	to->suspicions += now->suspicions - before->suspicions;
	to->outages += now->outages - before->outages;
}

static bool stay_quiet(struct director *d)
{
	const struct bench_alarms *alarms = &d->result->alarms;
	uint64_t until = np_now_ns() + (uint64_t)(d->settings->seconds * 1e9);
	pid_t pids[MAX_BURNERS];
	struct bench_standing at[2], before[2];
	int n = start_burners(pids);
	bool ok = bench_read_standing(&d->pair, 0, &before[0]) &&
		  bench_read_standing(&d->pair, 1, &before[1]);

	while (ok && np_now_ns() < until) {
		usleep(100000);
		ok = bench_healthy(&d->pair);
	}
	stop_burners(pids, n);
	usleep(600000); /* the statistics are written a few times a second */
	if (!ok || !bench_read_standing(&d->pair, 0, &at[0]) ||
	    !bench_read_standing(&d->pair, 1, &at[1]))
		return false;
	for (int h = 0; h < 2; h++)
		add_alarms(&d->result->alarms, &at[h].alarms, &before[h].alarms);
	d->result->messages = at[1].messages - before[1].messages;
	d->result->repetitions = 1;
	if (!d->result->messages)
		return bench_fail(&d->pair, "no message was completed");
	return !(alarms->switches + alarms->suspicions + alarms->outages) ||
	       bench_fail(
		   &d->pair, "%llu switches, %llu suspicions, %llu outages where nothing was wrong",
		   (unsigned long long)alarms->switches, (unsigned long long)alarms->suspicions,
		   (unsigned long long)alarms->outages);
}

/* ---- a scenario ------------------------------------------------------------------------------ */

static void set_heartbeats(const struct bench_scenario *s)
{
	char text[16];

	unsetenv("HA_NCCL_HEARTBEAT_MS");
	if (s->heartbeat_ms) {
		snprintf(text, sizeof(text), "%d", s->heartbeat_ms);
		setenv("HA_NCCL_HEARTBEAT_MS", text, 1);
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void judge(struct director *d)
{
	struct bench_result *r = d->result;

	r->refused = d->pair.why[0] != 0;
	if (r->n)
		qsort(r->samples_ms, r->n, sizeof(*r->samples_ms), compare);
	for (int i = 0; r->n && i < BENCH_MAX_GOALS && d->s->goals[i].of; i++) {
		const struct bench_goal *goal = &d->s->goals[i];
		double is = bench_goal_is_ms(goal, r->samples_ms, r->n);
		double limit = bench_limit_ms(d->s, goal, d->settings->slack);

		if (is > limit)
			bench_fail(&d->pair, "%s is %.2f ms, the goal is %.2f ms", goal->of, is,
				   limit);
	}
	memcpy(r->why, d->pair.why, sizeof(r->why));
	r->passed = !r->why[0];
}

static void run_on_one_pair(struct director *d)
{
	const struct bench_scenario *s = d->s;
	int most = d->settings->conns, host = 0;
	struct bench_pair_options options = {.rails = 2,
					     .conns = most && s->conns > most ? most : s->conns,
					     .depth = s->depth,
					     .bytes = s->bytes,
					     .phase = BENCH_TRAFFIC,
					     .crossed = s->crossed};

	if (bench_pair_open(&d->pair, &options) && bench_wait_connected(&d->pair) &&
	    bench_wait_protected(&d->pair, &host)) {
		if (s->kind == BENCH_HEALTHY)
			stay_quiet(d);
		else if (s->crossed)
			repeat(d, d->result->repetitions % 2);
		else
			repeat_all(d);
	}
	bench_pair_close(&d->pair);
}

/* The rails do not cross any more after a fault. */
static void run_crossed(struct director *d)
{
	int n = bench_repetitions(d->s, d->settings);

	for (int i = 0; i < n && !d->pair.why[0]; i++)
		run_on_one_pair(d);
}

void bench_run(const struct bench_scenario *s, const struct bench_settings *settings,
	       struct bench_result *result)
{
	struct director d = {.s = s, .settings = settings, .result = result};
	uint64_t begun = np_now_ns(), stolen = bench_stolen_ns();

	memset(result, 0, sizeof(*result));
	result->scenario = s;
	d.random = 0x2545f4914f6cdd1dull;
	set_heartbeats(s);
	if (s->kind == BENCH_DEATH)
		repeat_all(&d); /* each with a pair of its own */
	else if (s->crossed)
		run_crossed(&d);
	else
		run_on_one_pair(&d);
	result->seconds = (double)(np_now_ns() - begun) / 1e9;
	result->stolen_ms = (double)(bench_stolen_ns() - stolen) / 1e6;
	judge(&d);
}
