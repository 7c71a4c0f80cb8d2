/* SPDX-License-Identifier: Apache-2.0 */
/* What moved between two snapshots, port by port. */
#ifndef NH_RATES_H
#define NH_RATES_H

#include "tools/nccl-ha/snapshot.h"
#include "tools/nccl-ha/view.h"

struct nh_rate {
	const struct nh_process *process; /* in the later snapshot */
	const struct nh_port *port;
	bool known; /* the process and the port were there before */
	double bytes_per_s, messages_per_s;
	uint64_t departures; /* connections that left the port since */
	struct nh_counts counts;
	enum nh_standing worst; /* of its connections */
};

/* One for each port of each process in `now`; `before` may be empty. The caller frees it; NULL: no
 * memory. What it points to is in `now`. */
struct nh_rate *nh_rates(const struct nh_snapshot *before, const struct nh_snapshot *now,
			 size_t *n);

#endif
