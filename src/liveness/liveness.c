/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, their links and the ports they run on: see liveness.h. */
#include "liveness/liveness.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "liveness/check.h"
#include "liveness/session.h"
#include "liveness/session_label.h"
#include "liveness/session_recv.h"
#include "liveness/session_report.h"
#include "progress/command.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Being late by this much is what threads are now and then, whatever the interval. DOWN takes three
 * pings without an answer, and whoever is late does not ping.
 */
#define DELAYED_MIN_NS (5 * HA_NS_PER_MS)

static struct ha_commands *commands_of(const struct ha_live_port *port)
{
	return ha_progress_commands(port->live->progress, (unsigned)port->port->nic->index);
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* A thread of the commands. */
static void restart(struct ha_command *command)
{
	struct ha_live_port *port = ha_container_of(command, struct ha_live_port, restart);

	port->restart_rc = ha_ud_qp_restart(port->ud_qp);
}

/* Closing the port comes after it, and frees it. */
static void leave_restart(struct ha_command *command)
{
	(void)command;
}

static void send_restart(struct ha_live_port *port)
{
	port->restarting = true;
	port->restart.run = restart;
	port->restart.abandoned = leave_restart;
	port->restart.owner = &port->live->poller;
	port->restart.key = (uintptr_t)port;
	port->restart.kind = HA_COMMAND_DEVICE;
	ha_list_init(&port->restart.link);
	ha_ud_qp_restart_begin(port->ud_qp);
	ha_command_send(commands_of(port), &port->restart);
}

/* Brings the queue pair back when that is due, in the background. */
static void keep_running(struct ha_live_port *port)
{
	if (port->restarting && ha_command_done(&port->restart)) {
		port->restarting = false;
		ha_ud_qp_restart_end(port->ud_qp, port->restart_rc);
	}
	if (ha_ud_qp_restart_due(port->ud_qp) && !port->reopening &&
	    !atomic_load(&port->port->nic->sick))
		send_restart(port);
}

static void receive(struct ha_live_port *port)
{
	ha_ud_qp_receive(port->ud_qp, ha_session_received, port);
	keep_running(port);
}

/* Something came: in between the visits, so that an answer is not late by a tick. */
static void port_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_live_port *port = ha_container_of(watch, struct ha_live_port, watch);
	struct ha_liveness *live = port->live;
	bool sooner;

	(void)events;
	pthread_mutex_lock(&live->lock);
	if (!ha_ud_qp_arm(port->ud_qp))
		ha_progress_unwatch_self(live->progress, watch);
	else
		receive(port);
	sooner = live->due_ns < live->poller.due_ns;
	pthread_mutex_unlock(&live->lock);
	if (sooner) /* than the next visit */
		ha_liveness_look(live);
}

void ha_liveness_look(struct ha_liveness *live)
{
	ha_progress_call(live->progress, &live->poller);
}

/* ---- ports ---------------------------------------------------------------------------------- */

/* The port's end of heartbeats if it has one. */
static struct ha_live_port *port_of(struct ha_liveness *live, const struct ha_port *port)
{
	struct ha_live_port *own = live->asked[port->index];

	return own && own->state == HA_LIVE_PORT_OPEN ? own : NULL;
}

/* A thread of the commands. */
static void run_open(struct ha_command *command)
{
	struct ha_live_port *port = ha_container_of(command, struct ha_live_port, command);

	if (ha_ud_qp_open(port->port, ha_live_qkey(port->id), &port->ud_qp) != HA_OK)
		port->ud_qp = NULL;
}

/* A thread of the commands: what a port has, and what was being made for it. */
static void run_close(struct ha_command *command)
{
	struct ha_live_port *port = ha_container_of(command, struct ha_live_port, command);

	ha_ud_qp_close(port->ud_qp);
	ha_ud_qp_close(port->fresh);
}

static void free_port(struct ha_command *command)
{
	free(ha_container_of(command, struct ha_live_port, command));
}

/* Who wanted it ended meanwhile. */
static void free_opened(struct ha_command *command)
{
	run_close(command);
	free_port(command);
}

