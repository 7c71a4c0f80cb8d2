/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/latency.h"

#include "base/clock.h"
#include "base/log.h"
#include "transport/comm.h"
#include "transport/post.h"

#include <stdlib.h>

struct ha_latency *ha_latency_new(const struct ha_comm *comm, unsigned nqps)
{
	const struct ha_latency *none = NULL;

	if (comm->config->latency_ms == 0)
		return NULL;
	return calloc(1, sizeof(*none) + nqps * sizeof(none->qps[0]));
}

static void time_queue(struct ha_comm *comm, struct ha_path *path, unsigned qp, uint64_t now_ns)
{
	struct ha_latency_of_qp *timed = &path->latency->qps[qp];

	if (timed->posted_ns != 0 || ha_qp_room(&path->qps[qp]) == 0 ||
	    !ha_post_nothing(comm, path, qp, HA_WR_LATENCY))
		return;
	timed->posted_ns = now_ns;
	path->latency->under_way++;
}

uint64_t ha_latency_visit(struct ha_comm *comm, uint64_t now_ns)
{
	struct ha_path *path = ha_comm_path(comm);

	if (!ha_comm_may_post(comm) || !path->latency)
		return 0;
	if (now_ns >= path->latency->due_ns) {
		path->latency->due_ns = now_ns + (unsigned)comm->config->latency_ms * HA_NS_PER_MS;
		for (unsigned i = 0; i < path->nqps && ha_path_ready(path); i++)
			time_queue(comm, path, i, ha_now_ns());
	}
	return path->latency->due_ns;
}

bool ha_latency_waits(const struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);

	return path && path->latency && path->latency->under_way != 0;
}

void ha_latency_done(struct ha_path *path, unsigned qp, uint32_t mark)
{
	struct ha_latency_of_qp *timed = &path->latency->qps[qp];

	ha_hist_add(&timed->ns, ha_now_ns() - timed->posted_ns);
	timed->posted_ns = 0;
	path->latency->under_way--;
	ha_qp_left(&path->qps[qp], mark);
}

static double us(uint64_t ns)
{
	return (double)ns / 1e3;
}

void ha_latency_report(const struct ha_path *path)
{
	for (unsigned i = 0; path->latency && i < path->nqps; i++) {
		const struct ha_hist *ns = &path->latency->qps[i].ns;

		if (ha_hist_samples(ns) == 0)
			continue;
		HA_INFO(
		    HA_SUBSYS_NET,
		    "connection %s: queue pair %u of path %u.%u on %s:%d: post to completion "
		    "mean %.1f, p50 %.1f, p90 %.1f, p99 %.1f, p99.9 %.1f, at most %.1f us, of %llu",
		    path->comm->name, i, path->index, path->generation, path->nic->name,
		    path->port->port_num, us(ha_hist_mean(ns)), us(ha_hist_quantile(ns, 500)),
		    us(ha_hist_quantile(ns, 900)), us(ha_hist_quantile(ns, 990)),
		    us(ha_hist_quantile(ns, 999)), us(ns->max),
		    (unsigned long long)ha_hist_samples(ns));
	}
}
