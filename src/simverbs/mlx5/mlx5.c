/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libmlx5.so.1 for simverbs: every device is a ConnectX to who asks, and says where the queues of
 * its queue pairs are, as rdma-core's does. What it lacks of that one a program misses when it is
 * loaded, so it lies in a folder of its own.
 */
#include "nccl_ha/ibgda_dv.h"

#include <errno.h>
#include <simverbs/mlx5.h>
#include <stdbool.h>

bool mlx5dv_is_supported(struct ibv_device *device);
struct ibv_context *mlx5dv_open_device(struct ibv_device *device, void *attr);
ha_dv_init_obj_fn mlx5dv_init_obj;

bool mlx5dv_is_supported(struct ibv_device *device)
{
	(void)device;
	return true;
}

/* Whatever is asked for of a context is had by the plain one. */
struct ibv_context *mlx5dv_open_device(struct ibv_device *device, void *attr)
{
	(void)attr;
	return ibv_open_device(device);
}

static int init_qp(struct ibv_qp *qp, struct ha_dv_qp *out)
{
	struct sv_direct_send_queue queue;
	int err = sv_direct_send_queue(qp, &queue);

	if (err)
		return err;
	/* comp_mask says what of the optional fields is wanted, and comes back with what there is.
	 */
	out->records = queue.records;
	out->sends = (struct ha_dv_ring){.buf = queue.blocks, .count = queue.count, .stride = 64};
	out->receives = (struct ha_dv_ring){0};
	out->bf.reg = queue.doorbell;
	out->bf.size = 0; /* no more than a doorbell */
	out->comp_mask = 0;
	return 0;
}

static int init_cq(struct ibv_cq *cq, struct ha_dv_cq *out)
{
	struct sv_direct_completion_queue queue;
	int err = sv_direct_completion_queue(cq, &queue);

	if (err)
		return err;
	out->buf = queue.entries;
	out->records = queue.records;
	out->count = queue.count;
	out->size = 64;
	out->uar = NULL;
	out->number = cq->handle;
	out->comp_mask = 0;
	return 0;
}

int mlx5dv_init_obj(struct ha_dv_obj *obj, uint64_t obj_type)
{
	int err = 0;

	if (obj_type & ~(uint64_t)(HA_DV_OBJ_QP | HA_DV_OBJ_CQ))
		return EOPNOTSUPP;
	if (obj_type & HA_DV_OBJ_QP)
		err = init_qp(obj->qp.in, obj->qp.out);
	if (!err && obj_type & HA_DV_OBJ_CQ)
		err = init_cq(obj->cq.in, obj->cq.out);
	return err;
}
