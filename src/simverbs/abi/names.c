/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of enumerators, conversions of rates, and the Ethernet address behind a GID.
 */
#include "simverbs/engine.h"

#include <errno.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const node_types[] = {
    [IBV_NODE_CA] = "InfiniBand channel adapter",
    [IBV_NODE_SWITCH] = "InfiniBand switch",
    [IBV_NODE_ROUTER] = "InfiniBand router",
    [IBV_NODE_RNIC] = "iWARP NIC",
    [IBV_NODE_USNIC] = "usNIC",
    [IBV_NODE_USNIC_UDP] = "usNIC UDP",
    [IBV_NODE_UNSPECIFIED] = "unspecified",
};

static const char *const port_states[] = {
    [IBV_PORT_NOP] = "PORT_NOP",       [IBV_PORT_DOWN] = "PORT_DOWN",
    [IBV_PORT_INIT] = "PORT_INIT",     [IBV_PORT_ARMED] = "PORT_ARMED",
    [IBV_PORT_ACTIVE] = "PORT_ACTIVE", [IBV_PORT_ACTIVE_DEFER] = "PORT_ACTIVE_DEFER",
};

static const char *const event_types[] = {
    [IBV_EVENT_CQ_ERR] = "CQ error",
    [IBV_EVENT_QP_FATAL] = "QP fatal error",
    [IBV_EVENT_QP_REQ_ERR] = "QP request error",
    [IBV_EVENT_QP_ACCESS_ERR] = "QP access error",
    [IBV_EVENT_COMM_EST] = "communication established",
    [IBV_EVENT_SQ_DRAINED] = "send queue drained",
    [IBV_EVENT_PATH_MIG] = "path migrated",
    [IBV_EVENT_PATH_MIG_ERR] = "path migration failed",
    [IBV_EVENT_DEVICE_FATAL] = "device fatal error",
    [IBV_EVENT_PORT_ACTIVE] = "port active",
    [IBV_EVENT_PORT_ERR] = "port error",
    [IBV_EVENT_LID_CHANGE] = "LID changed",
    [IBV_EVENT_PKEY_CHANGE] = "P_Key table changed",
    [IBV_EVENT_SM_CHANGE] = "subnet manager changed",
    [IBV_EVENT_SRQ_ERR] = "SRQ error",
    [IBV_EVENT_SRQ_LIMIT_REACHED] = "SRQ limit reached",
    [IBV_EVENT_QP_LAST_WQE_REACHED] = "last WQE reached",
    [IBV_EVENT_CLIENT_REREGISTER] = "client reregistration",
    [IBV_EVENT_GID_CHANGE] = "GID table changed",
    [IBV_EVENT_WQ_FATAL] = "WQ fatal error",
};

