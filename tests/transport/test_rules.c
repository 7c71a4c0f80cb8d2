/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the failover protocol, one by one, at the moment each is for: messages are lost,
 * late or forged by hand. docs/protocol.md says what each rule is for, tests/mutants that these
 * tests notice when it is missing. And whatever a confused peer says, in whatever state, an end
 * ignores it, goes on or latches an error; it never crashes and never claims what is not so.
 */
#include "../unit/failover/fences.h"
#include "harness.h"
#include "instance/instance.h"

#include "base/clock.h"
#include "failover/engine.h"
#include "failover/fsm.h"
#include "failover/hear.h"
#include "failover/message.h"
#include "failover/notes.h"
#include "failover/signaling.h"
#include "transport/path_connect.h"
#include "transport/recv.h"
#include "transport/rings.h"
#include "transport/send.h"

#include <string.h>

/* ---- set-up -------------------------------------------------------------------------------- */

static void begin(struct pair *pair)
{
	pair_init(pair);
	pair->config.enable_backup = true;
	pair->fabric.rails = 2;
	pair_up(pair);
	transfer(pair, 3000, 1);
	pair_wait_standby(pair);
	assert_int_equal(pair->recv->failover->state, HA_FO_ACTIVE);
}

static unsigned state_of(const struct ha_comm *comm)
{
	return comm->failover->state;
}

/* A false alarm about the active path. */
static void alarm_at(struct ha_comm *comm)
{
	ha_token_acquire(comm);
	ha_failover_trigger(comm, ha_comm_path(comm), HA_REASON_OPERATOR, "a test");
	ha_failover_take_failures(comm); /* the first thing that a visit does */
	ha_token_release(comm);
}

/* What an end is about to say is lost. */
static void lose(struct ha_comm *comm)
{
	comm->failover->say = 0;
}

/* Of this kind none arrives: what comes in its place says nothing. */
static unsigned lost_kind, nlost;

size_t __real_ha_message_encode(const struct ha_message *in, uint8_t *out);
size_t __wrap_ha_message_encode(const struct ha_message *in, uint8_t *out);
size_t __wrap_ha_message_encode(const struct ha_message *in, uint8_t *out)
{
	struct ha_message empty = {.kind = HA_MSG_PONG, .serial = in->serial, .window.base = 1};

	if (in->kind != lost_kind)
		return __real_ha_message_encode(in, out);
	nlost++;
	empty.ports_up = in->ports_up;
	return __real_ha_message_encode(&empty, out);
}

/* A device that writes the next message while the one before is looked at. */
static struct ha_mailbox *rewritten;
static uint8_t next_message[HA_MAILBOX_BYTES];

enum ha_wire_result __real_ha_message_decode(const uint8_t *in, size_t len, struct ha_message *out);
enum ha_wire_result __wrap_ha_message_decode(const uint8_t *in, size_t len, struct ha_message *out);
enum ha_wire_result __wrap_ha_message_decode(const uint8_t *in, size_t len, struct ha_message *out)
{
	if (rewritten)
		memcpy(rewritten->bytes, next_message, sizeof(next_message));
	return __real_ha_message_decode(in, len, out);
}

static void hear(struct ha_comm *comm, const struct ha_message *m)
{
	ha_token_acquire(comm);
	ha_failover_hear(comm, m);
	ha_token_release(comm);
}

/* As if the other end said it, with all it knows. */
static struct ha_message forged(const struct ha_comm *to, const struct ha_comm *from, unsigned kind)
{
	struct ha_message m = {
	    .kind = (uint8_t)kind,
	    .epoch = from->failover->epoch,
	    .serial = from->failover->serial, /* not newer: says nothing of ports */
	    .generation = 1,
	    .window = to->is_send ? from->recv->done : from->send->completed,
	};

	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		m.fenced_gen[p] = from->failover->slots[p].fenced_gen;
	return m;
}

