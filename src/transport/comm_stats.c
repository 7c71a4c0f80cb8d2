/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/comm_stats.h"

#include "base/clock.h"
#include "base/stats.h"
#include "base/text.h"
#include "device/give_back.h"
#include "liveness/liveness.h"
#include "transport/comm.h"
#include "transport/comm_event.h"
#include "transport/ctrl_sock.h"
#include "transport/failover_ops.h"
#include "transport/gpu_proof.h"
#include "transport/rail_share.h"
#include "transport/shared.h"

#include <string.h>
#include <sys/socket.h>

_Static_assert(NCCL_HA_MAX_PATHS == HA_MAX_PATHS, "a record for each");
_Static_assert(NCCL_HA_MAX_RAILS == HA_RAILS_MAX, "a record for each");

#define INTERVAL_NS (250 * HA_NS_PER_MS)

/* In which hundreds of connections have moved, if they can. */
#define HELD_NS (100 * HA_NS_PER_MS)

static void fill_histogram(const struct ha_hist *hist, struct nccl_ha_histogram *out)
{
	memcpy(out, hist, sizeof(*out)); /* the same layout, as base/stats.c asserts */
}

/* ---- ports --------------------------------------------------------------------------------- */

/* The instance's lock is held: the counters are under it. */
static void write_port(struct ha_instance *inst, int i)
{
	struct ha_port *port = &inst->devices->ports[i];
	const struct ha_port_report *report = &inst->port_reports[i];
	struct nccl_ha_port_stats out = {0};
	struct ha_live_port_report heartbeats;
	struct ha_port_addr addr;
	size_t path_length = strlen(port->nic->pci_path);
	struct ha_leaks leaks = ha_nic_leaks(port->nic);

	ha_port_addr(port, &addr);
	out.in_use = 1;
	out.device = port->was_up ? i : -1;
	if (port->bundle) {
		out.nccl_device = (int32_t)(port->bundle - inst->devices->bundles);
		out.rails = (uint32_t)port->bundle->nrails;
		out.rail = (uint32_t)port->rail;
	}
	ha_copy_text(out.nic, sizeof(out.nic), port->nic->name);
	out.port_num = port->port_num;
	out.link_layer = port->link_layer;
	out.state = (uint32_t)atomic_load(&port->state);
	out.drained = ha_port_drained(port);
	out.device_fatal = atomic_load(&port->nic->fatal);
	out.speed_mbps = (uint32_t)atomic_load(&port->speed_mbps);
	out.gid_index = addr.gid_index;
	out.lid = addr.lid;
	out.numa_node = port->nic->numa_node;
	out.guid = port->nic->guid;
	memcpy(out.gid, addr.gid.raw, sizeof(out.gid));
	ha_copy_text(out.pci_path, sizeof(out.pci_path),
		     port->nic->pci_path + (path_length >= sizeof(out.pci_path)
						? path_length - sizeof(out.pci_path) + 1
						: 0));
	out.connections_open = report->connections_open;
	out.port_errors = report->port_errors;
	out.port_recoveries = report->port_recoveries;
	out.address_changes = report->address_changes;
	out.device_errors = report->device_errors;
	out.messages = report->messages;
	out.bytes = report->bytes;
	out.departures = report->departures;
	out.stripes = report->stripes;
	out.stripe_bytes = report->stripe_bytes;
#define COPY(name, help) out.name = report->name;
	NCCL_HA_PORT_SHED_COUNTERS(COPY)
#undef COPY
	out.leaked_queue_pairs = leaks.of[HA_OBJECT_QP];
	out.leaked_registrations = leaks.of[HA_OBJECT_MR];
	for (unsigned kind = 0; kind < HA_OBJECT_KINDS; kind++)
		if (kind != HA_OBJECT_QP && kind != HA_OBJECT_MR)
			out.leaked_objects += leaks.of[kind];
	if (inst->liveness && ha_liveness_port_report(inst->liveness, port, &heartbeats)) {
		out.heartbeats_sent = heartbeats.pings;
		out.heartbeats_received = heartbeats.pongs;
		out.heartbeats_lost = heartbeats.lost;
		out.sessions_up = (uint64_t)heartbeats.sessions_up;
		out.sessions = (uint64_t)heartbeats.sessions;
		fill_histogram(&heartbeats.round_trips, &out.heartbeat_rtt);
	}
	ha_stats_port_write(inst->stats, report->slot, &out);
}

void ha_port_stats_open(struct ha_instance *inst)
{
	pthread_mutex_lock(&inst->lock);
	for (int i = 0; i < inst->devices->nports_all; i++) {
		inst->port_reports[i].slot = ha_stats_port_add(inst->stats);
		write_port(inst, i);
	}
	pthread_mutex_unlock(&inst->lock);
}

