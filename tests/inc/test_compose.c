/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members and switches put together in memory: plan, cutting, lanes and units, with edges that
 * deliver and acknowledge whenever chance has it. A member's results must be the oracle's, to the
 * bit, whatever the order.
 *
 * An edge reads what is sent when it delivers it, and once more when it acknowledges it, as a
 * device does that has to send again: a buffer that was written to in between is found.
 */
#include "../unit/cmocka_all.h"

#include "../reduce/oracle.h"
#include "../reduce/samples.h"
#include "../seeded_random.h"

#include "base/sha256.h"
#include "inc/cut.h"
#include "inc/lane.h"
#include "inc/plan.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS	   16
#define SWITCHES   6
#define NODES	   (MEMBERS + SWITCHES)
#define LANES	   2
#define WINDOW	   2
#define UNIT_BYTES 256
#define WIDE_BYTES (UNIT_BYTES * HA_REDUCE_MAX_WIDENING)
#define MAX_OPS	   40
#define IN_FLIGHT  (2 * WINDOW)
#define POISON	   0xee

struct op {
	unsigned int type, op;
	size_t count;
	struct ha_cut cut;
	uint8_t *data[MEMBERS], *result[MEMBERS], *wanted;
};

struct message {
	const uint8_t *at;
	size_t bytes;
	uint8_t delivered[WIDE_BYTES];
};

/* One direction between a node and its parent, in one lane. Counts of messages. */
struct edge {
	uint64_t posted, delivered, acked;
	struct message message[IN_FLIGHT];
};

struct node {
	struct ha_lane lane; /* of a switch */
	void *memory;
	struct edge up, down; /* to its parent, and from it */
	uint8_t landing[HA_UNIT_CHILDREN][WINDOW][WIDE_BYTES];
	uint64_t freed;		/* landing buffers of units below it are the children's */
	uint64_t next, results; /* of a member: units of the lane */
};

static struct world {
	struct ha_plan plan;
	struct op op[MAX_OPS];
	unsigned int ops;
	uint64_t units, chance;
	bool in_place;
	struct node node[LANES][NODES];
} w;

static uint64_t random_below(uint64_t n)
{
	w.chance = mix(w.chance);
	return w.chance % n;
}

static bool is_member(unsigned int node)
{
	return node < w.plan.members;
}

/* ---- plans ---------------------------------------------------------------------------------- */

/* One switch; or two to four below another one, members dealt out in turn and one directly below
 * the root. The second lane has its switches the other way round. */
static void make_plan(unsigned int members, unsigned int levels)
{
	unsigned int leaves = levels == 1 ? 0 : members < 8 ? 2 : 4;
	unsigned int switches = leaves + 1;
	uint16_t parent[LANES][NODES];
	const uint16_t *lanes[LANES] = {parent[0], parent[1]};
	struct ha_plan_where where;

	for (unsigned int lane = 0; lane < LANES; lane++) {
		uint16_t root = (uint16_t)(members + (lane ? 0 : leaves));
		uint16_t first = (uint16_t)(members + (lane ? 1 : 0));

		for (unsigned int i = 0; i < switches; i++)
			parent[lane][members + i] = root;
		parent[lane][root] = HA_PLAN_NONE;
		for (unsigned int m = 0; m < members; m++) {
			unsigned int leaf = leaves && m != 2 ? first + m % leaves : root;

			parent[lane][m] = (uint16_t)leaf;
		}
	}
	assert_int_equal(ha_plan_make(&w.plan, members, switches, LANES, lanes, &where),
			 HA_PLAN_OK);
}

static void make_switches(void)
{
	for (unsigned int lane = 0; lane < LANES; lane++) {
		const struct ha_plan_tree *tree = &w.plan.tree[lane];

		for (unsigned int i = w.plan.members; i < w.plan.members + w.plan.switches; i++) {
			const struct ha_lane_shape shape = {tree->node[i].children, i == tree->root,
							    WINDOW, UNIT_BYTES};
			struct node *node = &w.node[lane][i];

			node->memory = malloc(ha_lane_bytes(&shape));
			assert_non_null(node->memory);
			ha_lane_init(&node->lane, &shape, node->memory);
		}
	}
}

/* ---- the oracle's result -------------------------------------------------------------------- */