static const char *const wc_statuses[] = {
    [IBV_WC_SUCCESS] = "success",
    [IBV_WC_LOC_LEN_ERR] = "local length error",
    [IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
    [IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
    [IBV_WC_LOC_PROT_ERR] = "local protection error",
    [IBV_WC_WR_FLUSH_ERR] = "work request flushed",
    [IBV_WC_MW_BIND_ERR] = "memory window bind error",
    [IBV_WC_BAD_RESP_ERR] = "bad response",
    [IBV_WC_LOC_ACCESS_ERR] = "local access error",
    [IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
    [IBV_WC_REM_ACCESS_ERR] = "remote access error",
    [IBV_WC_REM_OP_ERR] = "remote operation error",
    [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
    [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
    [IBV_WC_LOC_RDD_VIOL_ERR] = "local RDD violation",
    [IBV_WC_REM_INV_RD_REQ_ERR] = "remote invalid RD request",
    [IBV_WC_REM_ABORT_ERR] = "aborted by the remote end",
    [IBV_WC_INV_EECN_ERR] = "invalid EE context number",
    [IBV_WC_INV_EEC_STATE_ERR] = "invalid EE context state",
    [IBV_WC_FATAL_ERR] = "fatal error",
    [IBV_WC_RESP_TIMEOUT_ERR] = "response timeout",
    [IBV_WC_GENERAL_ERR] = "general error",
    [IBV_WC_TM_ERR] = "tag matching error",
    [IBV_WC_TM_RNDV_INCOMPLETE] = "tag matching rendezvous incomplete",
};

static const char *name_of(const char *const *names, size_t count, int value)
{
	if (value < 0 || (size_t)value >= count || !names[value])
		return "unknown";
	return names[value];
}

const char *ibv_node_type_str(enum ibv_node_type node_type)
{
	return name_of(node_types, COUNT(node_types), (int)node_type);
}

const char *ibv_port_state_str(enum ibv_port_state port_state)
{
	return name_of(port_states, COUNT(port_states), (int)port_state);
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	return name_of(event_types, COUNT(event_types), (int)event);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return name_of(wc_statuses, COUNT(wc_statuses), (int)status);
}

/* --- rates ---------------------------------------------------------------------------------- */

/* mult: multiple of 2.5 Gbit/s, rounded down; mbps: exact, with the line coding of its generation.
 */
static const struct {
	enum ibv_rate rate;
	int mult, mbps;
} rates[] = {
    {IBV_RATE_2_5_GBPS, 1, 2500},	{IBV_RATE_5_GBPS, 2, 5000},
    {IBV_RATE_10_GBPS, 4, 10000},	{IBV_RATE_20_GBPS, 8, 20000},
    {IBV_RATE_30_GBPS, 12, 30000},	{IBV_RATE_40_GBPS, 16, 40000},
    {IBV_RATE_60_GBPS, 24, 60000},	{IBV_RATE_80_GBPS, 32, 80000},
    {IBV_RATE_120_GBPS, 48, 120000},	{IBV_RATE_14_GBPS, 5, 14062},
    {IBV_RATE_56_GBPS, 22, 56250},	{IBV_RATE_112_GBPS, 45, 112500},
    {IBV_RATE_168_GBPS, 67, 168750},	{IBV_RATE_25_GBPS, 10, 25781},
    {IBV_RATE_100_GBPS, 41, 103125},	{IBV_RATE_200_GBPS, 82, 206250},
    {IBV_RATE_300_GBPS, 123, 309375},	{IBV_RATE_28_GBPS, 11, 28125},
    {IBV_RATE_50_GBPS, 20, 53125},	{IBV_RATE_400_GBPS, 160, 425000},
    {IBV_RATE_600_GBPS, 240, 637500},	{IBV_RATE_800_GBPS, 320, 850000},
    {IBV_RATE_1200_GBPS, 480, 1275000},
};

int ibv_rate_to_mult(enum ibv_rate rate)
{
	size_t i;

	for (i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mult;
	return -1;
}

enum ibv_rate mult_to_ibv_rate(int mult)
{
	size_t i;

	for (i = 0; i < COUNT(rates); i++)
		if (rates[i].mult == mult)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

int ibv_rate_to_mbps(enum ibv_rate rate)
{
	size_t i;

	for (i = 0; i < COUNT(rates); i++)
		if (rates[i].rate == rate)
			return rates[i].mbps;
	return -1;
}

enum ibv_rate mbps_to_ibv_rate(int mbps)
{
	size_t i;

	for (i = 0; i < COUNT(rates); i++)
		if (rates[i].mbps == mbps)
			return rates[i].rate;
	return IBV_RATE_MAX;
}

/* --- Ethernet addresses --------------------------------------------------------------------- */

/*
 * A link-local GID holds the MAC address (with the universal bit turned over); an IPv4 GID of this
 * fabric, 10.<rail>.0.<host + 1>, says which device it is, and that has 02:53:56:00:<host>:<rail>.
 */
int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
				uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	const uint8_t *gid = attr->grh.dgid.raw;

	(void)context;
	if (gid[0] == 0xfe && gid[1] == 0x80) {
		eth_mac[0] = gid[8] ^ 2;
		eth_mac[1] = gid[9];
		eth_mac[2] = gid[10];
		eth_mac[3] = gid[13];
		eth_mac[4] = gid[14];
		eth_mac[5] = gid[15];
	} else if (gid[10] == 0xff && gid[11] == 0xff && gid[12] == 10) {
		eth_mac[0] = 0x02;
		eth_mac[1] = 0x53;
		eth_mac[2] = 0x56;
		eth_mac[3] = 0;
		eth_mac[4] = (uint8_t)(gid[15] - 1);
		eth_mac[5] = gid[13];
	} else {
		return ENETUNREACH;
	}
	if (vid)
		*vid = 0xffff; /* no VLAN */
	return 0;
}