void ha_port_stats_close(struct ha_instance *inst)
{
	for (int i = 0; inst->devices && i < inst->devices->nports_all; i++)
		ha_stats_port_remove(inst->stats, inst->port_reports[i].slot);
}

static void report_port(struct ha_instance *inst, const struct ha_port *port,
			enum ha_event_kind kind, enum ha_reason reason)
{
	struct ha_event event = ha_event_init(kind, reason);
	struct ha_event_path path = {port->nic->name, port->port_num, -1, 0};

	if (kind == HA_EVENT_FAILURE)
		event.from = path;
	else
		event.to = path;
	ha_event_report_port(inst, &event);
}

void ha_port_stats_event(struct ha_instance *inst, const struct ha_nic *nic,
			 const struct ibv_async_event *event)
{
	for (int i = 0; i < inst->devices->nports_all; i++) {
		const struct ha_port *port = &inst->devices->ports[i];
		struct ha_port_report *report = &inst->port_reports[i];

		if (port->nic != nic)
			continue;
		if (event->event_type == IBV_EVENT_DEVICE_FATAL) {
			report->device_errors++;
			report_port(inst, port, HA_EVENT_FAILURE, HA_REASON_DEVICE_FATAL);
		}
		if (event->element.port_num != port->port_num)
			continue;
		if (event->event_type == IBV_EVENT_PORT_ERR) {
			report->port_errors++;
			report_port(inst, port, HA_EVENT_FAILURE, HA_REASON_PORT_DOWN);
		}
		if (event->event_type == IBV_EVENT_PORT_ACTIVE) {
			report->port_recoveries++;
			report_port(inst, port, HA_EVENT_RECOVERY, HA_REASON_NONE);
		}
		report->address_changes += event->event_type == IBV_EVENT_GID_CHANGE ||
					   event->event_type == IBV_EVENT_LID_CHANGE;
	}
}

void ha_port_stats_reopened(struct ha_instance *inst, const struct ha_nic *nic)
{
	for (int i = 0; i < inst->devices->nports_all; i++) {
		const struct ha_port *port = &inst->devices->ports[i];

		if (port->nic != nic || atomic_load(&port->state) != IBV_PORT_ACTIVE)
			continue;
		inst->port_reports[i].port_recoveries++;
		report_port(inst, port, HA_EVENT_RECOVERY, HA_REASON_REOPENED);
	}
}

void ha_port_stats_leak(struct ha_instance *inst, struct ha_nic *nic, const struct ha_leaks *leaks)
{
	struct ha_event event = ha_event_init(HA_EVENT_LEAK, HA_REASON_NONE);
	char text[160];

	event.from = (struct ha_event_path){nic->name, 0, -1, 0};
	for (int i = inst->devices->nports_all; i-- > 0;)
		if (inst->devices->ports[i].nic == nic)
			event.from.port_num = inst->devices->ports[i].port_num;
	event.detail = ha_leaks_text(leaks, text, sizeof(text));
	ha_event_report_port(inst, &event);
	ha_port_stats_publish(inst, nic);
}

void ha_port_stats_publish(struct ha_instance *inst, const struct ha_nic *nic)
{
	pthread_mutex_lock(&inst->lock);
	for (int i = 0; i < inst->devices->nports_all; i++)
		if (inst->devices->ports[i].nic == nic)
			write_port(inst, i);
	pthread_mutex_unlock(&inst->lock);
}

/*
 * Heartbeats come and go without an event. Returns when it is to be called again, for one of those
 * whose connections have moved since; 0: by none. Progress thread.
 */
static uint64_t refresh_ports(struct ha_instance *inst, uint64_t now_ns)
{
	uint64_t due_ns = inst->ports_written_ns + INTERVAL_NS;
	bool moved;

	pthread_mutex_lock(&inst->lock);
	moved = inst->ports_moved;
	inst->ports_moved = false;
	for (int i = 0; now_ns >= due_ns && i < inst->devices->nports_all; i++)
		write_port(inst, i);
	pthread_mutex_unlock(&inst->lock);
	if (now_ns < due_ns)
		return moved ? due_ns : 0;
	inst->ports_written_ns = now_ns;
	return 0;
}

static void count_connection(struct ha_instance *inst, int port, int change)
{
	pthread_mutex_lock(&inst->lock);
	inst->port_reports[port].connections_open += (uint64_t)(int64_t)change;
	write_port(inst, port);
	pthread_mutex_unlock(&inst->lock);
}

