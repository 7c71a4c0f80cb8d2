/* SPDX-License-Identifier: Apache-2.0 */
#include "instance/port_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "liveness/liveness.h"
#include "progress/command.h"
#include "transport/async_event.h"
#include "transport/comm_stats.h"
#include "transport/shared.h"

#include <stdlib.h>

/*
 * A port that was found down without an event may come back without one, too: a carrier that is
 * back before the driver has told of its loss. It is read again so soon at first, and then so
 * often.
 */
#define AGAIN_MIN_NS (100 * HA_NS_PER_MS)
#define AGAIN_MAX_NS HA_NS_PER_S

/*
 * Heartbeats that could not begin on a port, for want of memory or of a queue pair, are tried again
 * so soon at first, and then so often.
 */
#define BEGIN_MIN_NS (100 * HA_NS_PER_MS)
#define BEGIN_MAX_NS (60 * HA_NS_PER_S)

struct port_watch {
	struct ha_command refresh;
	struct ha_port *port;
	/* Progress thread. */
	bool sent;
	struct {
		bool usable;
		uint32_t errors, addr_gen;
	} told; /* what connections know of it */
	bool was_active;
	uint32_t active_errors;	     /* port->errors when it was seen active last */
	uint64_t pause_ns, again_ns; /* it is down, and no event said so: read again; 0: not */
	uint64_t begin_pause_ns, begin_ns; /* heartbeats are to be tried again; 0: not */
};

struct ha_port_watches {
	struct ha_instance *inst;
	struct ha_poller poller;
	struct port_watch watches[HA_MAX_PORTS];
};

static struct ha_commands *commands_of(const struct ha_instance *inst, const struct port_watch *w)
{
	return ha_progress_commands(inst->progress, (unsigned)w->port->nic->index);
}

/* What goes wrong is logged there, and leaves the port as it was. */
static void refresh(struct ha_command *command)
{
	(void)!ha_port_refresh(ha_container_of(command, struct port_watch, refresh)->port);
}

/* Its memory is the instance's, which waits for it. */
static void refresh_left(struct ha_command *command)
{
	(void)command;
}

static void send_if_due(struct ha_instance *inst, struct port_watch *w)
{
	if (w->sent || !atomic_exchange(&w->port->refresh_due, false))
		return;
	w->sent = true;
	ha_command_send(commands_of(inst, w), &w->refresh);
}

void ha_port_watches_doubt(void *arg, struct ha_port *port)
{
	struct ha_instance *inst = arg;

	atomic_store(&port->refresh_due, true);
	ha_progress_call(inst->progress, &inst->port_watches->poller);
}

void ha_port_watches_look(struct ha_instance *inst, const struct ha_nic *nic)
{
	for (int i = 0; i < inst->devices->nports_all; i++)
		if (inst->port_watches->watches[i].port->nic == nic)
			send_if_due(inst, &inst->port_watches->watches[i]);
}

bool ha_port_watches_pending(const struct ha_instance *inst, const struct ha_nic *nic)
{
	for (int i = 0; i < inst->devices->nports_all; i++) {
		const struct port_watch *w = &inst->port_watches->watches[i];

		if (w->port->nic == nic && (w->sent || atomic_load(&w->port->refresh_due)))
			return true;
	}
	return false;
}

/* Whether it is another than connections know: most events change nothing that they use. */
static bool changed(struct port_watch *w)
{
	bool usable = ha_port_usable(w->port), same;
	uint32_t errors = atomic_load(&w->port->errors);
	struct ha_port_addr addr;

	ha_port_addr(w->port, &addr);
	same = usable == w->told.usable && errors == w->told.errors &&
	       addr.addr_gen == w->told.addr_gen;
	w->told.usable = usable;
	w->told.errors = errors;
	w->told.addr_gen = addr.addr_gen;
	return !same;
}

/* Of a pause before the next try: 0 is none yet. */
static uint64_t longer(uint64_t pause_ns, uint64_t min_ns, uint64_t max_ns)
{
	if (pause_ns == 0)
		return min_ns;
	return pause_ns < max_ns / 2 ? 2 * pause_ns : max_ns;
}

static void look_again_later(struct port_watch *w, uint64_t now_ns)
{
	w->pause_ns = longer(w->pause_ns, AGAIN_MIN_NS, AGAIN_MAX_NS);
	w->again_ns = now_ns + w->pause_ns;
}

/* It was read: does anything say when to do so the next time? */
static void expect_event(struct port_watch *w, uint64_t now_ns)
{
	bool active = atomic_load(&w->port->state) == IBV_PORT_ACTIVE;
	uint32_t errors = atomic_load(&w->port->errors);

	if (active) {
		w->was_active = true;
		w->active_errors = errors;
	}
	if (active || !w->was_active || errors != w->active_errors ||
	    atomic_load(&w->port->nic->fatal)) {
		w->pause_ns = w->again_ns = 0;
		return;
	}
	if (w->pause_ns == 0)
		HA_WARN(
		    "%s:%d: the port is down, and no event has said so yet; what uses it leaves "
		    "it",
		    w->port->nic->name, w->port->port_num);
	look_again_later(w, now_ns);
}

