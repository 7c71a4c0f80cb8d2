/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The QP state machine: which transitions there are, which attributes each requires and allows, and
 * what modifying does. A mask that lacks a required attribute or has one that is not allowed is
 * EINVAL, as the kernel answers for hardware.
 */
#include "core.h"
#include "fault_names.h"

#include <string.h>

#define NUM_STATES (IBV_QPS_ERR + 1)

#define PATH_OPT (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define RTS_OPT	 (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | PATH_OPT)
#define RC_INIT	 (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define UD_INIT	 (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

/* One cell: required and optional attributes besides IBV_QP_STATE. */
struct transition {
	bool allowed;
	int rc_required, rc_optional;
	int ud_required, ud_optional;
};

static const struct transition transitions[NUM_STATES][NUM_STATES] = {
    [IBV_QPS_RESET] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_INIT] = {.allowed = true, .rc_required = RC_INIT, .ud_required = UD_INIT},
	    /* Not to ERR: the kernel refuses that for all devices. */
	},
    [IBV_QPS_INIT] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_INIT] = {.allowed = true, .rc_optional = RC_INIT, .ud_optional = UD_INIT},
	    [IBV_QPS_RTR] =
		{
		    .allowed = true,
		    .rc_required = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		    .rc_optional = IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
		    .ud_optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
		},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
    [IBV_QPS_RTR] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_RTS] =
		{
		    .allowed = true,
		    .rc_required = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		    .rc_optional = RTS_OPT,
		    .ud_required = IBV_QP_SQ_PSN,
		    .ud_optional = IBV_QP_CUR_STATE | IBV_QP_QKEY,
		},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
    [IBV_QPS_RTS] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_RTS] =
		{.allowed = true,
		 .rc_optional = RTS_OPT,
		 .ud_optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
	    [IBV_QPS_SQD] =
		{.allowed = true,
		 .rc_optional = IBV_QP_EN_SQD_ASYNC_NOTIFY,
		 .ud_optional = IBV_QP_EN_SQD_ASYNC_NOTIFY},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
    [IBV_QPS_SQD] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_RTS] =
		{.allowed = true,
		 .rc_optional = RTS_OPT,
		 .ud_optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
	    [IBV_QPS_SQD] =
		{
		    .allowed = true,
		    .rc_optional = IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT |
				   IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_PKEY_INDEX |
				   IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
				   IBV_QP_CUR_STATE | PATH_OPT,
		    .ud_optional = IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
		},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
    [IBV_QPS_SQE] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_RTS] = {.allowed = true, .ud_optional = IBV_QP_CUR_STATE | IBV_QP_QKEY},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
    [IBV_QPS_ERR] =
	{
	    [IBV_QPS_RESET] = {.allowed = true},
	    [IBV_QPS_ERR] = {.allowed = true},
	},
};

bool sv_qp_transition_ok(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
			 int mask)
{
	const struct transition *t;
	int required, optional;

	if ((unsigned int)from >= NUM_STATES || (unsigned int)to >= NUM_STATES)
		return false;
	t = &transitions[from][to];
	required = type == IBV_QPT_UD ? t->ud_required : t->rc_required;
	optional = type == IBV_QPT_UD ? t->ud_optional : t->rc_optional;
	mask &= ~IBV_QP_STATE;
	return t->allowed && (mask & required) == required && !(mask & ~(required | optional));
}

/* ---------------------------------------------------------------- values */

/*
 * RoCE v2's source port, as drivers choose it: the flow label's 20 bits folded, where there is one.
 * Else an address handle has the first port of the range, and a connection a label made of its two
 * queue pair numbers.
 */
#define FIRST_SPORT 0xc000u

static uint16_t sport_of_label(uint32_t label)
{
	return (uint16_t)(FIRST_SPORT | ((label & 0x3fff) ^ label >> 14));
}

static uint16_t sport_of_qps(uint32_t own, uint32_t other)
{
	uint64_t product = (uint64_t)own * other;

	product ^= product >> 20;
	product ^= product >> 40;
	return sport_of_label((uint32_t)product & 0xfffff);
}

int sv_route_from_ah_attr(struct sv_port *port, const struct ibv_ah_attr *attr,
			  struct sv_ah_route *route)
{
	bool ethernet = port->cfg.link_layer == IBV_LINK_LAYER_ETHERNET;
	const struct sv_phys_config *phys = sv_phys(port, attr->port_num);
	static const union ibv_gid none;

