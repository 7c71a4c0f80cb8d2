/* SPDX-License-Identifier: Apache-2.0 */
/* What the peer must know of our end of a path, and connecting it to the peer's. */
#include "transport/path_connect.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "device/address.h"
#include "device/gid.h"
#include "device/route.h"
#include "device/unreachable.h"
#include "transport/comm.h"
#include "transport/ece.h"
#include "transport/shared.h"
#include "transport/transport.h"

#include <errno.h>
#include <string.h>

#define MIN_RNR_TIMER 12 /* 0.64 ms */
#define RNR_RETRY     7	 /* for ever: the receive queue is never the reason to give up */

#define HA_MESSAGE_LIMIT (1ull << 40) /* the most NCCL lets a plugin say */

/* ---- what the peer must know --------------------------------------------------------------- */

/* What one work request may carry. */
static uint64_t max_write(const struct ha_port *port)
{
	struct ha_incarnation *on = ha_nic_hold(port->nic);
	struct ibv_port_attr attr;
	int error = ibv_query_port(on->ctx, port->port_num, &attr);

	ha_incarnation_let_go(on);
	return error != 0 || attr.max_msg_sz == 0 ? 1u << 30 : attr.max_msg_sz;
}

size_t ha_max_message(const struct ha_port *port)
{
	/* A group of the largest messages has to fit in the send queue. */
	unsigned nqps = (unsigned)ha_config_most_qps(port->config);
	uint32_t depth = ha_queue_depth(&port->nic->attr, nqps, HA_SEND_SQ_DEPTH).send;
	uint64_t writes = depth > HA_GROUP_MAX ? (depth - 1) / HA_GROUP_MAX : 1;
	uint64_t most = writes * max_write(port);

	return most < HA_MESSAGE_LIMIT ? (size_t)most : (size_t)HA_MESSAGE_LIMIT;
}

void ha_path_endpoint(const struct ha_path *path, struct ha_wire_endpoint *out)
{
	memset(out, 0, sizeof(*out));
	out->path = path->index;
	out->generation = (uint16_t)path->generation;
	out->port_num = path->port->port_num;
	out->link_layer = path->addr.link_layer;
	out->mtu = (uint8_t)path->addr.mtu;
	out->nqps = path->nqps;
	out->lid = path->addr.lid;
	memcpy(out->gid, path->addr.gid.raw, sizeof(out->gid));
	out->guid = path->nic->guid;
	out->max_message = max_write(path->port);
	out->ring_addr = (uintptr_t)path->comm->ring;
	out->ring_rkey = path->ring_mr->rkey;
	out->ring_length = (uint32_t)path->comm->ring_length;
	out->ece = path->ece;
	ha_copy_text(out->device, sizeof(out->device), path->nic->name);
	for (unsigned i = 0; i < path->nqps; i++) {
		out->qps[i].qpn = path->qps[i].qp->qp_num;
		out->qps[i].psn = path->qps[i].local_psn;
	}
}

uint8_t ha_path_sl(const struct ha_config *config, int traffic_class)
{
	if (config->ib_sl >= 0)
		return (uint8_t)config->ib_sl;
	return traffic_class >= 0 ? (uint8_t)(traffic_class & 0xf) : 0;
}

uint8_t ha_path_tc(const struct ha_config *config, int traffic_class)
{
	if (config->ib_tc >= 0)
		return (uint8_t)config->ib_tc;
	return traffic_class >= 0 ? (uint8_t)traffic_class : 0;
}

int ha_path_sgid_index(const struct ha_path *path)
{
	struct ha_port_addr now;

	ha_port_addr(path->port, &now);
	if (path->addr.link_layer != IBV_LINK_LAYER_ETHERNET)
		return path->addr.gid_index;
	return memcmp(&now.gid, &path->addr.gid, sizeof(now.gid)) == 0 ? now.gid_index : -1;
}

