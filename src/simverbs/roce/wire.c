/* SPDX-License-Identifier: Apache-2.0 */
/* The RoCE wire: the core's packets as datagrams, addresses, queue pair numbers. */
#include "simverbs/roce/wire.h"

#include "simverbs/dma.h"

#include <endian.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define YIELD_POLLS 64u
/* Of catching up: what a large socket buffer holds, and an end where there is a flood. */
#define MAX_ROUNDS 512u
/* Of an acknowledgement: any number of messages may be under way. */
#define CREDITS_UNLIMITED 0x1fu

uint64_t sv_roce_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

/* ---------------------------------------------------------------- port indices */

/* Ours is the device's rail. The peers of a device are hosts from 1 on, on its rail. */
static const struct sv_roce_peer *peer_of(const struct sv_roce_wire *w, uint16_t port_index)
{
	const struct sv_port_config *cfg = sv_port_cfg(w->port);
	uint32_t n = port_index / cfg->rails;

	return n == 0 || n > w->peers.num ? NULL : w->peers.all[n - 1];
}

static uint16_t index_of_peer(const struct sv_roce_wire *w, int peer)
{
	const struct sv_port_config *cfg = sv_port_cfg(w->port);

	return peer < 0 ? SV_NOWHERE : (uint16_t)(((uint32_t)peer + 1) * cfg->rails + cfg->rail);
}

/* ---------------------------------------------------------------- sending */

void sv_roce_flush(struct sv_roce_wire *w)
{
	bool room = true;

	if (w->num_out) {
		sv_roce_count(w, SV_ROCE_tx_batches);
		room = w->io->flush(w);
	}
	if (room) {
		w->first_out = w->num_out = 0;
	} else if (!atomic_load_explicit(&w->blocked, memory_order_relaxed)) {
		sv_roce_count(w, SV_ROCE_tx_no_room);
		sv_roce_thread_wake(w); /* it waits for room */
	}
	atomic_store_explicit(&w->blocked, !room, memory_order_relaxed);
	/* Who waited for this room has it now, and gets it from who looks next. */
	atomic_store_explicit(&w->unsent, !room || sv_port_wants_kick(w->port),
			      memory_order_relaxed);
}

static uint32_t put_payload(uint8_t *at, const struct sv_packet *pkt, const struct sv_frag *frags,
			    uint32_t nfrags)
{
	uint32_t pad = sv_roce_pad(pkt->payload_len);
	uint8_t *begin = at;

	for (uint32_t i = 0; i < nfrags; i++) {
		sv_dma_copy(at, (const void *)(uintptr_t)frags[i].addr, frags[i].length);
		at += frags[i].length;
	}
	memset(at, 0, pad);
	return (uint32_t)(at - begin) + pad;
}

void sv_roce_seal(struct sv_roce_out *out)
{
	const struct sv_roce_flow flow = {
	    .src = out->peer->local, .dst = out->peer->remote, .sport = out->sport};
	uint32_t length = out->length - SV_ICRC_BYTES;
	uint32_t icrc = htole32(sv_icrc(&flow, out->bytes, length));

	memcpy(out->bytes + length, &icrc, sizeof(icrc));
}

static void write_datagram(struct sv_roce_out *out, const struct sv_packet *pkt,
			   const struct sv_frag *frags, uint32_t nfrags)
{
	struct sv_packet said = *pkt;
	uint32_t length;

	said.flags |= SV_PKT_MIGRATED;
	if ((said.syndrome & SV_AETH_KIND_MASK) == SV_AETH_ACK)
		said.syndrome |= CREDITS_UNLIMITED;
	length = sv_roce_encode(&said, out->bytes);
	length += put_payload(out->bytes + length, pkt, frags, nfrags);
	out->length = length + SV_ICRC_BYTES;
	sv_roce_seal(out);
}

/* There is room: roce_send() has seen to that. */
static int push(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		uint32_t nfrags)
{
	struct sv_roce_wire *w = sv_port_wire(port);
	const struct sv_roce_peer *peer = peer_of(w, pkt->dst_port);
	struct sv_roce_out *out;

	if (!peer) /* an address that nobody has asked for */
		return 0;
	if (w->num_out == SV_ROCE_BATCH)
		sv_roce_flush(w);
	if (w->num_out == SV_ROCE_BATCH)
		return -EAGAIN;
	out = &w->out[w->num_out++];
	atomic_store_explicit(&w->unsent, true, memory_order_relaxed);
	out->peer = peer;
	out->sport = w->io->own_sports ? pkt->sport : SV_ROCE_PORT;
	out->traffic_class = pkt->traffic_class;
	out->hop_limit = pkt->hop_limit ? pkt->hop_limit : SV_ROCE_HOP_LIMIT;
	write_datagram(out, pkt, frags, nfrags);
	return 0;
}

