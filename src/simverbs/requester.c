/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requester half of a reliable connection: sends the WRs of the send queue as packets with
 * consecutive PSNs, completes them in order as acknowledgements and responses come in, and goes
 * back to the oldest unacknowledged PSN when one is lost (go-back-N).
 *
 *	sq_tail              sq_next                 sq_head
 *	   ▼ sent, waiting      ▼ to be sent            ▼ free
 *	───┬───┬───┬───┬───┬────┬───┬───┬───┬───┬───────┬────
 *	   ▲                    ▲
 *	una_psn             send_psn	(next_psn ≥ send_psn: highest ever sent + 1)
 */
#include "core.h"

/* Packets a QP may have in flight when the wire sets no other limit. */
#define DEFAULT_WINDOW 1024u
/* How often a sender with much to send asks for one. */
#define ACKS_PER_WINDOW 4u
/* PSNs in flight must stay below half the number space. */
#define MAX_PSNS_IN_FLIGHT (1 << 23)

static bool is_fetch(const struct sv_swqe *wqe)
{
	return wqe->op == SV_OP_READ_REQ || wqe->op == SV_OP_CMP_SWAP || wqe->op == SV_OP_FETCH_ADD;
}

static uint32_t burst_packets(const struct sv_qp *qp)
{
	uint32_t n = qp->port->cfg.burst_bytes / qp->mtu;

	return n ? n : 1;
}

static uint32_t full_window(const struct sv_qp *qp)
{
	uint32_t bursts = qp->port->cfg.window_bursts;

	return bursts ? bursts * burst_packets(qp) : DEFAULT_WINDOW;
}

static uint32_t window_packets(const struct sv_qp *qp)
{
	return qp->window ? qp->window : full_window(qp);
}

/* Something was lost: perhaps there is no room for so much on the way, or at the receiver. */
static void shrink_window(struct sv_qp *qp)
{
	uint32_t half = window_packets(qp) / 2;

	if (!qp->port->cfg.window_adapts)
		return;
	qp->window = half ? half : 1;
	qp->window_acks = 0;
}

/* With each window that arrives, of which there are so many acks, by one. */
static void grow_window(struct sv_qp *qp)
{
	if (++qp->window_acks < ACKS_PER_WINDOW)
		return;
	qp->window_acks = 0;
	if (++qp->window >= full_window(qp))
		qp->window = 0;
}

/* ---------------------------------------------------------------- completions */

