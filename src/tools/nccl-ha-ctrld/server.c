/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/nccl-ha-ctrld/server.h"

#include "base/clock.h"
#include "base/net_accept.h"
#include "base/random.h"
#include "base/text.h"
#include "inc/net/talk.h"
#include "tools/common/address.h"
#include "tools/common/ends.h"
#include "tools/nccl-ha-ctrld/key.h"
#include "tools/nccl-ha-ctrld/report.h"
#include "tools/nccl-ha-ctrld/request.h"
#include "tools/nccl-ha-ctrld/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS	    100 /* while somebody is to be shown out in time */
#define SHORTAGE_MS 50	/* until a listener without descriptors is looked at again */
#define BACKLOG	    1024

struct server {
	const struct nc_settings *settings;
	struct ha_job_key *site;
	struct nc_groups groups;
	struct ha_list sessions;
	struct ha_seats seats;
	struct nc_counts counts;
	struct ha_net_reserve reserve;
	int epoll, listener, signals;
	uint64_t refusal_said_ns; /* when a line was written of one last */
	uint64_t now_ns, look_ns; /* when to look at time limits; 0: there are none */
	bool some_over;
};

static struct nc_session *session_at(struct ha_list *pos)
{
	return ha_container_of(pos, struct nc_session, link);
}

/* ---- who comes and goes ---------------------------------------------------------------------- */

static bool is_seated(const struct nc_session *session)
{
	return session->seat.by_age.next != NULL;
}

static void stand_up(struct server *s, struct nc_session *session)
{
	if (!is_seated(session))
		return;
	ha_seats_leave(&s->seats, &session->seat);
	session->seat.by_age.next = NULL;
}

static void show_out(struct server *s, struct nc_session *session)
{
	stand_up(s, session);
	nc_groups_lost(&s->groups, &session->member, s->now_ns);
	nc_groups_unserve(&s->groups, &session->serving);
	ha_list_remove(&session->link);
	s->counts.connections--;
	nc_session_free(session);
}

/* A connection is closed nowhere else, so that nobody has one in hand that is gone. What its group
 * hears of it may be the end of others. */
static void show_out_over(struct server *s)
{
	struct ha_list *pos, *after;

	while (s->some_over) {
		s->some_over = false;
		ha_list_for_each_safe (pos, after, &s->sessions)
			if (session_at(pos)->over)
				show_out(s, session_at(pos));
	}
}

/* After whatever may have changed what it has to send, or ended it. */
static void settle(struct server *s, struct nc_session *session)
{
	const bool sends = session->n_unsent > 0;
	struct epoll_event event = {.events = EPOLLIN | (sends ? EPOLLOUT : 0u),
				    .data.ptr = session};

	if (sends != session->watched && !session->over) {
		session->watched = sends;
		session->over |= epoll_ctl(s->epoll, EPOLL_CTL_MOD, session->fd, &event) != 0;
	}
	s->some_over |= session->over;
}

static void seat(struct server *s, struct nc_session *session)
{
	if (s->seats.taken == HA_SEATS) {
		struct ha_seat *next = ha_seats_next_to_leave(&s->seats);
		struct nc_session *leaves = ha_container_of(next, struct nc_session, seat);

		stand_up(s, leaves);
		leaves->over = s->some_over = true;
		s->counts.crowded_out++;
	}
	ha_seats_take(&s->seats, &session->seat, ha_seats_source(&session->from));
}

static bool listen_on(struct server *s)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &s->listener};

	return epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &event) == 0;
}

static void let_in(struct server *s)
{
	union ha_sockaddr from;
	struct nc_session *session;
	struct epoll_event event = {.events = EPOLLIN};
	int fd = ha_net_accept(s->listener, &s->reserve, &from);

	ha_net_reserve_fill(&s->reserve);
	if (fd < 0 && ha_net_is_shortage(errno)) {
		const struct timespec pause = {.tv_nsec = (long)(SHORTAGE_MS * HA_NS_PER_MS)};

		nanosleep(&pause, NULL);
	}
	if (fd < 0)
		return;
	if (s->counts.connections == NC_SESSIONS_MAX) {
		s->counts.crowded_out++;
		close(fd);
		return;
	}
	ha_talk_watch_life(fd);
	session = nc_session_new(fd, &from, s->now_ns);
	if (!session)
		return;
	ha_list_push_back(&s->sessions, &session->link);
	s->counts.connections++;
	seat(s, session);
	event.data.ptr = session;
	session->over |= epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event) != 0;
	s->some_over |= session->over;
}

