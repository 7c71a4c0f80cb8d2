/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live wire: packets between endpoints through rings, addresses, queue pair numbers.
 *
 * Nobody needs a thread to send: ibv_post_send writes the record into the receiver's ring and sets
 * a bit in its slot. Whoever looks next on the other side delivers: a polling application, or the
 * engine thread when no application polls (thread.c).
 */
#include "simverbs/live/wire.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A ring that its receiver does not empty for so long is a cable into nothing: packets are lost. */
#define STUCK_NS 50000000u
/* Records taken from one ring before the others get their turn. */
#define DRAIN_RECORDS 64
#define DRAIN_BYTES   (512u * 1024)
/* A poller that has to wait no longer than that keeps its processor. */
#define SOON_NS 50000u

/* --- sending -------------------------------------------------------------------------------- */

static struct sv_ring *ring_to(struct sv_wire *w, unsigned dst)
{
	int rc;

	if (w->out[dst])
		return w->out[dst];
	rc = sv_ring_open(w->fab, w->slot, dst, true, &w->out[dst]);
	if (!rc)
		return w->out[dst];
	if (!w->warned_full) {
		w->warned_full = true;
		fprintf(stderr,
			"simverbs: fabric %s: no ring to endpoint %u: %s; its packets are lost "
			"(is the file system of the fabric full? SIMVERBS_DIR moves it)\n",
			w->h->name, dst, strerror(-rc));
	}
	return NULL;
}

/* Sets our bit at the destination, and wakes its engine if nobody else will look soon. */
static void ring_doorbell(struct sv_wire *w, unsigned dst)
{
	struct sv_slot *slot = &w->h->slots[dst];
	unsigned engine;

	/* seq_cst: the engine says that it is not awake before its last look at `pending`. */
	atomic_fetch_or_explicit(&slot->pending[w->slot / 64], 1ull << (w->slot % 64),
				 memory_order_seq_cst);
	engine = atomic_load_explicit(&slot->engine, memory_order_seq_cst);
	if (engine == SV_ENGINE_AWAKE)
		return;
	/* Only a nap: should the poller not come back, the engine does, and soon. */
	if (engine == SV_ENGINE_NAPPING &&
	    sv_fabric_now_ns(w->h) - atomic_load_explicit(&slot->polled_ns, memory_order_relaxed) <
		w->grace_ns)
		return;
	sv_slot_wake(slot);
}

/* The ring is full: wait for room, or give the packet up if nobody empties it. */
static int ring_full(struct sv_wire *w, struct sv_ring *ring, const struct sv_packet *pkt)
{
	uint64_t now = sv_fabric_now_ns(w->h);
	uint64_t head = atomic_load_explicit(&ring->head->head, memory_order_relaxed);

	/* It may be full of what a process that is gone left behind in the receiver's slot: nobody
	 * told the one that has the slot now. */
	ring_doorbell(w, pkt->dst_qpn >> SV_QPN_BITS);
	if (!ring->stuck_since_ns || ring->stuck_head != head || sv_ring_due_ns(ring) > now) {
		ring->stuck_since_ns = now;
		ring->stuck_head = head;
		sv_count(w->me, SV_CNT_RING_FULL, 1);
	} else if (now - ring->stuck_since_ns > STUCK_NS) {
		sv_count(w->me, SV_CNT_DROP_NO_PEER, pkt->npkts);
		return 0;
	}
	atomic_store_explicit(&w->want_kick, true, memory_order_relaxed);
	/* The receiver tells us when there is room; unless it is dead. */
	sv_thread_arm(w->port, now + SV_KICK_RETRY_NS);
	return -EAGAIN;
}

/* Is there room for one MTU packet to a slot? False: it waits, as after -EAGAIN. */
static bool has_room(struct sv_wire *w, const struct sv_packet *pkt, int *result)
{
	struct sv_ring *ring = ring_to(w, pkt->dst_qpn >> SV_QPN_BITS);
	size_t bytes = sizeof(struct sv_record) + SV_INLINE_BYTES;

	if (!ring || sv_ring_has_room(ring, bytes) ||
	    (sv_ring_wait_for_room(ring) && sv_ring_has_room(ring, bytes)))
		return true;
	*result = ring_full(w, ring, pkt);
	return false;
}

