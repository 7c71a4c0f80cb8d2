/* SPDX-License-Identifier: Apache-2.0 */
/* Making, connecting and closing the queue pairs of a path. Fencing them is in fence.c. */
#include "transport/path.h"
#include "base/invariant.h"
#include "transport/ece.h"
#include "transport/fence.h"

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "device/address.h"
#include "device/gid.h"
#include "device/newer_verbs.h"
#include "device/route.h"
#include "device/unreachable.h"
#include "memory/mr.h"
#include "progress/progress.h"
#include "transport/async_event.h"
#include "transport/comm.h"
#include "transport/kept_path.h"
#include "transport/latency.h"
#include "transport/shared.h"
#include "transport/split.h"
#include "transport/stripe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * Inline room asked for: one clear-to-send element, or the sizes record of a full group. More
 * would make every work request of the queue larger.
 */
#define WANTED_INLINE 72

/* A refusal is a warning at most so often for each device and resource. */
#define REFUSED_TOLD_NS (60 * HA_NS_PER_S)

#define MIN_RNR_TIMER 12 /* 0.64 ms */
#define RNR_RETRY     7	 /* for ever: the receive queue is never the reason to give up */
#define PSN_MASK      0xffffffu

#define HA_MESSAGE_LIMIT (1ull << 40) /* the most NCCL lets a plugin say */

_Static_assert(WANTED_INLINE >= sizeof(struct ha_cts), "an element goes inline");

/* ---- the last of it ------------------------------------------------------------------------- */

static struct ha_commands *commands_of(const struct ha_path *path)
{
	return ha_progress_commands(path->comm->inst->progress, (unsigned)path->nic->index);
}

/* What cannot be destroyed outlives the path. */
static void forget_all(struct ha_path *path)
{
	ha_events_forget_qp(path->flush.qp);
	for (unsigned i = 0; i < path->nqps; i++)
		ha_events_forget_qp(path->qps[i].qp);
	ha_events_forget_cq(path->cq);
}

static void end_registration(struct ha_path *path)
{
	int rc = path->ring_mr ? ibv_dereg_mr(path->ring_mr) : 0;

	if (rc != 0)
		HA_TRACE(1, "ibv_dereg_mr failed on %s: %s", path->nic->name, strerror(rc));
	else
		path->ring_mr = NULL;
}

/* The path's objects. Whoever calls it has them to himself. Not `destroyed`: a queue pair lives
 * that may write where it must not. */
static void destroy_objects(struct ha_path *path)
{
	enum ha_destruction queues;
	int rc;

	if (path->destroyed)
		return;
	if (!path->flush.qp) {
		path->flush.qp = path->flush.made; /* which nobody came to use */
		path->flush.made = NULL;
	}
	queues = ha_path_destroy_queues(path);
	/* Without it there is no ring to write to, whatever has become of the queue pairs. */
	end_registration(path);
	path->destruction = (uint8_t)queues;
	if (queues != HA_DESTRUCTION_DONE && atomic_load(&path->state) != HA_PATH_FENCED)
		return;
	path->destroyed = true;
	rc = path->cq ? ibv_destroy_cq(path->cq) : 0;
	if (rc == 0)
		path->cq = NULL;
	else
		HA_TRACE(1, "ibv_destroy_cq failed on %s: %s", path->nic->name, strerror(rc));
	forget_all(path);
	if (!path->on)
		return;
	ha_incarnation_hold(path->on);
	ha_nic_pd_put(path->on);
}

/* It was destroyed, as the driver says. It is put aside before the incarnation is let go: who
 * closes that finds it. */
static void free_path(struct ha_path *path)
{
	struct ha_incarnation *on = path->on;

	ha_latency_report(path);
	ha_path_keep(path);
	if (on)
		ha_incarnation_let_go(on);
}

/* A queue pair lives that cannot be destroyed: it keeps the ring that it may still write to, and
 * all that it is made of, as long as the device is open. */
static void keep(struct ha_path *path)
{
	if (path->destruction == HA_DESTRUCTION_UNREACHABLE)
		HA_INFO(HA_SUBSYS_NET,
			"connection %s: %s is being taken away: what is left there is given back "
			"when the device is closed",
			path->comm->name, path->nic->name);
	else
		HA_WARN("connection %s: the queue pairs on %s:%d cannot be destroyed: they and the "
			"memory they may still use stay until the device is closed",
			path->comm->name, path->nic->name, path->port->port_num);
	forget_all(path);
	ha_path_keep(path);
}

