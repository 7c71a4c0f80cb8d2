/* SPDX-License-Identifier: Apache-2.0 */
/* Two hosts of a benchmark: see pair.h. */
#include "pair.h"

#include "base/stats_reader.h"
#include "tools/common/clock.h"
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

#define CONNECT_NS   (60 * NP_NS_PER_S)
#define PROTECTED_NS (30 * NP_NS_PER_S)
#define MOVED_NS     (15 * NP_NS_PER_S)

volatile sig_atomic_t bench_interrupted;

bool bench_fail(struct bench_pair *pair, const char *fmt, ...)
{
	va_list ap;

	if (pair->why[0])
		return false;
	va_start(ap, fmt);
	vsnprintf(pair->why, sizeof(pair->why), fmt, ap);
	va_end(ap);
	return false;
}

/* ---- hosts ----------------------------------------------------------------------------------- */

static bool start_host(struct bench_pair *pair, int host, pid_t *pid)
{
	char self[4096], number[8], fd[16];
	const char *argv[] = {pair->fabric.tool, "run",	 pair->fabric.name, number, "--", self,
			      "--be-host",	 number, "--shared-fd",	    fd,	    NULL};

	snprintf(number, sizeof(number), "%d", host);
	snprintf(fd, sizeof(fd), "%d", pair->shared_fd);
	if (!np_own_path(self, sizeof(self)))
		return bench_fail(pair, "cannot find my own program");
	*pid = np_spawn(argv, -1);
	if (*pid > 0)
		return true;
	*pid = 0;
	return bench_fail(pair, "cannot start host %d: %s", host, strerror(errno));
}

bool bench_healthy(struct bench_pair *pair)
{
	int host = atomic_load(&pair->shared->failed);

	if (host)
		return bench_fail(pair, "host %d: %s", host - 1, pair->shared->why);
	for (int i = 0; i <= pair->peers; i++)
		if (pair->processes[i] &&
		    waitpid(pair->processes[i], NULL, WNOHANG) == pair->processes[i]) {
			pair->processes[i] = 0;
			return bench_fail(pair, "a process of host %d died",
					  i == 0 ? BENCH_RECEIVER : BENCH_SENDER);
		}
	return !bench_interrupted || bench_fail(pair, "interrupted");
}

static void end_hosts(struct bench_pair *pair)
{
	atomic_store(&pair->shared->stop, true);
	for (int tries = 0; tries < 200; tries++) {
		bool left = false;

		for (int i = 0; i <= pair->peers; i++) {
			if (pair->processes[i] &&
			    waitpid(pair->processes[i], NULL, WNOHANG) == pair->processes[i])
				pair->processes[i] = 0;
			left |= pair->processes[i] != 0;
		}
		if (!left)
			return;
		usleep(50000);
	}
	bench_fail(pair, "a host did not close its connections within 10 s");
	for (int i = 0; i <= pair->peers; i++)
		if (pair->processes[i]) {
			kill(pair->processes[i], SIGKILL);
			waitpid(pair->processes[i], NULL, 0);
		}
}

static bool share_memory(struct bench_pair *pair)
{
	size_t bytes = sizeof(*pair->shared);

	pair->shared_fd = memfd_create("ha-bench", 0);
	if (pair->shared_fd < 0 || ftruncate(pair->shared_fd, (off_t)bytes) != 0)
		return bench_fail(pair, "no shared memory: %s", strerror(errno));
	pair->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pair->shared_fd, 0);
	if (pair->shared == MAP_FAILED) {
		pair->shared = NULL;
		return bench_fail(pair, "no shared memory: %s", strerror(errno));
	}
	return true;
}

