/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/host/meeting.h"

#include "base/clock.h"
#include "inc/net/ask.h"

#include <stdio.h>
#include <time.h>

enum state { WAITS, ASKS, BEGINS, ENDS };

struct meeting {
	enum state state;
	struct ha_star *star;
	struct ha_talk *controller;
	uint16_t member;
	uint64_t asked_ns;
	bool is_leader_gone;
	char *why; /* the first reason there is */
	size_t size;
};

static bool is_over(const struct meeting *meeting)
{
	return meeting->state == BEGINS || meeting->state == ENDS;
}

/* The controller decides; without it nobody does. */
static void ask(struct meeting *meeting)
{
	const enum ha_ctrl_kind kind = meeting->member == 0 ? HA_CTRL_ALL_HERE : HA_CTRL_GIVES_UP;

	if (meeting->state == ASKS)
		return;
	(void)ha_talk_say(meeting->controller, kind, NULL, "", 0);
	meeting->asked_ns = ha_real_ns();
	meeting->state = ASKS;
}

static void give_reason(struct meeting *meeting, const char *reason)
{
	if (!*meeting->why)
		snprintf(meeting->why, meeting->size, "%s", reason);
}

static void end(struct meeting *meeting, const char *reason)
{
	give_reason(meeting, reason);
	if (meeting->member == 0)
		ha_star_refuse(meeting->star, meeting->why);
	meeting->state = ENDS;
}

/* ---- what is heard -------------------------------------------------------------------------- */

/* Member 0 that refuses has said its word; else its process has ended, perhaps behind its GO to
 * others. */
static void lose(struct meeting *meeting, uint16_t member)
{
	char reason[HA_TALK_WHY + 64];

	snprintf(reason, sizeof(reason), "member %u, before all were there: %s", member,
		 ha_star_why(meeting->star, member));
	if (meeting->member == 0 || ha_star_is_refused(meeting->star)) {
		end(meeting, reason);
		return;
	}
	give_reason(meeting, reason);
	meeting->is_leader_gone = true;
	ask(meeting);
}

static void look_at_star(struct meeting *meeting)
{
	struct ha_inc_frame frame;
	uint16_t member = 0;

	switch (ha_star_next(meeting->star, ha_real_ns(), &member, &frame)) {
	case HA_STAR_READY:
		if (meeting->member == 0)
			ask(meeting);
		else
			meeting->state = BEGINS;
		return;
	case HA_STAR_GONE:
		lose(meeting, member);
		return;
	case HA_STAR_NOTHING:
	case HA_STAR_FRAME:
		return;
	}
}

static void hear(struct meeting *meeting, const struct ha_talk_frame *heard)
{
	char reason[256];

	if (heard->kind == HA_CTRL_GO) {
		meeting->state = BEGINS;
		if (meeting->member == 0)
			ha_star_go(meeting->star);
	} else if (heard->kind == HA_CTRL_NONE) {
		ha_ask_why_none(heard, reason, sizeof(reason));
		end(meeting, reason);
	}
}

static bool is_answer_lost(const struct meeting *meeting)
{
	return meeting->controller->phase == HA_TALK_OVER &&
	       (meeting->member == 0 || meeting->is_leader_gone);
}

static void look_at_controller(struct meeting *meeting)
{
	char reason[HA_TALK_WHY + 32];

	if (ha_talk_next(meeting->controller) == HA_TALK_HEARD)
		hear(meeting, &meeting->controller->heard);
	if (is_over(meeting) || !is_answer_lost(meeting))
		return;
	snprintf(reason, sizeof(reason), "controller: %s", meeting->controller->why);
	end(meeting, reason);
}

/* What others have done since member 0 has asked is none of its business before the answer. */
static void look(struct meeting *meeting)
{
	if (meeting->member > 0 || meeting->state == WAITS)
		look_at_star(meeting);
	if (!is_over(meeting))
		look_at_controller(meeting);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void be_late(struct meeting *meeting)
{
	char reason[96];

	if (meeting->member == 0) {
		snprintf(reason, sizeof(reason), "member %u has not come to member 0 in time",
			 ha_star_missing(meeting->star));
		end(meeting, reason);
		return;
	}
	give_reason(meeting, "member 0 does not say in time that all are there");
	ask(meeting);
}

/* Who was stopped looks at what has come meanwhile before it looks at the clock. */
static void wait_until(struct meeting *meeting, uint64_t until_ns)
{
	const struct timespec pause = {.tv_nsec = 200000};

	for (;;) {
		const bool is_late = ha_real_ns() >= until_ns;

		look(meeting);
		if (is_over(meeting) || is_late)
			return;
		nanosleep(&pause, NULL);
	}
}

/* Who was stopped before it asked has time for the answer, too: others may hear the same one. */
static uint64_t answer_until(const struct meeting *meeting, uint64_t began_ns, uint64_t part_ns)
{
	const uint64_t until_ns = began_ns + part_ns * (meeting->member == 0 ? 8 : 20);
	const uint64_t least_ns = meeting->asked_ns + part_ns;

	return until_ns > least_ns ? until_ns : least_ns;
}

bool ha_meet(struct ha_star *star, struct ha_talk *controller, uint16_t member, uint64_t limit_ns,
	     bool *is_leader_gone, char *why, size_t size)
{
	struct meeting meeting = {
	    .star = star, .controller = controller, .member = member, .why = why, .size = size};
	const uint64_t now_ns = ha_real_ns(), part_ns = limit_ns / 20;

	*why = '\0';
	wait_until(&meeting, now_ns + part_ns * (member == 0 ? 7 : 9));
	if (meeting.state == WAITS)
		be_late(&meeting);
	if (!is_over(&meeting))
		wait_until(&meeting, answer_until(&meeting, now_ns, part_ns));
	if (!is_over(&meeting))
		end(&meeting, "the controller does not say in time whether all are there");
	*is_leader_gone = meeting.is_leader_gone;
	return meeting.state == BEGINS;
}