static void send_command(struct ha_live_port *port, enum ha_command_kind kind,
			 void (*run)(struct ha_command *), void (*abandoned)(struct ha_command *))
{
	port->command.run = run;
	port->command.abandoned = abandoned;
	port->command.owner = &port->live->poller;
	port->command.key = (uintptr_t)port;
	port->command.kind = (uint8_t)kind;
	ha_list_init(&port->command.link);
	ha_command_send(commands_of(port), &port->command);
}

/*
 * Nothing is received any more. Destroying its queue pair may take long, as that of a path. False:
 * the port has not even opened yet, and goes by itself when it has.
 */
static bool begin_close(struct ha_live_port *port)
{
	struct ha_commands *commands = commands_of(port);

	if ((port->state == HA_LIVE_PORT_OPENING || port->reopening) &&
	    !ha_command_disown(commands, &port->command))
		return false;
	if (port->restarting && !ha_command_disown(commands, &port->restart))
		port->restarting = false; /* it goes first */
	send_command(port, HA_COMMAND_CLEAN, run_close, free_port);
	return true;
}

static void end_close(struct ha_live_port *port)
{
	struct ha_commands *commands = commands_of(port);

	ha_command_wait(commands, &port->command, ha_command_timeout_ns);
	ha_command_leave(commands, &port->command);
}

/* Random, in its part of the process and in its own; no two ports have the same. */
static uint64_t new_id(const struct ha_liveness *live)
{
	const uint64_t mask = (1ull << HA_LIVE_PORT_BITS) - 1;
	uint64_t id;
	bool taken;

	do {
		id = live->process << HA_LIVE_PORT_BITS | (ha_random() & mask);
		taken = false;
		for (int p = 0; p < HA_MAX_PORTS; p++)
			taken |= live->asked[p] && live->asked[p]->id == id;
	} while (taken || id == 0);
	return id;
}

/* With the lock. */
static struct ha_live_port *begin_open(struct ha_liveness *live, struct ha_port *of)
{
	struct ha_live_port *port = calloc(1, sizeof(*port));

	if (!port)
		return NULL;
	port->live = live;
	port->port = of;
	port->id = new_id(live);
	port->watch.fd = -1;
	port->watch.ready = port_ready;
	for (int b = 0; b < HA_LIVE_BUCKETS; b++)
		ha_list_init(&port->buckets[b]);
	port->state = HA_LIVE_PORT_OPENING;
	live->asked[of->index] = port;
	send_command(port, HA_COMMAND_DEVICE, run_open, free_opened);
	return port;
}

/* With the lock: the port takes part from now on, if its queue pair is there. */
static void take_port(struct ha_liveness *live, struct ha_live_port *port)
{
	if (port->state != HA_LIVE_PORT_OPENING || !ha_command_done(&port->command))
		return;
	port->state = HA_LIVE_PORT_REFUSED;
	if (!port->ud_qp) {
		port->missed = true;
		if (live->doubt)
			live->doubt(live->doubt_arg, port->port);
		return;
	}
	port->watch.fd = ha_ud_qp_fd(port->ud_qp);
	if (ha_progress_watch(live->progress, &port->watch) != HA_OK) {
		port->watch.fd = -1;
		return;
	}
	port->state = HA_LIVE_PORT_OPEN;
	live->ports[live->nports++] = port;
	if (port->missed && live->doubt) /* there are connections that did not wait for it */
		live->doubt(live->doubt_arg, port->port);
}

/* ---- a device that is open again ------------------------------------------------------------ */

/* A queue pair that a port has no use for any more. */
struct past {
	struct ha_command command;
	struct ha_ud_qp *ud_qp;
};

static void close_past(struct ha_command *command)
{
	ha_ud_qp_close(ha_container_of(command, struct past, command)->ud_qp);
}

static void free_past(struct ha_command *command)
{
	free(ha_container_of(command, struct past, command));
}

