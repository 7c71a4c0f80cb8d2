/* SPDX-License-Identifier: Apache-2.0 */
/* Receive queues: a QP's own and shared ones (SRQ). */
#include "core.h"

#include <stdlib.h>

/* Sizes are powers of two, as on devices: then free-running indices wrap without a seam. */
uint32_t sv_queue_size(uint32_t wanted)
{
	uint32_t size = 1;

	while (size < wanted)
		size *= 2;
	return wanted ? size : 0;
}

int sv_rq_init(struct sv_recv_queue *rq, uint32_t size, uint32_t max_sge)
{
	size = sv_queue_size(size);
	*rq = (struct sv_recv_queue){.size = size, .max_sge = max_sge};
	if (!size)
		return 0;
	rq->ring = calloc(size, sizeof(*rq->ring));
	rq->sges = calloc((size_t)size * (max_sge ? max_sge : 1), sizeof(*rq->sges));
	if (!rq->ring || !rq->sges) {
		sv_rq_free(rq);
		return ENOMEM;
	}
	for (uint32_t i = 0; i < size; i++)
		rq->ring[i].sge = &rq->sges[(size_t)i * max_sge];
	return 0;
}

void sv_rq_free(struct sv_recv_queue *rq)
{
	free(rq->ring);
	free(rq->sges);
	rq->ring = NULL;
	rq->sges = NULL;
}

int sv_rq_post(struct sv_recv_queue *rq, const struct ibv_recv_wr *wr)
{
	struct sv_rwqe *wqe;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (rq->head - rq->tail >= rq->size)
		return ENOMEM;
	wqe = &rq->ring[rq->head & (rq->size - 1)];
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = (uint32_t)wr->num_sge;
	wqe->length = 0;
	for (uint32_t i = 0; i < wqe->num_sge; i++) {
		wqe->sge[i] = wr->sg_list[i];
		wqe->length += wr->sg_list[i].length;
	}
	rq->head++;
	return 0;
}

bool sv_take_recv(struct sv_qp *qp)
{
	struct sv_recv_queue *rq = qp->srq ? &qp->srq->rq : &qp->rq;
	const struct sv_rwqe *wqe;

	if (qp->recv_taken)
		return true;
	if (rq->head == rq->tail)
		return false;
	wqe = &rq->ring[rq->tail & (rq->size - 1)];
	/* The slot is free for a new post as soon as it was taken: keep a copy. */
	qp->cur_recv = *wqe;
	qp->cur_recv.sge = qp->cur_recv_sges;
	for (uint32_t i = 0; i < wqe->num_sge; i++)
		qp->cur_recv_sges[i] = wqe->sge[i];
	rq->tail++;
	qp->recv_taken = true;
	if (qp->srq && qp->srq->limit && rq->head - rq->tail < qp->srq->limit) {
		qp->srq->limit = 0; /* once per arming */
		sv_raise_srq(qp->srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	return true;
}

/* ---------------------------------------------------------------- shared receive queues */

static struct ibv_srq *create_srq(struct ibv_pd *pd, void *srq_context, struct ibv_srq_attr *attr)
{
	struct sv_context *ctx = sv_ctx(pd->context);
	struct sv_port *port = ctx->port;
	const struct sv_limits *limits = &port->cfg.limits;
	struct sv_srq *srq = NULL;
	int err = sv_verb_gate(pd->context, SV_VERB_CREATE_SRQ);

	if (!err && (attr->max_wr == 0 || attr->max_wr > limits->max_srq_wr ||
		     attr->max_sge > limits->max_sge))
		err = EINVAL;
	if (err)
		goto err;
	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;
	err = sv_rq_init(&srq->rq, attr->max_wr, attr->max_sge ? attr->max_sge : 1);
	if (err)
		goto err;
	attr->max_sge = srq->rq.max_sge;
	attr->max_wr = srq->rq.size;
	srq->pd = sv_pd(pd);
	srq->ibv.context = pd->context;
	srq->ibv.srq_context = srq_context;
	srq->ibv.pd = pd;
	pthread_mutex_init(&srq->ibv.mutex, NULL);
	pthread_cond_init(&srq->ibv.cond, NULL);
	sv_port_lock(port);
	if (port->num_srqs >= limits->max_srq) {
		sv_port_unlock(port);
		err = ENOMEM;
		goto err;
	}
	port->num_srqs++;
	srq->pd->refs++;
	srq->ibv.handle = srq->num = port->next_handle++;
	sv_list_add_tail(&ctx->srqs, &srq->link);
	sv_port_unlock(port);
	return &srq->ibv;
err:
	if (srq)
		sv_rq_free(&srq->rq);
	free(srq);
	errno = err;
	return NULL;
}

struct ibv_srq *sv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return create_srq(pd, attr->srq_context, &attr->attr);
}

struct ibv_srq *sv_create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || attr->pd->context != context) {
		errno = EINVAL;
		return NULL;
	}
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type != IBV_SRQT_BASIC) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	return create_srq(attr->pd, attr->srq_context, &attr->attr);
}

