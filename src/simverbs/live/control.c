/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a port follows the state of the fabric (state.c).
 *
 * The state words in the file count at once: a packet looks at them when it leaves and when it
 * arrives. What an application sees (port state, async events, a dead device) follows when its
 * engine or its next poll notices that the slot's control word moved.
 */
#include "simverbs/live/wire.h"

/* A device that is leaving works until its queue pairs end. */
static bool device_works(const struct sv_fabric_header *h, const struct sv_fab_device *dev)
{
	uint32_t life = atomic_load_explicit(&dev->life, memory_order_acquire);

	return atomic_load_explicit(&dev->link_up, memory_order_relaxed) &&
	       (life == SV_DEVICE_ALIVE ||
		(life != SV_DEVICE_KILLED &&
		 sv_fabric_now_ns(h) <
		     atomic_load_explicit(&dev->leaves_ns, memory_order_relaxed)));
}

bool sv_path_open(struct sv_wire *w, unsigned src_device, unsigned dst_device)
{
	const struct sv_fab_device *src, *dst;

	if (dst_device >= sv_fabric_devices(w->h) || src_device >= sv_fabric_devices(w->h))
		return false;
	src = &w->h->devices[src_device];
	dst = &w->h->devices[dst_device];
	if (!device_works(w->h, src) || !device_works(w->h, dst)) {
		sv_count(w->me, SV_CNT_DROP_LINK, 1);
		return false;
	}
	/* Traffic of a device with itself never sees the switch. */
	if (src == dst)
		return true;
	if (atomic_load_explicit(&src->cut, memory_order_relaxed) & SV_CUT_FROM_DEVICE ||
	    atomic_load_explicit(&dst->cut, memory_order_relaxed) & SV_CUT_TO_DEVICE) {
		sv_count(w->me, SV_CNT_DROP_CUT, 1);
		return false;
	}
	return true;
}

static void die(struct sv_wire *w)
{
	if (sv_port_dead(w->port))
		return;
	sv_hold_drop_all(w);
	sv_port_kill(w->port);
}

uint64_t sv_control_tell(struct sv_wire *w, uint64_t now_ns)
{
	if (now_ns < w->tell_ns) {
		sv_thread_arm(w->port, w->tell_ns);
		return w->tell_ns;
	}
	sv_port_tell_state(w->port);
	return UINT64_MAX;
}

void sv_control_sync(struct sv_wire *w)
{
	const struct sv_fab_device *dev = &w->h->devices[w->device];
	/* Read before the state it announces: a change in between is seen at the next look. */
	uint32_t seen = atomic_load_explicit(&w->me->control, memory_order_acquire);
	uint32_t life = atomic_load(&dev->life);
	bool up = atomic_load(&w->h->state) == SV_FABRIC_UP;
	enum ibv_port_state state = atomic_load(&dev->link_up) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	bool per_packet = sv_fault_armed(&w->h->faults, SV_POINT_TX | SV_POINT_RX);

	atomic_store_explicit(&w->control_seen, seen, memory_order_relaxed);
	if (!up || life == SV_DEVICE_KILLED)
		die(w);
	else if (life == SV_DEVICE_DISASSOCIATED)
		sv_port_disassociate(w->port);
	else if (life == SV_DEVICE_FEIGNS)
		sv_port_feign(w->port);
	else if (sv_port_dead(w->port) || sv_port_leaving(w->port))
		sv_port_revive(w->port);
	if (sv_port_state(w->port) != state) {
		sv_port_set_state(w->port, state);
		w->tell_ns = atomic_load(&dev->tell_ns);
	}
	sv_control_tell(w, sv_fabric_now_ns(w->h));
	/* Rules are about packets: then every descriptor is one. */
	sv_port_set_burst(w->port, per_packet ? 0 : SV_BURST_BYTES);
}

uint64_t sv_control_run(struct sv_wire *w, uint64_t now_ns)
{
	uint64_t leaves_ns;

	if (!sv_port_leaving(w->port))
		return UINT64_MAX;
	leaves_ns = atomic_load(&w->h->devices[w->device].leaves_ns);
	if (now_ns < leaves_ns)
		return leaves_ns;
	die(w);
	return UINT64_MAX;
}

void sv_control_died(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);

	atomic_store(&w->h->devices[w->device].life, SV_DEVICE_KILLED);
	sv_fabric_notify(w->fab);
}
