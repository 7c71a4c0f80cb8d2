/* SPDX-License-Identifier: Apache-2.0 */
/* The run-time of one device in this process: lock, QP lookup, timers, state, life and death. */
#include "core.h"
#include "posted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QP_HASH_INITIAL 64u

struct sv_port *sv_port_create(const struct sv_port_config *cfg, const struct sv_wire_ops *ops,
			       void *wire, struct sv_fault_table *faults)
{
	struct sv_port *port = calloc(1, sizeof(*port));

	if (!port)
		return NULL;
	port->qp_hash = calloc(QP_HASH_INITIAL, sizeof(struct sv_qp *));
	if (!port->qp_hash) {
		free(port);
		return NULL;
	}
	port->qp_mask = QP_HASH_INITIAL - 1;
	pthread_mutex_init(&port->own_lock, NULL);
	port->lock = cfg->lock ? cfg->lock : &port->own_lock;
	port->ops = ops;
	port->wire = wire;
	port->faults = faults;
	port->cfg = *cfg;
	port->traffic = cfg->traffic ? cfg->traffic : port->own_traffic;
	for (uint32_t i = 0; i < cfg->num_phys; i++) {
		port->state[i] = cfg->phys[i].state;
		port->told_active[i] = port->state[i] == IBV_PORT_ACTIVE;
	}
	port->mr_free_head = port->mr_free_tail = UINT32_MAX;
	sv_list_init(&port->contexts);
	sv_list_init(&port->tx_wait);
	sv_list_init(&port->ack_wait);
	sv_list_init(&port->directs);
	if (sv_pace_init(port)) {
		sv_port_destroy(port);
		return NULL;
	}
	return port;
}

void sv_port_destroy(struct sv_port *port)
{
	sv_mr_table_free(port);
	sv_posted_drop(port);
	free(port->stage);
	pthread_mutex_destroy(&port->own_lock);
	free(port->timers);
	free(port->qp_hash);
	free(port->pace.there_ns);
	free(port);
}

void *sv_port_wire(const struct sv_port *port)
{
	return port->wire;
}

const struct sv_port_config *sv_port_cfg(const struct sv_port *port)
{
	return &port->cfg;
}

struct sv_fault_table *sv_port_faults(const struct sv_port *port)
{
	return port->faults;
}

void sv_port_lock(struct sv_port *port)
{
	pthread_mutex_lock(port->lock);
}

bool sv_port_trylock(struct sv_port *port)
{
	return pthread_mutex_trylock(port->lock) == 0;
}

void sv_port_unlock(struct sv_port *port)
{
	pthread_mutex_unlock(port->lock);
}

void sv_port_get_stats(const struct sv_port *port, struct sv_port_stats *stats)
{
	*stats = port->stats;
	stats->qps = port->num_qps;
	stats->cqs = port->num_cqs;
	stats->mrs = port->num_mrs;
}

const struct sv_traffic *sv_port_traffic(const struct sv_port *port, uint32_t phys)
{
	return &port->traffic[phys];
}

/* ---------------------------------------------------------------- QP lookup */

static struct sv_qp **hash_bucket(const struct sv_port *port, uint32_t qpn)
{
	/* Numbers are handed out in sequence or at random: either spreads well by its low bits. */
	return &port->qp_hash[(qpn ^ qpn >> 12) & port->qp_mask];
}

struct sv_qp *sv_port_find_qp(const struct sv_port *port, uint32_t qpn)
{
	struct sv_qp *qp = *hash_bucket(port, qpn);

	while (qp && qp->ibv.qp_num != qpn)
		qp = qp->hash_next;
	return qp;
}

