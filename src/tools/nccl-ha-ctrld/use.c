/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/use.h"

#include <stdlib.h>

/* Sums over a path of all switches fit into 64 bits, and links of 10 Tb/s differ by their load. */
#define LOAD_MOST  (1ull << 36)
#define COST_SCALE 100000u

bool nc_use_begin(struct nc_use *use, const struct nc_topology *topology)
{
	use->topology = topology;
	use->loads = calloc(topology->n_links + 1, sizeof(*use->loads));
	use->switches = calloc(topology->n_switches + 1, sizeof(*use->switches));
	return use->loads && use->switches;
}

void nc_use_end(struct nc_use *use)
{
	free(use->loads);
	free(use->switches);
	*use = (struct nc_use){0};
}

uint64_t nc_use_cost(const struct nc_use *use, unsigned link, uint64_t more_load)
{
	uint64_t load = use->loads[link] + more_load;

	return (load < LOAD_MOST ? load : LOAD_MOST) * COST_SCALE / use->topology->links[link].mbps;
}
