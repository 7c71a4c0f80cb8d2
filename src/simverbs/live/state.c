/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changing link, switch and device state in the fabric's file; see state.h.
 */
#include "simverbs/live/state.h"

#include "simverbs/live/sysfs.h"

#define BIT(kind) (1u << (kind))

static void begin_to_leave(struct sv_fab_port *port, enum sv_device_life life, uint64_t leaves_ns)
{
	if (atomic_load(&port->life) != SV_DEVICE_ALIVE)
		return;
	atomic_store(&port->leaves_ns, leaves_ns);
	atomic_store(&port->life, life);
}

#define LINK_KINDS (BIT(SV_FAULT_LINK_UP) | BIT(SV_FAULT_LINK_DOWN) | BIT(SV_FAULT_LINK_OFF))

/* Differs from one time and port to the next, which is all that is asked of it. */
static uint64_t scatter(const struct sv_fabric_header *h, unsigned index, uint64_t now_ns)
{
	uint64_t z = (h->seed + index + now_ns) * 0x9e3779b97f4a7c15ull;

	return z ^ z >> 31;
}

static void set_link(struct sv_fabric *fab, unsigned device, unsigned phys, uint32_t kinds)
{
	unsigned index = sv_fab_port_index(fab->h, device, phys);
	struct sv_fab_port *port = &fab->h->ports[index];
	uint64_t now_ns = sv_fabric_now_ns(fab->h), late_ns = 0;

	if (kinds & BIT(SV_FAULT_LINK_DOWN))
		late_ns = sv_profile_carrier_event_ns((enum sv_profile)fab->h->profile,
						      scatter(fab->h, index, now_ns));
	/* Before the state: who sees that knows when to tell. */
	atomic_store(&port->tell_ns, now_ns + late_ns);
	atomic_store(&port->link_up, kinds & BIT(SV_FAULT_LINK_UP) ? 1 : 0);
	sv_sysfs_link_changed(fab->h, device, phys);
}

#define LEG_KINDS (BIT(SV_FAULT_LEG_DOWN) | BIT(SV_FAULT_LEG_REMAP) | BIT(SV_FAULT_LEG_UP))

static void set_leg(struct sv_fab_port *port, uint32_t kinds, uint32_t leg)
{
	uint32_t legs = atomic_load(&port->legs);

	for (uint32_t kind = SV_FAULT_LEG_DOWN; kind <= SV_FAULT_LEG_UP; kind++)
		if (kinds & BIT(kind))
			legs = sv_fault_legs(legs, kind, leg);
	atomic_store(&port->legs, legs);
}

static void set_port(struct sv_fabric *fab, unsigned device, unsigned phys,
		     const struct sv_fault_verdict *to)
{
	struct sv_fab_port *port = &fab->h->ports[sv_fab_port_index(fab->h, device, phys)];
	uint32_t kinds = to->kinds;

	if (kinds & LINK_KINDS)
		set_link(fab, device, phys, kinds);
	if (kinds & LEG_KINDS)
		set_leg(port, kinds, to->leg);
	if (kinds & BIT(SV_FAULT_CUT))
		atomic_store(&port->cut, SV_CUT_BOTH);
	if (kinds & BIT(SV_FAULT_HEAL))
		atomic_store(&port->cut, 0);
}

/* A device lives or dies with all its ports. */
static void set_life(struct sv_fabric *fab, unsigned device, const struct sv_fault_verdict *to)
{
	uint64_t leaves_ns = sv_fabric_now_ns(fab->h) + to->leave_ns;
	uint32_t kinds = to->kinds;
	unsigned i;

	if (kinds & BIT(SV_FAULT_REVIVE) && to->renamed) {
		atomic_fetch_add(&fab->h->devices[device].renamed, 1);
		sv_sysfs_renamed(fab->h, device);
	}
	for (i = 0; i < fab->h->num_phys; i++) {
		struct sv_fab_port *port = &fab->h->ports[sv_fab_port_index(fab->h, device, i)];

		if (kinds & BIT(SV_FAULT_KILL))
			atomic_store(&port->life, SV_DEVICE_KILLED);
		if (kinds & BIT(SV_FAULT_REVIVE))
			atomic_store(&port->life, SV_DEVICE_ALIVE);
		if (kinds & BIT(SV_FAULT_DISASSOCIATE))
			begin_to_leave(port, SV_DEVICE_DISASSOCIATED, leaves_ns);
		if (kinds & BIT(SV_FAULT_FEIGN))
			begin_to_leave(port, SV_DEVICE_FEIGNS, leaves_ns);
	}
}

