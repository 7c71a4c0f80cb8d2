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

static int smaller(int64_t a, int64_t b)
{
	int64_t least = a < b ? a : b;

	return least > INT_MAX ? INT_MAX : (int)least;
}

void ha_budget(const struct ha_config *config, const struct ibv_device_attr *attr,
	       struct ha_budget *out)
{
	const int with_standby = 2;
	int64_t channels = config->expected_channels;
	int64_t send_cqes = (int64_t)config->wr_per_conn * config->max_recvs;
	int64_t recv_cqes = config->wr_per_conn;

	out->qps_per_comm = with_standby * config->ib_qps_per_connection;
	out->cqes_per_comm = smaller(with_standby * (send_cqes + recv_cqes), INT_MAX);
	out->qp_limit = smaller(attr->max_qp / (out->qps_per_comm * channels), INT_MAX);
	out->cqe_limit = smaller(attr->max_cqe / (out->cqes_per_comm * channels), INT_MAX);
	out->max_comms = smaller(smaller(out->qp_limit, out->cqe_limit), MAX_COMMS_CAP);
	/* The verbs' CQE limit holds per queue, not per device, so a small one (soft RoCE's) makes
	 * the formula say 0; one connection always works. */
	if (out->max_comms < 1)
		out->max_comms = 1;
}
