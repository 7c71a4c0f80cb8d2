/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verbs/tree.h"

#include "device/give_back.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <stdlib.h>
#include <string.h>

struct ha_tree {
	struct ha_tree_shape shape;
	struct ha_lane lane;
	struct ha_edge edge[HA_UNIT_TARGETS];
	struct ha_incarnation *on;
	struct ibv_mr *mr; /* of all memory that follows */
	char *memory;	   /* the lane's, then landing buffers by child, then headers that go up */
	struct ha_inc_header *header; /* of the open units, by index */
	uint64_t begun;		      /* of units below it some child has contributed */
	uint64_t bytes;		      /* of units that are reduced */
	uint64_t freed;		      /* landing buffers of units below it are posted again */
	uint64_t rooms;		      /* places for results that the parent's edge was given */
	enum ha_tree_fault fault;
	unsigned int fault_child;
	struct ha_dispute dispute;
};

/* ---- memory --------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
	return (bytes + 63) & ~(size_t)63;
}

/* Units that are open at most, and so headers that are in use. */
static size_t open_units(const struct ha_tree_shape *shape)
{
	return 2 * (size_t)shape->lane.window;
}

static size_t landing_bytes(const struct ha_tree_shape *shape)
{
	return HA_INC_HEADER_BYTES + (shape->is_inner_below ? HA_REDUCE_MAX_WIDENING : 1) *
					 (size_t)shape->lane.unit_bytes;
}

static size_t lane_bytes(const struct ha_tree_shape *shape)
{
	return round_up(ha_lane_bytes(&shape->lane));
}

static size_t all_bytes(const struct ha_tree_shape *shape)
{
	return lane_bytes(shape) +
	       shape->lane.children * shape->lane.window * landing_bytes(shape) +
	       open_units(shape) * HA_INC_HEADER_BYTES;
}

static uint8_t *landing_at(const struct ha_tree *tree, unsigned int child, uint64_t index)
{
	const struct ha_tree_shape *shape = &tree->shape;

	return (uint8_t *)tree->memory + lane_bytes(shape) +
	       (child * shape->lane.window + index % shape->lane.window) * landing_bytes(shape);
}

static uint8_t *header_at(const struct ha_tree *tree, uint64_t index)
{
	const struct ha_tree_shape *shape = &tree->shape;

	return (uint8_t *)tree->memory + lane_bytes(shape) +
	       shape->lane.children * shape->lane.window * landing_bytes(shape) +
	       index % open_units(shape) * HA_INC_HEADER_BYTES;
}

static struct ha_inc_header *header_of(const struct ha_tree *tree, uint64_t index)
{
	return &tree->header[index % open_units(&tree->shape)];
}

static struct ibv_sge piece_of(const struct ha_tree *tree, const void *at, size_t bytes)
{
	return (struct ibv_sge){
	    .addr = (uintptr_t)at, .length = (uint32_t)bytes, .lkey = tree->mr->lkey};
}

