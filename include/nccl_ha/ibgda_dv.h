/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libmlx5.so.1 says of the queues of a queue pair and of a completion queue: its structures,
 * declared here so that nothing is linked against it. Layouts are those of rdma-core 44, and only
 * what is at a fixed place in all versions since is used.
 */
#ifndef HA_IBGDA_DV_H
#define HA_IBGDA_DV_H

#include <stddef.h>
#include <stdint.h>

struct ibv_qp;
struct ibv_cq;

#define HA_DV_OBJ_QP 1u /* obj_type of mlx5dv_init_obj() */
#define HA_DV_OBJ_CQ 2u

/* What a parent domain's allocator is asked for. */
#define HA_DV_RES_QP  ((uint64_t)1 << 32 | 1)
#define HA_DV_RES_DBR ((uint64_t)1 << 32 | 3)
#define HA_DV_RES_CQ  ((uint64_t)1 << 32 | 5)

struct ha_dv_ring {
	void *buf;
	uint32_t count, stride;
};

struct ha_dv_qp {
	uint32_t *records; /* big-endian: of the receive queue, of the send queue */
	struct ha_dv_ring sends, receives;
	struct {
		void *reg; /* the doorbell */
		uint32_t size;
	} bf;
	uint64_t comp_mask; /* what is filled in of the rest */
	uint64_t rest[4];
};

struct ha_dv_cq {
	void *buf;
	uint32_t *records; /* big-endian: what was taken; arming */
	uint32_t count, size;
	void *uar;
	uint32_t number;
	uint64_t comp_mask;
};

/* A pair of pointers for each type; types that are not asked for are not looked at. */
struct ha_dv_obj {
	struct {
		struct ibv_qp *in;
		struct ha_dv_qp *out;
	} qp;
	struct {
		struct ibv_cq *in;
		struct ha_dv_cq *out;
	} cq;
	void *others[10];
};

typedef int ha_dv_init_obj_fn(struct ha_dv_obj *obj, uint64_t obj_type);

#endif