/* ---- what they say --------------------------------------------------------------------------- */

/* One line, of refusals one in a second: who floods us does not flood the log. */
static void note_refusal(struct server *s, const struct nc_session *session, const char *why)
{
	char from[HA_SOCKADDR_TEXT_MAX];

	s->counts.refused++;
	if (s->refusal_said_ns != 0 && s->now_ns - s->refusal_said_ns < HA_NS_PER_S)
		return;
	s->refusal_said_ns = s->now_ns;
	fprintf(stderr, "nccl-ha-ctrld: refused %s: %s (%llu refused so far)\n",
		ha_sockaddr_text(&session->from, from, sizeof(from)), why,
		(unsigned long long)s->counts.refused);
}

static void refuse(struct server *s, struct nc_session *session, const char *why)
{
	note_refusal(s, session, why);
	nc_session_refuse(session, s->now_ns, why);
}

static void ask(struct server *s, struct nc_session *session, const char *text, uint32_t length)
{
	struct nc_ask what;
	char why[512];

	if (session->member.group || session->serving.is_on)
		refuse(s, session, "it is in a group already");
	else if (!nc_request_read(s->groups.topology, text, length, &what, why, sizeof(why)) ||
		 !nc_groups_ask(&s->groups, &session->member, &what, s->now_ns, why, sizeof(why)))
		refuse(s, session, why);
}

static void know(struct server *s, struct nc_session *session, const char *text, uint32_t length,
		 const uint8_t *secret)
{
	char why[512];

	if (session->member.group || session->serving.is_on)
		refuse(s, session, "it is in a group, or serves a switch, already");
	else if (!nc_groups_know(&s->groups, &session->member, text, length, secret, s->now_ns, why,
				 sizeof(why)))
		refuse(s, session, why);
}

static void serve(struct server *s, struct nc_session *session, const char *text, uint32_t length)
{
	struct nc_service service;
	char why[512];

	session->unsent_most = NC_UNSENT_SWITCH;
	if (session->member.group || session->serving.is_on)
		refuse(s, session, "it is in a group, or serves a switch, already");
	else if (!nc_service_read(s->groups.topology, text, length, &service, why, sizeof(why)) ||
		 !nc_groups_serve(&s->groups, &session->serving, &service, why, sizeof(why)))
		refuse(s, session, why);
}

static void report(struct server *s, struct nc_session *session)
{
	struct nc_text *text = nc_report(&s->groups, &s->counts, s->now_ns);

	if (text)
		nc_session_say(session, HA_CTRL_REPORT, text, NULL);
	else
		refuse(s, session, "the report is too long, or there is no memory");
	nc_text_release(text);
}

static void change(struct server *s, struct nc_session *session, const char *text, uint32_t length)
{
	char why[512];
	unsigned vertex;
	bool is_drained;

	if (!nc_change_read(s->groups.topology, text, length, &vertex, &is_drained, why,
			    sizeof(why))) {
		refuse(s, session, why);
		return;
	}
	nc_groups_drain(&s->groups, vertex, is_drained);
	printf("nccl-ha-ctrld: %s is %s\n", nc_vertex_name(s->groups.topology, vertex),
	       is_drained ? "drained" : "not drained any more");
	(void)fflush(stdout);
	report(s, session);
}

static void say_verdict(struct server *s, struct nc_session *session, const char *group,
			uint32_t length)
{
	struct nc_text *verdict = nc_groups_verdict(&s->groups, group, length);

	if (verdict)
		nc_session_say(session, HA_CTRL_REPORT, verdict, NULL);
	else
		refuse(s, session, "no group of this name has been told anything");
}

