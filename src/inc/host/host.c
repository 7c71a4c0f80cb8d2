/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/host/host.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "inc/failback.h"
#include "inc/host/joining.h"
#include "inc/host/meeting.h"
#include "inc/leader.h"
#include "inc/net/lease.h"
#include "inc/net/star.h"
#include "inc/outage.h"
#include "inc/verbs/mesh.h"
#include "inc/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PUMP_NS	  (50 * HA_NS_PER_US)  /* between two looks at sockets */
#define LINGER_NS (500 * HA_NS_PER_MS) /* for a verdict to be read by all */
#define LETTERS	  64

/* Between member 0 and the leader, which are one process. */
struct letter {
	bool is_to_leader;
	struct ha_inc_frame frame;
};

struct ha_host {
	struct ha_host_wish wish;
	struct ha_ask_answer answer;
	struct ha_lease lease; /* of the leader */
	struct ha_star *star;
	struct ha_member *member;
	struct ha_follower follower;
	struct ha_leader *leader; /* NULL: another member */
	struct ha_leader_room room;
	struct ha_outage outage;
	struct ha_joining joining;
	struct ha_mesh mesh;
	bool may_wait; /* in this call */
	bool is_leaving, has_left;
	bool is_stopped; /* OVER: the edges are destroyed */
	uint32_t epochs, way;
	char moved[192]; /* from which port to which other one it went when it joined last, if so */
	struct ha_failback failback; /* of the leader */
	uint64_t fenced_ns, pause_ns;
	uint64_t pump_ns;
	unsigned int n_letters;
	struct letter letters[LETTERS];
};

/* ---- frames --------------------------------------------------------------------------------- */

/* One that finds no room is lost; it is said again. */
static void post(struct ha_host *host, bool is_to_leader, const struct ha_inc_frame *frame)
{
	if (host->n_letters < LETTERS)
		host->letters[host->n_letters++] = (struct letter){is_to_leader, *frame};
}

static void say_to_member(void *arg, uint16_t member, const struct ha_inc_frame *frame)
{
	struct ha_host *host = arg;

	if (member == 0)
		post(host, false, frame);
	else
		ha_star_say(host->star, member, frame);
}

static void say_to_leader(void *arg, const struct ha_inc_frame *frame)
{
	struct ha_host *host = arg;

	if (host->leader)
		post(host, true, frame);
	else
		ha_star_say(host->star, 0, frame);
}

/* To another member, through member 0. */
static void say_link(void *arg, const struct ha_inc_frame *frame)
{
	struct ha_host *host = arg;

	ha_star_say(host->star, host->leader ? frame->link.to : 0, frame);
}

static void hear_link(struct ha_host *host, uint16_t from, const struct ha_inc_frame *frame)
{
	if (frame->group != host->answer.part.group || (host->leader && from != frame->member))
		return;
	if (frame->link.to == host->follower.number)
		ha_mesh_hear(&host->mesh, frame);
	else if (host->leader)
		ha_star_say(host->star, frame->link.to, frame);
}

static void hear(struct ha_host *host, bool is_to_leader, uint16_t from,
		 const struct ha_inc_frame *frame, uint64_t now_ns)
{
	if (frame->kind == HA_INC_LINK)
		hear_link(host, from, frame);
	else if (is_to_leader)
		ha_leader_hear(host->leader, from, frame, now_ns);
	else
		ha_follower_hear(&host->follower, frame, now_ns);
}

bool ha_host_is_to_join(const struct ha_host *host)
{
	return host->follower.state == HA_FOLLOWER_FENCED;
}

/* The next frame may be RESUME, upon which switches are waited for. */
static bool may_hear(const struct ha_host *host)
{
	return host->may_wait || !ha_host_is_to_join(host);
}

static void deliver(struct ha_host *host, uint64_t now_ns)
{
	while (host->n_letters > 0 && may_hear(host)) {
		const struct letter first = host->letters[0];

		host->n_letters--;
		memmove(host->letters, host->letters + 1, host->n_letters * sizeof(first));
		hear(host, first.is_to_leader, 0, &first.frame, now_ns);
	}
}

/* ---- who is gone ---------------------------------------------------------------------------- */

