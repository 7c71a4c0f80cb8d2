/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What member 0 of a group keeps of its plan for the controller: all that one which has been
 * started again has to know of the group. To the member it is bytes. Links and switches go by their
 * names, so the topology may have changed meanwhile: a link that is gone carries nothing.
 *
 * JSON: group, label, number, unit, window, perhaps listen, members; nodes, each with switch, part
 * and at; lanes, how many of the trees are; trees, each with root, depth, parents, loads and
 * memory.
 */
#ifndef NC_RECEIPT_H
#define NC_RECEIPT_H

#include "tools/nccl-ha-ctrld/groups.h"

struct nc_receipt {
	struct nc_ask leader; /* as member 0 had asked */
	uint64_t number;
	unsigned *ports;       /* of members: vertices */
	union ha_sockaddr *at; /* by switch, of those in the plan: where its program listened */
	struct nc_plan plan;
};

/* at: by node of the plan. NULL: no memory, or longer than a frame may be. */
struct nc_text *nc_receipt_write(const struct nc_topology *topology,
				 const struct nc_receipt *receipt, const union ha_sockaddr *at);

/* False: `why` says why not. Either way nc_receipt_end is to be called; ports and plan that are
 * NULL and zero by then are somebody else's. */
bool nc_receipt_read(const struct nc_topology *topology, const char *text, size_t length,
		     struct nc_receipt *receipt, char *why, size_t size) HA_MUST_CHECK;
void nc_receipt_end(struct nc_receipt *receipt);

#endif
