/* SPDX-License-Identifier: Apache-2.0 */
#include "device/address.h"

#include "device/gid.h"

#include <string.h>

#define HOP_LIMIT 255

static bool needs_grh(const struct ha_port_addr *own, const union ibv_gid *remote)
{
	return own->link_layer == IBV_LINK_LAYER_ETHERNET || own->grh_required ||
	       own->gid.global.subnet_prefix != remote->global.subnet_prefix;
}

static bool is_behind_a_router(const struct ha_port_addr *own, const union ibv_gid *remote)
{
	return own->link_layer != IBV_LINK_LAYER_ETHERNET && !ha_gid_same_subnet(&own->gid, remote);
}

void ha_address_fill(const struct ha_port_addr *own, uint8_t port_num,
		     const struct ha_remote_addr *to, struct ibv_ah_attr *out)
{
	union ibv_gid remote;
	uint16_t flid;

	memcpy(remote.raw, to->gid, sizeof(remote.raw));
	flid = ha_gid_flid(&remote);
	memset(out, 0, sizeof(*out));
	out->port_num = port_num;
	out->sl = to->sl;
	out->dlid = is_behind_a_router(own, &remote) && flid ? flid : to->lid;
	if (!needs_grh(own, &remote))
		return;
	out->is_global = 1;
	out->grh.dgid = remote;
	out->grh.sgid_index = (uint8_t)own->gid_index;
	out->grh.hop_limit = HOP_LIMIT;
	out->grh.traffic_class = to->traffic_class;
	out->grh.flow_label = to->flow_label;
}
