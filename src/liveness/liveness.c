/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, their links and the ports they run on: see liveness.h. */
#include "liveness/liveness.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "liveness/session.h"
#include "progress/command.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * Being late by this much is what threads are now and then, whatever the interval. DOWN takes three
 * pings without an answer, and whoever is late does not ping.
 */
#define STARVED_MIN_NS (5 * HA_NS_PER_MS)

/* Something came: in between the visits, so that an answer is not late by a tick. */
static void port_ready(struct ha_watch *watch, uint32_t events)
{
	struct ha_live_port *port = ha_container_of(watch, struct ha_live_port, watch);
	struct ha_liveness *live = port->live;
	bool sooner;

	(void)events;
	pthread_mutex_lock(&live->lock);
	if (!ha_datagrams_arm(port->datagrams))
		ha_progress_unwatch_self(live->progress, watch);
	else
		ha_datagrams_receive(port->datagrams, ha_session_received, port);
	sooner = live->due_ns < live->poller.due_ns;
	pthread_mutex_unlock(&live->lock);
	if (sooner) /* than the next visit */
		ha_liveness_look(live);
}

void ha_liveness_look(struct ha_liveness *live)
{
	ha_progress_call(live->progress, &live->poller);
}

/* ---- the visit ------------------------------------------------------------------------------ */

/* A ping is due: others that are nearly due go along. */
static void begin_beat(struct ha_liveness *live, uint64_t now_ns)
{
	live->beat.on = now_ns >= live->beat.due_ns;
	live->beat.pinged = 0;
	live->beat.due_ns = UINT64_MAX;
}

static void note_due(struct ha_liveness *live, const struct ha_pulse *pulse, uint64_t now_ns)
{
	uint64_t due_ns = ha_pulse_due_ns(pulse);

	if (due_ns < live->due_ns)
		live->due_ns = due_ns;
	if (pulse->next_ping_ns < live->beat.due_ns && ha_pulse_is_steady(pulse, now_ns))
		live->beat.due_ns = pulse->next_ping_ns;
}

static void tend_all(struct ha_liveness *live, bool starved, uint64_t now_ns)
{
	live->due_ns = UINT64_MAX;
	begin_beat(live, now_ns);
	for (int p = 0; p < live->nports; p++)
		for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
			struct ha_list *pos;

			ha_list_for_each (pos, &live->ports[p]->buckets[b]) {
				struct ha_session *s =
				    ha_container_of(pos, struct ha_session, in_bucket);

				ha_session_tend(s, starved, now_ns);
				note_due(live, &s->pulse, now_ns);
			}
		}
}

/* True when a device died since the last time. */
static bool receive_all(struct ha_liveness *live)
{
	bool died = false;

	for (int p = 0; p < live->nports; p++) {
		struct ha_live_port *port = live->ports[p];

		if (!port->dead && atomic_load(&port->port->nic->fatal))
			died = port->dead = true;
		if (!port->dead)
			ha_datagrams_receive(port->datagrams, ha_session_received, port);
	}
	return died;
}

/*
 * Visits come at half the interval at least, so that one that comes after more than an interval
 * says that the thread did not get to run.
 */
static bool was_starved(struct ha_liveness *live, uint64_t now_ns)
{
	uint64_t most_ns = live->interval_ns > STARVED_MIN_NS ? live->interval_ns : STARVED_MIN_NS;
	bool starved = live->visited_ns != 0 && now_ns - live->visited_ns > most_ns;

	live->visited_ns = now_ns;
	live->starved += starved;
	return starved;
}

static enum ha_poll_result visit(struct ha_poller *poller)
{
	struct ha_liveness *live = ha_container_of(poller, struct ha_liveness, poller);
	uint64_t now_ns = ha_now_ns();
	bool starved, died;

	pthread_mutex_lock(&live->lock);
	starved = was_starved(live, now_ns);
	/* First what has come: it may be what we would miss. */
	died = receive_all(live);
	now_ns = ha_now_ns();
	/* With a query under way we may have been woken because it is answered. */
	if (starved || died || live->queries != 0 || now_ns >= live->due_ns)
		tend_all(live, starved, now_ns);
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

/* ---- ports ---------------------------------------------------------------------------------- */

static struct ha_live_port *port_of(struct ha_liveness *live, const struct ha_port *port)
{
	for (int p = 0; p < live->nports; p++)
		if (live->ports[p]->port == port)
			return live->ports[p];
	return NULL;
}

/* A thread of the commands. */
static void close_port(struct ha_command *command)
{
	ha_datagrams_close(ha_container_of(command, struct ha_live_port, command)->datagrams);
}

static void bury_port(struct ha_command *command)
{
	free(ha_container_of(command, struct ha_live_port, command));
}

/* Nothing is received any more. Destroying its queue pair may take long, as that of a path. */
static void free_port(struct ha_live_port *port)
{
	struct ha_commands *commands =
	    ha_progress_commands(port->live->progress, (unsigned)port->port->nic->index);

	port->command.run = close_port;
	port->command.orphaned = bury_port;
	port->command.owner = &port->live->poller;
	port->command.key = (uintptr_t)port->datagrams;
	port->command.kind = HA_COMMAND_CLEAN;
	ha_list_init(&port->command.link);
	ha_command_send(commands, &port->command);
	ha_command_wait(commands, &port->command, ha_command_patience_ns);
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
		for (int p = 0; p < live->nports; p++)
			taken |= live->ports[p]->id == id;
	} while (taken || id == 0);
	return id;
}