static void set_device(struct sv_fabric *fab, unsigned device, const struct sv_fault_verdict *to)
{
	unsigned i;

	for (i = 0; i < fab->h->num_phys; i++)
		if (to->phys == SV_ANY || to->phys == i)
			set_port(fab, device, i, to);
	set_life(fab, device, to);
}

static void set_devices(struct sv_fabric *fab, const struct sv_fault_verdict *to)
{
	unsigned i;

	for (i = 0; i < sv_fabric_devices(fab->h); i++)
		if ((to->host == SV_ANY || i / fab->h->rails == to->host) &&
		    (to->rail == SV_ANY || i % fab->h->rails == to->rail))
			set_device(fab, i, to);
	sv_fabric_notify(fab);
}

void sv_state_set(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t phys,
		  uint32_t kinds)
{
	set_devices(
	    fab,
	    &(struct sv_fault_verdict){
		.kinds = kinds, .host = host, .rail = rail, .phys = phys, .leave_ns = SV_LEAVE_NS});
}

void sv_state_leg(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t leg, uint32_t kind)
{
	set_devices(
	    fab, &(struct sv_fault_verdict){
		     .kinds = BIT(kind), .host = host, .rail = rail, .phys = SV_ANY, .leg = leg});
}

void sv_state_cut(struct sv_fabric *fab, uint32_t host, uint32_t rail, uint32_t cut)
{
	unsigned devices = sv_fabric_devices(fab->h), i;

	for (i = 0; i < devices * fab->h->num_phys; i++) {
		unsigned device = sv_fab_device_of(fab->h, i);

		if ((host == SV_ANY || device / fab->h->rails == host) &&
		    (rail == SV_ANY || device % fab->h->rails == rail))
			atomic_store(&fab->h->ports[i].cut, cut);
	}
	sv_fabric_notify(fab);
}

static void undo_later(struct sv_fabric *fab, const struct sv_fault_verdict *v)
{
	uint64_t due = sv_fabric_now_ns(fab->h) + v->for_ns;
	int i;

	for (i = 0; i < SV_MAX_UNDO; i++) {
		struct sv_undo *undo = &fab->h->undo[i];
		unsigned long long none = 0;

		if (!atomic_compare_exchange_strong(&undo->claimed, &none, 1))
			continue;
		atomic_store(&undo->host, v->host);
		atomic_store(&undo->rail, v->rail);
		atomic_store(&undo->leg, v->leg);
		atomic_store(&undo->phys, v->phys);
		atomic_store(&undo->kinds, sv_fault_inverse(v->kinds));
		atomic_store(&undo->due_ns, due);
		return;
	}
}

void sv_state_act(struct sv_fabric *fab, const struct sv_fault_verdict *verdict)
{
	if (verdict->for_ns)
		undo_later(fab, verdict);
	set_devices(fab, verdict);
}

uint64_t sv_state_run(struct sv_fabric *fab, uint64_t now_ns)
{
	struct sv_fault_verdict verdict;
	uint64_t next;
	int i;

	if (sv_fault_armed(&fab->h->faults, SV_POINT_TIME))
		while (sv_fault_due(&fab->h->faults, now_ns, &verdict))
			sv_state_act(fab, &verdict);
	next = sv_fault_armed(&fab->h->faults, SV_POINT_TIME) ? sv_fault_next_due(&fab->h->faults)
							      : UINT64_MAX;
	for (i = 0; i < SV_MAX_UNDO; i++) {
		struct sv_undo *undo = &fab->h->undo[i];
		unsigned long long due = atomic_load(&undo->due_ns);

		if (!due)
			continue;
		if (due > now_ns) {
			next = due < next ? due : next;
		} else if (atomic_compare_exchange_strong(&undo->due_ns, &due, 0)) {
			/* Exchanged for 0: ours alone to carry out. */
			struct sv_fault_verdict back = {.kinds = atomic_load(&undo->kinds),
							.host = atomic_load(&undo->host),
							.rail = atomic_load(&undo->rail),
							.phys = atomic_load(&undo->phys),
							.leg = atomic_load(&undo->leg),
							.leave_ns = SV_LEAVE_NS};

			atomic_store(&undo->claimed, 0);
			set_devices(fab, &back);
		}
	}
	return next;
}
