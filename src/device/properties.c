/* SPDX-License-Identifier: Apache-2.0 */
/* Port speed and the maxComms budget. */
#include "device/properties.h"

#include <limits.h>

#define MAX_COMMS_CAP 256

/* Mb/s of one lane by the bit that active_speed has set. */
static const int lane_mbps[] = {
    2500,   /* SDR; what soft RoCE says of a link whose speed it does not know */
    5000,   /* DDR */
    10000,  /* QDR */
    10000,  /* FDR10 */
    14000,  /* FDR */
    25000,  /* EDR */
    50000,  /* HDR */
    100000, /* NDR */
    200000, /* XDR; only in active_speed_ex, active_speed has 8 bits */
};

/* Lanes by the bit that active_width has set. */
static const int lanes[] = {1, 4, 8, 12, 2};

static int lookup(const int *table, unsigned int entries, uint32_t bits)
{
	unsigned int bit;

	if (!bits)
		return 0;
	bit = (unsigned int)__builtin_ctz(bits);
	return table[bit < entries ? bit : entries - 1];
}

int ha_port_speed_mbps(const struct ibv_port_attr *attr)
{
	uint32_t speed = attr->active_speed;

#ifdef HA_HAVE_ACTIVE_SPEED_EX
	if (attr->active_speed_ex)
		speed = attr->active_speed_ex;
#endif
	return lookup(lane_mbps, sizeof lane_mbps / sizeof lane_mbps[0], speed) *
	       lookup(lanes, sizeof lanes / sizeof lanes[0], attr->active_width);
}

/* ---- budget --------------------------------------------------------------------------------- */

#define WITH_STANDBY 2
/* NCCL has a buffer for each of its protocols (LL, LL128, Simple); the ring is ours. */
#define MRS_OF_PATH 4
/* A port's heartbeats have a queue pair and a registration of their own, and a completion queue for
 * each direction. */
#define HEARTBEATS_OF_PORT    1
#define HEARTBEAT_CQS_OF_PORT 2

static const struct {
	const char *name, *attr;
} resources[HA_RESOURCES] = {
    [HA_RES_QP] = {"queue pairs", "max_qp"},
    [HA_RES_CQ] = {"completion queues", "max_cq"},
    [HA_RES_CQE] = {"completion entries", "max_cq times max_cqe"},
    [HA_RES_MR] = {"memory regions", "max_mr"},
};

const char *ha_resource_name(enum ha_resource resource)
{
	return resources[resource].name;
}

const char *ha_resource_attr(enum ha_resource resource)
{
	return resources[resource].attr;
}

static int64_t at_least_0(int64_t number)
{
	return number < 0 ? 0 : number;
}

void ha_budget(const struct ha_config *config, const struct ibv_device_attr *attr, bool flushes,
	       struct ha_budget *out)
{
	int64_t qps = ha_config_most_qps(config), wrs = config->wr_per_conn;
	int64_t heartbeats = HEARTBEATS_OF_PORT * attr->phys_port_cnt;
	int64_t heartbeat_cqs = HEARTBEAT_CQS_OF_PORT * attr->phys_port_cnt;
	int64_t available[HA_RESOURCES] = {
	    [HA_RES_QP] = attr->max_qp - heartbeats,
	    [HA_RES_CQ] = attr->max_cq - heartbeat_cqs,
	    /* max_cqe is what one queue may have. */
	    [HA_RES_CQE] = at_least_0(attr->max_cq - heartbeat_cqs) * at_least_0(attr->max_cqe),
	    [HA_RES_MR] = attr->max_mr - heartbeats,
	};
	int64_t per_path[HA_RESOURCES] = {
	    [HA_RES_QP] = qps + (flushes ? 1 : 0),
	    [HA_RES_CQ] = 1,
	    [HA_RES_CQE] = qps * (wrs * config->max_recvs + wrs),
	    [HA_RES_MR] = MRS_OF_PATH,
	};

	out->scarcest = HA_RES_QP;
	for (enum ha_resource r = 0; r < HA_RESOURCES; r++) {
		int64_t allows = at_least_0(available[r]) /
				 (WITH_STANDBY * per_path[r] * config->expected_channels);

		out->of[r].available = at_least_0(available[r]);
		out->of[r].per_comm = WITH_STANDBY * per_path[r];
		out->of[r].allows = allows > INT_MAX ? INT_MAX : (int)allows;
		if (out->of[r].allows < out->of[out->scarcest].allows)
			out->scarcest = r;
	}
	out->max_comms = out->of[out->scarcest].allows;
	if (out->max_comms > MAX_COMMS_CAP)
		out->max_comms = MAX_COMMS_CAP;
	/* NCCL takes a device that it may not use at all for a broken one, and a first connection
	 * may well work. */
	if (out->max_comms < 1)
		out->max_comms = 1;
}
