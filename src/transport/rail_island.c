/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rail_island.h"

#include "device/gid.h"
#include "device/island.h"
#include "transport/shared.h"
#include "transport/wire.h"

#include <string.h>

void ha_rail_islands_open(struct ha_instance *inst)
{
	const int mode = inst->config.rail_mode;

	if (mode == HA_RAIL_MODE_ISLAND || mode == HA_RAIL_MODE_AGENT)
		inst->islands = ha_islands_load(inst->config.island);
}

void ha_rail_islands_close(struct ha_instance *inst)
{
	ha_islands_free(inst->islands);
	inst->islands = NULL;
}

/* ---- two hosts ------------------------------------------------------------------------------- */

enum where {
	NOT_KNOWN, /* an end has no address, or says none */
	TOGETHER,
	APART,
};

static bool is_none(const union ibv_gid *gid)
{
	static const union ibv_gid none;

	return memcmp(gid, &none, sizeof(none)) == 0;
}

static enum where where(const struct ha_instance *inst, struct ha_port *first,
			const uint8_t far_gid[16])
{
	struct ha_port_addr addr;
	union ibv_gid far = {.raw = {0}};

	ha_port_addr(first, &addr);
	memcpy(far.raw, far_gid, sizeof(far.raw));
	if (is_none(&addr.gid) || is_none(&far))
		return NOT_KNOWN;
	/* Without memory for islands all hosts are in one. */
	return !inst->islands || ha_islands_same(inst->islands, &addr.gid, &far) ? TOGETHER : APART;
}

/* ---- which rail ------------------------------------------------------------------------------ */

struct ha_rail_choice ha_rail_island_choose(struct ha_instance *inst, struct ha_port *port,
					    const uint8_t far[16])
{
	const struct ha_bundle *bundle = port->bundle;

	if (!bundle->by_island)
		return (struct ha_rail_choice){port, false};
	switch (where(inst, bundle->rails[0], far)) {
	case TOGETHER:
		return (struct ha_rail_choice){bundle->rails[bundle->nrails - 1], false};
	case APART:
		return (struct ha_rail_choice){bundle->rails[0], true};
	default:
		return (struct ha_rail_choice){port, false};
	}
}

struct ha_rail_choice ha_rail_island_follow(struct ha_instance *inst, struct ha_port *port,
					    const struct ha_hello *hello)
{
	const struct ha_bundle *bundle = port->bundle;
	const int last = bundle->nrails - 1, rail = hello->rail < last ? hello->rail : last;

	if (!bundle->by_island)
		return (struct ha_rail_choice){port, false};
	return (struct ha_rail_choice){
	    bundle->rails[rail],
	    rail == 0 && where(inst, bundle->rails[0], hello->endpoint.gid) == APART};
}

int ha_rail_island_keep(const struct ha_rail_choice *choice, struct ha_port *ports[], int n)
{
	int kept = 0;

	for (int i = 0; i < n; i++)
		if (!choice->alone || ports[i] == choice->port ||
		    ports[i]->bundle != choice->port->bundle)
			ports[kept++] = ports[i];
	return kept;
}