bool bench_pair_open(struct bench_pair *pair, const struct bench_pair_options *o)
{
	struct np_fabric_options wanted = {.prefix = "bench", .hosts = 2, .rails = o->rails};
	char err[sizeof(pair->why) - 50];
	int rc;

	memset(pair, 0, sizeof(*pair));
	pair->shared_fd = -1;
	pair->conns = o->conns;
	pair->rails = o->rails;
	pair->peers = o->peers > 1 ? o->peers : 1;
	if (!np_fabric_open(&pair->fabric, &wanted, err, sizeof(err)))
		return bench_fail(pair, "no fabric: %s", err);
	rc = sv_fabric_open(pair->fabric.name, &pair->ports);
	if (rc)
		return bench_fail(pair, "cannot open the fabric: %s", strerror(-rc));
	if (!share_memory(pair))
		return false;
	pair->shared->conns = o->conns;
	pair->shared->depth = o->depth;
	pair->shared->bytes = o->bytes;
	pair->shared->peers = pair->peers;
	pair->shared->parent = o->parent;
	pair->shared->crossed = o->crossed;
	atomic_store(&pair->shared->phase, (int)o->phase);
	setenv("NCCL_SOCKET_IFNAME", "lo", 0);
	for (int i = 0; i <= pair->peers; i++)
		if (!start_host(pair, i == 0 ? BENCH_RECEIVER : BENCH_SENDER, &pair->processes[i]))
			return false;
	return true;
}

int bench_ends(const struct bench_pair *pair, int host)
{
	return host == BENCH_RECEIVER ? pair->conns : (pair->conns + pair->peers - 1) / pair->peers;
}

void bench_pair_close(struct bench_pair *pair)
{
	if (pair->shared) {
		end_hosts(pair);
		munmap(pair->shared, sizeof(*pair->shared));
	}
	if (pair->shared_fd >= 0)
		close(pair->shared_fd);
	if (pair->ports.h)
		sv_fabric_close(&pair->ports);
	np_fabric_close(&pair->fabric);
}

/* ---- what the plugin says of itself ---------------------------------------------------------- */

/* Neither port of one is a port of the other: what breaks one leaves the other. */
static bool are_disjoint(const struct nccl_ha_path_stats *a, const struct nccl_ha_path_stats *b)
{
	return a->device != b->device && a->peer_guid != b->peer_guid;
}

static void add_conn(const struct nccl_ha_conn_stats *c, struct bench_standing *to)
{
	if (to->conns == BENCH_MAX_CONNS)
		return;
	to->epoch[to->conns] = c->epoch;
	to->device[to->conns] = c->device;
	to->conns++;
	to->alarms.switches += c->failovers;
	to->alarms.suspicions += c->suspects;
	to->alarms.outages += c->outages;
	to->messages += c->messages;
	if (c->device >= 0 && c->device < BENCH_MAX_RAILS)
		to->on_rail[c->device]++;
	for (unsigned i = 0; i < NCCL_HA_MAX_PATHS; i++)
		if (i != c->active_path && c->paths[i].health == NCCL_HA_PATH_GOOD &&
		    are_disjoint(&c->paths[i], &c->paths[c->active_path])) {
			to->protected_ones++;
			break;
		}
}

bool bench_read_standing(struct bench_pair *pair, int host, struct bench_standing *to)
{
	struct ha_stats_reader reader;
	struct nccl_ha_conn_stats conn;
	struct nccl_ha_port_stats port;
	char path[80];

	memset(to, 0, sizeof(*to));
	snprintf(path, sizeof(path), "%s/%s%u/%s%u.%d", NCCL_HA_STATS_DIR, NCCL_HA_STATS_FOLDER,
		 (unsigned)geteuid(), NCCL_HA_STATS_PREFIX, (unsigned)getuid(),
		 atomic_load(&pair->shared->pid[host]));
	if (ha_stats_reader_open(&reader, path) != 0)
		return bench_fail(pair, "host %d publishes no statistics in %s", host, path);
	for (unsigned i = 0; i < reader.header.conns.count; i++)
		if (ha_stats_read_conn(&reader, i, &conn))
			add_conn(&conn, to);
	for (unsigned i = 0; i < reader.header.ports.count; i++)
		if (ha_stats_read_port(&reader, i, &port))
			to->heartbeats += port.heartbeats_sent;
	ha_stats_reader_close(&reader);
	return true;
}

