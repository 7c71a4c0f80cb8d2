/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verbs/edge.h"

#include "base/bytes.h"
#include "base/random.h"
#include "device/address.h"
#include "device/give_back.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <endian.h>
#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define PSN_MASK      0xffffffu
#define MIN_RNR_TIMER 12
#define RNR_RETRY     0 /* a message without a receive is a bug at one end */

/* The other end writes `heard`; `said` is what goes there. Little-endian. A line each. */
struct ha_edge_words {
	alignas(64) _Atomic uint64_t heard;
	alignas(64) uint64_t said;
};

enum what { SEND, RECV, WORD }; /* a work request's wr_id */

static ha_result_t fail(struct ha_edge *edge, const char *why)
{
	if (!edge->fault)
		edge->fault = why;
	return HA_ERR_SYSTEM;
}

/* ---- opening -------------------------------------------------------------------------------- */

static ha_result_t make_words(struct ha_edge *edge)
{
	edge->words = aligned_alloc(alignof(struct ha_edge_words), sizeof(*edge->words));
	if (!edge->words)
		return fail(edge, "aligned_alloc");
	memset(edge->words, 0, sizeof(*edge->words));
	edge->word_mr = ibv_reg_mr(edge->on->pd, edge->words, sizeof(*edge->words),
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	return edge->word_mr ? HA_OK : fail(edge, "ibv_reg_mr");
}

/* Room for every send and receive, and a word. */
static ha_result_t make_queues(struct ha_edge *edge)
{
	struct ibv_qp_init_attr init = {
	    .qp_type = IBV_QPT_RC,
	    .cap = {.max_send_wr = edge->depth.sends + 1,
		    .max_recv_wr = edge->depth.recvs,
		    .max_send_sge = HA_EDGE_SGES,
		    .max_recv_sge = 1},
	};

	/* Without a context of its own: who reads a device's events takes one for a path's. */
	edge->cq = ibv_create_cq(edge->on->ctx, (int)(edge->depth.sends + 1 + edge->depth.recvs),
				 NULL, NULL, 0);
	if (!edge->cq)
		return fail(edge, "ibv_create_cq");
	init.send_cq = init.recv_cq = edge->cq;
	edge->qp = ibv_create_qp(edge->on->pd, &init);
	return edge->qp ? HA_OK : fail(edge, "ibv_create_qp");
}

static ha_result_t to_init(struct ha_edge *edge)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .pkey_index = atomic_load(&edge->port->pkey_index),
	    .port_num = edge->port->port_num,
	    .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	const int rc = ibv_modify_qp(
	    edge->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

	return rc ? fail(edge, "ibv_modify_qp to INIT") : HA_OK;
}

static ha_result_t make(struct ha_edge *edge)
{
	HA_TRY(make_words(edge));
	HA_TRY(make_queues(edge));
	return to_init(edge);
}

ha_result_t ha_edge_open(struct ha_edge *edge, struct ha_port *port,
			 const struct ha_edge_depth *depth)
{
	ha_result_t result;

	*edge = (struct ha_edge){.port = port,
				 .depth = *depth,
				 .psn = (uint32_t)ha_random() & PSN_MASK,
				 .wait = {.limit_ns = HA_EDGE_WAIT_NS}};
	result = ha_nic_pd_get(port->nic, &edge->on);
	if (result != HA_OK)
		return fail(edge, "ibv_alloc_pd");
	result = make(edge);
	if (result != HA_OK && ha_edge_close(edge) != HA_OK)
		fail(edge, "ibv_destroy_qp");
	return result;
}

void ha_edge_address(const struct ha_edge *edge, struct ha_edge_address *out)
{
	struct ha_port_addr own;

	ha_port_addr(edge->port, &own);
	*out = (struct ha_edge_address){
	    .qpn = edge->qp->qp_num,
	    .psn = edge->psn,
	    .lid = own.lid,
	    .mtu = (uint8_t)own.mtu,
	    .word_rkey = edge->word_mr->rkey,
	    .word = (uintptr_t)&edge->words->heard,
	};
	memcpy(out->gid, own.gid.raw, sizeof(out->gid));
}

static int to_rtr(struct ha_edge *edge, const struct ha_edge_address *remote)
{
	struct ha_remote_addr to = {.lid = remote->lid};
	struct ha_port_addr own;
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTR,
	    .dest_qp_num = remote->qpn,
	    .rq_psn = remote->psn,
	    .max_dest_rd_atomic = 0,
	    .min_rnr_timer = MIN_RNR_TIMER,
	};

	ha_port_addr(edge->port, &own);
	attr.path_mtu = own.mtu < (enum ibv_mtu)remote->mtu ? own.mtu : (enum ibv_mtu)remote->mtu;
	memcpy(to.gid, remote->gid, sizeof(to.gid));
	ha_address_fill(&own, edge->port->port_num, &to, &attr.ah_attr);
	return ibv_modify_qp(edge->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ha_edge *edge)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS,
	    .timeout = (uint8_t)edge->port->config->rc_timeout,
	    .retry_cnt = (uint8_t)edge->port->config->rc_retry_cnt,
	    .rnr_retry = RNR_RETRY,
	    .sq_psn = edge->psn,
	    .max_rd_atomic = 0,
	};

	return ibv_modify_qp(edge->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

ha_result_t ha_edge_connect(struct ha_edge *edge, const struct ha_edge_address *remote)
{
	edge->remote_word = remote->word;
	edge->remote_word_rkey = remote->word_rkey;
	if (to_rtr(edge, remote) != 0)
		return fail(edge, "ibv_modify_qp to RTR");
	return to_rts(edge) == 0 ? HA_OK : fail(edge, "ibv_modify_qp to RTS");
}

/* ---- messages ------------------------------------------------------------------------------- */

/* A piece of no bytes is none: to some devices a length of 0 means 2 GiB. */
static int without_empty(const struct ibv_sge *pieces, int n)
{
	while (n > 0 && pieces[n - 1].length == 0)
		n--;
	return n;
}

bool ha_edge_send(struct ha_edge *edge, struct ibv_sge *pieces, int n)
{
	struct ibv_send_wr wr = {.wr_id = SEND,
				 .sg_list = pieces,
				 .num_sge = without_empty(pieces, n),
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (!ha_edge_has_room(edge) || ibv_post_send(edge->qp, &wr, &bad) != 0)
		return fail(edge, "ibv_post_send") == HA_OK;
	edge->sends++;
	return true;
}

bool ha_edge_recv(struct ha_edge *edge, struct ibv_sge piece)
{
	struct ibv_recv_wr wr = {.wr_id = RECV,
				 .sg_list = &piece,
				 .num_sge = without_empty(&piece, 1)},
			   *bad;

	if (edge->fault || edge->is_fenced || edge->recvs == edge->depth.recvs ||
	    ibv_post_recv(edge->qp, &wr, &bad) != 0)
		return fail(edge, "ibv_post_recv") == HA_OK;
	edge->recvs++;
	return true;
}

/* Also what was flushed is not under way any more. */
static void count(struct ha_edge *edge, uint64_t what)
{
	edge->sends -= what == SEND;
	edge->recvs -= what == RECV;
	edge->saying -= what == WORD;
	edge->acknowledged += what != RECV;
}

enum ha_edge_event ha_edge_poll(struct ha_edge *edge, uint32_t *bytes)
{
	struct ibv_wc wc;

	while (edge->cq && ibv_poll_cq(edge->cq, 1, &wc) > 0) {
		count(edge, wc.wr_id);
		if (wc.status != IBV_WC_SUCCESS) {
			if (!edge->is_fenced)
				fail(edge, ibv_wc_status_str(wc.status));
			continue;
		}
		if (wc.wr_id == WORD)
			continue;
		*bytes = wc.wr_id == RECV ? wc.byte_len : 0;
		return wc.wr_id == RECV ? HA_EDGE_CAME : HA_EDGE_SENT;
	}
	return HA_EDGE_NOTHING;
}

/* ---- words ---------------------------------------------------------------------------------- */

static int write_word(struct ha_edge *edge, uint64_t word)
{
	struct ibv_sge sge = {
	    .addr = (uintptr_t)&edge->words->said, .length = 8, .lkey = edge->word_mr->lkey};
	struct ibv_send_wr wr = {.wr_id = WORD,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	edge->saying++;
	wr.wr.rdma.remote_addr = edge->remote_word;
	wr.wr.rdma.rkey = edge->remote_word_rkey;
	edge->words->said = htole64(word);
	return ibv_post_send(edge->qp, &wr, &bad);
}

void ha_edge_say(struct ha_edge *edge, uint64_t word)
{
	if (!edge->qp || word <= edge->said || edge->saying > 0 || edge->fault || edge->is_fenced)
		return;
	if (write_word(edge, word) != 0) {
		fail(edge, "ibv_post_send");
		return;
	}
	edge->said = word;
}

uint64_t ha_edge_word(const struct ha_edge *edge)
{
	if (!edge->words)
		return 0;
	return le64toh(atomic_load_explicit(&edge->words->heard, memory_order_acquire));
}

/* ---- what is lost last ---------------------------------------------------------------------- */

static uint64_t within(uint64_t ns, uint64_t least_ns, uint64_t most_ns)
{
	return ns < least_ns ? least_ns : ns > most_ns ? most_ns : ns;
}

/* Of what is sent into the quiet alone, as what comes behind others takes as long as they do. The
 * limit is twice that; where it was too short to measure anything, it stays longer. */
static void measure(struct ha_edge_wait *wait, uint64_t gap_ns)
{
	if (wait->was_probed)
		return;
	if (wait->is_first && wait->usual_ns)
		wait->usual_ns += (gap_ns >> 3) - (wait->usual_ns >> 3);
	else if (wait->is_first)
		wait->usual_ns = gap_ns;
	if (wait->usual_ns)
		wait->limit_ns = within(2 * wait->usual_ns, HA_EDGE_WAIT_NS, HA_EDGE_WAIT_MOST_NS);
}

static void probe(struct ha_edge *edge)
{
	struct ha_edge_wait *wait = &edge->wait;

	wait->was_probed = true;
	wait->limit_ns = within(2 * wait->limit_ns, HA_EDGE_WAIT_NS, HA_EDGE_WAIT_MOST_NS);
	if (write_word(edge, edge->said) != 0)
		fail(edge, "ibv_post_send");
}

void ha_edge_look(struct ha_edge *edge, uint64_t now_ns)
{
	struct ha_edge_wait *wait = &edge->wait;
	const bool is_waiting = edge->sends + edge->saying > 0;

	if (wait->since_ns && edge->acknowledged != wait->seen)
		measure(wait, now_ns - wait->since_ns);
	if (!is_waiting || !wait->since_ns || edge->acknowledged != wait->seen) {
		wait->is_first = !wait->since_ns;
		wait->seen = edge->acknowledged;
		wait->since_ns = is_waiting ? now_ns : 0;
		wait->was_probed = false;
		return;
	}
	if (now_ns - wait->since_ns >= wait->limit_ns && edge->saying < HA_EDGE_WORDS &&
	    edge->sends + edge->saying <= edge->depth.sends && !edge->fault && !edge->is_fenced)
		probe(edge);
}

/* ---- the end -------------------------------------------------------------------------------- */

void ha_edge_fence(struct ha_edge *edge)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	edge->is_fenced = true;
	if (edge->qp && ibv_modify_qp(edge->qp, &attr, IBV_QP_STATE) != 0)
		fail(edge, "ibv_modify_qp to ERR"); /* destroying it is what counts */
}

ha_result_t ha_edge_close(struct ha_edge *edge)
{
	bool is_refused;

	if (!edge->on)
		return HA_OK;
	edge->is_fenced = true;
	is_refused = edge->qp && ibv_destroy_qp(edge->qp) != 0;
	ha_leaks_of_asked(edge->on, &edge->asked, HA_OBJECT_QP, is_refused);
	if (is_refused)
		return HA_ERR_SYSTEM;
	edge->qp = NULL;
	ha_give_back(edge->on, HA_OBJECT_CQ, edge->cq, NULL, NULL);
	edge->cq = NULL;
	ha_give_back(edge->on, HA_OBJECT_MR, edge->word_mr, free, edge->words);
	edge->word_mr = NULL;
	edge->words = NULL;
	ha_nic_pd_put(edge->on);
	edge->on = NULL;
	return HA_OK;
}