int sv_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	*num = sv_srq(srq)->num;
	return 0;
}

int sv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct sv_srq *srq = sv_srq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_verb_gate(ibv->context, SV_VERB_MODIFY_SRQ);

	if (err)
		return err;
	if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) /* this device cannot resize: IBV_DEVICE_SRQ_RESIZE is off */
		return EOPNOTSUPP;
	sv_port_lock(port);
	if (attr->srq_limit >= srq->rq.size)
		err = EINVAL;
	else
		srq->limit = attr->srq_limit;
	/* Armed below what is posted already: there is nothing to wait for. */
	if (!err && srq->limit && srq->rq.head - srq->rq.tail < srq->limit) {
		srq->limit = 0;
		sv_raise_srq(srq, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	sv_port_unlock(port);
	return err;
}

int sv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct sv_srq *srq = sv_srq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_verb_gate(ibv->context, SV_VERB_QUERY_SRQ);

	if (err)
		return err;
	sv_port_lock(port);
	attr->max_wr = srq->rq.size;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	sv_port_unlock(port);
	return 0;
}

void sv_free_srq(struct sv_srq *srq)
{
	struct sv_port *port = sv_ctx_port(srq->ibv.context);

	sv_port_lock(port);
	sv_events_withdraw(sv_ctx(srq->ibv.context), srq);
	sv_list_del(&srq->link);
	srq->pd->refs--;
	port->num_srqs--;
	sv_port_unlock(port);
	sv_rq_free(&srq->rq);
	pthread_mutex_destroy(&srq->ibv.mutex);
	pthread_cond_destroy(&srq->ibv.cond);
	free(srq);
}

int sv_destroy_srq(struct ibv_srq *ibv)
{
	struct sv_srq *srq = sv_srq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_release_gate(ibv->context, SV_VERB_DESTROY_SRQ);
	uint32_t reported;

	if (err)
		return sv_answer(err);
	sv_port_lock(port);
	if (srq->refs) {
		sv_port_unlock(port);
		return EBUSY;
	}
	sv_events_withdraw(sv_ctx(ibv->context), srq);
	reported = srq->async_reported;
	sv_port_unlock(port);
	sv_wait_acked(&ibv->mutex, &ibv->cond, &ibv->events_completed, reported);
	sv_free_srq(srq);
	return 0;
}

int sv_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct sv_srq *srq = sv_srq(ibv);
	struct sv_port *port = sv_ctx_port(ibv->context);
	int err = sv_verb_gate(ibv->context, SV_VERB_POST_SRQ_RECV);

	if (err) {
		*bad_wr = wr;
		return err;
	}
	sv_port_lock(port);
	for (; wr && !err; wr = wr->next) {
		err = sv_rq_post(&srq->rq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	sv_port_unlock(port);
	return err;
}