static int grow_hash(struct sv_port *port)
{
	uint32_t old_size = port->qp_mask + 1;
	struct sv_qp **old = port->qp_hash;
	struct sv_qp **table = calloc((size_t)old_size * 2, sizeof(struct sv_qp *));

	if (!table)
		return ENOMEM;
	port->qp_hash = table;
	port->qp_mask = old_size * 2 - 1;
	for (uint32_t i = 0; i < old_size; i++) {
		struct sv_qp *qp = old[i], *next;

		for (; qp; qp = next) {
			struct sv_qp **bucket = hash_bucket(port, qp->ibv.qp_num);

			next = qp->hash_next;
			qp->hash_next = *bucket;
			*bucket = qp;
		}
	}
	free(old);
	return 0;
}

/* Also makes room in the timer heap, so that arming a timer never allocates. */
int sv_port_add_qp(struct sv_port *port, struct sv_qp *qp)
{
	struct sv_qp **bucket;

	if (port->num_qps >= port->timer_cap) {
		uint32_t cap = port->timer_cap ? port->timer_cap * 2 : 16;
		struct sv_qp **timers = realloc(port->timers, cap * sizeof(struct sv_qp *));

		if (!timers)
			return ENOMEM;
		port->timers = timers;
		port->timer_cap = cap;
	}
	if (port->num_qps > port->qp_mask && grow_hash(port))
		return ENOMEM;
	bucket = hash_bucket(port, qp->ibv.qp_num);
	qp->hash_next = *bucket;
	*bucket = qp;
	qp->hashed = true;
	port->num_qps++;
	sv_port_objects_changed(port);
	return 0;
}

static void unhash(struct sv_port *port, struct sv_qp *qp)
{
	struct sv_qp **pos = hash_bucket(port, qp->ibv.qp_num);

	if (!qp->hashed)
		return;
	while (*pos != qp)
		pos = &(*pos)->hash_next;
	*pos = qp->hash_next;
	qp->hashed = false;
}

/* ---------------------------------------------------------------- packets */

int sv_port_send(struct sv_qp *qp, struct sv_packet *pkt, const struct sv_frag *frags,
		 uint32_t nfrags)
{
	struct sv_port *port = qp->port;
	int ret;

	pkt->src_port = qp->own_port;
	pkt->pkey = qp->pkey;
	pkt->src_qpn = qp->ibv.qp_num;
	if (pkt->op != SV_OP_UD) {
		pkt->sport = qp->sport;
		pkt->traffic_class = qp->traffic_class;
		pkt->hop_limit = qp->hop_limit;
	}
	if (port->cfg.links && !sv_pace_admits(qp, pkt))
		return -EAGAIN;
	ret = port->ops->send(port, pkt, frags, nfrags);
	if (ret)
		return ret;
	qp->traffic->n[SV_TRAFFIC_PACKETS_OUT] += sv_packet_count(pkt);
	qp->traffic->n[SV_TRAFFIC_BYTES_OUT] += pkt->payload_len;
	return 0;
}

/* Goes on sending on this QP when the wire, or its link, has room again. */
void sv_port_wait_for_room(struct sv_qp *qp)
{
	struct sv_port *port = qp->port;

	if (port->cfg.links && !qp->paced && sv_list_empty(&port->tx_wait))
		port->pace.no_room_ns = sv_now(port);
	if (sv_list_empty(&qp->tx_link))
		sv_list_add_tail(qp->paced ? &port->pace.wait : &port->tx_wait, &qp->tx_link);
	qp->paced = false;
}

/* The same partition, of which one of the two at least is a full member (the top bit). */
static bool same_partition(uint16_t a, uint16_t b)
{
	return ((a ^ b) & 0x7fff) == 0 && a & 0x7fff && (a | b) & 0x8000;
}