static unsigned int lowest_below(unsigned int lane, unsigned int node)
{
	for (unsigned int m = 0; m < w.plan.members; m++)
		for (unsigned int at = m;; at = w.plan.tree[lane].node[at].parent) {
			if (at == node)
				return m;
			if (at == w.plan.tree[lane].root)
				break;
		}
	return NODES;
}

/* Partial results of a piece at a node; its children by the lowest member below each, as the
 * specification says it and not as the plan has it. */
static void oracle_at(const struct op *op, unsigned int lane, unsigned int node,
		      enum ha_reduce_form to, const struct ha_piece *piece, uint8_t *out)
{
	size_t count = piece->bytes / oracle_bytes(op->type, op->op, HA_REDUCE_WIRE);
	uint8_t(*part)[WIDE_BYTES] = calloc(MEMBERS, WIDE_BYTES);
	const void *src[MEMBERS];
	unsigned int n = 0;

	assert_non_null(part);
	if (is_member(node)) {
		src[0] = op->data[node] + piece->offset;
		oracle_reduce(op->type, op->op, HA_REDUCE_WIRE, to, out, src, 1, count);
		free(part);
		return;
	}
	for (unsigned int m = 0; m < w.plan.members; m++)
		for (unsigned int i = 0; i < w.plan.members + w.plan.switches; i++)
			if (i != w.plan.tree[lane].root &&
			    w.plan.tree[lane].node[i].parent == node &&
			    lowest_below(lane, i) == m) {
				oracle_at(op, lane, i, HA_REDUCE_WIDE, piece, part[n]);
				src[n] = part[n];
				n++;
			}
	oracle_reduce(op->type, op->op, HA_REDUCE_WIDE, to, out, src, n, count);
	free(part);
}

static void ask_oracle(struct op *op)
{
	for (uint64_t u = op->cut.first; u < op->cut.first + ha_cut_units(&op->cut); u++) {
		unsigned int lane = ha_cut_lane(u, LANES);
		struct ha_piece piece = ha_cut_piece(&op->cut, u);

		oracle_at(op, lane, w.plan.tree[lane].root, HA_REDUCE_WIRE, &piece,
			  op->wanted + piece.offset);
	}
}

/* ---- operations ----------------------------------------------------------------------------- */

static void *new_buffer(size_t bytes)
{
	void *buffer = malloc(bytes + 1);

	assert_non_null(buffer);
	memset(buffer, POISON, bytes + 1);
	return buffer;
}

static void add_op(unsigned int type, unsigned int operation, size_t count)
{
	struct op *op = &w.op[w.ops++];
	size_t bytes = count * oracle_bytes(type, operation, HA_REDUCE_WIRE);

	assert_true(w.ops <= MAX_OPS);
	*op = (struct op){type, operation,	  count, {w.units, bytes, UNIT_BYTES}, {0},
			  {0},	new_buffer(bytes)};
	for (unsigned int m = 0; m < w.plan.members; m++) {
		op->data[m] = new_buffer(bytes);
		sample_elements(type, op->data[m], count, 31 * w.ops + 8191 * m);
		op->result[m] = w.in_place ? op->data[m] : new_buffer(bytes);
	}
	ask_oracle(op);
	w.units += ha_cut_units(&op->cut);
}

static struct op *op_of(uint64_t unit)
{
	for (unsigned int i = 0; i < w.ops; i++)
		if (unit < w.op[i].cut.first + ha_cut_units(&w.op[i].cut))
			return &w.op[i];
	fail_msg("there is no unit %llu", (unsigned long long)unit);
	return NULL;
}

/* The operation and the piece of a lane's unit. */
static struct op *unit_of(unsigned int lane, uint64_t index, struct ha_piece *piece)
{
	uint64_t unit = ha_cut_unit(index, lane, LANES);
	struct op *op = op_of(unit);

	*piece = ha_cut_piece(&op->cut, unit);
	return op;
}

static uint64_t units_of_lane(unsigned int lane)
{
	return (w.units + LANES - 1 - lane) / LANES;
}

/* ---- edges ---------------------------------------------------------------------------------- */

static bool has_room(const struct edge *edge)
{
	return edge->posted - edge->acked < IN_FLIGHT;
}

