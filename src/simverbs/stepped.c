/* SPDX-License-Identifier: Apache-2.0 */
/* Stepping: takes the next packet, timer or fault of a stepped fabric and makes it happen. */
#include "stepped.h"

struct sv_stepped *sv_fabric;

void sv_stepped_lock(void)
{
	pthread_mutex_lock(&sv_fabric->lock);
}

void sv_stepped_unlock(void)
{
	pthread_mutex_unlock(&sv_fabric->lock);
}

/* ---------------------------------------------------------------- actions */

/* Undone after for=: what an action is the opposite of. */
static uint32_t opposite(uint32_t kind)
{
	switch (kind) {
	case SV_FAULT_LINK_DOWN:
	case SV_FAULT_LINK_OFF:
		return SV_FAULT_LINK_UP;
	case SV_FAULT_LINK_UP:
		return SV_FAULT_LINK_DOWN;
	case SV_FAULT_LEG_DOWN:
		return SV_FAULT_LEG_UP;
	case SV_FAULT_LEG_UP:
	case SV_FAULT_LEG_REMAP:
		return SV_FAULT_LEG_DOWN;
	case SV_FAULT_CUT:
		return SV_FAULT_HEAL;
	case SV_FAULT_HEAL:
		return SV_FAULT_CUT;
	case SV_FAULT_KILL:
	case SV_FAULT_DISASSOCIATE:
	case SV_FAULT_FEIGN:
		return SV_FAULT_REVIVE;
	default:
		return SV_FAULT_KILL;
	}
}

static void undo_later(struct sv_stepped *fab, const struct sv_action *action)
{
	struct sv_action undo = *action;

	undo.kind = opposite(action->kind);
	undo.for_ns = undo.leave_ns = 0;
	if (action->for_ns)
		sv_action_push(fab, fab->now_ns + action->for_ns, &undo);
}

/* The port sees it at once, and whoever has it open is told when its kind of device does so. */
static void set_link(struct sv_stepped *fab, struct sv_port *port, uint32_t phys, uint32_t kind)
{
	uint32_t index = sv_port_index(sv_port_cfg(port), phys);
	bool up = kind == SV_FAULT_LINK_UP;
	uint64_t late_ns = 0;

	fab->ports[index].link_up = up;
	sv_port_set_state(port, phys, up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN);
	/* Random numbers are drawn only where they are used: a run without them stays as it is. */
	if (kind == SV_FAULT_LINK_DOWN && fab->opts.profile == SV_STEPPED_MLX5)
		late_ns = sv_profile_carrier_event_ns(SV_PROFILE_MLX5, sv_stepped_random(fab));
	if (late_ns)
		sv_tell_push(fab, fab->now_ns + late_ns, index);
	else
		sv_port_tell_state(port, phys);
}

static void set_links(struct sv_stepped *fab, struct sv_port *port, const struct sv_action *action)
{
	for (uint32_t i = 0; i < fab->opts.ports; i++)
		if (action->phys == SV_ANY || action->phys == i)
			set_link(fab, port, i, action->kind);
}

/* Of a bond: both legs are its first port's. */
static void set_leg(struct sv_stepped *fab, struct sv_port *port, const struct sv_action *action)
{
	uint32_t *legs = &fab->ports[sv_port_index(sv_port_cfg(port), 0)].legs;

	*legs = sv_fault_legs(*legs, action->kind, action->leg);
}

static void begin_to_leave(struct sv_stepped *fab, struct sv_stepped_device *dev,
			   const struct sv_action *action)
{
	struct sv_action rest = *action;

	if (action->leaves) {
		if (fab->now_ns >=
		    dev->leaves_ns) /* not of an earlier time, which a revival ended */
			sv_port_leave(dev->port);
		return;
	}
	if (sv_port_dead(dev->port) || sv_port_leaving(dev->port))
		return;
	dev->leaves_ns = fab->now_ns + action->leave_ns;
	if (action->kind == SV_FAULT_FEIGN)
		sv_port_feign(dev->port);
	else
		sv_port_disassociate(dev->port);
	rest.leaves = true;
	rest.for_ns = 0;
	if (action->leave_ns)
		sv_action_push(fab, dev->leaves_ns, &rest);
	else
		sv_port_leave(dev->port);
}