static bool path_open(struct sv_port *port, const struct sv_packet *pkt)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	(void)pkt;
	if (sv_roce_link_open(w))
		return true;
	sv_roce_count(w, SV_ROCE_lost_link);
	return false;
}

static void lost_by_rule(struct sv_port *port, uint32_t packets)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	w->counters[SV_ROCE_lost_fault] += packets;
}

const struct sv_hold_ops sv_roce_hold_ops = {
    .push = push,
    .path_open = path_open,
    .act = sv_roce_link_act,
    .lost = lost_by_rule,
};

static int roce_send(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	if (!path_open(port, pkt))
		return 0;
	if (__builtin_expect(!sv_fault_armed(w->faults, SV_POINT_TX), 1))
		return push(port, pkt, frags, nfrags);
	/* First: a packet that has to wait must not be matched, and counted, a second time. */
	if (w->num_out == SV_ROCE_BATCH)
		sv_roce_flush(w);
	if (w->num_out == SV_ROCE_BATCH)
		return -EAGAIN;
	return sv_hold_send(&w->hold, pkt->dst_port, pkt, frags, nfrags);
}

/* The application has posted, or a queue pair stops and has said its last. */
static void send_collected(struct sv_port *port)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	if (w->num_out)
		sv_roce_flush(w);
}

static void stops(struct sv_port *port, uint32_t qpn)
{
	(void)qpn;
	send_collected(port);
}

/* ---------------------------------------------------------------- receiving */

/* Is the check sum right, as far as can be known? */
static bool icrc_ok(const struct sv_roce_in *in)
{
	size_t length = in->length - SV_ICRC_BYTES;
	uint32_t came, ours = sv_icrc(&in->flow, in->bytes, length);

	memcpy(&came, in->bytes + length, sizeof(came));
	came = le32toh(came);
	return came == ours || (!in->id_known && sv_roce_is_v4(&in->flow.dst) &&
				sv_icrc_fits_some_id(came, ours, length));
}

static bool is_good(struct sv_roce_wire *w, const struct sv_roce_in *in, struct sv_packet *pkt)
{
	enum sv_roce_verdict verdict = sv_roce_decode(in->bytes, in->length, pkt);

	sv_roce_count(w, SV_ROCE_rx_datagrams);
	if (verdict == SV_ROCE_BAD)
		sv_roce_count(w, SV_ROCE_rx_malformed);
	else if (!icrc_ok(in))
		sv_roce_count(w, SV_ROCE_rx_bad_icrc);
	else if (verdict == SV_ROCE_UNKNOWN)
		sv_roce_count(w, SV_ROCE_rx_unknown_opcode);
	else if (verdict == SV_ROCE_CNP)
		sv_roce_count(w, SV_ROCE_rx_cnp);
	else
		return true;
	return false;
}

void sv_roce_receive(struct sv_roce_wire *w, const struct sv_roce_in *in)
{
	struct sv_packet pkt;

	if (!is_good(w, in, &pkt) || !path_open(w->port, &pkt))
		return;
	pkt.src_port =
	    index_of_peer(w, sv_roce_peers_find(&w->peers, &in->flow.dst, &in->flow.src));
	pkt.dst_port = (uint16_t)sv_port_cfg(w->port)->index;
	pkt.sport = in->flow.sport;
	if (pkt.op == SV_OP_UD) {
		pkt.flags |= SV_PKT_GRH;
		pkt.ud.sgid = in->flow.src;
		pkt.ud.dgid = in->flow.dst;
	}
	if (__builtin_expect(sv_fault_armed(w->faults, SV_POINT_RX), 0))
		sv_hold_receive(&w->hold, pkt.src_port, &pkt);
	else
		sv_port_receive(w->port, &pkt);
}

bool sv_roce_sent(struct sv_roce_wire *w, int sent)
{
	if (sent >= 0) {
		w->first_out += (uint32_t)sent;
		w->counters[SV_ROCE_tx_datagrams] += (uint32_t)sent;
		return true;
	}
	if (errno == EAGAIN)
		return false;
	if (errno != EINTR) {
		sv_roce_count(w, SV_ROCE_tx_refused);
		w->first_out++;
	}
	return true;
}

/* Every payload is at hand. */
static int roce_copy_payload(struct sv_port *port, const struct sv_packet *pkt, uint32_t offset,
			     void *dst, uint32_t length)
{
	(void)port;
	(void)pkt;
	(void)offset;
	(void)dst;
	(void)length;
	return -EFAULT;
}

