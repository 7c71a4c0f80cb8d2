/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-switchd/server.h"

#include "base/clock.h"
#include "base/net_accept.h"
#include "device/events.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-switchd/controller.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS	      (20 * HA_NS_PER_MS)
#define LOOK_NS	      (100 * HA_NS_PER_US) /* between two looks at sockets, while there is work */
#define LOSS_NS	      (50 * HA_NS_PER_US)  /* between two looks for what was lost */
#define CHILDREN_MAX  8192
#define DRAIN_NS      (2 * HA_NS_PER_S) /* for groups to go on without this switch */
#define FAREWELL_MS   2000		/* for a device to let go of what the last trees had */
#define REFUSAL_EVERY HA_NS_PER_S
#define COUNT_EVERY   HA_NS_PER_S /* that the controller hears what has been counted */

struct server {
	const struct ns_settings *settings;
	struct ns_equipment equipment;
	struct ns_groups groups;
	struct ns_controller controller;
	struct ha_list children;
	unsigned n_children;
	struct ha_seats seats;
	struct ha_net_reserve reserve;
	int epoll, signals;
	bool is_listening, ends;
	uint64_t ending_ns; /* when the end was announced; 0: it was not */
	uint64_t now_ns, moved_ns, looked_ns, loss_ns, ticked_ns;
	uint64_t refused, refusal_said_ns;
	uint64_t counted_ns;
	uint64_t used_ns; /* of the processor, before the last nap */
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
	if (s->refusal_said_ns && s->now_ns - s->refusal_said_ns < REFUSAL_EVERY)
		return;
	s->refusal_said_ns = s->now_ns;
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

/* ---- what children say ---------------------------------------------------------------------- */

static void admit(struct server *s, struct ns_child *child)
{
	const char *why = NULL;

	switch (ns_groups_admit(&s->groups, child, s->now_ns, &why)) {
	case NS_JOINED:
		stand_up(s, child);
		return;
	case NS_REFUSED:
		refuse(s, child, why);
		return;
	case NS_WAITS:
		return;
	}
}

static void hear(struct server *s, struct ns_child *child)
{
	const struct ha_talk_frame *heard = &child->line.talk.heard;

	if (child->has_asked || heard->kind != HA_CTRL_JOIN ||
	    !ha_join_decode(heard->text, heard->length, &child->join)) {
		refuse(s, child, "a switch is asked once, to join a tree");
		return;
	}
	child->has_asked = true;
	memcpy(child->secret, heard->secret, sizeof(child->secret));
	admit(s, child);
}

static void look_at_child(struct ns_line *line, uint64_t now_ns)
{
	struct ns_child *child = (struct ns_child *)line;
	struct server *s = the_server;
	enum ha_talk_event event;

	(void)now_ns;
	while ((event = ha_talk_next(&line->talk)) != HA_TALK_NOTHING) {
		if (event == HA_TALK_HEARD)
			hear(s, child);
		else if (event == HA_TALK_ENDED && !line->talk.is_known &&
			 strstr(line->talk.why, "key"))
			refuse(s, child, line->talk.why);
	}
	ns_line_watch(line, s->epoll);
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
	child->since_ns = s->now_ns;
	ha_list_push_back(&s->children, &child->link);
	s->n_children++;
	seat(s, child, &from);
	ns_line_watch(&child->line, s->epoll);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void look_at_strangers(struct server *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->children) {
		struct ns_child *child = child_at(pos);

		if (!child->is_seated)
			continue;
		if (s->controller.has_news && child->has_asked)
			admit(s, child);
		if (!child->is_seated ||
		    s->now_ns - child->since_ns <= NS_SILENCE_MS * HA_NS_PER_MS)
			continue;
		if (child->has_asked)
			refuse(s, child, "the controller has told this switch of no such group");
		else
			ha_talk_end(&child->line.talk);
	}
	s->controller.has_news = false;
}

static void count(struct server *s)
{
	struct ha_switch_counts counts;

	if (s->now_ns - s->counted_ns < COUNT_EVERY)
		return;
	s->counted_ns = s->now_ns;
	ns_groups_count(&s->groups, &counts);
	counts.refused = s->refused;
	ns_controller_count(&s->controller, &counts);
}

static void tick(struct server *s)
{
	const struct ha_nic *nic = s->equipment.port->nic;

	s->ticked_ns = s->now_ns;
	ns_controller_tick(&s->controller, s->now_ns);
	ns_groups_tick(&s->groups, s->now_ns);
	count(s);
	look_at_strangers(s);
	show_out_over(s);
	if (!atomic_load(&nic->fatal))
		(void)ha_nic_read_events(s->equipment.set, s->equipment.port->nic);
	s->ends |= s->controller.is_hopeless;
	if (s->is_listening || s->controller.listener < 0)
		return;
	s->is_listening =
	    epoll_ctl(
		s->epoll, EPOLL_CTL_ADD, s->controller.listener,
		&(struct epoll_event){.events = EPOLLIN, .data.ptr = &s->controller.listener}) == 0;
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The first one lets groups go first; another one ends it at once. */
static void heed_signal(struct server *s)
{
	struct signalfd_siginfo info;

	(void)!read(s->signals, &info, sizeof(info));
	s->ends = s->ending_ns || s->groups.n_trees == 0;
	if (s->ends)
		return;
	s->ending_ns = s->now_ns;
	ns_controller_leave(&s->controller);
	ns_groups_announce_end(&s->groups);
}

/* One at a time: what it does may end what others are of. */
static bool take_event(struct server *s)
{
	struct epoll_event event;

	if (epoll_wait(s->epoll, &event, 1, 0) != 1)
		return false;
	if (event.data.ptr == &s->signals)
		heed_signal(s);
	else if (event.data.ptr == &s->controller.listener)
		let_in(s);
	else
		((struct ns_line *)event.data.ptr)->look(event.data.ptr, s->now_ns);
	if (s->controller.has_news)
		look_at_strangers(s);
	show_out_over(s);
	return !s->ends;
}

static uint64_t processor_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * HA_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Whatever a look at all trees costs, as long as nothing comes it is a small share of a processor.
 */
static uint64_t longest_nap(struct server *s)
{
	const uint64_t used_ns = processor_ns(), turn_ns = used_ns - s->used_ns;

	s->used_ns = used_ns;
	return turn_ns * NS_NAP_TURNS > NS_NAP_MOST_NS ? turn_ns * NS_NAP_TURNS : NS_NAP_MOST_NS;
}

static void nap(struct server *s)
{
	struct pollfd p = {.fd = s->epoll, .events = POLLIN};
	const uint64_t tick_ns = s->ticked_ns + TICK_NS;
	const uint64_t idle_ns = (s->now_ns - s->moved_ns) / NS_NAP_PART,
		       longest_ns = longest_nap(s);
	const uint64_t most_ns = idle_ns < longest_ns ? idle_ns : longest_ns;
	uint64_t nap_ns = tick_ns > s->now_ns ? tick_ns - s->now_ns : 0;
	struct timespec limit;

	if (s->groups.n_trees > 0 && most_ns < nap_ns)
		nap_ns = most_ns;
	limit = (struct timespec){.tv_nsec = (long)nap_ns};
	(void)ppoll(&p, 1, &limit, NULL);
}

static void turn(struct server *s)
{
	const bool moved = ns_groups_progress(&s->groups);

	s->now_ns = ha_real_ns();
	if (moved)
		s->moved_ns = s->now_ns;
	if (!moved || s->now_ns - s->looked_ns >= LOOK_NS) {
		s->looked_ns = s->now_ns;
		while (take_event(s))
			;
	}
	if (s->now_ns - s->loss_ns >= LOSS_NS) {
		s->loss_ns = s->now_ns;
		ns_groups_look(&s->groups, s->now_ns);
	}
	if (s->now_ns - s->ticked_ns >= TICK_NS)
		tick(s);
	if (s->ending_ns && (s->groups.n_trees == 0 || s->now_ns - s->ending_ns >= DRAIN_NS))
		s->ends = true;
	if (!moved && (s->groups.n_trees == 0 || s->now_ns - s->moved_ns > NS_SPIN_NS))
		nap(s);
}

static bool watch_signals(struct server *s)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &s->signals};

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->signals = ends_open();
	return (s->epoll >= 0 && s->signals >= 0 &&
		epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->signals, &event) == 0) ||
	       ns_wrong("no descriptors: %s", strerror(errno));
}

