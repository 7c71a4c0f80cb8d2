/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between core and wire, with a wire that is this test: what the core sends when, what
 * it does when the wire is full or loses a payload, and that no packet, however wrong, does harm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simverbs/engine.h"
#include "simverbs/fault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define OWN_PORT  1u
#define PEER_PORT 0u
#define PEER_QPN  77u
#define OWN_PSN	  1000u
#define PEER_PSN  2000u
#define MTU	  256u
#define BUF	  16384u
#define MAX_SENT  64u

/* What the wire was asked to do, and how it shall behave. */
static struct mock {
	struct sv_packet sent[MAX_SENT];
	uint32_t num_sent;
	uint32_t room; /* descriptors it still takes */
	uint64_t now_ns;
	uint64_t armed_ns;
	uint32_t lose_payloads;
	uint32_t next_qpn;
} mock;

static int mock_send(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	uint32_t length = 0;

	(void)port;
	for (uint32_t i = 0; i < nfrags; i++)
		length += frags[i].length;
	assert_int_equal(length, pkt->payload_len);
	if (!mock.room)
		return -EAGAIN;
	mock.room--;
	mock.sent[mock.num_sent++ % MAX_SENT] = *pkt;
	return 0;
}

static int mock_copy(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset, void *dst,
		     uint32_t length)
{
	(void)port;
	assert_true(offset + length <= pkt->payload_len);
	if (mock.lose_payloads) {
		mock.lose_payloads--;
		return -ESRCH;
	}
	memset(dst, 0xab, length);
	return 0;
}

static uint64_t mock_now(struct sv_port *port)
{
	(void)port;
	return mock.now_ns;
}

static void mock_arm(struct sv_port *port, uint64_t deadline_ns)
{
	(void)port;
	mock.armed_ns = deadline_ns;
}

static int mock_resolve(struct sv_port *port, const struct ibv_ah_attr *attr, uint16_t *dst_port)
{
	(void)port;
	(void)attr;
	*dst_port = PEER_PORT;
	return 0;
}

static int mock_qpn_alloc(struct sv_port *port, uint32_t *qpn)
{
	(void)port;
	*qpn = mock.next_qpn++;
	return 0;
}

static void mock_qpn_free(struct sv_port *port, uint32_t qpn)
{
	(void)port;
	(void)qpn;
}

static const struct sv_wire_ops ops = {
    .send = mock_send,
    .copy_payload = mock_copy,
    .now_ns = mock_now,
    .arm_timer = mock_arm,
    .resolve = mock_resolve,
    .qpn_alloc = mock_qpn_alloc,
    .qpn_free = mock_qpn_free,
};

/* ---------------------------------------------------------------- one connected end */

struct bench {
	struct sv_port *port;
	struct sv_device dev;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	int async_fd;
	bool open_at_put; /* the descriptor, when the port was given back */
};

static struct bench *the_bench;

static struct sv_port *get_port(struct sv_device *dev)
{
	(void)dev;
	return the_bench->port;
}

static void put_port(struct sv_device *dev, struct sv_port *port)
{
	(void)dev;
	(void)port;
	the_bench->open_at_put = fcntl(the_bench->async_fd, F_GETFD) >= 0;
}

static void release(struct sv_device *dev)
{
	(void)dev;
}