static void receive_all(struct sv_roce_wire *w, bool everywhere)
{
	w->io->receive(w, everywhere);
	sv_port_flush(w->port);
	if (w->hold.held)
		sv_hold_run(&w->hold, sv_roce_now_ns());
}

static void kick(struct sv_roce_wire *w)
{
	if (sv_port_wants_kick(w->port) && w->num_out < SV_ROCE_BATCH) {
		sv_port_kick(w->port);
		sv_roce_flush(w);
	}
}

void sv_roce_progress(struct sv_roce_wire *w)
{
	receive_all(w, false);
	sv_roce_flush(w);
	kick(w);
}

void sv_roce_catch_up(struct sv_roce_wire *w)
{
	uint64_t seen;

	for (uint32_t round = 0; round < MAX_ROUNDS; round++) {
		seen = w->counters[SV_ROCE_rx_datagrams];
		receive_all(w, true);
		sv_roce_flush(w);
		kick(w);
		if (seen == w->counters[SV_ROCE_rx_datagrams])
			return;
	}
}

/*
 * An application polls. What it owes for what came now goes out together with what it may post in
 * answer, or when it polls again; should it do neither, the engine is there soon. What is left when
 * the process ends goes out then (runtime.c).
 */
static void roce_progress(struct sv_port *port)
{
	struct sv_roce_wire *w = sv_port_wire(port);

	if (w->num_out)
		sv_roce_flush(w);
	receive_all(w, false);
	kick(w);
}

static bool roce_pending(struct sv_port *port)
{
	struct sv_roce_wire *w = sv_port_wire(port);
	uint32_t polls = atomic_load_explicit(&w->polls, memory_order_relaxed) + 1;

	/* Several pollers may lose each other's count; that it changes is all that matters. */
	atomic_store_explicit(&w->polls, polls, memory_order_relaxed);
	/* With few processors the one that we wait for may be waiting for ours. */
	if (w->yields && polls % YIELD_POLLS == 0)
		sched_yield();
	return !w->io->pending || w->io->pending(w) ||
	       atomic_load_explicit(&w->unsent, memory_order_relaxed);
}

/* ---------------------------------------------------------------- addresses and numbers */

static int roce_resolve(struct sv_port *port, const struct ibv_ah_attr *attr, uint16_t *dst_port)
{
	struct sv_roce_wire *w = sv_port_wire(port);
	const struct sv_port_config *cfg = sv_port_cfg(port);
	const union ibv_gid *local = &cfg->phys[0].gids[attr->grh.sgid_index].gid;
	uint32_t max = SV_NOWHERE / cfg->rails - 2;
	int peer;

	*dst_port = SV_NOWHERE;
	if (sv_roce_is_v4(local) != sv_roce_is_v4(&attr->grh.dgid))
		return ENETUNREACH;
	peer = sv_roce_peers_add(&w->peers, attr->grh.sgid_index, local, &attr->grh.dgid,
				 w->itf.index, max);
	if (peer < 0)
		return ENOMEM;
	*dst_port = index_of_peer(w, peer);
	return 0;
}

/* At random: what is late for a queue pair that is gone shall not find another one. */
static int roce_qpn_alloc(struct sv_port *port, uint32_t *qpn)
{
	do {
		if (getrandom(qpn, sizeof(*qpn), 0) != sizeof(*qpn))
			return ENOMEM;
		*qpn &= SV_QPN_MASK;
	} while (*qpn < 2 || *qpn == SV_QPN_MASK || sv_port_has_qp(port, *qpn));
	return 0;
}

static void roce_qpn_free(struct sv_port *port, uint32_t qpn)
{
	(void)port;
	(void)qpn;
}

static uint64_t roce_now_ns(struct sv_port *port)
{
	(void)port;
	return sv_roce_now_ns();
}

static void roce_may_block(struct sv_port *port)
{
	/* Nobody looks for packets but the engine from now on. */
	sv_roce_thread_wake(sv_port_wire(port));
}

const struct sv_wire_ops sv_roce_wire_ops = {
    .send = roce_send,
    .posted = send_collected,
    .revoke = stops,
    .copy_payload = roce_copy_payload,
    .now_ns = roce_now_ns,
    .arm_timer = sv_roce_thread_arm,
    .resolve = roce_resolve,
    .qpn_alloc = roce_qpn_alloc,
    .qpn_free = roce_qpn_free,
    .pending = roce_pending,
    .progress = roce_progress,
    .may_block = roce_may_block,
};
