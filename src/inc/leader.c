/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/leader.h"

#include <string.h>

typedef void handler(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		     uint64_t now_ns);

void ha_leader_init(struct ha_leader *leader, uint64_t group, uint16_t members,
		    const struct ha_leader_room *room, ha_leader_say *say, void *arg)
{
	*leader = (struct ha_leader){
	    .group = group, .next = 1, .asked = room->asked, .say = say, .arg = arg};
	memset(room->asked, 0, members * sizeof(*room->asked));
	ha_decision_init(&leader->decision, members, room->said);
	ha_decision_init(&leader->holding, members, room->held);
}

/* ---- saying --------------------------------------------------------------------------------- */

static struct ha_inc_frame frame_of(const struct ha_leader *leader, enum ha_inc_frame_kind kind)
{
	return (struct ha_inc_frame){
	    .kind = kind, .epoch = leader->decision.epoch, .group = leader->group};
}

/* To all whose answer is missing; whoever has left has answered for good. */
static void say(struct ha_leader *leader, const struct ha_decision *asked,
		const struct ha_inc_frame *frame)
{
	for (uint16_t m = 0; m < asked->members; m++)
		if (!ha_decision_has_heard(asked, m))
			leader->say(leader->arg, m, frame);
}

/* What the state has to say until it is answered. */
static void say_now(struct ha_leader *leader, uint64_t now_ns)
{
	struct ha_inc_frame frame = frame_of(leader, HA_INC_FENCE);

	if (leader->state == HA_LEADER_FENCING)
		say(leader, &leader->decision, &frame);
	frame = frame_of(leader, HA_INC_HOLD);
	frame.is_on = true;
	frame.round = leader->holding.epoch;
	if (leader->state == HA_LEADER_HOLDING)
		say(leader, &leader->holding, &frame);
	leader->again_ns = now_ns + leader->pause_ns;
	leader->pause_ns *= 2;
	if (leader->pause_ns > HA_INC_AGAIN_MAX_NS)
		leader->pause_ns = HA_INC_AGAIN_MAX_NS;
}

static void enter(struct ha_leader *leader, enum ha_leader_state state, uint64_t now_ns)
{
	leader->state = state;
	leader->pause_ns = HA_INC_AGAIN_NS;
	say_now(leader, now_ns);
}

/* To all that are there: RESUME or ABORT. */
static void answer_all(struct ha_leader *leader)
{
	for (uint16_t m = 0; m < leader->decision.members; m++)
		if (!leader->decision.said[m].leaves)
			leader->say(leader->arg, m, &leader->answer);
}

/* ---- deciding ------------------------------------------------------------------------------- */

/* ABORT: nobody is left to wait for a verdict. */
static void give_up_with(struct ha_leader *leader, enum ha_inc_abort why,
			 const struct ha_decision_fault *about, const struct ha_dispute *dispute)
{
	leader->state = HA_LEADER_OVER;
	leader->answer = frame_of(leader, HA_INC_ABORT);
	leader->answer.abort.why = why;
	leader->answer.abort.about = *about;
	leader->answer.abort.dispute = *dispute;
	answer_all(leader);
}

static void give_up(struct ha_leader *leader, enum ha_inc_abort why,
		    const struct ha_decision_fault *about)
{
	give_up_with(leader, why, about, &(struct ha_dispute){0});
}

/* No other tree helps. */
static void end_dispute(struct ha_leader *leader, const struct ha_dispute *dispute)
{
	const struct ha_decision_fault about = {dispute->other, dispute->unit};

	give_up_with(leader, HA_INC_ABORT_DISPUTE, &about, dispute);
}

static bool has_another_way(const struct ha_leader *leader)
{
	return leader->goes_back || !leader->ways || leader->next < leader->ways;
}

/* GO_BACK: to where it was, if it was elsewhere; that has carried what the first way did not. */
static void take_way(struct ha_leader *leader)
{
	const uint32_t was = leader->way;

	leader->way = leader->goes_back ? 0 : leader->next;
	leader->next = leader->goes_back && was > 0 ? was : leader->way + 1;
	leader->goes_back = false;
}

static void resume(struct ha_leader *leader, const struct ha_resume *decided)
{
	if (!has_another_way(leader)) {
		give_up(leader, HA_INC_ABORT_NO_TREE, &(struct ha_decision_fault){0});
		return;
	}
	leader->state = HA_LEADER_QUIET;
	leader->answer = frame_of(leader, HA_INC_RESUME);
	leader->answer.resume = *decided;
	take_way(leader);
	leader->answer.way = leader->way;
	leader->answer.plan = ++leader->plan; /* NEW_PLAN: never named again */
	answer_all(leader);
}