static void act_on_device(struct sv_stepped *fab, struct sv_stepped_device *dev,
			  const struct sv_action *action)
{
	switch (action->kind) {
	case SV_FAULT_LINK_DOWN:
	case SV_FAULT_LINK_OFF:
	case SV_FAULT_LINK_UP:
		set_links(fab, dev->port, action);
		break;
	case SV_FAULT_LEG_DOWN:
	case SV_FAULT_LEG_REMAP:
	case SV_FAULT_LEG_UP:
		set_leg(fab, dev->port, action);
		break;
	case SV_FAULT_KILL:
		sv_port_kill(dev->port);
		break;
	case SV_FAULT_REVIVE:
		sv_port_revive(dev->port);
		dev->renamed += action->renamed;
		break;
	case SV_FAULT_DISASSOCIATE:
	case SV_FAULT_FEIGN:
		begin_to_leave(fab, dev, action);
		break;
	default:
		break;
	}
}

void sv_stepped_act(const struct sv_action *action)
{
	struct sv_stepped *fab = sv_fabric;

	if (action->kind == SV_FAULT_CUT || action->kind == SV_FAULT_HEAL)
		fab->rail_cut[action->rail % fab->opts.rails] = action->kind == SV_FAULT_CUT;
	else
		act_on_device(fab, sv_stepped_device_at(action->host, action->rail), action);
	undo_later(fab, action);
}

/* ---------------------------------------------------------------- stepping */

/* Rules at the destination. True: the packet is dealt with. */
static bool judge_arrival(struct sv_stepped *fab, struct sv_port *port, struct sv_flight *f)
{
	struct sv_fault_verdict v;
	bool fired, kills;
	uint64_t at_ns;

	fired = sv_port_match_faults(port, SV_DIR_RX, &f->pkt, &v);
	if (!fired)
		return false;
	f->rx_judged = true;
	kills = v.kinds & sv_bit(SV_FAULT_KILL);
	v.kinds &= ~sv_bit(SV_FAULT_KILL);
	sv_for_actions(&v, sv_stepped_act);
	if (sv_lost_by_rule(fab, &v))
		return true;
	if (kills) {
		sv_port_begin_death(port, (enum sv_kill_variant)v.kill, &f->pkt);
		undo_later(fab, &(struct sv_action){.kind = SV_FAULT_KILL,
						    .host = v.host,
						    .rail = v.rail,
						    .phys = SV_ANY,
						    .for_ns = v.for_ns});
		return true;
	}
	for (uint32_t i = 0; i < v.copies; i++) {
		fab->stats.duplicated++;
		sv_flight_push(fab, sv_flight_copy(fab, f), fab->now_ns + i + 1);
	}
	at_ns = fab->now_ns + v.delay_ns;
	if (at_ns < v.hold_until_ns)
		at_ns = v.hold_until_ns;
	if (at_ns > fab->now_ns) {
		fab->stats.delayed++;
		sv_flight_push(fab, f, at_ns);
		return true;
	}
	return false;
}

/* Those that found the destination full get a turn. */
static void kick_all(struct sv_stepped *fab)
{
	for (uint32_t i = 0; i < fab->num_devices; i++) {
		struct sv_port *port = fab->devices[i].port;

		if (sv_port_wants_kick(port))
			sv_port_kick(port);
	}
}

