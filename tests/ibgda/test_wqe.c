/* SPDX-License-Identifier: Apache-2.0 */
/* Work requests and completions, byte for byte as rdma-core's helpers and structures have them. */
#include "../unit/cmocka_all.h"

#include "nccl_ha/ibgda_cqe.h"
#include "nccl_ha/ibgda_wqe.h"

#include <string.h>

#if __has_include(<infiniband/mlx5dv.h>)
#include <infiniband/mlx5dv.h>

#define QPN    0x123456u
#define POISON 0x5a
#define ADDR   0x1122334455667788ull
#define REMOTE 0x99aabbccddeeff00ull
#define LKEY   0xa1b2c3d4u
#define RKEY   0x51627384u
#define IMM    0x0badcafeu

static const struct ha_wqe_data data = {
    .addr = ADDR, .remote_addr = REMOTE, .lkey = LKEY, .rkey = RKEY, .size = 4096};

/* What rdma-core makes of it. */
static struct {
	struct mlx5_wqe_ctrl_seg control;
	struct mlx5_wqe_raddr_seg remote;
	union {
		struct mlx5_wqe_data_seg data[2];
		struct {
			struct mlx5_wqe_atomic_seg atomic;
			struct mlx5_wqe_data_seg behind;
		};
		struct {
			struct mlx5_wqe_inl_data_seg head;
			uint64_t value;
		} __attribute__((packed)) in;
	};
} wanted;

_Static_assert(sizeof(wanted) == HA_WQE_BLOCK, "a block");

static void want(uint16_t index, uint8_t opcode, uint8_t sixteenths, uint32_t imm)
{
	memset(&wanted, POISON, sizeof(wanted));
	memset(&wanted.control, 0, sizeof(wanted.control));
	mlx5dv_set_ctrl_seg(&wanted.control, index, opcode, 0, QPN, MLX5_WQE_CTRL_CQ_UPDATE,
			    sixteenths, 0, imm);
	wanted.remote = (struct mlx5_wqe_raddr_seg){htobe64(REMOTE), htobe32(RKEY), 0};
}

static void is_wanted(const struct ha_wqe *wqe, uint32_t sixteenths)
{
	assert_memory_equal(wqe, &wanted, 16 * sixteenths);
}

static void every_request_is_as_rdma_core_writes_it(void **state)
{
	static const uint16_t indices[] = {0, 1, 0x7fff, 0xffff};
	struct ha_wqe wqe;

	(void)state;
	for (unsigned int i = 0; i < sizeof(indices) / sizeof(indices[0]); i++) {
		const uint16_t index = indices[i];

		memset(&wqe, POISON, sizeof(wqe));
		want(index, MLX5_OPCODE_RDMA_WRITE, 3, 0);
		mlx5dv_set_data_seg(&wanted.data[0], data.size, LKEY, ADDR);
		ha_wqe_transfer(&wqe, 0x10000u | index, HA_WQE_WRITE, QPN, &data, 0);
		is_wanted(&wqe, 4); /* nothing else is touched */

		want(index, MLX5_OPCODE_RDMA_WRITE_IMM, 3, IMM);
		mlx5dv_set_data_seg(&wanted.data[0], data.size, LKEY, ADDR);
		ha_wqe_transfer(&wqe, index, HA_WQE_WRITE_IMM, QPN, &data, IMM);
		is_wanted(&wqe, 3);

		want(index, MLX5_OPCODE_RDMA_READ, 3, 0);
		mlx5dv_set_data_seg(&wanted.data[0], data.size, LKEY, ADDR);
		ha_wqe_transfer(&wqe, index, HA_WQE_READ, QPN, &data, 0);
		is_wanted(&wqe, 3);

		want(index, MLX5_OPCODE_ATOMIC_FA, 4, 0);
		wanted.atomic = (struct mlx5_wqe_atomic_seg){htobe64(77), 0};
		mlx5dv_set_data_seg(&wanted.behind, 8, LKEY, ADDR);
		ha_wqe_fetch_add(&wqe, index, QPN, &data, 77);
		is_wanted(&wqe, 4);

		want(index, MLX5_OPCODE_NOP, 1, 0);
		ha_wqe_nop(&wqe, index, QPN);
		is_wanted(&wqe, 1);
	}
}