/* Puts a packet on the ring to its destination. 0 (which includes lost), or -EAGAIN. */
static int push(struct sv_wire *w, const struct sv_packet *pkt, const struct sv_frag *frags,
		uint32_t nfrags)
{
	unsigned dst = pkt->dst_qpn >> SV_QPN_BITS;
	struct sv_ring *ring = ring_to(w, dst);
	struct sv_record *rec;
	enum sv_payload_mode mode;
	size_t behind;

	if (!ring) {
		sv_count(w->me, SV_CNT_DROP_NO_PEER, pkt->npkts);
		return 0;
	}
	mode = sv_payload_choose(w, ring, pkt, frags, nfrags, &behind);
	rec = sv_ring_reserve(ring, sizeof(*rec) + behind);
	if (!rec && sv_ring_wait_for_room(ring))
		rec = sv_ring_reserve(ring, sizeof(*rec) + behind);
	if (!rec)
		return ring_full(w, ring, pkt);
	rec->kind = SV_RECORD_PACKET;
	rec->mode = (uint16_t)mode;
	rec->src_generation = w->generation;
	rec->dst_generation =
	    atomic_load_explicit(&w->h->slots[dst].generation, memory_order_relaxed);
	rec->pkt = *pkt;
	if (!sv_payload_store(w, ring, rec, frags, nfrags)) {
		sv_ring_wait_for_room(ring);
		return ring_full(w, ring, pkt);
	}
	rec->due_ns = w->paced ? sv_port_pass(w->port, pkt) : 0;
	sv_ring_publish(ring);
	ring->stuck_since_ns = 0;
	sv_count(w->me, SV_CNT_TX_PACKETS, pkt->npkts);
	sv_count(w->me, SV_CNT_TX_BYTES, pkt->payload_len);
	ring_doorbell(w, dst);
	return 0;
}

static int push_held(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	return push(sv_port_wire(port), pkt, frags, nfrags);
}

static bool path_open(struct sv_port *port, const struct sv_packet *pkt)
{
	return sv_path_open(sv_port_wire(port), pkt->src_port, pkt->dst_port);
}

static void act(struct sv_port *port, const struct sv_fault_verdict *verdict)
{
	struct sv_wire *w = sv_port_wire(port);

	sv_state_act(w->fab, verdict);
}

static void lost_by_rule(struct sv_port *port, uint32_t packets)
{
	struct sv_wire *w = sv_port_wire(port);

	sv_count(w->me, SV_CNT_DROP_FAULT, packets);
}

const struct sv_hold_ops sv_live_hold_ops = {
    .push = push_held,
    .path_open = path_open,
    .act = act,
    .lost = lost_by_rule,
};

static int send_under_rules(struct sv_wire *w, const struct sv_packet *pkt,
			    const struct sv_frag *frags, uint32_t nfrags)
{
	int rc;

	/* First: a packet that has to wait must not be matched, and counted, a second time. */
	if (!has_room(w, pkt, &rc))
		return rc;
	rc = sv_hold_send(&w->hold, pkt->dst_qpn >> SV_QPN_BITS, pkt, frags, nfrags);
	if (w->hold.held)
		atomic_store_explicit(&w->want_kick, true, memory_order_relaxed);
	return rc;
}

static int live_send(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	struct sv_wire *w = sv_port_wire(port);
	unsigned dst = pkt->dst_qpn >> SV_QPN_BITS;
	struct sv_slot *slot;

	if (!sv_path_open(w, pkt->src_port, pkt->dst_port))
		return 0;
	if (pkt->dst_port != w->device &&
	    !sv_leg_carries(
		atomic_load_explicit(&w->h->ports[pkt->src_port].legs, memory_order_relaxed),
		pkt->sport)) {
		sv_count(w->me, SV_CNT_DROP_LEG, 1);
		return 0;
	}
	if (dst >= SV_MAX_SLOTS)
		goto nobody;
	slot = &w->h->slots[dst];
	if (atomic_load_explicit(&slot->state, memory_order_relaxed) != SV_SLOT_LIVE ||
	    atomic_load_explicit(&slot->device, memory_order_relaxed) !=
		sv_fab_device_of(w->h, pkt->dst_port))
		goto nobody;
	if (__builtin_expect(sv_fault_armed(&w->h->faults, SV_POINT_TX), 0))
		return send_under_rules(w, pkt, frags, nfrags);
	return push(w, pkt, frags, nfrags);

nobody:
	sv_count(w->me, SV_CNT_DROP_NO_PEER, pkt->npkts);
	return 0;
}

