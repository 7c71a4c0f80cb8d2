/* SPDX-License-Identifier: Apache-2.0 */
#include "device/queue_depth.h"

#include <stddef.h>

/* Devices that say nothing of a limit have none. */
static uint32_t limit(uint32_t wanted, int device_limit)
{
	return device_limit > 0 && (uint32_t)device_limit < wanted ? (uint32_t)device_limit
								   : wanted;
}

static uint32_t less(uint32_t from, uint32_t what)
{
	return from > what ? from - what : 0;
}

static uint32_t queue_depth(const struct ibv_device_attr *attr, uint32_t wanted)
{
	return less(limit(wanted + 1, attr->max_qp_wr), 1);
}

struct ha_queue_depth ha_queue_depth(const struct ibv_device_attr *attr, unsigned nqps,
				     uint32_t send)
{
	struct ha_queue_depth depth = {.send = queue_depth(attr, send),
				       .recv = queue_depth(attr, HA_RQ_DEPTH)};
	uint32_t of_qp = depth.send + 1 + depth.recv + 1, room;

	/* An error flushes all, those that asked for no completion, too. */
	depth.cqes = limit(nqps * of_qp + HA_FLUSH_DEPTH + 1, attr->max_cqe);
	room = less(depth.cqes, HA_FLUSH_DEPTH + 1) / nqps;
	if (of_qp > room)
		depth.send = less(depth.send, of_qp - room);
	return depth;
}

const char *ha_queue_depth_lacks(const struct ibv_device_attr *attr,
				 const struct ha_queue_depth *depth)
{
	if (depth->recv < HA_LEAST_DEPTH || queue_depth(attr, HA_LEAST_DEPTH) < HA_LEAST_DEPTH)
		return "queues of a device that are too short (max_qp_wr)";
	return depth->send < HA_LEAST_DEPTH
		   ? "completion queues of a device that are too short (max_cqe)"
		   : NULL;
}