void sv_port_receive(struct sv_port *port, const struct sv_packet *pkt)
{
	struct sv_qp *qp;

	if (port->dead)
		return;
	qp = sv_port_find_qp(port, pkt->dst_qpn);
	if (!qp) {
		port->stats.rx_no_qp++;
		return;
	}
	if (qp->wedged)
		return;
	if (pkt->dst_port != qp->own_port) { /* it came in by another port of the device */
		port->stats.rx_bad_state++;
		return;
	}
	qp->traffic->n[SV_TRAFFIC_PACKETS_IN] += sv_packet_count(pkt);
	qp->traffic->n[SV_TRAFFIC_BYTES_IN] += pkt->payload_len;
	if (!same_partition(pkt->pkey, qp->pkey)) {
		port->stats.rx_bad_pkey++;
		return;
	}
	if (pkt->op == SV_OP_UD) {
		if (qp->ibv.qp_type == IBV_QPT_UD)
			sv_ud_receive(qp, pkt);
		return;
	}
	/* Hardware compares the addresses of the packet with the connection's. There is no source
	 * QP number in an RC packet. */
	if (qp->ibv.qp_type != IBV_QPT_RC || pkt->src_port != qp->dst_port) {
		port->stats.rx_bad_state++;
		return;
	}
	switch (pkt->op) {
	case SV_OP_READ_RESP:
	case SV_OP_ATOMIC_ACK:
	case SV_OP_ACK:
		sv_requester_receive(qp, pkt);
		break;
	default:
		sv_responder_receive(qp, pkt);
	}
}

void sv_port_flush(struct sv_port *port)
{
	struct sv_list *node, *tmp;

	sv_list_for_each_safe (node, tmp, &port->ack_wait) {
		struct sv_qp *qp = sv_container_of(node, struct sv_qp, ack_link);

		sv_list_del(node);
		if (!sv_responder_run(qp))
			sv_port_wait_for_room(qp);
	}
	if (port->dying_done && sv_list_empty(&port->tx_wait) && sv_list_empty(&port->pace.wait)) {
		sv_port_kill(port);
		if (port->ops->died)
			port->ops->died(port);
	}
}

bool sv_port_wants_kick(const struct sv_port *port)
{
	return !sv_list_empty(&port->tx_wait);
}

void sv_port_take_turn(struct sv_qp *qp)
{
	if (!sv_responder_run(qp))
		sv_port_wait_for_room(qp);
	else if (qp->ibv.qp_type == IBV_QPT_UD)
		sv_ud_run(qp);
	else
		sv_requester_run(qp);
}

bool sv_port_kick(struct sv_port *port)
{
	uint64_t no_room_ns = port->pace.no_room_ns;
	struct sv_list turn;

	/* Each waiting QP gets one turn; who is still short of room queues up again. */
	sv_list_init(&turn);
	sv_list_move_all(&turn, &port->tx_wait);
	sv_port_as_of(port, no_room_ns);
	while (!sv_list_empty(&turn)) {
		struct sv_qp *qp = sv_container_of(turn.next, struct sv_qp, tx_link);

		sv_list_del(&qp->tx_link);
		sv_port_take_turn(qp);
	}
	sv_port_as_of(port, 0);
	/* What still waits has done so all the time. */
	port->pace.no_room_ns = no_room_ns;
	if (port->dying_done)
		sv_port_flush(port);
	return !sv_list_empty(&port->tx_wait);
}

void sv_port_remove_qp(struct sv_port *port, struct sv_qp *qp)
{
	unhash(port, qp);
	sv_timer_forget(qp);
	sv_place_drop(qp);
	sv_list_del(&qp->tx_link);
	sv_list_del(&qp->ack_link);
	port->num_qps--;
	if (port->dying && qp->ibv.qp_num == port->dying_qpn)
		port->dying_done = true; /* the rest of its message will not be taken */
	sv_port_objects_changed(port);
}

/* ---------------------------------------------------------------- state */

void sv_port_raise(struct sv_port *port, uint32_t phys, enum ibv_event_type type)
{
	struct sv_list *node;

	sv_list_for_each (node, &port->contexts) {
		struct sv_context *ctx = sv_container_of(node, struct sv_context, link);

		if (!ctx->ended)
			sv_raise_port(ctx, phys, type);
	}
}

enum ibv_port_state sv_port_state(const struct sv_port *port, uint32_t phys)
{
	return port->state[phys];
}

