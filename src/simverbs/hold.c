/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets under fault rules: lost, delayed, duplicated, reordered, slowed.
 *
 * Rules are matched where a packet leaves (in send) and where it arrives (before the core sees
 * it). A packet that is kept back takes a copy of its payload along, because the memory it refers
 * to belongs to the application again as soon as another copy of the packet was acknowledged.
 */
#include "hold.h"

#include "core.h"
#include "dma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_HELD 4096
/* A packet waiting to be overtaken goes on after this when nothing overtakes it. */
#define OVERTAKE_LIMIT_NS 5000000u
#define RETRY_NS	  100000u
#define BIT(kind)	  (1u << (kind))

#define PACKET_LOST (BIT(SV_FAULT_DROP) | BIT(SV_FAULT_CORRUPT))
#define PACKET_LATE                                                                                \
	(BIT(SV_FAULT_DELAY) | BIT(SV_FAULT_SLOW) | BIT(SV_FAULT_REORDER) | BIT(SV_FAULT_HOLD))
#define FABRIC_ACTIONS                                                                             \
	(BIT(SV_FAULT_LEG_DOWN) | BIT(SV_FAULT_LEG_REMAP) | BIT(SV_FAULT_LEG_UP) |                 \
	 BIT(SV_FAULT_LINK_DOWN) | BIT(SV_FAULT_LINK_OFF) | BIT(SV_FAULT_LINK_UP) |                \
	 BIT(SV_FAULT_CUT) | BIT(SV_FAULT_HEAL) | BIT(SV_FAULT_REVIVE) |                           \
	 BIT(SV_FAULT_DISASSOCIATE) | BIT(SV_FAULT_FEIGN))

/* A packet that a fault rule keeps back, on its way out or on its way in, with its own copy of the
 * payload: a late packet carries the bytes that were there when it was sent. */
struct sv_held {
	struct sv_held *next;
	uint64_t due_ns;
	uint32_t
	    overtake; /* released when this many packets of the same lane went by; 0: by time */
	uint32_t lane;
	enum sv_fault_dir dir;
	struct sv_packet pkt;
	uint8_t payload[];
};

/* A packet on its way, in either direction, and where its payload is. */
struct passing {
	enum sv_fault_dir dir;
	const struct sv_packet *pkt;
	const struct sv_frag *frags; /* when leaving */
	uint32_t nfrags;
	uint32_t lane;
};

void sv_hold_init(struct sv_hold *hold, struct sv_port *port, const struct sv_hold_ops *ops)
{
	*hold = (struct sv_hold){.port = port, .ops = ops};
}

static void gather(uint8_t *dst, const struct sv_frag *frags, uint32_t nfrags)
{
	for (uint32_t i = 0; i < nfrags; dst += frags[i++].length)
		sv_dma_copy(dst, (const void *)(uintptr_t)frags[i].addr, frags[i].length);
}

static struct sv_held *held_new(struct sv_hold *hold, const struct passing *p)
{
	struct sv_held *held;

	if (hold->num >= MAX_HELD)
		return NULL; /* a switch's buffer is finite too: lost */
	held = malloc(sizeof(*held) + p->pkt->payload_len);
	if (!held)
		return NULL;
	held->pkt = *p->pkt;
	if (p->dir == SV_DIR_TX) {
		gather(held->payload, p->frags, p->nfrags);
	} else if (p->pkt->payload) {
		memcpy(held->payload, p->pkt->payload, p->pkt->payload_len);
	} else if (p->pkt->payload_len &&
		   hold->port->ops->copy_payload(hold->port, p->pkt, 0, held->payload,
						 p->pkt->payload_len)) {
		free(held);
		return NULL;
	}
	held->dir = p->dir;
	held->lane = p->lane;
	held->overtake = 0;
	held->next = NULL;
	return held;
}

static void held_append(struct sv_hold *hold, struct sv_held *held)
{
	if (!hold->held)
		hold->tail = &hold->held;
	*hold->tail = held;
	hold->tail = &held->next;
	hold->num++;
}

/* When a packet gets through a link whose rate is divided by slow_milli / 1000. */
static uint64_t slowed_until(struct sv_hold *hold, const struct passing *p, uint32_t slow_milli,
			     uint64_t now_ns)
{
	uint64_t *free_at = &hold->slow_until_ns[p->dir];
	uint64_t bits = ((uint64_t)p->pkt->payload_len + 64) * 8; /* and headers */
	uint64_t at_full_rate_ns = bits * 1000 / hold->port->cfg.rate_mbps;

	if (*free_at < now_ns)
		*free_at = now_ns;
	*free_at += at_full_rate_ns * slow_milli / 1000;
	return *free_at;
}

/* When the last of those that go the same way goes on, if that is later. */
static uint64_t not_before_others(const struct sv_hold *hold, const struct passing *p,
				  uint64_t due_ns)
{
	for (const struct sv_held *held = hold->held; held; held = held->next)
		if (held->dir == p->dir && held->lane == p->lane && held->due_ns > due_ns)
			due_ns = held->due_ns;
	return due_ns;
}

static bool keep_back(struct sv_hold *hold, const struct passing *p,
		      const struct sv_fault_verdict *v)
{
	uint64_t now_ns = sv_now(hold->port);
	struct sv_held *held = held_new(hold, p);

	if (!held)
		return false;
	held->due_ns = now_ns + v->delay_ns;
	if (v->kinds & BIT(SV_FAULT_SLOW))
		held->due_ns = slowed_until(hold, p, v->slow_milli, now_ns) + v->delay_ns;
	if (v->in_order)
		held->due_ns = not_before_others(hold, p, held->due_ns);
	/* The same moment for all: they go on in the order in which they came. */
	if (held->due_ns < v->hold_until_ns)
		held->due_ns = v->hold_until_ns;
	if (v->kinds & BIT(SV_FAULT_REORDER)) {
		held->overtake = v->overtake ? v->overtake : 1;
		held->due_ns += OVERTAKE_LIMIT_NS;
	}
	held_append(hold, held);
	hold->port->ops->arm_timer(hold->port, held->due_ns);
	return true;
}

