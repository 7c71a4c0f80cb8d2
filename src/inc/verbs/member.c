/* SPDX-License-Identifier: Apache-2.0 */
#include "inc/verbs/member.h"

#include "device/give_back.h"
#include "inc/cut.h"
#include "inc/header.h"
#include "memory/mr.h"
#include "memory/pd.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct op {
	struct ha_all_reduce ask;
	struct ha_cut cut;
	uint64_t number;
	bool is_done;
};

/* What is under way over an edge, in order. */
struct message {
	uint64_t unit;
	uint32_t bytes;
	bool counts; /* of a send: the ledger knows of it; of a receive: it wants the result */
};

struct lane {
	struct ha_edge edge;
	uint64_t next; /* the unit whose turn it is */
	uint64_t posted, sent, came;
	struct message send[2 * HA_DECISION_UNITS], recv[HA_DECISION_UNITS];
};

/* Stays until no device has it registered any more, and the member is closed. */
struct memory {
	atomic_uint users;
	alignas(64) char bytes[];
};

struct own_port {
	struct ha_port *port;
	struct ha_incarnation *on; /* of its NIC, on which memory is registered; NULL: on none */
	struct ibv_mr *mr;	   /* of all the member's memory */
};

struct ha_member {
	struct ha_member_shape shape;
	unsigned int n_ports, at; /* its ports, and the one that its edges are on */
	struct own_port port[HA_MEMBER_PORTS];
	bool is_path_lost; /* an edge on it has failed */
	struct ha_ledger ledger;
	struct ha_resume resume; /* of this epoch; none yet: nothing is taken */
	unsigned int lanes;	 /* of the trees that it has joined; none yet: of its shape */
	unsigned int buffers;	 /* units that the other end of a lane has room for */
	bool is_waiting;	 /* for its edges */
	bool is_held;
	bool is_cut;
	const char *why;		    /* of the last cut that an edge was the reason of */
	struct memory *memory;		    /* shadow, copies, sink, headers by lane */
	uint64_t copied[HA_DECISION_UNITS]; /* by copy: its unit + 1; 0: none */
	uint64_t first_op, next_op;	    /* numbers: those in between are in op[] */
	struct op op[HA_MEMBER_OPS];
	struct lane lane[]; /* as many as its shape has */
};

/* ---- memory --------------------------------------------------------------------------------- */

static unsigned int window(const struct ha_member *member)
{
	return member->shape.ledger.window;
}

static size_t units_kept(const struct ha_member_shape *shape)
{
	return shape->ledger.window + shape->ledger.copies + 1;
}

static size_t all_bytes(const struct ha_member_shape *shape)
{
	return units_kept(shape) * shape->unit_bytes +
	       (size_t)shape->lanes * 2 * shape->ledger.window * HA_INC_HEADER_BYTES;
}

static char *unit_at(const struct ha_member *member, size_t i)
{
	return member->memory->bytes + i * member->shape.unit_bytes;
}

static char *shadow_at(const struct ha_member *member, uint64_t unit)
{
	return unit_at(member, unit % window(member));
}

static char *copy_at(const struct ha_member *member, unsigned int copy)
{
	return unit_at(member, window(member) + copy);
}

/* For results that are here already. */
static char *sink(const struct ha_member *member)
{
	return unit_at(member, units_kept(&member->shape) - 1);
}

static uint8_t *header_at(const struct ha_member *member, const struct lane *lane)
{
	const size_t i = (size_t)(lane - member->lane) * 2 * window(member) +
			 lane->posted % (2 * window(member));

	return (uint8_t *)unit_at(member, units_kept(&member->shape)) + i * HA_INC_HEADER_BYTES;
}

/* Of the member's own memory. */
static struct ibv_sge own_piece(const struct ha_member *member, const void *at, size_t bytes)
{
	return (struct ibv_sge){(uintptr_t)at, (uint32_t)bytes, member->port[member->at].mr->lkey};
}

