/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections on InfiniBand as clusters have it: ports that require a GRH, subnets behind a router,
 * partitions at another index on each port. On each of them a connection starts, carries data, is
 * watched by heartbeats, flushes, and goes on over another port.
 */
#include "failover/engine.h"
#include "failover/shared.h"
#include "harness.h"
#include "instance/instance.h"

#include "liveness/liveness.h"
#include "memory/mr.h"

#include <arpa/inet.h>

static void infiniband(struct pair *pair, uint32_t rails, uint32_t ports)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.infiniband = true;
	pair->fabric.rails = rails;
	pair->fabric.ports = ports;
}

/* A flush by the NIC of the active path, of a message that has just come. */
static void flush(struct pair *pair)
{
	const size_t offset = 0, size = 1000;
	const int tag = 1;
	void *data = pair->to.bytes;
	struct ha_request *recv, *send, *read;
	struct ha_mr *gpu;
	int got;

	assert_int_equal(ha_reg_mr(pair->recv, pair->to.bytes, 4096, HA_MEM_CUDA, 0, -1, &gpu),
			 HA_OK);
	recv = post_recv(pair, 1, &offset, &size, &tag);
	send = post_send(pair, 0, size, tag);
	assert_int_equal(pair_finish(pair, recv, &got), HA_OK);
	assert_int_equal(pair_finish(pair, send, NULL), HA_OK);
	assert_int_equal(ha_iflush(pair->recv, 1, &data, &got, &gpu, &read), HA_OK);
	assert_non_null(read);
	assert_int_equal(pair_finish(pair, read, NULL), HA_OK);
	ha_dereg_mr(pair->recv, gpu);
	assert_int_equal(pair->recv->count.failovers, pair->send->count.failovers);
}

/* All that a connection does, on the fabric of `pair`; at the end its first rail is gone. */
static void everything(struct pair *pair)
{
	pair_up(pair);
	for (uint32_t i = 0; i < 5; i++)
		transfer(pair, 1 + i * 10000, i);
	flush(pair);
	assert_int_equal(pair->recv->count.failovers, 0);
	pair_wait_standby(pair);
	pair_idle(pair, 1000); /* heartbeats are up */
	/* Nobody sends: only heartbeats can tell that the switch swallows everything. */
	sv_stepped_cut(0, true);
	pair_idle(pair, 5000);
	assert_int_equal(pair->recv->count.failovers, 1);
	for (uint32_t i = 5; i < 10; i++)
		transfer(pair, 1 + i * 10000, i);
	flush(pair);
	assert_int_equal(pair->recv->paths[pair->recv->active]->nic->index, 1);
	/* And that it is there again; then by an event. */
	sv_stepped_cut(0, false);
	pair_wait_standby(pair);
	sv_stepped_link(0, 1, false);
	for (uint32_t i = 10; i < 15; i++)
		transfer(pair, 1 + i * 10000, i);
	assert_int_equal(pair->recv->paths[pair->recv->active]->nic->index, 0);
	pair_close(pair);
}

static void ports_that_require_a_grh_get_one(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 2, 1);
	pair.fabric.grh_required = true;
	everything(&pair);
}

static void a_router_is_reached_by_the_flid(void **state)
{
	(void)state;
	for (int grh_required = 0; grh_required < 2; grh_required++) {
		struct pair pair;

		infiniband(&pair, 2, 1);
		pair.fabric.subnets = 2;
		pair.fabric.grh_required = grh_required;
		everything(&pair);
	}
}

/* That the active path's queue pair is in. */
static uint16_t partition_of(const struct ha_comm *comm)
{
	const struct ha_path *path = comm->paths[comm->active];
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	__be16 pkey;

	assert_int_equal(ibv_query_qp(path->qps[0].qp, &attr, IBV_QP_PKEY_INDEX, &init), 0);
	assert_int_equal(
	    ibv_query_pkey(path->qps[0].qp->context, attr.port_num, attr.pkey_index, &pkey), 0);
	return ntohs(pkey);
}

