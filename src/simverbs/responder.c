/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The responder half of a reliable connection: takes the packet with the expected PSN and no other,
 * places its data at once (so a message cut off in the middle stays half written) or, if a rule
 * says so, in any order before it acknowledges; answers READs and atomics, acknowledges, and says
 * no in the way hardware does.
 */
#include "core.h"
#include "gpu.h"
#include "posted.h"

#include <string.h>

/* ---------------------------------------------------------------- acknowledgements */

/* An ack is owed; sv_port_flush() sends one for all that arrived in a batch. */
static void owe_ack(struct sv_qp *qp)
{
	qp->owes_ack = true;
	if (sv_list_empty(&qp->ack_link))
		sv_list_add_tail(&qp->port->ack_wait, &qp->ack_link);
}

static int send_aeth(struct sv_qp *qp, uint8_t op, uint32_t psn, uint8_t syndrome, uint64_t result)
{
	struct sv_packet pkt = {
	    .op = op,
	    .syndrome = syndrome,
	    .flags = SV_PKT_FIRST | SV_PKT_LAST,
	    .dst_port = qp->dst_port,
	    .dst_qpn = qp->attr.dest_qp_num,
	    .psn = psn,
	    .npkts = 1,
	    .msn = qp->msn,
	    .atomic_result = result,
	};

	return sv_port_send(qp, &pkt, NULL, 0);
}

/* A WRITE that was taken finds its memory gone: nothing from there on was done. */
static void refuse_late(struct sv_qp *qp)
{
	qp->port->stats.naks_other++;
	send_aeth(qp, SV_OP_ACK, sv_place_oldest(qp), SV_NAK_REM_ACCESS, 0);
	sv_raise_qp(qp, IBV_EVENT_QP_ACCESS_ERR);
	sv_qp_error(qp);
}

/* Whatever says or lets see that all before it is done comes after it. False: the QP is in error.
 */
static bool place_all(struct sv_qp *qp)
{
	if (!qp->late || sv_place(qp, SV_NEVER))
		return true;
	refuse_late(qp);
	return false;
}

/* Always after what is owed for earlier packets. If the wire is full the NAK is lost, which the
 * requester's timeout makes good. */
static void send_nak(struct sv_qp *qp, uint8_t syndrome)
{
	struct sv_port_stats *stats = &qp->port->stats;

	qp->nak_sent = true;
	if (!place_all(qp) || !sv_responder_run(qp))
		return;
	if ((syndrome & SV_AETH_KIND_MASK) == SV_AETH_RNR_NAK)
		stats->naks_rnr++;
	else if (syndrome == SV_NAK_SEQ_ERR)
		stats->naks_seq++;
	else
		stats->naks_other++;
	send_aeth(qp, SV_OP_ACK, qp->epsn, syndrome, 0);
}

