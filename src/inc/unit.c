/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/unit.h"

typedef enum ha_unit_verdict handler(struct ha_unit *unit, const struct ha_unit_input *input);

/* Of a target that there is none of, nothing: so it is in no bitmap. */
static uint64_t bit_of(unsigned int target)
{
	return target < HA_UNIT_TARGETS ? (uint64_t)1 << target : 0;
}

static uint64_t all_children(const struct ha_unit *unit)
{
	return ((uint64_t)1 << unit->children) - 1;
}

/* ---- what an event does --------------------------------------------------------------------- */

static enum ha_unit_verdict nothing(struct ha_unit *unit, const struct ha_unit_input *input)
{
	(void)unit, (void)input;
	return HA_UNIT_FINE;
}

static enum ha_unit_verdict another(struct ha_unit *unit, const struct ha_unit_input *input)
{
	const struct ha_contribution *c = input->contribution;

	if (input->who >= unit->children || unit->fold.come >> input->who & 1)
		return HA_UNIT_IMPOSSIBLE;
	if (c->reduction != unit->fold.reduction || c->count != unit->fold.count)
		return HA_UNIT_DISAGREES;
	ha_fold_add(&unit->fold, input->who, c->at, c->form);
	return HA_UNIT_FINE;
}

static enum ha_unit_verdict first(struct ha_unit *unit, const struct ha_unit_input *input)
{
	const struct ha_contribution *c = input->contribution;

	if (input->who >= unit->children)
		return HA_UNIT_IMPOSSIBLE;
	ha_fold_begin(&unit->fold, c->reduction, unit->children, c->count, unit->room.scratch);
	unit->state = HA_UNIT_GATHERING;
	return another(unit, input);
}

static enum ha_unit_verdict look(struct ha_unit *unit, const struct ha_unit_input *input)
{
	(void)input;
	ha_fold_advance(&unit->fold);
	return HA_UNIT_FINE;
}

static void has_result(struct ha_unit *unit)
{
	unit->to_post = all_children(unit);
	unit->state = HA_UNIT_RESULT;
}

static enum ha_unit_verdict finish(struct ha_unit *unit, const struct ha_unit_input *input)
{
	(void)input;
	if (!ha_fold_is_complete(&unit->fold))
		return HA_UNIT_IMPOSSIBLE;
	if (unit->is_root) {
		ha_fold_finish(&unit->fold, unit->room.result, HA_REDUCE_WIRE);
		has_result(unit);
	} else {
		ha_fold_finish(&unit->fold, unit->room.partial, HA_REDUCE_WIDE);
		unit->to_post = bit_of(HA_UNIT_UP);
		unit->state = HA_UNIT_REDUCED;
	}
	return HA_UNIT_FINE;
}

static enum ha_unit_verdict posted(struct ha_unit *unit, const struct ha_unit_input *input)
{
	uint64_t target = bit_of(input->who);

	if (!(unit->to_post & target))
		return HA_UNIT_IMPOSSIBLE;
	unit->to_post &= ~target;
	unit->in_flight |= target;
	if (unit->to_post)
		return HA_UNIT_FINE;
	unit->state = unit->state == HA_UNIT_REDUCED ? HA_UNIT_SENT_UP : HA_UNIT_DELIVERING;
	return HA_UNIT_FINE;
}

/* Also of the partial result, while the result is on its way or there. */
static enum ha_unit_verdict sent(struct ha_unit *unit, const struct ha_unit_input *input)
{
	uint64_t target = bit_of(input->who);

	if (!(unit->in_flight & target))
		return HA_UNIT_IMPOSSIBLE;
	unit->in_flight &= ~target;
	if (unit->state == HA_UNIT_DELIVERING && !unit->in_flight)
		unit->state = HA_UNIT_EMPTY;
	return HA_UNIT_FINE;
}

static enum ha_unit_verdict answered(struct ha_unit *unit, const struct ha_unit_input *input)
{
	(void)input;
	has_result(unit);
	return HA_UNIT_FINE;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* What is left out is impossible. */
static handler *const table[HA_UNIT_STATES][HA_UNIT_EVENTS] = {
    [HA_UNIT_EMPTY] = {[HA_UNIT_CAME] = first, [HA_UNIT_LOOK] = nothing},
    [HA_UNIT_GATHERING] =
	{[HA_UNIT_CAME] = another, [HA_UNIT_LOOK] = look, [HA_UNIT_FINISH] = finish},
    [HA_UNIT_REDUCED] = {[HA_UNIT_LOOK] = nothing, [HA_UNIT_POSTED] = posted},
    [HA_UNIT_SENT_UP] =
	{[HA_UNIT_LOOK] = nothing, [HA_UNIT_SENT] = sent, [HA_UNIT_ANSWERED] = answered},
    [HA_UNIT_RESULT] = {[HA_UNIT_LOOK] = nothing, [HA_UNIT_POSTED] = posted, [HA_UNIT_SENT] = sent},
    [HA_UNIT_DELIVERING] = {[HA_UNIT_LOOK] = nothing, [HA_UNIT_SENT] = sent},
};

enum ha_unit_verdict ha_unit_step(struct ha_unit *unit, const struct ha_unit_input *input)
{
	handler *handle = table[unit->state][input->on];

	return handle ? handle(unit, input) : HA_UNIT_IMPOSSIBLE;
}

void ha_unit_init(struct ha_unit *unit, unsigned int children, bool is_root,
		  const struct ha_unit_room *room)
{
	*unit = (struct ha_unit){
	    .state = HA_UNIT_EMPTY,
	    .is_root = is_root,
	    .children = (uint8_t)children,
	    .room = *room,
	};
}

struct ha_unit_send ha_unit_send_of(const struct ha_unit *unit, unsigned int target)
{
	bool up = target == HA_UNIT_UP;
	enum ha_reduce_form form = up ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;

	return (struct ha_unit_send){
	    .at = up ? unit->room.partial : unit->room.result,
	    .bytes = unit->fold.count * ha_reduce_bytes(unit->fold.reduction, form),
	};
}

const char *ha_unit_state_name(enum ha_unit_state state)
{
	static const char *const names[HA_UNIT_STATES] = {
	    "EMPTY", "GATHERING", "REDUCED", "SENT_UP", "RESULT", "DELIVERING",
	};

	return names[state];
}