/* ---- operations ----------------------------------------------------------------------------- */

static struct op *op_at(struct ha_member *member, uint64_t number)
{
	return &member->op[number % HA_MEMBER_OPS];
}

static uint64_t end_of(const struct op *op)
{
	return op->cut.first + ha_cut_units(&op->cut);
}

/* The operation of a unit that is not done with. */
static struct op *op_of(struct ha_member *member, uint64_t unit)
{
	uint64_t number = member->first_op;

	while (unit >= end_of(op_at(member, number)))
		number++;
	return op_at(member, number);
}

uint64_t ha_member_operation_of(const struct ha_member *member, uint64_t unit)
{
	for (uint64_t n = member->first_op; n < member->next_op; n++) {
		const struct op *op = &member->op[n % HA_MEMBER_OPS];

		if (unit >= op->cut.first && unit < end_of(op))
			return n;
	}
	return 0;
}

static enum ha_ledger_place place_of(const struct ha_all_reduce *ask)
{
	if (ask->send != ask->recv)
		return HA_LEDGER_APART;
	return ask->is_direct ? HA_LEDGER_DIRECT : HA_LEDGER_SHADOWED;
}

bool ha_member_all_reduce(struct ha_member *member, const struct ha_all_reduce *ask,
			  uint64_t *number)
{
	const struct ha_reduction *reduction = ha_reduction_of(ask->type, ask->op);
	struct op *op = op_at(member, member->next_op);

	if (member->next_op - member->first_op == HA_MEMBER_OPS)
		return false;
	*op = (struct op){
	    .ask = *ask,
	    .cut = {.first = member->ledger.issued,
		    .bytes = ask->count * ha_reduce_bytes(reduction, HA_REDUCE_WIRE),
		    .unit_bytes = member->shape.unit_bytes},
	    .number = member->next_op,
	};
	*number = member->next_op++;
	ha_ledger_issue(&member->ledger, ha_cut_units(&op->cut));
	return true;
}

bool ha_member_is_done(const struct ha_member *member, uint64_t number)
{
	return number < member->first_op || member->op[number % HA_MEMBER_OPS].is_done;
}

/* Whether nobody can ask for the copy any more, and nothing reads it. */
static bool is_copy_free(const struct ha_member *member, unsigned int copy)
{
	const struct ha_ledger *ledger = &member->ledger;
	const uint64_t unit = member->copied[copy] - 1;

	if (!member->copied[copy] || unit < ledger->first)
		return true;
	return unit < ledger->retired && !(ledger->sending >> (unit - ledger->first) & 1);
}

static void keep(struct ha_member *member, const struct op *op)
{
	unsigned int copy = 0;

	while (!is_copy_free(member, copy)) /* the ledger has counted: there is one */
		copy++;
	member->copied[copy] = op->cut.first + 1;
	memcpy(copy_at(member, copy), op->ask.recv, op->cut.bytes);
}

static bool complete(struct ha_member *member)
{
	bool moved = false;

	for (uint64_t n = member->first_op; n < member->next_op; n++) {
		struct op *op = op_at(member, n);
		enum ha_ledger_completion completion;

		if (op->is_done)
			continue;
		completion =
		    ha_ledger_complete(&member->ledger, op->cut.first, end_of(op) - op->cut.first);
		if (completion == HA_LEDGER_WAITS)
			continue;
		if (completion == HA_LEDGER_KEEP)
			keep(member, op);
		op->is_done = moved = true;
	}
	while (member->first_op < member->next_op && op_at(member, member->first_op)->is_done &&
	       end_of(op_at(member, member->first_op)) <= member->ledger.first)
		member->first_op++;
	return moved;
}

/* ---- sends ---------------------------------------------------------------------------------- */

enum fate {
	CONTRIBUTED, /* by everybody */
	SKIPPED,     /* all have it */
	OWN,	     /* this member sends the result */
	GIVEN,	     /* another one does */
};