static void a_value_goes_inline_as_it_lies_in_memory(void **state)
{
	struct ha_wqe wqe;

	(void)state;
	want(5, MLX5_OPCODE_RDMA_WRITE, 3, IMM);
	wanted.in.head.byte_count = htobe32(8 | MLX5_INLINE_SEG);
	wanted.in.value = ADDR;
	ha_wqe_write_value(&wqe, 5, HA_WQE_WRITE, QPN, REMOTE, RKEY, ADDR, IMM);
	assert_memory_equal(&wqe, &wanted, 32 + 4 + 8);
}

static void the_doorbell_is_the_head_and_the_record_the_index_behind_it(void **state)
{
	struct ha_wqe wqe;
	uint64_t head;

	(void)state;
	ha_wqe_nop(&wqe, 0xffff, QPN);
	head = ha_wqe_head(0xffff, HA_WQE_NOP, QPN, 1);
	assert_memory_equal(&wqe, &head, sizeof(head));
	assert_int_equal(ha_wqe_record(0x10000), 0);
	assert_int_equal(be32toh(ha_wqe_record(0x1ffff)), 0xffff);
	assert_int_equal(MLX5_SND_DBR, 1);
}

static void fill_entry(struct mlx5_cqe64 *cqe, uint8_t opcode, uint8_t lap, uint16_t index)
{
	memset(cqe, POISON, sizeof(*cqe));
	cqe->wqe_counter = htobe16(index);
	cqe->op_own = (uint8_t)(opcode << 4 | lap);
}

/* Three laps of a queue of four. */
static void an_entry_counts_in_its_own_lap(void **state)
{
	struct mlx5_cqe64 queue[4];
	const uint8_t *bytes = (const uint8_t *)queue;

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		fill_entry(&queue[i], MLX5_CQE_INVALID, 0, 0);
	for (uint64_t n = 0; n < 12; n++) {
		struct ha_cqe cqe = ha_cqe_read(bytes, 2, n);

		assert_int_equal(cqe.kind, HA_CQE_NOT_YET);
		fill_entry(&queue[n % 4], MLX5_CQE_REQ, n / 4 % 2, (uint16_t)(0xfffe + n));
		cqe = ha_cqe_read(bytes, 2, n);
		assert_int_equal(cqe.kind, HA_CQE_DONE);
		assert_int_equal(cqe.index, (uint16_t)(0xfffe + n));
		assert_int_equal(ha_cqe_read(bytes, 2, n + 4).kind, HA_CQE_NOT_YET);
	}
}

static void a_failure_is_none_of_the_done_and_says_how(void **state)
{
	struct mlx5_cqe64 entry;
	struct mlx5_err_cqe *failed = (struct mlx5_err_cqe *)(void *)&entry;
	struct ha_cqe cqe;

	(void)state;
	fill_entry(&entry, MLX5_CQE_REQ_ERR, 0, 9);
	failed->syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
	cqe = ha_cqe_read((const uint8_t *)&entry, 0, 0);
	assert_int_equal(cqe.kind, HA_CQE_FAILED);
	assert_int_equal(cqe.syndrome, HA_CQE_RETRIES);
	assert_int_equal(cqe.index, 9);
	fill_entry(&entry, MLX5_CQE_RESP_ERR, 0, 9);
	assert_int_equal(ha_cqe_read((const uint8_t *)&entry, 0, 0).kind, HA_CQE_OTHER);
	assert_int_equal(HA_CQE_FLUSHED, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
	assert_int_equal(HA_CQE_REMOTE_ACCESS, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
	assert_int_equal(HA_CQE_RNR, MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);
	assert_int_equal(HA_CQE_LOCAL_QP, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
	assert_int_equal(HA_CQE_LOCAL_PROTECTION, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_request_is_as_rdma_core_writes_it),
	    cmocka_unit_test(a_value_goes_inline_as_it_lies_in_memory),
	    cmocka_unit_test(the_doorbell_is_the_head_and_the_record_the_index_behind_it),
	    cmocka_unit_test(an_entry_counts_in_its_own_lap),
	    cmocka_unit_test(a_failure_is_none_of_the_done_and_says_how),
	};

	return cmocka_run_group_tests_name("ibgda_wqe", tests, NULL, NULL);
}
#else
int main(void)
{
	puts("SKIP: rdma-core's mlx5dv.h is not there");
	return 77;
}
#endif
