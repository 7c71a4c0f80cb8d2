/* SPDX-License-Identifier: Apache-2.0 */
/* Queue pairs: creation, destruction, flushing. Their states are in qp_state.c. */
#include "core.h"
#include "direct_qp.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- flushing, errors */

static void advance_flush(struct sv_qp *qp)
{
	struct sv_swqe *wqe = &qp->sq[qp->sq_tail & (qp->sq_size - 1)];

	qp->sq_tail++;
	sv_complete_send(qp, wqe, IBV_WC_WR_FLUSH_ERR);
}

void sv_flush_sends(struct sv_qp *qp)
{
	if (qp->wedged_hard)
		return;
	while (qp->sq_tail != qp->sq_head)
		advance_flush(qp);
	qp->sq_next = qp->sq_tail;
	qp->next_pkt = 0;
}

void sv_flush_recvs(struct sv_qp *qp)
{
	struct ibv_wc wc = {.status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};

	if (qp->wedged_hard)
		return;
	/* The one in the middle of a message first. What waits in an SRQ belongs to no QP. */
	if (qp->recv_taken) {
		wc.wr_id = qp->cur_recv.wr_id;
		qp->recv_taken = false;
		sv_cq_push(sv_cq(qp->ibv.recv_cq), &wc, false, qp);
	}
	while (!qp->srq && qp->rq.tail != qp->rq.head) {
		wc.wr_id = qp->rq.ring[qp->rq.tail & (qp->rq.size - 1)].wr_id;
		qp->rq.tail++;
		sv_cq_push(sv_cq(qp->ibv.recv_cq), &wc, false, qp);
	}
}

static void quiesce(struct sv_qp *qp)
{
	sv_qp_stop_timer(qp);
	sv_list_del(&qp->tx_link);
	sv_list_del(&qp->ack_link);
	qp->owes_ack = false;
	qp->rnr_wait = false;
	qp->rd_head = qp->rd_tail = 0;
	qp->rd_outstanding = 0;
	qp->cur_op = SV_OP_COUNT;
	sv_place_drop(qp);
	if (qp->port->ops->revoke)
		qp->port->ops->revoke(qp->port, qp->ibv.qp_num);
}

