/* SPDX-License-Identifier: Apache-2.0 */
#include "device/partition.h"

#include "base/log.h"

#include <arpa/inet.h>

/* All but the top bit number the partition; that bit is of a full member. */
#define PARTITION   0x7fffu
#define FULL_MEMBER 0x8000u
#define ANY_PKEY    0xffffu /* where a port has no table that could be read */

/* 0: there is none. */
static uint16_t pkey_at(struct ibv_context *ctx, uint8_t port_num, int index)
{
	__be16 pkey;

	return ibv_query_pkey(ctx, port_num, index, &pkey) == 0 ? ntohs(pkey) : 0;
}

static bool same(uint16_t a, uint16_t b)
{
	return ((a ^ b) & PARTITION) == 0;
}

/* Where the partition is in the port's table, as a full member if it is one; -1: nowhere. */
static int find(struct ibv_context *ctx, uint8_t port_num, int table_length, uint16_t wanted)
{
	int limited = -1;

	for (int i = 0; i < table_length; i++) {
		uint16_t pkey = pkey_at(ctx, port_num, i);

		if (!(pkey & PARTITION) || !same(pkey, wanted))
			continue;
		if (pkey & FULL_MEMBER)
			return i;
		if (limited < 0)
			limited = i;
	}
	return limited;
}

/* What the configured index stands for on this port; index 0 if it has nothing there. */
static int configured(const struct ha_port *port, struct ibv_context *ctx, int table_length,
		      uint16_t *pkey)
{
	int index = port->config->ib_pkey;

	*pkey = index < table_length ? pkey_at(ctx, port->port_num, index) : 0;
	if (*pkey & PARTITION)
		return index;
	*pkey = pkey_at(ctx, port->port_num, 0);
	if (!(*pkey & PARTITION))
		*pkey = ANY_PKEY;
	return 0;
}

/* The first port decides. */
static int decide(struct ha_device_set *set, const struct ha_port *port, struct ibv_context *ctx,
		  int table_length, uint16_t *pkey)
{
	int index = configured(port, ctx, table_length, pkey);

	set->pkey = *pkey;
	set->pkey_from = port;
	if (index != port->config->ib_pkey)
		HA_WARN("%s:%d has no partition key at NCCL_IB_PKEY=%d (its table's length: %d); "
			"using index 0 (0x%04x)",
			port->nic->name, port->port_num, port->config->ib_pkey, table_length,
			*pkey);
	return index;
}

void ha_partition_choose(struct ha_device_set *set, struct ha_port *port, struct ibv_context *ctx,
			 const struct ibv_port_attr *attr)
{
	int length = attr->pkey_tbl_len, index;
	uint16_t pkey = set->pkey;

	atomic_init(&port->outside, false);
	if (!set->pkey_from) {
		index = decide(set, port, ctx, length, &pkey);
	} else {
		index = find(ctx, port->port_num, length, pkey);
		if (index < 0 && port->was_up) {
			index = configured(port, ctx, length, &pkey);
			HA_WARN("%s:%d is not in partition 0x%04x, which NCCL_IB_PKEY=%d is on "
				"%s:%d; connections over it use index %d (0x%04x), and it stands "
				"in for no port of that partition",
				port->nic->name, port->port_num, set->pkey, port->config->ib_pkey,
				set->pkey_from->nic->name, set->pkey_from->port_num, index, pkey);
		}
	}
	port->pkey = pkey;
	/* The table of a port that is down may be filled when it comes up. */
	atomic_init(&port->pkey_index, (uint16_t)(index < 0 ? 0 : index));
	atomic_store(&port->outside, index < 0);
}

void ha_partition_refresh(struct ha_port *port, struct ibv_context *ctx,
			  const struct ibv_port_attr *attr)
{
	int index;

	if (attr->pkey_tbl_len <= 1 && !atomic_load(&port->outside))
		return; /* nowhere to go */
	index = find(ctx, port->port_num, attr->pkey_tbl_len, port->pkey);
	if (index >= 0) {
		atomic_store(&port->pkey_index, (uint16_t)index);
		atomic_store(&port->outside, false);
		port->outside_told = false;
		return;
	}
	if (!(pkey_at(ctx, port->port_num, 0) & PARTITION))
		return; /* it cannot be read, or is not filled yet */
	atomic_store(&port->outside, true);
	if (!port->outside_told)
		HA_WARN("%s:%d is not in partition 0x%04x: it is not used until it is (ask who "
			"runs the subnet manager)",
			port->nic->name, port->port_num, port->pkey);
	port->outside_told = true;
}

bool ha_partition_same(const struct ha_port *a, const struct ha_port *b)
{
	return same(a->pkey, b->pkey);
}
