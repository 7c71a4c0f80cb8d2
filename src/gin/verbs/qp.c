/* SPDX-License-Identifier: Apache-2.0 */
#include "gin/verbs/qp.h"

#include "base/clock.h"
#include "base/random.h"
#include "device/address.h"
#include "memory/mr.h"
#include "memory/pd.h"
#include "transport/path.h"
#include "transport/path_connect.h"
#include "transport/transport.h"

#include <string.h>

#define PSN_MASK      0xffffffu
#define MIN_RNR_TIMER 12
#define RNR_RETRY     0	 /* a notice without a receive is a bug at one end */
#define MAX_ATOMICS   16 /* and reads, of a loopback, under way at a time */

static ha_result_t fail(struct ha_gin_qp *qp, const char *why)
{
	if (!qp->fault)
		qp->fault = why;
	return HA_ERR_SYSTEM;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Each queue has room for its sentinel beside. */
static ha_result_t make_queues(struct ha_gin_qp *qp, const struct ha_gin_depth *depth)
{
	struct ibv_qp_init_attr init = {
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = depth->sends + 1,
		    .max_recv_wr = depth->recvs + 1,
		    .max_send_sge = 1,
		    .max_recv_sge = 1,
		    .max_inline_data = depth->max_inline},
	};

	/* Without contexts: those of queues that have any are paths to who reads their events. */
	qp->cq = ibv_create_cq(qp->on->ctx, (int)(depth->sends + depth->recvs + 2), NULL, NULL, 0);
	if (!qp->cq)
		return fail(qp, "ibv_create_cq");
	init.send_cq = init.recv_cq = qp->cq;
	qp->qp = ibv_create_qp(qp->on->pd, &init);
	return qp->qp ? HA_OK : fail(qp, "ibv_create_qp");
}

static ha_result_t to_init(struct ha_gin_qp *qp)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .pkey_index = atomic_load(&qp->port->pkey_index),
	    .port_num = qp->port->port_num,
	    .qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	const int rc = ibv_modify_qp(
	    qp->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	return rc ? fail(qp, "ibv_modify_qp to INIT") : HA_OK;
}

static ha_result_t make(struct ha_gin_qp *qp, const struct ha_gin_depth *depth)
{
	HA_TRY(make_queues(qp, depth));
	return to_init(qp);
}

ha_result_t ha_gin_qp_open(struct ha_gin_qp *qp, struct ha_port *port,
			   const struct ha_gin_depth *depth)
{
	ha_result_t result;

	*qp = (struct ha_gin_qp){.port = port, .psn = (uint32_t)ha_random() & PSN_MASK};
	result = ha_nic_pd_get(port->nic, &qp->on);
	if (result != HA_OK)
		return fail(qp, "ibv_alloc_pd");
	result = make(qp, depth);
	if (result != HA_OK)
		ha_gin_qp_discard(qp);
	return result;
}

void ha_gin_qp_address(const struct ha_gin_qp *qp, struct ha_gin_address *out)
{
	struct ha_port_addr own;

	ha_port_addr(qp->port, &own);
	*out = (struct ha_gin_address){
	    .qpn = qp->qp->qp_num, .psn = qp->psn, .lid = own.lid, .mtu = (uint8_t)own.mtu};
	memcpy(out->gid, own.gid.raw, sizeof(out->gid));
}

/* The devices' own limits are 16 or more where they have atomics. */
static uint8_t atomics(int most)
{
	return (uint8_t)(most < MAX_ATOMICS ? most : MAX_ATOMICS);
}

static int to_rtr(struct ha_gin_qp *qp, const struct ha_gin_address *remote)
{
	const struct ha_config *config = qp->port->config;
	struct ha_remote_addr to = {
	    .lid = remote->lid,
	    .sl = ha_path_sl(config, HA_TRAFFIC_CLASS_UNDEF),
	    .traffic_class = ha_path_tc(config, HA_TRAFFIC_CLASS_UNDEF),
	};
	struct ha_port_addr own;
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .dest_qp_num = remote->qpn,
	    .rq_psn = remote->psn,
	    .max_dest_rd_atomic = atomics(qp->port->nic->attr.max_qp_rd_atom),
	    .min_rnr_timer = MIN_RNR_TIMER,
	};

	ha_port_addr(qp->port, &own);
	attr.path_mtu = own.mtu < (enum ibv_mtu)remote->mtu ? own.mtu : (enum ibv_mtu)remote->mtu;
	memcpy(to.gid, remote->gid, sizeof(to.gid));
	ha_address_fill(&own, qp->port->port_num, &to, &attr.ah_attr);
	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ha_gin_qp *qp)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS,
	    .timeout = (uint8_t)qp->port->config->rc_timeout,
	    .retry_cnt = (uint8_t)qp->port->config->rc_retry_cnt,
	    .rnr_retry = RNR_RETRY,
	    .sq_psn = qp->psn,
	    .max_rd_atomic = atomics(qp->port->nic->attr.max_qp_init_rd_atom),
	};

	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