/* A connection that ends before its member has left is the end of its process. */
static void is_gone(struct ha_host *host, uint16_t member, uint64_t now_ns)
{
	const struct ha_inc_frame end = {.kind = HA_INC_ABORT,
					 .group = host->answer.part.group,
					 .abort = {.why = HA_INC_ABORT_DEAD}};

	if (host->leader) {
		if (!host->leader->decision.said[member].leaves)
			ha_leader_give_up(host->leader, HA_INC_ABORT_DEAD, member);
		return;
	}
	if (host->follower.state == HA_FOLLOWER_LEFT)
		host->has_left = true;
	else
		ha_follower_hear(&host->follower, &end, now_ns);
}

/* ---- progress ------------------------------------------------------------------------------- */

/* For who looks at the controller; its end changes nothing. */
static void tell_way(struct ha_host *host)
{
	uint8_t text[8];
	struct ha_writer w = {text};

	ha_put_uint(&w, host->follower.epoch, 4);
	ha_put_uint(&w, host->way, 4);
	if (host->leader && host->answer.talk.phase == HA_TALK_OPEN)
		(void)ha_talk_say(&host->answer.talk, HA_CTRL_WAY, NULL, text, sizeof(text));
}

static void tell_of_port(struct ha_host *host, const struct ha_port *from, const struct ha_port *to)
{
	*host->moved = '\0';
	if (from != to)
		snprintf(host->moved, sizeof(host->moved), "port %s:%u is left for %s:%u",
			 from->nic->name, from->port_num, to->nic->name, to->port_num);
}

static void join(void *arg, uint32_t way, uint32_t epoch)
{
	struct ha_host *host = arg;
	const struct ha_port *was = ha_member_port(host->member);

	host->epochs++;
	host->way = way;
	tell_way(host);
	if (way < ha_joining_ways(&host->answer.part)) {
		ha_joining_join(&host->joining, host->member, way, epoch);
		host->mesh.why = NULL;
	} else {
		ha_mesh_join(&host->mesh, epoch, ha_now_ns());
	}
	tell_of_port(host, was, ha_member_port(host->member));
	host->pause_ns = ha_now_ns() - host->fenced_ns;
}

static void fence(void *arg)
{
	struct ha_host *host = arg;

	host->fenced_ns = ha_now_ns();
	ha_mesh_fence(&host->mesh);
}

static void look_at_star(struct ha_host *host, uint64_t now_ns)
{
	struct ha_inc_frame frame;
	enum ha_star_event event;
	uint16_t member = 0;

	while (may_hear(host) &&
	       (event = ha_star_next(host->star, now_ns, &member, &frame)) != HA_STAR_NOTHING) {
		if (event == HA_STAR_FRAME)
			hear(host, host->leader != NULL, member, &frame, now_ns);
		else if (event == HA_STAR_GONE)
			is_gone(host, member, now_ns);
	}
}

static void look_whether_left(struct ha_host *host, uint64_t now_ns)
{
	if (host->is_leaving)
		(void)ha_follower_leave(&host->follower, now_ns);
	if (!host->leader || host->follower.state != HA_FOLLOWER_LEFT || host->has_left ||
	    !ha_leader_may_leave(host->leader))
		return;
	host->has_left = true;
	ha_talk_say(&host->answer.talk, HA_CTRL_LEAVE, NULL, "", 0);
}

/* What is not needed any more, while others are waited for. */
static void let_go(struct ha_host *host)
{
	ha_joining_leave(&host->joining);
	if (ha_mesh_close(&host->mesh) != HA_OK)
		return; /* again when it is joined anew, or the host is closed */
}

/* Its end changes nothing. */
static void look_at_controller(struct ha_host *host, uint64_t now_ns)
{
	enum ha_lease_event event;

	while ((event = ha_lease_next(&host->lease, now_ns)) != HA_LEASE_NOTHING) {
		if (event == HA_LEASE_AGAIN)
			tell_way(host);
		else if (host->answer.talk.heard.kind == HA_CTRL_BACK)
			(void)ha_leader_go_back(host->leader, now_ns);
	}
}

/* The controller does not answer as long as some switch of the lanes has no program. */
static void look_whether_back(struct ha_host *host, uint64_t now_ns)
{
	switch (ha_failback_look(&host->failback, host->leader->way > 0, now_ns)) {
	case HA_FAILBACK_WAITS:
		break;
	case HA_FAILBACK_ASKS:
		(void)ha_talk_say(&host->answer.talk, HA_CTRL_IS_BACK, NULL, "", 0);
		break;
	case HA_FAILBACK_SETTLES:
		ha_leader_settle(host->leader);
		break;
	}
}