/* Both ends run on the same path again, and data gets there. */
static void goes_on(struct pair *pair)
{
	pair_idle(pair, 100);
	assert_int_equal(state_of(pair->send), HA_FO_ACTIVE);
	assert_int_equal(state_of(pair->recv), HA_FO_ACTIVE);
	transfer(pair, 20000, 2);
	assert_true(pair->recv->failover->resumed);
	assert_int_equal(atomic_load(&pair->send->epoch), atomic_load(&pair->recv->epoch));
}

/* ---- rules --------------------------------------------------------------------------------- */

static void what_is_not_answered_is_said_again(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	alarm_at(pair.recv);
	assert_int_equal(state_of(pair.recv), HA_FO_FENCING);
	lose(pair.recv);
	goes_on(&pair);
	assert_int_equal(pair.recv->failover->epoch, 2);
	assert_true(pair.recv->count.control_resent >= 1);
	pair_close(&pair);
}

/* A set of paths could not name it: the sender would have nothing to fence and nothing to confirm.
 */
static void a_generation_nobody_heard_of_is_fenced_all_the_same(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	ha_token_acquire(pair.recv);
	ha_slot_fence(pair.recv, 3, 7);
	ha_token_release(pair.recv);
	alarm_at(pair.recv);
	goes_on(&pair);
	assert_true(pair.send->failover->slots[3].fenced_gen >= 7);
	pair_close(&pair);
}

static void the_receiver_waits_until_the_sender_has_fenced(void **state)
{
	struct pair pair;

	(void)state;
	begin(&pair);
	alarm_at(pair.recv);
	for (int i = 0; i < 50; i++) {
		sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS);
		ha_instance_progress(pair.inst[1]); /* the sender does not run */
	}
	assert_true(all_are_fenced(pair.recv));
	assert_int_equal(state_of(pair.recv), HA_FO_FENCING);
	assert_int_equal(atomic_load(&pair.recv->epoch), 1);
	goes_on(&pair);
	pair_close(&pair);
}

static void a_rebuild_fences_the_older_generations(void **state)
{
	unsigned standby;
	struct pair pair;

	(void)state;
	begin(&pair);
	standby = pair.recv->active ^ 1u;
	assert_int_equal(pair.send->paths[standby]->generation, 1);
	/* Only the receiver knows that it is given up. */
	ha_token_acquire(pair.recv);
	ha_slot_fence(pair.recv, standby, 1);
	(void)ha_path_wait(pair.recv->paths[standby], 0);
	assert_true(ha_slots_drain(pair.recv, sv_stepped_now())); /* its place is free */
	ha_token_release(pair.recv);
	for (int i = 0; i < 200 && pair.recv->failover->slots[standby].newest_gen < 2; i++)
		pair_idle(&pair, 5);
	pair_idle(&pair, 100);
	pair_wait_standby(&pair);
	assert_true(pair.send->failover->slots[standby].fenced_gen >= 1);
	assert_true(pair.send->paths[standby]->generation >= 2);
	assert_int_equal(pair.send->paths[standby]->generation,
			 pair.recv->paths[standby]->generation);
	goes_on(&pair);
	pair_close(&pair);
}

/* Its answer would say too early what is complete. */
static void a_rebuild_of_the_active_path_waits(void **state)
{
	struct ha_message m;
	struct pair pair;
	unsigned active;

	(void)state;
	begin(&pair);
	active = pair.send->active;
	m = forged(pair.send, pair.recv, HA_MSG_REBUILD);
	m.path = (uint8_t)active;
	m.generation = 2;
	m.has_endpoint = true;
	ha_path_endpoint(pair.recv->paths[active], &m.endpoint);
	hear(pair.send, &m);
	pair_idle(&pair, 5);
	assert_true(ha_path_ready(pair.send->paths[active]));
	assert_int_equal(pair.send->paths[active]->generation, 1);
	goes_on(&pair);
	assert_int_equal(pair.send->failover->epoch, 1);
	pair_close(&pair);
}