static void free_or_keep(struct ha_path *path)
{
	if (path->destroyed)
		free_path(path);
	else
		keep(path);
}

/* A path that was left, when its command is through: a thread of the commands. */
static void free_left(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);

	destroy_objects(path);
	free_or_keep(path);
}

/* ---- commands ------------------------------------------------------------------------------ */

void ha_path_command(struct ha_path *path, void (*run)(struct ha_command *command),
		     enum ha_command_kind kind)
{
	path->command.run = run;
	path->command.kind = (uint8_t)kind;
	path->command.owner = &path->comm->poller;
	path->command.key = (uintptr_t)path;
	ha_command_send(commands_of(path), &path->command);
}

bool ha_path_wait(struct ha_path *path, uint64_t limit_ns)
{
	return ha_command_wait(commands_of(path), &path->command, limit_ns);
}

/* ---- set-up -------------------------------------------------------------------------------- */

static ha_result_t failed(const struct ha_path *path, const char *verb, int rc)
{
	HA_WARN("%s failed on %s:%d: %s", verb, path->nic->name, path->port->port_num,
		strerror(rc));
	return HA_ERR_SYSTEM;
}

/* A path in reserve is tried again and again; it need not be told each time. */
static bool told_lately(const struct ha_path *path, enum ha_resource resource)
{
	_Atomic uint64_t *told_ns = &path->nic->refused_ns[resource];
	uint64_t now_ns = ha_now_ns(), before_ns = atomic_load(told_ns);

	if (path->generation > 1 || path->index > 0)
		if (before_ns != 0 && now_ns - before_ns < REFUSED_TOLD_NS)
			return true;
	atomic_store(told_ns, now_ns);
	return false;
}

/* An object that the device would not make: most often it has no more of them. */
static ha_result_t refused(const struct ha_path *path, const char *verb, int rc,
			   enum ha_resource resource, int limit)
{
	const struct ha_nic *nic = path->nic;

	if (rc == EIO || atomic_load(&nic->fatal))
		return failed(path, verb, rc);
	if (told_lately(path, resource))
		HA_INFO_LIMITED(HA_SUBSYS_NET, "%s failed again on %s:%d: %s", verb, nic->name,
				path->port->port_num, strerror(rc));
	else
		HA_WARN("%s failed on %s:%d: %s; the device has %d %s (%s) for all processes "
			"together; fewer channels (NCCL_MAX_NCHANNELS) or no paths in reserve "
			"(HA_NCCL_ENABLE_BACKUP=0) take fewer%s",
			verb, nic->name, path->port->port_num, strerror(rc), limit,
			ha_resource_name(resource), ha_resource_attr(resource),
			rc == ENOMEM ? "; or " HA_RAISE_MEMLOCK : "");
	return HA_ERR_SYSTEM;
}

/* The peer may want more queue pairs than we would: it is not certain that there is room. */
static ha_result_t set_depth(struct ha_path *path, struct ha_queue_depth *depth)
{
	const struct ibv_device_attr *attr = &path->nic->attr;
	const char *lacks;

	*depth = ha_queue_depth(attr, path->nqps,
				path->comm->is_send ? HA_SEND_SQ_DEPTH : HA_RECV_SQ_DEPTH);
	lacks = ha_queue_depth_lacks(attr, depth);
	if (!lacks)
		return HA_OK;
	HA_WARN("%s:%d cannot be used with %d queue pairs per connection: %s", path->nic->name,
		path->port->port_num, path->nqps, lacks);
	return HA_ERR_SYSTEM;
}

static ha_result_t create_cq(struct ha_path *path, const struct ha_queue_depth *depth)
{
	path->cq = ibv_create_cq(path->on->ctx, (int)depth->cqes, path, NULL, 0);
	return path->cq ? HA_OK
			: refused(path, "ibv_create_cq", errno, HA_RES_CQ, path->nic->attr.max_cq);
}

