/* SPDX-License-Identifier: Apache-2.0 */
/* What a simulated device is: default limits, and the device objects that applications list. */
#include "engine.h"

#include <stdio.h>

/* Roughly a ConnectX of today, but with a process's memory in mind. */
void sv_limits_default(struct sv_limits *limits)
{
	*limits = (struct sv_limits){
	    .max_qp = 65536,
	    .max_qp_wr = 32768,
	    .max_sge = 30,
	    .max_inline = 1024,
	    .max_cq = 65536,
	    .max_cqe = 4194303,
	    .max_mr = 65536,
	    .max_pd = 65536,
	    .max_ah = 1 << 24,
	    .max_srq = 65536,
	    .max_srq_wr = 32767,
	    .max_rd_atomic = 16,
	    .max_mr_size = UINT64_MAX,
	};
}

static void set(uint32_t *field, uint32_t value)
{
	if (value)
		*field = value;
}

void sv_limits_set(struct sv_limits *limits, const struct sv_limits *wanted)
{
	set(&limits->max_qp, wanted->max_qp);
	set(&limits->max_qp_wr, wanted->max_qp_wr);
	set(&limits->max_sge, wanted->max_sge);
	set(&limits->max_inline, wanted->max_inline);
	set(&limits->max_cq, wanted->max_cq);
	set(&limits->max_cqe, wanted->max_cqe);
	set(&limits->max_mr, wanted->max_mr);
	set(&limits->max_pd, wanted->max_pd);
	set(&limits->max_ah, wanted->max_ah);
	set(&limits->max_srq, wanted->max_srq);
	set(&limits->max_srq_wr, wanted->max_srq_wr);
	set(&limits->max_rd_atomic, wanted->max_rd_atomic);
	if (wanted->max_mr_size)
		limits->max_mr_size = wanted->max_mr_size;
}

void sv_device_init(struct sv_device *dev, const struct sv_port_config *cfg)
{
	struct ibv_device *ibv = &dev->ibv;

	ibv->node_type = IBV_NODE_CA;
	ibv->transport_type = IBV_TRANSPORT_IB;
	snprintf(ibv->name, sizeof(ibv->name), "%s", cfg->name);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", cfg->rail);
	snprintf(ibv->dev_path, sizeof(ibv->dev_path), "%s", cfg->dev_path);
	snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "%s", cfg->ibdev_path);
	dev->node_guid = cfg->node_guid;
	dev->host = cfg->host;
	dev->rail = cfg->rail;
	dev->refs = 1;
}

void sv_device_get(struct sv_device *dev)
{
	dev->refs++;
}

void sv_device_put(struct sv_device *dev)
{
	if (--dev->refs == 0)
		dev->release(dev);
}
