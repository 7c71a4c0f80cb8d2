/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stepped wire: packets become events on a heap ordered by virtual time; one step delivers one.
 * A link sends one packet after the other at its rate, and packets of one path keep their order
 * unless a fault rule says otherwise.
 */
#include "stepped.h"

#include "dma.h"

#include <stdlib.h>
#include <string.h>

/* What goes around the payload of a packet on the wire. */
#define HEADER_BYTES 64u
/* A reordered packet that nothing overtakes goes on by itself after this. */
#define REORDER_PATIENCE_NS 50000u

struct sv_stepped *sv_fabric;

void sv_stepped_lock(void)
{
	pthread_mutex_lock(&sv_fabric->lock);
}

void sv_stepped_unlock(void)
{
	pthread_mutex_unlock(&sv_fabric->lock);
}

static uint64_t next_random(struct sv_stepped *fab)
{
	uint64_t z = fab->rng += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* ---------------------------------------------------------------- the heap */

static bool earlier(const struct sv_event *a, const struct sv_event *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

static void push_event(struct sv_stepped *fab, struct sv_event event)
{
	uint32_t i = fab->heap_len;

	if (i == fab->heap_cap) {
		uint32_t cap = fab->heap_cap ? fab->heap_cap * 2 : 256;
		struct sv_event *heap = realloc(fab->heap, cap * sizeof(*heap));

		if (!heap)
			abort(); /* a test that cannot go on must not seem to */
		fab->heap = heap;
		fab->heap_cap = cap;
	}
	event.order = fab->order++;
	fab->heap_len++;
	while (i && earlier(&event, &fab->heap[(i - 1) / 2])) {
		fab->heap[i] = fab->heap[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	fab->heap[i] = event;
}

static struct sv_event pop_event(struct sv_stepped *fab)
{
	struct sv_event top = fab->heap[0], last = fab->heap[--fab->heap_len];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = i * 2 + 1;

		if (child >= fab->heap_len)
			break;
		if (child + 1 < fab->heap_len && earlier(&fab->heap[child + 1], &fab->heap[child]))
			child++;
		if (!earlier(&fab->heap[child], &last))
			break;
		fab->heap[i] = fab->heap[child];
		i = child;
	}
	fab->heap[i] = last;
	return top;
}

static void push_flight(struct sv_stepped *fab, struct sv_flight *f, uint64_t time_ns)
{
	f->refs++;
	fab->ports[f->pkt.dst_port].inbound++;
	push_event(fab, (struct sv_event){.time_ns = time_ns, .type = SV_EV_PACKET, .flight = f});
}

static void push_action(struct sv_stepped *fab, uint64_t time_ns, const struct sv_action *action)
{
	push_event(fab,
		   (struct sv_event){.time_ns = time_ns, .type = SV_EV_ACTION, .action = *action});
}

/* ---------------------------------------------------------------- flights */

static struct sv_flight *new_flight(struct sv_stepped *fab)
{
	struct sv_flight *f = fab->free_flights;

	if (f)
		fab->free_flights = f->next;
	else
		f = malloc(sizeof(*f) + fab->mtu);
	if (!f)
		abort();
	f->next = NULL;
	f->overtake = 0;
	f->refs = 0;
	f->done = f->rx_judged = false;
	return f;
}

/* An event of the heap that named it is over. */
static void drop_ref(struct sv_stepped *fab, struct sv_flight *f)
{
	fab->ports[f->pkt.dst_port].inbound--;
	if (--f->refs)
		return;
	f->next = fab->free_flights;
	fab->free_flights = f;
}

void sv_stepped_free_flights(struct sv_stepped *fab)
{
	while (fab->heap_len) {
		struct sv_event event = pop_event(fab);

		if (event.type == SV_EV_PACKET)
			drop_ref(fab, event.flight);
	}
	while (fab->free_flights) {
		struct sv_flight *f = fab->free_flights;

		fab->free_flights = f->next;
		free(f);
	}
}

static struct sv_flight *copy_flight(struct sv_stepped *fab, const struct sv_flight *from)
{
	struct sv_flight *f = new_flight(fab);

	f->pkt = from->pkt;
	f->pkt.payload = f->payload;
	f->arrival_ns = from->arrival_ns;
	f->rx_judged = from->rx_judged;
	memcpy(f->payload, from->payload, f->pkt.payload_len);
	return f;
}

/* ---------------------------------------------------------------- the switch */

/* Is there a way from one port to the other at this moment? Counts the loss if not. */
static bool connected(struct sv_stepped *fab, const struct sv_packet *pkt, bool at_source)
{
	uint32_t rails = fab->opts.rails, src = pkt->src_port, dst = pkt->dst_port;

	if (dst >= fab->num_ports ||
	    (at_source ? !fab->ports[src].link_up : !fab->ports[dst].link_up)) {
		fab->stats.lost_link++;
		return false;
	}
	if (src == dst)
		return true; /* inside the device */
	if (fab->rail_cut[src % rails] || fab->rail_cut[dst % rails] ||
	    fab->blocked[src * fab->num_ports + dst] ||
	    (fab->opts.isolated_rails && src % rails != dst % rails)) {
		fab->stats.lost_cut++;
		return false;
	}
	return true;
}

static uint64_t transmission_ns(const struct sv_stepped *fab, uint32_t bytes, uint32_t slow_milli)
{
	uint64_t ns = ((uint64_t)bytes + HEADER_BYTES) * 8000 / fab->opts.rate_mbps;

	if (slow_milli)
		ns = ns * slow_milli / 1000;
	return ns ? ns : 1;
}

/* When a packet that leaves now arrives, in order with what else takes this path. */
static uint64_t arrival_ns(struct sv_stepped *fab, const struct sv_packet *pkt, uint32_t slow_milli)
{
	struct sv_stepped_port *src = &fab->ports[pkt->src_port];
	uint64_t *last = &fab->last_arrival_ns[pkt->src_port * fab->num_ports + pkt->dst_port];
	uint64_t depart = src->tx_free_ns > fab->now_ns ? src->tx_free_ns : fab->now_ns;
	uint64_t arrival;

	src->tx_free_ns = depart + transmission_ns(fab, pkt->payload_len, slow_milli);
	arrival = src->tx_free_ns + fab->opts.latency_ns;
	if (fab->opts.jitter_ns)
		arrival += next_random(fab) % (fab->opts.jitter_ns + 1);
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
			push_flight(fab, f, arrival + 1);
		drop_ref(fab, f);
	}
}

static uint32_t bit(enum sv_fault_kind kind)
{
	return 1u << kind;
}

#define FABRIC_KINDS                                                                               \
	(bit(SV_FAULT_LINK_DOWN) | bit(SV_FAULT_LINK_UP) | bit(SV_FAULT_CUT) |                     \
	 bit(SV_FAULT_HEAL) | bit(SV_FAULT_KILL) | bit(SV_FAULT_REVIVE))
/* Fabric actions that take the packet which set them off with them. */
#define LOSING_KINDS (bit(SV_FAULT_LINK_DOWN) | bit(SV_FAULT_CUT) | bit(SV_FAULT_KILL))

/* Calls `act` for each fabric action of a verdict. */
static void for_actions(const struct sv_fault_verdict *v,
			void (*act)(const struct sv_action *action))
{
	for (uint32_t kind = SV_FAULT_LINK_DOWN; kind < SV_FAULT_KIND_COUNT; kind++)
		if (v->kinds & 1u << kind)
			act(&(struct sv_action){
			    .kind = kind, .host = v->host, .rail = v->rail, .for_ns = v->for_ns});
}

static void act_soon(const struct sv_action *action)
{
	push_action(sv_fabric, sv_fabric->now_ns, action);
}

/* Lost by a rule? Counts it. */
static bool lost_by_rule(struct sv_stepped *fab, const struct sv_fault_verdict *v)
{
	if (v->kinds & (bit(SV_FAULT_DROP) | LOSING_KINDS))
		fab->stats.lost_fault++;
	else if (v->kinds & bit(SV_FAULT_CORRUPT))
		fab->stats.lost_corrupt++;
	else
		return false;
	return true;
}

/* ---------------------------------------------------------------- wire operations */

static struct sv_flight *snapshot(struct sv_stepped *fab, const struct sv_packet *pkt,
				  const struct sv_frag *frags, uint32_t nfrags)
{
	struct sv_flight *f = new_flight(fab);
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

	for (uint32_t i = 0; i < v->copies; i++) {
		fab->stats.duplicated++;
		push_flight(fab, copy_flight(fab, f), f->arrival_ns + i + 1);
	}
	if (v->delay_ns)
		fab->stats.delayed++;
	if (v->overtake) {
		fab->stats.reordered++;
		f->overtake = v->overtake;
		f->refs++; /* of the list */
		fab->ports[f->pkt.dst_port].inbound++;
		f->next = src->held;
		src->held = f;
		push_flight(fab, f, f->arrival_ns + v->delay_ns + REORDER_PATIENCE_NS);
	} else {
		push_flight(fab, f, f->arrival_ns + v->delay_ns);
	}
}

static int wire_send(struct sv_port *port, const struct sv_packet *pkt, const struct sv_frag *frags,
		     uint32_t nfrags)
{
	struct sv_stepped *fab = sv_fabric;
	struct sv_stepped_port *src = sv_port_wire(port);
	struct sv_fault_verdict v = {0};
	struct sv_flight *f;

	if (fab->opts.inbox_packets && pkt->dst_port < fab->num_ports &&
	    fab->ports[pkt->dst_port].inbound >= fab->opts.inbox_packets)
		return -EAGAIN;
	fab->stats.sent++;
	if (sv_fault_armed(&fab->faults, SV_POINT_TX) &&
	    sv_port_match_faults(port, SV_DIR_TX, pkt, &v)) {
		for_actions(&v, act_soon);
		if (lost_by_rule(fab, &v))
			return 0;
	}
	if (!connected(fab, pkt, true))
		return 0;
	f = snapshot(fab, pkt, frags, nfrags);
	f->arrival_ns = arrival_ns(fab, pkt, v.slow_milli);
	release_held(fab, src, f->arrival_ns);
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

static int wire_resolve(struct sv_port *port, const struct ibv_ah_attr *attr, uint32_t *dst_port)
{
	struct sv_stepped *fab = sv_fabric;
	uint32_t own = sv_port_cfg(port)->rail, rails = fab->opts.rails;

	for (uint32_t p = 0; p < fab->num_ports; p++) {
		const struct sv_port_config *cfg = sv_port_cfg(fab->ports[p].port);
		bool match = !attr->is_global && cfg->lid == attr->dlid;

		for (uint32_t i = 0; attr->is_global && i < cfg->num_gids; i++)
			match |= !memcmp(&cfg->gids[i].gid, &attr->grh.dgid, sizeof(union ibv_gid));
		if (match && (p % rails == own || !fab->opts.isolated_rails)) {
			*dst_port = p;
			return 0;
		}
	}
	return fab->opts.isolated_rails ? ENETUNREACH : ETIMEDOUT;
}

/* In sequence from a start of its own per device: not used again before 2^24 others. */
static int wire_qpn_alloc(struct sv_port *port, uint32_t *qpn)
{
	struct sv_stepped_port *p = sv_port_wire(port);

	do {
		*qpn = p->next_qpn++ & SV_QPN_MASK;
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
};

/* ---------------------------------------------------------------- actions */

/* Undone after for=: what an action is the opposite of. */
static uint32_t opposite(uint32_t kind)
{
	switch (kind) {
	case SV_FAULT_LINK_DOWN:
		return SV_FAULT_LINK_UP;
	case SV_FAULT_LINK_UP:
		return SV_FAULT_LINK_DOWN;
	case SV_FAULT_CUT:
		return SV_FAULT_HEAL;
	case SV_FAULT_HEAL:
		return SV_FAULT_CUT;
	case SV_FAULT_KILL:
		return SV_FAULT_REVIVE;
	default:
		return SV_FAULT_KILL;
	}
}

static void undo_later(struct sv_stepped *fab, uint32_t kind, uint32_t host, uint32_t rail,
		       uint64_t for_ns)
{
	if (for_ns)
		push_action(
		    fab, fab->now_ns + for_ns,
		    &(struct sv_action){.kind = opposite(kind), .host = host, .rail = rail});
}

static void act_on_port(struct sv_stepped_port *p, uint32_t kind)
{
	switch (kind) {
	case SV_FAULT_LINK_DOWN:
	case SV_FAULT_LINK_UP:
		p->link_up = kind == SV_FAULT_LINK_UP;
		sv_port_set_state(p->port, p->link_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
		break;
	case SV_FAULT_KILL:
		sv_port_kill(p->port);
		break;
	case SV_FAULT_REVIVE:
		sv_port_revive(p->port);
		break;
	default:
		break;
	}
}

void sv_stepped_act(const struct sv_action *action)
{
	struct sv_stepped *fab = sv_fabric;
	struct sv_stepped_port *p;

	if (action->kind == SV_FAULT_CUT || action->kind == SV_FAULT_HEAL) {
		fab->rail_cut[action->rail % fab->opts.rails] = action->kind == SV_FAULT_CUT;
	} else {
		p = sv_stepped_port_at(action->host, action->rail);
		act_on_port(p, action->kind);
	}
	undo_later(fab, action->kind, action->host, action->rail, action->for_ns);
}

/* ---------------------------------------------------------------- stepping */

/* Rules at the destination. True: the packet is dealt with. */
static bool judge_arrival(struct sv_stepped *fab, struct sv_port *port, struct sv_flight *f)
{
	struct sv_fault_verdict v;
	bool fired, kills;

	fired = sv_port_match_faults(port, SV_DIR_RX, &f->pkt, &v);
	if (!fired)
		return false;
	f->rx_judged = true;
	kills = v.kinds & bit(SV_FAULT_KILL);
	v.kinds &= ~bit(SV_FAULT_KILL);
	for_actions(&v, sv_stepped_act);
	if (lost_by_rule(fab, &v))
		return true;
	if (kills) {
		sv_port_begin_death(port, (enum sv_kill_variant)v.kill, &f->pkt);
		undo_later(fab, SV_FAULT_KILL, v.host, v.rail, v.for_ns);
		return true;
	}
	for (uint32_t i = 0; i < v.copies; i++) {
		fab->stats.duplicated++;
		push_flight(fab, copy_flight(fab, f), fab->now_ns + i + 1);
	}
	if (v.delay_ns) {
		fab->stats.delayed++;
		push_flight(fab, f, fab->now_ns + v.delay_ns);
		return true;
	}
	return false;
}

/* Those that found the destination full get a turn. */
static void kick_all(struct sv_stepped *fab)
{
	for (uint32_t i = 0; i < fab->num_ports; i++) {
		struct sv_port *port = fab->ports[i].port;

		if (sv_port_wants_kick(port))
			sv_port_kick(port);
	}
}

static void deliver(struct sv_stepped *fab, struct sv_flight *f)
{
	struct sv_port *port;

	if (!connected(fab, &f->pkt, false))
		return;
	port = fab->ports[f->pkt.dst_port].port;
	if (!f->rx_judged && sv_fault_armed(&fab->faults, SV_POINT_RX) &&
	    judge_arrival(fab, port, f))
		return;
	if (sv_port_dead(port)) {
		fab->stats.lost_dead++;
	} else {
		fab->stats.delivered++;
		sv_port_receive(port, &f->pkt);
		sv_port_flush(port);
	}
	f->done = true;
}

/* The port whose timer is due first; NULL: none. */
static struct sv_stepped_port *next_timer(struct sv_stepped *fab, uint64_t *deadline_ns)
{
	struct sv_stepped_port *first = NULL;

	*deadline_ns = SV_NEVER;
	for (uint32_t i = 0; i < fab->num_ports; i++) {
		uint64_t deadline = sv_port_next_deadline(fab->ports[i].port);

		if (deadline < *deadline_ns) {
			*deadline_ns = deadline;
			first = &fab->ports[i];
		}
	}
	return first;
}

/* Events of packets that were delivered early (a reordered one's patience) are void. */
static void discard_void(struct sv_stepped *fab)
{
	while (fab->heap_len && fab->heap[0].type == SV_EV_PACKET && fab->heap[0].flight->done)
		drop_ref(fab, pop_event(fab).flight);
}

/* What comes next: heap, timer or timed rule, in this order at one time. */
static enum sv_event_kind next_event(struct sv_stepped *fab, uint64_t *time_ns,
				     struct sv_stepped_port **timer)
{
	uint64_t heap_ns, timer_ns, fault_ns = SV_NEVER;

	discard_void(fab);
	heap_ns = fab->heap_len ? fab->heap[0].time_ns : SV_NEVER;
	*timer = next_timer(fab, &timer_ns);
	if (sv_fault_armed(&fab->faults, SV_POINT_TIME))
		fault_ns = sv_fault_next_due(&fab->faults);
	if (heap_ns == SV_NEVER && timer_ns == SV_NEVER && fault_ns == SV_NEVER)
		return SV_EVENT_NONE;
	if (fault_ns <= heap_ns && fault_ns <= timer_ns) {
		*time_ns = fault_ns;
		return SV_EVENT_FAULT;
	}
	*time_ns = heap_ns <= timer_ns ? heap_ns : timer_ns;
	if (heap_ns > timer_ns)
		return SV_EVENT_TIMER;
	return fab->heap[0].type == SV_EV_PACKET ? SV_EVENT_PACKET : SV_EVENT_FAULT;
}

static void run_faults(struct sv_stepped *fab)
{
	struct sv_fault_verdict v;

	if (!sv_fault_due(&fab->faults, fab->now_ns, &v))
		return;
	if (v.kinds & bit(SV_FAULT_EVENT))
		sv_stepped_raise(v.host, v.rail, (enum ibv_event_type)v.event);
	for_actions(&v, sv_stepped_act);
}

static bool step(struct sv_stepped *fab)
{
	struct sv_stepped_port *timer;
	struct sv_event event;
	enum sv_event_kind kind;
	uint64_t time_ns = 0;

	kind = next_event(fab, &time_ns, &timer);
	if (kind == SV_EVENT_NONE)
		return false;
	if (time_ns > fab->now_ns)
		fab->now_ns = time_ns;
	fab->index++;
	if (kind == SV_EVENT_TIMER) {
		fab->stats.timers++;
		sv_port_run_timer(timer->port, fab->now_ns);
		sv_port_flush(timer->port);
		return true;
	}
	if (kind == SV_EVENT_FAULT && (!fab->heap_len || fab->heap[0].type != SV_EV_ACTION ||
				       fab->heap[0].time_ns > time_ns)) {
		run_faults(fab);
		return true;
	}
	event = pop_event(fab);
	if (event.type == SV_EV_ACTION) {
		sv_stepped_act(&event.action);
	} else {
		deliver(fab, event.flight);
		drop_ref(fab, event.flight);
		if (fab->opts.inbox_packets)
			kick_all(fab);
	}
	return true;
}

bool sv_stepped_step(void)
{
	bool stepped;

	sv_stepped_lock();
	stepped = step(sv_fabric);
	sv_stepped_unlock();
	return stepped;
}

/* ---------------------------------------------------------------- looking ahead */

static const char *op_name(const struct sv_packet *pkt)
{
	static const char *const names[SV_OP_COUNT] = {
	    [SV_OP_SEND] = "send",	 [SV_OP_WRITE] = "write",
	    [SV_OP_READ_REQ] = "read",	 [SV_OP_READ_RESP] = "readresp",
	    [SV_OP_CMP_SWAP] = "atomic", [SV_OP_FETCH_ADD] = "atomic",
	    [SV_OP_ACK] = "ack",	 [SV_OP_ATOMIC_ACK] = "atomicack",
	    [SV_OP_UD] = "ud",
	};

	if (pkt->op == SV_OP_ACK && (pkt->syndrome & SV_AETH_KIND_MASK) != SV_AETH_ACK)
		return (pkt->syndrome & SV_AETH_KIND_MASK) == SV_AETH_RNR_NAK ? "rnr" : "nak";
	return names[pkt->op];
}

static void peek(struct sv_stepped *fab, struct sv_event_info *info)
{
	uint32_t rails = fab->opts.rails;
	struct sv_stepped_port *timer;
	const struct sv_packet *pkt;

	*info = (struct sv_event_info){0};
	info->kind = next_event(fab, &info->time_ns, &timer);
	if (info->kind == SV_EVENT_TIMER) {
		info->src_host = sv_port_cfg(timer->port)->host;
		info->src_rail = sv_port_cfg(timer->port)->rail;
	}
	if (info->kind != SV_EVENT_PACKET)
		return;
	pkt = &fab->heap[0].flight->pkt;
	info->src_host = pkt->src_port / rails;
	info->src_rail = pkt->src_port % rails;
	info->dst_host = pkt->dst_port / rails;
	info->dst_rail = pkt->dst_port % rails;
	info->op = op_name(pkt);
	info->src_qpn = pkt->src_qpn;
	info->dst_qpn = pkt->dst_qpn;
	info->psn = pkt->psn;
	info->length = pkt->payload_len;
	info->first = pkt->flags & SV_PKT_FIRST;
	info->last = pkt->flags & SV_PKT_LAST;
	info->retry = pkt->flags & SV_PKT_RETRY;
}

bool sv_stepped_peek(struct sv_event_info *info)
{
	sv_stepped_lock();
	peek(sv_fabric, info);
	sv_stepped_unlock();
	return info->kind != SV_EVENT_NONE;
}

static bool drop_next(struct sv_stepped *fab)
{
	struct sv_stepped_port *timer;
	uint64_t time_ns = 0;
	struct sv_event event;

	if (next_event(fab, &time_ns, &timer) != SV_EVENT_PACKET)
		return false;
	event = pop_event(fab);
	fab->now_ns = time_ns > fab->now_ns ? time_ns : fab->now_ns;
	fab->index++;
	fab->stats.lost_fault++;
	event.flight->done = true;
	drop_ref(fab, event.flight);
	return true;
}

bool sv_stepped_drop_next(void)
{
	bool dropped;

	sv_stepped_lock();
	dropped = drop_next(sv_fabric);
	sv_stepped_unlock();
	return dropped;
}