/* What the peer may do. A sender reads one word, in the end-to-end mode (e2e.c). */
static unsigned peer_access(const struct ha_comm *comm)
{
	const bool is_read = !comm->is_send && comm->config->completion == HA_COMPLETION_E2E;

	return IBV_ACCESS_REMOTE_WRITE | (is_read ? (unsigned)IBV_ACCESS_REMOTE_READ : 0u);
}

static int to_init(const struct ha_path *path, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .pkey_index = atomic_load(&path->port->pkey_index),
	    .port_num = path->port->port_num,
	    .qp_access_flags = peer_access(path->comm),
	};

	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void init_refill(struct ha_path *path, unsigned index)
{
	struct ha_qp *qp = &path->qps[index];

	for (unsigned i = 0; i < HA_RQ_BATCH; i++) {
		qp->refill[i].wr_id = ha_wr_id(HA_WR_IMM, path->index, path->generation, index, 0);
		qp->refill[i].next = i + 1 < HA_RQ_BATCH ? &qp->refill[i + 1] : NULL;
	}
}

static ha_result_t fill_receive_queue(const struct ha_path *path, struct ha_qp *qp, uint32_t left)
{
	while (left != 0) {
		uint32_t batch = left < HA_RQ_BATCH ? left : HA_RQ_BATCH;
		int rc = ha_qp_refill(qp, batch);

		if (rc != 0)
			return failed(path, "ibv_post_recv", rc);
		left -= batch;
	}
	return HA_OK;
}

static ha_result_t create_qp(struct ha_path *path, unsigned index,
			     const struct ha_queue_depth *depth)
{
	struct ha_qp *qp = &path->qps[index];
	struct ibv_qp_init_attr init = {
	    .qp_context = path,
	    .send_cq = path->cq,
	    .recv_cq = path->cq,
	    .qp_type = IBV_QPT_RC,
	    .cap =
		{
		    .max_send_wr = depth->send + 1,
		    .max_recv_wr = depth->recv + 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1,
		    .max_inline_data = path->comm->config->ib_use_inline ? WANTED_INLINE : 0,
		},
	};
	int rc;

	qp->qp = ibv_create_qp(path->on->pd, &init);
	if (!qp->qp && init.cap.max_inline_data != 0) {
		init.cap.max_inline_data = 0; /* a device without */
		qp->qp = ibv_create_qp(path->on->pd, &init);
	}
	if (!qp->qp)
		return refused(path, "ibv_create_qp", errno, HA_RES_QP, path->nic->attr.max_qp);
	qp->sq_depth = depth->send;
	qp->local_psn = (uint32_t)ha_random() & PSN_MASK;
	qp->wr_base = ha_wr_id(0, path->index, path->generation, index, 0);
	qp->data_base = ha_wr_make(qp->wr_base, HA_WR_DATA, 0);
	if (index == 0 || init.cap.max_inline_data < path->max_inline)
		path->max_inline = path->comm->config->ib_use_inline ? init.cap.max_inline_data : 0;
	path->element_flags = sizeof(struct ha_cts) <= path->max_inline ? IBV_SEND_INLINE : 0;
	rc = to_init(path, qp->qp);
	if (rc != 0)
		return failed(path, "ibv_modify_qp to INIT", rc);
	init_refill(path, index);
	return fill_receive_queue(path, qp, depth->recv);
}

static ha_result_t register_ring(struct ha_path *path)
{
	/* Never relaxed: the order of the writes in a row is what the stamps rely on. */
	path->ring_mr = ha_ibv_reg_mr(path->on->pd, path->comm->ring, path->comm->ring_length,
				      (unsigned)IBV_ACCESS_LOCAL_WRITE | peer_access(path->comm));
	if (!path->ring_mr)
		return refused(path, "ibv_reg_mr (of a connection's ring)", errno, HA_RES_MR,
			       path->nic->attr.max_mr);
	path->ring_lkey = path->ring_mr->lkey;
	return HA_OK;
}

static uint64_t adaptive_routing_threshold(const struct ha_path *path)
{
	const struct ha_config *config = path->comm->config;
	int on = config->ib_adaptive_routing;

	if (on < 0)
		on = path->port->link_layer == IBV_LINK_LAYER_INFINIBAND;
	return on ? (uint64_t)config->ib_ar_threshold : UINT64_MAX;
}

