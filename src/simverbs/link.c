/* SPDX-License-Identifier: Apache-2.0 */
/* When what is sent gets through the links of a fabric; see link.h. */
#include "link.h"

size_t sv_links_number(const struct sv_link_plan *plan)
{
	size_t ports = (size_t)plan->devices * plan->ports;
	size_t aggregators = (size_t)(plan->devices - plan->plain_devices) * plan->ports;

	return ports + aggregators * ports;
}

bool sv_links_is_aggregator(const struct sv_link_plan *plan, uint32_t port)
{
	return sv_index_device(port, plan->devices) >= plan->plain_devices;
}

/* First one link for each port, which an aggregator's does not use; then the aggregators'. */
struct sv_link *sv_links_of_aggregator(const struct sv_links *links, uint32_t port, uint32_t peer)
{
	const struct sv_link_plan *plan = links->plan;
	size_t ports = (size_t)plan->devices * plan->ports, nth;

	if (!sv_links_is_aggregator(plan, port) || peer >= ports)
		return &links->links[port];
	nth = (size_t)(port / plan->devices) * (plan->devices - plan->plain_devices) +
	      sv_index_device(port, plan->devices) - plan->plain_devices;
	return &links->links[ports + nth * ports + peer];
}

static bool is_port(const struct sv_link_plan *plan, uint32_t index)
{
	return index < plan->devices * plan->ports;
}

static void init_link(const struct sv_links *links, struct sv_link *link, size_t port)
{
	const struct sv_link_plan *plan = links->plan;
	size_t rail = port % plan->devices % plan->rails;

	link->rate_mbps = plan->rate_mbps[rail];
	link->latency_ns = plan->latency_ns[rail];
}

void sv_links_init(const struct sv_links *links)
{
	const struct sv_link_plan *plan = links->plan;
	uint32_t ports = plan->devices * plan->ports;

	for (uint32_t port = 0; port < ports; port++) {
		init_link(links, &links->links[port], port);
		for (uint32_t peer = 0; sv_links_is_aggregator(plan, port) && peer < ports; peer++)
			init_link(links, sv_links_of(links, port, peer), port);
	}
}

static uint64_t latency_ns(const struct sv_link *from, const struct sv_link *to)
{
	return (from->latency_ns + to->latency_ns) / 2;
}

uint64_t sv_links_latency_ns(const struct sv_links *links, uint32_t src, uint32_t dst)
{
	const struct sv_link *from = sv_links_of(links, src, dst);

	return latency_ns(from, is_port(links->plan, dst) ? sv_links_of(links, dst, src) : from);
}

static uint64_t transmission_ns(const struct sv_link *link, uint64_t bytes)
{
	uint64_t ns = bytes * 8000 / link->rate_mbps;

	return ns ? ns : 1;
}

static void count(const struct sv_links *links, struct sv_link_way *way,
		  const struct sv_packet *pkt)
{
	uint32_t packets = sv_packet_count(pkt);

	if (links->shared) {
		atomic_fetch_add_explicit(&way->bytes, pkt->payload_len, memory_order_relaxed);
		atomic_fetch_add_explicit(&way->packets, packets, memory_order_relaxed);
		return;
	}
	/* One writer: no read-modify-write instruction needed. */
	atomic_store_explicit(
	    &way->bytes, atomic_load_explicit(&way->bytes, memory_order_relaxed) + pkt->payload_len,
	    memory_order_relaxed);
	atomic_store_explicit(&way->packets,
			      atomic_load_explicit(&way->packets, memory_order_relaxed) + packets,
			      memory_order_relaxed);
}