/* A queue pair that does not drain is fenced when it has been destroyed, and not before. */
static void only_a_fence_that_is_confirmed_counts(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		const struct ha_path *path;
		struct ha_comm *stuck;
		struct pair pair;
		unsigned active;

		begin(&pair);
		stuck = end ? pair.recv : pair.send;
		active = stuck->active;
		path = ha_comm_path(stuck);
		assert_true(sv_stepped_wedge((uint32_t)end, (uint32_t)path->port->index,
					     path->qps[0].qp->qp_num, true));
		alarm_at(stuck);
		pair_idle(&pair, 10); /* of the 20 ms that a drain may take */
		assert_false(all_are_fenced(stuck));
		assert_int_equal(state_of(pair.recv), HA_FO_FENCING);
		if (stuck == pair.send)
			assert_int_equal(pair.recv->failover->slots[active].peer_fenced_gen, 0);
		pair_idle(&pair, 20);
		goes_on(&pair);
		assert_int_equal(pair.recv->failover->epoch, 2);
		pair_close(&pair);
	}
}

/* SUSPECT told the receiver all it has to know, so RESUME is the first that the sender hears. */
static void resume_says_all_that_fence_says(void **state)
{
	const size_t offset = 0, size = 5000;
	struct ha_request *recv, *send;
	const int tag = 3;
	struct pair pair;
	uint64_t posted;
	bool done;
	int id;

	(void)state;
	begin(&pair);
	fill(pair.from.bytes, size, 9);
	id = sv_stepped_fault_add("dropack host=1", captured_log, sizeof(captured_log));
	assert_true(id >= 0);
	recv = post_recv(&pair, 1, &offset, &size, &tag);
	send = post_send(&pair, 0, size, tag);
	sv_stepped_run(sv_stepped_now() + HA_NS_PER_MS / 2);
	assert_int_equal(ha_test(recv, &done, NULL), HA_OK);
	assert_true(done); /* there, and the sender does not know */
	memset(pair.to.bytes, 0x5a, size);
	sv_stepped_fault_remove(id);
	posted = pair.send->count.bytes;
	lost_kind = HA_MSG_FENCE;
	alarm_at(pair.send);
	for (int i = 0; i < 10000 && state_of(pair.send) != HA_FO_ACTIVE; i++)
		pair_step(&pair);
	lost_kind = 0;
	assert_true(nlost > 0);
	pair_idle(&pair, 20);
	assert_int_equal(ha_test(send, &done, NULL), HA_OK);
	assert_true(done);
	assert_int_equal(pair.send->count.bytes, posted + size);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(pair.to.bytes[i], 0x5a); /* and not sent again */
	goes_on(&pair);
	pair_close(&pair);
}

static void resumed_of_another_epoch_means_nothing(void **state)
{
	struct ha_message m;
	struct pair pair;

	(void)state;
	begin(&pair);
	alarm_at(pair.recv);
	for (int i = 0; i < 1000 && state_of(pair.recv) == HA_FO_FENCING; i++)
		pair_step(&pair);
	assert_int_equal(state_of(pair.recv), HA_FO_ACTIVE);
	pair.recv->failover->resumed = false; /* it has not heard yet */
	m = forged(pair.recv, pair.send, HA_MSG_RESUMED);
	m.epoch = 1;
	hear(pair.recv, &m);
	assert_false(pair.recv->failover->resumed);
	m.epoch = 2;
	hear(pair.recv, &m);
	assert_true(pair.recv->failover->resumed);
	goes_on(&pair);
	pair_close(&pair);
}