static const enum ibv_wc_opcode wc_opcodes[] = {
    [IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
    [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
    [IBV_WR_SEND] = IBV_WC_SEND,
    [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
    [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
    [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
    [IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

void sv_complete_send(struct sv_qp *qp, const struct sv_swqe *wqe, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	/* An unsignalled WR is heard of only when it fails. */
	if (status == IBV_WC_SUCCESS && !(wqe->flags & IBV_SEND_SIGNALED) && !qp->sq_sig_all)
		return;
	wc = (struct ibv_wc){
	    .wr_id = wqe->wr_id,
	    .status = status,
	    .opcode = wc_opcodes[wqe->opcode],
	    .byte_len = is_fetch(wqe) ? wqe->length : 0,
	};
	sv_cq_push(sv_cq(qp->ibv.send_cq), &wc, false, qp);
}

void sv_fail_send(struct sv_qp *qp, enum ibv_wc_status status)
{
	struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);

	qp->sq_tail++;
	sv_complete_send(qp, wqe, status);
	sv_qp_send_error(qp);
}

enum ibv_wc_status sv_fault_status(struct sv_qp *qp, const struct sv_swqe *wqe, bool sent)
{
	struct sv_port *port = qp->port;
	struct sv_fault_where where;

	if (!sv_fault_armed(port->faults, SV_POINT_WR))
		return IBV_WC_SUCCESS;
	where = sv_qp_where(qp);
	return sv_fault_wr(port->faults, &where, qp->ibv.qp_num, wqe->op, wqe->length, sent,
			   sv_now(port));
}

/* ---------------------------------------------------------------- timer */

static enum sv_profile profile_of(const struct sv_qp *qp)
{
	return (enum sv_profile)qp->port->cfg.profile;
}

static void restart_timer(struct sv_qp *qp)
{
	if (qp->rnr_wait)
		return;
	if (qp->una_psn == qp->next_psn || qp->attr.timeout == 0)
		sv_qp_stop_timer(qp);
	else
		sv_qp_set_timer(qp, sv_now(qp->port) + sv_profile_retry_ns(profile_of(qp),
									   qp->attr.timeout,
									   qp->timeouts));
}

/* RNR timer codes, in units of 10 µs. */
static const uint32_t rnr_10us[32] = {
    65536, 1,	 2,    3,    4,	   6,	  8,	 12,	16,    24,    32,
    48,	   64,	 96,   128,  192,  256,	  384,	 512,	768,   1024,  1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
};

/* ---------------------------------------------------------------- sending */

/* Builds the next packet(s) of a SEND or WRITE. -EINVAL: the local memory cannot be read. */
static int build_data(struct sv_qp *qp, struct sv_swqe *wqe, struct sv_packet *pkt,
		      struct sv_frag *frags)
{
	uint32_t left = wqe->npkts - qp->next_pkt;
	uint32_t window = window_packets(qp);
	uint32_t room = window - (uint32_t)sv_psn_diff(qp->send_psn, qp->una_psn);
	uint32_t n = burst_packets(qp);
	uint32_t offset = qp->next_pkt * qp->mtu;

	if (n > left)
		n = left;
	if (n > room)
		n = room;
	pkt->npkts = n;
	pkt->payload_len = n == left ? wqe->length - offset : n * qp->mtu;
	if (qp->next_pkt == 0) {
		pkt->flags |= SV_PKT_FIRST;
		pkt->reth.addr = wqe->raddr;
		pkt->reth.rkey = wqe->rkey;
		pkt->reth.length = wqe->length;
	}
	qp->unrequested += n;
	if (n == left) {
		pkt->flags |= SV_PKT_LAST | SV_PKT_ACKREQ;
		if (wqe->opcode == IBV_WR_SEND_WITH_IMM ||
		    wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
			pkt->flags |= SV_PKT_IMM;
			pkt->imm = wqe->imm;
		}
		if (wqe->flags & IBV_SEND_SOLICITED)
			pkt->flags |= SV_PKT_SOLICITED;
	} else if (qp->unrequested >= window / ACKS_PER_WINDOW) {
		pkt->flags |= SV_PKT_ACKREQ;
	}
	if (!pkt->payload_len)
		return 0;
	if (wqe->flags & IBV_SEND_INLINE) {
		pkt->flags |= SV_PKT_VOLATILE;
		frags[0] = (struct sv_frag){.addr = (uintptr_t)wqe->inline_data + offset,
					    .length = pkt->payload_len};
		return 1;
	}
	return sv_gather(qp, wqe->sge, wqe->num_sge, offset, pkt, frags);
}

static void build_fetch(const struct sv_qp *qp, const struct sv_swqe *wqe, struct sv_packet *pkt)
{
	uint32_t done = qp->next_pkt * qp->mtu;

	pkt->flags |= SV_PKT_FIRST | SV_PKT_LAST | SV_PKT_ACKREQ;
	pkt->npkts = wqe->npkts - qp->next_pkt;
	pkt->reth.addr = wqe->raddr + done;
	pkt->reth.rkey = wqe->rkey;
	pkt->reth.length = wqe->length - done;
	pkt->reth.compare = wqe->compare;
	pkt->reth.swap_add = wqe->swap_add;
}

static int send_next(struct sv_qp *qp, struct sv_swqe *wqe)
{
	struct sv_packet pkt = {
	    .op = wqe->op,
	    .dst_port = qp->dst_port,
	    .dst_qpn = qp->attr.dest_qp_num,
	    .psn = qp->send_psn,
	};
	uint32_t unrequested = qp->unrequested;
	struct sv_frag frags[SV_MAX_FRAGS];
	int nfrags = 0, ret;
	bool again = qp->send_psn != qp->next_psn;

	if (again)
		pkt.flags |= SV_PKT_RETRY;
	if (is_fetch(wqe))
		build_fetch(qp, wqe, &pkt);
	else
		nfrags = build_data(qp, wqe, &pkt, frags);
	if (nfrags < 0)
		return nfrags;
	ret = sv_port_send(qp, &pkt, frags, (uint32_t)nfrags);
	if (ret) {
		qp->unrequested = unrequested;
		return ret;
	}
	if (again)
		qp->port->stats.retransmits += is_fetch(wqe) ? 1 : pkt.npkts;
	if (pkt.flags & SV_PKT_ACKREQ)
		qp->unrequested = 0;
	if (is_fetch(wqe))
		qp->rd_outstanding++;
	qp->send_psn = sv_psn_add(qp->send_psn, pkt.npkts);
	if (sv_psn_diff(qp->send_psn, qp->next_psn) > 0)
		qp->next_psn = qp->send_psn;
	qp->next_pkt += pkt.npkts;
	if (qp->next_pkt == wqe->npkts) {
		qp->sq_next++;
		qp->next_pkt = 0;
	}
	return 0;
}

/* May this WR's next packet go out now? */
static bool may_send(const struct sv_qp *qp, const struct sv_swqe *wqe)
{
	uint32_t in_flight = (uint32_t)sv_psn_diff(qp->send_psn, qp->una_psn);

	if (wqe->flags & IBV_SEND_FENCE && qp->rd_outstanding)
		return false;
	if (is_fetch(wqe))
		return qp->rd_outstanding < qp->attr.max_rd_atomic &&
		       in_flight + wqe->npkts < MAX_PSNS_IN_FLIGHT;
	return in_flight < window_packets(qp);
}

/* The oldest WR is known to fail: its turn has come. */
static bool fail_if_marked(struct sv_qp *qp)
{
	struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);

	if (qp->sq_tail == qp->sq_head || wqe->status == IBV_WC_SUCCESS)
		return false;
	sv_fail_send(qp, wqe->status);
	return true;
}

void sv_check_drained(struct sv_qp *qp)
{
	if (qp->state == IBV_QPS_SQD && qp->sqd_notify && qp->sq_next == qp->sqd_stop &&
	    qp->una_psn == qp->next_psn) {
		qp->sqd_notify = false;
		sv_raise_qp(qp, IBV_EVENT_SQ_DRAINED);
	}
}

void sv_requester_run(struct sv_qp *qp)
{
	uint32_t stop = qp->state == IBV_QPS_SQD ? qp->sqd_stop : qp->sq_head;

	if ((qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) || qp->wedged || qp->rnr_wait ||
	    !sv_list_empty(&qp->tx_link))
		return;
	while (qp->sq_next != stop && !qp->wedged) {
		struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_next);
		int ret;

		if (!wqe->sent && !wqe->status)
			wqe->status = (uint8_t)sv_fault_status(qp, wqe, false);
		if (wqe->status || !may_send(qp, wqe))
			break;
		if (!wqe->sent)
			wqe->psn = qp->send_psn;
		ret = send_next(qp, wqe);
		if (ret == -EAGAIN) {
			sv_port_wait_for_room(qp);
			break;
		}
		if (ret == -ENOTCONN) { /* what it waits for does not come */
			qp->wedged = true;
			break;
		}
		/* Not readable now, perhaps deregistered since: it fails once its turn comes. */
		if (ret) {
			wqe->status = ret == -EIO ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR;
			break;
		}
		if (!wqe->sent)
			qp->traffic->n[SV_TRAFFIC_WORK_REQUESTS]++;
		wqe->sent = true;
	}
	/* A fault rule may have stopped the queue, or broken it, with one of these packets. */
	if (sv_qp_check_broken(qp) || qp->wedged || fail_if_marked(qp))
		return;
	if (qp->deadline_ns == SV_NEVER)
		restart_timer(qp);
	sv_check_drained(qp);
}

/* ---------------------------------------------------------------- going back */

/* Points the sender at una_psn. */
static void go_back(struct sv_qp *qp)
{
	const struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);

	qp->sq_next = qp->sq_tail;
	qp->send_psn = qp->una_psn;
	qp->next_pkt = 0;
	if (qp->sq_tail != qp->sq_head && wqe->sent)
		qp->next_pkt = (uint32_t)sv_psn_diff(qp->una_psn, wqe->psn);
	qp->rd_outstanding = 0;
	qp->unrequested = 0;
}

/* A loss was reported. False: the retries are used up and the QP is in error. */
static bool retry(struct sv_qp *qp)
{
	if (qp->retries_left == 0) {
		sv_fail_send(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	qp->retries_left--;
	shrink_window(qp);
	go_back(qp);
	return true;
}

/* Nothing was reported in time. False: the QP is in error. */
static bool retry_after_timeout(struct sv_qp *qp)
{
	enum sv_retry verdict =
	    sv_profile_retry(profile_of(qp), qp->attr.timeout, qp->timeouts, qp->retries_left);

	if (verdict == SV_RETRY_EXCEEDED) {
		sv_fail_send(qp, IBV_WC_RETRY_EXC_ERR);
		return false;
	}
	if (verdict == SV_RETRY_SPEND)
		qp->retries_left--;
	qp->timeouts++; /* at most 31 for free, and 7 more */
	shrink_window(qp);
	go_back(qp);
	return true;
}

/* Is what was to be sent again still waiting for room? Then nobody could have answered it. */
static bool waits_to_retry(const struct sv_qp *qp)
{
	return !sv_list_empty(&qp->tx_link) && qp->send_psn == qp->una_psn;
}

void sv_requester_timeout(struct sv_qp *qp)
{
	if (sv_qp_check_broken(qp))
		return;
	if (qp->rnr_wait) {
		qp->rnr_wait = false;
	} else {
		/* The timer starts anew with what is sent. */
		if (qp->una_psn == qp->next_psn || waits_to_retry(qp))
			return;
		qp->port->stats.timeouts++;
		if (!retry_after_timeout(qp)) {
			sv_qp_check_fatal(qp);
			return;
		}
	}
	qp->rd_gap = false;
	sv_requester_run(qp);
	sv_qp_check_fatal(qp);
}

/* A response is missing though something later came: ask again, once until there is progress. */
static void ask_again(struct sv_qp *qp)
{
	if (qp->rd_gap)
		return;
	qp->rd_gap = true;
	if (retry(qp))
		restart_timer(qp);
}

/* ---------------------------------------------------------------- receiving */

static void made_progress(struct sv_qp *qp)
{
	qp->retries_left = qp->attr.retry_cnt;
	qp->timeouts = 0;
	qp->rnr_left = qp->attr.rnr_retry;
	qp->rd_gap = false;
	if (qp->window)
		grow_window(qp);
	/* Acknowledged beyond where a retransmission had got to: no need for that part. */
	if (sv_psn_diff(qp->una_psn, qp->send_psn) > 0)
		go_back(qp);
	restart_timer(qp);
}

/* The oldest WR is done. False: a fault rule made it fail. */
static bool finish_oldest(struct sv_qp *qp)
{
	struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);
	enum ibv_wc_status status = sv_fault_status(qp, wqe, true);

	if (status != IBV_WC_SUCCESS) {
		sv_fail_send(qp, status);
		return false;
	}
	if (is_fetch(wqe) && (int32_t)(qp->sq_tail - qp->sq_next) < 0 && qp->rd_outstanding)
		qp->rd_outstanding--;
	qp->sq_tail++;
	sv_complete_send(qp, wqe, IBV_WC_SUCCESS);
	return true;
}

/*
 * Everything up to and including psn is acknowledged, except what needs a response of its own.
 * False: the QP went into error.
 */
static bool acknowledge(struct sv_qp *qp, uint32_t psn)
{
	bool progress = false;

	while (qp->sq_tail != qp->sq_head) {
		struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);
		uint32_t last = sv_psn_add(wqe->psn, wqe->npkts - 1);

		if (!wqe->sent || is_fetch(wqe) || sv_psn_diff(psn, wqe->psn) < 0)
			break;
		progress = true;
		if (sv_psn_diff(psn, last) < 0) {
			qp->una_psn = sv_psn_add(psn, 1);
			break;
		}
		qp->una_psn = sv_psn_add(last, 1);
		if (!finish_oldest(qp))
			return false;
	}
	if (progress)
		made_progress(qp);
	return true;
}

static void receive_nak(struct sv_qp *qp, const struct sv_packet *pkt)
{
	enum ibv_wc_status status = IBV_WC_REM_OP_ERR;

	switch (pkt->syndrome) {
	case SV_NAK_SEQ_ERR:
		if (retry(qp))
			restart_timer(qp);
		return;
	case SV_NAK_INV_REQ:
		status = IBV_WC_REM_INV_REQ_ERR;
		break;
	case SV_NAK_REM_ACCESS:
		status = IBV_WC_REM_ACCESS_ERR;
		break;
	default:
		break;
	}
	sv_fail_send(qp, status);
}

static void receive_rnr(struct sv_qp *qp, uint32_t timer_code)
{
	if (qp->rnr_left == 0) {
		sv_fail_send(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return;
	}
	if (qp->attr.rnr_retry != 7) /* 7: for ever */
		qp->rnr_left--;
	qp->port->stats.rnr_waits++;
	go_back(qp);
	qp->rnr_wait = true;
	sv_qp_set_timer(qp, sv_now(qp->port) + rnr_10us[timer_code] * 10000ull);
}

static void receive_ack(struct sv_qp *qp, const struct sv_packet *pkt)
{
	bool positive = (pkt->syndrome & SV_AETH_KIND_MASK) == SV_AETH_ACK;
	uint32_t acked = positive ? pkt->psn : sv_psn_add(pkt->psn, SV_PSN_MASK);

	/* Old, or of something never sent. */
	if (sv_psn_diff(pkt->psn, qp->una_psn) < 0 || sv_psn_diff(pkt->psn, qp->next_psn) >= 0)
		return;
	if (!acknowledge(qp, acked))
		return;
	if (sv_psn_diff(acked, qp->una_psn) >= 0) {
		/* Stopped at a READ or atomic: its response was lost. */
		ask_again(qp);
		return;
	}
	if (positive)
		return;
	if ((pkt->syndrome & SV_AETH_KIND_MASK) == SV_AETH_RNR_NAK)
		receive_rnr(qp, pkt->syndrome & 0x1f);
	else
		receive_nak(qp, pkt);
}

static void receive_read(struct sv_qp *qp, struct sv_swqe *wqe, const struct sv_packet *pkt)
{
	uint32_t skip = (uint32_t)sv_psn_diff(qp->una_psn, pkt->psn);
	uint32_t offset = (uint32_t)sv_psn_diff(qp->una_psn, wqe->psn) * qp->mtu;
	uint32_t from = skip * qp->mtu;
	uint32_t length = pkt->payload_len - from;
	uint32_t end = sv_psn_add(pkt->psn, pkt->npkts);
	bool last = end == sv_psn_add(wqe->psn, wqe->npkts);
	enum sv_copy copied;

	if (pkt->payload_len < from || sv_psn_diff(end, sv_psn_add(wqe->psn, wqe->npkts)) > 0 ||
	    length > wqe->length - offset || (last && length != wqe->length - offset)) {
		sv_fail_send(qp, IBV_WC_BAD_RESP_ERR);
		return;
	}
	copied = sv_scatter(qp, qp->pd, wqe->sge, wqe->num_sge, offset, pkt, from, length);
	switch (copied) {
	case SV_COPY_PROT:
	case SV_COPY_FAILED:
		sv_fail_send(qp, sv_copy_status(copied));
		return;
	case SV_COPY_LOST:
		ask_again(qp);
		return;
	case SV_COPY_OK:
		break;
	}
	qp->una_psn = end;
	if (last && !finish_oldest(qp))
		return;
	made_progress(qp);
}

static void receive_atomic(struct sv_qp *qp, struct sv_swqe *wqe, const struct sv_packet *pkt)
{
	struct sv_packet result = {.op = SV_OP_ATOMIC_ACK, .payload = &pkt->atomic_result};
	enum sv_copy copied = sv_scatter(qp, qp->pd, wqe->sge, wqe->num_sge, 0, &result, 0, 8);

	if (copied != SV_COPY_OK) {
		sv_fail_send(qp, sv_copy_status(copied));
		return;
	}
	qp->una_psn = sv_psn_add(wqe->psn, 1);
	if (finish_oldest(qp))
		made_progress(qp);
}

/* A response also acknowledges all that was sent before its request. */
static void receive_response(struct sv_qp *qp, const struct sv_packet *pkt)
{
	uint32_t last = sv_psn_add(pkt->psn, pkt->npkts - 1);
	struct sv_swqe *wqe;

	if (sv_psn_diff(last, qp->una_psn) < 0 || sv_psn_diff(last, qp->next_psn) >= 0)
		return;
	if (!acknowledge(qp, sv_psn_add(pkt->psn, SV_PSN_MASK)))
		return;
	wqe = sv_sq_slot(qp, qp->sq_tail);
	if (qp->sq_tail == qp->sq_head || !wqe->sent)
		return;
	if (sv_psn_diff(pkt->psn, qp->una_psn) > 0) {
		ask_again(qp);
		return;
	}
	if (wqe->op == SV_OP_READ_REQ && pkt->op == SV_OP_READ_RESP)
		receive_read(qp, wqe, pkt);
	else if (wqe->op != SV_OP_READ_REQ && is_fetch(wqe) && pkt->op == SV_OP_ATOMIC_ACK)
		receive_atomic(qp, wqe, pkt);
	else
		sv_fail_send(qp, IBV_WC_BAD_RESP_ERR);
}

void sv_requester_receive(struct sv_qp *qp, const struct sv_packet *pkt)
{
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD) {
		qp->port->stats.rx_bad_state++;
		return;
	}
	if (pkt->op == SV_OP_ACK)
		receive_ack(qp, pkt);
	else
		receive_response(qp, pkt);
	sv_requester_run(qp);
	sv_qp_check_fatal(qp);
}