static void lead(struct ha_host *host, uint64_t now_ns)
{
	look_at_controller(host, now_ns);
	ha_leader_tick(host->leader, now_ns);
	look_whether_back(host, now_ns);
	if (ha_outage_is(&host->outage, ha_member_ledger(host->member), host->wish.outage_ns,
			 now_ns) &&
	    host->leader->state == HA_LEADER_QUIET)
		ha_leader_give_up(host->leader, HA_INC_ABORT_OUTAGE, 0);
}

/* DEADLINE, ABORT: who has heard it touches nothing any more. */
static void look_whether_over(struct ha_host *host)
{
	if (host->follower.state != HA_FOLLOWER_OVER || host->is_stopped)
		return;
	ha_mesh_fence(&host->mesh);
	host->is_stopped = ha_member_stop(host->member);
}

static void look_for_disputes(struct ha_host *host, uint64_t now_ns)
{
	if (host->joining.dispute.about != HA_DISPUTE_NONE)
		ha_follower_dispute(&host->follower, &host->joining.dispute, now_ns);
	if (host->mesh.dispute.about != HA_DISPUTE_NONE)
		ha_follower_dispute(&host->follower, &host->mesh.dispute, now_ns);
}

static void pump(struct ha_host *host, uint64_t now_ns)
{
	look_at_star(host, now_ns);
	ha_joining_look(&host->joining, host->member);
	if (host->joining.is_drained)
		ha_follower_drain(&host->follower, now_ns);
	look_for_disputes(host, now_ns);
	ha_follower_tick(&host->follower, now_ns);
	ha_member_look(host->member, now_ns);
	ha_mesh_tick(&host->mesh, now_ns);
	if (host->leader)
		lead(host, now_ns);
	deliver(host, now_ns);
	if (host->follower.state == HA_FOLLOWER_FENCED)
		let_go(host);
	look_whether_left(host, now_ns);
	look_whether_over(host);
}

static bool progress(struct ha_host *host, bool may_wait)
{
	const bool of_member = ha_member_progress(host->member);
	const bool moved = ha_mesh_progress(&host->mesh) || of_member;
	const uint64_t now_ns = ha_now_ns();

	host->may_wait = may_wait;

	if (now_ns < host->pump_ns)
		return moved;
	pump(host, now_ns);
	host->pump_ns = ha_now_ns() + PUMP_NS;
	return moved;
}

bool ha_host_progress(struct ha_host *host)
{
	return progress(host, true);
}

bool ha_host_poll(struct ha_host *host)
{
	return progress(host, false);
}

bool ha_host_all_reduce(struct ha_host *host, const struct ha_all_reduce *ask, uint64_t *number)
{
	return ha_member_all_reduce(host->member, ask, number);
}

bool ha_host_is_done(const struct ha_host *host, uint64_t number)
{
	return ha_member_is_done(host->member, number);
}

void ha_host_leave(struct ha_host *host)
{
	host->is_leaving = true;
}

/* ---- what has become of it ------------------------------------------------------------------ */

enum ha_host_state ha_host_state(const struct ha_host *host)
{
	if (host->is_stopped)
		return HA_HOST_OVER;
	if (host->has_left)
		return HA_HOST_LEFT;
	return host->is_leaving ? HA_HOST_LEAVING : HA_HOST_RUNS;
}

ha_result_t ha_host_result(const struct ha_host *host)
{
	const struct ha_inc_frame *verdict = &host->follower.verdict;

	if (verdict->kind != HA_INC_ABORT || verdict->abort.why == HA_INC_ABORT_LOST)
		return HA_ERR_INTERNAL;
	if (verdict->abort.why == HA_INC_ABORT_DISPUTE)
		return HA_ERR_USAGE;
	return verdict->abort.why == HA_INC_ABORT_DAMAGED ? HA_ERR_SYSTEM : HA_ERR_REMOTE;
}

/* Which operation it is here is this member's to know, where that has asked for the unit. */
static void tell_of_dispute(const struct ha_host *host, const struct ha_dispute *dispute,
			    char why[HA_HOST_WHY])
{
	const uint64_t here = ha_member_operation_of(host->member, dispute->unit);
	char verdict[HA_HOST_WHY / 4], text[HA_HOST_WHY / 2], own[64] = "";

	ha_verdict_text(HA_INC_ABORT_DISPUTE, host->answer.part.members, verdict, sizeof(verdict));
	ha_dispute_text(dispute, text, sizeof(text));
	if (here)
		snprintf(own, sizeof(own), "; that is operation %llu here",
			 (unsigned long long)here);
	snprintf(why, HA_HOST_WHY, "%s: %s%s", verdict, text, own);
}