static void deliver(struct sv_stepped *fab, struct sv_flight *f)
{
	struct sv_port *port;

	if (!sv_connected(fab, &f->pkt, false))
		return;
	port = sv_stepped_device_of(fab, f->pkt.dst_port)->port;
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

/* The device whose timer is due first; NULL: none. */
static struct sv_stepped_device *next_timer(struct sv_stepped *fab, uint64_t *deadline_ns)
{
	struct sv_stepped_device *first = NULL;

	*deadline_ns = SV_NEVER;
	for (uint32_t i = 0; i < fab->num_devices; i++) {
		uint64_t deadline = sv_port_next_deadline(fab->devices[i].port);

		if (deadline < *deadline_ns) {
			*deadline_ns = deadline;
			first = &fab->devices[i];
		}
	}
	return first;
}

/* Takes the way into its destination, behind those that came before it. */
static uint64_t arrive(struct sv_stepped *fab, struct sv_flight *f, uint64_t there_ns)
{
	f->arrived = true;
	return sv_links_arrive(&fab->links, &f->pkt, there_ns);
}

/*
 * Whatever is at the top of the heap comes next: events of packets that were delivered early (a
 * reordered one's time-out) are void, and a packet that finds its destination's link busy queues
 * there. It does so when its time has come or somebody looks at what comes next.
 */
static void settle_top(struct sv_stepped *fab)
{
	while (fab->heap_len && fab->heap[0].type == SV_EV_PACKET) {
		struct sv_event event = fab->heap[0];
		struct sv_flight *f = event.flight;

		if (f->done) {
			sv_event_pop(fab);
			sv_flight_drop_ref(fab, f);
			continue;
		}
		if (f->arrived ||
		    sv_links_arrival_ns(&fab->links, &f->pkt, event.time_ns) == event.time_ns)
			return;
		sv_event_pop(fab);
		event.time_ns = arrive(fab, f, event.time_ns);
		sv_event_push(fab, event);
	}
}

/* What comes next: heap, timer or timed rule, in this order at one time. */
static enum sv_event_kind next_event(struct sv_stepped *fab, uint64_t *time_ns,
				     struct sv_stepped_device **timer)
{
	uint64_t heap_ns, timer_ns, fault_ns = SV_NEVER;

	settle_top(fab);
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
	if (v.kinds & sv_bit(SV_FAULT_EVENT))
		sv_stepped_raise(v.host,
				 v.phys == SV_ANY ? v.rail : SV_RAIL_PORT(v.rail, v.phys + 1),
				 (enum ibv_event_type)v.event);
	sv_for_actions(&v, sv_stepped_act);
}

/* Doorbells that programs have rung since. */
static void look_at_doorbells(struct sv_stepped *fab)
{
	for (uint32_t i = 0; i < fab->num_devices; i++)
		sv_port_look_direct(fab->devices[i].port);
}

static bool step(struct sv_stepped *fab)
{
	struct sv_stepped_device *timer;
	struct sv_event event;
	enum sv_event_kind kind;
	uint64_t time_ns = 0;

	look_at_doorbells(fab);
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
	if (kind == SV_EVENT_FAULT && (!fab->heap_len || fab->heap[0].type == SV_EV_PACKET ||
				       fab->heap[0].time_ns > time_ns)) {
		run_faults(fab);
		return true;
	}
	event = sv_event_pop(fab);
	if (event.type == SV_EV_ACTION) {
		sv_stepped_act(&event.action);
	} else if (event.type == SV_EV_TELL) {
		sv_port_tell_state(sv_stepped_device_of(fab, event.port_index)->port,
				   event.port_index / fab->num_devices);
	} else {
		if (!event.flight->arrived)
			arrive(fab, event.flight, time_ns);
		deliver(fab, event.flight);
		sv_flight_drop_ref(fab, event.flight);
		if (fab->opts.inbox_packets)
			kick_all(fab);
	}
	return true;
}

bool sv_stepped_step_until(struct sv_stepped *fab, uint64_t until_ns)
{
	struct sv_stepped_device *timer;
	uint64_t time_ns = 0;

	look_at_doorbells(fab);
	if (next_event(fab, &time_ns, &timer) == SV_EVENT_NONE || time_ns > until_ns)
		return false;
	return step(fab);
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
	struct sv_stepped_device *timer;
	const struct sv_port_config *src, *dst;
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
	src = sv_port_cfg(sv_stepped_device_of(fab, pkt->src_port)->port);
	dst = sv_port_cfg(sv_stepped_device_of(fab, pkt->dst_port)->port);
	info->src_host = src->host;
	info->src_rail = src->rail;
	info->src_port = pkt->src_port / fab->num_devices + 1;
	info->dst_host = dst->host;
	info->dst_rail = dst->rail;
	info->dst_port = pkt->dst_port / fab->num_devices + 1;
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