static void a_partition_is_used_at_whatever_index_a_port_has_it(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 2, 1);
	pair.fabric.pkeys = "0xffff,0x8001/0x8001,0xffff";
	pair.config.ib_pkey = 1;
	everything(&pair);
	assert_false(logged("artition"));
	/* What is left are ports that have it at different indices. */
	infiniband(&pair, 2, 1);
	pair.fabric.pkeys = "0xffff,0x8001/0x8001,0xffff";
	pair.config.ib_pkey = 1;
	pair_up(&pair);
	pair_wait_standby(&pair);
	sv_stepped_link(0, 0, false);
	sv_stepped_link(1, 1, false);
	for (uint32_t i = 1; i < 5; i++)
		transfer(&pair, i * 10000, i);
	assert_int_equal(pair.send->paths[pair.send->active]->nic->index, 1);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 0);
	assert_int_equal(partition_of(pair.send), 0x8001);
	assert_int_equal(partition_of(pair.recv), 0x8001);
	pair_close(&pair);
}

static void all_of_it_at_once(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 2, 1);
	pair.fabric.pkeys = "0xffff,0x8001/0x8001,0xffff";
	pair.fabric.subnets = 2;
	pair.fabric.grh_required = true;
	pair.config.ib_pkey = 1;
	pair.config.ib_qps_per_connection = 4;
	everything(&pair);
}

/* A third of the ports is in another partition: nothing is tried there. */
static void a_port_of_another_partition_is_no_standby(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 3, 1);
	pair.fabric.pkeys = "0xffff,0x8001/0xffff,0x8002/0x8001,0xffff";
	pair.config.ib_pkey = 1;
	pair_up(&pair);
	assert_logged("sim1:1 is not in partition 0x8001, which NCCL_IB_PKEY=1 is on sim0:1");
	assert_int_equal(pair.recv->failover->noffers, 2);
	pair_wait_standby(&pair);
	sv_stepped_link(1, 0, false);
	transfer(&pair, 5000, 1);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 2);
	assert_int_equal(pair.send->paths[pair.send->active]->nic->index, 2);
	pair_close(&pair);
	/* NCCL may ask for it all the same, and gets what the index stands for there. */
	infiniband(&pair, 3, 1);
	pair.fabric.pkeys = "0xffff,0x8001/0xffff,0x8002/0x8001,0xffff";
	pair.config.ib_pkey = 1;
	pair.listen_dev = pair.connect_dev = 1;
	pair_up(&pair);
	transfer(&pair, 5000, 1);
	assert_int_equal(pair.recv->failover->noffers, 1);
	pair_close(&pair);
}

static void an_index_that_no_port_has_is_said_and_index_0_used(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 2, 1);
	pair.config.ib_pkey = 4;
	everything(&pair);
	assert_logged("sim0:1 has no partition key at NCCL_IB_PKEY=4 (its table's length: 1); "
		      "using index 0 (0xffff)");
	/* The same on RoCE, where every port has one. */
	infiniband(&pair, 2, 1);
	pair.fabric.infiniband = false;
	pair.config.ib_pkey = 4;
	everything(&pair);
}

/* What is built after the subnet manager moved the partition in the table is built there. */
static void a_partition_that_moves_in_the_table_is_followed(void **state)
{
	struct pair pair;

	(void)state;
	infiniband(&pair, 2, 1);
	pair.fabric.pkeys = "0xffff,0x8001";
	pair.config.ib_pkey = 1;
	pair_up(&pair);
	pair_wait_standby(&pair);
	for (uint32_t host = 0; host < 2; host++) {
		sv_stepped_link(host, 1, false);
		sv_stepped_set_pkey(host, 1, 0, 0x8001);
		sv_stepped_set_pkey(host, 1, 1, 0xffff);
	}
	pair_idle(&pair, 1000);
	sv_stepped_link(0, 1, true);
	sv_stepped_link(1, 1, true);
	pair_wait_standby(&pair);
	sv_stepped_link(0, 0, false);
	transfer(&pair, 5000, 1);
	assert_int_equal(pair.recv->paths[pair.recv->active]->nic->index, 1);
	pair_close(&pair);
}