/* The structure alone. */
static struct ha_path *new_path(struct ha_comm *comm, const struct ha_path_options *options)
{
	size_t size = sizeof(struct ha_path) + options->nqps * sizeof(struct ha_qp);
	struct ha_path *path = aligned_alloc(alignof(struct ha_qp), size);

	if (!path) {
		HA_WARN("out of memory for a path");
		return NULL;
	}
	memset(path, 0, size);
	path->comm = ha_comm_hold(comm);
	path->port = options->port;
	path->port_errors = atomic_load(&options->port->errors);
	path->nic = options->port->nic;
	path->nic_index = (uint8_t)path->nic->index;
	path->index = options->index;
	path->generation = options->generation;
	path->label = (uint32_t)(ha_wr_id(0, path->index, path->generation, 0, 0) >> 32);
	path->nqps = options->nqps;
	path->latency = ha_latency_new(comm, path->nqps);
	path->split =
	    comm->config->ib_split_data_on_qps && options->nqps > 1 ? HA_SPLIT_QPS : HA_SPLIT_NOT;
	path->plain = options->nqps == 1;
	path->ar_threshold = adaptive_routing_threshold(path);
	atomic_store(&path->state, HA_PATH_INIT);
	ha_list_init(&path->command.link);
	path->command.abandoned = free_left;
	return path;
}

/* Its objects. What was made of them before one fails is destroyed with the path. */
static ha_result_t make(struct ha_path *path)
{
	struct ha_queue_depth depth;

	HA_TRY(ha_nic_pd_get(path->nic, &path->on));
	HA_TRY(set_depth(path, &depth));
	HA_TRY(create_cq(path, &depth));
	HA_TRY(register_ring(path));
	for (unsigned i = 0; i < path->nqps; i++)
		HA_TRY(create_qp(path, i, &depth));
	ha_ece_offer(path);
	ha_port_addr(path->port, &path->addr);
	return HA_OK;
}

ha_result_t ha_path_open(struct ha_comm *comm, const struct ha_path_options *options,
			 struct ha_path **out)
{
	struct ha_path *path = new_path(comm, options);
	ha_result_t result;

	*out = NULL;
	if (!path)
		return HA_ERR_SYSTEM;
	result = make(path);
	if (result == HA_OK)
		*out = path;
	else
		ha_path_close(path);
	return result;
}

/* A command thread. */
static void open_path(struct ha_command *command)
{
	struct ha_path *path = ha_container_of(command, struct ha_path, command);

	path->outcome = make(path);
}

struct ha_path *ha_path_start_opening(struct ha_comm *comm, const struct ha_path_options *options)
{
	struct ha_path *path = new_path(comm, options);

	if (path)
		ha_path_command(path, open_path, HA_COMMAND_DEVICE);
	return path;
}

/* ---- exchange ------------------------------------------------------------------------------ */

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
	unsigned nqps = (unsigned)port->config->ib_qps_per_connection;
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

/* Where nothing keeps the connection alive the queue pair is as patient as NCCL's own. */
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

void ha_path_set_limits(struct ha_path *path)
{
	uint64_t most = path->max_message;

	if (path->ar_threshold < most)
		most = path->ar_threshold;
	if (path->split == HA_SPLIT_QPS && path->nqps * (uint64_t)HA_SPLIT_ALIGN - 1 < most)
		most = path->nqps * (uint64_t)HA_SPLIT_ALIGN - 1;
	if (path->split == HA_SPLIT_RAILS && HA_STRIPE_FROM - 1 < most)
		most = HA_STRIPE_FROM - 1;
	path->single_limit = most;
}