void sv_port_set_state(struct sv_port *port, uint32_t phys, enum ibv_port_state state)
{
	port->state[phys] = state;
}

void sv_port_tell_state(struct sv_port *port, uint32_t phys)
{
	bool active = port->state[phys] == IBV_PORT_ACTIVE;

	if (port->told_active[phys] != active && !port->dead)
		sv_port_raise(port, phys, active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
	port->told_active[phys] = active;
}

void sv_port_set_gid(struct sv_port *port, uint32_t phys, uint32_t index,
		     const struct sv_gid_entry *entry)
{
	struct sv_phys_config *p = &port->cfg.phys[phys];

	if (index >= SV_MAX_GIDS)
		return;
	p->gids[index] = *entry;
	if (index >= p->num_gids)
		p->num_gids = index + 1;
	sv_port_raise(port, phys, IBV_EVENT_GID_CHANGE);
}

void sv_port_set_pkey(struct sv_port *port, uint32_t phys, uint32_t index, uint16_t pkey)
{
	struct sv_phys_config *p = &port->cfg.phys[phys];
	struct sv_list *node, *member;

	if (index >= SV_MAX_PKEYS)
		return;
	p->pkeys[index] = pkey;
	if (index >= p->num_pkeys)
		p->num_pkeys = index + 1;
	sv_list_for_each (node, &port->contexts) {
		struct sv_context *ctx = sv_container_of(node, struct sv_context, link);

		sv_list_for_each (member, &ctx->qps) {
			struct sv_qp *qp = sv_container_of(member, struct sv_qp, link);

			if (qp->own_port == sv_port_index(&port->cfg, phys))
				qp->pkey = p->pkeys[qp->attr.pkey_index];
		}
	}
	sv_port_raise(port, phys, IBV_EVENT_PKEY_CHANGE);
}

void sv_port_set_ece(struct sv_port *port, uint32_t vendor_id, uint32_t options)
{
	port->cfg.ece_vendor = vendor_id;
	port->cfg.ece_options = options;
}

void sv_port_set_burst(struct sv_port *port, uint32_t burst_bytes)
{
	port->cfg.burst_bytes = burst_bytes;
}

bool sv_port_has_qp(const struct sv_port *port, uint32_t qpn)
{
	return sv_port_find_qp(port, qpn) != NULL;
}

bool sv_port_dead(const struct sv_port *port)
{
	return port->dead;
}

static void stop_queue_pairs(struct sv_port *port, struct sv_context *ctx)
{
	struct sv_list *node;

	sv_list_for_each (node, &ctx->qps) {
		struct sv_qp *qp = sv_container_of(node, struct sv_qp, link);

		qp->dead = true;
		unhash(port, qp);
		sv_timer_forget(qp);
		sv_place_drop(qp);
		sv_list_del(&qp->tx_link);
		sv_list_del(&qp->ack_link);
		if (ctx->end != SV_END_DEATH)
			sv_qp_wedge(qp, true); /* it may still be posted on */
	}
}

static void end_context(struct sv_port *port, struct sv_context *ctx)
{
	__atomic_store_n(&ctx->dead, true, __ATOMIC_RELEASE); /* read without the lock */
	stop_queue_pairs(port, ctx);
	if (ctx->end != SV_END_FEIGNED)
		sv_raise_port(ctx, 0, IBV_EVENT_DEVICE_FATAL);
	if (ctx->end == SV_END_DISASSOCIATION)
		sv_events_close(ctx);
	ctx->ended = true;
}

void sv_port_kill(struct sv_port *port)
{
	struct sv_list *node;

	if (port->dead)
		return;
	/* Unless it goes on to the end, what is still in it is lost. */
	if (port->leaving || (port->dying && port->dying_variant == SV_KILL_PLACED))
		sv_posted_push(port);
	sv_posted_drop(port);
	port->dead = true;
	port->leaving = false;
	port->dying = port->dying_done = false;
	sv_list_for_each (node, &port->contexts) {
		struct sv_context *ctx = sv_container_of(node, struct sv_context, link);

		if (!ctx->ended)
			end_context(port, ctx);
	}
}

static void begin_to_leave(struct sv_port *port, enum sv_end end)
{
	struct sv_list *node;

	if (port->dead || port->leaving)
		return;
	port->leaving = true;
	sv_list_for_each (node, &port->contexts) {
		struct sv_context *ctx = sv_container_of(node, struct sv_context, link);

		if (ctx->ended)
			continue;
		ctx->end = (uint8_t)end;
		__atomic_store_n(&ctx->dead, true, __ATOMIC_RELEASE);
		if (end == SV_END_FEIGNED)
			sv_raise_port(ctx, 0, IBV_EVENT_DEVICE_FATAL);
	}
}

void sv_port_disassociate(struct sv_port *port)
{
	begin_to_leave(port, SV_END_DISASSOCIATION);
}

void sv_port_feign(struct sv_port *port)
{
	begin_to_leave(port, SV_END_FEIGNED);
}

void sv_port_leave(struct sv_port *port)
{
	if (port->leaving)
		sv_port_kill(port);
}

bool sv_port_leaving(const struct sv_port *port)
{
	return port->leaving;
}

void sv_port_revive(struct sv_port *port)
{
	sv_port_leave(port); /* what comes back has been away */
	port->dead = false;
}

void sv_port_begin_death(struct sv_port *port, enum sv_kill_variant variant,
			 const struct sv_packet *pkt)
{
	const struct sv_qp *qp;

	if (port->dead)
		return;
	if (variant == SV_KILL_NOW || !pkt || pkt->op == SV_OP_UD) {
		sv_port_kill(port);
		return;
	}
	port->dying = true;
	port->dying_variant = variant;
	port->dying_qpn = pkt->dst_qpn;
	sv_port_receive(port, pkt);
	/* No message is under way on its queue pair: it was whole, no request, or for a queue pair
	 * that takes none any more. */
	qp = sv_port_find_qp(port, pkt->dst_qpn);
	if (!qp || qp->cur_op == SV_OP_COUNT)
		port->dying_done = true;
	sv_port_flush(port);
}

bool sv_port_match_faults(struct sv_port *port, enum sv_fault_dir dir, const struct sv_packet *pkt,
			  struct sv_fault_verdict *verdict)
{
	const struct sv_port_config *cfg = &port->cfg;
	uint32_t own = dir == SV_DIR_TX ? pkt->src_port : pkt->dst_port;
	uint32_t peer = dir == SV_DIR_TX ? pkt->dst_port : pkt->src_port;
	const struct sv_fault_where where = {.host = cfg->host,
					     .rail = cfg->rail,
					     .phys = own / cfg->devices,
					     .peer = peer == SV_NOWHERE ? SV_ANY
									: sv_index_host(cfg, peer)};
	struct sv_qp *qp;

	if (!sv_fault_packet(port->faults, dir, &where, pkt, sv_now(port), verdict))
		return false;
	if (verdict->kinds & (1u << SV_FAULT_WEDGE | 1u << SV_FAULT_ERR)) {
		qp = sv_port_find_qp(port, dir == SV_DIR_TX ? pkt->src_qpn : pkt->dst_qpn);
		if (qp && verdict->kinds & 1u << SV_FAULT_WEDGE)
			sv_qp_wedge(qp, verdict->wedge_hard);
		else if (qp)
			sv_qp_break(qp, verdict->err_silent);
		verdict->kinds |= 1u << SV_FAULT_DROP; /* from this packet on */
	}
	if (verdict->kinds & 1u << SV_FAULT_EVENT)
		sv_port_raise(port, where.phys, (enum ibv_event_type)verdict->event);
	verdict->kinds &= ~(1u << SV_FAULT_WEDGE | 1u << SV_FAULT_ERR | 1u << SV_FAULT_EVENT);
	return true;
}