/* A request that ends the connection: NAK, event, error. */
static void refuse(struct sv_qp *qp, uint8_t syndrome)
{
	send_nak(qp, syndrome);
	sv_raise_qp(qp,
		    syndrome == SV_NAK_REM_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	sv_qp_error(qp);
}

/* The receive WR itself is at fault: it completes with the error, the peer hears of it too. */
static void refuse_recv(struct sv_qp *qp, enum ibv_wc_status status, uint8_t syndrome)
{
	struct ibv_wc wc = {.status = status, .opcode = IBV_WC_RECV};

	send_nak(qp, syndrome);
	sv_complete_recv(qp, &wc, false);
	sv_qp_error(qp);
}

/* ---------------------------------------------------------------- reads and atomics */

/* One burst of a READ's response; 0, -EAGAIN, -EFAULT when the region is gone, or -EIO when its
 * memory cannot be read. */
static int send_read_part(struct sv_qp *qp, struct sv_rd_resource *rd)
{
	uint32_t burst = qp->port->cfg.burst_bytes / qp->mtu;
	uint32_t n = burst ? burst : 1;
	struct sv_packet pkt = {
	    .op = SV_OP_READ_RESP,
	    .dst_port = qp->dst_port,
	    .dst_qpn = qp->attr.dest_qp_num,
	    .psn = rd->psn,
	    .msn = rd->msn,
	};
	const struct sv_mr *mr;
	struct sv_frag frag;
	int ret;

	if (n > rd->npkts)
		n = rd->npkts;
	pkt.npkts = n;
	pkt.payload_len = n == rd->npkts ? rd->length : n * qp->mtu;
	pkt.flags = (uint16_t)((rd->first ? SV_PKT_FIRST : 0) | (n == rd->npkts ? SV_PKT_LAST : 0));
	if (pkt.payload_len) {
		mr = sv_mr_find(qp->port, qp->pd, rd->rkey, rd->addr, pkt.payload_len,
				IBV_ACCESS_REMOTE_READ);
		if (!mr)
			return -EFAULT;
		if (sv_piece(qp->port, mr, rd->addr, &pkt, 0, pkt.payload_len, &frag))
			return -EIO;
	}
	ret = sv_port_send(qp, &pkt, &frag, pkt.payload_len ? 1 : 0);
	if (ret)
		return ret;
	rd->first = false;
	rd->psn = sv_psn_add(rd->psn, n);
	rd->npkts -= n;
	rd->addr += pkt.payload_len;
	rd->length -= pkt.payload_len;
	return 0;
}

/* For all that is in memory. False: the wire is full. */
static bool send_ack(struct sv_qp *qp)
{
	uint32_t point = sv_place_oldest(qp);

	/* What is late will be acknowledged when it is there (sv_responder_place). */
	if (point == qp->epsn || point != qp->ack_point) {
		if (send_aeth(qp, SV_OP_ACK, sv_psn_add(point, SV_PSN_MASK), SV_AETH_ACK, 0))
			return false;
		qp->port->stats.acks++;
		qp->ack_point = point;
	}
	qp->owes_ack = point != qp->epsn;
	sv_list_del(&qp->ack_link);
	return true;
}

static struct sv_rd_resource *rd_slot(struct sv_qp *qp, uint32_t index)
{
	return &qp->rd[index % SV_MAX_RD_ATOMIC];
}

/* Deregistered while it was being read, or freed. */
static void cannot_read(struct sv_qp *qp, const struct sv_rd_resource *rd, int err)
{
	bool gone = err == -EFAULT;

	send_aeth(qp, SV_OP_ACK, rd->psn, gone ? SV_NAK_REM_ACCESS : SV_NAK_REM_OP, 0);
	sv_raise_qp(qp, gone ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
	sv_qp_error(qp);
}

bool sv_responder_run(struct sv_qp *qp)
{
	if (qp->wedged || qp->dead)
		return true;
	while (qp->rd_tail != qp->rd_head && !qp->wedged) {
		struct sv_rd_resource *rd = rd_slot(qp, qp->rd_tail);
		int ret;

		if (rd->op == SV_OP_READ_REQ) {
			ret = send_read_part(qp, rd);
		} else {
			ret = send_aeth(qp, SV_OP_ATOMIC_ACK, rd->psn, SV_AETH_ACK, rd->result);
			rd->npkts -= ret == 0;
		}
		if (ret == -EAGAIN)
			return false;
		if (ret) {
			cannot_read(qp, rd, ret);
			return true;
		}
		if (rd->npkts == 0)
			qp->rd_tail++;
	}
	return !qp->owes_ack || send_ack(qp);
}

/* To be answered by sv_responder_run(), in order. */
static struct sv_rd_resource *queue_response(struct sv_qp *qp, const struct sv_packet *pkt)
{
	struct sv_rd_resource *rd = rd_slot(qp, qp->rd_head++);

	*rd = (struct sv_rd_resource){
	    .op = pkt->op,
	    .first = true,
	    .psn = pkt->psn,
	    .npkts = pkt->op == SV_OP_READ_REQ ? sv_packets(pkt->reth.length, qp->mtu) : 1,
	    .length = pkt->reth.length,
	    .rkey = pkt->reth.rkey,
	    .addr = pkt->reth.addr,
	    .msn = qp->msn,
	};
	if (sv_list_empty(&qp->ack_link))
		sv_list_add_tail(&qp->port->ack_wait, &qp->ack_link);
	return rd;
}

/* The memory that a request is about. False: it is refused, or stays without an answer. */
static bool can_use(struct sv_qp *qp, const struct sv_packet *pkt, unsigned int access)
{
	const struct sv_mr *mr;

	if (!pkt->reth.length)
		return true;
	mr = sv_mr_find(qp->port, qp->pd, pkt->reth.rkey, pkt->reth.addr, pkt->reth.length, access);
	if (!mr) {
		refuse(qp, SV_NAK_REM_ACCESS);
		return false;
	}
	switch (sv_mr_reach(qp, mr)) {
	case SV_REACHED:
		return true;
	case SV_REACH_ERROR:
		refuse(qp, SV_NAK_REM_OP);
		return false;
	case SV_REACH_SILENT:
		qp->wedged = true;
		return false;
	}
	return false;
}

static bool rd_full(const struct sv_qp *qp)
{
	return qp->rd_head - qp->rd_tail >= qp->attr.max_dest_rd_atomic;
}

/*
 * Room for a new fetch. One that asks for it while as many as it may have wait for an answer has
 * the first answer to the oldest of them, if that is a repeated one. False: it asks too much.
 */
static bool rd_room(struct sv_qp *qp)
{
	if (rd_full(qp) && rd_slot(qp, qp->rd_tail)->again)
		qp->rd_tail++;
	return !rd_full(qp);
}

static void receive_read(struct sv_qp *qp, const struct sv_packet *pkt)
{
	uint32_t length = pkt->reth.length;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) || !rd_room(qp) ||
	    length > SV_MAX_MSG_SIZE) {
		refuse(qp, SV_NAK_INV_REQ);
		return;
	}
	if (!can_use(qp, pkt, IBV_ACCESS_REMOTE_READ))
		return;
	qp->msn++;
	qp->epsn = sv_psn_add(qp->epsn, sv_packets(length, qp->mtu));
	queue_response(qp, pkt);
}