/* With failover it is one of many tries, and who needs to know is told what came of them. */
static ha_result_t not_connected(const struct ha_path *path, const char *verb, int rc)
{
	if (!ha_comm_has_failover(path->comm))
		return failed(path, verb, rc);
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

void ha_path_start_connecting(struct ha_path *path, const struct ha_wire_endpoint *remote)
{
	HA_INVARIANT(atomic_load(&path->state) == HA_PATH_INIT);
	HA_INVARIANT(!ha_path_away(path) && !path->carried);
	set_remote(path, remote);
	path->command.run = connect_path;
	path->command.kind = HA_COMMAND_RESOLVE;
	path->command.owner = &path->comm->poller;
	path->command.key = ha_unreachable_hash(
	    &(struct ha_unreachable_key){.port = path->port, .gid = path->remote.gid});
	ha_command_send(commands_of(path), &path->command);
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

/* ---- end ----------------------------------------------------------------------------------- */

/* A thread of the commands. */
static void close_path(struct ha_command *command)
{
	destroy_objects(ha_container_of(command, struct ha_path, command));
}

static void start_closing(struct ha_path *path)
{
	ha_path_command(path, close_path, HA_COMMAND_CLEAN);
}

void ha_path_free_in_background(struct ha_path *path)
{
	path->command.run = close_path;
	path->command.kind = HA_COMMAND_CLEAN;
	path->command.owner = &path->comm->inst->kept.poller; /* the connection has none any more */
	path->command.key = (uintptr_t)path;
	ha_command_send(commands_of(path), &path->command);
	ha_command_leave(commands_of(path), &path->command);
}

bool ha_path_closing(struct ha_path *path)
{
	if (ha_path_away(path))
		return true;
	if (path->destroyed) {
		free_path(path);
		return false;
	}
	if (ha_now_ns() < path->destroy_ns)
		return true;
	path->destroy_ns = ha_now_ns() + HA_FENCE_NS; /* a device that leaves refuses it for long */
	start_closing(path);
	return true;
}

/* A queue pair that could not be destroyed is tried again so often. */
#define AGAIN_NS HA_NS_PER_MS

static void pause_ns(uint64_t ns)
{
	struct timespec time = {.tv_nsec = (long)ns};

	nanosleep(&time, NULL);
}

/* Whether it becomes other by waiting, and somebody needs that. The end of a device that is being
 * taken away takes too long to wait for it where only the ring is at stake. */
static bool may_wait(const struct ha_path *path, uint64_t since_ns, uint64_t limit_ns)
{
	if (path->destruction == HA_DESTRUCTION_UNREACHABLE && !path->exposed)
		return false;
	return path->comm->inst->threads && ha_real_ns() - since_ns < limit_ns;
}

/* False: it takes too long. */
static bool closes_within(struct ha_path *path, uint64_t limit_ns)
{
	uint64_t since_ns = ha_real_ns();
	bool tried = false;

	while (ha_command_wait(commands_of(path), &path->command, limit_ns)) {
		if (path->destroyed)
			return true;
		if (tried && !may_wait(path, since_ns, limit_ns))
			return false;
		if (tried)
			pause_ns(AGAIN_NS);
		tried = true;
		start_closing(path);
	}
	return false;
}

static void leave(struct ha_path *path)
{
	if (!path->comm->left_path)
		HA_INFO(HA_SUBSYS_NET,
			"connection %s: destroying queue pairs on %s:%d takes long and is left to "
			"the background",
			path->comm->name, path->nic->name, path->port->port_num);
	path->comm->left_path = true;
	ha_command_leave(commands_of(path), &path->command);
}

/* Says so now and then, for as long as it takes. */
#define STUCK_TOLD_NS (60 * HA_NS_PER_S)

static void wait_for_exposed(struct ha_path *path)
{
	uint64_t limit_ns = path->comm->inst->threads ? STUCK_TOLD_NS : UINT64_MAX;

	do {
		HA_WARN(
		    "connection %s: the queue pairs on %s:%d neither drain nor can be destroyed "
		    "soon; closing waits, since the device may still use the memory of "
		    "requests in flight",
		    path->comm->name, path->nic->name, path->port->port_num);
	} while (!closes_within(path, limit_ns) && path->comm->inst->threads);
}

void ha_path_close(struct ha_path *path)
{
	if (!path)
		return;
	ha_command_recall(commands_of(path), &path->command); /* it need not be connected */
	if (closes_within(path, ha_command_patience_ns)) {
		free_path(path);
		return;
	}
	if (!path->exposed) {
		leave(path);
		return;
	}
	wait_for_exposed(path);
	free_or_keep(path);
}

int ha_qp_refill(struct ha_qp *qp, uint32_t n)
{
	/* The chain ends where it is told to: start in the middle for fewer. */
	struct ibv_recv_wr *first = &qp->refill[HA_RQ_BATCH - n];
	struct ibv_recv_wr *bad;

	return ibv_post_recv(qp->qp, first, &bad);
}
