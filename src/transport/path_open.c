/* SPDX-License-Identifier: Apache-2.0 */
/* Making one end of a path: completion queue, queue pairs, the ring's registration. */
#include "transport/path_open.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "device/newer_verbs.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "transport/comm.h"
#include "transport/ece.h"
#include "transport/latency.h"
#include "transport/path_close.h"
#include "transport/path_connect.h"
#include "transport/rings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Inline room asked for: one clear-to-send element, or the sizes record of a full group. More
 * would make every work request of the queue larger.
 */
#define WANTED_INLINE 72

/* A refusal is a warning at most so often for each device and resource. */
#define REFUSED_TOLD_NS (60 * HA_NS_PER_S)

#define PSN_MASK 0xffffffu

_Static_assert(WANTED_INLINE >= sizeof(struct ha_cts), "an element goes inline");

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
		return ha_path_verb_error(path, verb, rc);
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
			return ha_path_verb_error(path, "ibv_post_recv", rc);
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
		return ha_path_verb_error(path, "ibv_modify_qp to INIT", rc);
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
	if (options->remote) {
		path->remote = *options->remote;
		path->connects = true;
	}
	atomic_store(&path->state, HA_PATH_INIT);
	ha_list_init(&path->command.link);
	path->command.abandoned = ha_path_free_left;
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
	path->connects &= path->outcome == HA_OK && ha_path_fits(path, &path->remote) &&
			  atomic_load(&path->state) == HA_PATH_INIT;
	if (path->connects)
		ha_path_go_on_connecting(path);
}

struct ha_path *ha_path_start_opening(struct ha_comm *comm, const struct ha_path_options *options)
{
	struct ha_path *path = new_path(comm, options);

	if (path)
		ha_path_command(path, open_path, HA_COMMAND_DEVICE);
	return path;
}
