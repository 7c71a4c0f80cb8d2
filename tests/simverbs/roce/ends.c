/* SPDX-License-Identifier: Apache-2.0 */
#include "../../unit/cmocka_all.h"

#include "ends.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 20

char own_address[ADDRESSES][INET_ADDRSTRLEN];

void name_devices(unsigned num)
{
	unsigned id = (unsigned)getpid();
	char names[ADDRESSES * 24] = "";

	for (unsigned i = 0; i < ADDRESSES; i++)
		snprintf(own_address[i], sizeof(own_address[i]), "127.%u.%u.%u", 1 + id / 250 % 250,
			 1 + id % 250, i + 1 + id / 62500 % 60 * 4);
	for (unsigned i = 0; i < num; i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%slo@%s",
			 i ? "," : "", own_address[i]);
	setenv("SIMVERBS_ROCE", names, 1);
}

struct ibv_context *open_device(unsigned index)
{
	int num;
	struct ibv_device **list = ibv_get_device_list(&num);
	struct ibv_context *ctx;

	assert_non_null(list);
	assert_true((unsigned)num > index);
	ctx = ibv_open_device(list[index]);
	ibv_free_device_list(list);
	return ctx;
}

void open_end(struct end *e, unsigned device, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
	    .cap = {.max_send_wr = 128, .max_recv_wr = 128, .max_send_sge = 2, .max_recv_sge = 2},
	    .qp_type = type,
	    .sq_sig_all = 1,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = QKEY,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						      IBV_ACCESS_REMOTE_READ |
						      IBV_ACCESS_REMOTE_ATOMIC};

	memset(e, 0, sizeof(*e));
	e->ctx = open_device(device);
	assert_non_null(e->ctx);
	e->pd = ibv_alloc_pd(e->ctx);
	e->cq = ibv_create_cq(e->ctx, 512, NULL, NULL, 0);
	e->buf = calloc(1, BUF_BYTES);
	e->mr = ibv_reg_mr(e->pd, e->buf, BUF_BYTES,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	assert_non_null(e->mr);
	init.send_cq = init.recv_cq = e->cq;
	e->qp = ibv_create_qp(e->pd, &init);
	assert_non_null(e->qp);
	assert_int_equal(ibv_query_gid(e->ctx, 1, 1, &e->gid), 0);
	e->psn = 0xfffff0; /* wraps soon */
	assert_int_equal(
	    ibv_modify_qp(e->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	    0);
}

struct ibv_ah_attr address_of(const struct end *e)
{
	return (struct ibv_ah_attr){.is_global = 1,
				    .port_num = 1,
				    .grh = {.dgid = e->gid, .sgid_index = 1, .hop_limit = 64}};
}

static void connect_end(struct end *e, const struct end *peer, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = mtu,
				   .dest_qp_num = peer->qp->qp_num,
				   .rq_psn = peer->psn,
				   .sq_psn = e->psn,
				   .max_dest_rd_atomic = 8,
				   .max_rd_atomic = 8,
				   .min_rnr_timer = 1,
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .ah_attr = address_of(peer)};

	assert_int_equal(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e->qp, &attr,
				       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void ready_datagrams(struct end *e)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR, .sq_psn = e->psn};

	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void connect_ends(struct end *a, struct end *b, enum ibv_mtu mtu)
{
	connect_end(a, b, mtu);
	connect_end(b, a, mtu);
}

void open_pair(struct end *a, struct end *b, enum ibv_qp_type type, enum ibv_mtu mtu)
{
	open_end(a, 0, type);
	open_end(b, 1, type);
	if (type == IBV_QPT_UD) {
		ready_datagrams(a);
		ready_datagrams(b);
	} else {
		connect_ends(a, b, mtu);
	}
}

void close_end(struct end *e)
{
	assert_int_equal(ibv_destroy_qp(e->qp), 0);
	assert_int_equal(ibv_dereg_mr(e->mr), 0);
	assert_int_equal(ibv_destroy_cq(e->cq), 0);
	assert_int_equal(ibv_dealloc_pd(e->pd), 0);
	assert_int_equal(ibv_close_device(e->ctx), 0);
	free(e->buf);
}

void close_pair(struct end *a, struct end *b)
{
	close_end(a);
	close_end(b);
}

void post_send(struct end *e, const struct end *peer, enum ibv_wr_opcode op, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = op,
				 .imm_data = htonl(77)},
			   *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)peer->buf;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 9;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)peer->buf;
		wr.wr.rdma.rkey = peer->mr->rkey;
	}
	assert_int_equal(ibv_post_send(e->qp, &wr, &bad), 0);
}

void post_recv(struct end *e, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)e->buf, length, e->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(e->qp, &wr, &bad), 0);
}

struct ibv_wc expect_wc(struct end *e, enum ibv_wc_status status)
{
	time_t end = time(NULL) + LIMIT_S;
	struct ibv_wc wc = {0};
	int n;

	do
		n = ibv_poll_cq(e->cq, 1, &wc);
	while (n == 0 && time(NULL) < end);
	assert_int_equal(n, 1);
	assert_int_equal(wc.status, status);
	return wc;
}