static void a_message_that_was_acknowledged_and_not_placed_is_an_error(void **state)
{
	static const unsigned kinds[] = {HA_MSG_SUSPECT, HA_MSG_FENCED};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		const size_t offset = 0, size = 100;
		struct ha_message m;
		struct pair pair;
		const int tag = 1;

		begin(&pair);
		assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
		alarm_at(pair.recv);
		m = forged(pair.recv, pair.send, kinds[i]);
		m.window.base++; /* the receive that is outstanding */
		hear(pair.recv, &m);
		pair_idle(&pair, 20);
		assert_int_equal(ha_comm_error(pair.recv), HA_ERR_REMOTE);
		assert_logged("message 2 is lost");
		assert_int_equal(state_of(pair.recv), HA_FO_LATCHED);
		assert_true(ha_comm_error(pair.send) != HA_OK); /* it was told */
		pair_close(&pair);
	}
}

/* `to` takes it for what it is, does nothing it says and gives up. */
static void latches(struct pair *pair, struct ha_comm *to, const struct ha_message *m)
{
	struct ha_window before = to->failover->peer_window;

	hear(to, m);
	assert_int_equal(ha_comm_error(to), HA_ERR_INTERNAL);
	assert_false(atomic_load(&to->peer_bye));
	assert_memory_equal(&to->failover->peer_window, &before, sizeof(before));
	pair_idle(pair, 20);
	assert_int_equal(state_of(to), HA_FO_LATCHED);
	pair_close(pair);
}

/* Believed, it would complete a send that nobody received. */
static void a_count_above_what_was_ever_posted_latches(void **state)
{
	static const unsigned kinds[] = {HA_MSG_PONG, HA_MSG_BYE, HA_MSG_STATE};

	(void)state;
	for (unsigned i = 0; i < 2 * 2 * sizeof(kinds) / sizeof(kinds[0]); i++) {
		bool at_sender = i & 1, by_bits = i & 2;
		struct ha_message m;
		struct pair pair;
		struct ha_comm *to;
		uint64_t end;

		begin(&pair);
		to = at_sender ? pair.send : pair.recv;
		end = at_sender ? ha_send_posted_end(to->send) : to->recv->next_seq;
		m = forged(to, at_sender ? pair.recv : pair.send, kinds[i / 4]);
		m.window = (struct ha_window){.base = by_bits ? end - 1 : end + 1};
		m.window.bits = by_bits ? 2 : 0; /* end itself */
		latches(&pair, to, &m);
		assert_logged("the peer counts");
	}
}

/* The peer writes into our memory whatever it likes: rows for sends, lengths for receives. */
static void a_clear_to_send_that_makes_no_sense_latches(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		const size_t offset = 0, size = 100;
		struct ha_request *send;
		const int tag = 1;
		struct ha_cts *row;
		struct pair pair;

		begin(&pair);
		assert_non_null(post_recv(&pair, 1, &offset, &size, &tag));
		pair_idle(&pair, 5);
		row = pair.send->send_ring->cts[pair.send->send->match_seq & pair.send->slot_mask];
		assert_int_equal(row->n, 1);
		row->n = i == 0 ? 0 : i == 1 ? HA_GROUP_MAX + 1 : 1;
		row->index = i == 2;
		assert_int_equal(
		    ha_isend(pair.send, pair.from.bytes, size, tag, pair.from.mr, &send),
		    HA_ERR_INTERNAL);
		assert_logged("makes no sense");
		assert_int_equal(ha_comm_error(pair.send), HA_ERR_INTERNAL);
		pair_idle(&pair, 20);
		assert_int_equal(state_of(pair.send), HA_FO_LATCHED);
		assert_true(ha_comm_error(pair.recv) != HA_OK); /* it was told */
		pair_close(&pair);
	}
}