static uint64_t swapped(const struct sv_packet *pkt, uint64_t old)
{
	if (pkt->op == SV_OP_FETCH_ADD)
		return old + pkt->reth.swap_add;
	return old == pkt->reth.compare ? pkt->reth.swap_add : old;
}

/* Indivisible for those who come over this device: the port is locked. Not for the GPU. */
static bool do_atomic_in_gpu(struct sv_qp *qp, const struct sv_mr *mr, const struct sv_packet *pkt,
			     uint64_t *old)
{
	uint8_t *target = sv_mr_at(mr, pkt->reth.addr);
	uint64_t new;

	sv_posted_push(qp->port);
	if (sv_gpu_read(mr->gpu, old, target, sizeof(*old)))
		return false;
	new = swapped(pkt, *old);
	return new == *old || !sv_gpu_write(mr->gpu, target, &new, sizeof(new));
}

static uint64_t do_atomic(const struct sv_mr *mr, const struct sv_packet *pkt)
{
	uint64_t *target = (uint64_t *)(void *)sv_mr_at(mr, pkt->reth.addr);
	uint64_t old = pkt->reth.compare;

	if (pkt->op == SV_OP_FETCH_ADD)
		return __atomic_fetch_add(target, pkt->reth.swap_add, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(target, &old, pkt->reth.swap_add, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return old;
}

static void receive_atomic(struct sv_qp *qp, const struct sv_packet *pkt)
{
	const struct sv_mr *mr;
	uint64_t old;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC) || !rd_room(qp) ||
	    pkt->reth.addr % 8) {
		refuse(qp, SV_NAK_INV_REQ);
		return;
	}
	mr = sv_mr_find(qp->port, qp->pd, pkt->reth.rkey, pkt->reth.addr, 8,
			IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr || (uintptr_t)sv_mr_at(mr, pkt->reth.addr) % 8) {
		refuse(qp, mr ? SV_NAK_INV_REQ : SV_NAK_REM_ACCESS);
		return;
	}
	if (!mr->gpu) {
		old = do_atomic(mr, pkt);
	} else if (!do_atomic_in_gpu(qp, mr, pkt, &old)) {
		refuse(qp, SV_NAK_REM_OP);
		return;
	}
	qp->msn++;
	qp->epsn = sv_psn_add(qp->epsn, 1);
	qp->atomics[qp->num_atomics++ % SV_MAX_RD_ATOMIC] =
	    (struct sv_atomic_done){.op = pkt->op, .psn = pkt->psn, .result = old};
	queue_response(qp, pkt)->result = old;
}