/* Without memory for that it is left open, and its device with it. */
static void leave_to_the_past(const struct ha_live_port *port, struct ha_ud_qp *ud_qp)
{
	struct past *past = calloc(1, sizeof(*past));

	if (!past)
		return;
	past->ud_qp = ud_qp;
	past->command.run = close_past;
	past->command.abandoned = free_past;
	past->command.owner = &port->live->poller;
	past->command.key = (uintptr_t)port; /* after a restart of it */
	past->command.kind = HA_COMMAND_CLEAN;
	ha_list_init(&past->command.link);
	ha_command_send(commands_of(port), &past->command);
	ha_command_leave(commands_of(port), &past->command);
}

/* A thread of the commands. */
static void run_reopen(struct ha_command *command)
{
	struct ha_live_port *port = ha_container_of(command, struct ha_live_port, command);

	if (ha_ud_qp_open(port->port, ha_live_qkey(port->id), &port->fresh) != HA_OK)
		port->fresh = NULL;
}

/* With the lock: nothing of the dead queue pair is used any more. */
static void renew(struct ha_live_port *port)
{
	struct ha_list *pos;

	ha_progress_unwatch_self(port->live->progress, &port->watch);
	port->count.restarts += ha_ud_qp_restarts(port->ud_qp);
	leave_to_the_past(port, port->ud_qp);
	port->ud_qp = port->fresh;
	port->fresh = NULL;
	port->restarting = port->dead = false;
	port->watch.fd = ha_ud_qp_fd(port->ud_qp);
	if (ha_progress_watch(port->live->progress, &port->watch) != HA_OK)
		port->watch.fd = -1; /* visits receive as well, if late */
	for (int b = 0; b < HA_LIVE_BUCKETS; b++)
		ha_list_for_each (pos, &port->buckets[b])
			ha_session_renew(ha_container_of(pos, struct ha_session, in_bucket));
	port->live->due_ns = 0;
}

/* With the lock. One that could not take part before is like one that opens for the first time. */
static void take_reopened(struct ha_liveness *live, struct ha_live_port *port)
{
	if (!port->reopening || !ha_command_done(&port->command))
		return;
	port->reopening = false;
	if (port->state == HA_LIVE_PORT_OPEN && port->fresh) {
		renew(port);
	} else if (port->fresh) {
		port->ud_qp = port->fresh;
		port->fresh = NULL;
		port->state = HA_LIVE_PORT_OPENING;
		take_port(live, port);
	}
}

/* With the lock. What a command that is still out brings may be of the device that died: then once
 * more. */
static void begin_reopen(struct ha_liveness *live, struct ha_live_port *port)
{
	if (!port->reopen_due || port->reopening || ha_command_busy(&port->command))
		return;
	take_port(live, port);
	port->reopen_due = false;
	if (port->state == HA_LIVE_PORT_OPEN && !ha_ud_qp_device_died(port->ud_qp))
		return;
	port->reopening = true;
	send_command(port, HA_COMMAND_DEVICE, run_reopen, free_opened);
}

static void take_opened(struct ha_liveness *live)
{
	for (int p = 0; p < HA_MAX_PORTS; p++)
		if (live->asked[p]) {
			take_port(live, live->asked[p]);
			take_reopened(live, live->asked[p]);
			begin_reopen(live, live->asked[p]);
		}
}

void ha_liveness_reopen(struct ha_liveness *live, struct ha_port *of)
{
	struct ha_live_port *port;

	pthread_mutex_lock(&live->lock);
	port = live->asked[of->index];
	if (port) {
		port->reopen_due = true;
		begin_reopen(live, port);
	} else {
		(void)begin_open(live, of);
	}
	pthread_mutex_unlock(&live->lock);
}

bool ha_liveness_refused(struct ha_liveness *live, const struct ha_port *of)
{
	const struct ha_live_port *port;
	bool refused;

	pthread_mutex_lock(&live->lock);
	port = live->asked[of->index];
	refused = port && port->state == HA_LIVE_PORT_REFUSED && !port->ud_qp;
	pthread_mutex_unlock(&live->lock);
	return refused;
}

