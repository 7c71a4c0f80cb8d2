/* SPDX-License-Identifier: Apache-2.0 */
/* Unreliable datagrams: one packet per message, complete when sent, dropped when unwelcome. */
#include "core.h"

#include <arpa/inet.h>
#include <string.h>

#define GRH_BYTES 40u
/* A Q_Key with this bit in a WR stands for the QP's own. */
#define QKEY_OF_QP 0x80000000u

static int build(struct sv_qp *qp, struct sv_swqe *wqe, struct sv_packet *pkt,
		 struct sv_frag *frags)
{
	const struct sv_phys_config *phys = &qp->port->cfg.phys[qp->attr.port_num - 1];
	int n;

	pkt->op = SV_OP_UD;
	pkt->flags = SV_PKT_FIRST | SV_PKT_LAST;
	pkt->dst_port = wqe->route.port;
	pkt->dst_qpn = wqe->ud_qpn;
	pkt->sport = wqe->route.sport;
	pkt->psn = qp->next_psn;
	pkt->npkts = 1;
	pkt->payload_len = wqe->length;
	pkt->ud.qkey = wqe->ud_qkey & QKEY_OF_QP ? qp->attr.qkey : wqe->ud_qkey;
	pkt->ud.slid = phys->lid;
	pkt->ud.sl = wqe->route.sl;
	pkt->traffic_class = wqe->route.traffic_class;
	pkt->hop_limit = wqe->route.hop_limit;
	if (wqe->route.is_global) {
		pkt->flags |= SV_PKT_GRH;
		pkt->ud.sgid = phys->gids[wqe->route.sgid_index].gid;
		pkt->ud.dgid = wqe->route.dgid;
	}
	if (wqe->opcode == IBV_WR_SEND_WITH_IMM) {
		pkt->flags |= SV_PKT_IMM;
		pkt->imm = wqe->imm;
	}
	if (wqe->flags & IBV_SEND_SOLICITED)
		pkt->flags |= SV_PKT_SOLICITED;
	if (!wqe->length)
		return 0;
	/* Complete as soon as it is sent, so the buffer may change at once. */
	pkt->flags |= SV_PKT_VOLATILE;
	if (wqe->flags & IBV_SEND_INLINE) {
		frags[0] =
		    (struct sv_frag){.addr = (uintptr_t)wqe->inline_data, .length = wqe->length};
		return 1;
	}
	n = sv_gather(qp, wqe->sge, wqe->num_sge, 0, pkt, frags);
	return n < 0 && n != -EIO ? -EINVAL : n;
}

/* 0, -EAGAIN, or a WC status above 0. */
static int send_one(struct sv_qp *qp, struct sv_swqe *wqe)
{
	struct sv_frag frags[SV_MAX_FRAGS];
	struct sv_packet pkt = {0};
	int nfrags;

	if (!wqe->status)
		wqe->status = (uint8_t)sv_fault_status(qp, wqe, true);
	if (wqe->status)
		return wqe->status;
	nfrags = build(qp, wqe, &pkt, frags);
	if (nfrags < 0)
		return nfrags == -EIO ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_LOC_PROT_ERR;
	return sv_port_send(qp, &pkt, frags, (uint32_t)nfrags);
}

void sv_ud_run(struct sv_qp *qp)
{
	if (qp->state != IBV_QPS_RTS || qp->wedged || !sv_list_empty(&qp->tx_link))
		goto out;
	while (qp->sq_tail != qp->sq_head && !qp->wedged) {
		struct sv_swqe *wqe = sv_sq_slot(qp, qp->sq_tail);
		int ret = send_one(qp, wqe);

		if (ret == -EAGAIN) {
			sv_port_wait_for_room(qp);
			break;
		}
		if (ret > 0) {
			sv_fail_send(qp, (enum ibv_wc_status)ret);
			return;
		}
		qp->traffic->n[SV_TRAFFIC_WORK_REQUESTS]++;
		qp->next_psn = sv_psn_add(qp->next_psn, 1);
		qp->sq_tail++;
		sv_complete_send(qp, wqe, IBV_WC_SUCCESS);
	}
out:
	qp->una_psn = qp->send_psn = qp->next_psn;
	qp->sq_next = qp->sqd_stop = qp->sq_tail;
	sv_check_drained(qp);
}

static void fill_grh(struct ibv_grh *grh, const struct sv_packet *pkt)
{
	*grh = (struct ibv_grh){
	    .version_tclass_flow = htonl(6u << 28 | (uint32_t)pkt->traffic_class << 20),
	    /* headers and checksum of a UD packet around the payload */
	    .paylen = htons((uint16_t)(pkt->payload_len + 24)),
	    .next_hdr = 0x1b,
	    .hop_limit = 64,
	    .sgid = pkt->ud.sgid,
	    .dgid = pkt->ud.dgid,
	};
}

static bool ud_may_receive(const struct sv_qp *qp)
{
	return qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD ||
	       qp->state == IBV_QPS_SQE;
}

void sv_ud_receive(struct sv_qp *qp, const struct sv_packet *pkt)
{
	struct sv_port_stats *stats = &qp->port->stats;
	struct sv_packet header = {.op = SV_OP_UD};
	struct ibv_wc wc = {
	    .opcode = IBV_WC_RECV,
	    .byte_len = GRH_BYTES + pkt->payload_len,
	    .src_qp = pkt->src_qpn,
	    .slid = pkt->ud.slid,
	    .sl = pkt->ud.sl,
	};
	enum sv_copy copied = SV_COPY_OK;
	struct ibv_grh grh;

	if (!ud_may_receive(qp)) {
		stats->rx_bad_state++;
		return;
	}
	if (pkt->ud.qkey != qp->attr.qkey) {
		stats->rx_bad_qkey++;
		return;
	}
	if (!sv_take_recv(qp)) {
		stats->rx_ud_no_buffer++;
		return;
	}
	/* The first 40 bytes are the GRH's even where there is none. */
	if (qp->cur_recv.length < wc.byte_len) {
		wc.status = IBV_WC_LOC_LEN_ERR;
	} else {
		if (pkt->flags & SV_PKT_GRH) {
			wc.wc_flags |= IBV_WC_GRH;
			fill_grh(&grh, pkt);
			header.payload = &grh;
			copied = sv_scatter_recv(qp, 0, &header, 0, GRH_BYTES);
		}
		if (copied == SV_COPY_OK)
			copied = sv_scatter_recv(qp, GRH_BYTES, pkt, 0, pkt->payload_len);
		if (copied == SV_COPY_LOST)
			return; /* the receive WR stays for the next one */
		if (copied != SV_COPY_OK)
			wc.status = sv_copy_status(copied);
	}
	if (pkt->flags & SV_PKT_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = pkt->imm;
	}
	sv_complete_recv(qp, &wc, pkt->flags & SV_PKT_SOLICITED);
	if (wc.status != IBV_WC_SUCCESS)
		sv_qp_error(qp);
	sv_qp_check_fatal(qp);
}