static struct ha_live_port *new_port(struct ha_liveness *live, struct ha_port *of)
{
	struct ha_live_port *port = calloc(1, sizeof(*port));

	if (!port)
		return NULL;
	port->live = live;
	port->port = of;
	port->id = new_id(live);
	for (int b = 0; b < HA_LIVE_BUCKETS; b++)
		ha_list_init(&port->buckets[b]);
	if (ha_datagrams_open(of, ha_live_qkey(port->id), &port->datagrams) != HA_OK)
		goto err;
	port->watch.fd = ha_datagrams_fd(port->datagrams);
	port->watch.ready = port_ready;
	if (ha_progress_watch(live->progress, &port->watch) != HA_OK)
		goto err;
	return port;
err:
	free_port(port);
	return NULL;
}

/* The port's end of heartbeats, made if there is none. With the lock. */
static struct ha_live_port *open_port(struct ha_liveness *live, struct ha_port *of)
{
	struct ha_live_port *port = port_of(live, of);

	if (port || live->refused[of->index] || atomic_load(&of->nic->fatal) ||
	    live->nports == HA_MAX_PORTS)
		return port;
	port = new_port(live, of);
	if (port)
		live->ports[live->nports++] = port;
	else
		live->refused[of->index] = true;
	return port;
}

bool ha_liveness_endpoint(struct ha_liveness *live, struct ha_port *port,
			  struct ha_live_endpoint *out)
{
	struct ha_live_port *own;
	struct ha_port_addr addr;

	memset(out, 0, sizeof(*out));
	pthread_mutex_lock(&live->lock);
	own = open_port(live, port);
	pthread_mutex_unlock(&live->lock);
	if (!own)
		return false;
	ha_port_addr(port, &addr);
	out->id = own->id;
	out->qpn = ha_datagrams_qpn(own->datagrams);
	out->link_layer = addr.link_layer;
	out->lid = addr.lid;
	memcpy(out->gid, addr.gid.raw, sizeof(out->gid));
	return true;
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
	own = open_port(live, port);
	if (own) {
		s = ha_session_find(own, remote->id);
		if (s) {
			ha_session_follow(s, remote);
			ha_pulse_hurry(&s->pulse, ha_now_ns());
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

void ha_liveness_vouch(struct ha_liveness *live, struct ha_live_link *link)
{
	struct ha_session *s = link->session;

	if (!s)
		return;
	pthread_mutex_lock(&live->lock);
	ha_pulse_vouch(&s->pulse, ha_now_ns());
	pthread_mutex_unlock(&live->lock);
}

void ha_liveness_ask(struct ha_liveness *live, struct ha_live_link *link)
{
	struct ha_session *s = link->session;

	if (!s)
		return;
	pthread_mutex_lock(&live->lock);
	ha_pulse_ask(&s->pulse, ha_now_ns());
	live->due_ns = 0;
	pthread_mutex_unlock(&live->lock);
	ha_liveness_look(live);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void count_sessions(const struct ha_live_port *port, struct ha_live_port_report *out)
{
	for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
		const struct ha_list *pos;

		ha_list_for_each (pos, &port->buckets[b]) {
			struct ha_session *s = ha_container_of(pos, struct ha_session, in_bucket);

			out->sessions++;
			out->sessions_up += s->pulse.state == HA_SESSION_UP ||
					    s->pulse.state == HA_SESSION_SUSPECTED;
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
		out->restarts = ha_datagrams_restarts(own->datagrams);
		count_sessions(own, out);
	}
	pthread_mutex_unlock(&live->lock);
	return own != NULL;
}

uint64_t ha_liveness_starved(struct ha_liveness *live)
{
	uint64_t starved;

	pthread_mutex_lock(&live->lock);
	starved = live->starved;
	pthread_mutex_unlock(&live->lock);
	return starved;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct ha_liveness *ha_liveness_new(struct ha_progress *progress, const struct ha_config *config)
{
	struct ha_liveness *live = calloc(1, sizeof(*live));

	if (!live)
		return NULL;
	live->progress = progress;
	live->interval_ns = (unsigned)config->heartbeat_ms * HA_NS_PER_MS;
	live->due_ns = live->beat.due_ns = UINT64_MAX;
	live->process = ha_live_process(ha_random());
	pthread_mutex_init(&live->lock, NULL);
	ha_list_init(&live->poller.link);
	live->poller.visit = visit;
	ha_progress_add(progress, &live->poller);
	return live;
}

void ha_liveness_free(struct ha_liveness *live)
{
	if (!live)
		return;
	ha_progress_remove(live->progress, &live->poller);
	for (int p = 0; p < live->nports; p++) {
		struct ha_live_port *port = live->ports[p];

		ha_progress_unwatch(live->progress, &port->watch);
		for (int b = 0; b < HA_LIVE_BUCKETS; b++) {
			struct ha_list *node;

			while ((node = ha_list_pop_front(&port->buckets[b])))
				ha_session_free(
				    ha_container_of(node, struct ha_session, in_bucket));
		}
	}
	for (int p = 0; p < live->nports; p++)
		free_port(live->ports[p]);
	pthread_mutex_destroy(&live->lock);
	free(live);
}