/* Counts the connection where its traffic is. Between two paths it stays where it was. */
static void follow_path(struct ha_comm *comm)
{
	const struct ha_path *path = ha_comm_path(comm);
	int before = comm->report.port;

	if (!path || path->port->index == before)
		return;
	comm->report.port = path->port->index;
	comm->report.qps = path->nqps;
	if (before < 0) {
		count_connection(comm->inst, comm->report.port, 1);
		return;
	}
	/* Their records once for all that move. */
	pthread_mutex_lock(&comm->inst->lock);
	comm->inst->port_reports[before].departures++;
	comm->inst->port_reports[before].connections_open--;
	comm->inst->port_reports[comm->report.port].connections_open++;
	comm->inst->ports_moved = true;
	pthread_mutex_unlock(&comm->inst->lock);
}

static void add_sheds(struct ha_port_report *report, const struct nccl_ha_shed_stats *now,
		      const struct nccl_ha_shed_stats *was)
{
#define ADD(name, help) report->name += now->name - was->name;
	NCCL_HA_PORT_SHED_COUNTERS(ADD)
#undef ADD
}

/* What rails carried together since the last time, and lost, each for its port. */
static void count_stripes(struct ha_comm *comm)
{
	const struct ha_striped *now = &comm->striped;
	struct ha_striped *was = &comm->report.striped;

	if (memcmp(now, was, sizeof(*now)) == 0)
		return;
	pthread_mutex_lock(&comm->inst->lock);
	for (unsigned rail = 0; rail < ha_comm_rails(comm); rail++) {
		const struct ha_port *port = comm->port->bundle->rails[rail];
		struct ha_port_report *report = &comm->inst->port_reports[port->index];
		const uint64_t bytes = now->bytes[rail] - was->bytes[rail];

		report->stripes += now->stripes[rail] - was->stripes[rail];
		report->stripe_bytes += bytes;
		report->bytes += bytes;
		add_sheds(report, &now->sheds[rail], &was->sheds[rail]);
	}
	pthread_mutex_unlock(&comm->inst->lock);
	*was = *now;
}

/* What was completed since the last time, for the port where it was. */
static void count_traffic(struct ha_comm *comm)
{
	uint64_t messages = comm->count.messages - comm->report.messages;
	uint64_t whole = comm->count.bytes - comm->striped.complete, bytes;
	struct ha_port_report *port;

	count_stripes(comm);
	if (comm->report.port < 0 || messages == 0)
		return;
	/* A message whose stripes are through may not be complete yet. */
	bytes = (int64_t)(whole - comm->report.bytes) > 0 ? whole - comm->report.bytes : 0;
	comm->report.messages += messages;
	comm->report.bytes += bytes;
	port = &comm->inst->port_reports[comm->report.port];
	pthread_mutex_lock(&comm->inst->lock);
	port->messages += messages;
	port->bytes += bytes;
	pthread_mutex_unlock(&comm->inst->lock);
}

/* ---- connections --------------------------------------------------------------------------- */

static void fill_path(const struct ha_path *path, enum nccl_ha_path_health health,
		      struct nccl_ha_path_stats *out)
{
	if (!path)
		return;
	out->health = health;
	out->generation = path->generation;
	out->device = path->port->index;
	out->port_num = path->port->port_num;
	out->peer_guid = path->remote.guid;
}

static void fill_failovers(const struct ha_comm *comm, const struct ha_failover_view *view,
			   struct nccl_ha_conn_stats *out)
{
	const struct ha_failover_record *record = &comm->failovers;

	out->epoch = ha_comm_traffic_epoch(comm);
	out->active_path = comm->active;
	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		fill_path(comm->paths[i], view->health[i], &out->paths[i]);
	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		if (comm->paths[i] && comm->paths[i]->gpu_proof.state == HA_GPU_PROOF_GOOD)
			out->gpu_proved |= 1u << i;
	if (record->last_ns)
		ha_copy_text(out->last_failover_reason, sizeof(out->last_failover_reason),
			     ha_reason_text(record->last_reason));
	out->last_failover_ns = record->last_ns;
	out->last_blackout_ns = record->last_blackout_ns;
	fill_histogram(&record->detection, &out->detection);
	fill_histogram(&record->blackout, &out->blackout);
}

/*
 * Between two paths nothing is new, nor of heartbeats while a path between these ports is made
 * anew.
 */
static void fill_preferred(struct ha_comm *comm, const struct ha_failover_view *view,
			   struct nccl_ha_preferred_stats *out)
{
	static const uint32_t heartbeats = NCCL_HA_PREFERRED_ANSWERS | NCCL_HA_PREFERRED_SILENT;
	uint64_t *left_ns = &comm->report.left_ns;

	if (!view->off_preferred || view->preferred.marks & NCCL_HA_PREFERRED_READY)
		*left_ns = 0;
	else if (*left_ns == 0 && !view->moving)
		*left_ns = ha_wall_clock_ns();
	*out = view->preferred;
	out->left_ns = *left_ns;
	if (out->marks & NCCL_HA_PREFERRED_KNOWN && !(out->marks & heartbeats))
		out->marks |= comm->report.heartbeats;
	comm->report.heartbeats = out->marks & heartbeats;
}

