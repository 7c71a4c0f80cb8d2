/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a port follows the state of the fabric (state.c).
 *
 * The state words in the file count at once: a packet looks at them when it leaves and when it
 * arrives. What an application sees (port state, async events, a dead device) follows when its
 * engine or its next poll notices that the slot's control word moved.
 */
#include "simverbs/live/wire.h"

/* One that is leaving works until its queue pairs end. */
static bool device_works(const struct sv_fabric_header *h, const struct sv_fab_port *port)
{
	uint32_t life = atomic_load_explicit(&port->life, memory_order_acquire);

	return life == SV_DEVICE_ALIVE ||
	       (life != SV_DEVICE_KILLED &&
		sv_fabric_now_ns(h) < atomic_load_explicit(&port->leaves_ns, memory_order_relaxed));
}

static bool port_works(const struct sv_fabric_header *h, const struct sv_fab_port *port)
{
	return atomic_load_explicit(&port->link_up, memory_order_relaxed) && device_works(h, port);
}

bool sv_path_open(struct sv_wire *w, unsigned src_port, unsigned dst_port)
{
	unsigned num_ports = sv_fabric_devices(w->h) * w->h->num_phys;
	const struct sv_fab_port *src, *dst;

	if (dst_port >= num_ports || src_port >= num_ports) {
		sv_count(w->me, SV_CNT_DROP_NO_PEER, 1);
		return false;
	}
	src = &w->h->ports[src_port];
	dst = &w->h->ports[dst_port];
	/* Traffic of a port with itself never leaves the device. */
	if (src == dst && device_works(w->h, src))
		return true;
	if (!port_works(w->h, src) || !port_works(w->h, dst)) {
		sv_count(w->me, SV_CNT_DROP_LINK, 1);
		return false;
	}
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
	sv_hold_drop_all(&w->hold);
	sv_port_kill(w->port);
}

/* When the next is due. */
uint64_t sv_control_tell(struct sv_wire *w, uint64_t now_ns)
{
	uint64_t next_ns = UINT64_MAX;

	for (uint32_t i = 0; i < w->h->num_phys; i++) {
		if (now_ns >= w->tell_ns[i])
			sv_port_tell_state(w->port, i);
		else if (w->tell_ns[i] < next_ns)
			next_ns = w->tell_ns[i];
	}
	if (next_ns != UINT64_MAX)
		sv_thread_arm(w->port, next_ns);
	return next_ns;
}

static void sync_link(struct sv_wire *w, uint32_t phys)
{
	const struct sv_fab_port *port = &w->h->ports[sv_fab_port_index(w->h, w->device, phys)];
	enum ibv_port_state state = atomic_load(&port->link_up) ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;

	if (sv_port_state(w->port, phys) == state)
		return;
	sv_port_set_state(w->port, phys, state);
	w->tell_ns[phys] = atomic_load(&port->tell_ns);
}

void sv_control_sync(struct sv_wire *w)
{
	/* Read before the state it announces: a change in between is seen at the next look. */
	uint32_t seen = atomic_load_explicit(&w->me->control, memory_order_acquire);
	uint32_t life = atomic_load(&w->h->ports[w->device].life);
	bool up = atomic_load(&w->h->state) == SV_FABRIC_UP;
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
	for (uint32_t i = 0; i < w->h->num_phys; i++)
		sync_link(w, i);
	sv_control_tell(w, sv_fabric_now_ns(w->h));
	/* Rules are about packets: then every descriptor is one. */
	sv_port_set_burst(w->port, per_packet ? 0 : w->burst_bytes);
}

uint64_t sv_control_run(struct sv_wire *w, uint64_t now_ns)
{
	uint64_t leaves_ns;

	if (!sv_port_leaving(w->port))
		return UINT64_MAX;
	leaves_ns = atomic_load(&w->h->ports[w->device].leaves_ns);
	if (now_ns < leaves_ns)
		return leaves_ns;
	die(w);
	return UINT64_MAX;
}

void sv_control_died(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);

	for (uint32_t i = 0; i < w->h->num_phys; i++)
		atomic_store(&w->h->ports[sv_fab_port_index(w->h, w->device, i)].life,
			     SV_DEVICE_KILLED);
	sv_fabric_notify(w->fab);
}