static enum fate fate_of(const struct ha_member *member, uint64_t unit)
{
	const struct ha_resume *resume = &member->resume;
	const uint64_t i = unit - resume->retired;

	if (unit < resume->retired)
		return SKIPPED;
	if (i >= HA_DECISION_UNITS || !(resume->taken >> i & 1))
		return CONTRIBUTED;
	if (!(resume->lacked >> i & 1))
		return SKIPPED;
	return resume->owner[i] == member->shape.ledger.member ? OWN : GIVEN;
}

static bool has(const struct ha_member *member, uint64_t unit)
{
	const struct ha_ledger *ledger = &member->ledger;

	return unit < ledger->first || ledger->have >> (unit - ledger->first) & 1;
}

/* What a send of the unit reads, as the ledger has it. */
static struct ibv_sge source_of(struct ha_member *member, const struct op *op, uint64_t unit,
				const struct ha_piece *piece)
{
	const struct ha_all_reduce *ask = &op->ask;
	const char *contribution = (const char *)ask->send + piece->offset;
	unsigned int copy = 0;

	switch (ha_ledger_post(&member->ledger, unit, place_of(ask))) {
	case HA_LEDGER_TO_SHADOW:
		memcpy(shadow_at(member, unit), contribution, piece->bytes);
		return own_piece(member, shadow_at(member, unit), piece->bytes);
	case HA_LEDGER_SHADOW:
		return own_piece(member, shadow_at(member, unit), piece->bytes);
	case HA_LEDGER_COPY:
		while (member->copied[copy] != unit + 1)
			copy++;
		return own_piece(member, copy_at(member, copy), piece->bytes);
	case HA_LEDGER_RESULT:
		return (struct ibv_sge){(uintptr_t)ask->recv + piece->offset, piece->bytes,
					ask->recv_lkey[member->at]};
	case HA_LEDGER_CONTRIBUTION:
	case HA_LEDGER_NOTHING: /* ha_ledger_next() has said otherwise */
		break;
	}
	return (struct ibv_sge){(uintptr_t)contribution, piece->bytes, ask->send_lkey[member->at]};
}

/* Where the result lands. */
static struct ibv_sge place_for(const struct ha_member *member, const struct op *op, bool is_wanted,
				const struct ha_piece *piece)
{
	if (!is_wanted)
		return own_piece(member, sink(member), piece->bytes);
	return (struct ibv_sge){(uintptr_t)op->ask.recv + piece->offset, piece->bytes,
				op->ask.recv_lkey[member->at]};
}

/* A unit of what its members contribute to, or of bytes that are one member's. */
static void write_header(const struct ha_member *member, const struct op *op, uint64_t unit,
			 const struct ha_piece *piece, uint8_t *out)
{
	const enum fate fate = fate_of(member, unit);
	const bool is_computed = fate == CONTRIBUTED;

	ha_inc_header_encode(
	    &(struct ha_inc_header){
		.kind = HA_INC_ALL_REDUCE,
		.type = is_computed ? (uint8_t)op->ask.type : HA_REDUCE_UINT8,
		.op = is_computed ? (uint8_t)op->ask.op : HA_REDUCE_MAX,
		.is_empty = fate == GIVEN || (is_computed && op->ask.is_empty),
		.number = op->number,
		.unit = unit,
		.bytes = piece->bytes,
		.unit_bytes = member->shape.unit_bytes,
		.epoch = member->ledger.epoch,
		.group = member->shape.group,
		.op_bytes = op->cut.bytes,
		.member = member->shape.ledger.member,
	    },
	    out);
}

/* The next unit of a lane that goes over it at all. */
static uint64_t next_unit(const struct ha_member *member, struct lane *lane)
{
	while (lane->next < member->ledger.issued && fate_of(member, lane->next) == SKIPPED)
		lane->next += member->lanes;
	return lane->next;
}

