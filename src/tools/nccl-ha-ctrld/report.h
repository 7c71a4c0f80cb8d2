/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller has, as JSON: docs/inc.md has its keys. */
#ifndef NC_REPORT_H
#define NC_REPORT_H

#include "tools/nccl-ha-ctrld/groups.h"

struct nc_counts {
	unsigned connections;
	uint64_t refused, silent, crowded_out; /* connections so far */
};

/* Without the members of groups where it would be longer than a frame may be. NULL: it still is,
 * or there is no memory. */
struct nc_text *nc_report(const struct nc_groups *groups, const struct nc_counts *counts,
			  uint64_t now_ns);

#endif