/* --- receiving ------------------------------------------------------------------------------ */

static void deliver(struct sv_wire *w, struct sv_ring *ring, const struct sv_record *rec)
{
	struct sv_packet pkt = rec->pkt;

	if (rec->kind != SV_RECORD_PACKET || rec->dst_generation != w->generation)
		return; /* meant for a process that had our slot before */
	/* What was in flight when the cable was cut is lost too. */
	if (!sv_path_open(w, pkt.src_port, pkt.dst_port))
		return;
	sv_count(w->me, SV_CNT_RX_PACKETS, pkt.npkts);
	sv_count(w->me, SV_CNT_RX_BYTES, pkt.payload_len);
	pkt.payload = sv_payload_pointer(ring, rec);
	/* The core only ever reads it back to us, in sv_payload_copy. */
	pkt.wire_ref = (void *)(uintptr_t)rec;
	if (w->paced)
		sv_port_as_of(w->port, rec->due_ns);
	if (__builtin_expect(sv_fault_armed(&w->h->faults, SV_POINT_RX), 0))
		sv_hold_receive(&w->hold, pkt.src_qpn >> SV_QPN_BITS, &pkt);
	else
		sv_port_receive(w->port, &pkt);
}

static struct sv_ring *ring_from(struct sv_wire *w, unsigned src)
{
	if (!w->in[src] && sv_ring_open(w->fab, src, w->slot, false, &w->in[src]))
		w->in[src] = NULL;
	return w->in[src];
}

/* Is the record still on its way? Then it is looked at again when it is there. */
static bool on_its_way(struct sv_wire *w, unsigned src, const struct sv_record *rec)
{
	if (!rec->due_ns || rec->due_ns <= sv_fabric_now_ns(w->h))
		return false;
	w->not_due[src / 64] |= 1ull << (src % 64);
	if (rec->due_ns < atomic_load_explicit(&w->due_ns, memory_order_relaxed)) {
		atomic_store_explicit(&w->due_ns, rec->due_ns, memory_order_relaxed);
		sv_thread_arm(w->port, rec->due_ns);
	}
	return true;
}

/* What was on its way and is there by now is to be taken. */
static void arrive(struct sv_wire *w)
{
	unsigned word;

	if (atomic_load_explicit(&w->due_ns, memory_order_relaxed) > sv_fabric_now_ns(w->h))
		return;
	atomic_store_explicit(&w->due_ns, UINT64_MAX, memory_order_relaxed);
	for (word = 0; word < SV_SLOT_WORDS; word++) {
		if (w->not_due[word])
			atomic_fetch_or_explicit(&w->me->pending[word], w->not_due[word],
						 memory_order_seq_cst);
		w->not_due[word] = 0;
	}
}

/* Delivers what came from one endpoint. True: more is left. */
static bool drain(struct sv_wire *w, unsigned src)
{
	const struct sv_record *rec;
	struct sv_ring *ring;
	uint64_t bytes = 0;
	int n = 0;

	/* A bit without a ring is news about room in ours. */
	ring = sv_ring_exists(w->fab, src, w->slot) ? ring_from(w, src) : NULL;
	if (!ring)
		return false;
	sv_payload_probe(w, ring);
	while (n++ < DRAIN_RECORDS && bytes < DRAIN_BYTES && (rec = sv_ring_peek(ring)) &&
	       !on_its_way(w, src, rec)) {
		bytes += rec->pkt.payload_len;
		deliver(w, ring, rec);
		sv_ring_consume(ring, rec);
	}
	if (sv_ring_take_wait(ring))
		ring_doorbell(w, src);
	rec = sv_ring_peek(ring);
	return rec && !(w->not_due[src / 64] >> (src % 64) & 1);
}

static void drain_all(struct sv_wire *w)
{
	unsigned word;

	for (word = 0; word < SV_SLOT_WORDS; word++) {
		uint64_t bits, again = 0;

		if (!atomic_load_explicit(&w->me->pending[word], memory_order_relaxed))
			continue;
		/* acquire: records published before their bit was set are seen. */
		bits = atomic_exchange_explicit(&w->me->pending[word], 0, memory_order_seq_cst);
		while (bits) {
			unsigned bit = (unsigned)__builtin_ctzll(bits);

			bits &= bits - 1;
			if (drain(w, word * 64 + bit))
				again |= 1ull << bit;
		}
		if (again)
			atomic_fetch_or_explicit(&w->me->pending[word], again,
						 memory_order_seq_cst);
	}
}