static bool may_send(const struct ha_member *member, struct lane *lane)
{
	const uint64_t unit = next_unit(member, lane);
	const unsigned int index = (unsigned int)(lane - member->lane);
	uint64_t next;

	/* Each unit that goes up brings one result down, and the parent has so many buffers. */
	if (unit >= member->ledger.issued || lane->posted - lane->came >= member->buffers ||
	    !ha_edge_has_room(&lane->edge))
		return false;
	if (fate_of(member, unit) == GIVEN)
		return true;
	/* HOLD_LASTS: what is not computed yet is not begun. */
	if (fate_of(member, unit) == CONTRIBUTED && member->is_held)
		return false;
	return ha_ledger_next(&member->ledger, index, member->lanes, &next) && next == unit;
}

static void send(struct ha_member *member, struct lane *lane)
{
	const uint64_t unit = lane->next;
	const struct op *op = op_of(member, unit);
	const struct ha_piece piece = ha_cut_piece(&op->cut, unit);
	const enum fate fate = fate_of(member, unit);
	const bool is_wanted = !has(member, unit);
	uint8_t *header = header_at(member, lane);
	struct ibv_sge pieces[HA_EDGE_SGES];
	int n = 0;

	write_header(member, op, unit, &piece, header);
	pieces[n++] = own_piece(member, header, HA_INC_HEADER_BYTES);
	if (fate != GIVEN) {
		pieces[n] = source_of(member, op, unit, &piece);
		n += fate == OWN || !op->ask.is_empty;
	}
	lane->recv[lane->posted % window(member)] = (struct message){unit, piece.bytes, is_wanted};
	lane->send[lane->posted % (2 * window(member))] =
	    (struct message){unit, piece.bytes, fate != GIVEN};
	lane->posted++;
	lane->next += member->lanes;
	if (!ha_edge_recv(&lane->edge, place_for(member, op, is_wanted, &piece)) ||
	    !ha_edge_send(&lane->edge, pieces, n))
		member->is_cut = true;
}

/* ---- what happens --------------------------------------------------------------------------- */

static void cut(struct ha_member *member, const char *why)
{
	member->is_cut = true;
	member->why = why;
}

static void came(struct ha_member *member, struct lane *lane, uint32_t bytes)
{
	const struct message *message = &lane->recv[lane->came++ % window(member)];

	if (bytes != message->bytes)
		cut(member, "a result has another length than its unit");
	else if (message->counts && !ha_ledger_has(&member->ledger, message->unit))
		cut(member, "a result has come that cannot be");
}

static void sent(struct ha_member *member, struct lane *lane)
{
	const struct message *message = &lane->send[lane->sent++ % (2 * window(member))];

	if (message->counts && !ha_ledger_sent(&member->ledger, message->unit))
		cut(member, "a send has ended that was none");
}

static bool poll(struct ha_member *member, struct lane *lane)
{
	enum ha_edge_event event;
	uint32_t bytes;
	bool moved = false;

	while ((event = ha_edge_poll(&lane->edge, &bytes)) != HA_EDGE_NOTHING) {
		if (event == HA_EDGE_CAME)
			came(member, lane, bytes);
		else
			sent(member, lane);
		moved = true;
	}
	if (lane->edge.fault) {
		cut(member, lane->edge.fault);
		member->is_path_lost = true;
	}
	return moved;
}

bool ha_member_progress(struct ha_member *member)
{
	bool moved = false;

	if (member->ledger.state != HA_LEDGER_RUNS)
		return false;
	if (member->is_waiting) /* RESUME may have said that all of an operation is retired */
		return complete(member);
	for (unsigned int i = 0; i < member->lanes; i++) {
		struct lane *lane = &member->lane[i];

		moved |= poll(member, lane);
		/* A word of units whose results this member has not seen yet comes again. */
		ha_ledger_retire(&member->ledger, ha_edge_word(&lane->edge));
	}
	moved |= complete(member);
	for (unsigned int i = 0; i < member->lanes; i++) {
		struct lane *lane = &member->lane[i];

		while (!member->is_cut && may_send(member, lane)) {
			send(member, lane);
			moved = true;
		}
		ha_edge_say(&lane->edge, ha_ledger_word(&member->ledger));
	}
	return moved;
}