bool ha_liveness_came_late(struct ha_liveness *live, const struct ha_port *of)
{
	struct ha_live_port *port;
	bool late;

	pthread_mutex_lock(&live->lock);
	port = live->asked[of->index];
	late = port && port->state == HA_LIVE_PORT_OPEN && port->missed;
	if (late)
		port->missed = false;
	pthread_mutex_unlock(&live->lock);
	return late;
}

bool ha_liveness_reopening(struct ha_liveness *live, const struct ha_port *of)
{
	const struct ha_live_port *port;
	bool busy;

	pthread_mutex_lock(&live->lock);
	port = live->asked[of->index];
	busy = port && (port->reopening || port->reopen_due || port->state == HA_LIVE_PORT_OPENING);
	pthread_mutex_unlock(&live->lock);
	return busy;
}

/* ---- asking for a port ---------------------------------------------------------------------- */

/* The port's end of heartbeats, which is begun if there is none. */
static struct ha_live_port *asked_for(struct ha_liveness *live, struct ha_port *of)
{
	struct ha_live_port *port;

	pthread_mutex_lock(&live->lock);
	port = live->asked[of->index];
	if (!port && !atomic_load(&of->nic->fatal) && !atomic_load(&of->nic->sick))
		port = begin_open(live, of);
	pthread_mutex_unlock(&live->lock);
	return port;
}

static void tell_slow(const struct ha_live_port *port)
{
	HA_INFO(HA_SUBSYS_NET,
		"%s:%d: the queue pair of heartbeats takes long: connections have none on this "
		"port until it is there",
		port->port->nic->name, port->port->port_num);
}

/* Waits for it, but not for long. It is there until all is freed. */
static bool opened(struct ha_liveness *live, struct ha_live_port *port)
{
	enum ha_live_port_state state;
	bool tell;

	if (ha_command_busy(&port->command) && !atomic_load(&port->port->nic->sick))
		(void)ha_command_wait(commands_of(port), &port->command, ha_command_timeout_ns);
	pthread_mutex_lock(&live->lock);
	take_port(live, port);
	state = port->state;
	tell = state == HA_LIVE_PORT_OPENING && !port->missed;
	port->missed |= tell;
	pthread_mutex_unlock(&live->lock);
	if (tell)
		tell_slow(port);
	return state == HA_LIVE_PORT_OPEN;
}

/* ---- the visit ------------------------------------------------------------------------------ */

/* A ping is due: others that are nearly due go along. */
static void begin_batch(struct ha_liveness *live, uint64_t now_ns)
{
	live->batch.on = now_ns >= live->batch.due_ns;
	live->batch.pinged = 0;
	live->batch.due_ns = UINT64_MAX;
}

static void note_due(struct ha_liveness *live, const struct ha_detector *detector, uint64_t now_ns)
{
	uint64_t due_ns = ha_detector_due_ns(detector);

	if (due_ns < live->due_ns)
		live->due_ns = due_ns;
	if (detector->next_ping_ns < live->batch.due_ns && ha_detector_is_steady(detector, now_ns))
		live->batch.due_ns = detector->next_ping_ns;
}

static void visit_all(struct ha_liveness *live, bool delayed, uint64_t now_ns)
{
	live->due_ns = UINT64_MAX;
	begin_batch(live, now_ns);
	for (int p = 0; p < live->nports; p++)
		for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
			struct ha_list *pos;

			ha_list_for_each (pos, &live->ports[p]->buckets[b]) {
				struct ha_session *s =
				    ha_container_of(pos, struct ha_session, in_bucket);

				ha_session_visit(s, delayed, now_ns);
				ha_session_check(s);
				note_due(live, &s->detector, now_ns);
			}
		}
}

/* True when a device died since the last time. */
static bool receive_all(struct ha_liveness *live)
{
	bool died = false;

	for (int p = 0; p < live->nports; p++) {
		struct ha_live_port *port = live->ports[p];

		if (!port->dead && ha_ud_qp_device_died(port->ud_qp))
			died = port->dead = true;
		if (!port->dead)
			receive(port);
	}
	return died;
}

/*
 * Visits come at half the interval at least, so that one that comes after more than an interval
 * says that the thread did not get to run: a scheduling delay.
 */
