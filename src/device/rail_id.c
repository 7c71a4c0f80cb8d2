/* SPDX-License-Identifier: Apache-2.0 */
/* Rails and planes: as the operator says, or by subnets. */
#include "device/rail_id.h"

#include "base/log.h"
#include "base/name_filter.h"
#include "device/device.h"
#include "device/rank.h"

#include <string.h>

_Static_assert(HA_FABRIC_ID_UNKNOWN == HA_FILTER_UNSAID, "what is not said is not known");

/* ---- as the operator says -------------------------------------------------------------------- */

static bool as_configured(struct ha_device_set *set, const struct ha_name_filter *ib_hca)
{
	bool any = false;

	for (int i = 0; i < set->nports_all && !ib_hca->exclude; i++) {
		struct ha_port *port = &set->ports[i];
		int item = ha_name_filter_find(ib_hca, port->nic->name, port->port_num);

		if (item < 0)
			continue;
		port->rail_id = (int16_t)ib_hca->items[item].rail;
		port->plane_id = (int16_t)ib_hca->items[item].plane;
		any = any || port->rail_id >= 0 || port->plane_id >= 0;
	}
	return any;
}

/* ---- by subnets ------------------------------------------------------------------------------ */

static bool same_subnet(const struct ha_port_addr *a, const struct ha_port_addr *b)
{
	return ha_fabric_between(a, b->link_layer, &b->gid) == HA_FABRIC_SAME;
}

/* An address that tells its subnet is in it. */
static bool tells_subnet(const struct ha_port_addr *addr)
{
	return addr->gid_index >= 0 && same_subnet(addr, addr);
}

/* One port of each subnet; returns how many there are. */
static int find_subnets(const struct ha_port_addr addrs[], int n, int first[HA_MAX_PORTS])
{
	int found = 0;

	for (int i = 0; i < n; i++) {
		int k = 0;

		while (k < found && !same_subnet(&addrs[first[k]], &addrs[i]))
			k++;
		if (k == found && tells_subnet(&addrs[i]))
			first[found++] = i;
	}
	return found;
}

/* How many of the subnets come before that of `addr`. */
static int place_among(const struct ha_port_addr addrs[], const int first[], int nsubnets,
		       const struct ha_port_addr *addr)
{
	int before = 0;

	for (int k = 0; k < nsubnets; k++)
		before += !same_subnet(&addrs[first[k]], addr) &&
			  memcmp(addrs[first[k]].gid.raw, addr->gid.raw, sizeof(addr->gid.raw)) < 0;
	return before;
}

static int by_subnets(struct ha_device_set *set)
{
	struct ha_port_addr addrs[HA_MAX_PORTS];
	int first[HA_MAX_PORTS], nsubnets;

	for (int i = 0; i < set->nports_all; i++)
		ha_port_addr(&set->ports[i], &addrs[i]);
	nsubnets = find_subnets(addrs, set->nports_all, first);
	for (int i = 0; i < set->nports_all && nsubnets > 1; i++)
		if (tells_subnet(&addrs[i]))
			set->ports[i].rail_id =
			    (int16_t)place_among(addrs, first, nsubnets, &addrs[i]);
	return nsubnets;
}

void ha_rail_ids_choose(struct ha_device_set *set, const struct ha_name_filter *ib_hca)
{
	int nsubnets;

	for (int i = 0; i < set->nports_all; i++)
		set->ports[i].rail_id = set->ports[i].plane_id = HA_FABRIC_ID_UNKNOWN;
	if (as_configured(set, ib_hca))
		return;
	nsubnets = by_subnets(set);
	if (nsubnets > 1)
		HA_INFO(HA_SUBSYS_INIT | HA_SUBSYS_NET,
			"the ports are in %d subnets: NCCL is told of as many rails, numbered in "
			"their order (NCCL_IB_HCA=NAME:PORT:RAIL says otherwise)",
			nsubnets);
}