void ha_member_look(struct ha_member *member, uint64_t now_ns)
{
	for (unsigned int i = 0; i < member->lanes; i++)
		ha_edge_look(&member->lane[i].edge, now_ns);
}

void ha_member_cut(struct ha_member *member)
{
	member->is_cut = true;
}

const char *ha_member_why(const struct ha_member *member)
{
	return member->why;
}

bool ha_member_is_cut(const struct ha_member *member)
{
	return member->is_cut;
}

const struct ha_ledger *ha_member_ledger(const struct ha_member *member)
{
	return &member->ledger;
}

/* ---- ports ---------------------------------------------------------------------------------- */

/* Of a NIC that has died and come back its memory is not registered there. */
static bool works(const struct own_port *own)
{
	return own->on && ha_port_usable(own->port) && atomic_load(&own->port->nic->now) == own->on;
}

/* From one on, in turn; if none works the one in use. */
static unsigned int first_that_works(const struct ha_member *member, unsigned int from)
{
	for (unsigned int i = 0; i < member->n_ports; i++) {
		const unsigned int port = (from + i) % member->n_ports;

		if (works(&member->port[port]))
			return port;
	}
	return member->at;
}

unsigned int ha_member_at(const struct ha_member *member)
{
	return member->at;
}

struct ha_port *ha_member_port(const struct ha_member *member)
{
	return member->port[member->at].port;
}

void ha_member_look_at_port(struct ha_member *member)
{
	if (!member->is_cut && first_that_works(member, member->at) != member->at)
		cut(member, "its port does not work any more, and another one does");
}

bool ha_member_has_better_port(const struct ha_member *member)
{
	return first_that_works(member, 0) < member->at;
}

/* ---- epochs --------------------------------------------------------------------------------- */

static ha_result_t close_edges(struct ha_member *member)
{
	for (unsigned int i = 0; i < member->lanes; i++)
		HA_TRY(ha_edge_close(&member->lane[i].edge));
	return HA_OK;
}

bool ha_member_fence(struct ha_member *member, uint32_t epoch)
{
	/* TREE_FENCE: what it has is final when it is said. */
	if (epoch > member->ledger.epoch && member->ledger.state == HA_LEDGER_RUNS) {
		for (unsigned int i = 0; i < member->lanes; i++) {
			ha_edge_fence(&member->lane[i].edge);
			poll(member, &member->lane[i]);
		}
	}
	if (epoch > member->ledger.epoch && close_edges(member) != HA_OK)
		return false;
	return ha_ledger_fence(&member->ledger, epoch);
}

/* The first unit of each lane from there on. */
static void begin_at(struct ha_member *member, uint64_t unit)
{
	for (unsigned int i = 0; i < member->lanes; i++, unit++) {
		struct lane *lane = &member->lane[ha_cut_lane(unit, member->lanes)];

		lane->next = unit;
		lane->posted = lane->sent = lane->came = 0;
	}
}

ha_result_t ha_member_join(struct ha_member *member, unsigned int lanes, unsigned int window)
{
	const struct ha_edge_depth depth = {.sends = 2 * window, .recvs = window};

	member->lanes = lanes;
	member->buffers = window;
	member->is_cut = false;
	member->is_waiting = false;
	member->at = first_that_works(member, member->is_path_lost ? member->at + 1 : 0);
	member->is_path_lost = false;
	for (unsigned int i = 0; i < lanes; i++)
		HA_TRY(ha_edge_open(&member->lane[i].edge, member->port[member->at].port, &depth));
	begin_at(member, 0);
	return HA_OK;
}

struct ha_edge *ha_member_edge(struct ha_member *member, unsigned int lane)
{
	return &member->lane[lane].edge;
}