static bool was_delayed(struct ha_liveness *live, uint64_t now_ns)
{
	uint64_t most_ns = live->interval_ns > DELAYED_MIN_NS ? live->interval_ns : DELAYED_MIN_NS;
	bool delayed = live->visited_ns != 0 && now_ns - live->visited_ns > most_ns;

	live->visited_ns = now_ns;
	live->delayed += delayed;
	return delayed;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_liveness *live = ha_container_of(poller, struct ha_liveness, poller);
	uint64_t now_ns = ha_now_ns();
	bool delayed, died;

	pthread_mutex_lock(&live->lock);
	delayed = was_delayed(live, now_ns);
	take_opened(live);
	/* First what has come: it may be what we would miss. */
	died = receive_all(live);
	now_ns = ha_now_ns();
	/* With a query under way we may have been woken because it is answered. */
	if (delayed || died || live->queries != 0 || now_ns >= live->due_ns)
		visit_all(live, delayed, now_ns);
	if (live->due_ns == UINT64_MAX) { /* nothing to do: this may be the last visit for long */
		poller->due_ns = 0;
		live->visited_ns = 0;
	} else {
		poller->due_ns = now_ns + live->interval_ns / 2;
		if (live->due_ns < poller->due_ns)
			poller->due_ns = live->due_ns;
	}
	pthread_mutex_unlock(&live->lock);
	return HA_POLL_ASLEEP;
}

bool ha_liveness_opened(struct ha_liveness *live, struct ha_port *port,
			struct ha_live_endpoint *out)
{
	struct ha_live_port *own;
	struct ha_port_addr addr;

	memset(out, 0, sizeof(*out));
	ha_port_addr(port, &addr);
	pthread_mutex_lock(&live->lock);
	own = port_of(live, port);
	if (own) {
		out->id = own->id;
		out->qpn = ha_ud_qp_qpn(own->ud_qp);
		out->link_layer = addr.link_layer;
		out->lid = addr.lid;
		memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
	}
	pthread_mutex_unlock(&live->lock);
	return own != NULL;
}

bool ha_liveness_endpoint(struct ha_liveness *live, struct ha_port *port,
			  struct ha_live_endpoint *out)
{
	struct ha_live_port *own = asked_for(live, port);

	memset(out, 0, sizeof(*out));
	return own && opened(live, own) && ha_liveness_opened(live, port, out);
}

/* ---- links ---------------------------------------------------------------------------------- */

bool ha_liveness_attach(struct ha_liveness *live, struct ha_port *port,
			const struct ha_live_endpoint *remote, uint8_t sl, uint8_t traffic_class,
			struct ha_live_link *link)
{
	struct ha_live_port *own;
	struct ha_session *s = NULL;

	if (remote->id == 0 || remote->qpn == 0)
		return false;
	pthread_mutex_lock(&live->lock);
	own = port_of(live, port);
	if (own) {
		s = ha_session_find(own, remote->id);
		if (s) {
			ha_session_follow(s, remote);
			ha_detector_ping_sooner(&s->detector, ha_now_ns());
		} else {
			s = ha_session_new(own, remote, sl, traffic_class);
		}
	}
	if (s) {
		link->session = s;
		ha_list_push_back(&s->links, &link->in_session);
		live->due_ns = 0;
	}
	pthread_mutex_unlock(&live->lock);
	if (s)
		ha_liveness_look(live);
	return s != NULL;
}

void ha_liveness_detach(struct ha_liveness *live, struct ha_live_link *link)
{
	struct ha_session *s = link->session;

	if (!s)
		return;
	pthread_mutex_lock(&live->lock);
	link->session = NULL;
	ha_list_remove(&link->in_session);
	if (ha_list_empty(&s->links))
		ha_session_free(s);
	pthread_mutex_unlock(&live->lock);
}

void ha_liveness_note_life(struct ha_liveness *live, struct ha_live_link *link)
{
	struct ha_session *s = link->session;

	if (!s)
		return;
	pthread_mutex_lock(&live->lock);
	ha_session_note_life(s, ha_now_ns());
	pthread_mutex_unlock(&live->lock);
}