/* Of one buffer, whose length its immediate tells, and of two, with a record of their lengths. */
static void a_message_longer_than_its_buffers_latches(void **state)
{
	(void)state;
	for (int n = 1; n <= 2; n++) {
		const size_t offset[] = {0, 2000}, size[] = {1000, 1000};
		const int tag[] = {1, 2};
		struct ha_recv_side *r;
		struct ha_request *recv;
		struct pair pair;
		int got[2];

		begin(&pair);
		r = pair.recv->recv;
		recv = post_recv(&pair, n, offset, size, tag);
		pair_idle(&pair, 5);
		/* Our own copy of the row: the sender goes by the one that it was sent. */
		pair.recv->recv_ring->cts[(r->next_seq - 1) & pair.recv->slot_mask][0].size = 999;
		r->slots[(r->next_seq - 1) & pair.recv->slot_mask].bytes -= n == 1;
		for (int i = 0; i < n; i++)
			post_send(&pair, offset[i], size[i], tag[i]);
		assert_int_equal(pair_finish(&pair, recv, got), HA_ERR_INTERNAL);
		assert_logged(n == 1 ? "is longer than its buffer of 999 bytes"
				     : "the sizes record of message");
		pair_idle(&pair, 20);
		assert_int_equal(state_of(pair.recv), HA_FO_LATCHED);
		pair_close(&pair);
	}
}

/* As many as there were is no reason to give up, also while they are about to be sent again. */
static void a_count_of_all_that_was_posted_is_believed(void **state)
{
	struct ha_message m;
	struct in_flight t;
	struct pair pair;

	(void)state;
	begin(&pair);
	t = pair_start(&pair);
	pair.send->send->posted_once = pair.send->send->post_seq;
	pair.send->send->post_seq = pair.send->send->completed.base; /* as a switch leaves it */
	m = forged(pair.send, pair.recv, HA_MSG_PONG);
	m.window.base = pair.send->send->posted_once;
	hear(pair.send, &m);
	assert_int_equal(ha_comm_error(pair.send), HA_OK);
	pair.send->send->post_seq = pair.send->send->posted_once;
	assert_int_equal(pair_finish(&pair, t.recv, NULL), HA_OK);
	assert_int_equal(pair_finish(&pair, t.send, NULL), HA_OK);
	pair_close(&pair);
}

static void overflow_fence(struct ha_message *m)
{
	m->fenced_gen[1] = UINT32_MAX;
}

static void overflow_yield(struct ha_message *m)
{
	m->yielded_gen[3] = UINT32_MAX;
}

static void overflow_epoch(struct ha_message *m)
{
	m->epoch = UINT32_MAX;
}

static void overflow_generation(struct ha_message *m)
{
	m->path = 2;
	m->generation = UINT32_MAX;
}

/* Believed, the next generation or epoch would be 0, and a path could never be built again. */
static void an_epoch_or_a_generation_that_cannot_be_latches(void **state)
{
	static void (*const overflows[])(struct ha_message * m) = {
	    overflow_fence, overflow_yield, overflow_epoch, overflow_generation};

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(overflows) / sizeof(overflows[0]); i++) {
		bool at_sender = i & 1;
		struct ha_message m;
		struct pair pair;
		struct ha_comm *to;

		begin(&pair);
		to = at_sender ? pair.send : pair.recv;
		m = forged(to, at_sender ? pair.recv : pair.send, HA_MSG_STATE);
		overflows[i / 2](&m);
		latches(&pair, to, &m);
		assert_logged("an epoch or a generation that cannot be");
	}
}

/* The peer's device may write into a mailbox at any time, also while a message is looked at. */
static void a_message_is_looked_at_and_heard_as_one(void **state)
{
	struct ha_message first, second;
	struct pair pair;

	(void)state;
	begin(&pair);
	first = forged(pair.send, pair.recv, HA_MSG_STATE);
	second = forged(pair.send, pair.recv, HA_MSG_BYE);
	ha_message_encode(&second, next_message);
	rewritten = &pair.send->send_ring->msg_in[0];
	ha_message_encode(&first, rewritten->bytes);
	ha_token_acquire(pair.send);
	pair.send->failover->slots[0].notes.msg = true;
	ha_signaling_read_path_msg(pair.send);
	ha_token_release(pair.send);
	assert_memory_equal(rewritten->bytes, next_message, HA_MESSAGE_BYTES);
	rewritten = NULL;
	assert_false(atomic_load(&pair.send->peer_bye));
	assert_int_equal(state_of(pair.send), HA_FO_ACTIVE);
	pair_close(&pair);
}

