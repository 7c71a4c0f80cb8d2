/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane of a switch whose children, and whose parent, send what they like and when: contributions
 * of any operation, type and length, more of them than there is room for, results that were not
 * asked for; while its sends end in any order. Nothing is written outside of what the lane was
 * given, what it sends is no longer than the largest unit, nobody is sent more than was reduced,
 * and its first fault stays.
 *
 * Input: byte 0: children; byte 1: the window, whether it is the root; then operations: a byte
 * each, and what it takes.
 */
#include "fuzz.h"
#include "input.h"

#include "inc/lane.h"

#include <string.h>

#define UNIT	 64
#define MARGIN	 64
#define CANARY	 0xa5
#define MAX_OPS	 200
#define CHILDREN 4
#define WINDOW	 4

enum operation { CAME, LOOK, POST, SENT, ANSWER, OPERATIONS };

static struct {
	struct ha_lane lane;
	uint8_t *memory;
	size_t bytes;
	/* Where contributions of each child land, a place for each unit of two windows. */
	uint8_t landing[CHILDREN][2 * WINDOW][HA_REDUCE_MAX_WIDENING * UNIT + MARGIN];
	const struct ha_reduction *reductions[2 * WINDOW]; /* of the unit's first contribution */
} run;

static const struct ha_reduction *any_reduction(void)
{
	const unsigned type = byte() % HA_REDUCE_TYPES;

	return ha_reduction_of(type, byte() % HA_REDUCE_OPS);
}

/* What the header's decoder lets through: a type and an operation that there are, and whole
 * elements, which have landed where the child's buffer is. */
static void came(uint8_t child, uint8_t lies)
{
	const uint64_t index = run.lane.came[child];
	const unsigned slot = (unsigned)(index % (2 * WINDOW));
	uint8_t *at = run.landing[child][slot];
	struct ha_contribution c = {.at = at, .reduction = run.reductions[slot]};

	if (!c.reduction || lies & 1)
		c.reduction = any_reduction();
	if (!c.reduction)
		return;
	run.reductions[slot] = c.reduction;
	c.count =
	    (lies & 2 ? (size_t)number(2) : UNIT) / ha_reduce_bytes(c.reduction, HA_REDUCE_WIRE);
	c.form = lies & 4 ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
	for (size_t i = 0; i < HA_REDUCE_MAX_WIDENING * UNIT; i++)
		at[i] = (uint8_t)(lies + i);
	ha_lane_came(&run.lane, child, &c);
}

/* Of the switch: only what it would do, as what it posts is its own. */
static void post(unsigned target)
{
	struct ha_unit_send send;

	if (!ha_lane_next_send(&run.lane, target, &send))
		return;
	FUZZ_CHECK(run.lane.posted[target] < run.lane.reduced);
	FUZZ_CHECK(send.bytes <= HA_REDUCE_MAX_WIDENING * UNIT);
	FUZZ_CHECK((uint8_t *)send.at >= run.memory &&
		   (uint8_t *)send.at + send.bytes <= run.memory + run.bytes);
	ha_lane_posted(&run.lane, target);
}

/* Where it was asked for, the whole of it is written. */
static void answer(bool was_asked_for)
{
	uint8_t *at = ha_lane_result_room(&run.lane, 0);

	if (!at && was_asked_for)
		return;
	if (at)
		memset(at, 1, UNIT);
	ha_lane_answered(&run.lane);
}

static unsigned target_of(uint8_t any)
{
	const unsigned target = any % (run.lane.shape.children + 1);

	return target < run.lane.shape.children ? target : HA_UNIT_UP;
}