void ha_host_why(const struct ha_host *host, char why[HA_HOST_WHY])
{
	const struct ha_inc_frame *verdict = &host->follower.verdict;
	const bool is_said = verdict->kind == HA_INC_ABORT;
	const struct ha_decision_fault none = {0};
	const struct ha_decision_fault *about = is_said ? &verdict->abort.about : &none;
	const char *last = ha_host_last_loss(host);
	char text[HA_HOST_WHY * 3 / 8];

	*why = '\0';
	if (host->follower.state != HA_FOLLOWER_OVER)
		return;
	if (is_said && verdict->abort.why == HA_INC_ABORT_DISPUTE) {
		tell_of_dispute(host, &verdict->abort.dispute, why);
		return;
	}
	ha_verdict_text(is_said ? verdict->abort.why : HA_INC_ABORT_REASONS,
			host->answer.part.members, text, sizeof(text));
	snprintf(why, HA_HOST_WHY, "%s (member %u, unit %llu)%s%s", text, about->member,
		 (unsigned long long)about->unit, *last ? "; last of all " : "", last);
}

const char *ha_host_last_loss(const struct ha_host *host)
{
	const char *of_edge = ha_member_why(host->member);

	if (*host->moved)
		return host->moved;
	if (host->mesh.why)
		return host->mesh.why;
	return *host->joining.why || !of_edge ? host->joining.why : of_edge;
}

unsigned int ha_host_at(const struct ha_host *host)
{
	return ha_member_at(host->member);
}

void ha_host_forgo(struct ha_host *host, unsigned int port)
{
	ha_member_forgo(host->member, port);
}

const struct ha_part *ha_host_part(const struct ha_host *host)
{
	return &host->answer.part;
}

bool ha_host_has_said_so(const struct ha_host *host)
{
	return host->follower.state == HA_FOLLOWER_LEFT;
}

bool ha_host_is_away(const struct ha_host *host)
{
	return host->way > 0 || ha_member_is_cut(host->member);
}

bool ha_host_is_without_switches(const struct ha_host *host)
{
	return host->mesh.state == HA_MESH_LINKED;
}

uint32_t ha_host_epochs(const struct ha_host *host)
{
	return host->epochs;
}

struct ha_host_fates ha_host_fates(const struct ha_host *host)
{
	const struct ha_ledger *ledger = ha_member_ledger(host->member);

	return (struct ha_host_fates){ledger->units_taken, ledger->units_again};
}

uint64_t ha_host_pause_ns(const struct ha_host *host)
{
	return host->pause_ns;
}

/* ---- life ----------------------------------------------------------------------------------- */

static ha_result_t make_leader(struct ha_host *host)
{
	const uint16_t members = host->answer.part.members;
	struct ha_leader_room *room = &host->room;

	if (host->wish.ask.rank > 0)
		return HA_OK;
	host->leader = calloc(1, sizeof(*host->leader));
	room->said = calloc(members, sizeof(*room->said));
	room->held = calloc(members, sizeof(*room->held));
	room->asked = calloc(members, sizeof(*room->asked));
	if (!host->leader || !room->said || !room->held || !room->asked)
		return HA_ERR_SYSTEM;
	ha_leader_init(host->leader, host->answer.part.group, members, room, say_to_member, host);
	if (host->wish.needs_switches || members > HA_MESH_MEMBERS)
		host->leader->ways = ha_joining_ways(&host->answer.part);
	return HA_OK;
}

/* Of a plan, or one for each member that adds. */
static unsigned int lanes_of(const struct ha_part *part)
{
	const bool may_add = part->members <= HA_MESH_MEMBERS;

	return may_add && part->members > part->lanes ? part->members : part->lanes;
}

