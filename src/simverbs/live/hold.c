/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets under fault rules: lost, delayed, duplicated, reordered, slowed.
 *
 * Rules are matched where a packet leaves (in send) and where it arrives (before the core sees
 * it). A packet that is kept back takes a copy of its payload along, because the memory it refers
 * to belongs to the application again as soon as another copy of the packet was acknowledged.
 */
#include "simverbs/live/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

/* A packet on its way, in either direction, and where its payload is. */
struct passing {
	enum sv_fault_dir dir;
	const struct sv_packet *pkt;
	const struct sv_frag *frags; /* when leaving */
	uint32_t nfrags;
	uint32_t peer;
};

static struct sv_held *held_new(struct sv_wire *w, const struct passing *p)
{
	struct sv_held *held;

	if (w->nheld >= SV_MAX_HELD)
		return NULL; /* a switch's buffer is finite too: lost */
	held = malloc(sizeof(*held) + p->pkt->payload_len);
	if (!held)
		return NULL;
	held->pkt = *p->pkt;
	if (p->dir == SV_DIR_TX) {
		sv_payload_gather(held->payload, p->frags, p->nfrags);
	} else if (p->pkt->payload) {
		memcpy(held->payload, p->pkt->payload, p->pkt->payload_len);
	} else if (p->pkt->payload_len &&
		   sv_payload_copy(w->port, p->pkt, 0, held->payload, p->pkt->payload_len)) {
		free(held);
		return NULL;
	}
	held->dir = p->dir;
	held->peer = p->peer;
	held->overtake = 0;
	held->next = NULL;
	return held;
}

static void held_append(struct sv_wire *w, struct sv_held *held)
{
	if (!w->held)
		w->held_tail = &w->held;
	*w->held_tail = held;
	w->held_tail = &held->next;
	w->nheld++;
}

/* When a packet gets through a link whose rate is divided by slow_milli / 1000. */
static uint64_t slowed_until(struct sv_wire *w, const struct passing *p, uint32_t slow_milli,
			     uint64_t now_ns)
{
	uint64_t *free_at = &w->slow_until_ns[p->dir];
	uint64_t bits = ((uint64_t)p->pkt->payload_len + 64) * 8; /* and headers */
	uint64_t at_full_rate_ns = bits / w->h->rate_gbps;

	if (*free_at < now_ns)
		*free_at = now_ns;
	*free_at += at_full_rate_ns * slow_milli / 1000;
	return *free_at;
}

/* When the last of those that go the same way goes on, if that is later. */
static uint64_t not_before_others(const struct sv_wire *w, const struct passing *p, uint64_t due_ns)
{
	for (const struct sv_held *held = w->held; held; held = held->next)
		if (held->dir == p->dir && held->peer == p->peer && held->due_ns > due_ns)
			due_ns = held->due_ns;
	return due_ns;
}

static bool keep_back(struct sv_wire *w, const struct passing *p, const struct sv_fault_verdict *v)
{
	uint64_t now_ns = sv_fabric_now_ns(w->h);
	struct sv_held *held = held_new(w, p);

	if (!held)
		return false;
	held->due_ns = now_ns + v->delay_ns;
	if (v->kinds & BIT(SV_FAULT_SLOW))
		held->due_ns = slowed_until(w, p, v->slow_milli, now_ns) + v->delay_ns;
	if (v->in_order)
		held->due_ns = not_before_others(w, p, held->due_ns);
	/* The same moment for all: they go on in the order in which they came. */
	if (held->due_ns < v->hold_until_ns)
		held->due_ns = v->hold_until_ns;
	if (v->kinds & BIT(SV_FAULT_REORDER)) {
		held->overtake = v->overtake ? v->overtake : 1;
		held->due_ns += OVERTAKE_LIMIT_NS;
	}
	held_append(w, held);
	sv_thread_arm(w->port, held->due_ns);
	return true;
}

/* One more packet of this pair went by those that wait to be overtaken. */
static void overtaken(struct sv_wire *w, const struct passing *p)
{
	struct sv_held *held;

	for (held = w->held; held; held = held->next)
		if (held->overtake && held->dir == p->dir && held->peer == p->peer &&
		    --held->overtake == 0)
			held->due_ns = 0;
}

/* What the rules leave of a packet. */
enum fate { GOES_ON, IS_HELD, IS_LOST };