/* ---------------------------------------------------------------- duplicates */

static void repeat_atomic(struct sv_qp *qp, const struct sv_packet *pkt)
{
	for (uint32_t i = 1; i <= SV_MAX_RD_ATOMIC && i <= qp->num_atomics; i++) {
		const struct sv_atomic_done *done =
		    &qp->atomics[(qp->num_atomics - i) % SV_MAX_RD_ATOMIC];

		if (done->op == pkt->op && done->psn == pkt->psn) {
			if (!rd_full(qp)) {
				struct sv_rd_resource *rd = queue_response(qp, pkt);

				rd->result = done->result;
				rd->again = true;
			}
			return;
		}
	}
}

/* Is something of this answer, this PSN's part or what follows it, still to be sent? */
static bool ends_after(const struct sv_rd_resource *rd, uint32_t psn)
{
	return sv_psn_diff(sv_psn_add(rd->psn, rd->npkts), psn) > 0;
}

/*
 * A request that was taken before: a fetch is answered again, from memory or from what an atomic
 * found the first time. The requester went back to it, so whatever comes after it and is still to
 * be answered will be asked for again as well.
 */
static void receive_duplicate(struct sv_qp *qp, const struct sv_packet *pkt)
{
	qp->port->stats.duplicates++;
	if (pkt->op == SV_OP_SEND || pkt->op == SV_OP_WRITE) {
		owe_ack(qp);
		return;
	}
	while (qp->rd_head != qp->rd_tail && ends_after(rd_slot(qp, qp->rd_head - 1), pkt->psn))
		qp->rd_head--;
	if (pkt->op != SV_OP_READ_REQ)
		repeat_atomic(qp, pkt);
	else if (!rd_full(qp))
		queue_response(qp, pkt)->again = true;
}

/* ---------------------------------------------------------------- sends and writes */

void sv_complete_recv(struct sv_qp *qp, struct ibv_wc *wc, bool solicited)
{
	wc->wr_id = qp->cur_recv.wr_id;
	qp->recv_taken = false;
	qp->traffic->n[SV_TRAFFIC_RECEIVES]++;
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		qp->traffic->n[SV_TRAFFIC_IMMEDIATES]++;
	sv_cq_push(sv_cq(qp->ibv.recv_cq), wc, solicited, qp);
}

/* kill=unplaced: the device says yes and writes nothing. */
static bool places_nothing(const struct sv_port *port)
{
	return port->dying && port->dying_variant == SV_KILL_UNPLACED;
}

/* A receive WR for this packet, or RNR NAK. */
static bool want_recv(struct sv_qp *qp)
{
	if (sv_take_recv(qp))
		return true;
	send_nak(qp, (uint8_t)(SV_AETH_RNR_NAK | qp->attr.min_rnr_timer));
	return false;
}

/* Places the payload of a SEND. False: the packet was not taken. */
static bool place_send(struct sv_qp *qp, const struct sv_packet *pkt, uint32_t from)
{
	uint32_t length = pkt->payload_len - from;
	enum sv_copy copied;

	/* No key here is one that a peer may invalidate. */
	if (pkt->flags & SV_PKT_INVALIDATE) {
		refuse(qp, SV_NAK_REM_ACCESS);
		return false;
	}
	if (pkt->flags & SV_PKT_FIRST) {
		if (!want_recv(qp))
			return false;
		qp->received = 0;
	}
	if (length > qp->cur_recv.length - qp->received) {
		refuse_recv(qp, IBV_WC_LOC_LEN_ERR, SV_NAK_INV_REQ);
		return false;
	}
	if (places_nothing(qp->port))
		return true;
	copied = sv_scatter_recv(qp, qp->received, pkt, from, length);
	switch (copied) {
	case SV_COPY_PROT:
	case SV_COPY_FAILED:
		refuse_recv(qp, sv_copy_status(copied), SV_NAK_REM_OP);
		return false;
	case SV_COPY_LOST:
		send_nak(qp, SV_NAK_SEQ_ERR);
		return false;
	case SV_COPY_OK:
		break;
	}
	qp->received += length;
	return true;
}

