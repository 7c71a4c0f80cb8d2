/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own declarations of what libmlx5.so.1 says (nccl_ha/ibgda_dv.h) against rdma-core's: sizes
 * and offsets.
 */
#include "../unit/cmocka_all.h"

#include "nccl_ha/ibgda_dv.h"

#include <infiniband/mlx5dv.h>

#define SAME(ours, our_member, theirs, their_member)                                               \
	do {                                                                                       \
		assert_int_equal(offsetof(struct ours, our_member),                                \
				 offsetof(struct theirs, their_member));                           \
		assert_int_equal(sizeof(((struct ours *)NULL)->our_member),                        \
				 sizeof(((struct theirs *)NULL)->their_member));                   \
	} while (0)

static void what_a_queue_pair_has_is_where_rdma_core_has_it(void **state)
{
	(void)state;
	SAME(ha_dv_qp, records, mlx5dv_qp, dbrec);
	SAME(ha_dv_qp, sends, mlx5dv_qp, sq);
	SAME(ha_dv_qp, sends.count, mlx5dv_qp, sq.wqe_cnt);
	SAME(ha_dv_qp, sends.stride, mlx5dv_qp, sq.stride);
	SAME(ha_dv_qp, receives, mlx5dv_qp, rq);
	SAME(ha_dv_qp, bf.reg, mlx5dv_qp, bf.reg);
	SAME(ha_dv_qp, bf.size, mlx5dv_qp, bf.size);
	SAME(ha_dv_qp, comp_mask, mlx5dv_qp, comp_mask);
	assert_int_equal(sizeof(struct ha_dv_qp), sizeof(struct mlx5dv_qp));
}

static void what_a_completion_queue_has_is_where_rdma_core_has_it(void **state)
{
	(void)state;
	SAME(ha_dv_cq, buf, mlx5dv_cq, buf);
	SAME(ha_dv_cq, records, mlx5dv_cq, dbrec);
	SAME(ha_dv_cq, count, mlx5dv_cq, cqe_cnt);
	SAME(ha_dv_cq, size, mlx5dv_cq, cqe_size);
	SAME(ha_dv_cq, uar, mlx5dv_cq, cq_uar);
	SAME(ha_dv_cq, number, mlx5dv_cq, cqn);
	SAME(ha_dv_cq, comp_mask, mlx5dv_cq, comp_mask);
	assert_int_equal(sizeof(struct ha_dv_cq), sizeof(struct mlx5dv_cq));
	SAME(ha_dv_obj, qp.in, mlx5dv_obj, qp.in);
	SAME(ha_dv_obj, qp.out, mlx5dv_obj, qp.out);
	SAME(ha_dv_obj, cq.in, mlx5dv_obj, cq.in);
	SAME(ha_dv_obj, cq.out, mlx5dv_obj, cq.out);
	assert_int_equal(sizeof(struct ha_dv_obj), sizeof(struct mlx5dv_obj));
	assert_int_equal(HA_DV_OBJ_QP, MLX5DV_OBJ_QP);
	assert_int_equal(HA_DV_OBJ_CQ, MLX5DV_OBJ_CQ);
	assert_true(HA_DV_RES_QP == MLX5DV_RES_TYPE_QP && HA_DV_RES_CQ == MLX5DV_RES_TYPE_CQ &&
		    HA_DV_RES_DBR == MLX5DV_RES_TYPE_DBR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_a_queue_pair_has_is_where_rdma_core_has_it),
	    cmocka_unit_test(what_a_completion_queue_has_is_where_rdma_core_has_it),
	};

	return cmocka_run_group_tests_name("ibgda_dv", tests, NULL, NULL);
}