static void fail(struct ha_tree *tree, enum ha_tree_fault fault, unsigned int child)
{
	if (tree->fault)
		return;
	tree->fault = fault;
	tree->fault_child = child;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void land_next(struct ha_tree *tree, unsigned int child, uint64_t index)
{
	if (!ha_edge_recv(&tree->edge[child], piece_of(tree, landing_at(tree, child, index),
						       landing_bytes(&tree->shape))))
		fail(tree, HA_TREE_EDGE, child);
}

static ha_result_t make_memory(struct ha_tree *tree, struct ha_port *port)
{
	const struct ha_tree_shape *shape = &tree->shape;

	tree->header = calloc(open_units(shape), sizeof(*tree->header));
	tree->memory = aligned_alloc(64, all_bytes(shape));
	if (!tree->header || !tree->memory)
		return HA_ERR_SYSTEM;
	HA_TRY(ha_nic_pd_get(port->nic, &tree->on));
	tree->mr = ibv_reg_mr(tree->on->pd, tree->memory, all_bytes(shape), IBV_ACCESS_LOCAL_WRITE);
	return tree->mr ? HA_OK : HA_ERR_SYSTEM;
}

static ha_result_t make_edges(struct ha_tree *tree, struct ha_port *port)
{
	const unsigned int window = tree->shape.lane.window;
	const struct ha_edge_depth child = {.sends = 2 * window, .recvs = window};
	const struct ha_edge_depth parent = {.sends = 2 * window, .recvs = window};

	if (!tree->shape.lane.is_root)
		HA_TRY(ha_edge_open(&tree->edge[HA_UNIT_UP], port, &parent));
	for (unsigned int i = 0; i < tree->shape.lane.children; i++) {
		HA_TRY(ha_edge_open(&tree->edge[i], port, &child));
		for (unsigned int k = 0; k < window; k++)
			land_next(tree, i, k);
	}
	return tree->fault ? HA_ERR_SYSTEM : HA_OK;
}

ha_result_t ha_tree_open(const struct ha_tree_shape *shape, struct ha_port *port,
			 struct ha_tree **out)
{
	struct ha_tree *tree = calloc(1, sizeof(*tree));
	ha_result_t result;

	*out = NULL;
	if (!tree)
		return HA_ERR_SYSTEM;
	tree->shape = *shape;
	result = make_memory(tree, port);
	if (result == HA_OK)
		result = make_edges(tree, port);
	if (result == HA_OK)
		ha_lane_init(&tree->lane, &shape->lane, tree->memory);
	*out = tree;
	if (result != HA_OK && ha_tree_close(tree) == HA_OK)
		*out = NULL;
	return result;
}

struct ha_edge *ha_tree_edge(struct ha_tree *tree, unsigned int target)
{
	return &tree->edge[target];
}

/* ---- what comes ----------------------------------------------------------------------------- */

/* A unit of this tree, in a form that this child may send, with all its bytes and no more. */
static bool is_ours(const struct ha_tree *tree, const struct ha_inc_header *header, uint32_t bytes)
{
	const struct ha_tree_shape *shape = &tree->shape;

	return header->group == shape->group && header->epoch == shape->epoch &&
	       header->unit_bytes == shape->lane.unit_bytes &&
	       (shape->is_inner_below || !header->is_wide) &&
	       bytes == HA_INC_HEADER_BYTES + ha_inc_header_payload(header);
}

/* The first child to contribute says what the unit is. Children keep order, so that is of the unit
 * behind all that have begun. */
static bool agrees(struct ha_tree *tree, uint64_t index, const struct ha_inc_header *header)
{
	struct ha_inc_header *first = header_of(tree, index);

	if (index < tree->begun) {
		tree->dispute =
		    (struct ha_dispute){ha_inc_header_dispute(first, header), first->member,
					header->member, first->number, first->unit};
		return tree->dispute.about == HA_DISPUTE_NONE;
	}
	*first = *header;
	tree->begun++;
	return true;
}

static void take(struct ha_tree *tree, unsigned int child, uint32_t bytes)
{
	const uint64_t index = tree->lane.came[child];
	uint8_t *at = landing_at(tree, child, index);
	struct ha_contribution c = {.at = at + HA_INC_HEADER_BYTES};
	struct ha_inc_header header;

	if (!ha_inc_header_decode(at, bytes, &header) || !is_ours(tree, &header, bytes)) {
		fail(tree, HA_TREE_HEADER, child);
		return;
	}
	if (!agrees(tree, index, &header)) {
		fail(tree, HA_TREE_DISAGREES, child);
		return;
	}
	if (header.is_empty)
		memset(c.at, 0, header.bytes);
	c.reduction = ha_reduction_of(header.type, header.op);
	c.form = header.is_wide ? HA_REDUCE_WIDE : HA_REDUCE_WIRE;
	c.count = header.bytes / ha_reduce_bytes(c.reduction, HA_REDUCE_WIRE);
	ha_lane_came(&tree->lane, child, &c);
}

static void take_result(struct ha_tree *tree, uint32_t bytes)
{
	if (bytes == header_of(tree, tree->lane.answered)->bytes)
		ha_lane_answered(&tree->lane);
	else
		fail(tree, HA_TREE_HEADER, HA_UNIT_UP);
}

static bool poll(struct ha_tree *tree, unsigned int target)
{
	enum ha_edge_event event;
	uint32_t bytes;
	bool moved = false;

	while (!tree->fault &&
	       (event = ha_edge_poll(&tree->edge[target], &bytes)) != HA_EDGE_NOTHING) {
		moved = true;
		if (event == HA_EDGE_SENT)
			ha_lane_sent(&tree->lane, target);
		else if (target == HA_UNIT_UP)
			take_result(tree, bytes);
		else
			take(tree, target, bytes);
	}
	if (tree->edge[target].fault)
		fail(tree, HA_TREE_EDGE, target);
	return moved;
}

/* ---- what goes ------------------------------------------------------------------------------ */

/* Landing buffers of what is reduced take the unit a window later. */
static void free_landing(struct ha_tree *tree)
{
	for (; tree->freed < tree->lane.reduced; tree->freed++) {
		tree->bytes += header_of(tree, tree->freed)->bytes;
		for (unsigned int i = 0; i < tree->shape.lane.children; i++)
			land_next(tree, i, tree->freed + tree->shape.lane.window);
	}
}

/* Before the partial result goes up, so that the result finds its place. */
static void make_room(struct ha_tree *tree)
{
	void *at;

	while ((at = ha_lane_result_room(&tree->lane,
					 (unsigned int)(tree->rooms - tree->lane.answered)))) {
		if (!ha_edge_recv(&tree->edge[HA_UNIT_UP],
				  piece_of(tree, at, tree->shape.lane.unit_bytes))) {
			fail(tree, HA_TREE_EDGE, HA_UNIT_UP);
			return;
		}
		tree->rooms++;
	}
}

/* Partial results have a header, as contributions do; results have none. Returns the pieces. */
static int pieces_of(struct ha_tree *tree, unsigned int target, const struct ha_unit_send *send,
		     struct ibv_sge pieces[HA_EDGE_SGES])
{
	const uint64_t index = tree->lane.posted[target];
	struct ha_inc_header header = *header_of(tree, index);
	int n = 0;

	if (target == HA_UNIT_UP) {
		header.is_wide = true;
		header.is_empty = false;
		ha_inc_header_encode(&header, header_at(tree, index));
		pieces[n++] = piece_of(tree, header_at(tree, index), HA_INC_HEADER_BYTES);
	}
	pieces[n++] = piece_of(tree, send->at, send->bytes);
	return n;
}

static bool send_to(struct ha_tree *tree, unsigned int target)
{
	struct ha_edge *edge = &tree->edge[target];
	struct ibv_sge pieces[HA_EDGE_SGES];
	struct ha_unit_send send;
	bool moved = false;

	while (ha_edge_has_room(edge) && ha_lane_next_send(&tree->lane, target, &send)) {
		if (!ha_edge_send(edge, pieces, pieces_of(tree, target, &send, pieces)))
			break;
		ha_lane_posted(&tree->lane, target);
		moved = true;
	}
	if (edge->fault)
		fail(tree, HA_TREE_EDGE, target);
	return moved;
}

/* ROOT_RETIRES: a unit is retired when all members have it, which nobody below the root knows. */
static void pass_words(struct ha_tree *tree)
{
	const struct ha_lane_shape *shape = &tree->shape.lane;
	uint64_t have = UINT64_MAX, retired;

	for (unsigned int i = 0; i < shape->children; i++) {
		const uint64_t word = ha_edge_word(&tree->edge[i]);

		have = word < have ? word : have;
	}
	if (!shape->is_root)
		ha_edge_say(&tree->edge[HA_UNIT_UP], have);
	retired = shape->is_root ? have : ha_edge_word(&tree->edge[HA_UNIT_UP]);
	for (unsigned int i = 0; i < shape->children; i++)
		ha_edge_say(&tree->edge[i], retired);
}

bool ha_tree_progress(struct ha_tree *tree)
{
	const struct ha_lane_shape *shape = &tree->shape.lane;
	bool moved = false;

	for (unsigned int i = 0; i < shape->children; i++)
		moved |= poll(tree, i);
	if (!shape->is_root)
		moved |= poll(tree, HA_UNIT_UP);
	if (tree->fault)
		return false;
	ha_lane_look(&tree->lane);
	if (tree->lane.fault)
		fail(tree, HA_TREE_LANE, tree->lane.fault_child);
	free_landing(tree);
	if (!shape->is_root) {
		make_room(tree);
		moved |= send_to(tree, HA_UNIT_UP);
	}
	for (unsigned int i = 0; i < shape->children; i++)
		moved |= send_to(tree, i);
	pass_words(tree);
	return moved;
}

void ha_tree_look(struct ha_tree *tree, uint64_t now_ns)
{
	for (unsigned int i = 0; i < tree->shape.lane.children; i++)
		ha_edge_look(&tree->edge[i], now_ns);
	if (!tree->shape.lane.is_root)
		ha_edge_look(&tree->edge[HA_UNIT_UP], now_ns);
}

struct ha_tree_work ha_tree_work(const struct ha_tree *tree)
{
	return (struct ha_tree_work){tree->freed, tree->bytes};
}

enum ha_tree_fault ha_tree_fault(const struct ha_tree *tree, unsigned int *child)
{
	*child = tree->fault_child;
	return tree->fault;
}

const struct ha_dispute *ha_tree_dispute(const struct ha_tree *tree)
{
	return &tree->dispute;
}

/* ---- the end -------------------------------------------------------------------------------- */

ha_result_t ha_tree_close(struct ha_tree *tree)
{
	if (!tree)
		return HA_OK;
	for (unsigned int i = 0; i < HA_UNIT_TARGETS; i++)
		HA_TRY(ha_edge_close(&tree->edge[i]));
	ha_give_back(tree->on, HA_OBJECT_MR, tree->mr, free, tree->memory);
	if (tree->on)
		ha_nic_pd_put(tree->on);
	free(tree->header);
	free(tree);
	return HA_OK;
}