void ha_path_address(const struct ha_path *path, const struct ha_wire_endpoint *remote,
		     struct ibv_ah_attr *out)
{
	struct ha_remote_addr to = {
	    .lid = remote->lid, .sl = remote->sl, .traffic_class = remote->traffic_class};

	struct ha_port_addr own = path->addr;

	own.gid_index = ha_path_sgid_index(path);
	memcpy(to.gid, remote->gid, sizeof(to.gid));
	ha_address_fill(&own, path->port->port_num, &to, out);
}

/* ---- to RTS -------------------------------------------------------------------------------- */

/*
 * One of its own for each queue pair: switches and bonds spread by it (on RoCE by the UDP source
 * port that drivers make of it). A path that is built anew has others, so what was on a bad way
 * need not be again.
 */
static uint32_t flow_label(const struct ha_qp *qp)
{
	uint32_t label = qp->local_psn * 0x9e3779b1u >> 12; /* random, as that is */

	return label != 0 ? label : 1; /* 0: none */
}

static int to_rtr(const struct ha_path *path, const struct ha_qp *qp, uint32_t qpn, uint32_t psn)
{
	const struct ha_wire_endpoint *remote = &path->remote;
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .path_mtu = path->addr.mtu < (enum ibv_mtu)remote->mtu ? path->addr.mtu
								   : (enum ibv_mtu)remote->mtu,
	    .dest_qp_num = qpn,
	    .rq_psn = psn,
	    .max_dest_rd_atomic = 1,
	    .min_rnr_timer = MIN_RNR_TIMER,
	};

	ha_path_address(path, remote, &attr.ah_attr);
	if (attr.ah_attr.is_global)
		attr.ah_attr.grh.flow_label = flow_label(qp);
	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

/* Where nothing keeps the connection alive the queue pair's time-out is NCCL's own. */
static int timeout_of(const struct ha_comm *comm)
{
	const struct ha_config *config = comm->config;

	return !ha_comm_has_failover(comm) && config->rc_timeout < config->lone_timeout_min
		   ? config->lone_timeout_min
		   : config->rc_timeout;
}

static int to_rts(const struct ha_path *path, struct ibv_qp *qp, uint32_t psn)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS,
	    .timeout = (uint8_t)timeout_of(path->comm),
	    .retry_cnt = (uint8_t)path->comm->config->rc_retry_cnt,
	    .rnr_retry = RNR_RETRY,
	    .sq_psn = psn,
	    .max_rd_atomic = 1,
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* With failover it is one of many tries, and who needs to know is told what came of them. */
static ha_result_t not_connected(const struct ha_path *path, const char *verb, int rc)
{
	if (!ha_comm_has_failover(path->comm))
		return ha_path_verb_error(path, verb, rc);
	HA_INFO_LIMITED(HA_SUBSYS_NET, "connection %s: %s failed on %s:%d: %s", path->comm->name,
			verb, path->nic->name, path->port->port_num, strerror(rc));
	return HA_ERR_SYSTEM;
}

/* What the peer's end says, and what follows from it. */
static void set_remote(struct ha_path *path, const struct ha_wire_endpoint *remote)
{
	uint64_t local_max = max_write(path->port);

	path->remote = *remote;
	path->remote_ring = remote->ring_addr;
	path->remote_rkey = remote->ring_rkey;
	path->max_message = local_max < remote->max_message ? local_max : remote->max_message;
	ha_path_set_limits(path);
}

static ha_result_t bring_up(struct ha_path *path)
{
	if (ha_path_sgid_index(path) < 0)
		return not_connected(path, "ibv_modify_qp to RTR (from the address as it was told)",
				     EADDRNOTAVAIL);
	ha_ece_set(path);
	for (unsigned i = 0; i < path->nqps; i++) {
		const struct ha_qp *qp = &path->qps[i];
		const struct ha_wire_endpoint *remote = &path->remote;
		int rc = to_rtr(path, qp, remote->qps[i].qpn, remote->qps[i].psn);

		if (rc != 0)
			return not_connected(path, "ibv_modify_qp to RTR", rc);
		rc = to_rts(path, qp->qp, qp->local_psn);
		if (rc != 0)
			return not_connected(path, "ibv_modify_qp to RTS", rc);
	}
	ha_ece_agreed(path);
	return HA_OK;
}