static void connect_qp(struct bench *b)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = b->cq,
	    .recv_cq = b->cq,
	    .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2},
	    .qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT,
	    .port_num = 1,
	    .path_mtu = IBV_MTU_256,
	    .dest_qp_num = PEER_QPN,
	    .rq_psn = PEER_PSN,
	    .sq_psn = OWN_PSN,
	    .max_dest_rd_atomic = 4,
	    .max_rd_atomic = 4,
	    .timeout = 14,
	    .retry_cnt = 3,
	    .rnr_retry = 3,
	    .ah_attr = {.is_global = 1, .port_num = 1},
	    .qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	b->qp = sv_create_qp(b->pd, &init);
	assert_non_null(b->qp);
	assert_int_equal(
	    sv_modify_qp(b->qp, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
	    0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(sv_modify_qp(b->qp, &attr,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(sv_modify_qp(b->qp, &attr,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					  IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void open_bench(struct bench *b)
{
	struct sv_port_config cfg = {.index = OWN_PORT,
				     .devices = 2,
				     .host = 1,
				     .rails = 1,
				     .name = "sim0",
				     .link_layer = IBV_LINK_LAYER_ETHERNET,
				     .mtu = IBV_MTU_4096,
				     .rate_mbps = 100000,
				     .num_phys = 1,
				     .phys[0] = {.num_gids = 1,
						 .pkeys = {SV_DEFAULT_PKEY},
						 .num_pkeys = 1,
						 .state = IBV_PORT_ACTIVE},
				     .window_bursts = 16,
				     .num_comp_vectors = 1};

	memset(b, 0, sizeof(*b));
	mock = (struct mock){.room = UINT32_MAX, .next_qpn = 5, .armed_ns = UINT64_MAX};
	the_bench = b;
	cfg.phys[0].gids[0].gid.raw[0] = 0xfe;
	sv_limits_default(&cfg.limits);
	b->port = sv_port_create(&cfg, &ops, NULL, NULL);
	assert_non_null(b->port);
	sv_device_init(&b->dev, &cfg);
	b->dev.get_port = get_port;
	b->dev.put_port = put_port;
	b->dev.release = release;
	b->ctx = sv_open_device(&b->dev.ibv);
	assert_non_null(b->ctx);
	b->async_fd = b->ctx->async_fd;
	b->pd = sv_alloc_pd(b->ctx);
	b->cq = sv_create_cq(b->ctx, 255, NULL, NULL, 0);
	/* Of its own allocation, so that the sanitizer sees a byte too far. */
	b->buf = calloc(1, BUF);
	b->mr = sv_reg_mr(b->pd, b->buf, BUF,
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(b->mr);
	connect_qp(b);
}

static void close_bench(struct bench *b)
{
	assert_int_equal(sv_close_device(b->ctx), 0);
	sv_port_destroy(b->port);
	free(b->buf);
}

static void post(struct bench *b, enum ibv_wr_opcode op, uint64_t id, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)b->buf, length, b->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = 4096, .rkey = 9}},
			   *bad;

	assert_int_equal(sv_post_send(b->qp, &wr, &bad), 0);
}

static void expect_wc(struct bench *b, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(sv_poll_cq(b->cq, 1, &wc), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

static void expect_no_wc(struct bench *b)
{
	struct ibv_wc wc;

	assert_int_equal(sv_poll_cq(b->cq, 1, &wc), 0);
}

static enum ibv_qp_state state_of(struct bench *b)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(sv_query_qp(b->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

static struct sv_packet packet(struct bench *b, enum sv_op op, uint32_t psn, uint32_t flags,
			       uint32_t length)
{
	struct sv_packet pkt = {
	    .op = (uint8_t)op,
	    .flags = (uint16_t)flags,
	    .src_port = PEER_PORT,
	    .pkey = SV_DEFAULT_PKEY,
	    .dst_port = OWN_PORT,
	    .src_qpn = PEER_QPN,
	    .dst_qpn = b->qp->qp_num,
	    .psn = psn & SV_PSN_MASK,
	    .npkts = length ? (length + MTU - 1) / MTU : 1,
	    .payload_len = length,
	};

	pkt.reth.addr = (uintptr_t)b->buf;
	pkt.reth.rkey = b->mr->rkey;
	pkt.reth.length = length;
	return pkt;
}

static void receive(struct bench *b, const struct sv_packet *pkt)
{
	sv_port_lock(b->port);
	sv_port_receive(b->port, pkt);
	sv_port_flush(b->port);
	sv_port_unlock(b->port);
}

static void receive_ack(struct bench *b, uint32_t psn, uint8_t syndrome)
{
	struct sv_packet pkt = packet(b, SV_OP_ACK, psn, SV_PKT_FIRST | SV_PKT_LAST, 0);

	pkt.syndrome = syndrome;
	receive(b, &pkt);
}

static const struct sv_packet *last_sent(void)
{
	assert_true(mock.num_sent > 0);
	return &mock.sent[(mock.num_sent - 1) % MAX_SENT];
}

#define ONLY (SV_PKT_FIRST | SV_PKT_LAST | SV_PKT_ACKREQ)

/* ---------------------------------------------------------------- sending */

static void test_headers_of_a_message(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	post(&b, IBV_WR_RDMA_WRITE, 1, 3 * MTU + 1);
	assert_int_equal(mock.num_sent, 4);
	for (uint32_t i = 0; i < 4; i++) {
		const struct sv_packet *pkt = &mock.sent[i];

		assert_int_equal(pkt->op, SV_OP_WRITE);
		assert_int_equal(pkt->psn, OWN_PSN + i);
		assert_int_equal(pkt->src_port, OWN_PORT);
		assert_int_equal(pkt->dst_port, PEER_PORT);
		assert_int_equal(pkt->dst_qpn, PEER_QPN);
		assert_int_equal(pkt->payload_len, i < 3 ? MTU : 1);
		assert_int_equal(!!(pkt->flags & SV_PKT_FIRST), i == 0);
		assert_int_equal(!!(pkt->flags & SV_PKT_LAST), i == 3);
	}
	assert_int_equal(mock.sent[0].reth.addr, 4096);
	assert_int_equal(mock.sent[0].reth.length, 3 * MTU + 1);
	assert_true(mock.sent[3].flags & SV_PKT_ACKREQ);
	receive_ack(&b, OWN_PSN + 3, SV_AETH_ACK);
	expect_wc(&b, 1, IBV_WC_SUCCESS);
	close_bench(&b);
}

static void test_bursts_and_window(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	sv_port_lock(b.port);
	sv_port_set_burst(b.port, 4 * MTU);
	sv_port_unlock(b.port);
	for (uint64_t i = 0; i < 2; i++)
		post(&b, IBV_WR_RDMA_WRITE, i, 40 * MTU); /* the window is 16 bursts of 4 packets */
	assert_int_equal(mock.num_sent, 16);
	assert_int_equal(mock.sent[1].npkts, 4);
	assert_int_equal(mock.sent[1].psn, OWN_PSN + 4);
	receive_ack(&b, OWN_PSN + 15, SV_AETH_ACK);
	assert_int_equal(mock.num_sent, 20);
	/* An ack in the middle of a burst leaves room for a part of one. */
	receive_ack(&b, OWN_PSN + 17, SV_AETH_ACK);
	receive_ack(&b, OWN_PSN + 39, SV_AETH_ACK);
	expect_wc(&b, 0, IBV_WC_SUCCESS);
	receive_ack(&b, OWN_PSN + 79, SV_AETH_ACK);
	expect_wc(&b, 1, IBV_WC_SUCCESS);
	close_bench(&b);
}

static void test_full_wire_keeps_the_place(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	mock.room = 2;
	post(&b, IBV_WR_RDMA_WRITE, 1, 5 * MTU);
	post(&b, IBV_WR_RDMA_WRITE, 2, MTU);
	assert_int_equal(mock.num_sent, 2);
	assert_true(sv_port_wants_kick(b.port));
	mock.room = 1;
	sv_port_lock(b.port);
	assert_true(sv_port_kick(b.port));
	mock.room = 100;
	assert_false(sv_port_kick(b.port));
	sv_port_unlock(b.port);
	assert_int_equal(mock.num_sent, 6);
	for (uint32_t i = 0; i < 6; i++)
		assert_int_equal(mock.sent[i].psn, OWN_PSN + i);
	/* An ack that finds no room goes later, too. */
	mock.room = 0;
	receive(&b, &(struct sv_packet[]){packet(&b, SV_OP_WRITE, PEER_PSN, ONLY, 10)}[0]);
	assert_int_equal(mock.num_sent, 6);
	mock.room = 100;
	sv_port_lock(b.port);
	assert_false(sv_port_kick(b.port));
	sv_port_unlock(b.port);
	assert_int_equal(last_sent()->op, SV_OP_ACK);
	assert_int_equal(last_sent()->psn, PEER_PSN);
	close_bench(&b);
}

static void test_timer_is_armed_and_runs(void **state)
{
	const uint64_t timeout_ns = 4096ull << 14;
	struct bench b;

	(void)state;
	open_bench(&b);
	mock.now_ns = 500;
	post(&b, IBV_WR_RDMA_WRITE, 1, 10);
	assert_int_equal(mock.armed_ns, 500 + timeout_ns);
	sv_port_lock(b.port);
	assert_int_equal(sv_port_run_timers(b.port, 499 + timeout_ns), 500 + timeout_ns);
	assert_int_equal(mock.num_sent, 1);
	mock.now_ns = 500 + timeout_ns;
	assert_int_equal(sv_port_run_timers(b.port, mock.now_ns), mock.now_ns + timeout_ns);
	sv_port_unlock(b.port);
	assert_int_equal(mock.num_sent, 2);
	assert_int_equal(last_sent()->psn, OWN_PSN);
	assert_true(last_sent()->flags & SV_PKT_RETRY);
	receive_ack(&b, OWN_PSN, SV_AETH_ACK);
	sv_port_lock(b.port);
	assert_true(sv_port_next_deadline(b.port) == UINT64_MAX);
	sv_port_unlock(b.port);
	expect_wc(&b, 1, IBV_WC_SUCCESS);
	close_bench(&b);
}

/* ---------------------------------------------------------------- receiving */

static void test_lost_payload_is_asked_for_again(void **state)
{
	struct sv_packet pkt;
	struct bench b;

	(void)state;
	open_bench(&b);
	mock.lose_payloads = 1;
	pkt = packet(&b, SV_OP_WRITE, PEER_PSN, ONLY, 100);
	receive(&b, &pkt);
	assert_int_equal(last_sent()->op, SV_OP_ACK);
	assert_int_equal(last_sent()->syndrome, SV_NAK_SEQ_ERR);
	assert_int_equal(last_sent()->psn, PEER_PSN);
	assert_int_equal(b.buf[0], 0);
	receive(&b, &pkt);
	assert_int_equal(last_sent()->syndrome, SV_AETH_ACK);
	assert_int_equal(b.buf[99], 0xab);
	assert_int_equal(b.buf[100], 0);
	/* The same for the answer to a READ. */
	post(&b, IBV_WR_RDMA_READ, 1, 2 * MTU);
	assert_int_equal(last_sent()->op, SV_OP_READ_REQ);
	pkt = packet(&b, SV_OP_READ_RESP, OWN_PSN, SV_PKT_FIRST, MTU);
	receive(&b, &pkt);
	mock.lose_payloads = 1;
	pkt = packet(&b, SV_OP_READ_RESP, OWN_PSN + 1, SV_PKT_LAST, MTU);
	receive(&b, &pkt);
	assert_int_equal(last_sent()->op, SV_OP_READ_REQ);
	assert_int_equal(last_sent()->psn, OWN_PSN + 1);
	assert_int_equal(last_sent()->reth.addr, 4096 + MTU);
	assert_int_equal(last_sent()->reth.length, MTU);
	expect_no_wc(&b);
	receive(&b, &pkt);
	expect_wc(&b, 1, IBV_WC_SUCCESS);
	close_bench(&b);
}

/* Acks are collected until the flush: one for a batch. */
static void test_acks_are_coalesced(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	sv_port_lock(b.port);
	for (uint32_t i = 0; i < 10; i++) {
		struct sv_packet pkt = packet(&b, SV_OP_WRITE, PEER_PSN + i, ONLY, 10);

		sv_port_receive(b.port, &pkt);
	}
	assert_int_equal(mock.num_sent, 0);
	sv_port_flush(b.port);
	sv_port_unlock(b.port);
	assert_int_equal(mock.num_sent, 1);
	assert_int_equal(last_sent()->psn, PEER_PSN + 9);
	assert_int_equal(last_sent()->msn, 10);
	close_bench(&b);
}

/* Packets that nobody on this connection sent change nothing. */
static void test_strangers_are_ignored(void **state)
{
	struct sv_port_stats stats;
	struct sv_packet pkt;
	struct bench b;

	(void)state;
	open_bench(&b);
	pkt = packet(&b, SV_OP_WRITE, PEER_PSN, ONLY, 100);
	pkt.src_port = 5;
	receive(&b, &pkt);
	pkt.src_port = PEER_PORT;
	pkt.dst_qpn = 1234;
	receive(&b, &pkt);
	pkt = packet(&b, SV_OP_UD, PEER_PSN, ONLY, 100);
	receive(&b, &pkt);
	receive_ack(&b, OWN_PSN, SV_AETH_ACK); /* nothing was sent */
	receive_ack(&b, OWN_PSN, SV_NAK_REM_ACCESS);
	post(&b, IBV_WR_RDMA_WRITE, 1, 10);
	receive_ack(&b, OWN_PSN + 1, SV_AETH_ACK);    /* not sent yet */
	receive_ack(&b, OWN_PSN - 1, SV_NAK_INV_REQ); /* long ago */
	expect_no_wc(&b);
	assert_int_equal(b.buf[0], 0);
	assert_int_equal(mock.num_sent, 1);
	assert_int_equal(state_of(&b), IBV_QPS_RTS);
	sv_port_lock(b.port);
	sv_port_get_stats(b.port, &stats);
	sv_port_unlock(b.port);
	assert_int_equal(stats.rx_no_qp, 1);
	assert_int_equal(stats.rx_bad_state, 1);
	close_bench(&b);
}

/* Requests that make no sense end the connection with "invalid request". */
static void test_malformed_requests(void **state)
{
	static const struct {
		enum sv_op op;
		uint32_t flags, length, reth_length;
	} bad[] = {
	    {SV_OP_WRITE, 0, MTU, 0},			      /* middle of nothing */
	    {SV_OP_SEND, SV_PKT_LAST, 10, 0},		      /* end of nothing */
	    {SV_OP_WRITE, SV_PKT_FIRST, 10, 100},	      /* short first */
	    {SV_OP_WRITE, ONLY, 10, 11},		      /* less than promised */
	    {SV_OP_WRITE, ONLY, 11, 10},		      /* more than promised */
	    {SV_OP_WRITE, SV_PKT_FIRST, MTU, (1u << 30) + 1}, /* too long a message */
	    {SV_OP_READ_REQ, ONLY, 0, (1u << 30) + 1},
	};
	struct bench b;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct sv_packet pkt;

		open_bench(&b);
		pkt = packet(&b, bad[i].op, PEER_PSN, bad[i].flags, bad[i].length);
		pkt.reth.length = bad[i].reth_length;
		receive(&b, &pkt);
		assert_int_equal(last_sent()->op, SV_OP_ACK);
		assert_int_equal(last_sent()->syndrome, SV_NAK_INV_REQ);
		assert_int_equal(state_of(&b), IBV_QPS_ERR);
		close_bench(&b);
	}
}

static void test_malformed_responses(void **state)
{
	struct sv_packet pkt;
	struct bench b;

	(void)state;
	for (int variant = 0; variant < 4; variant++) {
		open_bench(&b);
		post(&b, IBV_WR_RDMA_READ, 1, 2 * MTU);
		pkt = packet(&b, SV_OP_READ_RESP, OWN_PSN, SV_PKT_FIRST | SV_PKT_LAST, 2 * MTU);
		switch (variant) {
		case 0: /* longer than asked for, in as many packets */
			pkt.payload_len = 2 * MTU + 1;
			break;
		case 1: /* too short */
			pkt.payload_len = MTU + 1;
			break;
		case 2: /* of another kind */
			pkt.op = SV_OP_ATOMIC_ACK;
			pkt.npkts = 1;
			break;
		default: /* more packets than asked for count as unheard of */
			pkt.npkts = 3;
			receive(&b, &pkt);
			expect_no_wc(&b);
			close_bench(&b);
			continue;
		}
		receive(&b, &pkt);
		expect_wc(&b, 1, IBV_WC_BAD_RESP_ERR);
		close_bench(&b);
	}
}

/* More READs than this end offered to answer at a time, all before it got to answer. */
static void test_too_many_reads(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	mock.room = 0;
	for (uint32_t i = 0; i < 5; i++) {
		struct sv_packet pkt = packet(&b, SV_OP_READ_REQ, PEER_PSN + i, ONLY, 0);

		pkt.reth.length = 10;
		assert_int_equal(state_of(&b), IBV_QPS_RTS);
		receive(&b, &pkt);
	}
	assert_int_equal(state_of(&b), IBV_QPS_ERR);
	close_bench(&b);
}

/* ---------------------------------------------------------------- anything at all */

static uint32_t random_state;

static uint32_t rnd(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 17;
	random_state ^= random_state << 5;
	return random_state % n;
}

static struct sv_packet random_packet(struct bench *b)
{
	static const uint8_t syndromes[] = {SV_AETH_ACK,    SV_AETH_RNR_NAK | 1, SV_NAK_SEQ_ERR,
					    SV_NAK_INV_REQ, SV_NAK_REM_ACCESS,	 0xff};
	uint32_t base = rnd(2) ? PEER_PSN : OWN_PSN;
	struct sv_packet pkt = packet(b, (enum sv_op)rnd(SV_OP_COUNT), base + rnd(40) - 8, rnd(512),
				      rnd(3) ? MTU * rnd(6) : rnd(2000));

	if (!rnd(20))
		pkt.psn = rnd(1 << 24);
	if (!rnd(10))
		pkt.npkts = 1 + rnd(20);
	pkt.syndrome = syndromes[rnd(20) ? rnd(3) : rnd(6)];
	pkt.reth.addr += rnd(4) ? rnd(64) * 8 : rnd(2 * BUF) - BUF / 2;
	pkt.reth.length = rnd(3) ? pkt.payload_len : rnd(BUF * 2);
	if (!rnd(30))
		pkt.reth.rkey ^= 1u << rnd(32);
	return pkt;
}

static void recreate(struct bench *b)
{
	struct ibv_wc wc;

	while (sv_poll_cq(b->cq, 1, &wc) == 1)
		;
	assert_int_equal(sv_destroy_qp(b->qp), 0);
	connect_qp(b);
}

/*
 * Random packets, WRs, timers and wire conditions: nothing crashes, reads or writes outside the
 * region (the sanitizer looks), and completions are of what was posted.
 */
static void test_random_packets_do_no_harm(void **state)
{
	uint32_t errors = 0, completions = 0;
	struct bench b;

	(void)state;
	open_bench(&b);
	random_state = 2463534242u;
	for (uint32_t i = 0; i < 150000; i++) {
		struct sv_packet pkt = random_packet(&b);
		struct ibv_recv_wr recv = {.wr_id = 1}, *bad;
		struct ibv_sge sge = {(uintptr_t)b.buf + rnd(BUF / 2), rnd(2048), b.mr->lkey};
		struct ibv_wc wc;

		mock.room = rnd(8) ? UINT32_MAX : rnd(3);
		mock.lose_payloads = !rnd(40);
		mock.now_ns += rnd(100000);
		receive(&b, &pkt);
		if (!rnd(3)) {
			recv.sg_list = &sge;
			recv.num_sge = 1;
			sv_post_recv(b.qp, &recv, &bad);
		}
		if (!rnd(4)) {
			struct ibv_send_wr wr = {.wr_id = 2,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = rnd(2) ? IBV_WR_RDMA_READ
								  : IBV_WR_SEND_WITH_IMM},
					   *bad_send;

			sv_post_send(b.qp, &wr, &bad_send);
		}
		if (!rnd(50)) {
			sv_port_lock(b.port);
			sv_port_run_timers(b.port, mock.now_ns);
			sv_port_kick(b.port);
			sv_port_unlock(b.port);
		}
		while (sv_poll_cq(b.cq, 1, &wc) == 1) {
			assert_true(wc.wr_id == 1 || wc.wr_id == 2);
			completions++;
		}
		if (state_of(&b) == IBV_QPS_ERR) {
			errors++;
			recreate(&b);
		}
	}
	/* It got somewhere. */
	assert_true(errors > 100 && completions > 10000);
	close_bench(&b);
}

/* A peer that has memory windows may send so; a key of a region is not its to take away. */
static void test_a_send_may_not_invalidate_a_key(void **state)
{
	struct ibv_recv_wr wr = {.wr_id = 7}, *bad;
	struct sv_packet pkt;
	struct bench b;

	(void)state;
	open_bench(&b);
	assert_int_equal(sv_post_recv(b.qp, &wr, &bad), 0);
	pkt = packet(&b, SV_OP_SEND, PEER_PSN, ONLY | SV_PKT_INVALIDATE, 0);
	pkt.invalidate_rkey = b.mr->rkey;
	receive(&b, &pkt);
	assert_int_equal(last_sent()->op, SV_OP_ACK);
	assert_int_equal(last_sent()->syndrome, SV_NAK_REM_ACCESS);
	expect_wc(&b, 7, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(state_of(&b), IBV_QPS_ERR);
	close_bench(&b);
}

/* Whoever waits for a device to be closed by another thread looks at descriptors. */
static void test_the_descriptor_of_a_device_goes_last(void **state)
{
	struct bench b;

	(void)state;
	open_bench(&b);
	close_bench(&b);
	assert_true(b.open_at_put);
	assert_int_equal(fcntl(b.async_fd, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_headers_of_a_message),
	    cmocka_unit_test(test_bursts_and_window),
	    cmocka_unit_test(test_full_wire_keeps_the_place),
	    cmocka_unit_test(test_timer_is_armed_and_runs),
	    cmocka_unit_test(test_lost_payload_is_asked_for_again),
	    cmocka_unit_test(test_acks_are_coalesced),
	    cmocka_unit_test(test_strangers_are_ignored),
	    cmocka_unit_test(test_malformed_requests),
	    cmocka_unit_test(test_malformed_responses),
	    cmocka_unit_test(test_too_many_reads),
	    cmocka_unit_test(test_random_packets_do_no_harm),
	    cmocka_unit_test(test_a_send_may_not_invalidate_a_key),
	    cmocka_unit_test(test_the_descriptor_of_a_device_goes_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
