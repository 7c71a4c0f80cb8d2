/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The extended post API: WRs are built field by field between wr_start and wr_complete, straight in
 * their slots of the send ring; wr_complete makes them visible. The port lock is held all the
 * while, as devices hold the queue's.
 */
#include "core.h"

#include <string.h>

static struct sv_qp *qp_of(struct ibv_qp_ex *ex)
{
	return sv_container_of(ex, struct sv_qp, ex);
}

static struct sv_swqe *current(struct sv_qp *qp)
{
	return sv_sq_slot(qp, qp->build_head - 1);
}

static void fail(struct sv_qp *qp, int err)
{
	if (!qp->build_error)
		qp->build_error = err;
}

/* What follows from the length is known when the WR is whole: at the next one or at the end. */
static void finish_current(struct sv_qp *qp)
{
	if (qp->build_head != qp->sq_head && !qp->build_error)
		sv_finish_wqe(qp, current(qp));
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct sv_qp *qp = qp_of(ex);

	sv_port_lock(qp->port);
	qp->build_head = qp->sq_head;
	qp->build_error = 0;
}

static struct sv_swqe *begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct sv_qp *qp = qp_of(ex);
	struct sv_swqe *wqe;
	int err = sv_check_send(qp, opcode, ex->wr_flags);

	finish_current(qp);
	if (!err && qp->build_head - qp->sq_tail >= qp->cap.max_send_wr)
		err = ENOMEM;
	if (err)
		fail(qp, err);
	if (qp->build_error)
		return NULL;
	wqe = sv_sq_slot(qp, qp->build_head++);
	wqe->wr_id = ex->wr_id;
	wqe->flags = (uint8_t)ex->wr_flags;
	wqe->opcode = (uint8_t)opcode;
	wqe->num_sge = 0;
	wqe->length = 0;
	return wqe;
}

static void begin_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
		       uint64_t remote_addr, __be32 imm)
{
	struct sv_swqe *wqe = begin(ex, opcode);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->raddr = remote_addr;
	wqe->imm = imm;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote_addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr, __be32 imm)
{
	begin_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr)
{
	begin_rdma(ex, IBV_WR_RDMA_READ, rkey, remote_addr, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct sv_swqe *wqe = begin(ex, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->imm = imm;
}

static void begin_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey,
			 uint64_t remote_addr, uint64_t compare, uint64_t swap_add)
{
	struct sv_swqe *wqe = begin(ex, opcode);

	if (!wqe)
		return;
	wqe->rkey = rkey;
	wqe->raddr = remote_addr;
	wqe->compare = compare;
	wqe->swap_add = swap_add;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
			      uint64_t compare, uint64_t swap)
{
	begin_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote_addr,
				uint64_t add)
{
	begin_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, 0, add);
}

static bool building(const struct sv_qp *qp)
{
	return !qp->build_error && qp->build_head != qp->sq_head;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn,
			   uint32_t remote_qkey)
{
	struct sv_qp *qp = qp_of(ex);

	if (!building(qp))
		return;
	current(qp)->route = sv_container_of(ah, struct sv_ah, ibv)->route;
	current(qp)->ud_qpn = remote_qpn & SV_QPN_MASK;
	current(qp)->ud_qkey = remote_qkey;
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t num_sge, const struct ibv_sge *list)
{
	struct sv_qp *qp = qp_of(ex);
	struct sv_swqe *wqe = current(qp);
	uint64_t length = 0;

	if (!building(qp))
		return;
	if (num_sge > qp->cap.max_send_sge) {
		fail(qp, EINVAL);
		return;
	}
	for (size_t i = 0; i < num_sge; i++) {
		wqe->sge[i] = list[i];
		length += list[i].length;
	}
	wqe->num_sge = (uint32_t)num_sge;
	wqe->length = length > SV_MAX_MSG_SIZE ? SV_MAX_MSG_SIZE + 1 : (uint32_t)length;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	wr_set_sge_list(ex, 1, &(struct ibv_sge){.addr = addr, .length = length, .lkey = lkey});
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t num_buf,
				    const struct ibv_data_buf *list)
{
	struct sv_qp *qp = qp_of(ex);
	struct sv_swqe *wqe = current(qp);
	size_t length = 0;

	if (!building(qp))
		return;
	for (size_t i = 0; i < num_buf; i++) {
		if (list[i].length > qp->cap.max_inline_data - length) {
			fail(qp, ENOMEM);
			return;
		}
		if (list[i].length)
			memcpy(wqe->inline_data + length, list[i].addr, list[i].length);
		length += list[i].length;
	}
	wqe->flags |= IBV_SEND_INLINE;
	wqe->length = (uint32_t)length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	wr_set_inline_data_list(ex, 1, &(struct ibv_data_buf){.addr = addr, .length = length});
}

static void end_build(struct sv_qp *qp)
{
	qp->build_head = qp->sq_head;
	sv_port_unlock(qp->port);
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct sv_qp *qp = qp_of(ex);
	int err;

	finish_current(qp);
	err = qp->build_error;
	if (!err)
		err = sv_verb_gate(qp->ibv.context, SV_VERB_POST_SEND);
	/* All of them or none. */
	if (!err) {
		qp->sq_head = qp->build_head;
		sv_sq_doorbell(qp);
	}
	end_build(qp);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	end_build(qp_of(ex));
}

void sv_qp_ex_init(struct sv_qp *qp, uint64_t ops)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	if (qp->ibv.qp_type == IBV_QPT_UD)
		ex->wr_set_ud_addr = wr_set_ud_addr;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE)
		ex->wr_rdma_write = wr_rdma_write;
	if (ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
	if (ops & IBV_QP_EX_WITH_SEND)
		ex->wr_send = wr_send;
	if (ops & IBV_QP_EX_WITH_SEND_WITH_IMM)
		ex->wr_send_imm = wr_send_imm;
	if (ops & IBV_QP_EX_WITH_RDMA_READ)
		ex->wr_rdma_read = wr_rdma_read;
	if (ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP)
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	if (ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
}