static void post(struct edge *edge, const void *at, size_t bytes)
{
	edge->message[edge->posted++ % IN_FLIGHT] = (struct message){.at = at, .bytes = bytes};
}

static struct message *deliver(struct edge *edge, void *to)
{
	struct message *message = &edge->message[edge->delivered++ % IN_FLIGHT];

	memcpy(message->delivered, message->at, message->bytes);
	memcpy(to, message->at, message->bytes);
	return message;
}

static void acknowledge(struct edge *edge, bool may_have_changed)
{
	struct message *message = &edge->message[edge->acked++ % IN_FLIGHT];

	if (!may_have_changed && memcmp(message->delivered, message->at, message->bytes) != 0)
		fail_msg("a buffer was written to while it was sent");
}

/* ---- what may happen at a node: each says whether it did ------------------------------------ */

/* A member sends no further than its own results and the window. */
static bool member_sends(unsigned int lane, unsigned int i)
{
	struct node *node = &w.node[lane][i];
	struct ha_piece piece;
	struct op *op;

	if (!is_member(i) || node->next == units_of_lane(lane) ||
	    node->next >= node->results + WINDOW || !has_room(&node->up))
		return false;
	op = unit_of(lane, node->next++, &piece);
	post(&node->up, op->data[i] + piece.offset, piece.bytes);
	return true;
}

static bool switch_sends_up(unsigned int lane, unsigned int i)
{
	struct node *node = &w.node[lane][i];
	struct ha_unit_send send;

	if (is_member(i) || !has_room(&node->up) ||
	    !ha_lane_next_send(&node->lane, HA_UNIT_UP, &send))
		return false;
	post(&node->up, send.at, send.bytes);
	ha_lane_posted(&node->lane, HA_UNIT_UP);
	return true;
}

/* A contribution lands at the parent. */
static bool lands(unsigned int lane, unsigned int i)
{
	const struct ha_plan_node *place = &w.plan.tree[lane].node[i];
	struct node *node = &w.node[lane][i], *parent;
	uint64_t index = node->up.delivered;
	struct ha_contribution c;
	struct ha_piece piece;
	struct op *op;

	if (node->up.delivered == node->up.posted)
		return false;
	op = unit_of(lane, index, &piece);
	parent = &w.node[lane][place->parent];
	assert_true(index < parent->freed + WINDOW);
	c = (struct ha_contribution){
	    .reduction = ha_reduction_of(op->type, op->op),
	    .form = is_member(i) ? HA_REDUCE_WIRE : HA_REDUCE_WIDE,
	    .at = parent->landing[place->place][index % WINDOW],
	};
	c.count = deliver(&node->up, c.at)->bytes / ha_reduce_bytes(c.reduction, c.form);
	ha_lane_came(&parent->lane, place->place, &c);
	return true;
}

static bool upper_edge_acknowledges(unsigned int lane, unsigned int i)
{
	struct node *node = &w.node[lane][i];

	if (node->up.acked == node->up.delivered)
		return false;
	acknowledge(&node->up, is_member(i) && w.in_place);
	if (!is_member(i))
		ha_lane_sent(&node->lane, HA_UNIT_UP);
	return true;
}

static bool switch_looks(unsigned int lane, unsigned int i)
{
	struct node *node = &w.node[lane][i];
	uint64_t before = node->freed;

	if (is_member(i))
		return false;
	ha_lane_look(&node->lane);
	for (; node->freed < node->lane.reduced; node->freed++)
		for (unsigned int k = 0; k < HA_UNIT_CHILDREN; k++)
			memset(node->landing[k][node->freed % WINDOW], POISON, WIDE_BYTES);
	return node->freed > before;
}

/* The parent sends the next result to this node, which has a place for it. */
static bool parent_sends_down(unsigned int lane, unsigned int i)
{
	const struct ha_plan_node *place = &w.plan.tree[lane].node[i];
	struct node *node = &w.node[lane][i], *parent;
	struct ha_unit_send send;

	if (i == w.plan.tree[lane].root || !has_room(&node->down))
		return false;
	parent = &w.node[lane][place->parent];
	if (!ha_lane_next_send(&parent->lane, place->place, &send))
		return false;
	post(&node->down, send.at, send.bytes);
	ha_lane_posted(&parent->lane, place->place);
	return true;
}