static void operate(void)
{
	const struct ha_lane before = run.lane;
	const uint8_t what = byte();
	uint8_t which;

	switch ((enum operation)(what % OPERATIONS)) {
	case CAME:
		which = (uint8_t)(byte() % run.lane.shape.children);
		came(which, byte());
		break;
	case LOOK:
		ha_lane_look(&run.lane);
		break;
	case POST:
		post(target_of(byte()));
		break;
	case SENT:
		ha_lane_sent(&run.lane, target_of(byte()));
		break;
	case ANSWER:
		answer(what & 0x80);
		break;
	case OPERATIONS:
		break;
	}
	if (before.fault)
		FUZZ_CHECK(run.lane.fault == before.fault && run.lane.reduced == before.reduced);
	for (unsigned child = 0; child < run.lane.shape.children; child++) {
		FUZZ_CHECK(run.lane.reduced <= run.lane.came[child]);
		FUZZ_CHECK(run.lane.came[child] <= run.lane.reduced + run.lane.shape.window);
		FUZZ_CHECK(run.lane.sent[child] <= run.lane.posted[child]);
	}
}

static void check_margins(void)
{
	for (size_t i = 0; i < MARGIN; i++)
		FUZZ_CHECK(run.memory[run.bytes + i] == CANARY);
	for (unsigned child = 0; child < CHILDREN; child++)
		for (unsigned slot = 0; slot < 2 * WINDOW; slot++)
			for (size_t i = 0; i < MARGIN; i++)
				FUZZ_CHECK(
				    run.landing[child][slot][HA_REDUCE_MAX_WIDENING * UNIT + i] ==
				    CANARY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ha_lane_shape shape = {.unit_bytes = UNIT};
	uint8_t how;

	input = data;
	input_left = size;
	memset(&run, 0, sizeof(run));
	memset(run.landing, CANARY, sizeof(run.landing));
	shape.children = 1 + byte() % CHILDREN;
	how = byte();
	shape.window = 1 + how % WINDOW;
	shape.is_root = how & 0x80;
	run.bytes = ha_lane_bytes(&shape);
	run.memory = aligned_alloc(64, (run.bytes + MARGIN + 63) & ~(size_t)63);
	if (!run.memory)
		abort();
	memset(run.memory, CANARY, run.bytes + MARGIN);
	ha_lane_init(&run.lane, &shape, run.memory);
	for (int i = 0; i < MAX_OPS && input_left > 0; i++)
		operate();
	check_margins();
	free(run.memory);
	return 0;
}

/* ---- seeds ----------------------------------------------------------------------------------- */

/* Two children and a root: two units; then one below a parent. */
static const uint8_t root[] = {1,    0x81, CAME, 0, 0,	  7,	0,    CAME, 1,	  0, LOOK,
			       POST, 0,	   POST, 1, SENT, 0,	SENT, 1,    CAME, 1, 0,
			       7,    0,	   CAME, 0, 0,	  LOOK, POST, 0,    POST, 1};
static const uint8_t inner[] = {1, 1,	 CAME, 0,      0,    7, 0,    CAME, 1,	  0, LOOK, POST,
				2, SENT, 2,    ANSWER, POST, 0, POST, 1,    SENT, 0, SENT, 1};
/* Too many, too long, another operation, partial results, a result of nothing. */
static const uint8_t many[] = {0, 0x81, CAME, 0, 0, 7, 0, CAME, 0, 0, 7, 0, CAME, 0, 0, CAME, 0, 0};
static const uint8_t longer[] = {0, 0x81, CAME, 0, 2, 7, 0, 0xff, 0xff, LOOK};
static const uint8_t disagrees[] = {1, 0x81, CAME, 0, 0, 7, 0, CAME, 1, 1, 3, 1, LOOK};
static const uint8_t wide[] = {1, 0x81, CAME, 0, 4, 7, 0, CAME, 1, 0, LOOK, POST, 0};
static const uint8_t unasked[] = {0, 1, ANSWER, CAME, 0, 0, 7, 0, LOOK, ANSWER};

#define SEED(name)                                                                                 \
	{                                                                                          \
		(name), sizeof(name)                                                               \
	}

const struct fuzz_seed fuzz_seeds[] = {
    SEED(root),	     SEED(inner), SEED(many),	 SEED(longer),
    SEED(disagrees), SEED(wide),  SEED(unasked), {NULL, 0},
};
