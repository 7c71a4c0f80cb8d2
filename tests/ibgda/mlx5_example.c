/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program as one writes it for a ConnectX, against rdma-core's headers alone: it drives a send
 * queue itself, and writes into its own memory through a queue pair that is connected with itself.
 * On simverbs it runs unchanged, with simverbs' libmlx5.so.1 in place of rdma-core's.
 *
 *     mlx5_example WRITES
 */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "mlx5_example: line %d: %s\n", __LINE__, #condition);      \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *sends, *receives;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct mlx5dv_qp queue;
	struct mlx5dv_cq completions;
	uint64_t words[2]; /* from, to */
} p;

static void open_first_device(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);

	CHECK(devices && devices[0] && mlx5dv_is_supported(devices[0]));
	p.context = mlx5dv_open_device(devices[0], &(struct mlx5dv_context_attr){0});
	CHECK(p.context);
	ibv_free_device_list(devices);
}

static void make_queue_pair(void)
{
	struct ibv_qp_init_attr init = {
	    .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 28},
	    .qp_type = IBV_QPT_RC};
	struct mlx5dv_obj obj = {0};

	p.pd = ibv_alloc_pd(p.context);
	p.mr = ibv_reg_mr(p.pd, p.words, sizeof(p.words),
			  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	p.sends = ibv_create_cq(p.context, 63, NULL, NULL, 0);
	p.receives = ibv_create_cq(p.context, 1, NULL, NULL, 0);
	init.send_cq = p.sends;
	init.recv_cq = p.receives;
	p.qp = ibv_create_qp(p.pd, &init);
	CHECK(p.pd && p.mr && p.sends && p.receives && p.qp);
	obj.qp.in = p.qp;
	obj.qp.out = &p.queue;
	obj.cq.in = p.sends;
	obj.cq.out = &p.completions;
	CHECK(mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) == 0);
}

static void connect_with_itself(void)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	CHECK(!ibv_modify_qp(p.qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = IBV_MTU_1024,
				    .dest_qp_num = p.qp->qp_num,
				    .min_rnr_timer = 12,
				    .ah_attr = {.port_num = 1, .is_global = 1}};
	attr.ah_attr.grh.sgid_index = 3;
	CHECK(!ibv_query_gid(p.context, 1, 3, &attr.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(p.qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 3};
	CHECK(!ibv_modify_qp(p.qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void writes(uint32_t index)
{
	uint8_t *block =
	    (uint8_t *)p.queue.sq.buf + (index & (p.queue.sq.wqe_cnt - 1)) * p.queue.sq.stride;
	struct mlx5_wqe_ctrl_seg *control = (void *)block;
	struct mlx5_wqe_raddr_seg *remote = (void *)(block + 16);
	struct mlx5_wqe_data_seg *data = (void *)(block + 32);

	mlx5dv_set_ctrl_seg(control, (uint16_t)index, MLX5_OPCODE_RDMA_WRITE, 0, p.qp->qp_num,
			    MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, 0);
	remote->raddr = htobe64((uintptr_t)&p.words[1]);
	remote->rkey = htobe32(p.mr->rkey);
	remote->reserved = 0;
	mlx5dv_set_data_seg(data, 8, p.mr->lkey, (uintptr_t)&p.words[0]);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	p.queue.dbrec[MLX5_SND_DBR] = htobe32((index + 1) & 0xffff);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)p.queue.bf.reg = *(uint64_t *)(void *)control;
}

static void waits(uint32_t index)
{
	struct mlx5_cqe64 *cqe =
	    (void *)((uint8_t *)p.completions.buf + (index & (p.completions.cqe_cnt - 1)) * 64);
	const uint8_t lap = index & p.completions.cqe_cnt ? 1 : 0;
	volatile uint8_t *owner = &cqe->op_own;

	while (*owner >> 4 == MLX5_CQE_INVALID || (*owner & 1) != lap)
		;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	CHECK(mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ);
	CHECK(be16toh(cqe->wqe_counter) == (uint16_t)index);
	p.completions.dbrec[0] = htobe32((index + 1) & 0xffffff);
}

int main(int argc, char **argv)
{
	const uint32_t count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000;

	open_first_device();
	make_queue_pair();
	connect_with_itself();
	for (uint32_t index = 0; index < count; index++) {
		__atomic_store_n(&p.words[0], index + 1, __ATOMIC_RELEASE);
		writes(index);
		waits(index);
		CHECK(__atomic_load_n(&p.words[1], __ATOMIC_ACQUIRE) == index + 1);
	}
	CHECK(!ibv_destroy_qp(p.qp) && !ibv_destroy_cq(p.sends) && !ibv_destroy_cq(p.receives));
	CHECK(!ibv_dereg_mr(p.mr) && !ibv_dealloc_pd(p.pd) && !ibv_close_device(p.context));
	printf("%u writes\n", count);
	return 0;
}