ha_result_t ha_gin_qp_connect(struct ha_gin_qp *qp, const struct ha_gin_address *remote)
{
	if (to_rtr(qp, remote) != 0)
		return fail(qp, "ibv_modify_qp to RTR");
	return to_rts(qp) == 0 ? HA_OK : fail(qp, "ibv_modify_qp to RTS");
}

/* ---- work requests -------------------------------------------------------------------------- */

bool ha_gin_qp_refused(struct ha_gin_qp *qp, const char *verb)
{
	return fail(qp, verb) == HA_OK;
}

bool ha_gin_qp_recv(struct ha_gin_qp *qp)
{
	struct ibv_recv_wr wr = {.wr_id = ha_gin_wr_id(HA_GIN_WR_RECV, 0)}, *bad;

	if (qp->fault || qp->is_fencing || ibv_post_recv(qp->qp, &wr, &bad) != 0)
		return fail(qp, "ibv_post_recv") == HA_OK;
	return true;
}

bool ha_gin_qp_poll_past(struct ha_gin_qp *qp, struct ibv_wc *wc)
{
	do {
		if (ha_gin_wr_what(wc->wr_id) == HA_GIN_WR_SENTINEL)
			qp->sentinels--;
		else if (wc->status == IBV_WC_SUCCESS)
			return true;
		else if (!qp->is_fencing)
			fail(qp, ibv_wc_status_str(wc->status));
	} while (ibv_poll_cq(qp->cq, 1, wc) > 0);
	return false;
}

/* ---- silence -------------------------------------------------------------------------------- */

void ha_gin_qp_look_for_silence(struct ha_gin_qp *qp, uint64_t came, bool is_under_way,
				uint64_t limit_ns)
{
	if (ha_gin_stands_ns(&qp->still, came, is_under_way) > limit_ns && !qp->fault)
		qp->fault = "no completion for as long as HA_NCCL_RTO_MS";
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The receive queue gets its last one before ERR, and the send queue after it: see
 * transport/fence.c. */
static bool stop(struct ha_gin_qp *qp)
{
	const uint64_t wr_id = ha_gin_wr_id(HA_GIN_WR_SENTINEL, 0);
	struct ibv_recv_wr recv = {.wr_id = wr_id}, *bad_recv;
	struct ibv_send_wr send = {.wr_id = wr_id,
				   .opcode = IBV_WR_RDMA_WRITE,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (ibv_post_recv(qp->qp, &recv, &bad_recv) != 0)
		return false;
	qp->sentinels++;
	if (ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE) != 0 ||
	    ibv_post_send(qp->qp, &send, &bad_send) != 0)
		return false;
	qp->sentinels++;
	return true;
}

void ha_gin_qp_fence(struct ha_gin_qp *qp)
{
	if (qp->is_fencing || !qp->qp)
		return;
	qp->is_fencing = true;
	qp->fencing_ns = ha_now_ns();
	qp->is_undrainable = !stop(qp);
}

static bool destroy(struct ha_gin_qp *qp)
{
	int rc = qp->qp ? ibv_destroy_qp(qp->qp) : 0;
	const bool is_refused = rc != 0 && !ha_incarnation_took_along(qp->on, rc, ha_now_ns());

	ha_leaks_of_asked(qp->on, &qp->asked, HA_OBJECT_QP, is_refused);
	if (is_refused)
		return false;
	qp->qp = NULL;
	return true;
}

static bool is_drained(const struct ha_gin_qp *qp)
{
	return qp->is_fencing && !qp->is_undrainable && qp->sentinels == 0;
}

bool ha_gin_qp_is_fenced(struct ha_gin_qp *qp)
{
	if (!qp->qp)
		return true;
	if (!qp->is_fencing)
		return false;
	if (is_drained(qp))
		return true;
	return ha_now_ns() - qp->fencing_ns >= HA_FENCE_NS && destroy(qp);
}

static void give_back(struct ha_gin_qp *qp)
{
	ha_give_back(qp->on, HA_OBJECT_QP, qp->qp, NULL, NULL);
	qp->qp = NULL;
}

void ha_gin_qp_discard(struct ha_gin_qp *qp)
{
	give_back(qp);
	(void)ha_gin_qp_close(qp); /* what is left of it is not refused */
}

bool ha_gin_qp_close(struct ha_gin_qp *qp)
{
	if (!qp->on)
		return true;
	if (is_drained(qp))
		give_back(qp);
	else if (!destroy(qp))
		return false;
	ha_give_back(qp->on, HA_OBJECT_CQ, qp->cq, NULL, NULL);
	qp->cq = NULL;
	ha_nic_pd_put(qp->on);
	qp->on = NULL;
	return true;
}
