/* SPDX-License-Identifier: Apache-2.0 */
/* Breaking the fabric again and again, and taking the time. */
#include "bench.h"

#include "base/stats_reader.h"
#include "simverbs/live/state.h"
#include "tools/common/clock.h"
#include "tools/common/fabric.h"
#include "tools/common/process.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define RAILS	     2
#define CONNECT_NS   (60 * NP_NS_PER_S)
#define PROTECTED_NS (30 * NP_NS_PER_S)
#define MOVED_NS     (15 * NP_NS_PER_S)
#define QUIET_US     20000 /* between being protected and the next fault, and up to this more */
#define MAX_BURNERS  256

volatile sig_atomic_t bench_interrupted;

struct director {
	const struct bench_scenario *s;
	const struct bench_settings *settings;
	struct bench_result *result;
	struct np_fabric fabric;
	struct sv_fabric ports;
	struct bench_shared *shared;
	int shared_fd;
	pid_t hosts[2];
	int conns;
	int rail; /* that carries the traffic */
	uint64_t random;
	size_t room;
};

static bool fail(struct director *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Always false; the first reason counts. */
static bool fail(struct director *d, const char *fmt, ...)
{
	va_list ap;

	if (d->result->why[0])
		return false;
	va_start(ap, fmt);
	vsnprintf(d->result->why, sizeof(d->result->why), fmt, ap);
	va_end(ap);
	return false;
}

double bench_limit_ms(const struct bench_scenario *s, double slack)
{
	return s->notice_ms + s->goal_ms * slack;
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

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool start_host(struct director *d, int host)
{
	char self[4096], number[8], fd[16];
	const char *argv[] = {d->fabric.tool, "run",  d->fabric.name, number, "--", self,
			      "--be-host",    number, "--shared-fd",  fd,     NULL};

	snprintf(number, sizeof(number), "%d", host);
	snprintf(fd, sizeof(fd), "%d", d->shared_fd);
	if (!np_own_path(self, sizeof(self)))
		return fail(d, "cannot find my own program");
	d->hosts[host] = np_spawn(argv, -1);
	if (d->hosts[host] > 0)
		return true;
	d->hosts[host] = 0;
	return fail(d, "cannot start host %d: %s", host, strerror(errno));
}

/* False when a host has failed or died, or somebody wants an end. */
static bool healthy(struct director *d)
{
	int host = atomic_load(&d->shared->failed);

	if (host)
		return fail(d, "host %d: %s", host - 1, d->shared->why);
	for (int h = 0; h < 2; h++)
		if (d->hosts[h] && waitpid(d->hosts[h], NULL, WNOHANG) == d->hosts[h]) {
			d->hosts[h] = 0;
			return fail(d, "host %d died", h);
		}
	return !bench_interrupted || fail(d, "interrupted");
}

static void end_hosts(struct director *d)
{
	atomic_store(&d->shared->stop, true);
	for (int tries = 0; tries < 200; tries++) {
		bool left = false;

		for (int h = 0; h < 2; h++) {
			if (d->hosts[h] && waitpid(d->hosts[h], NULL, WNOHANG) == d->hosts[h])
				d->hosts[h] = 0;
			left |= d->hosts[h] != 0;
		}
		if (!left)
			return;
		usleep(50000);
	}
	fail(d, "a host did not close its connections within 10 s");
	for (int h = 0; h < 2; h++)
		if (d->hosts[h]) {
			kill(d->hosts[h], SIGKILL);
			waitpid(d->hosts[h], NULL, 0);
		}
}

/* ---- what the plugin says of itself ---------------------------------------------------------- */

/* What the connections of a host say, all together. */
struct standing {
	int conns;
	int protected_ones; /* have a healthy path that shares no port with the active one */
	int on_rail[RAILS];
	uint64_t alarms; /* switches, suspicions, outages */
	uint64_t messages;
};

/* Neither port of one is a port of the other: what breaks one leaves the other. */
static bool are_disjoint(const struct nccl_ha_path_stats *a, const struct nccl_ha_path_stats *b)
{
	return a->device != b->device && a->peer_guid != b->peer_guid;
}

static void add_conn(const struct nccl_ha_conn_stats *c, struct standing *to)
{
	to->conns++;
	to->alarms += c->failovers + c->suspects + c->outages;
	to->messages += c->messages;
	if (c->device >= 0 && c->device < RAILS)
		to->on_rail[c->device]++;
	for (unsigned i = 0; i < NCCL_HA_MAX_PATHS; i++)
		if (i != c->active_path && c->paths[i].health == NCCL_HA_PATH_GOOD &&
		    are_disjoint(&c->paths[i], &c->paths[c->active_path])) {
			to->protected_ones++;
			break;
		}
}

static bool read_standing(struct director *d, int host, struct standing *to)
{
	struct ha_stats_reader reader;
	struct nccl_ha_conn_stats conn;
	char path[80];

	memset(to, 0, sizeof(*to));
	snprintf(path, sizeof(path), "%s/%s%u.%d", NCCL_HA_STATS_DIR, NCCL_HA_STATS_PREFIX,
		 (unsigned)getuid(), atomic_load(&d->shared->pid[host]));
	if (ha_stats_reader_open(&reader, path) != 0)
		return fail(d, "host %d publishes no statistics in %s", host, path);
	for (unsigned i = 0; i < reader.header.conns.count; i++)
		if (ha_stats_read_conn(&reader, i, &conn))
			add_conn(&conn, to);
	ha_stats_reader_close(&reader);
	return true;
}

/* Whether all connections of a host use one rail: then this is it. */
static bool find_rail(struct director *d, const struct standing *at)
{
	for (int rail = 0; rail < RAILS; rail++)
		if (at->on_rail[rail] == d->conns) {
			d->rail = rail;
			return true;
		}
	return false;
}

/*
 * Until every connection has a standby at both ends and all use one rail at a host: *host if
 * possible, else the other one. (A connection may well run from one rail to another.) That rail is
 * d->rail.
 */
static bool wait_protected(struct director *d, int *host)
{
	uint64_t deadline = np_now_ns() + PROTECTED_NS;
	struct standing at[2];

	do {
		bool ready;

		if (!healthy(d) || !read_standing(d, 0, &at[0]) || !read_standing(d, 1, &at[1]))
			return false;
		ready = at[0].protected_ones == d->conns && at[1].protected_ones == d->conns;
		if (ready && find_rail(d, &at[*host]))
			return true;
		if (ready && find_rail(d, &at[!*host])) {
			*host = !*host;
			return true;
		}
		usleep(20000);
	} while (np_now_ns() < deadline);
	return fail(d,
		    "after %llu s %d and %d of %d connections are protected; %d and %d of their "
		    "ends are on rail 0",
		    (unsigned long long)(PROTECTED_NS / NP_NS_PER_S), at[0].protected_ones,
		    at[1].protected_ones, d->conns, at[0].on_rail[0], at[1].on_rail[0]);
}

static bool wait_connected(struct director *d)
{
	uint64_t deadline = np_now_ns() + CONNECT_NS;

	while (atomic_load(&d->shared->connected[0]) < d->conns ||
	       atomic_load(&d->shared->connected[1]) < d->conns) {
		if (!healthy(d))
			return false;
		if (np_now_ns() > deadline)
			return fail(d, "the connections did not come up");
		usleep(10000);
	}
	return true;
}

/* ---- one fault ------------------------------------------------------------------------------- */

static uint64_t next_random(struct director *d)
{
	d->random ^= d->random << 13;
	d->random ^= d->random >> 7;
	d->random ^= d->random << 17;
	return d->random;
}

/* Breaks the rail that is in use, or mends it. */
static void set_fault(struct director *d, int host, bool broken)
{
	if (d->s->kind == BENCH_CUT)
		sv_state_cut(&d->ports, SV_ANY, (uint32_t)d->rail, broken ? SV_CUT_BOTH : 0);
	else
		sv_state_set(&d->ports, (uint32_t)host, (uint32_t)d->rail,
			     1u << (broken ? SV_FAULT_LINK_DOWN : SV_FAULT_LINK_UP));
}

static bool keep_sample(struct director *d, double ms)
{
	struct bench_result *r = d->result;

	if (r->n == d->room) {
		size_t room = d->room ? 2 * d->room : 256;
		double *grown = realloc(r->samples_ms, room * sizeof(*grown));

		if (!grown)
			return fail(d, "out of memory");
		r->samples_ms = grown;
		d->room = room;
	}
	r->samples_ms[r->n++] = ms;
	return true;
}

/* Until every connection has had its first message from after the fault. */
static bool wait_moved(struct director *d)
{
	uint64_t deadline = np_now_ns() + MOVED_NS;

	for (int c = 0; c < d->conns; c++) {
		while (!atomic_load(&d->shared->conn[c].first_after_ns)) {
			if (!healthy(d))
				return false;
			if (np_now_ns() > deadline)
				return fail(d, "connection %d did not move within %llu s", c,
					    (unsigned long long)(MOVED_NS / NP_NS_PER_S));
			usleep(1000);
		}
	}
	return true;
}

static bool repeat(struct director *d, int host)
{
	uint64_t begun, slowest = 0;

	if (!wait_protected(d, &host))
		return false;
	/* Faults must not keep step with the plugin's timers. */
	usleep(QUIET_US +
	       (useconds_t)(next_random(d) %
			    (1000 * (unsigned)(d->s->heartbeat_ms ? d->s->heartbeat_ms : 50))));
	for (int c = 0; c < d->conns; c++)
		atomic_store(&d->shared->conn[c].first_after_ns, 0);
	begun = np_now_ns();
	set_fault(d, host, true);
	/* What is handed to the plugin from here on cannot go over the broken rail. */
	atomic_store(&d->shared->fault_ns, np_now_ns());
	if (!wait_moved(d))
		return false;
	for (int c = 0; c < d->conns; c++) {
		uint64_t ns = atomic_load(&d->shared->conn[c].first_after_ns) - begun;

		if (ns > slowest)
			slowest = ns;
		if (!d->s->all && !keep_sample(d, (double)ns / 1e6))
			return false;
	}
	if (d->s->all && !keep_sample(d, (double)slowest / 1e6))
		return false;
	if (d->settings->verbose)
		fprintf(stderr, "%s: host %d rail %d, all moved after %.2f ms\n", d->s->name, host,
			d->rail, (double)slowest / 1e6);
	atomic_store(&d->shared->fault_ns, 0);
	set_fault(d, host, false);
	d->result->repetitions++;
	return true;
}

static bool repeat_all(struct director *d)
{
	int n = d->settings->repetitions ? d->settings->repetitions : d->s->repetitions;

	for (int i = 0; i < n; i++)
		if (!repeat(d, d->s->at >= 0 ? d->s->at : i % 2))
			return false;
	return true;
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

static bool stay_quiet(struct director *d)
{
	uint64_t until = np_now_ns() + (uint64_t)(d->settings->seconds * 1e9);
	pid_t pids[MAX_BURNERS];
	struct standing at[2], before[2];
	int n = start_burners(pids);
	bool ok = read_standing(d, 0, &before[0]) && read_standing(d, 1, &before[1]);

	while (ok && np_now_ns() < until) {
		usleep(100000);
		ok = healthy(d);
	}
	stop_burners(pids, n);
	usleep(600000); /* the statistics are written a few times a second */
	if (!ok || !read_standing(d, 0, &at[0]) || !read_standing(d, 1, &at[1]))
		return false;
	for (int h = 0; h < 2; h++)
		d->result->switches += at[h].alarms - before[h].alarms;
	d->result->messages = at[1].messages - before[1].messages;
	d->result->repetitions = 1;
	if (!d->result->messages)
		return fail(d, "no message was completed");
	return !d->result->switches ||
	       fail(d, "%llu switches or suspicions where nothing was wrong",
		    (unsigned long long)d->result->switches);
}

/* ---- a scenario ------------------------------------------------------------------------------ */

static bool prepare(struct director *d)
{
	struct np_fabric_options wanted = {.prefix = "bench", .hosts = 2, .rails = RAILS};
	char err[400], text[16];
	int rc;

	if (!np_fabric_open(&d->fabric, &wanted, err, sizeof(err)))
		return fail(d, "no fabric: %s", err);
	rc = sv_fabric_open(d->fabric.name, &d->ports);
	if (rc)
		return fail(d, "cannot open the fabric: %s", strerror(-rc));
	d->shared_fd = memfd_create("ha-failover-bench", 0);
	if (d->shared_fd < 0 || ftruncate(d->shared_fd, sizeof(*d->shared)) != 0)
		return fail(d, "no shared memory: %s", strerror(errno));
	d->shared =
	    mmap(NULL, sizeof(*d->shared), PROT_READ | PROT_WRITE, MAP_SHARED, d->shared_fd, 0);
	if (d->shared == MAP_FAILED) {
		d->shared = NULL;
		return fail(d, "no shared memory: %s", strerror(errno));
	}
	d->shared->conns = d->conns;
	d->shared->depth = d->s->depth;
	d->shared->bytes = d->s->bytes;
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	unsetenv("HA_NCCL_HEARTBEAT_MS");
	if (d->s->heartbeat_ms) {
		snprintf(text, sizeof(text), "%d", d->s->heartbeat_ms);
		setenv("HA_NCCL_HEARTBEAT_MS", text, 1);
	}
	return start_host(d, BENCH_RECEIVER) && start_host(d, BENCH_SENDER);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void judge(struct director *d)
{
	struct bench_result *r = d->result;
	double goal = bench_limit_ms(d->s, d->settings->slack), is;

	if (r->n)
		qsort(r->samples_ms, r->n, sizeof(*r->samples_ms), compare);
	is = bench_quantile(r->samples_ms, r->n, strcmp(d->s->goal_of, "max") ? 0.99 : 1.0);
	if (d->s->kind != BENCH_HEALTHY && r->n && is > goal)
		fail(d, "%s is %.2f ms, the goal is %.2f ms", d->s->goal_of, is, goal);
	r->passed = !r->why[0];
}

void bench_run(const struct bench_scenario *s, const struct bench_settings *settings,
	       struct bench_result *result)
{
	struct director d = {.s = s, .settings = settings, .result = result, .shared_fd = -1};
	uint64_t begun = np_now_ns();
	int host = 0;

	memset(result, 0, sizeof(*result));
	result->scenario = s;
	d.random = 0x2545f4914f6cdd1dull;
	d.conns = settings->conns && s->conns > settings->conns ? settings->conns : s->conns;
	if (prepare(&d) && wait_connected(&d) && wait_protected(&d, &host)) {
		if (s->kind == BENCH_HEALTHY)
			stay_quiet(&d);
		else
			repeat_all(&d);
	}
	if (d.shared) {
		end_hosts(&d);
		munmap(d.shared, sizeof(*d.shared));
	}
	if (d.shared_fd >= 0)
		close(d.shared_fd);
	if (d.ports.h)
		sv_fabric_close(&d.ports);
	np_fabric_close(&d.fabric);
	result->seconds = (double)(np_now_ns() - begun) / 1e9;
	judge(&d);
}
