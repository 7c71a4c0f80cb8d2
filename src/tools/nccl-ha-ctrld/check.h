/* SPDX-License-Identifier: Apache-2.0 */
/* nccl-ha-ctrld --check: what the controller would say, without one that runs. */
#ifndef NC_CHECK_H
#define NC_CHECK_H

#include "tools/nccl-ha-ctrld/topology.h"

struct nc_check {
	const char *path;   /* the topology's */
	char *const *names; /* of members */
	unsigned n;
	bool is_reproducible; /* as a group asks for it: HA_NCCL_INC_REPRODUCIBLE */
};

/*
 * Prints, as JSON, the plan of a group of these ports or hosts; of none: for each rail that of all
 * hosts that have it. What is odd in the file goes to stderr, with its line. Returns an exit
 * status: 1 where a group has no plan, 2 where a member is none.
 */
int nc_check(const struct nc_topology *topology, const struct nc_check *check);

#endif