void sv_wire_progress(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);

	if (atomic_load_explicit(&w->me->control, memory_order_acquire) !=
	    atomic_load_explicit(&w->control_seen, memory_order_relaxed))
		sv_control_sync(w);
	if (w->paced)
		arrive(w);
	drain_all(w);
	sv_port_flush(port); /* the answers to what came last */
	if (w->paced) {
		sv_port_as_of(port, 0);
		sv_port_resume(port);
	}
	if (w->hold.held)
		sv_hold_run(&w->hold, sv_fabric_now_ns(w->h));
	if (sv_port_wants_kick(port))
		sv_port_kick(port);
	atomic_store_explicit(&w->want_kick, sv_port_wants_kick(port) || w->hold.held,
			      memory_order_relaxed);
}

/* When something on its way is there, or something that waits for its link may go. */
static uint64_t next_time_ns(const struct sv_wire *w)
{
	uint64_t due_ns = atomic_load_explicit(&w->due_ns, memory_order_relaxed);
	uint64_t resume_ns = sv_port_resume_ns(w->port);

	return due_ns < resume_ns ? due_ns : resume_ns;
}

static bool time_has_come(const struct sv_wire *w)
{
	uint64_t next_ns = next_time_ns(w);

	return next_ns != UINT64_MAX && sv_fabric_now_ns(w->h) >= next_ns;
}

static bool is_soon(const struct sv_wire *w)
{
	return w->paced && atomic_load_explicit(&w->due_ns, memory_order_relaxed) <
			       sv_fabric_now_ns(w->h) + SOON_NS;
}

bool sv_wire_has_work(const struct sv_wire *w)
{
	unsigned word;

	for (word = 0; word < SV_SLOT_WORDS; word++)
		if (atomic_load_explicit(&w->me->pending[word], memory_order_seq_cst))
			return true;
	return atomic_load_explicit(&w->me->control, memory_order_seq_cst) !=
		   atomic_load_explicit(&w->control_seen, memory_order_relaxed) ||
	       (w->paced && time_has_come(w));
}

static bool live_pending(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);
	uint32_t polls = atomic_load_explicit(&w->polls, memory_order_relaxed) + 1;

	/* Several pollers may lose each other's count; that it changes is all that matters. */
	atomic_store_explicit(&w->polls, polls, memory_order_relaxed);
	if (atomic_load_explicit(&w->me->engine, memory_order_relaxed) != SV_ENGINE_AWAKE)
		atomic_store_explicit(&w->me->polled_ns, sv_fabric_now_ns(w->h),
				      memory_order_relaxed);
	if (sv_wire_has_work(w) || atomic_load_explicit(&w->want_kick, memory_order_relaxed))
		return true;
	/*
	 * With few processors the one that we wait for may be waiting for ours. Every so many
	 * fruitless polls it gets a chance; unless what comes next is on its way already.
	 */
	if (w->yields && polls % SV_YIELD_POLLS == 0 && !is_soon(w))
		sched_yield();
	return false;
}

void sv_wire_close_rings(struct sv_wire *w)
{
	unsigned i;

	for (i = 0; i < SV_MAX_SLOTS; i++) {
		sv_ring_close(w->in[i]);
		sv_ring_close(w->out[i]);
		w->in[i] = w->out[i] = NULL;
	}
}

/* --- hints from the core --------------------------------------------------------------------- */

/* Makes both rings, and tells the peer whether we can read its memory, before the first packet. */
static void live_peer(struct sv_port *port, uint32_t dst_port, uint32_t dst_qpn)
{
	struct sv_wire *w = sv_port_wire(port);
	unsigned slot = dst_qpn >> SV_QPN_BITS;

	if (slot == 0 || slot >= SV_MAX_SLOTS ||
	    atomic_load(&w->h->slots[slot].state) != SV_SLOT_LIVE ||
	    atomic_load(&w->h->slots[slot].device) != sv_fab_device_of(w->h, dst_port))
		return;
	if (ring_to(w, slot) && ring_from(w, slot))
		sv_payload_probe(w, w->in[slot]);
}