void sv_qp_error(struct sv_qp *qp)
{
	if (qp->state == IBV_QPS_ERR)
		return;
	qp->state = IBV_QPS_ERR;
	quiesce(qp);
	sv_flush_sends(qp);
	sv_flush_recvs(qp);
	if (qp->srq)
		sv_raise_qp(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

void sv_qp_send_error(struct sv_qp *qp)
{
	if (qp->ibv.qp_type == IBV_QPT_RC) {
		sv_qp_error(qp);
		return;
	}
	/* Only the send queue of an unconnected QP stops. */
	qp->state = IBV_QPS_SQE;
	sv_list_del(&qp->tx_link);
	sv_flush_sends(qp);
}

void sv_qp_check_fatal(struct sv_qp *qp)
{
	if (!qp->fatal)
		return;
	sv_raise_qp(qp, IBV_EVENT_QP_FATAL);
	sv_qp_error(qp);
	qp->fatal = false; /* the flush may have found the CQ full again */
}

void sv_qp_wedge(struct sv_qp *qp, bool hard)
{
	qp->wedged = true;
	qp->wedged_hard = hard;
	qp->rnr_wait = false;
	sv_place_drop(qp);
	sv_qp_stop_timer(qp);
	sv_list_del(&qp->tx_link);
	sv_list_del(&qp->ack_link);
}

void sv_qp_break(struct sv_qp *qp, bool silent)
{
	if (qp->ibv.qp_type != IBV_QPT_RC || qp->wedged)
		return;
	sv_qp_wedge(qp, false);
	qp->err_unsaid = silent;
	qp->breaking = !silent;
	if (!silent)
		sv_qp_set_timer(qp, sv_now(qp->port)); /* unless it sends before */
}

bool sv_qp_check_broken(struct sv_qp *qp)
{
	if (!qp->breaking)
		return false;
	qp->breaking = qp->wedged = false;
	sv_qp_error(qp);
	return true;
}

void sv_qp_reset(struct sv_qp *qp)
{
	quiesce(qp);
	qp->state = IBV_QPS_RESET;
	qp->wedged = qp->wedged_hard = qp->breaking = qp->err_unsaid = false;
	qp->fatal = qp->nak_sent = qp->comm_est = qp->rd_gap = false;
	qp->sq_head = qp->sq_tail = qp->sq_next = qp->next_pkt = 0;
	qp->window = qp->window_acks = 0;
	qp->build_head = 0;
	qp->num_atomics = 0;
	sv_ece_reset(qp);
	qp->rq.head = qp->rq.tail = 0;
	qp->recv_taken = false;
	sv_direct_qp_reset(qp);
	sv_cq_drop_qp(sv_cq(qp->ibv.send_cq), qp->ibv.qp_num);
	sv_cq_drop_qp(sv_cq(qp->ibv.recv_cq), qp->ibv.qp_num);
}

/* ---------------------------------------------------------------- creation */

static int check_init(const struct sv_port *port, const struct ibv_qp_init_attr *init)
{
	const struct sv_limits *limits = &port->cfg.limits;
	const struct ibv_qp_cap *cap = &init->cap;

	if (init->qp_type != IBV_QPT_RC && init->qp_type != IBV_QPT_UD)
		return EOPNOTSUPP;
	if (!init->send_cq || !init->recv_cq)
		return EINVAL;
	if (cap->max_send_wr > limits->max_qp_wr || cap->max_send_sge > limits->max_sge ||
	    cap->max_inline_data > limits->max_inline)
		return EINVAL;
	if (!init->srq &&
	    (cap->max_recv_wr > limits->max_qp_wr || cap->max_recv_sge > limits->max_sge))
		return EINVAL;
	return 0;
}

static void free_sends(struct sv_qp *qp)
{
	free(qp->sq);
	free(qp->sq_sges);
	free(qp->sq_inline);
	qp->sq_inline = NULL;
}

int sv_qp_make_sends(struct sv_qp *qp, uint32_t size, uint32_t max_sge, uint32_t max_inline)
{
	free_sends(qp);
	qp->sq_size = size;
	qp->sq = calloc(size, sizeof(*qp->sq));
	qp->sq_sges = calloc((size_t)size * max_sge, sizeof(*qp->sq_sges));
	if (max_inline)
		qp->sq_inline = calloc(size, max_inline);
	if (!qp->sq || !qp->sq_sges || (max_inline && !qp->sq_inline))
		return ENOMEM;
	for (uint32_t i = 0; i < size; i++) {
		qp->sq[i].sge = &qp->sq_sges[(size_t)i * max_sge];
		if (qp->sq_inline)
			qp->sq[i].inline_data = &qp->sq_inline[(size_t)i * max_inline];
	}
	return 0;
}

static int alloc_queues(struct sv_qp *qp, const struct ibv_qp_cap *want)
{
	struct ibv_qp_cap *cap = &qp->cap;
	uint32_t recv_sges;

	*cap = *want;
	/* A queue nobody asked for gets one slot, so that there is always a ring. */
	if (!cap->max_send_sge)
		cap->max_send_sge = 1;
	if (sv_qp_make_sends(qp, sv_queue_size(want->max_send_wr ? want->max_send_wr : 1),
			     cap->max_send_sge, cap->max_inline_data))
		return ENOMEM;
	cap->max_send_wr = want->max_send_wr ? qp->sq_size : 0;
	if (qp->srq) {
		cap->max_recv_wr = cap->max_recv_sge = 0;
		recv_sges = qp->srq->rq.max_sge;
	} else {
		if (sv_rq_init(&qp->rq, want->max_recv_wr, want->max_recv_sge))
			return ENOMEM;
		cap->max_recv_wr = qp->rq.size;
		recv_sges = want->max_recv_sge;
	}
	qp->cur_recv_sges = calloc(recv_sges ? recv_sges : 1, sizeof(*qp->cur_recv_sges));
	return qp->cur_recv_sges ? 0 : ENOMEM;
}

static void free_queues(struct sv_qp *qp)
{
	free_sends(qp);
	free(qp->cur_recv_sges);
	sv_rq_free(&qp->rq);
}

static int join_port(struct sv_port *port, struct sv_qp *qp)
{
	uint32_t qpn;
	int err;

	if (port->num_qps >= port->cfg.limits.max_qp)
		return ENOMEM;
	err = port->ops->qpn_alloc(port, &qpn);
	if (err)
		return err;
	qp->ibv.qp_num = qpn;
	qp->ibv.handle = port->next_handle++;
	err = sv_port_add_qp(port, qp);
	if (err)
		port->ops->qpn_free(port, qpn);
	return err;
}

static void init_ibv(struct sv_qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr *init)
{
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = init->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = init->send_cq;
	qp->ibv.recv_cq = init->recv_cq;
	qp->ibv.srq = init->srq;
	qp->ibv.qp_type = init->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
}

struct ibv_qp *sv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct sv_context *ctx = sv_ctx(pd->context);
	struct sv_port *port = ctx->port;
	struct sv_qp *qp = NULL;
	int err = sv_verb_gate(pd->context, SV_VERB_CREATE_QP);

	if (!err)
		err = check_init(port, init);
	if (err)
		goto err;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;
	qp->port = port;
	sv_qp_on_port(qp, 0);
	qp->pd = sv_pd(pd);
	qp->srq = init->srq ? sv_srq(init->srq) : NULL;
	qp->sq_sig_all = init->sq_sig_all;
	qp->cur_op = SV_OP_COUNT;
	sv_ece_reset(qp);
	qp->heap_slot = UINT32_MAX;
	qp->deadline_ns = qp->place_ns = SV_NEVER;
	sv_list_init(&qp->tx_link);
	sv_list_init(&qp->ack_link);
	err = alloc_queues(qp, &init->cap);
	if (err)
		goto err;
	init_ibv(qp, pd, init);
	sv_port_lock(port);
	err = join_port(port, qp);
	if (!err) {
		qp->pd->refs++;
		sv_cq(init->send_cq)->refs++;
		sv_cq(init->recv_cq)->refs++;
		if (qp->srq)
			qp->srq->refs++;
		sv_list_add_tail(&ctx->qps, &qp->link);
	}
	sv_port_unlock(port);
	if (err)
		goto err;
	init->cap = qp->cap;
	return &qp->ibv;
err:
	if (qp)
		free_queues(qp);
	free(qp);
	errno = err;
	return NULL;
}

struct ibv_qp *sv_create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr)
{
	const uint64_t send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
				  IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;

	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
					  IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && attr->create_flags) ||
	    (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS &&
	     attr->send_ops_flags & ~send_ops)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	/* The extended structure begins with the plain one. */
	memcpy(&init, attr, sizeof(init));
	qp = sv_create_qp(attr->pd, &init);
	if (!qp)
		return NULL;
	attr->cap = init.cap;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		sv_qp_ex_init(sv_qp(qp), attr->send_ops_flags);
	return qp;
}

