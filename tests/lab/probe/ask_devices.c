/* SPDX-License-Identifier: Apache-2.0 */
/* What a device says about itself, and what it does at the limits it names. */
#include "probe.h"

#include <arpa/inet.h>
#include <errno.h>

static void ask_attributes(struct probe *probe)
{
	struct ibv_device_attr attr;

	NEED(!ibv_query_device(probe->a.ctx, &attr));
	answer("device.ports", "%d", attr.phys_port_cnt);
	answer("device.atomics", "%s", yes_no(attr.atomic_cap != IBV_ATOMIC_NONE));
	answer("device.srq", "%s", yes_no(attr.max_srq > 0));
	answer("device.node-guid", "%s", attr.node_guid ? "set" : "zero");
	/* What a connection of the plugin needs. */
	answer("device.4096-work-requests", "%s", yes_no(attr.max_qp_wr >= 4096));
	answer("device.32767-completions", "%s", yes_no(attr.max_cqe >= 32767));
	answer("device.reports-port-active", "%s",
	       yes_no(attr.device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT));
}

static void ask_port(struct probe *probe)
{
	const struct ibv_port_attr *attr = &probe->a.attr;
	struct ibv_port_attr other;

	answer("port.state", "%s", port_state_name(attr->state));
	answer("port.phys-state-is-link-up", "%s", yes_no(attr->phys_state == 5));
	answer("port.link-layer-ethernet", "%s",
	       yes_no(attr->link_layer == IBV_LINK_LAYER_ETHERNET));
	answer("port.lid", "%u", attr->lid);
	answer("port.grh-required", "%s", yes_no(attr->flags & IBV_QPF_GRH_REQUIRED));
	answer("port.speed-known", "%s", yes_no(attr->active_speed && attr->active_width));
	answer("port.mtu-4096", "%s", yes_no(attr->active_mtu == IBV_MTU_4096));
	answer("port.message-of-1-GiB", "%s", yes_no(attr->max_msg_sz >= 1u << 30));
	answer("port.query-port-0", "%s", errno_name(ibv_query_port(probe->a.ctx, 0, &other)));
	answer("port.query-port-2", "%s", errno_name(ibv_query_port(probe->a.ctx, 2, &other)));
}

static void ask_tables(struct probe *probe)
{
	uint32_t length = (uint32_t)probe->a.attr.gid_tbl_len, empty;
	struct ibv_gid_entry entry, entries[4];
	union ibv_gid gid;
	__be16 pkey = 0;
	ssize_t n;

	answer("gid.past-the-table", "%s",
	       errno_name(ibv_query_gid_ex(probe->a.ctx, 1, length, &entry, 0)));
	n = ibv_query_gid(probe->a.ctx, 1, (int)length, &gid);
	answer("gid.past-the-table.plain", "%s", n ? "refused" : "0");
	empty = port_empty_gid(&probe->a);
	n = ibv_query_gid(probe->a.ctx, 1, (int)empty, &gid);
	answer("gid.empty-entry", "%s",
	       empty == length ? "there is none"
			       : errno_name(ibv_query_gid_ex(probe->a.ctx, 1, empty, &entry, 0)));
	answer("gid.empty-entry.plain", "%s, %s", n ? "refused" : "0",
	       n || gid.global.interface_id || gid.global.subnet_prefix ? "-" : "zero");
	n = ibv_query_gid_table(probe->a.ctx, entries, 4, 0);
	answer("gid.table-lists-the-address", "%s", yes_no(n > 0));
	answer("gid.table-entry-names-its-port", "%s", yes_no(n > 0 && entries[0].port_num == 1));
	n = ibv_query_gid_ex(probe->a.ctx, 1, probe->a.gid_index, &entry, 0);
	answer("gid.entry-names-its-interface", "%s", yes_no(n == 0 && entry.ndev_ifindex != 0));
	NEED(!ibv_query_pkey(probe->a.ctx, 1, 0, &pkey));
	answer("pkey.0", "%#x", ntohs(pkey));
	answer("pkey.past-the-table", "%s",
	       ibv_query_pkey(probe->a.ctx, 1, probe->a.attr.pkey_tbl_len, &pkey) ? "refused"
										  : "0");
}

static int try_qp(struct probe *probe, const struct ibv_qp_cap *cap, struct ibv_qp_cap *given)
{
	struct ibv_cq *cq = ibv_create_cq(probe->a.ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {
	    .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = *cap};
	struct ibv_qp *qp;
	int error;

	NEED(cq);
	errno = 0;
	qp = ibv_create_qp(probe->a.pd, &init);
	error = qp ? 0 : errno;
	if (given)
		*given = init.cap;
	if (qp)
		NEED(!ibv_destroy_qp(qp));
	NEED(!ibv_destroy_cq(cq));
	return error;
}

static void ask_limits(struct probe *probe)
{
	const struct ibv_qp_cap usual = {.max_send_wr = 100,
					 .max_recv_wr = 100,
					 .max_send_sge = 1,
					 .max_recv_sge = 1,
					 .max_inline_data = 72};
	struct ibv_device_attr attr;
	struct ibv_qp_cap cap = usual, given;

	NEED(!ibv_query_device(probe->a.ctx, &attr));
	answer("limits.usual", "%s", errno_name(try_qp(probe, &usual, &given)));
	answer("limits.usual.given-at-least-that", "%s",
	       yes_no(given.max_send_wr >= 100 && given.max_recv_wr >= 100 &&
		      given.max_send_sge >= 1 && given.max_recv_sge >= 1 &&
		      given.max_inline_data >= 72));
	cap.max_send_wr = (uint32_t)attr.max_qp_wr + 1;
	answer("limits.sends-over-max", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = usual;
	cap.max_recv_wr = (uint32_t)attr.max_qp_wr + 1;
	answer("limits.receives-over-max", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = usual;
	cap.max_send_sge = (uint32_t)attr.max_sge + 1;
	answer("limits.send-sges-over-max", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = usual;
	cap.max_recv_sge = (uint32_t)attr.max_sge + 1;
	answer("limits.receive-sges-over-max", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = usual;
	cap.max_inline_data = 1 << 20;
	answer("limits.inline-of-1-MiB", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = (struct ibv_qp_cap){.max_send_wr = 4096, .max_send_sge = 1};
	answer("limits.sends-of-4096", "%s", errno_name(try_qp(probe, &cap, NULL)));
	cap = (struct ibv_qp_cap){0};
	answer("limits.no-queues", "%s", errno_name(try_qp(probe, &cap, NULL)));
}

void ask_devices(struct probe *probe)
{
	ask_attributes(probe);
	ask_port(probe);
	ask_tables(probe);
	ask_limits(probe);
}