static void an_end_that_gives_up_tells_the_other(void **state)
{
	(void)state;
	for (int end = 0; end < 2; end++) {
		struct pair pair;
		struct ha_comm *one, *other;

		begin(&pair);
		one = end ? pair.recv : pair.send;
		other = end ? pair.send : pair.recv;
		ha_comm_fail(one, HA_ERR_INTERNAL, "a bug");
		pair_idle(&pair, 20);
		assert_int_equal(state_of(one), HA_FO_LATCHED);
		assert_true(all_are_fenced(one));
		assert_int_equal(ha_comm_error(other), HA_ERR_REMOTE);
		assert_int_equal(state_of(other), HA_FO_LATCHED);
		pair_close(&pair);
	}
}

/* ---- a peer that has lost its mind ---------------------------------------------------------- */

static uint32_t random_state;

static uint32_t roll(uint32_t sides)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (random_state >> 8) % sides;
}

/* A number near one that makes sense, or far from it. */
static uint32_t near(uint32_t value)
{
	static const uint32_t far[] = {0, 1, 7, 255, 65536, 0x7fffffff, 0xfffffffe, 0xffffffff};

	switch (roll(8)) {
	case 0:
		return far[roll(sizeof(far) / sizeof(far[0]))];
	case 1:
		return value + roll(3);
	case 2:
		return value - roll(3);
	default:
		return value;
	}
}

/* Any message that the decoder lets through. */
static struct ha_message anything(const struct ha_comm *to, const struct ha_comm *from)
{
	static const bool to_sender[HA_MSG_END] = {
	    [HA_MSG_FENCE] = true, [HA_MSG_RESUME] = true, [HA_MSG_REBUILD] = true,
	    [HA_MSG_PING] = true,  [HA_MSG_PONG] = true,   [HA_MSG_STATE] = true,
	};
	static const bool to_receiver[HA_MSG_END] = {
	    [HA_MSG_SUSPECT] = true, [HA_MSG_FENCED] = true,  [HA_MSG_RESUMED] = true,
	    [HA_MSG_REBUILT] = true, [HA_MSG_REFUSED] = true, [HA_MSG_PING] = true,
	    [HA_MSG_PONG] = true,    [HA_MSG_STATE] = true,
	};
	const struct ha_path *path;
	struct ha_message m;
	unsigned p = roll(HA_MAX_PATHS);

	/* One that ends everything, or that this end never says: now and then. */
	do {
		m = forged(to, from, 1 + roll(HA_MSG_END - 1));
	} while (roll(16) != 0 && !(to->is_send ? to_sender : to_receiver)[m.kind]);
	path = from->paths[p] ? from->paths[p] : to->paths[p];
	if (!path && (m.kind == HA_MSG_REBUILD || m.kind == HA_MSG_REBUILT))
		m.kind = HA_MSG_STATE;
	m.path = (uint8_t)p;
	m.generation = near(from->failover->slots[p].newest_gen);
	if (m.generation == 0)
		m.generation = 1;
	m.epoch = near(m.epoch);
	m.reason = (uint8_t)near(3);
	m.port = (uint8_t)roll(HA_MAX_OFFERS);
	m.peer_port = (uint8_t)roll(HA_MAX_OFFERS);
	m.code = (uint16_t)roll(100);
	m.serial = near(m.serial);
	m.ports_up = roll(4) ? 0xffffu : (uint16_t)roll(4);
	m.ports_drained = roll(4) ? 0 : (uint16_t)roll(4);
	m.rto_ms = near(1000);
	for (unsigned i = 0; i < HA_MAX_PATHS; i++)
		m.fenced_gen[i] = near(m.fenced_gen[i]);
	m.window.base = roll(4) ? m.window.base : near((uint32_t)m.window.base + 1);
	m.window.bits = roll(4) ? m.window.bits : (uint64_t)roll(1000) << roll(60);
	if (m.window.base == 0)
		m.window.base = 1;
	m.has_endpoint = path && m.kind != HA_MSG_SHED && m.kind != HA_MSG_MENDED &&
			 (m.kind == HA_MSG_REBUILD || m.kind == HA_MSG_REBUILT || roll(8) == 0);
	if (m.has_endpoint)
		ha_path_endpoint(path, &m.endpoint);
	m.endpoint.path = m.path;
	m.endpoint.generation = (uint16_t)m.generation;
	return m;
}