/* Whether all connections of a host use one rail: then this is it. */
static bool find_rail(struct bench_pair *pair, int host, const struct bench_standing *at)
{
	for (int rail = 0; rail < pair->rails; rail++)
		if (at->on_rail[rail] == bench_ends(pair, host)) {
			pair->rail = rail;
			return true;
		}
	return false;
}

/* ---- waiting --------------------------------------------------------------------------------- */

bool bench_wait_ready(struct bench_pair *pair)
{
	uint64_t deadline = np_now_ns() + CONNECT_NS;

	while (atomic_load(&pair->shared->ready[BENCH_SENDER]) < pair->peers ||
	       !atomic_load(&pair->shared->ready[BENCH_RECEIVER])) {
		if (!bench_healthy(pair))
			return false;
		if (np_now_ns() > deadline)
			return bench_fail(pair, "the hosts did not load the plugin");
		usleep(1000);
	}
	return true;
}

bool bench_wait_connected(struct bench_pair *pair)
{
	uint64_t deadline = np_now_ns() + CONNECT_NS;

	while (atomic_load(&pair->shared->connected[0]) < pair->conns ||
	       atomic_load(&pair->shared->connected[1]) < pair->conns) {
		if (!bench_healthy(pair))
			return false;
		if (np_now_ns() > deadline)
			return bench_fail(pair, "the connections did not come up");
		usleep(10000);
	}
	return true;
}

bool bench_wait_protected(struct bench_pair *pair, int *host)
{
	uint64_t deadline = np_now_ns() + PROTECTED_NS;
	struct bench_standing at[2];

	do {
		bool ready;

		if (!bench_healthy(pair) || !bench_read_standing(pair, 0, &at[0]) ||
		    !bench_read_standing(pair, 1, &at[1]))
			return false;
		ready = at[0].protected_ones == bench_ends(pair, 0) &&
			at[1].protected_ones == bench_ends(pair, 1);
		if (ready && find_rail(pair, *host, &at[*host]))
			return true;
		if (ready && find_rail(pair, !*host, &at[!*host])) {
			*host = !*host;
			return true;
		}
		usleep(20000);
	} while (np_now_ns() < deadline);
	return bench_fail(
	    pair,
	    "after %llu s %d and %d of %d connections are protected; %d and %d of their "
	    "ends are on rail 0",
	    (unsigned long long)(PROTECTED_NS / NP_NS_PER_S), at[0].protected_ones,
	    at[1].protected_ones, pair->conns, at[0].on_rail[0], at[1].on_rail[0]);
}

/* ---- a fault --------------------------------------------------------------------------------- */

uint64_t bench_fault_begins(struct bench_pair *pair)
{
	for (int c = 0; c < pair->conns; c++)
		atomic_store(&pair->shared->conn[c].first_after_ns, 0);
	return np_now_ns();
}

void bench_fault_is_there(struct bench_pair *pair)
{
	atomic_store(&pair->shared->fault_ns, np_now_ns());
}

bool bench_wait_moved(struct bench_pair *pair)
{
	uint64_t deadline = np_now_ns() + MOVED_NS;

	for (int c = 0; c < pair->conns; c++) {
		while (!atomic_load(&pair->shared->conn[c].first_after_ns)) {
			if (!bench_healthy(pair))
				return false;
			if (np_now_ns() > deadline)
				return bench_fail(pair, "connection %d did not move within %llu s",
						  c, (unsigned long long)(MOVED_NS / NP_NS_PER_S));
			usleep(1000);
		}
	}
	return true;
}

uint64_t bench_moved_ns(const struct bench_pair *pair, int c, uint64_t begun_ns)
{
	return atomic_load(&pair->shared->conn[c].first_after_ns) - begun_ns;
}

void bench_set_link(struct bench_pair *pair, int host, bool up)
{
	sv_state_set(&pair->ports, (uint32_t)host, (uint32_t)pair->rail, SV_ANY,
		     1u << (up ? SV_FAULT_LINK_UP : SV_FAULT_LINK_DOWN));
}