static void decide(struct ha_leader *leader)
{
	struct ha_decision_fault fault = {0};
	struct ha_resume decided;

	switch (ha_decision_make(&leader->decision, &decided, &fault)) {
	case HA_DECISION_WAITS:
		break;
	case HA_DECISION_MADE:
		resume(leader, &decided);
		break;
	case HA_DECISION_DAMAGED:
		give_up(leader, HA_INC_ABORT_DAMAGED, &fault);
		break;
	case HA_DECISION_LOST:
		give_up(leader, HA_INC_ABORT_LOST, &fault);
		break;
	}
}

static void begin_fence(struct ha_leader *leader, uint64_t now_ns)
{
	ha_decision_begin(&leader->decision);
	enter(leader, HA_LEADER_FENCING, now_ns);
	decide(leader); /* all have left */
}

/* ---- what is heard -------------------------------------------------------------------------- */

static void has_asked(struct ha_leader *leader, uint16_t member, uint64_t units)
{
	if (units > leader->asked[member])
		leader->asked[member] = units;
}

static void asked(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		  uint64_t now_ns)
{
	(void)now_ns;
	has_asked(leader, member, frame->unit);
}

/* Asks those that are not known to have asked for the unit; false: there are none. */
static bool ask(struct ha_leader *leader, uint64_t unit)
{
	struct ha_inc_frame frame = frame_of(leader, HA_INC_ASK);
	bool is_missing = false;

	frame.unit = unit;
	for (uint16_t m = 0; m < leader->decision.members; m++) {
		if (leader->decision.said[m].leaves || leader->asked[m] > unit)
			continue;
		leader->say(leader->arg, m, &frame);
		is_missing = true;
	}
	return is_missing;
}

/* LEFT_BEFORE: who has left never asks for the unit, so that it is not to be waited for. */
static bool has_left_before(const struct ha_leader *leader, uint64_t unit, uint16_t *member)
{
	const struct ha_decision *decision = &leader->decision;

	for (*member = 0; *member < decision->members; ++*member)
		if (decision->said[*member].leaves && decision->said[*member].retired <= unit)
			return true;
	return false;
}

/* FROZEN: a member that is late is no reason. When it has asked, whoever still waits says so once
 * more. */
static void suspect(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		    uint64_t now_ns)
{
	uint16_t other;

	if (frame->epoch != leader->decision.epoch) /* of a tree that is not in use any more */
		return;
	if (!frame->is_cut && has_left_before(leader, frame->unit, &other)) {
		end_dispute(leader,
			    &(struct ha_dispute){HA_DISPUTE_LEFT, member, other, 0, frame->unit});
		return;
	}
	if (!frame->is_cut) {
		has_asked(leader, member, frame->unit + 1);
		if (ask(leader, frame->unit))
			return;
	}
	begin_fence(leader, now_ns);
}

static void fenced(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		   uint64_t now_ns)
{
	(void)now_ns;
	if (ha_decision_hear(&leader->decision, member, &frame->said))
		decide(leader);
}

/* It has not heard of the decision. */
static void fenced_again(struct ha_leader *leader, uint16_t member,
			 const struct ha_inc_frame *frame, uint64_t now_ns)
{
	(void)now_ns;
	if (frame->epoch == leader->decision.epoch)
		leader->say(leader->arg, member, &leader->answer);
}

static void look_whether_all_hold(struct ha_leader *leader, uint64_t now_ns)
{
	if (ha_decision_is_settled(&leader->holding))
		begin_fence(leader, now_ns);
}

static void held(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		 uint64_t now_ns)
{
	struct ha_fenced said = frame->said;

	if (frame->epoch != leader->decision.epoch)
		return;
	said.epoch = frame->round;
	ha_decision_hear(&leader->holding, member, &said);
	look_whether_all_hold(leader, now_ns);
}

/* Nobody needs that epoch: it is not begun where it would be the end (LAST_WAY). */
static void drain(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		  uint64_t now_ns)
{
	(void)member;
	if (frame->epoch == leader->decision.epoch && has_another_way(leader))
		(void)ha_leader_hold(leader, now_ns);
}

/* It has not heard that HOLD was taken back. */
static void held_for_nothing(struct ha_leader *leader, uint16_t member,
			     const struct ha_inc_frame *frame, uint64_t now_ns)
{
	struct ha_inc_frame off = frame_of(leader, HA_INC_HOLD);

	(void)now_ns;
	if (frame->epoch != leader->decision.epoch)
		return;
	off.round = leader->holding.epoch;
	leader->say(leader->arg, member, &off);
}

