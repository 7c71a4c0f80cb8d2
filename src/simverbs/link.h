/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links of a fabric: cables that have a rate and a length.
 *
 * A port's link has two ways, one out of the port and one into it, and each carries one thing after
 * the other. What goes from one port to another takes the way out of the first and the way into the
 * second, which begins to carry it as soon as its first bit is there: two that send to a third
 * share the third's link, and without others in the way a packet takes its time once.
 *
 *	out	|<-- bytes at this link's rate -->|
 *	in	     latency |<-- bytes at this link's rate -->| there
 *
 * A port of an aggregator, a box with a port for each peer, has a link for each port of the fabric.
 *
 * All of it is plain data without pointers, so it can lie in shared memory and be used by several
 * processes at once: each takes its turn with a compare-and-swap, and leaves nothing half done.
 */
#ifndef SV_LINK_H
#define SV_LINK_H

#include "engine.h"

#include <stdalign.h>
#include <stdatomic.h>

#define SV_MAX_RAILS 16
/* What is around the payload of a packet on a cable. */
#define SV_HEADER_BYTES 64u

/* What links a fabric has: constant once it is up. */
struct sv_link_plan {
	uint32_t devices, rails, ports; /* of the fabric, of a host, of a device */
	uint32_t plain_devices; /* those from here on are aggregators': a link for each peer */
	uint32_t rate_mbps[SV_MAX_RAILS];
	uint64_t latency_ns[SV_MAX_RAILS]; /* from a port of the rail to another one */
	/* What leaves by another rail than the first one keeps the host's first one for so many
	 * thousandths of the time that it would take there. */
	uint32_t drag_milli;
};

enum sv_direction { SV_OUT, SV_IN };

/* One direction of a link. */
struct sv_link_way {
	alignas(64) atomic_ullong free_ns; /* it carries something until then */
	atomic_ullong bytes, packets;	   /* of payload; MTU packets */
};

struct sv_link {
	struct sv_link_way way[2]; /* enum sv_direction */
	/* Constant: its rail's. */
	uint64_t latency_ns;
	uint32_t rate_mbps;
};

/* Where they are. The plan and the links belong to whoever made the fabric. */
struct sv_links {
	const struct sv_link_plan *plan;
	struct sv_link *links; /* sv_links_number() of them */
	bool shared;	       /* with other processes */
};

size_t sv_links_number(const struct sv_link_plan *plan);
/* Makes links of memory that is all zero. */
void sv_links_init(const struct sv_links *links);

bool sv_links_is_aggregator(const struct sv_link_plan *plan, uint32_t port);

/* The link between an aggregator's port and this peer. */
struct sv_link *sv_links_of_aggregator(const struct sv_links *links, uint32_t port, uint32_t peer);

/* The link between a port and the switch; of an aggregator, between it and this peer. Asked for
 * each packet, of fabrics most of which have no aggregator. */
static inline struct sv_link *sv_links_of(const struct sv_links *links, uint32_t port,
					  uint32_t peer)
{
	if (links->plan->plain_devices == links->plan->devices)
		return &links->links[port];
	return sv_links_of_aggregator(links, port, peer);
}

/* From one port to the other: half of each one's, so a rail's own between two ports of the rail. */
uint64_t sv_links_latency_ns(const struct sv_links *links, uint32_t src, uint32_t dst);

/*
 * Takes the way out for a packet that sets off at from_ns, or as soon as it is free. slow_milli: it
 * takes so many thousandths of its time there; 0: 1000.
 */
struct sv_passage {
	uint64_t left_ns;  /* all of it has left the port */
	uint64_t there_ns; /* all of it is there, if nothing else is on the way in */
};
struct sv_passage sv_links_leave(const struct sv_links *links, const struct sv_packet *pkt,
				 uint64_t from_ns, uint32_t slow_milli);

/*
 * Takes the way into its destination for a packet of which all would be there at there_ns; returns
 * when it is, behind what came before it. What has no destination, and what stays inside a port,
 * takes none. The other one only says when that would be.
 */
uint64_t sv_links_arrive(const struct sv_links *links, const struct sv_packet *pkt,
			 uint64_t there_ns);
uint64_t sv_links_arrival_ns(const struct sv_links *links, const struct sv_packet *pkt,
			     uint64_t there_ns);

#endif