struct ibv_qp_ex *sv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return sv_qp(qp)->ex.wr_start ? &sv_qp(qp)->ex : NULL;
}

/* ---------------------------------------------------------------- destruction */

static void let_go(struct sv_qp *qp)
{
	qp->pd->refs--;
	sv_cq(qp->ibv.send_cq)->refs--;
	sv_cq(qp->ibv.recv_cq)->refs--;
	if (qp->srq)
		qp->srq->refs--;
}

/* Nothing of it is heard any more, and the hardware goes on. */
static void abandon(struct sv_qp *qp)
{
	qp->abandoned = true;
	sv_cq_drop_qp(sv_cq(qp->ibv.send_cq), qp->ibv.qp_num);
	sv_cq_drop_qp(sv_cq(qp->ibv.recv_cq), qp->ibv.qp_num);
}

void sv_free_qp(struct sv_qp *qp)
{
	struct sv_port *port = qp->port;

	sv_port_lock(port);
	if (qp->hashed || qp->dead)
		sv_port_remove_qp(port, qp);
	sv_direct_qp_free(qp);
	port->ops->qpn_free(port, qp->ibv.qp_num);
	sv_events_withdraw(sv_ctx(qp->ibv.context), qp);
	sv_cq_drop_qp(sv_cq(qp->ibv.send_cq), qp->ibv.qp_num);
	sv_cq_drop_qp(sv_cq(qp->ibv.recv_cq), qp->ibv.qp_num);
	sv_list_del(&qp->link);
	let_go(qp);
	sv_port_unlock(port);
	pthread_mutex_destroy(&qp->ibv.mutex);
	pthread_cond_destroy(&qp->ibv.cond);
	free_queues(qp);
	free(qp);
}

int sv_destroy_qp(struct ibv_qp *ibv)
{
	struct sv_qp *qp = sv_qp(ibv);
	struct sv_port *port = qp->port;
	uint32_t reported;
	int err = sv_release_gate(ibv->context, SV_VERB_DESTROY_QP);
	bool feigned = err == SV_FEIGNED;

	if (err && !feigned)
		return err;
	sv_port_lock(port);
	if (feigned) {
		abandon(qp);
	} else if (!qp->dead) {
		/* Stops here: nothing arrives or is raised any more while we wait for acks. */
		qp->wedged = qp->wedged_hard = true;
		quiesce(qp);
	}
	sv_events_withdraw(sv_ctx(ibv->context), qp);
	reported = qp->async_reported;
	sv_port_unlock(port);
	sv_wait_acked(&ibv->mutex, &ibv->cond, &ibv->events_completed, reported);
	if (!feigned)
		sv_free_qp(qp);
	return 0;
}
