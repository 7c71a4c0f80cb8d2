/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a port follows its network interface, and what fault rules do to it. Rules are this
 * process's own: what they break is this device, and not what others have on the interface.
 *
 * A rule counts for packets at once. What an application sees follows when the engine comes to it:
 * a rule may fire in the middle of the core's sending.
 */
#include "simverbs/roce/wire.h"

#include <string.h>

#define BIT(kind) (1u << (kind))
#define LINK_DOWN (BIT(SV_FAULT_LINK_DOWN) | BIT(SV_FAULT_LINK_OFF))
#define LIFE_KINDS                                                                                 \
	(BIT(SV_FAULT_KILL) | BIT(SV_FAULT_REVIVE) | BIT(SV_FAULT_DISASSOCIATE) |                  \
	 BIT(SV_FAULT_FEIGN))

bool sv_roce_link_open(const struct sv_roce_wire *w)
{
	return w->link.up && !w->rules.down && !w->rules.cut;
}

/* ---------------------------------------------------------------- the interface */

static bool set_gid(struct sv_roce_wire *w, uint32_t index)
{
	const struct sv_gid_entry *old = &sv_port_cfg(w->port)->phys[0].gids[index];
	union ibv_gid *gid = &w->link.gids[index];
	struct sv_gid_entry entry = {.type = IBV_GID_TYPE_ROCE_V2, .ndev_ifindex = w->itf.index};

	if (!memcmp(&old->gid, gid, sizeof(*gid)))
		return false;
	/* One that cannot be used yet (duplicates are still looked for) will be news again. */
	if (!w->io->address_changed(w, index))
		memset(gid, 0, sizeof(*gid));
	if (!memcmp(&old->gid, gid, sizeof(*gid)))
		return false;
	entry.gid = *gid;
	sv_port_set_gid(w->port, 0, index, &entry);
	return true;
}

static void sync_state(struct sv_roce_wire *w)
{
	bool up = w->link.up && !w->rules.down;

	sv_port_set_state(w->port, 0, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
	sv_port_tell_state(w->port, 0);
}

static void die(struct sv_roce_wire *w)
{
	if (sv_port_dead(w->port))
		return;
	sv_hold_drop_all(&w->hold);
	sv_port_kill(w->port);
}

void sv_roce_link_sync(struct sv_roce_wire *w)
{
	sv_roce_interface_read(&w->itf, &w->link);
	for (uint32_t i = 0; i < SV_MAX_GIDS; i++)
		set_gid(w, i);
	sync_state(w);
	if (!w->link.there)
		die(w);
}

/* ---------------------------------------------------------------- rules */

static bool is_here(const struct sv_roce_wire *w, const struct sv_fault_verdict *v)
{
	const struct sv_port_config *cfg = sv_port_cfg(w->port);

	return (v->host == SV_ANY || v->host == cfg->host) &&
	       (v->rail == SV_ANY || v->rail == cfg->rail) && (v->phys == SV_ANY || v->phys == 0);
}

static void undo_later(struct sv_roce_rules *rules, const struct sv_fault_verdict *v)
{
	if (rules->num_undo == SV_ROCE_MAX_UNDO)
		return;
	rules->undo[rules->num_undo].kinds = sv_fault_inverse(v->kinds);
	rules->undo[rules->num_undo++].due_ns = sv_roce_now_ns() + v->for_ns;
}

static void apply(struct sv_roce_wire *w, uint32_t kinds, uint64_t leave_ns)
{
	if (kinds & LINK_DOWN)
		w->rules.down = true;
	if (kinds & BIT(SV_FAULT_LINK_UP))
		w->rules.down = false;
	if (kinds & BIT(SV_FAULT_CUT))
		w->rules.cut = true;
	if (kinds & BIT(SV_FAULT_HEAL))
		w->rules.cut = false;
	w->rules.life |= kinds & LIFE_KINDS;
	w->rules.leave_ns = leave_ns;
	sv_roce_thread_arm(w->port, 0);
}

void sv_roce_link_act(struct sv_port *port, const struct sv_fault_verdict *v)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	if (!is_here(w, v))
		return;
	if (v->for_ns)
		undo_later(&w->rules, v);
	apply(w, v->kinds, v->leave_ns);
}

static void run_life(struct sv_roce_wire *w, uint64_t now_ns)
{
	uint32_t kinds = w->rules.life;

	w->rules.life = 0;
	if (kinds & (BIT(SV_FAULT_DISASSOCIATE) | BIT(SV_FAULT_FEIGN)))
		w->rules.leaves_ns = now_ns + w->rules.leave_ns;
	if (kinds & BIT(SV_FAULT_DISASSOCIATE))
		sv_port_disassociate(w->port);
	if (kinds & BIT(SV_FAULT_FEIGN))
		sv_port_feign(w->port);
	if (kinds & BIT(SV_FAULT_KILL))
		die(w);
	if (kinds & BIT(SV_FAULT_REVIVE) && w->link.there)
		sv_port_revive(w->port);
	if (sv_port_leaving(w->port) && now_ns >= w->rules.leaves_ns)
		die(w);
}

static uint64_t run_undo(struct sv_roce_wire *w, uint64_t now_ns)
{
	struct sv_roce_rules *rules = &w->rules;
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < rules->num_undo;) {
		if (rules->undo[i].due_ns > now_ns) {
			next_ns = rules->undo[i].due_ns < next_ns ? rules->undo[i].due_ns : next_ns;
			i++;
			continue;
		}
		apply(w, rules->undo[i].kinds, SV_LEAVE_NS);
		rules->undo[i] = rules->undo[--rules->num_undo];
	}
	return next_ns;
}

uint64_t sv_roce_link_run(struct sv_roce_wire *w, uint64_t now_ns)
{
	struct sv_fault_verdict verdict;
	uint64_t next_ns, due_ns = UINT64_MAX;

	if (sv_fault_armed(w->faults, SV_POINT_TIME)) {
		while (sv_fault_due(w->faults, now_ns, &verdict))
			sv_roce_link_act(w->port, &verdict);
		due_ns = sv_fault_next_due(w->faults);
	}
	next_ns = run_undo(w, now_ns);
	run_life(w, now_ns);
	sync_state(w);
	if (sv_port_leaving(w->port) && w->rules.leaves_ns < next_ns)
		next_ns = w->rules.leaves_ns;
	return due_ns < next_ns ? due_ns : next_ns;
}
