/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/server.h"

#include "base/clock.h"
#include "base/net_accept.h"
#include "device/events.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-switchd/controller.h"
#include "tools/nccl-ha-switchd/workers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define CHILDREN_MAX  8192
#define DRAIN_NS      (2 * HA_NS_PER_S) /* for groups to go on without this switch */
#define REFUSAL_EVERY HA_NS_PER_S
#define COUNT_EVERY   HA_NS_PER_S /* that the controller hears what has been counted */

struct server {
	struct ns_loop loop; /* first: the loop is the server */
	const struct ns_settings *settings;
	struct ns_equipment equipment;
	struct ns_groups groups;
	struct ns_workers workers;
	struct ns_inbox inbox; /* children that were at workers */
	struct ns_controller controller;
	struct ha_list children;
	unsigned n_children; /* those at workers, too */
	struct ha_seats seats;
	struct ha_net_reserve reserve;
	int signals;
	bool is_listening;
	uint64_t ending_ns; /* when the end was announced; 0: it was not */
	uint64_t refused, refusal_said_ns;
	uint64_t counted_ns;
};

/* The only one: what epoll reports are lines, and a child's does not say whose it is. */
static struct server *the_server;

/* ---- who comes and goes --------------------------------------------------------------------- */

static struct ns_child *child_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct ns_child, link);
}

static void stand_up(struct server *s, struct ns_child *child)
{
	if (child->is_seated)
		ha_seats_leave(&s->seats, &child->seat);
	child->is_seated = false;
}

static void show_out(struct server *s, struct ns_child *child)
{
	stand_up(s, child);
	ns_groups_leave(&s->groups, child);
	ha_talk_end(&child->line.talk);
	ha_list_remove(&child->link);
	s->n_children--;
	free(child);
}

/* Children are freed here alone, so that nobody has one in hand that is gone. */
static void show_out_over(struct server *s)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &s->children)
		if (ns_line_is_over(&child_at(pos)->line))
			show_out(s, child_at(pos));
}

/* One line a second: who floods us does not flood the log. */
static void refuse(struct server *s, struct ns_child *child, const char *why)
{
	s->refused++;
	ha_talk_refuse(&child->line.talk, why);
	ha_talk_end(&child->line.talk);
	if (s->refusal_said_ns && s->loop.now_ns - s->refusal_said_ns < REFUSAL_EVERY)
		return;
	s->refusal_said_ns = s->loop.now_ns;
	ns_wrong("refused a child: %s (%llu refused so far)", why, (unsigned long long)s->refused);
}

static void seat(struct server *s, struct ns_child *child, const union ha_sockaddr *from)
{
	if (s->seats.taken == HA_SEATS) {
		struct ha_seat *next = ha_seats_next_to_leave(&s->seats);
		struct ns_child *leaves = ha_container_of(next, struct ns_child, seat);

		stand_up(s, leaves);
		ha_talk_end(&leaves->line.talk);
	}
	ha_seats_take(&s->seats, &child->seat, ha_seats_source(from));
	child->is_seated = true;
}

/* ---- children of other threads --------------------------------------------------------------- */

static void hand_over(struct server *s, struct ns_child *child)
{
	stand_up(s, child);
	ns_line_unwatch(&child->line);
	ha_list_remove(&child->link);
	ns_workers_give(&s->workers, child);
}

static void take_back(struct server *s)
{
	struct ns_letter *letter;

	while ((letter = ns_inbox_take(&s->inbox))) {
		struct ns_child *child = ha_container_of(letter, struct ns_child, letter);

		ns_groups_return(&s->groups, child);
		ha_list_push_back(&s->children, &child->link);
		if (child->refusal)
			refuse(s, child, child->refusal);
		ha_talk_end(&child->line.talk); /* and it is shown out */
	}
}

/* ---- what children say ---------------------------------------------------------------------- */

/* False: it is another thread's now. */
static bool admit(struct server *s, struct ns_child *child)
{
	const char *why = NULL;

	switch (ns_groups_admit(&s->groups, child, s->loop.now_ns, &why)) {
	case NS_JOINED:
		stand_up(s, child);
		return true;
	case NS_REFUSED:
		refuse(s, child, why);
		return true;
	case NS_AWAY:
		hand_over(s, child);
		return false;
	case NS_WAITS:
		break;
	}
	return true;
}