/* Who is not answered asks again. */
static void say_whether_back(struct server *s, struct nc_session *session)
{
	struct nc_text *text;

	if (!nc_groups_are_lanes_there(&s->groups, &session->member))
		return;
	text = nc_text_new("", 0);
	if (text)
		nc_session_say(session, HA_CTRL_BACK, text, NULL);
	nc_text_release(text);
}

static void hears(void *arg, struct nc_session *session, enum ha_ctrl_kind kind, const char *text,
		  uint32_t length, const uint8_t *secret)
{
	struct server *s = arg;

	session->since_ns = s->now_ns;
	stand_up(s, session);
	switch (kind) {
	case HA_CTRL_ASK:
		ask(s, session, text, length);
		return;
	case HA_CTRL_LEAVE:
		nc_groups_leave(&s->groups, &session->member, s->now_ns);
		return;
	case HA_CTRL_STATUS:
		report(s, session);
		return;
	case HA_CTRL_SERVE:
		serve(s, session, text, length);
		return;
	case HA_CTRL_IS_BACK:
		say_whether_back(s, session);
		return;
	case HA_CTRL_WAY:
		if (!nc_groups_way(&s->groups, &session->member, text, length))
			refuse(s, session, "this is no way of a group of which it is member 0");
		return;
	case HA_CTRL_ALL_HERE:
		if (!nc_groups_all_here(&s->groups, &session->member))
			refuse(s, session, "this is no member 0 of a group that has a plan");
		return;
	case HA_CTRL_GIVES_UP:
		if (!nc_groups_give_up(&s->groups, &session->member, s->now_ns))
			refuse(s, session, "this is no member of a group that has a plan");
		return;
	case HA_CTRL_KNOW:
		know(s, session, text, length, secret);
		return;
	case HA_CTRL_CHANGE:
		change(s, session, text, length);
		return;
	case HA_CTRL_VERDICT:
		say_verdict(s, session, text, length);
		return;
	case HA_CTRL_COUNTS:
		if (!nc_groups_count(&s->groups, &session->serving, text, length))
			refuse(s, session, "these are no counts of a switch");
		return;
	default:
		refuse(s, session, "a host does not say this");
	}
}

