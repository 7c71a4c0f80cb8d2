/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verbs/follower.h"

#include "inc/leader.h"

typedef void handler(struct ha_follower *follower, const struct ha_inc_frame *frame,
		     uint64_t now_ns);

void ha_follower_init(struct ha_follower *follower, struct ha_member *member, uint16_t number,
		      uint64_t group, uint64_t late_ns, const struct ha_follower_calls *calls)
{
	*follower = (struct ha_follower){.member = member,
					 .number = number,
					 .group = group,
					 .late_ns = late_ns,
					 .calls = *calls};
}

/* ---- saying --------------------------------------------------------------------------------- */

/* What a state says. Nothing in RUNS, unless it holds. */
static const enum ha_inc_frame_kind says[HA_FOLLOWER_STATES] = {
    [HA_FOLLOWER_SUSPECTS] = HA_INC_SUSPECT,
    [HA_FOLLOWER_FENCED] = HA_INC_FENCED,
    [HA_FOLLOWER_DISPUTES] = HA_INC_DISPUTE,
    [HA_FOLLOWER_LEFT] = HA_INC_LEAVE,
};

static enum ha_inc_frame_kind kind_of(const struct ha_follower *follower)
{
	if (follower->state == HA_FOLLOWER_RUNS && follower->round)
		return HA_INC_HELD;
	if (follower->state == HA_FOLLOWER_RUNS && follower->is_to_drain)
		return HA_INC_DRAIN;
	return says[follower->state];
}

/* Grows with whatever gets on. */
static uint64_t steps_of(const struct ha_follower *follower)
{
	const struct ha_ledger *ledger = ha_member_ledger(follower->member);

	return ha_ledger_word(ledger) + ledger->retired + ledger->first;
}

static void say_now(struct ha_follower *follower, uint64_t now_ns)
{
	struct ha_inc_frame frame = {.kind = kind_of(follower),
				     .member = follower->number,
				     .epoch = follower->epoch,
				     .group = follower->group,
				     .round = follower->round};

	follower->again_ns = now_ns + follower->pause_ns;
	follower->pause_ns *= 2;
	if (follower->pause_ns > HA_INC_AGAIN_MAX_NS)
		follower->pause_ns = HA_INC_AGAIN_MAX_NS;
	if (!frame.kind)
		return;
	if (frame.kind == HA_INC_SUSPECT) {
		frame.is_cut = ha_member_is_cut(follower->member);
		frame.unit = ha_member_ledger(follower->member)->first;
	} else if (frame.kind == HA_INC_DISPUTE) {
		frame.dispute = follower->dispute;
	} else if (frame.kind != HA_INC_DRAIN) {
		ha_ledger_say(ha_member_ledger(follower->member), &frame.said);
		follower->held_steps = steps_of(follower);
	}
	follower->calls.say(follower->calls.arg, &frame);
}

static void enter(struct ha_follower *follower, enum ha_follower_state state, uint64_t now_ns)
{
	follower->state = state;
	follower->pause_ns = HA_INC_AGAIN_NS;
	say_now(follower, now_ns);
}

/* ---- what is heard -------------------------------------------------------------------------- */

static void try_to_fence(struct ha_follower *follower, uint64_t now_ns)
{
	if (ha_member_fence(follower->member, follower->epoch))
		enter(follower, HA_FOLLOWER_FENCED, now_ns);
}

static void fence(struct ha_follower *follower, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	if (frame->epoch <= follower->epoch)
		return;
	follower->epoch = frame->epoch;
	follower->round = 0;
	follower->is_to_drain = false;
	follower->calls.fence(follower->calls.arg);
	enter(follower, HA_FOLLOWER_FENCING, now_ns);
	try_to_fence(follower, now_ns);
}

/* Of this epoch it has been answered, and the answer was lost. */
static void fence_again(struct ha_follower *follower, const struct ha_inc_frame *frame,
			uint64_t now_ns)
{
	if (frame->epoch == follower->epoch)
		say_now(follower, now_ns);
	else
		fence(follower, frame, now_ns);
}

static void give_up(struct ha_follower *follower, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	(void)now_ns;
	follower->state = HA_FOLLOWER_OVER;
	follower->verdict = *frame;
}

static void go_on(struct ha_follower *follower, uint64_t now_ns)
{
	follower->since_ns = now_ns;
	enter(follower, HA_FOLLOWER_RUNS, now_ns);
}

/* RESUME_EPOCH, NEW_PLAN: the tree of another epoch is gone, and one that was named before may have
 * something left of it. */
static void resume(struct ha_follower *follower, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	if (frame->epoch != follower->epoch || frame->plan <= follower->plan)
		return;
	follower->plan = frame->plan;
	follower->way = frame->way;
	follower->calls.join(follower->calls.arg, frame->way, frame->epoch);
	if (ha_member_resume(follower->member, &frame->resume) == HA_LEDGER_FINE)
		go_on(follower, now_ns);
	else
		give_up(follower, frame, now_ns); /* the leader speaks of another group's units */
}

static void hold(struct ha_follower *follower, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	if (frame->epoch != follower->epoch || frame->round < follower->round)
		return;
	follower->round = frame->is_on ? frame->round : 0;
	ha_member_hold(follower->member, frame->is_on);
	follower->pause_ns = HA_INC_AGAIN_NS;
	say_now(follower, now_ns);
}

