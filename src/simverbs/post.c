/* SPDX-License-Identifier: Apache-2.0 */
/* Posting work requests: what is checked at the call, as opposed to when the WR runs. */
#include "core.h"

#include <string.h>

/* What an opcode is on the wire; 0xff: not supported. */
static uint8_t wire_op(enum ibv_wr_opcode opcode, enum ibv_qp_type type)
{
	if (type == IBV_QPT_UD)
		return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ? SV_OP_UD : 0xff;
	switch (opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return SV_OP_SEND;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return SV_OP_WRITE;
	case IBV_WR_RDMA_READ:
		return SV_OP_READ_REQ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return SV_OP_CMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return SV_OP_FETCH_ADD;
	default:
		return 0xff;
	}
}

static bool is_fetch(uint8_t op)
{
	return op == SV_OP_READ_REQ || op == SV_OP_CMP_SWAP || op == SV_OP_FETCH_ADD;
}

int sv_check_send(const struct sv_qp *qp, enum ibv_wr_opcode opcode, unsigned int flags)
{
	uint8_t op = wire_op(opcode, qp->ibv.qp_type);

	if (qp->state == IBV_QPS_RESET || qp->state == IBV_QPS_INIT || qp->state == IBV_QPS_RTR)
		return EINVAL;
	if (op == 0xff || (flags & IBV_SEND_INLINE && is_fetch(op)))
		return EINVAL;
	return 0;
}

void sv_finish_wqe(struct sv_qp *qp, struct sv_swqe *wqe)
{
	wqe->op = wire_op(wqe->opcode, qp->ibv.qp_type);
	wqe->sent = false;
	wqe->status = IBV_WC_SUCCESS;
	wqe->npkts = 1;
	if (wqe->op == SV_OP_UD) {
		/* One packet, so it must fit in one. */
		if (wqe->length > sv_mtu_bytes(qp->port->cfg.mtu))
			wqe->status = IBV_WC_LOC_LEN_ERR;
		return;
	}
	if (wqe->length > SV_MAX_MSG_SIZE)
		wqe->status = IBV_WC_LOC_LEN_ERR;
	else if (wqe->op == SV_OP_CMP_SWAP || wqe->op == SV_OP_FETCH_ADD)
		wqe->status = wqe->length == 8 ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
	else if (qp->mtu)
		wqe->npkts = sv_packets(wqe->length, qp->mtu);
	if (is_fetch(wqe->op) && qp->attr.max_rd_atomic == 0)
		wqe->status = IBV_WC_LOC_QP_OP_ERR;
}

/* Copies the data now; 0 or errno. */
static int copy_inline(const struct sv_qp *qp, struct sv_swqe *wqe, const struct ibv_send_wr *wr)
{
	uint32_t length = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->cap.max_inline_data - length)
			return ENOMEM;
		if (sge->length)
			memcpy(wqe->inline_data + length, (const void *)(uintptr_t)sge->addr,
			       sge->length);
		length += sge->length;
	}
	wqe->length = length;
	wqe->num_sge = 0;
	return 0;
}

static int copy_sges(const struct sv_qp *qp, struct sv_swqe *wqe, const struct ibv_send_wr *wr)
{
	uint64_t length = 0;

	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge)
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++) {
		wqe->sge[i] = wr->sg_list[i];
		length += wr->sg_list[i].length;
	}
	wqe->num_sge = (uint32_t)wr->num_sge;
	/* Anything beyond the largest message fails alike. */
	wqe->length = length > SV_MAX_MSG_SIZE ? SV_MAX_MSG_SIZE + 1 : (uint32_t)length;
	return 0;
}

static void copy_target(const struct sv_qp *qp, struct sv_swqe *wqe, const struct ibv_send_wr *wr)
{
	if (qp->ibv.qp_type == IBV_QPT_UD) {
		wqe->ud_qpn = wr->wr.ud.remote_qpn & SV_QPN_MASK;
		wqe->ud_qkey = wr->wr.ud.remote_qkey;
		wqe->route = sv_container_of(wr->wr.ud.ah, struct sv_ah, ibv)->route;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		bool swap = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;

		wqe->raddr = wr->wr.atomic.remote_addr;
		wqe->rkey = wr->wr.atomic.rkey;
		wqe->compare = wr->wr.atomic.compare_add;
		wqe->swap_add = swap ? wr->wr.atomic.swap : wr->wr.atomic.compare_add;
	} else {
		wqe->raddr = wr->wr.rdma.remote_addr;
		wqe->rkey = wr->wr.rdma.rkey;
	}
}

static int post_one(struct sv_qp *qp, const struct ibv_send_wr *wr)
{
	struct sv_swqe *wqe;
	int err = sv_check_send(qp, wr->opcode, wr->send_flags);

	if (err)
		return err;
	if (qp->sq_head - qp->sq_tail >= qp->cap.max_send_wr)
		return ENOMEM;
	wqe = sv_sq_slot(qp, qp->sq_head);
	err = wr->send_flags & IBV_SEND_INLINE ? copy_inline(qp, wqe, wr) : copy_sges(qp, wqe, wr);
	if (err)
		return err;
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->flags = (uint8_t)wr->send_flags;
	wqe->imm = wr->imm_data;
	copy_target(qp, wqe, wr);
	sv_finish_wqe(qp, wqe);
	qp->sq_head++;
	return 0;
}

void sv_sq_doorbell(struct sv_qp *qp)
{
	if (qp->state == IBV_QPS_ERR || qp->state == IBV_QPS_SQE)
		sv_flush_sends(qp);
	else if (qp->ibv.qp_type == IBV_QPT_UD)
		sv_ud_run(qp);
	else
		sv_requester_run(qp);
	sv_qp_check_fatal(qp);
	if (qp->port->ops->posted)
		qp->port->ops->posted(qp->port);
}

int sv_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_POST_SEND);

	if (err) {
		*bad_wr = wr;
		return err;
	}
	sv_port_lock(qp->port);
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	/* Those before a bad one go out all the same. */
	sv_sq_doorbell(qp);
	sv_port_unlock(qp->port);
	return err;
}

int sv_post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	struct sv_qp *qp = sv_qp(ibv);
	int err = sv_verb_gate(ibv->context, SV_VERB_POST_RECV);

	if (err) {
		*bad_wr = wr;
		return err;
	}
	sv_port_lock(qp->port);
	for (; wr; wr = wr->next) {
		if (qp->srq || qp->state == IBV_QPS_RESET)
			err = EINVAL;
		else
			err = sv_rq_post(&qp->rq, wr);
		if (err) {
			*bad_wr = wr;
			break;
		}
	}
	if (qp->state == IBV_QPS_ERR && !qp->port->cfg.late_recvs_stay)
		sv_flush_recvs(qp);
	sv_qp_check_fatal(qp);
	sv_port_unlock(qp->port);
	return err;
}