ha_result_t ha_path_connect(struct ha_path *path, const struct ha_wire_endpoint *remote)
{
	set_remote(path, remote);
	HA_TRY(bring_up(path));
	atomic_store(&path->state, HA_PATH_READY);
	return HA_OK;
}

/* Asking the network takes the kernel seconds, and the tables say it at once. */
static ha_result_t no_route(const struct ha_path *path)
{
	char from[HA_GID_TEXT_MAX], to[HA_GID_TEXT_MAX];
	union ibv_gid remote;

	memcpy(remote.raw, path->remote.gid, sizeof(remote.raw));
	HA_INFO_LIMITED(
	    HA_SUBSYS_NET,
	    "connection %s: the kernel has no route from %s:%d (%s) to the peer's port (%s): "
	    "not tried",
	    path->comm->name, path->nic->name, path->port->port_num,
	    ha_gid_text(&path->addr.gid, from, sizeof(from)), ha_gid_text(&remote, to, sizeof(to)));
	return HA_ERR_REMOTE;
}

/* A thread of the commands: nobody else touches the queue pairs. */
static void connect_path(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);
	const struct ha_unreachable_key key = {.port = path->port, .gid = path->remote.gid};
	struct ha_unreachable *unreachable = &path->comm->inst->unreachable;
	uint64_t began_ns = ha_now_ns();

	if (ha_unreachable_lately(unreachable, &key, began_ns)) {
		HA_TRACE(1, "connection %s: the peer's port was not found from %s:%d a moment ago",
			 path->comm->name, path->nic->name, path->port->port_num);
		path->outcome = HA_ERR_REMOTE;
		return;
	}
	if (ha_route_ask(&path->addr, path->remote.gid) == HA_ROUTE_NONE) {
		path->outcome = no_route(path);
		return;
	}
	path->outcome = bring_up(path);
	if (path->outcome != HA_OK)
		ha_unreachable_note(unreachable, &key, began_ns, ha_now_ns());
}

/* No two at once ask for one address. */
static uint64_t address_key(const struct ha_path *path)
{
	return ha_unreachable_hash(
	    &(struct ha_unreachable_key){.port = path->port, .gid = path->remote.gid});
}

bool ha_path_fits(const struct ha_path *path, const struct ha_wire_endpoint *remote)
{
	return remote->nqps == path->nqps && remote->link_layer == path->addr.link_layer;
}

void ha_path_go_on_connecting(struct ha_path *path)
{
	const struct ha_wire_endpoint remote = path->remote;

	set_remote(path, &remote);
	ha_command_go_on(&path->command, connect_path, HA_COMMAND_RESOLVE, address_key(path));
}

void ha_path_start_connecting(struct ha_path *path, const struct ha_wire_endpoint *remote)
{
	HA_INVARIANT(atomic_load(&path->state) == HA_PATH_INIT);
	HA_INVARIANT(!ha_path_away(path) && !path->carried);
	set_remote(path, remote);
	path->command.run = connect_path;
	path->command.kind = HA_COMMAND_RESOLVE;
	path->command.owner = &path->comm->poller;
	path->command.key = address_key(path);
	ha_command_send(ha_path_commands(path), &path->command);
}

bool ha_path_connecting(struct ha_path *path, ha_result_t *result)
{
	if (ha_path_away(path))
		return true;
	*result = path->outcome;
	if (path->outcome == HA_OK && atomic_load(&path->state) == HA_PATH_INIT)
		atomic_store(&path->state, HA_PATH_READY);
	return false;
}