static ha_result_t make_member(struct ha_host *host)
{
	const struct ha_part *part = &host->answer.part;
	const uint16_t number = (uint16_t)host->wish.ask.rank;
	const struct ha_member_shape shape = {
	    .ledger = {number, part->window, host->wish.copies},
	    .lanes = lanes_of(part),
	    .unit_bytes = part->unit_bytes,
	    .group = part->group,
	};
	const struct ha_mesh_shape mesh = {
	    .number = number,
	    .members = part->members,
	    .group = part->group,
	    .window = part->window,
	    .unit_bytes = part->unit_bytes,
	    .limit_ns = host->wish.join_ns,
	};
	const struct ha_follower_calls calls = {say_to_leader, join, fence, host};

	HA_TRY(make_leader(host));
	HA_TRY(ha_member_open(&shape, &host->wish.ports, &host->member));
	ha_follower_init(&host->follower, host->member, number, part->group, host->wish.late_ns,
			 &calls);
	host->follower.to_port = ha_failback_after(host->wish.failback_ns);
	host->joining = (struct ha_joining){.part = part,
					    .key = host->answer.key,
					    .site = host->wish.ask.site,
					    .member = number,
					    .limit_ns = host->wish.join_ns};
	ha_mesh_init(&host->mesh, &mesh, host->member, say_link, host);
	return HA_OK;
}

static ha_result_t make_star(struct ha_host *host)
{
	const struct ha_part *part = &host->answer.part;
	const struct ha_star_shape shape = {.group = part->group,
					    .members = part->members,
					    .number = (uint16_t)host->wish.ask.rank,
					    .key = host->answer.key,
					    .site = host->wish.ask.site,
					    .leader = &part->leader,
					    .listener = host->answer.listener};

	host->answer.listener = -1; /* the star's now */
	host->star = ha_star_open(&shape);
	return host->star ? HA_OK : HA_ERR_SYSTEM;
}

static ha_result_t open_all(struct ha_host *host, char *why, size_t size)
{
	const uint64_t half_ns = host->wish.connect_ns / 2;
	bool is_leader_gone = false;

	HA_TRY(ha_ask(&host->wish.ask, ha_real_ns() + half_ns, &host->answer, why, size));
	snprintf(why, size, "the device gives no memory for this member, or there is none");
	HA_TRY(make_member(host));
	HA_TRY(make_star(host));
	if (!ha_meet(host->star, &host->answer.talk, (uint16_t)host->wish.ask.rank,
		     host->wish.connect_ns, &is_leader_gone, why, size))
		return HA_ERR_REMOTE;
	if (!host->leader) /* its lease is member 0's to hold */
		ha_talk_end(&host->answer.talk);
	ha_lease_begin(&host->lease, &host->wish.ask, &host->answer);
	ha_joining_join(&host->joining, host->member, 0, 0);
	if (is_leader_gone)
		is_gone(host, 0, ha_now_ns());
	return HA_OK;
}

ha_result_t ha_host_open(const struct ha_host_wish *wish, struct ha_host **out, char *why,
			 size_t size)
{
	struct ha_host *host = calloc(1, sizeof(*host));
	ha_result_t result;

	*out = NULL;
	if (!host) {
		snprintf(why, size, "out of memory");
		return HA_ERR_SYSTEM;
	}
	host->wish = *wish;
	host->failback = ha_failback_after(wish->failback_ns);
	host->answer.listener = host->answer.talk.fd = -1;
	result = open_all(host, why, size);
	if (result == HA_OK)
		*out = host;
	else if (ha_host_close(host) != HA_OK)
		snprintf(why, size, "the device does not let go of a member that could not join");
	return result;
}

/* A verdict that a member has not read is lost if this process ends before. */
static void linger(struct ha_host *host)
{
	const uint64_t until_ns = ha_real_ns() + LINGER_NS;
	const struct timespec pause = {.tv_nsec = 200000};
	struct ha_inc_frame frame;
	uint16_t member;

	while (ha_real_ns() < until_ns && ha_star_is_anybody_there(host->star)) {
		if (ha_star_next(host->star, ha_real_ns(), &member, &frame) == HA_STAR_NOTHING)
			nanosleep(&pause, NULL);
	}
}

ha_result_t ha_host_close(struct ha_host *host)
{
	if (!host)
		return HA_OK;
	HA_TRY(ha_member_close(host->member));
	host->member = NULL;
	HA_TRY(ha_mesh_close(&host->mesh));
	if (host->leader && host->leader->state == HA_LEADER_OVER)
		linger(host);
	ha_joining_leave(&host->joining);
	ha_star_close(host->star);
	ha_ask_end(&host->answer);
	free(host->leader);
	free(host->room.said);
	free(host->room.held);
	free(host->room.asked);
	free(host);
	return HA_OK;
}
