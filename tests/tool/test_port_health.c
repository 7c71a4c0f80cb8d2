/* SPDX-License-Identifier: Apache-2.0 */
/* Where the evidence points when a port's connections had to leave it: one process, several peers.
 */
#include "../unit/cmocka_all.h"

#include "tools/nccl-ha/port_health.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PEERS 3

/* Ports 0 and 1; of each peer one connection that NCCL asked for port 0 and its peer's port 0. */
struct host {
	struct nh_process process;
	struct nh_port ports[2];
	struct nh_conn conns[PEERS];
};

static void well(struct host *host)
{
	*host = (struct host){.process = {.live = true, .nports = 2, .nconns = PEERS}};
	host->process.ports = host->ports;
	host->process.conns = host->conns;
	for (unsigned i = 0; i < 2; i++) {
		host->ports[i].slot = i;
		host->ports[i].stats = (struct nccl_ha_port_stats){.in_use = 1,
								   .device = (int)i,
								   .port_num = 1,
								   .state = IBV_PORT_ACTIVE,
								   .guid = i,
								   .sessions = PEERS,
								   .sessions_up = PEERS};
		snprintf(host->ports[i].stats.nic, sizeof(host->ports[i].stats.nic), "nic%u", i);
	}
	for (unsigned i = 0; i < PEERS; i++) {
		struct nccl_ha_conn_stats *conn = &host->conns[i].stats;

		conn->state = NCCL_HA_CONN_ACTIVE;
		conn->paths[0] =
		    (struct nccl_ha_path_stats){.health = NCCL_HA_PATH_GOOD, .device = 0};
		conn->paths[1] =
		    (struct nccl_ha_path_stats){.health = NCCL_HA_PATH_GOOD, .device = 1};
		conn->preferred.marks =
		    NCCL_HA_PREFERRED_KNOWN | NCCL_HA_PREFERRED_READY | NCCL_HA_PREFERRED_ANSWERS;
		snprintf(conn->peer, sizeof(conn->peer), "10.0.0.%u:4711", i);
		snprintf(conn->preferred.peer_port, sizeof(conn->preferred.peer_port), "mlx5_0:1");
	}
}

/* The connection to that peer had to go to port 1. */
static void leaves(struct host *host, unsigned peer, uint32_t marks)
{
	struct nccl_ha_conn_stats *conn = &host->conns[peer].stats;

	conn->device = 1;
	conn->active_path = 1;
	conn->paths[0].health = NCCL_HA_PATH_FAILED;
	conn->preferred.marks = NCCL_HA_PREFERRED_KNOWN | marks;
	conn->preferred.left_ns = 1000 + peer;
}

static struct nh_port_health health_of(const struct host *host, int port)
{
	struct nh_port_health health;

	nh_port_health(&host->process, &host->process.ports[port], &health);
	return health;
}

static void what_nobody_hears_is_this_ports_own(void **state)
{
	struct nh_port_health health;
	struct host host;

	(void)state;
	well(&host);
	for (unsigned i = 0; i < PEERS; i++)
		leaves(&host, i, NCCL_HA_PREFERRED_SILENT);
	host.ports[0].stats.sessions_up = 0;
	health = health_of(&host, 0);
	assert_int_equal(health.health, NH_HEALTH_DEGRADED);
	assert_int_equal(health.fault, NH_FAULT_HERE);
	assert_int_equal(health.left, PEERS);
	assert_int_equal(health.since_ns, 1000);
	assert_string_equal(health.served_by, "nic1:1");
	assert_non_null(strstr(health.why, "neither 10.0.0.0 mlx5_0:1 and 2 others answer"));
	assert_int_equal(health_of(&host, 1).health, NH_HEALTH_UNPROTECTED);
	assert_int_equal(health_of(&host, 1).unprotected, PEERS);
}

static void what_all_hear_but_one_is_that_ones(void **state)
{
	struct nh_port_health health;
	struct host host;

	(void)state;
	well(&host);
	leaves(&host, 1, NCCL_HA_PREFERRED_SILENT);
	host.ports[0].stats.sessions_up = PEERS - 1;
	health = health_of(&host, 0);
	assert_int_equal(health.health, NH_HEALTH_GOOD);
	assert_int_equal(health.fault, NH_FAULT_ELSEWHERE);
	assert_int_equal(health.left, 1);
	assert_non_null(strstr(health.why, "all answer over it but 10.0.0.1 mlx5_0:1"));
	assert_int_equal(health_of(&host, 1).health, NH_HEALTH_UNPROTECTED);
}

static void a_peer_that_says_its_port_is_down_is_believed(void **state)
{
	struct nh_port_health health;
	struct host host;

	(void)state;
	well(&host);
	/* Even if it is the only one that this port has to do with. */
	host.process.nconns = 1;
	leaves(&host, 0, NCCL_HA_PREFERRED_SILENT | NCCL_HA_PREFERRED_PEER_PORT_DOWN);
	host.ports[0].stats.sessions = 1;
	host.ports[0].stats.sessions_up = 0;
	host.ports[0].stats.heartbeats_lost = 9;
	health = health_of(&host, 0);
	assert_int_equal(health.health, NH_HEALTH_GOOD);
	assert_int_equal(health.fault, NH_FAULT_ELSEWHERE);
	assert_non_null(strstr(health.why, "says that 10.0.0.0 mlx5_0:1 is down"));
}