static void live_revoke(struct sv_port *port, uint32_t qpn)
{
	struct sv_wire *w = sv_port_wire(port);

	/* Whoever sees memory as it is after this sees the new value too. */
	atomic_fetch_add_explicit(&w->me->revoked[qpn % SV_REVOKE_SLOTS], 1, memory_order_seq_cst);
}

static void live_may_block(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);

	/* Senders wake the engine at once; and if one saw our last poll just now, so do we. */
	atomic_store_explicit(&w->me->polled_ns, 0, memory_order_seq_cst);
	if (sv_wire_has_work(w) || (w->paced && next_time_ns(w) != UINT64_MAX))
		sv_slot_wake(w->me);
}

/* --- addresses and numbers ------------------------------------------------------------------ */

static bool routed(const struct sv_wire *w, unsigned peer_port)
{
	const struct sv_fabric_header *h = w->h;
	unsigned peer = sv_fab_device_of(h, peer_port);

	return !sv_islands_part(&h->islands, w->device / h->rails, w->device % h->rails,
				peer / h->rails, peer % h->rails);
}

static int live_resolve(struct sv_port *port, const struct ibv_ah_attr *attr, uint16_t *dst_port)
{
	struct sv_wire *w = sv_port_wire(port);
	const struct sv_phys_config *from = &sv_port_cfg(port)->phys[attr->port_num - 1];
	bool ethernet = w->h->link_layer == SV_LINK_ETHERNET, unreachable = false;
	unsigned i;

	if (ethernet && !attr->is_global)
		return EINVAL;
	for (i = 0; i < sv_fabric_devices(w->h) * w->h->num_phys; i++) {
		if (!sv_phys_takes(&w->h->ports[i].cfg, from, attr, ethernet))
			continue;
		if (routed(w, i)) {
			*dst_port = (uint16_t)i;
			return 0;
		}
		unreachable = true;
	}
	*dst_port = SV_NOWHERE;
	if (!ethernet)
		return 0;
	/* What address resolution ends in on a real network; a route that is missing is known. */
	return unreachable ? ENETUNREACH : ETIMEDOUT;
}

static int live_qpn_alloc(struct sv_port *port, uint32_t *qpn)
{
	struct sv_wire *w = sv_port_wire(port);
	uint32_t index;

	if (w->nqpn >= SV_QPN_INDEX_MAX)
		return ENOMEM;
	do
		index = atomic_fetch_add(&w->me->next_qpn, 1) % SV_QPN_INDEX_MAX;
	while (w->qpn_used[index / 64] >> (index % 64) & 1);
	w->qpn_used[index / 64] |= 1ull << (index % 64);
	w->nqpn++;
	*qpn = (uint32_t)w->slot << SV_QPN_BITS | index;
	return 0;
}

static void live_qpn_free(struct sv_port *port, uint32_t qpn)
{
	struct sv_wire *w = sv_port_wire(port);
	uint32_t index = qpn % SV_QPN_INDEX_MAX;

	w->qpn_used[index / 64] &= ~(1ull << (index % 64));
	w->nqpn--;
}

/* For "simverbs status": what a leak looks like from outside. */
static void live_objects(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);
	struct sv_port_stats stats;

	sv_port_get_stats(port, &stats);
	atomic_store_explicit(&w->me->qps, (unsigned int)stats.qps, memory_order_relaxed);
	atomic_store_explicit(&w->me->cqs, (unsigned int)stats.cqs, memory_order_relaxed);
	atomic_store_explicit(&w->me->mrs, (unsigned int)stats.mrs, memory_order_relaxed);
}

static uint64_t live_now_ns(struct sv_port *port)
{
	struct sv_wire *w = sv_port_wire(port);

	return sv_fabric_now_ns(w->h);
}

const struct sv_wire_ops sv_live_wire_ops = {
    .send = live_send,
    .copy_payload = sv_payload_copy,
    .now_ns = live_now_ns,
    .arm_timer = sv_thread_arm,
    .resolve = live_resolve,
    .qpn_alloc = live_qpn_alloc,
    .qpn_free = live_qpn_free,
    .pending = live_pending,
    .progress = sv_wire_progress,
    .peer = live_peer,
    .revoke = live_revoke,
    .may_block = live_may_block,
    .objects = live_objects,
    .died = sv_control_died,
};