void ha_member_wait(struct ha_member *member, bool is_on)
{
	member->is_waiting = is_on;
}

enum ha_ledger_verdict ha_member_resume(struct ha_member *member, const struct ha_resume *resume)
{
	const enum ha_ledger_verdict verdict = ha_ledger_resume(&member->ledger, resume);

	if (verdict != HA_LEDGER_FINE)
		return verdict;
	member->resume = *resume;
	member->is_held = false;
	for (unsigned int i = 0; i < member->lanes; i++)
		member->is_cut |= !member->lane[i].edge.on; /* it could not be joined */
	begin_at(member, resume->retired);
	return verdict;
}

void ha_member_hold(struct ha_member *member, bool is_on)
{
	member->is_held = is_on;
}

bool ha_member_leave(struct ha_member *member)
{
	return ha_ledger_leave(&member->ledger);
}

bool ha_member_stop(struct ha_member *member)
{
	member->is_cut = true;
	return close_edges(member) == HA_OK;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void let_go_of_memory(void *arg)
{
	struct memory *memory = arg;

	if (atomic_fetch_sub(&memory->users, 1) == 1)
		free(memory);
}

static void leave_port(struct ha_member *member, struct own_port *own)
{
	if (own->mr)
		ha_give_back(own->on, HA_OBJECT_MR, own->mr, let_go_of_memory, member->memory);
	if (own->on)
		ha_nic_pd_put(own->on);
	own->mr = NULL;
	own->on = NULL;
}

void ha_member_forgo(struct ha_member *member, unsigned int port)
{
	leave_port(member, &member->port[port]);
}

static ha_result_t take_port(struct ha_member *member, struct own_port *own)
{
	HA_TRY(ha_nic_pd_get(own->port->nic, &own->on));
	own->mr = ibv_reg_mr(own->on->pd, member->memory->bytes, all_bytes(&member->shape),
			     IBV_ACCESS_LOCAL_WRITE);
	if (!own->mr) {
		leave_port(member, own);
		return HA_ERR_SYSTEM;
	}
	atomic_fetch_add(&member->memory->users, 1);
	return HA_OK;
}

static ha_result_t make_memory(struct ha_member *member, const struct ha_member_ports *ports)
{
	const size_t bytes = sizeof(*member->memory) + all_bytes(&member->shape);

	member->memory = aligned_alloc(alignof(struct memory), bytes);
	if (!member->memory)
		return HA_ERR_SYSTEM;
	memset(member->memory, 0, bytes);
	atomic_init(&member->memory->users, 1);
	for (unsigned int i = 0; i < ports->n; i++) {
		struct own_port *own = &member->port[member->n_ports++];

		own->port = ports->port[i];
		if (take_port(member, own) != HA_OK && i == 0)
			return HA_ERR_SYSTEM;
	}
	return HA_OK;
}

ha_result_t ha_member_open(const struct ha_member_shape *shape, const struct ha_member_ports *ports,
			   struct ha_member **out)
{
	struct ha_member *member =
	    calloc(1, sizeof(*member) + shape->lanes * sizeof(member->lane[0]));

	*out = NULL;
	if (!member)
		return HA_ERR_SYSTEM;
	member->shape = *shape;
	member->lanes = shape->lanes;
	member->first_op = member->next_op = 1;
	ha_ledger_init(&member->ledger, &shape->ledger);
	begin_at(member, 0);
	if (make_memory(member, ports) == HA_OK)
		*out = member;
	else
		return ha_member_close(member) == HA_OK ? HA_ERR_SYSTEM : HA_ERR_INTERNAL;
	return HA_OK;
}

ha_result_t ha_member_close(struct ha_member *member)
{
	if (!member)
		return HA_OK;
	HA_TRY(close_edges(member));
	for (unsigned int i = 0; i < member->n_ports; i++)
		leave_port(member, &member->port[i]);
	if (member->memory)
		let_go_of_memory(member->memory);
	free(member);
	return HA_OK;
}