static void with_one_peer_alone_it_may_be_anything_between(void **state)
{
	struct nh_port_health health;
	struct host host;

	(void)state;
	well(&host);
	host.process.nconns = 1;
	leaves(&host, 0, NCCL_HA_PREFERRED_SILENT);
	/* A session counts as up for a moment whenever a path is tried: that is nobody's answer. */
	for (unsigned up = 0; up < 2; up++) {
		host.ports[0].stats.sessions_up = up;
		health = health_of(&host, 0);
		assert_int_equal(health.health, NH_HEALTH_DEGRADED);
		assert_int_equal(health.fault, NH_FAULT_BETWEEN);
	}
}

static void what_the_port_says_itself_comes_first(void **state)
{
	struct host host;

	(void)state;
	well(&host);
	leaves(&host, 0, NCCL_HA_PREFERRED_PORT_DOWN | NCCL_HA_PREFERRED_PEER_PORT_DOWN);
	host.ports[0].stats.state = IBV_PORT_DOWN;
	assert_int_equal(health_of(&host, 0).fault, NH_FAULT_HERE);
	assert_int_equal(health_of(&host, 0).health, NH_HEALTH_DEGRADED);
	host.ports[0].stats.device_fatal = 1;
	assert_string_equal(health_of(&host, 0).why, "its device is dead");
	host.ports[0].stats.drained = 1;
	assert_int_equal(health_of(&host, 0).health, NH_HEALTH_DRAINED);
	/* Down since before the start, and nobody needs it. */
	well(&host);
	host.ports[1].stats.device = -1;
	host.ports[1].stats.state = IBV_PORT_DOWN;
	assert_int_equal(health_of(&host, 1).health, NH_HEALTH_UNUSED);
}

static void what_was_mended_or_meant_is_no_fault(void **state)
{
	static const uint32_t marks[] = {NCCL_HA_PREFERRED_READY, NCCL_HA_PREFERRED_ANSWERS,
					 NCCL_HA_PREFERRED_DRAINED};
	struct host host;

	(void)state;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		well(&host);
		leaves(&host, 0, marks[i]);
		host.conns[0].stats.paths[0].health = NCCL_HA_PATH_GOOD;
		host.conns[0].stats.outages = 3;
		assert_int_equal(health_of(&host, 0).health, NH_HEALTH_GOOD);
		assert_int_equal(health_of(&host, 0).left, 0);
		assert_int_equal(health_of(&host, 1).health, NH_HEALTH_GOOD);
	}
	/* Heartbeats come, and the port says that it is down: not mended. */
	leaves(&host, 0, NCCL_HA_PREFERRED_ANSWERS | NCCL_HA_PREFERRED_PEER_PORT_DOWN);
	assert_int_equal(health_of(&host, 0).left, 1);
}

static void ports_are_added_up_over_processes_and_the_worst_comes_first(void **state)
{
	struct nh_process processes[3];
	struct nh_snapshot snapshot = {.processes = processes, .nprocesses = 3};
	struct host well_off, cut, dead;
	struct nh_port_health *ports;
	size_t n;

	(void)state;
	well(&well_off);
	well(&cut);
	well(&dead);
	leaves(&cut, 2, NCCL_HA_PREFERRED_SILENT | NCCL_HA_PREFERRED_PEER_PORT_DOWN);
	for (unsigned i = 0; i < PEERS; i++)
		dead.conns[i].stats.state = NCCL_HA_CONN_ERROR;
	dead.process.live = false;
	processes[0] = well_off.process;
	processes[1] = cut.process;
	processes[2] = dead.process;
	ports = nh_ports_health(&snapshot, &n);
	assert_int_equal(n, 2);
	assert_string_equal(ports[0].name, "nic1:1");
	assert_int_equal(ports[0].health, NH_HEALTH_UNPROTECTED);
	assert_string_equal(ports[1].name, "nic0:1");
	assert_int_equal(ports[1].here, 2 * PEERS - 1);
	assert_int_equal(ports[1].left, 1);
	free(ports);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_nobody_hears_is_this_ports_own),
	    cmocka_unit_test(what_all_hear_but_one_is_that_ones),
	    cmocka_unit_test(a_peer_that_says_its_port_is_down_is_believed),
	    cmocka_unit_test(with_one_peer_alone_it_may_be_anything_between),
	    cmocka_unit_test(what_the_port_says_itself_comes_first),
	    cmocka_unit_test(what_was_mended_or_meant_is_no_fault),
	    cmocka_unit_test(ports_are_added_up_over_processes_and_the_worst_comes_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