static void begin_later(struct port_watch *w, uint64_t now_ns)
{
	w->begin_pause_ns = longer(w->begin_pause_ns, BEGIN_MIN_NS, BEGIN_MAX_NS);
	w->begin_ns = now_ns + w->begin_pause_ns;
}

/*
 * True: heartbeats have begun, of which connections and their peers do not know. The pause before
 * the next try grows with what was refused, which nothing is on a port that is down: one that is
 * back is not to wait for as long as it was away. When a device that died is open again, its
 * heartbeats are begun there.
 */
static bool begin_heartbeats(struct ha_instance *inst, struct port_watch *w, uint64_t now_ns)
{
	if (!ha_liveness_refused(inst->liveness, w->port)) {
		w->begin_pause_ns = w->begin_ns = 0;
		return ha_liveness_came_late(inst->liveness, w->port);
	}
	if (w->begin_ns == 0) {
		begin_later(w, now_ns);
	} else if (now_ns >= w->begin_ns) {
		if (!ha_port_usable(w->port) || ha_liveness_reopening(inst->liveness, w->port)) {
			w->begin_ns = now_ns + BEGIN_MIN_NS;
			return false;
		}
		ha_liveness_reopen(inst->liveness, w->port);
		begin_later(w, now_ns);
	}
	return false;
}

static void read_again(struct ha_instance *inst, struct port_watch *w, uint64_t now_ns)
{
	if (w->again_ns != 0 && now_ns >= w->again_ns) {
		w->again_ns = 0;
		atomic_store(&w->port->refresh_due, true);
	}
	send_if_due(inst, w);
}

/* Progress thread, when a command is back, or it is time to read a port again. */
static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_port_watches *all = ha_container_of(poller, struct ha_port_watches, poller);
	struct ha_instance *inst = all->inst;
	uint64_t due_ns = 0;
	uint64_t ports = 0, now_ns = ha_now_ns();

	for (int i = 0; i < inst->devices->nports_all; i++) {
		struct port_watch *w = &all->watches[i];

		if (w->sent && ha_command_busy(&w->refresh))
			continue;
		if (w->sent) {
			w->sent = false;
			if (changed(w))
				ports |= ha_port_bit(w->port);
			expect_event(w, now_ns);
			ha_port_stats_publish(inst, w->port->nic);
		}
		read_again(inst, w, now_ns); /* an event may have come meanwhile */
		if (begin_heartbeats(inst, w, now_ns))
			ports |= ha_port_bit(w->port);
		due_ns = ha_earlier_ns(due_ns, w->again_ns);
		due_ns = ha_earlier_ns(due_ns, w->begin_ns);
	}
	poller->due_ns = due_ns;
	if (ports != 0) {
		pthread_mutex_lock(&inst->lock);
		ha_comms_ports_changed(inst, ports);
		pthread_mutex_unlock(&inst->lock);
	}
	return HA_POLL_ASLEEP;
}

ha_result_t ha_port_watches_open(struct ha_instance *inst)
{
	struct ha_port_watches *all = calloc(1, sizeof(*all));

	if (!all)
		return HA_ERR_SYSTEM;
	all->inst = inst;
	ha_list_init(&all->poller.link);
	all->poller.visit = visit;
	for (int i = 0; i < inst->devices->nports_all; i++) {
		struct port_watch *w = &all->watches[i];

		w->port = &inst->devices->ports[i];
		(void)changed(w);
		w->was_active = atomic_load(&w->port->state) == IBV_PORT_ACTIVE;
		w->refresh.kind = HA_COMMAND_DEVICE;
		w->refresh.key = (uintptr_t)w->port;
		w->refresh.owner = &all->poller;
		w->refresh.run = refresh;
		w->refresh.abandoned = refresh_left;
	}
	inst->port_watches = all;
	ha_progress_add(inst->progress, &all->poller);
	return HA_OK;
}

void ha_port_watches_close(struct ha_instance *inst)
{
	struct ha_port_watches *all = inst->port_watches;

	if (!all)
		return;
	ha_progress_remove(inst->progress, &all->poller);
	for (int i = 0; i < inst->devices->nports_all; i++)
		if (all->watches[i].sent)
			ha_command_leave(commands_of(inst, &all->watches[i]),
					 &all->watches[i].refresh);
}

void ha_port_watches_free(struct ha_instance *inst)
{
	free(inst->port_watches);
	inst->port_watches = NULL;
}