static void left(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		 uint64_t now_ns)
{
	ha_decision_hear(&leader->decision, member, &frame->said);
	ha_decision_hear(&leader->holding, member, &frame->said);
	if (leader->state == HA_LEADER_FENCING)
		decide(leader);
	else if (leader->state == HA_LEADER_HOLDING)
		look_whether_all_hold(leader, now_ns);
}

/* In whatever epoch: what was asked for stays so. */
static void dispute(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		    uint64_t now_ns)
{
	(void)member, (void)now_ns;
	end_dispute(leader, &frame->dispute);
}

static void is_over(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		    uint64_t now_ns)
{
	(void)frame, (void)now_ns;
	leader->say(leader->arg, member, &leader->answer);
}

/* What is left out changes nothing: it comes late. */
static handler *const table[HA_LEADER_STATES][HA_INC_FRAME_KINDS] = {
    [HA_LEADER_QUIET] = {[HA_INC_SUSPECT] = suspect,
			 [HA_INC_ASKED] = asked,
			 [HA_INC_FENCED] = fenced_again,
			 [HA_INC_HELD] = held_for_nothing,
			 [HA_INC_DRAIN] = drain,
			 [HA_INC_DISPUTE] = dispute,
			 [HA_INC_LEAVE] = left},
    [HA_LEADER_HOLDING] = {[HA_INC_SUSPECT] = suspect,
			   [HA_INC_ASKED] = asked,
			   [HA_INC_FENCED] = fenced_again,
			   [HA_INC_HELD] = held,
			   [HA_INC_DISPUTE] = dispute,
			   [HA_INC_LEAVE] = left},
    [HA_LEADER_FENCING] =
	{[HA_INC_FENCED] = fenced, [HA_INC_DISPUTE] = dispute, [HA_INC_LEAVE] = left},
    [HA_LEADER_OVER] = {[HA_INC_SUSPECT] = is_over,
			[HA_INC_FENCED] = is_over,
			[HA_INC_HELD] = is_over,
			[HA_INC_DISPUTE] = is_over},
};

void ha_leader_hear(struct ha_leader *leader, uint16_t member, const struct ha_inc_frame *frame,
		    uint64_t now_ns)
{
	handler *handle = table[leader->state][frame->kind];

	if (handle && frame->group == leader->group && frame->member == member)
		handle(leader, member, frame, now_ns);
}

/* ---- what is not heard ---------------------------------------------------------------------- */

void ha_leader_tick(struct ha_leader *leader, uint64_t now_ns)
{
	const bool is_asking =
	    leader->state == HA_LEADER_FENCING || leader->state == HA_LEADER_HOLDING;

	if (is_asking && now_ns >= leader->again_ns)
		say_now(leader, now_ns);
}

bool ha_leader_hold(struct ha_leader *leader, uint64_t now_ns)
{
	if (leader->state != HA_LEADER_QUIET)
		return false;
	ha_decision_begin(&leader->holding);
	enter(leader, HA_LEADER_HOLDING, now_ns);
	return true;
}

bool ha_leader_go_back(struct ha_leader *leader, uint64_t now_ns)
{
	if (leader->way == 0 || !ha_leader_hold(leader, now_ns))
		return false;
	leader->goes_back = true;
	return true;
}

void ha_leader_settle(struct ha_leader *leader)
{
	if (leader->way == 0)
		leader->next = 1;
}

bool ha_leader_hold_off(struct ha_leader *leader)
{
	struct ha_inc_frame off = frame_of(leader, HA_INC_HOLD);

	if (leader->state != HA_LEADER_HOLDING)
		return false;
	leader->goes_back = false;
	leader->state = HA_LEADER_QUIET;
	off.round = leader->holding.epoch;
	for (uint16_t m = 0; m < leader->decision.members; m++)
		leader->say(leader->arg, m, &off);
	return true;
}

void ha_leader_give_up(struct ha_leader *leader, enum ha_inc_abort why, uint16_t member)
{
	if (leader->state != HA_LEADER_OVER)
		give_up(leader, why, &(struct ha_decision_fault){.member = member});
}

bool ha_leader_may_leave(const struct ha_leader *leader)
{
	for (uint16_t m = 0; m < leader->decision.members; m++)
		if (!leader->decision.said[m].leaves)
			return false;
	return true;
}