static void hear(struct server *s, struct nc_session *session)
{
	switch (nc_session_read(session, s->site, s->now_ns, hears, s)) {
	case NC_BAD_KEY:
		note_refusal(s, session, "it has another key");
		return;
	case NC_BAD_VERSION:
		note_refusal(s, session, "it speaks another version, or something else");
		return;
	case NC_BAD_REQUEST:
		note_refusal(s, session, "this is no frame");
		return;
	case NC_NOT_REFUSED:
		return;
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Who is in a group, or serves a switch, may be silent for as long as he likes. */
static bool is_timed(const struct nc_session *session)
{
	return session->phase != NC_KNOWN || session->n_unsent > 0 ||
	       (!session->member.group && !session->serving.is_on);
}

/* Returns whether somebody is timed. */
static bool show_out_silent(struct server *s)
{
	struct ha_list *pos;
	bool timed = false;

	ha_list_for_each (pos, &s->sessions) {
		struct nc_session *session = session_at(pos);

		if (!is_timed(session)) {
			session->since_ns = s->now_ns;
			continue;
		}
		timed = true;
		if (s->now_ns - session->since_ns <= NC_SILENCE_MS * HA_NS_PER_MS)
			continue;
		s->counts.silent += session->phase < NC_KNOWN;
		session->over = s->some_over = true;
	}
	return timed;
}

static void look(struct server *s)
{
	s->look_ns = nc_groups_tick(&s->groups, s->now_ns);
	if (show_out_silent(s))
		s->look_ns = ha_earlier_ns(s->look_ns, s->now_ns + TICK_MS * HA_NS_PER_MS);
}

static int wait_ms(const struct server *s)
{
	if (s->look_ns == 0)
		return -1;
	return s->look_ns <= s->now_ns ? 0 : (int)((s->look_ns - s->now_ns) / HA_NS_PER_MS) + 1;
}

static void take(struct server *s, struct nc_session *session)
{
	nc_session_write(session);
	hear(s, session);
	settle(s, session);
}

/* Of one event at a time: what it does may end what others are of. Time limits are looked at when
 * they are due, and soon after events, which may set some: not after each, of which there may be
 * many. False: to end. */
static bool take_event(struct server *s)
{
	struct epoll_event event;
	int n;

	if (s->look_ns != 0 && s->look_ns <= s->now_ns)
		look(s);
	show_out_over(s);
	n = epoll_wait(s->epoll, &event, 1, wait_ms(s));
	s->now_ns = ha_real_ns();
	if (n != 1)
		return true;
	s->look_ns = ha_earlier_ns(s->look_ns, s->now_ns + TICK_MS * HA_NS_PER_MS);
	if (event.data.ptr == &s->signals)
		return false;
	if (event.data.ptr == &s->listener)
		let_in(s);
	else
		take(s, event.data.ptr);
	return true;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void answer(void *arg, struct nc_member *member, enum ha_ctrl_kind kind,
		   struct nc_text *text, const uint8_t *key)
{
	struct nc_session *session = ha_container_of(member, struct nc_session, member);

	nc_session_say(session, kind, text, key);
	settle(arg, session);
}

static void instruct(void *arg, struct nc_serving *serving, enum ha_ctrl_kind kind,
		     struct nc_text *text, const uint8_t *key)
{
	struct nc_session *session = ha_container_of(serving, struct nc_session, serving);

	nc_session_say(session, kind, text, key);
	settle(arg, session);
}

static bool open_listener(struct server *s)
{
	char why[256], at[HA_SOCKADDR_TEXT_MAX];
	union ha_sockaddr wanted, bound;
	struct addrinfo *list = np_resolve(s->settings->listen, true, why, sizeof(why));

	if (!list) {
		fprintf(stderr, "nccl-ha-ctrld: --listen: %s\n", why);
		return false;
	}
	memset(&wanted, 0, sizeof(wanted));
	memcpy(&wanted, list->ai_addr, list->ai_addrlen);
	freeaddrinfo(list);
	s->listener = ha_net_listen(&wanted, BACKLOG, &bound);
	if (s->listener < 0) {
		fprintf(stderr, "nccl-ha-ctrld: cannot listen at %s: %s\n", s->settings->listen,
			strerror(errno));
		return false;
	}
	printf("nccl-ha-ctrld: listening at %s\n", ha_sockaddr_text(&bound, at, sizeof(at)));
	return fflush(stdout) == 0;
}

static bool watch_signals(struct server *s)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &s->signals};

	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->signals = ends_open();
	if (s->epoll >= 0 && epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->signals, &event) == 0)
		return true;
	fprintf(stderr, "nccl-ha-ctrld: no descriptors: %s\n", strerror(errno));
	return false;
}

/* One descriptor for each member of each group. */
static void raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
}

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void end(struct server *s)
{
	struct ha_list *pos;

	ha_list_for_each (pos, &s->sessions)
		session_at(pos)->over = s->some_over = true;
	show_out_over(s);
	nc_groups_end(&s->groups);
	ha_job_key_free(s->site);
	ha_net_reserve_close(&s->reserve);
	close_one(s->listener);
	close_one(s->signals);
	close_one(s->epoll);
}

int nc_serve(const struct nc_settings *settings, const struct nc_topology *topology)
{
	struct server s = {.settings = settings,
			   .epoll = -1,
			   .listener = -1,
			   .signals = -1,
			   .groups = {.verdict_ns = settings->verdict_ms * HA_NS_PER_MS,
				      .lease_ns = settings->lease_ms * HA_NS_PER_MS,
				      .answer = answer,
				      .instruct = instruct}};
	int status = 1;

	s.groups.arg = &s;
	ha_list_init(&s.sessions);
	ha_seats_init(&s.seats);
	ha_net_reserve_init(&s.reserve);
	raise_descriptors();
	s.site = nc_key_load(settings->key_file);
	if (!nc_groups_begin(&s.groups, topology))
		fprintf(stderr, "nccl-ha-ctrld: out of memory\n");
	else if (s.site && ha_random_works() && watch_signals(&s) && open_listener(&s) &&
		 listen_on(&s))
		status = 0;
	s.now_ns = ha_real_ns();
	ha_net_reserve_fill(&s.reserve);
	while (status == 0 && take_event(&s))
		;
	end(&s);
	return status;
}
