/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/rail_agent.h"

#include "base/log.h"
#include "device/gid.h"
#include "device/island.h"
#include "hints/hints.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/send.h"
#include "transport/shared.h"

#include <string.h>

/* ---- of the instance ------------------------------------------------------------------------- */

static const char *dir_of(const struct ha_instance *inst)
{
	return *inst->config.agent_dir ? inst->config.agent_dir : MPIB_AGENT_DIR;
}

/* The client's thread. */
static void agent_changed(void *arg, bool found)
{
	struct ha_instance *inst = arg;
	struct ha_event event =
	    ha_event_init(found ? HA_EVENT_AGENT_FOUND : HA_EVENT_AGENT_LOST, HA_REASON_NONE);

	event.detail = dir_of(inst);
	if (found)
		HA_INFO(HA_SUBSYS_NET, "the agent at %s says what rails carry", event.detail);
	ha_event_report_port(inst, &event);
}

static bool goes_by_agent(const struct ha_instance *inst)
{
	const struct ha_device_set *set = inst->devices;

	if (inst->config.rail_mode != HA_RAIL_MODE_AGENT)
		return false;
	for (int i = 0; i < set->nbundles; i++)
		if (set->bundles[i].by_agent)
			return true;
	return ha_bundles_by_nccl(set);
}

void ha_rail_agent_open(struct ha_instance *inst)
{
	struct ha_hints_settings settings = HA_HINTS_DEFAULTS;

	if (!goes_by_agent(inst))
		return;
	settings.dir = dir_of(inst);
	settings.stale_ms = (unsigned)inst->config.agent_stale_ms;
	settings.agent_changed = agent_changed;
	settings.arg = inst;
	inst->hints = ha_hints_begin(&settings);
}

void ha_rail_agent_close(struct ha_instance *inst)
{
	if (inst->hints)
		ha_hints_end(inst->hints);
	inst->hints = NULL;
}

/* ---- of a connection ------------------------------------------------------------------------- */

/* As it lies in memory; 0: it is none of IPv4. */
static uint32_t ipv4(const union ibv_gid *gid)
{
	uint32_t ip = 0;

	if (ha_gid_is_ipv4(gid))
		memcpy(&ip, gid->raw + 12, sizeof(ip));
	return ip;
}

static union ibv_gid remote_gid(const struct ha_path *path)
{
	union ibv_gid gid = {.raw = {0}};

	memcpy(gid.raw, path->remote.gid, sizeof(gid.raw));
	return gid;
}

static void begin(struct ha_comm *comm, const struct ha_path *first, const struct ha_path *second)
{
	const union ibv_gid far_first = remote_gid(first), far_second = remote_gid(second);
	const struct ha_agent_flow addresses = {
	    .sout_src_ip = ipv4(&first->addr.gid),
	    .sout_dst_ip = ipv4(&far_first),
	    .sup_src_ip = ipv4(&second->addr.gid),
	    .sup_dst_ip = ipv4(&far_second),
	};
	struct ha_hints *hints = comm->inst->hints;
	const struct ha_islands *islands = comm->inst->islands;
	struct ha_rail_flow *flow = &comm->send->flow;

	flow->begun = true;
	flow->same_island = !islands || ha_islands_same(islands, &first->addr.gid, &far_first);
	flow->hint = hints ? ha_hints_join(hints, &addresses) : NULL;
}

/* That carries, or could; NULL: none. */
static const struct ha_path *path_on(const struct ha_comm *comm, unsigned rail)
{
	for (unsigned p = 0; p < HA_MAX_PATHS; p++) {
		const struct ha_path *path = comm->paths[p];

		if (path && ha_path_ready(path) && path->port == comm->port->bundle->rails[rail])
			return path;
	}
	return NULL;
}

void ha_rail_agent_visit(struct ha_comm *comm)
{
	const struct ha_path *first, *second;

	if (!comm->is_send || !comm->port->bundle->by_agent || comm->send->flow.begun ||
	    !(comm->features & HA_FEATURE_RAILS))
		return;
	first = path_on(comm, 0);
	second = path_on(comm, 1);
	if (first && second)
		begin(comm, first, second);
}

unsigned ha_rail_agent_second(struct ha_comm *comm, const struct ha_path *first,
			      const struct ha_path *second, uint64_t bytes, uint64_t now_ns)
{
	struct ha_rail_flow *flow = &comm->send->flow;
	uint32_t share;

	if (!flow->begun)
		begin(comm, first, second);
	if (!flow->same_island && bytes <= comm->port->bundle->stripe_min)
		return 0;
	share = flow->hint ? ha_hint_read(flow->hint, now_ns) : HA_HINT_NONE;
	if (share != HA_HINT_NONE)
		return share;
	return flow->same_island ? MPIB_HINT_ALL : 0;
}

void ha_rail_agent_leave(struct ha_comm *comm)
{
	if (!comm->is_send || !comm->send->flow.hint)
		return;
	ha_hints_leave(comm->inst->hints, comm->send->flow.hint);
	comm->send->flow.hint = NULL;
}
