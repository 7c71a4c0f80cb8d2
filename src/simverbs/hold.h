/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets under fault rules, for wires in real time: lost, delayed, duplicated, reordered, slowed.
 * Belongs to one port; everything is called with its lock held.
 */
#ifndef SV_HOLD_H
#define SV_HOLD_H

#include "simverbs/fault.h"

/* What a wire does for it. */
struct sv_hold_ops {
	/* Sends a packet: 0 (which includes lost), or -EAGAIN. */
	int (*push)(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		    uint32_t nfrags);
	/* Is there a way for it now? If not, counts why. */
	bool (*path_open)(struct sv_port *port, const struct sv_packet *pkt);
	/* Carries out the fabric actions of a rule that fired. */
	void (*act)(struct sv_port *port, const struct sv_fault_verdict *verdict);
	/* A rule lost so many. */
	void (*lost)(struct sv_port *port, uint32_t packets);
};

struct sv_held;

struct sv_hold {
	struct sv_port *port;
	const struct sv_hold_ops *ops;
	struct sv_held *held, **tail;
	unsigned num;
	uint64_t slow_until_ns[2]; /* per direction: when the slowed link is free again */
};

void sv_hold_init(struct sv_hold *hold, struct sv_port *port, const struct sv_hold_ops *ops);

/* Sends a packet under the fault rules: may lose it, keep it back or send it twice. There must be
 * room for it on the wire. `lane` tells the ways apart on which packets keep their order. */
int sv_hold_send(struct sv_hold *hold, uint32_t lane, const struct sv_packet *pkt,
		 const struct sv_frag *frags, uint32_t nfrags);
/* Receives a packet under the fault rules. */
void sv_hold_receive(struct sv_hold *hold, uint32_t lane, const struct sv_packet *pkt);
/* Passes on what is due. Returns the time of the next, UINT64_MAX for none. */
uint64_t sv_hold_run(struct sv_hold *hold, uint64_t now_ns);
void sv_hold_drop_all(struct sv_hold *hold);

#endif
