/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/lane.h"

#include <string.h>

static size_t partial_bytes(const struct ha_lane_shape *shape)
{
	return (size_t)HA_REDUCE_MAX_WIDENING * shape->unit_bytes;
}

/* Of a fold: a place for each two children. */
static size_t scratch_bytes(const struct ha_lane_shape *shape)
{
	return (shape->children + 1) / 2 * partial_bytes(shape);
}

/* Of one unit in the window. */
static size_t room_bytes(const struct ha_lane_shape *shape)
{
	return shape->unit_bytes + (shape->is_root ? 0 : partial_bytes(shape)) +
	       scratch_bytes(shape);
}

static size_t units_of(const struct ha_lane_shape *shape)
{
	return 2 * (size_t)shape->window;
}

size_t ha_lane_bytes(const struct ha_lane_shape *shape)
{
	return units_of(shape) * sizeof(struct ha_unit) + shape->window * room_bytes(shape);
}

/* Units that are D apart share buffers. */
static struct ha_unit_room room_of(const struct ha_lane_shape *shape, char *rooms, size_t i)
{
	char *at = rooms + i % shape->window * room_bytes(shape);

	return (struct ha_unit_room){
	    .result = at,
	    .scratch = at + shape->unit_bytes,
	    .partial = shape->is_root ? NULL : at + shape->unit_bytes + scratch_bytes(shape),
	};
}

void ha_lane_init(struct ha_lane *lane, const struct ha_lane_shape *shape, void *memory)
{
	char *rooms = (char *)memory + units_of(shape) * sizeof(struct ha_unit);

	memset(lane, 0, sizeof(*lane));
	lane->shape = *shape;
	lane->unit = memory;
	for (size_t i = 0; i < units_of(shape); i++) {
		const struct ha_unit_room room = room_of(shape, rooms, i);

		ha_unit_init(&lane->unit[i], shape->children, shape->is_root, &room);
	}
}

static struct ha_unit *unit_at(const struct ha_lane *lane, uint64_t index)
{
	return &lane->unit[index % units_of(&lane->shape)];
}

static void fail(struct ha_lane *lane, enum ha_lane_fault fault, unsigned int child)
{
	if (lane->fault)
		return;
	lane->fault = fault;
	lane->fault_child = child;
}

/* One step of a unit; false: it was none. */
static bool step(struct ha_lane *lane, uint64_t index, const struct ha_unit_input *input)
{
	enum ha_unit_verdict verdict;

	if (lane->fault)
		return false;
	verdict = ha_unit_step(unit_at(lane, index), input);
	if (verdict == HA_UNIT_DISAGREES)
		fail(lane, HA_LANE_DISAGREES, input->who);
	else if (verdict != HA_UNIT_FINE)
		fail(lane, HA_LANE_BUG, input->who);
	return verdict == HA_UNIT_FINE;
}

void ha_lane_came(struct ha_lane *lane, unsigned int child, const struct ha_contribution *c)
{
	uint64_t index = lane->came[child];

	if (index >= lane->reduced + lane->shape.window ||
	    c->count > lane->shape.unit_bytes / ha_reduce_bytes(c->reduction, HA_REDUCE_WIRE))
		fail(lane, HA_LANE_OVERRUN, child);
	if (!step(lane, index, &(struct ha_unit_input){HA_UNIT_CAME, child, c}))
		return;
	lane->came[child]++;
	if (lane->came[child] > lane->begun)
		lane->begun = lane->came[child];
}

/* Whether the next unit may be reduced: it is all there, and nothing reads the buffers that its
 * results go to any more. */
static bool may_reduce(const struct ha_lane *lane)
{
	return ha_unit_is_complete(unit_at(lane, lane->reduced)) &&
	       (lane->reduced < lane->shape.window ||
		unit_at(lane, lane->reduced - lane->shape.window)->state == HA_UNIT_EMPTY);
}

void ha_lane_look(struct ha_lane *lane)
{
	while (may_reduce(lane) &&
	       step(lane, lane->reduced, &(struct ha_unit_input){.on = HA_UNIT_FINISH}))
		lane->reduced++;
	for (uint64_t i = lane->reduced; i < lane->begun; i++)
		step(lane, i, &(struct ha_unit_input){.on = HA_UNIT_LOOK});
}

bool ha_lane_next_send(const struct ha_lane *lane, unsigned int target, struct ha_unit_send *send)
{
	const struct ha_unit *unit = unit_at(lane, lane->posted[target]);

	if (lane->fault || lane->posted[target] >= lane->reduced || !ha_unit_wants(unit, target))
		return false;
	*send = ha_unit_send_of(unit, target);
	return true;
}

void ha_lane_posted(struct ha_lane *lane, unsigned int target)
{
	if (step(lane, lane->posted[target], &(struct ha_unit_input){HA_UNIT_POSTED, target, NULL}))
		lane->posted[target]++;
}

void ha_lane_sent(struct ha_lane *lane, unsigned int target)
{
	if (step(lane, lane->sent[target], &(struct ha_unit_input){HA_UNIT_SENT, target, NULL}))
		lane->sent[target]++;
}

void *ha_lane_result_room(const struct ha_lane *lane, unsigned int ahead)
{
	uint64_t index = lane->answered + ahead;

	return index < lane->reduced ? unit_at(lane, index)->room.result : NULL;
}

void ha_lane_answered(struct ha_lane *lane)
{
	if (step(lane, lane->answered, &(struct ha_unit_input){.on = HA_UNIT_ANSWERED}))
		lane->answered++;
}