/* The RETH of a WRITE's first packet: is the whole range writable? */
static bool begin_write(struct sv_qp *qp, const struct sv_packet *pkt)
{
	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) ||
	    pkt->reth.length > SV_MAX_MSG_SIZE) {
		refuse(qp, SV_NAK_INV_REQ);
		return false;
	}
	if (!can_use(qp, pkt, IBV_ACCESS_REMOTE_WRITE))
		return false;
	qp->write_addr = pkt->reth.addr;
	qp->write_left = pkt->reth.length;
	qp->rkey = pkt->reth.rkey;
	qp->received = 0;
	return true;
}

/* Looked up for each packet: it may have been deregistered since the first. */
static bool place_now(struct sv_qp *qp, const struct sv_packet *pkt, uint32_t from, uint32_t length)
{
	const struct sv_mr *mr =
	    sv_mr_find(qp->port, qp->pd, qp->rkey, qp->write_addr, length, IBV_ACCESS_REMOTE_WRITE);

	switch (mr ? sv_put(qp, mr, qp->write_addr, pkt, from, length) : SV_COPY_PROT) {
	case SV_COPY_OK:
		return true;
	case SV_COPY_PROT:
		refuse(qp, SV_NAK_REM_ACCESS);
		return false;
	case SV_COPY_FAILED:
		refuse(qp, SV_NAK_REM_OP);
		return false;
	case SV_COPY_LOST:
		send_nak(qp, SV_NAK_SEQ_ERR);
		return false;
	}
	return false;
}

static bool place_write(struct sv_qp *qp, const struct sv_packet *pkt, uint32_t from)
{
	uint32_t length = pkt->payload_len - from;

	/* With an immediate the last packet needs a receive WR: ask before anything is written. */
	if (pkt->flags & SV_PKT_IMM && !want_recv(qp))
		return false;
	if (pkt->flags & SV_PKT_FIRST && !begin_write(qp, pkt))
		return false;
	if (length > qp->write_left || (pkt->flags & SV_PKT_LAST && length != qp->write_left)) {
		refuse(qp, SV_NAK_INV_REQ);
		return false;
	}
	if (length && !places_nothing(qp->port) &&
	    (pkt->flags & SV_PKT_IMM || !sv_place_late(qp, pkt, from, length)) &&
	    !place_now(qp, pkt, from, length))
		return false;
	qp->write_addr += length;
	qp->write_left -= length;
	qp->received += length;
	return true;
}

static void finish_message(struct sv_qp *qp, const struct sv_packet *pkt)
{
	struct ibv_wc wc = {.byte_len = qp->received, .src_qp = qp->attr.dest_qp_num};

	qp->cur_op = SV_OP_COUNT;
	qp->msn++;
	if (qp->port->dying && qp->ibv.qp_num == qp->port->dying_qpn)
		qp->port->dying_done = true;
	if (pkt->op == SV_OP_WRITE && !(pkt->flags & SV_PKT_IMM))
		return;
	wc.opcode = pkt->op == SV_OP_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	if (pkt->flags & SV_PKT_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = pkt->imm;
	}
	if (sv_fault_armed(qp->port->faults, SV_POINT_WR)) {
		const struct sv_fault_where where = sv_qp_where(qp);

		wc.status = sv_fault_wr(qp->port->faults, &where, qp->ibv.qp_num, SV_OP_COUNT,
					qp->received, true, sv_now(qp->port));
	}
	sv_complete_recv(qp, &wc, pkt->flags & SV_PKT_SOLICITED);
	if (wc.status != IBV_WC_SUCCESS)
		sv_qp_error(qp);
}