static void answer(struct ha_follower *follower, const struct ha_inc_frame *frame, uint64_t now_ns)
{
	const struct ha_inc_frame asked = {
	    .kind = HA_INC_ASKED,
	    .member = follower->number,
	    .epoch = follower->epoch,
	    .group = follower->group,
	    .unit = ha_member_ledger(follower->member)->issued,
	};

	(void)frame, (void)now_ns;
	follower->calls.say(follower->calls.arg, &asked);
}

static void has_left(struct ha_follower *follower, const struct ha_inc_frame *frame,
		     uint64_t now_ns)
{
	(void)frame;
	say_now(follower, now_ns);
}

/* What is left out changes nothing: it comes late. */
static handler *const table[HA_FOLLOWER_STATES][HA_INC_FRAME_KINDS] = {
    [HA_FOLLOWER_RUNS] = {[HA_INC_FENCE] = fence,
			  [HA_INC_HOLD] = hold,
			  [HA_INC_ASK] = answer,
			  [HA_INC_ABORT] = give_up},
    [HA_FOLLOWER_SUSPECTS] =
	{[HA_INC_FENCE] = fence, [HA_INC_ASK] = answer, [HA_INC_ABORT] = give_up},
    [HA_FOLLOWER_FENCING] = {[HA_INC_FENCE] = fence, [HA_INC_ABORT] = give_up},
    [HA_FOLLOWER_FENCED] =
	{[HA_INC_FENCE] = fence_again, [HA_INC_RESUME] = resume, [HA_INC_ABORT] = give_up},
    [HA_FOLLOWER_DISPUTES] = {[HA_INC_ABORT] = give_up},
    [HA_FOLLOWER_LEFT] =
	{[HA_INC_FENCE] = has_left, [HA_INC_HOLD] = has_left, [HA_INC_ASK] = has_left},
};

void ha_follower_hear(struct ha_follower *follower, const struct ha_inc_frame *frame,
		      uint64_t now_ns)
{
	handler *handle = table[follower->state][frame->kind];

	if (handle && frame->group == follower->group)
		handle(follower, frame, now_ns);
}

/* ---- what is not heard ---------------------------------------------------------------------- */

/* RTO_RETIRED, CUT_SEND: also of a retirement, and of a send of its own. */
static bool is_waiting(const struct ha_ledger *ledger)
{
	return ledger->retired < ledger->issued || ledger->sending;
}

static bool is_late(struct ha_follower *follower, uint64_t now_ns)
{
	const struct ha_ledger *ledger = ha_member_ledger(follower->member);
	const uint64_t steps = steps_of(follower);

	if (steps != follower->steps || !is_waiting(ledger) || !follower->since_ns) {
		follower->steps = steps;
		follower->since_ns = now_ns;
	}
	return follower->late_ns && now_ns - follower->since_ns >= follower->late_ns;
}

/* Its trees work, and are left for others that it joins over a better port. A group that is away
 * from its plan's trees goes back to them anyway. */
static void look_for_better_port(struct ha_follower *follower, uint64_t now_ns)
{
	const bool is_away = !follower->way && ha_member_has_better_port(follower->member);

	if (ha_failback_look(&follower->to_port, is_away, now_ns) == HA_FAILBACK_ASKS)
		ha_follower_drain(follower, now_ns);
}

/* HELD_NEWS: all members wait for what is open, so they hear of it as it is done. */
static bool has_held_more(const struct ha_follower *follower)
{
	return kind_of(follower) == HA_INC_HELD && steps_of(follower) != follower->held_steps;
}

void ha_follower_tick(struct ha_follower *follower, uint64_t now_ns)
{
	bool does_not_get_on;

	ha_member_look_at_port(follower->member);
	look_for_better_port(follower, now_ns);
	does_not_get_on = is_late(follower, now_ns) || ha_member_is_cut(follower->member);
	if (follower->state == HA_FOLLOWER_RUNS && does_not_get_on)
		enter(follower, HA_FOLLOWER_SUSPECTS, now_ns);
	else if (follower->state == HA_FOLLOWER_SUSPECTS && !does_not_get_on)
		enter(follower, HA_FOLLOWER_RUNS, now_ns);
	else if (follower->state == HA_FOLLOWER_FENCING)
		try_to_fence(follower, now_ns);
	else if (has_held_more(follower))
		enter(follower, follower->state, now_ns);
	else if (now_ns >= follower->again_ns)
		say_now(follower, now_ns);
}

void ha_follower_drain(struct ha_follower *follower, uint64_t now_ns)
{
	/* In other states that tree is being left already, and the next one need not be. */
	if (follower->is_to_drain || follower->state != HA_FOLLOWER_RUNS)
		return;
	follower->is_to_drain = true;
	enter(follower, HA_FOLLOWER_RUNS, now_ns);
}

void ha_follower_dispute(struct ha_follower *follower, const struct ha_dispute *dispute,
			 uint64_t now_ns)
{
	if (follower->state >= HA_FOLLOWER_DISPUTES)
		return;
	follower->dispute = *dispute;
	enter(follower, HA_FOLLOWER_DISPUTES, now_ns);
}

bool ha_follower_leave(struct ha_follower *follower, uint64_t now_ns)
{
	if (follower->state != HA_FOLLOWER_RUNS || !ha_member_leave(follower->member))
		return false;
	enter(follower, HA_FOLLOWER_LEFT, now_ns);
	return true;
}