	if (!phys || ((ethernet || phys->grh_required) && !attr->is_global))
		return EINVAL;
	if (attr->is_global) {
		uint8_t index = attr->grh.sgid_index;

		if (index >= SV_MAX_GIDS)
			return EINVAL;
		if (!memcmp(&phys->gids[index].gid, &none, sizeof(none)))
			return ENODATA;
	}
	/* An address is looked up in the routes, and a link that is down has none. */
	if (ethernet && port->state[attr->port_num - 1] != IBV_PORT_ACTIVE)
		return ENETUNREACH;
	*route = (struct sv_ah_route){
	    .dgid = attr->grh.dgid,
	    .sgid_index = attr->grh.sgid_index,
	    .is_global = attr->is_global,
	    .sl = attr->sl,
	    .traffic_class = attr->grh.traffic_class,
	    .hop_limit = attr->grh.hop_limit,
	    .dlid = attr->dlid,
	    .sport = sport_of_label(attr->is_global ? attr->grh.flow_label & 0xfffff : 0),
	};
	return port->ops->resolve(port, attr, &route->port);
}

static int check_values(const struct sv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	const struct sv_port *port = qp->port;
	uint32_t max_rd = port->cfg.limits.max_rd_atomic;

	if (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != qp->state)
		return EINVAL;
	if (mask & IBV_QP_PORT && (!attr->port_num || attr->port_num > port->cfg.num_phys))
		return EINVAL;
	/* An address is one of the queue pair's port. */
	if (mask & IBV_QP_AV && attr->ah_attr.port_num != qp->attr.port_num)
		return EINVAL;
	if (mask & IBV_QP_PKEY_INDEX &&
	    attr->pkey_index >=
		sv_phys(qp->port, mask & IBV_QP_PORT ? attr->port_num : qp->attr.port_num)
		    ->num_pkeys)
		return EINVAL;
	if (mask & IBV_QP_PATH_MTU &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > port->cfg.mtu))
		return EINVAL;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > max_rd)
		return EINVAL;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > max_rd)
		return EINVAL;
	if (mask & IBV_QP_DEST_QPN && attr->dest_qp_num > SV_QPN_MASK)
		return EINVAL;
	if ((mask & IBV_QP_TIMEOUT && attr->timeout > 31) ||
	    (mask & IBV_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31) ||
	    (mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) ||
	    (mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7))
		return EINVAL;
	/* No automatic path migration: IBV_DEVICE_AUTO_PATH_MIG is off. */
	if (mask & IBV_QP_ALT_PATH)
		return EINVAL;
	return 0;
}

static void store_values(struct sv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	struct ibv_qp_attr *cur = &qp->attr;

	if (mask & IBV_QP_ACCESS_FLAGS)
		cur->qp_access_flags = attr->qp_access_flags;
	if (mask & IBV_QP_PORT) {
		cur->port_num = attr->port_num;
		sv_qp_on_port(qp, attr->port_num - 1u);
	}
	if (mask & IBV_QP_PKEY_INDEX) {
		cur->pkey_index = attr->pkey_index;
		qp->pkey = sv_phys(qp->port, cur->port_num)->pkeys[attr->pkey_index];
	}
	if (mask & IBV_QP_QKEY)
		cur->qkey = attr->qkey;
	if (mask & IBV_QP_AV)
		cur->ah_attr = attr->ah_attr;
	if (mask & IBV_QP_PATH_MTU) {
		cur->path_mtu = attr->path_mtu;
		qp->mtu = sv_mtu_bytes(attr->path_mtu);
	}
	if (mask & IBV_QP_TIMEOUT)
		cur->timeout = attr->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		cur->retry_cnt = qp->retries_left = attr->retry_cnt, qp->timeouts = 0;
	if (mask & IBV_QP_RNR_RETRY)
		cur->rnr_retry = qp->rnr_left = attr->rnr_retry;
	if (mask & IBV_QP_RQ_PSN) {
		cur->rq_psn = attr->rq_psn & SV_PSN_MASK;
		qp->epsn = cur->rq_psn;
		qp->msn = 0;
	}
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		cur->max_rd_atomic = attr->max_rd_atomic;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		cur->min_rnr_timer = attr->min_rnr_timer;
	if (mask & IBV_QP_SQ_PSN) {
		cur->sq_psn = attr->sq_psn & SV_PSN_MASK;
		qp->next_psn = qp->send_psn = qp->una_psn = cur->sq_psn;
	}
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		cur->max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_DEST_QPN)
		cur->dest_qp_num = attr->dest_qp_num;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		qp->sqd_notify = attr->en_sqd_async_notify;
}