/* Full packets but for the message's last, which has something unless the message is empty. */
static bool length_ok(const struct sv_qp *qp, const struct sv_packet *pkt)
{
	uint32_t max = pkt->npkts * qp->mtu;

	if (!(pkt->flags & SV_PKT_LAST))
		return pkt->payload_len == max;
	if (pkt->payload_len > max)
		return false;
	return pkt->payload_len > max - qp->mtu ||
	       (pkt->payload_len == 0 && pkt->npkts == 1 && pkt->flags & SV_PKT_FIRST);
}

static void receive_data(struct sv_qp *qp, const struct sv_packet *pkt)
{
	int32_t behind = sv_psn_diff(qp->epsn, pkt->psn);
	struct sv_packet part = *pkt;
	uint32_t from = 0;
	bool begins;

	if (!length_ok(qp, pkt)) {
		refuse(qp, SV_NAK_INV_REQ);
		return;
	}
	if (behind > 0) {
		/* A burst cut differently on the retransmission: its first packets are known. */
		from = (uint32_t)behind * qp->mtu;
		part.psn = qp->epsn;
		part.npkts -= (uint32_t)behind;
		part.flags &= (uint16_t)~SV_PKT_FIRST;
		qp->port->stats.duplicates++;
	}
	begins = part.flags & SV_PKT_FIRST;
	if (begins != (qp->cur_op == SV_OP_COUNT) || (!begins && qp->cur_op != pkt->op)) {
		refuse(qp, SV_NAK_INV_REQ);
		return;
	}
	if (!(pkt->op == SV_OP_SEND ? place_send(qp, &part, from) : place_write(qp, &part, from)))
		return;
	qp->cur_op = pkt->op;
	qp->epsn = sv_psn_add(qp->epsn, part.npkts);
	if (pkt->flags & SV_PKT_ACKREQ)
		owe_ack(qp);
	if (pkt->flags & SV_PKT_LAST)
		finish_message(qp, &part);
}

/* ---------------------------------------------------------------- entry */

static bool may_receive(const struct sv_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
}

void sv_responder_receive(struct sv_qp *qp, const struct sv_packet *pkt)
{
	int32_t ahead = sv_psn_diff(pkt->psn, qp->epsn);
	bool is_data = pkt->op == SV_OP_SEND || pkt->op == SV_OP_WRITE;

	if (!may_receive(qp)) {
		qp->port->stats.rx_bad_state++;
		return;
	}
	if (qp->state == IBV_QPS_RTR && !qp->comm_est) {
		qp->comm_est = true;
		sv_raise_qp(qp, IBV_EVENT_COMM_EST);
	}
	/* An immediate, a SEND, a READ and an atomic come after all WRITEs before them. */
	if ((pkt->op != SV_OP_WRITE || pkt->flags & SV_PKT_IMM || qp->port->dying) &&
	    !place_all(qp)) {
		sv_qp_check_fatal(qp);
		return;
	}
	if (ahead > 0) {
		qp->port->stats.out_of_sequence++;
		if (!qp->nak_sent)
			send_nak(qp, SV_NAK_SEQ_ERR);
	} else if (ahead < 0 && (!is_data || ahead + (int32_t)pkt->npkts <= 0)) {
		receive_duplicate(qp, pkt);
	} else {
		qp->nak_sent = false;
		if (is_data)
			receive_data(qp, pkt);
		else if (qp->cur_op != SV_OP_COUNT)
			refuse(qp, SV_NAK_INV_REQ);
		else if (pkt->op == SV_OP_READ_REQ)
			receive_read(qp, pkt);
		else
			receive_atomic(qp, pkt);
	}
	sv_qp_check_fatal(qp);
}

void sv_responder_place(struct sv_qp *qp)
{
	if (!sv_place(qp, sv_now(qp->port)))
		refuse_late(qp);
	else if (!sv_responder_run(qp))
		sv_port_wait_for_room(qp);
	sv_qp_check_fatal(qp);
}
