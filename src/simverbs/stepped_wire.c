/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stepped wire: what a port sends becomes an event at the time it arrives, which the links
 * (link.h) say. Packets of one path keep their order unless a fault rule says otherwise.
 */
#include "stepped.h"

#include "dma.h"

#include <string.h>

/* A reordered packet that nothing overtakes goes on by itself after this. */
#define REORDER_TIMEOUT_NS 50000u

uint64_t sv_stepped_random(struct sv_stepped *fab)
{
	uint64_t z = fab->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* ---------------------------------------------------------------- the switch */

/* Is there a way from one port to the other at this moment? Counts the loss if not. */
bool sv_connected(struct sv_stepped *fab, const struct sv_packet *pkt, bool at_source)
{
	uint32_t src = pkt->src_port, dst = pkt->dst_port, src_rail, dst_rail;

	if (src == dst)
		return true; /* inside the device: it needs no link */
	if (dst >= fab->num_ports ||
	    (at_source ? !fab->ports[src].link_up : !fab->ports[dst].link_up)) {
		fab->stats.lost_link++;
		return false;
	}
	if (at_source && !sv_leg_carries(fab->ports[src].legs, pkt->sport)) {
		fab->stats.lost_leg++;
		return false;
	}
	src_rail = sv_stepped_rail_of(fab, src);
	dst_rail = sv_stepped_rail_of(fab, dst);
	if (fab->rail_cut[src_rail] || fab->rail_cut[dst_rail] ||
	    fab->blocked[src * fab->num_ports + dst] ||
	    (fab->opts.isolated_rails && src_rail != dst_rail)) {
		fab->stats.lost_cut++;
		return false;
	}
	return true;
}

/* When a packet that leaves now arrives, in order with what else takes this path. */
static uint64_t arrival_ns(struct sv_stepped *fab, const struct sv_packet *pkt, uint32_t slow_milli)
{
	uint64_t *last = &fab->last_arrival_ns[pkt->src_port * fab->num_ports + pkt->dst_port];
	uint64_t arrival = sv_links_leave(&fab->links, pkt, fab->now_ns, slow_milli).there_ns;

	if (fab->opts.jitter_ns)
		arrival += sv_stepped_random(fab) % (fab->opts.jitter_ns + 1);
	if (arrival <= *last)
		arrival = *last + 1;
	*last = arrival;
	return arrival;
}

/* A packet left the port: those held back for it come one closer. */
static void release_held(struct sv_stepped *fab, struct sv_stepped_port *src, uint64_t arrival)
{
	struct sv_flight **pos = &src->held;

	while (*pos) {
		struct sv_flight *f = *pos;

		if (!f->done && --f->overtake > 0) {
			pos = &f->next;
			continue;
		}
		*pos = f->next;
		if (!f->done)
			sv_flight_push(fab, f, arrival + 1);
		sv_flight_drop_ref(fab, f);
	}
}

/* Fabric actions that take the packet which set them off with them. */
#define LOSING_KINDS                                                                               \
	(sv_bit(SV_FAULT_LINK_DOWN) | sv_bit(SV_FAULT_LINK_OFF) | sv_bit(SV_FAULT_CUT) |           \
	 sv_bit(SV_FAULT_KILL))

/* Calls `act` for each fabric action of a verdict. */
void sv_for_actions(const struct sv_fault_verdict *v, void (*act)(const struct sv_action *action))
{
	for (uint32_t kind = SV_FAULT_LINK_DOWN; kind < SV_FAULT_KIND_COUNT; kind++)
		if (v->kinds & 1u << kind)
			act(&(struct sv_action){.kind = kind,
						.host = v->host,
						.rail = v->rail,
						.leg = v->leg,
						.phys = v->phys,
						.for_ns = v->for_ns,
						.leave_ns = v->leave_ns,
						.renamed = v->renamed});
}

static void act_soon(const struct sv_action *action)
{
	sv_action_push(sv_fabric, sv_fabric->now_ns, action);
}

/* Lost by a rule? Counts it. */
bool sv_lost_by_rule(struct sv_stepped *fab, const struct sv_fault_verdict *v)
{
	if (v->kinds & (sv_bit(SV_FAULT_DROP) | LOSING_KINDS))
		fab->stats.lost_fault++;
	else if (v->kinds & sv_bit(SV_FAULT_CORRUPT))
		fab->stats.lost_corrupt++;
	else
		return false;
	return true;
}

/* ---------------------------------------------------------------- wire operations */

static struct sv_flight *snapshot(struct sv_stepped *fab, const struct sv_packet *pkt,
				  const struct sv_frag *frags, uint32_t nfrags)
{
	struct sv_flight *f = sv_flight_new(fab);
	uint32_t at = 0;

	f->pkt = *pkt;
	f->pkt.payload = f->payload;
	for (uint32_t i = 0; i < nfrags; i++) {
		sv_dma_copy(f->payload + at, (const void *)(uintptr_t)frags[i].addr,
			    frags[i].length);
		at += frags[i].length;
	}
	return f;
}

static void schedule(struct sv_stepped *fab, struct sv_flight *f, const struct sv_fault_verdict *v)
{
	struct sv_stepped_port *src = &fab->ports[f->pkt.src_port];
	uint64_t *last = &fab->last_arrival_ns[f->pkt.src_port * fab->num_ports + f->pkt.dst_port];
	uint64_t at_ns = f->arrival_ns + v->delay_ns, held_ns;

	for (uint32_t i = 0; i < v->copies; i++) {
		fab->stats.duplicated++;
		sv_flight_push(fab, sv_flight_copy(fab, f), f->arrival_ns + i + 1);
	}
	if (v->in_order && *last < at_ns)
		*last = at_ns; /* arrival_ns() puts what follows behind it */
	/* The same moment for all: events of one time come in the order in which they were made. */
	held_ns =
	    v->hold_until_ns + sv_links_latency_ns(&fab->links, f->pkt.src_port, f->pkt.dst_port);
	if (at_ns < held_ns)
		at_ns = held_ns;
	if (v->delay_ns || v->hold_until_ns)
		fab->stats.delayed++;
	if (v->overtake) {
		fab->stats.reordered++;
		f->overtake = v->overtake;
		f->refs++; /* of the list */
		fab->ports[f->pkt.dst_port].inbound++;
		f->next = src->held;
		src->held = f;
		sv_flight_push(fab, f, at_ns + REORDER_TIMEOUT_NS);
	} else {
		sv_flight_push(fab, f, at_ns);
	}
}

static int wire_send(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	struct sv_stepped *fab = sv_fabric;
	struct sv_fault_verdict v = {0};
	struct sv_flight *f;

	if (fab->opts.inbox_packets && pkt->dst_port < fab->num_ports &&
	    fab->ports[pkt->dst_port].inbound >= fab->opts.inbox_packets)
		return -EAGAIN;
	fab->stats.sent++;
	if (sv_fault_armed(&fab->faults, SV_POINT_TX) &&
	    sv_port_match_faults(port, SV_DIR_TX, pkt, &v)) {
		sv_for_actions(&v, act_soon);
		if (sv_lost_by_rule(fab, &v))
			return 0;
	}
	if (!sv_connected(fab, pkt, true))
		return 0;
	f = snapshot(fab, pkt, frags, nfrags);
	f->arrival_ns = arrival_ns(fab, pkt, v.slow_milli);
	release_held(fab, &fab->ports[pkt->src_port], f->arrival_ns);
	schedule(fab, f, &v);
	return 0;
}

static int wire_copy_payload(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset,
			     void *dst, uint32_t length)
{
	/* Every payload is at hand. */
	(void)port;
	(void)pkt;
	(void)offset;
	(void)dst;
	(void)length;
	return -EFAULT;
}

static uint64_t wire_now(struct sv_port *port)
{
	(void)port;
	return sv_fabric->now_ns;
}

/* Is there a way to this device, if no cable is cut? */
static bool routed(const struct sv_stepped *fab, const struct sv_port_config *own,
		   const struct sv_port_config *peer)
{
	return (peer->rail == own->rail || !fab->opts.isolated_rails) &&
	       !sv_islands_part(&fab->islands, own->host, own->rail, peer->host, peer->rail);
}

static int wire_resolve(struct sv_port *port, const struct ibv_ah_attr *attr, uint16_t *dst_port)
{
	struct sv_stepped *fab = sv_fabric;
	const struct sv_port_config *own = sv_port_cfg(port);
	const struct sv_phys_config *from = &own->phys[attr->port_num - 1];
	bool unreachable = fab->opts.isolated_rails;

	for (uint32_t p = 0; p < fab->num_ports; p++) {
		const struct sv_port_config *cfg = sv_port_cfg(sv_stepped_device_of(fab, p)->port);

		if (!sv_phys_takes(&cfg->phys[p / fab->num_devices], from, attr,
				   !fab->opts.infiniband))
			continue;
		if (routed(fab, own, cfg)) {
			*dst_port = (uint16_t)p;
			return 0;
		}
		unreachable = true;
	}
	*dst_port = SV_NOWHERE;
	if (fab->opts.infiniband && !fab->opts.isolated_rails)
		return 0; /* what is sent there is lost */
	return unreachable ? ENETUNREACH : ETIMEDOUT;
}

/* In sequence from a start of its own per device: not used again before 2^24 others, unless the
 * fabric was opened so that the lowest free one is. */
static int wire_qpn_alloc(struct sv_port *port, uint32_t *qpn)
{
	struct sv_stepped_device *dev = sv_port_wire(port);

	if (sv_fabric->opts.qpns_again)
		dev->next_qpn = dev->first_qpn;
	do {
		*qpn = dev->next_qpn++ & SV_QPN_MASK;
	} while (*qpn < 2 || sv_port_find_qp(port, *qpn));
	return 0;
}

static void wire_qpn_free(struct sv_port *port, uint32_t qpn)
{
	(void)port;
	(void)qpn;
}

const struct sv_wire_ops sv_stepped_wire = {
    .send = wire_send,
    .copy_payload = wire_copy_payload,
    .now_ns = wire_now,
    .resolve = wire_resolve,
    .qpn_alloc = wire_qpn_alloc,
    .qpn_free = wire_qpn_free,
    .verb_waits = sv_stepped_verb_waits,
};