/* What SHED names had a generation, and what is done has no stripes; what MENDED names is fenced.
 * Else it is not let through. */
static void make_sense(struct ha_message *m)
{
	for (unsigned i = 0; i < HA_MAX_PATHS; i++) {
		m->mended_gen[i] = roll(2) ? m->fenced_gen[i] : 0;
		m->seen[i] = roll(1000) & ~m->window.bits;
		m->fenced_gen[i] += m->kind == HA_MSG_SHED && m->fenced_gen[i] == 0;
	}
	m->lost = (uint8_t)(1 + roll(15));
	m->drained = (uint8_t)(m->lost & roll(16));
}

static bool has_failed(const struct ha_comm *comm)
{
	return ha_comm_error(comm) != HA_OK;
}

/* It was told that the other end has closed: it waits for nothing more. */
static bool believes_bye(const struct ha_comm *comm)
{
	return atomic_load(&comm->peer_bye);
}

/* NULL: not now, or not any more. */
static struct ha_request *ask(struct pair *pair, size_t offset, size_t size, int tag)
{
	void *data = pair->to.bytes + offset;
	struct ha_request *request;

	return ha_irecv(pair->recv, 1, &data, &size, &tag, &pair->to.mr, &request) == HA_OK
		   ? request
		   : NULL;
}

static struct ha_request *offer(struct pair *pair, size_t offset, size_t size, int tag)
{
	struct ha_request *request;

	return ha_isend(pair->send, pair->from.bytes + offset, size, tag, pair->from.mr,
			&request) == HA_OK
		   ? request
		   : NULL;
}

static uint32_t at_most(uint32_t value, uint32_t limit)
{
	return value < limit ? value : limit;
}

/* Wrong, and not at first sight: no number that the peer cannot have. */
static void make_possible(const struct pair *pair, struct ha_message *m)
{
	const struct ha_failover *fo = pair->recv->failover;

	m->window = pair->recv->recv->done;
	m->epoch = at_most(m->epoch, fo->epoch);
	for (unsigned p = 0; p < HA_MAX_PATHS; p++)
		m->fenced_gen[p] = at_most(m->fenced_gen[p], fo->slots[p].newest_gen);
	if (fo->slots[m->path].newest_gen != 0)
		m->generation = at_most(m->generation, fo->slots[m->path].newest_gen);
	m->endpoint.generation = (uint16_t)m->generation;
}

