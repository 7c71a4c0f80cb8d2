/* SPDX-License-Identifier: Apache-2.0 */
#include "death.h"

#include "pair.h"

#include "tools/common/clock.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ENDS_NS	 (2 * NP_NS_PER_S)
#define KNOWN_NS (15 * NP_NS_PER_S)
#define MESSAGES 100 /* on each connection before */
#define FLOWS_NS (10 * NP_NS_PER_S)
#define QUIET_US 20000

static int process_of(int host)
{
	return host == BENCH_RECEIVER ? 0 : 1;
}

static bool flows(const struct bench_pair *pair)
{
	for (int c = 0; c < pair->conns; c++)
		if (atomic_load(&pair->shared->conn[c].received) < MESSAGES)
			return false;
	return true;
}

static bool wait_for_traffic(struct bench_pair *pair)
{
	uint64_t deadline = np_now_ns() + FLOWS_NS;

	while (!flows(pair)) {
		if (!bench_healthy(pair))
			return false;
		if (np_now_ns() > deadline)
			return bench_fail(pair, "no traffic");
		usleep(1000);
	}
	return true;
}

/* The kernel says that it was this signal and nothing else. */
static bool was_killed(struct bench_pair *pair, int host)
{
	pid_t *pid = &pair->processes[process_of(host)];
	uint64_t deadline = np_now_ns() + ENDS_NS;
	int status;

	while (waitpid(*pid, &status, WNOHANG) != *pid) {
		if (np_now_ns() > deadline)
			return bench_fail(pair, "refused: host %d was not killed", host);
		usleep(100);
	}
	*pid = 0;
	return (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
	       bench_fail(pair, "refused: host %d ended by itself", host);
}

/* Of the connections the last one. */
static bool wait_until_known(struct bench_pair *pair, uint64_t *last_ns)
{
	uint64_t deadline = np_now_ns() + KNOWN_NS;

	*last_ns = 0;
	for (int c = 0; c < pair->conns; c++) {
		uint64_t at;

		while (!(at = atomic_load(&pair->shared->conn[c].lost_ns))) {
			if (!bench_healthy(pair))
				return false;
			if (np_now_ns() > deadline)
				return bench_fail(pair, "connection %d had no error within %llu s",
						  c, (unsigned long long)(KNOWN_NS / NP_NS_PER_S));
			usleep(1000);
		}
		if (at > *last_ns)
			*last_ns = at;
	}
	return true;
}

static bool kill_it(struct bench_pair *pair, struct bench_death *death)
{
	uint64_t begun, last;
	int pid = atomic_load(&pair->shared->pid[death->host]);

	usleep(QUIET_US + death->quiet_us);
	atomic_store(&pair->shared->victim, death->host + 1);
	begun = np_now_ns();
	if (!death->lie && kill(pid, SIGKILL) != 0)
		return bench_fail(pair, "cannot kill process %d: %s", pid, strerror(errno));
	if (!was_killed(pair, death->host) || !wait_until_known(pair, &last))
		return false;
	death->known_ns = last - begun;
	return true;
}

bool bench_death(struct bench_death *death)
{
	struct bench_pair_options options = {.rails = 2,
					     .conns = death->conns,
					     .depth = death->depth,
					     .bytes = death->bytes,
					     .phase = BENCH_TRAFFIC,
					     .parent = death->has_child ? death->host + 1 : 0};
	struct bench_pair pair;

	if (bench_pair_open(&pair, &options) && bench_wait_connected(&pair) &&
	    wait_for_traffic(&pair))
		kill_it(&pair, death);
	bench_pair_close(&pair);
	memcpy(death->why, pair.why, sizeof(death->why));
	return !death->why[0];
}