static enum fate judge(struct sv_wire *w, const struct passing *p, struct sv_fault_verdict *v)
{
	memset(v, 0, sizeof(*v));
	if (!sv_port_match_faults(w->port, p->dir, p->pkt, v))
		return GOES_ON;
	if (v->kinds & FABRIC_ACTIONS)
		sv_state_act(w->fab, v);
	if (v->kinds & BIT(SV_FAULT_KILL)) {
		sv_port_begin_death(w->port, (enum sv_kill_variant)v->kill, p->pkt);
		return IS_LOST;
	}
	if (v->kinds & PACKET_LOST)
		goto lost;
	/* The rule may just have pulled the cable that this packet is on. */
	if ((v->kinds & FABRIC_ACTIONS) && !sv_path_open(w, p->pkt->src_port, p->pkt->dst_port))
		return IS_LOST;
	if (!(v->kinds & PACKET_LATE))
		return GOES_ON;
	if (keep_back(w, p, v))
		return IS_HELD;
lost:
	sv_count(w->me, SV_CNT_DROP_FAULT, p->pkt->npkts);
	return IS_LOST;
}

/* Further copies of a packet that just went on, or was kept back, follow it. */
static void duplicate(struct sv_wire *w, const struct passing *p, const struct sv_fault_verdict *v)
{
	uint32_t i;

	if (!(v->kinds & BIT(SV_FAULT_DUP)))
		return;
	for (i = 0; i < v->copies; i++) {
		struct sv_held *held = held_new(w, p);

		if (!held)
			return;
		held->due_ns = sv_fabric_now_ns(w->h) + v->delay_ns;
		held_append(w, held);
		sv_thread_arm(w->port, held->due_ns);
	}
}

int sv_hold_send(struct sv_wire *w, const struct sv_packet *pkt, const struct sv_frag *frags,
		 uint32_t nfrags)
{
	const struct passing p = {SV_DIR_TX, pkt, frags, nfrags, pkt->dst_qpn >> SV_QPN_BITS};
	struct sv_fault_verdict v;
	int rc = 0;

	/* First: a packet that has to wait must not be matched, and counted, a second time. */
	if (!sv_wire_room(w, pkt, &rc))
		return rc;
	switch (judge(w, &p, &v)) {
	case GOES_ON:
		rc = sv_wire_push(w, pkt, frags, nfrags);
		overtaken(w, &p);
		duplicate(w, &p, &v);
		break;
	case IS_HELD:
		duplicate(w, &p, &v);
		break;
	case IS_LOST:
		break;
	}
	if (w->held)
		atomic_store_explicit(&w->want_kick, true, memory_order_relaxed);
	return rc;
}

void sv_hold_receive(struct sv_wire *w, const struct sv_packet *pkt)
{
	const struct passing p = {SV_DIR_RX, pkt, NULL, 0, pkt->src_qpn >> SV_QPN_BITS};
	struct sv_fault_verdict v;

	switch (judge(w, &p, &v)) {
	case GOES_ON:
		sv_port_receive(w->port, pkt);
		overtaken(w, &p);
		duplicate(w, &p, &v);
		break;
	case IS_HELD:
		duplicate(w, &p, &v);
		break;
	case IS_LOST:
		break;
	}
}

/* False: no room on the wire, try again. */
static bool pass_on(struct sv_wire *w, struct sv_held *held)
{
	struct sv_frag frag = {.addr = (uintptr_t)held->payload, .length = held->pkt.payload_len};

	if (!sv_path_open(w, held->pkt.src_port, held->pkt.dst_port))
		return true;
	if (held->dir == SV_DIR_RX) {
		held->pkt.payload = held->payload;
		sv_port_receive(w->port, &held->pkt);
		return true;
	}
	/* Our copy is freed at once: the wire must take the bytes now. */
	held->pkt.flags |= SV_PKT_VOLATILE;
	return sv_wire_push(w, &held->pkt, &frag, held->pkt.payload_len ? 1 : 0) != -EAGAIN;
}

uint64_t sv_hold_run(struct sv_wire *w, uint64_t now_ns)
{
	struct sv_held *held = w->held, *next;
	uint64_t earliest = UINT64_MAX;

	/* Passing on may keep back further packets: those go on a fresh list. */
	w->held = NULL;
	w->nheld = 0;
	for (; held; held = next) {
		next = held->next;
		if (held->due_ns <= now_ns && pass_on(w, held)) {
			free(held);
			continue;
		}
		if (held->due_ns <= now_ns)
			held->due_ns = now_ns + RETRY_NS;
		held->next = NULL;
		held_append(w, held);
	}
	for (held = w->held; held; held = held->next)
		if (held->due_ns < earliest)
			earliest = held->due_ns;
	return earliest;
}

void sv_hold_drop_all(struct sv_wire *w)
{
	struct sv_held *held;

	while ((held = w->held)) {
		w->held = held->next;
		free(held);
	}
	w->nheld = 0;
}