static bool result_lands(unsigned int lane, unsigned int i)
{
	struct node *node = &w.node[lane][i];
	struct ha_piece piece;

	if (node->down.delivered == node->down.posted)
		return false;
	if (is_member(i)) {
		struct op *op = unit_of(lane, node->results++, &piece);

		assert_int_equal(deliver(&node->down, op->result[i] + piece.offset)->bytes,
				 piece.bytes);
	} else {
		void *to = ha_lane_result_room(&node->lane, 0);

		assert_non_null(to);
		deliver(&node->down, to);
		ha_lane_answered(&node->lane);
	}
	return true;
}

static bool lower_edge_acknowledges(unsigned int lane, unsigned int i)
{
	const struct ha_plan_node *place = &w.plan.tree[lane].node[i];
	struct node *node = &w.node[lane][i];

	if (node->down.acked == node->down.delivered)
		return false;
	acknowledge(&node->down, false);
	ha_lane_sent(&w.node[lane][place->parent].lane, place->place);
	return true;
}

static bool (*const events[])(unsigned int lane, unsigned int node) = {
    member_sends, switch_sends_up,   lands,	   upper_edge_acknowledges,
    switch_looks, parent_sends_down, result_lands, lower_edge_acknowledges,
};

#define EVENTS (sizeof(events) / sizeof(events[0]))

/* ---- a run ---------------------------------------------------------------------------------- */

/* From a place by chance on, the first thing that can happen; an event in `mute` only if there is
 * no other. */
static bool something_happens(uint64_t mute)
{
	size_t nodes = w.plan.members + w.plan.switches, all = EVENTS * nodes * LANES;
	size_t start = random_below(all);

	for (int pass = 0; pass < 2; pass++)
		for (size_t k = 0; k < all; k++) {
			size_t at = (start + k * 7919) % all; /* a prime: comes by all of them */
			size_t event = at % EVENTS, node = at / EVENTS % nodes;

			if ((mute >> event & 1) != (uint64_t)pass)
				continue;
			if (events[event]((unsigned int)(at / EVENTS / nodes), (unsigned int)node))
				return true;
		}
	return false;
}

/* Until nothing can happen any more; then everybody has everything, and no switch has anything
 * left. */
static void run(uint64_t seed)
{
	w.chance = seed;
	while (something_happens(random_below(4) ? 0 : mix(seed) & ((1u << EVENTS) - 1)))
		;
	for (unsigned int lane = 0; lane < LANES; lane++)
		for (unsigned int i = 0; i < w.plan.members + w.plan.switches; i++) {
			const struct node *node = &w.node[lane][i];

			if (is_member(i)) {
				assert_true(node->results == units_of_lane(lane));
				continue;
			}
			assert_int_equal(node->lane.fault, HA_LANE_SOUND);
			assert_true(node->lane.reduced == units_of_lane(lane));
			for (unsigned int k = 0; k < 2 * WINDOW; k++)
				assert_int_equal(node->lane.unit[k].state, HA_UNIT_EMPTY);
		}
}

/* Every member's result is the oracle's; `digest` becomes that of all of them. */
static void compare(uint64_t seed, uint8_t digest[HA_SHA256_BYTES])
{
	struct ha_sha256 hash;

	ha_sha256_begin(&hash);
	for (unsigned int i = 0; i < w.ops; i++)
		for (unsigned int m = 0; m < w.plan.members; m++) {
			const struct op *op = &w.op[i];

			if (memcmp(op->result[m], op->wanted, op->cut.bytes) != 0)
				fail_msg(
				    "%s %s of %zu, %u members, seed %llu: member %u has another "
				    "result than the oracle",
				    type_names[op->type], op_names[op->op], op->count,
				    w.plan.members, (unsigned long long)seed, m);
			ha_sha256_add(&hash, op->result[m], op->cut.bytes);
		}
	ha_sha256_end(&hash, digest);
}

static void clear(void)
{
	for (unsigned int i = 0; i < w.ops; i++) {
		for (unsigned int m = 0; m < w.plan.members; m++) {
			if (w.op[i].result[m] != w.op[i].data[m])
				free(w.op[i].result[m]);
			free(w.op[i].data[m]);
		}
		free(w.op[i].wanted);
	}
	for (unsigned int lane = 0; lane < LANES; lane++)
		for (unsigned int i = 0; i < NODES; i++)
			free(w.node[lane][i].memory);
	ha_plan_free(&w.plan);
	memset(&w, 0, sizeof(w));
}