/* One more packet of this pair went by those that wait to be overtaken. */
static void overtaken(struct sv_hold *hold, const struct passing *p)
{
	struct sv_held *held;

	for (held = hold->held; held; held = held->next)
		if (held->overtake && held->dir == p->dir && held->lane == p->lane &&
		    --held->overtake == 0)
			held->due_ns = 0;
}

/* What the rules leave of a packet. */
enum fate { GOES_ON, IS_HELD, IS_LOST };

static enum fate judge(struct sv_hold *hold, const struct passing *p, struct sv_fault_verdict *v)
{
	memset(v, 0, sizeof(*v));
	if (!sv_port_match_faults(hold->port, p->dir, p->pkt, v))
		return GOES_ON;
	if (v->kinds & FABRIC_ACTIONS)
		hold->ops->act(hold->port, v);
	if (v->kinds & BIT(SV_FAULT_KILL)) {
		sv_port_begin_death(hold->port, (enum sv_kill_variant)v->kill, p->pkt);
		return IS_LOST;
	}
	if (v->kinds & PACKET_LOST)
		goto lost;
	/* The rule may just have pulled the cable that this packet is on. */
	if ((v->kinds & FABRIC_ACTIONS) && !hold->ops->path_open(hold->port, p->pkt))
		return IS_LOST;
	if (!(v->kinds & PACKET_LATE))
		return GOES_ON;
	if (keep_back(hold, p, v))
		return IS_HELD;
lost:
	hold->ops->lost(hold->port, p->pkt->npkts);
	return IS_LOST;
}

/* Further copies of a packet that just went on, or was kept back, follow it. */
static void duplicate(struct sv_hold *hold, const struct passing *p,
		      const struct sv_fault_verdict *v)
{
	uint32_t i;

	if (!(v->kinds & BIT(SV_FAULT_DUP)))
		return;
	for (i = 0; i < v->copies; i++) {
		struct sv_held *held = held_new(hold, p);

		if (!held)
			return;
		held->due_ns = sv_now(hold->port) + v->delay_ns;
		held_append(hold, held);
		hold->port->ops->arm_timer(hold->port, held->due_ns);
	}
}

/* When it has gone on, what it had to overtake comes; its copies come later in any case. */
static void follow(struct sv_hold *hold, const struct passing *p, const struct sv_fault_verdict *v,
		   enum fate fate)
{
	if (fate == GOES_ON)
		overtaken(hold, p);
	if (fate != IS_LOST)
		duplicate(hold, p, v);
}

int sv_hold_send(struct sv_hold *hold, uint32_t lane, const struct sv_packet *pkt,
		 const struct sv_frag *frags, uint32_t nfrags)
{
	const struct passing p = {SV_DIR_TX, pkt, frags, nfrags, lane};
	struct sv_fault_verdict v;
	enum fate fate;
	int rc = 0;

	fate = judge(hold, &p, &v);
	if (fate == GOES_ON)
		rc = hold->ops->push(hold->port, pkt, frags, nfrags);
	follow(hold, &p, &v, fate);
	return rc;
}

void sv_hold_receive(struct sv_hold *hold, uint32_t lane, const struct sv_packet *pkt)
{
	const struct passing p = {SV_DIR_RX, pkt, NULL, 0, lane};
	struct sv_fault_verdict v;
	enum fate fate;

	fate = judge(hold, &p, &v);
	if (fate == GOES_ON)
		sv_port_receive(hold->port, pkt);
	follow(hold, &p, &v, fate);
}

/* False: no room on the wire, try again. */
static bool pass_on(struct sv_hold *hold, struct sv_held *held)
{
	struct sv_frag frag = {.addr = (uintptr_t)held->payload, .length = held->pkt.payload_len};

	if (!hold->ops->path_open(hold->port, &held->pkt))
		return true;
	if (held->dir == SV_DIR_RX) {
		held->pkt.payload = held->payload;
		sv_port_receive(hold->port, &held->pkt);
		return true;
	}
	/* Our copy is freed at once: the wire must take the bytes now. */
	held->pkt.flags |= SV_PKT_VOLATILE;
	return hold->ops->push(hold->port, &held->pkt, &frag, held->pkt.payload_len ? 1 : 0) !=
	       -EAGAIN;
}

uint64_t sv_hold_run(struct sv_hold *hold, uint64_t now_ns)
{
	struct sv_held *held = hold->held, *next;
	uint64_t earliest = UINT64_MAX;

	/* Passing on may keep back further packets: those go on a fresh list. */
	hold->held = NULL;
	hold->num = 0;
	for (; held; held = next) {
		next = held->next;
		if (held->due_ns <= now_ns && pass_on(hold, held)) {
			free(held);
			continue;
		}
		if (held->due_ns <= now_ns)
			held->due_ns = now_ns + RETRY_NS;
		held->next = NULL;
		held_append(hold, held);
	}
	for (held = hold->held; held; held = held->next)
		if (held->due_ns < earliest)
			earliest = held->due_ns;
	return earliest;
}

void sv_hold_drop_all(struct sv_hold *hold)
{
	struct sv_held *held;

	while ((held = hold->held)) {
		hold->held = held->next;
		free(held);
	}
	hold->num = 0;
}