static bool hear(struct server *s, struct ns_child *child)
{
	const struct ha_talk_frame *heard = &child->line.talk.heard;

	if (child->has_asked || heard->kind != HA_CTRL_JOIN ||
	    !ha_join_decode(heard->text, heard->length, &child->join)) {
		refuse(s, child, "a switch is asked once, to join a tree");
		return true;
	}
	child->has_asked = true;
	memcpy(child->secret, heard->secret, sizeof(child->secret));
	return admit(s, child);
}

static void look_at_child(struct ns_line *line, uint64_t now_ns)
{
	struct ns_child *child = (struct ns_child *)line;
	struct server *s = the_server;
	enum ha_talk_event event;

	(void)now_ns;
	while ((event = ha_talk_next(&line->talk)) != HA_TALK_NOTHING) {
		if (event == HA_TALK_HEARD && !hear(s, child))
			return;
		if (event == HA_TALK_ENDED && !line->talk.is_known && strstr(line->talk.why, "key"))
			refuse(s, child, line->talk.why);
	}
	ns_line_watch(line, s->groups.epoll);
}

static void let_in(struct server *s)
{
	union ha_sockaddr from;
	struct ns_child *child;
	const int fd = ha_net_accept(s->controller.listener, &s->reserve, &from);

	ha_net_reserve_fill(&s->reserve);
	if (fd < 0)
		return;
	child = s->n_children < CHILDREN_MAX ? calloc(1, sizeof(*child)) : NULL;
	if (!child) {
		close(fd);
		return;
	}
	ha_talk_take(&child->line.talk, fd, s->equipment.site, HA_CTRL_ASK_MAX);
	ns_line_begin(&child->line, look_at_child);
	child->since_ns = s->loop.now_ns;
	ha_list_push_back(&s->children, &child->link);
	s->n_children++;
	seat(s, child, &from);
	ns_line_watch(&child->line, s->groups.epoll);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void look_at_strangers(struct server *s)
{
	struct ha_list *pos, *after;

	ha_list_for_each_safe (pos, after, &s->children) {
		struct ns_child *child = child_at(pos);

		if (!child->is_seated)
			continue;
		if (s->controller.has_news && child->has_asked && !admit(s, child))
			continue;
		if (!child->is_seated ||
		    s->loop.now_ns - child->since_ns <= NS_SILENCE_MS * HA_NS_PER_MS)
			continue;
		if (child->has_asked)
			refuse(s, child, "the controller has told this switch of no such group");
		else
			ha_talk_end(&child->line.talk);
	}
	s->controller.has_news = false;
}

static struct ha_switch_counts counts_of(const struct server *s, unsigned thread)
{
	struct ha_switch_counts counts;

	if (thread == 0)
		ns_groups_count(&s->groups, &counts);
	else
		ns_worker_count(&s->workers.of[thread - 1], &counts);
	return counts;
}

static void count(struct server *s)
{
	struct ha_switch_counts all = {.refused = s->refused};

	if (s->loop.now_ns - s->counted_ns < COUNT_EVERY)
		return;
	s->counted_ns = s->loop.now_ns;
	for (unsigned i = 0; i <= s->workers.n; i++) {
		const struct ha_switch_counts one = counts_of(s, i);

#define ADD(name, help) all.name += one.name;
		HA_SWITCH_COUNTERS(ADD)
#undef ADD
	}
	ns_controller_count(&s->controller, &all);
}

/* An end that was announced is there when everybody has left, or that takes too long. */
static void look_at_end(struct server *s)
{
	s->loop.ends |= s->ending_ns && (ns_groups_are_left(&s->groups) ||
					 s->loop.now_ns - s->ending_ns >= DRAIN_NS);
}

static void tick(struct ns_loop *loop)
{
	struct server *s = (struct server *)loop;
	const struct ha_nic *nic = s->equipment.port->nic;

	ns_controller_tick(&s->controller, loop->now_ns);
	ns_groups_tick(&s->groups, loop->now_ns);
	count(s);
	look_at_strangers(s);
	show_out_over(s);
	if (!atomic_load(&nic->fatal))
		(void)ha_nic_read_events(s->equipment.set, s->equipment.port->nic);
	loop->ends |= s->controller.is_hopeless;
	look_at_end(s);
	if (!s->is_listening && s->controller.listener >= 0)
		s->is_listening =
		    ns_loop_watch(loop, s->controller.listener, &s->controller.listener);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The first one lets groups go first; another one ends it at once. */
static void heed_signal(struct server *s)
{
	struct signalfd_siginfo info;

	(void)!read(s->signals, &info, sizeof(info));
	s->loop.ends = s->ending_ns || ns_groups_are_left(&s->groups);
	if (s->loop.ends)
		return;
	s->ending_ns = s->loop.now_ns;
	ns_controller_leave(&s->controller);
	ns_groups_announce_end(&s->groups);
}

static void look(struct ns_loop *loop, void *source)
{
	struct server *s = (struct server *)loop;

	if (source == &s->signals)
		heed_signal(s);
	else if (source == &s->controller.listener)
		let_in(s);
	else if (source == &s->inbox)
		take_back(s);
	else
		((struct ns_line *)source)->look(source, loop->now_ns);
	if (s->controller.has_news)
		look_at_strangers(s);
	show_out_over(s);
	look_at_end(s);
}

static bool watch(struct server *s)
{
	s->signals = ends_open();
	return (s->inbox.fd >= 0 && s->groups.epoll >= 0 && s->signals >= 0 &&
		ns_loop_watch(&s->loop, s->signals, &s->signals) &&
		ns_loop_watch(&s->loop, s->inbox.fd, &s->inbox)) ||
	       ns_wrong("no descriptors: %s", strerror(errno));
}

static bool begin(struct server *s)
{
	const unsigned threads = s->settings->threads;

	if (!watch(s))
		return false;
	ns_groups_share(&s->groups, threads, ns_workers_tell, &s->workers);
	return ns_workers_begin(&s->workers, threads - 1, s->equipment.processor, s->equipment.port,
				s->equipment.site, &s->inbox);
}

static bool end_groups(struct server *s)
{
	const uint64_t until_ns = ha_real_ns() + NS_FAREWELL_NS;

	while (!ns_groups_end(&s->groups)) {
		if (ha_real_ns() > until_ns)
			return ns_wrong("the device does not let go of a tree");
		(void)poll(NULL, 0, 10);
	}
	return true;
}

/* How the work was shared, as they have counted it. */
static void say_shares(const struct server *s)
{
	for (unsigned i = 0; s->workers.n > 0 && i <= s->workers.n; i++) {
		const struct ha_switch_counts counts = counts_of(s, i);

		printf("nccl-ha-switchd: thread %u added %llu units, %llu bytes, of %llu trees\n",
		       i, (unsigned long long)counts.units, (unsigned long long)counts.unit_bytes,
		       (unsigned long long)counts.trees_made);
	}
	(void)fflush(stdout);
}

static bool end(struct server *s)
{
	struct ha_list *pos;
	bool good;

	ha_list_for_each (pos, &s->children)
		ha_talk_end(&child_at(pos)->line.talk);
	ns_controller_end(&s->controller);
	good = ns_workers_stop(&s->workers);
	take_back(s);
	show_out_over(s);
	good = end_groups(s) && good;
	say_shares(s);
	ha_net_reserve_close(&s->reserve);
	if (s->signals >= 0)
		close(s->signals);
	if (!good) /* what is left may still be used, until the process ends */
		return false;
	ns_workers_free(&s->workers);
	ns_inbox_end(&s->inbox);
	if (s->groups.epoll >= 0)
		close(s->groups.epoll);
	ns_equipment_end(&s->equipment);
	return !s->controller.is_hopeless;
}

int ns_serve(const struct ns_settings *settings)
{
	static struct server s;
	bool good;

	s = (struct server){.loop = {.groups = &s.groups, .look = look, .tick = tick},
			    .settings = settings,
			    .signals = -1};
	the_server = &s;
	ha_list_init(&s.children);
	ha_seats_init(&s.seats);
	ha_net_reserve_init(&s.reserve);
	(void)ns_inbox_begin(&s.inbox);
	good = ns_equipment_begin(&s.equipment, settings);
	ns_groups_begin(&s.groups, s.equipment.port, s.equipment.site,
			epoll_create1(EPOLL_CLOEXEC));
	good = good && begin(&s);
	ns_controller_begin(&s.controller, settings, &s.equipment, &s.groups);
	ha_net_reserve_fill(&s.reserve);
	while (good && !s.loop.ends)
		ns_loop_turn(&s.loop);
	return end(&s) && good ? 0 : 1;
}