/* It crashes nothing, and the receiver reports nothing but what was really sent to it. */
static bool any_message_run(uint32_t seed)
{
	const size_t offset[3] = {0, 40000, 80000}, size[3] = {30000, 64, 9000};
	struct ha_request *recv[3] = {NULL}, *send[3] = {NULL};
	bool forgot[3] = {false};
	struct pair pair;
	bool survived;

	random_state = seed;
	begin(&pair);
	for (int i = 0; i < 3; i++)
		fill(pair.from.bytes + offset[i], size[i], (uint32_t)i + 5);
	for (int round = 0; round < 60; round++) {
		struct ha_comm *to = roll(2) ? pair.send : pair.recv;
		struct ha_comm *from = to == pair.send ? pair.recv : pair.send;

		for (int i = 0; i < 3; i++) {
			bool done = false;
			int got = 0;

			if (!recv[i] && roll(4) == 0 && (i == 0 || recv[i - 1]))
				recv[i] = ask(&pair, offset[i], size[i], i);
			if (recv[i] && !send[i] && (i == 0 || send[i - 1]))
				send[i] = offer(&pair, offset[i], size[i], i);
			if (!recv[i] || forgot[i] || ha_test(recv[i], &done, &got) != HA_OK ||
			    !done)
				continue;
			forgot[i] = true;
			assert_non_null(send[i]); /* nothing that was not sent */
			assert_int_equal(got, (int)size[i]);
			assert_true(filled(pair.to.bytes + offset[i], size[i], (uint32_t)i + 5));
		}
		for (uint32_t i = roll(20); i > 0; i--)
			pair_step(&pair);
		if (roll(12) == 0) {
			uint8_t bytes[HA_MESSAGE_MAX_BYTES];
			struct ha_message m = anything(to, from), decoded;

			if (roll(8) != 0)
				make_possible(&pair, &m);
			if (m.kind == HA_MSG_SHED || m.kind == HA_MSG_MENDED)
				make_sense(&m);
			assert_int_equal(
			    ha_message_decode(bytes, ha_message_encode(&m, bytes), &decoded),
			    HA_WIRE_OK);
			hear(to, &decoded);
		}
	}
	/* Both go on or both have given up: within the deadline nobody waits for the other. */
	pair_idle(&pair, 3000);
	for (int i = 0; i < 40 && has_failed(pair.send) != has_failed(pair.recv); i++)
		pair_idle(&pair, 1000);
	survived = !has_failed(pair.send) && !has_failed(pair.recv);
	if (has_failed(pair.send) != has_failed(pair.recv) && !believes_bye(pair.send) &&
	    !believes_bye(pair.recv))
		fail_msg("seed %u: sender %s, receiver %s", seed,
			 ha_failover_state_name(state_of(pair.send)),
			 ha_failover_state_name(state_of(pair.recv)));
	pair_close(&pair);
	return survived;
}

static void any_message_in_any_state_is_survived_or_an_error(void **state)
{
	unsigned survived = 0, runs = 60;

	(void)state;
	for (uint32_t seed = 1; seed <= runs; seed++)
		survived += any_message_run(seed);
	/* Both kinds of end must have been seen. */
	assert_in_range(survived, 1, runs - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_not_answered_is_said_again),
	    cmocka_unit_test(a_generation_nobody_heard_of_is_fenced_all_the_same),
	    cmocka_unit_test(the_receiver_waits_until_the_sender_has_fenced),
	    cmocka_unit_test(a_rebuild_fences_the_older_generations),
	    cmocka_unit_test(a_rebuild_of_the_active_path_waits),
	    cmocka_unit_test(only_a_fence_that_is_confirmed_counts),
	    cmocka_unit_test(resume_says_all_that_fence_says),
	    cmocka_unit_test(resumed_of_another_epoch_means_nothing),
	    cmocka_unit_test(a_message_that_was_acknowledged_and_not_placed_is_an_error),
	    cmocka_unit_test(a_count_above_what_was_ever_posted_latches),
	    cmocka_unit_test(a_count_of_all_that_was_posted_is_believed),
	    cmocka_unit_test(a_clear_to_send_that_makes_no_sense_latches),
	    cmocka_unit_test(a_message_longer_than_its_buffers_latches),
	    cmocka_unit_test(an_epoch_or_a_generation_that_cannot_be_latches),
	    cmocka_unit_test(a_message_is_looked_at_and_heard_as_one),
	    cmocka_unit_test(an_end_that_gives_up_tells_the_other),
	    cmocka_unit_test(any_message_in_any_state_is_survived_or_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