static bool end_groups(struct server *s)
{
	const uint64_t until_ns = ha_real_ns() + FAREWELL_MS * HA_NS_PER_MS;

	while (!ns_groups_end(&s->groups)) {
		if (ha_real_ns() > until_ns)
			return ns_wrong("the device does not let go of a tree");
		(void)poll(NULL, 0, 10);
	}
	return true;
}

static bool end(struct server *s)
{
	struct ha_list *pos;
	bool good;

	ha_list_for_each (pos, &s->children)
		ha_talk_end(&child_at(pos)->line.talk);
	show_out_over(s);
	ns_controller_end(&s->controller);
	good = end_groups(s);
	ha_net_reserve_close(&s->reserve);
	if (s->signals >= 0)
		close(s->signals);
	if (s->epoll >= 0)
		close(s->epoll);
	if (good) /* else the process's end has to do it */
		ns_equipment_end(&s->equipment);
	return good && !s->controller.is_hopeless;
}

int ns_serve(const struct ns_settings *settings)
{
	static struct server s;
	bool good;

	s = (struct server){.settings = settings, .epoll = -1, .signals = -1};
	the_server = &s;
	ha_list_init(&s.children);
	ha_seats_init(&s.seats);
	ha_net_reserve_init(&s.reserve);
	good = ns_equipment_begin(&s.equipment, settings) && watch_signals(&s);
	ns_groups_begin(&s.groups, s.equipment.port, s.equipment.site, s.epoll);
	ns_controller_begin(&s.controller, settings, &s.equipment, &s.groups);
	ha_net_reserve_fill(&s.reserve);
	while (good && !s.ends)
		turn(&s);
	return end(&s) && good ? 0 : 1;
}