/* Something about the session of a link, which makes it want a visit. */
static void ask(struct ha_liveness *live, struct ha_live_link *link,
		void (*what)(struct ha_detector *detector, uint64_t now_ns))
{
	struct ha_session *s = link->session;

	if (!s)
		return;
	pthread_mutex_lock(&live->lock);
	what(&s->detector, ha_now_ns());
	live->due_ns = 0;
	pthread_mutex_unlock(&live->lock);
	ha_liveness_look(live);
}

void ha_liveness_ask(struct ha_liveness *live, struct ha_live_link *link)
{
	ask(live, link, ha_detector_ask);
}

void ha_liveness_inquire(struct ha_liveness *live, struct ha_live_link *link)
{
	ask(live, link, ha_detector_inquire);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void count_sessions(const struct ha_live_port *port, struct ha_live_port_report *out)
{
	for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
		const struct ha_list *pos;

		ha_list_for_each (pos, &port->buckets[b]) {
			struct ha_session *s = ha_container_of(pos, struct ha_session, in_bucket);

			out->sessions++;
			out->sessions_up += s->detector.state == HA_SESSION_UP ||
					    s->detector.state == HA_SESSION_SUSPECTED;
		}
	}
}

bool ha_liveness_port_report(struct ha_liveness *live, const struct ha_port *port,
			     struct ha_live_port_report *out)
{
	struct ha_live_port *own;

	pthread_mutex_lock(&live->lock);
	own = port_of(live, port);
	if (own) {
		*out = own->count;
		out->restarts += ha_ud_qp_restarts(own->ud_qp);
		count_sessions(own, out);
	}
	pthread_mutex_unlock(&live->lock);
	return own != NULL;
}

uint64_t ha_liveness_delayed(struct ha_liveness *live)
{
	uint64_t delayed;

	pthread_mutex_lock(&live->lock);
	delayed = live->delayed;
	pthread_mutex_unlock(&live->lock);
	return delayed;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct ha_liveness *ha_liveness_new(struct ha_progress *progress, const struct ha_config *config)
{
	struct ha_liveness *live = calloc(1, sizeof(*live));

	if (!live)
		return NULL;
	live->progress = progress;
	live->interval_ns = (unsigned)config->heartbeat_ms * HA_NS_PER_MS;
	live->stall_ns = (unsigned)config->stall_ms * HA_NS_PER_MS;
	live->due_ns = live->batch.due_ns = UINT64_MAX;
	live->process = ha_live_process(ha_random());
	pthread_mutex_init(&live->lock, NULL);
	ha_list_init(&live->poller.link);
	live->poller.visit = visit;
	ha_progress_add(progress, &live->poller);
	return live;
}

void ha_liveness_trust(struct ha_liveness *live, const struct ha_job_key *key,
		       void (*refused)(void *arg), void *arg)
{
	live->key = key;
	live->refused = refused;
	live->refused_arg = arg;
}

void ha_liveness_on_doubt(struct ha_liveness *live, void (*doubt)(void *arg, struct ha_port *port),
			  void *arg)
{
	live->doubt = doubt;
	live->doubt_arg = arg;
}

static void free_sessions(struct ha_live_port *port)
{
	for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
		struct ha_list *node;

		while ((node = ha_list_pop_front(&port->buckets[b])))
			ha_session_free(ha_container_of(node, struct ha_session, in_bucket));
	}
}

void ha_liveness_free(struct ha_liveness *live)
{
	if (!live)
		return;
	ha_progress_remove(live->progress, &live->poller);
	for (int p = 0; p < live->nports; p++) {
		ha_progress_unwatch(live->progress, &live->ports[p]->watch);
		free_sessions(live->ports[p]);
	}
	/* All at once: several NICs may be slow. */
	for (int p = 0; p < HA_MAX_PORTS; p++)
		if (live->asked[p] && !begin_close(live->asked[p]))
			live->asked[p] = NULL;
	for (int p = 0; p < HA_MAX_PORTS; p++)
		if (live->asked[p])
			end_close(live->asked[p]);
	pthread_mutex_destroy(&live->lock);
	free(live);
}