static void fill_rails(const struct ha_comm *comm, struct nccl_ha_conn_stats *out)
{
	uint16_t shares[HA_RAILS_MAX];

	ha_rail_shares_now(comm, shares);
	for (unsigned rail = 0; rail < HA_RAILS_MAX; rail++)
		out->rails[rail] = (struct nccl_ha_rail_stats){
		    .share = shares[rail],
		    .stripes = comm->striped.stripes[rail],
		    .bytes = comm->striped.bytes[rail],
		};
	memcpy(out->sheds, comm->striped.sheds, sizeof(out->sheds));
}

static enum nccl_ha_conn_state state_of(const struct ha_failover_view *view, int error)
{
	if (error != 0)
		return NCCL_HA_CONN_ERROR;
	return view->moving ? NCCL_HA_CONN_FAILING_OVER : NCCL_HA_CONN_ACTIVE;
}

/* The token is held. */
static void write_comm(struct ha_comm *comm)
{
	struct nccl_ha_conn_stats out = {0};
	struct ha_failover_view view;
	int error = (int)ha_comm_error(comm);

	count_traffic(comm);
	follow_path(comm);
	out.in_use = 1;
	comm->ops->describe(comm, &view);
	out.state = state_of(&view, error);
	out.direction = comm->is_send ? NCCL_HA_CONN_SEND : NCCL_HA_CONN_RECV;
	out.device = comm->report.port;
	out.id = ha_comm_number(comm);
	out.opened_ns = comm->report.opened_ns;
	out.qps = comm->report.qps;
	out.error = error;
	ha_copy_text(out.peer, sizeof(out.peer), comm->report.peer);
#define COPY(name, help) out.name = comm->count.name;
	NCCL_HA_CONN_COUNTERS(COPY)
#undef COPY
	fill_failovers(comm, &view, &out);
	fill_preferred(comm, &view, &out.preferred);
	fill_rails(comm, &out);
	out.not_ready = atomic_load_explicit(&comm->not_ready, memory_order_relaxed);
	ha_stats_conn_write(comm->inst->stats, comm->report.slot, &out);
}

static void name_peer(struct ha_comm *comm)
{
	union ha_sockaddr addr = {0};
	socklen_t length = sizeof(addr);

	if (getpeername(comm->ctrl_sock->frames.fd, &addr.sa, &length) == 0)
		ha_sockaddr_text(&addr, comm->report.peer, sizeof(comm->report.peer));
}

void ha_comm_stats_open(struct ha_comm *comm)
{
	comm->report.slot = ha_stats_conn_add(comm->inst->stats);
	comm->report.opened_ns = ha_wall_clock_ns();
	name_peer(comm);
	comm->report.port = -1;
	write_comm(comm);
}

void ha_comm_stats_hold(struct ha_comm *comm)
{
	uint64_t now_ns = ha_now_ns(), held_ns = atomic_load(&comm->report.held_ns);

	/* One that moves again and again is seen all the same. */
	if (held_ns == 0 || now_ns >= held_ns + INTERVAL_NS)
		atomic_store(&comm->report.held_ns, now_ns + HELD_NS);
}

/* When the record is to be written next. */
static uint64_t publish_ns(struct ha_comm *comm)
{
	uint64_t held_ns = atomic_load(&comm->report.held_ns), due_ns;

	if (atomic_load_explicit(&comm->report.now, memory_order_relaxed))
		return 0;
	due_ns = comm->report.written_ns + INTERVAL_NS;
	if (atomic_load(&comm->report.moved) || due_ns < held_ns)
		due_ns = held_ns;
	return due_ns;
}

uint64_t ha_comm_stats_publish(struct ha_comm *comm)
{
	uint64_t now_ns, due_ns;

	if (comm->report.slot < 0)
		return 0;
	now_ns = ha_now_ns();
	due_ns = publish_ns(comm);
	if (now_ns < due_ns)
		return due_ns;
	if (!ha_token_try(comm) && !ha_token_ask(comm))
		return now_ns + INTERVAL_NS;
	atomic_store_explicit(&comm->report.now, false, memory_order_relaxed);
	atomic_store(&comm->report.moved, false);
	comm->report.written_ns = now_ns;
	write_comm(comm);
	ha_token_release(comm);
	return refresh_ports(comm->inst, now_ns);
}

void ha_comm_stats_close(struct ha_comm *comm)
{
	if (comm->report.slot >= 0) {
		ha_token_acquire(comm);
		write_comm(comm);
		ha_token_release(comm);
	}
	count_connection(comm->inst, comm->report.port, -1);
	ha_stats_conn_remove(comm->inst->stats, comm->report.slot);
	comm->report.slot = -1;
}