static void enter_state(struct sv_qp *qp, enum ibv_qp_state to)
{
	enum ibv_qp_state from = qp->state;

	switch (to) {
	case IBV_QPS_RESET:
		sv_qp_reset(qp);
		return;
	case IBV_QPS_ERR:
		sv_qp_error(qp);
		if (qp->port->cfg.late_recvs_stay)
			sv_flush_recvs(qp);
		qp->fatal = false;
		return;
	case IBV_QPS_RTR:
		sv_ece_agree(qp);
		break;
	case IBV_QPS_SQD:
		if (from != IBV_QPS_RTS)
			break;
		qp->sqd_stop = qp->sq_next;
		while (qp->sqd_stop != qp->sq_head && qp->sq[qp->sqd_stop & (qp->sq_size - 1)].sent)
			qp->sqd_stop++;
		break;
	default:
		break;
	}
	qp->state = to;
	if (to == IBV_QPS_RTS || to == IBV_QPS_SQD)
		sv_sq_doorbell(qp);
}

static void take_route(struct sv_qp *qp, const struct sv_ah_route *route,
		       const struct ibv_ah_attr *attr)
{
	bool labelled = attr->is_global && attr->grh.flow_label & 0xfffff;

	qp->dst_port = route->port;
	qp->traffic_class = route->traffic_class;
	qp->hop_limit = route->hop_limit;
	qp->sport = labelled ? route->sport : sport_of_qps(qp->ibv.qp_num, qp->attr.dest_qp_num);
}

static int modify_locked(struct sv_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
	struct sv_ah_route route = {0};
	int err;

	if (!sv_qp_transition_ok(qp->ibv.qp_type, qp->state, to, mask))
		return EINVAL;
	err = check_values(qp, attr, mask);
	if (!err && mask & IBV_QP_AV)
		err = sv_route_from_ah_attr(qp->port, &attr->ah_attr, &route);
	if (err)
		return err;
	store_values(qp, attr, mask);
	if (mask & IBV_QP_AV)
		take_route(qp, &route, &attr->ah_attr);
	if (mask & IBV_QP_AV && qp->ibv.qp_type == IBV_QPT_RC && qp->port->ops->peer)
		qp->port->ops->peer(qp->port, qp->dst_port, qp->attr.dest_qp_num);
	if (mask & IBV_QP_STATE)
		enter_state(qp, to);
	return 0;
}

/* Where the driver's word is all there is: it ends what it is asked to end. */
static bool feigns(const struct ibv_qp *ibv, const struct ibv_qp_attr *attr, int mask)
{
	const struct sv_context *ctx = sv_ctx(ibv->context);

	return sv_ctx_dead(ctx) && ctx->end == SV_END_FEIGNED && mask & IBV_QP_STATE &&
	       (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET);
}

int sv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_MODIFY_QP);

	if (!err && mask & IBV_QP_STATE)
		err = sv_verb_gate(ibv->context, sv_verb_to_state(attr->qp_state));
	if (err == EIO && feigns(ibv, attr, mask)) {
		ibv->state = attr->qp_state;
		return 0;
	}
	if (err)
		return err;
	sv_port_lock(qp->port);
	err = modify_locked(qp, attr, mask);
	if (!err && mask & IBV_QP_STATE)
		ibv->state = attr->qp_state;
	sv_port_unlock(qp->port);
	return err;
}

int sv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		struct ibv_qp_init_attr *init)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_QUERY_QP);

	(void)mask; /* only a hint: everything is at hand */
	if (err)
		return err;
	sv_port_lock(qp->port);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = qp->err_unsaid ? IBV_QPS_ERR : qp->state;
	attr->path_mig_state = IBV_MIG_MIGRATED;
	attr->cap = qp->cap;
	attr->sq_draining = qp->state == IBV_QPS_SQD && qp->una_psn != qp->next_psn;
	ibv->state = qp->state;
	*init = (struct ibv_qp_init_attr){
	    .qp_context = ibv->qp_context,
	    .send_cq = ibv->send_cq,
	    .recv_cq = ibv->recv_cq,
	    .srq = ibv->srq,
	    .cap = qp->cap,
	    .qp_type = ibv->qp_type,
	    .sq_sig_all = qp->sq_sig_all,
	};
	sv_port_unlock(qp->port);
	return 0;
}

int sv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	/* A payload is copied with memcpy() or by the kernel: no order of its bytes is promised. */
	return 0;
}