/* Takes a way for so long, once it is free and not before from_ns. Returns when that begins. */
static uint64_t take(const struct sv_links *links, struct sv_link_way *way, uint64_t from_ns,
		     uint64_t ns)
{
	unsigned long long free_ns = atomic_load_explicit(&way->free_ns, memory_order_relaxed);
	uint64_t start_ns;

	do {
		start_ns = free_ns > from_ns ? free_ns : from_ns;
		if (!links->shared) {
			atomic_store_explicit(&way->free_ns, start_ns + ns, memory_order_relaxed);
			return start_ns;
		}
	} while (!atomic_compare_exchange_weak_explicit(
	    &way->free_ns, &free_ns, start_ns + ns, memory_order_relaxed, memory_order_relaxed));
	return start_ns;
}

static uint64_t bytes_of(const struct sv_packet *pkt)
{
	return pkt->payload_len + (uint64_t)sv_packet_count(pkt) * SV_HEADER_BYTES;
}

/* Of the link into its destination; NULL: it takes none. */
static struct sv_link *link_in(const struct sv_links *links, const struct sv_packet *pkt)
{
	if (pkt->dst_port == pkt->src_port || !is_port(links->plan, pkt->dst_port))
		return NULL;
	return sv_links_of(links, pkt->dst_port, pkt->src_port);
}

/* As if both were behind one bus. */
static void drag(const struct sv_links *links, const struct sv_packet *pkt, uint64_t from_ns)
{
	const struct sv_link_plan *plan = links->plan;
	const uint32_t rail = pkt->src_port % plan->devices % plan->rails;
	struct sv_link *first = sv_links_of(links, pkt->src_port - rail, pkt->dst_port);

	if (rail != 0)
		(void)take(links, &first->way[SV_OUT], from_ns,
			   transmission_ns(first, bytes_of(pkt)) * plan->drag_milli / 1000);
}

struct sv_passage sv_links_leave(const struct sv_links *links, const struct sv_packet *pkt,
				 uint64_t from_ns, uint32_t slow_milli)
{
	struct sv_link *from = sv_links_of(links, pkt->src_port, pkt->dst_port);
	const struct sv_link *to = link_in(links, pkt);
	uint64_t out_ns = transmission_ns(from, bytes_of(pkt)), in_ns = out_ns, start_ns;
	struct sv_passage p;

	if (to && to->rate_mbps != from->rate_mbps)
		in_ns = transmission_ns(to, bytes_of(pkt));
	if (slow_milli)
		out_ns = out_ns * slow_milli / 1000;
	start_ns = take(links, &from->way[SV_OUT], from_ns, out_ns);
	count(links, &from->way[SV_OUT], pkt);
	if (links->plan->drag_milli)
		drag(links, pkt, start_ns);
	p.left_ns = start_ns + out_ns;
	p.there_ns =
	    start_ns + (out_ns > in_ns ? out_ns : in_ns) + latency_ns(from, to ? to : from);
	return p;
}

/* Its last bit comes at there_ns at the earliest: when does its first? */
static uint64_t first_bit_ns(uint64_t there_ns, uint64_t in_ns)
{
	return there_ns > in_ns ? there_ns - in_ns : 0;
}

uint64_t sv_links_arrival_ns(const struct sv_links *links, const struct sv_packet *pkt,
			     uint64_t there_ns)
{
	const struct sv_link *to = link_in(links, pkt);
	uint64_t in_ns, free_ns;

	if (!to)
		return there_ns;
	in_ns = transmission_ns(to, bytes_of(pkt));
	free_ns = atomic_load_explicit(&to->way[SV_IN].free_ns, memory_order_relaxed);
	return first_bit_ns(there_ns, in_ns) >= free_ns ? there_ns : free_ns + in_ns;
}

uint64_t sv_links_arrive(const struct sv_links *links, const struct sv_packet *pkt,
			 uint64_t there_ns)
{
	struct sv_link *to = link_in(links, pkt);
	uint64_t in_ns, start_ns;

	if (!to)
		return there_ns;
	in_ns = transmission_ns(to, bytes_of(pkt));
	start_ns = take(links, &to->way[SV_IN], first_bit_ns(there_ns, in_ns), in_ns);
	count(links, &to->way[SV_IN], pkt);
	return there_ns > start_ns + in_ns ? there_ns : start_ns + in_ns;
}