static struct ha_live_port_report heartbeats(const struct pair *pair, uint32_t host, uint32_t rail)
{
	struct ha_live_port_report report;

	assert_true(ha_liveness_port_report(pair->inst[host]->liveness,
					    &pair->inst[host]->devices->ports[rail], &report));
	return report;
}

/* At one end alone: what its queue pair is told then is another partition than the peer's. */
static void heartbeats_follow_a_partition_that_moves_in_the_table(void **state)
{
	(void)state;
	for (uint32_t rail = 0; rail < 2; rail++) {
		struct ha_live_port_report before;
		struct pair pair;

		infiniband(&pair, 2, 1);
		pair.fabric.pkeys = "0xffff,0x8001";
		pair.config.ib_pkey = 1;
		pair_up(&pair);
		pair_wait_standby(&pair);
		sv_stepped_set_pkey(0, rail, 0, 0x8001);
		sv_stepped_set_pkey(0, rail, 1, 0xffff);
		pair_pass(&pair, 3000);
		before = heartbeats(&pair, 0, rail);
		pair_pass(&pair, 1000);
		assert_true(heartbeats(&pair, 0, rail).pongs > before.pongs);
		assert_int_equal(heartbeats(&pair, 0, rail).lost, before.lost);
		assert_true(heartbeats(&pair, 1, rail).sessions_up > 0);
		assert_logged(
		    rail ? "sim1:1: restarted the queue pair of heartbeats for a partition"
			 : "sim0:1: restarted the queue pair of heartbeats for a partition");
		/* An error it was not. */
		assert_int_equal(heartbeats(&pair, 0, rail).restarts, 0);
		pair_wait_standby(&pair);
		transfer(&pair, 5000, 1);
		pair_close(&pair);
	}
}

/* The other port of the device is the last choice, and better than none. */
static void the_ports_of_one_device_stand_in_for_each_other(void **state)
{
	(void)state;
	for (int ethernet = 0; ethernet < 2; ethernet++) {
		struct pair pair;

		infiniband(&pair, 1, 2);
		pair.fabric.infiniband = !ethernet;
		pair.fabric.pkeys = ethernet ? NULL : "0xffff,0x8001/0x8001,0xffff";
		pair.config.ib_pkey = ethernet ? 0 : 1;
		pair_up(&pair);
		assert_int_equal(ha_instance_devices(pair.inst[0])->nnics, 1);
		assert_int_equal(ha_instance_devices(pair.inst[0])->nports, 2);
		pair_wait_standby(&pair);
		pair_idle(&pair, 1000); /* heartbeats are up */
		transfer(&pair, 5000, 1);
		sv_stepped_link(0, SV_RAIL_PORT(0, 1), false);
		for (uint32_t i = 2; i < 6; i++)
			transfer(&pair, i * 5000, i);
		assert_int_equal(pair.send->paths[pair.send->active]->port->port_num, 2);
		flush(&pair);
		sv_stepped_link(0, SV_RAIL_PORT(0, 1), true);
		pair_wait_standby(&pair);
		sv_stepped_link(1, SV_RAIL_PORT(0, 2), false);
		for (uint32_t i = 6; i < 10; i++)
			transfer(&pair, i * 5000, i);
		assert_int_equal(pair.recv->paths[pair.recv->active]->port->port_num, 1);
		pair_close(&pair);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(ports_that_require_a_grh_get_one),
	    cmocka_unit_test(a_router_is_reached_by_the_flid),
	    cmocka_unit_test(a_partition_is_used_at_whatever_index_a_port_has_it),
	    cmocka_unit_test(all_of_it_at_once),
	    cmocka_unit_test(a_port_of_another_partition_is_no_standby),
	    cmocka_unit_test(an_index_that_no_port_has_is_said_and_index_0_used),
	    cmocka_unit_test(a_partition_that_moves_in_the_table_is_followed),
	    cmocka_unit_test(heartbeats_follow_a_partition_that_moves_in_the_table),
	    cmocka_unit_test(the_ports_of_one_device_stand_in_for_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