/* ---- tests ---------------------------------------------------------------------------------- */

static const unsigned int group_sizes[] = {2, 3, 5, 8, 16};

/* Every type and operation, one after the other: of nothing, of one element, of some, of several
 * units. */
static void run_every_reduction(unsigned int members, unsigned int levels, bool in_place)
{
	static const size_t counts[] = {0, 1, 7, 131, 1023};
	uint8_t digest[HA_SHA256_BYTES];

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		uint64_t seed = 1000 * members + 10 * c + levels;

		make_plan(members, levels);
		make_switches();
		w.in_place = in_place;
		for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
			for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
				add_op(type, op, counts[c]);
		run(seed);
		compare(seed, digest);
		clear();
	}
}

static void every_reduction_in_one_level_is_the_oracles(void **state)
{
	(void)state;
	for (size_t i = 0; i < 5; i++)
		run_every_reduction(group_sizes[i], 1, false);
}

static void every_reduction_in_two_levels_is_the_oracles(void **state)
{
	(void)state;
	for (size_t i = 0; i < 5; i++)
		run_every_reduction(group_sizes[i], 2, false);
}

static void every_reduction_in_place_is_the_oracles(void **state)
{
	(void)state;
	for (size_t i = 0; i < 5; i++)
		for (unsigned int levels = 1; levels <= 2; levels++)
			run_every_reduction(group_sizes[i], levels, true);
}

static void run_long(unsigned int type, unsigned int op, unsigned int members, unsigned int levels,
		     bool in_place)
{
	uint8_t digest[HA_SHA256_BYTES];

	make_plan(members, levels);
	make_switches();
	w.in_place = in_place;
	add_op(type, op, (1 << 20) + 3);
	run(20);
	compare(20, digest);
	clear();
}

static void a_long_vector_is_the_oracles(void **state)
{
	(void)state;
	run_long(HA_REDUCE_FP32, HA_REDUCE_SUM, 5, 2, false);
}

/* Of each type with each operation two or three of the sizes, levels and places that there are. */
static void long_vectors_are_the_oracles(void **state)
{
	unsigned int n = 0, runs = 0;

	(void)state;
	for (unsigned int type = 0; type < HA_REDUCE_TYPES; type++)
		for (unsigned int op = 0; op < HA_REDUCE_OPS; op++)
			for (unsigned int i = 0; i < 5 * 2 * 2; i++, n++)
				if (n % 7 == 0) {
					run_long(type, op, group_sizes[i / 4], 1 + i % 2,
						 i / 2 % 2);
					runs++;
				}
	print_message("%u of %u\n", runs, n);
}

/* What no order but one gives, and little of it, so that every order has its chance. */
static void a_thousand_orders_have_one_digest(void **state)
{
	uint8_t first[HA_SHA256_BYTES], digest[HA_SHA256_BYTES];

	(void)state;
	for (uint64_t seed = 0; seed < 1000; seed++) {
		make_plan(8, 2);
		make_switches();
		add_op(HA_REDUCE_FP32, HA_REDUCE_SUM, 300);
		add_op(HA_REDUCE_BF16, HA_REDUCE_PROD, 40);
		add_op(HA_REDUCE_FP16, HA_REDUCE_SUM, 200);
		run(seed);
		compare(seed, seed ? digest : first);
		if (seed)
			assert_memory_equal(digest, first, sizeof(first));
		clear();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_reduction_in_one_level_is_the_oracles),
	    cmocka_unit_test(every_reduction_in_two_levels_is_the_oracles),
	    cmocka_unit_test(every_reduction_in_place_is_the_oracles),
	    cmocka_unit_test(a_long_vector_is_the_oracles),
	    cmocka_unit_test(a_thousand_orders_have_one_digest),
	};

	const struct CMUnitTest at_length[] = {
	    cmocka_unit_test(long_vectors_are_the_oracles),
	};

	if (getenv("INC_COMPOSE_LONG"))
		return cmocka_run_group_tests(at_length, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
